//! The parts of a cluster act as the users that they are in a kubeadm cluster, with no more rights than those have.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, Error};
use serde_json::{Value, json};
use windlass_cluster::{AuditOptions, Cluster};
use windlass_server::authn::User;

use crate::objects::{create, namespaced, until_event, until_there};

/// Refuses requests for a resource by other users than those that a CEL expression names.
async fn restrict(client: &Client, operation: &str, group: &str, resource: &str, user: &str) {
    let name = format!("{}.{}", resource.replace('/', "-"), operation.to_lowercase());
    let rule = json!({"apiGroups": [group], "apiVersions": ["*"], "operations": [operation], "resources": [resource]});
    let policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": format!("request.userInfo.username == {user}")}]}});
    create(&Api::<ValidatingAdmissionPolicy>::all(client.clone()), policy).await;
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    create(&Api::<ValidatingAdmissionPolicyBinding>::all(client.clone()), binding).await;
}

/// Who may report an event: a node what happens on it, and anybody something else.
const REPORTER: &str = "(has(object.source) && has(object.source.component) && object.source.component == 'kubelet' ? \
                        'system:node:' + object.source.host : request.userInfo.username)";

fn web() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {
    "replicas": 2,
    "selector": {"matchLabels": {"app": "web"}},
    "template": {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]},
    }}})
}

fn account(name: &str) -> String {
    format!("'system:serviceaccount:kube-system:{name}'")
}

#[tokio::test]
async fn each_part_acts_as_its_own_user() {
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let client = cluster.client();
    let restrictions = [
        ("CREATE", "apps", "replicasets", account("deployment-controller")),
        ("UPDATE", "apps", "replicasets/status", account("replicaset-controller")),
        ("CREATE", "", "pods", account("replicaset-controller")),
        ("CREATE", "", "pods/binding", "'system:kube-scheduler'".to_owned()),
        ("UPDATE", "", "pods/status", "'system:node:' + object.spec.nodeName".to_owned()),
        ("UPDATE", "coordination.k8s.io", "leases", "'system:node:' + object.metadata.name".to_owned()),
        ("CREATE", "", "events", REPORTER.to_owned()),
    ];
    for (operation, group, resource, user) in &restrictions {
        restrict(&client, operation, group, resource, user).await;
    }
    let deployments: Api<Deployment> = namespaced(&client, "default");
    create(&deployments, web()).await;
    await_condition(deployments, "web", conditions::is_deployment_completed()).await.unwrap();
    until_event(&client, "Started", "web-", "Container started").await;

    let pods: Api<Pod> = namespaced(&client, "default");
    for pod in pods.list(&ListParams::default().labels("app=web")).await.unwrap() {
        let managers: Vec<_> = pod.metadata.managed_fields.into_iter().flatten().collect();
        let of = |manager: &str| managers.iter().find(|entry| entry.manager.as_deref() == Some(manager));
        assert!(of("kube-controller-manager").is_some_and(|entry| entry.subresource.is_none()), "{managers:?}");
        assert!(of("kubelet").is_some_and(|entry| entry.subresource.as_deref() == Some("status")), "{managers:?}");
    }
    let alone = json!({"metadata": {"name": "alone"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let refused = pods.create(&PostParams::default(), &serde_json::from_value(alone).unwrap()).await;
    assert!(refused.unwrap_err().to_string().contains("pods.create"), "the restrictions are in force");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn audit_entries_name_each_component() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let cluster = Cluster::builder().nodes(1).audit(AuditOptions::new(&log)).start().await.unwrap();
    let client = cluster.client();
    let deployments: Api<Deployment> = namespaced(&client, "default");
    create(&deployments, web()).await;
    await_condition(deployments, "web", conditions::is_deployment_completed()).await.unwrap();
    cluster.stop().await.unwrap();
    let entries = std::fs::read_to_string(log).unwrap();
    let entries: Vec<Value> = entries.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let account = |name: &str| format!("system:serviceaccount:kube-system:{name}");
    for (user, verb, resource, subresource) in [
        (account("deployment-controller"), "create", "replicasets", None),
        (account("replicaset-controller"), "create", "pods", None),
        ("system:kube-scheduler".to_owned(), "create", "pods", Some("binding")),
        ("system:node:node-0".to_owned(), "patch", "pods", Some("status")),
        ("system:node:node-0".to_owned(), "create", "leases", None),
        ("system:kube-controller-manager".to_owned(), "watch", "deployments", None),
        (account("clusterrole-aggregation-controller"), "patch", "clusterroles", None),
    ] {
        let is_it = |entry: &&Value| {
            let object = &entry["objectRef"];
            entry["user"]["username"] == *user
                && entry["verb"] == verb
                && object["resource"] == resource
                && object["subresource"].as_str() == subresource
        };
        assert!(entries.iter().any(|entry| is_it(&entry)), "{user} {verb} {resource} {subresource:?}");
    }
}

#[tokio::test]
async fn controllers_have_accounts_in_kube_system() {
    let cluster = Cluster::start().await.unwrap();
    let accounts: Api<ServiceAccount> = namespaced(&cluster.client(), "kube-system");
    for name in ["deployment-controller", "generic-garbage-collector", "persistent-volume-binder"] {
        until_there(&accounts, name).await;
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_nodes_credentials_reach_only_its_own_pods_secrets() {
    let cluster = Cluster::builder().nodes(2).start().await.unwrap();
    let client = cluster.client();
    let secrets: Api<Secret> = namespaced(&client, "default");
    let pods: Api<Pod> = namespaced(&client, "default");
    for (ordinal, name) in ["zero", "one"].into_iter().enumerate() {
        create(&secrets, json!({"metadata": {"name": name}, "stringData": {"key": name}})).await;
        let volumes = json!([{"name": "v", "secret": {"secretName": name}}]);
        let pod = json!({"metadata": {"name": name}, "spec": {
            "nodeName": format!("node-{ordinal}"), "volumes": volumes,
            "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}});
        create(&pods, pod).await;
        await_condition(pods.clone(), name, conditions::is_pod_running()).await.unwrap();
    }
    let user = User::new("system:node:node-0", ["system:nodes".to_owned()]);
    let node = Client::new(cluster.server().service_as(user), "default");
    let reachable: Api<Secret> = namespaced(&node, "default");
    assert!(reachable.get("zero").await.is_ok());
    let refusals = [
        reachable.get("one").await.map(drop),
        reachable.list(&ListParams::default()).await.map(drop),
        namespaced::<Pod>(&node, "default").get("one").await.map(drop),
    ];
    for refused in refusals {
        assert!(matches!(&refused, Err(Error::Api(status)) if status.code == 403), "{refused:?}");
    }
    cluster.stop().await.unwrap();
}
