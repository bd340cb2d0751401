//! Cached reads: the informers of a manager and the handles to read from them.
//!
//! [`Caches`] holds one informer per kind, namespace and selector, however many controllers,
//! handlers and readers look at it. [`Lister`] reads one kind without asking the server: by key,
//! by label, by owner, or by an index of one's own. What a lister returns is shared and never
//! older than the process's own last write of that object.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use kube::Resource;
use kube::api::{ApiResource, PartialObjectMeta};
use kube::core::{Selector, SelectorExt};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::informer::{ApiSource, Change, Informer, ListWatch, Selection, Subscription, SyncError};
use crate::key::ObjectKey;
use crate::object::Object;

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
}

impl Scope {
    /// Only objects of a namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
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

    fn selection(&self) -> Selection {
        Selection {
            namespace: self.namespace.clone(),
            labels: self.labels.as_ref().map(ToString::to_string),
            fields: self.fields.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct InformerKey {
    object_type: TypeId,
    resource: ApiResource,
    selection: Selection,
}

/// An informer of any kind, as the registry handles it.
trait AnyInformer: Send + Sync {
    fn start(&self, caches: &CachesInner);
    fn wait_synced(&self, timeout: Duration) -> BoxFuture<'_, Result<(), SyncError>>;
    fn is_synced(&self) -> bool;
    fn decode_errors(&self) -> (String, u64);
    fn as_any(&self) -> &(dyn Any + Send + Sync);
}

struct Registered<K: Object> {
    informer: Arc<Informer<K>>,
    source: Arc<dyn ListWatch<K>>,
}

impl<K: Object> AnyInformer for Registered<K> {
    fn start(&self, caches: &CachesInner) {
        if self.informer.claim_start() {
            caches.tasks.spawn(Arc::clone(&self.informer).run(Arc::clone(&self.source), caches.shutdown.clone()));
        }
    }

    fn wait_synced(&self, timeout: Duration) -> BoxFuture<'_, Result<(), SyncError>> {
        Box::pin(self.informer.wait_synced(timeout))
    }

    fn is_synced(&self) -> bool {
        self.informer.is_synced()
    }

    fn decode_errors(&self) -> (String, u64) {
        (self.informer.describe(), self.informer.decode_errors())
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        &self.informer
    }
}

struct CachesInner {
    client: kube::Client,
    informers: Mutex<HashMap<InformerKey, Arc<dyn AnyInformer>>>,
    namespaces: Vec<String>,
    resync: Option<Duration>,
    sync_timeout: Duration,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    started: AtomicBool,
}

/// All informers of a manager; clones share them.
#[derive(Clone)]
pub struct Caches {
    inner: Arc<CachesInner>,
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caches").field("informers", &self.inner.informers.lock().len()).finish_non_exhaustive()
    }
}

/// How [`Caches`] watch.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Watch these namespaces only; empty means all.
    pub namespaces: Vec<String>,
    /// Remind handlers of every object this often, give or take a tenth.
    pub resync: Option<Duration>,
    /// How long to wait for the first list of a kind.
    pub sync_timeout: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { namespaces: Vec::new(), resync: None, sync_timeout: Duration::from_secs(120) }
    }
}

impl Caches {
    /// Caches that read from a server. They watch nothing before they are started.
    pub fn new(client: kube::Client, options: CacheOptions) -> Self {
        Self {
            inner: Arc::new(CachesInner {
                client,
                informers: Mutex::new(HashMap::new()),
                namespaces: options.namespaces,
                resync: options.resync,
                sync_timeout: options.sync_timeout,
                tasks: TaskTracker::new(),
                shutdown: CancellationToken::new(),
                started: AtomicBool::new(false),
            }),
        }
    }

    /// Starts all informers, and from now on every new one at once. Must be called on a Tokio
    /// runtime.
    pub fn start(&self) {
        let informers = self.inner.informers.lock();
        self.inner.started.store(true, Ordering::Release);
        for informer in informers.values() {
            informer.start(&self.inner);
        }
    }

