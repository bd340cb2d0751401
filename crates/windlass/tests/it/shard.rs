//! Sharded controllers: replicas join, leave, crash and stop, and no key is ever worked on by two.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::client::Body;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use windlass::controller::from_key_fn;
use windlass::shard::Sharding;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};

use crate::bench::{Bench, Frozen, Log, Pet, Running, pet, wait_for};

fn quick(identity: &str) -> Sharding {
    quick_with(8, identity)
}

fn quick_with(shards: u32, identity: &str) -> Sharding {
    Sharding::new(shards)
        .identity(identity)
        .lease_duration(Duration::from_secs(2))
        .renew_deadline(Duration::from_millis(1200))
        .retry_period(Duration::from_millis(100))
}

/// Who works on what right now, and who did.
#[derive(Clone, Default)]
struct Watchman {
    active: Arc<Mutex<HashMap<ObjectKey, &'static str>>>,
    log: Log<(&'static str, String)>,
    clash: Arc<AtomicBool>,
}

/// Notes the end of a reconcile, also of one that was dropped.
struct Active(Watchman, ObjectKey);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.lock().expect("not poisoned").remove(&self.1);
    }
}

impl Watchman {
    fn enter(&self, who: &'static str, key: &ObjectKey) -> Active {
        if self.active.lock().expect("not poisoned").insert(key.clone(), who).is_some() {
            self.clash.store(true, Ordering::Relaxed);
        }
        self.log.push((who, key.name().to_owned()));
        Active(self.clone(), key.clone())
    }

    /// Who worked on what since a position in the log.
    fn workers(&self, since: usize) -> HashMap<&'static str, HashSet<String>> {
        let mut workers: HashMap<_, HashSet<_>> = HashMap::new();
        for (who, name) in &self.log.entries()[since..] {
            workers.entry(*who).or_default().insert(name.clone());
        }
        workers
    }

    /// Waits until the replicas named, and no others, work on all pets, each on some.
    async fn shared_by(&self, replicas: &[&'static str]) {
        wait_for(&format!("pets shared by {replicas:?}"), async || {
            let since = self.log.len();
            let more = since + 3 * PETS;
            while self.log.len() < more {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let workers = self.workers(since);
            let all: HashSet<_> = workers.values().flatten().collect();
            workers.len() == replicas.len()
                && replicas.iter().all(|name| workers.contains_key(name))
                && all.len() == PETS
                && workers.values().map(HashSet::len).sum::<usize>() == PETS
        })
        .await;
        assert!(!self.clash.load(Ordering::Relaxed), "a key was worked on by two");
    }
}

const PETS: usize = 40;

/// A replica that reconciles every pet again and again, each time for a moment.
fn replica(client: kube::Client, identity: &'static str, watchman: &Watchman) -> Manager {
    replica_of(client, identity, 8, watchman)
}

fn replica_of(client: kube::Client, identity: &'static str, shards: u32, watchman: &Watchman) -> Manager {
    let watchman = watchman.clone();
    let mut manager = Manager::builder(client).name("it").build().expect("built");
    let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
        let active = watchman.enter(identity, &key);
        async move {
            tokio::time::sleep(Duration::from_millis(3)).await;
            drop(active);
            Ok(Outcome::RequeueAfter(Duration::from_millis(20)))
        }
    });
    let controller = Controller::<Pet>::new("pet").concurrency(4).sharding(quick_with(shards, identity));
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    manager
}

async fn with_pets() -> Bench {
    let bench = Bench::start().await;
    for n in 0..PETS {
        bench.create(&pet(&format!("pet-{n}"))).await;
    }
    bench
}

async fn leases(bench: &Bench) -> Vec<Lease> {
    let leases: Api<Lease> = Api::namespaced(bench.kube.clone(), "default");
    leases.list(&ListParams::default()).await.expect("listed").items
}

#[tokio::test(start_paused = true)]
async fn replicas_wait_for_those_with_another_shard_count() {
    let bench = with_pets().await;
    let watchman = Watchman::default();
    let first = Running::start(replica(bench.kube.clone(), "b", &watchman));
    watchman.shared_by(&["b"]).await;
    let other = Running::start(replica_of(bench.kube.clone(), "a", 12, &watchman));
    wait_for("the other joins", async || {
        let waits = |lease: &Lease| lease.metadata.name.as_deref() == Some("it.pet-member-a");
        leases(&bench).await.iter().any(waits)
    })
    .await;
    watchman.shared_by(&["b"]).await;
    let third = Running::start(replica(bench.kube.clone(), "c", &watchman));
    watchman.shared_by(&["b", "c"]).await;
    first.stop().await.expect("stopped");
    watchman.shared_by(&["c"]).await;
    third.stop().await.expect("stopped");
    watchman.shared_by(&["a"]).await;
    other.stop().await.expect("stopped");
}

