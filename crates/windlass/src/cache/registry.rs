//! The reflectors of one set of caches: one per kind, namespace and selector. Compiled once for all kinds.

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::api::ApiResource;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::by_kind;
use super::known::KnownReflectors;
use super::options::CacheOptions;
use super::reading::Reading;
use super::scope::Scope;
use crate::key::ObjectKey;
use crate::reflector::{AnyTransform, ApiSource, Kind, Reflector, Selection, Settings, Shared, Store, SyncError};

/// What a reflector watches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct WatchKey {
    object_type: TypeId,
    resource: ApiResource,
    selection: Selection,
}

impl WatchKey {
    fn new(kind: &Kind, scope: &Scope) -> Self {
        Self { object_type: kind.id, resource: kind.resource.clone(), selection: scope.selection() }
    }

    fn is_of(&self, kind: &Kind) -> bool {
        self.object_type == kind.id && self.resource == kind.resource
    }

    /// Whether it is another form or part of the same resource, in the same version.
    fn is_of_resource(&self, resource: &ApiResource) -> bool {
        is_same_kind(&self.resource, resource) && self.resource.version == resource.version
    }

    /// Whether objects of a namespace may be part of it.
    fn covers(&self, namespace: Option<&str>) -> bool {
        self.selection.namespace.is_none() || self.selection.namespace.as_deref() == namespace
    }
}

/// Whether objects of one are objects of the other, perhaps in another version.
fn is_same_kind(one: &ApiResource, other: &ApiResource) -> bool {
    (&one.group, &one.plural) == (&other.group, &other.plural)
}

/// Each version once.
fn versions(watching: &[Arc<Watched>]) -> Vec<ApiResource> {
    let mut versions: Vec<ApiResource> = Vec::new();
    for resource in watching.iter().map(|watched| &watched.reflector.kind().resource) {
        if versions.iter().all(|known| known.version != resource.version) {
            versions.push(resource.clone());
        }
    }
    versions
}

/// A reflector, and what its task needs.
struct Watched {
    reflector: Arc<Reflector>,
    source: Arc<ApiSource>,
    shutdown: CancellationToken,
}

impl Watched {
    fn start(&self, spawner: &Spawner) {
        if self.reflector.claim_start() {
            let running = Arc::clone(&self.reflector).run(self.source.clone(), self.shutdown.clone());
            match spawner.runtime.get() {
                Some(runtime) => spawner.tasks.spawn_on(running, runtime),
                None => spawner.tasks.spawn(running),
            };
        }
    }
}

/// Spawns tasks that the caches wait for when they stop, without keeping the caches alive.
#[derive(Clone, Default)]
pub(crate) struct Spawner {
    /// Where the tasks run, once they do.
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

/// Readers made so far, valid for one set of reflectors.
#[derive(Default)]
pub(super) struct Made {
    generation: u64,
    /// Of all objects, by type.
    pub(super) listers: HashMap<TypeId, Arc<Reading>>,
    /// Of one object, by type.
    pub(super) known: HashMap<TypeId, Arc<KnownReflectors>>,
}

impl Made {
    /// The set of reflectors changed: a lister made before may read too few, or stopped ones.
    fn invalidate(&mut self) {
        self.generation += 1;
        self.listers.clear();
        self.known.clear();
    }
}

/// Decoding errors and panics, by kind.
#[derive(Default)]
struct Counts {
    decode_errors: BTreeMap<String, u64>,
    panics: BTreeMap<String, u64>,
}

/// See the [module documentation](self).
pub(super) struct Registry {
    client: kube::Client,
    watched: Mutex<HashMap<WatchKey, Arc<Watched>>>,
    /// Readers of kinds known at compile time, by type, so that a cached read costs no search.
    readers: RwLock<Made>,
    /// What is done to objects of a type and resource before they are kept.
    transforms: Mutex<HashMap<(TypeId, ApiResource), AnyTransform>>,
    namespaces: Arc<[String]>,
    /// Of all reflectors, but for the transform.
    settings: Settings,
    sync_timeout: Duration,
    spawner: Spawner,
    /// Cancelled before the spawner's token, when readers are no longer to wait for a first list.
    closing: CancellationToken,
    started: AtomicBool,
    /// What reflectors counted before they were forgotten.
    past: Mutex<Counts>,
}

impl Registry {
    pub(super) fn new(client: kube::Client, mut options: CacheOptions) -> Self {
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
            client,
            watched: Mutex::default(),
            readers: RwLock::default(),
            transforms: Mutex::default(),
            namespaces: options.namespaces.into(),
            settings: Settings {
                resync: options.resync,
                transform: None,
                on_decode_error: options.on_decode_error,
                most_decoded: options.most_decoded,
            },
            sync_timeout: options.sync_timeout,
            spawner: Spawner::default(),
            closing: CancellationToken::new(),
            started: AtomicBool::new(false),
            past: Mutex::default(),
        }
    }

