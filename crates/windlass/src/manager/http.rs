//! What probes and metrics are served with: GET, text, nothing else.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::access::Access;
pub(super) use crate::http_server::text;
use crate::http_server::{self, Incoming, reply};
use crate::metrics::Registry;

/// A request without its body, which is not read here.
pub(super) type Head = http::Request<()>;
pub(super) type Answer = http::Response<String>;

/// Connections served at the same time. One more takes the place of one that is silent, or waits.
const CONNECTIONS: usize = 64;

/// Serves until the token is cancelled and requests under way are answered; with `access`, only to
/// whom the API server lets.
pub(super) async fn serve<F>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    answer: Arc<F>,
    access: Option<Arc<Access>>,
    shutdown: CancellationToken,
) where
    F: Fn(&Head) -> Answer + Send + Sync + 'static,
{
    let answer = move |request: http::Request<Incoming>| {
        let (answer, access) = (Arc::clone(&answer), access.clone());
        async move {
            let head = http::Request::from_parts(request.into_parts().0, ());
            let refused = match &access {
                Some(access) => access.refuse(&head).await,
                None => None,
            };
            refused.unwrap_or_else(|| respond(&head, &*answer)).map(Bytes::from)
        }
    };
    http_server::serve(listener, tls, CONNECTIONS, answer, shutdown).await;
}

fn respond(request: &Head, answer: &dyn Fn(&Head) -> Answer) -> Answer {
    if *request.method() == Method::GET || *request.method() == Method::HEAD {
        answer(request)
    } else {
        text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n")
    }
}

/// Answers `/metrics`.
pub(super) fn metrics(request: &Head, registry: &Registry) -> Answer {
    if request.uri().path() != "/metrics" {
        return text(StatusCode::NOT_FOUND, "not found\n");
    }
    reply(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", registry.encode())
}
