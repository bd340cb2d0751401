//! Patches whose result is not what the kind looks like, and directives at the root.

use serde_json::{Value, json};
use windlass_server::Server;

use crate::client::{Answer, create, get, send_patch, start};

const MAP: &str = "/api/v1/namespaces/default/configmaps/m";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/d";

async fn strategic(server: &Server, path: &str, patch: &Value) -> Answer {
    send_patch(server, path, "application/strategic-merge-patch+json", patch).await
}

async fn prepared() -> Server {
    let server = start().await;
    let map = json!({"metadata": {"name": "m", "labels": {"l": "1"}}, "data": {"k": "v"}});
    create(&server, "/api/v1/namespaces/default/configmaps", &map).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployment = json!({"metadata": {"name": "d"}, "spec": spec});
    create(&server, "/apis/apps/v1/namespaces/default/deployments", &deployment).await;
    server
}

#[tokio::test]
async fn a_strategic_merge_replaces_or_clears_the_whole_object() {
    let server = prepared().await;
    let before = get(&server, MAP).await.body;
    let patch = json!({"$patch": "replace", "metadata": {"name": "m"}, "data": {"x": "y"}});
    let answer = strategic(&server, MAP, &patch).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(answer.body["data"], json!({"x": "y"}));
    assert!(answer.body["metadata"]["labels"].is_null());
    assert_eq!(answer.body["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(answer.body["metadata"]["creationTimestamp"], before["metadata"]["creationTimestamp"]);
    assert_eq!((&answer.body["kind"], &answer.body["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));

    let nameless = "the name of the object (m based on URL) was undeterminable: name must be provided";
    for patch in [json!({"$patch": "delete"}), json!({"$patch": "replace"})] {
        let answer = strategic(&server, MAP, &patch).await;
        assert_eq!((answer.code, answer.message()), (400, nameless), "{patch}");
    }
    let answer = strategic(&server, MAP, &json!({"$patch": "merge", "data": {}})).await;
    let unknown = "unknown patch type: merge in map: map[$patch:merge data:map[]]";
    assert_eq!((answer.code, answer.message(), &answer.body["reason"]), (500, unknown, &Value::Null));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_strategic_merge_is_converted_without_json() {
    let server = prepared().await;
    // The kind is that of the path.
    let answer = strategic(&server, MAP, &json!({"kind": "Secret", "apiVersion": "v2", "data": {"k": "2"}})).await;
    assert_eq!((answer.code, answer.body["kind"].as_str()), (200, Some("ConfigMap")), "{}", answer.body);
    assert_eq!(answer.body["apiVersion"], "v1");

    let refused = |shown: &str, why: &str| format!(" \"\" is invalid: patch: Invalid value: \"{shown}\": {why}");
    let quantities = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    for (path, patch, shown, why) in [
        (DEPLOYMENT, json!({"spec": {"replicas": "2"}}), "map[spec:map[replicas:2]]", "unrecognized type: int32"),
        (
            DEPLOYMENT,
            json!({"spec": {"replicas": 1.5}}),
            "map[spec:map[replicas:1.5]]",
            "cannot convert float64 to int32",
        ),
        (DEPLOYMENT, json!({"spec": {"paused": "x"}}), "map[spec:map[paused:x]]", "unrecognized type: bool"),
        (MAP, json!({"data": {"k": 1}}), "map[data:map[k:1]]", "cannot convert int64 to string"),
        (MAP, json!({"data": {"k": true}}), "map[data:map[k:true]]", "unrecognized type: string"),
        (MAP, json!({"data": "x"}), "map[data:x]", "cannot restore map from string"),
        (MAP, json!({"metadata": [1]}), "map[metadata:[1]]", "cannot restore struct from: slice"),
        (
            MAP,
            json!({"metadata": {"finalizers": "x"}}),
            "map[metadata:map[finalizers:x]]",
            "cannot restore slice from string",
        ),
        (
            MAP,
            json!({"binaryData": {"b": "*"}}),
            "map[binaryData:map[b:*]]",
            "error decoding from json: illegal base64 data at input byte 0",
        ),
        (
            DEPLOYMENT,
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "c", "resources": {"limits": {"cpu": "x"}}}]}}}}),
            "map[spec:map[template:map[spec:map[containers:[map[name:c resources:map[limits:map[cpu:x]]]]]]]]",
            quantities,
        ),
    ] {
        for validation in ["Ignore", "Strict"] {
            let answer = strategic(&server, &format!("{path}?fieldValidation={validation}"), &patch).await;
            assert_eq!((answer.code, answer.message()), (422, refused(shown, why).as_str()), "{patch}");
            assert_eq!(answer.body["reason"], "Invalid");
        }
    }
    let answer = strategic(&server, DEPLOYMENT, &json!({"spec": {"replicas": 3.0}})).await;
    assert_eq!((answer.code, &answer.body["spec"]["replicas"]), (200, &json!(3)), "{}", answer.body);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn other_patches_are_decoded_as_the_kind_they_claim() {
    let server = prepared().await;
    let merge = async |patch: Value| {
        let answer = send_patch(&server, MAP, "application/merge-patch+json", &patch).await;
        (answer.code, answer.message().rsplit_once("\": ").map_or("", |(_, why)| why).to_owned())
    };
    let why = "converting (v1.Secret) to (core.ConfigMap): unknown conversion";
    assert_eq!(merge(json!({"kind": "Secret", "data": null})).await, (422, why.to_owned()));
    let answer = send_patch(&server, MAP, "application/merge-patch+json", &json!({"kind": "Foo"})).await;
    let why = "no kind \"Foo\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
    assert!(answer.code == 422 && answer.message().ends_with(why), "{}", answer.body);
    assert_eq!(merge(json!({"kind": null, "data": {"k": "2"}})).await.0, 200);
    assert_eq!(get(&server, MAP).await.body["kind"], "ConfigMap");
    assert_eq!(merge(json!({"apiVersion": null})).await.0, 400);
    let operations = json!([{"op": "replace", "path": "/data", "value": [1]}]);
    let answer = send_patch(&server, MAP, "application/json-patch+json", &operations).await;
    let why = "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string";
    assert!(answer.code == 422 && answer.message().ends_with(why), "{}", answer.body);
    server.stop().await.unwrap();
}

