//! Patches of all types.

use http::Method;
use serde_json::{Map, Value, json};

use crate::odd::Odd;
use crate::request::{Act, Sent, Subject, put};
use crate::text;

impl Odd<'_> {
    pub(crate) fn patch(&mut self, act: Act, path: String, body: &Value, content_type: &str) -> Sent {
        let mut sent = Sent::new(act, Method::PATCH, path.clone());
        text::write(body, &mut sent.body);
        if self.once_in(25) {
            self.garble_bytes(&mut sent.body);
        }
        sent.header("content-type", content_type);
        sent.object = Some(path);
        sent
    }

    pub(crate) fn json_patch(&mut self, subject: &Subject<'_>) -> Sent {
        let body = self.operations(subject.object());
        self.patch(Act::JsonPatch, subject.path(), &body, "application/json-patch+json")
    }

    pub(crate) fn operations(&mut self, object: &Value) -> Value {
        let mut operations = Vec::new();
        for _ in 0..=self.rng.usize(..4) {
            let (pointer, value) = self.pointer(object);
            let op = self.pick(&["add", "remove", "replace", "move", "copy", "test", "ADD", ""]);
            let (from, _) = self.pointer(object);
            let value = match self.rng.usize(..4) {
                0 => value,
                1 => self.node(object),
                _ => {
                    let mut value = value;
                    self.mutate(&mut value, None);
                    value
                }
            };
            let mut operation = json!({"op": op, "path": pointer, "value": value, "from": from});
            if self.once_in(8) {
                self.mutate(&mut operation, None);
            }
            operations.push(operation);
        }
        let mut body = Value::Array(operations);
        if self.once_in(30) {
            self.mutate(&mut body, None);
        }
        body
    }

    fn node(&mut self, object: &Value) -> Value {
        self.pointer(object).1
    }

    /// A place in an object, and what is there; the place may be wrong.
    fn pointer(&mut self, object: &Value) -> (String, Value) {
        let (mut pointer, mut value) = (String::new(), object);
        loop {
            let (name, below) = match value {
                Value::Object(map) if !map.is_empty() => {
                    let (name, below) = map.iter().nth(self.rng.usize(..map.len())).unwrap_or_else(|| unreachable!());
                    (name.replace('~', "~0").replace('/', "~1"), below)
                }
                Value::Array(items) if !items.is_empty() => {
                    let at = self.rng.usize(..items.len());
                    (at.to_string(), &items[at])
                }
                _ => break,
            };
            pointer = format!("{pointer}/{name}");
            value = below;
            if self.once_in(4) {
                break;
            }
        }
        if self.once_in(5) {
            pointer.push_str(self.pick(&[
                "/-",
                "/0",
                "/-1",
                "/99999999999999999999",
                "/~2",
                "~",
                "/",
                "/a/b",
                "/01",
                "/1e0",
                "-",
                "/é",
                "/+1",
            ]));
        }
        (pointer, value.clone())
    }

    /// A merge patch; a strategic one has directives.
    pub(crate) fn merge_patch(&mut self, subject: &Subject<'_>, strategic: bool) -> Sent {
        let mut body = self.fragment(subject, strategic);
        if self.once_in(3) {
            self.mutate(&mut body, subject.kind.schema);
        }
        let (act, content_type) = if strategic {
            (Act::StrategicPatch, "application/strategic-merge-patch+json")
        } else {
            (Act::MergePatch, "application/merge-patch+json")
        };
        self.patch(act, subject.path(), &body, content_type)
    }

    fn fragment(&mut self, subject: &Subject<'_>, strategic: bool) -> Value {
        if self.once_in(8) {
            return self.pick_value();
        }
        let mut changed = subject.object().clone();
        self.mutate(&mut changed, subject.kind.schema);
        let mut body = self.part(&changed);
        if strategic {
            for _ in 0..=self.rng.usize(..2) {
                self.direct(&mut body);
            }
        }
        body
    }

    fn pick_value(&mut self) -> Value {
        let values = [
            json!(null),
            json!([]),
            json!({}),
            json!([{}]),
            json!("a"),
            json!(1),
            json!({"metadata": null}),
            json!({"spec": null}),
            json!({"metadata": {"name": null}}),
            json!({"kind": "Other"}),
            json!({"apiVersion": null}),
            json!({"$patch": "delete"}),
            json!({"$patch": "replace"}),
            json!({"metadata": []}),
            json!({"status": null}),
            json!({"metadata": {"managedFields": [{}]}}),
            json!({"metadata": {"resourceVersion": "abc"}}),
            json!({"metadata": {"uid": "x"}}),
        ];
        values[self.rng.usize(..values.len())].clone()
    }

    /// Some of the fields of a value, those that are not left out at any level.
    pub(crate) fn part(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let one = if map.is_empty() { 0 } else { self.rng.usize(..map.len()) };
                let mut out = Map::new();
                for (index, (name, value)) in map.iter().enumerate() {
                    if index == one || matches!(&**name, "name" | "containerPort" | "key" | "type") || self.once_in(5) {
                        out.insert(name.clone(), self.part(value));
                    }
                }
                Value::Object(out)
            }
            Value::Array(items) => {
                let items: Vec<_> = items.iter().collect();
                Value::Array(items.into_iter().map(|item| self.part(item)).collect())
            }
            other => other.clone(),
        }
    }

    /// Puts a directive of strategic patches somewhere.
    pub(crate) fn direct(&mut self, body: &mut Value) {
        let mut place = body;
        loop {
            let has_below = match &*place {
                Value::Object(map) => map.values().any(|value| value.is_object() || value.is_array()),
                Value::Array(items) => !items.is_empty(),
                _ => false,
            };
            if !has_below || self.once_in(3) {
                return self.direct_here(place);
            }
            let at = self.rng.usize(..64);
            place = match place {
                Value::Object(map) => {
                    let below = map.values_mut().filter(|value| value.is_object() || value.is_array());
                    let mut below: Vec<&mut Value> = below.collect();
                    let at = at % below.len();
                    below.swap_remove(at)
                }
                Value::Array(items) => {
                    let at = at % items.len();
                    &mut items[at]
                }
                _ => return,
            };
        }
    }

    fn direct_here(&mut self, place: &mut Value) {
        let value = match self.rng.usize(..6) {
            0 => Value::String(self.text()),
            1 => json!(null),
            2 => json!([{"name": "main"}, {"name": 1}, null]),
            3 => json!(["example.com/stay", 1, null, "a"]),
            _ => Value::String(self.pick(&["delete", "replace", "merge", "", "Delete"]).to_owned()),
        };
        match place {
            Value::Object(map) => {
                let keys: Vec<&String> = map.keys().collect();
                let field =
                    if keys.is_empty() { "containers".to_owned() } else { keys[self.rng.usize(..keys.len())].clone() };
                let key = match self.rng.usize(..8) {
                    0 => format!("$setElementOrder/{field}"),
                    1 => format!("$deleteFromPrimitiveList/{field}"),
                    2 => "$retainKeys".to_owned(),
                    3 => "$setElementOrder/containers".to_owned(),
                    4 => "$deleteFromPrimitiveList/finalizers".to_owned(),
                    5 => format!("$unknown/{field}"),
                    _ => "$patch".to_owned(),
                };
                map.insert(key, value);
            }
            Value::Array(items) => items.push(json!({"$patch": value, "name": "main"})),
            other => *other = json!({"$patch": value}),
        }
    }

    pub(crate) fn apply(&mut self, subject: &Subject<'_>) -> Sent {
        let whole = if self.rng.bool() { subject.valid.clone() } else { subject.object().clone() };
        let mut body = if self.rng.bool() { self.part(&whole) } else { whole };
        if self.rng.usize(..4) > 0 {
            self.mutate(&mut body, subject.kind.schema);
        }
        if let Some(body) = body.as_object_mut().filter(|_| self.rng.usize(..10) > 0) {
            body.insert("apiVersion".into(), subject.kind.api_version.as_str().into());
            body.insert("kind".into(), subject.kind.kind.as_str().into());
            if let Some(metadata) = body.entry("metadata").or_insert_with(|| json!({})).as_object_mut() {
                metadata.remove("managedFields");
                metadata.insert("name".into(), subject.name().into());
                if self.rng.usize(..10) > 0 {
                    metadata.remove("resourceVersion");
                }
            }
        }
        if self.once_in(10) {
            let fields = self.managed_fields();
            put(&mut body, "managedFields", fields);
        }
        let path = subject.path();
        let query = match self.rng.usize(..12) {
            0 => "",
            1 => "?fieldManager=",
            2 => "?fieldManager=a&force=maybe",
            3 => "?fieldManager=%01&force=true",
            4 => "?fieldManager=other",
            5 => "?fieldManager=fuzz&force=true&dryRun=All",
            _ => "?fieldManager=fuzz&force=true",
        };
        let content_type = self.pick(&[
            "application/apply-patch+yaml",
            "application/apply-patch+yaml",
            "application/apply-patch+yaml",
            "application/apply-patch+cbor",
        ]);
        let mut sent = Sent::new(Act::Apply, Method::PATCH, format!("{path}{query}"));
        sent.object = Some(path);
        if self.once_in(6) {
            sent.body = self.yaml(&body);
        } else {
            text::write(&body, &mut sent.body);
        }
        sent.header("content-type", content_type);
        sent
    }

    fn managed_fields(&mut self) -> Value {
        let mut entries = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}}}, "f:x": {"v:1": {}, "i:0": {}}}}}]);
        if self.once_in(5) {
            return self.pick_value();
        }
        if self.rng.bool() {
            let key = self.pick(&[
                "k:{}",
                "k:",
                "k:{\"name\":1}",
                "v:",
                "v:{",
                "i:x",
                "i:-1",
                "x",
                "f:",
                ".",
                "k:[1]",
                "k:{\"a\":{\"b\":[1.5]}}",
                "v:1e400",
            ]);
            entries[0]["fieldsV1"]["f:spec"][key] = json!({});
        }
        self.mutate(&mut entries, None);
        entries
    }
}
