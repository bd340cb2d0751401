// SPDX-License-Identifier: Apache-2.0

//! Tests of Guestbook objects, with the webhooks.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use windlass::conditions;
use windlass::kube::api::Patch;
use windlass::owner;
use windlass::serde_json::json;
use windlass_testing::{Env, Fault, Requests};

use guestbook_api::v1::{Guestbook, GuestbookSpec, ServiceType};

/// The label that tells the parts apart.
const COMPONENT: &str = "app.kubernetes.io/component";

fn is_ready(guestbook: &Guestbook) -> bool {
    let (status, generation) = (guestbook.status.as_ref(), guestbook.metadata.generation.unwrap_or(0));
    status.is_some_and(|status| {
        conditions::is_true(&status.conditions, "Ready")
            && conditions::is_current(&status.conditions, "Ready", generation)
    })
}

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.replicas
}

#[windlass_testing::test(setup = crate::start)]
async fn a_guestbook_has_its_parts(env: Env) {
    let _nodes = env.make_pods_ready("default");
    let guestbook = env.create(Guestbook::new("visitors", GuestbookSpec::default())).await;
    let ready = env.wait_until::<Guestbook>("visitors", is_ready).await;
    let status = ready.status.as_ref().expect("a status");
    assert_eq!((status.available_frontends, status.available_followers), (3, 2));
    env.wait_for_event(&guestbook, "Available").await;
    for (part, wanted, port) in [("frontend", 3, 80), ("redis-leader", 1, 6379), ("redis-follower", 2, 6379)] {
        let deployment = env.get::<Deployment>(format!("visitors-{part}").as_str()).await;
        let service = env.get::<Service>(format!("visitors-{part}").as_str()).await;
        assert!(owner::is_controlled_by(&deployment, &guestbook) && owner::is_controlled_by(&service, &guestbook));
        assert_eq!(replicas(&deployment), Some(wanted), "{part}");
        let spec = service.spec.expect("a spec");
        assert_eq!(spec.ports.and_then(|ports| ports.first().map(|port| port.port)), Some(port), "{part}");
    }

    env.delete::<Guestbook>(&guestbook).await;
    for part in ["frontend", "redis-leader", "redis-follower"] {
        env.wait_gone::<Deployment>(format!("visitors-{part}").as_str()).await;
        env.wait_gone::<Service>(format!("visitors-{part}").as_str()).await;
    }
}

