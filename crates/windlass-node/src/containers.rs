//! The containers of a pod in one order, and what each of them is in it.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, PodSpec};

/// What a container is among those of its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the others start.
    Init,
    /// An init container with `restartPolicy: Always`: starts before the others, and runs beside them.
    Sidecar,
    /// One of `spec.containers`.
    Main,
    /// One of `spec.ephemeralContainers`: added to a pod that runs, and started once.
    Ephemeral,
}

/// The containers of a pod, the ephemeral ones as any others: the init containers first, the ephemeral containers last.
pub fn containers(spec: &PodSpec) -> impl Iterator<Item = (Role, Cow<'_, Container>)> {
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
fn ephemeral(container: &EphemeralContainer) -> Container {
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
