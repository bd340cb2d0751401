//! The [`Runtime`] of pods that really run: [`Containers`].
//!
//! Everything that outlives this process is in a pod's directory and in its parent; what is kept here can be found again.

mod client;
mod hooks;
mod logs;
mod plan;
mod pod;
mod pull;
mod session;
mod usage;
mod volumes;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use windlass_image::users::Users;
use windlass_image::{Name, Store};
use windlass_node::runtime::{
    Connection, ContainerRef, ExecOptions, Exit, Image, LogOptions, Operation, PodSandbox, Recovered, Runtime,
    RuntimeError, RuntimeEvent, Session, Shortcoming, Started, Usage,
};
use windlass_node::volumes::Mounted;

pub use windlass_node::tokens::Tokens;

use crate::cgroup::Cgroups;
use crate::network::{HostNetwork, PodNetwork};
use crate::spec::{ContainerState, ExitState, Isolation, PodDir};
use pod::PodHandle;

/// How many events may wait for the agent.
const EVENTS: usize = 1024;

/// What [`Containers`] are made of.
pub struct Options {
    /// Where pods have their directories.
    pub dir: PathBuf,
    /// What tells the control groups of this cluster's pods from others'.
    pub name: String,
    /// The program that a pod's processes are: this one, or another with [`entry`](crate::entry).
    pub program: PathBuf,
    /// Where images are.
    pub store: Store,
    /// Gives pods a network.
    pub network: Arc<dyn PodNetwork>,
    /// Gives pods tokens.
    pub tokens: Arc<dyn Tokens>,
    /// How far containers are kept apart.
    pub isolation: Isolation,
    /// Variables that every container has, such as where the API server is.
    pub environment: Vec<(String, String)>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("dir", &self.dir).field("isolation", &self.isolation).finish_non_exhaustive()
    }
}

/// Clones are the same runtime.
#[derive(Clone)]
pub struct Containers {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Containers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Containers").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

struct Inner {
    options: Options,
    cgroups: Cgroups,
    pods: Mutex<HashMap<String, Arc<PodHandle>>>,
    events: mpsc::Sender<RuntimeEvent>,
    receiver: Mutex<Option<mpsc::Receiver<RuntimeEvent>>>,
    /// Why files of images are not overlaid, once that was tried.
    no_overlays: OnceLock<Option<String>>,
}

impl Containers {
    /// A runtime with these parts.
    pub fn new(options: Options) -> io::Result<Self> {
        std::fs::create_dir_all(&options.dir)?;
        // What this process was started with, a pipe of its caller perhaps, is not for pods.
        close_fds::set_fds_cloexec(3, &[]);
        let (events, receiver) = mpsc::channel(EVENTS);
        let cgroups = match options.isolation {
            Isolation::Namespaces => Cgroups::find(&options.name),
            Isolation::None => Cgroups::find(&format!("{}-processes", options.name)),
        };
        let receiver = Mutex::new(Some(receiver));
        let no_overlays = OnceLock::new();
        let inner = Inner { options, cgroups, pods: Mutex::default(), events, receiver, no_overlays };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What is not isolated or limited here, in a sentence; `None` if everything is.
    pub fn missing(&self) -> Option<String> {
        self.not_isolated().map(|shortcoming| shortcoming.message)
    }

    /// Why each container gets a copy of its image, in a sentence; `None` where files are overlaid.
    pub fn copies(&self) -> Option<String> {
        if self.inner.options.isolation == Isolation::None {
            return None;
        }
        let why = self.inner.no_overlays.get_or_init(|| {
            // Beside the directories of pods: everything among them is taken for one.
            let dir = self.inner.options.dir.parent().unwrap_or(&self.inner.options.dir);
            crate::overlay::try_overlay(dir).err().map(|error| error.to_string())
        });
        let why = why.as_ref()?;
        Some(format!("each container gets a copy of its image, because its files cannot be overlaid: {why}"))
    }

    /// What is not isolated, for the node's conditions.
    fn not_isolated(&self) -> Option<Shortcoming> {
        let mut all = Vec::new();
        if self.inner.options.isolation == Isolation::None {
            all.push("containers are processes of the host: they see its files, processes and network".to_owned());
        }
        match Users::current() {
            Users::One if self.inner.options.isolation == Isolation::Namespaces => {
                all.push("all users of a container are the one that runs windlass, by whatever number".to_owned());
            }
            Users::Several(count) if self.inner.options.isolation == Isolation::Namespaces => {
                all.push(format!("a container has the users 0 to {} only", count - 1));
            }
            _ => {}
        }
        let unlimited = self.inner.cgroups.missing();
        if !unlimited.is_empty() {
            all.push(format!("no limits of {}", unlimited.join(", ")));
        }
        let message = all.join("; ");
        let is_process = self.inner.options.isolation == Isolation::None;
        let reason = if is_process { windlass_node::HOST_PROCESSES } else { "NotEverythingIsIsolated" };
        let condition = windlass_node::CONTAINERS_ISOLATED;
        (!message.is_empty()).then_some(Shortcoming { condition, reason, message })
    }

    /// The uids of pods that there is something of: those that run, and those that have left something.
    pub fn found(&self) -> BTreeSet<String> {
        let dirs = std::fs::read_dir(&self.inner.options.dir).into_iter().flatten().flatten();
        let dirs = dirs.filter_map(|entry| entry.file_name().into_string().ok());
        dirs.chain(self.inner.cgroups.pods()).collect()
    }

    /// Ends these pods, unless this runtime has them, and removes everything of them.
    pub fn clean<'a>(&self, pods: impl IntoIterator<Item = &'a String>) {
        for uid in pods {
            if !self.inner.pods.lock().contains_key(uid) {
                let dir = PodDir(self.inner.options.dir.join(uid));
                pod::destroy(&dir, &self.inner.cgroups, uid);
            }
        }
    }

