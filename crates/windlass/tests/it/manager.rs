//! The manager: probes, metrics, order, stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use windlass::controller::from_key_fn;
use windlass::events::Recorder;
use windlass::lease::{Elector, Fence, LeaderElection};
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

pub async fn fetch(address: SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("connected");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("received");
    answer
}

#[tokio::test]
async fn probes_and_metrics_are_served() {
    let bench = Bench::start().await;
    let mut manager =
        Manager::builder(bench.kube.clone()).probes("127.0.0.1:0").metrics("127.0.0.1:0").build().expect("built");
    let done = from_key_fn(|_, _| async { Ok(Outcome::Done) });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(done)).expect("added");
    let (probes, metrics) = (manager.probes_address(), manager.metrics_address());
    let (probes, metrics) = (probes.expect("bound"), metrics.expect("bound"));
    let running = Running::ready(manager).await;
    assert!(fetch(probes, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(fetch(probes, "/healthz").await.ends_with("ok"));
    assert!(fetch(probes, "/readyz?verbose").await.contains("[+]caches ok"));
    bench.create(&pet("thor")).await;
    wait_for("metrics", async || {
        let text = fetch(metrics, "/metrics").await;
        text.contains("controller_runtime_reconcile_total{controller=\"pet\",result=\"success\"} 1")
            && text.contains("rest_client_requests_total{code=\"200\",host=\"\",method=\"GET\"}")
            && text.contains("workqueue_depth{name=\"pet\",controller=\"pet\",priority=\"0\"} 0")
            && text.contains("controller_runtime_max_concurrent_reconciles{controller=\"pet\"} 1")
    })
    .await;
    running.stop().await.expect("stopped");
    assert!(tokio::net::TcpStream::connect(probes).await.is_err(), "closed");
}

#[tokio::test]
async fn a_controller_that_panics_again_and_again_shows_in_readyz() {
    let bench = Bench::start().await;
    let mut manager = Manager::builder(bench.kube.clone()).name("it").probes("127.0.0.1:0").build().expect("a manager");
    let broken = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&broken);
    let reconciler = from_key_fn(move |_: ObjectKey, _: Context| {
        let broken = switch.load(Ordering::Relaxed);
        async move {
            assert!(!broken, "index out of bounds\nand more");
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let (probes, registry) = (manager.probes_address().expect("bound"), manager.registry().clone());
    let checks = manager.ready_checks();
    let [check] = &checks[..] else { panic!("{checks:?}") };
    assert_eq!(check.name(), "controller/pet");
    let running = Running::ready(manager).await;
    assert!(fetch(probes, "/readyz?verbose").await.contains("[+]controller/pet ok\n"));
    let gauge = |keys: u32| format!("windlass_repeatedly_panicking_keys{{controller=\"pet\"}} {keys}\n");
    wait_for("the gauge", async || registry.encode().contains(&gauge(0))).await;
    bench.create(&pet("thor")).await;
    wait_for("three panics", async || check.run().is_err()).await;
    let reason = check.run().expect_err("still failing");
    assert!(reason.starts_with("default/thor panicked ") && reason.ends_with(": index out of bounds"), "{reason}");
    let answer = fetch(probes, "/readyz?verbose").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let line = "[-]controller/pet failed: reason withheld (does not affect readiness)\n";
    assert!(answer.contains(line), "{answer}");
    assert!(fetch(probes, "/readyz/controller/pet").await.starts_with("HTTP/1.1 500"));
    assert!(fetch(probes, "/healthz").await.starts_with("HTTP/1.1 200"), "a restart would not help");
    assert!(registry.encode().contains(&gauge(1)));

    broken.store(false, Ordering::Relaxed);
    let patch = Patch::Merge(json!({"spec": {"tricks": ["recover"]}}));
    bench.pets().patch("thor", &PatchParams::default(), &patch).await.expect("patched");
    wait_for("the recovery", async || check.run().is_ok()).await;
    assert!(fetch(probes, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(registry.encode().contains(&gauge(0)));
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn stopping_lets_a_reconcile_finish() {
    let bench = Bench::start().await;
    let log: Log<&str> = Log::default();
    let seen = log.clone();
    let mut manager = bench.manager();
    manager
        .add(Controller::<Pet>::new("pet").complete_keyed(from_key_fn(move |_: ObjectKey, ctx: Context| {
            let seen = seen.clone();
            async move {
                seen.push("begin");
                ctx.shutdown().cancelled().await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                seen.push("end");
                Ok(Outcome::Done)
            }
        })))
        .expect("added");
    let running = Running::start(manager);
    bench.create(&pet("thor")).await;
    wait_for("begun", async || log.contains(&"begin")).await;
    running.stop().await.expect("stopped");
    assert_eq!(log.entries(), ["begin", "end"]);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_finish_is_aborted() {
    let bench = Bench::start().await;
    let log: Log<&str> = Log::default();
    let seen = log.clone();
    let mut manager =
        Manager::builder(bench.kube.clone()).graceful_shutdown(Duration::from_millis(50)).build().expect("built");
    manager
        .add(Controller::<Pet>::new("pet").complete_keyed(from_key_fn(move |_, _| {
            seen.push("begin");
            async { std::future::pending().await }
        })))
        .expect("added");
    let running = Running::start(manager);
    bench.create(&pet("thor")).await;
    wait_for("begun", async || log.contains(&"begin")).await;
    let error = running.stop().await.expect_err("not in time");
    assert!(matches!(error, ManagerError::ShutdownTimeout { .. }), "{error}");
    assert_eq!(error.to_string(), "pet: not stopped within 50ms, aborted");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_stops_the_manager() {
    let bench = Bench::start().await;
    let mut manager = bench.manager();
    manager
        .add_task("good", |shutdown: CancellationToken| async move {
            shutdown.cancelled().await;
            Ok::<_, String>(())
        })
        .expect("added");
    manager.add_task("bad", |_| async { Err("scripted") }).expect("added");
    assert!(matches!(manager.add_task("bad", |_| async { Err("again") }), Err(ManagerError::DuplicateName { .. })));
    let error = Running::start(manager).ended().await.expect_err("failed").to_string();
    assert_eq!(error, "task \"bad\": scripted");
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address").to_string();
    let bench = Bench::start().await;
    let error = Manager::builder(bench.kube.clone()).probes(&address).build();
    let error = error.expect_err("taken").to_string();
    assert!(error.contains(&address) && error.contains("probes"), "{error}");
}

/// A client that notes which kinds are listed.
fn noting_lists(bench: &Bench, listed: &Log<String>) -> kube::Client {
    let (service, listed) = (bench.server.service(), listed.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let kind = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let (service, listed) = (service.clone(), listed.clone());
        async move {
            let response = service.oneshot(request).await;
            listed.push(kind);
            response
        }
    });
    kube::Client::new(service, "default")
}

/// Waits for its token, then says that it was told, and after a while that it stops: what is told in the
/// meantime would be seen in between.
async fn stops(log: &Log<&'static str>, shutdown: &CancellationToken, [told, stopped]: [&'static str; 2]) {
    shutdown.cancelled().await;
    log.push(told);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    log.push(stopped);
}

/// Everything an operator runs: webhooks before caches, tasks of every replica before the election, the
/// leader's part after it, with its cache already warm.
#[tokio::test]
async fn things_start_in_order_and_stop_in_reverse() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let mut map = ConfigMap::default();
    map.metadata.name = Some("chip".into());
    let maps: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "default");
    maps.create(&PostParams::default(), &map).await.expect("created");
    let other = LeaderElection::new("lock").identity("other");
    let mut elector = Elector::new(bench.kube.clone(), other, Fence::closed(), Recorder::discard());
    elector.acquire().await;

    let (log, listed) = (Log::<&str>::default(), Log::default());
    let election = LeaderElection::new("lock").retry_period(Duration::from_millis(5));
    let builder = Manager::builder(noting_lists(&bench, &listed)).name("it").leader_election(election);
    let mut manager = builder.probes("127.0.0.1:0").build().expect("built");
    let certificates = crate::webhook::certificates(crate::webhook::settings());
    manager.add_webhooks(crate::webhook::webhooks(&crate::webhook::Rules::default(), certificates)).expect("added");
    let probes = manager.probes_address().expect("bound");
    let (lister, seen) = (manager.lister::<Pet>(), log.clone());
    let task = move |shutdown: CancellationToken| async move {
        assert_eq!(lister.len(), 1, "caches are complete");
        assert!(fetch(probes, "/readyz?verbose").await.contains("[+]webhooks ok"));
        seen.push("task");
        stops(&seen, &shutdown, ["task told", "task stops"]).await;
        assert!(fetch(probes, "/readyz?verbose").await.contains("[+]webhooks ok"), "still there");
        Ok::<_, String>(())
    };
    manager.add_task("task", task).expect("added");
    let seen = log.clone();
    let of_everybody = from_key_fn(move |_: ObjectKey, ctx: Context| {
        let seen = seen.clone();
        async move {
            seen.push("everybody's reconcile");
            stops(&seen, ctx.shutdown(), ["everybody's told", "everybody's stops"]).await;
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<Pet>::new("all").needs_leader(false).complete_keyed(of_everybody)).expect("added");
    let seen = log.clone();
    // The leader's alone: no other replica has its kind listed.
    let of_leader = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let seen = seen.clone();
        async move {
            assert!(ctx.get::<ConfigMap>(&key).await?.is_some(), "warm");
            seen.push("leader's reconcile");
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<ConfigMap>::new("leader").complete_keyed(of_leader)).expect("added");
    let seen = log.clone();
    let leading = move |client: windlass::CachedClient, shutdown: CancellationToken| {
        let seen = seen.clone();
        async move {
            let patch = Patch::Merge(json!({"spec": {"tricks": ["lead"]}}));
            client.patch::<Pet>(&ObjectKey::new("default", "thor"), &patch).await?;
            seen.push("leader's task");
            stops(&seen, &shutdown, ["leader's told", "leader's stops"]).await;
            Ok::<_, windlass::client::ClientError>(())
        }
    };
    manager.add_leader_task("leading", leading).expect("added");
    let again = manager.add_leader_task("task", |_, _| async { Ok::<_, String>(()) });
    assert!(matches!(again, Err(ManagerError::DuplicateName { .. })));

    let running = Running::ready(manager).await;
    assert!(listed.contains(&"configmaps".to_owned()), "warm before it leads: {:?}", listed.entries());
    wait_for("the part of every replica", async || log.contains(&"task") && log.contains(&"everybody's reconcile"))
        .await;
    assert!(!log.entries().iter().any(|entry| entry.starts_with("leader")), "{:?}", log.entries());
    elector.release().await;
    wait_for("the leader's part", async || log.contains(&"leader's task") && log.contains(&"leader's reconcile")).await;
    let (started, leases) = (log.len(), Api::<Lease>::namespaced(bench.kube.clone(), "default"));
    running.stop().await.expect("stopped");
    let order = ["leader's told", "leader's stops", "everybody's told", "everybody's stops", "task told", "task stops"];
    assert_eq!(log.entries().split_off(started), order);
    let lease = leases.get("lock").await.expect("there").spec.expect("a spec");
    assert_eq!(lease.holder_identity.as_deref(), Some(""), "given back once everything had stopped");
    assert!(tokio::net::TcpStream::connect(probes).await.is_err(), "closed");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_late_gives_the_lease_back() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let log: Log<&str> = Log::default();
    let builder = Manager::builder(bench.kube.clone()).leader_election(LeaderElection::new("lock"));
    let mut manager = builder.build().expect("built");
    let seen = log.clone();
    let stuck = from_key_fn(move |_, _| {
        seen.push("begin");
        async { std::future::pending().await }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(stuck)).expect("added");
    let running = Running::start(manager);
    wait_for("begun", async || log.contains(&"begin")).await;
    let told = tokio::time::Instant::now();
    let error = running.stop().await.expect_err("not in time");
    assert!(matches!(error, ManagerError::ShutdownTimeout { .. }), "{error}");
    assert_eq!(error.to_string(), "pet: not stopped within 30s, aborted");
    let took = told.elapsed();
    assert!((30..32).contains(&took.as_secs()), "half a minute, unless said otherwise: {took:?}");
    let lease = Api::<Lease>::namespaced(bench.kube.clone(), "default").get("lock").await.expect("there");
    assert_eq!(lease.spec.expect("a spec").holder_identity.as_deref(), Some(""), "given back");
}

#[tokio::test(start_paused = true)]
async fn a_leader_task_that_ends_stops_the_manager() {
    let bench = Bench::start().await;
    let mut manager = bench.manager();
    manager.add_leader_task("short", |_, _| async { Ok::<_, String>(()) }).expect("added");
    let error = Running::start(manager).ended().await.expect_err("failed").to_string();
    assert_eq!(error, "task \"short\": ended before the manager stopped");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_is_named() {
    let bench = Bench::start().await;
    let end = |stopped: Result<(), ManagerError>| stopped.expect_err("the task panicked").to_string();
    let mut manager = bench.manager();
    manager.add_task("report", |_| async { panic!("no paper") as Result<(), String> }).expect("added");
    assert_eq!(end(Running::start(manager).ended().await), "task \"report\": panicked: no paper");
    let mut manager = bench.manager();
    let task = |_, _| -> std::future::Ready<Result<(), String>> { panic!("no ink") };
    manager.add_leader_task("print", task).expect("added");
    assert_eq!(end(Running::start(manager).ended().await), "task \"print\": panicked: no ink");
}

/// Their own end of the stop comes last, or at the same moment as the manager's: neither is too early.
#[tokio::test(start_paused = true)]
async fn tasks_that_end_during_the_stop_are_no_failure() {
    let bench = Bench::start().await;
    let (told, log) = (CancellationToken::new(), Log::default());
    let signal = CancellationToken::new();
    let mut manager = bench.manager();
    for (name, until) in [("callers", told.clone()), ("signal", signal.clone())] {
        let (leaders, of_leader) = (until.clone(), log.clone());
        let task = async move |_: CancellationToken| {
            until.cancelled().await;
            Ok::<_, String>(())
        };
        manager.add_task(name, task).expect("added");
        let leading = move |_, _: CancellationToken| {
            let (until, log) = (leaders.clone(), of_leader.clone());
            async move {
                log.push("leads");
                until.cancelled().await;
                Ok::<_, String>(())
            }
        };
        manager.add_leader_task(&format!("leader's {name}"), leading).expect("added");
    }
    // What the others are not waited for by.
    let slow = |_, shutdown: CancellationToken| async move {
        shutdown.cancelled().await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok::<_, String>(())
    };
    manager.add_leader_task("slow", slow).expect("added");
    let running = tokio::spawn(manager.run_until(told.clone()));
    wait_for("the leader's part", async || log.len() == 2).await;
    // One signal, and who hears it first is anybody's guess.
    signal.cancel();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    told.cancel();
    running.await.expect("no panic").expect("stopped well");
}

/// Frees a thread that is in blocking code when it is dropped.
struct Frees(std::sync::mpsc::Sender<()>);

impl Drop for Frees {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Without a leader to be elected what was aborted was once not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_aborted_is_gone_when_the_manager_has_ended() {
    for needs_leader in [true, false] {
        let bench = Bench::start().await;
        bench.create(&pet("thor")).await;
        let log: Log<&str> = Log::default();
        let builder = Manager::builder(bench.kube.clone()).graceful_shutdown(Duration::from_millis(50));
        let mut manager = builder.build().expect("built");
        let (free, freed) = std::sync::mpsc::channel();
        let freed = std::sync::Arc::new(std::sync::Mutex::new(freed));
        let seen = log.clone();
        let blocked = from_key_fn(move |_, _| {
            seen.push("begin");
            let _ = freed.lock().expect("not poisoned").recv();
            // The others may get ahead, but not by the second that is waited.
            for _ in 0..20 {
                std::thread::yield_now();
            }
            seen.push("end");
            std::future::pending()
        });
        let controller = Controller::<Pet>::new("pet").needs_leader(needs_leader);
        manager.add(controller.complete_keyed(blocked)).expect("added");
        let (frees, ready) = (std::sync::Mutex::new(Some(Frees(free))), CancellationToken::new());
        let readied = ready.clone();
        let freeing = move |_, _| {
            let frees = frees.lock().expect("not poisoned").take();
            readied.cancel();
            async move {
                let _frees = frees;
                std::future::pending::<Result<(), String>>().await
            }
        };
        manager.add_leader_task("frees", freeing).expect("added");
        let running = Running::start(manager);
        ready.cancelled().await;
        wait_for("begun", async || log.contains(&"begin")).await;
        assert!(matches!(running.stop().await, Err(ManagerError::ShutdownTimeout { .. })));
        assert_eq!(log.entries(), ["begin", "end"]);
    }
}

/// "Never", as one may say it.
#[tokio::test(start_paused = true)]
async fn the_longest_durations_are_as_good_as_for_ever() {
    let bench = Bench::start().await;
    let mut manager = Manager::builder(bench.kube.clone())
        .name("it")
        .resync(Duration::MAX)
        .sync_timeout(Duration::MAX)
        .graceful_shutdown(Duration::MAX)
        .leader_election(LeaderElection::new("it"))
        .build()
        .expect("a manager");
    let seen = Log::default();
    let log = seen.clone();
    let controller = Controller::<Pet>::new("pets").reconcile_timeout(Duration::MAX);
    let wake = controller.enqueuer();
    let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
        log.push(key.name().to_owned());
        async { Ok(Outcome::RequeueAfter(Duration::MAX)) }
    });
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    let registry = manager.registry().clone();
    let running = Running::ready(manager).await;
    for name in ["rex", "tom"] {
        bench.create(&pet(name)).await;
        wait_for("reconciled", async || seen.contains(&name.to_owned())).await;
        assert!(wake.enqueue_after(ObjectKey::new("default", name), Duration::MAX));
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(seen.len(), 2, "not again");
    let metrics = registry.encode();
    assert!(metrics.contains("windlass_cache_panics_total{kind=\"pets.petstore.example.com/v1\"} 0"), "{metrics}");
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn names_that_cannot_be_used_are_refused_at_once() {
    let bench = Bench::start().await;
    let built = |name: &str| Manager::builder(bench.kube.clone()).name(name).build();
    let long = "m".repeat(129);
    for name in ["", &long, "a\nb", "a\u{a0}b"] {
        let error = built(name).expect_err(name).to_string();
        assert!(error.contains(&format!("{name:?}")) && error.contains("1 to 128 printable"), "{error}");
    }
    let mut manager = built(&long[1..]).expect("long enough");
    let nothing = || from_key_fn(|_: ObjectKey, _: Context| async { Ok(Outcome::Done) });
    let error = manager.add(Controller::<Pet>::new("").complete_keyed(nothing())).expect_err("no name").to_string();
    assert!(error.contains("name of a controller \"\""), "{error}");
    manager.add(Controller::<Pet>::new("pets").complete_keyed(nothing())).expect("a name");
    let election = LeaderElection::new("A b");
    let error =
        Manager::builder(bench.kube.clone()).leader_election(election).build().expect_err("no lease").to_string();
    assert!(error.starts_with("name \"A b\" "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_stop_is_named() {
    let bench = Bench::start().await;
    let builder = Manager::builder(bench.kube.clone()).graceful_shutdown(Duration::from_secs(1));
    let mut manager = builder.build().expect("built");
    let idle = || from_key_fn(|_: ObjectKey, _: Context| async { Ok(Outcome::Done) });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(idle())).expect("added");
    let told = async |shutdown: CancellationToken| {
        shutdown.cancelled().await;
        Ok::<_, String>(())
    };
    manager.add_task("polite", told).expect("added");
    for name in ["stubborn", "deaf"] {
        manager.add_task(name, |_| std::future::pending::<Result<(), String>>()).expect("added");
    }
    let error = Running::ready(manager).await.stop().await.expect_err("not in time").to_string();
    assert_eq!(error, "stubborn, deaf: not stopped within 1s, aborted");

    let mut manager = bench.manager();
    manager.add_cluster("edge", bench.kube.clone()).expect("added");
    let error = manager.add_cluster("edge", bench.kube.clone()).expect_err("twice").to_string();
    assert_eq!(error, "a cluster named \"edge\" was added before");
}

#[tokio::test(start_paused = true)]
async fn failures_do_not_wait_for_ever_for_tasks() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let election = LeaderElection::new("it");
    let builder = Manager::builder(bench.kube.clone()).name("it").leader_election(election);
    let mut manager = builder.graceful_shutdown(Duration::from_secs(5)).build().expect("built");
    let begun = Arc::new(Notify::new());
    let told = Arc::clone(&begun);
    let stubborn = from_key_fn(move |_: ObjectKey, _: Context| {
        told.notify_one();
        std::future::pending::<windlass::Result>()
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(stubborn)).expect("added");
    let doomed = move |_, _| {
        let begun = Arc::clone(&begun);
        async move {
            begun.notified().await;
            Err("scripted")
        }
    };
    manager.add_leader_task("doomed", doomed).expect("added");
    let running = manager.run_until(CancellationToken::new());
    let ended = tokio::time::timeout(Duration::from_secs(60), running).await.expect("it ends");
    let error = ended.expect_err("it failed").to_string();
    assert!(error.contains("doomed") && error.contains("scripted"), "{error}");
}
