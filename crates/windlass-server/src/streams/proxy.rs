//! Passes a request on to a port of a pod, and its answer back.
//!
//! Mirrors `proxy/upgradeaware.go` of upstream's `apimachinery` as far as requests and answers go as they are; links in
//! pages are not rewritten. Nothing is spawned: the connection to the pod is driven by what reads the answer.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::{BoxFuture, FusedFuture as _, FutureExt as _};
use futures::stream;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::Connection;
use super::upgrade::Takeover;
use crate::body::Body;

/// Headers that are about one connection.
const HOP_BY_HOP: [HeaderName; 7] =
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// A request that is passed on.
pub(crate) struct Proxied {
    pub(crate) method: Method,
    /// Path and query at the pod.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: UnsyncBoxBody<Bytes, std::io::Error>,
    /// `address:port` of the pod.
    pub(crate) host: String,
    pub(crate) takeover: Option<Takeover>,
}

/// Passes a request on over a connection to the pod. The error is why the pod did not answer.
pub(crate) async fn forward(connection: Box<dyn Connection>, request: Proxied) -> Result<Response<Body>, hyper::Error> {
    let upgrade = request.headers.get(UPGRADE).cloned().filter(|_| request.takeover.is_some());
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await;
    let (mut sender, driver) = handshake?;
    let mut driver: Driver = driver.with_upgrades().map(drop).boxed().fuse();
    let mut outgoing = Request::new(request.body);
    *outgoing.method_mut() = request.method;
    // What the client sent has been taken apart before, so it is a target again.
    *outgoing.uri_mut() = request.target.parse().unwrap_or_default();
    *outgoing.headers_mut() = passed_on(request.headers, upgrade.as_ref());
    if let Ok(host) = HeaderValue::from_str(&request.host) {
        outgoing.headers_mut().insert(HOST, host);
    }
    let mut answer = {
        let mut sending = pin!(sender.send_request(outgoing));
        std::future::poll_fn(|cx| {
            let _ = driver.poll_unpin(cx);
            sending.as_mut().poll(cx)
        })
        .await?
    };
    if let (StatusCode::SWITCHING_PROTOCOLS, Some(takeover)) = (answer.status(), request.takeover) {
        let upgraded = hyper::upgrade::on(&mut answer);
        takeover.by(|mut client| async move {
            // It may have ended with the answer, and then does not end again.
            let mut driver = driver;
            let drive = async {
                if !driver.is_terminated() {
                    (&mut driver).await;
                }
            };
            let ((), pod) = tokio::join!(drive, upgraded);
            if let Ok(pod) = pod {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut TokioIo::new(pod)).await;
            }
        });
        return Ok(answer.map(|_| Body::empty()));
    }
    let (mut parts, body) = answer.into_parts();
    parts.headers = passed_on(parts.headers, None);
    let answer = Answer { body, driver, _sender: sender };
    Ok(Response::from_parts(
        parts,
        Body::stream(stream::unfold(answer, async |mut answer| {
            let piece = std::future::poll_fn(|cx| answer.poll_piece(cx)).await;
            piece.map(|piece| (piece, answer))
        })),
    ))
}

type Driver = futures::future::Fuse<BoxFuture<'static, ()>>;

/// The answer of a pod as it is read.
struct Answer {
    body: Incoming,
    driver: Driver,
    /// Without it the connection would end early.
    _sender: hyper::client::conn::http1::SendRequest<UnsyncBoxBody<Bytes, std::io::Error>>,
}

impl Answer {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let _ = self.driver.poll_unpin(cx);
        loop {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(bytes));
                    }
                }
                // An answer that breaks off ends; its length tells the client.
                Some(Err(_)) | None => return Poll::Ready(None),
            }
        }
    }
}

/// Headers without those that are about one connection, or about the user.
fn passed_on(mut headers: HeaderMap, upgrade: Option<&HeaderValue>) -> HeaderMap {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove(AUTHORIZATION);
    let impersonation: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in impersonation {
        headers.remove(name);
    }
    if let Some(upgrade) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, upgrade.clone());
        headers.remove(CONTENT_LENGTH);
    }
    headers
}
