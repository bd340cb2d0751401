// SPDX-License-Identifier: Apache-2.0

//! Gives each IPClaim an address of its pool, and frees it when the claim is deleted.
//!
//! ```text
//! finalizer on the claim ──► IPAllocation created ──► address in the status
//! claim deleted ──► IPAllocation deleted ──► finalizer removed
//! ```
//!
//! What always holds, also with two operators at once and with one that was killed at any moment:
//!
//! - An address has one claim: an address that is in use is an object, an IPAllocation, and only one create of an object
//!   succeeds.
//! - An address that the status of a claim names is not freed: the status is written only if nobody has written it since it
//!   was read, and what a claim holds besides that address is freed only afterwards.
//! - No address outlives its claim: the finalizer is there before the address and goes after it.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use windlass::client::options::{DeleteOptions, ListOptions};
use windlass::controller::{CompleteController, Watch};
use windlass::finalizer::{Finalize, Finalizer};
use windlass::{Context, Controller, ObjectKey, Outcome, ReconcileError, conditions, predicate};

use ippool_api::v1alpha1::{ClaimReference, IPAllocation, IPAllocationSpec, IPClaim, IPPool};

use super::{CLAIM_LABEL, POOL_LABEL};
use crate::range::Range;

/// Holds a deleted IPClaim until `cleanup` has succeeded.
const FINALIZER: &str = "tsi.tiduyun.com/ipclaim";

/// The controller, as the manager runs it.
pub fn controller() -> CompleteController {
    // The status of a pool changes with each address; only its ranges concern claims.
    let pools = Watch::<IPPool>::default().predicate(predicate::generation_changed());
    Controller::<IPClaim>::new("ipclaim")
        .refers_to_with(pools, |claim: &IPClaim| [ObjectKey::cluster(&claim.spec.pool)])
        // An address that was freed may be what a claim waits for, also a claim of another pool: pools may overlap. And a
        // claim that holds two gives one back.
        .watches(|allocation: &IPAllocation, ctx| {
            let holder = &allocation.spec.claim;
            let waiting = ctx.lister::<IPClaim>().filter(|claim| address_of(claim).is_none());
            let keys = waiting.iter().map(ObjectKey::of);
            keys.chain([ObjectKey::new(&holder.namespace, &holder.name)]).collect::<Vec<_>>()
        })
        .permits("tsi.tiduyun.com", ["ipallocations"], ["create", "delete"])
        .complete(Finalizer::new(FINALIZER, Reconciler))
}

struct Reconciler;

impl Finalize<IPClaim> for Reconciler {
    async fn reconcile(&self, claim: Arc<IPClaim>, ctx: Context) -> windlass::Result {
        // What the claim holds already, perhaps since an attempt that did not get to write it down. The server is asked,
        // since a cache may be behind.
        let mut held = held_by(&claim, &ctx).await?;
        let pool = ctx.get::<IPPool>(&ObjectKey::cluster(&claim.spec.pool)).await?;
        let ranges = pool.as_ref().map(|pool| Range::parse_all(&pool.spec.cidrs)).unwrap_or_default();
        if held.is_empty() {
            match &pool {
                Some(pool) if pool.metadata.deletion_timestamp.is_none() => {
                    match allocate(&claim, &ranges, &ctx).await? {
                        Ok(allocation) => held.push(allocation),
                        Err(refusal) => return report(&claim, &ctx, None, refusal).await,
                    }
                }
                _ => return report(&claim, &ctx, None, ("PoolNotFound", "there is no such IPPool".into())).await,
            }
        }
        let named = held.iter().position(|allocation| Some(allocation.spec.address.as_str()) == address_of(&claim));
        let address = held.swap_remove(named.unwrap_or(0)).spec.address;
        let is_inside = |address: IpAddr| ranges.iter().any(|range| range.contains(address));
        let verdict = match address.parse().is_ok_and(is_inside) {
            true => ("Allocated", format!("the address is {address}")),
            false => ("OutsidePool", format!("the pool has no range with {address} any more; the claim keeps it")),
        };
        report(&claim, &ctx, Some(address), verdict).await?;
        free(&held, &ctx).await
    }

