//! [`Cluster`]: server, store, certificates and controllers put together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use windlass_server::authn::TokenKey;
use windlass_server::pki::Authority;
use windlass_server::{
    AdmissionPlugin, AdmissionPlugins, AuditOptions, FlowControlOptions, Listener, PodSecurity, Server,
};
use windlass_store::{Durable, DurableOptions, Memory, Recovery, Store};

use crate::Credentials;
use crate::controllers::{BuiltIn, Check, Controllers, Running, Setup};
use crate::error::ClusterError;
use crate::identities::Identities;
use crate::machine::Machine;
use crate::{descriptions, private};

/// Puts a cluster together.
#[must_use]
#[derive(Default)]
pub struct ClusterBuilder {
    data_dir: Option<PathBuf>,
    listen: Option<SocketAddr>,
    controllers: Controllers,
    default_storage_class: Option<bool>,
    nodes: u32,
    machine: Option<Machine>,
    scheduler_profiles: Vec<String>,
    kwok: bool,
    admission_plugins: Option<AdmissionPlugins>,
    history: Option<Duration>,
    pod_security: PodSecurity,
    flow_control: FlowControlOptions,
    audit: Option<AuditOptions>,
}

impl ClusterBuilder {
    /// Keeps everything in `dir`: objects in `dir/store`, the certificate authority in `dir/pki`.
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// Serves TLS on `address`; port 0 picks a free one.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Runs these built-in controllers; all of them, and the scheduler, unless set.
    pub fn controllers(mut self, controllers: Controllers) -> Self {
        self.controllers = controllers;
        self
    }

    /// Creates the default StorageClass `standard`, whose claims get a volume on the node of their first pod, or does
    /// not. Unless set, it is there if there are [nodes](Self::nodes).
    pub fn default_storage_class(mut self, present: bool) -> Self {
        self.default_storage_class = Some(present);
        self
    }

    /// Has so many simulated nodes, `node-0` and so on; none unless set. With at least one, every other Node that
    /// [is simulated](windlass_node::is_simulated) is run as well, whenever it is created.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kube::runtime::{conditions, wait::await_condition};
    /// use kube::{Api, api::PostParams};
    /// use serde_json::json;
    ///
    /// let cluster = windlass_cluster::Cluster::builder().nodes(1).start().await?;
    /// let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    /// let pod = json!({
    ///     "metadata": { "name": "web" },
    ///     "spec": { "nodeName": "node-0", "containers": [{ "name": "web", "image": "nginx" }] },
    /// });
    /// pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    /// await_condition(pods, "web", conditions::is_pod_running()).await?;
    /// cluster.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn nodes(mut self, count: u32) -> Self {
        self.nodes = count;
        self
    }

    /// Has a node whose pods really run on this machine, by a runtime that is made with the client of the node.
    pub fn machine(mut self, machine: Machine) -> Self {
        self.machine = Some(machine);
        self
    }

    /// Has the scheduler take pods with this `spec.schedulerName` as well, besides those of `default-scheduler`. Their
    /// events are reported by this name.
    pub fn scheduler_profile(mut self, name: impl Into<String>) -> Self {
        self.scheduler_profiles.push(name.into());
        self
    }

    /// Accepts kwok's objects (`kwok.x-k8s.io/v1alpha1`) and does what they say about simulated pods: see [`windlass_kwok`].
    /// Their definitions are created if they are missing. Those who may create such objects reach files and programs of
    /// this machine with the rights of this process.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// let cluster = windlass_cluster::Cluster::builder().nodes(1).kwok(true).start().await?;
    /// # cluster.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn kwok(mut self, enabled: bool) -> Self {
        self.kwok = enabled;
        self
    }

    /// Runs these admission plugins of the API server. Unless set, all of them run, but ServiceAccount only together with
    /// the controller [`BuiltIn::ServiceAccount`]: without it no new namespace would get the account that pods need.
    ///
    /// The namespaces of a new cluster have their account `default` when it starts. A pod that is created in another
    /// namespace before its account waits for it for about a second.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use windlass_cluster::{AdmissionPlugin, AdmissionPlugins, Cluster};
    ///
    /// let plugins = AdmissionPlugins::default().without(AdmissionPlugin::ServiceAccount);
    /// let cluster = Cluster::builder().admission_plugins(plugins).start().await?;
    /// # cluster.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn admission_plugins(mut self, plugins: AdmissionPlugins) -> Self {
        self.admission_plugins = Some(plugins);
        self
    }

    /// Judges pods in this way where the labels of their namespace say nothing. Unless set, they may ask for everything.
    pub fn pod_security(mut self, configuration: PodSecurity) -> Self {
        self.pod_security = configuration;
        self
    }

    /// Keeps history for this long instead of for five minutes: a list at an older revision, or the next page of an older
    /// list, is answered with 410. With zero it is kept until it takes too much memory.
    pub fn history(mut self, duration: Duration) -> Self {
        self.history = Some(duration);
        self
    }

    /// Divides the seats of the API server among priority levels as these options say.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use windlass_cluster::{Cluster, FlowControlOptions};
    ///
    /// let options = FlowControlOptions { seats: 1200, ..FlowControlOptions::default() };
    /// let cluster = Cluster::builder().flow_control(options).start().await?;
    /// # cluster.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn flow_control(mut self, options: FlowControlOptions) -> Self {
        self.flow_control = options;
        self
    }

    /// Records requests to the API server, as these options say.
    pub fn audit(mut self, options: AuditOptions) -> Self {
        self.audit = Some(options);
        self
    }

    /// Starts the cluster; when this returns it can be used. The controllers are not waited for.
    pub async fn start(self) -> Result<Cluster, ClusterError> {
        let data = match self.data_dir {
            Some(dir) => Data::Directory(dir),
            None => Data::Memory(Arc::new(Memory::new())),
        };
        if let Data::Directory(dir) = &data {
            for part in [dir.clone(), dir.join("pki"), dir.join("store")] {
                private::directory(&part)?;
            }
            private::close_files(&dir.join("pki"))?;
        }
        let opened = data.open().await?;
        let (token_key, authority, front_proxy) = match &data {
            Data::Directory(dir) => {
                let pki = dir.join("pki");
                let front_proxy = Authority::load_or_generate_named(&pki, "front-proxy-ca")?;
                (TokenKey::load_or_generate(&pki)?, Authority::load_or_generate(&pki)?, front_proxy)
            }
            Data::Memory(_) => (TokenKey::generate()?, Authority::generate()?, Authority::generate()?),
        };
        let plugins = self.admission_plugins.unwrap_or_else(|| default_plugins(&self.controllers));
        let kept = Kept {
            data,
            token_key: Arc::new(token_key),
            authority: Arc::new(authority),
            front_proxy: Arc::new(front_proxy),
            plugins,
            history: self.history,
            pod_security: self.pod_security,
            flow_control: self.flow_control,
            audit: self.audit,
        };
        let enabled = Enabled {
            controllers: self.controllers,
            default_storage_class: self.default_storage_class.unwrap_or(self.nodes > 0 || self.machine.is_some()),
            nodes: self.nodes,
            machine: self.machine,
            scheduler_profiles: self.scheduler_profiles,
            kwok: self.kwok,
        };
        Cluster::launch(opened, self.listen, enabled, kept).await
    }
}

