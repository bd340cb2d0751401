//! What wakes a controller: changes of a kind, filtered, mapped to keys, put in its queue.
//!
//! Little of this is compiled for each kind: a handler binds the user's functions to a change, and [`Sink::deliver`]
//! does the rest.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::ApiResource;
use parking_lot::Mutex;

use super::context::Own;
use super::{SourceContext, Watch};
use crate::cache::{Caches, Lister, Scope};
use crate::informer::{Change, Subscription, SyncError};
use crate::key::ObjectKey;
use crate::object::{Object, describe};
use crate::queue::{Priority, Queue};
use crate::shard::{Slots, shard_of};

/// Where sources put keys: a controller's queue, or the part of it that some shards make up.
#[derive(Clone)]
pub(super) struct Sink {
    pub(super) queue: Queue<ObjectKey>,
    /// Of how many shards which.
    pub(super) shards: Option<(u32, BTreeSet<u32>)>,
    /// Where keys are remembered that may be in no cache.
    pub(super) slots: Option<Slots>,
}

impl Sink {
    /// Takes a key from outside the cluster, which no cache leads to: remembered, so that the replica that takes
    /// its shard finds it.
    fn take(&self, key: ObjectKey) {
        if let Some(slots) = &self.slots {
            slots.tell(&key);
        }
        self.add(key, Priority::NORMAL);
    }

    fn add(&self, key: ObjectKey, priority: Priority) {
        if self.shards.as_ref().is_none_or(|(count, shards)| shards.contains(&shard_of(&key, *count))) {
            self.queue.add(key, priority);
        }
    }

    /// Takes the keys that a change of an object concerns: those of its new state and, after an update, those of
    /// the old one. The functions belong to the user, and may panic.
    ///
    /// Neither this nor what it calls depends on the kind, so that it is compiled once.
    fn deliver(&self, change: Happened, accepts: KeysOf<'_, bool>, new: KeysOf<'_>, old: KeysOf<'_>) {
        let panics = Panics::default();
        // A change that cannot be judged counts.
        if panics.catch(accepts).unwrap_or(true) {
            let mut keys = panics.catch(new).unwrap_or_default();
            let current = keys.len();
            if change == Happened::Updated {
                for key in panics.catch(old).unwrap_or_default() {
                    if !keys.contains(&key) {
                        keys.push(key);
                    }
                }
            }
            // What led to these keys is not in the caches any more. They are remembered before they are added: a
            // replica that takes their shard meanwhile must find them.
            let departed = match change {
                Happened::Added { .. } | Happened::Resync => &[],
                Happened::Updated => &keys[current..],
                Happened::Deleted => &keys[..],
            };
            if let Some(slots) = &self.slots {
                for key in departed {
                    slots.depart(key);
                }
            }
            for key in keys {
                self.add(key, change.priority());
            }
        }
        panics.resume();
    }
}

/// A function that was bound to an object.
type KeysOf<'a, T = Vec<ObjectKey>> = &'a dyn Fn() -> T;

/// What happened to an object, whatever its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happened {
    Added { initial: bool },
    Updated,
    Resync,
    Deleted,
}

impl Happened {
    fn of<K>(change: &Change<K>) -> Self {
        match change {
            Change::Added { initial, .. } => Self::Added { initial: *initial },
            Change::Updated { .. } => Self::Updated,
            Change::Resync { .. } => Self::Resync,
            Change::Deleted { .. } => Self::Deleted,
        }
    }

    /// What was there before, and reminders, must not delay what happens now.
    fn priority(self) -> Priority {
        match self {
            Self::Added { initial: true } | Self::Resync => Priority::LOW,
            _ => Priority::NORMAL,
        }
    }
}

/// What a source watches in the controller's own cluster.
pub(super) struct Watched {
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) namespace: Option<String>,
    /// Whether objects of the kind are in namespaces, as far as the type says.
    pub(super) namespaced: bool,
}

impl Watched {
    fn of(resource: ApiResource, scope: &Scope, cluster_scoped: bool) -> Self {
        let namespaced = !cluster_scoped;
        Self {
            namespace: scope.in_namespace().filter(|_| namespaced).map(str::to_owned),
            group: resource.group,
            plural: resource.plural,
            namespaced,
        }
    }
}

