//! Owners of an object's replicas, in terms of its Scale and back.
//!
//! A Scale is tracked as the object it is, with entries for its one field that counts. They are made from the
//! parent's entries before a write and put back into them afterwards, as upstream's `scalehandler.go` does.
//! Fields are told apart by the version an entry is in: each has its own path to the replicas.

use serde_json::Value;

use super::fields::{self, Trie};
use super::managers::{Entry, Managers};

/// The version of a Scale.
const SCALE: &str = "autoscaling/v1";

/// Where each version of a kind keeps its replicas.
#[derive(Clone, Debug)]
pub struct ReplicasPaths(Vec<(Box<str>, Vec<String>)>);

impl ReplicasPaths {
    /// The versions, as in `apps/v1`, each with the names of the fields that lead to the replicas; none for
    /// a version without a Scale.
    pub fn new<'a>(versions: impl IntoIterator<Item = (&'a str, Vec<&'a str>)>) -> Self {
        let encode = |names: Vec<&str>| names.into_iter().map(fields::field).collect();
        Self(versions.into_iter().map(|(version, path)| (version.into(), encode(path))).collect())
    }

    fn of(&self, api_version: &str) -> Option<&[String]> {
        self.0.iter().find(|(version, _)| **version == *api_version).map(|(_, path)| path.as_slice())
    }

    /// Gives a Scale the owners that its replicas have in `parent`.
    pub fn to_scale(&self, parent: &Value, scale: &mut Value) {
        let mut owners = Managers::default();
        for entry in Managers::of(parent).0 {
            let Some(path) = self.of(entry.api_version()) else { continue };
            if !owns(&entry, path) {
                continue;
            }
            let set = set_of(&replicas_of_scale());
            let mut owner = Entry::new(entry.manager(), entry.operation(), SCALE, entry.subresource(), set);
            owner.copy_time(&entry);
            owners.0.push(owner);
        }
        Managers::take(scale);
        owners.store(scale);
    }

    /// Makes the owners of a Scale's replicas those of the replicas of `parent`, which is in `api_version`.
    /// Entries of versions that are gone go.
    ///
    /// Upstream tells updaters apart by version as well, and so takes the replicas from every updater that
    /// did not write this time and gives them back in a second entry of the same name. Here they stay where
    /// they are. As upstream, an entry that is new has no time.
    pub fn to_parent(&self, api_version: &str, scale: &Value, parent: &mut Value) {
        let in_scale = replicas_of_scale();
        let mut owners = Managers::of(scale);
        owners.0.retain(|owner| owns(owner, &in_scale));
        let mut merged = Managers::default();
        for mut entry in Managers::take(parent).0 {
            let Some(path) = self.of(entry.api_version()) else { continue };
            if owns(&entry, path) {
                let (name, operation, subresource) = (entry.manager(), entry.operation(), entry.subresource());
                let same = |owner: &Entry| owner.belongs_to(name, operation, SCALE, subresource);
                if let Some(index) = owners.0.iter().position(same) {
                    owners.0.remove(index);
                } else {
                    fields::difference(entry.set_mut(), &set_of(path));
                }
            }
            if !entry.is_empty() {
                merged.0.push(entry);
            }
        }
        if let Some(path) = self.of(api_version) {
            merged.0.extend(owners.0.iter().map(|owner| {
                Entry::new(owner.manager(), owner.operation(), api_version, owner.subresource(), set_of(path))
            }));
        }
        merged.store(parent);
    }
}

fn replicas_of_scale() -> [String; 2] {
    [fields::field("spec"), fields::field("replicas")]
}

fn owns(entry: &Entry, path: &[String]) -> bool {
    entry.set().is_some_and(|set| fields::contains(set, path))
}

/// The set of just one path.
fn set_of(path: &[String]) -> Trie {
    let below = match path {
        [] => return Trie::new(),
        [_] => fields::leaf(),
        [_, rest @ ..] => Value::Object(set_of(rest)),
    };
    Trie::from_iter([(path[0].clone(), below)])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TIME: &str = "2026-01-02T03:04:05Z";

    fn paths() -> ReplicasPaths {
        ReplicasPaths::new([
            ("apps/v1", vec!["spec", "replicas"]),
            ("example.com/v1", vec!["spec", "lamps", "lit"]),
            ("example.com/v2", Vec::new()),
        ])
    }

    fn entry(who: &str, api_version: &str, fields: &Value) -> Value {
        let (manager, operation) = who.split_once(' ').expect("a manager and an operation");
        let (manager, subresource) = manager.split_once('/').unwrap_or((manager, ""));
        let mut entry = json!({"apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields,
            "manager": manager, "operation": operation});
        if !subresource.is_empty() {
            entry["subresource"] = subresource.into();
        }
        entry
    }

    fn object(entries: &[Value]) -> Value {
        json!({"metadata": {"managedFields": entries}})
    }

    #[test]
    fn a_scale_is_owned_by_those_who_own_the_replicas() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let mut owner = entry("b Apply", "example.com/v1", &json!({"f:spec": {"f:lamps": {"f:lit": {}}}}));
        owner["time"] = TIME.into();
        let parent = object(&[
            entry("a Update", "apps/v1", &json!({"f:spec": {"f:replicas": {}, "f:paused": {}}})),
            owner,
            entry("c Update", "apps/v1", &json!({"f:spec": {"f:paused": {}}})),
            entry("d Update", "example.com/v2", &replicas),
            entry("e Update", "gone/v1", &replicas),
        ]);
        let mut scale = json!({"metadata": {}});
        paths().to_scale(&parent, &mut scale);
        let mut applied = entry("b Apply", "autoscaling/v1", &replicas);
        applied["time"] = TIME.into();
        assert_eq!(scale, object(&[applied, entry("a Update", "autoscaling/v1", &replicas)]));
    }

    #[test]
    fn replicas_are_taken_from_those_who_lost_them() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let paused = json!({"f:spec": {"f:paused": {}}});
        let both = json!({"f:spec": {"f:paused": {}, "f:replicas": {}}});
        let mut parent = object(&[
            entry("stays Apply", "apps/v1", &both),
            entry("loses Apply", "apps/v1", &both),
            entry("goes Update", "apps/v1", &replicas),
            entry("other Update", "example.com/v2", &replicas),
            entry("unknown Update", "gone/v1", &replicas),
        ]);
        let scale = object(&[
            entry("stays Apply", "autoscaling/v1", &replicas),
            entry("new/scale Update", "autoscaling/v1", &replicas),
            entry("labels/scale Update", "autoscaling/v1", &json!({"f:metadata": {"f:labels": {}}})),
        ]);
        paths().to_parent("apps/v1", &scale, &mut parent);
        let expected = object(&[
            entry("loses Apply", "apps/v1", &paused),
            entry("stays Apply", "apps/v1", &both),
            entry("new/scale Update", "apps/v1", &replicas),
            entry("other Update", "example.com/v2", &replicas),
        ]);
        assert_eq!(parent, expected);
    }
}
