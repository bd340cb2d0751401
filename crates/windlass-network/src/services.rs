//! What a Service and its EndpointSlices say, as one value: [`Service`]; and all Services of a cluster: [`Directory`].
//!
//! This is the pure core of the network. Forwarding rules, DNS records and Ingress backends are computed from these values,
//! so that all of them agree on which endpoints a Service has. Mirrors upstream's `pkg/proxy/endpoints.go` and
//! `pkg/proxy/topology.go`.

mod directory;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;

pub use directory::Directory;

/// The label of an EndpointSlice that names its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// How long a client stays with its endpoint if a Service does not say.
const DEFAULT_AFFINITY: Duration = Duration::from_secs(3 * 60 * 60);

/// The namespace and the name of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ServiceName {
    /// The name of a Service.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// The protocol that the API names; TCP if it names none.
    pub fn parse(name: Option<&str>) -> Option<Self> {
        match name.unwrap_or("TCP") {
            "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            _ => None,
        }
    }

    /// In lower case, as DNS and rules have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// A Service and its endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// How clients reach it.
    pub kind: Kind,
    /// Its ports.
    pub ports: Vec<Port>,
    /// Its endpoints by address, whether they are ready or not.
    pub endpoints: Vec<Endpoint>,
    /// How long a client stays with an endpoint; `None` if each connection may go to another.
    pub affinity: Option<Duration>,
    /// Whether clients inside the cluster only reach endpoints of their own node.
    pub local_only: bool,
    /// More addresses that lead to the Service.
    pub external_ips: Vec<IpAddr>,
    /// The `loadBalancerClass`, for a Service of type `LoadBalancer`.
    pub load_balancer: Option<LoadBalancer>,
}

/// How clients reach a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// At addresses of its own.
    Cluster(Vec<IpAddr>),
    /// At the addresses of its endpoints.
    Headless,
    /// It stands for another name.
    ExternalName(String),
}

/// What a Service of type `LoadBalancer` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancer {
    /// Which implementation; `None` for the default.
    pub class: Option<String>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number at the Service's own addresses.
    pub port: u16,
    /// Its number at every node's addresses.
    pub node_port: Option<u16>,
    /// Where connections go, by address: the endpoints that are ready, or, if there are none, those that still serve while
    /// they terminate.
    pub backends: Vec<Backend>,
}

/// Where a connection may go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// The address and the port.
    pub address: SocketAddr,
    /// The node that it is on, if that is known.
    pub node: Option<String>,
}

/// An endpoint of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its name within the Service, if it has one.
    pub hostname: Option<String>,
    /// Whether it takes new connections.
    pub ready: bool,
    /// The ports that it has: name, protocol and number.
    pub ports: Vec<(String, Protocol, u16)>,
}

impl Endpoint {
    /// The endpoint's label below the Service's name in DNS: its hostname, or its address with dashes.
    pub fn label(&self) -> String {
        match &self.hostname {
            Some(hostname) => hostname.to_ascii_lowercase(),
            None => dashed(self.address),
        }
    }
}

/// An address as a label of a DNS name.
fn dashed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string().replace('.', "-"),
        IpAddr::V6(address) => address.to_string().replace(':', "-"),
    }
}

impl Service {
    /// What a Service and its EndpointSlices say.
    pub fn new<'a>(service: &core::Service, slices: impl IntoIterator<Item = &'a discovery::EndpointSlice>) -> Self {
        let default = core::ServiceSpec::default();
        let spec = service.spec.as_ref().unwrap_or(&default);
        let slices: Vec<&discovery::EndpointSlice> = slices.into_iter().collect();
        let kind = kind(spec);
        let ports = match kind {
            Kind::ExternalName(_) => Vec::new(),
            _ => spec.ports.iter().flatten().filter_map(|one| port(one, &kind, &slices)).collect(),
        };
        let client_ip = spec.session_affinity.as_deref() == Some("ClientIP");
        let timeout =
            spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
        let timeout =
            timeout.and_then(|seconds| u64::try_from(seconds).ok()).map_or(DEFAULT_AFFINITY, Duration::from_secs);
        let is_balanced = spec.type_.as_deref() == Some("LoadBalancer");
        Self {
            ports,
            endpoints: if matches!(kind, Kind::ExternalName(_)) { Vec::new() } else { endpoints(&slices) },
            affinity: client_ip.then_some(timeout),
            local_only: spec.internal_traffic_policy.as_deref() == Some("Local"),
            external_ips: spec.external_ips.iter().flatten().filter_map(|ip| ip.parse().ok()).collect(),
            load_balancer: is_balanced.then(|| LoadBalancer { class: spec.load_balancer_class.clone() }),
            kind,
        }
    }

    /// The addresses of its own.
    pub fn cluster_ips(&self) -> &[IpAddr] {
        match &self.kind {
            Kind::Cluster(addresses) => addresses,
            _ => &[],
        }
    }

    /// The port that a number or a name stands for.
    pub fn port(&self, number: Option<u16>, name: Option<&str>) -> Option<&Port> {
        self.ports.iter().find(|port| match (number, name) {
            (Some(number), _) => port.port == number,
            (None, Some(name)) => port.name == name,
            (None, None) => true,
        })
    }
}

