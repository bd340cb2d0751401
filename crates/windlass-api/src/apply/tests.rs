//! Cases from transcripts of a real kube-apiserver (conformance `ssa-*`), and laws.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{ListType, SchemaRef, Type, builtin};

mod versions;

/// One stored object and its endpoint. Every write comes a second after the one before.
struct Stored<'s> {
    schema: &'s Schema,
    api_version: &'static str,
    kind: &'static str,
    live: Option<Value>,
    second: i64,
}

impl<'s> Stored<'s> {
    fn new(schema: &'s Schema, api_version: &'static str, kind: &'static str) -> Self {
        Self { schema, api_version, kind, live: None, second: 0 }
    }

    fn builtin(group: &str, api_version: &'static str, kind: &'static str) -> Stored<'static> {
        Stored::new(builtin::definition(builtin::by_kind(group, "v1", kind).unwrap()), api_version, kind)
    }

    fn manager(&self, name: &'static str, subresource: &'static str) -> Manager<'static> {
        let reset = match self.schema.name {
            Some(_) => Reset::of_builtin("", self.kind, subresource),
            None => Reset::of_custom(true, subresource),
        };
        Manager { name, api_version: self.api_version, kind: self.kind, subresource, reset, versions: &OneVersion }
    }

    fn now(&mut self) -> Timestamp {
        self.second += 1;
        Timestamp::from_second(self.second).unwrap()
    }

    fn config(&self, fields: &Value) -> Value {
        let mut config = json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": "a"}});
        crate::patch::merge::apply(&mut config, fields.clone()).unwrap();
        config
    }

    fn try_apply(&mut self, who: &Manager<'_>, fields: &Value, force: bool) -> Result<&Value, Status> {
        let now = self.now();
        let object = apply(self.schema, self.live.as_ref(), &self.config(fields), who, force, now)?;
        Ok(self.live.insert(object))
    }

    #[track_caller]
    fn apply(&mut self, name: &'static str, fields: &Value) -> &Value {
        let who = self.manager(name, "");
        self.try_apply(&who, fields, false).unwrap()
    }

    #[track_caller]
    fn force(&mut self, name: &'static str, fields: &Value) -> &Value {
        let who = self.manager(name, "");
        self.try_apply(&who, fields, true).unwrap()
    }

    #[track_caller]
    fn refused(&mut self, name: &'static str, fields: &Value) -> Status {
        let who = self.manager(name, "");
        self.try_apply(&who, fields, false).unwrap_err()
    }

    fn write(&mut self, name: &'static str, subresource: &'static str, new: Value) -> &Value {
        let who = self.manager(name, subresource);
        let now = self.now();
        let mut new = new;
        update(self.schema, self.live.as_ref(), &mut new, &who, now);
        self.live.insert(new)
    }

    /// `manager [subresource] operation second` and the set of every entry.
    fn owners(&self) -> Vec<(String, Value)> {
        let list = self.live.as_ref().unwrap()["metadata"].get("managedFields").cloned().unwrap_or_else(|| json!([]));
        let text = |entry: &Value| {
            let time: Option<Timestamp> = entry.get("time").map(|time| time.as_str().unwrap().parse().unwrap());
            let time = time.map_or_else(|| "-".to_owned(), |time| time.as_second().to_string());
            let mut name = entry["manager"].as_str().unwrap().to_owned();
            if let Some(subresource) = entry.get("subresource") {
                name = format!("{name}/{}", subresource.as_str().unwrap());
            }
            format!("{name} {} {time}", entry["operation"].as_str().unwrap())
        };
        list.as_array().unwrap().iter().map(|entry| (text(entry), entry["fieldsV1"].clone())).collect()
    }

    #[track_caller]
    fn expect_owners(&self, expected: &[(&str, Value)]) {
        let expected: Vec<(String, Value)> =
            expected.iter().map(|(who, set)| ((*who).to_owned(), set.clone())).collect();
        assert_eq!(self.owners(), expected);
    }
}

fn config_map() -> Stored<'static> {
    Stored::<'static>::builtin("", "v1", "ConfigMap")
}

