//! Opening a store: from the files of a directory back to the history they hold.
//!
//! ```text
//!  snapshot-1200.snap      log-911.log        log-1804.log
//!  state at 1200       +   …1201 to 1803  +   1804 to the newest [torn]
//!                                                                 └ cut off and reported
//! ```
//!
//! A crash can only have torn what was being written: the last frame of the last segment, or the seal
//! of the one before. That is cut off, since no writer was ever told that it happened. Any other damage
//! means that something acknowledged may be missing, and the store is not opened at all.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::disk::{self, Disk, Failure};
use super::format::{self, Body, FILE_HEADER, FileHeader, FileKind, Frame, FrameKind, Record};
use super::log::{Current, Log, Sealed};
use super::{DurableOptions, Recovery, snapshot};
use crate::history::{FIRST, History, delete_event, put_event};
use crate::{OpenError, Revision};

/// Brings a locked directory back to life.
pub(crate) fn recover(
    dir: &Path,
    options: &DurableOptions,
    disk: Arc<dyn Disk>,
    had_log: bool,
) -> Result<(History, Log, Recovery), OpenError> {
    let files = Files::list(dir)?;
    let (mut history, snapshot) = match files.snapshots.last() {
        Some((revision, path)) => (snapshot::read(path, *revision, options.history)?, Some(*revision)),
        None => (History::new(options.history), None),
    };
    let segments = files.segments_after(history.revision());
    let mut recovery = Recovery { snapshot, segments: segments.len(), ..Recovery::default() };
    let mut sealed = Vec::new();
    let mut last = None;
    for (index, (first, path)) in segments.iter().enumerate() {
        let next = segments.get(index + 1).map(|(first, _)| *first);
        let tail = Replay { path, history: &mut history, recovery: &mut recovery }.segment(*first, next)?;
        if let Some(next) = next {
            sealed.push(Sealed { path: path.clone(), last: next - 1, bytes: tail.end });
        } else {
            last = Some((path, tail));
        }
    }
    // Nothing has been changed up to here, so that a store which cannot be opened stays as it was.
    for Sealed { path, bytes, .. } in &sealed {
        cut_off(path, *bytes)?;
    }
    let current = match last {
        Some((path, tail)) => reopen(path, tail, &*disk, options.segment_bytes)?,
        None if snapshot.is_some() => {
            let path = dir.join(FileKind::Log.file_name(history.revision() + 1));
            return Err(OpenError::Missing { path, problem: "there is a snapshot, but no log that follows it" });
        }
        None if had_log => {
            let path = dir.join(FileKind::Log.file_name(FIRST + 1));
            return Err(OpenError::Missing { path, problem: "the store has been used, but it has no log" });
        }
        None => Log::begin(dir, &*disk, options.segment_bytes, FIRST + 1)?,
    };
    files.remove_obsolete(dir, &segments)?;
    recovery.revision = history.revision();
    recovery.compacted = history.compacted();
    recovery.entries = history.live_entries();
    let log = Log { dir: dir.to_owned(), disk, segment_bytes: options.segment_bytes, sealed, current, is_lost: false };
    Ok((history, log, recovery))
}

/// Takes away what lies behind the end of a segment that will not be written again.
fn cut_off(path: &Path, end: u64) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).open(path).map_err(Failure::at("open", path))?;
    if file.metadata().map_err(Failure::at("read", path))?.len() > end {
        file.set_len(end).map_err(Failure::at("truncate", path))?;
    }
    Ok(())
}

/// Makes the last segment ready to be written on.
fn reopen(path: &Path, tail: Tail, disk: &dyn Disk, segment_bytes: u64) -> Result<Current, Failure> {
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(Failure::at("open", path))?;
    // Shrinking first makes sure that what is allocated then reads as zeros.
    file.set_len(tail.end).map_err(Failure::at("truncate", path))?;
    if let Err(failure) = disk::allocate(&file, segment_bytes.max(tail.end)).map_err(Failure::at("allocate", path)) {
        // What is there can be read without space for more.
        if !failure.is_full() {
            return Err(failure);
        }
        tracing::warn!(path = %path.display(), "the disk is full: reads are served, and writes when there is space");
        file.set_len(tail.end).map_err(Failure::at("truncate", path))?;
    }
    // The process that wrote the last frames may have died before it could sync them.
    file.sync_all().map_err(Failure::at("sync", path))?;
    Ok(Current {
        segment: disk.segment(file, path),
        path: path.to_owned(),
        salt: tail.salt,
        first: tail.first,
        end: tail.end,
    })
}

