//! Claims and volumes.

use windlass::json;
use windlass::serde_json::{Value, from_value};
use windlass_scheduler::{Decision, PodInfo, PodVolumes, Snapshot};

use crate::build::{cluster, failure, feasible, merge, node, place, pod};

fn class(cluster: &mut Snapshot, provisioner: &str, mode: &str) {
    let class = json!({"metadata": {"name": "class"}, "provisioner": provisioner, "volumeBindingMode": mode});
    cluster.volumes.set_class(&from_value(class).unwrap());
}

fn claim(cluster: &mut Snapshot, name: &str, over: Value) {
    let mut claim = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "class",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    merge(&mut claim, over);
    cluster.volumes.set_claim(&from_value(claim).unwrap());
}

fn bound_to(volume: &str) -> Value {
    json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume},
    })
}

fn volume(cluster: &mut Snapshot, name: &str, on: &str, size: &str) {
    let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [on]});
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
    let volume = json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "class",
            "nodeAffinity": affinity,
        },
        "status": {"phase": "Available"},
    });
    cluster.volumes.set_volume(&from_value(volume).unwrap());
}

fn using(name: &str, claim: &str) -> PodInfo {
    pod(name, json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}}))
}

fn two_nodes() -> Snapshot {
    cluster([node("a", json!({})), node("b", json!({}))])
}

fn decide(cluster: &mut Snapshot, pod: &PodInfo) -> (String, PodVolumes) {
    match cluster.schedule(pod, &mut fastrand::Rng::with_seed(1)) {
        Decision::Bind { node, volumes } => (node.to_string(), volumes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn claims_that_cannot_be_used() {
    let cases = [
        (json!({"spec": {"storageClassName": "none"}}), "pod has unbound immediate PersistentVolumeClaims"),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            "persistentvolumeclaim \"c\" is being deleted",
        ),
        (bound_to("gone"), "persistentvolume \"gone\" not found"),
    ];
    for (over, expected) in cases {
        let mut cluster = two_nodes();
        class(&mut cluster, "example.com/p", "WaitForFirstConsumer");
        claim(&mut cluster, "c", over);
        let message = failure(&mut cluster, &using("p", "c")).message;
        assert_eq!(message, format!("0/2 nodes are available: {expected}. not found"));
    }
    let message = failure(&mut two_nodes(), &using("p", "c")).message;
    assert_eq!(message, "0/2 nodes are available: persistentvolumeclaim \"c\" not found. not found");
}

#[test]
fn volumes_tie_pods_to_nodes() {
    let mut cluster = two_nodes();
    volume(&mut cluster, "v", "b", "1Gi");
    claim(&mut cluster, "c", bound_to("v"));
    assert_eq!(feasible(&mut cluster, &using("p", "c")), ["b"]);
    cluster.remove_node("b");
    let message = failure(&mut cluster, &using("p", "c")).message;
    assert!(message.contains("1 node(s) didn't match PersistentVolume's node affinity."), "{message}");
}

#[test]
fn claims_that_wait_get_the_smallest_volume_of_the_node() {
    let mut cluster = two_nodes();
    class(&mut cluster, "kubernetes.io/no-provisioner", "WaitForFirstConsumer");
    claim(&mut cluster, "c", json!({}));
    claim(&mut cluster, "d", json!({}));
    let message = failure(&mut cluster, &using("p", "c")).message;
    assert!(message.contains("2 node(s) didn't find available persistent volumes to bind."), "{message}");
    volume(&mut cluster, "large", "b", "3Gi");
    volume(&mut cluster, "fits", "b", "2Gi");
    volume(&mut cluster, "small", "a", "500Mi");
    let (on, volumes) = decide(&mut cluster, &using("p", "c"));
    assert_eq!(on, "b");
    assert_eq!(volumes.bindings, [(("ns".into(), "c".into()), "fits".into())]);
    cluster.assume(&using("p", "c"), "b", &volumes);
    let (_, others) = decide(&mut cluster, &using("q", "d"));
    assert_eq!(others.bindings[0].1, "large".into(), "the other one is taken");
    cluster.forget(&using("p", "c"), &volumes);
    assert_eq!(decide(&mut cluster, &using("q", "d")).1.bindings[0].1, "fits".into());
}

#[test]
fn volumes_are_made_where_the_class_allows_it() {
    let mut cluster = cluster([
        node("a", json!({"metadata": {"labels": {"zone": "1"}}})),
        node("b", json!({"metadata": {"labels": {"zone": "2"}}})),
    ]);
    let topologies = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["2"]}]}]);
    let class = json!({
        "metadata": {"name": "class"}, "provisioner": "example.com/p", "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": topologies,
    });
    cluster.volumes.set_class(&from_value(class).unwrap());
    claim(&mut cluster, "c", json!({}));
    let (on, volumes) = decide(&mut cluster, &using("p", "c"));
    assert_eq!((on.as_str(), volumes.provisions.len()), ("b", 1));
}

