//! Field sets: which paths of an object a manager owns.
//!
//! A set is kept in the very shape it has on the wire, the `fieldsV1` trie: every key is one path
//! element, `{}` is an owned leaf, and `.` marks an owned node that has more below it:
//!
//! ```json
//! {"f:data": {".": {}, "f:a": {}}, "f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}}}}}
//! ```
//!
//! Path elements are `f:<field>`, `k:<keys of a list item as JSON>`, `v:<item of a set as JSON>` and
//! `i:<index>`. Their JSON is canonical (keys sorted, no spaces, Go's escapes), so two elements are the
//! same exactly if their texts are. That makes decoding and encoding free, which matters because
//! ownership is updated on every write.
//!
//! Always true: a node without `.` is either owned and empty, or has something below it that is owned.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::codec::go_json::{write_string, write_value};
use crate::field::quote;

/// One level of the trie.
pub(super) type Trie = Map<String, Value>;

/// The key that marks a node with children as owned itself.
pub(super) const SELF: &str = ".";

/// The trie below a node. Anything but an object is an owned leaf.
pub(super) fn below(node: &Value) -> Option<&Trie> {
    node.as_object().filter(|trie| !trie.is_empty())
}

/// Whether the node itself is owned.
pub(super) fn is_member(node: &Value) -> bool {
    below(node).is_none_or(|trie| trie.contains_key(SELF))
}

/// An owned leaf.
pub(super) fn leaf() -> Value {
    Value::Object(Map::new())
}

/// A node from its parts; `None` if it owns nothing.
pub(super) fn node(member: bool, mut children: Trie) -> Option<Value> {
    if !member && children.is_empty() {
        return None;
    }
    if member && !children.is_empty() {
        children.insert(SELF.to_owned(), leaf());
    }
    Some(Value::Object(children))
}

/// Restores the invariant of a node that lost entries. Whether anything is left of it.
pub(super) fn settle(trie: &mut Trie) -> bool {
    if trie.len() == 1 && trie.contains_key(SELF) {
        trie.clear();
        return true;
    }
    !trie.is_empty()
}

/// Adds everything in `other`.
pub(super) fn union(set: &mut Trie, other: &Trie) {
    for (element, theirs) in other {
        if element == SELF {
            continue;
        }
        match set.get_mut(element) {
            Some(ours) => union_node(ours, theirs),
            None => {
                set.insert(element.clone(), theirs.clone());
            }
        }
    }
}

fn union_node(ours: &mut Value, theirs: &Value) {
    let Some(their_children) = below(theirs) else {
        if !is_member(ours)
            && let Value::Object(trie) = ours
        {
            trie.insert(SELF.to_owned(), leaf());
        }
        return;
    };
    if below(ours).is_none() {
        let mut trie = their_children.clone();
        trie.insert(SELF.to_owned(), leaf());
        *ours = Value::Object(trie);
    } else if let Value::Object(trie) = ours {
        if their_children.contains_key(SELF) {
            trie.insert(SELF.to_owned(), leaf());
        }
        union(trie, their_children);
    }
}

/// Takes out every path that is owned in `other`.
pub(super) fn difference(set: &mut Trie, other: &Trie) {
    for (element, theirs) in other {
        if element == SELF {
            continue;
        }
        let Some(ours) = set.get_mut(element) else { continue };
        let keep = match ours {
            Value::Object(trie) if !trie.is_empty() => {
                if is_member(theirs) {
                    trie.remove(SELF);
                }
                if let Some(theirs) = below(theirs) {
                    difference(trie, theirs);
                }
                settle(trie)
            }
            _ => !is_member(theirs),
        };
        if !keep {
            set.remove(element);
        }
    }
}

/// The paths owned in both.
pub(super) fn intersection(set: &Trie, other: &Trie) -> Trie {
    let mut out = Map::new();
    for (element, ours) in set {
        let Some(theirs) = other.get(element).filter(|_| element != SELF) else { continue };
        let children = match (below(ours), below(theirs)) {
            (Some(ours), Some(theirs)) => intersection(ours, theirs),
            _ => Map::new(),
        };
        if let Some(node) = node(is_member(ours) && is_member(theirs), children) {
            out.insert(element.clone(), node);
        }
    }
    out
}

/// Takes out the path of field names `path` and everything below it.
pub(super) fn remove_below(set: &mut Trie, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    let element = field(first);
    if rest.is_empty() {
        set.remove(&element);
        return;
    }
    if let Some(Value::Object(trie)) = set.get_mut(&element)
        && !trie.is_empty()
    {
        remove_below(trie, rest);
        if !settle(trie) {
            set.remove(&element);
        }
    }
}

