// SPDX-License-Identifier: Apache-2.0

//! Tests of AppService objects.

use k8s_openapi::api::apps::v1::Deployment;
use windlass::conditions;
use windlass::owner;
use windlass_testing::{Env, Fault, Requests};

use app_service_api::v1alpha1::{AppService, AppServiceSpec};

fn example(name: &str, replicas: i32) -> AppService {
    AppService::new(name, AppServiceSpec { deployment_name: format!("{name}-deployment"), replicas })
}

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.replicas
}

fn reason(app: &AppService) -> Option<&str> {
    Some(conditions::find(&app.status.as_ref()?.conditions, "Ready")?.reason.as_str())
}

async fn wait_for_available(env: &Env, name: &str, expected: i32) {
    let available = |app: &AppService| {
        let status = app.status.as_ref();
        status.is_some_and(|status| status.available_replicas == expected) && reason(app) == Some("Available")
    };
    env.wait_until::<AppService>(name, available).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn an_app_service_has_its_deployment(env: Env) {
    let app = env.create(example("shop", 2)).await;
    let deployment = env.wait_until::<Deployment>("shop-deployment", |_| true).await;
    assert!(owner::is_controlled_by(&deployment, &app));
    assert_eq!(replicas(&deployment), Some(2));
    env.wait_until::<AppService>("shop", |app| reason(app) == Some("Progressing")).await;
    let _nodes = env.make_pods_ready("default");
    wait_for_available(&env, "shop", 2).await;
    env.wait_for_event(&app, "Available").await;

    env.delete::<AppService>(&app).await;
    env.wait_gone::<Deployment>("shop-deployment").await;
}

#[windlass_testing::test(setup = crate::start)]
async fn edits_reach_the_deployment(env: Env) {
    let _nodes = env.make_pods_ready("default");
    env.create(example("shop", 1)).await;
    wait_for_available(&env, "shop", 1).await;
    env.modify::<AppService>("shop", |app| app.spec.replicas = 3).await;
    wait_for_available(&env, "shop", 3).await;
    // As `kubectl scale` does.
    let key = windlass::ObjectKey::new("default", "shop");
    env.client().scale::<AppService>(&key).set(0).await.expect("scaled");
    wait_for_available(&env, "shop", 0).await;

    env.modify::<AppService>("shop", |app| app.spec.deployment_name = "renamed".into()).await;
    env.wait_until::<Deployment>("renamed", |_| true).await;
    env.wait_gone::<Deployment>("shop-deployment").await;
}

#[windlass_testing::test(setup = crate::start)]
async fn other_writers_keep_their_fields_and_lose_ours(env: Env) {
    env.create(example("shop", 2)).await;
    env.wait_until::<Deployment>("shop-deployment", |_| true).await;
    env.modify::<Deployment>("shop-deployment", |deployment| {
        let spec = deployment.spec.get_or_insert_default();
        (spec.replicas, spec.revision_history_limit) = (Some(9), Some(3));
    })
    .await;
    let corrected = env.wait_until::<Deployment>("shop-deployment", |it| replicas(it) == Some(2)).await;
    assert_eq!(corrected.spec.as_ref().and_then(|spec| spec.revision_history_limit), Some(3));
}

#[windlass_testing::test(setup = crate::start)]
async fn a_deployment_of_somebody_else_is_left_alone(env: Env) {
    let first = env.create(example("first", 1)).await;
    env.wait_until::<Deployment>("first-deployment", |_| true).await;
    let mut second = example("second", 5);
    second.spec.deployment_name = "first-deployment".into();
    let second = env.create(second).await;
    env.wait_until::<AppService>("second", |app| reason(app) == Some("DeploymentExists")).await;
    env.wait_for_event(&second, "DeploymentExists").await;
    let deployment = env.get::<Deployment>("first-deployment").await;
    assert!(owner::is_controlled_by(&deployment, &first));
    assert_eq!(replicas(&deployment), Some(1));
}

#[windlass_testing::test]
async fn a_crash_between_deployment_and_status_is_made_good(env: Env) {
    let operator = crate::start(&env).await;
    let _nodes = env.make_pods_ready("default");
    let fault = env.fail(Requests::writes_of::<AppService>()).with(Fault::timeout());
    env.create(example("crash", 2)).await;
    let deployment = env.wait_until::<Deployment>("crash-deployment", |_| true).await;
    fault.hit(1).await;
    operator.kill().await;
    drop(fault);
    env.run_ready(crate::operator(&env, env.manager())).await;
    wait_for_available(&env, "crash", 2).await;
    assert_eq!(env.get::<Deployment>("crash-deployment").await.metadata.uid, deployment.metadata.uid);
}

#[windlass_testing::test(setup = crate::start)]
async fn failing_requests_are_tried_again(env: Env) {
    let _nodes = env.make_pods_ready("default");
    let failing = env.fail(Requests::writes_of::<Deployment>()).times(2).with(Fault::status(500));
    let conflicts = env.fail(Requests::writes_of::<AppService>()).times(2).with(Fault::conflict());
    env.create(example("shop", 1)).await;
    env.restart_server().await;
    wait_for_available(&env, "shop", 1).await;
    assert_eq!((failing.hits(), conflicts.hits()), (2, 2));
}

#[windlass_testing::test(setup = crate::start)]
async fn conflicting_writers_lose_nothing(env: Env) {
    let _nodes = env.make_pods_ready("default");
    // A second operator reconciles the AppService as well, while somebody else writes it and its Deployment all the time.
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.create(example("shop", 1)).await;
    env.wait_until::<Deployment>("shop-deployment", |_| true).await;
    for round in 1..=10 {
        env.modify::<AppService>("shop", |app| {
            app.metadata.labels.get_or_insert_default().insert("round".into(), round.to_string());
            app.spec.replicas = round % 3 + 1;
        })
        .await;
        env.modify::<Deployment>("shop-deployment", |deployment| {
            let spec = deployment.spec.get_or_insert_default();
            (spec.replicas, spec.revision_history_limit) = (Some(9), Some(round));
        })
        .await;
    }
    let deployment = env.wait_until::<Deployment>("shop-deployment", |it| replicas(it) == Some(2)).await;
    assert_eq!(deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit), Some(10));
    wait_for_available(&env, "shop", 2).await;
    assert_eq!(env.get::<AppService>("shop").await.metadata.labels.expect("labels")["round"], "10");
}

