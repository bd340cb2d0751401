//! [`Fault`]: what goes wrong with a request, and [`FaultGuard`]: for how long.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use windlass_server::request::Verb;

use crate::WAIT_TIMEOUT;
use crate::requests::{Facts, Requests};

/// A failure of a request: see [`Env::fail`](crate::Env::fail).
///
/// ```
/// use std::time::Duration;
/// use windlass_testing::Fault;
///
/// let broken = Fault::status(500);
/// let exists = Fault::status(409).reason("AlreadyExists");
/// let busy = Fault::status(429).retry_after(Duration::from_secs(2));
/// let slow = Fault::delay(Duration::from_secs(5));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Fault(Effect);

#[derive(Debug, Clone)]
pub(crate) enum Effect {
    Answer { code: u16, reason: Option<String>, retry_after: Option<Duration> },
    Expired,
    Delay(Duration),
    Silence,
    Disconnect,
    LoseAnswer,
}

impl Fault {
    /// The request is not carried out; the answer is a `Status` with this code, and with the reason that API servers
    /// give with it.
    pub fn status(code: u16) -> Self {
        Self(Effect::Answer { code, reason: None, retry_after: None })
    }

    /// The request is not carried out; the answer is 409 `Conflict`, as when another client has changed the object.
    pub fn conflict() -> Self {
        Self::status(409)
    }

    /// The request is not carried out; the answer is 410 `Expired`, as when the API server does not have the history
    /// any more that a watch or the next page of a list needs. The client has to list again.
    pub fn expired() -> Self {
        Self(Effect::Expired)
    }

    /// The request is carried out after this time, by the test's clock.
    pub fn delay(time: Duration) -> Self {
        Self(Effect::Delay(time))
    }

    /// The request is not carried out and never answered: the client runs into its timeout. When the fault ends, so
    /// does the connection of the requests that still wait.
    pub fn timeout() -> Self {
        Self(Effect::Silence)
    }

    /// The request is not carried out; the connection breaks.
    pub fn disconnect() -> Self {
        Self(Effect::Disconnect)
    }

    /// The request **is** carried out, but the connection breaks before the answer arrives: the client cannot know.
    pub fn lose_answer() -> Self {
        Self(Effect::LoseAnswer)
    }

    /// Gives the `Status` of [`Fault::status`] another reason, as `AlreadyExists`. Other faults stay as they are.
    pub fn reason(mut self, text: &str) -> Self {
        if let Effect::Answer { reason, .. } = &mut self.0 {
            *reason = Some(text.to_owned());
        }
        self
    }

    /// Tells the client of [`Fault::status`] when to try again, in seconds. Other faults stay as they are.
    pub fn retry_after(mut self, time: Duration) -> Self {
        if let Effect::Answer { retry_after, .. } = &mut self.0 {
            *retry_after = Some(time);
        }
        self
    }

    pub(crate) fn effect(&self) -> &Effect {
        &self.0
    }

    /// The answer, of a fault that is one.
    pub(crate) fn answer(&self, facts: &Facts) -> Response<Option<Bytes>> {
        let (code, reason, retry_after) = match &self.0 {
            Effect::Answer { code, reason, retry_after } => (*code, reason.as_deref(), *retry_after),
            _ => (410, None, None),
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "a fault that the test injected", "reason": reason.unwrap_or_else(|| usual_reason(code)),
            "code": code,
        });
        // A watch learns in an event that its history is gone.
        let as_event = matches!(self.0, Effect::Expired) && facts.verb() == Some(Verb::Watch);
        let (code, body) = if as_event { (200, json!({ "type": "ERROR", "object": status })) } else { (code, status) };
        let mut answer = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
        if let Some(time) = retry_after {
            answer = answer.header(RETRY_AFTER, time.as_secs());
        }
        answer.body(Some(format!("{body}\n").into())).unwrap_or_else(|error| panic!("a fault with {code}: {error}"))
    }
}

/// The reason that API servers give with a code.
fn usual_reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Expired",
        413 => "RequestEntityTooLarge",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}

