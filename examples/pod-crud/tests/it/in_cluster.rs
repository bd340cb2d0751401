// SPDX-License-Identifier: Apache-2.0

//! The program in a Pod, as `config/samples` has it. It needs root, and the `windlass` command: `WINDLASS` says where.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use windlass::kube::api::{ListParams, LogParams};
use windlass::kube::{Api, Client, ResourceExt as _};

/// How long anything may take on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(120);

/// A cluster in a directory of its own, which ends with this.
struct Cluster {
    windlass: PathBuf,
    home: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.windlass("down --purge");
    }
}

impl Cluster {
    /// `None`, loudly, where Pods cannot run.
    fn start() -> Option<Self> {
        let windlass = PathBuf::from(std::env::var_os("WINDLASS").unwrap_or_else(|| "windlass".into()));
        if !rustix::process::geteuid().is_root() || Command::new(&windlass).arg("version").output().is_err() {
            eprintln!("SKIPPED: this needs root, and $WINDLASS or `windlass` in the path");
            return None;
        }
        let this = Self { windlass, home: tempfile::tempdir().expect("a directory") };
        this.succeeds(&format!("image build {} --tag pod-crud:v1", env!("CARGO_BIN_EXE_pod-crud")));
        let up = this.windlass(
            "up --ephemeral --runtime container --egress off --ingress 127.0.0.1:0 --ingress-tls 127.0.0.1:0",
        );
        if String::from_utf8_lossy(&up.stderr).contains("containers cannot run here") {
            eprintln!("SKIPPED: {}", String::from_utf8_lossy(&up.stderr));
            return None;
        }
        assert!(up.status.success(), "{up:?}");
        Some(this)
    }

    /// Runs the command, which knows nothing of the user's clusters.
    fn windlass(&self, args: &str) -> Output {
        let home = self.home.path();
        let mut command = Command::new(&self.windlass);
        command.current_dir(home).env("HOME", home).env("WINDLASS_HOME", home.join("clusters"));
        command.env("KUBECONFIG", home.join("kubeconfig")).stdin(Stdio::null());
        command.args(args.split_whitespace()).output().expect("it runs")
    }

    fn succeeds(&self, args: &str) {
        let output = self.windlass(args);
        assert!(output.status.success(), "windlass {args}: {output:?}");
    }

    async fn pods(&self) -> Api<Pod> {
        let loader = windlass::config::Loader::default().kubeconfig(self.home.path().join("kubeconfig"));
        let client: Client = loader.client().await.expect("a client");
        Api::namespaced(client, "default")
    }
}

/// What a Pod with these labels has printed, once it has succeeded.
async fn output(pods: &Api<Pod>, labels: &str) -> String {
    let ended = async {
        loop {
            let found = pods.list(&ListParams::default().labels(labels)).await.expect("a list");
            for pod in found {
                match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
                    Some("Succeeded") => return pod.name_any(),
                    Some("Failed") => panic!("{} has failed: {:?}", pod.name_any(), pod.status),
                    _ => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let name = tokio::time::timeout(LIMIT, ended).await.expect("a pod ends");
    pods.logs(&name, &LogParams::default()).await.expect("a log")
}

#[tokio::test]
async fn the_program_runs_in_a_pod_with_its_role() {
    let Some(cluster) = Cluster::start() else { return };
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples");
    cluster.succeeds(&format!("apply -k {}", samples.display()));
    let pods = cluster.pods().await;
    let printed = output(&pods, "job-name=pod-crud").await;
    assert_eq!(printed, "created: k=v\nupdated: {\"patch\": \"v1\"}\ndeleted\n");
}
