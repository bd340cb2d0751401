//! Discovery: which groups, versions and resources there are, in the legacy documents (`/api`,
//! `/apis`, `/apis/{group}`, `/api/v1`, `/apis/{group}/{version}`) and in the aggregated one.
//!
//! Orders are part of the contract, because kubectl resolves an ambiguous name to the first group that
//! has it: groups by upstream's priorities (built-in groups first, then custom groups by name), versions
//! by Kubernetes' version order, resources by name.
//!
//! A [`Discovery`] borrows the resources and is cheap to build: make one per request, or cache its
//! answers until a CRD changes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use windlass_api::resource::compare_versions;

use crate::resource::{Resource, Subresource};

/// The content type of the aggregated documents; clients read its parameters to learn what they got.
pub const AGGREGATED_CONTENT_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The priority upstream gives every custom group.
pub const CUSTOM_PRIORITY: u32 = 1000;

/// Every served resource, grouped and ordered for discovery.
#[derive(Debug)]
pub struct Discovery<'a> {
    /// The core group comes first, if there is one.
    groups: Vec<Group<'a>>,
}

#[derive(Debug)]
struct Group<'a> {
    name: &'a str,
    versions: Vec<Version<'a>>,
}

#[derive(Debug)]
struct Version<'a> {
    name: &'a str,
    resources: Vec<&'a Resource>,
}

impl<'a> Discovery<'a> {
    /// Groups and orders `resources`.
    pub fn new(resources: impl IntoIterator<Item = &'a Resource>) -> Self {
        let mut by_group: BTreeMap<&str, BTreeMap<&str, Vec<&Resource>>> = BTreeMap::new();
        for resource in resources {
            by_group.entry(&resource.group).or_default().entry(&resource.version).or_default().push(resource);
        }
        let mut groups: Vec<Group<'a>> = by_group
            .into_iter()
            .map(|(name, versions)| {
                let mut versions: Vec<Version<'a>> = versions
                    .into_iter()
                    .map(|(name, mut resources)| {
                        resources.sort_by(|a, b| a.plural.cmp(&b.plural));
                        Version { name, resources }
                    })
                    .collect();
                versions.sort_by(|a, b| compare_versions(b.name, a.name));
                Group { name, versions }
            })
            .collect();
        // Equal priorities keep the order of names.
        groups.sort_by_key(|group| std::cmp::Reverse(priority(group.name)));
        Self { groups }
    }

    /// Every group version with its resources, in discovery order; the core group first.
    pub fn group_versions(&self) -> impl Iterator<Item = (&'a str, &'a str, &[&'a Resource])> {
        self.groups
            .iter()
            .flat_map(|group| group.versions.iter().map(|version| (group.name, version.name, &*version.resources)))
    }

    /// `/api`. `server_address` is where clients reach this server, `host:port`.
    pub fn api_versions(&self, server_address: &str) -> Value {
        json!({
            "kind": "APIVersions",
            "versions": self.groups.iter().find(|g| g.name.is_empty()).map_or_else(Vec::new, |group| {
                group.versions.iter().map(|v| v.name).collect::<Vec<_>>()
            }),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
        })
    }

    /// `/apis`.
    pub fn api_group_list(&self) -> Value {
        let mut groups: Vec<&Group<'_>> = self.named_groups().collect();
        // Here upstream breaks ties by the APIService's name, `{version}.{group}`.
        groups.sort_by_cached_key(|group| {
            let service = group.versions.iter().map(|v| format!("{}.{}", v.name, group.name)).min();
            (std::cmp::Reverse(priority(group.name)), service)
        });
        let groups: Vec<Value> = groups.into_iter().map(Group::to_value).collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    /// `/apis/{group}`; none if nothing is served in that group.
    pub fn api_group(&self, name: &str) -> Option<Value> {
        let mut value = self.named_groups().find(|group| group.name == name)?.to_value();
        value["kind"] = "APIGroup".into();
        value["apiVersion"] = "v1".into();
        Some(value)
    }

    /// `/api/{version}` (with an empty group) and `/apis/{group}/{version}`; none if nothing is served.
    pub fn resource_list(&self, group: &str, version: &str) -> Option<Value> {
        let group = self.groups.iter().find(|g| g.name == group)?;
        let version = group.versions.iter().find(|v| v.name == version)?;
        let mut resources = Vec::new();
        for resource in &version.resources {
            resources.push(legacy_resource(resource, &storage_version_hash(resource, group)));
            resources.extend(subresources(resource).map(|sub| legacy_subresource(resource, sub)));
        }
        let mut out = json!({
            "kind": "APIResourceList",
            "groupVersion": group_version(group.name, version.name),
            "resources": resources,
        });
        // The core document has never carried an apiVersion.
        if !group.name.is_empty() {
            out["apiVersion"] = "v1".into();
        }
        Some(out)
    }

    /// `/api`, aggregated.
    pub fn aggregated_core(&self) -> Value {
        aggregated_list(self.groups.iter().filter(|group| group.name.is_empty()))
    }

    /// `/apis`, aggregated.
    pub fn aggregated_apis(&self) -> Value {
        aggregated_list(self.named_groups())
    }

    fn named_groups(&self) -> impl Iterator<Item = &Group<'a>> {
        self.groups.iter().filter(|group| !group.name.is_empty())
    }
}

impl Group<'_> {
    fn to_value(&self) -> Value {
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|version| json!({"groupVersion": group_version(self.name, version.name), "version": version.name}))
            .collect();
        json!({"name": self.name, "preferredVersion": versions.first(), "versions": versions})
    }

    fn to_aggregated(&self) -> Value {
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|version| {
                let resources: Vec<Value> = version.resources.iter().map(|r| aggregated_resource(r)).collect();
                json!({"version": version.name, "resources": resources, "freshness": "Current"})
            })
            .collect();
        let metadata = if self.name.is_empty() { json!({}) } else { json!({"name": self.name}) };
        json!({"metadata": metadata, "versions": versions})
    }
}

