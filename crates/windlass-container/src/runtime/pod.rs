//! One pod that runs: its parent, and what is known about its containers.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{mpsc, watch};
use windlass_image::{Name, Stored, unpack};
use windlass_node::probes::{self, Probes, Target};
use windlass_node::runtime::{
    Connection, ContainerEvent, ExecOptions, LogOptions, PodSandbox, Recovered, RuntimeError, RuntimeEvent, Session,
    Started,
};
use windlass_node::volumes::{Mounted, Volume};

use super::client::Client;
use super::session::{Stream, pipe, terminal};
use super::volumes::TokenFiles;
use super::{Inner, exit_of, logs, plan, timestamp};
use crate::cgroup::Cgroups;
use crate::network::{Attachment, HostNetwork, NetworkError, NetworkNamespace, NetworkedPod, PodNetwork as _};
use crate::spec::{
    ContainerConfig, ContainerState, Isolation, PARENT, PodConfig, PodDir, ProcessConfig, Reply, Request, RootConfig,
};
use crate::wire;

/// How large a log file becomes, and how many there are.
const LOG_LIMIT: u64 = 10 << 20;
const LOG_FILES: u32 = 5;
/// How much of a termination message is read.
const MESSAGE: u64 = 4096;
/// How long a pod's parent may take to end everything.
const SHUTDOWN: Duration = Duration::from_secs(10);
/// The signals that images name.
const SIGNALS: [(&str, i32); 8] =
    [("HUP", 1), ("INT", 2), ("QUIT", 3), ("KILL", 9), ("USR1", 10), ("USR2", 12), ("TERM", 15), ("WINCH", 28)];

/// See the [module documentation](self).
pub(super) struct PodHandle {
    dir: PodDir,
    pod: Mutex<Arc<Pod>>,
    node: Arc<str>,
    ip: Mutex<Option<IpAddr>>,
    volumes: Mutex<Option<Arc<Mounted>>>,
    /// One at a time starts the parent.
    client: tokio::sync::Mutex<Option<Arc<Client>>>,
    containers: Mutex<HashMap<String, Known>>,
    /// Containers that ended before they were known here, while a pod is recovered.
    early: Mutex<Vec<ContainerState>>,
    tokens: Mutex<Option<tokio::task::AbortHandle>>,
}

/// A container that was started here, or found.
struct Known {
    index: usize,
    attempt: i32,
    stop_signal: i32,
    /// True when it has ended.
    ended: watch::Sender<bool>,
    probes: Probes,
}

/// A container to start.
pub(super) struct Start {
    pub(super) index: usize,
    pub(super) spec: Container,
    pub(super) attempt: i32,
    pub(super) environment: Vec<(String, String)>,
}

impl Drop for PodHandle {
    fn drop(&mut self) {
        if let Some(task) = self.tokens.lock().take() {
            task.abort();
        }
    }
}

fn sandbox(error: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::Sandbox(error.to_string())
}

fn create(error: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::Create(error.to_string())
}

impl PodHandle {
    pub(super) fn new(pod: &PodSandbox, dir: PodDir) -> Self {
        Self {
            dir,
            pod: Mutex::new(Arc::clone(&pod.pod)),
            node: Arc::clone(&pod.node),
            ip: Mutex::new(pod.ip),
            volumes: Mutex::default(),
            client: tokio::sync::Mutex::new(None),
            containers: Mutex::default(),
            early: Mutex::default(),
            tokens: Mutex::default(),
        }
    }

    pub(super) fn set_volumes(&self, volumes: Arc<Mounted>) {
        *self.volumes.lock() = Some(volumes);
    }

    pub(super) fn update(&self, pod: &PodSandbox) {
        *self.pod.lock() = Arc::clone(&pod.pod);
    }

    fn spec(&self) -> PodSpec {
        self.pod.lock().spec.clone().unwrap_or_default()
    }

    fn text(&self, read: impl Fn(&Pod) -> Option<String>) -> String {
        read(&self.pod.lock()).unwrap_or_default()
    }

    pub(super) fn uid(&self) -> String {
        self.text(|pod| pod.metadata.uid.clone())
    }

    /// The parent, which is started if it does not run.
    pub(super) async fn ensure(self: &Arc<Self>, inner: &Arc<Inner>) -> Result<(), RuntimeError> {
        self.parent(inner).await.map(drop)
    }

