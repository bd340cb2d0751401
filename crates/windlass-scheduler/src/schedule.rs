//! The decision: a node for a pod, or why there is none and what would have to give way.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::counts::Slot;
use crate::cycle::{Blocked, Cycle, prepare, spread_key};
use crate::pod::{PodInfo, SpreadConstraint};
use crate::preempt::{self, Outcome};
use crate::reason::{Causes, Reason, Rejection, Tally};
use crate::score;
use crate::snapshot::Snapshot;
use crate::volume::PodVolumes;

/// How many nodes are looked for, however many there are.
const FEWEST_NODES: usize = 100;
/// The least part of all nodes that is looked for, in per cent.
const LEAST_PERCENTAGE: usize = 5;

/// What to do about a pod.
#[derive(Debug)]
#[non_exhaustive]
pub enum Decision {
    /// Bind it.
    Bind {
        /// The node.
        node: Arc<str>,
        /// What has to happen to its volumes first.
        volumes: PodVolumes,
    },
    /// Let it wait.
    Wait(Failure),
}

/// Why a pod has to wait.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// In kube-scheduler's words.
    pub message: String,
    /// What has to change before another try makes sense.
    pub causes: Causes,
    /// What becomes of the node that it waits for.
    pub nomination: Nomination,
    /// A claim of the pod that the cluster does not have.
    pub missing_claim: Option<Box<str>>,
}

/// What becomes of the node that a pod waits for.
#[derive(Debug)]
#[non_exhaustive]
pub enum Nomination {
    /// It stays as it is.
    Keep,
    /// The pod does not wait for any.
    Clear,
    /// The pod waits for a node whose victims have to go.
    Preempt {
        /// The node.
        node: Arc<str>,
        /// The pods that have to go, the most important first.
        victims: Vec<Arc<PodInfo>>,
    },
}

impl Snapshot {
    /// Decides about a pod. Nothing is changed by that but what makes later decisions fast and fair.
    pub fn schedule(&mut self, pod: &PodInfo, random: &mut fastrand::Rng) -> Decision {
        let defaults = self.prepare(pod);
        let all = self.order().len();
        if all == 0 {
            let message = "no nodes available to schedule pods".to_owned();
            return Decision::Wait(Failure {
                message,
                causes: Causes::ANYTHING,
                nomination: Nomination::Clear,
                missing_claim: None,
            });
        }
        let start = self.start;
        let cluster = &*self;
        let mut cycle = match Cycle::new(cluster, pod) {
            Ok(cycle) => cycle,
            Err(blocked) => return Decision::Wait(refused(blocked, all, pod, cluster.volumes.missing_claim(pod))),
        };
        let nominated = pod.nominated.as_ref().and_then(|name| cluster.find(name));
        let nominated = nominated.filter(|slot| cycle.check(*slot).is_none());
        let search = match nominated {
            Some(slot) => Search { feasible: vec![slot], rejected: Vec::new() },
            None => search(&mut cycle, start),
        };
        if search.feasible.is_empty() {
            let failure = fail(&mut cycle, &search, all, random);
            self.start = (start + search.rejected.len()) % all;
            return Decision::Wait(failure);
        }
        let slot = match search.feasible[..] {
            [only] => only,
            _ => best(&cycle, &search.feasible, &defaults, random),
        };
        let spec = cluster.nodes[slot as usize].spec.as_ref().expect("invariant: only nodes that exist are searched");
        let volumes = cluster.volumes.find(&cycle.wanted, spec).unwrap_or_default();
        let node = Arc::clone(&spec.name);
        if nominated.is_none() {
            self.start = (start + search.feasible.len() + search.rejected.len()) % all;
        }
        Decision::Bind { node, volumes }
    }

    /// Every node that suits a pod, without comparing them.
    pub fn feasible(&mut self, pod: &PodInfo) -> Vec<Arc<str>> {
        self.prepare(pod);
        let Ok(mut cycle) = Cycle::new(self, pod) else { return Vec::new() };
        let slots = cycle.named.clone().unwrap_or_else(|| cycle.cluster.order().to_vec());
        let fits = slots.into_iter().filter(|slot| cycle.check(*slot).is_none()).collect::<Vec<_>>();
        let name = |slot: Slot| Some(Arc::clone(&cycle.cluster.nodes[slot as usize].spec.as_ref()?.name));
        fits.into_iter().filter_map(name).collect()
    }

    /// Whether one node suits a pod at the moment.
    pub fn suits(&mut self, pod: &PodInfo, node: &str) -> bool {
        self.prepare(pod);
        let Some(slot) = self.find(node) else { return false };
        let Ok(mut cycle) = Cycle::new(self, pod) else { return false };
        cycle.named.as_ref().is_none_or(|named| named.contains(&slot)) && cycle.check(slot).is_none()
    }

    /// Whether one node suits a pod, or would if others made room.
    pub(crate) fn may_suit(&mut self, pod: &PodInfo, node: &str) -> bool {
        self.prepare(pod);
        let Some(slot) = self.find(node) else { return false };
        let Ok(mut cycle) = Cycle::new(self, pod) else { return false };
        let named = cycle.named.as_ref().is_none_or(|named| named.contains(&slot));
        let lower = |cycle: &Cycle<'_>| {
            let mut pods = cycle.cluster.nodes[slot as usize].pods.iter();
            !pod.never_preempts && pods.any(|other| other.priority < pod.priority)
        };
        named && cycle.check(slot).is_none_or(|rejection| !rejection.unresolvable && lower(&cycle))
    }

    fn prepare(&mut self, pod: &PodInfo) -> Vec<SpreadConstraint> {
        prepare(self, pod);
        let defaults = score::default_constraints(self, pod);
        for constraint in &defaults {
            self.follow(&constraint.key);
            self.count(spread_key(constraint));
        }
        defaults
    }
}

