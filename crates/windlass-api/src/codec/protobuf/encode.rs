//! Values to bytes. What does not fit its field is left out; stored objects always fit.

use serde_json::{Map, Value};

use super::table::{self, Field, Form, Kind, Message, Shape};
use crate::codec::{base64, time, write};

/// Writes the fields of an object.
pub(super) fn fields(message: &Message, map: &Map<String, Value>, out: &mut Vec<u8>) {
    for field in &message.fields {
        if field.shape == Shape::Inline {
            let Kind::Message(index) = field.kind else { continue };
            let before = out.len();
            let mut is_empty = true;
            nested(field.number, out, |out| {
                let start = out.len();
                fields(table::by_index(index), map, out);
                is_empty = out.len() == start;
            });
            if is_empty {
                out.truncate(before);
            }
            continue;
        }
        match (field.shape, map.get(field.json)) {
            (_, None | Some(Value::Null)) => {}
            (Shape::Map, Some(Value::Object(entries))) => {
                for (key, value) in entries {
                    nested(field.number, out, |out| {
                        bytes(1, key.as_bytes(), out);
                        single(2, field.kind, value, out);
                    });
                }
            }
            (Shape::Repeated, Some(Value::Array(items))) => {
                for item in items {
                    element(field, item, out);
                }
            }
            (Shape::Single, Some(value)) => single(field.number, field.kind, value, out),
            _ => {}
        }
    }
}

/// Writes one item of a repeated field. An absent item is an empty one, lest the others move up.
fn element(field: &Field, item: &Value, out: &mut Vec<u8>) {
    let empty = Value::Object(Map::new());
    let item = if item.is_null() && matches!(field.kind, Kind::Message(_)) { &empty } else { item };
    single(field.number, field.kind, item, out);
}

/// Writes a field with a length.
pub(super) fn bytes(number: u32, content: &[u8], out: &mut Vec<u8>) {
    bytes_head(number, content.len(), out);
    out.extend_from_slice(content);
}

/// Writes what comes before the content of a field with a length.
pub(super) fn bytes_head(number: u32, length: usize, out: &mut Vec<u8>) {
    tag(number, 2, out);
    varint(length as u64, out);
}

/// Writes a field with a length that is known only once its content is written.
pub(super) fn nested(number: u32, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    tag(number, 2, out);
    let start = out.len();
    content(out);
    let length = out.len() - start;
    let mut prefix = Vec::with_capacity(10);
    varint(length as u64, &mut prefix);
    out.splice(start..start, prefix);
}

fn single(number: u32, kind: Kind, value: &Value, out: &mut Vec<u8>) {
    match (kind, value) {
        (Kind::String, Value::String(text)) => bytes(number, text.as_bytes(), out),
        (Kind::Bytes, Value::String(text)) => bytes(number, &base64::decode(text).unwrap_or_default(), out),
        (Kind::Bool, Value::Bool(value)) => integer(number, i64::from(*value), out),
        (Kind::Int32 | Kind::Int64, Value::Number(value)) => integer(number, value.as_i64().unwrap_or_default(), out),
        (Kind::Double, Value::Number(value)) => {
            tag(number, 1, out);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        (Kind::Message(index), value) => nested(number, out, |out| message(table::by_index(index), value, out)),
        _ => {}
    }
}

/// Writes the content of a message from its form in JSON.
fn message(message: &Message, value: &Value, out: &mut Vec<u8>) {
    match (message.form, value) {
        (Form::Object, Value::Object(map)) => fields(message, map, out),
        (Form::Time(precision), Value::String(text)) => {
            let Ok(moment) = time::parse(text, precision) else { return };
            if moment.is_zero() {
                return;
            }
            integer(1, moment.seconds, out);
            let nanos = if precision == time::Precision::Micros { moment.nanos } else { 0 };
            integer(2, i64::from(nanos), out);
        }
        (Form::Quantity, Value::String(text)) => bytes(1, text.as_bytes(), out),
        (Form::IntOrString, Value::String(text)) => {
            integer(1, 1, out);
            integer(2, 0, out);
            bytes(3, text.as_bytes(), out);
        }
        (Form::IntOrString, value) => {
            integer(1, 0, out);
            integer(2, value.as_i64().unwrap_or_default(), out);
            bytes(3, b"", out);
        }
        (Form::Json, Value::Null) => {}
        (Form::Json, value) => bytes(1, &write::to_vec(value), out),
        (Form::Items, Value::Array(items)) => {
            for item in items {
                bytes(1, item.as_str().unwrap_or_default().as_bytes(), out);
            }
        }
        (Form::SchemaOrBool, Value::Bool(allows)) => integer(1, i64::from(*allows), out),
        (Form::SchemaOrBool, schema @ Value::Object(_)) => {
            integer(1, 1, out);
            schema_field(message, schema, out);
        }
        (Form::SchemaOrList, schema @ Value::Object(_)) => schema_field(message, schema, out),
        (Form::SchemaOrList, Value::Array(items)) => {
            if let Some(field) = message.fields.iter().find(|field| field.shape == Shape::Repeated) {
                for item in items {
                    element(field, item, out);
                }
            }
        }
        _ => {}
    }
}

fn schema_field(message: &Message, schema: &Value, out: &mut Vec<u8>) {
    if let Some(field) = message.field_named("schema") {
        single(field.number, field.kind, schema, out);
    }
}

fn integer(number: u32, value: i64, out: &mut Vec<u8>) {
    tag(number, 0, out);
    varint(value as u64, out);
}

fn tag(number: u32, wire: u32, out: &mut Vec<u8>) {
    varint(u64::from(number << 3 | wire), out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
