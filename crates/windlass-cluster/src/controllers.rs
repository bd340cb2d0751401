//! The built-in controllers: what kube-controller-manager is to a real cluster.
//!
//! They are written with [`windlass`], as any operator is, and reach the server inside the process.
//! One [`Manager`] runs them all. They start after the server and are not waited for: a cluster is
//! ready before they have looked around.

mod clock;
mod metadata;

mod discovery;
mod inventory;
mod work;

mod accounts;
mod garbage;
mod namespace;
mod protection;
mod role_aggregation;
mod root_ca;
mod service_account;
mod service_cidr;
mod tokens;

mod certificates;

mod autoscaler;
mod claim;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod endpoints;
mod event_ttl;
mod history;
mod job;
mod node_lifecycle;
mod pod_garbage;
mod pods;
mod policy_status;
mod quota;
mod replica_set;
mod replication_controller;
mod stateful_set;
mod taint_eviction;
mod volumes;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::client::ClientError;
use windlass::events::EventApi;
use windlass::manager::ManagerError;
use windlass::metrics::Registry;
use windlass::{CachedClient, Manager};
use windlass_kwok::metric::Metrics;
use windlass_kwok::usage::Usages;
use windlass_node::access::PodAccess;
use windlass_node::{Agent, Simulation};
use windlass_scheduler::Scheduler;
use windlass_server::Server;
use windlass_server::authn::TokenKey;
use windlass_server::pki::Authority;
use windlass_server::streams::PodStreams;

use crate::identities::Identities;
use crate::machine::{Dials, Machine};
use crate::streams::AgentStreams;
use crate::usage;
use inventory::Inventory;
pub(crate) use policy_status::Check;

/// The name under which the controllers own what they write, as upstream's do.
const FIELD_MANAGER: &str = "kube-controller-manager";
/// How many objects of a kind caches keep decoded: a decoded pod takes ten times the memory of its bytes, and thousands
/// may change within seconds.
const MOST_DECODED: usize = 1024;
/// How long controllers may take to finish what they are doing when the cluster stops.
const GRACE: Duration = Duration::from_secs(5);

/// A built-in controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum BuiltIn {
    /// Empties namespaces that are being deleted, then finalizes them.
    Namespace,
    /// Gives every namespace a ServiceAccount `default`.
    ServiceAccount,
    /// Fills in Secrets of type `kubernetes.io/service-account-token`.
    ServiceAccountToken,
    /// Gives every namespace a ConfigMap `kube-root-ca.crt`.
    RootCa,
    /// Deletes objects whose last owner is gone.
    GarbageCollector,
    /// Keeps PersistentVolumeClaims until no pod uses them.
    ClaimProtection,
    /// Keeps PersistentVolumes until no claim is bound to them.
    VolumeProtection,
    /// Keeps as many pods as a ReplicaSet asks for.
    ReplicaSet,
    /// Keeps as many pods as a ReplicationController asks for.
    ReplicationController,
    /// Rolls Deployments out.
    Deployment,
    /// Makes and updates the pods of StatefulSets in order, and their claims.
    StatefulSet,
    /// Keeps a pod of each DaemonSet on every node where it belongs.
    DaemonSet,
    /// Runs Jobs to their end.
    Job,
    /// Deletes finished Jobs whose time to live is over.
    JobTimeToLive,
    /// Starts Jobs on schedule.
    CronJob,
    /// Writes the EndpointSlices of services that select pods.
    EndpointSlice,
    /// Writes EndpointSlices for Endpoints that were not written by the Endpoints controller.
    EndpointSliceMirroring,
    /// Writes the Endpoints of services that select pods.
    Endpoints,
    /// Computes how many pods a PodDisruptionBudget allows to be evicted.
    Disruption,
    /// Counts the usage of ResourceQuotas.
    ResourceQuota,
    /// Type-checks the expressions of ValidatingAdmissionPolicies and reports warnings in their status.
    PolicyStatus,
    /// Taints nodes by their conditions, and notices when one falls silent.
    NodeLifecycle,
    /// Evicts pods that do not tolerate a `NoExecute` taint of their node.
    TaintEviction,
    /// Deletes pods of nodes that are gone, and ended pods when there are too many.
    PodGarbageCollector,
    /// Binds PersistentVolumeClaims to PersistentVolumes.
    ClaimBinder,
    /// Releases PersistentVolumes, and deletes or recycles them.
    VolumeReclaim,
    /// Makes and resizes volumes for classes of the provisioner `windlass.dev/local-path`.
    VolumeProvisioner,
    /// Makes the claims of pods' ephemeral volumes.
    EphemeralVolume,
    /// Scales workloads by metrics.
    HorizontalPodAutoscaler,
    /// Deletes events an hour after they were last written.
    EventTimeToLive,
    /// Finds nodes for pods: what kube-scheduler is to a real cluster.
    Scheduler,
    /// Approves CertificateSigningRequests of kubelets for their own client certificates.
    CertificateApproving,
    /// Signs approved CertificateSigningRequests of the signers `kubernetes.io/*`.
    CertificateSigning,
    /// Deletes old CertificateSigningRequests.
    CertificateCleaner,
    /// Makes ServiceCIDRs ready, and keeps them while Services have addresses of theirs.
    ServiceCidr,
    /// Gathers the rules of aggregated ClusterRoles.
    RoleAggregation,
}

