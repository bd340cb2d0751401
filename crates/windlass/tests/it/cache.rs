//! Caches: own writes, indexes, cut watches, kinds that come and go.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ObjectMeta, PartialObjectMeta, Patch, PatchParams, PostParams,
};
use serde_json::json;
use tower::ServiceExt;
use windlass::client::options::ListOptions;
use windlass::controller::from_fn;
use windlass::{CachedClient, Controller, Manager, ObjectKey, Outcome};

use crate::adversity::{forward, through};
use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

#[tokio::test(start_paused = true)]
async fn a_cached_read_shows_every_write_at_once() {
    let bench = Bench::start().await;
    let client = bench.client();
    let key = ObjectKey::new("default", "thor");
    assert!(client.get::<Pet>(&key).await.expect("read").is_none());
    let mut thor = client.create(&pet("thor")).await.expect("created");
    for round in 0..50u32 {
        let cached = client.get::<Pet>(&key).await.expect("read").expect("there");
        assert_eq!(cached.metadata.resource_version, thor.metadata.resource_version);
        thor.spec.tricks = vec![round.to_string()];
        thor = client.update(&thor).await.expect("no conflict with oneself");
    }
    assert!(client.delete::<Pet>(&key).await.expect("deleted"));
    assert!(client.get::<Pet>(&key).await.expect("read").is_none());
    assert!(!client.delete::<Pet>(&key).await.expect("gone is fine"));
    client.create(&pet("thor")).await.expect("created again");
    assert!(client.get::<Pet>(&key).await.expect("read").is_some());
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn listers_find_by_label_owner_and_own_index() {
    let bench = Bench::start().await;
    let client = bench.client();
    let thor = client.create(&pet("thor")).await.expect("created");
    let maps = client.lister::<ConfigMap>();
    maps.wait_synced().await.expect("synced");
    maps.add_index("first-key", |map| map.data.iter().filter_map(|data| data.keys().next().cloned()).collect());
    for n in 0..3 {
        let mut map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(format!("map-{n}")),
                namespace: Some("default".into()),
                labels: Some([("even".to_owned(), (n % 2 == 0).to_string())].into()),
                ..ObjectMeta::default()
            },
            data: Some([(format!("key-{n}"), String::new())].into()),
            ..ConfigMap::default()
        };
        if n == 1 {
            windlass::owner::set_controller(&mut map, &thor).expect("owner");
        }
        client.create(&map).await.expect("created");
    }
    // Also before the watch has shown them.
    assert_eq!(maps.labelled("even", "true").len(), 2);
    assert_eq!(maps.owned_by(&thor).len(), 1);
    assert_eq!(maps.by_index("first-key", "key-2").len(), 1);
    let metadata = client.lister::<PartialObjectMeta<ConfigMap>>();
    metadata.wait_synced().await.expect("synced");
    assert_eq!(metadata.labelled("even", "false").len(), 1);
    let key = ObjectKey::new("default", "map-1");
    client.delete::<ConfigMap>(&key).await.expect("deleted");
    assert!(metadata.get(&key).is_none() && maps.owned_by(&thor).is_empty());
    client.caches().stop().await;
}

