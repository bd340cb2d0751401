//! The state machine of a pod's containers: [`PodLife`].
//!
//! Init containers run one after the other, each to its end; a sidecar only has to have started. Then all others start.
//! What ends is started again as restart policies say, after a delay that grows. A pod that is deleted, has
//! exceeded its deadline, or has nothing left to run is stopped: its containers first, then its sidecars from last to
//! first. Mirrors `computePodActions` and the termination of pods in `pkg/kubelet/kuberuntime`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::backoff::{Backoff, printed};
use super::{Now, described, restarts};
use crate::containers::{container, containers, count};
use crate::runtime::{ContainerEvent, Exit, Hook, Image, Probe, Recovered, Role, RuntimeError, Started};

/// How long a container shows why its image could not be pulled, before it shows that it waits.
const PULL_ERROR_SHOWN: Duration = Duration::from_secs(2);

/// What to do for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Create what its containers share.
    Create,
    /// Make the image of a container available.
    Pull(usize),
    /// Start a container.
    Start(usize),
    /// Stop a container.
    Stop(usize, Duration),
    /// Remove what its containers shared.
    Remove,
}

/// Something that happened to a pod.
#[derive(Debug)]
pub(crate) enum Observation {
    /// What the containers share was created, or not.
    Created(Result<(), RuntimeError>),
    /// An image is available, or not.
    Pulled(usize, Result<Image, RuntimeError>),
    /// A container has started, or not.
    Started(usize, Result<Started, RuntimeError>),
    /// A container cannot be started because of what its environment refers to.
    Misconfigured(usize, String),
    /// The runtime said so, about a start of a container.
    Happened(usize, i32, ContainerEvent),
    /// An object that the pod refers to has changed.
    Sources,
    /// The files of the pod are those of its objects again, or not.
    Updated(Result<(), RuntimeError>),
    /// Nothing is left of the pod.
    Removed,
}

/// An event to report about a pod, or about one of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) container: Option<usize>,
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// What the containers of a pod share.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sandbox {
    Missing,
    Creating,
    Ready,
    Failed { until: Instant },
    Removing,
    Removed,
}

/// Why a pod is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It was deleted.
    Deleted,
    /// It was active for longer than allowed.
    Deadline,
    /// Nothing of it is to run any more.
    Finished,
}

/// One container.
#[derive(Debug, Clone)]
pub(crate) struct ContainerLife {
    pub(crate) stage: Stage,
    /// How often it was started before.
    pub(crate) attempt: i32,
    /// Whether the next start is one more than those.
    again: bool,
    /// How the one before this one ended.
    pub(crate) last: Option<Box<Ended>>,
    pub(crate) image: String,
    /// What the runtime said about a start that it has not answered yet.
    early: Vec<ContainerEvent>,
    crashes: Backoff,
    pulls: Backoff,
}

/// Where a container is.
#[derive(Debug, Clone)]
pub(crate) enum Stage {
    /// Its turn has not come.
    Waiting,
    /// Its image is being pulled.
    Pulling,
    /// Its image is there.
    Pulled,
    /// It is being started.
    Starting,
    /// It is tried again later.
    Delayed(Box<Delay>),
    /// It runs.
    Running(Box<Running>),
    /// It ended.
    Ended(Box<Ended>),
}

/// Why a container is tried again later.
#[derive(Debug, Clone)]
pub(crate) struct Delay {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    until: Instant,
    /// What it shows later, until it is tried again.
    then: Option<(Instant, &'static str, String)>,
}

/// A container that runs.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) id: String,
    pub(crate) since: Timestamp,
    /// Whether its startup probe has succeeded, if it has one.
    pub(crate) started: bool,
    /// Whether its readiness probe succeeds, if it has one.
    pub(crate) ready: bool,
    /// A probe says that it must be started again.
    condemned: bool,
    stopping: bool,
}

/// A container that ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) id: String,
    pub(crate) since: Timestamp,
    pub(crate) exit: Exit,
    at: Instant,
}

impl ContainerLife {
    fn new() -> Self {
        Self {
            stage: Stage::Waiting,
            attempt: 0,
            again: false,
            last: None,
            image: String::new(),
            early: Vec::new(),
            crashes: Backoff::default(),
            pulls: Backoff::default(),
        }
    }

    /// Whether it runs, or may.
    fn is_alive(&self) -> bool {
        matches!(self.stage, Stage::Running(_) | Stage::Starting)
    }

