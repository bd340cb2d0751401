//! Nodes that fall silent, their taints, and pods that no node will finish. The clock is paused: it jumps to the next timer
//! whenever nothing else is left to do.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_cluster::Cluster;

use crate::objects::{create, merge, namespaced, until_within};

/// Longer than any grace period.
const HOUR: Duration = Duration::from_secs(3600);

async fn ready_node(nodes: &Api<Node>, name: &str) {
    let labels = json!({"kubernetes.io/os": "linux"});
    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": "2020-01-01T00:00:00Z"});
    create(nodes, json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": [ready]}})).await;
}

fn pod(name: &str, node: Option<&str>, tolerations: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "nodeName": node, "containers": [{"name": "c", "image": "i"}], "tolerations": tolerations,
    }})
}

async fn make_ready(pods: &Api<Pod>, name: &str) {
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
}

/// The taints of a node, as key and effect.
fn taints(node: &Node) -> Vec<String> {
    let all = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    all.map(|taint| format!("{}:{}", taint.key.trim_start_matches("node.kubernetes.io/"), taint.effect)).collect()
}

fn status<'a>(node: &'a Node, type_: &str) -> Option<&'a str> {
    let conditions = node.status.as_ref()?.conditions.iter().flatten();
    conditions.into_iter().find(|condition| condition.type_ == type_).map(|condition| &*condition.status)
}

fn pod_condition<'a>(pod: &'a Pod, type_: &str) -> Option<(&'a str, Option<&'a str>)> {
    let condition = pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)?;
    Some((&condition.status, condition.reason.as_deref()))
}

