//! Cached reads show this process's writes before the watch does, whatever types and scopes are
//! used to write and to read.

use std::convert::Infallible;

use futures::StreamExt;
use http_body_util::BodyExt;
use k8s_openapi::api::autoscaling::{v1, v2};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta, Patch, PostParams};
use kube::core::Selector;
use serde_json::json;
use tokio::sync::watch;
use tower::ServiceExt;
use windlass::Draft;
use windlass::cache::Scope;
use windlass::client::options::ListOptions;
use windlass::informer::Change;
use windlass::{CachedClient, ObjectKey, finalizer};

use crate::adversity::{forward, through};
use crate::bench::{Bench, Log, Pet, pet, wait_for};

/// A client whose watches say nothing more once they are told to be silent.
pub fn silenced(bench: &Bench) -> (CachedClient, watch::Sender<bool>) {
    let (silence, told) = watch::channel(false);
    let service = bench.server.service();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, told) = (service.clone(), told.clone());
        async move {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let Ok(response) = service.oneshot(request).await;
            let (parts, body) = response.into_parts();
            let frames = body.into_data_stream().then(move |data| {
                let silent = watches && *told.borrow();
                async move { if silent { std::future::pending().await } else { data.map(http_body::Frame::data) } }
            });
            Ok::<_, Infallible>(http::Response::from_parts(parts, http_body_util::StreamBody::new(frames.boxed())))
        }
    });
    (CachedClient::standalone(kube::Client::new(service, "default"), "test"), silence)
}

fn kind(name: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", name))
}

pub fn map(namespace: &str, name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some(namespace.into());
    map.metadata.name = Some(name.into());
    map
}

#[tokio::test]
async fn writes_are_not_seen_in_other_kinds_of_their_type() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    let maps = client.dynamic(&kind("ConfigMap"));
    let secrets = client.dynamic(&kind("Secret"));
    let key = ObjectKey::new("default", "x");
    assert!(maps.get(&key).await.expect("read").is_none() && secrets.get(&key).await.expect("read").is_none());
    silence.send_replace(true);
    let object = DynamicObject::new("x", &kind("ConfigMap")).within("default").data(json!({"data": {"a": "b"}}));
    maps.create(&object).await.expect("created");
    assert!(maps.get(&key).await.expect("read").is_some());
    assert!(secrets.get(&key).await.expect("read").is_none());
    let secret = DynamicObject::new("x", &kind("Secret")).within("default").data(json!({}));
    secrets.create(&secret).await.expect("created");
    maps.delete(&key).await.expect("deleted");
    assert!(maps.get(&key).await.expect("read").is_none());
    assert!(secrets.get(&key).await.expect("read").is_some());
    client.caches().stop().await;
}

#[tokio::test]
async fn a_write_is_seen_in_every_form_of_its_kind() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    let (typed, key) = (client.objects::<ConfigMap>(), ObjectKey::new("default", "x"));
    let dynamic = client.dynamic(&kind("ConfigMap"));
    let metadata = client.objects::<PartialObjectMeta<ConfigMap>>();
    typed.list().await.expect("listed");
    dynamic.list().await.expect("listed");
    metadata.list().await.expect("listed");
    silence.send_replace(true);

    let mut written = map("default", "x");
    written.data = Some([("a".to_owned(), "b".to_owned())].into());
    typed.create(&written).await.expect("created");
    let seen = dynamic.get(&key).await.expect("read").expect("there");
    assert_eq!(seen.data["data"]["a"], "b");
    assert!(metadata.get(&key).await.expect("read").is_some());

    let label = |value: &str| Patch::Merge(json!({"metadata": {"labels": {"form": value}}}));
    metadata.patch(&key, &label("metadata")).await.expect("patched");
    let seen = typed.get(&key).await.expect("read").expect("there");
    assert_eq!(seen.metadata.labels.as_ref().map(|labels| labels["form"].as_str()), Some("metadata"));
    assert_eq!(seen.data.as_ref().map(|data| data["a"].as_str()), Some("b"));

    dynamic.patch(&key, &label("dynamic")).await.expect("patched");
    let seen = typed.get(&key).await.expect("read").expect("there");
    assert_eq!(seen.metadata.labels.as_ref().map(|labels| labels["form"].as_str()), Some("dynamic"));

    typed.delete(&key).await.expect("deleted");
    assert!(dynamic.get(&key).await.expect("read").is_none());
    assert!(metadata.get(&key).await.expect("read").is_none());
    client.caches().stop().await;
}

