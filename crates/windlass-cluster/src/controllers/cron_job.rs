//! CronJobs: starts a Job at each time of a schedule.
//!
//! Mirrors upstream's `pkg/controller/cronjob`.

mod schedule;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Resource as _;
use kube::api::PropagationPolicy;
use windlass::client::options::DeleteOptions;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile, ReconcileError, owner};

use super::claim::controller_reference;
use super::job;
use super::namespace::is_terminating;
use super::pods;
use schedule::Schedule;

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Times missed at once above which something must be wrong.
const MANY: i64 = 100;
/// Added to the time of the next start, so that clocks that differ a little do not matter.
const DELTA: Duration = Duration::from_millis(100);

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    let controller = Controller::<CronJob>::new("cronjob-controller").owns::<Job>();
    manager.add(controller.concurrency(5).complete(CronJobs))
}

struct CronJobs;

impl Reconcile<CronJob> for CronJobs {
    async fn reconcile(&self, cron: Arc<CronJob>, ctx: Context) -> windlass::Result {
        let mut jobs = ctx.client().lister::<Job>().owned_by(&*cron);
        jobs.retain(|job| owner::is_controlled_by(&**job, &*cron));
        let status = cron.status.clone().unwrap_or_default();
        let mut run = Run { ctx: &ctx, cron: CronJob::clone(&cron), status, now: ctx.now() };
        let cleaned = run.clean_up(&jobs).await;
        let synced = match cleaned {
            Ok(()) => Box::pin(run.sync(&jobs)).await,
            Err(error) => Err(error),
        };
        run.status.active = run.status.active.filter(|active| !active.is_empty());
        if cron.status.clone().unwrap_or_default() != run.status {
            let updated = CronJob { status: Some(run.status), ..run.cron };
            match ctx.client().update_status(&updated).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(synced?.map_or(Outcome::Done, Outcome::RequeueAfter))
    }
}

/// The times a schedule has had since it was last looked at.
#[derive(Debug, PartialEq)]
struct Missed {
    /// The last of them.
    latest: Option<Timestamp>,
    /// Whether there were suspiciously many.
    many: bool,
}

/// One look at a cron job.
struct Run<'a> {
    ctx: &'a Context,
    cron: CronJob,
    status: CronJobStatus,
    now: Timestamp,
}

