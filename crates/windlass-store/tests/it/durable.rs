//! What a store on disk promises beyond the contract: locks, permissions, space, and the past after a
//! restart.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use futures::executor::block_on;
use futures::future::join_all;
use tempfile::TempDir;
use windlass_store::{
    Durable, DurableOptions, Expect, HistoryBudget, OpenError, Range, Revision, Store, StoreError, Txn, TxnResult,
    Value, Write,
};

fn open(dir: &Path, options: DurableOptions) -> Durable {
    Durable::open(dir, options).unwrap().0
}

fn put(key: usize, size: usize) -> Txn {
    let key = format!("key-{key:05}").into();
    vec![Write::Put { key, expect: Expect::Any, value: Value::plain(vec![b'x'; size]) }]
}

fn revision(result: &Result<TxnResult, StoreError>) -> Revision {
    match result {
        Ok(TxnResult::Committed { revision, .. }) => *revision,
        other => panic!("{other:?}"),
    }
}

fn bytes_on_disk(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().map(|file| file.unwrap().metadata().map_or(0, |file| file.len())).sum()
}

#[test]
fn a_directory_is_opened_once_at_a_time() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), DurableOptions::default());
    let error = Durable::open(dir.path(), DurableOptions::default()).expect_err("it is open");
    assert!(matches!(&error, OpenError::Locked { pid: Some(pid), .. } if *pid == std::process::id()), "{error:?}");
    assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
    block_on(store.close()).unwrap();
    let second = open(dir.path(), DurableOptions::default());
    assert_eq!(*store.revision().borrow(), 1, "the closed one still reads");
    drop(second);
    open(dir.path(), DurableOptions::default());
}

#[test]
fn files_are_for_their_owner_only() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("deep/down");
    let options = DurableOptions { segment_bytes: 4_096, checkpoint_bytes: 1_024, ..DurableOptions::default() };
    let store = open(&dir, options);
    for n in 0..20 {
        block_on(store.txn(put(n % 3, 500))).unwrap();
    }
    block_on(store.compact(20)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let files: Vec<_> = fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.iter().any(|file| file.extension().is_some_and(|extension| extension == "snap")), "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Durable::open(file.join("store"), DurableOptions::default()).expect_err("that is a file");
    assert!(matches!(&error, OpenError::Io { path, .. } if *path == file.join("store")), "{error:?}");
}

#[test]
fn a_watch_resumes_over_a_restart() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), DurableOptions::default());
    for n in 0..50 {
        block_on(store.txn(put(n % 7, 10))).unwrap();
    }
    block_on(store.compact(20)).unwrap();
    let seen = block_on(store.events(30, 0)).unwrap();
    drop(store);
    let (store, recovery) = Durable::open(dir.path(), DurableOptions::default()).unwrap();
    assert_eq!((recovery.revision, recovery.compacted, recovery.entries), (51, 20, 7));
    assert_eq!(*store.revision().borrow(), 51);
    let replayed = block_on(store.events(30, 0)).unwrap();
    assert_eq!(replayed.len(), 21);
    for (before, after) in seen.iter().zip(&replayed) {
        assert_eq!((before.revision, &before.entry, &before.previous), (after.revision, &after.entry, &after.previous));
    }
    let past = block_on(store.range(Range::prefix(""), Some(20), 0)).unwrap();
    assert_eq!(past.entries.iter().map(|entry| entry.modified).max(), Some(20));
    let gone = block_on(store.events(19, 0));
    assert!(matches!(gone, Err(StoreError::Compacted { oldest: 20, .. })), "{gone:?}");
    assert_eq!(revision(&block_on(store.txn(put(0, 10)))), 52, "revisions go on where they were");
}

/// The history of a checkpointed store is as long after a restart as it was before.
#[test]
fn a_checkpoint_keeps_the_history_that_memory_keeps() {
    let dir = TempDir::new().unwrap();
    let history = HistoryBudget { bytes: 100_000, events: 50 };
    let options = DurableOptions { history, segment_bytes: 8_192, checkpoint_bytes: 16_384 };
    let store = open(dir.path(), options);
    for n in 0..400 {
        block_on(store.txn(put(n % 10, 300))).unwrap();
    }
    block_on(store.close()).unwrap();
    let compacted = store.compacted();
    let (store, recovery) = Durable::open(dir.path(), options).unwrap();
    assert!(recovery.snapshot.is_some(), "{recovery:?}");
    assert_eq!((recovery.revision, recovery.compacted), (401, 351));
    assert!(compacted <= 351, "the last checkpoint may have been holding on to more");
    assert_eq!(block_on(store.events(351, 0)).unwrap().len(), 50);
}

