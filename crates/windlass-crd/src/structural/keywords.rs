//! Which keywords definitions have, and in which form.

use serde_json::{Number, Value};

use super::Schema;

pub(super) const OBJECT: &str = "object";
pub(super) const ARRAY: &str = "array";
const TYPES: [&str; 6] = ["string", "integer", "number", "boolean", OBJECT, ARRAY];

/// The form that an API server needs the value of a keyword to have.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Number,
    Count,
    Flag,
    List,
    Texts,
    Page,
    Rules,
    Any,
}

/// The keywords that are kept as they are. Those with schemas in them, and `type`, `const` and `examples`, are converted.
const KEPT: [(&str, Form); 29] = [
    ("title", Form::Text),
    ("description", Form::Text),
    ("format", Form::Text),
    ("pattern", Form::Text),
    ("maximum", Form::Number),
    ("minimum", Form::Number),
    ("multipleOf", Form::Number),
    ("exclusiveMaximum", Form::Flag),
    ("exclusiveMinimum", Form::Flag),
    ("maxLength", Form::Count),
    ("minLength", Form::Count),
    ("maxItems", Form::Count),
    ("minItems", Form::Count),
    ("maxProperties", Form::Count),
    ("minProperties", Form::Count),
    ("required", Form::Texts),
    ("enum", Form::List),
    ("default", Form::Any),
    ("example", Form::Any),
    ("nullable", Form::Flag),
    ("externalDocs", Form::Page),
    ("x-kubernetes-preserve-unknown-fields", Form::Flag),
    ("x-kubernetes-embedded-resource", Form::Flag),
    ("x-kubernetes-int-or-string", Form::Flag),
    ("x-kubernetes-list-type", Form::Text),
    ("x-kubernetes-list-map-keys", Form::Texts),
    ("x-kubernetes-map-type", Form::Text),
    ("x-kubernetes-validations", Form::Rules),
    ("type", Form::Any),
];

impl Form {
    fn fits(self, value: &Value) -> bool {
        match self {
            Form::Text => value.is_string(),
            Form::Number => value.is_number(),
            Form::Count => value.as_i64().is_some(),
            Form::Flag => value.is_boolean(),
            Form::List => value.is_array(),
            Form::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            Form::Page => value.as_object().is_some_and(|page| page.values().all(Value::is_string)),
            Form::Rules => value.as_array().is_some_and(|rules| rules.iter().all(is_rule)),
            Form::Any => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Form::Text => "a string",
            Form::Number => "a number",
            Form::Count => "an integer",
            Form::Flag => "true or false",
            Form::List => "a list",
            Form::Texts => "a list of strings",
            Form::Page => "an object with a url",
            Form::Rules => "a list of rules",
            Form::Any => "a value",
        }
    }
}

fn is_rule(value: &Value) -> bool {
    let fits =
        |(key, value): (&String, &Value)| if key == "optionalOldSelf" { value.is_boolean() } else { value.is_string() };
    value.as_object().is_some_and(|rule| rule.contains_key("rule") && rule.iter().all(fits))
}

/// The keywords of a schema that definitions have, without those that have schemas in them.
pub(super) fn kept(read: &Schema) -> Schema {
    let mut schema = Schema::new();
    for (keyword, form) in KEPT {
        let Some(value) = read.get(keyword) else { continue };
        if form.fits(value) {
            schema.insert(keyword.to_string(), value.clone());
        } else if !set_exclusive(&mut schema, keyword, value) {
            let problem = format!("{keyword} must be {}", form.name());
            schema.insert("type".to_string(), problem.into());
            return schema;
        }
    }
    if let Some(value) = read.get("const") {
        schema.insert("enum".to_string(), Value::Array(vec![value.clone()]));
    }
    if let Some(example) = read.get("examples").and_then(Value::as_array).and_then(|examples| examples.first()) {
        schema.entry("example").or_insert_with(|| example.clone());
    }
    set_type(&mut schema);
    set_nullable_values(&mut schema);
    set_format(&mut schema);
    schema
}

