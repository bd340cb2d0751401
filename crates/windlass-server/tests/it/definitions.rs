//! Definitions that change, and what their objects look like while they do.

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;

use crate::client::{create, get, post, send, send_patch, start};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const LAMPS: &str = "/apis/example.com/v1/namespaces/default/lamps";

/// A definition of one version; `version` says more about that.
fn definition(plural: &str, kind: &str, schema: &Value, version: &Value) -> Value {
    let mut written = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    for (field, value) in version.as_object().into_iter().flatten() {
        written[field] = value.clone();
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [written]}})
}

fn lamp(name: &str, more: &Value) -> Value {
    let mut lamp = json!({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": name}});
    for (field, value) in more.as_object().into_iter().flatten() {
        lamp[field] = value.clone();
    }
    lamp
}

async fn condition(server: &Server, name: &str, kind: &str) -> Value {
    let crd = get(server, &format!("{DEFINITIONS}/{name}")).await.body;
    let conditions = crd["status"]["conditions"].as_array().unwrap().clone();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

#[tokio::test]
async fn a_status_has_its_defaults_from_the_start() {
    let server = start().await;
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "default": {}, "properties": {"watts": {"type": "integer", "default": 7}}},
        "status": {"type": "object", "default": {}, "properties": {
            "phase": {"type": "string", "default": "Dark"}, "since": {"type": "string"}}}}});
    create(&server, DEFINITIONS, &definition("lamps", "Lamp", &schema, &json!({"subresources": {"status": {}}}))).await;
    let made = post(&server, LAMPS, &lamp("a", &json!({"status": {"phase": "Lit", "since": "today"}}))).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!((&made.body["spec"], &made.body["status"]), (&json!({"watts": 7}), &json!({"phase": "Dark"})));
    let path = format!("{LAMPS}/a");
    assert_eq!(get(&server, &path).await.body["status"], json!({"phase": "Dark"}));
    assert_eq!(get(&server, LAMPS).await.body["items"][0]["status"], json!({"phase": "Dark"}));
    let patched = send(&server, Method::PATCH, &format!("{path}/status"), &json!({"status": {"since": "now"}})).await;
    assert_eq!(patched.body["status"], json!({"phase": "Dark", "since": "now"}));
    assert_eq!(patched.body["metadata"]["generation"], 1);
    server.stop().await.unwrap();
}

