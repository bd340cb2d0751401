//! Claims and volumes go when nothing uses them, and not before.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, PatchParams};
use serde_json::json;
use windlass_cluster::Cluster;

use crate::objects::{create, is_ready, merge, namespaced, until, until_event, until_gone};

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
async fn unused_claims_go_at_once() {
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

fn volume(name: &str, spec: &serde_json::Value) -> serde_json::Value {
    let mut volume = json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp/v"},
    }});
    for (key, value) in spec.as_object().unwrap() {
        volume["spec"][key] = value.clone();
    }
    volume
}

fn phase(volume: Option<&PersistentVolume>) -> Option<&str> {
    volume?.status.as_ref()?.phase.as_deref()
}

fn claim_phase(claim: Option<&PersistentVolumeClaim>) -> Option<&str> {
    claim?.status.as_ref()?.phase.as_deref()
}

#[tokio::test]
async fn a_bound_volume_waits_to_be_released() {
    let cluster = Cluster::start().await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    let claims: Api<PersistentVolumeClaim> = namespaced(&cluster.client(), "default");
    create(&volumes, volume("v", &json!({}))).await;
    create(&claims, claim()).await;
    until(&claims, "c", |claim| claim_phase(claim) == Some("Bound")).await;
    volumes.delete("v", &DeleteParams::default()).await.unwrap();
    until(&volumes, "v", |v| v.is_some_and(|v| v.metadata.deletion_timestamp.is_some())).await;
    merge(&volumes, "v", json!({"metadata": {"labels": {"seen": "yes"}}})).await;
    assert!(volumes.get("v").await.unwrap().metadata.finalizers.is_some());
    claims.delete("c", &DeleteParams::default()).await.unwrap();
    until_gone(&volumes, "v").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_claim_is_bound_and_its_volume_reclaimed() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (volumes, claims): (Api<PersistentVolume>, Api<PersistentVolumeClaim>) =
        (Api::all(client.clone()), namespaced(&client, "default"));
    for (name, policy, path) in
        [("kept", "Retain", "/data"), ("deleted", "Delete", "/tmp/d"), ("stuck", "Delete", "/data")]
    {
        let policy = json!({"persistentVolumeReclaimPolicy": policy, "hostPath": {"path": path}});
        create(&volumes, volume(name, &policy)).await;
        until(&volumes, name, |volume| phase(volume) == Some("Available")).await;
        create(&claims, claim()).await;
        until(&claims, "c", |claim| claim_phase(claim) == Some("Bound")).await;
        let bound = claims.get("c").await.unwrap();
        assert_eq!(bound.spec.unwrap().volume_name.as_deref(), Some(name));
        assert_eq!(bound.status.unwrap().capacity.unwrap()["storage"].0, "1Gi");
        until(&volumes, name, |volume| phase(volume) == Some("Bound")).await;
        claims.delete("c", &DeleteParams::default()).await.unwrap();
        match name {
            "kept" => until(&volumes, name, |volume| phase(volume) == Some("Released")).await,
            "deleted" => until_gone(&volumes, name).await,
            _ => until(&volumes, name, |volume| phase(volume) == Some("Failed")).await,
        }
        until_gone(&claims, "c").await;
    }
    // The volume was checked by hand.
    merge(&volumes, "kept", json!({"spec": {"claimRef": null}})).await;
    create(&claims, claim()).await;
    until(&claims, "c", |claim| claim_phase(claim) == Some("Bound")).await;
    // A volume is lost.
    merge(&volumes, "kept", json!({"metadata": {"finalizers": null}})).await;
    volumes.delete("kept", &DeleteParams::default()).await.unwrap();
    merge(&volumes, "kept", json!({"metadata": {"finalizers": null}})).await;
    until(&claims, "c", |claim| claim_phase(claim) == Some("Lost")).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_volume_is_recycled_by_a_pod() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (volumes, claims): (Api<PersistentVolume>, Api<PersistentVolumeClaim>) =
        (Api::all(client.clone()), namespaced(&client, "default"));
    let pods: Api<Pod> = namespaced(&client, "default");
    create(&volumes, volume("v", &json!({"persistentVolumeReclaimPolicy": "Recycle"}))).await;
    create(&claims, claim()).await;
    until(&claims, "c", |claim| claim_phase(claim) == Some("Bound")).await;
    claims.delete("c", &DeleteParams::default()).await.unwrap();
    until(&pods, "recycler-for-v", |pod| pod.is_some()).await;
    assert_eq!(phase(Some(&volumes.get("v").await.unwrap())), Some("Released"));
    let ended = kube::api::Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status("recycler-for-v", &PatchParams::default(), &ended).await.unwrap();
    until(&volumes, "v", |volume| phase(volume) == Some("Available")).await;
    assert_eq!(volumes.get("v").await.unwrap().spec.unwrap().claim_ref, None);
    until_gone(&pods, "recycler-for-v").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_volume_that_a_pod_uses_is_recycled_after_it() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (volumes, claims): (Api<PersistentVolume>, Api<PersistentVolumeClaim>) =
        (Api::all(client.clone()), namespaced(&client, "default"));
    let (pods, events): (Api<Pod>, Api<k8s_openapi::api::core::v1::Event>) =
        (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&volumes, volume("v", &json!({"persistentVolumeReclaimPolicy": "Recycle"}))).await;
    create(&claims, claim()).await;
    until(&claims, "c", |claim| claim_phase(claim) == Some("Bound")).await;
    let waiting = create(&pods, pod(None)).await.metadata.name.unwrap();
    // No node has the pod: the claim is not protected.
    claims.delete("c", &DeleteParams::default()).await.unwrap();
    let said = tokio::time::timeout(crate::objects::LONG, async {
        loop {
            let about = kube::api::ListParams::default().fields("involvedObject.name=v,reason=VolumeFailedRecycle");
            if let Some(event) = events.list(&about).await.unwrap().items.into_iter().next() {
                return event.message;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(said.await.unwrap(), Some(format!("Volume is used by pods: default/{waiting}")));
    assert!(pods.get_opt("recycler-for-v").await.unwrap().is_none());
    pods.delete(&waiting, &DeleteParams::default().grace_period(0)).await.unwrap();
    until(&pods, "recycler-for-v", |pod| pod.is_some()).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn claims_without_a_class_are_provisioned_on_the_selected_node() {
    let cluster = Cluster::builder().default_storage_class(true).start().await.unwrap();
    let client = cluster.client();
    let (volumes, claims): (Api<PersistentVolume>, Api<PersistentVolumeClaim>) =
        (Api::all(client.clone()), namespaced(&client, "default"));
    create(&claims, claim()).await;
    until(&claims, "c", |claim| {
        claim.is_some_and(|claim| claim.spec.as_ref().unwrap().storage_class_name.as_deref() == Some("standard"))
    })
    .await;
    // The scheduler has found a node for the first pod.
    let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-1"}}});
    merge(&claims, "c", selected).await;
    until(&claims, "c", |claim| claim_phase(claim) == Some("Bound")).await;
    let name = claims.get("c").await.unwrap().spec.unwrap().volume_name.unwrap();
    let made = volumes.get(&name).await.unwrap().spec.unwrap();
    let terms = made.node_affinity.unwrap().required.unwrap().node_selector_terms;
    assert_eq!(terms[0].match_expressions.as_ref().unwrap()[0].values.as_ref().unwrap(), &["node-1"]);
    assert_eq!(made.persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
    merge(&claims, "c", json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})).await;
    until(&claims, "c", |claim| {
        let capacity = claim.and_then(|claim| claim.status.as_ref()?.capacity.as_ref()?.get("storage"));
        capacity.is_some_and(|capacity| capacity.0 == "2Gi")
    })
    .await;
    assert_eq!(volumes.get(&name).await.unwrap().spec.unwrap().capacity.unwrap()["storage"].0, "2Gi");
    claims.delete("c", &DeleteParams::default()).await.unwrap();
    until_gone(&volumes, &name).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn claims_of_unknown_classes_stay_pending_with_an_event() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let claims: Api<PersistentVolumeClaim> = namespaced(&client, "default");
    let events: Api<k8s_openapi::api::core::v1::Event> = namespaced(&client, "default");
    let mut unknown = claim();
    unknown["spec"]["storageClassName"] = json!("nowhere");
    create(&claims, unknown).await;
    let found = tokio::time::timeout(crate::objects::LONG, async {
        loop {
            let all = events.list(&kube::api::ListParams::default()).await.unwrap().items;
            if let Some(event) = all.into_iter().find(|event| event.reason.as_deref() == Some("ProvisioningFailed")) {
                return event;
            }
            tokio::task::yield_now().await;
        }
    });
    let event = found.await.expect("an event");
    assert_eq!(event.message.as_deref(), Some("storageclass.storage.k8s.io \"nowhere\" not found"));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("persistentvolume-controller"));
    assert_eq!(claim_phase(Some(&claims.get("c").await.unwrap())), Some("Pending"));
    cluster.stop().await.unwrap();
}

fn with_ephemeral_volume(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {
            "metadata": {"labels": {"use": "scratch"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }}}],
    }})
}

