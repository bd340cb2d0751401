//! nftables: the table of this crate as a value ([`Ruleset`]), and the transactions that bring the kernel from one such value
//! to the next.
//!
//! A transaction replaces the chains that differ and leaves the others alone, so that what the kernel has learned (which
//! client was sent to which endpoint) stays. The kernel applies it as a whole or not at all: no packet meets half of it.

mod expression;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;

use rustix::io::Errno;
use rustix::net::netlink::NETFILTER;

pub(crate) use expression::{Expression, Hook, Verdict};

use super::message::{ACK, CREATE, REQUEST};
use super::{Message, NetlinkError, Socket};

/// The name of the table. A network namespace of ours has only this one.
const TABLE: &str = "windlass";

const SUBSYSTEM: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = SUBSYSTEM;
const DELETE_TABLE: u16 = SUBSYSTEM | 2;
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const DELETE_CHAIN: u16 = SUBSYSTEM | 5;
const NEW_RULE: u16 = SUBSYSTEM | 6;
const DELETE_RULE: u16 = SUBSYSTEM | 8;
const NEW_SET: u16 = SUBSYSTEM | 9;
const DELETE_SET: u16 = SUBSYSTEM | 0xb;
const NEW_ELEMENTS: u16 = SUBSYSTEM | 0xc;
const DELETE_ELEMENTS: u16 = SUBSYSTEM | 0xe;

/// The family of the table: IPv4.
const FAMILY: [u8; 4] = [2, 0, 0, 0];
/// `NLM_F_APPEND`: a rule is added at the end of its chain.
const APPEND: u16 = super::message::APPEND;

const SET_ANONYMOUS: u32 = 1;
const SET_CONSTANT: u32 = 2;
const SET_MAP: u32 = 8;
const SET_TIMEOUT: u32 = 0x10;
const SET_DYNAMIC: u32 = 0x20;
/// The type of data that is a verdict.
const VERDICT_TYPE: u32 = 0xffff_ff00;
/// Elements that are sent in one message: attributes have at most 64 KiB.
const ELEMENTS_PER_MESSAGE: usize = 256;
/// How many clients a dynamic set remembers.
const DYNAMIC_SIZE: u32 = 65_535;

/// Everything that the kernel is to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ruleset {
    pub(crate) sets: BTreeMap<String, Set>,
    pub(crate) chains: BTreeMap<String, Chain>,
}

/// A set or a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) key: Type,
    pub(crate) kind: SetKind,
}

/// What a set holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SetKind {
    /// Keys.
    Keys(BTreeSet<Vec<u8>>),
    /// Keys with what happens to packets that have them.
    Verdicts(BTreeMap<Vec<u8>, Verdict>),
    /// Keys that rules add, each for so many milliseconds.
    Dynamic(u64),
}

/// The type of a key: what `nft` shows it as. Each part takes a multiple of four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// An address.
    Address,
    /// Two addresses.
    Addresses,
    /// An address, a protocol and a port.
    AddressProtocolPort,
    /// A protocol and a port.
    ProtocolPort,
    /// An address and a port.
    AddressPort,
    /// A number.
    Number,
}

impl Type {
    /// Its number, and its length in bytes.
    fn parts(self) -> (u32, u32) {
        const NUMBER: u32 = 4;
        const ADDRESS: u32 = 7;
        const PROTOCOL: u32 = 12;
        const PORT: u32 = 13;
        match self {
            Self::Address => (ADDRESS, 4),
            Self::Addresses => (ADDRESS << 6 | ADDRESS, 8),
            Self::AddressProtocolPort => (ADDRESS << 12 | PROTOCOL << 6 | PORT, 12),
            Self::ProtocolPort => (PROTOCOL << 6 | PORT, 8),
            Self::AddressPort => (ADDRESS << 6 | PORT, 8),
            Self::Number => (NUMBER, 4),
        }
    }
}

/// An address and a port, as a key or as data.
pub(crate) fn address_port(address: Ipv4Addr, port: u16) -> Vec<u8> {
    [&address.octets()[..], &port.to_be_bytes(), &[0; 2]].concat()
}

/// A protocol and a port, as a key.
pub(crate) fn protocol_port(protocol: u8, port: u16) -> Vec<u8> {
    [&[protocol, 0, 0, 0][..], &port.to_be_bytes(), &[0; 2]].concat()
}

/// A list of rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Where packets enter it, if it is not only reached from other chains.
    pub(crate) hook: Option<Hook>,
    pub(crate) rules: Vec<Vec<Expression>>,
}

/// The packet filter of a network namespace.
#[derive(Debug)]
pub(crate) struct Filter {
    socket: Socket,
    /// What the kernel has; nothing is known at first.
    applied: Option<Ruleset>,
}

