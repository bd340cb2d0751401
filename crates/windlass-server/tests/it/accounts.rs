//! The account that a pod runs as, and its token.

use http::Method;
use serde_json::{Value, json};
use windlass_server::{AdmissionPlugin, AdmissionPlugins, Server};

use crate::client::{create, post, send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

async fn with_accounts() -> Server {
    Server::builder().admission_plugins(AdmissionPlugins::default()).start().await.unwrap()
}

fn pod(name: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "c", "image": "i"}]);
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn pods_get_the_default_account_and_its_token() {
    let server = with_accounts().await;
    let made = create(&server, PODS, &pod("p", json!({}))).await;
    let spec = &made["spec"];
    assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
    let volume = &spec["volumes"][0];
    assert_eq!(
        volume["projected"]["sources"][0],
        json!({"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}})
    );
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!((&mount["name"], &mount["mountPath"]), (&volume["name"], &json!(MOUNT_PATH)));

    let quiet = create(&server, PODS, &pod("q", json!({"automountServiceAccountToken": false}))).await;
    assert_eq!((&quiet["spec"]["volumes"], &quiet["spec"]["serviceAccountName"]), (&Value::Null, &json!("default")));
}

#[tokio::test]
async fn pods_follow_their_account_at_once() {
    let server = with_accounts().await;
    create(&server, ACCOUNTS, &json!({"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "registry"}]}))
        .await;
    let made = create(&server, PODS, &pod("a", json!({"serviceAccountName": "robot"}))).await;
    assert_eq!(made["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
    let change = json!({"automountServiceAccountToken": false, "imagePullSecrets": null});
    assert_eq!(send(&server, Method::PATCH, &format!("{ACCOUNTS}/robot"), &change).await.code, 200);
    let made = create(&server, PODS, &pod("b", json!({"serviceAccountName": "robot"}))).await;
    assert_eq!((&made["spec"]["volumes"], &made["spec"]["imagePullSecrets"]), (&Value::Null, &Value::Null));

    let words = "pods \"c\" is forbidden: error looking up service account default/nobody: serviceaccount \"nobody\" \
                 not found";
    let refused = post(&server, PODS, &pod("c", json!({"serviceAccountName": "nobody"}))).await;
    assert_eq!((refused.code, refused.message()), (403, words));
}

#[tokio::test(start_paused = true)]
async fn a_new_namespace_refuses_pods_until_it_has_an_account() {
    let server = with_accounts().await;
    create(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "new"}})).await;
    let pods = "/api/v1/namespaces/new/pods";
    let words = "pods \"p\" is forbidden: error looking up service account new/default: serviceaccount \"default\" not \
                 found";
    let refused = post(&server, pods, &pod("p", json!({}))).await;
    assert_eq!((refused.code, refused.message()), (403, words));
    let pod = pod("p", json!({}));
    let account = json!({"metadata": {"name": "default"}});
    let (waited, _) =
        tokio::join!(create(&server, pods, &pod), create(&server, "/api/v1/namespaces/new/serviceaccounts", &account),);
    assert_eq!(waited["spec"]["serviceAccountName"], "default");
}

#[tokio::test]
async fn plugins_can_be_switched_off() {
    // A server alone has no controller to make accounts.
    let server = start().await;
    let made = create(&server, PODS, &pod("p", json!({}))).await;
    assert_eq!(made["spec"]["serviceAccountName"], Value::Null);
    assert_eq!(made["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
    let node = json!({"metadata": {"name": "n"}});
    let tainted = create(&server, "/api/v1/nodes", &node).await;
    assert_eq!(tainted["spec"]["taints"], json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]));

    let off = [AdmissionPlugin::DefaultTolerationSeconds, AdmissionPlugin::TaintNodesByCondition];
    let plugins = off.into_iter().fold(AdmissionPlugins::default(), AdmissionPlugins::without);
    let server = Server::builder().admission_plugins(plugins).start().await.unwrap();
    let made = create(&server, PODS, &pod("p", json!({}))).await;
    assert_eq!((&made["spec"]["tolerations"], &made["spec"]["serviceAccountName"]), (&Value::Null, &json!("default")));
    assert_eq!(create(&server, "/api/v1/nodes", &node).await["spec"]["taints"], Value::Null);
}

#[tokio::test]
async fn claims_get_the_default_class_and_grow_if_it_allows() {
    let server = start().await;
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, size: &str| {
        let resources = json!({"requests": {"storage": size}});
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}})
    };
    let class = |name: &str, expands: bool| {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        json!({
            "metadata": {"name": name, "annotations": annotations}, "provisioner": "p", "allowVolumeExpansion": expands,
        })
    };
    let early = create(&server, claims, &claim("early", "1Gi")).await;
    assert_eq!(early["spec"]["storageClassName"], Value::Null);
    create(&server, classes, &class("fixed", false)).await;
    let made = create(&server, claims, &claim("c", "1Gi")).await;
    assert_eq!(made["spec"]["storageClassName"], "fixed");

    let grow = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let path = format!("{claims}/c");
    assert_eq!(send(&server, Method::PATCH, &path, &grow).await.code, 422, "a claim that is not bound");
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    assert_eq!(send(&server, Method::PATCH, &format!("{path}/status"), &bound).await.code, 200);
    let refused = send(&server, Method::PATCH, &path, &grow).await;
    assert!(refused.message().ends_with("the storageclass that provisions the pvc must support resize"), "{refused:?}");
    let allow = json!({"allowVolumeExpansion": true});
    assert_eq!(send(&server, Method::PATCH, &format!("{classes}/fixed"), &allow).await.code, 200);
    assert_eq!(send(&server, Method::PATCH, &path, &grow).await.code, 200);
}

#[tokio::test]
async fn system_priority_classes_stay() {
    let server = start().await;
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical";
    let refused = send(&server, Method::DELETE, path, &Value::Null).await;
    let words = "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority \
                 class and cannot be deleted";
    assert_eq!((refused.code, refused.message()), (403, words));
}
