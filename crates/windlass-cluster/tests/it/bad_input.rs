//! What cannot work: each gets the event or condition that Kubernetes has for it, and no controller goes on trying.
//!
//! The clock is paused, so the time over which reconciles are counted costs nothing but them.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, ResourceQuota};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass_cluster::Cluster;

use crate::objects::{create, merge, namespaced, object, until_event, until_within};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long controllers are watched once everything has failed.
const WATCHED: Duration = Duration::from_secs(1800);

fn containers() -> Value {
    json!([{"name": "c", "image": "i"}])
}

fn template(spec: Value) -> Value {
    let mut spec = spec;
    spec["containers"] = if spec["containers"].is_null() { containers() } else { spec["containers"].take() };
    json!({"metadata": {"labels": {"app": "a"}}, "spec": spec})
}

fn workload(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template(spec)}})
}

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": containers()}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// How often each controller has reconciled, by `/metrics`.
async fn reconciles(client: &Client) -> BTreeMap<String, u64> {
    let text = client.request_text(Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap();
    let mut counts = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("controller_runtime_reconcile_total{")) {
        let controller = line.split("controller=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let count: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        *counts.entry(controller.to_owned()).or_default() += count;
    }
    assert!(counts.len() > 20, "{text}");
    counts
}

#[tokio::test(start_paused = true)]
async fn impossible_objects_are_reported_and_no_controller_spins() {
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let client = cluster.client();
    let pods: Api<Pod> = namespaced(&client, "default");
    create(&pods, pod("nowhere", &json!({"nodeSelector": {"no": "node"}}))).await;
    let huge = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1000"}}}]);
    create(&pods, pod("huge", &json!({"containers": huge}))).await;
    let missing = |claim: &str| json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]});
    create(&pods, pod("unclaimed", &missing("nothing"))).await;
    create(&pods, pod("unmounted", &json!({"volumes": [{"name": "v", "configMap": {"name": "nothing"}}]}))).await;
    create(&pods, pod("elsewhere", &json!({"schedulerName": "somebody-else"}))).await;
    let claims: Api<PersistentVolumeClaim> = namespaced(&client, "default");
    create(&claims, json!({"metadata": {"name": "unknown"}, "spec": {
        "storageClassName": "nothing", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }}))
    .await;
    let scalers: Api<HorizontalPodAutoscaler> = namespaced(&client, "default");
    create(
        &scalers,
        json!({"metadata": {"name": "targetless"}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nothing"}, "maxReplicas": 3,
        }}),
    )
    .await;
    let quotas: Api<ResourceQuota> = namespaced(&client, "default");
    create(&quotas, json!({"metadata": {"name": "none"}, "spec": {"hard": {"count/replicationcontrollers": "0"}}}))
        .await;
    let deployments: Api<Deployment> = namespaced(&client, "default");
    create(&deployments, workload("accountless", json!({"serviceAccountName": "nothing"}))).await;
    let sets: Api<StatefulSet> = namespaced(&client, "default");
    create(&sets, workload("stateful", json!({"serviceAccountName": "nothing"}))).await;
    let daemons: Api<DaemonSet> = namespaced(&client, "default");
    create(&daemons, workload("daemon", json!({"serviceAccountName": "nothing"}))).await;
    let jobs: Api<Job> = namespaced(&client, "default");
    create(
        &jobs,
        json!({"metadata": {"name": "failing"}, "spec": {"backoffLimit": 0, "template": {
            "metadata": {"annotations": {"simulation.windlass.dev/exit-code": "1"}},
            "spec": {"restartPolicy": "Never", "containers": containers()},
        }}}),
    )
    .await;
    // Two objects that own each other stay until one is deleted.
    let maps: Api<ConfigMap> = namespaced(&client, "default");
    let owner = |map: &ConfigMap| {
        let meta = &map.metadata;
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": meta.name, "uid": meta.uid}])
    };
    let one = create(&maps, json!({"metadata": {"name": "one"}})).await;
    let two = create(&maps, json!({"metadata": {"name": "two", "ownerReferences": owner(&one)}})).await;
    merge(&maps, "one", json!({"metadata": {"ownerReferences": owner(&two)}})).await;
    // A node that vanishes with a pod on it.
    let nodes: Api<Node> = Api::all(client.clone());
    create(&nodes, json!({"metadata": {"name": "ghost"}})).await;
    create(&pods, pod("haunted", &json!({"nodeName": "ghost"}))).await;
    nodes.delete("ghost", &DeleteParams::default()).await.unwrap();

    let unscheduled = [
        ("nowhere", "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."),
        ("huge", "0/1 nodes are available: 1 Insufficient cpu."),
        ("unclaimed", "0/1 nodes are available: persistentvolumeclaim \"nothing\" not found."),
    ];
    for (name, why) in unscheduled {
        until_event(&client, "FailedScheduling", name, why).await;
        let said = |pod: Option<&Pod>| {
            let conditions = pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| one.type_ == "PodScheduled" && one.reason.as_deref() == Some("Unschedulable"))
        };
        until_within(&pods, name, DAY, said).await;
    }
    until_event(&client, "FailedMount", "unmounted", "configmap \"nothing\" not found").await;
    until_event(&client, "ProvisioningFailed", "unknown", "storageclass.storage.k8s.io \"nothing\" not found").await;
    until_event(&client, "FailedGetScale", "targetless", "deployments.apps \"nothing\" not found").await;
    let account = "error looking up service account default/nothing: serviceaccount \"nothing\" not found";
    until_event(&client, "FailedCreate", "accountless-", account).await;
    until_event(&client, "FailedCreate", "stateful", account).await;
    until_event(&client, "FailedCreate", "daemon", account).await;
    let failure = |deployment: Option<&Deployment>| {
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        conditions.any(|one| one.type_ == "ReplicaFailure" && one.reason.as_deref() == Some("FailedCreate"))
    };
    until_within(&deployments, "accountless", DAY, failure).await;
    let failed = |job: Option<&Job>| {
        let status = job.and_then(|job| job.status.as_ref());
        let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        conditions.any(|one| one.type_ == "Failed" && one.reason.as_deref() == Some("BackoffLimitExceeded"))
    };
    until_within(&jobs, "failing", DAY, failed).await;
    until_within(&pods, "haunted", DAY, |pod| pod.is_none()).await;

    let before = reconciles(&client).await;
    let mut watched = tokio::time::interval(WATCHED);
    watched.tick().await;
    watched.tick().await;
    let after = reconciles(&client).await;
    for (controller, count) in after {
        let more = count - before.get(&controller).copied().unwrap_or(0);
        // A node renews its lease every ten seconds, an autoscaler looks every fifteen, and what is retried with growing
        // pauses is tried a few times in half an hour.
        let most = if controller.contains("node") { 2 * WATCHED.as_secs() / 10 } else { 150 };
        assert!(more <= most, "{controller} reconciled {more} times in half an hour");
    }
    assert!(pods.get("elsewhere").await.unwrap().status.unwrap().conditions.is_none());
    assert!(maps.get_opt("one").await.unwrap().is_some() && maps.get_opt("two").await.unwrap().is_some());
    cluster.stop().await.unwrap();
}

