//! Which pods must go, and when.

use serde_json::{Value, json};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

#[test]
fn tolerations_cover_taints() {
    let check = |toleration: Value, expected: bool| {
        let taint = Taint { key: "k".into(), value: Some("v".into()), effect: NO_EXECUTE.into(), time_added: None };
        let parsed: Toleration = serde_json::from_value(toleration.clone()).expect("a toleration");
        assert_eq!(tolerates(&parsed, &taint), expected, "{toleration}");
    };
    check(json!({"operator": "Exists"}), true);
    check(json!({"key": "k", "operator": "Exists"}), true);
    check(json!({"key": "other", "operator": "Exists"}), false);
    check(json!({"key": "k", "value": "v"}), true);
    check(json!({"key": "k", "operator": "Equal", "value": "w"}), false);
    check(json!({"key": "k"}), false);
    check(json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), false);
    check(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), true);
    check(json!({}), false);
}

#[test]
fn the_shortest_toleration_decides() {
    let check = |taints: &[&str], tolerations: Value, scheduled: Option<i64>, expected: Option<i64>| {
        let taint = |key: &&str| Taint { key: (*key).into(), effect: NO_EXECUTE.into(), ..Taint::default() };
        let taints: Vec<Taint> = taints.iter().map(taint).collect();
        let parsed: Vec<Toleration> = serde_json::from_value(tolerations.clone()).expect("tolerations");
        let found = eviction(&taints.iter().collect::<Vec<_>>(), &parsed, scheduled.map(at), at(100));
        assert_eq!(found, expected.map(at), "{tolerations}");
    };
    let exists =
        |key: &str, seconds: Option<i64>| json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds});
    check(&[], json!([]), Some(110), None);
    check(&["a"], json!([]), None, Some(100));
    check(&["a"], json!([exists("a", None)]), Some(110), None);
    check(&["a"], json!([exists("a", Some(30))]), None, Some(130));
    check(&["a"], json!([exists("a", Some(30))]), Some(110), Some(110));
    check(&["a"], json!([exists("a", Some(0))]), Some(110), Some(100));
    check(&["a", "b"], json!([exists("a", Some(30)), exists("b", Some(7))]), None, Some(107));
    check(&["a", "b"], json!([exists("a", Some(30)), exists("b", None)]), None, Some(130));
    check(&["a", "b"], json!([exists("a", Some(30))]), Some(110), Some(100));
}
