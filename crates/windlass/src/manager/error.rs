//! What can go wrong with a manager.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use crate::informer::SyncError;
use crate::lease::InvalidElection;
use crate::rbac::Rules;
#[cfg(feature = "webhook")]
use crate::webhook::WebhookError;

/// Why a manager could not be built, or stopped other than on request.
///
/// ```no_run
/// use windlass::manager::ManagerError;
///
/// # async fn example(manager: windlass::Manager) -> Result<(), ManagerError> {
/// match manager.run().await {
///     Err(ManagerError::Forbidden { missing }) => {
///         eprint!("{}", missing.to_yaml("petstore-manager"));
///         std::process::exit(1)
///     }
///     ended => ended,
/// }
/// # }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A server's address cannot be listened on.
    #[error("listen on {address} for {purpose}: {source}{}", if source.kind() == ErrorKind::AddrInUse {
        "; another program listens there: stop it, or use another port"
    } else {
        ""
    })]
    Bind {
        /// The address asked for.
        address: String,
        /// What for.
        purpose: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// There is no Tokio runtime around.
    #[error("no Tokio runtime here: call this from async code, or enter the runtime first")]
    NoRuntime,
    /// A name that cannot be used.
    #[error("the name of {what} {name:?} must have {rule}")]
    InvalidName {
        /// Whose.
        what: &'static str,
        /// The name.
        name: String,
        /// What holds for such names.
        rule: &'static str,
    },
    /// Two controllers or tasks of the same name.
    #[error("a controller or task named {name:?} was added before")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// Two clusters of the same name.
    #[error("a cluster named {name:?} was added before")]
    DuplicateCluster {
        /// The name.
        name: String,
    },
    /// A cache did not complete.
    #[error(transparent)]
    Cache(#[from] SyncError),
    /// The election's settings contradict each other.
    #[error(transparent)]
    Election(#[from] InvalidElection),
    /// A sharded controller's settings cannot work.
    #[error("sharded controller {controller:?}: {source}")]
    Sharding {
        /// The controller.
        controller: String,
        /// What is wrong.
        #[source]
        source: InvalidElection,
    },
    /// A transform came after others had begun to watch the kind.
    #[error("controller {controller:?}: {kind} are watched already, without this transform")]
    Transform {
        /// The controller.
        controller: String,
        /// The kind.
        kind: String,
    },
    /// Webhooks cannot be served.
    #[cfg(feature = "webhook")]
    #[error(transparent)]
    Webhooks(#[from] WebhookError),
    /// Metrics cannot be served over HTTPS.
    #[cfg(feature = "webhook")]
    #[error("metrics over HTTPS: {0}")]
    MetricsCertificate(#[source] WebhookError),
    /// The operator may not do what it cannot do without.
    #[error("the operator's account lacks permissions; add these rules to its role:\n{missing}")]
    Forbidden {
        /// What is missing.
        missing: Rules,
    },
    /// A task failed, panicked, or ended before the manager stopped; or it, or a controller, did not end when
    /// this replica had lost the lease, for as long as a [graceful
    /// shutdown](crate::manager::ManagerBuilder::graceful_shutdown) may take: the replica cannot lead again,
    /// and is best restarted.
    #[error("task {name:?}: {message}")]
    Task {
        /// The task.
        name: String,
        /// How it ended.
        message: String,
    },
    /// What was running did not finish in time and was aborted.
    #[error("{left}: not stopped within {after:?}, aborted")]
    ShutdownTimeout {
        /// How long was waited.
        after: Duration,
        /// The controllers and tasks that were waited for, or what else.
        left: String,
    },
    /// A second signal arrived while stopping. The process has a second to end by itself.
    #[error("aborted by a second signal")]
    Aborted,
    /// Signals cannot be received.
    #[error("install signal handlers: {0}")]
    Signals(#[source] std::io::Error),
    /// The manifests that `$WINDLASS_MANIFESTS` asks for cannot be written.
    #[error("write manifests to {}: {source}", path.display())]
    Describe {
        /// The file asked for.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

crate::report::debug_as_message!(ManagerError);