    /// Which start an operation is about.
    pub(crate) fn next_attempt(&self) -> i32 {
        self.attempt + i32::from(self.again)
    }
}

/// See the [module documentation](self).
#[derive(Debug, Clone)]
pub(crate) struct PodLife {
    pub(crate) containers: Vec<ContainerLife>,
    /// When the node took the pod.
    pub(crate) start_time: Timestamp,
    pub(crate) end: Option<End>,
    sandbox: Sandbox,
    sandbox_failures: Backoff,
    /// Whether the init containers are done.
    pub(crate) initialized: bool,
    /// How many containers have had their turn: those behind a sidecar that does not run wait for it.
    reached: usize,
    /// Where the ephemeral containers begin, which wait for nothing.
    ephemeral_from: usize,
    deadline: Option<Instant>,
    grace: Duration,
}

impl PodLife {
    /// A pod that the node takes now, or has taken before, by its status.
    pub(crate) fn new(pod: &Pod, spec: &PodSpec, now: Now) -> Self {
        let known = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        let start_time = known.unwrap_or(now.wall);
        let spent = now.wall.duration_since(start_time).unsigned_abs();
        let allowed = spec.active_deadline_seconds.map(|seconds| Duration::from_secs(seconds.max(0).unsigned_abs()));
        Self {
            containers: containers(spec).map(|_| ContainerLife::new()).collect(),
            start_time,
            end: None,
            sandbox: Sandbox::Missing,
            sandbox_failures: Backoff::default(),
            initialized: false,
            reached: 0,
            ephemeral_from: ephemeral_from(spec),
            deadline: allowed.map(|allowed| now.instant + allowed.saturating_sub(spent)),
            grace: Duration::ZERO,
        }
    }

    /// Takes note of containers that were added.
    pub(crate) fn extend(&mut self, spec: &PodSpec) {
        while self.containers.len() < count(spec) {
            self.containers.push(ContainerLife::new());
        }
    }

    /// Takes over containers that exist already.
    pub(crate) fn recover(&mut self, spec: &PodSpec, found: Vec<Recovered>, now: Now) {
        // Where nothing runs, what the containers shared may be gone: it is created again, which costs nothing if it is not.
        if found.iter().any(|recovered| recovered.exit.is_none()) {
            self.sandbox = Sandbox::Ready;
        }
        for recovered in found {
            let Some(index) = containers(spec).position(|(_, container)| container.name == recovered.name) else {
                continue;
            };
            let Some((role, _)) = container(spec, index) else { continue };
            self.initialized |= role == Role::Main;
            let life = &mut self.containers[index];
            life.attempt = recovered.attempt;
            life.image = recovered.image;
            life.last = recovered
                .last
                .map(|(started, exit)| Box::new(Ended { id: started.id, since: started.at, exit, at: now.instant }));
            let Started { id, at: since } = recovered.started;
            life.stage = match recovered.exit {
                Some(exit) => Stage::Ended(Box::new(Ended { id, since, exit, at: now.instant })),
                None => Stage::Running(Box::new(Running {
                    id,
                    since,
                    started: recovered.startup_done,
                    ready: recovered.ready,
                    condemned: false,
                    stopping: false,
                })),
            };
        }
    }

    /// Whether there is a sandbox, as the condition `PodReadyToStartContainers` says.
    pub(crate) fn has_sandbox(&self) -> bool {
        self.sandbox == Sandbox::Ready
    }

    /// Whether nothing of the pod is left on the node.
    pub(crate) fn is_removed(&self) -> bool {
        self.sandbox == Sandbox::Removed
    }

    /// Whether containers run, or may.
    pub(crate) fn is_alive(&self) -> bool {
        self.containers.iter().any(ContainerLife::is_alive)
    }

    /// Whether the sandbox is to be created next: volumes are needed then.
    pub(crate) fn needs_volumes(&self, now: Now) -> bool {
        self.end.is_none()
            && match self.sandbox {
                Sandbox::Missing => true,
                Sandbox::Failed { until } => until <= now.instant,
                _ => false,
            }
    }

    /// The pod is to be stopped, within this time. A shorter time later counts.
    pub(crate) fn delete(&mut self, grace: Duration) {
        self.grace = if self.end == Some(End::Deleted) { self.grace.min(grace) } else { grace };
        self.end = Some(End::Deleted);
    }