    async fn cleanup(&self, claim: Arc<IPClaim>, ctx: Context) -> windlass::Result {
        free(&held_by(&claim, &ctx).await?, &ctx).await
    }
}

async fn free(allocations: &[IPAllocation], ctx: &Context) -> windlass::Result {
    for allocation in allocations {
        // This very object: by now another claim may have the address.
        ctx.client().delete_with::<IPAllocation>(&ObjectKey::of(allocation), DeleteOptions::of(allocation)).await?;
    }
    Ok(Outcome::Done)
}

/// The addresses that a claim has, as the server says: none, one, or more if a crash has left some.
async fn held_by(claim: &IPClaim, ctx: &Context) -> Result<Vec<IPAllocation>, ReconcileError> {
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    Ok(ctx.live().list_with(ListOptions::default().labels(format!("{CLAIM_LABEL}={uid}"))).await?)
}

/// Creates the object of an address that is free, or says why there is none.
async fn allocate(
    claim: &IPClaim,
    ranges: &[Range],
    ctx: &Context,
) -> Result<Result<IPAllocation, (&'static str, String)>, ReconcileError> {
    // A guess: the create decides. What the cache does not know yet costs a request that fails.
    let taken: HashSet<String> =
        ctx.list::<IPAllocation>().await?.iter().map(|taken| taken.spec.address.clone()).collect();
    if let Some(wanted) = &claim.spec.address {
        let address =
            wanted.parse::<IpAddr>().ok().filter(|address| ranges.iter().any(|range| range.contains(*address)));
        let Some(address) = address else {
            return Ok(Err(("NotInPool", format!("no range of the pool has {wanted}"))));
        };
        return Ok(create(claim, address, ctx).await?.ok_or(("AddressTaken", format!("{wanted} is in use"))));
    }
    let free = ranges.iter().flat_map(Range::addresses).filter(|address| !taken.contains(&address.to_string()));
    for address in free {
        if let Some(created) = create(claim, address, ctx).await? {
            return Ok(Ok(created));
        }
    }
    Ok(Err(("PoolExhausted", "all addresses of the pool are in use".into())))
}

/// `None` if somebody else has the address.
async fn create(claim: &IPClaim, address: IpAddr, ctx: &Context) -> Result<Option<IPAllocation>, ReconcileError> {
    let meta = &claim.metadata;
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let claim_reference =
        ClaimReference { namespace: text(&meta.namespace), name: text(&meta.name), uid: text(&meta.uid) };
    let labels = [(POOL_LABEL, claim.spec.pool.clone()), (CLAIM_LABEL, claim_reference.uid.clone())];
    let spec = IPAllocationSpec { address: address.to_string(), pool: claim.spec.pool.clone(), claim: claim_reference };
    let mut object = IPAllocation::new(&IPAllocation::name_of(address), spec);
    object.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value)).into());
    match ctx.client().create(&object).await {
        Ok(created) => Ok(Some(created)),
        Err(error) if error.is_already_exists() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn address_of(claim: &IPClaim) -> Option<&str> {
    claim.status.as_ref()?.address.as_deref()
}

/// Writes the status, and an event if it says something new.
async fn report(
    claim: &IPClaim,
    ctx: &Context,
    address: Option<String>,
    (reason, message): (&'static str, String),
) -> windlass::Result {
    let mut wanted = claim.clone();
    let status = wanted.status.get_or_insert_default();
    let is_ready = address.is_some();
    status.address = address;
    let condition = conditions::new("Ready", is_ready, reason, &message).observed(claim.metadata.generation);
    let is_new = conditions::set(&mut status.conditions, condition, ctx.now());
    if wanted.status != claim.status {
        // An update, not a draft: it has the resourceVersion of the claim as it was read, and fails if anybody has written
        // since. Then another operator may have chosen another address, and everything is looked at again.
        ctx.client().update_status(&wanted).await?;
    }
    match is_ready {
        true if is_new => ctx.recorder().normal(claim, reason, &message),
        false if is_new => ctx.recorder().warning(claim, reason, &message),
        _ => {}
    }
    Ok(Outcome::Done)
}
