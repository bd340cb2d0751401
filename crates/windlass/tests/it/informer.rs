//! Informers without a manager: handlers, listers, indexes, resync, sync and stop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{Api, ApiResource, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use windlass::cache::Scope;
use windlass::informer::{Handler, Informer, InformerFactory, Subscription, SyncError};
use windlass::{Object, ObjectKey};

use crate::adversity::{forward, through};
use crate::bench::{Bench, Pet, wait_for};

fn config_map(namespace: &str, name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), namespace: Some(namespace.into()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn maps(bench: &Bench, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(bench.kube.clone(), namespace)
}

async fn create(bench: &Bench, name: &str) -> ConfigMap {
    maps(bench, "default").create(&PostParams::default(), &config_map("default", name)).await.expect("created")
}

async fn label(bench: &Bench, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"step": value}}}));
    maps(bench, "default").patch(name, &PatchParams::default(), &patch).await.expect("patched");
}

async fn delete(bench: &Bench, name: &str) {
    maps(bench, "default").delete(name, &DeleteParams::default()).await.expect("deleted");
}

/// Has a handler tell what it is told, as text.
fn told<K: Object>(informer: &Informer<K>) -> (Subscription, UnboundedReceiver<String>) {
    let (tell, told) = unbounded_channel();
    let (added, updated, deleted) = (tell.clone(), tell.clone(), tell);
    let name = |object: &K| object.meta().name.clone().unwrap_or_default();
    let step =
        |object: &K| object.meta().labels.as_ref().and_then(|labels| labels.get("step").cloned()).unwrap_or_default();
    let handler = Handler::new()
        .added(move |object: Arc<K>, initial| {
            let _ = added.send(format!("added {}{}", name(&object), if initial { " initially" } else { "" }));
        })
        .updated(move |old, new| {
            let same = if Arc::ptr_eq(&old, &new) { " as it was" } else { "" };
            let _ = updated.send(format!("updated {}: {:?} to {:?}{same}", name(&new), step(&old), step(&new)));
        })
        .deleted(move |object| {
            let _ = deleted.send(format!("deleted {} at {:?}", name(&object), step(&object)));
        });
    (informer.add_handler(handler), told)
}

async fn next(told: &mut UnboundedReceiver<String>) -> String {
    tokio::time::timeout(Duration::from_secs(60), told.recv()).await.expect("in time").expect("a handler")
}

/// The configmap that every namespace has.
fn is_root_certificate(told: &str) -> bool {
    told.contains("kube-root-ca.crt")
}

