//! Custom resources whose versions a webhook converts.

use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use windlass_server::Server;

use crate::client::{apply, create, get, post, send, start};
use crate::hook::{Hook, Reply};

const V1: &str = "/apis/example.com/v1/namespaces/default/hosts";
const V2: &str = "/apis/example.com/v2/namespaces/default/hosts";

/// A webhook that calls `spec.host` of v1 `spec.hostname` in v2.
async fn renaming() -> Hook {
    Hook::start(|request| {
        let objects = request["objects"].as_array().unwrap();
        if objects.iter().any(|object| object["metadata"]["name"] == "poison") {
            return Reply::Review(json!({"result": {"status": "Failure", "message": "cannot convert poison"}}));
        }
        let converted: Vec<Value> = objects
            .iter()
            .map(|object| {
                let mut object = object.clone();
                object["apiVersion"] = request["desiredAPIVersion"].clone();
                if let Some(spec) = object["spec"].as_object_mut() {
                    let (from, to) =
                        if spec.contains_key("host") { ("host", "hostname") } else { ("hostname", "host") };
                    if let Some(value) = spec.remove(from) {
                        spec.insert(to.into(), value);
                    }
                }
                object["metadata"]["generation"] = 99.into();
                object["metadata"]["labels"] = json!({"converted": "yes"});
                object
            })
            .collect();
        Reply::Review(json!({"result": {"status": "Success"}, "convertedObjects": converted}))
    })
    .await
}

