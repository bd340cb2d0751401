//! The ordered map from keys to their versions, which can also count.
//!
//! Two levels: a vector of leaves in key order, each a short sorted vector of slots with the number
//! of live keys and a mark of each key beside it. A lookup is a binary search for the leaf and a look
//! through its marks: these lie together, while each key lies somewhere else, and with many keys it is
//! memory that takes the time. A count adds up the leaves between two ends and looks into at most two of them, so that a paginated list can say how much remains
//! without walking it. A standard B-tree map cannot do that.
//!
//! ```text
//!  leaves   [ low "", live 3 ]      [ low "m", live 2 ]
//!                │                        │
//!  slots    a → v9 v4               m → v7
//!           c → v5                  q → (removed at v8) v6
//!           k → v3                  z → v2
//! ```
//!
//! What always holds: every leaf but a lone one has a slot; `low` of a leaf is at most its first key
//! and above every key of the leaf before; a slot whose newest version is a removal is kept only
//! while an older version can still be read.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};

use bytes::Bytes;

use crate::{Entry, Range, Revision};

/// A leaf is split when it grows beyond this, and joined with its neighbour when both are sparse.
const LEAF_SLOTS: usize = 128;

/// What a key held from `modified` until the next version.
pub(crate) struct Version {
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
    /// `None`: the key was removed.
    pub(crate) value: Option<Bytes>,
}

/// The retained versions of one key.
pub(crate) struct Chain {
    newest: Version,
    /// Oldest first; empty for most keys, and then it takes no allocation.
    older: VecDeque<Version>,
}

impl Chain {
    fn new(version: Version) -> Self {
        Self { newest: version, older: VecDeque::new() }
    }

    fn is_live(&self) -> bool {
        self.newest.value.is_some()
    }

    fn at(&self, revision: Revision) -> Option<&Version> {
        if self.newest.modified <= revision {
            return Some(&self.newest);
        }
        let newer = self.older.partition_point(|version| version.modified <= revision);
        self.older.get(newer.checked_sub(1)?)
    }

    /// Drops what cannot be read at `revision` or later. False when nothing is left worth keeping.
    fn forget(&mut self, revision: Revision) -> bool {
        while !self.older.is_empty() {
            let successor = self.older.get(1).unwrap_or(&self.newest).modified;
            if successor > revision {
                break;
            }
            self.older.pop_front();
        }
        if self.older.is_empty() && self.older.capacity() > 0 {
            self.older = VecDeque::new();
        }
        self.is_live() || !self.older.is_empty() || self.newest.modified > revision
    }
}

struct Slot {
    key: Bytes,
    chain: Chain,
}

impl Slot {
    fn entry(&self, version: &Version) -> Option<Entry> {
        let value = version.value.clone()?;
        Some(Entry { key: self.key.clone(), value, created: version.created, modified: version.modified })
    }
}

#[derive(Default)]
struct Leaf {
    low: Bytes,
    live: usize,
    /// The marks of the slots, in their order.
    marks: Vec<u32>,
    slots: Vec<Slot>,
}

/// A short number that different keys seldom share.
fn mark(key: &[u8]) -> u32 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish() as u32
}

impl Leaf {
    /// Where a key is.
    fn position(&self, key: &[u8], mark: u32) -> Option<usize> {
        let marked = self.marks.iter().enumerate().filter(|(_, other)| **other == mark);
        marked.map(|(index, _)| index).find(|index| self.slots[*index].key == key)
    }

    /// Where a key that is not there would be.
    fn place(&self, key: &[u8]) -> usize {
        // Keys often arrive in order, above all while a snapshot is being loaded.
        match self.slots.last() {
            Some(last) if last.key < key => self.slots.len(),
            _ => self.slots.partition_point(|slot| slot.key < key),
        }
    }

    fn live_before(&self, key: &[u8]) -> usize {
        let before = self.slots.partition_point(|slot| slot.key < key);
        self.slots[..before].iter().filter(|slot| slot.chain.is_live()).count()
    }
}

/// See the module's introduction.
pub(crate) struct KeyMap {
    leaves: Vec<Leaf>,
}

