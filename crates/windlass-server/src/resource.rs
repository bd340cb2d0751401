//! What a resource is: its names, verbs, schema, columns and where it is stored.
//!
//! Built-in resources come from `facts/resources-1.36.json`; a CRD contributes one [`Resource`] per
//! served version. Everything the server does with a request starts from one of these.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::schema::{Schema, SchemaRef, builtin};
use crate::status::Qualified;

/// One served resource in one API version.
#[derive(Debug, Clone)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Box<str>,
    /// The API version.
    pub version: Box<str>,
    /// The plural name, as in paths.
    pub plural: Box<str>,
    /// The singular name.
    pub singular: Box<str>,
    /// The kind.
    pub kind: Box<str>,
    /// The kind of a list of these.
    pub list_kind: Box<str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Short names for kubectl.
    pub short_names: Vec<Box<str>>,
    /// Categories for kubectl, e.g. `all`.
    pub categories: Vec<Box<str>>,
    /// The verbs served on the resource itself.
    pub verbs: Vec<Box<str>>,
    /// Subresources, in name order.
    pub subresources: Vec<Subresource>,
    /// The schema of the kind.
    pub schema: SchemaRef,
    /// The columns of a Table.
    pub columns: Vec<Column>,
    /// Whether this is a custom resource.
    pub custom: bool,
    /// The prefix of its keys in the store, ending in `/`: upstream's layout.
    pub prefix: Box<str>,
}

/// A subresource such as `status` or `scale`.
#[derive(Debug, Clone)]
pub struct Subresource {
    /// Its name in paths.
    pub name: Box<str>,
    /// The group of its kind; empty for the core group.
    pub group: Box<str>,
    /// The version of its kind.
    pub version: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// The verbs it serves.
    pub verbs: Vec<Box<str>>,
}

/// One column of a Table.
#[derive(Debug, Clone, Deserialize)]
pub struct Column {
    /// The heading.
    pub name: Box<str>,
    /// The OpenAPI type of the cells.
    #[serde(rename = "type")]
    pub ty: Box<str>,
    /// The format; `name` marks the object's name.
    #[serde(default)]
    pub format: Box<str>,
    /// What the column shows.
    #[serde(default)]
    pub description: Box<str>,
    /// 0 is always shown; more only with `-o wide`.
    #[serde(default)]
    pub priority: i32,
    /// Where a custom resource's cell comes from.
    #[serde(skip)]
    pub json_path: Option<Box<str>>,
}

/// The Go package of a group's internal types, which some errors name.
pub(crate) fn internal_package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or(group),
    }
}

impl Resource {
    /// `group/version`, or just `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The resource as errors about objects name it: `deployments.apps`.
    pub fn qualified(&self) -> Qualified<'_> {
        Qualified { group: &self.group, name: &self.plural }
    }

    /// The kind as validation errors name it: `Deployment.apps`.
    pub fn qualified_kind(&self) -> Qualified<'_> {
        Qualified { group: &self.group, name: &self.kind }
    }

    /// Whether another resource goes by the same names.
    pub fn has_names_of(&self, other: &Self) -> bool {
        self.plural == other.plural
            && self.singular == other.singular
            && self.kind == other.kind
            && self.list_kind == other.list_kind
            && self.short_names == other.short_names
            && self.categories == other.categories
    }

    /// The schema of the kind.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The subresource called `name`.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| &*s.name == name)
    }

    /// Whether the resource serves `verb`.
    pub fn serves(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| &**v == verb)
    }

    /// The key of one object.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{}{namespace}/{name}", self.prefix) } else { format!("{}{name}", self.prefix) }
    }
}

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
        schema,
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
    fn every_stored_builtin_has_a_schema_and_prefixes_are_told_apart() {
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
