//! The HTTP server behind probes, metrics and webhooks: bounded in connections and time, and drained
//! when it stops. What is answered is its users' business.
//!
//! Who is silent holds up nobody. When all connections are taken, the one on which nothing has been
//! asked for longest makes room. When the server stops, a request gets its answer; a connection
//! without one, whether it is idle, half of a request was sent on it or its other end is gone, has
//! [a moment](LINGER) to close in good order.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Requests at the same time on one HTTP/2 connection.
const STREAMS: u32 = 250;
/// How long a client may take for its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take to send its request's head, from when it could; as in controller-runtime.
const HEAD: Duration = Duration::from_secs(32);
/// How long an HTTP/2 client may be idle before it is asked whether it is there.
const IDLE: Duration = Duration::from_secs(90);
/// How long a connection may take to close once all its requests are answered.
const LINGER: Duration = Duration::from_secs(1);
/// How long to wait when no connection can be taken.
const PAUSE: Duration = Duration::from_millis(50);

/// What is answered.
pub(crate) type Reply = Response<Full<Bytes>>;

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
            let silent = self.lines.iter().filter_map(|(id, (line, _))| Some((line.silent_since()?, *id)));
            if let Some((_, id)) = silent.min_by_key(|(since, _)| *since)
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

/// What is going on on one connection.
struct Line {
    requests: watch::Sender<Requests>,
    silence: Arc<Notify>,
}

#[derive(Clone, Copy)]
struct Requests {
    /// Those that are not answered.
    open: usize,
    /// When the last one was answered, or the connection began.
    since: Instant,
}

impl Line {
    fn new(silence: Arc<Notify>) -> Self {
        Self { requests: watch::Sender::new(Requests { open: 0, since: Instant::now() }), silence }
    }

    /// Since when there has been no request, if there is none.
    fn silent_since(&self) -> Option<Instant> {
        let requests = *self.requests.borrow();
        (requests.open == 0).then_some(requests.since)
    }

    /// A request is under way until this is dropped.
    fn request(self: &Arc<Self>) -> impl Drop + use<> {
        struct UnderWay(Arc<Line>);

        impl Drop for UnderWay {
            fn drop(&mut self) {
                let ended = |requests: &mut Requests| {
                    *requests = Requests { open: requests.open - 1, since: Instant::now() };
                };
                self.0.requests.send_modify(ended);
                self.0.silence.notify_one();
            }
        }

        self.requests.send_modify(|requests| requests.open += 1);
        UnderWay(Arc::clone(self))
    }

    /// Waits until there has been no request for a moment.
    async fn quiet(&self) {
        let mut requests = self.requests.subscribe();
        // The sender is this line's own: it does not fail.
        while requests.wait_for(|requests| requests.open == 0).await.is_ok() {
            if tokio::time::timeout(LINGER, requests.changed()).await.is_err() {
                return;
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
        let (answered, under_way) = (answer(request), line.request());
        async move {
            let answered = answered.await;
            drop(under_way);
            Ok::<_, Infallible>(answered)
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
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

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;

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

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_does_not_hold_up_the_stop() {
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
