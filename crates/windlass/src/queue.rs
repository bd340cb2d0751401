//! The work queue: which key is worked on next, and when.
//!
//! [`WorkQueue`] is pure: it never looks at a clock and never waits; every method takes `now`.
//! [`Queue`] wraps it for several workers. What always holds:
//!
//! - A key is queued at most once, however often it is added (dedupe).
//! - A key is never handed out while it is being worked on; what arrives meanwhile makes it
//!   eligible again once the work is finished.
//! - Keys of one priority come out in the order they became ready (fair FIFO).
//! - A higher priority overtakes, but only by a bounded time: each point of priority is worth
//!   [`QueueConfig::age_step`] of waiting, so that nothing starves.
//! - Adding a key again keeps the shorter delay and the higher priority.
//! - A failing key waits exponentially longer, 5 ms to 1000 s, until it succeeds once. An event
//!   may bring it forward but never counts as a failure of its own.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use windlass::queue::{Priority, Completion, WorkQueue};
//!
//! let now = Instant::now();
//! let mut queue = WorkQueue::default();
//! queue.add("a", Priority::NORMAL, now);
//! queue.add("a", Priority::NORMAL, now);
//! let item = queue.pop(now).unwrap();
//! assert_eq!(item.key, "a");
//! assert!(queue.pop(now).is_none());
//! queue.finish(&item.key, Completion::Retry, now);
//! assert_eq!(queue.next_deadline(), Some(now + Duration::from_millis(5)));
//! ```

mod order;
mod shared;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

pub use shared::Queue;

use order::{Order, Rank};

/// How urgent a key is. Higher goes first.
///
/// ```
/// use windlass::queue::Priority;
/// assert!(Priority::LOW < Priority::NORMAL);
/// assert!(Priority(10) > Priority::NORMAL);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(pub i32);

impl Priority {
    /// Live events.
    pub const NORMAL: Self = Self(0);
    /// The initial list and resyncs: a restart must not delay what happens now.
    pub const LOW: Self = Self(-100);
}

/// Delays and ageing of a [`WorkQueue`].
///
/// ```
/// use windlass::queue::{QueueConfig, RateLimit};
///
/// let config = QueueConfig::default().rate_limit(RateLimit::new(50.0, 100));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct QueueConfig {
    /// Delay after the first failure of a key.
    pub base_delay: Duration,
    /// Longest delay between retries of a key.
    pub max_delay: Duration,
    /// How long a ready key waits before it has made up for one point of priority.
    pub age_step: Duration,
    /// How many keys are handed out at most, all together; as many as there are unless set.
    pub rate_limit: Option<RateLimit>,
}

impl QueueConfig {
    /// The delay after the first failure of a key; 5 ms by default. It doubles with each further failure.
    pub fn base_delay(self, base_delay: Duration) -> Self {
        Self { base_delay, ..self }
    }

    /// The longest delay between retries of a key; 1000 seconds by default.
    pub fn max_delay(self, max_delay: Duration) -> Self {
        Self { max_delay, ..self }
    }

    /// How long a ready key waits before it has made up for one point of priority; 100 ms by default.
    pub fn age_step(self, age_step: Duration) -> Self {
        Self { age_step, ..self }
    }

    /// Limits how many keys are handed out; there is no limit by default.
    pub fn rate_limit(self, limit: RateLimit) -> Self {
        Self { rate_limit: Some(limit), ..self }
    }
}

/// A limit on keys of all kinds together: so many at once, then so many per second.
///
/// ```
/// use std::time::{Duration, Instant};
/// use windlass::queue::{Priority, QueueConfig, RateLimit, WorkQueue};
///
/// let now = Instant::now();
/// let config = QueueConfig::default().rate_limit(RateLimit::new(10.0, 2));
/// let mut queue = WorkQueue::new(config);
/// for key in ["a", "b", "c"] {
///     queue.add(key, Priority::NORMAL, now);
/// }
/// assert!(queue.pop(now).is_some() && queue.pop(now).is_some() && queue.pop(now).is_none());
/// assert!(queue.pop(now + Duration::from_millis(100)).is_some());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Time between keys in the long run.
    interval: Duration,
    /// How far ahead of that a burst may get.
    tolerance: Duration,
}

impl RateLimit {
    /// `per_second` in the long run, and up to `burst` at once after a pause. Rates below one in a
    /// million seconds, and what is no number, count as that.
    pub fn new(per_second: f64, burst: u32) -> Self {
        let rate = if per_second > 1e-6 { per_second.min(1e9) } else { 1e-6 };
        let interval = Duration::from_secs_f64(1.0 / rate);
        Self { interval, tolerance: interval.saturating_mul(burst.max(1) - 1) }
    }
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            base_delay: Duration::from_millis(5),
            max_delay: Duration::from_secs(1000),
            // 100 points, as between LOW and NORMAL, are made up for in ten seconds.
            age_step: Duration::from_millis(100),
            rate_limit: None,
        }
    }
}

