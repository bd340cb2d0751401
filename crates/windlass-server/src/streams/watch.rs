//! A watch as a WebSocket: each event is a message. Mirrors `HandleWS` of upstream's `endpoints/handlers/watch.go`.

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use super::upgrade::{self, Asked, Raw, Takeover};
use super::websocket::{self, Event, Opcode, Reader};
use crate::body::Body;

/// What the subprotocol with a bearer token starts with.
pub(crate) const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A client that wants a watch as a WebSocket.
pub(crate) struct Socket {
    key: String,
    protocol: String,
    takeover: Takeover,
}

/// What the client asks for, if that is a WebSocket.
pub(crate) fn asked(headers: &HeaderMap, takeover: Option<&Takeover>) -> Option<Socket> {
    let Some(Asked::WebSocket { key, protocols }) = upgrade::asked(headers) else { return None };
    let protocol = protocols.into_iter().find(|protocol| !protocol.starts_with(BEARER_PROTOCOL)).unwrap_or_default();
    Some(Socket { key: key.to_owned(), protocol: protocol.to_owned(), takeover: takeover?.clone() })
}

impl Socket {
    /// The answer that turns the events of `response` into messages.
    pub(crate) fn carry(self, response: Response<Body>) -> Response<Body> {
        if self.key.is_empty() {
            return upgrade::refuse(StatusCode::BAD_REQUEST, "missing or bad WebSocket-Key");
        }
        let is_text = response
            .headers()
            .get(http::header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_none_or(|kind| !kind.contains("protobuf"));
        let events = response.into_body();
        self.takeover.by(move |raw| serve(raw, events, is_text));
        upgrade::to_websocket(&self.key, &self.protocol)
    }
}

async fn serve(raw: Raw, mut events: Body, is_text: bool) {
    let (reader, mut writer) = tokio::io::split(raw);
    let (pongs, mut answers) = mpsc::channel(8);
    // What the client says does not matter, except that it leaves or asks whether the server is there.
    let receive = async {
        let mut reader = Reader::new(reader);
        while let Ok(Some(event)) = reader.next().await {
            match event {
                Event::Data { .. } | Event::Pong => {}
                Event::Ping(bytes) => drop(pongs.try_send(bytes)),
                Event::Close => break,
            }
        }
    };
    let send = async {
        let opcode = if is_text { Opcode::Text } else { Opcode::Binary };
        let mut pending = BytesMut::new();
        loop {
            // Both are cancel-safe.
            let message = tokio::select! {
                frame = events.frame() => {
                    let Some(Ok(frame)) = frame else { break };
                    pending.extend_from_slice(&frame.into_data().unwrap_or_default());
                    let mut messages = Vec::new();
                    while let Some(message) = next(&mut pending, is_text) {
                        messages.extend_from_slice(&websocket::encode(opcode, &[], &message));
                    }
                    messages
                }
                Some(pong) = answers.recv() => websocket::encode(Opcode::Pong, &[], &pong).to_vec(),
            };
            if websocket::write(&mut writer, &message).await.is_err() {
                return;
            }
        }
        let _ = websocket::write(&mut writer, &websocket::close()).await;
        let _ = writer.shutdown().await;
    };
    tokio::select! {
        () = receive => {}
        () = send => {}
    }
}

/// The next event that has arrived whole: a line of JSON, or a message behind its length.
fn next(pending: &mut BytesMut, is_text: bool) -> Option<Bytes> {
    if is_text {
        let end = pending.iter().position(|byte| *byte == b'\n')?;
        return Some(pending.split_to(end + 1).freeze());
    }
    let length = u32::from_be_bytes(pending.first_chunk().copied()?) as usize;
    if pending.len() < 4 + length {
        return None;
    }
    pending.advance(4);
    Some(pending.split_to(length).freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_apart_as_they_arrive() {
        let mut pending = BytesMut::from("{1}\n{2");
        assert_eq!(next(&mut pending, true).as_deref(), Some(&b"{1}\n"[..]));
        assert_eq!(next(&mut pending, true), None);
        pending.extend_from_slice(b"}\n");
        assert_eq!(next(&mut pending, true).as_deref(), Some(&b"{2}\n"[..]));
        let mut pending = BytesMut::from(&[0, 0, 0, 2, 7][..]);
        assert_eq!(next(&mut pending, false), None);
        pending.extend_from_slice(&[8, 0]);
        assert_eq!(next(&mut pending, false).as_deref(), Some(&[7, 8][..]));
        assert_eq!(next(&mut pending, false), None);
    }
}
