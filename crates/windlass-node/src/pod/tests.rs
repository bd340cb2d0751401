//! The life of pods, with a runtime that does whatever a random choice says.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::life::Stage;
use super::status::{Place, status};
use super::*;
use crate::containers::{Role, containers};
use crate::runtime::{ContainerEvent, Exit, Hook, Image, Probe, RuntimeError, Started};

/// A pod with its machine, a clock, and what its containers really do.
struct World {
    pod: Pod,
    spec: PodSpec,
    life: PodLife,
    began: Instant,
    passed: Duration,
    notices: Vec<Notice>,
    /// Which containers run, as the runtime knows it.
    running: Vec<bool>,
    /// Operations that the runtime has not answered yet.
    asked: Vec<Action>,
}

impl World {
    fn new(spec: Value) -> Self {
        let pod = json!({ "metadata": { "name": "p", "namespace": "n", "uid": "u", "generation": 1 }, "spec": spec });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let spec = pod.spec.clone().expect("a spec");
        let began = Instant::now();
        let mut world = Self {
            life: PodLife::new(&pod, &spec, Now { instant: began, wall: Timestamp::UNIX_EPOCH }),
            running: vec![false; containers(&spec).count()],
            pod,
            spec,
            began,
            passed: Duration::ZERO,
            notices: Vec::new(),
            asked: Vec::new(),
        };
        world.decide();
        world
    }

    fn now(&self) -> Now {
        let passed = SignedDuration::try_from(self.passed).expect("a short time");
        Now { instant: self.began + self.passed, wall: Timestamp::UNIX_EPOCH + passed }
    }

    /// Has the machine decide, and checks what it decides.
    fn decide(&mut self) {
        let now = self.now();
        for action in self.life.decide(&self.pod, &self.spec, now, &mut self.notices) {
            match action {
                Action::Start(index) => {
                    assert!(!self.running[index], "{index} is started while it runs");
                    assert!(self.life.end.is_none(), "{index} is started though the pod ends");
                    self.check_order(index);
                }
                Action::Stop(index, _) => assert!(self.running[index], "{index} is stopped but does not run"),
                Action::Remove => assert!(self.running.iter().all(|running| !running), "removed while containers run"),
                _ => {}
            }
            if let Action::Stop(..) = action {
                self.asked.push(action);
            } else {
                assert!(!self.asked.contains(&action), "{action:?} twice");
                self.asked.push(action);
            }
        }
        self.write();
    }

    /// Containers wait for the init containers before them.
    fn check_order(&self, index: usize) {
        if self.life.initialized {
            return;
        }
        for (before, (role, _)) in containers(&self.spec).enumerate().take(index) {
            match (&self.life.containers[before].stage, role) {
                (_, Role::Main) => {}
                (Stage::Ended(ended), Role::Init) => {
                    assert_eq!(ended.exit.code, 0, "{index} does not wait for {before}");
                }
                (Stage::Running(running), Role::Sidecar) => {
                    assert!(running.started, "{index} does not wait for {before}");
                }
                (stage, _) => panic!("{index} is started while {before} is {stage:?}"),
            }
        }
    }

    /// Writes the status, and checks how it changes.
    fn write(&mut self) {
        let place = Place { host_ip: None, pod_ip: None, runtime: "test" };
        let new = status(&self.pod, &self.spec, &self.life, place, self.now());
        let old = self.pod.status.clone().unwrap_or_default();
        let phase = |status: &PodStatus| status.phase.clone().unwrap_or_default();
        if matches!(&*phase(&old), "Succeeded" | "Failed") {
            assert_eq!(phase(&new), phase(&old), "an end is for good");
        }
        if phase(&old) == "Running" {
            assert_ne!(phase(&new), "Pending", "a pod that ran is not pending again");
        }
        let restarts = |status: &PodStatus| -> Vec<i32> {
            let all = status.init_container_statuses.iter().chain(&status.container_statuses);
            all.flatten().map(|status| status.restart_count).collect()
        };
        assert!(restarts(&old).iter().zip(restarts(&new)).all(|(old, new)| *old <= new), "restart counts only grow");
        if matches!(&*phase(&new), "Succeeded" | "Failed") {
            assert!(!self.running.contains(&true), "a pod that ended runs nothing");
        }
        let is_true =
            |type_: &str| new.conditions.iter().flatten().any(|one| one.type_ == type_ && one.status == "True");
        assert!(!is_true("Ready") || is_true("ContainersReady"));
        self.pod.status = Some(new);
    }

