//! Resource claims.

use windlass::json;
use windlass::serde_json::{Value, from_value};
use windlass_scheduler::{PodInfo, Snapshot};

use crate::build::{bound, cluster, failure, feasible, merge, node, pod};

fn claim(cluster: &mut Snapshot, over: Value) {
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "class"}});
    let mut claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "c"}, "spec": {"devices": {"requests": [request]}},
    });
    merge(&mut claim, over);
    cluster.devices.set_claim(&from_value(claim).unwrap());
}

fn using() -> PodInfo {
    pod("p", json!({"spec": {"resourceClaims": [{"name": "d", "resourceClaimName": "c"}]}}))
}

/// Two nodes with a class of devices.
fn two_nodes() -> Snapshot {
    let mut cluster = cluster([node("a", json!({})), node("b", json!({}))]);
    cluster.devices.set_class("class");
    cluster
}

fn allocated(on: &str, reserved_for: &[String]) -> Value {
    let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [on]});
    let reserved: Vec<Value> = reserved_for.iter().map(|uid| json!({"resource": "pods", "uid": uid})).collect();
    let terms = json!([{"matchExpressions": [expression]}]);
    json!({"status": {"allocation": {"nodeSelector": {"nodeSelectorTerms": terms}}, "reservedFor": reserved}})
}

#[test]
fn pods_whose_claims_cannot_be_used_wait() {
    let useless = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    let many: Vec<String> = (0..256).map(|number| number.to_string()).collect();
    let alternative = json!({"name": "any", "firstAvailable": [{"name": "big", "deviceClassName": "none"}]});
    let cases = [
        (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), "resourceclaim \"c\" is being deleted"),
        (
            json!({"spec": {"devices": {"requests": [alternative]}}}),
            "request any/big: device class none does not exist",
        ),
        (allocated("a", &many), "resourceclaim in use"),
    ];
    for (over, expected) in cases {
        let mut cluster = two_nodes();
        claim(&mut cluster, over);
        let message = failure(&mut cluster, &using()).message;
        assert_eq!(message, format!("0/2 nodes are available: {expected}. no new claims to deallocate, {useless}"));
    }
    let missing = failure(&mut two_nodes(), &using()).message;
    assert!(missing.starts_with("0/2 nodes are available: could not find ResourceClaim \"ns/c\". "), "{missing}");
    let mut cluster = two_nodes();
    claim(&mut cluster, json!({}));
    let message = failure(&mut cluster, &using()).message;
    let expected = format!("0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, {useless}");
    assert_eq!(message, expected);
}

#[test]
fn allocated_claims_tie_pods_to_nodes() {
    let mut cluster = two_nodes();
    claim(&mut cluster, allocated("b", &["p".to_owned()]));
    assert_eq!(feasible(&mut cluster, &using()), ["b"]);
    assert_eq!(bound(&mut cluster, &using()), "b");
    claim(&mut cluster, allocated("b", &[]));
    assert_eq!(bound(&mut cluster, &using()), "b", "the claim is reserved when the pod is bound");
    cluster.remove_node("b");
    let message = failure(&mut cluster, &using()).message;
    assert!(message.starts_with("0/1 nodes are available: 1 resourceclaim not available on the node. "), "{message}");
    claim(&mut cluster, json!({"status": {"allocation": {}}}));
    assert_eq!(bound(&mut cluster, &using()), "a");
}

#[test]
fn generated_claims_belong_to_their_pod() {
    let mut cluster = two_nodes();
    let using = |statuses: Value| {
        let claims = json!([{"name": "d", "resourceClaimTemplateName": "t"}]);
        pod("p", json!({"spec": {"resourceClaims": claims}, "status": {"resourceClaimStatuses": statuses}}))
    };
    let message = failure(&mut cluster, &using(json!([]))).message;
    assert!(message.contains("pod \"ns/p\": ResourceClaim not created yet. "), "{message}");
    assert_eq!(feasible(&mut cluster, &using(json!([{"name": "d"}]))), ["a", "b"], "the pod needs none");
    let generated = using(json!([{"name": "d", "resourceClaimName": "c"}]));
    claim(&mut cluster, allocated("b", &[]));
    let message = failure(&mut cluster, &generated).message;
    assert!(message.contains("ResourceClaim ns/c was not created for pod ns/p (pod is not owner). "), "{message}");
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true});
    let mut owned = allocated("b", &[]);
    merge(&mut owned, json!({"metadata": {"ownerReferences": [owner]}}));
    claim(&mut cluster, owned);
    assert_eq!(feasible(&mut cluster, &generated), ["b"]);
}
