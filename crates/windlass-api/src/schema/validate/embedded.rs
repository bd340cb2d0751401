//! Objects inside objects: the type and metadata of `x-kubernetes-embedded-resource` values.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::field::{FieldError, FieldErrors, Path};
use crate::schema::{Schema, SchemaRef, Type, builtin};
use crate::validation::names::NameRule;
use crate::validation::{metadata, names};

/// Checks every embedded resource inside the value at `path`.
pub fn validate(value: &Value, schema: &Schema, path: &Path<'_>, errors: &mut FieldErrors) {
    walk(value, schema, schema.embedded, path, errors);
}

/// Checks every embedded resource inside the value at `path`, and the value itself as one if it is a `resource`.
pub fn validate_inside(value: &Value, schema: &Schema, resource: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    walk(value, schema, resource || schema.embedded, path, errors);
}

/// The first type or metadata of an embedded resource that cannot be read as such; `resource` says whether the value
/// itself counts as one.
pub fn malformed(value: &Value, schema: &Schema, resource: bool, path: &Path<'_>) -> Option<FieldError> {
    match value {
        Value::Object(map) => map.iter().find_map(|(name, value)| {
            let at = path.child(name);
            if resource || schema.embedded {
                let problem = match name.as_str() {
                    "apiVersion" | "kind" => (!value.is_string()).then(|| "must be a string".to_owned()),
                    "metadata" => metadata_problem(value),
                    _ => None,
                };
                if let Some(problem) = problem {
                    return Some(FieldError::invalid(&at, value.clone(), problem));
                }
            }
            match schema.properties.get(name.as_str()) {
                Some(SchemaRef::Definition { .. }) => None,
                Some(below) => malformed(value, below, false, &at),
                None => malformed(value, schema.additional.as_deref()?, false, &path.key(name)),
            }
        }),
        Value::Array(items) => {
            let below = schema.items.as_deref()?;
            items.iter().enumerate().find_map(|(index, item)| malformed(item, below, false, &path.index(index)))
        }
        _ => None,
    }
}

/// Why `metadata` cannot be read as an object's metadata, as Go's decoder words it. What follows may
/// rely on its types.
pub fn metadata_problem(metadata: &Value) -> Option<String> {
    mismatch(metadata, builtin::object_meta(), "")
}

fn mismatch(value: &Value, schema: &Schema, field: &str) -> Option<String> {
    let (actual, fits) = match value {
        Value::Null => return None,
        Value::Bool(_) => ("bool", schema.ty == Type::Boolean),
        Value::Number(number) => {
            ("number", schema.ty == Type::Number || (schema.ty == Type::Integer && number.is_i64()))
        }
        Value::String(_) => ("string", schema.ty == Type::String),
        Value::Array(_) => ("array", schema.ty == Type::Array),
        Value::Object(_) => ("object", schema.ty == Type::Object),
    };
    if !fits && schema.ty != Type::Any {
        let place =
            if field.is_empty() { "Go value".to_owned() } else { format!("Go struct field ObjectMeta.{field}") };
        return Some(format!("json: cannot unmarshal {actual} into {place} of type {}", go_type(schema)));
    }
    let step = |name: &str| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
    match value {
        Value::Object(map) => map.iter().find_map(|(name, value)| match schema.properties.get(name.as_str()) {
            Some(below) => mismatch(value, below, &step(name)),
            None => schema.additional.as_ref().and_then(|below| mismatch(value, below, field)),
        }),
        Value::Array(items) => {
            let below = schema.items.as_deref()?;
            items.iter().find_map(|item| mismatch(item, below, field))
        }
        _ => None,
    }
}

fn go_type(schema: &Schema) -> String {
    let name = schema.name.and_then(|name| name.rsplit('.').next()).unwrap_or_default();
    match schema.ty {
        _ if !name.is_empty() => format!("v1.{name}"),
        Type::String => "string".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::Integer => "int64".to_owned(),
        Type::Array => format!("[]{}", schema.items.as_deref().map(go_type).unwrap_or_default()),
        _ => format!("map[string]{}", schema.additional.as_deref().map(go_type).unwrap_or_default()),
    }
}

fn walk(value: &Value, schema: &Schema, resource: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    match value {
        Value::Object(map) => {
            if resource {
                type_and_metadata(value, path, errors);
            }
            for (name, value) in map {
                match schema.properties.get(name.as_str()) {
                    Some(SchemaRef::Definition { .. }) => {}
                    Some(below) => walk(value, below, below.embedded, &path.child(name), errors),
                    None => {
                        if let Some(below) = &schema.additional {
                            walk(value, below, below.embedded, &path.key(name), errors);
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = schema.items.as_deref() else { return };
            for (index, item) in items.iter().enumerate() {
                walk(item, below, below.embedded, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn type_and_metadata(object: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
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
    if let Some(problem) = metadata_problem(meta) {
        errors.push(FieldError::invalid(path, meta.clone(), problem));
        return;
    }
    if !meta.is_object() {
        return;
    }
    let text = |field: &str| meta.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut named = Cow::Borrowed(meta);
    if text("name").is_empty() {
        named.to_mut()["name"] = json!("fakename");
    }
    metadata::check(&named, !text("namespace").is_empty(), NameRule::PathSegment, path, errors);
}
