//! What is collected.

use serde_json::json;

use super::*;

#[test]
fn evicted_and_old_pods_are_surplus_first() {
    let pod = |name: &str, minute: u32, reason: Option<&str>| {
        let pod = json!({
            "metadata": {"name": name, "creationTimestamp": format!("2020-01-01T00:{minute:02}:00Z")},
            "status": {"phase": "Failed", "reason": reason},
        });
        Arc::new(serde_json::from_value::<Pod>(pod).expect("a pod"))
    };
    let all = || vec![pod("new", 9, None), pod("b", 1, None), pod("a", 1, None), pod("evicted", 5, Some("Evicted"))];
    let names = |kept| {
        let found = surplus(all(), kept).into_iter();
        found.map(|pod| pod.metadata.name.clone().unwrap_or_default()).collect::<Vec<_>>()
    };
    assert!(names(4).is_empty());
    assert_eq!(names(2), ["evicted", "a"]);
    assert_eq!(names(0), ["evicted", "a", "b", "new"]);
}

#[test]
fn only_nodes_that_are_not_ready_are_out_of_service() {
    let check = |ready: &str, key: &str, expected: bool| {
        let node = json!({
            "spec": {"taints": [{"key": key, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        assert_eq!(is_out_of_service(&serde_json::from_value(node).expect("a node")), expected);
    };
    check("Unknown", OUT_OF_SERVICE, true);
    check("True", OUT_OF_SERVICE, false);
    check("False", "other", false);
}
