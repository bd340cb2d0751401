//! How many replicas metrics ask for, and how fast that is given, decided without a cluster.

use std::collections::BTreeMap;

use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::calculate::{Sample, group, of_average, of_pods, of_value, requests};
use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + seconds)
}

fn spec(value: &Value) -> HorizontalPodAutoscalerSpec {
    let mut spec = json!({"maxReplicas": 100, "minReplicas": 1, "scaleTargetRef": {"kind": "Deployment", "name": "d"}});
    for (key, value) in value.as_object().expect("an object") {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).expect("a specification")
}

/// A pod that has run and been ready for an hour.
fn running(name: &str, more: &Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {"containers": [
            {"name": "a", "image": "i", "resources": {"requests": {"cpu": "1"}}},
            {"name": "b", "image": "i", "resources": {"requests": {"cpu": "500m"}}},
        ]},
        "status": {
            "phase": "Running", "startTime": at(-3600).to_string(),
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(-3600).to_string()}],
        },
    });
    for (key, value) in more.as_object().expect("an object") {
        pod["status"][key] = value.clone();
    }
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn samples(values: &[(&str, i64)]) -> Samples {
    let sample = |value: i64| Sample { value, at: at(0), window: SignedDuration::from_secs(60) };
    values.iter().map(|(name, value)| ((*name).to_owned(), sample(*value))).collect()
}

fn world(pods: &[Arc<Pod>], current: i32) -> World<'_> {
    World { pods, current, tolerances: Tolerances::of(None), now: at(0) }
}

#[test]
fn utilization_is_usage_in_percent_of_requests() {
    let check = |values: &[(&str, i64)], target: i32, expected: Result<(i32, i32), &str>| {
        let pods: Vec<_> = values.iter().map(|(name, _)| running(name, &json!({}))).collect();
        let requests = requests(&pods, None, "cpu").expect("requests");
        let count = i32::try_from(pods.len()).expect("few");
        let found = of_pods(&Target::Utilization(target, &requests), samples(values), true, &world(&pods, count));
        let found = found.map(|proposal| (proposal.replicas, proposal.utilization.expect("a percentage")));
        assert_eq!(found, expected.map_err(str::to_owned), "{values:?}");
    };
    check(&[("p", 1500), ("q", 1500)], 100, Ok((2, 100)));
    check(&[("p", 3000), ("q", 3000)], 100, Ok((4, 200)));
    check(&[("p", 300), ("q", 300)], 100, Ok((1, 20)));
    check(&[("p", 1600), ("q", 1600)], 100, Ok((2, 106)));
    check(&[("p", 1400), ("q", 1400)], 100, Ok((2, 93)));
    check(&[], 100, Err("no pods returned by selector while calculating replica count"));
}

#[test]
fn requests_must_be_known() {
    let pods = [running("p", &json!({}))];
    let expected = |value: i64| Ok(BTreeMap::from([("p".to_owned(), value)]));
    assert_eq!(requests(&pods, None, "cpu"), expected(1500));
    assert_eq!(requests(&pods, Some("b"), "cpu"), expected(500));
    assert_eq!(requests(&pods, Some("c"), "cpu"), Err("container c not found in Pod p".to_owned()));
    let missing = "missing request for memory in container a of Pod p";
    assert_eq!(requests(&pods, None, "memory"), Err(missing.to_owned()));
}

