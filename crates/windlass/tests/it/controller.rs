//! Controllers: what wakes them, and what their outcomes lead to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PartialObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::Instant;
use tower::ServiceExt;
use windlass::controller::{SourceContext, from_key_fn};
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, ReconcileError, ReconcileKey, owner, predicate};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};
use crate::process::{Process, part};

/// A reconciler that only notes its keys.
fn noting(log: &Log<String>) -> impl ReconcileKey {
    let log = log.clone();
    from_key_fn(move |key: ObjectKey, _ctx| {
        log.push(key.to_string());
        async { Ok(Outcome::Done) }
    })
}

/// A ConfigMap that an object controls.
async fn create_owned<K: windlass::Object>(bench: &Bench, controller: &K)
where
    K::DynamicType: Default,
{
    let mut owned = ConfigMap::default();
    owned.metadata.name = Some("owned".into());
    owned.metadata.namespace = Some("default".into());
    owner::set_controller(&mut owned, controller).expect("owner");
    let maps: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "default");
    maps.create(&PostParams::default(), &owned).await.expect("created");
}

#[tokio::test(start_paused = true)]
async fn every_object_is_reconciled_and_every_end_is_seen() {
    let bench = Bench::start().await;
    bench.create(&pet("old")).await;
    let log: Log<(String, bool)> = Log::default();
    let seen = log.clone();
    let mut manager = bench.manager();
    manager
        .add(
            Controller::<Pet>::new("pet")
                // A predicate that accepts nothing: ends are seen all the same.
                .predicate(predicate::change(|_: &Pet, _| false))
                .complete_keyed(from_key_fn(move |key: ObjectKey, ctx: Context| {
                    let seen = seen.clone();
                    async move {
                        let there = ctx.get::<Pet>(&key).await?.is_some();
                        seen.push((key.name().to_owned(), there));
                        Ok(Outcome::Done)
                    }
                })),
        )
        .expect("added");
    let running = Running::start(manager);
    wait_for("the old one", async || log.contains(&("old".into(), true))).await;
    bench.create(&pet("new")).await;
    wait_for("the new one", async || log.contains(&("new".into(), true))).await;
    bench.pets().delete("new", &DeleteParams::default()).await.expect("deleted");
    wait_for("its end", async || log.contains(&("new".into(), false))).await;
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn owned_and_mapped_objects_wake_their_key() {
    let bench = Bench::start().await;
    let log: Log<String> = Log::default();
    let mut manager = bench.manager();
    manager
        .add(
            Controller::<Pet>::new("pet")
                .owns::<ConfigMap>()
                .watches_metadata::<Namespace, _, _>(|namespace, _| [ObjectKey::new("default", namespace.name_any())])
                .watches(|secret: &Secret, _| {
                    let target = secret.metadata.annotations.as_ref()?.get("pet")?;
                    Some(ObjectKey::new("default", target))
                })
                .complete_keyed(noting(&log)),
        )
        .expect("added");
    let running = Running::start(manager);
    let thor = bench.create(&pet("thor")).await;
    wait_for("the pet", async || log.contains(&"default/thor".into())).await;
    let before = log.len();

    create_owned(&bench, &thor).await;
    wait_for("the owner", async || log.len() > before).await;
    assert_eq!(log.entries().last().map(String::as_str), Some("default/thor"));

    wait_for("metadata", async || log.contains(&"default/kube-system".into())).await;

    let mut secret = Secret::default();
    secret.metadata.name = Some("chip".into());
    secret.metadata.annotations = Some([("pet".to_owned(), "tron".to_owned())].into());
    let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
    secrets.create(&PostParams::default(), &secret).await.expect("created");
    wait_for("the mapped key", async || log.contains(&"default/tron".into())).await;
    // After an update the old and the new target are woken.
    let patch = json!({"metadata": {"annotations": {"pet": "odin"}}});
    let before = log.len();
    secrets.patch("chip", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    wait_for("both", async || log.len() >= before + 2).await;
    let mut woken = log.entries()[before..].to_vec();
    woken.sort();
    assert_eq!(woken, ["default/odin", "default/tron"]);
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn a_stream_and_metadata_of_another_kind_wake_keys() {
    let bench = Bench::start().await;
    let log: Log<String> = Log::default();
    let mut manager = bench.manager();
    let outside = |_| futures::stream::iter([ObjectKey::new("default", "outside")]);
    manager
        .add(
            Controller::<Pet>::new("pet")
                .source(outside)
                .owns::<PartialObjectMeta<ConfigMap>>()
                .complete_keyed(noting(&log)),
        )
        .expect("added");
    let running = Running::start(manager);
    wait_for("the stream", async || log.contains(&"default/outside".into())).await;
    let thor = bench.create(&pet("thor")).await;
    wait_for("the pet", async || log.contains(&"default/thor".into())).await;
    let before = log.len();
    create_owned(&bench, &thor).await;
    wait_for("the owner", async || log.len() > before).await;
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn panicking_streams_restart_and_endless_delays_are_fine() {
    let bench = Bench::start().await;
    let log: Log<String> = Log::default();
    let seen = log.clone();
    let mut manager = bench.manager();
    let reconciler = from_key_fn(move |key: ObjectKey, _ctx| {
        seen.push(key.to_string());
        async { Ok(Outcome::RequeueAfter(Duration::MAX)) }
    });
    let starts = Arc::new(Mutex::new(0));
    let outside = move |_| {
        let mut starts = starts.lock().expect("not poisoned");
        *starts += 1;
        let start = *starts;
        futures::stream::iter(["before", "broken", "after"]).map(move |name| {
            assert!(start > 1 || name != "broken", "a bug of the user's");
            ObjectKey::new("default", name)
        })
    };
    manager.add(Controller::<Pet>::new("pet").source(outside).complete_keyed(reconciler)).expect("added");
    let running = Running::start(manager);
    for name in ["before", "broken", "after"] {
        wait_for(name, async || log.contains(&format!("default/{name}"))).await;
    }
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn a_poll_wakes_keys_at_start_and_at_intervals() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let (log, polls) = (Log::<String>::default(), Log::<(Instant, usize)>::default());
    let polled = polls.clone();
    let mut manager = bench.manager();
    let poll = move |ctx: SourceContext| {
        let polled = polled.clone();
        async move {
            polled.push((Instant::now(), ctx.lister::<Pet>().keys().len()));
            // The interval begins when the poll ends.
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(polled.len() != 2, "a bug of the user's");
            [ObjectKey::new("default", format!("polled-{}", polled.len()))]
        }
    };
    let controller = Controller::<Pet>::new("pet").poll(Duration::from_secs(3), poll);
    manager.add(controller.complete_keyed(noting(&log))).expect("added");
    let running = Running::start(manager);
    for key in ["default/polled-1", "default/polled-3", "default/polled-4"] {
        wait_for(key, async || log.contains(&key.to_owned())).await;
    }
    let polls = polls.entries();
    assert!(polls.iter().all(|(_, known)| *known == 1), "the caches are filled: {polls:?}");
    let pauses: Vec<_> = polls.windows(2).map(|pair| pair[1].0.duration_since(pair[0].0).as_secs()).collect();
    assert_eq!(pauses[..3], [4, 2, 4], "a panic makes the pause one second");
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn all_failures_but_terminal_errors_are_retried() {
    let bench = Bench::start().await;
    let attempts: Arc<Mutex<HashMap<String, u32>>> = Arc::default();
    let counted = Arc::clone(&attempts);
    let mut manager = bench.manager();
    manager
        .add(Controller::<Pet>::new("pet").concurrency(4).reconcile_timeout(Duration::from_millis(50)).complete_keyed(
            from_key_fn(move |key: ObjectKey, ctx: Context| {
                let attempt = {
                    let mut counted = counted.lock().expect("not poisoned");
                    let count = counted.entry(key.name().to_owned()).or_default();
                    *count += 1;
                    *count
                };
                async move {
                    assert_eq!(ctx.failures(), attempt - 1);
                    match key.name() {
                        _ if attempt >= 3 => Ok(Outcome::Done),
                        "error" => Err("scripted".into()),
                        "panic" => panic!("scripted"),
                        "hang" => std::future::pending().await,
                        _ => Err(ReconcileError::terminal("scripted")),
                    }
                }
            }),
        ))
        .expect("added");
    let registry = manager.registry().clone();
    let running = Running::start(manager);
    for name in ["error", "panic", "hang", "terminal"] {
        bench.create(&pet(name)).await;
    }
    let count = |name: &str| attempts.lock().expect("not poisoned").get(name).copied();
    wait_for("three attempts each", async || ["error", "panic", "hang"].iter().all(|name| count(name) == Some(3)))
        .await;
    assert_eq!(count("terminal"), Some(1));
    running.stop().await.expect("stopped");
    let metrics = registry.encode();
    for line in [
        "controller_runtime_reconcile_total{controller=\"pet\",result=\"success\"} 3",
        "controller_runtime_reconcile_total{controller=\"pet\",result=\"error\"} 7",
        "controller_runtime_terminal_reconcile_errors_total{controller=\"pet\"} 1",
        "controller_runtime_reconcile_panics_total{controller=\"pet\"} 2",
        "controller_runtime_reconcile_timeouts_total{controller=\"pet\"} 2",
        "workqueue_retries_total{name=\"pet\",controller=\"pet\"} 6",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

/// Panics when it is dropped.
struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "scripted");
    }
}

/// An error that cannot be looked at.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("scripted")
    }
}

impl std::error::Error for Unspeakable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        panic!("scripted")
    }
}

