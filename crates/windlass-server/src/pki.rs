//! The server's certificate authority: it signs the serving certificate and client certificates.
//!
//! Keys are ECDSA P-256. An authority can be kept in a directory (mode 0600 files), so that a
//! kubeconfig stays valid over restarts.

mod clients;
mod clock;
mod request;

pub(crate) use clients::ClientAuthorities;
pub(crate) use clock::TlsClock;
pub use request::{GeneratedRequest, SigningRequest};

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

/// Why certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// A certificate could not be generated.
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// A stored key or certificate could not be read or written.
    #[error("cannot access {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A stored file is damaged.
    #[error("{path} is damaged: {problem}; restore it, or remove it together with every file that was created with it")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A certificate signing request cannot be read or has a key that is not supported.
    #[error("cannot use the signing request: {0}")]
    Request(String),
    /// TLS does not accept a certificate or key.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

/// A certificate authority.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both as PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Authority {
    /// A new authority.
    pub fn generate() -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        let params = authority_params();
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// The authority kept in `dir` (`ca.crt`, `ca.key`), made there if it is not.
    pub fn load_or_generate(dir: &Path) -> Result<Self, PkiError> {
        Self::load_or_generate_named(dir, "ca")
    }

    /// The authority kept in `dir` under a name of its own (`name.crt`, `name.key`), made there if it is not. The
    /// certificate of one that ends within a year is made anew, with the same key.
    pub fn load_or_generate_named(dir: &Path, name: &str) -> Result<Self, PkiError> {
        let (certificate, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        if key.exists() {
            let pair = KeyPair::from_pem(&read(&key)?).map_err(|error| damaged(&key, &error))?;
            let mut stored = read(&certificate)?;
            let ends = check_pair(&stored, &pair).map_err(|problem| damaged(&certificate, &problem))?;
            let params = authority_params();
            if ends - jiff::Timestamp::now().as_second() < RENEWAL.as_secs().cast_signed() {
                stored = params.self_signed(&pair)?.pem();
                write_private(&certificate, &stored)?;
            }
            return Ok(Self { certificate: stored, issuer: Issuer::new(params, pair) });
        }
        let authority = Self::generate()?;
        // The key is written last: a half-made authority is made again.
        write_private(&certificate, &authority.certificate)?;
        write_private(&key, &authority.issuer.key().serialize_pem())?;
        Ok(authority)
    }

    /// The authority's certificate, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A client certificate: `user` is the common name, `group` the organisation, if it is not empty.
    pub fn client(&self, user: &str, group: &str) -> Result<Identity, PkiError> {
        let mut params = leaf_params(user, ExtendedKeyUsagePurpose::ClientAuth);
        if !group.is_empty() {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        self.sign(&params)
    }

    /// A serving certificate for these names and addresses.
    pub fn server(&self, names: &[String]) -> Result<Identity, PkiError> {
        let mut params = leaf_params("kube-apiserver", ExtendedKeyUsagePurpose::ServerAuth);
        params.subject_alt_names = CertificateParams::new(names.to_vec())?.subject_alt_names;
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Identity, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }

    /// The certificate that a signing request asks for, as PEM, good for `seconds` from now. `usages` are those of a
    /// CertificateSigningRequest, such as `client auth`; what the request says about them does not count.
    pub fn sign_request(&self, request: &SigningRequest, usages: &[String], seconds: i64) -> Result<String, PkiError> {
        let own = certificate(&self.certificate)?;
        let (_, own) = x509_parser::parse_x509_certificate(&own).map_err(|error| PkiError::Tls(error.to_string()))?;
        let der = request.certificate(&own, self.issuer.key(), usages, seconds, jiff::Timestamp::now())?;
        Ok(pem("CERTIFICATE", &der))
    }

    /// TLS for a server that serves as `identity` and asks clients for certificates of this authority;
    /// clients without one are let through as anonymous.
    pub fn server_config(&self, identity: &Identity) -> Result<rustls::ServerConfig, PkiError> {
        let tls = |error: &dyn std::fmt::Display| PkiError::Tls(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate(&self.certificate)?).map_err(|e| tls(&e))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        server_config(identity, verifier.allow_unauthenticated().build().map_err(|e| tls(&e))?)
    }

    /// TLS for the API server, which lets clients with any certificate in, and whose certificates count.
    pub(crate) fn api_config(
        &self,
        identity: &Identity,
    ) -> Result<(rustls::ServerConfig, Arc<ClientAuthorities>), PkiError> {
        let clients = ClientAuthorities::new(certificate(&self.certificate)?)?;
        Ok((server_config(identity, clients.for_handshakes())?, clients))
    }
}

fn server_config(identity: &Identity, clients: Arc<dyn ClientCertVerifier>) -> Result<rustls::ServerConfig, PkiError> {
    let tls = |error: &dyn std::fmt::Display| PkiError::Tls(error.to_string());
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|e| tls(&e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_details(provider, Arc::new(TlsClock::SYSTEM))
        .with_safe_default_protocol_versions()
        .map_err(|e| tls(&e))?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate(&identity.certificate)?], key)
        .map_err(|e| tls(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The key kept in the file `path`, as PEM, made there if it is not: PKCS #8, ECDSA P-256.
pub(crate) fn load_or_generate_key(path: &Path) -> Result<String, PkiError> {
    if path.exists() {
        return read(path);
    }
    let pem = generate_key()?;
    write_private(path, &pem)?;
    Ok(pem)
}

/// A new key as PEM.
pub(crate) fn generate_key() -> Result<String, PkiError> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// Text of DER, in lines of 64 characters.
fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    out + "-----END " + label + "-----\n"
}

/// Checks that a certificate is of a key. Returns when it ends, in seconds since 1970.
fn check_pair(pem: &str, key: &KeyPair) -> Result<i64, String> {
    let der = certificate(pem).map_err(|error| error.to_string())?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|error| error.to_string())?;
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err("it is the certificate of another key".to_owned());
    }
    Ok(parsed.validity().not_after.timestamp())
}

