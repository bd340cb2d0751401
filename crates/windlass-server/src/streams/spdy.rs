//! SPDY/3.1 as Kubernetes' clients speak it over an upgraded connection: frames and header blocks.
//!
//! It does no I/O. The payload of a data frame is handed on in pieces as it arrives. There is no flow control, because the
//! library that the clients use (`moby/spdystream`) has none: what is not read holds up the connection.

mod connection;
mod dictionary;

use std::collections::BTreeMap;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

pub(crate) use connection::{Connection, Outgoing, Outlet, Stream};

/// The most of a data frame that is handed on at once.
pub(crate) const PIECE: usize = 64 << 10;
/// Control frames of the clients have a few headers.
const CONTROL_LIMIT: usize = 64 << 10;
/// What a header block may be when it is inflated.
const HEADERS_LIMIT: usize = 64 << 10;

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const FLAG_FIN: u8 = 1;

/// Why a stream is refused: `PROTOCOL_ERROR`.
pub(crate) const PROTOCOL_ERROR: u32 = 1;
/// `INVALID_STREAM`: data for a stream that is not there.
pub(crate) const INVALID_STREAM: u32 = 2;
/// `REFUSED_STREAM`: there are too many.
pub(crate) const REFUSED_STREAM: u32 = 3;
/// `CANCEL`: it is of no use any more.
pub(crate) const CANCEL: u32 = 5;

/// The headers of a stream; names are in lower case.
pub(crate) type Headers = BTreeMap<String, String>;

/// Something that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The client opens a stream; `fin` if it sends nothing on it.
    Open { id: u32, headers: Headers, fin: bool },
    /// A piece of what it sends; `fin` with the last.
    Data { id: u32, bytes: Bytes, fin: bool },
    /// The client gives a stream up.
    Reset { id: u32 },
    /// To be sent back if it is the client's own.
    Ping { id: u32 },
    /// The client opens no more streams.
    GoAway,
    /// Something that changes nothing here.
    Ignored,
}

/// What arrived breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("a frame of another version of SPDY")]
    Version,
    #[error("a control frame is too long or too short")]
    Length,
    #[error("a header block cannot be read")]
    Headers,
}

/// Turns bytes into events.
pub(crate) struct Decoder {
    /// The data frame whose payload is being read: its stream, what is left, whether it is the last.
    frame: Option<(u32, usize, bool)>,
    inflate: Decompress,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { frame: None, inflate: Decompress::new(true) }
    }
}

impl Decoder {
    /// The next event, if enough bytes are there. What it used is taken off the buffer.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, ProtocolError> {
        if self.frame.is_none() {
            let Some(head) = buffer.first_chunk::<8>() else { return Ok(None) };
            let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            let (flags, length) = (head[4], u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize);
            if first & 0x8000_0000 == 0 {
                buffer.advance(8);
                self.frame = Some((first, length, flags & FLAG_FIN != 0));
            } else {
                if ((first >> 16) & 0x7fff) as u16 != VERSION {
                    return Err(ProtocolError::Version);
                }
                if length > CONTROL_LIMIT {
                    return Err(ProtocolError::Length);
                }
                if buffer.len() < 8 + length {
                    return Ok(None);
                }
                buffer.advance(8);
                let payload = buffer.split_to(length).freeze();
                return self.control(first as u16, flags, payload).map(Some);
            }
        }
        let Some((id, left, is_last)) = &mut self.frame else { return Ok(None) };
        let length = buffer.len().min(PIECE).min(*left);
        if length == 0 && *left > 0 {
            return Ok(None);
        }
        *left -= length;
        let (id, fin, is_whole) = (*id, *is_last && *left == 0, *left == 0);
        if is_whole {
            self.frame = None;
        }
        Ok(Some(Event::Data { id, bytes: buffer.split_to(length).freeze(), fin }))
    }

    fn control(&mut self, kind: u16, flags: u8, mut payload: Bytes) -> Result<Event, ProtocolError> {
        let number = |payload: &mut Bytes| {
            if payload.len() < 4 { Err(ProtocolError::Length) } else { Ok(payload.get_u32() & 0x7fff_ffff) }
        };
        Ok(match kind {
            SYN_STREAM => {
                let id = number(&mut payload)?;
                let _associated = number(&mut payload)?;
                if payload.len() < 2 {
                    return Err(ProtocolError::Length);
                }
                payload.advance(2);
                Event::Open { id, headers: self.headers(&payload)?, fin: flags & FLAG_FIN != 0 }
            }
            // A header block that is of no use has to be read all the same: the blocks share one dictionary.
            SYN_REPLY | 8 => {
                number(&mut payload)?;
                self.headers(&payload)?;
                Event::Ignored
            }
            RST_STREAM => Event::Reset { id: number(&mut payload)? },
            PING => {
                if payload.len() < 4 {
                    return Err(ProtocolError::Length);
                }
                Event::Ping { id: payload.get_u32() }
            }
            GOAWAY => Event::GoAway,
            _ => Event::Ignored,
        })
    }

    fn headers(&mut self, block: &[u8]) -> Result<Headers, ProtocolError> {
        let plain = self.inflated(block)?;
        parse_headers(&plain).ok_or(ProtocolError::Headers)
    }

    fn inflated(&mut self, mut block: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let mut plain = Vec::with_capacity(1 << 10);
        loop {
            let before = self.inflate.total_in();
            let result = self.inflate.decompress_vec(block, &mut plain, FlushDecompress::Sync);
            let used = (self.inflate.total_in() - before) as usize;
            block = block.get(used..).unwrap_or_default();
            match result {
                Ok(Status::StreamEnd) => return Err(ProtocolError::Headers),
                Ok(_) if plain.len() < plain.capacity() => {
                    return if block.is_empty() { Ok(plain) } else { Err(ProtocolError::Headers) };
                }
                Ok(_) if plain.len() >= HEADERS_LIMIT => return Err(ProtocolError::Headers),
                Ok(_) => plain.reserve(plain.len().max(1 << 10)),
                Err(error) => {
                    error.needs_dictionary().ok_or(ProtocolError::Headers)?;
                    let set = self.inflate.set_dictionary(dictionary::dictionary());
                    set.map_err(|_| ProtocolError::Headers)?;
                }
            }
        }
    }
}

