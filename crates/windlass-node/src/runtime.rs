//! The seam between the node agent and what runs a pod: [`Runtime`].
//!
//! The agent decides what should run and when; a runtime carries it out and reports what happened. The agent asks for one
//! thing at a time for each container: its image, then its start. Everything else a runtime reports by itself, through
//! its [status stream](Runtime::events): containers that exit, and the outcomes of probes.
//!
//! A runtime knows neither the API server nor restart policies, back-off, conditions or phases.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use k8s_openapi::jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};

pub use crate::containers::{Role, containers};
use crate::volumes::Mounted;

/// What carries out what the node agent decides: the [simulation](crate::simulation), or containers.
///
/// Methods return at once: what takes time is an [`Operation`] under way, whose future the agent polls in a task of its own.
/// A future that is dropped gives its operation up. Operations on one pod come one after the other, except that
/// [`remove`](Self::remove) may come at any time.
pub trait Runtime: Send + Sync + 'static {
    /// What the node reports as `status.nodeInfo.containerRuntimeVersion`, such as `containerd://2.1.0`.
    fn version(&self) -> String;

    /// What pods do not get here: conditions that the node has with the status `False`.
    fn shortcomings(&self) -> Vec<Shortcoming> {
        Vec::new()
    }

    /// Whether containers really run. Then the agent resolves claims, passes on [changes](Self::update) of mounted objects, and
    /// reads the credentials for images; a simulation is spared that.
    fn runs_containers(&self) -> bool {
        false
    }

    /// The containers of a pod that exist already, for a pod that this agent sees for the first time: it may have been
    /// started before the process was. Containers that are not named do not exist.
    fn recover(&self, pod: &PodSandbox) -> Operation<Vec<Recovered>>;

    /// Creates what the containers of a pod share: its directory with its volumes, its network with its address.
    fn create(&self, pod: &PodSandbox, volumes: &Arc<Mounted>) -> Operation<()>;

    /// Brings the files of a pod that runs up to date: the volumes as they are now. The last call counts.
    fn update(&self, _pod: &PodSandbox, _volumes: &Arc<Mounted>) -> Operation<()> {
        Operation::ok(())
    }

    /// What the containers of a pod use at this moment; `None` if that is not known.
    fn usage(&self, _pod: &PodSandbox) -> Option<Vec<Usage>> {
        None
    }

    /// Makes the image of a container available, as its `imagePullPolicy` says.
    fn pull(&self, pod: &PodSandbox, container: &ContainerRef<'_>) -> Operation<Image>;

    /// Creates and starts a container, and runs its `postStart` hook.
    fn start(&self, pod: &PodSandbox, container: &ContainerRef<'_>) -> Operation<Started>;

    /// Stops a container: runs its `preStop` hook, asks it to end, and kills it after `grace`. The container is still
    /// running until the status stream says [`Exited`](ContainerEvent::Exited).
    fn stop(&self, pod: &PodSandbox, container: &ContainerRef<'_>, grace: Duration);

    /// Frees what a pod used that has ended, and whose object is still there: its output can be read until
    /// [`remove`](Self::remove) is called for it.
    fn finish(&self, pod: &PodSandbox) -> Operation<()> {
        self.remove(pod)
    }

    /// Removes everything of a pod; what still runs is killed.
    fn remove(&self, pod: &PodSandbox) -> Operation<()>;

    /// The status stream. The agent takes it once, when it starts.
    fn events(&self) -> BoxStream<'static, RuntimeEvent>;

    /// The output of a container.
    fn logs(&self, pod: &PodSandbox, container: &str, options: &LogOptions) -> Operation<BoxStream<'static, Bytes>>;

    /// Runs a command in a container that runs.
    fn exec(&self, pod: &PodSandbox, container: &str, command: &ExecOptions) -> Operation<Session>;

    /// Attaches to the main process of a container that runs.
    fn attach(&self, pod: &PodSandbox, container: &str, terminal: bool) -> Operation<Session>;

    /// Connects to a port of a pod.
    fn port(&self, pod: &PodSandbox, port: u16) -> Operation<Box<dyn Connection>>;
}

impl<R: Runtime + ?Sized> Runtime for Arc<R> {
    fn version(&self) -> String {
        (**self).version()
    }

    fn shortcomings(&self) -> Vec<Shortcoming> {
        (**self).shortcomings()
    }

    fn runs_containers(&self) -> bool {
        (**self).runs_containers()
    }

    fn update(&self, pod: &PodSandbox, volumes: &Arc<Mounted>) -> Operation<()> {
        (**self).update(pod, volumes)
    }

    fn usage(&self, pod: &PodSandbox) -> Option<Vec<Usage>> {
        (**self).usage(pod)
    }

    fn recover(&self, pod: &PodSandbox) -> Operation<Vec<Recovered>> {
        (**self).recover(pod)
    }

    fn create(&self, pod: &PodSandbox, volumes: &Arc<Mounted>) -> Operation<()> {
        (**self).create(pod, volumes)
    }

    fn pull(&self, pod: &PodSandbox, container: &ContainerRef<'_>) -> Operation<Image> {
        (**self).pull(pod, container)
    }

    fn start(&self, pod: &PodSandbox, container: &ContainerRef<'_>) -> Operation<Started> {
        (**self).start(pod, container)
    }

    fn stop(&self, pod: &PodSandbox, container: &ContainerRef<'_>, grace: Duration) {
        (**self).stop(pod, container, grace);
    }

    fn finish(&self, pod: &PodSandbox) -> Operation<()> {
        (**self).finish(pod)
    }

    fn remove(&self, pod: &PodSandbox) -> Operation<()> {
        (**self).remove(pod)
    }

    fn events(&self) -> BoxStream<'static, RuntimeEvent> {
        (**self).events()
    }

    fn logs(&self, pod: &PodSandbox, container: &str, options: &LogOptions) -> Operation<BoxStream<'static, Bytes>> {
        (**self).logs(pod, container, options)
    }

    fn exec(&self, pod: &PodSandbox, container: &str, command: &ExecOptions) -> Operation<Session> {
        (**self).exec(pod, container, command)
    }

    fn attach(&self, pod: &PodSandbox, container: &str, terminal: bool) -> Operation<Session> {
        (**self).attach(pod, container, terminal)
    }

    fn port(&self, pod: &PodSandbox, port: u16) -> Operation<Box<dyn Connection>> {
        (**self).port(pod, port)
    }
}

