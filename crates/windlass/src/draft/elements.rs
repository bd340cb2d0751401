//! Elements of lists as the server has them, with the fields that this program does not know.
//!
//! A merge patch replaces lists as a whole: what is not sent of an element is gone. What a program read is
//! only what its type knows, so elements that stay are filled up from the object as the server has it.
//! Which element is which is told by the fields that Kubernetes' own kinds tell them apart by; in lists without
//! such a field, by being equal. What a type makes of a list need not have the order of what it was made of,
//! as with sets and maps: elements that cannot be found there for sure are not filled up.

use std::collections::{HashMap, HashSet, VecDeque};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::merge_diff;

/// What tells elements of a list apart; the first that does counts.
const KEYS: [&str; 11] =
    ["name", "type", "key", "uid", "id", "mountPath", "devicePath", "containerPort", "port", "ip", "topologyKey"];

/// Whether a patch of this would take fields that are not known from elements that stay. Metadata is known as a
/// whole, and a condition belongs to its last writer.
pub(super) fn loses(before: &Value, patch: &Value) -> bool {
    fn list_loses(field: &str, before: &Value, patch: &Value) -> bool {
        match (before, patch) {
            (_, Value::Object(fields)) => {
                fields.iter().any(|(field, patch)| list_loses(field, &before[field.as_str()], patch))
            }
            (Value::Array(known), Value::Array(elements)) => {
                elements.iter().zip(counterparts(known, elements)).any(|(element, counterpart)| {
                    let theirs = |known: &Value| field != "conditions" || known == element;
                    element.is_object() && counterpart.is_some_and(|known| theirs(known.1))
                })
            }
            _ => false,
        }
    }
    let Some(fields) = patch.as_object() else { return false };
    let mut fields = fields.iter().filter(|(field, _)| *field != "metadata");
    fields.any(|(field, patch)| list_loses(field, &before[field.as_str()], patch))
}

/// Fills up the elements of the lists in a merge patch. `known` is the object of which `raw` is all that the
/// server has.
pub(super) fn complete(patch: &mut Value, known: &Value, raw: &Value) {
    match (patch, known, raw) {
        (Value::Object(fields), ..) => {
            for (field, patch) in fields {
                complete(patch, &known[field.as_str()], &raw[field.as_str()]);
            }
        }
        (Value::Array(elements), Value::Array(known), Value::Array(raw)) if known.len() == raw.len() => {
            let (found, sources) = (counterparts(known, elements), sources(known, raw));
            for (element, counterpart) in elements.iter_mut().zip(found) {
                let Some((index, known)) = counterpart.filter(|_| element.is_object()) else { continue };
                let Some(raw) = sources[index].map(|source| &raw[source]) else { continue };
                let mut whole = raw.clone();
                if let Some(mut diff) = merge_diff(known, element) {
                    complete(&mut diff, known, raw);
                    json_patch::merge(&mut whole, &diff);
                }
                *element = whole;
            }
        }
        _ => {}
    }
}

/// For each element of a list, what it was in another, and where.
fn counterparts<'a>(known: &'a [Value], elements: &[Value]) -> Vec<Option<(usize, &'a Value)>> {
    if let Some(key) = key(known, elements) {
        let places = by(known, |known| known[key].to_string());
        let find = |element: &Value| places.get(&element[key].to_string())?.front().map(|at| (*at, &known[*at]));
        return elements.iter().map(find).collect();
    }
    let mut left = by(known, Value::to_string);
    let mut take = |element: &Value| {
        let at = left.get_mut(&element.to_string())?.pop_front()?;
        Some((at, &known[at]))
    };
    elements.iter().map(&mut take).collect()
}

/// Where what is told of elements is found in a list.
pub(crate) fn by(list: &[Value], told: impl Fn(&Value) -> String) -> HashMap<String, VecDeque<usize>> {
    let mut places: HashMap<_, VecDeque<_>> = HashMap::new();
    for (index, element) in list.iter().enumerate() {
        places.entry(told(element)).or_default().push_back(index);
    }
    places
}

/// Among how many elements one is looked for that is like another, but for what a type fills in.
const MOST_LIKE: usize = 1000;

