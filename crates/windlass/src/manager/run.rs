//! Everything started in order, looked after, and stopped in the reverse order.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::access::Access;
use super::leading::Leading;
use super::tasks::named;
use super::{Bound, Cluster, Manager, ManagerError, describe, http, signals};
use crate::cache::Caches;
use crate::controller::{CompleteController, Environment};
use crate::events::{Broadcaster, Recorder};
use crate::informer::SyncError;

/// How long the server may take to say what the operator may do; it is taken to allow everything after.
const PERMISSIONS_TIMEOUT: Duration = Duration::from_secs(5);

impl Manager {
    /// Runs until SIGINT or SIGTERM, then stops in order. A second signal aborts.
    pub async fn run(self) -> Result<(), ManagerError> {
        let shutdown = CancellationToken::new();
        let mut signals = signals::Signals::install().map_err(ManagerError::Signals)?;
        let running = self.run_until(shutdown.clone());
        tokio::pin!(running);
        tokio::select! {
            ended = &mut running => return ended,
            () = signals.next() => {
                tracing::info!("stopping on signal");
                shutdown.cancel();
            }
        }
        tokio::select! {
            ended = &mut running => ended,
            () = signals.next() => Err(ManagerError::Aborted),
        }
    }

    /// Runs until the token is cancelled, then stops in order.
    pub async fn run_until(mut self, shutdown: CancellationToken) -> Result<(), ManagerError> {
        if let Some(path) = self.describe.clone() {
            let written = describe::write(&path, self.client.field_manager(), &self.rules());
            return written.map_err(|source| ManagerError::Describe { path, source });
        }
        if self.check_permissions {
            let asked = tokio::time::timeout(PERMISSIONS_TIMEOUT, self.missing());
            if let Some(Ok(missing)) = shutdown.run_until_cancelled(asked).await
                && !missing.is_empty()
            {
                return Err(ManagerError::Forbidden { missing });
            }
        }
        let mut running = Running::new(self.client.caches(), &self.clusters, &shutdown);
        self.serve_http(&mut running)?;
        // Before the caches: what they list may have to be converted here.
        self.start_webhooks(&mut running, &shutdown).await?;
        running.caches.iter().for_each(Caches::start);
        let result = match shutdown.run_until_cancelled(running.synced()).await {
            Some(Err(error)) => Err(ManagerError::Cache(error)),
            Some(Ok(())) => {
                self.start_work(&mut running);
                supervise(&mut running.work, &shutdown).await
            }
            None => Ok(()),
        };
        running.stop(result, self.graceful_shutdown).await
    }

    /// Answers probes and serves metrics.
    fn serve_http(&mut self, running: &mut Running) -> Result<(), ManagerError> {
        let synced = running.caches.clone();
        let checks = std::mem::take(&mut self.checks).with_ready("caches", move || {
            if synced.iter().all(Caches::is_synced) { Ok(()) } else { Err("not synced".to_owned()) }
        });
        let (servers, shutdown) = (&mut running.servers, &running.servers_shutdown);
        serve(servers, self.probes.take(), "probes", shutdown, None, move |request| checks.answer(request))?;
        let registry = self.metrics.clone();
        let access = self.metrics_access.then(|| Arc::new(Access::new(self.client.kube().clone())));
        serve(servers, self.metrics_server.take(), "metrics", shutdown, access, move |request| {
            http::metrics(request, &registry)
        })
    }

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
        Ok(())
    }

    /// Starts tasks and controllers, those of the leader once this replica leads, and the writing of
    /// events.
    fn start_work(&mut self, running: &mut Running) {
        self.ready.send_replace(true);
        let (work, shutdown) = (&mut running.work, &running.work_shutdown);
        for task in std::mem::take(&mut self.tasks) {
            work.spawn(task.run(shutdown.clone()));
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
        };
        let (controllers, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.controllers).into_iter().partition(|controller| controller.needs_leader());
        spawn_controllers(work, &others, &environment, &self.broadcaster, shutdown);
        let leading = Leading {
            controllers,
            tasks: std::mem::take(&mut self.leader_tasks),
            environment,
            broadcaster: Arc::clone(&self.broadcaster),
            election: self.election.take(),
        };
        let leading = leading.run(shutdown.clone());
        work.spawn(async move { named("leader election", Box::pin(leading)).await? });
    }
}

/// What a manager runs. Dropping it aborts everything, in this order.
struct Running {
    work: JoinSet<Result<(), ManagerError>>,
    work_shutdown: CancellationToken,
    _stop_work: DropGuard,
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
    fn new(own: &Caches, clusters: &[Cluster], shutdown: &CancellationToken) -> Self {
        let caches: Vec<Caches> = std::iter::once(own).chain(clusters.iter().map(Cluster::caches)).cloned().collect();
        let work_shutdown = shutdown.child_token();
        Self {
            work: JoinSet::new(),
            _stop_work: work_shutdown.clone().drop_guard(),
            work_shutdown,
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

    /// Stops everything in the reverse order, and aborts what has not stopped in time.
    async fn stop(mut self, result: Result<(), ManagerError>, time: Duration) -> Result<(), ManagerError> {
        self.work_shutdown.cancel();
        // Nor may a reconcile that reads a kind for the first time hold up the rest.
        self.caches.iter().for_each(Caches::close);
        if let Ok(ended) = tokio::time::timeout(time, self.finish()).await {
            return result.and(ended);
        }
        self.work.shutdown().await;
        self.webhooks.shutdown().await;
        self.servers.shutdown().await;
        self.stop_caches().await;
        Err(ManagerError::ShutdownTimeout { after: time })
    }

    /// Waits for the work to end, then ends what it relies on. Fails with the first that failed.
    async fn finish(&mut self) -> Result<(), ManagerError> {
        let mut result = Ok(());
        while let Some(ended) = self.work.join_next().await {
            result = result.and(flatten(ended));
        }
        self.stop_caches().await;
        self.webhooks_shutdown.cancel();
        while self.webhooks.join_next().await.is_some() {}
        self.servers_shutdown.cancel();
        while self.servers.join_next().await.is_some() {}
        result
    }

    async fn stop_caches(&self) {
        for caches in &self.caches {
            caches.stop().await;
        }
    }
}

fn serve<F>(
    servers: &mut JoinSet<Result<(), ManagerError>>,
    bound: Option<Bound>,
    purpose: &'static str,
    shutdown: &CancellationToken,
    access: Option<Arc<Access>>,
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
        http::serve(listener, Arc::new(answer), access, shutdown).await;
        Ok(())
    });
    Ok(())
}

pub(super) fn spawn_controllers(
    work: &mut JoinSet<Result<(), ManagerError>>,
    controllers: &[Arc<CompleteController>],
    environment: &Environment,
    broadcaster: &Broadcaster,
    shutdown: &CancellationToken,
) {
    for controller in controllers {
        let mut environment = environment.clone();
        environment.recorder = controller.broadcaster(broadcaster).recorder(controller.name());
        let (name, running) = (controller.name().to_owned(), controller.run(environment, shutdown.clone()));
        work.spawn(async move { named(&name, running).await?.map_err(ManagerError::from) });
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
