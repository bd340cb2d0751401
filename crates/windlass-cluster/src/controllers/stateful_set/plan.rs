//! What to do about the pods of a StatefulSet. No I/O: a function of the set, its pods and the time.
//!
//! An ordered set is touched at one place at a time, and only when all before are available; a parallel set
//! everywhere at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSetSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::{is_rolling, min_ready, ordinals, replicas, revision_of};
use crate::controllers::pods::{is_available, is_finished, is_ready, phase, scaled};

/// Pods made in one go.
const BURST: usize = 500;

/// A set and its pods.
pub(super) struct View<'a> {
    pub(super) spec: &'a StatefulSetSpec,
    /// By ordinal.
    pub(super) members: &'a BTreeMap<i32, Arc<Pod>>,
    pub(super) update_revision: &'a str,
    pub(super) now: Timestamp,
}

/// What to do about one ordinal that the set asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step<'a> {
    /// Make its pod.
    Create(i32),
    /// Delete its pod, which has ended, so that another can be made.
    Replace(&'a Arc<Pod>),
    /// Correct what is wrong about its pod.
    Keep {
        /// The pod.
        pod: &'a Arc<Pod>,
        /// Whether claims that it lacks are made.
        claims: bool,
        /// Whether its identity and volumes are seen to.
        conform: bool,
    },
}

/// What to do, in this order; an error ends it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan<'a> {
    /// Whether steps are taken one after the other.
    pub(super) ordered: bool,
    pub(super) replicas: Vec<Step<'a>>,
    /// Pods that the set does not ask for, whose claims get the owners of such.
    pub(super) condemned: Vec<&'a Arc<Pod>>,
    /// Those of them that are deleted now.
    pub(super) surplus: Vec<&'a Arc<Pod>>,
    /// Pods that are deleted because they are of another revision.
    pub(super) outdated: Vec<&'a Arc<Pod>>,
}

pub(super) fn is_running_and_ready(pod: &Pod) -> bool {
    phase(pod) == "Running" && is_ready(pod)
}

fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

pub(super) fn plan<'a>(view: &View<'a>) -> Plan<'a> {
    let ordered = view.spec.pod_management_policy.as_deref() != Some("Parallel");
    let mut plan = Plan { ordered, ..Plan::default() };
    if view.plan_replicas(ordered, &mut plan) {
        return plan;
    }
    plan.condemned = view.condemned();
    if view.plan_surplus(ordered, &mut plan) {
        return plan;
    }
    if is_rolling(view.spec) {
        plan.outdated = view.outdated();
    }
    plan
}

impl<'a> View<'a> {
    fn is_unavailable(&self, pod: &Pod) -> bool {
        is_deleting(pod) || !is_available(pod, min_ready(self.spec), self.now)
    }

    /// Plans for the ordinals that the set asks for; whether an ordered set has to wait for one.
    fn plan_replicas(&self, ordered: bool, plan: &mut Plan<'a>) -> bool {
        let mut missing = 0;
        for ordinal in ordinals(self.spec) {
            let Some(pod) = self.members.get(&ordinal) else {
                plan.replicas.push(Step::Create(ordinal));
                missing += 1;
                if ordered {
                    return true;
                }
                // What is left comes when these are there.
                if missing == BURST {
                    break;
                }
                continue;
            };
            if is_finished(pod) {
                if !is_deleting(pod) {
                    plan.replicas.push(Step::Replace(pod));
                }
                if ordered {
                    return true;
                }
                continue;
            }
            let claims = phase(pod) == "Pending";
            let waits = ordered && (self.is_unavailable(pod) || !is_running_and_ready(pod));
            if claims || !waits {
                plan.replicas.push(Step::Keep { pod, claims, conform: !waits });
            }
            if waits {
                return true;
            }
        }
        false
    }

    /// The pods that the set does not ask for, the highest ordinal first.
    fn condemned(&self) -> Vec<&'a Arc<Pod>> {
        let wanted = ordinals(self.spec);
        let others = self.members.iter().rev().filter(|(ordinal, _)| !wanted.contains(ordinal));
        others.map(|(_, pod)| pod).collect()
    }

    /// Plans the deletion of pods that the set does not ask for; whether an ordered set is busy with one.
    fn plan_surplus(&self, ordered: bool, plan: &mut Plan<'a>) -> bool {
        if !ordered {
            plan.surplus = plan.condemned.iter().copied().filter(|pod| !is_deleting(pod)).collect();
            return false;
        }
        let Some(first) = plan.condemned.first().copied() else { return false };
        // The lowest one that is not well may go although it is not; nothing above it.
        let unwell = plan.condemned.iter().rev().find(|pod| self.is_unavailable(pod));
        let well = is_running_and_ready(first) && is_available(first, min_ready(self.spec), self.now);
        if !is_deleting(first) && (well || unwell.is_some_and(|unwell| Arc::ptr_eq(unwell, first))) {
            plan.surplus.push(first);
        }
        true
    }

    /// The pods to delete so that they are made again of the update revision, the highest ordinal first.
    fn outdated(&self) -> Vec<&'a Arc<Pod>> {
        let rolling = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0);
        let wanted = ordinals(self.spec);
        let from = wanted.start.saturating_add(partition).min(wanted.end);
        let is_outdated = |pod: &Pod| revision_of(pod) != self.update_revision && !is_deleting(pod);
        if let Some(most) = rolling.and_then(|rolling| self.max_unavailable(rolling)) {
            let available = self.members.range(wanted.clone()).filter(|(_, pod)| !self.is_unavailable(pod)).count();
            let unavailable = usize::try_from(replicas(self.spec)).unwrap_or(0) - available;
            let outdated = self.members.range(from..wanted.end).rev().map(|(_, pod)| pod);
            return outdated.filter(|pod| is_outdated(pod)).take(most.saturating_sub(unavailable)).collect();
        }
        let mut expected = wanted.end;
        for (ordinal, pod) in self.members.range(from..wanted.end).rev() {
            expected -= 1;
            // One above is missing, and counts as one that is not available.
            if *ordinal != expected {
                return Vec::new();
            }
            if is_outdated(pod) {
                return vec![pod];
            }
            if self.is_unavailable(pod) {
                return Vec::new();
            }
        }
        Vec::new()
    }

    /// How many pods may be unavailable, if that is said.
    fn max_unavailable(&self, rolling: &RollingUpdateStatefulSetStrategy) -> Option<usize> {
        let most = scaled(Some(rolling.max_unavailable.as_ref()?), replicas(self.spec), false);
        Some(usize::try_from(most).unwrap_or(0).max(1))
    }
}
