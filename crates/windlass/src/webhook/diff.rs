//! From an object that was changed as a typed value to a patch of the object that was sent.
//!
//! A typed value knows only the fields of its type: comparing what was sent with what the type
//! makes of it would remove fields of a newer version and add nulls and empty lists. So the type's
//! view is taken twice, before and after the change, and only what differs between the two is
//! carried over to what was sent.

use std::collections::HashSet;

use json_patch::Patch;
use serde_json::{Map, Value};

use crate::draft::elements::{by, sources};

/// The patch that makes of `sent` what changed from `before` to `after`, which are both what the
/// type makes of it.
pub(super) fn patch(sent: &Value, before: &Value, after: &Value) -> Patch {
    json_patch::diff(sent, &carry(sent, before, after))
}

fn carry(sent: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return sent.clone();
    }
    match (sent, before, after) {
        (Value::Object(sent), Value::Object(before), Value::Object(after)) => {
            Value::Object(carry_object(sent, before, after))
        }
        (Value::Array(sent), Value::Array(before), Value::Array(after)) if sent.len() == before.len() => {
            Value::Array(carry_array(sent, before, after))
        }
        _ => after.clone(),
    }
}

fn carry_object(
    sent: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut carried = sent.clone();
    for (key, value) in before {
        // A null stands for a field that is not set.
        if !value.is_null() && after.get(key).is_none_or(Value::is_null) {
            carried.remove(key);
        }
    }
    for (key, value) in after {
        let was = before.get(key).unwrap_or(&Value::Null);
        if value.is_null() || value == was {
            continue;
        }
        let value = sent.get(key).map_or_else(|| value.clone(), |sent| carry(sent, was, value));
        carried.insert(key.clone(), value);
    }
    carried
}

/// Fields that tell the elements of a list apart, where all have one and no two the same. One that is empty
/// is none: it is there to be filled in.
const KEYS: [&str; 4] = ["name", "key", "id", "type"];

/// The elements of a list after a change, each as it was sent where it is known which element that was.
///
/// An element that is equal to one before the change is that one, wherever it is now. Otherwise it is the one with the same
/// name, and has changed. Without names, or if none has this name, it is the one that was at the same place, provided the list
/// is as long as before. Any other element is new, and is written as it is.
fn carry_array(sent: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let mut origin: Vec<Option<usize>> = vec![None; after.len()];
    let mut taken = vec![false; before.len()];
    let mut places = by(before, Value::to_string);
    for (index, value) in after.iter().enumerate() {
        // The element at the same place is the likeliest.
        let same = (before.get(index) == Some(value) && !taken[index]).then_some(index);
        let found = same.or_else(|| {
            let places = places.get_mut(&value.to_string())?;
            std::iter::from_fn(|| places.pop_front()).find(|from| !taken[*from])
        });
        if let Some(from) = found {
            taken[from] = true;
            origin[index] = Some(from);
        }
    }
    let (key, sources) = (key(before, after), sources(before, sent));
    let keyed = |list| key.map(|key| by(list, |value| value[key].to_string())).unwrap_or_default();
    let (names_before, names_after) = (keyed(before), keyed(after));
    let name = |value: &Value| key.map(|key| value[key].to_string());
    let is_gone = |index: usize| name(&before[index]).is_none_or(|name| !names_after.contains_key(&name));
    let changed = |index: usize, value: &Value| {
        let named = name(value).and_then(|name| names_before.get(&name)?.front().copied()).filter(|from| !taken[*from]);
        let at_its_place = || (before.len() == after.len() && !taken[index] && is_gone(index)).then_some(index);
        named.or_else(at_its_place)
    };
    let carried = after.iter().enumerate().map(|(index, value)| {
        let from = origin[index].or_else(|| changed(index, value));
        let sent = from.and_then(|from| Some((from, &sent[sources[from]?])));
        sent.map_or_else(|| value.clone(), |(from, sent)| carry(sent, &before[from], value))
    });
    carried.collect()
}

