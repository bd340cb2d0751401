//! Connections to webhooks, and what the system says when there is none, as Go says it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::dialer::{Dial, system};

/// Connects to the first address that answers. If none does, the first one's failure counts.
pub(crate) async fn dial(dial: &Dial, host: &str, port: u16) -> Result<TcpStream, String> {
    let unknown = || format!("dial tcp: lookup {host}: no such host");
    let addresses = tokio::net::lookup_host((host, port)).await.map_err(|_| unknown())?;
    let mut addresses: Vec<SocketAddr> = addresses.collect();
    // As Go does, IPv4 comes first where a name has both.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let mut failure = None;
    for address in addresses {
        match dial.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                failure.get_or_insert_with(|| format!("dial tcp {address}: connect: {}", system(&error)));
            }
        }
    }
    Err(failure.unwrap_or_else(unknown))
}

/// A failure of a connection that was made: with both its ends, unless the other side just left.
pub(crate) fn broken(ends: &Ends, error: &io::Error) -> String {
    match (error.kind(), ends) {
        (io::ErrorKind::UnexpectedEof, _) => "EOF".to_owned(),
        (io::ErrorKind::BrokenPipe, Some((local, peer))) => format!("write tcp {local}->{peer}: write: broken pipe"),
        (_, Some((local, peer))) => format!("read tcp {local}->{peer}: read: {}", system(error)),
        (_, None) => system(error),
    }
}

/// Both ends of a connection.
pub(crate) type Ends = Option<(SocketAddr, SocketAddr)>;

/// The ends of a connection.
pub(crate) fn ends(stream: &TcpStream) -> Ends {
    stream.local_addr().ok().zip(stream.peer_addr().ok())
}

/// A connection that notices whether the other side speaks HTTP where it should speak TLS.
pub(crate) struct Sniffed {
    stream: TcpStream,
    start: Vec<u8>,
    speaks_http: Arc<AtomicBool>,
}

impl Sniffed {
    /// Watches the start of `stream`; the flag says what was seen, also after a failed handshake.
    pub(crate) fn new(stream: TcpStream) -> (Self, Arc<AtomicBool>) {
        let speaks_http = Arc::new(AtomicBool::new(false));
        (Self { stream, start: Vec::new(), speaks_http: Arc::clone(&speaks_http) }, speaks_http)
    }

    fn note(&mut self, bytes: &[u8]) {
        const START: &[u8] = b"HTTP/";
        let missing = START.len().saturating_sub(self.start.len());
        if missing > 0 {
            self.start.extend_from_slice(&bytes[..bytes.len().min(missing)]);
            if self.start == START {
                self.speaks_http.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl AsyncRead for Sniffed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.note(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Sniffed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
