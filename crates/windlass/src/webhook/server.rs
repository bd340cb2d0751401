//! What answers reviews: bounded in bodies and time.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::CONVERT_PATH;
use super::admission::{Admission, Respond};
use super::convert::{Converter, convert_all};
use super::metrics::{Metrics, PathMetrics};
use super::{Denied, Response};
use crate::http_server::{self, Reply, reply, text};

/// Connections served at the same time; more wait.
const CONNECTIONS: usize = 1024;
/// How long a client may take to send its request's body.
const BODY: Duration = Duration::from_secs(30);
/// How long a handler may take if the request does not say.
const HANDLER: Duration = Duration::from_secs(30);

/// What answers at which path.
pub(super) struct Routes {
    paths: HashMap<String, (Endpoint, PathMetrics)>,
    converters: Vec<Arc<dyn Converter>>,
    admission_limit: usize,
    conversion_limit: usize,
    metrics: Metrics,
}

enum Endpoint {
    Admission(Respond),
    Conversion,
}

impl Routes {
    pub(super) fn new(
        admissions: &[Admission],
        converters: Vec<Arc<dyn Converter>>,
        limits: (usize, usize),
        metrics: Metrics,
    ) -> Self {
        let mut paths = HashMap::new();
        for admission in admissions {
            let endpoint = Endpoint::Admission(Arc::clone(&admission.respond));
            paths.insert(admission.path.clone(), (endpoint, metrics.path(&admission.path)));
        }
        if !converters.is_empty() {
            paths.insert(CONVERT_PATH.to_owned(), (Endpoint::Conversion, metrics.path(CONVERT_PATH)));
        }
        Self { paths, converters, admission_limit: limits.0, conversion_limit: limits.1, metrics }
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Reply {
        let Some((endpoint, metrics)) = self.paths.get(request.uri().path()) else {
            return text(StatusCode::NOT_FOUND, "404 page not found\n");
        };
        let _in_flight = metrics.enter();
        let begin = Instant::now();
        let reply = match endpoint {
            Endpoint::Admission(respond) => self.admit(respond, request).await,
            Endpoint::Conversion => Arc::clone(&self).convert(request).await,
        };
        metrics.observe(reply.status(), begin.elapsed());
        reply
    }

    async fn admit(&self, respond: &Respond, request: Request<Incoming>) -> Reply {
        let timeout = timeout(request.uri().query().unwrap_or_default());
        let body = read(request, self.admission_limit).await;
        let mut review = match body.and_then(|body| parse(&body)) {
            Ok(review) => review,
            Err(refusal) => return refusal.as_admission(),
        };
        let version = review["apiVersion"].as_str().unwrap_or_default();
        let Some(uid) = review["request"]["uid"].as_str() else {
            return Refusal::new(StatusCode::BAD_REQUEST, "the review has no request with a uid").as_admission();
        };
        if !matches!(version, "admission.k8s.io/v1" | "admission.k8s.io/v1beta1") || review["kind"] != "AdmissionReview"
        {
            return Refusal::new(StatusCode::BAD_REQUEST, "not an AdmissionReview of admission.k8s.io").as_admission();
        }
        let (version, uid) = (version.to_owned(), uid.to_owned());
        let answer = AssertUnwindSafe(async { respond(review["request"].take()).await }).catch_unwind();
        let response = match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(response)) => response,
            Ok(Err(panic)) => {
                self.metrics.panicked();
                let panic = describe(&*panic);
                tracing::error!(%panic, %uid, "a webhook panicked");
                Denied::with_code(500, "InternalError", format!("panic: {panic} [recovered]")).into()
            }
            Err(_) => Denied::with_code(504, "Timeout", format!("no answer within {timeout:?}")).into(),
        };
        tracing::debug!(%uid, allowed = response.is_allowed(), "answered");
        admission_review(StatusCode::OK, &version, &uid, &response)
    }

    /// Away from other requests: a review may hold all objects of a kind.
    async fn convert(self: Arc<Self>, request: Request<Incoming>) -> Reply {
        let body = match read(request, self.conversion_limit).await {
            Ok(body) => body,
            Err(refusal) => return text(refusal.code, refusal.message),
        };
        let converting = tokio::task::spawn_blocking(move || self.convert_review(&body));
        converting.await.unwrap_or_else(|error| text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))
    }

    fn convert_review(&self, body: &[u8]) -> Reply {
        let review = match parse(body) {
            Ok(review) => review,
            Err(refusal) => return text(refusal.code, refusal.message),
        };
        let Some(uid) = review["request"]["uid"].as_str() else {
            return text(StatusCode::BAD_REQUEST, "the review has no request with a uid\n");
        };
        let find = |group: &str, kind: &str| {
            let mut converters = self.converters.iter().map(|converter| &**converter);
            converters.find(|converter| converter.subject().group == group && converter.subject().kind == kind)
        };
        let converted = std::panic::catch_unwind(AssertUnwindSafe(|| convert_all(&review["request"], find)));
        let converted = converted.unwrap_or_else(|panic| {
            self.metrics.conversion_panicked();
            Err(format!("panic: {} [recovered]", describe(&*panic)).into())
        });
        let response = match converted {
            Ok(objects) => json!({"uid": uid, "result": {"status": "Success"}, "convertedObjects": objects}),
            Err(error) => {
                tracing::warn!(%error, %uid, "conversion failed");
                let result = json!({"status": "Failure", "message": error.to_string()});
                json!({"uid": uid, "result": result, "convertedObjects": []})
            }
        };
        let review = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
        respond_json(StatusCode::OK, &review)
    }
}

