//! The running controller: subscriptions, a queue, and workers that reconcile.
//!
//! Every worker belongs to the run: cancelling the token lets them finish what they are doing,
//! dropping the run's future aborts them.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::context::{Context, Shared};
use super::enqueue::Enqueuer;
use super::reconcile::{Outcome, Reconcile, ReconcileError};
use super::source::{Sink, Source};
use super::{Environment, Options};
use crate::cache::Caches;
use crate::client::Client;
use crate::informer::SyncError;
use crate::key::ObjectKey;
use crate::metrics::{Counter, Gauge, Histogram, QUEUE_BOUNDS, RECONCILE_BOUNDS, Registry, Scrape};
use crate::object::panic_message;
use crate::queue::{Item, Priority, Queue, Verdict};
use crate::shard::{Claim, Coordinator, Keys, Sharding, Slots, shard_of};

/// Everything one run of a controller needs.
pub(super) struct Run {
    pub(super) name: Arc<str>,
    pub(super) sources: Arc<[Box<dyn Source>]>,
    pub(super) options: Options,
    pub(super) enqueuer: Enqueuer,
    /// Of the cluster that the controller works in.
    pub(super) client: Client,
    pub(super) environment: Environment,
    pub(super) shutdown: CancellationToken,
}

/// A reconciler of any type. Erased per run, not per call: calls need no allocation.
pub(super) trait AnyReconciler: Send + Sync {
    fn run(&self, run: Run) -> BoxFuture<'static, Result<(), SyncError>>;
}

pub(super) struct Typed<R>(pub(super) Arc<R>);

impl<R: Reconcile> AnyReconciler for Typed<R> {
    fn run(&self, run: Run) -> BoxFuture<'static, Result<(), SyncError>> {
        let reconciler = Arc::clone(&self.0);
        Box::pin(run.run(reconciler))
    }
}

impl Run {
    async fn run<R: Reconcile>(self, reconciler: Arc<R>) -> Result<(), SyncError> {
        let caches = self.client.caches().clone();
        let queue = Queue::new(self.options.queue);
        let metrics = Metrics::new(&self.environment.metrics, &self.name, &queue, &self.options);
        // Subscribed before the lists are complete, so that nothing is missed; worked on after,
        // so that the first reconcile sees all kinds.
        let slots = self.options.sharding.as_ref().map(|sharding| Slots::new(sharding.shards));
        let sink = Sink { queue: queue.clone(), shards: None, slots: slots.clone() };
        let subscriptions: Vec<_> = self.sources.iter().map(|source| source.subscribe(&caches, sink.clone())).collect();
        for source in &*self.sources {
            match self.shutdown.run_until_cancelled(source.wait_synced(&caches)).await {
                Some(synced) => synced?,
                None => return Ok(()),
            }
        }
        tracing::info!(
            controller = %self.name,
            workers = self.options.concurrency,
            "controller started"
        );
        let shared = Shared {
            controller: Arc::clone(&self.name),
            client: self.client.clone(),
            clusters: self
                .environment
                .clusters
                .iter()
                .map(|cluster| (Arc::clone(&cluster.name), cluster.client.clone()))
                .collect(),
            own: self.sources.first().and_then(|primary| primary.part(&caches)),
            recorder: self.environment.recorder.clone(),
            shutdown: self.shutdown.clone(),
        };
        let shared = match &self.environment.fence {
            Some(fence) => shared.fenced(fence),
            None => shared,
        };
        let coordinated = CancellationToken::new();
        let mut coordination = JoinSet::new();
        let domain = match self.options.sharding.as_ref().zip(slots) {
            None => Domain::Whole(Arc::new(shared)),
            Some((sharding, slots)) => {
                let coordinator = self.coordinator(sharding, &slots, &caches, &queue);
                let running = coordinator.run(self.shutdown.clone(), coordinated.clone());
                coordination.spawn(self.environment.workers.track_future(running));
                Domain::sharded(slots, shared)
            }
        };
        let worker = Arc::new(Worker {
            reconciler,
            queue: queue.clone(),
            domain,
            timeout: self.options.reconcile_timeout,
            metrics,
        });
        let _attached = self.enqueuer.attach(queue.clone(), worker.domain.slots().cloned());
        let mut workers = JoinSet::new();
        let source_panics = self.environment.metrics.counter(
            "windlass_source_panics_total",
            "Streams of keys that panicked and were started over",
            &[("controller", &*self.name)],
        );
        for source in 0..self.sources.len() {
            let feed = feed(Arc::clone(&self.sources), source, sink.clone(), source_panics.clone());
            let shutdown = self.shutdown.clone();
            let running = async move {
                shutdown.run_until_cancelled(feed).await;
            };
            let running = running.instrument(tracing::info_span!("source", controller = %self.name));
            workers.spawn(self.environment.workers.track_future(running));
        }
        for _ in 0..self.options.concurrency {
            let (worker, shutdown) = (Arc::clone(&worker), self.shutdown.clone());
            workers.spawn(self.environment.workers.track_future(async move { worker.work(&shutdown).await }));
        }
        // Workers finish what they are doing and take up nothing more. The queue still hears of changes:
        // a replica that holds shards must leave what comes up meanwhile to the others.
        self.shutdown.cancelled().await;
        while workers.join_next().await.is_some() {}
        drop(subscriptions);
        if worker.domain.slots().is_some() {
            // What they reported passes the shards' fences only as long as those are held.
            self.environment.recorder.flush().await;
        }
        // Only now: what was running still wrote.
        coordinated.cancel();
        while coordination.join_next().await.is_some() {}
        queue.close();
        tracing::info!(controller = %self.name, "controller stopped");
        Ok(())
    }

