//! What runs in pods, as the API server reaches it: output, commands, and ports.
//!
//! ```text
//! kubectl logs, exec, attach, port-forward ─▶ registry::connect ─▶ PodStreams ─▶ whatever runs the pod
//!                              │ upgrade
//!                              ▼
//!        Upgrade: WebSocket (channels, or SPDY inside) │ SPDY/3.1 ─▶ command, forward
//! ```
//!
//! This crate knows no nodes: what does implements [`PodStreams`] and is given to
//! [`Server::add_pod_streams`](crate::Server::add_pod_streams).
//!
//! A connection that was upgraded is served by the task that owns it, until the client goes away, the process ends or the
//! server stops; nothing is spawned. Between the two ends there are bounded queues, so that the slower side determines
//! the pace.

pub(crate) mod channels;
pub(crate) mod command;
pub(crate) mod forward;
pub(crate) mod proxy;
pub(crate) mod spdy;
mod tunnel;
pub(crate) mod upgrade;
pub(crate) mod watch;
pub(crate) mod websocket;

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::dialer::Dial;

/// What reaches the containers of pods.
///
/// A future that is dropped gives its operation up; so does dropping what it returned.
///
/// ```
/// use std::sync::Arc;
/// use bytes::Bytes;
/// use futures::future::{BoxFuture, FutureExt as _};
/// use futures::stream::{self, BoxStream, StreamExt as _};
/// use windlass_server::streams::*;
///
/// /// Containers that have said one thing, and do nothing else.
/// struct Greeters;
///
/// impl PodStreams for Greeters {
///     fn has_node(&self, _node: &str) -> bool {
///         true
///     }
///
///     fn check(&self, _pod: &PodTarget, _access: Access) -> Result<(), StreamError> {
///         Ok(())
///     }
///
///     fn logs(&self, _: &PodTarget, _: &LogOptions) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, StreamError>> {
///         async { Ok(stream::iter([Bytes::from("hello\n")]).boxed()) }.boxed()
///     }
///
///     fn exec(&self, _: &PodTarget, _: &ExecOptions) -> BoxFuture<'static, Result<Process, StreamError>> {
///         async { Err(StreamError::internal("there is no program")) }.boxed()
///     }
///
///     fn attach(&self, _: &PodTarget, _: &AttachOptions) -> BoxFuture<'static, Result<Process, StreamError>> {
///         async { Err(StreamError::internal("there is no process")) }.boxed()
///     }
///
///     fn port(&self, _: &PodTarget, _port: u16) -> BoxFuture<'static, Result<Box<dyn Connection>, StreamError>> {
///         async { Err(StreamError::internal("nothing listens")) }.boxed()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
/// let server = windlass_server::Server::builder().start().await?;
/// let greeters: Arc<dyn PodStreams> = Arc::new(Greeters);
/// server.add_pod_streams(&greeters);
/// # server.stop().await?;
/// # Ok(()) }
/// ```
pub trait PodStreams: Send + Sync + 'static {
    /// Whether the pods of a node are reached by this.
    fn has_node(&self, node: &str) -> bool;

    /// What a node itself answers at a path such as `/metrics/resource`, in Prometheus' text format; `None` if nothing.
    fn metrics(&self, node: &str, path: &str) -> Option<String> {
        let _ = (node, path);
        None
    }

    /// Whether a container can be reached for that, as far as this is known before it is tried.
    fn check(&self, pod: &PodTarget, access: Access) -> Result<(), StreamError>;

    /// The output of a container.
    fn logs(
        &self,
        pod: &PodTarget,
        options: &LogOptions,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, StreamError>>;

    /// Runs a command in a container.
    fn exec(&self, pod: &PodTarget, options: &ExecOptions) -> BoxFuture<'static, Result<Process, StreamError>>;

    /// Attaches to the main process of a container.
    fn attach(&self, pod: &PodTarget, options: &AttachOptions) -> BoxFuture<'static, Result<Process, StreamError>>;

    /// Connects to a port of a pod.
    fn port(&self, pod: &PodTarget, port: u16) -> BoxFuture<'static, Result<Box<dyn Connection>, StreamError>>;
}

/// Everything that reaches pods, of one server.
#[derive(Default)]
pub(crate) struct Reach {
    all: ArcSwap<Vec<Arc<dyn PodStreams>>>,
    /// How addresses of pods and Services are connected to.
    pub(crate) dial: Dial,
}

impl Reach {
    pub(crate) fn add(&self, streams: &Arc<dyn PodStreams>) {
        self.all.rcu(|all| {
            let mut all = Vec::clone(all);
            all.push(Arc::clone(streams));
            all
        });
    }

    /// What reaches the pods of a node.
    pub(crate) fn of_node(&self, node: &str) -> Option<Arc<dyn PodStreams>> {
        self.all.load().iter().find(|streams| streams.has_node(node)).cloned()
    }
}

/// The pod, and one of its containers.
#[derive(Debug, Clone, PartialEq)]
pub struct PodTarget {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's unique identity.
    pub uid: String,
    /// The node that it is bound to.
    pub node: String,
    /// The container; empty if it is about the pod as a whole.
    pub container: String,
    /// The pod as it is stored at this moment.
    pub object: Value,
}

/// What a container is to be reached for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To run a command in it.
    Exec,
    /// To attach to its main process.
    Attach,
    /// To connect to a port of its pod.
    Port,
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

/// How to attach to a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttachOptions {
    /// Whether the client sends input.
    pub stdin: bool,
    /// Whether the client has a terminal.
    pub terminal: bool,
}

/// A process that a client talks to. Dropping it lets go of the process, which is killed if a command was run.
pub struct Process {
    /// What it reads, if it does.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// What it writes.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// What it writes as errors; none on a terminal.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Sets the size of its terminal, in columns and rows.
    pub resize: Option<mpsc::Sender<(u16, u16)>>,
    /// Its exit code.
    pub exit: BoxFuture<'static, Result<i32, StreamError>>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

/// Bytes in both directions.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Why a container is not reached, in the words that the client gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StreamError {
    /// What a kubelet answers with.
    pub code: StatusCode,
    /// Why.
    pub message: String,
}

impl StreamError {
    /// The request makes no sense in the state that the container is in.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { code: StatusCode::BAD_REQUEST, message: message.into() }
    }

    /// There is no such pod or container.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self { code: StatusCode::NOT_FOUND, message: message.into() }
    }

    /// Something else.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { code: StatusCode::INTERNAL_SERVER_ERROR, message: message.into() }
    }
}
