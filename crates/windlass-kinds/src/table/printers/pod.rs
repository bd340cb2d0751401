//! Pods, whose status is a story told by all their containers.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::Row;
use super::super::access::{View, get, int, text, time};

pub(super) fn pod(view: &View<'_>) -> Row {
    let summary = Summary::of(view);
    let or_none = |pointer| view.text_or(pointer, "<none>").into();
    let ip = [view.text("/status/podIPs/0/ip"), view.text("/status/podIP"), "<none>"];
    let ip = ip.into_iter().find(|ip| !ip.is_empty()).unwrap_or_default();
    let cells = vec![
        view.name(),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts(summary.restarts, summary.last_restart, view).into(),
        view.age(),
        ip.into(),
        or_none("/spec/nodeName"),
        or_none("/status/nominatedNodeName"),
        readiness_gates(view).into(),
    ];
    let completed = |reason: &str, message: &str| json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]);
    let conditions = match view.text("/status/phase") {
        "Succeeded" => Some(completed("Succeeded", "The pod has completed successfully.")),
        "Failed" => Some(completed("Failed", "The pod failed.")),
        _ => None,
    };
    Row { cells, conditions }
}

fn restarts(count: i64, last: Option<Timestamp>, view: &View<'_>) -> String {
    match last {
        Some(_) if count != 0 => format!("{count} ({} ago)", view.elapsed(last)),
        _ => count.to_string(),
    }
}

fn readiness_gates(view: &View<'_>) -> String {
    let gates = view.list("/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let is_true = |gate: &&Value| {
        let condition = view.condition("/status/conditions", text(gate, "/conditionType"));
        condition.is_some_and(|condition| text(condition, "/status") == "True")
    };
    format!("{}/{}", gates.iter().filter(is_true).count(), gates.len())
}

struct Summary {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn of(view: &View<'_>) -> Self {
        let phase = view.text("/status/phase");
        let mut summary = Self {
            reason: view.text_or("/status/reason", phase).to_owned(),
            ready: 0,
            total: view.count("/spec/containers"),
            restarts: 0,
            last_restart: None,
        };
        let is_gated = |condition: &Value| {
            text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
        };
        if view.list("/status/conditions").iter().any(is_gated) {
            "SchedulingGated".clone_into(&mut summary.reason);
        }
        let sidecars = summary.init_containers(view);
        let initialized = view
            .condition("/status/conditions", "Initialized")
            .is_some_and(|condition| text(condition, "/status") == "True");
        if !sidecars.initializing || initialized {
            // Restarts of init containers that are done do not count any more.
            summary.restarts = sidecars.restarts;
            summary.last_restart = sidecars.last_restart;
            summary.containers(view);
        }
        if view.is_deleting() {
            if view.text("/status/reason") == "NodeLost" {
                "Unknown".clone_into(&mut summary.reason);
            } else if !matches!(phase, "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut summary.reason);
            }
        }
        summary
    }

    fn init_containers(&mut self, view: &View<'_>) -> Sidecars {
        let specs = view.list("/spec/initContainers");
        let by_name: HashMap<&str, &Value> = specs.iter().map(|spec| (text(spec, "/name"), spec)).collect();
        let is_sidecar = |spec: &Value| text(spec, "/restartPolicy") == "Always";
        self.total += specs.iter().filter(|spec| is_sidecar(spec)).count();
        let mut sidecars = Sidecars::default();
        for (i, status) in view.list("/status/initContainerStatuses").iter().enumerate() {
            let restarted = time(status, "/lastState/terminated/finishedAt");
            self.restarts += int(status, "/restartCount");
            self.last_restart = self.last_restart.max(restarted);
            let sidecar = by_name.get(text(status, "/name")).is_some_and(|spec| is_sidecar(spec));
            if sidecar {
                sidecars.restarts += int(status, "/restartCount");
                sidecars.last_restart = sidecars.last_restart.max(restarted);
            }
            let terminated = get(status, "/state/terminated");
            if terminated.is_some_and(|terminated| int(terminated, "/exitCode") == 0) {
                continue;
            }
            if sidecar && is_true(status, "/started") {
                self.ready += usize::from(is_true(status, "/ready"));
                continue;
            }
            let waiting = text(status, "/state/waiting/reason");
            self.reason = match terminated {
                Some(terminated) => format!("Init:{}", termination(terminated)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{i}/{}", specs.len()),
            };
            sidecars.initializing = true;
            break;
        }
        sidecars
    }

    fn containers(&mut self, view: &View<'_>) {
        let mut running = false;
        let mut failure = None;
        for status in view.list("/status/containerStatuses").iter().rev() {
            self.restarts += int(status, "/restartCount");
            self.last_restart = self.last_restart.max(time(status, "/lastState/terminated/finishedAt"));
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(terminated) = get(status, "/state/terminated") {
                self.reason = termination(terminated);
                if int(terminated, "/exitCode") != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if is_true(status, "/ready") && get(status, "/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason != "Completed" {
            return;
        }
        // One container is done; whether the pod is depends on the others.
        let is_ready = |condition: &Value| text(condition, "/type") == "Ready" && text(condition, "/status") == "True";
        let ready = view.list("/status/conditions").iter().any(is_ready);
        self.reason = match (running, ready, failure) {
            (true, true, _) => "Running".to_owned(),
            (_, _, Some(failure)) => failure,
            (true, false, None) => "NotReady".to_owned(),
            (false, _, None) => return,
        };
    }
}

/// What init containers leave behind for the pod's totals.
#[derive(Default)]
struct Sidecars {
    initializing: bool,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

fn is_true(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

fn termination(terminated: &Value) -> String {
    let (reason, signal) = (text(terminated, "/reason"), int(terminated, "/signal"));
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", int(terminated, "/exitCode"))
    }
}
