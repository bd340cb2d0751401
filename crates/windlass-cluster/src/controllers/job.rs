//! Jobs: runs pods until enough of them have succeeded, or too many have failed.
//!
//! Every pod carries a finalizer until it has been counted in the job's status, so that none is
//! missed or counted twice: first its uid is written to the status, then the finalizer goes, then the
//! uid becomes a number. Mirrors upstream's `pkg/controller/job`.

mod backoff;
mod indexes;
mod manage;
mod policy;
#[cfg(test)]
mod tests;
mod tracking;
pub(super) mod ttl;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use parking_lot::Mutex;
use serde_json::json;
use windlass::cache::Lister;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile, ReconcileError, owner};

use super::{claim, pods};
use backoff::Record;
use indexes::Indexes;

const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The manager of jobs that name no other.
const MANAGER: &str = "kubernetes.io/job-controller";
/// The index of pods that carry the finalizer, by the job they were made for.
const TRACKED: &str = "tracked-by-job";

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(
        Controller::<Job>::new("job-controller")
            .owns::<Pod>()
            .watches(|pod: &Pod, ctx| {
                let mut keys: Vec<ObjectKey> = tracker(pod).into_iter().collect();
                keys.extend(claim::adopters(pod, &ctx.lister(), |job: &Job| spec(job).selector.as_ref()));
                keys
            })
            .concurrency(5)
            .complete(Jobs::default()),
    )
}

/// The job that has to count a pod.
fn tracker(pod: &Pod) -> Option<ObjectKey> {
    if !is_tracked(pod) {
        return None;
    }
    let name = match owner::controller(pod) {
        Some(controller) => Some(&controller.name).filter(|_| controller.kind == "Job"),
        None => pod.metadata.labels.as_ref().and_then(|labels| labels.get(NAME_LABEL)),
    };
    name.map(|name| ObjectKey::of(pod).sibling(name))
}

fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

fn spec(job: &Job) -> &JobSpec {
    static EMPTY: std::sync::OnceLock<JobSpec> = std::sync::OnceLock::new();
    job.spec.as_ref().unwrap_or_else(|| EMPTY.get_or_init(JobSpec::default))
}

fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

fn is_suspended(spec: &JobSpec) -> bool {
    spec.suspend == Some(true)
}

/// Whether pods are replaced only once they have failed for good, not when they begin to terminate.
fn replaces_failed_only(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// Whether a pod counts as failed.
fn has_failed(pod: &Pod, spec: &JobSpec) -> bool {
    match pods::phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => !replaces_failed_only(spec) && pod.metadata.deletion_timestamp.is_some(),
    }
}

/// A pod's completion index.
fn index_of(pod: &Pod) -> Option<i32> {
    pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// The condition with which a job ended, if it has.
pub(super) fn end(job: &Job) -> Option<&JobCondition> {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut conditions = conditions.filter(|condition| condition.status == "True");
    conditions.find(|condition| matches!(&*condition.type_, "Complete" | "Failed"))
}

fn is_true(status: &JobStatus, type_: &str) -> bool {
    condition(status, type_).is_some_and(|condition| condition.status == "True")
}

fn condition<'a>(status: &'a JobStatus, type_: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

fn new_condition(type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Sets a condition; whether that changed anything. One that is absent need not be set to false.
fn ensure_condition(status: &mut JobStatus, new: JobCondition) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        Some(known) if known.status == new.status && known.reason == new.reason && known.message == new.message => {
            false
        }
        Some(known) => {
            *known = new;
            true
        }
        None if new.status == "False" => false,
        None => {
            conditions.push(new);
            true
        }
    }
}

#[derive(Default)]
struct Jobs {
    /// How the last pods of running jobs failed.
    failures: Mutex<HashMap<ObjectKey, Record>>,
}