pub async fn with_namespaces(bench: &Bench) {
    for name in ["a", "b"] {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.into());
        let namespaces = Api::<Namespace>::all(bench.kube.clone());
        namespaces.create(&PostParams::default(), &namespace).await.expect("created");
    }
}

#[tokio::test]
async fn a_read_looks_in_every_scope_that_covers_the_object() {
    let bench = Bench::start().await;
    with_namespaces(&bench).await;
    let client = bench.client();
    let of_app = || Scope::default().labels(Selector::from_iter([("app".to_owned(), "x".to_owned())]));
    let in_a = client.caches().lister_in::<ConfigMap>(&(), &Scope::default().namespace("a"));
    let labelled = client.caches().lister_in::<ConfigMap>(&(), &of_app());
    in_a.wait_synced().await.expect("synced");
    labelled.wait_synced().await.expect("synced");
    for namespace in ["a", "b"] {
        let mut both = map(namespace, "m");
        both.metadata.labels = Some([("app".to_owned(), "x".to_owned())].into());
        client.create(&both).await.expect("created");
    }
    client.create(&map("a", "plain")).await.expect("created");
    for key in [ObjectKey::new("a", "m"), ObjectKey::new("b", "m"), ObjectKey::new("a", "plain")] {
        assert!(client.get::<ConfigMap>(&key).await.expect("read").is_some(), "{key}");
    }
    wait_for("the watches", async || labelled.len() == 2).await;
    let every = client.lister::<ConfigMap>();
    every.wait_synced().await.expect("synced");
    assert_eq!((every.len(), every.list().len(), every.keys().len()), (3, 3, 3));
    client.caches().stop().await;
}

#[tokio::test]
async fn writes_are_seen_in_matching_field_scopes() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    let scope = Scope::default().fields("type=example.com/chip,metadata.name!=hidden");
    let chips = client.caches().lister_in::<Secret>(&(), &scope);
    chips.wait_synced().await.expect("synced");
    silence.send_replace(true);
    for (name, type_, selected) in
        [("a", "example.com/chip", true), ("b", "Opaque", false), ("hidden", "example.com/chip", false)]
    {
        let mut secret = Secret { type_: Some(type_.to_owned()), ..Secret::default() };
        secret.metadata.namespace = Some("default".into());
        secret.metadata.name = Some(name.into());
        client.create(&secret).await.expect("created");
        assert_eq!(chips.get(&ObjectKey::new("default", name)).is_some(), selected, "{name}");
    }
    client.caches().stop().await;
}

/// Lists leave the kind out of their items.
#[tokio::test]
async fn dynamic_objects_always_say_their_kind() {
    let bench = Bench::start().await;
    let client = bench.client();
    client.create(&map("default", "m")).await.expect("created");
    let maps = client.dynamic(&kind("ConfigMap"));
    let listed = maps.live().list_with(ListOptions::new().namespace("default")).await.expect("listed");
    let found = maps.live().get(&ObjectKey::new("default", "m")).await.expect("read");
    let cached = maps.get(&ObjectKey::new("default", "m")).await.expect("read").expect("there");
    for object in listed.iter().chain(&found).chain([&*cached]) {
        assert_eq!(object.types.as_ref().map(|types| types.kind.as_str()), Some("ConfigMap"));
    }
    client.caches().stop().await;
}

#[tokio::test]
async fn removing_the_last_finalizer_removes_the_object() {
    const HELD: &str = "example.com/held";
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    let maps = client.lister::<ConfigMap>();
    maps.wait_synced().await.expect("synced");
    let ways = ["modify", "patch", "draft", "remove"];
    for way in ways {
        let mut held = map("default", way);
        held.metadata.finalizers = Some(vec![HELD.to_owned()]);
        client.create(&held).await.expect("created");
        client.delete::<ConfigMap>(&ObjectKey::new("default", way)).await.expect("deleted");
    }
    silence.send_replace(true);
    for way in ways {
        let key = ObjectKey::new("default", way);
        let held = client.get::<ConfigMap>(&key).await.expect("read").expect("the finalizer holds it");
        match way {
            "modify" => drop(client.modify::<ConfigMap>(&key, |map| map.metadata.finalizers = None).await.expect(way)),
            "patch" => {
                let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                client.patch::<ConfigMap>(&key, &none).await.expect(way);
            }
            "draft" => {
                let mut draft = Draft::new(held);
                draft.metadata.finalizers = None;
                draft.commit(&client).await.expect(way);
            }
            _ => finalizer::remove(&client, held, HELD).await.expect(way),
        }
        assert!(client.get::<ConfigMap>(&key).await.expect("read").is_none(), "{way}");
    }
    client.caches().stop().await;
}

