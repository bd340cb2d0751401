//! Defaults in a CRD's schema: they must be values the schema accepts, with no unknown fields.

use serde_json::{Map, Value};

use crate::crd::definition::visit;
use crate::field::{FieldError, FieldErrors, Path};
use crate::schema::structural::Reader;
use crate::schema::validate::{self, embedded};
use crate::schema::{Schema, prune};

/// Whether there is a default anywhere in a schema.
pub(super) fn has_any(schema: &Value) -> bool {
    let mut found = false;
    visit(schema, &mut |schema| found |= default_of(schema).is_some());
    found
}

/// Whether every default knows only fields that its schema declares.
pub(super) fn are_pruned(schema: &Value) -> bool {
    let mut pruned = true;
    visit(schema, &mut |schema| {
        if let Some(default) = default_of(schema) {
            pruned &= is_pruned(default, &read(schema));
        }
    });
    pruned
}

/// Checks every default below `schema`, which is a whole object's.
pub(super) fn validate(schema: &Map<String, Value>, require_pruned: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    walk(schema, require_pruned, path, errors);
}

fn walk(schema: &Map<String, Value>, require_pruned: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    if let Some(default) = default_of(schema) {
        check(default, &read(schema), require_pruned, &path.child("default"), errors);
    }
    if let Some(Value::Object(items)) = schema.get("items") {
        walk(items, require_pruned, &path.child("items"), errors);
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        let path = path.child("properties");
        for (name, below) in properties {
            if let Value::Object(below) = below {
                walk(below, require_pruned, &path.key(name), errors);
            }
        }
    }
}

fn check(default: &Value, schema: &Schema, require_pruned: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    if require_pruned && !is_pruned(default, schema) {
        errors.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
    }
    let before = errors.0.len();
    embedded::validate(default, schema, path, errors);
    if errors.0.len() == before {
        validate::validate(default, schema, &path.to_string(), errors);
    }
}

fn is_pruned(default: &Value, schema: &Schema) -> bool {
    prune::unknown_fields(default, schema).is_empty()
}

/// `default: null` is no default.
fn default_of(schema: &Map<String, Value>) -> Option<&Value> {
    schema.get("default").filter(|default| !default.is_null())
}

fn read(schema: &Map<String, Value>) -> Schema {
    Reader::new().node_of(schema)
}
