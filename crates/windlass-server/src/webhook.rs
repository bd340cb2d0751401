//! Calling webhooks: HTTPS to a URL or a Service, with the CA bundle its configuration gives.
//!
//! ```text
//! clientConfig ▸ Clients (one Client per configuration) ▸ idle connection, or resolve ▸ dial ▸ TLS ▸ POST
//! ```
//!
//! Admission and conversion both call out through a [`Client`]. Every call is bounded in time and in the
//! size of its answer, and failures are worded as Go and client-go word them, because users look them up.
//! Redirects are followed as Go's client does; proxies are not used.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::response::Parts;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant as Deadline, timeout_at};
use tokio_rustls::TlsConnector;
use windlass_store::Store;

use crate::dialer::Dial;
use crate::field::quote;
use crate::validation::access::Access;
use redirect::Hop;

mod answer;
pub(crate) mod dial;
mod redirect;
pub(crate) mod service;
pub(crate) mod tls;
mod x509;

/// Where upstream makes the scheme that reviews are read with; its errors name the place.
pub(crate) const REVIEW_SCHEME: &str = "k8s.io/apiserver/pkg/util/webhook/client.go:74";
/// What upstream says where time runs out.
const OUT_OF_TIME: &str = "context deadline exceeded";

/// The answers of admission webhooks may be this large.
pub(crate) const ANSWER_LIMIT: usize = 3 << 20;
/// How many connections to one webhook are kept for the next call, and for how long.
const MAX_IDLE: usize = 16;
const IDLE_TIME: Duration = Duration::from_secs(90);
/// How many clients are kept; beyond that, those that are not in use go.
const MAX_CLIENTS: usize = 200;

/// The clients in use, one per configuration, so that webhooks of the same server share connections.
pub(crate) struct Clients {
    store: Arc<dyn Store>,
    dial: Dial,
    made: Mutex<HashMap<String, Arc<Client>>>,
}

impl Clients {
    /// No clients yet; Services are looked up in `store`.
    pub(crate) fn new(store: Arc<dyn Store>, dial: Dial) -> Self {
        Self { store, dial, made: Mutex::default() }
    }

    /// The client for a `clientConfig`; the error says why there can be none.
    pub(crate) fn get(&self, config: &Value) -> Result<Arc<Client>, String> {
        let key = config.to_string();
        let mut made = self.made.lock();
        if let Some(client) = made.get(&key) {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(Client::new(Arc::clone(&self.store), self.dial.clone(), config)?);
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
    dial: Dial,
    /// `<host>[:<port>]`, as messages show it.
    authority: String,
    path: String,
    destination: Destination,
    tls: TlsConnector,
    idle: Mutex<Vec<Idle>>,
}

/// Where connections go.
enum Destination {
    Address,
    Service(service::Reference),
}

struct Idle {
    since: Instant,
    sender: Sender,
}

impl Client {
    fn new(store: Arc<dyn Store>, dial: Dial, config: &Value) -> Result<Self, String> {
        let (authority, path, destination) = match config.at("service") {
            Value::Null => {
                let (authority, path) = address(config.text("url"))?;
                (authority, path, Destination::Address)
            }
            service => {
                let reference = service::Reference::new(service);
                let authority = format!("{}:{}", reference.server_name(), reference.port);
                (authority, service.text("path").to_owned(), Destination::Service(reference))
            }
        };
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        let tls = tls::connector(config.text("caBundle"))?;
        Ok(Self { store, dial, authority, path, destination, tls, idle: Mutex::default() })
    }

    /// Posts a review and returns what was answered, decoded. `told` is the time limit that the webhook is
    /// told of; the call itself is given up after `limit`, and when the answer is larger than `largest`.
    pub(crate) async fn call(
        &self,
        body: Bytes,
        told: Duration,
        limit: Duration,
        largest: usize,
    ) -> Result<Value, String> {
        let deadline = Deadline::now() + limit;
        let target = format!("{}?timeout={}s", self.path, told.as_secs());
        let mut hop = Hop { https: true, authority: self.authority.clone(), target, method: Method::POST };
        for _ in 0..redirect::MOST {
            let failed = |why: &str| format!("Post {}: {why}", quote(&hop.url()));
            let (response, sender) = match timeout_at(deadline, self.send(&hop, &body)).await {
                Err(_) => return Err(failed(OUT_OF_TIME)),
                Ok(sent) => sent.map_err(|why| failed(&why))?,
            };
            match hop.next(&response) {
                None => {
                    let (parts, body) = read(response, deadline, largest).await?;
                    if self.is_own(&hop) {
                        self.keep(sender);
                    }
                    return answer::decode(&parts, &body);
                }
                Some(next) => hop = next.map_err(|why| failed(&why))?,
            }
        }
        Err(format!("Post {}: stopped after {} redirects", quote(&hop.url()), redirect::MOST))
    }

    /// Whether a request goes to the webhook itself, and not where it sent us.
    fn is_own(&self, hop: &Hop) -> bool {
        hop.https && hop.authority == self.authority
    }

    async fn send(&self, hop: &Hop, body: &Bytes) -> Result<(Response<Incoming>, Sender), String> {
        if self.is_own(hop)
            && let Some(mut sender) = self.reuse()
        {
            match sender.send_request(request(hop, body)).await {
                Ok(response) => return Ok((response, sender)),
                // The server closed the idle connection as it was taken up: the request was not seen.
                Err(error) if error.is_canceled() || error.is_closed() || error.is_incomplete_message() => {}
                Err(error) => return Err(transport(&error, &None)),
            }
        }
        let (mut sender, ends) = self.connect(hop).await?;
        let response = sender.send_request(request(hop, body)).await.map_err(|error| transport(&error, &ends))?;
        Ok((response, sender))
    }

    fn reuse(&self) -> Option<Sender> {
        let mut idle = self.idle.lock();
        while let Some(Idle { since, sender }) = idle.pop() {
            if sender.is_ready() && since.elapsed() < IDLE_TIME {
                return Some(sender);
            }
        }
        None
    }

    async fn connect(&self, hop: &Hop) -> Result<(Sender, dial::Ends), String> {
        let (host, port) = hop.address();
        let (stream, name) = match &self.destination {
            Destination::Service(reference) => {
                let (address, port) =
                    if self.is_own(hop) { service::resolve(&*self.store, reference).await? } else { (host, port) };
                (dial::dial(&self.dial, &address, port).await?, reference.server_name())
            }
            Destination::Address => (dial::dial(&self.dial, &host, port).await?, host),
        };
        let ends = dial::ends(&stream);
        if !hop.https {
            return Ok((speak(stream, &ends).await?, ends));
        }
        let server_name = name.try_into().map_err(|_| {
            "tls: either ServerName or InsecureSkipVerify must be specified in the tls.Config".to_owned()
        })?;
        let (stream, speaks_http) = dial::Sniffed::new(stream);
        let stream = self.tls.connect(server_name, stream).await.map_err(|error| {
            let speaks_http = speaks_http.load(std::sync::atomic::Ordering::Relaxed);
            if speaks_http {
                "http: server gave HTTP response to HTTPS client".to_owned()
            } else {
                tls::explain(&error, &ends)
            }
        })?;
        Ok((speak(stream, &ends).await?, ends))
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE && !sender.is_closed() {
            idle.push(Idle { since: Instant::now(), sender });
        }
    }
}

/// The sending end of a connection.
type Sender = SendRequest<Full<Bytes>>;

/// Speaks HTTP on a connection.
async fn speak<S>(stream: S, ends: &dial::Ends) -> Result<Sender, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| transport(&error, ends))?;
    // Ends when the sender is dropped or the webhook closes; its errors reach the sender.
    tokio::spawn(connection);
    Ok(sender)
}

