//! What reconcilers are given, and what the builder makes of its methods in any order.

use std::sync::Arc;

use futures::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::Selector;
use serde_json::json;
use windlass::cache::Scope;
use windlass::controller::from_key_fn;
use windlass::{Context, Controller, ObjectKey, Outcome, Reconcile};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

/// Notes what it is called for.
struct Noting(Log<String>);

impl Reconcile<Pet> for Noting {
    async fn reconcile(&self, pet: Arc<Pet>, ctx: Context) -> windlass::Result {
        self.0.push(format!("{} has {}", ctx.controller(), pet.spec.name));
        Ok(Outcome::Done)
    }

    async fn gone(&self, key: ObjectKey, _ctx: Context) -> windlass::Result {
        self.0.push(format!("{key} is gone"));
        Ok(Outcome::Done)
    }
}

fn labelled() -> Scope {
    Scope::default().labels(Selector::from_iter([("own".to_owned(), "true".to_owned())]))
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_is_given_objects_and_told_what_is_gone() {
    let (bench, log) = (Bench::start().await, Log::default());
    for name in ["thor", "odin"] {
        let mut labelled = pet(name);
        labelled.metadata.labels = Some([("own".to_owned(), "true".to_owned())].into());
        bench.create(&labelled).await;
    }
    let mut manager = bench.manager();
    let controller = Controller::<Pet>::new("pets").scope(labelled());
    let wake = controller.enqueuer();
    manager.add(controller.complete(Noting(log.clone()))).expect("added");
    let running = Running::start(manager);
    let has = async |what: &str| wait_for(what, async || log.contains(&what.to_owned())).await;
    has("pets has thor").await;
    has("pets has odin").await;
    bench.pets().delete("thor", &DeleteParams::default()).await.expect("deleted");
    has("default/thor is gone").await;
    // It exists, but the controller does not look after it any more.
    let unlabel = Patch::Merge(json!({"metadata": {"labels": null}}));
    bench.pets().patch("odin", &PatchParams::default(), &unlabel).await.expect("patched");
    has("default/odin is gone").await;
    assert!(wake.enqueue(ObjectKey::new("default", "never-was")));
    has("default/never-was is gone").await;
    running.stop().await.expect("stopped");
}

/// What `owns` needs to know of the controller's kind may be said after it.
#[tokio::test(start_paused = true)]
async fn owns_before_scope_finds_the_same_owner() {
    let (bench, log) = (Bench::start().await, Log::<String>::default());
    let namespaces = ApiResource::erase::<Namespace>(&());
    let seen = log.clone();
    let reconciler = from_key_fn(move |key: ObjectKey, _| {
        seen.push(key.to_string());
        async { Ok(Outcome::Done) }
    });
    // No object of the kind is ever seen, so nothing but the scope tells that its objects are in no namespace.
    let scope = Scope::default().cluster_scoped().fields("metadata.name=none");
    let controller = Controller::<DynamicObject>::dynamic("namespaces", namespaces).owns::<ConfigMap>().scope(scope);
    let mut manager = bench.manager();
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    let running = Running::start(manager);
    let mut owned = ConfigMap::default();
    owned.metadata.name = Some("owned".into());
    owned.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Namespace".into(),
        name: "parent".into(),
        uid: "1".into(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    let maps: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "default");
    maps.create(&PostParams::default(), &owned).await.expect("created");
    wait_for("the owner", async || log.len() > 0).await;
    assert_eq!(log.entries(), ["parent"]);
    running.stop().await.expect("stopped");
}

/// The annotation by which a pet refers to a secret.
fn refers(pet: &Pet, annotation: &str) -> Option<ObjectKey> {
    let name = pet.metadata.annotations.as_ref()?.get(annotation)?;
    Some(ObjectKey::of(pet).sibling(name))
}

fn annotated(name: &str, annotation: &str, secret: &str) -> Pet {
    let mut pet = pet(name);
    pet.metadata.annotations = Some([(annotation.to_owned(), secret.to_owned())].into());
    pet.metadata.labels = Some([("own".to_owned(), "true".to_owned())].into());
    pet
}

#[tokio::test(start_paused = true)]
async fn a_referenced_object_wakes_those_that_refer_to_it() {
    let (bench, log) = (Bench::start().await, Log::<String>::default());
    for pet in [annotated("thor", "chip", "a"), annotated("odin", "chip", "b"), annotated("loki", "tag", "a")] {
        bench.create(&pet).await;
    }
    let mut unselected = annotated("fenrir", "chip", "a");
    unselected.metadata.labels = None;
    bench.create(&unselected).await;
    let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
    for name in ["a", "b"] {
        let mut secret = Secret::default();
        secret.metadata.name = Some(name.into());
        secrets.create(&PostParams::default(), &secret).await.expect("created");
    }
    let mut manager = bench.manager();
    // Both keep an index of the same kind.
    let chips = Controller::<Pet>::new("chips").refers_to::<Secret, _, _>(|pet| refers(pet, "chip"));
    let tags = Controller::<Pet>::new("tags").refers_to::<Secret, _, _>(|pet| refers(pet, "tag"));
    for controller in [chips, tags] {
        manager.add(controller.scope(labelled()).complete(Noting(log.clone()))).expect("added");
    }
    let running = Running::start(manager);
    wait_for("all at the start", async || log.len() == 6).await;
    let touch = async |secret: &str, expected: &[&str]| {
        let before = log.len();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"touched": before.to_string()}}}));
        secrets.patch(secret, &PatchParams::default(), &patch).await.expect("patched");
        wait_for(secret, async || log.len() >= before + expected.len()).await;
        let mut woken = log.entries()[before..].to_vec();
        woken.sort();
        assert_eq!(woken, expected);
    };
    touch("a", &["chips has thor", "tags has loki"]).await;
    touch("b", &["chips has odin"]).await;
    // The index follows what the objects say.
    let before = log.len();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"chip": "b"}}}));
    bench.pets().patch("thor", &PatchParams::default(), &patch).await.expect("patched");
    wait_for("the pets themselves", async || log.len() == before + 2).await;
    touch("a", &["tags has loki"]).await;
    touch("b", &["chips has odin", "chips has thor"]).await;
    let before = log.len();
    secrets.delete("b", &DeleteParams::default()).await.expect("deleted");
    wait_for("the deletion", async || log.len() == before + 2).await;
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn sources_and_maps_reach_client_caches_and_queue() {
    let (bench, log) = (Bench::start().await, Log::<String>::default());
    bench.create(&annotated("thor", "chip", "a")).await;
    bench.create(&pet("unselected")).await;
    let seen = log.clone();
    let reconciler = from_key_fn(move |key: ObjectKey, _| {
        seen.push(key.to_string());
        async { Ok(Outcome::Done) }
    });
    let controller = Controller::<Pet>::new("pets")
        .source(|ctx| {
            stream::once(async move {
                let mut made = ConfigMap::default();
                made.metadata.namespace = Some("default".into());
                made.metadata.name = Some("made-by-the-source".into());
                ctx.client().create(&made).await.expect("created");
                assert!(ctx.enqueuer().enqueue(ObjectKey::cluster("enqueued")));
                assert!(!ctx.shutdown().is_cancelled());
                ObjectKey::cluster(ctx.controller())
            })
        })
        // Of its own kind a controller sees what it looks after.
        .watches(|map: &ConfigMap, ctx| {
            let seen = ctx.lister::<Pet>().keys();
            seen.into_iter().map({
                let name = map.metadata.name.clone().unwrap_or_default();
                move |pet| ObjectKey::new(&name, pet.name())
            })
        })
        .scope(labelled());
    let mut manager = bench.manager();
    manager.add(controller.complete_keyed(reconciler)).expect("added");
    let running = Running::start(manager);
    for key in ["default/thor", "enqueued", "pets", "made-by-the-source/thor"] {
        wait_for(key, async || log.contains(&key.to_owned())).await;
    }
    assert!(!log.entries().iter().any(|key| key.contains("unselected")), "{log:?}");
    running.stop().await.expect("stopped");
}
