//! What answers reviews: bounded in bodies, each and together, and in time.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::CONVERT_PATH;
use super::admission::{Admission, Respond};
use super::convert::{Converter, convert_all};
use super::metrics::{Metrics, PathMetrics};
use super::{Denied, Response};
use crate::http_server::{self, Incoming, Reply, reply, text};

/// Connections served at the same time. One more takes the place of one that is silent, or waits.
const CONNECTIONS: usize = 1024;
/// How long a client may take to send its request's body.
const BODY: Duration = Duration::from_secs(30);
/// How long it may take while others wait for room, not counting the time for which it waits itself.
const HURRY: Duration = Duration::from_secs(3);
/// How long a handler may take if the request does not say.
const HANDLER: Duration = Duration::from_secs(30);

/// Bytes of all bodies that are there at the same time, unless two of the largest are more; and one body
/// besides. The caller is not known, and may ask 250 things at once on each connection.
const TOGETHER: usize = 256 << 20;

/// What answers at which path.
pub(super) struct Routes {
    paths: HashMap<String, (Endpoint, PathMetrics)>,
    converters: Vec<Arc<dyn Converter>>,
    admissions: Budget,
    conversions: Budget,
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
        Self { paths, converters, admissions: Budget::new(limits.0), conversions: Budget::new(limits.1), metrics }
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
        let body = read(request, &self.admissions).await;
        let (mut review, _charge) = match body.and_then(|(body, charge)| Ok((parse(&body)?, charge))) {
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
        let timeout = timeout(request.uri().query().unwrap_or_default());
        match read(request, &self.conversions).await {
            Ok((body, charge)) => self.convert_body(body, charge, timeout).await,
            Err(refusal) => text(refusal.code, refusal.message),
        }
    }

    /// A conversion that does not end cannot be stopped, but counts for as long as it goes on.
    async fn convert_body(self: Arc<Self>, body: Bytes, charge: Charge, timeout: Duration) -> Reply {
        let mut converting = tokio::task::spawn_blocking(move || {
            let _charge = charge;
            self.convert_review(&body)
        });
        match tokio::time::timeout(timeout, &mut converting).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            Err(_) => {
                // One that has not begun never will.
                converting.abort();
                tracing::warn!(?timeout, "conversion not done in time");
                text(StatusCode::GATEWAY_TIMEOUT, format!("not converted within {timeout:?}\n"))
            }
        }
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

/// How many bytes there may be, of one body and of all together. They count as they arrive, not as they
/// are announced: a client that announces much and sends nothing holds up no other.
///
/// Bodies keep what they have while they wait for more. So that they do not all wait for each other, one at
/// a time may go on without. And so that slow senders do not make others wait, they have less time
/// as soon as another request waits.
struct Budget {
    limit: usize,
    free: Arc<Semaphore>,
    /// For the one body that may go on.
    beyond: Arc<Semaphore>,
    /// How many wait for room.
    waiting: watch::Sender<usize>,
}

/// What a body has been given of a budget, until it is dropped.
#[derive(Default)]
struct Charge {
    held: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
}

/// Counts one that waits, until it is dropped.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|waiting| *waiting += 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

/// Others wait for room, and this body does not arrive.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
struct Late;

impl Budget {
    fn new(limit: usize) -> Self {
        Self::of(limit, TOGETHER.max(limit.saturating_mul(2)).min(Semaphore::MAX_PERMITS))
    }

    fn of(limit: usize, together: usize) -> Self {
        let (free, beyond) = (Arc::new(Semaphore::new(together)), Arc::new(Semaphore::new(1)));
        Self { limit, free, beyond, waiting: watch::Sender::default() }
    }

    /// Waits until there is room for more.
    async fn charge(&self, charge: &mut Charge, mut bytes: usize) {
        while bytes > 0 && charge.beyond.is_none() {
            let part = u32::try_from(bytes).unwrap_or(u32::MAX);
            bytes -= part as usize;
            let permit = match Arc::clone(&self.free).try_acquire_many_owned(part) {
                Ok(permit) => Some(permit),
                Err(_) => self.wait(charge, part).await,
            };
            let Some(permit) = permit else { return };
            match &mut charge.held {
                Some(held) => held.merge(permit),
                None => charge.held = Some(permit),
            }
        }
    }

