//! Grace periods, zones and taints, decided without a cluster.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::health::{GRACE, Monitor, Permit, Place, Report, STARTUP_GRACE};
use super::taints::{self, NoExecute};
use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + seconds)
}

fn beat(second: i64) -> Report {
    Report::Heartbeat(Some(at(second)))
}

fn place(zone: &str, ready: bool) -> Place {
    Place { zone: zone.to_owned(), ready }
}

fn node(value: Value) -> Node {
    serde_json::from_value(value).expect("a node")
}

#[test]
fn status_and_lease_are_signs_of_life() {
    let mut monitor = Monitor::default();
    let left = |monitor: &mut Monitor, report: Report, now: i64| monitor.observe("a", report, at(now)).left;
    assert!(monitor.observe("a", beat(0), at(0)).first);
    assert_eq!(left(&mut monitor, beat(0), 10), Some(Duration::from_secs(40)));
    assert_eq!(left(&mut monitor, beat(20), 20), Some(Duration::from_secs(50)));
    monitor.renewed("a", at(5), at(30));
    assert_eq!(left(&mut monitor, beat(20), 30), Some(Duration::from_secs(50)));
    monitor.renewed("a", at(5), at(60));
    monitor.renewed("a", at(4), at(61));
    assert_eq!(left(&mut monitor, beat(20), 79), Some(Duration::from_secs(1)), "an old renewal says nothing");
    assert_eq!(left(&mut monitor, beat(20), 80), None);
    assert!(!monitor.observe("a", beat(20), at(80)).first);
    monitor.forget("a", at(81));
    assert!(monitor.observe("a", beat(20), at(82)).first);
}

#[test]
fn a_node_without_conditions_has_the_startup_grace_period() {
    let mut monitor = Monitor::default();
    monitor.observe("a", Report::Nothing, at(0));
    assert!(monitor.observe("a", Report::Nothing, at(STARTUP_GRACE.as_secs() - 1)).left.is_some());
    assert!(monitor.observe("a", Report::Nothing, at(STARTUP_GRACE.as_secs())).left.is_none());
    let seen = monitor.observe("a", Report::Heartbeat(None), at(100));
    assert_eq!(seen.left, Some(GRACE.unsigned_abs()));
}

#[test]
fn zones_limit_how_many_nodes_are_tainted() {
    let mut monitor = Monitor::default();
    monitor.seed((0..4).map(|i| (i.to_string(), Some(place("z", true)))), at(0));
    assert!(!monitor.settle("0", Some(place("z", false)), at(1)));
    assert_eq!(monitor.permit("z", at(1)), Permit::Now);
    assert_eq!(monitor.permit("z", at(3)), Permit::After(Duration::from_secs(8)));
    assert_eq!(monitor.permit("z", at(11)), Permit::Now);
    monitor.settle("1", Some(place("z", false)), at(12));
    assert!(monitor.settle("2", Some(place("z", false)), at(12)), "three of four: partly disrupted");
    assert_eq!(monitor.permit("z", at(100)), Permit::Never);
    assert!(monitor.settle("3", Some(place("z", false)), at(12)), "all of them");
    assert!(monitor.is_all_disrupted());
    assert_eq!(monitor.permit("z", at(100)), Permit::Never);
    assert!(monitor.settle("4", Some(place("y", true)), at(13)), "a healthy zone");
    assert!(!monitor.is_all_disrupted());
    assert_eq!(monitor.permit("z", at(100)), Permit::Now, "one zone that fails as a whole is evicted");
    monitor.forget("4", at(14));
    assert!(monitor.is_all_disrupted());
}

#[test]
fn large_zones_are_tainted_slowly_when_many_fail() {
    let mut monitor = Monitor::default();
    monitor.seed((0..60).map(|i| (i.to_string(), Some(place("", i < 20)))), at(0));
    assert_eq!(monitor.permit("", at(0)), Permit::Now);
    assert_eq!(monitor.permit("", at(10)), Permit::After(Duration::from_secs(90)));
}

#[test]
fn the_end_of_a_full_disruption_starts_grace_periods_anew() {
    let mut monitor = Monitor::default();
    monitor.seed([("a".to_owned(), Some(place("", false))), ("b".to_owned(), Some(place("", false)))], at(0));
    monitor.observe("a", beat(0), at(0));
    assert!(monitor.settle("b", Some(place("", true)), at(40)));
    assert_eq!(monitor.observe("a", beat(0), at(50)).left, Some(Duration::from_secs(40)));
}

