//! Addresses and networks, as Go's `net/netip` parses them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::go::quote;

/// A network: an address and how many of its bits name the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Cidr {
    pub(crate) fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                Ipv4Addr::from(u32::from(v4) & mask).into()
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                Ipv6Addr::from(u128::from(v6) & mask).into()
            }
        };
        Self { address, bits: self.bits }
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self { address, bits: self.bits }.masked().address == self.masked().address
    }
}

/// How many bytes an address has.
pub(crate) fn width(ip: &IpAddr) -> u64 {
    if ip.is_ipv4() { 4 } else { 16 }
}

/// An address, or why CEL does not take the text.
pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let ip = address(text).map_err(|why| {
        let quoted = quote(text);
        format!("IP Address {quoted} parse error during conversion from string: ParseAddr({quoted}): {why}")
    })?;
    if text.contains('%') {
        return Err(format!("IP address {} with zone value is not allowed", quote(text)));
    }
    if is_mapped(&ip) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
    }
    Ok(ip)
}

fn is_mapped(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// An address, or why it is none in Go's words.
fn address(text: &str) -> Result<IpAddr, String> {
    let first = text.find(['.', ':', '%']).map(|at| &text[at..=at]);
    match first {
        Some(".") => text.parse::<Ipv4Addr>().map(IpAddr::V4).map_err(|_| why_not_v4(text)),
        Some(":") => {
            let (plain, zone) = text.split_once('%').map_or((text, None), |(plain, zone)| (plain, Some(zone)));
            if zone == Some("") {
                return Err("zone must be a non-empty string".to_owned());
            }
            plain.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| why_not_v6(plain))
        }
        Some(_) => Err("missing IPv6 address".to_owned()),
        None => Err("unable to parse IP".to_owned()),
    }
}

fn why_not_v4(text: &str) -> String {
    let fields: Vec<&str> = text.split('.').collect();
    for (index, field) in fields.iter().enumerate() {
        let start: usize = fields[..index].iter().map(|field| field.len() + 1).sum();
        if let Some(at) = field.find(|c: char| !c.is_ascii_digit()) {
            return format!("unexpected character (at {})", quote(&text[start + at..]));
        }
        if field.is_empty() {
            return format!("IPv4 field must have at least one digit (at {})", quote(&text[start..]));
        }
        if field.len() > 1 && field.starts_with('0') {
            return "IPv4 field has octet with leading zero".to_owned();
        }
        if field.parse::<u8>().is_err() {
            return "IPv4 field has value >255".to_owned();
        }
        if index > 3 {
            return "IPv4 address too long".to_owned();
        }
    }
    "IPv4 address too short".to_owned()
}

fn why_not_v6(text: &str) -> String {
    let at = |why: &str, rest: &str| format!("{why} (at {})", quote(rest));
    let mut ellipsis = text.starts_with("::");
    let mut rest = text.strip_prefix("::").unwrap_or(text);
    let mut fields = 0;
    while !rest.is_empty() && fields < 8 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return at("each group must have 4 or less digits", rest);
        }
        if digits == 0 {
            return at("each colon-separated field must have at least one digit", rest);
        }
        if rest[digits..].starts_with('.') {
            return at("embedded IPv4 address must replace the final 2 fields of the address", rest);
        }
        fields += 1;
        rest = &rest[digits..];
        match rest.strip_prefix(':') {
            None if rest.is_empty() => break,
            None => return at("unexpected character, want colon", rest),
            Some("") => return at("colon must be followed by more characters", rest),
            Some(after) => rest = after,
        }
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis {
                return at("multiple :: in address", rest);
            }
            ellipsis = true;
            rest = after;
        }
    }
    if !rest.is_empty() {
        return at("trailing garbage after address", rest);
    }
    if ellipsis {
        "the :: must expand to at least one field of zeros".to_owned()
    } else {
        "address string too short".to_owned()
    }
}

/// A network, or why CEL does not take the text.
pub(crate) fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let outer = "network address parse error during conversion from string";
    let refuse = |why: String| format!("{outer}: {outer}: netip.ParsePrefix({}): {why}", quote(text));
    let Some((address_text, bits)) = text.rsplit_once('/') else { return Err(refuse("no '/'".to_owned())) };
    let address = address(address_text).map_err(|why| refuse(format!("ParseAddr({}): {why}", quote(address_text))))?;
    if address_text.contains('%') {
        return Err(refuse("IPv6 zones cannot be present in a prefix".to_owned()));
    }
    let plain = bits.bytes().all(|b| b.is_ascii_digit()) && !(bits.len() > 1 && bits.starts_with('0'));
    let most = if address.is_ipv4() { 32 } else { 128 };
    match bits.parse::<i64>() {
        Ok(length) if plain && length <= most => {
            if is_mapped(&address) {
                return Err(format!("{outer}: IPv4-mapped IPv6 address {} is not allowed", quote(text)));
            }
            Ok(Cidr { address, bits: length as u8 })
        }
        Ok(_) if plain => Err(refuse("prefix length out of range".to_owned())),
        _ => Err(refuse(format!("bad bits after slash: {}", quote(bits)))),
    }
}
