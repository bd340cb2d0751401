//! Finalizers: nothing goes before it is cleaned up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::Resource;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::json;
use tokio::sync::Notify;
use windlass::cache::Scope;
use windlass::events::Recorder;
use windlass::finalizer::{Finalize, Finalizer};
use windlass::predicate;
use windlass::{Context, Controller, ObjectKey, Outcome, Reconcile};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

const NAME: &str = "petstore.example.com/cleanup";

struct Store {
    log: Log<String>,
    broken: Arc<AtomicBool>,
}

impl Finalize<Pet> for Store {
    async fn reconcile(&self, pet: Arc<Pet>, _ctx: Context) -> windlass::Result {
        assert!(windlass::finalizer::contains(&*pet, NAME), "added before");
        self.log.push(format!("reconcile {}", pet.spec.name));
        Ok(Outcome::Done)
    }

    async fn cleanup(&self, pet: Arc<Pet>, _ctx: Context) -> windlass::Result {
        self.log.push(format!("cleanup {}", pet.spec.name));
        if self.broken.load(Ordering::Relaxed) {
            return Err("the store is closed".into());
        }
        Ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_stays_until_it_is_cleaned_up() {
    let bench = Bench::start().await;
    let (log, broken) = (Log::default(), Arc::new(AtomicBool::new(true)));
    let store = Store { log: log.clone(), broken: Arc::clone(&broken) };
    let mut manager = bench.manager();
    let controller = Controller::<Pet>::new("pet").complete(Finalizer::new(NAME, store));
    manager.add(controller).expect("added");
    let running = Running::start(manager);
    bench.create(&pet("thor")).await;
    wait_for("reconciled", async || log.contains(&"reconcile thor".into())).await;
    // Others have finalizers too.
    let theirs = json!({"metadata": {"finalizers": [NAME, "other.example.com/x"]}});
    let params = PatchParams::default();
    bench.pets().patch("thor", &params, &Patch::Merge(theirs)).await.expect("patched");
    bench.pets().delete("thor", &DeleteParams::default()).await.expect("deleted");
    let failures = || log.entries().iter().filter(|entry| *entry == "cleanup thor").count();
    wait_for("some failures", async || failures() >= 3).await;
    assert!(bench.pets().get("thor").await.is_ok(), "it stays");
    broken.store(false, Ordering::Relaxed);
    wait_for("our finalizer is gone", async || {
        let thor = bench.pets().get("thor").await.expect("the other one holds it");
        thor.metadata.finalizers.as_deref() == Some(&["other.example.com/x".to_owned()])
    })
    .await;
    let none = json!({"metadata": {"finalizers": null}});
    bench.pets().patch("thor", &params, &Patch::Merge(none)).await.expect("patched");
    assert!(bench.pets().get_opt("thor").await.expect("read").is_none());
    running.stop().await.expect("stopped");
}

/// Says when it begins to clean up, and waits until it may go on.
struct Slow(Arc<Notify>, Arc<Notify>);

impl Finalize<Pet> for Slow {
    async fn reconcile(&self, _pet: Arc<Pet>, _ctx: Context) -> windlass::Result {
        Ok(Outcome::Done)
    }

    async fn cleanup(&self, _pet: Arc<Pet>, _ctx: Context) -> windlass::Result {
        self.0.notify_one();
        self.1.notified().await;
        Ok(Outcome::Done)
    }
}

#[tokio::test]
async fn an_object_made_anew_during_the_cleanup_keeps_its_finalizer() {
    let bench = Bench::start().await;
    let client = bench.client();
    let mut thor = pet("thor");
    thor.metadata.finalizers = Some(vec![NAME.to_owned()]);
    let old = bench.create(&thor).await;
    bench.pets().delete("thor", &DeleteParams::default()).await.expect("deleted");
    let pets = client.lister::<Pet>();
    pets.wait_synced().await.expect("synced");
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let finalizer = Finalizer::new(NAME, Slow(Arc::clone(&begun), Arc::clone(&go_on)));
    let context = Context::new("pet", client.clone(), Recorder::discard());
    let key = ObjectKey::new("default", "thor");
    let going = pets.get(&key).expect("cached");
    let cleaning =
        tokio::spawn(async move { finalizer.reconcile(going, context).await.map_err(|error| error.to_string()) });
    begun.notified().await;
    // It is taken away by hand and put back.
    let none = json!({"metadata": {"finalizers": null}});
    bench.pets().patch("thor", &PatchParams::default(), &Patch::Merge(none)).await.expect("patched");
    let new = bench.create(&thor).await;
    assert_ne!(new.metadata.uid, old.metadata.uid);
    wait_for("the cache has the new one", async || {
        pets.get(&key).is_some_and(|pet| pet.meta().uid == new.metadata.uid)
    })
    .await;
    go_on.notify_one();
    assert_eq!(cleaning.await.expect("no panic"), Ok(Outcome::Done));
    let thor = bench.pets().get("thor").await.expect("there");
    assert_eq!(thor.metadata.finalizers.as_deref(), Some(&[NAME.to_owned()][..]));
    client.caches().stop().await;
}

/// Takes away the label by which the controller selects.
struct Unlabels;

impl Finalize<Pet> for Unlabels {
    async fn reconcile(&self, _pet: Arc<Pet>, _ctx: Context) -> windlass::Result {
        Ok(Outcome::Done)
    }

    async fn cleanup(&self, pet: Arc<Pet>, ctx: Context) -> windlass::Result {
        let patch = json!({"metadata": {"labels": null}});
        ctx.client().objects::<Pet>().patch(&ObjectKey::of(&*pet), &Patch::Merge(patch)).await?;
        Ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn objects_deselected_by_their_cleanup_are_still_removed() {
    let bench = Bench::start().await;
    let mut manager = bench.manager();
    let scope = Scope::default().labels("own=true");
    let controller = Controller::<Pet>::new("pet").scope(scope);
    manager.add(controller.complete(Finalizer::new(NAME, Unlabels))).expect("added");
    let running = Running::start(manager);
    let mut thor = pet("thor");
    thor.metadata.labels = Some([("own".to_owned(), "true".to_owned())].into());
    bench.create(&thor).await;
    wait_for("it has the finalizer", async || {
        windlass::finalizer::contains(&bench.pets().get("thor").await.expect("read"), NAME)
    })
    .await;
    bench.pets().delete("thor", &DeleteParams::default()).await.expect("deleted");
    wait_for("it is gone", async || bench.pets().get_opt("thor").await.expect("read").is_none()).await;
    running.stop().await.expect("stopped");
}

/// A pet that is selected by its label, and that does not go, as the store is closed.
async fn selected(controller: Controller<Pet>) -> (Bench, Running, Log<String>, Arc<AtomicBool>) {
    let bench = Bench::start().await;
    let (log, broken) = (Log::default(), Arc::new(AtomicBool::new(true)));
    let store = Store { log: log.clone(), broken: Arc::clone(&broken) };
    let mut manager = bench.manager();
    manager.add(controller.complete(Finalizer::new(NAME, store))).expect("added");
    let running = Running::start(manager);
    let mut thor = pet("thor");
    thor.metadata.labels = Some([("own".to_owned(), "true".to_owned())].into());
    bench.create(&thor).await;
    wait_for("reconciled", async || log.contains(&"reconcile thor".into())).await;
    (bench, running, log, broken)
}

async fn unlabel(bench: &Bench) {
    let patch = json!({"metadata": {"labels": null}});
    bench.pets().patch("thor", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
}

#[tokio::test(start_paused = true)]
async fn objects_deselected_during_cleanup_are_cleaned_up() {
    let scope = Scope::default().labels("own=true");
    let (bench, running, log, broken) = selected(Controller::new("pet").scope(scope)).await;
    bench.pets().delete("thor", &DeleteParams::default()).await.expect("deleted");
    wait_for("a failure", async || log.contains(&"cleanup thor".into())).await;
    unlabel(&bench).await;
    broken.store(false, Ordering::Relaxed);
    wait_for("it is gone", async || bench.pets().get_opt("thor").await.expect("read").is_none()).await;
    running.stop().await.expect("stopped");
}

/// Other than a scope, a predicate lets a controller know of every end.
#[tokio::test(start_paused = true)]
async fn objects_no_longer_selected_are_cleaned_up() {
    let own = predicate::object(|pet: &Pet| pet.meta().labels.as_ref().is_some_and(|l| l.contains_key("own")));
    let (bench, running, log, broken) = selected(Controller::new("pet").predicate(own)).await;
    broken.store(false, Ordering::Relaxed);
    unlabel(&bench).await;
    bench.pets().delete("thor", &DeleteParams::default()).await.expect("deleted");
    wait_for("it is gone", async || bench.pets().get_opt("thor").await.expect("read").is_none()).await;
    assert!(log.contains(&"cleanup thor".into()));
    running.stop().await.expect("stopped");
}

/// Notes what becomes of objects of any kind.
struct Noted(Log<&'static str>);

impl Finalize<DynamicObject> for Noted {
    async fn reconcile(&self, _pet: Arc<DynamicObject>, _ctx: Context) -> windlass::Result {
        self.0.push("reconcile");
        Ok(Outcome::Done)
    }

    async fn cleanup(&self, _pet: Arc<DynamicObject>, _ctx: Context) -> windlass::Result {
        self.0.push("cleanup");
        Ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn dynamic_kinds_have_finalizers_and_selections() {
    let (bench, log) = (Bench::start().await, Log::default());
    let kind = ApiResource::erase::<Pet>(&());
    let scope = Scope::default().labels("own=true");
    let controller = Controller::<DynamicObject>::dynamic("pet", kind).scope(scope);
    let mut manager = bench.manager();
    manager.add(controller.complete(Finalizer::new(NAME, Noted(log.clone())))).expect("added");
    let running = Running::start(manager);
    let mut thor = pet("thor");
    thor.metadata.labels = Some([("own".to_owned(), "true".to_owned())].into());
    bench.create(&thor).await;
    wait_for("reconciled", async || log.contains(&"reconcile")).await;
    bench.pets().delete("thor", &DeleteParams::default()).await.expect("deleted");
    wait_for("it is gone", async || bench.pets().get_opt("thor").await.expect("read").is_none()).await;
    assert!(log.contains(&"cleanup"));
    running.stop().await.expect("stopped");
}