impl Filter {
    /// That of the thread's network namespace.
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        let socket = Socket::open(Some(NETFILTER));
        let socket = socket.map_err(|error| NetlinkError::new("open a netfilter socket", error))?;
        Ok(Self { socket, applied: None })
    }

    /// Brings the kernel to what is wanted, in one transaction.
    pub(crate) fn apply(&mut self, wanted: Ruleset) -> Result<(), NetlinkError> {
        if self.applied.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let mut batch = Batch::new();
        if let Some(known) = &self.applied {
            batch.change(known, &wanted);
        } else {
            // Deleting what is not there would be refused: it is made first.
            batch.table(NEW_TABLE);
            batch.table(DELETE_TABLE);
            batch.table(NEW_TABLE);
            batch.change(&Ruleset::default(), &wanted);
        }
        match self.socket.batch("change the packet filter", batch.finish()) {
            Ok(()) => {
                self.applied = Some(wanted);
                Ok(())
            }
            // Another program changed the table: it is made anew.
            Err(error) if self.applied.is_some() && !is_transient(&error.source) => {
                tracing::warn!(%error, "the packet filter is made anew");
                self.applied = None;
                self.apply(wanted)
            }
            Err(error) => {
                self.applied = None;
                Err(error)
            }
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    [Errno::INTR, Errno::NOBUFS, Errno::NOMEM].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A transaction that is being written.
struct Batch {
    messages: Vec<Message>,
    /// How many anonymous maps there are.
    maps: u32,
}

impl Batch {
    fn new() -> Self {
        Self { messages: vec![Message::new(BATCH_BEGIN, REQUEST, &[0, 0, 0, 10])], maps: 0 }
    }

    /// The last request is acknowledged when the transaction is carried out.
    fn finish(mut self) -> Vec<Message> {
        if let Some(last) = self.messages.last_mut() {
            last.flag(ACK);
        }
        self.messages.push(Message::new(BATCH_END, REQUEST, &[0, 0, 0, 10]));
        self.messages
    }

    fn message(&mut self, kind: u16, flags: u16, fill: impl FnOnce(&mut Message)) {
        let mut message = Message::new(kind, REQUEST | flags, &FAMILY);
        fill(&mut message);
        self.messages.push(message);
    }

    fn table(&mut self, kind: u16) {
        self.message(kind, if kind == NEW_TABLE { CREATE } else { 0 }, |message| {
            message.put_text(1, TABLE);
        });
    }

    /// What must be done to get from one ruleset to another.
    fn change(&mut self, known: &Ruleset, wanted: &Ruleset) {
        let is_kept = |name: &String, set: &Set| known.sets.get(name).is_some_and(|old| old.is_like(set));
        // A set of another type cannot be changed: it is deleted with the rules that use it, further down.
        for (name, set) in wanted.sets.iter().filter(|(name, set)| !is_kept(name, set)) {
            self.set(name, set);
        }
        for (name, chain) in wanted.chains.iter().filter(|(name, _)| !known.chains.contains_key(*name)) {
            self.chain(name, chain);
        }
        for (name, chain) in &wanted.chains {
            let old = known.chains.get(name);
            if old == Some(chain) {
                continue;
            }
            if old.is_some_and(|old| !old.rules.is_empty()) {
                self.named(DELETE_RULE, name, 2);
            }
            for rule in &chain.rules {
                self.rule(name, rule);
            }
        }
        for (name, set) in &wanted.sets {
            self.elements(name, known.sets.get(name).filter(|old| old.is_like(set)), set);
        }
        let gone: Vec<&String> = known.chains.keys().filter(|name| !wanted.chains.contains_key(*name)).collect();
        for name in &gone {
            self.named(DELETE_RULE, name, 2);
        }
        for name in &gone {
            self.named(DELETE_CHAIN, name, 3);
        }
        for name in known.sets.keys().filter(|name| !wanted.sets.contains_key(*name)) {
            self.named(DELETE_SET, name, 2);
        }
    }

    /// Deletes something of the table by its name.
    fn named(&mut self, kind: u16, name: &str, attribute: u16) {
        self.message(kind, 0, |message| {
            message.put_text(1, TABLE).put_text(attribute, name);
        });
    }

    fn chain(&mut self, name: &str, chain: &Chain) {
        self.message(NEW_CHAIN, CREATE, |message| {
            message.put_text(1, TABLE).put_text(3, name);
            if let Some(hook) = chain.hook {
                message.nest(4, |nested| {
                    nested.put_be32(1, hook.number()).put_be32(2, hook.priority() as u32);
                });
                message.put_text(7, hook.kind());
            }
        });
    }

    fn set(&mut self, name: &str, set: &Set) {
        let (type_, length) = set.key.parts();
        self.message(NEW_SET, CREATE, |message| {
            message.put_text(1, TABLE).put_text(2, name).put_be32(10, 0);
            message.put_be32(4, type_).put_be32(5, length);
            match &set.kind {
                SetKind::Keys(_) => {
                    message.put_be32(3, 0);
                }
                SetKind::Verdicts(_) => {
                    message.put_be32(3, SET_MAP).put_be32(6, VERDICT_TYPE).put_be32(7, 0);
                }
                SetKind::Dynamic(timeout) => {
                    message.put_be32(3, SET_TIMEOUT | SET_DYNAMIC).put(11, &timeout.to_be_bytes());
                    message.nest(9, |description| {
                        description.put_be32(1, DYNAMIC_SIZE);
                    });
                }
            }
        });
    }

    /// Removes and adds elements.
    fn elements(&mut self, name: &str, old: Option<&Set>, new: &Set) {
        match (old.map(|old| &old.kind), &new.kind) {
            (old, SetKind::Keys(new)) => {
                let empty = BTreeSet::new();
                let old = if let Some(SetKind::Keys(old)) = old { old } else { &empty };
                let items = |keys: &[&Vec<u8>]| keys.iter().map(|key| ((*key).clone(), None)).collect::<Vec<_>>();
                self.send_elements(DELETE_ELEMENTS, name, 0, &items(&old.difference(new).collect::<Vec<_>>()));
                self.send_elements(NEW_ELEMENTS, name, 0, &items(&new.difference(old).collect::<Vec<_>>()));
            }
            (old, SetKind::Verdicts(new)) => {
                let empty = BTreeMap::new();
                let old = if let Some(SetKind::Verdicts(old)) = old { old } else { &empty };
                let gone = old.iter().filter(|(key, verdict)| new.get(*key) != Some(*verdict));
                let gone: Vec<Element> = gone.map(|(key, _)| (key.clone(), None)).collect();
                let come = new.iter().filter(|(key, verdict)| old.get(*key) != Some(*verdict));
                let come = come.map(|(key, verdict)| (key.clone(), Some(Data::Verdict(verdict.clone()))));
                self.send_elements(DELETE_ELEMENTS, name, 0, &gone);
                self.send_elements(NEW_ELEMENTS, name, 0, &come.collect::<Vec<_>>());
            }
            (_, SetKind::Dynamic(_)) => {}
        }
    }

    fn send_elements(&mut self, kind: u16, name: &str, id: u32, elements: &[Element]) {
        for part in elements.chunks(ELEMENTS_PER_MESSAGE) {
            self.message(kind, if kind == NEW_ELEMENTS { CREATE } else { 0 }, |message| {
                message.put_text(1, TABLE).put_text(2, name);
                if id != 0 {
                    message.put_be32(4, id);
                }
                message.nest(3, |list| {
                    for (key, data) in part {
                        list.nest(1, |element| {
                            element.nest(1, |value| {
                                value.put(1, key);
                            });
                            match data {
                                Some(Data::Verdict(verdict)) => {
                                    element.nest(2, |data| verdict.write(data));
                                }
                                Some(Data::Value(bytes)) => {
                                    element.nest(2, |data| {
                                        data.put(1, bytes);
                                    });
                                }
                                None => {}
                            }
                        });
                    }
                });
            });
        }
    }

    /// Adds a rule at the end of a chain, with the maps that belong to it.
    fn rule(&mut self, chain: &str, rule: &[Expression]) {
        let mut maps = Vec::new();
        for expression in rule {
            if let Expression::Choose(backends) = expression {
                self.maps += 1;
                let id = self.maps;
                maps.push(id);
                self.anonymous_map(id, backends);
            }
        }
        let mut maps = maps.into_iter();
        self.message(NEW_RULE, CREATE | APPEND, |message| {
            message.put_text(1, TABLE).put_text(2, chain);
            message.nest(4, |list| {
                for expression in rule {
                    expression.write(list, &mut maps);
                }
            });
        });
    }

    /// A map from numbers to addresses and ports, which lives as long as its rule.
    fn anonymous_map(&mut self, id: u32, backends: &[(Ipv4Addr, u16)]) {
        let name = expression::ANONYMOUS;
        let ((key, key_length), (data, data_length)) = (Type::Number.parts(), Type::AddressPort.parts());
        self.message(NEW_SET, CREATE, |message| {
            message.put_text(1, TABLE).put_text(2, name).put_be32(3, SET_ANONYMOUS | SET_CONSTANT | SET_MAP);
            message.put_be32(4, key).put_be32(5, key_length).put_be32(6, data).put_be32(7, data_length);
            message.put_be32(10, id);
            message.nest(9, |description| {
                description.put_be32(1, backends.len() as u32);
            });
        });
        let element = |(number, (address, port)): (usize, &(Ipv4Addr, u16))| {
            let key = (number as u32).to_ne_bytes().to_vec();
            (key, Some(Data::Value(address_port(*address, *port))))
        };
        let elements: Vec<Element> = backends.iter().enumerate().map(element).collect();
        self.send_elements(NEW_ELEMENTS, name, id, &elements);
    }
}

/// A key, and what it leads to.
type Element = (Vec<u8>, Option<Data>);

enum Data {
    Verdict(Verdict),
    Value(Vec<u8>),
}

impl Set {
    /// Whether one can become the other by adding and removing elements.
    fn is_like(&self, other: &Self) -> bool {
        let same_kind = match (&self.kind, &other.kind) {
            (SetKind::Dynamic(old), SetKind::Dynamic(new)) => old == new,
            (old, new) => std::mem::discriminant(old) == std::mem::discriminant(new),
        };
        self.key == other.key && same_kind
    }
}
