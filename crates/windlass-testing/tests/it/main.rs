//! The harness, used as an operator's tests use it.

mod controllers;
mod faults;
mod identity;
mod objects;
mod pods;
mod restart;
mod wait;
mod webhooks;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use windlass::controller::from_key_fn;
use windlass::events::EventApi;
use windlass::lease::LeaderElection;
use windlass::manager::ManagerBuilder;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};
use windlass_testing::{Env, Options, Running, run};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "petstore.example.com", version = "v1", kind = "Pet", namespaced)]
struct PetSpec {
    toys: u32,
}

fn pet(name: &str, toys: u32) -> Pet {
    let mut pet = Pet::new(name, PetSpec { toys });
    pet.metadata.namespace = Some("default".into());
    pet
}

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.into());
    map.metadata.namespace = Some("default".into());
    map
}

/// An operator that keeps one ConfigMap for each toy of a pet.
fn toys(env: &Env) -> Manager {
    toys_of(env.manager())
}

fn toys_of(builder: ManagerBuilder) -> Manager {
    let mut manager = builder.name("toys").build().expect("built");
    let reconciler = from_key_fn(|key: ObjectKey, ctx: Context| async move {
        let Some(pet) = ctx.get::<Pet>(&key).await? else {
            return Ok(Outcome::Done);
        };
        let mut children = ctx.children(&pet);
        children.kind::<ConfigMap>();
        for toy in 0..pet.spec.toys {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(format!("{}-toy-{toy}", key.name()));
            children.apply(map).await?;
        }
        children.prune().await?;
        ctx.recorder().normal(&pet, "Played", "all toys are there");
        Ok(Outcome::Done)
    });
    manager.add(Controller::<Pet>::new("toys").owns::<ConfigMap>().complete_keyed(reconciler)).expect("added");
    manager
}

#[windlass_testing::test]
async fn children_follow_their_owner_to_the_end(env: Env) {
    env.install::<Pet>().await;
    env.run(toys(&env));
    let thor = env.client().create(&pet("thor", 3)).await.expect("created");
    let toy = |n: u32| ObjectKey::new("default", format!("thor-toy-{n}"));
    env.wait_until::<ConfigMap>(&toy(2), |_| true).await;
    env.wait_for_event(&thor, "Played").await;
    let fewer = |pet: &mut Pet| pet.spec.toys = 1;
    env.client().modify(&ObjectKey::of(&thor), fewer).await.expect("changed");
    env.wait_gone::<ConfigMap>(&toy(2)).await;
    // The garbage collector runs too.
    env.client().delete::<Pet>(&ObjectKey::of(&thor)).await.expect("deleted");
    env.wait_for("the first toy to go", &toy(0), |map: Option<&ConfigMap>| map.is_none()).await;
}

#[windlass_testing::test(paused, bare)]
async fn an_hour_passes_in_no_time(env: Env) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let mut manager = env.manager().build().expect("built");
    let hourly = from_key_fn(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(Outcome::RequeueAfter(Duration::from_secs(3600))) }
    });
    manager.add(Controller::<ConfigMap>::new("hourly").complete_keyed(hourly)).expect("added");
    let running = env.run(manager);
    env.client().create(&map("clock")).await.expect("created");
    env.eventually("the first hour", async || count.load(Ordering::Relaxed) >= 1).await;
    let before = count.load(Ordering::Relaxed);
    env.advance(Duration::from_secs(3601)).await;
    env.eventually("another hour", async || count.load(Ordering::Relaxed) > before).await;
    running.stop().await.expect("stopped");
}

#[windlass_testing::test(paused, bare)]
async fn time_passes_by_no_timer(env: Env) {
    let counts: Arc<[AtomicUsize; 2]> = Arc::default();
    let (reconciled, terms) = (Arc::clone(&counts), Arc::clone(&counts));
    let mut manager = env.manager().leader_election(LeaderElection::new("lock")).build().expect("built");
    let every_minute = from_key_fn(move |_, _| {
        reconciled[0].fetch_add(1, Ordering::Relaxed);
        async { Ok(Outcome::RequeueAfter(Duration::from_secs(60))) }
    });
    manager.add(Controller::<ConfigMap>::new("minutes").complete_keyed(every_minute)).expect("added");
    let lead = move |_, shutdown: CancellationToken| {
        terms[1].fetch_add(1, Ordering::Relaxed);
        async move {
            shutdown.cancelled().await;
            Ok::<_, String>(())
        }
    };
    manager.add_leader_task("lead", lead).expect("added");
    env.run(manager);
    env.client().create(&map("clock")).await.expect("created");
    let count = |n: usize| counts[n].load(Ordering::Relaxed);
    env.eventually("the first minute", async || count(0) == 1).await;
    env.advance(Duration::from_secs(61)).await;
    assert_eq!((count(0), count(1)), (2, 1), "reconciles, and terms as a leader");
    let began = tokio::time::Instant::now();
    env.advance(Duration::from_secs(3600)).await;
    assert_eq!(began.elapsed().as_secs(), 3600);
    // Each is a little late: timers go by milliseconds.
    assert!((61..=62).contains(&count(0)), "{} reconciles", count(0));
    assert_eq!(count(1), 1, "it has led all the time");
}

