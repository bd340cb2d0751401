//! `windlass` in a home of its own, and clusters that it serves in the foreground.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Running, Said};

/// A directory where nothing of the user's is touched.
pub(crate) struct Sandbox {
    dir: TempDir,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The user's kubeconfig.
    pub(crate) fn user_kubeconfig(&self) -> PathBuf {
        self.path("user-kubeconfig")
    }

    pub(crate) fn command(&self, args: &str) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_windlass")), args)
    }

    fn command_of(&self, program: &Path, args: &str) -> Command {
        let mut command = Command::new(program);
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

    /// A cluster that keeps everything in memory, with simulated nodes.
    pub(crate) fn with_nodes(count: u32) -> Self {
        Self::start(&format!("--ephemeral --nodes {count}"))
    }

    /// A cluster that keeps everything in memory, with a simulated node and kwok's objects.
    pub(crate) fn with_kwok() -> Self {
        Self::start("--ephemeral --nodes 1 --kwok")
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