    async fn parent(self: &Arc<Self>, inner: &Arc<Inner>) -> Result<Arc<Client>, RuntimeError> {
        let mut current = self.client.lock().await;
        if let Some(client) = current.as_ref().filter(|client| !client.is_gone()) {
            return Ok(Arc::clone(client));
        }
        if let Ok((client, exits)) = Client::connect(&self.dir.0) {
            let client = Arc::new(client);
            self.relay(inner, exits);
            *current = Some(Arc::clone(&client));
            return Ok(client);
        }
        let client = self.launch(inner).await?;
        *current = Some(Arc::clone(&client));
        Ok(client)
    }

    /// Starts the parent of the pod.
    async fn launch(self: &Arc<Self>, inner: &Arc<Inner>) -> Result<Arc<Client>, RuntimeError> {
        let volumes = self.volumes.lock().clone();
        let volumes = volumes.ok_or_else(|| sandbox("the volumes of the pod are not known"))?;
        let spec = self.spec();
        if let Some(why) = plan::unmountable(&spec) {
            return Err(sandbox(why));
        }
        let hostname = plan::hostname(&self.pod.lock());
        let attached = self.join_network(inner).await.map_err(sandbox)?;
        let (network, resolv_conf) = (attached.namespace, attached.resolv_conf);
        let config = PodConfig {
            hostname: hostname.clone(),
            isolation: inner.options.isolation,
            user_namespace: !rustix::process::geteuid().is_root(),
            network,
            host_ipc: spec.host_ipc == Some(true),
            host_pid: spec.host_pid == Some(true),
            share_pid: spec.share_process_namespace == Some(true),
            memory: memory_volumes(&volumes),
        };
        self.prepare(&config, &spec, &hostname, &resolv_conf, &volumes).map_err(sandbox)?;
        let mut command = tokio::process::Command::new(&inner.options.program);
        command.arg(PARENT).arg(&self.dir.0).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| sandbox(format!("cannot start the pod's parent: {error}")))?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            let _ = stdout.take(MESSAGE).read_to_string(&mut said).await;
        }
        // It outlives this process; as long as both run, its end is noticed here.
        tokio::spawn(async move { child.wait().await });
        if said != crate::parent::LISTENING {
            return Err(sandbox(if said.is_empty() { "the pod's parent ended at once" } else { &said }));
        }
        let (client, exits) = Client::connect(&self.dir.0).map_err(sandbox)?;
        let client = Arc::new(client);
        self.relay(inner, exits);
        let tokens = self.write_volumes(inner, &client, &volumes).await?;
        self.renew(inner, tokens);
        Ok(client)
    }

    /// Gives the pod its network, or the one that it has already.
    async fn join_network(&self, inner: &Inner) -> Result<Attachment, NetworkError> {
        let spec = self.spec();
        let wanted = NetworkedPod {
            uid: self.uid(),
            namespace: self.text(|pod| pod.metadata.namespace.clone()),
            name: self.text(|pod| pod.metadata.name.clone()),
            node: self.node.to_string(),
            ip: *self.ip.lock(),
            dns_policy: spec.dns_policy.clone().unwrap_or_default(),
            dns_config: spec.dns_config.clone(),
            host_ports: host_ports(&spec),
        };
        if inner.options.isolation == Isolation::None {
            return HostNetwork.attach(&wanted).await;
        }
        if spec.host_network == Some(true) {
            return inner.options.network.attach_to_host(&wanted).await;
        }
        let attached = inner.options.network.attach(&wanted).await?;
        if attached.ip.is_some() {
            *self.ip.lock() = attached.ip;
        }
        Ok(attached)
    }

    /// Says to the network again what a pod that runs already has of it.
    pub(super) async fn rejoin_network(&self, inner: &Inner) {
        if let Err(error) = self.join_network(inner).await {
            tracing::warn!(pod = %self.uid(), %error, "a pod has lost its network");
        }
    }

    /// Writes what the parent needs into the pod's directory.
    fn prepare(
        &self,
        config: &PodConfig,
        spec: &PodSpec,
        hostname: &str,
        resolv_conf: &str,
        volumes: &Mounted,
    ) -> io::Result<()> {
        use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
        fs::DirBuilder::new().recursive(true).mode(0o711).create(&self.dir.0)?;
        let _ = fs::remove_file(self.dir.0.join("control"));
        for dir in ["etc", "volumes", "containers", "logs", "memory", "root"] {
            fs::create_dir_all(self.dir.0.join(dir))?;
        }
        // Without a network the pod's address leads nowhere, also from inside.
        let has_network = config.network != NetworkNamespace::Loopback;
        let ip = self.ip.lock().filter(|_| has_network).or(Some(IpAddr::from([127, 0, 0, 1])));
        fs::write(self.dir.etc("hosts"), plan::hosts(spec, hostname, ip))?;
        fs::write(self.dir.etc("hostname"), format!("{hostname}\n"))?;
        fs::write(self.dir.etc("resolv.conf"), resolv_conf)?;
        let group = spec.security_context.as_ref().and_then(|context| context.fs_group);
        let group = group.and_then(|group| u32::try_from(group).ok());
        for (name, volume) in &volumes.volumes {
            if matches!(volume, Volume::EmptyDir { medium, .. } if medium != "Memory") {
                let path = self.dir.volume(name);
                fs::create_dir_all(&path)?;
                let mode = if group.is_some() { 0o2777 } else { 0o777 };
                if group.is_some() {
                    // Only root may give files away; others own them anyway.
                    let _ = std::os::unix::fs::chown(&path, None, group);
                }
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
        }
        fs::write(self.dir.config(), serde_json::to_vec(config)?)
    }

    /// Writes the files of the API. Returns those that have to be renewed.
    async fn write_volumes(
        &self,
        inner: &Inner,
        client: &Client,
        volumes: &Mounted,
    ) -> Result<TokenFiles, RuntimeError> {
        let spec = self.spec();
        let pod = self.pod.lock().clone();
        let resolved = super::volumes::resolve(&pod, &spec, &self.node, volumes, &*inner.options.tokens).await;
        let (content, tokens) = resolved.map_err(sandbox)?;
        for (volume, files) in content {
            send_files(client, &volume, &files, false).await?;
        }
        let text = serde_json::to_vec(&tokens).map_err(sandbox)?;
        fs::write(self.dir.0.join("tokens.json"), text).map_err(sandbox)?;
        Ok(tokens)
    }

    /// Renews tokens before they expire.
    fn renew(self: &Arc<Self>, inner: &Arc<Inner>, tokens: TokenFiles) {
        if tokens.is_empty() {
            return;
        }
        let (this, inner) = (Arc::downgrade(self), Arc::downgrade(inner));
        let task = tokio::spawn(renew_tokens(this, inner, tokens));
        if let Some(before) = self.tokens.lock().replace(task.abort_handle()) {
            before.abort();
        }
    }

    /// Connects to a parent that runs already, and asks what runs.
    pub(super) async fn connect(self: &Arc<Self>, inner: &Arc<Inner>) -> Result<Vec<ContainerState>, RuntimeError> {
        let (client, exits) = Client::connect(&self.dir.0).map_err(sandbox)?;
        let (reply, _) = client.ask(Request::State, &[]).await?;
        let Reply::State(found) = reply else { return Err(sandbox("the pod's parent gave no answer")) };
        self.relay(inner, exits);
        *self.client.lock().await = Some(Arc::new(client));
        let tokens = fs::read(self.dir.0.join("tokens.json")).ok();
        if let Some(tokens) = tokens.and_then(|text| serde_json::from_slice(&text).ok()) {
            self.renew(inner, tokens);
        }
        Ok(found)
    }

    /// Passes on what the parent says about containers that ended.
    fn relay(self: &Arc<Self>, inner: &Arc<Inner>, mut exits: mpsc::Receiver<ContainerState>) {
        let (this, inner) = (Arc::downgrade(self), Arc::downgrade(inner));
        tokio::spawn(async move {
            while let Some(state) = exits.recv().await {
                let (Some(this), Some(inner)) = (this.upgrade(), inner.upgrade()) else { return };
                this.exited(&inner, &state).await;
            }
            // The parent is gone, and everything of the pod with it.
            let (Some(this), Some(inner)) = (this.upgrade(), inner.upgrade()) else { return };
            if inner.pods.lock().get(&this.uid()).is_some_and(|known| Arc::ptr_eq(known, &this)) {
                this.lost(&inner).await;
            }
        });
    }

    async fn lost(&self, inner: &Inner) {
        let (cgroups, uid) = (inner.cgroups.clone(), self.uid());
        let _ = tokio::task::spawn_blocking(move || cgroups.remove(&uid)).await;
        let running: Vec<(String, i32)> = {
            let containers = self.containers.lock();
            let running = containers.iter().filter(|(_, known)| !*known.ended.borrow());
            running.map(|(name, known)| (name.clone(), known.attempt)).collect()
        };
        for (name, attempt) in running {
            let exit = crate::spec::ExitState { code: 137, oom: false, at: crate::spec::now() };
            let (id, image) = (String::new(), String::new());
            let state = ContainerState { name, attempt, id, image, started: 0, exit: Some(exit), last: None };
            self.exited(inner, &state).await;
        }
    }

    async fn exited(&self, inner: &Inner, state: &ContainerState) {
        let Some(exit) = &state.exit else { return };
        let index = {
            let mut containers = self.containers.lock();
            let Some(known) = containers.get_mut(&state.name) else {
                self.early.lock().push(state.clone());
                return;
            };
            if known.attempt != state.attempt {
                return;
            }
            drop(std::mem::take(&mut known.probes));
            known.ended.send_replace(true);
            known.index
        };
        let message = self.message(&state.name, state.attempt, exit.code);
        self.tell(inner, index, state.attempt, ContainerEvent::Exited(exit_of(exit, message))).await;
    }

    /// Passes on what ended before its container was known.
    pub(super) async fn catch_up(&self, inner: &Inner) {
        let early = std::mem::take(&mut *self.early.lock());
        for state in early {
            if self.containers.lock().contains_key(&state.name) {
                self.exited(inner, &state).await;
            }
        }
    }

    async fn tell(&self, inner: &Inner, container: usize, attempt: i32, event: ContainerEvent) {
        let event = self.event(container, attempt, event);
        let _ = inner.events.send(event).await;
    }

    fn event(&self, container: usize, attempt: i32, event: ContainerEvent) -> RuntimeEvent {
        RuntimeEvent {
            namespace: self.text(|pod| pod.metadata.namespace.clone()).into(),
            name: self.text(|pod| pod.metadata.name.clone()).into(),
            uid: self.uid().into(),
            container,
            attempt,
            event,
        }
    }

    /// What a container said when it ended, or the end of its log if it wants that.
    fn message(&self, name: &str, attempt: i32, code: i32) -> Option<String> {
        let file = fs::File::open(self.dir.termination_log(name, attempt)).ok();
        let mut bytes = Vec::new();
        if let Some(file) = file {
            let _ = io::Read::read_to_end(&mut io::Read::take(file, MESSAGE), &mut bytes);
        }
        if !bytes.is_empty() {
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        let spec = self.spec();
        let (_, container) = find(&spec, name)?;
        let from_log = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        let end = (from_log && code != 0).then(|| logs::end(&self.dir.log(name, attempt)));
        end.filter(|text| !text.is_empty())
    }

    /// Takes note of a container that exists already.
    pub(super) fn recovered(self: &Arc<Self>, inner: &Arc<Inner>, state: &ContainerState) -> Recovered {
        let spec = self.spec();
        let status = self.pod.lock().status.clone().unwrap_or_default();
        let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
        let status = all.into_iter().find(|status| status.name == state.name).cloned();
        let same = status.as_ref().filter(|status| status.restart_count == state.attempt);
        let startup_done = same.is_some_and(|status| status.started == Some(true));
        if let Some((index, container)) = find(&spec, &state.name) {
            let probes = match state.exit {
                None => self.probe(inner, &container, index, state.attempt, startup_done),
                Some(_) => Probes::default(),
            };
            let known = Known {
                index,
                attempt: state.attempt,
                stop_signal: self.saved_signal(&state.name, state.attempt),
                ended: watch::channel(state.exit.is_some()).0,
                probes,
            };
            self.containers.lock().insert(state.name.clone(), known);
        }
        let started = |state: &ContainerState| Started { id: state.id.clone(), at: timestamp(state.started) };
        let exit = |state: &ContainerState| {
            let exit = state.exit.as_ref()?;
            Some(exit_of(exit, self.message(&state.name, state.attempt, exit.code)))
        };
        Recovered {
            name: state.name.clone(),
            attempt: state.attempt,
            started: started(state),
            image: state.image.clone(),
            last: state.last.as_ref().and_then(|last| Some((started(last), exit(last)?))),
            startup_done,
            ready: same.is_some_and(|status| status.ready),
            exit: exit(state),
        }
    }

    fn saved_signal(&self, name: &str, attempt: i32) -> i32 {
        let text = fs::read_to_string(self.dir.container(name, attempt).join("stop-signal"));
        text.ok().and_then(|text| text.parse().ok()).unwrap_or(15)
    }

    /// Starts a container, runs its hook, and begins to probe it.
    pub(super) async fn start(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        pod: &PodSandbox,
        start: Start,
    ) -> Result<Started, RuntimeError> {
        let client = self.parent(inner).await?;
        let image = start.spec.image.clone().unwrap_or_default();
        let name: Name = image.parse().map_err(create)?;
        let stored = inner.options.store.find(&name).map_err(create)?;
        let stored = stored.ok_or_else(|| create(format!("there is no image {name} any more")))?;
        let (this, inner_, pod_) = (Arc::clone(self), Arc::clone(inner), pod.clone());
        let (index, attempt, container) = (start.index, start.attempt, start.spec.clone());
        let planned = tokio::task::spawn_blocking(move || this.plan(&inner_, &pod_, &start, &name, &stored));
        let (config, signal) = planned.await.map_err(create)??;
        let known =
            Known { index, attempt, stop_signal: signal, ended: watch::channel(false).0, probes: Probes::default() };
        // Known before it runs: it may end at once.
        self.containers.lock().insert(container.name.clone(), known);
        let id = config.id.clone();
        let file = wire::content(&config).map_err(create)?;
        let (reply, _) = client.ask(Request::Start, &[file.as_fd()]).await?;
        let Reply::Started { at } = reply else { return Err(create("the pod's parent gave no answer")) };
        self.post_start(inner, &client, &container, attempt).await?;
        let probes = self.probe(inner, &container, index, attempt, false);
        if let Some(known) = self.containers.lock().get_mut(&container.name).filter(|known| known.attempt == attempt) {
            known.probes = probes;
        }
        Ok(Started { id, at: timestamp(at) })
    }

    /// Decides what a container is, and prepares its files.
    fn plan(
        &self,
        inner: &Inner,
        pod: &PodSandbox,
        start: &Start,
        name: &Name,
        stored: &Stored,
    ) -> Result<(ContainerConfig, i32), RuntimeError> {
        let store = &inner.options.store;
        let manifest = store.manifest(&stored.digest).map_err(create)?;
        let image = store.config(&manifest).map_err(create)?.config;
        let lower = store.root(&stored.digest, unpack::Limits::default()).map_err(create)?;
        let spec = self.spec();
        let container = &start.spec;
        let hostname = plan::hostname(&pod.pod);
        let mut shared = inner.options.environment.clone();
        shared.extend(inner.options.network.environment(&pod.pod));
        let mut process = plan::process(&spec, container, &image, &start.environment, &shared, &hostname)
            .map_err(RuntimeError::Config)?;
        let mounts = plan::mounts(&self.dir, &spec, container, start.attempt, &process.environment)
            .map_err(RuntimeError::Config)?;
        let dir = self.dir.container(&container.name, start.attempt);
        // What the attempt before the last one left.
        let _ = fs::remove_dir_all(self.dir.container(&container.name, start.attempt - 2));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(create)?;
        let message = self.dir.termination_log(&container.name, start.attempt);
        fs::write(&message, "").map_err(create)?;
        let _ = fs::set_permissions(&message, std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let group = format!("{}-{}", container.name, start.attempt);
        let uid = self.uid();
        process.cgroups = inner
            .cgroups
            .create(&uid, &group, plan::limits(container))
            .map_err(|error| create(format!("cannot limit what the container uses: {error}")))?;
        let stop = &image.stop_signal;
        let stop = stop.strip_prefix("SIG").unwrap_or(stop);
        let signal = SIGNALS.iter().find(|(name, _)| *name == stop).map(|(_, number)| *number);
        let signal = signal.or_else(|| stop.parse().ok()).unwrap_or(15);
        let _ = fs::write(dir.join("stop-signal"), signal.to_string());
        let root = RootConfig {
            lower,
            upper: dir.join("upper"),
            work: dir.join("work"),
            target: self.dir.0.join("root"),
            read_only: container.security_context.as_ref().and_then(|own| own.read_only_root_filesystem) == Some(true),
            privileged: plan::is_privileged(container),
            mounts,
            shm: self.dir.shm(),
        };
        let config = ContainerConfig {
            name: container.name.clone(),
            attempt: start.attempt,
            id: id(&uid, &container.name, start.attempt),
            image: super::image_id(name, &stored.digest),
            isolation: inner.options.isolation,
            root,
            process,
            stdin: container.stdin == Some(true),
            log: self.dir.log(&container.name, start.attempt),
            log_limit: LOG_LIMIT,
            log_files: LOG_FILES,
            oom: inner.cgroups.oom_file(&uid, &group),
        };
        Ok((config, signal))
    }

    /// Begins to probe a container.
    fn probe(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        container: &Container,
        index: usize,
        attempt: i32,
        startup_done: bool,
    ) -> Probes {
        let target: Arc<dyn Target> = Arc::new(Probed { pod: Arc::downgrade(self), container: container.name.clone() });
        let (this, inner) = (Arc::downgrade(self), Arc::downgrade(inner));
        probes::start(container, startup_done, &target, move |probe, success, message| {
            let (Some(this), Some(inner)) = (this.upgrade(), inner.upgrade()) else { return };
            let event = this.event(index, attempt, ContainerEvent::Probe { probe, success, message });
            // The agent takes them as fast as they come.
            let _ = inner.events.try_send(event);
        })
    }

    /// Stops a container: its hook, a signal, and after `grace` another one.
    pub(super) async fn stop(self: &Arc<Self>, inner: &Arc<Inner>, spec: &Container, attempt: i32, grace: Duration) {
        let deadline = tokio::time::Instant::now() + grace;
        let (mut ended, signal) = {
            let containers = self.containers.lock();
            let Some(known) = containers.get(&spec.name).filter(|known| known.attempt == attempt) else { return };
            (known.ended.subscribe(), known.stop_signal)
        };
        let Ok(client) = self.parent(inner).await else { return };
        if !grace.is_zero() {
            let hook = self.pre_stop(&client, spec, attempt);
            let _ = tokio::time::timeout_at(deadline, hook).await;
            self.signal(&client, &spec.name, attempt, signal).await;
            if tokio::time::timeout_at(deadline, ended.wait_for(|ended| *ended)).await.is_ok() {
                return;
            }
        }
        self.signal(&client, &spec.name, attempt, 9).await;
        let (cgroups, uid, group) = (inner.cgroups.clone(), self.uid(), format!("{}-{attempt}", spec.name));
        let _ = tokio::task::spawn_blocking(move || cgroups.kill(&uid, &group)).await;
    }

    pub(super) async fn signal(&self, client: &Client, container: &str, attempt: i32, signal: i32) {
        let request = Request::Signal { container: container.to_owned(), attempt, signal };
        // It may have ended meanwhile.
        let _ = client.ask(request, &[]).await;
    }

    /// Ends everything of the pod.
    pub(super) async fn shut_down(&self) {
        let client = self.client.lock().await.take();
        if let Some(client) = client.filter(|client| !client.is_gone()) {
            let _ = tokio::time::timeout(SHUTDOWN, async {
                let _ = client.ask(Request::Shutdown, &[]).await;
                client.gone().await;
            })
            .await;
        }
        self.containers.lock().clear();
    }

    pub(super) fn logs(
        &self,
        container: &str,
        options: &LogOptions,
    ) -> Result<BoxStream<'static, Bytes>, RuntimeError> {
        let containers = self.containers.lock();
        let known = containers.get(container);
        let known = known.ok_or_else(|| RuntimeError::NotFound(format!("container {container:?} was not started")))?;
        let attempt = if options.previous { known.attempt - 1 } else { known.attempt };
        let path = self.dir.log(container, attempt);
        if options.previous && !path.exists() {
            let message = format!("previous terminated container {container:?} in pod not found");
            return Err(RuntimeError::NotFound(message));
        }
        let ended = (!options.previous).then(|| known.ended.subscribe());
        logs::read(path, options.clone(), ended).map_err(|error| RuntimeError::NotFound(error.to_string()))
    }

    async fn running(&self) -> Result<Arc<Client>, RuntimeError> {
        let client = self.client.lock().await.clone();
        let client = client.filter(|client| !client.is_gone());
        client.ok_or_else(|| RuntimeError::NotFound("the pod does not run".to_owned()))
    }

    /// Runs a command to its end: its exit code, and what it wrote.
    pub(super) async fn run(&self, container: &str, command: Vec<String>) -> Result<(i32, String), RuntimeError> {
        let options = ExecOptions { command, stdin: false, terminal: false };
        let mut session = self.exec(container, &options).await?;
        let mut output = Vec::new();
        for stream in [&mut session.stdout, &mut session.stderr].into_iter().flatten() {
            let _ = (&mut **stream).take(10 << 10).read_to_end(&mut output).await;
        }
        let code = session.exit.await?;
        Ok((code, String::from_utf8_lossy(&output).into_owned()))
    }

    pub(super) async fn exec(&self, container: &str, options: &ExecOptions) -> Result<Session, RuntimeError> {
        let client = self.running().await?;
        // Everything else is as the container's own process has it.
        let process = ProcessConfig {
            arguments: options.command.clone(),
            terminal: options.terminal,
            ..ProcessConfig::default()
        };
        let content = wire::content(&process).map_err(create)?;
        if options.terminal {
            let (shown, used) = terminal().map_err(create)?;
            let running = client.exec(container, &[content.as_fd(), used.as_fd()]).await?;
            drop(used);
            let stream = Stream::new(shown).map_err(create)?;
            return Ok(Session {
                stdin: options.stdin.then(|| Box::new(stream.clone()) as _),
                stdout: Some(Box::new(stream.clone())),
                stderr: None,
                resize: Some(resizes(stream)),
                exit: Box::pin(exit(running.exit)),
            });
        }
        let null = || fs::File::open("/dev/null").map(OwnedFd::from);
        let (input, stdin) = if options.stdin {
            let (read, write) = pipe().map_err(create)?;
            (read, Some(Stream::new(write).map_err(create)?))
        } else {
            (null().map_err(create)?, None)
        };
        let ((out, out_writer), (err, err_writer)) = (pipe().map_err(create)?, pipe().map_err(create)?);
        let files = [content.as_fd(), input.as_fd(), out_writer.as_fd(), err_writer.as_fd()];
        let running = client.exec(container, &files).await?;
        drop((input, out_writer, err_writer));
        Ok(Session {
            stdin: stdin.map(|stdin| Box::new(stdin) as _),
            stdout: Some(Box::new(Stream::new(out).map_err(create)?)),
            stderr: Some(Box::new(Stream::new(err).map_err(create)?)),
            resize: None,
            exit: Box::pin(exit(running.exit)),
        })
    }

    pub(super) async fn attach(&self, container: &str, on_terminal: bool) -> Result<Session, RuntimeError> {
        let client = self.running().await?;
        let ((out, out_writer), (err, err_writer)) = (pipe().map_err(create)?, pipe().map_err(create)?);
        let request = Request::Attach { container: container.to_owned() };
        let (_, mut files) = client.ask(request, &[out_writer.as_fd(), err_writer.as_fd()]).await?;
        drop((out_writer, err_writer));
        let input = (!files.is_empty()).then(|| files.remove(0));
        let input = input.map(Stream::new).transpose().map_err(create)?;
        let ended = self.containers.lock().get(container).map(|known| known.ended.subscribe());
        let exit = async move {
            if let Some(mut ended) = ended {
                let _ = ended.wait_for(|ended| *ended).await;
            }
            Ok(0)
        };
        Ok(Session {
            resize: input.clone().filter(|_| on_terminal).map(resizes),
            stdin: input.map(|input| Box::new(input) as _),
            stdout: Some(Box::new(Stream::new(out).map_err(create)?)),
            stderr: if on_terminal { None } else { Some(Box::new(Stream::new(err).map_err(create)?)) },
            exit: Box::pin(exit),
        })
    }

    /// Connects to an address from inside the pod's network.
    pub(super) async fn connect_to(&self, ip: IpAddr, port: u16) -> Result<Box<dyn Connection>, String> {
        let client = self.running().await.map_err(|error| error.to_string())?;
        let asked = client.ask(Request::Socket { v6: ip.is_ipv6() }, &[]).await;
        let (_, mut files) = asked.map_err(|error| error.to_string())?;
        if files.is_empty() {
            return Err("the pod's parent gave no socket".to_owned());
        }
        let socket = tokio::net::TcpSocket::from_std_stream(files.remove(0).into());
        let address = SocketAddr::new(ip, port);
        let connected = socket.connect(address).await;
        let connected = connected.map_err(|error| format!("dial tcp {address}: connect: {error}"))?;
        let _ = connected.set_nodelay(true);
        Ok(Box::new(connected))
    }

    /// The address by which the pod's own ports are reached from inside its network.
    pub(super) fn own_address(&self, inner_network_has_it: bool) -> IpAddr {
        let ip = *self.ip.lock();
        ip.filter(|_| inner_network_has_it).unwrap_or_else(|| IpAddr::from([127, 0, 0, 1]))
    }

    /// Whether the pod's network has the pod's address.
    pub(super) fn has_address(&self) -> bool {
        let text = fs::read(self.dir.config()).unwrap_or_default();
        serde_json::from_slice::<PodConfig>(&text)
            .is_ok_and(|config| matches!(config.network, NetworkNamespace::Path(_)))
    }
}

/// A container that is probed.
struct Probed {
    pod: Weak<PodHandle>,
    container: String,
}

impl Target for Probed {
    fn exec(&self, command: Vec<String>) -> futures::future::BoxFuture<'static, Result<(i32, String), String>> {
        let (pod, container) = (self.pod.clone(), self.container.clone());
        Box::pin(async move {
            let pod = pod.upgrade().ok_or("the pod is gone")?;
            pod.run(&container, command).await.map_err(|error| error.to_string())
        })
    }

    fn connect(
        &self,
        host: Option<String>,
        port: u16,
    ) -> futures::future::BoxFuture<'static, Result<Box<dyn Connection>, String>> {
        let pod = self.pod.clone();
        Box::pin(async move {
            let pod = pod.upgrade().ok_or("the pod is gone")?;
            let ip = match host {
                None => pod.own_address(pod.has_address()),
                Some(host) => host.parse().map_err(|_| format!("{host:?} is not an address"))?,
            };
            pod.connect_to(ip, port).await
        })
    }
}

