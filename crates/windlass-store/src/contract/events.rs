//! The event log: order, replay, limits, and waiting for what comes.

use super::{commit, delete, newest, put, set, show_event};
use crate::{Expect, Revision, Store, StoreError, Value, Write};

async fn replay<S: Store>(store: &S, after: Revision, limit: usize) -> Vec<String> {
    let events = store.events(after, limit).await.expect("retained");
    events.iter().map(|event| show_event(event)).collect()
}

/// The log can be replayed from any retained revision, and tells what each write replaced.
pub async fn events_replay_in_order<S: Store>(store: &S) {
    set(store, "a", "1").await; // 2
    set(store, "b", "1").await; // 3
    set(store, "a", "2").await; // 4
    commit(store, vec![put("d", Expect::Any, "1"), delete("b", Expect::Any), put("c", Expect::Any, "1")]).await; // 5
    set(store, "b", "2").await; // 6
    let all = ["2 +a=1", "3 +b=1", "4 +a=2(a=1@2)", "5 +d=1", "5 -b=1(b=1@3)", "5 +c=1", "6 +b=2"];
    for (after, skipped) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 6), (6, 7)] {
        assert_eq!(replay(store, after, 0).await, all[skipped..], "after {after}");
    }
    assert!(replay(store, 7, 0).await.is_empty(), "there is nothing after the future yet");
    let events = store.events(1, 0).await.expect("retained");
    let created: Vec<_> = events.iter().map(|event| event.entry.created).collect();
    assert_eq!(created, [2, 3, 2, 5, 3, 5, 6]);
}

/// A delete's event carries the stored value, or the one the writer gave for it.
pub async fn deletes_carry_the_last_value<S: Store>(store: &S) {
    set(store, "a", "stored").await;
    set(store, "b", "stored").await;
    let last = Some(Value::plain("given"));
    commit(store, vec![delete("a", Expect::Any), Write::Delete { key: "b".into(), expect: Expect::At(3), last }]).await;
    let replayed = replay(store, 3, 0).await;
    assert_eq!(replayed, ["4 -a=stored(a=stored@2)", "4 -b=given(b=stored@3)"]);
    let events = store.events(3, 0).await.expect("retained");
    assert!(events.iter().all(|event| event.deleted && event.entry.modified == 4));
    assert_eq!(events[1].entry.created, 3);
}

/// A limited read of the log ends between transactions, and always makes progress.
pub async fn a_limit_never_splits_a_transaction<S: Store>(store: &S) {
    let txn = |names: &str| names.chars().map(|name| put(&name.to_string(), Expect::Any, "")).collect();
    for names in ["a", "bcd", "e", "fg"] {
        commit(store, txn(names)).await; // 2 to 5
    }
    for (after, limit, revisions) in [
        (1, 1, &[2][..]),
        (1, 2, &[2]),
        (1, 3, &[2]),
        (1, 4, &[2, 3, 3, 3]),
        (2, 1, &[3, 3, 3]),
        (2, 2, &[3, 3, 3]),
        (2, 5, &[3, 3, 3, 4]),
        (3, 2, &[4]),
        (4, 1, &[5, 5]),
        (4, 2, &[5, 5]),
        (1, 100, &[2, 3, 3, 3, 4, 5, 5]),
        (5, 1, &[]),
    ] {
        let events = store.events(after, limit).await.expect("retained");
        let seen: Vec<_> = events.iter().map(|event| event.revision).collect();
        assert_eq!(seen, revisions, "after {after} limit {limit}");
    }
}

/// Events that are gone are an error, never a gap.
pub async fn events_below_the_compaction_are_refused<S: Store>(store: &S) {
    for value in ["1", "2", "3", "4"] {
        set(store, "a", value).await; // 2 to 5
    }
    store.compact(4).await.expect("4 exists");
    for after in [0, 1, 3] {
        let error = store.events(after, 0).await.expect_err("compacted");
        assert!(matches!(error, StoreError::Compacted { asked, oldest: 4 } if asked == after), "{error}");
    }
    assert_eq!(replay(store, 4, 0).await, ["5 +a=4(a=3@4)"]);
    assert!(replay(store, 5, 0).await.is_empty());
}

/// Waiting on the revision ends with a write, and with nothing else.
pub async fn the_revision_wakes_those_who_wait<S: Store>(store: &S) {
    let mut revision = store.revision();
    assert_eq!(*revision.borrow_and_update(), 1);
    commit(store, vec![delete("nothing", Expect::Any)]).await;
    assert!(!revision.has_changed().expect("the store is alive"));
    let (woken, written) = futures::future::join(revision.changed(), set(store, "a", "1")).await;
    woken.expect("the store is alive");
    assert_eq!((*revision.borrow_and_update(), written), (2, 2));
    assert!(!revision.has_changed().expect("the store is alive"));
}

/// A reader who follows the log while others write sees every revision once, in order.
pub async fn a_reader_of_events_misses_nothing<S: Store>(store: &S) {
    const WRITES: Revision = 200;
    let write = async |writer: u64| {
        for n in 0..WRITES / 4 {
            set(store, &format!("k{}", n % 5), &format!("{writer}-{n}")).await;
        }
    };
    let read = async {
        let mut revision = store.revision();
        let mut seen = 1;
        while seen < 1 + WRITES {
            for event in store.events(seen, 7).await.expect("retained") {
                assert_eq!(event.revision, seen + 1);
                seen = event.revision;
            }
            if seen == newest(store) && seen < 1 + WRITES {
                revision.changed().await.expect("the store is alive");
            }
        }
    };
    futures::future::join(read, futures::future::join_all((0..4).map(write))).await;
    assert_eq!(newest(store), 1 + WRITES);
}
