//! What pods of a namespace may ask for: the plugin PodSecurity.

use http::Method;
use serde_json::{Value, json};
use windlass_server::{AdmissionPlugin, AdmissionPlugins, PodSecurity, PodSecurityLevel, Server};

use crate::client::{create, get, post, send, start};

const NAMESPACES: &str = "/api/v1/namespaces";

async fn namespace(server: &Server, name: &str, labels: &[(&str, &str)]) {
    create(server, NAMESPACES, &json!({"metadata": {"name": name, "labels": labels_of(labels)}})).await;
}

fn labels_of(labels: &[(&str, &str)]) -> Value {
    labels.iter().map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), Value::from(*value))).collect()
}

async fn relabel(server: &Server, name: &str, labels: &[(&str, &str)]) -> crate::client::Answer {
    let patch = json!({"metadata": {"labels": labels_of(labels)}});
    send(server, Method::PATCH, &format!("{NAMESPACES}/{name}"), &patch).await
}

fn pod(name: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "c", "image": "i"}]);
    json!({"metadata": {"name": name}, "spec": spec})
}

fn pods(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/pods")
}

const HOST: &str = "violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";

#[tokio::test]
async fn a_namespace_refuses_pods_by_its_labels() {
    let server = start().await;
    namespace(&server, "a", &[("enforce", "baseline")]).await;
    let refused = post(&server, &pods("a"), &pod("p", json!({"hostNetwork": true}))).await;
    assert_eq!((refused.code, refused.message()), (403, format!("pods \"p\" is forbidden: {HOST}").as_str()));
    assert_eq!(refused.body["details"], json!({"name": "p", "kind": "pods"}));
    create(&server, &pods("a"), &pod("p", json!({}))).await;

    let mut unnamed = pod("", json!({"hostNetwork": true}));
    unnamed["metadata"] = json!({"generateName": "g-"});
    let refused = post(&server, &pods("a"), &unnamed).await;
    let name = refused.body["details"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("g-") && name.len() > 2, "{name}");
}

#[tokio::test]
async fn labels_of_a_namespace_must_be_readable() {
    let server = start().await;
    let labels = labels_of(&[("enforce", "strict"), ("warn-version", "1.2")]);
    let refused = post(&server, NAMESPACES, &json!({"metadata": {"name": "a", "labels": labels}})).await;
    let level = "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of \
                 privileged, baseline, restricted";
    let version = "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"1.2\": must be \"latest\" \
                   or \"v1.x\"";
    let message = format!("Namespace \"a\" is invalid: [{level}, {version}]");
    assert_eq!((refused.code, refused.message()), (422, message.as_str()));
    namespace(&server, "a", &[]).await;
    assert_eq!(relabel(&server, "a", &[("enforce", "strict")]).await.code, 422);
}

#[tokio::test]
async fn unreadable_labels_from_before_refuse_all_but_restricted_pods() {
    let plugins =
        AdmissionPlugins::default().without(AdmissionPlugin::PodSecurity).without(AdmissionPlugin::ServiceAccount);
    let store = std::sync::Arc::new(windlass_store::Memory::new());
    let server = Server::builder().store(store.clone()).admission_plugins(plugins).start().await.unwrap();
    namespace(&server, "a", &[("enforce", "strict")]).await;
    let server = Server::builder().store(store).start().await.unwrap();
    let refused = post(&server, &pods("a"), &pod("p", json!({}))).await;
    assert!(refused.message().contains("violates PodSecurity \"restricted:latest\""), "{}", refused.body);
    // What was wrong before may stay.
    let answer =
        send(&server, Method::PATCH, "/api/v1/namespaces/a", &json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

#[tokio::test]
async fn workloads_are_warned_of_and_not_refused() {
    let server = start().await;
    namespace(&server, "a", &[("enforce", "baseline")]).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("", json!({"hostNetwork": true}))["spec"]});
    let set = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = "Never".into();
    let warning = [format!("299 - \"would {}\"", HOST.replacen("violates", "violate", 1).replace('"', "\\\""))];
    let named = |spec: Value| json!({"metadata": {"name": "w"}, "spec": spec});
    let (apps, batch) = ("/apis/apps/v1/namespaces/a", "/apis/batch/v1/namespaces/a");
    let schedule = json!({"schedule": "@daily", "jobTemplate": {"spec": {"template": once}}});
    let mut kept = set.clone();
    kept["serviceName"] = "s".into();
    let controller = json!({"selector": {"a": "b"}, "template": template});
    for (path, body) in [
        (format!("{apps}/deployments"), named(set.clone())),
        (format!("{apps}/replicasets"), named(set.clone())),
        (format!("{apps}/daemonsets"), named(set)),
        (format!("{apps}/statefulsets"), named(kept)),
        (format!("{batch}/jobs"), named(json!({"template": once}))),
        (format!("{batch}/cronjobs"), named(schedule)),
        ("/api/v1/namespaces/a/replicationcontrollers".to_owned(), named(controller)),
        ("/api/v1/namespaces/a/podtemplates".to_owned(), json!({"metadata": {"name": "w"}, "template": template})),
    ] {
        let answer = post(&server, &path, &body).await;
        assert_eq!((answer.code, answer.warnings.as_slice()), (201, warning.as_slice()), "{path} {}", answer.body);
    }
    // A subresource says nothing about pods.
    let scale = json!({"spec": {"replicas": 2}});
    let answer = send(&server, Method::PATCH, &format!("{apps}/deployments/w/scale"), &scale).await;
    assert_eq!((answer.code, answer.warnings.len()), (200, 0));
}

