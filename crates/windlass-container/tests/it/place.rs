//! A runtime in a temporary directory, with one image of busybox.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::sync::Mutex;
use windlass_container::network::LoopbackOnly;
use windlass_container::{Containers, Isolation, Options};
use windlass_image::tar::Tar;
use windlass_image::{Origin, Store, digest};
use windlass_node::runtime::{
    ContainerEvent, ContainerRef, ExecOptions, Exit, LogOptions, PodSandbox, Recovered, Role, Runtime as _,
    RuntimeError, RuntimeEvent, Started,
};
use windlass_node::tokens::{Token, TokenFor, Tokens};
use windlass_node::volumes::{Content, File, Mounted, Volume};

/// How long anything may take on a machine under load.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Gives every pod a token that names it.
pub(crate) struct Issued;

impl Tokens for Issued {
    fn token(&self, wanted: &TokenFor) -> BoxFuture<'static, Result<Token, String>> {
        let token = format!("token of {} for {:?}", wanted.service_account, wanted.audience);
        Box::pin(async { Ok(Token { token, expires: Timestamp::now() + Duration::from_secs(3600) }) })
    }
}

/// A program that has everything in itself.
pub(crate) fn busybox() -> Option<PathBuf> {
    let found = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from).into_iter().find(|path| path.exists());
    let is_static = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        !bytes.windows(12).take(4096).any(|window| window == b"/lib64/ld-li")
    };
    let found = found.filter(is_static);
    if found.is_none() {
        eprintln!("SKIPPED: there is no static busybox (Debian: busybox-static)");
    }
    found
}

/// See the module documentation.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) runtime: Containers,
    events: Mutex<BoxStream<'static, RuntimeEvent>>,
    name: String,
    isolation: Isolation,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.runtime.remove_all();
    }
}

impl Place {
    /// `None`, loudly, where containers cannot run.
    pub(crate) fn new(isolation: Isolation) -> Option<Self> {
        Self::below("windlass-", isolation)
    }

