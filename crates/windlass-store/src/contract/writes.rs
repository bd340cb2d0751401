//! Transactions: expectations, atomicity, revisions, and the end of writing.

use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;

use super::{commit, conflict, delete, listing, newest, put, set, show, text};
use crate::{Expect, Range, Store, StoreError, TxnResult, Value, Write};

/// Which expectations hold of a key that is absent, present, and present at another revision.
pub async fn expectations_decide<S: Store>(store: &S) {
    use Expect::{Absent, Any, At, Present};
    let there = set(store, "there", "1").await;
    for (expect, if_absent, if_there) in [
        (Absent, true, false),
        (Present, false, true),
        (Any, true, true),
        (At(there), false, true),
        (At(there - 1), false, false),
        (At(there + 1), false, false),
        (At(0), false, false),
    ] {
        // A put beside the delete below would end the trial, so only failures are tried with puts,
        // and successes put everything back where it was.
        for (key, holds) in [("absent", if_absent), ("there", if_there)] {
            let before = newest(store);
            let current = store.get(key.as_bytes()).await.expect("readable");
            if holds && key == "absent" {
                commit(store, vec![delete(key, expect)]).await;
                assert_eq!(newest(store), before, "{expect:?}: deleting what is absent changes nothing");
            } else if !holds {
                assert_eq!(conflict(store, vec![put(key, expect, "2")]).await, (0, current.clone()), "{expect:?}");
                assert_eq!(conflict(store, vec![delete(key, expect)]).await, (0, current), "{expect:?}");
                assert_eq!(newest(store), before, "{expect:?}: a conflict changes nothing");
            }
        }
    }
    let second = commit(store, vec![put("there", At(there), "2")]).await;
    assert_eq!(second, there + 1);
    let (index, current) = conflict(store, vec![put("there", At(there), "3")]).await;
    assert_eq!((index, current.map(|entry| show(&entry))), (0, Some(format!("there=2@{second}"))));
    let third = commit(store, vec![put("there", Present, "3")]).await;
    commit(store, vec![delete("there", At(third))]).await;
    assert_eq!(conflict(store, vec![put("there", At(third), "4")]).await, (0, None));
    commit(store, vec![put("there", Absent, "4")]).await;
    assert_eq!(listing(store, "", None).await, format!("there=4@{}", third + 2));
}

/// Each transaction that writes gets the next revision, and says what it stored.
pub async fn revisions_are_dense<S: Store>(store: &S) {
    for expected in 2..50 {
        let key = format!("k{}", expected % 7);
        let before = store.get(key.as_bytes()).await.expect("readable");
        let txn = vec![put(&key, Expect::Any, "v"), delete("nothing", Expect::Any)];
        let TxnResult::Committed { revision, entries } = store.txn(txn).await.expect("open") else {
            panic!("nothing was expected of the keys");
        };
        assert_eq!(revision, expected);
        assert_eq!(newest(store), revision, "an acknowledged revision is visible");
        let [Some(entry), None] = &entries[..] else { panic!("one entry a write: {entries:?}") };
        assert_eq!((text(&entry.key), text(&entry.value), entry.modified), (&key[..], "v", revision));
        assert_eq!(entry.created, before.map_or(revision, |entry| entry.created));
        assert_eq!(store.get(key.as_bytes()).await.expect("readable").as_ref(), Some(entry));
    }
}

/// The writes of a transaction happen together at one revision, or not at all.
pub async fn a_transaction_is_all_or_nothing<S: Store>(store: &S) {
    set(store, "a", "1").await; // 2
    set(store, "b", "1").await; // 3
    let txn = |expect| vec![put("c", Expect::Absent, "1"), delete("a", Expect::At(2)), put("b", expect, "2")];
    let (index, current) = conflict(store, txn(Expect::At(2))).await;
    assert_eq!((index, current.map(|entry| show(&entry))), (2, Some("b=1@3".to_owned())));
    assert_eq!(listing(store, "", None).await, "a=1@2 b=1@3");
    assert_eq!(commit(store, txn(Expect::At(3))).await, 4);
    assert_eq!(listing(store, "", None).await, "b=2@4 c=1@4");
    let two_wrong = vec![put("b", Expect::Any, "3"), put("b2", Expect::Present, ""), put("c", Expect::Absent, "")];
    assert_eq!(conflict(store, two_wrong).await, (1, None), "the first that fails is named");
}

/// No writes, or only deletes of what is not there: committed, at the revision that already is.
pub async fn a_transaction_that_writes_nothing_has_no_revision<S: Store>(store: &S) {
    assert_eq!(commit(store, vec![]).await, 1);
    assert_eq!(commit(store, vec![delete("a", Expect::Any), delete("b", Expect::Absent)]).await, 1);
    set(store, "a", "1").await;
    let TxnResult::Committed { revision, entries } =
        store.txn(vec![delete("b", Expect::Any)]).await.expect("the store takes writes")
    else {
        panic!("nothing was expected of the key");
    };
    assert_eq!((revision, entries), (2, vec![None]));
    assert_eq!(newest(store), 2);
    assert_eq!(store.events(1, 0).await.expect("retained").len(), 1);
}

