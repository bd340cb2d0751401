//! A disk that fails, and a machine that loses power: what cannot be had from a real file system on
//! demand.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::executor::block_on;
use futures::future::join_all;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::disk::{Disk, FileSystem, Segment};
use super::format::FrameKind;
use super::{Durable, DurableOptions};
use crate::{Expect, HistoryBudget, OpenError, Range, Revision, Store, StoreError, Txn, TxnResult, Value, Write};

const KEYS: Revision = 7;

fn options() -> DurableOptions {
    DurableOptions {
        history: HistoryBudget { bytes: 2_000, events: 10 },
        segment_bytes: 2_048,
        checkpoint_bytes: 4_096,
    }
}

/// The transaction that must get this revision: a put of the revision, padded to no round size.
fn txn(revision: Revision) -> Txn {
    let mut value = vec![b'.'; revision as usize * 37 % 700];
    value.push(b'=');
    let at = value.len();
    let key = format!("key-{}", revision % KEYS).into();
    vec![Write::Put { key, expect: Expect::Any, value: Value::splice(value, at) }]
}

/// What a store holds that has carried out the transactions up to `revision`.
fn state(revision: Revision) -> Vec<(Bytes, Revision)> {
    let mut state: Vec<_> = (revision.saturating_sub(KEYS - 1).max(2)..=revision)
        .map(|revision| (Bytes::from(format!("key-{}", revision % KEYS)), revision))
        .collect();
    state.sort();
    state
}

fn assert_holds_exactly(store: &Durable, revision: Revision, context: &str) {
    assert_eq!(*store.revision().borrow(), revision, "{context}");
    let snapshot = block_on(store.range(Range::prefix(""), None, 0)).expect("readable");
    let found: Vec<_> = snapshot.entries.iter().map(|entry| (entry.key.clone(), entry.modified)).collect();
    assert_eq!(found, state(revision), "{context}");
    for entry in &snapshot.entries {
        assert!(entry.value.ends_with(format!("={}", entry.modified).as_bytes()), "{context}: {entry:?}");
    }
    let events = block_on(store.events(store.compacted(), 0)).expect("retained");
    let revisions: Vec<_> = events.iter().map(|event| event.revision).collect();
    assert_eq!(revisions, (store.compacted() + 1..=revision).collect::<Vec<_>>(), "{context}");
}

