//! Finalizers: nothing goes before it is cleaned up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use windlass::finalizer::{Finalize, Finalizer};
use windlass::{Context, Controller, Outcome};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

const NAME: &str = "petstore.example.com/cleanup";

struct Store {
    log: Log<String>,
    broken: Arc<AtomicBool>,
}

impl Finalize<Pet> for Store {
    async fn reconcile(&self, pet: Arc<Pet>, _ctx: &Context) -> windlass::Result {
        assert!(windlass::finalizer::contains(&*pet, NAME), "added before");
        self.log.push(format!("reconcile {}", pet.spec.name));
        Ok(Outcome::Done)
    }

    async fn cleanup(&self, pet: Arc<Pet>, _ctx: &Context) -> windlass::Result {
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
