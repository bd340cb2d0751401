//! What runs during the demo: a cluster, a pet store, an operator, and a watcher of Pets.
//!
//! Parts are started one after the other and stopped in the reverse order. A part that ends although
//! it was not told to is reported through a channel. Dropping the stage stops everything too, without
//! waiting.

use std::future::Future;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use petstore::controller::pet::Timing;
use petstore::service::client::StoreClient;
use petstore::service::server::{PetStore, PetStoreServer};
use petstore_api::v1beta1::Pet;
use tempfile::NamedTempFile;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use windlass::Manager;
use windlass::informer::Subscription;
use windlass::manager::ManagerBuilder;
use windlass_cluster::{Cluster, Credentials};

use super::pets::Pets;
use super::tale::local;
use crate::kubeconfig_file;

/// The context in the kubeconfig, and the name under which the demo owns what it writes.
const NAME: &str = "windlass-demo";

/// Other machines need not get in; the system picks the port.
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long the operator may finish what it is doing.
const GRACE: Duration = Duration::from_secs(3);

/// See the [module documentation](self).
pub(crate) struct Stage {
    // In the order in which they are dropped.
    audience: Option<Audience>,
    operator: Option<Running>,
    store: Option<Running>,
    cluster: Option<Cluster>,
    kubeconfig: Option<NamedTempFile>,
    failures: mpsc::Sender<anyhow::Error>,
}

/// Watches Pets as any client of the cluster can.
struct Audience {
    client: windlass::CachedClient,
    _subscription: Subscription,
}

/// A task that can be told to stop.
struct Running {
    shutdown: CancellationToken,
    task: AbortOnDropHandle<Result<()>>,
}

impl Running {
    async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        self.task.await?
    }
}

impl Stage {
    /// An empty stage, and where its parts say that they failed.
    pub(crate) fn new() -> (Self, mpsc::Receiver<anyhow::Error>) {
        let (failures, failed) = mpsc::channel(1);
        (Self { audience: None, operator: None, store: None, cluster: None, kubeconfig: None, failures }, failed)
    }

    /// Starts a cluster in memory that listens on loopback, with so many simulated nodes. Returns its URL.
    pub(crate) async fn start_cluster(&mut self, nodes: u32) -> Result<String> {
        let started = Cluster::builder().nodes(nodes).listen(ANY_PORT).start().await;
        let cluster = started.context("cannot start a cluster; it needs a free port on 127.0.0.1")?;
        self.cluster = Some(cluster);
        Ok(self.credentials()?.server().to_owned())
    }

    /// A client that reaches the cluster as every other program does: through the socket, over TLS.
    pub(crate) async fn connect(&self) -> Result<kube::Client> {
        let kubeconfig: Kubeconfig = serde_json::from_value(self.credentials()?.kubeconfig(NAME))?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // A proxy would look for the cluster on another machine.
        config.proxy_url = None;
        Ok(windlass::config::connect(config)?)
    }

    /// Starts the pet store.
    pub(crate) async fn start_store(&mut self) -> Result<(SocketAddr, PetStore)> {
        let bound = PetStoreServer::bind(ANY_PORT, PetStore::in_memory()).await;
        let server = bound.context("cannot listen for the pet store; it needs a free port on 127.0.0.1")?;
        let (address, store) = (server.local_addr(), server.store().clone());
        let running = self.spawn("pet store", |shutdown| async move { Ok(server.serve(shutdown).await?) });
        self.store = Some(running);
        Ok((address, store))
    }

    /// Starts the operator; when this returns it knows all Pets and waits for more.
    pub(crate) async fn start_operator(&mut self, store: SocketAddr) -> Result<()> {
        let store = StoreClient::connect_lazy(&store.to_string())?;
        let builder = self.manager("petstore").await?.webhooks(local(petstore::webhook::webhooks()));
        self.run(petstore::operator(builder, store, Timing::default())?).await
    }

