//! What rules are made of. The names are those of `nft`'s manual where it has one.

use std::net::Ipv4Addr;

use crate::netlink::Message;
use crate::range::Range;

/// The name of a map that belongs to one rule; the kernel puts a number in it.
pub(super) const ANONYMOUS: &str = "__map%d";

/// Where values are kept while a rule is evaluated. Each has 16 bytes; a longer value takes the next ones as well.
const REGISTER: u32 = 1;
/// The second, third and fourth four bytes of it.
const SECOND: u32 = 9;
const THIRD: u32 = 10;
/// Where a verdict goes.
const VERDICT: u32 = 0;

/// A step of a rule. A step that does not match ends the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expression {
    /// The source is in a range.
    From(Range),
    /// The destination is in a range.
    To(Range),
    /// The source is not in a range.
    NotFrom(Range),
    /// The destination is not in a range.
    NotTo(Range),
    /// The protocol.
    Protocol(u8),
    /// The destination port is in an inclusive range.
    ToPort(u16, u16),
    /// The destination is an address of this namespace.
    ToLocal,
    /// The packet belongs to a connection that was let through.
    Established,
    /// The destination address, protocol and port are looked up in a map of verdicts.
    Service(String),
    /// The protocol and the destination port are looked up in a map of verdicts.
    NodePort(String),
    /// The source and the destination are in a set.
    FromTo(String),
    /// The source is in a set.
    FromSet(String),
    /// The destination is in a set.
    ToSet(String),
    /// The source is looked up in a map of verdicts.
    FromMap(String),
    /// The destination is looked up in a map of verdicts.
    ToMap(String),
    /// Puts the source into a dynamic set, or prolongs its time there.
    Remember(String),
    /// Chooses one of several addresses and ports at random, and sends the connection there.
    Choose(Vec<(Ipv4Addr, u16)>),
    /// Matches one packet in so many, at random.
    OneIn(u32),
    /// Sends the connection to an address and a port.
    Forward(Ipv4Addr, u16),
    /// The connection appears to come from this namespace.
    Masquerade,
    /// Refuses the packet, and says so: TCP connections are reset.
    RejectTcp,
    /// Refuses the packet, and says that the port is closed.
    Reject,
    /// Ends with a verdict.
    Verdict(Verdict),
}

/// What happens to a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on, as far as this hook is concerned.
    Accept,
    /// It is gone.
    Drop,
    /// The chain is left.
    Return,
    /// Another chain comes next, and then the rest of this one.
    Jump(String),
    /// Another chain comes next instead of the rest of this one.
    Goto(String),
}

impl Verdict {
    /// Writes the verdict into data that is being written.
    pub(super) fn write(&self, data: &mut Message) {
        let (code, chain): (i32, Option<&str>) = match self {
            Self::Drop => (0, None),
            Self::Accept => (1, None),
            Self::Jump(chain) => (-3, Some(chain)),
            Self::Goto(chain) => (-4, Some(chain)),
            Self::Return => (-5, None),
        };
        data.nest(2, |verdict| {
            verdict.put_be32(1, code as u32);
            if let Some(chain) = chain {
                verdict.put_text(2, chain);
            }
        });
    }
}

/// Where packets enter a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Destinations of packets that come in may be changed.
    DestinationIn,
    /// Destinations of packets that are sent from here may be changed.
    DestinationOut,
    /// Sources of packets that leave may be changed.
    Source,
    /// Packets for this namespace may be refused.
    FilterIn,
    /// Packets that pass through may be refused.
    FilterForward,
    /// Packets that are sent from here may be refused.
    FilterOut,
}

impl Hook {
    pub(super) fn number(self) -> u32 {
        match self {
            Self::DestinationIn => 0,
            Self::FilterIn => 1,
            Self::FilterForward => 2,
            Self::DestinationOut | Self::FilterOut => 3,
            Self::Source => 4,
        }
    }

    pub(super) fn priority(self) -> i32 {
        match self {
            Self::DestinationIn | Self::DestinationOut => -100,
            Self::Source => 100,
            _ => 0,
        }
    }

    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::DestinationIn | Self::DestinationOut | Self::Source => "nat",
            _ => "filter",
        }
    }
}

const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;

/// Offsets in the IPv4 header.
const SOURCE: u32 = 12;
const DESTINATION: u32 = 16;
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;

