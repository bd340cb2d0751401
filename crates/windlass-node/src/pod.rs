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

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

pub(crate) use life::{Action, Notice, Observation, PodLife};

use crate::runtime::Role;

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

/// The containers of a pod: the init containers first, the ephemeral containers last.
pub(crate) fn containers(spec: &PodSpec) -> impl Iterator<Item = (Role, Cow<'_, Container>)> {
    (0..count(spec)).filter_map(|index| container(spec, index))
}

/// How many containers a pod has. Only ephemeral containers are ever added, at the end.
pub(crate) fn count(spec: &PodSpec) -> usize {
    let (init, ephemeral) = (spec.init_containers.as_ref(), spec.ephemeral_containers.as_ref());
    init.map_or(0, Vec::len) + spec.containers.len() + ephemeral.map_or(0, Vec::len)
}

/// One of the containers of a pod.
pub(crate) fn container(spec: &PodSpec, index: usize) -> Option<(Role, Cow<'_, Container>)> {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    if let Some(container) = init.get(index) {
        return Some((init_role(container), Cow::Borrowed(container)));
    }
    let index = index - init.len();
    if let Some(container) = spec.containers.get(index) {
        return Some((Role::Main, Cow::Borrowed(container)));
    }
    let container = spec.ephemeral_containers.as_ref()?.get(index - spec.containers.len())?;
    Some((Role::Ephemeral, Cow::Owned(ephemeral(container))))
}

/// An ephemeral container as any other: it has the same fields, and names a container that it joins besides.
pub(crate) fn ephemeral(container: &EphemeralContainer) -> Container {
    let container = container.clone();
    Container {
        name: container.name,
        image: container.image,
        command: container.command,
        args: container.args,
        working_dir: container.working_dir,
        env: container.env,
        env_from: container.env_from,
        volume_mounts: container.volume_mounts,
        volume_devices: container.volume_devices,
        termination_message_path: container.termination_message_path,
        termination_message_policy: container.termination_message_policy,
        image_pull_policy: container.image_pull_policy,
        security_context: container.security_context,
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        // What it uses is what is left of its pod, it is never started again, and it has no ports or probes.
        resources: None,
        restart_policy: Some("Never".to_owned()),
        ..Container::default()
    }
}

fn init_role(container: &Container) -> Role {
    if container.restart_policy.as_deref() == Some("Always") { Role::Sidecar } else { Role::Init }
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
