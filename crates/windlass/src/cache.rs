//! Cached reads: the informers of a manager and the handles to read from them.
//!
//! [`Caches`] holds one informer per kind, namespace and selector, however many controllers,
//! handlers and readers look at it. [`Lister`] reads one kind without asking the server: by key,
//! by label, by owner, or by an index of one's own. What a lister returns is shared and never
//! older than the process's own last write of that object. (There are two exceptions. One is a write in
//! another version of the kind, of which the server would not tell how it looks in this one. Until
//! the watch has caught up, [`CachedClient::get`](crate::CachedClient::get) and [`list`](crate::CachedClient::list)
//! ask the server; a lister shows what it has. The other is a watch that is down while this process
//! writes more than 32,768 objects: then the oldest of these writes are forgotten, and the log says so.)
//!
//! What a reader sees does not depend on what others watch. A cache that a [`Scope`] narrows
//! answers for what it holds; of the rest it knows nothing, so a request for more is answered by
//! the server, or by a cache of all that was asked for.
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

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use kube::api::ApiResource;
use kube::core::Selector;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use known::{Found, Known};
pub use lister::Lister;

use crate::decode;
use crate::key::ObjectKey;
use crate::object::{Object, is_cluster_scoped};
use crate::reflector::{
    ApiSource, DecodeFailure, ListWatch, OnDecodeError, Reflector, Selection, SyncError, Transform,
};

/// Which objects of a kind are watched.
///
/// ```
/// use windlass::cache::Scope;
///
/// let everything = Scope::default();
/// let some = Scope::default()
///     .namespace("pets")
///     .labels([("app", "petstore")].into_iter().collect::<kube::core::Selector>());
/// assert_ne!(everything, some);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scope {
    namespace: Option<String>,
    labels: Option<Selector>,
    fields: Option<String>,
    cluster_scoped: bool,
}

impl Scope {
    /// Declares that the kind is cluster-scoped. Rust types declare this themselves; a kind known only at run time
    /// needs this call.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.cluster_scoped = true;
        self
    }

    pub(crate) fn is_cluster_scoped(&self) -> bool {
        self.cluster_scoped
    }

    /// Only objects of a namespace; the empty one means all.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        self
    }

    /// Only objects whose labels match.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<Selector>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects whose fields match, as `metadata.name=x`.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    pub(crate) fn in_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    fn selection(&self) -> Selection {
        Selection {
            namespace: self.namespace.clone(),
            labels: self.labels.as_ref().map(ToString::to_string),
            fields: self.fields.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReflectorKey {
    object_type: TypeId,
    resource: ApiResource,
    selection: Selection,
}

/// An informer of any kind, as the registry handles it.
trait AnyReflector: Send + Sync {
    fn start(&self, caches: &CachesInner);
    fn stop(&self);
    fn wait_synced(&self, timeout: Duration) -> BoxFuture<'_, Result<(), SyncError>>;
    /// The same for a reader, which does not wait for permissions.
    fn wait_for_reader<'a>(
        &'a self,
        timeout: Duration,
        closing: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), SyncError>>;
    fn is_synced(&self) -> bool;
    fn is_started(&self) -> bool;
    fn decode_errors(&self) -> (String, u64);
    fn panics(&self) -> (String, u64);
    /// Something of the kind was written: `object` if it is of the informer's type, and as JSON.
    fn note_write(&self, object: &dyn Any, json: &[u8]);
    fn note_delete(&self, key: &ObjectKey, uid: Option<&str>);
    /// Something of the kind was written in another version of it.
    fn note_elsewhere(&self, key: &ObjectKey, version: u64);
    /// The uid of the object that is shown under a key.
    fn uid_of(&self, key: &ObjectKey) -> Option<String>;
    fn as_any(&self) -> &(dyn Any + Send + Sync);
}

struct Registered<K: Object> {
    reflector: Arc<Reflector<K>>,
    source: Arc<dyn ListWatch<K>>,
    shutdown: CancellationToken,
}

impl<K: Object> AnyReflector for Registered<K> {
    fn start(&self, caches: &CachesInner) {
        if self.reflector.claim_start() {
            let running = Arc::clone(&self.reflector).run(Arc::clone(&self.source), self.shutdown.clone());
            match caches.runtime.get() {
                Some(runtime) => caches.tasks.spawn_on(running, runtime),
                None => caches.tasks.spawn(running),
            };
        }
    }