    fn observe(&mut self, seen: Observation) {
        let now = self.now();
        self.life.observe(&self.spec, seen, now, &mut self.notices);
        self.decide();
    }

    fn exit(&mut self, index: usize, code: i32) {
        self.running[index] = false;
        let exit = Exit { code, reason: None, message: None, at: self.now().wall };
        let attempt = self.life.containers[index].attempt;
        self.observe(Observation::Happened(index, attempt, ContainerEvent::Exited(exit)));
    }

    /// Answers what was asked first. `well`: nothing fails.
    fn answer(&mut self, well: bool) -> bool {
        if self.asked.is_empty() {
            return false;
        }
        match self.asked.remove(0) {
            Action::Create if well => self.observe(Observation::Created(Ok(()))),
            Action::Create => self.observe(Observation::Created(Err(RuntimeError::Sandbox("no".into())))),
            Action::Pull(index) if well => self.observe(Observation::Pulled(index, Ok(Image::default()))),
            Action::Pull(index) => self.observe(Observation::Pulled(index, Err(RuntimeError::Pull("no".into())))),
            Action::Start(index) if well => {
                self.running[index] = true;
                let started = Started { id: format!("c{index}"), at: self.now().wall };
                self.observe(Observation::Started(index, Ok(started)));
            }
            Action::Start(index) => self.observe(Observation::Started(index, Err(RuntimeError::Create("no".into())))),
            Action::Stop(index, _) => self.exit(index, if well { 0 } else { 137 }),
            Action::Remove => self.observe(Observation::Removed),
        }
        true
    }

    fn settle(&mut self) {
        while self.answer(true) {}
    }

    /// Goes to the time that the machine asked for.
    fn wake(&mut self) {
        let Some(at) = self.life.wake() else { return };
        let at = at.saturating_duration_since(self.began);
        assert!(at > self.passed || !self.asked.is_empty(), "the machine asks for a time that has passed");
        self.passed = self.passed.max(at);
        self.decide();
    }

    fn phase(&self) -> &str {
        self.pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
    }

    /// What the last container's status is called.
    fn shown(&self) -> String {
        let statuses = self.pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let state = statuses.and_then(|all| all.last()).and_then(|status| status.state.clone()).unwrap_or_default();
        let waiting = state.waiting.and_then(|waiting| waiting.reason);
        let ended = state.terminated.and_then(|ended| ended.reason);
        waiting.or(ended).unwrap_or_else(|| "Running".to_owned())
    }

    fn condition(&self, type_: &str) -> String {
        let mut conditions = self.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let found = conditions.rfind(|condition| condition.type_ == type_);
        found.map_or_else(String::new, |found| {
            [Some(found.status.as_str()), found.reason.as_deref(), found.message.as_deref()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" ")
        })
    }
}

fn one(policy: &str) -> Value {
    json!({ "restartPolicy": policy, "containers": [{ "name": "c", "image": "i" }] })
}

#[test]
fn a_pod_runs_and_is_ready() {
    let mut world = World::new(one("Always"));
    assert_eq!((world.phase(), &*world.shown()), ("Pending", "ContainerCreating"));
    assert_eq!(world.condition("Ready"), "False ContainersNotReady containers with unready status: [c]");
    world.settle();
    assert_eq!((world.phase(), &*world.condition("Ready")), ("Running", "True"));
    let reasons: Vec<&str> = world.notices.iter().map(|notice| &*notice.reason).collect();
    assert_eq!(reasons, ["Pulled", "Created", "Started"]);
}

#[test]
fn an_ephemeral_container_runs_once_beside_the_others() {
    let mut world = World::new(one("Always"));
    world.settle();
    let added = json!([{ "name": "debug", "image": "i" }]);
    world.spec.ephemeral_containers = serde_json::from_value(added).expect("containers");
    world.running.push(false);
    world.life.extend(&world.spec);
    world.decide();
    world.settle();
    let statuses = |world: &World| {
        let status = world.pod.status.clone().unwrap_or_default();
        let all = status.ephemeral_container_statuses.unwrap_or_default();
        (status.container_statuses.unwrap_or_default().len(), all)
    };
    let (main, debug) = statuses(&world);
    assert_eq!((main, debug.len(), debug[0].name.as_str()), (1, 1, "debug"));
    assert!(debug[0].state.as_ref().is_some_and(|state| state.running.is_some()) && !debug[0].ready);
    assert_eq!((world.phase(), &*world.condition("Ready")), ("Running", "True"));
    world.exit(1, 3);
    world.settle();
    let (_, debug) = statuses(&world);
    let ended = debug[0].state.as_ref().and_then(|state| state.terminated.as_ref()).map(|ended| ended.exit_code);
    assert_eq!((ended, debug[0].restart_count), (Some(3), 0));
    assert_eq!((world.phase(), &*world.condition("Ready")), ("Running", "True"));
}