    pub(super) fn start(&self) {
        let watched = self.watched.lock();
        self.spawner.runtime.get_or_init(Handle::current);
        self.started.store(true, Ordering::Release);
        for watched in watched.values() {
            watched.start(&self.spawner);
        }
    }

    pub(super) async fn stop(&self) {
        self.spawner.shutdown.cancel();
        self.spawner.tasks.close();
        self.spawner.tasks.wait().await;
    }

    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    pub(super) fn shutdown(&self) -> &CancellationToken {
        &self.spawner.shutdown
    }

    pub(super) fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    pub(super) fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    pub(super) fn len(&self) -> usize {
        self.watched.lock().len()
    }

    pub(super) async fn wait_synced(&self) -> Result<(), SyncError> {
        let all: Vec<_> = self.watched.lock().values().cloned().collect();
        for watched in all {
            watched.reflector.wait_synced(self.sync_timeout).await?;
        }
        Ok(())
    }

    pub(super) async fn sync_failures(&self) -> Vec<SyncError> {
        let all: Vec<_> = self.watched.lock().values().cloned().collect();
        let waiting = all.iter().map(|watched| watched.reflector.wait_for_reader(self.sync_timeout, &self.closing));
        futures::future::join_all(waiting).await.into_iter().filter_map(Result::err).collect()
    }

    pub(super) fn is_synced(&self) -> bool {
        self.watched.lock().values().all(|watched| watched.reflector.is_synced())
    }

    pub(super) fn synced_so_far(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        // Those themselves, not their keys: one that is forgotten may have a successor.
        let all: Vec<_> = self.watched.lock().values().map(Arc::downgrade).collect();
        move || all.iter().all(|watched| watched.upgrade().is_none_or(|watched| watched.reflector.is_synced()))
    }

    pub(super) fn decode_errors(&self) -> Vec<(String, u64)> {
        let (watched, past) = (self.watched.lock(), self.past.lock());
        let now = watched.values().map(|watched| (watched.reflector.describe(), watched.reflector.decode_errors()));
        by_kind(now.chain(past.decode_errors.iter().map(|(kind, count)| (kind.clone(), *count))))
    }

    pub(super) fn panics(&self) -> Vec<(String, u64)> {
        let (watched, past) = (self.watched.lock(), self.past.lock());
        let now = watched.values().map(|watched| (watched.reflector.describe(), watched.reflector.panics()));
        by_kind(now.chain(past.panics.iter().map(|(kind, count)| (kind.clone(), *count))))
    }

    // Readers.

    /// The reader of a type that was made before; otherwise it is made, and remembered if the type stands for one kind
    /// (`id`).
    pub(super) fn remembered<R>(
        &self,
        id: Option<TypeId>,
        readers: fn(&mut Made) -> &mut HashMap<TypeId, Arc<R>>,
        look: fn(&Made) -> &HashMap<TypeId, Arc<R>>,
        make: &dyn Fn() -> Arc<R>,
    ) -> Arc<R> {
        let Some(id) = id else {
            return make();
        };
        let generation = {
            let made = self.readers.read();
            if let Some(reader) = look(&made).get(&id) {
                return Arc::clone(reader);
            }
            made.generation
        };
        let reader = make();
        let mut made = self.readers.write();
        if made.generation == generation {
            readers(&mut made).insert(id, Arc::clone(&reader));
        }
        reader
    }

    /// All objects of a kind.
    pub(super) fn find_lister(&self, kind: &Kind) -> Arc<Reading> {
        // Of a kind that is known only at run time, a reflector may know better that it is in no
        // namespace.
        let existing = self.existing(kind);
        match existing.into_iter().find(|reflector| reflector.is_whole() && reflector.namespace().is_none()) {
            Some(everything) => self.reading(vec![everything]),
            None => self.lister_in(kind, &Scope::default()),
        }
    }

