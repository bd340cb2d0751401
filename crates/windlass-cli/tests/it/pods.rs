//! `windlass up --runtime container`: pods that run on this machine, as kubectl sees them.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::path::Path;
use std::process::Command;

use crate::windlass::Sandbox;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    image: me/web:v1
    command: [sh, -c, "echo hello from $HOSTNAME; exec sleep 1000"]
    readinessProbe: {exec: {command: [sh, -c, exit 0]}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: refused}
spec:
  containers: [{name: main, image: me/web:v1, ports: [{containerPort: 80, hostPort: 8080}]}]
"#;

/// Ends the cluster, also when the test fails.
struct Stops<'a>(&'a Sandbox);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        let _ = self.0.command("down").output();
    }
}

fn kubectl(sandbox: &Sandbox, args: &str) -> Option<(bool, String)> {
    let program = std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into());
    let mut command = Command::new(program);
    command.args(args.split_whitespace()).current_dir(sandbox.path("")).env("HOME", sandbox.path(""));
    let output = command.env("KUBECONFIG", sandbox.user_kubeconfig()).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn a_cluster_runs_pods_or_simulates_them() {
    let sandbox = Sandbox::new();
    let said = sandbox.fails("up --runtime process --nodes 3");
    assert!(said.contains("the only node is this machine"), "{said}");
    let said = sandbox.fails("up --runtime process --kwok");
    assert!(said.contains("--kwok is for simulated pods"), "{said}");
    assert!(sandbox.processes().is_empty());
}

#[test]
fn pods_of_a_built_image_run() {
    let sandbox = Sandbox::new();
    let busybox = Path::new("/usr/bin/busybox");
    let is_static = std::fs::read(busybox).is_ok_and(|bytes| !bytes.windows(8).take(4096).any(|w| w == b"ld-linux"));
    let is_root = rustix::process::geteuid().is_root();
    if !is_static || !is_root || kubectl(&sandbox, "version --client").is_none() {
        eprintln!("SKIPPED: this needs root, kubectl, and a static busybox (Debian: busybox-static)");
        return;
    }
    std::fs::create_dir_all(sandbox.path("files/bin")).unwrap();
    std::fs::copy(busybox, sandbox.path("files/bin/busybox")).unwrap();
    for name in ["sh", "sleep"] {
        std::os::unix::fs::symlink("busybox", sandbox.path("files/bin").join(name)).unwrap();
    }
    sandbox.succeeds("image build files --tag me/web:v1 --entrypoint /bin/busybox");
    let stops = Stops(&sandbox);
    let said = sandbox.windlass("up --runtime container");
    if said.stderr.contains("containers cannot run here") {
        eprintln!("SKIPPED: {}", said.stderr);
        return;
    }
    assert!(said.status.success(), "{}", said.stderr);
    std::fs::write(sandbox.path("pod.yaml"), POD).unwrap();
    let run = |args: &str| kubectl(&sandbox, args).unwrap();
    // The namespace gets its ServiceAccount after the cluster is ready.
    while !run("get serviceaccount default").0 {}
    assert!(run("apply -f pod.yaml").0);
    assert!(run("wait --for=condition=Ready pod/web --timeout=60s").0, "{}", run("describe pod web").1);
    assert_eq!(run("logs web").1, "hello from web\n");
    assert!(!run("exec web -- busybox false").0);
    let (code, said) = run("exec web -- busybox id -u");
    assert!(code && said.contains("65532"), "{said}");
    let conditions = run("get node -o jsonpath={.items[0].status.conditions[*].reason}").1;
    assert!(conditions.contains("LoopbackOnly"), "{conditions}");
    while !run("get events").1.contains("hostPort 8080 cannot be served") {
        assert!(!run("get pod refused").1.contains("Running"));
    }
    drop(stops);
    let left = sandbox.processes();
    assert!(left.is_empty(), "{left:?}");
    assert!(!sandbox.path("clusters/default/pods").exists());
    let here = sandbox.path("").display().to_string();
    assert!(!std::fs::read_to_string("/proc/mounts").unwrap().contains(&here));
}
