//! How a manager is put together. Addresses are bound here, so that a port that is taken is an
//! error before anything runs, and port 0 is known before anything is served.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;

use super::probes::Checks;
use super::{Bound, Manager, ManagerError, describe, requests};
use crate::cache::{CacheOptions, Caches, by_kind};
use crate::client::CachedClient;
use crate::events::{Broadcaster, EventApi, NewEvent, Recorder};
use crate::lease::LeaderElection;
use crate::metrics::{Registry, process};
#[cfg(feature = "webhook")]
use crate::webhook::Webhooks;

/// Describes a [`Manager`]. Made by [`Manager::builder`].
///
/// ```no_run
/// # fn example(client: kube::Client) -> Result<(), windlass::manager::ManagerError> {
/// use std::time::Duration;
/// use windlass::{Manager, lease::LeaderElection};
///
/// let manager = Manager::builder(client)
///     .name("petstore")
///     .namespaces(["dogs", "cats"])
///     .leader_election(LeaderElection::new("petstore").namespace("petstore-system"))
///     .resync(Duration::from_secs(36_000))
///     .probes(":8081")
///     .metrics(":8080")
///     .build()?;
/// # Ok(()) }
/// ```
#[must_use = "a builder does nothing before `build`"]
pub struct ManagerBuilder {
    client: kube::Client,
    name: String,
    probes: Option<String>,
    metrics: Option<String>,
    caches: CacheOptions,
    events: EventApi,
    election: Option<LeaderElection>,
    graceful_shutdown: Duration,
    #[cfg(feature = "webhook")]
    webhooks: Vec<Webhooks>,
    metrics_access: bool,
    #[cfg(feature = "webhook")]
    metrics_certificates: Option<PathBuf>,
    check_permissions: bool,
    reconcile_spans: bool,
    definitions: Vec<CustomResourceDefinition>,
    describe: Option<PathBuf>,
    controller_clients: Option<ControllerClients>,
}

/// The client that a controller sends its requests with, by the controller's name.
pub(super) type ControllerClients = Box<dyn Fn(&str) -> Option<kube::Client> + Send + Sync>;

impl std::fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManagerBuilder").field("name", &self.name).field("caches", &self.caches).finish_non_exhaustive()
    }
}

impl ManagerBuilder {
    pub(super) fn new(client: kube::Client) -> Self {
        Self {
            client,
            name: "windlass".to_owned(),
            probes: None,
            metrics: None,
            caches: CacheOptions::default(),
            events: EventApi::default(),
            election: None,
            graceful_shutdown: Duration::from_secs(30),
            #[cfg(feature = "webhook")]
            webhooks: Vec::new(),
            metrics_access: false,
            #[cfg(feature = "webhook")]
            metrics_certificates: None,
            check_permissions: true,
            reconcile_spans: true,
            definitions: Vec::new(),
            describe: describe::asked(),
            controller_clients: None,
        }
    }

    /// The operator's name, under which it owns the fields it writes: 1 to 128 printable characters.
    /// Replicas have the same; where controllers are [sharded](crate::shard), other operators in the
    /// namespace must have another.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Serves `/healthz` and `/readyz` at an address, as `127.0.0.1:0` or `:8081`, which is at all
    /// addresses of the machine, IPv4 and IPv6. Empty or `0` means not at all, which is the default.
    pub fn probes(mut self, address: impl Into<String>) -> Self {
        self.probes = Some(address.into());
        self
    }

    /// Serves `/metrics` at an address, as `127.0.0.1:0` or `:8080`. Empty or `0` means not at
    /// all, which is the default. Over plain HTTP, unless callers are
    /// [authenticated](Self::authenticate_metrics) or there are
    /// [certificates](Self::metrics_certificates).
    pub fn metrics(mut self, address: impl Into<String>) -> Self {
        self.metrics = Some(address.into());
        self
    }

    /// Serves metrics only to callers with a bearer token whose owner may `get` the path
    /// (`nonResourceURLs: ["/metrics"]`), according to the API server. To protect the tokens, the metrics are then
    /// served over HTTPS, as in controller-runtime, with [certificates](Self::metrics_certificates) from files or with
    /// a self-signed one that is made when the manager starts. For the latter a scraper needs `scheme: https` and
    /// `insecure_skip_verify: true` (`insecureSkipVerify` in a `ServiceMonitor`).
    #[cfg(feature = "webhook")]
    pub fn authenticate_metrics(mut self) -> Self {
        self.metrics_access = true;
        self
    }

    /// Serves metrics over HTTPS with `tls.crt` and `tls.key` in a directory, as cert-manager and
    /// Kubernetes mount them, read again within seconds when they change. That they are not there
    /// is an error when the manager starts.
    #[cfg(feature = "webhook")]
    pub fn metrics_certificates(mut self, directory: impl Into<PathBuf>) -> Self {
        self.metrics_certificates = Some(directory.into());
        self
    }

