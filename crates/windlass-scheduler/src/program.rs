//! The program around the core: watches, a loop that decides, and the writes that follow.
//!
//! Changes come from informers and are applied to the [state](crate::state) under its lock. Decisions are made on the
//! blocking pool, one batch after the other; bindings and status updates are sent concurrently, up to a limit, and a
//! decision never waits for them, because what it assumes is part of the state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::Resource as _;
use kube::api::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta};
use tokio::task::JoinSet;
use windlass::CancellationToken;
use windlass::cache::{CacheOptions, Caches, Lister};
use windlass::events::{Broadcaster, EventApi};
use windlass::informer::{Handler, Informer, InformerFactory, NotSynced, Subscription};
use windlass::metrics::Registry;

use crate::labels::{Labels, Selector};
use crate::metrics;
use crate::pod::OwnerKind;
use crate::shared_state::{SharedState, now};
use crate::state::{State, Work};
use crate::writes::Writer;

/// How many decisions are made before their writes begin.
const BATCH: usize = 64;
/// How many writes are under way at once.
const MOST_WRITES: usize = 256;
/// How many pods wait for their volumes at once.
const MOST_VOLUME_WAITS: usize = 1024;

/// The name of the scheduler that pods have by default.
pub const DEFAULT_PROFILE: &str = "default-scheduler";

/// Puts a [`Scheduler`] together.
#[must_use = "`build` makes the scheduler"]
pub struct SchedulerBuilder {
    client: kube::Client,
    caches: Option<Caches>,
    profiles: BTreeSet<String>,
    metrics: Registry,
}

impl SchedulerBuilder {
    /// Reads from these caches, which their owner starts and stops, instead of from caches of its own.
    pub fn caches(mut self, caches: Caches) -> Self {
        self.caches = Some(caches);
        self
    }

    /// Schedules pods with this `spec.schedulerName`, besides those of [`DEFAULT_PROFILE`].
    pub fn profile(mut self, name: impl Into<String>) -> Self {
        self.profiles.insert(name.into());
        self
    }

    /// Counts in this registry, under kube-scheduler's names.
    pub fn metrics(mut self, registry: &Registry) -> Self {
        self.metrics = registry.clone();
        self
    }

    /// Makes the scheduler. It watches from the moment its caches are started.
    pub fn build(self) -> Scheduler {
        let own = self.caches.is_none();
        let caches = self.caches.unwrap_or_else(|| Caches::new(self.client.clone(), CacheOptions::default()));
        let informers = Informers::new(&InformerFactory::over(caches.clone()));
        let shared = Arc::new(SharedState::new(&self.profiles, &self.metrics));
        let pending = Arc::downgrade(&shared);
        metrics::show_pending(&self.metrics, move || Some(pending.upgrade()?.state.lock().queue.sizes()));
        Scheduler { client: self.client, caches, own, informers, profiles: self.profiles, shared }
    }
}

/// A scheduler.
///
/// ```no_run
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use windlass::CancellationToken;
/// use windlass_scheduler::Scheduler;
///
/// Scheduler::builder(client).profile("batch-scheduler").build().run(CancellationToken::new()).await?;
/// # Ok(()) }
/// ```
#[must_use = "`run` schedules"]
pub struct Scheduler {
    client: kube::Client,
    caches: Caches,
    own: bool,
    informers: Informers,
    profiles: BTreeSet<String>,
    shared: Arc<SharedState>,
}

impl Scheduler {
    /// A scheduler that reads and writes with this client.
    pub fn builder(client: kube::Client) -> SchedulerBuilder {
        let profiles = BTreeSet::from([DEFAULT_PROFILE.to_owned()]);
        SchedulerBuilder { client, caches: None, profiles, metrics: Registry::default() }
    }

