//! What of a schema has an effect, in one form.
//!
//! Two definitions enforce the same if their normal forms are equal. Taken out are: prose (`description`, `title`,
//! `example`, `externalDocs`), keywords that the API server does not know, flags that are false, empty lists of
//! required fields and rules, what the API server implies (`apiVersion`, `kind` and `metadata` of an object, the
//! `anyOf` of an int-or-string), the order of `required`, `enum`, `allOf`, `anyOf` and `oneOf`, and the spelling of
//! numbers (`1` and `1.0`). `additionalProperties: true` is written `{}`. Nothing else is changed.

use serde_json::{Map, Value, json};

/// The keywords of schemas that the API server knows, without those that are prose.
const KEYWORDS: [&str; 36] = [
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "default",
    "definitions",
    "dependencies",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "type",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];
const MORE: [&str; 2] = ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"];

/// Whether a keyword changes what the API server does.
pub(super) fn has_effect(key: &str, value: &Value) -> bool {
    if !(KEYWORDS.contains(&key) || MORE.contains(&key)) {
        return false;
    }
    match value {
        Value::Null => key == "default",
        // A default of false is a default.
        Value::Bool(false) => matches!(key, "default" | "additionalProperties"),
        Value::Array(list) if list.is_empty() => !matches!(key, "required" | "x-kubernetes-validations"),
        Value::Object(map) if map.is_empty() => key != "properties",
        Value::String(text) if text.is_empty() => matches!(key, "default"),
        _ => true,
    }
}

/// Whether a property of the object itself says nothing that does not hold anyway.
pub(super) fn is_implied(name: &str, schema: &Map<String, Value>) -> bool {
    let Value::Object(schema) = schema_of(schema) else { return true };
    let kind = if name == "metadata" { "object" } else { "string" };
    let plain = |(key, value): (&String, &Value)| {
        (key == "type" && value == kind) || (key == "x-kubernetes-preserve-unknown-fields" && name == "metadata")
    };
    schema.iter().all(plain)
}

/// A schema without prose and unknown keywords, in its own order and spelling.
pub(super) fn without_prose(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = Map::new();
    for (key, value) in schema {
        if !has_effect(key, value) {
            continue;
        }
        let value = match (key.as_str(), value) {
            ("properties" | "patternProperties" | "definitions", Value::Object(map)) => {
                let inner = map.iter().map(|(name, schema)| (name.clone(), inside(schema)));
                Value::Object(inner.collect())
            }
            ("items" | "additionalProperties" | "additionalItems" | "not", inner) => inside(inner),
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => list.iter().map(inside).collect(),
            (_, value) => value.clone(),
        };
        kept.insert(key.clone(), value);
    }
    without_types(&mut kept);
    kept
}

/// Takes out of an int-or-string what the API server adds in any case.
fn without_types(schema: &mut Map<String, Value>) {
    let types = json!([{"type": "integer"}, {"type": "string"}]);
    if schema.contains_key("x-kubernetes-int-or-string") && schema.get("anyOf") == Some(&types) {
        schema.remove("anyOf");
    }
}

fn inside(schema: &Value) -> Value {
    match schema {
        Value::Object(schema) => Value::Object(without_prose(schema)),
        other => other.clone(),
    }
}

/// The normal form of a definition with one of its versions.
///
/// Of the definition itself, names have the defaults of the API server; labels, annotations, conversion and the other
/// versions are left out. Of a version, columns and selectable fields are there, without descriptions.
pub fn definition(definition: &Value, version: &str) -> Value {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let kind = names["kind"].as_str().unwrap_or_default();
    let or = |value: &Value, default: String| match value.as_str() {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ => default,
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let empty = json!({});
    let mut versions = spec["versions"].as_array().into_iter().flatten();
    let version = versions.find(|given| given["name"] == version).unwrap_or(&empty);
    let column = |column: &Value| {
        let present = ["name", "type", "jsonPath", "format", "priority"].into_iter();
        let present = present.filter(|key| !column[key].is_null() && column[key] != 0 && column[key] != "");
        Value::Object(present.map(|key| (key.to_owned(), column[key].clone())).collect())
    };
    let scale = &version["subresources"]["scale"];
    let path = |key: &str| or(&scale[key], String::new());
    json!({
        "group": spec["group"],
        "scope": spec["scope"],
        "names": {
            "kind": kind,
            "plural": names["plural"],
            "singular": or(&names["singular"], kind.to_ascii_lowercase()),
            "listKind": or(&names["listKind"], format!("{kind}List")),
            "shortNames": list(&names["shortNames"]),
            "categories": list(&names["categories"]),
        },
        "version": {
            "name": version["name"],
            "served": version["served"],
            "storage": version["storage"],
            "deprecated": version["deprecated"] == true,
            "deprecationWarning": or(&version["deprecationWarning"], String::new()),
            "status": !version["subresources"]["status"].is_null(),
            "scale": [path("specReplicasPath"), path("statusReplicasPath"), path("labelSelectorPath")],
            "columns": list(&version["additionalPrinterColumns"]).iter().map(column).collect::<Vec<_>>(),
            "selectable": list(&version["selectableFields"]),
            "schema": schema(&version["schema"]["openAPIV3Schema"]),
        },
    })
}

/// The normal form of the schema of a kind.
pub fn schema(schema: &Value) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let mut normal = schema_of(map);
    if let Some(properties) = normal.get_mut("properties").and_then(Value::as_object_mut) {
        for name in ["apiVersion", "kind", "metadata"] {
            if properties.get(name).and_then(Value::as_object).is_some_and(|schema| is_implied(name, schema)) {
                properties.remove(name);
            }
        }
        if properties.is_empty()
            && let Some(normal) = normal.as_object_mut()
        {
            normal.remove("properties");
        }
    }
    normal
}

