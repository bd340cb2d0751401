//! OpenAPI v3: an index, and one document per group version.

use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::definitions::{gvk_value, kind_name, kinds_of, list_name, referenced};
use super::descriptions::{DescribeDefinitions, Descriptions};
use super::render::{Renderer, custom_kind, custom_list};
use super::{Dialect, ObjectWriter, operations};
use crate::codec::gnostic;
use crate::resource::{Resource, ResourceSchema};
use crate::schema::builtin;
use crate::version::GIT_VERSION;

/// The content type of the protobuf form, as answers carry it.
pub const PROTOBUF_CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
/// The older name of the same, which clients ask for.
pub const PROTOBUF_OLD_TYPE: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// The path of a group version below `/openapi/v3/`: `api/v1`, `apis/apps/v1`.
pub fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3`: where the documents are, each with the [`fingerprint`] that lets clients cache it for ever.
pub fn index<'a>(documents: impl IntoIterator<Item = (&'a str, &'a str, String)>) -> Value {
    let paths: Map<String, Value> = documents
        .into_iter()
        .map(|(group, version, fingerprint)| {
            let path = path(group, version);
            let url = format!("/openapi/v3/{path}?hash={fingerprint}");
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({ "paths": paths })
}

/// What changes when the document of a group version does. Documents of built-in resources only change with the server,
/// those of custom resources with their CRDs, so they need not be built for it.
pub fn fingerprint(
    group: &str,
    version: &str,
    resources: &[&Resource],
    describe: Option<&DescribeDefinitions>,
) -> String {
    let described = if describe.is_some() { " described" } else { "" };
    let mut digest =
        Sha256::new_with_prefix(format!("{GIT_VERSION} {}{described} {group}/{version}", env!("CARGO_PKG_VERSION")));
    for resource in resources {
        match &resource.schema {
            ResourceSchema::Made(source) => digest.update(source.digest()),
            ResourceSchema::Fixed(_) if resource.custom => {
                digest.update(document(group, version, &[*resource], describe));
            }
            ResourceSchema::Fixed(_) => {}
        }
    }
    digest.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// The document of a group version, as JSON.
pub fn document(group: &str, version: &str, resources: &[&Resource], describe: Option<&DescribeDefinitions>) -> Bytes {
    let mut out = ObjectWriter::new(Vec::with_capacity(64 << 10));
    out.entry("openapi", &"3.0.0".into());
    out.entry("info", &json!({"title": "Kubernetes", "version": GIT_VERSION}));
    out.nested("paths", |paths| each_path(group, version, resources, |path, item| paths.entry(path, item)));
    out.nested("components", |components| {
        components.nested("schemas", |schemas| {
            each_schema(group, version, resources, describe, |name, schema| schemas.entry(name, schema));
        });
        let bearer = json!({
            "type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication",
        });
        components.entry("securitySchemes", &json!({ "BearerToken": bearer }));
    });
    out.finish().into()
}

/// The document of a group version, as a `gnostic` protobuf message.
pub fn protobuf(group: &str, version: &str, resources: &[&Resource], describe: Option<&DescribeDefinitions>) -> Bytes {
    let mut document = gnostic::v3::Document::new("Kubernetes", GIT_VERSION);
    each_path(group, version, resources, |path, item| document.path(path, item));
    each_schema(group, version, resources, describe, |name, schema| document.schema(name, schema));
    document.finish().into()
}

fn each_path(group: &str, version: &str, resources: &[&Resource], mut visit: impl FnMut(&str, &Value)) {
    let (path, item) = operations::resource_list(group, version, Dialect::V3);
    visit(&path, &item);
    for (path, item) in resources.iter().flat_map(|resource| operations::paths(resource, Dialect::V3)) {
        visit(&path, &item);
    }
}

fn each_schema(
    group: &str,
    version: &str,
    resources: &[&Resource],
    describe: Option<&DescribeDefinitions>,
    mut visit: impl FnMut(&str, &Value),
) {
    let renderer = Renderer::builtin(Dialect::V3);
    let names = referenced(resources.iter().copied());
    let descriptions = Descriptions::of(describe, &names);
    for name in names {
        let Some(id) = builtin::by_name(name) else { continue };
        let mut schema = renderer.schema(builtin::definition(id));
        descriptions.add(name, Dialect::V3, &mut schema);
        let kinds = kinds_of(name, &[(group, version)]);
        if !kinds.is_empty() {
            schema.insert("x-kubernetes-group-version-kind".into(), kinds.into_iter().map(gvk_value).collect());
        }
        visit(name, &schema.into());
    }
    for resource in resources.iter().filter(|resource| resource.custom) {
        visit(&kind_name(resource), &custom_kind(resource, Dialect::V3));
        visit(&list_name(resource), &custom_list(resource, Dialect::V3));
    }
}