#[test]
fn pods_that_start_or_end_do_not_count() {
    let starting = json!({"startTime": at(-100).to_string(), "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": at(-30).to_string()},
    ]});
    let started = json!({"startTime": at(-100).to_string(), "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": at(-90).to_string()},
    ]});
    let never_ready = json!({"conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": at(-3590).to_string()},
    ]});
    let not_ready_now = json!({"conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": at(-10).to_string()},
    ]});
    let pods = [
        running("ready", &json!({})),
        running("pending", &json!({"phase": "Pending"})),
        running("failed", &json!({"phase": "Failed"})),
        running("missing", &json!({})),
        running("starting", &starting),
        running("started", &started),
        running("never-ready", &never_ready),
        running("not-ready-now", &not_ready_now),
        running("no-condition", &json!({"conditions": []})),
    ];
    let names = ["ready", "pending", "failed", "starting", "started", "never-ready", "not-ready-now", "no-condition"];
    let known = samples(&names.map(|name| (name, 1)));
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let groups = group(&pods, &known, true, at(0));
    assert_eq!(groups.unready, set(&["pending", "starting", "never-ready", "no-condition"]));
    assert_eq!(groups.missing, set(&["missing"]));
    assert_eq!(groups.ignored, set(&["failed"]));
    assert_eq!(groups.ready, 3);
    assert_eq!(group(&pods, &known, false, at(0)).unready, set(&["pending"]));
}

#[test]
fn unknown_pods_do_not_make_a_change_larger() {
    let check = |present: &[(&str, i64)], absent: &[&str], unready: &[&str], expected: i32| {
        let mut pods: Vec<_> = present.iter().map(|(name, _)| running(name, &json!({}))).collect();
        pods.extend(absent.iter().map(|name| running(name, &json!({}))));
        pods.extend(unready.iter().map(|name| running(name, &json!({"phase": "Pending"}))));
        let current = i32::try_from(pods.len()).expect("few");
        let found = of_pods(&Target::Average(100), samples(present), false, &world(&pods, current));
        assert_eq!(found.expect("a number").replicas, expected, "{present:?} {absent:?} {unready:?}");
    };
    check(&[("a", 200), ("b", 200)], &[], &[], 4);
    // Those without metrics are taken to use nothing when it is about more, and the target when about less.
    check(&[("a", 300), ("b", 300)], &["c"], &[], 6);
    check(&[("a", 110), ("b", 120)], &["c"], &[], 3);
    check(&[("a", 10), ("b", 10)], &["c"], &[], 2);
    check(&[("a", 300), ("b", 300)], &[], &["c", "d"], 6);
    check(&[("a", 10), ("b", 10)], &[], &["c"], 1);
}

#[test]
fn values_of_objects_are_shared_by_ready_pods() {
    let pods = [running("a", &json!({})), running("b", &json!({})), running("c", &json!({"phase": "Pending"}))];
    assert_eq!(of_value(400, 100, &world(&pods, 3)), Ok(8));
    assert_eq!(of_value(105, 100, &world(&pods, 3)), Ok(3));
    assert_eq!(of_value(250, 100, &world(&[], 0)), Ok(3));
    assert!(of_value(400, 100, &world(&[], 3)).is_err());
    assert_eq!(of_average(400, 100, 2, Tolerances::of(None)), (4, 200));
    assert_eq!(of_average(210, 100, 2, Tolerances::of(None)), (2, 105));
}

#[test]
fn tolerances_can_be_set() {
    let spec = spec(&json!({"behavior": {"scaleUp": {"tolerance": "0"}, "scaleDown": {"tolerance": "500m"}}}));
    let tolerances = Tolerances::of(spec.behavior.as_ref());
    assert_eq!(of_average(201, 100, 2, tolerances).0, 3);
    assert_eq!(of_average(101, 100, 2, tolerances).0, 2);
    assert_eq!(of_average(99, 100, 2, tolerances).0, 1);
}

#[test]
fn replicas_fall_to_the_highest_recent_recommendation() {
    let spec = spec(&json!({}));
    let mut history = History::default();
    history.begin(10, at(0));
    let decision = history.decide(&spec, 10, 2, at(15));
    assert_eq!(
        (decision.replicas, decision.able.0, decision.limited.1),
        (10, "ScaleDownStabilized", "DesiredWithinRange")
    );
    assert_eq!(history.decide(&spec, 10, 5, at(200)).replicas, 10);
    assert_eq!(history.decide(&spec, 10, 2, at(301)).replicas, 5);
    let decision = history.decide(&spec, 5, 2, at(520));
    assert_eq!((decision.replicas, decision.able.0), (2, "ReadyForNewScale"));
}

