//! Controllers and tasks that only the leader runs: started with the lease, stopped without it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::ManagerError;
use super::run::{flatten, spawn_controllers, supervise};
use super::started::Started;
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
    /// What the term runs that is, or was, the last.
    pub(super) started: Started,
    /// How long what does not end with a term may go on before this replica is of no use.
    pub(super) stop_timeout: Duration,
}

/// How a term ended.
enum Ended {
    /// Another replica may lead.
    Lost,
    /// There is no time left.
    Aborted,
    /// Everything has finished.
    Finished,
}

impl Leading {
    /// Runs them whenever this replica leads (always, without an election), until `shutdown` is
    /// cancelled and they have finished, or `abort` is, which drops them. The lease is given back
    /// either way. Ends with an error when this replica cannot lead again, since what it began when it
    /// led last does not end.
    pub(super) async fn run(self, shutdown: CancellationToken, abort: CancellationToken) -> Result<(), ManagerError> {
        let mut result = Ok(());
        let Some(config) = self.election.clone() else {
            let mut term = self.start(None, &shutdown);
            abort.run_until_cancelled(term.work(&shutdown, self.stop_timeout, &mut result)).await;
            return result.and(self.end(term, false, &abort).await);
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
                term.work(&shutdown, self.stop_timeout, &mut result).await;
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
            result = result.and(self.end(term, matches!(ended, Ended::Lost), &abort).await);
            if result.is_err() || shutdown.is_cancelled() {
                elector.release().await;
                return result;
            }
            tracing::warn!("no longer leader, standing for election again");
        }
    }

    /// Ends a term. Once there is no time left, what does not end is left alone.
    async fn end(&self, term: Term, lost: bool, abort: &CancellationToken) -> Result<(), ManagerError> {
        tokio::select! {
            ended = term.end(self.stop_timeout.max(ABORT), lost) => ended,
            () = aborted(abort) => Ok(()),
        }
    }

    /// Waits until the events of all clusters are written, or until that has taken too long.
    async fn flush(&self) {
        let others = self.environment.clusters.iter().map(|cluster| &*cluster.events);
        futures::future::join_all(std::iter::once(&*self.broadcaster).chain(others).map(Broadcaster::flush)).await;
    }

    fn start(&self, fence: Option<Fence>, shutdown: &CancellationToken) -> Term {
        self.started.forget_gone();
        let (started, shutdown) = (self.started.clone(), shutdown.child_token());
        let mut term = Term { work: JoinSet::new(), started, shutdown, fence };
        let client = match &term.fence {
            Some(fence) => self.environment.client.fenced(fence),
            None => self.environment.client.clone(),
        };
        let environment = Environment { fence: term.fence.clone(), ..self.environment.clone() };
        let Term { work, started, shutdown, .. } = &mut term;
        spawn_controllers(work, started, &self.controllers, &environment, &self.broadcaster, shutdown);
        for task in &self.tasks {
            let running = task.run(client.clone(), shutdown.clone(), self.stopping.clone());
            work.spawn(started.part(task.name()).track_future(running));
        }
        term
    }
}

/// What the leader runs from when it gets the lease until it has it no longer. Dropping it aborts.
struct Term {
    work: JoinSet<Result<(), ManagerError>>,
    /// The same, and everything that controllers have started.
    started: Started,
    shutdown: CancellationToken,
    /// What writes must pass: bound to this term, as a user's own task may outlive it.
    fence: Option<Fence>,
}

impl Term {
    /// Waits for the token, or for something that fails; then for the rest to finish: after a failure,
    /// for as long as the `timeout`. What fails is in `result` from that moment on: a replica that loses the
    /// lease while the rest finishes does not wait for it.
    async fn work(&mut self, shutdown: &CancellationToken, timeout: Duration, result: &mut Result<(), ManagerError>) {
        let ended = supervise(&mut self.work, shutdown).await;
        self.note(ended, result);
        self.shutdown.cancel();
        let until = Instant::now().checked_add(timeout);
        loop {
            let next = self.work.join_next();
            let ended = match until.filter(|_| !shutdown.is_cancelled()) {
                // Who is told to stop from outside is told when the time is over, too.
                None => next.await,
                Some(until) => match timeout_at(until, next).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                },
            };
            let Some(ended) = ended else { return };
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

    /// Aborts what is left, and waits until it is gone; for some time only.
    async fn end(self, time: Duration, lost: bool) -> Result<(), ManagerError> {
        let Self { mut work, started, shutdown, .. } = self;
        shutdown.cancel();
        let gone = async {
            work.shutdown().await;
            started.gone().await;
        };
        tokio::pin!(gone);
        // What waits for something is gone in a moment.
        if timeout(ABORT, gone.as_mut()).await.is_ok() {
            return Ok(());
        }
        let (running, who) = started.left();
        if lost {
            tracing::warn!(running, who, "no longer leader; waiting for controllers and tasks that have not stopped");
        }
        timeout(time.saturating_sub(ABORT), gone).await.map_err(|_| {
            let (_, name) = started.left();
            ManagerError::Task { name, message: format!("still running {time:?} after its term as leader") }
        })
    }
}

/// Returns when there is no time left, and a little more has passed.
async fn aborted(abort: &CancellationToken) {
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

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_timeout_never_ends() {
        let started = Started::default();
        started.part("slow").spawn(tokio::time::sleep(ABORT * 5));
        let term = Term { work: JoinSet::new(), started, shutdown: CancellationToken::new(), fence: None };
        let began = Instant::now();
        assert!(term.end(Duration::MAX, false).await.is_ok());
        assert_eq!(began.elapsed().as_secs(), (ABORT * 5).as_secs());
    }
}
