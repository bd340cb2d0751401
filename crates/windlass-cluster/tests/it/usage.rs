//! What simulated pods use, as `kubectl top` and autoscalers read it.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};
use windlass_cluster::Cluster;

use crate::objects::{create, namespaced, until};

async fn get(cluster: &Cluster, path: &str) -> Value {
    let request = http::Request::get(format!("/apis/metrics.k8s.io/v1beta1/{path}")).body(Vec::new()).unwrap();
    cluster.client().request(request).await.unwrap()
}

#[tokio::test]
async fn pods_and_nodes_have_metrics_while_containers_run() {
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let pods: Api<Pod> = namespaced(&cluster.client(), "default");
    let annotations = json!({"kwok.x-k8s.io/usage-cpu": "250m", "kwok.x-k8s.io/usage-memory": "64Mi"});
    create(
        &pods,
        json!({
            "metadata": {"name": "web", "annotations": annotations},
            "spec": {"nodeName": "node-0", "containers": [{"name": "web", "image": "nginx"}]},
        }),
    )
    .await;
    until(&pods, "web", |pod| {
        pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).is_some_and(|phase| phase == "Running")
    })
    .await;
    let usage = json!({"cpu": "250m", "memory": "64Mi"});
    // The manager's cache shows a change a moment after the server does.
    let metrics = loop {
        let list = get(&cluster, "namespaces/default/pods").await;
        if list["items"].as_array().is_some_and(|items| !items.is_empty()) {
            break list;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(metrics["items"][0]["containers"], json!([{"name": "web", "usage": usage}]));
    assert_eq!(get(&cluster, "nodes/node-0").await["usage"], usage);
    assert_eq!(get(&cluster, "nodes").await["items"][0]["metadata"]["name"], "node-0");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn clusters_without_nodes_serve_no_metrics() {
    let cluster = Cluster::start().await.unwrap();
    let request = http::Request::get("/apis/metrics.k8s.io/v1beta1/nodes").body(Vec::new()).unwrap();
    let refused = cluster.client().request::<Value>(request).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 404));
    cluster.stop().await.unwrap();
}
