//! What flow control costs: the same reads and writes with it and without, in turns, in one process.
//!
//! `cargo bench -p windlass-server --bench flow_control`. Prints the CPU time per request: the median of rounds.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use windlass_server::authn::User;
use windlass_server::{FlowControlOptions, Server, Service};

const ROUNDS: usize = 41;
const REQUESTS: usize = 2000;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let off = FlowControlOptions { enabled: false, ..FlowControlOptions::default() };
    let servers = [server(FlowControlOptions::default()).await, server(off).await];
    println!("| CPU per request, in the process | without | with | difference |\n|---|---|---|---|");
    for (name, method, path) in [("get", Method::GET, format!("{MAPS}/m")), ("create", Method::POST, MAPS.to_owned())] {
        let mut took = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for (server, took) in servers.iter().zip(&mut took) {
                let account = User::new("system:serviceaccount:default:app", ["system:serviceaccounts".to_owned()]);
                took.push(run(&server.service_as(account), &method, &path, round).await);
            }
        }
        let [with, without] = took.map(median);
        let more = (with - without) / without * 100.0;
        println!("| {name} | {:.2} us | {:.2} us | {:.2} us, {more:.1} % |", without, with, with - without);
    }
}

async fn server(options: FlowControlOptions) -> Server {
    let server = Server::builder().flow_control(options).start().await.unwrap();
    let role =
        json!({"metadata": {"name": "all"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let group = "/apis/rbac.authorization.k8s.io/v1";
    send(server.service(), &Method::POST, &format!("{group}/clusterroles"), &role).await;
    let subject = json!({"kind": "Group", "name": "system:serviceaccounts", "apiGroup": "rbac.authorization.k8s.io"});
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"});
    let binding = json!({"metadata": {"name": "all"}, "roleRef": reference, "subjects": [subject]});
    send(server.service(), &Method::POST, &format!("{group}/clusterrolebindings"), &binding).await;
    send(server.service(), &Method::POST, MAPS, &json!({"metadata": {"name": "m"}, "data": {"a": "b".repeat(900)}}))
        .await;
    server
}

/// The CPU time of one request in microseconds, on average.
async fn run(service: &Service, method: &Method, path: &str, round: usize) -> f64 {
    let bodies: Vec<Value> = (0..REQUESTS)
        .map(|n| match *method {
            Method::POST => json!({"metadata": {"name": format!("r-{round}-{n}")}, "data": {"a": "b".repeat(900)}}),
            _ => Value::Null,
        })
        .collect();
    let started = cpu();
    for body in &bodies {
        send(service.clone(), method, path, body).await;
    }
    (cpu() - started) / REQUESTS as f64 * 1e6
}

async fn send(service: Service, method: &Method, path: &str, body: &Value) {
    let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let response = service.oneshot(request.body(Full::<Bytes>::from(bytes)).unwrap()).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    response.into_body().collect().await.unwrap();
}

/// The CPU time of this thread, in seconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
