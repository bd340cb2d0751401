//! Cached reads show this process's writes before the watch does, whatever types and scopes are
//! used to write and to read.

use std::convert::Infallible;

use futures::StreamExt;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PartialObjectMeta, Patch, PostParams,
};
use kube::core::Selector;
use serde_json::json;
use tokio::sync::watch;
use tower::ServiceExt;
use windlass::cache::Scope;
use windlass::{Client, ObjectKey};

use crate::bench::{Bench, wait_for};

/// A client whose watches say nothing more once they are told to be silent.
pub fn silenced(bench: &Bench) -> (Client, watch::Sender<bool>) {
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
    (Client::standalone(kube::Client::new(service, "default"), "test"), silence)
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
async fn a_write_of_one_kind_is_not_seen_in_another_of_the_same_type() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    let maps = client.objects_with::<DynamicObject>(kind("ConfigMap"));
    let secrets = client.objects_with::<DynamicObject>(kind("Secret"));
    let key = ObjectKey::new("default", "x");
    assert!(maps.get(&key).await.expect("read").is_none() && secrets.get(&key).await.expect("read").is_none());
    silence.send_replace(true);
    let object = DynamicObject::new("x", &kind("ConfigMap")).within("default").data(json!({"data": {"a": "b"}}));
    maps.create(&object).await.expect("created");
    assert!(maps.get(&key).await.expect("read").is_some());
    assert!(secrets.get(&key).await.expect("read").is_none());
    let secret = DynamicObject::new("x", &kind("Secret")).within("default").data(json!({}));
    secrets.create(&secret).await.expect("created");
    maps.delete(&key, &DeleteParams::default()).await.expect("deleted");
    assert!(maps.get(&key).await.expect("read").is_none());
    assert!(secrets.get(&key).await.expect("read").is_some());
    client.caches().stop().await;
}

#[tokio::test]
async fn a_write_is_seen_in_every_form_of_its_kind() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    let (typed, key) = (client.objects::<ConfigMap>(), ObjectKey::new("default", "x"));
    let dynamic = client.objects_with::<DynamicObject>(kind("ConfigMap"));
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

    typed.delete(&key, &DeleteParams::default()).await.expect("deleted");
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
async fn a_write_is_seen_in_a_scope_of_fields_that_it_is_part_of() {
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
async fn an_object_of_a_kind_known_at_run_time_says_what_it_is_wherever_it_comes_from() {
    let bench = Bench::start().await;
    let client = bench.client();
    client.create(&map("default", "m")).await.expect("created");
    let maps = client.objects_with::<DynamicObject>(kind("ConfigMap"));
    let listed = maps.list_live(Some("default"), &ListParams::default()).await.expect("listed");
    let found = maps.get_live(&ObjectKey::new("default", "m")).await.expect("read");
    let cached = maps.get(&ObjectKey::new("default", "m")).await.expect("read").expect("there");
    for object in listed.iter().chain(&found).chain([&*cached]) {
        assert_eq!(object.types.as_ref().map(|types| types.kind.as_str()), Some("ConfigMap"));
    }
    client.caches().stop().await;
}
