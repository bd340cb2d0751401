//! Clusters out of JSON.

use std::sync::Arc;

use windlass::json;
use windlass::serde_json::{Value, from_value};
use windlass_scheduler::{Decision, Failure, NodeSpec, PodInfo, Snapshot};

/// Merges the fields of `over` into `base`.
pub(crate) fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            over.into_iter().for_each(|(key, value)| merge(base.entry(key).or_insert(Value::Null), value));
        }
        (base, over) => *base = over,
    }
}

/// A node with 4 CPUs, 8 GiB and room for 110 pods.
pub(crate) fn node(name: &str, over: Value) -> NodeSpec {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    });
    merge(&mut node, over);
    NodeSpec::new(&from_value(node).unwrap())
}

/// A pod that asks for nothing.
pub(crate) fn pod(name: &str, over: Value) -> PodInfo {
    let mut pod = json!({
        "metadata": {"name": name, "uid": name, "namespace": "ns", "labels": {"app": name}},
        "spec": {"containers": [{"name": "c"}]},
    });
    merge(&mut pod, over);
    PodInfo::new(&from_value(pod).unwrap())
}

/// A pod that asks for CPUs.
pub(crate) fn asking(name: &str, cpu: &str, over: Value) -> PodInfo {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let mut spec = json!({"spec": {"containers": [container]}});
    merge(&mut spec, over);
    pod(name, spec)
}

pub(crate) fn cluster(nodes: impl IntoIterator<Item = NodeSpec>) -> Snapshot {
    let mut cluster = Snapshot::new();
    for node in nodes {
        cluster.set_node(node);
    }
    cluster
}

pub(crate) fn place(cluster: &mut Snapshot, pod: PodInfo, node: &str) {
    assert!(cluster.add_pod(&Arc::new(PodInfo { node: Some(node.into()), ..pod })));
}

/// The names of the nodes that suit, sorted.
pub(crate) fn feasible(cluster: &mut Snapshot, pod: &PodInfo) -> Vec<String> {
    let mut names: Vec<String> = cluster.feasible(pod).iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names
}

pub(crate) fn bound(cluster: &mut Snapshot, pod: &PodInfo) -> String {
    match cluster.schedule(pod, &mut fastrand::Rng::with_seed(7)) {
        Decision::Bind { node, .. } => node.to_string(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn failure(cluster: &mut Snapshot, pod: &PodInfo) -> Failure {
    match cluster.schedule(pod, &mut fastrand::Rng::with_seed(7)) {
        Decision::Wait(failure) => failure,
        other => panic!("{other:?}"),
    }
}
