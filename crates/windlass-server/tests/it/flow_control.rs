//! Priority and fairness as clients see it: headers, 429, the default objects and their status.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, Method, Request};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Empty};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use windlass_server::authn::User;
use windlass_server::{FlowControlOptions, Server};

use crate::client::{create, eventually, get, send, start};

const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A body that never ends, so that its request takes seats for as long as it is held.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

fn level(name: &str, response: &Value) -> Value {
    json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
           "metadata": {"name": name},
           "spec": {"type": "Limited", "limited": {
               "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": response}}})
}

/// A schema for the group `devs`.
fn schema(name: &str, level: &str) -> Value {
    json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name},
           "spec": {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 50,
                    "distinguisherMethod": {"type": "ByUser"},
                    "rules": [{"subjects": [{"kind": "Group", "group": {"name": "devs"}}],
                        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                                           "clusterScope": true, "namespaces": ["*"]}]}]}})
}

fn dev(name: &str) -> User {
    User::new(name, ["devs".to_owned()])
}

async fn ask(server: &Server, user: User, path: &str) -> (u16, HeaderMap, String) {
    let request = Request::get(path).body(Empty::<Bytes>::new()).unwrap();
    let response = server.service_as(user).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), parts.headers, String::from_utf8_lossy(&body).into_owned())
}

/// The FlowSchema and PriorityLevelConfiguration that an answer names.
async fn classes(server: &Server, headers: &HeaderMap) -> Option<(String, String)> {
    let name = |list: &Value, header: &str| {
        let uid = headers.get(header)?.to_str().unwrap().to_owned();
        let items = list["items"].as_array().unwrap();
        let found = items.iter().find(|item| item["metadata"]["uid"] == *uid);
        Some(found.unwrap_or_else(|| panic!("{uid}"))["metadata"]["name"].as_str().unwrap().to_owned())
    };
    let schema = name(&get(server, SCHEMAS).await.body, "x-kubernetes-pf-flowschema-uid")?;
    Some((schema, name(&get(server, LEVELS).await.body, "x-kubernetes-pf-prioritylevel-uid")?))
}

/// A server where the group `devs` has one seat, once that is in effect.
async fn with_one_seat(response: &Value) -> Server {
    let options = FlowControlOptions { seats: 10, ..FlowControlOptions::default() };
    let server = Server::builder().flow_control(options).start().await.unwrap();
    create(&server, LEVELS, &level("narrow", response)).await;
    create(&server, SCHEMAS, &schema("devs", "narrow")).await;
    for _ in 0..100_000 {
        let (_, headers, _) = ask(&server, dev("probe"), "/version").await;
        if classes(&server, &headers).await == Some(("devs".to_owned(), "narrow".to_owned())) {
            return server;
        }
        tokio::task::yield_now().await;
    }
    panic!("the schema does not take effect");
}

fn hold(server: &Server, user: User) -> impl Future<Output = u16> + Send + 'static + use<> {
    let request = Request::post(REVIEWS).header("content-type", "application/json").body(Endless).unwrap();
    server.service_as(user).oneshot(request).map(|response| response.unwrap().status().as_u16())
}

