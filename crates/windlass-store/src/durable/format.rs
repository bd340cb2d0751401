//! What the files of a durable store look like, byte by byte, and how to write and read them. No
//! file is touched here.
//!
//! A store is a directory:
//!
//! ```text
//! LOCK                            flock'ed while a process has the store open; holds its pid
//! snapshot-<revision>.snap        the state at a revision; at most one is in use
//! log-<revision>.log              a segment: the transactions from a revision on
//! *.tmp                           a file that was being made when the process died; removed
//! ```
//!
//! `<revision>` is 20 decimal digits. Every number below is little-endian. A file is a header and
//! then frames, each beginning at a multiple of 8:
//!
//! ```text
//! file header, 32 bytes                      frame, 32 bytes + body + padding
//!  0  8  magic: WLASSLOG or WLASSNAP          0  4  marker: 57 4C 46 52 ("WLFR")
//!  8  4  format version: 1                    4  1  kind, see below
//! 12  4  salt                                 5  3  zero
//! 16  8  revision, as in the name             8  4  length of the body
//! 24  4  zero                                12  4  checksum of the body
//! 28  4  checksum of bytes 0 to 27           16  8  revision, see below
//!                                            24  4  count, see below
//!                                            28  4  checksum of bytes 0 to 27
//!                                            32     body, then zeros up to a multiple of 8
//! ```
//!
//! Checksums are CRC-32 (IEEE). Those of frames start from the file's salt, a random number, so that
//! a value which happens to hold a piece of a log is never taken for a frame.
//!
//! ```text
//! kind            in        revision                     count          body
//! 1 batch         log       of the first transaction     transactions   the transactions
//! 2 seal          log       the next segment begins at   0              none
//! 3 compaction    log       compacted up to              0              none
//! 4 end           log       the newest                   0              none: closed in good order
//! 5 entries       snapshot  0                            entries        the entries, in key order
//! 6 complete      snapshot  that of the file             0              u64: entries of the file
//!
//! transaction:  u32 writes, then each write:
//!               u8 operation, u32 key length, u32 value length, key, value
//!               operation 1 puts the value; 2 deletes the key (no value); 3 deletes the key and
//!               records the value as its last
//! entry:        u64 created, u64 modified, u32 key length, u32 value length, key, value
//! ```
//!
//! The transactions of a batch have consecutive revisions. A batch is written and synced before the
//! next is begun, so of all frames only the last can be incomplete: it is the unit that a crash may
//! tear. A segment is allocated before it is written, so a log that was not closed ends in zeros.

use bytes::Bytes;

use crate::{Entry, Event, Revision};

pub(crate) const FILE_HEADER: usize = 32;
pub(crate) const FRAME_HEADER: usize = 32;
pub(crate) const VERSION: u32 = 1;
const MARKER: [u8; 4] = *b"WLFR";

/// What a file is, by its magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Log,
    Snapshot,
}

impl FileKind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Log => b"WLASSLOG",
            Self::Snapshot => b"WLASSNAP",
        }
    }

    pub(crate) fn file_name(self, revision: Revision) -> String {
        match self {
            Self::Log => format!("log-{revision:020}.log"),
            Self::Snapshot => format!("snapshot-{revision:020}.snap"),
        }
    }

    /// The revision in a file's name, if it is the name of such a file.
    pub(crate) fn parse_name(self, name: &str) -> Option<Revision> {
        let digits = match self {
            Self::Log => name.strip_prefix("log-")?.strip_suffix(".log")?,
            Self::Snapshot => name.strip_prefix("snapshot-")?.strip_suffix(".snap")?,
        };
        let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse().ok())?
    }
}

/// The first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) kind: FileKind,
    pub(crate) salt: u32,
    pub(crate) revision: Revision,
}

/// Why a file's header is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Damaged(&'static str),
    Version(u32),
}