#[windlass_testing::test]
async fn deletes_and_creates_while_nobody_reconciles_are_caught_up(env: Env) {
    let operator = crate::start(&env).await;
    let old = env.create(example("shop", 2)).await;
    let before = env.wait_until::<Deployment>("shop-deployment", |_| true).await;
    operator.kill().await;
    env.delete::<AppService>(&old).await;
    let new = env.create(example("shop", 1)).await;
    env.run_ready(crate::operator(&env, env.manager())).await;
    // The Deployment of the old AppService goes, and the new one gets its own under the same name.
    let owned = |it: &Deployment| it.metadata.uid != before.metadata.uid && owner::is_controlled_by(it, &new);
    let deployment = env.wait_until::<Deployment>("shop-deployment", owned).await;
    assert_eq!(replicas(&deployment), Some(1));
    env.delete::<AppService>(&new).await;
    env.wait_gone::<AppService>("shop").await;
    env.wait_gone::<Deployment>("shop-deployment").await;
}

#[windlass_testing::test(setup = crate::start)]
async fn what_no_deployment_can_be_is_refused(env: Env) {
    let mut few = example("shop", -1);
    let mut nameless = example("shop", 1);
    nameless.spec.deployment_name = String::new();
    for (wrong, field) in [(&mut few, "spec.replicas"), (&mut nameless, "spec.deploymentName")] {
        wrong.metadata.namespace = Some("default".into());
        let refused = env.client().create(wrong).await.expect_err(field);
        assert!(refused.is_invalid() && refused.to_string().contains(field), "{refused}");
    }
}