/// Renews a node's lease, as long as it is polled.
async fn stay_alive(leases: &Api<Lease>, name: &str) {
    create(leases, json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}})).await;
    let mut ticks = tokio::time::interval(Duration::from_secs(10));
    for beat in 0.. {
        ticks.tick().await;
        let renewed =
            json!({"spec": {"renewTime": format!("2020-01-01T{:02}:{:02}:00.000000Z", beat / 60, beat % 60)}});
        merge(leases, name, renewed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_tainted_and_its_pods_are_evicted() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), namespaced(&client, "default"));
    let leases: Api<Lease> = namespaced(&client, "kube-node-lease");
    let began = Instant::now();
    ready_node(&nodes, "alive").await;
    ready_node(&nodes, "silent").await;
    let unreachable = "node.kubernetes.io/unreachable";
    let tolerates = |seconds: i64| json!([{"key": unreachable, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    create(&pods, pod("tolerant", Some("silent"), &tolerates(300))).await;
    create(&pods, pod("intolerant", Some("silent"), &tolerates(0))).await;
    make_ready(&pods, "tolerant").await;
    let watching = async {
        until_within(&nodes, "silent", HOUR, |node| {
            node.is_some_and(|node| taints(node) == ["unreachable:NoSchedule", "unreachable:NoExecute"])
        })
        .await;
        let silent = nodes.get("silent").await.unwrap();
        let after = began.elapsed().as_secs();
        assert!((50..60).contains(&after), "{after}");
        assert_eq!(status(&silent, "Ready"), Some("Unknown"));
        assert_eq!(status(&silent, "PIDPressure"), Some("Unknown"));
        assert_eq!(silent.labels()["beta.kubernetes.io/os"], "linux");
        until_within(&pods, "tolerant", HOUR, |pod| {
            pod.is_some_and(|pod| pod_condition(pod, "Ready").is_some_and(|(status, _)| status == "False"))
        })
        .await;
        let evicted = |pod: Option<&Pod>| {
            let due = Some(("True", Some("DeletionByTaintManager")));
            pod.is_some_and(|pod| {
                pod.metadata.deletion_timestamp.is_some() && pod_condition(pod, "DisruptionTarget") == due
            })
        };
        until_within(&pods, "intolerant", HOUR, evicted).await;
        assert!(pods.get("tolerant").await.unwrap().metadata.deletion_timestamp.is_none());
        until_within(&pods, "tolerant", HOUR, evicted).await;
        let after = began.elapsed().as_secs();
        assert!((350..370).contains(&after), "{after}");
        let alive = nodes.get("alive").await.unwrap();
        assert_eq!((status(&alive, "Ready"), taints(&alive)), (Some("True"), Vec::new()));
        // A report takes the taints away.
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2021-01-01T00:00:00Z"}]}});
        nodes.patch_status("silent", &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
        until_within(&nodes, "silent", HOUR, |node| node.is_some_and(|node| taints(node).is_empty())).await;
    };
    tokio::select! {
        () = watching => {}
        () = stay_alive(&leases, "alive") => {}
    }
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pods_stay_when_every_node_is_silent() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), namespaced(&client, "default"));
    ready_node(&nodes, "a").await;
    ready_node(&nodes, "b").await;
    create(&pods, pod("p", Some("a"), &json!([]))).await;
    for name in ["a", "b"] {
        until_within(&nodes, name, HOUR, |node| {
            node.is_some_and(|node| {
                taints(node) == ["unreachable:NoSchedule"] && status(node, "Ready") == Some("Unknown")
            })
        })
        .await;
    }
    assert!(pods.get("p").await.unwrap().metadata.deletion_timestamp.is_none());
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn namespaces_with_pods_of_missing_nodes_can_go() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (namespaces, pods): (Api<Namespace>, Api<Pod>) = (Api::all(client.clone()), namespaced(&client, "shop"));
    create(&namespaces, json!({"metadata": {"name": "shop"}})).await;
    let began = Instant::now();
    create(&pods, pod("p", Some("missing"), &json!([]))).await;
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    until_within(&namespaces, "shop", HOUR, |namespace| namespace.is_none()).await;
    let after = began.elapsed().as_secs();
    assert!((40..120).contains(&after), "{after}");
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_node_fail_after_a_quarantine() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), namespaced(&client, "default"));
    ready_node(&nodes, "a").await;
    for (name, node) in [("on-a", Some("a")), ("nowhere", None)] {
        let mut kept = pod(name, node, &json!([]));
        kept["metadata"]["finalizers"] = json!(["example.com/keep"]);
        create(&pods, kept).await;
    }
    let began = Instant::now();
    nodes.delete("a", &DeleteParams::default()).await.unwrap();
    pods.delete("nowhere", &DeleteParams::default()).await.unwrap();
    let failed =
        |pod: Option<&Pod>| pod.is_some_and(|pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Failed"));
    until_within(&pods, "nowhere", HOUR, failed).await;
    assert!((20..30).contains(&began.elapsed().as_secs()));
    until_within(&pods, "on-a", HOUR, |pod| failed(pod) && pod.unwrap().metadata.deletion_timestamp.is_some()).await;
    assert!((40..50).contains(&began.elapsed().as_secs()));
    let collected = pods.get("on-a").await.unwrap();
    assert_eq!(pod_condition(&collected, "DisruptionTarget"), Some(("True", Some("DeletionByPodGC"))));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn conditions_and_cordoning_become_taints() {
    let cluster = Cluster::start().await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client());
    ready_node(&nodes, "a").await;
    merge(&nodes, "a", json!({"spec": {"unschedulable": true}})).await;
    let has = |expected: &'static [&'static str]| {
        move |node: Option<&Node>| {
            let found: std::collections::BTreeSet<String> = node.into_iter().flat_map(taints).collect();
            found.iter().map(String::as_str).eq(expected.iter().copied())
        }
    };
    until_within(&nodes, "a", crate::objects::LONG, has(&["unschedulable:NoSchedule"])).await;
    let pressure = json!({"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}});
    nodes.patch_status("a", &PatchParams::default(), &Patch::Strategic(pressure)).await.unwrap();
    let both = &["disk-pressure:NoSchedule", "unschedulable:NoSchedule"];
    until_within(&nodes, "a", crate::objects::LONG, has(both)).await;
    merge(&nodes, "a", json!({"spec": {"unschedulable": false}})).await;
    until_within(&nodes, "a", crate::objects::LONG, has(&["disk-pressure:NoSchedule"])).await;
    cluster.stop().await.unwrap();
}
