//! [`Value`] to JSON text: the bytes the store keeps and clients read.
//!
//! [`write_object`] fixes the order that the rest of the server relies on: `kind` and `apiVersion`, then
//! `metadata` with what is looked at most first and `managedFields` last, then everything else. The
//! resourceVersion is an empty slot, because the store only knows the revision when it commits.

use serde_json::{Map, Value};
use windlass_cel::go::float;

/// Metadata fields in the order they are written; all others but `managedFields` follow by name.
const METADATA_ORDER: [&str; 11] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];

/// Writes an object as it is stored, with `"resourceVersion":""`, and returns the offset in `out` where
/// the digits of the revision belong. Without `metadata` there is no such place.
pub fn write_object(value: &Value, out: &mut Vec<u8>) -> Option<usize> {
    let Value::Object(map) = value else {
        write_value(value, out);
        return None;
    };
    let mut slot = None;
    let mut object = ObjectWriter::new(out);
    for key in ["kind", "apiVersion"] {
        if let Some(value) = map.get(key) {
            write_value(value, object.field(key));
        }
    }
    if let Some(metadata) = map.get("metadata") {
        let out = object.field("metadata");
        match metadata {
            Value::Object(metadata) => slot = Some(write_metadata(metadata, out)),
            other => write_value(other, out),
        }
    }
    for (key, value) in map {
        if !matches!(key.as_str(), "kind" | "apiVersion" | "metadata") {
            write_value(value, object.field(key));
        }
    }
    object.end();
    slot
}

fn write_metadata(map: &Map<String, Value>, out: &mut Vec<u8>) -> usize {
    let mut slot = 0;
    let mut object = ObjectWriter::new(out);
    for key in METADATA_ORDER {
        if key == "resourceVersion" {
            let out = object.field(key);
            out.extend_from_slice(b"\"\"");
            slot = out.len() - 1;
        } else if let Some(value) = map.get(key) {
            write_value(value, object.field(key));
        }
    }
    for (key, value) in map {
        if key != "managedFields" && !METADATA_ORDER.contains(&key.as_str()) {
            write_value(value, object.field(key));
        }
    }
    if let Some(value) = map.get("managedFields") {
        write_value(value, object.field("managedFields"));
    }
    object.end();
    slot
}

/// Writes any value, object keys in their own order. Floats read as Go writes them.
pub fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_value(item, out);
            }
            out.push(b']');
        }
        Value::Object(map) => {
            let mut object = ObjectWriter::new(out);
            for (key, value) in map {
                write_value(value, object.field(key));
            }
            object.end();
        }
    }
}

/// [`write_value`] into bytes of their own.
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write_value(value, &mut out);
    out
}

/// Writes a JSON string.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.reserve(text.len() + 2);
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut written = 0;
    while let Some(at) = escaped_at(bytes, written) {
        out.extend_from_slice(&bytes[written..at]);
        let byte = bytes[at];
        let short = match byte {
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0C => b'f',
            ..0x20 => b'u',
            other => other,
        };
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            out.extend_from_slice(b"00");
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        written = at + 1;
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

/// Where, at or after `from`, the first byte is that a JSON string cannot have as it is. Eight bytes are looked at at a
/// time, since in most texts there is none.
fn escaped_at(bytes: &[u8], from: usize) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    // A byte's highest bit is set here if it is below the limit, provided that is at most 128.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let is = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let mut at = from;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        if (below(word, 0x20) | is(word, b'"') | is(word, b'\\')) & (ONES << 7) != 0 {
            break;
        }
        at += 8;
    }
    let rest = bytes[at..].iter().position(|byte| matches!(byte, ..0x20 | b'"' | b'\\'));
    rest.map(|found| at + found)
}

fn write_number(number: &serde_json::Number, out: &mut Vec<u8>) {
    if let Some(integer) = number.as_i64() {
        out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    } else if let Some(integer) = number.as_u64() {
        out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    } else if let Some(number) = number.as_f64() {
        out.extend_from_slice(float::json(number).as_bytes());
    }
}

