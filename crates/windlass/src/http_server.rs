//! The HTTP server behind probes, metrics and webhooks: bounded in connections and time, and drained
//! when it stops. What is answered is its users' business.

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
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Requests at the same time on one HTTP/2 connection.
const STREAMS: u32 = 250;
/// How long a client may take for its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take to send its request's head, or be idle; as in controller-runtime.
const IDLE: Duration = Duration::from_secs(90);
/// How long to wait when no connection can be taken.
const PAUSE: Duration = Duration::from_millis(50);

/// What is answered.
pub(crate) type Reply = Response<Full<Bytes>>;

/// Answers requests until the token is cancelled and those under way are answered. At most
/// `connections` are served at the same time; more wait. Without TLS it speaks HTTP/1.1 only.
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
    let slots = Arc::new(Semaphore::new(connections));
    let mut open = JoinSet::new();
    loop {
        let accepted = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, listener.accept().await)
        };
        // Cancel-safe: a slot or connection that was taken goes when the future is dropped.
        let (slot, accepted) = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = open.join_next() => continue,
            accepted = accepted => accepted,
        };
        let (Ok(slot), Ok((stream, _))) = (slot, accepted) else {
            // Out of descriptors, most likely: let some go.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // Small answers should not wait for more to come.
        let _ = stream.set_nodelay(true);
        let (tls, answer, shutdown) = (tls.clone(), answer.clone(), shutdown.clone());
        open.spawn(async move {
            let _slot = slot;
            let Some(tls) = tls else { return connection(stream, false, answer, shutdown).await };
            match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    connection(stream, http2, answer, shutdown).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => {}
            }
        });
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

async fn connection<S, H, F>(stream: S, http2: bool, answer: H, shutdown: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Reply> + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(IDLE)
        .keep_alive_timeout(HANDSHAKE);
    // The handshake has decided; nothing is guessed from the first bytes.
    let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    let service = hyper::service::service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
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
