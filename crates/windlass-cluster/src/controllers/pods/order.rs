//! Which pods to give up first: those whose loss costs least.
//!
//! Mirrors the order of upstream's `ActivePodsWithRanks` in `pkg/controller/controller_utils.go`.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::{is_active, is_ready, phase, ready_since};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The `count` pods to delete first. `related` are the pods of everything that has the same owner: a
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
        let rank = |pod: &Pod| on_node.get(node(pod)).copied().unwrap_or(0);
        pods.sort_by(|a, b| compare(a, rank(a), b, rank(b), now));
        pods.truncate(count);
    }
    pods
}

/// Sorts pods, those to delete first in front.
pub(in crate::controllers) fn sort_for_deletion(pods: &mut [Arc<Pod>], now: Timestamp) {
    pods.sort_by(|a, b| compare(a, 0, b, 0, now));
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn compare(a: &Pod, a_rank: usize, b: &Pod, b_rank: usize, now: Timestamp) -> Ordering {
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let restarts = |pod: &Pod| (Reverse(restarts(pod)), Reverse(sidecar_restarts(pod)));
    // Without a node < with one; pending < unknown < running; not ready < ready; cheap < dear;
    // crowded < lonely; ready for a short time < for a long one; restarted often < seldom;
    // young < old.
    (!node(a).is_empty())
        .cmp(&!node(b).is_empty())
        .then_with(|| phase_rank(a).cmp(&phase_rank(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| b_rank.cmp(&a_rank))
        .then_with(|| compare_age(ready_since(a), a, ready_since(b), b, now))
        .then_with(|| restarts(a).cmp(&restarts(b)))
        .then_with(|| compare_age(created(a), a, created(b), b, now))
}

/// The younger first, on a logarithmic scale: among those of about the same age any will do, and the
/// uid decides.
fn compare_age(a: Option<Timestamp>, a_pod: &Pod, b: Option<Timestamp>, b_pod: &Pod, now: Timestamp) -> Ordering {
    let (Some(a), Some(b)) = (a, b) else { return a.is_some().cmp(&b.is_some()) };
    if a == b {
        return Ordering::Equal;
    }
    let magnitude = |time: Timestamp| match now.duration_since(time).as_nanos() {
        age @ 1.. => i64::from(age.ilog2()),
        _ => -1,
    };
    magnitude(a).cmp(&magnitude(b)).then_with(|| a_pod.metadata.uid.cmp(&b_pod.metadata.uid))
}

fn phase_rank(pod: &Pod) -> u8 {
    match phase(pod) {
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(DELETION_COST)).and_then(|cost| cost.parse().ok()).unwrap_or(0)
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
