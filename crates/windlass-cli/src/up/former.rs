//! Nodes that a cluster has left from a run with another `--runtime`: nothing runs their pods any more, but for a while they
//! would still get new ones.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};

/// Deletes these nodes and the pods that are bound to them. Controllers make others in their place. Returns the names.
pub(super) async fn remove(client: Client, is_former: impl Fn(&Node) -> bool) -> Result<Vec<String>> {
    let nodes: Api<Node> = Api::all(client.clone());
    let all = nodes.list(&ListParams::default()).await.context("cannot list the nodes of the cluster")?;
    let former: Vec<String> = all.iter().filter(|node| is_former(node)).map(ResourceExt::name_any).collect();
    if former.is_empty() {
        return Ok(former);
    }
    let is_gone = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 404);
    for name in &former {
        match nodes.delete(name, &DeleteParams::default()).await {
            Err(error) if !is_gone(&error) => {
                return Err(error).with_context(|| format!("cannot delete the node {name}, which is no more"));
            }
            _ => {}
        }
    }
    let pods: Api<Pod> = Api::all(client.clone());
    for pod in pods.list(&ListParams::default()).await.context("cannot list the pods of the cluster")? {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        let (Some(namespace), true) = (pod.namespace(), node.is_some_and(|node| former.contains(node))) else {
            continue;
        };
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        // Its end would not be confirmed.
        match pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await {
            Err(error) if !is_gone(&error) => {
                tracing::warn!(%namespace, pod = %pod.name_any(), %error, "a pod of a former node cannot be deleted");
            }
            _ => {}
        }
    }
    Ok(former)
}
