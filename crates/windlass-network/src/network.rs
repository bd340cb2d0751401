//! Everything put together: [`Network`] is the network of a running cluster.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use windlass::cache::Lister;
use windlass::events::Recorder;
use windlass::manager::ManagerError;
use windlass::{CachedClient, Context, Controller, Manager, ObjectKey, Outcome, ReconcileKey};

use crate::balancer;
use crate::cluster;
use crate::cluster::{Attachment, ClusterNetwork, Guard, LOCAL_ADDRESS, NetworkError, Options};
use crate::controller::Services;
use crate::dns::server::DnsServer;
use crate::dns::zone::Zone;
use crate::exposure::{Balancers, Exposed, exposed};
use crate::forward::{Forwarder, Forwarders};
use crate::ingress::{CLASS, CONTROLLER, DEFAULT_CLASS, IngressController};
use crate::namespace::Sockets;
use crate::policy::{self, PodInfo, Policies};
use crate::range::Range;
use crate::rules::Layout;
use crate::services::{Protocol, ServiceName};
use crate::variables;

/// What the network of a running cluster is like.
#[derive(Debug, Clone)]
pub struct NetworkOptions {
    /// Namespaces, addresses and names.
    pub cluster: Options,
    /// Where the API server listens on the machine: pods reach it as `kubernetes.default`. What is not known yet is
    /// [said later](Network::set_api_server).
    pub api_server: Option<SocketAddr>,
    /// Name servers that are asked about names outside the cluster.
    pub name_servers: Vec<SocketAddr>,
    /// Whether pods may connect to addresses outside the cluster. Only TCP can.
    pub egress: bool,
    /// Ranges that lead nowhere outside the cluster. Needs `CAP_NET_ADMIN` in the machine's namespace.
    pub guard: Vec<Range>,
    /// Whether NodePorts, hostPorts and load balancers are listened on by the machine.
    pub expose: bool,
    /// Where HTTP requests for Ingresses are taken.
    pub http: Option<SocketAddr>,
    /// Where HTTPS requests for Ingresses are taken.
    pub https: Option<SocketAddr>,
}

impl NetworkOptions {
    /// A network from which nothing leads out: what tests have.
    pub fn new(cluster: Options) -> Self {
        Self {
            cluster,
            api_server: None,
            name_servers: Vec::new(),
            egress: false,
            guard: Vec::new(),
            expose: false,
            http: None,
            https: None,
        }
    }
}

/// Why a network cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The kernel's part.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A port cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The cluster's domain is not a name.
    #[error("{domain:?} is not a domain")]
    Domain {
        /// The domain.
        domain: String,
    },
}

/// The network of a running cluster. [`add_to`](Self::add_to) gives a manager what keeps it current. Dropping it leaves what
/// the kernel does as it is; [`cluster::remove`] takes that away.
#[derive(Debug)]
pub struct Network {
    shared: Arc<Shared>,
    ingress: IngressController,
    listeners: Mutex<Option<Listeners>>,
    addresses: Addresses,
    /// The Services of the first manager, for the variables of containers.
    known_services: Mutex<Option<Lister<Service>>>,
}

/// Where the machine listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Addresses {
    /// For HTTP requests to Ingresses.
    pub http: Option<SocketAddr>,
    /// For HTTPS requests to Ingresses.
    pub https: Option<SocketAddr>,
}

/// Sockets that are served once the manager runs.
#[derive(Debug)]
struct Listeners {
    dns: (UdpSocket, TcpListener),
    http: Option<TcpListener>,
    https: Option<TcpListener>,
    /// Run from the beginning.
    forwarders: Vec<Forwarder>,
}

#[derive(Debug)]
struct Shared {
    options: NetworkOptions,
    cluster: Arc<ClusterNetwork>,
    services: Services,
    dns: DnsServer,
    balancers: Arc<Mutex<Balancers>>,
    /// What pods have on ports of the node, by uid.
    host_ports: Mutex<BTreeMap<String, Vec<HostPort>>>,
    nodes: Mutex<BTreeMap<String, Range>>,
    policies: Mutex<Policies>,
    local: BTreeMap<(Protocol, SocketAddrV4), SocketAddrV4>,
    egress: Option<SocketAddrV4>,
    api_server: Arc<Mutex<Option<SocketAddr>>>,
    /// Changes when something other than Services has.
    changes: watch::Sender<u64>,
}

