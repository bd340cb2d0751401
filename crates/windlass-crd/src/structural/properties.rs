//! What holds for the conversion of any schema at all, not only of those that derives make.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::keywords::{ARRAY, type_of};
use super::{Converter, Schema, is};

/// Keywords that have no schema in them, some of the wrong form.
fn leaf() -> impl Strategy<Value = Value> {
    let keyword = prop_oneof![
        Just(json!({ "type": "string" })),
        Just(json!({ "type": "integer", "format": "uint16" })),
        Just(json!({ "type": "number" })),
        Just(json!({ "type": "boolean" })),
        Just(json!({ "type": "object" })),
        Just(json!({ "type": "array" })),
        Just(json!({ "type": "null" })),
        Just(json!({ "type": ["string", "null"] })),
        Just(json!({ "type": ["integer", "string", "boolean"] })),
        Just(json!({ "type": 1 })),
        Just(json!({ "const": "a" })),
        Just(json!({ "enum": ["a", "b", null] })),
        Just(json!({ "enum": [1, "a"] })),
        Just(json!({ "minLength": "three" })),
        Just(json!({ "exclusiveMaximum": 3 })),
        Just(json!({ "required": ["a"] })),
        Just(json!({ "required": "a" })),
        Just(json!({ "default": { "a": null } })),
        Just(json!({ "examples": [1] })),
        Just(json!({ "description": "words" })),
        Just(json!({ "uniqueItems": true })),
        Just(json!({ "nullable": true })),
        Just(json!({ "externalDocs": { "url": 1 } })),
        Just(json!({ "x-kubernetes-int-or-string": true })),
        Just(json!({ "x-kubernetes-embedded-resource": true })),
        Just(json!({ "x-kubernetes-preserve-unknown-fields": true })),
        Just(json!({ "x-kubernetes-validations": [{ "rule": "true" }] })),
        Just(json!({ "x-kubernetes-validations": ["true"] })),
        Just(json!({ "x-windlass-immutable": true })),
        Just(json!({ "$ref": "#/$defs/Node" })),
        Just(json!({ "deprecated": true })),
    ];
    prop_oneof![Just(json!(true)), Just(json!(false)), prop::collection::vec(keyword, 0..4).prop_map(together)]
}

fn together(parts: Vec<Value>) -> Value {
    let parts = parts.into_iter().filter_map(|part| if let Value::Object(part) = part { Some(part) } else { None });
    Value::Object(parts.fold(Map::new(), |mut all, part| {
        all.extend(part);
        all
    }))
}

fn any_schema() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        let fields = prop::collection::hash_map("[abc]", inner.clone(), 0..3).prop_map(Value::from_iter);
        let forms = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
        let name = |names: &'static [&'static str]| prop::sample::select(names);
        let inside = prop_oneof![
            (name(&["properties", "patternProperties"]), fields),
            (name(&["oneOf", "anyOf", "allOf", "prefixItems"]), forms),
            (name(&["items", "additionalProperties", "unevaluatedProperties", "not"]), inner),
        ];
        let inside = inside.prop_map(|(keyword, value)| json!({ keyword: value }));
        (leaf(), prop::collection::vec(inside, 0..3)).prop_map(|(leaf, inside)| {
            let leaf = if leaf.is_object() { leaf } else { json!({}) };
            together([leaf].into_iter().chain(inside).collect())
        })
    })
}

/// Checks the rules of `apiextensions-apiserver`'s `pkg/apiserver/schema/validation.go`.
fn check_structure(schema: &Schema) {
    let typed = type_of(schema).is_some();
    assert!(typed || is(schema, "x-kubernetes-int-or-string") || is(schema, "x-kubernetes-preserve-unknown-fields"));
    if type_of(schema) == Some(ARRAY) {
        assert!(schema.contains_key("items"), "{schema:?}");
    }
    if is(schema, "x-kubernetes-int-or-string") {
        assert!(!typed, "{schema:?}");
    }
    assert!(!(schema.contains_key("properties") && schema.contains_key("additionalProperties")), "{schema:?}");
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(fields)) => fields.values().for_each(|field| check_structure(map(field))),
            ("items" | "additionalProperties", inside) => check_structure(map(inside)),
            ("anyOf", _) if is(schema, "x-kubernetes-int-or-string") => {}
            ("oneOf" | "anyOf" | "allOf", Value::Array(forms)) => {
                for form in forms {
                    check_restrictions(map(form), schema);
                }
            }
            ("not", form) => check_restrictions(map(form), schema),
            _ => {}
        }
    }
}

/// Checks what stands within `oneOf` and the like: nothing is said there of what values are made of, and nothing of what
/// is not said outside.
fn check_restrictions(form: &Schema, said: &Schema) {
    let structure = ["type", "title", "description", "default", "nullable", "additionalProperties"];
    for (keyword, value) in form {
        assert!(!structure.contains(&keyword.as_str()) && !keyword.starts_with("x-"), "{keyword} in {form:?}");
        match (keyword.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                let known = said.get("properties").expect("said outside");
                fields.iter().for_each(|(name, field)| check_restrictions(map(field), map(&known[name])));
            }
            ("items", inside) => check_restrictions(map(inside), map(&said["items"])),
            ("oneOf" | "anyOf" | "allOf", Value::Array(forms)) => {
                for form in forms {
                    check_restrictions(map(form), said);
                }
            }
            ("not", form) => check_restrictions(map(form), said),
            _ => {}
        }
    }
}

fn map(value: &Value) -> &Schema {
    value.as_object().expect("a schema")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_schema_becomes_a_structural_one(read in any_schema(), written in any_schema()) {
        let definitions = json!({ "Node": { "type": "object", "description": "A node." } });
        let converter = Converter::new(map(&definitions));
        for written in [&read, &written] {
            let schema = converter.root(&read, written);
            check_structure(&schema);
            // `crd()` of kube's derive reads it, and panics if it cannot.
            let read = serde_json::from_value::<JSONSchemaProps>(Value::Object(schema.clone()));
            prop_assert!(read.is_ok(), "{:?} of {schema:?}", read.err());
        }
    }
}
