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
    /// Whether something failed that could not be taken back, so that it is not known what the disk holds.
    pub(crate) is_lost: bool,
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
        let header = FileHeader { kind: FileKind::Log, salt, revision }.encode();
        let made = disk::allocate(&file, segment_bytes)
            .map_err(Failure::at("allocate", &path))
            .and_then(|()| Segment::write(&file, &header, 0).map_err(Failure::at("write", &path)))
            .and_then(|()| file.sync_all().map_err(Failure::at("sync", &path)));
        if let Err(failure) = made {
            // On a full disk it would be in the way.
            let _ = std::fs::remove_file(&temporary);
            return Err(failure);
        }
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
        let written = self.current.write(frame, FrameKind::Batch, revision);
        self.noted(written)
    }

    /// Records that history up to `revision` was compacted.
    pub(crate) fn compaction(&mut self, revision: Revision) -> Result<(), Failure> {
        let written = self.current.write(&mut FrameBuf::new(), FrameKind::Compaction, revision);
        self.noted(written)
    }

    /// Notes whether a failed write could be taken back.
    fn noted(&mut self, written: Result<(), Unwritten>) -> Result<(), Failure> {
        written.map_err(|Unwritten { failure, is_taken_back }| {
            self.is_lost |= !is_taken_back;
            failure
        })
    }

    /// Ends the current segment; the next transaction, at `revision`, goes into a new one. A segment
    /// without transactions is new enough.
    pub(crate) fn rotate(&mut self, revision: Revision) -> Result<(), Failure> {
        if revision == self.current.first {
            return Ok(());
        }
        let next = Self::begin(&self.dir, &*self.disk, self.segment_bytes, revision)?;
        if let Err(Unwritten { failure, is_taken_back }) =
            self.current.write(&mut FrameBuf::new(), FrameKind::Seal, revision)
        {
            // Without a seal the old segment can go on, if the new one is gone.
            let removed = std::fs::remove_file(&next.path).is_ok() && disk::sync_dir(&self.dir).is_ok();
            self.is_lost |= !(is_taken_back && removed);
            return Err(failure);
        }
        let full = std::mem::replace(&mut self.current, next);
        if let Err(error) = full.segment.truncate(full.end) {
            self.is_lost = true;
            return Err(Failure::at("truncate", &full.path)(error));
        }
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
        let written = self.current.write(&mut FrameBuf::new(), FrameKind::End, revision);
        self.noted(written)?;
        let Current { segment, path, end, .. } = &self.current;
        segment.truncate(*end).map_err(Failure::at("truncate", path))
    }
}

/// A frame that was not written.
struct Unwritten {
    failure: Failure,
    /// Whether the segment is as it was before.
    is_taken_back: bool,
}

impl Current {
    fn write(&mut self, frame: &mut FrameBuf, kind: FrameKind, revision: Revision) -> Result<(), Unwritten> {
        let bytes = frame.finish(kind, revision, self.salt);
        let written = self
            .segment
            .write(bytes, self.end)
            .map_err(Failure::at("write", &self.path))
            .and_then(|()| self.segment.sync().map_err(Failure::at("sync", &self.path)));
        if let Err(failure) = written {
            // What came of the write is unknown. It was not acknowledged, so it had better not be
            // found at the next start; but the disk may well refuse this too.
            let taken_back = self.segment.truncate(self.end);
            if let Err(error) = &taken_back {
                tracing::debug!(path = %self.path.display(), %error, "could not take back a failed write");
            }
            return Err(Unwritten { failure, is_taken_back: taken_back.is_ok() });
        }
        self.end += bytes.len() as u64;
        Ok(())
    }
}