/// A key handed out by [`WorkQueue::pop`]; give it back with [`WorkQueue::finish`].
///
/// ```
/// use std::time::{Duration, Instant};
/// use windlass::queue::{Priority, Completion, WorkQueue};
///
/// let now = Instant::now();
/// let mut queue = WorkQueue::default();
/// queue.add("a", Priority::LOW, now);
/// let item = queue.pop(now + Duration::from_secs(1)).unwrap();
/// assert_eq!((item.priority, item.waited, item.failures), (Priority::LOW, Duration::from_secs(1), 0));
/// queue.finish(&item.key, Completion::Done, now);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item<T> {
    /// The key to work on.
    pub key: T,
    /// The priority it had.
    pub priority: Priority,
    /// How long it was ready before it was taken.
    pub waited: Duration,
    /// Failures in a row before this attempt.
    pub failures: u32,
}

/// What became of a key.
///
/// ```
/// use std::time::{Duration, Instant};
/// use windlass::queue::{Priority, Completion, WorkQueue};
///
/// let now = Instant::now();
/// let mut queue = WorkQueue::default();
/// queue.add("a", Priority::NORMAL, now);
/// let item = queue.pop(now).unwrap();
/// queue.finish(&item.key, Completion::RequeueAfter(Duration::from_secs(60)), now);
/// assert!(queue.pop(now).is_none());
/// assert!(queue.pop(now + Duration::from_secs(60)).is_some());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// It succeeded: forget its failures.
    Done,
    /// It succeeded; work on it again after this time.
    RequeueAfter(Duration),
    /// It failed: work on it again after a delay that grows with each failure.
    Retry,
}

/// Numbers about a queue at one moment.
///
/// ```
/// use std::time::Instant;
/// use windlass::queue::{Priority, WorkQueue};
///
/// let now = Instant::now();
/// let mut queue = WorkQueue::default();
/// queue.add("a", Priority::NORMAL, now);
/// queue.add("b", Priority::LOW, now);
/// let stats = queue.stats(now);
/// assert_eq!((stats.depth[&0], stats.depth[&-100], stats.adds), (1, 1, 2));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Ready keys by priority, also those that became due while none was taken.
    pub depth: BTreeMap<i32, usize>,
    /// Keys whose time has not come.
    pub waiting: usize,
    /// Keys being worked on.
    pub processing: usize,
    /// How often keys ever became ready. A key that is to be worked on later counts when it is due, one that
    /// was added while it was worked on when that is finished.
    pub adds: u64,
    /// Retries ever scheduled.
    pub retries: u64,
    /// Sum of the time spent so far on what is being worked on.
    pub unfinished: Duration,
    /// The longest time spent so far on what is being worked on.
    pub longest_running: Duration,
}

/// Where a key is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Nowhere: the entry only remembers failures.
    Idle,
    Ready {
        slot: Rank,
        since: Instant,
    },
    Waiting {
        slot: (Instant, u64),
    },
    Processing {
        since: Instant,
        /// When it is to be worked on once more, and how urgently, because it was added meanwhile.
        again: Option<(Instant, Priority)>,
    },
}

#[derive(Debug)]
struct Entry {
    place: Place,
    priority: Priority,
    failures: u32,
    /// End of the delay earned by the last failure.
    retry_at: Option<Instant>,
}

/// Keys for which an empty queue keeps room.
const KEPT: usize = 256;

/// The pure work queue. See the [module documentation](self).
///
/// ```
/// use std::time::Instant;
/// use windlass::queue::{Priority, WorkQueue};
///
/// let now = Instant::now();
/// let mut queue = WorkQueue::default();
/// queue.add("from the list", Priority::LOW, now);
/// queue.add("just happened", Priority::NORMAL, now);
/// assert_eq!(queue.pop(now).unwrap().key, "just happened");
/// ```
#[derive(Debug)]
pub struct WorkQueue<T> {
    config: QueueConfig,
    entries: HashMap<T, Entry>,
    /// Ready keys in their places, and some that were moved since: their entry says otherwise.
    order: Order<T>,
    ready: usize,
    waiting: BTreeMap<(Instant, u64), T>,
    depth: BTreeMap<i32, usize>,
    processing: usize,
    sequence: u64,
    /// Ranks are counted from the first instant the queue was told.
    origin: Option<Instant>,
    adds: u64,
    retries: u64,
    /// When the next key would be due if all came at the limit's pace.
    paced: Option<Instant>,
}

impl<T: Hash + Eq + Clone> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new(QueueConfig::default())
    }
}

