//! Sharded controllers: what is deleted while its shard changes hands is seen to by the next holder.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use http_body_util::{BodyExt, Either, Full};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;
use windlass::controller::{Enqueuer, from_key_fn};
use windlass::shard::Sharding;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

const PETS: usize = 20;
const MUCH_LATER: Duration = Duration::from_secs(3600);

fn names(kind: &str) -> Vec<String> {
    (0..PETS).map(|n| format!("{kind}-{n}")).collect()
}

/// What happens to the pets of a replica.
#[derive(Clone)]
struct Rules {
    /// Pets that exist and are called busy are worked on until then.
    done: watch::Receiver<bool>,
    /// When pets that are gone are to be looked at again, by a.
    again: Option<Duration>,
    /// Who began to work on which busy pet.
    begun: Log<(&'static str, String)>,
    /// Who found which pet gone.
    gone: Log<(&'static str, String)>,
}

fn replica(client: &kube::Client, identity: &'static str, rules: &Rules) -> (Running, Enqueuer) {
    replica_of(client, identity, 4, rules)
}

fn replica_of(client: &kube::Client, identity: &'static str, shards: u32, rules: &Rules) -> (Running, Enqueuer) {
    let rules = rules.clone();
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let mut rules = rules.clone();
        async move {
            if ctx.get::<Pet>(&key).await?.is_none() {
                rules.gone.push((identity, key.name().to_owned()));
                if let Some(again) = rules.again.filter(|_| identity == "a") {
                    return Ok(Outcome::RequeueAfter(again));
                }
            } else if key.name().starts_with("busy") {
                rules.begun.push((identity, key.name().to_owned()));
                let _ = rules.done.wait_for(|done| *done).await;
            }
            Ok(Outcome::Done)
        }
    });
    let sharding = Sharding::new(shards)
        .identity(identity)
        .lease_duration(Duration::from_secs(2))
        .renew_deadline(Duration::from_millis(1200))
        .retry_period(Duration::from_millis(100));
    let controller = Controller::<Pet>::new("pet").concurrency(2 * PETS).sharding(sharding);
    let enqueuer = controller.enqueuer();
    let mut manager = Manager::builder(client.clone()).name("it").build().expect("built");
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    (Running::start(manager), enqueuer)
}

/// The pets that a replica does not take up.
fn refused(enqueuer: &Enqueuer, kind: &str) -> HashSet<String> {
    let later = Duration::from_secs(7200);
    names(kind).into_iter().filter(|name| !enqueuer.enqueue_after(ObjectKey::new("default", name), later)).collect()
}

/// Busy pets are worked on until `true` is sent, gone ones are done with at once.
fn busy_until_finished() -> (watch::Sender<bool>, Rules) {
    let (finish, done) = watch::channel(false);
    (finish, Rules { done, again: None, begun: Log::default(), gone: Log::default() })
}

async fn a_moment(why: &str) {
    let begun = Instant::now();
    wait_for(why, async || begun.elapsed() > Duration::from_millis(100)).await;
}

async fn create(bench: &Bench, kind: &str) {
    for name in names(kind) {
        bench.create(&pet(&name)).await;
    }
}

async fn delete(bench: &Bench, kind: &str) {
    for name in names(kind) {
        bench.pets().delete(&name, &DeleteParams::default()).await.expect("deleted");
    }
}