#[test]
fn applying_creates_changes_and_removes() {
    let mut object = config_map();
    let both = json!({"metadata": {"labels": {"l": "1"}}, "data": {"x": "1", "y": "2"}});
    object.apply("m1", &both);
    let owned = json!({"f:data": {"f:x": {}, "f:y": {}}, "f:metadata": {"f:labels": {"f:l": {}}}});
    object.expect_owners(&[("m1 Apply 1", owned.clone())]);

    let before = object.live.clone();
    object.apply("m1", &both);
    assert_eq!(object.live, before, "the same apply changes nothing, not even times");

    let now = object.apply("m1", &json!({"data": {"x": "9"}}));
    assert_eq!(now["data"], json!({"x": "9"}));
    assert_eq!(now["metadata"].get("labels"), None);
    object.expect_owners(&[("m1 Apply 3", json!({"f:data": {"f:x": {}}}))]);

    // A merge patch by another manager.
    let mut new = object.live.clone().unwrap();
    new["data"]["z"] = json!("1");
    object.write("merger", "", new);
    object.expect_owners(&[
        ("m1 Apply 3", json!({"f:data": {"f:x": {}}})),
        ("merger Update 4", json!({"f:data": {"f:z": {}}})),
    ]);
}

#[test]
fn conflicts_name_every_owner() {
    let mut object = config_map();
    object.apply("m1", &json!({"data": {"x": "1", "s": "same"}}));
    object.apply("m2", &json!({"data": {"s": "same", "y": "2"}}));
    object.expect_owners(&[
        ("m1 Apply 1", json!({"f:data": {"f:s": {}, "f:x": {}}})),
        ("m2 Apply 2", json!({"f:data": {"f:s": {}, "f:y": {}}})),
    ]);
    let status = object.refused("m2", &json!({"data": {"s": "same", "y": "2", "x": "other"}}));
    assert_eq!(
        status.to_value(),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Conflict", "code": 409,
            "message": "Apply failed with 1 conflict: conflict with \"m1\": .data.x",
            "details": {"causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".data.x"}]}})
    );
    let status = object.refused("m3", &json!({"data": {"s": "diff", "x": "other"}}));
    assert_eq!(
        status.message,
        "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .data.s\n- .data.x\nconflicts with \"m2\":\n- .data.s"
    );

    object.force("m2", &json!({"data": {"s": "same", "y": "2", "x": "other"}}));
    let m2 = json!({"f:data": {"f:s": {}, "f:x": {}, "f:y": {}}});
    object.expect_owners(&[("m1 Apply 1", json!({"f:data": {"f:s": {}}})), ("m2 Apply 5", m2.clone())]);

    // m1 gives up a value that m2 keeps; nothing changes, so neither does the time.
    let now = object.apply("m1", &json!({"data": {}}));
    assert_eq!(now["data"], json!({"s": "same", "x": "other", "y": "2"}));
    object.expect_owners(&[("m1 Apply 1", json!({"f:data": {}})), ("m2 Apply 5", m2)]);

    let new = object.config(&json!({"data": {"s": "put", "y": "2", "x": "other"}}));
    object.write("putter", "", new);
    object.expect_owners(&[
        ("m1 Apply 1", json!({"f:data": {}})),
        ("m2 Apply 5", json!({"f:data": {"f:x": {}, "f:y": {}}})),
        ("putter Update 7", json!({"f:data": {"f:s": {}}})),
    ]);
    let status = object.refused("m2", &json!({"data": {"s": "same", "y": "2", "x": "other"}}));
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"putter\" using v1: .data.s");

    let now = object.force("m2", &json!({}));
    assert_eq!(now["data"], json!({"s": "put"}));
    object.expect_owners(&[("m1 Apply 1", json!({"f:data": {}})), ("putter Update 7", json!({"f:data": {"f:s": {}}}))]);

    // One empty entry clears the owners; what was there then belongs to no manager in particular.
    let mut new = object.live.clone().unwrap();
    new["metadata"]["managedFields"] = json!([{}]);
    object.write("x", "", new);
    object.expect_owners(&[]);
    let status = object.refused("m4", &json!({"data": {"s": "again"}}));
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.s");
    object.apply("m4", &json!({"data": {"s": "put"}}));
    object.expect_owners(&[
        ("m4 Apply -", json!({"f:data": {"f:s": {}}})),
        ("before-first-apply Update 12", json!({"f:data": {".": {}, "f:s": {}}})),
    ]);
}

