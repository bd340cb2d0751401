//! IP addresses and CIDR blocks.
//!
//! Go once read `010.1.2.3` as `10.1.2.3`; such values are told from malformed ones because their
//! messages differ.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{FieldError, FieldErrors, Path};

/// An address, with leading zeros tolerated in IPv4.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| parse_ipv4_with_zeros(text).map(IpAddr::V4))
}

fn parse_ipv4_with_zeros(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let digits = part.trim_start_matches('0');
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then(|| octets.into())
}

/// An address and the length of its prefix, with leading zeros tolerated.
pub fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse_ip(address)?;
    if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let length: u8 = length.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length <= most).then_some((address, length))
}

/// Whether `text` is an IPv6 address.
pub fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok_and(|address| address.to_ipv4_mapped().is_none())
}

/// Values that a field had before and may keep.
pub type Known<'a> = HashSet<&'a str>;

/// Checks an address in a field that was once checked more loosely: values in `known` stay allowed.
pub fn legacy_ip(text: &str, known: &Known<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    if !known.contains(text) {
        strict_ip(text, path, errors);
    }
}

fn strict_ip(text: &str, path: &Path<'_>, errors: &mut FieldErrors) -> bool {
    let detail = match (parse_ip(text), text.parse::<IpAddr>()) {
        (None, _) => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        (Some(_), Err(_)) => "must not have leading 0s",
        (_, Ok(IpAddr::V6(address))) if address.to_ipv4_mapped().is_some() => "must not be an IPv4-mapped IPv6 address",
        _ => return true,
    };
    errors.push(FieldError::invalid(path, text, detail));
    false
}

/// Checks an address that must also be written canonically.
pub fn canonical_ip(text: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if strict_ip(text, path, errors)
        && let Some(address) = parse_ip(text)
        && address.to_string() != text
    {
        errors.push(FieldError::invalid(path, text, format!("must be in canonical form (\"{address}\")")));
    }
}

/// Checks a CIDR block; values in `known` stay allowed.
pub fn legacy_cidr(text: &str, known: &Known<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    if known.contains(text) {
        return;
    }
    let detail = match parse_cidr(text) {
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        Some(_) if has_leading_zeros(text) => "must not have leading 0s in IP or prefix length",
        Some((IpAddr::V6(address), _)) if address.to_ipv4_mapped().is_some() => {
            "must not have an IPv4-mapped IPv6 address"
        }
        Some((address, length)) if masked(address, length) != address => {
            "must not have bits set beyond the prefix length"
        }
        Some(_) => return,
    };
    errors.push(FieldError::invalid(path, text, detail));
}

fn has_leading_zeros(cidr: &str) -> bool {
    let (address, length) = cidr.split_once('/').unwrap_or((cidr, ""));
    address.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0'))
}

/// What upstream warns about in a CIDR block that is accepted.
pub fn cidr_warnings(text: &str, path: &Path<'_>) -> Vec<String> {
    let Some((address, length)) = parse_cidr(text) else { return Vec::new() };
    let network = masked(address, length);
    let (bits, mapped) = match (address, network) {
        (IpAddr::V4(_), _) => (32, None),
        // Go prints a block of IPv4-mapped addresses as one of IPv4 addresses.
        (IpAddr::V6(_), IpAddr::V6(network)) => (128, network.to_ipv4_mapped()),
        (IpAddr::V6(_), IpAddr::V4(_)) => (128, None),
    };
    let shown = match mapped {
        Some(network) => format!("{network}/{}", length.saturating_sub(96)),
        None => format!("{network}/{length}"),
    };
    let mut warnings = Vec::new();
    if network != address {
        warnings.push(format!(
            "{path}: CIDR value \"{text}\" is ambiguous in this context (should be \"{shown}\" or \"{address}/{bits}\"?)"
        ));
    }
    if has_leading_zeros(text) || mapped.is_some() {
        warnings.push(format!("{path}: non-standard CIDR value \"{text}\" is invalid: use \"{shown}\""));
    }
    if warnings.is_empty() && address.is_ipv6() && shown != text {
        warnings
            .push(format!("{path}: IPv6 CIDR value \"{text}\" should be in RFC 5952 canonical format (\"{shown}\")"));
    }
    warnings
}

