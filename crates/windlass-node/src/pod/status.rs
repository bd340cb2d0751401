//! The `status` of a pod: phase, conditions and the statuses of its containers, in the kubelet's words.
//! Mirrors `pkg/kubelet/kubelet_pods.go` and `pkg/kubelet/status/generate.go`.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodCondition, PodIP, PodSpec, PodStatus, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::life::{ContainerLife, End, Ended, PodLife, Stage};
use super::{Now, restarts};
use crate::containers::{Role, containers};

/// What else a status says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The node's address.
    pub(crate) host_ip: Option<IpAddr>,
    /// The pod's address.
    pub(crate) pod_ip: Option<IpAddr>,
    /// What ids of containers begin with, such as `containerd`.
    pub(crate) runtime: &'a str,
}

/// The conditions that a node writes; the others are left as they are.
const OWN_CONDITIONS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// A pod that its node does not take.
pub(crate) fn rejected(pod: &Pod, reason: &str, message: &str) -> PodStatus {
    let old = pod.status.clone().unwrap_or_default();
    PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(format!("Pod was rejected: {message}")),
        observed_generation: pod.metadata.generation,
        ..old
    }
}

/// The status of a pod. What a node does not write is what it was.
pub(crate) fn status(pod: &Pod, spec: &PodSpec, life: &PodLife, place: Place<'_>, now: Now) -> PodStatus {
    let old = pod.status.clone().unwrap_or_default();
    let init = spec.init_containers.as_ref().map_or(0, Vec::len);
    let mut statuses: Vec<ContainerStatus> = containers(spec)
        .zip(&life.containers)
        .map(|((role, container), state)| container_status(&container, role, state, init > 0, place.runtime))
        .collect();
    let over = life.end.is_some() && !life.is_alive();
    if over && life.initialized {
        statuses.iter_mut().for_each(located);
    }
    let mut phase = phase(spec, &statuses, over, life.initialized);
    // A pod that is stopped comes to an end, whatever its containers did.
    if over && matches!(phase, "Pending" | "Running") {
        phase = "Failed";
    }
    if over && life.end == Some(End::Deadline) {
        phase = "Failed";
    }
    // What may still run has not ended.
    let previous = old.phase.as_deref().unwrap_or("Pending");
    if matches!(phase, "Succeeded" | "Failed") && life.is_alive() {
        phase = if previous == "Pending" { "Pending" } else { "Running" };
    }
    if matches!(previous, "Succeeded" | "Failed") {
        phase = if previous == "Succeeded" { "Succeeded" } else { "Failed" };
    }
    let (reason, message) = match life.end {
        Some(End::Deadline) if over => (
            Some("DeadlineExceeded".to_owned()),
            Some("Pod was active on the node longer than the specified deadline".to_owned()),
        ),
        _ if previous == phase => (old.reason.clone(), old.message.clone()),
        _ => (None, None),
    };
    let conditions = conditions(pod, spec, life, &statuses, phase, now);
    let mut main = statuses.split_off(init);
    let ephemeral = main.split_off(spec.containers.len().min(main.len()));
    let ip = place.pod_ip.map(|ip| ip.to_string());
    let host_ip = place.host_ip.map(|ip| ip.to_string());
    let has_ip = life.has_sandbox() || old.pod_ip.is_some();
    let ip = ip.filter(|_| has_ip);
    PodStatus {
        phase: Some(phase.to_owned()),
        reason,
        message,
        conditions: Some(conditions),
        host_ips: host_ip.clone().map(|ip| vec![HostIP { ip }]),
        host_ip,
        pod_ips: ip.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip: ip,
        start_time: Some(Time(life.start_time)),
        init_container_statuses: Some(statuses).filter(|statuses| !statuses.is_empty()),
        container_statuses: Some(main),
        ephemeral_container_statuses: Some(ephemeral).filter(|statuses| !statuses.is_empty()),
        observed_generation: pod.metadata.generation,
        ..old
    }
}

/// A container of a pod that is over and whose end was not seen.
fn located(status: &mut ContainerStatus) {
    let state = status.state.get_or_insert_default();
    if state.terminated.is_none() {
        *state = ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: 137,
                reason: Some("ContainerStatusUnknown".to_owned()),
                message: Some("The container could not be located when the pod was terminated".to_owned()),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        };
    }
}

