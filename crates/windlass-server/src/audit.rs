//! Audit: who did what, when, and with what result, as upstream records it.
//!
//! ```text
//! authenticated ▸ RequestReceived ▸ impersonate ▸ authorise ▸ … ▸ ResponseStarted (long-running) ▸ ResponseComplete
//! ```
//!
//! Off unless a server is given [`AuditOptions`]. The [policy] decides what is recorded of a request when it has been
//! authenticated; events are lines of `audit.k8s.io/v1` in a [log] that is rotated. An answer that is made as it is read
//! is complete when it has been read or its client is gone. Mirrors `endpoints/filters/audit.go` and `audit/request.go`.

mod annotations;
mod event;
mod log;
mod policy;
mod record;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::log::{Log, Rotation};
use crate::metrics::{heading, line};

pub(crate) use self::annotations::{Annotations, object};
pub(crate) use self::policy::Level;
pub use self::policy::{AuditPolicy, AuditPolicyError};
pub(crate) use self::record::{Begin, Record, id};

/// What is recorded, and where.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditOptions {
    /// The file that events are appended to, one per line. Only its owner may read it.
    pub path: PathBuf,
    /// What is recorded about which requests; the metadata of all unless set.
    pub policy: AuditPolicy,
    /// A new file is begun when this one has so many bytes; 0 for never.
    pub max_size: u64,
    /// So many old files are kept; 0 for all.
    pub max_backups: usize,
    /// Old files are kept for so many days; 0 for ever.
    pub max_age_days: u32,
}

impl AuditOptions {
    /// Records the metadata of all requests in a file, with upstream's limits.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use windlass_server::{AuditOptions, Server};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let file = dir.path().join("audit.log");
    /// let server = Server::builder().audit(AuditOptions::new(&file)).start().await?;
    /// let client = kube::Client::new(server.service(), "default");
    /// client.apiserver_version().await?;
    /// server.stop().await?;
    /// assert!(std::fs::read_to_string(file)?.contains("\"requestURI\":\"/version\""));
    /// # Ok(()) }
    /// ```
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            policy: AuditPolicy::default(),
            max_size: 100 << 20,
            max_backups: 100,
            max_age_days: 366,
        }
    }
}

/// Where a request is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    const ALL: [Self; 4] = [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    const fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// What records requests.
#[derive(Debug)]
pub(crate) struct Audit {
    policy: AuditPolicy,
    log: Log,
    levels: [AtomicU64; Level::ALL.len()],
}

impl Audit {
    /// Opens the log.
    pub(crate) fn open(options: &AuditOptions) -> io::Result<Arc<Self>> {
        let AuditOptions { path, policy, max_size, max_backups, max_age_days } = options;
        let rotation = Rotation { size: *max_size, backups: *max_backups, age_days: *max_age_days };
        let log = Log::open(path, rotation)?;
        Ok(Arc::new(Self { policy: policy.clone(), log, levels: Default::default() }))
    }

    /// Returns once everything that was recorded so far is in the file.
    pub(crate) async fn flush(&self) {
        self.log.flush().await;
    }

    /// What was recorded, in Prometheus' text format under upstream's names.
    pub(crate) fn render_metrics(&self) -> String {
        let mut out = String::new();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        heading(&mut out, "apiserver_audit_event_total", "counter", "Audit events that were written.");
        line(&mut out, format_args!("apiserver_audit_event_total {}", load(&self.log.written)));
        heading(&mut out, "apiserver_audit_error_total", "counter", "Audit events that were lost.");
        line(&mut out, format_args!("apiserver_audit_error_total{{plugin=\"log\"}} {}", load(&self.log.dropped)));
        heading(&mut out, "apiserver_audit_level_total", "counter", "Requests by what is recorded of them.");
        for (level, count) in Level::ALL.iter().zip(&self.levels) {
            line(&mut out, format_args!("apiserver_audit_level_total{{level=\"{}\"}} {}", level.name(), load(count)));
        }
        out
    }
}
