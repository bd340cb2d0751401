//! JSON merge patch (RFC 7386), as `evanphx/json-patch` v4 applies it.
//!
//! Nulls delete. A value that replaces nothing loses its nulls, also inside lists, but a list that
//! replaces an object keeps them.

use serde_json::{Map, Value};

use crate::codec::json::go_type_of;
use crate::status::Status;

/// Merges `patch` into `document`.
pub fn apply(document: &mut Value, patch: Value) -> Result<(), Status> {
    match patch {
        Value::Object(patch) => {
            if !document.is_object() {
                *document = Value::Object(Map::new());
            }
            if let Value::Object(map) = document {
                merge(map, patch);
            }
            Ok(())
        }
        Value::Null => Err(Status::bad_request("Invalid JSON Patch")),
        other => Err(Status::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_type_of(&other)
        ))),
    }
}

fn merge(document: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, mut value) in patch {
        match (document.get_mut(&key), &mut value) {
            (_, Value::Null) => {
                document.remove(&key);
            }
            (Some(Value::Object(current)), Value::Object(patch)) => merge(current, std::mem::take(patch)),
            (Some(current @ Value::Object(_)), _) => *current = value,
            (_, added) => {
                drop_nulls(added);
                document.insert(key, value);
            }
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|_, value| {
            drop_nulls(value);
            !value.is_null()
        }),
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(document: Value, patch: Value, expected: &Value) {
        let mut document = document;
        apply(&mut document, patch).unwrap();
        assert_eq!(document, *expected);
    }

    #[test]
    fn objects_merge_and_nulls_delete() {
        check(
            json!({"data": {"k": "v", "x": "1"}, "l": [1]}),
            json!({"data": {"k": "v2", "x": null, "n": {"a": null, "b": 1}}, "l": [2, null], "gone": null}),
            &json!({"data": {"k": "v2", "n": {"b": 1}}, "l": [2, null]}),
        );
        check(json!({"a": [1]}), json!({"a": {"b": null}}), &json!({"a": {}}));
        check(json!({"a": null}), json!({"a": [{"b": null}]}), &json!({"a": [{}]}));
        // Replacing an object by a list keeps the list's nulls.
        check(json!({"a": {}}), json!({"a": [{"b": null}]}), &json!({"a": [{"b": null}]}));
    }

    #[test]
    fn only_objects_are_merge_patches() {
        let refused = |patch| apply(&mut json!({}), patch).unwrap_err();
        assert_eq!(
            refused(json!([1])).message,
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
        assert_eq!(refused(json!(null)).message, "Invalid JSON Patch");
        assert_eq!(refused(json!(1)).code, 400);
    }
}