/// The field that tells the elements of both lists apart, if there is one.
fn key(before: &[Value], after: &[Value]) -> Option<&'static str> {
    let tells_apart = |key: &str, list: &[Value]| {
        let mut seen = HashSet::new();
        let text = |element: &Value| element.get(key).and_then(Value::as_str).map(str::to_owned);
        list.iter().all(|element| text(element).is_some_and(|text| !text.is_empty() && seen.insert(text)))
    };
    KEYS.into_iter().find(|key| tells_apart(key, before) && tells_apart(key, after))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(sent: &Value, before: &Value, after: &Value, expected: &Value) {
        let mut patched = sent.clone();
        json_patch::patch(&mut patched, &patch(sent, before, after)).expect("the patch applies");
        assert_eq!(&patched, expected);
    }

    #[test]
    fn only_changes_are_carried_over() {
        // What the type does not know stays, what it adds by itself does not arrive.
        check(
            &json!({"spec": {"name": "a", "new": 1}}),
            &json!({"spec": {"name": "a", "tricks": []}, "status": null}),
            &json!({"spec": {"name": "b", "tricks": []}, "status": null}),
            &json!({"spec": {"name": "b", "new": 1}}),
        );
        // A parent that was not sent.
        check(
            &json!({"spec": {}}),
            &json!({"spec": {"tricks": []}}),
            &json!({"spec": {"tricks": ["sit"]}}),
            &json!({"spec": {"tricks": ["sit"]}}),
        );
        // Removed, by absence and by null.
        check(&json!({"a": 1, "b": 2, "c": 3}), &json!({"a": 1, "b": 2}), &json!({"a": null}), &json!({"c": 3}));
        // Elements keep what the type does not know, although others come, go and change.
        check(
            &json!([{"n": 1, "x": 1}, {"n": 2, "x": 2}, {"n": 3, "x": 3}]),
            &json!([{"n": 1}, {"n": 2}, {"n": 3}]),
            &json!([{"n": 0}, {"n": 1}, {"n": 3, "m": 1}]),
            &json!([{"n": 0}, {"n": 1, "x": 1}, {"n": 3, "m": 1, "x": 3}]),
        );
        check(&json!({"a": {"b": 1}}), &json!({"a": {"b": 1}}), &json!({"a": "text"}), &json!({"a": "text"}));
    }

    #[test]
    fn a_value_that_the_type_writes_otherwise_is_the_same() {
        check(
            &json!([{"weight": 1, "x": 1}, {"weight": 2, "x": 2}]),
            &json!([{"weight": 1.0}, {"weight": 2.0}]),
            &json!([{"weight": 1.0}, {"weight": 5.0}]),
            &json!([{"weight": 1, "x": 1}, {"weight": 5.0, "x": 2}]),
        );
    }

    #[test]
    fn what_the_type_does_not_know_stays_with_its_element() {
        // By name, wherever it goes; one of another name is another one, unless it took the place.
        for key in KEYS {
            check(
                &json!([{key: "a", "x": 1}, {key: "b", "x": 2}]),
                &json!([{key: "a"}, {key: "b"}]),
                &json!([{key: "c"}, {key: "b", "m": 1}, {key: "a", "m": 1}]),
                &json!([{key: "c"}, {key: "b", "m": 1, "x": 2}, {key: "a", "m": 1, "x": 1}]),
            );
            check(
                &json!([{key: "a", "x": 1}]),
                &json!([{key: "a"}]),
                &json!([{key: "b"}, {key: "c"}]),
                &json!([{key: "b"}, {key: "c"}]),
            );
            check(
                &json!([{key: "A", "x": 1}, {key: "b", "x": 2}, {key: "c", "x": 3}]),
                &json!([{key: "A"}, {key: "b"}, {key: "c"}]),
                &json!([{key: "a"}, {key: "d"}, {key: "b", "m": 1}]),
                &json!([{key: "a", "x": 1}, {key: "d"}, {key: "b", "m": 1, "x": 2}]),
            );
            // Filled in.
            check(
                &json!([{"port": 80, "x": 1}, {key: "b", "port": 81, "x": 2}]),
                &json!([{key: "", "port": 80}, {key: "b", "port": 81}]),
                &json!([{key: "http", "port": 80}, {key: "b", "port": 81}]),
                &json!([{key: "http", "port": 80, "x": 1}, {key: "b", "port": 81, "x": 2}]),
            );
        }
        // Without names nothing is taken over when there are more or fewer.
        check(
            &json!([{"n": 1, "x": 1}]),
            &json!([{"n": 1}]),
            &json!([{"n": 0}, {"n": 1, "m": 1}]),
            &json!([{"n": 0}, {"n": 1, "m": 1}]),
        );
        // Names that are not unique are none.
        check(
            &json!([{"name": "a", "x": 1}, {"name": "a", "x": 2}]),
            &json!([{"name": "a"}, {"name": "a"}]),
            &json!([{"name": "a"}, {"name": "a", "m": 1}]),
            &json!([{"name": "a", "x": 1}, {"name": "a", "m": 1, "x": 2}]),
        );
    }

    #[test]
    fn an_element_is_found_where_the_type_sorts_them() {
        check(
            &json!([{"name": "b", "n": 2, "x": 2}, {"name": "a", "n": 1, "x": 1}]),
            &json!([{"name": "a", "n": 1}, {"name": "b", "n": 2}]),
            &json!([{"name": "a", "n": 1}, {"name": "b", "n": 3}]),
            &json!([{"name": "a", "n": 1, "x": 1}, {"name": "b", "n": 3, "x": 2}]),
        );
        check(&json!(["b", "a"]), &json!(["a", "b"]), &json!(["a"]), &json!(["a"]));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..3u8).prop_map(Value::from),
            "[ab~/]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[abc/]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_complete_type_gets_exactly_what_it_asked_for(before in value(), after in value()) {
            check(&before, &before, &after, &after);
        }

        #[test]
        fn a_patch_always_applies(sent in value(), before in value(), after in value()) {
            let mut patched = sent.clone();
            json_patch::patch(&mut patched, &patch(&sent, &before, &after)).expect("the patch applies");
            if before == after {
                assert_eq!(patched, sent);
            }
        }
    }
}