fn request(hop: &Hop, body: &Bytes) -> Request<Full<Bytes>> {
    let posts = hop.method == Method::POST;
    let mut request = Request::new(Full::new(if posts { body.clone() } else { Bytes::new() }));
    *request.method_mut() = hop.method.clone();
    // What cannot be written into a request line is asked for as the root: the webhook answers 404.
    *request.uri_mut() = hop.target.parse().unwrap_or_default();
    let headers = request.headers_mut();
    if let Ok(host) = hop.authority.parse() {
        headers.insert(HOST, host);
    }
    if posts {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
    headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"));
    request
}

/// Reads an answer.
async fn read(response: Response<Incoming>, deadline: Deadline, largest: usize) -> Result<(Parts, Bytes), String> {
    let (parts, body) = response.into_parts();
    let why = match timeout_at(deadline, Limited::new(body, largest).collect()).await {
        Ok(Ok(body)) => return Ok((parts, body.to_bytes())),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            format!("the answer is larger than {largest} bytes")
        }
        Ok(Err(_)) => "unexpected EOF".to_owned(),
        Err(_) => OUT_OF_TIME.to_owned(),
    };
    Err(format!("unexpected error when reading response body. Please retry. Original error: {why}"))
}

/// Why a request got no answer.
fn transport(error: &hyper::Error, ends: &dial::Ends) -> String {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "EOF".to_owned();
    }
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.map_or_else(
        || "net/http: HTTP/1.x transport connection broken: malformed HTTP response".to_owned(),
        |error| dial::broken(ends, error),
    )
}

/// Takes a URL apart: where it is, and the path. Its query is not used, as upstream does not use it either.
fn address(url: &str) -> Result<(String, String), String> {
    let uri: Uri = url.parse().map_err(|_| format!("Unparsable URL: parse {}: invalid URL", quote(url)))?;
    let Some(authority) = uri.authority() else {
        return Err("webhook configuration must have either service or URL".to_owned());
    };
    Ok((authority.as_str().to_owned(), uri.path().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let own = |url: &str| {
            let (authority, path) = address(url).expect("a URL");
            let hop = Hop { https: true, authority: authority.clone(), target: String::new(), method: Method::POST };
            (authority, path, hop.address())
        };
        let expected = ("[::1]:9443".to_owned(), "/a/b".to_owned(), ("::1".to_owned(), 9443));
        assert_eq!(own("https://[::1]:9443/a/b?c=d"), expected);
        let expected = ("example.com".to_owned(), "/".to_owned(), ("example.com".to_owned(), 443));
        assert_eq!(own("https://example.com"), expected);
    }
}
