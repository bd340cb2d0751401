//! Everything started in order, looked after, and stopped in the reverse order.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::access::Access;
use super::leading::{ABORT, Leading};
use super::started::Started;
use super::tasks::{Stopping, named};
use super::{Bound, Manager, ManagerError, RemoteCluster, describe, http, signals};
use crate::cache::Caches;
use crate::controller::{CompleteController, Environment};
use crate::events::{Broadcaster, Recorder};
use crate::informer::SyncError;
#[cfg(feature = "webhook")]
use crate::webhook::Tls;

/// How long the server may take to say what the operator may do; it is taken to allow what it has not said.
const PERMISSIONS_TIMEOUT: Duration = Duration::from_secs(5);

impl Manager {
    /// Runs until SIGINT or SIGTERM, then stops in order.
    ///
    /// A second signal aborts: this returns [`ManagerError::Aborted`], and the process, if it is still
    /// there a second later, exits with code 1. Code that blocks its thread cannot be aborted
    /// otherwise, and a runtime waits for it. That holds when this has returned, too, since the system
    /// does not end a process by a signal that it once listened for.
    pub async fn run(self) -> Result<(), ManagerError> {
        let shutdown = CancellationToken::new();
        let signals = signals::Signals::install().await.map_err(ManagerError::Signals)?;
        signals::stop_on(signals, self.run_until(shutdown.clone()), shutdown).await
    }

    /// Runs until the token is cancelled, then stops in order.
    pub async fn run_until(mut self, shutdown: CancellationToken) -> Result<(), ManagerError> {
        if let Some(path) = self.describe.clone() {
            let name = self.client.field_manager();
            #[cfg(feature = "webhook")]
            let webhooks = self.webhooks.iter().flat_map(|webhooks| webhooks.manifests(name)).collect();
            #[cfg(not(feature = "webhook"))]
            let webhooks = Vec::new();
            let written = describe::write(&path, name, &self.rules(), &self.definitions, webhooks);
            return written.map_err(|source| ManagerError::Describe { path, source });
        }
        if self.check_permissions {
            let asked = self.missing(Instant::now() + PERMISSIONS_TIMEOUT);
            if let Some(missing) = shutdown.run_until_cancelled(asked).await
                && !missing.is_empty()
            {
                return Err(ManagerError::Forbidden { missing });
            }
        }
        let mut running = Running::new(self.client.caches(), &self.clusters, &shutdown);
        #[cfg(feature = "webhook")]
        let tls = self.metrics_tls(&mut running).await?;
        #[cfg(not(feature = "webhook"))]
        let tls = None;
        self.serve_http(&mut running, tls)?;
        // Before the caches: what they list may have to be converted here.
        #[cfg(feature = "webhook")]
        self.start_webhooks(&mut running, &shutdown).await?;
        running.caches.iter().for_each(Caches::start);
        let result = match shutdown.run_until_cancelled(running.synced()).await {
            Some(Err(error)) => Err(ManagerError::Cache(error)),
            Some(Ok(())) => {
                self.start_work(&mut running);
                running.supervise(&shutdown).await
            }
            None => Ok(()),
        };
        running.stop(result, self.graceful_shutdown).await
    }

    /// Answers probes and serves metrics, over HTTPS if there is `tls`.
    fn serve_http(&mut self, running: &mut Running, tls: Option<TlsAcceptor>) -> Result<(), ManagerError> {
        // What a reconcile reads for the first time later on may not be there, or not be allowed: that is
        // its own failure, and not that of the replica.
        let synced: Vec<_> = running.caches.iter().map(Caches::synced_so_far).collect();
        let checks = std::mem::take(&mut self.checks).with_ready("caches", move || {
            if synced.iter().all(|synced| synced()) { Ok(()) } else { Err("not synced".to_owned()) }
        });
        let (servers, shutdown) = (&mut running.servers, &running.servers_shutdown);
        let answer = move |request: &http::Head| checks.answer(request);
        serve(servers, self.probes.take(), "probes", shutdown, Guard::default(), answer)?;
        let registry = self.metrics.clone();
        let access = self.metrics_access.then(|| Arc::new(Access::new(self.client.kube().clone())));
        let guard = Guard { tls, access };
        let answer = move |request: &http::Head| http::metrics(request, &registry);
        serve(servers, self.metrics_server.take(), "metrics", shutdown, guard, answer)
    }

