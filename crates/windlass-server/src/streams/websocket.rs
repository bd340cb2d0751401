//! WebSockets as a server speaks them (RFC 6455): the handshake's answer, frames, and messages.
//!
//! [`Decoder`] and [`encode`] do no I/O. A message is handed on in pieces as it arrives, so that a large one takes no more
//! memory than a small one. Extensions are not offered.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes, BytesMut};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// What a key is joined with before it is hashed.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// How much is read at once, and the most of a message that is handed on at once.
const PIECE: usize = 64 << 10;
/// Control frames carry no more.
const CONTROL_LIMIT: u64 = 125;

/// The answer to a client's key.
pub(crate) fn accept(key: &str) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{}{GUID}", key.trim()).as_bytes()))
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    fn parse(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// Something that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A piece of a message. The first piece of a message may be empty.
    Data {
        bytes: Bytes,
        first: bool,
        last: bool,
    },
    Ping(Bytes),
    Pong,
    Close,
}

/// What arrived breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("a frame has reserved bits or an unknown opcode")]
    Reserved,
    #[error("a frame of a client is not masked")]
    Unmasked,
    #[error("a control frame is too long or in parts")]
    Control,
    #[error("a message begins or goes on where it cannot")]
    Order,
}

/// Turns bytes into events.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The data frame whose payload is being read.
    frame: Option<DataFrame>,
    /// Whether a message has begun whose last frame has not come yet.
    in_message: bool,
}

#[derive(Debug)]
struct DataFrame {
    left: u64,
    mask: [u8; 4],
    first: bool,
    fin: bool,
}

impl Decoder {
    /// The next event, if enough bytes are there. What it used is taken off the buffer.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, ProtocolError> {
        if self.frame.is_none() {
            let Some(head) = Head::parse(buffer)? else { return Ok(None) };
            if head.opcode.is_control() {
                if !head.fin || head.length > CONTROL_LIMIT {
                    return Err(ProtocolError::Control);
                }
                let length = head.length as usize;
                if buffer.len() < head.size + length {
                    return Ok(None);
                }
                buffer.advance(head.size);
                let mut payload = buffer.split_to(length);
                unmask(&mut payload, &mut { head.mask });
                return Ok(Some(match head.opcode {
                    Opcode::Ping => Event::Ping(payload.freeze()),
                    Opcode::Pong => Event::Pong,
                    _ => Event::Close,
                }));
            }
            if (head.opcode == Opcode::Continuation) != self.in_message {
                return Err(ProtocolError::Order);
            }
            buffer.advance(head.size);
            let first = !self.in_message;
            self.in_message = !head.fin;
            self.frame = Some(DataFrame { left: head.length, mask: head.mask, first, fin: head.fin });
        }
        let Some(frame) = &mut self.frame else { return Ok(None) };
        let length = (buffer.len().min(PIECE) as u64).min(frame.left) as usize;
        if length == 0 && frame.left > 0 {
            return Ok(None);
        }
        let mut piece = buffer.split_to(length);
        unmask(&mut piece, &mut frame.mask);
        frame.left -= length as u64;
        let (first, is_whole) = (std::mem::replace(&mut frame.first, false), frame.left == 0);
        let last = is_whole && frame.fin;
        if is_whole {
            self.frame = None;
        }
        Ok(Some(Event::Data { bytes: piece.freeze(), first, last }))
    }
}

/// The head of a frame.
struct Head {
    opcode: Opcode,
    fin: bool,
    length: u64,
    mask: [u8; 4],
    size: usize,
}

impl Head {
    fn parse(buffer: &[u8]) -> Result<Option<Self>, ProtocolError> {
        let [first, second, ..] = *buffer else { return Ok(None) };
        let opcode = Opcode::parse(first & 0xf).filter(|_| first & 0x70 == 0).ok_or(ProtocolError::Reserved)?;
        if second & 0x80 == 0 {
            return Err(ProtocolError::Unmasked);
        }
        let extended = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let size = 2 + extended + 4;
        let Some(head) = buffer.get(..size) else { return Ok(None) };
        let length = match extended {
            0 => u64::from(second & 0x7f),
            _ => head[2..2 + extended].iter().fold(0, |length, byte| (length << 8) | u64::from(*byte)),
        };
        let mut mask = [0; 4];
        mask.copy_from_slice(&head[size - 4..]);
        Ok(Some(Self { opcode, fin: first & 0x80 != 0, length, mask, size }))
    }
}

/// Applies a mask, and turns it to where the next piece begins.
fn unmask(payload: &mut [u8], mask: &mut [u8; 4]) {
    let mut chunks = payload.chunks_exact_mut(8);
    let word = u64::from_ne_bytes([mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3]]);
    for chunk in &mut chunks {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        chunk.copy_from_slice(&(u64::from_ne_bytes(bytes) ^ word).to_ne_bytes());
    }
    let rest = chunks.into_remainder();
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    mask.rotate_left(rest.len() % 4);
}