/// Lays JSON text out with two spaces per level, as upstream answers people (`pretty=true`, curl).
/// The text must be valid JSON, which may be cut off. It is `depth` levels deep in another.
pub fn indent(json: &[u8], mut depth: usize, out: &mut Vec<u8>) {
    let mut at = 0;
    let newline = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.resize(out.len() + 2 * depth, b' ');
    };
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b' ' | b'\n' | b'\t' | b'\r' => {}
            b'"' => {
                let end = super::peek::string_end(json, at - 1).unwrap_or(json.len());
                out.extend_from_slice(&json[at - 1..end]);
                at = end;
            }
            b'{' | b'[' => {
                out.push(byte);
                while let Some(b' ' | b'\n' | b'\t' | b'\r') = json.get(at) {
                    at += 1;
                }
                if let Some(&close @ (b'}' | b']')) = json.get(at) {
                    out.push(close);
                    at += 1;
                } else {
                    depth += 1;
                    newline(out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                newline(out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                newline(out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            other => out.push(other),
        }
    }
}

/// Writes the braces, commas and keys of one object.
struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> ObjectWriter<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Writes the key and returns where the value goes.
    fn field(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        write_string(key, self.out);
        self.out.push(b':');
        self.out
    }

    fn end(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(value: &Value) -> (String, Option<usize>) {
        let mut out = Vec::new();
        let slot = write_object(value, &mut out);
        (String::from_utf8(out).expect("JSON is text"), slot)
    }

    #[test]
    fn objects_are_written_in_the_order_that_scans_rely_on() {
        let (text, slot) = written(&json!({
            "spec": {"b": 1, "a": 2}, "apiVersion": "v1", "kind": "Pod", "data": null,
            "metadata": {"managedFields": [], "generateName": "x-", "labels": {"a": "b"}, "name": "x",
                "resourceVersion": "12", "zz": 1},
        }));
        assert_eq!(
            text,
            concat!(
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"","labels":{"a":"b"},"#,
                r#""generateName":"x-","zz":1,"managedFields":[]},"data":null,"spec":{"a":2,"b":1}}"#
            )
        );
        let slot = slot.expect("metadata has a slot");
        assert_eq!(&text[..slot].split('"').rev().nth(2), &Some("resourceVersion"));
        assert_eq!(&text[slot..=slot], "\"");
    }

    #[test]
    fn without_metadata_there_is_no_slot() {
        assert_eq!(written(&json!({"kind": "Status"})), (r#"{"kind":"Status"}"#.to_owned(), None));
        assert_eq!(written(&json!([1, "a\u{1}\n\"\\é"])).0, r#"[1,"a\u0001\n\"\\é"]"#);
    }

    #[test]
    fn floats_print_as_in_go() {
        for (float, expected) in [
            (1.0, "1"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (1.25e-10, "1.25e-10"),
        ] {
            assert_eq!(float::json(float), expected);
        }
    }

    #[test]
    fn indented_text_reads_as_go_indents() {
        let mut out = Vec::new();
        indent(br#"{"a":[],"b":{ },"c":[1,{"d":"x:,{\""}]}"#, 0, &mut out);
        let expected =
            "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"d\": \"x:,{\\\"\"\n    }\n  ]\n}";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    proptest::proptest! {
        /// `serde_json` escapes the same characters in the same way, one by one.
        #[test]
        fn strings_are_escaped_wherever_they_need_it(text in "[a-z\"\\\\\u{0}-\u{1f}\u{7f}äß✓ ]{0,40}") {
            let mut out = Vec::new();
            write_string(&text, &mut out);
            proptest::prop_assert_eq!(String::from_utf8(out).expect("text"), serde_json::to_string(&text).expect("text"));
        }
    }
}
