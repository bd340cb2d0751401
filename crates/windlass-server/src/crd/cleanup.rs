//! What happens to the objects of a CRD that is being deleted: they go, and then the CRD does.
//!
//! Each CRD is cleaned up in a task of its own, because objects may be many and others wait for their CRDs to take
//! effect meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use tokio_util::task::AbortOnDropHandle;
use windlass_store::{Expect, StoreError, TxnResult, Write};

use windlass_kinds::crd::lifecycle;

use super::controller;
use crate::api::Api;
use crate::catalog::Gate;
use crate::codec::json;
use crate::object;
use crate::registry::{self, Remaining};
use crate::stored;
use crate::validation::access::Access;

/// How many events are looked at before others have their turn.
const EVENTS: usize = 64;

/// The CRDs that are being cleaned up, by key. Dropping this ends it.
#[derive(Default)]
pub(super) struct Cleanups(BTreeMap<Bytes, AbortOnDropHandle<()>>);

impl Cleanups {
    /// Cleans up after a CRD that is being deleted, unless that is under way.
    pub(super) fn begin(&mut self, api: &Arc<Api>, key: Bytes, gate: Arc<Gate>) {
        self.0.retain(|_, task| !task.is_finished());
        self.0.entry(key).or_insert_with_key(|key| {
            let (api, key) = (Arc::clone(api), key.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                if let Err(error) = clean_up(&api, &key, &gate).await {
                    tracing::error!(%error, "a custom resource definition cannot be removed: the store cannot be used");
                }
            }))
        });
    }

    /// Stops what is under way for a CRD: it is gone, or its objects are to stay.
    pub(super) fn end(&mut self, key: &Bytes) {
        self.0.remove(key);
    }

    /// Stops what is under way for all CRDs but some.
    pub(super) fn retain(&mut self, goes_on: impl Fn(&Bytes) -> bool) {
        self.0.retain(|key, _| goes_on(key));
    }
}

/// Deletes the objects of a CRD, then lets go of it. Objects with finalizers are marked, and the CRD stays until they
/// are gone.
async fn clean_up(api: &Api, key: &Bytes, gate: &Gate) -> Result<(), StoreError> {
    gate.shut().await;
    loop {
        let Some(entry) = api.store.get(key).await? else { return Ok(()) };
        let Ok(crd) = json::parse(&entry.value).map(|parsed| Arc::new(parsed.value)) else { return Ok(()) };
        if !lifecycle::awaits_cleanup(&crd) {
            return Ok(());
        }
        let (now, expect, size) = (object::time(Timestamp::now()), Expect::At(entry.modified), entry.value.len());
        let mut changed = Arc::clone(&crd);
        // Said before anything goes, as upstream's finalizer does.
        lifecycle::deletion_in_progress(Arc::make_mut(&mut changed), &now);
        if changed != crd {
            controller::put(api, key, expect, &changed, size).await?;
            continue;
        }
        let spec = crd.at("spec");
        let prefix = format!("/registry/{}/{}/", spec.text("group"), spec.at("names").text("plural"));
        let remaining = registry::delete_all(api, &prefix).await?;
        if !remaining.is_empty() {
            outlast(api, &prefix, remaining).await?;
            continue;
        }
        lifecycle::finish_deletion(Arc::make_mut(&mut changed), &now);
        let done = if changed.at("metadata").list("finalizers").is_empty() {
            let gone = Write::Delete { key: key.clone(), expect, last: Some(stored::encode(&changed)) };
            matches!(api.store.txn(vec![gone]).await?, TxnResult::Committed { .. })
        } else {
            controller::put(api, key, expect, &changed, size).await?.is_some()
        };
        if done {
            return Ok(());
        }
    }
}

/// Waits until the objects that remain are gone, or until so much has happened to them that all have to be looked at.
async fn outlast(api: &Api, prefix: &str, mut remaining: Remaining) -> Result<(), StoreError> {
    let channel = api.hub.channel(prefix).await?;
    let mut newest = channel.subscribe();
    while !remaining.is_empty() {
        match channel.read_next(&mut newest, remaining.seen(), EVENTS).await {
            Some(Ok(events)) => {
                for event in events {
                    remaining.follow(api, &event.event).await?;
                }
                tokio::task::yield_now().await;
            }
            Some(Err(_)) | None => return Ok(()),
        }
    }
    Ok(())
}
