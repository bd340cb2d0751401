//! `kill -9` of `windlass` while pods run: they go on as the same processes, and nothing is left of them in the end.
//!
//! `cargo test` does a few rounds; `WINDLASS_KILL_ROUNDS=50` does more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use windlass_network::cluster::{Leftover, leftovers};

use super::Containers;
use crate::machine::{NETWORKS, network_name};
use crate::process::eventually;
use crate::windlass::Sandbox;

const ROUNDS: u32 = 3;
const PODS: usize = 20;

/// What pods have of the kernel, counted from outside.
#[derive(Debug, Default, PartialEq, Eq)]
struct Left {
    processes: BTreeSet<String>,
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<String>,
}

/// What the pods of this test run, and no others on this machine.
fn program() -> String {
    format!("sleep 9{:08}", std::process::id())
}

/// Everything of pods in this directory.
fn left(dir: &Path, uids: &[String]) -> Left {
    let program = program();
    let dir = dir.display().to_string();
    let mut found = Left::default();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains("pod-") && line.contains(&dir) || line.starts_with(&program) {
            found.processes.insert(format!("{} {line}", process.file_name().display()));
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    found.mounts.extend(
        mounts
            .lines()
            .filter(|line| line.contains(&dir) || uids.iter().any(|uid| line.contains(uid)))
            .map(str::to_owned),
    );
    let groups = std::process::Command::new("find").args(["/sys/fs/cgroup", "-type", "d"]).output().unwrap();
    let groups = String::from_utf8_lossy(&groups.stdout).into_owned();
    found.cgroups.extend(groups.lines().filter(|line| uids.iter().any(|uid| line.contains(uid))).map(str::to_owned));
    found
}

/// The parents of pods, each with its process id and when it was started.
fn parents(dir: &Path) -> BTreeMap<String, String> {
    let dir = dir.display().to_string();
    let mut found = BTreeMap::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains("pod-parent") && line.contains(&dir) {
            let started = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            let started = started.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(19).map(str::to_owned));
            found.insert(line, format!("{} {started:?}", process.file_name().display()));
        }
    }
    found
}

/// The links of pods, and how many lines the rules of the packet filter have: each round adds neither.
fn links_and_rules(sandbox: &Sandbox) -> (BTreeSet<String>, Option<usize>) {
    let name = network_name(sandbox);
    let found = leftovers(Path::new(NETWORKS), &name).unwrap().into_iter();
    let links = found.filter_map(|one| if let Leftover::Link(link) = one { Some(link) } else { None }).collect();
    let namespace = format!("--net={NETWORKS}/{name}/node");
    let listed = std::process::Command::new("nsenter").args([&namespace, "nft", "list", "ruleset"]).output();
    let listed = listed.ok().filter(|listed| listed.status.success());
    (links, listed.map(|listed| String::from_utf8_lossy(&listed.stdout).lines().count()))
}

#[test]
fn pods_outlive_kills_of_the_cluster() {
    let Some(mut cluster) = Containers::start() else { return };
    let rounds = std::env::var("WINDLASS_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let pods: Vec<String> = (0..PODS)
        .map(|number| {
            format!(
                "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}, labels: {{app: kept}}}}\nspec:\n  \
                 terminationGracePeriodSeconds: 0\n  containers: [{{name: main, image: \"me/web:v1\", command: [sh, -c, \
                 \"exec {}\"], resources: {{limits: {{memory: 32Mi}}}}}}]\n",
                program()
            )
        })
        .collect();
    cluster.apply(&pods.concat());
    cluster.succeeds("wait --for=condition=Ready pod -l app=kept --timeout=180s");
    let statuses = "get pods -l app=kept -o jsonpath={.items[*].status.containerStatuses}";
    let ask = |cluster: &Containers| cluster.succeeds(statuses);
    let (before, same) = (ask(&cluster), parents(&cluster.sandbox.path("")));
    assert_eq!(same.len(), PODS);
    let (links, rules) = links_and_rules(&cluster.sandbox);
    assert_eq!(links.len(), PODS);
    for round in 0..rounds {
        // Dropping it kills it.
        cluster.running = None;
        assert_eq!(parents(&cluster.sandbox.path("")), same, "round {round}: pods end with the cluster");
        cluster.up();
        eventually("the cluster answers", || cluster.run("get pods").0.then_some(()));
        cluster.succeeds("wait --for=condition=Ready pod -l app=kept --timeout=180s");
        assert_eq!(parents(&cluster.sandbox.path("")), same, "round {round}: other processes");
        assert_eq!(ask(&cluster), before, "round {round}: other containers");
        assert!(cluster.run(&format!("exec p{} -- id", round as usize % PODS)).0);
        // Rules come back with the Services that the new process sees.
        eventually("links and rules are as before", || {
            let (now, filter) = links_and_rules(&cluster.sandbox);
            assert_eq!(now, links, "round {round}");
            (filter == rules).then_some(())
        });
    }
    let uids = cluster.succeeds("get pods -l app=kept -o jsonpath={.items[*].metadata.uid}");
    let uids: Vec<String> = uids.split_whitespace().map(str::to_owned).collect();
    let dir = cluster.sandbox.path("");
    let during = left(&dir, &uids);
    assert!(during.processes.len() >= PODS, "{during:?}");
    // One pod is deleted, and the cluster is killed and removed with the others.
    cluster.succeeds("delete pod p0 --wait");
    cluster.running = None;
    cluster.sandbox.succeeds("down");
    eventually("nothing is left", || (left(&dir, &uids) == Left::default()).then_some(()));
    assert_eq!(leftovers(Path::new(NETWORKS), &network_name(&cluster.sandbox)).unwrap(), []);
}
