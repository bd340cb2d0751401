//! `windlass` in a home of its own, and clusters that it serves in the foreground.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Running, Said};

/// A directory where nothing of the user's is touched.
pub(crate) struct Sandbox {
    dir: TempDir,
    /// The user that `windlass` runs as, if not the one of the tests.
    user: Option<u32>,
    /// Whether `/etc/subuid` and `/etc/subgid` give it others.
    has_others: bool,
}

/// A user that no machine has, and that is given no other users.
const NOBODY: u32 = 54_321;

/// The first of the users that one in `/etc/subuid` is given: number 1 in its user namespace.
pub(crate) const FIRST_OTHER: u32 = 2_000_000;

/// Runs a command as a user that the machine has in this mount namespace only, and that is given others.
const WITH_OTHERS: &str = r#"
for file in passwd subuid subgid; do mount --bind "$1/etc-$file" /etc/$file || exit 1; done
user=$2
shift 2
exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
"#;

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory"), user: None, has_others: false }
    }

    /// One whose `windlass` does not run as root: as the user of the tests, or as one of its own.
    pub(crate) fn without_root() -> Self {
        let mut sandbox = Self::new();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(sandbox.dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
            sandbox.user = Some(NOBODY);
        }
        sandbox
    }

    /// The same for a user that is given others. `None`, loudly, where there cannot be such a one.
    #[cfg(target_os = "linux")]
    #[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
    pub(crate) fn with_other_users() -> Option<Self> {
        let mut sandbox = Self::without_root();
        let has_tools = ["newuidmap", "newgidmap", "unshare", "setpriv"]
            .iter()
            .all(|tool| Command::new("which").arg(tool).output().is_ok_and(|found| found.status.success()));
        let Some(user) = sandbox.user.filter(|_| has_tools) else {
            eprintln!("SKIPPED: this needs root, newuidmap (Debian: uidmap), unshare and setpriv");
            return None;
        };
        let known = std::fs::read_to_string("/etc/passwd").unwrap();
        let passwd = format!("{known}\nwindlass-test:x:{user}:{user}::/:/bin/sh\n");
        let others = format!("windlass-test:{FIRST_OTHER}:65536\n");
        for (file, content) in [("passwd", &passwd), ("subuid", &others), ("subgid", &others)] {
            std::fs::write(sandbox.path(&format!("etc-{file}")), content).unwrap();
        }
        sandbox.has_others = true;
        Some(sandbox)
    }

    /// The user that `windlass` runs as.
    pub(crate) fn user(&self) -> u32 {
        self.user.unwrap_or_else(|| rustix::process::geteuid().as_raw())
    }

    /// The program, where the user of this sandbox can execute it.
    fn program(&self) -> PathBuf {
        let built = Path::new(env!("CARGO_BIN_EXE_windlass"));
        let is_open = |dir: &Path| dir.metadata().is_ok_and(|found| found.permissions().mode() & 0o5 == 0o5);
        if self.user.is_none() || built.ancestors().all(is_open) {
            return built.to_owned();
        }
        let copy = self.path("windlass");
        if !copy.exists() {
            std::fs::copy(built, &copy).unwrap();
        }
        copy
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The user's kubeconfig.
    pub(crate) fn user_kubeconfig(&self) -> PathBuf {
        self.path("user-kubeconfig")
    }

    pub(crate) fn command(&self, args: &str) -> Command {
        let mut command = self.command_of(&self.program(), args);
        if let Some(user) = self.user.filter(|_| !self.has_others) {
            command.uid(user).gid(user);
        }
        command
    }

    fn command_of(&self, program: &Path, args: &str) -> Command {
        let mut command = match self.user.filter(|_| self.has_others) {
            None => Command::new(program),
            Some(user) => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", WITH_OTHERS, "sh"]).arg(self.dir.path());
                command.arg(user.to_string()).arg(program);
                command
            }
        };
        command.args(args.split_whitespace()).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("HOME", self.dir.path()).env("WINDLASS_HOME", self.path("clusters"));
        command.env("KUBECONFIG", self.user_kubeconfig());
        command
    }

    /// Runs `windlass` to its end.
    pub(crate) fn windlass(&self, args: &str) -> Said {
        self.command(args).output().expect("windlass runs").into()
    }

    /// The command lines of processes that were told to use this sandbox.
    pub(crate) fn processes(&self) -> Vec<String> {
        let dir = self.dir.path().to_str().unwrap();
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        lines.map(|line| String::from_utf8_lossy(&line).into_owned()).filter(|line| line.contains(dir)).collect()
    }

    /// Runs `windlass`, which must succeed, and returns what it printed.
    pub(crate) fn succeeds(&self, args: &str) -> String {
        let said = self.windlass(args);
        assert!(said.status.success(), "windlass {args}: {}{}", said.stdout, said.stderr);
        said.stdout
    }

    /// Runs `windlass`, which must fail, and returns what it says is wrong.
    pub(crate) fn fails(&self, args: &str) -> String {
        let said = self.windlass(args);
        assert!(!said.status.success(), "windlass {args} succeeded: {}", said.stdout);
        assert!(!said.stderr.contains("panicked"), "{}", said.stderr);
        said.stderr
    }
}