    /// Another component said that the pod has ended: nothing of it is to run any more.
    pub(crate) fn finish(&mut self, spec: &PodSpec) {
        if self.end.is_none() {
            self.end = Some(End::Finished);
            self.grace = seconds(spec.termination_grace_period_seconds);
        }
    }

    /// What to do now. Carrying it out and observing what came of it leads to the next call.
    pub(crate) fn decide(&mut self, pod: &Pod, spec: &PodSpec, now: Now, notices: &mut Vec<Notice>) -> Vec<Action> {
        if self.end.is_none() && self.deadline.is_some_and(|deadline| deadline <= now.instant) {
            self.end = Some(End::Deadline);
            self.grace = seconds(spec.termination_grace_period_seconds);
            let message = "Pod was active on the node longer than the specified deadline";
            notices.push(Notice::normal(None, "DeadlineExceeded", message.to_owned()));
        }
        if self.end.is_some() {
            return self.stop_all(spec, notices);
        }
        match self.sandbox {
            Sandbox::Missing => {}
            Sandbox::Failed { until } if until <= now.instant => {}
            Sandbox::Ready => return self.run(pod, spec, now, notices),
            _ => return Vec::new(),
        }
        self.sandbox = Sandbox::Creating;
        vec![Action::Create]
    }

    /// Starts what is to run.
    fn run(&mut self, pod: &Pod, spec: &PodSpec, now: Now, notices: &mut Vec<Notice>) -> Vec<Action> {
        let mut actions = Vec::new();
        let init = spec.init_containers.as_ref().map_or(0, Vec::len);
        for index in self.ephemeral_from..self.containers.len() {
            self.advance(index, pod, spec, now, &mut actions, notices);
        }
        for index in 0..self.ephemeral_from {
            let Some((role, container)) = container(spec, index) else { continue };
            if role == Role::Init && self.initialized {
                continue;
            }
            if index == init {
                self.initialized = true;
            }
            self.reached = index + 1;
            self.advance(index, pod, spec, now, &mut actions, notices);
            let passed = match (&self.containers[index].stage, role) {
                (Stage::Ended(ended), Role::Init) => {
                    if ended.exit.code != 0 && !restarts(spec, &container, ended.exit.code) {
                        self.end = Some(End::Finished);
                        actions.extend(self.stop_all(spec, notices));
                        return actions;
                    }
                    ended.exit.code == 0
                }
                (Stage::Running(running), Role::Sidecar) => running.started,
                (_, Role::Main) => true,
                (_, Role::Init | Role::Sidecar | Role::Ephemeral) => self.initialized,
            };
            if !passed {
                return actions;
            }
        }
        let done = |life: &ContainerLife, index: usize| match (&life.stage, container(spec, index)) {
            (Stage::Ended(ended), Some((_, container))) => !restarts(spec, &container, ended.exit.code),
            _ => false,
        };
        if self.containers[..self.ephemeral_from].iter().enumerate().skip(init).all(|(index, life)| done(life, index)) {
            self.end = Some(End::Finished);
            self.grace = seconds(spec.termination_grace_period_seconds);
            actions.extend(self.stop_all(spec, notices));
        }
        actions
    }

