//! From Services to packet filter rules: a pure function.
//!
//! | chain | what happens there |
//! |---|---|
//! | `prerouting`, `output` | connections to a Service's address or a node's port go to the Service's chain |
//! | `service/NAMESPACE/NAME/PROTOCOL/PORT` | one of the endpoints is chosen |
//! | `endpoint/...` | for Services with session affinity: the client is remembered, then forwarded |
//! | `postrouting` | a pod that reaches itself through a Service appears to come from the node |
//! | `forward`, `reject` | what is for a Service's address and has not been forwarded is refused: no such port, or no endpoint |
//! | `ingress/ADDRESS`, `egress/ADDRESS` | what a NetworkPolicy does not allow is dropped |

mod isolation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::netlink::nft::{Chain, Expression as Do, Hook, Ruleset, Set, SetKind, Type, Verdict, protocol_port};
use crate::policy::Policies;
use crate::range::Range;
use crate::services::{Directory, Port, Protocol, Service, ServiceName};

const SERVICES: &str = "services";
const NODE_PORTS: &str = "node-ports";
const HAIRPIN: &str = "hairpin";

/// What rules depend on besides Services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// Where Services have their addresses.
    pub services: Option<Range>,
    /// Where the pods of each node have theirs.
    pub nodes: BTreeMap<String, Range>,
    /// Addresses and ports of Services that programs of this process answer, and where these listen inside the cluster's
    /// namespace.
    pub local: BTreeMap<(Protocol, SocketAddrV4), SocketAddrV4>,
    /// Ports of the node that lead to a pod.
    pub host_ports: BTreeMap<(Protocol, u16), SocketAddrV4>,
    /// Where TCP connections that leave the cluster are sent, if they may.
    pub egress: Option<SocketAddrV4>,
    /// What isolates pods.
    pub policies: Policies,
}

pub(crate) fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

/// The rules for these Services.
pub(crate) fn ruleset(directory: &Directory, layout: &Layout) -> Ruleset {
    let mut building = Building::default();
    for (name, service) in directory.iter() {
        for port in &service.ports {
            building.port(name, service, port, layout);
        }
    }
    for ((protocol, service), local) in &layout.local {
        let chain = format!("local/{service}/{}", protocol.as_str());
        building.chain(&chain, vec![vec![Do::Forward(*local.ip(), local.port())]]);
        building.services.insert(service_key(*service, *protocol), Verdict::Goto(chain));
    }
    for ((protocol, port), pod) in &layout.host_ports {
        let chain = format!("host-port/{}/{port}", protocol.as_str());
        building.chain(&chain, vec![vec![Do::Forward(*pod.ip(), pod.port())]]);
        building.node_ports.entry(protocol_port(number(*protocol), *port)).or_insert(Verdict::Goto(chain));
        building.hairpin.insert(*pod.ip());
    }
    building.finish(layout)
}

#[derive(Default)]
struct Building {
    ruleset: Ruleset,
    services: BTreeMap<Vec<u8>, Verdict>,
    node_ports: BTreeMap<Vec<u8>, Verdict>,
    hairpin: BTreeSet<Ipv4Addr>,
}

impl Building {
    fn chain(&mut self, name: &str, rules: Vec<Vec<Do>>) {
        self.ruleset.chains.insert(name.to_owned(), Chain { hook: None, rules });
    }

    fn port(&mut self, name: &ServiceName, service: &Service, port: &Port, layout: &Layout) {
        let backends = port.backends.iter();
        let targets: Vec<(SocketAddrV4, Option<&str>)> =
            backends.filter_map(|one| Some((four(one.address)?, one.node.as_deref()))).collect();
        let addresses = service.cluster_ips().iter().chain(&service.external_ips);
        let addresses: Vec<Ipv4Addr> =
            addresses.filter_map(|one| if let IpAddr::V4(address) = one { Some(*address) } else { None }).collect();
        if targets.is_empty() || (addresses.is_empty() && port.node_port.is_none()) {
            return;
        }
        let id = format!("{name}/{}/{}", port.protocol.as_str(), port.port);
        let chain = format!("service/{id}");
        let rules = match service.affinity {
            _ if service.local_only => local_rules(&targets, layout),
            Some(time) if targets.len() > 1 => self.affine(&id, &targets, time.as_millis() as u64),
            _ => vec![choose(targets.iter().map(|(target, _)| *target))],
        };
        self.chain(&chain, rules);
        for address in addresses {
            let key = service_key(SocketAddrV4::new(address, port.port), port.protocol);
            self.services.insert(key, Verdict::Goto(chain.clone()));
        }
        if let Some(port_of_node) = port.node_port {
            let key = protocol_port(number(port.protocol), port_of_node);
            self.node_ports.insert(key, Verdict::Goto(chain));
        }
        self.hairpin.extend(targets.iter().map(|(target, _)| *target.ip()));
    }

