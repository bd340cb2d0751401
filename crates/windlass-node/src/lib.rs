//! Nodes: what a kubelet is to Kubernetes, behind one seam for what runs a container.
//!
//! [`Agent`] keeps nodes and runs the pods that are bound to them. What carries that out is a [`Runtime`]: the
//! [`Simulation`], whose containers only start, become ready and end as annotations say. Thousands of simulated nodes
//! share one agent, one watch and one queue.
//!
//! A Node is simulated if it has the annotation [`SIMULATED`] or kwok's.

// Compiled there once, instead of here and in every test.
use windlass_codecs as _;

pub mod access;
pub mod probes;
pub mod runtime;
pub mod simulation;
pub mod tokens;
pub mod volumes;

mod agent;
mod api;
mod containers;
mod events;
mod insecure_tls;
mod network;
mod pod;
mod resources;

use k8s_openapi::api::core::v1::Node;

pub use access::PodAccess;
pub use agent::Agent;
pub use api::ActingNode;
pub use runtime::Runtime;
pub use simulation::Simulation;

/// The annotation of Nodes that are simulated; its value is `true`.
pub const SIMULATED: &str = "node.windlass.dev/simulated";

/// The annotation that makes a simulated node behave as if it had been switched off while its value is `true`: no lease, no
/// status, and its pods stay as they are.
pub const UNRESPONSIVE: &str = "node.windlass.dev/unresponsive";

/// The annotation that kwok has for simulated nodes; its value is `fake`.
const KWOK: &str = "kwok.x-k8s.io/node";

/// The condition of Nodes whose containers share more with their machine than they should; its status is `False`.
pub const CONTAINERS_ISOLATED: &str = "ContainersIsolated";

/// The reason of [`CONTAINERS_ISOLATED`] where containers are plain processes of the machine, with its network.
pub const HOST_PROCESSES: &str = "ProcessesOfTheHost";

/// Whether the containers of a Node are plain processes of its machine, by its conditions.
///
/// ```
/// use k8s_openapi::api::core::v1::Node;
/// use serde_json::json;
///
/// let condition = json!({"type": "ContainersIsolated", "status": "False", "reason": "ProcessesOfTheHost"});
/// let node: Node = serde_json::from_value(json!({"metadata": {}, "status": {"conditions": [condition]}}))?;
/// assert!(windlass_node::runs_host_processes(&node));
/// assert!(!windlass_node::runs_host_processes(&Node::default()));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn runs_host_processes(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut not_isolated = conditions.filter(|one| one.type_ == CONTAINERS_ISOLATED && one.status == "False");
    not_isolated.any(|one| one.reason.as_deref() == Some(HOST_PROCESSES))
}

/// Whether a Node is simulated, by its annotations.
///
/// ```
/// use k8s_openapi::api::core::v1::Node;
///
/// let mut node = windlass_node::simulated("node-7", 7);
/// assert!(windlass_node::is_simulated(&node));
/// node.metadata.annotations = None;
/// assert!(!windlass_node::is_simulated(&node));
/// ```
pub fn is_simulated(node: &Node) -> bool {
    let annotation = |name: &str| node.metadata.annotations.as_ref().and_then(|all| all.get(name)).map(String::as_str);
    annotation(SIMULATED) == Some("true") || annotation(KWOK) == Some("fake")
}

/// A simulated Node, to be created: with the labels and the capacity of the nth, in one of three zones. Its pod range and
/// its address follow when an agent adopts it.
pub fn simulated(name: &str, ordinal: u32) -> Node {
    agent::simulated(name, ordinal)
}

impl Agent<Simulation> {
    /// An agent for all Nodes that [are simulated](is_simulated).
    pub fn simulated(client: kube::Client) -> Self {
        Self::new(Simulation::new(), client, is_simulated)
    }
}
