//! ReplicaSets and Deployments make and replace pods. No node runs them here: the tests say what a
//! node would.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod, ReplicationController};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_cluster::Cluster;

use crate::objects::{self, LONG, create, merge, namespaced, until};

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn workload(name: &str, replicas: i32) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": template("img:1"),
    }})
}

async fn list<K>(api: &Api<K>) -> Vec<K>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.list(&ListParams::default().labels("app=a")).await.unwrap().items
}

async fn make_ready(pods: &Api<Pod>) {
    objects::make_ready(pods, "app=a").await;
}

async fn until_pods(pods: &Api<Pod>, wanted: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
    objects::until_pods(pods, "app=a", wanted).await
}

#[tokio::test]
async fn a_replica_set_keeps_its_number_of_pods() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (sets, pods): (Api<ReplicaSet>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&sets, workload("s", 3)).await;
    let made = until_pods(&pods, |pods| pods.len() == 3).await;
    assert!(made[0].name_any().starts_with("s-"));
    until(&sets, "s", |set| {
        set.and_then(|set| set.status.as_ref()).is_some_and(|status| {
            (status.replicas, status.fully_labeled_replicas, status.ready_replicas) == (3, Some(3), None)
                && status.observed_generation == Some(1)
        })
    })
    .await;
    pods.delete(&made[0].name_any(), &DeleteParams::default()).await.unwrap();
    until_pods(&pods, |pods| pods.len() == 3 && pods.iter().all(|pod| pod.uid() != made[0].uid())).await;
    make_ready(&pods).await;
    until(&sets, "s", |set| {
        set.and_then(|set| set.status.as_ref()).is_some_and(|status| status.available_replicas == Some(3))
    })
    .await;
    merge(&sets, "s", json!({"spec": {"replicas": 1}})).await;
    until_pods(&pods, |pods| pods.len() == 1).await;
    sets.delete("s", &DeleteParams::default()).await.unwrap();
    until_pods(&pods, <[Pod]>::is_empty).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_replica_set_adopts_and_releases() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (sets, pods): (Api<ReplicaSet>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    let mut orphan = template("img:0");
    orphan["metadata"]["name"] = json!("orphan");
    create(&pods, orphan).await;
    create(&sets, workload("s", 2)).await;
    let controlled = |pod: Option<&Pod>| pod.is_some_and(|pod| !pod.owner_references().is_empty());
    until(&pods, "orphan", controlled).await;
    until_pods(&pods, |pods| pods.len() == 2).await;
    merge(&pods, "orphan", json!({"metadata": {"labels": {"app": "other"}}})).await;
    until(&pods, "orphan", |pod| !controlled(pod)).await;
    until_pods(&pods, |pods| pods.len() == 2).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_deployment_rolls_to_a_new_template_and_back() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let deployments: Api<Deployment> = namespaced(&client, "default");
    let (sets, pods): (Api<ReplicaSet>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&deployments, workload("web", 4)).await;
    let image = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
    for (revision, wanted) in [("1", "img:1"), ("2", "img:2"), ("3", "img:1")] {
        merge(&deployments, "web", json!({"spec": {"template": template(wanted)}})).await;
        let rolled = async {
            loop {
                make_ready(&pods).await;
                let web = deployments.get("web").await.unwrap();
                let status = web.status.clone().unwrap_or_default();
                let complete = status.observed_generation == web.metadata.generation
                    && (status.updated_replicas, status.replicas) == (Some(4), Some(4))
                    && status.available_replicas == Some(4)
                    && web.annotations().get("deployment.kubernetes.io/revision").is_some_and(|r| r == revision);
                // Never fewer than three quarters of the pods are available.
                let ready = list(&pods).await.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count();
                assert!(ready <= 5, "{ready} pods");
                if complete {
                    return web;
                }
                tokio::task::yield_now().await;
            }
        };
        let web = tokio::time::timeout(LONG, rolled).await.expect("the rollout completes");
        assert!(list(&pods).await.iter().all(|pod| image(pod) == wanted));
        let conditions = web.status.unwrap().conditions.unwrap();
        let said = |type_: &str| conditions.iter().find(|c| c.type_ == type_).map(|c| c.reason.clone().unwrap());
        assert_eq!(said("Available").unwrap(), "MinimumReplicasAvailable");
        until(&deployments, "web", |web| {
            let conditions = web.unwrap().status.as_ref().unwrap().conditions.iter().flatten();
            conditions
                .filter(|c| c.type_ == "Progressing")
                .any(|c| c.reason.as_deref() == Some("NewReplicaSetAvailable"))
        })
        .await;
    }
    let all = list(&sets).await;
    assert_eq!(all.len(), 2);
    let history = |set: &ReplicaSet| set.annotations().get("deployment.kubernetes.io/revision-history").cloned();
    assert!(all.iter().any(|set| history(set).as_deref() == Some("1")));
    deployments.delete("web", &DeleteParams::default()).await.unwrap();
    until_pods(&pods, <[Pod]>::is_empty).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_deployment_that_recreates_has_no_two_kinds_of_pods() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let deployments: Api<Deployment> = namespaced(&client, "default");
    let pods: Api<Pod> = namespaced(&client, "default");
    let mut web = workload("web", 2);
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    // A finalizer keeps the old pods for as long as the test wants.
    web["spec"]["template"]["metadata"]["finalizers"] = json!(["e.com/hold"]);
    create(&deployments, web).await;
    let old = until_pods(&pods, |pods| pods.len() == 2).await;
    merge(&deployments, "web", json!({"spec": {"template": template("img:2")}})).await;
    until_pods(&pods, |pods| pods.len() == 2 && pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some())).await;
    for pod in &old {
        merge(&pods, &pod.name_any(), json!({"metadata": {"finalizers": null}})).await;
    }
    let new = until_pods(&pods, |pods| pods.len() == 2).await;
    assert!(new.iter().all(|pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some("img:2")));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_paused_deployment_is_scaled_but_not_rolled_out() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let deployments: Api<Deployment> = namespaced(&client, "default");
    let (sets, pods): (Api<ReplicaSet>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&deployments, workload("web", 1)).await;
    until_pods(&pods, |pods| pods.len() == 1).await;
    merge(&deployments, "web", json!({"spec": {"paused": true}})).await;
    until(&deployments, "web", |web| {
        let conditions = web.unwrap().status.as_ref().unwrap().conditions.iter().flatten();
        conditions.filter(|c| c.type_ == "Progressing").any(|c| c.reason.as_deref() == Some("DeploymentPaused"))
    })
    .await;
    merge(&deployments, "web", json!({"spec": {"replicas": 3, "template": template("img:2")}})).await;
    until_pods(&pods, |pods| pods.len() == 3).await;
    assert_eq!(list(&sets).await.len(), 1);
    merge(&deployments, "web", json!({"spec": {"paused": false}})).await;
    let resumed = async {
        while list(&sets).await.len() != 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, resumed).await.expect("the rollout goes on");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn the_making_of_pods_is_told_in_events() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let sets: Api<ReplicaSet> = namespaced(&client, "default");
    let (events, pods): (Api<Event>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&sets, workload("s", 1)).await;
    let made = until_pods(&pods, |pods| pods.len() == 1).await;
    let reported = async {
        loop {
            let found = events.list(&ListParams::default().fields("involvedObject.name=s")).await.unwrap().items;
            if let Some(event) = found.into_iter().next() {
                return event;
            }
            tokio::task::yield_now().await;
        }
    };
    let event = tokio::time::timeout(LONG, reported).await.expect("an event");
    assert_eq!(event.reason.unwrap(), "SuccessfulCreate");
    assert_eq!(event.message.unwrap(), format!("Created pod: {}", made[0].name_any()));
    cluster.stop().await.unwrap();
}

