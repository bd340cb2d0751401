//! Calling webhooks: HTTPS to a URL or a Service, with the CA bundle its configuration gives.
//!
//! ```text
//! clientConfig ▸ Clients (one Client per configuration) ▸ idle connection, or resolve ▸ dial ▸ TLS ▸ POST
//! ```
//!
//! Admission and conversion both call out through a [`Client`]. Every call is bounded in time and in the
//! size of its answer, and failures are worded as client-go words them, because users look them up.
//! Redirects are not followed and proxies are not used.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio_rustls::TlsConnector;
use windlass_store::Store;

use crate::codec::json;
use crate::field::quote;
use crate::validation::access::Access;

mod service;
mod tls;

/// Answers may be this large.
const ANSWER_LIMIT: usize = 3 << 20;
/// How many connections to one webhook are kept for the next call, and for how long.
const MAX_IDLE: usize = 16;
const IDLE_TIME: Duration = Duration::from_secs(90);
/// How many clients are kept; beyond that, those that nobody holds go.
const MAX_CLIENTS: usize = 200;

/// The clients in use, one per configuration, so that webhooks of the same server share connections.
pub(crate) struct Clients {
    store: Arc<dyn Store>,
    made: Mutex<HashMap<String, Arc<Client>>>,
}

impl Clients {
    /// No clients yet; Services are looked up in `store`.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, made: Mutex::default() }
    }

    /// The client for a `clientConfig`; the error says why there can be none.
    pub(crate) fn get(&self, config: &Value) -> Result<Arc<Client>, String> {
        let key = config.to_string();
        let mut made = self.made.lock();
        if let Some(client) = made.get(&key) {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(Client::new(Arc::clone(&self.store), config)?);
        if made.len() >= MAX_CLIENTS {
            made.retain(|_, client| Arc::strong_count(client) > 1);
        }
        made.insert(key, Arc::clone(&client));
        Ok(client)
    }
}

/// Speaks to one webhook.
pub(crate) struct Client {
    store: Arc<dyn Store>,
    /// `https://<host>[:<port>]`, as messages show it.
    origin: String,
    host: String,
    path: String,
    destination: Destination,
    tls: TlsConnector,
    idle: Mutex<Vec<Idle>>,
}

/// Where connections go.
enum Destination {
    Address { host: String, port: u16 },
    Service(service::Reference),
}

struct Idle {
    since: Instant,
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    fn new(store: Arc<dyn Store>, config: &Value) -> Result<Self, String> {
        let (host, path, destination) = match config.at("service") {
            Value::Null => address(config.text("url"))?,
            service => {
                let reference = service::Reference::new(service);
                let host = format!("{}:{}", reference.server_name(), reference.port);
                (host, service.text("path").to_owned(), Destination::Service(reference))
            }
        };
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        let tls = tls::connector(config.text("caBundle"))?;
        let origin = format!("https://{host}");
        Ok(Self { store, origin, host, path, destination, tls, idle: Mutex::default() })
    }

    /// Posts a review and returns what was answered, decoded. `told` is the time limit that the webhook is
    /// told of; the call itself is given up after `limit`.
    pub(crate) async fn call(&self, body: Bytes, told: Duration, limit: Duration) -> Result<Value, String> {
        let target = format!("{}?timeout={}s", self.path, told.as_secs());
        let failed = |why: &str| format!("Post {}: {why}", quote(&format!("{}{target}", self.origin)));
        match tokio::time::timeout(limit, self.post(&target, body)).await {
            Err(_) => Err(failed("context deadline exceeded")),
            Ok(Err(CallError::Transport(why))) => Err(failed(&why)),
            Ok(Err(CallError::Answer(why))) => Err(why),
            Ok(Ok(value)) => Ok(value),
        }
    }

    async fn post(&self, target: &str, body: Bytes) -> Result<Value, CallError> {
        if let Some(mut sender) = self.reuse() {
            match sender.send_request(self.request(target, body.clone())).await {
                Ok(response) => return self.answer(response, sender).await,
                // The server closed the idle connection as it was taken up: nobody has seen the request.
                Err(error) if error.is_canceled() || error.is_closed() || error.is_incomplete_message() => {}
                Err(error) => return Err(CallError::Transport(transport(&error))),
            }
        }
        let mut sender = self.connect().await.map_err(CallError::Transport)?;
        match sender.send_request(self.request(target, body)).await {
            Ok(response) => self.answer(response, sender).await,
            Err(error) => Err(CallError::Transport(transport(&error))),
        }
    }

