//! Merging a configuration into the live object, and giving back what it no longer says.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::fields::{self, Trie};
use super::shape::{Kind, Shape};

/// Merges `config` into `live`: atomic values are replaced, lists of items merge by key.
pub(super) fn merge(shape: Shape<'_>, live: &mut Value, config: &Value) {
    let kind = shape.kind_of(config);
    match kind {
        Kind::Map if !shape.map_is_atomic() => match (&mut *live, config) {
            (Value::Object(live), Value::Object(config)) => {
                for (name, value) in config {
                    match live.get_mut(name) {
                        Some(live) => merge(shape.field(name), live, value),
                        None => {
                            live.insert(name.clone(), value.clone());
                        }
                    }
                }
                return;
            }
            // A null sets nothing in a map that has something.
            (Value::Object(live), Value::Null) if !live.is_empty() => return,
            _ => {}
        },
        Kind::List if !shape.list_is_atomic() => match (&mut *live, config) {
            (Value::Array(items), Value::Array(config)) => {
                *items = merge_lists(shape, std::mem::take(items), config);
                return;
            }
            (Value::Array(items), Value::Null) if !items.is_empty() => return,
            _ => {}
        },
        _ => {}
    }
    if live != config {
        live.clone_from(config);
    }
}

/// Where `config` sets what has one owner: atomic lists and maps.
pub(super) fn atomics(shape: Shape<'_>, config: &Value, path: &str, found: &mut Vec<String>) {
    match config {
        Value::Object(map) => {
            if shape.map_is_atomic() {
                found.push(path.to_owned());
            }
            for (name, value) in map {
                if let Some(below) = shape.declared_field(name) {
                    atomics(below, value, &format!("{path}.{name}"), found);
                }
            }
        }
        Value::Array(items) => {
            if shape.list_is_atomic() {
                found.push(path.to_owned());
            }
            for (index, item) in items.iter().enumerate() {
                atomics(shape.item(), item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// Merges two lists of items. Items of the configuration come in its order, items only in the live
/// list keep their place between them.
fn merge_lists(shape: Shape<'_>, live: Vec<Value>, config: &[Value]) -> Vec<Value> {
    let config_keys = keys(shape, config);
    let live_keys = keys(shape, &live);
    let in_config: HashMap<&str, usize> =
        config_keys.iter().enumerate().filter_map(|(i, key)| Some((key.as_deref()?, i))).collect();
    // `None` marks a key several live items share: their content does not merge.
    let mut in_live: HashMap<&str, Option<usize>> = HashMap::with_capacity(live.len());
    for (i, key) in live_keys.iter().enumerate() {
        if let Some(key) = key.as_deref() {
            in_live.entry(key).and_modify(|index| *index = None).or_insert(Some(i));
        }
    }
    let shared: Vec<&str> =
        config_keys.iter().filter_map(|key| key.as_deref().filter(|key| in_live.contains_key(key))).collect();
    let mut shared = shared.into_iter();
    let mut next_shared = shared.next();

    let item_shape = shape.item();
    let mut live: Vec<Option<Value>> = live.into_iter().map(Some).collect();
    let mut done = vec![false; config.len()];
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let merged = |live: &mut [Option<Value>], key: &str, config: &Value| {
        let current = in_live.get(key).copied().flatten().and_then(|index| live[index].take());
        match current {
            Some(mut item) => {
                merge(item_shape, &mut item, config);
                item
            }
            None => config.clone(),
        }
    };
    let (mut l, mut r) = (0, 0);
    while l < live.len() || r < config.len() {
        let live_key = live_keys.get(l).and_then(Option::as_deref);
        let config_key = config_keys.get(r).and_then(Option::as_deref);
        if l < live.len() && r < config.len() {
            if let (Some(key), true) = (live_key, live_key == config_key) {
                out.push(merged(&mut live, key, &config[r]));
                done[r] = true;
                (l, r) = (l + 1, r + 1);
                next_shared = shared.next();
                continue;
            }
            let wanted = live_key.is_some_and(|key| in_config.contains_key(key));
            if wanted && next_shared.is_some() && next_shared != live_key {
                // The configuration puts this item further down.
                l += 1;
                continue;
            }
        }
        if l < live.len() {
            match live_key.and_then(|key| in_config.get(key)) {
                None => {
                    out.extend(live[l].take());
                    l += 1;
                    continue;
                }
                Some(index) if done[*index] => l += 1,
                Some(_) => {}
            }
        }
        if r < config.len() {
            if let Some(key) = config_key {
                out.push(merged(&mut live, key, &config[r]));
                if next_shared == Some(key) {
                    next_shared = shared.next();
                }
            }
            done[r] = true;
            r += 1;
        }
    }
    out
}

fn keys(shape: Shape<'_>, items: &[Value]) -> Vec<Option<String>> {
    items
        .iter()
        .map(|item| {
            let mut key = String::with_capacity(24);
            shape.write_item(item, &mut key).ok().map(|()| key)
        })
        .collect()
}

/// Removes from `object` what is in `last`, the paths the applier had, and in none of `managed`, the
/// paths anybody has now. Returns whether anything went.
///
/// Upstream computes this with set operations on the whole object (`merge/update.go`, `prune`). The
/// rules that come out of them, for a path P of the object:
///
/// - P is *lost* if it or something above it was in `last`, and P is in no manager's set; what is below
///   a lost path is lost too.
/// - P is removed if it was in `last` and is lost.
///
/// Fields the schema names count as being in a set that has something below them.
pub(super) fn prune(shape: Shape<'_>, object: &mut Value, last: &Trie, managed: &[&Trie]) -> bool {
    Pruning { above_in_last: false, lost: false }.prune(shape, object, last, managed)
}

#[derive(Clone, Copy)]
struct Pruning {
    above_in_last: bool,
    lost: bool,
}

impl Pruning {
    fn prune(self, shape: Shape<'_>, value: &mut Value, last: &Trie, managed: &[&Trie]) -> bool {
        let (removed, empty) = match (shape.kind_of(value), &mut *value) {
            (Kind::Map, Value::Object(map)) if !shape.map_is_atomic() => {
                (self.prune_map(shape, map, last, managed), map.is_empty())
            }
            (Kind::List, Value::Array(items)) if !shape.list_is_atomic() => {
                let before = items.len();
                let mut below = false;
                items.retain_mut(|item| self.keep_item(shape, item, last, managed, &mut below));
                (below || items.len() != before, items.is_empty())
            }
            _ => return false,
        };
        if removed && empty {
            *value = Value::Null;
        }
        removed
    }

    fn prune_map(self, shape: Shape<'_>, map: &mut Map<String, Value>, last: &Trie, managed: &[&Trie]) -> bool {
        let mut removed = false;
        for (element, last) in last {
            let Some(name) = element.strip_prefix("f:") else { continue };
            let Some(value) = map.get_mut(name) else { continue };
            let named = shape.names_field(name);
            match self.enter(element, last, managed, named) {
                None => {
                    map.remove(name);
                    removed = true;
                }
                Some((below, managed)) => {
                    if let Some(last) = fields::below(last) {
                        removed |= below.prune(shape.field(name), value, last, &managed);
                    }
                }
            }
        }
        removed
    }

    fn keep_item(
        self,
        shape: Shape<'_>,
        item: &mut Value,
        last: &Trie,
        managed: &[&Trie],
        removed_below: &mut bool,
    ) -> bool {
        let mut element = String::new();
        if shape.write_item(item, &mut element).is_err() {
            return true;
        }
        let Some(last) = last.get(&element) else { return true };
        let Some((below, managed)) = self.enter(&element, last, managed, false) else { return false };
        if let Some(last) = fields::below(last) {
            *removed_below |= below.prune(shape.item(), item, last, &managed);
        }
        true
    }

    /// Steps down to an element of `last`; `None` if its value goes.
    fn enter<'m>(
        self,
        element: &str,
        last: &Value,
        managed: &[&'m Trie],
        named: bool,
    ) -> Option<(Self, Vec<&'m Trie>)> {
        let is_in = |node: &Value| fields::is_member(node) || named;
        let in_last = is_in(last);
        let nodes = || managed.iter().filter_map(|trie| trie.get(element));
        let above_in_last = self.above_in_last || in_last;
        let lost = self.lost || (above_in_last && !nodes().any(is_in));
        if in_last && lost {
            return None;
        }
        Some((Self { above_in_last, lost }, nodes().filter_map(fields::below).collect()))
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

    fn merged_names(live: &[&str], config: &[&str]) -> Vec<String> {
        let spec = |names: &[&str]| {
            let list: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            json!({"spec": {"containers": list}})
        };
        let mut object = spec(live);
        merge(pod(), &mut object, &spec(config));
        object["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn the_configurations_order_wins() {
        assert_eq!(merged_names(&["a", "b"], &["c"]), ["a", "b", "c"]);
        assert_eq!(merged_names(&["a", "b"], &["b", "a"]), ["b", "a"]);
        assert_eq!(merged_names(&["a", "b", "c"], &["c", "a"]), ["b", "c", "a"]);
        assert_eq!(merged_names(&["a", "b", "c"], &["x", "b"]), ["a", "x", "b", "c"]);
        assert_eq!(merged_names(&[], &["b", "a"]), ["b", "a"]);
        assert_eq!(merged_names(&["a", "b"], &[]), ["a", "b"]);
        // Several live items with one key become the configuration's one.
        assert_eq!(merged_names(&["a", "b", "a"], &["a"]), ["a", "b"]);
    }

    #[test]
    fn values_merge_by_their_type() {
        let mut object = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"nodeSelector": {"x": "1"}, "containers": [{"name": "a", "image": "1", "args": ["q"]}]}});
        merge(
            pod(),
            &mut object,
            &json!({"metadata": {"labels": {"b": "3"}, "annotations": null}, "spec": {"nodeSelector": {"y": "2"}, "containers": [{"name": "a", "args": []}]}}),
        );
        assert_eq!(
            object,
            json!({"metadata": {"labels": {"a": "1", "b": "3"}, "annotations": null}, "spec": {"nodeSelector": {"y": "2"}, "containers": [{"name": "a", "image": "1", "args": []}]}})
        );
        merge(pod(), &mut object, &json!({"metadata": {"labels": null}, "spec": null}));
        assert_eq!(object["metadata"]["labels"], json!({"a": "1", "b": "3"}));
        assert_eq!(object["spec"]["nodeSelector"], json!({"y": "2"}));
    }

    #[track_caller]
    fn check_prune(object: &Value, last: &Value, managed: &[Value], expected: &Value) {
        let mut object = object.clone();
        let managed: Vec<&Trie> = managed.iter().map(|set| set.as_object().unwrap()).collect();
        assert!(prune(pod(), &mut object, last.as_object().unwrap(), &managed));
        assert_eq!(object, *expected);
    }

    #[test]
    fn only_unwanted_fields_are_pruned() {
        let object =
            json!({"metadata": {"name": "p", "labels": {"a": "1", "b": "2", "c": "3"}, "finalizers": ["x", "y"]}});
        let last = json!({"f:metadata": {"f:labels": {"f:a": {}, "f:b": {}}, "f:finalizers": {"v:\"x\"": {}}}});
        check_prune(
            &object,
            &last,
            &[
                json!({"f:metadata": {"f:labels": {"f:b": {}}}}),
                json!({"f:metadata": {"f:finalizers": {"v:\"y\"": {}}}}),
            ],
            &json!({"metadata": {"name": "p", "labels": {"b": "2", "c": "3"}, "finalizers": ["y"]}}),
        );
        // A named field goes with everything in it once no manager has anything below it.
        check_prune(&object, &last, &[json!({"f:metadata": {"f:namespace": {}}})], &json!({"metadata": {"name": "p"}}));
        // ... but stays, empty, if a manager owns the field itself.
        check_prune(
            &json!({"metadata": {"labels": {"a": "1"}}}),
            &json!({"f:metadata": {"f:labels": {"f:a": {}}}}),
            &[json!({"f:metadata": {"f:labels": {}}})],
            &json!({"metadata": {"labels": null}}),
        );
    }

    #[test]
    fn an_item_goes_with_its_unowned_fields() {
        let object = json!({"spec": {"containers": [{"name": "a", "image": "1", "tty": true}, {"name": "b"}]}});
        let item = |name: &str, fields: Value| json!({"f:spec": {"f:containers": {format!("k:{{\"name\":\"{name}\"}}"): fields}}});
        let last = item("a", json!({".": {}, "f:name": {}, "f:image": {}}));
        let b = item("b", json!({".": {}, "f:name": {}}));
        check_prune(&object, &last, std::slice::from_ref(&b), &json!({"spec": {"containers": [{"name": "b"}]}}));
        // A manager that only changed a field does not keep the item.
        let image = item("a", json!({"f:image": {}}));
        check_prune(&object, &last, &[b.clone(), image], &json!({"spec": {"containers": [{"name": "b"}]}}));
        // A manager that applied it does, but not the fields only the leaver had.
        let a = item("a", json!({".": {}, "f:name": {}}));
        check_prune(
            &object,
            &last,
            &[b, a],
            &json!({"spec": {"containers": [{"name": "a", "tty": true}, {"name": "b"}]}}),
        );
    }
}
