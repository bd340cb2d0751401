//! What a simulated container does, by its pod's annotations.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Probe};

use crate::runtime::{ContainerRef, Role};

const DOMAIN: &str = "simulation.windlass.dev";
/// How long containers run that end by themselves.
const RUN_TIME: Duration = Duration::from_secs(1);

/// See the [module documentation](self).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Plan {
    pub(super) pull: Duration,
    pub(super) pull_error: Option<String>,
    pub(super) start: Duration,
    pub(super) startup: Duration,
    pub(super) ready: Duration,
    pub(super) unready: Option<Duration>,
    pub(super) unhealthy: Option<Duration>,
    /// It ends by itself after this time.
    pub(super) run: Option<Duration>,
    pub(super) exit_code: i32,
    pub(super) stop: Duration,
    /// What it ends with when it is stopped.
    pub(super) stop_code: i32,
}

impl Plan {
    pub(super) fn of(pod: &Pod, container: &ContainerRef<'_>) -> Self {
        let annotation = |setting: &str| {
            let annotations = pod.metadata.annotations.as_ref()?;
            let own = annotations.get(&format!("{}.{DOMAIN}/{setting}", container.spec.name));
            own.or_else(|| annotations.get(&format!("{DOMAIN}/{setting}")).filter(|_| container.role == Role::Main))
        };
        // Most pods say nothing, and cost nothing.
        let is_annotated = pod
            .metadata
            .annotations
            .iter()
            .flatten()
            .any(|(key, _)| key.split('/').next().is_some_and(|domain| domain.ends_with(DOMAIN)));
        let annotation = |setting: &str| if is_annotated { annotation(setting) } else { None };
        let time = |setting: &str| annotation(setting).and_then(|text| duration(text));
        let codes = annotation("exit-code");
        let owned_by_job = pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Job");
        let ends = (owned_by_job && container.role == Role::Main) || codes.is_some();
        let by_role = match container.role {
            Role::Init => Some(Duration::ZERO),
            _ => ends.then_some(RUN_TIME),
        };
        let delay = |probe: &Option<Probe>| probe.as_ref().map_or(Duration::ZERO, first_success);
        Self {
            pull: time("pull-delay").unwrap_or_default(),
            pull_error: annotation("pull-error").cloned(),
            start: time("start-delay").unwrap_or_default(),
            startup: delay(&container.spec.startup_probe),
            ready: time("ready-delay").unwrap_or_else(|| delay(&container.spec.readiness_probe)),
            unready: time("unready-after"),
            unhealthy: time("unhealthy-after"),
            run: time("run-time").or(by_role),
            exit_code: codes.map_or(0, |codes| exit_code(codes, container.attempt)),
            stop: time("stop-delay").unwrap_or_default(),
            stop_code: 0,
        }
    }
}

/// How long a probe that always succeeds takes to count as a success.
fn first_success(probe: &Probe) -> Duration {
    let seconds =
        |value: Option<i32>, default: i32| Duration::from_secs(value.unwrap_or(default).max(0).unsigned_abs().into());
    let more = probe.success_threshold.unwrap_or(1).max(1).unsigned_abs() - 1;
    seconds(probe.initial_delay_seconds, 0) + seconds(probe.period_seconds, 10) * more
}

/// The code of one start: the last is for all further ones.
fn exit_code(codes: &str, attempt: i32) -> i32 {
    let codes: Vec<i32> = codes.split(',').map(|code| code.trim().parse().unwrap_or(1)).collect();
    let at = usize::try_from(attempt).unwrap_or(0).min(codes.len().saturating_sub(1));
    codes.get(at).copied().unwrap_or(0)
}

/// `500ms`, `1.5s`, `2m`, `1h`, or a number of seconds.
fn duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * scale).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let check =
            |text, expected: Option<u64>| assert_eq!(duration(text), expected.map(Duration::from_millis), "{text}");
        check("250ms", Some(250));
        check("1.5s", Some(1500));
        check("2m", Some(120_000));
        check("1h", Some(3_600_000));
        check("3", Some(3000));
        for bad in ["", "s", "1d", "-1s", "NaN"] {
            check(bad, None);
        }
    }

    #[test]
    fn each_start_has_its_exit_code() {
        let codes: Vec<i32> = (0..4).map(|attempt| exit_code("1, 2,0", attempt)).collect();
        assert_eq!(codes, [1, 2, 0, 0]);
    }
}
