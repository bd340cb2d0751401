//! The running controller: subscriptions, a queue, and workers that reconcile.
//!
//! Every worker belongs to the run: cancelling the token lets them finish what they are doing,
//! dropping the run's future aborts them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::clock::Clock;
use super::context::{Context, Shared};
use super::enqueue::Enqueuer;
use super::metrics::{Metrics, QueueMetrics};
use super::ownership::{self, Ownership};
use super::panics::{Health, RepeatedPanics, said};
use super::reconcile::{AnyReconciler, Outcome, ReconcileError};
use super::source::{Sink, Source};
use super::{Environment, Options, SourceContext};
use crate::client::CachedClient;
use crate::informer::SyncError;
use crate::key::ObjectKey;
use crate::metrics::Counter;
use crate::queue::{Completion, Item, Queue};
use crate::shard::Claim;

/// Everything one run of a controller needs.
pub(super) struct Run {
    pub(super) name: Arc<str>,
    pub(super) reconciler: Arc<dyn AnyReconciler>,
    pub(super) sources: Arc<[Box<dyn Source>]>,
    pub(super) options: Options,
    pub(super) enqueuer: Enqueuer,
    /// Of the cluster that the controller works in.
    pub(super) client: CachedClient,
    pub(super) environment: Environment,
    pub(super) health: Health,
    pub(super) shutdown: CancellationToken,
}

