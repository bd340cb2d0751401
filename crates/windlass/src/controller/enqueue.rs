//! Waking a controller from anywhere.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use crate::key::ObjectKey;
use crate::queue::{Priority, Queue};
use crate::shard::Slots;

/// Puts keys in the queue of a controller, from anywhere in the process: an HTTP handler, a timer,
/// another controller. Clones belong to the same controller.
///
/// While the controller does not run (the manager has not started it, or another replica leads),
/// keys are not taken: a controller that starts reconciles everything anyway. Nor are, of a
/// [sharded](crate::shard) controller, keys of shards that other replicas hold: only those replicas
/// can reconcile them, so add the key in all replicas, or write something that the controller watches. A key
/// that is added in all replicas is not lost while its shard changes hands: those that do not hold it
/// remember it for two lease durations, and the replica that takes the shard reconciles it, perhaps once more
/// than needed. That is not so for keys that are to be reconciled later.
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
    target: Arc<RwLock<Option<Target>>>,
}

/// A running controller's queue, and which keys are this replica's.
#[derive(Debug)]
struct Target {
    queue: Queue<ObjectKey>,
    slots: Option<Slots>,
}

impl Enqueuer {
    /// Has a key reconciled now. False when the controller does not run here, or the key is another
    /// replica's.
    pub fn enqueue(&self, key: ObjectKey) -> bool {
        self.enqueue_with(key, Priority::NORMAL)
    }

    /// Has a key reconciled ahead of, or behind, others.
    pub fn enqueue_with(&self, key: ObjectKey, priority: Priority) -> bool {
        self.remember(&key);
        self.with(key, |queue, key| queue.add(key, priority))
    }

    /// Has a key reconciled after a delay, unless it is due earlier already.
    pub fn enqueue_after(&self, key: ObjectKey, delay: Duration) -> bool {
        self.with(key, |queue, key| queue.add_after(key, delay, Priority::NORMAL))
    }

    /// Before it is looked whose the key is: it may be another's a moment later.
    fn remember(&self, key: &ObjectKey) {
        if let Some(slots) = self.target.read().as_ref().and_then(|target| target.slots.as_ref()) {
            slots.tell(key);
        }
    }

    fn with(&self, key: ObjectKey, add: impl FnOnce(&Queue<ObjectKey>, ObjectKey)) -> bool {
        let target = self.target.read();
        let ours = |target: &&Target| target.slots.as_ref().is_none_or(|slots| slots.enter(&key).is_some());
        match target.as_ref().filter(ours) {
            Some(target) => {
                add(&target.queue, key);
                true
            }
            None => false,
        }
    }

    /// Leads to a queue until the guard is dropped.
    pub(super) fn attach(&self, queue: Queue<ObjectKey>, slots: Option<Slots>) -> Attached {
        *self.target.write() = Some(Target { queue, slots });
        Attached(self.clone())
    }
}

pub(super) struct Attached(Enqueuer);

impl Drop for Attached {
    fn drop(&mut self) {
        *self.0.target.write() = None;
    }
}
