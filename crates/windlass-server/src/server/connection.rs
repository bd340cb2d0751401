//! One connection: HTTP over a stream, for as long as its client keeps to the time limits.
//!
//! ```text
//! Io (bytes in, bytes out) ─▶ hyper ─▶ Received (request body) ─▶ handle ─▶ Answer (response body) ─▶ hyper ─▶ Io
//!        └───────────────────────────────┴──── Connection ────────────────────┴── expires? ──▶ drive closes
//! ```
//!
//! Each of these tells the [`Connection`] what it waits for; [`serve`] closes the stream when that takes too long, when
//! the connection is to make room for others, or when the server stops.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::Either;
use http::header::UPGRADE;
use http::{Request, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::connections::{Connection, Ending, Place};
use super::time_limits::{Expired, HEAD_TIMEOUT};
use super::unread::{self, Source};
use crate::api::Api;
use crate::authn::Peer;
use crate::body::Body;
use crate::handler::{RemoteAddress, handle, payload};
use crate::streams::upgrade::Takeover;

/// Headers may be this large, as upstream's.
const HEADER_LIMIT: u32 = 1 << 20;
/// How many headers an HTTP/1 request may have. Go counts only their bytes.
const MAX_HEADERS: usize = 1000;
/// How much is read at once: two records of TLS.
const READ_LIMIT: usize = 32 << 10;
/// How many requests may share a connection.
const STREAMS: u32 = 250;
/// How much of a body may arrive before it is read: as upstream's `resourceBody99Percentile`.
const STREAM_WINDOW: u32 = 256 << 10;
/// The same for all requests of a connection.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// How often an HTTP/2 client is asked whether it is there, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(60);
const PONG_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a connection that has expired may take to close in an orderly way.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Answers that are larger, and those that are made as they are read, are watched until the client has read them.
const SMALL_ANSWER: u64 = 64 << 10;

/// Serves one connection until it ends.
pub(super) async fn serve<S>(api: Arc<Api>, peer: Option<Peer>, stream: S, place: Place)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = Arc::clone(&place.connection);
    let exchanges = Arc::clone(&connection);
    let taken: Arc<Mutex<Option<(Takeover, OnUpgrade)>>> = Arc::default();
    let takes = Arc::clone(&taken);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        // Only the audit asks for it.
        if api.audit.is_some() {
            request.extensions_mut().insert(RemoteAddress(exchanges.address()));
        }
        if request.headers().contains_key(UPGRADE) && request.version() == Version::HTTP_11 {
            let takeover = Takeover::default();
            let upgraded = hyper::upgrade::on(&mut request);
            request.extensions_mut().insert(takeover.clone());
            *takes.lock() = Some((takeover, upgraded));
        }
        let exchange = Exchange::begin(&exchanges, request.version() == Version::HTTP_2);
        if let Some(refusal) = unread::refuse_host(&request) {
            let answer = refusal.map(|body| Answer::new(body, exchange));
            return Either::Left(std::future::ready(Ok::<_, Infallible>(answer)));
        }
        let (parts, body) = request.into_parts();
        let (body, rest) = Source::new(body, parts.version, &parts.headers);
        let request = Request::from_parts(parts, payload(Received { body, waits: Waits::new(&exchanges) }));
        let answer = handle(Arc::clone(&api), request);
        let Some(rest) = rest else {
            let answer = answer.map(move |response| Ok(response.map(|body| Answer::new(body, exchange))));
            return Either::Right(Either::Left(answer));
        };
        Either::Right(Either::Right(Box::pin(async move {
            let mut response = answer.await;
            rest.settle(&mut response).await;
            Ok(response.map(|body| Answer::new(body, exchange)))
        })))
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(HEADER_LIMIT as usize).max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_LIMIT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_TIMEOUT);
    let mut http = pin!(builder.serve_connection_with_upgrades(TokioIo::new(Io { stream, place }), service));
    // What the connection waits for changes with every request. Nothing may take less than a head, so it is enough to
    // look that often and when something expires.
    let mut look = pin!(tokio::time::sleep(HEAD_TIMEOUT));
    loop {
        tokio::select! {
            biased;
            served = http.as_mut() => {
                if let Err(error) = served {
                    tracing::debug!(%error, "a connection ended early");
                    return;
                }
                break;
            }
            // Nothing is lost if one of the others is first: both remember.
            ending = connection.ending() => match ending {
                Ending::Drain => http.as_mut().graceful_shutdown(),
                Ending::Close => return,
            },
            () = look.as_mut() => {
                let now = Instant::now();
                let latest = now + HEAD_TIMEOUT;
                match connection.expires() {
                    Some((until, why)) if until <= now => {
                        tracing::debug!(?why, "a connection has expired");
                        if why == Expired::Idle {
                            http.as_mut().graceful_shutdown();
                            let _ = tokio::time::timeout(CLOSE_TIMEOUT, http).await;
                        }
                        return;
                    }
                    next => look.as_mut().reset(next.map_or(latest, |(until, _)| until.min(latest))),
                }
            }
        }
    }
    let taken = taken.lock().take();
    serve_upgraded(&connection, taken).await;
}