fn kind(spec: &core::ServiceSpec) -> Kind {
    if spec.type_.as_deref() == Some("ExternalName") {
        return Kind::ExternalName(spec.external_name.clone().unwrap_or_default());
    }
    let first = spec.cluster_ip.iter();
    let all: Vec<&String> = spec.cluster_ips.iter().flatten().chain(first).collect();
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in all.iter().filter_map(|ip| ip.parse().ok()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Kind::Headless } else { Kind::Cluster(addresses) }
}

fn port(port: &core::ServicePort, kind: &Kind, slices: &[&discovery::EndpointSlice]) -> Option<Port> {
    let protocol = Protocol::parse(port.protocol.as_deref())?;
    let name = port.name.clone().unwrap_or_default();
    let backends = match kind {
        Kind::Cluster(addresses) => {
            backends(&name, protocol, slices, |address| addresses.iter().any(|own| own.is_ipv4() == address.is_ipv4()))
        }
        _ => backends(&name, protocol, slices, |_| true),
    };
    Some(Port { name, protocol, port: number(port.port)?, node_port: port.node_port.and_then(number), backends })
}

fn number(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// Where connections to a port go.
fn backends(
    name: &str,
    protocol: Protocol,
    slices: &[&discovery::EndpointSlice],
    is_reachable: impl Fn(IpAddr) -> bool,
) -> Vec<Backend> {
    let (mut ready, mut terminating) = (BTreeSet::new(), BTreeSet::new());
    for slice in slices {
        let ports = slice.ports.iter().flatten();
        let mut matching = ports.filter(|port| {
            port.name.as_deref().unwrap_or_default() == name
                && Protocol::parse(port.protocol.as_deref()) == Some(protocol)
        });
        let Some(port) = matching.next().and_then(|port| number(port.port?)) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let Some(address) = address(slice, endpoint) else { continue };
            if !is_reachable(address) {
                continue;
            }
            let backend = Backend { address: SocketAddr::new(address, port), node: endpoint.node_name.clone() };
            match State::of(endpoint) {
                State::Ready => ready.insert(backend),
                State::ServesWhileTerminating => terminating.insert(backend),
                State::NotReady => false,
            };
        }
    }
    let mut chosen: Vec<Backend> = if ready.is_empty() { terminating } else { ready }.into_iter().collect();
    // Two slices may have the same endpoint for a moment.
    chosen.dedup_by_key(|backend| backend.address);
    chosen
}

/// Whether an endpoint takes connections. What is not said is as upstream takes it.
enum State {
    Ready,
    ServesWhileTerminating,
    NotReady,
}

impl State {
    fn of(endpoint: &discovery::Endpoint) -> Self {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        if ready {
            Self::Ready
        } else if conditions.serving.unwrap_or(ready) && conditions.terminating.unwrap_or(false) {
            Self::ServesWhileTerminating
        } else {
            Self::NotReady
        }
    }
}

/// An endpoint's address: the first, as the others are not to be used.
fn address(slice: &discovery::EndpointSlice, endpoint: &discovery::Endpoint) -> Option<IpAddr> {
    if slice.address_type == "FQDN" {
        return None;
    }
    endpoint.addresses.first().and_then(|address| address.parse().ok())
}

fn endpoints(slices: &[&discovery::EndpointSlice]) -> Vec<Endpoint> {
    let mut found: Vec<Endpoint> = Vec::new();
    for slice in slices {
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            let name = port.name.clone().unwrap_or_default();
            Some((name, Protocol::parse(port.protocol.as_deref())?, number(port.port?)?))
        });
        let ports: Vec<(String, Protocol, u16)> = ports.collect();
        for endpoint in slice.endpoints.iter().flatten() {
            let Some(address) = address(slice, endpoint) else { continue };
            let hostname = endpoint.hostname.clone().filter(|name| !name.is_empty());
            let ready = matches!(State::of(endpoint), State::Ready);
            found.push(Endpoint { address, hostname, ready, ports: ports.clone() });
        }
    }
    found.sort();
    found.dedup();
    found
}
