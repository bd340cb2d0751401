//! What admission and the rest of the server add to events of the audit log.

use http::Method;
use serde_json::{Value, json};
use windlass_server::{AdmissionPlugin, AdmissionPlugins, PodSecurity, Server, ServerBuilder};

use crate::audit::Audited;
use crate::client::{create, get, post, send};
use crate::hook::{Hook, Reply, patch};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

fn without_accounts() -> ServerBuilder {
    Server::builder().admission_plugins(AdmissionPlugins::default().without(AdmissionPlugin::ServiceAccount))
}

async fn start(level: &str) -> Audited {
    Audited::start_with(&format!("omitStages: [RequestReceived]\nrules: [{{level: {level}}}]"), without_accounts())
        .await
}

/// The annotations of requests for a path, without those of authorisation.
async fn annotations(audited: Audited, path: &str) -> Vec<Value> {
    let (events, _) = audited.stop().await;
    let of_path = events.into_iter().filter(|event| {
        let uri = event["requestURI"].as_str().unwrap();
        uri.split('?').next() == Some(path) && event["stage"] == "ResponseComplete"
    });
    let without = |mut event: Value| {
        let annotations = event["annotations"].as_object_mut().unwrap();
        annotations.retain(|key, _| !key.starts_with("authorization.k8s.io/"));
        event["annotations"].take()
    };
    of_path.map(without).collect()
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

async fn namespace(server: &Server, name: &str, labels: &[(&str, &str)]) {
    let labels: Value =
        labels.iter().map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), Value::from(*value))).collect();
    create(server, "/api/v1/namespaces", &json!({"metadata": {"name": name, "labels": labels}})).await;
}

#[tokio::test]
async fn pods_that_violate_the_audited_level_are_noted() {
    let audited = start("Metadata").await;
    let server = &audited.server;
    namespace(server, "a", &[("enforce", "baseline"), ("enforce-version", "v1.30"), ("audit", "restricted")]).await;
    let pods = "/api/v1/namespaces/a/pods";
    create(server, pods, &pod("p", &json!({}))).await;
    assert_eq!(post(server, pods, &pod("host", &json!({"hostNetwork": true}))).await.code, 403);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("", &json!({}))["spec"]});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployments = "/apis/apps/v1/namespaces/a/deployments";
    create(server, deployments, &json!({"metadata": {"name": "d"}, "spec": spec})).await;
    create(server, "/api/v1/namespaces/default/pods", &pod("free", &json!({}))).await;

    let (events, _) = audited.stop().await;
    let find = |uri: &str, code: u16| {
        let found = events.iter().find(|event| event["requestURI"] == uri && event["responseStatus"]["code"] == code);
        found.unwrap()["annotations"].clone()
    };
    let noted = find(pods, 201);
    assert_eq!(noted["pod-security.kubernetes.io/enforce-policy"], "baseline:v1.30");
    let violations = noted["pod-security.kubernetes.io/audit-violations"].as_str().unwrap();
    let begin =
        "would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"c\" must";
    assert!(violations.starts_with(begin), "{violations}");
    let refused = find(pods, 403);
    let violations = refused["pod-security.kubernetes.io/audit-violations"].as_str().unwrap();
    assert!(violations.contains("host namespaces (hostNetwork=true)"), "{violations}");
    let workload = find(deployments, 201);
    assert!(workload["pod-security.kubernetes.io/audit-violations"].is_string());
    assert!(workload.get("pod-security.kubernetes.io/enforce-policy").is_none(), "{workload}");
    let free = find("/api/v1/namespaces/default/pods", 201);
    assert_eq!(free["pod-security.kubernetes.io/enforce-policy"], "privileged:latest");
    assert!(free.get("pod-security.kubernetes.io/audit-violations").is_none(), "{free}");
}

#[tokio::test]
async fn exempt_pods_say_why() {
    let mut configuration = PodSecurity::default();
    configuration.exempt_namespaces.push("free".to_owned());
    configuration.exempt_runtime_classes.push("gvisor".to_owned());
    let builder = without_accounts().pod_security(configuration);
    let audited = Audited::start_with("rules: [{level: Metadata, verbs: [create]}]", builder).await;
    let server = &audited.server;
    let class = json!({"metadata": {"name": "gvisor"}, "handler": "runsc"});
    create(server, "/apis/node.k8s.io/v1/runtimeclasses", &class).await;
    for name in ["free", "bound"] {
        namespace(server, name, &[("enforce", "restricted")]).await;
        create(server, &format!("/api/v1/namespaces/{name}/pods"), &pod("p", &json!({"runtimeClassName": "gvisor"})))
            .await;
    }
    let (events, _) = audited.stop().await;
    let why = |namespace: &str| {
        let uri = format!("/api/v1/namespaces/{namespace}/pods");
        let found = events.iter().find(|event| event["requestURI"] == *uri && event["stage"] == "ResponseComplete");
        found.unwrap()["annotations"]["pod-security.kubernetes.io/exempt"].clone()
    };
    assert_eq!((why("free"), why("bound")), ("namespace".into(), "runtimeClass".into()));
}

