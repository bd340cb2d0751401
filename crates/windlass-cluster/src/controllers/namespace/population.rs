//! How many objects of each kind there are in each namespace.

use std::collections::HashMap;

use crate::controllers::inventory::WatchNumber;

/// The number of objects by namespace and watch, without those that are zero.
#[derive(Debug, Default)]
pub(super) struct Population {
    namespaces: HashMap<Box<str>, HashMap<WatchNumber, usize>>,
}

impl Population {
    /// There is one more.
    pub(super) fn add(&mut self, namespace: &str, watch: WatchNumber) {
        // Nearly all objects are in a namespace that has others: no key is made for those.
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.into(), HashMap::new());
        }
        if let Some(kinds) = self.namespaces.get_mut(namespace) {
            *kinds.entry(watch).or_default() += 1;
        }
    }

    /// There is one less. Returns how many are left.
    pub(super) fn remove(&mut self, namespace: &str, watch: WatchNumber) -> usize {
        let Some(kinds) = self.namespaces.get_mut(namespace) else { return 0 };
        let left = kinds.get(&watch).map_or(0, |count| count.saturating_sub(1));
        if left > 0 {
            kinds.insert(watch, left);
            return left;
        }
        kinds.remove(&watch);
        if kinds.is_empty() {
            self.namespaces.remove(namespace);
        }
        0
    }

    /// A watch has ended.
    pub(super) fn forget(&mut self, watch: WatchNumber) {
        self.namespaces.retain(|_, kinds| {
            kinds.remove(&watch);
            !kinds.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_object_of_a_kind_leaves_none() {
        let mut population = Population::default();
        population.add("a", 1);
        population.add("a", 1);
        population.add("a", 2);
        population.add("b", 1);
        assert_eq!(population.remove("a", 1), 1);
        assert_eq!(population.remove("a", 1), 0);
        assert_eq!(population.remove("a", 1), 0, "one that was never counted");
        assert_eq!(population.remove("c", 1), 0, "a namespace without objects");
        population.forget(2);
        assert_eq!(population.namespaces.keys().map(|name| &**name).collect::<Vec<_>>(), ["b"]);
    }
}