    fn coordinator(
        &self,
        sharding: &Sharding,
        slots: &Slots,
        caches: &Caches,
        queue: &Queue<ObjectKey>,
    ) -> Coordinator {
        let (sources, caches, queue) = (Arc::clone(&self.sources), caches.clone(), queue.clone());
        let keys = ShardKeys { sources, caches, queue, slots: slots.clone() };
        let (watched, label) = (slots.clone(), self.name.to_string());
        self.environment.metrics.replace_collector(&format!("shards/{label}"), move |scrape| {
            let (help, labels) = ("Shards that this replica holds", [("controller", label.as_str())]);
            scrape.gauge("windlass_shards_held", help, &labels, watched.held() as f64);
        });
        let client = &self.environment.client;
        let (names, recorder) = ((client.field_manager(), &*self.name), self.environment.recorder.clone());
        Coordinator::new(client.kube().clone(), names, sharding.clone(), slots.clone(), Box::new(keys), recorder)
    }
}

/// The keys of shards: in the queue, and in the caches.
struct ShardKeys {
    sources: Arc<[Box<dyn Source>]>,
    caches: Caches,
    queue: Queue<ObjectKey>,
    slots: Slots,
}

impl ShardKeys {
    /// Puts everything that the caches know in a queue.
    fn fill(&self, queue: &Queue<ObjectKey>, shards: &BTreeSet<u32>) {
        let shards = Some((self.slots.count(), shards.clone()));
        let sink = Sink { queue: queue.clone(), shards, slots: None };
        // A subscription hears of everything known before it hears of changes; those come through
        // the other one.
        for source in &*self.sources {
            drop(source.subscribe(&self.caches, sink.clone()));
        }
    }
}

impl Keys for ShardKeys {
    fn taken(&self, shards: &BTreeSet<u32>) {
        self.fill(&self.queue, shards);
        for key in shards.iter().flat_map(|shard| self.slots.remembered(*shard)) {
            self.queue.add(key, Priority::NORMAL);
        }
    }

    fn left(&self, keys: BTreeSet<ObjectKey>) {
        for key in keys {
            self.queue.add(key, Priority::NORMAL);
        }
    }

    fn pending(&self, shards: &BTreeSet<u32>) -> BTreeSet<ObjectKey> {
        let count = self.slots.count();
        self.queue.pending(|key| shards.contains(&shard_of(key, count))).into_iter().collect()
    }

    fn known(&self, shards: &BTreeSet<u32>) -> BTreeSet<ObjectKey> {
        let known = Queue::default();
        self.fill(&known, shards);
        known.pending(|_| true).into_iter().collect()
    }
}