#[tokio::test]
async fn a_namespace_that_is_being_emptied_is_still_there() {
    let bench = Bench::start().await;
    with_namespaces(&bench).await;
    let (client, silence) = silenced(&bench);
    let namespaces = client.lister::<Namespace>();
    namespaces.wait_synced().await.expect("synced");
    silence.send_replace(true);
    let key = ObjectKey::cluster("a");
    client.delete::<Namespace>(&key).await.expect("deleted");
    assert!(client.live().get::<Namespace>(&key).await.expect("read").is_some(), "nobody has emptied it");
    let seen = client.get::<Namespace>(&key).await.expect("read").expect("there");
    assert!(seen.metadata.deletion_timestamp.is_some());
    client.caches().stop().await;
}

fn scaler(most: i32) -> v2::HorizontalPodAutoscaler {
    let scaler = json!({
        "metadata": {"name": "h", "namespace": "default"},
        "spec": {"maxReplicas": most, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
    });
    serde_json::from_value(scaler).expect("a scaler")
}

#[tokio::test]
async fn a_write_is_seen_in_every_version_of_its_kind() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    let key = ObjectKey::new("default", "h");
    let cached = async || client.get::<v1::HorizontalPodAutoscaler>(&key).await.expect("read");
    assert!(cached().await.is_none());
    silence.send_replace(true);
    client.create(&scaler(3)).await.expect("created");
    assert_eq!(cached().await.map(|seen| seen.spec.max_replicas), Some(3));
    client.modify::<v2::HorizontalPodAutoscaler>(&key, |h| h.spec.max_replicas = 9).await.expect("modified");
    assert_eq!(cached().await.map(|seen| seen.spec.max_replicas), Some(9));
    client.delete::<v2::HorizontalPodAutoscaler>(&key).await.expect("deleted");
    assert!(cached().await.is_none());
    client.caches().stop().await;
}

/// The read that would tell how a write looks in the other version fails.
#[tokio::test]
async fn unknown_versions_are_read_live() {
    let bench = Bench::start().await;
    let (broken, is_broken) = watch::channel(false);
    let kube = through(&bench, move |request, service| {
        let is_broken = is_broken.clone();
        async move {
            let path = request.uri().path().to_owned();
            if *is_broken.borrow() && path == "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/h" {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError",
                    "code": 500, "message": "conversion failed"});
                let body = http_body_util::Full::from(status.to_string()).map_err(tower::BoxError::from);
                return http::Response::builder().status(500).body(body.boxed_unsync()).expect("a response");
            }
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            if watches && path.starts_with("/apis/autoscaling/v1/") && *is_broken.borrow() {
                return std::future::pending().await;
            }
            let (parts, body) = forward(request, service).await.into_parts();
            let frames = body.into_data_stream().then(move |data| {
                let silent = watches && *is_broken.borrow();
                async move { if silent { std::future::pending().await } else { data.map(http_body::Frame::data) } }
            });
            http::Response::from_parts(parts, http_body_util::StreamBody::new(frames.boxed()).boxed_unsync())
        }
    });
    let client = CachedClient::standalone(kube, "test");
    let key = ObjectKey::new("default", "h");
    let mut scaler = client.create(&scaler(3)).await.expect("created");
    let cached = async || client.get::<v1::HorizontalPodAutoscaler>(&key).await;
    assert_eq!(cached().await.expect("read").map(|seen| seen.spec.max_replicas), Some(3));
    broken.send_replace(true);
    scaler.spec.max_replicas = 9;
    client.update(&scaler).await.expect("updated, in the version that works");
    cached().await.expect_err("nobody can tell");
    client.list::<v1::HorizontalPodAutoscaler>().await.expect_err("nor here");
    broken.send_replace(false);
    let listed = client.list::<v1::HorizontalPodAutoscaler>().await.expect("listed");
    assert_eq!(listed.iter().map(|seen| seen.spec.max_replicas).collect::<Vec<_>>(), [9]);
    assert_eq!(cached().await.expect("read").map(|seen| seen.spec.max_replicas), Some(9));
    client.caches().stop().await;
}

