//! The commit thread: the only one that writes, to the disk and to the shared state.
//!
//! It takes whatever waits in the queue, plans it as one batch, and makes the batch durable before
//! anybody can see any of it. Everything here happens in the order of the queue, so there is nothing
//! to lock but the moment at which a batch becomes visible.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Checkpoint;
use super::disk::Failure;
use super::format::FrameBuf;
use super::lock::Lock;
use super::log::Log;
use super::{DurableOptions, Shared};
use crate::history::{self, Plan};
use crate::{Entry, Event, Revision, StoreError, Txn, TxnResult};

/// How many commands are taken at once.
const BATCH_COMMANDS: usize = 1_024;
/// How large a batch grows before it is written.
const BATCH_BYTES: usize = 4 << 20;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// How the thread ended.
pub(crate) type Outcome = Result<(), Failure>;

/// What the thread is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    Txn {
        txn: Txn,
        reply: Reply<TxnResult>,
    },
    Compact {
        revision: Revision,
        reply: Reply<()>,
    },
    /// The checkpoint is done, one way or the other.
    Checkpointed,
    Close,
}

/// See the module's introduction.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    log: Log,
    /// Given back when the thread ends.
    lock: Lock,
    options: DurableOptions,
    /// For a checkpoint to report to; weak, because the thread ends when all writers are gone.
    commands: mpsc::WeakSender<Command>,
    batch: Batch,
    checkpoint: Option<Checkpoint>,
    /// Callers that have compacted while a checkpoint of an older revision was under way, and wait.
    asked_for_space: Vec<Reply<()>>,
    /// After a checkpoint has failed, how far the log must grow before the next is tried.
    retry_above: u64,
}

/// Transactions that are planned, but not yet durable.
struct Batch {
    first: Revision,
    frame: FrameBuf,
    events: Vec<Arc<Event>>,
    /// What keys hold after the transactions so far.
    pending: HashMap<Bytes, Option<Entry>>,
    answers: Vec<(Reply<TxnResult>, Result<TxnResult, StoreError>)>,
}

impl Batch {
    fn add(&mut self, events: Vec<Event>) {
        self.frame.transaction(&events);
        for event in events {
            let holds = (!event.deleted).then(|| event.entry.clone());
            self.pending.insert(event.key.clone(), holds);
            self.events.push(Arc::new(event));
        }
    }

    fn clear(&mut self) {
        self.frame.clear();
        self.events.clear();
        self.pending.clear();
        self.answers.clear();
    }
}

