//! What the functions that wake a controller can reach.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Enqueuer;
use super::context::Shared;
use crate::cache::Lister;
use crate::client::CachedClient;
use crate::object::TypedObject;

/// What the map functions and [sources](super::Controller::source) of a controller can reach: the client, the
/// caches, the controller's queue, and the signal to stop. Cheap to clone.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Node};
/// use windlass::{Controller, ObjectKey};
///
/// // A node wakes every ConfigMap of its zone.
/// let controller = Controller::<ConfigMap>::new("settings").watches(|node: &Node, ctx| {
///     let labels = node.metadata.labels.as_ref();
///     let zone = labels.and_then(|labels| labels.get("topology.kubernetes.io/zone")).cloned().unwrap_or_default();
///     let maps = ctx.lister::<ConfigMap>().labelled("zone", &zone);
///     maps.iter().map(|map| ObjectKey::of(&**map)).collect::<Vec<_>>()
/// });
/// ```
#[derive(Debug, Clone)]
pub struct SourceContext {
    shared: Arc<Shared>,
    enqueuer: Enqueuer,
}

impl SourceContext {
    pub(super) fn new(shared: Arc<Shared>, enqueuer: Enqueuer) -> Self {
        Self { shared, enqueuer }
    }

    /// The controller's client: cached reads, live reads, and writes that stop with the lease. (The sources of a
    /// [sharded](crate::shard) controller run in every replica, and belong to no shard: their writes are not
    /// fenced.)
    pub fn client(&self) -> &CachedClient {
        &self.shared.client
    }

    /// The client of another cluster of the manager, by the name it was
    /// [added](crate::Manager::add_cluster) under.
    pub fn cluster(&self, name: &str) -> Option<&CachedClient> {
        self.shared.cluster(name)
    }

    /// Reads a kind from the cache without waiting. Of its own kind, a controller sees the objects that are in its
    /// [scope](super::Controller::scope).
    ///
    /// A kind that nothing watches yet is watched from the first call on, and the lister is empty until it has been
    /// listed. To have a kind in the cache before the controller starts, watch it, if only with
    /// `.watches(|_: &Node, _| None)`.
    pub fn lister<K: TypedObject>(&self) -> Lister<K> {
        let part = self.shared.part::<K>(&K::DynamicType::default());
        part.cloned().unwrap_or_else(|| self.shared.client.lister())
    }

    /// Puts keys in the controller's queue, now or later, with a priority.
    pub fn enqueuer(&self) -> &Enqueuer {
        &self.enqueuer
    }

    /// Cancelled when the controller stops. The stream of a source is dropped then; tasks of its own must end by
    /// themselves.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shared.shutdown
    }

    /// The name of the controller.
    pub fn controller(&self) -> &str {
        &self.shared.controller
    }
}
