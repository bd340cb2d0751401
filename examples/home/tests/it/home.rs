// SPDX-License-Identifier: Apache-2.0

//! Tests of Home objects, with the webhooks.

use std::process::Command;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use windlass::kube::api::Patch;
use windlass::serde_json::json;
use windlass::{ObjectKey, conditions, owner};
use windlass_testing::{Env, Fault, Requests};

use home_api::v1::{Home, HomeSpec, Room};

fn example(rooms: &[(&str, Option<i32>)]) -> Home {
    let rooms = rooms.iter().map(|(name, celsius)| Room { name: (*name).to_owned(), celsius: *celsius }).collect();
    Home::new("sample", HomeSpec { address: "1 Main Street".into(), rooms, occupied: false })
}

fn is_ready(home: &Home) -> bool {
    let generation = home.metadata.generation.unwrap_or(0);
    home.status.as_ref().is_some_and(|status| {
        conditions::is_true(&status.conditions, "Ready")
            && conditions::is_current(&status.conditions, "Ready", generation)
    })
}

fn room<'a>(map: &'a ConfigMap, name: &str) -> Option<&'a str> {
    Some(map.data.as_ref()?.get(name)?.as_str())
}

#[windlass_testing::test(setup = crate::start)]
async fn a_home_becomes_ready_and_goes(env: Env) {
    let home = env.create(example(&[("kitchen", Some(21)), ("bedroom", Some(17))])).await;
    let ready = env.wait_until::<Home>("sample", is_ready).await;
    assert_eq!(ready.status.as_ref().map(|status| status.rooms), Some(2));
    env.wait_for_event(&home, "Heated").await;
    let map = env.get::<ConfigMap>("sample-thermostats").await;
    assert!(owner::is_controlled_by(&map, &home));
    assert_eq!((room(&map, "kitchen"), room(&map, "bedroom")), (Some("21"), Some("17")));

    env.delete::<Home>("sample").await;
    env.wait_gone::<ConfigMap>("sample-thermostats").await;
}

