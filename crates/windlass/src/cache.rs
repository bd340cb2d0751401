//! Cached reads: [`Caches`] watches kinds, a [`Lister`] reads one of them.
//!
//! There is one watch per kind, namespace and selector, however many controllers, handlers and listers use it. A
//! [`Lister`] reads one kind without requests to the server: by key, label, owner, or an index of one's own. The objects
//! are shared, and never older than the last write of this process.
//!
//! Two cases are exceptions to that:
//!
//! - An object was written in another version of the kind, and the request for how it looks in this version failed.
//!   Until the watch has caught up, [`CachedClient::get`](crate::CachedClient::get) and
//!   [`list`](crate::CachedClient::list) ask the server; a lister shows what it has.
//! - The watch is down, and this process has written more than 32,768 objects since. The oldest of these writes are
//!   forgotten then, and the log says so.
//!
//! What a reader sees does not depend on what others watch. A cache that is narrowed by a [`Scope`] answers for that
//! part of the kind only; a reader of more is answered by the server, or by a cache of everything it asked for.
//!
//! # Without `managedFields`
//!
//! Objects in caches come without `metadata.managedFields`: hardly any reader needs them, and they often are the larger
//! part of an object. Listers, handlers, predicates, reconcilers and [`CachedClient::get`](crate::CachedClient::get)
//! see objects without them. An update with such an object leaves the server's as they are. Read an object with
//! [`live()`](crate::CachedClient::live) to see them.
//!
//! # When to use what
//!
//! In an operator, a [`Manager`](crate::Manager) has the caches: use the manager's listers and clients. [`Caches`]
//! alone are for programs that only read; one that also reacts to changes uses an
//! [`InformerFactory`](crate::informer::InformerFactory), which calls handlers on threads of their own.
//! [`Lister::subscribe`] is the bare form of that: it calls a function in the task that fills the cache, so the
//! function must not block.

mod known;
mod lister;
mod options;
mod reading;
mod registry;
mod scope;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::ApiResource;

pub(crate) use known::{Found, Known};
pub use lister::Lister;
pub use options::CacheOptions;
pub(crate) use registry::Spawner;
pub use scope::Scope;

use crate::key::ObjectKey;
use crate::object::{Object, TypedObject};
use crate::reflector::{Kind, Shared, SyncError, Transform, any_transform};
use registry::Registry;

/// Everything that a program watches; clones share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let kube = kube::Client::new(server.service(), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use windlass::cache::{CacheOptions, Caches};
///
/// let caches = Caches::new(kube, CacheOptions::default());
/// let namespaces = caches.lister::<Namespace>();
/// caches.start();
/// caches.wait_synced().await?;
/// assert!(namespaces.list().iter().any(|one| one.metadata.name.as_deref() == Some("default")));
/// caches.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Caches {
    inner: Arc<Registry>,
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caches").field("watches", &self.inner.len()).finish_non_exhaustive()
    }
}

impl Caches {
    /// Caches that read from a server. They watch nothing before they are started.
    pub fn new(client: kube::Client, options: CacheOptions) -> Self {
        Self { inner: Arc::new(Registry::new(client, options)) }
    }

    /// Starts all watches, and from now on every new one at once. To be called inside a Tokio runtime.
    pub fn start(&self) {
        self.inner.start();
    }

    /// Stops all watches and waits for their tasks.
    pub async fn stop(&self) {
        self.inner.stop().await;
    }

    /// Ends the waiting for first lists: what is not there by now will not be.
    pub(crate) fn close(&self) {
        self.inner.close();
    }

    /// Stops all watches, without waiting, when the guard is dropped.
    pub(crate) fn stop_on_drop(&self) -> tokio_util::sync::DropGuard {
        self.inner.shutdown().clone().drop_guard()
    }

    /// Waits until the first list of every kind that was asked for so far is complete.
    pub async fn wait_synced(&self) -> Result<(), SyncError> {
        self.inner.wait_synced().await
    }

    /// Waits until everything asked for so far has been listed once, or cannot be, and returns what could not.
    pub(crate) async fn sync_failures(&self) -> Vec<SyncError> {
        self.inner.sync_failures().await
    }

