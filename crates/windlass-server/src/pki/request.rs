//! Certificate signing requests (PKCS #10): what they ask for, and the certificates that are made of them.
//!
//! The subject, the public key and the alternative names of a request are copied byte for byte, so that nothing of them
//! is lost or read differently; the rest of the certificate is written here. Mirrors upstream's
//! `pkg/controller/certificates/authority`.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

use super::PkiError;

/// Certificates are valid from a little before they are made, so that clocks that are a little off do no harm.
const BACKDATE: i64 = 300;
/// A certificate that lives less long than this is valid for as long as was asked for after it was made.
const SHORT: i64 = 8 * 3600;

const ECDSA_WITH_SHA256: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const LABEL: &str = "CERTIFICATE REQUEST";
/// Object identifiers of parts of names, `2.5.4.N`.
const COMMON_NAME: u8 = 3;
const ORGANIZATION: u8 = 10;
/// Object identifiers of extensions, `2.5.29.N`.
const KEY_USAGE: u8 = 15;
const ALTERNATIVE_NAME: u8 = 17;
const BASIC_CONSTRAINTS: u8 = 19;
const AUTHORITY_KEY: u8 = 35;
const EXTENDED_KEY_USAGE: u8 = 37;

/// What a signing request asks for.
#[derive(Clone, Debug, Default)]
pub struct SigningRequest {
    /// The common name, which becomes the user's name.
    pub common_name: Option<String>,
    /// The organizations, which become the user's groups.
    pub organizations: Vec<String>,
    /// DNS names.
    pub dns_names: Vec<String>,
    /// E-mail addresses.
    pub emails: Vec<String>,
    /// Addresses, as bytes.
    pub addresses: Vec<Vec<u8>>,
    /// URIs.
    pub uris: Vec<String>,
    subject: Vec<u8>,
    public_key: Vec<u8>,
    alternative_names: Option<Vec<u8>>,
}

/// A request that was made here, and its private key, both as PEM.
pub struct GeneratedRequest {
    /// The request.
    pub request: String,
    /// The private key.
    pub key: String,
}

impl std::fmt::Debug for GeneratedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GeneratedRequest").field("request", &self.request).finish_non_exhaustive()
    }
}

impl SigningRequest {
    /// Asks for the certificate of a user who is in some groups, with a new key.
    pub fn generate(user: &str, groups: &[String]) -> Result<GeneratedRequest, PkiError> {
        let key = KeyPair::generate()?;
        let attribute = |number: u8, text: &str| {
            tlv(0x31, &tlv(0x30, &[tlv(0x06, &[0x55, 0x04, number]), tlv(0x0c, text.as_bytes())].concat()))
        };
        let mut subject: Vec<u8> = groups.iter().flat_map(|group| attribute(ORGANIZATION, group)).collect();
        subject.extend(attribute(COMMON_NAME, user));
        let content = [tlv(0x02, &[0]), tlv(0x30, &subject), key.subject_public_key_info(), tlv(0xa0, &[])].concat();
        let content = tlv(0x30, &content);
        let signature = key.sign(&content)?;
        let der = tlv(0x30, &[content, ECDSA_WITH_SHA256.to_vec(), bits(&signature, 0)].concat());
        Ok(GeneratedRequest { request: super::pem(LABEL, &der), key: key.serialize_pem() })
    }

