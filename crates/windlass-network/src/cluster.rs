//! The network of one cluster: a network namespace of its own, and one for each pod.
//!
//! ```text
//!  the machine                 the cluster's namespace                         a pod's namespace
//!  ───────────                 ───────────────────────                         ─────────────────
//!  windlass ── sockets ──────▶ lo: the node's address, 169.254.20.10
//!  (no link, no rule,          packet filter: Services                         eth0: the pod's address
//!   no forwarding)             pod address ──▶ link of the pod ════ veth ════▶ default via the node's address
//! ```
//!
//! There is no link between the machine and the cluster: the only way in or out are sockets that this process has made in
//! the cluster's namespace. Packets for pods and Services cannot leave the machine, and two clusters with the same ranges
//! do not meet.
//!
//! Everything has a name that follows from the cluster's name and the pod's uid, so the next process finds it again:
//! [`ClusterNetwork::open`] goes on with what there is, [`remove`] takes it away, and [`leftovers`] counts it.

mod guard;
mod pods;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpStream;

pub use guard::Guard;
pub use pods::{Attachment, Pod};

use crate::namespace::{NetworkNamespace, Sockets};
use crate::netlink::NetlinkError;
use crate::netlink::nft::Filter;
use crate::netlink::route::{Route, Routes, Via};
use crate::range::Range;
use crate::rules::{self, Layout};
use crate::services::Directory;

/// Where programs of this process listen inside the cluster's namespace: no pod and no Service has this address.
pub const LOCAL_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 20, 10);

/// What the network of a cluster is like.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster's name.
    pub name: String,
    /// Where the namespaces of clusters are kept, such as `/run/windlass/network`.
    pub directory: PathBuf,
    /// The addresses of the nodes that pods of this network are on. The first is what pods send their packets to.
    pub nodes: Vec<Ipv4Addr>,
    /// Where Services have their addresses.
    pub services: Range,
    /// The address of the cluster's DNS.
    pub dns: Ipv4Addr,
    /// The domain of the cluster's names.
    pub domain: String,
}

impl Options {
    /// What the embedded cluster has, for a cluster of this name.
    pub fn new(name: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            directory: directory.into(),
            nodes: vec![Ipv4Addr::new(172, 18, 0, 2)],
            services: Range::new(Ipv4Addr::new(10, 96, 0, 0), 12).unwrap_or_else(Range::all),
            dns: Ipv4Addr::new(10, 96, 0, 10),
            domain: "cluster.local".to_owned(),
        }
    }

    fn paths(&self) -> Paths {
        Paths::new(&self.directory, &self.name)
    }
}

/// Where things of a cluster are kept.
#[derive(Debug, Clone)]
struct Paths {
    cluster: PathBuf,
}

impl Paths {
    fn new(directory: &Path, name: &str) -> Self {
        Self { cluster: directory.join(name) }
    }

    fn namespace(&self) -> PathBuf {
        self.cluster.join("node")
    }

    fn pods(&self) -> PathBuf {
        self.cluster.join("pods")
    }

    fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
    }
}

/// Why a network cannot be made or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A network namespace cannot be made or found.
    #[error("the network namespace at {}: {source}", path.display())]
    Namespace {
        /// Where it is kept.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] NetlinkError),
    /// The kernel does not forward packets.
    #[error("cannot make the kernel forward packets between pods: {source}")]
    Forwarding {
        /// Why not.
        source: io::Error,
    },
    /// A pod has no address, and there is none to give it.
    #[error("the pod {pod} has no IPv4 address")]
    Address {
        /// The pod.
        pod: String,
    },
    /// A name that cannot be part of a path.
    #[error("{name:?} is not a name")]
    Name {
        /// The name.
        name: String,
    },
}

/// The network of a cluster. Dropping it leaves the kernel's part as it is: pods go on, and [`open`](Self::open) finds it
/// again.
#[derive(Debug)]
pub struct ClusterNetwork {
    options: Options,
    paths: Paths,
    namespace: NetworkNamespace,
    sockets: Sockets,
    routes: Arc<Routes>,
    filter: Mutex<Filter>,
}

/// A name that is a file's name as well.
fn check_name(name: &str) -> Result<(), NetworkError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(NetworkError::Name { name: name.to_owned() });
    }
    Ok(())
}

impl ClusterNetwork {
    /// Makes the network of a cluster, or goes on with that of a process before. Needs `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`,
    /// if only in a user namespace. Blocks for a few milliseconds.
    pub fn open(options: Options) -> Result<Self, NetworkError> {
        check_name(&options.name)?;
        let paths = options.paths();
        let path = paths.namespace();
        let at = |source: io::Error| NetworkError::Namespace { path: path.clone(), source };
        let namespace = if let Some(known) = NetworkNamespace::open(&path).map_err(at)? {
            known
        } else {
            let new = NetworkNamespace::create().map_err(at)?;
            new.keep(&path).map_err(at)?;
            new
        };
        let made = namespace.run(|| {
            forward_packets().map_err(|source| NetworkError::Forwarding { source })?;
            let routes = Routes::open()?;
            set_up(&routes, &options)?;
            Ok::<_, NetworkError>((routes, Filter::open()?))
        });
        let (routes, filter) = made.map_err(at)??;
        let sockets = namespace.sockets().map_err(at)?;
        Ok(Self { options, paths, namespace, sockets, routes: Arc::new(routes), filter: Mutex::new(filter) })
    }

