//! Certificates from files, as cert-manager and Kubernetes mount them.
//!
//! Both files are read again and again: mounted Secrets change by a symbolic link that moves, which
//! file notifications miss in more ways than a read of two small files costs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::authority::CertificateError;
use super::certificates::Serving;
use crate::metrics::{Counter, Registry};

type Pair = (Vec<u8>, Vec<u8>);

/// Keeps what is served as it is in the files.
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    every: Duration,
    serving: Arc<Serving>,
    /// What was looked at last, good or bad.
    seen: Option<Pair>,
    reads: Counter,
    errors: Counter,
}

impl Files {
    pub(super) fn new(
        certificate: PathBuf,
        key: PathBuf,
        every: Duration,
        serving: Arc<Serving>,
        metrics: &Registry,
    ) -> Self {
        Self {
            certificate,
            key,
            every,
            serving,
            seen: None,
            reads: metrics.counter("certwatcher_read_certificate_total", "How often certificates were read", &[]),
            errors: metrics.counter(
                "certwatcher_read_certificate_errors_total",
                "How often certificates could not be read",
                &[],
            ),
        }
    }

    /// Reads the files and serves with what they hold, if that is new.
    pub(super) async fn load(&mut self) -> Result<(), CertificateError> {
        self.reads.inc();
        let pair = (read(&self.certificate).await?, read(&self.key).await?);
        if self.seen.as_ref() == Some(&pair) {
            return Ok(());
        }
        let installed = self.serving.install(&pair.0, &pair.1);
        self.seen = Some(pair);
        installed
    }

    /// Follows the files until the token is cancelled.
    pub(super) async fn follow(mut self, shutdown: CancellationToken) {
        let mut failed = false;
        while shutdown.run_until_cancelled(tokio::time::sleep(self.every)).await.is_some() {
            match self.load().await {
                Ok(()) => failed = false,
                Err(error) => {
                    self.errors.inc();
                    // Half of a change, most likely: the rest will follow.
                    if !failed {
                        tracing::warn!(%error, "keeping the previous certificate");
                    }
                    failed = true;
                }
            }
        }
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    tokio::fs::read(path).await.map_err(|source| CertificateError::Read { path: path.to_owned(), source })
}
