//! A controller that can run: what it needs from its manager, and what it must be allowed.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::panics::Health;
use super::reconcile::AnyReconciler;
use super::source::Source;
use super::{Enqueuer, Options, Permits, worker};
use crate::client::CachedClient;
use crate::events::{Broadcaster, Recorder};
use crate::informer::SyncError;
use crate::lease::{Fence, InvalidElection};
use crate::metrics::Registry;
use crate::rbac::{READ, Rules};
use crate::remote_cluster::RemoteCluster;

/// A controller with its reconciler. Give it to [`Manager::add`](crate::Manager::add).
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::controller::{CompleteController, Controller, from_fn};
/// use windlass::Outcome;
///
/// /// What an operator's library offers to the program that builds the manager.
/// pub fn controller() -> CompleteController {
///     Controller::<ConfigMap>::new("settings").complete(from_fn(|_map, _ctx| async { Ok(Outcome::Done) }))
/// }
/// ```
#[must_use = "a controller does nothing before it is added to a manager"]
pub struct CompleteController {
    pub(super) name: Arc<str>,
    pub(super) sources: Arc<[Box<dyn Source>]>,
    pub(super) options: Options,
    pub(super) reconciler: Arc<dyn AnyReconciler>,
    pub(super) enqueuer: Enqueuer,
    pub(super) cluster: Option<RemoteCluster>,
    /// What sends its requests in the manager's own cluster, if that is not the manager's client.
    pub(crate) client: Option<CachedClient>,
    pub(super) permits: Permits,
    pub(super) health: Health,
}

impl std::fmt::Debug for CompleteController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompleteController")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What a controller needs from its manager.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    pub(crate) client: CachedClient,
    /// The other clusters of the manager.
    pub(crate) clusters: Arc<[RemoteCluster]>,
    /// What writes must pass.
    pub(crate) fence: Option<Fence>,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Registry,
    /// Whether each reconcile has a span.
    pub(crate) reconcile_spans: bool,
    /// Everything that controllers start: dropping a run aborts it, and does not wait.
    pub(crate) workers: TaskTracker,
}

impl CompleteController {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What writes its events: that of the cluster it works in.
    pub(crate) fn broadcaster<'a>(&'a self, own: &'a Broadcaster) -> &'a Broadcaster {
        self.cluster.as_ref().map_or(own, |cluster| &cluster.events)
    }

    /// Whether its reconciles panic again and again, whichever run is the current one.
    pub(crate) fn health(&self) -> Health {
        self.health.clone()
    }

    pub(crate) fn needs_leader(&self) -> bool {
        self.options.needs_leader
    }

    /// Whether its settings can work in a manager of this name.
    pub(crate) fn validate(&self, manager: &str) -> Result<(), InvalidElection> {
        self.options.sharding.as_ref().map_or(Ok(()), |sharding| sharding.validate(manager, &self.name))
    }

    /// The ways to write what the controller owns in the manager's own cluster.
    pub(crate) fn owned(&self, namespaces: &[String]) -> Rules {
        if self.cluster.is_some() { Rules::default() } else { self.permits.owned.within(namespaces) }
    }

    /// Makes sure that everything the controller reads is being watched.
    /// The kind whose transform comes too late is the error.
    pub(crate) fn register(&self, client: &CachedClient) -> Result<(), String> {
        let client = self.cluster.as_ref().map_or(client, RemoteCluster::client);
        for source in &*self.sources {
            source.register(client.caches())?;
        }
        Ok(())
    }

    /// What the controller needs in the manager's own cluster: all of it, and the part without
    /// which it cannot start. `home` is the namespace that leases are in unless another is said.
    pub(crate) fn rules(&self, namespaces: &[String], home: &str) -> (Rules, Rules) {
        let mut needed = Rules::default();
        if let Some(sharding) = &self.options.sharding {
            // There whatever cluster the controller works in.
            let namespace = Some(sharding.namespace.as_deref().unwrap_or(home));
            needed.allow(namespace, "coordination.k8s.io", ["leases"], ["get", "list", "create", "update", "delete"]);
        }
        if self.cluster.is_some() {
            return (needed.clone(), needed);
        }
        for watched in self.sources.iter().filter_map(|source| source.watched()) {
            let spread = watched.namespaced && watched.namespace.is_none() && !namespaces.is_empty();
            let places: Vec<Option<&str>> = if spread {
                namespaces.iter().map(|name| Some(name.as_str())).collect()
            } else {
                vec![watched.namespace.as_deref()]
            };
            for place in places {
                needed.allow(place, &watched.group, [watched.plural.as_str()], READ);
            }
        }
        needed.extend(&self.permits.said);
        let mut all = needed.clone();
        all.extend(&self.permits.derived.within(namespaces));
        (all, needed)
    }

    /// Where events about what the controller watches in the manager's own cluster are written, in
    /// a manager of these namespaces: those about what is in no namespace are in `default`.
    pub(crate) fn event_namespaces(&self, namespaces: &[String]) -> BTreeSet<String> {
        let watched = self.sources.iter().filter(|_| self.cluster.is_none()).filter_map(|source| source.watched());
        watched
            .flat_map(|watched| match watched.namespace {
                Some(namespace) => vec![namespace],
                None if watched.namespaced => namespaces.to_vec(),
                None => vec!["default".to_owned()],
            })
            .collect()
    }

    /// Waits for the caches, then works until the token is cancelled and what was being worked on
    /// is finished. Dropping the future aborts. May be run again afterwards.
    pub(crate) fn run(
        &self,
        environment: Environment,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SyncError>> {
        let run = worker::Run {
            name: Arc::clone(&self.name),
            reconciler: Arc::clone(&self.reconciler),
            sources: Arc::clone(&self.sources),
            options: self.options.clone(),
            enqueuer: self.enqueuer.clone(),
            client: match (&self.cluster, &self.client) {
                (Some(cluster), _) => cluster.client.clone(),
                (None, Some(own)) => own.clone(),
                (None, None) => environment.client.clone(),
            },
            environment,
            health: self.health.clone(),
            shutdown,
        };
        Box::pin(run.run())
    }
}
