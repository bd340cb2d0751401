//! Ranges, counts, reads of the past, and compaction.

use bytes::Bytes;

use super::{commit, delete, listing, newest, put, set, show};
use crate::{Expect, Range, Store, StoreError};

/// An empty store is at revision 1, holds nothing and can be read.
pub async fn an_empty_store_is_at_revision_one<S: Store>(store: &S) {
    assert_eq!(newest(store), 1);
    assert_eq!(store.compacted(), 1);
    assert_eq!(listing(store, "", None).await, "");
    assert_eq!(listing(store, "", Some(1)).await, "");
    assert_eq!(store.get(b"a").await.expect("readable"), None);
    assert_eq!(store.count(Range::prefix("")).await.expect("readable"), 0);
    assert!(store.events(1, 0).await.expect("nothing is compacted").is_empty());
    assert_eq!(set(store, "a", "1").await, 2);
}

/// A range holds its start and not its end, in the order of bytes.
pub async fn a_range_is_half_open<S: Store>(store: &S) {
    for key in ["b", "a", "ab", "c", "a/1", "a/2", "a0", ""] {
        set(store, key, "").await;
    }
    let keys = async |start: &'static str, end: Option<&'static str>| {
        let range = Range { start: start.into(), end: end.map(Bytes::from) };
        let snapshot = store.range(range.clone(), None, 0).await.expect("readable");
        let count = store.count(range.clone()).await.expect("readable");
        assert_eq!(snapshot.entries.len(), count);
        assert!(snapshot.entries.iter().all(|entry| range.contains(&entry.key)));
        snapshot.entries.iter().map(|entry| super::text(&entry.key).to_owned()).collect::<Vec<_>>().join(",")
    };
    assert_eq!(keys("", None).await, ",a,a/1,a/2,a0,ab,b,c");
    assert_eq!(keys("a", Some("b")).await, "a,a/1,a/2,a0,ab");
    assert_eq!(keys("a/", Some("a0")).await, "a/1,a/2");
    assert_eq!(keys("aa", Some("aa\0")).await, "");
    assert_eq!(keys("b", Some("b\0")).await, "b");
    assert_eq!(keys("b", None).await, "b,c");
    assert_eq!(keys("d", None).await, "");
    assert_eq!(keys("b", Some("b")).await, "");
    assert_eq!(keys("c", Some("a")).await, "");
    assert_eq!(listing(store, "a/", None).await, "a/1=@6 a/2=@7");
}

/// A limited range says how many entries it left out; no limit leaves out none.
pub async fn limits_say_what_remains<S: Store>(store: &S) {
    for n in 0..10 {
        set(store, &format!("k{n}"), "v").await;
    }
    set(store, "other", "v").await;
    let past = newest(store);
    for n in 5..10 {
        commit(store, vec![delete(&format!("k{n}"), Expect::Present)]).await;
    }
    for (at, limit, taken, remaining) in [
        (None, 0, 5, 0),
        (None, 3, 3, 2),
        (None, 5, 5, 0),
        (None, 9, 5, 0),
        (Some(past), 0, 10, 0),
        (Some(past), 3, 3, 7),
        (Some(past), 10, 10, 0),
    ] {
        let snapshot = store.range(Range::prefix("k"), at, limit).await.expect("retained");
        assert_eq!((snapshot.entries.len(), snapshot.remaining), (taken, remaining), "at {at:?} limit {limit}");
        assert_eq!(snapshot.revision, at.unwrap_or_else(|| newest(store)));
    }
}

/// Pages read at one revision are the whole list of that revision, whatever is written meanwhile.
pub async fn pages_add_up_to_the_whole<S: Store>(store: &S) {
    for n in 0..23 {
        set(store, &format!("k{n:02}"), "before").await;
    }
    let whole = listing(store, "k", None).await;
    let revision = newest(store);
    let mut pages = Vec::new();
    let mut range = Range::prefix("k");
    loop {
        let page = store.range(range.clone(), Some(revision), 5).await.expect("retained");
        assert_eq!(page.revision, revision);
        assert_eq!(pages.len() + page.entries.len() + page.remaining, 23);
        let last = page.entries.last().expect("a page is not empty").key.clone();
        pages.extend(page.entries.iter().map(show));
        if page.remaining == 0 {
            break;
        }
        range = range.starting_at([&last[..], b"\0"].concat());
        set(store, super::text(&last), "after").await;
        commit(store, vec![delete("k22", Expect::Any), put(&format!("{}+", super::text(&last)), Expect::Any, "new")])
            .await;
    }
    assert_eq!(pages.join(" "), whole);
}