/// Reads everything that is said.
struct Attentive;

impl tracing::Subscriber for Attentive {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Spans::default());
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// A panic outside of the reconciler itself once ended the worker, and with it a controller of one.
#[tokio::test(start_paused = true)]
async fn panics_in_drop_or_display_stop_no_worker() {
    // What is said is looked at: see below.
    if part().is_none() {
        const SELF: &str = "controller::panics_in_drop_or_display_stop_no_worker";
        return Process::start(SELF, "alone", &[]).ended_well().await;
    }
    tracing::subscriber::set_global_default(Attentive).expect("the first");
    let bench = Bench::start().await;
    let attempts: Log<String> = Log::default();
    let log = attempts.clone();
    let mut manager = bench.manager();
    let reconciler = from_key_fn(move |key: ObjectKey, _ctx| {
        let first = !log.contains(&key.name().to_owned());
        log.push(key.name().to_owned());
        async move {
            match key.name() {
                "dropped" if first => {
                    let _fragile = Fragile;
                    std::future::pending().await
                }
                "shown" if first => Err(Unspeakable.into()),
                "carried" if first => std::panic::panic_any(Fragile),
                "terminal" => Err(ReconcileError::terminal(Unspeakable)),
                _ => Ok(Outcome::Done),
            }
        }
    });
    let controller = Controller::<Pet>::new("pet").reconcile_timeout(Duration::from_millis(50));
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    let registry = manager.registry().clone();
    let running = Running::ready(manager).await;
    let count = |name: &str| attempts.entries().iter().filter(|seen| *seen == name).count();
    for (name, rounds) in [("dropped", 2), ("shown", 2), ("carried", 2), ("terminal", 1), ("last", 1)] {
        bench.create(&pet(name)).await;
        wait_for(name, async || count(name) == rounds).await;
    }
    assert_eq!(count("terminal"), 1, "not tried again");
    running.stop().await.expect("stopped");
    let metrics = registry.encode();
    for line in [
        "controller_runtime_reconcile_total{controller=\"pet\",result=\"error\"} 4",
        "controller_runtime_reconcile_total{controller=\"pet\",result=\"success\"} 4",
        "controller_runtime_reconcile_panics_total{controller=\"pet\"} 4",
        "controller_runtime_active_workers{controller=\"pet\"} 0",
        "workqueue_unfinished_work_seconds{name=\"pet\",controller=\"pet\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_reconciled_twice_at_once() {
    let bench = Bench::start().await;
    let active: Arc<Mutex<HashMap<ObjectKey, usize>>> = Arc::default();
    let (together, total) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, most, calls) = (Arc::clone(&active), Arc::clone(&together), Arc::clone(&total));
    let mut manager = bench.manager();
    manager
        .add(Controller::<Pet>::new("pet").concurrency(8).complete_keyed(from_key_fn(move |key: ObjectKey, _ctx| {
            let (now, most, calls) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&calls));
            async move {
                {
                    let mut now = now.lock().expect("not poisoned");
                    *now.entry(key.clone()).or_default() += 1;
                    assert_eq!(now[&key], 1, "{key} twice at once");
                    most.fetch_max(now.values().sum(), Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
                *now.lock().expect("not poisoned").entry(key).or_default() -= 1;
                calls.fetch_add(1, Ordering::Relaxed);
                Ok(Outcome::Done)
            }
        })))
        .expect("added");
    let registry = manager.registry().clone();
    let running = Running::start(manager);
    for name in ["a", "b", "c", "d"] {
        bench.create(&pet(name)).await;
    }
    for round in 0..20 {
        for name in ["a", "b", "c", "d"] {
            let patch = json!({"spec": {"tricks": [round.to_string()]}});
            let patch = Patch::Merge(patch);
            bench.pets().patch(name, &PatchParams::default(), &patch).await.expect("patched");
        }
    }
    wait_for("rest", async || {
        let active = active.lock().expect("not poisoned").values().sum::<usize>();
        active == 0 && total.load(Ordering::Relaxed) >= 4
    })
    .await;
    running.stop().await.expect("stopped");
    assert!(together.load(Ordering::Relaxed) > 1, "different keys run together");
    assert!(!registry.encode().contains("reconcile_panics_total{controller=\"pet\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_enqueued_from_anywhere() {
    let bench = Bench::start().await;
    let log: Log<String> = Log::default();
    let mut manager = bench.manager();
    let controller = Controller::<Pet>::new("pet");
    let wake = controller.enqueuer();
    manager.add(controller.complete_keyed(noting(&log))).expect("added");
    let key = ObjectKey::new("default", "from-outside");
    assert!(!wake.enqueue(key.clone()), "nothing runs yet");
    let running = Running::start(manager);
    wait_for("it runs", async || wake.enqueue(key.clone())).await;
    assert!(wake.enqueue_after(key.sibling("later"), Duration::from_millis(1)));
    wait_for("both", async || log.contains(&"default/from-outside".into()) && log.contains(&"default/later".into()))
        .await;
    running.stop().await.expect("stopped");
    assert!(!wake.enqueue(key), "stopped");
}

/// Reconciles that never wait once kept the only thread to themselves: no timer fired, no socket was
/// read, and the manager could not be stopped.
#[tokio::test]
async fn quick_reconciles_without_end_leave_others_their_turn() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let mut manager = bench.manager();
    let controller = Controller::<Pet>::new("pet");
    let wake = controller.enqueuer();
    let reconciler = from_key_fn(move |key, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        wake.enqueue(key);
        async { Ok(Outcome::Done) }
    });
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    let running = Running::start(manager);
    wait_for("many reconciles", async || calls.load(Ordering::Relaxed) > 1000).await;
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_owners_of_dynamic_kinds_are_woken() {
    let bench = Bench::start().await;
    let kind = ApiResource::erase::<Namespace>(&());
    let log: Log<String> = Log::default();
    let mut manager = bench.manager();
    let controller = Controller::<DynamicObject>::dynamic("namespaces", kind).owns::<ConfigMap>();
    manager.add(controller.complete_keyed(noting(&log))).expect("added");
    let running = Running::start(manager);
    wait_for("the owner", async || log.contains(&"default".into())).await;
    let before = log.len();
    let namespaces: Api<Namespace> = Api::all(bench.kube.clone());
    create_owned(&bench, &namespaces.get("default").await.expect("there")).await;
    wait_for("the owner again", async || log.entries()[before..].contains(&"default".into())).await;
    assert!(!log.contains(&"default/default".into()));
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn everybody_who_looks_at_a_kind_shares_one_watch() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let (service, watches) = (bench.server.service(), Log::<String>::default());
    let counted = watches.clone();
    let counting = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let uri = request.uri().to_string();
        if uri.contains("/pets") && uri.contains("watch=") {
            counted.push(uri);
        }
        service.clone().oneshot(request)
    });
    let client = kube::Client::new(counting, "default");
    let mut manager = Manager::builder(client.clone()).name("it").build().expect("built");
    let logs = [Log::default(), Log::default(), Log::default()];
    for (log, name) in logs.iter().zip(["a", "b"]) {
        manager.add(Controller::<Pet>::new(name).complete_keyed(noting(log))).expect("added");
    }
    let again = manager.add(Controller::<Pet>::new("a").complete_keyed(noting(&logs[2])));
    assert!(matches!(again, Err(ManagerError::DuplicateName { name }) if name == "a"));
    // Names are a manager's own: another may have the same.
    let mut other = Manager::builder(bench.kube.clone()).name("other").build().expect("built");
    other.add(Controller::<Pet>::new("a").complete_keyed(noting(&logs[2]))).expect("added");
    let (lister, heard) = (manager.lister::<Pet>(), Log::default());
    let log = heard.clone();
    let subscription = lister.subscribe(move |change| log.push(ObjectKey::of(&**change.object()).to_string()));
    let (running, others) = (Running::ready(manager).await, Running::ready(other).await);
    bench.create(&pet("tron")).await;
    for name in ["default/thor", "default/tron"] {
        for log in logs.iter().chain([&heard]) {
            wait_for(name, async || log.contains(&name.to_owned())).await;
        }
    }
    assert_eq!(watches.len(), 1, "{:?}", watches.entries());
    drop(subscription);
    running.stop().await.expect("stopped");
    others.stop().await.expect("stopped");
}

