//! SPDY inside a WebSocket, as newer clients forward ports: the messages carry the bytes of a SPDY connection.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;

use super::websocket::{self, Event, Opcode, Reader};

/// How much is on the way between the two at most.
const BUFFER: usize = 256 << 10;
const PIECE: usize = 64 << 10;

/// The connection inside of a WebSocket, and what carries its bytes: to be polled until it ends.
pub(super) fn open<S>(stream: S) -> (DuplexStream, impl Future<Output = io::Result<()>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (inner, outer) = tokio::io::duplex(BUFFER);
    (inner, carry(stream, outer))
}

async fn carry(stream: impl AsyncRead + AsyncWrite + Unpin, tunnel: DuplexStream) -> io::Result<()> {
    let (reader, mut writer) = tokio::io::split(stream);
    let (mut outgoing, mut incoming) = tokio::io::split(tunnel);
    let (pongs, mut answers) = mpsc::channel(8);
    let receive = async {
        let mut reader = Reader::new(reader);
        while let Some(event) = reader.next().await? {
            match event {
                Event::Data { bytes, .. } => incoming.write_all(&bytes).await?,
                // Answers that do not fit are not missed: there is one for a later question.
                Event::Ping(bytes) => drop(pongs.try_send(bytes)),
                Event::Pong => {}
                Event::Close => break,
            }
        }
        incoming.shutdown().await
    };
    let send = async {
        let mut buffer = vec![0; PIECE];
        loop {
            tokio::select! {
                // Both are cancel-safe.
                read = outgoing.read(&mut buffer) => match read? {
                    0 => break,
                    read => websocket::write(&mut writer, &websocket::encode(Opcode::Binary, &[], &buffer[..read])).await?,
                },
                Some(pong) = answers.recv() => {
                    websocket::write(&mut writer, &websocket::encode(Opcode::Pong, &[], &pong)).await?;
                }
            }
        }
        websocket::write(&mut writer, &websocket::close()).await?;
        writer.shutdown().await
    };
    tokio::try_join!(receive, send).map(drop)
}