#[tokio::test]
async fn answers_name_the_schema_and_level_of_their_request() {
    let server = start().await;
    let class = async |user: User, path: &str| {
        let (_, headers, _) = ask(&server, user, path).await;
        classes(&server, &headers).await.map_or_else(String::new, |(schema, level)| format!("{schema}/{level}"))
    };
    let account = || User::new("system:serviceaccount:default:app", ["system:serviceaccounts".to_owned()]);
    let leader = || User::new("system:kube-scheduler", []);
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(class(User::admin(), pods).await, "exempt/exempt");
    assert_eq!(class(User::new("jane", []), pods).await, "global-default/global-default");
    assert_eq!(class(User::new("jane", []), "/readyz").await, "probes/exempt");
    assert_eq!(class(account(), pods).await, "service-accounts/workload-low");
    assert_eq!(class(leader(), pods).await, "kube-scheduler/workload-high");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler";
    assert_eq!(class(leader(), lease).await, "system-leader-election/leader-election");
    let node = User::new("system:node:n", ["system:nodes".to_owned()]);
    assert_eq!(class(node.clone(), "/api/v1/nodes/n").await, "system-node-high/node-high");
    assert_eq!(class(node, pods).await, "system-nodes/system");
    assert_eq!(class(User::anonymous(), "/api").await, "global-default/global-default");
    // Long-running requests that are no watches are not limited.
    assert_eq!(class(User::admin(), "/api/v1/namespaces/default/pods/p/log").await, "");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn levels_without_queues_answer_429_when_full() {
    let server = with_one_seat(&json!({"type": "Reject"})).await;
    let mut held = Box::pin(hold(&server, dev("busy")));
    assert!((&mut held).now_or_never().is_none());
    let (code, headers, body) = ask(&server, dev("late"), "/version").await;
    assert_eq!((code, &*body), (429, "Too many requests, please try again later.\n"));
    assert_eq!(headers["retry-after"], "1");
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(classes(&server, &headers).await, Some(("devs".into(), "narrow".into())));
    assert_eq!(ask(&server, User::new("other", []), "/version").await.0, 200);
    drop(held);
    assert_eq!(ask(&server, dev("late"), "/version").await.0, 200);
    let (_, _, metrics) = ask(&server, User::admin(), "/metrics").await;
    let rejected = "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"devs\",priority_level=\"narrow\",\
                    reason=\"concurrency-limit\"} 1\n";
    assert!(metrics.contains(rejected), "{metrics}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn queued_requests_go_on_when_seats_are_free() {
    // That two users are dealt the same queues is next to impossible.
    let queuing = json!({"queues": 128, "handSize": 4, "queueLengthLimit": 2});
    let server = with_one_seat(&json!({"type": "Queue", "queuing": queuing})).await;
    let mut held = Box::pin(hold(&server, dev("busy")));
    assert!((&mut held).now_or_never().is_none());
    let mut waiting: Vec<_> = (0..8).map(|_| Box::pin(ask(&server, dev("busy"), "/version"))).collect();
    assert!(waiting.iter_mut().all(|request| request.now_or_never().is_none()));
    assert_eq!(ask(&server, dev("busy"), "/version").await.0, 429);
    let mut quiet = Box::pin(ask(&server, dev("quiet"), "/version"));
    assert!((&mut quiet).now_or_never().is_none());
    let (_, _, dump) = ask(&server, User::admin(), "/debug/api_priority_and_fairness/dump_requests").await;
    assert_eq!(dump.lines().filter(|line| line.starts_with("narrow,")).count(), 9, "{dump}");
    drop(held);
    let (quiet, others) = futures::future::join(quiet, futures::future::join_all(waiting)).await;
    assert_eq!(quiet.0, 200);
    assert!(others.iter().all(|answer| answer.0 == 200));
    server.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_too_long_is_answered_429() {
    let queuing = json!({"queues": 8, "handSize": 2, "queueLengthLimit": 3});
    let server = with_one_seat(&json!({"type": "Queue", "queuing": queuing})).await;
    let held = tokio::spawn(hold(&server, dev("busy")));
    tokio::task::yield_now().await;
    let started = tokio::time::Instant::now();
    assert_eq!(ask(&server, dev("late"), "/version?timeout=20s").await.0, 429);
    assert_eq!(started.elapsed().as_secs(), 5);
    held.abort();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_schema_says_whether_its_level_exists() {
    let server = start().await;
    let dangling = |body: &Value| {
        let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "Dangling").unwrap_or_default()
    };
    let default = get(&server, &format!("{SCHEMAS}/global-default")).await.body;
    assert_eq!(dangling(&default)["status"], "False");
    create(&server, SCHEMAS, &schema("lost", "nowhere")).await;
    let path = format!("{SCHEMAS}/lost");
    let lost = eventually(&server, &path, |answer| dangling(&answer.body)["status"] == "True").await;
    let message = "This FlowSchema references the PriorityLevelConfiguration object named \"nowhere\" but there is no such object";
    assert_eq!((&dangling(&lost)["reason"], &dangling(&lost)["message"]), (&json!("NotFound"), &json!(message)));
    create(&server, LEVELS, &level("nowhere", &json!({"type": "Reject"}))).await;
    eventually(&server, &path, |answer| dangling(&answer.body)["status"] == "False").await;
    server.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn mandatory_objects_come_back_within_a_minute() {
    let server = start().await;
    let path = format!("{SCHEMAS}/catch-all");
    let patch = json!({"spec": {"matchingPrecedence": 5}});
    assert_eq!(send(&server, Method::PATCH, &path, &patch).await.code, 422);
    for deleted in [path.as_str(), &format!("{LEVELS}/workload-low")] {
        assert_eq!(send(&server, Method::DELETE, deleted, &Value::Null).await.code, 200);
    }
    // Nothing else is busy, so the clock of the test goes on.
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    eventually(&server, &path, |answer| answer.body["spec"]["matchingPrecedence"] == 10_000).await;
    eventually(&server, &format!("{LEVELS}/workload-low"), |answer| answer.code == 200).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_without_flow_control_does_not_limit() {
    let options = FlowControlOptions { enabled: false, seats: 1 };
    let server = Server::builder().flow_control(options).start().await.unwrap();
    let mut held: Vec<_> = (0..50).map(|_| Box::pin(hold(&server, User::new("busy", [])))).collect();
    assert!(held.iter_mut().all(|request| request.now_or_never().is_none()));
    let (code, headers, _) = ask(&server, User::new("busy", []), "/version").await;
    assert_eq!((code, headers.contains_key("x-kubernetes-pf-flowschema-uid")), (200, false));
    server.stop().await.unwrap();
}
