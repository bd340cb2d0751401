//! Objects that nest as deep as is allowed: every path through the server walks them within the stack its
//! threads have. On any thread that is just under one mebibyte of two, unoptimised.

use http::Method;
use serde_json::{Map, Value, json};
use windlass_server::Server;
use windlass_server::depth::{self, DEEPEST, SHALLOW};

use crate::client::{Answer, apply, create, get, post, send, send_patch, send_text, start};

/// Threads that serve requests have two mebibytes.
const STACK: usize = 2 << 20;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEEPS: &str = "/apis/example.com/v1/namespaces/default/deeps";

/// `levels` objects, or lists and objects by turns.
fn nested(levels: usize, lists: bool) -> Value {
    (0..levels).fold(json!("x"), |inner, level| {
        if lists && (levels - level).is_multiple_of(2) {
            Value::Array(vec![inner])
        } else {
            Value::Object(Map::from_iter([("a".to_owned(), inner)]))
        }
    })
}

fn deep(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Deep", "metadata": {"name": name}, "spec": spec})
}

/// Runs a test on a thread with a stack of this size.
fn on_stack<F: Future<Output = ()>>(size: usize, test: impl FnOnce() -> F + Send + 'static) {
    let run = move || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    std::thread::Builder::new().stack_size(size).spawn(run).unwrap().join().unwrap();
}

async fn define(server: &Server) {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let rule = json!([{"rule": "self == self"}]);
    let ruled =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-validations": rule});
    let properties = json!({"spec": anything, "ruled": ruled});
    let definition = json!({"metadata": {"name": "deeps.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "deeps", "kind": "Deep"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}],
    }});
    create(server, DEFINITIONS, &definition).await;
}

fn accepted(answer: &Answer) {
    assert!(matches!(answer.code, 200 | 201), "{} {}", answer.code, answer.message());
}

/// Sends an object that nests this deep through every path.
async fn everywhere(deepest: usize) {
    let server = start().await;
    define(&server).await;
    for lists in [false, true] {
        let path = format!("{DEEPS}/d{lists}");
        let object = deep(&format!("d{lists}"), &nested(deepest - 1, lists));
        accepted(&post(&server, DEEPS, &object).await);
        accepted(&get(&server, &path).await);
        let mut again = get(&server, &path).await.body;
        assert!(again["spec"] == object["spec"], "it came back as it went");
        again["metadata"]["labels"] = json!({"a": "b"});
        accepted(&send(&server, Method::PUT, &path, &again).await);
        accepted(&send(&server, Method::PATCH, &path, &json!({"spec": nested(deepest - 1, lists)})).await);
        let replace = json!([{"op": "replace", "path": "/spec", "value": nested(deepest - 2, lists)}]);
        accepted(&send_patch(&server, &path, "application/json-patch+json", &replace).await);
        accepted(&apply(&server, &format!("{path}?fieldManager=m&force=true"), &object).await);
        accepted(&get(&server, DEEPS).await);
        accepted(&send(&server, Method::DELETE, &path, &Value::Null).await);
    }
    let mut ruled = deep("ruled", &json!({}));
    ruled["ruled"] = nested(deepest - 1, true);
    accepted(&post(&server, DEEPS, &ruled).await);
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let data = nested(deepest - 1, true);
    accepted(&post(&server, revisions, &json!({"metadata": {"name": "r"}, "revision": 1, "data": data})).await);
    server.stop().await.unwrap();
}

#[test]
fn what_any_thread_takes_goes_everywhere_and_leaves_stack() {
    on_stack(STACK / 4 * 3, || everywhere(SHALLOW));
}

#[test]
fn what_upstream_takes_goes_everywhere_on_threads_with_room() {
    depth::run(async || everywhere(DEEPEST).await).unwrap();
}

#[test]
fn what_nests_deeper_is_refused_on_little_stack() {
    on_stack(STACK / 4, || async {
        let server = start().await;
        define(&server).await;
        let answer = post(&server, DEEPS, &deep("d", &nested(SHALLOW, false))).await;
        assert_eq!(answer.code, 400);
        assert!(answer.message().contains("invalid character '{' exceeded max depth"), "{}", answer.message());
        accepted(&post(&server, DEEPS, &deep("d", &nested(SHALLOW - 1, false))).await);
        let value = nested(SHALLOW - 60, false);
        let path = format!("/spec{}", "/a".repeat(SHALLOW - 50));
        let deeper = json!([{"op": "add", "path": path, "value": value}]);
        let answer = send_patch(&server, &format!("{DEEPS}/d"), "application/json-patch+json", &deeper).await;
        assert_eq!(answer.code, 422, "{}", answer.message());
        for body in ["{\"a\":".repeat(500_000), "[".repeat(3_000_000)] {
            let answer = send_text(&server, DEEPS, body).await;
            assert_eq!(answer.code, 400);
            assert!(answer.message().contains("exceeded max depth"), "{}", answer.message());
        }
        server.stop().await.unwrap();
    });
}