#[tokio::test(start_paused = true)]
async fn deletions_during_a_drain_are_not_forgotten() {
    let bench = Bench::start().await;
    create(&bench, "busy").await;
    create(&bench, "idle").await;
    let (finish, rules) = busy_until_finished();
    let (first, waker) = replica(&bench.kube, "a", &rules);
    wait_for("a holds everything", async || refused(&waker, "idle").is_empty()).await;
    let (second, _) = replica(&bench.kube, "b", &rules);
    wait_for("a drains", async || !refused(&waker, "idle").is_empty()).await;
    delete(&bench, "idle").await;
    let drained = refused(&waker, "idle");
    let found = |who: &[&'static str], name: &String| who.iter().any(|who| rules.gone.contains(&(*who, name.clone())));
    wait_for("a finds gone what it keeps", async || {
        names("idle").iter().all(|name| drained.contains(name) || found(&["a"], name))
    })
    .await;
    assert!(!drained.iter().any(|name| found(&["a", "b"], name)), "nobody may work on these now");
    finish.send_replace(true);
    wait_for("b finds gone what it was given", async || drained.iter().all(|name| found(&["b"], name))).await;
    first.stop().await.expect("stopped");
    second.stop().await.expect("stopped");
}

/// What becomes of a write that fails.
#[derive(Clone, Copy)]
enum Fault {
    /// The server says so.
    Refused,
    /// It is never answered.
    Unanswered,
}

/// The writes that give a shard back and have failed, by path.
type Failed = Arc<Mutex<HashMap<String, usize>>>;

/// A client of which the first `times` attempts to give back a shard fail, of each shard.
fn unable_to_give_back(bench: &Bench, fault: Fault, times: usize, failed: &Failed) -> kube::Client {
    let (service, failed) = (bench.server.service(), Arc::clone(failed));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (service, failed) = (service.clone(), Arc::clone(&failed));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.expect("in memory").to_bytes();
            let path = parts.uri.path().to_owned();
            let gives_back = parts.method == Method::PUT
                && path.contains("-shard-")
                && String::from_utf8_lossy(&body).contains(r#""holderIdentity":"""#);
            let fails = gives_back && {
                let mut failed = failed.lock().expect("not poisoned");
                let count = failed.entry(path).or_default();
                *count += 1;
                *count <= times
            };
            match (fails, fault) {
                (true, Fault::Refused) => {
                    let refusal = serde_json::json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "out of order",
                        "reason": "InternalError", "code": 500,
                    });
                    let response = http::Response::builder().status(500).body(Full::from(refusal.to_string()));
                    return Ok::<_, Infallible>(response.expect("a response").map(Either::Left));
                }
                (true, Fault::Unanswered) => std::future::pending().await,
                (false, _) => {}
            }
            let Ok(response) = service.oneshot(http::Request::from_parts(parts, Body::from(body.to_vec()))).await;
            Ok(response.map(Either::Right))
        }
    });
    kube::Client::new(service, "default")
}

/// Gone pets that a still waits for are handed to b, which has never heard of them, first when b joins,
/// the rest when a stops.
async fn gone_pets_are_handed_over(bench: &Bench, client: &kube::Client) {
    create(bench, "gone").await;
    let (_finish, done) = watch::channel(true);
    let rules = Rules { done, again: Some(MUCH_LATER), begun: Log::default(), gone: Log::default() };
    let (first, waker) = replica(client, "a", &rules);
    wait_for("a holds everything", async || refused(&waker, "gone").is_empty()).await;
    delete(bench, "gone").await;
    let found = |who: &'static str, name: &String| rules.gone.contains(&(who, name.clone()));
    wait_for("a finds all gone", async || names("gone").iter().all(|name| found("a", name))).await;
    let (second, _) = replica(&bench.kube, "b", &rules);
    wait_for("b is given some", async || {
        let given = refused(&waker, "gone");
        !given.is_empty() && given.iter().all(|name| found("b", name))
    })
    .await;
    let kept: Vec<String> = names("gone").into_iter().filter(|name| !found("b", name)).collect();
    assert!(!kept.is_empty(), "two share them");
    first.stop().await.expect("stopped");
    wait_for("b is given the rest", async || kept.iter().all(|name| found("b", name))).await;
    second.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn deleted_keys_that_still_wait_are_handed_over() {
    let bench = Bench::start().await;
    gone_pets_are_handed_over(&bench, &bench.kube).await;
}

#[tokio::test(start_paused = true)]
async fn deleted_keys_are_handed_over_after_a_refused_release() {
    let (bench, failed) = (Bench::start().await, Failed::default());
    gone_pets_are_handed_over(&bench, &unable_to_give_back(&bench, Fault::Refused, 2, &failed)).await;
    let tries = failed.lock().expect("not poisoned").clone();
    assert!(tries.len() == 4 && tries.values().all(|tries| *tries >= 3), "{tries:?}");
}

#[tokio::test(start_paused = true)]
async fn deleted_keys_are_handed_over_after_a_lost_release() {
    let (bench, failed) = (Bench::start().await, Failed::default());
    gone_pets_are_handed_over(&bench, &unable_to_give_back(&bench, Fault::Unanswered, 1, &failed)).await;
    let tries = failed.lock().expect("not poisoned").clone();
    assert!(tries.len() == 4 && tries.values().all(|tries| *tries >= 2), "{tries:?}");
}

/// A client that is not answered when it lists leases, as long as it is said so.
fn unable_to_list(bench: &Bench, hangs: &watch::Receiver<bool>) -> kube::Client {
    let (service, hangs) = (bench.server.service(), hangs.clone());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (service, mut hangs) = (service.clone(), hangs.clone());
        async move {
            if request.method() == Method::GET && request.uri().path().ends_with("/leases") {
                let _ = hangs.wait_for(|hangs| !hangs).await;
            }
            service.oneshot(request).await
        }
    });
    kube::Client::new(service, "default")
}