/// A port of the node that leads to a port of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// The protocol.
    pub protocol: Protocol,
    /// The node's port.
    pub port: u16,
    /// The pod's port.
    pub pod_port: u16,
}

impl Network {
    /// Makes the namespaces and the sockets.
    pub async fn start(options: NetworkOptions) -> Result<Self, StartError> {
        let domain = options.cluster.domain.clone();
        let zone = Zone::new(&domain).ok_or(StartError::Domain { domain })?;
        if !options.guard.is_empty() {
            Guard::new(&options.cluster.name).add(&options.guard).map_err(NetworkError::from)?;
        }
        let cluster = options.cluster.clone();
        let opened = tokio::task::spawn_blocking(move || ClusterNetwork::open(cluster)).await;
        let cluster = Arc::new(opened.expect("invariant: opening a network does not panic")?);

        let inside = SocketAddr::from((LOCAL_ADDRESS, 0));
        let at = |address: SocketAddr| move |source: io::Error| StartError::Listen { address, source };
        let sockets = cluster.sockets();
        let dns = (sockets.udp(inside).await.map_err(at(inside))?, sockets.listen(inside).await.map_err(at(inside))?);
        let mut local = BTreeMap::new();
        let dns_service = SocketAddrV4::new(options.cluster.dns, 53);
        for (protocol, address) in [(Protocol::Udp, dns.0.local_addr()), (Protocol::Tcp, dns.1.local_addr())] {
            if let SocketAddr::V4(address) = address.map_err(at(inside))? {
                local.insert((protocol, dns_service), address);
            }
        }
        let mut forwarders = Vec::new();
        let api_server = Arc::new(Mutex::new(options.api_server));
        let server = Arc::clone(&api_server);
        let forwarder = Forwarder::tcp(sockets.listen(inside).await.map_err(at(inside))?, move |_| {
            let server = *server.lock();
            async move { connect(server.ok_or(io::ErrorKind::NotConnected)?).await }
        });
        let forwarder = forwarder.map_err(at(inside))?;
        if let (SocketAddr::V4(address), Some(first)) = (forwarder.address(), options.cluster.services.nth(1)) {
            local.insert((Protocol::Tcp, SocketAddrV4::new(first, 443)), address);
        }
        forwarders.push(forwarder);
        let mut egress = None;
        if options.egress {
            let listener = sockets.listen(inside).await.map_err(at(inside))?;
            let forwarder = Forwarder::tcp(listener, |client| {
                let target = original_destination(client);
                async move { connect(target?).await }
            });
            let forwarder = forwarder.map_err(at(inside))?;
            if let SocketAddr::V4(address) = forwarder.address() {
                egress = Some(address);
            }
            forwarders.push(forwarder);
        }
        let (http, https) = (bind(options.http).await?, bind(options.https).await?);
        let local_addr = |listener: &Option<TcpListener>| listener.as_ref().and_then(|one| one.local_addr().ok());
        let addresses = Addresses { http: local_addr(&http), https: local_addr(&https) };

        let services = Services::default();
        let sockets = cluster.sockets().clone();
        let ingress = IngressController::new(services.clone(), connect_inside(sockets), None);
        let ingress = match addresses.http.or(addresses.https) {
            Some(address) if !address.ip().is_unspecified() => {
                let ports = [addresses.http, addresses.https].into_iter().flatten().map(|address| address.port());
                ingress.publish(address.ip().to_string(), ports)
            }
            _ => ingress,
        };
        let shared = Shared {
            dns: DnsServer::new(services.clone(), zone, options.name_servers.clone()),
            balancers: Arc::new(Mutex::new(Balancers::new(&options.cluster.name))),
            options,
            cluster,
            services,
            host_ports: Mutex::default(),
            nodes: Mutex::default(),
            policies: Mutex::default(),
            local,
            egress,
            api_server,
            changes: watch::Sender::new(0),
        };
        let listeners = Mutex::new(Some(Listeners { dns, http, https, forwarders }));
        Ok(Self { shared: Arc::new(shared), ingress, listeners, addresses, known_services: Mutex::default() })
    }

    /// The kernel's part.
    pub fn cluster(&self) -> &Arc<ClusterNetwork> {
        &self.shared.cluster
    }

    /// The Services as the network knows them.
    pub fn services(&self) -> &Services {
        &self.shared.services
    }

