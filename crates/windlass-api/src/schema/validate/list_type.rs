//! Uniqueness in lists of type `set` and `map`.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::field::{FieldError, FieldErrors, Path};
use crate::schema::{ListType, Schema, SchemaRef};

/// Checks that sets have no equal items and map lists no equal keys, anywhere in `value`.
pub fn validate(value: &Value, schema: &Schema, errors: &mut FieldErrors) {
    walk(value, schema, &Path::root(), errors);
}

fn walk(value: &Value, schema: &Schema, path: &Path<'_>, errors: &mut FieldErrors) {
    match value {
        Value::Object(map) => {
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
            match &schema.list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    for index in repeated(items) {
                        errors.push(FieldError::duplicate(&path.index(index), items[index].clone()));
                    }
                }
                ListType::Map(keys) => map_list(items, keys, path, errors),
            }
            let Some(below) = schema.items.as_deref() else { return };
            for (index, item) in items.iter().enumerate() {
                walk(item, below, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn map_list(items: &[Value], keys: &[Box<str>], path: &Path<'_>, errors: &mut FieldErrors) {
    if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(&path.index(index), items[index].clone(), detail));
        return;
    }
    let key_values: Vec<Value> = items.iter().map(|item| key_values(item, keys)).collect();
    for index in repeated(&key_values) {
        errors.push(FieldError::duplicate(&path.index(index), key_values[index].clone()));
    }
}

fn key_values(item: &Value, keys: &[Box<str>]) -> Value {
    let pairs = keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
    Value::Object(pairs.collect::<Map<_, _>>())
}

/// The index at which each repeated value is there for the second time.
fn repeated(values: &[Value]) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(values.len());
    let mut indices = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            indices.push(index);
        }
    }
    indices
}
