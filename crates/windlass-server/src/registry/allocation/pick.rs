//! Which address or node port a Service gets when it names none.
//!
//! The first part of each range is left to Services that name their address or port, as upstream leaves it: it is used when
//! the rest is full. A first few picks are made blindly; where those are taken, what is taken is looked up.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use serde_json::Value;
use windlass_store::Range;

use super::{NETWORK, NODE_PORTS};
use crate::api::Api;
use crate::object;
use crate::registry::stored;
use crate::status::Status;
use crate::validation::access::Access as _;

/// Where claims of addresses are.
pub(super) const ADDRESSES: &str = "/registry/ipaddresses/";
/// Where claims of node ports are.
pub(super) const PORTS: &str = "/registry/ranges/servicenodeports/";

/// An address of the cluster's service network that may be free.
pub(super) fn random_address() -> String {
    let (first, last) = bounds(network(), 16);
    Ipv4Addr::from(fastrand::u32(first + static_addresses(first, last)..=last)).to_string()
}

/// A node port that may be free.
pub(super) fn random_port() -> i64 {
    fastrand::u16(NODE_PORTS.start() + static_ports()..=*NODE_PORTS.end()).into()
}

/// A free address of any range that is ready, the cluster's own first. `None` if all are full.
pub(super) async fn free_address(api: &Api) -> Result<Option<String>, Status> {
    let taken = taken(api, ADDRESSES).await?;
    let is_free = |address: &u32| !taken.contains(Ipv4Addr::from(*address).to_string().as_str());
    for cidr in ready_ranges(api).await? {
        let Some((first, length)) = parse(&cidr) else { continue };
        let (first, last) = bounds(first, length);
        if first > last {
            continue;
        }
        let reserved = static_addresses(first, last);
        let free = pick(first + reserved, last, is_free);
        let free = free.or_else(|| if reserved > 0 { pick(first, first + reserved - 1, is_free) } else { None });
        if let Some(address) = free {
            return Ok(Some(Ipv4Addr::from(address).to_string()));
        }
    }
    Ok(None)
}

/// A free node port. `None` if all are taken.
pub(super) async fn free_port(api: &Api) -> Result<Option<i64>, Status> {
    let taken = taken(api, PORTS).await?;
    let is_free = |port: &u32| !taken.contains(port.to_string().as_str());
    let (first, last, reserved) =
        (u32::from(*NODE_PORTS.start()), u32::from(*NODE_PORTS.end()), u32::from(static_ports()));
    let free = pick(first + reserved, last, is_free).or_else(|| pick(first, first + reserved - 1, is_free));
    Ok(free.map(i64::from))
}

/// The first number from a random one on for which something holds.
fn pick(first: u32, last: u32, is_free: impl Fn(&u32) -> bool) -> Option<u32> {
    let start = fastrand::u32(first..=last);
    (start..=last).chain(first..start).find(is_free)
}

/// What is claimed below a prefix.
async fn taken(api: &Api, prefix: &'static str) -> Result<HashSet<String>, Status> {
    let found = api.store.range(Range::prefix(prefix), None, 0).await.map_err(Status::internal)?;
    let names = found.entries.iter().filter_map(|entry| std::str::from_utf8(&entry.key).ok()?.strip_prefix(prefix));
    Ok(names.map(str::to_owned).collect())
}

/// The IPv4 ranges of ServiceCIDRs that are ready and stay, the cluster's own first.
pub(super) async fn ready_ranges(api: &Api) -> Result<Vec<String>, Status> {
    let found = api.store.range(Range::prefix("/registry/servicecidrs/"), None, 0).await.map_err(Status::internal)?;
    let own = format!("{}/16", network());
    let mut ranges = vec![own.clone()];
    for entry in &found.entries {
        let range = stored::decode(&entry.value)?;
        if is_ready(&range) {
            ranges.extend(range.at("spec").texts("cidrs").into_iter().filter(|cidr| *cidr != own).map(str::to_owned));
        }
    }
    Ok(ranges)
}

