//! A priority level at work: its queues under a lock, and the requests that wait for them.
//!
//! The lock is held for a few dozen nanoseconds and never across an `.await`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::Nanos;
use super::allocation::{self, Bounds};
use super::demand::Demand;
use super::level_spec::LevelSpec;
use super::metrics::SchemaCounts;
use super::queue_set::{Arrival, QueueSet, Ticket, WaitingId, Work};
use super::retry_after::RetryAfter;

/// A priority level.
pub(super) struct Level {
    pub(super) name: String,
    pub(super) state: Mutex<State>,
    ticker: Arc<Ticker>,
}

/// What the lock of a level protects.
pub(super) struct State {
    pub(super) set: QueueSet<Waiter>,
    pub(super) spec: LevelSpec,
    pub(super) bounds: Bounds,
    pub(super) demand: Demand,
    pub(super) target: f64,
    /// Whether its object is gone.
    pub(super) is_quiescing: bool,
    pub(super) totals: Totals,
    pub(super) schemas: Vec<SchemaCounts>,
    retry_after: RetryAfter,
}

/// What became of the requests of a level.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) dispatched: u64,
    pub(super) rejected: u64,
    pub(super) timed_out: u64,
    pub(super) cancelled: u64,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    sender: oneshot::Sender<Ticket>,
    /// Which of the level's schemas it belongs to.
    pub(super) schema: usize,
    /// How many seats it waits for.
    width: u32,
    pub(super) about: Box<About>,
}

/// What the dump of requests tells of one.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub(super) distinguisher: String,
    pub(super) user: String,
    pub(super) verb: String,
    pub(super) path: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) api_version: String,
    pub(super) resource: String,
    pub(super) subresource: String,
    pub(super) arrived: jiff::Timestamp,
}

/// What is done with a request.
pub(super) enum Admission {
    /// It goes on.
    Execute(Seats),
    /// It waits for [`Queued::wait`].
    Wait(Queued),
    /// It is answered with 429; its client may come back after so many seconds.
    Rejected(u64),
}

/// The seats of a request that is executed, until this is dropped.
pub(crate) struct Seats {
    level: Arc<Level>,
    ticket: Ticket,
    schema: usize,
    pub(super) is_watch: bool,
    started: tokio::time::Instant,
}

/// A request in a queue. Dropped before it is served, it leaves the queue.
pub(super) struct Queued {
    level: Arc<Level>,
    id: WaitingId,
    schema: usize,
    work: Work,
    receiver: oneshot::Receiver<Ticket>,
    arrived: tokio::time::Instant,
    clock: tokio::time::Instant,
    is_settled: bool,
}

/// A request as a level sees it.
pub(super) struct Request {
    pub(super) schema: usize,
    pub(super) work: Work,
    pub(super) flow: u64,
    /// How many watchers hear of it, if it writes.
    pub(super) watchers: Option<u32>,
    /// When the server started.
    pub(super) clock: tokio::time::Instant,
}

fn since(clock: tokio::time::Instant, now: tokio::time::Instant) -> Nanos {
    u64::try_from(now.duration_since(clock).as_nanos()).unwrap_or(u64::MAX)
}

impl Level {
    pub(super) fn new(spec: &LevelSpec, now: Nanos, ticker: &Arc<Ticker>) -> Self {
        let state = State {
            set: QueueSet::new(now),
            spec: spec.clone(),
            bounds: Bounds::default(),
            demand: Demand::default(),
            target: 0.0,
            is_quiescing: false,
            totals: Totals::default(),
            schemas: Vec::new(),
            retry_after: RetryAfter::default(),
        };
        Self { name: spec.name.clone(), state: Mutex::new(state), ticker: Arc::clone(ticker) }
    }

    /// A request arrives. `about` is asked only if it has to wait.
    pub(super) fn admit(self: &Arc<Self>, request: &Request, about: impl FnOnce() -> About) -> Admission {
        let arrived = tokio::time::Instant::now();
        let now = since(request.clock, arrived);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let counts = &mut state.schemas[request.schema];
        counts.estimated(request.work.width(), request.watchers);
        let reason = match state.set.arrive(now, request.work, request.flow) {
            Arrival::Execute(ticket) => {
                counts.dispatched(ticket.width());
                state.totals.dispatched += 1;
                drop(guard);
                return Admission::Execute(self.seats(ticket, request.schema, arrived));
            }
            Arrival::Wait { queue } => {
                let (sender, receiver) = oneshot::channel();
                let (schema, width) = (request.schema, request.work.width());
                let waiter = Waiter { sender, schema, width, about: Box::new(about()) };
                let (id, length) = state.set.enqueue(queue, request.work, waiter);
                counts.queued(width, length);
                self.pump(state, now);
                drop(guard);
                let Request { schema, work, clock, .. } = *request;
                let level = Arc::clone(self);
                return Admission::Wait(Queued {
                    level,
                    id,
                    schema,
                    work,
                    receiver,
                    arrived,
                    clock,
                    is_settled: false,
                });
            }
            Arrival::OverLimit => Reason::ConcurrencyLimit,
            Arrival::QueueFull => Reason::QueueFull,
        };
        counts.rejected(reason);
        Admission::Rejected(state.reject(now))
    }

    fn seats(self: &Arc<Self>, ticket: Ticket, schema: usize, started: tokio::time::Instant) -> Seats {
        Seats { level: Arc::clone(self), ticket, schema, is_watch: false, started }
    }

