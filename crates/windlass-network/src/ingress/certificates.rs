//! Certificates for Ingresses, from Secrets of type `kubernetes.io/tls`, chosen by the host that a client names.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::routes::Routes;

/// Why a Secret is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// Something is missing.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// Something cannot be read.
    #[error("its {key} cannot be read: {source}")]
    Pem {
        /// Which part.
        key: &'static str,
        /// Why not.
        source: rustls::pki_types::pem::Error,
    },
    /// The key and the certificate cannot be used.
    #[error("it cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The certificate in a Secret.
pub fn certificate(secret: &Secret) -> Result<CertifiedKey, CertificateError> {
    let part = |key: &'static str| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map(|bytes| bytes.0.as_slice()).ok_or(CertificateError::Missing(key))
    };
    let chain = CertificateDer::pem_slice_iter(part("tls.crt")?).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|source| CertificateError::Pem { key: "tls.crt", source })?;
    if chain.is_empty() {
        return Err(CertificateError::Missing("certificate in tls.crt"));
    }
    let key = PrivateKeyDer::from_pem_slice(part("tls.key")?);
    let key = key.map_err(|source| CertificateError::Pem { key: "tls.key", source })?;
    Ok(CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())?)
}

/// The certificates of all hosts.
#[derive(Debug, Default)]
pub struct Certificates {
    routes: RwLock<Arc<Routes>>,
    /// By the namespace and the name of their Secret.
    secrets: RwLock<BTreeMap<(String, String), Arc<CertifiedKey>>>,
    /// For hosts that have none.
    default: Option<Arc<CertifiedKey>>,
}

impl Certificates {
    /// No certificates, but one for hosts that have none.
    pub fn new(default: Option<Arc<CertifiedKey>>) -> Self {
        Self { default, ..Self::default() }
    }

    /// Chooses by another table from now on.
    pub fn set_routes(&self, routes: Arc<Routes>) {
        *self.routes.write() = routes;
    }

    /// Replaces the certificate of a Secret, or removes it.
    pub fn set(&self, secret: (String, String), certificate: Option<CertifiedKey>) {
        let mut secrets = self.secrets.write();
        match certificate {
            Some(certificate) => secrets.insert(secret, Arc::new(certificate)),
            None => secrets.remove(&secret),
        };
    }

    /// The certificate of a host.
    fn find(&self, host: &str) -> Option<Arc<CertifiedKey>> {
        let routes = Arc::clone(&self.routes.read());
        let own = routes.certificate(host).and_then(|secret| self.secrets.read().get(secret).cloned());
        own.or_else(|| self.default.clone())
    }

    /// What a listener for encrypted connections needs.
    pub fn server_config(self: &Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.find(hello.server_name().unwrap_or_default())
    }
}
