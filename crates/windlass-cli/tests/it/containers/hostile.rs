//! A container that looks for what is not its own: files of the host and of the cluster, keys, other processes and networks.

use std::path::{Path, PathBuf};

use crate::machine::Machine;

const POD: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: hush}
stringData: {key: correct-horse}
---
apiVersion: v1
kind: Pod
metadata: {name: hostile}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: hush, secret: {secretName: hush, defaultMode: 256}}]
  containers:
  - name: main
    image: me/web:v1
    command: [sleep, "1000"]
    volumeMounts: [{name: hush, mountPath: /hush}]
    securityContext: {runAsUser: 0}
"#;

/// The files of a cluster: its database, certificates, keys and the like.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_container_finds_nothing_of_the_cluster() {
    if let Some(machine) = Machine::with_busybox() {
        finds_nothing(&machine);
    }
}

#[test]
fn a_container_without_root_finds_nothing_of_the_cluster() {
    if let Some(machine) = Machine::without_root() {
        finds_nothing(&machine);
    }
}

#[test]
fn a_container_with_other_users_finds_nothing_of_the_cluster() {
    if let Some(machine) = Machine::with_other_users() {
        finds_nothing(&machine);
    }
}

fn finds_nothing(machine: &Machine) {
    machine.apply(POD);
    machine.is_ready("hostile");
    let in_pod = |script: &str| machine.script("hostile", script);
    let mut found = files(&machine.sandbox.path("clusters/default"));
    found.push(machine.sandbox.user_kubeconfig());
    let has_key =
        |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| bytes.windows(11).any(|w| w == b"PRIVATE KEY"));
    assert!(found.iter().any(has_key), "there are keys to be found: {found:?}");
    for prefix in ["", "/proc/1/root", "/proc/self/root/..", "/..", "/dev/fd/../../../.."] {
        let paths: Vec<String> = found.iter().map(|path| format!("{prefix}{}", path.display())).collect();
        let said =
            in_pod(&format!("for path in {}; do cat $path && echo found $path; done 2>/dev/null", paths.join(" ")));
        assert!(!said.contains("found "), "{said}");
    }
    // No process is there but its own, and none of them has a file of the host open.
    let processes = in_pod(
        "busybox ps -o comm | busybox sort -u; busybox ls -l /proc/[0-9]*/fd /proc/[0-9]*/cwd /proc/[0-9]*/ns 2>/dev/null",
    );
    assert!(!processes.contains("windlass") && !processes.contains("/clusters/"), "{processes}");
    // None of the namespaces is one of the machine's, but that of users where windlass runs as root.
    for kind in ["mnt", "pid", "net", "ipc", "uts"] {
        let own = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().display().to_string();
        assert!(processes.contains(&format!("{kind}:[")) && !processes.contains(&own), "{own}: {processes}");
    }
    // The API server listens on the loopback interface of the machine, which the pod does not have.
    let server = machine.run("config view --minify -o jsonpath={.clusters[0].cluster.server}");
    let port = server.rsplit(':').next().unwrap();
    assert!(in_pod(&format!("busybox nc -w 2 127.0.0.1 {port} </dev/null || echo refused")).contains("refused"));
    // Neither the kernel's settings nor its own limits can be changed.
    for file in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/sys/kernel/uevent_helper",
        "/proc/1/oom_score_adj -1000",
    ] {
        let (file, value) = file.split_once(' ').unwrap_or((file, "x"));
        let said = in_pod(&format!("echo {value} > {file} && echo changed"));
        assert!(!said.contains("changed"), "{file}: {said}");
    }
    let said =
        in_pod("busybox mount -t cgroup2 none /hush && echo mounted; busybox chroot /proc/1/root busybox ls /clusters");
    assert!(!said.contains("mounted"), "{said}");
    // A Secret is in memory, and only its owner reads it.
    let secret = in_pod("busybox stat -L -c %a:%u /hush/key; busybox grep ' /hush ' /proc/mounts");
    assert!(secret.starts_with("400:0\n") && secret.contains("tmpfs") && secret.contains("ro,"), "{secret}");
    let account = "--as=system:serviceaccount:default:default";
    for refused in ["get secrets", "get nodes", "exec hostile -- id", "get --raw /api/v1/nodes/default/proxy/pods"] {
        let (succeeded, said) = machine.kubectl(&format!("{account} {refused}"));
        assert!(!succeeded && said.contains("orbidden"), "{refused}: {said}");
    }
}
