//! How others reach the containers that an agent runs: their output, commands in them, and ports of their pods.
//!
//! A pod is taken as the API has it at that moment; whether its container can be reached is judged by its status, in the
//! words of a kubelet (`validateContainerLogStatus` and `GetExec` of `pkg/kubelet/kubelet_pods.go`).

use std::net::IpAddr;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::runtime::{Connection, ExecOptions, LogOptions, PodSandbox, Runtime, RuntimeError, Session, Usage};

/// Reaches the containers that an [`Agent`](crate::Agent) runs. Clones are the same.
#[derive(Clone, Default)]
pub struct PodAccess {
    agent: Arc<OnceLock<Weak<dyn Reachable>>>,
}

impl std::fmt::Debug for PodAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodAccess").finish_non_exhaustive()
    }
}

/// What an agent lends to those who reach its containers.
pub(crate) trait Reachable: Send + Sync {
    fn has_node(&self, name: &str) -> bool;
    fn runtime(&self) -> &dyn Runtime;
    fn node_address(&self, node: &str) -> Option<IpAddr>;
    fn lend_address(&self, pod: &Pod) -> Option<IpAddr>;
    fn return_address(&self, uid: &str);
}

/// Why a container is not reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The container is in a state in which this makes no sense.
    #[error("{0}")]
    State(String),
    /// There is no such container that runs.
    #[error("{0}")]
    NotRunning(String),
    /// The runtime cannot do it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The agent has not started, or has stopped.
    #[error("the node agent does not run")]
    Stopped,
}

/// What a container is to be reached for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To run a command in it.
    Exec,
    /// To attach to its main process.
    Attach,
    /// To connect to a port of its pod.
    Port,
}

impl PodAccess {
    pub(crate) fn set(&self, agent: Weak<dyn Reachable>) {
        // An agent is added to one manager.
        let _ = self.agent.set(agent);
    }

    fn agent(&self) -> Result<Arc<dyn Reachable>, AccessError> {
        self.agent.get().and_then(Weak::upgrade).ok_or(AccessError::Stopped)
    }

    /// Whether a node is the agent's.
    pub fn has_node(&self, name: &str) -> bool {
        self.agent().is_ok_and(|agent| agent.has_node(name))
    }

    /// The address of a node.
    pub fn node_address(&self, node: &str) -> Option<IpAddr> {
        self.agent().ok()?.node_address(node)
    }

    /// An address for a pod that the agent [leaves](crate::Agent::leave) to another component: always the same until it is
    /// [returned](Self::return_address).
    pub fn lend_address(&self, pod: &Pod) -> Option<IpAddr> {
        self.agent().ok()?.lend_address(pod)
    }

    /// Frees the address of a pod, by its uid.
    pub fn return_address(&self, uid: &str) {
        if let Ok(agent) = self.agent() {
            agent.return_address(uid);
        }
    }

    /// Whether a container can be reached, by the status of its pod.
    pub fn check(pod: &Pod, container: &str, purpose: Purpose) -> Result<(), AccessError> {
        let meta = &pod.metadata;
        let full_name = || {
            let (name, namespace) = (meta.name.as_deref(), meta.namespace.as_deref());
            format!("{}_{}", name.unwrap_or_default(), namespace.unwrap_or_default())
        };
        let is_running = |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
        let found = match purpose {
            Purpose::Port => statuses(pod).any(is_running),
            Purpose::Exec | Purpose::Attach => {
                statuses(pod).any(|status| status.name == container && is_running(status))
            }
        };
        if found {
            return Ok(());
        }
        Err(AccessError::NotRunning(match purpose {
            Purpose::Exec => format!("container not found (\"{container}\")"),
            Purpose::Attach => format!("container {container} not found in pod {}", full_name()),
            Purpose::Port => format!("pod not found (\"{}\")", full_name()),
        }))
    }

    /// What the containers of a pod use at this moment; `None` if that is not known.
    pub fn usage(&self, pod: Arc<Pod>) -> Option<Vec<Usage>> {
        self.agent().ok()?.runtime().usage(&sandbox(pod))
    }