/// Pairs of names and values, each with its length before it.
fn parse_headers(mut plain: &[u8]) -> Option<Headers> {
    let mut headers = Headers::new();
    let count = plain.try_get_u32().ok()?;
    for _ in 0..count {
        let mut text = || {
            let length = plain.try_get_u32().ok()? as usize;
            let text = plain.get(..length)?;
            plain.advance(length);
            Some(String::from_utf8_lossy(text).into_owned())
        };
        let (name, value) = (text()?.to_ascii_lowercase(), text()?);
        headers.insert(name, value);
    }
    Some(headers)
}

/// Makes the frames of a server.
pub(crate) struct Encoder {
    deflate: Compress,
}

impl Default for Encoder {
    fn default() -> Self {
        let mut deflate = Compress::new(Compression::fast(), true);
        // It can only fail once something was compressed.
        let _ = deflate.set_dictionary(dictionary::dictionary());
        Self { deflate }
    }
}

impl Encoder {
    /// Accepts a stream.
    pub(crate) fn reply(&mut self, id: u32, frame: &mut BytesMut) {
        let mut block = Vec::with_capacity(64);
        // Room for any block without headers, so that one call does.
        let _ = self.deflate.compress_vec(&0_u32.to_be_bytes(), &mut block, FlushCompress::Sync);
        control(frame, SYN_REPLY, 0, 4 + block.len());
        frame.put_u32(id);
        frame.put_slice(&block);
    }

    pub(crate) fn reset(id: u32, status: u32, frame: &mut BytesMut) {
        control(frame, RST_STREAM, 0, 8);
        frame.put_u32(id);
        frame.put_u32(status);
    }

    pub(crate) fn ping(id: u32, frame: &mut BytesMut) {
        control(frame, PING, 0, 4);
        frame.put_u32(id);
    }

    /// No more streams; the last that was seen.
    pub(crate) fn go_away(last: u32, frame: &mut BytesMut) {
        control(frame, GOAWAY, 0, 8);
        frame.put_u32(last);
        frame.put_u32(0);
    }

    /// The head of a data frame, which `length` bytes follow.
    pub(crate) fn data(id: u32, length: usize, fin: bool, frame: &mut BytesMut) {
        frame.put_u32(id);
        frame.put_u32((u32::from(if fin { FLAG_FIN } else { 0 }) << 24) | (length as u32 & 0x00ff_ffff));
    }
}

