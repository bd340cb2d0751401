//! What to do about the pods of a DaemonSet. No I/O: functions of its pods by node, where it belongs, and the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSetSpec;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::nodes::Placement;
use crate::controllers::history::REVISION_LABEL;
use crate::controllers::pods::{is_available, is_ready, phase, scaled};

const GENERATION_LABEL: &str = "pod-template-generation";

/// A DaemonSet, the nodes and its pods.
pub(super) struct View<'a> {
    pub(super) spec: &'a DaemonSetSpec,
    /// What its current revision is called.
    pub(super) hash: &'a str,
    /// The number of its template, for pods of older controllers.
    pub(super) generation: Option<&'a str>,
    /// Where its pods belong, by node.
    pub(super) nodes: &'a BTreeMap<String, Placement>,
    /// Its pods, by the node that they are on or meant for.
    pub(super) pods: &'a BTreeMap<String, Vec<Arc<Pod>>>,
    pub(super) now: Timestamp,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// The nodes that get a pod.
    pub(super) create: Vec<String>,
    /// The pods that go.
    pub(super) delete: Vec<Arc<Pod>>,
    /// Those of them that have ended, with their node.
    pub(super) ended: Vec<(String, Arc<Pod>)>,
    /// When to look again at failed pods that are not yet replaced.
    pub(super) again: Option<Duration>,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty()
    }
}

/// How many pods may be too many or too few during an update.
#[derive(Debug, PartialEq, Eq)]
struct Limits {
    surge: usize,
    unavailable: usize,
}

fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Sorts the pods of a node: those that are bound first, then the older.
pub(super) fn sort(pods: &mut [Arc<Pod>]) {
    pods.sort_by_cached_key(|pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (node.is_empty(), created, pod.metadata.name.clone())
    });
}

