//! Where things are in a JSON document, without decoding it.
//!
//! Watch events and list pages are cut into objects by position: each object's bytes are kept as
//! they came, without `managedFields`, and decoded once into the type. What is not JSON yields
//! `None`; whether the pieces make sense is for the decoder to say.

use std::ops::Range;

use memchr::memchr;

use crate::decode::scan::{skip_space, skip_string, skip_value};

/// The span of the value of a member of the object at `within`.
pub(super) fn member(json: &[u8], within: Range<usize>, name: &str) -> Option<Range<usize>> {
    find(json, within.start, name).map(|found| found.value)
}

/// The spans of an array's elements.
pub(super) fn elements(json: &[u8], within: Range<usize>) -> Option<Vec<Range<usize>>> {
    let mut at = skip_space(json, within.start);
    if json.get(at) != Some(&b'[') {
        return None;
    }
    let mut spans = Vec::new();
    at = skip_space(json, at + 1);
    if json.get(at) == Some(&b']') {
        return Some(spans);
    }
    loop {
        let end = skip_value(json, at)?;
        spans.push(at..end);
        at = skip_space(json, end);
        match json.get(at)? {
            b',' => at = skip_space(json, at + 1),
            b']' => return Some(spans),
            _ => return None,
        }
    }
}

/// The object at `within` without its `metadata.managedFields`: they are not read from a cache,
/// and they are often the largest part of an object. On request without the `kind` and `apiVersion`
/// that it begins with, too.
pub(super) fn without_managed_fields(json: &[u8], within: Range<usize>, types: bool) -> Box<[u8]> {
    let managed = locate(json, within.start, "metadata").and_then(|meta| find(json, meta.value, "managedFields"));
    // What is cut off in the middle may seem to go on behind its end.
    let managed = managed.filter(|found| found.whole.end <= within.end);
    let (opening, start): (&[u8], usize) = match after_types(json, within.start) {
        Some(start) if !types => (b"{", start),
        _ => (b"", within.start),
    };
    match managed {
        Some(found) => [opening, &json[start..found.whole.start], &json[found.whole.end..within.end]].concat().into(),
        None => [opening, &json[start..within.end]].concat().into(),
    }
}

/// Where the other members of the object at `at` begin, if it begins with `kind` and `apiVersion`.
fn after_types(json: &[u8], at: usize) -> Option<usize> {
    let start = skip_space(json, at);
    let mut at = skip_space(json, start + 1);
    for _ in 0..2 {
        let name_end = skip_string(json, at)?;
        if !matches!(&json[at..name_end], b"\"kind\"" | b"\"apiVersion\"") {
            return None;
        }
        let colon = skip_space(json, name_end);
        let end = skip_space(json, skip_value(json, skip_space(json, colon + 1))?);
        if json.get(start) != Some(&b'{') || json.get(colon) != Some(&b':') || json.get(end) != Some(&b',') {
            return None;
        }
        at = skip_space(json, end + 1);
    }
    (json.get(at) == Some(&b'"')).then_some(at)
}

struct Member {
    /// With its name and one comma, so that cutting it leaves an object.
    whole: Range<usize>,
    value: Range<usize>,
}

/// A member whose end is not known yet.
struct Located {
    comma_before: Option<usize>,
    name: usize,
    value: usize,
}

/// A member of the object that starts at `at`.
fn find(json: &[u8], at: usize, name: &str) -> Option<Member> {
    let found = locate(json, at, name)?;
    let end = skip_value(json, found.value)?;
    let after = skip_space(json, end);
    let whole = match (found.comma_before, json.get(after) == Some(&b',')) {
        (Some(comma), _) => comma..end,
        (None, true) => found.name..after + 1,
        (None, false) => found.name..end,
    };
    Some(Member { whole, value: found.value..end })
}

