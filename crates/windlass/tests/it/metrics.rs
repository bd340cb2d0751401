//! What a manager's metrics say: under controller-runtime's names, and only what is so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass::controller::from_fn;
use windlass::lease::LeaderElection;
use windlass::metrics::Registry;
use windlass::{Context, Controller, Manager, ObjectKey};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};
use crate::lease::switchable;

/// Whether a line is among what is shown.
fn shows(registry: &Registry, line: &str) -> bool {
    registry.encode().lines().any(|shown| shown == line)
}

#[track_caller]
fn assert_shows(registry: &Registry, lines: &[&str]) {
    for line in lines {
        assert!(shows(registry, line), "{line}\n{}", registry.encode());
    }
}

/// Keys that were being worked on, or waited, when the lease was lost once were shown for ever.
#[tokio::test(start_paused = true)]
async fn a_replica_that_lost_its_lease_shows_no_work() {
    let bench = Bench::start().await;
    for name in ["thor", "tron"] {
        bench.create(&pet(name)).await;
    }
    let (begun, cut) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let election = LeaderElection {
        lease_duration: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(600),
        retry_period: Duration::from_millis(50),
        ..LeaderElection::new("default", "lock")
    };
    let builder = Manager::builder(switchable(&bench, &cut)).leader_election(election);
    let mut manager = builder.graceful_shutdown(Duration::from_secs(1)).build().expect("built");
    let log = begun.clone();
    let reconciler = from_fn(move |key: ObjectKey, _: Context| {
        log.push(key.name().to_owned());
        std::future::pending()
    });
    manager.add(Controller::<Pet>::new("pet").complete(reconciler)).expect("added");
    let registry = manager.registry().clone();
    let running = Running::start(manager);
    wait_for("work", async || begun.len() == 1).await;
    let waiting = r#"workqueue_depth{name="pet",controller="pet",priority="-100"} 1"#;
    let working = r#"controller_runtime_active_workers{controller="pet"} 1"#;
    assert_shows(&registry, &[working, waiting, r#"workqueue_adds_total{name="pet",controller="pet"} 2"#]);
    cut.store(true, Ordering::Relaxed);
    let lost = r#"leader_election_master_status{name="lock"} 0"#;
    wait_for("the lease is lost", async || shows(&registry, lost)).await;
    let idle = r#"controller_runtime_active_workers{controller="pet"} 0"#;
    wait_for("nobody works", async || shows(&registry, idle)).await;
    assert_shows(
        &registry,
        &[
            r#"workqueue_depth{name="pet",controller="pet",priority="0"} 0"#,
            r#"workqueue_unfinished_work_seconds{name="pet",controller="pet"} 0"#,
            r#"workqueue_longest_running_processor_seconds{name="pet",controller="pet"} 0"#,
            r#"workqueue_adds_total{name="pet",controller="pet"} 2"#,
        ],
    );
    assert!(!shows(&registry, waiting));
    cut.store(false, Ordering::Relaxed);
    wait_for("work again", async || begun.len() == 2).await;
    // What only grows goes on from where it was.
    assert_shows(&registry, &[working, waiting, r#"workqueue_adds_total{name="pet",controller="pet"} 4"#]);
    running.stop().await.expect_err("its work never ends");
}

/// The families shown that are of these prefixes: their types, and the names of their labels.
fn families(registry: &Registry, prefixes: &[&str]) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let text = registry.encode();
    let mut families = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["#", "TYPE", name, kind] = words[..]
            && prefixes.iter().any(|prefix| name.starts_with(prefix))
        {
            families.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        }
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.strip_suffix('}').and_then(|s| s.split_once('{')).unwrap_or((series, ""));
        let suffixes = ["_bucket", "_sum", "_count"];
        let family = suffixes.iter().find_map(|s| name.strip_suffix(s).filter(|f| families.contains_key(*f)));
        if let Some((_, known)) = families.get_mut(family.unwrap_or(name)) {
            known.extend(labels.split("\",").filter_map(|l| l.split_once('=')).map(|(label, _)| label.to_owned()));
        }
    }
    families
}

/// Pets as somebody sees them who has not heard of the last version of the kind.
mod strict {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "petstore.example.com", version = "v1", kind = "Pet", namespaced)]
    pub struct PetSpec {
        pub name: u32,
    }
}

#[tokio::test(start_paused = true)]
async fn objects_that_do_not_fit_their_type_are_counted() {
    let bench = Bench::start().await;
    for name in ["thor", "tron"] {
        bench.create(&pet(name)).await;
    }
    // Of each namespace there is a list of its own; what is shown is the kind.
    let builder = Manager::builder(bench.kube.clone()).namespaces(["default", "kube-system"]);
    let manager = builder.build().expect("built");
    let (lister, registry) = (manager.lister::<strict::Pet>(), manager.registry().clone());
    let running = Running::ready(manager).await;
    assert_eq!(lister.len(), 0);
    assert_shows(&registry, &[r#"windlass_cache_decode_errors_total{kind="pets.petstore.example.com/v1"} 2"#]);
    let (kind, _) = &families(&registry, &["windlass_cache_decode"])["windlass_cache_decode_errors_total"];
    assert_eq!(kind, "counter");
    let text = registry.encode();
    let counted = text.lines().filter(|line| line.starts_with("windlass_cache_decode_errors_total{"));
    assert_eq!(counted.count(), 1, "{text}");
    running.stop().await.expect("stopped");
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn the_process_is_shown_as_by_every_exporter() {
    let bench = Bench::start().await;
    let shown = families(bench.manager().registry(), &["process_"]);
    let shown: Vec<_> = shown.iter().map(|(name, (kind, _))| (name.as_str(), kind.as_str())).collect();
    let expected = [
        ("process_cpu_seconds_total", "counter"),
        ("process_max_fds", "gauge"),
        ("process_open_fds", "gauge"),
        ("process_resident_memory_bytes", "gauge"),
        ("process_start_time_seconds", "gauge"),
        ("process_virtual_memory_bytes", "gauge"),
    ];
    assert_eq!(shown, expected);
}