#[tokio::test]
async fn a_stricter_label_warns_of_pods_that_are_there() {
    let server = start().await;
    namespace(&server, "a", &[]).await;
    create(&server, &pods("a"), &pod("old", json!({"hostPID": true}))).await;
    create(&server, &pods("a"), &pod("fine", json!({}))).await;
    let answer = relabel(&server, "a", &[("enforce", "baseline")]).await;
    let expected = [
        "299 - \"existing pods in namespace \\\"a\\\" violate the new PodSecurity enforce level \\\"baseline:latest\\\"\"",
        "299 - \"old: host namespaces\"",
    ];
    assert_eq!((answer.code, answer.warnings), (200, expected.map(str::to_owned).to_vec()));
    assert_eq!(relabel(&server, "a", &[("audit", "restricted")]).await.warnings, [""; 0]);

    // The pod stays, and may change in ways that do not matter.
    let path = format!("{}/old", pods("a"));
    let labelled = send(&server, Method::PATCH, &path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(labelled.code, 200);
    let mut changed = get(&server, &path).await.body;
    changed["spec"]["containers"][0]["image"] = "other".into();
    let refused = send(&server, Method::PUT, &path, &changed).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    let status = json!({"status": {"phase": "Running"}});
    assert_eq!(send(&server, Method::PATCH, &format!("{path}/status"), &status).await.code, 200);
}

#[tokio::test]
async fn the_plugin_can_be_switched_off() {
    let plugins =
        AdmissionPlugins::default().without(AdmissionPlugin::PodSecurity).without(AdmissionPlugin::ServiceAccount);
    let server = Server::builder().admission_plugins(plugins).start().await.unwrap();
    namespace(&server, "a", &[("enforce", "restricted")]).await;
    create(&server, &pods("a"), &pod("p", json!({"hostNetwork": true}))).await;
}

#[tokio::test]
async fn defaults_apply_without_labels_and_exemptions_always() {
    let mut configuration = PodSecurity::default();
    configuration.defaults.enforce.level = PodSecurityLevel::Baseline;
    configuration.exempt_namespaces.push("free".to_owned());
    configuration.exempt_runtime_classes.push("vm".to_owned());
    let server = Server::builder().pod_security(configuration).start().await.unwrap();
    let host = || json!({"hostNetwork": true});
    namespace(&server, "a", &[]).await;
    assert_eq!(post(&server, &pods("a"), &pod("p", host())).await.code, 403);
    let class = json!({"metadata": {"name": "vm"}, "handler": "vm"});
    create(&server, "/apis/node.k8s.io/v1/runtimeclasses", &class).await;
    create(&server, &pods("a"), &pod("p", json!({"hostNetwork": true, "runtimeClassName": "vm"}))).await;
    namespace(&server, "b", &[("enforce", "privileged")]).await;
    create(&server, &pods("b"), &pod("p", host())).await;

    let labels = labels_of(&[("enforce", "restricted")]);
    let answer = post(&server, NAMESPACES, &json!({"metadata": {"name": "free", "labels": labels}})).await;
    let warning = "299 - \"namespace \\\"free\\\" is exempt from Pod Security, and the policy (enforce=restricted:latest) \
                   will be ignored\"";
    assert_eq!((answer.code, answer.warnings), (201, vec![warning.to_owned()]));
    create(&server, &pods("free"), &pod("p", host())).await;
}
