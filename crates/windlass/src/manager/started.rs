//! What has been started, by the names of the parts it belongs to: aborting it does not wait for it.

use tokio_util::task::TaskTracker;

/// Tasks of controllers and of an operator's own that may not be gone yet.
#[derive(Default)]
pub(super) struct Started(Vec<(String, TaskTracker)>);

impl Started {
    /// Another part, and what its tasks are to be tracked with.
    pub(super) fn part(&mut self, name: &str) -> TaskTracker {
        let tracker = TaskTracker::new();
        self.0.push((name.to_owned(), tracker.clone()));
        tracker
    }

    /// Waits until nothing is left. Cancel-safe.
    pub(super) async fn gone(&self) {
        for (_, tasks) in &self.0 {
            tasks.close();
            tasks.wait().await;
        }
    }

    /// How many tasks are left, and of which parts.
    pub(super) fn left(&self) -> (usize, String) {
        let left = self.0.iter().filter(|(_, tasks)| !tasks.is_empty());
        let names: Vec<&str> = left.map(|(name, _)| name.as_str()).collect();
        (self.0.iter().map(|(_, tasks)| tasks.len()).sum(), names.join(", "))
    }
}