fn schema_of(schema: &Map<String, Value>) -> Value {
    let mut normal = Map::new();
    for (key, value) in schema {
        if !has_effect(key, value) {
            continue;
        }
        let value = match (key.as_str(), value) {
            ("properties" | "patternProperties" | "definitions", Value::Object(map)) => {
                Value::Object(map.iter().map(|(name, schema)| (name.clone(), any(schema))).collect())
            }
            ("additionalProperties", Value::Bool(true)) => json!({}),
            ("items" | "additionalProperties" | "additionalItems" | "not", inner) => any(inner),
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => sorted(list.iter().map(any).collect()),
            ("required", Value::Array(list)) => {
                let Value::Array(mut list) = sorted(list.clone()) else { continue };
                list.dedup();
                Value::Array(list)
            }
            ("enum", Value::Array(list)) => sorted(list.iter().map(number).collect()),
            ("minimum" | "maximum" | "multipleOf", value) => float(value),
            (_, value) => number(value),
        };
        normal.insert(key.clone(), value);
    }
    without_types(&mut normal);
    Value::Object(normal)
}

fn any(schema: &Value) -> Value {
    match schema {
        Value::Object(schema) => schema_of(schema),
        Value::Bool(true) => json!({}),
        other => other.clone(),
    }
}

fn sorted(mut list: Vec<Value>) -> Value {
    list.sort_by_cached_key(Value::to_string);
    Value::Array(list)
}

/// A limit as the API server has it: a 64-bit float.
fn float(value: &Value) -> Value {
    match value.as_f64() {
        Some(float) => number(&Value::from(float)),
        None => value.clone(),
    }
}

/// A value with each whole number written as one.
fn number(value: &Value) -> Value {
    match value {
        Value::Number(given) => match given.as_f64() {
            Some(float) if given.is_f64() && float.fract() == 0.0 && float.abs() < 9_223_372_036_854_775_808.0 =>
            {
                #[allow(clippy::cast_possible_truncation, reason = "it is whole and small enough")]
                Value::from(float as i64)
            }
            _ => value.clone(),
        },
        Value::Array(list) => list.iter().map(number).collect(),
        Value::Object(map) => Value::Object(map.iter().map(|(key, value)| (key.clone(), number(value))).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(one: &Value, other: &Value) {
        assert_eq!(schema(one), schema(other));
    }

    #[test]
    fn only_effects_are_compared() {
        same(&json!({"type": "object", "description": "x", "nullable": false}), &json!({"type": "object"}));
        same(&json!({"required": ["b", "a"]}), &json!({"required": ["a", "b"]}));
        same(&json!({"minimum": 1}), &json!({"minimum": 1.0}));
        same(
            &json!({"properties": {"metadata": {"type": "object"}, "kind": {"type": "string"}}, "x-foo": 1}),
            &json!({}),
        );
        let int_or_string = json!({"x-kubernetes-int-or-string": true});
        same(
            &json!({"items": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}),
            &json!({"items": int_or_string}),
        );
    }

    #[test]
    fn effects_are_never_taken_out() {
        for (one, other) in [
            (json!({"default": false}), json!({})),
            (json!({"default": null}), json!({})),
            (json!({"nullable": true}), json!({})),
            (json!({"default": {"description": "x"}}), json!({"default": {}})),
            (json!({"properties": {"description": {"type": "string"}}}), json!({})),
            (
                json!({"properties": {"metadata": {"type": "object", "properties": {"name": {"maxLength": 3}}}}}),
                json!({}),
            ),
            (json!({"additionalProperties": false}), json!({})),
            (json!({"enum": ["a"]}), json!({"enum": ["a", "b"]})),
        ] {
            assert_ne!(schema(&one), schema(&other));
        }
    }
}
