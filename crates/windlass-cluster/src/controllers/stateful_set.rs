//! StatefulSets: pods with an identity of their own, made, updated and given up in order.
//!
//! A pod's name is its identity, so that there never are two pods of one ordinal, however often the controller is
//! interrupted. What to do is decided by [`plan`], a pure function of the set and its pods. Mirrors upstream's
//! `pkg/controller/statefulset`. `maxUnavailable` is honoured where it is set; upstream has it behind a feature gate.

mod claims;
mod identity;
mod plan;
mod revision;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::Timestamp;
use windlass::client::ClientError;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile, ReconcileError};

use super::history::{self, REVISION_LABEL};
use super::namespace::is_terminating as is_namespace_terminating;
use super::{claim, pods};
use plan::{Plan, Step};
use revision::Revisions;

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(
        Controller::<StatefulSet>::new("statefulset-controller")
            .owns::<Pod>()
            .owns::<ControllerRevision>()
            .watches(|pod: &Pod, ctx| {
                claim::adopters(pod, &ctx.lister(), |set: &StatefulSet| set.spec.as_ref().map(|spec| &spec.selector))
            })
            // A pod may have to wait until a claim of its predecessor is gone.
            .watches(|claim: &PersistentVolumeClaim, ctx| {
                let sets = ctx.lister::<StatefulSet>().in_namespace(claim.metadata.namespace.as_deref()?);
                let set = sets.into_iter().find(|set| claims::is_of(claim, set))?;
                Some(ObjectKey::of(&*set))
            })
            .concurrency(5)
            .complete(StatefulSets),
    )
}

struct StatefulSets;

impl Reconcile<StatefulSet> for StatefulSets {
    async fn reconcile(&self, set: Arc<StatefulSet>, ctx: Context) -> windlass::Result {
        let Some(selector) = claim::selector(&spec(&set).selector) else { return Ok(Outcome::Done) };
        let reconciled = Box::pin(async {
            let Some(revisions) = Revisions::of(&ctx, &set, &selector).await? else { return Ok(Outcome::Done) };
            let candidates = claim::candidates(&ctx.client().lister::<Pod>(), &*set);
            let is_member = |pod: &Pod| claim::selects(&selector, pod) && identity::ordinal(&set, pod).is_some();
            let claimed = claim::claim_matching(&ctx, &*set, is_member, candidates, &[]).await?;
            let members = claimed.into_iter().filter_map(|pod| Some((identity::ordinal(&set, &pod)?, pod))).collect();
            let run = Run { ctx: &ctx, set: &set, revisions, members, now: ctx.now() };
            Box::pin(run.finish()).await
        })
        .await;
        reconciled.or_else(|error| match error.get_ref().downcast_ref::<ClientError>() {
            // Nothing can be created any more, and all there is will be deleted.
            Some(refused) if is_namespace_terminating(refused) => Ok(Outcome::Done),
            _ => Err(error),
        })
    }
}

fn spec(set: &StatefulSet) -> &StatefulSetSpec {
    static EMPTY: std::sync::OnceLock<StatefulSetSpec> = std::sync::OnceLock::new();
    set.spec.as_ref().unwrap_or_else(|| EMPTY.get_or_init(StatefulSetSpec::default))
}

fn replicas(spec: &StatefulSetSpec) -> i32 {
    spec.replicas.unwrap_or(1).max(0)
}

/// The ordinals a set asks for.
fn ordinals(spec: &StatefulSetSpec) -> std::ops::Range<i32> {
    let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0);
    start..start.saturating_add(replicas(spec))
}

fn is_rolling(spec: &StatefulSetSpec) -> bool {
    spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
}

/// The revision that a pod was made from.
fn revision_of(pod: &Pod) -> &str {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(REVISION_LABEL)).map(String::as_str).unwrap_or_default()
}

/// One look at a set.
struct Run<'a> {
    ctx: &'a Context,
    set: &'a StatefulSet,
    revisions: Revisions,
    /// The set's pods, by ordinal.
    members: BTreeMap<i32, Arc<Pod>>,
    now: Timestamp,
}

