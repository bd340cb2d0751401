//! A table for each check: which node does not suit, and what is said about it.

use windlass::json;
use windlass::serde_json::Value;
use windlass_scheduler::{NodeSpec, PodInfo};

use crate::build::{asking, bound, cluster, failure, feasible, node, place, pod};

/// Node `a` is as given; says what is wrong with it, up to the part about preemption.
fn check(a: Value, others: Vec<(PodInfo, &str)>, wanted: &PodInfo, expected: &str) {
    let mut cluster = cluster([node("a", a)]);
    for (other, on) in others {
        place(&mut cluster, other, on);
    }
    let suits = feasible(&mut cluster, wanted) == ["a"];
    assert_eq!(suits, expected.is_empty(), "{expected}");
    if suits {
        assert_eq!(bound(&mut cluster, wanted), "a");
        return;
    }
    let message = failure(&mut cluster, wanted).message;
    let expected = format!("0/1 nodes are available: 1 {expected}.");
    assert!(message.starts_with(&expected), "{message}");
}

#[test]
fn cordoned_nodes_and_taints() {
    let cordoned = || json!({"spec": {"unschedulable": true}});
    check(cordoned(), vec![], &pod("p", json!({})), "node(s) were unschedulable");
    let tolerant =
        json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}});
    check(cordoned(), vec![], &pod("p", tolerant), "");
    let tainted = |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    check(tainted("NoSchedule"), vec![], &pod("p", json!({})), "node(s) had untolerated taint(s)");
    check(tainted("NoExecute"), vec![], &pod("p", json!({})), "node(s) had untolerated taint(s)");
    check(tainted("PreferNoSchedule"), vec![], &pod("p", json!({})), "");
    let tolerates = |toleration: Value| pod("p", json!({"spec": {"tolerations": [toleration]}}));
    check(tainted("NoSchedule"), vec![], &tolerates(json!({"key": "k", "value": "v"})), "");
    check(tainted("NoSchedule"), vec![], &tolerates(json!({"operator": "Exists"})), "");
    let untolerated = "node(s) had untolerated taint(s)";
    check(tainted("NoSchedule"), vec![], &tolerates(json!({"key": "k", "value": "w"})), untolerated);
    let other_effect = tolerates(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}));
    check(tainted("NoSchedule"), vec![], &other_effect, untolerated);
}

#[test]
fn node_names_selectors_and_affinity() {
    let message = "node(s) didn't match Pod's node affinity/selector";
    let labelled = || json!({"metadata": {"labels": {"disk": "ssd"}}});
    let selects = |value: &str| pod("p", json!({"spec": {"nodeSelector": {"disk": value}}}));
    check(labelled(), vec![], &selects("ssd"), "");
    check(labelled(), vec![], &selects("hdd"), message);
    let terms = |terms: Value| {
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        pod("p", json!({"spec": {"affinity": {"nodeAffinity": required}}}))
    };
    let expression = |value: &str| json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": [value]}]});
    check(labelled(), vec![], &terms(json!([expression("hdd"), expression("ssd")])), "");
    check(labelled(), vec![], &terms(json!([expression("hdd")])), message);
    let field = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
    check(labelled(), vec![], &terms(json!([field("a")])), "");
    check(labelled(), vec![], &terms(json!([field("b")])), "node(s) didn't satisfy plugin(s) [NodeAffinity]");
    let both = json!([{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["a"]},
        {"key": "metadata.name", "operator": "In", "values": ["b"]},
    ]}]);
    let message = failure(&mut cluster([node("a", json!({}))]), &terms(both)).message;
    assert_eq!(message, "0/1 nodes are available: pod affinity terms conflict. not found");
}

#[test]
fn host_ports() {
    let takes = |name: &str, port: Value| pod(name, json!({"spec": {"containers": [{"name": "c", "ports": [port]}]}}));
    let taken = || vec![(takes("q", json!({"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"})), "a")];
    let message = "node(s) didn't have free ports for the requested pod ports";
    check(json!({}), taken(), &takes("p", json!({"containerPort": 1, "hostPort": 80})), message);
    check(json!({}), taken(), &takes("p", json!({"containerPort": 1, "hostPort": 81})), "");
    check(json!({}), taken(), &takes("p", json!({"containerPort": 1, "hostPort": 80, "protocol": "UDP"})), "");
    check(json!({}), taken(), &takes("p", json!({"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.2"})), "");
    check(json!({}), taken(), &takes("p", json!({"containerPort": 80})), "");
}