    /// Reads a request, as PEM.
    pub fn parse(pem: &[u8]) -> Result<Self, PkiError> {
        let failed = |error: &dyn std::fmt::Display| PkiError::Request(error.to_string());
        let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|error| failed(&error))?;
        if block.label != LABEL {
            return Err(failed(&"PEM block type must be CERTIFICATE REQUEST"));
        }
        let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|error| failed(&error))?;
        let info = &request.certification_request_info;
        let mut read = Self {
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            ..Self::default()
        };
        for name in info.subject.iter_common_name() {
            // Of several, Go takes the last.
            read.common_name = Some(name.as_str().map_err(|error| failed(&error))?.to_owned());
        }
        for name in info.subject.iter_organization() {
            read.organizations.push(name.as_str().map_err(|error| failed(&error))?.to_owned());
        }
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
            let mut raw = Vec::new();
            for name in &names.general_names {
                raw.extend(read.alternative_name(name)?);
            }
            read.alternative_names = Some(tlv(0x30, &raw));
        }
        Ok(read)
    }

    /// Takes note of an alternative name. Returns its encoding.
    fn alternative_name(&mut self, name: &GeneralName<'_>) -> Result<Vec<u8>, PkiError> {
        Ok(match name {
            GeneralName::RFC822Name(text) => {
                self.emails.push((*text).to_owned());
                tlv(0x81, text.as_bytes())
            }
            GeneralName::DNSName(text) => {
                self.dns_names.push((*text).to_owned());
                tlv(0x82, text.as_bytes())
            }
            GeneralName::URI(text) => {
                self.uris.push((*text).to_owned());
                tlv(0x86, text.as_bytes())
            }
            GeneralName::IPAddress(bytes) => {
                self.addresses.push(bytes.to_vec());
                tlv(0x87, bytes)
            }
            _ => return Err(PkiError::Request("it has an alternative name of an unknown kind".to_owned())),
        })
    }

    /// The certificate, in DER.
    pub(super) fn certificate(
        &self,
        authority: &x509_parser::certificate::X509Certificate<'_>,
        key: &KeyPair,
        usages: &[String],
        seconds: i64,
        now: Timestamp,
    ) -> Result<Vec<u8>, PkiError> {
        if key.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 {
            return Err(PkiError::Request("the authority's key is not ECDSA P-256".to_owned()));
        }
        let mut serial: [u8; 16] = fastrand::u128(..).to_be_bytes();
        // Positive, and of the same length always.
        serial[0] = (serial[0] & 0x7f) | 0x40;
        let from = now.as_second() - BACKDATE;
        let to = if seconds < SHORT { now.as_second() + seconds } else { from + seconds };
        let last = authority.validity().not_after.timestamp();
        let content = [
            tlv(0xa0, &tlv(0x02, &[2])),
            tlv(0x02, &serial),
            ECDSA_WITH_SHA256.to_vec(),
            authority.subject().as_raw().to_vec(),
            tlv(0x30, &[time(from)?, time(to.min(last))?].concat()),
            self.subject.clone(),
            self.public_key.clone(),
            tlv(0xa3, &tlv(0x30, &self.extensions(authority, usages)?)),
        ];
        let content = tlv(0x30, &content.concat());
        let signature = key.sign(&content)?;
        Ok(tlv(0x30, &[content, ECDSA_WITH_SHA256.to_vec(), bits(&signature, 0)].concat()))
    }

    fn extensions(
        &self,
        authority: &x509_parser::certificate::X509Certificate<'_>,
        usages: &[String],
    ) -> Result<Vec<u8>, PkiError> {
        let mut out = Vec::new();
        let (key_usage, purposes) = usages_of(usages)?;
        if key_usage != 0 {
            let bytes = key_usage.to_be_bytes();
            let used = if bytes[1] == 0 { &bytes[..1] } else { &bytes[..] };
            let unused = u8::try_from(key_usage.trailing_zeros()).unwrap_or_default() % 8;
            out.extend(extension(KEY_USAGE, true, &bits(used, unused)));
        }
        if !purposes.is_empty() {
            let all: Vec<u8> = purposes.iter().flat_map(|purpose| tlv(0x06, purpose)).collect();
            out.extend(extension(EXTENDED_KEY_USAGE, false, &tlv(0x30, &all)));
        }
        out.extend(extension(BASIC_CONSTRAINTS, true, &tlv(0x30, &[])));
        let key_id = authority.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        });
        if let Some(id) = key_id {
            out.extend(extension(AUTHORITY_KEY, false, &tlv(0x30, &tlv(0x80, id))));
        }
        if let Some(names) = &self.alternative_names {
            out.extend(extension(ALTERNATIVE_NAME, false, names));
        }
        Ok(out)
    }
}

