//! Watches, and `watcher`, which keeps one going.

use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::{everywhere, map, server_and_store};

/// Longer than anything takes; a test that waits this long has failed.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The next `count` items.
async fn take<T>(stream: &mut (impl Stream<Item = T> + Unpin), count: usize) -> Vec<T> {
    let items = stream.take(count).collect();
    tokio::time::timeout(WATCH_TIMEOUT, items).await.expect("the events come in time")
}

/// An event in a few words.
fn say<K: kube::Resource>(event: &watcher::Event<K>) -> String {
    let name = |object: &K| object.meta().name.clone().unwrap();
    match event {
        watcher::Event::Apply(object) => format!("apply {}", name(object)),
        watcher::Event::Delete(object) => format!("delete {}", name(object)),
        watcher::Event::Init => "init".into(),
        watcher::Event::InitApply(object) => format!("init {}", name(object)),
        watcher::Event::InitDone => "init done".into(),
    }
}

fn say_watch(event: &WatchEvent<ConfigMap>) -> String {
    match event {
        WatchEvent::Added(map) => format!("added {}", map.name_any()),
        WatchEvent::Modified(map) => format!("modified {}", map.name_any()),
        WatchEvent::Deleted(map) => format!("deleted {}", map.name_any()),
        WatchEvent::Bookmark(_) => "bookmark".into(),
        WatchEvent::Error(status) => format!("error {} {}", status.code, status.reason),
    }
}

/// Writes a little, so that a watcher has something to see.
async fn life_of_two(maps: &Api<ConfigMap>) {
    maps.create(&PostParams::default(), &map("two")).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"a": "2"}}));
    maps.patch("two", &PatchParams::default(), &patch).await.unwrap();
    maps.delete("two", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_watcher_lists_and_follows_with_and_without_streaming() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        maps.create(&PostParams::default(), &map("one")).await.unwrap();
        let listing = watcher::Config::default();
        let paging = watcher::Config::default().page_size(1);
        let streaming = watcher::Config::default().streaming_lists();
        for config in [listing, paging, streaming] {
            let mut events = watcher(maps.clone(), config).boxed();
            let initial = take(&mut events, 3).await;
            let initial: Vec<String> = initial.iter().map(|event| say(event.as_ref().unwrap())).collect();
            assert_eq!(initial, ["init", "init one", "init done"]);
            life_of_two(&maps).await;
            let changes = take(&mut events, 3).await;
            let changes: Vec<String> = changes.iter().map(|event| say(event.as_ref().unwrap())).collect();
            assert_eq!(changes, ["apply two", "apply two", "delete two"]);
        }
    })
    .await;
}

#[tokio::test]
async fn an_empty_collection_is_initialised_too() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
            let mut events = watcher(maps.clone(), config).boxed();
            let initial = take(&mut events, 2).await;
            let initial: Vec<String> = initial.iter().map(|event| say(event.as_ref().unwrap())).collect();
            assert_eq!(initial, ["init", "init done"]);
        }
    })
    .await;
}

#[tokio::test]
async fn a_watcher_with_a_selector_sees_objects_come_and_go() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let config = watcher::Config::default().labels("tier=front").streaming_lists();
        let mut events = watcher(maps.clone(), config).boxed();
        take(&mut events, 2).await;
        maps.create(&PostParams::default(), &map("one")).await.unwrap();
        for tier in ["front", "back"] {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"tier": tier}}}));
            maps.patch("one", &PatchParams::default(), &patch).await.unwrap();
        }
        let changes = take(&mut events, 2).await;
        let changes: Vec<String> = changes.iter().map(|event| say(event.as_ref().unwrap())).collect();
        assert_eq!(changes, ["apply one", "delete one"]);
    })
    .await;
}

#[tokio::test]
async fn metadata_is_watched_without_the_rest() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        maps.create(&PostParams::default(), &map("one")).await.unwrap();
        let metadata: Api<PartialObjectMeta<ConfigMap>> = Api::default_namespaced(client);
        for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
            let mut objects = watcher(metadata.clone(), config).applied_objects().boxed();
            let one = take(&mut objects, 1).await.pop().unwrap().unwrap();
            assert_eq!(one.labels()["app"], "one");
            assert_eq!(one.types.unwrap().kind, "PartialObjectMetadata");
        }
    })
    .await;
}

#[tokio::test]
async fn a_raw_watch_starts_where_it_is_told() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let one = maps.create(&PostParams::default(), &map("one")).await.unwrap();
        life_of_two(&maps).await;
        let from = one.resource_version().unwrap();
        let events = maps.watch(&WatchParams::default(), &from).await.unwrap();
        let seen: Vec<String> =
            take(&mut events.boxed(), 3).await.iter().map(|e| say_watch(e.as_ref().unwrap())).collect();
        assert_eq!(seen, ["added two", "modified two", "deleted two"]);

        let with_state = maps.watch(&WatchParams::default(), "0").await.unwrap();
        let seen: Vec<String> =
            take(&mut with_state.boxed(), 1).await.iter().map(|e| say_watch(e.as_ref().unwrap())).collect();
        assert_eq!(seen, ["added one"]);

        // A watch ends by itself after the time it asked for.
        let short = maps.watch(&WatchParams::default().timeout(1).disable_bookmarks(), &from).await.unwrap();
        let seen = tokio::time::timeout(WATCH_TIMEOUT, short.try_collect::<Vec<_>>()).await.expect("it ends").unwrap();
        assert_eq!(seen.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_watch_from_a_past_that_is_gone_has_expired() {
    let (server, client, store) = server_and_store().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let one = maps.create(&PostParams::default(), &map("one")).await.unwrap();
    life_of_two(&maps).await;
    let newest = *store.revision().borrow();
    store.compact(newest).await.unwrap();
    let from = one.resource_version().unwrap();
    match maps.watch(&WatchParams::default(), &from).await {
        Ok(events) => {
            let seen = take(&mut events.boxed(), 2).await;
            let seen: Vec<String> = seen.iter().map(|event| say_watch(event.as_ref().unwrap())).collect();
            assert_eq!(seen, ["error 410 Expired"]);
        }
        Err(error) => panic!("the watch is answered with an event: {error}"),
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn watches_end_with_the_server() {
    let (server, client, _store) = server_and_store().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let events = maps.watch(&WatchParams::default().timeout(290), "0").await.unwrap();
    server.stop().await.unwrap();
    let rest = tokio::time::timeout(WATCH_TIMEOUT, events.collect::<Vec<_>>()).await.expect("the watch ends");
    assert!(rest.iter().all(Result::is_ok), "{rest:?}");
}
