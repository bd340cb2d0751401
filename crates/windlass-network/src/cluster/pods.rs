//! Pods in the network of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use super::{ClusterNetwork, NetworkError, Paths, check_name, four};
use crate::exposure::hash;
use crate::namespace::NetworkNamespace;
use crate::netlink::route::{Route, Routes, Via};
use crate::range::Range;
use crate::resolver::{self, PodDns};

/// All traffic stays on this machine, so packets are as large as links allow.
const MTU: u32 = 65_535;

/// Where the machine says how it resolves names.
const MACHINE_RESOLV_CONF: &str = "/etc/resolv.conf";

/// A pod that is to have a network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pod {
    /// Its unique identity.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Option<IpAddr>,
    /// What it says about names.
    pub dns: PodDns,
}

/// The network of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The path of the network namespace that the pod's containers join.
    pub namespace: PathBuf,
    /// The pod's address.
    pub address: Ipv4Addr,
    /// The content of `/etc/resolv.conf`.
    pub resolv_conf: String,
}

impl ClusterNetwork {
    /// Gives a pod its network. A pod that has one already keeps it. Blocks for a few milliseconds.
    pub fn attach(&self, pod: &Pod) -> Result<Attachment, NetworkError> {
        check_name(&pod.uid)?;
        let missing = || NetworkError::Address { pod: format!("{}/{}", pod.namespace, pod.name) };
        let address = pod.address.and_then(four).ok_or_else(missing)?;
        let path = self.paths.pod(&pod.uid);
        let at = |source: io::Error| NetworkError::Namespace { path: path.clone(), source };
        let (link, alias) = (link_name(&pod.uid), alias(&pod.uid, address));
        let existing = NetworkNamespace::open(&path).map_err(at)?;
        let known = self.routes.links()?.into_iter().find(|known| known.name == link);
        if existing.is_none() || known.is_none_or(|known| known.alias != alias) {
            // What a process before has begun and not finished.
            self.routes.delete_link(&link)?;
            NetworkNamespace::forget(&path).map_err(at)?;
            let namespace = NetworkNamespace::create().map_err(at)?;
            let attached = self.connect_pod(&namespace, &link, address);
            let finished = attached.and_then(|index| {
                namespace.keep(&path).map_err(at)?;
                // The last step: only a pod that is complete has an alias.
                Ok(self.routes.set_alias(index, &alias)?)
            });
            if let Err(error) = finished {
                let _ = self.routes.delete_link(&link);
                let _ = NetworkNamespace::forget(&path);
                return Err(error);
            }
        }
        Ok(Attachment { namespace: path, address, resolv_conf: self.resolv_conf(&pod.namespace, &pod.dns) })
    }

    /// Connects a namespace with the cluster's. The number of the link in the cluster's.
    fn connect_pod(&self, namespace: &NetworkNamespace, link: &str, address: Ipv4Addr) -> Result<u32, NetworkError> {
        let gateway = self.options.nodes.first().copied().unwrap_or(super::LOCAL_ADDRESS);
        self.routes.add_pair(link, MTU, namespace)?;
        let index = self.routes.index(link)?;
        self.routes.up(index)?;
        let inside = namespace.run(|| {
            let routes = Routes::open()?;
            routes.up(routes.index("lo")?)?;
            let eth0 = routes.index("eth0")?;
            routes.add_address(eth0, address)?;
            routes.up(eth0)?;
            let near = Route { to: Range::one(gateway), via: Via::Link(eth0, None), priority: 0 };
            routes.add_route(&near)?;
            routes.add_route(&Route { to: Range::all(), via: Via::Gateway(eth0, gateway), priority: 0 })
        });
        inside.map_err(|source| NetworkError::Namespace { path: PathBuf::from(link), source })??;
        self.routes.add_route(&Route { to: Range::one(address), via: Via::Link(index, Some(gateway)), priority: 0 })?;
        Ok(index)
    }

    /// Takes the network of a pod away. Whether it had one.
    pub fn detach(&self, uid: &str) -> Result<bool, NetworkError> {
        check_name(uid)?;
        let path = self.paths.pod(uid);
        let had_link = self.routes.delete_link(&link_name(uid))?;
        let forgotten = NetworkNamespace::forget(&path);
        let had_namespace = forgotten.map_err(|source| NetworkError::Namespace { path, source })?;
        Ok(had_link || had_namespace)
    }

    /// The pods that have a network, by uid, with their addresses: also those that a process before has attached.
    pub fn pods(&self) -> Result<BTreeMap<String, Ipv4Addr>, NetworkError> {
        let links = self.routes.links()?;
        Ok(links.iter().filter_map(|link| parse_alias(&link.alias)).collect())
    }

    /// The uids of all pods that have something here, also of those whose network was not finished.
    pub fn uids(&self) -> Result<Vec<String>, NetworkError> {
        let path = self.paths.pods();
        let kept = kept(&self.paths).map_err(|source| NetworkError::Namespace { path, source })?;
        let all: BTreeSet<String> = kept.into_iter().chain(self.pods()?.into_keys()).collect();
        Ok(all.into_iter().collect())
    }

    /// Detaches all pods but these: what pods left behind that ended while no process was there to see it.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) -> Result<(), NetworkError> {
        for uid in self.uids()?.iter().filter(|uid| !keep(uid)) {
            self.detach(uid)?;
        }
        Ok(())
    }

    /// What a pod's `/etc/resolv.conf` says.
    pub fn resolv_conf(&self, namespace: &str, pod: &PodDns) -> String {
        let machine = fs::read_to_string(MACHINE_RESOLV_CONF).unwrap_or_default();
        resolver::resolv_conf(pod, namespace, &self.options.domain, self.options.dns, &machine)
    }
}

/// The uids of pods whose namespaces are kept.
pub(super) fn kept(paths: &Paths) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(paths.pods()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// The name of a pod's link in the cluster's namespace: at most 15 characters.
fn link_name(uid: &str) -> String {
    format!("pod{:012x}", hash(uid) & 0xffff_ffff_ffff)
}

/// Says which pod a link is of.
fn alias(uid: &str, address: Ipv4Addr) -> String {
    format!("{uid} {address}")
}

fn parse_alias(alias: &str) -> Option<(String, Ipv4Addr)> {
    let (uid, address) = alias.split_once(' ')?;
    Some((uid.to_owned(), address.parse().ok()?))
}
