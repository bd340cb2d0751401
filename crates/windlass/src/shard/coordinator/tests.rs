#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::fence::Sent;

/// Notes which shards are to be put in the queue. Keys of things that are gone are in the queue.
#[derive(Clone, Default)]
struct Queued {
    taken: Arc<Mutex<Vec<u32>>>,
    gone: Arc<Mutex<BTreeSet<ObjectKey>>>,
}

impl Keys for Queued {
    fn taken(&self, shards: &BTreeSet<u32>) {
        self.taken.lock().extend(shards);
    }
    fn left(&self, _: BTreeSet<ObjectKey>) {}
    fn pending(&self, shards: &BTreeSet<u32>) -> BTreeSet<ObjectKey> {
        self.gone.lock().iter().filter(|key| shards.contains(&crate::shard::shard_of(key, 2))).cloned().collect()
    }
    fn known(&self, _: &BTreeSet<u32>) -> BTreeSet<ObjectKey> {
        BTreeSet::new()
    }
}

/// A server of leases.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Served>>);

#[derive(Default)]
struct Served {
    leases: Vec<Value>,
    refuses: bool,
    /// How long the next request takes.
    takes: Duration,
    writes: Vec<(Method, String, Value)>,
}

impl Fake {
    fn client(&self) -> kube::Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move { Ok::<_, Infallible>(fake.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let takes = std::mem::take(&mut self.0.lock().takes);
        if !takes.is_zero() {
            tokio::time::advance(takes).await;
        }
        let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
        let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
        let mut served = self.0.lock();
        let (code, answer) = if parts.method == Method::GET && name == "leases" {
            (200, json!({"metadata": {}, "items": served.leases}))
        } else if parts.method == Method::GET {
            let found = served.leases.iter().find(|lease| lease["metadata"]["name"] == name.as_str());
            found.map_or((404, failure(404)), |lease| (200, lease.clone()))
        } else {
            let name = body["metadata"]["name"].as_str().unwrap_or(&name).to_owned();
            served.writes.push((parts.method.clone(), name.clone(), body.clone()));
            if served.refuses {
                (409, failure(409))
            } else {
                let version = format!("{}", 100 + served.writes.len());
                served.leases.retain(|lease| lease["metadata"]["name"] != name.as_str());
                let mut stored = body;
                stored["metadata"]["resourceVersion"] = json!(version);
                if parts.method == Method::POST {
                    stored["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
                if parts.method != Method::DELETE {
                    served.leases.push(stored.clone());
                }
                (200, stored)
            }
        };
        Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap()
    }

    fn written(&self) -> Vec<(Method, String)> {
        self.0.lock().writes.iter().map(|(method, name, _)| (method.clone(), name.clone())).collect()
    }

    fn set(&self, leases: impl Into<Vec<Value>>) {
        self.0.lock().leases = leases.into();
    }

    /// The holder of a lease and the keys that are left in it.
    fn lease(&self, name: &str) -> Option<(String, Vec<String>)> {
        let name = format!("it.pet-{name}");
        let served = self.0.lock();
        let lease = served.leases.iter().find(|lease| lease["metadata"]["name"] == name.as_str())?;
        let left = lease["metadata"]["annotations"]["windlass.dev/left-keys"].as_str();
        let left = left.map(|left| serde_json::from_str(left).unwrap()).unwrap_or_default();
        Some((lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned(), left))
    }
}

/// A key of a shard.
fn key_of(shard: u32) -> ObjectKey {
    let mut keys = (0..100).map(|n| ObjectKey::cluster(format!("pet-{n}")));
    keys.find(|key| crate::shard::shard_of(key, 2) == shard).unwrap()
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "Conflict", "code": code})
}

fn lease(role: &str, name: &str, holder: &str, shards: u32) -> Value {
    json!({
        "metadata": {"name": format!("it.pet-{name}"), "resourceVersion": "7", "labels": {
            "windlass.dev/sharded-controller": "pet", "windlass.dev/sharded-manager": "it",
            "windlass.dev/shard-role": role, "windlass.dev/shards": shards.to_string(),
        }},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    })
}

/// A replica called a that divides the keys into two shards.
fn replica() -> (Coordinator, Fake, Queued) {
    let (fake, queued) = (Fake::default(), Queued::default());
    let sharding = Sharding::new(2).identity("a");
    let (names, slots, keys) = (("it", "pet"), Slots::new(2), Box::new(queued.clone()));
    let coordinator = Coordinator::new(fake.client(), names, sharding, slots, keys, Recorder::discard());
    (coordinator, fake, queued)
}

/// One that has joined and holds everything.
async fn holding_all() -> (Coordinator, Fake, Queued) {
    let (mut coordinator, fake, queued) = replica();
    coordinator.round().await.unwrap();
    assert_eq!(coordinator.slots.held(), 2);
    fake.0.lock().writes.clear();
    (coordinator, fake, queued)
}

fn take(shard: u32) -> Answer {
    Answer::Taken(shard, Sent::now(), Vec::new(), Ok(LeaseSpec::default()))
}

fn renewed(shard: u32) -> Answer {
    Answer::Renewed(shard, Sent::now(), Ok(LeaseSpec::default()))
}

fn names(keys: &[&ObjectKey]) -> Vec<String> {
    keys.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn renewals_after_the_wall_clock_was_set_are_late() {
    let (mut coordinator, _, queued) = replica();
    coordinator.settle(vec![take(0), take(1)]);
    coordinator.slots.slot(1).fence.jump();
    coordinator.settle(vec![renewed(0), renewed(1)]);
    coordinator.settle(vec![renewed(0), renewed(1)]);
    assert_eq!((coordinator.held.clone(), coordinator.slots.held()), ([0].into(), 1));
    coordinator.settle(vec![take(1)]);
    assert_eq!(*queued.taken.lock(), [0, 1, 1], "it starts over when it is taken again");
}

#[tokio::test(start_paused = true)]
async fn renewals_do_not_open_shards_closed_since() {
    let (mut coordinator, ..) = replica();
    coordinator.settle(vec![take(0)]);
    coordinator.slots.slot(0).drain();
    coordinator.draining.insert(0);
    let answer = renewed(0);
    coordinator.drained = coordinator.drain(Instant::now(), true).await;
    coordinator.close_drained();
    coordinator.settle(vec![answer]);
    assert_eq!(coordinator.slots.held(), 0);
    assert!(coordinator.leaving.contains_key(&0));
}

/// As of a process that is stopped in the middle of a round: the leases of its shards are as it left
/// them, but others have put another number of shards in force.
#[tokio::test(start_paused = true)]
async fn expired_shards_are_not_renewed_under_another_number() {
    let (mut coordinator, fake, _) = replica();
    coordinator.settle(vec![take(0), take(1)]);
    fake.set([
        lease("member", "member-a", "a", 2),
        lease("shard", "shard-0", "a", 2),
        lease("shard", "shard-1", "a", 2),
        lease("number", "shards", "", 3),
        lease("member", "member-b", "b", 3),
        lease("shard", "shard-2", "b", 3),
    ]);
    fake.0.lock().takes = Duration::from_secs(11);
    let (writes, renewals) = coordinator.begin().await.unwrap();
    assert_eq!((coordinator.held.len(), coordinator.slots.held(), renewals), (0, 0, 0));
    let _: Vec<_> = writes.collect().await;
    assert_eq!(fake.written(), [(Method::PUT, "it.pet-member-a".to_owned())]);
}

/// It is seen that another has a shard in the round in which this replica's time was up: what it had
/// not done with is news to the other.
#[tokio::test(start_paused = true)]
async fn keys_of_a_taken_shard_are_left_to_its_holder() {
    let (mut coordinator, fake, queued) = holding_all().await;
    let key = key_of(0);
    queued.gone.lock().insert(key.clone());
    fake.set([
        lease("member", "member-a", "a", 2),
        lease("shard", "shard-0", "b", 2),
        lease("shard", "shard-1", "b", 2),
        lease("number", "shards", "", 2),
    ]);
    // Seen to be another's before it is noticed that it was lost.
    coordinator.tenures.look(&coordinator.leases.list().await.unwrap(), 2, Instant::now());
    tokio::time::advance(Duration::from_millis(1)).await;
    coordinator.lose(0, "too late");
    coordinator.lose(1, "too late");
    queued.gone.lock().clear();
    coordinator.round().await.unwrap();
    assert_eq!(fake.lease("member-a"), Some(("a".to_owned(), names(&[&key]))));
}

/// The other holder has not been heard of for a while: it may have crashed before it heard what this
/// replica heard.
#[tokio::test(start_paused = true)]
async fn keys_heard_after_a_new_holder_are_handed_over() {
    let (mut coordinator, fake, _) = replica();
    let member = || lease("member", "member-a", "a", 2);
    fake.set([member(), lease("shard", "shard-0", "b", 2), lease("shard", "shard-1", "c", 2)]);
    coordinator.round().await.unwrap();
    for key in [key_of(0), key_of(1)] {
        tokio::time::advance(Duration::from_secs(1)).await;
        coordinator.slots.depart(&key);
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    for lease in fake.0.lock().leases.iter_mut().filter(|lease| lease["metadata"]["name"] == "it.pet-shard-1") {
        lease["metadata"]["resourceVersion"] = json!("renewed");
    }
    coordinator.round().await.unwrap();
    stopped(coordinator).await;
    assert_eq!(fake.lease("member-a"), Some((String::new(), names(&[&key_of(0)]))));
}

/// Of shards that were taken, one write hangs: the others are renewed.
#[tokio::test(start_paused = true)]
async fn hanging_writes_cost_only_their_own_shard() {
    let (mut coordinator, fake, _) = replica();
    let behind = fake.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let behind = behind.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            if String::from_utf8_lossy(&body).contains("shard-1") {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(behind.answer(Request::from_parts(parts, Body::from(body.to_vec()))).await)
        }
    });
    let api = Api::namespaced(kube::Client::new(service, "default"), "default");
    coordinator.leases = Leases::new(api, Team::new("it", "pet"), 2);
    let (slots, over) = (coordinator.slots.clone(), CancellationToken::new());
    let running = coordinator.run(CancellationToken::new(), over.clone());
    tokio::join!(running, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..60 {
            assert_eq!((slots.held(), slots.slot(0).fence.is_open()), (1, true));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        over.cancel();
    });
}

/// So slow that nothing can be known to be taken before it has run out: then others are to have it.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_too_slow_claims_nothing() {
    let (mut coordinator, fake, _) = replica();
    fake.0.lock().takes = Duration::from_secs(4);
    coordinator.round().await.unwrap();
    assert_eq!(fake.written(), []);
    coordinator.round().await.unwrap();
    assert_eq!(coordinator.slots.held(), 2, "until the server is quick again");
}

