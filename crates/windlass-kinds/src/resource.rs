//! The built-in resources, from `facts/resources-1.36.json`.

use std::sync::LazyLock;

use serde::Deserialize;
pub use windlass_api::resource::{Column, MakeSchema, Resource, ResourceSchema, Subresource, internal_package};

use crate::schema::{Schema, SchemaRef, builtin};

/// Every built-in resource, in the order of the facts table (group/version, then plural).
pub fn builtins() -> &'static [Resource] {
    &BUILTINS
}

#[derive(Deserialize)]
struct Facts {
    resources: std::collections::BTreeMap<String, std::collections::BTreeMap<Box<str>, RawResource>>,
    #[serde(rename = "tableColumns")]
    columns: std::collections::BTreeMap<String, Vec<Column>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResource {
    kind: Box<str>,
    scope: String,
    singular: Box<str>,
    verbs: Vec<Box<str>>,
    #[serde(default)]
    short_names: Vec<Box<str>>,
    #[serde(default)]
    categories: Vec<Box<str>>,
    #[serde(default)]
    subresources: Vec<RawSubresource>,
}

#[derive(Deserialize)]
struct RawSubresource {
    name: Box<str>,
    kind: Box<str>,
    verbs: Vec<Box<str>>,
    #[serde(default)]
    group: Option<Box<str>>,
    #[serde(default)]
    version: Option<Box<str>>,
}

static FACTS: &str = include_str!("../facts/resources-1.36.json");

static BUILTINS: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let mut facts: Facts = serde_json::from_str(FACTS).expect("invariant: the embedded facts table is well-formed");
    let mut out = Vec::new();
    for (group_version, resources) in facts.resources {
        let (group, version) = group_version.split_once('/').expect("invariant: facts name group/version");
        let group = if group == "core" { "" } else { group };
        for (plural, raw) in resources {
            let columns = facts.columns.remove(&format!("{group_version}/{plural}")).unwrap_or_default();
            out.push(convert(group, version, plural, raw, columns));
        }
    }
    out
});

fn convert(group: &str, version: &str, plural: Box<str>, raw: RawResource, columns: Vec<Column>) -> Resource {
    let schema = builtin::by_kind(group, version, &raw.kind)
        .map_or_else(|| Schema::default().into(), |id| SchemaRef::Definition { id, always: false });
    let subresources = raw
        .subresources
        .into_iter()
        .map(|s| Subresource {
            group: s.group.unwrap_or_else(|| group.into()),
            version: s.version.unwrap_or_else(|| version.into()),
            name: s.name,
            kind: s.kind,
            verbs: s.verbs,
        })
        .collect();
    Resource {
        group: group.into(),
        version: version.into(),
        prefix: storage_prefix(group, &plural).into(),
        list_kind: format!("{}List", raw.kind).into(),
        singular: raw.singular,
        kind: raw.kind,
        namespaced: raw.scope == "Namespaced",
        short_names: raw.short_names,
        categories: raw.categories,
        verbs: raw.verbs,
        subresources,
        schema: schema.into(),
        columns,
        custom: false,
        plural,
    }
}

/// Where upstream keeps a resource in etcd. Both `events` resources are the same objects.
fn storage_prefix(group: &str, plural: &str) -> String {
    match (group, plural) {
        ("", "nodes") => "/registry/minions/".into(),
        ("", "endpoints") => "/registry/services/endpoints/".into(),
        ("", "services") => "/registry/services/specs/".into(),
        ("networking.k8s.io", "ingresses") => "/registry/ingress/".into(),
        ("policy", "poddisruptionbudgets") => "/registry/poddisruptionbudgets/".into(),
        ("events.k8s.io", "events") => "/registry/events/".into(),
        ("coordination.k8s.io", "leases") => "/registry/leases/".into(),
        ("apiextensions.k8s.io" | "apiregistration.k8s.io", _) => format!("/registry/{group}/{plural}/"),
        _ => format!("/registry/{plural}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_kinds_have_schemas_and_distinct_prefixes() {
        let mut seen = std::collections::HashMap::new();
        for resource in builtins() {
            if resource.serves("get") {
                assert!(!resource.schema().properties.is_empty(), "{} has no schema", resource.kind);
                let owner = seen.entry(resource.prefix.clone()).or_insert_with(|| resource.kind.clone());
                assert_eq!(*owner, resource.kind, "two kinds share {}", resource.prefix);
            }
        }
        assert!(seen.len() > 50);
    }
}