#[test]
fn a_chosen_node_is_kept() {
    let mut cluster = two_nodes();
    class(&mut cluster, "example.com/p", "WaitForFirstConsumer");
    claim(&mut cluster, "c", json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "b"}}}));
    assert_eq!(feasible(&mut cluster, &using("p", "c")), ["b"]);
}

#[test]
fn zones_of_volumes_matter() {
    let mut cluster = cluster([
        node("a", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "1"}}})),
        node("b", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "3"}}})),
    ]);
    let volume = json!({
        "metadata": {"name": "v", "labels": {"failure-domain.beta.kubernetes.io/zone": "2__3"}},
        "spec": {"capacity": {"storage": "1Gi"}},
    });
    cluster.volumes.set_volume(&from_value(volume).unwrap());
    claim(&mut cluster, "c", bound_to("v"));
    assert_eq!(feasible(&mut cluster, &using("p", "c")), ["b"]);
    cluster.remove_node("b");
    let message = failure(&mut cluster, &using("p", "c")).message;
    assert!(message.contains("1 node(s) had no available volume zone."), "{message}");
}

#[test]
fn exclusive_claims_have_one_pod() {
    let mut cluster = two_nodes();
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}}});
    cluster.volumes.set_volume(&from_value(volume).unwrap());
    let mut over = bound_to("v");
    over["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    claim(&mut cluster, "c", over);
    assert_eq!(feasible(&mut cluster, &using("p", "c")).len(), 2);
    place(&mut cluster, using("q", "c"), "a");
    let message = failure(&mut cluster, &using("p", "c")).message;
    let expected = "2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                    another pod.";
    assert!(message.contains(expected), "{message}");
    cluster.remove_pod("ns", "q");
    assert_eq!(feasible(&mut cluster, &using("p", "c")).len(), 2);
}

fn csi_volume(cluster: &mut Snapshot, name: &str, driver: &str) {
    let volume = json!({
        "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": driver, "volumeHandle": name}},
    });
    cluster.volumes.set_volume(&from_value(volume).unwrap());
}

fn limit(cluster: &mut Snapshot, node: &str, driver: &str, count: Value) {
    let drivers = json!([{"name": driver, "nodeID": node, "allocatable": {"count": count}}]);
    let csi_node = json!({"metadata": {"name": node}, "spec": {"drivers": drivers}});
    cluster.volumes.set_limits(&from_value(csi_node).unwrap());
}

#[test]
fn a_node_attaches_no_more_volumes_than_its_driver_can() {
    let mut cluster = two_nodes();
    class(&mut cluster, "csi.example.com", "WaitForFirstConsumer");
    for name in ["one", "two", "other"] {
        claim(&mut cluster, name, bound_to(name));
        csi_volume(&mut cluster, name, if name == "other" { "other.example.com" } else { "csi.example.com" });
    }
    claim(&mut cluster, "unbound", json!({}));
    place(&mut cluster, using("first", "one"), "a");
    for node in ["a", "b"] {
        limit(&mut cluster, node, "csi.example.com", json!(1));
    }
    limit(&mut cluster, "b", "csi.example.com", json!(0));
    // What is attached already, and what another driver attaches, needs no further place.
    assert_eq!(feasible(&mut cluster, &using("same", "one")), ["a"]);
    assert_eq!(feasible(&mut cluster, &using("elsewhere", "other")), ["a", "b"]);
    for claim in ["two", "unbound"] {
        let failure = failure(&mut cluster, &using("second", claim));
        let expected = "0/2 nodes are available: 2 node(s) exceed max volume count.";
        assert!(failure.message.starts_with(expected), "{}", failure.message);
        assert!(failure.causes.is_about_volumes());
    }
    limit(&mut cluster, "b", "csi.example.com", Value::Null);
    assert_eq!(feasible(&mut cluster, &using("second", "two")), ["b"]);
    cluster.volumes.remove_limits("a");
    assert_eq!(feasible(&mut cluster, &using("second", "two")), ["a", "b"]);
}

#[test]
fn a_failure_names_the_claim_that_is_missing() {
    let mut cluster = two_nodes();
    class(&mut cluster, "p", "WaitForFirstConsumer");
    claim(&mut cluster, "there", json!({}));
    for (name, missing) in [("there", None), ("nowhere", Some("nowhere"))] {
        let named = match cluster.schedule(&using("pod", name), &mut fastrand::Rng::with_seed(1)) {
            Decision::Wait(failure) => failure.missing_claim,
            _ => None,
        };
        assert_eq!(named.as_deref(), missing);
    }
}
