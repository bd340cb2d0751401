//! Which definitions a document needs, what they are called, and which kinds they stand for.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::discovery::subresource_group_version;
use crate::resource::{Resource, builtins};
use crate::schema::{Rules, Schema, builtin};

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
pub(super) const RESOURCE_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// Group, version and kind.
pub(super) type Gvk<'a> = (&'a str, &'a str, &'a str);

pub(super) fn gvk_value((group, version, kind): Gvk<'_>) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

/// The definition of a resource's kind.
pub(super) fn kind_name(resource: &Resource) -> String {
    name(resource, &resource.kind)
}

/// The definition of a list of a resource's kind.
pub(super) fn list_name(resource: &Resource) -> String {
    name(resource, &resource.list_kind)
}

fn name(resource: &Resource, kind: &str) -> String {
    if let Some(id) = (!resource.custom).then(|| builtin::by_kind(&resource.group, &resource.version, kind)).flatten() {
        return builtin::definition(id).name.unwrap_or_default().to_owned();
    }
    let mut parts: Vec<&str> = resource.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{kind}", parts.join("."), resource.version)
}

/// The built-in definitions that resources refer to, directly or through others, in name order.
pub(super) fn referenced<'a>(resources: impl IntoIterator<Item = &'a Resource>) -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    for meta in [OBJECT_META, LIST_META, STATUS, PATCH, DELETE_OPTIONS, RESOURCE_LIST, WATCH_EVENT] {
        add(meta, &mut names);
    }
    for resource in resources {
        // All that custom schemas refer to is the metadata of objects.
        if !resource.custom {
            add(&kind_name(resource), &mut names);
            add(&list_name(resource), &mut names);
        }
        for sub in &resource.subresources {
            let (group, version) = subresource_group_version(sub);
            if let Some(id) = builtin::by_kind(group, version, &sub.kind) {
                add(builtin::definition(id).name.unwrap_or_default(), &mut names);
            }
        }
    }
    names
}

fn add(name: &str, names: &mut BTreeSet<&'static str>) {
    let Some(schema) = builtin::by_name(name).map(builtin::definition) else { return };
    if schema.name.is_some_and(|name| names.insert(name)) {
        collect(schema, names);
    }
}

fn collect(schema: &Schema, names: &mut BTreeSet<&'static str>) {
    let below = schema.properties.values().chain(&schema.additional).chain(&schema.items);
    for reference in below {
        // A definition, or a copy of one, is written as a reference to it.
        match reference.name {
            Some(name) => add(name, names),
            None => collect(reference, names),
        }
    }
    if let Some(Rules { all_of, any_of, one_of, not, .. }) = schema.rules.as_deref() {
        for nested in all_of.iter().chain(any_of).chain(one_of).chain(not.as_deref()) {
            collect(nested, names);
        }
    }
}

/// The kinds a built-in definition stands for in a document about `group_versions`.
pub(super) fn kinds_of<'a>(name: &str, group_versions: &[(&'a str, &'a str)]) -> Vec<Gvk<'a>> {
    let (_, kind) = name.rsplit_once('.').unwrap_or_default();
    match name {
        // These belong to every group version that uses them.
        DELETE_OPTIONS | WATCH_EVENT => {
            let kind = if kind == "WatchEvent" { "WatchEvent" } else { "DeleteOptions" };
            let others = group_versions.iter().filter(|gv| **gv != ("", "v1"));
            std::iter::once(("", "v1", kind)).chain(others.map(|(group, version)| (*group, *version, kind))).collect()
        }
        _ => KINDS.get(name).cloned().unwrap_or_default(),
    }
}

static KINDS: LazyLock<HashMap<&'static str, Vec<Gvk<'static>>>> = LazyLock::new(|| {
    let mut kinds: HashMap<&'static str, Vec<Gvk<'static>>> = HashMap::new();
    let mut record = |group: &'static str, version: &'static str, kind: &'static str| {
        let Some(name) = builtin::by_kind(group, version, kind).and_then(|id| builtin::definition(id).name) else {
            return;
        };
        let known = kinds.entry(name).or_default();
        if !known.contains(&(group, version, kind)) {
            known.push((group, version, kind));
        }
    };
    for resource in builtins() {
        record(&resource.group, &resource.version, &resource.kind);
        record(&resource.group, &resource.version, &resource.list_kind);
        for sub in &resource.subresources {
            let (group, version) = subresource_group_version(sub);
            record(group, version, &sub.kind);
        }
    }
    for kind in ["Status", "APIGroup", "APIGroupList", "APIResourceList", "APIVersions"] {
        record("", "v1", kind);
    }
    kinds
});
