//! The errors of a store.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Revision;

/// Why a store could not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The revision asked for has been dropped.
    #[error("revision {asked} has been compacted; the oldest retained revision is {oldest}")]
    Compacted {
        /// The revision asked for.
        asked: Revision,
        /// The oldest that can be read.
        oldest: Revision,
    },
    /// The revision asked for does not exist yet.
    #[error("revision {asked} is in the future; the newest revision is {newest}")]
    Future {
        /// The revision asked for.
        asked: Revision,
        /// The newest there is.
        newest: Revision,
    },
    /// A transaction names the same key twice.
    #[error("write {index} of the transaction names a key that an earlier write names too")]
    RepeatedKey {
        /// The index of the second write to the key.
        index: usize,
    },
    /// A transaction is larger than any store takes.
    #[error("the transaction's keys and values take {bytes} bytes; at most {limit} are allowed")]
    TooLarge {
        /// The size of the transaction.
        bytes: usize,
        /// The largest size allowed.
        limit: usize,
    },
    /// Writing to disk failed. The transaction is not visible, and the store accepts no more writes until it
    /// is opened again. Reads still work.
    #[error("could not {action} {}; the store accepts no more writes until it is opened again", path.display())]
    Io {
        /// What was attempted, as in "could not … the file".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: Arc<io::Error>,
    },
    /// The disk is full. The transaction is not visible; the next one is tried again. Reads still work.
    #[error("could not {action} {}: the disk is full, and writes are accepted again when there is space", path.display())]
    Full {
        /// What was attempted, as in "could not … the file".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: Arc<io::Error>,
    },
    /// The store was closed. Reads still work.
    #[error("the store is closed")]
    Closed,
}

/// Why a store on disk could not be opened. One that is refused for what its files hold is left
/// exactly as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the store open, or this one has it open already.
    #[error(
        "the store in {} is in use by {}: stop that, or choose another directory",
        dir.display(),
        pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Locked {
        /// The store's directory.
        dir: PathBuf,
        /// The process that has it open, if it could be found out.
        pid: Option<u32>,
    },
    /// The system refused.
    #[error("could not {action} {}", path.display())]
    Io {
        /// What was attempted, as in "could not … the file".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: Arc<io::Error>,
    },
    /// A file holds something that no crash leaves behind, so acknowledged writes may be lost.
    #[error(
        "{} is damaged at byte {offset}: {problem}. Restore its directory from a backup, or move it away to start empty",
        path.display()
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong there.
        problem: &'static str,
    },
    /// A file that must be there is not, so acknowledged writes may be lost.
    #[error(
        "{} is missing: {problem}. Restore its directory from a backup, or move it away to start empty",
        path.display()
    )]
    Missing {
        /// The file that should be there.
        path: PathBuf,
        /// How that is known.
        problem: &'static str,
    },
    /// A file was written by another version of this software, in a format that this one cannot read.
    #[error("{} is in format {found}, but only format {supported} is understood: use the version that wrote it", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format it says it is in.
        found: u32,
        /// The format understood here.
        supported: u32,
    },
}
