//! Informers without a manager: handlers and cached reads of kinds, for programs that are not operators.
//!
//! A program that prints which pods come and go, and then reads them from the cache:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use windlass::ObjectKey;
//! use windlass::informer::{Handler, InformerFactory};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = windlass::config::client().await?;
//!     let factory = InformerFactory::builder(client).resync(Duration::from_secs(30 * 60)).build();
//!     let pods = factory.informer::<Pod>();
//!     pods.add_handler(
//!         Handler::<Pod>::new()
//!             .added(|pod, _initial| println!("add pod: {}", ObjectKey::of(&pod)))
//!             .updated(|old, _new| println!("update pod: {}", ObjectKey::of(&old)))
//!             .deleted(|pod| println!("delete pod: {}", ObjectKey::of(&pod))),
//!     )
//!     .forever();
//!     factory.start();
//!     factory.wait_synced().await?;
//!     println!("{} pods", pods.lister().len());
//!     tokio::signal::ctrl_c().await?;
//!     factory.stop().await;
//!     Ok(())
//! }
//! ```
//!
//! # When to use what
//!
//! - To bring objects to a desired state, write a [`Controller`](crate::Controller): it gets keys instead of events,
//!   tries again after errors and never works on the same object twice at once. A [`Manager`](crate::Manager) runs its
//!   own informers; its controllers, listers and clients share them.
//! - To only read, use a [`Lister`] of the manager or of [`Caches`].
//! - To be called for changes outside of a manager, use an [`InformerFactory`].
//!
//! # What handlers can rely on
//!
//! - A handler receives every object that exists (`added`, initial) and then the changes, in order, one call at a
//!   time. Each handler of an informer is called independently of the others.
//! - A handler may block: it is called on Tokio's blocking pool, and neither its informer nor other handlers wait for
//!   it. Up to 1,024 changes are kept for a handler that is slower than the changes come. The changes on top of that
//!   are merged for each object: the handler receives the newest state, with the state that it received last as the
//!   old one, and no objects that were created and deleted in between. So a slow handler misses intermediate states,
//!   but never the final one.
//! - A deletion that happened while the watch was down is delivered with the last known state.
//! - A handler that panics is called again for the next change. The panic is logged and counted ([`Caches::panics`]).
//! - Objects are shared with the cache and with other handlers. They come without `metadata.managedFields`: see
//!   [`cache`](crate::cache).
//!
//! An informer needs the permissions `list` and `watch` for its kind. A kind that was deleted, as far as the server
//! tells, has no objects: handlers receive their deletion, and new objects when the kind is created again.

mod delivery;
mod handler;
mod pending;

use std::time::Duration;

use kube::api::{ApiResource, DynamicObject};

pub use handler::Handler;

pub use crate::reflector::{Change, DecodeFailure, Subscription, SyncError};

use crate::cache::{CacheOptions, Caches, Lister, Scope};
use crate::object::{Object, TypedObject, describe};
use crate::reflector::Told;

/// Makes informers and runs them. Clones share the informers.
///
/// Informers of the same type, resource and scope share one watch and one cache, however often they are asked for.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let client = kube::Client::new(server.service(), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use windlass::ObjectKey;
/// use windlass::informer::InformerFactory;
///
/// let factory = InformerFactory::new(client);
/// let namespaces = factory.informer::<Namespace>().lister();
/// factory.start();
/// factory.wait_synced().await?;
/// assert!(namespaces.get(&ObjectKey::cluster("default")).is_some());
/// factory.stop().await;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct InformerFactory {
    caches: Caches,
}

impl InformerFactory {
    /// A factory for all namespaces, without resync.
    pub fn new(client: kube::Client) -> Self {
        Self::builder(client).build()
    }

    /// A factory whose informers share the watches of caches that exist, such as those of a
    /// [`Manager`](crate::Manager). [Starting](Self::start) and [stopping](Self::stop) the factory starts and stops the
    /// caches: leave that to their owner.
    ///
    /// ```
    /// # fn example(manager: &windlass::Manager) {
    /// use std::sync::Arc;
    ///
    /// use k8s_openapi::api::core::v1::Node;
    /// use windlass::informer::{Handler, InformerFactory};
    ///
    /// let factory = InformerFactory::over(manager.client().caches().clone());
    /// let nodes = factory.informer::<Node>();
    /// nodes.add_handler(Handler::new().added(|node: Arc<Node>, _| println!("{:?}", node.metadata.name))).forever();
    /// # }
    /// ```
    pub fn over(caches: Caches) -> Self {
        Self { caches }
    }

