//! What the program around the core knows, and what each change means for pods that wait.
//!
//! Everything here is synchronous and under one lock. A decision and the queue's part in it happen under the same lock,
//! so that no change falls between them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Node, Pod};
use windlass::metrics::Registry;

use crate::metrics::Attempts;
use crate::node::NodeSpec;
use crate::pod::PodInfo;
use crate::queue::{Reported, SchedulingQueue};
use crate::reason::Causes;
use crate::schedule::{Decision, Failure, Nomination};
use crate::snapshot::Snapshot;
use crate::volume::PodVolumes;

/// How many checks of one pod against one node are worth less than trying pods again.
const MOST_CHECKS: usize = 10_000;

/// What has changed since waiting pods were looked at.
#[derive(Debug, Default)]
struct Changes {
    /// Nodes that have changed or have more room.
    nodes: HashSet<Box<str>>,
    /// Pods that others depend on came, went or changed.
    pods: bool,
    /// Claims, volumes or classes have changed.
    volumes: bool,
    /// Resource claims or classes of devices have changed.
    devices: bool,
}

/// Something to be done about a pod.
#[derive(Debug)]
pub(crate) enum Work {
    Bind {
        pod: Arc<PodInfo>,
        node: Arc<str>,
        volumes: PodVolumes,
    },
    Fail {
        pod: Arc<PodInfo>,
        failure: Failure,
        /// What the API shows about the pod so far.
        before: Reported,
        /// Less important pods that waited for the same node, and no longer do.
        outbid: Vec<Arc<PodInfo>>,
    },
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) cluster: Snapshot,
    pub(crate) queue: SchedulingQueue,
    /// The names that pods may ask for this scheduler by, with what is counted about each.
    profiles: BTreeMap<String, Attempts>,
    changes: Changes,
    /// The last pod that was told of: most have much in common with the one before.
    last: Option<Arc<PodInfo>>,
    random: fastrand::Rng,
}

impl State {
    pub(crate) fn new(profiles: &BTreeSet<String>, metrics: &Registry) -> Self {
        Self {
            cluster: Snapshot::new(),
            queue: SchedulingQueue::default(),
            profiles: profiles.iter().map(|name| (name.clone(), Attempts::new(metrics, name))).collect(),
            changes: Changes::default(),
            last: None,
            random: fastrand::Rng::new(),
        }
    }

    pub(crate) fn set_node(&mut self, node: &Node) {
        let spec = NodeSpec::new(node);
        let name = Arc::clone(&spec.name);
        if self.cluster.set_node(spec) {
            self.changes.nodes.insert((*name).into());
            // A node brings its pods and its labels with it.
            self.changes.pods = true;
        }
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        self.cluster.remove_node(name);
        self.changes.pods = true;
    }

    pub(crate) fn set_pod(&mut self, pod: &Pod, now: Instant) {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if phase == "Succeeded" || phase == "Failed" {
            return self.remove_pod(pod);
        }
        let mut info = PodInfo::new(pod);
        if let Some(last) = &self.last {
            info.share(last);
        }
        if let Some(node) = &info.node {
            let node = node.clone();
            self.queue.remove(&info.uid);
            let before = self.cluster.pod(&info.namespace, &info.uid).cloned();
            let smaller = before.is_some_and(|before| before.requests != info.requests);
            let info = Arc::new(info);
            self.last = Some(Arc::clone(&info));
            if self.cluster.add_pod(&info) {
                self.changes.pods = true;
                if smaller {
                    self.changes.nodes.insert(node);
                }
            }
            return;
        }
        if !self.profiles.contains_key(&*info.scheduler) {
            return;
        }
        if info.deleting {
            return self.remove_pod(pod);
        }
        info.lacks_devices = !self.cluster.devices.are_there(&info);
        let reported = reported(pod);
        match &info.nominated {
            Some(node) => self.cluster.nominate(&Arc::new(info.clone()), &node.clone()),
            // What this process nominates, the API shows a little later.
            None if self.queue.get(&info.uid).is_some_and(|entry| entry.pod.nominated.is_some()) => {
                self.cluster.denominate(&info.uid);
            }
            None => {}
        }
        self.queue.set(info, reported, now);
    }

    pub(crate) fn remove_pod(&mut self, pod: &Pod) {
        let (uid, namespace) = (pod.metadata.uid.as_deref(), pod.metadata.namespace.as_deref());
        let (uid, namespace) = (uid.unwrap_or_default(), namespace.unwrap_or_default());
        self.queue.remove(uid);
        self.cluster.denominate(uid);
        if let Some(pod) = self.cluster.remove_pod(namespace, uid) {
            self.changes.nodes.extend(pod.node.clone());
            self.changes.pods = true;
        }
    }

    pub(crate) fn volumes_changed(&mut self) {
        self.changes.volumes = true;
    }

    /// Resource claims or classes of devices have changed.
    pub(crate) fn devices_changed(&mut self, now: Instant) {
        self.changes.devices = true;
        for (pod, reported) in self.queue.lacking_devices() {
            if self.cluster.devices.are_there(&pod) {
                self.queue.set(PodInfo { lacks_devices: false, ..(*pod).clone() }, reported, now);
            }
        }
    }

