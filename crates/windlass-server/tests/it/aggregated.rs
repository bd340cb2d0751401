//! A small API server of its own, as an aggregated one is: HTTPS, client certificates, discovery, OpenAPI, watches.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use windlass_server::authn::User;
use windlass_server::pki::{Authority, Identity};

const ROOT: &str = "/apis/wardle.example.com/v1";

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// A request that the server has answered.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    /// The common name of the client's certificate.
    pub(crate) client: Option<String>,
}

impl Seen {
    /// The values of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// A running aggregated server for `wardle.example.com/v1`. It stops when it is dropped.
pub(crate) struct Aggregated {
    pub(crate) address: SocketAddr,
    certificate: String,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct State {
    seen: Mutex<Vec<Seen>>,
    has_aggregated_discovery: bool,
    has_v3: bool,
    broken: std::sync::atomic::AtomicBool,
}

impl Aggregated {
    /// A server whose clients show certificates of `clients`, which is PEM.
    pub(crate) async fn start(clients: &str) -> Self {
        Self::with(clients, State { has_aggregated_discovery: true, has_v3: true, ..State::default() }).await
    }

    /// A server that has neither the newer discovery nor the newer OpenAPI.
    pub(crate) async fn old(clients: &str) -> Self {
        Self::with(clients, State::default()).await
    }

    async fn with(clients: &str, state: State) -> Self {
        let authority = Authority::generate().unwrap();
        let serving = authority.server(&["wardle.default.svc".to_owned()]).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config(&serving, clients)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(state);
        let task = tokio::spawn(accept(listener, acceptor, Arc::clone(&state)));
        Self { address, certificate: authority.certificate().to_owned(), state, task }
    }

    /// The authority of its certificate, as an APIService has it.
    pub(crate) fn bundle(&self) -> String {
        BASE64_STANDARD.encode(&self.certificate)
    }

    /// Has it answer everything with 500 from now on, or not any more.
    pub(crate) fn set_broken(&self, broken: bool) {
        self.state.broken.store(broken, std::sync::atomic::Ordering::SeqCst);
    }

    /// The last request for a path.
    pub(crate) fn last(&self, path: &str) -> Seen {
        self.state.seen.lock().unwrap().iter().rev().find(|seen| seen.path == path).cloned().unwrap()
    }
}

impl Drop for Aggregated {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// TLS that asks clients for certificates of `clients`.
fn config(serving: &Identity, clients: &str) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(clients.as_bytes()).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(serving.certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(serving.key.as_bytes()).unwrap(),
        )
        .unwrap()
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first().cloned());
            let client = certificate.and_then(|der| User::from_certificate(&der)).map(|user| user.name);
            let service =
                hyper::service::service_fn(move |request| answer(Arc::clone(&state), client.clone(), request));
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = connection.with_upgrades().await;
        });
    }
}

async fn answer(
    state: Arc<State>,
    client: Option<String>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    state.seen.lock().unwrap().push(Seen { path: path.clone(), headers, client });
    if state.broken.load(std::sync::atomic::Ordering::SeqCst) {
        return Ok(text(500, "text/plain", "broken"));
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let flunder = json!({"kind": "Flunder", "apiVersion": "wardle.example.com/v1", "metadata": {"name": "f"}});
    Ok(match path.as_str() {
        "/apis" if state.has_aggregated_discovery => {
            let kind = json!({"group": "wardle.example.com", "version": "v1", "kind": "Flunder"});
            let resource = json!({"resource": "flunders", "responseKind": kind, "scope": "Namespaced",
                "singularResource": "flunder", "verbs": ["get", "list", "watch"]});
            let versions = json!([{"version": "v1", "resources": [resource]}]);
            let items = json!([{"metadata": {"name": "wardle.example.com"}, "versions": versions}]);
            let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items});
            text(200, kind, &list.to_string())
        }
        ROOT => json_text(&json!({"kind": "APIResourceList", "groupVersion": "wardle.example.com/v1", "resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
                "verbs": ["get", "list", "watch"], "shortNames": ["fl"]},
            {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder", "verbs": ["get"]},
        ]})),
        "/openapi/v2" => {
            let ok = json!({"200": {"schema": {"$ref": "#/definitions/com.example.Flunder"}}});
            let list = format!("{ROOT}/flunders");
            json_text(&json!({"swagger": "2.0", "info": {"title": "wardle", "version": "1"},
                "paths": {list: {"get": {"responses": ok}}, "/version/": {"get": {"responses": ok}}},
                "definitions": {"com.example.Flunder": {"type": "object"}}}))
        }
        "/openapi/v3" if state.has_v3 => {
            let url = "/openapi/v3/apis/wardle.example.com/v1?hash=1";
            json_text(&json!({"paths": {"apis/wardle.example.com/v1": {"serverRelativeURL": url}}}))
        }
        "/openapi/v3/apis/wardle.example.com/v1" if state.has_v3 => json_text(&json!({"openapi": "3.0.0"})),
        "/apis/wardle.example.com/v1/flunders" if query.contains("watch") => {
            let line = |kind: &str| Bytes::from(format!("{}\n", json!({"type": kind, "object": flunder})));
            let (first, second) = (line("ADDED"), line("MODIFIED"));
            let lines = stream::iter([first, second]).map(|line| Ok(Frame::data(line))).chain(stream::pending());
            response(200, "application/json", lines.boxed())
        }
        "/apis/wardle.example.com/v1/namespaces/default/flunders" => {
            let body = request.body_mut().collect().await.unwrap().to_bytes();
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let mut answer = text(201, "application/json", &sent.to_string());
            answer.headers_mut().insert("x-wardle", http::HeaderValue::from_static("yes"));
            answer
        }
        "/apis/wardle.example.com/v1/elsewhere" => {
            let mut answer = text(302, "text/plain", "");
            answer.headers_mut().insert("location", http::HeaderValue::from_static("https://example.com/"));
            answer
        }
        "/apis/wardle.example.com/v1/echo" => {
            tokio::spawn(async move {
                let mut raw = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
                let mut buffer = [0; 64];
                while let Ok(read @ 1..) = raw.read(&mut buffer).await {
                    raw.write_all(&buffer[..read]).await.unwrap();
                }
            });
            let mut answer = text(101, "", "");
            answer.headers_mut().insert(CONNECTION, http::HeaderValue::from_static("Upgrade"));
            answer.headers_mut().insert(UPGRADE, http::HeaderValue::from_static("echo"));
            answer
        }
        _ => text(404, "text/plain", "not found"),
    })
}

fn json_text(value: &Value) -> Response<Body> {
    text(200, "application/json", &value.to_string())
}

fn text(code: u16, content_type: &str, text: &str) -> Response<Body> {
    let frame = Ok(Frame::data(Bytes::from(text.to_owned())));
    response(code, content_type, stream::iter((!text.is_empty()).then_some(frame)).boxed())
}

fn response(
    code: u16,
    content_type: &str,
    frames: BoxStream<'static, Result<Frame<Bytes>, Infallible>>,
) -> Response<Body> {
    let mut response = Response::new(StreamBody::new(frames));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    if !content_type.is_empty() {
        response.headers_mut().insert("content-type", content_type.parse().unwrap());
    }
    response
}
