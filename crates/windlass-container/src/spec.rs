//! What the runtime, the parent of a pod and its containers say to each other.
//!
//! The parent reads `pod.json` in the pod's directory. After that it serves `control`, a socket of packets
//! ([`wire`](crate::wire)): each [`Request`] is answered by a [`Reply`] with the same number, and what happens by itself is
//! told as an [`Event`]. What may be large or secret goes along as a file in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::network::NetworkNamespace;

/// The first argument of a pod's parent.
pub(crate) const PARENT: &str = "pod-parent";
/// The first argument of a process that becomes a container's.
pub(crate) const INIT: &str = "pod-container";
/// The first argument of the process that keeps a shared process namespace.
pub(crate) const PAUSE: &str = "pod-pause";

/// The first argument of a process that tries whether containers can run.
pub(crate) const PROBE: &str = "pod-probe";
/// What begins a line of a probe about something that is missing.
pub(crate) const NO_OVERLAYS: &str = "no-overlays";
pub(crate) const NO_NFTABLES: &str = "no-nftables";

/// How far containers are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// By namespaces.
    Namespaces,
    /// Not at all: processes of the host, each with its image's files in a directory.
    None,
}

/// What a pod's parent is told when it starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PodConfig {
    pub(crate) hostname: String,
    pub(crate) isolation: Isolation,
    /// Whether the parent is in a user namespace, because this user is not root.
    pub(crate) user_namespace: bool,
    pub(crate) network: NetworkNamespace,
    pub(crate) host_ipc: bool,
    pub(crate) host_pid: bool,
    pub(crate) share_pid: bool,
    /// Volumes in memory, with what they may hold.
    pub(crate) memory: BTreeMap<String, Option<u64>>,
    /// Parameters of the kernel that the pod's namespaces have their own of.
    pub(crate) sysctls: Vec<(String, String)>,
}

/// The files of a pod's directory.
#[derive(Debug, Clone)]
pub(crate) struct PodDir(pub(crate) PathBuf);

/// Where the output of a pod's containers is, in its directory.
pub(crate) const LOGS: &str = "logs";

impl PodDir {
    pub(crate) fn config(&self) -> PathBuf {
        self.0.join("pod.json")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// Where volumes in memory and files of the API are, in the parent's mount namespace only.
    pub(crate) fn memory(&self) -> PathBuf {
        self.0.join("memory")
    }

    pub(crate) fn volume(&self, name: &str) -> PathBuf {
        self.0.join("volumes").join(name)
    }

    pub(crate) fn memory_volume(&self, name: &str) -> PathBuf {
        self.memory().join("volumes").join(name)
    }

    pub(crate) fn shm(&self) -> PathBuf {
        self.memory().join("shm")
    }

    pub(crate) fn etc(&self, name: &str) -> PathBuf {
        self.0.join("etc").join(name)
    }

    pub(crate) fn container(&self, name: &str, attempt: i32) -> PathBuf {
        self.0.join("containers").join(name).join(attempt.to_string())
    }

    pub(crate) fn termination_log(&self, name: &str, attempt: i32) -> PathBuf {
        self.container(name, attempt).join("termination-log")
    }

    pub(crate) fn log(&self, name: &str, attempt: i32) -> PathBuf {
        self.0.join(LOGS).join(name).join(format!("{attempt}.log"))
    }
}

/// What a process of a container is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ProcessConfig {
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) working_dir: String,
    pub(crate) user: User,
    /// The capabilities that it may have, by name without `CAP_`.
    pub(crate) capabilities: Vec<String>,
    pub(crate) no_new_privileges: bool,
    pub(crate) seccomp: bool,
    pub(crate) terminal: bool,
    /// The control groups that it joins: files `cgroup.procs`.
    pub(crate) cgroups: Vec<PathBuf>,
}

/// Which user a process runs as.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    /// As the image has it: `name`, `uid`, `name:group`; empty for root.
    pub(crate) image: String,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) groups: Vec<u32>,
    /// Whether the groups that the image puts the user into do not count.
    pub(crate) only_groups: bool,
    /// Whether root is refused.
    pub(crate) non_root: bool,
}

