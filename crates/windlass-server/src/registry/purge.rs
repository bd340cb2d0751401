//! Deletes all objects of a kind that goes, whatever they are: admission is not asked, finalizers are waited for.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use tokio::sync::Semaphore;
use windlass_store::{Entry, Event, Expect, Range, Revision, StoreError, TxnResult, Write};

use super::stored;
use crate::api::Api;
use crate::codec::peek;
use crate::effort;
use crate::object::{self, metadata_mut};

/// Of very many objects, so many are deleted at the same time.
const DELETED_TOGETHER: usize = 64;

/// The objects that have to wait for their finalizers, as of a revision.
#[derive(Debug)]
pub struct Remaining {
    keys: BTreeSet<Bytes>,
    seen: Revision,
}

impl Remaining {
    /// Whether all objects are gone.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The revision from which events are to be followed.
    pub fn seen(&self) -> Revision {
        self.seen
    }

    /// Takes note of what happened to an object. One that was changed before it could be marked is marked now, and one
    /// that lost its finalizers goes.
    pub async fn follow(&mut self, api: &Api, event: &Event) -> Result<(), StoreError> {
        self.seen = event.revision;
        let now = object::time(jiff::Timestamp::now());
        if event.deleted || delete_entry(api, &event.entry, &now, &Semaphore::new(1)).await? {
            self.keys.remove(&event.key);
        } else {
            self.keys.insert(event.key.clone());
        }
        Ok(())
    }
}

/// Deletes every object below a prefix; returns those that have to wait for finalizers. These are marked before the first
/// of the others is deleted, so that a client that sees one gone finds the others marked.
pub async fn delete_all(api: &Api, prefix: &str) -> Result<Remaining, StoreError> {
    let now = object::time(jiff::Timestamp::now());
    let snapshot = api.store.range(Range::prefix(prefix.to_owned()), None, 0).await?;
    let mut remaining = Remaining { keys: BTreeSet::new(), seen: snapshot.revision };
    let (held, free): (Vec<Entry>, Vec<Entry>) =
        snapshot.entries.into_iter().partition(|entry| has_finalizers(&entry.value));
    for entries in [held, free] {
        delete_entries(api, entries, &now, &mut remaining).await?;
    }
    Ok(remaining)
}

/// Deletes or marks objects, many at the same time, so that they share trips to the disk.
async fn delete_entries(
    api: &Api,
    entries: Vec<Entry>,
    now: &str,
    remaining: &mut Remaining,
) -> Result<(), StoreError> {
    // Of large objects one at a time is worked on, which leaves the other cores to requests.
    let large = &Semaphore::new(1);
    let deleting = entries.into_iter().map(|entry| async move {
        Ok::<_, StoreError>((!delete_entry(api, &entry, now, large).await?).then_some(entry.key))
    });
    let mut deleting = futures::stream::iter(deleting).buffer_unordered(DELETED_TOGETHER);
    while let Some(waiting) = deleting.try_next().await? {
        remaining.keys.extend(waiting);
        // There may be very many, and where nothing waits for a disk no other task would have a turn.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Deletes an object, or marks it if it has finalizers. Whether it is gone.
async fn delete_entry(api: &Api, entry: &Entry, now: &str, large: &Semaphore) -> Result<bool, StoreError> {
    let change = if effort::is_large_write(entry.value.len()) {
        let (_permit, value, now) = (large.acquire().await, entry.value.clone(), now.to_owned());
        effort::at_once(move || Change::of(&value, &now)).await
    } else {
        Some(Change::of(&entry.value, now))
    };
    let (key, expect) = (entry.key.clone(), Expect::At(entry.modified));
    match change {
        Some(Change::Delete(last)) => {
            let deleted = api.store.txn(vec![Write::Delete { key, expect, last: Some(last) }]).await?;
            Ok(!matches!(deleted, TxnResult::Conflict { .. }))
        }
        Some(Change::Mark(value)) => {
            // A conflict means that another client writes it: an event tells what came of it.
            api.store.txn(vec![Write::Put { key, expect, value }]).await?;
            Ok(false)
        }
        Some(Change::Ignore) => Ok(true),
        // The runtime is about to end.
        Some(Change::Wait) | None => Ok(false),
    }
}

/// What is to be done about an object.
enum Change {
    /// Delete it; this is its last state.
    Delete(windlass_store::Value),
    /// Store it like this, as it waits for its finalizers.
    Mark(windlass_store::Value),
    /// Nothing: it waits for its finalizers already.
    Wait,
    /// Nothing: it cannot be read.
    Ignore,
}

impl Change {
    fn of(stored: &[u8], now: &str) -> Self {
        if is_marked(stored) {
            return Self::Wait;
        }
        let Ok(mut object) = stored::decode(stored) else { return Self::Ignore };
        if object::finalizers(&object).is_empty() {
            return Self::Delete(stored::encode_about(&object, stored.len()));
        }
        let metadata = metadata_mut(&mut object);
        metadata.insert("deletionTimestamp".into(), now.into());
        metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
        let generation = metadata.get("generation").and_then(Value::as_i64);
        if let Some(generation) = generation {
            metadata.insert("generation".into(), (generation + 1).into());
        }
        Self::Mark(stored::encode_about(&object, stored.len()))
    }
}

/// Whether an object waits for its finalizers already. There may be very many of these, so they are not decoded.
fn is_marked(object: &[u8]) -> bool {
    let Some(metadata) = peek::metadata(object) else { return false };
    metadata.field("deletionTimestamp").is_some_and(|time| !time.is_null()) && has_finalizers(object)
}

fn has_finalizers(object: &[u8]) -> bool {
    let finalizers = peek::metadata(object).and_then(|metadata| metadata.field("finalizers"));
    finalizers.is_some_and(|finalizers| finalizers.items().next().is_some())
}
