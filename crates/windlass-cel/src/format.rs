//! The string and number formats a custom resource's schema may ask for.
//!
//! Which formats exist, and what each accepts, follows Kubernetes v1.36
//! (`apiextensions-apiserver/pkg/apiserver/validation/formats.go` and kube-openapi's `strfmt`). An
//! unknown format is ignored. Several formats mean "whatever Go's parser takes": addresses, URIs,
//! e-mail addresses, durations and MAC addresses are parsed here the way Go parses them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

use crate::go::duration;
use crate::shape::JsonType;

/// A format that values are checked against.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A number of 32 bits.
    Float,
    /// A number of 64 bits: any.
    Double,
    /// A string that the function accepts.
    Text(fn(&str) -> bool),
}

/// The format called `name` on a value of type `ty`, or `None` if such a value is not checked.
pub fn supported(ty: JsonType, name: &str) -> Option<Format> {
    match (ty, name) {
        (JsonType::Integer, "int32") => Some(Format::Int32),
        (JsonType::Integer, "int64") => Some(Format::Int64),
        (JsonType::Number, "float") => Some(Format::Float),
        (JsonType::Number, "double") => Some(Format::Double),
        (JsonType::String | JsonType::Any | JsonType::IntOrString, _) => text(name).map(Format::Text),
        _ => None,
    }
}

/// Dashes in a format's name do not count.
fn text(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name.replace('-', "").as_str() {
        "bsonobjectid" => is_bson_object_id,
        "uri" => is_request_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => is_ipv4,
        "ipv6" => is_ipv6,
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |text| UUID.is_match(text),
        "uuid3" => |text| UUID3.is_match(text),
        "uuid4" => |text| UUID4.is_match(text),
        "uuid5" => |text| UUID5.is_match(text),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |text| text.len() == 11 && SSN.is_match(text),
        "hexcolor" => is_hex_color,
        "rgbcolor" => |text| RGB.is_match(text),
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => |text| duration::parse_lenient(text).is_some(),
        "datetime" => is_date_time,
        "k8sshortname" => |text| text.len() <= 63 && is_short_name(text),
        "k8slongname" => |text| text.len() <= 253 && text.split('.').all(is_short_name),
        _ => return None,
    })
}

macro_rules! regex {
    ($pattern:expr) => {
        LazyLock::new(|| Regex::new($pattern).expect("invariant: the pattern is well-formed"))
    };
}

static UUID: LazyLock<Regex> = regex!("(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
static UUID3: LazyLock<Regex> = regex!("(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
static UUID4: LazyLock<Regex> =
    regex!("(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$");
static UUID5: LazyLock<Regex> =
    regex!("(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$");
static SSN: LazyLock<Regex> = regex!("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$");
static RGB: LazyLock<Regex> = LazyLock::new(|| {
    let component = r"[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*";
    Regex::new(&format!("^rgb\\({component},{component},{component}\\)$")).expect("invariant: well-formed")
});
static HOSTNAME: LazyLock<Regex> = regex!(
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
);
static CREDIT_CARD: LazyLock<Regex> = regex!(
    "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
);
static TIME: LazyLock<Regex> = regex!("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");

fn is_bson_object_id(text: &str) -> bool {
    text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_hostname(text: &str) -> bool {
    HOSTNAME.is_match(text) && text.len() <= 255 && text.split('.').all(|label| label.len() <= 63)
}

fn is_short_name(text: &str) -> bool {
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.as_bytes().first().is_some_and(alphanumeric)
        && text.as_bytes().last().is_some_and(alphanumeric)
        && text.bytes().all(|b| alphanumeric(&b) || b == b'-')
}

/// An IPv4 address whose octets may have leading zeros.
fn sloppy_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let digits = parts.next()?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let significant = digits.trim_start_matches('0');
        *octet = if significant.is_empty() { 0 } else { significant.parse().ok()? };
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn sloppy_ipv6(text: &str) -> Option<Ipv6Addr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (prefix, last) = text.rsplit_once(':')?;
    let tail = last.contains('.').then(|| sloppy_ipv4(last)).flatten()?;
    format!("{prefix}:{tail}").parse().ok()
}

fn is_ipv4(text: &str) -> bool {
    text.contains('.') && if text.contains(':') { sloppy_ipv6(text).is_some() } else { sloppy_ipv4(text).is_some() }
}

fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let longest =
        if address.contains(':') { sloppy_ipv6(address).map(|_| 128) } else { sloppy_ipv4(address).map(|_| 32) };
    let digits = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    digits && longest.is_some_and(|longest| bits.parse::<u32>().is_ok_and(|bits| bits <= longest))
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        let well_formed = parts.iter().all(|p| p.len() == width && p.bytes().all(|b| b.is_ascii_hexdigit()));
        well_formed && matches!(parts.len() * width / 2, 6 | 8 | 20)
    };
    groups(':', 2) || groups('-', 2) || groups('.', 4)
}