impl Run<'_> {
    fn spec(&self) -> CronJobSpec {
        self.cron.spec.clone()
    }

    fn is_active(&self, uid: Option<&str>) -> bool {
        self.status.active.iter().flatten().any(|active| active.uid.as_deref() == uid)
    }

    fn forget(&mut self, uid: Option<&str>) {
        if let Some(active) = &mut self.status.active {
            active.retain(|known| known.uid.as_deref() != uid);
        }
    }

    /// Deletes finished jobs beyond the history's limits, the oldest first.
    async fn clean_up(&mut self, jobs: &[Arc<Job>]) -> Result<(), ReconcileError> {
        let spec = self.spec();
        let limits = [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
        for (type_, limit) in limits {
            let Some(limit) = limit else { continue };
            let ended = |job: &&Arc<Job>| job::end(job).is_some_and(|end| end.type_ == type_);
            let mut ended: Vec<&Arc<Job>> = jobs.iter().filter(ended).collect();
            let started = |job: &Job| job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|t| t.0);
            ended.sort_by(|a, b| {
                let key = |job: &Job| (started(job).is_none(), started(job), job.metadata.name.clone());
                key(a).cmp(&key(b))
            });
            let surplus = ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
            for job in ended.into_iter().take(surplus) {
                self.delete(job).await?;
            }
        }
        Ok(())
    }

    async fn delete(&mut self, job: &Job) -> Result<(), ReconcileError> {
        let (key, recorder) = (ObjectKey::of(job), self.ctx.recorder());
        let options = DeleteOptions::new().propagation(PropagationPolicy::Background);
        if let Err(error) = self.ctx.client().delete_with::<Job>(&key, options).await {
            recorder.warning(&self.cron, "FailedDelete", format!("Deleted job: {}", pods::message(&error)));
            return Err(error.into());
        }
        recorder.normal(&self.cron, "SuccessfulDelete", format!("Deleted job {}", key.name()));
        self.forget(job.metadata.uid.as_deref());
        Ok(())
    }

    /// Brings the list of active jobs up to date.
    async fn track(&mut self, jobs: &[Arc<Job>]) -> Result<(), ReconcileError> {
        for job in jobs {
            let (uid, name) = (job.metadata.uid.as_deref(), job.metadata.name.as_deref().unwrap_or_default());
            let Some(end) = job::end(job) else {
                if !self.is_active(uid) {
                    let note = format!("Saw a job that the controller did not create or forgot: {name}");
                    self.ctx.recorder().warning(&self.cron, "UnexpectedJob", note);
                }
                continue;
            };
            if self.is_active(uid) {
                self.forget(uid);
                let note = format!("Saw completed job: {name}, condition: {}", end.type_);
                self.ctx.recorder().normal(&self.cron, "SawCompletedJob", note);
            }
            let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
            let later =
                |known: &Option<Time>| known.as_ref().map(|time| time.0) < completed.as_ref().map(|time| time.0);
            if end.type_ == "Complete" && later(&self.status.last_successful_time) {
                self.status.last_successful_time = completed;
            }
        }
        let known = |active: &ObjectReference| jobs.iter().any(|job| job.metadata.uid == active.uid);
        let missing: Vec<_> = self.status.active.iter().flatten().filter(|active| !known(active)).cloned().collect();
        for active in missing {
            let name = active.name.as_deref().unwrap_or_default();
            let key = ObjectKey::of(&self.cron).sibling(name);
            if self.ctx.live().get::<Job>(&key).await?.is_none() {
                let note = format!("Active job went missing: {name}");
                self.ctx.recorder().normal(&self.cron, "MissingJob", note);
                self.forget(active.uid.as_deref());
            }
        }
        Ok(())
    }

    /// Starts a job if it is time; when to look again.
    async fn sync(&mut self, jobs: &[Arc<Job>]) -> Result<Option<Duration>, ReconcileError> {
        self.track(jobs).await?;
        let spec = self.spec();
        if self.cron.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let Some(zone) = schedule::time_zone(spec.time_zone.as_deref().unwrap_or_default()) else {
            let zone = spec.time_zone.unwrap_or_default();
            let note = format!("invalid timeZone: {zone:?}: unknown time zone {zone}");
            self.ctx.recorder().warning(&self.cron, "UnknownTimeZone", note);
            return Ok(None);
        };
        if spec.suspend == Some(true) {
            return Ok(None);
        }
        if spec.schedule.contains("TZ") {
            let note = format!(
                "CRON_TZ or TZ used in schedule {:?} is not officially supported, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
                spec.schedule
            );
            self.ctx.recorder().warning(&self.cron, "UnsupportedSchedule", note);
        }
        let Some(schedule) = Schedule::parse(&spec.schedule, zone) else {
            let note = format!("unparseable schedule: {:?}", spec.schedule);
            self.ctx.recorder().warning(&self.cron, "UnparseableSchedule", note);
            return Ok(None);
        };
        if schedule.next(self.now).is_none() {
            let why = "time difference between two schedules is less than 1 second";
            let note = format!("invalid schedule: {} : {why}", spec.schedule);
            self.ctx.recorder().warning(&self.cron, "InvalidSchedule", note);
            return Ok(None);
        }
        let missed = self.missed(&schedule, spec.starting_deadline_seconds);
        if missed.many {
            let note = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.ctx.recorder().warning(&self.cron, "TooManyMissedTimes", note);
        }
        if let Some(time) = missed.latest {
            Box::pin(self.start(&spec, &schedule, time)).await?;
        }
        Ok(self.until_next(&schedule))
    }

    fn until_next(&self, schedule: &Schedule) -> Option<Duration> {
        let next = next_start(schedule, self.earliest(), self.now)?;
        Some(Duration::try_from(next.duration_since(self.now)).unwrap_or_default() + DELTA)
    }

    /// When a job was last started, or else when the cron job was created.
    fn earliest(&self) -> Timestamp {
        let created = self.cron.metadata.creation_timestamp.as_ref();
        let last = self.status.last_schedule_time.as_ref().or(created);
        last.map_or(self.now, |time| time.0)
    }

    /// The times that have passed since the last start, or since the cron job exists.
    fn missed(&self, schedule: &Schedule, deadline: Option<i64>) -> Missed {
        let earliest = self.earliest();
        let limit = deadline.and_then(|seconds| self.now.checked_sub(SignedDuration::from_secs(seconds)).ok());
        missed(schedule, limit.map_or(earliest, |limit| limit.max(earliest)), self.now)
    }

    async fn start(&mut self, spec: &CronJobSpec, schedule: &Schedule, time: Timestamp) -> Result<(), ReconcileError> {
        let (ctx, recorder) = (self.ctx, self.ctx.recorder());
        let late = spec.starting_deadline_seconds.is_some_and(|seconds| {
            time.checked_add(SignedDuration::from_secs(seconds)).is_ok_and(|deadline| deadline < self.now)
        });
        if late {
            let note =
                format!("Missed scheduled time to start a job: {}", time.strftime("%a, %d %b %Y %H:%M:%S +0000"));
            recorder.warning(&self.cron, "MissSchedule", note);
            return Ok(());
        }
        let name = job_name(&self.cron, time);
        let started = self.status.active.iter().flatten().any(|active| active.name.as_deref() == Some(&*name));
        if started || self.status.last_schedule_time.as_ref().is_some_and(|last| last.0 == time) {
            return Ok(());
        }
        let active: Vec<ObjectReference> = self.status.active.clone().unwrap_or_default();
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => {
                let note = "Not starting job because prior execution is running and concurrency policy is Forbid";
                recorder.normal(&self.cron, "JobAlreadyActive", note);
                return Ok(());
            }
            Some("Replace") => {
                for running in active {
                    let key = ObjectKey::of(&self.cron).sibling(running.name.unwrap_or_default());
                    if let Some(job) = ctx.live().get::<Job>(&key).await? {
                        self.delete(&job).await?;
                    }
                }
            }
            _ => {}
        }
        let job = match ctx.client().create(&self.describe(spec, schedule, time, name)).await {
            Ok(job) => {
                let note = format!("Created job {}", job.metadata.name.as_deref().unwrap_or_default());
                recorder.normal(&self.cron, "SuccessfulCreate", note);
                job
            }
            Err(error) if is_terminating(&error) => return Ok(()),
            Err(error) if error.is_already_exists() => {
                let key = ObjectKey::of(&self.cron).sibling(job_name(&self.cron, time));
                let found = ctx.live().get::<Job>(&key).await?;
                match found.filter(|job| owner::is_controlled_by(job, &self.cron)) {
                    Some(job) if !self.is_active(job.metadata.uid.as_deref()) => job,
                    // Another controller's, which looks after it.
                    _ => return Ok(()),
                }
            }
            Err(error) => {
                let note = format!("Error creating job: {}", pods::message(&error));
                recorder.warning(&self.cron, "FailedCreate", note);
                return Err(error.into());
            }
        };
        let mut reference = job.object_ref(&());
        reference.resource_version.clone_from(&job.metadata.resource_version);
        self.status.active.get_or_insert_default().push(reference);
        self.status.last_schedule_time = Some(Time(time));
        Ok(())
    }

    fn describe(&self, spec: &CronJobSpec, schedule: &Schedule, time: Timestamp, name: String) -> Job {
        let template = spec.job_template.metadata.clone().unwrap_or_default();
        let mut annotations = template.annotations.unwrap_or_default();
        let at = time.to_zoned(schedule.zone().clone());
        let at = if at.offset().is_zero() { time.to_string() } else { at.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string() };
        annotations.insert(SCHEDULED.to_owned(), at);
        Job {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: self.cron.metadata.namespace.clone(),
                labels: template.labels,
                annotations: Some(annotations),
                owner_references: Some(vec![controller_reference(&self.cron)]),
                ..ObjectMeta::default()
            },
            spec: spec.job_template.spec.clone(),
            status: None,
        }
    }
}