/// A count is of the newest state: puts of new keys and deletes move it, nothing else.
pub async fn counting_follows_writes<S: Store>(store: &S) {
    let count = async |prefix: &'static str| store.count(Range::prefix(prefix)).await.expect("readable");
    for n in 0..300 {
        set(store, &format!("a{n:03}"), "1").await;
        set(store, &format!("b{n:03}"), "1").await;
    }
    assert_eq!((count("").await, count("a").await, count("a1").await, count("c").await), (600, 300, 100, 0));
    for n in 0..300 {
        set(store, &format!("a{n:03}"), "2").await;
        commit(store, vec![delete(&format!("b{n:03}"), Expect::Present)]).await;
    }
    assert_eq!((count("").await, count("a").await, count("b").await), (300, 300, 0));
    set(store, "b007", "3").await;
    assert_eq!((count("").await, count("b").await, count("b0").await), (301, 1, 1));
}

/// Every retained revision can be read, and shows what was there at the time.
pub async fn the_past_stays_readable<S: Store>(store: &S) {
    set(store, "a", "1").await; // 2
    set(store, "b", "1").await; // 3
    set(store, "a", "2").await; // 4
    commit(store, vec![delete("b", Expect::Any), put("c", Expect::Absent, "1")]).await; // 5
    set(store, "b", "2").await; // 6
    for (at, state) in
        [(1, ""), (2, "a=1@2"), (3, "a=1@2 b=1@3"), (4, "a=2@4 b=1@3"), (5, "a=2@4 c=1@5"), (6, "a=2@4 b=2@6 c=1@5")]
    {
        assert_eq!(listing(store, "", Some(at)).await, state, "at {at}");
    }
    assert_eq!(listing(store, "", None).await, "a=2@4 b=2@6 c=1@5");
    let created = async |key: &'static str| store.get(key.as_bytes()).await.expect("readable").expect("there").created;
    assert_eq!((created("a").await, created("b").await), (2, 6), "a key that comes back is created anew");
}

/// What has not happened cannot be read, or compacted away.
pub async fn a_revision_in_the_future_is_refused<S: Store>(store: &S) {
    set(store, "a", "1").await;
    let error = store.range(Range::prefix(""), Some(3), 0).await.expect_err("3 does not exist");
    assert!(matches!(error, StoreError::Future { asked: 3, newest: 2 }), "{error}");
    let error = store.compact(3).await.expect_err("3 does not exist");
    assert!(matches!(error, StoreError::Future { asked: 3, newest: 2 }), "{error}");
    assert_eq!(store.compacted(), 1);
}

/// Compaction takes the states before a revision and leaves that of the revision and later ones.
pub async fn compaction_drops_the_past_only<S: Store>(store: &S) {
    set(store, "a", "1").await; // 2
    set(store, "b", "1").await; // 3
    set(store, "a", "2").await; // 4
    commit(store, vec![delete("b", Expect::Any)]).await; // 5
    set(store, "a", "3").await; // 6
    store.compact(4).await.expect("4 exists");
    assert_eq!(store.compacted(), 4);
    assert_eq!(newest(store), 6);
    for at in [0, 1, 2, 3] {
        let error = store.range(Range::prefix(""), Some(at), 0).await.expect_err("compacted");
        assert!(matches!(error, StoreError::Compacted { asked, oldest: 4 } if asked == at), "{error}");
    }
    assert_eq!(listing(store, "", Some(4)).await, "a=2@4 b=1@3");
    assert_eq!(listing(store, "", Some(5)).await, "a=2@4");
    store.compact(2).await.expect("already done");
    assert_eq!(store.compacted(), 4);
    store.compact(6).await.expect("6 exists");
    assert_eq!(store.compacted(), 6);
    assert_eq!(listing(store, "", Some(6)).await, "a=3@6");
    assert_eq!(store.count(Range::prefix("")).await.expect("readable"), 1);
    assert_eq!(set(store, "b", "2").await, 7);
    assert_eq!(listing(store, "", None).await, "a=3@6 b=2@7");
}
