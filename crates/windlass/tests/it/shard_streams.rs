//! Sharded controllers whose keys come from outside the cluster: those that come while no replica holds
//! their shard are reconciled by the next holder.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tower::ServiceExt;
use windlass::controller::{Enqueuer, from_key_fn};
use windlass::shard::Sharding;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};

use crate::bench::{Bench, Log, Pet, Running, wait_for};

type Keys = BoxStream<'static, ObjectKey>;

fn key(n: usize) -> ObjectKey {
    ObjectKey::new("default", format!("thing-{n}"))
}

/// A replica that notes which keys of a stream it is called for.
fn replica(
    client: kube::Client,
    identity: &str,
    log: &Log<ObjectKey>,
    keys: impl Fn() -> Keys + Send + Sync + 'static,
) -> (Running, Enqueuer) {
    let log = log.clone();
    let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
        log.push(key);
        async { Ok(Outcome::Done) }
    });
    let sharding = Sharding::new(4)
        .identity(identity)
        .lease_duration(Duration::from_secs(2))
        .renew_deadline(Duration::from_millis(1200))
        .retry_period(Duration::from_millis(100));
    let controller = Controller::<Pet>::new("pet").sharding(sharding).source(move |_| keys());
    let enqueuer = controller.enqueuer();
    let mut manager = Manager::builder(client).name("it").build().expect("built");
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    (Running::start(manager), enqueuer)
}

#[tokio::test(start_paused = true)]
async fn stream_keys_before_their_shard_is_held_are_reconciled() {
    let (bench, log) = (Bench::start().await, Log::default());
    let keys = || stream::iter((0..20).map(key)).boxed();
    let (running, _) = replica(bench.kube.clone(), "a", &log, keys);
    wait_for("all are reconciled", async || (0..20).all(|n| log.contains(&key(n)))).await;
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn keys_enqueued_before_their_shard_is_held_are_reconciled() {
    let (bench, log) = (Bench::start().await, Log::default());
    let (asked, told) = watch::channel(false);
    let (answer, answers) = watch::channel(false);
    let service = bench.server.service();
    // Leases are not answered for a while.
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, asked, mut answers) = (service.clone(), asked.clone(), answers.clone());
        async move {
            if request.uri().path().contains("/leases") {
                asked.send_replace(true);
                let _ = answers.wait_for(|answers| *answers).await;
            }
            service.oneshot(request).await
        }
    });
    let client = kube::Client::new(service, "default");
    let (running, waker) = replica(client, "a", &log, || stream::empty().boxed());
    wait_for("the replica wants shards", async || *told.borrow()).await;
    assert!((0..20).all(|n| !waker.enqueue(key(n))), "nobody holds their shards");
    answer.send_replace(true);
    wait_for("all are reconciled", async || (0..20).all(|n| log.contains(&key(n)))).await;
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn stream_keys_during_a_handover_are_reconciled() {
    let (bench, log) = (Bench::start().await, Log::default());
    let (keys, _) = broadcast::channel::<ObjectKey>(10_000);
    let source = keys.clone();
    let heard = move || {
        let next = async |mut keys: broadcast::Receiver<ObjectKey>| Some((keys.recv().await.ok()?, keys));
        stream::unfold(source.subscribe(), next).boxed()
    };
    // Answers about leases take a moment.
    let service = bench.server.service();
    let slow = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let service = service.clone();
        async move {
            if request.uri().path().contains("/leases") {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            service.oneshot(request).await
        }
    });
    let slow = kube::Client::new(slow, "default");
    let (first, waker) = replica(slow.clone(), "a", &log, heard.clone());
    wait_for("a holds everything", async || (0..20).all(|n| waker.enqueue(key(n)))).await;
    let (mut sent, begun) = (0, Instant::now());
    let mut send_until = async |time: Duration| {
        while begun.elapsed() < time {
            keys.send(key(sent)).expect("heard");
            sent += 1;
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        sent
    };
    let (second, _) = replica(slow, "b", &log, heard);
    send_until(Duration::from_secs(2)).await;
    let stopping = tokio::spawn(first.stop());
    let sent = send_until(Duration::from_secs(4)).await;
    stopping.await.expect("joined").expect("stopped");
    let missing = || (0..sent).filter(|n| !log.contains(&key(*n))).count();
    wait_for("all are reconciled", async || missing() == 0).await;
    second.stop().await.expect("stopped");
}