    /// Waits for room, or to be the one that goes on without.
    async fn wait(&self, charge: &mut Charge, bytes: u32) -> Option<OwnedSemaphorePermit> {
        let _waiting = Waiting::new(&self.waiting);
        // Cancel-safe: what is not taken loses its place in a queue that it needs no more.
        tokio::select! {
            biased;
            permit = Arc::clone(&self.free).acquire_many_owned(bytes) => {
                Some(permit.expect("invariant: nobody closes it"))
            }
            beyond = Arc::clone(&self.beyond).acquire_owned() => {
                charge.beyond = Some(beyond.expect("invariant: nobody closes it"));
                None
            }
        }
    }

    /// Ends when a body that has taken so long to arrive keeps others waiting.
    async fn lateness(&self, taken: Duration) {
        tokio::time::sleep(HURRY.saturating_sub(taken)).await;
        // The sender is here, so this ends in no other way.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await;
    }
}

/// The body, if it is small enough and arrives soon enough.
async fn read(request: Request<Incoming>, budget: &Budget) -> Result<(Bytes, Charge), Refusal> {
    let content_type =
        request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let message = format!("contentType={content_type}, expected application/json");
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let limit = budget.limit;
    let too_large = || {
        let message = format!("request entity is too large; limit is {limit} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    if request.body().size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let (body, charge) = match tokio::time::timeout(BODY, collect(request.into_body(), budget)).await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
        Ok(Err(error)) if error.is::<Late>() => {
            return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, error.to_string()));
        }
        Ok(Err(error)) => return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("cannot read the body: {error}"))),
        Err(_) => return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    };
    if body.is_empty() {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "request body is empty"));
    }
    Ok((body, charge))
}