impl Run<'_> {
    async fn finish(mut self) -> windlass::Result {
        let advanced = match self.set.metadata.deletion_timestamp {
            Some(_) => Ok(0),
            None => self.advance().await,
        };
        let spec = spec(self.set);
        let mut status = self.status();
        if let Ok(updating) = &advanced {
            // The pods that are deleted for an update do not count any more.
            status.current_replicas = some(status.current_replicas.unwrap_or(0) - updating);
        }
        complete(spec, &mut status);
        let pending = status.ready_replicas.unwrap_or(0) != status.available_replicas.unwrap_or(0);
        let written = self.write(status).await;
        let truncated = match self.set.metadata.deletion_timestamp {
            Some(_) => Ok(()),
            None => self.truncate().await,
        };
        advanced?;
        written?;
        truncated?;
        let next = pods::next_available(self.members.values().map(|pod| &**pod), min_ready(spec), self.now);
        Ok(next.filter(|_| pending).map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    /// Makes, deletes and corrects pods; how many were deleted for an update.
    async fn advance(&mut self) -> Result<i32, ReconcileError> {
        let members = self.members.clone();
        let view = plan::View {
            spec: spec(self.set),
            members: &members,
            update_revision: &self.revisions.update,
            now: self.now,
        };
        let Plan { ordered, replicas, condemned, surplus, outdated } = plan::plan(&view);
        let (made, failure) = self.take(ordered, &replicas).await;
        let made: Vec<Pod> = made.into_iter().flatten().collect();
        self.members.extend(made.into_iter().filter_map(|pod| Some((identity::ordinal(self.set, &pod)?, pod.into()))));
        if let Some(error) = failure {
            return Err(error);
        }
        for pod in condemned {
            self.claims().retain(pod).await?;
        }
        let this = &*self;
        let (_, failure) = pods::slow_start(surplus.len(), async |at| this.delete(surplus[at]).await).await;
        if let Some(error) = failure {
            return Err(error.into());
        }
        for pod in &outdated {
            self.delete(pod).await?;
        }
        Ok(outdated.len() as i32)
    }

    /// Takes steps until one fails.
    async fn take(&self, ordered: bool, steps: &[Step<'_>]) -> (Vec<Option<Pod>>, Option<ReconcileError>) {
        if !ordered {
            return pods::slow_start(steps.len(), async |at| self.step(&steps[at]).await).await;
        }
        let mut made = Vec::new();
        for step in steps {
            match self.step(step).await {
                Ok(pod) => made.push(pod),
                Err(error) => return (made, Some(error)),
            }
        }
        (made, None)
    }

    /// Carries out a step; the pod that it made.
    async fn step(&self, step: &Step<'_>) -> Result<Option<Pod>, ReconcileError> {
        match step {
            Step::Create(ordinal) => self.create(*ordinal).await,
            Step::Replace(pod) => Ok(self.delete(pod).await.map(|()| None)?),
            Step::Keep { pod, claims, conform } => {
                if *claims {
                    self.claims().create(pod).await.map_err(ReconcileError::new)?;
                    self.claims().retain(pod).await?;
                }
                if *conform {
                    self.conform(pod).await?;
                }
                Ok(None)
            }
        }
    }

    fn claims(&self) -> claims::Claims<'_> {
        claims::Claims { ctx: self.ctx, set: self.set }
    }

    async fn create(&self, ordinal: i32) -> Result<Option<Pod>, ReconcileError> {
        let (template, revision) = self.revisions.for_new(spec(self.set), self.set.status.as_ref(), ordinal);
        let pod = identity::describe(self.set, template, revision, ordinal);
        if self.claims().is_stale(&pod) {
            return Ok(None);
        }
        if let Err(error) = self.claims().create(&pod).await {
            self.report("Create", &pod, Err(&error));
            return Err(ReconcileError::new(error));
        }
        match self.ctx.client().create(&pod).await {
            Ok(pod) => {
                if let Err(error) = self.claims().retain(&pod).await {
                    self.report("Update", &pod, Err(&error.to_string()));
                    return Err(error);
                }
                self.report("Create", &pod, Ok(()));
                Ok(Some(pod))
            }
            Err(error) => {
                // The pod of an earlier set, or of no set, has to go first.
                if !error.is_already_exists() && !is_namespace_terminating(&error) {
                    self.report("Create", &pod, Err(&pods::message(&error)));
                }
                Err(error.into())
            }
        }
    }

    async fn delete(&self, pod: &Pod) -> Result<(), ClientError> {
        match self.ctx.client().delete::<Pod>(&ObjectKey::of(pod)).await {
            Ok(_) => self.report("Delete", pod, Ok(())),
            Err(error) => {
                self.report("Delete", pod, Err(&pods::message(&error)));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives a pod the labels and volumes of its ordinal, and its claims their owners.
    async fn conform(&self, pod: &Pod) -> Result<(), ReconcileError> {
        let conforming = identity::conforming(self.set, pod);
        if conforming.is_some()
            && !identity::has_storage(self.set, pod)
            && let Err(error) = self.claims().create(pod).await
        {
            self.report("Update", pod, Err(&error));
            return Err(ReconcileError::new(error));
        }
        let retained = self.claims().retain(pod).await?;
        let Some(conforming) = conforming else {
            if retained {
                self.report("Update", pod, Ok(()));
            }
            return Ok(());
        };
        let updated = self.ctx.client().update(&conforming).await;
        let message = updated.as_ref().err().map(pods::message);
        self.report("Update", pod, message.as_ref().map_or(Ok(()), Err));
        updated?;
        Ok(())
    }

    fn report(&self, verb: &str, pod: &Pod, result: Result<(), &String>) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let set = self.set.metadata.name.as_deref().unwrap_or_default();
        let recorder = self.ctx.recorder();
        match result {
            Ok(()) => {
                let note = format!("{verb} Pod {name} in StatefulSet {set} successful");
                recorder.normal(self.set, &format!("Successful{verb}"), note);
            }
            Err(error) => {
                let note = format!("{verb} Pod {name} in StatefulSet {set} failed error: {error}");
                recorder.warning(self.set, &format!("Failed{verb}"), note);
            }
        }
    }

    /// The status that the pods amount to.
    fn status(&self) -> StatefulSetStatus {
        let seconds = min_ready(spec(self.set));
        let count = |accept: &dyn Fn(&Pod) -> bool| self.members.values().filter(|pod| accept(pod)).count() as i32;
        let ready = |pod: &Pod| plan::is_running_and_ready(pod);
        let of = |revision: &str| {
            some(count(&|pod| pod.metadata.deletion_timestamp.is_none() && revision_of(pod) == revision))
        };
        StatefulSetStatus {
            observed_generation: self.set.metadata.generation,
            replicas: self.members.len() as i32,
            ready_replicas: some(count(&ready)),
            // Written even if it is zero, unlike the others.
            available_replicas: Some(count(&|pod| ready(pod) && pods::is_available(pod, seconds, self.now))),
            current_replicas: of(&self.revisions.current),
            updated_replicas: of(&self.revisions.update),
            current_revision: Some(self.revisions.current.clone()),
            update_revision: Some(self.revisions.update.clone()),
            collision_count: Some(self.revisions.collisions),
            conditions: None,
        }
    }

    async fn write(&self, status: StatefulSetStatus) -> Result<(), ReconcileError> {
        if self.set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let updated = StatefulSet { status: Some(status), ..self.set.clone() };
        match self.ctx.client().update_status(&updated).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Deletes the oldest revisions beyond the limit that no pod is of.
    async fn truncate(&self) -> Result<(), ReconcileError> {
        let is_live = |name: &str| {
            name == self.revisions.current
                || name == self.revisions.update
                || self.members.values().any(|pod| revision_of(pod) == name)
        };
        let unused = self.revisions.all.iter();
        let unused = unused.filter(|revision| !is_live(revision.metadata.name.as_deref().unwrap_or_default()));
        let surplus = history::surplus(unused.cloned().collect(), spec(self.set).revision_history_limit);
        Ok(history::delete(self.ctx, &surplus).await?)
    }
}

fn min_ready(spec: &StatefulSetSpec) -> i32 {
    spec.min_ready_seconds.unwrap_or(0)
}

/// A count as it is written: one of zero is left out.
fn some(count: i32) -> Option<i32> {
    Some(count).filter(|count| *count != 0)
}

/// Makes the update revision the current one when all pods are of it and ready.
fn complete(spec: &StatefulSetSpec, status: &mut StatefulSetStatus) {
    let all = |count: Option<i32>| count.unwrap_or(0) == replicas(spec);
    if is_rolling(spec)
        && all(status.updated_replicas)
        && all(status.ready_replicas)
        && status.replicas == replicas(spec)
    {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
}
