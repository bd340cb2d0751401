//! The manager: everything an operator runs, started and stopped in order.
//!
//! A manager starts the servers for probes and metrics, then [webhooks](Manager::add_webhooks), then the caches. Once
//! the caches are complete, it starts [tasks](Manager::add_task) and controllers. With
//! [leader election](ManagerBuilder::leader_election), controllers that need to lead and
//! [leader tasks](Manager::add_leader_task) wait for the lease; what they read is in the cache by then.
//!
//! It stops in the reverse order, each group after the one before has finished: leader tasks and the leader's
//! controllers, whose lease is then released; other controllers; tasks; caches; webhooks; metrics and probes. All of
//! this has [30 seconds](ManagerBuilder::graceful_shutdown); then the rest is aborted, and the lease is released all the
//! same. Every task belongs to the manager: once [`run`](Manager::run) has returned, or its future was dropped, no task
//! is left except code that blocks its thread, which cannot be aborted.
//!
//! The first SIGINT or SIGTERM stops the manager, a second one ends the process. The same signal again within half a
//! second counts as the first.
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use windlass::{Controller, Manager, Outcome, controller};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = windlass::config::client().await?;
//! let mut manager = Manager::builder(client)
//!     .name("petstore-operator")
//!     .probes(":8081")
//!     .metrics(":8080")
//!     .build()?;
//! manager.add(
//!     Controller::<ConfigMap>::new("settings")
//!         .complete(controller::from_fn(|_map, _ctx| async { Ok(Outcome::Done) })),
//! )?;
//! manager.run().await?; // until SIGINT or SIGTERM
//! # Ok(()) }
//! ```

mod access;
mod builder;
mod describe;
mod error;
mod http;
mod leading;
mod needs;
mod probes;
mod requests;
mod run;
mod signals;
mod started;
mod tasks;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use crate::remote_cluster::RemoteCluster;
pub use builder::ManagerBuilder;
pub use error::ManagerError;
pub use probes::Check;

use crate::cache::{CacheOptions, Caches, Lister};
use crate::client::CachedClient;
use crate::controller::CompleteController;
use crate::events::{Broadcaster, EventApi, Recorder};
use crate::lease::LeaderElection;
use crate::metrics::Registry;
use crate::object::TypedObject;
#[cfg(feature = "webhook")]
use crate::webhook::{self, WebhookError, Webhooks};
use probes::Checks;
use tasks::{LeaderTask, Task};

/// A server that is bound but does not serve yet.
struct Bound {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

/// See the [module documentation](self).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let kube = kube::Client::new(server.service(), "default");
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tokio_util::sync::CancellationToken;
/// use windlass::{Controller, Manager, Outcome, controller};
///
/// let (stop, seen) = (CancellationToken::new(), CancellationToken::new());
/// let mut manager = Manager::builder(kube).probes("127.0.0.1:0").build()?;
/// let told = seen.clone();
/// manager.add(Controller::<ConfigMap>::new("settings").complete(controller::from_fn(move |_map, _ctx| {
///     told.cancel();
///     async { Ok(Outcome::Done) }
/// })))?;
/// # let mut map = ConfigMap::default();
/// # map.metadata.name = Some("settings".into());
/// # kube::Api::default_namespaced(manager.client().kube().clone()).create(&Default::default(), &map).await?;
/// println!("probes at {:?}", manager.probes_address());
/// let running = tokio::spawn(manager.run_until(stop.clone()));
/// seen.cancelled().await;
/// stop.cancel();
/// running.await??; // nothing is left behind
/// # Ok(()) }
/// ```
#[must_use = "a manager does nothing before it runs"]
pub struct Manager {
    client: CachedClient,
    metrics: Registry,
    /// The same, for the user's.
    registry: Registry,
    broadcaster: Arc<Broadcaster>,
    probes: Option<Bound>,
    metrics_server: Option<Bound>,
    checks: Checks,
    controllers: Vec<Arc<CompleteController>>,
    tasks: Vec<Task>,
    leader_tasks: Vec<LeaderTask>,
    names: HashSet<String>,
    election: Option<LeaderElection>,
    graceful_shutdown: Duration,
    #[cfg(feature = "webhook")]
    webhooks: Vec<webhook::Bound>,
    /// Not served, but perhaps registered.
    #[cfg(feature = "webhook")]
    disabled_webhooks: Vec<Webhooks>,
    clusters: Vec<RemoteCluster>,
    cache_options: CacheOptions,
    event_api: EventApi,
    metrics_access: bool,
    /// Where the certificate of the metrics is.
    #[cfg(feature = "webhook")]
    metrics_certificates: Option<PathBuf>,
    check_permissions: bool,
    reconcile_spans: bool,
    /// The kinds that the operator declares.
    definitions: Vec<CustomResourceDefinition>,
    /// Where to say what is needed, instead of running.
    describe: Option<PathBuf>,
    controller_clients: Option<builder::ControllerClients>,
    ready: watch::Sender<bool>,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Manager {
    /// Describes a manager that works through a client.
    pub fn builder(client: kube::Client) -> ManagerBuilder {
        ManagerBuilder::new(client)
    }

    /// The client, with cached reads once the manager runs. Its writes pass no [fence](crate::lease::Fence), whether
    /// or not this replica leads: use it in tasks and controllers that every replica runs. For what only the leader
    /// does, use [`Context::client`](crate::Context::client), or the client that
    /// [leader tasks](Self::add_leader_task) receive.
    pub fn client(&self) -> &CachedClient {
        &self.client
    }

    /// The client of a controller: the one that
    /// [`controller_clients`](ManagerBuilder::controller_clients) has for its name, otherwise the manager's. For tasks
    /// that are a part of a controller. Its writes pass no fence.
    pub fn client_of(&self, controller: &str) -> CachedClient {
        self.own_client(controller).unwrap_or_else(|| self.client.clone())
    }

    fn own_client(&self, controller: &str) -> Option<CachedClient> {
        let kube = self.controller_clients.as_ref()?(controller)?;
        let kube = requests::counted(kube, &self.metrics);
        Some(CachedClient::new(kube, self.client.caches().clone(), self.client.field_manager()))
    }

    /// Reads a kind from the cache, for tasks and web pages of the operator. The kind is in the cache before
    /// controllers start. Functions given to a controller have
    /// [`SourceContext::lister`](crate::controller::SourceContext::lister).
    pub fn lister<K: TypedObject>(&self) -> Lister<K> {
        self.client.lister()
    }

    /// Reports events about objects of the manager's own cluster in the name of a component, whether or not this
    /// replica leads. [`Context::recorder`](crate::Context::recorder) stops with the lease.
    pub fn recorder(&self, component: &str) -> Recorder {
        self.broadcaster.recorder(component)
    }

    /// The manager's metrics, to add one's own.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Where the probes are served.
    pub fn probes_address(&self) -> Option<SocketAddr> {
        self.probes.as_ref().map(|bound| bound.address)
    }

    /// Where the metrics are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_server.as_ref().map(|bound| bound.address)
    }

