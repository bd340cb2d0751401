//! What wakes a controller: changes of a kind, filtered, mapped to keys, put in its queue.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use kube::api::ApiResource;
use parking_lot::Mutex;

use super::context::Own;
use super::{Watch, keys_of};
use crate::cache::{Caches, Lister, Scope};
use crate::informer::{Change, Subscription, SyncError};
use crate::key::ObjectKey;
use crate::object::{Object, describe};
use crate::predicate::Predicate;
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
    /// Remembers the keys that a change leaves without what led to them. To be done before they are
    /// added: whoever takes their shard meanwhile must find them.
    fn depart<K>(&self, change: &Change<K>, keys: &[ObjectKey], map: &(dyn Fn(&K) -> Vec<ObjectKey> + Send + Sync)) {
        let Some(slots) = &self.slots else {
            return;
        };
        let remaining = match change {
            Change::Added { .. } | Change::Resync { .. } => return,
            Change::Updated { new, .. } => map(new),
            Change::Deleted { .. } => Vec::new(),
        };
        for key in keys.iter().filter(|key| !remaining.contains(key)) {
            slots.depart(key);
        }
    }

    /// Takes a key from outside the cluster, which no cache leads to: remembered, so that whoever takes
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
}

/// What a source watches in the controller's own cluster.
pub(super) struct Watched {
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) namespace: Option<String>,
    /// Whether objects of the kind are in namespaces, as far as the type says.
    pub(super) namespaced: bool,
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
    fn subscribe(&self, _caches: &Caches, _sink: Sink) -> Subscription {
        Subscription::joined(Vec::new())
    }
    /// Waits until everything that exists has been put in the queue.
    fn wait_synced<'a>(&'a self, _caches: &'a Caches) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// What puts keys in the queue by itself, until it is dropped.
    fn feed(&self, _sink: Sink) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

type StreamFn = Box<dyn Fn() -> BoxStream<'static, ObjectKey> + Send + Sync>;

/// Keys that come from elsewhere.
pub(super) struct StreamSource(StreamFn);

impl StreamSource {
    pub(super) fn new<S>(stream: impl Fn() -> S + Send + Sync + 'static) -> Self
    where
        S: Stream<Item = ObjectKey> + Send + 'static,
    {
        Self(Box::new(move || stream().boxed()))
    }
}

impl Source for StreamSource {
    fn feed(&self, sink: Sink) -> Option<BoxFuture<'static, ()>> {
        let keys = (self.0)();
        Some(Box::pin(keys.for_each(move |key| {
            sink.take(key);
            std::future::ready(())
        })))
    }
}

type MapFn<K> = Arc<dyn Fn(&K) -> Vec<ObjectKey> + Send + Sync>;

/// Changes of one kind.
pub(super) struct KindSource<K: Object> {
    watch: Watch<K>,
    map: MapFn<K>,
}

impl<K: Object> KindSource<K> {
    pub(super) fn new(watch: Watch<K>, map: impl Fn(&K) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        Self { watch, map: Arc::new(map) }
    }

    fn lister(&self, caches: &Caches) -> Lister<K> {
        self.watch.caches.as_ref().unwrap_or(caches).lister_in(&self.watch.dt, &self.watch.scope)
    }
}

impl<K: Object> Source for KindSource<K> {
    fn watched(&self) -> Option<Watched> {
        let resource = ApiResource::erase::<K>(&self.watch.dt);
        let namespaced = !self.watch.is_cluster_scoped();
        self.watch.caches.is_none().then(|| Watched {
            group: resource.group,
            plural: resource.plural,
            namespace: self.watch.scope.in_namespace().filter(|_| namespaced).map(str::to_owned),
            namespaced,
        })
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

    fn subscribe(&self, caches: &Caches, sink: Sink) -> Subscription {
        let map = Arc::clone(&self.map);
        let predicate = self.watch.predicate.clone();
        self.lister(caches).subscribe(move |change| {
            let panics = Panics::default();
            // A change that cannot be judged counts.
            let accepts = |predicate: &Predicate<K>| panics.catch(|| predicate.accepts(change)).unwrap_or(true);
            if predicate.as_ref().is_none_or(accepts) {
                let priority = priority(change);
                let map = |object: &K| panics.catch(|| map(object)).unwrap_or_default();
                let keys = keys_of(change, &map);
                sink.depart(change, &keys, &map);
                for key in keys {
                    sink.add(key, priority);
                }
            }
            panics.resume();
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

/// What was there before, and reminders, must not delay what happens now.
fn priority<K>(change: &Change<K>) -> Priority {
    match change {
        Change::Added { initial: true, .. } | Change::Resync { .. } => Priority::LOW,
        _ => Priority::NORMAL,
    }
}
