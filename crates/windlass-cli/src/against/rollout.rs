//! Whether a Deployment is rolled out, and if it is not, why.

mod reason;

use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;
use tokio::time::Instant;

use super::POLL;
use super::apply::get;
use crate::output;

/// How long a cluster without nodes is waited for: one may be about to join.
const WITHOUT_NODES: Duration = Duration::from_secs(10);

/// How far a Deployment is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rollout {
    Done,
    Waiting(String),
    Failed(String),
}

/// Judges a Deployment as `kubectl rollout status` does (`polymorphichelpers/rollout_status.go` in kubectl).
pub(crate) fn of(deployment: &Value) -> Rollout {
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let (metadata, spec, status) = (&deployment["metadata"], &deployment["spec"], &deployment["status"]);
    if number(&metadata["generation"]) > number(&status["observedGeneration"]) {
        return Rollout::Waiting("the change has not been seen yet".to_owned());
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    for condition in conditions {
        if condition["type"] == "Progressing" && condition["reason"] == "ProgressDeadlineExceeded" {
            return Rollout::Failed(condition["message"].as_str().unwrap_or("it takes too long").to_owned());
        }
    }
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let [updated, all, available] =
        ["updatedReplicas", "replicas", "availableReplicas"].map(|name| number(&status[name]));
    if updated < wanted {
        return Rollout::Waiting(format!("{updated} of {wanted} replicas have the new version"));
    }
    if all > updated {
        return Rollout::Waiting(format!("{} replicas of the old version are ending", all - updated));
    }
    if available < updated {
        return Rollout::Waiting(format!("{available} of {updated} replicas are available"));
    }
    Rollout::Done
}

/// Waits until a Deployment is rolled out. If it is not in time, the error says why.
pub(crate) async fn wait(client: &kube::Client, namespace: &str, name: &str, timeout: Duration) -> Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
    let nodes = nodes(client).await;
    if let Some(why) = nodes.obstacle() {
        bail!("deployment.apps/{name} is applied, but its operator does not run: {why}");
    }
    let has_nodes = nodes == Nodes::RunPods;
    let timeout = if has_nodes { timeout } else { timeout.min(WITHOUT_NODES) };
    if !has_nodes {
        output::note("the cluster has no nodes that run pods, so the pods of the operator stay Pending");
    }
    let until = Instant::now() + timeout;
    let mut told = String::new();
    loop {
        let deployment = get(client, &path).await?;
        let Some(deployment) = deployment else { bail!("deployment.apps/{name} is gone") };
        let (mut state, failed) = match of(&deployment) {
            Rollout::Done => return Ok(()),
            Rollout::Waiting(state) => (state, false),
            Rollout::Failed(state) => (state, true),
        };
        // Old pods stay for as long as new ones do not start: that is what people have to know.
        if let Some(trouble) = reason::trouble(client, namespace, &deployment).await {
            state = format!("{state}; {trouble}");
        }
        if failed || Instant::now() >= until {
            let why = reason::find(client, namespace, &deployment, has_nodes).await;
            bail!("deployment.apps/{name} is not rolled out after {} s: {state}\n{why}", timeout.as_secs());
        }
        if told != state {
            output::note(format_args!("deployment.apps/{name}: {state}"));
            told = state;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Why nothing runs on simulated nodes, and what to do.
pub(crate) const SIMULATED: &str = "the nodes of this cluster only simulate pods. `windlass up --runtime container`, as root, starts a cluster whose pods \
     run; `windlass run` runs the operator on this machine";
/// Why no operator works in pods that are processes, and what to do.
const PROCESSES: &str = "the pods of this cluster are plain processes (`windlass up --runtime process`): a deployed operator finds neither its \
     ServiceAccount's token nor the API server there, and its webhooks cannot be reached. Start the cluster again with \
     `windlass down` and `windlass up --runtime container`, as root, or run the operator on this machine with `windlass run`";
/// How many nodes are read at once.
const PAGE: u32 = 500;

/// What the nodes of a cluster do with pods.
///
/// In this order: the best node of a cluster decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Nodes {
    None,
    /// They say that containers run, and run none.
    Simulated,
    /// Pods are processes of the machine, in its network.
    Processes,
    RunPods,
}

impl Nodes {
    fn of(node: &Node) -> Self {
        if windlass_node::is_simulated(node) {
            Self::Simulated
        } else if windlass_node::runs_host_processes(node) {
            Self::Processes
        } else {
            Self::RunPods
        }
    }

    /// Why an operator does not work in the pods of these nodes, and what to do.
    fn obstacle(self) -> Option<&'static str> {
        match self {
            Self::Simulated => Some(SIMULATED),
            Self::Processes => Some(PROCESSES),
            Self::None | Self::RunPods => None,
        }
    }
}

/// Fails if an operator that is deployed would start and fail again and again.
pub(crate) async fn refuse_processes(client: &kube::Client) -> Result<()> {
    match nodes(client).await {
        Nodes::Processes => bail!("an operator cannot be deployed here: {PROCESSES}"),
        _ => Ok(()),
    }
}

/// Looks at the nodes. Users who may not read them are given the benefit of the doubt.
pub(crate) async fn nodes(client: &kube::Client) -> Nodes {
    let api: Api<Node> = Api::all(client.clone());
    let (mut found, mut page) = (Nodes::None, ListParams::default().limit(PAGE));
    loop {
        let Ok(list) = api.list(&page).await else { return Nodes::RunPods };
        found = judge(found, &list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) if found != Nodes::RunPods => page = page.continue_token(&token),
            _ => return found,
        }
    }
}

