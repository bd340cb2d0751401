//! Informers: the state of one kind, kept up to date by a list and a watch.
//!
//! One informer serves all controllers, handlers and listers of a manager that look at the same
//! kind, namespace and selector. It is made of four parts:
//!
//! - a state machine without I/O that decides the next request (streaming list with fallback to
//!   pages, bookmarks, relist after 410 without dropping the cache, a backoff of its own);
//! - a source that makes the requests and decodes what comes back, object by object;
//! - a store with indexes and the process's own writes;
//! - a task that ties them together and calls the handlers.
//!
//! Handlers are called one after the other, in the order of the changes, and see every deletion
//! with the last known state of the object, even one that happened while the watch was down.
//! A handler must not block: it files work and returns.

mod backoff;
mod json;
mod machine;
mod source;
mod store;
mod task;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use kube::api::ApiResource;
use kube::core::{Selector, SelectorExt};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use source::{ApiSource, ListWatch, Selection};
pub(crate) use store::{IndexFn, Store};

use crate::key::ObjectKey;
use crate::object::{Object, describe, panic_message, parse_version};
use crate::rbac::{READ, Rules};

/// A change of one object, as an informer's handlers see it.
///
/// ```
/// use windlass::informer::Change;
///
/// fn log<K: windlass::Object>(change: &Change<K>) {
///     match change {
///         Change::Added { object, initial } => println!("{:?} {initial}", object.meta().name),
///         Change::Updated { old, new } => println!("{:?} -> {:?}", old.meta().generation, new.meta().generation),
///         Change::Resync { object } | Change::Deleted { object } => println!("{:?}", object.meta().name),
///     }
/// }
/// ```
#[derive(Debug)]
pub enum Change<K> {
    /// An object appeared; `initial` when it was there before the informer looked.
    Added {
        /// The object.
        object: Arc<K>,
        /// Whether it is part of the initial state rather than news.
        initial: bool,
    },
    /// An object changed.
    Updated {
        /// What it was.
        old: Arc<K>,
        /// What it is.
        new: Arc<K>,
    },
    /// Nothing changed; a reminder that the object exists.
    Resync {
        /// The object.
        object: Arc<K>,
    },
    /// An object is gone.
    Deleted {
        /// Its last known state.
        object: Arc<K>,
    },
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added { object: Arc::clone(object), initial: *initial },
            Self::Updated { old, new } => Self::Updated { old: Arc::clone(old), new: Arc::clone(new) },
            Self::Resync { object } => Self::Resync { object: Arc::clone(object) },
            Self::Deleted { object } => Self::Deleted { object: Arc::clone(object) },
        }
    }
}

impl<K> Change<K> {
    /// The object after the change; for a deletion its last known state.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added { object, .. } | Self::Resync { object } | Self::Deleted { object } => object,
            Self::Updated { new, .. } => new,
        }
    }
}

/// Why an informer has no complete state.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::informer::SyncError;
///
/// # async fn example(client: windlass::Client) {
/// match client.lister::<ConfigMap>().wait_synced().await {
///     Ok(()) => {}
///     // Names the kind, and the verb or the definition that is missing.
///     Err(SyncError::Timeout { kind, reason, .. }) => eprintln!("{kind}: {reason}"),
///     Err(other) => eprintln!("{other}"),
/// }
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The first list did not complete in time.
    #[error("cache of {kind}{scope} not synced after {after:?}: {reason}")]
    Timeout {
        /// The kind, as `pets.petstore.example.com/v1alpha1`.
        kind: String,
        /// The namespace, as ` in namespace "x"`, or nothing.
        scope: String,
        /// How long was waited.
        after: Duration,
        /// The last error and what to do about it.
        reason: String,
    },
    /// The informer was stopped.
    #[error("cache of {kind} stopped")]
    Stopped {
        /// The kind.
        kind: String,
    },
    /// The server does not let the operator read the kind.
    #[error("cache of {kind} not filled: {reason}; add this rule to the operator's role:\n{missing}")]
    Forbidden {
        /// The kind.
        kind: String,
        /// What the server said.
        reason: String,
        /// What is missing.
        missing: Box<Rules>,
    },
    /// No cache covers the namespace that was asked about.
    #[error(
        "{kind} of namespace {namespace:?} are not cached, only those of {watched}: watch the namespace, or read live"
    )]
    NotWatched {
        /// The kind.
        kind: String,
        /// The namespace asked about; empty for none.
        namespace: String,
        /// The namespaces that are cached.
        watched: String,
    },
    /// The manager the informer belongs to is not running yet.
    #[error("cache of {kind} not started: run the manager before reading from its caches")]
    NotStarted {
        /// The kind.
        kind: String,
    },
}

