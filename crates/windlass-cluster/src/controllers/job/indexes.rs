//! Sets of completion indexes, and their notation: `0,3-5,7`.
//!
//! A set is kept as intervals: a job may have two billion indexes, and name them all in a few letters.

use std::fmt;
use std::iter::once;

/// A set of indexes: intervals with their first and last index, in order, with a gap between any two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads the notation, leaving out what is not below `completions` or cannot be read.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let interval = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<i32>().ok()?, last.parse::<i32>().ok()?);
            Some((first.max(0), last.min(completions - 1)))
        };
        Self::of(text.split(',').filter_map(interval).filter(|(first, last)| first <= last).collect())
    }

    /// A set of intervals in any order.
    fn of(mut intervals: Vec<(i32, i32)>) -> Self {
        intervals.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().copied().map(length).sum()
    }

    pub(super) fn extend(&mut self, indexes: impl IntoIterator<Item = i32>) {
        self.join(indexes.into_iter().map(|index| (index, index)));
    }

    /// Adds all indexes of another set.
    pub(super) fn add(&mut self, other: &Self) {
        self.join(other.0.iter().copied());
    }

    fn join(&mut self, intervals: impl Iterator<Item = (i32, i32)>) {
        let mut all = std::mem::take(&mut self.0);
        all.extend(intervals);
        *self = Self::of(all);
    }

    /// How many indexes both have.
    pub(super) fn common(&self, other: &Self) -> usize {
        let (mut own, mut others) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut count = 0;
        while let (Some(a), Some(b)) = (own.peek(), others.peek()) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                count += length((first, last));
            }
            if a.1 < b.1 {
                own.next();
            } else {
                others.next();
            }
        }
        count
    }

    /// The indexes below `completions` that are not in the set, in order.
    pub(super) fn absent(&self, completions: i32) -> impl Iterator<Item = i32> {
        let starts = once(0).chain(self.0.iter().map(|(_, last)| last.saturating_add(1)));
        let ends = self.0.iter().map(|(first, _)| *first).chain(once(completions));
        starts.zip(ends).flat_map(move |(start, end)| start..end.min(completions))
    }
}

fn length((first, last): (i32, i32)) -> usize {
    usize::try_from(i64::from(last) - i64::from(first) + 1).unwrap_or(0)
}

impl fmt::Display for Indexes {
    /// As upstream writes it: two neighbours with a comma, more with a hyphen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (first, last) in &self.0 {
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
