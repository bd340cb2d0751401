//! Which revisions a StatefulSet is at, and which one new pods are made of.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::core::Selector;
use windlass::{Context, ObjectKey, ReconcileError, owner};

use super::{is_rolling, ordinals, spec};
use crate::controllers::history::{self, Choice};

const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// The revisions of a set.
pub(super) struct Revisions {
    /// The names of the revision that is being left and the one that is being rolled to.
    pub(super) current: String,
    pub(super) update: String,
    current_template: PodTemplateSpec,
    update_template: PodTemplateSpec,
    /// How often a name was taken by another revision.
    pub(super) collisions: i32,
    /// All that were there before, the oldest first.
    pub(super) all: Vec<Arc<ControllerRevision>>,
}

impl Revisions {
    /// Finds the revisions of a set, and creates or renumbers the newest. Nothing for a set that is being deleted and
    /// whose revisions have gone before it.
    pub(super) async fn of(
        ctx: &Context,
        set: &StatefulSet,
        selector: &Selector,
    ) -> Result<Option<Self>, ReconcileError> {
        let all = history::of(ctx, set, selector).await?;
        let status = set.status.clone().unwrap_or_default();
        let mut collisions = status.collision_count.unwrap_or(0);
        let deleting = set.metadata.deletion_timestamp.is_some();
        let update = match history::choose(&all, &spec(set).template) {
            Choice::Keep(at) => Arc::clone(&all[at]),
            _ if deleting => return Ok(None),
            Choice::Renumber(at, number) => Arc::new(history::renumber(ctx, &all[at], number).await?),
            Choice::Create(number) => Arc::new(create(ctx, set, number, &mut collisions).await?),
        };
        let known = |revision: &&Arc<ControllerRevision>| revision.metadata.name == status.current_revision;
        let current = all.iter().find(known).unwrap_or(&update);
        let restore = |revision: &ControllerRevision| {
            let name = revision.metadata.name.as_deref().unwrap_or_default();
            history::template(revision).ok_or_else(|| format!("ControllerRevision {name} holds no template"))
        };
        let (current_template, update_template) = (restore(current)?, restore(&update)?);
        let name = |revision: &ControllerRevision| revision.metadata.name.clone().unwrap_or_default();
        let (current, update) = (name(current), name(&update));
        Ok(Some(Self { current, update, current_template, update_template, collisions, all }))
    }

    /// The template and the revision of a pod that is yet to be made.
    pub(super) fn for_new(
        &self,
        spec: &StatefulSetSpec,
        status: Option<&StatefulSetStatus>,
        ordinal: i32,
    ) -> (&PodTemplateSpec, &str) {
        if takes_current(spec, status, ordinal) {
            (&self.current_template, &self.current)
        } else {
            (&self.update_template, &self.update)
        }
    }
}

/// Whether a new pod is made of the revision that is being left.
pub(super) fn takes_current(spec: &StatefulSetSpec, status: Option<&StatefulSetStatus>, ordinal: i32) -> bool {
    let rolling = spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let kept = match rolling {
        Some(rolling) => rolling.partition.unwrap_or(0),
        None if is_rolling(spec) => status.and_then(|status| status.current_replicas).unwrap_or(0),
        None => return false,
    };
    ordinal < ordinals(spec).start.saturating_add(kept)
}

async fn create(
    ctx: &Context,
    set: &StatefulSet,
    number: i64,
    collisions: &mut i32,
) -> Result<ControllerRevision, ReconcileError> {
    let template = &spec(set).template;
    let bytes = serde_json::to_vec(&history::data(template))?;
    let hash = |collisions: i32| history::hash(&bytes, Some(collisions));
    let mut wanted = history::describe(set, template, (HASH_LABEL, &hash(*collisions)), number);
    loop {
        let name = history::name(set.metadata.name.as_deref().unwrap_or_default(), &hash(*collisions));
        wanted.metadata.name = Some(name);
        let error = match ctx.client().create(&wanted).await {
            Err(error) if error.is_already_exists() => error,
            other => return Ok(other?),
        };
        let Some(found) = ctx.live().get::<ControllerRevision>(&ObjectKey::of(&wanted)).await? else {
            return Err(error.into());
        };
        match owner::controller(&found) {
            // Of a set that had the same name and is gone: the revision is about to be collected.
            Some(other) if Some(&other.uid) != set.metadata.uid.as_ref() && other.kind == "StatefulSet" => {
                return Err(error.into());
            }
            Some(other) if Some(&other.uid) != set.metadata.uid.as_ref() => {}
            _ if history::restores(&found, template) => return Ok(found),
            _ => {}
        }
        *collisions += 1;
    }
}
