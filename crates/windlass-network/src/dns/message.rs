//! The wire format of DNS (RFC 1035, with EDNS of RFC 6891), as far as a server of A, AAAA, CNAME, PTR, SOA, SRV and TXT
//! records needs it.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What may be sent over UDP to a client that does not say otherwise.
pub const PLAIN_UDP: usize = 512;
/// The most that is sent over UDP, whatever the client says: more may be lost in fragments.
pub const MAX_UDP: usize = 4096;
const HEADER: usize = 12;
const MAX_NAME: usize = 255;
const MAX_LABEL: usize = 63;
/// The type of the pseudo record that says what the client can do.
const OPT: u16 = 41;
/// The class of the Internet.
const IN: u16 = 1;

/// A name: labels in lower case, the top level last.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Vec<Vec<u8>>);

impl Name {
    /// The name that a text with dots stands for. A label that is empty or too long makes it none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let labels: Vec<Vec<u8>> = text.split('.').map(|label| label.to_ascii_lowercase().into_bytes()).collect();
        let fits = labels.iter().all(|label| (1..=MAX_LABEL).contains(&label.len()));
        let name = Self(labels);
        (fits && name.wire_len() <= MAX_NAME).then_some(name)
    }

    /// The labels, the top level last.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.0.iter().map(|label| std::str::from_utf8(label).unwrap_or("\u{fffd}"))
    }

    fn wire_len(&self) -> usize {
        self.0.iter().map(|label| label.len() + 1).sum::<usize>() + 1
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for label in self.labels() {
            write!(f, "{label}.")?;
        }
        if self.0.is_empty() { f.write_str(".") } else { Ok(()) }
    }
}

/// The type of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Type(pub u16);

impl Type {
    /// An IPv4 address.
    pub const A: Self = Self(1);
    /// Another name.
    pub const CNAME: Self = Self(5);
    /// The start of a zone.
    pub const SOA: Self = Self(6);
    /// The name of an address.
    pub const PTR: Self = Self(12);
    /// Text.
    pub const TXT: Self = Self(16);
    /// An IPv6 address.
    pub const AAAA: Self = Self(28);
    /// A service.
    pub const SRV: Self = Self(33);
    /// All types.
    pub const ANY: Self = Self(255);
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the RFCs")]
pub enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Cname(Name),
    Ptr(Name),
    Srv { priority: u16, weight: u16, port: u16, target: Name },
    Txt(String),
    Soa { server: Name, mailbox: Name, serial: u32, minimum: u32 },
}

impl Data {
    /// The type of such a record.
    pub fn kind(&self) -> Type {
        match self {
            Self::A(_) => Type::A,
            Self::Aaaa(_) => Type::AAAA,
            Self::Cname(_) => Type::CNAME,
            Self::Ptr(_) => Type::PTR,
            Self::Srv { .. } => Type::SRV,
            Self::Txt(_) => Type::TXT,
            Self::Soa { .. } => Type::SOA,
        }
    }
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose record it is.
    pub name: Name,
    /// For how many seconds it may be kept.
    pub ttl: u32,
    /// What it says.
    pub data: Data,
}

/// How a question was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the RFCs")]
pub enum Code {
    NoError = 0,
    FormatError = 1,
    ServerFailure = 2,
    NameError = 3,
    NotImplemented = 4,
    Refused = 5,
}

/// A question from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The client's number for it.
    pub id: u16,
    /// What kind of request it is; 0 for a question.
    pub opcode: u8,
    /// Whether the client wants others to be asked.
    pub recursion_desired: bool,
    /// The name that is asked about.
    pub name: Name,
    /// The type of records.
    pub kind: Type,
    /// The class of records.
    pub class: u16,
    /// How large an answer over UDP may be.
    pub udp_size: usize,
    /// Whether the client speaks EDNS.
    pub edns: bool,
    /// The question as it was sent: clients compare it, letter case included.
    question: Vec<u8>,
}

/// Why a message cannot be answered with more than an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// It is not a request, or too short to be one: it is not answered.
    Ignore,
    /// A request that cannot be understood; its number.
    Answer(u16),
}

