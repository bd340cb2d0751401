//! DaemonSets: one pod on every node where it belongs.
//!
//! The scheduler binds the pods; each is pinned to its node by an affinity to the node's name. What to do is decided by
//! [`plan`], pure functions of the set's pods and the nodes. Mirrors upstream's `pkg/controller/daemon`.

mod backoff;
mod nodes;
mod plan;
mod revision;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::Timestamp;
use kube::core::Selector;
use parking_lot::Mutex;
use windlass::cache::Lister;
use windlass::controller::Watch;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile, ReconcileError, owner, predicate};

use super::history::REVISION_LABEL;
use super::namespace::is_terminating as is_namespace_terminating;
use super::{claim, pods};
use backoff::Backoff;
use nodes::{Placement, Placer};
use plan::{Plan, View};
use revision::Revisions;

/// Pods created or deleted in one go.
const BURST: usize = 250;
const GENERATION: &str = "deprecated.daemonset.template.generation";
const GENERATION_LABEL: &str = "pod-template-generation";
/// The index of pods by the uid of their DaemonSet and their node.
const BY_NODE: &str = "daemon-set-and-node";

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    // Of a node, labels and taints matter here.
    let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
    let changed = predicate::change(move |old: &Node, new: &Node| {
        old.metadata.labels != new.metadata.labels || taints(old) != taints(new)
    });
    manager.add(
        Controller::<DaemonSet>::new("daemonset-controller")
            .owns::<Pod>()
            .owns::<ControllerRevision>()
            .watches(|pod: &Pod, ctx| {
                claim::adopters(pod, &ctx.lister(), |set: &DaemonSet| set.spec.as_ref().map(|spec| &spec.selector))
            })
            .watches_with(Watch::default().predicate(changed), |node: &Node, ctx| {
                concerned(node, &ctx.lister(), &ctx.lister())
            })
            .concurrency(2)
            .complete(DaemonSets::default()),
    )
}

/// The sets for which a change of a node matters. Upstream leaves the others alone, so that their status does not
/// show, for example, that a pod stays in spite of a new taint.
fn concerned(node: &Node, sets: &Lister<DaemonSet>, pods: &Lister<Pod>) -> Vec<ObjectKey> {
    pods.add_index(BY_NODE, |pod: &Pod| {
        let controller = owner::controller(pod).filter(|controller| controller.kind == "DaemonSet");
        let (Some(controller), Some(node)) = (controller, nodes::target(pod)) else { return Vec::new() };
        vec![format!("{}/{node}", controller.uid)]
    });
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let matters = |set: &Arc<DaemonSet>| {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let has_pod = !pods.by_index(BY_NODE, &format!("{uid}/{name}")).is_empty();
        let misplaced = set.status.as_ref().is_some_and(|status| status.number_misscheduled > 0);
        match Placer::of(set).place(node) {
            Placement::Run => !has_pod || misplaced,
            Placement::Stay => has_pod && misplaced,
            Placement::Leave => has_pod,
        }
    };
    sets.list().into_iter().filter(matters).map(|set| ObjectKey::of(&*set)).collect()
}

fn spec(set: &DaemonSet) -> &DaemonSetSpec {
    static EMPTY: std::sync::OnceLock<DaemonSetSpec> = std::sync::OnceLock::new();
    set.spec.as_ref().unwrap_or_else(|| EMPTY.get_or_init(DaemonSetSpec::default))
}

fn generation(set: &DaemonSet) -> Option<&str> {
    let annotation = set.metadata.annotations.as_ref()?.get(GENERATION)?;
    annotation.parse::<i64>().ok().map(|_| annotation.as_str())
}

#[derive(Default)]
struct DaemonSets {
    /// How the pods of sets failed lately.
    failures: Mutex<HashMap<ObjectKey, Backoff>>,
}

