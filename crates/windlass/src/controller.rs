//! Controllers: what to watch, which keys that concerns, and who reconciles them.
//!
//! A controller looks after one kind ([`Controller::new`]), and may be woken by others: objects it
//! [owns](Controller::owns), or any [watched](Controller::watches) kind mapped to its keys. Events
//! end at the queue; the reconciler receives a key, looks at the world and brings it closer to
//! what the object asks for. It runs for different keys at the same time, never twice for one.
//!
//! ```no_run
//! use std::{sync::Arc, time::Duration};
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use windlass::{Context, Controller, ObjectKey, Outcome, Reconcile, predicate};
//!
//! struct Settings;
//!
//! impl Reconcile<ConfigMap> for Settings {
//!     async fn reconcile(&self, settings: Arc<ConfigMap>, ctx: Context) -> windlass::Result {
//!         ctx.recorder().normal(&*settings, "Seen", "read the settings");
//!         Ok(Outcome::RequeueAfter(Duration::from_secs(60)))
//!     }
//!
//!     // Optional: the object does not exist any more.
//!     async fn gone(&self, key: ObjectKey, _ctx: Context) -> windlass::Result {
//!         tracing::info!(%key, "deleted");
//!         Ok(Outcome::Done)
//!     }
//! }
//!
//! let controller = Controller::<ConfigMap>::new("settings")
//!     .predicate(predicate::resource_version_changed())
//!     .owns::<Secret>()
//!     .concurrency(4)
//!     .complete(Settings);
//! ```

mod context;
mod enqueue;
mod metrics;
mod permits;
mod reconcile;
mod source;
mod worker;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, PartialObjectMeta};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use context::{Context, ReconcileId};
pub use enqueue::Enqueuer;
pub use reconcile::{Outcome, Reconcile, ReconcileError, ReconcileKey, from_fn, from_key_fn};

use crate::cache::{Caches, Scope};
use crate::client::CachedClient;
use crate::events::{Broadcaster, Recorder};
use crate::informer::{Change, SyncError, Transform};
use crate::key::ObjectKey;
use crate::lease::{Fence, InvalidElection};
use crate::manager::RemoteCluster;
use crate::metrics::Registry;
use crate::object::{Object, is_cluster_scoped};
use crate::predicate::Predicate;
use crate::queue::QueueConfig;
use crate::rbac::{OWN, READ, Rules, WRITE};
use crate::shard::Sharding;
use permits::Permits;
use reconcile::{AnyReconciler, OfKeys, OfObjects};
use source::{KindSource, Source, StreamSource};

/// Which objects of another kind wake a controller, and which of their changes count: for
/// [`Controller::owns_with`] and [`Controller::watches_with`]. For the controller's own kind there are
/// [`Controller::scope`], [`Controller::predicate`] and [`Controller::transform`].
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use windlass::cache::Scope;
/// use windlass::controller::{Controller, Watch};
/// use windlass::predicate;
///
/// let secrets = Watch::<Secret>::default()
///     .scope(Scope::default().namespace("petstore").fields("type=Opaque"))
///     .predicate(predicate::labels_changed().or(predicate::resource_version_changed()));
/// let controller = Controller::<ConfigMap>::new("settings").owns_with(secrets);
/// ```
#[derive(Debug)]
pub struct Watch<K: Object> {
    pub(crate) scope: Scope,
    pub(crate) predicate: Option<Predicate<K>>,
    pub(crate) dt: K::DynamicType,
    /// Of another cluster than the controller's own.
    pub(crate) caches: Option<Caches>,
    pub(crate) transform: Option<Keep<K>>,
}

/// A function that changes objects before they are kept.
pub(crate) struct Keep<K>(pub(crate) Transform<K>);

impl<K> std::fmt::Debug for Keep<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("transform")
    }
}

impl<K: Object> Default for Watch<K>
where
    K::DynamicType: Default,
{
    fn default() -> Self {
        Self::dynamic(K::DynamicType::default())
    }
}

impl<K: Object> Clone for Watch<K> {
    fn clone(&self) -> Self {
        Self {
            scope: self.scope.clone(),
            predicate: self.predicate.clone(),
            dt: self.dt.clone(),
            caches: self.caches.clone(),
            transform: self.transform.as_ref().map(|keep| Keep(Arc::clone(&keep.0))),
        }
    }
}

