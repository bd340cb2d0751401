//! Which pods to give up first: those whose loss costs least.
//!
//! Every pod gets a [`Place`] once, and places are compared field by field. That makes the order total by
//! construction. Upstream compares pairs of pods (`ActivePods` and `ActivePodsWithRanks` in
//! `pkg/controller/controller_utils.go`), and its rules contradict each other in one case: of two pods that became
//! ready at about the same time, the uid decides if the times differ by a second, but the restarts decide if they are
//! equal. Three such pods can form a circle. Here pods of about the same age count as equally old, so that the
//! restarts decide in both cases, and the uid comes last.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::{is_active, is_ready, phase, ready_since};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The `count` pods that a ReplicaSet deletes first. `related` are the pods of everything that has the same owner: a
/// node that has many of them can spare one.
pub(in crate::controllers) fn preferred_victims(
    mut pods: Vec<Arc<Pod>>,
    related: &[Arc<Pod>],
    count: usize,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    if count < pods.len() {
        let mut on_node: HashMap<&str, usize> = HashMap::new();
        for pod in related.iter().filter(|pod| is_active(pod)) {
            *on_node.entry(node(pod)).or_default() += 1;
        }
        pods.sort_by_cached_key(|pod| {
            let colocated = on_node.get(node(pod)).copied().unwrap_or(0);
            Place::of(pod, deletion_cost(pod), colocated, |time| magnitude(time, now))
        });
        pods.truncate(count);
    }
    pods
}

/// Sorts the pods of a job, those to delete first in front. Ages count exactly, deletion costs and nodes not at all.
pub(in crate::controllers) fn sort_for_deletion(pods: &mut [Arc<Pod>]) {
    pods.sort_by_cached_key(|pod| Place::of(pod, 0, 0, Reverse));
}

/// Where a pod stands in the order of deletion. The fields are in the order in which they decide; the lesser goes
/// first. `Age` is a measure of how long ago something was: the greater, the longer. A time that is not set counts
/// as younger than every other.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place<Age> {
    assigned: bool,
    phase: u8,
    ready: bool,
    deletion_cost: i32,
    colocated: Reverse<usize>,
    ready_for: Option<Age>,
    restarts: Reverse<i32>,
    sidecar_restarts: Reverse<i32>,
    created: Option<Age>,
    uid: Option<String>,
}

impl<Age> Place<Age> {
    fn of(pod: &Pod, deletion_cost: i32, colocated: usize, age: impl Fn(Timestamp) -> Age) -> Self {
        Self {
            assigned: !node(pod).is_empty(),
            phase: phase_rank(pod),
            ready: is_ready(pod),
            deletion_cost,
            colocated: Reverse(colocated),
            ready_for: ready_since(pod).map(&age),
            restarts: Reverse(restarts(pod)),
            sidecar_restarts: Reverse(sidecar_restarts(pod)),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| age(time.0)),
            uid: pod.metadata.uid.clone(),
        }
    }
}

/// An age on a logarithmic scale: among pods of about the same age any will do.
fn magnitude(time: Timestamp, now: Timestamp) -> i64 {
    match now.duration_since(time).as_nanos() {
        age @ 1.. => i64::from(age.ilog2()),
        _ => -1,
    }
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn phase_rank(pod: &Pod) -> u8 {
    match phase(pod) {
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    }
}

/// What a pod's annotation says; a number with a plus sign or leading zeros counts for nothing, as upstream has it
/// (`pkg/apis/core/helper`).
fn deletion_cost(pod: &Pod) -> i32 {
    let cost = pod.metadata.annotations.as_ref().and_then(|all| all.get(DELETION_COST));
    let written_well =
        |cost: &&String| *cost == "0" || cost.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    cost.filter(written_well).and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|status| status.restart_count).max().unwrap_or(0)
}

fn sidecar_restarts(pod: &Pod) -> i32 {
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars: Vec<&str> =
        init.filter(|container| container.restart_policy.as_deref() == Some("Always")).map(|c| &*c.name).collect();
    let statuses = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    statuses.filter(|status| sidecars.contains(&&*status.name)).map(|status| status.restart_count).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