    /// A factory with options.
    pub fn builder(client: kube::Client) -> InformerFactoryBuilder {
        InformerFactoryBuilder { client, options: CacheOptions::default() }
    }

    /// The informer of a kind: of all its objects, in the factory's namespaces if it was given any. `K` may be a
    /// [`PartialObjectMeta`](kube::api::PartialObjectMeta), to watch metadata only.
    pub fn informer<K: TypedObject>(&self) -> Informer<K> {
        self.informer_in(Scope::default())
    }

    /// The informer of the objects that a scope selects. The server filters.
    #[allow(clippy::needless_pass_by_value, reason = "a scope is built where it is used")]
    pub fn informer_in<K: TypedObject>(&self, scope: Scope) -> Informer<K> {
        let dt = K::DynamicType::default();
        self.make(&dt, &scope)
    }

    /// The informer of a kind known only at run time.
    ///
    /// In a factory with namespaces, use [`dynamic_in`](Self::dynamic_in) with [`Scope::cluster_scoped`] for kinds
    /// whose objects are in no namespace.
    pub fn dynamic(&self, resource: &ApiResource) -> Informer<DynamicObject> {
        self.dynamic_in(resource, Scope::default())
    }

    /// The informer of what a scope selects of a kind known only at run time.
    #[allow(clippy::needless_pass_by_value, reason = "a scope is built where it is used")]
    pub fn dynamic_in(&self, resource: &ApiResource, scope: Scope) -> Informer<DynamicObject> {
        self.make(resource, &scope)
    }

    fn make<K: Object>(&self, dt: &K::DynamicType, scope: &Scope) -> Informer<K> {
        let (lister, kind) = (self.caches.lister_in(dt, scope), describe(&ApiResource::erase::<K>(dt)));
        Informer { lister, kind, caches: self.caches.clone() }
    }

    /// Starts all informers, and from now on every new one at once. Must be called on a Tokio runtime, which then runs
    /// them. A second call does nothing.
    pub fn start(&self) {
        self.caches.start();
    }

    /// Waits until all informers made so far have been filled: their caches hold everything that existed. Handlers may
    /// not have been called for all of it yet.
    ///
    /// The error names the kinds that are missing, each with the reason. A missing permission is an error at once,
    /// everything else after the [timeout](InformerFactoryBuilder::sync_timeout). The informers keep trying, so waiting
    /// again may succeed.
    pub async fn wait_synced(&self) -> Result<(), NotSynced> {
        let mut errors = self.caches.sync_failures().await;
        if errors.is_empty() {
            return Ok(());
        }
        errors.sort_by_cached_key(ToString::to_string);
        Err(NotSynced { errors })
    }

    /// Whether all informers made so far have been filled once.
    pub fn is_synced(&self) -> bool {
        self.caches.is_synced()
    }

    /// Stops all informers for good and waits for their tasks, and for handlers that are being called; no call begins
    /// after that. What handlers have not been told yet is dropped. Listers keep what they have. Do not wait for this
    /// in a handler.
    pub async fn stop(&self) {
        self.caches.stop().await;
    }

    /// The caches of the informers: to read, for counts of panics and of objects that cannot be decoded, and for
    /// [`Caches::transform`].
    pub fn caches(&self) -> &Caches {
        &self.caches
    }
}

/// How an [`InformerFactory`] watches.
///
/// ```
/// # fn example(client: kube::Client) {
/// use std::time::Duration;
/// use windlass::informer::InformerFactory;
///
/// let factory = InformerFactory::builder(client)
///     .namespaces(["shop", "stock"])
///     .resync(Duration::from_secs(30 * 60))
///     .sync_timeout(Duration::from_secs(10))
///     .build();
/// # }
/// ```
#[must_use = "`build` makes the factory"]
pub struct InformerFactoryBuilder {
    client: kube::Client,
    options: CacheOptions,
}

impl std::fmt::Debug for InformerFactoryBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InformerFactoryBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}

