//! What has been started, by the names of the parts it belongs to: aborting it does not wait for it.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

/// Tasks of controllers and of an operator's own that may not be gone yet. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Started(Arc<Mutex<Vec<(String, TaskTracker)>>>);

impl Started {
    /// Another part, and what its tasks are to be tracked with.
    pub(super) fn part(&self, name: &str) -> TaskTracker {
        let tracker = TaskTracker::new();
        self.0.lock().push((name.to_owned(), tracker.clone()));
        tracker
    }

    /// Forgets the parts of which nothing is left.
    pub(super) fn forget_gone(&self) {
        self.0.lock().retain(|(_, tasks)| !tasks.is_empty());
    }

    /// Waits until nothing is left. Cancel-safe.
    pub(super) async fn gone(&self) {
        let parts = self.0.lock().clone();
        for (_, tasks) in parts {
            tasks.close();
            tasks.wait().await;
        }
    }

    /// How many tasks are left, and of which parts.
    pub(super) fn left(&self) -> (usize, String) {
        let parts = self.0.lock();
        let left = parts.iter().filter(|(_, tasks)| !tasks.is_empty());
        let names: Vec<&str> = left.map(|(name, _)| name.as_str()).collect();
        (parts.iter().map(|(_, tasks)| tasks.len()).sum(), names.join(", "))
    }
}