/// A limit that is itself excluded is a number in JSON Schema, and a flag beside the limit here.
fn set_exclusive(schema: &mut Schema, keyword: &str, value: &Value) -> bool {
    let limit = match keyword {
        "exclusiveMaximum" => "maximum",
        "exclusiveMinimum" => "minimum",
        _ => return false,
    };
    if !value.is_number() {
        return false;
    }
    schema.insert(limit.to_string(), value.clone());
    schema.insert(keyword.to_string(), Value::Bool(true));
    true
}

/// One type. `null` becomes `nullable`; several other types leave the value open, unless they have a name together.
fn set_type(schema: &mut Schema) {
    let Some(value) = schema.remove("type") else { return };
    let types: Vec<&str> = match &value {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if types.contains(&"null") {
        schema.entry("nullable").or_insert(Value::Bool(true));
    }
    let types: Vec<&str> = types.into_iter().filter(|kind| *kind != "null").collect();
    match types.as_slice() {
        // A type that there is not is for the API server to refuse.
        [one] => {
            schema.insert("type".to_string(), (*one).into());
        }
        ["integer", "number"] | ["number", "integer"] => {
            schema.insert("type".to_string(), "number".into());
        }
        ["integer", "string"] | ["string", "integer"] => {
            schema.insert("x-kubernetes-int-or-string".to_string(), Value::Bool(true));
        }
        _ => {}
    }
}

/// `null` is neither one of the values nor the default: `nullable` and the absence of the field say it.
fn set_nullable_values(schema: &mut Schema) {
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        let before = values.len();
        values.retain(|value| !value.is_null());
        let (left, null) = (values.len(), values.len() < before);
        if left == 0 {
            schema.remove("enum");
        }
        if null {
            schema.entry("nullable").or_insert(Value::Bool(true));
        }
    }
    if let Some(default) = schema.get_mut("default") {
        remove_nulls(default);
        if default.is_null() {
            schema.remove("default");
        }
    }
}

/// Defaults are checked against the schema, which most fields within them must not be `null` for.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// The formats of numbers that API servers know. Limits say the rest.
fn set_format(schema: &mut Schema) {
    let Some(Value::String(format)) = schema.get("format") else { return };
    let (known, limits): (&str, Option<(i64, i64)>) = match format.as_str() {
        "int8" => ("int32", Some((i8::MIN.into(), i8::MAX.into()))),
        "int16" => ("int32", Some((i16::MIN.into(), i16::MAX.into()))),
        "uint8" => ("int32", Some((0, u8::MAX.into()))),
        "uint16" => ("int32", Some((0, u16::MAX.into()))),
        "uint32" => ("int64", Some((0, u32::MAX.into()))),
        "uint" | "uint64" | "uint128" => ("int64", Some((0, i64::MAX))),
        "int" | "int128" => ("int64", None),
        _ => return,
    };
    schema.insert("format".to_string(), known.into());
    if let Some((least, most)) = limits {
        schema.entry("minimum").or_insert_with(|| Value::Number(Number::from(least)));
        if most != i64::MAX {
            schema.entry("maximum").or_insert_with(|| Value::Number(Number::from(most)));
        }
    }
}

/// The type of values, if there is one.
pub(super) fn type_of(schema: &Schema) -> Option<&str> {
    schema.get("type").and_then(Value::as_str)
}

/// The type that a value has.
pub(super) fn type_of_value(value: &Value) -> Option<&'static str> {
    let [text, integer, number, flag, object, array] = TYPES;
    match value {
        Value::Null => None,
        Value::Bool(_) => Some(flag),
        Value::Number(value) if value.is_f64() => Some(number),
        Value::Number(_) => Some(integer),
        Value::String(_) => Some(text),
        Value::Array(_) => Some(array),
        Value::Object(_) => Some(object),
    }
}
