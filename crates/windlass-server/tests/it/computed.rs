//! Kinds whose objects are computed when they are read.

use http::Method;
use serde_json::{Value, json};
use windlass_server::{Computed, Server};

use crate::client::{create, eventually, get, get_with, send, start};

/// A kettle in each of two rooms.
struct Kettles;

impl Computed for Kettles {
    fn list(&self, namespace: Option<&str>) -> Vec<Value> {
        let rooms =
            ["attic", "kitchen"].into_iter().filter(|room| namespace.is_none_or(|namespace| namespace == *room));
        rooms.map(kettle).collect()
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Value> {
        (name == "kettle").then(|| kettle(namespace))
    }
}

fn kettle(room: &str) -> Value {
    json!({
        "kind": "Kettle", "apiVersion": "home.example.com/v1beta1",
        "metadata": {"name": "kettle", "namespace": room, "labels": {"room": room}}, "degrees": 96,
    })
}

async fn served() -> Server {
    let server = start().await;
    let schema = json!({"type": "object", "properties": {"degrees": {"type": "integer"}}});
    let columns = json!([{"name": "Degrees", "type": "integer", "jsonPath": ".degrees"}]);
    let definition = json!({"metadata": {"name": "kettles.home.example.com"}, "spec": {
        "group": "home.example.com", "scope": "Namespaced",
        "names": {"plural": "kettles", "singular": "kettle", "kind": "Kettle", "listKind": "KettleList"},
        "versions": [{
            "name": "v1beta1", "served": true, "storage": true, "additionalPrinterColumns": columns,
            "schema": {"openAPIV3Schema": schema},
        }],
    }});
    server.add_computed(&definition, Kettles);
    server
}

const KETTLES: &str = "/apis/home.example.com/v1beta1/kettles";
const KITCHEN: &str = "/apis/home.example.com/v1beta1/namespaces/kitchen/kettles";

#[tokio::test]
async fn computed_objects_are_read_and_listed() {
    let server = served().await;
    let one = get(&server, &format!("{KITCHEN}/kettle")).await;
    assert_eq!((one.code, one.body), (200, kettle("kitchen")));
    let missing = get(&server, &format!("{KITCHEN}/pot")).await;
    assert_eq!((missing.code, missing.message()), (404, "kettles.home.example.com \"pot\" not found"));
    let all = get(&server, KETTLES).await.body;
    assert_eq!((&all["kind"], &all["items"]), (&json!("KettleList"), &json!([kettle("attic"), kettle("kitchen")])));
    let some = get(&server, &format!("{KETTLES}?labelSelector=room%3Dattic")).await.body;
    assert_eq!(some["items"], json!([kettle("attic")]));
    let here = get(&server, KITCHEN).await.body;
    assert_eq!(here["items"], json!([kettle("kitchen")]));
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table: Value = serde_json::from_slice(get_with(&server, KITCHEN, &accept).await.body()).unwrap();
    assert_eq!(table["rows"][0]["cells"], json!(["kettle", 96]));
}

#[tokio::test]
async fn computed_kinds_are_discovered_and_cannot_be_written() {
    let server = served().await;
    let resources = get(&server, "/apis/home.example.com/v1beta1").await.body;
    assert_eq!(resources["resources"][0]["verbs"], json!(["get", "list"]));
    assert_eq!(get(&server, "/openapi/v3/apis/home.example.com/v1beta1").await.code, 200);
    let service = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.home.example.com";
    eventually(&server, service, |service| service.body["status"]["conditions"][0]["reason"] == "Local").await;
    let one = format!("{KITCHEN}/kettle");
    for (method, path) in [(Method::POST, KITCHEN), (Method::PUT, &one), (Method::DELETE, KITCHEN)] {
        assert_eq!(send(&server, method.clone(), path, &kettle("kitchen")).await.code, 405, "{method} {path}");
    }
    assert_eq!(get(&server, &format!("{KETTLES}?watch=true")).await.code, 405);
}

#[tokio::test]
async fn computed_kinds_stay_when_definitions_change() {
    let server = served().await;
    let definition = json!({"metadata": {"name": "foos.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    assert_eq!(get(&server, KETTLES).await.code, 200);
    assert_eq!(get(&server, "/apis/example.com/v1/foos").await.code, 200);
}
