//! Leader election: one replica works, and a replica that lost its lease writes nothing.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use windlass::client::ClientError;
use windlass::config::Loader;
use windlass::controller::from_key_fn;
use windlass::events::Recorder;
use windlass::lease::{Elector, Fence, FenceClosed, LeaderElection};
use windlass::{CachedClient, Context, Controller, Manager, ObjectKey, Outcome};
use windlass_server::Server;
use windlass_server::authn::User;
use windlass_server::pki::Authority;

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for, write_kubeconfig};

fn quick(identity: &str) -> LeaderElection {
    LeaderElection::new("lock")
        .identity(identity)
        .lease_duration(Duration::from_secs(1))
        .renew_deadline(Duration::from_millis(600))
        .retry_period(Duration::from_millis(50))
}

/// The same where time costs nothing, and no machine is too slow for it: the wall clock is not paused.
fn patient(identity: &str) -> LeaderElection {
    quick(identity)
        .lease_duration(Duration::from_secs(12))
        .renew_deadline(Duration::from_secs(8))
        .retry_period(Duration::from_millis(500))
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

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.into());
    map.metadata.namespace = Some("default".into());
    map
}

async fn holder(bench: &Bench) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(bench.kube.clone(), "default");
    let lease = leases.get_opt("lock").await.expect("read")?;
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

fn replica(client: kube::Client, identity: &'static str, log: &Log<&'static str>) -> Manager {
    let log = log.clone();
    let builder = Manager::builder(client).name(identity).leader_election(patient(identity));
    let mut manager = builder.build().expect("built");
    let reconciler = from_key_fn(move |_: ObjectKey, _: Context| {
        log.push(identity);
        async { Ok(Outcome::RequeueAfter(Duration::from_millis(10))) }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    manager
}

#[tokio::test]
async fn settings_that_cannot_work_fail_the_build() {
    let bench = Bench::start().await;
    let hasty = quick("a").renew_deadline(Duration::from_secs(2));
    let error = Manager::builder(bench.kube.clone()).leader_election(hasty).build().expect_err("refused").to_string();
    assert_eq!(error, "renew_deadline of 2s is not shorter than lease_duration, 1s in whole seconds");
}

#[tokio::test]
async fn last_events_are_written_before_the_lease_is_released() {
    let bench = Bench::start().await;
    let builder = Manager::builder(bench.kube.clone()).leader_election(patient("a"));
    let mut manager = builder.build().expect("built");
    let (begun, told) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, tells) = (Arc::clone(&begun), Arc::clone(&told));
    let reconciler = from_key_fn(move |_: ObjectKey, ctx: Context| {
        let (begins, tells) = (Arc::clone(&begins), Arc::clone(&tells));
        async move {
            begins.notify_one();
            // Until after the manager was told to stop.
            tells.notified().await;
            for n in 0..20 {
                ctx.recorder().normal(&pet("thor"), "Last", format!("words, {n}"));
            }
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let running = Running::start(manager);
    bench.create(&pet("thor")).await;
    begun.notified().await;
    let stopped = tokio::spawn(running.stop());
    told.notify_one();
    stopped.await.expect("no panic").expect("stopped");
    let events: Api<Event> = Api::namespaced(bench.kube.clone(), "default");
    let events = events.list(&ListParams::default()).await.expect("listed");
    let last = events.items.iter().filter(|event| event.reason.as_deref() == Some("Last")).count();
    assert!(last >= 10, "more than ten of a kind are combined; {last} written");
    assert_eq!(holder(&bench).await, None);
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

/// What a reconcile left to others: an event, and a write of a task of its own.
#[tokio::test(start_paused = true)]
async fn writes_of_a_cut_off_leader_are_never_sent() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let (log, cut) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let builder = Manager::builder(switchable(&bench, &cut)).name("a").leader_election(patient("a"));
    let mut manager = builder.build().expect("built");
    let (outcomes, is_cut) = (Log::default(), Arc::clone(&cut));
    let (told, begun) = (outcomes.clone(), AtomicBool::new(false));
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let begin = is_cut.load(Ordering::Relaxed) && !begun.swap(true, Ordering::Relaxed);
        let told = told.clone();
        async move {
            if begin {
                let thor = ctx.get::<Pet>(&key).await?.expect("there");
                ctx.recorder().normal(&*thor, "Late", "written by the old leader");
                let client = ctx.client().clone();
                tokio::spawn(async move { told.push(client.create(&map("detached")).await.is_ok()) });
            }
            Ok(Outcome::RequeueAfter(Duration::from_millis(10)))
        }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let first = Running::ready(manager).await;
    wait_for("a leads", async || holder(&bench).await.as_deref() == Some("a")).await;
    let second = Running::start(replica(bench.kube.clone(), "b", &log));
    cut.store(true, Ordering::Relaxed);
    wait_for("b leads", async || log.contains(&"b")).await;
    assert_eq!(outcomes.entries(), [false], "dropped with the lease");
    cut.store(false, Ordering::Relaxed);
    let events: Api<Event> = Api::namespaced(bench.kube.clone(), "default");
    let notes = async || -> Vec<String> {
        let events = events.list(&ListParams::default()).await.expect("listed").items;
        events.into_iter().filter_map(|event| event.note).collect()
    };
    // Events are written in order: this one was reported after.
    wait_for("a says that it stopped", async || notes().await.contains(&"a stopped leading".to_owned())).await;
    assert!(!notes().await.contains(&"written by the old leader".to_owned()));
    let maps: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "default");
    assert!(maps.get_opt("detached").await.expect("read").is_none());
    second.stop().await.expect("stopped");
    first.stop().await.expect("stopped");
}

/// A client for which leases are out of reach while it is cut off; everything else goes on.
fn without_leases(bench: &Bench, cut: &Arc<AtomicBool>) -> kube::Client {
    let (service, cut) = (bench.server.service(), Arc::clone(cut));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, cut) = (service.clone(), cut.load(Ordering::Relaxed));
        async move {
            if cut && request.uri().path().contains("/leases") {
                return Err("cut off".into());
            }
            let Ok(response) = service.oneshot(request).await;
            Ok::<_, tower::BoxError>(response)
        }
    });
    kube::Client::new(service, "default")
}