    pub(crate) fn pods_changed(&mut self) {
        self.changes.pods = true;
    }

    /// Decides about the next pod, if there is one. What has changed for pods that wait is looked at when a batch
    /// begins, and when there is no other pod left.
    pub(crate) fn step(&mut self, begins: bool, now: Instant) -> Option<Work> {
        if begins || !self.queue.has_active() {
            self.move_waiting(now);
        }
        loop {
            let pod = self.queue.pop(now)?;
            if self.cluster.pod(&pod.namespace, &pod.uid).is_some() {
                // It was bound meanwhile.
                self.queue.remove(&pod.uid);
                continue;
            }
            let began = Instant::now();
            let decision = self.cluster.schedule(&pod, &mut self.random);
            if let Some(attempts) = self.profiles.get(&*pod.scheduler) {
                attempts.count(&decision, began.elapsed());
            }
            return Some(match decision {
                Decision::Bind { node, volumes } => {
                    self.cluster.assume(&pod, &node, &volumes);
                    Work::Bind { pod, node, volumes }
                }
                Decision::Wait(failure) => self.fail(pod, failure, now),
            });
        }
    }

    fn fail(&mut self, pod: Arc<PodInfo>, failure: Failure, now: Instant) -> Work {
        self.queue.wait(&pod.uid, failure.causes, now);
        let before = self.queue.get(&pod.uid).map(|entry| entry.reported.clone()).unwrap_or_default();
        let mut outbid = Vec::new();
        let nominated = match &failure.nomination {
            Nomination::Keep => before.nominated.clone(),
            Nomination::Clear => {
                self.cluster.denominate(&pod.uid);
                None
            }
            Nomination::Preempt { node, .. } => {
                let lower = self.cluster.nominated(node).iter().filter(|other| other.priority < pod.priority);
                outbid.extend(lower.cloned());
                for other in &outbid {
                    self.cluster.denominate(&other.uid);
                }
                self.cluster.nominate(&pod, node);
                Some((**node).into())
            }
        };
        let why = Some(("Unschedulable".to_owned(), failure.message.clone()));
        self.queue.report(&pod.uid, Reported { unscheduled: true, why, nominated });
        Work::Fail { pod, failure, before, outbid }
    }

    /// Binding failed: the pod is where it was, and its room is free.
    pub(crate) fn unbind(&mut self, pod: &PodInfo, volumes: &PodVolumes, node: &str, now: Instant) {
        if self.cluster.pod(&pod.namespace, &pod.uid).is_some_and(|assumed| assumed.node.as_deref() == Some(node)) {
            self.cluster.forget(pod, volumes);
            self.changes.nodes.insert(node.into());
            self.changes.pods = true;
        }
        self.queue.retry(&pod.uid, now);
    }

    /// Tries pods again for which something has changed that may help.
    fn move_waiting(&mut self, now: Instant) {
        let changes = std::mem::take(&mut self.changes);
        if changes.nodes.is_empty() && !changes.pods && !changes.volumes && !changes.devices {
            return;
        }
        let waiting: Vec<(Arc<PodInfo>, Causes)> =
            self.queue.waiting().map(|entry| (Arc::clone(&entry.pod), entry.causes)).collect();
        let few = waiting.len() * changes.nodes.len() <= MOST_CHECKS;
        for (pod, causes) in waiting {
            let helps = (changes.pods && causes.is_about_other_pods())
                || (changes.volumes && causes.is_about_volumes())
                || (changes.devices && causes.is_about_devices())
                || if few {
                    changes.nodes.iter().any(|node| self.cluster.may_suit(&pod, node))
                } else {
                    !changes.nodes.is_empty()
                };
            if helps {
                self.queue.requeue(&pod.uid, now);
            }
        }
    }
}

fn reported(pod: &Pod) -> Reported {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let condition = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
    let condition = condition.filter(|condition| condition.status == "False");
    let why = condition
        .map(|condition| (condition.reason.clone().unwrap_or_default(), condition.message.clone().unwrap_or_default()));
    let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
    let nominated = nominated.filter(|name| !name.is_empty()).map(Box::from);
    Reported { unscheduled: condition.is_some(), why, nominated }
}

#[cfg(test)]
mod tests {
    use windlass::json;
    use windlass::serde_json::from_value;

    use super::*;

    #[test]
    fn pods_share_what_they_have_in_common() {
        let mut state = State::new(&BTreeSet::from(["default-scheduler".to_owned()]), &Registry::default());
        let mut set = |name: &str, key: &str| {
            let pod = json!({
                "metadata": {"name": name, "namespace": "ns", "uid": name},
                "spec": {
                    "nodeName": "n", "containers": [{"name": "c", "image": "i"}],
                    "tolerations": [{"key": key, "operator": "Exists"}],
                },
            });
            state.set_pod(&from_value(pod).expect("a pod"), Instant::now());
            Arc::clone(state.cluster.pod("ns", name).expect("there"))
        };
        let (first, second, third) = (set("a", "x"), set("b", "x"), set("c", "y"));
        assert!(Arc::ptr_eq(&first.tolerations, &second.tolerations) && Arc::ptr_eq(&first.images, &third.images));
        assert_ne!(second.tolerations, third.tolerations);
    }
}