fn container_status(
    container: &Container,
    role: Role,
    life: &ContainerLife,
    has_init: bool,
    runtime: &str,
) -> ContainerStatus {
    let id = |id: &str| Some(format!("{runtime}://{id}"));
    let waiting = |reason: &str, message: Option<String>| ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ContainerState::default()
    };
    let terminated = |ended: &Ended| ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: id(&ended.id),
            exit_code: ended.exit.code,
            reason: Some(ended.exit.reason().to_owned()),
            message: ended.exit.message.clone(),
            started_at: Some(Time(ended.since)),
            finished_at: Some(Time(ended.exit.at)),
            signal: None,
        }),
        ..ContainerState::default()
    };
    let last = life.last.as_deref();
    let (state, container_id, ready, started) = match &life.stage {
        // Until it runs again, a container that ended shows how.
        Stage::Waiting | Stage::Pulling | Stage::Pulled | Stage::Starting => {
            if let Some(ended) = last {
                (terminated(ended), id(&ended.id), false, false)
            } else {
                let initializes = has_init && role != Role::Ephemeral;
                let reason = if initializes { "PodInitializing" } else { "ContainerCreating" };
                (waiting(reason, None), None, false, false)
            }
        }
        Stage::Delayed(delay) => {
            let shown = waiting(delay.reason, Some(delay.message.clone()));
            (shown, last.and_then(|ended| id(&ended.id)), false, false)
        }
        Stage::Running(running) => {
            let state = ContainerStateRunning { started_at: Some(Time(running.since)) };
            let ready = running.ready && !matches!(role, Role::Init | Role::Ephemeral);
            let state = ContainerState { running: Some(state), ..ContainerState::default() };
            (state, id(&running.id), ready, running.started)
        }
        Stage::Ended(ended) => (terminated(ended), id(&ended.id), role == Role::Init && ended.exit.code == 0, false),
    };
    let shows_last = !matches!(&life.stage, Stage::Waiting | Stage::Pulling | Stage::Pulled | Stage::Starting);
    let exists = container_id.is_some();
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: life.image.clone(),
        container_id,
        ready,
        started: (role != Role::Ephemeral).then_some(started),
        restart_count: life.attempt,
        state: Some(state),
        last_state: Some(last.filter(|_| shows_last).map(terminated).unwrap_or_default()),
        resources: exists.then(|| container.resources.clone().unwrap_or_default()),
        allocated_resources: container.resources.as_ref().filter(|_| exists).and_then(|all| all.requests.clone()),
        volume_mounts: container.volume_mounts.as_ref().map(|mounts| mounts.iter().map(mount_status).collect()),
        ..ContainerStatus::default()
    }
}

fn mount_status(mount: &k8s_openapi::api::core::v1::VolumeMount) -> VolumeMountStatus {
    let read_only = mount.read_only.unwrap_or(false);
    VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: read_only.then_some(true),
        recursive_read_only: read_only.then(|| "Disabled".to_owned()),
        ..VolumeMountStatus::default()
    }
}

/// The phase, from the statuses of all containers. `over`: nothing is started any more.
fn phase(spec: &PodSpec, statuses: &[ContainerStatus], over: bool, initialized: bool) -> &'static str {
    let (mut pending, mut failed) = (false, false);
    let (mut running, mut waiting, mut stopped, mut restarting, mut succeeded) = (0, 0, 0, 0, 0);
    for ((role, container), status) in containers(spec).zip(statuses) {
        let state = status.state.as_ref();
        let is_running = state.is_some_and(|state| state.running.is_some());
        let ended = state.and_then(|state| state.terminated.as_ref());
        let before = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let code = ended.or(before).map(|ended| ended.exit_code);
        match role {
            Role::Init if is_running => pending = true,
            Role::Init => match code {
                Some(0) => {}
                Some(code) if restarts(spec, &container, code) => {}
                Some(_) => failed = true,
                None => pending = true,
            },
            Role::Sidecar => {
                if is_running {
                    running += 1;
                    pending |= status.started != Some(true) && !initialized;
                } else if code.is_none() {
                    pending |= !initialized;
                    waiting += 1;
                }
            }
            Role::Main if is_running => running += 1,
            Role::Main => match code {
                Some(code) => {
                    stopped += 1;
                    restarting += usize::from(restarts(spec, &container, code));
                    succeeded += usize::from(code == 0);
                }
                None => waiting += 1,
            },
            // What is added to a pod has no part in what becomes of it.
            Role::Ephemeral => {}
        }
    }
    if failed {
        return "Failed";
    }
    if pending || waiting > 0 {
        return "Pending";
    }
    if running > 0 || (restarting > 0 && !over) {
        return "Running";
    }
    match stopped {
        0 => "Pending",
        _ if stopped == succeeded => "Succeeded",
        _ => "Failed",
    }
}