    /// Where the machine listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Adds what keeps the network current to a manager: controllers, and a task that serves DNS and Ingresses. The sockets
    /// are the first manager's.
    pub fn add_to(&self, manager: &mut Manager) -> Result<(), ManagerError> {
        let shared = &self.shared;
        self.known_services.lock().get_or_insert_with(|| manager.lister());
        shared.services.add_to(manager)?;
        manager.add(Controller::<Node>::new("network-nodes").complete_keyed(Nodes(Arc::clone(shared))))?;
        let all = || Some(ObjectKey::cluster("all"));
        manager.add(
            Controller::<NetworkPolicy>::new("network-policies")
                .watches(move |_: &Pod, _| all())
                .watches(move |_: &Namespace, _| all())
                .complete_keyed(Isolate(Arc::clone(shared))),
        )?;
        if shared.options.expose {
            let changing = Arc::clone(shared);
            balancer::add(manager, Arc::clone(&shared.balancers), move || changing.changed())?;
        }
        if self.addresses.http.is_some() || self.addresses.https.is_some() {
            self.ingress.add_to(manager)?;
        }
        let (shared, ingress) = (Arc::clone(shared), self.ingress.clone());
        let listeners = self.listeners.lock().take();
        let client = manager.client_of("network");
        let recorder = manager.recorder("windlass-network");
        manager.add_task("network", move |shutdown| async move {
            let Some(Listeners { dns: (udp, tcp), http, https, forwarders }) = listeners else {
                // Another manager has them. A task that ends stops its manager.
                shutdown.cancelled().await;
                return Ok(());
            };
            let serving = async {
                let plain = async {
                    match http {
                        Some(listener) => ingress.serve(listener, shutdown.clone()).await,
                        None => shutdown.cancelled().await,
                    }
                };
                let encrypted = async {
                    match https {
                        Some(listener) => {
                            if let Err(error) = ingress.serve_tls(listener, shutdown.clone()).await {
                                tracing::error!(%error, "HTTPS is not served");
                            }
                        }
                        None => shutdown.cancelled().await,
                    }
                };
                let dns = shared.dns.serve(udp, tcp, shutdown.clone());
                let objects = ensure_objects(&client, &shared.options);
                let objects = shutdown.run_until_cancelled(objects);
                tokio::join!(plain, encrypted, dns, objects, shared.keep(&client, &recorder, &shutdown));
            };
            serving.await;
            drop(forwarders);
            Ok::<_, std::convert::Infallible>(())
        })
    }

    /// Gives a pod its network. A pod that has one already keeps it.
    pub async fn attach(&self, pod: cluster::Pod, host_ports: Vec<HostPort>) -> Result<Attachment, NetworkError> {
        let cluster = Arc::clone(&self.shared.cluster);
        let uid = pod.uid.clone();
        let attached = tokio::task::spawn_blocking(move || cluster.attach(&pod)).await;
        let attachment = attached.expect("invariant: attaching a pod does not panic")?;
        if !host_ports.is_empty() {
            self.shared.host_ports.lock().insert(uid, host_ports);
            self.shared.changed();
        }
        Ok(attachment)
    }

    /// Takes the network of a pod away.
    pub async fn detach(&self, uid: &str) -> Result<(), NetworkError> {
        if self.shared.host_ports.lock().remove(uid).is_some() {
            self.shared.changed();
        }
        let (cluster, uid) = (Arc::clone(&self.shared.cluster), uid.to_owned());
        let detached = tokio::task::spawn_blocking(move || cluster.detach(&uid)).await;
        detached.expect("invariant: detaching a pod does not panic").map(drop)
    }

    /// The path of the namespace that pods with `hostNetwork` join.
    pub fn host_namespace(&self) -> PathBuf {
        self.shared.cluster.path()
    }

