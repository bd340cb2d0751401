//! What pods cost: CPU time and memory of a whole cluster while Deployments of 100 replicas become Available and are deleted.
//!
//! `cargo bench -p windlass-cluster --bench scale [-- PODS...]`. For each number of pods: a new cluster in a temporary
//! directory with the durable engine, all controllers, the scheduler, and a simulated node for ten pods. Requests do not pass
//! a socket. `tests/load/cluster.py` measures the same with the command itself; this needs less to compile, and is what a
//! profiler is given.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use windlass_cluster::Cluster;

const REPLICAS: usize = 100;
const PODS_PER_NODE: usize = 10;
const PODS_PER_NAMESPACE: usize = 10_000;

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let numbers = if numbers.is_empty() { vec![1_000, 3_000, 10_000] } else { numbers };
    println!("| pods | nodes Ready | pods Ready | CPU per pod | memory per pod | deleted | CPU per pod |");
    println!("|---|---|---|---|---|---|---|");
    for pods in numbers {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(measure(pods));
    }
}

async fn measure(pods: usize) {
    let directory = tempfile::tempdir().unwrap();
    let nodes = u32::try_from((pods / PODS_PER_NODE).max(1)).unwrap();
    let began = Instant::now();
    let cluster = Cluster::builder().data_dir(directory.path()).nodes(nodes).start().await.unwrap();
    let client = cluster.client();
    await_nodes(&client, nodes as usize).await;
    let nodes_ready = began.elapsed();
    let names: Vec<String> = (0..pods.div_ceil(PODS_PER_NAMESPACE)).map(|number| format!("load-{number}")).collect();
    let (empty, counted) = (memory(), requests(&client).await);

    let (began, before) = (Instant::now(), cpu());
    for name in &names {
        post(&client, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        while client.request::<Value>(Request::get(&account).body(Vec::new()).unwrap()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    for number in 0..pods / REPLICAS {
        let namespace = &names[number * REPLICAS / PODS_PER_NAMESPACE];
        post(&client, &format!("/apis/apps/v1/namespaces/{namespace}/deployments"), &deployment(number)).await;
    }
    await_deployments(&client, pods / REPLICAS).await;
    let (ready, created) = (began.elapsed(), cpu().saturating_sub(before));
    let used = memory();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / pods as f64;
    if std::env::var_os("REQUESTS").is_some() {
        for (what, count) in requests(&client).await {
            let more = count - counted.get(&what).unwrap_or(&0);
            if more > 0 {
                println!("{:>10.3} per pod  {what}", more as f64 / pods as f64);
            }
        }
    }

    let (began, before) = (Instant::now(), cpu());
    for name in &names {
        let request = Request::delete(format!("/api/v1/namespaces/{name}")).body(Vec::new()).unwrap();
        client.request::<Value>(request).await.unwrap();
    }
    await_no_namespace(&client, &names).await;
    let (gone, deleted) = (began.elapsed(), cpu().saturating_sub(before));
    println!(
        "| {pods} | {:.1} s | {:.1} s | {:.0} us | {:.1} KB | {:.1} s | {:.0} us |",
        nodes_ready.as_secs_f64(),
        ready.as_secs_f64(),
        each(created),
        used.saturating_sub(empty) as f64 / 1e3 / pods as f64,
        gone.as_secs_f64(),
        each(deleted),
    );
    cluster.stop().await.unwrap();
}

fn deployment(number: usize) -> Value {
    let labels = json!({"app": format!("web-{number}")});
    let container = json!({
        "name": "web", "image": "registry.example/web:1", "ports": [{"containerPort": 8080}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    });
    json!({"metadata": {"name": format!("web-{number}")}, "spec": {
        "replicas": REPLICAS, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }})
}

async fn post(client: &Client, path: &str, object: &Value) {
    let request = Request::post(path).header("content-type", "application/json");
    client.request::<Value>(request.body(object.to_string().into_bytes()).unwrap()).await.unwrap();
}

/// Feeds a function with the objects of a watch, and whether they are gone, until it says that this is enough.
async fn follow<K>(api: Api<K>, mut is_enough: impl FnMut(&K, bool) -> bool)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let parameters = WatchParams::default().timeout(290);
    loop {
        let mut events = api.watch(&parameters, "0").await.unwrap().boxed();
        while let Some(Ok(event)) = events.next().await {
            let is_done = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => is_enough(&object, false),
                WatchEvent::Deleted(object) => is_enough(&object, true),
                _ => false,
            };
            if is_done {
                return;
            }
        }
    }
}

async fn await_nodes(client: &Client, count: usize) {
    let mut ready = HashSet::new();
    follow(Api::<Node>::all(client.clone()), |node, _| {
        let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if conditions.any(|one| one.type_ == "Ready" && one.status == "True") {
            ready.insert(node.name_any());
        }
        ready.len() == count
    })
    .await;
}

async fn await_deployments(client: &Client, count: usize) {
    let mut available = HashSet::new();
    follow(Api::<Deployment>::all(client.clone()), |deployment, _| {
        let status = deployment.status.as_ref();
        if status.and_then(|status| status.available_replicas) == i32::try_from(REPLICAS).ok() {
            available.insert(deployment.name_any());
        }
        available.len() == count
    })
    .await;
}

async fn await_no_namespace(client: &Client, names: &[String]) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in names {
        while namespaces.get_opt(name).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// How many requests the server has answered, by verb, resource and code.
async fn requests(client: &Client) -> BTreeMap<String, u64> {
    let text = client.request_text(Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap();
    let mut counts = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let label = |name: &str| line.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        let parts = ["verb", "resource", "subresource", "code"].map(|name| label(name).unwrap_or_default());
        let count: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        *counts.entry(parts.join(" ")).or_default() += count;
    }
    counts
}

/// The resident memory of this process, in bytes.
fn memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// The CPU time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