impl Expression {
    /// Writes the steps into a rule's list; `maps` has the numbers of the rule's maps.
    pub(super) fn write(&self, list: &mut Message, maps: &mut impl Iterator<Item = u32>) {
        let mut steps = Steps(list);
        match self {
            Self::From(range) => steps.address(SOURCE, *range, EQUAL),
            Self::To(range) => steps.address(DESTINATION, *range, EQUAL),
            Self::NotFrom(range) => steps.address(SOURCE, *range, NOT_EQUAL),
            Self::NotTo(range) => steps.address(DESTINATION, *range, NOT_EQUAL),
            Self::Protocol(number) => {
                steps.protocol(REGISTER);
                steps.compare(EQUAL, &[*number]);
            }
            Self::ToPort(first, last) => {
                steps.port(REGISTER);
                if first == last {
                    steps.compare(EQUAL, &first.to_be_bytes());
                } else {
                    steps.compare(AT_LEAST, &first.to_be_bytes());
                    steps.compare(AT_MOST, &last.to_be_bytes());
                }
            }
            Self::ToLocal => {
                steps.add("fib", |data| {
                    data.put_be32(1, REGISTER).put_be32(2, 3).put_be32(3, 2);
                });
                steps.compare(EQUAL, &2_u32.to_ne_bytes());
            }
            Self::Established => {
                const ESTABLISHED_OR_RELATED: u32 = 2 | 4;
                steps.add("ct", |data| {
                    data.put_be32(1, REGISTER).put_be32(2, 0);
                });
                steps.mask(&ESTABLISHED_OR_RELATED.to_ne_bytes());
                steps.compare(NOT_EQUAL, &[0; 4]);
            }
            Self::Service(map) => {
                steps.payload(NETWORK, DESTINATION, 4, REGISTER);
                steps.protocol(SECOND);
                steps.port(THIRD);
                steps.lookup(map, Some(VERDICT));
            }
            Self::NodePort(map) => {
                steps.protocol(REGISTER);
                steps.port(SECOND);
                steps.lookup(map, Some(VERDICT));
            }
            Self::FromTo(set) => {
                steps.payload(NETWORK, SOURCE, 4, REGISTER);
                steps.payload(NETWORK, DESTINATION, 4, SECOND);
                steps.lookup(set, None);
            }
            Self::FromSet(set) => {
                steps.payload(NETWORK, SOURCE, 4, REGISTER);
                steps.lookup(set, None);
            }
            Self::ToSet(set) => {
                steps.payload(NETWORK, DESTINATION, 4, REGISTER);
                steps.lookup(set, None);
            }
            Self::FromMap(map) => {
                steps.payload(NETWORK, SOURCE, 4, REGISTER);
                steps.lookup(map, Some(VERDICT));
            }
            Self::ToMap(map) => {
                steps.payload(NETWORK, DESTINATION, 4, REGISTER);
                steps.lookup(map, Some(VERDICT));
            }
            Self::Remember(set) => {
                steps.payload(NETWORK, SOURCE, 4, REGISTER);
                steps.add("dynset", |data| {
                    data.put_text(1, set).put_be32(3, 1).put_be32(4, REGISTER);
                });
            }
            Self::Choose(backends) => {
                steps.add("numgen", |data| {
                    data.put_be32(1, REGISTER).put_be32(2, backends.len() as u32).put_be32(3, 1).put_be32(4, 0);
                });
                let id = maps.next().unwrap_or_default();
                steps.add("lookup", |data| {
                    data.put_text(1, ANONYMOUS).put_be32(2, REGISTER).put_be32(3, REGISTER).put_be32(4, id);
                });
                steps.forward();
            }
            Self::OneIn(count) => {
                steps.add("numgen", |data| {
                    data.put_be32(1, REGISTER).put_be32(2, *count).put_be32(3, 1).put_be32(4, 0);
                });
                steps.compare(EQUAL, &[0; 4]);
            }
            Self::Forward(address, port) => {
                steps.immediate(REGISTER, &address.octets());
                steps.immediate(SECOND, &port.to_be_bytes());
                steps.forward();
            }
            Self::Masquerade => steps.add("masq", |_| {}),
            Self::RejectTcp => steps.add("reject", |data| {
                data.put_be32(1, 1).put(2, &[0]);
            }),
            Self::Reject => steps.add("reject", |data| {
                data.put_be32(1, 0).put(2, &[3]);
            }),
            Self::Verdict(verdict) => steps.add("immediate", |data| {
                data.put_be32(1, VERDICT).nest(2, |value| verdict.write(value));
            }),
        }
    }
}

/// The steps of a rule, as the kernel has them.
struct Steps<'a>(&'a mut Message);

impl Steps<'_> {
    fn add(&mut self, name: &str, fill: impl FnOnce(&mut Message)) {
        self.0.nest(1, |step| {
            step.put_text(1, name).nest(2, fill);
        });
    }

    fn payload(&mut self, header: u32, offset: u32, length: u32, register: u32) {
        self.add("payload", |data| {
            data.put_be32(1, register).put_be32(2, header).put_be32(3, offset).put_be32(4, length);
        });
    }

    fn protocol(&mut self, register: u32) {
        const L4PROTO: u32 = 16;
        self.add("meta", |data| {
            data.put_be32(2, L4PROTO).put_be32(1, register);
        });
    }

    fn port(&mut self, register: u32) {
        self.payload(TRANSPORT, 2, 2, register);
    }

    fn address(&mut self, offset: u32, range: Range, operator: u32) {
        self.payload(NETWORK, offset, 4, REGISTER);
        if range.bits() < 32 {
            self.mask(&range.mask().to_be_bytes());
        }
        self.compare(operator, &range.first().octets());
    }

    fn mask(&mut self, mask: &[u8]) {
        self.add("bitwise", |data| {
            data.put_be32(1, REGISTER).put_be32(2, REGISTER).put_be32(3, mask.len() as u32);
            data.nest(4, |value| {
                value.put(1, mask);
            });
            data.nest(5, |value| {
                value.put(1, &vec![0; mask.len()]);
            });
        });
    }

    fn compare(&mut self, operator: u32, value: &[u8]) {
        self.add("cmp", |data| {
            data.put_be32(1, REGISTER).put_be32(2, operator).nest(3, |nested| {
                nested.put(1, value);
            });
        });
    }

    fn lookup(&mut self, set: &str, register: Option<u32>) {
        self.add("lookup", |data| {
            data.put_text(1, set).put_be32(2, REGISTER);
            if let Some(register) = register {
                data.put_be32(3, register);
            }
        });
    }

    fn immediate(&mut self, register: u32, value: &[u8]) {
        self.add("immediate", |data| {
            data.put_be32(1, register).nest(2, |nested| {
                nested.put(1, value);
            });
        });
    }

    /// Sends the connection to the address and the port that are in the registers.
    fn forward(&mut self) {
        const DESTINATION_NAT: u32 = 1;
        const IPV4: u32 = 2;
        self.add("nat", |data| {
            data.put_be32(1, DESTINATION_NAT).put_be32(2, IPV4).put_be32(3, REGISTER).put_be32(5, SECOND);
        });
    }
}
