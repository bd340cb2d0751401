//! What is wrong with a webhook's certificate, in the words of Go's `crypto/x509`: these are the texts
//! that people look up when a webhook does not work.

use std::net::IpAddr;

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use x509_parser::prelude::{GeneralName, X509Certificate, X509Version};
use x509_parser::public_key::PublicKey;

use crate::codec::time::{Moment, Precision};
use crate::field::quote;

/// What a text says that cannot be read as a certificate.
const MALFORMED: &str = "x509: malformed certificate";
/// How many names are listed.
const MOST_NAMES: usize = 100;

/// What is wrong with a server's certificate regardless of its issuer: its time, then its names.
pub(super) fn problem(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Option<String> {
    let Some(parsed) = parse(certificate) else { return Some(MALFORMED.to_owned()) };
    expired(&parsed, now).or_else(|| {
        let names = ParsedCertificate::try_from(certificate).ok()?;
        rustls::client::verify_server_name(&names, name).err()?;
        Some(mismatch(&parsed, &name.to_str()))
    })
}

/// Whether the only authorities that could have signed a certificate are out of date.
pub(super) fn expired_authority(
    certificate: &CertificateDer<'_>,
    trusted: &[CertificateDer<'_>],
    now: UnixTime,
) -> Option<String> {
    let parsed = parse(certificate)?;
    let mut problem = None;
    for authority in issuers(&parsed, trusted) {
        problem = Some(expired(&authority, now)?);
    }
    problem
}

/// What is said if no authority has signed a certificate: with a hint if one of its name has not.
pub(super) fn unknown_authority(certificate: &CertificateDer<'_>, trusted: &[CertificateDer<'_>]) -> String {
    let text = "x509: certificate signed by unknown authority";
    let Some(parsed) = parse(certificate) else { return text.to_owned() };
    let candidate = issuers(&parsed, trusted).next();
    let Some(candidate) = candidate else { return text.to_owned() };
    let common_name = candidate.subject().iter_common_name().find_map(|name| name.as_str().ok());
    let organization = candidate.subject().iter_organization().find_map(|name| name.as_str().ok());
    let name =
        common_name.or(organization).map_or_else(|| format!("serial:{}", candidate.tbs_certificate.serial), Into::into);
    format!(
        "{text} (possibly because of {} while trying to verify candidate authority certificate {})",
        quote(hint(&candidate)),
        quote(&name)
    )
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    x509_parser::parse_x509_certificate(certificate).ok().map(|(_, parsed)| parsed)
}

/// Trusted certificates that have the name of a certificate's issuer.
fn issuers<'a>(
    certificate: &X509Certificate<'_>,
    trusted: &'a [CertificateDer<'_>],
) -> impl Iterator<Item = X509Certificate<'a>> {
    let issuer = certificate.issuer().as_raw().to_vec();
    trusted.iter().filter_map(parse).filter(move |authority| authority.subject().as_raw() == issuer)
}

fn expired(certificate: &X509Certificate<'_>, now: UnixTime) -> Option<String> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let (relation, bound) = match () {
        () if now < not_before => ("before", not_before),
        () if now > not_after => ("after", not_after),
        () => return None,
    };
    let shown = |seconds: i64| Moment { seconds, nanos: 0 }.format(Precision::Seconds);
    let (now, bound) = (shown(now), shown(bound));
    Some(format!("x509: certificate has expired or is not yet valid: current time {now} is {relation} {bound}"))
}

fn mismatch(certificate: &X509Certificate<'_>, expected: &str) -> String {
    let names = certificate.subject_alternative_name().ok().flatten();
    let common_name = || certificate.subject().iter_common_name().find_map(|name| name.as_str().ok());
    if names.is_none() && common_name().is_some_and(|name| name.eq_ignore_ascii_case(expected)) {
        return "x509: certificate relies on legacy Common Name field, use SANs instead".to_owned();
    }
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let valid: Vec<String> = if expected.parse::<IpAddr>().is_ok() {
        let addresses: Vec<String> = names.iter().filter_map(address).collect();
        if addresses.is_empty() {
            return format!("x509: cannot validate certificate for {expected} because it doesn't contain any IP SANs");
        }
        addresses
    } else {
        let dns = |name: &GeneralName<'_>| {
            if let GeneralName::DNSName(name) = name { Some((*name).to_owned()) } else { None }
        };
        names.iter().filter_map(dns).collect()
    };
    match valid.len() {
        0 => format!("x509: certificate is not valid for any names, but wanted to match {expected}"),
        many if many > MOST_NAMES => {
            format!("x509: certificate is valid for {many} names, but none matched {expected}")
        }
        _ => format!("x509: certificate is valid for {}, not {expected}", valid.join(", ")),
    }
}