/// How long a source that panicked waits before it starts over.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Runs one source, again if it panics.
async fn feed(sources: Arc<[Box<dyn Source>]>, source: usize, sink: Sink, panics: Counter) {
    let run = async || {
        if let Some(feed) = sources[source].feed(sink.clone()) {
            feed.await;
        }
    };
    while let Err(panic) = AssertUnwindSafe(run()).catch_unwind().await {
        panics.inc();
        tracing::error!(message = panic_message(&*panic), "source panicked, starting over");
        tokio::time::sleep(PANIC_PAUSE).await;
    }
}

/// The keys that a controller may work on, and in which context.
enum Domain {
    /// All of them.
    Whole(Arc<Shared>),
    /// Those of the shards held; each shard's writes pass its own fence, bound to the term.
    Shards { slots: Slots, shared: Shared, contexts: Box<[TermContext]> },
}

/// The last term that a shard was worked on in, and its context.
type TermContext = Mutex<(u64, Arc<Shared>)>;

impl Domain {
    fn sharded(slots: Slots, shared: Shared) -> Self {
        // There is no term 0.
        let context = |slot: &crate::shard::Slot| Mutex::new((0, Arc::new(shared.fenced(&slot.fence.bound(0)))));
        let contexts = slots.iter().map(context).collect();
        Self::Shards { slots, shared, contexts }
    }

    fn slots(&self) -> Option<&Slots> {
        match self {
            Self::Whole(_) => None,
            Self::Shards { slots, .. } => Some(slots),
        }
    }

    /// The context for a key; `None` when it is another replica's.
    fn enter(&self, key: &ObjectKey) -> Option<(Arc<Shared>, Option<Claim>)> {
        match self {
            Self::Whole(context) => Some((Arc::clone(context), None)),
            Self::Shards { slots, shared, contexts } => {
                let claim = slots.enter(key)?;
                let mut context = contexts[claim.shard() as usize].lock();
                if context.0 != claim.term() {
                    *context = (claim.term(), Arc::new(shared.fenced(&claim.fence())));
                }
                Some((Arc::clone(&context.1), Some(claim)))
            }
        }
    }

    /// What becomes of a key that could not be entered, or not for long enough.
    fn refuse(&self, key: &ObjectKey) -> Verdict {
        let again = self.slots().is_some_and(|slots| slots.refuse(key));
        if again { Verdict::RequeueAfter(Duration::ZERO) } else { Verdict::Done }
    }
}

struct Worker<R> {
    reconciler: Arc<R>,
    queue: Queue<ObjectKey>,
    domain: Domain,
    timeout: Option<Duration>,
    metrics: Metrics,
}

/// How a call of the reconciler ended.
enum Ended {
    Returned(Result<Outcome, ReconcileError>),
    Panicked(String),
    TimedOut(Duration),
    /// Dropped: the key is another replica's by now.
    Lost,
}

impl<R: Reconcile> Worker<R> {
    async fn work(&self, shutdown: &CancellationToken) {
        // Cancel-safe: a key is taken only when it is returned.
        while let Some(Some(item)) = shutdown.run_until_cancelled(self.queue.next()).await {
            let Some((context, claim)) = self.domain.enter(&item.key) else {
                // Told first: it must not be in neither place.
                let verdict = self.domain.refuse(&item.key);
                self.queue.finish(&item.key, verdict);
                tokio::task::coop::consume_budget().await;
                continue;
            };
            let started = Instant::now();
            self.metrics.queue_time.observe(item.waited);
            self.metrics.active.add(1);
            let verdict = self.reconcile(&item, context, claim.as_ref()).await;
            self.metrics.active.add(-1);
            let took = started.elapsed();
            self.metrics.work_time.observe(took);
            self.metrics.time.observe(took);
            self.queue.finish(&item.key, verdict);
            // A full queue and quick reconciles must not keep timers and sockets from their turn.
            tokio::task::coop::consume_budget().await;
        }
    }

