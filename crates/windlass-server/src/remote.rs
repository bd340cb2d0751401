//! The group versions that other servers serve: APIServices with a Service.
//!
//! ```text
//! request ▸ authn ▸ authz ▸ Remotes of the catalog's snapshot ▸ proxy ▸ Backend: resolve, dial, TLS ▸ the other server
//! ```
//!
//! [`Remotes`] is a value: the aggregator makes a new one when an APIService or what is known about its server changes.
//! Nothing here looks at APIServices or decides whether a server is available. Mirrors `handler_proxy.go` and
//! `handler_discovery.go` of `kube-aggregator/pkg/apiserver`.

mod backend;
mod discovery;
mod front_proxy;
mod openapi;
mod proxy;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

pub(crate) use backend::{Backend, Fetched, url};
pub(crate) use discovery::{merge_aggregated, merge_group, merge_groups, version_of_legacy};
pub(crate) use front_proxy::FrontProxy;
pub(crate) use openapi::{CONVERTED, additions, converted, converted_document, filtered, merge_index};
pub(crate) use proxy::{Incoming, serve};

/// The group versions that other servers serve at one moment, by the names of their APIServices.
#[derive(Default)]
pub struct Remotes {
    by_name: BTreeMap<String, Arc<Remote>>,
}

/// A group version that another server serves.
pub(crate) struct Remote {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) group_priority: u32,
    pub(crate) version_priority: u32,
    /// Whether its APIService says that it is available.
    pub(crate) is_available: bool,
    pub(crate) backend: Arc<Backend>,
    pub(crate) known: Known,
}

/// What another server has said about a group version.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Known {
    /// The version's entry in the aggregated discovery document, as far as it is known.
    pub(crate) discovery: Option<Value>,
    /// Whether the server said so when it was asked last.
    pub(crate) is_fresh: bool,
    /// The paths of its OpenAPI v3 index.
    pub(crate) openapi_v3: Map<String, Value>,
    /// The part of its OpenAPI v2 document that is about the group version.
    pub(crate) openapi_v2: Option<Arc<Value>>,
}

impl Remotes {
    pub(crate) fn new(remotes: impl IntoIterator<Item = Remote>) -> Self {
        let named = |remote: Remote| (format!("{}.{}", remote.version, remote.group), Arc::new(remote));
        Self { by_name: remotes.into_iter().map(named).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// All of them, by the names of their APIServices.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Remote> {
        self.by_name.values().map(|remote| &**remote)
    }

    /// What serves a group version, if another server does.
    pub(crate) fn find(&self, group: &str, version: &str) -> Option<&Arc<Remote>> {
        if self.by_name.is_empty() {
            return None;
        }
        self.by_name.get(&format!("{version}.{group}"))
    }

    /// Whether another server serves a version of the group.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.all().any(|remote| remote.group == group)
    }

    /// What has the OpenAPI v3 document called `path`, such as `apis/metrics.k8s.io/v1beta1`.
    pub(crate) fn with_openapi_v3(&self, path: &str) -> Option<&Arc<Remote>> {
        self.by_name.values().find(|remote| remote.known.openapi_v3.contains_key(path))
    }
}
