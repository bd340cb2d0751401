//! Looking into JSON bytes finds what parsing them finds.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::codec::json::tests::any_value;

#[test]
fn metadata_fields_are_found() {
    let object = serde_json::to_vec_pretty(&json!({
        "kind": "Pod",
        "metadata": {
            "name": "a\"b", "namespace": "ns", "uid": "u", "resourceVersion": "17",
            "deletionTimestamp": "2020-01-01T00:00:00Z", "labels": {"app": "x", "t/r": "\u{e9}\n"},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}], "x": null},
    }))
    .unwrap();
    assert_eq!(name(&object).as_deref(), Some("a\"b"));
    assert_eq!(uid(&object).as_deref(), Some("u"));
    assert_eq!(deletion_timestamp(&object).as_deref(), Some("2020-01-01T00:00:00Z"));
    let label = |key| Raw::new(&object).path(&["metadata", "labels", key]).and_then(|label| label.as_str());
    assert_eq!(label("t/r").as_deref(), Some("é\n"));
    assert_eq!(label("ap"), None);
    assert_eq!(Raw::new(&object).path(&["spec", "nodeName"]).unwrap().bytes(), b"\"n1\"");
    assert!(Raw::new(&object).path(&["spec", "x"]).unwrap().is_null());
    let containers = Raw::new(&object).path(&["spec", "containers"]).unwrap();
    assert_eq!(containers.items().next().unwrap().field("name").unwrap().bytes(), b"\"c\"");
}

#[test]
fn keys_compare_by_what_they_stand_for() {
    let object = br#"{"a\u0062":1,"x\\n":2,"x\n":3}"#;
    assert_eq!(Raw::new(object).field("ab").unwrap().bytes(), b"1");
    assert_eq!(Raw::new(object).field("x\\n").unwrap().bytes(), b"2");
    assert_eq!(Raw::new(object).field("x\n").unwrap().bytes(), b"3");
}

#[test]
fn the_slot_of_a_written_object_is_its_resource_version() {
    let mut out = Vec::new();
    let value = json!({"kind": "A", "metadata": {"name": "n", "resourceVersion": "9"}});
    let slot = crate::codec::write::write_object(&value, &mut out).unwrap();
    let version = Raw::new(&out).path(&["metadata", "resourceVersion"]).unwrap();
    assert_eq!(version.range(), slot - 1..slot + 1);
}

fn check(raw: Raw<'_>, value: &Value) -> Result<(), TestCaseError> {
    prop_assert!(raw.to_value().as_ref() == Some(value));
    prop_assert!(raw.as_str().as_deref() == value.as_str());
    prop_assert_eq!(raw.items().count(), value.as_array().map_or(0, Vec::len));
    for (raw, item) in raw.items().zip(value.as_array().into_iter().flatten()) {
        check(raw, item)?;
    }
    for (key, item) in value.as_object().into_iter().flatten() {
        let found = raw.field(key);
        prop_assert!(found.is_some(), "{:?} is not found", key);
        check(found.unwrap(), item)?;
    }
    prop_assert_eq!(raw.field("no such key"), None);
    Ok(())
}

proptest! {
    #[test]
    fn finds_what_a_full_parse_finds(value in any_value(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        check(Raw::new(text.unwrap().as_bytes()), &value)?;
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), text in "[{}\\[\\]:,\"\\\\a1 ]{0,40}") {
        for bytes in [&bytes, text.as_bytes()] {
            let _ = (name(bytes), uid(bytes));
            let raw = Raw::new(bytes);
            let _ = (raw.path(&["a", "a"]), raw.items().count(), raw.to_value());
        }
    }
}