/// A client that takes a while to make the leases of shards, and what it is asked to do about those.
fn slow_to_take(bench: &Bench) -> (kube::Client, Log<&'static str>) {
    let (service, tried) = (bench.server.service(), Log::default());
    let told = tried.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, tried) = (service.clone(), tried.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.expect("in memory").to_bytes();
            let text = String::from_utf8_lossy(&body);
            if parts.method == http::Method::POST && text.contains("-shard-") {
                tried.push("take");
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
            if text.contains("-shard-") && text.contains(r#""holderIdentity":"""#) {
                tried.push("give back");
            }
            let Ok(response) = service.oneshot(http::Request::from_parts(parts, Body::from(body.to_vec()))).await;
            Ok::<_, Infallible>(response)
        }
    });
    (kube::Client::new(service, "default"), told)
}

#[tokio::test(start_paused = true)]
async fn replicas_with_different_shard_counts_share_no_key() {
    let bench = with_pets().await;
    let watchman = Watchman::default();
    let (client, tried) = slow_to_take(&bench);
    let slow = Running::start(replica_of(client, "z", 12, &watchman));
    wait_for("one reaches for shards", async || tried.contains(&"take")).await;
    // The first by name, if they joined in the same second.
    let other = Running::start(replica(bench.kube.clone(), "a", &watchman));
    let begun = tokio::time::Instant::now();
    wait_for("the slow one has taken shards", async || begun.elapsed() > Duration::from_secs(2)).await;
    wait_for("one of them has all pets", async || {
        let since = watchman.log.len();
        wait_for("work goes on", async || watchman.log.len() > since + 3 * PETS).await;
        let workers = watchman.workers(since);
        workers.len() == 1 && workers.values().all(|pets| pets.len() == PETS)
    })
    .await;
    assert!(!watchman.clash.load(Ordering::Relaxed), "a key was worked on by two");
    slow.stop().await.expect("stopped");
    other.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn a_new_number_of_shards_is_seen_when_taking_one() {
    let bench = with_pets().await;
    let watchman = Watchman::default();
    let (client, tried) = slow_to_take(&bench);
    let slow = Running::start(replica_of(client, "z", 12, &watchman));
    wait_for("one reaches for shards", async || tried.contains(&"take")).await;
    let api: Api<Lease> = Api::namespaced(bench.kube.clone(), "default");
    let change = kube::api::Patch::Merge(json!({"metadata": {"labels": {"windlass.dev/shards": "8"}}}));
    api.patch("it.pet-shards", &kube::api::PatchParams::default(), &change).await.expect("changed");
    wait_for("it gives them back", async || {
        tried.entries().iter().filter(|tried| **tried == "give back").count() == 12
    })
    .await;
    // No replica holds shards by the other number, so it is changed again.
    watchman.shared_by(&["z"]).await;
    slow.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn keys_of_others_are_not_taken_and_odd_names_refused() {
    let bench = with_pets().await;
    let done = || from_key_fn(|_: ObjectKey, _: Context| async { Ok(Outcome::Done) });
    let mut managers = Vec::new();
    let mut wakers = Vec::new();
    for identity in ["a", "b"] {
        let controller = Controller::<Pet>::new("pet").sharding(quick(identity));
        wakers.push(controller.enqueuer());
        let mut manager = Manager::builder(bench.kube.clone()).name("it").build().expect("built");
        let odd = Controller::<Pet>::new("My Pets").sharding(quick(identity)).complete_keyed(done());
        let error = manager.add(odd).expect_err("no name of a lease").to_string();
        assert!(error.contains("\"My Pets\"") && error.contains("lower-case"), "{error}");
        manager.add(controller.complete_keyed(done())).expect("added");
        managers.push(Running::start(manager));
    }
    wait_for("every key is taken by one of them", async || {
        (0..PETS).all(|n| {
            let key = ObjectKey::new("default", format!("pet-{n}"));
            wakers.iter().filter(|waker| waker.enqueue(key.clone())).count() == 1
        })
    })
    .await;
    for manager in managers {
        manager.stop().await.expect("stopped");
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_join_and_leave_share_the_keys() {
    let bench = with_pets().await;
    let watchman = Watchman::default();
    let first = Running::start(replica(bench.kube.clone(), "a", &watchman));
    watchman.shared_by(&["a"]).await;
    let second = Running::start(replica(bench.kube.clone(), "b", &watchman));
    watchman.shared_by(&["a", "b"]).await;
    let third = Running::start(replica(bench.kube.clone(), "c", &watchman));
    watchman.shared_by(&["a", "b", "c"]).await;
    first.stop().await.expect("stopped");
    watchman.shared_by(&["b", "c"]).await;
    second.stop().await.expect("stopped");
    third.stop().await.expect("stopped");
    let left = leases(&bench).await;
    assert_eq!(left.len(), 9, "members are gone, shards and their number are there");
    let holder = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    assert!(left.iter().all(|lease| holder(lease).unwrap_or_default().is_empty()), "all given back");
}

#[tokio::test(start_paused = true)]
async fn shards_of_crashed_replicas_are_taken_on_expiry() {
    let bench = with_pets().await;
    let watchman = Watchman::default();
    let crashing = tokio::spawn(replica(bench.kube.clone(), "a", &watchman).run_until(CancellationToken::new()));
    watchman.shared_by(&["a"]).await;
    let second = Running::start(replica(bench.kube.clone(), "b", &watchman));
    watchman.shared_by(&["a", "b"]).await;
    let began = tokio::time::Instant::now();
    crashing.abort();
    watchman.shared_by(&["b"]).await;
    assert!(began.elapsed() >= Duration::from_millis(1500), "not before they ran out: {:?}", began.elapsed());
    second.stop().await.expect("stopped");
    assert_eq!(leases(&bench).await.len(), 9, "the crashed member was cleared away");
}

#[tokio::test(start_paused = true)]
async fn cut_off_replicas_drop_their_work_before_takeover() {
    let bench = with_pets().await;
    let watchman = Watchman::default();
    let cut = Arc::new(AtomicBool::new(false));
    let first = Running::start(replica(crate::lease::switchable(&bench, &cut), "a", &watchman));
    watchman.shared_by(&["a"]).await;
    let second = Running::start(replica(bench.kube.clone(), "b", &watchman));
    watchman.shared_by(&["a", "b"]).await;
    cut.store(true, Ordering::Relaxed);
    watchman.shared_by(&["b"]).await;
    cut.store(false, Ordering::Relaxed);
    watchman.shared_by(&["a", "b"]).await;
    first.stop().await.expect("stopped");
    second.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn leases_that_are_deleted_by_hand_are_still_their_holders() {
    let bench = with_pets().await;
    let watchman = Watchman::default();
    let first = Running::start(replica(bench.kube.clone(), "a", &watchman));
    let second = Running::start(replica(bench.kube.clone(), "b", &watchman));
    watchman.shared_by(&["a", "b"]).await;
    let api: Api<Lease> = Api::namespaced(bench.kube.clone(), "default");
    for _ in 0..5 {
        // No replica can know of a lease that is deleted before it was seen.
        let shared = tokio::time::Instant::now();
        wait_for("all have looked", async || shared.elapsed() > Duration::from_millis(500)).await;
        for lease in leases(&bench).await {
            let name = lease.metadata.name.expect("named");
            api.delete(&name, &DeleteParams::default()).await.expect("deleted");
        }
        watchman.shared_by(&["a", "b"]).await;
    }
    first.stop().await.expect("stopped");
    second.stop().await.expect("stopped");
}

#[tokio::test]
async fn a_replica_that_was_stopped_and_wakes_up_writes_nothing() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let one = |identity: &str| quick_with(1, identity);
    let sharding = one("a");
    let mut frozen = Frozen::start(bench.kube.clone(), move |kube| {
        let manager = Manager::builder(kube).name("it").build().expect("built");
        (manager, Controller::<Pet>::new("pet").sharding(sharding))
    });
    frozen.standing().await;
    let log: Log<&str> = Log::default();
    let mut manager = Manager::builder(bench.kube.clone()).name("it").build().expect("built");
    let seen = log.clone();
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let seen = seen.clone();
        async move {
            let patch = kube::api::Patch::Merge(json!({"spec": {"tricks": ["by b"]}}));
            ctx.client().patch::<Pet>(&key, &patch).await?;
            seen.push("b");
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<Pet>::new("pet").sharding(one("b")).complete_keyed(reconciler)).expect("added");
    let second = Running::start(manager);
    wait_for("b takes over", async || log.contains(&"b")).await;
    let written = frozen.wake_and_stop().await;
    assert!(!written.contains(&true), "a wrote after its time");
    let live = bench.pets().get("thor").await.expect("there");
    assert_eq!(live.spec.tricks, ["by b"]);
    second.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn operators_whose_controllers_have_the_same_name_share_nothing() {
    let bench = with_pets().await;
    let watchman = Watchman::default();
    let pets = Running::start(replica(bench.kube.clone(), "pets", &watchman));
    let log: Log<String> = Log::default();
    let mut manager = Manager::builder(bench.kube.clone()).name("another").build().expect("built");
    let seen = log.clone();
    let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
        seen.push(key.name().to_owned());
        async { Ok(Outcome::Done) }
    });
    let controller = Controller::<ConfigMap>::new("pet").sharding(quick("maps"));
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    let maps = Running::start(manager);
    wait_for("both hold all their shards", async || {
        let held = |lease: &&Lease| {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
            lease.metadata.name.as_deref().is_some_and(|name| name.contains("-shard-")) && holder.is_some()
        };
        leases(&bench).await.iter().filter(held).count() == 16
    })
    .await;
    watchman.shared_by(&["pets"]).await;
    let api: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "default");
    for n in 0..PETS {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("map-{n}"));
        api.create(&PostParams::default(), &map).await.expect("created");
    }
    wait_for("every map", async || (0..PETS).all(|n| log.contains(&format!("map-{n}")))).await;
    pets.stop().await.expect("stopped");
    maps.stop().await.expect("stopped");
}
