//! The small HTTP/1.1 server behind probes and metrics: GET, text, nothing else.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use crate::metrics::Registry;

/// A request without its body, which nobody here reads.
pub(super) type Head = http::Request<()>;
pub(super) type Answer = http::Response<String>;

/// Connections served at the same time; more wait.
const CONNECTIONS: usize = 64;
/// How long a client may take to send its request's head, as in controller-runtime.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);

/// Serves until the token is cancelled and requests under way are answered; with `access`, only to
/// whom the API server lets.
pub(super) async fn serve<F>(
    listener: TcpListener,
    answer: Arc<F>,
    access: Option<Arc<Access>>,
    shutdown: CancellationToken,
) where
    F: Fn(&Head) -> Answer + Send + Sync + 'static,
{
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, listener.accept().await)
        };
        // Cancel-safe: a slot or connection that was taken goes when the future is dropped.
        let (slot, connection) = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accepted => accepted,
        };
        let (Ok(slot), Ok((stream, _))) = (slot, connection) else {
            // Out of descriptors, most likely: let some go.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (answer, access, shutdown) = (Arc::clone(&answer), access.clone(), shutdown.clone());
        connections.spawn(async move {
            let _slot = slot;
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let (answer, access) = (Arc::clone(&answer), access.clone());
                async move {
                    let head = http::Request::from_parts(request.into_parts().0, ());
                    let refused = match &access {
                        Some(access) => access.refuse(&head).await,
                        None => None,
                    };
                    let answer = refused.unwrap_or_else(|| respond(&head, &*answer));
                    Ok::<_, Infallible>(answer.map(|text| Full::new(Bytes::from(text))))
                }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            tokio::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => {}
                () = shutdown.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        });
    }
    while connections.join_next().await.is_some() {}
}

fn respond(request: &Head, answer: &dyn Fn(&Head) -> Answer) -> Answer {
    if *request.method() == Method::GET || *request.method() == Method::HEAD {
        answer(request)
    } else {
        text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n")
    }
}

pub(super) fn text(status: StatusCode, body: impl Into<String>) -> Answer {
    let mut answer = http::Response::new(body.into());
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

/// Answers `/metrics`.
pub(super) fn metrics(request: &Head, registry: &Registry) -> Answer {
    if request.uri().path() != "/metrics" {
        return text(StatusCode::NOT_FOUND, "not found\n");
    }
    let mut answer = text(StatusCode::OK, registry.encode());
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    answer
}