/// Two writes to one key in a transaction are a mistake of the caller.
pub async fn a_key_cannot_be_written_twice_in_one_transaction<S: Store>(store: &S) {
    let txn = vec![put("a", Expect::Any, "1"), put("b", Expect::Any, "1"), delete("a", Expect::Any)];
    let error = store.txn(txn).await.expect_err("a is there twice");
    assert!(matches!(error, StoreError::RepeatedKey { index: 2 }), "{error}");
    assert_eq!(newest(store), 1);
}

/// There is an end to how much fits in one transaction, and it is told before anything is written.
pub async fn an_oversized_transaction_is_refused<S: Store>(store: &S) {
    let value = Value::plain(vec![0; (64 << 20) + 1]);
    let error = store.txn(vec![Write::Put { key: "a".into(), expect: Expect::Any, value }]).await;
    assert!(matches!(error, Err(StoreError::TooLarge { .. })), "{error:?}");
    assert_eq!(set(store, "a", "small").await, 2);
}

/// A spliced value is stored with the decimal revision of its own write in place.
pub async fn a_value_learns_its_revision<S: Store>(store: &S) {
    let spliced = |text: &'static str, at| Value::splice(text, at);
    let put = |key: &'static str, value| Write::Put { key: key.into(), expect: Expect::Any, value };
    for _ in 0..8 {
        set(store, "filler", "").await;
    }
    commit(store, vec![put("middle", spliced("{\"rv\":\"\"}", 7)), put("start", spliced("-", 0))]).await; // 10
    commit(store, vec![put("end", spliced("at ", 3)), put("empty", spliced("", 0))]).await; // 11
    let last = Some(spliced("gone at !", 8));
    commit(store, vec![Write::Delete { key: "end".into(), expect: Expect::Any, last }]).await; // 12
    let value = async |key: &'static str| store.get(key.as_bytes()).await.expect("readable").expect("there").value;
    assert_eq!(value("middle").await, "{\"rv\":\"10\"}");
    assert_eq!(value("start").await, "10-");
    assert_eq!(value("empty").await, "11");
    let events = store.events(10, 0).await.expect("retained");
    let values: Vec<_> = events.iter().map(|event| text(&event.entry.value)).collect();
    assert_eq!(values, ["at 11", "11", "gone at 12!"]);
}

/// Writers that compare and swap in a loop lose no increment, however they interleave.
pub async fn concurrent_increments_are_all_counted<S: Store>(store: &S) {
    const WRITERS: usize = 8;
    const EACH: usize = 25;
    let increment = async || {
        for _ in 0..EACH {
            loop {
                let current = store.get(b"counter").await.expect("readable");
                let (expect, count) = match &current {
                    None => (Expect::Absent, 0),
                    Some(entry) => (Expect::At(entry.modified), text(&entry.value).parse::<usize>().expect("a number")),
                };
                let result = store.txn(vec![put("counter", expect, &(count + 1).to_string())]).await;
                if matches!(result.expect("open"), TxnResult::Committed { .. }) {
                    break;
                }
            }
        }
    };
    futures::future::join_all((0..WRITERS).map(|_| increment())).await;
    let counter = store.get(b"counter").await.expect("readable").expect("written");
    assert_eq!(text(&counter.value).parse(), Ok(WRITERS * EACH));
    assert_eq!(counter.modified, newest(store));
    assert_eq!(counter.modified as usize, 1 + WRITERS * EACH);
}

/// A transaction whose future is dropped after one poll happens wholly or not at all, once at most,
/// and nothing waits for it.
pub async fn a_dropped_future_does_no_harm<S: Store>(store: &S) {
    for n in 0..20 {
        let txn = vec![put(&format!("a{n}"), Expect::Absent, "1"), put(&format!("b{n}"), Expect::Absent, "1")];
        let mut future = pin!(store.txn(txn));
        futures::future::poll_fn(|context| {
            let _ = future.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
    }
    drop(store.txn(vec![put("unpolled", Expect::Any, "")]));
    let after = set(store, "after", "").await;
    assert_eq!(store.get(b"unpolled").await.expect("readable"), None);
    let count = async |prefix: &'static str| store.count(Range::prefix(prefix)).await.expect("readable");
    let (a, b) = (count("a").await - 1, count("b").await);
    assert_eq!(a, b, "both writes of a transaction or none");
    assert_eq!(after as usize, 2 + a, "no revision is lost");
}

/// After closing there are no more writes; what was acknowledged is still served.
pub async fn a_closed_store_still_reads<S: Store>(store: &S) {
    set(store, "a", "1").await;
    set(store, "a", "2").await;
    store.takes_writes().expect("open");
    store.close().await.expect("closes");
    let refused = store.takes_writes();
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    let refused = store.txn(vec![put("a", Expect::Any, "3")]).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    let refused = store.compact(2).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    store.close().await.expect("closing twice is once");
    assert_eq!(listing(store, "", None).await, "a=2@3");
    assert_eq!(listing(store, "", Some(2)).await, "a=1@2");
    assert_eq!(store.events(1, 0).await.expect("retained").len(), 2);
    assert_eq!((newest(store), store.compacted()), (3, 1));
    assert_eq!(store.get(&Bytes::from_static(b"a")).await.expect("readable").map(|entry| entry.modified), Some(3));
}