    pub(super) fn find_known(&self, kind: &Kind) -> Arc<KnownReflectors> {
        let mut all = self.existing(kind);
        if all.is_empty() {
            self.lister_in(kind, &Scope::default());
            all = self.existing(kind);
        }
        let limited = !kind.cluster_scoped && !self.namespaces.is_empty();
        Arc::new(KnownReflectors {
            all,
            reach: limited.then(|| Arc::clone(&self.namespaces)),
            sync_timeout: self.sync_timeout,
            closing: self.closing.clone(),
        })
    }

    /// What there is of a kind in a namespace, without exceptions, if a reflector covers that namespace. Where only
    /// parts of it are watched, the whole of that place is from now on.
    pub(super) fn lister_covering(
        &self,
        kind: &Kind,
        known: &KnownReflectors,
        namespace: &str,
    ) -> Option<Arc<Reading>> {
        let covering = || known.all.iter().filter(|reflector| reflector.covers(Some(namespace)));
        let whole = covering().filter(|reflector| reflector.is_whole() && reflector.is_synced());
        if let Some(whole) = whole.max_by_key(|reflector| reflector.read(Store::version)) {
            return Some(self.reading(vec![Arc::clone(whole)]));
        }
        let place = covering().map(|reflector| reflector.namespace()).max()?;
        let scope = Scope { namespace: place.map(str::to_owned), ..Scope::default() };
        Some(self.reading(vec![self.reflector(kind, &scope)]))
    }

    pub(super) fn lister_in(&self, kind: &Kind, scope: &Scope) -> Arc<Reading> {
        self.reading(self.spread(kind, scope).iter().map(|scope| self.reflector(kind, scope)).collect())
    }

    fn reading(&self, reflectors: Vec<Arc<Reflector>>) -> Arc<Reading> {
        Arc::new(Reading::new(reflectors, self.sync_timeout, self.closing.clone()))
    }

    /// A scope as reflectors have it: each of one of the manager's namespaces, if it was given any.
    fn spread(&self, kind: &Kind, scope: &Scope) -> Vec<Scope> {
        if kind.cluster_scoped || scope.cluster_scoped {
            vec![Scope { namespace: None, ..scope.clone() }]
        } else if scope.namespace.is_some() || self.namespaces.is_empty() {
            vec![scope.clone()]
        } else {
            let spread = |namespace: &String| scope.clone().namespace(namespace);
            self.namespaces.iter().map(spread).collect()
        }
    }

    /// The reflector of a kind and scope, started if the others are.
    fn reflector(&self, kind: &Kind, scope: &Scope) -> Arc<Reflector> {
        let key = WatchKey::new(kind, scope);
        let mut all = self.watched.lock();
        if let Some(known) = all.get(&key) {
            return Arc::clone(&known.reflector);
        }
        let transform = self.transforms.lock().get(&(kind.id, kind.resource.clone())).cloned();
        let settings = Settings { transform, ..self.settings.clone() };
        let (selection, labels) = (key.selection.clone(), scope.labels.clone());
        let watched = Arc::new(Watched {
            source: Arc::new(ApiSource::new(self.client.clone(), kind.clone(), selection.clone())),
            reflector: Reflector::new(kind.clone(), selection, labels, settings),
            shutdown: self.spawner.shutdown.child_token(),
        });
        if self.started.load(Ordering::Acquire) {
            watched.start(&self.spawner);
        }
        let reflector = Arc::clone(&watched.reflector);
        all.insert(key, watched);
        self.readers.write().invalidate();
        reflector
    }

    /// The reflectors of a kind.
    fn existing(&self, kind: &Kind) -> Vec<Arc<Reflector>> {
        let all = self.watched.lock();
        all.iter().filter(|(key, _)| key.is_of(kind)).map(|(_, watched)| Arc::clone(&watched.reflector)).collect()
    }

    // Transforms.

    /// False if the kind is watched or has a transform.
    pub(super) fn set_transform(&self, kind: &Kind, transform: AnyTransform) -> bool {
        let watched = self.watched.lock();
        let mut transforms = self.transforms.lock();
        let id = (kind.id, kind.resource.clone());
        if transforms.contains_key(&id) || watched.keys().any(|key| key.is_of(kind)) {
            return false;
        }
        transforms.insert(id, transform);
        true
    }

    pub(super) fn has_transform(&self, id: TypeId, resource: ApiResource) -> bool {
        self.transforms.lock().contains_key(&(id, resource))
    }