pub(super) fn target(pod: &Arc<PodHandle>, container: &str) -> impl Target + use<> {
    Probed { pod: Arc::downgrade(pod), container: container.to_owned() }
}

async fn renew_tokens(pod: Weak<PodHandle>, inner: Weak<Inner>, mut tokens: TokenFiles) {
    loop {
        tokio::time::sleep(tokens.next_renewal()).await;
        let (Some(pod), Some(inner)) = (pod.upgrade(), inner.upgrade()) else { return };
        let Ok(client) = pod.running().await else { return };
        let current = pod.pod.lock().clone();
        let renewed = tokens.renew(&current, &pod.node, &*inner.options.tokens).await;
        for (volume, files) in renewed {
            if let Err(error) = send_files(&client, &volume, &files, true).await {
                tracing::warn!(pod = %pod.uid(), %error, "a token cannot be renewed");
            }
        }
    }
}

async fn send_files(
    client: &Client,
    volume: &str,
    files: &[crate::spec::FileContent],
    keep: bool,
) -> Result<(), RuntimeError> {
    let content = wire::content(&files).map_err(sandbox)?;
    client.ask(Request::Files { volume: volume.to_owned(), keep }, &[content.as_fd()]).await.map(drop)
}

fn resizes(stream: Stream) -> mpsc::Sender<(u16, u16)> {
    let (send, mut receive) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Some((columns, rows)) = receive.recv().await {
            stream.resize(columns, rows);
        }
    });
    send
}

