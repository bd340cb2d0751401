//! How many watchers hear of a write, so that it is charged for telling them.
//!
//! Watches are counted by resource, namespace and name; selectors are not looked at, but for pods of one node. Mirrors
//! `watch_tracker.go` of upstream. Looking up allocates nothing.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use parking_lot::RwLock;

use super::WATCHES_PER_SEAT;
use crate::attributes::ResourceTarget;

/// Counts watches.
#[derive(Debug, Default)]
pub(super) struct Watches {
    hasher: RandomState,
    counts: RwLock<HashMap<u64, u32>>,
}

/// A watch that is counted until this is dropped.
#[derive(Debug)]
pub(super) struct CountedWatch {
    watches: Arc<Watches>,
    keys: [u64; 2],
}

impl Watches {
    /// Counts a watch, unless it is for the pods of one node: few of these hear of any pod.
    pub(super) fn register(self: &Arc<Self>, target: &ResourceTarget<'_>) -> Option<CountedWatch> {
        if target.resource == "pods" && !target.node.is_empty() {
            return None;
        }
        let keys = [self.key(target, None), self.key(target, Some((target.namespace, target.name)))];
        let mut counts = self.counts.write();
        for key in keys {
            *counts.entry(key).or_default() += 1;
        }
        Some(CountedWatch { watches: Arc::clone(self), keys })
    }

    /// How many watchers may hear of a write. Fewer than a seat's worth count as none.
    pub(super) fn interested(&self, target: &ResourceTarget<'_>) -> u32 {
        let counts = self.counts.read();
        let count = |key: u64| counts.get(&key).copied().unwrap_or_default();
        if counts.is_empty() || count(self.key(target, None)) < WATCHES_PER_SEAT {
            return 0;
        }
        let mut sum = count(self.key(target, Some(("", ""))));
        if !target.namespace.is_empty() {
            sum += count(self.key(target, Some((target.namespace, ""))));
        }
        if !target.name.is_empty() {
            sum += count(self.key(target, Some((target.namespace, target.name))));
        }
        sum
    }

    /// Names those who watch the same; without a place, all who watch the resource.
    fn key(&self, target: &ResourceTarget<'_>, place: Option<(&str, &str)>) -> u64 {
        self.hasher.hash_one((target.group, target.resource, place))
    }
}

impl Drop for CountedWatch {
    fn drop(&mut self) {
        let mut counts = self.watches.counts.write();
        for key in self.keys {
            if let Some(count) = counts.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(namespace: &'static str, name: &'static str) -> ResourceTarget<'static> {
        ResourceTarget { resource: "configmaps", namespace, name, ..ResourceTarget::default() }
    }

    #[test]
    fn writes_count_cluster_namespace_and_object_watchers() {
        let watches = Arc::new(Watches::default());
        let mut all: Vec<_> = (0..10).map(|_| watches.register(&target("", ""))).collect();
        all.extend((0..3).map(|_| watches.register(&target("a", ""))));
        all.push(watches.register(&target("a", "x")));
        all.push(watches.register(&target("b", "")));
        assert_eq!(watches.interested(&target("a", "x")), 14);
        assert_eq!(watches.interested(&target("a", "")), 13);
        assert_eq!(watches.interested(&target("b", "y")), 11);
        assert_eq!(watches.interested(&ResourceTarget { resource: "pods", ..target("a", "x") }), 0);
        drop(all);
        assert!(watches.counts.read().is_empty());
    }

    #[test]
    fn watchers_of_a_nodes_pods_do_not_count() {
        let watches = Arc::new(Watches::default());
        let pods = ResourceTarget { resource: "pods", node: "n", ..ResourceTarget::default() };
        assert!(watches.register(&pods).is_none());
    }
}
