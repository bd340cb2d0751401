//! Nodes: taints that follow from their conditions, and what happens when a node falls silent.
//!
//! A node shows that it is alive by renewing its Lease or by reporting its status. After the grace period its conditions
//! become Unknown, its pods are marked not ready, and taints keep pods away and evict those that do not tolerate them.
//! Mirrors upstream's `pkg/controller/nodelifecycle`, with a timer for each node in place of its monitoring loop.

mod health;
mod taints;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeStatus, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use parking_lot::Mutex;
use serde_json::json;
use windlass::cache::{Lister, Scope};
use windlass::controller::{Enqueuer, Watch};
use windlass::events::{NewEvent, Recorder};
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};

use super::clock::Clock;
use super::pods;
use health::{Monitor, Permit, Place, Report, Seen};
pub(super) use taints::NO_EXECUTE;
use taints::NoExecute;

/// Where nodes have their leases.
const LEASES: &str = "kube-node-lease";
/// A node with this label does not count when the state of its zone is found out.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
/// The index of pods by node.
const BY_NODE: &str = "node";

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    let controller = Controller::<Node>::new("node-lifecycle-controller");
    let shared = Arc::new(Shared { monitor: Mutex::default(), clock: Clock::new() });
    let nodes = Nodes {
        shared: Arc::clone(&shared),
        unmarked: Mutex::default(),
        recorder: manager.recorder("node-controller"),
        enqueuer: controller.enqueuer(),
    };
    let leases = Watch::<Lease>::default().scope(Scope::default().namespace(LEASES));
    manager.add(
        controller
            // A heartbeat is noted and starts no reconcile: the node's timer asks for the last one.
            .watches_with(leases, move |lease: &Lease, _| {
                shared.note(lease);
                None
            })
            // Pods are read from the cache.
            .watches(|_: &Pod, _| None)
            .concurrency(8)
            .complete(nodes),
    )
}

/// The pods of a node.
pub(super) fn pods_of(lister: &Lister<Pod>, node: &str) -> Vec<Arc<Pod>> {
    lister.add_index(BY_NODE, |pod: &Pod| pods::node_name(pod).map(str::to_owned).into_iter().collect());
    lister.by_index(BY_NODE, node)
}

/// What the reconciler and the heartbeats share.
struct Shared {
    monitor: Mutex<Monitor>,
    clock: Clock,
}

impl Shared {
    fn note(&self, lease: &Lease) {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        if let (Some(name), Some(renewed)) = (&lease.metadata.name, renewed) {
            self.monitor.lock().renewed(name, renewed.0, self.clock.now());
        }
    }
}

struct Nodes {
    shared: Arc<Shared>,
    /// Nodes whose pods must still be marked not ready.
    unmarked: Mutex<BTreeSet<String>>,
    recorder: Recorder,
    enqueuer: Enqueuer,
}

impl Reconcile<Node> for Nodes {
    async fn reconcile(&self, node: Arc<Node>, ctx: Context) -> windlass::Result {
        let key = ObjectKey::of(&*node);
        let name = key.name();
        let seen = self.observe(&node, &ctx);
        if seen.first {
            let note = format!("Node {name} event: Registered Node {name} in Controller");
            self.recorder.publish(reference(&node), NewEvent::normal("RegisteredNode", note));
        }
        let node = match seen.left {
            Some(_) => node,
            None => match self.silence(node, &ctx).await? {
                Some(node) => node,
                None => return Ok(Outcome::Done),
            },
        };
        if seen.first && status(&node).is_some_and(|status| status != "True") {
            self.unmarked.lock().insert(name.to_owned());
        }
        if self.unmarked.lock().contains(name) {
            self.mark_pods(name, &ctx).await?;
            self.unmarked.lock().remove(name);
        }
        let wait = self.taint(&node, seen.first, &ctx).await?;
        Ok(match [wait, seen.left].into_iter().flatten().min() {
            Some(next) => Outcome::RequeueAfter(next),
            None => Outcome::Done,
        })
    }

    async fn gone(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
        let name = key.name();
        self.unmarked.lock().remove(name);
        let note = format!("Node {name} event: Removing Node {name} from Controller");
        let regarding = ObjectReference { name: Some(name.to_owned()), ..reference(&Node::default()) };
        self.recorder.publish(regarding, NewEvent::normal("RemovingNode", note));
        let shifted = self.shared.monitor.lock().forget(name, self.shared.clock.now());
        self.wake_all(shifted, &ctx);
        Ok(Outcome::Done)
    }
}

impl Nodes {
    fn observe(&self, node: &Node, ctx: &Context) -> Seen {
        let now = self.shared.clock.now();
        let mut monitor = self.shared.monitor.lock();
        if !monitor.is_seeded() {
            let all = ctx.client().lister::<Node>().list();
            let named = all.iter().map(|node| (node.metadata.name.clone().unwrap_or_default(), place(node)));
            monitor.seed(named.collect::<Vec<_>>(), now);
        }
        let report = match taints::condition(node, "Ready") {
            Some(ready) => Report::Heartbeat(ready.last_heartbeat_time.as_ref().map(|time| time.0)),
            None => Report::Nothing,
        };
        monitor.observe(node.metadata.name.as_deref().unwrap_or_default(), report, now)
    }

