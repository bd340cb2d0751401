//! Requests for group versions that other servers serve.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};

use super::Payload;
use crate::authn::User;
use crate::body::Body;
use crate::catalog::Snapshot;
use crate::codec::negotiate::Accepted;
use crate::remote::{self, Incoming, Remote};
use crate::render;
use crate::request::Target;
use crate::status::Status;

/// What answers a request that is not for a resource, if another server does: the discovery document of a group
/// version, and its OpenAPI document.
pub(super) fn of_path(snapshot: &Snapshot, target: &Target, path: &str) -> Option<Arc<Remote>> {
    let remotes = snapshot.remotes();
    if remotes.is_empty() {
        return None;
    }
    match target {
        Target::GroupVersion(group, version) => remotes.find(group, version).cloned(),
        Target::Other => {
            let document = path.strip_prefix("/openapi/v3/")?;
            let remote = remotes.with_openapi_v3(document)?;
            // What was converted is answered here, and what is served here as well is not asked for elsewhere.
            let is_elsewhere = remote::converted_document(remotes, document).is_none();
            let (group, version) = document.strip_prefix("apis/").and_then(|name| name.split_once('/'))?;
            let is_here = snapshot.has_version(group, version) && remotes.find(group, version).is_none();
            (is_elsewhere && !is_here).then(|| Arc::clone(remote))
        }
        _ => None,
    }
}

/// Passes a request on. It may take as long as it could here.
pub(super) async fn pass_on(
    remote: &Remote,
    user: &User,
    request: Request<Payload>,
    timeout: Option<Duration>,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let is_discovery = parts.uri.path().trim_matches('/').split('/').count() == 3;
    let takeover = parts.extensions.remove();
    let incoming =
        Incoming { method: parts.method, uri: parts.uri, headers: parts.headers, body, takeover, is_discovery };
    let served = remote::serve(remote, user, incoming);
    match timeout {
        None => served.await.map(Body::long_running),
        Some(timeout) => match tokio::time::timeout(timeout, served).await {
            Ok(response) => response,
            Err(_) => render::status(&Status::request_timed_out(), &Accepted::json()),
        },
    }
}