#[windlass_testing::test(setup = crate::start)]
async fn edits_reach_the_thermostats(env: Env) {
    env.create(example(&[("kitchen", Some(21)), ("bedroom", Some(17))])).await;
    env.wait_until::<ConfigMap>("sample-thermostats", |map| room(map, "bedroom").is_some()).await;
    env.modify::<Home>("sample", |home| {
        home.spec.rooms[0].celsius = Some(23);
        home.spec.rooms.truncate(1);
    })
    .await;
    let changed = |map: &ConfigMap| room(map, "kitchen") == Some("23") && room(map, "bedroom").is_none();
    env.wait_until::<ConfigMap>("sample-thermostats", changed).await;
    // What others write is put right, and what they delete comes back.
    env.modify::<ConfigMap>("sample-thermostats", |map| {
        map.data.get_or_insert_default().insert("kitchen".into(), "99".into());
    })
    .await;
    env.wait_until::<ConfigMap>("sample-thermostats", changed).await;
    env.delete::<ConfigMap>("sample-thermostats").await;
    env.wait_until::<ConfigMap>("sample-thermostats", changed).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn the_webhook_sets_defaults(env: Env) {
    let home = env.create(example(&[("kitchen", None)])).await;
    assert_eq!(home.spec.rooms[0].celsius, Some(20));
}

#[windlass_testing::test(setup = crate::start)]
async fn the_webhook_refuses_moves_and_evictions(env: Env) {
    let home = env.create(example(&[])).await;
    let moved = Patch::Merge(json!({ "spec": { "address": "2 Main Street" } }));
    let refused = env.client().patch::<Home>(&ObjectKey::of(&home), &moved).await.expect_err("it moves");
    assert!(refused.is_invalid() && refused.to_string().contains("a home does not move"), "{refused}");

    env.modify::<Home>("sample", |home| home.spec.occupied = true).await;
    let refused = env.client().delete::<Home>(&ObjectKey::of(&home)).await.expect_err("somebody lives there");
    assert!(refused.is_forbidden() && refused.to_string().contains("somebody lives there"), "{refused}");
    env.modify::<Home>("sample", |home| home.spec.occupied = false).await;
    env.delete::<Home>("sample").await;
    env.wait_gone::<Home>("sample").await;
}

/// The environment is that of a process: this program runs the test below once more.
#[test]
fn no_webhook_is_served_where_the_environment_disables_them() {
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["home::the_operator_works_without_webhooks", "--exact"]).env("ENABLE_WEBHOOKS", "false");
    let output = program.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[windlass_testing::test]
async fn the_operator_works_without_webhooks(env: Env) {
    if std::env::var("ENABLE_WEBHOOKS").as_deref() != Ok("false") {
        return; // the test above runs it
    }
    crate::start(&env).await;
    let home = env.create(example(&[("kitchen", None)])).await;
    assert_eq!(home.spec.rooms[0].celsius, None);
    env.wait_until::<ConfigMap>("sample-thermostats", |map| room(map, "kitchen") == Some("20")).await;
    // A home moves, and one where somebody lives goes.
    env.modify::<Home>("sample", |home| {
        home.spec.address = "2 Main Street".into();
        home.spec.occupied = true;
    })
    .await;
    env.delete::<Home>("sample").await;
    env.wait_gone::<Home>("sample").await;
    let registered = env.client().live().list::<ValidatingWebhookConfiguration>().await.expect("a list");
    assert!(registered.is_empty(), "{registered:?}");
}

#[windlass_testing::test]
async fn a_crash_between_thermostats_and_status_is_made_good(env: Env) {
    let operator = crate::start(&env).await;
    let fault = env.fail(Requests::writes_of::<Home>()).with(Fault::timeout());
    env.create(example(&[("kitchen", Some(21))])).await;
    env.wait_until::<ConfigMap>("sample-thermostats", |_| true).await;
    fault.hit(1).await;
    operator.kill().await;
    drop(fault);
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.wait_until::<Home>("sample", is_ready).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn failing_requests_are_tried_again(env: Env) {
    let failing = env.fail(Requests::writes_of::<ConfigMap>()).times(2).with(Fault::status(500));
    let conflicts = env.fail(Requests::writes_of::<Home>()).times(2).with(Fault::conflict());
    env.create(example(&[("kitchen", Some(21))])).await;
    env.restart_server().await;
    env.wait_until::<Home>("sample", is_ready).await;
    assert_eq!((failing.hits(), conflicts.hits()), (2, 2));
}

#[windlass_testing::test(setup = crate::start)]
async fn conflicting_writers_lose_nothing(env: Env) {
    let conflicts = env.fail(Requests::writes_of::<Home>().subresource("status")).times(4).with(Fault::conflict());
    env.create(example(&[("kitchen", Some(21))])).await;
    // Somebody else writes the Home and its thermostats all the time, and a second operator reconciles it as well.
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.wait_until::<ConfigMap>("sample-thermostats", |_| true).await;
    for celsius in 10..20 {
        env.modify::<Home>("sample", |home| {
            home.metadata.labels.get_or_insert_default().insert("celsius".into(), celsius.to_string());
            home.spec.rooms[0].celsius = Some(celsius);
        })
        .await;
        env.modify::<ConfigMap>("sample-thermostats", |map| {
            map.metadata.labels.get_or_insert_default().insert("theirs".into(), celsius.to_string());
            map.data.get_or_insert_default().insert("kitchen".into(), "99".into());
        })
        .await;
    }
    let map = env.wait_until::<ConfigMap>("sample-thermostats", |map| room(map, "kitchen") == Some("19")).await;
    assert_eq!(map.metadata.labels.as_ref().expect("labels")["theirs"], "19");
    let home = env.wait_until::<Home>("sample", is_ready).await;
    assert_eq!(home.metadata.labels.as_ref().expect("labels")["celsius"], "19");
    assert_eq!(conflicts.hits(), 4);
}

#[windlass_testing::test(setup = crate::start)]
async fn rooms_that_cannot_be_heated_are_refused(env: Env) {
    for (rooms, field) in [
        (vec![("kitchen", Some(31))], "spec.rooms[0].celsius"),
        (vec![("kitchen", Some(4))], "spec.rooms[0].celsius"),
        (vec![("The Kitchen", None)], "spec.rooms[0].name"),
        (vec![("kitchen", None), ("kitchen", None)], "spec.rooms[1]"),
    ] {
        let mut home = example(&rooms);
        home.metadata.namespace = Some("default".into());
        let refused = env.client().create(&home).await.expect_err(field);
        assert!(refused.is_invalid() && refused.to_string().contains(field), "{refused}");
    }
}
