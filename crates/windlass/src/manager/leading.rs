//! Controllers and tasks that only the leader runs: started with the lease, stopped without it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ManagerError;
use super::run::{flatten, spawn_controllers, supervise};
use super::tasks::{LeaderTask, Stopping};
use crate::controller::{CompleteController, Environment};
use crate::events::Broadcaster;
use crate::lease::{Elector, Fence, LeaderElection};
use crate::metrics::{Gauge, Registry};

/// How long what was aborted may take to be gone. What is in blocking code does not hear of it.
pub(super) const ABORT: Duration = Duration::from_secs(1);

/// The leader's part of a manager.
pub(super) struct Leading {
    pub(super) controllers: Vec<Arc<CompleteController>>,
    pub(super) tasks: Vec<LeaderTask>,
    pub(super) environment: Environment,
    pub(super) broadcaster: Arc<Broadcaster>,
    pub(super) election: Option<LeaderElection>,
    pub(super) stopping: Stopping,
}

/// How a term ended.
enum Ended {
    /// Somebody else may lead.
    Lost,
    /// There is no time left.
    Aborted,
    /// Everything has finished.
    Finished,
}

impl Leading {
    /// Runs them whenever this replica leads (always, without an election), until `shutdown` is
    /// cancelled and they have finished, or `abort` is, which drops them. The lease is given back
    /// either way.
    pub(super) async fn run(self, shutdown: CancellationToken, abort: CancellationToken) -> Result<(), ManagerError> {
        let mut result = Ok(());
        let Some(config) = self.election.clone() else {
            let mut term = self.start(None, &shutdown);
            abort.run_until_cancelled(term.work(&shutdown, &mut result)).await;
            return result;
        };
        let fence = Fence::closed();
        let client = &self.environment.client;
        let status = status_gauge(&self.environment.metrics, &config.name);
        let recorder = self.broadcaster.recorder(client.field_manager());
        let mut elector = Elector::new(client.kube().clone(), config, fence.clone(), recorder);
        loop {
            if shutdown.run_until_cancelled(elector.acquire()).await.is_none() {
                // An attempt that was cut off may have been accepted.
                elector.release().await;
                return Ok(());
            }
            status.set(1);
            let mut term = self.start(Some(fence.bound(fence.term().unwrap_or_default())), &shutdown);
            let work = async {
                term.work(&shutdown, &mut result).await;
                // Renewed until this is done, too: events pass the fence.
                self.flush().await;
            };
            // When the lease is lost the term ends at once: what is running is dropped, not drained.
            let ended = tokio::select! {
                biased;
                () = elector.hold() => Ended::Lost,
                () = abort.cancelled() => Ended::Aborted,
                () = work => Ended::Finished,
            };
            status.set(0);
            match ended {
                // Something failed for want of the lease, before it was found that this is lost.
                Ended::Finished if !term.is_held() => elector.step_down(),
                Ended::Aborted => fence.close(),
                Ended::Finished | Ended::Lost => {}
            }
            // Nothing of this term may be left when the next begins.
            tokio::select! {
                () = term.end() => {}
                () = patience(&abort) => {}
            }
            if result.is_err() || shutdown.is_cancelled() {
                elector.release().await;
                return result;
            }
            tracing::warn!("no longer leader, standing for election again");
        }
    }

    /// Waits until the events of all clusters are written, or until that has taken too long.
    async fn flush(&self) {
        let others = self.environment.clusters.iter().map(|cluster| &*cluster.events);
        futures::future::join_all(std::iter::once(&*self.broadcaster).chain(others).map(Broadcaster::flush)).await;
    }

    fn start(&self, fence: Option<Fence>, shutdown: &CancellationToken) -> Term {
        let (workers, shutdown) = (TaskTracker::new(), shutdown.child_token());
        let mut term = Term { work: JoinSet::new(), workers, shutdown, fence };
        let client = match &term.fence {
            Some(fence) => self.environment.client.fenced(fence),
            None => self.environment.client.clone(),
        };
        let (fence, workers) = (term.fence.clone(), term.workers.clone());
        let environment = Environment { fence, workers, ..self.environment.clone() };
        spawn_controllers(&mut term.work, &self.controllers, &environment, &self.broadcaster, &term.shutdown);
        for task in &self.tasks {
            term.work.spawn(task.run(client.clone(), term.shutdown.clone(), self.stopping.clone()));
        }
        term
    }
}

/// What the leader runs from when it gets the lease until it has it no longer. Dropping it aborts.
struct Term {
    work: JoinSet<Result<(), ManagerError>>,
    /// Everything that controllers have started.
    workers: TaskTracker,
    shutdown: CancellationToken,
    /// What writes must pass: bound to this term, as somebody's own task may outlive it.
    fence: Option<Fence>,
}

impl Term {
    /// Waits for the token, or for something that fails; then for the rest to finish. What fails is in
    /// `result` from that moment on: who loses the lease while the rest finishes does not wait for it.
    async fn work(&mut self, shutdown: &CancellationToken, result: &mut Result<(), ManagerError>) {
        let ended = supervise(&mut self.work, shutdown).await;
        self.note(ended, result);
        self.shutdown.cancel();
        while let Some(ended) = self.work.join_next().await {
            self.note(flatten(ended), result);
        }
    }

    /// Keeps the first failure. What fails once no write passes has failed of that, and is no reason to
    /// stop for good.
    fn note(&self, ended: Result<(), ManagerError>, result: &mut Result<(), ManagerError>) {
        match ended {
            Err(error) if !self.is_held() => tracing::warn!(%error, "stopped with the lease"),
            ended if result.is_ok() => *result = ended,
            _ => {}
        }
    }

    fn is_held(&self) -> bool {
        self.fence.as_ref().is_none_or(Fence::is_open)
    }

    /// Aborts what is left, and waits until it is gone.
    async fn end(mut self) {
        self.shutdown.cancel();
        self.work.shutdown().await;
        self.workers.close();
        self.workers.wait().await;
    }
}

/// Returns when there is no time left, and a little more has passed.
async fn patience(abort: &CancellationToken) {
    abort.cancelled().await;
    tokio::time::sleep(ABORT).await;
}

fn status_gauge(registry: &Registry, lease: &str) -> Gauge {
    registry.gauge(
        "leader_election_master_status",
        "1 while this replica holds the lease, 0 while it does not, by the lease's name",
        &[("name", lease)],
    )
}