    /// A check that fails when the scheduler has stopped.
    pub fn ready_check(&self) -> impl Fn() -> Result<(), String> + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || {
            let ended = shared.ended.load(Ordering::Acquire);
            if ended { Err("the scheduler has stopped".to_owned()) } else { Ok(()) }
        }
    }

    /// Schedules pods until the token is cancelled. Writes that are under way then are dropped.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), NotSynced> {
        if self.own {
            self.caches.start();
        }
        let factory = InformerFactory::over(self.caches.clone());
        let synced = tokio::select! {
            synced = factory.wait_synced() => synced,
            () = shutdown.cancelled() => return Ok(()),
        };
        if let Err(error) = synced {
            return if shutdown.is_cancelled() { Ok(()) } else { Err(error) };
        }
        // Handlers first: what changes after the lists are read comes to them.
        let subscriptions = self.informers.follow(&self.shared);
        let (informers, shared) = (self.informers.clone(), Arc::clone(&self.shared));
        let filled = tokio::task::spawn_blocking(move || informers.fill(&mut shared.state.lock()));
        filled.await.expect("invariant: objects are extracted without panics");
        let broadcaster = Broadcaster::new(EventApi::EventsV1);
        let profiles = self.profiles.iter().map(|name| (name.clone(), broadcaster.recorder(name))).collect();
        let claims = self.informers.claims.lister();
        let writer = Arc::new(Writer::new(self.client.clone(), Arc::clone(&self.shared), profiles, claims));
        let scheduling = async {
            tokio::select! {
                () = schedule(&self.shared, &writer) => {}
                () = shutdown.cancelled() => {}
            }
        };
        // What was reported by the end is still written.
        tokio::join!(scheduling, broadcaster.run(self.client.clone(), shutdown.clone()));
        self.shared.ended.store(true, Ordering::Release);
        drop(subscriptions);
        if self.own {
            self.caches.stop().await;
        }
        Ok(())
    }
}