impl<T: Hash + Eq + Clone> WorkQueue<T> {
    /// An empty queue.
    pub fn new(config: QueueConfig) -> Self {
        Self {
            config,
            entries: HashMap::new(),
            order: Order::default(),
            ready: 0,
            waiting: BTreeMap::new(),
            depth: BTreeMap::new(),
            processing: 0,
            sequence: 0,
            origin: None,
            adds: 0,
            retries: 0,
            paced: None,
        }
    }

    /// Makes a key ready now.
    pub fn add(&mut self, key: T, priority: Priority, now: Instant) {
        self.schedule(key, priority, now, now);
    }

    /// Makes a key ready after a delay, unless it is due earlier already.
    pub fn add_after(&mut self, key: T, delay: Duration, priority: Priority, now: Instant) {
        self.schedule(key, priority, later(now, delay), now);
    }

    /// Takes the next ready key, if there is one.
    pub fn pop(&mut self, now: Instant) -> Option<Item<T>> {
        self.promote(now);
        if self.ready == 0 || !self.may_pace(now) {
            return None;
        }
        let (key, entry, since) = loop {
            let (rank, key) = self.order.pop()?;
            match self.entries.get(&key).map(|entry| entry.place) {
                Some(Place::Ready { slot, since }) if slot == rank => {
                    let entry = self.entries.get_mut(&key).expect("invariant: just found");
                    break (key, entry, since);
                }
                _ => {}
            }
        };
        self.ready -= 1;
        if self.ready == 0 {
            // What is left was moved.
            self.order.clear();
        }
        entry.place = Place::Processing { since: now, again: None };
        self.processing += 1;
        let item = Item {
            waited: now.saturating_duration_since(since),
            priority: entry.priority,
            failures: entry.failures,
            key,
        };
        count_down(&mut self.depth, item.priority);
        Some(item)
    }

    /// Gives back a key taken with [`pop`](Self::pop). Keys that are not being worked on are
    /// ignored.
    pub fn finish(&mut self, key: &T, verdict: Completion, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let Place::Processing { again, .. } = entry.place else {
            return;
        };
        entry.place = Place::Idle;
        self.processing -= 1;
        let priority = entry.priority;
        let own = match verdict {
            Completion::Done => {
                (entry.failures, entry.retry_at) = (0, None);
                None
            }
            Completion::RequeueAfter(delay) => {
                (entry.failures, entry.retry_at) = (0, None);
                Some(later(now, delay))
            }
            Completion::Retry => {
                self.retries += 1;
                match entry.retry_at {
                    // An event had brought the key forward: that attempt is not one more step.
                    Some(at) if at > now => Some(at),
                    _ => {
                        let at = later(now, backoff(&self.config, entry.failures));
                        entry.failures = entry.failures.saturating_add(1);
                        entry.retry_at = Some(at);
                        Some(at)
                    }
                }
            }
        };
        let next = match (own, again) {
            (Some(own), Some((at, other))) => Some((own.min(at), priority.max(other))),
            // A retry keeps its priority; a fresh start does not inherit an old one.
            (Some(own), None) => Some((own, priority)),
            (None, again) => again,
        };
        match next {
            Some((at, priority)) => {
                let key = key.clone();
                self.schedule(key, priority, at, now);
            }
            None if entry.failures == 0 => {
                self.entries.remove(key);
                if self.entries.is_empty() {
                    self.entries.shrink_to(KEPT);
                }
            }
            None => {}
        }
    }

    /// Gives back a key that was taken but not worked on: like [`finish`](Self::finish), and the rate limit
    /// does not count it.
    pub(crate) fn put_back(&mut self, key: &T, verdict: Completion, now: Instant) {
        let taken = self.entries.get(key).is_some_and(|entry| matches!(entry.place, Place::Processing { .. }));
        if let Some((limit, paced)) = self.config.rate_limit.zip(self.paced).filter(|_| taken) {
            self.paced = paced.checked_sub(limit.interval);
        }
        self.finish(key, verdict, now);
    }