/// The program of the module's documentation, with its words sent instead of printed.
#[tokio::test(start_paused = true)]
async fn a_program_hears_of_pods_and_then_lists_them() {
    let bench = Bench::start().await;
    let pods: Api<Pod> = Api::namespaced(bench.kube.clone(), "default");
    let pod = |name: &str| -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "busybox", "image": "busybox:latest", "command": ["sleep", "1000"]}]},
        }))
        .expect("a pod")
    };
    pods.create(&PostParams::default(), &pod("foo")).await.expect("created");
    let (tell, mut told) = unbounded_channel();
    let (add, update, remove) = (tell.clone(), tell.clone(), tell);

    let client = bench.kube.clone();
    let factory = InformerFactory::builder(client).resync(Duration::from_secs(30 * 60)).build();
    let informer = factory.informer::<Pod>();
    informer
        .add_handler(
            Handler::new()
                .added(move |pod: Arc<Pod>, _initial| {
                    add.send(format!("add pod: {}", ObjectKey::of(&pod))).expect("heard");
                })
                .updated(move |old, _new| update.send(format!("update pod: {}", ObjectKey::of(&old))).expect("heard"))
                .deleted(move |pod| remove.send(format!("delete pod: {}", ObjectKey::of(&pod))).expect("heard")),
        )
        .forever();
    factory.start();
    factory.wait_synced().await.expect("synced");
    assert_eq!(informer.lister().len(), 1);

    assert_eq!(next(&mut told).await, "add pod: default/foo");
    pods.create(&PostParams::default(), &pod("bar")).await.expect("created");
    assert_eq!(next(&mut told).await, "add pod: default/bar");
    let patch = Patch::Merge(json!({"metadata": {"labels": {"patch": "v1"}}}));
    pods.patch("foo", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(next(&mut told).await, "update pod: default/foo");
    pods.delete("bar", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    loop {
        let told = next(&mut told).await;
        if told == "delete pod: default/bar" {
            break;
        }
        assert_eq!(told, "update pod: default/bar", "on its way out");
    }
    tokio::time::sleep(Duration::from_secs(33 * 60)).await;
    assert_eq!(next(&mut told).await, "update pod: default/foo", "resync");
    let names: Vec<_> = informer.lister().list().iter().map(|pod| pod.metadata.name.clone()).collect();
    assert_eq!(names, [Some("foo".to_owned())]);
    factory.stop().await;
}

#[tokio::test(start_paused = true)]
async fn handlers_are_told_of_changes_in_order() {
    let bench = Bench::start().await;
    let factory = InformerFactory::builder(bench.kube.clone()).namespace("default").build();
    let informer = factory.informer::<ConfigMap>();
    let (_subscription, mut told) = told(&informer);
    factory.start();
    informer.wait_synced().await.expect("synced");
    create(&bench, "a").await;
    for step in ["1", "2", "3"] {
        label(&bench, "a", step).await;
    }
    delete(&bench, "a").await;
    let mut all = Vec::new();
    while all.len() < 5 {
        let told = next(&mut told).await;
        if !is_root_certificate(&told) {
            all.push(told);
        }
    }
    let expected = [
        "added a",
        "updated a: \"\" to \"1\"",
        "updated a: \"1\" to \"2\"",
        "updated a: \"2\" to \"3\"",
        "deleted a at \"3\"",
    ];
    assert_eq!(all, expected);
    factory.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_added_later_is_told_of_what_exists() {
    let bench = Bench::start().await;
    create(&bench, "a").await;
    let factory = InformerFactory::new(bench.kube.clone());
    let scope = || Scope::default().fields("metadata.name=a");
    let informer = factory.informer_in::<ConfigMap>(scope());
    factory.start();
    informer.wait_synced().await.expect("synced");
    assert!(informer.is_synced() && factory.is_synced());
    let (subscription, mut first) = told(&informer);
    assert_eq!(next(&mut first).await, "added a initially");
    // Another informer of the same scope is the same.
    let (_other, mut second) = told(&factory.informer_in::<ConfigMap>(scope()));
    assert_eq!(next(&mut second).await, "added a initially");
    label(&bench, "a", "1").await;
    assert_eq!(next(&mut first).await, "updated a: \"\" to \"1\"");
    assert_eq!(next(&mut second).await, "updated a: \"\" to \"1\"");
    drop(subscription);
    delete(&bench, "a").await;
    assert_eq!(next(&mut second).await, "deleted a at \"1\"");
    assert_eq!(first.recv().await, None, "the handler is gone");
    factory.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_resync_tells_the_same_object_twice() {
    let bench = Bench::start().await;
    create(&bench, "a").await;
    let factory = InformerFactory::builder(bench.kube.clone()).resync(Duration::from_secs(60)).build();
    let informer = factory.informer_in::<ConfigMap>(Scope::default().fields("metadata.name=a"));
    let (_subscription, mut told) = told(&informer);
    factory.start();
    assert_eq!(next(&mut told).await, "added a initially");
    for _ in 0..3 {
        let begin = tokio::time::Instant::now();
        let told = tokio::time::timeout(Duration::from_secs(80), told.recv()).await.expect("within the period");
        assert_eq!(told.expect("a handler"), "updated a: \"\" to \"\" as it was");
        assert!(begin.elapsed() > Duration::from_secs(40), "{:?}", begin.elapsed());
    }
    factory.stop().await;
}

/// The watch says that its history is lost while objects change, so that the informer lists again.
#[tokio::test(start_paused = true)]
async fn a_deletion_missed_by_the_watch_is_told() {
    let bench = Bench::start().await;
    create(&bench, "a").await;
    create(&bench, "b").await;
    let (cut, down) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicUsize::new(0)));
    let client = {
        let (cut, down) = (Arc::clone(&cut), Arc::clone(&down));
        through(&bench, move |request, service| {
            let (cut, down) = (Arc::clone(&cut), Arc::clone(&down));
            async move {
                if down.load(Ordering::Relaxed) > 0 {
                    down.fetch_add(1, Ordering::Relaxed);
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired",
                        "code": 410, "message": "too old resource version"});
                    let body = http_body_util::Full::new(bytes::Bytes::from(status.to_string()));
                    let body = body.map_err(|never| match never {}).boxed_unsync();
                    return http::Response::builder().status(410).body(body).expect("a response");
                }
                forward(request, service).await.map(|body| {
                    use futures::StreamExt;
                    let frames = body.into_data_stream().map(|data| data.map(http_body::Frame::data));
                    let cut = async move { cut.notified().await };
                    StreamBody::new(frames.take_until(Box::pin(cut))).boxed_unsync()
                })
            }
        })
    };
    let factory = InformerFactory::new(client);
    let informer = factory.informer_in::<ConfigMap>(Scope::default().labels("step=1"));
    for name in ["a", "b"] {
        label(&bench, name, "1").await;
    }
    let (_subscription, mut told) = told(&informer);
    factory.start();
    let mut initial = [next(&mut told).await, next(&mut told).await];
    initial.sort();
    assert_eq!(initial, ["added a initially", "added b initially"]);
    down.store(1, Ordering::Relaxed);
    cut.notify_waiters();
    wait_for("the watch is down", async || down.load(Ordering::Relaxed) > 1).await;
    delete(&bench, "a").await;
    // Made again, it is another.
    delete(&bench, "b").await;
    create(&bench, "b").await;
    label(&bench, "b", "1").await;
    down.store(0, Ordering::Relaxed);
    let mut changes = Vec::new();
    for _ in 0..3 {
        changes.push(next(&mut told).await);
    }
    let place = |wanted: &str| changes.iter().position(|told| told == wanted).unwrap_or_else(|| panic!("{changes:?}"));
    assert!(place("deleted b at \"1\"") < place("added b"));
    place("deleted a at \"1\"");
    factory.stop().await;
}

