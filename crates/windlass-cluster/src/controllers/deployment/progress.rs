//! The status of a deployment: counts, availability, and whether its rollout makes progress.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use windlass::{Context, Outcome, ReconcileError};

use super::revision::ReplicaSetsOf;
use super::{
    available, condition, new_condition, numbers, progress_deadline, remove_condition, replicas, set_condition,
    set_status, spec,
};

const PROGRESSING: &str = "Progressing";
const FAILURE: &str = "ReplicaFailure";
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// Notes that a deployment was paused or resumed, so that the time in between is not taken for lack of
/// progress.
pub(super) async fn check_paused(ctx: &Context, deployment: &mut Deployment) -> Result<(), ReconcileError> {
    let status = deployment.status.clone().unwrap_or_default();
    let reason = condition(&status, PROGRESSING).and_then(|condition| condition.reason.as_deref());
    if progress_deadline(deployment).is_none() || reason == Some(TIMED_OUT) {
        return Ok(());
    }
    let (reason, message) = match (spec(deployment).paused == Some(true), reason == Some(PAUSED)) {
        (true, false) => (PAUSED, "Deployment is paused"),
        (false, true) => ("DeploymentResumed", "Deployment is resumed"),
        _ => return Ok(()),
    };
    let new = new_condition(PROGRESSING, "Unknown", reason, message.to_owned(), ctx.now());
    set_condition(deployment.status.get_or_insert_default(), new);
    *deployment = ctx.client().update_status(deployment).await?;
    Ok(())
}

/// Brings the counts and the availability in the status up to date.
pub(super) async fn sync_status(ctx: &Context, sets: &ReplicaSetsOf, deployment: Deployment) -> windlass::Result {
    let status = calculate(sets, &deployment, ctx.now());
    write(ctx, deployment, status).await?;
    Ok(Outcome::Done)
}

/// [`sync_status`] during a rollout: also says how it goes.
pub(super) async fn sync_rollout(ctx: &Context, sets: &ReplicaSetsOf, deployment: Deployment) -> windlass::Result {
    let now = ctx.now();
    let status = judge(sets, &deployment, now);
    let check = next_check(&deployment, &status, now);
    let changed = write(ctx, deployment, status).await?;
    // A change brings the deployment back here anyway.
    Ok(match check.filter(|_| !changed) {
        Some(after) => Outcome::RequeueAfter(after),
        None => Outcome::Done,
    })
}

async fn write(ctx: &Context, mut deployment: Deployment, status: DeploymentStatus) -> Result<bool, ReconcileError> {
    if deployment.status.as_ref() == Some(&status) {
        return Ok(false);
    }
    deployment.status = Some(status);
    match ctx.client().update_status(&deployment).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(true),
    }
}

fn calculate(sets: &ReplicaSetsOf, deployment: &Deployment, now: Timestamp) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let some = |count: i32| Some(count).filter(|count| *count != 0);
    let ready = |set: &ReplicaSet| set_status(set).ready_replicas.unwrap_or(0);
    let available: i32 = sets.all().map(available).sum();
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(sets.all().map(|set| set_status(set).replicas).sum()),
        updated_replicas: some(sets.new.as_ref().map_or(0, |set| set_status(set).replicas)),
        ready_replicas: some(sets.all().map(ready).sum()),
        available_replicas: some(available),
        unavailable_replicas: some((sets.size() - available).max(0)),
        terminating_replicas: terminating(sets),
        collision_count: old.collision_count,
        conditions: old.conditions,
    };
    let enough = available >= replicas(deployment) - numbers::max_unavailable(deployment);
    let (value, reason, message) = if enough {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(&mut status, new_condition("Available", value, reason, message.to_owned(), now));
    status
}

