//! StatefulSets make, update and give up pods in order. No node runs them here: the tests say what a node would.

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_cluster::Cluster;

use crate::objects::{self, LONG, create, end_pod, make_ready, merge, namespaced, until, until_gone};

fn set(spec: &Value) -> Value {
    let mut set = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 3, "serviceName": "web", "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}},
    }});
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    set
}

fn image(number: i32) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": format!("img:{number}")}]}}}})
}

async fn until_pods(pods: &Api<Pod>, wanted: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
    objects::until_pods(pods, "app=a", wanted).await
}

/// Waits until the pods have these names.
async fn until_named(pods: &Api<Pod>, names: &[&str]) -> Vec<Pod> {
    until_pods(pods, |pods| pods.iter().map(kube::ResourceExt::name_any).eq(names.iter().copied())).await
}

/// Waits until the pods have these images, and makes each ready that is not.
async fn until_images(pods: &Api<Pod>, images: &[&str]) {
    let found = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
    let waiting = async {
        loop {
            make_ready(pods, "app=a").await;
            let all = pods.list(&ListParams::default().labels("app=a")).await.unwrap().items;
            if all.iter().map(found).eq(images.iter().copied()) && all.iter().all(objects::is_ready) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect("the images become as wanted");
}

#[tokio::test]
async fn ordered_sets_scale_one_pod_at_a_time() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (sets, pods): (Api<StatefulSet>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&sets, set(&json!({"ordinals": {"start": 1}}))).await;
    for names in [&["web-1"][..], &["web-1", "web-2"], &["web-1", "web-2", "web-3"]] {
        let made = until_named(&pods, names).await;
        until(&sets, "web", |set| {
            let status = set.and_then(|set| set.status.clone()).unwrap_or_default();
            let count = names.len() as i32;
            (status.replicas, status.available_replicas) == (count, Some(count - 1))
                && status.ready_replicas == Some(count - 1).filter(|ready| *ready > 0)
                && (status.current_replicas, status.updated_replicas) == (Some(count), Some(count))
                && status.collision_count == Some(0)
        })
        .await;
        let newest = made.last().unwrap();
        assert_eq!(newest.labels()["statefulset.kubernetes.io/pod-name"], newest.name_any());
        assert_eq!(newest.labels()["apps.kubernetes.io/pod-index"], names.len().to_string());
        assert_eq!(newest.owner_references()[0].kind, "StatefulSet");
        make_ready(&pods, "app=a").await;
    }
    merge(&sets, "web", json!({"spec": {"replicas": 1}})).await;
    until_named(&pods, &["web-1"]).await;
    let events: Api<Event> = namespaced(&client, "default");
    let told = async {
        loop {
            let fields = "involvedObject.name=web,reason=SuccessfulDelete";
            let found = events.list(&ListParams::default().fields(fields)).await.unwrap().items;
            if found.len() == 2 {
                return found.into_iter().map(|event| event.message.unwrap()).collect::<Vec<_>>();
            }
            tokio::task::yield_now().await;
        }
    };
    let told = tokio::time::timeout(LONG, told).await.expect("two events");
    assert!(told.contains(&"Delete Pod web-3 in StatefulSet web successful".to_owned()), "{told:?}");
    sets.delete("web", &DeleteParams::default()).await.unwrap();
    until_pods(&pods, <[Pod]>::is_empty).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn failed_pods_are_replaced_under_the_same_name() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (sets, pods): (Api<StatefulSet>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&sets, set(&json!({"podManagementPolicy": "Parallel"}))).await;
    let names = ["web-0", "web-1", "web-2"];
    let made = until_named(&pods, &names).await;
    end_pod(&pods, &made[1], "Failed").await;
    until_pods(&pods, |pods| pods.len() == 3 && pods[1].uid() != made[1].uid()).await;
    let after = until_named(&pods, &names).await;
    assert_eq!((after[0].uid(), after[2].uid()), (made[0].uid(), made[2].uid()));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn an_update_stops_at_the_partition_and_is_rolled_back() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (sets, pods): (Api<StatefulSet>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    let revisions: Api<ControllerRevision> = namespaced(&client, "default");
    let partition = |number: i32| json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": number}}}});
    create(&sets, set(&json!({"revisionHistoryLimit": 1}))).await;
    until_images(&pods, &["img:1"; 3]).await;
    merge(&sets, "web", partition(2)).await;
    merge(&sets, "web", image(2)).await;
    until_images(&pods, &["img:1", "img:1", "img:2"]).await;
    until(&sets, "web", |set| {
        let status = set.unwrap().status.clone().unwrap();
        (status.current_replicas, status.updated_replicas) == (Some(2), Some(1))
            && status.current_revision != status.update_revision
    })
    .await;
    merge(&sets, "web", partition(0)).await;
    until_images(&pods, &["img:2"; 3]).await;
    let complete = |set: Option<&StatefulSet>| {
        let status = set.unwrap().status.clone().unwrap();
        status.current_replicas == Some(3) && status.current_revision == status.update_revision
    };
    until(&sets, "web", complete).await;
    let numbers = async || {
        let all = revisions.list(&ListParams::default()).await.unwrap().items;
        let mut numbers: Vec<i64> = all.iter().map(|revision| revision.revision).collect();
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(numbers().await, [1, 2]);
    // The first template is back, and so is its revision, under the next number.
    merge(&sets, "web", image(1)).await;
    until_images(&pods, &["img:1"; 3]).await;
    until(&sets, "web", complete).await;
    assert_eq!(numbers().await, [2, 3]);
    merge(&sets, "web", image(3)).await;
    until_images(&pods, &["img:3"; 3]).await;
    let truncated = async {
        while numbers().await != [3, 4] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, truncated).await.expect("one old revision is left");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn pods_updated_on_deletion_stay_until_then() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (sets, pods): (Api<StatefulSet>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&sets, set(&json!({"updateStrategy": {"type": "OnDelete"}}))).await;
    until_images(&pods, &["img:1"; 3]).await;
    merge(&sets, "web", image(2)).await;
    until(&sets, "web", |set| {
        let status = set.unwrap().status.clone().unwrap();
        status.observed_generation == Some(2) && status.updated_replicas.is_none()
    })
    .await;
    pods.delete("web-1", &DeleteParams::default()).await.unwrap();
    until_images(&pods, &["img:1", "img:2", "img:1"]).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn claims_go_with_pods_that_are_scaled_away() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (sets, pods): (Api<StatefulSet>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    let claims: Api<PersistentVolumeClaim> = namespaced(&client, "default");
    let spec = json!({
        "replicas": 2, "podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}},
        }}],
    });
    create(&sets, set(&spec)).await;
    let made = until_named(&pods, &["web-0", "web-1"]).await;
    let volume = &made[1].spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
    assert_eq!(volume.persistent_volume_claim.as_ref().unwrap().claim_name, "data-web-1");
    let first = claims.get("data-web-1").await.unwrap();
    assert_eq!(first.labels()["app"], "a");
    make_ready(&pods, "app=a").await;
    merge(&sets, "web", json!({"spec": {"replicas": 1}})).await;
    until_gone(&pods, "web-1").await;
    until_gone(&claims, "data-web-1").await;
    // Another pod of the ordinal gets a claim of its own.
    merge(&sets, "web", json!({"spec": {"replicas": 2}})).await;
    until_named(&pods, &["web-0", "web-1"]).await;
    assert_ne!(claims.get("data-web-1").await.unwrap().uid(), first.uid());
    let retain = |when: &str| json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": when}}});
    merge(&sets, "web", retain("Delete")).await;
    until(&claims, "data-web-0", |claim| !claim.unwrap().owner_references().is_empty()).await;
    merge(&sets, "web", retain("Retain")).await;
    until(&claims, "data-web-0", |claim| claim.unwrap().owner_references().is_empty()).await;
    sets.delete("web", &DeleteParams::default()).await.unwrap();
    until_pods(&pods, <[Pod]>::is_empty).await;
    assert!(claims.get("data-web-0").await.unwrap().metadata.deletion_timestamp.is_none());
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_restart_in_an_update_ends_in_the_same_state() {
    let mut cluster = Cluster::start().await.unwrap();
    let sets: Api<StatefulSet> = namespaced(&cluster.client(), "default");
    let pods: Api<Pod> = namespaced(&cluster.client(), "default");
    create(&sets, set(&json!({}))).await;
    until_images(&pods, &["img:1"; 3]).await;
    merge(&sets, "web", image(2)).await;
    for updated in 1..=2 {
        cluster = cluster.restart().await.unwrap();
        let pods: Api<Pod> = namespaced(&cluster.client(), "default");
        let of = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some("img:2");
        let waiting = async {
            loop {
                let all = pods.list(&ListParams::default().labels("app=a")).await.unwrap().items;
                assert!(all.len() <= 3);
                if all.iter().filter(|pod| of(pod)).count() >= updated {
                    return;
                }
                make_ready(&pods, "app=a").await;
            }
        };
        tokio::time::timeout(LONG, waiting).await.expect("the update goes on");
    }
    let pods: Api<Pod> = namespaced(&cluster.client(), "default");
    until_images(&pods, &["img:2"; 3]).await;
    let revisions: Api<ControllerRevision> = namespaced(&cluster.client(), "default");
    assert_eq!(revisions.list(&ListParams::default()).await.unwrap().items.len(), 2);
    cluster.stop().await.unwrap();
}
