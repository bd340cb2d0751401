//! TLS for a server beside the webhooks: that of the metrics.
//!
//! The certificate comes from files, or is made when the server starts. Callers cannot check the latter,
//! but the tokens that they show are hidden from the network.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::authority::{CertificateError, Identity};
use super::certificates::Serving;
use super::files::Files;
use super::{WebhookError, acceptor};
use crate::metrics::Registry;

/// How often files are looked at, as with webhooks.
const EVERY: Duration = Duration::from_secs(5);

/// What a server needs to speak TLS.
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    files: Option<Files>,
}

impl Tls {
    /// With `tls.crt` and `tls.key` of a directory, or with a certificate made now.
    pub(crate) async fn new(directory: Option<&Path>, metrics: &Registry) -> Result<Self, WebhookError> {
        let expires = metrics.gauge(
            "windlass_metrics_certificate_not_after_seconds",
            "When the certificate of the metrics expires, in seconds since 1970.",
            &[],
        );
        let serving = Arc::new(Serving::new(expires));
        let acceptor = acceptor(&serving, None)?;
        let Some(directory) = directory else {
            let made = self_signed()?;
            serving.install(made.certificate.as_bytes(), made.key.as_bytes())?;
            return Ok(Self { acceptor, files: None });
        };
        let (certificate, key) = (directory.join("tls.crt"), directory.join("tls.key"));
        let mut files = Files::new(certificate, key, EVERY, serving, metrics);
        files.load().await?;
        Ok(Self { acceptor, files: Some(files) })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// Follows the files, if there are any, until the token is cancelled.
    pub(crate) async fn follow(self, shutdown: CancellationToken) {
        if let Some(files) = self.files {
            files.follow(shutdown).await;
        }
    }
}

/// For the names that controller-runtime's has. It does not expire before the process ends.
fn self_signed() -> Result<Identity, CertificateError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "windlass-metrics");
    Ok(Identity { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}