/// Something that pods do not get, for a condition of their node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortcoming {
    /// The type of the condition: what pods should have, such as `PodNetwork`.
    pub condition: &'static str,
    /// Why they do not have it, in one word.
    pub reason: &'static str,
    /// What that means, for people.
    pub message: String,
}

/// Something a runtime was asked for: done at once, or under way.
#[must_use]
pub enum Operation<T> {
    /// It is done.
    Done(Result<T, RuntimeError>),
    /// It takes time.
    Pending(BoxFuture<'static, Result<T, RuntimeError>>),
}

impl<T> Operation<T> {
    /// Done, and well.
    pub fn ok(value: T) -> Self {
        Self::Done(Ok(value))
    }

    /// Waits for it.
    pub async fn finish(self) -> Result<T, RuntimeError> {
        match self {
            Self::Done(result) => result,
            Self::Pending(future) => future.await,
        }
    }
}

impl<T> fmt::Debug for Operation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done(Ok(_)) => "Done(Ok)",
            Self::Done(Err(_)) => "Done(Err)",
            Self::Pending(_) => "Pending",
        })
    }
}

/// Why an operation failed. The message is for the pod's status and its events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The image cannot be pulled now; the agent tries again later.
    #[error("{0}")]
    Pull(String),
    /// The image is not there, and must not be pulled.
    #[error("{0}")]
    NeverPull(String),
    /// The image's name is not one.
    #[error("{0}")]
    ImageName(String),
    /// The pod's network or directory cannot be made.
    #[error("{0}")]
    Sandbox(String),
    /// The container's configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// The container cannot be created.
    #[error("{0}")]
    Create(String),
    /// The container was created but does not start.
    #[error("{0}")]
    Start(String),
    /// There is no such pod or container here, or it does not run.
    #[error("{0}")]
    NotFound(String),
    /// This runtime cannot do that.
    #[error("{0}")]
    Unsupported(String),
}

/// The pod that an operation is about.
#[derive(Debug, Clone)]
pub struct PodSandbox {
    /// The node that the pod runs on.
    pub node: Arc<str>,
    /// The pod as the API has it.
    pub pod: Arc<Pod>,
    /// The pod's address; the node's own for pods in the host's network.
    pub ip: Option<IpAddr>,
}

impl PodSandbox {
    /// The pod's unique identity.
    pub fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }
}

