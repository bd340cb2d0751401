//! Which requests a client sends again by itself, and when.
//!
//! Only what cannot do harm: reads that a busy server turned away (429, 503, 504), writes that it
//! says it did not begin (429 with `Retry-After`), and whatever it refused because of a token (401)
//! that has been replaced since. Any other answer to a write goes to the
//! caller, since the server may have carried it out. A conflict is such an answer: what was read has to be read anew,
//! which callers do by the policy of [`ConflictRetry`]. A [fence](crate::lease::Fence) that a write
//! came through drops it when it closes, so that a pause never outlives the lease.

mod conflict;

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::BoxError;

pub(crate) use self::conflict::ConflictRetry;
use crate::outage::Outage;
use crate::token_file::TokenFile;

/// Tries of one request: the first and, as client-go, ten more.
const TRIES: u32 = 11;
/// The first pause when the server does not say how long, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// No server is obeyed longer than this.
const LONGEST: Duration = Duration::from_secs(60);

/// What became of a request before its last try.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Who was asked.
    pub(crate) host: Arc<str>,
    /// The answers that led to another try.
    pub(crate) refusals: Vec<StatusCode>,
    /// Whether that try has yet to be made.
    pub(crate) pausing: bool,
}

/// Where that is written down: an extension of requests that callers may add. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account(Arc<Mutex<Attempts>>);

impl Account {
    /// What was written down so far.
    pub(crate) fn close(&self) -> Attempts {
        std::mem::take(&mut self.0.lock())
    }
}

/// The timeout of one try, as an extension of the request. Without it a try has no timeout. Pauses between tries do
/// not count: the server has answered. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct TryTimeout {
    each: Duration,
    until: Arc<Mutex<Instant>>,
}

impl TryTimeout {
    pub(crate) fn new(each: Duration) -> Self {
        Self { each, until: Arc::new(Mutex::new(Instant::now() + each)) }
    }

    /// Another try follows after a pause.
    fn renew(&self, pause: Duration) {
        *self.until.lock() = Instant::now() + pause + self.each;
    }

    /// Waits until it is at its end.
    pub(crate) async fn ends(&self) {
        loop {
            let until = *self.until.lock();
            if Instant::now() >= until {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// A client that sends requests again where that is safe, with a token if there is one. The one given
/// must not do so itself.
pub(crate) fn with_retries(client: kube::Client, host: Arc<str>, token: Option<TokenFile>) -> kube::Client {
    let token = token.map(Arc::new);
    let namespace = client.default_namespace().to_owned();
    let valid_until = *client.valid_until();
    let outage = Outage::new(Arc::clone(&host));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, token, host) = (client.clone(), token.clone(), Arc::clone(&host));
        let outage = outage.clone();
        async move {
            let account = request.extensions().get::<Account>().cloned().unwrap_or_default();
            account.0.lock().host = host;
            send(client, token, request, &account, &outage).await
        }
    });
    kube::Client::new(service, namespace).with_valid_until(valid_until)
}

/// Whether a request changes nothing. What asks for another protocol, as `exec` does, may change
/// anything, whatever its method.
pub(crate) fn is_read<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        && !request.headers().contains_key(header::UPGRADE)
}

