// SPDX-License-Identifier: Apache-2.0

//! Runs the command of each At once, in a Pod, when its time has come.
//!
//! ```text
//! PENDING ── the time comes ──► a Pod is created ──► RUNNING ── the Pod ends ──► DONE
//!                               with a finalizer       └─ the finalizer is removed
//! ```
//!
//! What always holds: an At has at most one Pod, ever. Its name follows from that of the At, so a second one cannot be
//! created beside it. A Pod is created with a finalizer that stays until the status says `RUNNING`, so a Pod that is
//! deleted before the status is written, for example because the operator was killed in between, is still seen by the
//! next reconcile. Once the status says `RUNNING`, no Pod is created. (Kubernetes' Jobs count their Pods in the same way.)

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use windlass::conditions::ConditionStatus;
use windlass::controller::{CompleteController, Reconcile};
use windlass::{Context, Controller, ObjectKey, Outcome, ReconcileError, finalizer, owner};

use at_api::v1alpha1::{At, Phase};

/// The controller, as the manager runs it. A change of a Pod wakes the At that owns it.
pub fn controller() -> CompleteController {
    Controller::<At>::new("at").owns::<Pod>().complete(Reconciler)
}

/// The finalizer of a Pod whose start is not in the status yet.
const START_TRACKING: &str = "cnat.programming-kubernetes.info/start-tracking";

struct Reconciler;

impl Reconcile<At> for Reconciler {
    async fn reconcile(&self, at: Arc<At>, ctx: Context) -> windlass::Result {
        let key = pod_key(&ObjectKey::of(&at));
        let pod = ctx.get::<Pod>(&key).await?;
        // Its Pod goes with it, because of the owner reference: there is nothing to clean up, hence no finalizer.
        if at.metadata.deletion_timestamp.is_some() || phase(&at) == Phase::Done {
            return release(pod, &ctx).await;
        }
        let pod = match pod {
            Some(pod) => Some(pod),
            // The cache of Pods may be behind that of Ats. What follows from a missing Pod cannot be taken back, so the
            // server is asked.
            None => ctx.live().get::<Pod>(&key).await?.map(Arc::new),
        };
        match decide(&at, pod.as_deref(), ctx.now()) {
            Step::Report(report) => {
                let outcome = report.write(&at, &ctx).await?;
                // Only now: as long as the status has not been written, the Pod is the only trace of the start.
                release(pod, &ctx).await?;
                Ok(outcome)
            }
            Step::Start => {
                // For the same reason as above: the Pod of an At that has started may have been deleted.
                let latest = ctx.live().get::<At>(&ObjectKey::of(&at)).await?;
                if latest.is_none_or(|latest| latest.metadata.resource_version != at.metadata.resource_version) {
                    return Ok(Outcome::Done); // the change is on its way to the cache, and is reconciled then
                }
                // Create, not apply: if there is a Pod after all, this fails and the next reconcile sees it.
                let pod = ctx.client().create(&new_pod(&at)?).await?;
                let started = pod.metadata.creation_timestamp.clone();
                let outcome = Report { started, ..running() }.write(&at, &ctx).await?;
                release(Some(Arc::new(pod)), &ctx).await?;
                Ok(outcome)
            }
            Step::Blocked => {
                let message = format!("Pod {key} already exists and does not belong to this At");
                let blocked = Report::new(Phase::Pending, ConditionStatus::False, "PodExists", message.clone());
                blocked.write(&at, &ctx).await?;
                // It may be of an At of the same name that was deleted.
                release(pod, &ctx).await?;
                // An error is retried, with growing delays: the Pod may go.
                Err(ReconcileError::new(message))
            }
        }
    }

    /// The At was deleted, perhaps before the start of its Pod was in the status.
    async fn gone(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
        let pod = ctx.get::<Pod>(&pod_key(&key)).await?;
        // The cache of Ats may be behind that of Pods.
        match ctx.live().get::<At>(&key).await? {
            None => release(pod, &ctx).await,
            Some(_) => Ok(Outcome::Done),
        }
    }
}

/// Lets the Pod go, if there is one and it is still tracked.
async fn release(pod: Option<Arc<Pod>>, ctx: &Context) -> windlass::Result {
    if let Some(pod) = pod {
        finalizer::remove(ctx, pod, START_TRACKING).await?;
    }
    Ok(Outcome::Done)
}

