//! Sharded controllers of which single lease writes hang: the other shards must not notice.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use tower::ServiceExt;
use windlass::controller::from_key_fn;
use windlass::shard::Sharding;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

const PETS: usize = 40;

fn sharding() -> Sharding {
    Sharding::new(8)
        .lease_duration(Duration::from_secs(2))
        .renew_deadline(Duration::from_millis(1200))
        .retry_period(Duration::from_millis(100))
}

async fn with_pets() -> Bench {
    let bench = Bench::start().await;
    for n in 0..PETS {
        bench.create(&pet(&format!("pet-{n}"))).await;
    }
    bench
}

/// A client of which the requests that are chosen, by method and path, are never answered.
fn hanging(bench: &Bench, hangs: impl Fn(&Method, &str) -> bool + Send + Sync + 'static) -> kube::Client {
    let (service, hangs) = (bench.server.service(), Arc::new(hangs));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, hangs) = (service.clone(), Arc::clone(&hangs));
        async move {
            if hangs(request.method(), request.uri().path()) {
                std::future::pending::<()>().await;
            }
            let Ok(response) = service.oneshot(request).await;
            Ok::<_, Infallible>(response)
        }
    });
    kube::Client::new(service, "default")
}

fn replica(client: kube::Client, log: &Log<String>, outcome: Outcome) -> Manager {
    let log = log.clone();
    let mut manager = Manager::builder(client).name("it").build().expect("built");
    let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
        log.push(key.name().to_owned());
        async move { Ok(outcome) }
    });
    let controller = Controller::<Pet>::new("pet").concurrency(4).sharding(sharding());
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    manager
}

/// The pets worked on from now on, until there was time for each of them several times.
async fn worked_on(log: &Log<String>) -> HashSet<String> {
    let since = log.len();
    wait_for("work goes on", async || log.len() > since + 5 * PETS).await;
    log.entries()[since..].iter().cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn shards_taken_before_a_write_hangs_are_worked_on() {
    let bench = with_pets().await;
    let hung = AtomicBool::new(false);
    let created = std::sync::atomic::AtomicUsize::new(0);
    // The member's lease, that of the number of shards, three shards, and then one whose answer never comes.
    let client = hanging(&bench, move |method, path| {
        let creates = method == Method::POST && path.ends_with("/leases");
        creates && created.fetch_add(1, Ordering::Relaxed) == 5 && !hung.swap(true, Ordering::Relaxed)
    });
    let log = Log::default();
    let running = Running::start(replica(client, &log, Outcome::Done));
    wait_for("every pet", async || (0..PETS).all(|n| log.contains(&format!("pet-{n}")))).await;
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn an_unwritable_lease_costs_its_own_shard_only() {
    let bench = with_pets().await;
    let stuck = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&stuck);
    let client = hanging(&bench, move |method, path| {
        method == Method::PUT && path.ends_with("/it.pet-shard-3") && switch.load(Ordering::Relaxed)
    });
    let log = Log::default();
    let again = Outcome::RequeueAfter(Duration::from_millis(20));
    let running = Running::start(replica(client, &log, again));
    wait_for("every pet", async || worked_on(&log).await.len() == PETS).await;
    stuck.store(true, Ordering::Relaxed);
    wait_for("the shard is lost", async || worked_on(&log).await.len() < PETS).await;
    let others = worked_on(&log).await;
    assert!(others.len() > PETS / 2, "{others:?}");
    let began = tokio::time::Instant::now();
    while began.elapsed() < 3 * sharding().lease_duration {
        assert_eq!(worked_on(&log).await, others);
    }
    stuck.store(false, Ordering::Relaxed);
    wait_for("the shard is taken again", async || worked_on(&log).await.len() == PETS).await;
    running.stop().await.expect("stopped");
}
