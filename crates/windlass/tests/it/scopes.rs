//! Watches that are narrowed to a part of a kind leave no other reads incomplete.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::autoscaling;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::core::Selector;
use serde_json::json;
use tower::ServiceExt;
use windlass::cache::Scope;
use windlass::children::{ChildError, Children, Pruned};
use windlass::controller::{Watch, from_fn, from_key_fn};
use windlass::informer::Change;
use windlass::owner::OwnerError;
use windlass::{CachedClient, Context, Controller, Manager, ObjectKey, Outcome, owner};
use windlass_server::authn::User;

use crate::bench::{Bench, Log, Running, wait_for};
use crate::own_writes::{map, silenced, with_namespaces};

fn labelled(label: &str) -> Scope {
    Scope::default().labels(Selector::from_iter([(label.to_owned(), "1".to_owned())]))
}

fn secret(name: &str, labels: &[&str]) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.namespace = Some("default".into());
    secret.metadata.name = Some(name.into());
    secret.metadata.labels = Some(labels.iter().map(|&label| (label.to_owned(), "1".to_owned())).collect());
    secret
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn keys(pruned: &[Pruned]) -> Vec<ObjectKey> {
    pruned.iter().map(|child| child.key.clone()).collect()
}

/// A client that counts its reads of single objects.
fn counted(bench: &Bench) -> (CachedClient, Arc<AtomicUsize>) {
    let (service, gets) = (bench.server.service(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&gets);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let single = request.method() == http::Method::GET && request.uri().path().contains("/secrets/");
        counter.fetch_add(usize::from(single), Ordering::Relaxed);
        service.clone().oneshot(request)
    });
    (CachedClient::standalone(kube::Client::new(service, "default"), "it"), gets)
}

#[tokio::test]
async fn reads_outside_a_narrowed_cache_go_to_the_server() {
    let bench = Bench::start().await;
    let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
    for object in [secret("plain", &[]), secret("ours", &["a"])] {
        secrets.create(&PostParams::default(), &object).await.expect("created");
    }
    let (client, gets) = counted(&bench);
    let narrow = client.caches().lister_in::<Secret>(&(), &labelled("a"));
    narrow.wait_synced().await.expect("synced");
    assert!(client.get::<Secret>(&key("ours")).await.expect("read").is_some());
    assert_eq!(gets.load(Ordering::Relaxed), 0, "what is held is not asked for");
    let plain = client.get::<Secret>(&key("plain")).await.expect("read").expect("there");
    assert_eq!(plain.metadata.managed_fields, None, "as the cache would have it");
    assert!(client.get::<Secret>(&key("none")).await.expect("read").is_none());
    assert_eq!(gets.load(Ordering::Relaxed), 2);

    // One's own writes, also those that take an object out of what is held.
    client.create(&secret("made", &[])).await.expect("created");
    assert!(client.get::<Secret>(&key("made")).await.expect("read").is_some());
    let unlabel = Patch::Merge(json!({"metadata": {"labels": null}}));
    client.patch::<Secret>(&key("ours"), &unlabel).await.expect("patched");
    assert!(narrow.get(&key("ours")).is_none());
    let ours = client.get::<Secret>(&key("ours")).await.expect("read").expect("there");
    assert_eq!(ours.metadata.labels, None);
    client.delete::<Secret>(&key("ours")).await.expect("deleted");
    assert!(client.get::<Secret>(&key("ours")).await.expect("read").is_none());

    // Nor is anything left out of a list, and from then on all is known.
    let (narrow, before) = (narrow.len(), gets.load(Ordering::Relaxed));
    assert_eq!((narrow, client.list::<Secret>().await.expect("listed").len()), (0, 2));
    assert!(client.get::<Secret>(&key("plain")).await.expect("read").is_some());
    assert!(client.get::<Secret>(&key("none")).await.expect("read").is_none());
    assert_eq!(gets.load(Ordering::Relaxed), before);
    client.caches().stop().await;
}

#[tokio::test]
async fn a_cache_of_one_name_decides_about_that_name() {
    let bench = Bench::start().await;
    let (client, gets) = counted(&bench);
    let named = client.caches().lister_in::<Secret>(&(), &Scope::default().fields("metadata.name=x"));
    named.wait_synced().await.expect("synced");
    assert!(client.get::<Secret>(&key("x")).await.expect("read").is_none());
    assert_eq!(gets.load(Ordering::Relaxed), 0);
    client.create(&secret("x", &[])).await.expect("created");
    client.create(&secret("y", &[])).await.expect("created");
    assert!(client.get::<Secret>(&key("x")).await.expect("read").is_some());
    assert_eq!(gets.load(Ordering::Relaxed), 0);
    assert!(client.get::<Secret>(&key("y")).await.expect("read").is_some());
    assert_eq!(gets.load(Ordering::Relaxed), 1);
    client.caches().stop().await;
}