/// What to do next.
#[derive(Debug, PartialEq)]
enum Step {
    /// Nothing but to say so.
    Report(Report),
    /// The time has come: create the Pod.
    Start,
    /// The Pod's name is taken.
    Blocked,
}

/// Decides without I/O and without a clock of its own, so that a table of cases can test it.
fn decide(at: &At, pod: Option<&Pod>, now: Timestamp) -> Step {
    use ConditionStatus::{False, True, Unknown};
    let started = phase(at) == Phase::Running;
    let report =
        |phase, succeeded, reason, message: String| Step::Report(Report::new(phase, succeeded, reason, message));
    match pod {
        Some(pod) if owner::is_controlled_by(pod, at) => match pod.status.as_ref().and_then(|it| it.phase.as_deref()) {
            Some("Succeeded") => report(Phase::Done, True, "Succeeded", "the command has succeeded".into()),
            Some("Failed") => report(Phase::Done, False, "CommandFailed", failure(pod)),
            _ => Step::Report(Report { started: pod.metadata.creation_timestamp.clone(), ..running() }),
        },
        Some(_) if !started => Step::Blocked,
        // The command may have done half of its work: whether to run it again is for people to say.
        _ if started => report(Phase::Done, False, "PodDeleted", "the Pod was deleted before the command ended".into()),
        _ => match at.spec.schedule.parse::<Timestamp>() {
            Err(_) => {
                let message = format!("spec.schedule: {:?} is no time such as 2019-07-03T02:00:00Z", at.spec.schedule);
                report(Phase::Pending, False, "InvalidSchedule", message)
            }
            Ok(schedule) if now < schedule => {
                let wait = now.duration_until(schedule).unsigned_abs();
                let waiting = Report::new(Phase::Pending, Unknown, "Scheduled", format!("waits until {schedule}"));
                Step::Report(Report { wake: Some(wait), ..waiting })
            }
            Ok(schedule) if is_missed(at, schedule, now) => {
                report(Phase::Done, False, "MissedSchedule", format!("{schedule} has passed, and so has the deadline"))
            }
            Ok(_) => Step::Start,
        },
    }
}

fn is_missed(at: &At, schedule: Timestamp, now: Timestamp) -> bool {
    at.spec.starting_deadline_seconds.is_some_and(|most| schedule.duration_until(now) > SignedDuration::from_secs(most))
}

