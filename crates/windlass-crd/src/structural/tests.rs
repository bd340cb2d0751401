//! Types whose schemas are not structural as they come.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{immutable, schema};

#[track_caller]
fn check<T: JsonSchema>(expected: &Value) {
    let found = schema::<T>().to_value();
    assert_eq!(found, *expected, "found {found:#}");
}

#[test]
fn externally_tagged_variants_are_alternatives() {
    #[derive(Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    #[allow(dead_code)]
    enum Source {
        /// A path.
        File(String),
        Claim {
            name: String,
        },
    }
    check::<Source>(&json!({
        "type": "object",
        "properties": {
            "file": { "type": "string", "description": "A path." },
            "claim": { "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] },
        },
        "oneOf": [{ "required": ["file"] }, { "required": ["claim"] }],
    }));
}

#[test]
fn internally_tagged_variants_share_fields_of_different_types() {
    /// Where from.
    #[derive(Serialize, JsonSchema)]
    #[serde(tag = "type")]
    #[allow(dead_code)]
    enum Source {
        /// A disk.
        Disk { size: String, path: String },
        /// A claim.
        Claim { size: u8 },
        /// Nothing.
        None,
    }
    check::<Source>(&json!({
        "description": "Where from.",
        "type": "object",
        "properties": {
            "type": { "type": "string", "enum": ["Disk", "Claim", "None"] },
            "size": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
            "path": { "type": "string" },
        },
        "required": ["type"],
        "anyOf": [
            { "properties": { "type": { "enum": ["Disk"] } }, "required": ["size", "path"] },
            { "properties": { "type": { "enum": ["Claim"] } }, "required": ["size"] },
            { "properties": { "type": { "enum": ["None"] } } },
        ],
    }));
}

#[test]
fn adjacently_tagged_variants_leave_unlike_contents_open() {
    #[derive(Serialize, JsonSchema)]
    #[serde(tag = "kind", content = "value")]
    #[allow(dead_code)]
    enum Setting {
        Flag(bool),
        Words(Vec<String>),
    }
    check::<Setting>(&json!({
        "type": "object",
        "properties": {
            "kind": { "type": "string", "enum": ["Flag", "Words"] },
            "value": { "x-kubernetes-preserve-unknown-fields": true },
        },
        "required": ["kind", "value"],
        "anyOf": [
            { "properties": { "kind": { "enum": ["Flag"] } } },
            { "properties": { "kind": { "enum": ["Words"] } } },
        ],
    }));
}

#[test]
fn untagged_scalars_are_int_or_string_or_open() {
    #[derive(Serialize, JsonSchema)]
    #[serde(untagged)]
    #[allow(dead_code)]
    enum Port {
        Number(i32),
        Name(String),
    }
    #[derive(Serialize, JsonSchema)]
    #[serde(untagged)]
    #[allow(dead_code)]
    enum Switch {
        Flag(bool),
        Name(String),
    }
    check::<Port>(
        &json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] }),
    );
    check::<Switch>(&json!({ "x-kubernetes-preserve-unknown-fields": true }));
}

#[test]
fn untagged_structs_have_the_fields_of_all() {
    #[derive(Serialize, JsonSchema)]
    #[serde(untagged)]
    #[allow(dead_code)]
    enum Reference {
        Named { name: String },
        Keyed { name: String, key: String },
    }
    check::<Reference>(&json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "key": { "type": "string" } },
        "required": ["name"],
    }));
}

#[test]
fn documented_and_optional_enums_are_lists_of_values() {
    #[derive(Serialize, JsonSchema)]
    #[allow(dead_code)]
    enum Level {
        /// Little.
        Low,
        /// Much.
        High,
    }
    #[derive(Serialize, JsonSchema)]
    struct Spec {
        #[serde(skip_serializing_if = "Option::is_none")]
        skipped: Option<Level>,
        written: Option<Level>,
    }
    let level = |nullable: bool| {
        let mut level = json!({ "type": "string", "enum": ["Low", "High"] });
        if nullable {
            level["nullable"] = true.into();
        }
        level
    };
    check::<Spec>(&json!({ "type": "object", "properties": { "skipped": level(false), "written": level(true) } }));
}

#[test]
fn variants_of_unlike_forms_leave_the_value_open() {
    #[derive(Serialize, JsonSchema)]
    #[allow(dead_code)]
    enum Schedule {
        Never,
        Every { minutes: u32 },
    }
    check::<Schedule>(&json!({ "x-kubernetes-preserve-unknown-fields": true }));
}

#[test]
fn flattened_maps_keep_unknown_fields() {
    #[derive(Serialize, JsonSchema)]
    struct Spec {
        name: String,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    }
    check::<Spec>(&json!({
        "type": "object",
        "properties": { "name": { "type": "string" } },
        "required": ["name"],
        "x-kubernetes-preserve-unknown-fields": true,
    }));
}

