//! What a manager's metrics say: under controller-runtime's names, and only what is so.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::controller::from_key_fn;
use windlass::lease::LeaderElection;
use windlass::metrics::Registry;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, ReconcileError};

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
    // With times that cost nothing here, and that no machine is too slow for: the wall clock is not paused.
    let election = LeaderElection::new("lock");
    let builder = Manager::builder(switchable(&bench, &cut)).leader_election(election);
    let mut manager = builder.graceful_shutdown(Duration::from_secs(1)).build().expect("built");
    let log = begun.clone();
    let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
        log.push(key.name().to_owned());
        std::future::pending()
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
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

#[tokio::test(start_paused = true)]
async fn metrics_are_those_of_controller_runtime() {
    let bench = Bench::start().await;
    let mut manager = bench.manager();
    let seen: Mutex<HashSet<ObjectKey>> = Mutex::default();
    let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
        let first = seen.lock().expect("not poisoned").insert(key.clone());
        async move {
            match key.name() {
                "later" if first => Ok(Outcome::RequeueAfter(Duration::from_millis(1))),
                "again" if first => Ok(Outcome::RequeueAfter(Duration::ZERO)),
                "error" if first => Err("scripted".into()),
                "panic" if first => panic!("scripted"),
                "hang" if first => std::future::pending().await,
                "terminal" => Err(ReconcileError::terminal("scripted")),
                _ => Ok(Outcome::Done),
            }
        }
    });
    let controller = Controller::<Pet>::new("pet").concurrency(3).reconcile_timeout(Duration::from_millis(50));
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    let registry = manager.registry().clone();
    let running = Running::ready(manager).await;
    for name in ["done", "later", "again", "error", "panic", "hang", "terminal"] {
        bench.create(&pet(name)).await;
    }
    let all = r#"controller_runtime_reconcile_total{controller="pet",result="success"} 6"#;
    wait_for("all succeed in the end but one", async || shows(&registry, all)).await;
    wait_for("rest", async || shows(&registry, r#"controller_runtime_active_workers{controller="pet"} 0"#)).await;
    assert_shows(
        &registry,
        &[
            r#"controller_runtime_reconcile_total{controller="pet",result="requeue_after"} 1"#,
            r#"controller_runtime_reconcile_total{controller="pet",result="requeue"} 1"#,
            r#"controller_runtime_reconcile_total{controller="pet",result="error"} 4"#,
            r#"controller_runtime_reconcile_errors_total{controller="pet"} 4"#,
            r#"controller_runtime_terminal_reconcile_errors_total{controller="pet"} 1"#,
            r#"controller_runtime_reconcile_panics_total{controller="pet"} 1"#,
            r#"controller_runtime_reconcile_timeouts_total{controller="pet"} 1"#,
            r#"controller_runtime_max_concurrent_reconciles{controller="pet"} 3"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="pet"} 12"#,
            r#"workqueue_queue_duration_seconds_count{name="pet",controller="pet"} 12"#,
            r#"workqueue_work_duration_seconds_count{name="pet",controller="pet"} 12"#,
            r#"workqueue_adds_total{name="pet",controller="pet"} 12"#,
            // Errors, and what is asked for again without a time.
            r#"workqueue_retries_total{name="pet",controller="pet"} 4"#,
            r#"workqueue_depth{name="pet",controller="pet",priority="0"} 0"#,
            r#"workqueue_unfinished_work_seconds{name="pet",controller="pet"} 0"#,
            r#"workqueue_longest_running_processor_seconds{name="pet",controller="pet"} 0"#,
        ],
    );
    let expected = [
        ("controller_runtime_active_workers", "gauge", "controller"),
        ("controller_runtime_max_concurrent_reconciles", "gauge", "controller"),
        ("controller_runtime_reconcile_errors_total", "counter", "controller"),
        ("controller_runtime_reconcile_panics_total", "counter", "controller"),
        ("controller_runtime_reconcile_time_seconds", "histogram", "controller le"),
        ("controller_runtime_reconcile_timeouts_total", "counter", "controller"),
        ("controller_runtime_reconcile_total", "counter", "controller result"),
        ("controller_runtime_terminal_reconcile_errors_total", "counter", "controller"),
        ("workqueue_adds_total", "counter", "controller name"),
        ("workqueue_depth", "gauge", "controller name priority"),
        ("workqueue_longest_running_processor_seconds", "gauge", "controller name"),
        ("workqueue_queue_duration_seconds", "histogram", "controller le name"),
        ("workqueue_retries_total", "counter", "controller name"),
        ("workqueue_unfinished_work_seconds", "gauge", "controller name"),
        ("workqueue_work_duration_seconds", "histogram", "controller le name"),
    ];
    let shown = families(&registry, &["controller_runtime_", "workqueue_"]);
    let shown: Vec<_> = shown
        .iter()
        .map(|(name, (kind, labels))| {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            (name.as_str(), kind.as_str(), labels.join(" "))
        })
        .collect();
    let expected: Vec<_> = expected.iter().map(|(name, kind, labels)| (*name, *kind, (*labels).to_owned())).collect();
    assert_eq!(shown, expected);
    running.stop().await.expect("stopped");
}

/// What is being worked on, and for how long.
#[tokio::test(start_paused = true)]
async fn work_that_is_not_finished_is_shown_while_it_lasts() {
    let bench = Bench::start().await;
    let (begun, told) = (Log::default(), Arc::new(tokio::sync::Notify::new()));
    let (log, tells) = (begun.clone(), Arc::clone(&told));
    let mut manager = bench.manager();
    let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
        let (log, tells) = (log.clone(), Arc::clone(&tells));
        async move {
            log.push(key.name().to_owned());
            tells.notified().await;
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<Pet>::new("pet").concurrency(2).complete_keyed(reconciler)).expect("added");
    let registry = manager.registry().clone();
    let running = Running::ready(manager).await;
    for name in ["thor", "tron"] {
        bench.create(&pet(name)).await;
    }
    wait_for("both are worked on", async || begun.len() == 2).await;
    let value = |series: &str| {
        let text = registry.encode();
        let line = text.lines().find_map(|line| line.strip_prefix(series)).expect("shown");
        line.trim().parse::<f64>().expect("a number")
    };
    let unfinished = || value(r#"workqueue_unfinished_work_seconds{name="pet",controller="pet"}"#);
    let longest = || value(r#"workqueue_longest_running_processor_seconds{name="pet",controller="pet"}"#);
    let (both, one) = (unfinished(), longest());
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!((unfinished() - both - 20.0).abs() < 1.0, "{both} {}", unfinished());
    assert!((longest() - one - 10.0).abs() < 1.0, "{one} {}", longest());
    assert_shows(&registry, &[r#"controller_runtime_active_workers{controller="pet"} 2"#]);
    told.notify_waiters();
    running.stop().await.expect("stopped");
    assert_shows(&registry, &[r#"controller_runtime_active_workers{controller="pet"} 0"#]);
}

/// Pets as a program sees them that has not heard of the last version of the kind.
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
