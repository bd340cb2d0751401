//! Lists as long as a body allows. Each is checked in one pass: with a pass for each item, these tests would take
//! long. And however much is wrong, what is said about it stays in proportion to what was sent.

use serde_json::{Value, json};

use super::pod::Pod;
use super::testing::{create_errors, created, status_errors, update_errors};
use super::{Strategy, certificate, job, node, quota, service, storage, webhook};

/// Items of the lists.
const MANY: usize = 10_000;

fn many(item: impl Fn(usize) -> Value) -> Value {
    (0..MANY).map(item).collect()
}

fn named(i: usize) -> Value {
    json!({"name": format!("n{i}")})
}

#[track_caller]
fn fine(errors: &str) {
    assert!(errors == "[]", "{}", &errors[..errors.len().min(1000)]);
}

#[test]
fn lists_of_pods() {
    let containers = many(|i| json!({"name": format!("c{i}"), "image": "i"}));
    fine(&create_errors(&Pod, &json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})));
    let container = json!({
        "name": "c", "image": "i",
        "ports": many(|i| json!({"containerPort": i % 60_000 + 1, "hostPort": i % 60_000 + 1})),
        "volumeMounts": many(|i| json!({"name": format!("n{i}"), "mountPath": format!("/{i}")})),
        "env": many(named),
        "resources": {"claims": many(named)},
    });
    let files = many(|i| json!({"key": "k", "path": i.to_string()}));
    let mut volumes = many(|i| json!({"name": format!("n{i}"), "emptyDir": {}}));
    let projected = json!({"name": "p", "projected": {"sources": [{"secret": {"name": "s", "items": files}}]}});
    volumes.as_array_mut().expect("a list").push(projected);
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [container],
        "volumes": volumes,
        "resourceClaims": many(|i| json!({"name": format!("n{i}"), "resourceClaimName": "x"})),
        "schedulingGates": many(|i| json!({"name": format!("example.com/n{i}")})),
        "tolerations": many(|i| json!({"key": format!("n{i}"), "operator": "Exists"})),
    }});
    fine(&create_errors(&Pod, &pod));
    fine(&update_errors(&Pod, &pod, &pod));
    assert_eq!(Pod.warnings(&created(&Pod, &pod), None), [""; 0]);
}

#[test]
fn lists_of_pod_statuses() {
    let container = json!({"name": "c", "image": "i", "resources": {"claims": many(named)}});
    let claims = many(|i| json!({"name": format!("n{i}"), "resourceClaimName": "x"}));
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container], "resourceClaims": claims}});
    let devices = many(|i| json!({"resourceID": i.to_string(), "health": "Healthy"}));
    let mut resources = many(|i| json!({"name": format!("claim:n{i}")}));
    resources[0]["resources"] = devices;
    fine(&status_errors(
        &Pod,
        &pod,
        &json!({
            "resourceClaimStatuses": many(named),
            "containerStatuses": [{"name": "c", "allocatedResourcesStatus": resources}],
        }),
    ));
    let mappings = many(|i| json!({"containerName": "c", "resourceName": "r", "requestName": format!("n{i}")}));
    let status = json!({"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": mappings}});
    let errors = status_errors(&Pod, &pod, &status);
    assert!(!errors.contains("Duplicate value"));
}

#[test]
fn lists_of_other_kinds() {
    let ports = many(|i| json!({"name": format!("n{i}"), "port": i % 65_535 + 1}));
    let service = json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": {"ports": ports}});
    fine(&create_errors(&service::Service, &service));
    fine(&update_errors(&service::Service, &service, &service));
    let requests = many(|i| json!({"audience": i.to_string()}));
    fine(&create_errors(&storage::CsiDriver, &json!({"metadata": {"name": "d"}, "spec": {"tokenRequests": requests}})));
    let values: Vec<String> = (0..MANY).map(|i| i.to_string()).collect();
    let topology = json!([{"matchLabelExpressions": [{"key": "a", "values": values}]}]);
    let class = json!({"provisioner": "example.com/p", "allowedTopologies": topology});
    fine(&create_errors(&storage::StorageClass, &class));
    let taints = many(|i| json!({"key": format!("n{i}"), "effect": "NoSchedule"}));
    fine(&create_errors(&node::Node, &json!({"spec": {"taints": taints}})));
    let usages: Value = std::iter::repeat_n(Value::from("client auth"), MANY).collect();
    let request = json!({"spec": {"usages": usages}});
    assert!(create_errors(&certificate::CertificateSigningRequest, &request).contains("Duplicate value"));
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"name": "j", "uid": "1"}, "spec": {"template": pod}});
    let uncounted: Vec<String> = (0..MANY).map(|i| i.to_string()).collect();
    let status = json!({"uncountedTerminatedPods": {"succeeded": uncounted}});
    assert!(!status_errors(&job::Job, &job, &status).contains("Duplicate value"));
}

#[test]
fn what_is_said_stays_in_proportion() {
    let check = |errors: String, sent: usize| {
        assert_ne!(errors, "[]");
        assert!(errors.len() < 100 * sent, "{} bytes about {sent}", errors.len());
    };
    let registry = ",".repeat(MANY);
    let volume = json!({"name": "v", "quobyte": {"registry": registry, "volume": "v"}});
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}});
    check(create_errors(&Pod, &pod), MANY);

    let files: Value = std::iter::repeat_n(json!({"key": "k", "path": "p"}), MANY).collect();
    let projected = json!({"sources": [{"secret": {"name": "s".repeat(MANY), "items": files}}]});
    let volume = json!({"name": "v", "projected": projected});
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}});
    check(create_errors(&Pod, &pod), MANY);

    let container =
        json!({"name": "c", "image": "i", "resources": {"claims": many(|i| json!({"name": format!("m{i}")}))}});
    let claims = many(|i| json!({"name": format!("n{i}"), "resourceClaimName": "x"}));
    check(create_errors(&Pod, &json!({"spec": {"containers": [container], "resourceClaims": claims}})), 20 * MANY);

    let ports: Value = std::iter::repeat_n(json!({"containerPort": 1}), MANY).collect();
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i", "ports": ports}]}});
    let warnings = Pod.warnings(&created(&Pod, &pod), None);
    check(warnings.concat(), MANY);

    let hook = json!({"clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/".repeat(MANY)}}});
    check(create_errors(&webhook::WebhookConfiguration { mutating: false }, &json!({"webhooks": [hook]})), MANY);

    let scopes: Vec<String> = (0..MANY).map(|i| i.to_string()).collect();
    check(create_errors(&quota::ResourceQuota, &json!({"spec": {"scopes": scopes}})), 8 * MANY);
    let expressions: Value =
        std::iter::repeat_n(json!({"scopeName": "BestEffort", "operator": "Exists"}), MANY).collect();
    let spec = json!({"hard": {"cpu": 1}, "scopeSelector": {"matchExpressions": expressions}});
    check(create_errors(&quota::ResourceQuota, &json!({"spec": spec})), 50 * MANY);
}