/// Upstream fills in a status that was never written whenever it reads one, and any update writes what it read.
#[tokio::test]
async fn an_unwritten_status_follows_its_default() {
    let server = start().await;
    let schema = |phase: &str| {
        json!({"type": "object", "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "status": {"type": "object", "default": {"phase": phase}, "properties": {"phase": {"type": "string"}}}}})
    };
    let crd = |phase: &str| definition("lamps", "Lamp", &schema(phase), &json!({"subresources": {"status": {}}}));
    create(&server, DEFINITIONS, &crd("Dark")).await;
    let tried = post(&server, &format!("{LAMPS}?dryRun=All"), &lamp("a", &json!({}))).await;
    assert_eq!((tried.code, &tried.body["status"]), (201, &json!({"phase": "Dark"})));
    for name in ["a", "b"] {
        let made = create(&server, LAMPS, &lamp(name, &json!({"status": {"phase": "Lit"}}))).await;
        assert_eq!(made["status"], json!({"phase": "Dark"}));
    }
    // A change that changes nothing keeps what was shown, and with it a new version of the object.
    let path = |name: &str| format!("{LAMPS}/{name}");
    let before = get(&server, &path("b")).await.body;
    let kept = send(&server, Method::PUT, &path("b"), &before).await.body;
    assert_eq!((&kept["status"], &kept["metadata"]["generation"]), (&json!({"phase": "Dark"}), &json!(1)));
    assert_ne!(kept["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    let again = send(&server, Method::PUT, &path("b"), &kept).await.body;
    assert_eq!(again["metadata"]["resourceVersion"], kept["metadata"]["resourceVersion"]);

    let versions = json!({"spec": {"versions": crd("Dim")["spec"]["versions"]}});
    let changed = send(&server, Method::PATCH, &format!("{DEFINITIONS}/lamps.example.com"), &versions).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    let shown = get(&server, LAMPS).await.body["items"].clone();
    assert_eq!((&shown[0]["status"]["phase"], &shown[1]["status"]["phase"]), (&json!("Dim"), &json!("Dark")));
    let shown = get(&server, &path("a")).await.body;
    assert_eq!((&shown["status"]["phase"], &shown["metadata"]["generation"]), (&json!("Dim"), &json!(1)));
    let patched = send(&server, Method::PATCH, &path("a"), &json!({"spec": {"x": 1}})).await.body;
    assert_eq!((&patched["status"]["phase"], &patched["metadata"]["generation"]), (&json!("Dim"), &json!(2)));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn names_are_taken_over_when_their_owner_goes() {
    let server = start().await;
    let schema = json!({"type": "object"});
    let with_short = |plural: &str, kind: &str| {
        let mut crd = definition(plural, kind, &schema, &json!({}));
        crd["spec"]["names"]["shortNames"] = json!(["lm"]);
        crd
    };
    create(&server, DEFINITIONS, &with_short("lamps", "Lamp")).await;
    create(&server, DEFINITIONS, &with_short("limes", "Lime")).await;
    let accepted = condition(&server, "limes.example.com", "NamesAccepted").await;
    assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("False"), &json!("ShortNamesConflict")));
    assert_eq!(accepted["message"], "\"lm\" is already in use");
    let established = condition(&server, "limes.example.com", "Established").await;
    assert_eq!((&established["status"], &established["reason"]), (&json!("False"), &json!("NotAccepted")));
    let limes = "/apis/example.com/v1/namespaces/default/limes";
    assert_eq!(get(&server, limes).await.code, 404);
    let gone = send(&server, Method::DELETE, &format!("{DEFINITIONS}/lamps.example.com"), &Value::Null).await;
    assert_eq!(gone.code, 200);
    let mut served = 404;
    for _ in 0..1_000 {
        served = get(&server, limes).await.code;
        if served == 200 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(served, 200);
    let accepted = condition(&server, "limes.example.com", "NamesAccepted").await;
    assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("True"), &json!("NoConflicts")));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_version_goes_once_nothing_is_stored_in_it() {
    let server = start().await;
    let schema = json!({"type": "object"});
    create(&server, DEFINITIONS, &definition("lamps", "Lamp", &schema, &json!({}))).await;
    let path = format!("{DEFINITIONS}/lamps.example.com");
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}});
    let both = json!({"spec": {"versions": [version("v1", false), version("v2", true)]}});
    let moved = send(&server, Method::PATCH, &path, &both).await;
    assert_eq!(moved.body["status"]["storedVersions"], json!(["v1", "v2"]));
    let only = json!({"spec": {"versions": [version("v2", true)]}});
    let refused = send(&server, Method::PATCH, &path, &only).await;
    assert_eq!(refused.code, 422);
    assert!(refused.message().contains("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions"));
    let dropped =
        send(&server, Method::PATCH, &format!("{path}/status"), &json!({"status": {"storedVersions": ["v2"]}})).await;
    assert_eq!(dropped.code, 200, "{}", dropped.body);
    assert_eq!(send(&server, Method::PATCH, &path, &only).await.code, 200);
    assert_eq!(get(&server, LAMPS).await.code, 404);
    assert_eq!(get(&server, &LAMPS.replace("/v1/", "/v2/")).await.code, 200);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn fields_are_selectable_while_the_definition_says_so() {
    let server = start().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "color": {"type": "string"}, "watts": {"type": "integer"}, "on": {"type": "boolean"}}}}});
    let crd = definition("lamps", "Lamp", &schema, &json!({"selectableFields": [{"jsonPath": ".spec.color"}]}));
    create(&server, DEFINITIONS, &crd).await;
    create(&server, LAMPS, &lamp("a", &json!({"spec": {"color": "red", "watts": 7, "on": true}}))).await;
    create(&server, LAMPS, &lamp("b", &json!({"spec": {"color": "blue", "watts": 8}}))).await;
    let count = async |selector: &str| {
        let answer = get(&server, &format!("{LAMPS}?fieldSelector={selector}")).await;
        (answer.code, answer.body["items"].as_array().map(Vec::len), answer.message().to_owned())
    };
    assert_eq!(count("spec.color%3Dred").await.1, Some(1));
    let (code, _, message) = count("spec.watts%3D7").await;
    assert_eq!((code, message.as_str()), (400, "field label not supported: spec.watts"));
    let path = format!("{DEFINITIONS}/lamps.example.com");
    let mut changed = get(&server, &path).await.body;
    changed["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.watts"}, {"jsonPath": ".spec.on"}]);
    assert_eq!(send(&server, Method::PUT, &path, &changed).await.code, 200);
    assert_eq!(count("spec.color%3Dred").await.0, 400);
    assert_eq!(count("spec.watts%3D7").await.1, Some(1));
    assert_eq!(count("spec.on%3Dtrue").await.1, Some(1));
    assert_eq!(count("spec.on%3D").await.1, Some(1));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_scale_needs_a_number_to_start_from() {
    let server = start().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let scale = json!({"specReplicasPath": ".spec.lamps", "statusReplicasPath": ".status.lamps"});
    let crd = definition("lamps", "Lamp", &schema, &json!({"subresources": {"scale": scale}}));
    create(&server, DEFINITIONS, &crd).await;
    create(&server, LAMPS, &lamp("a", &json!({}))).await;
    let path = format!("{LAMPS}/a/scale");
    let missing = get(&server, &path).await;
    assert_eq!(missing.code, 500, "{}", missing.body);
    assert_eq!(missing.message(), "Internal error occurred: the spec replicas field \".spec.lamps\" does not exist");
    let patched = send(&server, Method::PATCH, &path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!((patched.code, patched.message()), (400, "the spec replicas field \".spec.lamps\" cannot be empty"));
    let patched = send(&server, Method::PATCH, &path, &json!({"spec": {"replicas": 3}})).await;
    assert_eq!((patched.code, &patched.body["spec"]), (200, &json!({"replicas": 3})), "{}", patched.body);
    assert_eq!(get(&server, &format!("{LAMPS}/a")).await.body["spec"], json!({"lamps": 3}));
    create(&server, LAMPS, &lamp("b", &json!({}))).await;
    let path = format!("{LAMPS}/b/scale");
    let whole =
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "b", "namespace": "default"}});
    assert_eq!(send(&server, Method::PUT, &path, &whole).await.code, 200);
    assert_eq!(get(&server, &format!("{LAMPS}/b")).await.body["spec"], json!({"lamps": 0}));
    server.stop().await.unwrap();
}