async fn send(
    client: kube::Client,
    token: Option<Arc<TokenFile>>,
    mut request: Request<Body>,
    account: &Account,
    outage: &Outage,
) -> Result<Response<Body>, BoxError> {
    for tried in 1..=TRIES {
        let again = if tried < TRIES { copy(&request) } else { None };
        let is_read = is_read(&request);
        let sent = token.as_ref().map(|token| (token, token.header()));
        if let Some((_, header)) = &sent {
            request.headers_mut().insert(header::AUTHORIZATION, header.clone());
        }
        let response = outage.note(client.send(request).await)?;
        let Some(next) = again else {
            return Ok(response);
        };
        let pause = match sent {
            Some((token, refused)) if response.status() == StatusCode::UNAUTHORIZED && token.is_replaced(&refused) => {
                Some(Duration::ZERO)
            }
            _ => pause(is_read, &response, tried),
        };
        let Some(pause) = pause else {
            return Ok(response);
        };
        let (method, status) = (next.method(), response.status());
        tracing::debug!(%method, uri = %next.uri(), status = status.as_u16(), ?pause, "sending again");
        {
            let mut attempts = account.0.lock();
            attempts.refusals.push(status);
            attempts.pausing = true;
        }
        if let Some(timeout) = next.extensions().get::<TryTimeout>() {
            timeout.renew(pause);
        }
        drop(response);
        tokio::time::sleep(pause).await;
        account.0.lock().pausing = false;
        request = next;
    }
    Err("invariant: the last try answers".into())
}

/// A request can be sent again unless its body is a stream.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    request.method().clone_into(copy.method_mut());
    request.uri().clone_into(copy.uri_mut());
    *copy.version_mut() = request.version();
    request.headers().clone_into(copy.headers_mut());
    request.extensions().clone_into(copy.extensions_mut());
    Some(copy)
}