#[test]
fn what_is_not_a_configuration_is_refused() {
    let mut object = config_map();
    let refuse = |config: Value| {
        let who = config_map().manager("m", "");
        apply(config_map().schema, None, &config, &who, false, Timestamp::UNIX_EPOCH).unwrap_err()
    };
    assert_eq!(refuse(json!({"kind": "ConfigMap"})).message, "invalid object type: /, Kind=ConfigMap");
    assert_eq!(refuse(json!({"apiVersion": "v1"})).message, "invalid object type: /v1, Kind=");
    assert_eq!(refuse(json!({"apiVersion": "a/v1", "kind": "X"})).message, "invalid object type: a/v1, Kind=X");
    let status = object.refused("m", &json!({"metadata": {"managedFields": [{"manager": "x"}]}}));
    assert_eq!((status.code.as_u16(), status.message.as_str()), (400, "metadata.managedFields must be nil"));
    let status = object.refused("m", &json!({"metadata": {"namespace": "ns"}, "bogus": 1}));
    assert_eq!((status.code.as_u16(), &*status.reason), (500, ""));
    assert_eq!(
        status.message,
        "failed to create typed patch object (ns/a; /v1, Kind=ConfigMap): .bogus: field not declared in schema"
    );
}

fn deployment_config(containers: &Value) -> Value {
    json!({"spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}}}})
}

fn containers_of(object: &Value) -> Vec<&str> {
    let list = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    list.iter().map(|container| container["name"].as_str().unwrap()).collect()
}

#[test]
fn appliers_share_lists() {
    let mut object = Stored::<'static>::builtin("apps", "apps/v1", "Deployment");
    let m1 = |containers: Value| {
        json!({"f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": {"f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {"f:containers": containers}}}})
    };
    object.apply(
        "m1",
        &deployment_config(&json!([{"name": "a", "image": "a:1", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                                    "env": [{"name": "E", "value": "1"}]}])),
    );
    object.expect_owners(&[(
        "m1 Apply 1",
        m1(json!({"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:name": {},
            "f:env": {"k:{\"name\":\"E\"}": {".": {}, "f:name": {}, "f:value": {}}},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}}}})),
    )]);
    let b = json!({"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "b:1"}]}}}});
    assert_eq!(containers_of(object.apply("m2", &b)), ["a", "b"]);
    let c = deployment_config(&json!([{"name": "c", "image": "c:1"}]));
    assert_eq!(containers_of(object.apply("m1", &c)), ["b", "c"]);
    object.expect_owners(&[
        ("m2 Apply 2", json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"b\"}": {".": {}, "f:image": {}, "f:name": {}}}}}}})),
        ("m1 Apply 3", m1(json!({"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}))),
    ]);
    let status = object.refused("m1", &deployment_config(&json!([{"name": "c"}, {"name": "c"}])));
    assert_eq!(
        status.message,
        "failed to create typed patch object (/a; apps/v1, Kind=Deployment): \
         .spec.template.spec.containers: duplicate entries for key [name=\"c\"]"
    );
}

#[test]
fn finalizers_are_a_set() {
    let mut object = config_map();
    object.apply("m1", &json!({"metadata": {"finalizers": ["e.com/a"]}}));
    let now = object.apply("m2", &json!({"metadata": {"finalizers": ["e.com/b"]}}));
    assert_eq!(now["metadata"]["finalizers"], json!(["e.com/a", "e.com/b"]));
    let set = |item: &str| json!({"f:metadata": {"f:finalizers": {item: {}}}});
    object.expect_owners(&[("m1 Apply 1", set("v:\"e.com/a\"")), ("m2 Apply 2", set("v:\"e.com/b\""))]);
    assert_eq!(object.apply("m1", &json!({}))["metadata"]["finalizers"], json!(["e.com/b"]));
    object.expect_owners(&[("m2 Apply 2", set("v:\"e.com/b\""))]);
    assert_eq!(object.apply("m2", &json!({}))["metadata"], json!({"name": "a"}));
}

#[test]
fn a_create_owns_what_it_sets() {
    let mut object = config_map();
    let new = object.config(&json!({"data": {"a": "1"}, "metadata": {"labels": {"l": "1"}}}));
    object.write("m", "", new);
    object.expect_owners(&[(
        "m Update 1",
        json!({"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}}),
    )]);

    let mut object = Stored::<'static>::builtin("apps", "apps/v1", "Deployment");
    let mut new = object.config(&deployment_config(&json!([{"name": "a", "image": "a:1", "resources": {}}])));
    new["status"] = json!({"replicas": 3});
    object.write("m", "", new);
    object.expect_owners(&[(
        "m Update 1",
        json!({"f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}}}}}}),
    )]);
}

#[test]
fn updates_keep_their_time_unless_they_take_something() {
    let mut object = config_map();
    let new = object.config(&json!({"data": {"a": "1", "b": "2"}}));
    object.write("m", "", new);
    // Nothing changed.
    let new = object.config(&json!({"data": {"a": "1", "b": "2"}}));
    object.write("other", "", new);
    let owned = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}});
    object.expect_owners(&[("m Update 1", owned)]);
    // A removal belongs to no manager.
    let new = object.config(&json!({"data": {"a": "1"}}));
    object.write("other", "", new);
    object.expect_owners(&[("m Update 1", json!({"f:data": {".": {}, "f:a": {}}}))]);
    // An entry that owns nothing any more goes.
    let new = object.config(&json!({}));
    object.write("", "", new);
    object.expect_owners(&[]);
    // And an object without owners stays without.
    let new = object.config(&json!({"data": {"a": "1"}}));
    object.write("m", "", new);
    object.expect_owners(&[]);
}

#[test]
fn status_is_owned_through_its_endpoint() {
    let mut object = Stored::<'static>::builtin("", "v1", "Pod");
    object.apply("m1", &json!({"spec": {"containers": [{"name": "c", "image": "img:1"}]}}));
    let gate = object.manager("gate", "status");
    let status = json!({"spec": {"activeDeadlineSeconds": 5}, "metadata": {"labels": {"l": "1"}},
                        "status": {"conditions": [{"type": "e.com/Gate", "status": "True"}]}});
    object.try_apply(&gate, &status, false).unwrap();
    let m1 = json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}}});
    let conditions = json!({"k:{\"type\":\"e.com/Gate\"}": {".": {}, "f:status": {}, "f:type": {}}});
    object.expect_owners(&[
        ("m1 Apply 1", m1.clone()),
        (
            "gate/status Apply 2",
            json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:status": {"f:conditions": conditions}}),
        ),
    ]);
    let mut new = object.live.clone().unwrap();
    new["status"]["phase"] = json!("Running");
    object.write("kubelet", "status", new);
    assert_eq!(object.owners()[2], ("kubelet/status Update 3".to_owned(), json!({"f:status": {"f:phase": {}}})));
    // A conflict names the endpoint.
    let other = object.manager("other", "status");
    let refused = object.try_apply(&other, &json!({"status": {"phase": "no"}}), false).unwrap_err();
    assert!(
        refused.message.contains("conflict with \"kubelet\" with subresource \"status\" using v1: .status.phase"),
        "{refused}"
    );
    // Through the main endpoint the status does not count.
    object.apply("m2", &json!({"status": {"phase": "no"}}));
    assert_eq!(object.owners().len(), 3);
}

