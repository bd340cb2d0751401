//! What a node may read and write.

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;
use windlass_server::authn::User;

use crate::client::{Answer, create, send, send_to, start};

const NAMESPACE: &str = "/api/v1/namespaces/default";

/// A request of a node.
async fn by(server: &Server, node: &str, method: Method, path: &str, body: &Value) -> Answer {
    let user = User::new(format!("system:node:{node}"), ["system:nodes".to_owned()]);
    send_to(server.service_as(user), method, path, body).await
}

async fn reads(server: &Server, node: &str, path: &str) -> u16 {
    by(server, node, Method::GET, path, &Value::Null).await.code
}

fn pod(name: &str, node: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "c", "image": "i"}]);
    if !node.is_empty() {
        spec["nodeName"] = node.into();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn a_node_reads_what_its_pods_use() {
    let server = start().await;
    for name in ["s", "other"] {
        create(&server, &format!("{NAMESPACE}/secrets"), &json!({"metadata": {"name": name}})).await;
    }
    create(&server, &format!("{NAMESPACE}/configmaps"), &json!({"metadata": {"name": "c"}})).await;
    let (secret, map) = (format!("{NAMESPACE}/secrets/s"), format!("{NAMESPACE}/configmaps/c"));
    let refused = by(&server, "n", Method::GET, &secret, &Value::Null).await;
    let words = "secrets \"s\" is forbidden: User \"system:node:n\" cannot get resource \"secrets\" in API group \"\" in \
                 the namespace \"default\": no relationship found between node 'n' and this object";
    assert_eq!((refused.code, refused.message()), (403, words));

    let volumes = json!([{"name": "v", "secret": {"secretName": "s"}}, {"name": "w", "configMap": {"name": "c"}}]);
    let body = pod("p", "", json!({ "volumes": volumes }));
    create(&server, &format!("{NAMESPACE}/pods"), &body).await;
    assert_eq!(reads(&server, "n", &secret).await, 403, "the pod is not bound yet");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    create(&server, &format!("{NAMESPACE}/pods/p/binding"), &binding).await;
    for path in [&secret, &map, &format!("{NAMESPACE}/pods/p")] {
        assert_eq!(reads(&server, "n", path).await, 200, "{path}");
        assert_eq!(reads(&server, "m", path).await, 403, "{path}");
    }
    assert_eq!(reads(&server, "n", &format!("{NAMESPACE}/secrets/other")).await, 403);
    assert_eq!(reads(&server, "n", &format!("{NAMESPACE}/secrets")).await, 403);

    let gone = format!("{NAMESPACE}/pods/p?gracePeriodSeconds=0");
    assert_eq!(send(&server, Method::DELETE, &gone, &Value::Null).await.code, 200);
    assert_eq!(reads(&server, "n", &secret).await, 403);
}

#[tokio::test]
async fn a_node_reads_the_volumes_of_its_claims() {
    let server = start().await;
    create(&server, &format!("{NAMESPACE}/secrets"), &json!({"metadata": {"name": "key"}})).await;
    let size = json!({"storage": "1Gi"});
    let volume = json!({"metadata": {"name": "v"}, "spec": {
        "capacity": size, "accessModes": ["ReadWriteOnce"], "claimRef": {"namespace": "default", "name": "c"},
        "csi": {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": {"namespace": "default", "name": "key"}},
    }});
    create(&server, "/api/v1/persistentvolumes", &volume).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "volumeName": "v", "accessModes": ["ReadWriteOnce"], "resources": {"requests": size},
    }});
    create(&server, &format!("{NAMESPACE}/persistentvolumeclaims"), &claim).await;
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    create(&server, &format!("{NAMESPACE}/pods"), &pod("p", "n", json!({ "volumes": volumes }))).await;
    for path in [
        "/api/v1/namespaces/default/persistentvolumeclaims/c",
        "/api/v1/persistentvolumes/v",
        "/api/v1/namespaces/default/secrets/key",
    ] {
        assert_eq!(reads(&server, "n", path).await, 200, "{path}");
        assert_eq!(reads(&server, "m", path).await, 403, "{path}");
    }
}