/// The files of a directory, each kind in the order of revisions.
struct Files {
    snapshots: Vec<(Revision, PathBuf)>,
    segments: Vec<(Revision, PathBuf)>,
    temporary: Vec<PathBuf>,
}

impl Files {
    fn list(dir: &Path) -> Result<Self, Failure> {
        let mut files = Self { snapshots: Vec::new(), segments: Vec::new(), temporary: Vec::new() };
        for entry in fs::read_dir(dir).map_err(Failure::at("list", dir))? {
            let entry = entry.map_err(Failure::at("list", dir))?;
            if entry.file_type().map_err(Failure::at("list", dir))?.is_dir() {
                continue;
            }
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(revision) = FileKind::Snapshot.parse_name(name) {
                files.snapshots.push((revision, entry.path()));
            } else if let Some(revision) = FileKind::Log.parse_name(name) {
                files.segments.push((revision, entry.path()));
            } else if let Some(stem) = name.strip_suffix(".tmp")
                && (stem.starts_with("log-") || stem.starts_with("snapshot-"))
            {
                files.temporary.push(entry.path());
            }
        }
        files.snapshots.sort();
        files.segments.sort();
        Ok(files)
    }

    /// The segments that may hold something beyond `revision`: all but those whose successor begins
    /// at or before the revision after it.
    fn segments_after(&self, revision: Revision) -> Vec<(Revision, PathBuf)> {
        let successors = self.segments.iter().skip(1).map(|(first, _)| Some(*first)).chain([None]);
        self.segments
            .iter()
            .zip(successors)
            .filter(|(_, next)| next.is_none_or(|next| next > revision + 1))
            .map(|(segment, _)| segment.clone())
            .collect()
    }

    /// Removes what a crash left behind: unfinished files, and those a newer snapshot replaces.
    fn remove_obsolete(&self, dir: &Path, needed: &[(Revision, PathBuf)]) -> Result<(), Failure> {
        let old_snapshots = self.snapshots.iter().rev().skip(1).map(|(_, path)| path);
        let old_segments = self.segments.iter().filter(|segment| !needed.contains(segment)).map(|(_, path)| path);
        let obsolete: Vec<_> = self.temporary.iter().chain(old_snapshots).chain(old_segments).collect();
        for path in &obsolete {
            match fs::remove_file(path) {
                // The first segment is written under the name of one that was never finished, and is in place now.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed.map_err(Failure::at("remove", path))?,
            }
        }
        if obsolete.is_empty() { Ok(()) } else { disk::sync_dir(dir) }
    }
}

/// Where the whole frames of a segment end.
#[derive(Clone, Copy)]
struct Tail {
    salt: u32,
    first: Revision,
    end: u64,
}

/// An unfinished write at the end of a segment.
#[derive(Clone, Copy)]
struct Torn {
    bytes: u64,
    problem: &'static str,
}

/// The replay of one segment.
struct Replay<'a> {
    path: &'a Path,
    history: &'a mut History,
    recovery: &'a mut Recovery,
}

