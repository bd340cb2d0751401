//! Handlers: how they are told of changes, and how they come and go while the reflector runs.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::erased::Shared;
use super::store::Told;
use super::{Change, Reflector, Store};
use crate::key::ObjectKey;
use crate::object::panic_message;

/// Called for each change.
pub(crate) type AnyHandler = Arc<dyn Fn(&Told) + Send + Sync>;

/// A handler that hears of changes until its subscription is dropped.
pub(super) struct Listening {
    /// Whether the subscription is gone.
    cancelled: Arc<AtomicBool>,
    handler: AnyHandler,
}

/// Keeps a handler subscribed; dropping it unsubscribes. It may be dropped anywhere, in the handler
/// too: no call begins after that, and dropping waits for none that another thread has begun.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let kube = kube::Client::new(server.service(), "default");
/// # let client = windlass::CachedClient::standalone(kube, "example");
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
    pub(crate) fn new(cancel: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { cancel: vec![Box::new(cancel)] }
    }

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

impl Reflector {
    /// Calls a handler for everything that is known, then for every change.
    pub(crate) fn subscribe(self: &Arc<Self>, handler: AnyHandler) -> Subscription {
        let mut handlers = self.handlers.lock();
        let (listening, subscription) = self.listen(handler);
        self.each_known(|object| self.call(&listening, &Change::Added { object, initial: true }));
        handlers.push(listening);
        subscription
    }

    /// Tells what is known, then calls a handler for every change.
    pub(crate) fn follow(self: &Arc<Self>, begin: impl FnOnce(Vec<ObjectKey>), handler: AnyHandler) -> Subscription {
        let mut handlers = self.handlers.lock();
        let (listening, subscription) = self.listen(handler);
        // The store is not locked for `begin`, which reads it: a reader that reads again while a writer waits would wait for
        // ever.
        let known = self.store.read().observed_keys();
        begin(known);
        handlers.push(listening);
        subscription
    }

    fn listen(self: &Arc<Self>, handler: AnyHandler) -> (Listening, Subscription) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let listening = Listening { cancelled: Arc::clone(&cancelled), handler };
        let reflector = Arc::downgrade(self);
        let subscription = Subscription::new(move || {
            cancelled.store(true, Ordering::Release);
            // If the lock is held, a change is being delivered (perhaps by this very caller), and the delivery removes
            // cancelled handlers when it ends.
            if let Some(reflector) = reflector.upgrade()
                && let Some(mut handlers) = reflector.handlers.try_lock()
            {
                remove_cancelled(&mut handlers);
            }
        });
        (listening, subscription)
    }

    /// Reads the store while the handlers have been told of everything that is in it.
    pub(crate) fn settled<R>(&self, read: impl FnOnce(&Store) -> R) -> R {
        let _telling = self.handlers.lock();
        read(&self.store.read())
    }

    /// Changes the store and tells the handlers, in one step as far as they can see.
    pub(super) fn change<I>(&self, change: impl FnOnce(&mut Store) -> I)
    where
        I: IntoIterator<Item = Told>,
    {
        let mut handlers = self.handlers.lock();
        remove_cancelled(&mut handlers);
        let changes = change(&mut self.store.write());
        self.advanced.notify_waiters();
        for change in changes {
            for listening in &*handlers {
                self.call(listening, &change);
            }
        }
    }

    pub(super) fn resync_now(&self) {
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
    fn each_known(&self, mut tell: impl FnMut(Shared)) {
        let keys = self.store.read().observed_keys();
        for key in keys {
            let object = self.store.read().observed(&key);
            object.into_iter().for_each(&mut tell);
        }
    }

    /// A handler that panics is reported; the others and the reflector go on.
    fn call(&self, listening: &Listening, change: &Told) {
        if listening.cancelled.load(Ordering::Acquire) {
            return;
        }
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| (listening.handler)(change))) {
            self.handler_panicked(&change.object().key(), &*panic);
        }
    }

    pub(crate) fn handler_panicked(&self, key: &ObjectKey, panic: &(dyn Any + Send)) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        let kind = self.describe();
        tracing::error!(%kind, object = %key, message = panic_message(panic), "handler panicked");
    }
}

fn remove_cancelled(handlers: &mut Vec<Listening>) {
    handlers.retain(|listening| !listening.cancelled.load(Ordering::Acquire));
}