    fn reuse(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock();
        while let Some(Idle { since, sender }) = idle.pop() {
            if sender.is_ready() && since.elapsed() < IDLE_TIME {
                return Some(sender);
            }
        }
        None
    }

    fn request(&self, target: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        // What cannot be written into a request line is asked for as the root: the webhook answers 404.
        *request.uri_mut() = target.parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Ok(host) = self.host.parse() {
            headers.insert(HOST, host);
        }
        headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, http::HeaderValue::from_static("application/json, */*"));
        headers.insert(USER_AGENT, http::HeaderValue::from_static("kube-apiserver-admission"));
        request
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let (stream, name) = match &self.destination {
            Destination::Address { host, port } => (dial(host, *port).await?, host.clone()),
            Destination::Service(reference) => {
                let (host, port) = service::resolve(&*self.store, reference).await?;
                (dial(&host, port).await?, reference.server_name())
            }
        };
        // Reviews are small and wait for their answer.
        let _ = stream.set_nodelay(true);
        let server_name = name.try_into().map_err(|_| format!("{} is not a valid server name", quote(&self.host)))?;
        let stream = self.tls.connect(server_name, stream).await.map_err(|error| tls::explain(&error))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| transport(&error))?;
        // Ends when the sender is dropped or the webhook closes; its errors reach the sender.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Reads an answer and keeps the connection for the next call.
    async fn answer(&self, response: Response<Incoming>, sender: SendRequest<Full<Bytes>>) -> Result<Value, CallError> {
        let (parts, body) = response.into_parts();
        let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let body = Limited::new(body, ANSWER_LIMIT).collect().await.map_err(|error| {
            let why = if error.is::<LengthLimitError>() {
                format!("the answer is larger than {ANSWER_LIMIT} bytes")
            } else {
                "unexpected EOF".to_owned()
            };
            CallError::Answer(format!(
                "unexpected error when reading response body. Please retry. Original error: {why}"
            ))
        })?;
        self.keep(sender);
        decode(parts.status, content_type, &body.to_bytes()).map_err(CallError::Answer)
    }

    fn keep(&self, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE && !sender.is_closed() {
            idle.push(Idle { since: Instant::now(), sender });
        }
    }
}

enum CallError {
    /// The webhook was not reached or did not answer; shown with the URL.
    Transport(String),
    /// The answer is of no use.
    Answer(String),
}

/// Takes a URL apart. Its query is not used, as upstream does not use it either.
fn address(url: &str) -> Result<(String, String, Destination), String> {
    let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
    let Some(authority) = uri.authority() else {
        return Err("webhook configuration must have either service or URL".to_owned());
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = authority.port_u16().unwrap_or(443);
    Ok((authority.as_str().to_owned(), uri.path().to_owned(), Destination::Address { host, port }))
}

async fn dial(host: &str, port: u16) -> Result<tokio::net::TcpStream, String> {
    let mut addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(|_| format!("dial tcp: lookup {host}: no such host"))?
        .collect::<Vec<_>>();
    // As Go does, IPv4 comes first where a name has both.
    addresses.sort_by_key(std::net::SocketAddr::is_ipv6);
    let mut failure = format!("dial tcp: lookup {host}: no such host");
    for address in addresses {
        match tokio::net::TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = format!("dial tcp {address}: connect: {}", system(&error)),
        }
    }
    Err(failure)
}

/// A system error in C's words, which Go shows too.
fn system(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".into(),
        ErrorKind::ConnectionReset => "connection reset by peer".into(),
        ErrorKind::HostUnreachable => "no route to host".into(),
        ErrorKind::NetworkUnreachable => "network is unreachable".into(),
        ErrorKind::TimedOut => "connection timed out".into(),
        ErrorKind::UnexpectedEof => "EOF".into(),
        _ => error.to_string(),
    }
}