async fn define(server: &Server, hook: &Hook) {
    let version = |name: &str, storage: bool, field: &str| {
        let spec = json!({"type": "object", "properties": {field: {"type": "string"}}});
        json!({"name": name, "served": true, "storage": storage,
            "selectableFields": [{"jsonPath": format!(".spec.{field}")}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": hook.config()});
    let crd = json!({"metadata": {"name": "hosts.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "hosts", "singular": "host", "kind": "Host", "listKind": "HostList"},
        "versions": [version("v1", true, "host"), version("v2", false, "hostname")],
        "conversion": {"strategy": "Webhook", "webhook": webhook},
    }});
    create(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    assert_eq!(get(server, V2).await.code, 200, "a kind is served as soon as it is defined");
}

fn host(version: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Host", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn objects_are_converted_on_their_way_in_and_out() {
    let server = start().await;
    let hook = renaming().await;
    define(&server, &hook).await;
    create(&server, V1, &host("v1", "a", &json!({"host": "x"}))).await;
    assert!(hook.received().is_empty(), "what is stored as it is served needs no webhook");
    let read = get(&server, &format!("{V2}/a")).await.body;
    assert_eq!((&read["apiVersion"], &read["spec"]), (&json!("example.com/v2"), &json!({"hostname": "x"})));
    // Labels may change, the rest of the metadata is the server's.
    assert_eq!(read["metadata"]["labels"], json!({"converted": "yes"}));
    assert_eq!(read["metadata"]["generation"], 1);
    create(&server, V2, &host("v2", "b", &json!({"hostname": "y"}))).await;
    assert_eq!(get(&server, &format!("{V1}/b")).await.body["spec"], json!({"host": "y"}));
    let patched = send(&server, Method::PATCH, &format!("{V2}/b"), &json!({"spec": {"hostname": "z"}})).await;
    assert_eq!((patched.code, &patched.body["spec"]), (200, &json!({"hostname": "z"})));
    assert_eq!(patched.body["metadata"]["generation"], 2);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_list_is_converted_in_one_call() {
    let server = start().await;
    let hook = renaming().await;
    define(&server, &hook).await;
    for name in ["a", "b", "c"] {
        create(&server, V1, &host("v1", name, &json!({"host": name}))).await;
    }
    let list = get(&server, V2).await.body;
    let names: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["spec"]["hostname"]).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(hook.received().len(), 1);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_watch_shows_the_version_it_asks_for() {
    let server = start().await;
    let hook = renaming().await;
    define(&server, &hook).await;
    create(&server, V1, &host("v1", "a", &json!({"host": "x"}))).await;
    let request = Request::builder().uri(format!("{V2}?watch=true")).body(Empty::<bytes::Bytes>::new()).unwrap();
    let mut events = server.service().oneshot(request).await.unwrap().into_body();
    create(&server, V1, &host("v1", "b", &json!({"host": "y"}))).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let frame = events.frame().await.unwrap().unwrap().into_data().unwrap();
        for line in frame.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line).unwrap();
            seen.push(event["object"]["spec"].clone());
        }
    }
    assert_eq!(seen, [json!({"hostname": "x"}), json!({"hostname": "y"})]);
    drop(events);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn writes_move_objects_to_the_storage_version() {
    let server = start().await;
    let hook = renaming().await;
    define(&server, &hook).await;
    create(&server, V1, &host("v1", "a", &json!({"host": "x"}))).await;
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hosts.example.com";
    let mut versions = get(&server, crd).await.body["spec"]["versions"].clone();
    (versions[0]["storage"], versions[1]["storage"]) = (false.into(), true.into());
    assert_eq!(send(&server, Method::PATCH, crd, &json!({"spec": {"versions": versions}})).await.code, 200);
    let key = "/registry/example.com/hosts/default/a";
    let stored = async || {
        let entry = server.api().store.get(key.as_bytes()).await.unwrap().unwrap();
        serde_json::from_slice::<Value>(&entry.value).unwrap()
    };
    assert_eq!(stored().await["apiVersion"], "example.com/v1");
    let same = get(&server, &format!("{V1}/a")).await.body;
    assert_eq!(send(&server, Method::PUT, &format!("{V1}/a"), &same).await.code, 200);
    assert_eq!(stored().await["apiVersion"], "example.com/v2");
    assert_eq!(stored().await["spec"], json!({"hostname": "x"}));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_converted_fails_in_the_webhooks_words() {
    let server = start().await;
    let hook = renaming().await;
    define(&server, &hook).await;
    create(&server, V1, &host("v1", "poison", &json!({"host": "x"}))).await;
    let failed = get(&server, &format!("{V2}/poison")).await;
    assert_eq!(failed.code, 500);
    assert_eq!(failed.message(), "conversion webhook for example.com/v1, Kind=Host failed: cannot convert poison");
    assert_eq!(get(&server, V2).await.code, 500);
    let request = Request::builder().uri(format!("{V2}?watch=true")).body(Empty::<bytes::Bytes>::new()).unwrap();
    let events = server.service().oneshot(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let error: Value = serde_json::from_slice(&events).unwrap();
    assert_eq!((&error["type"], &error["object"]["message"]), (&json!("ERROR"), &json!(failed.message())));
    drop(hook);
    let down = post(&server, V2, &host("v2", "a", &json!({"hostname": "x"}))).await;
    assert_eq!(down.code, 500);
    let start = "conversion webhook for example.com/v2, Kind=Host failed: Post \"https://127.0.0.1:";
    assert!(down.message().starts_with(start), "{}", down.message());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn selectors_look_at_the_version_that_is_asked_for() {
    let server = start().await;
    let hook = renaming().await;
    define(&server, &hook).await;
    for (name, value) in [("a", "x"), ("b", "y"), ("c", "x")] {
        create(&server, V1, &host("v1", name, &json!({"host": value}))).await;
    }
    let names = async |path: String| {
        let list = get(&server, &path).await.body;
        let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(format!("{V1}?fieldSelector=spec.host%3Dx")).await, ["a", "c"]);
    assert_eq!(names(format!("{V2}?fieldSelector=spec.hostname%3Dx")).await, ["a", "c"]);
    assert_eq!(names(format!("{V2}?fieldSelector=spec.hostname%3Dx&limit=1")).await, ["a"]);
    // The webhook adds a label.
    assert_eq!(names(format!("{V2}?labelSelector=converted%3Dyes")).await.len(), 3);
    assert!(names(format!("{V1}?labelSelector=converted%3Dyes")).await.is_empty());
    let unknown = get(&server, &format!("{V2}?fieldSelector=spec.host%3Dx")).await;
    assert_eq!((unknown.code, unknown.message()), (400, "field label not supported: spec.host"));

    let uri = format!("{V2}?watch=true&fieldSelector=spec.hostname%3Dx");
    let request = Request::builder().uri(uri).body(Empty::<bytes::Bytes>::new()).unwrap();
    let mut events = server.service().oneshot(request).await.unwrap().into_body();
    for value in ["x", "y"] {
        send(&server, Method::PATCH, &format!("{V1}/b"), &json!({"spec": {"host": value}})).await;
    }
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let frame = events.frame().await.unwrap().unwrap().into_data().unwrap();
        for line in frame.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line).unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let object = &event["object"];
            seen.push([&event["type"], &object["metadata"]["name"], &object["spec"]["hostname"]].map(text).join(" "));
        }
    }
    assert_eq!(seen, ["ADDED a x", "ADDED c x", "ADDED b x", "DELETED b x"]);
    drop(events);
    server.stop().await.unwrap();
}

/// Who owns which fields of the spec, and in which version, by name.
fn owners(object: &Value) -> Vec<(&str, &str, &Value)> {
    let list = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut owners: Vec<_> = list
        .iter()
        .map(|entry| {
            let (manager, version) = (&entry["manager"], &entry["apiVersion"]);
            (manager.as_str().unwrap(), version.as_str().unwrap(), &entry["fieldsV1"]["f:spec"])
        })
        .collect();
    owners.sort_by_key(|(manager, ..)| *manager);
    owners
}

#[tokio::test]
async fn owners_are_asked_in_the_version_they_spoke() {
    let server = start().await;
    let hook = renaming().await;
    define(&server, &hook).await;
    let a = |version: &str, manager: &str| {
        let path = if version == "v1" { V1 } else { V2 };
        format!("{path}/a?fieldManager={manager}")
    };
    let applied = apply(&server, &a("v1", "m1"), &host("v1", "a", &json!({"host": "x"}))).await;
    assert_eq!(applied.code, 201, "{}", applied.body);
    let refused = apply(&server, &a("v2", "m2"), &host("v2", "a", &json!({"hostname": "y"}))).await;
    assert_eq!(refused.code, 409, "{}", refused.body);
    assert_eq!(refused.message(), "Apply failed with 1 conflict: conflict with \"m1\": .spec.host");
    // The same value is shared, under both names.
    let shared = apply(&server, &a("v2", "m2"), &host("v2", "a", &json!({"hostname": "x"}))).await;
    assert_eq!(
        owners(&shared.body),
        [("m1", "example.com/v1", &json!({"f:host": {}})), ("m2", "example.com/v2", &json!({"f:hostname": {}})),]
    );
    let left = apply(&server, &a("v1", "m1"), &host("v1", "a", &json!({}))).await;
    assert_eq!(left.body["spec"], json!({"host": "x"}), "{}", left.body);
    assert_eq!(owners(&left.body)[1..], [("m2", "example.com/v2", &json!({"f:hostname": {}}))]);
    // Who changes it takes it.
    let patched = send(&server, Method::PATCH, &a("v1", "m3"), &json!({"spec": {"host": "z"}})).await;
    assert_eq!(patched.code, 200, "{}", patched.body);
    let (m1, m3) = (json!({}), json!({"f:host": {}}));
    assert_eq!(owners(&patched.body), [("m1", "example.com/v1", &m1), ("m3", "example.com/v1", &m3)]);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn owners_of_removed_versions_fail_applies() {
    let server = start().await;
    let hook = renaming().await;
    define(&server, &hook).await;
    let path = format!("{V2}/a?fieldManager=m");
    assert_eq!(apply(&server, &path, &host("v2", "a", &json!({"hostname": "x"}))).await.code, 201);
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hosts.example.com";
    let mut versions = get(&server, crd).await.body["spec"]["versions"].clone();
    versions.as_array_mut().unwrap().pop();
    assert_eq!(send(&server, Method::PATCH, crd, &json!({"spec": {"versions": versions}})).await.code, 200);
    let path = format!("{V1}/a?fieldManager=n");
    let refused = apply(&server, &path, &host("v1", "a", &json!({"host": "x"}))).await;
    assert_eq!(refused.code, 500);
    assert_eq!(refused.message(), "request to convert CR to an invalid group/version: example.com/v2");
    // A change forgets all owners, and the next apply starts afresh.
    let patched = send(&server, Method::PATCH, &path, &json!({"spec": {"host": "z"}})).await;
    assert_eq!((patched.code, owners(&patched.body)), (200, Vec::new()));
    assert_eq!(apply(&server, &path, &host("v1", "a", &json!({"host": "z"}))).await.code, 200);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_list_of_any_size_is_converted() {
    let server = start().await;
    let hook = renaming().await;
    define(&server, &hook).await;
    for name in ["a", "b", "c", "d", "e"] {
        create(&server, V1, &host("v1", name, &json!({"host": "x".repeat(1_000_000)}))).await;
    }
    let before = hook.received().len();
    let list = get(&server, V2).await;
    assert_eq!(list.code, 200, "{}", list.message());
    let items = list.body["items"].as_array().unwrap();
    let lengths: Vec<usize> = items.iter().map(|item| item["spec"]["hostname"].as_str().unwrap().len()).collect();
    assert_eq!(lengths, [1_000_000; 5]);
    let sent = hook.received().split_off(before);
    let batches: Vec<usize> = sent.iter().map(|request| request["objects"].as_array().unwrap().len()).collect();
    assert_eq!(batches, [2, 2, 1]);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn creates_are_converted_both_ways() {
    let server = start().await;
    let hook = renaming().await;
    define(&server, &hook).await;
    let calls = || hook.received().len();
    // Upstream encodes what is stored, and decodes that for the answer (`storage/etcd3/store.go`).
    create(&server, V1, &host("v1", "a", &json!({"host": "x"}))).await;
    assert_eq!(calls(), 0);
    create(&server, V2, &host("v2", "b", &json!({"hostname": "x"}))).await;
    assert_eq!(calls(), 2);
    server.stop().await.unwrap();
}

/// Owners are told of an object in their own version, which must know all its fields (fluxcd/flux2#5715).
#[tokio::test]
async fn fields_unknown_to_an_owners_version_fail_applies() {
    let server = start().await;
    let version = |name: &str, storage: bool, properties: Value| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
    };
    let (text, deny) = (json!({"type": "string"}), json!({"type": "string", "default": "deny"}));
    let versions =
        [version("v1", false, json!({"port": text})), version("v2", true, json!({"port": text, "policy": deny}))];
    let crd = json!({"metadata": {"name": "doors.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "doors", "kind": "Door"}, "versions": versions}});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    let path =
        |version: &str, who: &str| format!("/apis/example.com/{version}/namespaces/default/doors/a?fieldManager={who}");
    let door = |version: &str, spec: Value| json!({"apiVersion": format!("example.com/{version}"), "kind": "Door", "metadata": {"name": "a"}, "spec": spec});
    let made = apply(&server, &path("v1", "flux"), &door("v1", json!({"port": "m"}))).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let refused = apply(&server, &path("v2", "flux"), &door("v2", json!({"port": "m"}))).await;
    assert_eq!((refused.code, refused.message()), (500, ".spec.policy: field not declared in schema"));
    // A client that only patches is told nothing, and no manager owns anything after.
    let patched = send(&server, Method::PATCH, &path("v2", "u"), &json!({"spec": {"policy": "allow"}})).await;
    assert_eq!(patched.code, 200, "{}", patched.body);
    assert!(patched.body["metadata"].get("managedFields").is_none(), "{}", patched.body);
}

#[tokio::test]
async fn nulls_conflict_with_owners_of_other_versions() {
    let server = start().await;
    let version = |name: &str, storage: bool| {
        let spec = json!({"type": "object", "properties": {"s": {"type": "string"}}});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
    };
    let crd = json!({"metadata": {"name": "doors.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "doors", "kind": "Door"}, "versions": [version("v1", true), version("v2", false)]}});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    let path =
        |version: &str, who: &str| format!("/apis/example.com/{version}/namespaces/default/doors/a?fieldManager={who}");
    let door = |version: &str, spec: Value| json!({"apiVersion": format!("example.com/{version}"), "kind": "Door", "metadata": {"name": "a"}, "spec": spec});
    assert_eq!(apply(&server, &path("v2", "u"), &door("v2", json!({"s": "v"}))).await.code, 201);
    let refused = apply(&server, &path("v1", "zz"), &door("v1", json!({"s": null}))).await;
    assert_eq!(refused.code, 409, "{}", refused.body);
    assert!(refused.message().contains(r#"conflict with "u": .spec.s"#), "{}", refused.message());
}