impl<K: Object> Watch<K> {
    /// All objects of a kind known only at run time.
    pub fn dynamic(dt: K::DynamicType) -> Self {
        Self { scope: Scope::default(), predicate: None, dt, caches: None, transform: None }
    }

    /// Objects of another cluster than the controller's.
    #[must_use]
    pub fn cluster(mut self, cluster: &RemoteCluster) -> Self {
        self.caches = Some(cluster.caches().clone());
        self
    }

    /// Only objects that a scope selects. The server filters, and nothing else is cached. Others who
    /// read the kind still see all of it: see [`CachedClient::get`] and [`CachedClient::list`].
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Has objects changed before they are kept, so that what nobody reads is not in memory: see
    /// [`Caches::transform`]. It holds for all who look at the kind; there can be one for each, and
    /// it must be there before the kind is watched, or [`Manager::add`](crate::Manager::add) fails.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Secret;
    /// # use windlass::controller::Watch;
    /// let names = Watch::<Secret>::default().transform(|secret| secret.data = None);
    /// ```
    #[must_use]
    pub fn transform(mut self, change: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.transform = Some(Keep(Arc::new(change)));
        self
    }

    pub(crate) fn is_cluster_scoped(&self) -> bool {
        is_cluster_scoped::<K>() || self.scope.is_cluster_scoped()
    }

    /// Only changes that a predicate accepts. Deletions always count. Several predicates must all
    /// accept. A change on which one panics counts, too; the panic is logged, and counted by
    /// `windlass_cache_panics_total`.
    #[must_use]
    pub fn predicate(mut self, predicate: Predicate<K>) -> Self {
        self.predicate = Some(match self.predicate.take() {
            Some(other) => other.and(predicate),
            None => predicate,
        });
        self
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) concurrency: usize,
    pub(crate) reconcile_timeout: Option<Duration>,
    pub(crate) queue: QueueConfig,
    pub(crate) needs_leader: bool,
    pub(crate) sharding: Option<Sharding>,
}

/// Describes a controller of kind `K`. See the [module documentation](self).
///
/// ```
/// use std::time::Duration;
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::{ConfigMap, Service};
/// use windlass::controller::from_fn;
/// use windlass::{Controller, ObjectKey, Outcome};
///
/// let controller = Controller::<Deployment>::new("web")
///     .owns::<Service>()
///     .watches(|map: &ConfigMap| {
///         let app = map.metadata.labels.as_ref().and_then(|labels| labels.get("app"));
///         app.map(|app| ObjectKey::new(map.metadata.namespace.as_deref().unwrap_or_default(), app)).into_iter().collect()
///     })
///     .concurrency(4)
///     .reconcile_timeout(Duration::from_secs(60))
///     .complete(from_fn(|_deployment, _ctx| async { Ok(Outcome::Done) }));
/// ```
#[must_use = "a controller does nothing before it is completed and added to a manager"]
pub struct Controller<K: Object> {
    name: String,
    primary: Watch<K>,
    /// What depends on the primary kind is settled when the controller is complete, so that the order of the
    /// builder's methods does not matter.
    sources: Vec<MakeSource>,
    options: Options,
    enqueuer: Enqueuer,
    cluster: Option<RemoteCluster>,
    permits: Permits,
}

/// Makes a source once the kind that the controller looks after is settled.
type MakeSource = Box<dyn FnOnce(&Primary) -> Box<dyn Source> + Send + Sync>;

/// What sources must know of the kind that the controller looks after.
#[derive(Clone)]
struct Primary {
    resource: ApiResource,
    cluster_scoped: bool,
    /// Whether objects of the kind were seen to be in no namespace: kinds known only at run time do
    /// not say. An owner that was not seen yet is reconciled when it is.
    seen_cluster_scoped: Arc<AtomicBool>,
}

impl Primary {
    fn is_cluster_scoped(&self) -> bool {
        self.cluster_scoped || self.seen_cluster_scoped.load(Ordering::Relaxed)
    }
}

impl<K: Object> std::fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}

impl<K: Object> Controller<K> {
    /// A controller for all objects of kind `K`. The name must be unique within a manager; it
    /// appears in logs, metrics and events.
    pub fn new(name: impl Into<String>) -> Self
    where
        K::DynamicType: Default,
    {
        Self::dynamic(name, K::DynamicType::default())
    }

