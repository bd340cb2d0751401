//! The few things a durable store asks of a file system.
//!
//! Only the writes of the log go through a trait, because only there must a test be able to fail
//! them or to look at them; everything else uses files directly.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::StoreError;

/// Where segments come from.
pub(crate) trait Disk: Send + Sync {
    /// Takes charge of the writes to a segment.
    fn segment(&self, file: File, path: &Path) -> Box<dyn Segment>;
}

/// A segment of the log that is being written.
pub(crate) trait Segment: Send {
    /// Writes all of `bytes` at `offset`.
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Returns when what was written will survive the machine.
    fn sync(&self) -> io::Result<()>;
    /// Cuts the file off.
    fn truncate(&self, length: u64) -> io::Result<()>;
}

/// The machine's own file system.
pub(crate) struct FileSystem;

impl Disk for FileSystem {
    fn segment(&self, file: File, _path: &Path) -> Box<dyn Segment> {
        Box::new(file)
    }
}

impl Segment for File {
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.sync_all()
    }
}

/// An operation on a file that failed. Cheap to clone: all that wait for it are told.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) action: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) source: Arc<io::Error>,
}

impl Failure {
    /// For `map_err`: says what was being done, and to what.
    pub(crate) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source: Arc::new(source) }
    }
}

impl Failure {
    /// Whether the disk, or what the user may have of it, is full: `ulimit -f` limits each file.
    pub(crate) fn is_full(&self) -> bool {
        let kind = self.source.kind();
        matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
    }

    /// The error of a write that was taken back.
    pub(crate) fn no_space(self) -> StoreError {
        let Self { action, path, source } = self;
        StoreError::Full { action, path, source }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        let Failure { action, path, source } = failure;
        Self::Io { action, path, source }
    }
}

/// Makes the directory, and those above it, if it is not there.
pub(crate) fn create_dir(dir: &Path) -> Result<(), Failure> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(Failure::at("create", dir))?;
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or(Ok(()), sync_dir)
}

/// Makes renames and removals in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), Failure> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(Failure::at("sync", dir))
}

/// Creates a file that only its owner can read; one that is already there is emptied.
pub(crate) fn create_file(path: &Path) -> Result<File, Failure> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(Failure::at("create", path))
}

/// Gives a finished temporary file its name, durably.
pub(crate) fn publish(temporary: &Path, path: &Path) -> Result<(), Failure> {
    fs::rename(temporary, path).map_err(Failure::at("rename", temporary))?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Makes a file at least `length` bytes long, reserving the space where the file system can: a write
/// into reserved space is cheaper to sync, and cannot run out of disk.
pub(crate) fn allocate(file: &File, length: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            if file.metadata()?.len() < length {
                file.set_len(length)?;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
