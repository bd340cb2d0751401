//! Certificates of clients.
//!
//! As with Go's `RequestClientCert`, which upstream's API server uses, any certificate passes the handshake as long as the
//! client has its key. Whether it counts is a question of authentication: a request whose certificate does not may still
//! have a token that does. So nothing may conclude from the certificate of a connection before [`ClientAuthorities::verify`]
//! has said yes; that includes connections which resume a session.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::PkiError;

/// Chains that are larger end the handshake: sessions keep them. Those that are in use have a tenth of this.
const CHAIN_LIMIT: usize = 32 << 10;

/// The authorities whose client certificates count.
#[derive(Debug)]
pub(crate) struct ClientAuthorities(Arc<dyn ClientCertVerifier>);

impl ClientAuthorities {
    pub(super) fn new(authority: CertificateDer<'static>) -> Result<Arc<Self>, PkiError> {
        let tls = |error: &dyn std::fmt::Display| PkiError::Tls(error.to_string());
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|error| tls(&error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).allow_unauthenticated();
        Ok(Arc::new(Self(verifier.build().map_err(|error| tls(&error))?)))
    }

    /// Checks that a chain leads to one of the authorities, and is for clients and valid at this time. The handshake has
    /// shown that the client has the key of the first certificate.
    pub(crate) fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let (certificate, intermediates) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        self.0.verify_client_cert(certificate, intermediates, now).map(drop)
    }

    /// What a listener asks of its clients. Clients without a certificate are let through, too.
    pub(super) fn for_handshakes(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(AnyCertificate(Arc::clone(&self.0)))
    }
}

/// Accepts every certificate whose key the client has.
#[derive(Debug)]
struct AnyCertificate(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let size = end_entity.len() + intermediates.iter().map(|certificate| certificate.len()).sum::<usize>();
        if size > CHAIN_LIMIT {
            return Err(Error::InvalidCertificate(CertificateError::BadEncoding));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
