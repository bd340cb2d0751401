//! Controllers: what to watch, which keys a change concerns, and the reconciler of these keys.
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

mod clock;
mod complete;
mod context;
mod enqueue;
mod metrics;
mod ownership;
mod panics;
mod permits;
mod reconcile;
mod source;
mod source_context;
mod watch;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use kube::api::{ApiResource, PartialObjectMeta};

pub use complete::CompleteController;
pub(crate) use complete::Environment;
pub use context::{Context, ReconcileId};
pub use enqueue::Enqueuer;
pub use panics::RepeatedPanics;
pub use reconcile::{Outcome, Reconcile, ReconcileError, ReconcileKey, from_fn, from_key_fn};
pub use source_context::SourceContext;
pub use watch::Watch;

use crate::cache::Scope;
use crate::key::ObjectKey;
use crate::object::{Object, TypedObject};
use crate::predicate::Predicate;
use crate::queue::QueueConfig;
use crate::rbac::{OWN, WRITE};
use crate::remote_cluster::RemoteCluster;
use crate::shard::Sharding;
use panics::Health;
use permits::Permits;
use reconcile::{AnyReconciler, OfKeys, OfObjects};
use source::{KindSource, Map, PollSource, Primary, Source, StreamSource};

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
///     .watches(|map: &ConfigMap, _ctx| {
///         let app = map.metadata.labels.as_ref()?.get("app")?;
///         Some(ObjectKey::of(map).sibling(app))
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
        K: TypedObject,
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
    /// there is [`watches`](Self::watches). For a kind that is known only at run time, as a
    /// `DynamicObject` is, there is [`owns_with`](Self::owns_with).
    pub fn owns<O: TypedObject>(self) -> Self {
        self.owns_with(Watch::<O>::default())
    }

    /// [`owns`](Self::owns) for what a [`Watch`] selects.
    pub fn owns_with<O: Object>(mut self, watch: Watch<O>) -> Self {
        if watch.caches.is_none() {
            let plural = O::plural(&watch.dt);
            self.permits.derived.allow(&watch, &plural, OWN);
            self.permits.owned.allow(&watch, &plural, WRITE);
        }
        self.sources.push(Box::new(|primary| Box::new(KindSource { watch, map: Map::Owner(primary.clone()) })));
        self
    }

    /// Also wakes the keys that a function names when an object of another kind changes. After an
    /// update it is asked about the old and the new state.
    ///
    /// A function that panics names no keys, so the change wakes only the keys of the other state, if
    /// there is one: the panic is logged with the kind and the object, and counted by
    /// `windlass_cache_panics_total`, and nothing is tried again before the object changes once more, or
    /// is [resynced](crate::manager::ManagerBuilder::resync).
    ///
    /// The function must not block. It finds other objects with [`SourceContext::lister`]; to find the objects of
    /// kind `K` that refer to the one that changed, there is [`refers_to`](Self::refers_to).
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use windlass::{Controller, ObjectKey};
    /// // A Secret wakes the ConfigMap that its label names: an Option, an array or a Vec of keys.
    /// let controller = Controller::<ConfigMap>::new("settings").watches(|secret: &Secret, _ctx| {
    ///     let name = secret.metadata.labels.as_ref()?.get("settings")?;
    ///     Some(ObjectKey::of(secret).sibling(name))
    /// });
    /// ```
    pub fn watches<O, F, I>(self, map: F) -> Self
    where
        O: TypedObject,
        F: Fn(&O, &SourceContext) -> I + Send + Sync + 'static,
        I: IntoIterator<Item = ObjectKey>,
    {
        self.watches_with(Watch::<O>::default(), map)
    }

    /// [`watches`](Self::watches) of metadata only: nothing else of the objects is sent or kept. What
    /// a [`Watch`] selects is watched so with
    /// [`watches_with(Watch::<PartialObjectMeta<O>>::default(), …)`](Self::watches_with).
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use windlass::{Controller, ObjectKey};
    /// // A Secret wakes the ConfigMap of its name. What is in the Secret is neither sent nor kept.
    /// let controller = Controller::<ConfigMap>::new("settings")
    ///     .watches_metadata::<Secret, _, _>(|secret, _ctx| [ObjectKey::of(secret)]);
    /// ```
    pub fn watches_metadata<O, F, I>(self, map: F) -> Self
    where
        O: TypedObject,
        F: Fn(&PartialObjectMeta<O>, &SourceContext) -> I + Send + Sync + 'static,
        I: IntoIterator<Item = ObjectKey>,
    {
        self.watches_with(Watch::<PartialObjectMeta<O>>::default(), map)
    }

    /// [`watches`](Self::watches) for what a [`Watch`] selects.
    pub fn watches_with<O, F, I>(mut self, watch: Watch<O>, map: F) -> Self
    where
        O: Object,
        F: Fn(&O, &SourceContext) -> I + Send + Sync + 'static,
        I: IntoIterator<Item = ObjectKey>,
    {
        self.sources.push(Box::new(|_| Box::new(KindSource { watch, map: Map::function(map) })));
        self
    }

    /// Also wakes the objects of kind `K` that refer to an object of kind `O` when that object changes, comes or
    /// goes. The function tells what an object of kind `K` refers to; the controller keeps an index of that.
    ///
    /// A function that names nothing (`None`, or an empty `Vec`) is right for an object without a reference. The
    /// keys are complete: the namespace is that of the `O` object, often the one of the object that refers to it
    /// ([`ObjectKey::sibling`]), and there is none ([`ObjectKey::cluster`]) if `O` is cluster-scoped.
    ///
    /// ```
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use k8s_openapi::api::core::v1::Secret;
    /// use windlass::{Controller, ObjectKey};
    ///
    /// // A Deployment is reconciled when the Secret changes that its annotation names.
    /// let controller = Controller::<Deployment>::new("restart").refers_to::<Secret, _, _>(|deployment| {
    ///     let secret = deployment.metadata.annotations.as_ref()?.get("restart-on")?;
    ///     Some(ObjectKey::of(deployment).sibling(secret))
    /// });
    /// ```
    pub fn refers_to<O, F, I>(self, references: F) -> Self
    where
        O: TypedObject,
        F: Fn(&K) -> I + Send + Sync + 'static,
        I: IntoIterator<Item = ObjectKey>,
    {
        self.refers_to_with(Watch::<O>::default(), references)
    }

    /// [`refers_to`](Self::refers_to) for what a [`Watch`] selects.
    pub fn refers_to_with<O, F, I>(mut self, watch: Watch<O>, references: F) -> Self
    where
        O: Object,
        F: Fn(&K) -> I + Send + Sync + 'static,
        I: IntoIterator<Item = ObjectKey>,
    {
        let dt = self.primary.dt.clone();
        // No two controllers of a manager have the same name.
        let index = format!("{} refers to {}", self.name, self.sources.len());
        self.sources.push(Box::new(move |primary| {
            let references = move |object: &K| references(object).into_iter().collect();
            let map = Map::referrers::<K>(index, dt, primary.scope.clone(), references);
            Box::new(KindSource { watch, map })
        }));
        self
    }

    /// Also wakes the keys of a stream, for what happens outside the cluster. The function is called
    /// whenever the controller starts; a stream that ends is not started again before that.
    ///
    /// The streams of all replicas of a [sharded](crate::shard) controller must yield the same keys:
    /// each replica reconciles those of its own shards, and remembers the others for two lease
    /// durations. So keys that come while their shard changes hands, or is not held yet, are
    /// reconciled by the replica that takes it, perhaps once more than needed.
    ///
    /// For an external system that has to be asked, [`poll`](Self::poll) is simpler.
    ///
    /// ```
    /// # use futures::{StreamExt, stream};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use tokio::sync::mpsc::Receiver;
    /// # use windlass::{Controller, ObjectKey};
    /// # fn subscribe() -> Receiver<String> { tokio::sync::mpsc::channel(1).1 }
    /// // A message names a ConfigMap as `namespace/name`.
    /// let controller = Controller::<ConfigMap>::new("settings").source(|_ctx| {
    ///     stream::unfold(subscribe(), async |mut messages| {
    ///         let message = messages.recv().await?;
    ///         Some((ObjectKey::from(&*message), messages))
    ///     })
    /// });
    /// ```
    pub fn source<F, S>(mut self, stream: F) -> Self
    where
        F: Fn(SourceContext) -> S + Send + Sync + 'static,
        S: Stream<Item = ObjectKey> + Send + 'static,
    {
        self.sources.push(Box::new(|_| Box::new(StreamSource::new(stream))));
        self
    }

    /// Also wakes the keys that a function returns: when the controller has started and its caches are filled, and then
    /// again and again, with a pause of `interval` after each call. The call under way is dropped when the controller
    /// stops.
    ///
    /// A function that fails returns no keys, and logs why; it is called again after the interval. A panic is logged,
    /// and counted in `windlass_source_panics_total`, and the function is called again after a second. In a
    /// [sharded](crate::shard) controller every replica calls the function; see [`source`](Self::source).
    ///
    /// ```
    /// # use std::{collections::BTreeSet, sync::Arc, time::Duration};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass::{Controller, ObjectKey};
    /// # struct Billing;
    /// # impl Billing { async fn overdue(&self) -> BTreeSet<String> { BTreeSet::new() } }
    /// use windlass::controller::SourceContext;
    ///
    /// /// The ConfigMaps of customers whose invoices are overdue.
    /// async fn overdue(ctx: SourceContext, billing: Arc<Billing>) -> Vec<ObjectKey> {
    ///     let customers = billing.overdue().await;
    ///     let late = |map: &ConfigMap| map.metadata.name.as_ref().is_some_and(|name| customers.contains(name));
    ///     ctx.lister().filter(late).iter().map(ObjectKey::of).collect()
    /// }
    ///
    /// let billing = Arc::new(Billing);
    /// let controller = Controller::<ConfigMap>::new("customers")
    ///     .poll(Duration::from_secs(60), move |ctx| overdue(ctx, Arc::clone(&billing)));
    /// ```
    pub fn poll<F, R, I>(mut self, interval: Duration, keys: F) -> Self
    where
        F: Fn(SourceContext) -> R + Send + Sync + 'static,
        R: Future<Output = I> + Send + 'static,
        I: IntoIterator<Item = ObjectKey>,
    {
        self.sources.push(Box::new(move |_| Box::new(PollSource::new(interval, keys))));
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
            scope: self.primary.scope.clone(),
            cluster_scoped: self.primary.is_cluster_scoped(),
            seen_cluster_scoped: Arc::default(),
        };
        let own = KindSource { watch: self.primary, map: Map::Own(primary.clone()) };
        let mut sources: Vec<Box<dyn Source>> = vec![Box::new(own)];
        sources.extend(self.sources.into_iter().map(|make| make(&primary)));
        CompleteController {
            name: self.name.into(),
            sources: sources.into(),
            options: self.options,
            reconciler,
            enqueuer: self.enqueuer,
            cluster: self.cluster,
            client: None,
            permits: self.permits,
            health: Health::default(),
        }
    }
}