    /// For tasks that end with the caches.
    pub(crate) fn spawner(&self) -> Spawner {
        self.inner.spawner().clone()
    }

    /// Whether the first list of every kind that was asked for so far is complete.
    pub fn is_synced(&self) -> bool {
        self.inner.is_synced()
    }

    /// The same of what was asked for until this call; what comes later does not count, nor what is
    /// forgotten.
    pub(crate) fn synced_so_far(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        self.inner.synced_so_far()
    }

    /// How often objects did not fit their type, by kind. The count of a kind that is [forgotten](Self::forget) stays.
    pub fn decode_errors(&self) -> Vec<(String, u64)> {
        self.inner.decode_errors()
    }

    /// How often indexes, handlers, transforms and decoders panicked, by kind. The count of a kind that is
    /// [forgotten](Self::forget) stays.
    pub fn panics(&self) -> Vec<(String, u64)> {
        self.inner.panics()
    }

    /// A lister of all objects of a kind (in the manager's namespaces). If they are not all watched yet, that begins
    /// here. To read a part of a kind only, see [`lister_in`](Self::lister_in).
    pub fn lister<K: TypedObject>(&self) -> Lister<K> {
        self.lister_of(&K::DynamicType::default())
    }

    /// [`lister`](Self::lister) for a kind known only at run time.
    pub fn lister_of<K: Object>(&self, dt: &K::DynamicType) -> Lister<K> {
        let make = || self.inner.find_lister(&Kind::of::<K>(dt));
        Lister::new(self.inner.remembered(id_of::<K>(), |made| &mut made.listers, |made| &made.listers, &make))
    }

    /// All watches of a kind, for reads of one object; if there is none, a new one for all objects
    /// of the kind (in the manager's namespaces).
    pub(crate) fn known_with<K: Object>(&self, dt: &K::DynamicType) -> Known<K> {
        let make = || self.inner.find_known(&Kind::of::<K>(dt));
        Known::new(self.inner.remembered(id_of::<K>(), |made| &mut made.known, |made| &made.known, &make))
    }

    /// Reads what there is of a kind in a namespace, leaving out nothing of it. Where only parts are
    /// watched, the whole of that place is: what the operator may read does not change by that.
    pub(crate) fn lister_covering<K: Object>(&self, dt: &K::DynamicType, namespace: &str) -> Lister<K> {
        let known = self.known_with::<K>(dt);
        match self.inner.lister_covering(&Kind::of::<K>(dt), known.reflectors(), namespace) {
            Some(reading) => Lister::new(reading),
            None => self.lister_of(dt),
        }
    }

    /// Waits until a lister of a kind is complete, and knows all that other watches of the kind have told: these run
    /// apart, and one of them may be what called a reconciler.
    pub(crate) async fn wait_current<K: Object>(
        &self,
        dt: &K::DynamicType,
        lister: &Lister<K>,
    ) -> Result<(), SyncError> {
        lister.wait_current(&self.known_with::<K>(dt)).await
    }

    /// A lister of what a scope selects of a kind. If that is not watched yet, that begins here.
    pub fn lister_in<K: Object>(&self, dt: &K::DynamicType, scope: &Scope) -> Lister<K> {
        Lister::new(self.inner.lister_in(&Kind::of::<K>(dt), scope))
    }

    /// Changes every object of a kind before it is cached, to save the memory of fields that are not used. Handlers,
    /// predicates and cached reads see the changed objects, also after a write of this process.
    ///
    /// Name, namespace, uid and resource version stay as they are. Do not write such an object back as a whole. A
    /// [`Draft`](crate::Draft) of one is fine; if it changes a list that is not as the server has it, committing fails
    /// and names the list.
    ///
    /// To be called once, before the kind is watched: a later call changes nothing and returns false.
    ///
    /// ```
    /// # fn example(manager: &windlass::Manager) {
    /// use k8s_openapi::api::core::v1::Secret;
    ///
    /// // Names and labels are enough.
    /// manager.client().caches().transform(&(), |secret: &mut Secret| secret.data = None);
    /// # }
    /// ```
    pub fn transform<K: Object>(&self, dt: &K::DynamicType, change: impl Fn(&mut K) + Send + Sync + 'static) -> bool {
        self.set_transform::<K>(dt, Arc::new(change))
    }

