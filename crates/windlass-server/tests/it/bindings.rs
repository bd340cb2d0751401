//! `pods/binding`: what a scheduler may do, and when.

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;

use crate::client::{create, get, post, send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn pod(server: &Server, name: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "c", "image": "i"}]);
    create(server, PODS, &json!({"metadata": {"name": name}, "spec": spec})).await
}

async fn bind(server: &Server, name: &str, mut metadata: Value, target: Value) -> (u16, String) {
    metadata["name"] = name.into();
    let answer =
        post(server, &format!("{PODS}/{name}/binding"), &json!({"metadata": metadata, "target": target})).await;
    (answer.code, answer.message().to_owned())
}

fn node() -> Value {
    json!({"kind": "Node", "name": "n"})
}

/// Upstream does not make a Status of these errors, so they are the server's fault.
#[tokio::test]
async fn a_binding_is_to_a_node() {
    let server = start().await;
    pod(&server, "p", json!({})).await;
    let kind = r#"target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>""#;
    for (target, message) in [
        (json!({"kind": "Pod", "name": "n"}), kind.to_owned()),
        (json!({"kind": "Node", "name": ""}), "target.name: Required value".into()),
        (json!({"kind": "Pod"}), format!("[{kind}, target.name: Required value]")),
    ] {
        assert_eq!(bind(&server, "p", json!({}), target).await, (500, message));
    }
    let answer = post(&server, &format!("{PODS}/p/binding"), &json!({"metadata": {"name": "p"}, "target": {}})).await;
    assert!(answer.body["reason"].is_null() && answer.body["details"].is_null(), "{}", answer.body);
    // `ValidatePodBinding` does not look at what the node is called.
    assert_eq!(bind(&server, "p", json!({}), json!({"name": "N["})).await.0, 201);
}