impl BuiltIn {
    /// Every built-in controller.
    pub const ALL: &[Self] = &[
        Self::Namespace,
        Self::ServiceAccount,
        Self::ServiceAccountToken,
        Self::RootCa,
        Self::GarbageCollector,
        Self::ClaimProtection,
        Self::VolumeProtection,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::Deployment,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
        Self::JobTimeToLive,
        Self::CronJob,
        Self::EndpointSlice,
        Self::EndpointSliceMirroring,
        Self::Endpoints,
        Self::Disruption,
        Self::ResourceQuota,
        Self::PolicyStatus,
        Self::NodeLifecycle,
        Self::TaintEviction,
        Self::PodGarbageCollector,
        Self::ClaimBinder,
        Self::VolumeReclaim,
        Self::VolumeProvisioner,
        Self::EphemeralVolume,
        Self::HorizontalPodAutoscaler,
        Self::EventTimeToLive,
        Self::Scheduler,
        Self::CertificateApproving,
        Self::CertificateSigning,
        Self::CertificateCleaner,
        Self::ServiceCidr,
        Self::RoleAggregation,
    ];

    /// Upstream's names, where upstream has the controller.
    const NAMES: &[(Self, &str)] = &[
        (Self::Namespace, "namespace-controller"),
        (Self::ServiceAccount, "serviceaccount-controller"),
        (Self::RootCa, "root-ca-certificate-publisher-controller"),
        (Self::GarbageCollector, "garbage-collector-controller"),
        (Self::ClaimProtection, "persistentvolumeclaim-protection-controller"),
        (Self::VolumeProtection, "persistentvolume-protection-controller"),
        (Self::ReplicaSet, "replicaset-controller"),
        (Self::Deployment, "deployment-controller"),
        (Self::Job, "job-controller"),
        (Self::JobTimeToLive, "ttl-after-finished-controller"),
        (Self::CronJob, "cronjob-controller"),
        (Self::EndpointSlice, "endpointslice-controller"),
        (Self::EndpointSliceMirroring, "endpointslice-mirroring-controller"),
        (Self::Endpoints, "endpoints-controller"),
        (Self::Disruption, "disruption-controller"),
        (Self::ResourceQuota, "resourcequota-controller"),
        (Self::PolicyStatus, "validatingadmissionpolicy-status-controller"),
        (Self::ReplicationController, "replicationcontroller-controller"),
        (Self::StatefulSet, "statefulset-controller"),
        (Self::DaemonSet, "daemonset-controller"),
        (Self::NodeLifecycle, "node-lifecycle-controller"),
        (Self::TaintEviction, "taint-eviction-controller"),
        (Self::PodGarbageCollector, "pod-garbage-collector-controller"),
        // Two halves of what is one controller upstream.
        (Self::ClaimBinder, "persistentvolume-binder-controller"),
        (Self::VolumeReclaim, "persistentvolume-binder-controller"),
        (Self::VolumeProvisioner, "local-path-provisioner"),
        (Self::EphemeralVolume, "ephemeral-volume-controller"),
        (Self::HorizontalPodAutoscaler, "horizontal-pod-autoscaler-controller"),
        (Self::EventTimeToLive, "event-ttl-controller"),
        (Self::Scheduler, "kube-scheduler"),
        (Self::ServiceAccountToken, "serviceaccount-token-controller"),
        (Self::CertificateApproving, "certificatesigningrequest-approving-controller"),
        (Self::CertificateSigning, "certificatesigningrequest-signing-controller"),
        (Self::CertificateCleaner, "certificatesigningrequest-cleaner-controller"),
        (Self::ServiceCidr, "service-cidr-controller"),
        (Self::RoleAggregation, "clusterrole-aggregation-controller"),
    ];