fn without_space_and_dashes(text: &str) -> Vec<u8> {
    text.bytes().filter(|b| !matches!(b, b'\t' | b'\n' | 0x0C | b'\r' | b' ' | b'-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = without_space_and_dashes(text);
    let well_formed = digits.len() == 10
        && digits[..9].iter().all(u8::is_ascii_digit)
        && (digits[9].is_ascii_digit() || digits[9] == b'X');
    let value = |b: u8| if b == b'X' { 10 } else { u32::from(b - b'0') };
    well_formed && digits.iter().zip(1..).map(|(b, weight)| weight * value(*b)).sum::<u32>() % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits = without_space_and_dashes(text);
    if digits.len() != 13 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let sum: u32 =
        digits[..12].iter().zip([1, 3].into_iter().cycle()).map(|(b, weight)| weight * u32::from(b - b'0')).sum();
    u32::from(digits[12] - b'0') == (10 - sum % 10) % 10
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.is_match(&digits) {
        return false;
    }
    let luhn = |(position, digit): (usize, u8)| {
        let value = u32::from(digit - b'0');
        if position % 2 == 0 { value } else { value * 2 / 10 + value * 2 % 10 }
    };
    digits.bytes().rev().enumerate().map(luhn).sum::<u32>().is_multiple_of(10)
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_base64(text: &str) -> bool {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return false;
    }
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    digits.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let number = |range: std::ops::Range<usize>| -> Option<u32> {
        let digits = bytes.get(range)?;
        digits.iter().all(u8::is_ascii_digit).then(|| digits.iter().fold(0, |n, d| n * 10 + u32::from(d - b'0')))
    };
    let (Some(year), Some(month), Some(day)) = (number(0..4), number(5..7), number(8..10)) else { return false };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=last).contains(&day)
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(fields) = is_date(date).then(|| TIME.captures(time)).flatten() else { return false };
    &fields[1] <= "23" && &fields[2] <= "59" && &fields[3] <= "59"
}

/// What Go's `net/mail.ParseAddress` takes: `local@domain`, or `Name <local@domain>`.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    if let Some(start) = text.strip_suffix('>').and_then(|t| t.rfind('<').filter(|_| true)) {
        let name = text[..start].trim_matches([' ', '\t']);
        return is_display_name(name) && is_address(&text[start + 1..text.len() - 1]);
    }
    is_address(text)
}

fn is_display_name(name: &str) -> bool {
    let quoted = name.len() >= 2 && name.starts_with('"') && name.ends_with('"');
    name.is_empty()
        || quoted
        || name.split([' ', '\t']).filter(|w| !w.is_empty()).all(|w| w.chars().all(|c| is_atom(c) || c == '.'))
}

fn is_atom(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii()
}

fn is_dot_atom(text: &str) -> bool {
    !text.is_empty() && text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom))
}

fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let domain = domain.trim_matches([' ', '\t']);
    let literal = domain.strip_prefix('[').and_then(|d| d.strip_suffix(']'));
    (quoted || is_dot_atom(local.trim_matches([' ', '\t'])))
        && literal.map_or_else(|| is_dot_atom(domain), |l| sloppy_ipv4(l).is_some() || l.starts_with("IPv6:"))
}

/// What Go's `net/url.ParseRequestURI` takes: an absolute URI or an absolute path.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_ascii_control()) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = split_scheme(text) else { return false };
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
    if !rest.starts_with('/') {
        return !scheme.is_empty();
    }
    let (authority, path) = match rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
        Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
        None => ("", rest),
    };
    is_authority(authority) && has_whole_escapes(path)
}

/// The scheme (empty if there is none) and what follows it; `None` for a malformed one.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at > 0 => return Some((&text[..at], &text[at + 1..])),
            ':' => return None,
            _ => break,
        }
    }
    Some(("", text))
}

