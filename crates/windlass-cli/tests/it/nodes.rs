//! `windlass nodes` and the simulated nodes of `windlass up`.

use serde_json::Value;

use crate::kubectl::Kubectl;
use crate::windlass::{Cluster, Sandbox};

/// The nodes of a cluster, as `windlass nodes list` has them.
fn listed(sandbox: &Sandbox, target: &str) -> Vec<Value> {
    let text = sandbox.succeeds(&format!("nodes list --output json {target}"));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn nodes_are_added_listed_and_removed() {
    let (cluster, sandbox) = (Cluster::with_nodes(1), Sandbox::new());
    let target = format!("--kubeconfig {}", cluster.kubeconfig.display());
    // The cluster creates its node after it is ready.
    while listed(&sandbox, &target).is_empty() {}
    let said = sandbox.succeeds(&format!("nodes add 3 --cpu 2 --label disk=ssd {target}"));
    assert!(said.contains("3 nodes are ready: node-1 to node-3"), "{said}");
    let nodes = listed(&sandbox, &target);
    let names: Vec<&str> = nodes.iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["node-0", "node-1", "node-2", "node-3"]);
    assert_eq!((&nodes[0]["cpu"], &nodes[1]["cpu"]), (&"32".into(), &"2".into()));
    assert!(nodes.iter().all(|node| node["ready"] == true && node["simulated"] == true), "{nodes:?}");

    let said = sandbox.succeeds(&format!("nodes remove node-2 {target}"));
    assert!(said.contains("node node-2 is removed"), "{said}");
    assert_eq!(listed(&sandbox, &target).len(), 3);
    let said = sandbox.fails(&format!("nodes remove node-2 {target}"));
    assert!(said.contains("there is no node \"node-2\""), "{said}");
    let said = sandbox.fails(&format!("nodes add --cpu lots {target}"));
    assert!(said.contains("is not a quantity"), "{said}");
}

#[test]
fn a_removed_node_is_drained_first() {
    let (cluster, sandbox) = (Cluster::with_nodes(1), Sandbox::new());
    let Some(kubectl) = Kubectl::of(&cluster) else { return };
    let target = format!("--kubeconfig {}", cluster.kubeconfig.display());
    let overrides = r#"{"apiVersion":"v1","spec":{"nodeName":"node-0"}}"#;
    kubectl.run(&format!("run web --image=nginx --overrides={overrides}"));
    kubectl.run("wait --for=condition=Ready pod/web --timeout=60s");
    assert_eq!(kubectl.field("pod/web", ".status.podIP"), "10.244.0.2");
    sandbox.succeeds(&format!("nodes remove node-0 {target}"));
    let said = kubectl.fails("get pod web");
    assert!(said.contains("not found"), "{said}");
}
