//! Strategic merge: a patch that looks like the object, whose lists of named items are merged item by item.
//!
//! Which lists these are is known for the kinds of Kubernetes itself; all other lists are replaced. As in kustomize,
//! items of the patch come first in a merged list.

use serde_json::{Map, Value};

use super::resource::Kind;

const DIRECTIVE: &str = "$patch";

/// Merges a patch into an object. `None` if the patch deletes the object.
pub(super) fn merge(object: Value, patch: Value, kind: &Kind) -> Option<Value> {
    let schema = Schema { kind, known: is_built_in(kind) };
    schema.value(Some(object), patch, "", "")
}

/// Kinds of Kubernetes itself are in groups without a dot or below `k8s.io`.
fn is_built_in(kind: &Kind) -> bool {
    !kind.group.contains('.') || kind.group.ends_with(".k8s.io")
}

struct Schema<'a> {
    kind: &'a Kind,
    known: bool,
}

/// What a patch says about the place where it is, besides its values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

fn directive(fields: &mut Map<String, Value>) -> Directive {
    match fields.remove(DIRECTIVE).as_ref().and_then(Value::as_str) {
        Some("replace") => Directive::Replace,
        Some("delete") => Directive::Delete,
        _ => Directive::Merge,
    }
}

impl Schema<'_> {
    /// `name` is the field that the value is in, `parent` the field that this is in.
    fn value(&self, old: Option<Value>, patch: Value, name: &str, parent: &str) -> Option<Value> {
        match patch {
            Value::Null => None,
            Value::Object(mut fields) => {
                let directive = directive(&mut fields);
                match (directive, old) {
                    (Directive::Delete, _) => None,
                    (Directive::Merge, Some(Value::Object(old))) => Some(self.fields(old, fields, name).into()),
                    // There is nothing to merge with, but what the patch says to delete is still not to be there.
                    _ => Some(self.fields(Map::new(), fields, name).into()),
                }
            }
            Value::Array(items) => match self.keys(name, parent) {
                Some(keys) => {
                    let old = match old {
                        Some(Value::Array(old)) => old,
                        _ => Vec::new(),
                    };
                    Some(Value::Array(self.items(old, items, keys, name)))
                }
                None => Some(Value::Array(items)),
            },
            scalar => Some(scalar),
        }
    }

    fn fields(&self, mut old: Map<String, Value>, patch: Map<String, Value>, parent: &str) -> Map<String, Value> {
        for (name, value) in patch {
            let before = old.remove(&name);
            if let Some(value) = self.value(before, value, &name, parent) {
                old.insert(name, value);
            }
        }
        old
    }

    fn items(&self, mut old: Vec<Value>, mut patch: Vec<Value>, keys: &[&str], name: &str) -> Vec<Value> {
        let replaces = |item: &Value| item.get(DIRECTIVE).is_some_and(|directive| directive == "replace");
        if patch.iter().any(replaces) {
            patch.retain(|item| !replaces(item));
            return patch;
        }
        // If items are told apart by several fields, those that were there before stay where they are.
        let used = keys.iter().filter(|key| old.iter().chain(&patch).any(|item| item.get(**key).is_some())).count();
        let mut merged: Vec<Value> = Vec::new();
        for item in patch {
            let same = |other: &Value| is_same(other, &item, keys);
            if let Some(earlier) = merged.iter_mut().find(|other| same(other)) {
                if let Some(value) = self.value(Some(earlier.take()), item, name, name) {
                    *earlier = value;
                }
                continue;
            }
            let at = old.iter().position(same);
            let value = self.value(at.map(|at| old[at].take()), item, name, name);
            match (at, value) {
                (Some(at), Some(value)) if used > 1 => old[at] = value,
                (at, value) => {
                    at.map(|at| old.remove(at));
                    merged.extend(value);
                }
            }
        }
        merged.extend(old);
        merged
    }

    /// By which fields the items of a list are told apart; none for a list of plain values that is merged as a set.
    fn keys(&self, list: &str, parent: &str) -> Option<&'static [&'static str]> {
        if !self.known {
            return None;
        }
        let in_container = matches!(parent, "containers" | "initContainers" | "ephemeralContainers");
        let keys: &[&str] = match list {
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "env"
            | "volumes"
            | "resourceClaims"
            | "schedulingGates"
            | "webhooks"
            | "matchConditions"
            | "variables" => &["name"],
            "imagePullSecrets" | "secrets" if self.kind.kind != "ServiceAccount" || list == "secrets" => &["name"],
            "volumeMounts" => &["mountPath"],
            "volumeDevices" => &["devicePath"],
            "hostAliases" => &["ip"],
            "topologySpreadConstraints" => &["topologyKey", "whenUnsatisfiable"],
            "ports" if in_container => &["containerPort", "protocol"],
            "ports" if self.kind.kind == "Service" => &["port", "protocol"],
            "conditions" if parent == "status" => &["type"],
            "ownerReferences" => &["uid"],
            "finalizers" if parent == "metadata" => &[],
            _ => return None,
        };
        Some(keys)
    }
}

/// Whether two items are one: equal in a key, and different in none that both have.
fn is_same(one: &Value, other: &Value, keys: &[&str]) -> bool {
    if keys.is_empty() {
        return one == other;
    }
    let both = keys.iter().filter_map(|key| Some((one.get(key)?, other.get(key)?)));
    let equal: Vec<bool> = both.map(|(one, other)| one == other).collect();
    !equal.is_empty() && equal.iter().all(|equal| *equal)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "a table of literals")]
    fn check(old: Value, patch: Value, expected: Option<Value>) {
        let kind = Kind::new("apps", "v1", "Deployment");
        assert_eq!(merge(old, patch, &kind), expected);
    }

    #[test]
    fn named_items_are_merged_and_come_first() {
        let pod = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let old = pod(json!([{"name": "a", "image": "x", "args": ["1"]}, {"name": "b", "env": [{"name": "c"}]}]));
        let patch = pod(json!([{"name": "b", "env": [{"name": "d"}]}, {"name": "e"}, {"name": "a", "args": ["2"]}]));
        let expected = pod(json!([
            {"name": "b", "env": [{"name": "d"}, {"name": "c"}]}, {"name": "e"},
            {"name": "a", "image": "x", "args": ["2"]},
        ]));
        check(old, patch, Some(expected));
    }

    #[test]
    fn a_patch_deletes_and_replaces() {
        check(
            json!({"a": 1, "b": {"c": 2}}),
            json!({"a": null, "b": {"$patch": "replace", "d": 3}}),
            Some(json!({"b": {"d": 3}})),
        );
        check(json!({"a": 1}), json!({"$patch": "delete"}), None);
        check(
            json!({"volumes": [{"name": "a"}, {"name": "b"}]}),
            json!({"volumes": [{"name": "a", "$patch": "delete"}]}),
            Some(json!({"volumes": [{"name": "b"}]})),
        );
        check(
            json!({"volumes": [{"name": "a"}]}),
            json!({"volumes": [{"$patch": "replace"}, {"name": "b"}]}),
            Some(json!({"volumes": [{"name": "b"}]})),
        );
    }

    #[test]
    fn lists_of_kinds_that_are_not_built_in_are_replaced() {
        let merged =
            merge(json!({"env": [{"name": "a"}]}), json!({"env": [{"name": "b"}]}), &Kind::new("a.b", "v1", "C"));
        assert_eq!(merged, Some(json!({"env": [{"name": "b"}]})));
    }
}
