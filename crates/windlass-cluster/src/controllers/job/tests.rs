//! Pure parts: indexes, policies, backoff.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pod(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

#[test]
fn indexes_are_written_as_intervals() {
    for (text, completions, expected) in [
        ("", 5, ""),
        ("0", 5, "0"),
        ("0,1", 5, "0,1"),
        ("0,1,2", 5, "0-2"),
        ("0-2,4", 5, "0-2,4"),
        ("1-9", 5, "1-4"),
        ("x,3", 5, "3"),
    ] {
        assert_eq!(Indexes::parse(text, completions).to_string(), expected, "{text}");
    }
    let mut indexes = Indexes::parse("0-1,4", 9);
    indexes.extend([2, 6]);
    assert_eq!((indexes.to_string().as_str(), indexes.len()), ("0-2,4,6", 5));
}

#[test]
fn billions_of_indexes_take_little_room() {
    let most = i32::MAX;
    let mut all = Indexes::parse("0-2147483646", most);
    assert_eq!((all.len(), all.to_string().as_str()), (2_147_483_647, "0-2147483646"));
    all.extend([7]);
    assert_eq!(all.absent(most).next(), None);
    let first = Indexes::parse("0-999999999,1000000001-2000000000", most);
    assert_eq!(first.absent(most).take(2).collect::<Vec<_>>(), [1_000_000_000, 2_000_000_001]);
    let spec: JobSpec =
        serde_json::from_value(json!({"template": {}, "completions": most, "successPolicy": {"rules": [
            {"succeededIndexes": "0-2147483646", "succeededCount": 2_000_000_000},
        ]}}))
        .unwrap();
    assert!(policy::success(&spec, &first).is_some());
}

proptest! {
    #[test]
    fn indexes_are_a_set(
        one in prop::collection::vec(0..40i32, 0..12), other in prop::collection::vec(0..40i32, 0..12), most in 0..40i32,
    ) {
        let set = |indexes: &[i32]| {
            let mut set = Indexes::default();
            set.extend(indexes.iter().copied());
            set
        };
        let (mut a, b) = (set(&one), set(&other));
        let (mut model, second): (BTreeSet<i32>, BTreeSet<i32>) =
            (one.into_iter().collect(), other.into_iter().collect());
        prop_assert_eq!(a.common(&b), model.intersection(&second).count());
        a.add(&b);
        model.extend(second);
        prop_assert_eq!(a.len(), model.len());
        prop_assert!((0..40).all(|index| a.contains(index) == model.contains(&index)));
        let absent: Vec<i32> = (0..most).filter(|index| !model.contains(index)).collect();
        prop_assert_eq!(a.absent(most).collect::<Vec<_>>(), absent);
        prop_assert_eq!(Indexes::parse(&a.to_string(), 40), a);
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let spec: JobSpec = serde_json::from_value(json!({
        "template": {},
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1]}},
        ]},
    }))
    .unwrap();
    let exited = |code: i32| {
        pod(json!({"metadata": {"namespace": "n", "name": "p"}, "status": {"phase": "Failed", "containerStatuses": [{
            "name": "main", "state": {"terminated": {"exitCode": code}}, "image": "", "imageID": "", "ready": false,
            "restartCount": 0,
        }]}}))
    };
    let message = "Container main for pod n/p failed with exit code 42 matching FailJob rule at index 1";
    assert_eq!(policy::judge_failure(&spec, &exited(42)).fails_job.as_deref(), Some(message));
    assert!(policy::judge_failure(&spec, &exited(7)).fails_index);
    let counted = policy::judge_failure(&spec, &exited(1));
    assert!(counted.counts && !counted.fails_index && counted.fails_job.is_none());
    let disrupted =
        pod(json!({"metadata": {"namespace": "n", "name": "p"}, "status": {"phase": "Failed", "conditions": [
            {"type": "DisruptionTarget", "status": "True"},
        ]}}));
    assert!(!policy::judge_failure(&spec, &disrupted).counts);
}

#[test]
fn enough_indexes_are_a_success() {
    let spec = |rules: Value| -> JobSpec {
        serde_json::from_value(json!({"template": {}, "completions": 5, "successPolicy": {"rules": rules}})).unwrap()
    };
    let done = Indexes::parse("0,2-3", 5);
    let count = spec(json!([{"succeededCount": 4}, {"succeededCount": 3}]));
    assert_eq!(policy::success(&count, &done).as_deref(), Some("Matched rules at index 1"));
    assert!(policy::success(&spec(json!([{"succeededIndexes": "0-1"}])), &done).is_none());
    assert!(policy::success(&spec(json!([{"succeededIndexes": "0-1", "succeededCount": 1}])), &done).is_some());
    assert!(policy::success(&spec(json!([{"succeededIndexes": "2-3"}])), &done).is_some());
}

#[test]
fn failures_in_a_row_wait_longer() {
    let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
    let failed = |seconds: i64| pod(json!({"metadata": {"creationTimestamp": at(seconds).to_string()}}));
    let (one, two, three) = (failed(100), failed(101), failed(102));
    let record = Record::default().after(&[], &[&one]);
    assert_eq!(record.remaining(at(104)), Duration::from_secs(6));
    let record = record.after(&[], &[&two]);
    assert_eq!(record.remaining(at(101)), Duration::from_secs(20));
    assert_eq!(record.remaining(at(200)), Duration::ZERO);
    // A success in between starts anew.
    assert_eq!(record.after(&[&two], &[&one, &three]).remaining(at(102)), Duration::from_secs(10));
    assert_eq!(record.after(&[&three], &[]).remaining(at(102)), Duration::ZERO);
    assert_eq!(backoff::remaining(40, at(0), at(0)), Duration::from_secs(600));
}

#[test]
fn conditions_are_added_once() {
    let mut status = JobStatus::default();
    let now = Timestamp::UNIX_EPOCH;
    assert!(!ensure_condition(&mut status, new_condition("Suspended", "False", "JobResumed", "Job resumed", now)));
    assert!(ensure_condition(&mut status, new_condition("Suspended", "True", "JobSuspended", "Job suspended", now)));
    assert!(!ensure_condition(&mut status, new_condition("Suspended", "True", "JobSuspended", "Job suspended", now)));
    assert!(ensure_condition(&mut status, new_condition("Suspended", "False", "JobResumed", "Job resumed", now)));
    assert_eq!(status.conditions.unwrap().len(), 1);
}
