// SPDX-License-Identifier: Apache-2.0

//! Says in the status of each IPPool how much of it is in use, and holds a deleted pool until it is not.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use windlass::client::options::ListOptions;
use windlass::controller::CompleteController;
use windlass::finalizer::{Finalize, Finalizer};
use windlass::{Context, Controller, ObjectKey, Outcome, ReconcileError};

use ippool_api::v1alpha1::{IPAllocation, IPPool};

use crate::range::Range;

/// Holds a deleted IPPool until `cleanup` has succeeded.
const FINALIZER: &str = "tsi.tiduyun.com/ippool";

/// The controller, as the manager runs it. Each address that is given or freed wakes its pool.
pub fn controller() -> CompleteController {
    Controller::<IPPool>::new("ippool")
        .watches(|address: &IPAllocation, _| [ObjectKey::cluster(&address.spec.pool)])
        .complete(Finalizer::new(FINALIZER, Reconciler))
}

struct Reconciler;

impl Finalize<IPPool> for Reconciler {
    async fn reconcile(&self, pool: Arc<IPPool>, ctx: Context) -> windlass::Result {
        let addresses = addresses_of(&pool, &ctx).await?;
        let ranges = Range::parse_all(&pool.spec.cidrs);
        let is_inside = |address: &Arc<IPAllocation>| {
            let address = address.spec.address.parse::<IpAddr>();
            address.is_ok_and(|address| ranges.iter().any(|range| range.contains(address)))
        };
        let inside = addresses.iter().filter(|address| is_inside(address)).count();
        let capacity = ranges.iter().map(Range::size).fold(0, u128::saturating_add);

        let mut draft = ctx.draft(&pool);
        let status = draft.status.get_or_insert_default();
        status.capacity = capacity.to_string();
        status.allocated = addresses.len() as i64;
        status.outside = (addresses.len() - inside) as i64;
        let (reason, message) = match (inside as u128) < capacity {
            true => ("Available", "claims get addresses"),
            false => ("Exhausted", "all addresses are in use"),
        };
        if draft.condition("Ready", reason == "Available", reason, message) {
            ctx.recorder().normal(&pool, reason, message);
        }
        draft.commit(&ctx).await?;
        Ok(Outcome::Done)
    }

    async fn cleanup(&self, pool: Arc<IPPool>, ctx: Context) -> windlass::Result {
        let addresses = addresses_of(&pool, &ctx).await?;
        if addresses.is_empty() {
            return Ok(Outcome::Done);
        }
        let message = format!("{} addresses are in use", addresses.len());
        let mut draft = ctx.draft(&pool);
        if draft.condition("Ready", false, "InUse", &message) {
            ctx.recorder().warning(&pool, "InUse", &message);
        }
        draft.commit(&ctx).await?;
        // Anything but `Done` keeps the finalizer. The next address that is freed wakes the pool before this does.
        Ok(Outcome::RequeueAfter(Duration::from_secs(60)))
    }
}

async fn addresses_of(pool: &IPPool, ctx: &Context) -> Result<Vec<Arc<IPAllocation>>, ReconcileError> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    Ok(ctx.list_with(ListOptions::default().labels(format!("{}={name}", super::POOL_LABEL))).await?)
}
