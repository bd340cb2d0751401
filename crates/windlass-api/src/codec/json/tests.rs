//! What the JSON decoder accepts, refuses and says.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::depth::SHALLOW;

fn error(text: &str) -> String {
    parse(text.as_bytes()).expect_err(text).message
}

fn duplicates(text: &str) -> Vec<String> {
    parse(text.as_bytes()).expect(text).duplicates.into_iter().map(|d| d.path).collect()
}

#[test]
fn syntax_errors_read_as_in_go() {
    for (text, expected) in [
        ("", "unexpected end of JSON input"),
        (r#"{"a":1,"#, "unexpected end of JSON input"),
        (r#"{"a"#, "unexpected end of JSON input"),
        ("[1", "unexpected end of JSON input"),
        ("-", "unexpected end of JSON input"),
        ("hello", "invalid character 'h' looking for beginning of value"),
        ("a: b: c", "invalid character 'a' looking for beginning of value"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
        (r#"{"a" 1}"#, "invalid character '1' after object key"),
        (r#"{"a":1 "b":2}"#, "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("01", "invalid character '1' after top-level value"),
        ("\"a\nb\"", "invalid character '\\n' in string literal"),
        (r#""\x""#, "invalid character 'x' in string escape code"),
        (r#""\u12g4""#, "invalid character 'g' in \\u hexadecimal character escape"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1e+x", "invalid character 'x' in exponent of numeric literal"),
        ("tru1", "invalid character '1' in literal true (expecting 'e')"),
        ("nul'", "invalid character '\\'' in literal null (expecting 'l')"),
        ("1e999", "json: cannot unmarshal number 1e999 into Go value of type float64"),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    assert_eq!(parse(&[0x81]).unwrap_err().message, r"invalid character '\u0081' looking for beginning of value");
}

#[test]
fn nesting_is_bounded() {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(parse(nested(SHALLOW).as_bytes()).is_ok());
    assert_eq!(error(&nested(SHALLOW + 1)), "invalid character '[' exceeded max depth");
    assert_eq!(error(&"{\"a\":".repeat(1_000_000)), "invalid character '{' exceeded max depth");
}

#[test]
fn duplicates_are_noted_in_document_order() {
    assert_eq!(
        duplicates(r#"{"data":{"a":"1","a":"2","a":"3"},"data":{"b":[{"c":1,"c":2}]}}"#),
        ["data.a", "data", "data.b[0].c"]
    );
    assert_eq!(duplicates(r#"{"metadata":{"labels":{"a.b/c":"1","a.b/c":"2"}}}"#), ["metadata.labels.a.b/c"]);
    assert_eq!(parse(br#"{"a":1,"a":2}"#).unwrap().value, json!({"a": 2}));
}

#[test]
fn numbers_keep_their_kind() {
    let numbers = parse(b"[1, -9223372036854775808, 9223372036854775808, 1.0, 1e3]").unwrap().value;
    assert!(numbers[0].is_i64() && numbers[1].is_i64());
    assert!(numbers[2].is_f64() && numbers[3].is_f64() && numbers[4].is_f64());
}

#[test]
fn strings_are_read_as_in_go() {
    for (text, expected) in [
        (&br#""\ud83d\ude00 \ud83d \ud83d\u0041\/\b""#[..], "\u{1F600} \u{FFFD} \u{FFFD}A/\u{8}"),
        (b"\"a\xff\xfeb\"", "a\u{FFFD}\u{FFFD}b"),
        ("\"é\\n€\"".as_bytes(), "é\n€"),
    ] {
        assert_eq!(parse(text).unwrap().value, json!(expected));
    }
}

/// Arbitrary JSON values, numbers of any kind, keys with characters that need escapes.
pub(in crate::codec) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        "\\PC*|[\\\\\"\n\u{0}-\u{1f}é😀]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z\\\\\"\n./é]{0,8}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Equality that does not tell 1 from 1.0, since Go writes both alike.
pub(in crate::codec) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((ka, a), (kb, b))| ka == kb && same(a, b))
        }
        _ => a == b,
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn bytes_that_look_like_json_never_panic(text in "[{}\\[\\]:,\"\\\\u0-9eE.+tfn -]{0,60}") {
        let ours = parse(text.as_bytes());
        let theirs = serde_json::from_str::<Value>(&text);
        // Where the two differ on purpose: lone surrogates and numbers beyond their types.
        if !text.contains("\\u") && !text.contains(['e', 'E']) {
            prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{}", text);
        }
    }

    #[test]
    fn agrees_with_serde_json(value in any_value()) {
        for text in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
            prop_assert_eq!(&parse(text.as_bytes()).unwrap().value, &value);
        }
    }

    #[test]
    fn what_is_written_reads_back(value in any_value()) {
        let bytes = crate::codec::write::to_vec(&value);
        prop_assert!(same(&parse(&bytes).unwrap().value, &value));
        prop_assert!(serde_json::from_slice::<Value>(&bytes).is_ok());
        let mut indented = Vec::new();
        crate::codec::write::indent(&bytes, 0, &mut indented);
        prop_assert_eq!(parse(&indented).unwrap().value, parse(&bytes).unwrap().value);
    }
}
