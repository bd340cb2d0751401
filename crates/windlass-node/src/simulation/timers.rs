//! Everything that is going to happen, in order of time. What was given up stays until it is due, or until there is too
//! much of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tokio::time::Instant;

/// How many entries there are before what was given up is looked for.
const COMPACT_FROM: usize = 4096;

/// See the [module documentation](self).
#[derive(Debug)]
pub(super) struct Timers<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    sequence: u64,
    /// From how many entries on compacting is worth it.
    compact_at: usize,
}

#[derive(Debug)]
struct Entry<T> {
    at: Instant,
    sequence: u64,
    value: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0, compact_at: COMPACT_FROM }
    }
}

impl<T> Timers<T> {
    /// Adds something. True if it is the next.
    pub(super) fn add(&mut self, at: Instant, value: T) -> bool {
        self.sequence += 1;
        let is_next = self.next().is_none_or(|next| at < next);
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, value }));
        is_next
    }

    /// When the next is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// The next.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.heap.pop().map(|Reverse(entry)| entry.value)
    }

    /// Forgets what was given up, when there are twice as many entries as after the last time.
    pub(super) fn compact(&mut self, is_wanted: impl Fn(&T) -> bool) {
        if self.heap.len() >= self.compact_at {
            self.heap.retain(|Reverse(entry)| is_wanted(&entry.value));
            self.compact_at = (2 * self.heap.len()).max(COMPACT_FROM);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn entries_come_out_in_order_of_time() {
        let now = Instant::now();
        let mut timers = Timers::default();
        assert!(timers.add(now + Duration::from_secs(2), 'b'));
        assert!(timers.add(now + Duration::from_secs(1), 'a'));
        assert!(!timers.add(now + Duration::from_secs(2), 'c'));
        let order: Vec<char> = std::iter::from_fn(|| timers.pop()).collect();
        assert_eq!(order, ['a', 'b', 'c']);
    }

    #[test]
    fn entries_that_were_given_up_do_not_pile_up() {
        let now = Instant::now();
        let mut timers = Timers::default();
        for value in 0..1_000_000_u32 {
            timers.add(now, value);
            timers.compact(|other| other + 100 > value);
        }
        assert!(timers.heap.len() <= COMPACT_FROM, "{}", timers.heap.len());
    }
}
