//! Collects pods that no node will ever finish: those of nodes that are gone, those deleted before they were assigned to
//! a node, those that nodes out of service are to end, and ended ones beyond a number.
//!
//! Keys are names of nodes, and two that no node can have. Mirrors upstream's `pkg/controller/podgc`, with timers where
//! that has a loop.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::Patch;
use parking_lot::Mutex;
use serde_json::{Value, json};
use windlass::cache::Lister;
use windlass::client::options::DeleteOptions;
use windlass::controller::{SourceContext, Watch};
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, ReconcileKey, predicate};

use super::clock::Clock;
use super::node_lifecycle::pods_of;
use super::pods;

/// How long a node has to be gone before its pods are collected.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);
/// How long what is collected at once may gather.
const PERIOD: SignedDuration = SignedDuration::from_secs(20);
/// Ended pods that are kept (`--terminated-pod-gc-threshold`).
const KEPT: usize = 12_500;
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The key of pods that are deleted and have no node.
const UNASSIGNED: &str = "#unassigned";
/// The key of pods that have ended.
const ENDED: &str = "#ended";

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    let garbage = Garbage { since: Mutex::default(), clock: Clock::new() };
    let matters = predicate::change(|old: &Pod, new: &Pod| {
        let seen = |pod: &Pod| (pod.metadata.deletion_timestamp.is_some(), pods::is_finished(pod));
        seen(old) != seen(new) || pods::node_name(old) != pods::node_name(new)
    });
    manager.add(
        Controller::<Node>::new("pod-garbage-collector-controller")
            .predicate(predicate::change(|old: &Node, new| is_out_of_service(old) != is_out_of_service(new)))
            .watches_with(Watch::<Pod>::default().predicate(matters), keys)
            .concurrency(2)
            .complete_keyed(garbage),
    )
}

/// What a pod's change concerns.
fn keys(pod: &Pod, ctx: &SourceContext) -> Vec<ObjectKey> {
    let deleted = pod.metadata.deletion_timestamp.is_some();
    let place = match pods::node_name(pod) {
        None => deleted.then(|| ObjectKey::cluster(UNASSIGNED)),
        Some(node) => {
            let key = ObjectKey::cluster(node);
            match ctx.lister::<Node>().get(&key) {
                None => Some(key),
                Some(node) => (deleted && is_out_of_service(&node)).then_some(key),
            }
        }
    };
    place.into_iter().chain(pods::is_finished(pod).then(|| ObjectKey::cluster(ENDED))).collect()
}

fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    !ready && taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

struct Garbage {
    /// Since when something waits to be collected, by key.
    since: Mutex<HashMap<String, Timestamp>>,
    clock: Clock,
}

impl ReconcileKey for Garbage {
    async fn reconcile(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
        let lister = ctx.client().lister::<Pod>();
        let (found, wait) = match key.name() {
            UNASSIGNED => (unassigned(&lister), PERIOD),
            ENDED => (surplus(ended(&lister), KEPT), PERIOD),
            node => match ctx.get::<Node>(&key).await? {
                None => (pods_of(&lister, node), QUARANTINE),
                Some(node) if is_out_of_service(&node) => (deleted(pods_of(&lister, key.name())), PERIOD),
                Some(_) => (Vec::new(), PERIOD),
            },
        };
        if found.is_empty() {
            self.since.lock().remove(key.name());
            return Ok(Outcome::Done);
        }
        let now = self.clock.now();
        let since = *self.since.lock().entry(key.name().to_owned()).or_insert(now);
        if let Some(left) = Duration::try_from(wait - now.duration_since(since)).ok().filter(|left| !left.is_zero()) {
            return Ok(Outcome::RequeueAfter(left));
        }
        let orphaned = wait == QUARANTINE;
        // The node may have come back without the cache showing it yet.
        if orphaned && ctx.live().get::<Node>(&key).await?.is_some() {
            return Ok(Outcome::Done);
        }
        try_join_all(found.iter().map(|pod| collect(&ctx, pod, orphaned))).await?;
        self.since.lock().remove(key.name());
        Ok(Outcome::Done)
    }
}

fn deleted(mut pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_some());
    pods
}

/// Deleted pods without a node that were not collected yet.
fn unassigned(lister: &Lister<Pod>) -> Vec<Arc<Pod>> {
    lister.add_index(UNASSIGNED, |pod: &Pod| {
        let waits = pod.metadata.deletion_timestamp.is_some() && pods::node_name(pod).is_none();
        // One that has ended is kept by its finalizers alone.
        if waits && !pods::is_finished(pod) { vec![String::new()] } else { Vec::new() }
    });
    lister.by_index(UNASSIGNED, "")
}

fn ended(lister: &Lister<Pod>) -> Vec<Arc<Pod>> {
    lister.add_index(ENDED, |pod: &Pod| {
        let counts = pods::is_finished(pod) && pod.metadata.deletion_timestamp.is_none();
        if counts { vec![String::new()] } else { Vec::new() }
    });
    lister.by_index(ENDED, "")
}

/// What is too much of ended pods: evicted ones first, then the oldest.
fn surplus(mut ended: Vec<Arc<Pod>>, kept: usize) -> Vec<Arc<Pod>> {
    let count = ended.len().saturating_sub(kept);
    if count > 0 {
        let evicted = |pod: &Pod| {
            let status = pod.status.as_ref();
            status.is_some_and(|s| s.phase.as_deref() == Some("Failed") && s.reason.as_deref() == Some("Evicted"))
        };
        ended.sort_by_cached_key(|pod| {
            (!evicted(pod), pod.metadata.creation_timestamp.as_ref().map(|time| time.0), pod.metadata.name.clone())
        });
    }
    ended.truncate(count);
    ended
}

/// Fails a pod that has not ended, and deletes it at once.
async fn collect(ctx: &Context, pod: &Pod, orphaned: bool) -> windlass::Result<()> {
    let key = ObjectKey::of(pod);
    let collected = async {
        if !pods::is_finished(pod) {
            let patch = Patch::Strategic(failed(pod, orphaned, Timestamp::now()));
            ctx.client().patch_status::<Pod>(&key, &patch).await?;
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let options = DeleteOptions::new().grace_period(Duration::ZERO).uid(uid);
        ctx.client().delete_with::<Pod>(&key, options).await
    };
    match collected.await {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
        _ => Ok(()),
    }
}

/// The status of a pod that is collected.
fn failed(pod: &Pod, orphaned: bool, now: Timestamp) -> Value {
    let mut patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Failed"}});
    if orphaned {
        patch["status"]["conditions"] = json!([{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists", "lastTransitionTime": Time(now),
        }]);
    }
    patch
}