    /// Whether to check at startup that the operator has the permissions that its controllers declare, and to fail
    /// with the missing rules otherwise. True by default.
    pub fn check_permissions(mut self, check: bool) -> Self {
        self.check_permissions = check;
        self
    }

    /// Whether the log says of each line in which reconcile it was written. True by default; a program with many thousands of
    /// reconciles a second saves some of their cost without it. Failures say it anyway.
    pub fn reconcile_spans(mut self, spans: bool) -> Self {
        self.reconcile_spans = spans;
        self
    }

    /// Watches these namespaces only; cached reads of others fail. Without any, or if one of them is
    /// empty (as an unset `WATCH_NAMESPACE` is), all of them. Kinds that are in no namespace are
    /// watched as a whole.
    pub fn namespaces<I, S>(mut self, namespaces: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        self.caches.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Reconciles everything again this often, give or take a tenth. Not at all by default.
    pub fn resync(mut self, period: Duration) -> Self {
        self.caches.resync = Some(period);
        self
    }

    /// How many objects of each kind caches keep decoded, at most. See [`CacheOptions::most_decoded`].
    pub fn most_decoded(mut self, objects: usize) -> Self {
        self.caches.most_decoded = Some(objects);
        self
    }

    /// How long to wait for the first list of a kind; two minutes by default.
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.caches.sync_timeout = timeout;
        self
    }

    /// Which API events are written to.
    pub fn events(mut self, api: EventApi) -> Self {
        self.events = api;
        self
    }

    /// Runs the controllers that need to lead only in the replica that holds the lease. Their writes pass a
    /// [fence](crate::lease::Fence): none is sent once another replica may hold the lease. A replica that loses the lease
    /// stops them and joins the election again; if stopping takes longer than a
    /// [graceful shutdown](Self::graceful_shutdown) may, the manager ends with an error.
    pub fn leader_election(mut self, election: LeaderElection) -> Self {
        self.election = Some(election);
        self
    }

    /// How long what is running may take to finish; 30 seconds by default.
    pub fn graceful_shutdown(mut self, timeout: Duration) -> Self {
        self.graceful_shutdown = timeout;
        self
    }

    /// Serves webhooks; [`Manager::add_webhooks`] does the same once there is a manager, whose
    /// client they may want.
    #[cfg(feature = "webhook")]
    pub fn webhooks(mut self, webhooks: Webhooks) -> Self {
        self.webhooks.push(webhooks);
        self
    }

    /// The definitions of the kinds that the operator declares. They are not installed: `windlass manifests` writes
    /// them beside the roles. [`crd`](crate::crd) has what `crd()` of a type can say.
    pub fn definitions(mut self, definitions: impl IntoIterator<Item = CustomResourceDefinition>) -> Self {
        self.definitions.extend(definitions);
        self
    }

    /// Gives controllers clients of their own, for example each its own ServiceAccount: the requests of a reconciler
    /// are sent with the client that the function has for its controller's name, or with the manager's if it has none.
    /// Watches, cached reads and events stay the manager's, and so do [metrics](crate::metrics) and the
    /// [fence](crate::lease::Fence).
    ///
    /// ```no_run
    /// # async fn example(manager: kube::Client, cleaner: kube::Client) -> Result<(), windlass::manager::ManagerError> {
    /// let manager = windlass::Manager::builder(manager)
    ///     .controller_clients(move |controller| (controller == "cleaner").then(|| cleaner.clone()))
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn controller_clients(mut self, client: impl Fn(&str) -> Option<kube::Client> + Send + Sync + 'static) -> Self {
        self.controller_clients = Some(Box::new(client));
        self
    }

