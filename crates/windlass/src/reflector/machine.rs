//! Which request a reflector makes next: an explicit state machine without I/O or clock.
//!
//! ```text
//!            ┌──────── too many cuts / not supported ────────┐
//!            │                                               ▼
//!  start ─► StreamList ── initial-events-end ─► Watching   List ── last page ─► Resume
//!   ▲                                            │  ▲                             │
//!   │                                   cut, end │  └───────────── opened ────────┤
//!   │                                            └──────────────► Resume ◄────────┘
//!   └───── 410, 404, no progress for a long time ─────────────────┘
//! ```
//!
//! The machine holds no objects. The [task](super::task) performs the [`Step`] it asks for and
//! tells it what came of it. A watch that ended is resumed only after the server confirmed that its
//! history reaches that far: one restored from a backup, or restarted without its memory, would
//! accept the watch and say nothing for a long time. The cache is never dropped: going back to the
//! start only means that the next list replaces what is there.

use std::time::Duration;

use kube::core::Status;

use super::backoff::Backoff;
use crate::object::parse_version;

/// What the reflector's task does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Open a watch that starts with the current state (`sendInitialEvents`).
    StreamList,
    /// Fetch a page of the list; a first page (no token) starts a new replacement.
    List { continue_token: Option<String> },
    /// Fetch the list in one piece, which starts a new replacement.
    ListWhole,
    /// Ask for the server's current version.
    Verify,
    /// Open a watch from a version.
    Watch { resource_version: String },
    /// Read the next event of the open stream.
    Read,
    /// Wait, then ask again.
    Wait(Duration),
}

/// A failed request or stream, as far as the machine cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server no longer has the version (or page) asked for.
    Gone,
    /// The server does not understand the request.
    Unsupported,
    /// The kind is not served (a CRD not there yet, or no longer).
    NotFound,
    /// Anything else: worth trying again.
    Other,
}

impl Failure {
    pub(crate) fn of_status(status: &Status) -> Self {
        match status.code {
            410 => Self::Gone,
            _ if matches!(status.reason.as_str(), "Expired" | "Gone") => Self::Gone,
            400 | 405 | 406 | 415 | 422 | 501 => Self::Unsupported,
            404 if is_unserved(status) => Self::NotFound,
            _ => Self::Other,
        }
    }

    pub(crate) fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            _ => Self::Other,
        }
    }
}

/// Whether a 404 is the API server's own: what stands in front of it, or beside it at an address
/// that went wrong, says so too, and means something else.
fn is_unserved(status: &Status) -> bool {
    status.reason == "NotFound" || status.message.trim() == "404 page not found"
}

/// An event of the open stream, as far as the machine cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Signal<'a> {
    /// An object at a version (empty when the server sent none).
    Object { resource_version: &'a str },
    /// A bookmark; `initial_end` marks the end of the initial state.
    Bookmark { resource_version: &'a str, initial_end: bool },
}

/// What the task does with the event just signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It belongs to the initial state.
    Initial,
    /// It ends the initial state: drop what was not part of it.
    Complete,
    /// It is a live change.
    Live,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Nothing is known, or what is known is out of date.
    Start,
    /// A watch with initial events is open, its end not seen.
    StreamingInitial,
    Paging {
        continue_token: Option<String>,
    },
    /// Listed; the watch from there is not open.
    Resume {
        resource_version: String,
        /// Whether the server may be another by now.
        verify: bool,
    },
    Watching {
        resource_version: String,
        /// Whether this stream has said anything.
        spoke: bool,
    },
}

/// After this many attempts without progress a watch is given up for a fresh list.
const RESUME_ATTEMPTS: u32 = 6;
/// How long to wait for another list when what the last one brought was soon too old: the first time,
/// which is left out, and at most. The second time, 800 milliseconds, and all else is as in client-go.
const RELIST_DELAYS: (Duration, Duration) = (Duration::from_millis(400), Duration::from_secs(30));
/// A list that lasted this long was no failure.
const LASTING: Duration = Duration::from_secs(120);
/// After this many cuts before the end of the initial state, one page at a time is safer.
const STREAM_CUTS: u32 = 2;