/// Serves a connection that is not HTTP any more, if the last request on it asked for that, until one of its ends closes
/// or the server stops.
async fn serve_upgraded(connection: &Arc<Connection>, taken: Option<(Takeover, OnUpgrade)>) {
    let Some((session, upgraded)) = taken.and_then(|(takeover, upgraded)| Some((takeover.take()?, upgraded))) else {
        return;
    };
    // The connection is in use, and not to be closed for another.
    let _exchange = Exchange::begin(connection, false);
    let Ok(upgraded) = upgraded.await else { return };
    tokio::select! {
        () = session(TokioIo::new(upgraded)) => {}
        _ = connection.ending() => {}
    }
}

/// A stream whose bytes are counted.
struct Io<S> {
    stream: S,
    place: Place,
}

impl<S: AsyncRead + Unpin> AsyncRead for Io<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if buffer.remaining() > READ_LIMIT {
            // hyper's buffer grows with what is read at once, and every connection has one.
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(READ_LIMIT));
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
            let read = part.filled().len();
            buffer.advance(read);
        } else {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        }
        let bytes = buffer.filled().len() - before;
        if bytes > 0 && !self.place.connection.receive(bytes) {
            return Poll::Ready(Err(io::Error::other("too many bytes of unfinished heads")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> Io<S> {
    fn written(&self, poll: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match poll {
            Poll::Pending => self.place.connection.block(),
            Poll::Ready(_) => self.place.connection.unblock(),
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Io<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, buffer);
        self.written(poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.written(poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A request, from its head until its answer has been handed over.
struct Exchange(Arc<Connection>);

impl Exchange {
    fn begin(connection: &Arc<Connection>, multiplexed: bool) -> Self {
        connection.begin(multiplexed);
        Self(Arc::clone(connection))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The body of a request.
struct Received {
    body: Source,
    waits: Waits,
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let poll = self.body.poll_frame(cx);
        self.waits.set(poll.is_pending());
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether a request waits for more of its body.
struct Waits {
    connection: Arc<Connection>,
    now: bool,
}

impl Waits {
    fn new(connection: &Arc<Connection>) -> Self {
        Self { connection: Arc::clone(connection), now: false }
    }

    fn set(&mut self, now: bool) {
        if std::mem::replace(&mut self.now, now) != now {
            if now { self.connection.wait() } else { self.connection.go_on() }
        }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// The body of a response.
struct Answer {
    body: Body,
    _exchange: Exchange,
    /// Dropped with the last byte of an answer that the client has to read in time.
    sending: Option<Arc<Sending>>,
}

impl Answer {
    fn new(body: Body, exchange: Exchange) -> Self {
        let is_small = body.size_hint().exact().is_some_and(|size| size <= SMALL_ANSWER);
        let is_watched = !is_small && !body.is_long_running();
        let sending = is_watched.then(|| Arc::new(Sending::begin(&exchange.0)));
        Self { body, _exchange: exchange, sending }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let poll = Pin::new(&mut self.body).poll_frame(cx);
        let Some(sending) = &self.sending else { return poll };
        // Bytes that the client does not read stay in hyper's buffers after the body has ended.
        poll.map(|next| {
            next.map(|Ok(frame)| Ok(frame.map_data(|bytes| Bytes::from_owner(Sent(bytes, Arc::clone(sending))))))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer that is being sent.
struct Sending {
    connection: Arc<Connection>,
    number: u64,
}

impl Sending {
    fn begin(connection: &Arc<Connection>) -> Self {
        Self { connection: Arc::clone(connection), number: connection.answer() }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.connection.answered(self.number);
    }
}

/// Bytes on their way.
struct Sent(Bytes, #[expect(dead_code, reason = "dropped with the bytes")] Arc<Sending>);

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Empty};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::task::JoinHandle;

    use super::super::Server;
    use super::super::connections::Connections;
    use super::super::time_limits::{IDLE_TIMEOUT, WRITE_TIMEOUT};
    use super::*;
    use crate::authn::User;

    const LOCALHOST: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

    /// A client's end of a connection, with room for so many bytes on the way.
    fn connect(server: &Server, room: usize, multiplexed: bool) -> (DuplexStream, JoinHandle<()>) {
        let (client, stream) = tokio::io::duplex(room);
        let place = Arc::new(Connections::new(1)).enter(LOCALHOST).expect("a place");
        place.connection.established(multiplexed);
        let peer = Some(Peer::Local(User::admin()));
        (client, tokio::spawn(serve(Arc::clone(server.api()), peer, stream, place)))
    }

    async fn start() -> Server {
        Server::builder().start().await.expect("a server")
    }

    /// What the server sends until it closes the connection, and how long that takes.
    async fn until_closed(client: &mut DuplexStream) -> (String, Duration) {
        let started = Instant::now();
        let mut sent = Vec::new();
        client.read_to_end(&mut sent).await.expect("reads");
        (String::from_utf8(sent).expect("text"), started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_half_a_minute() {
        let server = start().await;
        for sent in ["", "GET /ver", "GET /version HTTP/1.1\r\nhost: x\r\n"] {
            let (mut client, task) = connect(&server, 1 << 16, false);
            client.write_all(sent.as_bytes()).await.expect("writes");
            let (answer, took) = until_closed(&mut client).await;
            assert_eq!((&*answer, took.as_secs()), ("", HEAD_TIMEOUT.as_secs()), "{sent}");
            task.await.expect("ends");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_closed() {
        let server = start().await;
        let (mut client, _task) = connect(&server, 1 << 16, false);
        for _ in 0..3 {
            client.write_all(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("writes");
            tokio::time::sleep(IDLE_TIMEOUT / 2).await;
        }
        let (answers, took) = until_closed(&mut client).await;
        assert_eq!(answers.matches("200 OK").count(), 3, "{answers}");
        assert_eq!(took.as_secs(), IDLE_TIMEOUT.as_secs() / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_a_minute() {
        let server = start().await;
        let (mut client, _task) = connect(&server, 1 << 16, false);
        let head = format!("POST {REVIEWS} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{");
        client.write_all(head.as_bytes()).await.expect("writes");
        let (answer, took) = until_closed(&mut client).await;
        assert_eq!(took.as_secs(), 60);
        assert!(answer.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"), "{answer}");
        assert!(answer.contains("\"reason\":\"Timeout\""), "{answer}");
        assert!(answer.contains("Timeout: request did not complete within the allotted timeout"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_cut_off() {
        let server = start().await;
        let (mut client, task) = connect(&server, 64, false);
        let started = Instant::now();
        client.write_all(b"GET /api/v1?x HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("writes");
        task.await.expect("ends");
        assert_eq!(started.elapsed().as_secs(), WRITE_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_lasts() {
        let server = start().await;
        let (mut client, task) = connect(&server, 1 << 16, false);
        let path = "/api/v1/namespaces?watch=true&allowWatchBookmarks=true&timeoutSeconds=1200";
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.expect("writes");
        let (answer, took) = until_closed(&mut client).await;
        // The watch ends when it said it would, and the connection some time after.
        assert_eq!(took.as_secs(), 1200 + IDLE_TIMEOUT.as_secs());
        assert!(answer.matches("BOOKMARK").count() > 10, "{answer}");
        task.await.expect("ends");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_multiplexed_connection_is_closed_in_order() {
        let server = start().await;
        let (client, task) = connect(&server, 1 << 16, true);
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await;
        let (mut sender, connection) = handshake.expect("a connection");
        let connection = tokio::spawn(connection);
        let request = Request::get("https://localhost/version").body(Empty::<Bytes>::new()).expect("a request");
        let answer = sender.send_request(request).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.expect("a body");
        let started = Instant::now();
        connection.await.expect("ends").expect("without an error");
        assert_eq!(started.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
        task.await.expect("ends");
    }

    /// Frames of HTTP/2 that are not read wait outside of the socket.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_read_ends_a_multiplexed_connection() {
        let server = start().await;
        let (client, task) = connect(&server, 1 << 20, true);
        let mut http2 = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        http2.initial_stream_window_size(1_000);
        let (mut sender, connection) =
            http2.handshake::<_, Empty<Bytes>>(TokioIo::new(client)).await.expect("a connection");
        let connection = tokio::spawn(connection);
        // An answer that is larger than what is not watched.
        let request = Request::get("https://localhost/openapi/v2").body(Empty::new()).expect("a request");
        let answer = sender.send_request(request).await.expect("an answer");
        let started = Instant::now();
        task.await.expect("ends");
        assert_eq!(started.elapsed().as_secs(), super::super::time_limits::ANSWER_TIMEOUT.as_secs());
        drop(answer);
        let _ = connection.await;
    }
}
