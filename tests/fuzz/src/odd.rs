//! Mutations of values, and values made up from schemas.

use std::ops::Deref;

use fastrand::Rng;
use serde_json::{Map, Value, json};
use windlass_api::schema::{Schema, Type};

use crate::kinds::Material;
use crate::text;

/// How deep made-up values nest.
const DEEPEST: usize = 4;

/// Text that is wrong somewhere, or nearly.
const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "fuzz",
    "fuzzed",
    "default",
    "kube-system",
    "A_b",
    "-a",
    "a-",
    "a.b",
    "a/b",
    "a/b/c",
    "..",
    ".",
    "%2f",
    "\n",
    "\0",
    "\u{7f}",
    "é",
    "𝒳",
    "\u{202e}",
    "\u{feff}",
    "\u{fffd}",
    "ﬃ",
    "null",
    "true",
    "False",
    "0",
    "1",
    "-1",
    "65536",
    "1e3",
    "0x10",
    "007",
    "$(A)",
    "$(",
    "$$(A)",
    "10.0.0.1",
    "10.0.0.0/33",
    "10.0.0.0/8",
    "010.0.0.1",
    "::",
    "::1",
    "::ffff:1.2.3.4",
    "fd00::/108",
    "300.1.1.1",
    "100m",
    "1.5Gi",
    "1e99",
    "1E",
    "-5",
    "9999999999999999999",
    "1n",
    "0.0000000001",
    "50%",
    "101%",
    "-1%",
    "2026-01-01T00:00:00Z",
    "2026-13-45T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "2026-01-01T00:00:00.000000+14:00",
    "2026-02-30T24:00:60Z",
    "1h",
    "-1ns",
    "9999999h",
    "+",
    "*",
    "*.a",
    "*/*",
    "a=b",
    "a=b,c",
    "a in (b)",
    "in (",
    "{{x}}",
    ".spec[*]",
    ".spec.replicas",
    ".spec['a']",
    "..a",
    "$['a']",
    "[",
    "(",
    "\\",
    "(?P<a>",
    "a{1000}{1000}",
    "^(a+)+$",
    "self",
    "self.x",
    "object.spec",
    "1/0",
    "[1,2][9]",
    "true",
    "'a'.matches('[')",
    "size(self) > 0",
    "self.all(x, x)",
    "dyn(self).a.b",
    "oldSelf == self",
    "Object{}",
    "[JSONPatch{op: 'add', path: '/x', value: 1}]",
    "variables.x",
    "params.data",
    "authorizer.group('').resource('pods').check('get').allowed()",
    "Always",
    "Never",
    "OnFailure",
    "TCP",
    "SCTP",
    "ClusterIP",
    "None",
    "NodePort",
    "ExternalName",
    "IPv6",
    "Recreate",
    "RollingUpdate",
    "Local",
    "Indexed",
    "Guaranteed",
    "Exists",
    "In",
    "NotIn",
    "Equal",
    "NoExecute",
    "NoSchedule",
    "Delete",
    "Retain",
    "Localhost",
    "Unconfined",
    "Exempt",
    "Limited",
    "v1",
    "apps/v1",
    "v1beta1",
    "a/b/v1",
    "Pod",
    "Node",
    "Status",
    "List",
    "pods",
    "nodes",
    "pods/status",
    "cpu",
    "memory",
    "requests.cpu",
    "limits.memory",
    "hugepages-2Mi",
    "requests.storage",
    "count/pods",
    "metadata.name",
    "spec.nodeName",
    "metadata.annotations['a']",
    "kubernetes.io/hostname",
    "example.com/a",
    "foregroundDeletion",
    "orphan",
    "kubernetes",
    "system:admin",
    "system:masters",
    "system:serviceaccount:fuzz:fuzzed",
    "* * * * *",
    "@hourly",
    "@every 1s",
    "TZ=UTC * * * * *",
    "60 * * * *",
    "Europe/Berlin",
    "Nowhere/At",
    "https://127.0.0.1:1/",
    "http://127.0.0.1:1",
    "//",
    "AAEC",
    "AAE=",
    "!!!",
    "-----BEGIN CERTIFICATE-----",
];

/// Numbers at the edges of types.
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "100",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "123456789012345678901234567890",
    "0.1",
    "1.5",
    "1.0",
    "-0.0",
    "1e2",
    "1E+2",
    "1e-7",
    "1e21",
    "1e308",
    "1e309",
    "-1e400",
    "5e-324",
    "0e0",
];

