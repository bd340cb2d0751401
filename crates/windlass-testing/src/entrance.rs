//! The way from the clients of an environment to its API server.
//!
//! Each client of an [`Env`](crate::Env) calls an [`Entrance`], which passes requests on to the server that runs at
//! the moment. While none runs, requests are refused; when the server stops, requests under way fail and watches
//! break, as with connections to a process that ends. Faults are injected here, in front of the server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use windlass_server::api::Api;
use windlass_server::authn::User;
use windlass_server::handler::{Peer, handle, payload};
use windlass_server::request::Verb;

use crate::fault::{Faults, Injected};
use crate::requests::{Caller, Facts, Requests};

/// The server that runs at the moment.
#[derive(Clone)]
struct Running {
    api: Arc<Api>,
    /// Cancelled when it stops.
    stopped: CancellationToken,
}

/// What all entrances of an environment share.
#[derive(Default)]
pub(crate) struct Gate {
    server: Mutex<Option<Running>>,
    watches: Mutex<Vec<Watch>>,
    pub(crate) faults: Arc<Faults>,
}

/// A watch under way.
struct Watch {
    facts: Facts,
    cut: CancellationToken,
}

impl Gate {
    /// Requests go to this server from now on.
    pub(crate) fn open(&self, api: &Arc<Api>) {
        let running = Running { api: Arc::clone(api), stopped: CancellationToken::new() };
        *self.server.lock() = Some(running);
    }

    /// Ends requests and watches, and refuses others until there is a server again.
    pub(crate) fn close(&self) {
        if let Some(server) = self.server.lock().take() {
            server.stopped.cancel();
        }
    }

    /// Breaks the chosen watches, and says how many.
    pub(crate) fn cut_watches(&self, requests: &Requests) -> usize {
        let mut watches = self.watches.lock();
        let before = watches.len();
        watches.retain(|watch| {
            let chosen = requests.choose(&watch.facts);
            if chosen {
                watch.cut.cancel();
            }
            !chosen
        });
        before - watches.len()
    }

    /// A client for `caller`: with a token, or as an administrator.
    pub(crate) fn client(
        self: &Arc<Self>,
        caller: Caller,
        token: Option<HeaderValue>,
        namespace: &str,
    ) -> kube::Client {
        kube::Client::new(Entrance { gate: Arc::clone(self), caller, token }, namespace)
    }
}

/// The API as one client reaches it.
#[derive(Clone)]
struct Entrance {
    gate: Arc<Gate>,
    caller: Caller,
    /// The `Authorization` of the client; without it, the client is an administrator.
    token: Option<HeaderValue>,
}

impl tower::Service<Request<kube::client::Body>> for Entrance {
    type Response = Response<Answer>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Response<Answer>, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let entrance = self.clone();
        Box::pin(async move {
            let running = entrance.gate.server.lock().clone();
            let Running { api, stopped } = running.ok_or_else(refused)?;
            let answered = stopped.clone().run_until_cancelled_owned(entrance.answer(api, &stopped, request)).await;
            answered.unwrap_or_else(|| Err(broken()))
        })
    }
}

impl Entrance {
    async fn answer(
        self,
        api: Arc<Api>,
        stopped: &CancellationToken,
        mut request: Request<kube::client::Body>,
    ) -> Result<Response<Answer>, io::Error> {
        let mut facts = Facts::of(&request, self.caller);
        let faults = &self.gate.faults;
        if facts.lacks_name() && faults.any() {
            (facts, request) = facts.with_name_of_created(request).await?;
        }
        let mut answer_is_lost = false;
        if let Some(Injected { fault, ended }) = faults.meet(&facts) {
            use crate::fault::Effect;
            match fault.effect() {
                Effect::Answer { .. } | Effect::Expired => return Ok(fault.answer(&facts).map(Answer::Injected)),
                Effect::Delay(time) => tokio::time::sleep(*time).await,
                Effect::Silence => {
                    ended.cancelled().await;
                    return Err(broken());
                }
                Effect::Disconnect => return Err(broken()),
                Effect::LoseAnswer => answer_is_lost = true,
            }
        }
        match &self.token {
            Some(token) => _ = request.headers_mut().insert(AUTHORIZATION, token.clone()),
            None => _ = request.extensions_mut().insert(Peer::Local(User::admin())),
        }
        let response = handle(api, request.map(payload)).await;
        if answer_is_lost {
            return Err(broken());
        }
        let cut = stopped.child_token();
        let watched = (facts.verb() == Some(Verb::Watch)).then(|| {
            let watch = Watch { facts, cut: cut.clone() };
            self.gate.watches.lock().push(watch);
            Watched { gate: Arc::clone(&self.gate), cut: cut.clone() }
        });
        Ok(response.map(|body| Answer::Served { body, cut: Box::pin(cut.cancelled_owned()), _watched: watched }))
    }
}

/// The body of an answer.
enum Answer {
    /// From the server; broken off when `cut` is.
    Served {
        body: windlass_server::body::Body,
        cut: Pin<Box<WaitForCancellationFutureOwned>>,
        _watched: Option<Watched>,
    },
    /// From a fault.
    Injected(Option<Bytes>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Served { body, cut, .. } => match cut.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Some(Err(broken()))),
                Poll::Pending => Pin::new(body).poll_frame(context).map_err(|never| match never {}),
            },
            Self::Injected(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }
}

/// Takes a watch from the list when its body is dropped.
struct Watched {
    gate: Arc<Gate>,
    cut: CancellationToken,
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A cancelled one is easily told from the others.
        self.cut.cancel();
        self.gate.watches.lock().retain(|watch| !watch.cut.is_cancelled());
    }
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused: the API server of the test is restarting")
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by the API server of the test")
}