impl KeyMap {
    pub(crate) fn new() -> Self {
        Self { leaves: vec![Leaf::default()] }
    }

    /// The newest entry of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry> {
        let leaf = &self.leaves[self.leaf_of(key)];
        let slot = &leaf.slots[leaf.position(key, mark(key))?];
        slot.entry(&slot.chain.newest)
    }

    /// Makes `version` the newest of `key`; the one it replaces stays for readers of the past.
    pub(crate) fn push(&mut self, key: &Bytes, version: Version) {
        let index = self.leaf_of(key);
        let leaf = &mut self.leaves[index];
        leaf.live += usize::from(version.value.is_some());
        let mark = mark(key);
        if let Some(found) = leaf.position(key, mark) {
            let chain = &mut leaf.slots[found].chain;
            leaf.live -= usize::from(chain.is_live());
            let replaced = std::mem::replace(&mut chain.newest, version);
            chain.older.push_back(replaced);
        } else {
            let place = leaf.place(key);
            leaf.marks.insert(place, mark);
            leaf.slots.insert(place, Slot { key: key.clone(), chain: Chain::new(version) });
            if leaf.slots.len() > LEAF_SLOTS {
                self.split(index, place);
            }
        }
    }

    /// Drops the versions of `key` that cannot be read at `revision` or later.
    pub(crate) fn forget(&mut self, key: &[u8], revision: Revision) {
        let index = self.leaf_of(key);
        let leaf = &mut self.leaves[index];
        let Some(found) = leaf.position(key, mark(key)) else { return };
        if !leaf.slots[found].chain.forget(revision) {
            // What is dropped here was not live, so the leaf's count stands.
            leaf.marks.remove(found);
            leaf.slots.remove(found);
            self.join(index);
        }
    }

    /// How many live keys lie in the range.
    pub(crate) fn count(&self, range: &Range) -> usize {
        let from = self.leaf_of(&range.start);
        let before = self.leaves[from].live_before(&range.start);
        let upto = match &range.end {
            Some(end) if *end <= range.start => return 0,
            Some(end) => {
                let to = self.leaf_of(end);
                let whole: usize = self.leaves[from..to].iter().map(|leaf| leaf.live).sum();
                whole + self.leaves[to].live_before(end)
            }
            None => self.leaves[from..].iter().map(|leaf| leaf.live).sum(),
        };
        upto - before
    }

    /// The live entries of the range in key order, as of `at`.
    pub(crate) fn range<'a>(&'a self, range: &'a Range, at: Revision) -> impl Iterator<Item = Entry> + 'a {
        let from = self.leaf_of(&range.start);
        let skip = self.leaves[from].slots.partition_point(|slot| slot.key < range.start);
        self.leaves[from..]
            .iter()
            .flat_map(|leaf| &leaf.slots)
            .skip(skip)
            .take_while(|slot| range.end.as_ref().is_none_or(|end| slot.key < *end))
            .filter_map(move |slot| slot.entry(slot.chain.at(at)?))
    }

    fn leaf_of(&self, key: &[u8]) -> usize {
        self.leaves.partition_point(|leaf| leaf.low <= key).saturating_sub(1)
    }

    /// Splits a leaf that has just grown at `place`. Growth at the very end keeps the left half full,
    /// because keys that arrive in order will not come back to it.
    fn split(&mut self, index: usize, place: usize) {
        let leaf = &mut self.leaves[index];
        let middle = if place + 1 == leaf.slots.len() { place } else { leaf.slots.len() / 2 };
        let mut slots = Vec::with_capacity(LEAF_SLOTS + 1);
        slots.extend(leaf.slots.drain(middle..));
        let marks = leaf.marks.split_off(middle);
        let live = slots.iter().filter(|slot| slot.chain.is_live()).count();
        leaf.live -= live;
        let low = slots[0].key.clone();
        self.leaves.insert(index + 1, Leaf { low, live, marks, slots });
    }

    /// Joins a leaf that has just shrunk with the one after it, when together they are half full.
    fn join(&mut self, index: usize) {
        let left = index.min(self.leaves.len().saturating_sub(2));
        let Some(right) = self.leaves.get(left + 1) else {
            return;
        };
        let room = self.leaves[left].slots.len() + right.slots.len() <= LEAF_SLOTS / 2;
        if room {
            let right = self.leaves.remove(left + 1);
            let left = &mut self.leaves[left];
            left.marks.extend(right.marks);
            left.slots.extend(right.slots);
            left.live += right.live;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(revision: Revision) -> Version {
        Version { created: revision, modified: revision, value: Some(Bytes::from_static(b"v")) }
    }

    fn removed(revision: Revision) -> Version {
        Version { created: revision, modified: revision, value: None }
    }

    fn key(n: usize) -> Bytes {
        format!("key-{n:06}").into()
    }

    fn range(from: usize, to: usize) -> Range {
        Range { start: key(from), end: Some(key(to)) }
    }

    #[test]
    fn counts_agree_with_walking_while_leaves_split_and_join() {
        const KEYS: usize = 5_000;
        let mut map = KeyMap::new();
        // 1,237 and 5,000 have no common factor, so this is every key once, out of order.
        for n in 0..KEYS {
            map.push(&key(n * 1_237 % KEYS), put(n as Revision + 2));
        }
        assert!(map.leaves.len() > KEYS / LEAF_SLOTS);
        for n in (0..KEYS).filter(|n| n % 3 != 0) {
            map.push(&key(n), removed(10_000));
        }
        for (from, to) in [(0, KEYS), (0, 1), (17, 17), (99, 4_321), (1_000, 1_129), (4_999, 5_000)] {
            let range = range(from, to);
            assert_eq!(map.count(&range), map.range(&range, Revision::MAX).count(), "{from}..{to}");
            assert_eq!(map.count(&range), (from..to).filter(|n| n % 3 == 0).count(), "{from}..{to}");
        }
        for n in (0..KEYS).rev() {
            map.forget(&key(n), 10_000);
        }
        for n in 0..KEYS {
            assert_eq!(map.get(&key(n)).is_some(), n % 3 == 0, "{n}");
        }
        let all = Range::prefix("");
        assert_eq!(map.count(&all), KEYS.div_ceil(3));
        assert_eq!(map.leaves.iter().map(|leaf| leaf.slots.len()).sum::<usize>(), KEYS.div_ceil(3));
        for n in 0..KEYS {
            map.push(&key(n), removed(20_000));
            map.forget(&key(n), 20_000);
        }
        assert_eq!(map.count(&all), 0);
        assert_eq!(map.leaves.len(), 1);
        assert!(map.leaves[0].slots.is_empty());
    }

    #[test]
    fn keys_in_order_fill_their_leaves() {
        let mut map = KeyMap::new();
        for n in 0..LEAF_SLOTS * 10 {
            map.push(&key(n), put(2));
        }
        assert_eq!(map.leaves.len(), 10);
    }

    #[test]
    fn an_inverted_range_is_empty() {
        let mut map = KeyMap::new();
        map.push(&key(1), put(2));
        let inverted = Range { start: key(2), end: Some(key(1)) };
        assert_eq!(map.count(&inverted), 0);
        assert_eq!(map.range(&inverted, 9).count(), 0);
    }

    #[test]
    fn a_chain_forgets_from_its_old_end() {
        let mut chain = Chain::new(put(2));
        for revision in [4, 6] {
            let replaced = std::mem::replace(&mut chain.newest, put(revision));
            chain.older.push_back(replaced);
        }
        let seen = |chain: &Chain| {
            let at = |revision| chain.at(revision).map(|version| version.modified);
            [at(1), at(2), at(3), at(4), at(5), at(6), at(9)]
        };
        assert_eq!(seen(&chain), [None, Some(2), Some(2), Some(4), Some(4), Some(6), Some(6)]);
        assert!(chain.forget(3));
        assert_eq!(chain.older.len(), 2, "revision 3 still reads the version of revision 2");
        assert!(chain.forget(4));
        assert_eq!(seen(&chain), [None, None, None, Some(4), Some(4), Some(6), Some(6)]);
        assert!(chain.forget(6));
        assert!(chain.older.is_empty());
    }
}
