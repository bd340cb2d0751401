//! A real HTTPS server that plays a webhook.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use windlass_server::pki::Authority;

/// What a webhook answers.
pub(crate) enum Reply {
    /// `response` of a review; the uid is filled in.
    Review(Value),
    /// The same, after something else was done.
    Later(BoxFuture<'static, Value>),
    /// A body as it is.
    Raw(u16, Vec<u8>),
    /// Somewhere else: a code and a location.
    Redirect(u16, String),
    /// No answer, ever.
    Silence,
}

/// A running webhook. It stops when it is dropped.
pub(crate) struct Hook {
    address: SocketAddr,
    certificate: String,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

struct State {
    answer: Box<dyn Fn(&Value) -> Reply + Send + Sync>,
    received: Mutex<Vec<Value>>,
    connections: AtomicUsize,
}

impl Hook {
    pub(crate) async fn start(answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        Self::named(&["127.0.0.1", "localhost", "hook.default.svc"], answer).await
    }

    /// A webhook whose certificate is for these names.
    pub(crate) async fn named(names: &[&str], answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let authority = Authority::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let config = authority.server_config(&authority.server(&names).unwrap()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state =
            Arc::new(State { answer: Box::new(answer), received: Mutex::default(), connections: AtomicUsize::new(0) });
        let task = tokio::spawn(accept(listener, acceptor, Arc::clone(&state)));
        Self { address, certificate: authority.certificate().to_owned(), state, task }
    }

    /// A webhook that lets everything pass.
    pub(crate) async fn allowing() -> Self {
        Self::start(|_| Reply::Review(json!({"allowed": true}))).await
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The `clientConfig` that reaches it by URL.
    pub(crate) fn config(&self) -> Value {
        json!({"url": format!("https://{}/hook", self.address), "caBundle": self.bundle()})
    }

    pub(crate) fn bundle(&self) -> String {
        BASE64_STANDARD.encode(&self.certificate)
    }

    /// `request` of every review so far.
    pub(crate) fn received(&self) -> Vec<Value> {
        self.state.received.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        state.connections.fetch_add(1, Ordering::SeqCst);
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = hyper::service::service_fn(move |request| answer(Arc::clone(&state), request));
            // The client closes when it is done.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    // A redirected request may come without a body.
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    state.received.lock().unwrap().push(review["request"].clone());
    let wrap = |mut response: Value| {
        response["uid"] = review["request"]["uid"].clone();
        let answer = json!({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response});
        (200, serde_json::to_vec(&answer).unwrap())
    };
    let mut location = None;
    let (code, body) = match (state.answer)(&review["request"]) {
        Reply::Review(response) => wrap(response),
        Reply::Later(response) => wrap(response.await),
        Reply::Raw(code, body) => (code, body),
        Reply::Redirect(code, to) => {
            location = Some(to.parse().unwrap());
            (code, Vec::new())
        }
        Reply::Silence => std::future::pending().await,
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = code.try_into().unwrap();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    if let Some(location) = location {
        response.headers_mut().insert("location", location);
    }
    Ok(response)
}

/// A JSON patch as a review carries it.
pub(crate) fn patch(operations: &Value) -> Value {
    let patch = BASE64_STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
}
