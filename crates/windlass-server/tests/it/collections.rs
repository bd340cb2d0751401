//! A collection that is deleted leaves other requests their turn.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;

use crate::client::{create, get, send, send_to, start};

const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server with objects of this size, and a ConfigMap.
async fn start_with(objects: usize, bytes: usize) -> Arc<Server> {
    let server = start().await;
    let items = vec!["x".repeat(50); bytes / 53];
    for i in 0..objects {
        let revision = json!({"metadata": {"name": format!("r{i}")}, "revision": 1, "data": {"items": items}});
        create(&server, REVISIONS, &revision).await;
    }
    create(&server, CONFIG_MAPS, &json!({"metadata": {"name": "bystander"}})).await;
    Arc::new(server)
}

/// How often `other` is answered before the collection is deleted. Everything shares one thread, but for what is done
/// elsewhere.
async fn answered_beside(server: &Arc<Server>, other: impl AsyncFn(&Server)) -> usize {
    let deleting = tokio::spawn(send_to(server.service(), Method::DELETE, REVISIONS, &Value::Null));
    let mut answered = 0;
    while !deleting.is_finished() {
        tokio::task::yield_now().await;
        other(server).await;
        answered += 1;
    }
    let deleted = deleting.await.unwrap();
    assert_eq!(deleted.code, 200, "{}", deleted.message());
    assert_eq!(get(server, REVISIONS).await.body["items"], json!([]));
    answered
}

async fn read(server: &Server) {
    assert_eq!(get(server, &format!("{CONFIG_MAPS}/bystander")).await.code, 200);
}

#[tokio::test]
async fn many_small_objects_are_not_deleted_where_requests_are_served() {
    let server = start_with(400, 4_000).await;
    let answered = answered_beside(&server, read).await;
    assert!(answered > 10, "{answered}");
}

#[tokio::test]
async fn large_objects_are_not_deleted_where_requests_are_served() {
    let server = start_with(20, 500_000).await;
    let answered = answered_beside(&server, read).await;
    assert!(answered > 10, "{answered}");
}

#[tokio::test]
async fn other_large_requests_do_not_wait_for_a_whole_collection() {
    let server = start_with(60, 100_000).await;
    let write = async |server: &Server| {
        let change = json!({"data": {"k": "x".repeat(20_000)}});
        assert_eq!(send(server, Method::PATCH, &format!("{CONFIG_MAPS}/bystander"), &change).await.code, 200);
    };
    let answered = answered_beside(&server, write).await;
    assert!(answered > 5, "{answered}");
}

#[tokio::test]
async fn deleting_large_custom_objects_does_not_delay_others() {
    let server = start().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({"metadata": {"name": "loads.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "loads", "kind": "Load"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(&server, crds, &crd).await;
    let items = vec!["x".repeat(50); 10_000];
    for i in 0..20 {
        let load = json!({"apiVersion": "example.com/v1", "kind": "Load", "metadata": {"name": format!("l{i}")},
            "items": items});
        create(&server, "/apis/example.com/v1/namespaces/default/loads", &load).await;
    }
    create(&server, CONFIG_MAPS, &json!({"metadata": {"name": "bystander"}})).await;
    let path = format!("{crds}/loads.example.com");
    assert_eq!(send(&server, Method::DELETE, &path, &Value::Null).await.code, 200);
    let mut answered = 0;
    while get(&server, &path).await.code == 200 {
        read(&server).await;
        tokio::task::yield_now().await;
        answered += 1;
    }
    assert!(answered > 10, "{answered}");
    server.stop().await.unwrap();
}
