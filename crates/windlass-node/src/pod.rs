//! The life of one pod on its node, as pure functions: what to do next, and what its status is.
//!
//! [`PodLife`] is the state machine, and [`status`](status::status) makes a pod's `status` of it. Both are pure: the time is
//! an argument, [`observe`](PodLife::observe) takes in what happened, and [`decide`](PodLife::decide) returns what to do.

pub(crate) mod admission;
pub(crate) mod backoff;
pub(crate) mod life;
pub(crate) mod patch;
pub(crate) mod status;

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of values read better without references")]
mod tests;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

pub(crate) use life::{Action, Notice, Observation, PodLife};

/// The time: for timers, and for people.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// What a paused clock stops.
    pub(crate) instant: Instant,
    /// What objects say.
    pub(crate) wall: Timestamp,
}

impl Now {
    pub(crate) fn read() -> Self {
        Self { instant: Instant::now(), wall: whole_second(Timestamp::now()) }
    }
}

/// The API has whole seconds in its times.
fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Whether a container that ended is started again. Mirrors `ContainerShouldRestart` in `pkg/api/v1/pod/util.go`.
pub(crate) fn restarts(spec: &PodSpec, container: &Container, code: i32) -> bool {
    let by_policy = |policy: &str| match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    };
    let Some(own) = container.restart_policy.as_deref() else {
        return by_policy(spec.restart_policy.as_deref().unwrap_or("Always"));
    };
    for rule in container.restart_policy_rules.iter().flatten() {
        let Some(codes) = rule.exit_codes.as_ref().filter(|_| rule.action == "Restart") else { continue };
        let listed = codes.values.iter().flatten().any(|value| *value == code);
        if listed == (codes.operator == "In") {
            return true;
        }
    }
    by_policy(own)
}

/// Whether a pod has run to its end, by its status.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// A pod as messages name it.
pub(crate) fn described(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}_{}({})", part(&meta.name), part(&meta.namespace), part(&meta.uid))
}
