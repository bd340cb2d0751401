//! Text as Go's standard library reads and writes it.
//!
//! Kubernetes' messages show values as Go prints them, and its objects hold durations, quantities and Base64 as Go's
//! parsers take them. The functions here have no CEL in them: they are public because an API server needs the same ones.

use std::fmt::Write as _;

use serde_json::Value;

pub mod base64;
pub mod duration;
pub mod float;
pub mod quantity;

/// The Go type that a JSON value decodes to, as `%T` prints it.
pub fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A string as Go's `%q` prints it.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A list of strings as Go's `%q` prints it: `["a" "b"]`.
pub fn quote_list(list: &[String]) -> String {
    format!("[{}]", list.iter().map(|text| quote(text)).collect::<Vec<_>>().join(" "))
}
