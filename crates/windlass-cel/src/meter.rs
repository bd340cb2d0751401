//! The work that the official cost leaves out, such as copying a long list or comparing deep values.
//!
//! It is counted in fuel, so that no expression runs long: whatever takes more than a fixed time for a unit of cost
//! must use fuel in proportion.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::value::{Error, Value};
use crate::pattern::{self, Machine};

/// How much uncharged work one evaluation may do.
const FUEL: u64 = 20_000_000;
/// So many bytes that are counted or compared are one unit of work.
const READ: usize = 512;
/// The work of putting an entry into a map.
const ENTRY: usize = 8;
/// So many bytes that are copied are one.
const WRITTEN: usize = 128;
/// So many bytes that are decoded are one.
const DECODED: usize = 16;
/// Matching a pattern for so many nanoseconds is one.
const MATCHED: u128 = 50;

/// How much uncharged work several evaluations may do together.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    work: u64,
    /// What compiling and matching patterns may take.
    matching: u64,
}

impl Allowance {
    /// What one evaluation may do that has nothing to do with others.
    pub const ONE: Self = Self { work: FUEL, matching: FUEL };
    /// What all rules about an object may do.
    pub const OBJECT: Self = Self { work: 4 * FUEL, matching: 20 * FUEL };

    /// How much of this is gone where `left` is left, patterns apart.
    #[cfg(test)]
    pub(super) fn worked(self, left: Self) -> u64 {
        self.work - left.work
    }
}

/// Work that is not charged, and patterns that were compiled on the way.
pub(super) struct Meter {
    /// What is left for this evaluation.
    fuel: u64,
    /// What is left for it and others.
    pub(super) allowance: Allowance,
    regexes: HashMap<Box<str>, Result<Arc<Machine>, String>>,
}

impl Meter {
    pub(super) fn new(allowance: Allowance) -> Self {
        Self { fuel: FUEL, allowance, regexes: HashMap::new() }
    }

    /// Reading texts, if only to count their characters.
    pub(super) fn read<'v, 'a: 'v>(&mut self, values: impl IntoIterator<Item = &'v Value<'a>>) -> Result<(), Error> {
        let lengths = values.into_iter().map(|value| match value {
            Value::String(text) => text.len() / READ,
            _ => 0,
        });
        self.work(lengths.sum())
    }

    /// Getting a value out of an object: bytes are decoded each time.
    pub(super) fn decoded(&mut self, value: &Value<'_>) -> Result<(), Error> {
        match value {
            Value::Bytes(bytes) => self.work(bytes.len() / DECODED),
            _ => Ok(()),
        }
    }

    /// Putting entries into a map, which takes longer than items into a list.
    pub(super) fn inserted(&mut self, count: usize) -> Result<(), Error> {
        self.work(count.saturating_mul(ENTRY))
    }

    /// Failing: what the message is about may be long.
    pub(super) fn failed(&mut self, error: &Error) -> Result<(), Error> {
        match error {
            Error::Failed(message) => self.work(message.len() / WRITTEN),
            Error::Exhausted => Err(Error::Exhausted),
        }
    }

    /// Uses up fuel.
    pub(super) fn work(&mut self, amount: usize) -> Result<(), Error> {
        spend(&mut self.fuel, amount)?;
        spend(&mut self.allowance.work, amount)
    }

    /// Matching a pattern for so long. `false` if that is too much.
    pub(super) fn matched(&mut self, time: Duration) -> bool {
        self.matching(usize::try_from(time.as_nanos() / MATCHED).unwrap_or(usize::MAX)).is_ok()
    }

    /// Uses up fuel for compiling or matching a pattern.
    fn matching(&mut self, amount: usize) -> Result<(), Error> {
        spend(&mut self.fuel, amount)?;
        spend(&mut self.allowance.matching, amount)
    }

    /// A pattern that an expression computed.
    pub(super) fn regex(&mut self, source: &str) -> Result<Result<Arc<Machine>, String>, Error> {
        if let Some(known) = self.regexes.get(source) {
            return Ok(known.clone());
        }
        self.matching(1_000 + source.len() * 100)?;
        let compiled = pattern::compile(source).map(Arc::new);
        self.regexes.insert(source.into(), compiled.clone());
        Ok(compiled)
    }
}

fn spend(left: &mut u64, amount: usize) -> Result<(), Error> {
    let rest = left.checked_sub(amount as u64);
    *left = rest.unwrap_or(0);
    rest.map(|_| ()).ok_or(Error::Exhausted)
}
