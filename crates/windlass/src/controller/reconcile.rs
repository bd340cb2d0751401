//! What users write: a reconciler, its outcome and its errors.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::Context;
use crate::client::ClientError;
use crate::key::ObjectKey;
use crate::object::Object;
use crate::report::{Chain, kube_error};

/// Brings the world closer to what one object asks for.
///
/// The reconciler receives the object as the cache has it, not an event: it is called again for the same state, late,
/// or once after many changes, so it works from what it reads. It runs for different objects at the same time, never
/// twice at once for the same one.
///
/// `K` is the kind of the [`Controller`](super::Controller) that the reconciler completes. A reconciler whose
/// keys do not stand for one object each implements [`ReconcileKey`] instead; one with something to clean up
/// outside the cluster implements [`Finalize`](crate::finalizer::Finalize).
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::{Context, Controller, Outcome, Reconcile};
///
/// struct Settings;
///
/// impl Reconcile<ConfigMap> for Settings {
///     async fn reconcile(&self, map: Arc<ConfigMap>, ctx: Context) -> windlass::Result {
///         ctx.recorder().normal(&map, "Seen", "read the settings");
///         Ok(Outcome::RequeueAfter(Duration::from_secs(600)))
///     }
/// }
///
/// let controller = Controller::<ConfigMap>::new("settings").complete(Settings);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not reconcile `{K}`",
    label = "this is not a reconciler of `{K}` objects",
    note = "`complete` takes a reconciler of the controller's own kind: `impl Reconcile<{K}>`, a `Finalizer` around `impl Finalize<{K}>`, or `controller::from_fn(|object: Arc<{K}>, ctx: Context| ...)`",
    note = "a reconciler that works with keys instead of objects (`ReconcileKey`, `from_key_fn`) is given to `complete_keyed`"
)]
pub trait Reconcile<K: Object>: Send + Sync + 'static {
    /// Reconciles an object that exists and is in the controller's [scope](super::Controller::scope).
    fn reconcile(&self, object: Arc<K>, ctx: Context) -> impl Future<Output = crate::Result> + Send;

    /// The key was to be reconciled, but there is no such object: it was deleted, it has left the controller's
    /// scope, or something named a key that never was. Does nothing unless implemented.
    ///
    /// A process that was not running when an object was deleted does not learn of the deletion. What must be
    /// cleaned up in any case needs a [finalizer](crate::finalizer) or an [owner reference](crate::owner).
    fn gone(&self, key: ObjectKey, ctx: Context) -> impl Future<Output = crate::Result> + Send {
        let _ = (key, ctx);
        async { Ok(Outcome::Done) }
    }
}

/// A reconciler that receives keys: for controllers whose work is not about one object, such as one that
/// aggregates all objects of a namespace, or one that also acts on what has no object any more.
///
/// The key may be that of an object that does not exist. It is given to
/// [`complete_keyed`](super::Controller::complete_keyed).
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use windlass::{Context, Controller, ObjectKey, Outcome, ReconcileKey};
///
/// /// Counts the pods of each namespace. The key is a namespace's.
/// struct PodCount;
///
/// impl ReconcileKey for PodCount {
///     async fn reconcile(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
///         let pods = ctx.client().lister::<Pod>().in_namespace(key.name());
///         tracing::info!(namespace = key.name(), pods = pods.len(), "counted");
///         Ok(Outcome::Done)
///     }
/// }
///
/// let controller = Controller::<Pod>::new("pod-count").complete_keyed(PodCount);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not reconcile keys",
    label = "this is not a `ReconcileKey`",
    note = "`complete_keyed` takes `impl ReconcileKey`, or `controller::from_key_fn(|key: ObjectKey, ctx: Context| ...)`",
    note = "a reconciler that receives objects (`Reconcile<K>`, `Finalizer`, `from_fn`) is given to `complete`"
)]
pub trait ReconcileKey: Send + Sync + 'static {
    /// Reconciles what a key stands for. Never called twice at the same time for one key.
    fn reconcile(&self, key: ObjectKey, ctx: Context) -> impl Future<Output = crate::Result> + Send;
}

/// A reconciler of any type. A call is one boxed future; everything around it is compiled once.
pub(super) trait AnyReconciler: Send + Sync {
    fn call(&self, key: ObjectKey, ctx: Context) -> BoxFuture<'_, crate::Result>;
}

pub(super) struct OfKeys<R>(pub(super) R);

impl<R: ReconcileKey> AnyReconciler for OfKeys<R> {
    fn call(&self, key: ObjectKey, ctx: Context) -> BoxFuture<'_, crate::Result> {
        Box::pin(self.0.reconcile(key, ctx))
    }
}

pub(super) struct OfObjects<K: Object, R> {
    pub(super) reconciler: R,
    pub(super) dt: K::DynamicType,
}

impl<K: Object, R: Reconcile<K>> AnyReconciler for OfObjects<K, R> {
    fn call(&self, key: ObjectKey, ctx: Context) -> BoxFuture<'_, crate::Result> {
        Box::pin(async move {
            match ctx.objects_of::<K>(self.dt.clone()).get(&key).await? {
                Some(object) => self.reconciler.reconcile(object, ctx).await,
                None => self.reconciler.gone(key, ctx).await,
            }
        })
    }
}