    /// TLS for the metrics, if they are to be served over HTTPS.
    #[cfg(feature = "webhook")]
    async fn metrics_tls(&mut self, running: &mut Running) -> Result<Option<TlsAcceptor>, ManagerError> {
        if self.metrics_server.is_none() || !(self.metrics_access || self.metrics_certificates.is_some()) {
            return Ok(None);
        }
        let tls = Tls::new(self.metrics_certificates.as_deref(), &self.metrics).await;
        let tls = tls.map_err(ManagerError::MetricsCertificate)?;
        let (acceptor, shutdown) = (tls.acceptor(), running.servers_shutdown.clone());
        running.servers.spawn(async move {
            tls.follow(shutdown).await;
            Ok(())
        });
        Ok(Some(acceptor))
    }

    #[cfg(feature = "webhook")]
    async fn start_webhooks(
        &mut self,
        running: &mut Running,
        shutdown: &CancellationToken,
    ) -> Result<(), ManagerError> {
        for bound in std::mem::take(&mut self.webhooks) {
            let starting = bound.start(&self.client, &self.metrics, running.webhooks_shutdown.clone());
            if let Some(started) = shutdown.run_until_cancelled(starting).await {
                running.webhooks.spawn(started?);
            }
        }
        for webhooks in std::mem::take(&mut self.disabled_webhooks) {
            let (kube, shutdown) = (self.client.kube().clone(), running.webhooks_shutdown.clone());
            running.webhooks.spawn(async move {
                shutdown.run_until_cancelled(webhooks.warn_if_registered(kube)).await;
            });
        }
        Ok(())
    }

    /// Starts tasks and controllers, those of the leader once this replica leads, and the writing of
    /// events.
    fn start_work(&mut self, running: &mut Running) {
        self.ready.send_replace(true);
        let tasks = &mut running.tasks;
        for task in std::mem::take(&mut self.tasks) {
            let part = running.own_tasks.part(task.name());
            tasks.work.spawn(part.track_future(task.run(tasks.shutdown.clone(), running.stopping.clone())));
        }
        let own = (Arc::clone(&self.broadcaster), &self.client);
        let others = self.clusters.iter().map(|cluster| (Arc::clone(&cluster.events), &cluster.client));
        for (events, client) in std::iter::once(own).chain(others) {
            let (kube, shutdown) = (client.kube().clone(), running.servers_shutdown.clone());
            running.servers.spawn(async move {
                events.run(kube, shutdown).await;
                Ok(())
            });
        }
        let environment = Environment {
            client: self.client.clone(),
            clusters: std::mem::take(&mut self.clusters).into(),
            fence: None,
            recorder: Recorder::discard(),
            metrics: self.metrics.clone(),
            reconcile_spans: self.reconcile_spans,
            workers: TaskTracker::new(),
        };
        let (controllers, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.controllers).into_iter().partition(|controller| controller.needs_leader());
        let Group { work, shutdown, .. } = &mut running.controllers;
        spawn_controllers(work, &running.started, &others, &environment, &self.broadcaster, shutdown);
        let leading = Leading {
            controllers,
            tasks: std::mem::take(&mut self.leader_tasks),
            environment,
            broadcaster: Arc::clone(&self.broadcaster),
            election: self.election.take(),
            stopping: running.stopping.clone(),
            started: running.led.clone(),
            stop_timeout: self.graceful_shutdown,
        };
        let leading = leading.run(running.leading.shutdown.clone(), running.abort_leading.clone());
        running.leading.work.spawn(async move { named("leader election", Box::pin(leading)).await? });
    }
}

/// Work that is told to stop together. Dropping it tells, and aborts.
struct Group {
    work: JoinSet<Result<(), ManagerError>>,
    shutdown: CancellationToken,
    _stop: DropGuard,
}