    /// Brings one container a step further.
    fn advance(
        &mut self,
        index: usize,
        pod: &Pod,
        spec: &PodSpec,
        now: Now,
        actions: &mut Vec<Action>,
        notices: &mut Vec<Notice>,
    ) {
        let Some((role, container)) = container(spec, index) else { return };
        let life = &mut self.containers[index];
        match &mut life.stage {
            Stage::Waiting => {
                life.stage = Stage::Pulling;
                actions.push(Action::Pull(index));
            }
            Stage::Pulled => {
                life.stage = Stage::Starting;
                actions.push(Action::Start(index));
            }
            Stage::Delayed(delay) => {
                if delay.until <= now.instant {
                    life.stage = Stage::Pulling;
                    actions.push(Action::Pull(index));
                } else if let Some((_, reason, message)) = delay.then.take_if(|(at, ..)| *at <= now.instant) {
                    notices.push(Notice::normal(
                        Some(index),
                        "BackOff",
                        message.split_once(": ").map_or_else(|| message.clone(), |(head, _)| head.to_owned()),
                    ));
                    (delay.reason, delay.message) = (reason, message);
                }
            }
            Stage::Ended(ended) => {
                let code = ended.exit.code;
                // A sidecar is started again whatever it ended with; an init container that succeeded never is.
                if (role == Role::Init && code == 0) || !restarts(spec, &container, code) {
                    return;
                }
                let delay = life.crashes.delay(ended.at).filter(|delay| ended.at + *delay > now.instant);
                let (at, previous) = (ended.at, ended.clone());
                life.last = Some(previous);
                life.again = true;
                life.crashes.lengthen(now.instant);
                let Some(delay) = delay else {
                    life.stage = Stage::Pulling;
                    actions.push(Action::Pull(index));
                    return;
                };
                let name = &container.name;
                let pod = described(pod);
                notices.push(Notice::warning(
                    Some(index),
                    "BackOff",
                    format!("Back-off restarting failed container {name} in pod {pod}"),
                ));
                life.stage = Stage::Delayed(Box::new(Delay {
                    reason: "CrashLoopBackOff",
                    message: format!("back-off {} restarting failed container={name} pod={pod}", printed(delay)),
                    until: at + delay,
                    then: None,
                }));
            }
            Stage::Running(running) if running.condemned && !running.stopping => {
                running.stopping = true;
                let probe = container.liveness_probe.as_ref().and_then(|probe| probe.termination_grace_period_seconds);
                actions.push(Action::Stop(index, seconds(probe.or(spec.termination_grace_period_seconds))));
            }
            Stage::Running(_) | Stage::Pulling | Stage::Starting => {}
        }
    }

    /// Stops what runs: the containers, then the sidecars from last to first, then what they share.
    fn stop_all(&mut self, spec: &PodSpec, notices: &mut Vec<Notice>) -> Vec<Action> {
        let mut actions = Vec::new();
        let grace = self.grace;
        for life in &mut self.containers {
            if matches!(life.stage, Stage::Pulling | Stage::Pulled) {
                life.stage = Stage::Waiting;
            }
        }
        let is_sidecar = |index: usize| container(spec, index).is_some_and(|(role, _)| role == Role::Sidecar);
        let others_alive = (0..self.containers.len()).any(|at| !is_sidecar(at) && self.containers[at].is_alive());
        let mut stop = |index: usize, life: &mut ContainerLife| {
            if let Stage::Running(running) = &mut life.stage
                && !running.stopping
            {
                running.stopping = true;
                let name = container(spec, index).map(|(_, container)| container.name.clone()).unwrap_or_default();
                notices.push(Notice::normal(Some(index), "Killing", format!("Stopping container {name}")));
                actions.push(Action::Stop(index, grace));
            }
        };
        if others_alive {
            for (index, life) in self.containers.iter_mut().enumerate() {
                if !is_sidecar(index) {
                    stop(index, life);
                }
            }
            return actions;
        }
        let last = (0..self.containers.len()).rev().find(|index| self.containers[*index].is_alive());
        if let Some(index) = last {
            stop(index, &mut self.containers[index]);
            return actions;
        }
        match self.sandbox {
            // What is being created is removed once it is there.
            Sandbox::Creating | Sandbox::Removing | Sandbox::Removed => {}
            _ => {
                self.sandbox = Sandbox::Removing;
                actions.push(Action::Remove);
            }
        }
        actions
    }

    /// Takes note of something that happened. What does not fit the state, as after a container was replaced, is ignored.
    pub(crate) fn observe(&mut self, spec: &PodSpec, seen: Observation, now: Now, notices: &mut Vec<Notice>) {
        match seen {
            Observation::Created(created) => self.created(created, now, notices),
            Observation::Pulled(index, pulled) => self.pulled(spec, index, pulled, now, notices),
            Observation::Started(index, started) => self.started(spec, index, started, now, notices),
            Observation::Misconfigured(index, message) => {
                let life = &mut self.containers[index];
                if matches!(life.stage, Stage::Starting) {
                    notices.push(Notice::warning(Some(index), "Failed", format!("Error: {message}")));
                    life.retry("CreateContainerConfigError", message, now);
                }
            }
            Observation::Happened(index, attempt, event) => self.happened(spec, index, attempt, event, now, notices),
            Observation::Sources | Observation::Updated(Ok(())) => {}
            Observation::Updated(Err(error)) => {
                notices.push(Notice::warning(None, "FailedMount", format!("MountVolume.SetUp failed : {error}")));
            }
            Observation::Removed => self.sandbox = Sandbox::Removed,
        }
    }