/// The first handler stands still in its first call. The informer, its lister and the second handler go on.
#[tokio::test]
async fn a_slow_handler_holds_up_nothing_and_misses_no_outcome() {
    const MAPS: usize = 1500;
    let bench = Bench::start().await;
    let factory = InformerFactory::new(bench.kube.clone());
    let informer = factory.informer_in::<ConfigMap>(Scope::default().namespace("default"));
    let (go_on, wait) = mpsc::channel::<()>();
    let (tell, mut slow) = unbounded_channel();
    let (updated, deleted) = (tell.clone(), tell.clone());
    let name = |map: &ConfigMap| map.metadata.name.clone().unwrap_or_default();
    let handler = Handler::new()
        .added(move |map: Arc<ConfigMap>, _| {
            let _ = wait.recv();
            let _ = tell.send(("added", name(&map)));
        })
        .updated(move |_, map| drop(updated.send(("updated", name(&map)))))
        .deleted(move |map| drop(deleted.send(("deleted", name(&map)))));
    let _slow = informer.add_handler(handler);
    let (_quick, mut quick) = told(&informer);
    factory.start();
    informer.wait_synced().await.expect("synced");
    for n in 0..MAPS {
        create(&bench, &format!("map-{n}")).await;
    }
    for n in 0..MAPS {
        if n % 2 == 0 {
            delete(&bench, &format!("map-{n}")).await;
        }
    }
    create(&bench, "last").await;
    while next(&mut quick).await != "added last" {}
    let lister = informer.lister();
    assert!(lister.get(&ObjectKey::new("default", "last")).is_some(), "the cache goes on");
    assert!(slow.try_recv().is_err(), "the handler stands still");
    drop(go_on);
    let mut copy = std::collections::BTreeSet::new();
    let mut calls = 0;
    while copy.len() < lister.len() || !copy.contains("last") {
        let told = tokio::time::timeout(Duration::from_secs(60), slow.recv()).await.expect("in time");
        calls += 1;
        match told.expect("a handler") {
            ("added", name) => assert!(copy.insert(name), "added twice"),
            ("deleted", name) => assert!(copy.remove(&name), "never added"),
            _ => {}
        }
    }
    let keys: std::collections::BTreeSet<String> = lister.keys().iter().map(|key| key.name().to_owned()).collect();
    assert_eq!(copy, keys);
    assert!(calls < MAPS + MAPS / 2, "{calls} calls: what came and went while it stood still is merged");
    factory.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_handler_is_counted_and_stops_nothing() {
    let bench = Bench::start().await;
    let factory = InformerFactory::builder(bench.kube.clone()).namespace("default").build();
    let informer = factory.informer::<Pet>();
    let (tell, mut heard) = unbounded_channel();
    let handler = Handler::new().added(move |pet: Arc<Pet>, _| {
        assert!(pet.spec.name != "thor", "not this one");
        let _ = tell.send(pet.spec.name.clone());
    });
    let _panics = informer.add_handler(handler);
    let (_other, mut other) = told(&informer);
    factory.start();
    informer.wait_synced().await.expect("synced");
    for name in ["thor", "tron"] {
        bench.create(&crate::bench::pet(name)).await;
        assert_eq!(next(&mut other).await, format!("added {name}"));
    }
    assert_eq!(next(&mut heard).await, "tron");
    assert_eq!(factory.caches().panics(), [("pets.petstore.example.com/v1".to_owned(), 1)]);
    factory.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_informer_serves_several_namespaces() {
    let bench = Bench::start().await;
    let namespaces: Api<Namespace> = Api::all(bench.kube.clone());
    for name in ["one", "two", "three"] {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.into());
        namespaces.create(&PostParams::default(), &namespace).await.expect("created");
    }
    let factory = InformerFactory::builder(bench.kube.clone()).namespaces(["one", "two"]).build();
    let informer = factory.informer::<Secret>();
    let (_subscription, mut told) = told(&informer);
    factory.start();
    factory.wait_synced().await.expect("synced");
    for namespace in ["three", "one", "two"] {
        let secret = json!({"metadata": {"name": format!("in-{namespace}"), "namespace": namespace}});
        let secret: Secret = serde_json::from_value(secret).expect("a secret");
        Api::namespaced(bench.kube.clone(), namespace).create(&PostParams::default(), &secret).await.expect("created");
    }
    let mut both = [next(&mut told).await, next(&mut told).await];
    both.sort();
    assert_eq!(both, ["added in-one", "added in-two"]);
    assert_eq!(informer.lister().len(), 2);
    factory.stop().await;
}

#[tokio::test(start_paused = true)]
async fn informers_of_one_kind_share_a_watch() {
    let bench = Bench::start().await;
    let watches = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&watches);
    let client = through(&bench, move |request, service| {
        count.fetch_add(
            usize::from(request.uri().query().is_some_and(|query| query.contains("watch="))),
            Ordering::Relaxed,
        );
        forward(request, service)
    });
    let factory = InformerFactory::new(client);
    let (first, second) = (factory.informer::<Pet>(), factory.clone().informer::<Pet>());
    factory.start();
    factory.start();
    let third = factory.informer::<Pet>();
    for informer in [&first, &second, &third] {
        informer.wait_synced().await.expect("synced");
    }
    assert_eq!(watches.load(Ordering::Relaxed), 1);
    factory.stop().await;
}