#[test]
fn replicas_stay_within_bounds() {
    let check = |value: Value, current: i32, desired: i32, expected: (i32, bool, &str)| {
        let decision = History::default().decide(&spec(&value), current, desired, at(0));
        let found = (decision.replicas, decision.limited.0, decision.limited.1);
        assert_eq!(found, expected, "{value} {current} {desired}");
    };
    check(json!({}), 2, 3, (3, false, "DesiredWithinRange"));
    check(json!({}), 1, 9, (4, true, "ScaleUpLimit"));
    check(json!({}), 10, 30, (20, true, "ScaleUpLimit"));
    check(json!({"maxReplicas": 12}), 10, 30, (12, true, "TooManyReplicas"));
    check(json!({"minReplicas": 3}), 5, 1, (3, true, "TooFewReplicas"));
    let up = |rules: Value| json!({"behavior": {"scaleUp": rules}});
    let pods = json!({"type": "Pods", "value": 2, "periodSeconds": 60});
    let percent = json!({"type": "Percent", "value": 50, "periodSeconds": 60});
    check(up(json!({"policies": [pods, percent]})), 10, 30, (15, true, "ScaleUpLimit"));
    check(up(json!({"policies": [pods, percent], "selectPolicy": "Min"})), 10, 30, (12, true, "ScaleUpLimit"));
    check(up(json!({"selectPolicy": "Disabled"})), 10, 30, (10, true, "ScaleUpLimit"));
    check(up(json!({})), 1, 30, (5, true, "ScaleUpLimit"));
    let down = |rules: Value| json!({"behavior": {"scaleDown": rules}});
    let quick = json!({"policies": [pods, percent], "stabilizationWindowSeconds": 0});
    check(down(quick), 10, 1, (5, true, "ScaleDownLimit"));
    let slow = json!({"policies": [pods, percent], "stabilizationWindowSeconds": 0, "selectPolicy": "Min"});
    check(down(slow), 10, 1, (8, true, "ScaleDownLimit"));
    check(down(json!({"stabilizationWindowSeconds": 0})), 10, 0, (1, true, "TooFewReplicas"));
}

#[test]
fn policies_count_what_was_done_in_their_period() {
    let rules = json!({"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]});
    let spec = spec(&json!({"behavior": {"scaleUp": rules}}));
    let mut history = History::default();
    assert_eq!(history.decide(&spec, 10, 30, at(0)).replicas, 14);
    history.scaled(10, 14, at(0));
    assert_eq!(history.decide(&spec, 14, 30, at(30)).replicas, 14);
    assert_eq!(history.decide(&spec, 14, 30, at(60)).replicas, 18);
}

#[test]
fn scaling_up_waits_for_its_window() {
    let spec = spec(&json!({"behavior": {"scaleUp": {"stabilizationWindowSeconds": 60}}}));
    let mut history = History::default();
    history.begin(4, at(0));
    let decision = history.decide(&spec, 4, 8, at(15));
    assert_eq!((decision.replicas, decision.able.0), (4, "ScaleUpStabilized"));
    assert_eq!(history.decide(&spec, 4, 6, at(60)).replicas, 6);
}

#[test]
fn usage_is_known_when_all_containers_report_it() {
    let pod = json!({
        "metadata": {"name": "p"}, "timestamp": at(0).to_string(), "window": "15s",
        "containers": [{"name": "a", "usage": {"cpu": "250m", "memory": "1Ki"}}, {"name": "b", "usage": {"cpu": "1"}}],
    });
    let (name, sample) = metrics::usage(&pod, "cpu", None).expect("known");
    assert_eq!((name.as_str(), sample.value, sample.at, sample.window.as_secs()), ("p", 1250, at(0), 15));
    assert_eq!(metrics::usage(&pod, "cpu", Some("b")).expect("known").1.value, 1000);
    assert_eq!(metrics::usage(&pod, "memory", None), None);
    assert_eq!(metrics::usage(&pod, "memory", Some("a")).expect("known").1.value, 1_024_000);
    assert_eq!(metrics::usage(&pod, "cpu", Some("c")), None);
}

proptest! {
    /// Whatever is asked for, replicas stay within their bounds, and never go the wrong way.
    #[test]
    fn decisions_stay_within_bounds(
        steps in prop::collection::vec((0..40_i32, 1..120_i64), 1..30),
        (min, span) in (1..10_i32, 0..20_i32),
        behaves in any::<bool>(),
    ) {
        let max = min + span;
        let behavior = if behaves { json!({"scaleUp": {}, "scaleDown": {}}) } else { Value::Null };
        let spec = spec(&json!({"minReplicas": min, "maxReplicas": max, "behavior": behavior}));
        let (mut history, mut current, mut now) = (History::default(), min, 0);
        history.begin(current, at(0));
        for (desired, pause) in steps {
            now += pause;
            let decision = history.decide(&spec, current, desired, at(now));
            prop_assert!((min..=max).contains(&decision.replicas));
            if desired >= current {
                prop_assert!(decision.replicas >= current);
            }
            if decision.replicas != current {
                history.scaled(current, decision.replicas, at(now));
                current = decision.replicas;
            }
        }
    }
}

#[test]
fn selectors_are_printed_as_in_go() {
    assert_eq!(printed(None), "nil");
    let selector = LabelSelector {
        match_labels: Some([("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d".to_owned())].into()),
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "e".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec!["f".to_owned(), "g".to_owned()]),
        }]),
    };
    assert_eq!(
        printed(Some(&selector)),
        "&LabelSelector{MatchLabels:map[string]string{a: b,c: d,},MatchExpressions:[]LabelSelectorRequirement{\
         LabelSelectorRequirement{Key:e,Operator:In,Values:[f g],},},}"
    );
}