impl Run {
    pub(super) async fn run(self) -> Result<(), SyncError> {
        let caches = self.client.caches().clone();
        let queue = Queue::new(self.options.queue);
        let metrics = Metrics::new(&self.environment.metrics, &self.name, &self.options);
        // Of the run, not of its workers: those of a run that was dropped may end after the next has begun.
        let _shown = QueueMetrics::new(&self.environment.metrics, &self.name, &queue);
        let shared = Shared {
            controller: Arc::clone(&self.name),
            client: self.client.clone(),
            clusters: self
                .environment
                .clusters
                .iter()
                .map(|cluster| (Arc::clone(&cluster.name), cluster.client.clone()))
                .collect(),
            own: self.sources.first().and_then(|primary| primary.own(&caches)),
            recorder: self.environment.recorder.clone(),
            shutdown: self.shutdown.clone(),
            clock: Clock::start(),
        };
        let shared = match &self.environment.fence {
            Some(fence) => shared.fenced(fence),
            None => shared,
        };
        let shared = Arc::new(shared);
        let ctx = SourceContext::new(Arc::clone(&shared), self.enqueuer.clone());
        let ownership = ownership::of(self.options.sharding.as_ref(), shared);
        let slots = ownership.slots();
        let panics = RepeatedPanics::default();
        let _observed = self.health.observe(&self.environment.metrics, &self.name, &panics, slots);
        // Subscribed before the lists are complete, so that nothing is missed; worked on after,
        // so that the first reconcile sees all kinds.
        let sink = Sink { queue: queue.clone(), shards: None, slots: slots.cloned() };
        let subscriptions: Vec<_> = self.sources.iter().map(|source| source.subscribe(&ctx, sink.clone())).collect();
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
        let coordinated = CancellationToken::new();
        let mut coordination = JoinSet::new();
        if let Some(coordinator) = ownership.coordinator(&self, &ctx, &queue) {
            let running = coordinator.run(self.shutdown.clone(), coordinated.clone());
            coordination.spawn(self.environment.workers.track_future(running));
        }
        let worker = Arc::new(Worker {
            reconciler: Arc::clone(&self.reconciler),
            queue: queue.clone(),
            ownership,
            timeout: self.options.reconcile_timeout,
            spans: self.environment.reconcile_spans,
            metrics,
            panics,
        });
        let _attached = self.enqueuer.attach(queue.clone(), worker.ownership.slots().cloned());
        let mut workers = JoinSet::new();
        let source_panics = self.environment.metrics.counter(
            "windlass_source_panics_total",
            "Streams of keys that panicked and were started over",
            &[("controller", &*self.name)],
        );
        for source in 0..self.sources.len() {
            let feed = feed(Arc::clone(&self.sources), source, ctx.clone(), sink.clone(), source_panics.clone());
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
        if worker.ownership.slots().is_some() {
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
}

/// How long a source that panicked waits before it starts over.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Runs one source, again if it panics.
async fn feed(sources: Arc<[Box<dyn Source>]>, source: usize, ctx: SourceContext, sink: Sink, panics: Counter) {
    let run = async || {
        if let Some(feed) = sources[source].feed(&ctx, sink.clone()) {
            feed.await;
        }
    };
    while let Err(panic) = AssertUnwindSafe(run()).catch_unwind().await {
        panics.inc();
        tracing::error!(message = said(panic), "source panicked, starting over");
        tokio::time::sleep(PANIC_PAUSE).await;
    }
}

struct Worker {
    reconciler: Arc<dyn AnyReconciler>,
    queue: Queue<ObjectKey>,
    ownership: Box<dyn Ownership>,
    timeout: Option<Duration>,
    /// Whether each reconcile has a span.
    spans: bool,
    metrics: Metrics,
    panics: RepeatedPanics<ObjectKey>,
}

/// How a call of the reconciler ended.
enum Ended {
    Returned(Result<Outcome, ReconcileError>),
    Panicked(String),
    TimedOut(Duration),
    /// Dropped: the key is another replica's by now.
    Lost,
}

impl Ended {
    fn is_success(&self) -> bool {
        matches!(self, Self::Returned(Ok(_)))
    }

    /// As the metrics call it.
    fn outcome(&self) -> &'static str {
        match self {
            Self::Returned(Ok(Outcome::Done)) => "success",
            Self::Returned(Ok(Outcome::RequeueAfter(delay))) if delay.is_zero() => "requeue",
            Self::Returned(Ok(Outcome::RequeueAfter(_))) => "requeue_after",
            Self::Returned(Err(error)) if error.is_terminal() => "terminal_error",
            Self::Returned(Err(_)) => "error",
            Self::Panicked(_) => "panic",
            Self::TimedOut(_) => "timeout",
            Self::Lost => "lost",
        }
    }
}

impl Worker {
    async fn work(&self, shutdown: &CancellationToken) {
        // Cancel-safe: a key is taken only when it is returned.
        while let Some(Some(item)) = shutdown.run_until_cancelled(self.queue.next()).await {
            let Some((context, claim)) = self.ownership.enter(&item.key) else {
                self.panics.ended(&item.key);
                // Told first: it must not be in neither place.
                let verdict = self.ownership.refuse(&item.key);
                self.queue.put_back(&item.key, verdict);
                tokio::task::coop::consume_budget().await;
                continue;
            };
            let started = Instant::now();
            self.metrics.queue_time.observe(item.waited);
            let active = self.metrics.active();
            let verdict = self.reconcile(&item, context, claim.as_ref(), started).await;
            drop(active);
            let took = started.elapsed();
            self.metrics.work_time.observe(took);
            self.metrics.time.observe(took);
            self.queue.finish(&item.key, verdict);
            // A full queue and quick reconciles must not keep timers and sockets from their turn.
            tokio::task::coop::consume_budget().await;
        }
    }

    async fn reconcile(
        &self,
        item: &Item<ObjectKey>,
        shared: Arc<Shared>,
        claim: Option<&Claim>,
        started: Instant,
    ) -> Completion {
        let context = Context::of(shared, item.failures);
        let described = context.clone();
        let describe = || {
            tracing::info_span!(
                "reconcile",
                controller = %described.controller(),
                namespace = item.key.namespace(),
                name = item.key.name(),
                reconcile_id = %described.reconcile_id(),
            )
        };
        let span = if self.spans { describe() } else { tracing::Span::none() };
        let called = async {
            let Some(claim) = claim else {
                return self.call(item, context).await;
            };
            claim.while_held(self.call(item, context)).await.unwrap_or(Ended::Lost)
        };
        // Around all of it: what was given up panics, if it does, when it is dropped.
        let caught = AssertUnwindSafe(called.instrument(span.clone())).catch_unwind().await;
        let ended = caught.unwrap_or_else(|panic| Ended::Panicked(said(panic)));
        let span = if self.spans || ended.is_success() { span } else { describe() };
        span.in_scope(|| {
            // For those who watch an operator work, such as `windlass dev`.
            tracing::debug!(
                target: "windlass::reconciled",
                key = %item.key,
                outcome = ended.outcome(),
                seconds = started.elapsed().as_secs_f64(),
                "reconciled"
            );
            let (completion, panicked) = self.judge(&item.key, ended);
            match panicked {
                Some(message) => self.panics.panicked(&item.key, &message),
                None => self.panics.ended(&item.key),
            }
            completion
        })
    }

    async fn call(&self, item: &Item<ObjectKey>, context: Context) -> Ended {
        let reconcile = self.reconciler.call(item.key.clone(), context);
        let Some(limit) = self.timeout else {
            return Ended::Returned(reconcile.await);
        };
        let returned = tokio::time::timeout(limit, reconcile).await;
        returned.map_or(Ended::TimedOut(limit), Ended::Returned)
    }

    /// Counts how a call ended and logs it. The result does not depend on what the user's error does while it is
    /// logged and dropped; a panic's message is part of it.
    fn judge(&self, key: &ObjectKey, ended: Ended) -> (Completion, Option<String>) {
        let metrics = &self.metrics;
        let mut panicked = None;
        let verdict = match &ended {
            Ended::Returned(Ok(Outcome::Done)) => {
                metrics.success.inc();
                return (Completion::Done, None);
            }
            // No time to wait for: what is asked for again and again without one must not keep everything busy.
            Ended::Returned(Ok(Outcome::RequeueAfter(delay))) if delay.is_zero() => {
                metrics.requeue.inc();
                return (Completion::Retry, None);
            }
            Ended::Returned(Ok(Outcome::RequeueAfter(delay))) => {
                metrics.requeue_after.inc();
                return (Completion::RequeueAfter(*delay), None);
            }
            Ended::Lost => {
                tracing::info!("reconcile dropped, its shard was lost");
                return (self.ownership.refuse(key), None);
            }
            Ended::Returned(Err(error)) if error.is_terminal() => {
                metrics.terminal.inc();
                Completion::Done
            }
            Ended::Returned(Err(_)) => Completion::Retry,
            Ended::Panicked(message) => {
                metrics.panics.inc();
                panicked = Some(message.clone());
                Completion::Retry
            }
            Ended::TimedOut(_) => {
                metrics.timeouts.inc();
                Completion::Retry
            }
        };
        metrics.error.inc();
        metrics.errors.inc();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| report(ended))) {
            metrics.panics.inc();
            let message = said(panic);
            tracing::error!(%message, "reconcile failed, and its error panicked");
            panicked = Some(message);
        }
        (verdict, panicked)
    }
}

/// Says how a call failed, and lets go of its error.
fn report(ended: Ended) {
    match ended {
        Ended::Returned(Ok(_)) | Ended::Lost => {}
        Ended::Returned(Err(error)) if error.is_terminal() => {
            tracing::error!(%error, "reconcile failed, not tried again");
        }
        Ended::Returned(Err(error)) if error.is_conflict() => {
            tracing::debug!(%error, "reconcile met another writer");
        }
        Ended::Returned(Err(error)) => tracing::warn!(%error, "reconcile failed"),
        Ended::Panicked(message) => tracing::error!(%message, "reconcile panicked"),
        Ended::TimedOut(limit) => tracing::warn!(?limit, "reconcile timed out"),
    }
}