impl Group {
    fn new() -> Self {
        let shutdown = CancellationToken::new();
        Self { work: JoinSet::new(), _stop: shutdown.clone().drop_guard(), shutdown }
    }

    /// Tells it to stop, and waits until it has. The first failure is kept as soon as it is known.
    async fn stop(&mut self, result: &mut Result<(), ManagerError>) {
        self.shutdown.cancel();
        while let Some(ended) = self.work.join_next().await {
            let ended = flatten(ended);
            if result.is_ok() {
                *result = ended;
            }
        }
    }
}

/// What a manager runs. Dropping it aborts everything, in this order.
struct Running {
    stopping: Stopping,
    /// The leader's controllers and tasks, and the election.
    leading: Group,
    /// There is no more time for it: the lease is given back, and that is all.
    abort_leading: CancellationToken,
    /// What the leader has started.
    led: Started,
    /// Controllers of every replica.
    controllers: Group,
    /// What those have started.
    started: Started,
    /// Tasks of every replica.
    tasks: Group,
    /// The same, by their names.
    own_tasks: Started,
    webhooks: JoinSet<()>,
    webhooks_shutdown: CancellationToken,
    /// Of probes and metrics; and what writes events.
    servers: JoinSet<Result<(), ManagerError>>,
    servers_shutdown: CancellationToken,
    /// Of all clusters.
    caches: Vec<Caches>,
    _stop_caches: Vec<DropGuard>,
}

impl Running {
    fn new(own: &Caches, clusters: &[RemoteCluster], shutdown: &CancellationToken) -> Self {
        let caches: Vec<Caches> =
            std::iter::once(own).chain(clusters.iter().map(RemoteCluster::caches)).cloned().collect();
        Self {
            stopping: Stopping::new(shutdown),
            leading: Group::new(),
            abort_leading: CancellationToken::new(),
            led: Started::default(),
            controllers: Group::new(),
            started: Started::default(),
            tasks: Group::new(),
            own_tasks: Started::default(),
            webhooks: JoinSet::new(),
            webhooks_shutdown: CancellationToken::new(),
            servers: JoinSet::new(),
            servers_shutdown: CancellationToken::new(),
            _stop_caches: caches.iter().map(Caches::stop_on_drop).collect(),
            caches,
        }
    }

    async fn synced(&self) -> Result<(), SyncError> {
        for caches in &self.caches {
            caches.wait_synced().await?;
        }
        Ok(())
    }

    /// Waits for the token, or for work that fails before.
    async fn supervise(&mut self, shutdown: &CancellationToken) -> Result<(), ManagerError> {
        loop {
            // Cancel-safe: what ended is taken only when it is returned.
            let ended = tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                Some(ended) = self.leading.work.join_next() => ended,
                Some(ended) = self.controllers.work.join_next() => ended,
                Some(ended) = self.tasks.work.join_next() => ended,
            };
            flatten(ended)?;
        }
    }

    /// Stops everything in the reverse order, and aborts what has not stopped in time. Why it stops, or
    /// what failed while it did, is the error rather than that it took too long.
    async fn stop(mut self, mut result: Result<(), ManagerError>, time: Duration) -> Result<(), ManagerError> {
        self.stopping.begin();
        // Nor may a reconcile that reads a kind for the first time hold up the rest.
        self.caches.iter().for_each(Caches::close);
        if tokio::time::timeout(time, self.finish(&mut result)).await.is_ok() {
            return result;
        }
        let left = self.left();
        tracing::warn!(after = ?time, left, "not stopped in time, aborting");
        // It drops what it runs, and gives the lease back.
        self.abort_leading.cancel();
        self.leading.stop(&mut Ok(())).await;
        // Together: what does not hear of it must not keep the rest from being told.
        let aborted = async {
            tokio::join!(
                self.controllers.work.shutdown(),
                self.tasks.work.shutdown(),
                self.webhooks.shutdown(),
                self.servers.shutdown(),
            );
            self.started.gone().await;
        };
        let aborted = async { tokio::join!(aborted, stop_caches(&self.caches)) };
        let _ = tokio::time::timeout(ABORT, aborted).await;
        result.and(Err(ManagerError::ShutdownTimeout { after: time, left }))
    }

    /// What the stop waits for. It goes step by step: what comes later has not been told yet.
    fn left(&self) -> String {
        let steps = [
            (&self.leading, &self.led, "leader election"),
            (&self.controllers, &self.started, "controllers"),
            (&self.tasks, &self.own_tasks, "tasks"),
        ];
        for (group, started, otherwise) in steps {
            let (running, who) = started.left();
            if running > 0 {
                return who;
            }
            if !group.work.is_empty() {
                return otherwise.to_owned();
            }
        }
        let rest = match (self.webhooks_shutdown.is_cancelled(), self.webhooks.is_empty()) {
            (false, _) => "caches",
            (true, false) => "webhooks",
            (true, true) => "probes, metrics or events",
        };
        rest.to_owned()
    }

    /// Stops what was started last first, and what others rely on after them.
    async fn finish(&mut self, result: &mut Result<(), ManagerError>) {
        self.leading.stop(result).await;
        self.controllers.stop(result).await;
        self.started.gone().await;
        self.tasks.stop(result).await;
        stop_caches(&self.caches).await;
        self.webhooks_shutdown.cancel();
        while self.webhooks.join_next().await.is_some() {}
        self.servers_shutdown.cancel();
        while self.servers.join_next().await.is_some() {}
    }
}