    /// Makes sockets inside the cluster: they reach pods and Services, and pods reach them.
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// The cluster's namespace: that of the nodes, and of pods with `hostNetwork`.
    pub fn namespace(&self) -> &NetworkNamespace {
        &self.namespace
    }

    /// The path that the cluster's namespace is kept under.
    pub fn path(&self) -> PathBuf {
        self.paths.namespace()
    }

    /// What the network is like.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// A connection to a pod or a Service, as from a node.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.sockets.connect(address).await
    }

    /// Forwards connections as these Services say. What is the same as before is left alone; the change is made at once.
    pub fn apply(&self, directory: &Directory, layout: &Layout) -> Result<(), NetworkError> {
        Ok(self.filter.lock().apply(rules::ruleset(directory, layout))?)
    }
}

/// Settings of the namespace that the thread is in.
fn forward_packets() -> io::Result<()> {
    const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
    if std::fs::read_to_string(FORWARD)?.trim() != "1" {
        std::fs::write(FORWARD, "1")?;
    }
    // Clients of an address that leads nowhere are told each time, not once in a second. It is only slower without.
    let _ = std::fs::write("/proc/sys/net/ipv4/icmp_ratelimit", "0");
    Ok(())
}

/// The addresses and routes of the cluster's namespace.
fn set_up(routes: &Routes, options: &Options) -> Result<(), NetlinkError> {
    let lo = routes.index("lo")?;
    routes.up(lo)?;
    for address in options.nodes.iter().chain([&LOCAL_ADDRESS]) {
        routes.add_address(lo, *address)?;
    }
    // Connections from here to Services need a route before the filter sends them elsewhere. What it does not, it refuses.
    let via = Via::Link(lo, options.nodes.first().copied());
    routes.add_route(&Route { to: options.services, via, priority: 0 })
}

/// Something of a cluster that is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leftover {
    /// A network namespace, or the file that one was kept under.
    Namespace(PathBuf),
    /// A link inside the cluster's namespace.
    Link(String),
    /// A guard route of the machine.
    Route(Range),
}

/// What there is of a cluster's network: nothing after [`remove`].
pub fn leftovers(directory: &Path, name: &str) -> Result<Vec<Leftover>, NetworkError> {
    check_name(name)?;
    let paths = Paths::new(directory, name);
    let mut found = Vec::new();
    let path = paths.namespace();
    let at = |source: io::Error| NetworkError::Namespace { path: path.clone(), source };
    if let Some(namespace) = NetworkNamespace::open(&path).map_err(at)? {
        let links = namespace.run(|| Routes::open()?.links()).map_err(at)??;
        found.extend(links.into_iter().filter(|link| link.name != "lo").map(|link| Leftover::Link(link.name)));
    }
    if path.exists() {
        found.push(Leftover::Namespace(path.clone()));
    }
    for uid in pods::kept(&paths).map_err(at)? {
        found.push(Leftover::Namespace(paths.pod(&uid)));
    }
    found.extend(Guard::new(name).routes()?.into_iter().map(Leftover::Route));
    Ok(found)
}

/// Removes everything of a cluster's network, also what another process has made: processes that are still in its namespaces lose their links.
pub fn remove(directory: &Path, name: &str) -> Result<(), NetworkError> {
    check_name(name)?;
    let paths = Paths::new(directory, name);
    let path = paths.namespace();
    let at = |source: io::Error| NetworkError::Namespace { path: path.clone(), source };
    if let Some(namespace) = NetworkNamespace::open(&path).map_err(at)? {
        let deleted = namespace.run(|| {
            let routes = Routes::open()?;
            for link in routes.links()?.iter().filter(|link| link.name != "lo") {
                routes.delete_link(&link.name)?;
            }
            Ok::<_, NetlinkError>(())
        });
        deleted.map_err(at)??;
    }
    for uid in pods::kept(&paths).map_err(at)? {
        NetworkNamespace::forget(&paths.pod(&uid)).map_err(at)?;
    }
    NetworkNamespace::forget(&path).map_err(at)?;
    // What is not ours stays.
    let _ = std::fs::remove_dir(paths.pods());
    let _ = std::fs::remove_dir(&paths.cluster);
    Ok(Guard::new(name).remove()?)
}

/// Whether an address is IPv4.
fn four(address: IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(address) = address { Some(address) } else { None }
}
