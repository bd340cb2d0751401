//! Making certificates, and reading what matters of them. No clock, no I/O: `now` is passed in.
//!
//! Keys are ECDSA P-256. All authorities have the same name and differ by their key, which is
//! told apart by its identifier.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::{GeneralName, ParsedExtension};

/// Why a certificate cannot be made or used.
///
/// ```no_run
/// use windlass::webhook::{Certificates, Webhooks};
/// # fn example(mut manager: windlass::Manager) -> Result<(), Box<dyn std::error::Error>> {
/// // A directory without certificates is an error when the manager starts, not now.
/// manager.add_webhooks(Webhooks::new().certificates(Certificates::directory("/none")))?;
/// # Ok(()) }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// It cannot be made.
    #[error("make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A file cannot be read.
    #[error("read {path}: {source}")]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What is there is not a certificate with its key.
    #[error("not a certificate with its key: {0}")]
    Unusable(String),
}

crate::report::debug_as_message!(CertificateError);

/// A certificate and its key, both as PEM.
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// What matters of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
    /// Which key it certifies, in hexadecimal, if it is an authority's.
    pub(super) key_id: Option<String>,
    /// Which key has signed it.
    pub(super) signer: Option<String>,
    /// Whom it names.
    pub(super) names: Vec<String>,
}

impl Facts {
    /// Reads the first certificate of a PEM text.
    pub(super) fn read(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        Self::read_der(&der)
    }

    pub(super) fn read_der(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let validity = certificate.validity();
        let mut facts = Self {
            not_before: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
            not_after: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
            key_id: None,
            signer: None,
            names: Vec::new(),
        };
        for extension in certificate.iter_extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => facts.key_id = Some(hex(id.0)),
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    facts.signer = id.key_identifier.as_ref().map(|id| hex(id.0));
                }
                ParsedExtension::SubjectAlternativeName(names) => {
                    facts.names.extend(names.general_names.iter().filter_map(name));
                }
                _ => {}
            }
        }
        Some(facts)
    }

    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        now < self.not_after
    }

    /// Whether two thirds of its time are over.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.not_after.as_second() - now.as_second() <= (self.not_after.as_second() - self.not_before.as_second()) / 3
    }

    /// Whether less than a tenth of its time is left.
    pub(super) fn is_urgent(&self, now: Timestamp) -> bool {
        self.not_after.as_second() - now.as_second() <= (self.not_after.as_second() - self.not_before.as_second()) / 10
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
            Ok(v4) => Some(IpAddr::from(v4).to_string()),
            Err(_) => <[u8; 16]>::try_from(*bytes).ok().map(|v6| IpAddr::from(v6).to_string()),
        },
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The certificates of a PEM text, each as a text of its own.
pub(super) fn split(pem: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let blocks =
        pem.split_inclusive(END).filter_map(|block| block.find("-----BEGIN CERTIFICATE-----").map(|at| &block[at..]));
    blocks.filter(|block| block.ends_with(END)).map(|block| format!("{block}\n")).collect()
}

/// A new authority.
pub(super) fn make_authority(now: Timestamp, lifetime: Duration) -> Result<Identity, CertificateError> {
    let key = KeyPair::generate()?;
    let mut params = authority_params();
    set_validity(&mut params, now, lifetime, None);
    Ok(Identity { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// A serving certificate by the authority with this key, which does not outlive the authority.
pub(super) fn make_serving(
    authority_key: &str,
    authority: &Facts,
    names: &[String],
    now: Timestamp,
    lifetime: Duration,
) -> Result<Identity, CertificateError> {
    let issuer = Issuer::new(authority_params(), KeyPair::from_pem(authority_key)?);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = common_name("windlass-webhook");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, now, lifetime, Some(authority));
    Ok(Identity { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
}

/// Which key this is, as the certificate of an authority with it would say.
pub(super) fn key_id(key: &str) -> Option<String> {
    Some(hex(&authority_params().key_identifier(&KeyPair::from_pem(key).ok()?)))
}

/// A certificate chain and its key, ready to be served, if they belong together.
pub(super) fn certify(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, CertificateError> {
    let unusable = |error: &dyn std::fmt::Display| CertificateError::Unusable(error.to_string());
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|error| unusable(&error))?;
    if chain.is_empty() {
        return Err(unusable(&"there is no certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(&error))?;
    CertifiedKey::from_der(chain, key, &super::default_provider()).map_err(|error| unusable(&error))
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("windlass-webhook-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// From a little before now, for clocks that are behind, and never beyond what the signer is valid for.
fn set_validity(params: &mut CertificateParams, now: Timestamp, lifetime: Duration, signer: Option<&Facts>) {
    let slack = (lifetime / 10).min(Duration::from_secs(3600));
    let mut begin = now.as_second() - slack.as_secs() as i64;
    let mut end = now.as_second() + lifetime.as_secs() as i64;
    if let Some(signer) = signer {
        begin = begin.max(signer.not_before.as_second());
        end = end.min(signer.not_after.as_second());
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(begin.max(0).cast_unsigned());
    params.not_after = epoch + Duration::from_secs(end.max(0).cast_unsigned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_say_what_was_asked_for() {
        let now: Timestamp = "2026-03-01T00:00:00Z".parse().expect("a time");
        let day = Duration::from_secs(86400);
        let authority = make_authority(now, day * 30).expect("made");
        let facts = Facts::read(&authority.certificate).expect("read");
        assert_eq!(facts.key_id, key_id(&authority.key));
        assert_eq!(facts.not_after, now + day * 30);
        assert!(facts.not_before < now && facts.not_before > now - day);
        let names = ["hook.default.svc".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let serving = make_serving(&authority.key, &facts, &names, now + day, day * 90).expect("made");
        let leaf = Facts::read(&serving.certificate).expect("read");
        assert_eq!(leaf.signer, facts.key_id);
        assert_eq!(leaf.names, names);
        assert_eq!(leaf.not_after, facts.not_after, "it does not outlive its authority");
        assert!(!leaf.is_due(now + day * 20) && leaf.is_due(now + day * 21) && !leaf.is_urgent(now + day * 21));
        assert!(leaf.is_urgent(now + day * 29) && leaf.is_valid(now + day * 29) && !leaf.is_valid(now + day * 30));
        certify(serving.certificate.as_bytes(), serving.key.as_bytes()).expect("they belong together");
        certify(serving.certificate.as_bytes(), authority.key.as_bytes()).expect_err("they do not");
        certify(b"garbage", b"garbage").expect_err("garbage");
        let bundle = format!("# ours\n{}{}", authority.certificate, serving.certificate.trim_end());
        assert_eq!(split(&bundle).len(), 2);
        assert_eq!(Facts::read(&split(&bundle)[1]), Some(leaf));
    }
}