#[tokio::test(start_paused = true)]
async fn keys_between_close_and_release_are_handed_over() {
    let (mut coordinator, fake, _) = holding_all().await;
    coordinator.slots.slot(0).drain();
    coordinator.draining.insert(0);
    coordinator.drained.insert(0);
    coordinator.close_drained();
    coordinator.slots.depart(&key_of(0));
    stopped(coordinator).await;
    assert_eq!(fake.lease("member-a"), Some((String::new(), names(&[&key_of(0)]))));
}

#[tokio::test(start_paused = true)]
async fn a_drained_shard_waits_for_its_turn_while_rounds_fail() {
    let (mut coordinator, fake, _) = holding_all().await;
    let claim = coordinator.slots.enter(&key_of(0)).unwrap();
    fake.0.lock().leases.push(lease("member", "member-b", "b", 2));
    fake.0.lock().leases.push(lease("member", "member-c", "c", 2));
    coordinator.round().await.unwrap();
    let draining = coordinator.draining.clone();
    assert_eq!(draining.len(), 1);
    drop(claim);
    let (start, next) = (Instant::now(), Instant::now() + Duration::from_secs(2));
    assert_eq!(coordinator.drain(next, true).await, draining);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(coordinator.drain(next, false).await.is_empty());
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    // Of a server that refuses everything, as many lists as there are rounds.
    let refusals = Arc::new(Mutex::new(0));
    let count = Arc::clone(&refusals);
    let refusing = tower::service_fn(move |_: Request<Body>| {
        *count.lock() += 1;
        async { Err::<Response<Body>, _>("connection refused") }
    });
    let api = Api::namespaced(kube::Client::new(refusing, "default"), "default");
    coordinator.leases = Leases::new(api, Team::new("it", "pet"), 2);
    let over = CancellationToken::new();
    let running = coordinator.run(CancellationToken::new(), over.clone());
    tokio::join!(running, async {
        tokio::time::sleep(Duration::from_secs(9)).await;
        over.cancel();
    });
    assert!((4..=10).contains(&*refusals.lock()), "{}", refusals.lock());
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_just_expired_shard_are_left() {
    let (mut coordinator, fake, _) = replica();
    coordinator.settle(vec![take(0), take(1)]);
    tokio::time::advance(Duration::from_secs(11)).await;
    let key = key_of(1);
    assert!(coordinator.slots.enter(&key).is_none() && !coordinator.slots.refuse(&key));
    stopped(coordinator).await;
    assert_eq!(fake.lease("member-a"), Some((String::new(), names(&[&key]))));
}

async fn stopped(coordinator: Coordinator) {
    let over = CancellationToken::new();
    over.cancel();
    coordinator.run(over.clone(), over).await;
}

#[tokio::test(start_paused = true)]
async fn keys_of_lost_shards_are_handed_over_elsewhere() {
    let (coordinator, fake, queued) = holding_all().await;
    let (ours, anothers, nobodys) = (key_of(0), key_of(1), ObjectKey::cluster("pet-99"));
    queued.gone.lock().extend([ours.clone(), anothers.clone()]);
    // Of a shard that is held again, and left before this replica was started anew.
    fake.0.lock().leases.retain(|lease| !lease["metadata"]["name"].as_str().unwrap().contains("shard-1"));
    for lease in fake.0.lock().leases.iter_mut().filter(|lease| lease["metadata"]["name"] == "it.pet-member-a") {
        lease["metadata"]["annotations"]["windlass.dev/left-keys"] = json!(r#"["pet-99"]"#);
    }
    stopped(coordinator).await;
    assert_eq!(fake.lease("shard-0"), Some((String::new(), names(&[&ours]))));
    let (holder, left) = fake.lease("member-a").unwrap();
    assert_eq!((holder.as_str(), BTreeSet::from_iter(left)), ("", names(&[&anothers, &nobodys]).into_iter().collect()));
}

/// More than one lease holds are left one part after the other, as others take them out.
#[tokio::test(start_paused = true)]
async fn many_keys_are_left_in_parts() {
    let (coordinator, fake, _) = replica();
    fake.set([lease("shard", "shard-0", "b", 2), lease("shard", "shard-1", "b", 2)]);
    let keys: BTreeSet<String> = (0..3000).map(|n| format!("pet-{n:0>60}")).collect();
    for name in &keys {
        coordinator.slots.depart(&ObjectKey::cluster(name));
    }
    let mut adopted = BTreeSet::new();
    let mut leaving = Box::pin(stopped(coordinator));
    for _ in 0..1000 {
        if futures::poll!(&mut leaving).is_ready() {
            break;
        }
        if let Some((_, left)) = fake.lease("member-a") {
            adopted.extend(left);
            fake.0.lock().leases.retain(|lease| lease["metadata"]["name"] != "it.pet-member-a");
        }
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    adopted.extend(fake.lease("member-a").map(|(_, left)| left).unwrap_or_default());
    assert_eq!(adopted.len(), keys.len());
}

#[tokio::test(start_paused = true)]
async fn deletions_are_kept_while_rivals_hold_no_shards() {
    let (mut coordinator, fake, _) = replica();
    let mut first = lease("member", "member-b", "b", 3);
    first["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    fake.set([first]);
    coordinator.round().await.unwrap();
    assert!(coordinator.waiting);
    coordinator.slots.depart(&key_of(0));
    for round in 0..40 {
        tokio::time::advance(Duration::from_secs(2)).await;
        fake.0.lock().leases[0]["metadata"]["resourceVersion"] = json!(round.to_string());
        coordinator.round().await.unwrap();
    }
    assert!(coordinator.waiting);
    assert_eq!(coordinator.slots.remembered(0), [key_of(0)]);
}

/// Every request takes so long that a round of three does not fit in half of the time.
#[tokio::test(start_paused = true)]
async fn shards_are_taken_from_a_slow_server() {
    let (mut coordinator, fake, _) = replica();
    let slow = fake.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let slow = slow.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(2200)).await;
            Ok::<_, Infallible>(slow.answer(request).await)
        }
    });
    let api = Api::namespaced(kube::Client::new(service, "default"), "default");
    coordinator.leases = Leases::new(api, Team::new("it", "pet"), 2);
    fake.set([
        lease("member", "member-a", "a", 2),
        lease("number", "shards", "", 2),
        lease("shard", "shard-1", "b", 2),
    ]);
    let (slots, over) = (coordinator.slots.clone(), CancellationToken::new());
    let running = coordinator.run(CancellationToken::new(), over.clone());
    tokio::join!(running, async {
        tokio::time::sleep(Duration::from_secs(14)).await;
        assert_eq!(slots.held(), 1, "the one that is nobody's");
        tokio::time::sleep(Duration::from_secs(16)).await;
        assert_eq!(slots.held(), 2, "and the other one when it has run out");
        over.cancel();
    });
}