/// A client of an API that answers everything with one list, and the requests that it gets.
fn metrics_api(items: &Value) -> (kube::Client, Arc<parking_lot::Mutex<Vec<String>>>) {
    let (asked, answer) = (Arc::<parking_lot::Mutex<Vec<String>>>::default(), json!({"items": items}).to_string());
    let seen = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        seen.lock().push(request.uri().to_string());
        let answer = http::Response::new(kube::client::Body::from(answer.clone().into_bytes()));
        std::future::ready(Ok::<_, std::convert::Infallible>(answer))
    });
    (kube::Client::new(service, "default"), asked)
}

#[tokio::test]
async fn custom_metrics_are_read_from_their_api() {
    let value = |name: &str, value: &str, more: Value| {
        let mut item = json!({"describedObject": {"name": name}, "value": value, "timestamp": at(0).to_string()});
        item.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        item
    };
    let items = json!([value("a", "1500m", json!({"windowSeconds": 30})), value("b", "2", json!({}))]);
    let (client, asked) = metrics_api(&items);
    let labels = serde_json::from_value(json!({"matchLabels": {"verb": "GET"}})).expect("a selector");
    let found = metrics::of_pods(&client, "ns", "app=d", "requests", Some(&labels)).await.expect("metrics");
    let mut found: Vec<_> = found.into_iter().map(|(name, sample)| (name, sample.value, sample.window)).collect();
    found.sort();
    let seconds = SignedDuration::from_secs;
    assert_eq!(found, [("a".to_owned(), 1500, seconds(30)), ("b".to_owned(), 2000, seconds(60))]);
    let object = metrics::of_object(&client, "namespaces/ns/services/web", "requests", None).await;
    assert_eq!(object, Ok(1500), "of the first");
    let path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns";
    let expected = [
        format!("{path}/pods/*/requests?labelSelector=app%3Dd&metricLabelSelector=verb%3DGET"),
        format!("{path}/services/web/requests"),
    ];
    assert_eq!(*asked.lock(), expected);
    let (empty, _) = metrics_api(&json!([]));
    let missing = metrics::of_pods(&empty, "ns", "app=d", "requests", None).await;
    assert_eq!(missing.err().as_deref(), Some("no metrics returned from custom metrics API"));
}
