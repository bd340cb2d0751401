//! Deletes events an hour after they were last written, as upstream's API server does with leases of etcd.
//!
//! Nothing is watched. Every few minutes the store's revision is noted; what has not been written since a revision of an
//! hour ago has expired. So nothing is kept about single events, and time is that of the runtime's timers.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Preconditions};
use parking_lot::Mutex;
use windlass::Manager;
use windlass::manager::ManagerError;
use windlass::queue::Completion;

use super::clock::Clock;
use super::work::WorkMetrics;

/// How long an event is kept (`--event-ttl`).
const TTL: SignedDuration = SignedDuration::from_secs(3600);
/// How far apart revisions are noted: events are kept for that much longer at most.
const PERIOD: Duration = Duration::from_secs(300);
/// Events that are listed, and deleted, at once.
const PAGE: u32 = 500;

pub(super) fn add(manager: &mut Manager, client: kube::Client) -> Result<(), ManagerError> {
    let problem: Arc<Mutex<Option<String>>> = Arc::default();
    let found = Arc::clone(&problem);
    manager.add_ready_check("controller/event-ttl-controller", move || found.lock().clone().map_or(Ok(()), Err));
    let metrics = WorkMetrics::new(manager.registry(), "event-ttl-controller");
    manager.add_task("event-ttl", |shutdown| async move {
        let clock = Clock::new();
        let mut marks = Marks::default();
        let sweeping = async {
            let mut ticks = tokio::time::interval(PERIOD);
            loop {
                ticks.tick().await;
                let began = tokio::time::Instant::now();
                let swept = sweep(&client, &mut marks, clock.now()).await;
                let ended = if swept.is_ok() { Completion::RequeueAfter(PERIOD) } else { Completion::Retry };
                metrics.count(&ended, began.elapsed());
                if let Err(error) = &swept {
                    tracing::warn!(%error, "expired events are not deleted");
                }
                *problem.lock() = swept.err().map(|error| error.to_string());
            }
        };
        shutdown.run_until_cancelled(sweeping).await;
        Ok::<_, std::convert::Infallible>(())
    })
}

/// Revisions of the store, and when they were current.
#[derive(Debug, Default)]
struct Marks(VecDeque<(Timestamp, u64)>);

impl Marks {
    /// Notes the current revision.
    fn note(&mut self, revision: u64, now: Timestamp) {
        self.0.push_back((now, revision));
    }

    /// The revision up to which everything has expired; said once.
    fn expired(&mut self, now: Timestamp) -> Option<u64> {
        let mut expired = None;
        while let Some((at, revision)) = self.0.front().copied().filter(|(at, _)| now.duration_since(*at) >= TTL) {
            debug_assert!(at <= now);
            expired = Some(revision);
            self.0.pop_front();
        }
        expired
    }
}

async fn sweep(client: &kube::Client, marks: &mut Marks, now: Timestamp) -> Result<(), kube::Error> {
    let events: Api<Event> = Api::all(client.clone());
    let newest = events.list_metadata(&ListParams::default().limit(1)).await?;
    if let Some(revision) = newest.metadata.resource_version.as_deref().and_then(|revision| revision.parse().ok()) {
        marks.note(revision, now);
    }
    let Some(expired) = marks.expired(now) else { return Ok(()) };
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let found = events.list_metadata(&page).await?;
        let old = found.items.iter().filter(|event| revision_of(event).is_some_and(|revision| revision <= expired));
        for deleted in join_all(old.map(|event| delete(client, event))).await {
            deleted?;
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

fn revision_of(event: &PartialObjectMeta<Event>) -> Option<u64> {
    event.metadata.resource_version.as_deref()?.parse().ok()
}

/// Deletes an event, unless it was written again.
async fn delete(client: &kube::Client, event: &PartialObjectMeta<Event>) -> Result<(), kube::Error> {
    let meta = &event.metadata;
    let events: Api<Event> = Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or_default());
    let preconditions = Preconditions { resource_version: meta.resource_version.clone(), uid: meta.uid.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match events.delete(meta.name.as_deref().unwrap_or_default(), &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        other => other.map(drop),
    }
}
