//! Keys of a shard that may be in no replica's cache, and since when.
//!
//! Bounded: when there are too many, those go first that are there for longest, since they are the
//! likeliest to have been seen to by another replica.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use crate::key::ObjectKey;

#[derive(Debug)]
pub(super) struct Departed {
    since: HashMap<ObjectKey, Instant>,
    /// The same, the oldest first.
    order: BTreeSet<(Instant, ObjectKey)>,
    most: usize,
    /// Whether it was said that there are too many.
    warned: bool,
}

impl Departed {
    pub(super) fn new(most: usize) -> Self {
        Self { since: HashMap::new(), order: BTreeSet::new(), most: most.max(1), warned: false }
    }

    /// Remembers a key from now on.
    pub(super) fn insert(&mut self, key: ObjectKey, now: Instant) {
        if let Some(before) = self.since.insert(key.clone(), now) {
            self.order.remove(&(before, key.clone()));
        }
        self.order.insert((now, key));
        while self.order.len() > self.most {
            self.pop();
            if !std::mem::replace(&mut self.warned, true) {
                tracing::error!(most = self.most, "too many keys to remember until shards can be taken");
            }
        }
    }

    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.since.contains_key(key)
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some(since) = self.since.remove(key) {
            self.order.remove(&(since, key.clone()));
        }
    }

    /// Forgets what was last remembered before a moment.
    pub(super) fn forget(&mut self, before: Instant) {
        while self.order.first().is_some_and(|(since, _)| *since < before) {
            self.pop();
            self.warned = false;
        }
        if self.since.is_empty() {
            self.since.shrink_to_fit();
        }
    }

    /// What was last remembered until a moment, the oldest first.
    pub(super) fn until(&self, moment: Instant) -> impl Iterator<Item = &ObjectKey> {
        self.order.iter().take_while(move |(since, _)| *since <= moment).map(|(_, key)| key)
    }

    /// What was last remembered since a moment, the latest first.
    pub(super) fn since(&self, moment: Instant) -> impl Iterator<Item = &ObjectKey> {
        self.order.iter().rev().take_while(move |(since, _)| *since >= moment).map(|(_, key)| key)
    }

    /// What is remembered, the oldest first.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.order.iter().map(|(_, key)| key)
    }

    fn pop(&mut self) {
        if let Some((_, key)) = self.order.pop_first() {
            self.since.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_key_is_remembered_once_since_its_last_mention() {
        let (mut departed, start) = (Departed::new(10), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let (odin, thor) = (ObjectKey::cluster("odin"), ObjectKey::cluster("thor"));
        for second in 0..5 {
            departed.insert(thor.clone(), at(second));
        }
        departed.insert(odin.clone(), at(2));
        assert!(departed.keys().eq([&odin, &thor]));
        departed.forget(at(4));
        assert!(departed.keys().eq([&thor]));
        departed.forget(at(5));
        assert_eq!((departed.keys().count(), departed.since.len()), (0, 0));
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let (mut departed, start) = (Departed::new(3), Instant::now());
        for n in 0..100 {
            departed.insert(ObjectKey::cluster(format!("pet-{n}")), start + Duration::from_secs(n));
        }
        let last: Vec<String> = departed.keys().map(ToString::to_string).collect();
        assert_eq!(last, ["pet-97", "pet-98", "pet-99"]);
        assert_eq!(departed.since.len(), 3);
    }
}