fn configuration(name: &str, hooks: &[(&str, &Value, Value)]) -> Value {
    let hook = |(name, client, more): &(&str, &Value, Value)| {
        let mut hook = json!({
            "name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": client,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            hook[field] = value.clone();
        }
        hook
    };
    json!({"metadata": {"name": name}, "webhooks": hooks.iter().map(hook).collect::<Vec<_>>()})
}

#[tokio::test]
async fn mutating_webhooks_leave_what_they_did() {
    let audited = start("Request").await;
    let server = &audited.server;
    let first = Hook::start(|_| {
        Reply::Review(json!({"allowed": true, "auditAnnotations": {"seen": "yes", "not a name": "x"}}))
    });
    let second = Hook::start(|_| Reply::Review(patch(&json!([{"op": "add", "path": "/data/a", "value": "<b>"}]))));
    let (first, second) = (first.await, second.await);
    let nowhere = json!({"url": "https://127.0.0.1:1/"});
    let hooks = [
        ("first", &first.config(), json!({"reinvocationPolicy": "IfNeeded"})),
        ("gone", &nowhere, json!({"failurePolicy": "Ignore"})),
        ("second", &second.config(), json!({})),
    ];
    create(server, &format!("{ADMISSION}/mutatingwebhookconfigurations"), &configuration("m", &hooks)).await;
    create(server, MAPS, &map("a")).await;
    let expected = json!({
        "first.example.com/seen": "yes",
        "mutation.webhook.admission.k8s.io/round_0_index_0":
            r#"{"configuration":"m","webhook":"first.example.com","mutated":false}"#,
        "mutation.webhook.admission.k8s.io/round_0_index_1":
            r#"{"configuration":"m","webhook":"gone.example.com","mutated":false}"#,
        "failed-open.mutation.webhook.admission.k8s.io/round_0_index_1": "gone.example.com",
        "mutation.webhook.admission.k8s.io/round_0_index_2":
            r#"{"configuration":"m","webhook":"second.example.com","mutated":true}"#,
        "patch.webhook.admission.k8s.io/round_0_index_2":
            "{\"configuration\":\"m\",\"webhook\":\"second.example.com\",\"patch\":[{\"op\":\"add\",\"path\":\"/data/a\",\
             \"value\":\"\\u003cb\\u003e\"}],\"patchType\":\"JSONPatch\"}",
        "mutation.webhook.admission.k8s.io/round_1_index_0":
            r#"{"configuration":"m","webhook":"first.example.com","mutated":false}"#,
    });
    assert_eq!(annotations(audited, MAPS).await, [expected]);
}

#[tokio::test]
async fn patches_are_not_noted_where_bodies_are_not() {
    let audited = start("Metadata").await;
    let hook = Hook::start(|_| Reply::Review(patch(&json!([{"op": "add", "path": "/data/a", "value": "b"}])))).await;
    let configuration = configuration("m", &[("a", &hook.config(), json!({}))]);
    create(&audited.server, &format!("{ADMISSION}/mutatingwebhookconfigurations"), &configuration).await;
    create(&audited.server, MAPS, &map("a")).await;
    let noted = annotations(audited, MAPS).await;
    let keys: Vec<&String> = noted[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["mutation.webhook.admission.k8s.io/round_0_index_0"]);
}

#[tokio::test]
async fn validating_webhooks_leave_what_they_say() {
    let audited = start("Metadata").await;
    let server = &audited.server;
    let hook = Hook::start(|request| {
        let allowed = request["object"]["metadata"]["name"] != "bad";
        Reply::Review(json!({"allowed": allowed, "auditAnnotations": {"verdict": allowed.to_string()}}))
    })
    .await;
    let nowhere = json!({"url": "https://127.0.0.1:1/"});
    let selector = json!({"objectSelector": {"matchLabels": {"none": "this"}}});
    let hooks = [
        ("skipped", &nowhere, selector),
        ("asked", &hook.config(), json!({})),
        ("gone", &nowhere, json!({"failurePolicy": "Ignore"})),
    ];
    create(server, &format!("{ADMISSION}/validatingwebhookconfigurations"), &configuration("v", &hooks)).await;
    create(server, MAPS, &map("good")).await;
    assert_eq!(post(server, MAPS, &map("bad")).await.code, 400);
    let failed_open = "failed-open.validating.webhook.admission.k8s.io/round_0_index_1";
    let expected = |verdict: &str| json!({"asked.example.com/verdict": verdict, failed_open: "gone.example.com"});
    assert_eq!(annotations(audited, MAPS).await, [expected("true"), expected("false")]);
}

/// Puts a policy for ConfigMaps into effect, with two bindings.
async fn policy(server: &Server, spec: Value, actions: Value) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let mut spec = spec;
    spec["matchConstraints"] = json!({"resourceRules": [rule]});
    let policies = format!("{ADMISSION}/validatingadmissionpolicies");
    create(server, &policies, &json!({"metadata": {"name": "p.example.com"}, "spec": spec})).await;
    for name in ["b1", "b2"] {
        let spec = json!({"policyName": "p.example.com", "validationActions": actions});
        let bindings = format!("{ADMISSION}/validatingadmissionpolicybindings");
        create(server, &bindings, &json!({"metadata": {"name": name}, "spec": spec})).await;
    }
}