    /// Says in a node's conditions that nothing is heard of it. Returns nothing when it is gone.
    async fn silence(&self, node: Arc<Node>, ctx: &Context) -> windlass::Result<Option<Arc<Node>>> {
        let Some(conditions) = taints::silenced(&node, Timestamp::now()) else { return Ok(Some(node)) };
        let was_ready = status(&node) == Some("True");
        let name = node.metadata.name.clone().unwrap_or_default();
        if was_ready {
            self.unmarked.lock().insert(name.clone());
        }
        let status = NodeStatus { conditions: Some(conditions), ..node.status.clone().unwrap_or_default() };
        let updated = match ctx.client().update_status(&Node { status: Some(status), ..Node::clone(&node) }).await {
            Ok(updated) => updated,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if was_ready {
            let note = format!("Node {name} status is now: NodeNotReady");
            self.recorder.publish(reference(&updated), NewEvent::normal("NodeNotReady", note));
        }
        Ok(Some(Arc::new(updated)))
    }

    /// Marks all pods of a node as not ready.
    async fn mark_pods(&self, node: &str, ctx: &Context) -> windlass::Result<()> {
        let mut ready = pods_of(&ctx.client().lister::<Pod>(), node);
        ready.retain(|pod| pods::condition(pod, "Ready").is_some_and(|condition| condition.status != "False"));
        let mark = async |pod: &Arc<Pod>| {
            let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": Time(Timestamp::now())});
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
            match ctx.client().patch_status::<Pod>(&ObjectKey::of(&**pod), &Patch::Strategic(patch)).await {
                Ok(_) => self.recorder.warning(&**pod, "NodeNotReady", "Node is not ready"),
                // Gone, or another pod of the same name.
                Err(error) if error.is_not_found() || error.is_conflict() || error.is_invalid() => {}
                Err(error) => return Err(error),
            }
            Ok(())
        };
        try_join_all(ready.iter().map(mark)).await?;
        Ok(())
    }

    /// Brings a node's taints and labels in line with its conditions. Returns when to look again.
    async fn taint(&self, node: &Node, first: bool, ctx: &Context) -> windlass::Result<Option<Duration>> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let now = self.shared.clock.now();
        let (shifted, no_execute, wait) = {
            let mut monitor = self.shared.monitor.lock();
            let shifted = monitor.settle(name, place(node), now);
            let (no_execute, wait) = no_execute(node, first, &mut monitor, now);
            (shifted, no_execute, wait)
        };
        self.wake_all(shifted, ctx);
        let wanted = taints::wanted(node, no_execute, Timestamp::now());
        let labels = taints::labels(node);
        if wanted.is_none() && labels.is_empty() {
            return Ok(wait);
        }
        let mut patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version, "labels": labels}});
        if let Some(taints) = wanted {
            patch["spec"] = json!({"taints": Some(taints).filter(|taints| !taints.is_empty())});
        }
        match ctx.client().patch::<Node>(&ObjectKey::cluster(name), &Patch::Merge(patch)).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(wait),
        }
    }

    /// Looks at every node again when the state of zones allows for other taints than before.
    fn wake_all(&self, shifted: bool, ctx: &Context) {
        if shifted {
            for key in ctx.client().lister::<Node>().keys() {
                self.enqueuer.enqueue(key);
            }
        }
    }
}

/// Which `NoExecute` taint a node should have for not being ready, and when that can be said if not yet.
fn no_execute(node: &Node, first: bool, monitor: &mut Monitor, now: Timestamp) -> (NoExecute, Option<Duration>) {
    let Some(status) = status(node) else {
        return (if first { NoExecute::Clear } else { NoExecute::Keep }, None);
    };
    let Some(key) = taints::of_ready(status) else { return (NoExecute::Clear, None) };
    if monitor.is_all_disrupted() {
        return (NoExecute::Clear, None);
    }
    let current = taints::of(node);
    if [taints::NOT_READY, taints::UNREACHABLE].iter().any(|known| taints::has(current, known, NO_EXECUTE)) {
        return (NoExecute::Set(key), None);
    }
    match monitor.permit(&taints::zone(node), now) {
        Permit::Now => (NoExecute::Set(key), None),
        Permit::After(wait) => (NoExecute::Keep, Some(wait)),
        Permit::Never => (NoExecute::Keep, None),
    }
}

/// What a node's Ready condition says.
fn status(node: &Node) -> Option<&str> {
    taints::condition(node, "Ready").map(|ready| &*ready.status)
}

/// A node as its zone counts it.
fn place(node: &Node) -> Option<Place> {
    let excluded = node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EXCLUDED));
    (!excluded).then(|| Place { zone: taints::zone(node), ready: status(node) == Some("True") })
}

/// A node as events name it.
fn reference(node: &Node) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: node.metadata.name.clone(),
        uid: node.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
