//! Counts of pods by node, kept up to date as pods come and go, so that no decision looks at every pod.
//!
//! A [`Groups`] entry counts the pods that were asked about: it is made when it is first asked for and forgotten when
//! it has not been used for long. A [`Terms`] entry counts the pods that *have* a term, so that a new pod can be matched
//! against the terms of all others without looking at each of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::pod::{Term, TermScope};

/// How many groups are kept.
const MOST_GROUPS: usize = 1024;

/// Positions of nodes in the cluster's list.
pub(crate) type Slot = u32;

/// Hashes slots: they are small numbers of our own, so that users cannot choose colliding ones.
#[derive(Debug, Default)]
pub(crate) struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(number)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// How many on which node.
pub(crate) type ByNode = HashMap<Slot, u32, BuildHasherDefault<SlotHasher>>;

fn change(counts: &mut ByNode, slot: Slot, add: bool) {
    if add {
        *counts.entry(slot).or_default() += 1;
    } else if let Some(count) = counts.get_mut(&slot) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&slot);
        }
    }
}

/// Finds entries by the namespace of a pod, without looking at those of other namespaces.
#[derive(Debug, Default)]
struct ByNamespace {
    one: HashMap<Box<str>, Vec<usize>>,
    several: Vec<usize>,
}

impl ByNamespace {
    fn list(&mut self, namespace: Option<&str>) -> &mut Vec<usize> {
        match namespace {
            Some(namespace) => self.one.entry(namespace.into()).or_default(),
            None => &mut self.several,
        }
    }

    fn insert(&mut self, namespace: Option<&str>, id: usize) {
        self.list(namespace).push(id);
    }

    fn remove(&mut self, namespace: Option<&str>, id: usize) {
        let list = self.list(namespace);
        list.retain(|one| *one != id);
        if let (true, Some(namespace)) = (list.is_empty(), namespace) {
            self.one.remove(namespace);
        }
    }

    fn candidates(&self, namespace: &str) -> impl Iterator<Item = usize> + '_ {
        self.one.get(namespace).into_iter().flatten().chain(&self.several).copied()
    }
}

/// Which pods a group counts: those that all scopes mean.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    pub(crate) scopes: Vec<Arc<TermScope>>,
    /// Whether pods that are being deleted do not count.
    pub(crate) only_staying: bool,
}

impl GroupKey {
    fn namespace(&self) -> Option<&str> {
        self.scopes.iter().find_map(|scope| scope.only_namespace())
    }

    fn depends_on_namespaces(&self) -> bool {
        self.scopes.iter().any(|scope| scope.namespace_selector.is_some())
    }
}

#[derive(Debug)]
struct Group {
    key: GroupKey,
    counts: ByNode,
    used: u64,
}

/// Counts of pods that were asked about.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    ids: HashMap<GroupKey, usize>,
    by_id: HashMap<usize, Group>,
    by_namespace: ByNamespace,
    next: usize,
    clock: u64,
}

impl Groups {
    /// The counts of a group.
    pub(crate) fn get(&self, key: &GroupKey) -> Option<&ByNode> {
        Some(&self.by_id[self.ids.get(key)?].counts)
    }

    /// Makes sure that a group is counted; `count` counts it once.
    pub(crate) fn ensure(&mut self, key: GroupKey, count: impl FnOnce(&GroupKey, Option<&str>) -> ByNode) {
        self.clock += 1;
        if let Some(id) = self.ids.get(&key) {
            if let Some(group) = self.by_id.get_mut(id) {
                group.used = self.clock;
            }
            return;
        }
        if self.by_id.len() >= MOST_GROUPS
            && let Some(oldest) = self.by_id.iter().min_by_key(|(_, group)| group.used).map(|(id, _)| *id)
        {
            self.forget(oldest);
        }
        let counts = count(&key, key.namespace());
        let id = self.next;
        self.next += 1;
        self.by_namespace.insert(key.namespace(), id);
        self.ids.insert(key.clone(), id);
        self.by_id.insert(id, Group { key, counts, used: self.clock });
    }

    fn forget(&mut self, id: usize) {
        if let Some(group) = self.by_id.remove(&id) {
            self.ids.remove(&group.key);
            self.by_namespace.remove(group.key.namespace(), id);
        }
    }