/// The faults of an environment, oldest first. A request meets the first that chooses it.
#[derive(Default)]
pub(crate) struct Faults {
    active: Mutex<Vec<Active>>,
}

struct Active {
    requests: Requests,
    fault: Fault,
    /// So many requests are let through first.
    skip: usize,
    /// So many are still to fail; all if there is no limit.
    left: Option<usize>,
    hits: watch::Sender<usize>,
    ended: CancellationToken,
}

/// A fault that a request has met.
pub(crate) struct Injected {
    pub(crate) fault: Fault,
    /// Cancelled when the fault ends.
    pub(crate) ended: CancellationToken,
}

impl Faults {
    pub(crate) fn any(&self) -> bool {
        !self.active.lock().is_empty()
    }

    pub(crate) fn meet(&self, facts: &Facts) -> Option<Injected> {
        let mut active = self.active.lock();
        for one in active.iter_mut().filter(|one| one.left != Some(0) && one.requests.choose(facts)) {
            if one.skip > 0 {
                one.skip -= 1;
                continue;
            }
            one.left = one.left.map(|left| left - 1);
            one.hits.send_modify(|hits| *hits += 1);
            return Some(Injected { fault: one.fault.clone(), ended: one.ended.clone() });
        }
        None
    }

    /// Ends all.
    pub(crate) fn clear(&self) {
        for one in self.active.lock().drain(..) {
            one.ended.cancel();
        }
    }
}

/// A fault that is not complete: [`with`](Self::with) says what goes wrong. Made by [`Env::fail`](crate::Env::fail).
#[must_use = "nothing fails before `with` says how"]
pub struct FaultBuilder {
    pub(crate) faults: Arc<Faults>,
    pub(crate) requests: Requests,
    pub(crate) skip: usize,
    pub(crate) left: Option<usize>,
}

impl std::fmt::Debug for FaultBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultBuilder").field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl FaultBuilder {
    /// Only so many requests fail; without this, all do until the [`FaultGuard`] is dropped.
    pub fn times(mut self, times: usize) -> Self {
        self.left = Some(times);
        self
    }

    /// So many of the chosen requests are let through first.
    pub fn after(mut self, requests: usize) -> Self {
        self.skip = requests;
        self
    }

    /// Fails the chosen requests from now on.
    pub fn with(self, fault: Fault) -> FaultGuard {
        let (hits, ended) = (watch::Sender::new(0), CancellationToken::new());
        let guard = FaultGuard {
            faults: self.faults,
            what: self.requests.to_string(),
            hits: hits.subscribe(),
            ended: ended.clone(),
        };
        let active = Active { requests: self.requests, fault, skip: self.skip, left: self.left, hits, ended };
        guard.faults.active.lock().push(active);
        guard
    }
}

/// A fault that requests meet until this is dropped. Made by [`FaultBuilder::with`].
#[must_use = "the fault ends when this is dropped"]
pub struct FaultGuard {
    faults: Arc<Faults>,
    what: String,
    hits: watch::Receiver<usize>,
    ended: CancellationToken,
}

impl std::fmt::Debug for FaultGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultGuard").field("requests", &self.what).field("hits", &self.hits()).finish_non_exhaustive()
    }
}

impl FaultGuard {
    /// How many requests have met the fault.
    pub fn hits(&self) -> usize {
        *self.hits.borrow()
    }

    /// Waits until so many requests have met the fault.
    ///
    /// # Panics
    /// When that takes more than 30 seconds of the test's time.
    #[track_caller]
    pub fn hit(&self, times: usize) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            let mut hits = self.hits.clone();
            let met = tokio::time::timeout(WAIT_TIMEOUT, hits.wait_for(|hits| *hits >= times)).await;
            // The sender is gone when the environment has ended all faults.
            assert!(
                matches!(met, Ok(Ok(_))),
                "timed out waiting for {times} requests to meet the fault on {} (at {at}); {} have",
                self.what,
                self.hits()
            );
        }
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        self.ended.cancel();
        self.faults.active.lock().retain(|one| !one.ended.is_cancelled());
    }
}
