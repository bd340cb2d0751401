//! What a resource is: its names, verbs, schema, columns and where it is stored.
//!
//! The built-in ones come from a table of facts (`windlass-kinds`); a CRD contributes one [`Resource`] per served version.
//! Everything the server does with a request starts from one of these.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use serde::Deserialize;

use crate::schema::{Schema, SchemaRef};
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
    pub schema: ResourceSchema,
    /// The columns of a Table.
    pub columns: Vec<Column>,
    /// Whether this is a custom resource.
    pub custom: bool,
    /// The prefix of its keys in the store, ending in `/`: upstream's layout.
    pub prefix: Box<str>,
}

/// The schema of a resource's kind.
#[derive(Debug, Clone)]
pub enum ResourceSchema {
    /// It is there.
    Fixed(SchemaRef),
    /// It is made when it is needed.
    Made(Arc<dyn MakeSchema>),
}

/// What makes the schema of a resource, of which there may be many.
pub trait MakeSchema: Debug + Send + Sync {
    /// The schema, which is kept for a while.
    fn schema(&self) -> Arc<Schema>;

    /// The schema for one use: it is not kept.
    fn schema_once(&self) -> Arc<Schema>;

    /// A digest of what the schema is made of, and of the names that its resource has.
    fn digest(&self) -> [u8; 32];
}

impl From<SchemaRef> for ResourceSchema {
    fn from(schema: SchemaRef) -> Self {
        Self::Fixed(schema)
    }
}

impl From<Schema> for ResourceSchema {
    fn from(schema: Schema) -> Self {
        Self::Fixed(schema.into())
    }
}

/// A schema that is held while it is used.
#[derive(Debug)]
pub enum HeldSchema<'a> {
    /// One that stays.
    Fixed(&'a Schema),
    /// One that may be dropped by everything else meanwhile.
    Made(Arc<Schema>),
}

impl Deref for HeldSchema<'_> {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            Self::Fixed(schema) => schema,
            Self::Made(schema) => schema,
        }
    }
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
pub fn internal_package(group: &str) -> &str {
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
    pub fn schema(&self) -> HeldSchema<'_> {
        match &self.schema {
            ResourceSchema::Fixed(schema) => HeldSchema::Fixed(schema),
            ResourceSchema::Made(source) => HeldSchema::Made(source.schema()),
        }
    }

    /// The schema of the kind for one use, such as a document: it is not kept.
    pub fn schema_once(&self) -> HeldSchema<'_> {
        match &self.schema {
            ResourceSchema::Fixed(schema) => HeldSchema::Fixed(schema),
            ResourceSchema::Made(source) => HeldSchema::Made(source.schema_once()),
        }
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

/// Kubernetes' order of versions: `v2` > `v1` > `v2beta1` > `v1alpha1` > anything else, of which the
/// alphabetically first is greatest.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Stability (2 stable, 1 beta, 0 alpha), major, minor.
fn parse_version(text: &str) -> Option<(u8, u64, u64)> {
    let number = |digits: &str| {
        // Go's Atoi would take a sign; the pattern it is applied to does not.
        if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse::<u64>().ok() } else { None }
    };
    let rest = text.strip_prefix('v')?;
    for (word, stability) in [("alpha", 0), ("beta", 1)] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((stability, number(major)?, number(minor)?));
        }
    }
    Some((2, number(rest)?, 0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versions_sort_by_stability_then_number() {
        let mut versions = vec!["v1alpha1", "foo", "v2beta1", "v1", "v10", "v2", "bar", "v1beta2", "v1beta10"];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta10", "v1beta2", "v1alpha1", "bar", "foo"]);
        for bad in ["v", "1", "v1gamma1", "v1beta", "vbeta1", "v1beta1x", "v+1", "v99999999999999999999999"] {
            assert_eq!(compare_versions(bad, "v1alpha1"), Ordering::Less, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn versions_are_in_a_total_order(
            [a, b, c] in proptest::array::uniform3("v?[0-3]{0,2}(alpha|beta)?[0-2]{0,2}x?"),
        ) {
            prop_assert_eq!(compare_versions(&a, &b), compare_versions(&b, &a).reverse());
            if compare_versions(&a, &b).is_le() && compare_versions(&b, &c).is_le() {
                prop_assert!(compare_versions(&a, &c).is_le());
                let equal = compare_versions(&a, &b).is_eq() && compare_versions(&b, &c).is_eq();
                prop_assert_eq!(compare_versions(&a, &c).is_eq(), equal);
            }
        }
    }
}
