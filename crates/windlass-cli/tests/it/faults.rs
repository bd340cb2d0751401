//! `kill -9` at random moments of rollouts and Jobs, again and again on one data directory.
//!
//! Each round changes every workload and deletes what the round before made, kills the process once to three times at
//! random moments of what follows, and waits until the cluster has settled. [`settled`] says what the end must look like,
//! [`history`] what must hold at every moment in between.
//!
//! `cargo test` does a few rounds. More, with another program than cargo's debug build, which prints a line for each:
//!
//! ```sh
//! WINDLASS_FAULT_ROUNDS=200 WINDLASS_FAULT_BINARY=target/release/windlass \
//!     cargo test -p windlass-cli --test it faults -- --nocapture
//! ```
//!
//! `WINDLASS_FAULT_SEED` chooses the moments, which are shares of the time that a round without kills takes.

mod history;
mod settled;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::foreground::client;
use crate::windlass::{Cluster, Sandbox};
use history::History;

/// How long a cluster may take to settle, on a machine that is busy with other tests.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);
const NODES: u32 = 3;
/// How many rounds with kills `cargo test` does.
const ROUNDS: u32 = 3;
/// After how many rounds with kills there is one without.
const CALIBRATION: u32 = 9;

/// What the workloads of a round should be.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    number: u32,
    web: u32,
    db: u32,
    cache: u32,
    completions: u32,
    indexed: bool,
}

impl Round {
    fn new(number: u32, random: &mut Rng) -> Self {
        Self {
            number,
            web: random.u32(2..8),
            db: random.u32(2..5),
            cache: random.u32(2..5),
            completions: random.u32(3..9),
            indexed: random.bool(),
        }
    }

    fn image(&self) -> String {
        format!("app:{}", self.number)
    }

    fn job(&self) -> String {
        format!("job-{}", self.number)
    }

    fn scratch(&self) -> String {
        format!("scratch-{}", self.number)
    }
}

/// A server that runs, with requests to it in JSON.
pub(crate) struct Server {
    process: Cluster,
    client: kube::Client,
}

impl Server {
    async fn start(binary: Option<&Path>, data: &Path) -> Self {
        let process = Cluster::of_nodes(binary, NODES, data);
        let client = client(&process).await;
        Self { process, client }
    }

    /// Sends a request.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        self.client.request(request.body(bytes).unwrap()).await
    }

    async fn post(&self, path: &str, body: Value) {
        self.send(Method::POST, path, &body).await.unwrap_or_else(|error| panic!("POST {path}: {error}"));
    }

    async fn patch(&self, path: &str, body: Value) {
        self.send(Method::PATCH, path, &body).await.unwrap_or_else(|error| panic!("PATCH {path}: {error}"));
    }

    /// All objects below a path.
    pub(crate) async fn list(&self, path: &str) -> Vec<Value> {
        let mut found = self.send(Method::GET, path, &Value::Null).await.unwrap();
        serde_json::from_value(found["items"].take()).unwrap()
    }
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// A pod template whose pods stop slowly enough to be caught while they do.
fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}, "annotations": {
            "simulation.windlass.dev/start-delay": "30ms", "simulation.windlass.dev/stop-delay": "30ms",
        }},
        "spec": {"containers": [{"name": "app", "image": image}]},
    })
}

fn stateful_set(name: &str, policy: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "serviceName": name, "replicas": 0, "podManagementPolicy": policy,
            "selector": {"matchLabels": {"app": name}}, "template": template(name, "app"),
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }],
        },
    })
}

/// Makes what all rounds share.
async fn prepare(server: &Server) {
    server.post("/api/v1/namespaces/default/services", service()).await;
    let deployment = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 0, "revisionHistoryLimit": 2,
        "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "app"),
    }});
    server.post(DEPLOYMENTS, deployment).await;
    server.post(STATEFUL_SETS, stateful_set("db", "OrderedReady")).await;
    server.post(STATEFUL_SETS, stateful_set("cache", "Parallel")).await;
    history::mark(server, 0).await;
}

fn service() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}})
}

