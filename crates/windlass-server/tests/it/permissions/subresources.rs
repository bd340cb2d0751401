//! Subresources take rights of their own, and none of their object's.

use http::Method;
use serde_json::{Value, json};

use super::{Ask, Checker, WIDGETS, pod, widget};
use crate::client::{create, get};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn cannot(verb: &str, resource: &str, name: &str) -> String {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    format!(
        "{resource} \"{name}\" is forbidden: User \"USER\" cannot {verb} resource \"{plural}/{subresource}\" in API \
         group \"{group}\" in the namespace \"default\""
    )
}

fn binding(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}})
}

fn scale(name: &str) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": 3}})
}

#[tokio::test]
async fn actions_on_pods_take_the_right_to_create_the_action() {
    let mut checker = Checker::start().await;
    for name in ["p", "q", "r"] {
        create(&checker.server, PODS, &pod(name)).await;
    }
    let all_of_pods = ["create,get,list,watch,update,patch,delete,deletecollection pods"];
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    create(&checker.server, ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await;
    for (rights, path, body) in [
        ("pods/binding", format!("{PODS}/q/binding"), binding("q")),
        ("pods/eviction", format!("{PODS}/p/eviction"), eviction),
        ("serviceaccounts/token", format!("{ACCOUNTS}/robot/token"), token),
    ] {
        let name = path.rsplit('/').nth(1).unwrap();
        let ask = || Ask::post(&path, body.clone());
        checker.refuses(&all_of_pods, ask(), &cannot("create", rights, name)).await;
        checker.refuses(&[&format!("update,patch {rights}")], ask(), &cannot("create", rights, name)).await;
        checker.refuses(&[&format!("create {rights}:x")], ask(), &cannot("create", rights, name)).await;
        checker.answers(&[&format!("create {rights}:{name}")], ask(), 201).await;
    }
    // An eviction deletes without the right to, as a binding changes the pod.
    assert_eq!(get(&checker.server, &format!("{PODS}/p")).await.code, 404);
    // Binding without a name in the path is a resource of its own.
    let path = "/api/v1/namespaces/default/bindings";
    checker.answers(&["create pods/binding"], Ask::post(path, binding("r")), 403).await;
    checker.answers(&["create bindings"], Ask::post(path, binding("r")), 201).await;
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn streams_need_the_right_to_create_them() {
    let mut checker = Checker::start().await;
    create(&checker.server, PODS, &pod("p")).await;
    for subresource in ["exec", "attach", "portforward"] {
        let (path, resource) = (format!("{PODS}/p/{subresource}"), format!("pods/{subresource}"));
        let (read, make) = (format!("get {resource}"), format!("create {resource}"));
        let post = || Ask::post(&path, Value::Null);
        checker.refuses(&["get,create pods"], Ask::get(&path), &cannot("get", &resource, "p")).await;
        checker.refuses(&[&read], post(), &cannot("create", &resource, "p")).await;
        checker.refuses(&[&make], Ask::get(&path), &cannot("get", &resource, "p")).await;
        // Upstream gives no reason here, so none is shown.
        checker.refuses(&[&read], Ask::get(&path), "pods \"p\" is forbidden: ").await;
        for (rights, ask) in [(vec![&*read, &*make], Ask::get(&path)), (vec![&*make], post())] {
            let answer = checker.answers(&rights, ask, 400).await;
            assert_eq!(answer.message(), "pod p does not have a host assigned");
        }
    }
    // What is proxied takes the verb of its method.
    let path = format!("{PODS}/p/proxy/x");
    for (method, verb) in [
        (Method::GET, "get"),
        (Method::POST, "create"),
        (Method::PUT, "update"),
        (Method::PATCH, "patch"),
        (Method::DELETE, "delete"),
    ] {
        let ask = || Ask::new(method.clone(), &path, Value::Null);
        let others = ["get", "create", "update", "patch", "delete"].into_iter().filter(|other| *other != verb);
        let others = format!("{} pods/proxy", others.collect::<Vec<_>>().join(","));
        checker.refuses(&[&others], ask(), &cannot(verb, "pods/proxy", "p")).await;
        checker.answers(&[&format!("{verb} pods/proxy")], ask(), 400).await;
    }
    let log = format!("{PODS}/p/log");
    checker.refuses(&["get pods"], Ask::get(&log), &cannot("get", "pods/log", "p")).await;
    checker.answers(&["get pods/log"], Ask::get(&log), 204).await;
    checker.answers(&["get pods/log"], Ask::get(&format!("{log}/more")), 404).await;
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn views_of_an_object_take_rights_on_the_view() {
    let mut checker = Checker::start().await;
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}});
    create(&checker.server, DEPLOYMENTS, &json!({"metadata": {"name": "one"}, "spec": spec})).await;
    create(&checker.server, WIDGETS, &widget("one")).await;
    create(&checker.server, PODS, &pod("one")).await;
    for (resource, path, body) in [
        ("deployments.apps/scale", format!("{DEPLOYMENTS}/one/scale"), scale("one")),
        ("widgets.example.com/scale", format!("{WIDGETS}/one/scale"), scale("one")),
        ("widgets.example.com/status", format!("{WIDGETS}/one/status"), Value::Null),
        ("deployments.apps/status", format!("{DEPLOYMENTS}/one/status"), Value::Null),
        ("pods/status", format!("{PODS}/one/status"), Value::Null),
        ("pods/ephemeralcontainers", format!("{PODS}/one/ephemeralcontainers"), Value::Null),
        ("pods/resize", format!("{PODS}/one/resize"), Value::Null),
    ] {
        let body =
            if body.is_null() { get(&checker.server, path.rsplit_once('/').unwrap().0).await.body } else { body };
        let (object, _) = resource.split_once('/').unwrap();
        let all = format!("get,update,patch,create {object}");
        for (verb, ask) in [
            ("get", Ask::get(&path)),
            ("update", Ask::put(&path, body.clone())),
            ("patch", Ask::patch(&path, json!({"metadata": {}}))),
        ] {
            checker.refuses(&[&all], ask.clone(), &cannot(verb, resource, "one")).await;
            checker.answers(&[&format!("{verb} {resource}")], ask, 200).await;
        }
        // Nor does the right to the view reach the object.
        let object_path = path.rsplit_once('/').unwrap().0;
        let of_view = format!("get,update,patch {resource}");
        checker.answers(&[&of_view], Ask::patch(object_path, json!({})), 403).await;
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}, "spec": {}});
    let finalize = || Ask::put("/api/v1/namespaces/default/finalize", namespace.clone());
    checker.refuses(&["update namespaces"], finalize(), &cannot("update", "namespaces/finalize", "default")).await;
    checker.answers(&["update namespaces/finalize"], finalize(), 200).await;
    checker.server.stop().await.unwrap();
}
