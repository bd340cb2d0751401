//! The engine that survives: acknowledged means on disk.
//!
//! ```text
//!  txn ─┐                    ┌─ commit thread ──────────────────────────────────┐
//!  txn ─┼─▶ bounded queue ─▶ │ plan each ─▶ one frame ─▶ write, sync ─▶ apply   │ ─▶ acknowledge
//!  txn ─┘                    │   against state + the batch so far      │       │
//!                            └─────────────────────────────────────────┼───────┘
//!  get, range, events ─────────────────────────────▶ history in memory ◀┘
//! ```
//!
//! The state is the same [`History`] in memory as that of [`Memory`](crate::Memory), and reads never
//! touch the disk. Writes that wait while the disk is busy are committed together: one write and one
//! sync for all of them, each still a transaction of its own with its own revision. Nothing is
//! visible, to anybody, before it is synced.
//!
//! The log is made of segments. Once those that hold nothing but dropped history outweigh the live
//! data, a second thread writes a [snapshot] of the oldest readable revision, in short
//! slices between writes, and removes them. What is on disk is therefore a snapshot and the history
//! that memory has as well, and [recovery](mod@recover) brings back both.
//!
//! What always holds:
//! - an acknowledged write survives the process being killed and the machine losing power;
//! - a file is complete from the moment it has its name: it is made under another name, synced, and
//!   renamed;
//! - once a write has failed there are no more, because what the disk holds is no longer known. Reads
//!   go on. Only what a full disk has no space for can be taken back: the next write is tried again;
//! - damage that no crash can explain keeps the store from opening.
//!
//! The format of the files is described in [`mod@format`].

mod checkpoint;
mod commit;
mod disk;
mod format;
mod lock;
mod log;
mod recover;
mod snapshot;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot, watch};

use self::commit::{Command, Committer, Outcome};
use self::disk::{Disk, Failure, FileSystem};
use self::format::HeaderFault;
use self::lock::Lock;
use crate::error::OpenError;
use crate::history::{History, HistoryBudget};
use crate::{Entry, Event, Range, Revision, Snapshot, Store, StoreError, Txn, TxnResult};

/// How many transactions may wait for the commit thread; further writers wait for a place.
const QUEUE: usize = 1_024;

/// How a [`Durable`] store is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableOptions {
    /// How much history is kept, in memory and thereby on disk.
    pub history: HistoryBudget,
    /// How large a segment of the log grows; its space is taken in advance.
    pub segment_bytes: u64,
    /// How much of the log must be dropped history before it is worth a snapshot. It must outweigh the
    /// live data as well.
    pub checkpoint_bytes: u64,
}

impl Default for DurableOptions {
    fn default() -> Self {
        Self { history: HistoryBudget::default(), segment_bytes: 16 << 20, checkpoint_bytes: 16 << 20 }
    }
}

/// What opening a store found and repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The newest revision.
    pub revision: Revision,
    /// The oldest revision that can be read, and whose later events can be replayed.
    pub compacted: Revision,
    /// How many keys there are.
    pub entries: usize,
    /// The revision of the snapshot that was loaded, if there was one.
    pub snapshot: Option<Revision>,
    /// How many segments of the log were read.
    pub segments: usize,
    /// How many transactions of the log were replayed.
    pub transactions: u64,
    /// What was cut off: a write that was under way when the process or the machine died, and that
    /// was never acknowledged, unless the disk has lost something.
    pub truncated_bytes: u64,
    /// How long it all took.
    pub elapsed: Duration,
}

/// A store in a directory of its own.
///
/// Dropping it waits for the writes that are under way, at most one batch; [`close`](Store::close)
/// does so without blocking, and marks the log as complete.
///
/// ```
/// use windlass_store::{Durable, DurableOptions, Expect, Store, Value, Write};
///
/// # futures::executor::block_on(async {
/// # let temporary = tempfile::tempdir()?;
/// # let dir = temporary.path().join("store");
/// let (store, recovery) = Durable::open(&dir, DurableOptions::default())?;
/// assert_eq!((recovery.revision, recovery.entries), (1, 0));
/// let key = "greeting".into();
/// store.txn(vec![Write::Put { key, expect: Expect::Any, value: Value::plain("hello") }]).await?;
/// store.close().await?;
///
/// let (store, recovery) = Durable::open(&dir, DurableOptions::default())?;
/// assert_eq!((recovery.revision, recovery.truncated_bytes), (2, 0));
/// assert_eq!(store.get(b"greeting").await?.unwrap().value, "hello");
/// assert_eq!(store.events(1, 0).await?.len(), 1, "the log is there as well");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Durable {
    dir: PathBuf,
    shared: Arc<Shared>,
    /// Taken when the store is dropped, to end the thread.
    queue: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    outcome: watch::Receiver<Option<Outcome>>,
}

