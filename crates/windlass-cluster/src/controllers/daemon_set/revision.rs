//! The revisions of a DaemonSet.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use kube::core::Selector;
use serde_json::json;
use windlass::{Context, ObjectKey, ReconcileError, owner};

use super::spec;
use crate::controllers::history::{self, REVISION_LABEL};

/// The revisions of a set.
pub(super) struct Revisions {
    /// What the current one is called, in the label of pods.
    pub(super) hash: String,
    /// All others, the oldest first.
    old: Vec<Arc<ControllerRevision>>,
}

/// The hash that a revision is labelled with.
fn hash_of(revision: &ControllerRevision) -> Option<&str> {
    revision.metadata.labels.as_ref()?.get(REVISION_LABEL).map(String::as_str)
}

impl Revisions {
    /// Finds the revisions of a set, and creates or renumbers the current one.
    pub(super) async fn of(
        ctx: &Context,
        set: &DaemonSet,
        selector: &Selector,
        pods: &[Arc<Pod>],
    ) -> Result<Self, ReconcileError> {
        let mut all = history::of(ctx, set, selector).await?;
        for revision in all.iter_mut().filter(|revision| hash_of(revision).is_none()) {
            *revision = Arc::new(label(ctx, revision).await?);
        }
        let template = &spec(set).template;
        let (current, old): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|revision| history::restores(revision, template));
        let number = old.last().map_or(1, |latest| latest.revision + 1);
        let current = match current.as_slice() {
            [] => Arc::new(create(ctx, set, number).await?),
            [others @ .., last] => {
                merge(ctx, last, others, pods).await?;
                if last.revision < number {
                    Arc::new(history::renumber(ctx, last, number).await?)
                } else {
                    Arc::clone(last)
                }
            }
        };
        Ok(Self { hash: hash_of(&current).unwrap_or_default().to_owned(), old })
    }

    /// Deletes the oldest revisions beyond the limit, but none that a pod is of.
    pub(super) async fn truncate(
        &self,
        ctx: &Context,
        set: &DaemonSet,
        pods: &[Arc<Pod>],
    ) -> Result<(), ReconcileError> {
        let is_of = |pod: &Pod, hash: &str| {
            let labels = pod.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(REVISION_LABEL)).is_some_and(|label| label == hash)
        };
        let is_live = |hash: &str| pods.iter().any(|pod| is_of(pod, hash));
        let gone = surplus(&self.old, spec(set).revision_history_limit, is_live);
        Ok(history::delete(ctx, &gone).await?)
    }
}

/// The revisions beyond the limit; those that are in use stay, but count.
pub(super) fn surplus(
    old: &[Arc<ControllerRevision>],
    limit: Option<i32>,
    is_live: impl Fn(&str) -> bool,
) -> Vec<Arc<ControllerRevision>> {
    let count = old.len().saturating_sub(usize::try_from(limit.unwrap_or(10)).unwrap_or(0));
    let unused = old.iter().filter(|revision| hash_of(revision).is_none_or(|hash| !is_live(hash)));
    unused.take(count).cloned().collect()
}

/// Labels a revision that was made without.
async fn label(ctx: &Context, revision: &ControllerRevision) -> Result<ControllerRevision, ReconcileError> {
    let mut labelled = revision.clone();
    let name = labelled.metadata.name.clone().unwrap_or_default();
    labelled.metadata.labels.get_or_insert_default().insert(REVISION_LABEL.to_owned(), name);
    Ok(ctx.client().update(&labelled).await?)
}

/// Makes one revision of several with the same template.
async fn merge(
    ctx: &Context,
    kept: &ControllerRevision,
    others: &[Arc<ControllerRevision>],
    pods: &[Arc<Pod>],
) -> Result<(), ReconcileError> {
    if others.is_empty() {
        return Ok(());
    }
    let hash = hash_of(kept).unwrap_or_default();
    for pod in pods {
        let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION_LABEL));
        let of_other = others.iter().any(|other| label.is_some() && hash_of(other) == label.map(String::as_str));
        if of_other {
            let patch = Patch::Merge(json!({"metadata": {"labels": {REVISION_LABEL: hash}}}));
            ctx.client().patch::<Pod>(&ObjectKey::of(&**pod), &patch).await?;
        }
    }
    Ok(history::delete(ctx, others).await?)
}

async fn create(ctx: &Context, set: &DaemonSet, number: i64) -> Result<ControllerRevision, ReconcileError> {
    let template = &spec(set).template;
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let hash = history::hash(&serde_json::to_vec(template)?, collisions);
    let wanted = history::describe(set, template, (REVISION_LABEL, &hash), number);
    let error = match ctx.client().create(&wanted).await {
        Err(error) if error.is_already_exists() => error,
        other => return Ok(other?),
    };
    let Some(found) = ctx.live().get::<ControllerRevision>(&ObjectKey::of(&wanted)).await? else {
        return Err(error.into());
    };
    if owner::is_controlled_by(&found, set) && history::restores(&found, template) {
        return Ok(found);
    }
    // Of a set that had the same name and is gone: the revision is about to be collected.
    let is_collected = |controller: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        controller.kind == "DaemonSet" && Some(&controller.name) == set.metadata.name.as_ref()
    };
    if !owner::controller(&found).is_some_and(is_collected) {
        let mut counted = set.clone();
        let status = counted.status.get_or_insert_default();
        status.collision_count = Some(collisions.unwrap_or(0) + 1);
        ctx.client().update_status(&counted).await?;
    }
    Err(error.into())
}
