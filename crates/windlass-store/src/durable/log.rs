//! The log on disk, as a writer sees it: segments one after the other, the last one growing.
//!
//! ```text
//!  log-2.log           log-911.log          log-1804.log
//!  [batch…][batch][S]  [batch][batch…][S]   [batch][batch] 0 0 0 0 0 0
//!   sealed: never written again              current: allocated in advance
//! ```
//!
//! A new segment is made durable before the old one is sealed, so a sealed segment without a
//! successor means that a file was lost, and never that a crash came at a bad time.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{self, Disk, Failure, Segment};
use super::format::{FILE_HEADER, FileHeader, FileKind, FrameBuf, FrameKind};
use crate::Revision;

/// A segment that will not be written again.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) path: PathBuf,
    /// The last revision it holds.
    pub(crate) last: Revision,
    pub(crate) bytes: u64,
}

/// The segment being written.
pub(crate) struct Current {
    pub(crate) segment: Box<dyn Segment>,
    pub(crate) path: PathBuf,
    pub(crate) salt: u32,
    /// The first revision it holds, or will hold.
    pub(crate) first: Revision,
    /// Where the next frame goes.
    pub(crate) end: u64,
}

/// See the module's introduction.
pub(crate) struct Log {
    pub(crate) dir: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    /// When a segment is full.
    pub(crate) segment_bytes: u64,
    pub(crate) sealed: Vec<Sealed>,
    pub(crate) current: Current,
}

impl Log {
    /// Makes the segment that begins with `revision`.
    pub(crate) fn begin(
        dir: &Path,
        disk: &dyn Disk,
        segment_bytes: u64,
        revision: Revision,
    ) -> Result<Current, Failure> {
        let path = dir.join(FileKind::Log.file_name(revision));
        let temporary = path.with_extension("tmp");
        let salt = RandomState::new().hash_one(revision) as u32;
        let file = disk::create_file(&temporary)?;
        disk::allocate(&file, segment_bytes).map_err(Failure::at("allocate", &path))?;
        let header = FileHeader { kind: FileKind::Log, salt, revision }.encode();
        Segment::write(&file, &header, 0).map_err(Failure::at("write", &path))?;
        file.sync_all().map_err(Failure::at("sync", &path))?;
        disk::publish(&temporary, &path)?;
        let segment = disk.segment(file, &path);
        Ok(Current { segment, path, salt, first: revision, end: FILE_HEADER as u64 })
    }

    /// Writes a batch whose first transaction is at `revision`, and syncs it.
    pub(crate) fn append(&mut self, frame: &mut FrameBuf, revision: Revision) -> Result<(), Failure> {
        let full = self.current.end + frame.len() as u64 > self.segment_bytes;
        if full {
            self.rotate(revision)?;
        }
        self.current.write(frame, FrameKind::Batch, revision)
    }

    /// Records that history up to `revision` was compacted.
    pub(crate) fn compaction(&mut self, revision: Revision) -> Result<(), Failure> {
        self.current.write(&mut FrameBuf::new(), FrameKind::Compaction, revision)
    }

    /// Ends the current segment; the next transaction, at `revision`, goes into a new one. A segment
    /// without transactions is new enough.
    pub(crate) fn rotate(&mut self, revision: Revision) -> Result<(), Failure> {
        if revision == self.current.first {
            return Ok(());
        }
        let next = Self::begin(&self.dir, &*self.disk, self.segment_bytes, revision)?;
        let mut full = std::mem::replace(&mut self.current, next);
        full.write(&mut FrameBuf::new(), FrameKind::Seal, revision)?;
        full.segment.truncate(full.end).map_err(Failure::at("truncate", &full.path))?;
        self.sealed.push(Sealed { path: full.path, last: revision - 1, bytes: full.end });
        Ok(())
    }

    /// The sealed segments that hold nothing beyond `revision`.
    pub(crate) fn sealed_upto(&self, revision: Revision) -> &[Sealed] {
        let count = self.sealed.partition_point(|sealed| sealed.last <= revision);
        &self.sealed[..count]
    }

    /// What those segments take.
    pub(crate) fn sealed_bytes_upto(&self, revision: Revision) -> u64 {
        self.sealed_upto(revision).iter().map(|sealed| sealed.bytes).sum()
    }

    /// Takes note that the segments which hold nothing beyond `revision` are gone.
    pub(crate) fn forget_upto(&mut self, revision: Revision) {
        self.sealed.retain(|sealed| sealed.last > revision);
    }

    /// Leaves the log as short as it can be, marked as complete up to `revision`.
    pub(crate) fn end(&mut self, revision: Revision) -> Result<(), Failure> {
        self.current.write(&mut FrameBuf::new(), FrameKind::End, revision)?;
        let Current { segment, path, end, .. } = &self.current;
        segment.truncate(*end).map_err(Failure::at("truncate", path))
    }
}

impl Current {
    fn write(&mut self, frame: &mut FrameBuf, kind: FrameKind, revision: Revision) -> Result<(), Failure> {
        let bytes = frame.finish(kind, revision, self.salt);
        let written = self
            .segment
            .write(bytes, self.end)
            .map_err(Failure::at("write", &self.path))
            .and_then(|()| self.segment.sync().map_err(Failure::at("sync", &self.path)));
        if let Err(failure) = written {
            // What came of the write is unknown. It was not acknowledged, so it had better not be
            // found at the next start; but the disk may well refuse this too.
            if let Err(error) = self.segment.truncate(self.end) {
                tracing::debug!(path = %self.path.display(), %error, "could not take back a failed write");
            }
            return Err(failure);
        }
        self.end += bytes.len() as u64;
        Ok(())
    }
}
