//! Reading and writing `metadata` of an object that is a JSON value.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// `metadata`; an empty map if there is none.
pub fn metadata(object: &Value) -> &Map<String, Value> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    object.get("metadata").and_then(Value::as_object).unwrap_or(&EMPTY)
}

/// `metadata`, made if there is none. The object must be a JSON object.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    let Value::Object(map) = object else { unreachable!("invariant: objects are JSON objects") };
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    let Value::Object(metadata) = metadata else { unreachable!("invariant: just made one") };
    metadata
}

/// A text field of `metadata`; empty if absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    metadata(object).get(field).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<&str> {
    metadata(object)
        .get("finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// Whether the object is being deleted.
pub fn is_deleting(object: &Value) -> bool {
    metadata(object).get("deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// A time as Kubernetes writes it: whole seconds, UTC.
pub fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A new random uid.
pub fn new_uid() -> String {
    let mut bits = fastrand::u128(..);
    bits &= !(0xf << 76) & !(0x3 << 62);
    bits |= (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// A name from a prefix: at most 58 characters of it and five random ones, in upstream's alphabet.
pub fn generate_name(prefix: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const LONGEST_PREFIX: usize = 63 - 5;
    let mut end = prefix.len().min(LONGEST_PREFIX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = prefix[..end].to_owned();
    name.extend((0..5).map(|_| char::from(ALPHABET[fastrand::usize(..ALPHABET.len())])));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_version_4() {
        let uid = new_uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"));
        assert_ne!(uid, new_uid());
    }

    #[test]
    fn long_prefixes_are_cut() {
        assert_eq!(generate_name(&"x".repeat(100)).len(), 63);
        assert!(generate_name("pre-").starts_with("pre-"));
    }
}
