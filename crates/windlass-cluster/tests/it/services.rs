//! Where a service's traffic goes, and how many of its pods may be evicted.

use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use windlass_cluster::Cluster;

use crate::objects::{LONG, create, namespaced, until, until_gone};

async fn until_slices(slices: &Api<EndpointSlice>, wanted: impl Fn(&[EndpointSlice]) -> bool) -> Vec<EndpointSlice> {
    let waiting = async {
        loop {
            let found = slices.list(&ListParams::default().labels("kubernetes.io/service-name=s")).await.unwrap().items;
            if wanted(&found) {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect("the slices become as wanted")
}

fn endpoints(slices: &[EndpointSlice]) -> Vec<&Endpoint> {
    slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).collect()
}

async fn run(pods: &Api<Pod>, name: &str, ip: &str, ready: bool) {
    let pod = json!({"metadata": {"name": name, "labels": {"a": "b"}}, "spec": {
        "nodeName": "n", "containers": [{"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 8080}]}],
    }});
    create(pods, pod).await;
    let status = json!({"status": {
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
    }});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test]
async fn slices_and_endpoints_follow_the_pods() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let services: Api<Service> = namespaced(&client, "default");
    let slices: Api<EndpointSlice> = namespaced(&client, "default");
    let (old, pods): (Api<Endpoints>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    let service = json!({"metadata": {"name": "s"}, "spec": {
        "selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}],
    }});
    create(&services, service).await;
    let made = until_slices(&slices, |slices| slices.len() == 1).await;
    assert!(made[0].name_any().starts_with("s-") && endpoints(&made).is_empty());
    run(&pods, "one", "10.1.0.1", true).await;
    run(&pods, "two", "10.1.0.2", false).await;
    // Pods of an unknown node take no part, but Endpoints have them.
    until(&old, "s", |old| {
        let subsets = old.and_then(|old| old.subsets.as_ref());
        subsets.is_some_and(|subsets| subsets[0].addresses.is_some() && subsets[0].not_ready_addresses.is_some())
    })
    .await;
    assert!(endpoints(&until_slices(&slices, |slices| slices.len() == 1).await).is_empty());
    create(&Api::<Node>::all(client.clone()), json!({"metadata": {"name": "n"}})).await;
    let made = until_slices(&slices, |slices| endpoints(slices).len() == 2).await;
    let ready = |ip: &str| {
        let found = endpoints(&made).into_iter().find(|endpoint| endpoint.addresses == [ip]).unwrap();
        found.conditions.as_ref().unwrap().ready
    };
    assert_eq!((ready("10.1.0.1"), ready("10.1.0.2")), (Some(true), Some(false)));
    assert_eq!(made[0].ports.as_ref().unwrap()[0].port, Some(8080));
    pods.delete("one", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_slices(&slices, |slices| endpoints(slices).len() == 1).await;
    services.delete("s", &DeleteParams::default()).await.unwrap();
    until_slices(&slices, <[EndpointSlice]>::is_empty).await;
    until_gone(&old, "s").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn conditions_without_a_time_do_not_hide_services() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (services, pods): (Api<Service>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    let slices: Api<EndpointSlice> = namespaced(&client, "default");
    let condition = json!({"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": null});
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let status = json!({"status": {"conditions": [condition]}});
    create(&services, service).await;
    // The answer cannot be read as a Service.
    let as_sent: Api<kube::api::DynamicObject> =
        Api::namespaced_with(client.clone(), "default", &kube::api::ApiResource::erase::<Service>(&()));
    as_sent.patch_status("s", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let selector = json!({"spec": {"selector": {"a": "b"}}});
    as_sent.patch("s", &PatchParams::default(), &Patch::Merge(selector)).await.unwrap();
    create(&Api::<Node>::all(client.clone()), json!({"metadata": {"name": "n"}})).await;
    run(&pods, "one", "10.1.0.1", true).await;
    until_slices(&slices, |slices| endpoints(slices).len() == 1).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn endpoints_written_by_hand_are_mirrored() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let services: Api<Service> = namespaced(&client, "default");
    let slices: Api<EndpointSlice> = namespaced(&client, "default");
    let by_hand: Api<Endpoints> = namespaced(&client, "default");
    let address = |ip: &str| json!({"subsets": [{"addresses": [{"ip": ip}], "ports": [{"name": "x", "port": 81, "protocol": "TCP"}]}]});
    let mut written = address("10.9.8.7");
    written["metadata"] = json!({"name": "s"});
    // They may be there before their service, as manifests often have it.
    create(&by_hand, written).await;
    create(&services, json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})).await;
    let made = until_slices(&slices, |slices| endpoints(slices).len() == 1).await;
    assert_eq!(made[0].labels()["endpointslice.kubernetes.io/managed-by"], "endpointslicemirroring-controller.k8s.io");
    by_hand.patch("s", &PatchParams::default(), &Patch::Merge(address("10.9.8.8"))).await.unwrap();
    until_slices(&slices, |slices| {
        let found = endpoints(slices);
        slices.len() == 1 && found.len() == 1 && found[0].addresses == ["10.9.8.8"]
    })
    .await;
    by_hand.delete("s", &DeleteParams::default()).await.unwrap();
    until_slices(&slices, <[EndpointSlice]>::is_empty).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_budget_counts_healthy_pods() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let budgets: Api<PodDisruptionBudget> = namespaced(&client, "default");
    let pods: Api<Pod> = namespaced(&client, "default");
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    create(&budgets, budget).await;
    run(&pods, "one", "10.1.0.1", true).await;
    let is = |healthy: i32, allowed: i32, reason: &'static str| {
        move |budget: Option<&PodDisruptionBudget>| {
            budget.and_then(|budget| budget.status.as_ref()).is_some_and(|status| {
                status.current_healthy == Some(healthy)
                    && status.disruptions_allowed == Some(allowed)
                    && status.conditions.iter().flatten().any(|condition| condition.reason == reason)
            })
        }
    };
    until(&budgets, "b", is(1, 0, "InsufficientPods")).await;
    run(&pods, "two", "10.1.0.2", true).await;
    until(&budgets, "b", is(2, 1, "SufficientPods")).await;
    pods.evict("one", &EvictParams::default()).await.unwrap();
    let refused = pods.evict("two", &EvictParams::default()).await.unwrap_err();
    assert!(refused.to_string().contains("Cannot evict pod as it would violate"), "{refused}");
    until(&budgets, "b", is(1, 0, "InsufficientPods")).await;
    cluster.stop().await.unwrap();
}
