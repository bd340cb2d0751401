//! Claims and volumes go when nothing uses them, and not before.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, PatchParams};
use serde_json::json;
use windlass_cluster::Cluster;

use crate::objects::{create, merge, namespaced, until, until_gone};

fn claim() -> serde_json::Value {
    json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }})
}

fn pod(node: Option<&str>) -> serde_json::Value {
    json!({"metadata": {"name": "p"}, "spec": {
        "nodeName": node, "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    }})
}

#[tokio::test]
async fn a_claim_that_nobody_uses_goes_at_once() {
    let cluster = Cluster::start().await.unwrap();
    let claims: Api<PersistentVolumeClaim> = namespaced(&cluster.client(), "default");
    let made = create(&claims, claim()).await;
    assert_eq!(made.metadata.finalizers.unwrap(), ["kubernetes.io/pvc-protection"]);
    let pods: Api<Pod> = namespaced(&cluster.client(), "default");
    create(&pods, pod(None)).await;
    claims.delete("c", &DeleteParams::default()).await.unwrap();
    until_gone(&claims, "c").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_claim_waits_for_its_pod() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let claims: Api<PersistentVolumeClaim> = namespaced(&client, "default");
    let pods: Api<Pod> = namespaced(&client, "default");
    create(&claims, claim()).await;
    create(&pods, pod(Some("somewhere"))).await;
    claims.delete("c", &DeleteParams::default()).await.unwrap();
    // Another claim, deleted later, has been dealt with: this one has been looked at and kept.
    let mut other = claim();
    other["metadata"]["name"] = json!("other");
    create(&claims, other).await;
    claims.delete("other", &DeleteParams::default()).await.unwrap();
    until_gone(&claims, "other").await;
    assert!(claims.get("c").await.unwrap().metadata.finalizers.is_some());
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_gone(&claims, "c").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_bound_volume_waits_to_be_released() {
    let cluster = Cluster::start().await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    let volume = json!({"metadata": {"name": "v"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp/v"},
    }});
    create(&volumes, volume).await;
    let phase = |phase: &str| kube::api::Patch::Merge(json!({"status": {"phase": phase}}));
    volumes.patch_status("v", &PatchParams::default(), &phase("Bound")).await.unwrap();
    volumes.delete("v", &DeleteParams::default()).await.unwrap();
    until(&volumes, "v", |v| v.is_some_and(|v| v.metadata.deletion_timestamp.is_some())).await;
    merge(&volumes, "v", json!({"metadata": {"labels": {"seen": "yes"}}})).await;
    assert!(volumes.get("v").await.unwrap().metadata.finalizers.is_some());
    volumes.patch_status("v", &PatchParams::default(), &phase("Released")).await.unwrap();
    until_gone(&volumes, "v").await;
    cluster.stop().await.unwrap();
}