    /// Each endpoint has a chain that remembers its clients; clients that are remembered go there again.
    fn affine(&mut self, id: &str, targets: &[(SocketAddrV4, Option<&str>)], milliseconds: u64) -> Vec<Vec<Do>> {
        let (mut known, mut new) = (Vec::new(), Vec::new());
        for (at, (target, _)) in targets.iter().enumerate() {
            let (set, chain) = (format!("affinity/{id}/{target}"), format!("endpoint/{id}/{target}"));
            self.ruleset.sets.insert(set.clone(), Set { key: Type::Address, kind: SetKind::Dynamic(milliseconds) });
            let remember = vec![Do::Remember(set.clone()), Do::Forward(*target.ip(), target.port())];
            self.chain(&chain, vec![remember]);
            known.push(vec![Do::FromSet(set), Do::Verdict(Verdict::Goto(chain.clone()))]);
            let left = (targets.len() - at) as u32;
            let mut rule = if left > 1 { vec![Do::OneIn(left)] } else { Vec::new() };
            rule.push(Do::Verdict(Verdict::Goto(chain)));
            new.push(rule);
        }
        known.extend(new);
        known
    }

    fn finish(mut self, layout: &Layout) -> Ruleset {
        let verdicts = |key, elements| Set { key, kind: SetKind::Verdicts(elements) };
        let hairpin = self.hairpin.iter().map(|address| [address.octets(), address.octets()].concat()).collect();
        let sets = &mut self.ruleset.sets;
        sets.insert(SERVICES.to_owned(), verdicts(Type::AddressProtocolPort, self.services));
        sets.insert(NODE_PORTS.to_owned(), verdicts(Type::ProtocolPort, self.node_ports));
        sets.insert(HAIRPIN.to_owned(), Set { key: Type::Addresses, kind: SetKind::Keys(hairpin) });

        let forward =
            vec![vec![Do::Service(SERVICES.to_owned())], vec![Do::ToLocal, Do::NodePort(NODE_PORTS.to_owned())]];
        let mut incoming = forward.clone();
        if let Some(egress) = layout.egress {
            incoming.push(vec![Do::ToLocal, Do::Verdict(Verdict::Accept)]);
            let inside = layout.services.iter().chain(layout.nodes.values());
            let mut rule: Vec<Do> = inside.map(|range| Do::NotTo(*range)).collect();
            rule.extend([Do::Protocol(6), Do::Forward(*egress.ip(), egress.port())]);
            incoming.push(rule);
        }
        let mut refuse = Vec::new();
        if let Some(range) = layout.services {
            refuse.push(vec![Do::To(range), Do::Protocol(6), Do::RejectTcp]);
            refuse.push(vec![Do::To(range), Do::Reject]);
        }
        let accepted = vec![Do::Established, Do::Verdict(Verdict::Accept)];
        let mut passing = vec![accepted.clone()];
        passing.extend(refuse.clone());
        if !layout.policies.is_empty() {
            // A pod always reaches itself, also through a Service.
            passing.push(vec![Do::FromTo(HAIRPIN.to_owned()), Do::Verdict(Verdict::Accept)]);
            passing.extend(isolation::add(&mut self.ruleset, &layout.policies));
            let rules = isolation::input(accepted, layout);
            self.ruleset.chains.insert("input".to_owned(), Chain { hook: Some(Hook::FilterIn), rules });
        }
        let masquerade = vec![vec![Do::FromTo(HAIRPIN.to_owned()), Do::Masquerade]];
        for (name, hook, rules) in [
            ("prerouting", Hook::DestinationIn, incoming),
            ("output", Hook::DestinationOut, forward),
            ("postrouting", Hook::Source, masquerade),
            ("forward", Hook::FilterForward, passing),
            ("reject", Hook::FilterOut, refuse),
        ] {
            self.ruleset.chains.insert(name.to_owned(), Chain { hook: Some(hook), rules });
        }
        self.ruleset
    }
}

/// A Service's address and port, as a key.
fn service_key(service: SocketAddrV4, protocol: Protocol) -> Vec<u8> {
    let mut key = service.ip().octets().to_vec();
    key.extend(protocol_port(number(protocol), service.port()));
    key
}

fn four(address: SocketAddr) -> Option<SocketAddrV4> {
    if let SocketAddr::V4(address) = address { Some(address) } else { None }
}

/// Sends a connection to one of several addresses.
fn choose(targets: impl Iterator<Item = SocketAddrV4>) -> Vec<Do> {
    let targets: Vec<(Ipv4Addr, u16)> = targets.map(|target| (*target.ip(), target.port())).collect();
    match targets[..] {
        [(address, port)] => vec![Do::Forward(address, port)],
        _ => vec![Do::Choose(targets)],
    }
}

/// Pods only reach endpoints of their own node. Clients that are on no node, such as the API server, reach all of them.
fn local_rules(targets: &[(SocketAddrV4, Option<&str>)], layout: &Layout) -> Vec<Vec<Do>> {
    let mut rules = Vec::new();
    for (node, range) in &layout.nodes {
        let near: Vec<SocketAddrV4> =
            targets.iter().filter(|(_, on)| *on == Some(node.as_str())).map(|(target, _)| *target).collect();
        let mut rule = vec![Do::From(*range)];
        if near.is_empty() {
            rule.push(Do::Verdict(Verdict::Drop));
        } else {
            rule.extend(choose(near.into_iter()));
        }
        rules.push(rule);
    }
    rules.push(choose(targets.iter().map(|(target, _)| *target)));
    rules
}