    fn stop(&self) {
        self.shutdown.cancel();
    }

    fn wait_synced(&self, timeout: Duration) -> BoxFuture<'_, Result<(), SyncError>> {
        Box::pin(self.reflector.wait_synced(timeout))
    }

    fn wait_for_reader<'a>(
        &'a self,
        timeout: Duration,
        closing: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(self.reflector.wait_for_reader(timeout, closing))
    }

    fn is_synced(&self) -> bool {
        self.reflector.is_synced()
    }

    fn is_started(&self) -> bool {
        self.reflector.is_started()
    }

    fn decode_errors(&self) -> (String, u64) {
        (self.reflector.describe(), self.reflector.decode_errors())
    }

    fn panics(&self) -> (String, u64) {
        (self.reflector.describe(), self.reflector.panics())
    }

    fn note_write(&self, object: &dyn Any, json: &[u8]) {
        // A type may know only a part of the kind: another's view comes from what the server said.
        let object = object.downcast_ref::<K>().cloned().or_else(|| decode::from_slice(json).ok());
        if let Some(mut object) = object {
            object.meta_mut().managed_fields = None;
            self.reflector.note_write(object);
        }
    }

    fn note_delete(&self, key: &ObjectKey, uid: Option<&str>) {
        self.reflector.note_delete(key, uid);
    }

    fn note_elsewhere(&self, key: &ObjectKey, version: u64) {
        self.reflector.note_elsewhere(key, version);
    }

    fn uid_of(&self, key: &ObjectKey) -> Option<String> {
        self.reflector.read(|store| store.get(key)).and_then(|object| object.meta().uid.clone())
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        &self.reflector
    }
}

/// By type: one [`Lister`] or [`Known`] each.
type Readers = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// Readers made so far, valid for one set of informers.
#[derive(Default)]
struct Made {
    generation: u64,
    /// Of all objects.
    listers: Readers,
    /// Of one object.
    known: Readers,
}

impl Made {
    /// The set of informers changed: a lister made before may read too few, or stopped ones.
    fn invalidate(&mut self) {
        self.generation += 1;
        self.listers.clear();
        self.known.clear();
    }
}

struct CachesInner {
    client: kube::Client,
    reflectors: Mutex<HashMap<ReflectorKey, Arc<dyn AnyReflector>>>,
    /// Readers of kinds known at compile time, by type, so that a cached read costs no search.
    readers: RwLock<Made>,
    /// What is done to objects before they are kept: one [`Transform`] for a type and resource.
    transforms: Mutex<HashMap<(TypeId, ApiResource), Arc<dyn Any + Send + Sync>>>,
    namespaces: Arc<[String]>,
    resync: Option<Duration>,
    sync_timeout: Duration,
    on_decode_error: Option<OnDecodeError>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    /// Cancelled before that, when readers are no longer to wait for a first list.
    closing: CancellationToken,
    started: AtomicBool,
    /// Where the tasks run, once they do.
    runtime: Arc<OnceLock<Handle>>,
    /// What informers counted before they were forgotten.
    past: Mutex<Counts>,
}

/// Decoding errors and panics, by kind.
#[derive(Default)]
struct Counts {
    decode_errors: BTreeMap<String, u64>,
    panics: BTreeMap<String, u64>,
}

impl CachesInner {
    /// Stops an informer that is forgotten. Its counts stay: they are never to go down.
    fn retire(&self, reflector: &dyn AnyReflector) {
        reflector.stop();
        let mut past = self.past.lock();
        let (kind, decode_errors) = reflector.decode_errors();
        *past.decode_errors.entry(kind).or_default() += decode_errors;
        let (kind, panics) = reflector.panics();
        *past.panics.entry(kind).or_default() += panics;
    }
}

/// All informers of a manager; clones share them.
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
    inner: Arc<CachesInner>,
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caches").field("reflectors", &self.inner.reflectors.lock().len()).finish_non_exhaustive()
    }
}

/// How [`Caches`] watch.
///
/// ```
/// use std::time::Duration;
/// use windlass::cache::CacheOptions;
///
/// let options = CacheOptions::default().namespaces(["petstore"]).resync(Duration::from_secs(36_000));
/// ```
#[derive(Clone)]
pub struct CacheOptions {
    pub(crate) namespaces: Vec<String>,
    pub(crate) resync: Option<Duration>,
    pub(crate) sync_timeout: Duration,
    pub(crate) on_decode_error: Option<OnDecodeError>,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { namespaces: Vec::new(), resync: None, sync_timeout: Duration::from_secs(120), on_decode_error: None }
    }
}

