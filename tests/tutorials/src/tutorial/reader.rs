//! Does what a page of the book says, as a reader would: in a home directory of its own, with a shell and kubectl.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::page::{Step, check_output, steps};
use crate::commands::Commands;

/// How long a command in a terminal may take until it works, most of which is for the compiler.
const START_TIMEOUT: Duration = Duration::from_secs(3600);

/// How long a page's `kubectl get` is repeated until it prints what the page shows.
const SHOWN_TIMEOUT: Duration = Duration::from_secs(60);

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
        let name = page.replace('/', "-");
        self.run(&format!("windlass up --name {name}"))?;
        let down = format!("windlass down --name {name} --purge");
        let commands = self.commands;
        let walked = self.walk(page);
        Self::new(commands)?.run(&down)?;
        walked
    }

    /// Walks a page, whose cluster has the name of the page. What is started is stopped, also after a failure.
    pub(super) fn walk(mut self, name: &str) -> Result<()> {
        let page = root().join("docs").join(name).with_extension("md");
        let name = name.rsplit('/').next().unwrap_or(name);
        let text = std::fs::read_to_string(&page).with_context(|| format!("no page {}", page.display()))?;
        let _versions = ExampleLock::new(&self.commands.lock)?;
        let walked = steps(&text).and_then(|steps| steps.into_iter().try_for_each(|step| self.step(step)));
        let stopped = std::mem::take(&mut self.terminals).into_values().try_for_each(Terminal::stop);
        if walked.is_err() {
            // It may not run.
            let _ = self.shell(&format!("windlass down --name {name} --purge"))?.output();
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
                // The cluster may need a moment until it is as the page shows it.
                let deadline = Instant::now() + SHOWN_TIMEOUT;
                loop {
                    let checked = check_output(&output, &self.run(&command)?);
                    if checked.is_ok() || !command.starts_with("kubectl get ") || Instant::now() > deadline {
                        return checked.with_context(|| format!("$ {command}"));
                    }
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
            Step::Setup { script } => {
                let output = self.shell(&format!("exec 2>&1\nset -e\n{script}"))?.output()?;
                let printed = String::from_utf8_lossy(&output.stdout);
                ensure!(output.status.success(), "the setup fails:\n{printed}");
                Ok(())
            }
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
        let ended_in = self.commands.directory.join("ended-in");
        let script = format!("exec 2>&1\n{command}\npwd >{}", ended_in.display());
        let output = self.shell(&script)?.output()?;
        ensure!(output.status.success(), "$ {command}: {}", output.status);
        self.directory = PathBuf::from(std::fs::read_to_string(&ended_in)?.trim_end());
        let printed = String::from_utf8_lossy(&output.stdout);
        let home = self.commands.directory.display().to_string();
        Ok(printed.replace(&home, "/home/me"))
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

/// The versions of dependencies of the pet store, whose programs some pages run; dropping it takes the file away.
struct ExampleLock {
    made: Option<PathBuf>,
}

impl ExampleLock {
    fn new(lock: &Path) -> Result<Self> {
        let path = root().join("examples/petstore/Cargo.lock");
        if path.exists() {
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

/// The repository, which a reader has cloned.
fn root() -> PathBuf {
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
        let child = shell.stdout(input.try_clone()?).stderr(input).spawn()?;
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

    /// What Ctrl-C does.
    fn stop(mut self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("a process has a number")?;
        kill_process(pid, Signal::INT)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "a terminal's command did not stop in order: {status}");
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