fn address(name: &GeneralName<'_>) -> Option<String> {
    let GeneralName::IPAddress(bytes) = name else { return None };
    let v4 = <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from)).map(|address| address.to_string())
}

/// Why an authority that has the right name has not signed.
fn hint(authority: &X509Certificate<'_>) -> &'static str {
    let constraints = authority.basic_constraints().ok().flatten();
    let may_sign = match constraints {
        Some(constraints) => constraints.value.ca,
        None => authority.version() != X509Version::V3,
    };
    let usage = authority.key_usage().ok().flatten();
    if !may_sign || usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return "x509: invalid signature: parent certificate cannot sign this kind of certificate";
    }
    match authority.public_key().parsed() {
        Ok(PublicKey::RSA(_)) => "crypto/rsa: verification error",
        Ok(PublicKey::EC(_)) => "x509: ECDSA verification failure",
        _ => "x509: Ed25519 verification failure",
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

    use super::*;

    const NOW: UnixTime = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000));

    fn params(names: &[&str], common_name: &str) -> CertificateParams {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params
    }

    #[track_caller]
    fn check(params: &CertificateParams, name: &str, expected: Option<&str>) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        assert_eq!(problem(certificate.der(), &name, NOW).as_deref(), expected);
    }

    #[test]
    fn certificates_that_do_not_fit_are_explained_as_go_does() {
        let names = params(&["a.example.com", "b.example.com", "10.0.0.1"], "cn");
        check(&names, "a.example.com", None);
        check(&names, "10.0.0.1", None);
        check(
            &names,
            "c.example.com",
            Some("x509: certificate is valid for a.example.com, b.example.com, not c.example.com"),
        );
        check(&names, "10.0.0.2", Some("x509: certificate is valid for 10.0.0.1, not 10.0.0.2"));
        check(
            &params(&["a"], "cn"),
            "10.0.0.2",
            Some("x509: cannot validate certificate for 10.0.0.2 because it doesn't contain any IP SANs"),
        );
        check(
            &params(&[], "hook.default.svc"),
            "hook.default.svc",
            Some("x509: certificate relies on legacy Common Name field, use SANs instead"),
        );
        check(
            &params(&[], "cn"),
            "hook.default.svc",
            Some("x509: certificate is not valid for any names, but wanted to match hook.default.svc"),
        );
        let mut old = params(&["a"], "cn");
        old.not_before = date_time_ymd(2020, 1, 1);
        old.not_after = date_time_ymd(2021, 1, 1);
        check(
            &old,
            "b",
            Some(
                "x509: certificate has expired or is not yet valid: current time 2023-11-14T22:13:20Z is after \
                 2021-01-01T00:00:00Z",
            ),
        );
    }

    #[test]
    fn an_authority_of_the_same_name_is_a_hint() {
        let authority = || {
            let mut params = params(&[], "the-ca");
            params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.self_signed(&key).expect("a certificate");
            (certificate.der().clone(), Issuer::new(params, key))
        };
        let ((_, issuer), (stranger, _)) = (authority(), authority());
        let key = KeyPair::generate().expect("a key");
        let leaf = params(&["a"], "leaf").signed_by(&key, &issuer).expect("a certificate");
        assert_eq!(unknown_authority(leaf.der(), &[]), "x509: certificate signed by unknown authority");
        assert_eq!(
            unknown_authority(leaf.der(), &[stranger]),
            "x509: certificate signed by unknown authority (possibly because of \"x509: ECDSA verification failure\" while \
             trying to verify candidate authority certificate \"the-ca\")"
        );
    }
}
