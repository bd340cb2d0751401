//! PUT and server-side apply create what is not there, and take the right to create it.

use http::Method;
use serde_json::{Value, json};

use super::{Ask, Checker, WIDGETS, config_map, widget};
use crate::client::{create, get};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})
}

fn cannot(verb: &str, resource: &str, name: &str) -> String {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    format!(
        "{resource} \"{name}\" is forbidden: User \"USER\" cannot {verb} resource \"{plural}\" in API group \
         \"{group}\" in the namespace \"default\""
    )
}

#[tokio::test]
async fn put_takes_the_right_to_create_what_is_missing() {
    let mut checker = Checker::start().await;
    let path = |name: &str| format!("{SERVICES}/{name}");
    let new = path("new");
    let put = || Ask::put(&new, service("new"));
    checker.refuses(&["update services"], put(), &cannot("create", "services", "new")).await;
    checker.refuses(&["create services"], put(), &cannot("update", "services", "new")).await;
    // The name in the path counts, unlike that of an object which is posted.
    let others = ["update services", "create services:other"];
    checker.refuses(&others, put(), &cannot("create", "services", "new")).await;
    let dry = path("new?dryRun=All");
    let dry_run = Ask::put(&dry, service("new"));
    checker.refuses(&["update services"], dry_run, &cannot("create", "services", "new")).await;
    assert_eq!(get(&checker.server, &new).await.code, 404);
    checker.answers(&["update services:new", "create services:new"], put(), 201).await;
    checker.answers(&["update services"], put(), 200).await;

    // All kinds that PUT creates.
    for (resource, path, body) in [
        ("leases.coordination.k8s.io", "/apis/coordination.k8s.io/v1/namespaces/default/leases/x", json!({"spec": {}})),
        ("endpoints", "/api/v1/namespaces/default/endpoints/x", json!({})),
        ("limitranges", "/api/v1/namespaces/default/limitranges/x", json!({"spec": {"limits": [{"type": "Pod"}]}})),
        ("roles.rbac.authorization.k8s.io", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/x", json!({})),
        (
            "events",
            "/api/v1/namespaces/default/events/x",
            json!({"involvedObject": {"namespace": "default"}, "reportingComponent": "", "metadata": {"name": "x"}}),
        ),
    ] {
        let mut body = body.clone();
        body["metadata"]["name"] = "x".into();
        let (update, create) = (format!("update {resource}"), format!("create {resource}"));
        checker.refuses(&[&update], Ask::put(path, body.clone()), &cannot("create", resource, "x")).await;
        checker.answers(&[&update, &create], Ask::put(path, body), 201).await;
    }
    // Other kinds are not created, whatever the rights.
    let missing = format!("{CONFIG_MAPS}/missing");
    let all = ["update,create configmaps"];
    checker.answers(&all, Ask::put(&missing, config_map("missing")), 404).await;
    let missing = format!("{WIDGETS}/missing");
    checker.answers(&["update,create widgets.example.com"], Ask::put(&missing, widget("missing")), 404).await;
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn apply_takes_the_right_to_create_what_is_missing() {
    let mut checker = Checker::start().await;
    for (resource, collection, object) in
        [("configmaps", CONFIG_MAPS, config_map("new")), ("widgets.example.com", WIDGETS, widget("new"))]
    {
        let new = format!("{collection}/new?fieldManager=m");
        let apply = || Ask::apply(&new, object.clone());
        let (patch, create) = (format!("patch {resource}"), format!("create {resource}"));
        checker.refuses(&[&patch], apply(), &cannot("create", resource, "new")).await;
        checker.refuses(&[&create], apply(), &cannot("patch", resource, "new")).await;
        let other = format!("create {resource}:other");
        checker.refuses(&[&patch, &other], apply(), &cannot("create", resource, "new")).await;
        let dry = format!("{new}&dryRun=All");
        let dry_run = Ask::apply(&dry, object.clone());
        checker.refuses(&[&patch], dry_run, &cannot("create", resource, "new")).await;
        let forced = format!("{new}&force=true");
        checker.refuses(&[&patch], Ask::apply(&forced, object.clone()), &cannot("create", resource, "new")).await;
        checker.answers(&[&patch, &create], apply(), 201).await;
        checker.answers(&[&patch], apply(), 200).await;
        // Other patches create nothing.
        let missing = format!("{collection}/missing");
        checker.answers(&[&patch], Ask::patch(&missing, json!({})), 404).await;
    }
    // What is invalid is refused for that.
    let path = format!("{CONFIG_MAPS}/bad?fieldManager=m");
    let mut bad = config_map("bad");
    bad["data"] = json!({"not a key": ""});
    checker.answers(&["patch configmaps"], Ask::apply(&path, bad), 422).await;
    // A namespace is in itself.
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}});
    let apply = || Ask::apply("/api/v1/namespaces/fresh?fieldManager=m", namespace.clone());
    let why = "namespaces \"fresh\" is forbidden: User \"USER\" cannot create resource \"namespaces\" in API group \"\" \
               in the namespace \"fresh\"";
    checker.refuses(&["patch namespaces"], apply(), why).await;
    checker.answers(&["patch,create namespaces"], apply(), 201).await;
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn the_right_to_create_is_asked_before_validating_admission() {
    let mut checker = Checker::start().await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]});
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    create(&checker.server, &format!("{group}/validatingadmissionpolicies"), &policy).await;
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    create(&checker.server, &format!("{group}/validatingadmissionpolicybindings"), &binding).await;
    let path = format!("{CONFIG_MAPS}/new?fieldManager=m");
    let apply = || Ask::apply(&path, config_map("new"));
    checker.refuses(&["patch configmaps"], apply(), &cannot("create", "configmaps", "new")).await;
    let denied = checker.answers(&["patch,create configmaps"], apply(), 422).await;
    assert!(denied.message().contains("ValidatingAdmissionPolicy 'p'"), "{}", denied.body);
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn no_subresource_creates_its_object() {
    let mut checker = Checker::start().await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "x"}, "spec": {}});
    let rights = [
        "update,patch,create services/status",
        "update,patch,create deployments.apps/status",
        "update,patch,create deployments.apps/scale",
        "update,patch,create widgets.example.com/status",
        "update,patch,create widgets.example.com/scale",
    ];
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    for (path, body) in [
        (format!("{SERVICES}/x/status"), service("x")),
        (format!("{deployments}/x/status"), deployment),
        (format!("{deployments}/x/scale"), scale.clone()),
        (format!("{WIDGETS}/x/status"), widget("x")),
        (format!("{WIDGETS}/x/scale"), scale),
    ] {
        checker.answers(&rights, Ask::put(&path, body.clone()), 404).await;
        let path = format!("{path}?fieldManager=m");
        checker.answers(&rights, Ask::apply(&path, body), 404).await;
    }
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn post_knows_no_name() {
    let mut checker = Checker::start().await;
    let why = "configmaps is forbidden: User \"USER\" cannot create resource \"configmaps\" in API group \"\" in the \
               namespace \"default\"";
    let generated = json!({"metadata": {"generateName": "x"}});
    for body in [config_map("x"), generated.clone()] {
        checker.refuses(&["create configmaps:x"], Ask::post(CONFIG_MAPS, body.clone()), why).await;
        let dry = format!("{CONFIG_MAPS}?dryRun=All");
        checker.refuses(&["update,patch configmaps"], Ask::post(&dry, body.clone()), why).await;
        checker.answers(&["create configmaps"], Ask::post(CONFIG_MAPS, body), 201).await;
    }
    // Nor is an object created by its path, or a collection replaced.
    checker.answers(&["create configmaps"], Ask::post(&format!("{CONFIG_MAPS}/x"), config_map("x")), 405).await;
    checker.answers(&["update configmaps"], Ask::new(Method::PUT, CONFIG_MAPS, config_map("x")), 405).await;
    checker.server.stop().await.unwrap();
}
