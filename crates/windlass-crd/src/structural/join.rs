//! Two structural schemas become one.

use serde_json::{Map, Value};

use super::keywords::{self, ARRAY, OBJECT};
use super::{Schema, anything, is};

/// What restricts values, and may therefore stand in `oneOf`, `anyOf` and `allOf`, beside the schemas of what is inside.
const RESTRICTIONS: [&str; 18] = [
    "format",
    "pattern",
    "enum",
    "maximum",
    "minimum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "multipleOf",
    "maxLength",
    "minLength",
    "maxItems",
    "minItems",
    "maxProperties",
    "minProperties",
    "allOf",
    "oneOf",
    "anyOf",
    "not",
];

/// The schema of a value that fits one or the other: its structure is that of both, its restrictions those they share.
pub(super) fn either(one: &Schema, other: &Schema) -> Schema {
    if one == other {
        return one.clone();
    }
    let mut joined = match (keywords::type_of(one), keywords::type_of(other)) {
        (Some(first), Some(second)) if first == second => shared(one, other),
        (Some("integer"), Some("number")) | (Some("number"), Some("integer")) => {
            let mut joined = shared(one, other);
            joined.insert("type".to_string(), "number".into());
            joined
        }
        (first, second) if is_int_or_string(one, first) && is_int_or_string(other, second) => {
            let mut joined = Schema::new();
            joined.insert("x-kubernetes-int-or-string".to_string(), Value::Bool(true));
            super::finish(&mut joined);
            joined
        }
        _ => anything(),
    };
    if is(one, "nullable") || is(other, "nullable") {
        joined.insert("nullable".to_string(), Value::Bool(true));
    }
    joined
}

fn is_int_or_string(schema: &Schema, kind: Option<&str>) -> bool {
    is(schema, "x-kubernetes-int-or-string") || kind == Some("integer") || kind == Some("string")
}

/// What two schemas of one type have in common, with the fields of both.
fn shared(one: &Schema, other: &Schema) -> Schema {
    let mut joined = Schema::new();
    for (keyword, value) in one {
        if other.get(keyword) == Some(value) {
            joined.insert(keyword.clone(), value.clone());
        }
    }
    // Words do not restrict: the first ones stay.
    for keyword in ["title", "description"] {
        if let Some(text) = one.get(keyword).or_else(|| other.get(keyword)) {
            joined.insert(keyword.to_string(), text.clone());
        }
    }
    if let (Some(Value::Array(first)), Some(Value::Array(second))) = (one.get("enum"), other.get("enum")) {
        let mut values = first.clone();
        values.extend(second.iter().filter(|value| !first.contains(value)).cloned());
        joined.insert("enum".to_string(), Value::Array(values));
    }
    match keywords::type_of(one) {
        Some(OBJECT) => share_fields(&mut joined, one, other),
        Some(ARRAY) => {
            if let (Some(Value::Object(first)), Some(Value::Object(second))) = (one.get("items"), other.get("items")) {
                joined.insert("items".to_string(), Value::Object(either(first, second)));
            }
        }
        _ => {}
    }
    joined
}

/// The fields of both objects. Only fields that both require are required.
fn share_fields(joined: &mut Schema, one: &Schema, other: &Schema) {
    for keyword in ["properties", "additionalProperties", "required"] {
        joined.remove(keyword);
    }
    let mut fields = fields_of(one);
    for (name, second) in fields_of(other) {
        let field = match (fields.get(&name), second) {
            (Some(Value::Object(first)), Value::Object(second)) => Value::Object(either(first, &second)),
            (_, second) => second,
        };
        fields.insert(name, field);
    }
    let (first, second) = (required(one), required(other));
    let required: Vec<Value> = first.iter().filter(|name| second.contains(name)).cloned().collect();
    if !required.is_empty() {
        joined.insert("required".to_string(), Value::Array(required));
    }
    let entries = match (one.get("additionalProperties"), other.get("additionalProperties")) {
        (Some(Value::Object(first)), Some(Value::Object(second))) => Some(Value::Object(either(first, second))),
        (Some(entries), _) | (_, Some(entries)) => Some(entries.clone()),
        _ => None,
    };
    // Fields and entries exclude each other, and one object's entries are the other's fields.
    let unlike = one.contains_key("additionalProperties") != other.contains_key("additionalProperties");
    let open = is(one, "x-kubernetes-preserve-unknown-fields") || is(other, "x-kubernetes-preserve-unknown-fields");
    if open || (entries.is_some() && (unlike || !fields.is_empty())) {
        joined.insert("x-kubernetes-preserve-unknown-fields".to_string(), Value::Bool(true));
    } else if let Some(entries) = entries {
        joined.insert("additionalProperties".to_string(), entries);
    }
    if !fields.is_empty() {
        joined.insert("properties".to_string(), Value::Object(fields));
    }
}