fn is_authority(authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').map_or(("", authority), |(user, host)| (user, host));
    let user_ok = user.chars().all(|c| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c));
    let (name, port) = match host.strip_prefix('[') {
        Some(inside) => match inside.split_once(']') {
            Some((name, after)) => (name, after),
            None => return false,
        },
        None => host.rfind(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let port_ok = port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    let host_ok =
        name.chars().all(|c| !c.is_ascii() || c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(c));
    user_ok && port_ok && host_ok && has_whole_escapes(user) && has_whole_escapes(name)
}

fn has_whole_escapes(text: &str) -> bool {
    text.match_indices('%').all(|(at, _)| {
        text.as_bytes().get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, good: &[&str], bad: &[&str]) {
        let Some(Format::Text(accepts)) = supported(JsonType::String, name) else { panic!("{name} is not supported") };
        for value in good {
            assert!(accepts(value), "{name} should accept {value:?}");
        }
        for value in bad {
            assert!(!accepts(value), "{name} should refuse {value:?}");
        }
    }

    #[test]
    fn formats_accept_what_go_accepts() {
        check(
            "date-time",
            &["2020-01-01T00:00:00Z", "2020-01-01t00:00:00.5+01:00"],
            &["2020-13-01T00:00:00Z", "2020-01-01", "2020-01-01T24:00:00Z"],
        );
        check("datetime", &["2020-01-01T00:00:00Z"], &["now"]);
        check("date", &["2020-01-02", "2024-02-29"], &["01/02/2020", "2023-02-29", "2020-1-2"]);
        check("email", &["a@b.co", "Joe <joe@example.com>", "\"x y\"@b.c"], &["nope", "@b", "a@", "a b@c", "a@b@c d"]);
        check("ipv4", &["1.2.3.4", "010.0.0.1"], &["1.2.3", "::1", "256.1.1.1"]);
        check("ipv6", &["::1", "fe80::1", "::ffff:1.2.3.4"], &["1.2.3.4", "::g"]);
        check("cidr", &["10.0.0.0/8", "::/0", "10.0.0.1/08"], &["1.2.3.4", "1.2.3.4/33", "::/129", "1.2.3.4/"]);
        check(
            "uri",
            &["https://a.b/c", "/path", "mailto:x", "http://[::1]:80/", "a:b"],
            &["::", "", "rel/path", "http://a b/", "http://x:y/", "/%zz"],
        );
        check("uuid", &["7c9e6679-7425-40de-944b-e07fc1f90ae7", "7C9E6679742540DE944BE07FC1F90AE7"], &["abc"]);
        check("uuid4", &["7c9e6679-7425-40de-944b-e07fc1f90ae7"], &["7c9e6679-7425-30de-944b-e07fc1f90ae7"]);
        check("byte", &["aGk=", "aGVsbG8h", "aA=="], &["***", "", "aGk", "a==="]);
        check("hostname", &["a", "example.com", "a-b"], &["-a-", "a.b", "a_b", ""]);
        check("duration", &["1h30m", "0", "-1.5s", "22 ns", "3 days", "2w"], &["soon", "1", "1x", ""]);
        check("mac", &["00:11:22:33:44:55", "0011.2233.4455", "00-11-22-33-44-55-66-77"], &["zz", "00:11:22:33:44"]);
        check("isbn", &["0321751043", "978-0321751041"], &["0321751044", "123"]);
        check("creditcard", &["4111 1111 1111 1111"], &["4111111111111112", "12"]);
        check("ssn", &["111-11-1111"], &["111111111", "11-11-11111"]);
        check("hexcolor", &["#fff", "A0b1C2"], &["#ffff", "red"]);
        check("rgbcolor", &["rgb(0,10, 255)"], &["rgb(256,0,0)", "0,0,0"]);
        check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77"]);
        check("password", &["", "x"], &[]);
        check("k8s-short-name", &["a-1"], &["A", "a.b", "-a", ""]);
        check("k8s-long-name", &["a.b-1"], &["a..b", "A.b"]);
    }

    #[test]
    fn formats_belong_to_types() {
        assert!(supported(JsonType::Integer, "int32").is_some());
        assert!(supported(JsonType::String, "int32").is_none());
        assert!(supported(JsonType::Boolean, "date").is_none());
        assert!(supported(JsonType::String, "fax").is_none());
    }
}
