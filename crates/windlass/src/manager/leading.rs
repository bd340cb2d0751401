//! Controllers and tasks that only the leader runs: started with the lease, stopped without it.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ManagerError;
use super::run::{flatten, spawn_controllers, supervise};
use super::tasks::LeaderTask;
use crate::controller::{CompleteController, Environment};
use crate::events::Broadcaster;
use crate::lease::{Elector, Fence, LeaderElection};
use crate::metrics::{Gauge, Registry};

/// The leader's part of a manager.
pub(super) struct Leading {
    pub(super) controllers: Vec<Arc<CompleteController>>,
    pub(super) tasks: Vec<LeaderTask>,
    pub(super) environment: Environment,
    pub(super) broadcaster: Arc<Broadcaster>,
    pub(super) election: Option<LeaderElection>,
}

impl Leading {
    /// Runs them whenever this replica leads (always, without an election), until the
    /// token is cancelled and they have finished.
    pub(super) async fn run(self, shutdown: CancellationToken) -> Result<(), ManagerError> {
        let Some(config) = self.election.clone() else {
            let mut work = self.start(&self.environment, &shutdown);
            let ended = supervise(&mut work, &shutdown).await;
            return finish(&mut work, ended).await;
        };
        let fence = Fence::closed();
        let kube = self.environment.client.kube().clone();
        let mut environment = self.environment.clone();
        environment.fence = Some(fence.clone());
        let client = &self.environment.client;
        let status = status_gauge(&self.environment.metrics, &config.name);
        let recorder = self.broadcaster.recorder(client.field_manager());
        let mut elector = Elector::new(kube, config, fence, recorder);
        loop {
            if shutdown.run_until_cancelled(elector.acquire()).await.is_none() {
                // An attempt that was cut off may have been accepted.
                elector.release().await;
                return Ok(());
            }
            status.set(1);
            let term = shutdown.child_token();
            let mut work = self.start(&environment, &term);
            let ended = async {
                let ended = supervise(&mut work, &shutdown).await;
                term.cancel();
                // Renewed until everything has finished: it still writes.
                let ended = finish(&mut work, ended).await;
                self.flush().await;
                ended
            };
            // When the lease is lost the term ends at once: what is running is dropped, not drained.
            let ended = tokio::select! {
                biased;
                () = elector.hold() => None,
                ended = ended => Some(ended),
            };
            status.set(0);
            if let Some(ended) = ended {
                elector.release().await;
                return ended;
            }
            term.cancel();
            work.shutdown().await;
            tracing::warn!("no longer leader, standing for election again");
        }
    }

    /// Waits until the events of all clusters are written, or until that has taken too long.
    async fn flush(&self) {
        let others = self.environment.clusters.iter().map(|cluster| &*cluster.events);
        futures::future::join_all(std::iter::once(&*self.broadcaster).chain(others).map(Broadcaster::flush)).await;
    }

    fn start(&self, environment: &Environment, term: &CancellationToken) -> JoinSet<Result<(), ManagerError>> {
        let mut work = JoinSet::new();
        spawn_controllers(&mut work, &self.controllers, environment, &self.broadcaster, term);
        let client = match &environment.fence {
            Some(fence) => environment.client.fenced(fence),
            None => environment.client.clone(),
        };
        for task in &self.tasks {
            work.spawn(task.run(client.clone(), term.clone()));
        }
        work
    }
}

async fn finish(
    work: &mut JoinSet<Result<(), ManagerError>>,
    mut result: Result<(), ManagerError>,
) -> Result<(), ManagerError> {
    while let Some(ended) = work.join_next().await {
        result = result.and(flatten(ended));
    }
    result
}

fn status_gauge(registry: &Registry, lease: &str) -> Gauge {
    registry.gauge(
        "leader_election_master_status",
        "1 while this replica holds the lease, 0 while it does not, by the lease's name",
        &[("name", lease)],
    )
}