impl std::fmt::Debug for CacheOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheOptions")
            .field("namespaces", &self.namespaces)
            .field("resync", &self.resync)
            .field("sync_timeout", &self.sync_timeout)
            .finish_non_exhaustive()
    }
}

impl CacheOptions {
    /// Watches these namespaces only. Without any, or if one of them is empty, all.
    #[must_use]
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Reminds handlers of every object this often, give or take a tenth. Never by default.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// How long to wait for the first list of a kind; two minutes by default.
    #[must_use]
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.sync_timeout = timeout;
        self
    }

    /// Calls a function for every object that does not fit its type: once, and again when it does not fit in another
    /// way. A manager reports a Warning event on the object. The function must not block.
    #[must_use]
    pub fn on_decode_error(mut self, tell: impl Fn(&DecodeFailure) + Send + Sync + 'static) -> Self {
        self.on_decode_error = Some(Arc::new(tell));
        self
    }
}

impl Caches {
    /// Caches that read from a server. They watch nothing before they are started.
    pub fn new(client: kube::Client, mut options: CacheOptions) -> Self {
        // Listers rely on it that no two of their reflectors know the same object.
        let mut seen = HashSet::new();
        options.namespaces.retain(|namespace| seen.insert(namespace.clone()));
        // Kubernetes' own name for all of them.
        if seen.contains("") {
            if seen.len() > 1 {
                tracing::warn!(namespaces = ?options.namespaces, "one of the namespaces is empty: watching all");
            }
            options.namespaces.clear();
        }
        Self {
            inner: Arc::new(CachesInner {
                client,
                reflectors: Mutex::new(HashMap::new()),
                readers: RwLock::default(),
                transforms: Mutex::default(),
                namespaces: options.namespaces.into(),
                resync: options.resync,
                sync_timeout: options.sync_timeout,
                on_decode_error: options.on_decode_error,
                tasks: TaskTracker::new(),
                shutdown: CancellationToken::new(),
                closing: CancellationToken::new(),
                started: AtomicBool::new(false),
                runtime: Arc::default(),
                past: Mutex::default(),
            }),
        }
    }

    /// Starts all informers, and from now on every new one at once. Must be called on a Tokio
    /// runtime.
    pub fn start(&self) {
        let reflectors = self.inner.reflectors.lock();
        self.inner.runtime.get_or_init(Handle::current);
        self.inner.started.store(true, Ordering::Release);
        for reflector in reflectors.values() {
            reflector.start(&self.inner);
        }
    }

    /// Stops all informers and waits for their tasks.
    pub async fn stop(&self) {
        self.inner.shutdown.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Lets nobody wait for a first list any more: what is not there by now will not be.
    pub(crate) fn close(&self) {
        self.inner.closing.cancel();
    }

    /// Stops all informers, without waiting, when the guard is dropped.
    pub(crate) fn stop_on_drop(&self) -> tokio_util::sync::DropGuard {
        self.inner.shutdown.clone().drop_guard()
    }

    /// Waits until everything asked for so far has been listed once.
    pub async fn wait_synced(&self) -> Result<(), SyncError> {
        let reflectors: Vec<_> = self.inner.reflectors.lock().values().cloned().collect();
        for reflector in reflectors {
            reflector.wait_synced(self.inner.sync_timeout).await?;
        }
        Ok(())
    }

    /// Waits until everything asked for so far has been listed once, or cannot be, and returns what could not.
    pub(crate) async fn sync_failures(&self) -> Vec<SyncError> {
        let reflectors: Vec<_> = self.inner.reflectors.lock().values().cloned().collect();
        let (timeout, closing) = (self.inner.sync_timeout, &self.inner.closing);
        let waiting = reflectors.iter().map(|reflector| reflector.wait_for_reader(timeout, closing));
        futures::future::join_all(waiting).await.into_iter().filter_map(Result::err).collect()
    }

    /// For tasks that end with the caches.
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner {
            runtime: Arc::clone(&self.inner.runtime),
            tasks: self.inner.tasks.clone(),
            shutdown: self.inner.shutdown.clone(),
        }
    }