    /// The same in a directory whose name begins like this.
    pub(crate) fn below(prefix: &str, isolation: Isolation) -> Option<Self> {
        let busybox = busybox()?;
        if isolation == Isolation::Namespaces && !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: this needs root; windlass-cli tests containers without");
            return None;
        }
        if isolation == Isolation::Namespaces
            && let Err(why) = windlass_container::probe(Path::new(env!("CARGO_BIN_EXE_windlass-pod")))
        {
            eprintln!("SKIPPED: {why}");
            return None;
        }
        let dir = tempfile::Builder::new().prefix(prefix).tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let store = Store::open(&dir.path().join("images")).unwrap();
        image(&store, &busybox);
        let name = format!("test-{}", dir.path().file_name().unwrap().to_string_lossy().trim_start_matches('.'));
        let runtime = runtime(dir.path(), &name, isolation);
        let events = Mutex::new(runtime.events());
        Some(Self { dir, runtime, events, name, isolation })
    }

    /// Another runtime in the same directory, as after a restart of the process.
    pub(crate) fn restart(&mut self) {
        self.runtime = runtime(self.dir.path(), &self.name, self.isolation);
        self.events = Mutex::new(self.runtime.events());
    }

    pub(crate) fn pod_dir(&self, pod: &PodSandbox) -> PathBuf {
        self.dir.path().join("pods").join(pod.uid())
    }

    pub(crate) async fn create(&self, pod: &PodSandbox) {
        self.create_with(pod, &[]).await;
    }

    pub(crate) async fn create_with(&self, pod: &PodSandbox, volumes: &[(&str, Volume)]) {
        let volumes = volumes.iter().map(|(name, volume)| ((*name).to_owned(), volume.clone())).collect();
        self.runtime.create(pod, &Arc::new(Mounted { volumes })).finish().await.unwrap();
    }

    pub(crate) async fn start(&self, pod: &PodSandbox, attempt: i32) -> Result<Started, RuntimeError> {
        let spec = pod.pod.spec.as_ref().unwrap();
        let index = spec.init_containers.as_ref().map_or(0, Vec::len);
        let environment: Vec<(String, String)> = spec.containers[0]
            .env
            .iter()
            .flatten()
            .map(|variable| (variable.name.clone(), variable.value.clone().unwrap_or_default()))
            .collect();
        let container = refer(&spec.containers[0], index, attempt, &environment);
        self.runtime.pull(pod, &container).finish().await?;
        self.runtime.start(pod, &container).finish().await
    }

    /// Starts the last ephemeral container of a pod.
    pub(crate) async fn start_ephemeral(&self, pod: &PodSandbox) -> Result<Started, RuntimeError> {
        let spec = pod.pod.spec.as_ref().unwrap();
        let (index, (role, spec)) = windlass_node::runtime::containers(spec).enumerate().last().unwrap();
        self.runtime.start(pod, &ContainerRef { role, ..refer(&spec, index, 0, &[]) }).finish().await
    }

    /// Follows the log of a container until it has a line. Returns all of it.
    pub(crate) async fn until_log(&self, pod: &PodSandbox, container: &str, line: &str) -> String {
        let options = LogOptions { follow: true, ..LogOptions::default() };
        let mut stream = self.runtime.logs(pod, container, &options).finish().await.unwrap();
        let mut seen = String::new();
        while let Some(bytes) = tokio::time::timeout(WAIT_TIMEOUT, stream.next()).await.unwrap() {
            seen.push_str(&String::from_utf8_lossy(&bytes));
            if seen.lines().any(|seen| seen == line) {
                return seen;
            }
        }
        panic!("the log has no {line:?}: {seen}");
    }

    pub(crate) fn stop(&self, pod: &PodSandbox, attempt: i32, grace: u64) {
        let container = &pod.pod.spec.as_ref().unwrap().containers[0];
        self.runtime.stop(pod, &refer(container, 0, attempt, &[]), Duration::from_secs(grace));
    }

    pub(crate) async fn remove(&self, pod: &PodSandbox) {
        self.runtime.remove(pod).finish().await.unwrap();
    }

    pub(crate) async fn recover(&self, pod: &PodSandbox) -> Vec<Recovered> {
        self.runtime.recover(pod).finish().await.unwrap()
    }

    /// The next event.
    pub(crate) async fn event(&self) -> ContainerEvent {
        let mut events = self.events.lock().await;
        tokio::time::timeout(WAIT_TIMEOUT, events.next()).await.unwrap().unwrap().event
    }

    /// Waits for the end of a container.
    pub(crate) async fn exit(&self) -> Exit {
        loop {
            if let ContainerEvent::Exited(exit) = self.event().await {
                return exit;
            }
        }
    }

    /// Runs a pod of one container to its end: its exit and its output.
    pub(crate) async fn run(&self, spec: Value) -> (Exit, String) {
        self.run_with(spec, &[]).await
    }

    pub(crate) async fn run_with(&self, spec: Value, volumes: &[(&str, Volume)]) -> (Exit, String) {
        let pod = pod(spec);
        self.create_with(&pod, volumes).await;
        self.start(&pod, 0).await.unwrap();
        let exit = self.exit().await;
        let output = self.logs(&pod, LogOptions::default()).await;
        self.remove(&pod).await;
        assert!(!self.pod_dir(&pod).exists(), "the pod's directory is left");
        (exit, output)
    }

    pub(crate) async fn logs(&self, pod: &PodSandbox, options: LogOptions) -> String {
        let stream = self.runtime.logs(pod, "c", &options).finish().await.unwrap();
        let pieces: Vec<bytes::Bytes> = tokio::time::timeout(WAIT_TIMEOUT, stream.collect()).await.unwrap();
        String::from_utf8(pieces.concat()).unwrap()
    }

    /// Runs a command in a container: its exit code and its output.
    pub(crate) async fn exec(&self, pod: &PodSandbox, script: &str) -> (i32, String) {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let options = ExecOptions { command, stdin: false, terminal: false, size: None };
        let mut session = self.runtime.exec(pod, "c", &options).finish().await.unwrap();
        let mut output = String::new();
        session.stdout.as_mut().unwrap().read_to_string(&mut output).await.unwrap();
        session.stderr.as_mut().unwrap().read_to_string(&mut output).await.unwrap();
        (tokio::time::timeout(WAIT_TIMEOUT, session.exit).await.unwrap().unwrap(), output)
    }
}