    /// A controller for all objects of a kind known only at run time.
    ///
    /// ```
    /// use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
    /// use windlass::controller::from_fn;
    /// use windlass::{Controller, Outcome};
    ///
    /// let gateways = ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "Gateway"));
    /// let controller = Controller::<DynamicObject>::dynamic("gateway", gateways)
    ///     .complete(from_fn(|_gateway, _ctx| async { Ok(Outcome::Done) }));
    /// ```
    pub fn dynamic(name: impl Into<String>, dt: K::DynamicType) -> Self {
        Self {
            name: name.into(),
            primary: Watch::dynamic(dt),
            sources: Vec::new(),
            options: Options {
                concurrency: 1,
                reconcile_timeout: None,
                queue: QueueConfig::default(),
                needs_leader: true,
                sharding: None,
            },
            enqueuer: Enqueuer::default(),
            cluster: None,
            permits: Permits::default(),
        }
    }

    /// Looks after only those objects of kind `K` that a scope selects (a namespace, labels, fields). The server
    /// filters, and nothing else is cached. An object that leaves the scope is
    /// [gone](Reconcile::gone) for the controller. Another scope replaces this one.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Secret;
    /// use windlass::Controller;
    /// use windlass::cache::Scope;
    ///
    /// let controller = Controller::<Secret>::new("tls").scope(Scope::default().fields("type=kubernetes.io/tls"));
    /// ```
    pub fn scope(mut self, scope: Scope) -> Self {
        self.primary = self.primary.scope(scope);
        self
    }

    /// Reconciles an object of kind `K` only after changes that a predicate accepts. Deletions always count.
    /// Several predicates must all accept. See [`predicate`](crate::predicate).
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Secret;
    /// use windlass::{Controller, predicate};
    ///
    /// let controller = Controller::<Secret>::new("secrets").predicate(predicate::labels_changed());
    /// ```
    pub fn predicate(mut self, predicate: Predicate<K>) -> Self {
        self.primary = self.primary.predicate(predicate);
        self
    }

    /// Changes objects of kind `K` before they are cached, to save memory. See [`Watch::transform`].
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Secret;
    /// use windlass::Controller;
    ///
    /// let controller = Controller::<Secret>::new("secrets").transform(|secret| secret.data = None);
    /// ```
    pub fn transform(mut self, change: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.primary = self.primary.transform(change);
        self
    }

    /// Also wakes the owner (of kind `K`) when an object that it controls changes. A manager that
    /// may not create, update or patch such objects does not start; for kinds that others write,
    /// there is [`watches`](Self::watches).
    pub fn owns<O: Object>(self) -> Self
    where
        O::DynamicType: Default,
    {
        self.owns_with(Watch::<O>::default())
    }

    /// [`owns`](Self::owns) for what a [`Watch`] selects.
    pub fn owns_with<O: Object>(mut self, watch: Watch<O>) -> Self {
        if watch.caches.is_none() {
            let plural = O::plural(&watch.dt);
            self.permits.derived.allow(&watch, &plural, OWN);
            self.permits.owned.allow(&watch, &plural, WRITE);
        }
        self.sources.push(Box::new(|primary| {
            let primary = primary.clone();
            Box::new(KindSource::new(watch, move |object: &O| {
                owner_key(object, &primary.resource, primary.is_cluster_scoped()).into_iter().collect()
            }))
        }));
        self
    }

    /// Also wakes the keys that a function names when an object of another kind changes. After an
    /// update it is asked about the old and the new state.
    ///
    /// A function that panics names nobody, so the change wakes only the keys of the other state, if
    /// there is one: the panic is logged with the kind and the object, and counted by
    /// `windlass_cache_panics_total`, and nothing is tried again before the object changes once more, or
    /// is [resynced](crate::manager::ManagerBuilder::resync).
    ///
    /// The function must not block. To look up which objects refer to the one that changed, let
    /// it own a [`Lister`](crate::cache::Lister) from [`Manager::lister`](crate::Manager::lister).
    pub fn watches<O, F>(self, map: F) -> Self
    where
        O: Object<DynamicType: Default>,
        F: Fn(&O) -> Vec<ObjectKey> + Send + Sync + 'static,
    {
        self.watches_with(Watch::<O>::default(), map)
    }