/// A patch that names nothing else is applied to the status alone; what comes of it is the same.
#[tokio::test]
async fn a_patch_of_the_status_keeps_everything_else() {
    let server = prepared().await;
    let before = get(&server, DEPLOYMENT).await.body;
    let path = format!("{DEPLOYMENT}/status");
    for patch in [
        json!({"status": {"replicas": 1}}),
        json!({"metadata": {"uid": before["metadata"]["uid"]}, "status": {"replicas": 2}}),
        json!({"spec": {"replicas": 7}, "status": {"replicas": 3}}),
    ] {
        let answer = strategic(&server, &path, &patch).await;
        assert_eq!((answer.code, &answer.body["status"]["replicas"]), (200, &patch["status"]["replicas"]), "{patch}");
        assert_eq!(answer.body["spec"], before["spec"], "{patch}");
        assert_eq!((&answer.body["kind"], &answer.body["apiVersion"]), (&json!("Deployment"), &json!("apps/v1")));
    }
    let stored = get(&server, DEPLOYMENT).await.body;
    assert_eq!((&stored["spec"], &stored["status"]["replicas"]), (&before["spec"], &json!(3)));
    let answer = strategic(&server, &path, &json!({"status": {"replicas": "x"}})).await;
    let why = " \"\" is invalid: patch: Invalid value: \"map[status:map[replicas:x]]\": unrecognized type: int32";
    assert_eq!((answer.code, answer.message()), (422, why));
    let other = json!({"metadata": {"uid": "another"}, "status": {"replicas": 4}});
    assert_eq!(strategic(&server, &path, &other).await.code, 422);
    server.stop().await.unwrap();
}

/// Unlike upstream's: a user who may patch a Secret need not be allowed to read it.
#[tokio::test]
async fn refused_patches_do_not_show_secrets() {
    let server = start().await;
    let path = "/api/v1/namespaces/default/secrets/s?fieldManager=m&fieldValidation=Strict";
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "planted"}});
    create(&server, "/api/v1/namespaces/default/secrets", &secret).await;
    let shown = "patch: Invalid value: \"<secret contents redacted>\": ";
    let applied =
        |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": data});
    let unfit = "failed to create typed patch object (/s; /v1, Kind=Secret): .stringData";
    for (content_type, patch, code, message) in [
        ("application/merge-patch+json", json!({"immutable": "planted"}), 422, format!(" \"\" is invalid: {shown}")),
        (
            "application/merge-patch+json",
            json!({"stringdata": {"a": "planted"}}),
            422,
            format!(" \"\" is invalid: {shown}"),
        ),
        (
            "application/strategic-merge-patch+json",
            json!({"data": "planted"}),
            422,
            format!(" \"\" is invalid: {shown}"),
        ),
        (
            "application/json-patch+json",
            json!([{"op": "add", "path": "/immutable", "value": "planted"}]),
            422,
            format!(" \"\" is invalid: {shown}"),
        ),
        (
            "application/apply-patch+yaml",
            applied(json!({"password": ["planted", 4711]})),
            500,
            format!("{unfit}.password: expected string, got "),
        ),
        ("application/apply-patch+yaml", applied(json!("planted")), 500, format!("{unfit}: expected map, got ")),
    ] {
        let answer = send_patch(&server, path, content_type, &patch).await;
        assert!(answer.code == code && answer.message().contains(&message), "{patch}: {}", answer.body);
        let text = answer.body.to_string();
        assert!(!text.contains("planted") && !text.contains("cGxhbnRlZA") && !text.contains("4711"), "{text}");
    }
}
