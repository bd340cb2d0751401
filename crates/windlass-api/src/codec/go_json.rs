//! JSON text as Go's encoder writes it, where the text itself is what people and clients see: paths of owned
//! fields, the last applied configuration, columns of tables.

use std::fmt::Write as _;

use serde_json::Value;
use windlass_cel::go::float;

/// JSON as Go writes it: no spaces, HTML characters escaped, whole floats without a fraction.
pub(crate) fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => write_string(text, out),
        Value::Number(n) if n.is_f64() => out.push_str(&float::json(n.as_f64().unwrap_or_default())),
        Value::Number(n) => {
            let _ = write!(out, "{n}");
        }
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (i, (name, value)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(name, out);
                out.push(':');
                write_value(value, out);
            }
            out.push('}');
        }
    }
}

/// A string in quotes.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let plain = |b: u8| (0x20..0x7f).contains(&b) && !matches!(b, b'"' | b'\\' | b'<' | b'>' | b'&');
    if text.bytes().all(plain) {
        out.push_str(text);
    } else {
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..'\x20' => {
                    let _ = write!(out, "\\u{:04x}", c as u32);
                }
                c => out.push(c),
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_reads_as_in_go() {
        let mut out = String::new();
        write_value(&json!({"b": [1.0, 1e21, 1e-7, null], "a": "<&>\u{2028}\n\"é"}), &mut out);
        assert_eq!(out, r#"{"a":"\u003c\u0026\u003e\u2028\n\"é","b":[1,1e+21,1e-7,null]}"#);
    }
}