fn phase(at: &At) -> Phase {
    at.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

/// What the status is to say.
#[derive(Debug, PartialEq)]
struct Report {
    phase: Phase,
    succeeded: ConditionStatus,
    reason: &'static str,
    message: String,
    started: Option<Time>,
    /// When to look again although nothing changes.
    wake: Option<Duration>,
}

fn running() -> Report {
    Report::new(Phase::Running, ConditionStatus::Unknown, "Running", "the command runs".into())
}

impl Report {
    fn new(phase: Phase, succeeded: ConditionStatus, reason: &'static str, message: String) -> Self {
        Self { phase, succeeded, reason, message, started: None, wake: None }
    }

    /// Writes the status if it says something else, and an event with it.
    async fn write(self, at: &Arc<At>, ctx: &Context) -> windlass::Result {
        let mut draft = ctx.draft(at);
        let status = draft.status.get_or_insert_default();
        status.phase = self.phase;
        if self.started.is_some() {
            status.start_time = self.started;
        }
        draft.condition("Succeeded", self.succeeded, self.reason, &self.message);
        if draft.commit(ctx).await?.status {
            match self.succeeded {
                ConditionStatus::False => ctx.recorder().warning(at, self.reason, &self.message),
                _ => ctx.recorder().normal(at, self.reason, &self.message),
            }
        }
        Ok(self.wake.map_or(Outcome::Done, Outcome::RequeueAfter))
    }
}

/// The key of the Pod of an At.
fn pod_key(at: &ObjectKey) -> ObjectKey {
    at.sibling(format!("{}-pod", at.name()))
}

/// The Pod that runs the command. It has the annotations of the At, which is how admission webhooks and simulated nodes
/// are told things about it.
fn new_pod(at: &At) -> Result<Pod, owner::OwnerError> {
    let annotations = at.metadata.annotations.iter().flatten().filter(|(key, _)| !key.starts_with("kubectl."));
    let mut pod = Pod {
        metadata: ObjectMeta {
            name: Some(pod_key(&ObjectKey::of(at)).name().to_owned()),
            namespace: at.metadata.namespace.clone(),
            finalizers: Some(vec![START_TRACKING.into()]),
            annotations: Some(annotations.map(|(key, value)| (key.clone(), value.clone())).collect()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            // The command runs once, also if it fails.
            restart_policy: Some("Never".into()),
            containers: vec![Container {
                name: "command".into(),
                image: Some("busybox".into()),
                command: Some(vec!["/bin/sh".into(), "-c".into(), at.spec.command.clone()]),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        ..Pod::default()
    };
    owner::set_controller(&mut pod, at)?;
    Ok(pod)
}

/// Why the command failed: its exit code, or what the node says about the Pod.
fn failure(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
    let ended = containers.filter_map(|container| container.state.as_ref()?.terminated.as_ref()).next();
    match (ended, status.and_then(|status| status.message.as_ref())) {
        (Some(ended), _) => format!("the command has failed with exit code {}", ended.exit_code),
        (None, Some(message)) => message.clone(),
        (None, None) => "the Pod has failed".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use at_api::v1alpha1::{AtSpec, AtStatus};

    const SCHEDULE: &str = "2019-07-03T02:00:00Z";

    fn at(phase: Phase, spec: AtSpec) -> At {
        let mut at = At::new("example", spec);
        at.metadata.uid = Some("1234".into());
        at.metadata.namespace = Some("default".into());
        at.status = Some(AtStatus { phase, ..AtStatus::default() });
        at
    }

    fn spec(schedule: &str, deadline: Option<i64>) -> AtSpec {
        AtSpec { schedule: schedule.into(), command: "date".into(), starting_deadline_seconds: deadline }
    }

    /// What is decided at a time, as `phase/reason` or the name of the step.
    fn decided(at: &At, pod: Option<&Pod>, now: &str) -> String {
        match decide(at, pod, now.parse().expect("a time")) {
            Step::Report(report) => format!("{:?}/{}", report.phase, report.reason),
            step => format!("{step:?}"),
        }
    }

    #[test]
    fn the_time_decides_while_there_is_no_pod() {
        for (schedule, deadline, now, expected) in [
            (SCHEDULE, None, "2019-07-03T01:59:59Z", "Pending/Scheduled"),
            (SCHEDULE, None, "2019-07-03T02:00:00Z", "Start"),
            (SCHEDULE, None, "2026-01-01T00:00:00Z", "Start"),
            (SCHEDULE, Some(60), "2019-07-03T02:01:00Z", "Start"),
            (SCHEDULE, Some(60), "2019-07-03T02:01:01Z", "Done/MissedSchedule"),
            ("2019-07-03T04:00:00+02:00", None, "2019-07-03T01:59:59Z", "Pending/Scheduled"),
            ("tomorrow", None, "2019-07-03T02:00:00Z", "Pending/InvalidSchedule"),
            ("", None, "2019-07-03T02:00:00Z", "Pending/InvalidSchedule"),
        ] {
            let at = at(Phase::Pending, spec(schedule, deadline));
            assert_eq!(decided(&at, None, now), expected, "{schedule} at {now}");
        }
    }

    #[test]
    fn the_pod_decides_once_there_is_one() {
        let mut ours = new_pod(&at(Phase::Pending, spec(SCHEDULE, None))).expect("a pod");
        let mut foreign = ours.clone();
        foreign.metadata.owner_references = None;
        for (state, phase, expected) in [
            ("Pending", Phase::Pending, "Running/Running"),
            ("Running", Phase::Running, "Running/Running"),
            ("Succeeded", Phase::Running, "Done/Succeeded"),
            ("Failed", Phase::Pending, "Done/CommandFailed"),
        ] {
            ours.status.get_or_insert_default().phase = Some(state.into());
            assert_eq!(decided(&at(phase, spec(SCHEDULE, None)), Some(&ours), SCHEDULE), expected, "{state}");
        }
        assert_eq!(decided(&at(Phase::Pending, spec(SCHEDULE, None)), Some(&foreign), SCHEDULE), "Blocked");
        assert_eq!(decided(&at(Phase::Running, spec(SCHEDULE, None)), Some(&foreign), SCHEDULE), "Done/PodDeleted");
        assert_eq!(decided(&at(Phase::Running, spec(SCHEDULE, None)), None, SCHEDULE), "Done/PodDeleted");
    }
}
