//! The `scale` subresource: what is refused, and who owns the replicas.

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;

use crate::client::{Answer, apply, create, get, get_with, send, send_patch, start};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const LAMPS: &str = "/apis/example.com/v1/namespaces/default/lamps";

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json-patch+json";

fn spec(replicas: u32) -> Value {
    json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
        "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}})
}

fn scale(name: &str, replicas: i64) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas}})
}

async fn start_with_web(replicas: u32) -> Server {
    let server = start().await;
    create(&server, DEPLOYMENTS, &json!({"metadata": {"name": "web"}, "spec": spec(replicas)})).await;
    server
}

/// A server with a lamp that wants two lit, below `spec.wanted.lit`.
async fn start_with_lamp() -> Server {
    let server = start().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let paths = json!({"specReplicasPath": ".spec.wanted.lit", "statusReplicasPath": ".status.lit"});
    let crd = json!({"metadata": {"name": "lamps.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "lamps", "kind": "Lamp"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"scale": paths}}]}});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    let lamp = json!({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "a"},
        "spec": {"wanted": {"lit": 2}}});
    create(&server, LAMPS, &lamp).await;
    server
}

#[track_caller]
fn check_refused(answer: &Answer, code: u16, message: &str) {
    assert_eq!(answer.code, code, "{message}: {}", answer.body);
    assert!(answer.message().ends_with(message), "{message}: {}", answer.body);
}

/// Who owns a path of an object: `manager[/subresource] operation`.
fn owners(object: &Value, path: &str) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let owning = entries.iter().filter(|entry| entry["fieldsV1"].pointer(path).is_some());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let shown = owning.map(|entry| {
        let subresource = entry["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
        format!("{}{subresource} {}", text(&entry["manager"]), text(&entry["operation"]))
    });
    let mut shown: Vec<String> = shown.collect();
    shown.sort();
    shown
}

#[tokio::test]
async fn a_wrong_patch_of_a_scale_changes_nothing() {
    let server = start_with_web(3).await;
    let before = get(&server, WEB).await.body;
    let path = format!("{WEB}/scale");
    let number = "of type int32";
    let cases = [
        (MERGE, json!({"spec": {"replicas": "3"}}), 422, number),
        (MERGE, json!({"spec": {"replicas": 1.5}}), 422, number),
        (MERGE, json!({"spec": {"replicas": 99_999_999_999_i64}}), 422, number),
        (MERGE, json!({"spec": "x"}), 422, "of type v1.ScaleSpec"),
        (MERGE, json!({"spec": {"replicas": -1}}), 422, "Invalid value: -1: must be greater than or equal to 0"),
        (
            MERGE,
            json!({"kind": "Foo"}),
            422,
            "no kind \"Foo\" is registered for version \"autoscaling/v1\" in \
             scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
        (
            MERGE,
            json!({"kind": "Deployment", "apiVersion": "apps/v1"}),
            422,
            "converting (v1.Deployment) to (autoscaling.Scale): unknown conversion",
        ),
        (
            MERGE,
            json!({"metadata": {"name": "b"}}),
            400,
            "the name of the object (b) does not match the name on the URL (web)",
        ),
        (
            MERGE,
            json!({"metadata": {"namespace": "b"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            MERGE,
            json!({"metadata": null}),
            400,
            "the name of the object (web based on URL) was undeterminable: name must be provided",
        ),
        (MERGE, json!({"metadata": {"uid": "other"}}), 409, "UID in object meta: UID"),
        (STRATEGIC, json!({"spec": {"replicas": "3"}}), 422, "unrecognized type: int32"),
        (STRATEGIC, json!({"spec": {"replicas": 1.5}}), 422, "cannot convert float64 to int32"),
        (STRATEGIC, json!({"spec": "x"}), 422, "cannot restore struct from: string"),
        (JSON, json!([{"op": "replace", "path": "/spec/replicas", "value": "3"}]), 422, number),
        (JSON, json!([{"op": "replace", "path": "/spec/replicas", "value": 1.5}]), 422, number),
        (JSON, json!([{"op": "replace", "path": "/spec", "value": "x"}]), 422, "of type v1.ScaleSpec"),
        (JSON, json!([{"op": "remove", "path": "/metadata"}]), 400, "name must be provided"),
    ];
    let uid = before["metadata"]["uid"].as_str().unwrap();
    for (content_type, patch, code, message) in &cases {
        let answer = send_patch(&server, &path, content_type, patch).await;
        check_refused(&answer, *code, &message.replace("UID in object meta: UID", &format!("in object meta: {uid}")));
    }
    let strict = format!("{path}?fieldValidation=Strict");
    let unknown = json!({"spec": {"replicas": 4, "color": "red"}});
    for content_type in [MERGE, STRATEGIC] {
        let answer = send_patch(&server, &strict, content_type, &unknown).await;
        check_refused(&answer, 422, "strict decoding error: unknown field \"spec.color\"");
    }
    assert_eq!(get(&server, WEB).await.body, before);

    let warned = send_patch(&server, &format!("{path}?fieldValidation=Warn"), MERGE, &unknown).await;
    assert_eq!((warned.code, &warned.body["spec"]), (200, &json!({"replicas": 4})));
    assert_eq!(warned.warnings, ["299 - \"unknown field \\\"spec.color\\\"\""]);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_wrong_patch_of_a_custom_resources_scale_changes_nothing() {
    let server = start_with_lamp().await;
    let before = get(&server, &format!("{LAMPS}/a")).await.body;
    let path = format!("{LAMPS}/a/scale");
    let cases = [
        (MERGE, json!({"spec": {"replicas": "3"}}), 422, "of type int32"),
        (MERGE, json!({"spec": {"replicas": 99_999_999_999_i64}}), 422, "of type int32"),
        (MERGE, json!({"spec": "x"}), 422, "of type v1.ScaleSpec"),
        (MERGE, json!({"spec": {"replicas": -1}}), 422, "Invalid value: -1: should be a non-negative integer"),
        (MERGE, json!({"metadata": {"name": "b"}}), 400, "does not match the name on the URL (a)"),
        (MERGE, json!({"metadata": null}), 400, "name must be provided"),
        (JSON, json!([{"op": "replace", "path": "/spec/replicas", "value": 1.5}]), 422, "of type int32"),
    ];
    for (content_type, patch, code, message) in &cases {
        check_refused(&send_patch(&server, &path, content_type, patch).await, *code, message);
    }
    let strict = format!("{path}?fieldValidation=Strict");
    let answer = send_patch(&server, &strict, MERGE, &json!({"spec": {"color": "red"}})).await;
    check_refused(&answer, 422, "strict decoding error: unknown field \"spec.color\"");
    assert_eq!(get(&server, &format!("{LAMPS}/a")).await.body, before);
    server.stop().await.unwrap();
}

/// `scaleFromCustomResource` and `SetNestedField` fail with errors that upstream does not classify.
#[tokio::test]
async fn mistyped_scales_are_refused_in_plain_words() {
    let server = start_with_lamp().await;
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/lamps.example.com";
    let path = format!("{LAMPS}/a/scale");
    let moved = json!([{"op": "replace", "path": "/spec/versions/0/subresources/scale/specReplicasPath",
        "value": ".spec.wanted"}]);
    assert_eq!(send_patch(&server, definition, JSON, &moved).await.code, 200);
    let why = ".spec.wanted accessor error: map[lit:2] is of the type map[string]interface {}, expected int64";
    let answer = crate::client::eventually(&server, &path, |answer| answer.code == 500).await;
    assert_eq!(
        answer,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
        "message": why})
    );
    let answer = send(&server, Method::PUT, &path, &scale("a", 3)).await;
    assert_eq!((answer.code, answer.message()), (500, why));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_scale_that_is_put_is_that_of_the_path() {
    let server = start_with_web(3).await;
    let before = get(&server, WEB).await.body;
    let put = async |change: fn(&mut Value)| {
        let mut body = scale("web", 5);
        change(&mut body["metadata"]);
        send(&server, Method::PUT, &format!("{WEB}/scale"), &body).await
    };
    let namespace = "the namespace of the provided object does not match the namespace sent on the request";
    check_refused(&put(|metadata| metadata["namespace"] = json!("other")).await, 400, namespace);
    let name = "the name of the object (web based on URL) was undeterminable: name must be provided";
    check_refused(&put(|metadata| *metadata = json!({})).await, 400, name);
    let name = "the name of the object (other) does not match the name on the URL (web)";
    check_refused(&put(|metadata| metadata["name"] = json!("other")).await, 400, name);
    assert_eq!(put(|metadata| metadata["uid"] = json!("other")).await.code, 409);
    assert_eq!(put(|metadata| metadata["resourceVersion"] = json!("1")).await.code, 409);
    assert_eq!(get(&server, WEB).await.body, before);
    let done = put(|metadata| *metadata = json!({"name": "web"})).await;
    assert_eq!((done.code, &done.body["spec"]), (200, &json!({"replicas": 5})), "{}", done.body);
    server.stop().await.unwrap();
}

/// The steps of upstream's `test/integration/apiserver/apply/scale_test.go`, for each kind with a scale.
#[tokio::test]
async fn replicas_belong_to_whoever_scaled_last() {
    let server = start().await;
    let kinds = [
        ("Deployment", "apps/v1", "deployments"),
        ("StatefulSet", "apps/v1", "statefulsets"),
        ("ReplicaSet", "apps/v1", "replicasets"),
        ("ReplicationController", "v1", "replicationcontrollers"),
    ];
    for (kind, api_version, plural) in kinds {
        let root = if api_version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{api_version}") };
        let path = format!("{root}/namespaces/default/{plural}/web");
        let mut config = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web"}, "spec": spec(1)});
        if api_version == "v1" {
            config["spec"]["selector"] = json!({"app": "web"});
        }
        let check = async |answer: Answer, replicas: i64, expected: &[&str]| {
            assert!(answer.code < 300, "{kind}: {}", answer.body);
            let object = get(&server, &path).await.body;
            assert_eq!(object["spec"]["replicas"], replicas, "{kind}");
            assert_eq!(owners(&object, "/f:spec/f:replicas"), expected, "{kind}: {object}");
            object
        };
        let main = |query: &str| format!("{path}?fieldManager={query}");
        let scaled = |query: &str| format!("{path}/scale?fieldManager={query}");
        check(apply(&server, &main("config"), &config).await, 1, &["config Apply"]).await;
        let five = json!({"spec": {"replicas": 5}});
        check(send(&server, Method::PATCH, &scaled("hand"), &five).await, 5, &["hand/scale Update"]).await;
        let refused = apply(&server, &main("config"), &config).await;
        check_refused(
            &refused,
            409,
            &format!("\"hand\" with subresource \"scale\" using {api_version}: .spec.replicas"),
        );
        check(apply(&server, &main("config&force=true"), &config).await, 1, &["config Apply"]).await;

        let refused = apply(&server, &scaled("scaler"), &scale("web", 17)).await;
        check_refused(&refused, 409, "Apply failed with 1 conflict: conflict with \"config\": .spec.replicas");
        let forced = apply(&server, &scaled("scaler&force=true"), &scale("web", 17)).await;
        let object = check(forced, 17, &["scaler/scale Apply"]).await;
        let entry = json!({"apiVersion": api_version, "fieldsType": "FieldsV1", "manager": "scaler",
            "operation": "Apply", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        assert!(object["metadata"]["managedFields"].as_array().unwrap().contains(&entry), "{object}");
        // Who else owned something still does.
        assert_eq!(owners(&object, "/f:spec/f:selector"), ["config Apply"]);

        check(send(&server, Method::PUT, &scaled("put"), &scale("web", 7)).await, 7, &["put/scale Update"]).await;
        let shared = apply(&server, &scaled("also"), &scale("web", 7)).await;
        check(shared, 7, &["also/scale Apply", "put/scale Update"]).await;
        // A change of the status is none.
        let status = json!({"status": {"replicas": 42}});
        let same = send(&server, Method::PATCH, &scaled("hand"), &status).await;
        let before = check(same, 7, &["also/scale Apply", "put/scale Update"]).await;
        let same = apply(&server, &scaled("also"), &scale("web", 7)).await;
        let after = check(same, 7, &["also/scale Apply", "put/scale Update"]).await;
        assert_eq!(after, before);
        check(send(&server, Method::PATCH, &scaled("hand"), &five).await, 5, &["hand/scale Update"]).await;
        // Zero replicas are not in a Scale.
        let none = json!({"spec": {"replicas": 0}});
        check(send(&server, Method::PATCH, &scaled("hand"), &none).await, 0, &[]).await;
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_scale_that_makes_no_sense_is_not_applied() {
    let server = start_with_web(3).await;
    let before = get(&server, WEB).await.body;
    let path = format!("{WEB}/scale?fieldManager=m&force=true");
    let apply_with = async |change: fn(&mut Value)| {
        let mut config = scale("web", 5);
        change(&mut config);
        apply(&server, &path, &config).await
    };
    let answer = apply_with(|config| config["kind"] = json!("Foo")).await;
    check_refused(&answer, 400, "invalid object type: autoscaling/v1, Kind=Foo");
    let answer = apply_with(|config| config["apiVersion"] = json!("apps/v1")).await;
    check_refused(&answer, 400, "invalid object type: apps/v1, Kind=Scale");
    let answer = apply_with(|config| config["spec"]["color"] = json!("red")).await;
    let typed = "failed to create typed patch object (default/web; autoscaling/v1, Kind=Scale): ";
    check_refused(&answer, 500, &format!("{typed}.spec.color: field not declared in schema"));
    let answer = apply_with(|config| config["spec"]["replicas"] = json!("5")).await;
    check_refused(&answer, 500, &format!("{typed}.spec.replicas: expected numeric (int or float), got string"));
    let answer = apply_with(|config| config["spec"]["replicas"] = json!(1.5)).await;
    let converted = "failed to convert new object (default/web; autoscaling/v1, Kind=Scale) to proper version: ";
    check_refused(
        &answer,
        500,
        "unable to convert unstructured object to autoscaling/v1, Kind=Scale: cannot convert float64 to int32",
    );
    assert!(answer.message().starts_with(converted), "{}", answer.body);
    let answer = apply_with(|config| config["spec"]["replicas"] = json!(-1)).await;
    check_refused(&answer, 422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
    let answer = apply_with(|config| config["metadata"]["name"] = json!("other")).await;
    check_refused(&answer, 400, "the name of the object (other) does not match the name on the URL (web)");
    let answer = apply_with(|config| config["metadata"]["namespace"] = json!("other")).await;
    check_refused(&answer, 400, "does not match the namespace sent on the request");
    let absent = format!("{DEPLOYMENTS}/none/scale?fieldManager=m");
    check_refused(&apply(&server, &absent, &scale("none", 1)).await, 404, "deployments.apps \"none\" not found");
    assert_eq!(get(&server, WEB).await.body, before);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_custom_resources_replicas_have_owners() {
    const LIT: &str = "/f:spec/f:wanted/f:lit";
    let server = start_with_lamp().await;
    let lamp = format!("{LAMPS}/a");
    let scaled = |manager: &str| format!("{lamp}/scale?fieldManager={manager}");
    let five = json!({"spec": {"replicas": 5}});
    assert_eq!(send(&server, Method::PATCH, &scaled("hand"), &five).await.code, 200);
    let object = get(&server, &lamp).await.body;
    assert_eq!(object["spec"], json!({"wanted": {"lit": 5}}));
    assert_eq!(owners(&object, LIT), ["hand/scale Update"], "{object}");

    let conflict = apply(&server, &scaled("m"), &scale("a", 6)).await;
    let owner = "conflict with \"hand\" with subresource \"scale\" using autoscaling/v1: .spec.replicas";
    check_refused(&conflict, 409, owner);
    // Upstream cannot convert what it merged, unless that changes nothing.
    let forced = apply(&server, &scaled("m&force=true"), &scale("a", 6)).await;
    check_refused(&forced, 500, "request to convert CR to an invalid group/version: autoscaling/v1");
    let wrong = apply(&server, &scaled("m"), &json!({"apiVersion": "example.com/v1", "kind": "Lamp"})).await;
    check_refused(&wrong, 400, "invalid object type: example.com/v1, Kind=Lamp");
    assert_eq!(get(&server, &lamp).await.body, object);
    let same = apply(&server, &scaled("m"), &scale("a", 5)).await;
    assert_eq!(same.code, 200, "{}", same.body);
    let object = get(&server, &lamp).await.body;
    assert_eq!(owners(&object, LIT), ["hand/scale Update", "m/scale Apply"], "{object}");
    server.stop().await.unwrap();
}

/// Upstream's `skipnonapplied.go` sees just the owners of the Scale.
#[tokio::test]
async fn replicas_without_an_owner_go_to_the_former_one() {
    const REPLICAS: &str = "/f:spec/f:replicas";
    let server = start().await;
    let mut config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    config["spec"] = spec(1);
    config["spec"].as_object_mut().unwrap().remove("replicas");
    assert_eq!(apply(&server, &format!("{WEB}?fieldManager=config"), &config).await.code, 201);
    let scaled = |query: &str| format!("{WEB}/scale?fieldManager={query}");
    let patched = send(&server, Method::PATCH, &scaled("hand"), &json!({"spec": {"replicas": 2}})).await;
    assert_eq!((patched.code, &patched.body["spec"]), (200, &json!({"replicas": 2})));
    assert!(owners(&get(&server, WEB).await.body, REPLICAS).is_empty());

    let refused = apply(&server, &scaled("m"), &scale("web", 3)).await;
    let owner = "conflict with \"before-first-apply\" with subresource \"scale\" using autoscaling/v1: .spec.replicas";
    check_refused(&refused, 409, owner);
    let forced = apply(&server, &scaled("m&force=true"), &scale("web", 3)).await;
    assert_eq!((forced.code, &forced.body["spec"]), (200, &json!({"replicas": 3})), "{}", forced.body);
    let object = get(&server, WEB).await.body;
    assert_eq!(owners(&object, REPLICAS), ["m/scale Apply"]);
    assert_eq!(owners(&object, "/f:spec/f:selector"), ["config Apply"]);
    server.stop().await.unwrap();
}

/// Upstream's converter of maps lets integers wrap around, in strategic merges as in applies.
#[tokio::test]
async fn large_replicas_wrap_around_where_no_json_is_decoded() {
    let server = start_with_web(3).await;
    let path = format!("{WEB}/scale?fieldManager=m");
    let large = 99_999_999_999_i64;
    let patched = send_patch(&server, &path, STRATEGIC, &json!({"spec": {"replicas": large}})).await;
    assert_eq!((patched.code, &patched.body["spec"]), (200, &json!({"replicas": 1_215_752_191})));
    let applied = apply(&server, &format!("{path}&force=true"), &scale("web", large + 1)).await;
    assert_eq!((applied.code, &applied.body["spec"]), (200, &json!({"replicas": 1_215_752_192})));
    assert_eq!(get(&server, WEB).await.body["spec"]["replicas"], 1_215_752_192);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_scale_is_shown_as_a_table() {
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let (web, lamp) = (start_with_web(3).await, start_with_lamp().await);
    let lamps = get(&lamp, LAMPS).await.body;
    let lamp_path = format!("{LAMPS}/{}/scale", lamps["items"][0]["metadata"]["name"].as_str().unwrap());
    for (server, path, wanted) in [(&web, format!("{WEB}/scale"), 3), (&lamp, lamp_path, 2)] {
        let table: Value = serde_json::from_slice(get_with(server, &path, &accept).await.body()).unwrap();
        let names: Vec<&Value> =
            table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
        assert_eq!(names, ["Name", "Desired", "Available", "Age"]);
        assert_eq!(table["rows"][0]["cells"][1], wanted);
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    }
    web.stop().await.unwrap();
    lamp.stop().await.unwrap();
}
