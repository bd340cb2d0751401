//! Filling in the defaults a custom resource's schema declares.
//!
//! An absent field with a default gets it, and so does a `null` where `null` is not allowed. Defaults
//! fill in below defaults. Of `metadata` it is what the author declares that counts, in embedded resources:
//! what built-in definitions carry as defaults are Go's zero values.

use serde_json::Value;

use super::{Schema, SchemaRef};

/// Fills in defaults below `value`. Doing it twice changes nothing more.
pub fn apply(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for (name, below) in &schema.properties {
                let Some(below) = own(below, schema) else { continue };
                let Some(default) = &below.default else { continue };
                match map.get_mut(&**name) {
                    None => {
                        map.insert(name.to_string(), default.clone());
                    }
                    Some(value) if value.is_null() && !below.nullable => *value = default.clone(),
                    Some(_) => {}
                }
            }
            for (name, value) in map.iter_mut() {
                match schema.properties.get(name.as_str()) {
                    Some(below) => {
                        if let Some(below) = own(below, schema) {
                            apply(value, below);
                        }
                    }
                    None => element(value, schema.additional.as_ref()),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                element(item, schema.items.as_ref());
            }
        }
        _ => {}
    }
}

fn element(value: &mut Value, below: Option<&SchemaRef>) {
    let Some(below) = below.map(|below| &**below) else { return };
    if value.is_null() && !below.nullable {
        *value = below.default.clone().unwrap_or(Value::Null);
    }
    apply(value, below);
}

/// What the author of `schema` says about a property.
fn own<'a>(reference: &'a SchemaRef, schema: &'a Schema) -> Option<&'a Schema> {
    match reference {
        SchemaRef::Definition { .. } => schema.rules.as_deref()?.metadata.as_deref(),
        own => Some(own),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::schema::{prune, structural};

    #[track_caller]
    fn check(properties: &Value, mut spec: Value, expected: &Value) {
        let schema = structural::Reader::new().value(&json!({"type": "object", "properties": properties}));
        prune::coerce(&mut spec, &schema);
        apply(&mut spec, &schema);
        assert_eq!(&spec, expected);
    }

    #[test]
    fn defaults_fill_absent_fields_at_every_level() {
        let properties = json!({
            "n": {"type": "integer", "default": 5},
            "o": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}, "default": {}},
            "l": {"type": "array", "default": [{"k": "one"}],
                  "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "default": 7}}}},
            "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"d": {"type": "boolean", "default": true}}}},
            "nul": {"type": "string", "nullable": true, "default": "d"},
            "nodef": {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}},
        });
        check(&properties, json!({}), &json!({"n": 5, "o": {"a": 1}, "l": [{"k": "one", "v": 7}], "nul": "d"}));
        check(
            &properties,
            json!({"n": null, "o": null, "nul": null, "m": {"x": {}}, "nodef": {}, "l": [{"v": 2}]}),
            &json!({"n": 5, "o": {"a": 1}, "nul": null, "m": {"x": {"d": true}}, "nodef": {"x": 1}, "l": [{"v": 2}]}),
        );
    }

    #[test]
    fn embedded_metadata_gets_its_declared_defaults() {
        let properties = json!({"t": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
            "kind": {"type": "string", "default": "Pod"},
            "metadata": {"type": "object", "default": {"labels": {"a": "b"}},
                "properties": {"name": {"type": "string", "default": "n"}}}}}});
        let expected = json!({"t": {"kind": "Pod", "metadata": {"labels": {"a": "b"}, "name": "n"}}});
        check(&properties, json!({"t": {}}), &expected);
        let own = json!({"t": {"kind": "Job", "metadata": {"name": "own"}}});
        check(&properties, own.clone(), &own);
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-e]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn schema_value() -> impl Strategy<Value = Value> {
        let leaf = (
            prop_oneof![Just("string"), Just("integer"), Just("boolean")],
            any::<bool>(),
            prop::option::of(json_value()),
        )
            .prop_map(|(ty, nullable, default)| json!({"type": ty, "nullable": nullable, "default": default}));
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                (
                    prop::collection::btree_map("[a-e]", inner.clone(), 0..4),
                    any::<bool>(),
                    prop::option::of(json_value())
                )
                    .prop_map(|(properties, open, default)| json!({"type": "object", "properties": properties,
                        "x-kubernetes-preserve-unknown-fields": open, "default": default})),
                inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
                inner.prop_map(|below| json!({"type": "object", "additionalProperties": below})),
            ]
        })
    }

    /// Whether a value of the right type has no field that its schema does not declare: the rule as the
    /// documentation has it, told apart from the code above.
    fn is_declared(value: &Value, openapi: &Value) -> bool {
        let below = |schema: &Value, value: &Value| is_declared(value, schema);
        match value {
            Value::Array(items) => {
                items.iter().all(|item| openapi.get("items").is_none_or(|schema| below(schema, item)))
            }
            Value::Object(map) => map.iter().all(|(name, value)| {
                let declared = openapi.pointer(&format!("/properties/{name}")).or(openapi.get("additionalProperties"));
                match declared {
                    Some(schema) => below(schema, value),
                    None => openapi["x-kubernetes-preserve-unknown-fields"] == true,
                }
            }),
            _ => true,
        }
    }

    proptest! {
        #[test]
        fn defaulting_is_idempotent(openapi in schema_value(), object in json_value()) {
            let schema = structural::Reader::new().value(&openapi);
            let mut once = object;
            prune::coerce(&mut once, &schema);
            apply(&mut once, &schema);
            let mut twice = once.clone();
            apply(&mut twice, &schema);
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn pruned_objects_have_no_unknown_fields(openapi in schema_value(), object in json_value()) {
            let schema = structural::root(&openapi);
            let mut object = object;
            prune::coerce(&mut object, &schema);
            apply(&mut object, &schema);
            prop_assert_eq!(prune::unknown_fields(&object, &schema), Vec::<String>::new());
        }

        #[test]
        fn what_is_pruned_and_valid_has_declared_fields_alone(openapi in schema_value(), object in json_value()) {
            let schema = structural::Reader::new().value(&openapi);
            let mut object = object;
            prune::coerce(&mut object, &schema);
            apply(&mut object, &schema);
            let mut errors = crate::field::FieldErrors::default();
            crate::schema::validate::validate(&object, &schema, "", &mut errors);
            prop_assert!(!errors.is_empty() || is_declared(&object, &openapi), "{openapi} {object}");
        }

        #[test]
        fn the_reader_never_panics(openapi in json_value()) {
            let _ = structural::root(&openapi);
        }
    }
}
