//! Built-in controllers keep to a paused clock: what takes hours passes at once.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::Patch;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass::ObjectKey;
use windlass_testing::Env;

const HOUR: Duration = Duration::from_secs(3600);

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

#[windlass_testing::test(paused)]
async fn pods_are_available_after_an_hour_of_paused_time(env: Env) {
    let nodes = env.make_pods_ready("default");
    let set: StatefulSet = object(json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
        "replicas": 2, "minReadySeconds": 3600, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }}));
    let key = ObjectKey::of(&set);
    env.client().create(&set).await.expect("created");
    let status = |set: &StatefulSet| set.status.clone().unwrap_or_default();
    env.wait_until::<StatefulSet>(&key, |set| status(set).ready_replicas == Some(1)).await;
    assert!(env.client().live().get::<Pod>(&key.sibling("web-1")).await.expect("read").is_none());
    env.advance(HOUR).await;
    env.wait_until::<StatefulSet>(&key, |set| status(set).available_replicas == Some(1)).await;
    env.wait_until::<Pod>(&key.sibling("web-1"), |_| true).await;
    drop(nodes);
}

#[windlass_testing::test(paused)]
async fn a_finished_job_goes_after_an_hour_of_paused_time(env: Env) {
    let job: Job = object(json!({"metadata": {"name": "j", "namespace": "default"}, "spec": {
        "ttlSecondsAfterFinished": 3600,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
    }}));
    let key = ObjectKey::of(&job);
    env.client().create(&job).await.expect("created");
    env.wait_until::<Job>(&key, |job| job.status.as_ref().is_some_and(|status| status.active == Some(1))).await;
    let pods = env.client().list::<Pod>().await.expect("listed");
    let succeeded = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    env.client().patch_status::<Pod>(&ObjectKey::of(&*pods[0]), &succeeded).await.expect("patched");
    env.wait_for_condition::<Job>(&key, "Complete", true).await;
    env.advance(HOUR).await;
    env.wait_gone::<Job>(&key).await;
}

#[windlass_testing::test(paused)]
async fn a_deleted_service_range_goes_after_its_grace_period(env: Env) {
    let range: ServiceCIDR = object(json!({"metadata": {"name": "spare"}, "spec": {"cidrs": ["198.51.100.0/24"]}}));
    let key = ObjectKey::of(&range);
    env.client().create(&range).await.expect("created");
    env.wait_for_condition::<ServiceCIDR>(&key, "Ready", true).await;
    env.client().delete::<ServiceCIDR>(&key).await.expect("deleted");
    env.wait_gone::<ServiceCIDR>(&key).await;
}