/// Keeps what lies on or below a path of `patterns`, where `*` matches any element.
pub(super) fn keep_matching(set: &mut Trie, patterns: &[&[&str]]) {
    set.retain(|element, node| {
        if element == SELF {
            return true;
        }
        let deeper: Vec<&[&str]> = patterns.iter().filter_map(|pattern| step(pattern, element)).collect();
        if deeper.iter().any(|pattern| pattern.is_empty()) {
            return true;
        }
        if deeper.is_empty() {
            return false;
        }
        match node {
            Value::Object(trie) if !trie.is_empty() => {
                keep_matching(trie, &deeper);
                settle(trie)
            }
            _ => true,
        }
    });
}

fn step<'p>(pattern: &'p [&'p str], element: &str) -> Option<&'p [&'p str]> {
    let (first, rest) = pattern.split_first()?;
    (*first == "*" || element.strip_prefix("f:") == Some(first)).then_some(rest)
}

/// Whether the path is owned.
pub(super) fn contains(set: &Trie, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    match set.get(first) {
        Some(node) if rest.is_empty() => is_member(node),
        Some(node) => below(node).is_some_and(|trie| contains(trie, rest)),
        None => false,
    }
}

/// `f:<name>`.
pub(super) fn field(name: &str) -> String {
    let mut element = String::with_capacity(name.len() + 2);
    element.push_str("f:");
    element.push_str(name);
    element
}

/// A path as errors print it: `.spec.ports[port=80,protocol="TCP"].targetPort`.
pub(super) fn print_path(path: &[String]) -> String {
    path.iter().map(|element| print_element(element)).collect()
}

/// One path element as errors print it.
pub(super) fn print_element(element: &str) -> String {
    let Some((kind, text)) = element.split_once(':') else { return element.to_owned() };
    match kind {
        "f" => format!(".{text}"),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={}", print_value(value))).collect();
            format!("[{}]", keys.join(","))
        }
        "v" => {
            let value: Value = serde_json::from_str(text).unwrap_or_default();
            format!("[={}]", print_value(&value))
        }
        _ => format!("[{text}]"),
    }
}

fn print_value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(n) if n.is_f64() => windlass_cel::go::float::verbose(n.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

/// Reads a `fieldsV1` that a client wrote: checks it and brings it into canonical form. Path
/// elements of unknown kinds are skipped, as upstream does.
pub(super) fn decode(fields: &Value) -> Result<Trie, String> {
    let mut out = Map::new();
    let fields = match fields {
        Value::Null => return Ok(out),
        Value::Object(fields) => fields,
        other => return Err(format!("expect {{ or n, but found {other}")),
    };
    for (element, node) in fields {
        if element == SELF {
            continue;
        }
        let Some(element) = canonical_element(element)? else { continue };
        let member = node.is_null() || is_member(node);
        let Some(node) = self::node(member, decode(node)?) else { continue };
        match out.get_mut(&element) {
            Some(existing) => union_node(existing, &node),
            None => {
                out.insert(element, node);
            }
        }
    }
    Ok(out)
}

fn canonical_element(element: &str) -> Result<Option<String>, String> {
    if element.len() < 2 {
        return Err("key must be 2 characters long:".to_owned());
    }
    let Some((kind, text)) = element.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
        return Err(format!("missing colon: {element}"));
    };
    let mut out = String::with_capacity(element.len());
    match kind {
        "f" => out.push_str(element),
        "v" => {
            let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
            out.push_str("v:");
            write_value(&value, &mut out);
        }
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(text).map_err(|e| e.to_string())?;
            write_keys(keys.iter().map(|(name, value)| (name.as_str(), value)), &mut out);
        }
        "i" => {
            let index: i64 = text.parse().map_err(|_| format!("invalid index {}", quote(text)))?;
            let _ = write!(out, "i:{index}");
        }
        _ => return Ok(None),
    }
    Ok(Some(out))
}

