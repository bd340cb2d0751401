//! The manager: everything an operator runs, started and stopped in order.
//!
//! It starts the probes and metrics servers, then [webhooks](Manager::add_webhooks), then the caches,
//! waits until they are complete, then starts [tasks](Manager::add_task) and controllers; with
//! [leader election](ManagerBuilder::leader_election), controllers that need to lead and
//! [the leader's tasks](Manager::add_leader_task) wait for the lease, with everything that they read
//! in the cache already. It stops in the reverse order, and gives what is running
//! [30 seconds](ManagerBuilder::graceful_shutdown) to finish. Every task belongs to it: once
//! [`run`](Manager::run) has returned, or its future was dropped, nothing is left behind.
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
//!         .complete(controller::from_fn(|_key, _ctx| async { Ok(Outcome::Done) })),
//! )?;
//! manager.run().await?; // until SIGINT or SIGTERM
//! # Ok(()) }
//! ```

mod access;
mod builder;
mod cluster;
mod describe;
mod http;
mod leading;
mod probes;
mod requests;
mod signals;
mod tasks;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use builder::ManagerBuilder;
pub use cluster::Cluster;

use crate::cache::{CacheOptions, Caches, Lister};
use crate::client::Client;
use crate::controller::{CompleteController, Environment};
use crate::events::{Broadcaster, EventApi, Recorder};
use crate::informer::SyncError;
use crate::lease::{InvalidElection, LeaderElection};
use crate::metrics::Registry;
use crate::object::Object;
use crate::rbac::Rules;
use crate::webhook::{self, WebhookError, Webhooks};
use access::Access;
use leading::Leading;
use probes::Checks;
use tasks::{LeaderTask, Task};