/// Checks why an object is refused.
async fn refused<K>(api: &Api<K>, value: Value, why: &str)
where
    K: kube::Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let refused = api.create(&PostParams::default(), &object(value)).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("not refused: {refused:?}") };
    assert!(status.code == 422 && status.message.contains(why), "{}", status.message);
}

#[tokio::test]
async fn impossible_specs_are_refused() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let crons: Api<CronJob> = namespaced(&client, "default");
    let cron = |spec: Value| {
        let mut cron = json!({"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": containers()}},
        }}}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            cron["spec"][field] = value.clone();
        }
        cron
    };
    refused(&crons, cron(json!({"timeZone": "Atlantis/Capital"})), "unknown time zone Atlantis/Capital").await;
    refused(&crons, cron(json!({"schedule": "sometimes"})), "spec.schedule: Invalid value: \"sometimes\"").await;
    let jobs: Api<Job> = namespaced(&client, "default");
    let job = |restart: &str, spec: Value| {
        let template = json!({"spec": {"restartPolicy": restart, "containers": containers()}});
        let mut job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            job["spec"][field] = value.clone();
        }
        job
    };
    let rule = json!({"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {
        "operator": "In", "values": [1],
    }}]}});
    refused(&jobs, job("OnFailure", rule), "only \"Never\" is supported when podFailurePolicy is specified").await;
    let success = json!({"completions": 2, "parallelism": 1, "completionMode": "Indexed", "successPolicy": {
        "rules": [{"succeededIndexes": "5"}],
    }});
    refused(&jobs, job("Never", success), "spec.successPolicy.rules[0].succeededIndexes").await;
    let per_index = json!({"backoffLimitPerIndex": 1});
    refused(&jobs, job("Never", per_index), "requires indexed completion mode").await;
    let deployments: Api<Deployment> = namespaced(&client, "default");
    let mut all = workload("all", json!({}));
    all["spec"]["selector"] = json!({});
    refused(&deployments, all, "empty selector is invalid for deployment").await;
    let mut other = workload("other", json!({}));
    other["spec"]["selector"]["matchLabels"] = json!({"app": "b"});
    refused(&deployments, other, "`selector` does not match template `labels`").await;
    cluster.stop().await.unwrap();
}
