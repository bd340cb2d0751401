//! The audit log: lines of JSON in a file that is rotated.
//!
//! A thread of its own writes. What waits for it is bounded: a request whose events find no room waits, and events of
//! answers that have already been sent are dropped and counted. Names of old files are those of upstream's logger:
//! `audit-2026-01-31T12-00-00.000.log` beside `audit.log`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// How many bytes of events may wait to be written, and how many events.
const BUFFER_BYTES: usize = 16 << 20;
const BUFFER_EVENTS: usize = 10_000;
/// A disk that is full is tried again this often.
const RETRY: Duration = Duration::from_secs(1);
const BACKUP_TIME: &str = "%Y-%m-%dT%H-%M-%S%.3f";

/// How files are rotated; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rotation {
    /// Of one file, in bytes.
    pub(super) size: u64,
    /// Old files.
    pub(super) backups: usize,
    /// How long these are kept.
    pub(super) age_days: u32,
}

/// Where events go.
#[derive(Debug)]
pub(super) struct Log {
    events: mpsc::Sender<Message>,
    room: Arc<Semaphore>,
    pub(super) written: Arc<AtomicU64>,
    pub(super) dropped: AtomicU64,
}

enum Message {
    Line(Vec<u8>, OwnedSemaphorePermit),
    Flush(oneshot::Sender<()>),
}

impl Log {
    /// Opens the file and starts the thread. What is there is kept.
    pub(super) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let file = Rotated::open(path, rotation)?;
        let (events, waiting) = mpsc::channel(BUFFER_EVENTS);
        let written = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&written);
        std::thread::Builder::new().name("audit-log".into()).spawn(move || write(file, waiting, &counter))?;
        let room = Arc::new(Semaphore::new(BUFFER_BYTES));
        Ok(Self { events, room, written, dropped: AtomicU64::new(0) })
    }

    /// Writes a line, after it has waited for room if there is none.
    pub(super) async fn write(&self, line: Vec<u8>) {
        let Ok(permit) = Arc::clone(&self.room).acquire_many_owned(size(&line)).await else { return };
        if self.events.send(Message::Line(line, permit)).await.is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes a line if there is room for it, and drops it otherwise.
    pub(super) fn try_write(&self, line: Vec<u8>) {
        let permit = Arc::clone(&self.room).try_acquire_many_owned(size(&line));
        let sent = permit.is_ok_and(|permit| self.events.try_send(Message::Line(line, permit)).is_ok());
        if !sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns once everything that was written so far is in the file.
    pub(super) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.events.send(Message::Flush(done)).await.is_ok() {
            let _ = flushed.await;
        }
    }
}

fn size(line: &[u8]) -> u32 {
    u32::try_from(line.len().min(BUFFER_BYTES)).unwrap_or(u32::MAX)
}

