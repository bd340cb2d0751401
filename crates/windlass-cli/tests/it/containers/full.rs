//! A disk that a pod fills: the cluster and its other pods go on, and new pods start as soon as there is space again.

use std::process::Command;

use rustix::process::Signal;

use super::Containers;
use crate::process::{Running, eventually};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: quiet}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "me/web:v1", command: [sleep, "1000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: filler}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: main
    image: me/web:v1
    command: [sh, -c, "busybox dd if=/dev/zero of=/data/f bs=65536; exec sleep 2000"]
    volumeMounts: [{name: data, mountPath: /data}]
"#;

const LATER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: later}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "me/web:v1", command: [sleep, "1000"]}]
"#;

/// The cluster in a mount namespace, where its directory is a small file system. Nothing outside sees that, so it has to be
/// stopped, not killed.
struct Small(Option<Running>);

impl Drop for Small {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.signal(Signal::TERM);
            running.wait();
        }
    }
}

#[test]
fn a_full_disk_stops_no_other_pod() {
    let Some(mut cluster) = Containers::start() else { return };
    cluster.running = None;
    cluster.sandbox.succeeds("down --purge");
    let args = "up --foreground --runtime container --listen 127.0.0.1:0 --kubeconfig user-kubeconfig";
    let inner = cluster.sandbox.command(args);
    let script = "mkdir -p clusters/default && mount -t tmpfs -o size=48m none clusters/default && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(cluster.sandbox.path(""));
    let running = Running::spawn(&mut command);
    running.line_with("ready");
    let small = Small(Some(running));

    eventually("there is a ServiceAccount", || cluster.run("get serviceaccount default").0.then_some(()));
    cluster.apply(PODS);
    cluster.is_ready("quiet");
    eventually("the disk is full", || cluster.run("exec filler -- ps").1.contains("sleep 2000").then_some(()));
    assert!(cluster.succeeds("exec filler -- busybox df /data").contains("100%"));
    cluster.succeeds("create configmap written --from-literal=a=b");
    assert_eq!(cluster.succeeds("exec quiet -- busybox echo hi"), "hi\n");
    cluster.apply(LATER);
    assert_eq!(
        cluster.succeeds("get node default -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}"),
        "True"
    );
    cluster.succeeds("delete pod filler");
    cluster.is_ready("later");
    let restarts = "get pods quiet later -o jsonpath={.items[*].status.containerStatuses[0].restartCount}";
    assert_eq!(cluster.succeeds(restarts), "0 0");
    drop(small);
    eventually("all processes are gone", || cluster.sandbox.processes().is_empty().then_some(()));
}