/// A whole frame of a server, in two parts: its head with `prefix`, and `payload`.
pub(crate) fn encode(opcode: Opcode, prefix: &[u8], payload: &[u8]) -> BytesMut {
    let length = prefix.len() + payload.len();
    let mut frame = BytesMut::with_capacity(length + 10);
    frame.extend_from_slice(&[0x80 | opcode as u8]);
    match length {
        0..126 => frame.extend_from_slice(&[length as u8]),
        126..0x1_0000 => {
            frame.extend_from_slice(&[126]);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            frame.extend_from_slice(&[127]);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(prefix);
    frame.extend_from_slice(payload);
    frame
}

/// A frame that ends the connection in order.
pub(crate) fn close() -> BytesMut {
    encode(Opcode::Close, &1000_u16.to_be_bytes(), &[])
}

/// Reads events from a stream. Cancel-safe.
pub(crate) struct Reader<R> {
    stream: R,
    buffer: BytesMut,
    decoder: Decoder,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream, buffer: BytesMut::new(), decoder: Decoder::default() }
    }

    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Event>> {
        loop {
            let next = self.decoder.next(&mut self.buffer);
            if let Some(event) = next.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                return Ok(Some(event));
            }
            self.buffer.reserve(PIECE);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Writes frames in order.
pub(crate) async fn write<W: AsyncWrite + Unpin>(stream: &mut W, frame: &[u8]) -> io::Result<()> {
    stream.write_all(frame).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame as a client sends it.
    fn masked(opcode: Opcode, fin: bool, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
        let plain = encode(opcode, &[], payload);
        let head = plain.len() - payload.len();
        let mut frame = plain[..head].to_vec();
        frame[0] = if fin { frame[0] } else { frame[0] & 0x7f };
        frame[1] |= 0x80;
        frame.extend(mask);
        let mut body = payload.to_vec();
        unmask(&mut body, &mut { mask });
        frame.extend(body);
        frame
    }

    fn decode(bytes: &[u8], step: usize) -> Result<Vec<Event>, ProtocolError> {
        let (mut decoder, mut buffer, mut events) = (Decoder::default(), BytesMut::new(), Vec::new());
        for part in bytes.chunks(step.max(1)) {
            buffer.extend_from_slice(part);
            while let Some(event) = decoder.next(&mut buffer)? {
                events.push(event);
            }
        }
        Ok(events)
    }

    #[test]
    fn a_key_is_answered_as_in_the_specification() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn frames_that_break_the_protocol_are_refused() {
        let check = |bytes: &[u8], expected| assert_eq!(decode(bytes, 64), Err(expected), "{bytes:?}");
        check(&[0x82, 0x01, 0], ProtocolError::Unmasked);
        check(&[0xc2, 0x81, 0, 0, 0, 0, 0], ProtocolError::Reserved);
        check(&[0x83, 0x81, 0, 0, 0, 0, 0], ProtocolError::Reserved);
        check(&masked(Opcode::Ping, false, b"", [0; 4]), ProtocolError::Control);
        check(&masked(Opcode::Ping, true, &[0; 126], [0; 4]), ProtocolError::Control);
        check(&masked(Opcode::Continuation, true, b"x", [0; 4]), ProtocolError::Order);
        let twice = [masked(Opcode::Binary, false, b"x", [0; 4]), masked(Opcode::Text, true, b"x", [0; 4])].concat();
        check(&twice, ProtocolError::Order);
    }

    proptest! {
        /// However the bytes arrive, messages come out whole and in order, with control frames between their parts.
        #[test]
        fn messages_arrive_as_they_were_sent(
            messages in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4), 1..5),
            mask in any::<[u8; 4]>(),
            step in 1_usize..700,
        ) {
            let mut sent = Vec::new();
            for parts in &messages {
                for (at, part) in parts.iter().enumerate() {
                    let opcode = if at == 0 { Opcode::Binary } else { Opcode::Continuation };
                    sent.extend(masked(opcode, at + 1 == parts.len(), part, mask));
                    sent.extend(masked(Opcode::Ping, true, b"there?", mask));
                }
            }
            let mut got: Vec<Vec<u8>> = Vec::new();
            for event in decode(&sent, step).expect("frames") {
                match event {
                    Event::Data { bytes, first, .. } => {
                        if first {
                            got.push(Vec::new());
                        }
                        got.last_mut().expect("a message").extend_from_slice(&bytes);
                    }
                    Event::Ping(bytes) => prop_assert_eq!(&*bytes, b"there?"),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert_eq!(got, messages.iter().map(|parts| parts.concat()).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), step in 1_usize..50) {
            let _ = decode(&bytes, step);
        }
    }
}