    /// [`watches`](Self::watches) of metadata only: nothing else of the objects is sent or kept. What
    /// a [`Watch`] selects is watched so with
    /// [`watches_with(Watch::<PartialObjectMeta<O>>::default(), …)`](Self::watches_with).
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use windlass::Controller;
    /// // A Secret wakes the ConfigMap of its name, and what is in it is nobody's business.
    /// let controller = Controller::<ConfigMap>::new("settings")
    ///     .watches_metadata::<Secret, _>(|secret| vec![secret.into()]);
    /// ```
    pub fn watches_metadata<O, F>(self, map: F) -> Self
    where
        O: Object<DynamicType: Default>,
        F: Fn(&PartialObjectMeta<O>) -> Vec<ObjectKey> + Send + Sync + 'static,
    {
        self.watches_with(Watch::<PartialObjectMeta<O>>::default(), map)
    }

    /// [`watches`](Self::watches) for what a [`Watch`] selects.
    pub fn watches_with<O, F>(mut self, watch: Watch<O>, map: F) -> Self
    where
        O: Object,
        F: Fn(&O) -> Vec<ObjectKey> + Send + Sync + 'static,
    {
        self.sources.push(Box::new(|_| Box::new(KindSource::new(watch, map))));
        self
    }

    /// Also wakes the keys of a stream, for what happens outside the cluster. The function is called
    /// whenever the controller starts; a stream that ends is not started again before that.
    ///
    /// The streams of all replicas of a [sharded](crate::shard) controller must yield the same keys:
    /// each replica reconciles those of its own shards, and remembers the others for two lease
    /// durations. So keys that come while their shard changes hands, or is not held yet, are
    /// reconciled by whoever takes it, perhaps once more than needed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use futures::{StreamExt, stream};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass::{Controller, ObjectKey};
    /// let controller = Controller::<ConfigMap>::new("settings").source(|| {
    ///     stream::repeat(ObjectKey::new("default", "settings")).then(async |key| {
    ///         tokio::time::sleep(Duration::from_secs(60)).await;
    ///         key
    ///     })
    /// });
    /// ```
    pub fn source<F, S>(mut self, stream: F) -> Self
    where
        F: Fn() -> S + Send + Sync + 'static,
        S: Stream<Item = ObjectKey> + Send + 'static,
    {
        self.sources.push(Box::new(|_| Box::new(StreamSource::new(stream))));
        self
    }

