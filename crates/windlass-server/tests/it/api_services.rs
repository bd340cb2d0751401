//! The APIServices of what the server serves itself.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;
use windlass_store::{Memory, Store};

use crate::client::{create, eventually, get, get_with, send, start};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

fn path(name: &str) -> String {
    format!("{SERVICES}/{name}")
}

/// A definition whose versions are served or not.
fn definition(plural: &str, versions: &[(&str, bool)]) -> Value {
    let version = |(i, (name, served)): (usize, &(&str, bool))| json!({"name": name, "served": served, "storage": i == 0, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": {"plural": plural, "kind": plural}}})
}

async fn there(server: &Server, name: &str) -> Value {
    eventually(server, &path(name), |answer| answer.code == 200).await
}

async fn gone(server: &Server, name: &str) {
    eventually(server, &path(name), |answer| answer.code == 404).await;
}

async fn delete(server: &Server, path: &str) {
    assert_eq!(send(server, Method::DELETE, path, &Value::Null).await.code, 200);
}

async fn change(server: &Server, path: &str, patch: Value) {
    let answer = send(server, Method::PATCH, path, &patch).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

#[tokio::test]
async fn every_builtin_group_version_has_one() {
    let server = start().await;
    let list = get(&server, SERVICES).await.body;
    let items = list["items"].as_array().unwrap();
    let shown: Vec<String> = items
        .iter()
        .map(|item| {
            assert_eq!(item["metadata"]["labels"], json!({MANAGED: "onstart"}));
            let condition = &item["status"]["conditions"][0];
            let said = [&condition["type"], &condition["status"], &condition["reason"], &condition["message"]];
            assert_eq!(said, ["Available", "True", "Local", "Local APIServices are always available"]);
            assert_eq!(condition["lastTransitionTime"], item["metadata"]["creationTimestamp"]);
            let (spec, name) = (&item["spec"], item["metadata"]["name"].as_str().unwrap());
            let group = spec["group"].as_str().unwrap_or_default();
            assert_eq!(format!("{}.{group}", spec["version"].as_str().unwrap()), name);
            format!("{name} {} {}", spec["groupPriorityMinimum"], spec["versionPriority"])
        })
        .collect();
    let expected = [
        "v1. 18000 1",
        "v1.admissionregistration.k8s.io 16700 15",
        "v1.apiextensions.k8s.io 16700 15",
        "v1.apps 17800 15",
        "v1.authentication.k8s.io 17700 15",
        "v1.authorization.k8s.io 17600 15",
        "v1.autoscaling 17500 15",
        "v1.batch 17400 15",
        "v1.certificates.k8s.io 17300 15",
        "v1.coordination.k8s.io 16500 15",
        "v1.discovery.k8s.io 16200 15",
        "v1.events.k8s.io 17750 15",
        "v1.flowcontrol.apiserver.k8s.io 16100 21",
        "v1.networking.k8s.io 17200 15",
        "v1.node.k8s.io 16300 15",
        "v1.policy 17100 15",
        "v1.rbac.authorization.k8s.io 17000 15",
        "v1.resource.k8s.io 16200 21",
        "v1.scheduling.k8s.io 16600 15",
        "v1.storage.k8s.io 16800 15",
        "v2.autoscaling 17500 30",
    ];
    assert_eq!(shown, expected);
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let answer = get_with(&server, &path("v1.apps"), &table).await;
    let table: Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("v1.apps"), json!("Local"), json!("True")]);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn builtin_api_services_return_on_restart() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let start = || Server::builder().store(Arc::clone(&store)).start();
    let server = start().await.unwrap();
    create(&server, DEFINITIONS, &definition("lamps", &[("v1", true)])).await;
    let before = there(&server, "v1.example.com").await;
    delete(&server, &path("v1.apps")).await;
    change(&server, &path("v1.batch"), json!({"spec": {"versionPriority": 7}})).await;
    let own = json!({"metadata": {"labels": {MANAGED: null}}, "spec": {"versionPriority": 7}});
    change(&server, &path("v1.policy"), own).await;
    let other = json!({"metadata": {"name": "v9.example.com", "labels": {MANAGED: "onstart"}}, "spec": {
        "group": "example.com", "version": "v9", "groupPriorityMinimum": 5, "versionPriority": 5}});
    create(&server, SERVICES, &other).await;
    // What comes back shows that all of this has been looked at.
    delete(&server, &path("v1.example.com")).await;
    let after = there(&server, "v1.example.com").await;
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(get(&server, &path("v1.apps")).await.code, 404);
    for (name, priority) in [("v1.batch", 7), ("v1.policy", 7), ("v9.example.com", 5)] {
        assert_eq!(get(&server, &path(name)).await.body["spec"]["versionPriority"], priority, "{name}");
    }
    drop(server);

    let server = start().await.unwrap();
    for (name, priority) in [("v1.apps", 15), ("v1.batch", 15), ("v1.policy", 7), ("v1.example.com", 100)] {
        assert_eq!(get(&server, &path(name)).await.body["spec"]["versionPriority"], priority, "{name}");
    }
    assert_eq!(get(&server, &path("v9.example.com")).await.code, 404);
    assert_eq!(get(&server, &path("v1.example.com")).await.body, after);
    drop(server);

    // Once all is well, a start writes nothing.
    let revision = *store.revision().borrow();
    drop(start().await.unwrap());
    assert_eq!(*store.revision().borrow(), revision);
}

#[tokio::test]
async fn those_of_definitions_follow_what_is_served() {
    let server = start().await;
    create(&server, DEFINITIONS, &definition("lamps", &[("v1", true), ("v2", false)])).await;
    create(&server, DEFINITIONS, &definition("cogs", &[("v1", true), ("v3", true)])).await;
    let made = there(&server, "v1.example.com").await;
    assert_eq!(made["metadata"]["labels"], json!({MANAGED: "true"}));
    let spec = json!({"group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100});
    assert_eq!(made["spec"], spec);
    assert_eq!(made["status"]["conditions"][0]["reason"], "Local");
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "kube-apiserver");
    there(&server, "v3.example.com").await;
    assert_eq!(get(&server, &path("v2.example.com")).await.code, 404);

    change(&server, &path("v1.example.com"), json!({"spec": {"groupPriorityMinimum": 5}})).await;
    eventually(&server, &path("v1.example.com"), |answer| answer.body["spec"] == spec).await;

    let lamps = format!("{DEFINITIONS}/lamps.example.com");
    let served = definition("lamps", &[("v1", true), ("v2", true)])["spec"]["versions"].clone();
    change(&server, &lamps, json!({"spec": {"versions": served}})).await;
    there(&server, "v2.example.com").await;
    delete(&server, &lamps).await;
    gone(&server, "v2.example.com").await;
    // The other definition has it, too.
    assert_eq!(get(&server, &path("v1.example.com")).await.code, 200);
    delete(&server, &format!("{DEFINITIONS}/cogs.example.com")).await;
    gone(&server, "v1.example.com").await;
    gone(&server, "v3.example.com").await;
    assert_eq!(get(&server, SERVICES).await.body["items"].as_array().unwrap().len(), 21);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_served_here_stays_available() {
    let server = start().await;
    let status = format!("{}/status", path("v1.apps"));
    change(&server, &status, json!({"status": {"conditions": null}})).await;
    let is_local = |answer: &crate::client::Answer| answer.body["status"]["conditions"][0]["reason"] == "Local";
    eventually(&server, &path("v1.apps"), is_local).await;
    let elsewhere = json!({"metadata": {"name": "v1.metrics.example.com"}, "spec": {
        "group": "metrics.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "metrics"}}});
    let made = create(&server, SERVICES, &elsewhere).await;
    assert_eq!(made["status"], json!({}));
    server.stop().await.unwrap();
}
