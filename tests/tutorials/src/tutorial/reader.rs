//! Does what a page of the book says, as a reader would: in a home directory of its own, with a shell and kubectl.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use super::page::{Step, check_output, steps};
use crate::commands::Commands;

/// How long a command in a terminal may take until it works, most of which is for the compiler.
const START_TIMEOUT: Duration = Duration::from_secs(3600);

/// How long a page's `kubectl get` is repeated until it prints what the page shows.
const SHOWN_TIMEOUT: Duration = Duration::from_secs(60);

/// The examples whose programs pages run, in their directories.
const EXAMPLES: [&str; 4] = ["home", "opentelemetry-collector", "petstore", "workloads"];

/// A reader: where they are, and their terminals.
pub(super) struct Reader<'a> {
    commands: &'a Commands,
    directory: PathBuf,
    terminals: BTreeMap<String, Terminal>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(commands: &'a Commands) -> Result<Self> {
        let programs = commands.directory.join("bin");
        std::fs::create_dir_all(&programs)?;
        let link = programs.join("windlass");
        if !link.exists() {
            std::os::unix::fs::symlink(&commands.windlass, link)?;
        }
        Ok(Self { commands, directory: commands.directory.clone(), terminals: BTreeMap::new() })
    }

    /// Walks a page that is about a cluster that runs.
    pub(super) fn read(mut self, page: &str) -> Result<()> {
        let name = cluster_name(page);
        self.run(&format!("windlass up --name {name}"))?;
        let down = format!("windlass down --name {name} --purge");
        let commands = self.commands;
        let walked = self.walk(page);
        Self::new(commands)?.run(&down)?;
        walked
    }

    /// The reader goes to a directory.
    pub(super) fn in_directory(mut self, directory: PathBuf) -> Self {
        self.directory = directory;
        self
    }

    /// Makes what a page takes for granted.
    pub(super) fn prepare(&mut self, script: &str) -> Result<()> {
        let (is_done, printed) = self.script(&format!("set -e\n{script}"))?;
        ensure!(is_done, "the setup fails:\n{printed}");
        Ok(())
    }

    /// Walks a page, whose cluster has the name of the page or none. What is started is stopped, also after a failure.
    pub(super) fn walk(mut self, page: &str) -> Result<()> {
        let path = root().join(page);
        let text = std::fs::read_to_string(&path).with_context(|| format!("no page {}", path.display()))?;
        let examples = EXAMPLES.map(|name| root().join("examples").join(name));
        let places = examples.iter().chain([&self.directory]);
        let _versions: Vec<ExampleLock> =
            places.map(|place| ExampleLock::new(place, &self.commands.lock)).collect::<Result<_>>()?;
        let is_root = cfg!(target_os = "linux") && rustix::process::geteuid().is_root();
        let walked = steps(&text, is_root).and_then(|steps| steps.into_iter().try_for_each(|step| self.step(step)));
        let stopped = std::mem::take(&mut self.terminals).into_values().try_for_each(Terminal::stop);
        if walked.is_err() {
            let stem = page.trim_end_matches(".md").rsplit('/').next().unwrap_or(page);
            for name in [stem, "default", "workloads", "scratch"] {
                // It may not run.
                let _ = self.shell(&format!("windlass down --name {name} --purge"))?.output();
            }
        }
        walked.and(stopped)
    }

    fn step(&mut self, step: Step) -> Result<()> {
        self.lock_dependencies()?;
        match step {
            Step::Write { path, text, append } => {
                let path = self.directory.join(path);
                std::fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
                let mut options = std::fs::OpenOptions::new();
                let mut file = options.write(true).create(true).append(append).truncate(!append).open(&path)?;
                Ok(file.write_all(text.as_bytes())?)
            }
            Step::Command { command, output } => {
                // The cluster may need a moment until it is as the page shows it. It is asked again at once: an answer takes
                // a new process of kubectl, which is pause enough.
                let deadline = Instant::now() + SHOWN_TIMEOUT;
                loop {
                    let checked = check_output(&output, &self.run(&command)?);
                    if checked.is_ok() || !command.starts_with("kubectl get ") || Instant::now() > deadline {
                        return checked.with_context(|| format!("$ {command}"));
                    }
                }
            }
            Step::Line { command, is_refused } => self.line(&command, is_refused),
            Step::NotRun { reason } => {
                println!("  not run: {reason}");
                Ok(())
            }
            Step::Setup { script } => self.prepare(&script),
            Step::Terminal { name, command, until } => {
                if let Some(earlier) = self.terminals.remove(&name) {
                    earlier.stop()?;
                }
                let shell = self.shell(&format!("exec env {command}"))?;
                let terminal = Terminal::start(shell, &until).with_context(|| format!("$ {command}"))?;
                self.terminals.insert(name, terminal);
                Ok(())
            }
            Step::Stop { name } => self.terminals.remove(&name).with_context(|| format!("no terminal {name}"))?.stop(),
        }
    }

    /// Runs a command, and returns what it prints. It may fail: the page says what is printed then. The next one is run in
    /// the directory where this one ends.
    fn run(&mut self, command: &str) -> Result<String> {
        Ok(self.script(&format!("{command}\n:"))?.1)
    }

    /// Runs a command, which must succeed or must fail. The cluster may need a moment until it does.
    fn line(&mut self, command: &str, is_refused: bool) -> Result<()> {
        let deadline = Instant::now() + SHOWN_TIMEOUT;
        loop {
            let (succeeds, printed) = self.script(&format!("set -e\n{command}"))?;
            if succeeds != is_refused {
                return Ok(());
            }
            let waits = command.starts_with("kubectl ") && Instant::now() < deadline;
            ensure!(waits, "$ {command}\nshould {}:\n{printed}", if is_refused { "fail" } else { "succeed" });
        }
    }

    /// Runs a script. Returns whether it succeeds, and what it prints.
    fn script(&mut self, script: &str) -> Result<(bool, String)> {
        let ended_in = self.commands.directory.join("ended-in");
        let output = self.shell(&format!("exec 2>&1\ntrap 'pwd >{}' EXIT\n{script}", ended_in.display()))?.output()?;
        self.directory = PathBuf::from(std::fs::read_to_string(&ended_in)?.trim_end());
        let printed = String::from_utf8_lossy(&output.stdout);
        let home = self.commands.directory.display().to_string();
        Ok((output.status.success(), printed.replace(&home, "/home/me")))
    }

    /// A shell in the reader's directory, with their home directory, which has no configuration of others.
    fn shell(&self, script: &str) -> Result<Command> {
        let home = &self.commands.directory;
        let mut path = home.join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").context("no PATH")?);
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(&self.directory).stdin(Stdio::null());
        shell.env("PATH", path).env("CARGO_NET_OFFLINE", "true").env("WINDLASS", root());
        shell.env("WINDLASS_HOME", home.join("home")).env_remove("KUBECONFIG");
        if let Some(own) = std::env::home_dir() {
            // The tool chain is the one that runs this.
            for (name, directory) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
                shell.env(name, std::env::var_os(name).unwrap_or_else(|| own.join(directory).into()));
            }
        }
        shell.env("HOME", home);
        Ok(shell)
    }

    /// All projects use the same versions of dependencies.
    fn lock_dependencies(&self) -> Result<()> {
        let lock = self.directory.join("Cargo.lock");
        if self.directory != self.commands.directory && !lock.exists() {
            std::fs::copy(&self.commands.lock, lock)?;
        }
        Ok(())
    }
}

