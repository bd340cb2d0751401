//! Replaces old pods by new ones: a few at a time, or all at once.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use windlass::ReconcileError;

use super::revision::{ReplicaSetsOf, by_age};
use super::{Rollout, available, numbers, progress, replicas, set_status, size};
use crate::controllers::pods;

impl Rollout<'_> {
    /// A rolling update: up by what the surge allows, down by what availability allows.
    pub(super) async fn roll(mut self, mut sets: ReplicaSetsOf) -> windlass::Result {
        if sets.new.is_none() {
            self.sync_revision(&mut sets, true).await?;
        }
        if self.grow_new(&mut sets).await? || self.shrink_old(&mut sets).await? {
            return progress::sync_rollout(self.ctx, &sets, self.deployment).await;
        }
        Box::pin(self.finish(sets)).await
    }

    /// All old pods go before the first new one comes.
    pub(super) async fn recreate(mut self, mut sets: ReplicaSetsOf) -> windlass::Result {
        let mut shrunk = false;
        for old in sets.old.iter_mut().filter(|old| size(old) > 0) {
            shrunk |= self.resize(old, 0, false).await?;
        }
        if shrunk || self.has_old_pods(&sets) {
            return progress::sync_rollout(self.ctx, &sets, self.deployment).await;
        }
        if sets.new.is_none() {
            self.sync_revision(&mut sets, true).await?;
        }
        if let Some(new) = &mut sets.new {
            self.resize(new, replicas(&self.deployment), false).await?;
        }
        Box::pin(self.finish(sets)).await
    }

    async fn finish(self, sets: ReplicaSetsOf) -> windlass::Result {
        let status = self.deployment.status.clone().unwrap_or_default();
        if progress::is_complete(&self.deployment, &status) {
            self.clean_up(&sets.old).await?;
        }
        progress::sync_rollout(self.ctx, &sets, self.deployment).await
    }

    fn has_old_pods(&self, sets: &ReplicaSetsOf) -> bool {
        let lister = self.ctx.client().lister::<Pod>();
        let running = |set: &ReplicaSet| lister.owned_by(set).iter().any(|pod| !pods::is_finished(pod));
        sets.old.iter().any(|set| set_status(set).replicas > 0 || running(set))
    }

    async fn grow_new(&mut self, sets: &mut ReplicaSetsOf) -> Result<bool, ReconcileError> {
        let total = sets.size();
        let Some(new) = &mut sets.new else { return Ok(false) };
        let wanted = replicas(&self.deployment);
        let next = if size(new) > wanted { wanted } else { numbers::new_size(&self.deployment, total, size(new)) };
        self.resize(new, next, false).await
    }

    async fn shrink_old(&mut self, sets: &mut ReplicaSetsOf) -> Result<bool, ReconcileError> {
        let Some(new) = &sets.new else { return Ok(false) };
        let total = sets.size();
        if total == size(new) {
            return Ok(false);
        }
        let least = replicas(&self.deployment) - numbers::max_unavailable(&self.deployment);
        // New pods that do not come up must not cost old ones.
        let may_go = total - least - (size(new) - available(new));
        if may_go <= 0 {
            return Ok(false);
        }
        let before = total;
        sets.old.sort_by(by_age);
        let mut gone = 0;
        // Those that are of no use first.
        for old in sets.old.iter_mut().filter(|old| size(old) > 0) {
            let unhealthy = (size(old) - available(old)).clamp(0, may_go - gone);
            if unhealthy > 0 {
                let wanted = size(old) - unhealthy;
                self.resize(old, wanted, false).await?;
                gone += unhealthy;
            }
        }
        let mut spare = sets.all().map(available).sum::<i32>() - least;
        for old in sets.old.iter_mut().filter(|old| size(old) > 0) {
            let part = size(old).min(spare);
            if part > 0 {
                let wanted = size(old) - part;
                self.resize(old, wanted, false).await?;
                spare -= part;
            }
        }
        Ok(sets.size() < before)
    }
}