#[derive(Debug, Clone, Default)]
struct SyncState {
    synced: bool,
    stopped: bool,
    /// Whether the server refused the last attempt.
    refused: bool,
    last_error: Option<String>,
}

/// How often in a row a kind must be missing before its objects are taken to be gone.
const GONE_AFTER: u32 = 3;

/// How long an informer that panicked waits before it starts over.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Changes objects before they are kept, to drop what nobody reads.
pub(crate) type Transform<K> = Arc<dyn Fn(&mut K) + Send + Sync>;

type Handler<K> = Arc<dyn Fn(&Change<K>) + Send + Sync>;

/// A handler that hears of changes until its subscription is dropped.
struct Listening<K> {
    /// Whether the subscription is gone.
    cancelled: Arc<AtomicBool>,
    handler: Handler<K>,
}

/// The state of one kind, kept up to date while its task runs.
pub(crate) struct Informer<K: Object> {
    resource: ApiResource,
    selection: Selection,
    labels: Option<Selector>,
    store: RwLock<Store<K>>,
    /// Held while a change is applied and told, so that a handler added meanwhile misses nothing
    /// and hears nothing twice.
    handlers: Mutex<Vec<Listening<K>>>,
    sync: watch::Sender<SyncState>,
    started: AtomicBool,
    decode_errors: AtomicU64,
    /// How often the code of others panicked.
    panics: Arc<AtomicU64>,
    /// How often in a row the server said that there is no such kind.
    missing: AtomicU32,
    resync: Option<Duration>,
    transform: Option<Transform<K>>,
}

/// Keeps a handler subscribed; dropping it unsubscribes. It may be dropped anywhere, in the handler
/// too: no call begins after that, and dropping waits for none that another thread has begun.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let kube = kube::Client::new(server.service(), "default");
/// # let client = windlass::Client::standalone(kube, "example");
/// use k8s_openapi::api::core::v1::Namespace;
///
/// let lister = client.lister::<Namespace>();
/// let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
/// let subscription = lister.subscribe(move |change| {
///     let _ = tell.send(change.object().metadata.name.clone());
/// });
/// assert!(told.recv().await.is_some(), "there are namespaces");
/// drop(subscription); // nothing is told from here on
/// # client.caches().stop().await;
/// # Ok(()) }
/// ```
#[must_use = "dropping a subscription unsubscribes its handler"]
pub struct Subscription {
    cancel: Vec<Box<dyn FnOnce() + Send + Sync>>,
}

impl Subscription {
    pub(crate) fn joined(parts: Vec<Subscription>) -> Self {
        let take = |mut part: Subscription| std::mem::take(&mut part.cancel);
        Self { cancel: parts.into_iter().flat_map(take).collect() }
    }

