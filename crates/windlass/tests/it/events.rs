//! Events, in the cluster of what they are about.

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use windlass::controller::from_key_fn;
use windlass::lease::LeaderElection;
use windlass::{Context, Controller, Manager, Outcome};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

/// The reasons of the events about an object.
async fn reasons(bench: &Bench, about: &str) -> Vec<String> {
    let api: Api<Event> = Api::all(bench.kube.clone());
    let events = api.list(&ListParams::default()).await.expect("read").items;
    let about = events.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(about));
    about.filter_map(|event| event.reason).collect()
}

#[tokio::test(start_paused = true)]
async fn events_are_in_the_cluster_of_the_controller() {
    let (home, away) = (Bench::start().await, Bench::start().await);
    let election = LeaderElection::new("it");
    let builder = Manager::builder(home.kube.clone()).name("it").leader_election(election);
    let mut manager = builder.build().expect("a manager");
    let edge = manager.add_cluster("edge", away.kube.clone()).expect("added");
    edge.recorder("by-hand").normal(&pet("odin"), "Looked", "");
    let seen: Log<String> = Log::default();
    for (name, controller) in
        [("here", Controller::<Pet>::new("here")), ("there", Controller::<Pet>::new("there").cluster(&edge))]
    {
        let seen = seen.clone();
        let reconciler = from_key_fn(move |key, ctx: Context| {
            let seen = seen.clone();
            async move {
                if let Some(pet) = ctx.get::<Pet>(&key).await? {
                    ctx.recorder().normal(&*pet, "Seen", name);
                    for n in 0..25 {
                        ctx.recorder().normal(&*pet, &format!("Seen{n}"), name);
                    }
                    seen.push(pet.spec.name.clone());
                }
                Ok(Outcome::Done)
            }
        });
        manager.add(controller.complete_keyed(reconciler)).expect("added");
    }
    let metrics = manager.registry().clone();
    let running = Running::ready(manager).await;
    home.create(&pet("loki")).await;
    away.create(&pet("thor")).await;
    wait_for("both seen", async || seen.len() == 2).await;
    wait_for("one too many of each", async || metrics.encode().contains("windlass_events_dropped_total 2\n")).await;
    // What was reported is written before the lease is given back.
    running.stop().await.expect("stopped");
    assert_eq!(reasons(&home, "loki").await.len(), 25);
    assert_eq!(reasons(&away, "thor").await.len(), 25);
    assert_eq!(reasons(&away, "odin").await, ["Looked"]);
    for (bench, about) in [(&home, "thor"), (&home, "odin"), (&away, "loki")] {
        assert_eq!(reasons(bench, about).await, [""; 0], "{about} is in the other cluster");
    }
}