async fn collect<B>(body: B, budget: &Budget) -> Result<(Bytes, Charge), Box<dyn std::error::Error + Send + Sync>>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut body, mut charge) = (Limited::new(body, budget.limit), Charge::default());
    let (mut bytes, mut taken) = (BytesMut::new(), Duration::ZERO);
    loop {
        let begin = tokio::time::Instant::now();
        // Cancel-safe: what comes is not read before `frame` returns it.
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = budget.lateness(taken) => return Err(Late.into()),
        };
        taken += begin.elapsed();
        let Some(frame) = frame else { break };
        if let Ok(data) = frame?.into_data() {
            budget.charge(&mut charge, data.len()).await;
            bytes.extend_from_slice(&data);
        }
    }
    Ok((bytes.freeze(), charge))
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
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;
    use std::sync::mpsc;

    use futures::StreamExt as _;
    use http_body_util::Full;
    use parking_lot::Mutex;

    use super::super::convert::{ConvertError, Subject};
    use super::*;
    use crate::metrics::Registry;

    fn body(bytes: usize) -> Full<Bytes> {
        Full::new(Bytes::from(vec![b' '; bytes]))
    }

    /// A body that arrives in pieces of ten bytes, each when others have had their turn, and then goes on or ends.
    fn pieces(count: usize, ends: bool) -> impl hyper::body::Body<Data = Bytes, Error = Infallible> + Unpin {
        let piece = |_| async {
            tokio::task::yield_now().await;
            Ok(hyper::body::Frame::data(Bytes::from_static(&[b' '; 10])))
        };
        let pieces = futures::stream::iter(0..count).then(piece);
        let rest = futures::stream::once(async move { if ends { None } else { std::future::pending().await } });
        let rest = rest.filter_map(std::future::ready);
        http_body_util::StreamBody::new(Box::pin(pieces.chain(rest)))
    }

    #[tokio::test]
    async fn bodies_wait_for_room_that_others_free() {
        let budget = Budget::of(100, 150);
        let (first, held) = collect(body(100), &budget).await.unwrap();
        assert_eq!((first.len(), budget.free.available_permits()), (100, 50));
        let (second, beyond) = collect(body(60), &budget).await.unwrap();
        assert_eq!((second.len(), budget.free.available_permits()), (60, 50), "one goes beyond");
        let mut third = Box::pin(collect(body(60), &budget));
        assert!(third.as_mut().now_or_never().is_none(), "there is no room");
        assert_eq!(*budget.waiting.borrow(), 1);
        drop(held);
        let (third, _held) = third.await.unwrap();
        assert_eq!((third.len(), *budget.waiting.borrow()), (60, 0));
        assert_eq!((budget.free.available_permits(), budget.beyond.available_permits()), (90, 0));
        drop(beyond);
        assert_eq!(budget.beyond.available_permits(), 1);
        assert!(collect(body(101), &budget).await.err().unwrap().is::<LengthLimitError>());
        assert_eq!(budget.free.available_permits(), 90, "what is refused holds nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_large_bodies_do_not_deadlock() {
        let budget = Budget::of(100, 200);
        let read = || async { collect(pieces(10, true), &budget).await.map(|(body, _)| body.len()).unwrap() };
        let all = futures::future::join_all((0..7).map(|_| read()));
        assert_eq!(tokio::time::timeout(BODY, all).await.expect("they arrive"), [100; 7]);
        assert_eq!((budget.free.available_permits(), budget.beyond.available_permits()), (200, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn endless_bodies_delay_others_for_a_moment_only() {
        let budget = Budget::of(100, 200);
        let slow = || async { collect(pieces(9, false), &budget).await.map(drop) };
        // While no connection waits, they have time.
        let alone = tokio::time::timeout(BODY, futures::future::join(slow(), slow())).await;
        assert!(alone.is_err(), "nobody cuts them off");
        let begin = tokio::time::Instant::now();
        let quick = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (body, _) = collect(body(100), &budget).await.unwrap();
            (body.len(), begin.elapsed())
        };
        // Two have room, and one goes beyond; as many of them are cut off as must be.
        let slow = futures::future::join_all((0..3).map(|_| slow()));
        let both = futures::future::select(Box::pin(quick), Box::pin(slow));
        let futures::future::Either::Left(((arrived, after), _)) = tokio::time::timeout(BODY, both).await.unwrap()
        else {
            panic!("all were cut off")
        };
        assert_eq!((arrived, after.as_secs()), (100, HURRY.as_secs()));
    }

    #[test]
    fn there_is_always_room_for_two() {
        assert_eq!(Budget::new(7 << 20).free.available_permits(), TOGETHER);
        assert_eq!(Budget::new(TOGETHER).free.available_permits(), 2 * TOGETHER);
        assert_eq!(Budget::new(usize::MAX).free.available_permits(), Semaphore::MAX_PERMITS);
    }

    /// A conversion that says when it begins, and ends when it is told to.
    struct Stuck(Subject, tokio::sync::mpsc::UnboundedSender<()>, Mutex<mpsc::Receiver<()>>);

    impl Converter for Stuck {
        fn subject(&self) -> &Subject {
            &self.0
        }

        fn convert(&self, object: &Value, _: &str) -> Result<Value, ConvertError> {
            let _ = self.1.send(());
            let _ = self.2.lock().recv();
            Ok(object.clone())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn endless_conversions_are_answered_and_still_count() {
        let ((end, ended), (begin, mut begun)) = (mpsc::channel(), tokio::sync::mpsc::unbounded_channel());
        let subject = Subject { group: "example.com".into(), kind: "Host".into(), plural: "hosts".into() };
        let converters: Vec<Arc<dyn Converter>> = vec![Arc::new(Stuck(subject, begin, Mutex::new(ended)))];
        let metrics = Metrics::new(&Registry::default());
        let routes = Arc::new(Routes::new(&[], converters, (1 << 20, 1 << 20), metrics));
        let review = json!({"request": {"uid": "7", "desiredAPIVersion": "example.com/v2",
            "objects": [{"apiVersion": "example.com/v1", "kind": "Host"}]}});
        let body = Full::new(Bytes::from(review.to_string()));
        let (body, charge) = collect(body, &routes.conversions).await.unwrap();
        let size = body.len();
        let converting = tokio::spawn(Arc::clone(&routes).convert_body(body, charge, HANDLER));
        begun.recv().await.unwrap();
        tokio::time::advance(HANDLER + Duration::from_millis(1)).await;
        assert_eq!(converting.await.unwrap().status(), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(routes.conversions.free.available_permits(), TOGETHER - size);
        drop(end);
        let all = routes.conversions.free.acquire_many(u32::try_from(TOGETHER).unwrap()).await;
        assert!(all.is_ok(), "it ends, and counts no more");
    }

    #[test]
    fn api_servers_say_how_long_they_wait() {
        for (query, expected) in
            [("timeout=7s", 7), ("a=b&timeout=1s", 1), ("timeout=1h", 30), ("timeout=99s", 30), ("", 30)]
        {
            assert_eq!(timeout(query), Duration::from_secs(expected), "{query}");
        }
    }
}
