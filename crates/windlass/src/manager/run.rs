//! Everything started in order, looked after, and stopped in the reverse order.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use super::leading::Leading;
use super::tasks::named;
use super::{Bound, Cluster, Manager, ManagerError, describe, http, signals};
use crate::cache::Caches;
use crate::controller::{CompleteController, Environment};
use crate::events::{Broadcaster, Recorder};

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
    pub async fn run_until(self, shutdown: CancellationToken) -> Result<(), ManagerError> {
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
        let Self {
            client,
            metrics,
            broadcaster,
            probes,
            metrics_server,
            checks,
            controllers,
            tasks,
            leader_tasks,
            election,
            graceful_shutdown,
            webhooks,
            clusters,
            metrics_access,
            ready,
            ..
        } = self;
        let caches = client.caches().clone();
        let clusters: Arc<[Cluster]> = clusters.into();
        let every: Vec<Caches> =
            std::iter::once(caches).chain(clusters.iter().map(|cluster| cluster.caches().clone())).collect();
        // Dropping this future must stop the informers too.
        let _stop_caches: Vec<_> = every.iter().map(Caches::stop_on_drop).collect();
        let servers_shutdown = CancellationToken::new();
        let mut servers = JoinSet::new();
        let synced = every.clone();
        let checks = Arc::new(checks.with_ready("caches", move || {
            if synced.iter().all(Caches::is_synced) { Ok(()) } else { Err("not synced".to_owned()) }
        }));
        serve(&mut servers, probes, "probes", &servers_shutdown, None, move |request| checks.answer(request))?;
        let registry = metrics.clone();
        let access = metrics_access.then(|| Arc::new(Access::new(client.kube().clone())));
        serve(&mut servers, metrics_server, "metrics", &servers_shutdown, access, move |request| {
            http::metrics(request, &registry)
        })?;

        // Before the caches: what they list may have to be converted here.
        let webhooks_shutdown = CancellationToken::new();
        let mut webhook_servers = JoinSet::new();
        for bound in webhooks {
            let starting = bound.start(&client, &metrics, webhooks_shutdown.clone());
            if let Some(started) = shutdown.run_until_cancelled(starting).await {
                webhook_servers.spawn(started?);
            }
        }

        every.iter().for_each(Caches::start);
        let work_shutdown = shutdown.child_token();
        let _stop_work = work_shutdown.clone().drop_guard();
        let mut work: JoinSet<Result<(), ManagerError>> = JoinSet::new();
        let syncing = async {
            for caches in &every {
                caches.wait_synced().await?;
            }
            Ok(())
        };
        let mut result = match shutdown.run_until_cancelled(syncing).await {
            Some(Err(error)) => Err(ManagerError::Cache(error)),
            Some(Ok(())) => {
                ready.send_replace(true);
                for task in tasks {
                    work.spawn(task.run(work_shutdown.clone()));
                }
                let environment = Environment {
                    client: client.clone(),
                    clusters,
                    fence: None,
                    recorder: Recorder::discard(),
                    metrics,
                };
                let (controllers, others): (Vec<_>, Vec<_>) =
                    controllers.into_iter().partition(|controller| controller.needs_leader());
                spawn_controllers(&mut work, &others, &environment, &broadcaster, &work_shutdown);
                let leading = Leading {
                    controllers,
                    tasks: leader_tasks,
                    environment,
                    broadcaster: Arc::clone(&broadcaster),
                    election,
                };
                let leading = leading.run(work_shutdown.clone());
                work.spawn(async move { named("leader election", Box::pin(leading)).await? });
                let kube = client.kube().clone();
                let (events, events_shutdown) = (Arc::clone(&broadcaster), servers_shutdown.clone());
                servers.spawn(async move {
                    events.run(kube, events_shutdown).await;
                    Ok(())
                });
                supervise(&mut work, &shutdown).await
            }
            None => Ok(()),
        };

        work_shutdown.cancel();
        // Nor may a reconcile that reads a kind for the first time hold up the rest.
        every.iter().for_each(Caches::close);
        let stopping = async {
            while let Some(ended) = work.join_next().await {
                if let Err(error) = flatten(ended)
                    && result.is_ok()
                {
                    result = Err(error);
                }
            }
            for caches in &every {
                caches.stop().await;
            }
            webhooks_shutdown.cancel();
            while webhook_servers.join_next().await.is_some() {}
            servers_shutdown.cancel();
            while servers.join_next().await.is_some() {}
        };
        if tokio::time::timeout(graceful_shutdown, stopping).await.is_err() {
            work.shutdown().await;
            webhook_servers.shutdown().await;
            servers.shutdown().await;
            for caches in &every {
                caches.stop().await;
            }
            return Err(ManagerError::ShutdownTimeout { after: graceful_shutdown });
        }
        result
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
        environment.recorder = broadcaster.recorder(controller.name());
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
