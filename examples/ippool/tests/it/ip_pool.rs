// SPDX-License-Identifier: Apache-2.0

//! Tests of IPPool objects.

use windlass::conditions;
use windlass_testing::Env;

use ippool_api::v1alpha1::{IPAllocation, IPClaim, IPPool, IPPoolStatus};

use crate::ip_claim::{claim, pool};

fn status(pool: &IPPool) -> IPPoolStatus {
    pool.status.clone().unwrap_or_default()
}

fn reason(pool: &IPPool) -> Option<&str> {
    Some(conditions::find(&pool.status.as_ref()?.conditions, "Ready")?.reason.as_str())
}

#[windlass_testing::test(setup = crate::start)]
async fn a_pool_counts_its_addresses(env: Env) {
    env.create(pool("net", &["10.0.0.0/30", "fd00::/64"])).await;
    let counted = env.wait_until::<IPPool>("net", |pool| !status(pool).capacity.is_empty()).await;
    assert_eq!(status(&counted).capacity, "18446744073709551617"); // 2, and 2^64 - 1
    env.create(claim("a", "net")).await;
    env.wait_until::<IPPool>("net", |pool| status(pool).allocated == 1).await;
    env.delete::<IPClaim>("a").await;
    env.wait_until::<IPPool>("net", |pool| status(pool).allocated == 0).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn a_pool_that_shrinks_takes_nothing_away(env: Env) {
    env.create(pool("net", &["10.0.0.1/32", "10.0.1.1/32"])).await;
    for name in ["a", "b"] {
        env.create(claim(name, "net")).await;
        env.wait_for_condition::<IPClaim>(name, "Ready", true).await;
    }
    env.modify::<IPPool>("net", |pool| pool.spec.cidrs = vec!["10.0.1.1/32".into()]).await;
    env.wait_until::<IPPool>("net", |pool| status(pool).outside == 1).await;
    let outside = |it: &IPClaim| it.status.as_ref().is_some_and(|status| status.conditions[0].reason == "OutsidePool");
    let kept = env.wait_until::<IPClaim>("a", outside).await;
    assert_eq!(kept.status.as_ref().and_then(|status| status.address.as_deref()), Some("10.0.0.1"));
    // Nobody else gets it, and it is gone for good once it is free.
    env.create(claim("c", "net")).await;
    env.wait_for_condition::<IPClaim>("c", "Ready", false).await;
    env.delete::<IPClaim>("a").await;
    env.wait_gone::<IPAllocation>("10.0.0.1").await;
    env.wait_until::<IPPool>("net", |pool| status(pool).outside == 0 && reason(pool) == Some("Exhausted")).await;
    env.wait_for_condition::<IPClaim>("c", "Ready", false).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn a_pool_that_is_in_use_is_not_deleted(env: Env) {
    let net = env.create(pool("net", &["10.0.0.0/24"])).await;
    env.create(claim("a", "net")).await;
    env.wait_for_condition::<IPClaim>("a", "Ready", true).await;
    env.wait_until::<IPPool>("net", |pool| status(pool).allocated == 1).await;
    env.delete::<IPPool>("net").await;
    env.wait_until::<IPPool>("net", |pool| reason(pool) == Some("InUse")).await;
    env.wait_for_event(&net, "InUse").await;
    // A pool that is being deleted gives nothing.
    env.create(claim("b", "net")).await;
    env.wait_for_condition::<IPClaim>("b", "Ready", false).await;
    env.delete::<IPClaim>("a").await;
    env.wait_gone::<IPPool>("net").await;
}

#[windlass_testing::test(setup = crate::start)]
async fn what_is_no_cidr_is_refused(env: Env) {
    for wrong in ["10.0.0.0", "10.0.0.0/33", "everything", ""] {
        let refused = env.client().create(&pool("wrong", &[wrong])).await.expect_err("no CIDR");
        assert!(refused.is_invalid() && refused.to_string().contains("must be a CIDR"), "{wrong}: {refused}");
    }
}