    /// Stops all informers and waits for their tasks.
    pub async fn stop(&self) {
        self.inner.shutdown.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Stops all informers, without waiting, when the guard is dropped.
    pub(crate) fn stop_on_drop(&self) -> tokio_util::sync::DropGuard {
        self.inner.shutdown.clone().drop_guard()
    }

    /// Waits until everything asked for so far has been listed once.
    pub async fn wait_synced(&self) -> Result<(), SyncError> {
        let informers: Vec<_> = self.inner.informers.lock().values().cloned().collect();
        for informer in informers {
            informer.wait_synced(self.inner.sync_timeout).await?;
        }
        Ok(())
    }

    /// Whether everything asked for so far has been listed once.
    pub fn is_synced(&self) -> bool {
        let informers = self.inner.informers.lock();
        informers.values().all(|informer| informer.is_synced())
    }

    /// Objects that could not be decoded, by kind.
    pub fn decode_errors(&self) -> Vec<(String, u64)> {
        let informers = self.inner.informers.lock();
        informers.values().map(|informer| informer.decode_errors()).collect()
    }

    /// Reads a kind: from the informers that exist for it, or, if there is none, from a new one
    /// for all objects of the kind (in the manager's namespaces).
    pub fn lister<K: Object>(&self) -> Lister<K>
    where
        K::DynamicType: Default,
    {
        self.lister_with(&K::DynamicType::default())
    }

    /// [`lister`](Self::lister) for a kind known only at run time.
    pub fn lister_with<K: Object>(&self, dt: &K::DynamicType) -> Lister<K> {
        let resource = ApiResource::erase::<K>(dt);
        let existing = self.existing::<K>(&resource);
        if existing.is_empty() {
            self.lister_in(dt, &Scope::default())
        } else {
            Lister::new(existing, self.inner.sync_timeout)
        }
    }

    /// Reads what a scope selects of a kind.
    pub fn lister_in<K: Object>(&self, dt: &K::DynamicType, scope: &Scope) -> Lister<K> {
        let scopes = if scope.namespace.is_some() || self.inner.namespaces.is_empty() {
            vec![scope.clone()]
        } else {
            let spread = |namespace: &String| scope.clone().namespace(namespace);
            self.inner.namespaces.iter().map(spread).collect()
        };
        let informers = scopes.iter().map(|scope| self.informer(dt, scope)).collect();
        Lister::new(informers, self.inner.sync_timeout)
    }

    fn informer<K: Object>(&self, dt: &K::DynamicType, scope: &Scope) -> Arc<Informer<K>> {
        let resource = ApiResource::erase::<K>(dt);
        let selection = scope.selection();
        let key =
            InformerKey { object_type: TypeId::of::<K>(), resource: resource.clone(), selection: selection.clone() };
        let mut informers = self.inner.informers.lock();
        if let Some(known) = informers.get(&key).and_then(|any| downcast::<K>(&**any)) {
            return known;
        }
        let source = ApiSource::new(self.inner.client.clone(), dt, selection.clone());
        let registered = Arc::new(Registered {
            informer: Informer::new(resource, selection, scope.labels.clone(), self.inner.resync),
            source: Arc::new(source),
        });
        let informer = Arc::clone(&registered.informer);
        if self.inner.started.load(Ordering::Acquire) {
            registered.start(&self.inner);
        }
        informers.insert(key, registered);
        informer
    }

    fn existing<K: Object>(&self, resource: &ApiResource) -> Vec<Arc<Informer<K>>> {
        let informers = self.inner.informers.lock();
        let of_kind =
            || informers.iter().filter(|(key, _)| key.object_type == TypeId::of::<K>() && key.resource == *resource);
        // An informer that is not narrowed knows everything the narrowed ones do.
        let whole = of_kind().filter(|(key, _)| key.selection.labels.is_none() && key.selection.fields.is_none());
        let mut found: Vec<_> = whole.filter_map(|(_, any)| downcast(&**any)).collect();
        if found.is_empty() {
            found = of_kind().filter_map(|(_, any)| downcast(&**any)).collect();
        }
        found
    }

    /// Makes a write visible to cached reads before the watch shows it.
    pub(crate) fn note_write<K: Object>(&self, object: &K) {
        let informers = self.of_type::<K>();
        if !informers.is_empty() {
            let mut object = object.clone();
            object.meta_mut().managed_fields = None;
            let object = Arc::new(object);
            for informer in informers {
                informer.note_write(Arc::clone(&object));
            }
        }
        for informer in self.of_type::<PartialObjectMeta<K>>() {
            let mut metadata = object.meta().clone();
            metadata.managed_fields = None;
            informer.note_write(Arc::new(PartialObjectMeta {
                types: None,
                metadata,
                _phantom: std::marker::PhantomData,
            }));
        }
    }

    /// Makes a deletion visible to cached reads before the watch shows it.
    pub(crate) fn note_delete<K: Object>(&self, key: &ObjectKey, uid: Option<&str>) {
        for informer in self.of_type::<K>() {
            informer.note_delete(key, uid);
        }
        for informer in self.of_type::<PartialObjectMeta<K>>() {
            informer.note_delete(key, uid);
        }
    }

    fn of_type<K: Object>(&self) -> Vec<Arc<Informer<K>>> {
        let informers = self.inner.informers.lock();
        informers
            .iter()
            .filter(|(key, _)| key.object_type == TypeId::of::<K>())
            .filter_map(|(_, any)| downcast(&**any))
            .collect()
    }
}

fn downcast<K: Object>(informer: &dyn AnyInformer) -> Option<Arc<Informer<K>>> {
    informer.as_any().downcast_ref().cloned()
}

/// Reads objects of one kind from the cache. Clones share the cache.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use windlass::{ObjectKey, cache::Lister};
/// # fn example(pods: Lister<Pod>) {
/// let one: Option<Arc<Pod>> = pods.get(&ObjectKey::new("default", "web-0"));
/// let web: Vec<Arc<Pod>> = pods.labelled("app", "web");
/// pods.index("node", |pod: &Pod| {
///     pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()
/// });
/// let on_node = pods.find("node", "node-1");
/// # }
/// ```
pub struct Lister<K: Object> {
    informers: Arc<[Arc<Informer<K>>]>,
    sync_timeout: Duration,
}

impl<K: Object> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self { informers: Arc::clone(&self.informers), sync_timeout: self.sync_timeout }
    }
}