#[windlass_testing::test(setup = crate::start)]
async fn edits_change_add_and_remove_parts(env: Env) {
    let _nodes = env.make_pods_ready("default");
    env.create(Guestbook::new("visitors", GuestbookSpec::default())).await;
    env.wait_until::<Guestbook>("visitors", is_ready).await;
    env.modify::<Guestbook>("visitors", |it| (it.spec.frontends, it.spec.followers) = (Some(1), Some(0))).await;
    env.wait_gone::<Deployment>("visitors-redis-follower").await;
    env.wait_gone::<Service>("visitors-redis-follower").await;
    env.wait_until::<Deployment>("visitors-frontend", |it| replicas(it) == Some(1)).await;
    env.modify::<Guestbook>("visitors", |it| it.spec.followers = Some(1)).await;
    env.wait_until::<Deployment>("visitors-redis-follower", |it| replicas(it) == Some(1)).await;
    env.wait_until::<Guestbook>("visitors", is_ready).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn the_webhook_writes_defaults(env: Env) {
    let guestbook = env.create(Guestbook::new("visitors", GuestbookSpec::default())).await;
    let expected = GuestbookSpec {
        frontends: Some(3),
        followers: Some(2),
        service_type: Some(ServiceType::ClusterIP),
        deletion_protection: false,
    };
    assert_eq!(guestbook.spec, expected);
}

#[windlass_testing::test(setup = crate::start)]
async fn the_webhook_refuses_bad_creates_updates_and_deletes(env: Env) {
    let client = env.client();
    let mut long = Guestbook::new(&"a".repeat(49), GuestbookSpec::default());
    long.metadata.namespace = Some("default".into());
    let refused = client.create(&long).await.expect_err("the name is too long");
    assert!(refused.is_invalid() && refused.to_string().contains("no more than 48 characters"), "{refused}");

    let spec = GuestbookSpec { service_type: Some(ServiceType::LoadBalancer), ..GuestbookSpec::default() };
    let key = windlass::ObjectKey::of(&env.create(Guestbook::new("public", spec)).await);
    let hidden = Patch::Merge(json!({ "spec": { "serviceType": "ClusterIP" } }));
    let refused = client.patch::<Guestbook>(&key, &hidden).await.expect_err("the address would be lost");
    assert!(refused.is_invalid() && refused.to_string().contains("spec.serviceType"), "{refused}");

    env.modify::<Guestbook>("public", |it| it.spec.deletion_protection = true).await;
    let refused = client.delete::<Guestbook>(&key).await.expect_err("it is protected");
    assert!(refused.is_forbidden() && refused.to_string().contains("is protected"), "{refused}");
    env.modify::<Guestbook>("public", |it| it.spec.deletion_protection = false).await;
    env.delete::<Guestbook>("public").await;
    env.wait_gone::<Guestbook>("public").await;
}

#[windlass_testing::test(setup = crate::start)]
async fn other_writers_of_parts_are_corrected(env: Env) {
    env.create(Guestbook::new("visitors", GuestbookSpec::default())).await;
    env.wait_until::<Deployment>("visitors-frontend", |_| true).await;
    env.modify::<Deployment>("visitors-frontend", |it| it.spec.get_or_insert_default().replicas = Some(9)).await;
    env.wait_until::<Deployment>("visitors-frontend", |it| replicas(it) == Some(3)).await;
    env.wait_until::<Service>("visitors-redis-leader", |_| true).await;
    env.delete::<Service>("visitors-redis-leader").await;
    env.wait_until::<Service>("visitors-redis-leader", |_| true).await;
}

#[windlass_testing::test]
async fn a_crash_between_two_parts_is_made_good(env: Env) {
    let operator = crate::start(&env).await;
    let _nodes = env.make_pods_ready("default");
    // The leader comes first; nothing after it gets through.
    let fault = env.fail(Requests::writes_of::<Deployment>()).after(1).with(Fault::timeout());
    env.create(Guestbook::new("visitors", GuestbookSpec::default())).await;
    fault.hit(1).await;
    operator.kill().await;
    drop(fault);
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.wait_until::<Guestbook>("visitors", is_ready).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn failing_requests_are_tried_again(env: Env) {
    let _nodes = env.make_pods_ready("default");
    let failing = env.fail(Requests::writes_of::<Service>()).times(2).with(Fault::status(503));
    let conflicts = env.fail(Requests::writes_of::<Guestbook>()).times(2).with(Fault::conflict());
    env.create(Guestbook::new("visitors", GuestbookSpec::default())).await;
    env.restart_server().await;
    env.wait_until::<Guestbook>("visitors", is_ready).await;
    assert_eq!((failing.hits(), conflicts.hits()), (2, 2));
}

#[windlass_testing::test(setup = crate::start)]
async fn conflicting_writers_lose_nothing(env: Env) {
    let _nodes = env.make_pods_ready("default");
    // A second operator reconciles the Guestbook as well, while somebody else writes it and its parts all the time.
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.create(Guestbook::new("visitors", GuestbookSpec::default())).await;
    env.wait_until::<Deployment>("visitors-frontend", |_| true).await;
    env.wait_until::<Service>("visitors-frontend", |_| true).await;
    for round in 1..=10 {
        let theirs = || ("round".to_owned(), round.to_string());
        env.modify::<Guestbook>("visitors", |it| {
            it.metadata.labels.get_or_insert_default().extend([theirs()]);
            (it.spec.frontends, it.spec.followers) = (Some(round % 3 + 1), Some(round % 2));
        })
        .await;
        env.modify::<Deployment>("visitors-frontend", |it| {
            it.metadata.labels.get_or_insert_default().extend([theirs()]);
            it.spec.get_or_insert_default().replicas = Some(9);
        })
        .await;
        env.modify::<Service>("visitors-frontend", |it| {
            it.metadata.labels.get_or_insert_default().extend([theirs()]);
            let selector = it.spec.get_or_insert_default().selector.get_or_insert_default();
            selector.insert(COMPONENT.into(), "theirs".into());
        })
        .await;
    }
    let frontend = env.wait_until::<Deployment>("visitors-frontend", |it| replicas(it) == Some(2)).await;
    assert_eq!(frontend.metadata.labels.as_ref().expect("labels")["round"], "10");
    let component = |it: &Service| it.spec.as_ref()?.selector.as_ref()?.get(COMPONENT).cloned();
    let is_ours = |it: &Service| component(it).as_deref() == Some("frontend");
    let service = env.wait_until::<Service>("visitors-frontend", is_ours).await;
    assert_eq!(service.metadata.labels.as_ref().expect("labels")["round"], "10");
    // There are no followers after an even number of rounds.
    env.wait_gone::<Deployment>("visitors-redis-follower").await;
    env.wait_gone::<Service>("visitors-redis-follower").await;
    let guestbook = env.wait_until::<Guestbook>("visitors", is_ready).await;
    assert_eq!(guestbook.metadata.labels.as_ref().expect("labels")["round"], "10");
}

#[windlass_testing::test]
async fn a_guestbook_deleted_while_nobody_reconciles_leaves_nothing(env: Env) {
    let operator = crate::start(&env).await;
    // Some parts are there and others are not when it is deleted.
    let fault = env.fail(Requests::writes_of::<Deployment>()).after(1).with(Fault::timeout());
    let guestbook = env.create(Guestbook::new("visitors", GuestbookSpec::default())).await;
    env.wait_until::<Deployment>("visitors-redis-leader", |_| true).await;
    fault.hit(1).await;
    env.delete::<Guestbook>(&guestbook).await;
    operator.kill().await;
    drop(fault);
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.wait_gone::<Guestbook>("visitors").await;
    for part in ["frontend", "redis-leader", "redis-follower"] {
        env.wait_gone::<Deployment>(format!("visitors-{part}").as_str()).await;
        env.wait_gone::<Service>(format!("visitors-{part}").as_str()).await;
    }
    let others = env.create(Guestbook::new("others", GuestbookSpec::default())).await;
    let leader = env.wait_until::<Deployment>("others-redis-leader", |_| true).await;
    assert!(owner::is_controlled_by(&leader, &others));
}
