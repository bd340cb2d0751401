//! Reflectors: the state of one kind, kept up to date by a list and a watch.
//!
//! One reflector serves all controllers, handlers and listers of a manager that look at the same
//! kind, namespace and selector. It is made of four parts:
//!
//! - a state machine without I/O that decides the next request (streaming list with fallback to
//!   pages, bookmarks, relist after 410 without dropping the cache, a backoff of its own);
//! - a source that makes the requests and decodes what comes back, object by object;
//! - a store with indexes and the process's own writes;
//! - a task that ties them together and calls the handlers.
//!
//! A kind that was deleted, as far as the server tells, has no objects: handlers are told that they are gone, and
//! of new ones when it comes back. A kind that is served in no version, though its definition is there,
//! keeps them; but to know that, the operator must be allowed to `get` its `customresourcedefinitions`. One that is
//! not cannot tell the two apart, and takes such a kind to be deleted.
//!
//! Handlers are called one after the other, in the order of the changes, and see every deletion
//! with the last known state of the object, even one that happened while the watch was down.
//! A handler must not block: it files work and returns.

mod change;
mod subscription;
mod sync;

mod backoff;
mod decode;
mod erased;
mod fields;
mod json;
mod machine;
mod misfit;
mod packed;
mod source;
mod store;
mod task;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use kube::api::ApiResource;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use change::Change;
pub use misfit::DecodeFailure;
pub use subscription::Subscription;
pub use sync::SyncError;

pub(crate) use erased::{AnyObject, AnyTransform, IndexFn, Kind, Shared, Transform, any_transform, typed, typed_ref};
pub(crate) use misfit::OnDecodeError;
pub(crate) use source::{ApiSource, ListWatch, Selection};
pub(crate) use store::Store;
pub(crate) use store::Told;
pub(crate) use subscription::AnyHandler;

use crate::key::ObjectKey;
use crate::object::{panic_message, parse_version};
use crate::selector::Labels;
use misfit::Misfits;
use subscription::Listening;
use sync::SyncState;

/// How often in a row a kind must be missing before it is asked whether it is gone.
const GONE_AFTER: u32 = 3;

/// How long a reflector that panicked waits before it starts over.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// How long a read waits for a watch that is behind another one of the kind. It is milliseconds behind, or broken.
const CATCH_UP: Duration = Duration::from_secs(1);

/// How a reflector works, besides what it watches.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    /// How often handlers are reminded of everything.
    pub(crate) resync: Option<Duration>,
    pub(crate) transform: Option<AnyTransform>,
    pub(crate) on_decode_error: Option<OnDecodeError>,
    /// How many objects stay decoded.
    pub(crate) most_decoded: Option<usize>,
}

/// The state of one kind, kept up to date while its task runs.
pub(crate) struct Reflector {
    kind: Kind,
    selection: Selection,
    labels: Option<Labels>,
    store: RwLock<Store>,
    /// Held while a change is applied and told, so that a handler added meanwhile misses nothing
    /// and hears nothing twice.
    handlers: Mutex<Vec<Listening>>,
    sync: watch::Sender<SyncState>,
    /// Told whenever the watch has come further.
    advanced: Notify,
    /// When the last list was complete.
    listed: Mutex<Option<Instant>>,
    started: AtomicBool,
    misfits: Misfits,
    /// How often the code of others panicked.
    panics: Arc<AtomicU64>,
    /// How often in a row the server said that there is no such kind.
    missing: AtomicU32,
    resync: Option<Duration>,
    transform: Option<AnyTransform>,
    /// Whether it was said that a transform leaves what cannot be read again.
    unwritable: AtomicBool,
}

impl Reflector {
    pub(crate) fn new(kind: Kind, selection: Selection, labels: Option<Labels>, settings: Settings) -> Arc<Self> {
        let panics = Arc::<AtomicU64>::default();
        Arc::new(Self {
            selection,
            labels,
            store: RwLock::new(Store::new(kind.clone(), Arc::clone(&panics)).most_decoded(settings.most_decoded)),
            kind,
            panics,
            handlers: Mutex::default(),
            sync: watch::Sender::new(SyncState::default()),
            advanced: Notify::new(),
            listed: Mutex::default(),
            started: AtomicBool::new(false),
            misfits: Misfits::new(settings.on_decode_error),
            missing: AtomicU32::new(0),
            resync: settings.resync,
            transform: settings.transform,
            unwritable: AtomicBool::new(false),
        })
    }

    /// Keeps the state up to date until the token is cancelled. To be called once.
    pub(crate) async fn run(self: Arc<Self>, source: Arc<dyn ListWatch>, shutdown: CancellationToken) {
        let running = async {
            // The code of others runs in there: decoders, indexes, transforms.
            while let Err(panic) = AssertUnwindSafe(task::run(&self, &*source)).catch_unwind().await {
                self.panicked(&*panic);
                tokio::time::sleep(PANIC_PAUSE).await;
            }
        };
        shutdown.run_until_cancelled(running).await;
        self.sync.send_modify(|state| state.stopped = true);
    }

    /// Whether everything of a namespace (or of none) is part of what is watched, selectors apart.
    pub(crate) fn covers(&self, namespace: Option<&str>) -> bool {
        self.namespace().is_none() || self.namespace() == namespace
    }

    /// Whether no selector narrows what is watched.
    pub(crate) fn is_whole(&self) -> bool {
        self.selection.is_whole()
    }

    /// Whether an object, if there is one, is part of what is watched, whatever it is like.
    pub(crate) fn decides(&self, key: &ObjectKey) -> bool {
        let named = || {
            let fields = self.selection.fields.as_ref().filter(|_| self.labels.is_none());
            fields.is_some_and(|fields| fields::selects_key(fields, key))
        };
        self.covers(key.namespace()) && (self.is_whole() || named())
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.selection.namespace.as_deref()
    }

