//! A definition as large as real ones get: more than a megabyte of schema, twelve levels deep, thousands of
//! fields, with every sort of constraint. Shared by tests and benchmarks.

use serde_json::{Map, Value, json};

/// How many objects lie below each object, by level; the first two levels are the root and its spec.
const BRANCHES: [usize; 10] = [4, 4, 3, 1, 1, 1, 1, 1, 1, 0];

/// Where definitions are created.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Where the objects of [`definition`] are created.
pub(crate) const OBJECTS: &str = "/apis/big.example.com/v1/namespaces/default/platforms";

/// The definition.
pub(crate) fn definition() -> Value {
    let schema = json!({"type": "object", "description": "A platform with everything in it.",
        "required": ["spec"], "properties": {"spec": object(0), "status": {"type": "object", "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"}}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "platforms.big.example.com"},
        "spec": {"group": "big.example.com", "scope": "Namespaced",
            "names": {"plural": "platforms", "singular": "platform", "kind": "Platform", "listKind": "PlatformList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}})
}

/// An object of the kind that fills the first `width` branches everywhere.
pub(crate) fn platform(name: &str, width: usize) -> Value {
    json!({"apiVersion": "big.example.com/v1", "kind": "Platform", "metadata": {"name": name},
        "spec": filled(0, width)})
}

fn described(mut schema: Value, what: &str) -> Value {
    schema["description"] = format!(
        "{what} of this part of the platform. It is described at some length, as generated definitions are, so that \
         people who ask for an explanation get one."
    )
    .into();
    schema
}

fn object(level: usize) -> Value {
    let mut properties = Map::new();
    let mut add = |name: &str, schema: Value, what: &str| {
        properties.insert(name.to_owned(), described(schema, what));
    };
    add(
        "name",
        json!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}),
        "The name",
    );
    add("mode", json!({"type": "string", "enum": ["Auto", "Manual", "Off"], "default": "Auto"}), "The mode");
    add("minimum", json!({"type": "integer", "format": "int32", "minimum": 0, "default": 1}), "The minimum");
    add("maximum", json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 100_000}), "The maximum");
    add("enabled", json!({"type": "boolean"}), "The switch");
    add("since", json!({"type": "string", "format": "date-time"}), "The start");
    add("port", json!({"x-kubernetes-int-or-string": true}), "The port");
    add(
        "labels",
        json!({"type": "object", "additionalProperties": {"type": "string", "maxLength": 253}}),
        "The labels",
    );
    add(
        "zones",
        json!({"type": "array", "x-kubernetes-list-type": "set", "maxItems": 16,
        "items": {"type": "string", "maxLength": 63}}),
        "The zones",
    );
    let rule = described(json!({"type": "string", "maxLength": 253}), "The value");
    add(
        "rules",
        json!({"type": "array", "maxItems": 32, "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["key"], "items": {"type": "object", "required": ["key"],
            "properties": {"key": {"type": "string", "maxLength": 63}, "value": rule,
                "weight": {"type": "integer", "minimum": 0, "maximum": 100}}}}),
        "The rules",
    );
    for branch in 0..BRANCHES.get(level).copied().unwrap_or_default() {
        properties.insert(format!("part{branch}"), object(level + 1));
    }
    let mut schema = json!({"type": "object", "required": ["name"], "properties": properties});
    if level == 1 {
        schema["x-kubernetes-validations"] = json!([
            {"rule": "!has(self.maximum) || self.minimum <= self.maximum", "message": "the minimum is the smaller one"},
        ]);
    }
    described(schema, "A part")
}

fn filled(level: usize, width: usize) -> Value {
    let mut value = json!({"name": format!("part-{level}"), "minimum": 1, "maximum": 9, "enabled": true,
        "since": "2026-01-01T00:00:00Z", "port": "http", "labels": {"app": "platform", "tier": "back"},
        "zones": ["a", "b"], "rules": [{"key": "k", "value": "v", "weight": 1}, {"key": "l", "value": "w"}]});
    for branch in 0..BRANCHES.get(level).copied().unwrap_or_default().min(width) {
        value[format!("part{branch}")] = filled(level + 1, width);
    }
    value
}