#[tokio::test]
async fn policies_note_values_and_failures() {
    let audited = start("Metadata").await;
    let spec = json!({
        "validations": [{"expression": "true"}, {"expression": "object.data.k == 'w'", "message": "k <> w"}],
        "auditAnnotations": [
            {"key": "name", "valueExpression": "' is ' + object.metadata.name + ' '"},
            {"key": "nothing", "valueExpression": "null"},
        ],
    });
    policy(&audited.server, spec, json!(["Warn", "Audit"])).await;
    let made = post(&audited.server, MAPS, &map("a")).await;
    assert_eq!((made.code, made.warnings.len()), (201, 2));
    let failure = "[{\"message\":\"k \\u003c\\u003e w\",\"policy\":\"p.example.com\",\"binding\":\"b1\",\
                   \"expressionIndex\":1,\"validationActions\":[\"Warn\",\"Audit\"]}]";
    let expected = json!({
        "p.example.com/name": "is a",
        "validation.policy.admission.k8s.io/validation_failure": failure,
    });
    assert_eq!(annotations(audited, MAPS).await, [expected]);
}

#[tokio::test]
async fn a_value_that_cannot_be_computed_refuses_the_request() {
    let audited = start("Metadata").await;
    let spec = json!({"auditAnnotations": [{"key": "size", "valueExpression": "string(object.data.missing)"}]});
    policy(&audited.server, spec, json!(["Audit"])).await;
    let refused = post(&audited.server, MAPS, &map("a")).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    let begin =
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p.example.com' with binding 'b1' denied request: ";
    assert!(refused.message().starts_with(begin), "{}", refused.message());
    assert_eq!(annotations(audited, MAPS).await, [json!({})]);
}

#[tokio::test]
async fn deprecated_versions_are_noted() {
    let audited = start("Metadata").await;
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = |name: &str, deprecated: bool| json!({"name": name, "served": true, "storage": !deprecated, "deprecated": deprecated, "schema": schema});
    let crd = json!({"metadata": {"name": "racks.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "racks", "kind": "Rack"}, "versions": [version("v1", false), version("v1beta1", true)]}});
    create(&audited.server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    for path in ["/apis/example.com/v1/racks", "/apis/example.com/v1beta1/racks", "/api/v1/endpoints"] {
        assert_eq!(get(&audited.server, path).await.code, 200);
    }
    let (events, _) = audited.stop().await;
    let noted = |path: &str| {
        let event = events.iter().find(|event| event["requestURI"] == path).unwrap();
        event["annotations"].get("k8s.io/deprecated").cloned()
    };
    assert_eq!(noted("/apis/example.com/v1/racks"), None);
    assert_eq!(noted("/apis/example.com/v1beta1/racks"), Some("true".into()));
    assert_eq!(noted("/api/v1/endpoints"), Some("true".into()));
}

#[tokio::test]
async fn the_id_of_an_issued_token_is_noted() {
    let audited = start("Metadata").await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    create(&audited.server, accounts, &json!({"metadata": {"name": "robot"}})).await;
    let path = format!("{accounts}/robot/token");
    let made = send(&audited.server, Method::POST, &path, &json!({"spec": {}})).await;
    let token = made.body["status"]["token"].as_str().unwrap();
    let claims = token.split('.').nth(1).unwrap();
    let claims = base64::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    let id = format!("JTI={}", claims["jti"].as_str().unwrap());
    let expected = json!({"authentication.kubernetes.io/issued-credential-id": id});
    assert_eq!(annotations(audited, &path).await, [expected]);
}
