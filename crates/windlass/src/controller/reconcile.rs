//! What users write: a reconciler, its outcome and its errors.

use std::time::Duration;

use super::Context;
use crate::client::ClientError;
use crate::key::ObjectKey;

/// Brings the world closer to what one object asks for.
///
/// It receives a key, not an event, and must work from what it reads: it may be called again for
/// the same state, late, or after many changes at once. When the object is gone, reads return
/// nothing and there is usually nothing left to do.
///
/// ```
/// use std::time::Duration;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::{Context, Controller, ObjectKey, Outcome, Reconcile};
///
/// struct Settings;
///
/// impl Reconcile for Settings {
///     async fn reconcile(&self, key: &ObjectKey, ctx: &Context) -> windlass::Result {
///         let Some(map) = ctx.get::<ConfigMap>(key).await? else { return Ok(Outcome::Done) };
///         ctx.recorder().normal(&*map, "Seen", "the settings were looked at");
///         Ok(Outcome::RequeueAfter(Duration::from_secs(600)))
///     }
/// }
///
/// let controller = Controller::<ConfigMap>::new("settings").complete(Settings);
/// ```
pub trait Reconcile: Send + Sync + 'static {
    /// Reconciles one object. Never called twice at the same time for one key.
    fn reconcile(&self, key: &ObjectKey, ctx: &Context)
    -> impl Future<Output = Result<Outcome, ReconcileError>> + Send;
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

    /// An error that trying again cannot help: it is reported, not retried.
    pub fn terminal(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: error.into(), terminal: true }
    }

    /// Whether trying again cannot help.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether somebody else wrote the object first, which is a reason to look again but not to
    /// alarm anybody.
    pub fn is_conflict(&self) -> bool {
        let mut error: Option<&(dyn std::error::Error + 'static)> = Some(&*self.source);
        while let Some(current) = error {
            if let Some(client) = current.downcast_ref::<ClientError>() {
                return client.is_conflict();
            }
            if let Some(kube::Error::Api(status)) = current.downcast_ref::<kube::Error>() {
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
        let text = self.source.to_string();
        f.write_str(&text)?;
        let mut said = text;
        let mut cause = self.source.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Many errors repeat their cause in their own message.
            if !said.contains(&text) {
                write!(f, ": {text}")?;
            }
            said = text;
            cause = error.source();
        }
        Ok(())
    }
}

impl std::fmt::Debug for ReconcileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReconcileError").field("source", &self.source).field("terminal", &self.terminal).finish()
    }
}

struct FromFn<F>(F);

/// A reconciler made of a function, for the smallest controllers and for tests.
///
/// ```
/// use windlass::{Outcome, controller};
///
/// let reconciler = controller::from_fn(|key, _ctx| async move {
///     println!("{key}");
///     Ok(Outcome::Done)
/// });
/// ```
pub fn from_fn<F, Fut>(function: F) -> impl Reconcile
where
    F: Fn(ObjectKey, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, ReconcileError>> + Send + 'static,
{
    FromFn(function)
}

impl<F, Fut> Reconcile for FromFn<F>
where
    F: Fn(ObjectKey, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, ReconcileError>> + Send + 'static,
{
    async fn reconcile(&self, key: &ObjectKey, ctx: &Context) -> Result<Outcome, ReconcileError> {
        (self.0)(key.clone(), ctx.clone()).await
    }
}
