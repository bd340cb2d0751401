//! Keys whose work panics again and again, so that readiness and metrics show them.
//!
//! A panic of one reconcile ends neither the worker nor the process: the key is retried. A key that panics every time
//! would therefore only show in the log. [`RepeatedPanics`] counts panics in a row per key. A key that ends in any other
//! way, failed or not, is forgotten, so no more keys are kept than there are keys waiting for a retry.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::FutureExt;
use parking_lot::Mutex;

use crate::key::ObjectKey;
use crate::metrics::Registry;
use crate::object::panic_message;
use crate::shard::Slots;

/// How many panics in a row make a key count as failing.
const REPEATED: u32 = 3;
/// How much of a panic's message is kept, in characters.
const MESSAGE_LIMIT: usize = 200;

/// Counts panics in a row, by key. Clones share the counts.
///
/// Every [`Controller`](crate::Controller) has one: its manager's `/readyz` fails while the last three reconciles of an
/// object, or more, have all panicked. A task that works on a [queue](crate::queue::Queue) of its own can do the same:
///
/// ```
/// # fn example(manager: &mut windlass::Manager) -> Result<(), windlass::manager::ManagerError> {
/// use std::convert::Infallible;
/// use windlass::controller::RepeatedPanics;
/// use windlass::queue::{Completion, Queue};
///
/// let (queue, panics) = (Queue::<String>::default(), RepeatedPanics::default());
/// let check = panics.clone();
/// manager.add_ready_check("controller/letters", move || check.check());
/// manager.add_task("letters", |shutdown| async move {
///     while let Some(Some(item)) = shutdown.run_until_cancelled(queue.next()).await {
///         let post = async { Completion::Done };
///         let completion = panics.catch(&item.key, post).await.unwrap_or(Completion::Retry);
///         queue.finish(&item.key, completion);
///     }
///     Ok::<_, Infallible>(())
/// })?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RepeatedPanics<K> {
    streaks: Arc<Mutex<BTreeMap<K, Streak>>>,
}

/// Panics in a row of one key.
#[derive(Debug)]
struct Streak {
    panics: u32,
    /// The first line of the last one's message.
    message: String,
}

impl<K> Default for RepeatedPanics<K> {
    fn default() -> Self {
        Self { streaks: Arc::default() }
    }
}

impl<K> Clone for RepeatedPanics<K> {
    fn clone(&self) -> Self {
        Self { streaks: Arc::clone(&self.streaks) }
    }
}

impl<K: Ord + Clone + Display> RepeatedPanics<K> {
    /// Runs work on a key. A panic is logged and counted, and the result is `None`.
    pub async fn catch<F: Future>(&self, key: &K, work: F) -> Option<F::Output> {
        match AssertUnwindSafe(work).catch_unwind().await {
            Ok(output) => {
                self.ended(key);
                Some(output)
            }
            Err(panic) => {
                let message = said(panic);
                self.panicked(key, &message);
                tracing::error!(%key, %message, "work on a key panicked");
                None
            }
        }
    }

    /// Fails while a key has panicked three times in a row or more: the error names the key with the most panics, and
    /// the first line of its last panic's message.
    pub fn check(&self) -> Result<(), String> {
        self.check_where(|_| true)
    }

    /// Counts a panic.
    pub(super) fn panicked(&self, key: &K, message: &str) {
        let message = first_line(message);
        let mut streaks = self.streaks.lock();
        match streaks.get_mut(key) {
            Some(streak) => *streak = Streak { panics: streak.panics.saturating_add(1), message },
            None => drop(streaks.insert(key.clone(), Streak { panics: 1, message })),
        }
    }

    /// Forgets a key: work on it ended without a panic, or it is not ours any more.
    pub(super) fn ended(&self, key: &K) {
        self.streaks.lock().remove(key);
    }

    fn check_where(&self, ours: impl Fn(&K) -> bool) -> Result<(), String> {
        let streaks = self.streaks.lock();
        let failing = || streaks.iter().filter(|(key, streak)| streak.panics >= REPEATED && ours(key));
        let Some((key, Streak { panics, message })) = failing().max_by_key(|(_, streak)| streak.panics) else {
            return Ok(());
        };
        let more = match failing().count() - 1 {
            0 => String::new(),
            others => format!(" (and {others} more)"),
        };
        Err(format!("{key} panicked {panics} times in a row{more}: {message}"))
    }

    fn failing_where(&self, ours: impl Fn(&K) -> bool) -> usize {
        self.streaks.lock().iter().filter(|(key, streak)| streak.panics >= REPEATED && ours(key)).count()
    }
}

/// The panics of a controller's current run, for its readiness check.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    current: Arc<Mutex<Option<Observed>>>,
}

#[derive(Debug, Clone)]
struct Observed {
    panics: RepeatedPanics<ObjectKey>,
    /// Keys of shards that another replica holds do not count; their retries may be far off.
    slots: Option<Slots>,
}

impl Observed {
    fn is_ours(&self, key: &ObjectKey) -> bool {
        self.slots.as_ref().is_none_or(|slots| slots.holds(key))
    }
}