    pub(crate) fn describe(&self) -> String {
        self.kind.describe()
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Claims the right to run the task: true for the first caller only.
    pub(crate) fn claim_start(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn decode_errors(&self) -> u64 {
        self.misfits.count()
    }

    /// How often an index, a handler or a decoder panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// The task itself panicked: it starts over, with everything it knew.
    fn panicked(&self, panic: &(dyn Any + Send)) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        let (kind, message) = (self.describe(), panic_message(panic));
        tracing::error!(%kind, message, "reflector panicked, starting over");
        self.sync.send_if_modified(|state| {
            state.last_error = Some(format!("panic: {message}"));
            false
        });
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&Store) -> R) -> R {
        read(&self.store.read())
    }

    /// Adds an index unless there is one of that name. Whether it was added.
    pub(crate) fn ensure_index(&self, name: &str, values: &IndexFn) -> bool {
        if self.store.read().has_index(name) {
            return false;
        }
        let mut store = self.store.write();
        let missing = !store.has_index(name);
        if missing {
            store.add_index(name, Arc::clone(values));
        }
        missing
    }

    /// The kind.
    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The object as it is to be kept, and whether that is another than it came. One that the function panics on is
    /// kept as it came.
    fn transformed(&self, object: Shared) -> (Shared, bool) {
        let Some(transform) = &self.transform else {
            return (object, false);
        };
        match std::panic::catch_unwind(AssertUnwindSafe(|| transform(&*object))) {
            Ok(changed) => (changed, true),
            Err(panic) => {
                self.panics.fetch_add(1, Ordering::Relaxed);
                let (kind, key) = (self.describe(), object.key());
                tracing::error!(%kind, object = %key, message = panic_message(&*panic), "transform panicked");
                (object, false)
            }
        }
    }

    /// An object without managed fields, as it would be kept.
    pub(crate) fn as_kept(&self, object: Shared) -> Shared {
        self.transformed(object).0
    }

    /// An object was written: what the server answered, without managed fields.
    pub(crate) fn note_write(&self, object: Shared) {
        if self.namespace().is_some() && object.metadata().namespace.as_deref() != self.namespace() {
            return;
        }
        let selected = self.selection.fields.as_ref().map_or(Some(true), |fields| {
            let json = object.encode().and_then(|json| serde_json::from_slice(&json)).ok()?;
            fields::selects(fields, &json)
        });
        // As the server sees it: what is left of it in the cache may have no labels any more.
        let labelled = self.labels.as_ref().is_none_or(|selector| selector.matches(object.metadata().labels.as_ref()));
        let object = self.transformed(object).0;
        let mut store = self.store.write();
        // Where only the server knows, an object that was selected is taken to stay so, any other to
        // stay out.
        if selected.is_none() && !store.has_observed(&object.key()) {
            return;
        }
        let before = store.is_forgetful();
        store.note_write(object, labelled && selected != Some(false));
        if store.is_forgetful() && !before {
            self.warn_forgetful();
        }
    }

    /// An object was written in another version of the kind.
    pub(crate) fn note_elsewhere(&self, key: &ObjectKey, version: u64) {
        let mut store = self.store.write();
        let before = store.is_forgetful();
        store.note_elsewhere(key, version);
        if store.is_forgetful() && !before {
            self.warn_forgetful();
        }
    }

    /// Said once: the watch is down for too long.
    fn warn_forgetful(&self) {
        let kind = self.describe();
        tracing::warn!(%kind, "too many own writes that the watch has not shown: cached reads may be older than the oldest");
    }

    pub(crate) fn note_delete(&self, key: &ObjectKey, uid: Option<&str>) {
        self.store.write().note_delete(key, uid);
    }

    fn advance(&self, resource_version: &str) {
        if let Some(version) = parse_version(resource_version) {
            self.store.write().advance(version);
            self.advanced.notify_waiters();
        }
    }

    /// Waits until the watch has reached a version, but not for long: a watch that is down may take minutes.
    pub(crate) async fn wait_version(&self, version: u64) {
        let reached = async {
            loop {
                let mut advanced = pin!(self.advanced.notified());
                advanced.as_mut().enable();
                if self.read(Store::version) >= version {
                    return;
                }
                advanced.await;
            }
        };
        let _ = tokio::time::timeout(CATCH_UP, reached).await;
    }

    fn sweep(&self) {
        self.store.write().sweep();
    }

    /// The kind is served (again).
    fn found(&self) {
        self.missing.store(0, Ordering::Relaxed);
    }

    /// The kind is not served. True when that was so a few times in a row, and it should be found out
    /// whether its definition is gone, and with it all objects. Once could be a server that is just
    /// starting, and Kubernetes' own kinds do not go away.
    fn not_found(&self) -> bool {
        let times = self.missing.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        times >= GONE_AFTER && self.is_synced() && !is_built_in(&self.kind.resource) && self.read(Store::has_any)
    }

    /// What was found out: a kind that is gone has no objects. One that is only not served, in this
    /// version or by what answers just now, keeps them.
    fn gone(&self, gone: bool) {
        let kind = self.describe();
        if !gone {
            tracing::warn!(%kind, "kind is not served, but not gone: its objects are kept as they were");
            return;
        }
        tracing::info!(%kind, "kind is gone");
        self.change(Store::end);
    }
}

/// Kubernetes' own groups. A server without one of their kinds is not the server it was.
fn is_built_in(resource: &ApiResource) -> bool {
    const GROUPS: [&str; 23] = [
        "",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "internal.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
        "storagemigration.k8s.io",
    ];
    GROUPS.contains(&resource.group.as_str())
}

#[cfg(test)]
mod tests;
