//! Several streams over one WebSocket: the first byte of each message is the number of its channel.
//!
//! In the variants with base64 that byte is a digit, and what follows is text. From the fifth version on a client ends a
//! channel with a message on channel 255. See `wsstream/conn.go` of upstream.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::upgrade::Subprotocol;
use super::websocket::{self, Event, Opcode, Reader};

/// A message on this channel ends another one.
const CLOSE: u8 = 255;
/// How many frames may wait to be sent.
const WAITING: usize = 8;

/// Where messages are put that are to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Channels {
    outbox: mpsc::Sender<BytesMut>,
    base64: bool,
}

impl Channels {
    /// Channels, and the frames that are to be [written](write).
    pub(crate) fn new(base64: bool) -> (Self, mpsc::Receiver<BytesMut>) {
        let (outbox, frames) = mpsc::channel(WAITING);
        (Self { outbox, base64 }, frames)
    }

    /// Sends a message, if the connection is still there.
    pub(crate) async fn send(&self, number: u8, bytes: &[u8]) -> bool {
        let frame = if self.base64 {
            websocket::encode(Opcode::Text, &[b'0' + number], STANDARD.encode(bytes).as_bytes())
        } else {
            websocket::encode(Opcode::Binary, &[number], bytes)
        };
        self.outbox.send(frame).await.is_ok()
    }
}

/// Writes frames until there are none, and none can follow.
pub(crate) async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    frames: &mut mpsc::Receiver<BytesMut>,
) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        stream.write_all(&frame).await?;
        while let Ok(frame) = frames.try_recv() {
            stream.write_all(&frame).await?;
        }
        stream.flush().await?;
    }
    Ok(())
}

/// Puts what arrives into the channel that it is for, until the client closes the connection. A channel whose sender is
/// gone is not listened to.
pub(crate) async fn read(
    reader: &mut Reader<impl AsyncRead + Unpin>,
    channels: &Channels,
    protocol: Subprotocol,
    inboxes: &mut [(u8, Option<mpsc::Sender<Bytes>>)],
) -> io::Result<()> {
    let mut message = Message::default();
    while let Some(event) = reader.next().await? {
        match event {
            Event::Data { bytes, first, last } => {
                if first {
                    message = Message::default();
                }
                let Some((number, bytes)) = message.take(bytes, protocol.base64, last) else { continue };
                if protocol.closes && number == CLOSE {
                    let Some(closed) = bytes.first() else { continue };
                    let closed = inboxes.iter_mut().find(|(number, _)| number == closed);
                    if let Some((_, inbox)) = closed {
                        *inbox = None;
                    }
                    continue;
                }
                let inbox = inboxes.iter_mut().find(|(known, _)| *known == number);
                if let Some((_, inbox)) = inbox
                    && let Some(sender) = inbox
                    && !bytes.is_empty()
                    && sender.send(bytes).await.is_err()
                {
                    *inbox = None;
                }
            }
            Event::Ping(bytes) => {
                let _ = channels.outbox.send(websocket::encode(Opcode::Pong, &[], &bytes)).await;
            }
            Event::Pong => {}
            Event::Close => return Ok(()),
        }
    }
    Ok(())
}

/// A message that arrives in pieces.
#[derive(Debug, Default)]
struct Message {
    number: Option<u8>,
    /// Text that does not make whole bytes yet.
    rest: Vec<u8>,
}

impl Message {
    /// The channel of a message and what this piece of it says.
    fn take(&mut self, mut piece: Bytes, base64: bool, last: bool) -> Option<(u8, Bytes)> {
        let number = if let Some(number) = self.number {
            number
        } else {
            let number = *piece.first()?;
            let _ = piece.split_to(1);
            *self.number.insert(if base64 { number.wrapping_sub(b'0') } else { number })
        };
        if !base64 {
            return Some((number, piece));
        }
        self.rest.extend_from_slice(&piece);
        let whole = if last { self.rest.len() } else { self.rest.len() / 4 * 4 };
        let text: Vec<u8> = self.rest.drain(..whole).collect();
        // What is no base64 is dropped, as upstream does.
        Some((number, STANDARD.decode(text).unwrap_or_default().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_may_be_split_anywhere() {
        let text = format!("0{}", STANDARD.encode("hello, world"));
        for at in 0..text.len() {
            let mut message = Message::default();
            let mut said = Vec::new();
            for (part, last) in [(&text[..at], false), (&text[at..], true)] {
                if let Some((number, bytes)) = message.take(part.to_owned().into(), true, last) {
                    assert_eq!(number, 0);
                    said.extend_from_slice(&bytes);
                }
            }
            assert_eq!(String::from_utf8_lossy(&said), "hello, world", "{at}");
        }
    }
}
