//! The server under test: `windlass up` in a process of its own, in memory, on a free port.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

/// A running server. Dropping it ends it.
pub(crate) struct Server {
    process: Child,
    dir: TempDir,
}

impl Server {
    /// Starts `program` with further flags of `windlass up` and waits until it serves.
    pub(crate) fn start(program: &Path, flags: &[&str]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("kubeconfig");
        let mut command = Command::new(program);
        command.args(["up", "--foreground", "--ephemeral", "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(&file);
        command.args(flags);
        let log = std::fs::File::create(dir.path().join("log"))?;
        let mut process = command
            .env("WINDLASS_HOME", dir.path().join("home"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let stdout = process.stdout.take().context("the server has no output")?;
        let server = Self { process, dir };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.contains("ready"), "the server did not start: {}", server.log());
        // The replay tool reads JSON without help, YAML only with a library that may be missing.
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file)?)?;
        std::fs::write(server.kubeconfig(), config.to_string())?;
        Ok(server)
    }

    /// A directory for files of the test.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The kubeconfig, as JSON.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir().join("kubeconfig.json")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
