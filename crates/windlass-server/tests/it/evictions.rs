//! Evictions: what disruption budgets spare, and what they do not.

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;

use crate::client::{Answer, create, get, post, send, send_to, start};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A pod on a node, so that it takes its time to go, in this phase.
async fn pod(server: &Server, name: &str, phase: &str, ready: bool) -> Value {
    let body = json!({"metadata": {"name": name, "labels": {"app": "web"}},
                      "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    create(server, PODS, &body).await;
    let ready = if ready { "True" } else { "False" };
    let status = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
    let answer = send(server, Method::PATCH, &format!("{PODS}/{name}/status"), &status).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    answer.body
}

/// A budget over all pods. No controller runs here, so its status is the test's to say.
async fn budget(server: &Server, name: &str, spec: &Value, status: &Value) {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    create(server, BUDGETS, &json!({"metadata": {"name": name}, "spec": spec})).await;
    let answer = send(server, Method::PATCH, &format!("{BUDGETS}/{name}/status"), &json!({"status": status})).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

fn healthy(allowed: i64) -> Value {
    json!({"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 3, "expectedPods": 3})
}

async fn evict(server: &Server, name: &str, options: &Value) -> Answer {
    let mut eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    if !options.is_null() {
        eviction["deleteOptions"] = options.clone();
    }
    post(server, &format!("{PODS}/{name}/eviction"), &eviction).await
}

async fn is_going(server: &Server, name: &str) -> bool {
    !get(server, &format!("{PODS}/{name}")).await.body["metadata"]["deletionTimestamp"].is_null()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evictions_at_the_same_time_never_take_the_same_disruption() {
    let server = start().await;
    for i in 0..10 {
        pod(&server, &format!("p{i}"), "Running", true).await;
    }
    budget(&server, "b", &json!({"minAvailable": 7}), &healthy(3)).await;
    let service = server.service();
    let evictions = (0..10).map(|i| {
        let service = service.clone();
        tokio::spawn(async move {
            let body = json!({"metadata": {"name": format!("p{i}")}});
            send_to(service, Method::POST, &format!("{PODS}/p{i}/eviction"), &body).await.code
        })
    });
    let codes: Vec<u16> = join_all(evictions).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 3, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 429).count(), 7, "{codes:?}");
    let status = get(&server, &format!("{BUDGETS}/b")).await.body["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    let disrupted: Vec<&String> = status["disruptedPods"].as_object().unwrap().keys().collect();
    assert_eq!(disrupted.len(), 3);
    assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");
    for name in disrupted {
        assert!(is_going(&server, name).await);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_evicted_pod_says_why_it_goes() {
    let server = start().await;
    pod(&server, "p", "Running", true).await;
    let answer = evict(&server, "p", &Value::Null).await;
    let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    assert_eq!((answer.code, answer.body), (201, expected));
    let going = get(&server, &format!("{PODS}/p")).await.body;
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let condition = going["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("DisruptionTarget"), &json!("EvictionByEvictionAPI"))
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn dry_runs_take_nothing_but_can_be_refused() {
    let server = start().await;
    pod(&server, "p", "Running", true).await;
    budget(&server, "b", &json!({"minAvailable": 1}), &healthy(1)).await;
    let dry = json!({"dryRun": ["All"]});
    assert_eq!(evict(&server, "p", &dry).await.code, 201);
    let body = json!({"metadata": {"name": "p"}});
    assert_eq!(post(&server, &format!("{PODS}/p/eviction?dryRun=All"), &body).await.code, 201);
    assert!(!is_going(&server, "p").await);
    let status = get(&server, &format!("{BUDGETS}/b")).await.body["status"].clone();
    assert_eq!((&status["disruptionsAllowed"], &status["disruptedPods"]), (&json!(1), &Value::Null));
    let none = json!({"status": {"disruptionsAllowed": 0}});
    send(&server, Method::PATCH, &format!("{BUDGETS}/b/status"), &none).await;
    assert_eq!(evict(&server, "p", &dry).await.code, 429);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn outdated_budgets_ask_for_a_retry() {
    let server = start().await;
    pod(&server, "p", "Running", true).await;
    budget(&server, "b", &json!({"minAvailable": 1}), &json!({"observedGeneration": 0, "disruptionsAllowed": 5})).await;
    let answer = evict(&server, "p", &Value::Null).await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (429, Some("TooManyRequests")));
    let details = json!({"retryAfterSeconds": 10, "causes": [{
        "reason": "DisruptionBudget", "message": "The disruption budget b is still being processed by the server.",
    }]});
    assert_eq!(answer.body["details"], details);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn pods_that_do_not_count_need_no_budget() {
    let server = start().await;
    budget(&server, "b", &json!({"minAvailable": 1}), &json!({"observedGeneration": 1, "desiredHealthy": 2})).await;
    for (name, phase) in [("over", "Succeeded"), ("failed", "Failed"), ("waiting", "Pending")] {
        pod(&server, name, phase, false).await;
        let answer = evict(&server, name, &Value::Null).await;
        assert_eq!(answer.code, 201, "{name}: {}", answer.body);
    }
    pod(&server, "sick", "Running", false).await;
    assert_eq!(evict(&server, "sick", &Value::Null).await.code, 429);
    let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    send(&server, Method::PATCH, &format!("{BUDGETS}/b"), &always).await;
    assert_eq!(evict(&server, "sick", &Value::Null).await.code, 201);
    assert!(is_going(&server, "sick").await);
    // One that is going anyway may go sooner.
    assert_eq!(evict(&server, "sick", &json!({"gracePeriodSeconds": 0})).await.code, 201);
    assert_eq!(get(&server, &format!("{PODS}/sick")).await.code, 404);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn unready_pods_may_go_while_enough_are_ready() {
    let server = start().await;
    pod(&server, "sick", "Running", false).await;
    budget(&server, "b", &json!({"minAvailable": 3}), &healthy(0)).await;
    assert_eq!(evict(&server, "sick", &Value::Null).await.code, 201);
    assert_eq!(get(&server, &format!("{BUDGETS}/b")).await.body["status"]["disruptedPods"], Value::Null);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn two_budgets_are_one_too_many() {
    let server = start().await;
    pod(&server, "p", "Running", true).await;
    budget(&server, "a", &json!({"minAvailable": 1}), &healthy(1)).await;
    budget(&server, "b", &json!({"minAvailable": 1}), &healthy(1)).await;
    let answer = evict(&server, "p", &Value::Null).await;
    assert_eq!(answer.code, 500);
    let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!(answer.message(), why);
    assert!(!is_going(&server, "p").await);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn preconditions_and_the_body_are_checked() {
    let server = start().await;
    let made = pod(&server, "p", "Running", true).await;
    let answer = evict(&server, "p", &json!({"preconditions": {"uid": "other"}})).await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (409, Some("Conflict")));
    let revision = made["metadata"]["resourceVersion"].clone();
    let stale = json!({"preconditions": {"resourceVersion": "1"}});
    assert_eq!(evict(&server, "p", &stale).await.code, 409);
    let elsewhere = json!({"metadata": {"name": "p", "namespace": "kube-system"}});
    let answer = post(&server, &format!("{PODS}/p/eviction"), &elsewhere).await;
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!((answer.code, answer.message()), (400, why));
    let old = json!({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p"},
                     "deleteOptions": {"preconditions": {"uid": made["metadata"]["uid"], "resourceVersion": revision}}});
    let answer = post(&server, &format!("{PODS}/p/eviction"), &old).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    assert!(is_going(&server, "p").await);
    server.stop().await.unwrap();
}