/// A client whose watches are cut after a few milliseconds, each time.
fn cut_off(bench: &Bench, after: Duration, cuts: &Arc<AtomicUsize>) -> kube::Client {
    let service = bench.server.service();
    let cuts = Arc::clone(cuts);
    let cutting = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, cuts) = (service.clone(), Arc::clone(&cuts));
        async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let Ok(response) = service.oneshot(request).await;
            let (parts, body) = response.into_parts();
            let frames = body.into_data_stream().map(|data| data.map(http_body::Frame::data));
            let frames: futures::stream::BoxStream<'static, _> = if is_watch {
                cuts.fetch_add(1, Ordering::Relaxed);
                frames.take_until(tokio::time::sleep(after)).boxed()
            } else {
                frames.boxed()
            };
            Ok::<_, Infallible>(http::Response::from_parts(parts, StreamBody::new(frames)))
        }
    });
    kube::Client::new(cutting, "default")
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_when_watches_are_cut_every_few_milliseconds() {
    let bench = Bench::start().await;
    let cuts = Arc::new(AtomicUsize::new(0));
    let client = CachedClient::standalone(cut_off(&bench, Duration::from_millis(4), &cuts), "it");
    let lister = client.lister::<Pet>();
    lister.wait_synced().await.expect("synced");
    for n in 0..60 {
        let name = format!("pet-{}", n % 20);
        match n / 20 {
            0 => drop(bench.create(&pet(&name)).await),
            1 => {
                let patch = Patch::Merge(json!({"spec": {"tricks": ["sit"]}}));
                let patched = bench.pets().patch(&name, &PatchParams::default(), &patch).await;
                drop(patched.expect("patched"));
            }
            _ if n % 2 == 0 => {
                drop(bench.pets().delete(&name, &DeleteParams::default()).await.expect("deleted"));
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    wait_for("the final state", async || {
        lister.len() == 10 && lister.list().iter().all(|pet| pet.spec.tricks == ["sit"])
    })
    .await;
    assert!(cuts.load(Ordering::Relaxed) > 1, "watches were cut");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_named_and_awaited() {
    let server = windlass_server::Server::builder().start().await.expect("started");
    let kube = kube::Client::new(server.service(), "default");
    let bench = Bench { server, kube };
    let mut manager =
        Manager::builder(bench.kube.clone()).sync_timeout(Duration::from_millis(100)).build().expect("a manager");
    let pets = windlass::Controller::<Pet>::new("pet");
    let done = windlass::controller::from_key_fn(|_, _| async { Ok(windlass::Outcome::Done) });
    manager.add(pets.complete_keyed(done)).expect("added");
    let error = Running::start(manager).ended().await.expect_err("no such kind").to_string();
    assert!(error.contains("pets.petstore.example.com/v1"), "{error}");
    assert!(error.contains("CustomResourceDefinition"), "{error}");

    // With time to wait, the definition may come later.
    let client = bench.client();
    let waiting = client.clone();
    let listed = tokio::spawn(async move { waiting.list::<Pet>().await });
    bench.install().await;
    bench.create(&pet("thor")).await;
    listed.await.expect("joined").expect("synced once the kind was there");
    client.caches().stop().await;
}

#[tokio::test]
async fn a_lister_recovers_when_a_definition_returns() {
    let bench = Bench::start().await;
    let client = bench.client();
    let lister = client.lister::<Pet>();
    bench.create(&pet("thor")).await;
    wait_for("the first thor", async || lister.len() == 1).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
    definitions.delete(Pet::crd_name(), &DeleteParams::default()).await.expect("deleted");
    // The deletion of what there was is heard of before the kind is gone.
    wait_for("no thor", async || lister.is_empty()).await;
    wait_for("no definition", async || definitions.get_opt(Pet::crd_name()).await.is_ok_and(|crd| crd.is_none())).await;
    bench.install().await;
    bench.create(&pet("tron")).await;
    wait_for("tron", async || lister.get(&ObjectKey::new("default", "tron")).is_some()).await;
    assert_eq!(lister.len(), 1);
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_known_at_run_time_is_watched_and_forgotten() {
    let bench = Bench::start().await;
    let client = bench.client();
    bench.create(&pet("thor")).await;
    let resource = ApiResource::erase::<Pet>(&());
    let pets = client.dynamic(&resource);
    assert_eq!(pets.list().await.expect("read").len(), 1);
    let metadata = client.objects_of::<PartialObjectMeta<DynamicObject>>(resource.clone());
    assert_eq!(metadata.list().await.expect("read").len(), 1);
    let old = pets.lister();
    client.caches().forget::<DynamicObject>(&resource);
    bench.create(&pet("tron")).await;
    assert_eq!(pets.list().await.expect("watched anew").len(), 2);
    assert_eq!(old.len(), 1, "the old lister learns nothing more");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn several_namespaces_are_read_as_one() {
    let bench = Bench::start().await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(bench.kube.clone());
    for name in ["a", "b"] {
        let mut namespace = k8s_openapi::api::core::v1::Namespace::default();
        namespace.metadata.name = Some(name.into());
        namespaces.create(&PostParams::default(), &namespace).await.expect("created");
    }
    let manager = Manager::builder(bench.kube.clone()).namespaces(["a", "b"]).build().expect("built");
    let client = manager.client().clone();
    let running = Running::start(manager);
    for namespace in ["a", "b", "default"] {
        let mut pet = pet("thor");
        pet.metadata.namespace = Some(namespace.into());
        client.create(&pet).await.expect("created");
    }
    wait_for("started", async || client.list::<Pet>().await.is_ok()).await;
    let pets = client.list::<Pet>().await.expect("read");
    assert_eq!(pets.len(), 2);
    let get = async |namespace| {
        let key = ObjectKey::new(namespace, "thor");
        client.get::<Pet>(&key).await.expect("read").is_some()
    };
    assert!(get("a").await && get("b").await);
    let elsewhere = client.get::<Pet>(&ObjectKey::new("default", "thor")).await;
    assert!(elsewhere.expect_err("not watched").to_string().contains("only those of a, b"));
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_without_its_memory_is_followed() {
    let old = Bench::start().await;
    let current = Arc::new(Mutex::new(old.server.service()));
    let routed = {
        let current = Arc::clone(&current);
        tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let service = current.lock().expect("not poisoned").clone();
            service.oneshot(request)
        })
    };
    let client = CachedClient::standalone(kube::Client::new(routed, "default"), "it");
    for n in 0..20 {
        old.create(&pet(&format!("old-{n}"))).await;
    }
    let lister = client.lister::<Pet>();
    lister.wait_synced().await.expect("synced");
    assert_eq!(lister.len(), 20);
    let deleted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&deleted);
    let subscription = lister.subscribe(move |change| {
        if matches!(change, windlass::informer::Change::Deleted { .. }) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let new = Bench::start().await;
    new.create(&pet("new")).await;
    *current.lock().expect("not poisoned") = new.server.service();
    old.server.stop().await.expect("stopped");
    let key = ObjectKey::new("default", "new");
    wait_for("the new state", async || lister.len() == 1 && lister.get(&key).is_some()).await;
    assert_eq!(deleted.load(Ordering::Relaxed), 20, "every end was seen");
    let thor = client.create(&pet("thor")).await.expect("created");
    let cached = client.get::<Pet>(&ObjectKey::of(&thor)).await.expect("read").expect("there");
    assert_eq!(cached.metadata.uid, thor.metadata.uid);
    drop(subscription);
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_are_kept_as_a_transform_leaves_them() {
    let bench = Bench::start().await;
    let mut secret = Secret::default();
    secret.metadata.namespace = Some("default".into());
    secret.metadata.name = Some("chip".into());
    secret.data = Some([("code".to_owned(), ByteString(b"1234".to_vec()))].into());
    let client = bench.client();
    assert!(client.caches().transform(&(), |secret: &mut Secret| {
        assert_ne!(secret.metadata.name.as_deref(), Some("odd"), "a bug of the user's");
        secret.data = None;
        secret.metadata.name = None;
    }));
    client.create(&secret).await.expect("created");
    let key = ObjectKey::of(&secret);
    let lister = client.lister::<Secret>();
    lister.wait_synced().await.expect("synced");
    assert_eq!(lister.get(&key).expect("listed").data, None);
    let mut odd = secret.clone();
    odd.metadata.name = Some("odd".into());
    client.create(&odd).await.expect("created");
    secret.type_ = None;
    secret.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    client.apply(&secret).await.expect("applied");
    let written = lister.get(&key).expect("written");
    assert_eq!((written.data.as_ref(), written.metadata.labels.is_some()), (None, true));
    wait_for("the watch", async || lister.len() == 2).await;
    assert_eq!(lister.get(&key).expect("watched").data, None);
    assert!(lister.get(&ObjectKey::of(&odd)).expect("kept as it came").data.is_some());
    assert!(!client.caches().transform(&(), |_: &mut Secret| {}), "too late");
    assert!(client.live().get::<Secret>(&key).await.expect("read").expect("there").data.is_some());

    let mut manager = bench.manager();
    manager.lister::<Secret>();
    let late = Controller::<Secret>::new("late").transform(|secret| secret.data = None);
    let late = late.complete(from_fn(|_, _| async { Ok(Outcome::Done) }));
    let error = manager.add(late).expect_err("watched already").to_string();
    assert_eq!(error, "controller \"late\": secrets/v1 are watched already, without this transform");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_live_list_goes_on_where_a_page_ends() {
    let bench = Bench::start().await;
    let client = bench.client();
    for n in 0..7 {
        bench.create(&pet(&format!("pet-{n}"))).await;
    }
    let three = ListOptions::new().namespace("default").limit(3);
    let (mut options, mut pages) = (three.clone(), Vec::new());
    loop {
        let page = client.live().page::<Pet>(options.clone()).await.expect("listed");
        pages.push(page.items.len());
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => options = options.continue_from(token),
            None => break,
        }
    }
    assert_eq!(pages, [3, 3, 1]);
    let first = client.live().list_with::<Pet>(three).await.expect("listed");
    assert_eq!(first.len(), 3);
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn decode_failures_are_counted_by_kind_across_clusters() {
    #[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    #[kube(group = "petstore.example.com", version = "v1", kind = "Pet", root = "Odd", namespaced)]
    struct OddSpec {
        name: u32,
    }
    let (home, away) = (Bench::start().await, Bench::start().await);
    home.create(&pet("thor")).await;
    away.create(&pet("tron")).await;
    let mut manager = home.manager();
    let cluster = manager.add_cluster("away", away.kube.clone()).expect("added");
    let some = windlass::cache::Scope::default().namespace("default");
    let listers = [manager.lister::<Odd>(), cluster.lister(), manager.client().caches().lister_in(&(), &some)];
    let metrics = manager.registry().clone();
    let running = Running::ready(manager).await;
    assert!(listers.iter().all(windlass::cache::Lister::is_empty));
    let text = metrics.encode();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("windlass_cache_decode_errors_total")).collect();
    assert_eq!(lines, ["windlass_cache_decode_errors_total{kind=\"pets.petstore.example.com/v1\"} 3"]);
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn metadata_only_is_all_that_is_asked_for() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let asked: Log<String> = Log::default();
    let (log, key) = (asked.clone(), ObjectKey::new("default", "thor"));
    let kube = through(&bench, move |request, service| {
        let accept = request.headers().get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
        log.push(accept.unwrap_or_default().to_owned());
        forward(request, service)
    });
    let client = CachedClient::standalone(kube, "it");
    let form = |kind: &str| format!("application/json;as={kind};g=meta.k8s.io;v=v1");
    type Meta = PartialObjectMeta<Pet>;
    assert!(client.get::<Meta>(&key).await.expect("read").is_some());
    assert_eq!(asked.entries(), [form("PartialObjectMetadata")], "the watch");
    assert!(client.live().get::<Meta>(&key).await.expect("read").is_some());
    client.live().list::<Meta>().await.expect("listed");
    assert_eq!(asked.entries()[1..], [form("PartialObjectMetadata"), form("PartialObjectMetadataList")]);
    client.caches().stop().await;
}