/// A source of keys, of any kind.
pub(super) trait Source: Send + Sync {
    /// What must be readable.
    fn watched(&self) -> Option<Watched> {
        None
    }
    /// The kind that is watched in the controller's own cluster: an [`Own`].
    fn own(&self, _caches: &Caches) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
    /// Makes sure that the kind is being watched; the error names a kind that is already watched
    /// otherwise.
    fn register(&self, _caches: &Caches) -> Result<(), String> {
        Ok(())
    }
    /// Puts keys in the queue until the subscription is dropped.
    fn subscribe(&self, _ctx: &SourceContext, _sink: Sink) -> Subscription {
        Subscription::joined(Vec::new())
    }
    /// Waits until everything that exists has been put in the queue.
    fn wait_synced<'a>(&'a self, _caches: &'a Caches) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// What puts keys in the queue by itself, until it is dropped.
    fn feed(&self, _ctx: &SourceContext, _sink: Sink) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

type StreamFn = Box<dyn Fn(SourceContext) -> BoxStream<'static, ObjectKey> + Send + Sync>;

/// Keys that come from elsewhere.
pub(super) struct StreamSource(StreamFn);

impl StreamSource {
    pub(super) fn new<S>(stream: impl Fn(SourceContext) -> S + Send + Sync + 'static) -> Self
    where
        S: Stream<Item = ObjectKey> + Send + 'static,
    {
        Self(Box::new(move |ctx| stream(ctx).boxed()))
    }
}

impl Source for StreamSource {
    fn feed(&self, ctx: &SourceContext, sink: Sink) -> Option<BoxFuture<'static, ()>> {
        let keys = (self.0)(ctx.clone());
        Some(Box::pin(keys.for_each(move |key| {
            sink.take(key);
            std::future::ready(())
        })))
    }
}

type PollFn = Arc<dyn Fn(SourceContext) -> BoxFuture<'static, Vec<ObjectKey>> + Send + Sync>;

/// Keys that a function is asked for at intervals.
pub(super) struct PollSource {
    interval: Duration,
    keys: PollFn,
}

impl PollSource {
    pub(super) fn new<R, I>(interval: Duration, keys: impl Fn(SourceContext) -> R + Send + Sync + 'static) -> Self
    where
        R: Future<Output = I> + Send + 'static,
        I: IntoIterator<Item = ObjectKey>,
    {
        let keys: PollFn = Arc::new(move |ctx| {
            let keys = keys(ctx);
            Box::pin(async move { keys.await.into_iter().collect() })
        });
        Self { interval, keys }
    }
}

impl Source for PollSource {
    fn feed(&self, ctx: &SourceContext, sink: Sink) -> Option<BoxFuture<'static, ()>> {
        let (interval, keys, ctx) = (self.interval, Arc::clone(&self.keys), ctx.clone());
        Some(Box::pin(async move {
            loop {
                for key in keys(ctx.clone()).await {
                    sink.take(key);
                }
                tokio::time::sleep(interval).await;
            }
        }))
    }
}

/// What sources must know of the kind that the controller looks after.
#[derive(Debug, Clone)]
pub(super) struct Primary {
    pub(super) resource: ApiResource,
    pub(super) scope: Scope,
    pub(super) cluster_scoped: bool,
    /// Whether objects of the kind were seen to be in no namespace: kinds known only at run time do
    /// not say. An owner that was not seen yet is reconciled when it is.
    pub(super) seen_cluster_scoped: Arc<AtomicBool>,
}

impl Primary {
    /// The key of an object of the kind, which says where such objects are.
    fn own_key(&self, meta: &ObjectMeta) -> ObjectKey {
        if meta.namespace.is_none() {
            self.seen_cluster_scoped.store(true, Ordering::Relaxed);
        }
        key_of(meta)
    }

