//! The tests that every engine must pass, including engines of other crates.
//!
//! Each case is an async function over a fresh, empty [`Store`]; it panics where the store does not
//! keep its promises. [`contract_tests!`](crate::contract_tests) makes a `#[tokio::test]` of each:
//!
//! ```
//! # #[cfg(test)]
//! mod memory {
//!     windlass_store::contract_tests!(async { ((), windlass_store::Memory::new()) });
//! }
//! ```
//!
//! The cases only use the [`Store`] trait. What an engine promises beyond it, such as surviving a
//! crash or dropping history by itself, is for that engine's own tests.

mod events;
mod reads;
mod writes;

use bytes::Bytes;

pub use events::{
    a_limit_never_splits_a_transaction, a_reader_of_events_misses_nothing, deletes_carry_the_last_value,
    events_below_the_compaction_are_refused, events_replay_in_order, the_revision_wakes_those_who_wait,
};
pub use reads::{
    a_range_is_half_open, a_revision_in_the_future_is_refused, an_empty_store_is_at_revision_one,
    compaction_drops_the_past_only, counting_follows_writes, limits_say_what_remains, pages_add_up_to_the_whole,
    the_past_stays_readable,
};
pub use writes::{
    a_closed_store_still_reads, a_dropped_future_does_no_harm, a_key_cannot_be_written_twice_in_one_transaction,
    a_transaction_is_all_or_nothing, a_transaction_that_writes_nothing_has_no_revision, a_value_learns_its_revision,
    an_oversized_transaction_is_refused, concurrent_increments_are_all_counted, expectations_decide,
    revisions_are_dense,
};

use crate::{Entry, Event, Expect, Range, Revision, Store, Txn, TxnResult, Value, Write};

/// Makes a `#[tokio::test]` of every case of the contract. The argument is an expression for a future
/// that gives a fresh, empty store, and before it whatever must outlive the store, such as its
/// directory; it is evaluated once a test. The crate that uses this needs `tokio` with the `macros`
/// feature.
#[macro_export]
macro_rules! contract_tests {
    ($fresh:expr) => {
        $crate::contract_tests!(@each $fresh;
            an_empty_store_is_at_revision_one
            a_range_is_half_open
            limits_say_what_remains
            pages_add_up_to_the_whole
            counting_follows_writes
            the_past_stays_readable
            a_revision_in_the_future_is_refused
            compaction_drops_the_past_only
            expectations_decide
            revisions_are_dense
            a_transaction_is_all_or_nothing
            a_transaction_that_writes_nothing_has_no_revision
            a_key_cannot_be_written_twice_in_one_transaction
            an_oversized_transaction_is_refused
            a_value_learns_its_revision
            concurrent_increments_are_all_counted
            a_dropped_future_does_no_harm
            a_closed_store_still_reads
            events_replay_in_order
            deletes_carry_the_last_value
            a_limit_never_splits_a_transaction
            events_below_the_compaction_are_refused
            the_revision_wakes_those_who_wait
            a_reader_of_events_misses_nothing
        );
    };
    (@each $fresh:expr; $($case:ident)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let (_guard, store) = $fresh.await;
                $crate::contract::$case(&store).await;
            }
        )*
    };
}

/// A put of `value`.
fn put(key: &str, expect: Expect, value: &str) -> Write {
    Write::Put { key: Bytes::copy_from_slice(key.as_bytes()), expect, value: Value::plain(value.to_owned()) }
}

/// A delete whose event carries the stored value.
fn delete(key: &str, expect: Expect) -> Write {
    Write::Delete { key: Bytes::copy_from_slice(key.as_bytes()), expect, last: None }
}

/// Carries out a transaction that must commit, and gives its revision.
async fn commit<S: Store>(store: &S, txn: Txn) -> Revision {
    match store.txn(txn).await.expect("the store takes writes") {
        TxnResult::Committed { revision, .. } => revision,
        TxnResult::Conflict { index, current } => panic!("write {index} met {current:?}"),
    }
}

/// Puts `value` whatever the key holds.
async fn set<S: Store>(store: &S, key: &str, value: &str) -> Revision {
    commit(store, vec![put(key, Expect::Any, value)]).await
}

/// Carries out a transaction that must meet a conflict, and gives the write and what it met.
async fn conflict<S: Store>(store: &S, txn: Txn) -> (usize, Option<Entry>) {
    match store.txn(txn).await.expect("the store takes writes") {
        TxnResult::Conflict { index, current } => (index, current),
        TxnResult::Committed { revision, .. } => panic!("committed at {revision}"),
    }
}

/// The newest revision.
fn newest<S: Store>(store: &S) -> Revision {
    *store.revision().borrow()
}

/// `key=value@modified` for every entry, newest state or at a revision.
async fn listing<S: Store>(store: &S, prefix: &str, at: Option<Revision>) -> String {
    let range = Range::prefix(Bytes::copy_from_slice(prefix.as_bytes()));
    let snapshot = store.range(range, at, 0).await.expect("the revision is retained");
    assert_eq!(snapshot.remaining, 0);
    snapshot.entries.iter().map(show).collect::<Vec<_>>().join(" ")
}

fn show(entry: &Entry) -> String {
    format!("{}={}@{}", text(&entry.key), text(&entry.value), entry.modified)
}

/// `revision +key=value` or `revision -key=value`, and `(previous)` where there was one.
fn show_event(event: &Event) -> String {
    let sign = if event.deleted { '-' } else { '+' };
    assert_eq!(event.key, event.entry.key);
    assert_eq!(event.revision, event.entry.modified);
    let previous = event.previous.as_ref().map_or_else(String::new, |entry| format!("({})", show(entry)));
    format!("{} {sign}{}={}{previous}", event.revision, text(&event.key), text(&event.entry.value))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the contract only writes text")
}
