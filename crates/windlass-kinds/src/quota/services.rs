//! What services use: themselves, node ports, load balancers.

use serde_json::Value;

use super::{Amounts, one};
use crate::validation::access::Access as _;
use crate::validation::quantity::Quantity;

const NAMES: [&str; 4] = ["count/services", "services", "services.nodeports", "services.loadbalancers"];

pub(super) fn measures(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Node ports may not be assigned yet, so what counts is the intent.
pub(super) fn usage(service: &Value) -> Amounts {
    let spec = service.at("spec");
    let ports = spec.list("ports");
    let (node_ports, balancers) = match spec.text("type") {
        "NodePort" => (ports.len(), 0),
        "LoadBalancer" if spec.flag_opt("allocateLoadBalancerNodePorts") == Some(false) => {
            (ports.iter().filter(|port| port.int("nodePort") != 0).count(), 1)
        }
        "LoadBalancer" => (ports.len(), 1),
        _ => (0, 0),
    };
    let [count, services, nodes, balanced] = NAMES.map(str::to_owned);
    Amounts::from([
        (count, one()),
        (services, one()),
        (nodes, Quantity::from_int(node_ports as i64)),
        (balanced, Quantity::from_int(balancers)),
    ])
}