    pub(crate) fn set_transform<K: Object>(&self, dt: &K::DynamicType, change: Transform<K>) -> bool {
        self.inner.set_transform(&Kind::of::<K>(dt), any_transform(change))
    }

    /// Whether cached objects of a kind are not what the server sent.
    pub(crate) fn has_transform<K: Object>(&self, dt: &K::DynamicType) -> bool {
        self.inner.has_transform(TypeId::of::<K>(), ApiResource::erase::<K>(dt))
    }

    /// Stops watching a kind, for all its readers, for example when its definition was deleted. Existing listers keep
    /// what they know and learn nothing more; controllers and handlers receive no more changes. A new lister
    /// starts a new watch.
    pub fn forget<K: Object>(&self, dt: &K::DynamicType) {
        self.inner.forget(&Kind::of::<K>(dt));
    }

    /// Stops watching what a scope selects of a kind: the watch that [`lister_in`](Self::lister_in) with that scope
    /// reads from. The watch stops for all its readers, as with [`forget`](Self::forget); watches of other namespaces
    /// or with other selectors go on.
    ///
    /// With [namespaces](CacheOptions::namespaces), a scope that names none stands for each of them.
    pub fn forget_in<K: Object>(&self, dt: &K::DynamicType, scope: &Scope) {
        self.inner.forget_in(&Kind::of::<K>(dt), scope);
    }

    /// The namespaces watched; all of them when there are none.
    pub(crate) fn namespaces(&self) -> &[String] {
        self.inner.namespaces()
    }

    /// Makes a write visible to cached reads before the watch shows it, whatever types they use.
    /// `json` is what the server answered.
    pub(crate) fn note_write<K: Object>(&self, resource: &ApiResource, object: &K, json: &[u8]) {
        let shared = || {
            let mut object = object.clone();
            object.meta_mut().managed_fields = None;
            Arc::new(object) as Shared
        };
        self.inner.note_write(resource, Some((TypeId::of::<K>(), &shared)), json);
    }

    /// The same for an object as the server has it, of no type in particular.
    pub(crate) fn note_read(&self, resource: &ApiResource, json: &[u8]) {
        self.inner.note_write(resource, None, json);
    }

    /// Makes a deletion visible to cached reads before the watch shows it, of every version of the
    /// kind.
    pub(crate) fn note_delete(&self, resource: &ApiResource, key: &ObjectKey, uid: Option<&str>) {
        self.inner.note_delete(resource, key, uid);
    }

    /// The other versions in which objects of a kind are watched where this one is, that was written
    /// with a resource version: what their caches know of it may be older from here on.
    pub(crate) fn note_elsewhere(
        &self,
        resource: &ApiResource,
        written: &ObjectKey,
        version: Option<u64>,
    ) -> Vec<ApiResource> {
        self.inner.note_elsewhere(resource, written, version)
    }

    /// The versions in which objects of a kind are watched where this one is, that was written in a way that did not
    /// tell what it looks like now: what caches know of it may be older than that version from here on.
    pub(crate) fn note_unseen(
        &self,
        resource: &ApiResource,
        written: &ObjectKey,
        version: Option<u64>,
    ) -> Vec<ApiResource> {
        self.inner.note_unseen(resource, written, version)
    }

    /// The versions in which objects of a kind are watched in a namespace.
    pub(crate) fn watched_versions(&self, resource: &ApiResource, namespace: Option<&str>) -> Vec<ApiResource> {
        self.inner.watched_versions(resource, namespace)
    }

    /// The uid of the object that cached reads show under a key.
    pub(crate) fn uid_of(&self, resource: &ApiResource, key: &ObjectKey) -> Option<String> {
        self.inner.uid_of(resource, key)
    }
}

/// The identity of a type that stands for one kind: one that needs nothing at run time.
fn id_of<K: Object>() -> Option<TypeId> {
    (size_of::<K::DynamicType>() == 0).then(TypeId::of::<K>)
}

/// Numbers of one kind, which may have several watches, as one.
pub(crate) fn by_kind(counts: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::new();
    for (kind, count) in counts {
        *sums.entry(kind).or_default() += count;
    }
    sums.into_iter().collect()
}

#[cfg(test)]
mod tests;