#[test]
fn taints_follow_from_conditions() {
    let check = |node: Value, no_execute: NoExecute, expected: Option<&[(&str, &str)]>| {
        let wanted = taints::wanted(&self::node(node.clone()), no_execute, at(0));
        let wanted = wanted.map(|all| all.into_iter().map(|taint| (taint.key, taint.effect)).collect::<Vec<_>>());
        let short = |key: &str| key.strip_prefix("node.kubernetes.io/").unwrap_or(key).to_owned();
        let wanted = wanted.map(|all| all.into_iter().map(|(key, effect)| (short(&key), effect)).collect::<Vec<_>>());
        let expected = expected
            .map(|all| all.iter().map(|(key, effect)| ((*key).to_owned(), (*effect).to_owned())).collect::<Vec<_>>());
        assert_eq!(wanted, expected, "{node}");
    };
    let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    check(ready("True"), NoExecute::Clear, None);
    check(ready("False"), NoExecute::Keep, Some(&[("not-ready", "NoSchedule")]));
    check(
        ready("Unknown"),
        NoExecute::Set(taints::UNREACHABLE),
        Some(&[("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]),
    );
    let mut tainted = ready("True");
    tainted["spec"] = json!({"unschedulable": true, "taints": [
        {"key": "mine", "effect": "NoSchedule"}, {"key": taints::NOT_READY, "effect": "NoSchedule"},
        {"key": taints::NOT_READY, "effect": "NoExecute"}, {"key": taints::NOT_READY, "effect": "PreferNoSchedule"},
    ]});
    check(
        tainted.clone(),
        NoExecute::Clear,
        Some(&[("mine", "NoSchedule"), ("not-ready", "PreferNoSchedule"), ("unschedulable", "NoSchedule")]),
    );
    tainted["status"]["conditions"] = json!([
        {"type": "MemoryPressure", "status": "True"}, {"type": "DiskPressure", "status": "False"},
        {"type": "PIDPressure", "status": "True"}, {"type": "NetworkUnavailable", "status": "True"},
        {"type": "Ready", "status": "Unknown"},
    ]);
    tainted["spec"] = json!({"taints": [{"key": taints::NOT_READY, "effect": "NoExecute"}]});
    check(
        tainted,
        NoExecute::Set(taints::UNREACHABLE),
        Some(&[
            ("memory-pressure", "NoSchedule"),
            ("pid-pressure", "NoSchedule"),
            ("network-unavailable", "NoSchedule"),
            ("unreachable", "NoSchedule"),
            ("unreachable", "NoExecute"),
        ]),
    );
}

#[test]
fn a_silent_node_has_unknown_conditions() {
    let silent = node(json!({
        "metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"},
        "status": {"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "Unknown", "reason": "Mine"},
        ]},
    }));
    let conditions = taints::silenced(&silent, at(0)).expect("changed");
    let said: Vec<_> =
        conditions.iter().map(|c| (&*c.type_, &*c.status, c.reason.as_deref().unwrap_or_default())).collect();
    assert_eq!(
        said,
        [
            ("Ready", "Unknown", "NodeStatusUnknown"),
            ("DiskPressure", "Unknown", "Mine"),
            ("MemoryPressure", "Unknown", "NodeStatusNeverUpdated"),
            ("PIDPressure", "Unknown", "NodeStatusNeverUpdated"),
        ]
    );
    let mut unknown = silent;
    unknown.status.as_mut().expect("a status").conditions = Some(conditions);
    assert_eq!(taints::silenced(&unknown, at(1)), None);
}

#[test]
fn older_labels_say_what_the_current_ones_do() {
    let check = |labels: Value, expected: &[(&str, &str)]| {
        let found = taints::labels(&node(json!({"metadata": {"labels": labels}})));
        let expected = expected.iter().map(|(label, value)| (*label, (*value).to_owned())).collect();
        assert_eq!(found, expected);
    };
    check(json!({}), &[]);
    check(json!({"beta.kubernetes.io/os": "linux"}), &[]);
    check(json!({"kubernetes.io/os": "linux"}), &[("beta.kubernetes.io/os", "linux")]);
    check(
        json!({"kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "amd64"}),
        &[("beta.kubernetes.io/arch", "arm64")],
    );
    check(json!({"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}), &[]);
}

proptest! {
    /// Whatever happened before, zones count the nodes there are.
    #[test]
    fn zones_agree_with_a_recount(steps in prop::collection::vec((0..6_u8, 0..3_u8, any::<bool>(), any::<bool>()), 0..60)) {
        let mut monitor = Monitor::default();
        let mut nodes = std::collections::BTreeMap::new();
        for (step, (node, zone, ready, gone)) in steps.into_iter().enumerate() {
            let (name, now) = (node.to_string(), at(step as i64));
            if gone {
                nodes.remove(&node);
                monitor.forget(&name, now);
            } else {
                nodes.insert(node, ready);
                monitor.settle(&name, Some(place(&zone.to_string(), ready)), now);
            }
            prop_assert_eq!(monitor.is_all_disrupted(), !nodes.is_empty() && nodes.values().all(|ready| !ready));
        }
    }

    /// Taints that are as wanted are left alone, and those of others always.
    #[test]
    fn wanted_taints_are_stable(
        status in prop::sample::select(vec!["True", "False", "Unknown"]),
        cordoned in any::<bool>(),
        keys in prop::collection::vec((0..4_usize, 0..3_usize), 0..6),
    ) {
        let names = ["mine", taints::NOT_READY, taints::UNREACHABLE, "node.kubernetes.io/disk-pressure"];
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        let given: std::collections::BTreeSet<_> = keys.into_iter().collect();
        let given: Vec<Value> =
            given.iter().map(|(key, effect)| json!({"key": names[*key], "effect": effects[*effect]})).collect();
        let mut node = node(json!({
            "spec": {"unschedulable": cordoned, "taints": given},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        }));
        let no_execute = taints::of_ready(status).map_or(NoExecute::Clear, NoExecute::Set);
        let others = |node: &Node| taints::of(node).iter().filter(|taint| taint.key == "mine").cloned().collect::<Vec<_>>();
        let before = others(&node);
        if let Some(wanted) = taints::wanted(&node, no_execute, at(0)) {
            node.spec.as_mut().expect("a spec").taints = Some(wanted);
        }
        prop_assert_eq!(taints::wanted(&node, no_execute, at(1)), None);
        prop_assert_eq!(others(&node), before);
    }
}