#[windlass_testing::test(paused, bare)]
async fn what_was_stopped_before_stops_no_other(env: Env) {
    env.install::<Pet>().await;
    let first = env.run(toys(&env));
    first.stop().await.expect("stopped");
    env.run(toys(&env));
    first.stop().await.expect("stopped before");
    first.kill().await;
    env.client().create(&pet("thor", 1)).await.expect("created");
    let toy = ObjectKey::new("default", "thor-toy-0");
    env.wait_for("the toy", &toy, |map: Option<&ConfigMap>| map.is_some()).await;
}

#[windlass_testing::test(bare)]
async fn a_test_may_fail_with_an_error(env: Env) -> anyhow::Result<()> {
    let maps = env.client().list::<ConfigMap>().await?;
    anyhow::ensure!(maps.is_empty(), "there are no controllers to make any");
    Ok(())
}

#[windlass_testing::test(paused, bare)]
async fn events_of_either_api_are_oldest_first(env: Env) {
    let apis = [EventApi::CoreV1, EventApi::EventsV1];
    let recorders = apis.map(|api| {
        let manager = env.manager().events(api).build().expect("built");
        let recorder = manager.recorder("order");
        env.run(manager);
        recorder
    });
    let names = ["d", "c", "b", "a"];
    for (n, name) in names.into_iter().enumerate() {
        let subject = env.client().create(&map(name)).await.expect("created");
        recorders[n % 2].normal(&subject, "Seen", "in turn");
        env.wait_for_event(&subject, "Seen").await;
    }
    let subject = |event: &Event| event.regarding.clone().and_then(|object| object.name).expect("a subject");
    assert_eq!(env.events().await.iter().map(subject).collect::<Vec<_>>(), names);
}

#[test]
fn environments_at_the_same_time_know_nothing_of_each_other() {
    let barrier = tokio::sync::Barrier::new(3);
    // Where one fails, the others do not wait for ever.
    let together = async || tokio::time::timeout(Duration::from_secs(60), barrier.wait()).await.expect("together");
    let environment = |toys_of_thor: u32| {
        run(Options::default(), async |env: Env| {
            env.install::<Pet>().await;
            env.run(toys(&env));
            let thor = env.client().create(&pet("thor", toys_of_thor)).await.expect("created");
            // Each has its cluster and its manager before any goes on, and none is stopped before all are done.
            together().await;
            let toy = ObjectKey::new("default", format!("thor-toy-{}", toys_of_thor - 1));
            env.wait_for("the last toy", &toy, |map: Option<&ConfigMap>| map.is_some()).await;
            env.wait_for_event(&thor, "Played").await;
            let toys = env.client().list::<ConfigMap>().await.expect("listed");
            let toys = toys.iter().filter(|map| map.metadata.namespace.as_deref() == Some("default"));
            let toys = toys.filter(|map| map.metadata.owner_references.is_some()).count();
            let about = |event: &Event| event.regarding.clone().and_then(|object| object.uid);
            let events_are_ours = env.events().await.iter().all(|event| about(event) == thor.metadata.uid);
            together().await;
            (toys, events_are_ours)
        })
    };
    let environment = &environment;
    std::thread::scope(|threads| {
        let running = [1, 2, 3].map(|toys| (toys, threads.spawn(move || environment(toys))));
        for (toys, thread) in running {
            assert_eq!(thread.join().expect("the test passes"), (toys as usize, true));
        }
    });
}

#[windlass_testing::test(paused, bare)]
async fn only_a_stopped_manager_gives_its_leases_back(env: Env) {
    let start = async |identity: &str| {
        let election = LeaderElection::new("lock").identity(identity);
        let mut manager = env.manager().leader_election(election).build().expect("built");
        let leading = CancellationToken::new();
        let led = leading.clone();
        let lead = move |_, shutdown: CancellationToken| {
            let led = led.clone();
            async move {
                led.cancel();
                shutdown.cancelled().await;
                Ok::<_, String>(())
            }
        };
        manager.add_leader_task("lead", lead).expect("added");
        (env.run(manager), leading)
    };
    let holder = async || {
        let lease = env.client().live().get::<Lease>(&ObjectKey::new("default", "lock")).await.expect("read");
        lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty())
    };
    let (first, leading) = start("first").await;
    leading.cancelled().await;
    first.kill().await;
    assert_eq!(holder().await.as_deref(), Some("first"), "as after a crash");
    // So the next has to wait until the lease has run out.
    let began = tokio::time::Instant::now();
    let (second, leading) = start("second").await;
    leading.cancelled().await;
    assert!(began.elapsed() >= Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!(holder().await.as_deref(), Some("second"));
    second.stop().await.expect("stopped");
    assert_eq!(holder().await, None);
}

