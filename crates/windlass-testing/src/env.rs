//! [`Env`]: a cluster, its clients, and the managers that run against it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use windlass::manager::ManagerBuilder;
use windlass::webhook::{Certificates, SelfManaged, Webhooks};
use windlass::{CachedClient, Manager, ObjectKey};
use windlass_cluster::{BuiltIn, Cluster, Controllers};

use crate::Options;
use crate::entrance::Gate;
use crate::fault::FaultBuilder;
use crate::managers::Managers;
use crate::requests::{Caller, Requests};

/// A cluster and the managers that run against it. Clones are the same environment.
///
/// ```
/// use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
/// use windlass_testing::{Env, Options, run};
///
/// run(Options::default(), async |env: Env| {
///     let mut namespace = Namespace::default();
///     namespace.metadata.name = Some("pets".into());
///     env.create(namespace).await;
///     env.wait_until::<ServiceAccount>("pets/default", |_| true).await;
/// });
/// ```
#[derive(Clone)]
pub struct Env {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    cluster: Mutex<Option<Cluster>>,
    pub(crate) gate: Arc<Gate>,
    kube: kube::Client,
    client: CachedClient,
    harness: kube::Client,
    /// Clients that were made for accounts.
    pub(crate) clients: Mutex<Vec<CachedClient>>,
    /// Moves with every write to the cluster.
    pub(crate) revision: tokio::sync::watch::Receiver<u64>,
    pub(crate) managers: Managers,
    /// The environment's own tasks, which end when this is cancelled.
    pub(crate) tasks: TaskTracker,
    pub(crate) ended: CancellationToken,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("managers", &self.inner.managers.len()).finish_non_exhaustive()
    }
}

