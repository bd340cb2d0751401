//! What changed between two objects, as paths that managers can own.
//!
//! The result is one tree instead of upstream's three sets (added, modified, removed): a node says
//! whether its path was *taken* (added or modified, so the writer owns it now) and whether it was
//! *removed*. Field names are borrowed from the objects, and only changed paths have nodes.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::fields::{self, Trie};
use super::reset::Reset;
use super::shape::{Kind, Shape};

/// A changed path, or the way to one.
#[derive(Debug)]
pub(super) struct Change<'a> {
    element: Element<'a>,
    taken: bool,
    removed: bool,
    below: Vec<Change<'a>>,
}

#[derive(Debug)]
enum Element<'a> {
    Field(Cow<'a, str>),
    Item(String),
}

impl Change<'_> {
    /// The change without a borrow of the objects it came from.
    pub(super) fn into_owned(self) -> Change<'static> {
        let element = match self.element {
            Element::Field(name) => Element::Field(Cow::Owned(name.into_owned())),
            Element::Item(text) => Element::Item(text),
        };
        let below = self.below.into_iter().map(Change::into_owned).collect();
        Change { element, taken: self.taken, removed: self.removed, below }
    }
}

impl Element<'_> {
    /// The element's text, built in `scratch` if need be.
    fn text<'t>(&'t self, scratch: &'t mut String) -> &'t str {
        match self {
            Self::Field(name) => {
                scratch.clear();
                scratch.push_str("f:");
                scratch.push_str(name);
                scratch
            }
            Self::Item(text) => text,
        }
    }
}

/// Compares two values of the same shape.
pub(super) fn compare<'a>(shape: Shape<'_>, old: &'a Value, new: &'a Value) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    let mut marks = Marks::default();
    visit(shape, Some(old), Some(new), &mut marks, &mut changes);
    changes
}

/// What a visit found out about the path itself.
#[derive(Default)]
struct Marks {
    taken: bool,
    removed: bool,
}

fn visit_element<'a>(
    shape: Shape<'_>,
    element: Element<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    out: &mut Vec<Change<'a>>,
) {
    let mut marks = Marks::default();
    let mut below = Vec::new();
    visit(shape, old, new, &mut marks, &mut below);
    push(element, &marks, below, out);
}

fn push<'a>(element: Element<'a>, marks: &Marks, below: Vec<Change<'a>>, out: &mut Vec<Change<'a>>) {
    if marks.taken || marks.removed || !below.is_empty() {
        out.push(Change { element, taken: marks.taken, removed: marks.removed, below });
    }
}

fn visit<'a>(
    shape: Shape<'_>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    marks: &mut Marks,
    out: &mut Vec<Change<'a>>,
) {
    let old_kind = old.map(|value| shape.kind_of(value));
    let new_kind = new.map(|value| shape.kind_of(value));
    let leaf = match (old_kind, new_kind) {
        (None, None) => return,
        (Some(kind), None) | (None, Some(kind)) => visit_kind(kind, shape, old, new, marks, out),
        (Some(old_kind), Some(new_kind)) => {
            if old_kind != new_kind {
                // The children of both types come from one side each, so they cannot meet.
                visit_kind(old_kind, shape, old, new, marks, out);
            }
            visit_kind(new_kind, shape, old, new, marks, out)
        }
    };
    if !leaf {
        marks.taken |= old.is_none();
        marks.removed |= new.is_none();
    }
}

/// Visits a pair as `kind`. Whether it was a leaf.
fn visit_kind<'a>(
    kind: Kind,
    shape: Shape<'_>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    marks: &mut Marks,
    out: &mut Vec<Change<'a>>,
) -> bool {
    match kind {
        Kind::Map if !shape.map_is_atomic() => {
            let old_map = old.and_then(Value::as_object).filter(|map| !map.is_empty());
            let new_map = new.and_then(Value::as_object).filter(|map| !map.is_empty());
            if old_map.is_some() || new_map.is_some() {
                visit_maps(shape, old_map, new_map, out);
                return false;
            }
        }
        Kind::List if !shape.list_is_atomic() => {
            let old_list = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let new_list = new.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            if !old_list.is_empty() || !new_list.is_empty() {
                if old_list != new_list {
                    visit_lists(shape, old_list, new_list, out);
                }
                return false;
            }
        }
        _ => {}
    }
    match (old, new) {
        (None, _) => marks.taken = true,
        (_, None) => marks.removed = true,
        (Some(old), Some(new)) => marks.taken |= !equal(old, new),
    }
    true
}