    /// Whether everything asked for so far has been listed once.
    pub fn is_synced(&self) -> bool {
        let reflectors = self.inner.reflectors.lock();
        reflectors.values().all(|reflector| reflector.is_synced())
    }

    /// The same of what was asked for until this call; what comes later does not count, nor what is
    /// forgotten.
    pub(crate) fn synced_so_far(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        // Those themselves, not their keys: one that is forgotten may have a successor.
        let reflectors: Vec<_> = self.inner.reflectors.lock().values().map(Arc::downgrade).collect();
        move || reflectors.iter().all(|reflector| reflector.upgrade().is_none_or(|reflector| reflector.is_synced()))
    }

    /// Objects that could not be decoded, by kind; what is [forgotten](Self::forget) counts on.
    pub fn decode_errors(&self) -> Vec<(String, u64)> {
        let (reflectors, past) = (self.inner.reflectors.lock(), self.inner.past.lock());
        let before = past.decode_errors.iter().map(|(kind, count)| (kind.clone(), *count));
        by_kind(reflectors.values().map(|reflector| reflector.decode_errors()).chain(before))
    }

    /// How often indexes, handlers and decoders panicked, by kind; what is [forgotten](Self::forget)
    /// counts on.
    pub fn panics(&self) -> Vec<(String, u64)> {
        let (reflectors, past) = (self.inner.reflectors.lock(), self.inner.past.lock());
        let before = past.panics.iter().map(|(kind, count)| (kind.clone(), *count));
        by_kind(reflectors.values().map(|reflector| reflector.panics()).chain(before))
    }

    /// Reads all objects of a kind (in the manager's namespaces), whatever parts of them others
    /// watch: from an informer that has them all, or, if there is none, from a new one. To read a
    /// part only, as a controller that watches no more does, there is
    /// [`lister_in`](Self::lister_in).
    pub fn lister<K: Object>(&self) -> Lister<K>
    where
        K::DynamicType: Default,
    {
        self.lister_of(&K::DynamicType::default())
    }

    /// [`lister`](Self::lister) for a kind known only at run time.
    pub fn lister_of<K: Object>(&self, dt: &K::DynamicType) -> Lister<K> {
        self.remembered::<K, _>(|made| &mut made.listers, |made| &made.listers, || self.find_lister(dt))
    }

    /// All informers of a kind, for reads of one object; if there is none, a new one for all objects
    /// of the kind (in the manager's namespaces).
    pub(crate) fn known_with<K: Object>(&self, dt: &K::DynamicType) -> Known<K> {
        self.remembered::<K, _>(|made| &mut made.known, |made| &made.known, || self.find_known(dt))
    }

