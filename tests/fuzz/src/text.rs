//! JSON as no encoder writes it: values that [`odd`](crate::odd) marks become numbers that overflow, repeated keys, lone
//! surrogates, and text that is deep or long.

use serde_json::Value;

/// What marks a string that stands for something else.
pub(crate) const MARK: char = '\u{1}';

/// A string that is written as `text`, without quotes.
pub(crate) fn raw(text: &str) -> Value {
    Value::String(format!("{MARK}raw:{text}"))
}

/// A string that is written as `depth` lists or objects within each other.
pub(crate) fn deep(open: &str, depth: usize, close: &str) -> Value {
    Value::String(format!("{MARK}deep:{depth}:{open}:{close}"))
}

/// A string that is written as `text` repeated.
pub(crate) fn long(text: &str, times: usize) -> Value {
    Value::String(format!("{MARK}long:{times}:{text}"))
}

/// A key that is written without what makes it differ from `key`.
pub(crate) fn repeated(key: &str) -> String {
    format!("{key}{MARK}again")
}

/// Writes a value as JSON.
pub(crate) fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::String(text) if text.starts_with(MARK) => expand(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Value::Object(map) => {
            out.push(b'{');
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                scalar(&Value::from(key.split(MARK).next().unwrap_or_default()), out);
                out.push(b':');
                write(value, out);
            }
            out.push(b'}');
        }
        _ => scalar(value, out),
    }
}

fn scalar(value: &Value, out: &mut Vec<u8>) {
    // Writing to a vector does not fail.
    let _ = serde_json::to_writer(out, value);
}

fn expand(text: &str, out: &mut Vec<u8>) {
    let text = &text[1..];
    if let Some(raw) = text.strip_prefix("raw:") {
        out.extend_from_slice(raw.as_bytes());
    } else if let Some(("deep", rest)) = text.split_once(':') {
        let mut parts = rest.splitn(3, ':');
        let depth = parts.next().and_then(|depth| depth.parse().ok()).unwrap_or(0);
        let (open, close) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        // Openings have no colon: `>` stands for it.
        out.extend(open.replace('>', ":").repeat(depth).bytes());
        out.push(b'1');
        out.extend(close.repeat(depth).bytes());
    } else if let Some(("long", rest)) = text.split_once(':') {
        let (times, text) = rest.split_once(':').unwrap_or(("0", ""));
        let text = text.repeat(times.parse().unwrap_or(0));
        scalar(&Value::String(text), out);
    } else {
        scalar(&Value::from(text), out);
    }
}
