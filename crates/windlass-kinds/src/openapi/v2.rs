//! OpenAPI v2: one document about everything, in JSON and in the protobuf form that client-go insists on.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::{Value, json};

use super::definitions::{gvk_value, kind_name, kinds_of, list_name, referenced};
use super::descriptions::{DescribeDefinitions, Descriptions};
use super::render::{Renderer, custom_kind, custom_list};
use super::{Dialect, ObjectWriter, operations};
use crate::codec::gnostic;
use crate::discovery::Discovery;
use crate::resource::Resource;
use crate::schema::builtin;
use crate::version::GIT_VERSION;

/// The content type of the protobuf form. What clients ask for has an `@` in it, which Go's own parser of
/// content types refuses in an answer.
pub const PROTOBUF_CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The name by which clients ask for it.
pub const PROTOBUF_OLD_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Parts of the document about what other servers serve.
#[derive(Default)]
pub struct Additions {
    /// Their paths.
    pub paths: BTreeMap<String, Value>,
    /// Their definitions, whose names are none of this server's.
    pub definitions: BTreeMap<String, Value>,
}

/// The document as JSON.
pub fn json<'a>(
    resources: impl IntoIterator<Item = &'a Resource>,
    additions: &Additions,
    describe: Option<&DescribeDefinitions>,
) -> Bytes {
    let discovery = Discovery::new(resources);
    let mut out = ObjectWriter::new(Vec::with_capacity(1 << 20));
    out.entry("swagger", &"2.0".into());
    out.entry("info", &json!({"title": "Kubernetes", "version": GIT_VERSION}));
    out.nested("paths", |paths| {
        each_path(&discovery, |path, item| paths.entry(path, item));
        additions.paths.iter().for_each(|(path, item)| paths.entry(path, item));
    });
    out.nested("definitions", |all| {
        each_definition(&discovery, describe, |name, schema| all.entry(name, schema));
        additions.definitions.iter().for_each(|(name, schema)| all.entry(name, schema));
    });
    let bearer = json!({
        "type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication",
    });
    out.entry("securityDefinitions", &json!({ "BearerToken": bearer }));
    out.entry("security", &json!([{"BearerToken": []}]));
    out.finish().into()
}

/// The document as a `gnostic` protobuf message.
pub fn protobuf<'a>(
    resources: impl IntoIterator<Item = &'a Resource>,
    additions: &Additions,
    describe: Option<&DescribeDefinitions>,
) -> Bytes {
    let discovery = Discovery::new(resources);
    let mut document = gnostic::Document::new("Kubernetes", GIT_VERSION);
    each_path(&discovery, |path, item| document.path(path, item));
    additions.paths.iter().for_each(|(path, item)| document.path(path, item));
    each_definition(&discovery, describe, |name, schema| document.definition(name, schema));
    additions.definitions.iter().for_each(|(name, schema)| document.definition(name, schema));
    document.finish().into()
}

/// The definitions that have one of these names.
pub fn definitions<'a>(
    resources: impl IntoIterator<Item = &'a Resource>,
    names: &BTreeSet<String>,
    describe: Option<&DescribeDefinitions>,
) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    if !names.is_empty() {
        each_definition(&Discovery::new(resources), describe, |name, schema| {
            if names.contains(name) {
                found.insert(name.to_owned(), schema.clone());
            }
        });
    }
    found
}

fn each_path(discovery: &Discovery<'_>, mut visit: impl FnMut(&str, &Value)) {
    for (group, version, resources) in discovery.group_versions() {
        let (path, item) = operations::resource_list(group, version, Dialect::V2);
        visit(&path, &item);
        for resource in resources {
            for (path, item) in operations::paths(resource, Dialect::V2) {
                visit(&path, &item);
            }
        }
    }
}

fn each_definition(
    discovery: &Discovery<'_>,
    describe: Option<&DescribeDefinitions>,
    mut visit: impl FnMut(&str, &Value),
) {
    let group_versions: Vec<(&str, &str)> =
        discovery.group_versions().map(|(group, version, _)| (group, version)).collect();
    let resources = || discovery.group_versions().flat_map(|(_, _, resources)| resources.iter().copied());
    let renderer = Renderer::builtin(Dialect::V2);
    let names = referenced(resources());
    let descriptions = Descriptions::of(describe, &names);
    for name in names {
        let Some(id) = builtin::by_name(name) else { continue };
        let mut schema = renderer.schema(builtin::definition(id));
        descriptions.add(name, Dialect::V2, &mut schema);
        let kinds = kinds_of(name, &group_versions);
        if !kinds.is_empty() {
            schema.insert("x-kubernetes-group-version-kind".into(), kinds.into_iter().map(gvk_value).collect());
        }
        visit(name, &schema.into());
    }
    for resource in resources().filter(|resource| resource.custom) {
        visit(&kind_name(resource), &custom_kind(resource, Dialect::V2));
        visit(&list_name(resource), &custom_list(resource, Dialect::V2));
    }
}