async fn exit(receiver: tokio::sync::oneshot::Receiver<i32>) -> Result<i32, RuntimeError> {
    receiver.await.map_err(|_| RuntimeError::NotFound("the pod has ended".to_owned()))
}

/// A container by its name, and where it is among the pod's.
fn find(spec: &PodSpec, name: &str) -> Option<(usize, Container)> {
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.enumerate().find(|(_, container)| container.name == name).map(|(index, container)| (index, container.clone()))
}

fn memory_volumes(volumes: &Mounted) -> BTreeMap<String, Option<u64>> {
    let memory = volumes.volumes.iter().filter_map(|(name, volume)| match volume {
        Volume::EmptyDir { medium, limit } if medium == "Memory" => {
            Some((name.clone(), limit.and_then(|limit| u64::try_from(limit).ok())))
        }
        _ => None,
    });
    memory.collect()
}

fn host_ports(spec: &PodSpec) -> Vec<(u16, u16, String)> {
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    let mapped = ports.filter_map(|port| {
        let host = u16::try_from(port.host_port?).ok()?;
        let own = u16::try_from(port.container_port).ok()?;
        Some((host, own, port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())))
    });
    mapped.collect()
}

/// The id of a container: the same whenever it is computed.
fn id(uid: &str, name: &str, attempt: i32) -> String {
    let digest = windlass_image::digest::of(format!("{uid}/{name}/{attempt}").as_bytes());
    digest.trim_start_matches("sha256:").to_owned()
}

/// Ends what is left of a pod, and removes its directory.
pub(super) fn destroy(dir: &PodDir, cgroups: &Cgroups, uid: &str) {
    if let Ok(socket) = wire::connect(&dir.0) {
        let _ = wire::send(&socket, &(0_u64, Request::Shutdown), &[]);
        // It has ended when the socket does.
        let mut fds = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
        for _ in 0..2 {
            let timeout = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
            let _ = rustix::event::poll(&mut fds, Some(&timeout));
            if !matches!(wire::receive::<serde_json::Value>(&socket), Ok(Some(_))) {
                break;
            }
        }
    }
    cgroups.remove(uid);
    remove_dir(&dir.0);
}

/// Removes a directory, also what modes forbid to remove.
fn remove_dir(dir: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    for _ in 0..3 {
        match fs::remove_dir_all(dir) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => open_up(dir),
        }
    }
    tracing::warn!(dir = %dir.display(), "the directory of a pod cannot be removed");

    fn open_up(dir: &std::path::Path) {
        let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open_up(&entry.path());
            }
        }
    }
}
