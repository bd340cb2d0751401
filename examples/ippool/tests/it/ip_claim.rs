// SPDX-License-Identifier: Apache-2.0

//! Tests of IPClaim objects.

use std::collections::BTreeSet;

use ippool_api::v1alpha1::{IPAllocation, IPClaim, IPClaimSpec, IPPool, IPPoolSpec};
use windlass::conditions;
use windlass_testing::{Env, Fault, Requests};

pub(crate) fn pool(name: &str, cidrs: &[&str]) -> IPPool {
    IPPool::new(name, IPPoolSpec { cidrs: cidrs.iter().map(|cidr| (*cidr).to_owned()).collect() })
}

pub(crate) fn claim(name: &str, pool: &str) -> IPClaim {
    IPClaim::new(name, IPClaimSpec { pool: pool.into(), address: None })
}

fn reason(claim: &IPClaim) -> Option<&str> {
    Some(conditions::find(&claim.status.as_ref()?.conditions, "Ready")?.reason.as_str())
}

/// Waits until a claim has an address.
async fn address(env: &Env, name: &str) -> String {
    let claim = env.wait_until::<IPClaim>(name, |claim| reason(claim) == Some("Allocated")).await;
    claim.status.as_ref().and_then(|status| status.address.clone()).expect("an address")
}

async fn wait_for_reason(env: &Env, name: &str, expected: &str) {
    env.wait_until::<IPClaim>(name, |claim| reason(claim) == Some(expected)).await;
}

async fn allocations(env: &Env) -> Vec<IPAllocation> {
    env.client().live().list::<IPAllocation>().await.expect("allocations")
}

#[windlass_testing::test(setup = crate::start)]
async fn claims_get_the_lowest_free_address(env: Env) {
    env.create(pool("net", &["10.0.0.0/29"])).await;
    for (name, expected) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        env.create(claim(name, "net")).await;
        assert_eq!(address(&env, name).await, expected);
    }
    env.delete::<IPClaim>("b").await;
    env.wait_gone::<IPClaim>("b").await;
    env.wait_gone::<IPAllocation>("10.0.0.2").await;
    let again = env.create(claim("d", "net")).await;
    assert_eq!(address(&env, "d").await, "10.0.0.2");
    env.wait_for_event(&again, "Allocated").await;
}

#[windlass_testing::test(setup = crate::start)]
async fn ipv6_ranges_need_not_be_counted_through(env: Env) {
    env.create(pool("net", &["fd00::/16"])).await;
    env.create(claim("a", "net")).await;
    assert_eq!(address(&env, "a").await, "fd00::1");
    env.get::<IPAllocation>("fd00-0000-0000-0000-0000-0000-0000-0001").await;
}

#[windlass_testing::test(setup = crate::start)]
async fn a_claim_may_name_its_address(env: Env) {
    env.create(pool("net", &["10.0.0.0/24"])).await;
    let certain = |name: &str, address: &str| {
        let mut certain = claim(name, "net");
        certain.spec.address = Some(address.into());
        certain
    };
    env.create(certain("dns", "10.0.0.53")).await;
    assert_eq!(address(&env, "dns").await, "10.0.0.53");
    env.create(certain("late", "10.0.0.53")).await;
    wait_for_reason(&env, "late", "AddressTaken").await;
    env.create(certain("elsewhere", "10.9.0.1")).await;
    wait_for_reason(&env, "elsewhere", "NotInPool").await;
    env.delete::<IPClaim>("dns").await;
    assert_eq!(address(&env, "late").await, "10.0.0.53");

    let mut moved = env.get::<IPClaim>("late").await;
    moved.spec.address = Some("10.0.0.54".into());
    let refused = env.client().update(&moved).await.expect_err("claims keep their address");
    assert!(refused.is_invalid(), "{refused}");
}

#[windlass_testing::test(setup = crate::start)]
async fn an_exhausted_pool_gives_what_is_freed(env: Env) {
    env.create(pool("net", &["10.0.0.0/30"])).await;
    for name in ["a", "b"] {
        env.create(claim(name, "net")).await;
        address(&env, name).await;
    }
    let waiting = env.create(claim("waiting", "net")).await;
    wait_for_reason(&env, "waiting", "PoolExhausted").await;
    env.wait_for_event(&waiting, "PoolExhausted").await;
    env.delete::<IPClaim>("a").await;
    assert_eq!(address(&env, "waiting").await, "10.0.0.1");
    // And what is added.
    env.create(claim("more", "net")).await;
    wait_for_reason(&env, "more", "PoolExhausted").await;
    env.modify::<IPPool>("net", |pool| pool.spec.cidrs.push("10.0.1.0/30".into())).await;
    assert_eq!(address(&env, "more").await, "10.0.1.1");
}

