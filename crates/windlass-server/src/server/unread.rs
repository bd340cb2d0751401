//! What HTTP/1 leaves to the server: a request without a `Host`, and a body that was not read.
//!
//! As Go's server does, the rest of a small body is read and thrown away, so that the connection serves the next request.
//! Behind a large one the connection is closed, and the answer says so.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HOST, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::body::Body;
use crate::body::text;

/// How much of a body is read for nothing, and for how long.
const DRAIN_LIMIT: u64 = 256 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Refuses a request that does not name one host.
pub(super) fn refuse_host<B>(request: &Request<B>) -> Option<Response<Body>> {
    if request.version() != Version::HTTP_11 {
        return None;
    }
    // A target in the form of a proxy's names the host, too.
    let why = match request.headers().get_all(HOST).iter().count() {
        0 if request.uri().host().is_none() => "missing required Host header",
        0 | 1 => return None,
        _ => "too many Host headers",
    };
    let mut response = text(StatusCode::BAD_REQUEST, &format!("400 Bad Request: {why}"));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

/// The body of a request, which can be asked for again if it may be left unread.
pub(super) enum Source {
    Own(Incoming),
    Shared(Arc<Mutex<Incoming>>),
}

/// A body that may be left unread.
pub(super) struct Rest {
    body: Arc<Mutex<Incoming>>,
    /// Whether the client waits to be told to send it.
    is_expected: bool,
}

impl Source {
    /// The body of a request, and what to look at once the request is answered.
    pub(super) fn new(body: Incoming, version: Version, headers: &HeaderMap) -> (Self, Option<Rest>) {
        if version != Version::HTTP_11 || body.is_end_stream() {
            return (Self::Own(body), None);
        }
        let body = Arc::new(Mutex::new(body));
        (Self::Shared(Arc::clone(&body)), Some(Rest { body, is_expected: headers.contains_key(EXPECT) }))
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        match self {
            Self::Own(body) => Pin::new(body).poll_frame(cx),
            Self::Shared(body) => Pin::new(&mut *body.lock()).poll_frame(cx),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Shared(body) => body.lock().is_end_stream(),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Shared(body) => body.lock().size_hint(),
        }
    }
}

impl Rest {
    /// Sees to what is left of the body before the request is answered.
    pub(super) async fn settle(self, response: &mut Response<Body>) {
        // What is still being read, as by a server that the request is passed on to, is none of this.
        let Some(body) = Arc::into_inner(self.body).map(Mutex::into_inner) else { return };
        if body.is_end_stream() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        // A client that took too long is not waited for any longer.
        let is_late = response.status() == StatusCode::GATEWAY_TIMEOUT;
        let is_small = body.size_hint().upper().is_some_and(|size| size <= DRAIN_LIMIT);
        if is_small && !is_late && !self.is_expected && drain(body).await {
            return;
        }
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Whether all of the body came in time.
async fn drain(body: Incoming) -> bool {
    let mut body = pin!(body);
    let all = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(DRAIN_TIMEOUT, all).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_host() {
        let check = |uri: &str, hosts: &[&str], version: Version, expected: Option<&str>| {
            let mut request = Request::builder().uri(uri).version(version);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            let refused = refuse_host(&request.body(()).expect("a request"));
            assert_eq!(refused.is_some(), expected.is_some(), "{uri} {hosts:?}");
        };
        check("/", &["a"], Version::HTTP_11, None);
        check("/", &[], Version::HTTP_11, Some("missing"));
        check("/", &["a", "b"], Version::HTTP_11, Some("too many"));
        check("https://a/", &[], Version::HTTP_11, None);
        check("/", &[], Version::HTTP_10, None);
        check("https://a/", &[], Version::HTTP_2, None);
    }
}