/// A client that gets the answers to some requests only when it is allowed to, and tells of each that
/// waits. Its lists do not stream, and a watch that is among those requests never says anything.
fn delayed(
    bench: &Bench,
    slow: fn(&http::Request<kube::client::Body>) -> bool,
) -> (CachedClient, watch::Sender<bool>, Log<()>) {
    let ((allow, allowed), waiting) = (watch::channel(false), Log::default());
    let log = waiting.clone();
    let kube = through(bench, move |request, service| {
        let (mut allowed, log) = (allowed.clone(), log.clone());
        async move {
            let query = request.uri().query().unwrap_or_default();
            if query.contains("sendInitialEvents=true") {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid",
                    "code": 422, "message": "sendInitialEvents is forbidden"});
                let body = http_body_util::Full::from(status.to_string()).map_err(tower::BoxError::from);
                let response = http::Response::builder().status(422).body(body.boxed_unsync());
                return response.expect("a response");
            }
            let (is_slow, watches) = (slow(&request), query.contains("watch=true"));
            let (parts, body) = forward(request, service).await.into_parts();
            if !is_slow {
                return http::Response::from_parts(parts, body);
            }
            if watches {
                return std::future::pending().await;
            }
            let body = body.collect().await.expect("an answer").to_bytes();
            log.push(());
            let _ = allowed.wait_for(|allowed| *allowed).await;
            let body = http_body_util::Full::from(body).map_err(tower::BoxError::from);
            http::Response::from_parts(parts, body.boxed_unsync())
        }
    });
    (CachedClient::standalone(kube, "test"), allow, waiting)
}

#[tokio::test]
async fn writes_answered_after_own_deletion_restore_nothing() {
    let bench = Bench::start().await;
    let (client, allow, waiting) = delayed(&bench, |request| {
        request.method() == http::Method::PATCH || request.uri().query().is_some_and(|query| query.contains("watch="))
    });
    let key = ObjectKey::new("default", "x");
    client.lister::<ConfigMap>().wait_synced().await.expect("synced");
    client.create(&map("default", "x")).await.expect("created");
    let late = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move { client.patch::<ConfigMap>(&key, &Patch::Merge(json!({"data": {"a": "1"}}))).await }
    });
    wait_for("the patch is carried out", async || waiting.len() == 1).await;
    client.delete::<ConfigMap>(&key).await.expect("deleted");
    assert!(client.get::<ConfigMap>(&key).await.expect("read").is_none());
    allow.send_replace(true);
    late.await.expect("no panic").expect("patched before");
    assert!(client.get::<ConfigMap>(&key).await.expect("read").is_none());
    client.create(&map("default", "x")).await.expect("created");
    assert!(client.get::<ConfigMap>(&key).await.expect("read").is_some(), "another one");
    client.caches().stop().await;
}

#[tokio::test]
async fn objects_deleted_during_a_list_stay_gone() {
    let bench = Bench::start().await;
    let (client, allow, waiting) = delayed(&bench, |request| {
        request.method() == http::Method::GET && request.uri().query().is_some_and(|query| query.contains("limit=500"))
    });
    let (maps, key) = (client.lister::<ConfigMap>(), ObjectKey::new("default", "x"));
    let seen: Log<(bool, bool)> = Log::default();
    let (log, lister, own) = (seen.clone(), maps.clone(), key.clone());
    let subscription = maps.subscribe(move |change| {
        if ObjectKey::of(&**change.object()) == own {
            log.push((matches!(change, Change::Deleted { .. }), lister.get(&own).is_some()));
        }
    });
    wait_for("the list is made", async || waiting.len() == 1).await;
    client.create(&map("default", "x")).await.expect("created");
    assert!(maps.get(&key).is_some());
    client.delete::<ConfigMap>(&key).await.expect("deleted");
    assert!(maps.get(&key).is_none());
    allow.send_replace(true);
    wait_for("the watch tells of the deletion", async || seen.contains(&(true, false))).await;
    assert_eq!(seen.entries(), [(false, false), (true, false)]);
    drop(subscription);
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_while_it_is_modified_is_none() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let client = CachedClient::standalone(
        through(&bench, |request, service| async move {
            if request.method() == http::Method::PUT {
                let deletion = http::Request::delete(request.uri()).body(kube::client::Body::empty());
                forward(deletion.expect("a request"), service.clone()).await;
            }
            forward(request, service).await
        }),
        "it",
    );
    let key = ObjectKey::new("default", "thor");
    let modified = client.modify::<Pet>(&key, |pet| pet.spec.tricks = vec!["sit".into()]).await;
    assert!(modified.expect("no error").is_none());
    client.caches().stop().await;
}
