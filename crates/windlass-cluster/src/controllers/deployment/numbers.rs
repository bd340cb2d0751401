//! How many replicas a ReplicaSet of a deployment may have at one time.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, RollingUpdateDeployment};

use super::{annotations, replicas, size, spec, strategy};
use crate::controllers::pods::scaled;

fn rolling(deployment: &Deployment) -> Option<&RollingUpdateDeployment> {
    spec(deployment).strategy.as_ref()?.rolling_update.as_ref()
}

/// Surge and unavailable: resolved together, since both must not be zero.
fn fenceposts(deployment: &Deployment) -> (i32, i32) {
    let (rolling, total) = (rolling(deployment), replicas(deployment));
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), total, true);
    let unavailable = scaled(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), total, false);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

fn is_rolling(deployment: &Deployment) -> bool {
    strategy(deployment) == "RollingUpdate"
}

/// How many pods there may be above the number asked for.
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    if is_rolling(deployment) { fenceposts(deployment).0 } else { 0 }
}

/// How many pods may be missing from the number asked for.
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    if !is_rolling(deployment) || replicas(deployment) == 0 {
        return 0;
    }
    fenceposts(deployment).1.min(replicas(deployment))
}

/// The size the newest ReplicaSet may have now, when all have `total` together.
pub(super) fn new_size(deployment: &Deployment, total: i32, new: i32) -> i32 {
    if !is_rolling(deployment) {
        return replicas(deployment);
    }
    let surge = scaled(rolling(deployment).and_then(|rolling| rolling.max_surge.as_ref()), replicas(deployment), true);
    let allowed = replicas(deployment) + surge;
    if total >= allowed {
        return new;
    }
    new + (allowed - total).min(replicas(deployment) - new)
}

/// A ReplicaSet's part of `to_add` replicas (which may be negative), when `added` have been dealt out.
pub(super) fn proportion(set: &ReplicaSet, deployment: &Deployment, to_add: i32, added: i32) -> i32 {
    if size(set) == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let (fraction, allowed) = (fraction(set, deployment), to_add - added);
    if to_add > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
}

/// What the size of a ReplicaSet should change by to keep its share.
fn fraction(set: &ReplicaSet, deployment: &Deployment) -> i32 {
    let wanted = replicas(deployment);
    if wanted == 0 {
        return -size(set);
    }
    let noted = annotations::max_replicas(set).filter(|max| *max != 0);
    let current = || deployment.status.as_ref().and_then(|status| status.replicas).filter(|count| *count != 0);
    // The annotation has been tampered with and there are no pods: no base for a share.
    let Some(before) = noted.or_else(current) else { return 0 };
    let share = f64::from(size(set)) * f64::from(wanted + max_surge(deployment)) / f64::from(before);
    share.round() as i32 - size(set)
}
