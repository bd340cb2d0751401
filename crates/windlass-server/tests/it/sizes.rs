//! Objects that are too large are refused in etcd's words, however they are written.

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value, json};
use windlass_server::Server;
use windlass_store::{Expect, Memory, Store, Value as StoreValue, Write};

use crate::client::{Answer, apply, create, get, post, send, send_bytes, send_patch, start};
use crate::hook::{Hook, Reply, patch};

const LOADS: &str = "/apis/example.com/v1/namespaces/default/loads";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REFUSED: &str = "etcdserver: request is too large";
const KIB: usize = 1024;

/// A server with a custom resource that holds anything.
async fn start_with_loads() -> Server {
    let server = start().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({"metadata": {"name": "loads.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "loads", "kind": "Load"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}}}]}});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    server
}

fn text(kib: usize) -> String {
    "x".repeat(kib * KIB)
}

fn load(name: &str, kib: usize) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Load", "metadata": {"name": name}, "spec": {"first": text(kib)}})
}

#[track_caller]
fn check_refused(answer: &Answer, message: &str) {
    let body = &answer.body;
    assert_eq!(
        (answer.code, answer.message()),
        (500, message),
        "{}",
        &body.to_string()[..200.min(body.to_string().len())]
    );
    assert_eq!((body.get("reason"), body.get("details")), (None, None));
}

/// What etcd's client says about an object that it does not even send.
#[track_caller]
fn check_not_sent(answer: &Answer) {
    let size = answer
        .message()
        .strip_prefix("rpc error: code = ResourceExhausted desc = trying to send message larger than max (");
    let size = size.and_then(|rest| rest.strip_suffix(" vs. 2097152)")?.parse::<usize>().ok());
    assert!(size.is_some_and(|size| size > 2048 * KIB), "{} {}", answer.code, answer.message());
    check_refused(answer, answer.message());
}

#[tokio::test]
async fn created_objects_have_at_most_a_megabyte_and_a_half() {
    let server = start_with_loads().await;
    create(&server, LOADS, &load("fits", 1500)).await;
    check_refused(&post(&server, LOADS, &load("large", 1600)).await, REFUSED);
    check_not_sent(&post(&server, LOADS, &load("huge", 2500)).await);
    let body = post(&server, LOADS, &load("body", 3100)).await;
    let limit = "Request entity too large: limit is 3145728";
    assert_eq!((body.code, body.message(), &body.body["reason"]), (413, limit, &json!("RequestEntityTooLarge")));
    for name in ["large", "huge", "body"] {
        assert_eq!(get(&server, &format!("{LOADS}/{name}")).await.code, 404);
    }
    let path = format!("{LOADS}/applied?fieldManager=m");
    check_refused(&apply(&server, &path, &load("applied", 1600)).await, REFUSED);
    // Nothing is stored by a dry run.
    assert_eq!(post(&server, &format!("{LOADS}?dryRun=All"), &load("dry", 2500)).await.code, 201);
    let revision = |kib: usize| json!({"metadata": {"name": "r"}, "revision": 1, "data": {"x": text(kib)}});
    check_refused(&post(&server, REVISIONS, &revision(1600)).await, REFUSED);
    check_not_sent(&post(&server, REVISIONS, &revision(2500)).await);
    create(&server, REVISIONS, &revision(1500)).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn no_write_makes_an_object_too_large() {
    let server = start_with_loads().await;
    let path = format!("{LOADS}/l");
    let mut whole = create(&server, LOADS, &load("l", 1000)).await;
    let more = json!({"second": text(600)});
    whole["spec"]["second"] = more["second"].clone();
    let merge = "application/merge-patch+json";
    let add = json!([{"op": "add", "path": "/spec/second", "value": more["second"]}]);
    let copy = json!([{"op": "copy", "from": "/spec/first", "path": "/spec/second"}]);
    let applied = format!("{path}?fieldManager=m");
    let status = format!("{path}/status");
    for (what, answer) in [
        ("PUT", send(&server, Method::PUT, &path, &whole).await),
        ("merge patch", send_patch(&server, &path, merge, &json!({"spec": more})).await),
        ("JSON patch", send_patch(&server, &path, "application/json-patch+json", &add).await),
        ("copy", send_patch(&server, &path, "application/json-patch+json", &copy).await),
        (
            "apply",
            apply(&server, &applied, &json!({"apiVersion": "example.com/v1", "kind": "Load", "spec": more})).await,
        ),
        ("status", send_patch(&server, &status, merge, &json!({"status": more})).await),
    ] {
        assert_eq!(answer.code, 500, "{what}: {}", answer.message());
        assert!(answer.message() == REFUSED || what == "copy", "{what}: {}", answer.message());
    }
    assert!(get(&server, &path).await.body["spec"].get("second").is_none());
    // Strategic merge patches are for built-in kinds.
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    create(&server, accounts, &json!({"metadata": {"name": "robot"}})).await;
    let secrets: Vec<Value> = (0..20_000).map(|i| json!({"name": format!("{i}-{}", "x".repeat(100))})).collect();
    let secrets = json!({"secrets": secrets});
    let strategic = "application/strategic-merge-patch+json";
    check_not_sent(&send_patch(&server, &format!("{accounts}/robot"), strategic, &secrets).await);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn webhooks_and_aliases_make_no_object_too_large() {
    let server = start_with_loads().await;
    let aliases = |times: usize| {
        let head = "apiVersion: example.com/v1\nkind: Load\nmetadata: {name: l}";
        format!("{head}\nspec:\n  a: &a {}\n  b: [{}]\n", text(100), vec!["*a"; times].join(", "))
    };
    let create = async |times| {
        send_bytes(server.service(), Method::POST, LOADS, "application/yaml", aliases(times).into()).await
    };
    check_refused(&create(16).await, REFUSED);
    check_not_sent(&create(25).await);
    let bomb = create(300).await;
    assert_eq!(bomb.code, 400, "{}", bomb.message());
    assert!(bomb.message().contains("yaml: document contains excessive aliasing"), "{}", bomb.message());
    let path = format!("{LOADS}/l?fieldManager=m");
    let kind = "application/apply-patch+yaml";
    let bomb = send_bytes(server.service(), Method::PATCH, &path, kind, aliases(300).into()).await;
    assert_eq!(bomb.code, 400, "{}", bomb.message());
    assert!(bomb.message().contains("yaml: document contains excessive aliasing"), "{}", bomb.message());

    let hook =
        Hook::start(|_| Reply::Review(patch(&json!([{"op": "add", "path": "/spec/second", "value": text(600)}]))))
            .await;
    let rule =
        json!({"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["loads"]});
    let webhook = json!({"metadata": {"name": "w"}, "webhooks": [{"name": "w.example.com", "rules": [rule],
        "clientConfig": hook.config(), "sideEffects": "None", "admissionReviewVersions": ["v1"]}]});
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    assert_eq!(post(&server, webhooks, &webhook).await.code, 201);
    check_refused(&post(&server, LOADS, &load("l", 1000)).await, REFUSED);
    assert_eq!(post(&server, LOADS, &load("l", 500)).await.code, 201);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn built_in_kinds_count_without_what_json_escapes() {
    let server = start().await;
    let quotes = |kib: usize| "\"\n".repeat(kib * KIB / 2);
    let map = json!({"metadata": {"name": "m"}, "data": {"k": quotes(1000)}});
    let mut made = create(&server, CONFIG_MAPS, &map).await;
    assert!(made.to_string().len() > 1900 * KIB);
    made["data"]["l"] = "more".into();
    assert_eq!(send(&server, Method::PUT, &format!("{CONFIG_MAPS}/m"), &made).await.code, 200);
    // What is stored could always be written back.
    let zeros = json!({"metadata": {"name": "z"}, "data": {"k": "\u{1}".repeat(400 * KIB)}});
    assert!(zeros.to_string().len() < 3072 * KIB);
    create(&server, CONFIG_MAPS, &zeros).await;
    let more = json!({"data": {"l": "\u{1}".repeat(200 * KIB)}});
    check_not_sent(&send(&server, Method::PATCH, &format!("{CONFIG_MAPS}/z"), &more).await);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn owners_are_dropped_before_an_object_is_refused() {
    let server = start_with_loads().await;
    let fields: Map<String, Value> = (0..70_000).map(|i| (format!("k{i:05}"), json!(1))).collect();
    let mut many = load("many", 0);
    many["spec"] = fields.into();
    let made = create(&server, LOADS, &many).await;
    assert!(made["metadata"].get("managedFields").is_none());
    let path = format!("{LOADS}/many");
    let patched = send(&server, Method::PATCH, &path, &json!({"spec": {"k00001": 2}})).await;
    assert_eq!((patched.code, patched.body["metadata"].get("managedFields")), (200, None));
    // What was applied is known from its owners, so they stay.
    many["metadata"]["name"] = "applied".into();
    let path = format!("{LOADS}/applied?fieldManager=m");
    check_refused(&apply(&server, &path, &many).await, REFUSED);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn objects_that_were_larger_before_stay_readable_and_deletable() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let keys = ["held", "free", "other"];
    for name in keys {
        let finalizers = if name == "held" { json!(["example.com/f"]) } else { json!([]) };
        let object = json!({"kind": "ControllerRevision", "apiVersion": "apps/v1", "metadata": {"name": name,
            "namespace": "default", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "resourceVersion": "", "finalizers": finalizers}, "data": {"x": text(5000)}, "revision": 1});
        let key = format!("/registry/controllerrevisions/default/{name}");
        let (text, version) = (object.to_string(), "\"resourceVersion\":\"");
        let at = text.find(version).unwrap() + version.len();
        let value = StoreValue::splice(text, at);
        store.txn(vec![Write::Put { key: key.into(), expect: Expect::Absent, value }]).await.unwrap();
    }
    let server = Server::builder().store(store).start().await.unwrap();
    let path = |name: &str| format!("{REVISIONS}/{name}");
    let read = get(&server, &path("held")).await;
    assert_eq!((read.code, read.body["data"]["x"].as_str().map(str::len)), (200, Some(5000 * KIB)));
    assert_eq!(get(&server, REVISIONS).await.body["items"].as_array().unwrap().len(), 3);
    let label = json!({"metadata": {"annotations": {"note": text(1)}}});
    check_not_sent(&send(&server, Method::PATCH, &path("free"), &label).await);
    assert_eq!(send(&server, Method::DELETE, &path("free"), &Value::Null).await.code, 200);
    // A finalizer is waited for, and can be taken away.
    let marked = send(&server, Method::DELETE, &path("held"), &Value::Null).await;
    assert_eq!((marked.code, marked.body["metadata"]["deletionTimestamp"].is_string()), (200, true));
    let done = json!({"metadata": {"finalizers": null}});
    assert_eq!(send(&server, Method::PATCH, &path("held"), &done).await.code, 200);
    assert_eq!(send(&server, Method::DELETE, REVISIONS, &Value::Null).await.code, 200);
    for name in keys {
        assert_eq!(get(&server, &path(name)).await.code, 404, "{name}");
    }
    server.stop().await.unwrap();
}