    /// Ends the parents of all pods, and leaves what they have written: the pods are started again when they are wanted.
    pub fn end_parents(&self) {
        for uid in self.found() {
            pod::end_parent(&PodDir(self.inner.options.dir.join(uid)));
        }
    }

    /// Ends all pods, and removes everything of them.
    pub fn remove_all(&self) {
        self.inner.pods.lock().clear();
        self.clean(&self.found());
        self.inner.cgroups.remove_all();
    }

    fn dir(&self, uid: &str) -> PodDir {
        PodDir(self.inner.options.dir.join(uid))
    }

    fn handle(&self, pod: &PodSandbox) -> Result<Arc<PodHandle>, RuntimeError> {
        let found = self.inner.pods.lock().get(pod.uid()).cloned();
        found.ok_or_else(|| RuntimeError::NotFound("the pod does not run here".to_owned()))
    }

    async fn create_pod(self, pod: PodSandbox, volumes: Arc<Mounted>) -> Result<(), RuntimeError> {
        let handle = {
            let mut pods = self.inner.pods.lock();
            let handle = pods.entry(pod.uid().to_owned());
            Arc::clone(handle.or_insert_with(|| Arc::new(PodHandle::new(&pod, self.dir(pod.uid())))))
        };
        handle.set_volumes(volumes);
        handle.ensure(&self.inner).await
    }

    async fn recover_pod(self, pod: PodSandbox) -> Result<Vec<Recovered>, RuntimeError> {
        let dir = self.dir(pod.uid());
        if !dir.0.is_dir() {
            return Ok(Vec::new());
        }
        let handle = Arc::new(PodHandle::new(&pod, dir.clone()));
        let found = if let Ok(found) = handle.connect(&self.inner).await {
            self.inner.pods.lock().insert(pod.uid().to_owned(), Arc::clone(&handle));
            handle.rejoin_network(&self.inner).await;
            found
        } else {
            // The parent is gone: what ran is gone, too, or is killed now.
            let text = std::fs::read(dir.state()).unwrap_or_default();
            let mut found: Vec<ContainerState> = serde_json::from_slice(&text).unwrap_or_default();
            for state in &mut found {
                state.exit.get_or_insert(ExitState { code: 137, oom: false, at: crate::spec::now() });
            }
            let (cgroups, uid) = (self.inner.cgroups.clone(), pod.uid().to_owned());
            let _ = tokio::task::spawn_blocking(move || cgroups.remove(&uid)).await;
            found
        };
        let recovered = found.iter().map(|state| handle.recovered(&self.inner, state)).collect();
        handle.catch_up(&self.inner).await;
        Ok(recovered)
    }