    /// The manager, its addresses bound. To be called inside a Tokio runtime.
    pub fn build(self) -> Result<Manager, ManagerError> {
        tokio::runtime::Handle::try_current().map_err(|_| ManagerError::NoRuntime)?;
        if !is_field_manager(&self.name) {
            let rule = "1 to 128 printable characters";
            return Err(ManagerError::InvalidName { what: "the manager", name: self.name, rule });
        }
        self.election.as_ref().map_or(Ok(()), LeaderElection::validate)?;
        let registry = Registry::default();
        let metrics = registry.for_library();
        process::register(&metrics);
        let client = requests::counted(self.client, &metrics);
        let broadcaster = Arc::new(Broadcaster::new(self.events));
        let caches = Caches::new(client.clone(), reporting(self.caches.clone(), broadcaster.recorder(&self.name)));
        collect_caches(&metrics, vec![caches.clone()]);
        let events = Arc::clone(&broadcaster);
        metrics.collect(move |scrape| {
            scrape.counter(
                "windlass_events_dropped_total",
                "Events that were not written: there were too many, the lease was lost, or the server refused",
                &[],
                events.dropped() as f64,
            );
        });
        #[cfg_attr(not(feature = "webhook"), expect(unused_mut))]
        let mut manager = Manager {
            client: CachedClient::new(client, caches, self.name),
            metrics,
            registry,
            broadcaster,
            probes: bind(self.probes, "probes", self.describe.is_some())?,
            metrics_server: bind(self.metrics, "metrics", self.describe.is_some())?,
            checks: Checks::default(),
            controllers: Vec::new(),
            tasks: Vec::new(),
            leader_tasks: Vec::new(),
            names: HashSet::new(),
            election: self.election,
            graceful_shutdown: self.graceful_shutdown,
            clusters: Vec::new(),
            cache_options: self.caches,
            event_api: self.events,
            metrics_access: self.metrics_access,
            #[cfg(feature = "webhook")]
            metrics_certificates: self.metrics_certificates,
            check_permissions: self.check_permissions,
            reconcile_spans: self.reconcile_spans,
            definitions: self.definitions,
            describe: self.describe,
            controller_clients: self.controller_clients,
            ready: watch::Sender::new(false),
            #[cfg(feature = "webhook")]
            webhooks: Vec::new(),
            #[cfg(feature = "webhook")]
            disabled_webhooks: Vec::new(),
        };
        #[cfg(feature = "webhook")]
        for webhooks in self.webhooks {
            manager.add_webhooks(webhooks)?;
        }
        Ok(manager)
    }
}

/// Whether the API server takes it for the name of a manager of fields (`ValidateFieldManager` in
/// apimachinery's `meta/v1/validation`), as far as can be told without the tables of Unicode.
fn is_field_manager(name: &str) -> bool {
    let printable = |letter: char| letter == ' ' || !(letter.is_control() || letter.is_whitespace());
    (1..=128).contains(&name.len()) && name.chars().all(printable)
}

/// Options of caches that report objects that do not fit their type in events on these objects.
pub(super) fn reporting(options: CacheOptions, recorder: Recorder) -> CacheOptions {
    options.on_decode_error(move |failure| {
        let event = NewEvent::warning("FailedDecoding", &failure.error).action("Decode");
        recorder.publish(failure.reference.clone(), event);
    })
}

/// Has what goes wrong in caches counted: one number for a kind, whatever parts of it and clusters are
/// watched.
pub(super) fn collect_caches(metrics: &Registry, caches: Vec<Caches>) {
    metrics.replace_collector("caches", move |scrape| {
        for (kind, errors) in by_kind(caches.iter().flat_map(Caches::decode_errors)) {
            scrape.counter(
                "windlass_cache_decode_errors_total",
                "Objects that did not fit their type and were left out of the cache",
                &[("kind", &kind)],
                errors as f64,
            );
        }
        for (kind, panics) in by_kind(caches.iter().flat_map(Caches::panics)) {
            scrape.counter(
                "windlass_cache_panics_total",
                "Panics of indexes, handlers, predicates, functions that map to keys, and decoders, survived",
                &[("kind", &kind)],
                panics as f64,
            );
        }
    });
}

/// Takes an address; any, if nothing will be served there.
pub(super) fn bind(address: Option<String>, purpose: &'static str, any: bool) -> Result<Option<Bound>, ManagerError> {
    let Some(mut address) = address.filter(|address| !address.is_empty() && address != "0") else {
        return Ok(None);
    };
    if any {
        "127.0.0.1:0".clone_into(&mut address);
    }
    let bound = || -> std::io::Result<Bound> {
        let listener = match address.strip_prefix(':').and_then(|port| port.parse().ok()) {
            Some(port) => listen_everywhere(port)?,
            None => TcpListener::bind(&address)?,
        };
        listener.set_nonblocking(true)?;
        Ok(Bound { address: listener.local_addr()?, listener })
    };
    match bound() {
        Ok(bound) => Ok(Some(bound)),
        Err(source) => Err(ManagerError::Bind { address, purpose, source }),
    }
}

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A port of all addresses: of both families, or, where there is no IPv6, of IPv4.
fn listen_everywhere(port: u16) -> std::io::Result<TcpListener> {
    let both = || -> std::io::Result<TcpListener> {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
        // Whatever the system's default is.
        socket.set_only_v6(false)?;
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    match both() {
        Err(error) if error.kind() != ErrorKind::AddrInUse => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
        bound => bound,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_port_alone_is_one_of_both_families() {
        let bound = bind(Some(":0".to_owned()), "probes", false).unwrap().unwrap();
        let port = bound.address.port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
        }
        let taken = bind(Some(format!(":{port}")), "probes", false).map(drop).unwrap_err().to_string();
        assert!(taken.starts_with(&format!("listen on :{port} for probes: ")), "{taken}");
        bind(Some(":http".to_owned()), "probes", false).map(drop).unwrap_err();
    }
}