#[test]
fn crashes_are_retried_after_longer_and_longer_delays() {
    let mut world = World::new(one("Always"));
    world.settle();
    let mut delays = Vec::new();
    for _ in 0..8 {
        let failed = world.passed;
        world.exit(0, 1);
        world.settle();
        while world.shown() == "CrashLoopBackOff" {
            assert_eq!(world.phase(), "Running");
            world.wake();
            world.settle();
        }
        delays.push(world.passed.saturating_sub(failed).as_secs());
    }
    assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(world.life.containers[0].attempt, 8);
    // After ten minutes without a crash the delays begin anew.
    world.passed += Duration::from_secs(601);
    let failed = world.passed;
    world.exit(0, 1);
    world.settle();
    assert_eq!((world.shown().as_str(), world.passed), ("Running", failed));
    let message = "Back-off restarting failed container c in pod p_n(u)";
    assert!(world.notices.iter().any(|notice| notice.message == message && notice.warning));
}

#[test]
fn restart_policies_decide_what_an_exit_means() {
    let check = |policy, code, phase: &str| {
        let mut world = World::new(one(policy));
        world.settle();
        world.exit(0, code);
        world.settle();
        assert_eq!(world.phase(), phase, "{policy} {code}");
    };
    check("Never", 0, "Succeeded");
    check("Never", 1, "Failed");
    check("OnFailure", 0, "Succeeded");
    check("OnFailure", 1, "Running");
    check("Always", 0, "Running");
}

