//! Values as Rust source.

use serde_json::Value;

/// A container with more elements than this is written as text: `json!` calls itself for each of them, and the
/// compiler counts.
const LONGEST: usize = 16;
const DEEPEST: usize = 6;

/// A string literal; raw where that saves escapes.
pub(super) fn string(text: &str) -> String {
    let plain = text.chars().all(|c| !c.is_control() && !is_unseen(c));
    if !plain || !text.contains(['\\', '"']) {
        return escaped(text);
    }
    let mut hashes = String::new();
    while text.contains(&format!("\"{hashes}")) {
        hashes.push('#');
    }
    format!("r{hashes}\"{text}\"{hashes}")
}

fn escaped(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for c in text.chars() {
        match c {
            '"' => literal.push_str("\\\""),
            '\\' => literal.push_str("\\\\"),
            '\n' => literal.push_str("\\n"),
            '\t' => literal.push_str("\\t"),
            '\r' => literal.push_str("\\r"),
            c if c.is_control() || is_unseen(c) => literal.extend(c.escape_unicode()),
            c => literal.push(c),
        }
    }
    literal.push('"');
    literal
}

/// Characters that the compiler refuses in source because they change the direction of text.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{200b}'..='\u{200f}')
}

/// A value for `json!`.
pub(super) fn json(value: &Value) -> String {
    if is_long(value, 0) {
        // It was read as JSON, so it can be read as JSON.
        return format!("serde_json::from_str::<Value>({}).unwrap_or_default()", string(&value.to_string()));
    }
    short(value)
}

/// Whether the literal needs `serde_json::Value` by its short name.
pub(super) fn is_text(value: &Value) -> bool {
    is_long(value, 0)
}

fn short(value: &Value) -> String {
    match value {
        Value::String(text) => string(text),
        Value::Array(items) => format!("[{}]", items.iter().map(short).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| format!("{}: {}", string(key), short(value)));
            let entries = entries.collect::<Vec<_>>().join(", ");
            format!("{{{entries}}}")
        }
        Value::Number(number) => self::number(number),
        other => other.to_string(),
    }
}

/// A number; an integer that is too large for `i32` says its type.
fn number(number: &serde_json::Number) -> String {
    let text = number.to_string();
    if number.is_f64() && !text.contains(['.', 'e', 'E']) {
        return format!("{text}.0");
    }
    if number.as_i64().is_some_and(|number| i32::try_from(number).is_err()) {
        return format!("{text}i64");
    }
    if !number.is_f64() && number.as_i64().is_none() {
        return format!("{text}u64");
    }
    text
}

fn is_long(value: &Value, depth: usize) -> bool {
    if depth > DEEPEST {
        return true;
    }
    match value {
        Value::Array(items) => items.len() > LONGEST || items.iter().any(|item| is_long(item, depth + 1)),
        Value::Object(entries) => entries.len() > LONGEST || entries.values().any(|value| is_long(value, depth + 1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_what_they_were() {
        for text in ["", "plain", r"^\d+$", "say \"hi\"", "a\\\"b", "\"#", "line\nbreak", "\u{202e}x", "ä日\u{0}", "'"]
        {
            let literal: syn::LitStr = syn::parse_str(&string(text)).unwrap();
            assert_eq!(literal.value(), text);
        }
    }

    #[test]
    fn large_values_are_written_as_text() {
        let value = Value::from((0..100).collect::<Vec<_>>());
        assert!(json(&value).starts_with("serde_json::from_str::<Value>(\"[0,1,"));
        assert_eq!(json(&serde_json::json!({"a": [1, -2.5, null], "b": "x"})), r#"{"a": [1, -2.5, null], "b": "x"}"#);
        assert_eq!(json(&serde_json::json!([5_000_000_000_i64, u64::MAX])), "[5000000000i64, 18446744073709551615u64]");
    }
}
