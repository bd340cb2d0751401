//! Pods get nodes. The nodes are objects alone: nothing runs the pods.

use std::collections::BTreeMap;

use http::Request;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_cluster::{BuiltIn, Cluster, Controllers};

use crate::objects::{create, merge, namespaced, until, until_gone};

fn node(name: &str, cpu: &str) -> Value {
    let resources = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

fn pod(name: &str, cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container]}})
}

struct Apis {
    nodes: Api<Node>,
    pods: Api<Pod>,
    events: Api<Event>,
}

impl Apis {
    fn new(client: &kube::Client) -> Self {
        let (pods, events) = (namespaced(client, "default"), namespaced(client, "default"));
        Self { nodes: Api::all(client.clone()), pods, events }
    }

    async fn until_bound(&self, name: &str) -> String {
        until(&self.pods, name, |pod| pod.is_some_and(|pod| node_of(pod).is_some())).await;
        node_of(&self.pods.get(name).await.unwrap()).unwrap()
    }

    async fn until_message(&self, name: &str, text: &str) {
        until(&self.pods, name, |pod| pod.and_then(message).is_some_and(|message| message == text)).await;
    }

    /// Waits for an event about a pod; returns its text.
    async fn until_event(&self, pod: &str, reason: &str) -> Event {
        let fields = format!("involvedObject.name={pod},reason={reason}");
        let waiting = async {
            loop {
                let found = self.events.list(&ListParams::default().fields(&fields)).await.unwrap().items;
                if let Some(event) = found.into_iter().next() {
                    return event;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(crate::objects::LONG, waiting).await.expect("an event")
    }
}

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

/// Why a pod has no node.
fn message(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False")?;
    condition.message.clone()
}

#[tokio::test]
async fn pods_get_nodes_and_events_say_so() {
    let cluster = Cluster::start().await.unwrap();
    let apis = Apis::new(&cluster.client());
    create(&apis.pods, pod("p", "1")).await;
    apis.until_message("p", "no nodes available to schedule pods").await;
    let event = apis.until_event("p", "FailedScheduling").await;
    assert_eq!(event.message.as_deref(), Some("no nodes available to schedule pods"));
    create(&apis.nodes, node("a", "2")).await;
    assert_eq!(apis.until_bound("p").await, "a");
    let event = apis.until_event("p", "Scheduled").await;
    assert_eq!(event.message.as_deref(), Some("Successfully assigned default/p to a"));
    assert_eq!(event.action.as_deref(), Some("Binding"));
    assert_eq!(event.reporting_component.as_deref(), Some("default-scheduler"));
    let bound = apis.pods.get("p").await.unwrap();
    let conditions = bound.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().any(|one| one.type_ == "PodScheduled" && one.status == "True"));
    let audit = Request::get("/readyz?verbose").body(kube::client::Body::empty()).unwrap();
    let answer = cluster.client().send(audit).await.unwrap().into_body().collect_bytes().await.unwrap();
    let answer = String::from_utf8(answer.to_vec()).unwrap();
    assert!(answer.contains("[+]kube-scheduler ok"), "{answer}");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn waiting_pods_are_tried_again_when_a_node_has_room() {
    let cluster = Cluster::start().await.unwrap();
    let apis = Apis::new(&cluster.client());
    create(&apis.nodes, node("a", "2")).await;
    create(&apis.pods, pod("first", "2")).await;
    apis.until_bound("first").await;
    create(&apis.pods, pod("second", "1")).await;
    let waits = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
                 available: 1 No preemption victims found for incoming pod.";
    apis.until_message("second", waits).await;
    apis.pods.delete("first", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(apis.until_bound("second").await, "a");
    create(&apis.pods, pod("third", "2")).await;
    apis.until_message("third", waits).await;
    let more = Patch::Merge(json!({"status": {"allocatable": {"cpu": "4"}}}));
    apis.nodes.patch_status("a", &PatchParams::default(), &more).await.unwrap();
    assert_eq!(apis.until_bound("third").await, "a");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn gated_pods_and_those_of_other_schedulers_wait() {
    let cluster = Cluster::start().await.unwrap();
    let apis = Apis::new(&cluster.client());
    create(&apis.nodes, node("a", "2")).await;
    let mut gated = pod("gated", "1");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    create(&apis.pods, gated).await;
    let mut foreign = pod("foreign", "1");
    foreign["spec"]["schedulerName"] = json!("nobody");
    create(&apis.pods, foreign).await;
    create(&apis.pods, pod("plain", "1")).await;
    apis.until_bound("plain").await;
    assert_eq!(node_of(&apis.pods.get("gated").await.unwrap()), None);
    merge(&apis.pods, "gated", json!({"spec": {"schedulingGates": null}})).await;
    apis.until_bound("gated").await;
    let foreign = apis.pods.get("foreign").await.unwrap();
    assert_eq!((node_of(&foreign), foreign.status.unwrap().conditions), (None, None));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn each_profile_takes_the_pods_that_name_it() {
    let builder = Cluster::builder().scheduler_profile("batch").scheduler_profile("night");
    let cluster = builder.start().await.unwrap();
    let apis = Apis::new(&cluster.client());
    create(&apis.nodes, node("a", "8")).await;
    for name in ["default-scheduler", "batch", "night", "nobody"] {
        let mut pod = pod(name, "1");
        pod["spec"]["schedulerName"] = json!(name);
        create(&apis.pods, pod).await;
    }
    for name in ["default-scheduler", "batch", "night"] {
        assert_eq!(apis.until_bound(name).await, "a");
        let event = apis.until_event(name, "Scheduled").await;
        assert_eq!(event.reporting_component.as_deref(), Some(name));
    }
    assert_eq!(node_of(&apis.pods.get("nobody").await.unwrap()), None);
    let metrics = Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = cluster.client().request_text(metrics).await.unwrap();
    for name in ["default-scheduler", "batch", "night"] {
        let attempts = format!("profile=\"{name}\",result=\"scheduled\"");
        assert!(metrics.lines().any(|line| line.contains(&attempts) && line.ends_with(" 1")), "{name}: {metrics}");
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn pods_wait_for_their_resource_claims() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let apis = Apis::new(&client);
    let (claims, classes): (Api<ResourceClaim>, Api<DeviceClass>) =
        (namespaced(&client, "default"), Api::all(client.clone()));
    create(&apis.nodes, node("a", "2")).await;
    let mut waits = pod("waits", "1");
    waits["spec"]["resourceClaims"] = json!([{"name": "d", "resourceClaimName": "c"}]);
    create(&apis.pods, waits).await;
    create(&apis.pods, pod("plain", "1")).await;
    apis.until_bound("plain").await;
    // As with upstream's scheduler, a pod whose claim is missing is not tried, and nothing is said about it.
    let status = apis.pods.get("waits").await.unwrap().status.unwrap();
    assert_eq!(status.conditions, None);
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpus"}});
    create(&claims, json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})).await;
    let useless = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    let missing =
        "0/1 nodes are available: request gpu: device class gpus does not exist. no new claims to deallocate,";
    apis.until_message("waits", &format!("{missing} {useless}")).await;
    apis.until_event("waits", "FailedScheduling").await;
    create(&classes, json!({"metadata": {"name": "gpus"}, "spec": {}})).await;
    let unallocated = "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable,";
    apis.until_message("waits", &format!("{unallocated} {useless}")).await;
    let allocated = json!({"status": {"allocation": {"devices": {"results": [
        {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}]}}}});
    claims.patch_status("c", &PatchParams::default(), &Patch::Merge(allocated)).await.unwrap();
    assert_eq!(apis.until_bound("waits").await, "a");
    let reserved = claims.get("c").await.unwrap().status.unwrap().reserved_for.unwrap();
    let uid = apis.pods.get("waits").await.unwrap().metadata.uid.unwrap();
    assert_eq!((reserved[0].resource.as_str(), &reserved[0].uid), ("pods", &uid));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn important_pods_take_the_place_of_others() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let apis = Apis::new(&client);
    let classes: Api<PriorityClass> = Api::all(client.clone());
    for (name, value) in [("low", 10), ("high", 1000)] {
        create(&classes, json!({"metadata": {"name": name}, "value": value})).await;
    }
    create(&apis.nodes, node("a", "2")).await;
    let with_class = |name: &str, class: &str, priority: i32| {
        let mut pod = pod(name, "1500m");
        pod["spec"]["priorityClassName"] = json!(class);
        pod["spec"]["priority"] = json!(priority);
        pod
    };
    create(&apis.pods, with_class("low", "low", 10)).await;
    apis.until_bound("low").await;
    let high = create(&apis.pods, with_class("high", "high", 1000)).await;
    until(&apis.pods, "high", |pod| {
        let nominated = pod.and_then(|pod| pod.status.as_ref()?.nominated_node_name.clone());
        nominated.as_deref() == Some("a")
    })
    .await;
    apis.until_message("high", "0/1 nodes are available: 1 Insufficient cpu.").await;
    until(&apis.pods, "low", |pod| pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())).await;
    if let Some(low) = apis.pods.get_opt("low").await.unwrap() {
        let conditions = low.status.unwrap().conditions.unwrap();
        let target = conditions.iter().find(|one| one.type_ == "DisruptionTarget").unwrap();
        assert_eq!(target.reason.as_deref(), Some("PreemptionByScheduler"));
        let expected = "default-scheduler: preempting to accommodate a higher priority pod";
        assert_eq!(target.message.as_deref(), Some(expected));
    }
    let event = apis.until_event("low", "Preempted").await;
    let expected = format!("Preempted by pod {} on node a", high.uid().unwrap());
    assert_eq!(event.message, Some(expected));
    // What a kubelet does when the containers have ended.
    apis.pods.delete("low", &DeleteParams::default().grace_period(0)).await.ok();
    until_gone(&apis.pods, "low").await;
    assert_eq!(apis.until_bound("high").await, "a");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn nodes_are_never_given_more_than_they_have() {
    let cluster = Cluster::start().await.unwrap();
    let apis = Apis::new(&cluster.client());
    for number in 0..10 {
        create(&apis.nodes, node(&format!("n{number}"), "2")).await;
    }
    // One more than fits.
    let pods = (0..21).map(|number| {
        let mut pod = pod(&format!("p{number}"), "1");
        pod["metadata"]["labels"] = json!({"app": "many"});
        pod
    });
    futures::future::join_all(pods.map(|pod| create(&apis.pods, pod))).await;
    let placed = crate::objects::until_pods(&apis.pods, "app=many", |pods| {
        pods.iter().filter(|pod| node_of(pod).is_some()).count() == 20 && pods.iter().any(|pod| message(pod).is_some())
    })
    .await;
    let mut by_node: BTreeMap<String, usize> = BTreeMap::new();
    for node in placed.iter().filter_map(node_of) {
        *by_node.entry(node).or_default() += 1;
    }
    assert!(by_node.len() == 10 && by_node.values().all(|pods| *pods == 2), "{by_node:?}");
    // The same cluster, started again, knows what is taken.
    let cluster = cluster.restart().await.unwrap();
    let apis = Apis::new(&cluster.client());
    create(&apis.nodes, node("new", "1")).await;
    crate::objects::until_pods(&apis.pods, "app=many", |pods| pods.iter().all(|pod| node_of(pod).is_some())).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn claims_that_wait_are_given_a_node_first() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let apis = Apis::new(&client);
    let classes: Api<StorageClass> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = namespaced(&client, "default");
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let class = json!({
        "metadata": {"name": "slow"}, "provisioner": "example.com/slow", "volumeBindingMode": "WaitForFirstConsumer",
    });
    create(&classes, class).await;
    create(&apis.nodes, node("a", "2")).await;
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "slow", "resources": {"requests": {"storage": "1Gi"}},
    });
    let claim = create(&claims, json!({"metadata": {"name": "c"}, "spec": spec})).await;
    let mut wanted = pod("p", "1");
    wanted["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    create(&apis.pods, wanted).await;
    until(&claims, "c", |claim| {
        let node = claim.and_then(|claim| claim.annotations().get("volume.kubernetes.io/selected-node").cloned());
        node.as_deref() == Some("a")
    })
    .await;
    assert_eq!(node_of(&apis.pods.get("p").await.unwrap()), None);
    // What the provisioner and the volume controller do.
    let reference = json!({"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": claim.uid()});
    let spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
        "hostPath": {"path": "/tmp/v"}, "claimRef": reference,
    });
    create(&volumes, json!({"metadata": {"name": "v"}, "spec": spec})).await;
    let bound = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "v"},
    });
    claims.patch("c", &PatchParams::default(), &Patch::Merge(bound)).await.ok();
    assert_eq!(apis.until_bound("p").await, "a");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn pods_are_left_alone_without_a_scheduler() {
    let controllers = Controllers::all().without(BuiltIn::Scheduler);
    let cluster = Cluster::builder().controllers(controllers).start().await.unwrap();
    let apis = Apis::new(&cluster.client());
    create(&apis.nodes, node("a", "2")).await;
    create(&apis.pods, pod("p", "1")).await;
    // A controller that works shows that there was time.
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = namespaced(&cluster.client(), "default");
    crate::objects::until_there(&accounts, "default").await;
    let pod = apis.pods.get("p").await.unwrap();
    assert_eq!((node_of(&pod), pod.status.unwrap().conditions), (None, None));
    cluster.stop().await.unwrap();
}