/// What readers and the commit thread share.
#[derive(Debug)]
struct Shared {
    history: RwLock<History>,
    revision: watch::Sender<Revision>,
    /// What ended writing for good.
    failed: OnceLock<Failure>,
    /// What the disk had no space for, until a write succeeds again.
    full: Mutex<Option<Failure>>,
}

impl Durable {
    /// Opens the store in `dir`, which is created if it is not there. This reads files, and takes as
    /// long as that takes; it is not for a thread that must not block.
    pub fn open(dir: impl AsRef<Path>, options: DurableOptions) -> Result<(Self, Recovery), OpenError> {
        Self::open_on(Arc::new(FileSystem), dir.as_ref(), options)
    }

    fn open_on(disk: Arc<dyn Disk>, dir: &Path, options: DurableOptions) -> Result<(Self, Recovery), OpenError> {
        let started = Instant::now();
        disk::create_dir(dir)?;
        let mut lock = Lock::acquire(dir)?;
        let (history, log, mut recovery) = recover::recover(dir, &options, disk, lock.had_log)?;
        lock.note_log();
        let revision = watch::Sender::new(history.revision());
        let shared = Arc::new(Shared {
            history: RwLock::new(history),
            revision,
            failed: OnceLock::new(),
            full: Mutex::new(None),
        });
        let (queue, commands) = mpsc::channel(QUEUE);
        let (outcome_sender, outcome) = watch::channel(None);
        let committer = Committer::new(Arc::clone(&shared), log, lock, options, queue.downgrade());
        let thread = std::thread::Builder::new()
            .name("store-commit".to_owned())
            .spawn(move || {
                let outcome = committer.run(commands);
                outcome_sender.send_replace(Some(outcome));
            })
            .map_err(Failure::at("start the commit thread for", dir))?;
        recovery.elapsed = started.elapsed();
        let store = Self { dir: dir.to_owned(), shared, queue: Some(queue), thread: Some(thread), outcome };
        Ok((store, recovery))
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Has the commit thread do something, and waits for its answer.
    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or(StoreError::Closed)?;
        if queue.send(command(reply)).await.is_err() {
            return Err(self.why_closed());
        }
        answer.await.unwrap_or_else(|_| Err(self.why_closed()))
    }

    fn why_closed(&self) -> StoreError {
        match &*self.outcome.borrow() {
            Some(Err(failure)) => failure.clone().into(),
            _ => StoreError::Closed,
        }
    }
}

impl Store for Durable {
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResult, StoreError>> {
        Box::pin(self.ask(|reply| Command::Txn { txn, reply }))
    }

    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        Box::pin(async move { Ok(self.shared.history.read().get(key)) })
    }

    fn range(&self, range: Range, at: Option<Revision>, limit: usize) -> BoxFuture<'_, Result<Snapshot, StoreError>> {
        Box::pin(async move { self.shared.history.read().range(&range, at, limit) })
    }

    fn count(&self, range: Range) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move { Ok(self.shared.history.read().count(&range)) })
    }

    fn events(&self, after: Revision, limit: usize) -> BoxFuture<'_, Result<Vec<Arc<Event>>, StoreError>> {
        Box::pin(async move { self.shared.history.read().events(after, limit) })
    }

    fn revision(&self) -> watch::Receiver<Revision> {
        self.shared.revision.subscribe()
    }

    fn compacted(&self) -> Revision {
        self.shared.history.read().compacted()
    }

    fn takes_writes(&self) -> Result<(), StoreError> {
        match self.shared.failed.get() {
            Some(failure) => Err(failure.clone().into()),
            None if self.outcome.borrow().is_some() => Err(self.why_closed()),
            None => self.shared.full.lock().clone().map_or(Ok(()), |failure| Err(failure.no_space())),
        }
    }

    /// Returns when the disk space is given back, if enough has become free to be worth it.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.ask(move |reply| Command::Compact { revision, reply }))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            if let Some(queue) = &self.queue {
                // An error means that the thread has ended already, which is as well.
                let _ = queue.send(Command::Close).await;
            }
            let mut outcome = self.outcome.clone();
            let ended = outcome.wait_for(Option::is_some).await.map_err(|_| StoreError::Closed)?;
            match &*ended {
                Some(Err(failure)) => Err(failure.clone().into()),
                _ => Ok(()),
            }
        })
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(dir = %self.dir.display(), "the commit thread of a store panicked");
        }
    }
}

impl From<Failure> for OpenError {
    fn from(failure: Failure) -> Self {
        let Failure { action, path, source } = failure;
        Self::Io { action, path, source }
    }
}

impl OpenError {
    fn of_header(fault: HeaderFault, path: &Path) -> Self {
        let path = path.to_owned();
        match fault {
            HeaderFault::Damaged(problem) => Self::Corrupt { path, offset: 0, problem },
            HeaderFault::Version(found) => Self::Format { path, found, supported: format::VERSION },
        }
    }
}