/// Writes `k:{...}` from keys that come in name order.
pub(super) fn write_keys<'v>(keys: impl Iterator<Item = (&'v str, &'v Value)>, out: &mut String) {
    out.push_str("k:{");
    for (i, (name, value)) in keys.enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_string(name, out);
        out.push(':');
        write_value(value, out);
    }
    out.push('}');
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn trie(value: Value) -> Trie {
        match value {
            Value::Object(trie) => trie,
            _ => Map::new(),
        }
    }

    #[test]
    fn owned_parents_and_children_are_told_apart() {
        let mut set = trie(json!({"f:a": {}, "f:b": {"f:x": {}}, "f:c": {".": {}, "f:x": {}}}));
        union(&mut set, &trie(json!({"f:a": {"f:x": {}}, "f:b": {}, "f:d": {}})));
        assert_eq!(
            Value::from(set.clone()),
            json!({"f:a": {".": {}, "f:x": {}}, "f:b": {".": {}, "f:x": {}}, "f:c": {".": {}, "f:x": {}}, "f:d": {}})
        );
        difference(
            &mut set,
            &trie(json!({"f:a": {"f:x": {}}, "f:b": {}, "f:c": {".": {}, "f:x": {}}, "f:d": {"f:x": {}}})),
        );
        assert_eq!(Value::from(set), json!({"f:a": {}, "f:b": {"f:x": {}}, "f:d": {}}));
    }

    #[test]
    fn paths_are_removed_with_what_is_below() {
        let set =
            trie(json!({"f:metadata": {".": {}, "f:name": {}, "f:labels": {"f:a": {}}}, "f:status": {"f:phase": {}}}));
        let mut reset = set;
        remove_below(&mut reset, &["status"]);
        remove_below(&mut reset, &["metadata", "labels"]);
        assert_eq!(Value::from(reset), json!({"f:metadata": {".": {}, "f:name": {}}}));
    }

    #[test]
    fn patterns_keep_what_they_match() {
        let mut set = trie(
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:resources": {"f:x": {}}}},
                                            "f:nodeName": {}}, "f:status": {}}),
        );
        keep_matching(&mut set, &[&["spec", "containers", "*", "resources"]]);
        assert_eq!(
            Value::from(set),
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:resources": {"f:x": {}}}}}})
        );
    }

    #[test]
    fn foreign_sets_become_canonical() {
        let decoded = decode(&json!({
            ".": {}, "f:a": null, "f:b": {"z:unknown": {}}, "k:{ \"b\": 80.0, \"a\": \"x<y\" }": {"f:c": {}}, "v: 1 ": {}, "i:+3": {},
        }))
        .unwrap();
        assert_eq!(
            Value::from(decoded),
            json!({"f:a": {}, "k:{\"a\":\"x\\u003cy\",\"b\":80}": {"f:c": {}}, "v:1": {}, "i:3": {}})
        );
        for bad in
            [json!({"x": {}}), json!({"fa": {}}), json!({"k:[]": {}}), json!({"i:x": {}}), json!({"f:a": 1}), json!(1)]
        {
            decode(&bad).unwrap_err();
        }
    }

    #[test]
    fn paths_print_as_upstream_does() {
        let path = ["f:spec", r#"k:{"port":80,"protocol":"TCP"}"#, r#"v:"x""#, "i:3"].map(str::to_owned);
        assert_eq!(print_path(&path), r#".spec[port=80,protocol="TCP"][="x"][3]"#);
    }

    /// Arbitrary sets that hold the invariant.
    pub(crate) fn any_trie() -> impl Strategy<Value = Trie> {
        let element = prop_oneof![
            Just("f:a".to_owned()),
            Just("f:b".to_owned()),
            Just(r#"k:{"name":"x"}"#.to_owned()),
            Just(r#"v:"y""#.to_owned()),
            Just("i:0".to_owned()),
        ];
        Just(leaf())
            .prop_recursive(4, 24, 4, move |inner| {
                (any::<bool>(), prop::collection::btree_map(element.clone(), inner, 0..4)).prop_map(
                    |(member, children)| {
                        let children: Trie = children.into_iter().collect();
                        node(member || children.is_empty(), children).unwrap_or_else(leaf)
                    },
                )
            })
            .prop_map(|value| {
                let mut trie = trie(value);
                trie.remove(SELF);
                trie
            })
    }

    fn union_of(a: &Trie, b: &Trie) -> Trie {
        let mut out = a.clone();
        union(&mut out, b);
        out
    }

    fn difference_of(a: &Trie, b: &Trie) -> Trie {
        let mut out = a.clone();
        difference(&mut out, b);
        out
    }

    proptest! {
        #[test]
        fn the_algebra_holds(a in any_trie(), b in any_trie(), c in any_trie()) {
            prop_assert_eq!(union_of(&a, &a), a.clone());
            prop_assert_eq!(union_of(&a, &b), union_of(&b, &a));
            prop_assert_eq!(union_of(&union_of(&a, &b), &c), union_of(&a, &union_of(&b, &c)));
            prop_assert!(difference_of(&a, &a).is_empty());
            prop_assert_eq!(difference_of(&difference_of(&a, &b), &c), difference_of(&a, &union_of(&b, &c)));
            prop_assert_eq!(union_of(&difference_of(&a, &b), &intersection(&a, &b)), a.clone());
            prop_assert_eq!(intersection(&a, &b), intersection(&b, &a));
            prop_assert_eq!(difference_of(&a, &difference_of(&a, &b)), intersection(&a, &b));
        }

        #[test]
        fn encoding_round_trips(a in any_trie()) {
            let text = serde_json::to_string(&a).unwrap();
            prop_assert_eq!(decode(&serde_json::from_str(&text).unwrap()).unwrap(), a);
        }
    }
}
