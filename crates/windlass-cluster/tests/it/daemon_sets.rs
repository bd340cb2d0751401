//! DaemonSets keep a pod on every node. There are Node objects here but no kubelets and no scheduler: the tests say
//! what those would.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_cluster::Cluster;

use crate::objects::{self, LONG, create, end_pod, make_ready, merge, namespaced, until};

fn set(spec: &Value) -> Value {
    let mut set = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {
            "containers": [{"name": "c", "image": "img:1"}], "nodeSelector": {"pool": "p"},
            "terminationGracePeriodSeconds": 0,
        }},
    }});
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    set
}

/// A cluster with these nodes.
async fn with_nodes(names: &[&str]) -> (Cluster, Api<Node>, Api<DaemonSet>, Api<Pod>) {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let nodes: Api<Node> = Api::all(client.clone());
    for name in names {
        create(&nodes, json!({"metadata": {"name": name, "labels": {"pool": "p"}}})).await;
        // The taint of a node that has not yet been heard of.
        merge(&nodes, name, json!({"spec": {"taints": []}})).await;
    }
    (cluster, nodes, namespaced(&client, "default"), namespaced(&client, "default"))
}

async fn until_pods(pods: &Api<Pod>, wanted: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
    objects::until_pods(pods, "app=a", wanted).await
}

/// The node that a pod is meant for.
fn node_of(pod: &Pod) -> String {
    let affinity = pod.spec.as_ref().unwrap().affinity.as_ref().unwrap().node_affinity.as_ref().unwrap();
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref().unwrap().node_selector_terms;
    terms[0].match_fields.as_ref().unwrap()[0].values.as_ref().unwrap()[0].clone()
}

fn image_of(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()
}

async fn until_status(sets: &Api<DaemonSet>, wanted: impl Fn(&DaemonSetStatus) -> bool + Send + Sync) {
    until(sets, "d", |set| set.and_then(|set| set.status.as_ref()).is_some_and(&wanted)).await;
}

fn image(number: i32) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": format!("img:{number}")}]}}}})
}

#[tokio::test]
async fn labels_and_taints_of_nodes_move_pods() {
    let (cluster, nodes, sets, pods) = with_nodes(&["a", "b"]).await;
    merge(&nodes, "b", json!({"metadata": {"labels": {"pool": null}}})).await;
    create(&sets, set(&json!({}))).await;
    let made = until_pods(&pods, |pods| pods.len() == 1).await;
    assert_eq!(node_of(&made[0]), "a");
    let labels = made[0].labels();
    assert_eq!(labels["pod-template-generation"], "1");
    assert!(labels.contains_key("controller-revision-hash"));
    until_status(&sets, |status| {
        (status.desired_number_scheduled, status.current_number_scheduled, status.number_ready) == (1, 1, 0)
            && (status.number_available, status.number_unavailable) == (None, Some(1))
            && (status.updated_number_scheduled, status.observed_generation) == (Some(1), Some(1))
    })
    .await;
    make_ready(&pods, "app=a").await;
    until_status(&sets, |status| (status.number_available, status.number_unavailable) == (Some(1), None)).await;
    merge(&nodes, "b", json!({"metadata": {"labels": {"pool": "p"}}})).await;
    until_pods(&pods, |pods| pods.len() == 2).await;
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "k", "effect": effect}]}});
    merge(&nodes, "b", taint("NoExecute")).await;
    until_pods(&pods, |pods| pods.len() == 1).await;
    until_status(&sets, |status| status.desired_number_scheduled == 1 && status.number_misscheduled == 0).await;
    merge(&nodes, "a", json!({"metadata": {"labels": {"pool": "q"}}})).await;
    until_pods(&pods, <[Pod]>::is_empty).await;
    until_status(&sets, |status| status.desired_number_scheduled == 0 && status.updated_number_scheduled.is_none())
        .await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn an_update_replaces_one_pod_after_the_other() {
    let (cluster, _, sets, pods) = with_nodes(&["a", "b", "c"]).await;
    create(&sets, set(&json!({"revisionHistoryLimit": 1}))).await;
    until_pods(&pods, |pods| pods.len() == 3).await;
    make_ready(&pods, "app=a").await;
    until_status(&sets, |status| status.number_available == Some(3)).await;
    for (number, revision) in [(2, 2), (1, 3), (3, 4)] {
        let wanted = format!("img:{number}");
        merge(&sets, "d", image(number)).await;
        let rolled = async {
            loop {
                let all = pods.list(&ListParams::default().labels("app=a")).await.unwrap().items;
                let unready = all.iter().filter(|pod| !objects::is_ready(pod)).count();
                assert!(all.len() <= 3 && all.len() - unready >= 2, "at most one is missing: {}", all.len() - unready);
                if all.len() == 3 && all.iter().all(|pod| image_of(pod) == wanted) {
                    return;
                }
                make_ready(&pods, "app=a").await;
            }
        };
        tokio::time::timeout(LONG, rolled).await.expect("the update ends");
        make_ready(&pods, "app=a").await;
        until_status(&sets, |status| (status.updated_number_scheduled, status.number_available) == (Some(3), Some(3)))
            .await;
        let revisions: Api<ControllerRevision> = namespaced(&cluster.client(), "default");
        let numbered = async {
            loop {
                let all = revisions.list(&ListParams::default()).await.unwrap().items;
                if all.len() == 2 && all.iter().any(|found| found.revision == revision) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, numbered).await.expect("two revisions are kept");
    }
    sets.delete("d", &DeleteParams::default()).await.unwrap();
    until_pods(&pods, <[Pod]>::is_empty).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_surge_makes_the_new_pod_first() {
    let (cluster, _, sets, pods) = with_nodes(&["a"]).await;
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    create(&sets, set(&json!({"updateStrategy": rolling}))).await;
    until_pods(&pods, |pods| pods.len() == 1).await;
    make_ready(&pods, "app=a").await;
    merge(&sets, "d", image(2)).await;
    let both = until_pods(&pods, |pods| pods.len() == 2).await;
    assert!(both.iter().any(|pod| image_of(pod) == "img:1" && objects::is_ready(pod)));
    make_ready(&pods, "app=a").await;
    let left = until_pods(&pods, |pods| pods.len() == 1).await;
    assert_eq!(image_of(&left[0]), "img:2");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn failed_daemon_pods_are_replaced_and_reported() {
    let (cluster, _, sets, pods) = with_nodes(&["a"]).await;
    create(&sets, set(&json!({"updateStrategy": {"type": "OnDelete"}}))).await;
    let made = until_pods(&pods, |pods| pods.len() == 1).await;
    merge(&sets, "d", image(2)).await;
    until_status(&sets, |status| status.observed_generation == Some(2) && status.updated_number_scheduled.is_none())
        .await;
    end_pod(&pods, &made[0], "Failed").await;
    let next = until_pods(&pods, |pods| pods.len() == 1 && pods[0].uid() != made[0].uid()).await;
    assert_eq!(image_of(&next[0]), "img:2");
    let events: Api<Event> = namespaced(&cluster.client(), "default");
    let told = async {
        loop {
            let fields = "involvedObject.name=d,reason=FailedDaemonPod";
            if let Some(event) = events.list(&ListParams::default().fields(fields)).await.unwrap().items.pop() {
                return event.message.unwrap();
            }
            tokio::task::yield_now().await;
        }
    };
    let told = tokio::time::timeout(LONG, told).await.expect("an event");
    let name = made[0].name_any();
    assert_eq!(told, format!("Found failed daemon pod default/{name} on node a, will try to kill it"));
    cluster.stop().await.unwrap();
}
