//! The managers that were started in an environment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::manager::ManagerError;

/// The managers of an environment.
#[derive(Default)]
pub(crate) struct Managers {
    pub(crate) started: Mutex<BTreeMap<u64, Started>>,
    /// The id of the next manager. No id is used twice: a handle may outlive its manager.
    pub(crate) next: AtomicU64,
}

impl Managers {
    pub(crate) fn len(&self) -> usize {
        self.started.lock().len()
    }

    /// What to say of managers that ended although the test did not stop them.
    pub(crate) fn obituaries(&self) -> Vec<String> {
        self.started.lock().values().filter_map(Started::obituary).collect()
    }

    /// Stops all, and says which failed.
    pub(crate) async fn stop(&self) -> Vec<String> {
        let started = std::mem::take(&mut *self.started.lock());
        let mut failed = Vec::new();
        for manager in started.into_values() {
            let name = manager.name.clone();
            if let Err(error) = manager.stop().await {
                failed.push(format!("the manager {name:?} has failed: {error}"));
            }
        }
        failed
    }
}

/// A manager that was started.
pub(crate) struct Started {
    pub(crate) name: String,
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinHandle<()>,
    /// How it ended, once it did.
    pub(crate) result: Arc<Mutex<Option<Result<(), ManagerError>>>>,
    /// Cancelled when it has ended, by a panic too.
    pub(crate) ended: CancellationToken,
}

impl Started {
    pub(crate) async fn stop(self) -> Result<(), ManagerError> {
        self.shutdown.cancel();
        self.task.await.expect("invariant: a manager does not panic");
        self.result.lock().take().expect("invariant: a manager that ended has said how")
    }

    fn obituary(&self) -> Option<String> {
        let name = &self.name;
        match &*self.result.lock() {
            Some(Err(error)) => Some(format!("the manager {name:?} has failed: {error}")),
            Some(Ok(())) => Some(format!("the manager {name:?} has ended")),
            None if self.task.is_finished() => Some(format!("the manager {name:?} has panicked")),
            None => None,
        }
    }
}