impl FileHeader {
    pub(crate) fn encode(self) -> [u8; FILE_HEADER] {
        let mut out = [0; FILE_HEADER];
        out[..8].copy_from_slice(self.kind.magic());
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.salt.to_le_bytes());
        out[16..24].copy_from_slice(&self.revision.to_le_bytes());
        let checksum = crc32fast::hash(&out[..28]);
        out[28..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(crate) fn decode(kind: FileKind, file: &[u8]) -> Result<Self, HeaderFault> {
        let Some(header) = file.get(..FILE_HEADER) else {
            return Err(HeaderFault::Damaged("the file ends within its header"));
        };
        if header[..8] != *kind.magic() {
            return Err(HeaderFault::Damaged("the file does not begin as a file of this store does"));
        }
        // A later version may lay out the rest in its own way, so it is looked at first.
        let version = u32_at(header, 8);
        if version != VERSION {
            return Err(HeaderFault::Version(version));
        }
        if u32_at(header, 28) != crc32fast::hash(&header[..28]) {
            return Err(HeaderFault::Damaged("the checksum of the file's header is wrong"));
        }
        Ok(Self { kind, salt: u32_at(header, 12), revision: u64_at(header, 16) })
    }
}

/// See the module's introduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    Batch = 1,
    Seal = 2,
    Compaction = 3,
    End = 4,
    Entries = 5,
    Complete = 6,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Batch,
            2 => Self::Seal,
            3 => Self::Compaction,
            4 => Self::End,
            5 => Self::Entries,
            6 => Self::Complete,
            _ => return None,
        })
    }
}

/// A frame being filled. The buffer is kept between frames.
#[derive(Debug)]
pub(crate) struct FrameBuf {
    bytes: Vec<u8>,
    count: u32,
}

impl FrameBuf {
    /// A buffer that once grew beyond this for one large transaction is not kept.
    const KEEP: usize = 8 << 20;

    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; FRAME_HEADER], count: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEADER);
        self.bytes.shrink_to(Self::KEEP);
        self.count = 0;
    }

    /// How many transactions or entries the frame holds.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// What the frame will take in the file.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len().next_multiple_of(8)
    }

    /// Adds a transaction of at least one event.
    pub(crate) fn transaction(&mut self, events: &[Event]) {
        self.number(events.len() as u32);
        for event in events {
            let kept = event.previous.as_ref().is_some_and(|previous| previous.value == event.entry.value);
            let (operation, value) = match (event.deleted, kept) {
                (false, _) => (1, &event.entry.value[..]),
                (true, true) => (2, &[][..]),
                (true, false) => (3, &event.entry.value[..]),
            };
            self.bytes.push(operation);
            self.pair(&event.key, value);
        }
        self.count += 1;
    }

    /// Adds an entry of a snapshot.
    pub(crate) fn entry(&mut self, entry: &Entry) {
        self.bytes.extend_from_slice(&entry.created.to_le_bytes());
        self.bytes.extend_from_slice(&entry.modified.to_le_bytes());
        self.pair(&entry.key, &entry.value);
        self.count += 1;
    }

    /// Adds bytes that are no transaction and no entry.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The finished frame, ready to be written to a file with this salt.
    pub(crate) fn finish(&mut self, kind: FrameKind, revision: Revision, salt: u32) -> &[u8] {
        let body = self.bytes.len() - FRAME_HEADER;
        let checksum = crc(salt, &self.bytes[FRAME_HEADER..]);
        let header = &mut self.bytes[..FRAME_HEADER];
        header[..4].copy_from_slice(&MARKER);
        header[4..8].copy_from_slice(&[kind as u8, 0, 0, 0]);
        header[8..12].copy_from_slice(&(body as u32).to_le_bytes());
        header[12..16].copy_from_slice(&checksum.to_le_bytes());
        header[16..24].copy_from_slice(&revision.to_le_bytes());
        header[24..28].copy_from_slice(&self.count.to_le_bytes());
        let checksum = crc(salt, &header[..28]);
        header[28..].copy_from_slice(&checksum.to_le_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        &self.bytes
    }

    fn number(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn pair(&mut self, key: &[u8], value: &[u8]) {
        self.number(key.len() as u32);
        self.number(value.len() as u32);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }
}

/// A frame as it lies in a file, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: FrameKind,
    pub(crate) revision: Revision,
    pub(crate) count: u32,
    pub(crate) body: &'a [u8],
}