    /// Ends what is left of a pod, and keeps its output.
    async fn finish_pod(self, pod: PodSandbox) -> Result<(), RuntimeError> {
        let handle = self.inner.pods.lock().remove(pod.uid());
        if let Some(handle) = handle {
            handle.shut_down().await;
        }
        let (cgroups, uid, dir) = (self.inner.cgroups.clone(), pod.uid().to_owned(), self.dir(pod.uid()));
        self.inner.options.network.detach(&uid).await;
        let _ = tokio::task::spawn_blocking(move || pod::retire(&dir, &cgroups, &uid)).await;
        Ok(())
    }

    /// The output of a pod that has ended. Its status says which attempt was the last.
    fn kept_logs(
        &self,
        pod: &PodSandbox,
        container: &str,
        options: &LogOptions,
    ) -> Result<BoxStream<'static, Bytes>, RuntimeError> {
        let status = pod.pod.status.clone().unwrap_or_default();
        let all = [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
        let status = all.into_iter().flatten().flatten().find(|status| status.name == container);
        let attempt = status.map_or(0, |status| status.restart_count) - i32::from(options.previous);
        let path = self.dir(pod.uid()).log(container, attempt);
        if !path.exists() {
            let which = if options.previous { "previous terminated container" } else { "container" };
            return Err(RuntimeError::NotFound(format!("{which} {container:?} in pod not found")));
        }
        logs::read(path, options.clone(), None).map_err(|error| RuntimeError::NotFound(error.to_string()))
    }