/// Where a member of the object that starts at `at` is. What follows its name is not looked at.
fn locate(json: &[u8], at: usize, name: &str) -> Option<Located> {
    let mut at = skip_space(json, at);
    if json.get(at) != Some(&b'{') {
        return None;
    }
    at = skip_space(json, at + 1);
    let mut comma_before = None;
    while json.get(at)? == &b'"' {
        let start = at;
        let name_end = skip_string(json, at)?;
        at = skip_space(json, name_end);
        if json.get(at) != Some(&b':') {
            return None;
        }
        let value = skip_space(json, at + 1);
        if &json[start + 1..name_end - 1] == name.as_bytes() {
            return Some(Located { comma_before, name: start, value });
        }
        at = skip_space(json, skip_value(json, value)?);
        if json.get(at) != Some(&b',') {
            return None;
        }
        comma_before = Some(at);
        at = skip_space(json, at + 1);
    }
    None
}

/// The position of the next line end.
pub(super) fn line_end(bytes: &[u8]) -> Option<usize> {
    memchr(b'\n', bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn cut(text: &str) -> String {
        String::from_utf8(without_managed_fields(text.as_bytes(), 0..text.len(), true).into()).unwrap()
    }

    #[test]
    fn managed_fields_are_cut_wherever_they_are() {
        for (from, to) in [
            (
                r#"{"metadata":{"name":"a","managedFields":[{"f:x":"]}"}],"uid":"1"}}"#,
                r#"{"metadata":{"name":"a","uid":"1"}}"#,
            ),
            (r#"{"metadata":{"managedFields":[ ], "name":"a"}}"#, r#"{"metadata":{ "name":"a"}}"#),
            (r#"{"metadata": { "managedFields" : null }}"#, r#"{"metadata": {  }}"#),
            (
                r#"{"metadata":{"name":"managedFields","managedFields":[{"a":[1,2,{}]}]}}"#,
                r#"{"metadata":{"name":"managedFields"}}"#,
            ),
            (r#"{"spec":{"managedFields":1},"metadata":{}}"#, r#"{"spec":{"managedFields":1},"metadata":{}}"#),
            ("[1]", "[1]"),
        ] {
            assert_eq!(cut(from), to);
        }
    }

    #[test]
    fn kind_and_version_are_left_out_where_they_come_first() {
        let short = |text: &str| {
            String::from_utf8(without_managed_fields(text.as_bytes(), 0..text.len(), false).into()).unwrap()
        };
        let managed = r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","managedFields":[{}]},"x":1}"#;
        assert_eq!(short(managed), r#"{"metadata":{"name":"a"},"x":1}"#);
        let spaced = r#" { "apiVersion" : "v1" , "kind" : "A" , "x" : 1 }"#;
        assert_eq!(short(spaced), r#"{"x" : 1 }"#);
        for other in [
            r#"{"kind":"A","apiVersion":"v1"}"#,
            r#"{"kind":"A","x":1}"#,
            r#"{"x":1,"kind":"A","apiVersion":"v1"}"#,
            r#"{"kind":"A","apiVersion":"v1",}"#,
            r#"["kind","apiVersion"]"#,
            "{",
            "",
        ] {
            assert_eq!(short(other), other);
        }
    }

    #[test]
    fn broken_documents_are_not_understood() {
        for text in ["", "{", r#"{"a"#, r#"{"a":"#, r#"{"a":1"#, r#"{"a" 1}"#, r#"{"a":,"#, r#"{"b":"\"#] {
            assert_eq!(member(text.as_bytes(), 0..text.len(), "zz"), None, "{text}");
            elements(text.as_bytes(), 0..text.len());
        }
        assert_eq!(elements(b"[1,2", 0..4), None);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..6).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn spans_are_what_a_parser_finds(value in any_json(), pretty: bool) {
            let document = json!({"before": value, "items": [value, value], "after": 1});
            let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
            let text = text.unwrap();
            let bytes = text.as_bytes();
            let found = member(bytes, 0..bytes.len(), "before").unwrap();
            prop_assert_eq!(serde_json::from_slice::<Value>(&bytes[found]).unwrap(), value.clone());
            let items = member(bytes, 0..bytes.len(), "items").unwrap();
            for item in elements(bytes, items).unwrap() {
                prop_assert_eq!(serde_json::from_slice::<Value>(&bytes[item]).unwrap(), value.clone());
            }
            prop_assert_eq!(member(bytes, 0..bytes.len(), "missing"), None);
        }
    }
}
