//! The queue as several workers share it: a lock, a wake-up and a timer around [`WorkQueue`].
//!
//! The lock is never held across an `.await`. Memory is bounded by the number of distinct keys.

use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Completion, Item, Priority, QueueConfig, QueueStats, WorkQueue};

/// A [`WorkQueue`] for several tasks; clones share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use windlass::queue::{Priority, Queue, Completion};
///
/// let queue = Queue::default();
/// queue.add("a", Priority::NORMAL);
/// let item = queue.next().await.unwrap();
/// queue.finish(&item.key, Completion::Done);
/// queue.close();
/// assert!(queue.next().await.is_none());
/// # }
/// ```
#[derive(Debug)]
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    wake: Notify,
}

#[derive(Debug)]
struct State<T> {
    queue: WorkQueue<T>,
    closed: bool,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Hash + Eq + Clone> Default for Queue<T> {
    fn default() -> Self {
        Self::new(QueueConfig::default())
    }
}

impl<T: Hash + Eq + Clone> Queue<T> {
    /// An empty queue.
    pub fn new(config: QueueConfig) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State { queue: WorkQueue::new(config), closed: false }),
                wake: Notify::new(),
            }),
        }
    }

    /// Makes a key ready now. Ignored once the queue is closed.
    pub fn add(&self, key: T, priority: Priority) {
        self.with(|queue, now| queue.add(key, priority, now));
    }

    /// Makes a key ready after a delay. Ignored once the queue is closed.
    pub fn add_after(&self, key: T, delay: Duration, priority: Priority) {
        self.with(|queue, now| queue.add_after(key, delay, priority, now));
    }

    /// Gives back a key.
    pub fn finish(&self, key: &T, verdict: Completion) {
        self.give_back(|queue, now| queue.finish(key, verdict, now));
    }

    /// Gives back a key that was not worked on: the rate limit does not count it.
    pub(crate) fn put_back(&self, key: &T, verdict: Completion) {
        self.give_back(|queue, now| queue.put_back(key, verdict, now));
    }

    /// Also once the queue is closed.
    fn give_back(&self, change: impl FnOnce(&mut WorkQueue<T>, Instant)) {
        change(&mut self.shared.state.lock().queue, now());
        self.shared.wake.notify_one();
    }

    /// Waits for the next key; `None` once the queue is closed. Cancel-safe: a key is taken only
    /// when it is returned.
    pub async fn next(&self) -> Option<Item<T>> {
        loop {
            // Registered before looking, so that an add in between is not missed.
            let woken = self.shared.wake.notified();
            let deadline = {
                let mut state = self.shared.state.lock();
                if state.closed {
                    return None;
                }
                if let Some(item) = state.queue.pop(now()) {
                    let more = !state.queue.is_empty() || state.queue.next_deadline().is_some();
                    drop(state);
                    if more {
                        self.shared.wake.notify_one();
                    }
                    return Some(item);
                }
                state.queue.next_deadline()
            };
            match deadline {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at.into(), woken).await;
                }
                None => woken.await,
            }
        }
    }

    /// Hands out nothing more; keys being worked on may still be given back.
    pub fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_waiters();
        self.shared.wake.notify_one();
    }

    /// Number of ready keys.
    pub fn len(&self) -> usize {
        self.shared.state.lock().queue.len()
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those of the keys that are ready, waiting or being worked on that are asked for.
    pub(crate) fn pending(&self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        self.shared.state.lock().queue.pending().filter(|key| wanted(key)).cloned().collect()
    }

    /// Numbers for metrics.
    pub fn stats(&self) -> QueueStats {
        self.shared.state.lock().queue.stats(now())
    }

    fn with(&self, change: impl FnOnce(&mut WorkQueue<T>, Instant)) {
        let mut state = self.shared.state.lock();
        if state.closed {
            return;
        }
        change(&mut state.queue, now());
        drop(state);
        self.shared.wake.notify_one();
    }
}

/// Tokio's clock, so that tests can pause it.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