impl Env {
    /// A new cluster. Tests get theirs from the attribute [`test`](macro@crate::test).
    pub async fn start(options: Options) -> Self {
        // Without nodes a scheduler only reports that there are none; tests make pods ready themselves.
        let controllers = match options {
            Options { controllers: Some(list), .. } => {
                Controllers::named(list.split(',')).unwrap_or_else(|unknown| panic!("{unknown}"))
            }
            Options { bare: true, .. } => Controllers::none(),
            Options { nodes: 0, .. } => Controllers::all().without(BuiltIn::Scheduler),
            _ => Controllers::all(),
        };
        let builder = Cluster::builder().controllers(controllers).nodes(options.nodes);
        let cluster = builder.start().await.expect("invariant: a cluster in memory starts");
        let gate = Arc::new(Gate::default());
        gate.open(cluster.server().api());
        let client = |caller| gate.client(caller, None, "default");
        let inner = Inner {
            kube: client(Caller::Operator),
            client: CachedClient::standalone(client(Caller::Test), "test"),
            harness: client(Caller::Harness),
            clients: Mutex::default(),
            revision: cluster.server().api().store.revision(),
            cluster: Mutex::new(Some(cluster)),
            gate,
            managers: Managers::default(),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A plain [`kube::Client`] of an administrator, for the code under test. It calls the server in the same process,
    /// without a socket. Its requests meet the [faults](Self::fail) of the test, and its reads are not cached; the
    /// default namespace is `default`. [`manager`](Self::manager) uses it. For the test's own reads and writes there is
    /// [`client`](Self::client).
    ///
    /// ```test_harness
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use kube::Api;
    ///
    /// #[windlass_testing::test(bare)]
    /// async fn there_is_a_namespace(env: windlass_testing::Env) -> anyhow::Result<()> {
    ///     let namespaces: Api<Namespace> = Api::all(env.kube());
    ///     assert_eq!(namespaces.get("default").await?.metadata.name.as_deref(), Some("default"));
    ///     Ok(())
    /// }
    /// ```
    pub fn kube(&self) -> kube::Client {
        self.inner.kube.clone()
    }

    /// The test's own client, an administrator, with cached reads that show its own writes. For requests that must
    /// succeed, [`create`](Self::create), [`get`](Self::get), [`modify`](Self::modify) and [`delete`](Self::delete) are
    /// shorter.
    pub fn client(&self) -> &CachedClient {
        &self.inner.client
    }

    /// The environment's own client, which meets no fault.
    pub(crate) fn harness(&self) -> &kube::Client {
        &self.inner.harness
    }

    /// Describes a manager for this cluster, which may do anything. [`manager_as`](Self::manager_as) limits it.
    pub fn manager(&self) -> ManagerBuilder {
        Manager::builder(self.kube())
    }

    /// Installs the definition of a custom resource and waits until it is served.
    ///
    /// # Panics
    /// When the server refuses the definition.
    #[track_caller]
    pub fn install<K: CustomResourceExt>(&self) -> impl Future<Output = ()> {
        self.install_crd(K::crd())
    }

    /// Installs any definition, such as one with several versions, and waits until it is served.
    ///
    /// ```
    /// # mod v1 {
    /// #   #[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    /// #   #[kube(group = "example.com", version = "v1", kind = "Pet", namespaced)]
    /// #   pub struct PetSpec {}
    /// # }
    /// # mod v2 {
    /// #   #[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    /// #   #[kube(group = "example.com", version = "v2", kind = "Pet", namespaced)]
    /// #   pub struct PetSpec {}
    /// # }
    /// use kube::CustomResourceExt as _;
    /// use kube::core::crd::merge_crds;
    /// use windlass_testing::{Env, Options, run};
    ///
    /// run(Options::default().bare(), async |env: Env| {
    ///     env.install_crd(merge_crds(vec![v1::Pet::crd(), v2::Pet::crd()], "v2").expect("merged")).await;
    ///     assert!(env.client().list::<v1::Pet>().await.expect("served").is_empty());
    ///     assert!(env.client().list::<v2::Pet>().await.expect("served").is_empty());
    /// });
    /// ```
    ///
    /// # Panics
    /// When the server refuses the definition.
    #[track_caller]
    pub fn install_crd(&self, definition: CustomResourceDefinition) -> impl Future<Output = ()> {
        let key = ObjectKey::of(&definition);
        let established = self.wait_for_condition::<CustomResourceDefinition>(key, "Established", true);
        let created = self.create(definition);
        async move {
            created.await;
            established.await;
        }
    }

    /// The same webhooks, ready for a manager of this environment: served on a free port of the loopback interface, with
    /// certificates of their own, and registered with the API server, conversions included. With
    /// [`run_ready`](Self::run_ready) they are called from the first request on.
    ///
    /// Replicas of one operator share a registration. A test that runs several operators with webhooks has to give each
    /// its own, with [`SelfManaged::register`]. Webhooks are called over sockets, so they do not go with a
    /// [paused](Options::paused) clock.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass::webhook::{Defaulter, Denied, Request, Webhooks};
    /// use windlass_testing::{Env, Options, run};
    ///
    /// struct Labels;
    ///
    /// impl Defaulter<ConfigMap> for Labels {
    ///     async fn set_defaults(&self, map: &mut ConfigMap, _: &Request<ConfigMap>) -> Result<(), Denied> {
    ///         map.metadata.labels.get_or_insert_default().entry("team".into()).or_insert("pets".into());
    ///         Ok(())
    ///     }
    /// }
    ///
    /// run(Options::default().bare(), async |env: Env| {
    ///     let webhooks = Webhooks::new().defaulter::<ConfigMap>(Labels);
    ///     env.run_ready(env.manager().webhooks(env.webhooks(webhooks)).build().expect("a manager")).await;
    ///     let mut map = ConfigMap::default();
    ///     map.metadata.name = Some("settings".into());
    ///     let map = env.create(map).await;
    ///     assert_eq!(map.metadata.labels.expect("labels")["team"], "pets");
    /// });
    /// ```
    pub fn webhooks(&self, webhooks: Webhooks) -> Webhooks {
        let certificates = SelfManaged::new("default").directly().register("test");
        webhooks.listen("127.0.0.1:0").certificates(Certificates::self_managed(certificates))
    }

    /// Makes chosen requests fail, in the way that [`FaultBuilder::with`] is given, until the guard that it returns is
    /// dropped. A request meets at most one fault, the oldest that chooses it.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass::{Context, Controller, ObjectKey, Outcome, controller};
    /// use windlass_testing::{Env, Fault, Options, Requests, run};
    ///
    /// run(Options::default().paused().bare(), async |env: Env| {
    ///     let mut manager = env.manager().build().expect("a manager");
    ///     let mark = controller::from_key_fn(|key: ObjectKey, ctx: Context| async move {
    ///         let mark = |map: &mut ConfigMap| map.immutable = Some(true);
    ///         ctx.client().modify(&key, mark).await?;
    ///         Ok(Outcome::Done)
    ///     });
    ///     manager.add(Controller::<ConfigMap>::new("settings").complete_keyed(mark)).expect("added");
    ///     env.run_ready(manager).await;
    ///
    ///     let fault = env.fail(Requests::writes_of::<ConfigMap>()).times(3).with(Fault::status(500));
    ///     let mut map = ConfigMap::default();
    ///     map.metadata.name = Some("settings".into());
    ///     env.create(map).await; // the test's own requests do not fail
    ///     env.wait_until::<ConfigMap>("settings", |map| map.immutable == Some(true)).await;
    ///     assert_eq!(fault.hits(), 3);
    /// });
    /// ```
    pub fn fail(&self, requests: Requests) -> FaultBuilder {
        FaultBuilder { faults: Arc::clone(&self.inner.gate.faults), requests, skip: 0, left: None }
    }

    /// Breaks the connections of the chosen watches that are under way, and returns how many there were. Their clients
    /// watch again from where they were; with [`Fault::expired`](crate::Fault::expired) they have to list again.
    #[expect(clippy::needless_pass_by_value, reason = "as `fail` takes them")]
    pub fn cut_watches(&self, requests: Requests) -> usize {
        self.inner.gate.cut_watches(&requests)
    }

    /// Stops the API server and starts it again on the same objects, as when its process ends and another one begins.
    /// Requests under way fail, watches break, and requests are refused until the server is there again. Resource
    /// versions go on, and tokens of ServiceAccounts remain valid. Clients and managers of the environment reach the new
    /// server by themselves. The built-in controllers are started again, too.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass::{Context, Controller, ObjectKey, Outcome, controller};
    /// use windlass_testing::{Env, Options, run};
    ///
    /// run(Options::default().paused().bare(), async |env: Env| {
    ///     let mut manager = env.manager().build().expect("a manager");
    ///     let mark = controller::from_key_fn(|key: ObjectKey, ctx: Context| async move {
    ///         let mark = |map: &mut ConfigMap| map.immutable = Some(true);
    ///         ctx.client().modify(&key, mark).await?;
    ///         Ok(Outcome::Done)
    ///     });
    ///     manager.add(Controller::<ConfigMap>::new("settings").complete_keyed(mark)).expect("added");
    ///     env.run_ready(manager).await;
    ///
    ///     env.restart_server().await;
    ///     let mut map = ConfigMap::default();
    ///     map.metadata.name = Some("settings".into());
    ///     env.create(map).await;
    ///     env.wait_until::<ConfigMap>("settings", |map| map.immutable == Some(true)).await;
    /// });
    /// ```
    ///
    /// # Panics
    /// When it is called twice at a time, or the server does not start again.
    pub async fn restart_server(&self) {
        let cluster = self.inner.cluster.lock().take();
        let cluster = cluster.expect("the server runs, and is not being restarted");
        self.inner.gate.close();
        let cluster = cluster.restart().await.unwrap_or_else(|error| panic!("the server did not restart: {error}"));
        self.inner.gate.open(cluster.server().api());
        *self.inner.cluster.lock() = Some(cluster);
    }

    /// Moves a paused clock ahead, from timer to timer: what happens every minute happens sixty times in an hour, and a
    /// leader renews its lease all along.
    ///
    /// # Panics
    /// When the clock is not paused.
    pub async fn advance(&self, by: Duration) {
        // Panics unless it is.
        tokio::time::advance(Duration::ZERO).await;
        // With a paused clock this takes no time, and passes by no timer.
        tokio::time::sleep(by).await;
        // What became due runs now; what it leads to, by and by.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
    }

    /// Stops everything; called when a test ends.
    ///
    /// # Panics
    /// When a manager that the test did not stop has failed, or does not stop well.
    pub async fn stop(&self) {
        // What stops may have to write.
        self.inner.gate.faults.clear();
        let failed = self.inner.managers.stop().await;
        self.inner.ended.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        let clients = std::mem::take(&mut *self.inner.clients.lock());
        for client in clients.iter().chain([&self.inner.client]) {
            client.caches().stop().await;
        }
        let cluster = self.inner.cluster.lock().take();
        if let Some(cluster) = cluster {
            cluster.stop().await.unwrap_or_else(|error| panic!("the cluster did not stop: {error}"));
        }
        self.inner.gate.close();
        assert!(failed.is_empty(), "{}", failed.join("; "));
    }
}
