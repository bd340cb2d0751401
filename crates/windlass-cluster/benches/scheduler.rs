//! How many pods a second get nodes, the API server and its durable store included.
//!
//! `cargo bench -p windlass-cluster --bench scheduler [-- NODES PODS]`. For each workload: a new cluster in a temporary
//! directory, nodes, some pods that are there already, and then pods that are created while the scheduler works. The
//! clock runs from the first creation until the last pod has a node.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use kube::client::Body;
use serde_json::{Value, json};
use windlass_cluster::{BuiltIn, Cluster, Controllers};

/// Requests of the clients that are under way at once.
const CONCURRENCY: usize = 64;

fn node(number: usize) -> Value {
    let resources = json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": format!("node-{number}"), "labels": {
            "kubernetes.io/hostname": format!("node-{number}"),
            "topology.kubernetes.io/zone": format!("zone-{}", number % 3),
        }},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

#[derive(Clone, Copy)]
enum Workload {
    Basic,
    Spread,
    Affinity,
    AntiAffinity,
}

impl Workload {
    const ALL: [(Self, &str); 4] = [
        (Self::Basic, "basic"),
        (Self::Spread, "topology spread"),
        (Self::Affinity, "required affinity"),
        (Self::AntiAffinity, "required anti-affinity"),
    ];

    fn pod(self, name: &str) -> Value {
        let container = json!({
            "name": "c", "image": "registry.example.com/pause:3", "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}},
        });
        let selector = json!({"matchLabels": {"color": "blue"}});
        let term = |key: &str| {
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": selector, "topologyKey": key},
            ]})
        };
        let mut spec = json!({"containers": [container]});
        match self {
            Self::Basic => {}
            Self::Spread => {
                spec["topologySpreadConstraints"] = json!([{
                    "maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": selector,
                }]);
            }
            Self::Affinity => spec["affinity"] = json!({"podAffinity": term("topology.kubernetes.io/zone")}),
            Self::AntiAffinity => spec["affinity"] = json!({"podAntiAffinity": term("kubernetes.io/hostname")}),
        }
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"color": "blue"}}, "spec": spec,
        })
    }
}

async fn post(client: &kube::Client, path: &str, object: Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::from(object.to_string().into_bytes())).unwrap();
    let answer = client.send(request).await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.status());
    answer.into_body().collect_bytes().await.unwrap();
}

async fn post_all(client: &kube::Client, path: &str, objects: impl Iterator<Item = Value>) {
    stream::iter(objects).for_each_concurrent(CONCURRENCY, |object| post(client, path, object)).await;
}

/// Counts the pods that have a node, as a watcher sees them.
async fn count_bound(pods: Api<Pod>, bound: Arc<AtomicUsize>) {
    let mut events = pods.watch(&WatchParams::default().timeout(290), "0").await.unwrap().boxed();
    let mut seen = std::collections::HashSet::new();
    while let Some(event) = events.next().await {
        if let Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event
            && pod.spec.is_some_and(|spec| spec.node_name.is_some())
            && seen.insert(pod.metadata.uid)
        {
            bound.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn until(bound: &AtomicUsize, wanted: usize) {
    let start = Instant::now();
    while bound.load(Ordering::Relaxed) < wanted {
        assert!(start.elapsed() < Duration::from_secs(280), "{} of {wanted}", bound.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn measure(workload: Workload, nodes: usize, pods: usize) -> (f64, f64) {
    let dir = tempfile::tempdir().unwrap();
    // Not the controllers that would take nodes without heartbeats away.
    let controllers = Controllers::none().with(BuiltIn::Scheduler);
    let cluster = Cluster::builder().data_dir(dir.path()).controllers(controllers).start().await.unwrap();
    let client = cluster.client();
    post_all(&client, "/api/v1/nodes", (0..nodes).map(node)).await;
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    let bound = Arc::new(AtomicUsize::new(0));
    let counting = tokio::spawn(count_bound(api, Arc::clone(&bound)));
    let path = "/api/v1/namespaces/default/pods";
    let before = pods.min(1000);
    post_all(&client, path, (0..before).map(|number| Workload::Basic.pod(&format!("before-{number}")))).await;
    until(&bound, before).await;
    let start = Instant::now();
    post_all(&client, path, (0..pods).map(|number| workload.pod(&format!("pod-{number}")))).await;
    let created = start.elapsed().as_secs_f64();
    until(&bound, before + pods).await;
    let all = start.elapsed().as_secs_f64();
    counting.abort();
    drop(client);
    cluster.stop().await.unwrap();
    (pods as f64 / all, pods as f64 / created)
}

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let (nodes, pods) = (numbers.next().unwrap_or(5000), numbers.next());
    println!("| workload at {nodes} nodes | pods | scheduled pods/s | created pods/s |");
    println!("|---|---|---|---|");
    for (workload, name) in Workload::ALL {
        // Pods that repel each other need a node each.
        let most = if matches!(workload, Workload::AntiAffinity) { nodes * 3 / 5 } else { usize::MAX };
        let pods = pods.unwrap_or(10_000).min(most);
        let (rate, created) = measure(workload, nodes, pods).await;
        println!("| {name} | {pods} | {rate:.0} | {created:.0} |");
    }
}
