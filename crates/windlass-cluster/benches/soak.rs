//! A cluster with ten simulated nodes for 1,000,000 simulated seconds: does its memory grow, and what does it do meanwhile?
//!
//! `cargo bench -p windlass-cluster --bench soak [-- idle|churn [SECONDS]]`. The clock is paused: it jumps to the next
//! timer whenever nothing is left to do, so eleven days take minutes. `idle` has the nodes alone. `churn`, which takes 300,000
//! seconds, also has a CronJob that starts a Job every minute, and a Deployment of 20 pods that is rolled out every ten
//! minutes: 15,000 pods come and go with their Jobs, ReplicaSets and events. Memory is the resident memory of the process,
//! which also runs the measurement. It grows until the history that is kept for watches is full, for nodes after some 200,000
//! seconds. The program exits with 1 if the memory at the end is more than 10 % above that after half of the time.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use serde_json::{Value, json};
use windlass_cluster::Cluster;

const NODES: u32 = 10;
/// How long each part is, unless the command line says so.
const PARTS: [(&str, bool, u64); 2] = [("idle", false, 1_000_000), ("churn", true, 300_000)];
/// How often the memory is read.
const STEPS: u64 = 20;
/// How much more memory there may be at the end than after half of the time.
const GROWTH: f64 = 1.10;
/// How often the Deployment of `churn` is rolled out.
const ROLLOUT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| !one.starts_with("--")).collect();
    let part = arguments.first().map(String::as_str);
    let mut is_good = true;
    for (name, churns, seconds) in PARTS {
        let seconds = arguments.get(1).map_or(seconds, |seconds| seconds.parse().unwrap());
        if part.is_none_or(|part| part == name) {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build().unwrap();
            is_good &= runtime.block_on(soak(name, churns, Duration::from_secs(seconds)));
        }
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn soak(name: &str, churns: bool, time: Duration) -> bool {
    let cluster = Cluster::builder().nodes(NODES).start().await.unwrap();
    let client = cluster.client();
    if churns {
        post(&client, "/apis/batch/v1/namespaces/default/cronjobs", &cron_job()).await;
        post(&client, "/apis/apps/v1/namespaces/default/deployments", &deployment()).await;
    }
    println!("{name}: {NODES} nodes\n");
    println!("| simulated seconds | memory | objects | requests | CPU |\n|---|---|---|---|---|");
    let (began, step) = (Instant::now(), time / u32::try_from(STEPS).unwrap());
    let (mut first, mut last, mut settled) = (0, 0, BTreeMap::new());
    let mut rollouts: u64 = 0;
    for number in 1..=STEPS {
        if churns {
            let rolling = async {
                loop {
                    tokio::time::sleep(ROLLOUT).await;
                    rollouts += 1;
                    roll_out(&client, rollouts).await;
                }
            };
            let _ = tokio::time::timeout(step, rolling).await;
        } else {
            tokio::time::sleep(step).await;
        }
        last = memory();
        let requests = requests(&client).await;
        if number == STEPS / 2 {
            first = last;
            settled.clone_from(&requests);
        }
        println!(
            "| {} | {:.1} MB | {} | {} | {:.0} s |",
            (step * u32::try_from(number).unwrap()).as_secs(),
            last as f64 / 1e6,
            objects(&client).await,
            requests.values().sum::<u64>(),
            cpu().as_secs_f64(),
        );
    }
    println!(
        "\nwall time {:.0} s; requests per 1,000 simulated seconds, the most frequent first:\n",
        began.elapsed().as_secs_f64()
    );
    let counted = time.saturating_sub(step * u32::try_from(STEPS / 2).unwrap()).as_secs_f64() / 1000.0;
    let now = requests(&client).await;
    let since = |(what, count): (&String, &u64)| (count - settled.get(what).unwrap_or(&0), what.clone());
    let mut most: Vec<(u64, String)> = now.iter().map(since).filter(|(count, _)| *count > 0).collect();
    most.sort_by(|a, b| b.cmp(a));
    for (count, what) in most.iter().take(12) {
        println!("{:>10.2}  {what}", *count as f64 / counted);
    }
    println!();
    cluster.stop().await.unwrap();
    let is_good = last as f64 <= first as f64 * GROWTH;
    println!("{name}: {:.1} MB after half of the time, {:.1} MB at the end\n", first as f64 / 1e6, last as f64 / 1e6);
    is_good
}

fn cron_job() -> Value {
    json!({"metadata": {"name": "report"}, "spec": {
        "schedule": "* * * * *",
        "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }}}},
    }})
}

fn deployment() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 20, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }})
}

async fn roll_out(client: &Client, number: u64) {
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"rollout": number.to_string()}}}}});
    let request = Request::patch("/apis/apps/v1/namespaces/default/deployments/web")
        .header("content-type", "application/merge-patch+json")
        .body(patch.to_string().into_bytes());
    client.request::<Value>(request.unwrap()).await.unwrap();
}

async fn post(client: &Client, path: &str, object: &Value) {
    let request = Request::post(path).header("content-type", "application/json");
    client.request::<Value>(request.body(object.to_string().into_bytes()).unwrap()).await.unwrap();
}

/// How many objects of the kinds that come and go there are.
async fn objects(client: &Client) -> usize {
    let mut count = 0;
    for path in ["/api/v1/pods", "/api/v1/events", "/apis/batch/v1/jobs", "/apis/apps/v1/replicasets"] {
        let list: Value = client.request(Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
        count += list["items"].as_array().map_or(0, Vec::len);
    }
    count
}

/// How many requests the server has answered, by verb and resource.
async fn requests(client: &Client) -> BTreeMap<String, u64> {
    let text = client.request_text(Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap();
    let mut counts = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let label = |name: &str| line.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        let parts = ["verb", "resource", "subresource"].map(|name| label(name).unwrap_or_default());
        let count: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        *counts.entry(parts.join(" ").trim_end().to_owned()).or_default() += count;
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