#[test]
fn scaling_takes_the_replicas() {
    let mut object = Stored::<'static>::builtin("apps", "apps/v1", "Deployment");
    object.apply("m1", &json!({"spec": {"replicas": 1, "paused": true}}));
    let mut new = object.live.clone().unwrap();
    new["spec"]["replicas"] = json!(3);
    object.write("scaler", "scale", new);
    object.expect_owners(&[
        ("m1 Apply 1", json!({"f:spec": {"f:paused": {}}})),
        ("scaler/scale Update 2", json!({"f:spec": {"f:replicas": {}}})),
    ]);
}

fn object_schema(fields: impl IntoIterator<Item = (&'static str, Schema)>) -> Schema {
    let properties = fields.into_iter().map(|(name, schema)| (name.into(), SchemaRef::from(schema))).collect();
    Schema { ty: Type::Object, properties, ..Schema::default() }
}

fn scalar(ty: Type) -> Schema {
    Schema { ty, ..Schema::default() }
}

fn list(list_type: ListType, items: Schema) -> Schema {
    Schema { ty: Type::Array, list_type, items: Some(items.into()), ..Schema::default() }
}

fn rack() -> Schema {
    let slot = object_schema([("id", scalar(Type::String)), ("v", scalar(Type::Integer))]);
    let atom = object_schema([("a", scalar(Type::String)), ("b", scalar(Type::String))]);
    let gran = Schema { ty: Type::Object, additional: Some(scalar(Type::String).into()), ..Schema::default() };
    let spec = object_schema([
        ("replicas", scalar(Type::Integer)),
        ("slots", list(ListType::Map(vec!["id".into()]), slot)),
        ("tags", list(ListType::Set, scalar(Type::String))),
        ("plain", list(ListType::Atomic, scalar(Type::String))),
        ("atom", Schema { atomic: true, ..atom }),
        ("gran", gran),
    ]);
    let status = object_schema([("phase", scalar(Type::String)), ("replicas", scalar(Type::Integer))]);
    object_schema([("spec", spec), ("status", status)])
}

#[test]
fn custom_resources_follow_their_list_types() {
    let schema = rack();
    let mut object = Stored::new(&schema, "e.com/v1", "Rack");
    object.apply(
        "m1",
        &json!({"spec": {"replicas": 1, "slots": [{"id": "a", "v": 1}], "tags": ["x"], "plain": ["p"],
                         "atom": {"a": "1"}, "gran": {"k": "1"}}}),
    );
    let m1 = json!({"f:spec": {"f:atom": {}, "f:gran": {"f:k": {}}, "f:plain": {}, "f:replicas": {},
        "f:slots": {"k:{\"id\":\"a\"}": {".": {}, "f:id": {}, "f:v": {}}}, "f:tags": {"v:\"x\"": {}}}});
    object.expect_owners(&[("m1 Apply 1", m1.clone())]);
    let now = object.apply("m2", &json!({"spec": {"slots": [{"id": "b", "v": 2}], "tags": ["y"], "gran": {"j": "2"}}}));
    assert_eq!(
        now["spec"],
        json!({"atom": {"a": "1"}, "gran": {"j": "2", "k": "1"}, "plain": ["p"], "replicas": 1,
               "slots": [{"id": "a", "v": 1}, {"id": "b", "v": 2}], "tags": ["x", "y"]})
    );
    let m2 = json!({"f:spec": {"f:gran": {"f:j": {}}, "f:slots": {"k:{\"id\":\"b\"}": {".": {}, "f:id": {}, "f:v": {}}},
                               "f:tags": {"v:\"y\"": {}}}});
    object.expect_owners(&[("m1 Apply 1", m1.clone()), ("m2 Apply 2", m2.clone())]);

    let status = object.refused("m2", &json!({"spec": {"plain": ["q"], "atom": {"b": "2"}}}));
    assert_eq!(status.message, "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .spec.atom\n- .spec.plain");
    let status = object.refused("m2", &json!({"spec": {"slots": [{"id": "a", "v": 7}]}}));
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"m1\": .spec.slots[id=\"a\"].v");
    for (spec, problem) in [
        (json!({"tags": ["x", "x"]}), ".spec.tags: duplicate entries for key [=\"x\"]"),
        (json!({"replicas": "many"}), ".spec.replicas: expected numeric (int or float), got string"),
        (
            json!({"slots": [{"v": 1}]}),
            ".spec.slots: element 0: associative list with keys has an element that omits all key fields [\"id\"] \
             (and doesn't have default values for any key fields)",
        ),
    ] {
        let status = object.refused("m1", &json!({"spec": spec}));
        assert_eq!(status.message, format!("failed to create typed patch object (/a; e.com/v1, Kind=Rack): {problem}"));
    }

    let st = object.manager("st", "status");
    object.try_apply(&st, &json!({"status": {"phase": "ok", "replicas": 1}}), false).unwrap();
    let now = object.apply("m1", &json!({"spec": {"replicas": 5}}));
    assert_eq!(now["spec"], json!({"gran": {"j": "2"}, "replicas": 5, "slots": [{"id": "b", "v": 2}], "tags": ["y"]}));
    assert_eq!(now["status"], json!({"phase": "ok", "replicas": 1}));
    let st = json!({"f:status": {"f:phase": {}, "f:replicas": {}}});
    assert_eq!(
        object.owners().into_iter().map(|(_, set)| set).collect::<Vec<_>>(),
        [m2, st, json!({"f:spec": {"f:replicas": {}}})]
    );
}

