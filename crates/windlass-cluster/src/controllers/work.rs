//! Workers on a queue, for controllers whose keys come from elsewhere than an informer of one kind.

use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass::controller::RepeatedPanics;
use windlass::metrics::{Counter, Histogram, Registry};
use windlass::queue::{Completion, Queue};

/// The bounds of `controller_runtime_reconcile_time_seconds`.
const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// What such a controller counts, under the names that every controller uses.
#[derive(Clone)]
pub(super) struct WorkMetrics {
    success: Counter,
    requeue_after: Counter,
    error: Counter,
    errors: Counter,
    time: Histogram,
}

impl WorkMetrics {
    pub(super) fn new(registry: &Registry, name: &str) -> Self {
        let total = |result| {
            registry.counter(
                "controller_runtime_reconcile_total",
                "Reconciles, by controller and how they ended",
                &[("controller", name), ("result", result)],
            )
        };
        let own = [("controller", name)];
        Self {
            success: total("success"),
            requeue_after: total("requeue_after"),
            error: total("error"),
            errors: registry.counter("controller_runtime_reconcile_errors_total", "Reconciles that failed", &own),
            time: registry.histogram(
                "controller_runtime_reconcile_time_seconds",
                "How long reconciles took, in seconds",
                &own,
                SECONDS,
            ),
        }
    }

    /// Shows how much waits in a queue, whose name is that of its controller unless there are several.
    pub(super) fn show<T>(registry: &Registry, name: &'static str, queue: &Queue<T>)
    where
        T: Hash + Ord + Clone + Send + Sync + 'static,
    {
        let queue = queue.clone();
        registry.collect(move |scrape| {
            let (stats, labels) = (queue.stats(), [("name", name), ("controller", name)]);
            let depth: usize = stats.depth.values().sum();
            let priority = [labels[0], labels[1], ("priority", "0")];
            scrape.gauge("workqueue_depth", "Keys that wait in the queue, by priority", &priority, depth as f64);
            scrape.counter("workqueue_adds_total", "Keys that were put in the queue", &labels, stats.adds as f64);
            scrape.counter(
                "workqueue_retries_total",
                "Keys that were put in the queue again after a failure",
                &labels,
                stats.retries as f64,
            );
        });
    }

    pub(super) fn count(&self, completion: &Completion, took: Duration) {
        self.time.observe(took);
        match completion {
            Completion::Done => self.success.inc(),
            Completion::RequeueAfter(_) => self.requeue_after.inc(),
            Completion::Retry => {
                self.error.inc();
                self.errors.inc();
            }
        }
    }
}

/// Works on the keys of a queue until the token is cancelled and every key that was begun is finished. A key whose
/// work panics is retried like one that failed, and counted in `panics`. Dropping the future aborts.
pub(super) async fn work<T, F, Fut>(
    queue: Queue<T>,
    workers: usize,
    shutdown: CancellationToken,
    panics: RepeatedPanics<T>,
    metrics: WorkMetrics,
    each: F,
) where
    T: Hash + Ord + Clone + Display + Send + Sync + 'static,
    F: Fn(T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Completion> + Send,
{
    let each = Arc::new(each);
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (queue, each, panics, metrics) = (queue.clone(), Arc::clone(&each), panics.clone(), metrics.clone());
        tasks.spawn(async move {
            while let Some(item) = queue.next().await {
                let (work, began) = (async { each(item.key.clone()).await }, Instant::now());
                let completion = panics.catch(&item.key, work).await.unwrap_or(Completion::Retry);
                metrics.count(&completion, began.elapsed());
                queue.finish(&item.key, completion);
            }
        });
    }
    shutdown.cancelled().await;
    queue.close();
    while tasks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use windlass::queue::Priority;

    use super::*;

    #[tokio::test]
    async fn a_key_that_panics_is_retried_and_reported() {
        let (queue, panics, shutdown) = (Queue::default(), RepeatedPanics::default(), CancellationToken::new());
        let (calls, done) = (Arc::new(AtomicU32::new(0)), CancellationToken::new());
        queue.add("thor", Priority::NORMAL);
        let (seen, observed, finished) = (Arc::clone(&calls), panics.clone(), done.clone());
        let registry = Registry::default();
        let metrics = WorkMetrics::new(&registry, "scribe");
        WorkMetrics::show(&registry, "scribe", &queue);
        let working = tokio::spawn(work(queue, 1, shutdown.clone(), panics.clone(), metrics, move |_| {
            let (call, observed, finished) = (seen.fetch_add(1, Ordering::Relaxed), observed.clone(), finished.clone());
            assert!(call != 0, "before the future is made");
            async move {
                assert!(call > 3, "no ink");
                let failing = observed.check().expect_err("four panics in a row");
                assert_eq!(failing, "thor panicked 4 times in a row: no ink");
                finished.cancel();
                Completion::Done
            }
        }));
        done.cancelled().await;
        shutdown.cancel();
        working.await.expect("no worker panicked");
        assert_eq!(panics.check(), Ok(()));
        assert_eq!(calls.load(Ordering::Relaxed), 5);
        let text = registry.encode();
        for line in [
            "controller_runtime_reconcile_total{controller=\"scribe\",result=\"success\"} 1",
            "controller_runtime_reconcile_total{controller=\"scribe\",result=\"error\"} 4",
            "workqueue_retries_total{name=\"scribe\",controller=\"scribe\"} 4",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }
}
