//! A cluster that a manager works with besides its own, as controllers and callers see it.

use std::sync::Arc;

use crate::cache::{Caches, Lister};
use crate::client::CachedClient;
use crate::events::{Broadcaster, Recorder};
use crate::object::TypedObject;

/// A cluster that a manager works with besides its own. Made by
/// [`Manager::add_cluster`](crate::Manager::add_cluster).
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use windlass::controller::{Controller, Watch, from_key_fn};
/// # use windlass::{Manager, ObjectKey, Outcome};
/// # fn example(home: kube::Client, away: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut manager = Manager::builder(home).build()?;
/// let edge = manager.add_cluster("edge", away)?;
/// let mirror = Controller::<ConfigMap>::new("mirror")
///     .watches_with(Watch::<Secret>::default().cluster(&edge), |secret, _ctx| [ObjectKey::of(secret)])
///     .complete_keyed(from_key_fn(|key, ctx| async move {
///         let away = ctx.cluster("edge").ok_or("no such cluster")?;
///         let secret = away.get::<Secret>(&key).await?;
///         tracing::info!(there = secret.is_some(), "looked");
///         Ok(Outcome::Done)
///     }));
/// manager.add(mirror)?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct RemoteCluster {
    pub(crate) name: Arc<str>,
    pub(crate) client: CachedClient,
    /// What writes events about what is in it.
    pub(crate) events: Arc<Broadcaster>,
}

impl RemoteCluster {
    /// The name it was added under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client, with cached reads once the manager runs. Reconcilers should take theirs from
    /// [`Context::cluster`](crate::Context::cluster): its writes stop with the lease.
    pub fn client(&self) -> &CachedClient {
        &self.client
    }

    /// Reads a kind of this cluster from the cache.
    pub fn lister<K: TypedObject>(&self) -> Lister<K> {
        self.client.lister()
    }

    /// Reports events about objects of this cluster in a component's name, whether or not this replica is the leader. A controller
    /// that [works here](crate::Controller::cluster) has one in
    /// [`Context::recorder`](crate::Context::recorder).
    pub fn recorder(&self, component: &str) -> Recorder {
        self.events.recorder(component)
    }

    pub(crate) fn caches(&self) -> &Caches {
        self.client.caches()
    }
}
