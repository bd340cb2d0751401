//! A server, a kind of our own, and ways to wait.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, ListParams, Patch, PostParams};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::controller::from_key_fn;
use windlass::manager::ManagerError;
use windlass::rbac::Rules;
use windlass::{CachedClient, Context, Controller, Manager, ObjectKey, Outcome};
use windlass_server::Server;
use windlass_server::pki::Authority;

/// A pet: what the tests look after.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "petstore.example.com", version = "v1", kind = "Pet", namespaced, status = "PetStatus")]
pub struct PetSpec {
    pub name: String,
    #[serde(default)]
    pub tricks: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PetStatus {
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

pub fn pet(name: &str) -> Pet {
    let mut pet = Pet::new(name, PetSpec { name: name.to_owned(), tricks: Vec::new() });
    pet.metadata.namespace = Some("default".into());
    pet
}

/// A server with the kind `Pet`.
pub struct Bench {
    pub server: Server,
    pub kube: kube::Client,
}

impl Bench {
    pub async fn start() -> Self {
        Self::of(Server::builder().start().await.expect("the server starts")).await
    }

    /// With a server that was made for it.
    pub async fn of(server: Server) -> Self {
        let kube = kube::Client::new(server.service(), "default");
        let mut revision = server.api().store.revision();
        tokio::spawn(async move {
            while revision.changed().await.is_ok() {
                progress();
            }
        });
        let bench = Self { server, kube };
        bench.install().await;
        bench
    }

    /// Installs the kind and waits until it is served.
    pub async fn install(&self) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.kube.clone());
        crds.create(&PostParams::default(), &Pet::crd()).await.expect("the definition is accepted");
        let pets = self.pets();
        wait_for("pets are served", async || pets.list(&ListParams::default()).await.is_ok()).await;
    }

    pub fn pets(&self) -> Api<Pet> {
        Api::namespaced(self.kube.clone(), "default")
    }

    pub async fn create(&self, pet: &Pet) -> Pet {
        self.pets().create(&PostParams::default(), pet).await.expect("created")
    }

    pub fn manager(&self) -> Manager {
        Manager::builder(self.kube.clone()).name("it").build().expect("a manager")
    }

    /// Allows a user what rules say.
    pub async fn grant(&self, user: &str, rules: &Rules) {
        let subjects = serde_json::json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]);
        let binding = |kind: &str, namespace: Option<&str>| {
            serde_json::json!({
                "metadata": {"name": user, "namespace": namespace}, "subjects": subjects,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": user},
            })
        };
        let params = PostParams::default();
        if let Some(role) = rules.cluster_role(user) {
            Api::<ClusterRole>::all(self.kube.clone()).create(&params, &role).await.expect("created");
            let binding = serde_json::from_value(binding("ClusterRole", None)).expect("a binding");
            Api::<ClusterRoleBinding>::all(self.kube.clone()).create(&params, &binding).await.expect("created");
        }
        for role in rules.roles(user) {
            let namespace = role.metadata.namespace.clone().expect("a namespace");
            Api::<Role>::namespaced(self.kube.clone(), &namespace).create(&params, &role).await.expect("created");
            let binding = serde_json::from_value(binding("Role", Some(&namespace))).expect("a binding");
            let bindings = Api::<RoleBinding>::namespaced(self.kube.clone(), &namespace);
            bindings.create(&params, &binding).await.expect("created");
        }
    }

    /// A client with running caches and no manager.
    pub fn client(&self) -> CachedClient {
        CachedClient::standalone(self.kube.clone(), "it")
    }
}