#[tokio::test]
async fn what_another_namespace_holds_is_read_although_one_is_watched() {
    let bench = Bench::start().await;
    with_namespaces(&bench).await;
    let client = bench.client();
    let in_a = client.caches().lister_in::<ConfigMap>(&(), &Scope::default().namespace("a"));
    in_a.wait_synced().await.expect("synced");
    for namespace in ["a", "b"] {
        client.create(&map(namespace, "own")).await.expect("created");
    }
    assert!(client.get::<ConfigMap>(&ObjectKey::new("b", "own")).await.expect("read").is_some());
    assert!(client.get::<ConfigMap>(&ObjectKey::new("b", "none")).await.expect("read").is_none());
    assert_eq!((client.list::<ConfigMap>().await.expect("listed").len(), in_a.len()), (2, 1));
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_controllers_narrowed_watch_hides_nothing_from_another() {
    let bench = Bench::start().await;
    let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
    secrets.create(&PostParams::default(), &secret("plain", &[])).await.expect("created");
    let maps: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "default");
    maps.create(&PostParams::default(), &map("default", "owner")).await.expect("created");
    let mut manager = bench.manager();
    let narrow = Controller::<Secret>::new("narrow").scope(labelled("a"));
    manager.add(narrow.complete(from_fn(|_, _| async { Ok(Outcome::Done) }))).expect("added");
    let log: Log<Vec<bool>> = Log::default();
    let seen = log.clone();
    let reader = from_key_fn(move |owner: ObjectKey, ctx: Context| {
        let seen = seen.clone();
        async move {
            let owner = ctx.get::<ConfigMap>(&owner).await?.ok_or("gone")?;
            let plain = ctx.get::<Secret>(&key("plain")).await?.is_some();
            ctx.client().create(&secret("made", &[])).await?;
            let made = ctx.get::<Secret>(&key("made")).await?.is_some();
            ctx.children(&owner).apply(secret("child", &[])).await?;
            let gone = ctx.children(&owner).kind::<Secret>().prune().await?;
            seen.push(vec![plain, made, keys(&gone) == [key("child")]]);
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<ConfigMap>::new("reader").complete_keyed(reader)).expect("added");
    let running = Running::start(manager);
    wait_for("the reader", async || log.len() > 0).await;
    assert_eq!(log.entries(), [vec![true, true, true]]);
    assert!(secrets.get_opt("child").await.expect("read").is_none());
    running.stop().await.expect("stopped");
}

/// What has left the part of its kind that a controller looks after is gone for it, and for no other.
#[tokio::test(start_paused = true)]
async fn a_controller_sees_only_its_part_of_its_kind() {
    let bench = Bench::start().await;
    let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
    for object in [secret("stays", &["a"]), secret("leaves", &["a"]), secret("plain", &[])] {
        secrets.create(&PostParams::default(), &object).await.expect("created");
    }
    let log: Log<(String, bool, bool, usize)> = Log::default();
    let seen = log.clone();
    let mut manager = bench.manager();
    let reconciler = from_key_fn(move |own: ObjectKey, ctx: Context| {
        let seen = seen.clone();
        async move {
            let looked_after = ctx.get::<Secret>(&own).await?.is_some();
            let there = ctx.client().get::<Secret>(&own).await?.is_some();
            seen.push((own.name().to_owned(), looked_after, there, ctx.list::<Secret>().await?.len()));
            Ok(Outcome::Done)
        }
    });
    let narrow = Controller::<Secret>::new("narrow").scope(labelled("a"));
    manager.add(narrow.complete_keyed(reconciler)).expect("added");
    let running = Running::start(manager);
    wait_for("both", async || log.contains(&("leaves".into(), true, true, 2)) && log.len() == 2).await;
    let unlabel = Patch::Merge(json!({"metadata": {"labels": null}}));
    secrets.patch("leaves", &PatchParams::default(), &unlabel).await.expect("patched");
    wait_for("the leave", async || log.contains(&("leaves".into(), false, true, 1))).await;
    running.stop().await.expect("stopped");
}

/// With the rules that its controllers yield, an operator of one namespace reads what it does not watch
/// there, and is told what is missing where it may not look.
#[tokio::test(start_paused = true)]
async fn reading_past_a_scope_needs_no_further_permission() {
    let bench = Bench::start().await;
    with_namespaces(&bench).await;
    let user = User { name: "operator".into(), groups: vec!["system:authenticated".into()], ..User::anonymous() };
    let kube = kube::Client::new(bench.server.service_as(user), "default");
    let log: Log<String> = Log::default();
    let build = || {
        let mut manager = Manager::builder(kube.clone()).name("operator").build().expect("built");
        let owned = Watch::<Secret>::default().scope(labelled("a").namespace("a"));
        let seen = log.clone();
        let reconciler = from_key_fn(move |owner: ObjectKey, ctx: Context| {
            let seen = seen.clone();
            async move {
                let owner = ctx.get::<ConfigMap>(&owner).await?.ok_or("gone")?;
                let mut child = secret("child", &[]);
                child.metadata.namespace = Some("a".into());
                ctx.children(&owner).apply(child).await?;
                assert!(ctx.get::<Secret>(&ObjectKey::new("a", "child")).await?.is_some());
                let gone = ctx.children(&owner).kind::<Secret>().prune().await?;
                assert_eq!(keys(&gone), [ObjectKey::new("a", "child")]);
                assert!(ctx.get::<Secret>(&ObjectKey::new("a", "child")).await?.is_none());
                seen.push(ctx.list::<Secret>().await.expect_err("not allowed").to_string());
                // What failed for one reader is in no other's way.
                assert!(ctx.get::<Secret>(&ObjectKey::new("a", "child")).await?.is_none());
                assert!(ctx.children(&owner).kind::<Secret>().prune().await?.is_empty());
                seen.push("done".to_owned());
                Ok(Outcome::Done)
            }
        });
        let maps = Controller::<ConfigMap>::new("maps").owns_with(owned).scope(Scope::default().namespace("a"));
        manager.add(maps.complete_keyed(reconciler)).expect("added");
        manager
    };
    bench.grant("operator", &build().rules()).await;
    let maps: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "a");
    maps.create(&PostParams::default(), &map("a", "owner")).await.expect("created");
    let running = Running::ready(build()).await;
    wait_for("the reconciler", async || log.contains(&"done".to_owned())).await;
    let error = log.entries().remove(0);
    assert!(error.contains("resources: [secrets]\n  verbs: [get, list, watch]"), "{error}");
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn overlapping_scopes_tell_of_an_object_once() {
    let bench = Bench::start().await;
    let client = bench.client();
    for label in ["a", "b"] {
        client.caches().lister_in::<Secret>(&(), &labelled(label)).wait_synced().await.expect("synced");
    }
    let lister = client.lister::<Secret>();
    lister.wait_synced().await.expect("synced");
    let told: Arc<Mutex<Vec<&str>>> = Arc::default();
    let log = Arc::clone(&told);
    let subscription = lister.subscribe(move |change| {
        log.lock().expect("not poisoned").push(match change {
            Change::Added { .. } => "added",
            Change::Updated { .. } => "updated",
            Change::Deleted { .. } => "deleted",
            Change::Resync { .. } => "resync",
        });
    });
    let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
    secrets.create(&PostParams::default(), &secret("s", &["a", "b"])).await.expect("created");
    let unlabel = Patch::Merge(json!({"metadata": {"labels": {"b": null}}}));
    secrets.patch("s", &PatchParams::default(), &unlabel).await.expect("patched");
    secrets.create(&PostParams::default(), &secret("last", &[])).await.expect("created");
    wait_for("the last", async || lister.get(&key("last")).is_some()).await;
    assert_eq!(*told.lock().expect("not poisoned"), ["added", "updated", "added"]);
    assert_eq!((lister.len(), lister.list().len(), lister.keys().len()), (2, 2, 2));
    drop(subscription);
    client.caches().stop().await;
}

#[tokio::test]
async fn a_child_that_another_controls_by_now_is_not_pruned() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    let first = client.create(&map("default", "first")).await.expect("created");
    let second = client.create(&map("default", "second")).await.expect("created");
    let lister = client.lister::<Secret>();
    lister.wait_synced().await.expect("synced");
    for name in ["adopted", "changed", "made anew"] {
        let name = name.replace(' ', "-");
        Children::of(&client, &first).apply(secret(&name, &[])).await.expect("applied");
    }
    let cluster_scoped = Children::of(&client, &first).apply(ClusterRole::default()).await;
    assert!(matches!(cluster_scoped, Err(ChildError::Owner(OwnerError::NoNamespace { .. }))));
    wait_for("the watch", async || lister.owned_by(&first).len() == 3).await;
    silence.send_replace(true);
    // Another client's doing, of which the cache does not hear.
    let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
    let mut adopted = secrets.get("adopted").await.expect("there");
    owner::remove(&mut adopted, &first);
    owner::set_controller(&mut adopted, &second).expect("nobody else's");
    secrets.replace("adopted", &PostParams::default(), &adopted).await.expect("replaced");
    let label = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    secrets.patch("changed", &PatchParams::default(), &label).await.expect("patched");
    secrets.delete("made-anew", &kube::api::DeleteParams::default()).await.expect("deleted");
    let mut anew = secret("made-anew", &[]);
    owner::set_controller(&mut anew, &first).expect("nobody else's");
    secrets.create(&PostParams::default(), &anew).await.expect("created");

    let gone = Children::of(&client, &first).kind::<Secret>().prune().await.expect("pruned");
    assert_eq!(keys(&gone), [key("changed")]);
    assert!(secrets.get_opt("adopted").await.expect("read").is_some());
    assert!(secrets.get_opt("made-anew").await.expect("read").is_some(), "looked at with the next change");
    client.caches().stop().await;
}

/// Two types may stand for one kind: what is wanted as one is not pruned as the other.
#[tokio::test]
async fn children_wanted_as_another_type_are_not_pruned() {
    let bench = Bench::start().await;
    let client = bench.client();
    let owner = client.create(&map("default", "owner")).await.expect("created");
    let mut children = Children::of(&client, &owner);
    children.kind::<PartialObjectMeta<Secret>>();
    children.apply(secret("child", &[])).await.expect("applied");
    assert_eq!(children.prune().await.expect("pruned"), []);

    let scaler = json!({
        "metadata": {"name": "child"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
    });
    let scaler: autoscaling::v2::HorizontalPodAutoscaler = serde_json::from_value(scaler).expect("a scaler");
    let named = || {
        let mut children = Children::of(&client, &owner);
        children.kind::<autoscaling::v1::HorizontalPodAutoscaler>();
        children
    };
    let mut children = named();
    children.apply(scaler).await.expect("applied");
    assert_eq!(children.prune().await.expect("pruned"), []);
    assert_eq!(keys(&named().prune().await.expect("pruned")), [key("child")], "not wanted any more");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_scope_is_forgotten_in_all_namespaces_of_a_manager() {
    let bench = Bench::start().await;
    with_namespaces(&bench).await;
    let manager = Manager::builder(bench.kube.clone()).namespaces(["a", "b"]).build().expect("built");
    let client = manager.client().clone();
    let running = Running::ready(manager).await;
    let scope = labelled("a");
    let old = client.caches().lister_in::<ConfigMap>(&(), &scope);
    old.wait_synced().await.expect("synced");
    let one = client.caches().lister_in::<ConfigMap>(&(), &scope.clone().namespace("b"));
    let other = client.lister::<ConfigMap>();
    other.wait_synced().await.expect("synced");
    let before = other.len();
    client.caches().forget_in::<ConfigMap>(&(), &scope);
    let maps: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "b");
    let mut late = map("b", "late");
    late.metadata.labels = Some([("a".to_owned(), "1".to_owned())].into());
    maps.create(&PostParams::default(), &late).await.expect("created");
    let new = client.caches().lister_in::<ConfigMap>(&(), &scope);
    wait_for("a new watch", async || new.len() == 1).await;
    assert!(old.is_empty(), "the old lister learns nothing more");
    assert!(one.is_empty(), "nor does one of the same watch in one of the namespaces");
    wait_for("what others see", async || other.len() == before + 1).await;
    running.stop().await.expect("stopped");
}

/// As in controller-runtime, where an empty `WATCH_NAMESPACE` is for all of them.
#[tokio::test(start_paused = true)]
async fn the_empty_namespace_means_all() {
    let bench = Bench::start().await;
    with_namespaces(&bench).await;
    for namespaces in [&[""][..], &["default", ""], &[]] {
        let seen = Log::default();
        let log = seen.clone();
        let mut manager = Manager::builder(bench.kube.clone())
            .name("it")
            .namespaces(namespaces.iter().copied())
            .build()
            .expect("built");
        let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
            log.push(key);
            async { Ok(Outcome::Done) }
        });
        let maps = Controller::<ConfigMap>::new("maps").scope(Scope::default().namespace(""));
        manager.add(maps.complete_keyed(reconciler)).expect("added");
        assert!(manager.rules().roles("it").is_empty(), "{}", manager.rules());
        let (client, running) = (manager.client().clone(), Running::ready(manager).await);
        for namespace in ["a", "b"] {
            let made = map(namespace, "everywhere");
            let _ =
                Api::<ConfigMap>::namespaced(bench.kube.clone(), namespace).create(&PostParams::default(), &made).await;
            let key = ObjectKey::new(namespace, "everywhere");
            wait_for("all namespaces are watched", async || seen.contains(&key)).await;
            assert!(client.get::<ConfigMap>(&key).await.expect("cached").is_some());
        }
        running.stop().await.expect("stopped");
    }
}