/// A frame's header, checked: what is needed to find its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameHeader {
    kind: FrameKind,
    revision: Revision,
    count: u32,
    body: usize,
    checksum: u32,
}

impl FrameHeader {
    pub(crate) fn decode(header: &[u8; FRAME_HEADER], salt: u32) -> Result<Self, &'static str> {
        if header[..4] != MARKER {
            return Err("there is no frame");
        }
        if u32_at(header, 28) != crc(salt, &header[..28]) {
            return Err("the checksum of the frame's header is wrong");
        }
        let kind = FrameKind::from_byte(header[4]).ok_or("the frame is of an unknown kind")?;
        Ok(Self {
            kind,
            revision: u64_at(header, 16),
            count: u32_at(header, 24),
            body: u32_at(header, 8) as usize,
            checksum: u32_at(header, 12),
        })
    }

    /// The length of the body with its padding.
    pub(crate) fn padded_body(self) -> usize {
        self.body.next_multiple_of(8)
    }

    /// The frame, given the padded body.
    pub(crate) fn with_body(self, padded: &[u8], salt: u32) -> Result<Frame<'_>, &'static str> {
        let body = padded.get(..self.body).ok_or("the file ends within the frame")?;
        if crc(salt, body) != self.checksum {
            return Err("the checksum of the frame's body is wrong");
        }
        Ok(Frame { kind: self.kind, revision: self.revision, count: self.count, body })
    }
}

/// The frame at `offset` of a file in memory, and where the next one begins.
pub(crate) fn frame_at(file: &[u8], offset: usize, salt: u32) -> Result<(Frame<'_>, usize), &'static str> {
    let (header, rest) = file[offset..].split_first_chunk().ok_or("the file ends within the frame's header")?;
    let header = FrameHeader::decode(header, salt)?;
    let padded = rest.get(..header.padded_body()).ok_or("the file ends within the frame")?;
    let frame = header.with_body(padded, salt)?;
    Ok((frame, offset + FRAME_HEADER + padded.len()))
}

/// Whether any whole frame lies beyond the one at `offset`, which is damaged.
pub(crate) fn any_frame_after(file: &[u8], offset: usize, salt: u32) -> bool {
    let own = file[offset..].split_first_chunk().map(|(header, _)| FrameHeader::decode(header, salt));
    // Where the damaged frame still tells its length, nothing inside it counts.
    let from = offset
        + match own {
            Some(Ok(header)) => FRAME_HEADER + header.padded_body(),
            _ => 8,
        };
    let from = from.min(file.len());
    // Anywhere, not only where frames are put: some of what came before may be missing. The salt tells frames of this
    // file from whatever a value holds.
    let mut marked = file[from..].windows(MARKER.len()).enumerate().filter(|(_, bytes)| **bytes == MARKER);
    marked.any(|(at, _)| frame_at(file, from + at, salt).is_ok())
}

/// One write of a transaction in the log.
#[derive(Debug)]
pub(crate) enum Record<'a> {
    Put { key: &'a [u8], value: &'a [u8] },
    Delete { key: &'a [u8], last: Option<&'a [u8]> },
}

/// Reads the pieces of a frame's body, one after the other. `None` where the body does not hold what
/// it should.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    pub(crate) fn of(frame: Frame<'a>) -> Self {
        Self { rest: frame.body }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn number(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    pub(crate) fn record(&mut self) -> Option<Record<'a>> {
        let [operation] = self.chunk()?;
        let (key, value) = self.pair()?;
        match operation {
            1 => Some(Record::Put { key, value }),
            2 if value.is_empty() => Some(Record::Delete { key, last: None }),
            3 => Some(Record::Delete { key, last: Some(value) }),
            _ => None,
        }
    }

    pub(crate) fn entry(&mut self) -> Option<Entry> {
        let created = self.long()?;
        let modified = self.long()?;
        let (key, value) = self.pair()?;
        Some(Entry { key: Bytes::copy_from_slice(key), value: Bytes::copy_from_slice(value), created, modified })
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*chunk)
    }

    fn pair(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let key = self.number()? as usize;
        let value = self.number()? as usize;
        let (key, rest) = self.rest.split_at_checked(key)?;
        let (value, rest) = rest.split_at_checked(value)?;
        self.rest = rest;
        Some((key, value))
    }
}