/// A kubeconfig that leads to a listener, in a directory.
pub fn write_kubeconfig(files: &Path, address: SocketAddr, authority: &Authority, token: &str) -> PathBuf {
    let (ca, kubeconfig) = (files.join("ca.pem"), files.join("kubeconfig"));
    std::fs::write(&ca, authority.certificate()).expect("written");
    let config = serde_json::json!({
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": format!("https://{address}"), "certificate-authority": ca}}],
        "users": [{"name": "it", "user": {"token": token}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).expect("written");
    kubeconfig
}

/// A manager that runs in the background.
pub struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ManagerError>>,
}

impl Running {
    pub fn start(manager: Manager) -> Self {
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(manager.run_until(shutdown.clone()));
        Self { shutdown, task }
    }

    /// The same once it is ready.
    pub async fn ready(manager: Manager) -> Self {
        let ready = manager.ready();
        let running = Self::start(manager);
        if ready.await {
            return running;
        }
        panic!("not ready: {:?}", running.ended().await)
    }

    pub async fn stop(self) -> Result<(), ManagerError> {
        self.shutdown.cancel();
        self.task.await.expect("the manager does not panic")
    }

    /// Ends it as a crash does: nothing is given back.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits for it to end by itself.
    pub async fn ended(self) -> Result<(), ManagerError> {
        self.task.await.expect("the manager does not panic")
    }
}

thread_local! {
    /// Moves whenever something happened that a test on this thread may wait for.
    static PROGRESS: watch::Sender<u64> = watch::Sender::new(0);
}

/// Has those who wait look again.
pub fn progress() {
    PROGRESS.with(|progress| progress.send_modify(|steps| *steps += 1));
}

/// Waits until a condition holds; fails the test when it takes too long. It is looked at whenever the
/// server has stored something or a reconciler has logged something, and, for what is not announced,
/// now and then.
pub async fn wait_for(what: &str, condition: impl AsyncFn() -> bool) {
    let condition = &condition;
    wait_for_any(what, &|| Box::pin(condition())).await;
}

/// Compiled once, not for each of the hundreds of conditions.
async fn wait_for_any<'a>(what: &str, condition: &dyn Fn() -> LocalBoxFuture<'a, bool>) {
    let mut progress = PROGRESS.with(watch::Sender::subscribe);
    let waiting = async {
        let mut pause = Duration::from_millis(2);
        loop {
            progress.mark_unchanged();
            if condition().await {
                return;
            }
            let told = tokio::time::timeout(pause, progress.changed()).await.is_ok();
            pause = if told { Duration::from_millis(2) } else { (pause * 2).min(Duration::from_millis(64)) };
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .unwrap_or_else(|_| panic!("timed out waiting: {what}"));
}

/// A list that reconcilers write to and tests read.
#[derive(Clone, Debug)]
pub struct Log<T>(Arc<std::sync::Mutex<Vec<T>>>);

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + PartialEq> Log<T> {
    pub fn push(&self, entry: T) {
        self.0.lock().expect("not poisoned").push(entry);
        progress();
    }

    pub fn entries(&self) -> Vec<T> {
        self.0.lock().expect("not poisoned").clone()
    }

    pub fn len(&self) -> usize {
        self.0.lock().expect("not poisoned").len()
    }

    pub fn contains(&self, entry: &T) -> bool {
        self.0.lock().expect("not poisoned").contains(entry)
    }
}

/// A replica on a thread of its own that stands still, with everything it runs, in the middle of its
/// first reconcile, as a process that gets SIGSTOP does. Woken up, it tries to write.
pub struct Frozen {
    stands: tokio::sync::mpsc::UnboundedReceiver<()>,
    wake: std::sync::mpsc::Sender<()>,
    shutdown: CancellationToken,
    thread: std::thread::JoinHandle<()>,
    written: Log<bool>,
}

impl Frozen {
    /// `configure` makes the manager and the controller, on the new thread.
    pub fn start(
        kube: kube::Client,
        configure: impl FnOnce(kube::Client) -> (Manager, Controller<Pet>) + Send + 'static,
    ) -> Self {
        let (told, stands) = tokio::sync::mpsc::unbounded_channel();
        let (wake, woken) = std::sync::mpsc::channel::<()>();
        let (told, woken) = (std::sync::Mutex::new(told), Arc::new(std::sync::Mutex::new(woken)));
        let (shutdown, written) = (CancellationToken::new(), Log::default());
        let (until, log, told) = (shutdown.clone(), written.clone(), Arc::new(told));
        let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
            let (told, woken, log) = (Arc::clone(&told), Arc::clone(&woken), log.clone());
            async move {
                let _ = told.lock().expect("not poisoned").send(());
                // The only thread of this replica waits here, and with it timers and sockets.
                let _ = woken.lock().expect("not poisoned").recv();
                let patch = Patch::Merge(serde_json::json!({"spec": {"tricks": ["after its time"]}}));
                log.push(ctx.client().patch::<Pet>(&key, &patch).await.is_ok());
                Ok(Outcome::Done)
            }
        });
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let (mut manager, controller) = configure(kube);
                manager.add(controller.complete_keyed(reconciler)).expect("added");
                manager.run_until(until).await.expect("stopped");
            });
        });
        Self { stands, wake, shutdown, thread, written }
    }

    /// Waits until it stands still.
    pub async fn standing(&mut self) {
        let standing = tokio::time::timeout(Duration::from_secs(20), self.stands.recv()).await;
        assert_eq!(standing, Ok(Some(())), "the replica works");
    }

    /// Wakes it up, stops it, and says of each write it tried whether it passed.
    pub async fn wake_and_stop(self) -> Vec<bool> {
        drop(self.wake);
        self.shutdown.cancel();
        let ended = tokio::task::spawn_blocking(move || self.thread.join()).await;
        ended.expect("joined").expect("the replica ended well");
        self.written.entries()
    }
}