#[tokio::test]
async fn a_node_lists_its_own_pods_only() {
    let server = start().await;
    let own = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn";
    assert_eq!((reads(&server, "n", own).await, reads(&server, "m", own).await), (200, 403));
    assert_eq!(reads(&server, "n", "/api/v1/pods").await, 403);
    assert_eq!(reads(&server, "n", "/api/v1/services").await, 200);
    assert_eq!(reads(&server, "n", "/api/v1/nodes/n").await, 404);
    assert_eq!(reads(&server, "n", "/api/v1/nodes/m").await, 403);
    let nobody = User::new("system:node:n", []);
    let answer = send_to(server.service_as(nobody), Method::GET, own, &Value::Null).await;
    assert_eq!(answer.code, 403, "a name alone does not make a node");
}

#[tokio::test]
async fn a_node_writes_nothing_of_others() {
    let server = start().await;
    let refusal = async |method: Method, path: &str, body: Value| {
        let answer = by(&server, "n", method, path, &body).await;
        assert_eq!(answer.code, 403, "{}", answer.body);
        answer.message().to_owned()
    };
    let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let words = "nodes \"m\" is forbidden: node \"n\" is not allowed to modify node \"m\"";
    assert_eq!(refusal(Method::POST, "/api/v1/nodes", node("m", json!({}))).await, words);
    let words = "nodes \"n\" is forbidden: node \"n\" is not allowed to set the following labels: k8s.io/a";
    assert_eq!(refusal(Method::POST, "/api/v1/nodes", node("n", json!({"k8s.io/a": "b"}))).await, words);
    let made = by(&server, "n", Method::POST, "/api/v1/nodes", &node("n", json!({"own": "a"}))).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let taints = json!({"spec": {"taints": []}});
    let words = "nodes \"n\" is forbidden: node \"n\" is not allowed to modify taints";
    assert_eq!(refusal(Method::PATCH, "/api/v1/nodes/n", taints).await, words);

    create(&server, &format!("{NAMESPACE}/pods"), &pod("far", "m", json!({}))).await;
    let words = "pods \"far\" is forbidden: node \"n\" can only delete pods with spec.nodeName set to itself";
    assert_eq!(refusal(Method::DELETE, &format!("{NAMESPACE}/pods/far"), Value::Null).await, words);
    let eviction = json!({"metadata": {"name": "far"}});
    let words = "pods \"far\" is forbidden: node n can only evict pods with spec.nodeName set to itself";
    assert_eq!(refusal(Method::POST, &format!("{NAMESPACE}/pods/far/eviction"), eviction).await, words);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let words = "leases.coordination.k8s.io \"m\" is forbidden: can only access node lease with the same name as the \
                 requesting node";
    assert_eq!(refusal(Method::POST, leases, json!({"metadata": {"name": "m"}})).await, words);
    assert_eq!(by(&server, "n", Method::POST, leases, &json!({"metadata": {"name": "n"}})).await.code, 201);
}

#[tokio::test]
async fn a_node_asks_for_tokens_of_its_pods() {
    let server = start().await;
    create(&server, &format!("{NAMESPACE}/serviceaccounts"), &json!({"metadata": {"name": "robot"}})).await;
    let sources = json!([{"serviceAccountToken": {"path": "token"}}]);
    let volumes = json!([{"name": "t", "projected": {"sources": sources}}]);
    let spec = json!({"serviceAccountName": "robot", "volumes": volumes});
    let made = create(&server, &format!("{NAMESPACE}/pods"), &pod("p", "n", spec)).await;
    let token = format!("{NAMESPACE}/serviceaccounts/robot/token");
    let reference = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]});
    let request = |spec: Value| json!({ "spec": spec });
    let bound = request(json!({ "boundObjectRef": reference }));
    assert_eq!(by(&server, "n", Method::POST, &token, &bound).await.code, 201);
    assert_eq!(by(&server, "m", Method::POST, &token, &bound).await.code, 403);
    let unbound = by(&server, "n", Method::POST, &token, &request(json!({}))).await;
    assert_eq!(unbound.message(), "serviceaccounts \"robot\" is forbidden: node requested token not bound to a pod");
    let elsewhere = request(json!({"boundObjectRef": reference, "audiences": ["vault"]}));
    let refused = by(&server, "n", Method::POST, &token, &elsewhere).await;
    assert!(refused.message().ends_with("is not authorized to request tokens for audience \"vault\""), "{refused:?}");
}