impl InformerFactoryBuilder {
    /// Watches one namespace only.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.namespaces([namespace])
    }

    /// Watches these namespaces only. Without any, or if one of them is empty, all.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options = self.options.namespaces(namespaces);
        self
    }

    /// Calls [`updated`](Handler::updated) for every object this often, give or take a tenth, with the same state as
    /// old and new. The server is not asked for that. Never by default.
    pub fn resync(mut self, period: Duration) -> Self {
        self.options = self.options.resync(period);
        self
    }

    /// How long [`wait_synced`](InformerFactory::wait_synced) waits; two minutes by default.
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.options = self.options.sync_timeout(timeout);
        self
    }

    /// Calls a function for every object that does not fit its type: see [`CacheOptions::on_decode_error`].
    pub fn on_decode_error(mut self, tell: impl Fn(&DecodeFailure) + Send + Sync + 'static) -> Self {
        self.options = self.options.on_decode_error(tell);
        self
    }

    /// Makes the factory. It watches nothing before it is [started](InformerFactory::start).
    #[must_use]
    pub fn build(self) -> InformerFactory {
        InformerFactory { caches: Caches::new(self.client, self.options) }
    }
}

/// A watch of one kind that fills a cache and calls handlers. Clones, and other informers of the same factory, kind and
/// scope, share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let client = kube::Client::new(server.service(), "default");
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass::informer::{Handler, InformerFactory};
///
/// let factory = InformerFactory::new(client);
/// let pods = factory.informer::<Pod>();
/// pods.add_index("node", |pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect())?;
/// let subscription = pods.add_handler(Handler::<Pod>::new().deleted(|pod| println!("{:?} is gone", pod.metadata.name)));
/// factory.start();
/// pods.wait_synced().await?;
/// assert!(pods.lister().by_index("node", "node-1").is_empty());
/// drop(subscription); // the handler is not called any more
/// factory.stop().await;
/// # Ok(()) }
/// ```
pub struct Informer<K: Object> {
    lister: Lister<K>,
    kind: String,
    caches: Caches,
}

impl<K: Object> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone(), kind: self.kind.clone(), caches: self.caches.clone() }
    }
}

impl<K: Object> std::fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Informer")
            .field("kind", &self.kind)
            .field("objects", &self.lister.len())
            .finish_non_exhaustive()
    }
}

impl<K: Object> Informer<K> {
    /// Has a handler called for every object that exists and then for every change, until the subscription is dropped.
    /// Handlers may be added before and after the start. See the [module](self) for what they can rely on.
    pub fn add_handler(&self, mut handler: Handler<K>) -> Subscription {
        let call = move |change: &Told| handler.call(change.typed());
        delivery::deliver(self.lister.reflectors(), Box::new(call), self.caches.spawner())
    }

    /// Adds an index: `values` names what an object is filed under. Read it with [`Lister::by_index`].
    ///
    /// Indexes may be added before and after the start; the objects that exist are filed at once. Informers that share
    /// a watch share its indexes: a name that is taken is an error, and the index of that name stays as it is.
    pub fn add_index(
        &self,
        name: &str,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), IndexExists> {
        let added = self.lister.try_add_index(name, values);
        added.then_some(()).ok_or_else(|| IndexExists { kind: self.kind.clone(), index: name.to_owned() })
    }

    /// Reads the cache.
    pub fn lister(&self) -> Lister<K> {
        self.lister.clone()
    }

    /// Whether the cache has been filled once.
    pub fn is_synced(&self) -> bool {
        self.lister.is_synced()
    }

    /// Waits until the cache has been filled once: see [`InformerFactory::wait_synced`].
    pub async fn wait_synced(&self) -> Result<(), SyncError> {
        self.lister.wait_synced().await
    }
}

/// An informer has an index of that name already.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} have an index {index:?} already")]
#[non_exhaustive]
pub struct IndexExists {
    /// The kind, as `pets.petstore.example.com/v1alpha1`.
    pub kind: String,
    /// The name of the index.
    pub index: String,
}

crate::report::debug_as_message!(IndexExists);

/// Some informers have not been filled.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub struct NotSynced {
    /// What stands in the way, for each kind and namespace.
    pub errors: Vec<SyncError>,
}

impl std::fmt::Display for NotSynced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let [error] = &self.errors[..] {
            return error.fmt(f);
        }
        write!(f, "{} informers are not synced:", self.errors.len())?;
        self.errors.iter().try_for_each(|error| write!(f, "\n- {error}"))
    }
}

crate::report::debug_as_message!(NotSynced);
