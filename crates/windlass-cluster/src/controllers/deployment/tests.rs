//! Pure parts: numbers, annotations, which ReplicaSet is which.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

fn deployment(replicas: i32, rolling: &Value) -> Deployment {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
    serde_json::from_value(json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "u", "annotations": {"change": "why", "deployment.kubernetes.io/revision": "9"}},
        "spec": {
            "replicas": replicas, "strategy": strategy, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }))
    .unwrap()
}

fn set(name: &str, replicas: i32, annotations: &Value) -> ReplicaSet {
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b", "pod-template-hash": "x"}},
                "spec": {"containers": [{"name": "c", "image": name}]},
            },
        },
    }))
    .unwrap()
}

#[test]
fn surge_is_rounded_up_and_unavailable_down() {
    let percent = deployment(10, &json!({"maxSurge": "25%", "maxUnavailable": "25%"}));
    assert_eq!((numbers::max_surge(&percent), numbers::max_unavailable(&percent)), (3, 2));
    let tiny = deployment(1, &json!({"maxSurge": "0%", "maxUnavailable": "1%"}));
    assert_eq!((numbers::max_surge(&tiny), numbers::max_unavailable(&tiny)), (0, 1));
    let none = deployment(0, &json!({"maxSurge": 1, "maxUnavailable": 1}));
    assert_eq!(numbers::max_unavailable(&none), 0);
}

#[test]
fn the_newest_grows_as_far_as_the_surge_allows() {
    let percent = deployment(10, &json!({"maxSurge": "25%", "maxUnavailable": "25%"}));
    for (total, new, expected) in [(0, 0, 10), (10, 0, 3), (13, 3, 3), (11, 3, 5), (12, 9, 10)] {
        assert_eq!(numbers::new_size(&percent, total, new), expected, "{total} {new}");
    }
}

#[test]
fn scaling_in_the_middle_of_a_rollout_keeps_the_shares() {
    let scaled = deployment(20, &json!({"maxSurge": 3, "maxUnavailable": 2}));
    let noted = json!({"deployment.kubernetes.io/max-replicas": "13"});
    let (old, new) = (set("old", 8, &noted), set("new", 5, &noted));
    let to_add = 23 - 13;
    let first = numbers::proportion(&old, &scaled, to_add, 0);
    let second = numbers::proportion(&new, &scaled, to_add, first);
    assert_eq!((first, second), (6, 4));
    let gone = deployment(0, &json!({"maxSurge": 3, "maxUnavailable": 2}));
    assert_eq!(numbers::proportion(&old, &gone, -13, 0), -8);
}

#[test]
fn the_replica_set_with_the_template_is_the_new_one() {
    let deployment = deployment(1, &json!({}));
    let split = ReplicaSetsOf::split(&deployment, vec![set("x", 1, &json!({})), set("i", 1, &json!({}))]);
    assert_eq!(split.new.unwrap().metadata.name.unwrap(), "i");
    assert_eq!(split.old.len(), 1);
}

#[test]
fn revisions_and_annotations_follow_the_deployment() {
    let deployment = deployment(3, &json!({"maxSurge": 1, "maxUnavailable": 0}));
    let mut new = set("i", 1, &json!({}));
    assert!(annotations::note_revision(&mut new, &deployment, 2, false));
    let expected = json!({
        "change": "why", "deployment.kubernetes.io/revision": "2", "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
    });
    assert_eq!(json!(new.metadata.annotations), expected);
    assert!(!annotations::note_revision(&mut new, &deployment, 2, true));
    // Rolled back to twice.
    assert!(annotations::note_revision(&mut new, &deployment, 4, true));
    assert!(annotations::note_revision(&mut new, &deployment, 6, true));
    assert_eq!(new.metadata.annotations.unwrap()["deployment.kubernetes.io/revision-history"], "2,4");
}

#[test]
fn a_hash_is_a_word_without_vowels() {
    let template = &spec(&deployment(1, &json!({}))).template.clone();
    let hash = revision::template_hash(template, 0);
    assert_eq!(hash, revision::template_hash(template, 0));
    assert_ne!(hash, revision::template_hash(template, 1));
    assert!(hash.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{hash}");
}
