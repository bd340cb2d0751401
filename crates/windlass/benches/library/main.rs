//! Windlass beside kube-rs in one run: `cargo bench -p windlass --bench library`.
//!
//! The parent serves 20,000 ConfigMaps of 1 KB over TLS from the embedded server. Each contender is
//! a child process of its own, so that its memory is its own: it syncs, settles, and then reconciles
//! as fast as it can. A third child lets 1,000,000 updates flow through a Windlass controller from a
//! scripted server, to see whether anything grows.
//!
//! At the end stands a line for each thing that is promised, and the exit code is 1 if one was missed. That is
//! for an otherwise idle machine of at least two cores and a release build, so no part of the tests.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

mod contender;
mod promises;
mod soak;

use std::path::Path;
use std::process::{Command, ExitCode};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use windlass_server::Server;
use windlass_server::authn::User;
use windlass_server::pki::Authority;

/// Objects served.
const OBJECTS: usize = 20_000;
/// Characters of data in each.
const DATA: usize = 1_000;
const TOKEN: &str = "bench";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    match arguments.next().as_deref() {
        Some("contend") => contender::run(&arguments.next().unwrap()),
        Some("soak") => soak::run(),
        _ if !compare() => return ExitCode::FAILURE,
        _ => {}
    }
    ExitCode::SUCCESS
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

/// Whether everything that is promised was reached.
fn compare() -> bool {
    let runtime = runtime();
    let _entered = runtime.enter();
    let server =
        runtime.block_on(Server::builder().token(TOKEN, User::admin()).start()).expect("the embedded server starts");
    let authority = Authority::generate().unwrap();
    let listener = runtime.block_on(server.listen("127.0.0.1:0".parse().unwrap(), &authority)).unwrap();
    let json = runtime.block_on(fill(kube::Client::new(server.service(), "default")));
    let files = tempfile::tempdir().unwrap();
    let (ca, kubeconfig) = (files.path().join("ca.pem"), files.path().join("kubeconfig"));
    std::fs::write(&ca, authority.certificate()).unwrap();
    let config = serde_json::json!({
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {
            "server": format!("https://{}", listener.address()), "certificate-authority": ca,
        }}],
        "users": [{"name": "bench", "user": {"token": TOKEN}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    println!("{OBJECTS} ConfigMaps, {:.1} MB of JSON without managedFields\n", megabytes(json));
    println!(
        "{:<10} {:>9} {:>12} {:>10} {:>12} {:>14} {:>14}",
        "", "sync", "settled MB", "peak MB", "per object", "no-op/s", "with read/s"
    );
    let [windlass, _] = ["windlass", "kube-rs"].map(|name| {
        let result: contender::Result = child(&["contend", name], &kubeconfig);
        println!(
            "{name:<10} {:>7.3} s {:>12.1} {:>10.1} {:>7.2} JSON {:>14.0} {:>14.0}",
            result.sync_seconds,
            megabytes(result.settled),
            megabytes(result.peak),
            result.settled.saturating_sub(result.before) as f64 / json as f64,
            result.noop_per_second,
            result.read_per_second,
        );
        result
    });
    runtime.block_on(async {
        listener.stop().await;
        server.stop().await.unwrap();
    });
    let soaked: soak::Result = child(&["soak"], &kubeconfig);
    println!("\n{soaked}\n");
    promises::report(&windlass, json, &soaked)
}

/// What a part that runs in a process of its own measured.
fn child<R: serde::de::DeserializeOwned>(arguments: &[&str], kubeconfig: &Path) -> R {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(arguments).env("BENCH_KUBECONFIG", kubeconfig).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Creates the objects; returns the size of their JSON as a cache needs it.
async fn fill(client: kube::Client) -> usize {
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    for n in 0..OBJECTS {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(format!("settings-{n:05}")),
                labels: Some([("app".to_owned(), "bench".to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([("payload".to_owned(), "x".repeat(DATA))].into()),
            ..ConfigMap::default()
        };
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let mut size = 0;
    let mut params = ListParams::default().limit(500);
    loop {
        let page = maps.list(&params).await.unwrap();
        for mut map in page.items {
            map.metadata.managed_fields = None;
            size += serde_json::to_vec(&map).unwrap().len();
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return size,
        }
    }
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1_000_000.0
}

/// A number of kilobytes from `/proc/self/status`, in bytes.
fn memory(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}
