//! Deployments: rolls ReplicaSets out, scales them, keeps their history.
//!
//! Mirrors upstream's `pkg/controller/deployment`, annotation by annotation and condition by
//! condition: `kubectl rollout` reads them.

mod annotations;
mod numbers;
mod progress;
mod revision;
mod rollout;
mod scale;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::Timestamp;
use windlass::client::ClientError;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile, owner};

use super::claim;
use super::namespace::is_terminating;
use revision::ReplicaSetsOf;

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(
        Controller::<Deployment>::new("deployment-controller")
            .owns::<ReplicaSet>()
            .watches(|set: &ReplicaSet, ctx| {
                claim::adopters(set, &ctx.lister(), |deployment: &Deployment| {
                    deployment.spec.as_ref().map(|spec| &spec.selector)
                })
            })
            // A rollout that recreates waits for the last old pod, and only a pod's end tells. For others the status of
            // their ReplicaSets says enough.
            .watches(|pod: &Pod, ctx| {
                let controller = owner::controller(pod).filter(|controller| controller.kind == "ReplicaSet")?;
                let set = ctx.lister::<ReplicaSet>().get(&ObjectKey::of(pod).sibling(&controller.name))?;
                let key = ObjectKey::of(pod).sibling(&owner::controller(&*set)?.name);
                let deployment = ctx.lister::<Deployment>().get(&key)?;
                (strategy(&deployment) == "Recreate").then_some(key)
            })
            .concurrency(5)
            .complete(Deployments),
    )
}

struct Deployments;

impl Reconcile<Deployment> for Deployments {
    async fn reconcile(&self, deployment: Arc<Deployment>, ctx: Context) -> windlass::Result {
        let mut deployment = Deployment::clone(&deployment);
        if spec(&deployment).selector == LabelSelector::default() {
            return refuse_to_select_all(&ctx, deployment).await;
        }
        let Some(selector) = claim::selector(&spec(&deployment).selector) else { return Ok(Outcome::Done) };
        let candidates = claim::candidates(&ctx.client().lister::<ReplicaSet>(), &deployment);
        let sets = claim::claim(&ctx, &deployment, &selector, candidates, &[]).await?;
        let sets = sets.iter().map(|set| ReplicaSet::clone(set)).collect();
        if deployment.metadata.deletion_timestamp.is_some() {
            let sets = ReplicaSetsOf::split(&deployment, sets);
            return progress::sync_status(&ctx, &sets, deployment).await;
        }
        progress::check_paused(&ctx, &mut deployment).await?;
        let rolled = Box::pin(Rollout { ctx: &ctx, deployment }.reconcile(sets)).await;
        rolled.or_else(|error| match error.get_ref().downcast_ref::<ClientError>() {
            // Nothing can be created any more, and all there is will be deleted.
            Some(refused) if is_terminating(refused) => Ok(Outcome::Done),
            _ => Err(error),
        })
    }
}

/// An empty selector would match every pod there is.
async fn refuse_to_select_all(ctx: &Context, mut deployment: Deployment) -> windlass::Result {
    let note = "This deployment is selecting all pods. A non-empty selector is required.";
    ctx.recorder().warning(&deployment, "SelectingAll", note);
    let generation = deployment.metadata.generation;
    let status = deployment.status.get_or_insert_default();
    if status.observed_generation < generation {
        status.observed_generation = generation;
        ctx.client().update_status(&deployment).await?;
    }
    Ok(Outcome::Done)
}

/// One deployment being worked on.
struct Rollout<'a> {
    ctx: &'a Context,
    deployment: Deployment,
}

impl Rollout<'_> {
    async fn reconcile(mut self, sets: Vec<ReplicaSet>) -> windlass::Result {
        if spec(&self.deployment).paused == Some(true) {
            return Box::pin(self.scale_only(sets)).await;
        }
        let mut split = ReplicaSetsOf::split(&self.deployment, sets);
        self.sync_revision(&mut split, false).await?;
        let scaled = split
            .active()
            .any(|set| annotations::desired_replicas(set).is_some_and(|desired| desired != replicas(&self.deployment)));
        if scaled {
            return Box::pin(self.scale_split(split)).await;
        }
        match strategy(&self.deployment) {
            "Recreate" => Box::pin(self.recreate(split)).await,
            _ => Box::pin(self.roll(split)).await,
        }
    }

    async fn scale_only(mut self, sets: Vec<ReplicaSet>) -> windlass::Result {
        let mut split = ReplicaSetsOf::split(&self.deployment, sets);
        self.sync_revision(&mut split, false).await?;
        Box::pin(self.scale_split(split)).await
    }

    /// Reacts to a change of size, or to being paused.
    async fn scale_split(mut self, mut split: ReplicaSetsOf) -> windlass::Result {
        self.scale(&mut split).await?;
        if spec(&self.deployment).paused == Some(true) {
            self.clean_up(&split.old).await?;
        }
        progress::sync_status(self.ctx, &split, self.deployment).await
    }
}

fn spec(deployment: &Deployment) -> &DeploymentSpec {
    static EMPTY: std::sync::OnceLock<DeploymentSpec> = std::sync::OnceLock::new();
    deployment.spec.as_ref().unwrap_or_else(|| EMPTY.get_or_init(DeploymentSpec::default))
}

/// How many replicas a deployment asks for.
fn replicas(deployment: &Deployment) -> i32 {
    spec(deployment).replicas.unwrap_or(1)
}

fn strategy(deployment: &Deployment) -> &str {
    let strategy = spec(deployment).strategy.as_ref();
    strategy.and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate")
}

/// How many replicas a ReplicaSet asks for.
fn size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn set_status(set: &ReplicaSet) -> ReplicaSetStatus {
    set.status.clone().unwrap_or_default()
}

/// How many replicas of a ReplicaSet are available.
fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

/// The deadline for progress, in seconds; none when there is none or it is upstream's word for that.
fn progress_deadline(deployment: &Deployment) -> Option<i32> {
    spec(deployment).progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
}

fn condition<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// Sets a condition, unless it says the same already.
fn set_condition(status: &mut DeploymentStatus, mut new: DeploymentCondition) {
    if let Some(known) = condition(status, &new.type_)
        && known.status == new.status
    {
        if known.reason == new.reason {
            return;
        }
        new.last_transition_time.clone_from(&known.last_transition_time);
    }
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != new.type_);
    conditions.push(new);
}

fn remove_condition(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != type_);
    }
}

fn new_condition(type_: &str, status: &str, reason: &str, message: String, now: Timestamp) -> DeploymentCondition {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    DeploymentCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}
