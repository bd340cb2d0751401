//! `windlass test`: the tests of a project, with a cluster of their own.
//!
//! Tests that are written with `windlass-testing` start clusters in their own process. For those that use a kubeconfig
//! there is one more, which keeps everything in memory and ends with the tests: none of them reaches the cluster of the
//! user's current context.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::args::Test;
use crate::{output, project};

pub(crate) fn run(args: &Test) -> Result<ExitCode> {
    let root = project::cargo_root()?;
    let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
    let kubeconfig = directory.path().join("kubeconfig");
    // Dropped at the end: its guard stops it then, and also if this process is killed.
    let _cluster = if args.no_cluster { None } else { Some(Cluster::start(&kubeconfig)?) };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    if args.nextest {
        cargo.args(["nextest", "run", "--workspace"]);
    } else {
        cargo.args(["test", "--workspace"]);
    }
    cargo.args(&args.name).args(&args.arguments);
    if !args.no_cluster {
        cargo.env("KUBECONFIG", &kubeconfig).env_remove("KUBERNETES_SERVICE_HOST");
    }
    let status = cargo.status().context("cannot run cargo")?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

struct Cluster {
    guard: Child,
}

impl Cluster {
    fn start(kubeconfig: &Path) -> Result<Self> {
        let windlass = std::env::current_exe().context("cannot find the windlass program")?;
        let mut command = Command::new(&windlass);
        command.args(["guard", "--"]).arg(&windlass).args(["up", "--foreground", "--ephemeral", "--kubeconfig"]);
        command.arg(kubeconfig).env("RUST_LOG", "warn");
        // A group of its own: a Ctrl-C ends the tests first.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut guard = command.spawn().context("cannot start a cluster")?;
        let mut ready = String::new();
        if let Some(stdout) = guard.stdout.take() {
            BufReader::new(stdout).read_line(&mut ready)?;
        }
        let Some(server) = ready.strip_prefix("ready ").and_then(|rest| rest.split_whitespace().next()) else {
            let status = guard.wait()?;
            bail!("the cluster for the tests did not start ({status})");
        };
        output::note(format_args!("cluster for tests that use KUBECONFIG: {server}"));
        Ok(Self { guard })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.guard.stdin = None;
        let _ = self.guard.wait();
    }
}