struct Search {
    feasible: Vec<Slot>,
    rejected: Vec<(Slot, Rejection)>,
}

/// Looks for enough nodes, beginning where the last search ended.
fn search(cycle: &mut Cycle<'_>, start: usize) -> Search {
    let cluster = cycle.cluster;
    let named = cycle.named.take();
    let nodes = named.as_deref().unwrap_or(cluster.order());
    let enough = nodes_to_find(nodes.len());
    let mut search = Search { feasible: Vec::with_capacity(enough), rejected: Vec::new() };
    let begin = if nodes.is_empty() { 0 } else { start % nodes.len() };
    for slot in nodes[begin..].iter().chain(&nodes[..begin]).copied() {
        match cycle.check(slot) {
            None => search.feasible.push(slot),
            Some(rejection) => search.rejected.push((slot, rejection)),
        }
        if search.feasible.len() == enough {
            break;
        }
    }
    cycle.named = named;
    search
}

/// `numFeasibleNodesToFind`: the larger the cluster, the smaller the part of it that is compared.
fn nodes_to_find(nodes: usize) -> usize {
    if nodes < FEWEST_NODES {
        return nodes;
    }
    let percentage = 50_usize.saturating_sub(nodes / 125).max(LEAST_PERCENTAGE);
    (nodes * percentage / 100).max(FEWEST_NODES)
}

fn best(cycle: &Cycle<'_>, feasible: &[Slot], defaults: &[SpreadConstraint], random: &mut fastrand::Rng) -> Slot {
    let scores = score::score(cycle, feasible, defaults);
    let (mut best, mut score, mut equals) = (feasible[0], i64::MIN, 0);
    for (slot, one) in feasible.iter().zip(scores) {
        if one > score {
            (best, score, equals) = (*slot, one, 1);
        } else if one == score {
            // Each of equally good nodes is as likely as the others.
            equals += 1;
            if random.usize(..equals) == 0 {
                best = *slot;
            }
        }
    }
    best
}

/// Upstream's words end with "not found": the plugin that would deallocate claims has nothing to look at then.
fn refused(blocked: Blocked, nodes: usize, pod: &PodInfo, missing_claim: Option<Box<str>>) -> Failure {
    let (reason, causes) = match blocked {
        Blocked::Volumes(reason) => (reason, Causes::volumes()),
        Blocked::Devices(reason) => return refused_devices(&reason, nodes, pod),
        Blocked::AffinityConflict => ("pod affinity terms conflict".to_owned(), Causes::default()),
    };
    let message = format!("0/{nodes} nodes are available: {reason}. not found");
    Failure { message, causes, nomination: Nomination::Keep, missing_claim }
}

/// The failure of a pod whose claims cannot be allocated. Its message is that of upstream's scheduler, which looks for claims
/// to deallocate and for pods to preempt before it gives up: here there is nothing to deallocate, and preemption does not help.
fn refused_devices(reason: &str, nodes: usize, pod: &PodInfo) -> Failure {
    let useless = format!("0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling.");
    let (why, nomination) =
        if pod.never_preempts { (preempt::NEVER.to_owned(), Nomination::Keep) } else { (useless, Nomination::Clear) };
    let message = format!("0/{nodes} nodes are available: {reason}. no new claims to deallocate, preemption: {why}");
    Failure { message, causes: Causes::devices(), nomination, missing_claim: None }
}

fn fail(cycle: &mut Cycle<'_>, search: &Search, nodes: usize, random: &mut fastrand::Rng) -> Failure {
    let mut tally = Tally::default();
    for (_, rejection) in &search.rejected {
        tally.add(rejection.reasons, 1);
    }
    tally.add(Reason::NotNamed.into(), (nodes - search.rejected.len()) as u32);
    let mut message = tally.message(nodes, cycle.pod);
    let causes = Causes::new(tally.all());
    let deallocation = if cycle.devices.is_empty() { "no new claims to deallocate" } else { "still not schedulable" };
    let nomination = match preempt::preempt(cycle, &search.rejected, nodes, random) {
        Outcome::Preempt { slot, victims } => match &cycle.cluster.nodes[slot as usize].spec {
            Some(spec) => Nomination::Preempt { node: Arc::clone(&spec.name), victims },
            None => Nomination::Clear,
        },
        Outcome::NotEligible(why) => {
            let _ = write!(message, " {deallocation}, preemption: {why}");
            Nomination::Keep
        }
        Outcome::NoCandidates(why) => {
            let _ = write!(message, " {deallocation}, preemption: {why}");
            Nomination::Clear
        }
    };
    Failure { message, causes, nomination, missing_claim: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_clusters_are_sampled() {
        for (nodes, expected) in [(0, 0), (99, 99), (100, 100), (1000, 420), (5000, 500), (10_000, 500), (20_000, 1000)]
        {
            assert_eq!(nodes_to_find(nodes), expected, "of {nodes}");
        }
    }
}