/// A request that is not even a question.
struct Refusal {
    code: StatusCode,
    message: String,
}

impl Refusal {
    fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn as_admission(&self) -> Reply {
        let reason = self.code.canonical_reason().unwrap_or_default().replace(' ', "");
        let response = Denied::with_code(self.code.as_u16(), reason, self.message.as_str()).into();
        admission_review(self.code, "admission.k8s.io/v1", "", &response)
    }
}

/// The body, if it is small enough and arrives soon enough.
async fn read(request: Request<Incoming>, limit: usize) -> Result<Bytes, Refusal> {
    let content_type =
        request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let message = format!("contentType={content_type}, expected application/json");
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let too_large = || {
        let message = format!("request entity is too large; limit is {limit} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    if request.body().size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let body = match tokio::time::timeout(BODY, Limited::new(request.into_body(), limit).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
        Ok(Err(error)) => return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("cannot read the body: {error}"))),
        Err(_) => return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    };
    if body.is_empty() {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "request body is empty"));
    }
    Ok(body)
}

fn parse(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, format!("not JSON: {error}")))
}

/// API servers say how long they will wait, as `?timeout=10s`.
fn timeout(query: &str) -> Duration {
    let asked = query.split('&').find_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok());
    asked.map_or(HANDLER, Duration::from_secs).min(HANDLER)
}

fn describe(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "of unknown cause".to_owned())
}

fn admission_review(code: StatusCode, version: &str, uid: &str, response: &Response) -> Reply {
    match response.encode(uid) {
        Ok(response) => {
            respond_json(code, &json!({"apiVersion": version, "kind": "AdmissionReview", "response": response}))
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot encode the response: {error}\n")),
    }
}

fn respond_json(code: StatusCode, value: &Value) -> Reply {
    reply(code, "application/json", value.to_string())
}

/// Serves until the token is cancelled and requests under way are answered.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    routes: Arc<Routes>,
    shutdown: CancellationToken,
) {
    let answer = move |request: Request<Incoming>| {
        let span = tracing::debug_span!("webhook", path = request.uri().path());
        Arc::clone(&routes).answer(request).instrument(span)
    };
    http_server::serve(listener, Some(acceptor), CONNECTIONS, answer, shutdown).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_servers_say_how_long_they_wait() {
        for (query, expected) in
            [("timeout=7s", 7), ("a=b&timeout=1s", 1), ("timeout=1h", 30), ("timeout=99s", 30), ("", 30)]
        {
            assert_eq!(timeout(query), Duration::from_secs(expected), "{query}");
        }
    }
}