    /// Says where the API server listens on the machine, if that is another place than before.
    pub fn set_api_server(&self, address: SocketAddr) {
        let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port());
        *self.shared.api_server.lock() = Some(if address.ip().is_unspecified() { loopback } else { address });
    }

    /// Whether an address is one of the cluster's: of a node, a pod or a Service.
    pub fn has(&self, address: IpAddr) -> bool {
        let options = &self.shared.options.cluster;
        options.services.contains(address)
            || options.nodes.iter().any(|node| address == IpAddr::V4(*node))
            || self.shared.nodes.lock().values().any(|range| range.contains(address))
    }

    /// The environment variables by which a pod's containers find the API server and, if `links` says so, the Services of the
    /// pod's namespace.
    pub fn variables(&self, namespace: &str, links: bool) -> Vec<(String, String)> {
        let lister = self.known_services.lock().clone();
        let mut found: Vec<Arc<Service>> = Vec::new();
        if let (Some(lister), true) = (&lister, links) {
            found = lister.in_namespace(namespace);
            found.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        }
        let own = ObjectKey::new("default", "kubernetes");
        if namespace != "default" || !links {
            found.extend(lister.and_then(|lister| lister.get(&own)));
        }
        let mut all = variables::variables(found.iter().map(|service| &**service));
        if !all.iter().any(|(name, _)| name == "KUBERNETES_SERVICE_HOST") {
            // The API server creates its Service a moment after it starts.
            let first = self.shared.options.cluster.services.nth(1).unwrap_or(LOCAL_ADDRESS);
            all.push(("KUBERNETES_SERVICE_HOST".to_owned(), first.to_string()));
            all.push(("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned()));
        }
        all
    }

    /// A connection to a pod or a Service, as from a node.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.shared.cluster.connect(address).await
    }
}

impl Shared {
    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// What is wanted of the packet filter, besides Services.
    fn layout(&self) -> Layout {
        let pods = self.cluster.pods().unwrap_or_default();
        let mut host_ports = BTreeMap::new();
        for (uid, ports) in &*self.host_ports.lock() {
            let Some(address) = pods.get(uid) else { continue };
            for port in ports {
                host_ports.insert((port.protocol, port.port), SocketAddrV4::new(*address, port.pod_port));
            }
        }
        Layout {
            services: Some(self.options.cluster.services),
            nodes: self.nodes.lock().clone(),
            local: self.local.clone(),
            host_ports,
            egress: self.egress,
            policies: self.policies.lock().clone(),
        }
    }

    /// Brings the kernel and the machine's listeners to what is wanted, each time that it changes.
    async fn keep(self: &Arc<Self>, client: &CachedClient, recorder: &Recorder, shutdown: &CancellationToken) {
        let (mut services, mut others) = (self.services.changes(), self.changes.subscribe());
        let mut forwarders = Forwarders::default();
        let mut reported = BTreeSet::new();
        loop {
            services.borrow_and_update();
            others.borrow_and_update();
            let this = Arc::clone(self);
            let applied = tokio::task::spawn_blocking(move || {
                let directory = this.services.read(Clone::clone);
                let layout = this.layout();
                this.cluster.apply(&directory, &layout).map(|()| (directory, layout))
            });
            match applied.await.expect("invariant: applying rules does not panic") {
                Ok((directory, layout)) if self.options.expose => {
                    let host_ports = layout.host_ports.into_iter();
                    let host_ports = host_ports.map(|(key, target)| (key, SocketAddr::V4(target))).collect();
                    let wanted = exposed(&directory, self.balancers.lock().given(), &host_ports);
                    let failures = forwarders.set(wanted, |one| self.expose(one)).await;
                    reported.retain(|one| failures.iter().any(|(failed, _)| failed == one));
                    for (one, error) in failures {
                        if reported.insert(one.clone()) {
                            report(client, recorder, &one, &error);
                        }
                    }
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "Services are not forwarded"),
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = services.changed() => {}
                _ = others.changed() => {}
            }
        }
    }

    async fn expose(&self, one: Exposed) -> io::Result<Forwarder> {
        let (sockets, target) = (self.cluster.sockets().clone(), one.target);
        if one.protocol == Protocol::Tcp {
            let connect = connect_inside(sockets);
            return Forwarder::tcp(TcpListener::bind(one.listen).await?, move |_| connect(target));
        }
        let socket = UdpSocket::bind(one.listen).await?;
        Forwarder::udp(socket, move || {
            let sockets = sockets.clone();
            async move {
                let socket = sockets.udp((Ipv4Addr::UNSPECIFIED, 0).into()).await?;
                socket.connect(target).await?;
                Ok(socket)
            }
        })
    }
}

/// Says that a port of the machine is not ours, on the Service that wants it.
fn report(client: &CachedClient, recorder: &Recorder, one: &Exposed, error: &io::Error) {
    let listen = one.listen;
    tracing::warn!(%listen, %error, "a port of the machine cannot be listened on");
    let Some(ServiceName { namespace, name }) = &one.service else { return };
    if let Some(service) = client.lister::<Service>().get(&ObjectKey::new(namespace, name)) {
        recorder.warning(&service, "PortUnavailable", format!("cannot listen on {listen} of the machine: {error}"));
    }
}