#[windlass_testing::test(setup = crate::start)]
async fn a_claim_waits_for_its_pool(env: Env) {
    env.create(claim("early", "net")).await;
    wait_for_reason(&env, "early", "PoolNotFound").await;
    env.create(pool("net", &["10.0.0.0/24"])).await;
    assert_eq!(address(&env, "early").await, "10.0.0.1");
}

#[windlass_testing::test(setup = crate::start)]
async fn pools_that_overlap_give_no_address_twice(env: Env) {
    env.create(pool("one", &["10.0.0.0/28"])).await;
    env.create(pool("two", &["10.0.0.0/28"])).await;
    let names: Vec<String> = (0..14).map(|number| format!("claim-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        env.create(claim(name, if number % 2 == 0 { "one" } else { "two" })).await;
    }
    let mut given = BTreeSet::new();
    for name in &names {
        let address = address(&env, name).await;
        assert!(given.insert(address.clone()), "{address} was given twice");
    }
    assert_eq!(allocations(&env).await.len(), names.len());
    // What one pool frees, the other may give.
    env.create(claim("waiting", "two")).await;
    wait_for_reason(&env, "waiting", "PoolExhausted").await;
    env.delete::<IPClaim>("claim-0").await;
    address(&env, "waiting").await;
}

/// Two operators at once, as when a replica does not know yet that it has lost its lease.
#[windlass_testing::test(setup = crate::start)]
async fn two_operators_give_no_address_twice(env: Env) {
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.create(pool("net", &["10.0.0.0/28"])).await;
    let names: Vec<String> = (0..14).map(|number| format!("claim-{number}")).collect();
    for name in &names {
        env.create(claim(name, "net")).await;
    }
    let mut given = BTreeSet::new();
    for name in &names {
        let address = address(&env, name).await;
        assert!(given.insert(address.clone()), "{address} was given twice");
    }
    // Both may have created an allocation for a claim: one of them is freed.
    env.eventually("as many allocations as claims", async || allocations(&env).await.len() == names.len()).await;
}

#[windlass_testing::test]
async fn a_crash_between_allocation_and_status_loses_no_address(env: Env) {
    let operator = crate::start(&env).await;
    env.create(pool("net", &["10.0.0.0/29"])).await;
    // The finalizer gets through, the status does not.
    let fault = env.fail(Requests::writes_of::<IPClaim>().subresource("status")).with(Fault::timeout());
    env.create(claim("crash", "net")).await;
    env.wait_until::<IPAllocation>("10.0.0.1", |_| true).await;
    fault.hit(1).await;
    operator.kill().await;
    drop(fault);
    env.run_ready(crate::operator(&env, env.manager())).await;
    assert_eq!(address(&env, "crash").await, "10.0.0.1");
    assert_eq!(allocations(&env).await.len(), 1);
}

#[windlass_testing::test(setup = crate::start)]
async fn lost_answers_and_conflicts_lose_no_address(env: Env) {
    env.create(pool("net", &["10.0.0.0/29"])).await;
    let lost = env.fail(Requests::writes_of::<IPAllocation>()).times(1).with(Fault::lose_answer());
    let conflicts = env.fail(Requests::writes_of::<IPClaim>()).times(3).with(Fault::conflict());
    env.create(claim("a", "net")).await;
    env.restart_server().await;
    assert_eq!(address(&env, "a").await, "10.0.0.1");
    assert_eq!((lost.hits(), conflicts.hits()), (1, 3));
    assert_eq!(allocations(&env).await.len(), 1);
    env.delete::<IPClaim>("a").await;
    env.wait_gone::<IPClaim>("a").await;
    assert!(allocations(&env).await.is_empty());
}

/// What another program does: it depends on `ippool-api` with the feature `client`, and on nothing of the operator.
#[windlass_testing::test(setup = crate::start)]
async fn third_parties_have_typed_clients(env: Env) {
    use ippool_api::client::{Clientset, Informers};
    use windlass::informer::InformerFactory;

    env.create(pool("net", &["10.0.0.0/29"])).await;
    let clients = Clientset::new(env.kube());
    let created = clients.v1alpha1_ipclaims("default").create(&Default::default(), &claim("a", "net")).await;
    created.expect("created");
    address(&env, "a").await;

    let factory = InformerFactory::new(env.kube());
    let claims = Informers::new(factory.clone()).v1alpha1_ipclaims().lister();
    factory.start();
    factory.wait_synced().await.expect("synced");
    let cached = claims.get(&windlass::ObjectKey::new("default", "a")).expect("cached");
    assert_eq!(cached.status.as_ref().and_then(|status| status.address.as_deref()), Some("10.0.0.1"));
    factory.stop().await;
}
