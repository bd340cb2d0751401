// SPDX-License-Identifier: Apache-2.0

//! Runs that follow one that was killed, and a namespace of somebody else.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Cluster, Running, ask, eventually};

impl Cluster {
    fn succeeds(&self, args: &str) {
        let output = self.windlass(args).output().expect("it runs");
        assert!(output.status.success(), "windlass {args}: {output:?}");
    }
}

/// The application is ready, and a pod answers.
fn answers(running: &Running) {
    running.line("2 of 2 replicas are ready");
    let line = running.line("the application is at http://");
    let url = line.rsplit(' ').next().expect("a URL").to_owned();
    eventually("the Ingress leads to the pods", || ask(&url));
}

fn interrupt(running: &Running) {
    let pid = Pid::from_raw(running.child.id().try_into().expect("a pid")).expect("a pid");
    kill_process(pid, Signal::INT).expect("it runs");
}

#[test]
fn a_killed_run_is_taken_up_by_the_next() {
    let Some(cluster) = Cluster::start() else { return };
    // The samples are what the program creates, so it takes them for its own.
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples");
    cluster.succeeds(&format!("apply -f {}", samples.display()));
    let mut first = Running::start(&cluster);
    answers(&first);
    first.child.kill().expect("it runs"); // SIGKILL
    first.child.wait().expect("it ends");

    // The second run is killed while it deletes everything.
    let mut second = Running::start(&cluster);
    answers(&second);
    interrupt(&second);
    second.line("deleting the namespace");
    second.child.kill().expect("it runs");
    second.child.wait().expect("it ends");

    let mut third = Running::start(&cluster);
    answers(&third);
    interrupt(&third);
    third.line("everything is deleted");
    assert!(third.child.wait().expect("it ends").success());

    let namespace = cluster.home.path().join("namespace.yaml");
    std::fs::write(&namespace, "{apiVersion: v1, kind: Namespace, metadata: {name: foo}}\n").expect("written");
    cluster.succeeds(&format!("apply -f {}", namespace.display()));
    let program = cluster.command(Path::new(env!("CARGO_BIN_EXE_workloads"))).output().expect("it runs");
    let said = String::from_utf8_lossy(&program.stderr);
    assert!(!program.status.success() && said.contains("--namespace"), "{program:?}");
}