#[test]
fn a_custom_resource_starts_from_nothing() {
    let schema = rack();
    let mut object = Stored::new(&schema, "e.com/v1", "Rack");
    let new = object.config(&json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 1}}));
    object.write("m", "", new);
    object.expect_owners(&[(
        "m Update 1",
        json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {".": {}, "f:replicas": {}}}),
    )]);
}

/// Versions that differ in nothing but their name.
struct SameShape<'s> {
    schema: &'s Schema,
    api_versions: &'s [&'s str],
}

impl Versions for SameShape<'_> {
    fn convert<'v, 'o>(&'v self, object: &'o Value, api_version: &str) -> Converted<'o, 'v> {
        let known = self.api_versions.contains(&api_version);
        if known { Ok((Cow::Borrowed(object), self.schema)) } else { Err(Unconvertible::NoSuchVersion) }
    }
}

#[test]
fn other_versions_keep_their_entries() {
    let schema = rack();
    let versions = SameShape { schema: &schema, api_versions: &["e.com/v1", "e.com/v2"] };
    let mut object = Stored::new(&schema, "e.com/v1", "Rack");
    object.apply("m1", &json!({"spec": {"replicas": 1, "tags": ["x"]}}));
    object.api_version = "e.com/v2";
    let m2 = Manager { versions: &versions, ..object.manager("m2", "") };
    let refused = object.try_apply(&m2, &json!({"spec": {"replicas": 2}}), false).unwrap_err();
    assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"m1\": .spec.replicas");
    object.try_apply(&m2, &json!({"spec": {"replicas": 2}}), true).unwrap();
    assert_eq!(object.owners()[0].1, json!({"f:spec": {"f:tags": {"v:\"x\"": {}}}}));
    // The applier may change version, and still gives up what it had.
    let m1 = Manager { versions: &versions, ..object.manager("m1", "") };
    let now = object.try_apply(&m1, &json!({"metadata": {"labels": {"l": "1"}}}), false).unwrap();
    assert_eq!(now["spec"], json!({"replicas": 2}));
    // Entries of versions that are gone go too.
    object.apply("m3", &json!({"metadata": {"labels": {"m": "1"}}}));
    assert_eq!(object.owners().len(), 3);
    object.api_version = "e.com/v3";
    object.apply("m3", &json!({"metadata": {"labels": {"m": "1"}}}));
    assert_eq!(object.owners().len(), 1);
}