fn refer<'a>(spec: &'a Container, index: usize, attempt: i32, environment: &'a [(String, String)]) -> ContainerRef<'a> {
    ContainerRef { index, spec, role: Role::Main, attempt, environment, pull_secrets: &[] }
}

fn runtime(dir: &Path, name: &str, isolation: Isolation) -> Containers {
    let options = Options {
        dir: dir.join("pods"),
        name: name.to_owned(),
        program: env!("CARGO_BIN_EXE_windlass-pod").into(),
        store: Store::open(&dir.join("images")).unwrap(),
        network: Arc::new(LoopbackOnly::default()),
        tokens: Arc::new(Issued),
        isolation,
        environment: vec![("KUBERNETES_SERVICE_HOST".into(), "10.96.0.1".into())],
    };
    Containers::new(options).unwrap()
}

/// The image `box`: busybox as all the programs that tests use.
fn image(store: &Store, busybox: &Path) {
    let mut layer = Tar::new(Vec::new());
    layer.directory("bin").unwrap();
    layer.directory("etc").unwrap();
    layer.directory("tmp").unwrap();
    layer.file("bin/busybox", 0o755, &std::fs::read(busybox).unwrap()).unwrap();
    for name in [
        "sh", "cat", "echo", "sleep", "id", "ls", "stat", "touch", "mount", "head", "kill", "hostname", "nc", "ps",
        "true", "test", "tr", "stty", "dd", "grep", "wc", "unshare", "readlink", "tail",
    ] {
        layer.link(&format!("bin/{name}"), "busybox").unwrap();
    }
    layer.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:33::/tmp:/bin/sh\n").unwrap();
    let layer = layer.finish().unwrap();
    let adding = store.adding().unwrap();
    store.add(&adding, &layer).unwrap();
    let config = json!({
        "config": { "Env": ["PATH=/bin", "FROM=image"], "Cmd": ["/bin/sh"] },
        "rootfs": { "type": "layers", "diff_ids": [digest::of(&layer)] },
    })
    .to_string();
    store.add(&adding, config.as_bytes()).unwrap();
    let manifest = json!({
        "config": { "digest": digest::of(config.as_bytes()), "size": config.len() },
        "layers": [{ "digest": digest::of(&layer), "size": layer.len() }],
    });
    let manifest = store.add(&adding, manifest.to_string().as_bytes()).unwrap();
    store.name(&adding, &"box".parse().unwrap(), &manifest, Origin::Local).unwrap();
}

/// A pod of one container `c` of the image `box`.
pub(crate) fn pod(mut container: Value) -> PodSandbox {
    let mut spec = json!({});
    if let Some(of_pod) = container.get("pod").cloned() {
        spec = of_pod;
        container.as_object_mut().unwrap().remove("pod");
    }
    container["name"] = json!("c");
    container["image"] = json!("box");
    spec["containers"] = json!([container]);
    let uid = format!("uid-{}", Timestamp::now().as_nanosecond());
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "default", "uid": uid },
        "spec": spec,
    }))
    .unwrap();
    PodSandbox { node: "node".into(), pod: Arc::new(pod), ip: None }
}

/// A container that runs a script.
pub(crate) fn script(text: &str) -> Value {
    json!({ "command": ["sh", "-c", text] })
}

/// A container that runs a script, with more about it.
pub(crate) fn script_with(text: &str, more: &Value) -> Value {
    let mut container = script(text);
    for (name, value) in more.as_object().unwrap() {
        container[name] = value.clone();
    }
    container
}

/// A volume of files.
pub(crate) fn files(all: &[(&str, i32, &str)]) -> Volume {
    let file = |(path, mode, text): &(&str, i32, &str)| File {
        path: (*path).to_owned(),
        mode: *mode,
        content: Content::Bytes(text.as_bytes().to_vec()),
    };
    Volume::Files(all.iter().map(file).collect())
}