#[tokio::test]
async fn a_binding_may_name_the_pod_it_means() {
    let server = start().await;
    let made = pod(&server, "p", json!({})).await;
    let (uid, version) = (&made["metadata"]["uid"], &made["metadata"]["resourceVersion"]);
    let failed = |why: String| {
        let store = "StorageError: invalid object, Code: 4, Key: /registry/pods/default/p, ResourceVersion: 0";
        let refusal = "Operation cannot be fulfilled on pods \"p\"";
        (409, format!("{refusal}: {store}, AdditionalErrorMsg: Precondition failed: {why}"))
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let other = bind(&server, "p", json!({"uid": "bad"}), node()).await;
    assert_eq!(other, failed(format!("UID in precondition: bad, UID in object meta: {}", text(uid))));
    let older = bind(&server, "p", json!({"uid": uid, "resourceVersion": "1"}), node()).await;
    let words = format!("ResourceVersion in precondition: 1, ResourceVersion in object meta: {}", text(version));
    assert_eq!(older, failed(words));
    assert_eq!(bind(&server, "p", json!({"uid": uid, "resourceVersion": version}), node()).await.0, 201);

    // Without a name in the path the uid is not looked at, as upstream wipes it from what is not a subresource.
    pod(&server, "q", json!({})).await;
    let binding = json!({"metadata": {"name": "q", "uid": "bad"}, "target": node()});
    assert_eq!(post(&server, "/api/v1/namespaces/default/bindings", &binding).await.code, 201);
}

#[tokio::test]
async fn pods_that_cannot_be_assigned_say_so() {
    let server = start().await;
    let refused = |name: &str, why: &str| {
        (409, format!("Operation cannot be fulfilled on pods/binding \"{name}\": pod {name} {why}"))
    };
    pod(&server, "gated", json!({"schedulingGates": [{"name": "example.com/g"}]})).await;
    let gated = bind(&server, "gated", json!({}), node()).await;
    assert_eq!(gated, refused("gated", "has non-empty .spec.schedulingGates"));

    pod(&server, "taken", json!({"nodeName": "m"})).await;
    let taken = bind(&server, "taken", json!({}), node()).await;
    assert_eq!(taken, refused("taken", "is already assigned to node \"m\""));

    pod(&server, "going", json!({})).await;
    let finalizer = json!({"metadata": {"finalizers": ["example.com/f"]}});
    send(&server, Method::PATCH, &format!("{PODS}/going"), &finalizer).await;
    send(&server, Method::DELETE, &format!("{PODS}/going"), &Value::Null).await;
    let going = bind(&server, "going", json!({}), node()).await;
    assert_eq!(going, refused("going", "is being deleted, cannot be assigned to a host"));
}

#[tokio::test]
async fn a_binding_leaves_its_marks_on_the_pod() {
    let server = start().await;
    pod(&server, "p", json!({})).await;
    let nominated = json!({"status": {"nominatedNodeName": "m"}});
    assert_eq!(send(&server, Method::PATCH, &format!("{PODS}/p/status"), &nominated).await.code, 200);
    let marks = json!({"labels": {"zone": "a"}, "annotations": {"by": "me"}});
    assert_eq!(bind(&server, "p", marks, node()).await.0, 201);
    let now = get(&server, &format!("{PODS}/p")).await.body;
    assert_eq!(now["spec"]["nodeName"], "n");
    assert_eq!(now["metadata"]["labels"], json!({"zone": "a"}));
    assert_eq!(now["metadata"]["annotations"], json!({"by": "me"}));
    assert_eq!(now["metadata"]["generation"], 1);
    assert!(now["status"]["nominatedNodeName"].is_null());
    assert_eq!(now["status"]["conditions"][0]["type"], "PodScheduled");

    // What no pod may say of its init containers is not said by way of a Binding either.
    pod(&server, "q", json!({})).await;
    let forged = json!({"annotations": {"pod.beta.kubernetes.io/init-containers": "[]"}});
    assert_eq!(bind(&server, "q", forged, node()).await.0, 201);
    assert!(get(&server, &format!("{PODS}/q")).await.body["metadata"]["annotations"].is_null());
}

/// `NamespaceLifecycle` looks at what subresources create as well: `kubectl drain` reads the cause of the second.
#[tokio::test]
async fn subresources_create_nothing_without_their_namespace() {
    let server = start().await;
    let binding = json!({"metadata": {"name": "p"}, "target": node()});
    let eviction = json!({"metadata": {"name": "p"}});
    let token = json!({"spec": {"audiences": ["a"]}});
    let requests = [
        ("bindings", "bindings", &binding),
        ("pods/p/binding", "pods", &binding),
        ("pods/p/eviction", "pods", &eviction),
        ("serviceaccounts/p/token", "serviceaccounts", &token),
    ];
    for (path, _, body) in requests {
        let answer = post(&server, &format!("/api/v1/namespaces/none/{path}"), body).await;
        assert_eq!((answer.code, answer.message()), (404, "namespaces \"none\" not found"), "{path}");
    }
    create(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "going"}})).await;
    create(
        &server,
        "/api/v1/namespaces/going/pods",
        &json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    )
    .await;
    send(&server, Method::DELETE, "/api/v1/namespaces/going", &Value::Null).await;
    for (path, resource, body) in requests {
        let answer = post(&server, &format!("/api/v1/namespaces/going/{path}"), body).await;
        let why = "unable to create new content in namespace going because it is being terminated";
        assert_eq!((answer.code, answer.message()), (403, &*format!("{resource} \"p\" is forbidden: {why}")), "{path}");
        assert_eq!(answer.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    }
    // What a review says must not depend on whether there is the namespace.
    let review = json!({"spec": {"user": "jane", "resourceAttributes": {"namespace": "none", "verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/namespaces/none/localsubjectaccessreviews";
    assert_eq!(post(&server, path, &review).await.code, 201);
}

/// Upstream's `bindings` is a resource of its own, so what is about pods does not look at it.
#[tokio::test]
async fn pod_security_does_not_judge_bindings() {
    let server = start().await;
    let labels =
        json!({"pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/warn": "restricted"});
    create(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "strict", "labels": labels}})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(&server, "/api/v1/namespaces/strict/pods", &pod).await;
    let binding = json!({"metadata": {"name": "p"}, "target": node()});
    let answer = post(&server, "/api/v1/namespaces/strict/bindings", &binding).await;
    assert_eq!((answer.code, &answer.warnings), (201, &Vec::new()), "{}", answer.body);
}