    /// How many keys are reconciled at the same time; 1 unless set.
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.options.concurrency = workers.max(1);
        self
    }

    /// Gives up a reconcile that takes longer, and tries again later.
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.options.reconcile_timeout = Some(timeout);
        self
    }

    /// Delays and ageing of the queue.
    pub fn queue(mut self, config: QueueConfig) -> Self {
        self.options.queue = config;
        self
    }

    /// Whether the controller runs only in the replica that holds the lease (when the manager
    /// elects a leader). True unless set.
    pub fn needs_leader(mut self, needs_leader: bool) -> Self {
        self.options.needs_leader = needs_leader;
        self
    }

    /// Spreads the keys over all replicas instead of leaving them to the leader: see
    /// [`shard`](crate::shard). A number of shards will do; the same in all replicas, as are the names
    /// of the controller and its manager.
    pub fn sharding(mut self, sharding: impl Into<Sharding>) -> Self {
        self.options.sharding = Some(sharding.into());
        self.options.needs_leader = false;
        self
    }

    /// Looks after objects of another cluster than the manager's own: there it watches, reads and
    /// writes, and there its events are. [`Watch::cluster`] brings in single kinds of others.
    pub fn cluster(mut self, cluster: &RemoteCluster) -> Self {
        self.cluster = Some(cluster.clone());
        self
    }

    /// Says what the reconciler does besides what follows from the kinds watched and owned, for
    /// [`Manager::rules`](crate::Manager::rules). The manager does not start without it.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass::Controller;
    /// let controller = Controller::<ConfigMap>::new("settings")
    ///     .permits("apps", ["deployments/scale"], ["update"])
    ///     .permits("", ["pods"], ["delete"]);
    /// ```
    pub fn permits<R, V>(mut self, group: &str, resources: R, verbs: V) -> Self
    where
        R: IntoIterator<Item: Into<String>>,
        V: IntoIterator<Item: Into<String>>,
    {
        self.permits.said.allow(None, group, resources, verbs);
        self
    }

    /// A handle that puts keys in this controller's queue from anywhere.
    pub fn enqueuer(&self) -> Enqueuer {
        self.enqueuer.clone()
    }

    /// The controller with its reconciler, ready for [`Manager::add`](crate::Manager::add). The reconciler must be
    /// one of kind `K`.
    pub fn complete<R: Reconcile<K>>(self, reconciler: R) -> CompleteController {
        let dt = self.primary.dt.clone();
        self.complete_any(Arc::new(OfObjects { reconciler, dt }))
    }

    /// The controller with a reconciler that receives keys instead of objects, ready for
    /// [`Manager::add`](crate::Manager::add).
    pub fn complete_keyed<R: ReconcileKey>(self, reconciler: R) -> CompleteController {
        self.complete_any(Arc::new(OfKeys(reconciler)))
    }

    fn complete_any(mut self, reconciler: Arc<dyn AnyReconciler>) -> CompleteController {
        let (derived, plural) = (&mut self.permits.derived, K::plural(&self.primary.dt));
        derived.allow(&self.primary, &plural, ["get", "list", "watch", "update", "patch"]);
        derived.allow(&self.primary, &format!("{plural}/status"), ["get", "update", "patch"]);
        derived.allow(&self.primary, &format!("{plural}/finalizers"), ["update"]);
        let primary = Primary {
            resource: ApiResource::erase::<K>(&self.primary.dt),
            cluster_scoped: self.primary.is_cluster_scoped(),
            seen_cluster_scoped: Arc::default(),
        };
        let seen = Arc::clone(&primary.seen_cluster_scoped);
        let own_key = move |object: &K| {
            if object.meta().namespace.is_none() {
                seen.store(true, Ordering::Relaxed);
            }
            vec![ObjectKey::of(object)]
        };
        let mut sources: Vec<Box<dyn Source>> = vec![Box::new(KindSource::new(self.primary, own_key))];
        sources.extend(self.sources.into_iter().map(|make| make(&primary)));
        CompleteController {
            name: self.name.into(),
            sources: sources.into(),
            options: self.options,
            reconciler,
            enqueuer: self.enqueuer,
            cluster: self.cluster,
            permits: self.permits,
        }
    }
}

/// A controller with its reconciler. Give it to [`Manager::add`](crate::Manager::add).
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::controller::{CompleteController, Controller, from_fn};
/// use windlass::Outcome;
///
/// /// What an operator's library offers to whoever puts the manager together.
/// pub fn controller() -> CompleteController {
///     Controller::<ConfigMap>::new("settings").complete(from_fn(|_map, _ctx| async { Ok(Outcome::Done) }))
/// }
/// ```
#[must_use = "a controller does nothing before it is added to a manager"]
pub struct CompleteController {
    name: Arc<str>,
    sources: Arc<[Box<dyn Source>]>,
    options: Options,
    reconciler: Arc<dyn AnyReconciler>,
    enqueuer: Enqueuer,
    cluster: Option<RemoteCluster>,
    permits: Permits,
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
            client: self.cluster.as_ref().map_or_else(|| environment.client.clone(), |cluster| cluster.client.clone()),
            environment,
            shutdown,
        };
        Box::pin(run.run())
    }
}

/// The key of the object of kind `owner` that controls an object, if there is one.
fn owner_key<O: Object>(object: &O, owner: &ApiResource, cluster_scoped: bool) -> Option<ObjectKey> {
    let meta = object.meta();
    let is_owner = |reference: &&OwnerReference| {
        let group = match reference.api_version.rsplit_once('/') {
            Some((group, _)) => group,
            None => "",
        };
        reference.controller == Some(true) && reference.kind == owner.kind && group == owner.group
    };
    let reference = meta.owner_references.iter().flatten().find(is_owner)?;
    let namespace = if cluster_scoped { None } else { meta.namespace.as_deref() };
    Some(ObjectKey::new(namespace.unwrap_or_default(), &reference.name))
}

/// The keys a change concerns: those of the new state and, after an update, of the old one.
pub(crate) fn keys_of<K>(change: &Change<K>, map: &(dyn Fn(&K) -> Vec<ObjectKey> + Send + Sync)) -> Vec<ObjectKey> {
    let mut keys = map(change.object());
    if let Change::Updated { old, .. } = change {
        for key in map(old) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests;
