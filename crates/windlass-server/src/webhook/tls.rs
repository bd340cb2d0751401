//! Whom to trust: the CA bundle of a webhook, or the system's certificate authorities if it has none.
//!
//! What is accepted follows Go: a certificate that is in the bundle itself is trusted even if it is
//! marked as a certificate authority, which self-signed development certificates often are.

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_rustls::TlsConnector;

use super::{dial, x509};
use crate::pki::{Identity, TlsClock};

/// The authorities the system trusts, read once.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

/// TLS that trusts `bundle`, which is base64 of PEM; the system's authorities if that is empty.
pub(crate) fn connector(bundle: &str) -> Result<TlsConnector, String> {
    client(bundle, false, None)
}

/// [`connector`] that trusts anybody if it is `insecure`, and shows a certificate if it has one.
pub(crate) fn client(bundle: &str, insecure: bool, identity: Option<&Identity>) -> Result<TlsConnector, String> {
    client_config(bundle, insecure, identity).map(|config| TlsConnector::from(Arc::new(config)))
}

/// The configuration of [`client`].
pub(crate) fn client_config(bundle: &str, insecure: bool, identity: Option<&Identity>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pem = BASE64_STANDARD
        .decode(bundle)
        .map_err(|_| "unable to load root certificates: unable to parse bytes as PEM block".to_owned())?;
    let (roots, trusted) = if pem.trim_ascii().is_empty() { (Arc::clone(&SYSTEM), Vec::new()) } else { parse(&pem)? };
    let verifier = if roots.is_empty() {
        None
    } else {
        let built = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        Some(built.map_err(|_| "unable to load root certificates: unable to parse bytes as PEM block".to_owned())?)
    };
    let verifier = Verifier { authorities: verifier, trusted, insecure, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_details(provider, Arc::new(TlsClock::SYSTEM))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
            let (certificate, key) = certificate.and_then(|certificate| Ok((certificate, key?))).map_err(text)?;
            builder.with_client_auth_cert(vec![certificate], key).map_err(text)?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn parse(pem: &[u8]) -> Result<(Arc<RootCertStore>, Vec<CertificateDer<'static>>), String> {
    let trusted: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
    if trusted.is_empty() {
        return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    Ok((Arc::new(roots), trusted))
}

#[derive(Debug)]
struct Verifier {
    /// `None` if there is no authority to trust.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
    /// Whether any certificate will do.
    insecure: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.insecure {
            return Ok(ServerCertVerified::assertion());
        }
        // Go looks at the time and the names before the issuer.
        let refused = |why: String| Error::General(why);
        if let Some(problem) = x509::problem(end_entity, server_name, now) {
            return Err(refused(problem));
        }
        if self.trusted.iter().any(|trusted| trusted.as_ref() == end_entity.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        if let Some(problem) = x509::expired_authority(end_entity, &self.trusted, now) {
            return Err(refused(problem));
        }
        let unknown = || refused(x509::unknown_authority(end_entity, &self.trusted));
        let authorities = self.authorities.as_ref().ok_or_else(unknown)?;
        let verified = authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        verified.map_err(|error| match error {
            Error::InvalidCertificate(
                CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
            ) => refused("x509: certificate specifies an incompatible key usage".to_owned()),
            _ => unknown(),
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Why a handshake failed, in Go's words.
pub(crate) fn explain(error: &std::io::Error, ends: &dial::Ends) -> String {
    let Some(tls) = error.get_ref().and_then(|source| source.downcast_ref::<Error>()) else {
        return dial::broken(ends, error);
    };
    match tls {
        Error::General(why) if why.starts_with("x509: ") => format!("tls: failed to verify certificate: {why}"),
        Error::InvalidCertificate(_) => "tls: failed to verify certificate: x509: malformed certificate".to_owned(),
        Error::InvalidMessage(_) => "tls: first record does not look like a TLS handshake".to_owned(),
        Error::AlertReceived(alert) => format!("remote error: tls: {}", alert_text(*alert)),
        Error::PeerIncompatible(_) => "tls: server selected unsupported protocol version".to_owned(),
        Error::NoApplicationProtocol => "tls: server selected unadvertised ALPN protocol".to_owned(),
        Error::PeerSentOversizedRecord => "tls: oversized record received".to_owned(),
        _ => "tls: handshake failure".to_owned(),
    }
}

/// What Go calls an alert.
fn alert_text(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    let text = match alert {
        Alert::CloseNotify => "close notify",
        Alert::UnexpectedMessage => "unexpected message",
        Alert::BadRecordMac => "bad record MAC",
        Alert::RecordOverflow => "record overflow",
        Alert::HandshakeFailure => "handshake failure",
        Alert::BadCertificate => "bad certificate",
        Alert::UnsupportedCertificate => "unsupported certificate",
        Alert::CertificateRevoked => "revoked certificate",
        Alert::CertificateExpired => "expired certificate",
        Alert::CertificateUnknown => "unknown certificate",
        Alert::IllegalParameter => "illegal parameter",
        Alert::UnknownCA => "unknown certificate authority",
        Alert::AccessDenied => "access denied",
        Alert::DecodeError => "error decoding message",
        Alert::DecryptError => "error decrypting message",
        Alert::ProtocolVersion => "protocol version not supported",
        Alert::InsufficientSecurity => "insufficient security level",
        Alert::InternalError => "internal error",
        Alert::InappropriateFallback => "inappropriate fallback",
        Alert::UserCanceled => "user canceled",
        Alert::NoRenegotiation => "no renegotiation",
        Alert::MissingExtension => "missing extension",
        Alert::UnsupportedExtension => "unsupported extension",
        Alert::UnrecognisedName => "unrecognized name",
        Alert::UnknownPSKIdentity => "unknown PSK identity",
        Alert::CertificateRequired => "certificate required",
        Alert::NoApplicationProtocol => "no application protocol",
        other => return format!("alert({})", u8::from(other)),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_read_a_clock_that_does_not_panic() {
        let config = client_config("", false, None).expect("TLS accepts it");
        assert!(format!("{:?}", config.time_provider).starts_with("TlsClock"), "{:?}", config.time_provider);
    }
}
