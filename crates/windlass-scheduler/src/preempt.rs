//! Which pods have to go so that a more important one can come: upstream's default preemption.

use std::sync::Arc;

use crate::counts::Slot;
use crate::cycle::Cycle;
use crate::pod::PodInfo;
use crate::reason::{Reason, Rejection, Tally};

/// The least part of the nodes on which victims are looked for, in per cent.
const LEAST_PERCENTAGE: usize = 10;
/// The same in nodes.
const LEAST_NODES: usize = 100;

/// Why a pod whose `preemptionPolicy` is `Never` does not preempt others.
pub(crate) const NEVER: &str = "not eligible due to preemptionPolicy=Never.";

/// What comes of an attempt.
pub(crate) enum Outcome {
    /// These have to go.
    Preempt { slot: Slot, victims: Vec<Arc<PodInfo>> },
    /// The pod may not preempt others.
    NotEligible(&'static str),
    /// Evicting pods would not make room on any node; the message says why.
    NoCandidates(String),
}

struct Candidate {
    slot: Slot,
    victims: Vec<Arc<PodInfo>>,
    violations: usize,
}

/// Looks for victims, given why each node is out of the question.
pub(crate) fn preempt(
    cycle: &mut Cycle<'_>,
    rejected: &[(Slot, Rejection)],
    nodes: usize,
    random: &mut fastrand::Rng,
) -> Outcome {
    if let Err(why) = is_eligible(cycle, rejected) {
        return Outcome::NotEligible(why);
    }
    let potential: Vec<Slot> = rejected.iter().filter(|(_, one)| !one.unresolvable).map(|(slot, _)| *slot).collect();
    let enough = (potential.len() * LEAST_PERCENTAGE / 100).max(LEAST_NODES).min(potential.len());
    let offset = if potential.is_empty() { 0 } else { random.usize(..potential.len()) };
    let mut tally = Tally::default();
    let mut candidates = Vec::new();
    let mut refused = 0;
    for slot in potential[offset..].iter().chain(&potential[..offset]).copied() {
        match select_victims(cycle, slot) {
            Ok(candidate) => candidates.push(candidate),
            Err(rejection) => {
                refused += 1;
                tally.add(rejection.reasons, 1);
            }
        }
        if candidates.len() >= enough && candidates.iter().any(|candidate| candidate.violations == 0) {
            break;
        }
    }
    if let Some(Candidate { slot, victims, .. }) = pick(candidates) {
        return Outcome::Preempt { slot, victims };
    }
    tally.add(Reason::PreemptionUseless.into(), (nodes - refused) as u32);
    Outcome::NoCandidates(tally.message(nodes, cycle.pod))
}

fn is_eligible(cycle: &Cycle<'_>, rejected: &[(Slot, Rejection)]) -> Result<(), &'static str> {
    let (cluster, pod) = (cycle.cluster, cycle.pod);
    if pod.never_preempts {
        return Err(NEVER);
    }
    let Some(slot) = pod.nominated.as_ref().and_then(|name| cluster.find(name)) else { return Ok(()) };
    let resolvable = rejected.iter().any(|(one, rejection)| *one == slot && !rejection.unresolvable);
    let mut leaving = cluster.nodes[slot as usize].pods.iter();
    if resolvable && leaving.any(|other| other.priority < pod.priority && other.preempted) {
        return Err("not eligible due to a terminating pod on the nominated node.");
    }
    Ok(())
}

/// The fewest and least important pods of a node that have to go: `SelectVictimsOnNode`.
fn select_victims(cycle: &mut Cycle<'_>, slot: Slot) -> Result<Candidate, Rejection> {
    let nothing = Rejection { reasons: Reason::NoVictims.into(), unresolvable: true };
    let mut node = cycle.cluster.nodes[slot as usize].clone();
    let priority = cycle.pod.priority;
    let lower = node.pods.iter().filter(|other| other.priority < priority).cloned();
    let mut potential: Vec<Arc<PodInfo>> = lower.collect();
    if potential.is_empty() {
        return Err(nothing);
    }
    for other in &potential {
        node.remove(&other.uid);
        cycle.shift(slot, other, -1);
    }
    if let Some(rejection) = cycle.check_changed(slot, &node) {
        for other in &potential {
            cycle.shift(slot, other, 1);
        }
        return Err(rejection);
    }
    potential.sort_by(|one, other| one.is_more_important_than(other));
    let (violating, others) = split_by_budgets(cycle, potential);
    let mut victims = Vec::new();
    let mut violations = 0;
    let both = !violating.is_empty() && !others.is_empty();
    let violating = violating.into_iter().map(|pod| (pod, 1));
    for (other, violation) in violating.chain(others.into_iter().map(|pod| (pod, 0))) {
        node.add(&other);
        cycle.shift(slot, &other, 1);
        if cycle.check_changed(slot, &node).is_some() {
            node.remove(&other.uid);
            cycle.shift(slot, &other, -1);
            victims.push(other);
            violations += violation;
        }
    }
    for other in &victims {
        cycle.shift(slot, other, 1);
    }
    if both {
        victims.sort_by(|one, other| one.is_more_important_than(other));
    }
    if victims.is_empty() { Err(nothing) } else { Ok(Candidate { slot, victims, violations }) }
}

/// Pods whose going would break a disruption budget, and the others.
fn split_by_budgets(cycle: &Cycle<'_>, pods: Vec<Arc<PodInfo>>) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut budgets: Vec<_> = cycle.cluster.budgets().map(|(name, budget)| (name, budget, budget.allowed)).collect();
    pods.into_iter().partition(|pod| {
        let mut violates = false;
        for (namespace, budget, allowed) in &mut budgets {
            let meant = **namespace == *pod.namespace
                && !pod.labels.is_empty()
                && !budget.selector.is_everything()
                && budget.selector.matches(&pod.labels)
                && !budget.disrupted.iter().any(|name| **name == *pod.name);
            if meant {
                *allowed -= 1;
                violates |= *allowed < 0;
            }
        }
        violates
    })
}

/// The candidate that hurts least: `pickOneNodeForPreemption`.
fn pick(candidates: Vec<Candidate>) -> Option<Candidate> {
    let cost = |candidate: &Candidate| {
        let victims = &candidate.victims;
        let highest = victims.first().map_or(0, |pod| pod.priority);
        let sum: i64 = victims.iter().map(|pod| i64::from(pod.priority) + i64::from(i32::MAX) + 1).sum();
        let highest_started = victims.iter().filter(|pod| pod.priority == highest);
        let earliest = highest_started.map(|pod| pod.started.unwrap_or(i128::MAX)).min().unwrap_or(i128::MAX);
        (candidate.violations, highest, sum, victims.len(), std::cmp::Reverse(earliest))
    };
    candidates.into_iter().min_by_key(cost)
}