#[test]
fn kubectl_takes_over_from_its_client_side_apply() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let mut object = config_map();
    let last = object.config(&json!({"data": {"a": "1", "b": "2"}})).to_string();
    let new = object
        .config(&json!({"data": {"a": "1", "b": "2", "c": "3"}, "metadata": {"annotations": {annotation: last}}}));
    object.write("kubectl-client-side-apply", "", new);
    // Not everybody may.
    let config = json!({"data": {"a": "9", "b": "2"}});
    assert!(object.refused("m", &config).message.contains(".data.a"));
    let now = object.apply("kubectl", &config);
    assert_eq!(now["data"], json!({"a": "9", "b": "2", "c": "3"}));
    let expected = object.config(&config).to_string() + "\n";
    assert_eq!(object.live.as_ref().unwrap()["metadata"]["annotations"][annotation], json!(expected));
    // What the annotation does not speak of still conflicts.
    let status = object.refused("kubectl", &json!({"data": {"a": "8", "b": "2", "c": "4"}}));
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.c"
    );
}

#[test]
fn changed_times_alone_are_undone() {
    let mut object = config_map();
    object.apply("m", &json!({"data": {"a": "1"}}));
    let live = object.live.clone().unwrap();
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("2030-01-01T00:00:00Z");
    let mut unchanged = new.clone();
    keep_times_if_unchanged(&live, &mut unchanged);
    assert_eq!(unchanged, live);
    new["data"]["a"] = json!("2");
    let mut changed = new.clone();
    keep_times_if_unchanged(&live, &mut changed);
    assert_eq!(changed, new);
}

/// Configurations. Empty lists and objects are left out: upstream prunes what became empty altogether,
/// so that they go and come back with every other apply.
fn any_spec() -> impl Strategy<Value = Value> {
    let slots = prop::collection::btree_map("[a-c]", prop::option::of(0i64..3), 1..3).prop_map(|slots| {
        let slot = |(id, v): (String, Option<i64>)| v.map_or_else(|| json!({"id": id}), |v| json!({"id": id, "v": v}));
        Value::from(slots.into_iter().map(slot).collect::<Vec<_>>())
    });
    let tags = prop::collection::btree_set("[x-z]", 1..3).prop_shuffle_set();
    let gran = prop::collection::btree_map("[i-k]", "[0-1]", 1..3).prop_map(|map| json!(map));
    let atom = prop::collection::btree_map("[ab]", "[0-1]", 0..3).prop_map(|map| json!(map));
    let replicas = (0i64..3).prop_map(Value::from);
    let plain = prop::collection::vec("[0-1]", 0..2).prop_map(Value::from);
    (
        prop::option::of(slots),
        prop::option::of(tags),
        prop::option::of(gran),
        prop::option::of(atom),
        replicas,
        prop::option::of(plain),
    )
        .prop_map(|(slots, tags, gran, atom, replicas, plain)| {
            let mut spec = serde_json::Map::new();
            for (name, value) in [
                ("slots", slots),
                ("tags", tags),
                ("gran", gran),
                ("atom", atom),
                ("replicas", Some(replicas)),
                ("plain", plain),
            ] {
                spec.extend(value.map(|value| (name.to_owned(), value)));
            }
            json!({"metadata": {"labels": {"always": "there"}}, "spec": spec})
        })
}