/// Whose deadline is between two attempts to renew.
fn uneven() -> LeaderElection {
    LeaderElection::new("lock").renew_deadline(Duration::from_secs(9))
}

#[tokio::test(start_paused = true)]
async fn writes_stopped_with_the_lease_keep_the_manager_running() {
    for client in [switchable, without_leases] {
        let bench = Bench::start().await;
        bench.create(&pet("thor")).await;
        let (terms, cut) = (Log::default(), Arc::new(AtomicBool::new(false)));
        let builder = Manager::builder(client(&bench, &cut)).name("a").leader_election(uneven());
        let mut manager = builder.build().expect("built");
        let begun = terms.clone();
        let writing = move |client: CachedClient, _| {
            begun.push(());
            async move {
                loop {
                    let patch = Patch::Merge(json!({"spec": {"tricks": ["lead"]}}));
                    client.patch::<Pet>(&ObjectKey::new("default", "thor"), &patch).await?;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        };
        let writing = move |client, shutdown| -> futures::future::BoxFuture<'static, Result<(), ClientError>> {
            Box::pin(writing(client, shutdown))
        };
        manager.add_leader_task("write", writing).expect("added");
        let registry = manager.registry().clone();
        let leads = |value: u32| {
            let line = format!("leader_election_master_status{{name=\"lock\"}} {value}\n");
            registry.encode().contains(&line)
        };
        let running = Running::start(manager);
        wait_for("a leads", async || terms.len() == 1).await;
        assert!(leads(1), "{}", registry.encode());
        cut.store(true, Ordering::Relaxed);
        wait_for("a steps down", async || leads(0)).await;
        cut.store(false, Ordering::Relaxed);
        wait_for("a leads again, in the same process", async || running.is_finished() || terms.len() == 2).await;
        assert!(leads(1), "{}", registry.encode());
        drop(running);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_leader_task_ends_the_manager() {
    let bench = Bench::start().await;
    let cut = Arc::new(AtomicBool::new(false));
    let builder = Manager::builder(without_leases(&bench, &cut)).name("a").leader_election(uneven());
    let mut manager = builder.build().expect("built");
    let cutting = Arc::clone(&cut);
    let bad = move |_, _| {
        let cutting = Arc::clone(&cutting);
        async move {
            cutting.store(true, Ordering::Relaxed);
            Err::<(), _>("scripted")
        }
    };
    manager.add_leader_task("bad", bad).expect("added");
    // It keeps the leader from stopping for longer than the lease is good.
    let slow = |_, _| async { std::future::pending::<Result<(), Infallible>>().await };
    manager.add_leader_task("slow", slow).expect("added");
    let ended = tokio::time::timeout(Duration::from_secs(25), Running::start(manager).ended()).await;
    assert_eq!(ended.expect("it ends").expect_err("failed").to_string(), "task \"bad\": scripted");
}

/// What was begun in one term and kept is no use in the next: another may have led in between.
#[tokio::test(start_paused = true)]
async fn clients_of_one_term_do_not_write_in_the_next() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let cut = Arc::new(AtomicBool::new(false));
    let builder = Manager::builder(without_leases(&bench, &cut)).name("a").leader_election(uneven());
    let mut manager = builder.build().expect("built");
    let contexts: Arc<Mutex<Vec<Context>>> = Arc::default();
    let clients: Arc<Mutex<Vec<CachedClient>>> = Arc::default();
    let (kept, len) = (Arc::clone(&contexts), |list: &Mutex<Vec<Context>>| list.lock().expect("not poisoned").len());
    let reconciler = from_key_fn(move |_: ObjectKey, ctx: Context| {
        kept.lock().expect("not poisoned").push(ctx);
        async { Ok(Outcome::Done) }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let kept = Arc::clone(&clients);
    let task = move |client: CachedClient, shutdown: CancellationToken| {
        kept.lock().expect("not poisoned").push(client);
        async move {
            shutdown.cancelled().await;
            Ok::<_, Infallible>(())
        }
    };
    manager.add_leader_task("task", task).expect("added");
    let running = Running::start(manager);
    wait_for("a leads", async || len(&contexts) == 1).await;
    cut.store(true, Ordering::Relaxed);
    wait_for("a steps down", async || contexts.lock().expect("not poisoned")[0].shutdown().is_cancelled()).await;
    cut.store(false, Ordering::Relaxed);
    wait_for("a leads again", async || len(&contexts) == 2).await;
    let contexts: Vec<Context> = contexts.lock().expect("not poisoned").clone();
    let clients: Vec<CachedClient> = clients.lock().expect("not poisoned").clone();
    for (term, (context, client)) in contexts.iter().zip(&clients).enumerate() {
        let name = format!("term-{term}");
        assert_eq!(context.client().create(&map(&name)).await.is_ok(), term == 1, "{name}");
        let name = format!("task-of-{name}");
        assert_eq!(client.create(&map(&name)).await.is_ok(), term == 1, "{name}");
        context.recorder().normal(&pet("thor"), "Term", name);
    }
    running.stop().await.expect("stopped");
    let events: Api<Event> = Api::namespaced(bench.kube.clone(), "default");
    let events = events.list(&ListParams::default()).await.expect("listed").items;
    let notes: Vec<_> = events.into_iter().filter(|event| event.reason.as_deref() == Some("Term")).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
}

/// A worker in blocking code hears nothing of the loss. The next term begins when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_begins_after_the_last_ones_workers() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let (log, cut) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let builder = Manager::builder(without_leases(&bench, &cut)).name("a").leader_election(quick("a"));
    let mut manager = builder.build().expect("built");
    let (seen, cutting) = (log.clone(), Arc::clone(&cut));
    let reconciler = from_key_fn(move |_: ObjectKey, ctx: Context| {
        if seen.contains(&"begin") {
            seen.push("again");
        } else {
            seen.push("begin");
            cutting.store(true, Ordering::Relaxed);
            let begun = std::time::Instant::now();
            while !ctx.shutdown().is_cancelled() && begun.elapsed() < Duration::from_secs(5) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            cutting.store(false, Ordering::Relaxed);
            // A term that did not wait for this worker would begin once the lease is reachable again.
            let reachable = std::time::Instant::now();
            while !seen.contains(&"again") && reachable.elapsed() < Duration::from_millis(500) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            seen.push("end");
        }
        async { Ok(Outcome::Done) }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let running = Running::start(manager);
    wait_for("the next term", async || log.contains(&"again")).await;
    running.stop().await.expect("stopped");
    assert!(log.entries().starts_with(&["begin", "end", "again"]), "{:?}", log.entries());
}

/// It once waited for ever, healthy and of no use to anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn work_that_outlasts_its_lease_is_an_error() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let cut = Arc::new(AtomicBool::new(false));
    let builder = Manager::builder(without_leases(&bench, &cut)).name("a").leader_election(quick("a"));
    let mut manager = builder.graceful_shutdown(Duration::from_millis(100)).build().expect("built");
    let (free, freed) = std::sync::mpsc::channel::<()>();
    let freed = Mutex::new(freed);
    let blocked = from_key_fn(move |_: ObjectKey, _: Context| {
        cut.store(true, Ordering::Relaxed);
        let _ = freed.lock().expect("not poisoned").recv();
        async { Ok(Outcome::Done) }
    });
    manager.add(Controller::<Pet>::new("stuck").complete_keyed(blocked)).expect("added");
    let idle = from_key_fn(|_: ObjectKey, _: Context| async { Ok(Outcome::Done) });
    manager.add(Controller::<Pet>::new("idle").complete_keyed(idle)).expect("added");
    let ended = tokio::time::timeout(Duration::from_secs(20), Running::start(manager).ended()).await;
    let error = ended.expect("it ends").expect_err("it cannot go on").to_string();
    drop(free);
    assert_eq!(error, "task \"stuck\": still running 1s after its term as leader");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_stopped_and_wakes_up_writes_nothing() {
    let bench = Bench::start().await;
    let fence = Fence::closed();
    // Times long enough for the test to write in, however busy the machine is: the wall clock is not paused.
    let election = LeaderElection::new("lock").identity("a");
    let mut elector = Elector::new(bench.kube.clone(), election, fence.clone(), Recorder::discard());
    let client = CachedClient::standalone(fence.guard(bench.kube.clone()), "a");
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
    // Nothing is renewed: as if the process had been stopped. No timer has to fire for the fence to hold.
    wait_for("the lease runs out", async || !fence.is_open()).await;
    client.create(&map("late")).await.expect_err("the lease may be another's");
    assert!(client.live().get::<ConfigMap>(&ObjectKey::new("default", "late")).await.expect("reads pass").is_none());
    elector.acquire().await;
    client.create(&map("again")).await.expect("leading again");
    client.caches().stop().await;
}

/// The network is cut: a connection is accepted, and its handshake is answered only after the lease is
/// lost.
#[tokio::test]
async fn writes_waiting_to_connect_end_with_the_lease() {
    let server = Server::builder().token("replica", User::admin()).start().await.expect("started");
    let authority = Authority::generate().expect("an authority");
    let listener = server.listen("127.0.0.1:0".parse().expect("an address"), &authority).await.expect("listening");
    let bench = Bench::of(server).await;
    let losses: [fn(&Fence); 2] = [Fence::close, |fence| fence.open_until(Instant::now() + Duration::from_millis(30))];
    for lose in losses {
        let cut = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let files = tempfile::tempdir().expect("a directory");
        let address = cut.local_addr().expect("an address");
        let kubeconfig = write_kubeconfig(files.path(), address, &authority, "replica");
        let kube = Loader::default().kubeconfig(kubeconfig).client().await.expect("a client");
        let fence = Fence::closed();
        let client = CachedClient::standalone(fence.guard(kube), "a");
        fence.open_until(Instant::now() + Duration::from_secs(60));
        let late = tokio::spawn({
            let client = client.clone();
            async move { client.create(&map("late")).await }
        });
        let (mut waiting, _) = cut.accept().await.expect("a connection");
        lose(&fence);
        let error = late.await.expect("no panic").expect_err("the lease is lost");
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(cause.contains(&FenceClosed.to_string()), "{cause}");
        // The network is back, for the connection that waits and for others.
        let upstream = listener.address();
        tokio::spawn(async move {
            loop {
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(upstream).await {
                        let _ = tokio::io::copy_bidirectional(&mut waiting, &mut server).await;
                    }
                });
                (waiting, _) = cut.accept().await.expect("a connection");
            }
        });
        fence.open_until(Instant::now() + Duration::from_secs(60));
        client.create(&map("after")).await.expect("leading again");
        let maps: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "default");
        assert!(maps.get_opt("late").await.expect("read").is_none());
        maps.delete("after", &kube::api::DeleteParams::default()).await.expect("deleted");
        client.caches().stop().await;
    }
    listener.stop().await;
}