fn certificate(pem: &str) -> Result<CertificateDer<'static>, PkiError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| PkiError::Tls(error.to_string()))
}

fn authority_params() -> CertificateParams {
    let mut params = base_params("windlass-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
    params
}

fn leaf_params(common_name: &str, usage: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = base_params(common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    params
}

/// How long certificates are valid, and how long before its end that of an authority is made anew.
const VALIDITY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const RENEWAL: Duration = Duration::from_secs(365 * 24 * 3600);
/// A clock that is a little off does no harm.
const SKEW: Duration = Duration::from_secs(300);

/// Valid from now on.
fn base_params(common_name: &str) -> CertificateParams {
    let now = TlsClock::SYSTEM.since_1970();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + now.saturating_sub(SKEW);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + VALIDITY;
    params
}

pub(crate) fn damaged(path: &Path, problem: &dyn std::fmt::Display) -> PkiError {
    PkiError::Damaged { path: path.to_owned(), problem: problem.to_string() }
}

fn read(path: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(path).map_err(|source| PkiError::File { path: path.to_owned(), source })
}

/// Writes a file only its owner can read, in one step: a reader sees all of it or none.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
    let failed = |source| PkiError::File { path: path.to_owned(), source };
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_does_not_fit_its_key_is_refused() {
        let (dir, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        Authority::load_or_generate(dir.path()).expect("made");
        Authority::load_or_generate(other.path()).expect("made");
        std::fs::copy(other.path().join("ca.crt"), dir.path().join("ca.crt")).expect("copied");
        let Err(PkiError::Damaged { path, problem }) = Authority::load_or_generate(dir.path()) else {
            panic!("served")
        };
        assert_eq!((path, &*problem), (dir.path().join("ca.crt"), "it is the certificate of another key"));
    }

    #[test]
    fn certificates_are_valid_from_now_and_renewed_before_they_end() {
        let dates = |pem: &str| {
            let der = certificate(pem).expect("PEM");
            let (_, parsed) = x509_parser::parse_x509_certificate(&der).expect("a certificate");
            (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp())
        };
        let dir = tempfile::tempdir().expect("a directory");
        let now = jiff::Timestamp::now().as_second();
        let authority = Authority::load_or_generate(dir.path()).expect("made");
        let (from, _) = dates(authority.certificate());
        assert!((now - 330..=now).contains(&from), "{from}");
        // One that ends soon, of the same key.
        let mut params = authority_params();
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(now.unsigned_abs() + 1000);
        let old = params.self_signed(authority.issuer.key()).expect("signed").pem();
        write_private(&dir.path().join("ca.crt"), &old).expect("written");
        let renewed = Authority::load_or_generate(dir.path()).expect("read");
        assert!(dates(renewed.certificate()).1 > now + RENEWAL.as_secs().cast_signed());
        assert_eq!(Authority::load_or_generate(dir.path()).expect("read").certificate(), renewed.certificate());
    }

    #[test]
    fn an_authority_survives_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = Authority::load_or_generate(dir.path()).expect("made");
        let client = first.client("admin", "system:masters").expect("signed");
        let again = Authority::load_or_generate(dir.path()).expect("read");
        assert_eq!(first.certificate(), again.certificate());
        assert!(client.certificate.contains("BEGIN CERTIFICATE"));
        let server = again.server(&["127.0.0.1".into(), "localhost".into()]).expect("signed");
        again.server_config(&server).expect("TLS accepts it");
        assert!(!format!("{server:?}").contains("PRIVATE KEY"));
    }
}
