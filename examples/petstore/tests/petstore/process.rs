//! Programs that run beside a test, and what they say.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, SystemTime},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    sync::watch,
};

/// Longer than anything takes on a busy machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that runs until it is told to stop, or the test ends.
pub(crate) struct Process {
    child: Child,
    said: watch::Receiver<Vec<String>>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (tell, said) = watch::channel(Vec::new());
        // The tasks end with what they read.
        tokio::spawn(listen(child.stdout.take().unwrap(), tell.clone()));
        tokio::spawn(listen(child.stderr.take().unwrap(), tell));
        Self { child, said }
    }

    /// Waits until the program has said something with `text` in it, and returns that line.
    pub(crate) async fn says(&self, text: &str) -> String {
        let mut said = self.said.clone();
        let has_text = |line: &&String| line.contains(text);
        let waited =
            tokio::time::timeout(PATIENCE, said.wait_for(|lines| lines.iter().any(|line| has_text(&line)))).await;
        let found = match waited {
            Ok(Ok(lines)) => lines.iter().find(has_text).cloned(),
            _ => None,
        };
        found.unwrap_or_else(|| panic!("never said {text:?}, but {:#?}", *self.said.borrow()))
    }

    /// Ends the program with no chance to tidy up.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks the program to stop, and waits until it has.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("the program stops").unwrap()
    }
}

async fn listen(output: impl AsyncRead + Unpin, tell: watch::Sender<Vec<String>>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tell.send_modify(|said| said.push(line));
    }
}

/// The `windlass` program, built from the present sources.
///
/// Cargo hands tests the programs of their own package only. `windlass` is beside them if the whole
/// workspace is tested; it is built here if it is not, or if it is older than what it is made from.
pub(crate) async fn windlass() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_petstore-server")).parent().unwrap();
    let windlass = beside.join("windlass");
    if !is_up_to_date(&windlass) {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "windlass-cli", "--bin", "windlass"]);
        build.arg("--target-dir").arg(beside.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        if beside.ends_with("release") {
            build.arg("--release");
        }
        let built = build.status().await.unwrap();
        assert!(built.success());
    }
    windlass
}

/// Whether a program is newer than everything in the workspace that it may be made from.
fn is_up_to_date(program: &Path) -> bool {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let newest =
        ["crates", "examples", "Cargo.toml", "Cargo.lock"].map(|part| changed(&workspace.join(part))).into_iter().max();
    program
        .metadata()
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|built| newest.is_some_and(|newest| newest <= built))
}

/// When something in a directory was last changed, tests apart.
fn changed(path: &Path) -> SystemTime {
    if !path.is_dir() {
        return path.metadata().unwrap().modified().unwrap();
    }
    let inside = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let sources = inside.filter(|path| !["tests", "benches"].iter().any(|name| path.ends_with(name)));
    sources.map(|path| changed(&path)).max().unwrap_or(SystemTime::UNIX_EPOCH)
}