/// The bits of the key usage and the object identifiers of the extended one, by the names of
/// CertificateSigningRequests.
fn usages_of(usages: &[String]) -> Result<(u16, Vec<Vec<u8>>), PkiError> {
    const PURPOSES: [u8; 7] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03];
    let purpose = |number: u8| [PURPOSES.as_slice(), &[number]].concat();
    let mut bits = 0;
    let mut all = Vec::new();
    for usage in usages {
        match usage.as_str() {
            "signing" | "digital signature" => bits |= 1 << 15,
            "content commitment" => bits |= 1 << 14,
            "key encipherment" => bits |= 1 << 13,
            "data encipherment" => bits |= 1 << 12,
            "key agreement" => bits |= 1 << 11,
            "cert sign" => bits |= 1 << 10,
            "crl sign" => bits |= 1 << 9,
            "encipher only" => bits |= 1 << 8,
            "decipher only" => bits |= 1 << 7,
            "any" => all.push(vec![0x55, 0x1d, 0x25, 0x00]),
            "server auth" => all.push(purpose(1)),
            "client auth" => all.push(purpose(2)),
            "code signing" => all.push(purpose(3)),
            "email protection" | "s/mime" => all.push(purpose(4)),
            "ipsec end system" => all.push(purpose(5)),
            "ipsec tunnel" => all.push(purpose(6)),
            "ipsec user" => all.push(purpose(7)),
            "timestamping" => all.push(purpose(8)),
            "ocsp signing" => all.push(purpose(9)),
            "microsoft sgc" => all.push(vec![0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x0a, 0x03, 0x03]),
            "netscape sgc" => all.push(vec![0x60, 0x86, 0x48, 0x01, 0x86, 0xf8, 0x42, 0x04, 0x01]),
            other => return Err(PkiError::Request(format!("unrecognized usage values: {other:?}"))),
        }
    }
    Ok((bits, all))
}

fn extension(number: u8, critical: bool, value: &[u8]) -> Vec<u8> {
    let mut content = tlv(0x06, &[0x55, 0x1d, number]);
    if critical {
        content.extend(tlv(0x01, &[0xff]));
    }
    content.extend(tlv(0x04, value));
    tlv(0x30, &content)
}

/// A bit string whose last byte has `unused` bits.
fn bits(bytes: &[u8], unused: u8) -> Vec<u8> {
    tlv(0x03, &[&[unused], bytes].concat())
}

/// A time, in the form that its year requires.
fn time(seconds: i64) -> Result<Vec<u8>, PkiError> {
    let time = Timestamp::from_second(seconds).map_err(|error| PkiError::Request(error.to_string()))?;
    let time = time.to_zoned(TimeZone::UTC);
    Ok(if time.year() < 2050 {
        tlv(0x17, time.strftime("%y%m%d%H%M%SZ").to_string().as_bytes())
    } else {
        tlv(0x18, time.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes())
    })
}