/// For each element that a type knows of a list, which one of the list it was made of. Without a key it is the
/// one at the same place, if nothing speaks against it.
pub(crate) fn sources(known: &[Value], raw: &[Value]) -> Vec<Option<usize>> {
    if let Some(key) = key(known, raw) {
        let places = by(raw, |raw| raw[key].to_string());
        return known.iter().map(|known| places.get(&known[key].to_string())?.front().copied()).collect();
    }
    let source = |(index, known): (usize, &Value)| {
        let here = raw.get(index)?;
        let made = is_made_of(known, here, false)
            || raw.len() <= MOST_LIKE
                && is_made_of(known, here, true)
                && !raw.iter().any(|raw| is_made_of(known, raw, false));
        made.then_some(index)
    };
    known.iter().enumerate().map(source).collect()
}

/// Whether a value is what a type knows of another. Types add empty fields; some also add fields with
/// something in them (`filled`), but not only such.
fn is_made_of(known: &Value, raw: &Value, filled: bool) -> bool {
    match (known, raw) {
        (Value::Object(known), Value::Object(raw)) => {
            let filled = filled && known.keys().any(|field| raw.contains_key(field));
            known.iter().all(|(field, known)| match raw.get(field) {
                Some(raw) => is_made_of(known, raw, filled),
                None => filled || is_empty(known),
            })
        }
        (Value::Array(known), Value::Array(raw)) => {
            known.len() == raw.len() && known.iter().zip(raw).all(|(known, raw)| is_made_of(known, raw, filled))
        }
        (Value::Number(known), Value::Number(raw)) => known == raw || known.as_f64() == raw.as_f64(),
        (Value::String(known), Value::String(raw)) => {
            let time = |text: &str| text.parse::<Timestamp>().ok();
            known == raw || time(known).is_some_and(|known| time(raw) == Some(known))
        }
        _ => known == raw,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

/// What tells the elements of each of two lists apart.
fn key(one: &[Value], other: &[Value]) -> Option<&'static str> {
    let tells_apart = |key: &str, list: &[Value]| {
        let mut seen = HashSet::new();
        list.iter().all(|element| match element.get(key) {
            Some(value @ (Value::String(_) | Value::Number(_))) => seen.insert(value.to_string()),
            _ => false,
        })
    };
    KEYS.into_iter().find(|key| tells_apart(key, one) && tells_apart(key, other))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_that_stay_keep_what_is_not_known_of_them() {
        for (what, known, raw, sent, whole) in [
            (
                "told apart by name, and in lists of theirs",
                json!([{"name": "a", "n": 1, "env": [{"name": "E", "value": "1"}]}, {"name": "b"}]),
                json!([
                    {"name": "a", "n": 1, "env": [{"name": "E", "value": "1", "x": 1}], "x": 2},
                    {"name": "b", "x": 3},
                ]),
                json!([{"name": "c"}, {"name": "b"}, {"name": "a", "env": [{"name": "E", "value": "2"}]}]),
                json!([
                    {"name": "c"},
                    {"name": "b", "x": 3},
                    {"name": "a", "env": [{"name": "E", "value": "2", "x": 1}], "x": 2},
                ]),
            ),
            (
                "told apart by what comes later, where names are not all different",
                json!([{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]),
                json!([{"name": "v", "mountPath": "/a", "x": 1}, {"name": "v", "mountPath": "/b", "x": 2}]),
                json!([{"name": "w", "mountPath": "/b"}]),
                json!([{"name": "w", "mountPath": "/b", "x": 2}]),
            ),
            (
                "equal",
                json!([{"n": 1}, {"n": 1}, {"n": 2}]),
                json!([{"n": 1, "x": 1}, {"n": 1, "x": 2}, {"n": 2, "x": 3}]),
                json!([{"n": 3}, {"n": 1}, {"n": 2}, {"n": 1}, {"n": 1}]),
                json!([{"n": 3}, {"n": 1, "x": 1}, {"n": 2, "x": 3}, {"n": 1, "x": 2}, {"n": 1}]),
            ),
            (
                "in another order, told apart by name",
                json!([{"name": "a", "n": 1}, {"name": "b", "n": 2}]),
                json!([{"name": "b", "n": 2, "x": 2}, {"name": "a", "n": 1, "x": 1}]),
                json!([{"name": "a", "n": 1}, {"name": "b", "n": 3}]),
                json!([{"name": "a", "n": 1, "x": 1}, {"name": "b", "n": 3, "x": 2}]),
            ),
            (
                "in another order, without a key",
                json!([{"n": 1, "list": []}, {"n": 2, "list": []}, {"n": 3, "list": []}]),
                json!([{"n": 2, "x": 2}, {"n": 1, "x": 1}, {"n": 3, "x": 3}]),
                json!([{"n": 1, "list": []}, {"n": 3, "list": []}, {"n": 2, "list": []}]),
                json!([{"n": 1, "list": []}, {"n": 3, "x": 3}, {"n": 2, "list": []}]),
            ),
            (
                "filled in by the type",
                json!([{"n": 1, "mode": "fast"}, {"n": 2, "mode": "fast"}]),
                json!([{"n": 1, "x": 1}, {"n": 2, "mode": "fast"}]),
                json!([{"n": 1, "mode": "fast"}]),
                json!([{"n": 1, "x": 1}]),
            ),
            (
                "written otherwise by the type",
                json!([{"n": 1.0, "at": "2026-01-01T00:00:00.000000Z"}, {"n": 2.0}]),
                json!([{"n": 1, "at": "2026-01-01T01:00:00+01:00", "x": 1}, {"n": 2, "x": 2}]),
                json!([{"n": 2.0}, {"n": 1.0, "at": "2026-01-01T00:00:00.000000Z"}]),
                json!([{"n": 2, "x": 2}, {"n": 1, "at": "2026-01-01T01:00:00+01:00", "x": 1}]),
            ),
            ("nothing to know of", json!(["a"]), json!(["a"]), json!(["b", "a"]), json!(["b", "a"])),
            ("elements that are left out", json!([{"name": "a"}]), json!([{"name": "a"}, 1]), json!([]), json!([])),
        ] {
            let in_spec = |list: &Value| json!({"spec": {"deep": {"list": list}}});
            let mut patch = in_spec(&sent);
            let stays = sent.as_array().is_some_and(|list| list.iter().any(Value::is_object));
            assert_eq!(loses(&in_spec(&known), &patch), stays, "{what}");
            complete(&mut patch, &in_spec(&known), &in_spec(&raw));
            assert_eq!(patch, in_spec(&whole), "{what}");
        }
    }

    #[test]
    fn elements_without_a_key_are_not_taken_for_others() {
        for (known, raw, expected) in [
            (json!([{"a": 1}, {"b": 1}]), json!([{"b": 1}, {"a": 1}]), [None, None]),
            (json!([{"a": {"n": 1, "m": "x"}}, {"b": 1}]), json!([{"b": 1}, {"a": {"n": 1}}]), [None, None]),
            (json!([{"k": 0, "a": 1}, {"k": 0, "b": 1}]), json!([{"k": 0, "b": 1}, {"k": 0, "a": 1}]), [None, None]),
            (json!([{"a": 1}, {"b": 1}]), json!([{"a": 1, "x": 1}, {"b": 2}]), [Some(0), None]),
            (json!(["a", "b"]), json!(["a", "c"]), [Some(0), None]),
            (json!([{"n": [1, 2]}, {}]), json!([{"n": [2, 1]}, {"x": 1}]), [None, Some(1)]),
        ] {
            let (known, raw) = (known.as_array().expect("a list"), raw.as_array().expect("a list"));
            assert_eq!(sources(known, raw), expected, "{known:?} of {raw:?}");
        }
    }

    #[test]
    fn nothing_is_lost_of_what_is_known_or_ours() {
        let before = json!({
            "metadata": {"ownerReferences": [{"uid": "u"}]},
            "status": {"conditions": [
                {"type": "A", "status": "True"}, {"type": "B", "status": "True"},
            ]},
            "spec": {"list": [{"name": "a"}]},
        });
        for (patch, lost) in [
            (json!({"metadata": {"ownerReferences": [{"uid": "u"}, {"uid": "v"}]}}), false),
            (json!({"status": {"conditions": [{"type": "A", "status": "False"}]}}), false),
            (
                json!({"status": {"conditions": [{"type": "A", "status": "False"}, {"type": "B", "status": "True"}]}}),
                true,
            ),
            (json!({"spec": {"list": [{"name": "b"}]}}), false),
            (json!({"spec": {"list": null, "more": [{"name": "a"}]}}), false),
            (json!({"spec": {"list": [{"name": "a"}, {"name": "b"}]}}), true),
        ] {
            assert_eq!(loses(&before, &patch), lost, "{patch}");
        }
    }
}
