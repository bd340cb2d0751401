//! Preemption: which pods are evicted to make room for one of a higher priority.

use windlass::json;
use windlass::serde_json::{Value, from_value};
use windlass_scheduler::{Nomination, PodInfo, Snapshot};

use crate::build::{asking, bound, cluster, failure, node, place};

fn with_priority(name: &str, cpu: &str, priority: i32) -> PodInfo {
    asking(name, cpu, json!({"spec": {"priority": priority}}))
}

fn victims(cluster: &mut Snapshot, pod: &PodInfo) -> Option<(String, Vec<String>)> {
    match failure(cluster, pod).nomination {
        Nomination::Preempt { node, victims } => {
            Some((node.to_string(), victims.iter().map(|victim| victim.name.to_string()).collect()))
        }
        _ => None,
    }
}

fn expect(cluster: &mut Snapshot, pod: &PodInfo, node: &str, names: &[&str]) {
    let expected = (node.to_owned(), names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(victims(cluster, pod), Some(expected));
}

#[test]
fn the_fewest_and_least_important_pods_go() {
    let mut cluster = cluster([node("a", json!({}))]);
    place(&mut cluster, with_priority("low", "1", 1), "a");
    place(&mut cluster, with_priority("lower", "1", 0), "a");
    place(&mut cluster, with_priority("high", "2", 9), "a");
    expect(&mut cluster, &with_priority("p", "1", 5), "a", &["lower"]);
    expect(&mut cluster, &with_priority("p", "2", 5), "a", &["low", "lower"]);
    let message = failure(&mut cluster, &with_priority("p", "2", 5)).message;
    assert_eq!(message, "0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(victims(&mut cluster, &with_priority("p", "3", 5)), None);
}

#[test]
fn pods_that_may_not_preempt_evict_none() {
    let mut cluster = cluster([node("a", json!({}))]);
    place(&mut cluster, with_priority("low", "3", 1), "a");
    let polite = asking("p", "2", json!({"spec": {"priority": 5, "preemptionPolicy": "Never"}}));
    assert_eq!(
        failure(&mut cluster, &polite).message,
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to \
         preemptionPolicy=Never."
    );
    let equal = failure(&mut cluster, &with_priority("p", "2", 1)).message;
    assert!(equal.ends_with("1 No preemption victims found for incoming pod."), "{equal}");
    let huge = failure(&mut cluster, &with_priority("p", "5", 9)).message;
    assert!(huge.ends_with("1 Preemption is not helpful for scheduling."), "{huge}");
}

fn budget(allowed: i32) -> Value {
    json!({
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "guarded"}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    })
}

#[test]
fn nodes_without_broken_budgets_are_preferred() {
    let mut cluster = cluster([node("a", json!({})), node("b", json!({}))]);
    place(&mut cluster, with_priority("guarded", "3", 0), "a");
    place(&mut cluster, with_priority("other", "3", 4), "b");
    // Without a budget the less important one goes.
    expect(&mut cluster, &with_priority("p", "2", 5), "a", &["guarded"]);
    cluster.set_budget(&from_value(budget(0)).unwrap());
    expect(&mut cluster, &with_priority("p", "2", 5), "b", &["other"]);
    cluster.set_budget(&from_value(budget(1)).unwrap());
    expect(&mut cluster, &with_priority("p", "2", 5), "a", &["guarded"]);
    cluster.remove_budget("ns", "b");
}

#[test]
fn budgets_are_broken_if_nothing_else_helps() {
    let mut cluster = cluster([node("a", json!({}))]);
    place(&mut cluster, with_priority("guarded", "3", 0), "a");
    cluster.set_budget(&from_value(budget(0)).unwrap());
    expect(&mut cluster, &with_priority("p", "2", 5), "a", &["guarded"]);
}

#[test]
fn later_pods_leave_the_room_that_was_made() {
    let mut cluster = cluster([node("a", json!({}))]);
    let preemptor = std::sync::Arc::new(with_priority("p", "3", 5));
    cluster.nominate(&preemptor, "a");
    let message = failure(&mut cluster, &with_priority("q", "2", 5)).message;
    assert!(message.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{message}");
    assert_eq!(bound(&mut cluster, &with_priority("more", "2", 6)), "a");
    assert_eq!(bound(&mut cluster, &preemptor), "a");
    cluster.denominate("p");
    assert_eq!(bound(&mut cluster, &with_priority("q", "2", 5)), "a");
}

#[test]
fn victims_that_are_leaving_are_waited_for() {
    let mut cluster = cluster([node("a", json!({}))]);
    let leaving = PodInfo { preempted: true, deleting: true, ..with_priority("low", "3", 1) };
    place(&mut cluster, leaving, "a");
    let waiting = asking("p", "2", json!({"spec": {"priority": 5}, "status": {"nominatedNodeName": "a"}}));
    let message = failure(&mut cluster, &waiting).message;
    assert!(message.ends_with("preemption: not eligible due to a terminating pod on the nominated node."), "{message}");
}

#[test]
fn younger_victims_go_first() {
    let started = |name: &str, second: u32| {
        let time = format!("2026-01-01T00:00:{second:02}Z");
        asking(name, "3", json!({"spec": {"priority": 1}, "status": {"startTime": time}}))
    };
    let mut cluster = cluster([node("a", json!({})), node("b", json!({}))]);
    place(&mut cluster, started("old", 1), "a");
    place(&mut cluster, started("young", 2), "b");
    expect(&mut cluster, &with_priority("p", "2", 5), "b", &["young"]);
}

#[test]
fn pods_that_keep_others_away_go_too() {
    let labels = json!({"kubernetes.io/hostname": "a"});
    let mut cluster = cluster([node("a", json!({"metadata": {"labels": labels}}))]);
    let term = json!({"labelSelector": {"matchLabels": {"app": "p"}}, "topologyKey": "kubernetes.io/hostname"});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    place(&mut cluster, asking("hostile", "1", json!({"spec": {"priority": 0, "affinity": apart}})), "a");
    place(&mut cluster, with_priority("harmless", "1", 0), "a");
    expect(&mut cluster, &with_priority("p", "1", 5), "a", &["hostile"]);
}