    /// Starts the queued requests that there are seats for. Called after each change of the queues.
    pub(super) fn pump(&self, state: &mut State, now: Nanos) {
        while let Some((waiter, ticket)) = state.set.dispatch() {
            let counts = &mut state.schemas[waiter.schema];
            counts.left_queue(waiter.width);
            // A request that does not wait any more has left the queue, or gives the ticket back.
            if waiter.sender.send(ticket).is_ok() {
                counts.dispatched(ticket.width());
                state.totals.dispatched += 1;
            } else {
                state.set.finish(now, ticket);
            }
        }
        if let Some(release) = state.set.next_release() {
            self.ticker.not_later_than(release);
        }
    }

    fn finish(&self, now: Nanos, ticket: Ticket, schema: usize, took: Option<(Duration, bool)>) {
        let mut state = self.state.lock();
        state.schemas[schema].finished(ticket.width(), took);
        state.set.finish(now, ticket);
        if state.set.waiting() > 0 {
            self.pump(&mut state, now);
        }
    }
}

impl State {
    /// Which of the level's schemas one is.
    pub(super) fn schema(&mut self, name: &str) -> usize {
        self.schemas.iter().position(|counts| counts.name == name).unwrap_or_else(|| {
            self.schemas.push(SchemaCounts::new(name));
            self.schemas.len() - 1
        })
    }

    pub(super) fn set_spec(&mut self, now: Nanos, spec: LevelSpec) {
        self.is_quiescing = false;
        self.set.configure(now, spec.queuing);
        self.spec = spec;
    }

    /// What the division of seats has to know.
    pub(super) fn observe(&mut self, now: Nanos, bounds: Bounds) -> allocation::Level {
        self.bounds = bounds;
        let observed = self.set.demand().take(now);
        self.demand.update(observed);
        let (exempt, current) = (self.spec.share.exempt, self.set.limit());
        allocation::Level { exempt, bounds, demand: self.demand, current }
    }

    fn reject(&mut self, now: Nanos) -> u64 {
        self.totals.rejected += 1;
        // The tracker's seconds begin anywhere but at the first.
        self.retry_after.reject(now / 1_000_000_000 + 1)
    }
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    ConcurrencyLimit,
    QueueFull,
    TimeOut,
}

impl Seats {
    fn now(&self) -> (Nanos, Duration) {
        let took = self.started.elapsed();
        (self.ticket.started.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)), took)
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        let (now, took) = self.now();
        self.level.finish(now, self.ticket, self.schema, Some((took, self.is_watch)));
    }
}

impl Queued {
    /// Waits for seats, at most until `limit` after the request arrived. How long the client is to stay away, in seconds,
    /// if there are none.
    pub(super) async fn wait(mut self, limit: Duration) -> Result<Seats, u64> {
        let ticket = match tokio::time::timeout_at(self.arrived + limit, &mut self.receiver).await {
            Ok(Ok(ticket)) => Some(ticket),
            _ => None,
        };
        let now = tokio::time::Instant::now();
        self.is_settled = true;
        let mut state = self.level.state.lock();
        let ticket = match ticket {
            None if state.set.cancel(since(self.clock, now), self.id).is_some() => None,
            // It was dispatched at the last moment.
            None => self.receiver.try_recv().ok(),
            ticket => ticket,
        };
        let waited = now.duration_since(self.arrived);
        let counts = &mut state.schemas[self.schema];
        counts.waited(waited, ticket.is_some());
        if let Some(ticket) = ticket {
            drop(state);
            return Ok(self.level.seats(ticket, self.schema, now));
        }
        counts.left_queue(self.work.width());
        counts.rejected(Reason::TimeOut);
        state.totals.timed_out += 1;
        // There may be room for those behind it.
        self.level.pump(&mut state, since(self.clock, now));
        Err(state.reject(since(self.clock, now)))
    }
}

impl Drop for Queued {
    /// The client has gone.
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let now = since(self.clock, tokio::time::Instant::now());
        let mut state = self.level.state.lock();
        if state.set.cancel(now, self.id).is_some() {
            state.totals.cancelled += 1;
            state.totals.rejected += 1;
            let counts = &mut state.schemas[self.schema];
            counts.left_queue(self.work.width());
            counts.rejected(Reason::TimeOut);
            self.level.pump(&mut state, now);
            return;
        }
        drop(state);
        if let Ok(ticket) = self.receiver.try_recv() {
            self.level.finish(now, ticket, self.schema, None);
        }
    }
}

/// When levels have to be looked at because seats become free by themselves.
#[derive(Debug)]
pub(super) struct Ticker {
    next: AtomicU64,
    sooner: Notify,
}

impl Default for Ticker {
    fn default() -> Self {
        Self { next: AtomicU64::new(Nanos::MAX), sooner: Notify::new() }
    }
}

impl Ticker {
    fn not_later_than(&self, time: Nanos) {
        if self.next.fetch_min(time, Ordering::AcqRel) > time {
            self.sooner.notify_one();
        }
    }

    /// Waits for the moment. Cancel-safe.
    pub(super) async fn tick(&self, clock: tokio::time::Instant) {
        loop {
            let next = self.next.load(Ordering::Acquire);
            if next == Nanos::MAX {
                self.sooner.notified().await;
                continue;
            }
            tokio::select! {
                () = self.sooner.notified() => {}
                () = tokio::time::sleep_until(clock + Duration::from_nanos(next)) => {
                    self.next.store(Nanos::MAX, Ordering::Release);
                    return;
                }
            }
        }
    }
}
