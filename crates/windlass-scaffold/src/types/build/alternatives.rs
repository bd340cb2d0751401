//! Schemas that are alternatives: `oneOf`, `anyOf`, `allOf` and `not`.

use serde_json::{Map, Value};

use crate::types::model::Keywords;

/// A keyword that keeps `kube` from rewriting a schema.
///
/// `kube` moves the properties of alternatives into the schema above them, because that is where enums of Rust have
/// to have them, and leaves alone what it cannot read. The alternatives of a definition are right as they are: a
/// keyword of the wrong type, which is in no definition, says so.
pub(super) const MARK: &str = "contains";
const REASON: &str = "kube leaves this schema as it is";

/// The keywords, with a mark wherever `kube` would change them.
pub(super) fn kept(mut keywords: Keywords) -> Keywords {
    mark(&mut keywords);
    keywords
}

fn mark(schema: &mut Map<String, Value>) {
    for (key, value) in schema.iter_mut() {
        match (key.as_str(), value) {
            ("oneOf" | "anyOf" | "allOf", Value::Array(list)) => {
                list.iter_mut().filter_map(Value::as_object_mut).for_each(mark);
            }
            ("not" | "items" | "additionalProperties", Value::Object(inner)) => mark(inner),
            ("properties", Value::Object(properties)) => {
                properties.values_mut().filter_map(Value::as_object_mut).for_each(mark);
            }
            _ => {}
        }
    }
    let changed =
        ["oneOf", "anyOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten().any(|branch| {
            let moved = ["properties", "additionalProperties", "type", "enum", "default", "x-kubernetes-validations"];
            moved.into_iter().any(|key| branch.get(key).is_some())
        });
    if changed {
        schema.insert(MARK.to_owned(), REASON.into());
    }
}

/// Whether `kube` leaves a schema with these keywords alone, and with it all schemas around it.
pub(super) fn is_marked(keywords: &Keywords) -> bool {
    let inner = |value: &Value| match value {
        Value::Object(map) => is_marked(map),
        Value::Array(list) => list.iter().filter_map(Value::as_object).any(is_marked),
        _ => false,
    };
    keywords.get(MARK).is_some_and(|reason| reason == REASON) || keywords.values().any(inner)
}

/// Whether an object has one property because it has a limit of one, and nothing else is said about it.
pub(super) fn is_limited_to_one(properties: &Map<String, Value>, keywords: &Keywords) -> bool {
    let is_one = |key: &str| keywords.get(key).is_some_and(|value| *value == 1);
    let allowed = |key: &String| {
        matches!(key.as_str(), "minProperties" | "maxProperties" | "x-kubernetes-validations" | "x-kubernetes-map-type")
    };
    properties.len() > 1
        && is_one("minProperties")
        && is_one("maxProperties")
        && keywords.keys().all(allowed)
        && properties.values().all(is_plain)
}

/// A default or a null in the place of an absent property is no variant.
fn is_plain(schema: &Value) -> bool {
    schema.get("default").is_none() && schema.get("nullable") != Some(&Value::Bool(true))
}

/// Whether an object has exactly one of its properties, and nothing else is said about it.
pub(super) fn one_of(properties: &Map<String, Value>, keywords: &Keywords) -> bool {
    let allowed = |key: &str| matches!(key, "oneOf" | "x-kubernetes-validations" | "x-kubernetes-map-type");
    if properties.len() < 2 || !keywords.keys().all(|key| allowed(key)) {
        return false;
    }
    let Some(branches) = keywords.get("oneOf").and_then(Value::as_array) else { return false };
    let mut names: Vec<&str> = Vec::new();
    for branch in branches {
        let Some(branch) = branch.as_object().filter(|branch| branch.len() == 1) else { return false };
        match branch.get("required").and_then(Value::as_array).map(Vec::as_slice) {
            Some([Value::String(name)]) => names.push(name),
            _ => return false,
        }
    }
    names.sort_unstable();
    names.len() == branches.len() && names.iter().copied().eq(properties.keys()) && properties.values().all(is_plain)
}
