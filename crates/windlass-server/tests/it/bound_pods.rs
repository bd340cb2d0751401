//! Pods and the nodes that they run on: labels that follow from the node, and changes that the node must allow.

use http::Method;
use serde_json::{Value, json};
use windlass_server::{AdmissionPlugin, AdmissionPlugins, Server};

use crate::client::{create, get, send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ZONE: &str = "topology.kubernetes.io/zone";

fn node(name: &str) -> Value {
    let labels = json!({ZONE: "z", "topology.kubernetes.io/region": "r", "other": "o", "kubernetes.io/os": "linux"});
    let amounts = json!({"cpu": "2", "memory": "1Gi", "pods": "9"});
    json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts, "capacity": amounts}})
}

fn pod(name: &str, mut spec: Value) -> Value {
    let requests = json!({"requests": {"cpu": "1", "memory": "1Mi"}});
    spec["containers"] = json!([{"name": "c", "image": "i", "resources": requests}]);
    json!({"metadata": {"name": name, "labels": {ZONE: "mine"}}, "spec": spec})
}

async fn with_node() -> Server {
    let server = start().await;
    create(&server, "/api/v1/nodes", &node("n")).await;
    server
}

#[tokio::test]
async fn pods_get_the_zone_and_region_of_their_node() {
    let server = with_node().await;
    let expected = json!({ZONE: "z", "topology.kubernetes.io/region": "r"});
    let made = create(&server, PODS, &pod("named", json!({"nodeName": "n"}))).await;
    assert_eq!(made["metadata"]["labels"], expected);

    create(&server, PODS, &pod("bound", json!({}))).await;
    let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}});
    create(&server, &format!("{PODS}/bound/binding"), &binding).await;
    assert_eq!(get(&server, &format!("{PODS}/bound")).await.body["metadata"]["labels"], expected);

    let made = create(&server, PODS, &pod("elsewhere", json!({"nodeName": "unknown"}))).await;
    assert_eq!(made["metadata"]["labels"], json!({ZONE: "mine"}));
}

#[tokio::test]
async fn pods_keep_their_labels_without_the_plugin() {
    let plugins = AdmissionPlugins::default()
        .without(AdmissionPlugin::PodTopologyLabels)
        .without(AdmissionPlugin::ServiceAccount);
    let server = Server::builder().admission_plugins(plugins).start().await.unwrap();
    create(&server, "/api/v1/nodes", &node("n")).await;
    let made = create(&server, PODS, &pod("p", json!({"nodeName": "n"}))).await;
    assert_eq!(made["metadata"]["labels"], json!({ZONE: "mine"}));
}

#[tokio::test]
async fn a_resize_beyond_the_node_is_refused() {
    let server = with_node().await;
    let path = format!("{PODS}/p/resize");
    create(&server, PODS, &pod("p", json!({"nodeName": "n"}))).await;
    let resize = async |cpu: &str| {
        let mut pod = get(&server, &format!("{PODS}/p")).await.body;
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu.into();
        send(&server, Method::PUT, &path, &pod).await
    };
    assert_eq!(resize("2").await.code, 200);
    let refused = resize("3").await;
    let why = "pods \"p\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000";
    assert_eq!((refused.code, refused.message()), (403, why));
    assert_eq!(refused.body["details"]["causes"], json!([{"reason": "NodeCapacity"}]));
    send(&server, Method::DELETE, "/api/v1/nodes/n", &Value::Null).await;
    assert_eq!(resize("1").await.message(), "pods \"p\" is forbidden: node \"n\" not found");
}

#[tokio::test]
async fn a_pod_changes_only_as_its_node_supports() {
    let server = with_node().await;
    let init = json!([{"name": "i", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
    create(&server, PODS, &pod("p", json!({"nodeName": "n", "initContainers": init}))).await;
    let resize = async || {
        let mut pod = get(&server, &format!("{PODS}/p")).await.body;
        pod["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] = "2".into();
        send(&server, Method::PUT, &format!("{PODS}/p/resize"), &pod).await
    };
    let refused = resize().await;
    let why = "pods \"p\" is forbidden: pod update requires features InPlacePodVerticalScalingInitContainers which are not \
               available on node \"n\"";
    assert_eq!((refused.code, refused.message()), (403, why), "{}", refused.body);
    let declared = json!({"status": {"declaredFeatures": ["InPlacePodVerticalScalingInitContainers"]}});
    let answer = send(&server, Method::PATCH, "/api/v1/nodes/n/status", &declared).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    let answer = resize().await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}
