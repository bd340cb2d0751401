//! HorizontalPodAutoscalers change the number of replicas by metrics. The clock is paused: it jumps to the next look.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::wait::Condition as _;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_cluster::Cluster;

use crate::objects::{create, namespaced, object, until, until_pods, until_within};

fn deployment(replicas: i32) -> Value {
    json!({"metadata": {"name": "d"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}},
        ]}},
    }})
}

fn autoscaler(min: i32) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    json!({"metadata": {"name": "h"}, "spec": {
        "minReplicas": min, "maxReplicas": 10,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }})
}

/// Status and reason of a condition.
fn condition<'a>(scaler: Option<&'a HorizontalPodAutoscaler>, type_: &str) -> Option<(&'a str, &'a str)> {
    let conditions = scaler?.status.as_ref()?.conditions.iter().flatten();
    let found = conditions.into_iter().find(|condition| condition.type_ == type_)?;
    Some((&found.status, found.reason.as_deref().unwrap_or_default()))
}

fn replicas(deployment: Option<&Deployment>) -> Option<i32> {
    deployment?.spec.as_ref()?.replicas
}

#[tokio::test(start_paused = true)]
async fn replicas_below_the_minimum_are_raised_without_metrics() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (deployments, scalers): (Api<Deployment>, Api<HorizontalPodAutoscaler>) =
        (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&deployments, deployment(1)).await;
    create(&scalers, autoscaler(3)).await;
    until(&deployments, "d", |deployment| replicas(deployment) == Some(3)).await;
    until(&scalers, "h", |scaler| condition(scaler, "AbleToScale") == Some(("True", "SucceededRescale"))).await;
    let status = scalers.get("h").await.unwrap().status.unwrap();
    assert_eq!((status.current_replicas, status.desired_replicas), (Some(1), 3));
    assert!(status.last_scale_time.is_some());
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn missing_metrics_and_targets_are_conditions() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (deployments, scalers): (Api<Deployment>, Api<HorizontalPodAutoscaler>) =
        (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&deployments, deployment(2)).await;
    create(&scalers, autoscaler(1)).await;
    until(&scalers, "h", |scaler| condition(scaler, "ScalingActive") == Some(("False", "FailedGetResourceMetric")))
        .await;
    let status = scalers.get("h").await.unwrap().status.unwrap();
    let said = status.conditions.unwrap().into_iter().find(|condition| condition.type_ == "ScalingActive").unwrap();
    assert_eq!(
        said.message.as_deref(),
        Some(
            "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for \
             resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested \
             resource (get pods.metrics.k8s.io)"
        )
    );
    let mut lost = autoscaler(1);
    lost["metadata"]["name"] = json!("lost");
    lost["spec"]["scaleTargetRef"]["name"] = json!("nothing");
    create(&scalers, lost).await;
    until(&scalers, "lost", |scaler| condition(scaler, "AbleToScale") == Some(("False", "FailedGetScale"))).await;
    cluster.stop().await.unwrap();
}

/// Serves the API of resource metrics.
async fn serve_metrics(client: &kube::Client) -> Api<DynamicObject> {
    serve(client, "metrics.k8s.io", "pods", "PodMetrics").await
}

/// Serves an API of metrics, as a custom resource.
async fn serve(client: &kube::Client, group: &str, plural: &str, kind: &str) -> Api<DynamicObject> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let approved = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    let (name, singular, list) = (format!("{plural}.{group}"), kind.to_lowercase(), format!("{kind}List"));
    let definition = json!({"metadata": {"name": name, "annotations": approved}, "spec": {
        "group": group, "scope": "Namespaced",
        "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": list},
        "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }}}],
    }});
    crds.create(&PostParams::default(), &object(definition)).await.unwrap();
    until(&crds, &name, |crd| kube::runtime::conditions::is_crd_established().matches_object(crd)).await;
    let resource = ApiResource {
        group: group.to_owned(),
        version: "v1beta1".to_owned(),
        api_version: format!("{group}/v1beta1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    Api::default_namespaced_with(client.clone(), &resource)
}

#[tokio::test(start_paused = true)]
async fn replicas_follow_cpu_utilization() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (deployments, scalers): (Api<Deployment>, Api<HorizontalPodAutoscaler>) =
        (namespaced(&client, "default"), namespaced(&client, "default"));
    let pods: Api<Pod> = namespaced(&client, "default");
    let measured = serve_metrics(&client).await;
    create(&deployments, deployment(2)).await;
    for pod in until_pods(&pods, "app=d", |pods| pods.len() == 2).await {
        let name = pod.name_any();
        let long_ago = "2020-01-01T00:00:00Z";
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": long_ago}]);
        let running = json!({"status": {"phase": "Running", "startTime": long_ago, "conditions": ready}});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(running)).await.unwrap();
        let usage = json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
            "metadata": {"name": name, "labels": pod.labels()}, "timestamp": "2020-01-02T00:00:00Z", "window": "15s",
            "containers": [{"name": "c", "usage": {"cpu": "100m"}}],
        });
        create(&measured, usage).await;
    }
    create(&scalers, autoscaler(1)).await;
    // Twice as much is used as wanted.
    until(&deployments, "d", |deployment| replicas(deployment) == Some(4)).await;
    until(&scalers, "h", |scaler| {
        condition(scaler, "ScalingActive") == Some(("True", "ValidMetricFound"))
            && condition(scaler, "ScalingLimited") == Some(("False", "DesiredWithinRange"))
    })
    .await;
    let metrics = scalers.get("h").await.unwrap().status.unwrap().current_metrics.unwrap();
    let current = &metrics[0].resource.as_ref().unwrap().current;
    assert_eq!((current.average_utilization, &*current.average_value.as_ref().unwrap().0), (Some(100), "100m"));
    cluster.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn replicas_follow_metrics_from_outside_the_cluster() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (deployments, scalers): (Api<Deployment>, Api<HorizontalPodAutoscaler>) =
        (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&deployments, deployment(2)).await;
    let mut scaler = autoscaler(1);
    let metric = json!({"name": "messages", "selector": {"matchLabels": {"queue": "orders"}}});
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    scaler["spec"]["metrics"] = json!([{"type": "External", "external": {"metric": metric, "target": target}}]);
    create(&scalers, scaler).await;
    until(&scalers, "h", |scaler| condition(scaler, "ScalingActive") == Some(("False", "FailedGetExternalMetric")))
        .await;
    // The name of a metric is where the API has the name of a resource.
    let messages = serve(&client, "external.metrics.k8s.io", "messages", "ExternalMetricValue").await;
    for (name, queue, value) in [("a", "orders", "30"), ("b", "orders", "20"), ("c", "returns", "500")] {
        let series = json!({
            "apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "ExternalMetricValue",
            "metadata": {"name": name, "labels": {"queue": queue}}, "value": value,
        });
        create(&messages, series).await;
    }
    // It may be looked at while not all series are there, and then again after 15 seconds.
    until_within(&deployments, "d", Duration::from_secs(120), |one| replicas(one) == Some(5)).await;
    until(&scalers, "h", |scaler| condition(scaler, "ScalingActive") == Some(("True", "ValidMetricFound"))).await;
    let metrics = scalers.get("h").await.unwrap().status.unwrap().current_metrics.unwrap();
    assert_eq!(metrics[0].external.as_ref().unwrap().metric.name, "messages");
    cluster.stop().await.unwrap();
}
