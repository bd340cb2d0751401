//! The state of a store and the way it came to be: what both engines keep in memory.
//!
//! ```text
//!            compacted                                revision
//!  ──────────────┼────────────────────────────────────────┤
//!    dropped     │ events, oldest first, and the versions  │
//!                │ they replaced: readable at any revision │
//! ```
//!
//! A transaction goes through in two steps, so that an engine can put a disk between them:
//! [`plan`] checks it against the state and gives the [`Event`]s it comes to, and
//! [`History::apply`] makes those events visible.
//!
//! What always holds:
//! - every event in the log is above `compacted`, and no revision between `compacted` and the newest
//!   is missing;
//! - the log shares its bytes with the state, so history costs what it alone keeps alive: the value
//!   an event replaced, and the event itself;
//! - history is dropped a whole transaction at a time, and never the newest one, so that a reader
//!   who keeps up sees every event whatever the budget.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::keymap::{KeyMap, Version};
use crate::{Entry, Event, Expect, Range, Revision, Snapshot, StoreError, Txn, Value, Write};

/// The revision of a store that has never been written to.
pub(crate) const FIRST: Revision = 1;

/// The most that the keys and values of one transaction may take together.
pub(crate) const MAX_TXN_BYTES: usize = 64 << 20;

/// What an event costs beside the value it replaced: itself, its place in the log, and the version
/// kept for readers of the past.
const EVENT_COST: usize = size_of::<Event>() + size_of::<Version>() + 48;

/// How much history a store keeps in memory; beyond it, the oldest is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryBudget {
    /// What replaced values and the event log may take, in bytes.
    pub bytes: usize,
    /// How many events the log may hold.
    pub events: usize,
}

impl Default for HistoryBudget {
    fn default() -> Self {
        Self { bytes: 48 << 20, events: 100_000 }
    }
}

/// What a transaction comes to.
pub(crate) enum Plan {
    /// The events to apply, none if nothing changes, and the entries to answer with.
    Commit { events: Vec<Event>, entries: Vec<Option<Entry>> },
    /// The first expectation that does not hold.
    Conflict { index: usize, current: Option<Entry> },
}

/// Checks a transaction that would be given `revision` against what keys hold now.
pub(crate) fn plan(txn: Txn, revision: Revision, current: impl Fn(&[u8]) -> Option<Entry>) -> Result<Plan, StoreError> {
    check_shape(&txn)?;
    let mut previous = Vec::with_capacity(txn.len());
    for (index, write) in txn.iter().enumerate() {
        let (Write::Put { key, expect, .. } | Write::Delete { key, expect, .. }) = write;
        let current = current(key);
        let holds = match expect {
            Expect::Absent => current.is_none(),
            Expect::At(revision) => current.as_ref().is_some_and(|entry| entry.modified == *revision),
            Expect::Present => current.is_some(),
            Expect::Any => true,
        };
        if !holds {
            return Ok(Plan::Conflict { index, current });
        }
        previous.push(current);
    }
    let mut events = Vec::with_capacity(txn.len());
    let mut entries = Vec::with_capacity(txn.len());
    for (write, previous) in txn.into_iter().zip(previous) {
        let (event, entry) = match write {
            Write::Put { key, value, .. } => {
                let event = put_event(key, value.resolve(revision), revision, previous);
                let entry = event.entry.clone();
                (Some(event), Some(entry))
            }
            Write::Delete { last, .. } => {
                let last = last.map(|value| value.resolve(revision));
                (previous.map(|previous| delete_event(last, revision, previous)), None)
            }
        };
        events.extend(event);
        entries.push(entry);
    }
    Ok(Plan::Commit { events, entries })
}

/// The event of `key` being given `value`.
pub(crate) fn put_event(key: Bytes, value: Bytes, revision: Revision, previous: Option<Entry>) -> Event {
    // The key's own first buffer is shared by all its versions; the writer's copy can go.
    let key = previous.as_ref().map_or(key, |entry| entry.key.clone());
    let created = previous.as_ref().map_or(revision, |entry| entry.created);
    let entry = Entry { key: key.clone(), value, created, modified: revision };
    Event { revision, key, entry, previous, deleted: false }
}

/// The event of the key of `previous` being removed.
pub(crate) fn delete_event(last: Option<Bytes>, revision: Revision, previous: Entry) -> Event {
    let key = previous.key.clone();
    let value = last.unwrap_or_else(|| previous.value.clone());
    let entry = Entry { key: key.clone(), value, created: previous.created, modified: revision };
    Event { revision, key, entry, previous: Some(previous), deleted: true }
}