/// The container that an operation is about.
#[derive(Debug, Clone, Copy)]
pub struct ContainerRef<'a> {
    /// Where it is among the pod's containers: the init containers first, the ephemeral containers last.
    pub index: usize,
    /// As the pod specifies it.
    pub spec: &'a Container,
    /// What it is among the pod's containers.
    pub role: Role,
    /// How often it was started before.
    pub attempt: i32,
    /// Its environment, when it is to be started: resolved, but `$(NAME)` in values is not expanded.
    pub environment: &'a [(String, String)],
    /// The Secrets with credentials for its image, when that is to be pulled.
    pub pull_secrets: &'a [Arc<Secret>],
}

/// What a container uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The container's name.
    pub container: String,
    /// Billionths of a CPU.
    pub cpu_nanocores: u64,
    /// Bytes of memory that cannot be taken away from it.
    pub memory_bytes: u64,
}

/// An image that is available.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// Its digest, as `status.containerStatuses[].imageID` has it.
    pub id: String,
    /// How it came here; `None` if it was here before.
    pub pulled: Option<Pulled>,
}

/// How an image was pulled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pulled {
    /// How long that took.
    pub took: Duration,
    /// Its size in bytes.
    pub size: u64,
}

/// A container that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Its id without the runtime's scheme.
    pub id: String,
    /// When it started.
    pub at: Timestamp,
}

/// A container that existed before this agent saw its pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The container's name.
    pub name: String,
    /// How often it was started before.
    pub attempt: i32,
    /// The container.
    pub started: Started,
    /// Its image's digest.
    pub image: String,
    /// The container before this one, and how it ended.
    pub last: Option<(Started, Exit)>,
    /// Whether its startup probe has succeeded.
    pub startup_done: bool,
    /// Whether its readiness probe succeeds.
    pub ready: bool,
    /// How it ended, if it did.
    pub exit: Option<Exit>,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code; 128 + n after signal n.
    pub code: i32,
    /// `OOMKilled` or the like; `Completed` or `Error` by the code if there is none.
    pub reason: Option<String>,
    /// Its termination message.
    pub message: Option<String>,
    /// When it ended.
    pub at: Timestamp,
}

impl Exit {
    /// The word for a container's status.
    pub fn reason(&self) -> &str {
        let by_code = if self.code == 0 { "Completed" } else { "Error" };
        self.reason.as_deref().unwrap_or(by_code)
    }
}

/// Something that happened to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name.
    pub name: Arc<str>,
    /// The pod's uid: another pod of the same name does not get the event.
    pub uid: Arc<str>,
    /// The container: where it is among the pod's containers, the init containers first.
    pub container: usize,
    /// Which start of the container: how often it was started before.
    pub attempt: i32,
    /// What happened.
    pub event: ContainerEvent,
}

/// What happened to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContainerEvent {
    /// It ended.
    Exited(Exit),
    /// A probe succeeded or failed as often as its threshold says.
    Probe {
        /// Which probe.
        probe: Probe,
        /// Whether it succeeded.
        success: bool,
        /// What a probe that failed said.
        message: String,
    },
    /// A probe failed, and that changes nothing yet or nothing more: users are told.
    ProbeFailed {
        /// Which probe.
        probe: Probe,
        /// What it said.
        message: String,
    },
    /// A lifecycle hook failed. A container whose `postStart` hook fails is killed by its runtime.
    HookFailed(Hook),
}

/// A lifecycle hook of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hook {
    /// What runs right after the start.
    PostStart,
    /// What runs before the end.
    PreStop,
}

/// A probe of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Probe {
    /// Whether it has started: the others wait for it.
    Startup,
    /// Whether it can serve.
    Readiness,
    /// Whether it must be restarted.
    Liveness,
}

impl Probe {
    /// The word that events have.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// Which part of a container's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Goes on while the container runs.
    pub follow: bool,
    /// The output of the container before this one.
    pub previous: bool,
    /// Only what was written since then.
    pub since: Option<Timestamp>,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// Only so many lines from the end.
    pub tail: Option<u64>,
    /// Only so many bytes.
    pub limit: Option<u64>,
}

/// A command to run in a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecOptions {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether it gets input.
    pub stdin: bool,
    /// Whether it runs on a terminal.
    pub terminal: bool,
    /// The size of the terminal from the start, in columns and rows.
    pub size: Option<(u16, u16)>,
}

/// A process that a client talks to.
pub struct Session {
    /// What it reads, if it does.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// What it writes.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// What it writes as errors; none on a terminal.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Sets the size of its terminal, in columns and rows.
    pub resize: Option<tokio::sync::mpsc::Sender<(u16, u16)>>,
    /// Its exit code.
    pub exit: BoxFuture<'static, Result<i32, RuntimeError>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// Bytes in both directions.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}
