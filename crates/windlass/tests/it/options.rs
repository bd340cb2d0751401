//! Writes and deletes with options: dry runs, field managers, preconditions, collections.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, Patch, PropagationPolicy, ValidationDirective};
use serde_json::json;
use windlass::client::options::{ApplyOptions, DeleteOptions, ListOptions, WriteOptions};
use windlass::{CachedClient, ObjectKey};

use crate::bench::{Bench, Pet, pet};
use crate::own_writes::{silenced, with_namespaces};

fn map(namespace: &str, name: &str, app: &str) -> ConfigMap {
    let metadata = json!({"namespace": namespace, "name": name, "labels": {"app": app}});
    serde_json::from_value(json!({"metadata": metadata, "data": {"a": "1"}})).expect("a map")
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

async fn cached(client: &CachedClient, name: &str) -> Option<String> {
    let map = client.get::<ConfigMap>(&key(name)).await.expect("read")?;
    Some(map.data.as_ref().map(|data| data["a"].clone()).unwrap_or_default())
}

#[tokio::test]
async fn a_dry_run_changes_neither_the_server_nor_the_cache() {
    let bench = Bench::start().await;
    let client = bench.client();
    let old = client.create(&map("default", "old", "web")).await.expect("created");
    let mut new = old.clone();
    new.data = Some([("a".to_owned(), "2".to_owned())].into());
    let (dry, patch) = (|| WriteOptions::new().dry_run(true), Patch::Merge(json!({"data": {"a": "2"}})));
    assert!(client.lister::<ConfigMap>().wait_synced().await.is_ok());

    let created = client.create_with(&map("default", "new", "web"), dry()).await.expect("would be created");
    assert!(created.metadata.uid.is_some());
    assert_eq!(cached(&client, "new").await, None);
    let applied = client.apply_with(&map("default", "new", "web"), ApplyOptions::new().dry_run(true)).await;
    assert!(applied.expect("would be created").metadata.uid.is_some());
    assert_eq!(cached(&client, "new").await, None);

    for written in [
        client.update_with(&new, dry()).await.expect("would be updated"),
        client.patch_with::<ConfigMap>(&key("old"), &patch, dry()).await.expect("would be patched"),
    ] {
        assert_eq!(written.data, new.data);
        assert_eq!(cached(&client, "old").await.as_deref(), Some("1"));
    }
    assert!(client.delete_with::<ConfigMap>(&key("old"), DeleteOptions::new().dry_run(true)).await.expect("would go"));
    let all = ListOptions::new().namespace("default").labels("app=web");
    let gone = client.delete_all_of::<ConfigMap>(all, DeleteOptions::new().dry_run(true)).await.expect("would go");
    assert_eq!(gone, [key("old")]);
    assert_eq!(cached(&client, "old").await.as_deref(), Some("1"));

    let mut thor = client.create(&pet("thor")).await.expect("created");
    thor.status.get_or_insert_default().id = Some("7".into());
    let named = |pet: Pet| pet.status.and_then(|status| status.id);
    let thors = ObjectKey::of(&thor);
    let status = Patch::Merge(json!({"status": {"id": "7"}}));
    thor.metadata.resource_version =
        client.live().get::<Pet>(&thors).await.expect("read").and_then(|thor| thor.metadata.resource_version);
    assert_eq!(named(client.update_status_with(&thor, dry()).await.expect("would be updated")).as_deref(), Some("7"));
    assert_eq!(named(client.patch_status_with(&thors, &status, dry()).await.expect("patched")).as_deref(), Some("7"));
    thor.metadata.resource_version = None;
    let applied = client.apply_status_with(&thor, ApplyOptions::new().dry_run(true)).await;
    assert_eq!(named(applied.expect("would be applied")).as_deref(), Some("7"));
    assert_eq!(client.get::<Pet>(&thors).await.expect("read").and_then(|thor| named(Pet::clone(&thor))), None);

    let live = client.live().list_with::<ConfigMap>(ListOptions::new().labels("app")).await.expect("listed");
    assert_eq!(live.len(), 1);
    assert_eq!(live[0].metadata.resource_version, old.metadata.resource_version);
    client.caches().stop().await;
}

#[tokio::test]
async fn an_apply_without_force_leaves_fields_to_their_owners() {
    let bench = Bench::start().await;
    let client = bench.client();
    client.apply(&map("default", "x", "web")).await.expect("applied");
    let mut mine = map("default", "x", "web");
    mine.data = Some([("a".to_owned(), "2".to_owned())].into());
    let other = || ApplyOptions::new().field_manager("other");
    let error = client.apply_with(&mine, other().force(false)).await.expect_err("owned by another");
    assert!(error.is_conflict(), "{error}");
    assert_eq!(cached(&client, "x").await.as_deref(), Some("1"));
    let applied = client.apply_with(&mine, other()).await.expect("taken over");
    assert_eq!(cached(&client, "x").await.as_deref(), Some("2"));
    let managers = applied.metadata.managed_fields.unwrap_or_default();
    assert!(managers.iter().any(|entry| entry.manager.as_deref() == Some("other")));
    client.caches().stop().await;
}

#[tokio::test]
async fn fields_that_are_not_known_are_refused_when_asked_for() {
    let bench = Bench::start().await;
    let client = bench.client();
    let kind = ApiResource::erase::<ConfigMap>(&());
    let maps = client.dynamic(&kind);
    let mut odd = kube::api::DynamicObject::new("odd", &kind).within("default");
    odd.data = json!({"colour": "red"});
    let strict = || WriteOptions::new().field_validation(ValidationDirective::Strict);
    let apply = ApplyOptions::new().field_validation(ValidationDirective::Strict);
    let patch = Patch::Merge(json!({"colour": "red"}));
    for refused in [
        maps.create_with(&odd, strict()).await,
        maps.apply_with(&odd, apply).await,
        {
            client.create(&map("default", "odd", "web")).await.expect("created");
            maps.patch_with(&key("odd"), &patch, strict()).await
        },
        maps.update_with(&odd, strict()).await,
    ] {
        let error = refused.expect_err("no such field").to_string();
        assert!(error.contains("colour"), "{error}");
    }
    let ignoring = WriteOptions::new().field_validation(ValidationDirective::Ignore).field_manager("other");
    maps.patch_with(&key("odd"), &patch, ignoring).await.expect("patched");
    client.caches().stop().await;
}

#[tokio::test]
async fn a_precondition_keeps_another_object_from_being_deleted() {
    let bench = Bench::start().await;
    let client = bench.client();
    let first = client.create(&map("default", "x", "web")).await.expect("created");
    let changed = client.apply(&map("default", "x", "db")).await.expect("applied");
    let delete = async |options: DeleteOptions| client.delete_with::<ConfigMap>(&key("x"), options).await;
    assert!(delete(DeleteOptions::of(&first)).await.expect_err("it has changed").is_conflict());
    assert!(delete(DeleteOptions::new().uid("another")).await.expect_err("another").is_conflict());
    assert!(delete(DeleteOptions::new().resource_version("1")).await.expect_err("older").is_conflict());
    assert!(cached(&client, "x").await.is_some());
    assert!(delete(DeleteOptions::of(&changed)).await.expect("deleted"));
    assert!(cached(&client, "x").await.is_none());
    assert!(!delete(DeleteOptions::new()).await.expect("there is none"));

    client.create(&map("default", "x", "web")).await.expect("created");
    let foreground = DeleteOptions::new().propagation(PropagationPolicy::Foreground);
    assert!(delete(foreground).await.expect("begun"));
    let held = client.get::<ConfigMap>(&key("x")).await.expect("read").expect("held");
    assert_eq!(held.metadata.finalizers.as_deref(), Some(&["foregroundDeletion".to_owned()][..]));
    client.caches().stop().await;
}

/// Their own writes, as far as caches go: what is gone is gone, what is held is shown as being deleted.
#[tokio::test]
async fn a_deleted_collection_is_seen_by_cached_reads() {
    let bench = Bench::start().await;
    with_namespaces(&bench).await;
    let (client, silence) = silenced(&bench);
    for (namespace, name, app) in [("a", "x", "web"), ("a", "y", "db"), ("b", "z", "web")] {
        client.create(&map(namespace, name, app)).await.expect("created");
    }
    let mut held = map("b", "held", "web");
    held.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    client.create(&held).await.expect("created");
    client.lister::<ConfigMap>().wait_synced().await.expect("listed");
    let dynamic = client.dynamic(&ApiResource::erase::<ConfigMap>(&()));
    dynamic.list().await.expect("listed");
    silence.send_replace(true);

    let web = || ListOptions::new().labels("app=web");
    let mut gone = client.delete_all_of::<ConfigMap>(web(), DeleteOptions::new()).await.expect("deleted");
    gone.sort();
    assert_eq!(gone.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a/x", "b/held", "b/z"]);
    let left = client.list_with::<ConfigMap>(web()).await.expect("listed");
    assert_eq!(left.iter().map(|map| ObjectKey::of(map).to_string()).collect::<Vec<_>>(), ["b/held"]);
    assert!(left[0].metadata.deletion_timestamp.is_some());
    let left = dynamic.get(&ObjectKey::new("b", "held")).await.expect("read").expect("held");
    assert!(left.metadata.deletion_timestamp.is_some(), "in every form of the kind");
    assert!(dynamic.get(&ObjectKey::new("b", "z")).await.expect("read").is_none());
    assert!(client.get::<ConfigMap>(&ObjectKey::new("a", "y")).await.expect("read").is_some(), "not selected");

    let gone = client.delete_all_of::<ConfigMap>(ListOptions::new().namespace("a"), DeleteOptions::new()).await;
    assert!(gone.expect("deleted").contains(&ObjectKey::new("a", "y")));
    assert!(client.list_with::<ConfigMap>(ListOptions::new().namespace("a")).await.expect("listed").is_empty());
    let none = dynamic.delete_all_of(ListOptions::new().labels("app=none"), DeleteOptions::new()).await;
    assert_eq!(none.expect("nothing to do"), []);
    client.caches().stop().await;
}

#[tokio::test]
async fn a_collection_of_another_shape_is_refused() {
    let bench = Bench::start().await;
    let client = bench.client();
    let map = client.create(&map("default", "x", "web")).await.expect("created");
    let all = || ListOptions::new().namespace("default");
    for (list, delete) in [
        (all().limit(1), DeleteOptions::new()),
        (all().continue_from("token"), DeleteOptions::new()),
        (all().index("app", "web"), DeleteOptions::new()),
        (all().labels("app=("), DeleteOptions::new()),
        (all(), DeleteOptions::of(&map)),
    ] {
        let error = client.delete_all_of::<ConfigMap>(list, delete).await.expect_err("refused").to_string();
        assert!(error.starts_with("delete all configmaps/v1: "), "{error}");
    }
    assert!(cached(&client, "x").await.is_some());
    client.caches().stop().await;
}