    /// The output of a container.
    pub async fn logs(
        &self,
        pod: Arc<Pod>,
        container: &str,
        options: &LogOptions,
    ) -> Result<BoxStream<'static, Bytes>, AccessError> {
        check_logs(&pod, container, options.previous).map_err(AccessError::State)?;
        let operation = self.agent()?.runtime().logs(&sandbox(pod), container, options);
        Ok(operation.finish().await?)
    }

    /// Runs a command in a container.
    pub async fn exec(&self, pod: Arc<Pod>, container: &str, command: &ExecOptions) -> Result<Session, AccessError> {
        let operation = self.agent()?.runtime().exec(&sandbox(pod), container, command);
        Ok(operation.finish().await?)
    }

    /// Attaches to the main process of a container.
    pub async fn attach(&self, pod: Arc<Pod>, container: &str, terminal: bool) -> Result<Session, AccessError> {
        let operation = self.agent()?.runtime().attach(&sandbox(pod), container, terminal);
        Ok(operation.finish().await?)
    }

    /// Connects to a port of a pod.
    pub async fn port(&self, pod: Arc<Pod>, port: u16) -> Result<Box<dyn Connection>, AccessError> {
        let operation = self.agent()?.runtime().port(&sandbox(pod), port);
        Ok(operation.finish().await?)
    }
}

fn sandbox(pod: Arc<Pod>) -> PodSandbox {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse().ok());
    PodSandbox { node: node.into(), pod, ip }
}

/// All containers' statuses, in the order in which a kubelet looks for one.
fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| {
        let kinds = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
        kinds.into_iter().flatten().flatten()
    })
}

/// Whether a container has output that can be shown; why not if it has none.
fn check_logs(pod: &Pod, container: &str, previous: bool) -> Result<(), String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let this = format!("container \"{container}\" in pod \"{name}\"");
    let Some(status) = statuses(pod).find(|status| status.name == container) else {
        return Err(format!("{this} is not available"));
    };
    let state = status.state.clone().unwrap_or_default();
    let has_id = |id: &Option<String>| id.as_ref().is_some_and(|id| !id.is_empty());
    let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let has_last = last.is_some_and(|last| has_id(&last.container_id));
    if previous {
        return if has_last { Ok(()) } else { Err(format!("previous terminated {this} not found")) };
    }
    if state.running.is_some() {
        return Ok(());
    }
    if let Some(ended) = &state.terminated {
        return if has_id(&ended.container_id) || has_last { Ok(()) } else { Err(format!("{this} is terminated")) };
    }
    if last.is_some() {
        return if has_last { Ok(()) } else { Err(format!("{this} is terminated")) };
    }
    let Some(waiting) = &state.waiting else { return Err(format!("{this} is waiting to start - no logs yet")) };
    let why = match waiting.reason.as_deref().unwrap_or_default() {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        reason => reason,
    };
    Err(format!("{this} is waiting to start: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(state: &Value, last: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"containers": []},
            "status": {"containerStatuses": [
                {"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state, "lastState": last},
            ]},
        }))
        .expect("a pod")
    }

    #[test]
    fn output_is_there_once_a_container_has_started() {
        let check = |container: &str, previous: bool, state: Value, last: Value, expected: &str| {
            let result = check_logs(&pod(&state, &last), container, previous);
            assert_eq!(result.err().unwrap_or_default(), expected, "{state} {last}");
        };
        let (none, ended) = (json!({}), json!({"terminated": {"exitCode": 0, "containerID": "x://1"}}));
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        check("c", false, json!({"running": {}}), none.clone(), "");
        check("c", false, ended.clone(), none.clone(), "");
        check("c", false, waiting("CrashLoopBackOff"), ended.clone(), "");
        check("c", true, json!({"running": {}}), ended.clone(), "");
        let this = "container \"c\" in pod \"web\"";
        check("c", true, json!({"running": {}}), none.clone(), &format!("previous terminated {this} not found"));
        check("c", false, json!({"terminated": {"exitCode": 1}}), none.clone(), &format!("{this} is terminated"));
        let creating = format!("{this} is waiting to start: ContainerCreating");
        check("c", false, waiting("ContainerCreating"), none.clone(), &creating);
        let pulling = format!("{this} is waiting to start: image can't be pulled");
        check("c", false, waiting("ErrImagePull"), none.clone(), &pulling);
        check("c", false, none.clone(), none.clone(), &format!("{this} is waiting to start - no logs yet"));
        check("d", false, none.clone(), none, "container \"d\" in pod \"web\" is not available");
    }

    #[test]
    fn only_running_containers_are_entered() {
        let check = |state: Value, container: &str, purpose, expected: &str| {
            let result = PodAccess::check(&pod(&state, &json!({})), container, purpose);
            assert_eq!(result.err().map(|error| error.to_string()).unwrap_or_default(), expected);
        };
        let ended = || json!({"terminated": {"exitCode": 0}});
        check(json!({"running": {}}), "c", Purpose::Exec, "");
        check(json!({"running": {}}), "", Purpose::Port, "");
        check(ended(), "c", Purpose::Exec, "container not found (\"c\")");
        check(ended(), "c", Purpose::Attach, "container c not found in pod web_shop");
        check(ended(), "", Purpose::Port, "pod not found (\"web_shop\")");
    }
}