impl View<'_> {
    /// Whether a pod is of the current template.
    pub(super) fn is_updated(&self, pod: &Pod) -> bool {
        let label = |name: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
        let hash = !self.hash.is_empty() && label(REVISION_LABEL) == Some(self.hash);
        hash || (self.generation.is_some() && label(GENERATION_LABEL) == self.generation)
    }

    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    /// How many nodes should run the pod.
    pub(super) fn desired(&self) -> usize {
        self.nodes.values().filter(|placement| **placement == Placement::Run).count()
    }

    fn limits(&self, desired: usize) -> Limits {
        let strategy = self.spec.update_strategy.as_ref();
        let rolling = strategy.filter(|it| it.type_.as_deref() == Some("RollingUpdate"));
        let rolling = rolling.and_then(|it| it.rolling_update.as_ref());
        let count = |value: Option<_>| usize::try_from(scaled(value, desired as i32, true)).unwrap_or(0);
        let surge = count(rolling.and_then(|rolling| rolling.max_surge.as_ref()));
        let unavailable = count(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()));
        let unavailable = if desired > 0 && surge == 0 { unavailable.max(1) } else { unavailable };
        Limits { surge, unavailable }
    }

    /// What each node needs: pods where they belong, none elsewhere, one for one that has ended. `backoff` says how
    /// long a failed pod on a node has to stay, and notes that it is replaced if it has not.
    pub(super) fn manage(&self, mut backoff: impl FnMut(&str) -> Duration) -> Plan {
        let mut plan = Plan::default();
        for (node, placement) in self.nodes {
            let pods = self.pods.get(node).map(Vec::as_slice).unwrap_or_default();
            match placement {
                Placement::Run if pods.is_empty() => plan.create.push(node.clone()),
                Placement::Leave => plan.delete.extend(pods.iter().filter(|pod| !is_deleting(pod)).cloned()),
                Placement::Run | Placement::Stay => self.manage_node(node, *placement, pods, &mut plan, &mut backoff),
            }
        }
        // A pod for a node that is gone never gets there, and nothing else deletes it.
        for (_, pods) in self.pods.iter().filter(|(node, _)| !self.nodes.contains_key(*node)) {
            let is_unbound =
                |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default().is_empty();
            plan.delete.extend(pods.iter().filter(|pod| is_unbound(pod) && !is_deleting(pod)).cloned());
        }
        plan
    }

    fn manage_node(
        &self,
        node: &str,
        placement: Placement,
        pods: &[Arc<Pod>],
        plan: &mut Plan,
        backoff: &mut impl FnMut(&str) -> Duration,
    ) {
        let mut running = Vec::new();
        for pod in pods.iter().filter(|pod| !is_deleting(pod)) {
            match phase(pod) {
                "Failed" => {
                    let wait = backoff(node);
                    if !wait.is_zero() {
                        plan.again = Some(plan.again.map_or(wait, |again| again.min(wait)));
                        continue;
                    }
                }
                "Succeeded" => {}
                _ => {
                    running.push(Arc::clone(pod));
                    continue;
                }
            }
            plan.delete.push(Arc::clone(pod));
            plan.ended.push((node.to_owned(), Arc::clone(pod)));
        }
        sort(&mut running);
        if self.limits(1).surge == 0 {
            plan.delete.extend(running.into_iter().skip(1));
        } else if running.is_empty() && placement == Placement::Run {
            plan.create.push(node.to_owned());
        } else if running.len() > 1 {
            self.prune(&running, plan);
        }
    }

    /// Of pods on a node while surging, an old one stays beside the new one for as long as it is ready and the new
    /// one is not available.
    fn prune(&self, running: &[Arc<Pod>], plan: &mut Plan) {
        let is_new = |pod: &&Arc<Pod>| {
            let labels = pod.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(REVISION_LABEL)).is_some_and(|hash| hash == self.hash)
        };
        let (new, old): (Vec<_>, Vec<_>) = running.iter().partition(is_new);
        plan.delete.extend(new.iter().skip(1).chain(old.iter().skip(1)).map(|pod| Arc::clone(pod)));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!is_ready(old) || self.is_available(new))
        {
            plan.delete.push(Arc::clone(old));
        }
    }

    /// What an update needs, within its limits.
    pub(super) fn roll(&self) -> Plan {
        let desired = self.desired();
        let limits = self.limits(desired);
        let wanted = self.nodes.iter().filter(|(_, placement)| **placement == Placement::Run).map(|(node, _)| node);
        let nodes: std::collections::BTreeSet<&String> = wanted.chain(self.pods.keys()).collect();
        let nodes = nodes.into_iter().map(|node| {
            let pods = self.pods.get(node).map(Vec::as_slice).unwrap_or_default();
            (node.as_str(), self.split(pods))
        });
        if limits.surge == 0 { self.replace(nodes, &limits) } else { self.surge(nodes, &limits, desired) }
    }

    /// The new and the old pod on a node; nothing if there are several of a kind, which go first.
    fn split<'p>(&self, pods: &'p [Arc<Pod>]) -> Option<Pair<'p>> {
        let pods = pods.iter().filter(|pod| !is_deleting(pod));
        let (new, old): (Vec<_>, Vec<_>) = pods.partition(|pod| self.is_updated(pod));
        (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
    }

    /// Deletes old pods, as many as may be unavailable; new ones are made in their place.
    fn replace<'p>(&self, nodes: impl Iterator<Item = Node<'p>>, limits: &Limits) -> Plan {
        let (mut unavailable, mut replaced, mut candidates) = (0, Vec::new(), Vec::new());
        for (_, pods) in nodes {
            match pods {
                Some((Some(new), None)) => unavailable += usize::from(!self.is_available(new)),
                Some((None, Some(old))) if self.is_available(old) => candidates.push(Arc::clone(old)),
                // Nothing is lost by replacing it.
                Some((None, Some(old))) => {
                    replaced.push(Arc::clone(old));
                    unavailable += 1;
                }
                _ => unavailable += 1,
            }
        }
        candidates.truncate(limits.unavailable.saturating_sub(unavailable));
        replaced.append(&mut candidates);
        Plan { delete: replaced, ..Plan::default() }
    }

    /// Makes new pods beside old ones, and deletes old ones whose successor is available.
    fn surge<'p>(&self, nodes: impl Iterator<Item = Node<'p>>, limits: &Limits, desired: usize) -> Plan {
        let (mut surging, mut available) = (0, 0);
        let (mut create, mut candidates, mut delete, mut leaving) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (node, pods) in nodes {
            let Some((new, old)) = pods else {
                surging += 1;
                continue;
            };
            available += usize::from(old.or(new).is_some_and(|pod| self.is_available(pod)));
            let Some(old) = old else { continue };
            let belongs = self.nodes.get(node) == Some(&Placement::Run);
            match new {
                Some(new) if self.is_available(new) => delete.push(Arc::clone(old)),
                Some(_) => surging += 1,
                None => match (self.is_available(old), belongs) {
                    (false, false) => delete.push(Arc::clone(old)),
                    (false, true) => create.push(node.to_owned()),
                    (true, false) => leaving.push(Arc::clone(old)),
                    (true, true) => candidates.push(node.to_owned()),
                },
            }
        }
        // A pod where none belongs any more goes only when there are enough elsewhere.
        leaving.truncate(available.saturating_sub(desired));
        delete.append(&mut leaving);
        candidates.truncate(limits.surge.saturating_sub(surging));
        create.append(&mut candidates);
        Plan { create, delete, ..Plan::default() }
    }
}

/// The new and the old pod on a node.
type Pair<'p> = (Option<&'p Arc<Pod>>, Option<&'p Arc<Pod>>);
/// A node with its pods; none if there are too many.
type Node<'p> = (&'p str, Option<Pair<'p>>);