    /// What a manager of the demo is made with.
    pub(crate) async fn manager(&self, name: &str) -> Result<ManagerBuilder> {
        Ok(Manager::builder(self.connect().await?).name(name).graceful_shutdown(GRACE))
    }

    /// Runs an operator's manager; when this returns it knows all objects, serves its webhooks and waits for changes.
    pub(crate) async fn run(&mut self, manager: Manager) -> Result<()> {
        let ready = manager.ready();
        let running = self.spawn("operator", |shutdown| async move { Ok(manager.run_until(shutdown).await?) });
        self.operator = Some(running);
        // If it ends before, it says so through the channel, which ends the demo.
        if !ready.await {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    /// Lets `pets` follow what the cluster says about Pets, and `store` about their entries.
    /// Returns the client that watches.
    pub(crate) async fn watch(&mut self, store: PetStore, pets: watch::Sender<Pets>) -> Result<windlass::CachedClient> {
        let client = windlass::CachedClient::standalone(self.connect().await?, NAME);
        let lister = client.lister::<Pet>();
        let subscription = lister.subscribe(move |change| {
            let entry =
                |id: &str| store.with_inventory(|inventory| inventory.get(id).map(|pet| pet.details.name().to_owned()));
            pets.send_modify(|pets| pets.observe(change, entry));
        });
        self.audience = Some(Audience { client: client.clone(), _subscription: subscription });
        lister.wait_synced().await?;
        Ok(client)
    }

    /// Writes a kubeconfig that only its owner can read, to be removed when the demo ends.
    pub(crate) fn write_kubeconfig(&mut self) -> Result<&Path> {
        let text = kubeconfig_file::to_yaml(&self.credentials()?.kubeconfig(NAME))?;
        // The file has mode 0600 from the start.
        let made = tempfile::Builder::new().prefix("windlass-demo-").suffix(".kubeconfig").tempfile();
        let mut file = made.context("cannot make a file for the kubeconfig; set TMPDIR to a directory for it")?;
        file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", file.path().display()))?;
        Ok(self.kubeconfig.insert(file).path())
    }

    /// Stops everything, the users before what they use. What fails to stop hinders nothing else;
    /// the first failure is returned.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        let mut result = Ok(());
        if let Some(file) = self.kubeconfig.take() {
            result = result.and(file.close().context("cannot remove the kubeconfig"));
        }
        if let Some(audience) = self.audience.take() {
            audience.client.caches().stop().await;
        }
        if let Some(operator) = self.operator.take() {
            result = result.and(operator.stop().await.context("the operator did not stop cleanly"));
        }
        if let Some(store) = self.store.take() {
            result = result.and(store.stop().await.context("the pet store did not stop cleanly"));
        }
        if let Some(cluster) = self.cluster.take() {
            result = result.and(cluster.stop().await.context("the cluster did not stop cleanly"));
        }
        result
    }

    /// Removes what would outlive the process, and waits for nothing.
    pub(crate) fn abandon(&mut self) {
        self.kubeconfig = None;
    }

    fn credentials(&self) -> Result<Credentials> {
        let cluster = self.cluster.as_ref().context("the cluster is not running")?;
        cluster.credentials()?.context("the cluster has no address")
    }

    fn spawn<F>(&self, name: &'static str, work: impl FnOnce(CancellationToken) -> F) -> Running
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let shutdown = CancellationToken::new();
        let (told, failures) = (shutdown.clone(), self.failures.clone());
        let work = work(shutdown.clone());
        let task = tokio::spawn(async move {
            let ended = work.await;
            if told.is_cancelled() {
                return ended;
            }
            let failure = match ended {
                Ok(()) => anyhow!("the {name} ended too early"),
                Err(error) => error.context(format!("the {name} failed")),
            };
            // One failure is enough to end the demo; a second one has nothing to add.
            let _ = failures.try_send(failure);
            Ok(())
        });
        Running { shutdown, task: AbortOnDropHandle::new(task) }
    }
}