    /// The name that kube-controller-manager has for it in `--controllers`; `kube-scheduler` for the scheduler.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(one, _)| *one == self).map_or("", |(_, name)| *name)
    }
}

/// A name in a [choice of controllers](Controllers) that none has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a controller; there are: {}", names())]
#[non_exhaustive]
pub struct UnknownController {
    /// The name.
    pub name: String,
}

fn names() -> String {
    let names: BTreeSet<&str> = BuiltIn::ALL.iter().map(|one| one.name()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Which built-in controllers a cluster runs.
///
/// ```
/// use windlass_cluster::{BuiltIn, Controllers};
///
/// let most = Controllers::all().without(BuiltIn::RootCa);
/// assert!(most.contains(BuiltIn::Namespace));
/// let one = Controllers::none().with(BuiltIn::Namespace);
/// assert!(!one.contains(BuiltIn::ServiceAccount));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Controllers {
    enabled: BTreeSet<BuiltIn>,
}

impl Controllers {
    /// All of them: the default.
    pub fn all() -> Self {
        Self { enabled: BuiltIn::ALL.iter().copied().collect() }
    }

    /// None: an API server alone.
    pub fn none() -> Self {
        Self { enabled: BTreeSet::new() }
    }

    /// These and another one.
    pub fn with(mut self, controller: BuiltIn) -> Self {
        self.enabled.insert(controller);
        self
    }

    /// These without one.
    pub fn without(mut self, controller: BuiltIn) -> Self {
        self.enabled.remove(&controller);
        self
    }

    /// The controllers that a list names, as kube-controller-manager's `--controllers` does: `*` stands for all of them,
    /// `foo` adds one, `-foo` leaves one out. Only what is named runs if `*` is not among the items.
    ///
    /// ```
    /// use windlass_cluster::{BuiltIn, Controllers};
    ///
    /// let most = Controllers::named(["*", "-kube-scheduler"])?;
    /// assert_eq!(most, Controllers::all().without(BuiltIn::Scheduler));
    /// let one = Controllers::named(["namespace-controller"])?;
    /// assert_eq!(one, Controllers::none().with(BuiltIn::Namespace));
    /// assert!(Controllers::named(["-namespaces"]).is_err());
    /// # Ok::<(), windlass_cluster::UnknownController>(())
    /// ```
    pub fn named(items: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, UnknownController> {
        let (mut all, mut with, mut without) = (false, BTreeSet::<BuiltIn>::new(), BTreeSet::<BuiltIn>::new());
        for item in items {
            let item = item.as_ref().trim();
            let (list, name) = match item.strip_prefix('-') {
                _ if item == "*" => {
                    all = true;
                    continue;
                }
                _ if item.is_empty() => continue,
                Some(name) => (&mut without, name),
                None => (&mut with, item),
            };
            let mut found = BuiltIn::ALL.iter().filter(|one| one.name() == name).peekable();
            if found.peek().is_none() {
                return Err(UnknownController { name: name.to_owned() });
            }
            list.extend(found.copied());
        }
        let mut chosen = if all { Self::all() } else { Self::none() };
        chosen.enabled.retain(|one| !without.contains(one));
        chosen.enabled.extend(with);
        Ok(chosen)
    }

    /// Whether a controller is among these.
    pub fn contains(&self, controller: BuiltIn) -> bool {
        self.enabled.contains(&controller)
    }
}

impl Default for Controllers {
    fn default() -> Self {
        Self::all()
    }
}

/// What the controllers are given.
pub(crate) struct Setup {
    /// Reaches the server as any part of the cluster.
    pub(crate) identities: Identities,
    /// Signs certificates.
    pub(crate) authority: Arc<Authority>,
    /// Signs the tokens of service accounts.
    pub(crate) token_key: Arc<TokenKey>,
    /// Changes when the served kinds may have.
    pub(crate) kinds: watch::Receiver<u64>,
    /// Tells what is doubtful about a ValidatingAdmissionPolicy.
    pub(crate) check_policy: Check,
    /// Whether claims that name no class get a volume of the built-in provisioner.
    pub(crate) default_storage_class: bool,
    /// How many simulated nodes there are; no node agent runs if there are none.
    pub(crate) nodes: u32,
    /// The node whose pods really run.
    pub(crate) machine: Option<Machine>,
    /// The `schedulerName`s that the scheduler takes pods of, besides its own.
    pub(crate) scheduler_profiles: Vec<String>,
    /// Whether kwok's objects say what becomes of simulated pods.
    pub(crate) kwok: bool,
}

/// The running controllers. Dropping this stops them, [`stop`](Self::stop) also waits for it.
pub(crate) struct Running {
    shutdown: CancellationToken,
    task: Option<JoinHandle<()>>,
    /// The metrics of the controllers. The server only borrows them: they lead to clients, and those to the server.
    _metrics: Arc<Registry>,
}

impl Running {
    /// Starts the controllers in the background. The server's `/readyz` shows whether they work.
    pub(crate) fn start(controllers: &Controllers, setup: Setup, server: &Server) -> Result<Self, ManagerError> {
        if controllers.enabled.is_empty() && setup.nodes == 0 && setup.machine.is_none() {
            return Ok(Self { shutdown: CancellationToken::new(), task: None, _metrics: Arc::default() });
        }
        let (has_nodes, has_kwok) = (setup.nodes > 0 || setup.machine.is_some(), setup.kwok);
        let client = setup.identities.controller_manager();
        let (manager, access) = assemble(controllers, setup, server)?;
        if has_nodes {
            let usages = has_kwok.then(|| Usages::new(&manager));
            usage::serve(server, manager.lister(), manager.lister(), usages, access);
        }
        Ok(Self::run(manager, client, server))
    }

    fn run(manager: Manager, client: kube::Client, server: &Server) -> Self {
        let mut accounts = BTreeSet::new();
        for check in manager.ready_checks() {
            let name = check.name();
            accounts.extend(Identities::account(name.strip_prefix("controller/").unwrap_or(name)));
            let name = name.strip_suffix("-controller").unwrap_or(name).to_owned();
            server.add_ready_check(name, move || check.run());
        }
        let metrics = Arc::new(manager.registry().clone());
        let shown = Arc::downgrade(&metrics);
        server.add_metrics(move || shown.upgrade().map(|metrics| metrics.encode()).unwrap_or_default());
        let failure = Arc::new(OnceLock::new());
        let failed = Arc::clone(&failure);
        server.add_ready_check("controller-manager", move || failed.get().cloned().map_or(Ok(()), Err));
        let shutdown = CancellationToken::new();
        let until = shutdown.clone();
        let task = tokio::spawn(async move {
            let accounts = accounts::ensure(client, accounts, until.clone());
            let (result, ()) = tokio::join!(manager.run_until(until), accounts);
            if let Err(error) = result {
                tracing::error!(%error, "the built-in controllers stopped");
                failure.get_or_init(|| error.to_string());
            }
        });
        Self { shutdown, task: Some(task), _metrics: metrics }
    }

    /// Lets the controllers finish what they are doing.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        if let Some(task) = self.task.take() {
            // The task only ends by its own will or by a panic, which has been reported.
            let _ = task.await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The controllers, and how pods that really run are reached.
fn assemble(
    controllers: &Controllers,
    setup: Setup,
    server: &Server,
) -> Result<(Manager, Option<PodAccess>), ManagerError> {
    let identities = setup.identities;
    let accounts = identities.clone();
    let mut manager = Manager::builder(identities.controller_manager())
        .name(FIELD_MANAGER)
        .controller_clients(move |controller| accounts.controller(controller))
        // As upstream's: older clients show who reported an event only if it is of this form.
        .events(EventApi::CoreV1)
        .graceful_shutdown(GRACE)
        .most_decoded(MOST_DECODED)
        .check_permissions(false)
        .build()?;
    let mut inventory = Inventory::new(identities.controller_manager());
    if controllers.contains(BuiltIn::Namespace) {
        namespace::add(&mut manager, &mut inventory)?;
    }
    if controllers.contains(BuiltIn::ServiceAccount) {
        service_account::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::RootCa) {
        root_ca::add(&mut manager, setup.authority.certificate().to_owned())?;
    }
    if controllers.contains(BuiltIn::ServiceAccountToken) {
        tokens::add(&mut manager, setup.token_key, setup.authority.certificate().to_owned())?;
    }
    if controllers.contains(BuiltIn::CertificateApproving) {
        certificates::add_approver(&mut manager)?;
    }
    if controllers.contains(BuiltIn::CertificateSigning) {
        certificates::add_signer(&mut manager, setup.authority)?;
    }
    if controllers.contains(BuiltIn::CertificateCleaner) {
        certificates::add_cleaner(&mut manager)?;
    }
    if controllers.contains(BuiltIn::ServiceCidr) {
        service_cidr::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::RoleAggregation) {
        role_aggregation::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::GarbageCollector) {
        garbage::add(&mut manager, &mut inventory)?;
    }
    if controllers.contains(BuiltIn::ClaimProtection) {
        protection::add_claims(&mut manager)?;
    }
    if controllers.contains(BuiltIn::VolumeProtection) {
        protection::add_volumes(&mut manager)?;
    }
    if controllers.contains(BuiltIn::ReplicaSet) {
        replica_set::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::ReplicationController) {
        replication_controller::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::Deployment) {
        deployment::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::StatefulSet) {
        stateful_set::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::DaemonSet) {
        daemon_set::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::Job) {
        job::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::JobTimeToLive) {
        job::ttl::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::CronJob) {
        cron_job::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::EndpointSlice) {
        endpoints::add_slices(&mut manager)?;
    }
    if controllers.contains(BuiltIn::EndpointSliceMirroring) {
        endpoints::add_mirror(&mut manager)?;
    }
    if controllers.contains(BuiltIn::Endpoints) {
        endpoints::add_endpoints(&mut manager)?;
    }
    if controllers.contains(BuiltIn::Disruption) {
        disruption::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::ResourceQuota) {
        quota::add(&mut manager, &mut inventory)?;
    }
    if controllers.contains(BuiltIn::PolicyStatus) {
        policy_status::add(&mut manager, setup.check_policy)?;
    }
    if controllers.contains(BuiltIn::NodeLifecycle) {
        node_lifecycle::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::TaintEviction) {
        taint_eviction::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::PodGarbageCollector) {
        pod_garbage::add(&mut manager)?;
    }
    let volumes_dir = setup.machine.as_ref().and_then(|machine| machine.volumes.clone());
    if controllers.contains(BuiltIn::ClaimBinder) {
        volumes::add_claims(&mut manager)?;
    }
    if controllers.contains(BuiltIn::VolumeReclaim) {
        volumes::add_volumes(&mut manager, volumes_dir.clone())?;
    }
    if controllers.contains(BuiltIn::VolumeProvisioner) {
        volumes::add_provisioner(&mut manager, volumes_dir)?;
        if setup.default_storage_class {
            let client = CachedClient::new(identities.server(), manager.client().caches().clone(), FIELD_MANAGER);
            manager.add_task("default-storage-class", |shutdown| async move {
                volumes::ensure_default_class(&client).await?;
                // A task that ends stops the manager.
                shutdown.cancelled().await;
                Ok::<_, ClientError>(())
            })?;
        }
    }
    if controllers.contains(BuiltIn::EphemeralVolume) {
        volumes::add_ephemeral(&mut manager)?;
    }
    if controllers.contains(BuiltIn::HorizontalPodAutoscaler) {
        autoscaler::add(&mut manager)?;
    }
    if controllers.contains(BuiltIn::EventTimeToLive) {
        event_ttl::add(&mut manager, identities.server())?;
    }
    if controllers.contains(BuiltIn::Scheduler) {
        // The watches are those of the controllers; what it writes bears its own name.
        let caches = manager.client().caches().clone();
        let mut scheduler = Scheduler::builder(identities.scheduler()).caches(caches).metrics(manager.registry());
        for profile in setup.scheduler_profiles {
            scheduler = scheduler.profile(profile);
        }
        let scheduler = scheduler.build();
        manager.add_ready_check(BuiltIn::Scheduler.name(), scheduler.ready_check());
        manager.add_task(BuiltIn::Scheduler.name(), |shutdown| scheduler.run(shutdown))?;
    }
    if setup.nodes > 0 {
        let mut metrics = None;
        let agent = if setup.kwok {
            metrics = Some(Metrics::new(&manager, Usages::new(&manager)));
            let console = Arc::new(windlass_kwok::console::Objects::new(&manager));
            let stages = windlass_kwok::player::Stages::new(&manager);
            let (of_pods, of_nodes) = (stages.clone(), stages.clone());
            let agent = Agent::new(Simulation::with_console(console), identities.nodes(), windlass_node::is_simulated)
                .leave(move |pod| of_pods.lead(pod))
                .leave_conditions(move |node| of_nodes.lead_node(node));
            windlass_kwok::player::add(&mut manager, identities.server(), &stages, agent.access())?;
            agent
        } else {
            Agent::simulated(identities.nodes())
        };
        let streams: Arc<dyn PodStreams> = Arc::new(AgentStreams::new(agent.access(), metrics));
        server.add_pod_streams(&streams);
        agent.register(setup.nodes).add_to(&mut manager)?;
    }
    // What simulated pods use is made up; of others it is known.
    let mut access = None;
    if let Some(machine) = setup.machine {
        let client = identities.nodes();
        let runtime = (machine.runtime)(client.clone());
        let name = machine.name.clone();
        let adopts = move |node: &Node| node.metadata.name.as_deref() == Some(&*name);
        let agent = Agent::new(runtime, client, adopts).node(machine.node());
        access = Some(agent.access());
        let streams: Arc<dyn PodStreams> = Arc::new(AgentStreams::new(agent.access(), None));
        server.add_pod_streams(&streams);
        agent.add_to(&mut manager)?;
        if let Some(network) = machine.network {
            network.add_to(&mut manager)?;
            server.set_dialer(Dials(network));
        }
    }
    if inventory.is_needed() {
        manager.add_task("inventory", |shutdown| inventory.run(setup.kinds, shutdown))?;
    }
    Ok((manager, access))
}