    // The end of watches.

    pub(super) fn forget(&self, kind: &Kind) {
        self.watched.lock().retain(|key, watched| {
            let keep = !key.is_of(kind);
            if !keep {
                self.retire(watched);
            }
            keep
        });
        self.readers.write().invalidate();
    }

    pub(super) fn forget_in(&self, kind: &Kind, scope: &Scope) {
        let mut all = self.watched.lock();
        for scope in self.spread(kind, scope) {
            if let Some(watched) = all.remove(&WatchKey::new(kind, &scope)) {
                self.retire(&watched);
            }
        }
        drop(all);
        self.readers.write().invalidate();
    }

    /// Stops a reflector that is forgotten. Its counts stay: they are never to go down.
    fn retire(&self, watched: &Watched) {
        watched.shutdown.cancel();
        let (mut past, kind) = (self.past.lock(), watched.reflector.describe());
        *past.decode_errors.entry(kind.clone()).or_default() += watched.reflector.decode_errors();
        *past.panics.entry(kind).or_default() += watched.reflector.panics();
    }

    // What this process wrote.

    /// An object was written: as its type, if it has one, and as the server answered.
    pub(super) fn note_write(
        &self,
        resource: &ApiResource,
        written: Option<(TypeId, &dyn Fn() -> Shared)>,
        json: &[u8],
    ) {
        // A type may know only a part of the kind: another's view comes from what the server said.
        for watched in self.matching(|key| key.is_of_resource(resource)) {
            let kind = watched.reflector.kind();
            match written {
                Some((id, object)) if id == kind.id => watched.reflector.note_write(object()),
                _ => {
                    if let Ok((object, _)) = kind.decode_repaired(json) {
                        watched.reflector.note_write(object);
                    }
                }
            }
        }
    }

    pub(super) fn note_delete(&self, resource: &ApiResource, key: &ObjectKey, uid: Option<&str>) {
        for watched in self.matching(|watched| is_same_kind(&watched.resource, resource)) {
            watched.reflector.note_delete(key, uid);
        }
    }

    pub(super) fn note_elsewhere(
        &self,
        resource: &ApiResource,
        written: &ObjectKey,
        version: Option<u64>,
    ) -> Vec<ApiResource> {
        let all = self.watched.lock();
        let mut others: Vec<ApiResource> = Vec::new();
        for (key, watched) in all.iter() {
            let other = &key.resource;
            let is_other = is_same_kind(other, resource) && other.version != resource.version;
            if !is_other || !key.covers(written.namespace()) || !watched.reflector.is_started() {
                continue;
            }
            if let Some(version) = version {
                watched.reflector.note_elsewhere(written, version);
            }
            if others.iter().all(|known| known.version != other.version) {
                others.push(other.clone());
            }
        }
        others
    }

    pub(super) fn note_unseen(
        &self,
        resource: &ApiResource,
        written: &ObjectKey,
        version: Option<u64>,
    ) -> Vec<ApiResource> {
        let watching = self.watching(resource, written.namespace());
        if let Some(version) = version {
            for watched in &watching {
                watched.reflector.note_elsewhere(written, version);
            }
        }
        versions(&watching)
    }

    pub(super) fn watched_versions(&self, resource: &ApiResource, namespace: Option<&str>) -> Vec<ApiResource> {
        versions(&self.watching(resource, namespace))
    }

    pub(super) fn uid_of(&self, resource: &ApiResource, key: &ObjectKey) -> Option<String> {
        let watching = self.watching(resource, key.namespace());
        let object = |watched: &Arc<Watched>| watched.reflector.read(|store| store.get(key));
        watching.iter().find_map(|watched| object(watched)?.uid().map(str::to_owned))
    }

    /// The reflectors of a kind, in whatever version, that may know objects of a namespace.
    fn watching(&self, resource: &ApiResource, namespace: Option<&str>) -> Vec<Arc<Watched>> {
        let mut watching = self.matching(|key| is_same_kind(&key.resource, resource) && key.covers(namespace));
        watching.retain(|watched| watched.reflector.is_started());
        watching
    }

    fn matching(&self, accept: impl Fn(&WatchKey) -> bool) -> Vec<Arc<Watched>> {
        let all = self.watched.lock();
        all.iter().filter(|(key, _)| accept(key)).map(|(_, watched)| Arc::clone(watched)).collect()
    }
}
