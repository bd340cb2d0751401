//! Leader election: one replica works, and a replica that lost its lease writes nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use tower::ServiceExt;
use windlass::controller::from_fn;
use windlass::events::Recorder;
use windlass::lease::{Elector, Fence, FenceClosed, LeaderElection};
use windlass::{Client, Context, Controller, Manager, ObjectKey, Outcome};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

fn quick(identity: &str) -> LeaderElection {
    LeaderElection {
        identity: identity.to_owned(),
        lease_duration: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(600),
        retry_period: Duration::from_millis(50),
        ..LeaderElection::new("default", "lock")
    }
}

/// A client whose requests hang while it is cut off.
pub fn switchable(bench: &Bench, cut: &Arc<AtomicBool>) -> kube::Client {
    let (service, cut) = (bench.server.service(), Arc::clone(cut));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, cut) = (service.clone(), Arc::clone(&cut));
        async move {
            while cut.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let Ok(response) = service.oneshot(request).await;
            Ok::<_, Infallible>(response)
        }
    });
    kube::Client::new(service, "default")
}

async fn holder(bench: &Bench) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(bench.kube.clone(), "default");
    let lease = leases.get_opt("lock").await.expect("read")?;
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

fn replica(client: kube::Client, identity: &'static str, log: &Log<&'static str>) -> Manager {
    let log = log.clone();
    let builder = Manager::builder(client).name(identity).leader_election(quick(identity));
    let mut manager = builder.build().expect("built");
    let reconciler = from_fn(move |_: ObjectKey, _: Context| {
        log.push(identity);
        async { Ok(Outcome::RequeueAfter(Duration::from_millis(10))) }
    });
    manager.add(Controller::<Pet>::new("pet").complete(reconciler)).expect("added");
    manager
}

#[tokio::test]
async fn settings_that_cannot_work_fail_the_build() {
    let bench = Bench::start().await;
    let hasty = LeaderElection { renew_deadline: Duration::from_secs(2), ..quick("a") };
    let error = Manager::builder(bench.kube.clone()).leader_election(hasty).build().expect_err("refused").to_string();
    assert_eq!(error, "renew_deadline of 2s is not shorter than lease_duration, 1s in whole seconds");
}

#[tokio::test(start_paused = true)]
async fn one_replica_works_and_hands_over_when_it_stops() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let log = Log::default();
    let first = Running::start(replica(bench.kube.clone(), "a", &log));
    wait_for("a leads", async || log.contains(&"a")).await;
    let second = Running::start(replica(bench.kube.clone(), "b", &log));
    let before = log.len();
    wait_for("a goes on", async || log.len() > before + 5).await;
    assert!(!log.contains(&"b"));
    first.stop().await.expect("stopped");
    let stopped_at = log.len();
    wait_for("b leads", async || log.contains(&"b")).await;
    assert!(!log.entries()[stopped_at..].contains(&"a"));
    assert_eq!(holder(&bench).await.as_deref(), Some("b"));
    second.stop().await.expect("stopped");
    assert_eq!(holder(&bench).await, None, "released");
}

#[tokio::test(start_paused = true)]
async fn a_replica_cut_off_steps_down_and_rejoins() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let (log, cut) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let first = Running::start(replica(switchable(&bench, &cut), "a", &log));
    wait_for("a leads", async || log.contains(&"a")).await;
    let second = Running::start(replica(bench.kube.clone(), "b", &log));
    cut.store(true, Ordering::Relaxed);
    wait_for("b leads", async || log.contains(&"b")).await;
    let handover = log.len();
    cut.store(false, Ordering::Relaxed);
    wait_for("b goes on", async || log.len() > handover + 10).await;
    assert!(!log.entries()[handover..].contains(&"a"), "a does not work without the lease");
    second.stop().await.expect("stopped");
    let before = log.len();
    wait_for("a leads again, in the same process", async || log.entries()[before..].contains(&"a")).await;
    first.stop().await.expect("stopped");
}

#[tokio::test]
async fn a_leader_that_was_stopped_and_wakes_up_writes_nothing() {
    let bench = Bench::start().await;
    let fence = Fence::closed();
    let mut elector = Elector::new(bench.kube.clone(), quick("a"), fence.clone(), Recorder::discard());
    let client = Client::standalone(fence.guard(bench.kube.clone()), "a");
    let map = |name: &str| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.into());
        map.metadata.namespace = Some("default".into());
        map
    };
    let refused = client.create(&map("early")).await.expect_err("not the leader yet");
    let mut cause = std::error::Error::source(&refused);
    let mut causes = Vec::new();
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    assert!(causes.iter().any(|text| text.contains(&FenceClosed.to_string())), "{causes:?}");
    elector.acquire().await;
    client.create(&map("leading")).await.expect("leading");
    // Nobody renews: as if the process had been stopped. No timer has to fire for the fence to hold.
    wait_for("the lease runs out", async || !fence.is_open()).await;
    client.create(&map("late")).await.expect_err("the lease may be another's");
    assert!(client.live().get::<ConfigMap>(&ObjectKey::new("default", "late")).await.expect("reads pass").is_none());
    elector.acquire().await;
    client.create(&map("again")).await.expect("leading again");
    client.caches().stop().await;
}
