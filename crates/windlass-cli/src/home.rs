//! Where clusters keep what outlives a command: `~/.windlass/NAME/`, or below `$WINDLASS_HOME`.
//!
//! ```text
//! NAME/run.json     pid and address of a cluster that runs in the background
//! NAME/address      where it served last, so that it serves there again
//! NAME/kubeconfig   its kubeconfig
//! NAME/log          what it logs
//! NAME/lock         held while it is being started
//! NAME/data/        its objects and certificates
//! ```

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use windlass_server::pki::write_private;

/// The directory of one cluster.
pub(crate) struct Home {
    pub name: String,
    pub dir: PathBuf,
}

/// What is known about a cluster that was started in the background.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Run {
    pub pid: i32,
    pub server: String,
    pub ephemeral: bool,
    /// Where its kubeconfig went, if not into the user's own.
    pub kubeconfig: Option<PathBuf>,
    /// The context that was current in the user's kubeconfig before.
    #[serde(default)]
    pub previous_context: Option<String>,
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

    /// The cluster that runs in the background, if one does.
    pub(crate) fn running(&self) -> Option<Run> {
        self.started().filter(|run| is_windlass(run.pid))
    }

    pub(crate) fn write_run(&self, run: &Run) -> Result<()> {
        write_private(&self.address_file(), run.server.trim_start_matches("https://"))?;
        Ok(write_private(&self.run_file(), &serde_json::to_string_pretty(run)?)?)
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
    std::fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.split(|b| *b == 0).any(|arg| arg == b"--foreground") && !is_zombie(pid))
}

/// Whether nothing is left of the process but its number. While one of its threads is, so are its files.
fn is_zombie(pid: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let ended = state.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')));
    ended && std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() == 1)
}