#[test]
fn flattened_enums_restrict_the_struct() {
    #[derive(Serialize, JsonSchema)]
    struct Spec {
        name: String,
        #[serde(flatten)]
        target: Target,
        #[serde(flatten)]
        extra: Option<Extra>,
    }
    #[derive(Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    #[allow(dead_code)]
    enum Target {
        Host(String),
        Port(i32),
    }
    #[derive(Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    #[allow(dead_code)]
    enum Extra {
        Note(String),
    }
    check::<Spec>(&json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "host": { "type": "string" },
            "port": { "type": "integer", "format": "int32" },
            "note": { "type": "string" },
        },
        "required": ["name"],
        "oneOf": [{ "required": ["host"] }, { "required": ["port"] }],
    }));
}

#[test]
fn recursive_types_are_cut() {
    /// A node.
    #[derive(Serialize, JsonSchema)]
    struct Node {
        name: String,
        children: Vec<Node>,
    }
    #[derive(Serialize, JsonSchema)]
    struct Spec {
        root: Node,
    }
    let open = json!({ "type": "object", "description": "A node.", "x-kubernetes-preserve-unknown-fields": true });
    check::<Spec>(&json!({
        "type": "object",
        "properties": {
            "root": {
                "type": "object",
                "description": "A node.",
                "properties": { "name": { "type": "string" }, "children": { "type": "array", "items": open } },
                "required": ["name", "children"],
            },
        },
        "required": ["root"],
    }));
}

#[test]
fn tuples_sets_and_maps_are_lists_and_maps() {
    #[derive(Serialize, JsonSchema)]
    struct Spec {
        pair: (i32, String),
        names: BTreeSet<String>,
        numbered: BTreeMap<u16, bool>,
        any: BTreeMap<String, Value>,
    }
    check::<Spec>(&json!({
        "type": "object",
        "properties": {
            "pair": {
                "type": "array",
                "items": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
                "minItems": 2,
                "maxItems": 2,
            },
            "names": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
            "numbered": { "type": "object", "additionalProperties": { "type": "boolean" } },
            "any": { "type": "object", "additionalProperties": { "x-kubernetes-preserve-unknown-fields": true } },
        },
        "required": ["pair", "names", "numbered", "any"],
    }));
}

#[test]
fn numbers_have_formats_that_servers_know() {
    #[derive(Serialize, JsonSchema)]
    struct Spec {
        small: u16,
        signed: i8,
        wide: u32,
        size: u64,
    }
    let number = |format: &str, limits: Value| {
        let mut number = limits;
        number["type"] = "integer".into();
        number["format"] = format.into();
        number
    };
    let found = schema::<Spec>().to_value();
    assert_eq!(found["properties"]["small"], number("int32", json!({ "minimum": 0, "maximum": 65535 })));
    assert_eq!(found["properties"]["signed"], number("int32", json!({ "minimum": -128, "maximum": 127 })));
    assert_eq!(found["properties"]["wide"], number("int64", json!({ "minimum": 0, "maximum": 4_294_967_295_u32 })));
    assert_eq!(found["properties"]["size"], number("int64", json!({ "minimum": 0 })));
}

#[test]
fn defaults_have_no_null() {
    #[derive(Serialize, JsonSchema, Default)]
    struct Inner {
        name: Option<String>,
        count: i32,
    }
    #[derive(Serialize, JsonSchema)]
    struct Spec {
        #[serde(default)]
        inner: Inner,
        #[serde(default)]
        text: Option<String>,
    }
    let found = schema::<Spec>().to_value();
    assert_eq!(found["properties"]["inner"]["default"], json!({ "count": 0 }));
    assert_eq!(found["properties"]["text"], json!({ "type": "string", "nullable": true }));
}

#[test]
fn exclusive_limits_as_numbers_become_flags() {
    #[derive(Serialize, JsonSchema)]
    struct Spec {
        #[schemars(extend("exclusiveMaximum" = 10))]
        ratio: i32,
    }
    let found = schema::<Spec>().to_value();
    let expected = json!({ "type": "integer", "format": "int32", "maximum": 10, "exclusiveMaximum": true });
    assert_eq!(found["properties"]["ratio"], expected);
}

#[test]
fn malformed_keywords_are_named_in_the_type() {
    #[derive(Serialize, JsonSchema)]
    struct Spec {
        #[schemars(extend("minLength" = "three"))]
        name: String,
    }
    assert_eq!(schema::<Spec>().to_value()["properties"]["name"]["type"], "minLength must be an integer");
}

#[test]
fn immutable_fields_with_reserved_names_are_escaped() {
    #[derive(Serialize, JsonSchema)]
    struct Spec {
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = immutable)]
        namespace: Option<String>,
    }
    let found = schema::<Spec>().to_value();
    let rule = &found["x-kubernetes-validations"][0]["rule"];
    assert_eq!(rule, "!has(oldSelf.__namespace__) || has(self.__namespace__)");
}

#[test]
fn alternatives_written_by_hand_stay() {
    #[derive(Serialize, JsonSchema)]
    #[schemars(extend("oneOf" = [{ "required": ["a"] }, { "required": ["b"] }]))]
    struct Spec {
        #[serde(skip_serializing_if = "Option::is_none")]
        a: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        b: Option<String>,
    }
    check::<Spec>(&json!({
        "type": "object",
        "properties": { "a": { "type": "string" }, "b": { "type": "string" } },
        "oneOf": [{ "required": ["a"] }, { "required": ["b"] }],
    }));
}
