//! The engine that keeps everything in memory: for tests, and for clusters that may be forgotten.
//!
//! It is [`History`] behind a lock. A transaction is carried out where its future is polled; there is
//! no thread and no queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::history::{self, History, HistoryBudget, Plan};
use crate::{Entry, Event, Range, Revision, Snapshot, Store, StoreError, Txn, TxnResult};

/// A store that lives as long as its process.
///
/// ```
/// use windlass_store::{Expect, Memory, Range, Store, TxnResult, Value, Write};
///
/// # futures::executor::block_on(async {
/// let store = Memory::new();
/// let put = |value: &'static str, expect| {
///     vec![Write::Put { key: "greeting".into(), expect, value: Value::plain(value) }]
/// };
/// let TxnResult::Committed { revision, .. } = store.txn(put("hello", Expect::Absent)).await? else {
///     panic!("there is no other writer");
/// };
/// assert_eq!(revision, 2, "an empty store is at revision 1");
/// store.txn(put("good morning", Expect::At(revision))).await?;
///
/// // A writer that has not seen the second write gets a conflict with the current value.
/// let late = store.txn(put("goodbye", Expect::At(revision))).await?;
/// assert!(matches!(late, TxnResult::Conflict { current: Some(entry), .. } if entry.modified == 3));
///
/// // The past stays readable.
/// let then = store.range(Range::prefix("greet"), Some(revision), 0).await?;
/// assert_eq!(then.entries[0].value, "hello");
/// # Ok::<(), windlass_store::StoreError>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Memory {
    data: Arc<Data>,
    /// Changes only while the history is locked for writing.
    closed: AtomicBool,
}

/// What stays when a store is closed and opened again.
#[derive(Debug)]
struct Data {
    history: RwLock<History>,
    revision: watch::Sender<Revision>,
}

impl Memory {
    /// An empty store with the default history budget.
    pub fn new() -> Self {
        Self::with_options(HistoryBudget::default())
    }

    /// An empty store that keeps as much history as `budget` allows.
    pub fn with_options(budget: HistoryBudget) -> Self {
        let history = History::new(budget);
        let revision = watch::Sender::new(history.revision());
        Self { data: Arc::new(Data { history: RwLock::new(history), revision }), closed: AtomicBool::new(false) }
    }

    /// Closes this store, if it is not closed, and opens another one on the same data, as a process does that starts
    /// again: revisions go on, and the history is still there.
    ///
    /// ```
    /// use windlass_store::{Expect, Memory, Store, StoreError, Value, Write};
    ///
    /// # futures::executor::block_on(async {
    /// let put = |key: &'static str| vec![Write::Put { key: key.into(), expect: Expect::Absent, value: Value::plain("v") }];
    /// let before = Memory::new();
    /// before.txn(put("a")).await?;
    /// let after = before.reopen();
    /// assert!(matches!(before.txn(put("b")).await, Err(StoreError::Closed)));
    /// after.txn(put("b")).await?;
    /// assert_eq!(after.events(1, 10).await?.len(), 2);
    /// # Ok::<(), StoreError>(())
    /// # }).unwrap();
    /// ```
    #[must_use = "this store is closed"]
    pub fn reopen(&self) -> Self {
        self.shut();
        Self { data: Arc::clone(&self.data), closed: AtomicBool::new(false) }
    }

    /// A write that has begun is carried out before, none after.
    fn shut(&self) {
        let _history = self.data.history.write();
        self.closed.store(true, Ordering::Relaxed);
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Relaxed) { Err(StoreError::Closed) } else { Ok(()) }
    }

    fn carry_out(&self, txn: Txn) -> Result<TxnResult, StoreError> {
        let mut history = self.data.history.write();
        self.check_open()?;
        let (events, entries) = match history::plan(txn, history.revision() + 1, |key| history.get(key))? {
            Plan::Commit { events, entries } => (events, entries),
            Plan::Conflict { index, current } => return Ok(TxnResult::Conflict { index, current }),
        };
        history.apply(events.into_iter().map(Arc::new));
        let revision = history.revision();
        let dropped = history.trim();
        drop(history);
        drop(dropped);
        // Another writer may have published a later revision in the meantime; it must not go back.
        self.data.revision.send_if_modified(|newest| {
            let newer = revision > *newest;
            *newest = revision.max(*newest);
            newer
        });
        Ok(TxnResult::Committed { revision, entries })
    }

    fn drop_below(&self, revision: Revision) -> Result<(), StoreError> {
        {
            let mut history = self.data.history.write();
            self.check_open()?;
            history.compact(revision)?;
        }
        // In pieces, so that readers get a turn in between.
        loop {
            let dropped = self.data.history.write().trim();
            if dropped.is_empty() {
                return Ok(());
            }
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for Memory {
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResult, StoreError>> {
        Box::pin(async move { self.carry_out(txn) })
    }

    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        Box::pin(async move { Ok(self.data.history.read().get(key)) })
    }

    fn range(&self, range: Range, at: Option<Revision>, limit: usize) -> BoxFuture<'_, Result<Snapshot, StoreError>> {
        Box::pin(async move { self.data.history.read().range(&range, at, limit) })
    }

    fn count(&self, range: Range) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move { Ok(self.data.history.read().count(&range)) })
    }

    fn events(&self, after: Revision, limit: usize) -> BoxFuture<'_, Result<Vec<Arc<Event>>, StoreError>> {
        Box::pin(async move { self.data.history.read().events(after, limit) })
    }

    fn revision(&self) -> watch::Receiver<Revision> {
        self.data.revision.subscribe()
    }

    fn compacted(&self) -> Revision {
        self.data.history.read().compacted()
    }

    fn takes_writes(&self) -> Result<(), StoreError> {
        self.check_open()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.drop_below(revision) })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.shut();
            Ok(())
        })
    }
}