/// Makes every pod ready that is not, at a few different seconds of the same hour, some after restarts: such pods are
/// about equally good to delete.
async fn make_ready_at_about_the_same_time(pods: &Api<Pod>) {
    let unready = list(pods).await.into_iter().filter(|pod| {
        pod.metadata.deletion_timestamp.is_none()
            && pod.status.as_ref().is_none_or(|status| status.conditions.is_none())
    });
    for (at, pod) in unready.enumerate() {
        let status = json!({"status": {
            "phase": "Running",
            "conditions": [{
                "type": "Ready", "status": "True", "lastTransitionTime": format!("2026-01-01T00:00:0{}Z", at % 4),
            }],
            "containerStatuses": [{
                "name": "c", "image": "img:1", "imageID": "", "ready": true, "restartCount": at % 3,
            }],
        }});
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

#[tokio::test]
async fn a_deployment_is_scaled_up_and_down_in_many_steps() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let deployments: Api<Deployment> = namespaced(&client, "default");
    let pods: Api<Pod> = namespaced(&client, "default");
    create(&deployments, workload("x", 25)).await;
    for replicas in [25, 50, 75, 70, 64, 50, 40, 33, 21, 5] {
        merge(&deployments, "x", json!({"spec": {"replicas": replicas}})).await;
        until_pods(&pods, |pods| pods.len() == replicas).await;
        make_ready_at_about_the_same_time(&pods).await;
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_replication_controller_keeps_its_number_of_pods() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let controllers: Api<ReplicationController> = namespaced(&client, "default");
    let pods: Api<Pod> = namespaced(&client, "default");
    create(&controllers, json!({"metadata": {"name": "rc"}, "spec": {"replicas": 2, "template": template("img:1")}}))
        .await;
    let made = until_pods(&pods, |pods| pods.len() == 2).await;
    assert_eq!(made[0].owner_references()[0].kind, "ReplicationController");
    assert!(made[0].name_any().starts_with("rc-"));
    make_ready(&pods).await;
    until(&controllers, "rc", |controller| {
        controller.and_then(|controller| controller.status.as_ref()).is_some_and(|status| {
            (status.replicas, status.fully_labeled_replicas, status.ready_replicas) == (2, Some(2), Some(2))
                && (status.available_replicas, status.observed_generation) == (Some(2), Some(1))
        })
    })
    .await;
    merge(&controllers, "rc", json!({"spec": {"replicas": 1}})).await;
    until_pods(&pods, |pods| pods.len() == 1).await;
    // Without a policy its deletion leaves the pod, and another one adopts it.
    controllers.delete("rc", &DeleteParams::default()).await.unwrap();
    objects::until_gone(&controllers, "rc").await;
    let left = until_pods(&pods, |pods| pods.iter().all(|pod| pod.owner_references().is_empty())).await;
    create(&controllers, json!({"metadata": {"name": "other"}, "spec": {"template": template("img:1")}})).await;
    until(&pods, &left[0].name_any(), |pod| !pod.unwrap().owner_references().is_empty()).await;
    cluster.stop().await.unwrap();
}