    /// Leaves the handler subscribed for the life of the informer.
    pub fn forever(mut self) {
        self.cancel.clear();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for cancel in self.cancel.drain(..) {
            cancel();
        }
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

impl<K: Object> Informer<K> {
    pub(crate) fn new(
        resource: ApiResource,
        selection: Selection,
        labels: Option<Selector>,
        resync: Option<Duration>,
        transform: Option<Transform<K>>,
    ) -> Arc<Self> {
        let panics = Arc::<AtomicU64>::default();
        Arc::new(Self {
            resource,
            selection,
            labels,
            store: RwLock::new(Store::new(Arc::clone(&panics))),
            panics,
            handlers: Mutex::default(),
            sync: watch::Sender::new(SyncState::default()),
            started: AtomicBool::new(false),
            decode_errors: AtomicU64::new(0),
            missing: AtomicU32::new(0),
            resync,
            transform,
        })
    }

    /// Keeps the state up to date until the token is cancelled. To be called once.
    pub(crate) async fn run(self: Arc<Self>, source: Arc<dyn ListWatch<K>>, shutdown: CancellationToken) {
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

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.selection.namespace.as_deref()
    }

    pub(crate) fn describe(&self) -> String {
        describe(&self.resource)
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.sync.borrow().synced
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// True the first time: whoever is told so runs the task.
    pub(crate) fn claim_start(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn decode_errors(&self) -> u64 {
        self.decode_errors.load(Ordering::Relaxed)
    }

    /// How often an index, a handler or a decoder panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// A handler that panics is reported; the others and the informer go on.
    fn call(&self, listening: &Listening<K>, change: &Change<K>) {
        if listening.cancelled.load(Ordering::Acquire) {
            return;
        }
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| (listening.handler)(change))) {
            self.panics.fetch_add(1, Ordering::Relaxed);
            let (kind, key) = (self.describe(), ObjectKey::of(&**change.object()));
            tracing::error!(%kind, object = %key, message = panic_message(&*panic), "informer handler panicked");
        }
    }

    /// The task itself panicked: it starts over, with everything it knew.
    fn panicked(&self, panic: &(dyn Any + Send)) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        let (kind, message) = (self.describe(), panic_message(panic));
        tracing::error!(%kind, message, "informer panicked, starting over");
        self.sync.send_if_modified(|state| {
            state.last_error = Some(format!("panic: {message}"));
            false
        });
    }

    /// Waits until the first list is complete, also while the server refuses: permissions may be
    /// on their way.
    pub(crate) async fn wait_synced(&self, timeout: Duration) -> Result<(), SyncError> {
        self.wait_until(timeout, |state| state.synced || state.stopped).await
    }

    /// Waits until the first list is complete, or the server refuses.
    pub(crate) async fn wait_readable(&self, timeout: Duration) -> Result<(), SyncError> {
        self.wait_until(timeout, |state| state.synced || state.stopped || state.refused).await
    }

    async fn wait_until(&self, timeout: Duration, settled: impl FnMut(&SyncState) -> bool) -> Result<(), SyncError> {
        if self.is_synced() {
            return Ok(());
        }
        let mut receiver = self.sync.subscribe();
        if let Ok(settled) = tokio::time::timeout(timeout, receiver.wait_for(settled)).await {
            return match settled {
                Ok(state) if state.synced => Ok(()),
                Ok(state) if state.refused && !state.stopped => Err(self.forbidden(state.last_error.as_deref())),
                _ => Err(SyncError::Stopped { kind: self.describe() }),
            };
        }
        let reason = self.sync.borrow().last_error.clone();
        Err(SyncError::Timeout {
            kind: self.describe(),
            scope: self.namespace().map(|namespace| format!(" in namespace {namespace:?}")).unwrap_or_default(),
            after: timeout,
            reason: reason.unwrap_or_else(|| "the server has not answered".to_owned()),
        })
    }

    fn forbidden(&self, reason: Option<&str>) -> SyncError {
        let mut missing = Rules::default();
        missing.allow(self.namespace(), &self.resource.group, [self.resource.plural.as_str()], READ);
        SyncError::Forbidden {
            kind: self.describe(),
            reason: reason.unwrap_or_default().to_owned(),
            missing: Box::new(missing),
        }
    }

    /// Calls a handler for everything that is known, then for every change.
    pub(crate) fn subscribe(self: &Arc<Self>, handler: impl Fn(&Change<K>) + Send + Sync + 'static) -> Subscription {
        let cancelled = Arc::new(AtomicBool::new(false));
        let listening = Listening { cancelled: Arc::clone(&cancelled), handler: Arc::new(handler) };
        let mut handlers = self.handlers.lock();
        self.each_known(|object| self.call(&listening, &Change::Added { object, initial: true }));
        handlers.push(listening);
        drop(handlers);
        let informer = Arc::downgrade(self);
        Subscription {
            cancel: vec![Box::new(move || {
                cancelled.store(true, Ordering::Release);
                // Whoever tells of a change right now, perhaps the caller of this, removes it later.
                if let Some(informer) = informer.upgrade()
                    && let Some(mut handlers) = informer.handlers.try_lock()
                {
                    remove_cancelled(&mut handlers);
                }
            })],
        }
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&Store<K>) -> R) -> R {
        read(&self.store.read())
    }

    /// Adds an index unless there is one of that name.
    pub(crate) fn ensure_index(&self, name: &str, values: impl FnOnce() -> IndexFn<K>) {
        if self.store.read().has_index(name) {
            return;
        }
        let mut store = self.store.write();
        if !store.has_index(name) {
            store.add_index(name, values());
        }
    }