/// The address with everything beyond the prefix cleared.
pub fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

/// Checks that an address can be an endpoint: not unspecified, loopback or link-local.
pub fn endpoint_ip(text: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some(address) = parse_ip(text) else {
        errors.push(FieldError::invalid(path, text, "must be a valid IP address"));
        return;
    };
    if address.is_unspecified() {
        errors.push(FieldError::invalid(path, text, format!("may not be unspecified ({text})")));
    }
    if address.is_loopback() {
        let detail = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
        errors.push(FieldError::invalid(path, text, detail));
    }
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        let detail = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        errors.push(FieldError::invalid(path, text, detail));
    }
    if link_local_multicast {
        let detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        errors.push(FieldError::invalid(path, text, detail));
    }
}

/// What to tell a client about an address that is accepted but not written well.
pub fn ip_warning(text: &str, path: &Path<'_>) -> Option<String> {
    let address = parse_ip(text)?;
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_none() => (v6.to_string() != text)
            .then(|| format!("{path}: IPv6 address \"{text}\" should be in RFC 5952 canonical format (\"{v6}\")")),
        Ok(IpAddr::V4(_)) => None,
        _ => Some(format!("{path}: non-standard IP address \"{text}\" is invalid: use \"{address}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(check: impl Fn(&mut FieldErrors)) -> String {
        let mut errors = FieldErrors::default();
        check(&mut errors);
        errors.to_string()
    }

    #[test]
    fn addresses() {
        let ip = |text: &str| errors(|e| legacy_ip(text, &HashSet::new(), &Path::new("ip"), e));
        assert_eq!(ip("10.0.0.1"), "[]");
        assert_eq!(ip("::1"), "[]");
        assert!(ip("010.0.0.1").contains("must not have leading 0s"));
        assert!(ip("::ffff:1.2.3.4").contains("IPv4-mapped"));
        assert!(ip("10.0.0").contains("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
        let endpoint = |text: &str| errors(|e| endpoint_ip(text, &Path::new("ip"), e));
        assert!(endpoint("127.0.0.1").contains("loopback"));
        assert!(endpoint("169.254.1.1").contains("link-local"));
        assert!(endpoint("224.0.0.5").contains("multicast"));
        assert_eq!(endpoint("10.1.1.1"), "[]");
    }

    #[test]
    fn blocks() {
        let cidr = |text: &str| errors(|e| legacy_cidr(text, &HashSet::new(), &Path::new("cidr"), e));
        assert_eq!(cidr("10.0.0.0/8"), "[]");
        assert_eq!(cidr("2001:db8::/32"), "[]");
        assert_eq!(cidr("0.0.0.0/0"), "[]");
        assert!(cidr("10.0.0.1/8").contains("must not have bits set beyond the prefix length"));
        assert!(cidr("10.0.0.0/33").contains("must be a valid CIDR value"));
        assert!(cidr("10.0.0.0/08").contains("leading 0s"));
        let warnings = |text: &str| cidr_warnings(text, &Path::new("cidr"));
        for text in ["10.0.0.0/8", "2001:db8::/32", "not a block"] {
            assert!(warnings(text).is_empty(), "{text}");
        }
        assert_eq!(
            warnings("2001:DB8::/32"),
            ["cidr: IPv6 CIDR value \"2001:DB8::/32\" should be in RFC 5952 canonical format (\"2001:db8::/32\")"]
        );
        assert_eq!(
            warnings("10.0.0.1/08"),
            [
                "cidr: CIDR value \"10.0.0.1/08\" is ambiguous in this context (should be \"10.0.0.0/8\" or \
                 \"10.0.0.1/32\"?)",
                "cidr: non-standard CIDR value \"10.0.0.1/08\" is invalid: use \"10.0.0.0/8\""
            ]
        );
    }
}
