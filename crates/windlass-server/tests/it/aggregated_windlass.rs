//! A second server of this kind is the aggregated one: its custom resources are served by the first one as well.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use windlass_server::pki::Authority;
use windlass_server::{Listener, Server};

use crate::aggregation::{API_SERVICES, ROOT, To, service, slice, until, until_discovered, until_reason};
use crate::client::{create, get, get_with, send, send_patch};

const GADGETS: &str = "/apis/wardle.example.com/v1/namespaces/default/gadgets";

/// A server that passes requests for `wardle.example.com/v1` on, and the server that it passes them on to.
async fn both() -> (Server, Server, Listener) {
    let shared = Arc::new(Authority::generate().unwrap());
    let second = Server::builder().start().await.unwrap();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let column = json!({"name": "Size", "type": "integer", "jsonPath": ".spec.size"});
    let crd = json!({"metadata": {"name": "gadgets.wardle.example.com"}, "spec": {
        "group": "wardle.example.com", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}}, "additionalPrinterColumns": [column]}]}});
    create(&second, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    // What the certificate of the first server names may do everything here: the first one has authorised the request.
    let binding = json!({"metadata": {"name": "front-proxy"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "front-proxy-client"}]});
    create(&second, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let listener = second.listen("127.0.0.1:0".parse().unwrap(), &shared).await.unwrap();

    let first = Server::builder().front_proxy_authority(shared).start().await.unwrap();
    let spec = json!({"ports": [{"name": "https", "port": 443}]});
    create(&first, "/api/v1/namespaces/default/services", &json!({"metadata": {"name": "wardle"}, "spec": spec})).await;
    slice(&first, listener.address().port()).await;
    first.set_dialer(To(listener.address()));
    create(&first, API_SERVICES, &service(&json!({"insecureSkipTLSVerify": true}))).await;
    until_reason(&first, "Passed").await;
    until(&first, ROOT, |body| body["kind"] == "APIResourceList").await;
    (first, second, listener)
}

fn gadget(name: &str, size: u32) -> Value {
    json!({"apiVersion": "wardle.example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"size": size}})
}

/// The next event of a watch.
async fn next(body: &mut windlass_server::body::Body) -> Value {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let frame = body.frame().await.expect("an event").unwrap();
        line.extend_from_slice(&frame.into_data().unwrap());
    }
    serde_json::from_slice(&line).unwrap()
}

#[tokio::test]
async fn a_second_server_of_this_kind_is_aggregated() {
    let (first, second, listener) = both().await;
    let made = create(&first, GADGETS, &gadget("a", 1)).await;
    assert_eq!(get(&second, &format!("{GADGETS}/a")).await.body, made);
    let watch =
        format!("{GADGETS}?watch=true&resourceVersion={}", made["metadata"]["resourceVersion"].as_str().unwrap());
    let request = Request::get(watch).body(Empty::<Bytes>::new()).unwrap();
    let mut events = first.service().oneshot(request).await.unwrap().into_body();

    // Each event arrives when it happens, whichever server the write went to.
    create(&second, GADGETS, &gadget("b", 2)).await;
    let event = next(&mut events).await;
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("b")));
    let patch = json!({"spec": {"size": 3}});
    let patched = send_patch(&first, &format!("{GADGETS}/b"), "application/merge-patch+json", &patch).await;
    assert_eq!((patched.code, &patched.body["spec"]["size"]), (200, &json!(3)));
    let event = next(&mut events).await;
    assert_eq!((&event["type"], &event["object"]), (&json!("MODIFIED"), &patched.body));
    assert_eq!(send(&first, Method::DELETE, &format!("{GADGETS}/a"), &Value::Null).await.code, 200);
    assert_eq!(next(&mut events).await["type"], "DELETED");

    let list = get(&first, GADGETS).await.body;
    assert_eq!(list["items"], get(&second, GADGETS).await.body["items"]);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let table = get_with(&first, GADGETS, &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")]).await;
    let table: Value = serde_json::from_slice(table.body()).unwrap();
    assert_eq!(table["columnDefinitions"][1]["name"], "Size");
    assert_eq!(table["rows"][0]["cells"], json!(["b", 3]));
    let missing = get(&first, &format!("{GADGETS}/a")).await;
    assert_eq!((missing.code, missing.message()), (404, "gadgets.wardle.example.com \"a\" not found"));
    let again = send(&first, Method::POST, GADGETS, &gadget("b", 2)).await;
    assert_eq!((again.code, &again.body["reason"]), (409, &json!("AlreadyExists")));
    let group = until_discovered(&first, |group| group["versions"][0]["freshness"] == "Current").await;
    assert_eq!(group["versions"][0]["resources"][0]["resource"], "gadgets");

    listener.stop().await;
    second.stop().await.unwrap();
    let down = get_with(&first, GADGETS, &[]).await;
    assert_eq!(down.status(), 503);
    // The watch has ended; at most a last bookmark or error was on the way.
    while let Some(Ok(_)) = events.frame().await {}
    // The condition is looked at again when the Service changes.
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    send(&first, Method::PATCH, "/api/v1/namespaces/default/services/wardle", &patch).await;
    let condition = until_reason(&first, "FailedDiscoveryCheck").await;
    assert_eq!(condition["status"], "False");
    assert_eq!(get_with(&first, GADGETS, &[]).await.body(), "service unavailable\n");
    first.stop().await.unwrap();
}
