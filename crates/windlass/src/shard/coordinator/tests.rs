#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::lease::Sent;

/// Notes which shards are to be put in the queue.
#[derive(Clone, Default)]
struct Taken(Arc<Mutex<Vec<u32>>>);

impl Keys for Taken {
    fn taken(&self, shards: &BTreeSet<u32>) {
        self.0.lock().extend(shards);
    }
    fn left(&self, _: BTreeSet<ObjectKey>) {}
    fn pending(&self, _: &BTreeSet<u32>) -> BTreeSet<ObjectKey> {
        BTreeSet::new()
    }
    fn known(&self, _: &BTreeSet<u32>) -> BTreeSet<ObjectKey> {
        BTreeSet::new()
    }
}

/// A server that lists what it is told, refuses what it is told, takes every other write for good, and
/// how long it takes to list.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Served>>);

#[derive(Default)]
struct Served {
    leases: Vec<Value>,
    refuses: bool,
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
        let takes = self.0.lock().takes;
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
            served.writes.push((parts.method, name, body.clone()));
            if served.refuses { (409, failure(409)) } else { (200, body) }
        };
        Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap()
    }

    fn written(&self) -> Vec<(Method, String)> {
        self.0.lock().writes.iter().map(|(method, name, _)| (method.clone(), name.clone())).collect()
    }
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
fn replica() -> (Coordinator, Fake, Taken) {
    let (fake, taken) = (Fake::default(), Taken::default());
    let sharding = Sharding { identity: "a".to_owned(), ..Sharding::new(2) };
    let (names, slots, keys) = (("it", "pet"), Slots::new(2), Box::new(taken.clone()));
    let coordinator = Coordinator::new(fake.client(), names, sharding, slots, keys, Recorder::discard());
    (coordinator, fake, taken)
}

fn take(shard: u32) -> Answer {
    Answer::Taken(shard, Sent::now(), Vec::new(), Ok(LeaseSpec::default()))
}

fn renewed(shard: u32) -> Answer {
    Answer::Renewed(shard, Sent::now(), Ok(LeaseSpec::default()))
}

#[tokio::test(start_paused = true)]
async fn a_renewal_after_the_wall_clock_was_set_is_too_late() {
    let (mut coordinator, _, taken) = replica();
    coordinator.settle(vec![take(0), take(1)]);
    coordinator.slots.slot(1).fence.jump();
    coordinator.settle(vec![renewed(0), renewed(1)]);
    coordinator.settle(vec![renewed(0), renewed(1)]);
    assert_eq!((coordinator.held.clone(), coordinator.slots.held()), ([0].into(), 1));
    coordinator.settle(vec![take(1)]);
    assert_eq!(*taken.0.lock(), [0, 1, 1], "it starts over when it is taken again");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_opens_no_shard_that_was_closed_since_it_was_sent() {
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
async fn a_shard_that_has_run_out_is_not_renewed_under_another_number() {
    let (mut coordinator, fake, _) = replica();
    coordinator.settle(vec![take(0), take(1)]);
    {
        let mut served = fake.0.lock();
        served.leases = vec![
            lease("member", "member-a", "a", 2),
            lease("shard", "shard-0", "a", 2),
            lease("shard", "shard-1", "a", 2),
            lease("number", "shards", "", 3),
            lease("member", "member-b", "b", 3),
            lease("shard", "shard-0", "b", 3),
        ];
        served.leases[5]["metadata"]["name"] = json!("it.pet-shard-2");
        served.takes = Duration::from_secs(11);
    }
    coordinator.round().await.unwrap();
    assert_eq!((coordinator.held.len(), coordinator.slots.held()), (0, 0));
    assert_eq!(fake.written(), [(Method::PUT, "it.pet-member-a".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_drained_shard_waits_for_its_turn_while_rounds_fail() {
    let (mut coordinator, ..) = replica();
    coordinator.settle(vec![take(0)]);
    coordinator.slots.slot(0).drain();
    coordinator.draining.insert(0);
    let (start, next) = (Instant::now(), Instant::now() + Duration::from_secs(2));
    assert_eq!(coordinator.drain(next, true).await, [0].into());
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(coordinator.drain(next, false).await.is_empty());
    assert_eq!(start.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_shard_that_ran_out_right_before_the_end_are_left() {
    let (mut coordinator, fake, _) = replica();
    coordinator.settle(vec![take(0), take(1)]);
    tokio::time::advance(Duration::from_secs(11)).await;
    let key = ObjectKey::new("default", "thor");
    assert!(coordinator.slots.enter(&key).is_none() && !coordinator.slots.refuse(&key));
    let over = CancellationToken::new();
    over.cancel();
    coordinator.run(over.clone(), over).await;
    let (_, name, lease) = fake.0.lock().writes.last().unwrap().clone();
    assert_eq!(name, "it.pet-member-a");
    assert_eq!(lease["metadata"]["annotations"]["windlass.dev/left-keys"], r#"["default/thor"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_replica_joins_at_once_though_its_former_lease_was_deleted_meanwhile() {
    let (mut coordinator, fake, _) = replica();
    fake.0.lock().leases = vec![lease("member", "member-a", "", 2)];
    fake.0.lock().refuses = true;
    coordinator.round().await.unwrap_err();
    fake.0.lock().leases.clear();
    fake.0.lock().refuses = false;
    coordinator.round().await.unwrap();
    let own = "it.pet-member-a".to_owned();
    assert_eq!(fake.written()[..2], [(Method::PUT, own.clone()), (Method::POST, own)]);
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_lease_another_has_takes_nothing() {
    let (mut coordinator, fake, taken) = replica();
    fake.0.lock().leases = vec![lease("member", "member-a", "z", 2)];
    coordinator.round().await.unwrap();
    assert!(taken.0.lock().is_empty());
    assert!(!fake.written().iter().any(|(_, name)| name.contains("member-a")), "{:?}", fake.written());
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_stops_is_not_counted_and_gives_back_what_is_idle() {
    let (mut coordinator, fake, _) = replica();
    coordinator.settle(vec![take(0), take(1)]);
    fake.0.lock().leases = vec![
        lease("member", "member-a", "a", 2),
        lease("shard", "shard-0", "a", 2),
        lease("shard", "shard-1", "a", 2),
        lease("number", "shards", "", 2),
    ];
    let busy =
        (0..100).map(|n| ObjectKey::cluster(format!("pet-{n}"))).find(|key| coordinator.slots.shard_of(key) == 1);
    let claim = coordinator.slots.enter(&busy.unwrap()).unwrap();
    coordinator.stopping = true;
    coordinator.round().await.unwrap();
    coordinator.drained = coordinator.drain(Instant::now() + Duration::from_secs(2), true).await;
    fake.0.lock().leases[0]["spec"]["holderIdentity"] = json!("");
    fake.0.lock().writes.clear();
    coordinator.round().await.unwrap();
    let holders: Vec<_> =
        fake.0.lock().writes.iter().map(|(_, name, lease)| (name.clone(), holder_of(lease))).collect();
    let expected = [("it.pet-shard-1", "a"), ("it.pet-shard-0", "")];
    assert_eq!(holders, expected.map(|(name, holder)| (name.to_owned(), holder.to_owned())));
    drop(claim);
    assert_eq!(coordinator.drain(Instant::now(), true).await, [1].into());
}

fn holder_of(lease: &Value) -> String {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}
