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
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

/// The authorities the system trusts, read once.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

/// TLS that trusts `bundle`, which is base64 of PEM; the system's authorities if that is empty.
pub(super) fn connector(bundle: &str) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pem = BASE64_STANDARD.decode(bundle).map_err(|error| format!("the CA bundle is not base64: {error}"))?;
    let (roots, trusted) = if pem.trim_ascii().is_empty() { (Arc::clone(&SYSTEM), Vec::new()) } else { parse(&pem)? };
    let verifier = if roots.is_empty() {
        None
    } else {
        let built = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        Some(built.map_err(|error| format!("unable to load root certificates: {error}"))?)
    };
    let verifier = Verifier { authorities: verifier, trusted, provider: Arc::clone(&provider) };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
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
    /// `None` if there is nobody to trust.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
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
        if self.trusted.iter().any(|trusted| trusted.as_ref() == end_entity.as_ref()) {
            check_validity(end_entity, now)?;
            rustls::client::verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let Some(authorities) = &self.authorities else { return Err(CertificateError::UnknownIssuer.into()) };
        authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
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

fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) =
        x509_parser::parse_x509_certificate(certificate).map_err(|_| Error::from(CertificateError::BadEncoding))?;
    let now = now.as_secs() as i64;
    if now < parsed.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > parsed.validity().not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// Why a handshake failed, in Go's words where it has some.
pub(super) fn explain(error: &std::io::Error) -> String {
    let Some(tls) = error.get_ref().and_then(|source| source.downcast_ref::<Error>()) else {
        return super::system(error);
    };
    let why = match tls {
        Error::InvalidCertificate(certificate) => match certificate {
            CertificateError::UnknownIssuer => "x509: certificate signed by unknown authority".into(),
            CertificateError::BadSignature => {
                "x509: certificate signed by unknown authority (possibly because of \"x509: ECDSA verification \
                 failure\" while trying to verify candidate authority certificate)"
                    .into()
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => "x509: certificate has expired or is not yet valid".into(),
            CertificateError::NotValidForNameContext { expected, presented } => mismatch(expected, presented),
            other => format!("x509: {other}"),
        },
        Error::InvalidMessage(_) => return "tls: first record does not look like a TLS handshake".into(),
        Error::AlertReceived(alert) => return format!("remote error: tls: {alert:?}"),
        other => return format!("tls: {other}"),
    };
    format!("tls: failed to verify certificate: {why}")
}

fn mismatch(expected: &ServerName<'_>, presented: &[String]) -> String {
    let expected = expected.to_str();
    if presented.is_empty() {
        return "x509: certificate relies on legacy Common Name field, use SANs instead".to_owned();
    }
    // The names come as `DnsName("a")` and `IpAddress(1.2.3.4)`.
    let names: Vec<&str> = presented
        .iter()
        .map(|name| {
            name.split_once('(').map_or(name.as_str(), |(_, rest)| rest.trim_end_matches(')').trim_matches('"'))
        })
        .collect();
    format!("x509: certificate is valid for {}, not {expected}", names.join(", "))
}
