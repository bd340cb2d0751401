//! Admission webhooks: who is asked, with what, and what becomes of the request.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;
use windlass_store::{Expect, Write};

use crate::client::{create, get, post, send, send_to, start};
use crate::hook::{Hook, Reply, patch};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A configuration with one webhook for all operations on `resources`, changed by `more`.
fn configuration(name: &str, client_config: &Value, resources: &[&str], more: &Value) -> Value {
    let mut hook = json!({
        "name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": client_config,
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources}],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        hook[field] = value.clone();
    }
    json!({"metadata": {"name": name}, "webhooks": [hook]})
}

async fn validating(server: &Server, name: &str, client_config: &Value, more: Value) {
    create(server, VALIDATING, &configuration(name, client_config, &["configmaps"], &more)).await;
}

async fn mutating(server: &Server, name: &str, client_config: &Value, more: Value) {
    create(server, MUTATING, &configuration(name, client_config, &["configmaps"], &more)).await;
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

#[tokio::test]
async fn webhooks_take_effect_and_end_at_once() {
    let server = start().await;
    let hook = Hook::start(|request| {
        let allowed = request["object"]["metadata"]["name"] != "bad";
        Reply::Review(json!({"allowed": allowed, "status": {"message": "no bad things"}, "warnings": ["careful"]}))
    })
    .await;
    validating(&server, "v", &hook.config(), json!({})).await;
    let denied = post(&server, CONFIG_MAPS, &config_map("bad")).await;
    assert_eq!(denied.code, 400);
    assert_eq!(denied.message(), "admission webhook \"v.example.com\" denied the request: no bad things");
    assert_eq!(denied.warnings, ["299 - \"careful\""]);
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/bad")).await.code, 404);
    assert_eq!(post(&server, CONFIG_MAPS, &config_map("good")).await.warnings, ["299 - \"careful\""]);
    let gone = send(&server, Method::DELETE, &format!("{VALIDATING}/v"), &Value::Null).await;
    assert_eq!(gone.code, 200);
    create(&server, CONFIG_MAPS, &config_map("bad")).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn mutations_are_ordered_and_reinvoke_webhooks() {
    let server = start().await;
    let first = Hook::start(|request| {
        let data = &request["object"]["data"];
        if data["second"].is_null() {
            return Reply::Review(json!({"allowed": true}));
        }
        Reply::Review(patch(&json!([{"op": "add", "path": "/data/first", "value": "saw second"}])))
    })
    .await;
    let second =
        Hook::start(|_| Reply::Review(patch(&json!([{"op": "add", "path": "/data/second", "value": "x"}])))).await;
    mutating(&server, "a", &first.config(), json!({"reinvocationPolicy": "IfNeeded"})).await;
    mutating(&server, "b", &second.config(), json!({})).await;
    let made = create(&server, CONFIG_MAPS, &config_map("m")).await;
    assert_eq!(made["data"], json!({"k": "v", "first": "saw second", "second": "x"}));
    assert_eq!((first.received().len(), second.received().len()), (2, 1));
    assert!(first.received()[0]["object"]["metadata"]["uid"].is_null());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_mutation_brings_in_is_decoded_defaulted_and_validated() {
    let server = start().await;
    let hook = Hook::start(|request| {
        let container = json!({"name": "sidecar", "image": "img", "unknown": 1});
        let broken = request["object"]["metadata"]["name"] == "broken";
        let path = if broken { "/spec/none/-" } else { "/spec/containers/-" };
        Reply::Review(patch(&json!([{"op": "add", "path": path, "value": container}])))
    })
    .await;
    create(&server, MUTATING, &configuration("m", &hook.config(), &["pods"], &json!({}))).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = create(&server, pods, &pod("p")).await;
    let sidecar = &made["spec"]["containers"][1];
    assert_eq!(sidecar["terminationMessagePath"], "/dev/termination-log");
    assert!(sidecar["unknown"].is_null());
    let broken = post(&server, pods, &pod("broken")).await;
    assert_eq!(broken.code, 500);
    assert_eq!(
        broken.message(),
        "Internal error occurred: add operation does not apply: doc is missing path: \"/spec/none/-\": missing value"
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_mutation_cannot_make_something_else_of_an_object() {
    let server = start().await;
    let hook = Hook::start(|request| {
        let (path, value) = match request["object"]["metadata"]["name"].as_str().unwrap() {
            "kind" => ("/kind", "Secret"),
            "moved" => ("/metadata/namespace", "kube-system"),
            _ => ("/metadata/resourceVersion", "7"),
        };
        Reply::Review(patch(&json!([{"op": "add", "path": path, "value": value}])))
    })
    .await;
    mutating(&server, "m", &hook.config(), json!({})).await;
    for (name, code, message) in [
        ("kind", 500, "kind \"Secret\""),
        ("moved", 400, "the namespace of the provided object does not match the namespace sent on the request"),
        ("version", 500, "resourceVersion should not be set on objects to be created"),
    ] {
        let answer = post(&server, CONFIG_MAPS, &config_map(name)).await;
        assert_eq!(answer.code, code, "{}", answer.body);
        assert!(answer.message().contains(message), "{}", answer.body);
        assert_eq!(get(&server, &format!("{CONFIG_MAPS}/{name}")).await.code, 404);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn failures_are_fatal_or_ignored_as_the_policy_says() {
    let server = start().await;
    let garbage = Hook::start(|_| Reply::Raw(200, b"not json".to_vec())).await;
    let huge = Hook::start(|_| Reply::Raw(200, vec![b' '; 4 << 20])).await;
    let stranger = Hook::allowing().await;
    let closed = {
        // Nothing listens there once this is dropped.
        let gone = Hook::allowing().await;
        gone.config()
    };
    let wrong_authority = json!({"url": stranger.config()["url"], "caBundle": garbage.bundle()});
    for (name, config, expected) in [
        ("garbage", garbage.config(), "couldn't get version/kind; json parse error"),
        ("huge", huge.config(), "unexpected error when reading response body"),
        ("closed", closed, "connect: connection refused"),
        (
            "stranger",
            wrong_authority,
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ),
    ] {
        for policy in ["Fail", "Ignore"] {
            validating(&server, "v", &config, json!({"failurePolicy": policy})).await;
            let answer = post(&server, CONFIG_MAPS, &config_map(&format!("{name}-{}", policy.to_lowercase()))).await;
            if policy == "Ignore" {
                assert_eq!(answer.code, 201, "{name}: {}", answer.body);
            } else {
                assert_eq!(answer.code, 500, "{name}");
                let start =
                    "Internal error occurred: failed calling webhook \"v.example.com\": failed to call webhook: ";
                assert!(answer.message().starts_with(start), "{}", answer.message());
                assert!(answer.message().contains(expected), "{}", answer.message());
            }
            send(&server, Method::DELETE, &format!("{VALIDATING}/v"), &Value::Null).await;
        }
    }
    server.stop().await.unwrap();
}

/// What people look up when a webhook does not work.
#[tokio::test]
async fn failures_are_worded_as_go_words_them() {
    let server = start().await;
    let allow = |_: &Value| Reply::Review(json!({"allowed": true}));
    let elsewhere = Hook::named(&["elsewhere.default.svc", "10.0.0.9"], allow).await;
    let nothing = Hook::start(|_| Reply::Raw(200, b"null".to_vec())).await;
    let list = Hook::start(|_| Reply::Raw(200, b"[]".to_vec())).await;
    let untyped = Hook::start(|request| {
        Reply::Raw(200, json!({"response": {"uid": request["uid"], "allowed": true}}).to_string().into_bytes())
    })
    .await;
    let stuck = Hook::start(|_| Reply::Redirect(307, "/again".into())).await;
    let moved = Hook::start(|request| {
        if request.is_null() { Reply::Raw(405, Vec::new()) } else { Reply::Redirect(302, "/again".into()) }
    })
    .await;
    // Both of these are no TLS: one says something else, one says nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = listener.local_addr().unwrap();
    let plain_task = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut hello = [0; 2048];
            let _ = stream.read(&mut hello).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute = listener.local_addr().unwrap();
    let mute_task = tokio::spawn(async move {
        use tokio::io::AsyncReadExt as _;
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    let at = |address: std::net::SocketAddr| json!({"url": format!("https://{address}/hook")});
    let call = "failed to call webhook: ";
    let post_at = |path: &str, hook: &Hook| format!("{call}Post \"https://127.0.0.1:{}{path}\": ", hook.port());
    for (config, expected) in [
        (
            elsewhere.config(),
            format!(
                "{}tls: failed to verify certificate: x509: certificate is valid for 10.0.0.9, not 127.0.0.1",
                post_at("/hook?timeout=10s", &elsewhere)
            ),
        ),
        (nothing.config(), "received invalid webhook response: webhook response was absent".to_owned()),
        (
            list.config(),
            format!(
                "{call}couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type \
                 struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                 \"json:\\\"kind,omitempty\\\"\" }}"
            ),
        ),
        (
            untyped.config(),
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, \
             got /, Kind="
                .to_owned(),
        ),
        (stuck.config(), format!("{}stopped after 10 redirects", post_at("/again", &stuck))),
        (moved.config(), format!("{call}the server does not allow this method on the requested resource")),
        (
            at(plain),
            format!("{call}Post \"https://{plain}/hook?timeout=10s\": http: server gave HTTP response to HTTPS client"),
        ),
        (at(mute), format!("{call}Post \"https://{mute}/hook?timeout=10s\": EOF")),
    ] {
        validating(&server, "v", &config, json!({})).await;
        let answer = post(&server, CONFIG_MAPS, &config_map("a")).await;
        let start = "Internal error occurred: failed calling webhook \"v.example.com\": ";
        assert_eq!(answer.message(), format!("{start}{expected}"));
        send(&server, Method::DELETE, &format!("{VALIDATING}/v"), &Value::Null).await;
    }
    plain_task.abort();
    mute_task.abort();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_webhook_may_send_requests_elsewhere() {
    let server = start().await;
    let first = std::sync::atomic::AtomicBool::new(true);
    let hook = Hook::start(move |_| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            Reply::Redirect(308, "other".into())
        } else {
            Reply::Review(json!({"allowed": true}))
        }
    })
    .await;
    validating(&server, "v", &hook.config(), json!({})).await;
    create(&server, CONFIG_MAPS, &config_map("a")).await;
    let seen = hook.received();
    assert_eq!((seen.len(), &seen[0]["uid"]), (2, &seen[1]["uid"]));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_silent_webhook_is_given_up_on() {
    let server = start().await;
    let hook = Hook::start(|_| Reply::Silence).await;
    validating(&server, "v", &hook.config(), json!({"timeoutSeconds": 1})).await;
    let started = Instant::now();
    let answer = post(&server, CONFIG_MAPS, &config_map("a")).await;
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(answer.code, 500);
    assert!(answer.message().ends_with("hook?timeout=1s\": context deadline exceeded"), "{}", answer.message());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_dry_run_is_announced_and_stores_nothing() {
    let server = start().await;
    let hook = Hook::allowing().await;
    validating(&server, "v", &hook.config(), json!({"sideEffects": "NoneOnDryRun"})).await;
    create(&server, &format!("{CONFIG_MAPS}?dryRun=All"), &config_map("dry")).await;
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/dry")).await.code, 404);
    let request = &hook.received()[0];
    assert_eq!(request["dryRun"], true);
    assert_eq!(request["options"]["dryRun"], json!(["All"]));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_service_is_reached_through_its_endpoints() {
    let server = start().await;
    let hook = Hook::start(|_| Reply::Review(json!({"allowed": false}))).await;
    let service = json!({"service": {"namespace": "default", "name": "hook", "path": "/x"}, "caBundle": hook.bundle()});
    validating(&server, "v", &service, json!({})).await;
    let unresolved = post(&server, CONFIG_MAPS, &config_map("a")).await;
    let url = "Post \"https://hook.default.svc:443/x?timeout=10s\"";
    assert!(unresolved.message().ends_with(&format!("{url}: service \"hook\" not found")), "{}", unresolved.message());
    let spec = json!({"ports": [{"name": "https", "port": 443}]});
    create(&server, "/api/v1/namespaces/default/services", &json!({"metadata": {"name": "hook"}, "spec": spec})).await;
    let slice = json!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "ports": [{"name": "https", "port": hook.port()}], "endpoints": [{"addresses": ["127.0.0.1"]}],
    });
    // The API refuses loopback addresses in endpoints, and a test has no others.
    let write = Write::Put {
        key: "/registry/endpointslices/default/hook-1".into(),
        expect: Expect::Absent,
        value: windlass_store::Value::plain(slice.to_string().into_bytes()),
    };
    server.api().store.txn(vec![write]).await.unwrap();
    let denied = post(&server, CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(denied.message(), "admission webhook \"v.example.com\" denied the request without explanation");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn deletes_are_admitted_one_by_one() {
    let server = start().await;
    let hook = Hook::start(|request| {
        let keep = request["operation"] == "DELETE" && request["oldObject"]["metadata"]["name"] == "keep";
        Reply::Review(json!({"allowed": !keep, "status": {"message": "must stay", "code": 409, "reason": "Busy"}}))
    })
    .await;
    validating(&server, "v", &hook.config(), json!({})).await;
    for name in ["keep", "z"] {
        create(&server, CONFIG_MAPS, &config_map(name)).await;
    }
    let denied = send(&server, Method::DELETE, &format!("{CONFIG_MAPS}/keep"), &Value::Null).await;
    assert_eq!((denied.code, &denied.body["reason"]), (409, &json!("Busy")));
    assert_eq!(send(&server, Method::DELETE, &format!("{CONFIG_MAPS}/z"), &Value::Null).await.code, 200);
    assert_eq!(send(&server, Method::DELETE, CONFIG_MAPS, &Value::Null).await.code, 409);
    let last = hook.received().pop().unwrap();
    assert!(last["name"].is_null() && last["object"].is_null());
    assert_eq!(last["oldObject"]["metadata"]["name"], "keep");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn no_webhook_guards_webhook_configurations() {
    let server = start().await;
    let hook = Hook::start(|_| Reply::Review(json!({"allowed": false}))).await;
    create(&server, VALIDATING, &configuration("all", &hook.config(), &["*/*"], &json!({}))).await;
    create(&server, MUTATING, &configuration("more", &hook.config(), &["*/*"], &json!({}))).await;
    assert_eq!(post(&server, CONFIG_MAPS, &config_map("a")).await.code, 400);
    for path in [format!("{VALIDATING}/all"), format!("{MUTATING}/more")] {
        assert_eq!(send(&server, Method::DELETE, &path, &Value::Null).await.code, 200);
    }
    create(&server, CONFIG_MAPS, &config_map("a")).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = start().await;
    let hook = Hook::allowing().await;
    validating(&server, "v", &hook.config(), json!({})).await;
    mutating(&server, "m", &hook.config(), json!({})).await;
    for i in 0..10 {
        create(&server, CONFIG_MAPS, &config_map(&format!("c{i}"))).await;
    }
    assert_eq!(hook.received().len(), 20);
    assert_eq!(hook.connections(), 1);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn equivalent_versions_are_matched_unless_told_otherwise() {
    let server = start().await;
    let hook = Hook::start(|request| {
        assert_eq!(request["object"]["apiVersion"], "autoscaling/v2");
        Reply::Review(patch(&json!([{"op": "replace", "path": "/spec/maxReplicas", "value": 7}])))
    })
    .await;
    let rules = json!([{"apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["*"],
        "resources": ["horizontalpodautoscalers"]}]);
    let exact = json!({"rules": rules, "matchPolicy": "Exact"});
    mutating(&server, "a", &hook.config(), exact).await;
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let scaler = |name: &str| {
        let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
        json!({"metadata": {"name": name}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}})
    };
    assert_eq!(create(&server, path, &scaler("a")).await["spec"]["maxReplicas"], 3);
    mutating(&server, "b", &hook.config(), json!({"rules": rules})).await;
    let made = create(&server, path, &scaler("b")).await;
    assert_eq!((&made["apiVersion"], &made["spec"]["maxReplicas"]), (&json!("autoscaling/v1"), &json!(7)));
    let request = &hook.received()[0];
    assert_eq!((&request["resource"]["version"], &request["requestResource"]["version"]), (&json!("v2"), &json!("v1")));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn subresources_are_asked_about_in_their_own_kind() {
    let server = start().await;
    let hook = Hook::start(|request| {
        if request["subResource"] == "scale" {
            return Reply::Review(patch(&json!([{"op": "replace", "path": "/spec/replicas", "value": 2}])));
        }
        Reply::Review(json!({"allowed": request["operation"] != "CONNECT"}))
    })
    .await;
    create(&server, MUTATING, &configuration("m", &hook.config(), &["*/*"], &json!({}))).await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    create(&server, deployments, &json!({"metadata": {"name": "d"}, "spec": spec})).await;
    let scale = json!({"spec": {"replicas": 9}});
    let scaled = send(&server, Method::PATCH, &format!("{deployments}/d/scale"), &scale).await;
    assert_eq!(scaled.body["spec"]["replicas"], 2, "{}", scaled.body);
    let asked = hook.received().pop().unwrap();
    assert_eq!(asked["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!(asked["oldObject"]["spec"]["replicas"], 1);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(&server, pods, &pod).await;
    let exec = post(&server, &format!("{pods}/p/exec?command=ls&command=-l&stdout=true"), &Value::Null).await;
    assert_eq!(exec.code, 400, "{}", exec.body);
    let asked = hook.received().pop().unwrap();
    assert_eq!(
        asked["object"],
        json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "command": ["ls", "-l"]})
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn namespaces_are_selected_by_old_or_new_labels() {
    let server = start().await;
    let hook = Hook::start(|_| Reply::Review(json!({"allowed": false}))).await;
    let selector = json!({"namespaceSelector": {"matchLabels": {"guarded": "yes"}}});
    create(&server, VALIDATING, &configuration("v", &hook.config(), &["configmaps", "namespaces"], &selector)).await;
    create(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "open"}})).await;
    create(&server, "/api/v1/namespaces/open/configmaps", &config_map("a")).await;
    let labelled = json!({"metadata": {"name": "shut", "labels": {"guarded": "yes"}}});
    assert_eq!(post(&server, "/api/v1/namespaces", &labelled).await.code, 400);
    let change = json!({"metadata": {"labels": {"guarded": "yes"}}});
    assert_eq!(send(&server, Method::PATCH, "/api/v1/namespaces/open", &change).await.code, 400);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn webhooks_are_asked_again_after_a_conflict() {
    let server = std::sync::Arc::new(start().await);
    create(&server, CONFIG_MAPS, &config_map("a")).await;
    let hook = Hook::allowing().await;
    validating(&server, "v", &hook.config(), json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let mut writes = tokio::task::JoinSet::new();
    for i in 0..8 {
        let (server, path) = (std::sync::Arc::clone(&server), path.clone());
        let change = json!({"data": {format!("k{i}"): "v"}});
        writes.spawn(async move { send(&server, Method::PATCH, &path, &change).await.code });
    }
    while let Some(code) = writes.join_next().await {
        assert_eq!(code.unwrap(), 200);
    }
    let data = get(&server, &path).await.body["data"].clone();
    assert_eq!(data.as_object().unwrap().len(), 9);
    assert!(hook.received().len() > 8, "somebody lost a race and was asked about again");
}

#[tokio::test]
async fn webhooks_that_write_their_object_fail_in_bounded_time() {
    let server = start().await;
    create(&server, CONFIG_MAPS, &config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let (service, target) = (server.service(), path.clone());
    let hook = Hook::start(move |request| {
        let inner = |object: &str| request[object]["data"]["inner"].clone();
        if inner("object") != inner("oldObject") {
            return Reply::Review(json!({"allowed": true}));
        }
        // Another writer's change: this one changes the object first.
        let (service, target) = (service.clone(), target.clone());
        let change = json!({"data": {"inner": request["uid"]}});
        Reply::Later(Box::pin(async move {
            let answer = send_to(service, Method::PATCH, &target, &change).await;
            json!({"allowed": answer.code == 200})
        }))
    })
    .await;
    validating(&server, "v", &hook.config(), json!({})).await;
    let answer = send(&server, Method::PATCH, &path, &json!({"data": {"outer": "x"}})).await;
    assert_eq!(answer.code, 409);
    assert_eq!(get(&server, &path).await.body["data"]["outer"], Value::Null);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn conditions_decide_who_is_asked() {
    let server = start().await;
    let hook = Hook::start(|_| Reply::Review(json!({"allowed": false}))).await;
    let conditions = |expression: &str| json!({"matchConditions": [{"name": "c", "expression": expression}]});
    let wrong = configuration("v", &hook.config(), &["configmaps"], &conditions("1 +"));
    assert_eq!(post(&server, VALIDATING, &wrong).await.code, 422);
    validating(&server, "v", &hook.config(), conditions("object.data.k != 'v'")).await;
    create(&server, CONFIG_MAPS, &config_map("a")).await;
    let other = json!({"metadata": {"name": "b"}, "data": {"k": "w"}});
    assert_eq!(post(&server, CONFIG_MAPS, &other).await.code, 400);
    let failing = post(&server, CONFIG_MAPS, &json!({"metadata": {"name": "c"}})).await;
    assert_eq!(failing.code, 403);
    let why = "configmaps \"c\" is forbidden: expression 'object.data.k != 'v'' resulted in error: no such key: data";
    assert_eq!(failing.message(), why);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn reviews_and_token_requests_are_admitted_like_anything_else() {
    let server = start().await;
    let resources = ["tokenreviews", "subjectaccessreviews", "selfsubjectreviews", "serviceaccounts/token"];
    let changing = Hook::start(|request| match request["kind"]["kind"].as_str().unwrap() {
        "SubjectAccessReview" => {
            Reply::Review(patch(&json!([{"op": "replace", "path": "/spec/user", "value": "mallory"}])))
        }
        "TokenRequest" => {
            Reply::Review(patch(&json!([{"op": "replace", "path": "/spec/expirationSeconds", "value": 700}])))
        }
        _ => Reply::Review(json!({"allowed": true})),
    })
    .await;
    let refusing = Hook::start(|request| {
        let allowed =
            request["object"]["spec"]["token"] != "forbidden" && request["kind"]["kind"] != "SelfSubjectReview";
        Reply::Review(json!({"allowed": allowed, "status": {"message": "no"}}))
    })
    .await;
    create(&server, MUTATING, &configuration("m", &changing.config(), &resources, &json!({}))).await;
    create(&server, VALIDATING, &configuration("v", &refusing.config(), &resources, &json!({}))).await;

    let review = json!({"spec": {"user": "alice", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reviewed = create(&server, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await;
    assert_eq!((&reviewed["spec"]["user"], &reviewed["status"]["allowed"]), (&json!("mallory"), &json!(false)));
    let token = |token: &str| json!({"spec": {"token": token}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    create(&server, reviews, &token("some")).await;
    let refused = post(&server, reviews, &token("forbidden")).await;
    assert_eq!((refused.code, refused.message()), (400, "admission webhook \"v.example.com\" denied the request: no"));
    assert_eq!(
        post(&server, reviews, &token("")).await.message(),
        "token is required for TokenReview in authentication"
    );
    assert_eq!(post(&server, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await.code, 400);

    create(&server, "/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "robot"}})).await;
    let made = create(&server, "/api/v1/namespaces/default/serviceaccounts/robot/token", &json!({"spec": {}})).await;
    assert_eq!(made["spec"]["expirationSeconds"], 700);
    assert!(!made["status"]["token"].as_str().unwrap().is_empty());
    let seen = refusing.received().into_iter().find(|request| request["kind"]["kind"] == "TokenRequest").unwrap();
    assert_eq!((&seen["subResource"], &seen["name"]), (&json!("token"), &json!("robot")));
    assert_eq!(seen["object"]["metadata"]["name"], "robot");
    server.stop().await.unwrap();
}

/// A definition of one version, with kinds named after their plural.
fn lamps(plural: &str) -> Value {
    json!({"metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": plural.to_uppercase()},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

/// Upstream's controllers write the status of a CRD as clients do: a webhook for it is asked, and while it refuses
/// the CRD is not served.
#[tokio::test]
async fn status_updates_of_definitions_are_subject_to_webhooks() {
    let server = start().await;
    let refuses = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let hook = Hook::start({
        let refuses = std::sync::Arc::clone(&refuses);
        move |_| Reply::Review(json!({"allowed": !refuses.load(std::sync::atomic::Ordering::SeqCst)}))
    })
    .await;
    let resources = ["customresourcedefinitions/status"];
    create(&server, VALIDATING, &configuration("status", &hook.config(), &resources, &json!({}))).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(&server, definitions, &lamps("lamps")).await;
    let lamps = "/apis/example.com/v1/namespaces/default/lamps";
    assert_eq!(get(&server, lamps).await.code, 404);
    let request = hook.received().first().cloned().unwrap();
    assert_eq!((&request["operation"], &request["subResource"]), (&json!("UPDATE"), &json!("status")));
    assert_eq!(request["userInfo"]["username"], "system:apiserver");
    assert_eq!(request["oldObject"]["status"]["conditions"], json!(null));
    let established = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
    let conditions = request["object"]["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(established), "{conditions:?}");
    refuses.store(false, std::sync::atomic::Ordering::SeqCst);
    let deadline = Instant::now() + Duration::from_secs(20);
    while get(&server, lamps).await.code != 200 {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    server.stop().await.unwrap();
}

/// Upstream keeps it in its store and leaves it out of everything that is read from there.
#[tokio::test]
async fn invalid_metadata_from_webhooks_is_dropped() {
    let server = start().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let crd = json!({"metadata": {"name": "lamps.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "lamps", "kind": "Lamp"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    create(&server, definitions, &crd).await;
    let spoils = [
        ("labels", json!({"a": 1})),
        ("labels", json!("x")),
        ("annotations", json!({"a": "b", "q": 2})),
        ("ownerReferences", json!("x")),
        ("finalizers", json!([1])),
    ];
    let hook = Hook::start({
        let spoils = spoils.clone();
        move |request| {
            let number = request["name"].as_str().and_then(|name| name[1..].parse::<usize>().ok()).unwrap_or_default();
            let (field, value) = &spoils[number];
            Reply::Review(patch(&json!([{"op": "add", "path": format!("/metadata/{field}"), "value": value}])))
        }
    })
    .await;
    create(&server, MUTATING, &configuration("spoil", &hook.config(), &["lamps"], &json!({}))).await;
    let lamps = "/apis/example.com/v1/namespaces/default/lamps";
    for (number, (field, value)) in spoils.iter().enumerate() {
        let name = format!("m{number}");
        let lamp = json!({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": name}});
        let made = create(&server, lamps, &lamp).await;
        assert!(made["metadata"].get(field).is_none(), "{field}: {value}: {made}");
        let path = format!("{lamps}/{name}");
        let patched = send(&server, Method::PATCH, &path, &json!({"metadata": {"annotations": {"n": "1"}}})).await;
        assert_eq!(patched.code, 200, "{field}: {value}: {}", patched.body);
    }
    server.stop().await.unwrap();
}

/// What a webhook makes of the status of a CRD is validated as what a client makes of it.
#[tokio::test]
async fn a_mutation_of_the_status_of_a_definition_is_validated() {
    let server = start().await;
    let operations = json!([
        {"op": "add", "path": "/metadata/labels", "value": {"no label": "!"}},
        {"op": "replace", "path": "/status/acceptedNames/plural", "value": "No Name"},
    ]);
    let breaks = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let hook = Hook::start({
        let breaks = std::sync::Arc::clone(&breaks);
        move |_| {
            let breaks = breaks.load(std::sync::atomic::Ordering::SeqCst);
            Reply::Review(if breaks { patch(&operations) } else { json!({"allowed": true}) })
        }
    })
    .await;
    let resources = ["customresourcedefinitions/status"];
    create(&server, MUTATING, &configuration("status", &hook.config(), &resources, &json!({}))).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = create(&server, definitions, &lamps("lamps")).await;
    assert!(!hook.received().is_empty());
    let path = format!("{definitions}/lamps.example.com");
    let stored = get(&server, &path).await.body;
    assert_eq!((&stored["status"], &stored["metadata"]["labels"]), (&made["status"], &Value::Null));
    breaks.store(false, std::sync::atomic::Ordering::SeqCst);
    let deadline = Instant::now() + Duration::from_secs(20);
    while get(&server, "/apis/example.com/v1/namespaces/default/lamps").await.code != 200 {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    server.stop().await.unwrap();
}

/// A webhook that is silent about one CRD delays no other, not even one that takes a name the first was to have.
#[tokio::test]
async fn definitions_do_not_wait_for_each_others_webhooks() {
    let server = start().await;
    let (speak, listen) = tokio::sync::watch::channel(false);
    let hook = Hook::start(move |request| {
        if request["name"] != "slow.example.com" {
            return Reply::Review(json!({"allowed": true}));
        }
        let mut listen = listen.clone();
        Reply::Later(Box::pin(async move {
            listen.wait_for(|speaks| *speaks).await.unwrap();
            json!({"allowed": true})
        }))
    })
    .await;
    let resources = ["customresourcedefinitions/status"];
    let patient = json!({"timeoutSeconds": 30});
    create(&server, VALIDATING, &configuration("status", &hook.config(), &resources, &patient)).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut slow = lamps("slow");
    slow["spec"]["names"]["kind"] = json!("QUICK");
    let service = server.service();
    let creating = tokio::spawn(async move { send_to(service, Method::POST, definitions, &slow).await });
    let deadline = Instant::now() + Duration::from_secs(20);
    while hook.received().is_empty() {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    create(&server, definitions, &lamps("quick")).await;
    assert_eq!(get(&server, "/apis/example.com/v1/namespaces/default/quick").await.code, 200);
    assert_eq!(get(&server, "/apis/example.com/v1/namespaces/default/slow").await.code, 404);
    assert!(!creating.is_finished(), "a definition is in effect when its write is answered");
    speak.send(true).unwrap();
    assert_eq!(creating.await.unwrap().code, 201);
    let conditions =
        get(&server, &format!("{definitions}/slow.example.com")).await.body["status"]["conditions"].clone();
    let names = |condition: &&Value| condition["type"] == "NamesAccepted";
    let accepted = conditions.as_array().unwrap().iter().find(names).unwrap();
    assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("False"), &json!("ListKindConflict")));
    server.stop().await.unwrap();
}

/// What a mutating webhook makes of a connection's options is what the validating ones are asked about.
#[tokio::test]
async fn the_options_of_a_connection_can_be_changed() {
    let server = start().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(&server, "/api/v1/namespaces/default/pods", &pod).await;
    let operations = json!([{"op": "replace", "path": "/command", "value": ["id"]}]);
    let changing = Hook::start(move |_| Reply::Review(patch(&operations))).await;
    let asked = Hook::allowing().await;
    for (path, hook) in [(MUTATING, &changing), (VALIDATING, &asked)] {
        let mut connect = configuration("connect", &hook.config(), &["pods/exec"], &json!({}));
        connect["webhooks"][0]["rules"][0]["operations"] = json!(["CONNECT"]);
        create(&server, path, &connect).await;
    }
    let answer = get(&server, "/api/v1/namespaces/default/pods/p/exec?command=ls&container=c").await;
    assert_eq!((answer.code, answer.message()), (400, "pod p does not have a host assigned"));
    let options = asked.received()[0]["object"].clone();
    assert_eq!(options["command"], json!(["id"]), "{options}");
    assert_eq!((&options["kind"], &options["container"]), (&json!("PodExecOptions"), &json!("c")));
    server.stop().await.unwrap();
}
