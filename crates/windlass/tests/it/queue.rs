//! What comes first in a controller's queue, and how fast it is let out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass::controller::from_key_fn;
use windlass::metrics::Registry;
use windlass::queue::{QueueConfig, RateLimit};
use windlass::shard::Sharding;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, ReconcileKey};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

/// How many keys of a priority wait.
fn depth(registry: &Registry, priority: i32) -> usize {
    let series = format!("workqueue_depth{{name=\"pet\",controller=\"pet\",priority=\"{priority}\"}} ");
    let text = registry.encode();
    text.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |count| count.parse().expect("a number"))
}

/// Stops reconciles in their middle while it is closed.
#[derive(Clone, Default)]
struct Gate {
    closed: Arc<AtomicBool>,
    opened: Arc<Notify>,
}

impl Gate {
    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn open(&self) {
        self.closed.store(false, Ordering::Relaxed);
        self.opened.notify_waiters();
    }

    /// A reconciler that notes its keys, and waits here.
    fn noting(&self, log: &Log<String>) -> impl ReconcileKey + use<> {
        let (gate, log) = (self.clone(), log.clone());
        from_key_fn(move |key: ObjectKey, _: Context| {
            let gate = gate.clone();
            log.push(key.name().to_owned());
            async move {
                let opened = gate.opened.notified();
                if gate.closed.load(Ordering::Relaxed) {
                    opened.await;
                }
                Ok(Outcome::Done)
            }
        })
    }
}

