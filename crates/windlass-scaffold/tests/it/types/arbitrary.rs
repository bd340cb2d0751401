//! Whatever a schema contains, the generator ends and prints Rust.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use windlass_scaffold::types::Definition;

/// Any JSON.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A name as people choose them, or as they do not.
fn name() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] =
        &["type", "spec", "status", "items", "self", "fooBar", "foo_bar", "clusterIPs", "Option", "", "*", "1x"];
    prop_oneof![select(KNOWN).prop_map(str::to_owned), "[a-zA-Z]{1,8}", any::<String>()]
}

/// A schema with keywords that fit, and with some that do not.
fn schema() -> impl Strategy<Value = Value> {
    const KINDS: &[&str] = &["string", "integer", "number", "boolean", "array", "object", "null", ""];
    let leaf = (select(KINDS), any::<String>(), prop::collection::vec(any::<String>(), 0..4))
        .prop_map(|(kind, description, values)| json!({"type": kind, "description": description, "enum": values}));
    leaf.prop_recursive(4, 40, 4, move |inner| {
        let properties = prop::collection::btree_map(name(), inner.clone(), 0..4);
        let required = prop::collection::vec(name(), 0..3);
        let more = prop::collection::btree_map(
            select(
                &[
                    "type",
                    "items",
                    "properties",
                    "additionalProperties",
                    "required",
                    "enum",
                    "default",
                    "nullable",
                    "oneOf",
                    "anyOf",
                    "minimum",
                    "maxLength",
                    "pattern",
                    "format",
                    "x-kubernetes-validations",
                    "x-kubernetes-int-or-string",
                    "x-kubernetes-preserve-unknown-fields",
                    "description",
                ][..],
            ),
            prop_oneof![anything(), Just(json!(true)), Just(json!([{"required": ["type"]}, {"required": ["spec"]}]))],
            0..3,
        );
        prop_oneof![
            (properties, required, more.clone()).prop_map(|(properties, required, more)| {
                let properties: Map<String, Value> = properties.into_iter().collect();
                let mut schema = json!({"type": "object", "properties": properties, "required": required});
                let pairs = more.into_iter().map(|(key, value)| (key.to_owned(), value));
                schema.as_object_mut().unwrap().extend(pairs);
                schema
            }),
            (inner.clone(), more).prop_map(|(items, more)| {
                let mut schema = json!({"type": "array", "items": items});
                let pairs = more.into_iter().map(|(key, value)| (key.to_owned(), value));
                schema.as_object_mut().unwrap().extend(pairs);
                schema
            }),
            inner.prop_map(|values| json!({"type": "object", "additionalProperties": values})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_schema_gives_rust(schema in schema(), root in any::<bool>(), text in any::<String>(), flags in any::<[bool; 4]>()) {
        let schema = if root { schema } else { json!({"type": "object", "properties": {"spec": schema}}) };
        prop_assume!(schema.is_object());
        let mut version = json!({
            "name": "v1", "served": flags[0], "storage": flags[1], "deprecated": flags[2], "deprecationWarning": text,
            "schema": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": [{"name": text, "type": text, "jsonPath": text}],
        });
        if flags[3] {
            version["subresources"] = json!({"status": {}});
        }
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": text},
            "spec": {"group": "a.b", "scope": "Cluster", "names": {"kind": "Option", "plural": "options"}, "versions": [version]},
        });
        let definitions = Definition::parse(&crd.to_string()).unwrap();
        let source = definitions[0].to_rust().unwrap();
        prop_assert!(syn::parse_file(&source).is_ok(), "{source}");
    }

    #[test]
    fn any_text_is_answered(text in "\\PC*") {
        let _ = Definition::parse(&text);
    }
}
