//! Roles that are inferred from what a user did are enough for it, and for nothing else.

use serde_json::Value;

use super::Kubectl;
use crate::process::eventually;
use crate::windlass::Cluster;

/// What jane does; `#` stands for the number of the round.
const DEEDS: [&str; 12] = [
    "create configmap made-# --from-literal=a=b",
    "get configmaps",
    "get configmap made-# -o yaml",
    "label configmap made-# round=#",
    "apply --server-side -f APPLIED",
    "create deployment web-# --image=nginx --replicas=0",
    "scale deployment web-# --replicas=1",
    "-n kube-system get pods -l none=such",
    "get nodes",
    "create namespace team-#",
    "delete configmap made-#",
    "get --raw /metrics",
];

/// What she never did.
const OTHER: [&str; 7] = [
    "get secrets",
    "delete deployment web-1",
    "-n kube-system get configmaps",
    "delete namespace team-1",
    "create serviceaccount robot",
    "get pods",
    "get --raw /debug/api_priority_and_fairness/dump_queues",
];

fn deeds(kubectl: &Kubectl, cluster: &Cluster, round: usize) {
    let applied = cluster.path(&format!("applied-{round}.yaml"));
    let map = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: applied-{round}\ndata:\n  a: b\n");
    std::fs::write(&applied, map).unwrap();
    for deed in DEEDS {
        let deed = deed.replace('#', &round.to_string()).replace("APPLIED", applied.to_str().unwrap());
        kubectl.run(&format!("--as jane {deed}"));
    }
}

#[test]
fn inferred_roles_allow_what_was_done_and_no_more() {
    let files = tempfile::tempdir().unwrap();
    let (log, policy) = (files.path().join("audit.log"), files.path().join("policy.yaml"));
    let rules = "- {level: None, nonResourceURLs: ['/healthz*', '/readyz*']}\n- {level: Metadata}";
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n{rules}\n");
    std::fs::write(&policy, text).unwrap();
    let cluster = Cluster::audited(&log, &policy);
    let Some(kubectl) = Kubectl::of(&cluster) else { return };

    kubectl.run("create clusterrolebinding everything --clusterrole=cluster-admin --user=jane");
    deeds(&kubectl, &cluster, 1);
    let sandbox = crate::windlass::Sandbox::new();
    let infer = format!("rbac infer --user jane --audit-log {}", log.display());
    // The last event is written while kubectl already goes on.
    let roles = eventually("the last request is in the log", || {
        let roles = sandbox.windlass(&infer).stdout;
        roles.contains("/metrics").then_some(roles)
    });
    kubectl.run("delete clusterrolebinding everything");
    assert!(kubectl.fails("--as jane get configmaps").contains("Forbidden"));

    kubectl.feed("apply -f -", &roles);
    deeds(&kubectl, &cluster, 2);
    for deed in OTHER {
        let said = kubectl.fails(&format!("--as jane {deed}"));
        assert!(said.contains("Forbidden") || said.contains("forbidden"), "{deed}: {said}");
    }
    // What was refused does not count: the roles are the same after all this.
    let documents = |roles: &str| -> Vec<Value> {
        roles.split("---\n").filter(|text| !text.is_empty()).map(|text| serde_saphyr::from_str(text).unwrap()).collect()
    };
    assert_eq!(documents(&sandbox.succeeds(&infer)), documents(&roles));
}
