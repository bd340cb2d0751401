//! A checkpoint: the thread that writes a snapshot and then removes what it replaces.
//!
//! The state is pinned at the snapshot's revision for as long as the thread runs. Whatever goes wrong
//! here costs disk space and nothing else: the log is complete without the snapshot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::disk::{self, Failure};
use super::format::FileKind;
use super::{Shared, snapshot};
use crate::{Revision, StoreError};

/// A snapshot being written.
pub(crate) struct Checkpoint {
    pub(crate) revision: Revision,
    /// Those who asked for the space.
    pub(crate) waiting: Vec<oneshot::Sender<Result<(), StoreError>>>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
    thread: JoinHandle<Result<bool, Failure>>,
}

impl Checkpoint {
    /// Starts the thread for a snapshot of the pinned `revision`, which replaces the segments given.
    /// It calls `wake` when it is done.
    pub(crate) fn start(
        shared: Arc<Shared>,
        dir: PathBuf,
        revision: Revision,
        segments: Vec<PathBuf>,
        wake: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("store-checkpoint".to_owned()).spawn({
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            move || {
                let result = run(&shared, &dir, revision, &segments, &stop);
                done.store(true, Ordering::Release);
                wake();
                result
            }
        })?;
        Ok(Self { revision, waiting: Vec::new(), stop, done, thread })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) || self.thread.is_finished()
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the end. True when the snapshot is there and what it replaces is gone.
    pub(crate) fn join(self) -> bool {
        let made = match self.thread.join() {
            Ok(Ok(made)) => made,
            Ok(Err(Failure { action, path, source })) => {
                tracing::warn!(action, path = %path.display(), error = %source, "could not write a snapshot of the store");
                false
            }
            Err(_) => {
                tracing::error!("the thread that writes a snapshot of the store panicked");
                false
            }
        };
        for reply in self.waiting {
            // The history is compacted in any case; the space will be given back another time.
            let _ = reply.send(Ok(()));
        }
        made
    }
}

fn run(
    shared: &Shared,
    dir: &Path,
    revision: Revision,
    segments: &[PathBuf],
    stop: &AtomicBool,
) -> Result<bool, Failure> {
    let older = snapshots(dir)?;
    let Some(path) = snapshot::write(dir, &shared.history, revision, stop)? else {
        return Ok(false);
    };
    // Oldest first, so that whatever is left after a crash still goes on without a gap.
    for obsolete in older.iter().filter(|older| **older != path).chain(segments) {
        if let Err(error) = fs::remove_file(obsolete) {
            // It will be removed when the store is next opened.
            tracing::warn!(path = %obsolete.display(), %error, "could not remove an obsolete file of the store");
        }
    }
    disk::sync_dir(dir)?;
    tracing::debug!(revision, segments = segments.len(), "wrote a snapshot of the store");
    Ok(true)
}

fn snapshots(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(Failure::at("list", dir))? {
        let entry = entry.map_err(Failure::at("list", dir))?;
        if entry.file_name().to_str().is_some_and(|name| FileKind::Snapshot.parse_name(name).is_some()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}