/// What runs beside the API server.
struct Enabled {
    controllers: Controllers,
    default_storage_class: bool,
    /// Simulated nodes.
    nodes: u32,
    machine: Option<Machine>,
    scheduler_profiles: Vec<String>,
    /// Whether kwok's objects are accepted.
    kwok: bool,
}

/// What a cluster has before it starts and after it has stopped.
struct Kept {
    data: Data,
    token_key: Arc<TokenKey>,
    authority: Arc<Authority>,
    /// Signs what the server shows to aggregated servers.
    front_proxy: Arc<Authority>,
    plugins: AdmissionPlugins,
    history: Option<Duration>,
    pod_security: PodSecurity,
    flow_control: FlowControlOptions,
    audit: Option<AuditOptions>,
}

/// The admission plugins that are of use with these controllers.
fn default_plugins(controllers: &Controllers) -> AdmissionPlugins {
    let all = AdmissionPlugins::default();
    if controllers.contains(BuiltIn::ServiceAccount) { all } else { all.without(AdmissionPlugin::ServiceAccount) }
}

/// Where the objects are.
enum Data {
    Directory(PathBuf),
    Memory(Arc<Memory>),
}

/// A store, and what was found in its directory if it has one.
type Opened = (Arc<dyn Store>, Option<Recovery>);

impl Data {
    async fn open(&self) -> Result<Opened, ClusterError> {
        match self {
            Self::Directory(dir) => {
                let (store, recovery) = open(dir.join("store")).await?;
                Ok((store, Some(recovery)))
            }
            Self::Memory(memory) => Ok((Arc::<Memory>::clone(memory), None)),
        }
    }
}

async fn open(path: PathBuf) -> Result<(Arc<dyn Store>, Recovery), ClusterError> {
    let dir = path.clone();
    let opened = tokio::task::spawn_blocking(move || Durable::open(dir, DurableOptions::default())).await;
    match opened.expect("invariant: opening a store does not panic") {
        Ok((store, recovery)) => Ok((Arc::new(store), recovery)),
        Err(source) => Err(ClusterError::Open { path, source }),
    }
}

