//! The processes of the inner loop: cargo, and the operator. Each runs under `windlass guard`, so that none outlives
//! this process, however it ends.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

use super::Input;
use super::logs::{self, next_line};
use super::machine::{Event, Program};
use crate::args::Operator;
use crate::manifests;

/// How much of what a failed build said is kept, from its end.
const SAID_LIMIT: usize = 64 * 1024;
/// How long a process may take to end after it was told to: a little longer than its guard waits.
const END: Duration = Duration::from_secs(7);

/// A process that ends when this is dropped.
pub(super) struct Running {
    _leash: Option<ChildStdin>,
    ended: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Ends the process, and waits until it has.
    pub(super) async fn stop(self) {
        let Self { _leash: leash, ended } = self;
        drop(leash);
        // A guard kills what takes longer.
        let _ = tokio::time::timeout(END, ended).await;
    }
}

fn guarded(program: &OsStr) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find the windlass program")?);
    // A group of its own: what is typed at the terminal is not meant for it.
    command.args(["guard", "--"]).arg(program).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Builds the operator. The result comes as [`Event::Built`], and what cargo is doing meanwhile as it says so.
pub(super) fn build(
    build: u64,
    operator: &Operator,
    directory: &Path,
    colours: bool,
    inputs: mpsc::Sender<Input>,
) -> Result<Running> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = guarded(&cargo)?;
    command.args(["build", "--message-format", "json-render-diagnostics"]).current_dir(directory);
    command.args(["--color", if colours { "always" } else { "never" }]);
    for (option, value) in [("--package", &operator.package), ("--bin", &operator.bin)] {
        if let Some(value) = value {
            command.args([option, value]);
        }
    }
    let started = Instant::now();
    let mut child = command.spawn().context("cannot run cargo")?;
    let leash = child.stdin.take();
    let ended = tokio::spawn(async move {
        let result = follow_build(child, &inputs).await;
        let result = result.unwrap_or_else(|error| Err(format!("{error:#}")));
        let _ = inputs.send(Input::Event(Event::Built { build, took: started.elapsed(), result })).await;
    });
    Ok(Running { _leash: leash, ended })
}

async fn follow_build(mut child: Child, inputs: &mpsc::Sender<Input>) -> Result<Result<Program, String>> {
    let stdout = child.stdout.take().context("cargo has no output")?;
    let stderr = child.stderr.take().context("cargo has no output")?;
    let messages = async {
        let mut reader = BufReader::new(stdout);
        let mut programs = Vec::new();
        while let Some(line) = next_line(&mut reader).await {
            let fresh = line.contains("\"fresh\":true");
            programs.extend(manifests::executables(&line).into_iter().map(|program| (program, fresh)));
        }
        programs
    };
    let said = async {
        let mut reader = BufReader::new(stderr);
        let mut said = String::new();
        while let Some(line) = next_line(&mut reader).await {
            if let Some(doing) = progress(&line) {
                let _ = inputs.send(Input::Progress(doing)).await;
                continue;
            }
            said += &line;
            said.push('\n');
            if said.len() > 2 * SAID_LIMIT {
                cut(&mut said);
            }
        }
        cut(&mut said);
        said
    };
    let (programs, said) = tokio::join!(messages, said);
    let status = child.wait().await?;
    if !status.success() {
        return Ok(Err(said.trim_end().to_owned()));
    }
    let (programs, fresh): (Vec<_>, Vec<_>) = programs.into_iter().unzip();
    Ok(manifests::operator(&programs).map(|operator| {
        let is_fresh = programs.iter().zip(fresh).any(|(program, fresh)| program == operator && fresh);
        Program { path: operator.path.clone(), fresh: is_fresh }
    }))
}

/// Leaves the end of a text.
fn cut(text: &mut String) {
    if let Some(from) = text.len().checked_sub(SAID_LIMIT) {
        let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        text.drain(..from);
    }
}

/// What cargo says that it does, and that is of no interest later.
fn progress(line: &str) -> Option<String> {
    let plain: String = strip_colours(line);
    let trimmed = plain.trim_start();
    let verbs =
        ["Compiling", "Checking", "Finished", "Blocking", "Updating", "Locking", "Downloading", "Downloaded", "Adding"];
    let verb = trimmed.split(' ').next()?;
    (plain.starts_with(' ') && verbs.contains(&verb)).then(|| {
        // Without the directory of the package.
        trimmed.split(" (").next().unwrap_or(trimmed).to_owned()
    })
}

fn strip_colours(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

/// How the operator is run.
pub(super) struct Launch {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub kubeconfig: PathBuf,
    pub webhooks: Option<String>,
}

impl Launch {
    /// Starts the operator. Its lines come as [`Input::Log`], its end as [`Event::Ended`].
    pub(super) fn start(&self, run: u64, inputs: &mpsc::Sender<Input>) -> Result<Running> {
        let mut command = guarded(self.program.as_os_str())?;
        command.args(&self.arguments).env("KUBECONFIG", &self.kubeconfig);
        // Neither a pod that this may run in nor its ServiceAccount is meant.
        command.env_remove("KUBERNETES_SERVICE_HOST");
        let filter = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
        let filter = filter.unwrap_or_else(|| "info,kube_client::client::builder=off".to_owned());
        command.env("RUST_LOG", format!("{filter},windlass::reconciled=debug"));
        if let Some(address) = &self.webhooks {
            command.env("WINDLASS_WEBHOOKS", address);
        }
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.program.display()))?;
        let leash = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let inputs = inputs.clone();
        let ended = tokio::spawn(async move {
            let read = async {
                tokio::join!(
                    forward(run, stdout.map(BufReader::new), &inputs),
                    forward(run, stderr.map(BufReader::new), &inputs)
                );
            };
            let ((), status) = tokio::join!(read, child.wait());
            let how = match status.map(|status| status.code()) {
                Ok(Some(code)) if code > 128 => format!("ended by signal {}", code - 128),
                Ok(Some(code)) => format!("ended with exit code {code}"),
                Ok(None) => "was killed".to_owned(),
                Err(error) => format!("is lost: {error}"),
            };
            let _ = inputs.send(Input::Event(Event::Ended { run, how })).await;
        });
        Ok(Running { _leash: leash, ended })
    }
}

async fn forward(run: u64, reader: Option<impl tokio::io::AsyncBufRead + Unpin>, inputs: &mpsc::Sender<Input>) {
    let Some(mut reader) = reader else { return };
    while let Some(line) = next_line(&mut reader).await {
        if inputs.send(Input::Log { run, line: logs::parse(&line) }).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn progress_is_told_from_errors() {
        for (line, expected) in [
            ("   Compiling guestbook v0.1.0 (/tmp/guestbook)", Some("Compiling guestbook v0.1.0")),
            ("\x1b[1m\x1b[92m   Compiling\x1b[0m kube v5.0.0", Some("Compiling kube v5.0.0")),
            ("error[E0308]: mismatched types", None),
            (" --> src/main.rs:1:1", None),
            ("warning: unused variable", None),
        ] {
            assert_eq!(progress(line).as_deref(), expected, "{line}");
        }
    }
}
