//! The HTTP server behind probes, metrics and webhooks: bounded in connections and time, and drained
//! when it stops. What is answered is its users' business.
//!
//! A silent client holds up no other. A request counts once it is there as a whole: head and body. When all
//! connections are taken, the one on which nothing has been heard for longest, and no request is being
//! answered, makes room. When the server stops, a request gets its answer, and its reader [some
//! time](line::WRITING) to read it; a connection without one, whether it is idle, half of a request was
//! sent on it or its other end is gone, has [a moment](line::LINGER) to close in good order.

mod line;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub(crate) use line::Incoming;
use line::Line;

/// Requests at the same time on one HTTP/2 connection.
const STREAMS: u32 = 250;
/// How long a client may take for its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take to send its request's head, as in controller-runtime. It counts from when it
/// could, which is not as there: a connection that is kept alive is idle for no longer, either.
const HEAD: Duration = Duration::from_secs(32);
/// How long an HTTP/2 client may be idle before it is asked whether it is there.
const IDLE: Duration = Duration::from_secs(90);
/// How long to wait when no connection can be taken.
const PAUSE: Duration = Duration::from_millis(50);

/// What is answered.
pub(crate) type Reply = Response<Bytes>;

/// Answers requests until the token is cancelled and those under way are answered. At most
/// `connections` are served at the same time; another takes the place of one that is silent, or
/// waits. Without TLS it speaks HTTP/1.1 only.
pub(crate) async fn serve<H, F>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    connections: usize,
    answer: H,
    shutdown: CancellationToken,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Reply> + Send + 'static,
{
    let mut open = Open::default();
    loop {
        // Cancel-safe: a connection that was taken goes when the future is dropped.
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            () = open.one_ended() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, most likely: let some go.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if shutdown.run_until_cancelled(open.make_room(connections)).await.is_none() {
            break;
        }
        // Small answers should not wait for more to come.
        let _ = stream.set_nodelay(true);
        let (tls, answer, shutdown) = (tls.clone(), answer.clone(), shutdown.clone());
        open.spawn(|line| async move {
            let Some(tls) = tls else { return connection(stream, false, answer, &line, &shutdown).await };
            let handshake = shutdown.run_until_cancelled(tokio::time::timeout(HANDSHAKE, tls.accept(stream)));
            match handshake.await {
                Some(Ok(Ok(stream))) => {
                    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    connection(stream, http2, answer, &line, &shutdown).await;
                }
                Some(Ok(Err(error))) => tracing::debug!(%error, "TLS handshake failed"),
                Some(Err(_)) | None => {}
            }
        });
    }
    drop(listener);
    while open.tasks.join_next().await.is_some() {}
}

/// The connections there are. Dropping it closes them.
#[derive(Default)]
struct Open {
    tasks: JoinSet<()>,
    lines: HashMap<Id, (Arc<Line>, AbortHandle)>,
    /// Told when a connection has answered everything.
    silence: Arc<Notify>,
}

impl Open {
    fn spawn<F: Future<Output = ()> + Send + 'static>(&mut self, serve: impl FnOnce(Arc<Line>) -> F) {
        let line = Arc::new(Line::new(Arc::clone(&self.silence)));
        let handle = self.tasks.spawn(serve(Arc::clone(&line)));
        self.lines.insert(handle.id(), (line, handle));
    }

    /// Waits until a connection has ended; for ever, if there is none. Cancel-safe.
    async fn one_ended(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let id = ended.map_or_else(|error: JoinError| error.id(), |(id, ())| id);
        self.lines.remove(&id);
    }

    /// Waits until there are fewer than `connections`. The one that has been silent for longest is
    /// closed; if none is, one that ends or falls silent is waited for. Cancel-safe.
    async fn make_room(&mut self, connections: usize) {
        while self.lines.len() >= connections {
            let silent = self.lines.iter().filter_map(|(id, (line, _))| Some((line.silence()?, *id)));
            if let Some((_, id)) = silent.min_by_key(|(silence, _)| *silence)
                && let Some((_, handle)) = self.lines.remove(&id)
            {
                handle.abort();
                return;
            }
            let silence = Arc::clone(&self.silence);
            tokio::select! {
                () = self.one_ended() => {}
                () = silence.notified() => {}
            }
        }
    }
}