#[test]
fn a_container_may_have_a_restart_policy_of_its_own() {
    let rules = json!([{ "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } }]);
    let spec = json!({ "restartPolicy": "Never", "containers": [
        { "name": "c", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rules },
    ] });
    let mut world = World::new(spec);
    world.settle();
    world.exit(0, 42);
    world.settle();
    assert_eq!((world.phase(), world.life.containers[0].attempt), ("Running", 1));
    world.exit(0, 1);
    world.settle();
    assert_eq!(world.phase(), "Failed");
}

#[test]
fn images_that_cannot_be_pulled_are_tried_again_later() {
    let mut world = World::new(one("Always"));
    world.answer(true);
    world.answer(false);
    assert_eq!((world.phase(), &*world.shown()), ("Pending", "ErrImagePull"));
    world.wake();
    assert_eq!(world.shown(), "ImagePullBackOff");
    world.wake();
    assert_eq!(world.passed, Duration::from_secs(10));
    world.answer(false);
    world.wake();
    world.wake();
    assert_eq!(world.passed, Duration::from_secs(30));
    world.settle();
    assert_eq!(world.phase(), "Running");
    assert!(world.notices.iter().any(|notice| notice.message == "Back-off pulling image \"i\""));
}

#[test]
fn a_container_behind_a_failed_sidecar_asks_for_no_time() {
    let mut world = World::new(json!({
        "initContainers": [{ "name": "a", "image": "i", "restartPolicy": "Always" }, { "name": "b", "image": "i" }],
        "containers": [{ "name": "c", "image": "i" }],
    }));
    for well in [true, true, true, false] {
        world.answer(well);
    }
    assert_eq!((&world.running[..], &world.asked[..]), (&[true, false, false][..], &[][..]));
    world.exit(0, 0);
    world.answer(false);
    // The sidecar's image is pulled again, then that of the container behind it.
    while world.asked.is_empty() {
        world.wake();
    }
    assert_eq!(world.asked, [Action::Pull(0)]);
    world.answer(true);
    world.answer(true);
    assert_eq!(world.asked, [Action::Pull(1)]);
}

#[test]
fn init_containers_run_one_after_the_other() {
    let mut world = World::new(json!({
        "initContainers": [{ "name": "a", "image": "i" }, { "name": "b", "image": "i" }],
        "containers": [{ "name": "c", "image": "i" }],
    }));
    world.settle();
    assert_eq!((&world.running[..], &*world.shown()), (&[true, false, false][..], "PodInitializing"));
    let message = "False ContainersNotInitialized containers with incomplete status: [a b]";
    assert_eq!((world.phase(), &*world.condition("Initialized")), ("Pending", message));
    world.exit(0, 0);
    world.settle();
    world.exit(1, 1);
    world.settle();
    assert_eq!(world.running, [false, true, false], "a failed init container is restarted");
    world.exit(1, 0);
    world.settle();
    assert_eq!((world.phase(), &*world.condition("Initialized")), ("Running", "True"));
}

#[test]
fn a_failed_init_container_fails_an_unrestarted_pod() {
    let mut world = World::new(json!({
        "restartPolicy": "Never",
        "initContainers": [{ "name": "a", "image": "i" }],
        "containers": [{ "name": "c", "image": "i" }],
    }));
    world.settle();
    world.exit(0, 1);
    world.settle();
    assert_eq!((world.phase(), &*world.shown()), ("Failed", "PodInitializing"));
}

#[test]
fn sidecars_start_first_and_end_last() {
    let mut world = World::new(json!({
        "restartPolicy": "Never",
        "initContainers": [
            { "name": "s", "image": "i", "restartPolicy": "Always", "startupProbe": {} },
            { "name": "t", "image": "i", "restartPolicy": "Always" },
        ],
        "containers": [{ "name": "c", "image": "i" }],
    }));
    world.settle();
    assert_eq!(world.running, [true, false, false]);
    let started = ContainerEvent::Probe { probe: Probe::Startup, success: true, message: String::new() };
    world.observe(Observation::Happened(0, 0, started));
    world.settle();
    assert_eq!((world.running.clone(), world.phase()), (vec![true; 3], "Running"));
    world.exit(1, 1);
    world.settle();
    assert!(world.running[1], "a sidecar that ends is restarted whatever the pod's policy is");
    world.exit(2, 0);
    assert_eq!(world.asked, [Action::Stop(1, Duration::from_secs(30))]);
    assert_eq!(world.phase(), "Running", "a sidecar still runs");
    world.answer(true);
    assert_eq!(world.asked, [Action::Stop(0, Duration::from_secs(30))]);
    world.settle();
    assert_eq!(world.phase(), "Succeeded");
}

#[test]
fn a_failed_liveness_probe_restarts_a_container() {
    let mut world = World::new(json!({ "containers": [{ "name": "c", "image": "i", "livenessProbe": {} }] }));
    world.settle();
    let failed = ContainerEvent::Probe { probe: Probe::Liveness, success: false, message: "no".into() };
    let first = ContainerEvent::ProbeFailed { probe: Probe::Liveness, message: "not yet".into() };
    world.observe(Observation::Happened(0, 0, first));
    assert!(world.asked.is_empty());
    world.observe(Observation::Happened(0, 0, failed));
    assert_eq!(world.asked, [Action::Stop(0, Duration::from_secs(30))]);
    world.answer(false);
    world.settle();
    assert_eq!((world.running[0], world.life.containers[0].attempt), (true, 1));
    let messages: Vec<&str> = world.notices.iter().map(|notice| &*notice.message).collect();
    assert!(messages.contains(&"Liveness probe failed: not yet") && messages.contains(&"Liveness probe failed: no"));
    assert!(messages.contains(&"Container c failed liveness probe, will be restarted"));
}

#[test]
fn failed_hooks_are_reported_as_a_kubelet_does() {
    let mut world = World::new(json!({ "containers": [{ "name": "c", "image": "i" }] }));
    world.settle();
    for hook in [Hook::PostStart, Hook::PreStop] {
        world.observe(Observation::Happened(0, 0, ContainerEvent::HookFailed(hook)));
    }
    let all: Vec<_> = world.notices.iter().map(|notice| (&*notice.reason, &*notice.message, notice.warning)).collect();
    for expected in [
        ("FailedPostStartHook", "PostStartHook failed", true),
        ("Killing", "FailedPostStartHook", false),
        ("FailedPreStopHook", "PreStopHook failed", true),
    ] {
        assert!(all.contains(&expected), "{all:?}");
    }
}

#[test]
fn readiness_follows_its_probe_and_the_gates() {
    let mut world = World::new(json!({
        "readinessGates": [{ "conditionType": "example.com/open" }],
        "containers": [{ "name": "c", "image": "i", "readinessProbe": {} }],
    }));
    world.settle();
    assert_eq!(world.condition("ContainersReady"), "False ContainersNotReady containers with unready status: [c]");
    let probe = |success| ContainerEvent::Probe { probe: Probe::Readiness, success, message: String::new() };
    world.observe(Observation::Happened(0, 0, probe(true)));
    let missing = "False ReadinessGatesNotReady corresponding condition of pod readiness gate \"example.com/open\" does not exist.";
    assert_eq!((&*world.condition("ContainersReady"), &*world.condition("Ready")), ("True", missing));
    world.observe(Observation::Happened(0, 0, probe(false)));
    assert!(world.condition("ContainersReady").starts_with("False"));
}

#[test]
fn a_pod_beyond_its_deadline_fails() {
    let mut spec = one("Always");
    spec["activeDeadlineSeconds"] = json!(60);
    let mut world = World::new(spec);
    world.settle();
    world.wake();
    assert_eq!(world.passed, Duration::from_secs(60));
    world.settle();
    let reason = world.pod.status.as_ref().and_then(|status| status.reason.as_deref());
    assert_eq!((world.phase(), reason), ("Failed", Some("DeadlineExceeded")));
}

#[test]
fn a_deleted_pod_is_stopped_within_its_grace_period() {
    let mut world = World::new(one("Always"));
    world.settle();
    world.life.delete(Duration::from_secs(7));
    world.decide();
    assert_eq!(world.asked, [Action::Stop(0, Duration::from_secs(7))]);
    world.settle();
    assert!(world.life.is_removed());
    assert_eq!(world.phase(), "Succeeded");
}

fn container_of(name: String, role: u8) -> Value {
    let mut container = json!({ "name": name, "image": "i" });
    match role {
        1 => container["restartPolicy"] = json!("Always"),
        2 => container["startupProbe"] = json!({}),
        _ => {}
    }
    container
}

#[derive(Debug, Clone)]
enum Step {
    Answer(bool),
    Exit(usize, i32),
    Probe(usize, Probe, bool),
    Wake,
    Delete,
}

fn step() -> impl Strategy<Value = Step> {
    let probe = prop_oneof![Just(Probe::Startup), Just(Probe::Readiness), Just(Probe::Liveness)];
    prop_oneof![
        6 => any::<bool>().prop_map(Step::Answer),
        3 => (0..5_usize, 0..3).prop_map(|(index, code)| Step::Exit(index, code)),
        2 => (0..5_usize, probe, any::<bool>()).prop_map(|(index, probe, success)| Step::Probe(index, probe, success)),
        3 => Just(Step::Wake),
        1 => Just(Step::Delete),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_a_pod_behaves(
        init in prop::collection::vec(0..2_u8, 0..3),
        main in prop::collection::vec(prop_oneof![Just(0_u8), Just(2)], 1..3),
        policy in prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")],
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let named = |prefix: &str, roles: &[u8]| -> Vec<Value> {
            roles.iter().enumerate().map(|(at, role)| container_of(format!("{prefix}{at}"), *role)).collect()
        };
        let mut world = World::new(json!({
            "restartPolicy": policy, "initContainers": named("i", &init), "containers": named("m", &main),
        }));
        for step in steps {
            match step {
                Step::Answer(well) => _ = world.answer(well),
                Step::Exit(index, code) if world.running.get(index) == Some(&true) => {
                    world.asked.retain(|action| !matches!(action, Action::Stop(stopped, _) if *stopped == index));
                    world.exit(index, code);
                }
                Step::Probe(index, probe, success) if world.running.get(index) == Some(&true) => {
                    let event = ContainerEvent::Probe { probe, success, message: String::new() };
                    let attempt = world.life.containers[index].attempt;
                    world.observe(Observation::Happened(index, attempt, event));
                }
                Step::Wake if world.asked.is_empty() => world.wake(),
                Step::Delete => {
                    world.life.delete(Duration::from_secs(1));
                    world.decide();
                }
                _ => {}
            }
        }
        // However it stands, a deletion brings it to its end.
        world.life.delete(Duration::from_secs(1));
        world.decide();
        world.settle();
        prop_assert!(world.life.is_removed());
        prop_assert!(world.running.iter().all(|running| !running));
        prop_assert!(matches!(world.phase(), "Succeeded" | "Failed"));
    }
}