/// Adds to a schema what a second one says of the same value. Where they differ, the first one has its way.
pub(super) fn both(schema: &mut Schema, other: &Schema) {
    for (keyword, value) in other {
        let Some(present) = schema.get_mut(keyword) else {
            schema.insert(keyword.clone(), value.clone());
            continue;
        };
        match (keyword.as_str(), present, value) {
            ("required", Value::Array(names), Value::Array(more)) => {
                for name in more {
                    if !names.contains(name) {
                        names.push(name.clone());
                    }
                }
            }
            ("x-kubernetes-validations", Value::Array(rules), Value::Array(more)) => rules.extend(more.iter().cloned()),
            ("properties", Value::Object(fields), Value::Object(more)) => {
                for (name, field) in more {
                    let joined = match (fields.get(name), field) {
                        (Some(Value::Object(first)), Value::Object(second)) => Value::Object(either(first, second)),
                        _ => field.clone(),
                    };
                    fields.insert(name.clone(), joined);
                }
            }
            _ => {}
        }
    }
    if schema.contains_key("properties") && schema.remove("additionalProperties").is_some() {
        schema.insert("x-kubernetes-preserve-unknown-fields".to_string(), Value::Bool(true));
    }
}

/// What is left to say of one form where the structure has been said.
pub(super) fn restrictions(form: &Schema, said: &Schema) -> Schema {
    let mut left = Schema::new();
    if keywords::type_of(said).is_none() {
        return left;
    }
    for keyword in RESTRICTIONS {
        if let Some(value) = form.get(keyword).filter(|value| said.get(keyword) != Some(value)) {
            left.insert(keyword.to_string(), value.clone());
        }
    }
    let named = required(said);
    let required: Vec<Value> = required(form).into_iter().filter(|name| !named.contains(name)).collect();
    if !required.is_empty() {
        left.insert("required".to_string(), Value::Array(required));
    }
    let mut fields = Map::new();
    let known = fields_of(said);
    for (name, field) in fields_of(form) {
        if let (Value::Object(field), Some(Value::Object(known))) = (field, known.get(&name)) {
            let inside = restrictions(&field, known);
            if !inside.is_empty() {
                fields.insert(name, Value::Object(inside));
            }
        }
    }
    if !fields.is_empty() {
        left.insert("properties".to_string(), Value::Object(fields));
    }
    if let (Some(Value::Object(elements)), Some(Value::Object(known))) = (form.get("items"), said.get("items")) {
        let inside = restrictions(elements, known);
        if !inside.is_empty() {
            left.insert("items".to_string(), Value::Object(inside));
        }
    }
    left
}

/// What restricts values in a schema, without what they are made of.
pub(super) fn restrictions_alone(form: &Schema) -> Schema {
    let mut left = Schema::new();
    for (keyword, value) in form {
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                let inside = |(name, field): (&String, &Value)| {
                    field.as_object().map(|field| (name.clone(), Value::Object(restrictions_alone(field))))
                };
                Value::Object(fields.iter().filter_map(inside).collect())
            }
            ("items", Value::Object(elements)) => Value::Object(restrictions_alone(elements)),
            // These are types, which the keyword that is left out says.
            ("anyOf", _) if is(form, "x-kubernetes-int-or-string") => continue,
            ("required", value) => value.clone(),
            (keyword, value) if RESTRICTIONS.contains(&keyword) => value.clone(),
            _ => continue,
        };
        left.insert(keyword.clone(), value);
    }
    left
}

/// Whether a schema says what each field and element is made of that a restriction is about.
pub(super) fn says_all_of(schema: &Schema, restrictions: &Schema) -> bool {
    let inside = |said: Option<&Value>, restrictions: &Value| match (said, restrictions) {
        (Some(Value::Object(said)), Value::Object(restrictions)) => says_all_of(said, restrictions),
        _ => false,
    };
    restrictions.iter().all(|(keyword, value)| match (keyword.as_str(), value) {
        ("properties", Value::Object(fields)) => {
            let said = fields_of(schema);
            fields.iter().all(|(name, field)| inside(said.get(name), field))
        }
        ("items", elements) => inside(schema.get("items"), elements),
        ("oneOf" | "anyOf" | "allOf", Value::Array(forms)) => {
            forms.iter().all(|form| form.as_object().is_some_and(|form| says_all_of(schema, form)))
        }
        ("not", Value::Object(form)) => says_all_of(schema, form),
        _ => true,
    })
}

/// Whether a joined schema still has the types of one of its forms.
pub(super) fn has_types_of(joined: &Schema, form: &Schema) -> bool {
    let inside = |joined: Option<&Value>, form: &Value| match (joined, form) {
        (Some(Value::Object(joined)), Value::Object(form)) => has_types_of(joined, form),
        _ => false,
    };
    let fields = fields_of(joined);
    joined.get("type") == form.get("type")
        && fields_of(form).iter().all(|(name, field)| inside(fields.get(name), field))
        && form.get("items").is_none_or(|elements| inside(joined.get("items"), elements))
}

fn fields_of(schema: &Schema) -> Schema {
    schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
}

fn required(schema: &Schema) -> Vec<Value> {
    schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default()
}