fn aggregated_list<'a, 'b: 'a>(groups: impl Iterator<Item = &'a Group<'b>>) -> Value {
    let items: Vec<Value> = groups.map(Group::to_aggregated).collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn legacy_resource(resource: &Resource, storage_version_hash: &str) -> Value {
    let mut out = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs(resource),
    });
    let Value::Object(map) = &mut out else { return out };
    names_and_categories(resource, map);
    if is_stored(resource) {
        map.insert("storageVersionHash".into(), storage_version_hash.into());
    }
    out
}

fn legacy_subresource(resource: &Resource, sub: &Subresource) -> Value {
    let mut out = json!({
        "name": format!("{}/{}", resource.plural, sub.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": sub.kind,
        "verbs": sub.verbs,
    });
    let (group, version) = subresource_group_version(sub);
    if (group, version) != (&*resource.group, &*resource.version) {
        out["group"] = group.into();
        out["version"] = version.into();
    }
    out
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut out = json!({
        "resource": resource.plural,
        "responseKind": response_kind(resource, &resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    let Value::Object(map) = &mut out else { return out };
    names_and_categories(resource, map);
    let below: Vec<Value> = subresources(resource)
        .map(|sub| {
            let (group, version) = subresource_group_version(sub);
            json!({
                "subresource": sub.name,
                "responseKind": response_kind(resource, group, version, &sub.kind),
                "verbs": sub.verbs,
            })
        })
        .collect();
    if !below.is_empty() {
        map.insert("subresources".into(), below.into());
    }
    out
}

/// Built-in resources leave out a group and version that are those of the enclosing document; upstream's
/// custom resource discovery always says them.
fn response_kind(resource: &Resource, group: &str, version: &str, kind: &str) -> Value {
    if !resource.custom && (group, version) == (&*resource.group, &*resource.version) {
        json!({"group": "", "version": "", "kind": kind})
    } else {
        json!({"group": group, "version": version, "kind": kind})
    }
}

fn names_and_categories(resource: &Resource, map: &mut Map<String, Value>) {
    if !resource.short_names.is_empty() {
        map.insert("shortNames".into(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        map.insert("categories".into(), json!(resource.categories));
    }
}

/// The verbs in the order upstream lists them: sorted for built-in resources, not for custom ones.
fn verbs(resource: &Resource) -> Vec<&str> {
    const CUSTOM: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    if resource.custom {
        CUSTOM.into_iter().filter(|verb| resource.serves(verb)).collect()
    } else {
        resource.verbs.iter().map(|verb| &**verb).collect()
    }
}

/// The subresources in the order upstream lists them: custom resources have `status` before `scale`.
fn subresources(resource: &Resource) -> impl Iterator<Item = &Subresource> {
    let mut subs: Vec<&Subresource> = resource.subresources.iter().collect();
    if resource.custom {
        subs.sort_by_key(|sub| &*sub.name != "status");
    }
    subs.into_iter()
}

/// Where a subresource's kind lives. The kinds that several groups borrow live in one of their own.
pub fn subresource_group_version(sub: &Subresource) -> (&str, &str) {
    match &*sub.kind {
        "Scale" => ("autoscaling", "v1"),
        "Eviction" => ("policy", "v1"),
        "TokenRequest" => ("authentication.k8s.io", "v1"),
        _ => (&sub.group, &sub.version),
    }
}

fn is_stored(resource: &Resource) -> bool {
    resource.serves("create") && resource.serves("get")
}

/// Tells clients apart which versions are stored the same way. Upstream hashes the group, version and kind
/// objects are stored as.
fn storage_version_hash(resource: &Resource, group: &Group<'_>) -> String {
    let (stored_group, version) = match (group.name, &*resource.plural) {
        // Events of both groups are the same objects.
        ("events.k8s.io", "events") => ("", "v1"),
        (name, plural) => {
            let serves = |v: &&Version<'_>| v.resources.iter().any(|r| &*r.plural == plural);
            (name, group.versions.iter().find(serves).map_or(&*resource.version, |v| v.name))
        }
    };
    let digest = Sha256::digest(format!("{stored_group}/{version}/{}", resource.kind));
    STANDARD.encode(&digest[..8])
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Where upstream puts a group in the list (its `GroupPriorityMinimum`).
pub fn priority(group: &str) -> u32 {
    match group {
        "" => 30000,
        "apiregistration.k8s.io" => 20000,
        "apps" => 17800,
        "events.k8s.io" => 17750,
        "authentication.k8s.io" => 17700,
        "authorization.k8s.io" => 17600,
        "autoscaling" => 17500,
        "batch" => 17400,
        "certificates.k8s.io" => 17300,
        "networking.k8s.io" => 17200,
        "policy" => 17100,
        "rbac.authorization.k8s.io" => 17000,
        "storage.k8s.io" => 16800,
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" => 16700,
        "scheduling.k8s.io" => 16600,
        "coordination.k8s.io" => 16500,
        "node.k8s.io" => 16300,
        "discovery.k8s.io" | "resource.k8s.io" => 16200,
        "flowcontrol.apiserver.k8s.io" => 16100,
        _ => CUSTOM_PRIORITY,
    }
}

#[cfg(test)]
mod tests;