impl Reconcile<DaemonSet> for DaemonSets {
    async fn reconcile(&self, set: Arc<DaemonSet>, ctx: Context) -> windlass::Result {
        if spec(&set).selector == LabelSelector::default() {
            let note = "This daemon set is selecting all pods. A non-empty selector is required.";
            ctx.recorder().warning(&*set, "SelectingAll", note);
            return Ok(Outcome::Done);
        }
        let Some(selector) = claim::selector(&spec(&set).selector) else { return Ok(Outcome::Done) };
        // Its revisions may be gone before it, so that nothing can be said about its pods.
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let candidates = claim::candidates(&ctx.client().lister::<Pod>(), &*set);
        let claimed = claim::claim(&ctx, &*set, &selector, candidates, &[]).await?;
        let revisions = match Revisions::of(&ctx, &set, &selector, &claimed).await {
            Err(error) if error.get_ref().downcast_ref().is_some_and(is_namespace_terminating) => {
                return Ok(Outcome::Done);
            }
            other => other?,
        };
        let placer = Placer::of(&set);
        let nodes = ctx.client().lister::<Node>().list();
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        let nodes = nodes.iter().map(|node| (name(node), placer.place(node))).collect();
        let run = Run { ctx: &ctx, set: &set, selector, nodes, revisions, now: ctx.now() };
        Box::pin(run.finish(self, claimed)).await
    }

    async fn gone(&self, key: ObjectKey, _ctx: Context) -> windlass::Result {
        self.failures.lock().remove(&key);
        Ok(Outcome::Done)
    }
}

/// One look at a set.
struct Run<'a> {
    ctx: &'a Context,
    set: &'a DaemonSet,
    selector: Selector,
    nodes: BTreeMap<String, Placement>,
    revisions: Revisions,
    now: Timestamp,
}

type PodsByNode = BTreeMap<String, Vec<Arc<Pod>>>;