async fn touch(bench: &Bench, name: &str) {
    let patch = Patch::Merge(json!({"spec": {"tricks": ["sit"]}}));
    bench.pets().patch(name, &PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test(start_paused = true)]
async fn what_happens_now_overtakes_the_first_list() {
    let bench = Bench::start().await;
    for name in ["a", "b", "c"] {
        bench.create(&pet(name)).await;
    }
    let (log, gate) = (Log::default(), Gate::default());
    gate.close();
    let mut manager = bench.manager();
    manager.add(Controller::<Pet>::new("pet").complete_keyed(gate.noting(&log))).expect("added");
    let registry = manager.registry().clone();
    let running = Running::start(manager);
    wait_for("the first", async || log.len() == 1).await;
    assert_eq!((depth(&registry, -100), depth(&registry, 0)), (2, 0), "of the first list");
    bench.create(&pet("new")).await;
    wait_for("it is heard of", async || depth(&registry, 0) == 1).await;
    gate.open();
    wait_for("all", async || log.len() == 4).await;
    assert_eq!(log.entries()[1], "new");
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn periodic_reconciles_come_after_current_events() {
    let bench = Bench::start().await;
    for name in ["a", "b", "c"] {
        bench.create(&pet(name)).await;
    }
    let (log, gate) = (Log::default(), Gate::default());
    let builder = Manager::builder(bench.kube.clone()).name("it").resync(Duration::from_secs(10));
    let mut manager = builder.build().expect("built");
    manager.add(Controller::<Pet>::new("pet").complete_keyed(gate.noting(&log))).expect("added");
    let registry = manager.registry().clone();
    let began = Instant::now();
    let running = Running::start(manager);
    wait_for("all", async || log.len() == 3).await;
    gate.close();
    wait_for("the first again", async || log.len() == 4).await;
    assert!(began.elapsed() >= Duration::from_secs(9), "after {:?}", began.elapsed());
    assert_eq!((depth(&registry, -100), depth(&registry, 0)), (2, 0), "reminders");
    let held = log.entries()[3].clone();
    let last = ["c", "b"].into_iter().find(|name| *name != held).expect("one of two");
    touch(&bench, last).await;
    wait_for("it is heard of", async || depth(&registry, 0) == 1).await;
    assert_eq!(depth(&registry, -100), 1);
    gate.open();
    wait_for("all again", async || log.len() >= 6).await;
    assert_eq!(log.entries()[4], last);
    running.stop().await.expect("stopped");
}

/// What was asked for again at once was once reconciled without end, as fast as it went.
#[tokio::test(start_paused = true)]
async fn immediate_requeues_wait_longer_each_time() {
    let bench = Bench::start().await;
    let log: Log<(String, Instant, u32)> = Log::default();
    let seen = log.clone();
    let mut manager = bench.manager();
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        seen.push((key.name().to_owned(), Instant::now(), ctx.failures()));
        async move { Ok(if key.name() == "spins" { Outcome::RequeueAfter(Duration::ZERO) } else { Outcome::Done }) }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let registry = manager.registry().clone();
    let running = Running::ready(manager).await;
    bench.create(&pet("spins")).await;
    let spins = || log.entries().into_iter().filter(|(name, ..)| name == "spins").collect::<Vec<_>>();
    wait_for("some rounds", async || spins().len() == 8).await;
    bench.create(&pet("other")).await;
    wait_for("another", async || log.entries().iter().any(|(name, ..)| name == "other")).await;
    running.stop().await.expect("stopped");
    let spins = spins();
    for (round, pair) in spins.windows(2).enumerate() {
        let (pause, least) = (pair[1].1 - pair[0].1, Duration::from_millis(5 << round));
        assert!(pause >= least, "{pause:?} after round {round}");
    }
    let metrics = registry.encode();
    let requeued = spins.len();
    for line in [
        format!("controller_runtime_reconcile_total{{controller=\"pet\",result=\"requeue\"}} {requeued}"),
        "controller_runtime_reconcile_errors_total{controller=\"pet\"} 0".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

/// Every replica of a sharded controller hears of all keys; those of others once used up the limit.
#[tokio::test(start_paused = true)]
async fn keys_of_other_replicas_do_not_count_against_the_limit() {
    const PETS: usize = 40;
    const PACE: Duration = Duration::from_millis(250);
    let bench = Bench::start().await;
    for n in 0..PETS {
        bench.create(&pet(&format!("pet-{n}"))).await;
    }
    let log: Log<(&'static str, String)> = Log::default();
    let replica = |identity: &'static str| {
        let mut manager = bench.manager();
        // Good for long enough that no machine is too slow for it: the wall clock is not paused.
        let retry_period = Duration::from_millis(100);
        let sharding = Sharding::new(8).identity(identity).retry_period(retry_period);
        let config = QueueConfig::default().rate_limit(RateLimit::new(4.0, 1));
        let log = log.clone();
        let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
            log.push((identity, key.name().to_owned()));
            async { Ok(Outcome::Done) }
        });
        let controller = Controller::<Pet>::new("pet").sharding(sharding).queue(config);
        manager.add(controller.complete_keyed(reconciler)).expect("added");
        let registry = manager.registry().clone();
        (Running::start(manager), registry)
    };
    let (first, a) = replica("a");
    let (second, b) = replica("b");
    let rests = |registry: &Registry| {
        let held = registry.encode().contains("windlass_shards_held{controller=\"pet\"} 4");
        held && depth(registry, 0) == 0 && depth(registry, -100) == 0
    };
    wait_for("both have their part and are done with it", async || rests(&a) && rests(&b)).await;
    let (before, began) = (log.len(), Instant::now());
    for n in 0..PETS {
        touch(&bench, &format!("pet-{n}")).await;
    }
    wait_for("all again", async || {
        let since: HashSet<String> = log.entries()[before..].iter().map(|(_, name)| name.clone()).collect();
        since.len() == PETS
    })
    .await;
    let took = began.elapsed();
    let mut parts: HashMap<&str, u32> = HashMap::new();
    for (identity, _) in &log.entries()[before..] {
        *parts.entry(*identity).or_default() += 1;
    }
    let most = *parts.values().max().expect("somebody worked");
    assert!(took <= PACE * (most + 3), "{took:?} for {parts:?}");
    first.stop().await.expect("stopped");
    second.stop().await.expect("stopped");
}
