//! The structure of the source: modules of a crate do not form cycles, crates depend on each other in one direction, and
//! no crate is too large to be understood and compiled as a whole.
//!
//! Sources are read as text. What a module uses are the paths in it that start with `crate::`, `super::` or `self::`, in
//! `use` declarations and elsewhere; tests do not count. Only the top-level modules of a crate are compared: what is below
//! one of them is one unit.
#![allow(clippy::unwrap_used)]

mod cycles;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most lines that the sources of a crate may have. The aim is 40,000: `windlass-server` has to shrink by what can move
/// into the crates below it, and this number with it.
const LARGEST_CRATE: usize = 42_000;

/// Cycles that were there when this check was. The list may only get shorter: a cycle that is broken must be taken out,
/// and a new one must not be added.
const KNOWN_CYCLES: &[(&str, &[&str])] = &[
    ("windlass", &["config", "retry"]),
    ("windlass", &["events", "lease"]),
    ("windlass", &["controller", "manager"]),
    (
        "windlass-cli",
        &[
            "against",
            "args",
            "down",
            "home",
            "image",
            "kubeconfig",
            "manifests",
            "operator",
            "output",
            "project",
            "run",
            "signals",
            "up",
        ],
    ),
    ("windlass-container", &["parent", "user_namespace"]),
    ("windlass-kwok", &["cel", "stage"]),
    ("windlass-node", &["pod", "runtime", "volumes"]),
    ("windlass-scheduler", &["node", "pod"]),
    ("windlass-scheduler", &["metrics", "program", "state", "writes"]),
    (
        "windlass-server",
        &[
            "admission",
            "api",
            "audit",
            "authn",
            "authz",
            "bootstrap",
            "catalog",
            "computed",
            "flow_control",
            "health",
            "registry",
            "remote",
            "render",
            "reviews",
            "state",
            "streams",
            "versions",
        ],
    ),
];

/// Which crates of the API server a crate of it may use.
const LAYERS: &[(&str, &[&str])] = &[
    ("windlass-store", &[]),
    ("windlass-cel", &[]),
    ("windlass-api", &["windlass-cel"]),
    ("windlass-kinds", &["windlass-api", "windlass-cel"]),
    ("windlass-server", &["windlass-api", "windlass-cel", "windlass-kinds", "windlass-store"]),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates").canonicalize().unwrap()
}

/// The crates of the workspace, by name.
fn names() -> BTreeSet<String> {
    fs::read_dir(crates()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn modules_of_a_crate_form_no_cycle() {
    let mut found = BTreeMap::new();
    for name in names() {
        let graph = source::graph(&crates().join(&name).join("src"));
        for cycle in cycles::cycles(&graph) {
            let edges: Vec<String> = cycle
                .iter()
                .flat_map(|from| {
                    graph[from].iter().filter(|to| cycle.contains(*to)).map(move |to| format!("{from} -> {to}"))
                })
                .collect();
            found.insert((name.clone(), cycle), edges.join(", "));
        }
    }
    let set = |modules: &[&str]| modules.iter().map(|module| (*module).to_owned()).collect::<BTreeSet<String>>();
    let known: BTreeSet<(String, BTreeSet<String>)> =
        KNOWN_CYCLES.iter().map(|(name, modules)| ((*name).to_owned(), set(modules))).collect();
    for (cycle, edges) in &found {
        assert!(known.contains(cycle), "modules of {} use each other in a circle: {:?}\n{edges}", cycle.0, cycle.1);
    }
    for cycle in known {
        assert!(
            found.contains_key(&cycle),
            "a cycle of {} is no more as it was, shorten the list: {:?}",
            cycle.0,
            cycle.1
        );
    }
}

#[test]
fn crates_of_the_server_depend_downwards() {
    for (name, allowed) in LAYERS {
        let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        let used = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        for used in used.filter(|used| used.starts_with("windlass")) {
            assert!(allowed.contains(&used), "{name} must not depend on {used}");
        }
    }
}

#[test]
fn no_crate_is_too_large() {
    for name in names() {
        let lines: usize =
            source::files(&crates().join(&name).join("src")).values().map(|text| text.lines().count()).sum();
        assert!(lines <= LARGEST_CRATE, "{name} has {lines} lines");
    }
}