fn control(frame: &mut BytesMut, kind: u16, flags: u8, length: usize) {
    frame.put_u16(0x8000 | VERSION);
    frame.put_u16(kind);
    frame.put_u32((u32::from(flags) << 24) | (length as u32 & 0x00ff_ffff));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a client sends to open a stream.
    pub(super) fn open(deflate: &mut Compress, id: u32, headers: &[(String, String)], fin: bool) -> Vec<u8> {
        let mut plain = BytesMut::new();
        plain.put_u32(headers.len() as u32);
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.put_u32(text.len() as u32);
            plain.put_slice(text.as_bytes());
        }
        let mut block = Vec::with_capacity(plain.len() * 2 + 256);
        deflate.compress_vec(&plain, &mut block, FlushCompress::Sync).expect("a block");
        let mut frame = BytesMut::new();
        control(&mut frame, SYN_STREAM, if fin { FLAG_FIN } else { 0 }, 10 + block.len());
        frame.put_u32(id);
        frame.put_u32(0);
        frame.put_u16(0);
        frame.put_slice(&block);
        frame.to_vec()
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
    fn what_the_server_says_can_be_read() {
        let (mut encoder, mut frame) = (Encoder::default(), BytesMut::new());
        encoder.reply(1, &mut frame);
        encoder.reply(3, &mut frame);
        Encoder::data(3, 2, true, &mut frame);
        frame.put_slice(b"hi");
        Encoder::reset(1, CANCEL, &mut frame);
        Encoder::ping(7, &mut frame);
        Encoder::go_away(3, &mut frame);
        let expected = [
            Event::Ignored,
            Event::Ignored,
            Event::Data { id: 3, bytes: "hi".into(), fin: true },
            Event::Reset { id: 1 },
            Event::Ping { id: 7 },
            Event::GoAway,
        ];
        assert_eq!(decode(&frame, 1_000), Ok(expected.into()));
    }

    #[test]
    fn frames_that_break_the_protocol_are_refused() {
        let check = |bytes: &[u8], expected| assert_eq!(decode(bytes, 64), Err(expected), "{bytes:?}");
        check(&[0x80, 2, 0, 1, 0, 0, 0, 0], ProtocolError::Version);
        check(&[0x80, 3, 0, 1, 0, 0xff, 0, 0], ProtocolError::Length);
        check(&[0x80, 3, 0, 3, 0, 0, 0, 1, 0], ProtocolError::Length);
        check(&[0x80, 3, 0, 1, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2], ProtocolError::Headers);
    }

    /// A block that inflates to much more than any client's headers.
    #[test]
    fn a_bomb_of_headers_is_refused() {
        let mut deflate = Compress::new(Compression::best(), true);
        deflate.set_dictionary(dictionary::dictionary()).expect("a dictionary");
        let bomb = open(&mut deflate, 1, &[("a".to_owned(), "0".repeat(10 << 20))], false);
        assert_eq!(decode(&bomb, 1 << 20), Err(ProtocolError::Headers));
    }

    proptest! {
        #[test]
        fn streams_arrive_as_they_were_sent(
            streams in prop::collection::vec(
                (prop::collection::btree_map("[a-z-]{1,12}", "[ -~]{0,40}", 0..4), prop::collection::vec(any::<u8>(), 0..400), any::<bool>()),
                1..6,
            ),
            step in 1_usize..700,
        ) {
            let mut deflate = Compress::new(Compression::fast(), true);
            deflate.set_dictionary(dictionary::dictionary()).expect("a dictionary");
            let mut sent = Vec::new();
            for (at, (headers, data, fin)) in streams.iter().enumerate() {
                let id = at as u32 * 2 + 1;
                let headers: Vec<(String, String)> = headers.clone().into_iter().collect();
                sent.extend(open(&mut deflate, id, &headers, false));
                let mut head = BytesMut::new();
                Encoder::data(id, data.len(), *fin, &mut head);
                sent.extend_from_slice(&head);
                sent.extend_from_slice(data);
            }
            let mut got: Vec<(Headers, Vec<u8>, bool)> = Vec::new();
            for event in decode(&sent, step).expect("frames") {
                match event {
                    Event::Open { headers, .. } => got.push((headers, Vec::new(), false)),
                    Event::Data { id, bytes, fin } => {
                        let stream = &mut got[(id as usize - 1) / 2];
                        stream.1.extend_from_slice(&bytes);
                        stream.2 |= fin;
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert_eq!(got, streams);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), step in 1_usize..50) {
            let _ = decode(&bytes, step);
            let mut frame = vec![0x80, 3, 0, 1, 0, 0, 0, bytes.len() as u8];
            frame.extend(bytes);
            let _ = decode(&frame, step);
        }
    }
}
