//! Sharded controllers: what one replica remembers reaches the next holder of the shard, though that one
//! has never heard of it.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use windlass::controller::{Enqueuer, from_key_fn};
use windlass::shard::Sharding;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

const PETS: usize = 20;

fn names() -> Vec<String> {
    (0..PETS).map(|n| format!("pet-{n}")).collect()
}

fn sharding(identity: &str) -> Sharding {
    Sharding::new(4)
        .identity(identity)
        .lease_duration(Duration::from_secs(2))
        .renew_deadline(Duration::from_millis(1200))
        .retry_period(Duration::from_millis(100))
}

/// A replica that notes which pets it finds gone, and looks at them again after a time if one is given.
fn replica(client: &kube::Client, identity: &str, again: Option<Duration>, gone: &Log<String>) -> (Manager, Enqueuer) {
    let gone = gone.clone();
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let gone = gone.clone();
        async move {
            if ctx.get::<Pet>(&key).await?.is_some() {
                return Ok(Outcome::Done);
            }
            gone.push(key.name().to_owned());
            Ok(again.map_or(Outcome::Done, Outcome::RequeueAfter))
        }
    });
    let controller = Controller::<Pet>::new("pet").concurrency(4).sharding(sharding(identity));
    let enqueuer = controller.enqueuer();
    let mut manager = Manager::builder(client.clone()).name("it").build().expect("built");
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    (manager, enqueuer)
}

async fn with_pets() -> Bench {
    let bench = Bench::start().await;
    for name in names() {
        bench.create(&pet(&name)).await;
    }
    bench
}

async fn delete_all(bench: &Bench) {
    for name in names() {
        bench.pets().delete(&name, &DeleteParams::default()).await.expect("deleted");
    }
}

/// The pets that a replica does not take up.
fn refused(enqueuer: &Enqueuer) -> HashSet<String> {
    let later = Duration::from_secs(7200);
    names().into_iter().filter(|name| !enqueuer.enqueue_after(ObjectKey::new("default", name), later)).collect()
}

async fn pass(time: Duration) {
    let begun = Instant::now();
    wait_for("time passes", async || begun.elapsed() > time).await;
}

async fn leases(bench: &Bench) -> Vec<Lease> {
    let leases: Api<Lease> = Api::namespaced(bench.kube.clone(), "default");
    leases.list(&ListParams::default()).await.expect("listed").items
}

async fn all_found(gone: &Log<String>, since: usize) {
    wait_for("all are found gone", async || {
        let found = gone.entries().split_off(since);
        names().iter().all(|name| found.contains(name))
    })
    .await;
}

/// One of two goes, pets are deleted, its successor comes at once. It finds no trace of them in its
/// cache, and the other one, which heard of it, does not get the shards.
async fn pets_are_deleted_between_two_holders(crashes: bool, successor: &str) {
    let (bench, gone) = (with_pets().await, Log::default());
    let (first, waker) = replica(&bench.kube, "a", None, &gone);
    let stop = CancellationToken::new();
    let first = tokio::spawn(first.run_until(stop.clone()));
    let (second, other) = replica(&bench.kube, "b", None, &gone);
    let second = Running::start(second);
    wait_for("they share the pets", async || {
        let (ours, others) = (refused(&waker), refused(&other));
        ours.len() + others.len() == PETS && ours.is_disjoint(&others) && !ours.is_empty() && !others.is_empty()
    })
    .await;
    if crashes {
        first.abort();
    } else {
        stop.cancel();
        first.await.expect("joined").expect("stopped");
    }
    delete_all(&bench).await;
    let (third, _) = replica(&bench.kube, successor, None, &gone);
    let third = Running::start(third);
    all_found(&gone, 0).await;
    let keys_left = async || leases(&bench).await.iter().any(|lease| lease.annotations().contains_key(LEFT));
    wait_for("nothing is left in a lease", async || !keys_left().await).await;
    third.stop().await.expect("stopped");
    second.stop().await.expect("stopped");
}

const LEFT: &str = "windlass.dev/left-keys";

#[tokio::test(start_paused = true)]
async fn deletions_between_a_stop_and_a_successor_are_kept() {
    pets_are_deleted_between_two_holders(false, "c").await;
}

#[tokio::test(start_paused = true)]
async fn deletions_between_a_crash_and_a_successor_are_kept() {
    pets_are_deleted_between_two_holders(true, "c").await;
}

#[tokio::test(start_paused = true)]
async fn deletions_between_a_crash_and_a_namesake_are_kept() {
    pets_are_deleted_between_two_holders(true, "a").await;
}

/// A client that is not answered about leases, as long as it is said so.
fn cut_off(bench: &Bench, hangs: &watch::Receiver<bool>) -> kube::Client {
    let (service, hangs) = (bench.server.service(), hangs.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, mut hangs) = (service.clone(), hangs.clone());
        async move {
            if request.uri().path().contains("/leases") {
                let _ = hangs.wait_for(|hangs| !hangs).await;
            }
            service.oneshot(request).await
        }
    });
    kube::Client::new(service, "default")
}

/// The only replica still waits for pets that are long gone when its shards run out. It is back before
/// they are anybody's, and is not alone any more, or stops.
async fn shards_run_out(stops: bool) {
    let (bench, gone) = (with_pets().await, Log::default());
    let (hang, hangs) = watch::channel(false);
    let (first, waker) = replica(&cut_off(&bench, &hangs), "a", Some(Duration::from_secs(3600)), &gone);
    let first = Running::start(first);
    wait_for("a holds everything", async || refused(&waker).is_empty()).await;
    delete_all(&bench).await;
    all_found(&gone, 0).await;
    pass(Duration::from_secs(5)).await;
    hang.send_replace(true);
    wait_for("a loses everything", async || refused(&waker).len() == PETS).await;
    // It notices at the end of its round.
    pass(Duration::from_millis(700)).await;
    let since = gone.len();
    let (second, _) = replica(&bench.kube, "b", None, &gone);
    if stops {
        let stopping = tokio::spawn(first.stop());
        // Until its last round is over: what is answered then is the attempt to leave.
        pass(Duration::from_millis(700)).await;
        hang.send_replace(false);
        stopping.await.expect("joined").expect("stopped");
        let second = Running::start(second);
        all_found(&gone, since).await;
        wait_for("the lease of a is deleted", async || {
            !leases(&bench).await.iter().any(|lease| lease.name_any().contains("-member-a"))
        })
        .await;
        second.stop().await.expect("stopped");
    } else {
        let second = Running::start(second);
        wait_for("b joined", async || leases(&bench).await.iter().any(|lease| lease.name_any().ends_with("-b"))).await;
        hang.send_replace(false);
        all_found(&gone, since).await;
        first.stop().await.expect("stopped");
        second.stop().await.expect("stopped");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_of_expired_shards_reach_the_next_replica() {
    shards_run_out(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_stopping_replica_leaves_keys_of_expired_shards() {
    shards_run_out(true).await;
}