#[test]
fn resources() {
    check(json!({}), vec![(asking("q", "3", json!({})), "a")], &asking("p", "1", json!({})), "");
    check(json!({}), vec![(asking("q", "3", json!({})), "a")], &asking("p", "1001m", json!({})), "Insufficient cpu");
    let full = || json!({"status": {"allocatable": {"pods": "1"}}});
    check(full(), vec![(pod("q", json!({})), "a")], &pod("p", json!({})), "Too many pods");
    let wants = |resource: &str, amount: &str| {
        let requests = json!({resource: amount});
        pod("p", json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}))
    };
    check(json!({}), vec![], &wants("memory", "9Gi"), "Insufficient memory");
    check(json!({}), vec![], &wants("ephemeral-storage", "1Gi"), "Insufficient ephemeral-storage");
    check(json!({}), vec![], &wants("example.com/gpu", "1"), "Insufficient example.com/gpu");
    check(json!({"status": {"allocatable": {"example.com/gpu": "1"}}}), vec![], &wants("example.com/gpu", "1"), "");
    // A pod that asks for nothing fits on a node that is full.
    check(json!({}), vec![(asking("q", "5", json!({})), "a")], &pod("p", json!({})), "");
    let overhead = json!({"spec": {"overhead": {"cpu": "1"}}});
    check(json!({}), vec![], &asking("p", "3500m", overhead), "Insufficient cpu");
}

#[test]
fn disks_that_cannot_be_shared() {
    let uses = |name: &str, volume: Value| pod(name, json!({"spec": {"volumes": [volume]}}));
    let disk = |read_only: bool| json!({"name": "v", "gcePersistentDisk": {"pdName": "d", "readOnly": read_only}});
    let message = "node(s) had no available disk";
    check(json!({}), vec![(uses("q", disk(false)), "a")], &uses("p", disk(true)), message);
    check(json!({}), vec![(uses("q", disk(true)), "a")], &uses("p", disk(true)), "");
    let aws = || json!({"name": "v", "awsElasticBlockStore": {"volumeID": "d"}});
    check(json!({}), vec![(uses("q", aws()), "a")], &uses("p", aws()), message);
    let rbd = |monitor: &str| json!({"name": "v", "rbd": {"monitors": [monitor, "x"], "image": "i", "pool": "p"}});
    check(json!({}), vec![(uses("q", rbd("m")), "a")], &uses("p", rbd("n")), message);
}

fn zones() -> [NodeSpec; 3] {
    let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    [node("a1", zone("a")), node("a2", zone("a")), node("b1", zone("b"))]
}

fn spread(over: Value) -> PodInfo {
    let mut constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    crate::build::merge(&mut constraint, over);
    let labels = json!({"labels": {"app": "web"}});
    pod("p", json!({"metadata": labels, "spec": {"topologySpreadConstraints": [constraint]}}))
}

fn web(name: &str) -> PodInfo {
    pod(name, json!({"metadata": {"labels": {"app": "web"}}}))
}

#[test]
fn topology_spread() {
    let mut cluster = cluster(zones());
    assert_eq!(feasible(&mut cluster, &spread(json!({}))), ["a1", "a2", "b1"]);
    place(&mut cluster, web("1"), "a1");
    assert_eq!(feasible(&mut cluster, &spread(json!({}))), ["b1"]);
    assert_eq!(feasible(&mut cluster, &spread(json!({"maxSkew": 2}))), ["a1", "a2", "b1"]);
    // With fewer domains than wanted nothing is too few.
    assert_eq!(feasible(&mut cluster, &spread(json!({"minDomains": 3}))), ["b1"]);
    place(&mut cluster, web("2"), "b1");
    assert_eq!(feasible(&mut cluster, &spread(json!({"minDomains": 3}))), Vec::<String>::new());
    let message = failure(&mut cluster, &spread(json!({"minDomains": 3}))).message;
    assert!(message.contains("3 node(s) didn't match pod topology spread constraints."), "{message}");
    let message = failure(&mut cluster, &spread(json!({"topologyKey": "rack"}))).message;
    assert!(message.contains("3 node(s) didn't match pod topology spread constraints (missing required label)."));
    cluster.remove_pod("ns", "1");
    assert_eq!(feasible(&mut cluster, &spread(json!({}))), ["a1", "a2"]);
}

