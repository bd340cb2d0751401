//! Addresses: the ranges that nodes give their pods addresses from, and the addresses of simulated nodes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// The pod range of the nth node: `10.244.n.0/24` for the first 256, then in `10.128.0.0/10`.
pub(crate) fn pod_cidr(ordinal: u32) -> Option<String> {
    let base = match ordinal {
        0..256 => u32::from(Ipv4Addr::new(10, 244, 0, 0)) + (ordinal << 8),
        256..16_640 => u32::from(Ipv4Addr::new(10, 128, 0, 0)) + ((ordinal - 256) << 8),
        _ => return None,
    };
    Some(format!("{}/24", Ipv4Addr::from(base)))
}

/// Which node has a range, if it is one of those above.
fn ordinal(cidr: &str) -> Option<u32> {
    let base = u32::from(cidr.strip_suffix(".0/24").map(|head| format!("{head}.0"))?.parse::<Ipv4Addr>().ok()?);
    let (first, more) = (u32::from(Ipv4Addr::new(10, 244, 0, 0)), u32::from(Ipv4Addr::new(10, 128, 0, 0)));
    let found = match base {
        base if base >= first => (base - first) >> 8,
        base if base >= more => ((base - more) >> 8) + 256,
        _ => return None,
    };
    pod_cidr(found).filter(|own| own == cidr).map(|_| found)
}

/// The address of the nth node.
pub(crate) fn node_address(ordinal: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(172, 18, 0, 2)) + ordinal)
}

/// Which numbers nodes have.
#[derive(Debug, Default)]
pub(crate) struct Ordinals {
    used: BTreeSet<u32>,
    /// The smallest that may be free.
    next: u32,
}

impl Ordinals {
    /// The number of a node that has this range.
    pub(crate) fn note(&mut self, cidr: &str) -> Option<u32> {
        let ordinal = ordinal(cidr)?;
        self.used.insert(ordinal);
        Some(ordinal)
    }

    /// The smallest that is free.
    pub(crate) fn take(&mut self) -> u32 {
        while !self.used.insert(self.next) {
            self.next += 1;
        }
        self.next
    }

    /// A node is gone.
    pub(crate) fn release(&mut self, ordinal: u32) {
        self.used.remove(&ordinal);
        self.next = self.next.min(ordinal);
    }
}

/// A range of addresses for pods.
#[derive(Debug, Default)]
pub(crate) struct PodRange {
    base: u32,
    size: u32,
    used: Vec<u64>,
    /// Where to look first: an address is given out again as late as possible.
    next: u32,
}

/// The network's own address and that of its gateway come first.
const RESERVED: u32 = 2;

impl PodRange {
    pub(crate) fn new(cidr: &str) -> Option<Self> {
        let (base, bits) = cidr.split_once('/')?;
        let (base, bits): (Ipv4Addr, u32) = (base.parse().ok()?, bits.parse().ok()?);
        let size = 1_u32.checked_shl(32_u32.checked_sub(bits)?)?.max(1);
        // More than a node can have pods.
        let size = size.min(1 << 20);
        Some(Self { base: base.into(), size, used: vec![0; size.div_ceil(64) as usize], next: RESERVED })
    }

    /// A free address; none when all are taken.
    pub(crate) fn take(&mut self) -> Option<Ipv4Addr> {
        // The last address is the broadcast address.
        let last = self.size.checked_sub(1).filter(|last| *last > RESERVED)?;
        let span = last - RESERVED;
        for step in 0..span {
            let at = RESERVED + (self.next - RESERVED + step) % span;
            let (word, bit) = ((at / 64) as usize, at % 64);
            if self.used[word] & (1 << bit) == 0 {
                self.used[word] |= 1 << bit;
                self.next = RESERVED + (at - RESERVED + 1) % span;
                return Some(Ipv4Addr::from(self.base + at));
            }
        }
        None
    }

    /// An address is in use, or is not any more.
    pub(crate) fn mark(&mut self, address: Ipv4Addr, used: bool) {
        let Some(at) = u32::from(address).checked_sub(self.base).filter(|at| *at < self.size) else { return };
        let (word, bit) = ((at / 64) as usize, at % 64);
        if used {
            self.used[word] |= 1 << bit;
        } else {
            self.used[word] &= !(1 << bit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_ranges_of_their_own() {
        let all: BTreeSet<String> = (0..16_640).filter_map(pod_cidr).collect();
        assert_eq!(all.len(), 16_640);
        for number in [0, 1, 255, 256, 9_999, 16_639] {
            assert_eq!(ordinal(&pod_cidr(number).expect("a range")), Some(number));
        }
        assert_eq!(ordinal("10.96.0.0/24"), None);
        let mut ordinals = Ordinals::default();
        ordinals.note("10.244.0.0/24");
        assert_eq!((ordinals.take(), ordinals.take()), (1, 2));
        ordinals.release(1);
        assert_eq!(ordinals.take(), 1);
    }

    #[test]
    fn addresses_are_given_out_once() {
        let mut range = PodRange::new("10.244.3.0/24").expect("a range");
        range.mark(Ipv4Addr::new(10, 244, 3, 2), true);
        let all: BTreeSet<Ipv4Addr> = std::iter::from_fn(|| range.take()).collect();
        assert_eq!((all.len(), all.first()), (252, Some(&Ipv4Addr::new(10, 244, 3, 3))));
        range.mark(Ipv4Addr::new(10, 244, 3, 9), false);
        assert_eq!(range.take(), Some(Ipv4Addr::new(10, 244, 3, 9)));
        assert_eq!(range.take(), None);
    }
}
