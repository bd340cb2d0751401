//! One process at a time: the lock on a store's directory.
//!
//! The directory itself is locked, so that a process which finds the file `LOCK` gone still finds the store in use. `LOCK`
//! is locked as well, for versions that look only at it, and says which process has the store and whether there has been
//! a log. The kernel gives locks back when the process ends, however it ends, so there is nothing to clean up after a
//! crash.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::disk::Failure;
use crate::OpenError;

/// The line of `LOCK` that says that there has been a log.
const HAS_LOG: &str = "log";

/// Held for as long as the store is open.
#[derive(Debug)]
pub(crate) struct Lock {
    dir: File,
    file: File,
    path: PathBuf,
    /// Whether an earlier process had made a log.
    pub(crate) had_log: bool,
}

impl Drop for Lock {
    /// Closing the files would not do: a child that this process is just starting shares them until it
    /// has become another program, and with them the locks.
    fn drop(&mut self) {
        for file in [&self.file, &self.dir] {
            if let Err(error) = rustix::fs::flock(file, FlockOperation::Unlock) {
                tracing::warn!(%error, "could not unlock the store");
            }
        }
    }
}

impl Lock {
    pub(crate) fn acquire(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join("LOCK");
        let directory = File::open(dir).map_err(Failure::at("open", dir))?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(Failure::at("open", &path))?;
        let locked = |file: &mut File| OpenError::Locked { dir: dir.to_owned(), pid: holder(&read(file)) };
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(locked(&mut file)),
            // Some network file systems lock files only.
            Err(error) => tracing::debug!(%error, dir = %dir.display(), "the directory cannot be locked"),
            Ok(()) => {}
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(locked(&mut file)),
            Err(error) => return Err(Failure::at("lock", &path)(error.into()).into()),
        }
        let had_log = read(&mut file).lines().any(|line| line == HAS_LOG);
        let mut lock = Self { dir: directory, file, path, had_log };
        lock.sign(had_log);
        Ok(lock)
    }

    /// Notes that there is a log: from now on it is missed if it is gone.
    pub(crate) fn note_log(&mut self) {
        if !std::mem::replace(&mut self.had_log, true) {
            self.sign(true);
        }
    }

    /// A full disk is no reason not to serve what is there.
    fn sign(&mut self, has_log: bool) {
        let text = format!("{}\n{}", std::process::id(), if has_log { "log\n" } else { "" });
        let mut write = || -> io::Result<()> {
            self.file.rewind()?;
            self.file.write_all(text.as_bytes())?;
            self.file.set_len(text.len() as u64)
        };
        if let Err(error) = write() {
            tracing::warn!(path = %self.path.display(), %error, "could not note who uses the store");
        }
    }
}

fn read(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
    text
}

/// The process that has the lock, if it has got round to writing its number.
fn holder(text: &str) -> Option<u32> {
    text.lines().next()?.trim().parse().ok()
}