#[tokio::test]
async fn an_ephemeral_volume_lives_as_long_as_its_pod() {
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let client = cluster.client();
    let (pods, claims) =
        (namespaced::<Pod>(&client, "default"), namespaced::<PersistentVolumeClaim>(&client, "default"));
    let pod = create(&pods, with_ephemeral_volume("p")).await;
    until(&pods, "p", |pod| pod.is_some_and(is_ready)).await;
    let claim = claims.get("p-scratch").await.unwrap();
    assert_eq!(claim.metadata.labels.unwrap()["use"], "scratch");
    let owner = &claim.metadata.owner_references.unwrap()[0];
    assert_eq!((&*owner.kind, Some(&owner.uid), owner.controller), ("Pod", pod.metadata.uid.as_ref(), Some(true)));
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    until_gone(&claims, "p-scratch").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn unrelated_claims_are_no_ephemeral_volumes() {
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let client = cluster.client();
    let mut other = claim();
    other["metadata"]["name"] = json!("p-scratch");
    create(&namespaced::<PersistentVolumeClaim>(&client, "default"), other).await;
    create(&namespaced::<Pod>(&client, "default"), with_ephemeral_volume("p")).await;
    let note = "ephemeral volume scratch: PVC default/p-scratch was not created for pod default/p (pod is not owner)";
    until_event(&client, "FailedBinding", "p", note).await;
    cluster.stop().await.unwrap();
}