/// What a test that fails says.
fn failure(test: impl AsyncFnOnce(Env)) -> String {
    let test = std::panic::AssertUnwindSafe(|| run(Options::default().bare().paused(), test));
    let panic = std::panic::catch_unwind(test).expect_err("the test fails");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

/// A manager that cannot start, because its kind is not installed.
fn doomed(env: &Env) -> Manager {
    let mut manager = env.manager().name("doomed").sync_timeout(Duration::from_secs(1)).build().expect("built");
    let idle = from_key_fn(|_, _| async { Ok(Outcome::Done) });
    manager.add(Controller::<Pet>::new("pets").complete_keyed(idle)).expect("added");
    manager
}

/// Runs it until it has failed.
async fn run_failing(env: &Env) -> Running {
    let manager = doomed(env);
    let ready = manager.ready();
    let running = env.run(manager);
    assert!(!ready.await, "there are no pets");
    running
}

#[test]
fn a_manager_that_failed_fails_the_test_and_is_named() {
    const WHY: &str = "the manager \"doomed\" has failed: ";
    const KIND: &str = "pets.petstore.example.com";
    let unnoticed = failure(async |env: Env| drop(run_failing(&env).await));
    assert!(unnoticed.starts_with(WHY) && unnoticed.contains(KIND), "{unnoticed}");
    let waiting = failure(async |env: Env| {
        run_failing(&env).await;
        let key = ObjectKey::new("default", "missing");
        env.wait_for("what never comes", &key, |map: Option<&ConfigMap>| map.is_some()).await;
    });
    assert!(waiting.starts_with("timed out waiting for what never comes (at "), "{waiting}");
    let state = format!("); ConfigMap default/missing does not exist; {WHY}");
    assert!(waiting.contains(&state) && waiting.contains(KIND), "{waiting}");
    let watching = failure(async |env: Env| {
        run_failing(&env).await;
        env.eventually("what never comes", async || false).await;
    });
    assert!(watching.starts_with("timed out waiting for what never comes (at "), "{watching}");
    assert!(watching.contains(&format!("); {WHY}")) && watching.contains(KIND), "{watching}");
}

#[test]
fn a_wait_in_vain_says_what_failed_last() {
    let said = failure(async |env: Env| {
        let mut manager = env.manager().build().expect("built");
        let failing = from_key_fn(|_, _| async { Err("no food left".into()) });
        manager.add(Controller::<ConfigMap>::new("maps").complete_keyed(failing)).expect("added");
        env.run(manager);
        env.client().create(&map("bowl")).await.expect("created");
        env.eventually("what never comes", async || false).await;
    });
    assert!(said.starts_with("timed out waiting for what never comes (at "), "{said}");
    for part in ["); the last failure: ", "controller=maps", "name=\"bowl\"", "no food left"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // The next test on this thread knows nothing of it.
    let said = failure(async |env: Env| env.eventually("what never comes", async || false).await);
    assert!(said.starts_with("timed out waiting for what never comes (at ") && said.ends_with(')'), "{said}");
}

#[test]
fn a_manager_that_fails_to_start_fails_the_test() {
    let said = failure(async |env: Env| {
        env.run_ready(doomed(&env)).await;
    });
    let why = "the manager \"doomed\" failed before it was ready (at ";
    assert!(said.starts_with(why) && said.contains("main.rs:") && said.contains("pets.petstore.example.com"), "{said}");
}

#[windlass_testing::test(paused, bare)]
async fn the_end_of_a_manager_can_be_waited_for(env: Env) {
    let running = env.run(doomed(&env));
    let error = running.ended().await.expect_err("it failed").to_string();
    assert!(error.contains("pets.petstore.example.com"), "{error}");
    running.ended().await.expect("told before");
}

#[test]
fn a_manager_that_does_not_end_is_named() {
    let said = failure(async |env: Env| {
        env.install::<Pet>().await;
        env.run(toys(&env)).ended().await.expect("ended");
    });
    assert!(said.starts_with("timed out waiting for the manager \"toys\" to end (at "), "{said}");
}

#[windlass_testing::test(paused, bare)]
async fn a_test_that_checks_the_managers_error_passes(env: Env) {
    let error = run_failing(&env).await.stop().await.expect_err("it failed").to_string();
    assert!(error.contains("pets.petstore.example.com"), "{error}");
}

#[test]
fn tasks_left_behind_fail_the_test() {
    let leak = || run(Options::default().bare(), async |_env: Env| drop(tokio::spawn(std::future::pending::<()>())));
    let panic = std::panic::catch_unwind(leak).expect_err("the leak is found");
    let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains("left 1 tasks running"), "{message}");
}

#[test]
fn a_condition_that_never_holds_is_named() {
    let wait = || {
        run(Options::default().bare().paused(), async |env: Env| {
            let key = ObjectKey::new("default", "missing");
            env.wait_for("what never comes", &key, |map: Option<&ConfigMap>| map.is_some()).await;
        });
    };
    let panic = std::panic::catch_unwind(wait).expect_err("timed out");
    let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains("what never comes") && message.contains("default/missing"), "{message}");
}