    /// A pod of a namespace came or went; `matches` tells which groups count it.
    pub(crate) fn change(&mut self, namespace: &str, slot: Slot, add: bool, matches: impl Fn(&GroupKey) -> bool) {
        for id in self.by_namespace.candidates(namespace) {
            if let Some(group) = self.by_id.get_mut(&id)
                && matches(&group.key)
            {
                change(&mut group.counts, slot, add);
            }
        }
    }

    /// Forgets what depends on the labels of namespaces, because those have changed.
    pub(crate) fn namespaces_changed(&mut self) {
        let stale = self.by_id.iter().filter(|(_, group)| group.key.depends_on_namespaces());
        let stale: Vec<usize> = stale.map(|(id, _)| *id).collect();
        for id in stale {
            self.forget(id);
        }
    }
}

/// A term that pods have, with the weight that it has for others.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) scope: Arc<TermScope>,
    pub(crate) key: Arc<str>,
    pub(crate) weight: i32,
    /// How many pods with the term are on which node.
    pub(crate) counts: ByNode,
}

/// The terms that pods on nodes have.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    ids: HashMap<(Arc<TermScope>, Arc<str>, i32), usize>,
    held: HashMap<usize, Held>,
    by_namespace: ByNamespace,
    next: usize,
}

impl Terms {
    /// A pod with a term came or went.
    pub(crate) fn change(&mut self, term: &Term, weight: i32, slot: Slot, add: bool) {
        let key = (Arc::clone(&term.scope), Arc::clone(&term.key), weight);
        let id = match self.ids.get(&key) {
            Some(id) => *id,
            None if !add => return,
            None => {
                let id = self.next;
                self.next += 1;
                self.by_namespace.insert(term.scope.only_namespace(), id);
                let (scope, name) = (Arc::clone(&key.0), Arc::clone(&key.1));
                self.ids.insert(key.clone(), id);
                self.held.insert(id, Held { scope, key: name, weight, counts: ByNode::default() });
                id
            }
        };
        let Some(held) = self.held.get_mut(&id) else { return };
        change(&mut held.counts, slot, add);
        if held.counts.is_empty() {
            self.held.remove(&id);
            self.ids.remove(&key);
            self.by_namespace.remove(term.scope.only_namespace(), id);
        }
    }

    /// The labels of nodes that terms are about.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.held.values().map(|held| &held.key)
    }

    /// The terms that can mean a pod of a namespace.
    pub(crate) fn candidates(&self, namespace: &str) -> impl Iterator<Item = &Held> {
        self.by_namespace.candidates(namespace).map(|id| &self.held[&id])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Selector;

    fn key(namespace: &str) -> GroupKey {
        let scope = TermScope::within(namespace, Selector::new(None));
        GroupKey { scopes: vec![Arc::new(scope)], only_staying: false }
    }

    #[test]
    fn the_oldest_group_is_forgotten_first() {
        let mut groups = Groups::default();
        for number in 0..MOST_GROUPS {
            groups.ensure(key(&number.to_string()), |_, _| ByNode::default());
        }
        groups.ensure(key("0"), |_, _| unreachable!());
        groups.ensure(key("new"), |_, _| ByNode::from_iter([(3, 1)]));
        assert!(groups.get(&key("0")).is_some());
        assert!(groups.get(&key("1")).is_none());
        assert_eq!(groups.by_id.len(), MOST_GROUPS);
        groups.change("new", 3, true, |_| true);
        assert_eq!(groups.get(&key("new")).unwrap()[&3], 2);
    }

    #[test]
    fn terms_that_no_pod_has_are_forgotten() {
        let mut terms = Terms::default();
        let scope = Arc::new(TermScope::within("ns", Selector::new(None)));
        let term = Term { scope, key: "zone".into() };
        terms.change(&term, 1, 7, true);
        terms.change(&term, 1, 7, true);
        assert_eq!(terms.candidates("ns").map(|held| held.counts[&7]).collect::<Vec<_>>(), [2]);
        assert_eq!(terms.candidates("other").count(), 0);
        terms.change(&term, 1, 7, false);
        terms.change(&term, 1, 7, false);
        assert_eq!(terms.candidates("ns").count(), 0);
        assert!(terms.ids.is_empty() && terms.by_namespace.one.is_empty());
    }
}
