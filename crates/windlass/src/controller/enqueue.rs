//! Waking a controller from anywhere.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use crate::key::ObjectKey;
use crate::queue::{Priority, Queue};

/// Puts keys in the queue of a controller, from anywhere in the process: an HTTP handler, a timer,
/// another controller. Clones belong to the same controller.
///
/// While the controller does not run (the manager has not started it, or another replica leads),
/// keys are not taken: a controller that starts reconciles everything anyway.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::{Controller, ObjectKey};
///
/// let controller = Controller::<ConfigMap>::new("settings");
/// let wake = controller.enqueuer();
/// assert!(!wake.enqueue(ObjectKey::new("default", "settings")), "nothing runs yet");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Enqueuer {
    queue: Arc<RwLock<Option<Queue<ObjectKey>>>>,
}

impl Enqueuer {
    /// Has a key reconciled now. False when the controller does not run here.
    pub fn enqueue(&self, key: ObjectKey) -> bool {
        self.with(|queue| queue.add(key, Priority::NORMAL))
    }

    /// Has a key reconciled ahead of, or behind, others.
    pub fn enqueue_with(&self, key: ObjectKey, priority: Priority) -> bool {
        self.with(|queue| queue.add(key, priority))
    }

    /// Has a key reconciled after a delay, unless it is due earlier already.
    pub fn enqueue_after(&self, key: ObjectKey, delay: Duration) -> bool {
        self.with(|queue| queue.add_after(key, delay, Priority::NORMAL))
    }

    fn with(&self, add: impl FnOnce(&Queue<ObjectKey>)) -> bool {
        let queue = self.queue.read();
        queue.as_ref().map(add).is_some()
    }

    /// Leads to a queue until the guard is dropped.
    pub(super) fn attach(&self, queue: Queue<ObjectKey>) -> Attached {
        *self.queue.write() = Some(queue);
        Attached(self.clone())
    }
}

pub(super) struct Attached(Enqueuer);

impl Drop for Attached {
    fn drop(&mut self) {
        *self.0.queue.write() = None;
    }
}