/// How the files of a container come about.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RootConfig {
    /// The image, unpacked.
    pub(crate) lower: PathBuf,
    /// What the container changes.
    pub(crate) upper: PathBuf,
    pub(crate) work: PathBuf,
    /// Where both are put together, in the container's mount namespace.
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
    pub(crate) privileged: bool,
    pub(crate) mounts: Vec<MountConfig>,
    pub(crate) shm: PathBuf,
}

/// A file or a directory that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountConfig {
    pub(crate) source: PathBuf,
    /// A path below the source, which must not lead out of it.
    pub(crate) sub_path: Option<String>,
    pub(crate) target: String,
    pub(crate) read_only: bool,
}

/// A container to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ContainerConfig {
    pub(crate) name: String,
    pub(crate) attempt: i32,
    pub(crate) id: String,
    pub(crate) image: String,
    pub(crate) isolation: Isolation,
    pub(crate) root: RootConfig,
    pub(crate) process: ProcessConfig,
    pub(crate) stdin: bool,
    /// Whether what it reads ends with the first client that was attached.
    pub(crate) stdin_once: bool,
    /// The container whose processes it sees.
    pub(crate) beside: Option<String>,
    pub(crate) log: PathBuf,
    pub(crate) log_limit: u64,
    pub(crate) log_files: u32,
    /// Where the kernel counts what it killed for want of memory.
    pub(crate) oom: Option<PathBuf>,
}

/// What a process that becomes a container's is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitConfig {
    Container {
        isolation: Isolation,
        root: RootConfig,
        process: ProcessConfig,
    },
    /// A process in a container that runs: by its process as the host sees it.
    Exec {
        isolation: Isolation,
        container: i32,
        root: PathBuf,
        process: ProcessConfig,
    },
}

/// A file of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileContent {
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) gid: Option<u32>,
}

/// Which files of a volume stay, besides those that are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Keep {
    Nothing,
    Everything,
    /// Those with these paths.
    These(Vec<String>),
}

impl Keep {
    pub(crate) fn keeps(&self, path: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::These(paths) => paths.iter().any(|kept| kept == path),
        }
    }
}

/// Something that a parent is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// What runs.
    State,
    /// Writes the files of a volume, all at once: with a file that has a `Vec<FileContent>`.
    Files { volume: String, keep: Keep },
    /// Starts a container: with a file that has its `ContainerConfig`.
    Start,
    /// Starts a process in a container: with a file that has its `ProcessConfig`, and its standard streams (one for a
    /// terminal).
    Exec { container: String },
    /// Sends a signal to the first process of a container.
    Signal { container: String, attempt: i32, signal: i32 },
    /// Copies what a container writes to these streams, and answers with what it reads, or with its terminal.
    Attach { container: String },
    /// A socket in the pod's network.
    Socket { v6: bool },
    /// Ends everything.
    Shutdown,
}

/// An answer, with the number of its request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    State(Vec<ContainerState>),
    Started { at: i64 },
    Failed { message: String, stage: Stage },
}

/// How far a container came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    Config,
    Create,
    Start,
    NotFound,
}

/// What happens by itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// A container ended.
    Exited(ContainerState),
    /// A process that was started by the request with this number ended.
    ExecExited { request: u64, code: i32 },
}

/// Anything that a parent sends.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    Reply(u64, Reply),
    Event(Event),
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerState {
    pub(crate) name: String,
    pub(crate) attempt: i32,
    pub(crate) id: String,
    pub(crate) image: String,
    /// In nanoseconds since 1970.
    pub(crate) started: i64,
    pub(crate) exit: Option<ExitState>,
    /// The last container of this name before this one.
    pub(crate) last: Option<Box<ContainerState>>,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExitState {
    pub(crate) code: i32,
    pub(crate) oom: bool,
    pub(crate) at: i64,
}

/// Now, in nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// A path below another one, as text that may be absolute.
pub(crate) fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}
