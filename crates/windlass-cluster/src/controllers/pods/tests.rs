//! Pure parts: order of deletion, availability, slow start.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn pod(name: &str, more: &Value) -> Arc<Pod> {
    let mut pod = json!({"metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}});
    for (key, value) in more.as_object().unwrap() {
        for (field, value) in value.as_object().unwrap() {
            pod[key][field] = value.clone();
        }
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn ready(since: &str) -> Value {
    json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}])
}

#[test]
fn the_least_useful_pods_go_first() {
    let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
    let on = |node: &str| json!({"nodeName": node, "containers": []});
    let running = |since: &str| json!({"phase": "Running", "conditions": ready(since)});
    let day = "2026-01-01T00:00:00Z";
    let pods = [
        pod("unassigned", &json!({})),
        pod("pending", &json!({"spec": on("n"), "status": {"phase": "Pending"}})),
        pod("unready", &json!({"spec": on("n"), "status": {"phase": "Running"}})),
        pod(
            "cheap",
            &json!({"spec": on("n"), "status": running(day), "metadata": {"annotations": {
                "controller.kubernetes.io/pod-deletion-cost": "-5",
            }}}),
        ),
        pod("crowded", &json!({"spec": on("full"), "status": running(day)})),
        pod("young", &json!({"spec": on("n"), "status": running("2026-01-01T23:59:00Z")})),
        pod("old", &json!({"spec": on("n"), "status": running(day)})),
    ];
    let related: Vec<_> = (0..9).map(|_| pod("other", &json!({"spec": on("full")}))).collect();
    let mut shuffled = pods.to_vec();
    shuffled.reverse();
    let names = |pods: &[Arc<Pod>]| pods.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect::<Vec<_>>();
    for count in 0..pods.len() {
        assert_eq!(names(&preferred_victims(shuffled.clone(), &related, count, now)), names(&pods[..count]));
    }
}

#[test]
fn pods_are_available_after_being_ready_for_a_while() {
    let at = |time: &str| time.parse::<Timestamp>().unwrap();
    let pod = pod("p", &json!({"status": {"conditions": ready("2026-01-01T00:00:00Z")}}));
    assert!(is_available(&pod, 0, at("2026-01-01T00:00:00Z")));
    assert!(!is_available(&pod, 10, at("2026-01-01T00:00:09Z")));
    assert_eq!(next_available([&*pod], 10, at("2026-01-01T00:00:09Z")), Some(Duration::from_secs(1)));
    assert!(is_available(&pod, 10, at("2026-01-01T00:00:10Z")));
    assert_eq!(next_available([&*pod], 10, at("2026-01-01T00:00:10Z")), None);
}

#[tokio::test]
async fn a_slow_start_stops_at_the_first_batch_that_fails() {
    let calls = Cell::new(0);
    let (done, failure) = slow_start(100, async |n| {
        calls.set(calls.get() + 1);
        if n < 4 { Ok(n) } else { Err(n) }
    })
    .await;
    // One, two, then four of which three fail.
    assert_eq!((done, failure, calls.get()), (vec![0, 1, 2, 3], Some(4), 7));
    let (done, failure) = slow_start(5, async |n| Ok::<_, ()>(n)).await;
    assert_eq!((done.len(), failure), (5, None));
}