#[tokio::test(start_paused = true)]
async fn replicas_rejoin_at_once_after_their_lease_was_deleted() {
    let (mut coordinator, fake, _) = replica();
    fake.set([lease("member", "member-a", "", 2)]);
    fake.0.lock().refuses = true;
    assert!(coordinator.round().await.is_err());
    fake.set([]);
    fake.0.lock().refuses = false;
    coordinator.round().await.unwrap();
    let own = "it.pet-member-a".to_owned();
    assert_eq!(fake.written()[..2], [(Method::PUT, own.clone()), (Method::POST, own)]);
}

#[tokio::test(start_paused = true)]
async fn replicas_wait_for_their_stolen_lease_to_expire() {
    let (mut coordinator, fake, queued) = replica();
    fake.set([lease("member", "member-a", "z", 2), lease("number", "shards", "", 2)]);
    coordinator.round().await.unwrap();
    assert!(queued.taken.lock().is_empty() && fake.written().is_empty(), "{:?}", fake.written());
    tokio::time::advance(Duration::from_secs(15)).await;
    coordinator.round().await.unwrap();
    assert_eq!(fake.lease("member-a"), Some(("a".to_owned(), Vec::new())));
    coordinator.round().await.unwrap();
    assert_eq!(queued.taken.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn stopping_replicas_hand_over_keys_and_idle_shards() {
    let (mut coordinator, fake, _) = holding_all().await;
    let claim = coordinator.slots.enter(&key_of(1)).unwrap();
    coordinator.stopping = true;
    coordinator.round().await.unwrap();
    assert_eq!(fake.lease("member-a"), Some((String::new(), Vec::new())), "not counted");
    coordinator.drained = coordinator.drain(Instant::now() + Duration::from_secs(2), true).await;
    coordinator.round().await.unwrap();
    let holder = |shard| fake.lease(shard).unwrap().0;
    assert_eq!((holder("shard-0"), holder("shard-1")), (String::new(), "a".to_owned()));
    // What it hears then is for the next holder of the shard.
    coordinator.slots.depart(&key_of(0));
    for lease in &mut fake.0.lock().leases {
        if lease["metadata"]["name"] == "it.pet-shard-0" {
            lease["spec"]["holderIdentity"] = json!("b");
        }
    }
    coordinator.round().await.unwrap();
    coordinator.round().await.unwrap();
    assert_eq!(fake.lease("member-a"), Some((String::new(), names(&[&key_of(0)]))));
    drop(claim);
    assert_eq!(coordinator.drain(Instant::now(), true).await, [1].into());
}
