//! Sets of completion indexes, and their notation: `0,3-5,7`.

use std::collections::BTreeSet;
use std::fmt;

/// A set of indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(BTreeSet<i32>);

impl Indexes {
    /// Reads the notation, leaving out what is not below `completions` or cannot be read.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut indexes = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
                indexes.extend(first.max(0)..=last.min(completions - 1));
            }
        }
        Self(indexes)
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn extend(&mut self, indexes: impl IntoIterator<Item = i32>) {
        self.0.extend(indexes);
    }

    /// How many indexes both have.
    pub(super) fn common(&self, other: &Self) -> usize {
        self.0.intersection(&other.0).count()
    }

    fn intervals(&self) -> Vec<(i32, i32)> {
        let mut intervals: Vec<(i32, i32)> = Vec::new();
        for &index in &self.0 {
            match intervals.last_mut() {
                Some((_, last)) if *last + 1 == index => *last = index,
                _ => intervals.push((index, index)),
            }
        }
        intervals
    }
}

impl fmt::Display for Indexes {
    /// As upstream writes it: two neighbours with a comma, more with a hyphen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (first, last) in self.intervals() {
            write!(f, "{separator}{first}")?;
            match last - first {
                0 => {}
                1 => write!(f, ",{last}")?,
                _ => write!(f, "-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}