    /// Where webhooks are served, in the order in which they were added.
    #[cfg(feature = "webhook")]
    pub fn webhook_addresses(&self) -> Vec<SocketAddr> {
        self.webhooks.iter().map(webhook::Bound::address).collect()
    }

    /// Waits until the manager runs, its webhooks are served and its caches complete. False if it ends
    /// before.
    ///
    /// ```no_run
    /// # async fn example(manager: windlass::Manager) {
    /// let ready = manager.ready();
    /// tokio::spawn(manager.run());
    /// assert!(ready.await);
    /// # }
    /// ```
    pub fn ready(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut ready = self.ready.subscribe();
        async move { ready.wait_for(|ready| *ready).await.is_ok() }
    }

    /// Serves webhooks, before the caches are filled until after everything else has stopped. If they are
    /// [disabled](Webhooks::enabled), as with `ENABLE_WEBHOOKS=false`, none are served, and the log warns of
    /// configurations that still have API servers call them.
    #[cfg(feature = "webhook")]
    pub fn add_webhooks(&mut self, webhooks: Webhooks) -> Result<(), ManagerError> {
        if !webhooks.is_enabled() {
            tracing::info!("webhooks are disabled");
            self.disabled_webhooks.push(webhooks);
            return Ok(());
        }
        let webhooks = webhooks.where_told(self.client.kube().default_namespace(), self.client.field_manager());
        let address = Some(webhooks.address().to_owned());
        if let Some(Bound { listener, address }) = builder::bind(address, "webhooks", self.describe.is_some())? {
            let bound = webhooks.bind(listener, address)?;
            let taken = |name: &&str| self.webhooks.iter().any(|other| other.registered_as() == Some(name));
            if let Some(name) = bound.registered_as().filter(taken) {
                return Err(WebhookError::Registered { name: name.to_owned() }.into());
            }
            self.checks.add_ready("webhooks", bound.ready_check());
            self.webhooks.push(bound);
        }
        Ok(())
    }