/// The versions of dependencies of an example, whose programs some pages run; dropping it takes the file away.
struct ExampleLock {
    made: Option<PathBuf>,
}

impl ExampleLock {
    fn new(place: &Path, lock: &Path) -> Result<Self> {
        let path = place.join("Cargo.lock");
        if path.exists() || !place.starts_with(root().join("examples")) {
            return Ok(Self { made: None });
        }
        std::fs::copy(lock, &path)?;
        Ok(Self { made: Some(path) })
    }
}

impl Drop for ExampleLock {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // It may be gone.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A cluster for one page.
fn cluster_name(page: &str) -> String {
    page.trim_start_matches("docs/").trim_end_matches(".md").to_lowercase().replace('/', "-")
}

/// The repository, which a reader has cloned.
pub(super) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or(root)
}

/// A command that runs beside the others; dropping it kills it.
struct Terminal {
    child: Child,
}

impl Terminal {
    /// Starts a command, and waits until its output says that it works.
    fn start(mut shell: Command, until: &str) -> Result<Self> {
        let (output, input) = std::io::pipe()?;
        let child = shell.stdout(input.try_clone()?).stderr(input).process_group(0).spawn()?;
        drop(shell); // and with it the ends of the pipe that this process has
        let terminal = Self { child };
        let (sender, lines) = mpsc::channel();
        // Reads on after the receiver is gone, so that the command never waits for a reader.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let deadline = Instant::now() + START_TIMEOUT;
        let mut printed = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = lines.recv_timeout(left) else {
                bail!("its output does not say {until:?}:\n{printed}");
            };
            printed.push_str(&line);
            printed.push('\n');
            if line.contains(until) {
                return Ok(terminal);
            }
        }
    }

    /// What Ctrl-C does: every process of the terminal is told, and make passes on that it was.
    fn stop(mut self) -> Result<()> {
        kill_process_group(self.pid()?, Signal::INT)?;
        let status = self.child.wait()?;
        // `windlass dev` ends with what a shell says of a program that SIGINT ended.
        let is_interrupted = status.signal() == Some(Signal::INT.as_raw()) || status.code() == Some(130);
        let in_order = status.success() || is_interrupted;
        ensure!(in_order, "a terminal's command did not stop in order: {status}");
        Ok(())
    }

    fn pid(&self) -> Result<Pid> {
        Pid::from_raw(i32::try_from(self.child.id())?).context("a process has a number")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.pid().map(|pid| kill_process_group(pid, Signal::KILL));
            let _ = self.child.wait();
        }
    }
}