    /// What was made before, if the type stands for one kind; otherwise, or the first time, it is made.
    fn remembered<K: Object, R: Clone + Send + Sync + 'static>(
        &self,
        keep: impl FnOnce(&mut Made) -> &mut Readers,
        look: impl FnOnce(&Made) -> &Readers,
        make: impl FnOnce() -> R,
    ) -> R {
        // A type that needs nothing at run time stands for one kind.
        let known = size_of::<K::DynamicType>() == 0;
        let id = TypeId::of::<K>();
        let generation = {
            let made = self.inner.readers.read();
            if known && let Some(reader) = look(&made).get(&id).and_then(|any| any.downcast_ref::<R>()) {
                return reader.clone();
            }
            made.generation
        };
        let reader = make();
        if known {
            let mut made = self.inner.readers.write();
            if made.generation == generation {
                keep(&mut made).insert(id, Arc::new(reader.clone()));
            }
        }
        reader
    }

    /// Changes every object of a kind before it is cached, to save the memory of fields that are never read.
    /// Handlers, predicates and cached reads see the changed objects, also after this process has written one.
    /// Name, namespace, uid and resource version stay; do not write such objects back as a whole.
    /// A [`Draft`](crate::Draft) of one is fine; where it changes a list that is not as the server has
    /// it, committing fails and says which.
    ///
    /// Call it once, before the kind is watched: later calls change nothing and return
    /// false.
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
        let resource = ApiResource::erase::<K>(dt);
        let reflectors = self.inner.reflectors.lock();
        let mut transforms = self.inner.transforms.lock();
        let id = (TypeId::of::<K>(), resource);
        if transforms.contains_key(&id) || reflectors.keys().any(|key| key.object_type == id.0 && key.resource == id.1)
        {
            return false;
        }
        transforms.insert(id, Arc::new(change));
        true
    }

    /// Whether cached objects of a kind are not what the server sent.
    pub(crate) fn has_transform<K: Object>(&self, dt: &K::DynamicType) -> bool {
        self.inner.transforms.lock().contains_key(&(TypeId::of::<K>(), ApiResource::erase::<K>(dt)))
    }

    /// Stops watching a kind, for example after its CRD was deleted. Its listers keep their objects and are not
    /// updated any more, and its controllers and handlers receive no more changes. A new lister starts a new watch.
    pub fn forget<K: Object>(&self, dt: &K::DynamicType) {
        let resource = ApiResource::erase::<K>(dt);
        let mut reflectors = self.inner.reflectors.lock();
        reflectors.retain(|key, reflector| {
            let keep = key.object_type != TypeId::of::<K>() || key.resource != resource;
            if !keep {
                self.inner.retire(&**reflector);
            }
            keep
        });
        self.inner.readers.write().invalidate();
    }

    /// Stops watching what a scope selects of a kind: what [`lister_in`](Self::lister_in) with that scope reads
    /// from. All readers of the same namespace with the same selectors share one watch, so it stops for
    /// all of them: listers keep their objects and are not updated any more, and controllers and handlers of that
    /// scope receive no more changes. In a manager with [namespaces](CacheOptions::namespaces) a scope that
    /// names none stands for each of them, so the watches that name one of them with the same selectors are
    /// among these. Watches of other namespaces or with other selectors go on.
    pub fn forget_in<K: Object>(&self, dt: &K::DynamicType, scope: &Scope) {
        let mut reflectors = self.inner.reflectors.lock();
        for scope in self.spread::<K>(scope) {
            let key = ReflectorKey {
                object_type: TypeId::of::<K>(),
                resource: ApiResource::erase::<K>(dt),
                selection: scope.selection(),
            };
            if let Some(reflector) = reflectors.remove(&key) {
                self.inner.retire(&*reflector);
            }
        }
        drop(reflectors);
        self.inner.readers.write().invalidate();
    }

    /// The namespaces watched; all of them when there are none.
    pub(crate) fn namespaces(&self) -> &[String] {
        &self.inner.namespaces
    }

    fn find_lister<K: Object>(&self, dt: &K::DynamicType) -> Lister<K> {
        // Of a kind that is known only at run time, a reflector may know better that it is in no
        // namespace.
        let existing = self.existing::<K>(&ApiResource::erase::<K>(dt));
        match existing.into_iter().find(|reflector| reflector.is_whole() && reflector.namespace().is_none()) {
            Some(everything) => self.reading(vec![everything]),
            None => self.lister_in(dt, &Scope::default()),
        }
    }

    fn find_known<K: Object>(&self, dt: &K::DynamicType) -> Known<K> {
        let resource = ApiResource::erase::<K>(dt);
        let mut reflectors = self.existing::<K>(&resource);
        if reflectors.is_empty() {
            self.lister_in::<K>(dt, &Scope::default());
            reflectors = self.existing(&resource);
        }
        let limited = !is_cluster_scoped::<K>() && !self.inner.namespaces.is_empty();
        let reach = limited.then(|| Arc::clone(&self.inner.namespaces));
        Known::new(reflectors, reach, self.inner.sync_timeout, self.inner.closing.clone())
    }

    /// Reads what there is of a kind in a namespace, leaving out nothing of it. Where only parts are
    /// watched, the whole of that place is: what the operator may read does not change by that.
    pub(crate) fn lister_covering<K: Object>(&self, dt: &K::DynamicType, namespace: &str) -> Lister<K> {
        let known = self.known_with::<K>(dt);
        let covering = || known.reflectors().iter().filter(|reflector| reflector.covers(Some(namespace)));
        if let Some(whole) = covering().find(|reflector| reflector.is_whole() && reflector.is_synced()) {
            return self.reading(vec![Arc::clone(whole)]);
        }
        match covering().map(|reflector| reflector.namespace()).max() {
            Some(place) => {
                let scope = Scope { namespace: place.map(str::to_owned), ..Scope::default() };
                self.reading(vec![self.reflector(dt, &scope)])
            }
            None => self.lister_of(dt),
        }
    }

    fn reading<K: Object>(&self, reflectors: Vec<Arc<Reflector<K>>>) -> Lister<K> {
        Lister::new(reflectors, self.inner.sync_timeout, self.inner.closing.clone())
    }

    /// Reads what a scope selects of a kind.
    pub fn lister_in<K: Object>(&self, dt: &K::DynamicType, scope: &Scope) -> Lister<K> {
        self.reading(self.spread::<K>(scope).iter().map(|scope| self.reflector(dt, scope)).collect())
    }

    /// A scope as informers have it: each of one of the manager's namespaces, if it was given any.
    fn spread<K: Object>(&self, scope: &Scope) -> Vec<Scope> {
        if is_cluster_scoped::<K>() || scope.cluster_scoped {
            vec![Scope { namespace: None, ..scope.clone() }]
        } else if scope.namespace.is_some() || self.inner.namespaces.is_empty() {
            vec![scope.clone()]
        } else {
            let spread = |namespace: &String| scope.clone().namespace(namespace);
            self.inner.namespaces.iter().map(spread).collect()
        }
    }

    fn reflector<K: Object>(&self, dt: &K::DynamicType, scope: &Scope) -> Arc<Reflector<K>> {
        let resource = ApiResource::erase::<K>(dt);
        let selection = scope.selection();
        let key =
            ReflectorKey { object_type: TypeId::of::<K>(), resource: resource.clone(), selection: selection.clone() };
        let mut reflectors = self.inner.reflectors.lock();
        if let Some(known) = reflectors.get(&key).and_then(|any| downcast::<K>(&**any)) {
            return known;
        }
        let transform = self.inner.transforms.lock().get(&(key.object_type, resource.clone())).cloned();
        let transform = transform.and_then(|any| any.downcast_ref::<Transform<K>>().cloned());
        let source = ApiSource::new(self.inner.client.clone(), dt, selection.clone());
        let registered = Arc::new(Registered {
            reflector: Reflector::new(
                resource,
                selection,
                scope.labels.clone(),
                self.inner.resync,
                transform,
                self.inner.on_decode_error.clone(),
            ),
            source: Arc::new(source),
            shutdown: self.inner.shutdown.child_token(),
        });
        let reflector = Arc::clone(&registered.reflector);
        if self.inner.started.load(Ordering::Acquire) {
            registered.start(&self.inner);
        }
        reflectors.insert(key, registered);
        self.inner.readers.write().invalidate();
        reflector
    }

    /// The informers of a kind.
    fn existing<K: Object>(&self, resource: &ApiResource) -> Vec<Arc<Reflector<K>>> {
        let reflectors = self.inner.reflectors.lock();
        let of_kind =
            reflectors.iter().filter(|(key, _)| key.object_type == TypeId::of::<K>() && key.resource == *resource);
        of_kind.filter_map(|(_, any)| downcast(&**any)).collect()
    }

    /// Makes a write visible to cached reads before the watch shows it, whatever types they use.
    /// `json` is what the server answered.
    pub(crate) fn note_write<K: Object>(&self, resource: &ApiResource, object: &K, json: &[u8]) {
        for reflector in self.of_resource(resource) {
            reflector.note_write(object, json);
        }
    }

    /// The same for an object as the server has it, of no type in particular.
    pub(crate) fn note_read(&self, resource: &ApiResource, json: &[u8]) {
        for reflector in self.of_resource(resource) {
            reflector.note_write(&(), json);
        }
    }

    /// Makes a deletion visible to cached reads before the watch shows it, of every version of the
    /// kind.
    pub(crate) fn note_delete(&self, resource: &ApiResource, key: &ObjectKey, uid: Option<&str>) {
        let reflectors = self.inner.reflectors.lock();
        let same = reflectors.iter().filter(|(key, _)| is_same_kind(&key.resource, resource));
        let same: Vec<_> = same.map(|(_, any)| Arc::clone(any)).collect();
        drop(reflectors);
        for reflector in same {
            reflector.note_delete(key, uid);
        }
    }

    /// The other versions in which objects of a kind are watched where this one is, that was written
    /// with a resource version: what their caches know of it may be older from here on.
    pub(crate) fn note_elsewhere(
        &self,
        resource: &ApiResource,
        written: &ObjectKey,
        version: Option<u64>,
    ) -> Vec<ApiResource> {
        let reflectors = self.inner.reflectors.lock();
        let mut others: Vec<ApiResource> = Vec::new();
        for (key, reflector) in reflectors.iter() {
            let other = &key.resource;
            let covers = key.selection.namespace.is_none() || key.selection.namespace.as_deref() == written.namespace();
            if !is_same_kind(other, resource) || other.version == resource.version || !covers || !reflector.is_started()
            {
                continue;
            }
            if let Some(version) = version {
                reflector.note_elsewhere(written, version);
            }
            if others.iter().all(|known| known.version != other.version) {
                others.push(other.clone());
            }
        }
        others
    }

    /// The versions in which objects of a kind are watched where this one is, that was written in a way that did not
    /// tell what it looks like now: what caches know of it may be older than that version from here on.
    pub(crate) fn note_unseen(
        &self,
        resource: &ApiResource,
        written: &ObjectKey,
        version: Option<u64>,
    ) -> Vec<ApiResource> {
        let watching = self.watching(resource, written.namespace());
        if let Some(version) = version {
            for (_, reflector) in &watching {
                reflector.note_elsewhere(written, version);
            }
        }
        versions(watching)
    }

    /// The versions in which objects of a kind are watched in a namespace.
    pub(crate) fn watched_versions(&self, resource: &ApiResource, namespace: Option<&str>) -> Vec<ApiResource> {
        versions(self.watching(resource, namespace))
    }

    /// The uid of the object that cached reads show under a key.
    pub(crate) fn uid_of(&self, resource: &ApiResource, key: &ObjectKey) -> Option<String> {
        self.watching(resource, key.namespace()).iter().find_map(|(_, reflector)| reflector.uid_of(key))
    }

    /// The informers of a kind, in whatever version, that may know objects of a namespace.
    fn watching(&self, resource: &ApiResource, namespace: Option<&str>) -> Vec<(ApiResource, Arc<dyn AnyReflector>)> {
        let reflectors = self.inner.reflectors.lock();
        let covers = |key: &ReflectorKey| match key.selection.namespace.as_deref() {
            Some(watched) => namespace == Some(watched),
            None => true,
        };
        let watching = reflectors
            .iter()
            .filter(|(key, reflector)| is_same_kind(&key.resource, resource) && covers(key) && reflector.is_started());
        watching.map(|(key, reflector)| (key.resource.clone(), Arc::clone(reflector))).collect()
    }

    fn of_resource(&self, resource: &ApiResource) -> Vec<Arc<dyn AnyReflector>> {
        let same = |other: &ApiResource| is_same_kind(other, resource) && other.version == resource.version;
        let reflectors = self.inner.reflectors.lock();
        reflectors.iter().filter(|(key, _)| same(&key.resource)).map(|(_, any)| Arc::clone(any)).collect()
    }
}