/// Connects from inside the cluster.
fn connect_inside(sockets: Sockets) -> crate::ingress::proxy::Connect {
    Arc::new(move |address| {
        let sockets = sockets.clone();
        Box::pin(async move { sockets.connect(address).await })
    })
}

/// Connects from the machine.
async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Where a connection was going before the packet filter sent it here.
fn original_destination(client: &TcpStream) -> io::Result<SocketAddr> {
    let destination = socket2::SockRef::from(client).original_dst_v4()?;
    destination.as_socket().ok_or_else(|| io::Error::other("the connection had no destination"))
}

async fn bind(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    listener.map(Some).map_err(|source| StartError::Listen { address, source })
}

/// The Service of the cluster's DNS and the IngressClass, so that users see them and no other Service gets the address.
async fn ensure_objects(client: &CachedClient, options: &NetworkOptions) {
    let ports =
        json!([{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]);
    let labels = json!({"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"});
    let dns = json!({
        "metadata": {"namespace": "kube-system", "name": "kube-dns", "labels": labels},
        "spec": {"clusterIP": options.cluster.dns.to_string(), "ports": ports},
    });
    let class = json!({"metadata": {"name": CLASS, "annotations": {DEFAULT_CLASS: "true"}}, "spec": {"controller": CONTROLLER}});
    let ignore = |what: &str, result: Result<(), windlass::client::ClientError>| match result {
        Err(error) if !error.is_already_exists() => tracing::warn!(%error, what, "an object cannot be created"),
        _ => {}
    };
    if let Ok(dns) = serde_json::from_value::<Service>(dns) {
        ignore("Service kube-system/kube-dns", client.create(&dns).await.map(drop));
    }
    if options.http.is_none() && options.https.is_none() {
        return;
    }
    if let Ok(class) = serde_json::from_value::<k8s_openapi::api::networking::v1::IngressClass>(class) {
        ignore("IngressClass windlass", client.create(&class).await.map(drop));
    }
}

/// Keeps the ranges of nodes.
struct Nodes(Arc<Shared>);

impl ReconcileKey for Nodes {
    async fn reconcile(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
        let node = ctx.client().lister::<Node>().get(&key);
        let range = node.and_then(|node| node.spec.as_ref()?.pod_cidr.as_ref()?.parse::<Range>().ok());
        let mut nodes = self.0.nodes.lock();
        let before = match range {
            Some(range) => nodes.insert(key.name().to_owned(), range),
            None => nodes.remove(key.name()),
        };
        drop(nodes);
        if before != range {
            self.0.changed();
        }
        Ok(Outcome::Done)
    }
}

/// Keeps what NetworkPolicies say.
struct Isolate(Arc<Shared>);

impl ReconcileKey for Isolate {
    async fn reconcile(&self, _: ObjectKey, ctx: Context) -> windlass::Result {
        let all = ctx.client().lister::<NetworkPolicy>().list();
        let policies = if all.is_empty() {
            Policies::new()
        } else {
            let pods: Vec<PodInfo> =
                ctx.client().lister::<Pod>().list().iter().filter_map(|pod| pod_info(pod)).collect();
            let namespaces = ctx.client().lister::<Namespace>().list();
            let labels = namespaces.iter().map(|namespace| {
                let meta = &namespace.metadata;
                (meta.name.clone().unwrap_or_default(), meta.labels.clone().unwrap_or_default())
            });
            policy::policies(all.iter().map(|policy| &**policy), &pods, &labels.collect())
        };
        let mut known = self.0.policies.lock();
        if *known != policies {
            *known = policies;
            drop(known);
            self.0.changed();
        }
        Ok(Outcome::Done)
    }
}

/// What policies look at in a pod; `None` if it has no address of its own.
fn pod_info(pod: &Pod) -> Option<PodInfo> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    if spec.host_network == Some(true) || matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    let ports = ports.filter_map(|port| {
        let protocol = Protocol::parse(port.protocol.as_deref())?;
        Some(((port.name.clone()?, protocol), u16::try_from(port.container_port).ok()?))
    });
    Some(PodInfo {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        address: status.pod_ip.as_ref()?.parse().ok()?,
        ports: ports.collect(),
    })
}