/// What was wrong before is forgiven where it is found again: by name, by key, or as a whole.
#[tokio::test]
async fn unchanged_values_are_tolerated_where_found_again() {
    let server = start().await;
    let item = |max: Option<u64>| {
        let mut value = json!({"type": "string"});
        if let Some(max) = max {
            value["maxLength"] = json!(max);
        }
        json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": value}})
    };
    let schema = |max: Option<u64>| {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "note": {"type": "string"},
            "keyed": {"type": "array", "items": item(max), "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"]},
            "plain": {"type": "array", "items": item(max)}}}}})
    };
    create(&server, DEFINITIONS, &definition("lamps", "Lamp", &schema(None), &json!({}))).await;
    let long = json!([{"k": "a", "v": "long"}, {"k": "b", "v": "ok"}]);
    create(&server, LAMPS, &lamp("a", &json!({"spec": {"keyed": long, "plain": long}}))).await;
    let path = format!("{DEFINITIONS}/lamps.example.com");
    let mut changed = get(&server, &path).await.body;
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema(Some(2));
    assert_eq!(send(&server, Method::PUT, &path, &changed).await.code, 200);
    let patch = async |spec: Value| {
        let answer = send(&server, Method::PATCH, &format!("{LAMPS}/a"), &json!({"spec": spec})).await;
        (answer.code, answer.message().to_owned())
    };
    assert_eq!(patch(json!({"note": "x"})).await.0, 200);
    let moved = json!([{"k": "c", "v": "ok"}, {"k": "b", "v": "ok"}, {"k": "a", "v": "long"}]);
    assert_eq!(patch(json!({"keyed": moved})).await.0, 200);
    let (code, message) = patch(json!({"plain": moved})).await;
    assert_eq!(code, 422);
    assert!(message.ends_with("spec.plain[2].v: Too long: may not be more than 2 bytes"), "{message}");
    let (code, message) = patch(json!({"keyed": [{"k": "a", "v": "longer"}]})).await;
    assert_eq!(code, 422);
    assert!(message.ends_with("spec.keyed[0].v: Too long: may not be more than 2 bytes"), "{message}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn numbers_of_replicas_are_written_as_integers() {
    let server = start().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "count": {"type": "integer"}, "other": {"type": "integer"}}}}});
    let scale = json!({"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count"});
    let version = json!({"subresources": {"status": {}, "scale": scale}});
    create(&server, DEFINITIONS, &definition("lamps", "Lamp", &schema, &version)).await;
    for (written, shown) in [("1.0", "1"), ("1e3", "1000"), ("2.5", "2.5")] {
        let body = lamp("a", &json!({"spec": {"count": "HERE", "other": 1}})).to_string();
        let answer = crate::client::send_text(&server, LAMPS, body.replace("\"HERE\"", written)).await;
        assert_eq!(answer.code, 422, "{written}: {}", answer.body);
        let why = format!(".spec.count accessor error: {shown} is of the type float64, expected int64");
        assert!(answer.message().contains(&why), "{}", answer.message());
    }
    let body = lamp("a", &json!({"spec": {"count": 3, "other": "HERE"}})).to_string();
    let answer = crate::client::send_text(&server, LAMPS, body.replace("\"HERE\"", "1.0")).await;
    assert_eq!((answer.code, &answer.body["spec"]), (201, &json!({"count": 3, "other": 1})));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_path_of_the_wrong_scope_leads_nowhere() {
    let server = start().await;
    let schema = json!({"type": "object"});
    create(&server, DEFINITIONS, &definition("lamps", "Lamp", &schema, &json!({}))).await;
    let mut wide = definition("suns", "Sun", &schema, &json!({}));
    wide["spec"]["scope"] = "Cluster".into();
    create(&server, DEFINITIONS, &wide).await;
    let group = "/apis/example.com/v1";
    for (method, path) in [
        (Method::POST, format!("{group}/lamps")),
        (Method::DELETE, format!("{group}/lamps")),
        (Method::PUT, format!("{group}/lamps")),
        (Method::GET, format!("{group}/lamps/a")),
        (Method::GET, format!("{group}/namespaces/default/suns")),
        (Method::POST, format!("{group}/namespaces/default/suns")),
        (Method::GET, "/apis/example.com/v9/suns".to_owned()),
    ] {
        let request = http::Request::builder().method(method.clone()).uri(&path);
        let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
        let answer = tower::ServiceExt::oneshot(server.service(), request).await.unwrap();
        assert_eq!(answer.status(), 404, "{method} {path}");
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        assert_eq!(body, "404 page not found\n", "{method} {path}");
    }
    assert_eq!(get(&server, &format!("{group}/lamps")).await.code, 200);
    server.stop().await.unwrap();
}

