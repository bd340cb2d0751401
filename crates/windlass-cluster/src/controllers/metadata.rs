//! The part of an object that controllers over all kinds need: who it is, who owns it, and what
//! stands in the way of its deletion. Everything else is neither asked for nor kept.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use kube::api::ApiResource;
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Serialize};

/// An object of any kind, reduced to a few fields of its metadata.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Wire")]
pub(crate) struct Metadata {
    pub(crate) metadata: ObjectMeta,
}

impl Metadata {
    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn finalizers(&self) -> &[String] {
        self.metadata.finalizers.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl Resource for Metadata {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        true
    }

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }

    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }

    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }

    fn api_version(dt: &ApiResource) -> Cow<'_, str> {
        dt.api_version.as_str().into()
    }

    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl From<Wire> for Metadata {
    fn from(wire: Wire) -> Self {
        let wire = wire.metadata;
        Self {
            metadata: ObjectMeta {
                name: wire.name,
                namespace: wire.namespace,
                uid: wire.uid,
                resource_version: wire.resource_version,
                deletion_timestamp: wire.deletion_timestamp,
                deletion_grace_period_seconds: wire.deletion_grace_period_seconds,
                finalizers: wire.finalizers.filter(|list| !list.is_empty()),
                owner_references: wire.owner_references.filter(|list| !list.is_empty()),
                ..ObjectMeta::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Metadata;

    #[test]
    fn only_what_is_needed_is_kept() {
        let object: Metadata = serde_json::from_value(serde_json::json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {
                "name": "a", "namespace": "d", "uid": "1", "labels": {"a": "b"}, "annotations": {"a": "b"},
                "managedFields": [{"manager": "x"}], "finalizers": ["f"], "ownerReferences": [],
            },
        }))
        .expect("readable");
        assert_eq!((object.uid(), object.finalizers()), ("1", &["f".to_owned()][..]));
        assert!(object.metadata.labels.is_none() && object.metadata.owner_references.is_none());
        assert!(!object.is_deleting());
    }
}
