//! History that stays within its budget, whatever is written.

use std::sync::Arc;

use futures::executor::block_on;
use windlass_store::{
    Durable, DurableOptions, Expect, HistoryBudget, Memory, Range, Revision, Store, StoreError, Value, Write,
};

fn put(key: usize, size: usize) -> Write {
    let key = format!("key-{key:04}").into();
    Write::Put { key, expect: Expect::Any, value: Value::plain(vec![b'x'; size]) }
}

/// The revisions whose events are still there, which must be a run up to the newest.
fn retained(store: &impl Store) -> std::ops::RangeInclusive<Revision> {
    loop {
        let (oldest, newest) = (store.compacted(), *store.revision().borrow());
        let events = block_on(store.events(oldest, 0));
        let at = |revision| block_on(store.range(Range::prefix(""), Some(revision), 0));
        let (first, last, gone) = (at(oldest), at(newest), at(oldest.saturating_sub(1)));
        // The end of a checkpoint drops history, too, and that may be right now.
        if store.compacted() != oldest {
            continue;
        }
        let mut revisions: Vec<_> = events.unwrap().iter().map(|event| event.revision).collect();
        revisions.dedup();
        assert_eq!(revisions, (oldest + 1..=newest).collect::<Vec<_>>());
        assert!(first.is_ok() && last.is_ok(), "{first:?} {last:?}");
        assert!(oldest <= 1 || matches!(gone, Err(StoreError::Compacted { .. })), "{gone:?}");
        return oldest + 1..=newest;
    }
}

#[test]
fn the_oldest_events_go_when_there_are_too_many() {
    let store = Memory::with_options(HistoryBudget { bytes: usize::MAX, events: 10 });
    for n in 0..100 {
        block_on(store.txn(vec![put(n % 3, 10)])).unwrap();
    }
    assert_eq!(retained(&store), 92..=101);
    block_on(store.txn((0..4).map(|n| put(n, 10)).collect())).unwrap();
    assert_eq!(retained(&store), 96..=102, "four events made room for themselves");
}

#[test]
fn the_oldest_events_go_when_they_keep_too_much_alive() {
    let store = Memory::with_options(HistoryBudget { bytes: 1 << 20, events: usize::MAX });
    for n in 0..1_000 {
        block_on(store.txn(vec![put(n % 3, 10_000)])).unwrap();
    }
    let retained = retained(&store);
    let kept = 1 + retained.end() - retained.start();
    assert!((95..105).contains(&kept), "{kept} values of 10 kB");
}

#[test]
fn values_that_are_still_live_are_not_history() {
    let store = Memory::with_options(HistoryBudget { bytes: 1 << 20, events: usize::MAX });
    for n in 0..1_000 {
        block_on(store.txn(vec![put(n, 10_000)])).unwrap();
    }
    assert_eq!(store.compacted(), 1, "ten megabytes, but all of it is the newest state");
}

#[test]
fn a_reader_who_keeps_up_sees_everything_on_any_budget() {
    let store = Memory::with_options(HistoryBudget { bytes: 0, events: 0 });
    for seen in 1..50 {
        block_on(store.txn((0..5).map(|n| put(n, 1_000)).collect())).unwrap();
        assert_eq!(block_on(store.events(seen, 0)).unwrap().len(), 5);
        assert_eq!(retained(&store), seen + 1..=seen + 1);
    }
}

#[test]
fn removed_keys_are_forgotten_with_their_history() {
    let store = Memory::with_options(HistoryBudget { bytes: usize::MAX, events: 100 });
    for n in 0..5_000 {
        block_on(store.txn(vec![put(n, 10)])).unwrap();
        let key = format!("key-{n:04}").into();
        block_on(store.txn(vec![Write::Delete { key, expect: Expect::Present, last: None }])).unwrap();
    }
    assert_eq!(block_on(store.count(Range::prefix(""))).unwrap(), 0);
    assert_eq!(retained(&store).count(), 100);
}

/// The log, the state and the answers share one copy of a value.
#[test]
fn a_value_is_kept_once() {
    let store = Memory::new();
    block_on(store.txn(vec![put(1, 1_000)])).unwrap();
    block_on(store.txn(vec![put(1, 1_000)])).unwrap();
    let stored = block_on(store.get(b"key-0001")).unwrap().unwrap();
    let events = block_on(store.events(1, 0)).unwrap();
    let before = block_on(store.range(Range::prefix(""), Some(2), 0)).unwrap();
    assert_eq!(stored.value.as_ptr(), events[1].entry.value.as_ptr());
    assert_eq!(before.entries[0].value.as_ptr(), events[0].entry.value.as_ptr());
    assert_eq!(events[1].previous.as_ref().unwrap().value.as_ptr(), events[0].entry.value.as_ptr());
    let again = block_on(store.events(1, 0)).unwrap();
    assert!(events.iter().zip(&again).all(|(a, b)| Arc::ptr_eq(a, b)));
}

/// Writers that outrun a checkpoint wait for it, and are not stopped by it.
#[test]
fn a_checkpoint_does_not_let_history_grow() {
    let dir = tempfile::tempdir().unwrap();
    let history = HistoryBudget { bytes: 20_000, events: 20 };
    let options = DurableOptions { history, segment_bytes: 8 << 10, checkpoint_bytes: 8 << 10 };
    let (store, _) = Durable::open(dir.path(), options).unwrap();
    for n in 0..2_000 {
        block_on(store.txn(vec![put(n % 50, 400)])).unwrap();
        if n % 50 == 0 {
            assert!(retained(&store).count() <= 2 * 20 + 2);
        }
    }
}
