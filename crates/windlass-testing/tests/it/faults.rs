//! Requests that fail because the test says so.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use windlass::controller::from_key_fn;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};
use windlass_testing::{Env, Fault, Requests};

use crate::map;

fn maps(env: &Env) -> Api<ConfigMap> {
    Api::default_namespaced(env.kube())
}

async fn create(maps: &Api<ConfigMap>, name: &str) -> Result<ConfigMap, kube::Error> {
    maps.create(&PostParams::default(), &map(name)).await
}

/// The code of an answer; 0 for none.
fn code<T>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

/// An operator that marks ConfigMaps.
pub(crate) fn marking(env: &Env) -> Manager {
    let mut manager = env.manager().name("marks").build().expect("built");
    let mark = from_key_fn(|key: ObjectKey, ctx: Context| async move {
        ctx.client().modify(&key, |map: &mut ConfigMap| map.immutable = Some(true)).await?;
        Ok(Outcome::Done)
    });
    manager.add(Controller::<ConfigMap>::new("marks").complete_keyed(mark)).expect("added");
    manager
}

pub(crate) async fn is_marked(env: &Env, name: &str) {
    env.client().create(&map(name)).await.expect("created");
    env.wait_until::<ConfigMap>(&ObjectKey::new("default", name), |map| map.immutable == Some(true)).await;
}

#[windlass_testing::test(paused, bare)]
async fn as_many_requests_fail_as_asked(env: Env) {
    let maps = maps(&env);
    let fault = env.fail(Requests::writes_of::<ConfigMap>()).after(1).times(2).with(Fault::status(500));
    let mut codes = Vec::new();
    for name in ["a", "b", "c", "d"] {
        codes.push(code(create(&maps, name).await));
    }
    assert_eq!((codes, fault.hits()), (vec![200, 500, 500, 200], 2));
    fault.hit(2).await;
}

#[windlass_testing::test(paused, bare)]
async fn a_fault_ends_with_its_guard(env: Env) {
    let maps = maps(&env);
    let fault = env.fail(Requests::all()).with(Fault::status(503));
    assert_eq!(code(create(&maps, "a").await), 503);
    assert_eq!(code(maps.list(&ListParams::default()).await), 503);
    env.client().create(&map("a")).await.expect("the test's own requests do not fail");
    drop(fault);
    assert_eq!(code(create(&maps, "b").await), 200);
}

#[windlass_testing::test(paused, bare)]
async fn faults_can_include_the_test(env: Env) {
    let _fault = env.fail(Requests::writes_of::<ConfigMap>().including_test()).with(Fault::conflict());
    assert!(env.client().create(&map("a")).await.expect_err("refused").is_conflict());
}

#[windlass_testing::test(paused, bare)]
async fn a_status_has_a_reason(env: Env) {
    let maps = maps(&env);
    let reason = async |fault: Fault| {
        let _fault = env.fail(Requests::all()).with(fault);
        match create(&maps, "a").await {
            Err(kube::Error::Api(status)) => (status.code, status.reason.clone()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(reason(Fault::status(500)).await, (500, "InternalError".to_owned()));
    assert_eq!(reason(Fault::conflict()).await, (409, "Conflict".to_owned()));
    assert_eq!(reason(Fault::expired()).await, (410, "Expired".to_owned()));
    let exists = Fault::status(409).reason("AlreadyExists").retry_after(Duration::from_secs(1));
    assert_eq!(reason(exists).await, (409, "AlreadyExists".to_owned()));
}

#[windlass_testing::test(paused, bare)]
async fn one_object_can_be_chosen_even_when_created(env: Env) {
    let maps = maps(&env);
    let fault = env.fail(Requests::of::<ConfigMap>().object("default/b")).with(Fault::status(500));
    assert_eq!(code(create(&maps, "a").await), 200);
    assert_eq!(code(create(&maps, "b").await), 500);
    assert_eq!(code(maps.get_opt("b").await), 500);
    drop(fault);
    assert_eq!(code(create(&maps, "b").await), 200);
}

#[windlass_testing::test(paused, bare)]
async fn requests_can_be_delayed(env: Env) {
    let _fault = env.fail(Requests::all()).with(Fault::delay(Duration::from_secs(5)));
    let began = tokio::time::Instant::now();
    create(&maps(&env), "a").await.expect("created");
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[windlass_testing::test(paused, bare)]
async fn requests_can_remain_unanswered(env: Env) {
    let maps = maps(&env);
    let fault = env.fail(Requests::all()).with(Fault::timeout());
    let answer = tokio::time::timeout(Duration::from_secs(600), maps.get_opt("a")).await;
    assert!(answer.is_err(), "ten minutes have passed");
    let waiting = tokio::spawn({
        let maps = maps.clone();
        async move { maps.get_opt("a").await }
    });
    fault.hit(2).await;
    drop(fault);
    assert_eq!(code(waiting.await.expect("joined")), 0, "the connection breaks");
}

#[windlass_testing::test(paused, bare)]
async fn a_request_whose_answer_is_lost_was_carried_out(env: Env) {
    let maps = maps(&env);
    let lost = env.fail(Requests::writes_of::<ConfigMap>()).with(Fault::lose_answer());
    assert_eq!(code(create(&maps, "a").await), 0);
    drop(lost);
    let _broken = env.fail(Requests::writes_of::<ConfigMap>()).with(Fault::disconnect());
    assert_eq!(code(create(&maps, "b").await), 0);
    assert!(maps.get_opt("a").await.expect("read").is_some());
    assert!(maps.get_opt("b").await.expect("read").is_none());
}

#[windlass_testing::test(paused, bare)]
async fn operators_watch_again_after_their_watches_were_cut(env: Env) {
    env.run_ready(marking(&env)).await;
    is_marked(&env, "a").await;
    assert_eq!(env.cut_watches(Requests::of::<ConfigMap>()), 1);
    is_marked(&env, "b").await;
    let expired = env.fail(Requests::watches_of::<ConfigMap>()).times(1).with(Fault::expired());
    assert_eq!(env.cut_watches(Requests::of::<ConfigMap>()), 1);
    expired.hit(1).await;
    is_marked(&env, "c").await;
    assert_eq!(env.cut_watches(Requests::to("apps", "deployments")), 0);
}

#[test]
fn a_fault_that_is_not_met_is_named() {
    let said = crate::failure(async |env: Env| {
        let fault = env.fail(Requests::writes_of::<ConfigMap>()).with(Fault::status(500));
        fault.hit(1).await;
    });
    let start = "timed out waiting for 1 requests to meet the fault on create, update, patch, delete, deletecollection of \
                 configmaps (at ";
    assert!(said.starts_with(start) && said.ends_with("; 0 have"), "{said}");
}