/// Shards run out while their gone pets, deleted so long ago that no replica remembers it, come up again
/// and again, of shards that are drained by then or not.
async fn gone_pets_are_found_after_shards_ran_out(drains: bool) {
    let bench = Bench::start().await;
    create(&bench, "busy").await;
    create(&bench, "gone").await;
    let (hang, hangs) = watch::channel(false);
    let (_finish, done) = watch::channel(!drains);
    let rules = Rules { done, again: Some(Duration::from_millis(50)), begun: Log::default(), gone: Log::default() };
    let (first, waker) = replica(&unable_to_list(&bench, &hangs), "a", &rules);
    wait_for("a holds everything", async || refused(&waker, "gone").is_empty()).await;
    delete(&bench, "gone").await;
    let deleted = Instant::now();
    let found_since = |since: usize| {
        let found = rules.gone.entries().split_off(since);
        names("gone").iter().all(|name| found.contains(&("a", name.clone())))
    };
    wait_for("nobody remembers", async || deleted.elapsed() > Duration::from_secs(5) && found_since(0)).await;
    if drains {
        let (second, _) = replica(&bench.kube, "b", &rules);
        wait_for("a drains", async || !refused(&waker, "gone").is_empty()).await;
        a_moment("gone pets come up").await;
        second.stop().await.expect("stopped");
    }
    hang.send_replace(true);
    wait_for("a loses everything", async || refused(&waker, "gone").len() == PETS).await;
    let lost = Instant::now();
    wait_for("a notices", async || lost.elapsed() > Duration::from_secs(2)).await;
    let since = rules.gone.len();
    hang.send_replace(false);
    wait_for("a finds all gone again", async || found_since(since)).await;
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn keys_of_an_expiring_shard_are_not_forgotten() {
    gone_pets_are_found_after_shards_ran_out(false).await;
}

#[tokio::test(start_paused = true)]
async fn keys_of_an_expiring_drained_shard_are_not_forgotten() {
    gone_pets_are_found_after_shards_ran_out(true).await;
}

/// Gone pets that a still waited for when it stopped are found by those that divide the pets otherwise.
async fn gone_pets_are_found_under_another_number_of_shards(before: u32, after: u32) {
    let bench = Bench::start().await;
    create(&bench, "gone").await;
    let (_finish, done) = watch::channel(true);
    let rules = Rules { done, again: Some(MUCH_LATER), begun: Log::default(), gone: Log::default() };
    let (first, waker) = replica_of(&bench.kube, "a", before, &rules);
    wait_for("a holds everything", async || refused(&waker, "gone").is_empty()).await;
    delete(&bench, "gone").await;
    let found = |who: &'static str, name: &String| rules.gone.contains(&(who, name.clone()));
    wait_for("a finds all gone", async || names("gone").iter().all(|name| found("a", name))).await;
    first.stop().await.expect("stopped");
    let leases: Api<Lease> = Api::namespaced(bench.kube.clone(), "default");
    let left_in = async || {
        let leases = leases.list(&ListParams::default()).await.expect("listed").items;
        leases.iter().filter(|lease| lease.annotations().contains_key("windlass.dev/left-keys")).count()
    };
    assert!(left_in().await > 0, "a left them");
    let others = ["b", "c"].map(|identity| replica_of(&bench.kube, identity, after, &rules).0);
    wait_for("the others find all gone", async || {
        names("gone").iter().all(|name| found("b", name) || found("c", name))
    })
    .await;
    wait_for("nothing is left", async || left_in().await == 0).await;
    for other in others {
        other.stop().await.expect("stopped");
    }
    assert_eq!(left_in().await, 0, "all done");
}

#[tokio::test(start_paused = true)]
async fn deleted_keys_are_handed_over_to_fewer_shards() {
    gone_pets_are_found_under_another_number_of_shards(8, 3).await;
}

#[tokio::test(start_paused = true)]
async fn deleted_keys_are_handed_over_to_more_shards() {
    gone_pets_are_found_under_another_number_of_shards(3, 8).await;
}

#[tokio::test(start_paused = true)]
async fn slowly_stopping_replicas_keep_only_their_busy_shard() {
    let bench = Bench::start().await;
    bench.create(&pet("busy")).await;
    create(&bench, "idle").await;
    let (finish, rules) = busy_until_finished();
    let (first, waker) = replica(&bench.kube, "a", &rules);
    wait_for("a holds everything", async || refused(&waker, "idle").is_empty()).await;
    wait_for("a works", async || rules.begun.contains(&("a", "busy".to_owned()))).await;
    let (second, other) = replica(&bench.kube, "b", &rules);
    let stopping = tokio::spawn(first.stop());
    let holders = async || {
        let leases: Api<Lease> = Api::namespaced(bench.kube.clone(), "default");
        let leases = leases.list(&ListParams::default()).await.expect("listed").items;
        let shards = leases.iter().filter(|lease| lease.name_any().contains("-shard-"));
        let mut holders: Vec<_> = shards.filter_map(|lease| lease.spec.as_ref()?.holder_identity.clone()).collect();
        holders.sort();
        holders
    };
    wait_for("b has the other shards", async || holders().await == ["a", "b", "b", "b"]).await;
    let begun = Instant::now();
    wait_for("a works on", async || begun.elapsed() > Duration::from_secs(5)).await;
    assert_eq!(holders().await, ["a", "b", "b", "b"]);
    let refused_by_b = refused(&other, "idle").len();
    assert!(0 < refused_by_b && refused_by_b < PETS, "b works on all but those of one shard: {refused_by_b}");
    assert!(!stopping.is_finished());
    finish.send_replace(true);
    stopping.await.expect("joined").expect("stopped");
    wait_for("b has everything", async || refused(&other, "idle").is_empty()).await;
    second.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn deletions_during_a_slow_stop_go_to_other_replicas() {
    let bench = Bench::start().await;
    create(&bench, "busy").await;
    create(&bench, "idle").await;
    let (finish, rules) = busy_until_finished();
    let (first, waker) = replica(&bench.kube, "a", &rules);
    // Not asked about the idle ones: that puts them in the queue.
    wait_for("a holds everything", async || refused(&waker, "busy").is_empty()).await;
    wait_for("a works", async || rules.begun.len() == PETS).await;
    let stopping = tokio::spawn(first.stop());
    a_moment("a takes up nothing more").await;
    delete(&bench, "idle").await;
    let deleted = Instant::now();
    wait_for("nobody remembers", async || deleted.elapsed() > Duration::from_secs(5)).await;
    assert!(!stopping.is_finished() && rules.gone.len() == 0, "a is busy and takes up nothing");
    let (second, _) = replica(&bench.kube, "b", &rules);
    finish.send_replace(true);
    stopping.await.expect("joined").expect("stopped");
    let found = |name: &String| rules.gone.contains(&("b", name.clone()));
    wait_for("b finds gone what a left", async || names("idle").iter().all(found)).await;
    second.stop().await.expect("stopped");
}
