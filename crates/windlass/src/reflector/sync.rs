//! Whether the first list is complete, and if not, why.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Reflector;
use crate::outage::{cause, is_unreachable};
use crate::rbac::{READ, Rules};

/// Why an informer has no complete state.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::informer::SyncError;
///
/// # async fn example(client: windlass::CachedClient) {
/// match client.lister::<ConfigMap>().wait_synced().await {
///     Ok(()) => {}
///     // Names the kind, and the verb or the definition that is missing.
///     Err(SyncError::Timeout { kind, reason, .. }) => eprintln!("{kind}: {reason}"),
///     Err(other) => eprintln!("{other}"),
/// }
/// # }
/// ```
#[derive(Clone, thiserror::Error)]
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
    /// The manager or the informer factory that the informer belongs to has not been started yet.
    #[error(
        "cache of {kind} not started: run the manager, or start the informer factory, before reading from its caches"
    )]
    NotStarted {
        /// The kind.
        kind: String,
    },
}

crate::report::debug_as_message!(SyncError);

#[derive(Debug, Clone, Default)]
pub(super) struct SyncState {
    pub(super) synced: bool,
    pub(super) stopped: bool,
    /// Whether the server refused the last attempt.
    pub(super) refused: bool,
    pub(super) last_error: Option<String>,
}

impl Reflector {
    pub(crate) fn is_synced(&self) -> bool {
        self.sync.borrow().synced
    }

    /// Waits until the first list is complete, also while the server refuses: permissions may be
    /// on their way.
    pub(crate) async fn wait_synced(&self, timeout: Duration) -> Result<(), SyncError> {
        self.wait_until(timeout, |state| state.synced || state.stopped).await
    }

    /// Waits for a reader: until the first list is complete, or the server refuses, or readers may not wait
    /// any more.
    pub(crate) async fn wait_for_reader(
        &self,
        timeout: Duration,
        closing: &CancellationToken,
    ) -> Result<(), SyncError> {
        // Work that goes on while the rest stops reads what is there.
        if self.is_synced() {
            return Ok(());
        }
        if !self.is_started() {
            return Err(SyncError::NotStarted { kind: self.describe() });
        }
        let waited = closing.run_until_cancelled(self.wait_readable(timeout)).await;
        waited.unwrap_or_else(|| Err(SyncError::Stopped { kind: self.describe() }))
    }

    /// Waits until the first list is complete, or the server refuses.
    async fn wait_readable(&self, timeout: Duration) -> Result<(), SyncError> {
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
            reason: reason.unwrap_or_else(|| "the server has not answered, or asks to wait".to_owned()),
        })
    }

    fn forbidden(&self, reason: Option<&str>) -> SyncError {
        let mut missing = Rules::default();
        missing.allow(self.namespace(), &self.kind.resource.group, [self.kind.resource.plural.as_str()], READ);
        SyncError::Forbidden {
            kind: self.describe(),
            reason: reason.unwrap_or_default().to_owned(),
            missing: Box::new(missing),
        }
    }

    /// How long ago a list was complete; for ever if there was none.
    pub(super) fn since_list(&self) -> Duration {
        self.listed.lock().map_or(Duration::MAX, |listed| listed.elapsed())
    }

    pub(super) fn completed(&self) {
        *self.listed.lock() = Some(Instant::now());
        self.sync.send_if_modified(|state| {
            (state.last_error, state.refused) = (None, false);
            !std::mem::replace(&mut state.synced, true)
        });
    }

    /// There is nothing to ask the server for.
    pub(super) fn cannot_list(&self, reason: String) {
        tracing::error!(kind = %self.describe(), %reason, "the kind is not watched");
        self.sync.send_modify(|state| state.last_error = Some(reason));
    }

    pub(super) fn report(&self, error: &kube::Error) {
        let kind = self.describe();
        let reason = explain(error);
        // An outage concerns all kinds, and was logged as such.
        if is_unreachable(error) {
            tracing::debug!(%kind, %reason, "watch failed");
        } else {
            tracing::warn!(%kind, %reason, "watch failed");
        }
        let refused = matches!(error, kube::Error::Api(status) if status.code == 403);
        self.sync.send_if_modified(|state| {
            (state.last_error, state.refused) = (Some(reason), refused);
            refused
        });
    }
}

/// An error with what to do about it.
fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => {
            let hint = match status.code {
                401 => " (the credentials are not accepted)",
                403 => " (grant list and watch on this kind to the operator's account)",
                404 => {
                    " (is the CustomResourceDefinition installed? a cluster-scoped kind known only at run time needs \
                    Scope::cluster_scoped)"
                }
                _ => "",
            };
            format!("{}{hint}", status.message)
        }
        other => cause(other),
    }
}