/// How a reconcile ended well.
///
/// ```
/// use std::time::Duration;
/// use windlass::Outcome;
///
/// fn until(certificate_lasts: Option<Duration>) -> Outcome {
///     certificate_lasts.map_or(Outcome::Done, |left| Outcome::RequeueAfter(left * 2 / 3))
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do until something changes.
    Done,
    /// Nothing to do until something changes or this much time has passed.
    ///
    /// A time of zero, as what is computed from a deadline that has passed, means soon: after 5 ms, and
    /// twice as long each time in a row ([`QueueConfig`](crate::queue::QueueConfig)), like after a failure.
    /// It is no error in logs and metrics (there it is the result `requeue`), but
    /// [`Context::failures`] counts it.
    RequeueAfter(Duration),
}

/// How a reconcile failed: tried again later, or not.
///
/// Every error converts into it with `?` and is tried again, with a delay that doubles with each
/// failure in a row. [`terminal`](Self::terminal) marks those that trying again cannot help; the
/// object is reconciled again when it changes.
///
/// A failure is logged (a conflict with another writer at level `debug`) and counted in the metrics. The library writes
/// neither an event nor a condition about it: a reconciler whose users should see the failure does so before it
/// returns the error.
///
/// ```
/// use windlass::ReconcileError;
///
/// fn parse(text: &str) -> Result<u32, ReconcileError> {
///     text.parse::<u32>().map_err(ReconcileError::terminal)
/// }
/// assert!(parse("many").unwrap_err().is_terminal());
///
/// fn read() -> Result<String, ReconcileError> {
///     Ok(std::fs::read_to_string("/does/not/exist")?)
/// }
/// assert!(!read().unwrap_err().is_terminal());
/// ```
// Not an `std::error::Error` itself, so that every error can convert into it.
pub struct ReconcileError {
    source: Box<dyn std::error::Error + Send + Sync>,
    terminal: bool,
}

impl ReconcileError {
    /// An error to be tried again.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: error.into(), terminal: false }
    }

    /// An error that trying again cannot help: it is logged and counted, not retried.
    pub fn terminal(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: error.into(), terminal: true }
    }

    /// Whether trying again cannot help.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether another client changed the object first, which is a reason to reconcile again, not an error to report.
    pub fn is_conflict(&self) -> bool {
        let mut error: Option<&(dyn std::error::Error + 'static)> = Some(&*self.source);
        while let Some(current) = error {
            if let Some(client) = current.downcast_ref::<ClientError>() {
                return client.is_conflict();
            }
            if let Some(kube::Error::Api(status)) = kube_error(current) {
                return status.is_conflict();
            }
            error = current.source();
        }
        false
    }

    /// The error underneath.
    pub fn get_ref(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.source
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for ReconcileError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

impl std::fmt::Display for ReconcileError {
    /// The error and its causes, on one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&Chain(&*self.source), f)
    }
}

impl std::fmt::Debug for ReconcileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReconcileError").field("source", &self.source).field("terminal", &self.terminal).finish()
    }
}

struct FromFn<K, F>(F, PhantomData<fn(Arc<K>)>);

/// A [`Reconcile`] made of a function, for small controllers and for tests.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::{Context, Controller, Outcome, controller};
///
/// let reconciler = controller::from_fn(|map: Arc<ConfigMap>, ctx: Context| async move {
///     ctx.recorder().normal(&map, "Seen", "read the settings");
///     Ok(Outcome::Done)
/// });
/// let controller = Controller::<ConfigMap>::new("settings").complete(reconciler);
/// ```
pub fn from_fn<K, F, Fut>(function: F) -> impl Reconcile<K>
where
    K: Object,
    F: Fn(Arc<K>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = crate::Result> + Send + 'static,
{
    FromFn(function, PhantomData)
}

impl<K, F, Fut> Reconcile<K> for FromFn<K, F>
where
    K: Object,
    F: Fn(Arc<K>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = crate::Result> + Send + 'static,
{
    fn reconcile(&self, object: Arc<K>, ctx: Context) -> impl Future<Output = crate::Result> + Send {
        (self.0)(object, ctx)
    }
}

struct FromKeyFn<F>(F);

/// A [`ReconcileKey`] made of a function.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::{Context, Controller, ObjectKey, Outcome, controller};
///
/// let reconciler = controller::from_key_fn(|key: ObjectKey, _ctx: Context| async move {
///     println!("{key}");
///     Ok(Outcome::Done)
/// });
/// let controller = Controller::<ConfigMap>::new("settings").complete_keyed(reconciler);
/// ```
pub fn from_key_fn<F, Fut>(function: F) -> impl ReconcileKey
where
    F: Fn(ObjectKey, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = crate::Result> + Send + 'static,
{
    FromKeyFn(function)
}

impl<F, Fut> ReconcileKey for FromKeyFn<F>
where
    F: Fn(ObjectKey, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = crate::Result> + Send + 'static,
{
    fn reconcile(&self, key: ObjectKey, ctx: Context) -> impl Future<Output = crate::Result> + Send {
        (self.0)(key, ctx)
    }
}