/// A cluster that `windlass up --foreground` serves on a free port.
pub(crate) struct Cluster {
    process: Running,
    pub server: String,
    pub kubeconfig: PathBuf,
    sandbox: Sandbox,
}

impl Cluster {
    /// A cluster that keeps everything in memory, without nodes: pods stay as tests make them.
    pub(crate) fn ephemeral() -> Self {
        Self::with_nodes(0)
    }

    /// A cluster that keeps everything in memory, and records what a policy says.
    pub(crate) fn audited(log: &Path, policy: &Path) -> Self {
        Self::start(&format!("--ephemeral --nodes 0 --audit-log={} --audit-policy {}", log.display(), policy.display()))
    }

    /// A cluster that keeps everything in memory, with simulated nodes.
    pub(crate) fn with_nodes(count: u32) -> Self {
        Self::start(&format!("--ephemeral --nodes {count}"))
    }

    /// A cluster that keeps everything in memory, with a simulated node and kwok's objects.
    pub(crate) fn with_kwok() -> Self {
        Self::start("--ephemeral --nodes 1 --kwok")
    }

    /// A cluster that keeps everything in memory, with a node whose pods are processes of this machine.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_processes() -> Self {
        Self::start("--ephemeral --runtime process")
    }

    /// A cluster that keeps everything in `dir`, without nodes.
    pub(crate) fn durable(dir: &Path) -> Self {
        Self::start(&format!("--nodes 0 --data-dir {}", dir.display()))
    }

    /// A cluster that keeps everything in `dir`, with simulated nodes; `program` is served instead of cargo's build.
    pub(crate) fn of_nodes(program: Option<&Path>, count: u32, dir: &Path) -> Self {
        let program = program.unwrap_or(Path::new(env!("CARGO_BIN_EXE_windlass")));
        Self::start_program(program, &format!("--nodes {count} --data-dir {}", dir.display()))
    }

    fn start(args: &str) -> Self {
        Self::start_program(Path::new(env!("CARGO_BIN_EXE_windlass")), args)
    }

    fn start_program(program: &Path, args: &str) -> Self {
        let sandbox = Sandbox::new();
        let kubeconfig = sandbox.path("kubeconfig");
        let args = format!("up --foreground --listen 127.0.0.1:0 --kubeconfig {} {args}", kubeconfig.display());
        let mut command = sandbox.command_of(program, &args);
        let process = Running::spawn(command.env("RUST_LOG", "warn"));
        let ready = process.line_with("ready");
        let server = ready.split_whitespace().find(|word| word.starts_with("https://"));
        Self { server: server.expect("the address").to_owned(), process, kubeconfig, sandbox }
    }

    /// A directory for files of the test, gone with the cluster.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path(name)
    }

    /// Ends the process with no chance to tidy up.
    pub(crate) fn kill(self) {
        self.process.signal(Signal::KILL);
        self.process.wait();
    }

    /// Asks the process to stop, and returns how it ended.
    pub(crate) fn stop(self, signal: Signal) -> ExitStatus {
        self.process.signal(signal);
        self.process.wait()
    }
}