/// A running cluster. Dropping it stops it; [`stop`](Self::stop) also waits until it has stopped.
pub struct Cluster {
    server: Server,
    listener: Option<Listener>,
    controllers: Running,
    enabled: Enabled,
    kept: Kept,
    recovery: Option<Recovery>,
}

impl Cluster {
    /// A cluster in memory, with no socket: for tests.
    pub async fn start() -> Result<Self, ClusterError> {
        Self::builder().start().await
    }

    /// A cluster with a data directory, a socket, or both.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    async fn launch(
        (store, recovery): Opened,
        listen: Option<SocketAddr>,
        enabled: Enabled,
        kept: Kept,
    ) -> Result<Self, ClusterError> {
        let mut builder = Server::builder()
            .store(store)
            .token_key(Arc::clone(&kept.token_key))
            .front_proxy_authority(Arc::clone(&kept.front_proxy))
            .admission_plugins(kept.plugins)
            .pod_security(kept.pod_security.clone())
            .flow_control(kept.flow_control)
            .describe_definitions(descriptions::describe);
        if let Some(history) = kept.history {
            builder = builder.history(history);
        }
        if let Some(audit) = &kept.audit {
            builder = builder.audit(audit.clone());
        }
        let server = builder.start().await?;
        let listener = match listen {
            Some(address) => Some(server.listen(address, &kept.authority).await?),
            None => None,
        };
        let api = Arc::clone(server.api());
        let check_policy: Check = Arc::new(move |policy: &serde_json::Value| {
            let warnings = api.check_policy(policy).into_iter();
            warnings.map(|warning| (warning.field_ref, warning.warning)).collect()
        });
        let setup = Setup {
            identities: Identities::new(&server),
            authority: Arc::clone(&kept.authority),
            token_key: Arc::clone(&kept.token_key),
            kinds: server.api().crds.subscribe(),
            check_policy,
            default_storage_class: enabled.default_storage_class,
            nodes: enabled.nodes,
            machine: enabled.machine.clone(),
            scheduler_profiles: enabled.scheduler_profiles.clone(),
            kwok: enabled.kwok,
        };
        if enabled.kwok {
            windlass_kwok::crds::ensure(&setup.identities.server()).await?;
        }
        let controllers = Running::start(&enabled.controllers, setup, &server)?;
        Ok(Self { server, listener, controllers, enabled, kept, recovery })
    }

    /// A client that reaches the cluster inside this process, as an administrator.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.server.service(), "default")
    }

    /// The API server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The address that is listened on, if any.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(Listener::address)
    }

    /// What the cluster recovered from its data directory; `None` for a cluster in memory.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// The address and credentials for an administrator; `None` without a socket.
    pub fn credentials(&self) -> Result<Option<Credentials>, ClusterError> {
        let Some(address) = self.address() else { return Ok(None) };
        let identity = self.kept.authority.client("kubernetes-admin", "system:masters")?;
        Ok(Some(Credentials::new(address, self.kept.authority.certificate(), &identity)))
    }

    /// Stops the cluster and starts it again with the same objects, as when its process ends and another one begins.
    /// Resource versions go on, the address stays, certificates and the tokens of ServiceAccounts remain valid.
    /// Services and clients of the [server](Self::server) before lead to a server that has stopped: make new ones.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use kube::{Api, api::PostParams};
    ///
    /// let cluster = windlass_cluster::Cluster::start().await?;
    /// let mut pets = Namespace::default();
    /// pets.metadata.name = Some("pets".into());
    /// Api::all(cluster.client()).create(&PostParams::default(), &pets).await?;
    ///
    /// let cluster = cluster.restart().await?;
    /// assert!(Api::<Namespace>::all(cluster.client()).get_opt("pets").await?.is_some());
    /// cluster.stop().await?;
    /// # Ok(()) }
    /// ```
    pub async fn restart(self) -> Result<Self, ClusterError> {
        let listen = self.address();
        self.controllers.stop().await;
        if let Some(listener) = self.listener {
            listener.stop().await;
        }
        self.server.stop().await?;
        let mut kept = self.kept;
        if let Data::Memory(memory) = &mut kept.data {
            *memory = Arc::new(memory.reopen());
        }
        Self::launch(kept.data.open().await?, listen, self.enabled, kept).await
    }

    /// Stops serving, ends watches, and returns when everything is on disk.
    pub async fn stop(self) -> Result<(), ClusterError> {
        self.controllers.stop().await;
        if let Some(listener) = self.listener {
            listener.stop().await;
        }
        Ok(self.server.stop().await?)
    }
}
