//! What reconcilers are given, and what the builder makes of its methods in any order.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
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
