//! A range of IPv4 addresses in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// A range of IPv4 addresses, such as `10.96.0.0/12`.
///
/// ```
/// use windlass_network::Range;
///
/// let range: Range = "10.96.0.0/12".parse()?;
/// assert!(range.contains([10, 111, 255, 255].into()));
/// assert!(!range.contains([10, 112, 0, 0].into()));
/// assert!("10.96.0.0/33".parse::<Range>().is_err());
/// # Ok::<(), windlass_network::range::RangeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    first: Ipv4Addr,
    bits: u8,
}

/// A text that is not a range of IPv4 addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a range of IPv4 addresses such as 10.96.0.0/12")]
#[non_exhaustive]
pub struct RangeError {
    /// The text.
    pub text: String,
}

impl Range {
    /// The range of the addresses that have the same first bits.
    pub fn new(address: Ipv4Addr, bits: u8) -> Option<Self> {
        let mask = mask(bits)?;
        Some(Self { first: Ipv4Addr::from(u32::from(address) & mask), bits })
    }

    /// One address.
    pub fn one(address: Ipv4Addr) -> Self {
        Self { first: address, bits: 32 }
    }

    /// All addresses.
    pub fn all() -> Self {
        Self { first: Ipv4Addr::UNSPECIFIED, bits: 0 }
    }

    /// The first address.
    pub fn first(&self) -> Ipv4Addr {
        self.first
    }

    /// How many bits all addresses share.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Those bits.
    pub fn mask(&self) -> u32 {
        mask(self.bits).unwrap_or(u32::MAX)
    }

    /// Whether an address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V4(address) if u32::from(address) & self.mask() == u32::from(self.first))
    }

    /// The nth address, if the range has so many.
    pub fn nth(&self, n: u32) -> Option<Ipv4Addr> {
        (n & self.mask() == 0).then(|| Ipv4Addr::from(u32::from(self.first) + n))
    }
}

fn mask(bits: u8) -> Option<u32> {
    (bits <= 32).then(|| u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0))
}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let parse = || {
            let (address, bits) = text.split_once('/')?;
            Self::new(address.parse().ok()?, bits.parse().ok()?)
        };
        parse().ok_or_else(|| RangeError { text: text.to_owned() })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}
