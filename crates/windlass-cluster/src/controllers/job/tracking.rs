//! Counts finished pods into a job's status and takes their finalizers off, in an order that survives
//! being interrupted anywhere.

use std::collections::HashSet;
use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::batch::v1::{Job, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use windlass::ReconcileError;

use super::backoff::Record;
use super::{
    Run, ensure_condition, has_failed, index_of, is_indexed, is_tracked, is_true, new_condition, policy, release,
};
use crate::controllers::pods;

/// The most uids a status lists.
const MOST_UNCOUNTED: usize = 500;

impl Run<'_> {
    /// Writes what was found to the status, and ends the job if it is to end.
    pub(super) async fn track(mut self) -> Result<Record, ReconcileError> {
        let mut tracked: HashSet<String> =
            self.pods.iter().filter(|pod| is_tracked(pod)).filter_map(|pod| pod.metadata.uid.clone()).collect();
        self.changed |= settle(&mut self.status, &tracked);
        self.note_counts();
        let (counted, all) = self.count();
        self.note_ending();
        if self.changed {
            self.write().await?;
        }
        let released = join_all(counted.iter().map(|pod| release(self.ctx, Arc::clone(pod)))).await;
        let mut failure = None;
        for (pod, result) in counted.iter().zip(released) {
            match result {
                Ok(()) => drop(tracked.remove(pod.metadata.uid.as_deref().unwrap_or_default())),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        self.changed = settle(&mut self.status, &tracked);
        let finished = failure.is_none() && all && self.finish();
        if self.changed || finished {
            self.write().await?;
        }
        if finished {
            self.report();
        }
        failure.map_or(Ok(self.record), Err)
    }

    async fn write(&mut self) -> Result<(), ReconcileError> {
        let job = Job { status: Some(self.status.clone()), ..self.job.clone() };
        self.job = self.ctx.client().update_status(&job).await?;
        self.status = self.job.status.clone().unwrap_or_default();
        self.status.uncounted_terminated_pods.get_or_insert_default();
        Ok(())
    }

    fn note_counts(&mut self) {
        let counts = (Some(self.active).filter(|count| *count != 0), Some(self.ready), Some(self.terminating));
        let status = &mut self.status;
        self.changed |= (status.active, status.ready, status.terminating) != counts;
        (status.active, status.ready, status.terminating) = counts;
    }

    /// Lists the uids of pods that have finished, and returns those whose finalizer may go; false if
    /// there were too many for one go.
    fn count(&mut self) -> (Vec<Arc<Pod>>, bool) {
        let spec = self.spec().clone();
        let (indexed, completions) = (is_indexed(&spec), spec.completions.unwrap_or(0));
        let ends = self.ending.is_some() || self.job.metadata.deletion_timestamp.is_some();
        let fails = self.ending.as_ref().is_some_and(|ending| ending.type_ != "SuccessCriteriaMet");
        let mut in_order = self.pods.clone();
        in_order.sort_by_key(|pod| index_of(pod));
        let mut uncounted = self.status.uncounted_terminated_pods.take().unwrap_or_default();
        let mut succeeded_indexes = Vec::new();
        let (mut counted, mut all) = (Vec::new(), true);
        for pod in in_order.iter().filter(|pod| is_tracked(pod)) {
            let (succeeded, failed) = (pods::phase(pod) == "Succeeded", has_failed(pod, &spec));
            let index = index_of(pod).filter(|index| *index < completions);
            let awaits = index.and_then(|index| self.replaced.get(&index));
            // Its failures are read from it when its successor is made.
            let awaits = awaits.is_some_and(|awaits| awaits.metadata.uid == pod.metadata.uid);
            if !(ends || succeeded || (failed && !awaits)) {
                continue;
            }
            counted.push(Arc::clone(pod));
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let is_listed = |list: &Option<Vec<String>>| list.iter().flatten().any(|known| *known == uid);
            if succeeded && !is_listed(&uncounted.failed) {
                if indexed {
                    succeeded_indexes.extend(index.filter(|index| !self.succeeded_before.contains(*index)));
                } else if !is_listed(&uncounted.succeeded) {
                    uncounted.succeeded.get_or_insert_default().push(uid);
                    self.changed = true;
                }
            } else if (failed || fails)
                && !is_listed(&uncounted.failed)
                && (!indexed || index.is_some())
                && policy::judge_failure(&spec, pod).counts
            {
                uncounted.failed.get_or_insert_default().push(uid);
                self.changed = true;
            }
            let length = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
            if succeeded_indexes.len() + length(&uncounted.succeeded) + length(&uncounted.failed) >= MOST_UNCOUNTED {
                all = false;
                break;
            }
        }
        self.status.uncounted_terminated_pods = Some(uncounted);
        if indexed {
            self.note_indexes(succeeded_indexes);
        }
        (counted, all)
    }

    fn note_indexes(&mut self, succeeded: Vec<i32>) {
        let mut indexes = self.succeeded_before.clone();
        indexes.extend(succeeded);
        let text = Some(indexes.to_string()).filter(|text| !text.is_empty());
        let count = Some(indexes.len() as i32).filter(|count| *count != 0);
        let failed = self.failed_indexes.as_ref().map(ToString::to_string);
        let status = &mut self.status;
        self.changed |=
            status.completed_indexes != text || status.failed_indexes != failed || status.succeeded != count;
        (status.completed_indexes, status.failed_indexes, status.succeeded) = (text, failed, count);
    }

    /// Says how the job is about to end before any finalizer goes, and turns that into how it ends.
    fn note_ending(&mut self) {
        let Some(ending) = self.ending.take() else { return };
        if !is_true(&self.status, &ending.type_) {
            self.status.conditions.get_or_insert_default().push(ending.clone());
            self.changed = true;
        }
        let type_ = if ending.type_ == "SuccessCriteriaMet" { "Complete" } else { "Failed" };
        let (reason, message) = (ending.reason.unwrap_or_default(), ending.message.unwrap_or_default());
        self.ending = Some(new_condition(type_, "True", &reason, &message, self.now));
    }

    /// Ends the job, unless pods are still to be counted or to go.
    fn finish(&mut self) -> bool {
        let Some(ending) = &self.ending else { return false };
        let uncounted = self.status.uncounted_terminated_pods.as_ref();
        let is_empty = |list: &Option<Vec<String>>| list.as_ref().is_none_or(Vec::is_empty);
        if uncounted.is_some_and(|pods| !is_empty(&pods.succeeded) || !is_empty(&pods.failed)) || self.terminating > 0 {
            return false;
        }
        if ending.type_ == "Complete" {
            self.status.completion_time = Some(Time(self.now));
        }
        ensure_condition(&mut self.status, ending.clone());
        true
    }

    fn report(&self) {
        let Some(ending) = &self.ending else { return };
        let (recorder, job) = (self.ctx.recorder(), &self.job);
        if ending.type_ != "Complete" {
            let (reason, message) = (ending.reason.as_deref(), ending.message.as_deref());
            return recorder.warning(job, reason.unwrap_or_default(), message.unwrap_or_default());
        }
        if self.spec().completions.is_some_and(|completions| self.status.succeeded.unwrap_or(0) > completions) {
            let note = "Too many succeeded pods running after completion count reached";
            recorder.warning(job, "TooManySucceededPods", note);
        }
        recorder.normal(job, "Completed", "Job completed");
    }
}

/// Turns the uids of pods whose finalizer is gone into numbers; whether there were any.
fn settle(status: &mut JobStatus, tracked: &HashSet<String>) -> bool {
    let UncountedTerminatedPods { succeeded, failed } = status.uncounted_terminated_pods.get_or_insert_default();
    let mut changed = false;
    for (uids, count) in [(succeeded, &mut status.succeeded), (failed, &mut status.failed)] {
        let Some(list) = uids else { continue };
        let before = list.len();
        list.retain(|uid| tracked.contains(uid));
        let gone = before - list.len();
        if gone > 0 {
            *count.get_or_insert_default() += gone as i32;
            changed = true;
        }
        if list.is_empty() {
            *uids = None;
        }
    }
    changed
}