/// A kind is a built-in one by its group as much as by its name.
#[tokio::test]
async fn kinds_named_like_built_in_ones_are_separate() {
    let server = start().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    create(&server, DEFINITIONS, &definition("requests", "CertificateSigningRequest", &schema, &json!({}))).await;
    create(&server, DEFINITIONS, &definition("slices", "ResourceSlice", &schema, &json!({}))).await;
    let request = json!({"apiVersion": "example.com/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "a"}, "spec": {"size": 1}});
    let made = create(&server, "/apis/example.com/v1/namespaces/default/requests", &request).await;
    assert_eq!(made["spec"], json!({"size": 1}));
    let refused = get(&server, "/apis/example.com/v1/slices?fieldSelector=spec.driver=a").await;
    assert_eq!((refused.code, refused.message()), (400, "field label not supported: spec.driver"));
    server.stop().await.unwrap();
}

/// Definitions whose schemas have so many bytes that only some of them stay compiled.
fn roomy(index: usize) -> Value {
    let schema = json!({"type": "object", "properties": {
        "colour": {"type": "string", "enum": ["red", "green"], "default": "red", "description": "d".repeat(600_000)},
        "size": {"type": "integer", "x-kubernetes-validations": [{"rule": format!("self != {index}")}]},
    }});
    definition(&format!("lamps{index}"), &format!("Lamp{index}"), &schema, &Value::Null)
}

#[tokio::test]
async fn schemas_that_are_dropped_still_hold() {
    let server = start().await;
    for index in 0..12 {
        create(&server, DEFINITIONS, &roomy(index)).await;
    }
    let schemas = &server.api().schemas;
    assert_eq!(schemas.count(), 0, "nothing is compiled before it is needed");
    for round in 0..2 {
        for index in 0..12 {
            let objects = format!("/apis/example.com/v1/namespaces/default/lamps{index}");
            let lamp = |name: &str, more: &Value| {
                let mut lamp = lamp(name, more);
                lamp["kind"] = format!("Lamp{index}").into();
                lamp
            };
            let created = create(&server, &objects, &lamp(&format!("a{round}"), &json!({"unknown": 1}))).await;
            assert_eq!((&created["colour"], created.get("unknown")), (&"red".into(), None));
            let refused = post(&server, &objects, &lamp("b", &json!({"colour": "blue"}))).await;
            assert!(refused.message().contains("supported values"), "{}", refused.message());
            let refused = post(&server, &objects, &lamp("b", &json!({"size": index}))).await;
            assert!(refused.message().contains("failed rule"), "{}", refused.message());
            assert!(schemas.count() <= 7, "{} schemas are compiled", schemas.count());
        }
    }
    schemas.sweep();
    schemas.sweep();
    assert_eq!(schemas.count(), 0);
    let listed = get(&server, "/apis/example.com/v1/namespaces/default/lamps0").await.body;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn documents_about_definitions_keep_no_schema() {
    let server = start().await;
    let crd =
        definition("lamps", "Lamp", &json!({"type": "object", "properties": {"on": {"type": "boolean"}}}), &json!({}));
    create(&server, DEFINITIONS, &crd).await;
    let document = get(&server, "/openapi/v3/apis/example.com/v1").await.body;
    assert_eq!(document["components"]["schemas"]["com.example.v1.Lamp"]["properties"]["on"]["type"], "boolean");
    assert_eq!(server.api().schemas.count(), 0);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_tag_of_a_document_changes_with_its_definitions() {
    let server = start().await;
    let tag = async || {
        let index = get(&server, "/openapi/v3").await.body;
        index["paths"]["apis/example.com/v1"]["serverRelativeURL"].as_str().unwrap_or_default().to_owned()
    };
    let schema = |field: &str| json!({"type": "object", "properties": {field: {"type": "boolean"}}});
    create(&server, DEFINITIONS, &definition("lamps", "Lamp", &schema("on"), &json!({}))).await;
    let first = tag().await;
    create(&server, DEFINITIONS, &definition("cups", "Cup", &schema("full"), &json!({}))).await;
    let second = tag().await;
    let patch = json!({"spec": definition("lamps", "Lamp", &schema("lit"), &json!({}))["spec"]});
    let path = format!("{DEFINITIONS}/lamps.example.com");
    let changed = send_patch(&server, &path, "application/merge-patch+json", &patch).await;
    assert_eq!(changed.code, 200, "{}", changed.message());
    let third = tag().await;
    assert!(!first.is_empty() && first != second && second != third, "{first} {second} {third}");
    assert!(
        get(&server, &third).await.body["components"]["schemas"]["com.example.v1.Lamp"]["properties"]
            .get("lit")
            .is_some()
    );
    server.stop().await.unwrap();
}
