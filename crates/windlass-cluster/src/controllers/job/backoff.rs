//! How long to wait before a failed pod is replaced.

use std::time::Duration;

use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::controllers::pods;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// The failures of a job since a pod last succeeded.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Record {
    failures: u32,
    last: Option<Timestamp>,
}

impl Record {
    /// The record after more pods have finished.
    pub(super) fn after(self, succeeded: &[&Pod], failed: &[&Pod]) -> Self {
        let times = |pods: &[&Pod]| pods.iter().map(|pod| finished_at(pod)).collect::<Vec<_>>();
        let (succeeded, failed) = (times(succeeded), times(failed));
        let Some(success) = succeeded.iter().max() else {
            let last = failed.iter().max().copied();
            return Self { failures: self.failures + failed.len() as u32, last: last.or(self.last) };
        };
        let later: Vec<&Timestamp> = failed.iter().filter(|time| *time > success).collect();
        Self { failures: later.len() as u32, last: later.into_iter().max().copied() }
    }

    /// How long to wait from `now` on.
    pub(super) fn remaining(self, now: Timestamp) -> Duration {
        self.last.map_or(Duration::ZERO, |last| remaining(self.failures, last, now))
    }
}

/// How long to wait after so many failures in a row.
pub(super) fn remaining(failures: u32, last: Timestamp, now: Timestamp) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let factor = 1u32.checked_shl(failures - 1).unwrap_or(u32::MAX);
    let delay = FIRST.saturating_mul(factor).min(LONGEST);
    let elapsed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
    delay.saturating_sub(elapsed)
}

/// When a pod finished, as far as can be told.
pub(super) fn finished_at(pod: &Pod) -> Timestamp {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let ended = |status: &ContainerStatus| {
        let terminated = status.state.as_ref()?.terminated.as_ref()?;
        terminated.finished_at.as_ref().map(|time| time.0)
    };
    let ends: Option<Vec<Timestamp>> = statuses.iter().map(ended).collect();
    let unready = pods::condition(pod, "Ready").filter(|condition| condition.status == "False");
    let unready = unready.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0);
    let deleted = pod.metadata.deletion_timestamp.as_ref().and_then(|time| {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        time.0.checked_sub(SignedDuration::from_secs(grace)).ok()
    });
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let ended = ends.and_then(|ends| ends.into_iter().max());
    ended.or(unready).or(deleted).or(created).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Whether containers that are restarted in place have been so too often.
pub(super) fn too_many_restarts(spec: &JobSpec, pods: &[std::sync::Arc<Pod>]) -> bool {
    let template = spec.template.spec.as_ref();
    if template.and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let running = pods.iter().filter(|pod| matches!(pods::phase(pod), "Running" | "Pending"));
    let statuses = running.filter_map(|pod| pod.status.as_ref()).flat_map(|status| {
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
    });
    let restarts: i32 = statuses.map(|status| status.restart_count).sum();
    restarts >= spec.backoff_limit.unwrap_or(6).max(1)
}