/// What is no JSON, and breaks the document.
const BROKEN: &[&str] = &[
    "00",
    "01",
    "+1",
    ".5",
    "1.",
    "NaN",
    "0x1F",
    "nul",
    "'a'",
    "\"\\ud800\"",
    "\"\\ud800\\udc00\"",
    "\"\\q\"",
    "",
    "//",
    "[,]",
    "{,}",
    "\"",
    "\u{feff}1",
];

/// What mutations choose from.
pub(crate) struct Odd<'a> {
    pub(crate) rng: Rng,
    pub(crate) material: &'a Material,
}

impl Odd<'_> {
    /// Whether something that happens once in `times` happens.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.rng.usize(..times) == 0
    }

    pub(crate) fn pick<'t, T: ?Sized>(&mut self, from: &[&'t T]) -> &'t T {
        from[self.rng.usize(..from.len())]
    }

    /// Changes a value in one to three places.
    pub(crate) fn mutate(&mut self, value: &mut Value, schema: Option<&Schema>) {
        for _ in 0..=self.rng.usize(..3) {
            if self.once_in(3) {
                let mut place = self.rng.usize(..count(value));
                if let Some((value, schema)) = find(value, schema, &mut place) {
                    self.replace(value, schema);
                }
            } else {
                self.mutate_container(value, schema);
            }
        }
    }

    fn mutate_container(&mut self, root: &mut Value, schema: Option<&Schema>) {
        let spare = self.node_of(root);
        let nodes = count(root);
        for _ in 0..8 {
            let mut place = self.rng.usize(..nodes);
            match find(root, schema, &mut place) {
                Some((Value::Object(map), schema)) => return self.mutate_map(map, schema, spare),
                Some((Value::Array(items), schema)) => return self.mutate_list(items, schema, spare),
                _ => {}
            }
        }
    }

    /// A copy of a part of a value.
    fn node_of(&mut self, root: &mut Value) -> Value {
        let mut place = self.rng.usize(..count(root));
        find(root, None, &mut place)
            .map_or(Value::Null, |(value, _)| if count(value) < 50 { value.clone() } else { Value::Null })
    }

    fn mutate_map(&mut self, map: &mut Map<String, Value>, schema: Option<&Schema>, spare: Value) {
        let key = match map.len() {
            0 => None,
            len => map.keys().nth(self.rng.usize(..len)).cloned(),
        };
        let other = match map.len() {
            0 => None,
            len => map.keys().nth(self.rng.usize(..len)).cloned(),
        };
        match (self.rng.usize(..14), key, other) {
            (0..=1, Some(key), _) => {
                map.remove(&key);
            }
            (2, Some(key), _) => {
                map.insert(key, Value::Null);
            }
            (3, Some(key), _) => {
                let again = if self.rng.bool() { map[&key].clone() } else { self.any(None) };
                map.insert(text::repeated(&key), again);
            }
            (4, Some(key), Some(other)) => {
                let (one, two) = (map[&key].clone(), map[&other].clone());
                map.insert(key, two);
                map.insert(other, one);
            }
            (5, Some(key), _) => {
                map.insert(key, spare);
            }
            (6, Some(key), _) => {
                let value = map.remove(&key).unwrap_or_default();
                let key = if self.rng.bool() { self.text() } else { key.to_uppercase() };
                map.insert(key, value);
            }
            (7, Some(key), _) if self.once_in(20) => {
                let value = map[&key].clone();
                for index in 0..=self.rng.usize(..800) {
                    map.insert(format!("{key}{index}"), value.clone());
                }
            }
            (8, ..) => {
                let (key, value) = (self.text(), self.any(None));
                map.insert(key, value);
            }
            (_, key, _) => {
                let grown = schema.filter(|schema| !schema.properties.is_empty()).map(|schema| {
                    let at = self.rng.usize(..schema.properties.len());
                    schema.properties.iter().nth(at).map(|(name, schema)| (name.to_string(), &**schema))
                });
                match (grown.flatten(), schema.and_then(|schema| schema.additional.as_deref()), key) {
                    (Some((name, schema)), ..) => {
                        let value = self.invent(&name, schema, 0);
                        map.insert(name, value);
                    }
                    (None, Some(schema), _) => {
                        let (key, value) = (self.text(), self.invent("", schema, 0));
                        map.insert(key, value);
                    }
                    (None, None, Some(key)) => {
                        let value = self.known(&key).unwrap_or_else(|| self.any(None));
                        map.insert(key, value);
                    }
                    (None, None, None) => {}
                }
            }
        }
    }

    fn mutate_list(&mut self, items: &mut Vec<Value>, schema: Option<&Schema>, spare: Value) {
        let at = if items.is_empty() { 0 } else { self.rng.usize(..items.len()) };
        match self.rng.usize(..8) {
            0 if !items.is_empty() => {
                items.remove(at);
            }
            1 | 2 if !items.is_empty() => items.push(items[at].clone()),
            3 if !items.is_empty() => items[at] = Value::Null,
            4 if !items.is_empty() && self.once_in(20) => {
                let item = items[at].clone();
                let times = if count(&item) > 20 { 30 } else { 1200 };
                items.extend(std::iter::repeat_n(item, self.rng.usize(..times)));
            }
            5 => items.reverse(),
            6 => items.push(spare),
            _ => {
                let item = match schema.and_then(|schema| schema.items.as_deref()) {
                    Some(schema) => self.invent("", schema, 0),
                    None => self.any(None),
                };
                items.insert(at, item);
            }
        }
    }

    /// Puts something else in the place of a value.
    fn replace(&mut self, value: &mut Value, schema: Option<&Schema>) {
        *value = match (self.rng.usize(..10), &*value) {
            (0, _) => Value::Null,
            (1, Value::Object(_)) => json!([std::mem::take(value)]),
            (1, Value::Array(items)) => items.first().cloned().unwrap_or_default(),
            (1, Value::String(text)) => text.parse::<i64>().map_or(json!({}), Into::into),
            (1, other) => Value::String(other.to_string()),
            (2..=4, Value::String(text)) if !text.starts_with(text::MARK) => Value::String(self.garble(text)),
            (2..=4, Value::Number(number)) => {
                let number = number.as_i64().unwrap_or(1);
                let changed =
                    [number.wrapping_add(1), number.wrapping_neg(), number.wrapping_mul(1000), number.wrapping_sub(1)];
                changed[self.rng.usize(..4)].into()
            }
            (2..=6, _) => match schema {
                Some(schema) => self.invent("", schema, 0),
                None => self.any(None),
            },
            _ => self.any(schema),
        };
    }

    /// A value of any type, or of any but the right one.
    fn any(&mut self, schema: Option<&Schema>) -> Value {
        match self.rng.usize(..12) {
            0 => Value::Bool(self.rng.bool()),
            1 => json!([]),
            2 => json!({}),
            3 => json!([{}]),
            4 => json!([null]),
            5 => Value::Null,
            6 | 7 => self.number(),
            8 if self.once_in(10) => self.bulky(),
            9 if self.once_in(6) => text::raw(self.pick(BROKEN)),
            10 => match schema {
                Some(schema) => self.invent("", schema, 0),
                None => json!({"a": [1, null]}),
            },
            _ => Value::String(self.text()),
        }
    }

    /// A value that is deep or long.
    fn bulky(&mut self) -> Value {
        let depth = [30, 300, 3_000, 9_990, 10_001, 20_000][self.rng.usize(..6)];
        match self.rng.usize(..5) {
            0 => text::deep("[", depth, "]"),
            1 => text::deep("{\"a\">", depth, "}"),
            2 => text::deep("[{\"items\">", depth / 2, "}]"),
            3 => text::long(
                self.pick(&["a", "é", "(", "/", "a.", "[", "a,", "\n", "9", "!"]),
                [64, 254, 300, 5_000, 70_000][self.rng.usize(..5)],
            ),
            _ => text::long("a", [300_000, 1_600_000, 3_200_000][self.rng.usize(..3)] / (1 + self.rng.usize(..400))),
        }
    }

    pub(crate) fn text(&mut self) -> String {
        self.pick(TEXTS).to_owned()
    }

    fn number(&mut self) -> Value {
        text::raw(self.pick(NUMBERS))
    }

    /// Text with a change. What has an address in it stays: it must not lead out of the machine.
    fn garble(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        if text.contains("://") || chars.is_empty() {
            return self.text();
        }
        let at = self.rng.usize(..chars.len());
        match self.rng.usize(..6) {
            0 => {
                chars.remove(at);
            }
            1 => chars
                .insert(at, ['-', '.', '/', '%', '0', 'Z', '\0', 'ü', ' ', '[', '"', '*', '('][self.rng.usize(..13)]),
            2 => chars[at] = char::from(self.rng.u8(32..127)),
            3 => chars.truncate(at),
            4 => return format!("{text}{text}"),
            _ => return format!("{text}{}", self.text()),
        }
        chars.into_iter().collect()
    }

    /// What a valid object has in a field of this name.
    fn known(&mut self, name: &str) -> Option<Value> {
        let known = self.material.values.get(name)?;
        Some(known[self.rng.usize(..known.len())].clone())
    }

    /// A value that a schema allows, or nearly.
    pub(crate) fn invent(&mut self, name: &str, schema: &Schema, depth: usize) -> Value {
        if self.rng.usize(..10) < 4
            && let Some(known) = self.known(name)
        {
            return known;
        }
        if self.once_in(25) {
            return self.any(None);
        }
        match schema.ty {
            Type::Object => {
                let mut map = Map::new();
                if depth < DEEPEST {
                    for (name, schema) in &schema.properties {
                        if self.once_in(5) {
                            map.insert(name.to_string(), self.invent(name, schema, depth + 1));
                        }
                    }
                    for name in &schema.required {
                        if let Some(schema) = schema.properties.get(name)
                            && self.rng.usize(..10) > 0
                        {
                            let value = self.invent(name, schema, depth + 1);
                            map.insert(name.to_string(), value);
                        }
                    }
                    if let Some(schema) = &schema.additional {
                        for _ in 0..self.rng.usize(..3) {
                            map.insert(self.text(), self.invent("", schema, depth + 1));
                        }
                    }
                }
                Value::Object(map)
            }
            Type::Array => {
                let items = schema.items.as_deref().filter(|_| depth < DEEPEST);
                let many = self.rng.usize(..4);
                Value::Array(
                    items
                        .into_iter()
                        .flat_map(|schema| (0..many).map(move |_| schema))
                        .map(|schema| self.invent("", schema, depth + 1))
                        .collect(),
                )
            }
            Type::String => {
                if schema.enumeration.is_empty() {
                    Value::String(self.text())
                } else {
                    schema.enumeration[self.rng.usize(..schema.enumeration.len())].clone()
                }
            }
            Type::Integer => {
                if self.once_in(3) {
                    self.number()
                } else {
                    json!(self.rng.i32(0..100))
                }
            }
            Type::Number => {
                if self.rng.bool() {
                    self.number()
                } else {
                    json!(self.rng.f64())
                }
            }
            Type::Boolean => Value::Bool(self.rng.bool()),
            Type::IntOrString | Type::Quantity => match self.rng.usize(..3) {
                0 => json!(self.rng.i32(-5..100)),
                1 => Value::String(self.text()),
                _ => Value::String(self.pick(&["10%", "100m", "1Gi", "http", "-1", "1e3", "0", "2"]).to_owned()),
            },
            Type::Any => self.any(None),
        }
    }

    /// Bytes with a change.
    pub(crate) fn garble_bytes(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.rng.usize(..4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.rng.usize(..bytes.len());
            match self.rng.usize(..7) {
                0 => bytes[at] ^= 1 << self.rng.usize(..8),
                1 => bytes[at] = [0, 0xff, 0x80, 0x7f, b'"', b'{', b'\\', 1][self.rng.usize(..8)],
                2 => bytes.insert(at, self.rng.u8(..)),
                3 => {
                    bytes.remove(at);
                }
                4 => bytes.truncate(at),
                5 => {
                    let end = (at + 1 + self.rng.usize(..40)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                _ => {
                    let end = (at + 1 + self.rng.usize(..10)).min(bytes.len());
                    bytes.drain(at..end);
                }
            }
        }
    }
}

/// How many values there are in a value, itself among them.
pub(crate) fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// The value at a place in the order of [`count`], with its schema if there is one.
fn find<'v, 's>(
    value: &'v mut Value,
    schema: Option<&'s Schema>,
    place: &mut usize,
) -> Option<(&'v mut Value, Option<&'s Schema>)> {
    if *place == 0 {
        return Some((value, schema));
    }
    *place -= 1;
    match value {
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            items.iter_mut().find_map(|item| find(item, schema, place))
        }
        Value::Object(map) => map.iter_mut().find_map(|(name, value)| {
            let below = schema
                .and_then(|schema| schema.properties.get(&**name).map(Deref::deref).or(schema.additional.as_deref()));
            find(value, below, place)
        }),
        _ => None,
    }
}