/// Unknown as long as a ReplicaSet that was looked at has not said.
fn terminating(sets: &ReplicaSetsOf) -> Option<i32> {
    let mut sum = 0;
    for status in sets.all().map(set_status) {
        match status.terminating_replicas {
            Some(count) => sum += count,
            None if status.observed_generation.unwrap_or(0) == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

fn judge(sets: &ReplicaSetsOf, deployment: &Deployment, now: Timestamp) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let mut status = calculate(sets, deployment, now);
    let current = condition(&old, PROGRESSING);
    let done = status.replicas == status.updated_replicas
        && current.is_some_and(|current| current.reason.as_deref() == Some(COMPLETE));
    let subject = match &sets.new {
        Some(set) => format!("ReplicaSet {:?}", set.metadata.name.as_deref().unwrap_or_default()),
        None => format!("Deployment {:?}", deployment.metadata.name.as_deref().unwrap_or_default()),
    };
    match progress_deadline(deployment) {
        None => remove_condition(&mut status, PROGRESSING),
        Some(_) if done => {}
        Some(_) if is_complete(deployment, &status) => {
            let message = format!("{subject} has successfully progressed.");
            set_condition(&mut status, new_condition(PROGRESSING, "True", COMPLETE, message, now));
        }
        Some(_) if makes_progress(&old, &status) => {
            let message = format!("{subject} is progressing.");
            let mut new = new_condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now);
            // Unlike others this condition is renewed even if it says the same: its time is the last
            // time there was progress.
            if let Some(current) = current.filter(|current| current.status == "True") {
                new.last_transition_time.clone_from(&current.last_transition_time);
            }
            remove_condition(&mut status, PROGRESSING);
            set_condition(&mut status, new);
        }
        Some(deadline) if has_timed_out(&status, deadline, now) => {
            let message = format!("{subject} has timed out progressing.");
            set_condition(&mut status, new_condition(PROGRESSING, "False", TIMED_OUT, message, now));
        }
        Some(_) => {}
    }
    match failure(sets) {
        Some(failure) => set_condition(&mut status, failure),
        None => remove_condition(&mut status, FAILURE),
    }
    status
}

/// The failure of a ReplicaSet, the newest one's first.
fn failure(sets: &ReplicaSetsOf) -> Option<DeploymentCondition> {
    let statuses = sets.new.iter().chain(&sets.old).filter_map(|set| set.status.as_ref());
    let failure = statuses.flat_map(|status| status.conditions.iter().flatten()).find(|c| c.type_ == FAILURE)?.clone();
    Some(DeploymentCondition {
        type_: failure.type_,
        status: failure.status,
        reason: failure.reason,
        message: failure.message,
        last_update_time: failure.last_transition_time.clone(),
        last_transition_time: failure.last_transition_time,
    })
}

/// Whether all pods asked for are of the newest template and available, and no others are left.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = replicas(deployment);
    [status.updated_replicas, status.replicas, status.available_replicas].iter().all(|n| n.unwrap_or(0) == wanted)
        && status.observed_generation >= deployment.metadata.generation
}

fn makes_progress(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| count.unwrap_or(0);
    let outdated = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(new.updated_replicas) > count(old.updated_replicas)
        || outdated(new) < outdated(old)
        || count(new.ready_replicas) > count(old.ready_replicas)
        || count(new.available_replicas) > count(old.available_replicas)
}

fn deadline_of(condition: &DeploymentCondition, seconds: i32) -> Option<Timestamp> {
    let since = condition.last_update_time.as_ref()?.0;
    since.checked_add(SignedDuration::from_secs(seconds.into())).ok()
}

fn has_timed_out(status: &DeploymentStatus, seconds: i32, now: Timestamp) -> bool {
    let Some(condition) = condition(status, PROGRESSING) else { return false };
    match condition.reason.as_deref() {
        Some(COMPLETE) => false,
        Some(TIMED_OUT) => true,
        _ => deadline_of(condition, seconds).is_some_and(|deadline| deadline < now),
    }
}

/// After what time to see whether the rollout is stuck.
fn next_check(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<Duration> {
    let seconds = progress_deadline(deployment)?;
    let current = condition(deployment.status.as_ref()?, PROGRESSING)?;
    if is_complete(deployment, status) || current.reason.as_deref() == Some(TIMED_OUT) {
        return None;
    }
    let left = deadline_of(current, seconds)?.duration_since(now);
    Some(Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1))
}
