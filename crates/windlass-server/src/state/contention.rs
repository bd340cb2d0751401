//! Concurrent writers of one object.
//!
//! A change that conflicts with another is made again from the object as it is stored by then. If all writers with a
//! conflict tried again at once, all but one would fail: the work would grow with the square of their number, and one of
//! them might fail forever. So writers of the same object queue up: after a conflict a writer waits up to five seconds for
//! the object's lock, in the order of the conflicts, and holds it until its change is stored. A writer without a conflict
//! waits up to 250 ms for the current holder and then writes without the lock: a webhook may write the object that it is
//! asked about, and the holder waits for that webhook.
//!
//! This is the only policy of the server. Writers that wait for no lock count their attempts in the same way: what writes
//! several objects at once when the server starts, a creation whose quota changed (creations in a namespace with quotas have a
//! queue of their own), an eviction that looks at the pod anew.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

/// The number of locks. Objects whose keys have the same hash share one.
const LOCKS: usize = 4096;
/// How long a writer waits for the lock after a conflict.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a writer without a conflict waits for the current holder of the lock.
const YIELD_TIMEOUT: Duration = Duration::from_millis(250);
/// How long a change is tried again after conflicts.
const RETRY_TIMEOUT: Duration = Duration::from_secs(34);
/// How often a change is tried. The holder of the lock reaches this only where a webhook writes the object that it is
/// asked about.
const MAX_TRIES: u32 = 25;

/// See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Contention {
    locks: Box<[Arc<Mutex<()>>]>,
    hasher: RandomState,
}

impl Contention {
    pub(crate) fn new() -> Self {
        Self { locks: (0..LOCKS).map(|_| Arc::default()).collect(), hasher: RandomState::new() }
    }

    fn lock_of(&self, key: &[u8]) -> Option<&Arc<Mutex<()>>> {
        let index = self.hasher.hash_one(key) % LOCKS as u64;
        usize::try_from(index).ok().and_then(|index| self.locks.get(index))
    }

    /// Waits for the lock of an object; `None` after the timeout.
    async fn lock(&self, key: &[u8], timeout: Duration) -> Option<OwnedMutexGuard<()>> {
        tokio::time::timeout(timeout, Arc::clone(self.lock_of(key)?).lock_owned()).await.ok()
    }
}

/// One writer's attempts to change an object.
#[derive(Debug)]
pub(crate) struct Attempts {
    deadline: Instant,
    left: u32,
    lock: Option<OwnedMutexGuard<()>>,
}

impl Attempts {
    pub(crate) fn begin() -> Self {
        Self { deadline: Instant::now() + RETRY_TIMEOUT, left: MAX_TRIES, lock: None }
    }

    /// Called after a conflict: waits for the object's lock, if `wait` is set. A writer that stores nothing, or that
    /// names the revision to change, cannot succeed by waiting. Returns `false` when there are no attempts left.
    pub(crate) async fn after_conflict(&mut self, contention: &Contention, key: &[u8], wait: bool) -> bool {
        if !self.again() {
            return false;
        }
        if wait && self.lock.is_none() {
            self.lock = contention.lock(key, LOCK_TIMEOUT).await;
        }
        true
    }

    /// Called after a conflict by a writer that waits for no lock. Returns `false` when there are no attempts left.
    pub(crate) fn again(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0 && Instant::now() <= self.deadline
    }

    /// Called right before the object is written: a writer without the lock waits for the current holder, if there is one.
    pub(crate) async fn yield_to_holder(&mut self, contention: &Contention, key: &[u8]) {
        if self.lock.is_none() && contention.lock_of(key).is_some_and(|lock| lock.try_lock().is_err()) {
            self.lock = contention.lock(key, YIELD_TIMEOUT).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lock_has_one_holder_and_waiting_ends() {
        let contention = Contention::new();
        let first = contention.lock(b"a", LOCK_TIMEOUT).await.unwrap();
        assert!(contention.lock(b"a", LOCK_TIMEOUT).await.is_none());
        drop(first);
        assert!(contention.lock(b"a", LOCK_TIMEOUT).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_end_by_their_number_and_by_the_clock() {
        let mut attempts = Attempts::begin();
        assert_eq!((0..MAX_TRIES * 2).filter(|_| attempts.again()).count(), MAX_TRIES as usize - 1);
        let mut attempts = Attempts::begin();
        tokio::time::advance(RETRY_TIMEOUT).await;
        assert!(attempts.again());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!attempts.again() && !attempts.after_conflict(&Contention::new(), b"a", true).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_without_conflicts_waits_briefly_for_the_holder() {
        let contention = Contention::new();
        let (mut holder, mut other) = (Attempts::begin(), Attempts::begin());
        other.yield_to_holder(&contention, b"a").await;
        assert!(other.lock.is_none(), "there is no holder");
        assert!(holder.after_conflict(&contention, b"a", false).await && holder.lock.is_none());
        assert!(holder.after_conflict(&contention, b"a", true).await);
        let since = Instant::now();
        holder.yield_to_holder(&contention, b"a").await;
        assert_eq!(since.elapsed(), Duration::ZERO, "the holder does not wait for itself");
        other.yield_to_holder(&contention, b"a").await;
        assert_eq!((since.elapsed(), other.lock.is_some()), (YIELD_TIMEOUT, false));
        let (waited, ()) = tokio::join!(other.yield_to_holder(&contention, b"a"), async { drop(holder) });
        assert_eq!((waited, other.lock.is_some()), ((), true), "the writer is next");
    }
}
