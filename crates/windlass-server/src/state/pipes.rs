//! The tasks that serve pipes: connections of clients in the same process that are not HTTP any more.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The pipes of one server.
#[derive(Default)]
pub(crate) struct Pipes {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Pipes {
    /// Closes all pipes.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Serves one end of a pipe until it ends or the server stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }
}