/// How long to wait before a request is sent again; `None` when it is not.
fn pause<B>(is_read: bool, response: &Response<B>, tried: u32) -> Option<Duration> {
    let asked = response.headers().get(header::RETRY_AFTER);
    let asked = asked.and_then(|value| value.to_str().ok()?.trim().parse().ok()).map(Duration::from_secs);
    let busy = match response.status() {
        StatusCode::TOO_MANY_REQUESTS => is_read || asked.is_some(),
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => is_read,
        _ => false,
    };
    let (first, longest) = PAUSES;
    let own = first.saturating_mul(1 << (tried - 1).min(16)).min(longest).mul_f64(0.5 + 0.5 * fastrand::f64());
    busy.then(|| asked.unwrap_or_default().min(LONGEST).max(own))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, PostParams};

    use super::*;
    use crate::fence::{Fence, FenceClosed};

    /// A server that answers `code` once, then what was asked for; and the methods it saw.
    fn busy_once(code: u16, retry_after: Option<&'static str>) -> (kube::Client, Arc<Mutex<Vec<Method>>>) {
        let seen: Arc<Mutex<Vec<Method>>> = Arc::default();
        let log = Arc::clone(&seen);
        let service = tower::service_fn(move |request: Request<Body>| {
            let mut seen = log.lock();
            seen.push(request.method().clone());
            let (status, body) = if seen.len() == 1 {
                (code, serde_json::json!({"kind": "Status", "status": "Failure", "message": "busy", "code": code}))
            } else {
                (200, serde_json::json!({"metadata": {"name": "x", "namespace": "default"}}))
            };
            let mut response = Response::builder().status(status);
            if let Some(seconds) = retry_after.filter(|_| status != 200) {
                response = response.header(header::RETRY_AFTER, seconds);
            }
            let response = response.body(Body::from(body.to_string().into_bytes())).unwrap();
            async move { Ok::<_, Infallible>(response) }
        });
        (with_retries(kube::Client::new(service, "default"), Arc::default(), None), seen)
    }

    async fn create(client: kube::Client) -> Result<ConfigMap, kube::Error> {
        Api::default_namespaced(client).create(&PostParams::default(), &ConfigMap::default()).await
    }

    #[tokio::test(start_paused = true)]
    async fn reads_are_retried_and_writes_only_if_not_begun() {
        for (code, retry_after, reads, writes) in [
            (429, Some("1"), 2, 2),
            (429, None, 2, 1),
            (503, Some("1"), 2, 1),
            (503, None, 2, 1),
            (504, Some("1"), 2, 1),
            (500, Some("1"), 1, 1),
            (409, None, 1, 1),
        ] {
            let (client, seen) = busy_once(code, retry_after);
            let read = Api::<ConfigMap>::default_namespaced(client).get("x").await;
            assert_eq!((seen.lock().len(), read.is_ok()), (reads, reads == 2), "read, {code} {retry_after:?}");
            let (client, seen) = busy_once(code, retry_after);
            let written = create(client).await;
            assert_eq!((seen.lock().len(), written.is_ok()), (writes, writes == 2), "write, {code} {retry_after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_asks_for_another_protocol_is_a_write() {
        let (client, seen) = busy_once(503, None);
        let exec = Request::get("/api/v1/namespaces/default/pods/p/exec?command=rm").header("upgrade", "websocket");
        let response = client.send(exec.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!((response.status(), seen.lock().len()), (StatusCode::SERVICE_UNAVAILABLE, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_refusals_are_known_without_a_last_answer() {
        for answers in [true, false] {
            let tries = Arc::new(Mutex::new(0));
            let service = tower::service_fn(move |_: Request<Body>| {
                *tries.lock() += 1;
                let answer = match *tries.lock() {
                    1 => Ok(Response::builder().status(503).body(Body::empty()).unwrap()),
                    _ if answers => Ok(Response::new(Body::empty())),
                    _ => Err(BoxError::from("connection lost")),
                };
                async move { answer }
            });
            let client = with_retries(kube::Client::new(service, "default"), "example.com".into(), None);
            let (mut request, account) = (Request::get("/version").body(Body::empty()).unwrap(), Account::default());
            request.extensions_mut().insert(account.clone());
            assert_eq!(client.send(request).await.is_ok(), answers);
            let Attempts { host, refusals, .. } = account.close();
            assert_eq!((&*host, &*refusals), ("example.com", &[StatusCode::SERVICE_UNAVAILABLE][..]));
        }
    }

    /// A server that takes one token only; and the tokens it saw.
    fn strict(good: &'static str, file: &std::path::Path) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&seen);
        let service = tower::service_fn(move |request: Request<Body>| {
            let token = request.headers()[header::AUTHORIZATION].to_str().unwrap().to_owned();
            let status = if token == format!("Bearer {good}") { 200 } else { 401 };
            log.lock().push(token);
            let body = serde_json::json!({"metadata": {"name": "x", "namespace": "default"}, "code": status,
                "status": "Failure", "message": "Unauthorized"});
            let response = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(response.unwrap()) }
        });
        let token = TokenFile::open(file).unwrap();
        (with_retries(kube::Client::new(service, "default"), Arc::default(), Some(token)), seen)
    }

    #[tokio::test(start_paused = true)]
    async fn refused_tokens_are_retried_only_with_a_new_token() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "old\n").unwrap();
        let (client, seen) = strict("new", &file);
        create(client.clone()).await.unwrap_err();
        assert_eq!(*seen.lock(), ["Bearer old"], "there is no other");
        std::fs::write(&file, "new\n").unwrap();
        create(client.clone()).await.unwrap();
        assert_eq!(*seen.lock(), ["Bearer old", "Bearer old", "Bearer new"]);
        // One that is replaced in time is never refused.
        std::fs::write(&file, "newer").unwrap();
        create(client.clone()).await.unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        create(client.clone()).await.unwrap_err();
        assert_eq!(seen.lock()[3..], ["Bearer new", "Bearer newer"]);
        // A file that is taken away leaves what was read.
        std::fs::remove_file(&file).unwrap();
        create(client).await.unwrap_err();
        assert_eq!(seen.lock()[5..], ["Bearer newer"]);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_writes_are_not_sent_after_the_fence_closed() {
        let (client, seen) = busy_once(429, Some("1"));
        let (inner, outer) = (Fence::closed(), Fence::closed());
        inner.open_until(Instant::now() + Duration::from_millis(300));
        outer.open_until(Instant::now() + Duration::from_secs(300));
        let fenced = outer.guard(inner.guard(client));
        let error = create(fenced).await.unwrap_err();
        assert!(error.to_string().contains(&FenceClosed.to_string()), "{error}");
        assert_eq!(*seen.lock(), [Method::POST]);
    }
}