    /// The object as it is to be kept. One that the function panics on is kept as it came.
    fn transformed(&self, object: K) -> (K, bool) {
        let Some(transform) = &self.transform else {
            return (object, false);
        };
        let mut changed = object.clone();
        match std::panic::catch_unwind(AssertUnwindSafe(|| transform(&mut changed))) {
            Ok(()) => {
                // By these it is found, and told from others.
                let (meta, original) = (changed.meta_mut(), object.meta());
                meta.name.clone_from(&original.name);
                meta.namespace.clone_from(&original.namespace);
                meta.uid.clone_from(&original.uid);
                meta.resource_version.clone_from(&original.resource_version);
                (changed, true)
            }
            Err(panic) => {
                self.panics.fetch_add(1, Ordering::Relaxed);
                let (kind, key) = (self.describe(), ObjectKey::of(&object));
                tracing::error!(%kind, object = %key, message = panic_message(&*panic), "transform panicked");
                (object, false)
            }
        }
    }

    pub(crate) fn note_write(&self, object: K) {
        let object = Arc::new(self.transformed(object).0);
        let meta = object.meta();
        if self.namespace().is_some() && meta.namespace.as_deref() != self.namespace() {
            return;
        }
        let labelled = self.labels.as_ref().is_none_or(|selector| match &meta.labels {
            Some(labels) => selector.matches(labels),
            None => selector.matches(&std::collections::BTreeMap::new()),
        });
        let mut store = self.store.write();
        // What a field selector means only the server knows: an object that was selected is taken
        // to stay so, any other to stay out.
        if self.selection.fields.is_some() && !store.has_observed(&ObjectKey::of(&*object)) {
            return;
        }
        store.note_write(object, labelled);
    }

    pub(crate) fn note_delete(&self, key: &ObjectKey, uid: Option<&str>) {
        self.store.write().note_delete(key, uid);
    }

    /// Changes the store and tells the handlers, in one step as far as they can see.
    fn change<I>(&self, change: impl FnOnce(&mut Store<K>) -> I)
    where
        I: IntoIterator<Item = Change<K>>,
    {
        let mut handlers = self.handlers.lock();
        remove_cancelled(&mut handlers);
        let changes = change(&mut self.store.write());
        for change in changes {
            for listening in &*handlers {
                self.call(listening, &change);
            }
        }
    }

    fn advance(&self, resource_version: &str) {
        if let Some(version) = parse_version(resource_version) {
            self.store.write().advance(version);
        }
    }

    fn resync_now(&self) {
        let handlers = self.handlers.lock();
        self.each_known(|object| {
            let change = Change::Resync { object };
            for listening in &*handlers {
                self.call(listening, &change);
            }
        });
    }

    /// Everything the watch has said, one by one, so that not all of it is decoded at once. To be
    /// called with the handlers locked: nothing changes meanwhile.
    fn each_known(&self, mut tell: impl FnMut(Arc<K>)) {
        let keys = self.store.read().observed_keys();
        for key in keys {
            let object = self.store.read().observed(&key);
            object.into_iter().for_each(&mut tell);
        }
    }

    fn sweep(&self) {
        self.store.write().sweep();
    }

    fn completed(&self) {
        self.sync.send_if_modified(|state| {
            (state.last_error, state.refused) = (None, false);
            !std::mem::replace(&mut state.synced, true)
        });
    }

    /// The kind is served (again).
    fn found(&self) {
        self.missing.store(0, Ordering::Relaxed);
    }

    /// The kind is not served: after a few times in a row, its definition and with it all objects
    /// are taken to be gone. Once could be a server that is just starting, and Kubernetes' own
    /// kinds do not go away.
    fn not_found(&self) {
        let times = self.missing.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if times == GONE_AFTER && self.is_synced() && !is_built_in(&self.resource) {
            tracing::info!(kind = %self.describe(), "kind is no longer served");
            self.change(|store| {
                store.begin_replace();
                store.finish_replace("")
            });
        }
    }

    fn report(&self, error: &kube::Error) {
        let kind = self.describe();
        let reason = explain(error);
        tracing::warn!(%kind, %reason, "watch failed");
        let refused = matches!(error, kube::Error::Api(status) if status.code == 403);
        self.sync.send_if_modified(|state| {
            (state.last_error, state.refused) = (Some(reason), refused);
            refused
        });
    }
}

/// An error in the words of whoever has to fix it.
fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => {
            let hint = match status.code {
                401 => " (the credentials are not accepted)",
                403 => " (grant list and watch on this kind to the operator's account)",
                404 => " (is the CustomResourceDefinition installed?)",
                _ => "",
            };
            format!("{}{hint}", status.message)
        }
        other => other.to_string(),
    }
}

fn remove_cancelled<K>(handlers: &mut Vec<Listening<K>>) {
    handlers.retain(|listening| !listening.cancelled.load(Ordering::Acquire));
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