    fn created(&mut self, created: Result<(), RuntimeError>, now: Now, notices: &mut Vec<Notice>) {
        if self.sandbox != Sandbox::Creating {
            return;
        }
        self.sandbox = match created {
            Ok(()) => Sandbox::Ready,
            Err(error) => {
                let message = format!("Failed to create pod sandbox: {error}");
                notices.push(Notice::warning(None, "FailedCreatePodSandBox", message));
                Sandbox::Failed { until: now.instant + self.sandbox_failures.failed(now.instant) }
            }
        };
    }

    fn pulled(
        &mut self,
        spec: &PodSpec,
        index: usize,
        pulled: Result<Image, RuntimeError>,
        now: Now,
        notices: &mut Vec<Notice>,
    ) {
        let Some((_, container)) = container(spec, index) else { return };
        let life = &mut self.containers[index];
        if !matches!(life.stage, Stage::Pulling) {
            return;
        }
        let name = container.image.as_deref().unwrap_or_default();
        let error = match pulled {
            Ok(Image { id, pulled }) => {
                let message = match pulled {
                    None => {
                        format!("Container image \"{name}\" already present on machine and can be accessed by the pod")
                    }
                    Some(pull) => {
                        let took = format_pull(pull.took);
                        format!(
                            "Successfully pulled image \"{name}\" in {took} ({took} including waiting). Image size: {} bytes.",
                            pull.size
                        )
                    }
                };
                notices.push(Notice::normal(Some(index), "Pulled", message));
                life.image = id;
                life.stage = Stage::Pulled;
                return;
            }
            Err(error) => error,
        };
        let message = error.to_string();
        let reason = match error {
            RuntimeError::NeverPull(_) => "ErrImageNeverPull",
            RuntimeError::ImageName(_) => "InvalidImageName",
            _ => "ErrImagePull",
        };
        if reason == "ErrImagePull" {
            notices.push(Notice::warning(Some(index), "Failed", format!("Failed to pull image \"{name}\": {message}")));
            notices.push(Notice::warning(Some(index), "Failed", format!("Error: {reason}")));
        } else {
            notices.push(Notice::warning(Some(index), reason, message.clone()));
        }
        let delay = life.pulls.failed(now.instant);
        let then = (reason == "ErrImagePull").then(|| {
            let shown = format!("Back-off pulling image \"{name}\": ErrImagePull: {message}");
            (now.instant + PULL_ERROR_SHOWN.min(delay), "ImagePullBackOff", shown)
        });
        life.stage = Stage::Delayed(Box::new(Delay { reason, message, until: now.instant + delay, then }));
    }

    fn started(
        &mut self,
        spec: &PodSpec,
        index: usize,
        started: Result<Started, RuntimeError>,
        now: Now,
        notices: &mut Vec<Notice>,
    ) {
        let Some((_, container)) = container(spec, index) else { return };
        let life = &mut self.containers[index];
        if !matches!(life.stage, Stage::Starting) {
            return;
        }
        match started {
            Ok(Started { id, at }) => {
                notices.push(Notice::normal(Some(index), "Created", "Container created".to_owned()));
                notices.push(Notice::normal(Some(index), "Started", "Container started".to_owned()));
                life.attempt = life.next_attempt();
                life.again = false;
                let started = container.startup_probe.is_none();
                let ready = started && container.readiness_probe.is_none();
                let running = Running { id, since: at, started, ready, condemned: false, stopping: false };
                life.stage = Stage::Running(Box::new(running));
                let attempt = life.attempt;
                for event in std::mem::take(&mut life.early) {
                    self.happened(spec, index, attempt, event, now, notices);
                }
            }
            Err(error) => {
                let reason = match error {
                    RuntimeError::Start(_) => "RunContainerError",
                    RuntimeError::Config(_) => "CreateContainerConfigError",
                    _ => "CreateContainerError",
                };
                notices.push(Notice::warning(Some(index), "Failed", format!("Error: {error}")));
                life.retry(reason, error.to_string(), now);
            }
        }
    }

