//! kwok's objects: stages of nodes and of other kinds, in jq and CEL, what pods use, and what nodes measure.

use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use windlass_cluster::Cluster;

use crate::objects::{create, namespaced, until};

async fn start() -> Cluster {
    Cluster::builder().nodes(1).kwok(true).start().await.unwrap()
}

/// Creates an object of kwok's.
async fn make(cluster: &Cluster, plural: &str, name: &str, spec: &str) {
    let spec: Value = serde_saphyr::from_str(spec).unwrap();
    let kind = match plural {
        "stages" => "Stage",
        "metrics" => "Metric",
        _ => "ClusterResourceUsage",
    };
    let object =
        json!({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let request = http::Request::post(format!("/apis/kwok.x-k8s.io/v1alpha1/{plural}"));
    let request = request.header("content-type", "application/json").body(object.to_string().into_bytes()).unwrap();
    cluster.client().request::<Value>(request).await.unwrap();
}

fn ready(node: &Node) -> Option<(&str, Option<&str>)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some((ready.status.as_str(), ready.reason.as_deref()))
}

/// As kwok's `node-not-ready` does.
#[tokio::test]
async fn a_stage_fails_a_node_while_it_applies() {
    let cluster = start().await;
    let nodes: Api<Node> = Api::all(cluster.client());
    until(&nodes, "node-0", |node| node.and_then(ready).is_some_and(|(status, _)| status == "True")).await;
    let spec = "
resourceRef: {apiGroup: v1, kind: Node}
selector:
  matchExpressions:
  - {key: '.metadata.labels[\"broken\"]', operator: In, values: ['true']}
  - {key: .status.phase, operator: In, values: [Running]}
  - {key: '.status.conditions.[] | select( .type == \"Ready\" ) | .status', operator: In, values: ['True']}
next:
  statusTemplate: |
    {{ $now := Now }}
    conditions:
    {{ range NodeConditions }}
    {{ if eq .type \"Ready\" }}
    - {lastHeartbeatTime: {{ $now | Quote }}, message: node failed, reason: nodeFailed, status: \"False\", type: Ready}
    {{ end }}
    {{ end }}
";
    make(&cluster, "stages", "node-not-ready", spec).await;
    let label = |value: Value| Patch::Merge(json!({"metadata": {"labels": {"broken": value}}}));
    nodes.patch("node-0", &PatchParams::default(), &label(json!("true"))).await.unwrap();
    until(&nodes, "node-0", |node| node.and_then(ready) == Some(("False", Some("nodeFailed")))).await;
    nodes.patch("node-0", &PatchParams::default(), &label(Value::Null)).await.unwrap();
    until(&nodes, "node-0", |node| node.and_then(ready) == Some(("True", Some("KubeletReady")))).await;
    cluster.stop().await.unwrap();
}

/// As kwok's stages for volumes do: claims are bound to volumes that a stage applies.
#[tokio::test]
async fn stages_of_claims_make_volumes() {
    let cluster = start().await;
    let provision = "
resourceRef: {apiGroup: v1, kind: PersistentVolumeClaim}
selector:
  matchExpressions:
  - cel: {expression: \"self.spec.storageClassName == 'kwok-volume'\"}
  - cel: {expression: '!has(self.spec.volumeName)'}
steps:
- apply:
    template: |
      apiVersion: v1
      kind: PersistentVolume
      metadata:
        name: pvc-{{ .metadata.uid }}
      spec:
        accessModes:
        {{ YAML .spec.accessModes 2 }}
        capacity:
        {{ YAML .spec.resources.requests 2 }}
        storageClassName: {{ .spec.storageClassName | Quote }}
        hostPath: {path: /tmp/kwok}
- patch:
    root: spec
    template: |
      volumeName: pvc-{{ .metadata.uid }}
";
    make(&cluster, "stages", "pvc-provision", provision).await;
    let claims: Api<PersistentVolumeClaim> = namespaced(&cluster.client(), "default");
    create(
        &claims,
        json!({"metadata": {"name": "data"}, "spec": {
            "storageClassName": "kwok-volume", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }}),
    )
    .await;
    let has_volume = |claim: Option<&PersistentVolumeClaim>| {
        claim.is_some_and(|claim| claim.spec.as_ref().unwrap().volume_name.is_some())
    };
    until(&claims, "data", has_volume).await;
    let claim = claims.get("data").await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    let volume = volumes.get(&claim.spec.unwrap().volume_name.unwrap()).await.unwrap();
    assert_eq!(volume.spec.unwrap().storage_class_name.as_deref(), Some("kwok-volume"));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn stages_of_other_kinds_come_and_go() {
    let cluster = start().await;
    let maps: Api<ConfigMap> = namespaced(&cluster.client(), "default");
    create(&maps, json!({"metadata": {"name": "before"}})).await;
    let spec = "
resourceRef: {apiGroup: v1, kind: ConfigMap}
selector: {matchExpressions: [{cel: {expression: \"!has(self.data) && self.metadata.namespace == 'default'\"}}]}
steps: [{patch: {template: 'data: {by: stage}'}}]
";
    make(&cluster, "stages", "maps", spec).await;
    let is_filled = |map: Option<&ConfigMap>| map.is_some_and(|map| map.data.is_some());
    until(&maps, "before", is_filled).await;
    create(&maps, json!({"metadata": {"name": "after"}})).await;
    until(&maps, "after", is_filled).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn usage_comes_from_expressions() {
    let cluster = start().await;
    let spec = "
selector: {matchNamespaces: [default]}
usages:
- containers: [side]
  usage: {cpu: {value: 20m}, memory: {value: 3Mi}}
- usage:
    cpu: {expression: \"'cpu' in pod.metadata.annotations ? Quantity(pod.metadata.annotations['cpu']) : Quantity('1m')\"}
    memory: {expression: 'Quantity(\"1Mi\") * size(container.name)'}
";
    make(&cluster, "clusterresourceusages", "usage", spec).await;
    let pods: Api<Pod> = namespaced(&cluster.client(), "default");
    let containers = json!([{"name": "main", "image": "i"}, {"name": "side", "image": "i"}]);
    create(
        &pods,
        json!({"metadata": {"name": "web", "annotations": {"cpu": "250m"}},
            "spec": {"nodeName": "node-0", "containers": containers}}),
    )
    .await;
    let expected = json!([
        {"name": "main", "usage": {"cpu": "250m", "memory": "4Mi"}},
        {"name": "side", "usage": {"cpu": "20m", "memory": "3Mi"}},
    ]);
    // The caches show a change a moment after the server does.
    loop {
        let path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";
        let list: Value = cluster.client().request(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
        if list["items"][0]["containers"] == expected {
            break;
        }
        tokio::task::yield_now().await;
    }
    cluster.stop().await.unwrap();
}

/// As kwok's `metrics-resource` does.
#[tokio::test]
async fn nodes_serve_the_metrics_that_objects_describe() {
    let cluster = start().await;
    let usage = "{usages: [{usage: {cpu: {value: 250m}, memory: {value: 3Mi}}}]}";
    make(&cluster, "clusterresourceusages", "usage", usage).await;
    let spec = "
path: '/metrics/nodes/{nodeName}/metrics/resource'
metrics:
- {name: scrape_error, dimension: node, help: '1 if there was an error', kind: gauge, value: '0'}
- name: container_memory_working_set_bytes
  dimension: container
  kind: gauge
  labels: [{name: pod, value: pod.metadata.name}, {name: container, value: container.name}]
  value: 'pod.Usage(\"memory\", container.name)'
- {name: pod_cpu_usage_seconds_total, dimension: pod, kind: counter, value: 'CumulativeUsage(pod, \"cpu\")'}
- {name: node_memory_working_set_bytes, kind: gauge, value: 'node.Usage(\"memory\")'}
- {name: started_total, kind: counter, value: 'StartedContainersTotal(node.metadata.name)'}
- {name: broken, kind: gauge, value: 'node.metadata.name'}
- name: latency
  kind: histogram
  buckets: [{le: 0.1, value: '1'}, {le: 0.5, value: '2', hidden: true}, {le: 1, value: '3'}]
";
    make(&cluster, "metrics", "metrics-resource", spec).await;
    let pods: Api<Pod> = namespaced(&cluster.client(), "default");
    let containers = json!([{"name": "main", "image": "i"}, {"name": "side", "image": "i"}]);
    create(&pods, json!({"metadata": {"name": "web"}, "spec": {"nodeName": "node-0", "containers": containers}})).await;
    let expected = "\
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container=\"main\",pod=\"web\"} 3.145728e+06
container_memory_working_set_bytes{container=\"side\",pod=\"web\"} 3.145728e+06
# TYPE latency histogram
latency_bucket{le=\"0.1\"} 1
latency_bucket{le=\"1\"} 6
latency_bucket{le=\"+Inf\"} 6
latency_sum 4.1
latency_count 6
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 6.291456e+06
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total 0
# HELP scrape_error 1 if there was an error
# TYPE scrape_error gauge
scrape_error 0
# TYPE started_total counter
started_total 2
";
    let get = async |path: &str| {
        let path = format!("/api/v1/nodes/node-0/proxy{path}");
        cluster.client().request_text(http::Request::get(path).body(Vec::new()).unwrap()).await
    };
    // The caches show a change a moment after the server does.
    let page = loop {
        match get("/metrics/nodes/node-0/metrics/resource").await {
            Ok(page) if page.contains("pod=\"web\"") && page.contains("started_total 2") => break page,
            _ => tokio::task::yield_now().await,
        }
    };
    let stable = |page: &str| -> Vec<String> {
        let lines = page.lines().filter(|line| !line.starts_with("pod_cpu"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(stable(&page), stable(expected));
    // Another node's metrics and other pages are not there.
    assert!(get("/metrics/nodes/node-1/metrics/resource").await.is_err());
    assert!(get("/metrics/cadvisor").await.is_err());
    cluster.stop().await.unwrap();
}
