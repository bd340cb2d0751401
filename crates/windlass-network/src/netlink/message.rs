//! Netlink messages: a header, a fixed part, and attributes that may nest.
//!
//! Lengths and types are in the byte order of the host; what is in an attribute is the affair of the subsystem.

/// `NLM_F_REQUEST`.
pub(crate) const REQUEST: u16 = 0x01;
/// `NLM_F_ACK`.
pub(crate) const ACK: u16 = 0x04;
/// `NLM_F_DUMP`.
pub(crate) const DUMP: u16 = 0x300;
/// `NLM_F_EXCL`.
pub(crate) const EXCL: u16 = 0x200;
/// `NLM_F_CREATE`.
pub(crate) const CREATE: u16 = 0x400;
/// `NLM_F_APPEND`.
pub(crate) const APPEND: u16 = 0x800;

/// The length of a message's header.
pub(crate) const HEADER: usize = 16;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;
/// The bits of an attribute's type that say what it is.
const TYPE_MASK: u16 = 0x3fff;

/// A message that is being written.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A message with its fixed part.
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        let mut message = Self { bytes };
        message.pad();
        message
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Adds an attribute.
    pub(crate) fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = 4 + value.len() as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
        self
    }

    /// Adds a text that ends with a zero.
    pub(crate) fn put_text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes)
    }

    /// Adds a number in the host's byte order.
    pub(crate) fn put_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Adds a number in the network's byte order.
    pub(crate) fn put_be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Adds an attribute that holds others.
    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest_with(kind | NESTED, &[], fill)
    }

    /// Adds an attribute that holds a fixed part and others.
    pub(crate) fn nest_with(&mut self, kind: u16, fixed: &[u8], fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(fixed);
        self.pad();
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Adds flags.
    pub(crate) fn flag(&mut self, flags: u16) {
        let known = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]);
        self.bytes[6..8].copy_from_slice(&(known | flags).to_ne_bytes());
    }

    /// The message as it is sent, with its number.
    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }

    /// The length so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// The attributes in some bytes. What is cut off is left out.
#[derive(Debug, Clone)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// The first attribute of a type.
    pub(crate) fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.clone().find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    /// A text, without the zero at its end.
    pub(crate) fn text(&self, kind: u16) -> Option<&'a str> {
        let value = self.get(kind)?;
        std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()
    }

    /// A number in the host's byte order.
    pub(crate) fn u32(&self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.get(kind)?.try_into().ok()?))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16::from_ne_bytes(self.0.get(0..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(self.0.get(2..4)?.try_into().ok()?) & TYPE_MASK;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_nest() {
        let mut message = Message::new(16, REQUEST | ACK, &[1, 2, 3]);
        message.put_text(3, "eth0").nest(18, |info| {
            info.put_text(1, "veth").nest_with(2, &[9; 4], |peer| {
                peer.put_u32(4, 7);
            });
        });
        let bytes = message.finish(5);
        assert_eq!(bytes.len() as u32, u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let top = Attributes(&bytes[HEADER + 4..]);
        assert_eq!(top.text(3), Some("eth0"));
        let info = Attributes(top.get(18).expect("nested"));
        assert_eq!(info.text(1), Some("veth"));
        assert_eq!(Attributes(&info.get(2).expect("nested")[4..]).u32(4), Some(7));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(Attributes(&bytes).count() <= bytes.len());
        }

        #[test]
        fn attributes_are_read_as_they_were_written(all in prop::collection::vec((0_u16..100, prop::collection::vec(any::<u8>(), 0..20)), 0..8)) {
            let mut message = Message::new(1, 0, &[]);
            for (kind, value) in &all {
                message.put(*kind, value);
            }
            let bytes = message.finish(1);
            let read: Vec<(u16, Vec<u8>)> = Attributes(&bytes[HEADER..]).map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(read, all);
        }
    }
}