impl Reconcile<Job> for Jobs {
    async fn reconcile(&self, job: Arc<Job>, ctx: Context) -> windlass::Result {
        let key = ObjectKey::of(&*job);
        if spec(&job).managed_by.as_deref().is_some_and(|by| by != MANAGER) {
            return Ok(Outcome::Done);
        }
        if end(&job).is_some() {
            return self.forget(&key, &ctx).await;
        }
        let lister = ctx.client().lister::<Pod>();
        release_others(&ctx, &key, Some(&job), &lister).await?;
        let Some(selector) = spec(&job).selector.as_ref().and_then(claim::selector) else { return Ok(Outcome::Done) };
        let candidates = claim::candidates(&lister, &*job);
        let claimed = claim::claim(&ctx, &*job, &selector, candidates, &[FINALIZER]).await?;
        let record = self.failures.lock().get(&key).copied().unwrap_or_default();
        let mut run = Run::new(&ctx, Job::clone(&job), claimed, record);
        let managed = Box::pin(run.advance()).await;
        let again = run.again;
        let counted = Box::pin(run.track()).await?;
        self.failures.lock().insert(key, counted);
        managed?;
        Ok(again.map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    async fn gone(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
        self.forget(&key, &ctx).await
    }
}

impl Jobs {
    /// A job that does not run, or does not exist, has no pods to count.
    async fn forget(&self, key: &ObjectKey, ctx: &Context) -> windlass::Result {
        release_others(ctx, key, None, &ctx.client().lister::<Pod>()).await?;
        self.failures.lock().remove(key);
        Ok(Outcome::Done)
    }
}

/// Takes the finalizer off pods that no running job has to count.
async fn release_others(
    ctx: &Context,
    key: &ObjectKey,
    running: Option<&Job>,
    lister: &Lister<Pod>,
) -> Result<(), ReconcileError> {
    lister.add_index(TRACKED, |pod: &Pod| tracker(pod).iter().map(ToString::to_string).collect());
    let uid = running.and_then(|job| job.metadata.uid.as_deref());
    let others = lister.by_index(TRACKED, &key.to_string()).into_iter().filter(|pod| {
        // One without a controller may yet be adopted by a job that runs.
        uid.is_none() || owner::controller(&**pod).is_some_and(|controller| Some(&*controller.uid) != uid)
    });
    try_join_all(others.map(|pod| release(ctx, pod))).await?;
    Ok(())
}

/// Takes the finalizer off a pod.
async fn release(ctx: &Context, pod: Arc<Pod>) -> Result<(), ReconcileError> {
    let patch = json!({"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
    match ctx.client().patch::<Pod>(&ObjectKey::of(&*pod), &Patch::Strategic(patch)).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

/// One look at a job.
struct Run<'a> {
    ctx: &'a Context,
    job: Job,
    /// Its status, as it is to be written.
    status: JobStatus,
    now: Timestamp,
    pods: Vec<Arc<Pod>>,
    active_pods: Vec<Arc<Pod>>,
    active: i32,
    ready: i32,
    terminating: i32,
    succeeded: i32,
    failed: i32,
    /// The indexes known to have succeeded, and those that have by now.
    succeeded_before: Indexes,
    succeeded_indexes: Indexes,
    failed_indexes: Option<Indexes>,
    /// The last failed pod of each index that is to be tried again.
    replaced: HashMap<i32, Arc<Pod>>,
    record: Record,
    /// How the job is about to end.
    ending: Option<JobCondition>,
    again: Option<Duration>,
    changed: bool,
}

impl<'a> Run<'a> {
    fn new(ctx: &'a Context, job: Job, pods: Vec<Arc<Pod>>, record: Record) -> Self {
        let mut status = job.status.clone().unwrap_or_default();
        status.uncounted_terminated_pods.get_or_insert_default();
        let active_pods: Vec<_> = pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        Self {
            ctx,
            now: ctx.now(),
            active: active_pods.len() as i32,
            ready: active_pods.iter().filter(|pod| pods::is_ready(pod)).count() as i32,
            terminating: pods.iter().filter(|pod| pods::is_terminating(pod)).count() as i32,
            succeeded: 0,
            failed: 0,
            succeeded_before: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            replaced: HashMap::new(),
            record,
            ending: None,
            again: None,
            changed: false,
            job,
            status,
            pods,
            active_pods,
        }
    }

    fn spec(&self) -> &JobSpec {
        spec(&self.job)
    }

    fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |known| known.min(after)));
    }

    /// Decides whether the job ends, and makes or deletes pods.
    async fn advance(&mut self) -> Result<(), ReconcileError> {
        self.count_finished();
        if self.status.start_time.is_none() && !is_suspended(self.spec()) {
            self.status.start_time = Some(Time(self.now));
            self.changed = true;
        }
        self.judge();
        if self.ending.is_some() {
            return self.delete_active().await;
        }
        let deleting = self.job.metadata.deletion_timestamp.is_some();
        let managed = if deleting { Ok(()) } else { self.manage().await };
        let complete = match self.spec().completions {
            None => self.succeeded > 0,
            Some(completions) => self.succeeded >= completions,
        };
        if complete && self.active == 0 {
            let message = "Reached expected number of succeeded pods";
            self.ending = Some(new_condition("SuccessCriteriaMet", "True", "CompletionsReached", message, self.now));
        } else if !deleting {
            self.note_suspension();
        }
        managed
    }

    /// Counts the pods that have finished since the last look.
    fn count_finished(&mut self) {
        let spec = spec(&self.job);
        let uncounted = self.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let (known_succeeded, known_failed) =
            (uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default());
        let valid = |pod: &&Arc<Pod>| {
            is_tracked(pod)
                && (!is_indexed(spec) || index_of(pod).is_some_and(|index| index < spec.completions.unwrap_or(0)))
        };
        let new = |pod: &&Arc<Pod>, known: &[String]| !known.iter().any(|uid| Some(uid) == pod.metadata.uid.as_ref());
        let succeeded: Vec<&Pod> = (self.pods.iter().filter(valid))
            .filter(|pod| pods::phase(pod) == "Succeeded" && new(pod, &known_succeeded))
            .map(|pod| &**pod)
            .collect();
        let failed: Vec<&Pod> = (self.pods.iter().filter(valid))
            .filter(|pod| has_failed(pod, spec) && new(pod, &known_failed))
            .map(|pod| &**pod)
            .collect();
        let counted = failed.iter().filter(|pod| policy::judge_failure(spec, pod).counts).count();
        self.succeeded = self.status.succeeded.unwrap_or(0) + succeeded.len() as i32 + known_succeeded.len() as i32;
        self.failed = self.status.failed.unwrap_or(0) + counted as i32 + known_failed.len() as i32;
        self.record = self.record.after(&succeeded, &failed);
    }

    /// Decides whether the job has failed, or has succeeded by its success policy.
    fn judge(&mut self) {
        let (now, spec) = (self.now, spec(&self.job).clone());
        let failure = |reason: &str, message: &str| new_condition("FailureTarget", "True", reason, message, now);
        if let Some(known) = condition(&self.status, "SuccessCriteriaMet").filter(|known| known.status == "True") {
            self.ending = Some(known.clone());
        } else if let Some(known) = condition(&self.status, "FailureTarget").filter(|known| known.status == "True") {
            self.ending = Some(known.clone());
        } else if let Some(message) = policy::job_failure(&spec, &self.pods) {
            self.ending = Some(failure("PodFailurePolicy", &message));
        } else if self.failed > spec.backoff_limit.unwrap_or(6) || backoff::too_many_restarts(&spec, &self.pods) {
            self.ending = Some(failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        } else if let Some(left) = self.deadline() {
            match Duration::try_from(left) {
                Ok(left) if !left.is_zero() => self.look_again(left),
                _ => {
                    let message = "Job was active longer than specified deadline";
                    self.ending = Some(failure("DeadlineExceeded", message));
                }
            }
        }
        if is_indexed(&spec) {
            self.judge_indexes(&spec, failure);
        }
    }

    fn judge_indexes(&mut self, spec: &JobSpec, failure: impl Fn(&str, &str) -> JobCondition) {
        let completions = spec.completions.unwrap_or(0);
        let finished = |accept: &dyn Fn(&Pod) -> bool| {
            let pods = self.pods.iter().filter(|pod| is_tracked(pod) && accept(pod));
            pods.filter_map(|pod| index_of(pod)).filter(|index| *index < completions).collect::<Vec<_>>()
        };
        let before = Indexes::parse(self.status.completed_indexes.as_deref().unwrap_or_default(), completions);
        let succeeded = finished(&|pod| pods::phase(pod) == "Succeeded");
        let failed = finished(&|pod| policy::index_failed(spec, pod));
        self.succeeded_indexes = before.clone();
        self.succeeded_indexes.extend(succeeded);
        self.succeeded_before = before;
        self.succeeded = self.succeeded_indexes.len() as i32;
        if spec.backoff_limit_per_index.is_some() {
            let text = self.status.failed_indexes.as_deref().unwrap_or_default();
            let mut indexes = Indexes::parse(text, completions);
            indexes.extend(failed);
            let (lost, done) = (indexes.len() as i32, self.succeeded_indexes.len() as i32);
            if self.ending.is_none() && spec.max_failed_indexes.is_some_and(|most| lost > most) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                self.ending = Some(failure("MaxFailedIndexesExceeded", message));
            } else if self.ending.is_none() && lost > 0 && lost + done >= completions {
                self.ending = Some(failure("FailedIndexes", "Job has failed indexes"));
            }
            self.failed_indexes = Some(indexes);
            self.replaced = self.find_replaced(spec);
        }
        if self.ending.is_none()
            && let Some(message) = policy::success(spec, &self.succeeded_indexes)
        {
            self.ending = Some(new_condition("SuccessCriteriaMet", "True", "SuccessPolicy", &message, self.now));
        }
    }

    /// The last failed pod of each index that is neither done nor lost nor running.
    fn find_replaced(&self, spec: &JobSpec) -> HashMap<i32, Arc<Pod>> {
        let mut replaced: HashMap<i32, Arc<Pod>> = HashMap::new();
        for pod in self.pods.iter().filter(|pod| is_tracked(pod) && has_failed(pod, spec)) {
            let Some(index) = index_of(pod).filter(|index| *index < spec.completions.unwrap_or(0)) else { continue };
            let settled = self.succeeded_indexes.contains(index)
                || self.failed_indexes.as_ref().is_some_and(|failed| failed.contains(index))
                || self.active_pods.iter().any(|active| index_of(active) == Some(index));
            let later = replaced.get(&index).is_none_or(|known| {
                policy::failures_of_index(known) <= policy::failures_of_index(pod)
                    && backoff::finished_at(pod) >= backoff::finished_at(known)
            });
            if !settled && later {
                replaced.insert(index, Arc::clone(pod));
            }
        }
        replaced
    }

    /// How long the job may still be active.
    fn deadline(&self) -> Option<k8s_openapi::jiff::SignedDuration> {
        let spec = self.spec();
        let seconds = spec.active_deadline_seconds.filter(|_| !is_suspended(spec))?;
        let since = self.status.start_time.as_ref()?.0;
        Some(k8s_openapi::jiff::SignedDuration::from_secs(seconds) - self.now.duration_since(since))
    }

    fn note_suspension(&mut self) {
        if is_suspended(self.spec()) {
            let new = new_condition("Suspended", "True", "JobSuspended", "Job suspended", self.now);
            if ensure_condition(&mut self.status, new) {
                self.changed = true;
                self.ctx.recorder().normal(&self.job, "Suspended", "Job suspended");
                // Without it the template may be changed until the job is resumed.
                self.status.start_time = None;
            }
        } else {
            let new = new_condition("Suspended", "False", "JobResumed", "Job resumed", self.now);
            if ensure_condition(&mut self.status, new) {
                self.changed = true;
                self.ctx.recorder().normal(&self.job, "Resumed", "Job resumed");
                // The deadline counts from here.
                self.status.start_time = Some(Time(self.now));
            }
        }
    }
}