fn is_ready(range: &Value) -> bool {
    let mut conditions = range.at("status").list("conditions").iter();
    let is_ready = conditions.any(|one| (one.text("type"), one.text("status")) == ("Ready", "True"));
    is_ready && !object::is_deleting(range)
}

/// Whether a range contains an address. The first and the last one are not given out.
pub(super) fn contains_address(cidr: &str, address: Ipv4Addr) -> bool {
    let Some((first, length)) = parse(cidr) else { return false };
    let (first, last) = bounds(first, length);
    let single = u32::from(address) == first.wrapping_sub(1) && length == 32;
    single || (first..=last).contains(&u32::from(address))
}

fn parse(cidr: &str) -> Option<(Ipv4Addr, u32)> {
    let (first, length) = cidr.split_once('/')?;
    Some((first.parse().ok()?, length.parse().ok().filter(|length| *length <= 32)?))
}

/// The first and the last address of a range that are given out: not that of the network, and not that for all of it.
/// There are none where the first is beyond the last.
fn bounds(network: Ipv4Addr, length: u32) -> (u32, u32) {
    let size = 1_u64 << (32 - length);
    let network = u64::from(u32::from(network)) & !(size - 1);
    let (first, last) = (network + 1, (network + size - 1).saturating_sub(1));
    (u32::try_from(first).unwrap_or(u32::MAX), u32::try_from(last).unwrap_or(u32::MAX))
}

fn network() -> Ipv4Addr {
    let [a, b] = NETWORK;
    Ipv4Addr::new(a, b, 0, 0)
}

/// How many addresses are left to Services that name theirs: a sixteenth, at least 16 and at most 256
/// (`pkg/registry/core/service/ipallocator`).
fn static_addresses(first: u32, last: u32) -> u32 {
    let size = u64::from(last - first) + 1;
    if size <= 16 { 0 } else { u32::try_from((size / 16).clamp(16, 256)).unwrap_or(256) }
}

/// How many ports are left to Services that name theirs: a 32nd, at least 16 and at most 128
/// (`pkg/registry/core/service/portallocator`).
fn static_ports() -> u16 {
    ((NODE_PORTS.end() - NODE_PORTS.start() + 1) / 32).clamp(16, 128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_all_but_their_first_and_last_address() {
        let check = |cidr: &str, address: &str, expected: bool| {
            assert_eq!(contains_address(cidr, address.parse().expect("valid")), expected, "{cidr} {address}");
        };
        check("198.51.100.0/24", "198.51.100.10", true);
        check("198.51.100.0/24", "198.51.100.0", false);
        check("198.51.100.0/24", "198.51.100.255", false);
        check("198.51.100.0/24", "198.51.101.1", false);
        check("198.51.100.8/32", "198.51.100.8", true);
        check("10.96.0.0/16", "10.96.0.0", false);
        check("10.96.0.0/16", "10.96.255.255", false);
        check("0.0.0.0/0", "255.255.255.254", true);
        check("2001:db8::/64", "198.51.100.8", false);
        check("garbage", "198.51.100.8", false);
    }

    #[test]
    fn automatic_allocation_avoids_the_first_addresses_and_ports() {
        for _ in 0..10_000 {
            let address: Ipv4Addr = random_address().parse().expect("an address");
            assert!(address >= Ipv4Addr::new(10, 96, 1, 1) && address <= Ipv4Addr::new(10, 96, 255, 254), "{address}");
            let port = random_port();
            assert!((30086..=32767).contains(&port), "{port}");
        }
        assert_eq!((static_addresses(1, 14), static_addresses(1, 254), static_addresses(1, 65_534)), (0, 16, 256));
    }

    #[test]
    fn a_pick_finds_what_is_free() {
        assert_eq!(pick(1, 9, |n| *n == 4), Some(4));
        assert_eq!(pick(1, 9, |_| false), None);
        assert_eq!(pick(7, 7, |_| true), Some(7));
    }
}