    async fn remove_pod(self, pod: PodSandbox) -> Result<(), RuntimeError> {
        let handle = self.inner.pods.lock().remove(pod.uid());
        let dir = self.dir(pod.uid());
        if handle.is_none() && !dir.0.exists() {
            return Ok(());
        }
        if let Some(handle) = handle {
            handle.shut_down().await;
        }
        let (cgroups, uid) = (self.inner.cgroups.clone(), pod.uid().to_owned());
        self.inner.options.network.detach(&uid).await;
        let _ = tokio::task::spawn_blocking(move || pod::destroy(&dir, &cgroups, &uid)).await;
        Ok(())
    }
}

/// What a container's status has for its image.
fn image_id(name: &Name, digest: &str) -> String {
    format!("{}/{}@{digest}", name.reference.registry, name.reference.repository)
}

/// A time as the parent has it.
fn timestamp(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn pending<T>(future: impl Future<Output = Result<T, RuntimeError>> + Send + 'static) -> Operation<T> {
    Operation::Pending(Box::pin(future))
}

impl Runtime for Containers {
    fn version(&self) -> String {
        concat!("windlass://", env!("CARGO_PKG_VERSION")).to_owned()
    }

    fn shortcomings(&self) -> Vec<Shortcoming> {
        let network = match self.inner.options.isolation {
            Isolation::None => Some(HostNetwork::shortcoming_of_processes()),
            Isolation::Namespaces => self.inner.options.network.shortcoming(),
        };
        let copies = self.copies().map(|message| Shortcoming {
            condition: "ContainerOverlays",
            reason: "ImagesAreCopied",
            message,
        });
        self.not_isolated().into_iter().chain(network).chain(copies).collect()
    }

    fn recover(&self, pod: &PodSandbox) -> Operation<Vec<Recovered>> {
        pending(self.clone().recover_pod(pod.clone()))
    }

    fn create(&self, pod: &PodSandbox, volumes: &Arc<Mounted>) -> Operation<()> {
        pending(self.clone().create_pod(pod.clone(), Arc::clone(volumes)))
    }

    fn pull(&self, _: &PodSandbox, container: &ContainerRef<'_>) -> Operation<Image> {
        let wanted = pull::Wanted::of(container);
        // What is here already is no matter of waiting.
        if let Some(image) = wanted.present(&self.inner.options.store) {
            return Operation::ok(image);
        }
        let this = self.clone();
        pending(async move { wanted.pull(&this.inner.options.store).await })
    }

    fn runs_containers(&self) -> bool {
        true
    }

    fn update(&self, pod: &PodSandbox, volumes: &Arc<Mounted>) -> Operation<()> {
        let handle = match self.handle(pod) {
            Ok(handle) => handle,
            Err(error) => return Operation::Done(Err(error)),
        };
        handle.update(pod);
        handle.set_volumes(Arc::clone(volumes));
        pending(async move { handle.update_files().await })
    }

    fn usage(&self, pod: &PodSandbox) -> Option<Vec<Usage>> {
        self.handle(pod).ok()?.usage(&self.inner.cgroups)
    }

    fn start(&self, pod: &PodSandbox, container: &ContainerRef<'_>) -> Operation<Started> {
        let handle = match self.handle(pod) {
            Ok(handle) => handle,
            Err(error) => return Operation::Done(Err(error)),
        };
        handle.update(pod);
        let (this, pod) = (self.clone(), pod.clone());
        let start = pod::Start {
            index: container.index,
            spec: container.spec.clone(),
            attempt: container.attempt,
            environment: container.environment.to_vec(),
        };
        pending(async move { handle.start(&this.inner, &pod, start).await })
    }

    fn stop(&self, pod: &PodSandbox, container: &ContainerRef<'_>, grace: Duration) {
        let Ok(handle) = self.handle(pod) else { return };
        let (spec, attempt, inner) = (container.spec.clone(), container.attempt, Arc::clone(&self.inner));
        tokio::spawn(async move { handle.stop(&inner, &spec, attempt, grace).await });
    }

    fn finish(&self, pod: &PodSandbox) -> Operation<()> {
        pending(self.clone().finish_pod(pod.clone()))
    }

    fn remove(&self, pod: &PodSandbox) -> Operation<()> {
        pending(self.clone().remove_pod(pod.clone()))
    }

    fn events(&self) -> BoxStream<'static, RuntimeEvent> {
        match self.inner.receiver.lock().take() {
            Some(receiver) => {
                stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))).boxed()
            }
            None => stream::empty().boxed(),
        }
    }

    fn logs(&self, pod: &PodSandbox, container: &str, options: &LogOptions) -> Operation<BoxStream<'static, Bytes>> {
        Operation::Done(match self.handle(pod) {
            Ok(handle) => handle.logs(container, options),
            Err(_) => self.kept_logs(pod, container, options),
        })
    }

    fn exec(&self, pod: &PodSandbox, container: &str, command: &ExecOptions) -> Operation<Session> {
        let handle = match self.handle(pod) {
            Ok(handle) => handle,
            Err(error) => return Operation::Done(Err(error)),
        };
        let (container, command) = (container.to_owned(), command.clone());
        pending(async move { handle.exec(&container, &command).await })
    }

    fn attach(&self, pod: &PodSandbox, container: &str, terminal: bool) -> Operation<Session> {
        let handle = match self.handle(pod) {
            Ok(handle) => handle,
            Err(error) => return Operation::Done(Err(error)),
        };
        let container = container.to_owned();
        pending(async move { handle.attach(&container, terminal).await })
    }

    fn port(&self, pod: &PodSandbox, port: u16) -> Operation<Box<dyn Connection>> {
        let handle = match self.handle(pod) {
            Ok(handle) => handle,
            Err(error) => return Operation::Done(Err(error)),
        };
        pending(async move {
            let connected = handle.connect_to(IpAddr::from([127, 0, 0, 1]), port).await;
            connected.map_err(RuntimeError::NotFound)
        })
    }
}

/// How a container ended, for its status.
fn exit_of(state: &ExitState, message: Option<String>) -> Exit {
    let reason = state.oom.then(|| "OOMKilled".to_owned());
    Exit { code: state.code, reason, message, at: timestamp(state.at) }
}
