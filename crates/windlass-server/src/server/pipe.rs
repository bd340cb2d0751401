//! Requests of clients in the same process whose connections become something else than HTTP.
//!
//! Such a client has no connection, so it gets one: a pipe with HTTP/1.1 at both ends, which is then taken over as a socket
//! is. The two tasks that this takes end with the client's end of the pipe, or when the server stops.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use futures::FutureExt as _;
use http::header::{HOST, HeaderValue};
use http::{Request, Response, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::DuplexStream;

use crate::api::Api;
use crate::authn::Peer;
use crate::body::Body;
use crate::handler::{Payload, handle, payload};
use crate::streams::upgrade::Takeover;

/// How much is on the way at most.
const BUFFER: usize = 256 << 10;
/// How many headers an answer has at most: each warning is one, and an object may give rise to a hundred.
const MAX_HEADERS: usize = 1000;

/// Answers a request that asks to upgrade, over a pipe of its own.
pub(super) async fn answer(api: Arc<Api>, peer: Peer, mut request: Request<Payload>) -> Response<Body> {
    let (client, server) = tokio::io::duplex(BUFFER);
    api.pipes.spawn(serve(Arc::clone(&api), peer, server));
    let target = request.uri().path_and_query().map(ToString::to_string);
    *request.uri_mut() = target.and_then(|target| target.parse().ok()).unwrap_or_else(|| Uri::from_static("/"));
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    let failed = |error: hyper::Error| {
        let mut response = Response::new(Body::from(error.to_string()));
        *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        response
    };
    let handshake = hyper::client::conn::http1::Builder::new().max_headers(MAX_HEADERS).handshake(TokioIo::new(client));
    let (mut sender, connection) = match handshake.await {
        Ok(pipe) => pipe,
        Err(error) => return failed(error),
    };
    api.pipes.spawn(connection.with_upgrades().map(drop));
    match sender.send_request(request).await {
        Ok(response) => response.map(|body| {
            // It ends with the last piece; the connection needs its sender until then.
            Body::stream(futures::stream::unfold((body, sender), async |(mut body, sender)| {
                let piece = std::future::poll_fn(|cx| poll_piece(&mut body, cx)).await;
                piece.map(|piece| (piece, (body, sender)))
            }))
        }),
        Err(error) => failed(error),
    }
}

fn poll_piece(body: &mut Incoming, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<bytes::Bytes>> {
    loop {
        match std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return std::task::Poll::Ready(Some(bytes));
                }
            }
            Some(Err(_)) | None => return std::task::Poll::Ready(None),
        }
    }
}

/// The server's end of a pipe.
async fn serve(api: Arc<Api>, peer: Peer, stream: DuplexStream) {
    let taken = Arc::new(Mutex::new(None));
    let takes = Arc::clone(&taken);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        let takeover = Takeover::default();
        *takes.lock() = Some((takeover.clone(), hyper::upgrade::on(&mut request)));
        request.extensions_mut().insert(takeover);
        request.extensions_mut().insert(peer.clone());
        handle(Arc::clone(&api), request.map(payload)).map(Ok::<_, Infallible>)
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    let http = builder.max_headers(MAX_HEADERS).serve_connection(TokioIo::new(stream), service).with_upgrades();
    if http.await.is_err() {
        return;
    }
    let taken = taken.lock().take();
    if let Some((takeover, upgraded)) = taken
        && let Some(session) = takeover.take()
        && let Ok(upgraded) = upgraded.await
    {
        session(TokioIo::new(upgraded)).await;
    }
}
