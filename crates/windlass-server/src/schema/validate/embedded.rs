//! Objects inside objects: the type and metadata of `x-kubernetes-embedded-resource` values.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::field::{FieldError, FieldErrors, Path};
use crate::registry::strategy::NameRule;
use crate::schema::{Schema, SchemaRef};
use crate::validation::{metadata, names};

/// Checks every embedded resource inside `object`; the object itself is not one.
pub fn validate(object: &Value, schema: &Schema, errors: &mut FieldErrors) {
    walk(object, schema, &Path::root(), errors);
}

fn walk(value: &Value, schema: &Schema, path: &Path<'_>, errors: &mut FieldErrors) {
    match value {
        Value::Object(map) => {
            if schema.embedded {
                resource(value, path, errors);
            }
            for (name, value) in map {
                match schema.properties.get(name.as_str()) {
                    Some(SchemaRef::Definition { .. }) => {}
                    Some(below) => walk(value, below, &path.child(name), errors),
                    None => {
                        if let Some(below) = &schema.additional {
                            walk(value, below, &path.key(name), errors);
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = schema.items.as_deref() else { return };
            for (index, item) in items.iter().enumerate() {
                walk(item, below, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn resource(object: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    for name in ["apiVersion", "kind"] {
        if object.get(name).is_none() {
            errors.push(FieldError::required(&path.child(name), ""));
        }
    }
    if let Some(value) = object.get("apiVersion") {
        let problem = match value {
            Value::String(text) if text.is_empty() => Some("must not be empty".to_owned()),
            Value::String(text) if text.matches('/').count() > 1 => {
                Some(format!("unexpected GroupVersion string: {text}"))
            }
            Value::String(_) => None,
            _ => Some("must be a string".to_owned()),
        };
        if let Some(problem) = problem {
            errors.push(FieldError::invalid(&path.child("apiVersion"), value.clone(), problem));
        }
    }
    if let Some(value) = object.get("kind")
        && let Some(problem) = kind_problem(value)
    {
        errors.push(FieldError::invalid(&path.child("kind"), value.clone(), problem));
    }
    if let Some(meta) = object.get("metadata") {
        embedded_metadata(meta, &path.child("metadata"), errors);
    }
}

fn kind_problem(kind: &Value) -> Option<String> {
    let Value::String(kind) = kind else { return Some("must be a string".to_owned()) };
    if kind.is_empty() {
        return Some("must not be empty".to_owned());
    }
    let reasons = names::dns1035_label(&kind.to_lowercase());
    (!reasons.is_empty()).then(|| format!("may have mixed case, but should otherwise match: {}", reasons.join(",")))
}

/// An embedded object need not have a name, and decides by having a namespace whether it is in one.
fn embedded_metadata(meta: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let text = |field: &str| meta.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut named = Cow::Borrowed(meta);
    if text("name").is_empty() {
        named.to_mut()["name"] = json!("fakename");
    }
    metadata::check(&named, !text("namespace").is_empty(), NameRule::PathSegment, path, errors);
}