async fn stop_caches(caches: &[Caches]) {
    for caches in caches {
        caches.stop().await;
    }
}

/// What stands between a server and its callers.
#[derive(Default)]
struct Guard {
    tls: Option<TlsAcceptor>,
    access: Option<Arc<Access>>,
}

fn serve<F>(
    servers: &mut JoinSet<Result<(), ManagerError>>,
    bound: Option<Bound>,
    purpose: &'static str,
    shutdown: &CancellationToken,
    guard: Guard,
    answer: F,
) -> Result<(), ManagerError>
where
    F: Fn(&http::Head) -> http::Answer + Send + Sync + 'static,
{
    let Some(bound) = bound else {
        return Ok(());
    };
    let listener = tokio::net::TcpListener::from_std(bound.listener);
    let listener =
        listener.map_err(|source| ManagerError::Bind { address: bound.address.to_string(), purpose, source })?;
    tracing::info!(address = %bound.address, purpose, "serving");
    let shutdown = shutdown.clone();
    servers.spawn(async move {
        http::serve(listener, guard.tls, Arc::new(answer), guard.access, shutdown).await;
        Ok(())
    });
    Ok(())
}

pub(super) fn spawn_controllers(
    work: &mut JoinSet<Result<(), ManagerError>>,
    started: &Started,
    controllers: &[Arc<CompleteController>],
    environment: &Environment,
    broadcaster: &Broadcaster,
    shutdown: &CancellationToken,
) {
    for controller in controllers {
        let (name, tasks) = (controller.name().to_owned(), started.part(controller.name()));
        let recorder = controller.broadcaster(broadcaster).recorder(&name);
        let environment = Environment { recorder, workers: tasks.clone(), ..environment.clone() };
        let running = controller.run(environment, shutdown.clone());
        work.spawn(tasks.track_future(async move { named(&name, running).await?.map_err(ManagerError::from) }));
    }
}

/// Waits for the token, or for something that fails before.
pub(super) async fn supervise(
    work: &mut JoinSet<Result<(), ManagerError>>,
    shutdown: &CancellationToken,
) -> Result<(), ManagerError> {
    loop {
        // Cancel-safe: a task that ended is taken only when it is returned.
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            Some(ended) = work.join_next() => flatten(ended)?,
        }
    }
}

pub(super) fn flatten(ended: Result<Result<(), ManagerError>, tokio::task::JoinError>) -> Result<(), ManagerError> {
    ended.unwrap_or_else(|error| Err(ManagerError::Task { name: "unknown".to_owned(), message: error.to_string() }))
}