    fn happened(
        &mut self,
        spec: &PodSpec,
        index: usize,
        attempt: i32,
        event: ContainerEvent,
        now: Now,
        notices: &mut Vec<Notice>,
    ) {
        let Some((_, container)) = container(spec, index) else { return };
        let Some(life) = self.containers.get_mut(index) else { return };
        if matches!(life.stage, Stage::Starting) && life.next_attempt() == attempt {
            life.early.push(event);
            return;
        }
        if life.attempt != attempt {
            return;
        }
        let Stage::Running(running) = &mut life.stage else { return };
        match event {
            // What a hook says may be secret, so events do not repeat it: as kuberuntime_container.go.
            ContainerEvent::HookFailed(Hook::PostStart) => {
                notices.push(Notice::warning(Some(index), "FailedPostStartHook", "PostStartHook failed".to_owned()));
                notices.push(Notice::normal(Some(index), "Killing", "FailedPostStartHook".to_owned()));
            }
            ContainerEvent::HookFailed(Hook::PreStop) => {
                notices.push(Notice::warning(Some(index), "FailedPreStopHook", "PreStopHook failed".to_owned()));
            }
            ContainerEvent::Exited(exit) => {
                let (id, since) = (std::mem::take(&mut running.id), running.since);
                life.stage = Stage::Ended(Box::new(Ended { id, since, exit, at: now.instant }));
            }
            ContainerEvent::ProbeFailed { probe, message } => notices.push(unhealthy(index, probe, &message)),
            ContainerEvent::Probe { probe, success, message } => {
                if !success {
                    notices.push(unhealthy(index, probe, &message));
                }
                match (probe, success) {
                    (Probe::Startup, true) => {
                        running.started = true;
                        running.ready |= container.readiness_probe.is_none();
                    }
                    (Probe::Readiness, success) => running.ready = success && running.started,
                    (Probe::Liveness, true) => {}
                    (Probe::Startup | Probe::Liveness, false) => {
                        let (name, word) = (&container.name, probe.as_str().to_lowercase());
                        let message = format!("Container {name} failed {word} probe, will be restarted");
                        notices.push(Notice::normal(Some(index), "Killing", message));
                        running.condemned = true;
                    }
                }
            }
        }
    }

    /// When to decide again if nothing happens before.
    pub(crate) fn wake(&self) -> Option<Instant> {
        let started = self.containers.iter().take(self.reached).chain(self.containers.iter().skip(self.ephemeral_from));
        let delays = started.filter_map(|life| match &life.stage {
            Stage::Delayed(delay) => Some(delay.then.as_ref().map_or(delay.until, |(at, ..)| (*at).min(delay.until))),
            _ => None,
        });
        let sandbox = match self.sandbox {
            Sandbox::Failed { until } => Some(until),
            _ => None,
        };
        let deadline = self.deadline.filter(|_| self.end.is_none());
        delays.filter(|_| self.end.is_none()).chain(sandbox).chain(deadline).min()
    }
}

/// What users are told about each failure of a probe.
fn unhealthy(index: usize, probe: Probe, message: &str) -> Notice {
    Notice::warning(Some(index), "Unhealthy", format!("{} probe failed: {message}", probe.as_str()))
}

impl ContainerLife {
    /// Tries again later.
    fn retry(&mut self, reason: &'static str, message: String, now: Now) {
        let until = now.instant + self.pulls.failed(now.instant);
        self.stage = Stage::Delayed(Box::new(Delay { reason, message, until, then: None }));
    }
}

impl Notice {
    fn normal(container: Option<usize>, reason: &str, message: String) -> Self {
        Self { container, warning: false, reason: reason.to_owned(), message }
    }

    pub(crate) fn warning(container: Option<usize>, reason: &str, message: String) -> Self {
        Self { container, warning: true, reason: reason.to_owned(), message }
    }
}

/// How many containers a pod has that are not ephemeral.
fn ephemeral_from(spec: &PodSpec) -> usize {
    spec.init_containers.as_ref().map_or(0, Vec::len) + spec.containers.len()
}

/// A grace period; 30 seconds unless there is one.
fn seconds(seconds: Option<i64>) -> Duration {
    Duration::from_secs(seconds.unwrap_or(30).max(0).unsigned_abs())
}

/// Milliseconds as Go prints them: `350ms`, `1.2s`.
fn format_pull(took: Duration) -> String {
    if took < Duration::from_secs(1) {
        format!("{}ms", took.as_millis())
    } else {
        format!("{}s", took.as_millis() as f64 / 1000.0)
    }
}
