//! status, scale, eviction, binding and the like.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, EvictParams, LogParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::{check_refused, everywhere, pod};

fn deployment() -> Deployment {
    serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx"}]},
        },
    }}))
    .unwrap()
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    everywhere(async |client: Client| {
        let deployments: Api<Deployment> = Api::default_namespaced(client);
        deployments.create(&PostParams::default(), &deployment()).await.unwrap();
        let both = json!({"spec": {"replicas": 9}, "status": {"replicas": 2, "observedGeneration": 1}});
        let patched = deployments.patch_status("web", &PatchParams::default(), &Patch::Merge(&both)).await.unwrap();
        assert_eq!(patched.spec.as_ref().unwrap().replicas, Some(2));
        assert_eq!(patched.status.as_ref().unwrap().replicas, Some(2));
        assert_eq!(patched.metadata.generation, Some(1));
        let patched = deployments.patch("web", &PatchParams::default(), &Patch::Merge(&both)).await.unwrap();
        assert_eq!(patched.spec.as_ref().unwrap().replicas, Some(9));
        assert_eq!(patched.metadata.generation, Some(2));
        let mut read = deployments.get_status("web").await.unwrap();
        read.status.as_mut().unwrap().replicas = Some(3);
        let replaced = deployments.replace_status("web", &PostParams::default(), &read).await.unwrap();
        assert_eq!(replaced.status.unwrap().replicas, Some(3));
    })
    .await;
}

#[tokio::test]
async fn workloads_are_scaled() {
    everywhere(async |client: Client| {
        let deployments: Api<Deployment> = Api::default_namespaced(client);
        deployments.create(&PostParams::default(), &deployment()).await.unwrap();
        let mut scale = deployments.get_scale("web").await.unwrap();
        assert_eq!(scale.spec.as_ref().unwrap().replicas, Some(2));
        assert_eq!(scale.status.as_ref().unwrap().selector.as_deref(), Some("app=web"));
        scale.spec.as_mut().unwrap().replicas = Some(4);
        let replaced = deployments.replace_scale("web", &PostParams::default(), &scale).await.unwrap();
        assert_eq!(replaced.spec.unwrap().replicas, Some(4));
        check_refused(deployments.replace_scale("web", &PostParams::default(), &scale).await, 409, "Conflict");
        let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
        deployments.patch_scale("web", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(deployments.get("web").await.unwrap().spec.unwrap().replicas, Some(5));
        let patch = Patch::Merge(json!({"spec": {"replicas": -1}}));
        check_refused(deployments.patch_scale("web", &PatchParams::default(), &patch).await, 422, "Invalid");
    })
    .await;
}

#[tokio::test]
async fn pods_are_evicted() {
    everywhere(async |client: Client| {
        let pods: Api<Pod> = Api::default_namespaced(client);
        pods.create(&PostParams::default(), &pod("free")).await.unwrap();
        let status = pods.evict("free", &EvictParams::default()).await.unwrap();
        assert!(status.is_success());
        assert_eq!(pods.get_opt("free").await.unwrap(), None);
        check_refused(pods.evict("free", &EvictParams::default()).await, 404, "NotFound");
    })
    .await;
}

#[tokio::test]
async fn bound_pods_are_deleted_gracefully() {
    everywhere(async |client: Client| {
        let nodes: Api<Node> = Api::all(client.clone());
        let node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let pods: Api<Pod> = Api::default_namespaced(client);
        pods.create(&PostParams::default(), &pod("one")).await.unwrap();
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "one"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}});
        let bound: serde_json::Value =
            pods.create_subresource("binding", "one", &PostParams::default(), &binding).await.unwrap();
        assert_eq!(bound["status"], "Success", "{bound}");
        let read = pods.get("one").await.unwrap();
        assert_eq!(read.spec.unwrap().node_name.as_deref(), Some("n"));
        // A node is asked to end it first; only then, or with no grace, it is gone.
        let deleted = pods.delete("one", &DeleteParams::default()).await.unwrap().left().unwrap();
        assert_eq!(deleted.metadata.deletion_grace_period_seconds, Some(30));
        pods.delete("one", &DeleteParams::default().grace_period(0)).await.unwrap();
        assert_eq!(pods.get_opt("one").await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn ephemeral_containers_and_logs_answer() {
    everywhere(async |client: Client| {
        let pods: Api<Pod> = Api::default_namespaced(client);
        pods.create(&PostParams::default(), &pod("one")).await.unwrap();
        let patch = Patch::Strategic(json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}));
        let patched = pods.patch_ephemeral_containers("one", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(patched.spec.unwrap().ephemeral_containers.unwrap()[0].name, "debug");
        assert_eq!(pods.get_ephemeral_containers("one").await.unwrap().name_any(), "one");
        // No node has it yet, so there is nothing to read.
        assert_eq!(pods.logs("one", &LogParams::default()).await.unwrap(), "");
        let other = LogParams { container: Some("other".into()), ..LogParams::default() };
        check_refused(pods.logs("one", &other).await, 400, "BadRequest");
    })
    .await;
}