fn check_shape(txn: &Txn) -> Result<(), StoreError> {
    let key_of = |write: &Write| match write {
        Write::Put { key, .. } | Write::Delete { key, .. } => key.clone(),
    };
    if txn.len() > 1 {
        let mut seen = HashSet::with_capacity(txn.len());
        if let Some(index) = txn.iter().position(|write| !seen.insert(key_of(write))) {
            return Err(StoreError::RepeatedKey { index });
        }
    }
    let size_of_value = |value: &Value| value.bytes.len() + if value.splice_at.is_some() { 20 } else { 0 };
    let bytes = txn
        .iter()
        .map(|write| match write {
            Write::Put { key, value, .. } => key.len() + size_of_value(value),
            Write::Delete { key, last, .. } => key.len() + last.as_ref().map_or(0, size_of_value),
        })
        .sum();
    if bytes > MAX_TXN_BYTES {
        return Err(StoreError::TooLarge { bytes, limit: MAX_TXN_BYTES });
    }
    Ok(())
}

/// See the module's introduction.
pub(crate) struct History {
    map: KeyMap,
    log: VecDeque<Arc<Event>>,
    revision: Revision,
    compacted: Revision,
    budget: HistoryBudget,
    /// What history costs now, to be held against the budget.
    bytes: usize,
    /// What the keys and values of the newest state take.
    live_bytes: u64,
    live_entries: usize,
    /// A revision that must stay readable, though perhaps no longer for users.
    pin: Option<Revision>,
}

impl History {
    pub(crate) fn new(budget: HistoryBudget) -> Self {
        Self::starting_at(FIRST, budget)
    }

    /// An empty history whose past up to `revision` is unknown; [`load`](Self::load) fills it.
    pub(crate) fn starting_at(revision: Revision, budget: HistoryBudget) -> Self {
        Self {
            map: KeyMap::new(),
            log: VecDeque::new(),
            revision,
            compacted: revision,
            budget,
            bytes: 0,
            live_bytes: 0,
            live_entries: 0,
            pin: None,
        }
    }

