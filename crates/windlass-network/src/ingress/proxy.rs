//! The HTTP proxy behind Ingresses: it takes a request, finds its backend, and passes both bodies on as they come.
//!
//! Each request goes to the next endpoint of its Service in turn. An endpoint that cannot be connected to is skipped, so a pod
//! that has just gone fails no request. Nothing of a request is sent twice.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONNECTION, HOST, HeaderName, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use super::routes::{Backend, Routes};
use crate::controller::Services;

/// How long an endpoint may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Headers that are about one connection only. `Upgrade` is passed on with what it asks for.
const HOP_BY_HOP: [&str; 6] =
    ["keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"];

/// Connects to an endpoint inside the cluster.
pub type Connect = Arc<dyn Fn(SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>> + Send + Sync>;

type Body = BoxBody<Bytes, hyper::Error>;

/// The proxy. Clones share everything.
#[derive(Clone)]
pub struct Proxy {
    shared: Arc<Shared>,
}

struct Shared {
    services: Services,
    routes: RwLock<Arc<Routes>>,
    connect: Connect,
    /// Whose turn it is.
    turn: AtomicUsize,
    /// Connections to endpoints.
    tasks: TaskTracker,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("routes", &self.shared.routes).finish_non_exhaustive()
    }
}

/// What the proxy knows of a client.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Its address.
    pub address: SocketAddr,
    /// Whether its connection is encrypted.
    pub secure: bool,
    /// The port that it has connected to.
    pub port: u16,
}

impl Proxy {
    /// A proxy to these Services.
    pub fn new(services: Services, connect: Connect) -> Self {
        let shared = Shared {
            services,
            routes: RwLock::default(),
            connect,
            turn: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Routes requests by another table from now on.
    pub fn set_routes(&self, routes: Arc<Routes>) {
        *self.shared.routes.write() = routes;
    }

    /// The table.
    pub fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.shared.routes.read())
    }

    /// Serves HTTP/1 and HTTP/2 on a connection until it ends.
    pub async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        client: Client,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let proxy = self.clone();
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let proxy = proxy.clone();
            async move { Ok::<_, Infallible>(proxy.answer(request, client).await) }
        });
        let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        server.serve_connection_with_upgrades(TokioIo::new(stream), service).await
    }

    /// Answers a request.
    async fn answer(&self, mut request: Request<Incoming>, client: Client) -> Response<Body> {
        let host = host(&request).to_owned();
        let routes = self.routes();
        let Some(backend) = routes.find(without_port(&host), request.uri().path()) else {
            return text(StatusCode::NOT_FOUND, "no Ingress has a rule for this host and path\n");
        };
        let endpoints = self.endpoints(backend);
        if endpoints.is_empty() {
            let service = format!("{}/{}", backend.namespace, backend.service);
            return text(StatusCode::SERVICE_UNAVAILABLE, &format!("the Service {service} has no ready endpoint\n"));
        }
        let upgraded = request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
        prepare(&mut request, &host, client);
        let Some(stream) = self.connect(&endpoints).await else {
            return text(StatusCode::BAD_GATEWAY, "no endpoint of the Service accepts connections\n");
        };
        match self.send(stream, request, upgraded).await {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(%error, "an endpoint did not answer");
                text(StatusCode::BAD_GATEWAY, "the endpoint closed the connection\n")
            }
        }
    }

    /// The endpoints of a backend, beginning with the one whose turn it is.
    fn endpoints(&self, backend: &Backend) -> Vec<SocketAddr> {
        let mut found: Vec<SocketAddr> = self.shared.services.read(|directory| {
            let service = directory.get(&backend.namespace, &backend.service);
            let port = service.and_then(|service| match &backend.port {
                Ok(number) => service.port(Some(*number), None),
                Err(name) => service.port(None, Some(name)),
            });
            port.map(|port| port.backends.iter().map(|one| one.address).collect()).unwrap_or_default()
        });
        if !found.is_empty() {
            let turn = self.shared.turn.fetch_add(1, Ordering::Relaxed) % found.len();
            found.rotate_left(turn);
        }
        found
    }

    /// A connection to the first endpoint that accepts one.
    async fn connect(&self, endpoints: &[SocketAddr]) -> Option<TcpStream> {
        for endpoint in endpoints {
            match tokio::time::timeout(CONNECT_TIMEOUT, (self.shared.connect)(*endpoint)).await {
                Ok(Ok(stream)) => return Some(stream),
                Ok(Err(error)) => tracing::debug!(%error, %endpoint, "an endpoint refuses connections"),
                Err(_) => tracing::debug!(%endpoint, "an endpoint does not answer"),
            }
        }
        None
    }

    async fn send(
        &self,
        stream: TcpStream,
        request: Request<Incoming>,
        client: Option<OnUpgrade>,
    ) -> Result<Response<Body>, hyper::Error> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        self.shared.tasks.spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to an endpoint ended");
            }
        });
        let mut response = sender.send_request(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let Some(client) = client
        {
            let server = hyper::upgrade::on(&mut response);
            self.shared.tasks.spawn(async move {
                if let Ok((client, server)) = tokio::try_join!(client, server) {
                    // Either side may end it at any time.
                    let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
                }
            });
        } else {
            response.headers_mut().remove(CONNECTION);
            response.headers_mut().remove("keep-alive");
        }
        Ok(response.map(http_body_util::BodyExt::boxed))
    }
}

/// The host that a request is for: HTTP/2 has it in the address.
fn host(request: &Request<Incoming>) -> &str {
    let header = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    request.uri().authority().map(http::uri::Authority::as_str).or(header).unwrap_or_default()
}

/// A host without its port; IPv6 addresses have brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// Makes the request one to an endpoint, which is told who has sent it.
fn prepare(request: &mut Request<Incoming>, host: &str, client: Client) {
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    if let Ok(uri) = path.parse() {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    if !headers.contains_key(UPGRADE) {
        headers.remove(CONNECTION);
    }
    let before = headers.get("x-forwarded-for").and_then(|value| value.to_str().ok());
    let address = client.address.ip().to_canonical();
    let chain = before.map_or_else(|| address.to_string(), |before| format!("{before}, {address}"));
    let scheme = if client.secure { "https" } else { "http" };
    for (name, value) in [
        ("x-forwarded-for", chain),
        ("x-real-ip", address.to_string()),
        ("x-forwarded-host", host.to_owned()),
        ("x-forwarded-port", client.port.to_string()),
        ("x-forwarded-proto", scheme.to_owned()),
        ("x-forwarded-scheme", scheme.to_owned()),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    if let Ok(value) = HeaderValue::from_str(host) {
        headers.insert(HOST, value);
    }
}

fn text(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