/// Spawns tasks that [`Caches::stop`] waits for, without keeping the caches alive.
#[derive(Clone)]
pub(crate) struct Spawner {
    runtime: Arc<OnceLock<Handle>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl Spawner {
    /// False before the caches are started.
    pub(crate) fn spawn_blocking(&self, task: impl FnOnce() + Send + 'static) -> bool {
        let Some(runtime) = self.runtime.get() else {
            return false;
        };
        self.tasks.spawn_blocking_on(task, runtime);
        true
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.shutdown.is_cancelled()
    }
}

/// Each version once.
fn versions(watching: Vec<(ApiResource, Arc<dyn AnyReflector>)>) -> Vec<ApiResource> {
    let mut versions: Vec<ApiResource> = Vec::new();
    for (resource, _) in watching {
        if versions.iter().all(|known| known.version != resource.version) {
            versions.push(resource);
        }
    }
    versions
}

/// Numbers of one kind, which may have several informers, as one.
pub(crate) fn by_kind(counts: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::new();
    for (kind, count) in counts {
        *sums.entry(kind).or_default() += count;
    }
    sums.into_iter().collect()
}

/// Whether objects of one are objects of the other, perhaps in another version.
fn is_same_kind(one: &ApiResource, other: &ApiResource) -> bool {
    (&one.group, &one.plural) == (&other.group, &other.plural)
}

fn downcast<K: Object>(reflector: &dyn AnyReflector) -> Option<Arc<Reflector<K>>> {
    reflector.as_any().downcast_ref().cloned()
}

#[cfg(test)]
mod tests;