/// Keeps the fields of spans named `reconcile`.
#[derive(Clone, Default)]
struct Spans(Log<String>);

impl tracing::field::Visit for Spans {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push(format!("{field}={value:?}"));
    }
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == "reconcile"
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn every_reconcile_has_an_id_and_a_span() {
    // Whether a span is recorded is decided once for a whole process, perhaps by another test.
    if part().is_none() {
        const SELF: &str = "controller::every_reconcile_has_an_id_and_a_span";
        return Process::start(SELF, "alone", &[]).ended_well().await;
    }
    let spans = Spans::default();
    tracing::subscriber::set_global_default(spans.clone()).expect("the first");
    let bench = Bench::start().await;
    let ids: Log<String> = Log::default();
    let log = ids.clone();
    let mut manager = bench.manager();
    let reconciler = from_key_fn(move |_: ObjectKey, ctx: Context| {
        log.push(ctx.reconcile_id().to_string());
        async { Ok(Outcome::Done) }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let running = Running::start(manager);
    for name in ["thor", "tron"] {
        let before = ids.len();
        bench.create(&pet(name)).await;
        wait_for(name, async || ids.len() > before).await;
    }
    running.stop().await.expect("stopped");
    let ids = ids.entries();
    assert_ne!(ids[0], ids[1]);
    for (id, name) in ids.iter().zip(["thor", "tron"]) {
        for field in
            ["controller=pet", "namespace=\"default\"", &format!("name={name:?}"), &format!("reconcile_id={id}")]
        {
            assert!(spans.0.contains(&field.to_owned()), "{field} not in {:?}", spans.0.entries());
        }
    }
}

#[tokio::test]
async fn only_failed_reconciles_have_a_span_where_spans_are_off() {
    if part().is_none() {
        const SELF: &str = "controller::only_failed_reconciles_have_a_span_where_spans_are_off";
        return Process::start(SELF, "alone", &[]).ended_well().await;
    }
    let spans = Spans::default();
    tracing::subscriber::set_global_default(spans.clone()).expect("the first");
    let bench = Bench::start().await;
    let builder = Manager::builder(bench.kube.clone()).name("it").reconcile_spans(false);
    let (seen, mut manager) = (Log::default(), builder.build().expect("a manager"));
    let log = seen.clone();
    let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
        log.push(key.name().to_owned());
        let fails = key.name() == "tron";
        async move { if fails { Err(ReconcileError::terminal("scripted")) } else { Ok(Outcome::Done) } }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let running = Running::start(manager);
    for name in ["thor", "tron"] {
        bench.create(&pet(name)).await;
        wait_for(name, async || seen.contains(&name.to_owned())).await;
    }
    running.stop().await.expect("stopped");
    let fields = spans.0.entries();
    assert!(fields.contains(&"name=\"tron\"".to_owned()), "{fields:?}");
    assert!(!fields.contains(&"name=\"thor\"".to_owned()), "{fields:?}");
}

#[tokio::test(start_paused = true)]
async fn changes_survive_panics_of_predicates_and_maps() {
    let bench = Bench::start().await;
    let (log, mut manager) = (Log::default(), bench.manager());
    let predicate = predicate::object(|pet: &Pet| match pet.spec.name.as_str() {
        "bad" => panic!("scripted"),
        name => name != "ignored",
    });
    let map = |map: &ConfigMap, _: &SourceContext| {
        let data = map.data.as_ref().expect("scripted");
        data.keys().map(|name| ObjectKey::new("default", name)).collect::<Vec<_>>()
    };
    let controller = Controller::<Pet>::new("pet").watches(map).predicate(predicate);
    manager.add(controller.complete_keyed(noting(&log))).expect("added");
    let registry = manager.registry().clone();
    let running = Running::ready(manager).await;
    for name in ["bad", "ignored", "good"] {
        bench.create(&pet(name)).await;
    }
    wait_for("both seen", async || log.len() == 2).await;
    assert_eq!(log.entries(), ["default/bad", "default/good"]);
    let panics = |kind: &str, count: u32| {
        let (line, text) = (format!("windlass_cache_panics_total{{kind=\"{kind}\"}} {count}\n"), registry.encode());
        assert!(text.contains(&line), "{text}");
    };
    panics("pets.petstore.example.com/v1", 1);

    // What the old state led to is not known; what the new one does, is.
    let maps: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "default");
    let empty = ConfigMap { metadata: pet("empty").metadata, ..ConfigMap::default() };
    maps.create(&PostParams::default(), &empty).await.expect("created");
    let patch = Patch::Merge(json!({"data": {"thor": ""}}));
    maps.patch("empty", &PatchParams::default(), &patch).await.expect("patched");
    wait_for("woken", async || log.contains(&"default/thor".to_owned())).await;
    panics("configmaps/v1", 2);
    running.stop().await.expect("stopped");
}
