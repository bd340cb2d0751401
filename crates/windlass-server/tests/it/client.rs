//! Requests to a server in the same process.

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tower::ServiceExt as _;
use windlass_api::codec::json;
use windlass_server::{Server, Service};

/// What a request was answered with.
#[derive(Debug)]
pub(crate) struct Answer {
    pub code: u16,
    pub warnings: Vec<String>,
    pub body: Value,
}

impl Answer {
    /// The message of a Status.
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

pub(crate) async fn start() -> Server {
    Server::builder().start().await.unwrap()
}

/// Sends a request; a PATCH is a merge patch.
pub(crate) async fn send(server: &Server, method: Method, path: &str, body: &Value) -> Answer {
    send_to(server.service(), method, path, body).await
}

/// Sends a request to the service of a server.
pub(crate) async fn send_to(service: Service, method: Method, path: &str, body: &Value) -> Answer {
    let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    send_as(service, method, path, content_type, body).await
}

/// Applies a configuration; the path names the manager.
pub(crate) async fn apply(server: &Server, path: &str, body: &Value) -> Answer {
    send_as(server.service(), Method::PATCH, path, "application/apply-patch+yaml", body).await
}

/// Sends a patch of a type.
pub(crate) async fn send_patch(server: &Server, path: &str, content_type: &str, body: &Value) -> Answer {
    send_as(server.service(), Method::PATCH, path, content_type, body).await
}

async fn send_as(service: Service, method: Method, path: &str, content_type: &str, body: &Value) -> Answer {
    let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    send_bytes(service, method, path, content_type, bytes).await
}

/// Sends a body as it is.
pub(crate) async fn send_text(server: &Server, path: &str, body: String) -> Answer {
    send_bytes(server.service(), Method::POST, path, "application/json", body.into()).await
}

pub(crate) async fn send_bytes(
    service: Service,
    method: Method,
    path: &str,
    content_type: &str,
    bytes: Vec<u8>,
) -> Answer {
    let body: Full<bytes::Bytes> = Full::from(bytes);
    let request = Request::builder().method(method).uri(path).header("content-type", content_type).body(body).unwrap();
    let response = service.oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter().map(|w| w.to_str().unwrap().to_owned()).collect();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Answer { code, warnings, body: json::parse(&body).map(|parsed| parsed.value).unwrap_or_default() }
}

/// Sends a GET with headers; returns the answer's headers and body as they are.
pub(crate) async fn get_with(server: &Server, path: &str, headers: &[(&str, &str)]) -> http::Response<bytes::Bytes> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = server.service().oneshot(request.body(Full::<bytes::Bytes>::default()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    http::Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

pub(crate) async fn get(server: &Server, path: &str) -> Answer {
    send(server, Method::GET, path, &Value::Null).await
}

pub(crate) async fn post(server: &Server, path: &str, body: &Value) -> Answer {
    send(server, Method::POST, path, body).await
}

/// Creates something that must be accepted.
pub(crate) async fn create(server: &Server, path: &str, body: &Value) -> Value {
    let answer = post(server, path, body).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body
}

/// Waits for a GET to be answered as it should.
pub(crate) async fn eventually(server: &Server, path: &str, is_right: impl Fn(&Answer) -> bool) -> Value {
    for _ in 0..100_000 {
        let answer = get(server, path).await;
        if is_right(&answer) {
            return answer.body;
        }
        tokio::task::yield_now().await;
    }
    panic!("{path} is not as it should be: {}", get(server, path).await.body);
}