impl Run<'_> {
    async fn finish(self, sets: &DaemonSets, claimed: Vec<Arc<Pod>>) -> windlass::Result {
        let claimed_by_node = by_node(&claimed);
        let view = self.view(&claimed_by_node);
        let plan = self.manage(&view, sets);
        let again = plan.again;
        let mut advanced = self.carry_out(&plan).await;
        let rolls = spec(self.set).update_strategy.as_ref().is_none_or(|it| it.type_.as_deref() != Some("OnDelete"));
        // An update goes on when what was planned shows in the pods.
        if advanced.is_ok() && plan.is_empty() && rolls {
            advanced = self.carry_out(&view.roll()).await;
        }
        if advanced.is_ok() {
            advanced = self.revisions.truncate(self.ctx, self.set, &claimed).await;
        }
        let current = self.current();
        let current = by_node(&current);
        let view = self.view(&current);
        let status = self.status(&view);
        let pending = status.number_ready != status.number_available.unwrap_or(0);
        let written = self.write(status).await;
        advanced?;
        written?;
        let seconds = spec(self.set).min_ready_seconds.unwrap_or(0);
        let next = pods::next_available(current.values().flatten().map(|pod| &**pod), seconds, self.now);
        let next = [again, next.filter(|_| pending)].into_iter().flatten().min();
        Ok(next.map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    fn view<'v>(&'v self, pods: &'v PodsByNode) -> View<'v> {
        View {
            spec: spec(self.set),
            hash: &self.revisions.hash,
            generation: generation(self.set),
            nodes: &self.nodes,
            pods,
            now: self.now,
        }
    }

    /// The set's pods as they are after what was done.
    fn current(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.ctx.client().lister::<Pod>().owned_by(self.set);
        pods.retain(|pod| owner::is_controlled_by(&**pod, self.set) && claim::selects(&self.selector, &**pod));
        pods
    }

    /// Plans what each node needs, and reports pods that ended.
    fn manage(&self, view: &View<'_>, sets: &DaemonSets) -> Plan {
        let observed = self.set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
        let mut failures = sets.failures.lock();
        let backoff = failures.entry(ObjectKey::of(self.set)).or_default();
        backoff.begin(observed, self.now);
        let plan = view.manage(|node| backoff.attempt(node, self.now));
        if backoff.is_empty() {
            failures.remove(&ObjectKey::of(self.set));
        }
        drop(failures);
        for (node, pod) in &plan.ended {
            let key = ObjectKey::of(&**pod);
            let recorder = self.ctx.recorder();
            if pods::phase(pod) == "Failed" {
                let note = format!("Found failed daemon pod {key} on node {node}, will try to kill it");
                recorder.warning(self.set, "FailedDaemonPod", note);
            } else {
                let note = format!("Found succeeded daemon pod {key} on node {node}, will try to delete it");
                recorder.normal(self.set, "SucceededDaemonPod", note);
            }
        }
        plan
    }

    /// Creates and deletes pods.
    async fn carry_out(&self, plan: &Plan) -> Result<(), ReconcileError> {
        let pod = self.describe();
        let count = plan.create.len().min(BURST);
        let (_, failure) = pods::slow_start(count, async |at| {
            let mut pod = pod.clone();
            nodes::pin(pod.spec.get_or_insert_default(), &plan.create[at]);
            match pods::create(self.ctx, self.set, &pod).await {
                // Nothing can be created any more, and all there is will be deleted.
                Err(error) if is_namespace_terminating(&error) => Ok(()),
                other => other.map(drop),
            }
        })
        .await;
        let keys: Vec<ObjectKey> = plan.delete.iter().take(BURST).map(|pod| ObjectKey::of(&**pod)).collect();
        let deleted = join_all(keys.iter().map(|key| pods::delete(self.ctx, self.set, key))).await;
        failure.into_iter().chain(deleted.into_iter().filter_map(Result::err)).next().map_or(Ok(()), |e| Err(e.into()))
    }

    /// A pod of the set that is not yet pinned to a node.
    fn describe(&self) -> Pod {
        let mut pod = pods::from_template(&spec(self.set).template, self.set);
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(REVISION_LABEL.to_owned(), self.revisions.hash.clone());
        if let Some(generation) = generation(self.set) {
            labels.insert(GENERATION_LABEL.to_owned(), generation.to_owned());
        }
        nodes::add_tolerations(pod.spec.get_or_insert_default());
        pod
    }

    fn status(&self, view: &View<'_>) -> DaemonSetStatus {
        let (mut current, mut misplaced, mut ready, mut available, mut updated) = (0, 0, 0, 0, 0);
        for (node, placement) in view.nodes {
            let Some(pod) = view.pods.get(node).and_then(|pods| pods.first()) else { continue };
            if *placement != Placement::Run {
                misplaced += 1;
                continue;
            }
            current += 1;
            ready += i32::from(pods::is_ready(pod));
            available += i32::from(view.is_available(pod));
            updated += i32::from(view.is_updated(pod));
        }
        let some = |count: i32| Some(count).filter(|count| *count != 0);
        let desired = view.desired() as i32;
        let before = self.set.status.clone().unwrap_or_default();
        DaemonSetStatus {
            desired_number_scheduled: desired,
            current_number_scheduled: current,
            number_misscheduled: misplaced,
            number_ready: ready,
            number_available: some(available),
            number_unavailable: some(desired - available),
            updated_number_scheduled: some(updated),
            observed_generation: self.set.metadata.generation,
            ..before
        }
    }

    async fn write(&self, status: DaemonSetStatus) -> Result<(), ReconcileError> {
        if self.set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let updated = DaemonSet { status: Some(status), ..self.set.clone() };
        match self.ctx.client().update_status(&updated).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Pods by the node that they are on or meant for, in the order in which they count. Those that have ended and are
/// being deleted are not looked at any more.
fn by_node(pods: &[Arc<Pod>]) -> PodsByNode {
    let mut by_node = PodsByNode::new();
    for pod in pods {
        let over = pods::is_finished(pod) && pod.metadata.deletion_timestamp.is_some();
        if let Some(node) = nodes::target(pod).filter(|_| !over) {
            by_node.entry(node.to_owned()).or_default().push(Arc::clone(pod));
        }
    }
    for pods in by_node.values_mut() {
        plan::sort(pods);
    }
    by_node
}