#[tokio::test(start_paused = true)]
async fn indexes_are_added_at_any_time_but_once() {
    let bench = Bench::start().await;
    let factory = InformerFactory::new(bench.kube.clone());
    let informer = factory.informer::<Pet>();
    informer.add_index("name", |pet| vec![pet.spec.name.clone()]).expect("added");
    let taken = factory.informer::<Pet>().add_index("name", |_| Vec::new()).expect_err("taken");
    assert_eq!(taken.to_string(), "pets.petstore.example.com/v1 have an index \"name\" already");
    bench.create(&crate::bench::pet("thor")).await;
    factory.start();
    informer.wait_synced().await.expect("synced");
    informer.add_index("first letter", |pet| pet.spec.name.chars().take(1).map(String::from).collect()).expect("added");
    assert_eq!(informer.lister().by_index("name", "thor").len(), 1);
    assert_eq!(informer.lister().by_index("first letter", "t").len(), 1);
    factory.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kinds_known_at_run_time_have_informers() {
    let bench = Bench::start().await;
    bench.create(&crate::bench::pet("thor")).await;
    let factory = InformerFactory::new(bench.kube.clone());
    let informer = factory.dynamic(&ApiResource::erase::<Pet>(&()));
    let (_subscription, mut told) = told(&informer);
    factory.start();
    assert_eq!(next(&mut told).await, "added thor initially");
    let thor = informer.lister().get(&ObjectKey::new("default", "thor")).expect("there");
    assert_eq!(thor.data["spec"]["name"], "thor");
    factory.stop().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_names_the_kinds_that_do_not_sync() {
    let bench = Bench::start().await;
    let client = through(&bench, |request, service| async move {
        if !request.uri().path().ends_with("/secrets") {
            return forward(request, service).await;
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "secrets is forbidden"});
        let body = http_body_util::Full::new(bytes::Bytes::from(status.to_string()));
        let body = body.map_err(|never| match never {}).boxed_unsync();
        http::Response::builder().status(403).body(body).expect("a response")
    });
    let factory = InformerFactory::builder(client).sync_timeout(Duration::from_secs(5)).build();
    let pets = factory.informer::<Pet>();
    assert!(matches!(pets.wait_synced().await, Err(SyncError::NotStarted { .. })));
    factory.start();
    factory.wait_synced().await.expect("synced");
    factory.informer::<Secret>();
    let error = factory.wait_synced().await.expect_err("forbidden");
    assert!(error.to_string().starts_with("cache of secrets/v1 not filled: secrets is forbidden"), "{error}");
    let unknown = ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Unknown".into(),
        plural: "unknowns".into(),
    };
    factory.dynamic(&unknown);
    let error = factory.wait_synced().await.expect_err("not served");
    let text = format!("{error:?}");
    assert!(text.starts_with("2 informers are not synced:\n- cache of secrets/v1 not filled"), "{text}");
    assert!(text.contains("\n- cache of unknowns.example.com/v1 not synced after 5s: "), "{text}");
    assert_eq!(error.errors.len(), 2);
    assert!(pets.is_synced() && !factory.is_synced());
    factory.stop().await;
}