async fn connection<S, H, F>(stream: S, http2: bool, answer: H, line: &Arc<Line>, shutdown: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Reply> + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(IDLE)
        .keep_alive_timeout(HANDSHAKE);
    // The handshake has decided; nothing is guessed from the first bytes.
    let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    let service = hyper::service::service_fn(move |request| {
        let (request, arrival) = line.request(request);
        let answered = answer(request);
        async move { Ok::<_, Infallible>(arrival.answer(answered.await)) }
    });
    let connection = builder.serve_connection(TokioIo::new(line.watched(stream)), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                ended = connection => ended,
                () = line.quiet() => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// An answer of this type.
pub(crate) fn reply<B: From<String>>(status: StatusCode, content_type: &'static str, body: String) -> Response<B> {
    let mut reply = Response::new(B::from(body));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// An answer for people.
pub(crate) fn text<B: From<String>>(status: StatusCode, body: impl Into<String>) -> Response<B> {
    reply(status, "text/plain; charset=utf-8", body.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::line::{LINGER, WRITING};
    use super::*;

    /// A connection that answers after some time, its other end, and when a request is under way.
    fn connect(http2: bool, after: Duration) -> (JoinHandle<()>, DuplexStream, Arc<Notify>, CancellationToken) {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (asked, shutdown) = (Arc::new(Notify::new()), CancellationToken::new());
        let (told, until) = (Arc::clone(&asked), shutdown.clone());
        let answer = move |_: Request<Incoming>| {
            told.notify_one();
            async move {
                tokio::time::sleep(after).await;
                text(StatusCode::OK, "late")
            }
        };
        let line = Arc::new(Line::new(Arc::default()));
        let serving = tokio::spawn(async move { connection(server, http2, answer, &line, &until).await });
        (serving, client, asked, shutdown)
    }

    /// A connection whose handler reads the body, for half a minute at most, and answers with so many bytes.
    fn connect_reading(http2: bool, pipe: usize, size: usize) -> (JoinHandle<()>, DuplexStream, CancellationToken) {
        let (client, server) = tokio::io::duplex(pipe);
        let shutdown = CancellationToken::new();
        let until = shutdown.clone();
        let answer = move |request: Request<Incoming>| async move {
            let read = tokio::time::timeout(Duration::from_secs(30), request.into_body().collect()).await;
            let status = if read.is_ok() { StatusCode::OK } else { StatusCode::REQUEST_TIMEOUT };
            text(status, "x".repeat(size))
        };
        let line = Arc::new(Line::new(Arc::default()));
        let serving = tokio::spawn(async move { connection(server, http2, answer, &line, &until).await });
        (serving, client, shutdown)
    }

    const HALF: &[u8] = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nhalf";

    #[tokio::test(start_paused = true)]
    async fn half_a_body_does_not_hold_up_the_stop() {
        let (serving, mut client, shutdown) = connect_reading(false, 1 << 16, 2);
        client.write_all(HALF).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let told = Instant::now();
        shutdown.cancel();
        serving.await.unwrap();
        assert!(told.elapsed() <= LINGER, "{:?}", told.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_almost_complete_gets_its_answer() {
        let (serving, mut client, shutdown) = connect_reading(false, 1 << 16, 2);
        client.write_all(HALF).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        shutdown.cancel();
        tokio::time::sleep(LINGER / 2).await;
        client.write_all(b"half").await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("xx"), "{answer}");
        serving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn slow_readers_get_the_whole_answer() {
        const SIZE: usize = 3 << 20;
        let (serving, mut client, shutdown) = connect_reading(false, 1 << 10, SIZE);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 100];
        client.read_exact(&mut answer).await.unwrap();
        shutdown.cancel();
        tokio::time::sleep(LINGER * 2).await;
        client.read_to_end(&mut answer).await.unwrap();
        let body = answer.iter().rev().take_while(|byte| **byte == b'x').count();
        assert_eq!(body, SIZE);
        serving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn slow_readers_get_the_whole_answer_over_http2() {
        const SIZE: usize = 3 << 20;
        let (serving, client, shutdown) = connect_reading(true, 1 << 16, SIZE);
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, asking) = builder.handshake(TokioIo::new(client)).await.unwrap();
        let asking = tokio::spawn(asking);
        let request = Request::get("http://x/").body(http_body_util::Empty::<Bytes>::new()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        shutdown.cancel();
        // Its window is full long before.
        tokio::time::sleep(LINGER * 2).await;
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), SIZE);
        drop(sender);
        serving.await.unwrap();
        asking.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_do_not_read_hardly_delay_the_stop() {
        let (serving, mut client, shutdown) = connect_reading(false, 1 << 10, 3 << 20);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        client.read_exact(&mut [0; 100]).await.unwrap();
        let told = Instant::now();
        shutdown.cancel();
        serving.await.unwrap();
        assert!(told.elapsed() <= WRITING, "{:?}", told.elapsed());
    }

    #[tokio::test]
    async fn half_a_body_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        let (told, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let answer = move |request: Request<Incoming>| {
            let _ = told.send(());
            async move {
                let _ = request.into_body().collect().await;
                text(StatusCode::OK, "ok")
            }
        };
        let serving = tokio::spawn(serve(listener, None, 1, answer, shutdown.clone()));
        let mut half = TcpStream::connect(address).await.unwrap();
        half.write_all(HALF).await.unwrap();
        begun.recv().await.unwrap();
        let mut asking = TcpStream::connect(address).await.unwrap();
        asking.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let read = tokio::time::timeout(Duration::from_secs(20), asking.read_to_string(&mut answer)).await;
        assert!(read.is_ok() && answer.ends_with("ok"), "{answer}");
        shutdown.cancel();
        serving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_do_not_delay_the_stop() {
        // What HTTP/2 begins with: the preface, and empty settings.
        let http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".as_slice();
        for (is_http2, sent) in [(true, http2), (false, b"GET / HTTP/1.1\r\nHost"), (false, b"")] {
            let (serving, mut client, _, shutdown) = connect(is_http2, Duration::ZERO);
            client.write_all(sent).await.unwrap();
            // Long enough for it to be read.
            tokio::time::sleep(Duration::from_millis(10)).await;
            let told = Instant::now();
            shutdown.cancel();
            serving.await.unwrap();
            assert!(told.elapsed() <= LINGER, "{:?} after {:?}", told.elapsed(), String::from_utf8_lossy(sent));
            drop(client);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_under_way_gets_its_answer() {
        let (serving, mut client, asked, shutdown) = connect(false, Duration::from_secs(20));
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        asked.notified().await;
        shutdown.cancel();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("late"), "{answer}");
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn silent_connections_make_room() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        let answer = |_: Request<Incoming>| async { text(StatusCode::OK, "ok") };
        let serving = tokio::spawn(serve(listener, None, 2, answer, shutdown.clone()));
        let mut silent = Vec::new();
        for _ in 0..5 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut asking = TcpStream::connect(address).await.unwrap();
        asking.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        asking.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("ok"), "{answer}");
        // The first one made room.
        assert_eq!(silent[0].read(&mut [0]).await.unwrap_or_default(), 0);
        shutdown.cancel();
        serving.await.unwrap();
    }
}