    /// The key of the object of the kind that controls an object, if there is one.
    pub(super) fn owner_key(&self, meta: &ObjectMeta) -> Option<ObjectKey> {
        let is_owner = |reference: &&OwnerReference| {
            let group = match reference.api_version.rsplit_once('/') {
                Some((group, _)) => group,
                None => "",
            };
            reference.controller == Some(true) && reference.kind == self.resource.kind && group == self.resource.group
        };
        let reference = meta.owner_references.iter().flatten().find(is_owner)?;
        let cluster_scoped = self.cluster_scoped || self.seen_cluster_scoped.load(Ordering::Relaxed);
        let namespace = if cluster_scoped { None } else { meta.namespace.as_deref() };
        Some(ObjectKey::new(namespace.unwrap_or_default(), &reference.name))
    }
}

fn key_of(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// Which keys an object concerns.
pub(super) enum Map<K> {
    /// Its own.
    Own(Primary),
    /// That of the object that controls it.
    Owner(Primary),
    /// Those that a function names. It is made anew for each run.
    Function(BindMap<K>),
}

type BindMap<K> = Box<dyn Fn(&SourceContext) -> MapFn<K> + Send + Sync>;

type MapFn<K> = Box<dyn Fn(&K) -> Vec<ObjectKey> + Send + Sync>;

/// A [`Map`] of one run.
enum Bound<K> {
    Own(Primary),
    Owner(Primary),
    Function(MapFn<K>),
}

impl<K: Object> Map<K> {
    /// Those that a user's function names.
    pub(super) fn function<I>(map: impl Fn(&K, &SourceContext) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = ObjectKey>,
    {
        let map = Arc::new(map);
        Self::Function(Box::new(move |ctx| {
            let (map, ctx) = (Arc::clone(&map), ctx.clone());
            Box::new(move |object| map(object, &ctx).into_iter().collect())
        }))
    }

    /// Those of the objects of the controller's own kind `O` that refer to the object. They are found by an index.
    pub(super) fn referrers<O: Object>(
        index: String,
        dt: O::DynamicType,
        scope: Scope,
        references: impl Fn(&O) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let references = Arc::new(references);
        Self::Function(Box::new(move |ctx| {
            let (referrers, index) = (ctx.client().caches().lister_in::<O>(&dt, &scope), index.clone());
            let references = Arc::clone(&references);
            referrers.add_index(&index, move |object| references(object).iter().map(ToString::to_string).collect());
            Box::new(move |object| {
                let found = referrers.by_index(&index, &key_of(object.meta()).to_string());
                found.iter().map(|referrer| key_of(referrer.meta())).collect()
            })
        }))
    }

    fn bind(&self, ctx: &SourceContext) -> Bound<K> {
        match self {
            Self::Own(primary) => Bound::Own(primary.clone()),
            Self::Owner(primary) => Bound::Owner(primary.clone()),
            Self::Function(make) => Bound::Function(make(ctx)),
        }
    }
}

impl<K: Object> Bound<K> {
    fn keys(&self, object: &K) -> Vec<ObjectKey> {
        match self {
            Self::Own(primary) => vec![primary.own_key(object.meta())],
            Self::Owner(primary) => primary.owner_key(object.meta()).into_iter().collect(),
            Self::Function(map) => map(object),
        }
    }
}

/// Changes of one kind.
pub(super) struct KindSource<K: Object> {
    pub(super) watch: Watch<K>,
    pub(super) map: Map<K>,
}

impl<K: Object> KindSource<K> {
    fn lister(&self, caches: &Caches) -> Lister<K> {
        self.watch.caches.as_ref().unwrap_or(caches).lister_in(&self.watch.dt, &self.watch.scope)
    }
}

impl<K: Object> Source for KindSource<K> {
    fn watched(&self) -> Option<Watched> {
        if self.watch.caches.is_some() {
            return None;
        }
        Some(Watched::of(ApiResource::erase::<K>(&self.watch.dt), &self.watch.scope, self.watch.is_cluster_scoped()))
    }

    fn own(&self, caches: &Caches) -> Option<Arc<dyn Any + Send + Sync>> {
        let narrowed = self.watch.scope != Scope::default();
        let own = Own { dt: self.watch.dt.clone(), part: narrowed.then(|| self.lister(caches)) };
        self.watch.caches.is_none().then(|| Arc::new(own) as _)
    }

    fn register(&self, caches: &Caches) -> Result<(), String> {
        let caches = self.watch.caches.as_ref().unwrap_or(caches);
        if let Some(keep) = &self.watch.transform
            && !caches.set_transform::<K>(&self.watch.dt, Arc::clone(&keep.0))
        {
            return Err(describe(&ApiResource::erase::<K>(&self.watch.dt)));
        }
        self.lister(caches);
        Ok(())
    }

    fn subscribe(&self, ctx: &SourceContext, sink: Sink) -> Subscription {
        let (map, predicate) = (self.map.bind(ctx), self.watch.predicate.clone());
        self.lister(ctx.client().caches()).subscribe(move |change| {
            let accepts = || predicate.as_ref().is_none_or(|predicate| predicate.accepts(change));
            let old = || match change {
                // An object keeps its key.
                Change::Updated { old, .. } if !matches!(map, Bound::Own(_)) => map.keys(old),
                _ => Vec::new(),
            };
            sink.deliver(Happened::of(change), &accepts, &|| map.keys(change.object()), &old);
        })
    }

    fn wait_synced<'a>(&'a self, caches: &'a Caches) -> BoxFuture<'a, Result<(), SyncError>> {
        let lister = self.lister(caches);
        Box::pin(async move { lister.wait_synced().await })
    }
}

/// The first panic of a predicate or a map function. It goes on once the keys that are known are in the
/// queue: who calls handlers counts it, and logs it with the kind and the object.
#[derive(Default)]
struct Panics(Mutex<Option<Box<dyn Any + Send>>>);

impl Panics {
    fn catch<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(value) => Some(value),
            Err(panic) => {
                self.0.lock().get_or_insert(panic);
                None
            }
        }
    }

    fn resume(self) {
        if let Some(panic) = self.0.into_inner() {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests;
