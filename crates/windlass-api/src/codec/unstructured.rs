//! What upstream's converter from maps to Go structs refuses, and how it words it.
//!
//! The result of a strategic merge patch does not pass through a JSON decoder: maps are copied into structs
//! by reflection, with rules and complaints of their own. Whole floats become integers, integers too large
//! for their field wrap around, and no complaint says where it arose. Mirrors
//! `apimachinery/pkg/runtime/converter.go`.

use serde_json::Value;

use super::go::{self, Special};
use super::json::go_type_of;
use super::{base64, quantity, time};
use crate::schema::{Schema, Type};

/// Checks that `value` fits `schema`, and brings its numbers into the form the converter gives them.
pub fn convert(value: &mut Value, schema: &Schema) -> Result<(), String> {
    field(value, schema, None)
}

fn field(value: &mut Value, schema: &Schema, known: Option<&'static str>) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    if let Some(special) = go::special(schema) {
        return check_special(special, value);
    }
    let is_bytes = schema.ty == Type::String && schema.format.as_deref() == Some("byte");
    match (schema.ty, value) {
        (Type::Object, Value::Object(map)) if go::is_struct(schema) => {
            let go = go::struct_of(schema.name.unwrap_or_default());
            for (name, value) in map {
                if let Some(below) = schema.properties.get(name.as_str()) {
                    field(value, below, go.field(name).type_name)?;
                }
            }
            Ok(())
        }
        (Type::Object, Value::Object(map)) => {
            let Some(below) = schema.additional.as_deref() else { return Ok(()) };
            let known = go::element_type(known);
            map.values_mut().try_for_each(|value| field(value, below, known))
        }
        (Type::Array, Value::Array(items)) => {
            let Some(below) = schema.items.as_deref() else { return Ok(()) };
            let known = go::element_type(known);
            items.iter_mut().try_for_each(|item| field(item, below, known))
        }
        (Type::Object, other) if go::is_struct(schema) => Err(format!("cannot restore struct from: {}", kind(other))),
        (Type::Object, other) => Err(format!("cannot restore map from {}", kind(other))),
        (Type::String, Value::String(text)) if is_bytes => match base64::decode(text) {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("error decoding from json: {why}")),
        },
        (_, other) if schema.ty == Type::Array || is_bytes => Err(format!("cannot restore slice from {}", kind(other))),
        (_, other) => scalar(other, schema, known),
    }
}

/// Go converts between integers and floats, and would between integers and strings.
fn scalar(value: &mut Value, schema: &Schema, known: Option<&'static str>) -> Result<(), String> {
    let is_short = schema.format.as_deref() == Some("int32");
    let wrapped = |number: i64| if is_short { i64::from(number as i32) } else { number };
    match (schema.ty, &*value) {
        (Type::String, Value::String(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::Number, Value::Number(_))
        | (Type::Any | Type::IntOrString | Type::Quantity, _) => Ok(()),
        (Type::Integer, Value::Number(number)) => {
            let whole = number.as_i64().or_else(|| number.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64));
            let Some(whole) = whole else {
                return Err(format!("cannot convert float64 to {}", go::type_name(schema, known)));
            };
            *value = wrapped(whole).into();
            Ok(())
        }
        (Type::String, Value::Number(number)) if number.is_i64() => {
            Err(format!("cannot convert int64 to {}", go::type_name(schema, known)))
        }
        (Type::String, _) => Err("unrecognized type: string".to_owned()),
        (Type::Boolean, _) => Err("unrecognized type: bool".to_owned()),
        (Type::Number, _) => Err("unrecognized type: float64".to_owned()),
        _ => Err(format!("unrecognized type: {}", if is_short { "int32" } else { "int64" })),
    }
}

/// Types that decode themselves are given JSON, and complain as if it were a document of its own.
fn check_special(special: Special, value: &Value) -> Result<(), String> {
    let mistyped =
        |found: &str, wanted: &str| Err(format!("json: cannot unmarshal {found} into Go value of type {wanted}"));
    match (special, value) {
        (Special::Time | Special::MicroTime, Value::String(text)) => {
            let precision = if special == Special::Time { time::Precision::Seconds } else { time::Precision::Micros };
            time::parse(text, precision).map(|_| ())
        }
        (Special::Time | Special::MicroTime, other) => mistyped(go_type_of(other), "string"),
        (Special::Quantity, Value::String(text)) => quantity::canonical(text).map(|_| ()).map_err(str::to_owned),
        (Special::Quantity, other) => quantity::canonical(&other.to_string()).map(|_| ()).map_err(str::to_owned),
        (Special::IntOrString, Value::Number(number)) => match number.as_i64().map(i32::try_from) {
            Some(Ok(_)) => Ok(()),
            _ => mistyped(&format!("number {number}"), "int32"),
        },
        (Special::IntOrString, Value::String(_)) => Ok(()),
        (Special::IntOrString, other) => mistyped(go_type_of(other), "int32"),
        // What is left keeps anything, or is checked where it is decoded.
        _ => Ok(()),
    }
}

/// The kind that reflection sees in a JSON value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}