/// Sets in an arbitrary order, as lists.
trait ShuffleSet {
    fn prop_shuffle_set(self) -> impl Strategy<Value = Value>;
}

impl<S: Strategy<Value = std::collections::BTreeSet<String>>> ShuffleSet for S {
    fn prop_shuffle_set(self) -> impl Strategy<Value = Value> {
        self.prop_map(|set| set.into_iter().collect::<Vec<_>>()).prop_shuffle().prop_map(Value::from)
    }
}

/// Upstream's way to prune: set operations on the whole object. The real one must agree with it.
fn prune_by_sets(shape: Shape<'_>, merged: &Value, last: &Trie, managed: &Trie) -> Value {
    let set_of = |value: &Value| named_are_members(shape, &owned::set_of(shape, value));
    let minus = |mut set: Trie, other: &Trie| {
        fields::difference(&mut set, other);
        set
    };
    let last = named_are_members(shape, last);
    let merged_set = set_of(merged);
    let pruned = remove_items(shape, merged, &last);
    // Give back what others own.
    let mut kept = set_of(&pruned);
    fields::union(&mut kept, &named_are_members(shape, managed));
    let pruned = remove_items(shape, merged, &minus(merged_set.clone(), &kept));
    // Give back what was not the applier's.
    let gone = minus(merged_set, &set_of(&pruned));
    remove_items(shape, merged, &fields::intersection(&gone, &last))
}

fn named_are_members(shape: Shape<'_>, set: &Trie) -> Trie {
    let mut out = Trie::new();
    for (element, node) in set.iter().filter(|(element, _)| *element != fields::SELF) {
        let field = element.strip_prefix("f:").filter(|_| shape.kind_of(&Value::Null) == shape::Kind::Map);
        let below = field.map_or_else(|| shape.item(), |name| shape.field(name));
        let named = field.is_some_and(|name| shape.names_field(name));
        let children = fields::below(node).map(|trie| named_are_members(below, trie)).unwrap_or_default();
        out.extend(fields::node(fields::is_member(node) || named, children).map(|node| (element.clone(), node)));
    }
    out
}

