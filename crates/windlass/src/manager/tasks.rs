//! Tasks of an operator's own, beside its controllers.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::ManagerError;
use crate::client::CachedClient;
use crate::object::panic_message;

type Ended = Result<(), String>;

/// How much earlier than the manager a task may hear of what they both stop on, as of a signal.
const EARLIER: Duration = Duration::from_secs(1);

/// Whether the manager stops: it was told to, or something has failed. Its parts are told one after
/// the other, and later.
#[derive(Clone)]
pub(super) struct Stopping {
    /// The caller's.
    told: CancellationToken,
    begun: CancellationToken,
}

impl Stopping {
    pub(super) fn new(told: &CancellationToken) -> Self {
        Self { told: told.clone(), begun: CancellationToken::new() }
    }

    /// The stop begins.
    pub(super) fn begin(&self) {
        self.begun.cancel();
    }

    /// Whether it has begun, or does in a moment.
    async fn has_begun(&self) -> bool {
        let begins = async {
            tokio::select! {
                () = self.told.cancelled() => {}
                () = self.begun.cancelled() => {}
            }
        };
        tokio::time::timeout(EARLIER, begins).await.is_ok()
    }
}

/// A task of every replica.
pub(super) struct Task {
    name: String,
    run: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Ended> + Send>,
}

impl Task {
    pub(super) fn new<F, Fut, E>(name: &str, task: F) -> Self
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        Self { name: name.to_owned(), run: Box::new(move |shutdown| erase(task(shutdown))) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs it; the future owns all that it needs.
    pub(super) async fn run(self, shutdown: CancellationToken, stopping: Stopping) -> Result<(), ManagerError> {
        let Self { name, run } = self;
        let token = shutdown.clone();
        let ended = named(&name, async move { run(token).await }).await?;
        verdict(name, ended, &shutdown, &stopping).await
    }
}

/// A task of the leader, started in each of its terms.
pub(super) struct LeaderTask {
    name: String,
    run: Arc<dyn Fn(CachedClient, CancellationToken) -> BoxFuture<'static, Ended> + Send + Sync>,
}

impl LeaderTask {
    pub(super) fn new<F, Fut, E>(name: &str, task: F) -> Self
    where
        F: Fn(CachedClient, CancellationToken) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        Self { name: name.to_owned(), run: Arc::new(move |client, shutdown| erase(task(client, shutdown))) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// One run of it, with a client whose writes stop with the lease.
    pub(super) fn run(
        &self,
        client: CachedClient,
        shutdown: CancellationToken,
        stopping: Stopping,
    ) -> impl Future<Output = Result<(), ManagerError>> + Send + use<> {
        let (name, run, token) = (self.name.clone(), Arc::clone(&self.run), shutdown.clone());
        async move {
            let ended = named(&name, async move { run(client, token).await }).await?;
            verdict(name, ended, &shutdown, &stopping).await
        }
    }
}

/// What something comes to; if it panics, an error that says so and who it was.
pub(super) async fn named<T>(name: &str, running: impl Future<Output = T>) -> Result<T, ManagerError> {
    AssertUnwindSafe(running).catch_unwind().await.map_err(|panic| {
        let message = format!("panicked: {}", panic_message(&*panic));
        ManagerError::Task { name: name.to_owned(), message }
    })
}

fn erase<Fut, E>(running: Fut) -> BoxFuture<'static, Ended>
where
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: std::fmt::Display,
{
    Box::pin(async move { running.await.map_err(|error| error.to_string()) })
}

/// What it means that a task has ended. Neither one that was told to nor one that stops on what the
/// manager stops on, too, has ended too early.
async fn verdict(
    name: String,
    ended: Ended,
    shutdown: &CancellationToken,
    stopping: &Stopping,
) -> Result<(), ManagerError> {
    match ended {
        Ok(()) if shutdown.is_cancelled() || stopping.has_begun().await => Ok(()),
        Ok(()) => Err(ManagerError::Task { name, message: "ended before the manager stopped".to_owned() }),
        Err(message) => Err(ManagerError::Task { name, message }),
    }
}
