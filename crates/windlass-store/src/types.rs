//! The vocabulary every engine speaks, and the [`Store`] trait itself.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::{Revision, StoreError};

/// The bytes of a write, optionally with a place where the store inserts the decimal text of the
/// revision that the write is given.
#[derive(Clone, Debug)]
pub struct Value {
    pub(crate) bytes: Bytes,
    pub(crate) splice_at: Option<usize>,
}

impl Value {
    /// A value stored exactly as given.
    pub fn plain(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), splice_at: None }
    }

    /// A value into which the store inserts its revision, as decimal digits, at byte `at`.
    ///
    /// # Panics
    /// If `at` is beyond the end of `bytes`.
    pub fn splice(bytes: impl Into<Bytes>, at: usize) -> Self {
        let bytes = bytes.into();
        assert!(at <= bytes.len(), "splice position {at} is beyond the value's {} bytes", bytes.len());
        Self { bytes, splice_at: Some(at) }
    }

    /// The bytes that are stored when the write is given `revision`.
    pub fn resolve(&self, revision: Revision) -> Bytes {
        let Some(at) = self.splice_at else {
            return self.bytes.clone();
        };
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(revision).as_bytes();
        let mut out = Vec::with_capacity(self.bytes.len() + digits.len());
        out.extend_from_slice(&self.bytes[..at]);
        out.extend_from_slice(digits);
        out.extend_from_slice(&self.bytes[at..]);
        out.into()
    }
}

/// A precondition of a write: what must be true of its key for the transaction to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key was last written at this revision.
    At(Revision),
    /// Anything, as long as it exists.
    Present,
    /// Anything.
    Any,
}

/// One change of a transaction.
#[derive(Clone, Debug)]
pub enum Write {
    /// Create or replace the value.
    Put {
        /// The key written.
        key: Bytes,
        /// What must be true of the key.
        expect: Expect,
        /// The new value.
        value: Value,
    },
    /// Remove the key. Deleting a key that does not exist, where `expect` allows it, changes nothing.
    Delete {
        /// The key removed.
        key: Bytes,
        /// What must be true of the key.
        expect: Expect,
        /// What the event carries as the key's last value; the stored value when `None`.
        last: Option<Value>,
    },
}

/// Writes that commit together or not at all, all at one revision. Keys must be distinct.
pub type Txn = Vec<Write>;

/// The outcome of a transaction that the engine carried out.
#[derive(Clone, Debug)]
pub enum TxnResult {
    /// Every expectation held; the writes are at this revision. One entry a write, in order: the
    /// stored entry of a put, `None` for a delete.
    Committed {
        /// The transaction's revision; unchanged if it wrote nothing.
        revision: Revision,
        /// The entries as stored.
        entries: Vec<Option<Entry>>,
    },
    /// An expectation did not hold; nothing was written.
    Conflict {
        /// The index of the first write whose expectation failed.
        index: usize,
        /// What the key holds now.
        current: Option<Entry>,
    },
}

/// A key's value at a revision. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The revision at which the key came into being.
    pub created: Revision,
    /// The revision of its last write.
    pub modified: Revision,
}

/// One write, as the log keeps it.
#[derive(Debug)]
pub struct Event {
    /// The revision of the transaction.
    pub revision: Revision,
    /// The key.
    pub key: Bytes,
    /// The entry written; for a delete, its last value with `modified` set to the delete's revision.
    pub entry: Entry,
    /// What the key held before, if anything.
    pub previous: Option<Entry>,
    /// Whether the key was removed.
    pub deleted: bool,
}

/// A half-open range of keys, `start <= key < end`; no end means to the last key.
#[derive(Clone, Debug)]
pub struct Range {
    /// The first key.
    pub start: Bytes,
    /// The first key beyond the range.
    pub end: Option<Bytes>,
}

impl Range {
    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start: Bytes = prefix.into();
        let mut end = start.to_vec();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                return Self { start, end: Some(end.into()) };
            }
        }
        Self { start, end: None }
    }

    /// The part of this range at or after `key`.
    #[must_use]
    pub fn starting_at(mut self, key: impl Into<Bytes>) -> Self {
        self.start = self.start.max(key.into());
        self
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }
}

/// The entries of a range at one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The revision the answer is true at.
    pub revision: Revision,
    /// The entries in key order, at most the limit asked for.
    pub entries: Vec<Entry>,
    /// How many entries of the range lie beyond the limit.
    pub remaining: usize,
}

/// A revisioned store. See the crate's introduction for what every engine keeps to, and
/// [`contract`](crate::contract) for the tests that hold it to that.
pub trait Store: Send + Sync + 'static {
    /// Carries out a transaction. Nothing happens before the future is polled; from then on dropping it
    /// does not undo the transaction, which may or may not be carried out.
    ///
    /// [`StoreError::RepeatedKey`] when two writes name one key, [`StoreError::TooLarge`] beyond
    /// 64 MiB of keys and values.
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResult, StoreError>>;

    /// The newest entry of a key.
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Entry>, StoreError>>;

    /// Reads a range, newest state or `at` a retained revision, at most `limit` entries (0: all).
    ///
    /// `at` below the compaction revision is [`StoreError::Compacted`]; above the newest revision it
    /// is [`StoreError::Future`].
    fn range(&self, range: Range, at: Option<Revision>, limit: usize) -> BoxFuture<'_, Result<Snapshot, StoreError>>;

    /// How many keys the range holds now.
    fn count(&self, range: Range) -> BoxFuture<'_, Result<usize, StoreError>>;

    /// Events with `revision > after`, oldest first, at most `limit` of them (0: all) but never part
    /// of a transaction: one that alone exceeds the limit is returned whole. Empty when there are none
    /// yet: wait on [`revision`](Self::revision) and ask again.
    ///
    /// [`StoreError::Compacted`] when events after `after` have been dropped.
    fn events(&self, after: Revision, limit: usize) -> BoxFuture<'_, Result<Vec<Arc<Event>>, StoreError>>;

    /// The newest visible revision, and a way to wait for the next. An empty store is at revision 1,
    /// so that 0 stays free for "unset".
    fn revision(&self) -> watch::Receiver<Revision>;

    /// The oldest revision that can still be read at; everything below is gone.
    fn compacted(&self) -> Revision;

    /// Whether writes are still taken, as far as is known; otherwise why not. It does no I/O: this is for health
    /// checks.
    fn takes_writes(&self) -> Result<(), StoreError>;

    /// Drops history below `revision`: older versions and events, and the disk space they take where
    /// that is worth the effort. Below [`compacted`](Self::compacted) there is nothing left to do;
    /// above the newest revision it is [`StoreError::Future`].
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Refuses further writes and compactions with [`StoreError::Closed`], and returns when everything
    /// acknowledged is where it must be. Reads are still answered. Closing again does nothing.
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}