    /// Adds an entry of the state this history starts with.
    pub(crate) fn load(&mut self, entry: Entry) {
        self.live_bytes += entry_bytes(&entry);
        self.live_entries += 1;
        let version = Version { created: entry.created, modified: entry.modified, value: Some(entry.value) };
        self.map.push(&entry.key, version);
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn compacted(&self) -> Revision {
        self.compacted
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(crate) fn live_entries(&self) -> usize {
        self.live_entries
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry> {
        self.map.get(key)
    }

    pub(crate) fn count(&self, range: &Range) -> usize {
        self.map.count(range)
    }

    pub(crate) fn range(&self, range: &Range, at: Option<Revision>, limit: usize) -> Result<Snapshot, StoreError> {
        let at = at.unwrap_or(self.revision);
        if at < self.compacted {
            return Err(StoreError::Compacted { asked: at, oldest: self.compacted });
        }
        if at > self.revision {
            return Err(StoreError::Future { asked: at, newest: self.revision });
        }
        Ok(self.read(range, at, limit))
    }

    /// Reads a range at a revision that is known to be retained.
    fn read(&self, range: &Range, at: Revision, limit: usize) -> Snapshot {
        let newest = at == self.revision;
        let limit = if limit == 0 { usize::MAX } else { limit };
        let total = newest.then(|| self.map.count(range));
        let mut entries = Vec::with_capacity(total.unwrap_or(0).min(limit));
        let mut rest = self.map.range(range, at);
        entries.extend(rest.by_ref().take(limit));
        let remaining = match total {
            Some(total) => total - entries.len(),
            None => rest.count(),
        };
        Snapshot { revision: at, entries, remaining }
    }

    pub(crate) fn events(&self, after: Revision, limit: usize) -> Result<Vec<Arc<Event>>, StoreError> {
        if after < self.compacted {
            return Err(StoreError::Compacted { asked: after, oldest: self.compacted });
        }
        let from = self.log.partition_point(|event| event.revision <= after);
        let mut to = self.log.len();
        if limit > 0 && from + limit < to {
            to = from + limit;
            let splits = |to: usize| self.log[to - 1].revision == self.log[to].revision;
            while to > from && splits(to) {
                to -= 1;
            }
            if to == from {
                // The first transaction alone exceeds the limit: it is still returned whole.
                let first = self.log[from].revision;
                to = self.log.partition_point(|event| event.revision <= first);
            }
        }
        Ok(self.log.range(from..to).cloned().collect())
    }

    /// Makes the events of one transaction visible. The caller gives them all at once.
    pub(crate) fn apply(&mut self, events: impl IntoIterator<Item = Arc<Event>>) {
        for event in events {
            debug_assert!(event.revision == self.revision || event.revision == self.revision + 1);
            self.revision = event.revision;
            self.bytes += history_bytes(&event);
            if let Some(previous) = &event.previous {
                self.live_bytes -= entry_bytes(previous);
                self.live_entries -= 1;
            }
            if !event.deleted {
                self.live_bytes += entry_bytes(&event.entry);
                self.live_entries += 1;
            }
            let value = (!event.deleted).then(|| event.entry.value.clone());
            let version = Version { created: event.entry.created, modified: event.revision, value };
            self.map.push(&event.key, version);
            self.log.push_back(event);
        }
    }

    /// Declares everything below `revision` gone; [`trim`](Self::trim) then frees it.
    pub(crate) fn compact(&mut self, revision: Revision) -> Result<(), StoreError> {
        if revision > self.revision {
            return Err(StoreError::Future { asked: revision, newest: self.revision });
        }
        self.compacted = self.compacted.max(revision);
        Ok(())
    }

    /// Drops what is compacted or over budget, a bounded piece at a time: the result is for dropping
    /// outside the lock, and an empty result means that there is no more to do.
    pub(crate) fn trim(&mut self) -> Vec<Arc<Event>> {
        const PIECE: usize = 1_024;
        let mut dropped = Vec::new();
        while dropped.len() < PIECE
            && let Some(revision) = self.oldest_to_drop()
        {
            while self.log.front().is_some_and(|event| event.revision == revision) {
                let Some(event) = self.log.pop_front() else {
                    break;
                };
                self.bytes -= history_bytes(&event);
                self.map.forget(&event.key, revision);
                dropped.push(event);
            }
            self.compacted = self.compacted.max(revision);
        }
        dropped
    }

    fn oldest_to_drop(&self) -> Option<Revision> {
        let oldest = self.log.front()?.revision;
        let pinned = self.pin.is_some_and(|pin| oldest > pin);
        let wanted = oldest <= self.compacted || (self.is_over(1) && oldest < self.revision);
        (wanted && !pinned).then_some(oldest)
    }

    /// Whether history takes more than `times` its budget.
    pub(crate) fn is_over(&self, times: usize) -> bool {
        self.bytes > self.budget.bytes.saturating_mul(times)
            || self.log.len() > self.budget.events.saturating_mul(times)
    }
}

/// What is stored may be secret, so it is left out.
impl fmt::Debug for History {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("History")
            .field("revision", &self.revision)
            .field("compacted", &self.compacted)
            .field("entries", &self.live_entries)
            .field("events", &self.log.len())
            .finish_non_exhaustive()
    }
}

/// Reading one revision in pieces, while writers go on.
impl History {
    /// Keeps the oldest readable revision from being dropped until [`unpin`](Self::unpin).
    pub(crate) fn pin(&mut self) -> Revision {
        debug_assert!(self.pin.is_none(), "one reader pins at a time");
        self.pin = Some(self.compacted);
        self.compacted
    }

    pub(crate) fn unpin(&mut self) {
        self.pin = None;
    }

    /// The next entries at the pinned revision, from `start` on.
    pub(crate) fn pinned(&self, start: Bytes, limit: usize) -> Vec<Entry> {
        let range = Range { start, end: None };
        self.pin.map_or_else(Vec::new, |pin| self.map.range(&range, pin).take(limit).collect())
    }
}

fn entry_bytes(entry: &Entry) -> u64 {
    (entry.key.len() + entry.value.len()) as u64
}

fn history_bytes(event: &Event) -> usize {
    let previous = event.previous.as_ref().map_or(0, |entry| entry.value.len());
    let key = event.key.len();
    // A delete may carry a last value of its own, which nothing else keeps alive.
    let shared = event.previous.as_ref().is_some_and(|previous| previous.value.as_ptr() == event.entry.value.as_ptr());
    let last = if event.deleted && !shared { event.entry.value.len() } else { 0 };
    EVENT_COST + key + previous + last
}
