//! Requests of the server to itself. Upstream's controllers inside the API server are its clients, and what they write
//! is subject to admission, counted and owned as that of any other.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use crate::api::Api;
use crate::authn::{MASTERS, Peer, User};
use crate::handler::{handle, payload};
use crate::validation::access::Access as _;

/// Why a request did not work.
pub(crate) struct Failed {
    /// The method.
    pub method: Method,
    /// The path.
    pub path: String,
    /// What the answer says.
    pub message: String,
}

/// The object at a path, if there is one.
pub(crate) async fn get(api: &Arc<Api>, path: &str) -> Result<Option<Value>, Failed> {
    match call(api, Method::GET, path, &Value::Null).await? {
        (StatusCode::NOT_FOUND, _) => Ok(None),
        (_, object) => Ok(Some(object)),
    }
}

/// Writes an object. Another client may do the same or delete it meanwhile: the next round sees.
pub(crate) async fn send(api: &Arc<Api>, method: Method, path: &str, object: &Value) -> Result<(), Failed> {
    call(api, method, path, object).await.map(drop)
}

/// Sends a request to this server, as the server itself.
async fn call(api: &Arc<Api>, method: Method, path: &str, body: &Value) -> Result<(StatusCode, Value), Failed> {
    let failed = |message: String| Failed { method: method.clone(), path: path.to_owned(), message };
    let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = Request::builder()
        .method(method.clone())
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::USER_AGENT, "kube-apiserver")
        .extension(Peer::Local(User::new("system:apiserver", [MASTERS.to_owned()])))
        .body(Full::new(bytes))
        .map_err(|error| failed(error.to_string()))?;
    let response = handle(Arc::clone(api), request.map(payload)).await;
    let code = response.status();
    let Ok(body) = response.into_body().collect().await;
    let object: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    let is_expected = matches!(code, StatusCode::NOT_FOUND | StatusCode::CONFLICT);
    if code.is_success() || is_expected { Ok((code, object)) } else { Err(failed(object.text("message").to_owned())) }
}
