//! Real kubectl against the cluster.

mod apply;
mod change;
mod custom;
mod explain;
mod kinds;
mod look;
mod permissions;
mod pets;
mod running;
mod seeds;
mod streams;
mod watch;
mod workloads;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::process::{Running, Said};
use crate::windlass::Cluster;

/// kubectl, talking to one cluster.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
    /// The minor version of the program: some flags are newer than others.
    minor: u32,
}

impl Kubectl {
    /// `None`, and a line that says so, where there is no kubectl.
    pub(crate) fn of(cluster: &Cluster) -> Option<Self> {
        let program = PathBuf::from(std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into()));
        let home = cluster.path("kubectl-home");
        std::fs::create_dir_all(&home).unwrap();
        let mut kubectl = Self { program, kubeconfig: cluster.kubeconfig.clone(), home, minor: 0 };
        let output = kubectl.command("version --client -o json").output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            say_skipped();
            return None;
        };
        let version: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let minor = version["clientVersion"]["minor"].as_str().unwrap();
        kubectl.minor = minor.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
        Some(kubectl)
    }

    /// Whether the program is of 1.`minor` or newer.
    pub(crate) fn at_least(&self, minor: u32) -> bool {
        self.minor >= minor
    }

    /// A command whose arguments are the words of `args`.
    pub(crate) fn command(&self, args: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args.split_whitespace()).stdin(Stdio::null());
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.home);
        command
    }

    /// Runs a command, which must succeed, and returns what it printed.
    pub(crate) fn run(&self, args: &str) -> String {
        succeeded(args, self.command(args).output().expect("kubectl runs").into())
    }

    /// Runs a command that reads `input`, which must succeed.
    pub(crate) fn feed(&self, args: &str, input: &str) -> String {
        succeeded(args, self.fed(args, input))
    }

    /// Runs a command, which must fail, and returns what it says is wrong.
    pub(crate) fn fails(&self, args: &str) -> String {
        failed(args, self.command(args).output().expect("kubectl runs").into())
    }

    /// Runs a command that reads `input`, which must fail, and returns what it says is wrong.
    pub(crate) fn refuses(&self, args: &str, input: &str) -> String {
        failed(args, self.fed(args, input))
    }

    fn fed(&self, args: &str, input: &str) -> Said {
        let mut command = self.command(args);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl runs");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap().into()
    }

    /// One field of one object.
    pub(crate) fn field(&self, object: &str, path: &str) -> String {
        self.run(&format!("get {object} -o jsonpath={{{path}}}"))
    }

    /// Creates a pod that no node fits.
    pub(crate) fn pending_pod(&self, name: &str) {
        let overrides = r#"{"apiVersion":"v1","spec":{"nodeSelector":{"no":"node"}}}"#;
        self.run(&format!("run {name} --image=nginx --overrides={overrides}"));
    }

    /// A command that keeps running.
    pub(crate) fn spawn(&self, args: &str) -> Running {
        Running::spawn(&mut self.command(args))
    }
}

fn succeeded(args: &str, said: Said) -> String {
    assert!(said.status.success(), "kubectl {args}: {}{}", said.stdout, said.stderr);
    said.stdout
}

fn failed(args: &str, said: Said) -> String {
    assert!(!said.status.success(), "kubectl {args} succeeded: {}", said.stdout);
    said.stderr
}

#[allow(clippy::print_stderr)]
fn say_skipped() {
    eprintln!("SKIPPED: there is no kubectl");
}

/// A fresh cluster and kubectl for it; returns from the test where there is no kubectl.
macro_rules! kubectl {
    ($cluster:ident, $kubectl:ident) => {
        let $cluster = crate::windlass::Cluster::ephemeral();
        let Some($kubectl) = crate::kubectl::Kubectl::of(&$cluster) else { return };
    };
}
use kubectl;

/// Checks that `text` has each of `parts`.
#[track_caller]
pub(crate) fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// The cells of a table's lines.
pub(crate) fn cells(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect()
}

pub(crate) const SETTINGS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red, size: '1'}
";

/// A Deployment called `web` with so many replicas of an image.
pub(crate) fn deployment(replicas: u32, image: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, labels: {{app: web}}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers:
      - {{name: web, image: '{image}', ports: [{{containerPort: 80}}]}}
"
    )
}