fn judge(before: Nodes, nodes: &[Node]) -> Nodes {
    nodes.iter().map(Nodes::of).fold(before, Ord::max)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn simulated_nodes_run_no_pods() {
        let simulated = windlass_node::simulated("node-0", 0);
        assert_eq!(judge(Nodes::None, &[]), Nodes::None);
        assert_eq!(judge(Nodes::None, std::slice::from_ref(&simulated)), Nodes::Simulated);
        assert_eq!(judge(Nodes::Simulated, &[]), Nodes::Simulated);
        assert_eq!(judge(Nodes::None, &[simulated, Node::default()]), Nodes::RunPods);
    }

    #[test]
    fn processes_run_no_operators() {
        let condition = json!({"type": "ContainersIsolated", "status": "False", "reason": "ProcessesOfTheHost"});
        let node = json!({"metadata": {"name": "here"}, "status": {"conditions": [condition]}});
        let processes: Node = serde_json::from_value(node).expect("a node");
        let simulated = windlass_node::simulated("node-0", 0);
        assert_eq!(judge(Nodes::None, &[simulated, processes.clone()]), Nodes::Processes);
        assert_eq!(judge(Nodes::Processes, &[Node::default()]), Nodes::RunPods);
        assert_eq!(judge(Nodes::RunPods, &[processes]), Nodes::RunPods);
        let why = Nodes::Processes.obstacle().expect("an obstacle");
        assert!(why.contains("`windlass up --runtime container`"), "{why}");
    }

    #[test]
    fn a_rollout_is_judged_as_kubectl_does() {
        let deployment = |generation: u8, status: Value| {
            json!({
                "metadata": {"generation": generation}, "spec": {"replicas": 2}, "status": status,
            })
        };
        let waiting = |text: &str| Rollout::Waiting(text.to_owned());
        let status = |updated: u8, all: u8, available: u8| {
            json!({
                "observedGeneration": 2, "updatedReplicas": updated, "replicas": all, "availableReplicas": available,
            })
        };
        assert_eq!(of(&deployment(3, status(2, 2, 2))), waiting("the change has not been seen yet"));
        assert_eq!(of(&deployment(2, status(1, 2, 2))), waiting("1 of 2 replicas have the new version"));
        assert_eq!(of(&deployment(2, status(2, 3, 2))), waiting("1 replicas of the old version are ending"));
        assert_eq!(of(&deployment(2, status(2, 2, 1))), waiting("1 of 2 replicas are available"));
        assert_eq!(of(&deployment(2, status(2, 2, 2))), Rollout::Done);
        let late = json!({"observedGeneration": 2, "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too late"},
        ]});
        assert_eq!(of(&deployment(2, late)), Rollout::Failed("too late".into()));
    }
}
