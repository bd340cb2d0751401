// SPDX-License-Identifier: Apache-2.0

//! Tests of Foo objects. The first four are those of upstream's `controller_test.go`, on a cluster instead of fakes.

// The kind is Foo: clippy takes its name for a placeholder.
#![allow(clippy::disallowed_names)]

use std::sync::{Arc, Mutex};

use k8s_openapi::api::apps::v1::Deployment;
use tracing::subscriber::DefaultGuard;
use windlass::owner;
use windlass_testing::{Env, Fault, Requests};

use sample_controller_api::v1alpha1::{Foo, FooSpec};

fn example(name: &str, replicas: Option<i32>) -> Foo {
    Foo::new(name, FooSpec { deployment_name: format!("{name}-deployment"), replicas })
}

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.replicas
}

async fn wait_for_available(env: &Env, name: &str, expected: i32) {
    let available = |foo: &Foo| foo.status.as_ref().is_some_and(|status| status.available_replicas == expected);
    env.wait_until::<Foo>(name, available).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn creates_deployment(env: Env) {
    let _nodes = env.make_pods_ready("default");
    let foo = env.create(example("test", Some(1))).await;
    let deployment = env.wait_until::<Deployment>("test-deployment", |_| true).await;
    assert!(owner::is_controlled_by(&deployment, &foo));
    let labels = deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone()).expect("labels");
    assert_eq!((labels["app"].as_str(), labels["controller"].as_str()), ("nginx", "test"));
    wait_for_available(&env, "test", 1).await;
    let event = env.wait_for_event(&foo, "Synced").await;
    assert_eq!(event.note.as_deref(), Some("Foo synced successfully"));
}

#[windlass_testing::test(setup = crate::start)]
async fn does_nothing_if_all_is_well(env: Env) {
    let _nodes = env.make_pods_ready("default");
    env.create(example("test", Some(1))).await;
    wait_for_available(&env, "test", 1).await;
    let before = env.get::<Deployment>("test-deployment").await;
    // Wakes the controller, which has nothing to do.
    let foo = env.modify::<Foo>("test", |foo| foo.metadata.labels = Some([("a".into(), "b".into())].into())).await;
    env.wait_for_event(&foo, "Synced").await;
    let after = env.get::<Deployment>("test-deployment").await;
    assert_eq!(after.metadata.generation, before.metadata.generation);
}

#[windlass_testing::test(setup = crate::start)]
async fn updates_deployment(env: Env) {
    let _nodes = env.make_pods_ready("default");
    env.create(example("test", Some(1))).await;
    wait_for_available(&env, "test", 1).await;
    env.modify::<Foo>("test", |foo| foo.spec.replicas = Some(3)).await;
    wait_for_available(&env, "test", 3).await;
    assert_eq!(replicas(&env.get::<Deployment>("test-deployment").await), Some(3));
}

#[windlass_testing::test(setup = crate::start)]
async fn not_controlled_by_us(env: Env) {
    let owner = env.create(example("first", Some(1))).await;
    env.wait_until::<Deployment>("first-deployment", |_| true).await;
    let mut second = example("second", Some(2));
    second.spec.deployment_name = "first-deployment".into();
    let second = env.create(second).await;
    let event = env.wait_for_event(&second, "ErrResourceExists").await;
    let message = "Resource \"first-deployment\" already exists and is not managed by Foo";
    assert_eq!((event.type_.as_deref(), event.note.as_deref()), (Some("Warning"), Some(message)));
    let deployment = env.get::<Deployment>("first-deployment").await;
    assert!(owner::is_controlled_by(&deployment, &owner));
    assert_eq!(replicas(&deployment), Some(1));
}

#[windlass_testing::test(setup = crate::start)]
async fn the_schema_allows_one_to_ten_replicas(env: Env) {
    for wrong in [0, 11] {
        let mut foo = example("wrong", Some(wrong));
        foo.metadata.namespace = Some("default".into());
        let refused = env.client().create(&foo).await.expect_err("too few or too many");
        assert!(refused.is_invalid() && refused.to_string().contains("spec.replicas"), "{refused}");
    }
}

/// What is logged on this thread, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Writes what is logged from now on until the guard is dropped.
    fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn says(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.0.lock().expect("not poisoned")).contains(text)
    }
}

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[windlass_testing::test(setup = crate::start)]
async fn the_log_has_the_messages_of_upstream(env: Env) {
    let (log, _guard) = Log::start();
    env.create(Foo::new("nameless", FooSpec::default())).await;
    let missing = "Deployment name missing from object reference";
    env.eventually(missing, async || log.says(missing)).await;
    env.delete::<Foo>("nameless").await;
    let gone = "Foo referenced by item in work queue no longer exists";
    env.eventually(gone, async || log.says(gone)).await;
    assert!(log.says("foo=default/nameless"));
}

