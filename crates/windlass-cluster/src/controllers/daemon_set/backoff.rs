//! How soon failed pods of a DaemonSet are replaced: a node that refuses them again and again gets fewer attempts.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// The replacements of a set's pods.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// The generation of the set that they are of: a new template deserves a new attempt.
    generation: i64,
    /// By node: when the last one was, and how long the next one waits.
    nodes: HashMap<String, (Timestamp, Duration)>,
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

impl Backoff {
    /// Forgets what no longer matters.
    pub(super) fn begin(&mut self, generation: i64, now: Timestamp) {
        if self.generation != generation {
            self.nodes.clear();
            self.generation = generation;
        }
        self.nodes.retain(|_, (last, _)| elapsed(*last, now) <= LONGEST * 2);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How long the replacement of a pod on a node has to wait; if it need not, it counts as done.
    pub(super) fn attempt(&mut self, node: &str, now: Timestamp) -> Duration {
        let Some((last, delay)) = self.nodes.get_mut(node) else {
            self.nodes.insert(node.to_owned(), (now, FIRST));
            return Duration::ZERO;
        };
        let left = delay.saturating_sub(elapsed(*last, now));
        if left.is_zero() {
            (*last, *delay) = (now, (*delay * 2).min(LONGEST));
        }
        left
    }
}
