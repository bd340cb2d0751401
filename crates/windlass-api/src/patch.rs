//! The three patch formats that change a whole document: JSON Patch, merge patch and strategic merge.
//!
//! Each module takes the current object and the decoded patch and edits the object in place. After a
//! failure the object is in an undefined state: callers patch a copy. Nothing here looks at what the
//! result means; the registry decodes, defaults and validates it afterwards, and drops the nulls a
//! patch may leave behind.
//!
//! Failures are [`Status`]es with the code and text kube-apiserver answers
//! (`apiserver/pkg/endpoints/handlers/patch.go`), where a message quotes values the way Go prints them.

use std::fmt::Write as _;

use http::StatusCode;
use serde_json::Value;
use windlass_cel::go::float;
pub use windlass_cel::go::type_of as go_type;

use crate::status::{Details, Status};

pub mod json;
pub mod merge;
pub mod strategic;

/// 422 with the generic text upstream answers when a well-formed patch does not fit the object. The
/// real cause is not shown to clients.
fn does_not_apply() -> Status {
    let message = "the server rejected our request due to an error in our request";
    let mut status = Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
    status.details = Some(Box::<Details>::default());
    status
}

/// A value as Go's `%v` prints it: `map[a:1 b:[x y]]`.
pub fn go_print(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => {
            let _ = write!(out, "{b}");
        }
        Value::Number(n) => match n.as_f64() {
            Some(f) if n.is_f64() => out.push_str(&float::verbose(f)),
            _ => {
                let _ = write!(out, "{n}");
            }
        },
        Value::String(s) => out.push_str(s),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                go_print(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                go_print(item, out);
            }
            out.push(']');
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::schema::builtin;

    #[test]
    fn values_print_as_go_prints_them() {
        let mut out = String::new();
        go_print(&json!({"b": [1, "x", null], "a": {"f": 1.5, "t": true}}), &mut out);
        assert_eq!(out, "map[a:map[f:1.5 t:true] b:[1 x <nil>]]");
    }

    pub(super) fn any_json() -> impl Strategy<Value = Value> {
        let key = prop_oneof![
            Just("metadata"),
            Just("spec"),
            Just("containers"),
            Just("name"),
            Just("finalizers"),
            Just("template"),
            Just("$patch"),
            Just("$retainKeys"),
            Just("$setElementOrder/containers"),
            Just("$deleteFromPrimitiveList/finalizers"),
            Just("volumes"),
            Just("a"),
        ];
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0i64..4).prop_map(Value::from),
            Just(json!(1.5)),
            prop_oneof![Just("replace"), Just("delete"), Just("merge"), Just("a"), Just("b")].prop_map(Value::from),
        ];
        scalar.prop_recursive(5, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_patch_panics_and_merge_patch_settles(document in any_json(), patch in any_json()) {
            let schema = builtin::definition(builtin::by_kind("", "v1", "Pod").unwrap());
            let mut copy = document.clone();
            let _ = strategic::apply(schema, &mut copy, patch.clone());
            let mut copy = document.clone();
            if merge::apply(&mut copy, patch.clone()).is_ok() {
                // An array that replaces an object keeps its nulls, one that replaces an array does not: so does
                // upstream's library.
                merge::apply(&mut copy, patch.clone()).unwrap();
                let twice = copy.clone();
                merge::apply(&mut copy, patch).unwrap();
                prop_assert_eq!(twice, copy);
            }
        }

        #[test]
        fn no_json_patch_panics(
            document in any_json(),
            operations in prop::collection::vec(
                (
                    prop_oneof![
                        Just("add"), Just("remove"), Just("replace"), Just("move"), Just("copy"), Just("test"), Just("x")
                    ],
                    "(/(a|spec|name|0|1|-|-1|~0|~1|containers)){0,3}|x",
                    "(/(a|spec|name|0|1|-|-1)){0,2}",
                    any_json(),
                ),
                0..6,
            ),
        ) {
            let operations: Vec<Value> = operations
                .into_iter()
                .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
                .collect();
            let mut copy = document;
            let operations = Value::from(operations);
            let patch = json::JsonPatch::decode(&operations, false).unwrap();
            let _ = patch.apply(&mut copy);
        }
    }
}
