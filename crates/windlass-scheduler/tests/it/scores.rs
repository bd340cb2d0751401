//! Which node is liked best.

use windlass::json;
use windlass::serde_json::Value;
use windlass_scheduler::labels::Selector;
use windlass_scheduler::{OwnerKind, PodInfo};

use crate::build::{asking, bound, cluster, node, place, pod};

fn check(better: Value, worse: Value, others: Vec<(PodInfo, &str)>, wanted: &PodInfo) {
    // Whatever the order in which nodes are looked at.
    for (first, second) in [(("better", &better), ("worse", &worse)), (("worse", &worse), ("better", &better))] {
        let mut cluster = cluster([node(first.0, first.1.clone()), node(second.0, second.1.clone())]);
        for (other, on) in &others {
            place(&mut cluster, other.clone(), on);
        }
        assert_eq!(bound(&mut cluster, wanted), "better");
    }
}

#[test]
fn empty_nodes_are_liked_more() {
    let busy = vec![(asking("q", "2", json!({})), "worse")];
    check(json!({}), json!({}), busy, &asking("p", "1", json!({})));
}

#[test]
fn containers_that_ask_for_nothing_count_as_a_little() {
    check(json!({}), json!({}), vec![(pod("q", json!({})), "worse")], &pod("p", json!({})));
}

#[test]
fn soft_taints_are_avoided() {
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
    check(json!({}), taint, vec![], &pod("p", json!({})));
}

#[test]
fn preferred_nodes_are_preferred() {
    let expression = json!({"key": "disk", "operator": "In", "values": ["ssd"]});
    let term = json!({"weight": 10, "preference": {"matchExpressions": [expression]}});
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}});
    let wanted = pod("p", json!({"spec": {"affinity": affinity}}));
    check(json!({"metadata": {"labels": {"disk": "ssd"}}}), json!({}), vec![], &wanted);
}

#[test]
fn preferred_neighbours_draw_and_repel() {
    let term = |app: &str| {
        json!({"weight": 50, "podAffinityTerm": {
            "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname",
        }})
    };
    let prefers = |kind: &str, app: &str| json!({"spec": {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [term(app)]}}}});
    let web = |on| vec![(pod("web", json!({})), on)];
    check(json!({}), json!({}), web("better"), &pod("p", prefers("podAffinity", "web")));
    check(json!({}), json!({}), web("worse"), &pod("p", prefers("podAntiAffinity", "web")));
    // What others like counts as well.
    let fond = vec![(pod("q", prefers("podAffinity", "p")), "better")];
    check(json!({}), json!({}), fond, &pod("p", json!({})));
}

#[test]
fn pods_of_one_owner_are_spread_by_default() {
    let owned = |name: &str| {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]);
        pod(name, json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": owner}}))
    };
    let mut cluster = cluster([node("a", json!({})), node("b", json!({}))]);
    let labels = std::collections::BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    cluster.set_owner(OwnerKind::ReplicaSet, "ns", "web", Selector::all_of(&labels));
    place(&mut cluster, owned("1"), "a");
    // Otherwise a would be liked more: b is fuller.
    place(&mut cluster, asking("q", "500m", json!({})), "b");
    assert_eq!(bound(&mut cluster, &owned("2")), "b");
}

#[test]
fn soft_constraints_spread_pods() {
    let constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    let labels = json!({"labels": {"app": "web"}});
    let wanted = pod("p", json!({"metadata": labels, "spec": {"topologySpreadConstraints": [constraint]}}));
    let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    let others = vec![
        (pod("1", json!({"metadata": {"labels": {"app": "web"}}})), "worse"),
        (asking("q", "500m", json!({})), "better"),
    ];
    check(zone("b"), zone("a"), others, &wanted);
}

#[test]
fn nodes_that_have_the_image_are_liked_more() {
    let image = json!([{"names": ["registry/app:latest"], "sizeBytes": 900_000_000}]);
    let wanted = pod("p", json!({"spec": {"containers": [{"name": "c", "image": "registry/app"}]}}));
    check(json!({"status": {"images": image}}), json!({}), vec![], &wanted);
}
