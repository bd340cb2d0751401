//! The test's own reads and writes, their keys, and what a test begins with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use windlass::ObjectKey;
use windlass_testing::{Env, Fault, Requests};

use crate::{failure, map, pet, toys};

fn nameless(name: &str) -> ConfigMap {
    let mut map = map(name);
    map.metadata.namespace = None;
    map
}

fn namespace(name: &str) -> Namespace {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.into());
    namespace
}

#[windlass_testing::test(paused, bare)]
async fn objects_are_created_read_changed_and_deleted(env: Env) {
    let made = env.create(nameless("a")).await;
    assert_eq!(ObjectKey::of(&made), ObjectKey::new("default", "a"));
    let changed = env.modify::<ConfigMap>("a", |map| map.immutable = Some(true)).await;
    assert_eq!((changed.immutable, &changed.metadata.uid), (Some(true), &made.metadata.uid));
    assert_eq!(env.get::<ConfigMap>("a").await, changed);
    env.delete::<ConfigMap>("a").await;
    assert!(env.client().live().get::<ConfigMap>(&ObjectKey::of(&made)).await.expect("read").is_none());
}

#[windlass_testing::test(paused, bare)]
async fn keys_take_many_forms(env: Env) {
    // The name of an object without a namespace is not taken for one in `default`.
    let shop = env.create(namespace("shop")).await;
    assert_eq!(env.get::<Namespace>("shop").await.metadata.uid, shop.metadata.uid);
    let mut blog = map("blog");
    blog.metadata.namespace = Some("shop".into());
    let blog = env.create(blog).await;
    let key = ObjectKey::new("shop", "blog");
    let (by_text, by_pair) = (env.get::<ConfigMap>("shop/blog").await, env.get::<ConfigMap>(("shop", "blog")).await);
    let (by_object, by_key) = (env.get::<ConfigMap>(&blog).await, env.get::<ConfigMap>(&key).await);
    assert!([by_text, by_pair, by_object, by_key, env.get(key).await].iter().all(|found| *found == blog));
    env.wait_until::<ConfigMap>("shop/blog", |_| true).await;
    env.wait_gone::<ConfigMap>("blog").await;
    env.wait_for("nothing in default", "blog", |map: Option<&ConfigMap>| map.is_none()).await;
}

#[windlass_testing::test(paused, bare)]
async fn faults_of_one_object_are_chosen_by_text(env: Env) {
    env.create(map("a")).await;
    env.create(map("b")).await;
    let requests = Requests::of::<ConfigMap>().verbs(["delete"]).including_test();
    let fault = env.fail(requests.object("default/a")).with(Fault::status(500));
    env.delete::<ConfigMap>("b").await;
    assert!(
        env.client().delete::<ConfigMap>(&"a".into()).await.is_err(),
        "there is no such object without a namespace"
    );
    assert_eq!(fault.hits(), 0);
    env.client().delete::<ConfigMap>(&"default/a".into()).await.expect_err("a fault");
    assert!(fault.hits() > 0);
}

#[test]
fn requests_that_fail_say_line_verb_key_and_answer() {
    let check = |said: &str, start: &str| {
        assert!(said.starts_with(start), "{said}");
        let (_, at) = said.rsplit_once(" (at ").expect("a place");
        assert!(at.contains("objects.rs:"), "{said}");
    };
    let said = failure(async |env: Env| {
        env.create(map("a")).await;
        env.create(map("a")).await;
    });
    check(&said, "create configmaps/v1 default/a: configmaps \"a\" already exists");
    let said = failure(async |env: Env| _ = env.create(pet("thor", 1)).await);
    check(&said, "create pets.petstore.example.com/v1 default/thor: ");
    let said = failure(async |env: Env| _ = env.get::<ConfigMap>("shop/a").await);
    check(&said, "get ConfigMap shop/a: it does not exist");
    let said = failure(async |env: Env| _ = env.modify::<ConfigMap>("a", |_| {}).await);
    check(&said, "modify ConfigMap default/a: it does not exist");
    let said = failure(async |env: Env| env.delete::<ConfigMap>("a").await);
    check(&said, "delete ConfigMap default/a: it does not exist");
}

#[windlass_testing::test]
async fn events_are_waited_for_by_a_shared_object(env: Env) {
    env.install::<crate::Pet>().await;
    env.run(toys(&env));
    env.create(pet("thor", 1)).await;
    let thor: Arc<crate::Pet> = env.wait_until("thor", |_: &crate::Pet| true).await;
    env.wait_for_event(&thor, "Played").await;
}

thread_local! {
    static DROPPED: Arc<AtomicBool> = Arc::default();
}

/// Says when it is dropped.
struct Guard(Arc<AtomicBool>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn guarded(env: &Env) -> Guard {
    start(env).await;
    Guard(DROPPED.with(Arc::clone))
}

async fn start(env: &Env) -> ConfigMap {
    env.create(map("made-before")).await
}

mod elsewhere {
    pub(super) async fn prepare(env: &windlass_testing::Env) {
        super::start(env).await;
    }
}

#[windlass_testing::test(setup = start, bare)]
async fn a_setup_runs_before_the_test(env: Env) {
    env.get::<ConfigMap>("made-before").await;
}

#[windlass_testing::test(paused, bare, setup = start)]
async fn a_test_is_given_what_its_setup_made(env: Env, made: ConfigMap) -> anyhow::Result<()> {
    assert_eq!(env.get::<ConfigMap>(&made).await, made);
    env.advance(Duration::from_secs(3600)).await;
    Ok(())
}

#[windlass_testing::test(bare, setup = elsewhere::prepare)]
async fn a_setup_may_be_in_a_module(env: Env, (): ()) {
    env.get::<ConfigMap>("made-before").await;
}

#[windlass_testing::test(bare, setup = guarded)]
async fn what_a_setup_made_lives_until_the_test_ends(env: Env) {
    env.get::<ConfigMap>("made-before").await;
    assert!(!DROPPED.with(|dropped| dropped.load(Ordering::Relaxed)));
}