    async fn reconcile(&self, item: &Item<ObjectKey>, shared: Arc<Shared>, claim: Option<&Claim>) -> Verdict {
        let context = Context::of(shared, item.failures);
        let span = tracing::info_span!(
            "reconcile",
            controller = %context.controller(),
            namespace = item.key.namespace(),
            name = item.key.name(),
            reconcile_id = %context.reconcile_id(),
        );
        let called = async {
            let Some(claim) = claim else {
                return self.call(item, &context).await;
            };
            claim.while_held(self.call(item, &context)).await.unwrap_or(Ended::Lost)
        };
        let ended = called.instrument(span.clone()).await;
        span.in_scope(|| self.judge(&item.key, ended))
    }

    async fn call(&self, item: &Item<ObjectKey>, context: &Context) -> Ended {
        let reconcile = async { self.reconciler.reconcile(&item.key, context).await };
        let guarded = AssertUnwindSafe(reconcile).catch_unwind();
        let caught = match self.timeout {
            None => guarded.await,
            Some(limit) => match tokio::time::timeout(limit, guarded).await {
                Ok(caught) => caught,
                Err(_) => return Ended::TimedOut(limit),
            },
        };
        match caught {
            Ok(result) => Ended::Returned(result),
            Err(panic) => Ended::Panicked(panic_message(&*panic).to_owned()),
        }
    }

    fn judge(&self, key: &ObjectKey, ended: Ended) -> Verdict {
        let metrics = &self.metrics;
        match ended {
            Ended::Returned(Ok(Outcome::Done)) => {
                metrics.success.inc();
                Verdict::Done
            }
            Ended::Returned(Ok(Outcome::RequeueAfter(delay))) => {
                metrics.requeue_after.inc();
                Verdict::RequeueAfter(delay)
            }
            Ended::Returned(Err(error)) if error.is_terminal() => {
                metrics.error.inc();
                metrics.errors.inc();
                metrics.terminal.inc();
                tracing::error!(%error, "reconcile failed, not tried again");
                Verdict::Done
            }
            Ended::Returned(Err(error)) => {
                metrics.error.inc();
                metrics.errors.inc();
                if error.is_conflict() {
                    tracing::debug!(%error, "reconcile met another writer");
                } else {
                    tracing::warn!(%error, "reconcile failed");
                }
                Verdict::Retry
            }
            Ended::Panicked(message) => {
                metrics.error.inc();
                metrics.errors.inc();
                metrics.panics.inc();
                tracing::error!(%message, "reconcile panicked");
                Verdict::Retry
            }
            Ended::Lost => {
                tracing::info!("reconcile dropped, its shard was lost");
                self.domain.refuse(key)
            }
            Ended::TimedOut(limit) => {
                metrics.error.inc();
                metrics.errors.inc();
                metrics.timeouts.inc();
                tracing::warn!(?limit, "reconcile timed out");
                Verdict::Retry
            }
        }
    }
}

/// controller-runtime's metrics of one controller and its queue.
struct Metrics {
    success: Counter,
    error: Counter,
    requeue_after: Counter,
    errors: Counter,
    terminal: Counter,
    panics: Counter,
    timeouts: Counter,
    active: Gauge,
    time: Histogram,
    queue_time: Histogram,
    work_time: Histogram,
}

impl Metrics {
    fn new(registry: &Registry, name: &str, queue: &Queue<ObjectKey>, options: &Options) -> Self {
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
        total("requeue");
        registry
            .gauge("controller_runtime_max_concurrent_reconciles", "Reconciles that may run at once", &own)
            .set(options.concurrency as i64);
        let (watched, label) = (queue.clone(), name.to_owned());
        registry.replace_collector(&format!("workqueue/{name}"), move |scrape| {
            collect_queue(scrape, &label, &watched);
        });
        Self {
            success: total("success"),
            error: total("error"),
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
}

/// Distinct priorities shown; the rest share one label, as controller-runtime has it.
const PRIORITIES: usize = 25;

fn collect_queue(scrape: &mut Scrape, name: &str, queue: &Queue<ObjectKey>) {
    let stats = queue.stats();
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
    scrape.counter("workqueue_adds_total", "Keys that were put in the queue", &both, stats.adds as f64);
    scrape.counter(
        "workqueue_retries_total",
        "Keys that were put in the queue again after a failure",
        &both,
        stats.retries as f64,
    );
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