/// Tag, length and content in DER.
fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1)..];
    let mut out = vec![tag];
    if content.len() < 0x80 {
        out.extend(significant);
    } else {
        out.push(0x80 | u8::try_from(significant.len()).unwrap_or_default());
        out.extend(significant);
    }
    out.extend(content);
    out
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, SanType};

    use super::super::Authority;
    use super::*;
    use crate::authn::User;

    fn request(organization: &str, names: &[&str]) -> SigningRequest {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("valid");
        params.subject_alt_names.push(SanType::URI("spiffe://a/b".try_into().expect("valid")));
        params.distinguished_name.push(DnType::CommonName, "system:node:n");
        params.distinguished_name.push(DnType::OrganizationName, organization);
        let pem = params.serialize_request(&KeyPair::generate().expect("valid")).expect("valid").pem().expect("valid");
        SigningRequest::parse(pem.as_bytes()).expect("valid")
    }

    #[test]
    fn a_certificate_says_what_was_asked_for() {
        let authority = Authority::generate().expect("valid");
        let request = request("system:nodes", &["n.example.com", "10.0.0.1"]);
        assert_eq!(request.common_name.as_deref(), Some("system:node:n"));
        assert_eq!(
            (&request.organizations[..], &request.dns_names[..]),
            (&["system:nodes".into()][..], &["n.example.com".into()][..])
        );
        assert_eq!((&request.addresses[..], request.uris.len()), (&[vec![10, 0, 0, 1]][..], 1));

        let usages = ["digital signature", "key encipherment", "client auth"].map(str::to_owned);
        let pem = authority.sign_request(&request, &usages, 3600).expect("valid");
        let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("valid");
        let (_, signed) = x509_parser::parse_x509_certificate(&block.contents).expect("valid");
        let life = signed.validity().not_after.timestamp() - signed.validity().not_before.timestamp();
        assert_eq!(life, 3600 + BACKDATE);
        let usage = signed.key_usage().expect("valid").expect("valid").value;
        assert!(usage.digital_signature() && usage.key_encipherment() && !usage.key_cert_sign());
        let extended = signed.extended_key_usage().expect("valid").expect("valid").value;
        assert!(extended.client_auth && !extended.server_auth);
        assert!(!signed.is_ca());
        assert_eq!(signed.subject_alternative_name().expect("valid").expect("valid").value.general_names.len(), 3);
        let user = User::from_certificate(&block.contents).expect("valid");
        let expected = User { extra: user.extra.clone(), ..User::new("system:node:n", ["system:nodes".to_owned()]) };
        assert_eq!(user, expected);
        let (_, own) = x509_parser::pem::parse_x509_pem(authority.certificate().as_bytes()).expect("valid");
        let (_, own) = x509_parser::parse_x509_certificate(&own.contents).expect("valid");
        assert_eq!(signed.issuer().as_raw(), own.subject().as_raw());
        let key = ring::signature::UnparsedPublicKey::new(
            &ring::signature::ECDSA_P256_SHA256_ASN1,
            own.public_key().subject_public_key.data.as_ref(),
        );
        key.verify(signed.tbs_certificate.as_ref(), signed.signature_value.data.as_ref()).expect("valid");
    }

    #[test]
    fn a_generated_request_names_user_and_groups() {
        let groups = ["system:nodes".to_owned(), "dev".to_owned()];
        let made = SigningRequest::generate("system:node:n", &groups).expect("made");
        let read = SigningRequest::parse(made.request.as_bytes()).expect("valid");
        assert_eq!((read.common_name.as_deref(), &read.organizations[..]), (Some("system:node:n"), &groups[..]));
        assert!(!format!("{made:?}").contains("PRIVATE KEY"));
        let usages = ["client auth".to_owned()];
        let signed = Authority::generate().expect("made").sign_request(&read, &usages, 600).expect("signed");
        let (_, block) = x509_parser::pem::parse_x509_pem(signed.as_bytes()).expect("PEM");
        let user = User::from_certificate(&block.contents).expect("a user");
        let expected = User { extra: user.extra.clone(), ..User::new("system:node:n", groups) };
        assert_eq!(user, expected);
        let (_, block) = x509_parser::pem::parse_x509_pem(made.request.as_bytes()).expect("PEM");
        let (_, request) = X509CertificationRequest::from_der(&block.contents).expect("a request");
        let key = request.certification_request_info.subject_pki.subject_public_key.data.to_vec();
        let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_ASN1, key);
        key.verify(request.certification_request_info.raw, request.signature_value.data.as_ref()).expect("signed");
    }

    #[test]
    fn lengths_and_times_are_encoded_as_der_wants() {
        assert_eq!(tlv(0x30, &[]), [0x30, 0]);
        assert_eq!(tlv(4, &[7; 127])[..3], [4, 127, 7]);
        assert_eq!(tlv(4, &[7; 128])[..4], [4, 0x81, 128, 7]);
        assert_eq!(tlv(4, &[7; 300])[..5], [4, 0x82, 1, 44, 7]);
        assert_eq!(time(0).expect("valid"), tlv(0x17, b"700101000000Z"));
        assert_eq!(time(2_524_608_000).expect("valid"), tlv(0x18, b"20500101000000Z"));
        assert!(usages_of(&["nothing".to_owned()]).is_err());
    }
}