impl Committer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        log: Log,
        lock: Lock,
        options: DurableOptions,
        commands: mpsc::WeakSender<Command>,
    ) -> Self {
        let batch = Batch {
            first: 0,
            frame: FrameBuf::new(),
            events: Vec::new(),
            pending: HashMap::new(),
            answers: Vec::new(),
        };
        Self {
            shared,
            log,
            lock,
            options,
            commands,
            batch,
            checkpoint: None,
            asked_for_space: Vec::new(),
            retry_above: 0,
        }
    }

    /// Works until told to close, or until everybody who could ask for something is gone.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Command>) -> Outcome {
        let mut commands = Vec::with_capacity(BATCH_COMMANDS);
        while queue.blocking_recv_many(&mut commands, BATCH_COMMANDS) > 0 {
            for command in commands.drain(..) {
                match command {
                    Command::Txn { txn, reply } => self.txn(txn, reply),
                    Command::Compact { revision, reply } => {
                        self.flush();
                        self.compact(revision, reply);
                    }
                    Command::Checkpointed => {}
                    // What is in the queue already is still carried out.
                    Command::Close => queue.close(),
                }
            }
            let answered = self.flush();
            self.look_after_disk();
            gather(&queue, answered);
        }
        self.end()
    }

    /// Plans a transaction as the next of the batch.
    fn txn(&mut self, txn: Txn, reply: Reply<TxnResult>) {
        if let Some(failure) = self.shared.failed.get() {
            answer(reply, Err(failure.clone().into()));
            return;
        }
        let batch = &mut self.batch;
        let history = self.shared.history.read();
        if batch.answers.is_empty() {
            batch.first = history.revision() + 1;
        }
        let revision = batch.first + Revision::from(batch.frame.count());
        let current = |key: &[u8]| match batch.pending.get(key) {
            Some(pending) => pending.clone(),
            None => history.get(key),
        };
        let result = match history::plan(txn, revision, current) {
            Ok(Plan::Conflict { index, current }) => Ok(TxnResult::Conflict { index, current }),
            Ok(Plan::Commit { events, entries }) if events.is_empty() => {
                Ok(TxnResult::Committed { revision: revision - 1, entries })
            }
            Ok(Plan::Commit { events, entries }) => {
                batch.add(events);
                Ok(TxnResult::Committed { revision, entries })
            }
            Err(error) => Err(error),
        };
        drop(history);
        batch.answers.push((reply, result));
        if batch.frame.len() > BATCH_BYTES {
            self.flush();
        }
    }

    /// Makes the batch durable, then visible, then known. Gives the number of those told.
    fn flush(&mut self) -> usize {
        let answered = self.batch.answers.len();
        if answered == 0 {
            return 0;
        }
        if !self.batch.events.is_empty() {
            if let Err(failure) = self.log.append(&mut self.batch.frame, self.batch.first) {
                // A writer that is told may ask at once whether the store takes writes.
                self.fail(failure.clone());
                for (reply, _) in std::mem::take(&mut self.batch.answers) {
                    answer(reply, Err(self.error_of(&failure)));
                }
                self.batch.clear();
                return answered;
            }
            self.note_space();
            let mut history = self.shared.history.write();
            history.apply(self.batch.events.drain(..));
            let revision = history.revision();
            let dropped = history.trim();
            drop(history);
            drop(dropped);
            self.shared.revision.send_replace(revision);
        }
        for (reply, result) in self.batch.answers.drain(..) {
            answer(reply, result);
        }
        self.batch.clear();
        answered
    }

    fn compact(&mut self, revision: Revision, reply: Reply<()>) {
        if let Some(failure) = self.shared.failed.get() {
            answer(reply, Err(failure.clone().into()));
            return;
        }
        let history = self.shared.history.read();
        let (newest, compacted) = (history.revision(), history.compacted());
        drop(history);
        if revision > newest {
            let asked = revision;
            answer(reply, Err(StoreError::Future { asked, newest }));
            return;
        }
        if revision <= compacted {
            answer(reply, Ok(()));
            return;
        }
        if let Err(failure) = self.log.compaction(revision) {
            self.fail(failure.clone());
            answer(reply, Err(self.error_of(&failure)));
            return;
        }
        // The revision was checked, so this cannot fail.
        let compacted = self.shared.history.write().compact(revision);
        debug_assert!(compacted.is_ok(), "{compacted:?}");
        self.trim();
        self.asked_for_space.push(reply);
        if self.checkpoint.is_none() {
            self.make_space();
        }
    }

    /// Drops what is compacted or over budget, with a chance for readers in between.
    fn trim(&self) {
        loop {
            let dropped = self.shared.history.write().trim();
            if dropped.is_empty() {
                return;
            }
        }
    }

    /// Whether the next write may succeed: the disk is full, and holds what it held before.
    fn is_only_full(&self, failure: &Failure) -> bool {
        failure.is_full() && !self.log.is_lost
    }

    fn error_of(&self, failure: &Failure) -> StoreError {
        if self.is_only_full(failure) { failure.clone().no_space() } else { failure.clone().into() }
    }

    /// A write has succeeded.
    fn note_space(&self) {
        if self.shared.full.lock().take().is_some() {
            tracing::info!("the disk has space again: the store takes writes");
        }
    }

    fn fail(&mut self, failure: Failure) {
        let Failure { action, path, source } = &failure;
        if self.is_only_full(&failure) {
            let mut full = self.shared.full.lock();
            if full.is_none() {
                tracing::error!(action, path = %path.display(), error = %source, "the disk is full: writes are refused");
            }
            *full = Some(failure);
            return;
        }
        tracing::error!(action, path = %path.display(), error = %source, "the store takes no more writes");
        // The first is what ended it.
        let _ = self.shared.failed.set(failure);
    }

    /// Closes the log, if it is still known what it holds.
    fn end(mut self) -> Outcome {
        // What is compacted stays compacted; the space will be given back another time.
        for reply in self.asked_for_space.drain(..) {
            answer(reply, Ok(()));
        }
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.stop();
            self.finish_checkpoint();
        }
        let revision = self.shared.history.read().revision();
        let outcome = self.shared.failed.get().cloned().map_or_else(|| self.log.end(revision), Err);
        drop(self.lock);
        outcome
    }
}