    /// When it is worth asking again: the next waiting key becomes ready, or the rate limit lets a
    /// ready one pass.
    pub fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.waiting.first_key_value().map(|((at, _), _)| *at);
        let limited = self.limit_until().filter(|_| self.ready > 0);
        limited.or(waiting)
    }

    /// Until when the rate limit lets nothing pass.
    fn limit_until(&self) -> Option<Instant> {
        let limit = self.config.rate_limit?;
        self.paced?.checked_sub(limit.tolerance)
    }

    /// Counts a key against the rate limit if it may pass now.
    fn may_pace(&mut self, now: Instant) -> bool {
        let Some(limit) = self.config.rate_limit else {
            return true;
        };
        if self.limit_until().is_some_and(|until| now < until) {
            return false;
        }
        self.paced = Some(self.paced.map_or(now, |paced| paced.max(now)) + limit.interval);
        true
    }

    /// Number of keys ready at the last call.
    pub fn len(&self) -> usize {
        self.ready
    }

    /// Whether nothing was ready at the last call.
    pub fn is_empty(&self) -> bool {
        self.ready == 0
    }

    /// Number of keys being worked on.
    pub fn processing(&self) -> usize {
        self.processing
    }

    /// Failures in a row of a key.
    pub fn failures(&self, key: &T) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// All keys that are ready, waiting or being worked on.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter(|(_, entry)| !matches!(entry.place, Place::Idle)).map(|(key, _)| key)
    }

    /// Numbers for metrics. Walks over all keys that are known.
    pub fn stats(&self, now: Instant) -> QueueStats {
        let mut stats = QueueStats {
            depth: self.depth.clone(),
            waiting: self.waiting.len(),
            processing: self.processing,
            adds: self.adds,
            retries: self.retries,
            ..QueueStats::default()
        };
        // What is due is ready, also if no worker has taken it.
        for key in self.waiting.range(..=(now, u64::MAX)).map(|(_, key)| key) {
            let priority = self.entries.get(key).map_or(Priority::NORMAL, |entry| entry.priority);
            *stats.depth.entry(priority.0).or_default() += 1;
            stats.waiting -= 1;
            stats.adds += 1;
        }
        if self.processing > 0 {
            for entry in self.entries.values() {
                if let Place::Processing { since, .. } = entry.place {
                    let running = now.saturating_duration_since(since);
                    stats.unfinished += running;
                    stats.longest_running = stats.longest_running.max(running);
                }
            }
        }
        stats
    }

    fn schedule(&mut self, key: T, priority: Priority, at: Instant, now: Instant) {
        self.origin.get_or_insert(now);
        let entry = self.entries.entry(key.clone()).or_insert(Entry {
            place: Place::Idle,
            priority,
            failures: 0,
            retry_at: None,
        });
        match entry.place {
            Place::Idle => {
                entry.priority = priority;
                self.place(key, at, now);
            }
            Place::Ready { since, .. } if priority > entry.priority => {
                let old = std::mem::replace(&mut entry.priority, priority);
                // Moved, not added.
                self.ready -= 1;
                self.adds -= 1;
                count_down(&mut self.depth, old);
                self.enter_ready(key, since);
            }
            Place::Ready { .. } => {}
            Place::Waiting { slot } => {
                entry.priority = entry.priority.max(priority);
                if at < slot.0 {
                    self.waiting.remove(&slot);
                    self.place(key, at, now);
                }
            }
            Place::Processing { since, again } => {
                let again = again.map_or((at, priority), |(due, known)| (due.min(at), known.max(priority)));
                entry.place = Place::Processing { since, again: Some(again) };
            }
        }
    }

    fn place(&mut self, key: T, at: Instant, now: Instant) {
        if at <= now {
            self.enter_ready(key, now);
        } else {
            self.sequence += 1;
            let slot = (at, self.sequence);
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.place = Place::Waiting { slot };
            }
            self.waiting.insert(slot, key);
        }
    }

    fn enter_ready(&mut self, key: T, since: Instant) {
        let origin = self.origin.unwrap_or(since);
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        self.sequence += 1;
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        let elapsed = nanos(since.saturating_duration_since(origin));
        let ahead = i64::from(entry.priority.0).saturating_mul(nanos(self.config.age_step));
        let slot = (elapsed.saturating_sub(ahead), self.sequence);
        entry.place = Place::Ready { slot, since };
        *self.depth.entry(entry.priority.0).or_default() += 1;
        self.ready += 1;
        self.adds += 1;
        self.order.push(slot, key);
    }

    /// Moves what is due from `waiting` to the tail of its priority.
    fn promote(&mut self, now: Instant) {
        while let Some(first) = self.waiting.first_entry() {
            let (at, _) = *first.key();
            if at > now {
                break;
            }
            let key = first.remove();
            self.enter_ready(key, at);
        }
    }
}

fn count_down(depth: &mut BTreeMap<i32, usize>, priority: Priority) {
    if let Some(count) = depth.get_mut(&priority.0) {
        *count -= 1;
        if *count == 0 {
            depth.remove(&priority.0);
        }
    }
}

/// No key waits longer: clocks cannot count to the end of every [`Duration`].
const LONGEST_WAIT: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

fn later(now: Instant, delay: Duration) -> Instant {
    now.checked_add(delay.min(LONGEST_WAIT)).unwrap_or(now)
}

fn backoff(config: &QueueConfig, failures: u32) -> Duration {
    let factor = 1u32.checked_shl(failures).unwrap_or(u32::MAX);
    config.base_delay.checked_mul(factor).map_or(config.max_delay, |delay| delay.min(config.max_delay))
}

#[cfg(test)]
mod tests;
