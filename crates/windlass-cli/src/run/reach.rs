//! The address of this machine at which a cluster reaches webhooks.
//!
//! A cluster on this machine calls the loopback address. One whose nodes are containers (kind, k3d) is reached through
//! the loopback address as well, but calls the gateway of its network. Any other cluster calls the address from which
//! this machine reaches its API server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::against::target::Target;
use crate::output;

/// Where the operator is to listen; nothing if no address is known, which matters to operators with webhooks only.
pub(crate) fn address(target: &Target, asked: Option<&str>) -> Option<String> {
    if let Some(asked) = asked {
        return Some(asked.to_owned());
    }
    let host = target.host().unwrap_or_default();
    if let Some(network) = container_network(&target.context)
        && (target.is_loopback() || host == "0.0.0.0")
    {
        let gateway = gateway(&network);
        if gateway.is_none() {
            output::note(format_args!(
                "the address of this machine in the container network {network:?} is not known; if the operator has \
                 webhooks, name it with --webhook-address"
            ));
        }
        return gateway.map(any_port);
    }
    if target.is_loopback() {
        let address = host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        return Some(any_port(address));
    }
    towards(&host, target.port()).map(any_port)
}

fn any_port(address: IpAddr) -> String {
    SocketAddr::new(address, 0).to_string()
}

/// The network of containers that a context's cluster runs in, by the names that kind and k3d give.
fn container_network(context: &str) -> Option<String> {
    if context.starts_with("kind-") {
        return Some("kind".to_owned());
    }
    context.starts_with("k3d-").then(|| context.to_owned())
}

/// The address of this machine in a network of containers.
fn gateway(network: &str) -> Option<IpAddr> {
    ["docker", "podman"].iter().find_map(|tool| {
        let mut command = Command::new(tool);
        command.args(["network", "inspect", network]).stdin(Stdio::null()).stderr(Stdio::null());
        let said = command.output().ok().filter(|output| output.status.success())?;
        gateway_of(&serde_json::from_slice(&said.stdout).ok()?)
    })
}

/// The IPv4 gateway in what docker or podman say about a network.
fn gateway_of(networks: &serde_json::Value) -> Option<IpAddr> {
    let network = networks.as_array()?.first()?;
    let docker = network["IPAM"]["Config"].as_array().into_iter().flatten().map(|subnet| &subnet["Gateway"]);
    let podman = network["subnets"].as_array().into_iter().flatten().map(|subnet| &subnet["gateway"]);
    let addresses = docker.chain(podman).filter_map(|gateway| gateway.as_str()?.parse::<IpAddr>().ok());
    addresses.filter(IpAddr::is_ipv4).take(1).next()
}

/// The address of this machine on the way to another one. Nothing is sent.
fn towards(host: &str, port: u16) -> Option<IpAddr> {
    let local = || -> Result<IpAddr> {
        let to = (host, port).to_socket_addrs()?.next().context("no address")?;
        let from: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((from, 0))?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    local().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn gateways_of_container_networks_are_found() {
        let gateway = IpAddr::from([172, 18, 0, 1]);
        let docker = json!([{"IPAM": {"Config": [{"Gateway": "fc00::1"}, {"Gateway": "172.18.0.1"}]}}]);
        let podman = json!([{"subnets": [{"gateway": "172.18.0.1"}]}]);
        assert_eq!(gateway_of(&docker), Some(gateway));
        assert_eq!(gateway_of(&podman), Some(gateway));
        assert_eq!(gateway_of(&json!([])), None);
        assert_eq!(container_network("kind-a").as_deref(), Some("kind"));
        assert_eq!(container_network("k3d-a").as_deref(), Some("k3d-a"));
        assert_eq!(container_network("windlass-default"), None);
    }

    #[test]
    fn the_way_to_an_address_of_this_machine_begins_there() {
        assert_eq!(towards("127.0.0.1", 443), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
