//! The network of pods that run in containers: each has an address of its own and reaches other pods, Services, names and the
//! API server. See `windlass_network`.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use windlass::Manager;
use windlass::manager::ManagerError;
use windlass_cluster::MachineNetwork;
use windlass_container::UserNamespace;
use windlass_container::network::{Attachment, NetworkError, NetworkNamespace, NetworkedPod, PodNetwork};
use windlass_network::network::HostPort;
use windlass_network::resolver::PodDns;
use windlass_network::services::Protocol;
use windlass_network::{Network, NetworkOptions, Range, cluster};
use windlass_server::dialer::{Dialer, Dialing};

use crate::args::{Switch, Up};

/// Where the namespaces of root's clusters are kept.
pub(super) const DIRECTORY: &str = "/run/windlass/network";
/// Where Ingresses are served if nothing else is.
const HTTP: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const HTTPS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8443);
/// The node of a cluster that had simulated nodes before is not the first.
const NODES: u8 = 16;

/// The network of a cluster's pods. Clones are the same.
#[derive(Clone)]
pub(super) struct PodsNetwork(Arc<Network>);

/// Makes the network of the cluster with this name, or goes on with that of a process before. Needs root, if only in a user
/// namespace.
pub(super) async fn start(args: &Up, directory: &Path, name: &str) -> Result<PodsNetwork> {
    let mut cluster = cluster::Options::new(name, directory);
    cluster.nodes = (2..2 + NODES).map(|last| Ipv4Addr::new(172, 18, 0, last)).filter(|one| !is_own(*one)).collect();
    let services = cluster.services;
    let mut options = NetworkOptions::new(cluster);
    // The machine's own routes are root's.
    if !UserNamespace::is_entered() {
        options.guard = [Range::new(Ipv4Addr::new(10, 244, 0, 0), 16), Some(services)].into_iter().flatten().collect();
    }
    options.expose = true;
    options.http = Some(args.ingress.unwrap_or_else(|| free(HTTP)));
    options.https = Some(args.ingress_tls.unwrap_or_else(|| free(HTTPS)));
    if args.egress == Switch::On {
        options.egress = true;
        options.name_servers = name_servers(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
    }
    Ok(PodsNetwork(Arc::new(Network::start(options).await?)))
}

/// Whether there is a network of the cluster with this name.
pub(super) fn exists(directory: &Path, name: &str) -> bool {
    directory.join(name).exists()
}

/// Removes what is left of the network of a cluster that has stopped.
pub(super) fn remove(directory: &Path, name: &str) {
    if exists(directory, name)
        && let Err(error) = cluster::remove(directory, name)
    {
        tracing::warn!(%error, "the network of the cluster cannot be removed");
    }
}

/// Whether an address is one of this machine's.
fn is_own(address: Ipv4Addr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The address, or another port of it if that one is taken.
fn free(address: SocketAddr) -> SocketAddr {
    if TcpListener::bind(address).is_ok() { address } else { SocketAddr::new(address.ip(), 0) }
}

/// The name servers that a `resolv.conf` names.
fn name_servers(text: &str) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok());
    servers.map(|server| SocketAddr::new(server, 53)).collect()
}

impl PodsNetwork {
    /// Where Ingresses are served on this machine.
    pub(super) fn ingress(&self) -> Option<SocketAddr> {
        self.0.addresses().http
    }

    pub(super) fn set_api_server(&self, address: SocketAddr) {
        self.0.set_api_server(address);
    }

    /// The pods that have something of the network.
    pub(super) fn pods(&self) -> Vec<String> {
        self.0.cluster().uids().unwrap_or_default()
    }

    /// Takes the network of these pods away.
    pub(super) fn remove(&self, pods: &HashSet<String>) {
        if let Err(error) = self.0.cluster().retain(|uid| !pods.contains(uid)) {
            tracing::warn!(%error, "what is left of pods' networks cannot be removed");
        }
    }
}

impl Dialer for PodsNetwork {
    fn dial(&self, address: SocketAddr) -> Option<Dialing> {
        let network = Arc::clone(&self.0);
        network.has(address.ip()).then(|| Box::pin(async move { network.connect(address).await }) as Dialing)
    }
}

impl MachineNetwork for PodsNetwork {
    fn add_to(&self, manager: &mut Manager) -> Result<(), ManagerError> {
        self.0.add_to(manager)
    }
}

fn dns(pod: &NetworkedPod, host_network: bool) -> PodDns {
    PodDns { policy: pod.dns_policy.clone(), config: pod.dns_config.clone(), host_network }
}

fn failed(error: impl std::fmt::Display) -> NetworkError {
    NetworkError(error.to_string())
}

impl PodNetwork for PodsNetwork {
    fn attach(&self, pod: &NetworkedPod) -> BoxFuture<'static, Result<Attachment, NetworkError>> {
        let ports = pod.host_ports.iter().filter_map(|(port, pod_port, protocol)| {
            Some(HostPort { protocol: Protocol::parse(Some(protocol))?, port: *port, pod_port: *pod_port })
        });
        let (network, ports) = (Arc::clone(&self.0), ports.collect());
        let wanted = cluster::Pod {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            address: pod.ip,
            dns: dns(pod, false),
        };
        Box::pin(async move {
            let attached = network.attach(wanted, ports).await.map_err(failed)?;
            Ok(Attachment {
                namespace: NetworkNamespace::Path(attached.namespace),
                ip: Some(attached.address.into()),
                resolv_conf: attached.resolv_conf,
            })
        })
    }

    fn attach_to_host(&self, pod: &NetworkedPod) -> BoxFuture<'static, Result<Attachment, NetworkError>> {
        let path: PathBuf = self.0.host_namespace();
        let resolv_conf = self.0.cluster().resolv_conf(&pod.namespace, &dns(pod, true));
        Box::pin(async { Ok(Attachment { namespace: NetworkNamespace::Path(path), ip: None, resolv_conf }) })
    }

    fn environment(&self, pod: &Pod) -> Vec<(String, String)> {
        let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
        self.0.variables(pod.metadata.namespace.as_deref().unwrap_or_default(), links)
    }

    fn detach(&self, uid: &str) -> BoxFuture<'static, ()> {
        let (network, uid) = (Arc::clone(&self.0), uid.to_owned());
        Box::pin(async move {
            if let Err(error) = network.detach(&uid).await {
                tracing::warn!(%uid, %error, "the network of a pod cannot be removed");
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_those_of_the_machine() {
        let text = "# comment\nsearch lan\nnameserver 192.0.2.1\n nameserver ::1\nnameserver nonsense\n";
        let found: Vec<String> = name_servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1:53", "[::1]:53"]);
    }

    #[test]
    fn another_port_is_taken_if_the_first_is_not_free() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = taken.local_addr().expect("bound");
        assert_eq!(free(address).port(), 0);
    }
}
