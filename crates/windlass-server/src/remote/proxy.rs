//! Passes a request on to the server of its group version.
//!
//! Requests have been authenticated and authorised here; the other server is told in whose name they come. Bodies,
//! watches and upgraded connections are streamed in both directions. Mirrors `kube-aggregator/pkg/apiserver/handler_proxy.go`:
//! failures are plain text.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{LOCATION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;

use super::Remote;
use super::backend::{Opened, broken, identify};
use crate::body::Body;
use crate::body::text;
use crate::streams::proxy::{self, Proxied};
use crate::streams::upgrade::Takeover;
use crate::user::User;

/// How long a server may take to say what it serves.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
const UNAVAILABLE: &str = "service unavailable\n";

/// A request to pass on.
pub(crate) struct Incoming {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: UnsyncBoxBody<Bytes, io::Error>,
    pub(crate) takeover: Option<Takeover>,
    /// Whether it asks what a group version has.
    pub(crate) is_discovery: bool,
}

/// Passes a request of `user` on, and the answer back.
pub(crate) async fn serve(remote: &Remote, user: &User, request: Incoming) -> Response<Body> {
    if !remote.is_available {
        return text(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE);
    }
    if let Some(problem) = remote.backend.tls_problem() {
        return text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{problem}\n"));
    }
    let is_discovery = request.is_discovery;
    let upgrades = request.headers.contains_key(UPGRADE) && request.takeover.is_some();
    let passed = pass_on(remote, user, request);
    let result = if is_discovery {
        let late = || Err("context deadline exceeded".to_owned());
        tokio::time::timeout(DISCOVERY_TIMEOUT, passed).await.unwrap_or_else(|_| late())
    } else {
        passed.await
    };
    match result {
        Ok(response) if upgrades => upgraded(response),
        Ok(response) => not_redirected(response),
        Err(why) if why == UNAVAILABLE => text(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE),
        Err(why) => {
            let what = if upgrades { "error dialing backend" } else { "error trying to reach service" };
            text(StatusCode::SERVICE_UNAVAILABLE, &format!("{what}: {why}\n"))
        }
    }
}

async fn pass_on(remote: &Remote, user: &User, request: Incoming) -> Result<Response<Body>, String> {
    let at = remote.backend.resolve().await.map_err(|why| {
        tracing::warn!(group = %remote.group, version = %remote.version, %why, "an aggregated API has no address");
        UNAVAILABLE.to_owned()
    })?;
    let Opened { connection, host } = remote.backend.connect(at).await?;
    let mut headers = request.headers;
    identify(&mut headers, user);
    if let Ok(path) = HeaderValue::from_str(request.uri.path()) {
        headers.insert(HeaderName::from_static("x-forwarded-uri"), path);
    }
    let target = request.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let Incoming { method, body, takeover, .. } = request;
    let request = Proxied { method, target, headers, body, host, takeover };
    proxy::forward(connection, request).await.map_err(|error| broken(&error))
}

/// A server that neither upgrades nor refuses does not understand the request.
fn upgraded(response: Response<Body>) -> Response<Body> {
    let code = response.status();
    if code == StatusCode::SWITCHING_PROTOCOLS || code.as_u16() >= 400 {
        return response;
    }
    let why = format!("invalid upgrade response: status code {}\n", code.as_u16());
    text(StatusCode::SERVICE_UNAVAILABLE, &why)
}

/// A client must not be sent to another server with its credentials.
fn not_redirected(response: Response<Body>) -> Response<Body> {
    if !response.status().is_redirection() || !response.headers().contains_key(LOCATION) {
        return response;
    }
    let mut response =
        Response::new(Body::from("the backend attempted to redirect this request, which is not permitted"));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
