//! Changes the sizes of ReplicaSets, and removes those that history has no room for.

use k8s_openapi::api::apps::v1::ReplicaSet;
use windlass::{ObjectKey, ReconcileError};

use super::revision::{ReplicaSetsOf, by_age};
use super::{Rollout, annotations, available, numbers, replicas, set_status, size, spec, strategy};

impl Rollout<'_> {
    /// Brings the ReplicaSets to the deployment's size without going on with a rollout: in proportion
    /// to the sizes they have.
    pub(super) async fn scale(&mut self, sets: &mut ReplicaSetsOf) -> Result<(), ReconcileError> {
        let wanted = replicas(&self.deployment);
        if sets.active().count() <= 1 {
            // The only one with pods, or else the newest.
            let has_pods = |set: &&mut ReplicaSet| size(set) > 0;
            let only = match sets.old.iter_mut().chain(&mut sets.new).find(has_pods) {
                Some(only) => Some(only),
                None => sets.new.as_mut().or(sets.old.last_mut()),
            };
            if let Some(only) = only {
                self.resize(only, wanted, false).await?;
            }
            return Ok(());
        }
        if sets.new.as_ref().is_some_and(|new| self.is_saturated(new)) {
            for old in sets.old.iter_mut().filter(|old| size(old) > 0) {
                self.resize(old, 0, false).await?;
            }
            return Ok(());
        }
        if strategy(&self.deployment) == "RollingUpdate" {
            self.scale_in_proportion(sets).await?;
        }
        Ok(())
    }

    async fn scale_in_proportion(&mut self, sets: &mut ReplicaSetsOf) -> Result<(), ReconcileError> {
        let wanted = replicas(&self.deployment);
        let mut active: Vec<&mut ReplicaSet> =
            sets.old.iter_mut().chain(&mut sets.new).filter(|set| size(set) > 0).collect();
        let allowed = if wanted > 0 { wanted + numbers::max_surge(&self.deployment) } else { 0 };
        let to_add = allowed - active.iter().map(|set| size(set)).sum::<i32>();
        // The larger first; among equals the newer when growing, the older when shrinking.
        active.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| if to_add > 0 { by_age(b, a) } else { by_age(a, b) }));
        let mut added = 0;
        let mut sizes = Vec::new();
        for set in &active {
            let part = numbers::proportion(set, &self.deployment, to_add, added);
            sizes.push(size(set) + part);
            added += part;
        }
        if let Some(largest) = sizes.first_mut()
            && to_add != 0
        {
            *largest = (*largest + to_add - added).max(0);
        }
        for (set, size) in active.into_iter().zip(sizes) {
            self.resize(set, size, true).await?;
        }
        Ok(())
    }

    /// Whether both sides agree that the newest ReplicaSet has all replicas, and they are available.
    fn is_saturated(&self, new: &ReplicaSet) -> bool {
        let wanted = replicas(&self.deployment);
        size(new) == wanted && annotations::desired_replicas(new) == Some(wanted) && available(new) == wanted
    }

    /// Sets the size of a ReplicaSet; whether it was another. `force` also brings its annotations up to
    /// date when it was not.
    pub(super) async fn resize(&self, set: &mut ReplicaSet, wanted: i32, force: bool) -> Result<bool, ReconcileError> {
        let before = size(set);
        if !force && before == wanted {
            return Ok(false);
        }
        let mut resized = set.clone();
        let noted = annotations::note_size(&mut resized, &self.deployment);
        if before == wanted && !noted {
            return Ok(false);
        }
        resized.spec.get_or_insert_default().replicas = Some(wanted);
        *set = self.ctx.client().update(&resized).await?;
        if before == wanted {
            return Ok(false);
        }
        let (direction, name) = (if before < wanted { "up" } else { "down" }, &resized.metadata.name);
        let name = name.as_deref().unwrap_or_default();
        let note = format!("Scaled {direction} replica set {name} from {before} to {wanted}");
        self.ctx.recorder().normal(&self.deployment, "ScalingReplicaSet", note);
        Ok(true)
    }

    /// Deletes old ReplicaSets beyond the history's limit.
    pub(super) async fn clean_up(&self, old: &[ReplicaSet]) -> Result<(), ReconcileError> {
        let Some(limit) = spec(&self.deployment).revision_history_limit.filter(|limit| *limit != i32::MAX) else {
            return Ok(());
        };
        let mut alive: Vec<&ReplicaSet> = old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
        let surplus = alive.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        alive.sort_by(|a, b| annotations::revision(a).cmp(&annotations::revision(b)).then_with(|| by_age(a, b)));
        for set in alive.into_iter().take(surplus) {
            let status = set_status(set);
            let behind = set.metadata.generation > status.observed_generation;
            if status.replicas == 0 && size(set) == 0 && !behind {
                self.ctx.client().delete::<ReplicaSet>(&ObjectKey::of(set)).await?;
            }
        }
        Ok(())
    }
}