fn crc(salt: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(bytes);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{delete_event, put_event};

    const SALT: u32 = 0x1234_5678;

    fn batch() -> Vec<u8> {
        let put = put_event("key".into(), "value".into(), 7, None);
        let previous = put.entry.clone();
        let mut frame = FrameBuf::new();
        frame.transaction(&[put]);
        frame.transaction(&[delete_event(Some("gone".into()), 8, previous)]);
        frame.finish(FrameKind::Batch, 7, SALT).to_vec()
    }

    /// The documented layout, spelled out: a change here is a change of the format version.
    #[test]
    fn bytes_are_as_documented() {
        let header = FileHeader { kind: FileKind::Log, salt: SALT, revision: 7 }.encode();
        assert_eq!(&header[..8], b"WLASSLOG");
        assert_eq!(header[8..28], [1, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            FileHeader::decode(FileKind::Log, &header),
            Ok(FileHeader { kind: FileKind::Log, salt: SALT, revision: 7 })
        );

        let frame = batch();
        assert_eq!(frame.len(), 80);
        assert_eq!(&frame[..8], b"WLFR\x01\0\0\0");
        assert_eq!(frame[8..12], [41, 0, 0, 0]);
        assert_eq!(frame[16..28], [7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(&frame[32..57], b"\x01\0\0\0\x01\x03\0\0\0\x05\0\0\0keyvalue\x01\0\0\0");
        assert_eq!(&frame[57..], b"\x03\x03\0\0\0\x04\0\0\0keygone\0\0\0\0\0\0\0");
    }

    #[test]
    fn no_flipped_bit_goes_unseen() {
        let frame = batch();
        let padding = 32 + 41;
        assert!(frame_at(&frame, 0, SALT).is_ok());
        assert!(frame_at(&frame, 0, SALT + 1).is_err(), "another file's frame");
        for bit in 0..padding * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(frame_at(&damaged, 0, SALT).is_err(), "bit {bit}");
        }
        for length in 0..frame.len() {
            assert!(frame_at(&frame[..length], 0, SALT).is_err(), "length {length}");
        }
        let header = FileHeader { kind: FileKind::Snapshot, salt: SALT, revision: 7 }.encode();
        for bit in 0..FILE_HEADER * 8 {
            let mut damaged = header;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(FileHeader::decode(FileKind::Snapshot, &damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_inside_a_value_is_not_a_later_frame() {
        // A torn batch one of whose values is a whole frame of this very file.
        let mut outer = FrameBuf::new();
        outer.transaction(&[put_event("k".into(), [&[0; 3][..], &batch()].concat().into(), 9, None)]);
        let mut file = outer.finish(FrameKind::Batch, 9, SALT).to_vec();
        let last = file.len() - 9;
        file[last] ^= 1;
        assert!(frame_at(&file, 0, SALT).is_err());
        assert!(!any_frame_after(&file, 0, SALT), "the header tells how far the frame goes");
        file.extend(batch());
        assert!(any_frame_after(&file, 0, SALT), "what follows it is a later frame");
        file[1] ^= 1;
        assert!(any_frame_after(&file, 0, SALT));
        file.drain(20..27);
        assert!(any_frame_after(&file, 0, SALT), "some bytes before it are missing");
    }

    #[test]
    fn names_carry_revisions() {
        assert_eq!(FileKind::Log.file_name(42), "log-00000000000000000042.log");
        for kind in [FileKind::Log, FileKind::Snapshot] {
            assert_eq!(kind.parse_name(&kind.file_name(42)), Some(42));
            for other in ["", "LOCK", "log-1.log", "log-0000000000000000004x.log", "log-00000000000000000042.log.tmp"] {
                assert_eq!(kind.parse_name(other), None, "{other}");
            }
        }
    }
}