/// Asks for the workloads of a round, and for the end of what the round before made.
async fn ask(server: &Server, round: &Round, before: Option<&Round>) {
    let spec = |app: &str, replicas: u32| json!({"replicas": replicas, "template": template(app, &round.image())});
    server.patch(&format!("{DEPLOYMENTS}/web"), json!({"spec": spec("web", round.web)})).await;
    server.patch(&format!("{STATEFUL_SETS}/db"), json!({"spec": spec("db", round.db)})).await;
    server.patch(&format!("{STATEFUL_SETS}/cache"), json!({"spec": spec("cache", round.cache)})).await;
    server.post(JOBS, job(round)).await;
    let scratch = round.scratch();
    server.post("/api/v1/namespaces", json!({"metadata": {"name": scratch}})).await;
    let deployment = json!({"metadata": {"name": "scratch"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "scratch"}}, "template": template("scratch", "app"),
    }});
    server.post(&format!("/apis/apps/v1/namespaces/{scratch}/deployments"), deployment).await;
    let claimed = stateful_set("scratch", "Parallel");
    server.post(&format!("/apis/apps/v1/namespaces/{scratch}/statefulsets"), claimed).await;
    let scale = json!({"spec": {"replicas": 2}});
    server.patch(&format!("/apis/apps/v1/namespaces/{scratch}/statefulsets/scratch"), scale).await;
    let Some(before) = before else { return };
    let policy = if before.indexed { "Foreground" } else { "Background" };
    let delete = json!({"propagationPolicy": policy});
    server.send(Method::DELETE, &format!("{JOBS}/{}", before.job()), &delete).await.unwrap();
    server.send(Method::DELETE, &format!("/api/v1/namespaces/{}", before.scratch()), &Value::Null).await.unwrap();
}

fn job(round: &Round) -> Value {
    let mode = if round.indexed { "Indexed" } else { "NonIndexed" };
    let mut template = template("job", &round.image());
    template["metadata"]["annotations"]["simulation.windlass.dev/run-time"] = "100ms".into();
    template["spec"]["restartPolicy"] = "Never".into();
    json!({"metadata": {"name": round.job()}, "spec": {
        "completions": round.completions, "parallelism": 3, "completionMode": mode, "template": template,
    }})
}

/// Waits until the cluster is as the round wants it, and returns how long that took.
async fn settle(server: &Server, round: &Round) -> Duration {
    let began = Instant::now();
    loop {
        let Err(reason) = settled::check(server, round).await else { return began.elapsed() };
        assert!(began.elapsed() < WAIT_TIMEOUT, "round {} does not settle: {reason}", round.number);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test]
#[allow(clippy::print_stderr)]
async fn workloads_survive_kill_9_at_any_moment() {
    let rounds: u32 = setting("WINDLASS_FAULT_ROUNDS", ROUNDS);
    let seed: u64 = setting("WINDLASS_FAULT_SEED", 1);
    let binary = std::env::var_os("WINDLASS_FAULT_BINARY").map(PathBuf::from);
    let (sandbox, mut random) = (Sandbox::new(), Rng::with_seed(seed));
    let data = sandbox.path("data");
    let mut server = Server::start(binary.as_deref(), &data).await;
    prepare(&server).await;
    let mut history = History::new(&server).await;
    let (mut before, mut usual) = (None, Duration::ZERO);
    for number in 0..=rounds + rounds / CALIBRATION {
        let round = Round::new(number, &mut random);
        ask(&server, &round, before.as_ref()).await;
        // Some rounds are left alone: they show how long a round takes now, and that its end is what is expected.
        let kills = if number % (CALIBRATION + 1) == 0 { 0 } else { random.u32(1..4) };
        for _ in 0..kills {
            tokio::time::sleep(usual.mul_f64(random.f64())).await;
            server.process.kill();
            server = Server::start(binary.as_deref(), &data).await;
        }
        let took = settle(&server, &round).await;
        history.read(&server, number).await;
        eprintln!("round {number}: {kills} kills, settled after {took:?}; {}", history.summary());
        if kills == 0 {
            usual = took;
        }
        before = Some(round);
    }
}
