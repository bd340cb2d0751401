//! The stages of a cluster, ready to be used, and which objects they lead.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use serde_json::{Value, json};
use windlass::Manager;
use windlass::cache::Lister;

use super::functions::Names;
use crate::objects::{self, ResourceRef};
use crate::stage::Stage;

/// The stages of a cluster, ready to be used. Clones are the same.
#[derive(Clone)]
pub struct Stages {
    inner: Arc<Inner>,
}

/// A stage and the version that it was compiled from; `None` if it cannot be used.
type Compiled = (String, Option<Arc<Stage>>);

struct Inner {
    lister: Lister<objects::Stage>,
    /// By name.
    compiled: Mutex<HashMap<String, Compiled>>,
}

impl std::fmt::Debug for Stages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stages").finish_non_exhaustive()
    }
}

/// The group and version of a kind, `v1` if it is not set.
fn api_version(about: &ResourceRef) -> &str {
    if about.api_group.is_empty() { "v1" } else { &about.api_group }
}

impl Stages {
    /// The stages that a manager watches.
    pub fn new(manager: &Manager) -> Self {
        Self { inner: Arc::new(Inner { lister: manager.lister(), compiled: Mutex::default() }) }
    }

    /// The kinds that there are stages for: group and version, and kind.
    pub(super) fn kinds(&self) -> BTreeSet<(String, String)> {
        let kinds = self.inner.lister.list();
        kinds
            .iter()
            .map(|stage| &stage.spec.resource_ref)
            .map(|about| (api_version(about).to_owned(), about.kind.clone()))
            .collect()
    }

    /// Those for a kind, by name.
    pub(super) fn of(&self, version: &str, kind: &str) -> Vec<Arc<Stage>> {
        if self.inner.lister.is_empty() {
            return Vec::new();
        }
        let mut stages: Vec<Arc<Stage>> = Vec::new();
        let mut compiled = self.inner.compiled.lock();
        for stage in self.inner.lister.list() {
            let about = &stage.spec.resource_ref;
            if about.kind != kind || api_version(about) != version {
                continue;
            }
            let name = stage.metadata.name.clone().unwrap_or_default();
            let version = stage.metadata.resource_version.clone().unwrap_or_default();
            let entry = compiled.entry(name.clone()).or_default();
            if entry.0 != version || version.is_empty() {
                let read = Stage::compile(&name, &stage.spec, &Names).unwrap_or_else(|error| {
                    tracing::warn!(stage = %name, %error, "a stage cannot be used");
                    None
                });
                *entry = (version, read.map(Arc::new));
            }
            stages.extend(entry.1.clone());
        }
        drop(compiled);
        stages.sort_by(|left, right| left.name().cmp(right.name()));
        stages
    }

    /// Whether a pod is led by stages: one is for it as it was when it was bound. What has become of it since does not
    /// matter, so that a restart changes nothing.
    pub fn lead(&self, pod: &Pod) -> bool {
        let stages = self.of("v1", "Pod");
        if stages.is_empty() {
            return false;
        }
        let Ok(mut object) = serde_json::to_value(pod) else { return false };
        object["status"] = json!({"phase": "Pending"});
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("deletionTimestamp");
        }
        stages.iter().any(|stage| stage.matches(&object))
    }

    /// Whether the conditions of a node are left to stages: one is for it as it was when it was created, or when it was Ready.
    pub fn lead_node(&self, node: &Node) -> bool {
        let stages = self.of("v1", "Node");
        if stages.is_empty() {
            return false;
        }
        let Ok(mut object) = serde_json::to_value(node) else { return false };
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        [json!({}), ready].into_iter().any(|status| {
            object["status"] = status;
            stages.iter().any(|stage| stage.matches(&object))
        })
    }
}

/// Shows a node to stages as kwok's own would be: one that was Ready is in the phase `Running`, which no kubelet reports.
pub(super) fn complete_node(object: &mut Value, node: &Node) {
    let Some(status) = &node.status else { return };
    if status.phase.is_none() && status.conditions.as_ref().is_some_and(|conditions| !conditions.is_empty()) {
        object["status"]["phase"] = "Running".into();
    }
}