    /// Adds a controller. `/readyz` has a check `controller/NAME` for it, which fails while the last three reconciles
    /// of an object, or more, have all panicked. The log says which object, and the message.
    ///
    /// `/readyz?verbose` and `/readyz/controller/NAME` show the failure, and so does the metric
    /// `windlass_repeatedly_panicking_keys`. The manager itself stays ready: one object that a reconciler cannot deal
    /// with must not take the operator's webhooks out of service.
    pub fn add(&mut self, mut controller: CompleteController) -> Result<(), ManagerError> {
        let invalid = |source| ManagerError::Sharding { controller: controller.name().to_owned(), source };
        controller.validate(self.client.field_manager()).map_err(invalid)?;
        self.claim_name("a controller", controller.name())?;
        if let Err(kind) = controller.register(&self.client) {
            // The name is free for a controller that is right.
            self.names.remove(controller.name());
            return Err(ManagerError::Transform { controller: controller.name().to_owned(), kind });
        }
        controller.client = self.own_client(controller.name());
        let health = controller.health();
        self.checks.add_advisory(&format!("controller/{}", controller.name()), move || health.check());
        self.controllers.push(Arc::new(controller));
        Ok(())
    }

    /// Adds a cluster besides the manager's own. Its caches start and stop with the manager. To be
    /// called inside a Tokio runtime.
    pub fn add_cluster(&mut self, name: &str, client: kube::Client) -> Result<RemoteCluster, ManagerError> {
        tokio::runtime::Handle::try_current().map_err(|_| ManagerError::NoRuntime)?;
        if self.clusters.iter().any(|cluster| cluster.name() == name) {
            return Err(ManagerError::DuplicateCluster { name: name.to_owned() });
        }
        let client = requests::counted(client, &self.metrics);
        let (events, operator) = (Arc::new(self.broadcaster.beside()), self.client.field_manager());
        let options = builder::reporting(self.cache_options.clone(), events.recorder(operator));
        let client = CachedClient::new(client.clone(), Caches::new(client, options), operator);
        let cluster = RemoteCluster { name: name.into(), client, events };
        self.clusters.push(cluster.clone());
        let own = std::iter::once(self.client.caches());
        let caches = own.chain(self.clusters.iter().map(RemoteCluster::caches)).cloned().collect();
        builder::collect_caches(&self.metrics, caches);
        Ok(cluster)
    }

    /// Adds a task that runs in every replica, leader or not, once the caches are complete. It must
    /// end when the token is cancelled; ending before the manager stops makes it stop, with an error.
    pub fn add_task<F, Fut, E>(&mut self, name: &str, task: F) -> Result<(), ManagerError>
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.claim_name("a task", name)?;
        self.tasks.push(Task::new(name, task));
        Ok(())
    }

    /// Adds a task that runs beside the controllers of the leader: in every replica, if no leader is
    /// elected. It is started with the lease, dropped without it, and started again when the lease
    /// comes back. The writes of its client stop with the lease. It must end when the token is
    /// cancelled; ending before the manager stops makes it stop, with an error.
    ///
    /// ```no_run
    /// # use std::{convert::Infallible, time::Duration};
    /// # fn example(mut manager: windlass::Manager) -> Result<(), windlass::manager::ManagerError> {
    /// manager.add_leader_task("report", |client, shutdown| async move {
    ///     let every = async {
    ///         loop {
    ///             tokio::time::sleep(Duration::from_secs(3600)).await;
    ///             tracing::info!(as_who = client.field_manager(), "an hour has passed");
    ///         }
    ///     };
    ///     shutdown.run_until_cancelled(every).await;
    ///     Ok::<_, Infallible>(())
    /// })?;
    /// # Ok(()) }
    /// ```
    pub fn add_leader_task<F, Fut, E>(&mut self, name: &str, task: F) -> Result<(), ManagerError>
    where
        F: Fn(CachedClient, CancellationToken) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.claim_name("a task", name)?;
        self.leader_tasks.push(LeaderTask::new(name, task));
        Ok(())
    }

    /// Adds a check to `/healthz`: whether the process should be restarted.
    pub fn add_health_check(&mut self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.checks.add_health(name, check);
    }

    /// Adds a check to `/readyz`: whether the process is of use.
    pub fn add_ready_check(&mut self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.checks.add_ready(name, check);
    }

    /// The checks of `/readyz` so far: of controllers, of webhooks, and those
    /// [added](Self::add_ready_check). For programs that answer probes themselves; the checks can be run for as long as
    /// the program wants, also while the manager runs.
    ///
    /// ```no_run
    /// # async fn example(manager: windlass::Manager) {
    /// let checks = manager.ready_checks();
    /// tokio::spawn(manager.run());
    /// for check in checks {
    ///     println!("{}: {:?}", check.name(), check.run());
    /// }
    /// # }
    /// ```
    pub fn ready_checks(&self) -> Vec<Check> {
        self.checks.ready().to_vec()
    }

    fn claim_name(&mut self, what: &'static str, name: &str) -> Result<(), ManagerError> {
        if name.is_empty() {
            return Err(ManagerError::InvalidName { what, name: String::new(), rule: "one character at least" });
        }
        if self.names.insert(name.to_owned()) {
            return Ok(());
        }
        Err(ManagerError::DuplicateName { name: name.to_owned() })
    }
}