fn remove_items(shape: Shape<'_>, value: &Value, unwanted: &Trie) -> Value {
    let keep = |element: &str, below: Shape<'_>, value: &Value| match unwanted.get(element) {
        Some(node) if fields::is_member(node) => None,
        Some(node) => Some(fields::below(node).map_or_else(|| value.clone(), |trie| remove_items(below, value, trie))),
        None => Some(value.clone()),
    };
    match value {
        Value::Object(map) if !map.is_empty() && !shape.map_is_atomic() => {
            let left = map.iter().filter_map(|(name, value)| {
                Some((name.clone(), keep(&fields::field(name), shape.field(name), value)?))
            });
            let left: serde_json::Map<String, Value> = left.collect();
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        Value::Array(items) if !items.is_empty() && !shape.list_is_atomic() => {
            let left = items.iter().filter_map(|item| {
                let mut element = String::new();
                shape.write_item(item, &mut element).unwrap();
                keep(&element, shape.item(), item)
            });
            let left: Vec<Value> = left.collect();
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        Value::Object(_) | Value::Array(_) => Value::Null,
        scalar => scalar.clone(),
    }
}

/// A part of a set: each path stays if the next bit is set. Keys stay with their items.
fn thin_out(set: &Trie, bits: &mut impl Iterator<Item = bool>) -> Trie {
    let mut out = Trie::new();
    for (element, node) in set.iter().filter(|(element, _)| *element != fields::SELF) {
        let member = fields::is_member(node) && bits.next().unwrap_or(true);
        let mut children = fields::below(node).map(|trie| thin_out(trie, bits)).unwrap_or_default();
        if element.starts_with("k:") {
            children.remove("f:id");
            if member {
                children.insert("f:id".to_owned(), fields::leaf());
            }
        }
        out.extend(fields::node(member, children).map(|node| (element.clone(), node)));
    }
    out
}

const NAMES: [&str; 3] = ["m0", "m1", "m2"];

proptest! {
    #[test]
    fn applying_twice_is_applying_once(writes in prop::collection::vec((0usize..3, any::<bool>(), any_spec()), 1..6)) {
        let schema = rack();
        let mut object = Stored::new(&schema, "e.com/v1", "Rack");
        for (who, applied, fields) in writes {
            if applied {
                object.force(NAMES[who], &fields);
                let once = object.live.clone();
                object.apply(NAMES[who], &fields);
                prop_assert_eq!(&object.live, &once);
            } else {
                let mut new = object.config(&fields);
                if let Some(live) = &object.live {
                    new["metadata"] = live["metadata"].clone();
                }
                object.write(NAMES[who], "", new);
            }
        }
    }

    #[test]
    fn pruning_agrees_with_set_operations(
        specs in prop::collection::vec(any_spec(), 3),
        bits in prop::collection::vec(prop::bool::weighted(0.7), 60),
    ) {
        let schema = rack();
        let shape = Shape::root(&schema);
        let mut object = json!({"metadata": {"name": "a"}});
        let mut bits = bits.into_iter();
        let mut sets = Vec::new();
        for spec in &specs {
            merge::merge(shape, &mut object, spec);
            sets.push(thin_out(&owned::set_of(shape, spec), &mut bits));
        }
        let mut managed = sets[1].clone();
        fields::union(&mut managed, &sets[2]);
        let extra = json!({"f:metadata": {"f:name": {}}});
        fields::union(&mut managed, extra.as_object().unwrap());
        let expected = prune_by_sets(shape, &object, &sets[0], &managed);
        merge::prune(shape, &mut object, &sets[0], &[&sets[1], &sets[2], extra.as_object().unwrap()]);
        prop_assert_eq!(object, expected);
    }

    #[test]
    fn what_is_applied_is_there(first in any_spec(), second in any_spec(), mine in any_spec()) {
        let schema = rack();
        let mut object = Stored::new(&schema, "e.com/v1", "Rack");
        object.apply("m0", &first);
        object.force("m1", &second);
        object.force("m2", &mine);
        // Merging the configuration into the result changes nothing.
        let mut again = object.live.clone().unwrap();
        merge::merge(Shape::root(&schema), &mut again, &object.config(&mine));
        prop_assert_eq!(object.live.as_ref().unwrap(), &again);
    }

    #[test]
    fn a_sole_applier_leaves_nothing_behind(first in any_spec(), second in any_spec()) {
        let schema = rack();
        let mut object = Stored::new(&schema, "e.com/v1", "Rack");
        object.apply("m0", &first);
        object.apply("m0", &second);
        let mut fresh = Stored::new(&schema, "e.com/v1", "Rack");
        fresh.apply("m0", &second);
        let sets = |object: &Stored<'_>| object.owners().into_iter().map(|(_, set)| set).collect::<Vec<_>>();
        prop_assert_eq!(sets(&object), sets(&fresh));
        let owned = |object: &Stored<'_>| owned::set_of(Shape::root(&schema), object.live.as_ref().unwrap());
        let strip_owners = |mut set: Trie| { fields::remove_below(&mut set, &["metadata"]); set };
        prop_assert_eq!(strip_owners(owned(&object)), strip_owners(owned(&fresh)));
    }

    #[test]
    fn every_owned_field_of_an_update_was_written(first in any_spec(), second in any_spec()) {
        let schema = rack();
        let mut object = Stored::new(&schema, "e.com/v1", "Rack");
        let new = object.config(&first);
        object.write("m0", "", new);
        let mut new = object.config(&second);
        new["metadata"] = object.live.as_ref().unwrap()["metadata"].clone();
        object.write("m1", "", new);
        // Together the two own exactly what a single create of the result would.
        let mut together = Trie::new();
        object.owners().iter().for_each(|(_, set)| fields::union(&mut together, set.as_object().unwrap()));
        let mut fresh = Stored::new(&schema, "e.com/v1", "Rack");
        let new = fresh.config(&second);
        fresh.write("m0", "", new);
        let alone = fresh.owners().pop().map(|(_, set)| set.as_object().cloned().unwrap()).unwrap_or_default();
        prop_assert_eq!(together, alone);
    }
}