fn transport(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "EOF".to_owned();
    }
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.map_or_else(|| format!("net/http: HTTP/1.x transport connection broken: {error}"), system)
}

/// What an answer means: its JSON, or why it is a failure.
fn decode(code: StatusCode, content_type: &str, body: &[u8]) -> Result<Value, String> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !(200..=206).contains(&code.as_u16()) {
        return Err(failure(code, media_type, body));
    }
    if !matches!(media_type, "" | "application/json" | "text/plain" | "application/yaml") && body.is_empty() {
        return Err(format!("0-length response with status code: {} and content type: {content_type}", code.as_u16()));
    }
    if body.is_empty() {
        let content_type = if content_type.is_empty() { "application/json" } else { content_type };
        return Err(format!("0-length response with status code: {} and content type: {content_type}", code.as_u16()));
    }
    let value =
        json::parse(body).map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?.value;
    if !value.is_object() {
        let found = if value.is_array() { "array" } else { "value" };
        return Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value"
        ));
    }
    if value.text("kind").is_empty() {
        return Err(format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body)));
    }
    if value.text("apiVersion").is_empty() {
        return Err(format!("Object 'apiVersion' is missing in '{}'", String::from_utf8_lossy(body)));
    }
    Ok(value)
}

/// What client-go makes of an answer that is not a success: the Status in it, or a text by its code.
fn failure(code: StatusCode, media_type: &str, body: &[u8]) -> String {
    const LONGEST: usize = 2048;
    if let Ok(parsed) = json::parse(body) {
        let status = parsed.value;
        if status.text("kind") == "Status" && status.text("status") != "Success" && !status.text("message").is_empty() {
            return status.text("message").to_owned();
        }
    }
    let said = if media_type.is_empty() || media_type.starts_with("text/") {
        String::from_utf8_lossy(&body[..body.len().min(LONGEST)]).trim().to_owned()
    } else {
        "unknown".to_owned()
    };
    match code.as_u16() {
        400 => "the server rejected our request for an unknown reason".into(),
        401 => "the server has asked for the client to provide credentials".into(),
        404 => "the server could not find the requested resource".into(),
        405 => "the server does not allow this method on the requested resource".into(),
        406 if said.is_empty() || said == "unknown" => {
            "the server was unable to respond with a content type that the client supports".into()
        }
        403 | 406 | 415 => said,
        409 => "the server reported a conflict".into(),
        422 => "the server rejected our request due to an error in our request".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        503 => "the server is currently unable to handle the request".into(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the \
                request"
            .into(),
        500.. => format!("an error on the server ({}) has prevented the request from succeeding", quote(&said)),
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_client_go_reads_them() {
        let check = |code: u16, kind: &str, body: &str, expected: &str| {
            let code = StatusCode::from_u16(code).expect("a code");
            assert_eq!(decode(code, kind, body.as_bytes()).expect_err(body), expected);
        };
        check(
            200,
            "application/json",
            "",
            "0-length response with status code: 200 and content type: application/json",
        );
        check(200, "", "{}", "Object 'Kind' is missing in '{}'");
        check(
            500,
            "application/json",
            "x",
            "an error on the server (\"unknown\") has prevented the request from succeeding",
        );
        check(500, "text/plain", " x\n", "an error on the server (\"x\") has prevented the request from succeeding");
        check(404, "", "", "the server could not find the requested resource");
        check(302, "", "", "the server responded with the status code 302 but did not return more information");
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"go away"}"#;
        check(403, "application/json", status, "go away");
        assert!(decode(StatusCode::OK, "", br#"{"kind":"A","apiVersion":"v1"}"#).is_ok());
    }

    #[test]
    fn urls_are_taken_apart() {
        let (host, path, destination) = address("https://[::1]:9443/a/b?c=d").expect("a URL");
        assert_eq!((host.as_str(), path.as_str()), ("[::1]:9443", "/a/b"));
        assert!(matches!(destination, Destination::Address { host, port: 9443 } if host == "::1"));
        let (_, path, destination) = address("https://example.com").expect("a URL");
        assert_eq!(path, "/");
        assert!(matches!(destination, Destination::Address { host, port: 443 } if host == "example.com"));
    }
}