fn conditions(
    pod: &Pod,
    spec: &PodSpec,
    life: &PodLife,
    statuses: &[ContainerStatus],
    phase: &str,
    now: Now,
) -> Vec<PodCondition> {
    let known = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let others = known.iter().filter(|condition| !OWN_CONDITIONS.contains(&&*condition.type_)).cloned();
    let mut conditions: Vec<PodCondition> = others.collect();
    let containers_ready = containers_ready(spec, statuses, phase);
    let ready = match &containers_ready {
        Verdict(true, ..) => gates(spec, &conditions),
        other => other.clone(),
    };
    let verdicts = [
        ("PodReadyToStartContainers", Verdict(life.has_sandbox(), None, None)),
        ("Initialized", initialized(spec, life, statuses, phase)),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", Verdict(true, None, None)),
    ];
    for (type_, Verdict(is_true, reason, message)) in verdicts {
        let status = if is_true { "True" } else { "False" };
        let before = known.iter().find(|condition| condition.type_ == type_);
        let same = before.filter(|before| before.status == status);
        conditions.push(PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            message,
            last_transition_time: same.map_or(Some(Time(now.wall)), |before| before.last_transition_time.clone()),
            last_probe_time: None,
            observed_generation: pod.metadata.generation,
        });
    }
    conditions
}

/// Whether a condition holds, with reason and message.
#[derive(Debug, Clone)]
struct Verdict(bool, Option<&'static str>, Option<String>);

/// As Go prints a list of names.
fn listed(what: &str, names: &[&str]) -> String {
    format!("{what}: [{}]", names.join(" "))
}

fn containers_ready(spec: &PodSpec, statuses: &[ContainerStatus], phase: &str) -> Verdict {
    match phase {
        "Succeeded" => return Verdict(false, Some("PodCompleted"), None),
        "Failed" => return Verdict(false, Some("PodFailed"), None),
        _ => {}
    }
    let unready: Vec<&str> = containers(spec)
        .zip(statuses)
        .filter(|((role, _), status)| !matches!(role, Role::Init | Role::Ephemeral) && !status.ready)
        .map(|(_, status)| &*status.name)
        .collect();
    if unready.is_empty() {
        return Verdict(true, None, None);
    }
    Verdict(false, Some("ContainersNotReady"), Some(listed("containers with unready status", &unready)))
}

/// Whether the conditions hold that a pod's readiness waits for besides its containers.
fn gates(spec: &PodSpec, others: &[PodCondition]) -> Verdict {
    let messages: Vec<String> = spec
        .readiness_gates
        .iter()
        .flatten()
        .filter_map(|gate| {
            let type_ = &gate.condition_type;
            match others.iter().find(|condition| condition.type_ == *type_) {
                None => Some(format!("corresponding condition of pod readiness gate \"{type_}\" does not exist.")),
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate \"{type_}\" is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if messages.is_empty() {
        return Verdict(true, None, None);
    }
    Verdict(false, Some("ReadinessGatesNotReady"), Some(messages.join(", ")))
}

fn initialized(spec: &PodSpec, life: &PodLife, statuses: &[ContainerStatus], phase: &str) -> Verdict {
    if phase == "Succeeded" {
        return Verdict(true, Some("PodCompleted"), None);
    }
    if life.initialized {
        return Verdict(true, None, None);
    }
    let incomplete: Vec<&str> = containers(spec)
        .zip(statuses)
        .filter(|((role, _), status)| match role {
            Role::Init => !status.ready,
            Role::Sidecar => status.started != Some(true),
            Role::Main | Role::Ephemeral => false,
        })
        .map(|(_, status)| &*status.name)
        .collect();
    if incomplete.is_empty() {
        return Verdict(true, None, None);
    }
    Verdict(false, Some("ContainersNotInitialized"), Some(listed("containers with incomplete status", &incomplete)))
}