impl Replay<'_> {
    /// Replays the segment that begins with `first`, and is followed by one that begins with `next`.
    fn segment(&mut self, first: Revision, next: Option<Revision>) -> Result<Tail, OpenError> {
        let file = fs::read(self.path).map_err(Failure::at("read", self.path))?;
        let header =
            FileHeader::decode(FileKind::Log, &file).map_err(|fault| OpenError::of_header(fault, self.path))?;
        if header.revision != first {
            return Err(self.corrupt(16, "the file's name and its header name different revisions"));
        }
        if first > self.history.revision() + 1 {
            return Err(self.gap(self.history.revision() + 1));
        }
        let mut position = first;
        let mut offset = FILE_HEADER;
        let mut sealed = false;
        let mut torn = None;
        while offset < file.len() {
            let (frame, end) = match format::frame_at(&file, offset, header.salt) {
                Ok(found) => found,
                Err(problem) => {
                    torn = self.torn(&file, offset, header.salt, problem)?;
                    break;
                }
            };
            if sealed {
                return Err(self.corrupt(offset, "the segment goes on after its seal"));
            }
            match frame.kind {
                FrameKind::Batch => position = self.batch(frame, position, offset)?,
                FrameKind::Compaction if frame.revision <= self.history.revision() => {
                    // At or below the snapshot this says nothing new, and changes nothing.
                    self.history.compact(frame.revision).map_err(|_| self.corrupt(offset, "compacts the future"))?;
                    while !self.history.trim().is_empty() {}
                }
                FrameKind::Seal if frame.revision == position => sealed = true,
                FrameKind::End if frame.revision + 1 == position => {}
                _ => return Err(self.corrupt(offset, "the frame does not belong here")),
            }
            offset = end;
        }
        match (next, torn) {
            (Some(next), Some(torn)) if next != position => {
                return Err(self.corrupt(offset, torn.problem));
            }
            (Some(next), None) if next > position => return Err(self.gap(position)),
            (Some(next), None) if next < position => {
                return Err(self.corrupt(offset, "the next segment begins before this one ends"));
            }
            (None, _) if sealed => {
                return Err(self.missing(position, "the segment before it was ended to begin it"));
            }
            (None, _) if position <= self.history.revision() => {
                return Err(self.corrupt(offset, "the log ends before the revision of the snapshot"));
            }
            (_, Some(torn)) => self.report(offset, torn),
            _ => {}
        }
        Ok(Tail { salt: header.salt, first, end: offset as u64 })
    }

    /// Replays a batch, and gives the revision after it.
    fn batch(&mut self, frame: Frame<'_>, mut position: Revision, offset: usize) -> Result<Revision, OpenError> {
        if frame.revision != position {
            return Err(self.corrupt(offset, "transactions are missing before this frame"));
        }
        let mut body = Body::of(frame);
        for _ in 0..frame.count {
            self.transaction(&mut body, position).ok_or_else(|| self.corrupt(offset, "a transaction is malformed"))?;
            position += 1;
        }
        if body.is_empty() { Ok(position) } else { Err(self.corrupt(offset, "the frame holds more than it says")) }
    }

    fn transaction(&mut self, body: &mut Body<'_>, revision: Revision) -> Option<()> {
        // The snapshot has seen the first part of the segment that it was taken in the middle of.
        let known = revision <= self.history.revision();
        let writes = body.number()?;
        let mut events = Vec::with_capacity(writes.min(1_024) as usize);
        for _ in 0..writes {
            let record = body.record()?;
            if known {
                continue;
            }
            events.push(match record {
                Record::Put { key, value } => {
                    let previous = self.history.get(key);
                    let key = previous.as_ref().map_or_else(|| Bytes::copy_from_slice(key), |entry| entry.key.clone());
                    put_event(key, Bytes::copy_from_slice(value), revision, previous)
                }
                Record::Delete { key, last } => {
                    delete_event(last.map(Bytes::copy_from_slice), revision, self.history.get(key)?)
                }
            });
        }
        if !known {
            self.history.apply(events.into_iter().map(Arc::new));
            self.history.trim();
            self.recovery.transactions += 1;
        }
        Some(())
    }

    /// Looks at what is not a frame. `None`: zeros, the space allocated in advance. Otherwise it must
    /// be damage that a crash explains, with nothing whole after it.
    fn torn(&self, file: &[u8], offset: usize, salt: u32, problem: &'static str) -> Result<Option<Torn>, OpenError> {
        let bytes = without_zeros(&file[offset..]).len();
        if bytes == 0 {
            return Ok(None);
        }
        if format::any_frame_after(file, offset, salt) {
            return Err(self.corrupt(offset, problem));
        }
        Ok(Some(Torn { bytes: bytes as u64, problem }))
    }

    fn report(&mut self, offset: usize, torn: Torn) {
        let Torn { bytes, problem } = torn;
        tracing::warn!(
            path = %self.path.display(),
            offset,
            bytes,
            problem,
            "cut off the end of the log, which is no whole write: one that was under way and never acknowledged, \
             unless the disk has lost something"
        );
        self.recovery.truncated_bytes += bytes;
    }

    fn corrupt(&self, offset: usize, problem: &'static str) -> OpenError {
        OpenError::Corrupt { path: self.path.to_owned(), offset: offset as u64, problem }
    }

    /// The next segment begins later than with `revision`.
    fn gap(&self, revision: Revision) -> OpenError {
        self.missing(revision, "the log goes on, but not from there")
    }

    fn missing(&self, revision: Revision, problem: &'static str) -> OpenError {
        let path = self.path.with_file_name(FileKind::Log.file_name(revision));
        OpenError::Missing { path, problem }
    }
}

/// The bytes up to the last one that is not zero. Whole pages of zeros are passed over quickly.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    const PAGE: usize = 4_096;
    let mut rest = bytes;
    while let Some((before, page)) = rest.split_last_chunk::<PAGE>()
        && *page == [0; PAGE]
    {
        rest = before;
    }
    let length = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &rest[..length]
}