impl Query {
    /// Reads a request.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let header: &[u8; HEADER] =
            bytes.get(..HEADER).and_then(|head| head.try_into().ok()).ok_or(Malformed::Ignore)?;
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (id, flags) = (number(0), number(2));
        if flags & 0x8000 != 0 {
            return Err(Malformed::Ignore);
        }
        let malformed = Malformed::Answer(id);
        if number(4) != 1 {
            return Err(malformed);
        }
        let mut at = HEADER;
        let name = read_name(bytes, &mut at).ok_or(malformed)?;
        let fixed = bytes.get(at..at + 4).ok_or(malformed)?;
        let (kind, class) = (Type(be16(fixed, 0)), be16(fixed, 2));
        let question = bytes[HEADER..at + 4].to_vec();
        at += 4;
        let (mut udp_size, mut edns) = (PLAIN_UDP, false);
        for _ in 0..usize::from(number(6)) + usize::from(number(8)) + usize::from(number(10)) {
            read_name(bytes, &mut at).ok_or(malformed)?;
            let fixed = bytes.get(at..at + 10).ok_or(malformed)?;
            if be16(fixed, 0) == OPT {
                (udp_size, edns) = (usize::from(be16(fixed, 2)).clamp(PLAIN_UDP, MAX_UDP), true);
            }
            at += 10 + usize::from(be16(fixed, 8));
            if at > bytes.len() {
                return Err(malformed);
            }
        }
        let opcode = (flags >> 11 & 0xf) as u8;
        Ok(Self { id, opcode, recursion_desired: flags & 0x100 != 0, name, kind, class, udp_size, edns, question })
    }

    /// Whether it is about the Internet, and a question.
    pub fn is_plain(&self) -> bool {
        self.opcode == 0 && (self.class == IN || self.class == 255)
    }
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a name, which may end with a reference to another part of the message.
fn read_name(bytes: &[u8], at: &mut usize) -> Option<Name> {
    let (mut labels, mut position, mut end, mut length) = (Vec::new(), *at, None, 1);
    loop {
        let first = *bytes.get(position)?;
        match first {
            0 => {
                *at = end.unwrap_or(position + 1);
                return Some(Name(labels));
            }
            1..=63 => {
                let label = bytes.get(position + 1..position + 1 + usize::from(first))?;
                length += label.len() + 1;
                if length > MAX_NAME {
                    return None;
                }
                labels.push(label.to_ascii_lowercase());
                position += 1 + usize::from(first);
            }
            0xc0.. => {
                let target = usize::from(be16(bytes.get(position..position + 2)?, 0) & 0x3fff);
                end.get_or_insert(position + 2);
                // References lead back, so this ends.
                if target >= position {
                    return None;
                }
                position = target;
            }
            _ => return None,
        }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// How the question was answered.
    pub code: Code,
    /// Whether the answer comes from the one who knows.
    pub authoritative: bool,
    /// Whether others are asked.
    pub recursion_available: bool,
    /// The answer.
    pub answers: Vec<Record>,
    /// Who knows, for answers that say that there is nothing.
    pub authority: Vec<Record>,
    /// What the client will ask next.
    pub additional: Vec<Record>,
}

impl Response {
    /// An answer without records.
    pub fn empty(code: Code) -> Self {
        Self {
            code,
            authoritative: false,
            recursion_available: false,
            answers: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
        }
    }

    /// The answer as it is sent. It has at most `limit` bytes: records that are not needed are left out first, then all, and
    /// the client is told to ask over TCP.
    pub fn write(&self, query: &Query, limit: usize) -> Vec<u8> {
        let whole = self.sections(query, [&self.answers, &self.authority, &self.additional], false);
        if whole.len() <= limit {
            return whole;
        }
        let needed = self.sections(query, [&self.answers, &self.authority, &[]], false);
        if needed.len() <= limit { needed } else { self.sections(query, [&[], &[], &[]], true) }
    }

    fn sections(&self, query: &Query, sections: [&[Record]; 3], truncated: bool) -> Vec<u8> {
        let mut flags = 0x8000 | u16::from(query.opcode) << 11 | self.code as u16;
        for (is_set, bit) in [
            (self.authoritative, 0x400),
            (truncated, 0x200),
            (query.recursion_desired, 0x100),
            (self.recursion_available, 0x80),
        ] {
            flags |= if is_set { bit } else { 0 };
        }
        let mut writer = Writer { bytes: Vec::with_capacity(PLAIN_UDP), names: HashMap::new() };
        let additional = sections[2].len() + usize::from(query.edns);
        let counts = [1, sections[0].len(), sections[1].len(), additional];
        for number in [query.id, flags].into_iter().chain(counts.map(|count| count as u16)) {
            writer.number(number);
        }
        writer.note_question(&query.name);
        writer.bytes.extend_from_slice(&query.question);
        for record in sections.into_iter().flatten() {
            writer.record(record);
        }
        if query.edns {
            writer.bytes.push(0);
            for number in [OPT, MAX_UDP as u16, 0, 0, 0] {
                writer.number(number);
            }
        }
        writer.bytes
    }
}

/// An error for a request that cannot be understood.
pub fn error(id: u16, code: Code) -> Vec<u8> {
    let flags = 0x8000 | code as u16;
    [id, flags, 0, 0, 0, 0].iter().flat_map(|number| number.to_be_bytes()).collect()
}

struct Writer {
    bytes: Vec<u8>,
    /// Where the ends of names were written.
    names: HashMap<Vec<Vec<u8>>, u16>,
}

impl Writer {
    fn number(&mut self, number: u16) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    /// The question is written as it came; names refer to it.
    fn note_question(&mut self, name: &Name) {
        let mut at = self.bytes.len();
        for start in 0..name.0.len() {
            self.names.insert(name.0[start..].to_vec(), at as u16);
            at += name.0[start].len() + 1;
        }
    }

    fn name(&mut self, name: &Name) {
        for start in 0..name.0.len() {
            let rest = &name.0[start..];
            if let Some(at) = self.names.get(rest) {
                self.number(0xc000 | at);
                return;
            }
            if self.bytes.len() < 0x4000 {
                self.names.insert(rest.to_vec(), self.bytes.len() as u16);
            }
            self.bytes.push(rest[0].len() as u8);
            self.bytes.extend_from_slice(&rest[0]);
        }
        self.bytes.push(0);
    }

    fn record(&mut self, record: &Record) {
        self.name(&record.name);
        self.number(record.data.kind().0);
        self.number(IN);
        self.bytes.extend_from_slice(&record.ttl.to_be_bytes());
        let length_at = self.bytes.len();
        self.number(0);
        match &record.data {
            Data::A(address) => self.bytes.extend_from_slice(&address.octets()),
            Data::Aaaa(address) => self.bytes.extend_from_slice(&address.octets()),
            Data::Cname(name) | Data::Ptr(name) => self.name(name),
            Data::Srv { priority, weight, port, target } => {
                for number in [*priority, *weight, *port] {
                    self.number(number);
                }
                self.name(target);
            }
            Data::Txt(text) => {
                for part in text.as_bytes().chunks(255) {
                    self.bytes.push(part.len() as u8);
                    self.bytes.extend_from_slice(part);
                }
            }
            Data::Soa { server, mailbox, serial, minimum } => {
                self.name(server);
                self.name(mailbox);
                for number in [*serial, 7200, 1800, 86_400, *minimum] {
                    self.bytes.extend_from_slice(&number.to_be_bytes());
                }
            }
        }
        let length = (self.bytes.len() - length_at - 2) as u16;
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }
}

/// Writes a question: for tests, and for those who ask.
pub fn question(id: u16, name: &Name, kind: Type) -> Vec<u8> {
    let mut writer = Writer { bytes: Vec::new(), names: HashMap::new() };
    for number in [id, 0x100, 1, 0, 0, 0] {
        writer.number(number);
    }
    writer.name(name);
    writer.number(kind.0);
    writer.number(IN);
    writer.bytes
}

/// The number of a message, its code and the addresses in its answers; `None` if it is not an answer. For tests and checks.
pub fn read_answer(bytes: &[u8]) -> Option<(u16, u8, Vec<std::net::IpAddr>)> {
    let header = bytes.get(..HEADER)?;
    let mut at = HEADER;
    for _ in 0..be16(header, 4) {
        read_name(bytes, &mut at)?;
        at += 4;
    }
    let mut addresses = Vec::new();
    for _ in 0..be16(header, 6) {
        read_name(bytes, &mut at)?;
        let fixed = bytes.get(at..at + 10)?;
        let data = bytes.get(at + 10..at + 10 + usize::from(be16(fixed, 8)))?;
        match (Type(be16(fixed, 0)), <[u8; 4]>::try_from(data), <[u8; 16]>::try_from(data)) {
            (Type::A, Ok(four), _) => addresses.push(four.into()),
            (Type::AAAA, _, Ok(six)) => addresses.push(six.into()),
            _ => {}
        }
        at += 10 + data.len();
    }
    (be16(header, 2) & 0x8000 != 0).then(|| (be16(header, 0), (be16(header, 2) & 0xf) as u8, addresses))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    #[test]
    fn questions_are_read_with_any_case_and_echoed() {
        let mut bytes = question(7, &name("web.default.svc.cluster.local"), Type::A);
        bytes[13] = b'W';
        let query = Query::parse(&bytes).expect("a question");
        assert_eq!((query.id, query.kind, query.name.clone()), (7, Type::A, name("web.default.svc.cluster.local")));
        let written = Response::empty(Code::NoError).write(&query, PLAIN_UDP);
        assert_eq!(written[HEADER..], bytes[HEADER..]);
    }

    #[test]
    fn names_are_compressed_and_read_again() {
        let query = Query::parse(&question(1, &name("web.default.svc.cluster.local"), Type::SRV)).expect("a question");
        let target = name("web-0.web.default.svc.cluster.local");
        let srv = Data::Srv { priority: 0, weight: 100, port: 80, target: target.clone() };
        let mut response = Response::empty(Code::NoError);
        response.answers = vec![Record { name: query.name.clone(), ttl: 5, data: srv }];
        response.additional = vec![Record { name: target, ttl: 5, data: Data::A(Ipv4Addr::new(10, 244, 0, 5)) }];
        let written = response.write(&query, PLAIN_UDP);
        // The question, two references of two bytes each, one new label, and what is fixed.
        assert_eq!(written.len(), HEADER + 31 + 4 + (2 + 10 + 6 + 8) + (2 + 10 + 4));
    }

    #[test]
    fn what_does_not_fit_is_truncated() {
        let query = Query::parse(&question(1, &name("web.default.svc.cluster.local"), Type::A)).expect("a question");
        let mut response = Response::empty(Code::NoError);
        let record = |n: u8| Record { name: query.name.clone(), ttl: 5, data: Data::A(Ipv4Addr::new(10, 244, 0, n)) };
        response.answers = (0..100).map(record).collect();
        let written = response.write(&query, PLAIN_UDP);
        assert!(written.len() <= PLAIN_UDP && written[2] & 2 != 0);
        let whole = response.write(&query, 65_535);
        assert_eq!(read_answer(&whole).map(|(_, _, addresses)| addresses.len()), Some(100));
        assert_eq!(whole[2] & 2, 0);
    }

    #[test]
    fn answers_and_short_messages_are_ignored() {
        assert_eq!(Query::parse(&[1, 2, 3]), Err(Malformed::Ignore));
        let mut bytes = question(9, &name("a.b"), Type::A);
        bytes.truncate(14);
        assert_eq!(Query::parse(&bytes), Err(Malformed::Answer(9)));
        bytes[2] |= 0x80;
        assert_eq!(Query::parse(&bytes), Err(Malformed::Ignore));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_parsed(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Query::parse(&bytes);
            let _ = read_answer(&bytes);
        }

        #[test]
        fn questions_survive(labels in prop::collection::vec("[a-z0-9_-]{1,20}", 0..8), kind in any::<u16>(), id in any::<u16>()) {
            let asked = name(&labels.join("."));
            let query = Query::parse(&question(id, &asked, Type(kind))).expect("a question");
            prop_assert_eq!((query.id, query.kind, query.name), (id, Type(kind), asked));
        }

        #[test]
        fn addresses_survive(addresses in prop::collection::vec(any::<[u8; 4]>(), 0..20)) {
            let query = Query::parse(&question(3, &name("x.y"), Type::A)).expect("a question");
            let mut response = Response::empty(Code::NoError);
            let record = |address: &[u8; 4]| Record { name: name("x.y"), ttl: 5, data: Data::A((*address).into()) };
            response.answers = addresses.iter().map(record).collect();
            let read = read_answer(&response.write(&query, 65_535)).expect("an answer");
            prop_assert_eq!(read, (3, 0, addresses.into_iter().map(Into::into).collect()));
        }
    }
}
