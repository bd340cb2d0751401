//! Where clusters keep what outlives a command: `~/.windlass/NAME/`, or below `$WINDLASS_HOME`.
//!
//! ```text
//! NAME/run.json     pid and address of a cluster that runs in the background
//! NAME/address      where it served last, so that it serves there again
//! NAME/kubeconfig   its kubeconfig
//! NAME/log          what it logs
//! NAME/audit.log    who did what, if it was asked to record that
//! NAME/lock         held while it is being started
//! NAME/data/        its objects and certificates
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{kubeconfig_file, private};

/// The directory of one cluster.
pub(crate) struct Home {
    pub name: String,
    pub dir: PathBuf,
}

/// What is known about a cluster that runs, or that was started in the background.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Run {
    pub pid: i32,
    /// Where it serves; not known of every cluster that was not recorded.
    pub server: Option<String>,
    pub ephemeral: bool,
    /// Where its kubeconfig went, if not into the user's own.
    pub kubeconfig: Option<PathBuf>,
    /// The context that was current in the user's kubeconfig before.
    #[serde(default)]
    pub previous_context: Option<String>,
    /// What else of the user's kubeconfig was replaced.
    #[serde(default)]
    pub replaced: kubeconfig_file::Replaced,
}

impl Run {
    /// Whether its process is there.
    pub(crate) fn runs(&self) -> bool {
        is_windlass(self.pid)
    }

    /// Where it serves, for people: ` at https://…`, or nothing where that is not known.
    pub(crate) fn at(&self) -> String {
        self.server.as_ref().map(|server| format!(" at {server}")).unwrap_or_default()
    }
}

/// What clusters leave; one that ran has at least one of them.
const TRACES: [&str; 3] = ["address", "data", "kubeconfig"];

/// The directory of all clusters.
pub(crate) fn root() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("WINDLASS_HOME").filter(|dir| !dir.is_empty()) {
        return Ok(dir.into());
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.context("HOME is not set; set WINDLASS_HOME to a directory for clusters")?;
    Ok(Path::new(&home).join(".windlass"))
}

impl Home {
    pub(crate) fn of(name: &str) -> Result<Self> {
        Ok(Self { name: name.to_owned(), dir: root()?.join(name) })
    }

    /// The names of all clusters that have left something.
    pub(crate) fn names() -> Result<Vec<String>> {
        let entries = match std::fs::read_dir(root()?) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", root().unwrap_or_default().display()));
            }
        };
        let mut names: Vec<String> = entries
            .filter_map(Result::ok)
            // Whatever else lies there is not ours.
            .filter(|entry| TRACES.iter().any(|trace| entry.path().join(trace).exists()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    pub(crate) fn context(&self) -> String {
        format!("windlass-{}", self.name)
    }

    /// Makes the directory. Returns whether it was not there before.
    pub(crate) fn create(&self) -> Result<bool> {
        use std::os::unix::fs::DirBuilderExt as _;
        let new = !self.dir.exists();
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.with_context(|| format!("cannot create {}", self.dir.display()))?;
        Ok(new)
    }

    /// Deletes the directory and all that is in it.
    pub(crate) fn purge(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot delete {}", self.dir.display()))
            }
            _ => Ok(()),
        }
    }

    /// Waits until no other command is starting this cluster; held until dropped.
    pub(crate) fn lock(&self) -> Result<std::fs::File> {
        let path = self.dir.join("lock");
        let file = std::fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Where requests are recorded unless the user names a file.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    fn run_file(&self) -> PathBuf {
        self.dir.join("run.json")
    }

    fn address_file(&self) -> PathBuf {
        self.dir.join("address")
    }

    /// Where the cluster served last.
    pub(crate) fn last_address(&self) -> Option<SocketAddr> {
        std::fs::read_to_string(self.address_file()).ok()?.trim().parse().ok()
    }

    /// The cluster that was started in the background and not stopped; it may have died since.
    pub(crate) fn started(&self) -> Option<Run> {
        let text = std::fs::read_to_string(self.run_file()).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The cluster that runs, if one does.
    pub(crate) fn running(&self) -> Option<Run> {
        self.present().filter(|run| !is_ending(run.pid))
    }

    /// The cluster that runs, or that is just ending and may still have its files open.
    pub(crate) fn present(&self) -> Option<Run> {
        self.started().filter(Run::runs).or_else(|| self.unrecorded())
    }

    /// A cluster that runs and was not recorded, such as one in the foreground: its store says which process has it
    /// open.
    fn unrecorded(&self) -> Option<Run> {
        let lock = self.data().join("store").join("LOCK");
        let pid = std::fs::read_to_string(&lock).ok()?.lines().next()?.trim().parse().ok()?;
        let server = self.server_since(&lock);
        let run =
            Run { pid, server, ephemeral: false, kubeconfig: None, previous_context: None, replaced: BTreeMap::new() };
        // The number stays in the file when the process ends, and another may get it.
        (run.runs() && has_open(pid, &lock)).then_some(run)
    }

    /// Where the kubeconfig says that the cluster serves, if it was written after the store was opened: one of an
    /// earlier run may have been left behind.
    fn server_since(&self, lock: &Path) -> Option<String> {
        let written = |file: &Path| file.metadata().and_then(|metadata| metadata.modified()).ok();
        if written(&self.kubeconfig())? < written(lock)? {
            return None;
        }
        let config = kubeconfig_file::read(&self.kubeconfig()).ok()?;
        config["clusters"][0]["cluster"]["server"].as_str().map(str::to_owned)
    }

    pub(crate) fn write_run(&self, run: &Run) -> Result<()> {
        if let Some(server) = &run.server {
            private::write(&self.address_file(), server.trim_start_matches("https://"))?;
        }
        private::write(&self.run_file(), &serde_json::to_string_pretty(run)?)
    }

    /// Forgets the cluster that ran.
    pub(crate) fn clear_run(&self) {
        for file in [self.run_file(), self.kubeconfig()] {
            // What is not there need not be removed.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Whether the process is there and is a windlass, not one that got the number later.
fn is_windlass(pid: i32) -> bool {
    match std::fs::read(format!("/proc/{pid}/cmdline")) {
        Err(_) => false,
        // The command line goes first, and files may stay open for long after it: a disk may be slow.
        Ok(line) if line.is_empty() => is_ending(pid) && !is_zombie(pid),
        Ok(line) => line.split(|b| *b == 0).any(|arg| arg == b"--foreground") && !is_zombie(pid),
    }
}

/// Whether the process is on its way out, unlike a thread of the kernel, which has no command line either.
pub(crate) fn is_ending(pid: i32) -> bool {
    /// `PF_EXITING` of the kernel's `sched.h`.
    const EXITING: u32 = 0x4;
    /// SIGKILL in a set of signals.
    const KILL: u64 = 1 << 8;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    if pending.filter_map(|set| u64::from_str_radix(set.trim(), 16).ok()).any(|set| set & KILL != 0) {
        return true;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may have anything in it: state, parent, group, session, terminal, its group, flags.
    let flags = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(6)?.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & EXITING != 0)
}

/// Whether the process has a file open.
fn has_open(pid: i32, file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else { return false };
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok);
    open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|opened| opened == file)
}

/// Whether nothing is left of the process but its number. While one of its threads is, so are its files.
fn is_zombie(pid: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let ended = state.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')));
    ended && std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() == 1)
}
