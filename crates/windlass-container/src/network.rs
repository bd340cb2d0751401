//! What a pod's network is to its containers: [`PodNetwork`].

use std::net::IpAddr;
use std::path::PathBuf;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};
use serde::{Deserialize, Serialize};
use windlass_node::runtime::Shortcoming;

/// Gives pods a network.
pub trait PodNetwork: Send + Sync + 'static {
    /// Gives a pod its network. Called again for a pod that has one already, it returns the same.
    fn attach(&self, pod: &NetworkedPod) -> BoxFuture<'static, Result<Attachment, NetworkError>>;

    /// The network of a pod with `hostNetwork`: that of its node.
    fn attach_to_host(&self, pod: &NetworkedPod) -> BoxFuture<'static, Result<Attachment, NetworkError>> {
        HostNetwork.attach(pod)
    }

    /// Variables that tell the containers of a pod where things are.
    fn environment(&self, _: &Pod) -> Vec<(String, String)> {
        Vec::new()
    }

    /// What pods with this network do not reach, for a condition of the node.
    fn shortcoming(&self) -> Option<Shortcoming> {
        None
    }

    /// Takes the network of a pod away. Nothing happens for a pod that has none.
    fn detach(&self, uid: &str) -> BoxFuture<'static, ()>;
}

/// The pod that gets a network.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkedPod {
    /// Its unique identity.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node that it runs on.
    pub node: String,
    /// The address that the node agent has chosen for it.
    pub ip: Option<IpAddr>,
    /// `spec.dnsPolicy`; empty for the default.
    pub dns_policy: String,
    /// `spec.dnsConfig`.
    pub dns_config: Option<PodDNSConfig>,
    /// Ports of the host that lead to ports of the pod: host port, container port, `TCP` or `UDP`.
    pub host_ports: Vec<(u16, u16, String)>,
}

/// The network of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The network namespace that the pod's containers join.
    pub namespace: NetworkNamespace,
    /// The pod's address.
    pub ip: Option<IpAddr>,
    /// The content of `/etc/resolv.conf`.
    pub resolv_conf: String,
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkNamespace {
    /// That of the host.
    Host,
    /// A new one that has nothing but the loopback interface, and ends with the pod.
    Loopback,
    /// The one at this path.
    Path(PathBuf),
}

/// Why a pod has no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NetworkError(pub String);

/// Pods that reach themselves only.
#[derive(Debug, Clone, Default)]
pub struct LoopbackOnly {
    /// Why there is nothing better.
    pub why: String,
}

impl PodNetwork for LoopbackOnly {
    fn shortcoming(&self) -> Option<Shortcoming> {
        let mut message = "pods reach nothing but themselves: no other pods, no Services, no names, no API server; \
                           kubectl port-forward, exec and logs work, hostPort does not"
            .to_owned();
        if !self.why.is_empty() {
            message = format!("{message}. {}", self.why);
        }
        Some(Shortcoming { condition: "PodNetwork", reason: "LoopbackOnly", message })
    }

    fn attach(&self, pod: &NetworkedPod) -> BoxFuture<'static, Result<Attachment, NetworkError>> {
        if let Some((port, ..)) = pod.host_ports.first() {
            let message =
                format!("hostPort {port} cannot be served: pods of this node have no network beyond loopback");
            return Box::pin(async { Err(NetworkError(message)) });
        }
        let attachment = Attachment { namespace: NetworkNamespace::Loopback, ip: pod.ip, resolv_conf: String::new() };
        Box::pin(async { Ok(attachment) })
    }

    fn detach(&self, _: &str) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

/// Pods in the network of the host, with its addresses and names.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostNetwork;

impl HostNetwork {
    /// What pods lack that are processes of the host.
    pub fn shortcoming_of_processes() -> Shortcoming {
        let message = "pods are in the network of the machine: nothing listens at their own addresses, and there are no \
                       Services, cluster DNS, Ingresses and NetworkPolicies; a port of a pod is one of 127.0.0.1, for one pod at \
                       a time; kubectl port-forward, exec and logs work";
        Shortcoming { condition: "PodNetwork", reason: "NetworkOfTheHost", message: message.to_owned() }
    }
}

impl PodNetwork for HostNetwork {
    fn attach(&self, _: &NetworkedPod) -> BoxFuture<'static, Result<Attachment, NetworkError>> {
        Box::pin(async {
            let resolv_conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
            Ok(Attachment { namespace: NetworkNamespace::Host, ip: None, resolv_conf })
        })
    }

    fn detach(&self, _: &str) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}
