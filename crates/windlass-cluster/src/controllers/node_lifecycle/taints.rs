//! The taints and labels that follow from a node's state, as pure functions.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
const DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
const PID_PRESSURE: &str = "node.kubernetes.io/pid-pressure";
const NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";
const NO_SCHEDULE: &str = "NoSchedule";
pub(in crate::controllers) const NO_EXECUTE: &str = "NoExecute";

/// The keys of `NoSchedule` taints that only this controller sets.
const OWN: [&str; 7] =
    [NOT_READY, UNREACHABLE, UNSCHEDULABLE, MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE, NETWORK_UNAVAILABLE];

/// Labels and the older ones that must say the same.
const LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// What becomes of the `NoExecute` taints that say that a node is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoExecute {
    Keep,
    Clear,
    Set(&'static str),
}

/// A node's condition.
pub(super) fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// A node's taints.
pub(super) fn of(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Whether there is a taint with a key and an effect.
pub(super) fn has(taints: &[Taint], key: &str, effect: &str) -> bool {
    taints.iter().any(|taint| taint.key == key && taint.effect == effect)
}

/// The key of the taint that a state of the Ready condition stands for.
pub(super) fn of_ready(status: &str) -> Option<&'static str> {
    match status {
        "False" => Some(NOT_READY),
        "Unknown" => Some(UNREACHABLE),
        _ => None,
    }
}

/// The keys of the `NoSchedule` taints that a node's conditions and its specification ask for.
fn no_schedule(node: &Node) -> Vec<&'static str> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let of_condition = |condition: &NodeCondition| match (&*condition.type_, &*condition.status) {
        ("Ready", status) => of_ready(status),
        ("MemoryPressure", "True") => Some(MEMORY_PRESSURE),
        ("DiskPressure", "True") => Some(DISK_PRESSURE),
        ("PIDPressure", "True") => Some(PID_PRESSURE),
        ("NetworkUnavailable", "True") => Some(NETWORK_UNAVAILABLE),
        _ => None,
    };
    let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    conditions.filter_map(of_condition).chain(cordoned.then_some(UNSCHEDULABLE)).collect()
}

/// The taints a node should have, if they are others than it has. Taints of others stay, in their order.
pub(super) fn wanted(node: &Node, no_execute: NoExecute, now: Timestamp) -> Option<Vec<Taint>> {
    let current = of(node);
    let no_schedule = no_schedule(node);
    let stays = |taint: &&Taint| match &*taint.effect {
        NO_SCHEDULE => !OWN.contains(&&*taint.key) || no_schedule.contains(&&*taint.key),
        NO_EXECUTE if taint.key == NOT_READY || taint.key == UNREACHABLE => match no_execute {
            NoExecute::Keep => true,
            NoExecute::Clear => false,
            NoExecute::Set(key) => taint.key == key,
        },
        _ => true,
    };
    let mut taints: Vec<Taint> = current.iter().filter(stays).cloned().collect();
    let mut add = |key: &str, effect: &str| {
        if !has(&taints, key, effect) {
            let (key, effect) = (key.to_owned(), effect.to_owned());
            taints.push(Taint { key, effect, time_added: Some(Time(now)), value: None });
        }
    };
    for key in no_schedule {
        add(key, NO_SCHEDULE);
    }
    if let NoExecute::Set(key) = no_execute {
        add(key, NO_EXECUTE);
    }
    (taints != current).then_some(taints)
}

/// The labels to change so that the older names of a label say what the current one does.
pub(super) fn labels(node: &Node) -> BTreeMap<&'static str, String> {
    let Some(labels) = &node.metadata.labels else { return BTreeMap::new() };
    let differing = LABELS.iter().filter_map(|(label, older)| {
        let value = labels.get(*label)?;
        (labels.get(*older) != Some(value)).then(|| (*older, value.clone()))
    });
    differing.collect()
}

/// A node's region and zone in one; empty when it has neither.
pub(super) fn zone(node: &Node) -> String {
    let labels = node.metadata.labels.as_ref();
    let value = |names: [&str; 2]| {
        let found = names.iter().find_map(|name| labels?.get(*name));
        found.cloned().unwrap_or_default()
    };
    let zone = value(["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]);
    let region = value(["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]);
    if zone.is_empty() && region.is_empty() { String::new() } else { format!("{region}:{zone}") }
}

/// The conditions of a node that has been silent for too long, if the Ready condition does not say so already.
pub(super) fn silenced(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    if condition(node, "Ready").is_some_and(|ready| ready.status == "Unknown") {
        return None;
    }
    let mut conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    for type_ in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            None => conditions.push(NodeCondition {
                type_: type_.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(Time(now)),
            }),
            Some(condition) if condition.status != "Unknown" => {
                "Unknown".clone_into(&mut condition.status);
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(Time(now));
            }
            Some(_) => {}
        }
    }
    Some(conditions)
}
