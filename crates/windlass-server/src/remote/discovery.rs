//! The discovery documents with the group versions of other servers in them.
//!
//! Groups are ordered by priority and name as everywhere, and versions of a group by priority and then by Kubernetes'
//! order of versions. A version that another server serves replaces the local one of the same name.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass_api::resource::compare_versions;

use super::{Remote, Remotes};
use crate::discovery::priority;
use crate::validation::access::Access as _;

/// The priority of local versions in a group that has others as well: as the APIServices of CRDs have it.
const LOCAL_VERSION_PRIORITY: u32 = 100;

/// `/apis`, legacy: `document` is that of what is served here.
pub(crate) fn merge_groups(remotes: &Remotes, document: &mut Value) {
    let by_group = by_group(remotes);
    let Some(Value::Array(groups)) = document.get_mut("groups") else { return };
    merge(
        &by_group,
        groups,
        |group| group.text("name").to_owned(),
        |name, remotes, local| {
            let local = local.as_ref().map_or(&[][..], |group| group.list("versions"));
            legacy_group(name, remotes, local)
        },
    );
}

/// `/apis/{group}`; `local` is that of what is served here. None if no server has the group.
pub(crate) fn merge_group(remotes: &Remotes, name: &str, local: Option<Value>) -> Option<Value> {
    let by_group = by_group(remotes);
    let Some(remotes) = by_group.get(name) else { return local };
    let versions = local.as_ref().map_or(&[][..], |group| group.list("versions"));
    let mut group = legacy_group(name, remotes, versions);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

/// `/apis`, aggregated: `document` is that of what is served here.
pub(crate) fn merge_aggregated(remotes: &Remotes, document: &mut Value) {
    let by_group = by_group(remotes);
    let Some(Value::Array(groups)) = document.get_mut("items") else { return };
    merge(
        &by_group,
        groups,
        |group| group.at("metadata").text("name").to_owned(),
        |name, remotes, local| {
            let local = local.as_ref().map_or(&[][..], |group| group.list("versions"));
            let versions = merged_versions(remotes, local, aggregated_version);
            json!({"metadata": {"name": name}, "versions": versions})
        },
    );
}

/// The entry of a version in the aggregated document, from its `APIResourceList`.
pub(crate) fn version_of_legacy(version: &str, list: &Value) -> Value {
    let mut resources: Vec<Value> = Vec::new();
    let all = list.list("resources");
    for resource in all.iter().filter(|resource| !resource.text("name").contains('/')) {
        let name = resource.text("name");
        let mut entry = json!({
            "resource": name, "responseKind": response_kind(resource),
            "scope": if resource.flag("namespaced") { "Namespaced" } else { "Cluster" },
            "singularResource": resource.text("singularName"), "verbs": resource.at("verbs"),
        });
        for field in ["shortNames", "categories"] {
            if resource.has(field) {
                entry[field] = resource.at(field).clone();
            }
        }
        let below: Vec<Value> = all
            .iter()
            .filter_map(|sub| Some((sub, sub.text("name").strip_prefix(name)?.strip_prefix('/')?)))
            .map(|(sub, below)| json!({"subresource": below, "responseKind": response_kind(sub), "verbs": sub.at("verbs")}))
            .collect();
        if !below.is_empty() {
            entry["subresources"] = below.into();
        }
        resources.push(entry);
    }
    json!({"version": version, "resources": resources})
}

fn response_kind(resource: &Value) -> Value {
    json!({"group": resource.text("group"), "version": resource.text("version"), "kind": resource.text("kind")})
}

type ByGroup<'a> = BTreeMap<&'a str, Vec<&'a Remote>>;

fn by_group(remotes: &Remotes) -> ByGroup<'_> {
    let mut groups = ByGroup::new();
    for remote in remotes.all().filter(|remote| !remote.group.is_empty()) {
        groups.entry(&remote.group).or_default().push(remote);
    }
    groups
}

/// Puts the groups of other servers where they belong among `groups`.
fn merge(
    by_group: &ByGroup<'_>,
    groups: &mut Vec<Value>,
    name_of: impl Fn(&Value) -> String,
    make: impl Fn(&str, &[&Remote], Option<Value>) -> Value,
) {
    for (name, remotes) in by_group {
        let local = groups.iter().position(|group| name_of(group) == **name).map(|i| groups.remove(i));
        let highest = remotes.iter().map(|remote| remote.group_priority).max().unwrap_or_default();
        let own = if local.is_some() { highest.max(priority(name)) } else { highest };
        let rank = |other: &str| {
            by_group.get(other).map_or_else(
                || priority(other),
                |remotes| remotes.iter().map(|remote| remote.group_priority).max().unwrap_or_default(),
            )
        };
        let at = groups.partition_point(|group| {
            let other = name_of(group);
            (Reverse(rank(&other)), other.as_str()) < (Reverse(own), *name)
        });
        groups.insert(at, make(name, remotes, local));
    }
}

fn legacy_group(name: &str, remotes: &[&Remote], local: &[Value]) -> Value {
    let versions = merged_versions(
        remotes,
        local,
        |remote| json!({"groupVersion": format!("{name}/{}", remote.version), "version": remote.version}),
    );
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

fn merged_versions(remotes: &[&Remote], local: &[Value], entry: impl Fn(&Remote) -> Value) -> Vec<Value> {
    let mut versions: Vec<(u32, Value)> = remotes.iter().map(|r| (r.version_priority, entry(r))).collect();
    let is_remote = |version: &&Value| remotes.iter().any(|remote| remote.version == version.text("version"));
    versions.extend(local.iter().filter(|version| !is_remote(version)).map(|v| (LOCAL_VERSION_PRIORITY, v.clone())));
    versions.sort_by(|(a, x), (b, y)| match b.cmp(a) {
        Ordering::Equal => compare_versions(y.text("version"), x.text("version")),
        other => other,
    });
    versions.into_iter().map(|(_, version)| version).collect()
}

/// A version as it is known. What is not known is said to be stale, and clients make do with the rest.
fn aggregated_version(remote: &Remote) -> Value {
    let known = &remote.known;
    let mut entry = known.discovery.clone().unwrap_or_else(|| json!({"version": remote.version}));
    entry["freshness"] = if known.is_fresh { "Current" } else { "Stale" }.into();
    entry
}