/// Why a manager could not be built, or stopped other than on request.
///
/// ```no_run
/// use windlass::manager::ManagerError;
///
/// # async fn example(manager: windlass::Manager) -> Result<(), ManagerError> {
/// match manager.run().await {
///     Err(ManagerError::Forbidden { missing }) => {
///         eprint!("{}", missing.to_yaml("petstore-manager"));
///         std::process::exit(1)
///     }
///     ended => ended,
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A server's address cannot be listened on.
    #[error("listen on {address} for {purpose}: {source}")]
    Bind {
        /// The address asked for.
        address: String,
        /// What for.
        purpose: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Two controllers or tasks of the same name.
    #[error("a controller or task named {name:?} was added before")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A cache did not complete.
    #[error(transparent)]
    Cache(#[from] SyncError),
    /// The election's settings contradict each other.
    #[error(transparent)]
    Election(#[from] InvalidElection),
    /// A sharded controller's settings cannot work.
    #[error("sharded controller {controller:?}: {source}")]
    Sharding {
        /// The controller.
        controller: String,
        /// What is wrong.
        #[source]
        source: InvalidElection,
    },
    /// A transform came after others had begun to watch the kind.
    #[error("controller {controller:?}: {kind} are watched already, without this transform")]
    Transform {
        /// The controller.
        controller: String,
        /// The kind.
        kind: String,
    },
    /// Webhooks cannot be served.
    #[error(transparent)]
    Webhooks(#[from] WebhookError),
    /// The operator may not do what it cannot do without.
    #[error("the operator's account lacks permissions; add these rules to its role:\n{missing}")]
    Forbidden {
        /// What is missing.
        missing: Rules,
    },
    /// A task failed, or ended before it was told to.
    #[error("task {name:?}: {message}")]
    Task {
        /// The task.
        name: String,
        /// How it ended.
        message: String,
    },
    /// What was running did not finish in time and was aborted.
    #[error("not stopped within {after:?}, aborted")]
    ShutdownTimeout {
        /// How long was waited.
        after: Duration,
    },
    /// A second signal arrived while stopping.
    #[error("aborted by a second signal")]
    Aborted,
    /// Signals cannot be received.
    #[error("install signal handlers: {0}")]
    Signals(#[source] std::io::Error),
    /// The manifests that `$WINDLASS_MANIFESTS` asks for cannot be written.
    #[error("write manifests to {}: {source}", path.display())]
    Describe {
        /// The file asked for.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// How long the server may take to say what the operator may do; it is taken to allow everything after.
const PERMISSIONS_TIMEOUT: Duration = Duration::from_secs(5);

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
/// manager.add(Controller::<ConfigMap>::new("settings").complete(controller::from_fn(move |_key, _ctx| {
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
    client: Client,
    metrics: Registry,
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
    webhooks: Vec<webhook::Bound>,
    clusters: Vec<Cluster>,
    cache_options: CacheOptions,
    event_api: EventApi,
    metrics_access: bool,
    check_permissions: bool,
    /// Where to say what is needed, instead of running.
    describe: Option<PathBuf>,
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

    /// The client, with cached reads once the manager runs. Its writes pass no fence, whoever
    /// leads: it is for tasks and controllers that every replica runs. What only the leader does
    /// is written through [`Context::client`](crate::Context::client), or the client that
    /// [the leader's tasks](Self::add_leader_task) are given.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads a kind from the cache; for functions given to
    /// [`Controller::watches`](crate::Controller::watches).
    pub fn lister<K: Object>(&self) -> Lister<K>
    where
        K::DynamicType: Default,
    {
        self.client.lister()
    }

    /// Reports events in a component's name, whoever leads.
    /// [`Context::recorder`](crate::Context::recorder) stops with the lease.
    pub fn recorder(&self, component: &str) -> Recorder {
        self.broadcaster.recorder(component)
    }

    /// The manager's metrics, to add one's own.
    pub fn registry(&self) -> &Registry {
        &self.metrics
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

    /// Serves webhooks, before the caches are filled until after everything else has stopped. Does
    /// nothing if they are [disabled](Webhooks::enabled), as with `ENABLE_WEBHOOKS=false`.
    pub fn add_webhooks(&mut self, webhooks: Webhooks) -> Result<(), ManagerError> {
        if !webhooks.is_enabled() {
            tracing::info!("webhooks are disabled");
            return Ok(());
        }
        let address = Some(webhooks.address().to_owned());
        if let Some(Bound { listener, address }) = builder::bind(address, "webhooks", self.describe.is_some())? {
            let bound = webhooks.bind(listener, address)?;
            self.checks.add_ready("webhooks", bound.ready_check());
            self.webhooks.push(bound);
        }
        Ok(())
    }

    /// Adds a controller.
    pub fn add(&mut self, controller: CompleteController) -> Result<(), ManagerError> {
        let invalid = |source| ManagerError::Sharding { controller: controller.name().to_owned(), source };
        controller.validate().map_err(invalid)?;
        self.claim_name(controller.name())?;
        let late = |kind| ManagerError::Transform { controller: controller.name().to_owned(), kind };
        controller.register(&self.client).map_err(late)?;
        self.controllers.push(Arc::new(controller));
        Ok(())
    }

    /// Adds a cluster besides the manager's own. Its caches start and stop with the manager.
    pub fn add_cluster(&mut self, name: &str, client: kube::Client) -> Result<Cluster, ManagerError> {
        if self.clusters.iter().any(|cluster| cluster.name() == name) {
            return Err(ManagerError::DuplicateName { name: name.to_owned() });
        }
        let client = requests::counted(client, &self.metrics);
        let caches = Caches::new(client.clone(), self.cache_options.clone());
        let client = Client::new(client, caches, self.client.field_manager());
        let cluster = Cluster { name: name.into(), client };
        self.clusters.push(cluster.clone());
        Ok(cluster)
    }

    /// Everything the operator needs to be allowed: see [`rbac`](crate::rbac).
    ///
    /// ```no_run
    /// # fn example(manager: windlass::Manager) {
    /// print!("{}", manager.rules().to_yaml("petstore-manager"));
    /// # }
    /// ```
    pub fn rules(&self) -> Rules {
        self.needs().0
    }

    /// What the operator may not do of what it cannot do without. Of a kind that a controller owns
    /// it must be able to write something, in one way or another.
    fn missing(&self) -> impl Future<Output = Rules> + Send + use<> {
        let mut owned = Rules::default();
        for controller in &self.controllers {
            owned.extend(&controller.owned(self.client.caches().namespaces()));
        }
        let ((_, needed), kube) = (self.needs(), self.client.kube().clone());
        async move {
            let mut missing = needed.missing(&kube).await;
            missing.extend(&owned.missing(&kube).await.where_all_of(&owned));
            missing
        }
    }

    /// All rules, and those without which the manager cannot start.
    fn needs(&self) -> (Rules, Rules) {
        let (mut all, mut needed) = (Rules::default(), Rules::default());
        for controller in &self.controllers {
            let (more, must) = controller.rules(self.client.caches().namespaces());
            all.extend(&more);
            needed.extend(&must);
        }
        if let Some(election) = &self.election {
            let (namespace, verbs) = (Some(election.namespace.as_str()), ["get", "create", "update"]);
            needed.allow(namespace, "coordination.k8s.io", ["leases"], verbs);
        }
        if self.metrics_access && self.metrics_server.is_some() {
            needed.allow(None, "authentication.k8s.io", ["tokenreviews"], ["create"]);
            needed.allow(None, "authorization.k8s.io", ["subjectaccessreviews"], ["create"]);
        }
        for webhooks in &self.webhooks {
            needed.extend(&webhooks.rules());
        }
        all.extend(&needed);
        let group = if self.event_api == EventApi::EventsV1 { "events.k8s.io" } else { "" };
        all.allow(None, group, ["events"], ["create", "patch"]);
        (all, needed)
    }

    /// Adds a task that runs in every replica, leader or not, once the caches are complete. It must
    /// end when the token is cancelled; ending before stops the manager.
    pub fn add_task<F, Fut, E>(&mut self, name: &str, task: F) -> Result<(), ManagerError>
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.claim_name(name)?;
        self.tasks.push(Task::new(name, task));
        Ok(())
    }

    /// Adds a task that runs beside the controllers of the leader: in every replica, if no leader is
    /// elected. It is started with the lease, dropped without it, and started again when the lease
    /// comes back. The writes of its client stop with the lease. It must end when the token is
    /// cancelled; ending before stops the manager.
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
        F: Fn(Client, CancellationToken) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.claim_name(name)?;
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

    /// Runs until SIGINT or SIGTERM, then stops in order. A second signal aborts.
    pub async fn run(self) -> Result<(), ManagerError> {
        let shutdown = CancellationToken::new();
        let mut signals = signals::Signals::install().map_err(ManagerError::Signals)?;
        let running = self.run_until(shutdown.clone());
        tokio::pin!(running);
        tokio::select! {
            ended = &mut running => return ended,
            () = signals.next() => {
                tracing::info!("stopping on signal");
                shutdown.cancel();
            }
        }
        tokio::select! {
            ended = &mut running => ended,
            () = signals.next() => Err(ManagerError::Aborted),
        }
    }

    /// Runs until the token is cancelled, then stops in order.
    pub async fn run_until(self, shutdown: CancellationToken) -> Result<(), ManagerError> {
        if let Some(path) = self.describe.clone() {
            let written = describe::write(&path, self.client.field_manager(), &self.rules());
            return written.map_err(|source| ManagerError::Describe { path, source });
        }
        if self.check_permissions {
            let asked = tokio::time::timeout(PERMISSIONS_TIMEOUT, self.missing());
            if let Some(Ok(missing)) = shutdown.run_until_cancelled(asked).await
                && !missing.is_empty()
            {
                return Err(ManagerError::Forbidden { missing });
            }
        }
        let Self {
            client,
            metrics,
            broadcaster,
            probes,
            metrics_server,
            checks,
            controllers,
            tasks,
            leader_tasks,
            election,
            graceful_shutdown,
            webhooks,
            clusters,
            metrics_access,
            ready,
            ..
        } = self;
        let caches = client.caches().clone();
        let clusters: Arc<[Cluster]> = clusters.into();
        let every: Vec<Caches> =
            std::iter::once(caches).chain(clusters.iter().map(|cluster| cluster.caches().clone())).collect();
        // Dropping this future must stop the informers too.
        let _stop_caches: Vec<_> = every.iter().map(Caches::stop_on_drop).collect();
        let servers_shutdown = CancellationToken::new();
        let mut servers = JoinSet::new();
        let synced = every.clone();
        let checks = Arc::new(checks.with_ready("caches", move || {
            if synced.iter().all(Caches::is_synced) { Ok(()) } else { Err("not synced".to_owned()) }
        }));
        serve(&mut servers, probes, "probes", &servers_shutdown, None, move |request| checks.answer(request))?;
        let registry = metrics.clone();
        let access = metrics_access.then(|| Arc::new(Access::new(client.kube().clone())));
        serve(&mut servers, metrics_server, "metrics", &servers_shutdown, access, move |request| {
            http::metrics(request, &registry)
        })?;

        // Before the caches: what they list may have to be converted here.
        let webhooks_shutdown = CancellationToken::new();
        let mut webhook_servers = JoinSet::new();
        for bound in webhooks {
            let starting = bound.start(&client, &metrics, webhooks_shutdown.clone());
            if let Some(started) = shutdown.run_until_cancelled(starting).await {
                webhook_servers.spawn(started?);
            }
        }

        every.iter().for_each(Caches::start);
        let work_shutdown = shutdown.child_token();
        let _stop_work = work_shutdown.clone().drop_guard();
        let mut work: JoinSet<Result<(), ManagerError>> = JoinSet::new();
        let syncing = async {
            for caches in &every {
                caches.wait_synced().await?;
            }
            Ok(())
        };
        let mut result = match shutdown.run_until_cancelled(syncing).await {
            Some(Err(error)) => Err(ManagerError::Cache(error)),
            Some(Ok(())) => {
                ready.send_replace(true);
                for task in tasks {
                    work.spawn(task.run(work_shutdown.clone()));
                }
                let environment = Environment {
                    client: client.clone(),
                    clusters,
                    fence: None,
                    recorder: Recorder::discard(),
                    metrics,
                };
                let (controllers, others): (Vec<_>, Vec<_>) =
                    controllers.into_iter().partition(|controller| controller.needs_leader());
                spawn_controllers(&mut work, &others, &environment, &broadcaster, &work_shutdown);
                let leading = Leading {
                    controllers,
                    tasks: leader_tasks,
                    environment,
                    broadcaster: Arc::clone(&broadcaster),
                    election,
                };
                work.spawn(leading.run(work_shutdown.clone()));
                let kube = client.kube().clone();
                let (events, events_shutdown) = (Arc::clone(&broadcaster), servers_shutdown.clone());
                servers.spawn(async move {
                    events.run(kube, events_shutdown).await;
                    Ok(())
                });
                supervise(&mut work, &shutdown).await
            }
            None => Ok(()),
        };

        work_shutdown.cancel();
        // Nor may a reconcile that reads a kind for the first time hold up the rest.
        every.iter().for_each(Caches::close);
        let stopping = async {
            while let Some(ended) = work.join_next().await {
                if let Err(error) = flatten(ended)
                    && result.is_ok()
                {
                    result = Err(error);
                }
            }
            for caches in &every {
                caches.stop().await;
            }
            webhooks_shutdown.cancel();
            while webhook_servers.join_next().await.is_some() {}
            servers_shutdown.cancel();
            while servers.join_next().await.is_some() {}
        };
        if tokio::time::timeout(graceful_shutdown, stopping).await.is_err() {
            work.shutdown().await;
            webhook_servers.shutdown().await;
            servers.shutdown().await;
            for caches in &every {
                caches.stop().await;
            }
            return Err(ManagerError::ShutdownTimeout { after: graceful_shutdown });
        }
        result
    }

    fn claim_name(&mut self, name: &str) -> Result<(), ManagerError> {
        if self.names.insert(name.to_owned()) {
            return Ok(());
        }
        Err(ManagerError::DuplicateName { name: name.to_owned() })
    }
}

fn serve<F>(
    servers: &mut JoinSet<Result<(), ManagerError>>,
    bound: Option<Bound>,
    purpose: &'static str,
    shutdown: &CancellationToken,
    access: Option<Arc<Access>>,
    answer: F,
) -> Result<(), ManagerError>
where
    F: Fn(&http::Head) -> http::Answer + Send + Sync + 'static,
{
    let Some(bound) = bound else {
        return Ok(());
    };
    let listener = tokio::net::TcpListener::from_std(bound.listener);
    let listener =
        listener.map_err(|source| ManagerError::Bind { address: bound.address.to_string(), purpose, source })?;
    tracing::info!(address = %bound.address, purpose, "serving");
    let shutdown = shutdown.clone();
    servers.spawn(async move {
        http::serve(listener, Arc::new(answer), access, shutdown).await;
        Ok(())
    });
    Ok(())
}

fn spawn_controllers(
    work: &mut JoinSet<Result<(), ManagerError>>,
    controllers: &[Arc<CompleteController>],
    environment: &Environment,
    broadcaster: &Broadcaster,
    shutdown: &CancellationToken,
) {
    for controller in controllers {
        let mut environment = environment.clone();
        environment.recorder = broadcaster.recorder(controller.name());
        let running = controller.run(environment, shutdown.clone());
        work.spawn(async move { running.await.map_err(ManagerError::from) });
    }
}

/// Waits for the token, or for something that fails before.
async fn supervise(
    work: &mut JoinSet<Result<(), ManagerError>>,
    shutdown: &CancellationToken,
) -> Result<(), ManagerError> {
    loop {
        // Cancel-safe: a task that ended is taken only when it is returned.
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            Some(ended) = work.join_next() => flatten(ended)?,
        }
    }
}

fn flatten(ended: Result<Result<(), ManagerError>, tokio::task::JoinError>) -> Result<(), ManagerError> {
    ended.unwrap_or_else(|error| Err(ManagerError::Task { name: "unknown".to_owned(), message: error.to_string() }))
}
