//! Objects that this process has seen deleted, by uid.
//!
//! A uid never comes back, so nothing that carries one of these belongs in a cache, however late it
//! arrives: a list that began before the deletion, a watch that is behind, the answer to another
//! request of this process. An entry goes away with the watch's own word of the deletion, or with a
//! list that began after it; what neither ever mentions (a selector may leave it out) is forgotten
//! when there are many others.

use std::collections::{HashMap, HashSet};

/// Deletions remembered.
const REMEMBERED: usize = 4096;

#[derive(Default)]
pub(super) struct Deleted {
    uids: HashMap<String, Seen>,
    count: u64,
}

struct Seen {
    /// The list before, or during, which it was deleted.
    epoch: u32,
    /// How many deletions came before.
    order: u64,
}

impl Deleted {
    pub(super) fn contains(&self, uid: Option<&str>) -> bool {
        !self.uids.is_empty() && uid.is_some_and(|uid| self.uids.contains_key(uid))
    }

    /// Remembers a deletion that was answered while the list of an epoch was the last to begin.
    pub(super) fn insert(&mut self, uid: &str, epoch: u32) {
        if self.uids.len() >= REMEMBERED {
            // An eighth at a time, so that the search is paid for rarely.
            let mut orders: Vec<u64> = self.uids.values().map(|seen| seen.order).collect();
            let (_, &mut limit, _) = orders.select_nth_unstable(REMEMBERED / 8);
            self.uids.retain(|_, seen| seen.order > limit);
        }
        self.count += 1;
        self.uids.insert(uid.to_owned(), Seen { epoch, order: self.count });
    }

    pub(super) fn remove(&mut self, uid: Option<&str>) {
        if let Some(uid) = uid {
            self.uids.remove(uid);
        }
    }

    /// A list is complete: it has left out what was deleted before it began, unless it says otherwise.
    pub(super) fn listed(&mut self, epoch: u32, contained: &HashSet<String>) {
        self.uids.retain(|uid, seen| seen.epoch == epoch || contained.contains(uid));
    }

    pub(super) fn clear(&mut self) {
        self.uids.clear();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.uids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut deleted = Deleted::default();
        for n in 0..20_000 {
            deleted.insert(&n.to_string(), 1);
        }
        assert!(deleted.len() <= REMEMBERED);
        assert!(deleted.contains(Some("19999")) && deleted.contains(Some("17000")));
        assert!(!deleted.contains(Some("0")) && !deleted.contains(None));
    }
}