/// The state machine. See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Machine {
    state: State,
    /// Whether the server understands `sendInitialEvents`, as far as known.
    streaming: bool,
    stream_cuts: u32,
    /// Whether pages came too slowly for the server's memory.
    expired: bool,
    /// Of requests that fail.
    backoff: Backoff,
    /// Of lists that do not last.
    relists: Backoff,
    /// A delay to serve before the next request.
    pending_wait: Option<Duration>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Start,
            streaming: true,
            stream_cuts: 0,
            expired: false,
            backoff: Backoff::default(),
            relists: Backoff::new(RELIST_DELAYS.0, RELIST_DELAYS.1),
            pending_wait: None,
        }
    }

    /// What to do now. Asking for a wait consumes it; everything else stays until its result is
    /// told.
    pub(crate) fn step(&mut self) -> Step {
        if let Some(delay) = self.pending_wait.take() {
            return Step::Wait(delay);
        }
        match &self.state {
            State::Start if self.streams() => Step::StreamList,
            State::Start if self.expired => Step::ListWhole,
            State::Start => Step::List { continue_token: None },
            State::Paging { continue_token } => Step::List { continue_token: continue_token.clone() },
            State::Resume { verify: true, .. } => Step::Verify,
            State::Resume { resource_version, .. } => Step::Watch { resource_version: resource_version.clone() },
            State::StreamingInitial | State::Watching { .. } => Step::Read,
        }
    }

    /// A page arrived. True when it was the last one.
    pub(crate) fn page(&mut self, resource_version: &str, continue_token: Option<String>) -> bool {
        let last = continue_token.is_none();
        self.state = if last {
            self.stream_cuts = 0;
            self.expired = false;
            State::Resume { resource_version: resource_version.to_owned(), verify: false }
        } else {
            State::Paging { continue_token }
        };
        last
    }

    /// The server's current version, as asked for; `listed` is how long ago the last list was complete.
    pub(crate) fn verified(&mut self, current: &str, listed: Duration, jitter: f64) {
        if let State::Resume { resource_version, verify } = &mut self.state {
            *verify = false;
            let (ours, theirs) = (parse_version(resource_version), parse_version(current));
            if ours.zip(theirs).is_some_and(|(ours, theirs)| theirs < ours) {
                self.list_again(listed, jitter);
            }
        }
    }

    /// The watch asked for is open.
    pub(crate) fn opened(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Start) {
            State::Resume { resource_version, .. } => State::Watching { resource_version, spoke: false },
            _ => State::StreamingInitial,
        };
    }

    /// The open stream said something.
    pub(crate) fn signal(&mut self, signal: &Signal<'_>) -> Phase {
        let version = match signal {
            Signal::Object { resource_version } | Signal::Bookmark { resource_version, .. } => *resource_version,
        };
        match &mut self.state {
            State::Watching { resource_version, spoke } => {
                if !version.is_empty() {
                    version.clone_into(resource_version);
                }
                *spoke = true;
                self.backoff.reset();
                Phase::Live
            }
            _ => match signal {
                Signal::Bookmark { initial_end: true, .. } => {
                    self.state = State::Watching { resource_version: version.to_owned(), spoke: true };
                    self.stream_cuts = 0;
                    self.backoff.reset();
                    Phase::Complete
                }
                _ => Phase::Initial,
            },
        }
    }

    /// The open stream ended without an error; `lived` is how long it was open.
    pub(crate) fn ended(&mut self, lived: Duration, jitter: f64) {
        let state = std::mem::replace(&mut self.state, State::Start);
        let State::Watching { resource_version, spoke } = state else {
            self.stream_cuts += 1;
            return self.slow_down(jitter);
        };
        self.state = State::Resume { resource_version, verify: true };
        // Servers end watches on purpose now and then; only a stream that was cut before it said
        // anything is a reason to slow down.
        if spoke || lived >= Duration::from_secs(5) {
            self.backoff.reset();
        } else {
            self.slow_down(jitter);
            self.give_up_resuming();
        }
    }

    /// Whether the open stream is to tell the initial state, and has not told its end.
    pub(crate) fn is_initial(&self) -> bool {
        self.state == State::StreamingInitial
    }

    /// The open stream tells no more of the initial state, nor its end: the server has not understood
    /// what it was asked for.
    pub(crate) fn stalled(&mut self) {
        self.state = State::Start;
        self.streaming = false;
    }

    /// The request asked for, or the open stream, failed; `listed` is how long ago the last list was
    /// complete.
    pub(crate) fn failed(&mut self, failure: Failure, listed: Duration, jitter: f64) {
        let state = std::mem::replace(&mut self.state, State::Start);
        match (state, failure) {
            (State::Start, Failure::Unsupported) if self.streams() => {
                // The fallback is not an error of the server's: try at once.
                self.streaming = false;
            }
            (State::Watching { .. } | State::Resume { .. }, Failure::Gone) => self.list_again(listed, jitter),
            (
                State::Watching { resource_version, .. } | State::Resume { resource_version, .. },
                Failure::Other | Failure::Unsupported,
            ) => {
                self.state = State::Resume { resource_version, verify: true };
                self.slow_down(jitter);
                self.give_up_resuming();
            }
            (State::Paging { .. }, Failure::Gone) => {
                // The next pages would be no faster.
                self.expired = true;
                self.slow_down(jitter);
            }
            (State::StreamingInitial, _) => {
                self.stream_cuts += 1;
                self.slow_down(jitter);
            }
            _ => self.slow_down(jitter),
        }
    }

    /// Whether a failure is no more than what is to be expected now and then, before it is told.
    pub(crate) fn expects(&self, failure: Failure) -> bool {
        match failure {
            // A list that asks for the present cannot come too late.
            Failure::Gone => self.state != State::Start,
            Failure::Unsupported => self.state == State::Start && self.streams(),
            Failure::NotFound | Failure::Other => false,
        }
    }

    /// Whether a list is a stream, as far as known.
    fn streams(&self) -> bool {
        self.streaming && self.stream_cuts < STREAM_CUTS
    }

    /// What is known is too old: asks for the present, right away if it lasted.
    fn list_again(&mut self, listed: Duration, jitter: f64) {
        self.state = State::Start;
        if listed >= LASTING {
            self.relists.reset();
        }
        let first = self.relists.attempts() == 0;
        let delay = self.relists.next(jitter);
        if !first {
            self.pending_wait = Some(delay);
        }
    }

    fn slow_down(&mut self, jitter: f64) {
        self.pending_wait = Some(self.backoff.next(jitter));
    }

    fn give_up_resuming(&mut self) {
        if self.backoff.attempts() >= RESUME_ATTEMPTS {
            self.state = State::Start;
        }
    }
}

#[cfg(test)]
mod tests;