#[test]
fn space_is_given_back() {
    let dir = TempDir::new().unwrap();
    let history = HistoryBudget { bytes: 64 << 10, events: 1_000 };
    let options = DurableOptions { history, segment_bytes: 64 << 10, checkpoint_bytes: 64 << 10 };
    let store = open(dir.path(), options);
    let mut most = 0;
    // 20 MB go through a store that holds 20 KB.
    for _ in 0..100 {
        block_on(join_all((0..20).flat_map(|key| (0..10).map(move |_| key)).map(|key| store.txn(put(key, 1_000)))));
        most = most.max(bytes_on_disk(dir.path()));
    }
    assert!(most < 2 << 20, "{most} bytes");
    // By itself there is always some history; compacting all of it leaves the live data.
    let newest = *store.revision().borrow();
    block_on(store.compact(newest)).unwrap();
    block_on(store.close()).unwrap();
    let left = bytes_on_disk(dir.path());
    assert!(left < 100 << 10, "{left} bytes");
    drop(store);
    let (store, recovery) = Durable::open(dir.path(), options).unwrap();
    assert_eq!((recovery.entries, recovery.revision), (20, 20_001));
    assert_eq!(block_on(store.count(Range::prefix("key-"))).unwrap(), 20);
}

#[test]
fn a_transaction_larger_than_a_segment_fits() {
    let dir = TempDir::new().unwrap();
    let options = DurableOptions { segment_bytes: 4_096, ..DurableOptions::default() };
    let store = open(dir.path(), options);
    for n in 0..4 {
        block_on(store.txn(put(n, 3_000_000))).unwrap();
        block_on(store.txn(put(n + 10, 100))).unwrap();
    }
    drop(store);
    let (store, recovery) = Durable::open(dir.path(), options).unwrap();
    assert_eq!((recovery.revision, recovery.entries), (9, 8));
    assert_eq!(block_on(store.get(b"key-00003")).unwrap().unwrap().value.len(), 3_000_000);
}

#[test]
fn writers_that_come_together_are_told_apart() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), DurableOptions::default());
    // Each expects what the one before it leaves behind, though none of it is on disk yet.
    let chain = join_all((2..100).map(|revision| {
        let expect = if revision == 2 { Expect::Absent } else { Expect::At(revision - 1) };
        let value = Value::plain(revision.to_string());
        store.txn(vec![Write::Put { key: "chain".into(), expect, value }])
    }));
    let revisions: Vec<_> = block_on(chain).iter().map(revision).collect();
    assert_eq!(revisions, (2..100).collect::<Vec<_>>());
    drop(store);
    let store = open(dir.path(), DurableOptions::default());
    assert_eq!(block_on(store.get(b"chain")).unwrap().unwrap().value, "99");
    assert_eq!(block_on(store.events(1, 0)).unwrap().len(), 98);
}

#[test]
fn what_was_queued_before_closing_is_carried_out() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), DurableOptions::default());
    let (results, closed) =
        block_on(futures::future::join(join_all((0..100).map(|key| store.txn(put(key, 10)))), store.close()));
    closed.unwrap();
    let acknowledged = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(acknowledged, 100, "they were polled first");
    drop(store);
    let (_, recovery) = Durable::open(dir.path(), DurableOptions::default()).unwrap();
    assert_eq!((recovery.entries, recovery.truncated_bytes), (100, 0));
}

#[test]
fn a_checkpoint_that_fails_costs_only_space() {
    let dir = TempDir::new().unwrap();
    let options = DurableOptions { segment_bytes: 4_096, checkpoint_bytes: 4_096, ..DurableOptions::default() };
    let store = open(dir.path(), options);
    for n in 0..50 {
        block_on(store.txn(put(n % 3, 500))).unwrap();
    }
    // A directory is in the way of the snapshot.
    let obstacle = dir.path().join("snapshot-00000000000000000040.tmp");
    fs::create_dir(&obstacle).unwrap();
    block_on(store.compact(40)).unwrap();
    assert_eq!(store.compacted(), 40);
    let before = bytes_on_disk(dir.path());
    assert_eq!(revision(&block_on(store.txn(put(0, 500)))), 52);
    drop(store);
    let (store, recovery) = Durable::open(dir.path(), options).unwrap();
    assert_eq!((recovery.revision, recovery.compacted, recovery.snapshot), (52, 40, None));
    fs::remove_dir(&obstacle).unwrap();
    block_on(store.compact(52)).unwrap();
    let after = bytes_on_disk(dir.path());
    assert!(after < before / 2, "{before} bytes, then {after}");
}

#[test]
fn a_store_can_be_used_through_the_trait_alone() {
    let dir = TempDir::new().unwrap();
    let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(open(dir.path(), DurableOptions::default()));
    assert_eq!(revision(&block_on(store.txn(put(0, 1)))), 2);
    assert_eq!(block_on(store.count(Range::prefix(""))).unwrap(), 1);
}
