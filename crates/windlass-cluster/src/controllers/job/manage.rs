//! Makes and deletes the pods of a job.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use windlass::{ObjectKey, ReconcileError};

use super::{
    FINALIZER, INDEX, Run, backoff, index_of, is_indexed, is_suspended, policy, release, replaces_failed_only,
};
use crate::controllers::namespace::is_terminating;
use crate::controllers::pods;

/// Pods made or deleted in one go.
const BURST: usize = 500;
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest a generated name's prefix may be.
const PREFIX_LENGTH: usize = 58;

impl Run<'_> {
    /// Brings the number of active pods to what the job needs: deletes some, or else makes some.
    pub(super) async fn manage(&mut self) -> Result<(), ReconcileError> {
        let spec = self.spec().clone();
        if is_suspended(&spec) {
            return self.delete_tracked(self.active_pods.clone()).await;
        }
        let wanted = self.wanted(&spec);
        let surplus = usize::try_from(self.active - wanted).unwrap_or(0);
        let victims = self.victims(&spec, surplus);
        if !victims.is_empty() {
            return self.delete_tracked(victims).await;
        }
        let leaving = if replaces_failed_only(&spec) { self.terminating } else { 0 };
        let missing = usize::try_from(wanted - leaving - self.active).unwrap_or(0).min(BURST);
        if missing == 0 {
            return Ok(());
        }
        let mut indexes = None;
        let wait = if is_indexed(&spec) {
            let pending = self.pending(&spec, missing);
            let (ready, wait) = self.ready_indexes(pending);
            indexes = Some(ready);
            wait
        } else {
            Duration::ZERO
        };
        let wait = if spec.backoff_limit_per_index.is_some() { wait } else { self.record.remaining(self.now) };
        if !wait.is_zero() {
            self.look_again(wait);
            return Ok(());
        }
        self.create(&spec, indexes.as_deref(), missing).await
    }

    fn wanted(&self, spec: &JobSpec) -> i32 {
        let parallelism = spec.parallelism.unwrap_or(1);
        match spec.completions {
            // Once one has succeeded the others may run to their end, but no more are made.
            None if self.succeeded > 0 => self.active,
            None => parallelism,
            Some(completions) => (completions - self.succeeded).clamp(0, parallelism),
        }
    }

    /// At least `surplus` pods to delete; more if some have an index that another has, or none.
    fn victims(&self, spec: &JobSpec, surplus: usize) -> Vec<Arc<Pod>> {
        let mut victims = Vec::new();
        let mut left = self.active_pods.clone();
        if is_indexed(spec) {
            let mut seen = HashSet::new();
            // The best of each index stays: the last in the order of deletion.
            let mut order = std::mem::take(&mut left);
            pods::sort_for_deletion(&mut order);
            for pod in order.into_iter().rev() {
                let index = index_of(&pod).filter(|index| *index < spec.completions.unwrap_or(0));
                if index.is_some_and(|index| seen.insert(index)) {
                    left.push(pod);
                } else {
                    victims.push(pod);
                }
            }
        }
        if victims.len() < surplus {
            pods::sort_for_deletion(&mut left);
            left.truncate(surplus - victims.len());
            victims.append(&mut left);
        }
        victims.truncate(BURST);
        victims
    }

    /// The first indexes that have no pod and need one.
    fn pending(&self, spec: &JobSpec, count: usize) -> Vec<i32> {
        let mut taken = self.succeeded_indexes.clone();
        taken.extend(self.active_pods.iter().filter_map(|pod| index_of(pod)));
        if replaces_failed_only(spec) {
            taken.extend(self.pods.iter().filter(|pod| pods::is_terminating(pod)).filter_map(|pod| index_of(pod)));
        }
        if let Some(failed) = &self.failed_indexes {
            taken.add(failed);
        }
        taken.absent(spec.completions.unwrap_or(0)).take(count).collect()
    }

    /// Those of some indexes that need not wait after a failure; when all have to, how long the first.
    fn ready_indexes(&self, indexes: Vec<i32>) -> (Vec<i32>, Duration) {
        let wait = |index: i32| match self.replaced.get(&index) {
            Some(pod) => {
                let failures = u32::try_from(policy::failures_of_index(pod) + 1).unwrap_or(1);
                backoff::remaining(failures, backoff::finished_at(pod), self.now)
            }
            None => Duration::ZERO,
        };
        let ready: Vec<i32> = indexes.iter().copied().filter(|index| wait(*index).is_zero()).collect();
        let shortest = indexes.into_iter().map(wait).min().unwrap_or_default();
        if ready.is_empty() { (ready, shortest) } else { (ready, Duration::ZERO) }
    }

    async fn create(&mut self, spec: &JobSpec, indexes: Option<&[i32]>, missing: usize) -> Result<(), ReconcileError> {
        let mut template = pods::from_template(&spec.template, &self.job);
        let finalizers = template.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        if indexes.is_some()
            && let Some(spec) = &mut template.spec
        {
            for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
                add_index_variable(container);
            }
        }
        let count = indexes.map_or(missing, <[i32]>::len);
        let this = &*self;
        let (made, failure) = pods::slow_start(count, async |at| {
            let mut pod = template.clone();
            if let Some(index) = indexes.and_then(|indexes| indexes.get(at)) {
                this.add_index(&mut pod, spec, *index);
            }
            match pods::create(this.ctx, &this.job, &pod).await {
                // Nothing can be created any more, and all there is will be deleted.
                Err(error) if is_terminating(&error) => Ok(0),
                other => other.map(|_| 1),
            }
        })
        .await;
        self.active += made.into_iter().sum::<i32>();
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    fn add_index(&self, pod: &mut Pod, spec: &JobSpec, index: i32) {
        let name = self.job.metadata.name.as_deref().unwrap_or_default();
        let meta = &mut pod.metadata;
        meta.annotations.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
        meta.labels.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
        let suffix = format!("-{index}-");
        let prefix = &name[..name.len().min(PREFIX_LENGTH - suffix.len())];
        meta.generate_name = Some(format!("{prefix}{suffix}"));
        if spec.backoff_limit_per_index.is_some() {
            let replaced = self.replaced.get(&index).map(|pod| &**pod);
            meta.annotations.get_or_insert_default().extend(policy::failure_annotations(spec, replaced));
        }
        if let Some(spec) = &mut pod.spec {
            spec.hostname = Some(format!("{name}-{index}"));
        }
    }

    /// Deletes pods that are not needed, without counting them.
    async fn delete_tracked(&mut self, victims: Vec<Arc<Pod>>) -> Result<(), ReconcileError> {
        let this = &*self;
        let deleted = join_all(victims.iter().map(async |pod| {
            release(this.ctx, Arc::clone(pod)).await?;
            pods::delete(this.ctx, &this.job, &ObjectKey::of(&**pod)).await.map_err(ReconcileError::from)
        }))
        .await;
        self.note_deleted(&victims, deleted)
    }

    /// Deletes all active pods of a job that ends; they are counted on the way out. A job is not
    /// declared finished before all are.
    pub(super) async fn delete_active(&mut self) -> Result<(), ReconcileError> {
        let (this, victims) = (&*self, self.active_pods.clone());
        let delete = |pod: &Arc<Pod>| {
            let key = ObjectKey::of(&**pod);
            async move { pods::delete(this.ctx, &this.job, &key).await.map_err(ReconcileError::from) }
        };
        let deleted = join_all(victims.iter().map(delete)).await;
        let result = self.note_deleted(&victims, deleted);
        if result.is_err() {
            self.ending = None;
        }
        result
    }

    fn note_deleted(
        &mut self,
        victims: &[Arc<Pod>],
        deleted: Vec<Result<(), ReconcileError>>,
    ) -> Result<(), ReconcileError> {
        let mut failure = None;
        for (pod, result) in victims.iter().zip(deleted) {
            match result {
                Ok(()) => {
                    self.active -= 1;
                    self.terminating += 1;
                    self.ready -= i32::from(pods::is_ready(pod));
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

fn add_index_variable(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
        return;
    }
    let path = ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), api_version: None };
    variables.push(EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(path), ..EnvVarSource::default() }),
        ..EnvVar::default()
    });
}