/// The name of the job for a time: the same however often it is tried.
fn job_name(cron: &CronJob, time: Timestamp) -> String {
    format!("{}-{}", cron.metadata.name.as_deref().unwrap_or_default(), time.as_second() / 60)
}

/// The last time of a schedule in a span, and whether there were many.
fn missed(schedule: &Schedule, earliest: Timestamp, now: Timestamp) -> Missed {
    let none = Missed { latest: None, many: false };
    let Some(first) = schedule.next(earliest).filter(|first| *first <= now) else { return none };
    let Some(second) = schedule.next(first).filter(|second| *second <= now) else {
        return Missed { latest: Some(first), many: false };
    };
    // Not one by one: an old schedule may have had millions of times.
    let step = second.duration_since(first).as_secs().max(1);
    let count = now.duration_since(first).as_secs() / step + 1;
    let near = SignedDuration::from_secs((count - 2).max(0) * step);
    let mut latest = first;
    let mut next = first.checked_add(near).ok().and_then(|near| schedule.next(near));
    while let Some(time) = next.filter(|time| *time <= now) {
        latest = time;
        next = schedule.next(time);
    }
    Missed { latest: Some(latest), many: count > MANY }
}

/// The next time of a schedule. Times that are a fixed span apart count from the first one on, not from now.
fn next_start(schedule: &Schedule, earliest: Timestamp, now: Timestamp) -> Option<Timestamp> {
    schedule.next(missed(schedule, earliest, now).latest.unwrap_or(earliest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use k8s_openapi::jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn only_the_last_missed_time_counts() {
        let schedule = Schedule::parse("*/10 * * * *", TimeZone::UTC).unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2026-01-01T12:34:00Z");
        for (earliest, latest, many) in [
            ("2026-01-01T12:31:00Z", None, false),
            ("2026-01-01T12:29:00Z", Some("2026-01-01T12:30:00Z"), false),
            ("2026-01-01T10:29:00Z", Some("2026-01-01T12:30:00Z"), false),
            ("2025-01-01T10:29:00Z", Some("2026-01-01T12:30:00Z"), true),
        ] {
            assert_eq!(missed(&schedule, at(earliest), now), Missed { latest: latest.map(at), many }, "{earliest}");
        }
    }

    #[test]
    fn the_next_start_of_a_span_counts_from_the_last() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (earliest, now) = (at("2026-01-01T12:00:10Z"), at("2026-01-01T14:30:00Z"));
        for (text, expected) in [("@every 1h", "2026-01-01T15:00:10Z"), ("0 * * * *", "2026-01-01T15:00:00Z")] {
            let schedule = Schedule::parse(text, TimeZone::UTC).unwrap();
            assert_eq!(next_start(&schedule, earliest, now), Some(at(expected)), "{text}");
        }
    }
}