#[windlass_testing::test(setup = crate::start)]
async fn a_foo_without_a_name_for_its_deployment_waits_for_an_edit(env: Env) {
    env.create(Foo::new("nameless", FooSpec::default())).await;
    let fine = env.create(example("fine", None)).await;
    env.wait_for_event(&fine, "Synced").await;
    env.modify::<Foo>("nameless", |foo| foo.spec.deployment_name = "named".into()).await;
    env.wait_until::<Deployment>("named", |_| true).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn other_writers_of_the_deployment_are_corrected(env: Env) {
    env.create(example("test", Some(2))).await;
    env.wait_until::<Deployment>("test-deployment", |_| true).await;
    env.modify::<Deployment>("test-deployment", |it| it.spec.get_or_insert_default().replicas = Some(7)).await;
    env.wait_until::<Deployment>("test-deployment", |it| replicas(it) == Some(2)).await;
    // A Deployment that was deleted comes back.
    let deleted = env.get::<Deployment>("test-deployment").await;
    env.delete::<Deployment>(&deleted).await;
    env.wait_until::<Deployment>("test-deployment", |it| it.metadata.uid != deleted.metadata.uid).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn without_replicas_anybody_may_scale(env: Env) {
    let foo = env.create(example("test", None)).await;
    env.wait_until::<Deployment>("test-deployment", |_| true).await;
    env.modify::<Deployment>("test-deployment", |it| it.spec.get_or_insert_default().replicas = Some(5)).await;
    env.modify::<Foo>("test", |foo| foo.metadata.labels = Some([("a".into(), "b".into())].into())).await;
    env.wait_for_event(&foo, "Synced").await;
    assert_eq!(replicas(&env.get::<Deployment>("test-deployment").await), Some(5));
}

#[windlass_testing::test]
async fn a_crash_between_deployment_and_status_is_made_good(env: Env) {
    let operator = crate::start(&env).await;
    let _nodes = env.make_pods_ready("default");
    let fault = env.fail(Requests::writes_of::<Foo>()).with(Fault::timeout());
    env.create(example("crash", Some(2))).await;
    let deployment = env.wait_until::<Deployment>("crash-deployment", |_| true).await;
    fault.hit(1).await;
    operator.kill().await;
    drop(fault);
    env.run_ready(crate::operator(&env, env.manager())).await;
    wait_for_available(&env, "crash", 2).await;
    assert_eq!(env.get::<Deployment>("crash-deployment").await.metadata.uid, deployment.metadata.uid);
}

#[windlass_testing::test(setup = crate::start)]
async fn conflicts_and_lost_answers_are_tried_again(env: Env) {
    let lost = env.fail(Requests::of::<Deployment>().verbs(["create"])).times(1).with(Fault::lose_answer());
    let conflicts = env.fail(Requests::of::<Deployment>().verbs(["update"])).times(3).with(Fault::conflict());
    env.create(example("test", Some(1))).await;
    env.wait_until::<Deployment>("test-deployment", |_| true).await;
    env.modify::<Foo>("test", |foo| foo.spec.replicas = Some(4)).await;
    env.wait_until::<Deployment>("test-deployment", |it| replicas(it) == Some(4)).await;
    assert_eq!((lost.hits(), conflicts.hits()), (1, 3));
}

#[windlass_testing::test(setup = crate::start)]
async fn conflicting_writers_lose_nothing(env: Env) {
    let _nodes = env.make_pods_ready("default");
    // A second operator reconciles the Foo as well, while somebody else writes the Foo and its Deployment all the time.
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.create(example("test", Some(1))).await;
    env.wait_until::<Deployment>("test-deployment", |_| true).await;
    for round in 1..=10 {
        let theirs = || ("round".to_owned(), round.to_string());
        env.modify::<Foo>("test", |foo| {
            foo.metadata.labels.get_or_insert_default().extend([theirs()]);
            foo.spec.replicas = Some(round % 3 + 1);
        })
        .await;
        env.modify::<Deployment>("test-deployment", |it| {
            it.metadata.labels.get_or_insert_default().extend([theirs()]);
            it.spec.get_or_insert_default().replicas = Some(9);
        })
        .await;
    }
    let deployment = env.wait_until::<Deployment>("test-deployment", |it| replicas(it) == Some(2)).await;
    assert_eq!(deployment.metadata.labels.as_ref().expect("labels")["round"], "10");
    wait_for_available(&env, "test", 2).await;
    assert_eq!(env.get::<Foo>("test").await.metadata.labels.expect("labels")["round"], "10");
}

#[windlass_testing::test(setup = crate::start)]
async fn the_deployment_goes_with_its_foo(env: Env) {
    let foo = env.create(example("test", Some(1))).await;
    env.wait_until::<Deployment>("test-deployment", |_| true).await;
    env.restart_server().await;
    env.delete::<Foo>(&foo).await;
    env.wait_gone::<Deployment>("test-deployment").await;
}
