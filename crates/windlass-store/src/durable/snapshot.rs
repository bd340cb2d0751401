//! Snapshots: the state at one revision in one file, so that the log before it can go.
//!
//! A snapshot is taken at the *oldest* readable revision, not the newest: the log after it then holds
//! exactly the history that memory holds, and a watch can resume over a restart as far back as it
//! could have without one. Taking it reads the shared state in short slices between writes.

use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;

use super::disk::{self, Failure};
use super::format::{Body, FILE_HEADER, FRAME_HEADER, FileHeader, FileKind, FrameBuf, FrameHeader, FrameKind};
use crate::history::{History, HistoryBudget};
use crate::{Entry, OpenError, Revision};

/// How many entries are read under one lock.
const SLICE: usize = 256;
/// How large a frame of entries grows.
const FRAME_BYTES: usize = 256 << 10;
/// How much is written between two syncs. Left to the end, the sync of a large file would hold up
/// those of the log.
const SYNC_BYTES: usize = 4 << 20;

/// Writes the state at the pinned revision. `None` when told to stop.
pub(crate) fn write(
    dir: &Path,
    history: &RwLock<History>,
    revision: Revision,
    stop: &AtomicBool,
) -> Result<Option<PathBuf>, Failure> {
    let path = dir.join(FileKind::Snapshot.file_name(revision));
    let temporary = path.with_extension("tmp");
    let written = write_temporary(&temporary, history, revision, stop);
    if let Ok(true) = written {
        return disk::publish(&temporary, &path).map(|()| Some(path));
    }
    if let Err(error) = fs::remove_file(&temporary) {
        tracing::debug!(path = %temporary.display(), %error, "could not remove an unfinished snapshot");
    }
    written.map(|_| None)
}

fn write_temporary(
    path: &Path,
    history: &RwLock<History>,
    revision: Revision,
    stop: &AtomicBool,
) -> Result<bool, Failure> {
    let mut file = disk::create_file(path)?;
    let salt = revision as u32;
    let header = FileHeader { kind: FileKind::Snapshot, salt, revision };
    file.write_all(&header.encode()).map_err(Failure::at("write", path))?;
    let mut frame = FrameBuf::new();
    let mut unsynced = 0;
    let mut write = |frame: &mut FrameBuf, kind, revision| -> Result<(), Failure> {
        let bytes = frame.finish(kind, revision, salt);
        file.write_all(bytes).map_err(Failure::at("write", path))?;
        unsynced += bytes.len();
        if unsynced > SYNC_BYTES || kind == FrameKind::Complete {
            file.sync_all().map_err(Failure::at("sync", path))?;
            unsynced = 0;
        }
        frame.clear();
        Ok(())
    };
    let mut total = 0_u64;
    let mut start = Bytes::new();
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let slice = history.read().pinned(start, SLICE);
        let Some(last) = slice.last() else { break };
        // The next key in byte order after the last one seen.
        start = [&last.key[..], &[0]].concat().into();
        for entry in &slice {
            frame.entry(entry);
            if frame.len() > FRAME_BYTES {
                write(&mut frame, FrameKind::Entries, 0)?;
            }
        }
        total += slice.len() as u64;
    }
    if frame.count() > 0 {
        write(&mut frame, FrameKind::Entries, 0)?;
    }
    frame.raw(&total.to_le_bytes());
    write(&mut frame, FrameKind::Complete, revision)?;
    Ok(true)
}

/// Reads a snapshot into a history that starts with it.
pub(crate) fn read(path: &Path, revision: Revision, budget: HistoryBudget) -> Result<History, OpenError> {
    let corrupt = |offset: u64, problem| OpenError::Corrupt { path: path.to_owned(), offset, problem };
    let file = File::open(path).map_err(Failure::at("open", path))?;
    let length = file.metadata().map_err(Failure::at("read", path))?.len();
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut read = |buffer: &mut [u8], offset: u64| -> Result<(), OpenError> {
        if offset + buffer.len() as u64 > length {
            return Err(corrupt(offset, "the file ends too early"));
        }
        Ok(file.read_exact(buffer).map_err(Failure::at("read", path))?)
    };
    let mut header = [0; FILE_HEADER];
    read(&mut header, 0)?;
    let header = FileHeader::decode(FileKind::Snapshot, &header).map_err(|fault| OpenError::of_header(fault, path))?;
    if header.revision != revision {
        return Err(corrupt(16, "the file's name and its header name different revisions"));
    }
    let mut history = History::starting_at(revision, budget);
    let mut last_key: Option<Bytes> = None;
    let mut offset = FILE_HEADER as u64;
    let mut body = Vec::new();
    loop {
        let mut header_bytes = [0; FRAME_HEADER];
        read(&mut header_bytes, offset)?;
        let frame_header =
            FrameHeader::decode(&header_bytes, header.salt).map_err(|problem| corrupt(offset, problem))?;
        let frame_end = offset + (FRAME_HEADER + frame_header.padded_body()) as u64;
        if frame_end > length {
            return Err(corrupt(offset, "the file ends within the frame"));
        }
        body.resize(frame_header.padded_body(), 0);
        read(&mut body, offset + FRAME_HEADER as u64)?;
        let frame = frame_header.with_body(&body, header.salt).map_err(|problem| corrupt(offset, problem))?;
        let mut pieces = Body::of(frame);
        match frame.kind {
            FrameKind::Entries => {
                for _ in 0..frame.count {
                    let entry: Entry = pieces.entry().ok_or_else(|| corrupt(offset, "an entry is malformed"))?;
                    if last_key.as_ref().is_some_and(|last| *last >= entry.key) {
                        return Err(corrupt(offset, "the entries are out of order"));
                    }
                    last_key = Some(entry.key.clone());
                    history.load(entry);
                }
            }
            FrameKind::Complete => {
                if pieces.long() != Some(history.live_entries() as u64) {
                    return Err(corrupt(offset, "the number of entries is wrong"));
                }
                if frame_end != length {
                    return Err(corrupt(frame_end, "the file goes on after its end"));
                }
                return Ok(history);
            }
            _ => return Err(corrupt(offset, "the frame does not belong into a snapshot")),
        }
        if !pieces.is_empty() {
            return Err(corrupt(offset, "the frame holds more than it says"));
        }
        offset = frame_end;
    }
}