#[tokio::test]
async fn stop_waits_for_the_call_and_no_other_begins() {
    let bench = Bench::start().await;
    for name in ["thor", "tron"] {
        bench.create(&crate::bench::pet(name)).await;
    }
    let factory = InformerFactory::new(bench.kube.clone());
    let informer = factory.informer::<Pet>();
    let (go_on, wait) = mpsc::channel::<()>();
    let (tell, mut calls) = unbounded_channel();
    let handler = Handler::new().added(move |_: Arc<Pet>, _| {
        let _ = tell.send("begin");
        let _ = wait.recv();
        let _ = tell.send("end");
    });
    informer.add_handler(handler).forever();
    factory.start();
    assert_eq!(calls.recv().await, Some("begin"));
    let mut stopping = std::pin::pin!(factory.stop());
    assert!(futures::poll!(&mut stopping).is_pending(), "a call is under way");
    drop(go_on);
    stopping.await;
    assert_eq!(calls.recv().await, Some("end"));
    assert!(calls.try_recv().is_err(), "no other call");
    assert_eq!(informer.lister().len(), 2, "listers keep what they have");
    assert!(matches!(factory.informer::<Secret>().wait_synced().await, Err(SyncError::Stopped { .. })));
}

#[tokio::test]
async fn text_that_is_no_selector_is_named_in_the_error() {
    let bench = Bench::start().await;
    let factory = InformerFactory::builder(bench.kube.clone()).sync_timeout(Duration::from_millis(100)).build();
    let informer = factory.informer_in::<ConfigMap>(Scope::default().labels("step in"));
    factory.start();
    let refused = async {
        loop {
            let error = informer.wait_synced().await.expect_err("no selector").to_string();
            if error.contains("label selector \"step in\": ") {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), refused).await.expect("the reason is in the error");
    factory.stop().await;
}
