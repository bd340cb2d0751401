// SPDX-License-Identifier: Apache-2.0

//! Ranges of addresses, as numbers. Pure: no objects, no I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of one CIDR that claims can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    first: u128,
    last: u128,
    is_ipv4: bool,
}

impl Range {
    /// Reads a CIDR such as `10.0.0.0/24`. Bits behind the prefix are ignored.
    ///
    /// The first address of a network names the network, and the last one of IPv4 is for broadcasts: claims do not get
    /// these, except in networks that are too small to have them.
    pub fn parse(cidr: &str) -> Option<Self> {
        let (address, prefix) = cidr.split_once('/')?;
        let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse::<u32>().ok()?);
        let (is_ipv4, bits) = (address.is_ipv4(), if address.is_ipv4() { 32_u32 } else { 128 });
        let host_bits = bits.checked_sub(prefix)?;
        let hosts = 1_u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1);
        let network = number(address) & !hosts;
        let is_tiny = host_bits < 2;
        let first = if is_tiny { network } else { network + 1 };
        let last = if is_tiny || !is_ipv4 { network | hosts } else { (network | hosts) - 1 };
        Some(Self { first, last, is_ipv4 })
    }

    /// All ranges of a list of CIDRs; those that cannot be read are left out, since the schema refuses them.
    pub fn parse_all(cidrs: &[String]) -> Vec<Self> {
        cidrs.iter().filter_map(|cidr| Self::parse(cidr)).collect()
    }

    /// How many addresses there are.
    pub fn size(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// Whether claims can have this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.is_ipv4 == address.is_ipv4() && (self.first..=self.last).contains(&number(address))
    }

    /// The addresses, in ascending order. There may be more than anybody can go through.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let is_ipv4 = self.is_ipv4;
        (self.first..=self.last).map(move |number| address(number, is_ipv4))
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn address(number: u128, is_ipv4: bool) -> IpAddr {
    match u32::try_from(number) {
        Ok(number) if is_ipv4 => IpAddr::V4(Ipv4Addr::from(number)),
        _ => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cidr: &str, first: &str, last: &str, len: u128) {
        let range = Range::parse(cidr).expect("a range");
        let ends = (address(range.first, range.is_ipv4).to_string(), address(range.last, range.is_ipv4).to_string());
        assert_eq!((ends.0.as_str(), ends.1.as_str(), range.size()), (first, last, len), "{cidr}");
    }

    #[test]
    fn ranges_leave_out_what_claims_cannot_have() {
        check("10.0.0.0/24", "10.0.0.1", "10.0.0.254", 254);
        check("10.0.0.77/24", "10.0.0.1", "10.0.0.254", 254);
        check("10.0.0.0/30", "10.0.0.1", "10.0.0.2", 2);
        check("10.0.0.0/31", "10.0.0.0", "10.0.0.1", 2);
        check("10.0.0.7/32", "10.0.0.7", "10.0.0.7", 1);
        check("0.0.0.0/0", "0.0.0.1", "255.255.255.254", (1 << 32) - 2);
        check("fd00::/64", "fd00::1", "fd00::ffff:ffff:ffff:ffff", (1 << 64) - 1);
        check("fd00::/127", "fd00::", "fd00::1", 2);
        check("fd00::5/128", "fd00::5", "fd00::5", 1);
        check("::/0", "::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", u128::MAX);
    }

    #[test]
    fn what_is_no_cidr_is_no_range() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "fd00::/129", "10.0.0/24", "10.0.0.0/-1", "10.0.0.0/x"] {
            assert_eq!(Range::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_range_contains_addresses_of_its_family_only() {
        let range = Range::parse("0.0.0.0/0").expect("a range");
        assert!(range.contains("10.0.0.1".parse().expect("an address")));
        assert!(!range.contains("::a00:1".parse().expect("an address")));
    }
}