impl Health {
    /// Shows the panics of a run until the result is dropped.
    pub(super) fn observe(
        &self,
        registry: &Registry,
        controller: &str,
        panics: &RepeatedPanics<ObjectKey>,
        slots: Option<&Slots>,
    ) -> ObservedRun {
        *self.current.lock() = Some(Observed { panics: panics.clone(), slots: slots.cloned() });
        let (shown, label) = (self.clone(), controller.to_owned());
        registry.replace_collector(&format!("panics/{label}"), move |scrape| {
            let help = "Keys whose last three reconciles, or more, all panicked";
            let labels = [("controller", label.as_str())];
            scrape.gauge("windlass_repeatedly_panicking_keys", help, &labels, shown.failing() as f64);
        });
        ObservedRun(self.clone())
    }

    /// Why the controller counts as failing.
    pub(crate) fn check(&self) -> Result<(), String> {
        let current = self.current.lock().clone();
        current.map_or(Ok(()), |run| run.panics.check_where(|key| run.is_ours(key)))
    }

    fn failing(&self) -> usize {
        let current = self.current.lock().clone();
        current.map_or(0, |run| run.panics.failing_where(|key| run.is_ours(key)))
    }
}

/// A run whose panics are shown. A run that is over has no failing keys: another replica may work on them.
pub(super) struct ObservedRun(Health);

impl Drop for ObservedRun {
    fn drop(&mut self) {
        *self.0.current.lock() = None;
    }
}

/// The message of a panic. The payload is dropped; if that panics too, the second payload is leaked.
pub(super) fn said(panic: Box<dyn Any + Send>) -> String {
    let message = panic_message(&*panic).to_owned();
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    message
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().chars().take(MESSAGE_LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(panics: &RepeatedPanics<&str>, expected: Result<(), &str>) {
        assert_eq!(panics.check(), expected.map_err(str::to_owned));
    }

    #[test]
    fn three_panics_in_a_row_make_a_key_failing() {
        let panics = RepeatedPanics::default();
        panics.panicked(&"a", "first");
        panics.panicked(&"b", "other");
        panics.panicked(&"a", "second");
        check(&panics, Ok(()));
        panics.panicked(&"a", "third\nand more lines");
        check(&panics, Err("a panicked 3 times in a row: third"));
        panics.panicked(&"b", "other");
        panics.panicked(&"b", "other");
        panics.panicked(&"b", "other");
        check(&panics, Err("b panicked 4 times in a row (and 1 more): other"));
        assert_eq!(panics.failing_where(|key| *key == "a"), 1);
        assert!(panics.check_where(|_| false).is_ok());
    }

    #[test]
    fn an_end_without_a_panic_starts_the_count_anew() {
        let panics = RepeatedPanics::default();
        for _ in 0..2 {
            panics.panicked(&"a", "once more");
        }
        panics.ended(&"a");
        panics.ended(&"unknown");
        assert!(panics.streaks.lock().is_empty(), "nothing is kept");
        for _ in 0..2 {
            panics.panicked(&"a", "once more");
        }
        check(&panics, Ok(()));
        panics.panicked(&"a", "once more");
        assert!(panics.check().is_err());
        panics.ended(&"a");
        check(&panics, Ok(()));
    }

    #[test]
    fn long_messages_are_cut() {
        let panics = RepeatedPanics::default();
        (0..3).for_each(|_| panics.panicked(&"a", &"\u{e4}".repeat(1000)));
        let reason = panics.check().expect_err("failing");
        assert_eq!(reason.matches('\u{e4}').count(), MESSAGE_LIMIT, "{reason}");
    }

    #[tokio::test]
    async fn caught_work_counts_and_recovers() {
        let panics = RepeatedPanics::default();
        for _ in 0..REPEATED {
            assert_eq!(panics.catch(&"a", async { panic!("no ink") as u8 }).await, None);
        }
        check(&panics, Err("a panicked 3 times in a row: no ink"));
        assert_eq!(panics.catch(&"a", async { 7 }).await, Some(7));
        check(&panics, Ok(()));
    }

    #[test]
    fn a_run_that_is_over_has_no_failing_keys() {
        let (health, registry) = (Health::default(), Registry::default());
        let (panics, key) = (RepeatedPanics::default(), ObjectKey::new("default", "thor"));
        let run = health.observe(&registry, "pet", &panics, None);
        (0..REPEATED).for_each(|_| panics.panicked(&key, "index out of bounds"));
        assert!(health.check().is_err_and(|reason| reason.starts_with("default/thor panicked 3 times")));
        assert!(registry.encode().contains("windlass_repeatedly_panicking_keys{controller=\"pet\"} 1"));
        drop(run);
        assert_eq!(health.check(), Ok(()));
        assert!(registry.encode().contains("windlass_repeatedly_panicking_keys{controller=\"pet\"} 0"));
    }

    #[test]
    fn keys_of_shards_held_elsewhere_do_not_count() {
        let (health, registry) = (Health::default(), Registry::default());
        let (panics, key) = (RepeatedPanics::default(), ObjectKey::new("default", "thor"));
        let _run = health.observe(&registry, "pet", &panics, Some(&Slots::new(2)));
        (0..REPEATED).for_each(|_| panics.panicked(&key, "index out of bounds"));
        assert_eq!(health.check(), Ok(()), "no shard is held");
    }
}
