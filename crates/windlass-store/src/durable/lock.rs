//! One process at a time: the lock on a store's directory.
//!
//! The kernel gives the lock back when the process ends, however it ends, so there is nothing to
//! clean up after a crash.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::disk::Failure;
use crate::OpenError;

/// Held for as long as the store is open.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Closing the file would not do: a child that this process is just starting shares it until it
    /// has become another program, and with it the lock.
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::flock(&self.file, FlockOperation::Unlock) {
            tracing::warn!(%error, "could not unlock the store");
        }
    }
}

impl Lock {
    pub(crate) fn acquire(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join("LOCK");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(Failure::at("open", &path))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(OpenError::Locked { dir: dir.to_owned(), pid: holder(&mut file) });
            }
            Err(error) => return Err(Failure::at("lock", &path)(error.into()).into()),
        }
        sign(&mut file).map_err(Failure::at("write", &path))?;
        Ok(Self { file })
    }
}

/// The process that has the lock, if it has got round to writing its number.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}