/// Checkpoints.
impl Committer {
    /// Sees to a checkpoint that is under way, or starts one if the log has grown enough.
    fn look_after_disk(&mut self) {
        if let Some(checkpoint) = &self.checkpoint {
            // The checkpoint keeps history from being dropped. Should writers be so much faster than
            // the disk can take a snapshot, they wait rather than have memory grow without bound.
            let wait = self.shared.history.read().is_over(2);
            if wait || checkpoint.is_done() {
                self.finish_checkpoint();
            }
            return;
        }
        if self.shared.failed.get().is_some() {
            return;
        }
        let history = self.shared.history.read();
        let (compacted, live) = (history.compacted(), history.live_bytes());
        drop(history);
        let worth = live.max(self.options.checkpoint_bytes).max(self.retry_above);
        if self.log.sealed_bytes_upto(compacted) > worth {
            self.start_checkpoint();
        }
    }

    /// Starts a checkpoint for those who have asked for space, if that frees enough to be worth it.
    /// A caller wants it, so less is enough than otherwise.
    fn make_space(&mut self) {
        let history = self.shared.history.read();
        let (newest, compacted, live) = (history.revision(), history.compacted(), history.live_bytes());
        drop(history);
        let waiting = std::mem::take(&mut self.asked_for_space);
        let sealed = self.log.sealed_bytes_upto(compacted);
        let current = if compacted == newest { self.log.current.end } else { 0 };
        if sealed + current > (self.options.checkpoint_bytes / 16).max(live / 4) {
            if current > 0
                && let Err(failure) = self.log.rotate(newest + 1)
            {
                for reply in waiting {
                    answer(reply, Err(self.error_of(&failure)));
                }
                self.fail(failure);
                return;
            }
            self.start_checkpoint();
        }
        match &mut self.checkpoint {
            Some(checkpoint) => checkpoint.waiting = waiting,
            None => waiting.into_iter().for_each(|reply| answer(reply, Ok(()))),
        }
    }

    /// Pins the oldest readable revision and has it written to a snapshot.
    fn start_checkpoint(&mut self) {
        let revision = self.shared.history.write().pin();
        let segments = self.log.sealed_upto(revision).iter().map(|sealed| sealed.path.clone()).collect();
        let commands = self.commands.clone();
        let wake = move || {
            // With a full queue the thread comes round by itself, and without writers it ends.
            if let Some(commands) = commands.upgrade() {
                let _ = commands.try_send(Command::Checkpointed);
            }
        };
        match Checkpoint::start(Arc::clone(&self.shared), self.log.dir.clone(), revision, segments, wake) {
            Ok(checkpoint) => self.checkpoint = Some(checkpoint),
            Err(error) => {
                tracing::warn!(%error, "could not start a thread to write a snapshot of the store");
                self.put_off(revision);
                self.shared.history.write().unpin();
            }
        }
    }

    /// Waits for the end of the checkpoint that is under way.
    fn finish_checkpoint(&mut self) {
        let Some(checkpoint) = self.checkpoint.take() else {
            return;
        };
        let revision = checkpoint.revision;
        if checkpoint.join() {
            self.log.forget_upto(revision);
            self.retry_above = 0;
        } else {
            self.put_off(revision);
        }
        self.shared.history.write().unpin();
        self.trim();
        if !self.asked_for_space.is_empty() && self.shared.failed.get().is_none() {
            self.make_space();
        }
    }

    /// Lets the log grow some more before the next attempt.
    fn put_off(&mut self, revision: Revision) {
        self.retry_above = self.log.sealed_bytes_upto(revision) + self.options.checkpoint_bytes;
    }
}

/// Collects a batch: writers whose transactions have just been answered tend to send their next one at once. A short
/// wait takes them into one batch, where the first of them would otherwise have a sync to itself and all the others
/// would wait for it. A single writer is never kept waiting.
fn gather(queue: &mpsc::Receiver<Command>, answered: usize) {
    const GATHER_TIMEOUT: Duration = Duration::from_micros(50);
    if answered < 2 {
        return;
    }
    let started = Instant::now();
    while queue.len() < answered && !queue.is_closed() && started.elapsed() < GATHER_TIMEOUT {
        std::thread::yield_now();
    }
}

/// Sends the result to the caller, if it still waits.
fn answer<T>(reply: Reply<T>, result: Result<T, StoreError>) {
    let _ = reply.send(result);
}