fn visit_maps<'a>(
    shape: Shape<'_>,
    old: Option<&'a Map<String, Value>>,
    new: Option<&'a Map<String, Value>>,
    out: &mut Vec<Change<'a>>,
) {
    let mut old = old.into_iter().flatten().peekable();
    let mut new = new.into_iter().flatten().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let old = if order.is_le() { old.next() } else { None };
        let new = if order.is_ge() { new.next() } else { None };
        let Some((name, _)) = old.or(new) else { return };
        let (old, new) = (old.map(|(_, value)| value), new.map(|(_, value)| value));
        // Most fields do not change; scalars need no look at the schema to know.
        if let (Some(old), Some(new)) = (old, new)
            && !matches!(old, Value::Object(_) | Value::Array(_))
            && old == new
        {
            continue;
        }
        visit_element(shape.field(name), Element::Field(Cow::Borrowed(name)), old, new, out);
    }
}

fn visit_lists<'a>(shape: Shape<'_>, old: &'a [Value], new: &'a [Value], out: &mut Vec<Change<'a>>) {
    let old = keyed(shape, old);
    let new = keyed(shape, new);
    let item_shape = shape.item();
    let (mut old, mut new) = (old.as_slice(), new.as_slice());
    while let Some(key) = smaller(old.first(), new.first()) {
        let (old_same, old_rest) = split_run(old, &key);
        let (new_same, new_rest) = split_run(new, &key);
        (old, new) = (old_rest, new_rest);
        let mut marks = Marks::default();
        let mut below = Vec::new();
        match (old_same, new_same) {
            ([] | [_], [] | [_]) => {
                let value = |run: &[(String, &'a Value)]| run.first().map(|(_, value)| *value);
                visit(item_shape, value(old_same), value(new_same), &mut marks, &mut below);
            }
            // Items that share a key are owned together, without looking into them.
            ([_, _, ..], [_, _, ..]) => {
                let same = old_same.len() == new_same.len()
                    && old_same.iter().zip(new_same).all(|((_, old), (_, new))| equal(old, new));
                marks.taken = !same;
            }
            ([_, _, ..], new_same) => {
                if let Some((_, new)) = new_same.first() {
                    visit(item_shape, None, Some(new), &mut marks, &mut below);
                }
                marks.removed = true;
            }
            (old_same, _) => {
                if let Some((_, old)) = old_same.first() {
                    visit(item_shape, Some(old), None, &mut marks, &mut below);
                }
                marks.taken = true;
            }
        }
        push(Element::Item(key), &marks, below, out);
    }
}

/// The items with their path elements, in the order of those. Items that cannot have one are left
/// out: validation refuses them elsewhere.
fn keyed<'a>(shape: Shape<'_>, items: &'a [Value]) -> Vec<(String, &'a Value)> {
    let mut out: Vec<(String, &Value)> = items
        .iter()
        .filter_map(|item| {
            let mut key = String::with_capacity(24);
            shape.write_item(item, &mut key).ok()?;
            Some((key, item))
        })
        .collect();
    out.sort_by(|(left, _), (right, _)| left.cmp(right));
    out
}

fn smaller(old: Option<&(String, &Value)>, new: Option<&(String, &Value)>) -> Option<String> {
    match (old, new) {
        (Some((old, _)), Some((new, _))) => Some(old.min(new).clone()),
        (Some((key, _)), None) | (None, Some((key, _))) => Some(key.clone()),
        (None, None) => None,
    }
}

type Run<'r, 'a> = &'r [(String, &'a Value)];

fn split_run<'r, 'a>(items: Run<'r, 'a>, key: &str) -> (Run<'r, 'a>, Run<'r, 'a>) {
    let length = items.iter().take_while(|(other, _)| other == key).count();
    items.split_at(length)
}