/// What a segment is about to be told, and what becomes of it.
type Hook = dyn Fn(Operation<'_>, &Path) -> io::Result<()> + Send + Sync;

#[derive(Clone, Copy)]
enum Operation<'a> {
    Write { bytes: &'a [u8], offset: u64 },
    Sync,
    Truncate,
}

/// A disk that asks before every operation.
struct Hooked(Arc<Hook>);

struct HookedSegment {
    hook: Arc<Hook>,
    file: File,
    path: PathBuf,
}

impl Disk for Hooked {
    fn segment(&self, file: File, path: &Path) -> Box<dyn Segment> {
        Box::new(HookedSegment { hook: Arc::clone(&self.0), file, path: path.to_owned() })
    }
}

impl Segment for HookedSegment {
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        (self.hook)(Operation::Write { bytes, offset }, &self.path)?;
        self.file.write(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        (self.hook)(Operation::Sync, &self.path)?;
        Segment::sync(&self.file)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        (self.hook)(Operation::Truncate, &self.path)?;
        Segment::truncate(&self.file, length)
    }
}

fn open_hooked(dir: &Path, hook: impl Fn(Operation<'_>, &Path) -> io::Result<()> + Send + Sync + 'static) -> Durable {
    Durable::open_on(Arc::new(Hooked(Arc::new(hook))), dir, options()).expect("opens").0
}

/// Copies the files as they are at one moment, though a checkpoint may be at work on them.
fn copy(from: &Path) -> TempDir {
    let names = || -> Vec<_> {
        let files = fs::read_dir(from).expect("listed").map(|file| file.expect("listed").file_name());
        let mut names: Vec<_> = files.filter(|name| !name.to_string_lossy().ends_with(".tmp")).collect();
        names.sort();
        names
    };
    loop {
        let to = TempDir::new().expect("created");
        let before = names();
        let copied = before.iter().all(|name| fs::copy(from.join(name), to.path().join(name)).is_ok());
        if copied && names() == before {
            return to;
        }
    }
}

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The newest revision at the time a frame is written.
fn revision_before(frame: &[u8]) -> Revision {
    let revision = Revision::from_le_bytes(frame[16..24].try_into().expect("eight bytes"));
    match frame[4] {
        kind if kind == FrameKind::Batch as u8 || kind == FrameKind::Seal as u8 => revision - 1,
        kind if kind == FrameKind::End as u8 => revision,
        kind => panic!("a frame of kind {kind}"),
    }
}

/// The machine loses power in the middle of every single write: any subset of the sectors may have
/// reached the disk. What was acknowledged before is there, and of the batch all or nothing is.
#[test]
fn power_loss_tears_at_most_the_batch_being_written() {
    const SECTOR: usize = 128;
    const TRANSACTIONS: Revision = 120;
    let dir = TempDir::new().expect("created");
    let dice = Mutex::new(Dice(0x9e37_79b9_7f4a_7c15));
    let torn = Arc::new(AtomicUsize::new(0));
    let store = open_hooked(dir.path(), {
        let (dir, torn) = (dir.path().to_owned(), Arc::clone(&torn));
        move |operation, path| {
            let Operation::Write { bytes, offset } = operation else {
                return Ok(());
            };
            let acknowledged = revision_before(bytes);
            for keep in [0, 1, 2, 4] {
                let image = copy(&dir);
                let file = File::options().write(true).open(image.path().join(path.file_name().expect("named")))?;
                let mut whole = true;
                for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                    // Never, always, and about as often as not.
                    if keep == 1 || (keep > 1 && dice.lock().roll() % keep != 0) {
                        file.write_all_at(sector, offset + (index * SECTOR) as u64)?;
                    } else {
                        whole &= sector.iter().all(|byte| *byte == 0);
                    }
                }
                let (recovered, recovery) = Durable::open(image.path(), options()).expect("a crash is no damage");
                let context = format!("{} at {offset}, keep {keep}", path.display());
                if whole {
                    assert!(recovery.revision >= acknowledged, "{context}");
                    assert_eq!(recovery.truncated_bytes, 0, "{context}");
                } else {
                    assert_eq!(recovery.revision, acknowledged, "{context}");
                    torn.fetch_add(usize::from(recovery.truncated_bytes > 0), Ordering::SeqCst);
                }
                assert_holds_exactly(&recovered, recovery.revision, &context);
                // A store that was torn takes writes again, and keeps them.
                block_on(recovered.txn(txn(recovery.revision + 1))).expect("writable");
                drop(recovered);
                let (again, _) = Durable::open(image.path(), options()).expect("opens again");
                assert_holds_exactly(&again, recovery.revision + 1, &context);
            }
            Ok(())
        }
    });
    let mut revision = 1;
    while revision < TRANSACTIONS {
        let count = 1 + revision % 4;
        let crowd = join_all((1..=count).map(|n| store.txn(txn(revision + n))));
        assert!(block_on(crowd).into_iter().all(|result| matches!(result, Ok(TxnResult::Committed { .. }))));
        revision += count;
    }
    block_on(store.close()).expect("closes");
    assert!(torn.load(Ordering::SeqCst) > 50, "{torn:?}: the test tears too little to be worth its name");
}

/// No acknowledgement comes between a write and its sync, and one sync is enough for a crowd.
#[test]
fn acknowledged_means_synced() {
    let dir = TempDir::new().expect("created");
    let unsynced = Arc::new(AtomicUsize::new(0));
    let syncs = Arc::new(AtomicUsize::new(0));
    let store = open_hooked(dir.path(), {
        let (unsynced, syncs) = (Arc::clone(&unsynced), Arc::clone(&syncs));
        move |operation, _| {
            match operation {
                Operation::Write { .. } => unsynced.store(1, Ordering::SeqCst),
                Operation::Sync => {
                    unsynced.store(0, Ordering::SeqCst);
                    syncs.fetch_add(1, Ordering::SeqCst);
                }
                Operation::Truncate => {}
            }
            Ok(())
        }
    });
    for revision in 2..200 {
        block_on(store.txn(txn(revision))).expect("writable");
        assert_eq!(unsynced.load(Ordering::SeqCst), 0, "at {revision}");
    }
    let before = syncs.load(Ordering::SeqCst);
    let nothing = Write::Delete { key: "none".into(), expect: Expect::Any, last: None };
    block_on(store.txn(vec![nothing])).expect("writable");
    assert_eq!(syncs.load(Ordering::SeqCst), before, "what writes nothing waits for no disk");
    let crowd = join_all((200..400).map(|revision| store.txn(txn(revision))));
    assert!(block_on(crowd).iter().all(Result::is_ok));
    let syncs = syncs.load(Ordering::SeqCst) - before;
    assert!(syncs < 150, "{syncs} syncs for a crowd of 200");
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(5)
}

fn no_space() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

/// Fails the operations that `fails` picks, from the tenth transaction on, and checks what the store
/// makes of it.
fn check_failing_disk(fails: fn(Operation<'_>) -> bool) {
    let dir = TempDir::new().expect("created");
    let armed = Arc::new(AtomicUsize::new(0));
    let store = open_hooked(dir.path(), {
        let armed = Arc::clone(&armed);
        move |operation, _| {
            if armed.load(Ordering::SeqCst) == 1 && fails(operation) { Err(broken()) } else { Ok(()) }
        }
    });
    for revision in 2..=10 {
        block_on(store.txn(txn(revision))).expect("the disk is well");
    }
    armed.store(1, Ordering::SeqCst);
    for result in block_on(join_all((11..=13).map(|revision| store.txn(txn(revision))))) {
        let Err(StoreError::Io { path, source, .. }) = result else { panic!("{result:?}") };
        assert_eq!(source.kind(), broken().kind());
        assert!(path.starts_with(dir.path()), "{}", path.display());
    }
    assert_holds_exactly(&store, 10, "nothing unacknowledged is visible");
    // Space alone does not make it well again: what the disk holds is not known.
    armed.store(0, Ordering::SeqCst);
    let refused = block_on(store.txn(txn(11)));
    assert!(matches!(refused, Err(StoreError::Io { .. })), "{refused:?}");
    let refused = store.takes_writes();
    assert!(matches!(refused, Err(StoreError::Io { .. })), "{refused:?}");
    let refused = block_on(store.compact(10));
    assert!(matches!(refused, Err(StoreError::Io { .. })), "{refused:?}");
    let closed = block_on(store.close());
    assert!(matches!(closed, Err(StoreError::Io { .. })), "{closed:?}");
    let refused = block_on(store.txn(txn(11)));
    assert!(matches!(refused, Err(StoreError::Io { .. })), "the reason is still told: {refused:?}");
    assert_holds_exactly(&store, 10, "a closed store still reads");
    drop(store);
    let (store, _) = Durable::open(dir.path(), options()).expect("opens");
    assert_holds_exactly(&store, 10, "after opening again");
    block_on(store.txn(txn(11))).expect("writable");
    assert_holds_exactly(&store, 11, "and it goes on");
}

#[test]
fn a_failed_write_ends_writing_but_not_reading() {
    check_failing_disk(|operation| matches!(operation, Operation::Write { .. }));
}

#[test]
fn a_failed_sync_ends_writing_but_not_reading() {
    check_failing_disk(|operation| matches!(operation, Operation::Sync));
}

/// Has the disk be full for a while, in the operations that `fails` picks.
fn check_full_disk(fails: fn(Operation<'_>) -> bool, why: fn() -> io::Error) {
    let dir = TempDir::new().expect("created");
    let armed = Arc::new(AtomicUsize::new(0));
    let store = open_hooked(dir.path(), {
        let armed = Arc::clone(&armed);
        move |operation, _| {
            if armed.load(Ordering::SeqCst) == 1 && fails(operation) { Err(why()) } else { Ok(()) }
        }
    });
    for revision in 2..=10 {
        block_on(store.txn(txn(revision))).expect("the disk is well");
    }
    armed.store(1, Ordering::SeqCst);
    for result in block_on(join_all((11..=13).map(|revision| store.txn(txn(revision))))) {
        assert!(matches!(result, Err(StoreError::Full { .. })), "{result:?}");
    }
    assert!(matches!(store.takes_writes(), Err(StoreError::Full { .. })));
    assert_holds_exactly(&store, 10, "nothing unacknowledged is visible");
    armed.store(0, Ordering::SeqCst);
    block_on(store.txn(txn(11))).expect("there is space again");
    store.takes_writes().expect("there is space again");
    assert_holds_exactly(&store, 11, "it goes on");
    block_on(store.close()).expect("closes");
    drop(store);
    let (store, _) = Durable::open(dir.path(), options()).expect("opens");
    assert_holds_exactly(&store, 11, "after opening again");
}

#[test]
fn a_full_disk_refuses_writes_only_while_it_is_full() {
    check_full_disk(|operation| matches!(operation, Operation::Write { .. }), no_space);
    check_full_disk(|operation| matches!(operation, Operation::Sync), no_space);
}

#[test]
fn a_limit_on_files_is_a_full_disk() {
    let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
    check_full_disk(|operation| matches!(operation, Operation::Write { .. }), too_large);
}

#[test]
fn a_store_without_its_log_is_not_begun_again() {
    let dir = TempDir::new().expect("created");
    let (store, _) = Durable::open(dir.path(), options()).expect("opens");
    block_on(store.txn(txn(2))).expect("writable");
    block_on(store.close()).expect("closes");
    drop(store);
    for entry in std::fs::read_dir(dir.path()).expect("listed") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "log") {
            std::fs::remove_file(path).expect("removed");
        }
    }
    let refused = Durable::open(dir.path(), options()).map(|(_, recovery)| recovery);
    assert!(matches!(refused, Err(OpenError::Missing { .. })), "{refused:?}");
}

#[test]
fn a_store_is_locked_without_its_lock_file() {
    let dir = TempDir::new().expect("created");
    let (_store, _) = Durable::open(dir.path(), options()).expect("opens");
    std::fs::remove_file(dir.path().join("LOCK")).expect("removed");
    let refused = Durable::open(dir.path(), options()).map(|(_, recovery)| recovery);
    assert!(matches!(refused, Err(OpenError::Locked { .. })), "{refused:?}");
}

/// What was written before a failed sync stays in the file if even taking it back fails. It was not
/// acknowledged, and it is whole: after opening again it may be there, but never in part.
#[test]
fn failed_batches_are_all_or_nothing() {
    let dir = TempDir::new().expect("created");
    let armed = Arc::new(AtomicUsize::new(0));
    let store = open_hooked(dir.path(), {
        let armed = Arc::clone(&armed);
        move |operation, _| match operation {
            Operation::Sync | Operation::Truncate if armed.load(Ordering::SeqCst) == 1 => Err(no_space()),
            _ => Ok(()),
        }
    });
    block_on(store.txn(txn(2))).expect("the disk is well");
    armed.store(1, Ordering::SeqCst);
    assert!(block_on(store.txn(txn(3))).is_err());
    assert_holds_exactly(&store, 2, "nothing unacknowledged is visible");
    drop(store);
    let (store, _) = Durable::open(dir.path(), options()).expect("opens");
    assert_holds_exactly(&store, 3, "the write had reached the file");
}

/// A transaction that cannot be carried out must not fail those that came with it.
#[test]
fn a_mistake_fails_alone() {
    let dir = TempDir::new().expect("created");
    let (store, _) = Durable::open_on(Arc::new(FileSystem), dir.path(), options()).expect("opens");
    let twice = [txn(3), txn(3)].concat();
    let results = block_on(join_all([store.txn(txn(2)), store.txn(twice), store.txn(txn(3))]));
    assert!(matches!(results[0], Ok(TxnResult::Committed { revision: 2, .. })));
    assert!(matches!(results[1], Err(StoreError::RepeatedKey { index: 1 })));
    assert!(matches!(results[2], Ok(TxnResult::Committed { revision: 3, .. })));
    assert_holds_exactly(&store, 3, "both others");
}

#[test]
fn a_first_start_that_was_cut_short_is_begun_again() {
    let dir = TempDir::new().expect("a directory");
    // What is left of a process that was killed while it wrote the head of its first segment.
    for name in ["log-00000000000000000002.tmp", "log-00000000000000000009.tmp"] {
        fs::write(dir.path().join(name), "").expect("written");
    }
    let (store, _) = Durable::open(dir.path(), options()).expect("opened");
    let next = *store.revision().borrow() + 1;
    block_on(store.txn(txn(next))).expect("committed");
    let left = fs::read_dir(dir.path()).expect("listed").filter_map(Result::ok);
    assert!(left.into_iter().all(|entry| entry.path().extension().is_none_or(|end| end != "tmp")));
}
