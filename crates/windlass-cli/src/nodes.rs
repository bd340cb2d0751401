//! `windlass nodes`: simulated nodes of a cluster that runs. A node is simulated by its annotation, so that adding one is
//! creating an object.

use std::collections::{BTreeMap, HashSet};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass::quantity::Amount;

use crate::against::target::Target;
use crate::against::{self, POLL, is_missing, message};
use crate::args::{ListFormat, Nodes, NodesAdd, NodesList, NodesRemove};
use crate::output;

/// Requests that are under way at the same time.
const AT_ONCE: usize = 32;

pub(crate) fn run(args: &Nodes) -> Result<ExitCode> {
    match args {
        Nodes::Add(args) => against::block_on(add(args)),
        Nodes::Remove(args) => against::block_on(remove(args)),
        Nodes::List(args) => against::block_on(list(args)),
    }
}

async fn add(args: &NodesAdd) -> Result<ExitCode> {
    let capacity = capacity(args)?;
    let target = Target::connect(&args.target).await?;
    let nodes: Api<Node> = Api::all(target.client.clone());
    if let Some(machine) = nodes.list(&ListParams::default()).await?.iter().find(|node| is_machine(node)) {
        let name = machine.metadata.name.as_deref().unwrap_or_default();
        bail!(
            "the pods of this cluster really run, on the node {name}, which is this machine: nothing simulates nodes beside it; \
             `windlass up --name sim --nodes {}` starts another cluster, with simulated nodes",
            args.count
        );
    }
    let made = |number: u32| {
        let mut node = windlass_node::simulated(&format!("{}{number}", args.prefix), number);
        node.metadata.labels.get_or_insert_default().extend(args.labels.clone());
        let status = node.status.get_or_insert_default();
        (status.capacity, status.allocatable) = (Some(capacity.clone()), Some(capacity.clone()));
        node
    };
    let mut added: Vec<String> = Vec::new();
    // A name that was free when the nodes were listed may be taken by now: a cluster that has just started creates its own.
    let mut taken = names(&nodes).await?;
    while added.len() < args.count as usize {
        let free = (0..).filter(|number| !taken.contains(&format!("{}{number}", args.prefix)));
        let numbers: Vec<u32> = free.take(AT_ONCE.min(args.count as usize - added.len())).collect();
        let created = numbers.iter().map(|number| {
            let node = made(*number);
            let nodes = &nodes;
            async move { nodes.create(&PostParams::default(), &node).await }
        });
        for created in join_all(created).await {
            match created {
                Ok(node) => {
                    taken.extend(node.metadata.name.clone());
                    added.extend(node.metadata.name);
                }
                Err(kube::Error::Api(status)) if status.is_already_exists() => taken = names(&nodes).await?,
                Err(error) => bail!("a node cannot be created: {}", message(&error)),
            }
        }
    }
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    loop {
        let all = nodes.list(&ListParams::default()).await?.items;
        let unready = all
            .iter()
            .filter(|node| node.metadata.name.as_ref().is_some_and(|name| added.contains(name)) && !is_ready(node));
        let unready = unready.count();
        if unready == 0 {
            break;
        }
        if Instant::now() > deadline {
            bail!("{unready} nodes are not ready; does the cluster simulate nodes? `windlass up --nodes 0` does not");
        }
        tokio::time::sleep(POLL).await;
    }
    match &added[..] {
        [name] => output::line(format_args!("node {name} is ready")),
        [first, .., last] => output::line(format_args!("{} nodes are ready: {first} to {last}", added.len())),
        [] => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn capacity(args: &NodesAdd) -> Result<BTreeMap<String, Quantity>> {
    let quantity = |name: &str, text: &str| -> Result<(String, Quantity)> {
        text.parse::<Amount>().with_context(|| format!("{name}: {text:?} is not a quantity"))?;
        Ok((name.to_owned(), Quantity(text.to_owned())))
    };
    let pods = args.pods.to_string();
    [("cpu", &*args.cpu), ("memory", &*args.memory), ("pods", &*pods), ("ephemeral-storage", "1Ti")]
        .into_iter()
        .map(|(name, text)| quantity(name, text))
        .collect()
}

async fn names(nodes: &Api<Node>) -> Result<HashSet<String>> {
    let listed = nodes.list_metadata(&ListParams::default()).await?;
    Ok(listed.items.into_iter().filter_map(|node| node.metadata.name).collect())
}

/// Whether a node is a machine of `windlass up --runtime`.
fn is_machine(node: &Node) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    !windlass_node::is_simulated(node)
        && info.is_some_and(|info| info.container_runtime_version.starts_with("windlass://"))
}

fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn remove(args: &NodesRemove) -> Result<ExitCode> {
    let target = Target::connect(&args.target).await?;
    let nodes: Api<Node> = Api::all(target.client.clone());
    for name in &args.names {
        let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
        if let Err(error) = nodes.patch(name, &PatchParams::default(), &cordon).await {
            if is_missing(&error) {
                bail!("there is no node {name:?}");
            }
            return Err(error.into());
        }
    }
    for name in &args.names {
        if !args.force {
            drain(&target.client, name, Duration::from_secs(args.timeout)).await?;
        }
        match nodes.delete(name, &DeleteParams::default()).await {
            Err(error) if !is_missing(&error) => return Err(error.into()),
            _ => output::line(format_args!("node {name} is removed")),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Evicts the pods of a node, but for those that a DaemonSet would start again, and waits until they are gone.
async fn drain(client: &kube::Client, node: &str, timeout: Duration) -> Result<()> {
    let all: Api<Pod> = Api::all(client.clone());
    let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let deadline = Instant::now() + timeout;
    loop {
        let pods = all.list(&here).await?.items;
        let stays = |pod: &Pod| pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "DaemonSet");
        let leaving: Vec<&Pod> = pods.iter().filter(|pod| !stays(pod)).collect();
        if leaving.is_empty() {
            return Ok(());
        }
        let mut refused = None;
        for pod in leaving.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let (Some(namespace), Some(name)) = (&pod.metadata.namespace, &pod.metadata.name) else { continue };
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            match pods.evict(name, &EvictParams::default()).await {
                // A budget does not allow it now.
                Err(kube::Error::Api(status)) if status.code == 429 => refused = Some(status.message.clone()),
                Err(error) if !is_missing(&error) => return Err(error.into()),
                _ => {}
            }
        }
        if Instant::now() > deadline {
            let why = refused.map(|why| format!(": {why}")).unwrap_or_default();
            bail!("{} pods are still on node {node}{why}", leaving.len());
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn list(args: &NodesList) -> Result<ExitCode> {
    let target = Target::connect(&args.target).await?;
    let nodes: Api<Node> = Api::all(target.client.clone());
    let nodes = nodes.list(&ListParams::default()).await?.items;
    let row = |node: &Node| {
        let label = |name: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(name)).cloned();
        let capacity = node.status.as_ref().and_then(|status| status.allocatable.clone()).unwrap_or_default();
        let amount = |name: &str| capacity.get(name).map(|quantity| quantity.0.clone());
        json!({
            "name": node.metadata.name, "ready": is_ready(node), "simulated": windlass_node::is_simulated(node),
            "zone": label("topology.kubernetes.io/zone"),
            "cpu": amount("cpu"), "memory": amount("memory"), "pods": amount("pods"),
        })
    };
    let rows: Vec<Value> = nodes.iter().map(row).collect();
    match args.output {
        ListFormat::Json => output::json(&rows.into()),
        ListFormat::Yaml => output::yaml(&rows.into()),
        ListFormat::Table if rows.is_empty() => output::line("no nodes; add some with `windlass nodes add`"),
        ListFormat::Table => {
            let line = |cells: [&str; 6]| {
                let [name, state, zone, cpu, memory, pods] = cells;
                output::line(format_args!("{name:<24} {state:<9} {zone:<8} {cpu:<6} {memory:<9} {pods}"));
            };
            line(["NAME", "STATE", "ZONE", "CPU", "MEMORY", "PODS"]);
            for row in &rows {
                let text = |field: &str| row[field].as_str().unwrap_or_default();
                let state = if row["ready"] == true { "ready" } else { "not ready" };
                line([text("name"), state, text("zone"), text("cpu"), text("memory"), text("pods")]);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