/// Whether two values are the same; whole floats equal integers.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => l == r || ((l.is_f64() || r.is_f64()) && l.as_f64() == r.as_f64()),
        (Value::Array(l), Value::Array(r)) => l.len() == r.len() && l.iter().zip(r).all(|(l, r)| equal(l, r)),
        (Value::Object(l), Value::Object(r)) => {
            l.len() == r.len() && l.iter().zip(r).all(|((lk, lv), (rk, rv))| lk == rk && equal(lv, rv))
        }
        _ => left == right,
    }
}

/// Drops the changes an endpoint does not make.
pub(super) fn reset(changes: &mut Vec<Change<'_>>, reset: Reset) {
    match reset {
        Reset::Nothing => {}
        Reset::Fields(paths) => paths.iter().for_each(|path| exclude(changes, path)),
        Reset::AllBut(patterns) => keep_matching(changes, patterns),
    }
}

fn exclude(changes: &mut Vec<Change<'_>>, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    let found = changes.iter().position(|change| matches!(&change.element, Element::Field(name) if name == first));
    let Some(index) = found else { return };
    if !rest.is_empty() {
        exclude(&mut changes[index].below, rest);
        let change = &changes[index];
        if change.taken || change.removed || !change.below.is_empty() {
            return;
        }
    }
    changes.remove(index);
}

fn keep_matching(changes: &mut Vec<Change<'_>>, patterns: &[&[&str]]) {
    changes.retain_mut(|change| {
        let matches = |first: &str| first == "*" || matches!(&change.element, Element::Field(name) if name == first);
        let deeper: Vec<&[&str]> =
            patterns.iter().filter_map(|p| p.split_first()).filter(|(f, _)| matches(f)).map(|(_, rest)| rest).collect();
        if deeper.iter().any(|pattern| pattern.is_empty()) {
            return true;
        }
        keep_matching(&mut change.below, &deeper);
        !deeper.is_empty() && (change.taken || change.removed || !change.below.is_empty())
    });
}

