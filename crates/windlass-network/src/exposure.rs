//! Services on the machine's own addresses: which ports are listened on, and what they lead to. Pure functions.
//!
//! | what | where |
//! |---|---|
//! | a NodePort | `127.0.0.1`, so that `localhost:30080` works |
//! | a Service of type `LoadBalancer` | a loopback address of its own, which is also in its status |
//! | a `hostPort` of a pod | `127.0.0.1` |

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::services::{Directory, Protocol, ServiceName};

/// A port of the machine that leads to an address inside the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exposed {
    /// The protocol: TCP or UDP.
    pub protocol: Protocol,
    /// Where the machine listens.
    pub listen: SocketAddr,
    /// Where connections go.
    pub target: SocketAddr,
    /// The Service, if it is one's.
    pub service: Option<ServiceName>,
}

/// What is to be listened on, with the addresses of Services of type `LoadBalancer`. A port that two want is the first's.
pub fn exposed(
    directory: &Directory,
    balancers: &BTreeMap<ServiceName, Ipv4Addr>,
    host_ports: &BTreeMap<(Protocol, u16), SocketAddr>,
) -> BTreeSet<Exposed> {
    let (mut found, mut taken) = (BTreeSet::new(), BTreeSet::new());
    let mut add = |exposed: Exposed| {
        if exposed.protocol != Protocol::Sctp && taken.insert((exposed.protocol, exposed.listen)) {
            found.insert(exposed);
        }
    };
    for (name, service) in directory.iter() {
        let Some(own) = service.cluster_ips().iter().find(|address| address.is_ipv4()) else { continue };
        for port in &service.ports {
            let balancer = balancers.get(name).map(|address| (*address, port.port));
            let node = port.node_port.map(|port| (Ipv4Addr::LOCALHOST, port));
            for listen in balancer.into_iter().chain(node) {
                let target = SocketAddr::new(*own, port.port);
                add(Exposed { protocol: port.protocol, listen: listen.into(), target, service: Some(name.clone()) });
            }
        }
    }
    for ((protocol, port), target) in host_ports {
        let listen = (Ipv4Addr::LOCALHOST, *port).into();
        add(Exposed { protocol: *protocol, listen, target: *target, service: None });
    }
    found
}

/// The loopback addresses of Services of type `LoadBalancer`. Each cluster has its own range, so that the same port of two
/// clusters can be listened on.
#[derive(Debug)]
pub struct Balancers {
    /// The first two numbers of all addresses.
    range: [u8; 2],
    given: BTreeMap<ServiceName, Ipv4Addr>,
}

impl Balancers {
    /// The addresses of a cluster.
    pub fn new(cluster: &str) -> Self {
        // 127.0 is what everybody else uses.
        let second = 64 + (hash(cluster) % 128) as u8;
        Self { range: [127, second], given: BTreeMap::new() }
    }

    /// The address of a Service: the one that it has, if that can be, or else one that follows from its name.
    pub fn give(&mut self, name: &ServiceName, known: Option<IpAddr>) -> Ipv4Addr {
        if let Some(given) = self.given.get(name) {
            return *given;
        }
        let is_taken = |address: &Ipv4Addr| self.given.values().any(|given| given == address);
        let known = match known {
            Some(IpAddr::V4(known)) if known.octets()[..2] == self.range && !is_taken(&known) => Some(known),
            _ => None,
        };
        let start = hash(&name.to_string()) as u16;
        let candidates = (0..=u16::MAX).map(|step| {
            let [third, fourth] = start.wrapping_add(step).to_be_bytes();
            Ipv4Addr::new(self.range[0], self.range[1], third, fourth.max(1))
        });
        let free = || candidates.into_iter().find(|address| !is_taken(address));
        let address = known.or_else(free).unwrap_or(Ipv4Addr::LOCALHOST);
        self.given.insert(name.clone(), address);
        address
    }

    /// A Service needs no address any more. Whether it had one.
    pub fn take(&mut self, name: &ServiceName) -> bool {
        self.given.remove(name).is_some()
    }

    /// The addresses that Services have.
    pub fn given(&self) -> &BTreeMap<ServiceName, Ipv4Addr> {
        &self.given
    }
}

/// A number that follows from a text: FNV-1a.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::services::Service;

    #[test]
    fn node_ports_and_balancers_are_exposed() {
        let mut directory = Directory::default();
        for (name, own) in [("web", "10.96.0.7"), ("api", "10.96.0.8")] {
            let spec = json!({"type": "LoadBalancer", "clusterIP": own, "ports": [{"port": 80, "nodePort": 30080}]});
            let service = serde_json::from_value(json!({"spec": spec})).expect("a service");
            directory.set(&ServiceName::new("default", name), Some(Service::new(&service, [])));
        }
        let web = ServiceName::new("default", "web");
        let balancers = BTreeMap::from([(web.clone(), Ipv4Addr::new(127, 80, 1, 2))]);
        let pod: SocketAddr = "10.244.0.5:8080".parse().expect("an address");
        let host_ports = BTreeMap::from([((Protocol::Tcp, 30080), pod), ((Protocol::Udp, 53), pod)]);
        let found = exposed(&directory, &balancers, &host_ports);
        let show = |one: &Exposed| format!("{} {} {}", one.protocol.as_str(), one.listen, one.target);
        let found: Vec<String> = found.iter().map(show).collect();
        // The node port is that of the first Service, and not that of the pod.
        let expected =
            ["tcp 127.0.0.1:30080 10.96.0.8:80", "tcp 127.80.1.2:80 10.96.0.7:80", "udp 127.0.0.1:53 10.244.0.5:8080"];
        assert_eq!(found, expected);
    }

    #[test]
    fn balancers_keep_their_address_and_never_share_one() {
        let name = |n: u32| ServiceName::new("default", format!("web-{n}"));
        let mut balancers = Balancers::new("dev");
        let all: BTreeSet<Ipv4Addr> = (0..500).map(|n| balancers.give(&name(n), None)).collect();
        assert_eq!(all.len(), 500);
        assert!(all.iter().all(|address| address.is_loopback() && address.octets()[3] != 0));
        let first = balancers.give(&name(0), None);
        // After a restart, in another order.
        let mut again = Balancers::new("dev");
        assert_eq!(again.give(&name(1), Some(first.into())), first);
        assert_ne!(again.give(&name(0), Some(first.into())), first);
        // An address of another range is not taken over.
        assert_ne!(again.give(&name(2), Some(Ipv4Addr::LOCALHOST.into())), Ipv4Addr::LOCALHOST);
        assert!(again.take(&name(2)) && !again.take(&name(2)));
    }
}