impl<K: Object> std::fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lister")
            .field("kind", &self.informers.first().map(|i| i.describe()))
            .field("objects", &self.len())
            .finish_non_exhaustive()
    }
}

impl<K: Object> Lister<K> {
    fn new(informers: Vec<Arc<Informer<K>>>, sync_timeout: Duration) -> Self {
        Self { informers: informers.into(), sync_timeout }
    }

    /// One object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.informers
            .iter()
            .filter(|informer| informer.namespace().is_none() || informer.namespace() == key.namespace())
            .find_map(|informer| informer.read(|store| store.get(key)))
    }

    /// All objects, in no particular order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.filter(|_| true)
    }

    /// All objects of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.filter(|object| object.meta().namespace.as_deref() == Some(namespace))
    }

    /// All objects that a predicate accepts. The predicate must not use the cache of this kind.
    pub fn filter(&self, accept: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.gather(|store| store.iter().filter(|object| accept(object)).cloned().collect())
    }

    /// All objects whose labels a selector matches.
    pub fn matching(&self, selector: &Selector) -> Vec<Arc<K>> {
        let none = std::collections::BTreeMap::new();
        self.filter(|object| selector.matches(object.meta().labels.as_ref().unwrap_or(&none)))
    }

    /// All objects with a label of this value, through an index made at the first call.
    pub fn labelled(&self, label: &str, value: &str) -> Vec<Arc<K>> {
        let name = format!("label/{label}");
        let label = label.to_owned();
        self.ensure_index(&name, move |object: &K| {
            let labels = object.meta().labels.as_ref();
            labels.and_then(|labels| labels.get(&label)).cloned().into_iter().collect()
        });
        self.by_index(&name, value)
    }

    /// All objects owned by another (controller or not), through an index made at the first call.
    pub fn owned_by<O: Resource>(&self, owner: &O) -> Vec<Arc<K>> {
        let Some(uid) = owner.meta().uid.as_deref() else {
            return Vec::new();
        };
        self.ensure_index("owner", |object: &K| {
            let owners = object.meta().owner_references.iter().flatten();
            owners.map(|owner| owner.uid.clone()).collect()
        });
        self.by_index("owner", uid)
    }

    /// Adds an index: `values` names what an object is filed under. A name that exists is kept.
    /// Indexes may be added at any time; what is known is filed at once.
    pub fn index(&self, name: &str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        self.ensure_index(&format!("user/{name}"), values);
    }

    /// All objects filed under a value of an index added with [`index`](Self::index); none if
    /// there is no such index.
    pub fn find(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.by_index(&format!("user/{index}"), value)
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.informers.iter().map(|informer| informer.read(crate::informer::Store::len)).sum()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the kind has been listed completely once.
    pub fn is_synced(&self) -> bool {
        self.informers.iter().all(|informer| informer.is_synced())
    }

    /// Waits until the kind has been listed completely once. The error names the kind and what
    /// stands in the way.
    pub async fn wait_synced(&self) -> Result<(), SyncError> {
        for informer in &*self.informers {
            if !informer.is_synced() && !informer.is_started() {
                return Err(SyncError::NotStarted { kind: informer.describe() });
            }
            informer.wait_synced(self.sync_timeout).await?;
        }
        Ok(())
    }

    /// Calls a handler for every object that is known and then for every change, until the
    /// subscription is dropped. The handler must not block, and must not subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) -> Subscription {
        let handler = Arc::new(handler);
        let subscriptions: Vec<_> = self
            .informers
            .iter()
            .map(|informer| {
                let handler = Arc::clone(&handler);
                informer.subscribe(move |change| handler(change))
            })
            .collect();
        Subscription::joined(subscriptions)
    }

    fn ensure_index(&self, name: &str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let values = Arc::new(values);
        for informer in &*self.informers {
            let values = Arc::clone(&values);
            informer.ensure_index(name, move || values);
        }
    }

    fn by_index(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        self.gather(|store| store.by_index(name, value))
    }

    fn gather(&self, read: impl Fn(&crate::informer::Store<K>) -> Vec<Arc<K>>) -> Vec<Arc<K>> {
        let mut found: Vec<Arc<K>> = Vec::new();
        for informer in &*self.informers {
            found.extend(informer.read(&read));
        }
        if self.informers.len() > 1 {
            // Informers with different selectors may both know an object.
            let mut seen = std::collections::HashSet::new();
            found.retain(|object| seen.insert(ObjectKey::of(&**object)));
        }
        found
    }
}
