//! A node whose pods really run: this machine.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use windlass::Manager;
use windlass::manager::ManagerError;
use windlass_node::Runtime;
use windlass_server::dialer::{Dialer, Dialing};

/// Makes the runtime of a node, with the client that acts as the node.
pub type MakeRuntime = Arc<dyn Fn(kube::Client) -> Arc<dyn Runtime> + Send + Sync>;

/// The network that the pods of a machine are in, if it is not the machine's own.
pub trait MachineNetwork: Dialer {
    /// Adds what keeps the network current to the manager of the cluster's controllers.
    fn add_to(&self, manager: &mut Manager) -> Result<(), ManagerError>;
}

/// Connects the API server to addresses of a machine's network.
pub(crate) struct Dials(pub(crate) Arc<dyn MachineNetwork>);

impl Dialer for Dials {
    fn dial(&self, address: SocketAddr) -> Option<Dialing> {
        self.0.dial(address)
    }
}

/// How many pods the node takes.
const PODS: u32 = 250;

/// A node whose pods really run.
#[derive(Clone)]
pub struct Machine {
    pub(crate) name: String,
    pub(crate) runtime: MakeRuntime,
    pub(crate) network: Option<Arc<dyn MachineNetwork>>,
    pub(crate) volumes: Option<PathBuf>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Machine {
    /// A node of this name, whose pods a runtime runs.
    pub fn new(name: impl Into<String>, runtime: MakeRuntime) -> Self {
        Self { name: name.into(), runtime, network: None, volumes: None }
    }

    /// Has the volumes that are made for claims in this directory, each in one of its own, which is deleted with it.
    #[must_use]
    pub fn volumes(mut self, dir: impl Into<PathBuf>) -> Self {
        self.volumes = Some(dir.into());
        self
    }

    /// Its pods are in this network: the API server reaches them there, and the cluster's controllers keep it current.
    #[must_use]
    pub fn network(mut self, network: Arc<dyn MachineNetwork>) -> Self {
        self.network = Some(network);
        self
    }

    /// The Node as it is created, with what this machine has.
    pub(crate) fn node(&self) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(self.name.clone());
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let has: BTreeMap<String, Quantity> = [
            ("cpu", cpus.to_string()),
            ("memory", format!("{}Ki", memory_kib().unwrap_or(4 << 20))),
            ("pods", PODS.to_string()),
            ("ephemeral-storage", "100Gi".to_owned()),
        ]
        .map(|(name, amount)| (name.to_owned(), Quantity(amount)))
        .into();
        node.status = Some(NodeStatus { capacity: Some(has.clone()), allocatable: Some(has), ..NodeStatus::default() });
        node
    }
}

/// The memory of this machine.
fn memory_kib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_has_what_the_machine_has() {
        let machine = Machine::new("here", Arc::new(|_| Arc::new(windlass_node::Simulation::new())));
        let node = machine.node();
        let capacity = node.status.and_then(|status| status.capacity).unwrap_or_default();
        assert_eq!(node.metadata.name.as_deref(), Some("here"));
        assert_eq!(capacity.get("pods"), Some(&Quantity("250".to_owned())));
        assert!(capacity.contains_key("cpu") && capacity.contains_key("memory"));
    }
}