/// Decides and has it written, for ever.
async fn schedule(shared: &Arc<SharedState>, writer: &Arc<Writer>) {
    let (mut writes, mut waits) = (JoinSet::new(), JoinSet::new());
    loop {
        while writes.try_join_next().is_some() || waits.try_join_next().is_some() {}
        if writes.len() >= MOST_WRITES {
            writes.join_next().await;
            continue;
        }
        if waits.len() >= MOST_VOLUME_WAITS {
            waits.join_next().await;
            continue;
        }
        let woken = shared.wake.notified();
        let (deciding, now) = (Arc::clone(shared), now());
        let most = BATCH.min(MOST_WRITES - writes.len());
        let batch = tokio::task::spawn_blocking(move || decide(&deciding, most, now)).await;
        let batch = batch.expect("invariant: decisions do not panic");
        if batch.is_empty() {
            let deadline = shared.state.lock().queue.next_deadline();
            tokio::select! {
                () = woken => {}
                () = at(deadline) => {}
            }
            continue;
        }
        for work in batch {
            let writer = Arc::clone(writer);
            match work {
                Work::Bind { pod, node, volumes } if volumes.is_empty() => {
                    writes.spawn(async move { writer.bind(&pod, &node, &volumes).await });
                }
                Work::Bind { pod, node, volumes } => {
                    waits.spawn(async move { writer.bind(&pod, &node, &volumes).await });
                }
                Work::Fail { pod, failure, before, outbid } => {
                    writes.spawn(async move { writer.fail(&pod, &failure, &before, &outbid).await });
                }
            }
        }
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// Handlers get a turn between decisions.
fn decide(shared: &SharedState, most: usize, now: Instant) -> Vec<Work> {
    let mut batch = Vec::new();
    while batch.len() < most {
        let mut state = shared.state.lock();
        let work = state.step(batch.is_empty(), now);
        parking_lot::MutexGuard::unlock_fair(state);
        match work {
            Some(work) => batch.push(work),
            None => break,
        }
    }
    batch
}

/// Everything that is watched.
#[derive(Clone)]
struct Informers {
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    namespaces: Informer<Namespace>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    csi_nodes: Informer<CSINode>,
    budgets: Informer<PodDisruptionBudget>,
    services: Informer<Service>,
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
    replication_controllers: Informer<ReplicationController>,
    /// Untyped, because few of their many fields matter.
    device_claims: Informer<DynamicObject>,
    device_classes: Informer<PartialObjectMeta<DeviceClass>>,
}

fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// What an object means for the state.
trait Known: windlass::Object {
    fn set(state: &mut State, object: &Self);
    fn remove(state: &mut State, object: &Self);
}

impl Known for Node {
    fn set(state: &mut State, node: &Self) {
        state.set_node(node);
    }

    fn remove(state: &mut State, node: &Self) {
        state.remove_node(name(&node.metadata));
    }
}

impl Known for Pod {
    fn set(state: &mut State, pod: &Self) {
        state.set_pod(pod, now());
    }

    fn remove(state: &mut State, pod: &Self) {
        state.remove_pod(pod);
    }
}

impl Known for Namespace {
    fn set(state: &mut State, object: &Self) {
        state.cluster.set_namespace(name(&object.metadata), Labels::new(object.metadata.labels.as_ref()));
        state.pods_changed();
    }

    fn remove(state: &mut State, object: &Self) {
        state.cluster.remove_namespace(name(&object.metadata));
    }
}

impl Known for PersistentVolumeClaim {
    fn set(state: &mut State, claim: &Self) {
        state.cluster.volumes.set_claim(claim);
        state.volumes_changed();
    }

    fn remove(state: &mut State, claim: &Self) {
        state.cluster.volumes.remove_claim(namespace(&claim.metadata), name(&claim.metadata));
    }
}

impl Known for PersistentVolume {
    fn set(state: &mut State, volume: &Self) {
        state.cluster.volumes.set_volume(volume);
        state.volumes_changed();
    }

    fn remove(state: &mut State, volume: &Self) {
        state.cluster.volumes.remove_volume(name(&volume.metadata));
    }
}

impl Known for StorageClass {
    fn set(state: &mut State, class: &Self) {
        state.cluster.volumes.set_class(class);
        state.volumes_changed();
    }

    fn remove(state: &mut State, class: &Self) {
        state.cluster.volumes.remove_class(name(&class.metadata));
    }
}

impl Known for CSINode {
    fn set(state: &mut State, node: &Self) {
        state.cluster.volumes.set_limits(node);
        state.volumes_changed();
    }

    fn remove(state: &mut State, node: &Self) {
        state.cluster.volumes.remove_limits(name(&node.metadata));
        state.volumes_changed();
    }
}

/// A resource claim: nothing else is watched without its type.
impl Known for DynamicObject {
    fn set(state: &mut State, claim: &Self) {
        state.cluster.devices.set_claim(claim);
        state.devices_changed(now());
    }

    fn remove(state: &mut State, claim: &Self) {
        state.cluster.devices.remove_claim(namespace(&claim.metadata), name(&claim.metadata));
    }
}

impl Known for PartialObjectMeta<DeviceClass> {
    fn set(state: &mut State, class: &Self) {
        state.cluster.devices.set_class(name(class.meta()));
        state.devices_changed(now());
    }

    fn remove(state: &mut State, class: &Self) {
        state.cluster.devices.remove_class(name(class.meta()));
    }
}

impl Known for PodDisruptionBudget {
    fn set(state: &mut State, budget: &Self) {
        state.cluster.set_budget(budget);
    }

    fn remove(state: &mut State, budget: &Self) {
        state.cluster.remove_budget(namespace(&budget.metadata), name(&budget.metadata));
    }
}

impl Known for Service {
    fn set(state: &mut State, service: &Self) {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        state.cluster.set_service(namespace(&service.metadata), name(&service.metadata), selector);
    }

    fn remove(state: &mut State, service: &Self) {
        state.cluster.remove_service(namespace(&service.metadata), name(&service.metadata));
    }
}

macro_rules! owner {
    ($kind:ident, $selector:expr) => {
        impl Known for $kind {
            fn set(state: &mut State, object: &Self) {
                let selector: fn(&Self) -> Option<Selector> = $selector;
                let Some(selector) = selector(object) else { return };
                let meta = &object.metadata;
                state.cluster.set_owner(OwnerKind::$kind, namespace(meta), name(meta), selector);
            }

            fn remove(state: &mut State, object: &Self) {
                let meta = &object.metadata;
                state.cluster.remove_owner(OwnerKind::$kind, namespace(meta), name(meta));
            }
        }
    };
}

owner!(ReplicaSet, |set| Some(Selector::new(Some(&set.spec.as_ref()?.selector))));
owner!(StatefulSet, |set| Some(Selector::new(Some(&set.spec.as_ref()?.selector))));
owner!(ReplicationController, |one| Some(Selector::all_of(one.spec.as_ref()?.selector.as_ref()?)));

impl Informers {
    fn new(factory: &InformerFactory) -> Self {
        Self {
            nodes: factory.informer(),
            pods: factory.informer(),
            namespaces: factory.informer(),
            claims: factory.informer(),
            volumes: factory.informer(),
            classes: factory.informer(),
            csi_nodes: factory.informer(),
            budgets: factory.informer(),
            services: factory.informer(),
            replica_sets: factory.informer(),
            stateful_sets: factory.informer(),
            replication_controllers: factory.informer(),
            device_claims: factory.dynamic(&ApiResource::erase::<ResourceClaim>(&())),
            device_classes: factory.informer(),
        }
    }

    /// Applies every change from now on.
    fn follow(&self, shared: &Arc<SharedState>) -> Vec<Subscription> {
        macro_rules! follow {
            ($informer:expr, $told:expr) => {{
                let told: fn(&SharedState) = $told;
                let (added, updated, deleted) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
                $informer.add_handler(
                    Handler::new()
                        .added(move |object, _| {
                            added.change(|state| Known::set(state, &*object));
                            told(&added);
                        })
                        .updated(move |_, object| {
                            updated.change(|state| Known::set(state, &*object));
                            told(&updated);
                        })
                        .deleted(move |object| {
                            deleted.change(|state| Known::remove(state, &*object));
                            told(&deleted);
                        }),
                )
            }};
        }
        vec![
            follow!(self.nodes, |_| {}),
            follow!(self.pods, |_| {}),
            follow!(self.namespaces, |_| {}),
            follow!(self.claims, |shared| shared.claims.send_replace(())),
            follow!(self.volumes, |_| {}),
            follow!(self.classes, |_| {}),
            follow!(self.csi_nodes, |_| {}),
            follow!(self.budgets, |_| {}),
            follow!(self.services, |_| {}),
            follow!(self.replica_sets, |_| {}),
            follow!(self.stateful_sets, |_| {}),
            follow!(self.replication_controllers, |_| {}),
            follow!(self.device_claims, |_| {}),
            follow!(self.device_classes, |_| {}),
        ]
    }

    /// Takes over everything that exists, so that the first decision knows all of it.
    fn fill(&self, state: &mut State) {
        fn each<K: Known>(state: &mut State, lister: &Lister<K>) {
            lister.list().iter().for_each(|object| K::set(state, object));
        }
        each(state, &self.namespaces.lister());
        each(state, &self.nodes.lister());
        each(state, &self.classes.lister());
        each(state, &self.csi_nodes.lister());
        each(state, &self.volumes.lister());
        each(state, &self.claims.lister());
        each(state, &self.budgets.lister());
        each(state, &self.services.lister());
        each(state, &self.replica_sets.lister());
        each(state, &self.stateful_sets.lister());
        each(state, &self.replication_controllers.lister());
        each(state, &self.device_claims.lister());
        each(state, &self.device_classes.lister());
        each(state, &self.pods.lister());
    }
}
