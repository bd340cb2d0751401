//! The order in which ready keys come out: by rank, whenever they came in.
//!
//! Almost always they come in by rank already: one after the other, of one priority. Those line up in
//! a lane of small blocks that are let go as they empty, so that the thousands of keys of a first
//! list never make up a piece of memory that an allocator then keeps. Only what overtakes goes into
//! a heap.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// The moment a key became ready, moved ahead by its priority, in nanoseconds; then the order they
/// came in. Never the same for two.
pub(super) type Rank = (i64, u64);

/// Keys of one block.
const BLOCK: usize = 512;
/// Keys for which room is kept.
const KEPT: usize = 256;

#[derive(Debug)]
struct Ranked<T> {
    rank: Rank,
    key: T,
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl<T> Eq for Ranked<T> {}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ranked<T> {
    /// Reversed: the heap's greatest is the one that comes first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank.cmp(&self.rank)
    }
}

/// Keys by rank.
#[derive(Debug)]
pub(super) struct Order<T> {
    /// By rank, in blocks of which none is empty, unless it is the only one.
    lane: VecDeque<VecDeque<Ranked<T>>>,
    /// What came after something of a higher rank.
    overtaking: BinaryHeap<Ranked<T>>,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { lane: VecDeque::new(), overtaking: BinaryHeap::new() }
    }
}

impl<T> Order<T> {
    pub(super) fn push(&mut self, rank: Rank, key: T) {
        let ranked = Ranked { rank, key };
        match self.lane.back_mut() {
            Some(block) if block.back().is_some_and(|last| last.rank > rank) => self.overtaking.push(ranked),
            Some(block) if block.len() < BLOCK => block.push_back(ranked),
            _ => self.lane.push_back(VecDeque::from([ranked])),
        }
    }

    /// The key of the lowest rank.
    pub(super) fn pop(&mut self) -> Option<(Rank, T)> {
        let first = self.lane.front().and_then(VecDeque::front).map(|ranked| ranked.rank);
        let overtakes = match (first, self.overtaking.peek()) {
            (Some(first), Some(top)) => top.rank < first,
            (None, top) => top.is_some(),
            (_, None) => false,
        };
        let Ranked { rank, key } = if overtakes { self.overtaking.pop() } else { self.pop_lane() }?;
        Some((rank, key))
    }

    fn pop_lane(&mut self) -> Option<Ranked<T>> {
        let block = self.lane.front_mut()?;
        let ranked = block.pop_front();
        if block.is_empty() && self.lane.len() > 1 {
            self.lane.pop_front();
        }
        ranked
    }

    /// Forgets everything, and gives back the memory except for a little.
    pub(super) fn clear(&mut self) {
        self.lane.truncate(1);
        for block in &mut self.lane {
            block.clear();
            block.shrink_to(KEPT);
        }
        self.overtaking.clear();
        self.overtaking.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_goes_in_comes_out_by_rank(ranks in proptest::collection::vec((0i64..20, any::<bool>()), 0..2000)) {
            let mut order = Order::default();
            let (mut expected, mut sequence) = (std::collections::BTreeSet::new(), 0);
            for (rank, pop) in ranks {
                if pop {
                    prop_assert_eq!(order.pop().map(|(rank, _)| rank), expected.pop_first());
                }
                sequence += 1;
                order.push((rank, sequence), sequence);
                expected.insert((rank, sequence));
            }
            while let Some(first) = expected.pop_first() {
                prop_assert_eq!(order.pop(), Some((first, first.1)));
            }
            prop_assert!(order.pop().is_none() && order.lane.len() <= 1);
        }
    }
}
