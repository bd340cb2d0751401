//! What a controller tells of itself and of its queue, under controller-runtime's names.
//!
//! Controllers stop and start again with the lease. What only grows goes on from where it was; the
//! rest is of the run: when that is over, however it ended, no worker works and nothing waits.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Options;
use crate::key::ObjectKey;
use crate::metrics::{Counter, Gauge, Histogram, QUEUE_BOUNDS, RECONCILE_BOUNDS, Registry, Scrape};
use crate::queue::{Queue, QueueStats};

/// controller-runtime's metrics of one controller.
pub(super) struct Metrics {
    pub(super) success: Counter,
    pub(super) error: Counter,
    pub(super) requeue: Counter,
    pub(super) requeue_after: Counter,
    pub(super) errors: Counter,
    pub(super) terminal: Counter,
    pub(super) panics: Counter,
    pub(super) timeouts: Counter,
    active: Gauge,
    pub(super) time: Histogram,
    pub(super) queue_time: Histogram,
    pub(super) work_time: Histogram,
}

impl Metrics {
    pub(super) fn new(registry: &Registry, name: &str, options: &Options) -> Self {
        let own = [("controller", name)];
        let total = |result| {
            registry.counter(
                "controller_runtime_reconcile_total",
                "Reconciles, by controller and how they ended",
                &[("controller", name), ("result", result)],
            )
        };
        let counter = |metric, help| registry.counter(metric, help, &own);
        let both = [("name", name), ("controller", name)];
        registry
            .gauge("controller_runtime_max_concurrent_reconciles", "Reconciles that may run at once", &own)
            .set(options.concurrency as i64);
        Self {
            success: total("success"),
            error: total("error"),
            requeue: total("requeue"),
            requeue_after: total("requeue_after"),
            errors: counter("controller_runtime_reconcile_errors_total", "Reconciles that failed"),
            terminal: counter("controller_runtime_terminal_reconcile_errors_total", "Reconciles that failed for good"),
            panics: counter("controller_runtime_reconcile_panics_total", "Reconciles that panicked"),
            timeouts: counter("controller_runtime_reconcile_timeouts_total", "Reconciles that took too long"),
            active: registry.gauge("controller_runtime_active_workers", "Reconciles that run now", &own),
            time: registry.histogram(
                "controller_runtime_reconcile_time_seconds",
                "How long reconciles took, in seconds",
                &own,
                RECONCILE_BOUNDS,
            ),
            queue_time: registry.histogram(
                "workqueue_queue_duration_seconds",
                "How long keys waited in the queue, in seconds",
                &both,
                QUEUE_BOUNDS,
            ),
            work_time: registry.histogram(
                "workqueue_work_duration_seconds",
                "How long keys of the queue were worked on, in seconds",
                &both,
                QUEUE_BOUNDS,
            ),
        }
    }

    /// Counts a worker as active until it is dropped: workers may end anywhere.
    pub(super) fn active(&self) -> Active<'_> {
        self.active.add(1);
        Active(&self.active)
    }
}

pub(super) struct Active<'a>(&'a Gauge);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

/// Shows the numbers of a run's queue until it is dropped.
pub(super) struct QueueMetrics {
    registry: Registry,
    name: String,
    queue: Queue<ObjectKey>,
    totals: Arc<Totals>,
}

impl QueueMetrics {
    /// There may be one at a time for a name.
    pub(super) fn new(registry: &Registry, name: &str, queue: &Queue<ObjectKey>) -> Self {
        let totals = Arc::new(Totals::new(registry, name));
        let shown = Self { registry: registry.clone(), name: name.to_owned(), queue: queue.clone(), totals };
        let (totals, queue) = (Arc::clone(&shown.totals), queue.clone());
        shown.show(move || {
            let stats = queue.stats();
            totals.follow(&stats);
            stats
        });
        shown
    }

    fn show(&self, stats: impl Fn() -> QueueStats + Send + Sync + 'static) {
        let name = self.name.clone();
        self.registry.replace_collector(&format!("workqueue/{name}"), move |scrape| {
            collect(scrape, &name, &stats());
        });
    }
}

impl Drop for QueueMetrics {
    fn drop(&mut self) {
        self.show(QueueStats::default);
        self.totals.follow(&self.queue.stats());
    }
}

/// What a queue counts, added up over the runs of its controller: each has a queue of its own.
struct Totals {
    adds: Counter,
    retries: Counter,
    /// How much of this run's is counted already.
    counted: Mutex<(u64, u64)>,
}

impl Totals {
    fn new(registry: &Registry, name: &str) -> Self {
        let counter = |metric, help| registry.counter(metric, help, &[("name", name), ("controller", name)]);
        Self {
            adds: counter("workqueue_adds_total", "Keys that were put in the queue"),
            retries: counter("workqueue_retries_total", "Keys that were put in the queue again after a failure"),
            counted: Mutex::default(),
        }
    }

    fn follow(&self, stats: &QueueStats) {
        let mut counted = self.counted.lock();
        self.adds.add(stats.adds.saturating_sub(counted.0));
        self.retries.add(stats.retries.saturating_sub(counted.1));
        *counted = (stats.adds.max(counted.0), stats.retries.max(counted.1));
    }
}

/// Distinct priorities shown; the rest share one label, as controller-runtime has it.
const PRIORITIES: usize = 25;

fn collect(scrape: &mut Scrape, name: &str, stats: &QueueStats) {
    let both = [("name", name), ("controller", name)];
    let mut depth = |priority: &str, count: usize| {
        scrape.gauge(
            "workqueue_depth",
            "Keys that wait in the queue, by priority",
            &[("name", name), ("controller", name), ("priority", priority)],
            count as f64,
        );
    };
    if stats.depth.is_empty() {
        depth("0", 0);
    }
    for (priority, count) in stats.depth.iter().rev().take(PRIORITIES) {
        depth(&priority.to_string(), *count);
    }
    if stats.depth.len() > PRIORITIES {
        let rest = stats.depth.values().rev().skip(PRIORITIES).sum();
        depth("exceeded_cardinality_limit", rest);
    }
    scrape.gauge(
        "workqueue_unfinished_work_seconds",
        "Seconds that all running reconciles together have taken so far",
        &both,
        stats.unfinished.as_secs_f64(),
    );
    scrape.gauge(
        "workqueue_longest_running_processor_seconds",
        "Seconds that the oldest running reconcile has taken so far",
        &both,
        stats.longest_running.as_secs_f64(),
    );
}