/// The taken paths as a set.
pub(super) fn taken(changes: &[Change<'_>]) -> Trie {
    let mut out = Map::new();
    let mut scratch = String::new();
    for change in changes {
        if let Some(node) = fields::node(change.taken, taken(&change.below)) {
            out.insert(change.element.text(&mut scratch).to_owned(), node);
        }
    }
    out
}

/// Takes every changed path out of a set. Whether the set shrank.
pub(super) fn subtract(set: &mut Trie, changes: &[Change<'_>]) -> bool {
    let mut scratch = String::new();
    let mut shrank = false;
    for change in changes {
        let element = change.element.text(&mut scratch);
        let Some(ours) = set.get_mut(element) else { continue };
        let changed = change.taken || change.removed;
        let keep = match ours {
            Value::Object(trie) if !trie.is_empty() => {
                shrank |= changed && trie.remove(fields::SELF).is_some();
                shrank |= subtract(trie, &change.below);
                fields::settle(trie)
            }
            _ => {
                shrank |= changed;
                !changed
            }
        };
        if !keep {
            set.remove(element);
        }
    }
    shrank
}

/// The taken paths that are in the set, each as its elements; shallow ones first.
pub(super) fn conflicts(set: &Trie, changes: &[Change<'_>], prefix: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
    let mut scratch = String::new();
    for change in changes.iter().filter(|change| change.taken) {
        let element = change.element.text(&mut scratch);
        if set.get(element).is_some_and(fields::is_member) {
            let mut path = prefix.clone();
            path.push(element.to_owned());
            out.push(path);
        }
    }
    for change in changes.iter().filter(|change| !change.below.is_empty()) {
        let element = change.element.text(&mut scratch);
        if let Some(trie) = set.get(element).and_then(fields::below) {
            prefix.push(element.to_owned());
            conflicts(trie, &change.below, prefix, out);
            prefix.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::schema::builtin;

    fn pod() -> Shape<'static> {
        Shape::root(builtin::definition(builtin::by_kind("", "v1", "Pod").unwrap()))
    }

    fn all(changes: &[Change<'_>], removed: bool) -> Value {
        let mut out = Map::new();
        for change in changes {
            let marked = if removed { change.removed } else { change.taken };
            let children = all(&change.below, removed);
            let mut scratch = String::new();
            if let (Some(node), Value::Object(_)) =
                (fields::node(marked, children.as_object().cloned().unwrap()), &children)
            {
                out.insert(change.element.text(&mut scratch).to_owned(), node);
            }
        }
        Value::Object(out)
    }

    #[track_caller]
    fn check(shape: Shape<'_>, old: &Value, new: &Value, taken: &Value, removed: &Value) {
        let changes = compare(shape, old, new);
        assert_eq!((all(&changes, false), all(&changes, true)), (taken.clone(), removed.clone()));
    }

    #[test]
    fn fields_items_and_leaves() {
        check(
            pod(),
            &json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}], "nodeSelector": {"x": "1"}}}),
            &json!({"spec": {"containers": [{"name": "c"}, {"name": "a", "image": "2"}], "nodeSelector": {"y": "1"}}}),
            &json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {"f:image": {}}, "k:{\"name\":\"c\"}": {".": {}, "f:name": {}}},
                              "f:nodeSelector": {}}}),
            &json!({"f:spec": {"f:containers": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}}}),
        );
        check(
            pod(),
            &json!({"metadata": {}}),
            &json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["x"], "annotations": {}}}),
            &json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {".": {}, "v:\"x\"": {}}, "f:annotations": {}}}),
            &json!({}),
        );
        // A null is there: filling it does not take the field itself.
        check(
            pod(),
            &json!({"spec": {"containers": null}}),
            &json!({"spec": {"containers": [{"name": "a"}]}}),
            &json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}}}),
            &json!({}),
        );
    }

    #[test]
    fn order_alone_is_no_change() {
        let spec = |names: [&str; 2]| json!({"spec": {"containers": names.map(|name| json!({"name": name}))}});
        check(pod(), &spec(["a", "b"]), &spec(["b", "a"]), &json!({}), &json!({}));
    }

    #[test]
    fn items_with_one_key_are_owned_together() {
        let ports = |ports: Value| json!({"spec": {"containers": [{"name": "a", "ports": ports}]}});
        let port = |name: &str| json!({"containerPort": 80, "protocol": "TCP", "name": name});
        let element = r#"k:{"containerPort":80,"protocol":"TCP"}"#;
        let at =
            |node: Value| json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {"f:ports": {element: node}}}}});
        let full = json!({".": {}, "f:containerPort": {}, "f:protocol": {}, "f:name": {}});
        let two = ports(json!([port("x"), port("y")]));
        check(pod(), &two, &two, &json!({}), &json!({}));
        check(pod(), &two, &ports(json!([port("y"), port("x")])), &at(json!({})), &json!({}));
        check(pod(), &ports(json!([port("x")])), &two, &at(json!({})), &at(full.clone()));
        check(pod(), &two, &ports(json!([port("x")])), &at(full), &at(json!({})));
    }

    #[test]
    fn deduced_values_may_change_type() {
        check(
            Shape::Deduced,
            &json!({"a": 1, "b": {"x": 1}, "c": [1], "n": 1.0}),
            &json!({"a": {"y": 1}, "b": 2, "c": [1, 2], "n": 1}),
            &json!({"f:a": {".": {}, "f:y": {}}, "f:b": {}, "f:c": {}}),
            &json!({"f:b": {"f:x": {}}}),
        );
    }

    #[test]
    fn reset_fields_do_not_count() {
        let old = json!({"spec": {"nodeName": "a"}, "status": {"phase": "x"}});
        let new = json!({"spec": {"nodeName": "b"}, "status": {"phase": "y"}, "metadata": {"labels": {"a": "b"}}});
        let mut changes = compare(pod(), &old, &new);
        reset(&mut changes, Reset::Fields(&[&["status"], &["metadata", "labels"]]));
        assert_eq!(Value::from(taken(&changes)), json!({"f:spec": {"f:nodeName": {}}, "f:metadata": {}}));
        reset(&mut changes, Reset::AllBut(&[&["spec", "containers"]]));
        assert_eq!(Value::from(taken(&changes)), json!({}));
    }
}