#[test]
fn spread_counts_only_pods_of_the_same_revision() {
    let mut cluster = cluster(zones());
    let revision = |name: &str, hash: &str| pod(name, json!({"metadata": {"labels": {"app": "web", "hash": hash}}}));
    place(&mut cluster, revision("1", "old"), "a1");
    let constraint = json!([{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["hash"],
    }]);
    let new = pod(
        "p",
        json!({
            "metadata": {"labels": {"app": "web", "hash": "new"}},
            "spec": {"topologySpreadConstraints": constraint},
        }),
    );
    assert_eq!(feasible(&mut cluster, &new), ["a1", "a2", "b1"]);
    place(&mut cluster, revision("2", "new"), "a1");
    assert_eq!(feasible(&mut cluster, &new), ["b1"]);
}

fn near(kind: &str, key: &str, app: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key});
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}})
}

#[test]
fn pods_that_want_to_be_together() {
    let mut cluster = cluster(zones());
    let wanted = pod("p", near("podAffinity", "zone", "web"));
    let message = failure(&mut cluster, &wanted).message;
    assert!(message.contains("3 node(s) didn't match pod affinity rules."), "{message}");
    place(&mut cluster, web("1"), "a1");
    assert_eq!(feasible(&mut cluster, &wanted), ["a1", "a2"]);
    // The first pod of its kind goes anywhere.
    let first = pod("first", near("podAffinity", "zone", "first"));
    assert_eq!(feasible(&mut cluster, &first).len(), 3);
    let labelled = pod("first", near("podAffinity", "rack", "first"));
    assert_eq!(feasible(&mut cluster, &labelled).len(), 0);
}

#[test]
fn pods_that_want_to_be_apart() {
    let mut cluster = cluster(zones());
    place(&mut cluster, web("1"), "a1");
    let wanted = pod("p", near("podAntiAffinity", "zone", "web"));
    assert_eq!(feasible(&mut cluster, &wanted), ["b1"]);
    place(&mut cluster, wanted, "b1");
    assert_eq!(feasible(&mut cluster, &web("2")), ["a1", "a2"]);
    place(&mut cluster, pod("q", near("podAntiAffinity", "zone", "web")), "a2");
    let message = failure(&mut cluster, &web("2")).message;
    assert!(message.contains("3 node(s) didn't satisfy existing pods anti-affinity rules."), "{message}");
    cluster.remove_pod("ns", "p");
    assert_eq!(feasible(&mut cluster, &web("2")), ["b1"]);
}

#[test]
fn namespaces_are_chosen_by_labels_that_may_change() {
    let mut cluster = cluster(zones());
    let elsewhere = pod("1", json!({"metadata": {"namespace": "other", "labels": {"app": "web"}}}));
    place(&mut cluster, elsewhere, "a1");
    let mut term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"});
    term["namespaceSelector"] = json!({"matchLabels": {"team": "x"}});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let wanted = pod("p", json!({"spec": {"affinity": affinity}}));
    assert_eq!(feasible(&mut cluster, &wanted).len(), 0);
    let labels = std::collections::BTreeMap::from([("team".to_owned(), "x".to_owned())]);
    cluster.set_namespace("other", windlass_scheduler::labels::Labels::new(Some(&labels)));
    assert_eq!(feasible(&mut cluster, &wanted), ["a1", "a2"]);
    cluster.remove_namespace("other");
    assert_eq!(feasible(&mut cluster, &wanted).len(), 0);
}

#[test]
fn reasons_of_several_nodes_are_counted() {
    let tainted = json!({"spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]}});
    let mut cluster = cluster([
        node("small", json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi"}}})),
        node("big", json!({"status": {"allocatable": {"cpu": "4", "memory": "4Gi"}}})),
        node("taint", tainted),
    ]);
    assert_eq!(
        failure(&mut cluster, &asking("p", "6", json!({}))).message,
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. no new claims to deallocate, \
         preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    );
    let mut empty = crate::build::cluster([]);
    assert_eq!(failure(&mut empty, &pod("p", json!({}))).message, "no nodes available to schedule pods");
}
