//! The order of deletion against upstream's rules for pairs of pods.
#![allow(clippy::unwrap_used)]

use std::cmp::Ordering;

use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::*;

/// What decides about a pod. Few values of each, so that pods often agree in some.
#[derive(Debug, Clone)]
struct Facts {
    node: &'static str,
    phase: &'static str,
    ready: bool,
    cost: i32,
    /// Seconds ago.
    ready_for: Option<i64>,
    restarts: i32,
    sidecar_restarts: i32,
    age: Option<i64>,
    uid: u16,
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// In the future, now, and several of about the same age.
fn seconds() -> impl Strategy<Value = Option<i64>> {
    select(vec![None, Some(-5), Some(0), Some(40), Some(41), Some(42), Some(3600), Some(3601)])
}

fn facts() -> impl Strategy<Value = Facts> {
    let place = (select(vec!["", "n1", "n2"]), select(vec!["", "Pending", "Unknown", "Running"]), any::<bool>(), -1..2);
    (place, seconds(), 0..3, 0..2, seconds(), any::<u16>()).prop_map(
        |((node, phase, ready, cost), ready_for, restarts, sidecar_restarts, age, uid)| Facts {
            node,
            phase,
            ready,
            cost,
            ready_for,
            restarts,
            sidecar_restarts,
            age,
            uid,
        },
    )
}

/// Pods that differ only in what their uids and times say.
fn alike() -> impl Strategy<Value = Facts> {
    facts().prop_map(|facts| Facts { node: "n1", phase: "Running", ready: true, cost: 0, ..facts })
}

impl Facts {
    fn pod(&self) -> Arc<Pod> {
        let time = |ago: Option<i64>| ago.map(|ago| (now() - SignedDuration::from_secs(ago)).to_string());
        let ready = if self.ready { "True" } else { "False" };
        let status = |name: &str, restarts: i32| json!([{"name": name, "image": "", "imageID": "", "ready": self.ready, "restartCount": restarts}]);
        let pod = json!({
            "metadata": {
                "uid": format!("{:04x}", self.uid),
                "creationTimestamp": time(self.age),
                "annotations": {DELETION_COST: self.cost.to_string()},
            },
            "spec": {
                "nodeName": self.node,
                "containers": [],
                "initContainers": [{"name": "side", "restartPolicy": "Always"}],
            },
            "status": {
                "phase": self.phase,
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": time(self.ready_for)}],
                "containerStatuses": status("main", self.restarts),
                "initContainerStatuses": status("side", self.sidecar_restarts),
            },
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn place(&self, colocated: usize) -> Place<i64> {
        let pod = self.pod();
        Place::of(&pod, deletion_cost(&pod), colocated, |time| magnitude(time, now()))
    }

    fn since(&self) -> Option<i64> {
        self.ready_for.filter(|_| self.ready)
    }

    fn phase_ordinal(&self) -> usize {
        ["Unknown", "Running"].iter().position(|known| *known == self.phase).map_or(0, |at| at + 1)
    }
}

/// The rule that decided about a pair of pods.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    /// The uid, because the pods became ready at different times of about the same age.
    UidForReadiness,
    Other,
}

/// What upstream's rules 1 to 3, which all its orders share, say about a pair.
fn upstream_stage(a: &Facts, b: &Facts) -> Ordering {
    let assigned = |facts: &Facts| !facts.node.is_empty();
    assigned(a).cmp(&assigned(b)).then(a.phase_ordinal().cmp(&b.phase_ordinal())).then(a.ready.cmp(&b.ready))
}

/// The more restarts first.
fn upstream_restarts(a: &Facts, b: &Facts) -> Ordering {
    b.restarts.cmp(&a.restarts).then(b.sidecar_restarts.cmp(&a.sidecar_restarts))
}

/// What `ActivePodsWithRanks` says about a pair.
fn upstream(a: &Facts, a_rank: usize, b: &Facts, b_rank: usize) -> (Ordering, Rule) {
    // No time comes before every time, then the shorter age; on a logarithmic scale, where the uid tells apart.
    let by_age = |a_age: Option<i64>, b_age: Option<i64>| match (a_age, b_age) {
        (Some(a_age), Some(b_age)) if a_age != b_age => {
            let log = |age: i64| if age > 0 { (age as f64 * 1e9).log2() as i64 } else { -1 };
            let by_log = log(a_age).cmp(&log(b_age));
            (by_log.then(a.uid.cmp(&b.uid)), by_log == Ordering::Equal)
        }
        _ => (a_age.is_some().cmp(&b_age.is_some()), false),
    };
    let before = upstream_stage(a, b).then(a.cost.cmp(&b.cost)).then(b_rank.cmp(&a_rank));
    if before != Ordering::Equal {
        return (before, Rule::Other);
    }
    match by_age(a.since(), b.since()) {
        (Ordering::Equal, _) => {}
        (order, true) => return (order, Rule::UidForReadiness),
        (order, false) => return (order, Rule::Other),
    }
    (upstream_restarts(a, b).then(by_age(a.age, b.age).0), Rule::Other)
}

/// What `ActivePods` says about a pair.
fn upstream_of_jobs(a: &Facts, b: &Facts) -> Ordering {
    let by_age = |a: Option<i64>, b: Option<i64>| a.cmp(&b);
    upstream_stage(a, b).then(by_age(a.since(), b.since())).then(upstream_restarts(a, b)).then(by_age(a.age, b.age))
}

fn uids(pods: &[Arc<Pod>]) -> Vec<String> {
    pods.iter().map(|pod| pod.metadata.uid.clone().unwrap()).collect()
}

/// Pods whose uids all differ.
fn distinct(mut all: Vec<Facts>) -> Vec<Arc<Pod>> {
    all.sort_by_key(|facts| facts.uid);
    all.dedup_by_key(|facts| facts.uid);
    all.iter().map(Facts::pod).collect()
}

proptest! {
    #[test]
    fn the_order_is_total(
        (a, b, c) in (facts(), facts(), facts()),
        (i, j, k) in (0..3usize, 0..3usize, 0..3usize),
    ) {
        let (a, b, c) = (a.place(i), b.place(j), c.place(k));
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a.cmp(&b) == Ordering::Equal, a == b);
        if a <= b && b <= c {
            prop_assert!(a <= c);
            prop_assert_eq!(a == c, a == b && b == c);
        }
    }

    #[test]
    fn pairs_are_in_upstreams_order((a, b) in (facts(), facts()), (i, j) in (0..3usize, 0..3usize)) {
        check_pair(&a, i, &b, j)?;
    }

    #[test]
    fn similar_pairs_are_in_upstreams_order((a, b) in (alike(), alike())) {
        check_pair(&a, 1, &b, 1)?;
    }

    #[test]
    fn pods_of_jobs_are_in_upstreams_order((a, b) in (alike(), alike()), (c, d) in (facts(), facts())) {
        for (a, b) in [(a, b), (c, d)] {
            let order = upstream_of_jobs(&a, &b).then(a.uid.cmp(&b.uid));
            let mut pods = [b.pod(), a.pod()];
            sort_for_deletion(&mut pods);
            let expected = if order.is_gt() { [b.pod(), a.pod()] } else { [a.pod(), b.pod()] };
            prop_assert_eq!(uids(&pods), uids(&expected));
        }
    }

    #[test]
    fn victims_do_not_depend_on_the_order_of_the_pods(
        all in proptest::collection::vec(alike(), 30..100),
        count in 0..30usize,
        turn in 0..100usize,
    ) {
        let pods = distinct(all);
        // All pods are returned as they come.
        prop_assume!(count + 1 < pods.len());
        let victims = preferred_victims(pods.clone(), &pods, count, now());
        let mut turned = pods.clone();
        turned.reverse();
        turned.rotate_left(turn % pods.len());
        prop_assert_eq!(uids(&victims), uids(&preferred_victims(turned, &pods, count, now())));
        let more = preferred_victims(pods.clone(), &pods, count + 1, now());
        prop_assert_eq!(uids(&victims), uids(&more[..count.min(more.len())]));
    }
}

/// Where upstream knows an order, the places have it; but restarts and age decide before the uid, also when the pods
/// became ready at different times of about the same age.
fn check_pair(a: &Facts, a_rank: usize, b: &Facts, b_rank: usize) -> Result<(), TestCaseError> {
    let (expected, rule) = upstream(a, a_rank, b, b_rank);
    let order = a.place(a_rank).cmp(&b.place(b_rank));
    let created = |facts: &Facts| facts.place(0).created;
    let undecided = upstream_restarts(a, b) == Ordering::Equal && created(a) == created(b);
    if expected != Ordering::Equal && (rule == Rule::Other || undecided) {
        prop_assert_eq!(order, expected);
    } else if expected == Ordering::Equal {
        prop_assert_eq!(order, a.uid.cmp(&b.uid));
    }
    Ok(())
}

/// By upstream's rules for pairs, each of these goes before the next, and the last before the first.
#[test]
fn pods_that_are_about_equally_good_form_no_circle() {
    let base = Facts {
        node: "n1",
        phase: "Running",
        ready: true,
        cost: 0,
        ready_for: Some(40),
        restarts: 0,
        sidecar_restarts: 0,
        age: Some(60),
        uid: 1,
    };
    let between = Facts { ready_for: Some(41), uid: 2, ..base.clone() };
    let restarted = Facts { restarts: 3, uid: 3, ..base.clone() };
    let circle = [&base, &between, &restarted];
    for (at, facts) in circle.iter().enumerate() {
        assert_eq!(upstream(facts, 0, circle[(at + 1) % 3], 0).0, Ordering::Less);
    }
    let pods: Vec<Arc<Pod>> = circle.iter().map(|facts| facts.pod()).collect();
    assert_eq!(uids(&preferred_victims(pods, &[], 2, now())), ["0003", "0001"]);
}

#[test]
fn deletion_costs_are_read_as_upstream_reads_them() {
    let cost = |text: &str| {
        let annotations = json!({"annotations": {DELETION_COST: text}});
        deletion_cost(&serde_json::from_value(json!({"metadata": annotations})).unwrap())
    };
    for (text, expected) in [
        ("10", 10),
        ("-5", -5),
        ("0", 0),
        ("2147483647", i32::MAX),
        ("2147483648", 0),
        ("+10", 0),
        ("010", 0),
        ("1.5", 0),
        ("", 0),
    ] {
        assert_eq!(cost(text), expected, "{text}");
    }
}
