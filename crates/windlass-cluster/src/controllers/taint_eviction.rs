//! Evicts pods from nodes whose `NoExecute` taints they do not tolerate, or not any longer.
//!
//! A pod's time begins when the controller sees the taint, as upstream's does (`pkg/controller/tainteviction`).

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::Patch;
use parking_lot::Mutex;
use serde_json::json;
use windlass::client::options::DeleteOptions;
use windlass::controller::Watch;
use windlass::events::NewEvent;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, ReconcileKey, predicate};

use super::clock::Clock;
use super::node_lifecycle::{NO_EXECUTE, pods_of};
use super::pods;

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    let placed = predicate::change(|old: &Pod, new: &Pod| {
        let tolerations = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.tolerations.clone());
        pods::node_name(old) != pods::node_name(new) || tolerations(old) != tolerations(new)
    });
    manager.add(
        Controller::<Node>::new("taint-eviction-controller")
            .predicate(predicate::change(|old: &Node, new: &Node| {
                !no_execute(old).eq(no_execute(new)) || old.metadata.uid != new.metadata.uid
            }))
            .watches_with(Watch::<Pod>::default().predicate(placed), |pod: &Pod, ctx| {
                let node = ObjectKey::cluster(pods::node_name(pod)?);
                let tainted = ctx.lister::<Node>().get(&node).is_some_and(|node| no_execute(&node).next().is_some());
                tainted.then_some(node)
            })
            .concurrency(8)
            .complete_keyed(Evictions { scheduled: Mutex::default(), clock: Clock::new() }),
    )
}

/// A node's taints that evict.
fn no_execute(node: &Node) -> impl Iterator<Item = &Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == NO_EXECUTE)
}

/// Pods that will be evicted, by key, with their uid and the time.
type Scheduled = HashMap<ObjectKey, (String, Timestamp)>;

struct Evictions {
    /// By node.
    scheduled: Mutex<HashMap<String, Scheduled>>,
    clock: Clock,
}

impl ReconcileKey for Evictions {
    async fn reconcile(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
        let name = key.name();
        let node = ctx.get::<Node>(&key).await?;
        let taints: Vec<&Taint> = node.iter().flat_map(|node| no_execute(node)).collect();
        let now = self.clock.now();
        let known = self.scheduled.lock().remove(name).unwrap_or_default();
        let mut due = Vec::new();
        let mut scheduled = Scheduled::new();
        let found = if taints.is_empty() && known.is_empty() {
            Vec::new()
        } else {
            pods_of(&ctx.client().lister::<Pod>(), name)
        };
        for pod in found.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let (key, uid) = (ObjectKey::of(&**pod), pod.metadata.uid.clone().unwrap_or_default());
            let before = known.get(&key).filter(|(known, _)| *known == uid).map(|(_, at)| *at);
            let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
            if let Some(at) = eviction(&taints, tolerations, before, now) {
                if at <= now {
                    due.push(key.clone());
                }
                scheduled.insert(key, (uid, at));
            }
        }
        for key in known.keys().filter(|key| !scheduled.contains_key(key)) {
            report(&ctx, key, "Cancelling deletion of Pod");
        }
        let next = scheduled.values().map(|(_, at)| *at).filter(|at| *at > now).min();
        if !scheduled.is_empty() {
            self.scheduled.lock().insert(name.to_owned(), scheduled);
        }
        // One that cannot be evicted stays scheduled, and is tried again.
        for key in &due {
            evict(&ctx, key).await?;
            if let Some(scheduled) = self.scheduled.lock().get_mut(name) {
                scheduled.remove(key);
            }
        }
        Ok(match next {
            Some(next) => Outcome::RequeueAfter(Duration::try_from(next.duration_since(now)).unwrap_or_default()),
            None => Outcome::Done,
        })
    }
}

/// When a pod must go, if ever. A time that was set before stays, as long as the pod is not tolerant for ever.
fn eviction(
    taints: &[&Taint],
    tolerations: &[Toleration],
    scheduled: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    if taints.is_empty() {
        return None;
    }
    let used: Option<Vec<&Toleration>> =
        taints.iter().map(|taint| tolerations.iter().find(|toleration| tolerates(toleration, taint))).collect();
    let Some(used) = used else { return Some(now) };
    let seconds = used.iter().filter_map(|toleration| toleration.toleration_seconds).min()?;
    if seconds <= 0 {
        return Some(now);
    }
    scheduled.or_else(|| Some(now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)))
}

/// Whether a toleration covers a taint.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    let exists = toleration.operator.as_deref() == Some("Exists");
    given(&toleration.effect).is_none_or(|effect| effect == taint.effect)
        && match given(&toleration.key) {
            Some(key) => key == taint.key,
            None => exists,
        }
        && (exists || given(&toleration.value).unwrap_or_default() == taint.value.clone().unwrap_or_default())
}

async fn evict(ctx: &Context, key: &ObjectKey) -> windlass::Result<()> {
    report(ctx, key, "Marking for deletion Pod");
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": Time(Timestamp::now()),
    });
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    let evicted = match ctx.client().patch_status::<Pod>(key, &patch).await {
        Ok(pod) => ctx.client().delete_with::<Pod>(key, DeleteOptions::of(&pod)).await.map(drop),
        Err(error) => Err(error),
    };
    match evicted {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
        _ => Ok(()),
    }
}

fn report(ctx: &Context, pod: &ObjectKey, what: &str) {
    let regarding = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: pod.namespace().map(str::to_owned),
        name: Some(pod.name().to_owned()),
        ..ObjectReference::default()
    };
    ctx.recorder().publish(regarding, NewEvent::normal("TaintManagerEviction", format!("{what} {pod}")));
}