/// Writes until all senders are gone.
fn write(mut file: Rotated, mut waiting: mpsc::Receiver<Message>, written: &AtomicU64) {
    let mut failed = false;
    while let Some(message) = waiting.blocking_recv() {
        match message {
            Message::Flush(done) => {
                let _ = done.send(());
            }
            Message::Line(line, _permit) => {
                while let Err(error) = file.append(&line, Timestamp::now()) {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::error!(path = %file.path.display(), %error, "audit events wait: the log cannot be written");
                    }
                    if waiting.is_closed() {
                        return;
                    }
                    std::thread::sleep(RETRY);
                }
                if std::mem::take(&mut failed) {
                    tracing::info!(path = %file.path.display(), "audit events are written again");
                }
                written.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A file that is moved aside when it is full.
#[derive(Debug)]
struct Rotated {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
}

impl Rotated {
    fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let file = create(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), rotation, file, size })
    }

    /// Appends a line. A line that was written in part is completed by the next try, or ended.
    fn append(&mut self, line: &[u8], now: Timestamp) -> io::Result<()> {
        let length = line.len() as u64;
        let max = self.rotation.size;
        if max > 0 && self.size > 0 && self.size + length > max {
            self.rotate(now)?;
        }
        let before = self.size;
        if let Err(error) = self.file.write_all(line) {
            // Half a line is of no use.
            let _ = self.file.set_len(before);
            return Err(error);
        }
        self.size += length;
        Ok(())
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        let (prefix, suffix) = self.affixes();
        let backup = self.path.with_file_name(format!("{prefix}{}{suffix}", now.strftime(BACKUP_TIME)));
        std::fs::rename(&self.path, backup)?;
        self.file = create(&self.path)?;
        self.size = 0;
        self.prune(now);
        Ok(())
    }

    /// What names of old files begin and end with.
    fn affixes(&self) -> (String, String) {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let suffix = self.path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
        (format!("{stem}-"), suffix.unwrap_or_default())
    }

    /// Deletes old files that are too many or too old.
    fn prune(&self, now: Timestamp) {
        let (prefix, suffix) = self.affixes();
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        let mut backups: Vec<(Timestamp, PathBuf)> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let name = path.file_name()?.to_str()?;
                let time = name.strip_prefix(&prefix)?.strip_suffix(&*suffix)?;
                Some((backup_time(time)?, path))
            })
            .collect();
        backups.sort_by(|a, b| b.cmp(a));
        let oldest = now.checked_sub(SignedDuration::from_hours(24 * i64::from(self.rotation.age_days))).ok();
        let is_old = |time: Timestamp| self.rotation.age_days > 0 && oldest.is_some_and(|oldest| time < oldest);
        for (i, (time, path)) in backups.into_iter().enumerate() {
            let is_surplus = self.rotation.backups > 0 && i >= self.rotation.backups;
            if (is_surplus || is_old(time))
                && let Err(error) = std::fs::remove_file(&path)
            {
                tracing::warn!(path = %path.display(), %error, "an old audit log cannot be deleted");
            }
        }
    }
}

fn backup_time(text: &str) -> Option<Timestamp> {
    let (seconds, millis) = text.split_once('.')?;
    let time = jiff::civil::DateTime::strptime("%Y-%m-%dT%H-%M-%S", seconds).ok()?;
    let millis: i64 = millis.parse().ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    time.checked_add(SignedDuration::from_millis(millis)).ok()
}

/// Events may tell about anything, so only the owner reads them.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).expect("a directory");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
        names.sort();
        names
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a time")
    }

    #[test]
    fn full_files_are_rotated_and_old_ones_deleted() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.log");
        let rotation = Rotation { size: 10, backups: 2, age_days: 0 };
        let mut file = Rotated::open(&path, rotation).expect("opened");
        for second in 0..5 {
            file.append(b"1234567\n", at(second)).expect("written");
        }
        let expected = ["audit-2023-11-14T22-13-23.000.log", "audit-2023-11-14T22-13-24.000.log", "audit.log"];
        assert_eq!(names(dir.path()), expected);
        assert_eq!(std::fs::read(&path).expect("read"), b"1234567\n");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        file.rotation = Rotation { size: 10, backups: 0, age_days: 1 };
        file.append(b"1234567\n", at(86_405)).expect("written");
        assert_eq!(names(dir.path()).len(), 2, "{:?}", names(dir.path()));
    }

    #[test]
    fn a_file_that_is_there_is_continued() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.log");
        std::fs::write(&path, "old\n").expect("written");
        let rotation = Rotation { size: 0, backups: 0, age_days: 0 };
        let mut file = Rotated::open(&path, rotation).expect("opened");
        file.append(b"new\n", at(0)).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "old\nnew\n");
    }

    #[tokio::test]
    async fn events_that_find_no_room_are_counted() {
        let (events, mut waiting) = mpsc::channel(2);
        let room = Arc::new(Semaphore::new(BUFFER_BYTES));
        let log = Log { events, room, written: Arc::default(), dropped: AtomicU64::new(0) };
        for _ in 0..5 {
            log.try_write(vec![0; 10]);
        }
        assert_eq!(log.dropped.load(Ordering::Relaxed), 3);
        log.room.forget_permits(BUFFER_BYTES);
        waiting.recv().await;
        log.try_write(vec![0; 10_000_000]);
        assert_eq!(log.dropped.load(Ordering::Relaxed), 4);
    }
}
