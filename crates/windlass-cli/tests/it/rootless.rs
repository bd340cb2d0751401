//! What is different about pods that run without root, and what `windlass up` does where they cannot.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::machine::{Machine, UP};
use crate::process::eventually;
use crate::windlass::{FIRST_OTHER, Sandbox};

const PODS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {key: one}
---
apiVersion: v1
kind: Pod
metadata: {name: other}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 1234, runAsGroup: 2345, fsGroup: 3456}
  volumes: [{name: conf, configMap: {name: conf}}, {name: data, emptyDir: {}}]
  containers:
  - name: main
    image: me/web:v1
    command: [sh, -c, "echo $(busybox id -u):$(busybox id -g) > /data/own; exec sleep 1000"]
    volumeMounts: [{name: conf, mountPath: /conf}, {name: data, mountPath: /data}]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    resources: {limits: {memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  terminationGracePeriodSeconds: 0
  shareProcessNamespace: true
  hostNetwork: true
  containers:
  - {name: main, image: "me/web:v1", command: [sleep, "1000"], securityContext: {readOnlyRootFilesystem: true, runAsUser: 0}}
  - {name: more, image: "me/web:v1", command: [sleep, "2000"], securityContext: {runAsUser: 0}}
"#;

#[test]
fn pods_without_root_have_the_users_they_ask_for() {
    let Some(machine) = Machine::without_root() else { return };
    machine.apply(PODS);
    for pod in ["other", "shared"] {
        let (ready, said) = machine.kubectl(&format!("wait --for=condition=Ready pod/{pod} --timeout=60s"));
        assert!(ready, "{said}{}", machine.run(&format!("describe pod {pod}")));
    }
    // By the number that the pod asks for, in the container and in what is run in it.
    assert_eq!(machine.run("exec other -- cat /data/own /conf/key"), "1234:2345\none");
    assert_eq!(machine.run("exec other -- busybox id -u"), "1234\n");
    let capabilities = machine.run("exec other -- busybox grep Cap /proc/self/status");
    assert!(capabilities.lines().all(|line| line.ends_with("\t0000000000000000")), "{capabilities}");
    // Containers see each other's processes, and not those of the machine.
    let processes = machine.run("exec shared -c more -- busybox ps");
    assert!(processes.contains("sleep 1000") && !processes.contains("pod-keeper"), "{processes}");
    assert!(!machine.kubectl("exec shared -c main -- busybox touch /file").0);
    // To the machine, they are the user's.
    let user = machine.sandbox.user();
    for (pid, _) in machine.parents().values() {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
        assert_eq!(uids.split_whitespace().next(), Some(user.to_string().as_str()));
    }
    let isolated = r#"get node -o jsonpath={.items[0].status.conditions[?(@.type=="ContainersIsolated")].message}"#;
    let said = machine.run(isolated);
    let doctor = machine.sandbox.windlass("doctor --kubeconfig none").stdout;
    assert!(doctor.contains("run in containers without root") && doctor.contains("usermod --add-subuids"), "{doctor}");
    assert!(doctor.contains("run windlass as root, if limits matter"), "{doctor}");
    assert!(said.contains("a container") && said.contains("no limits of memory"), "{said}");

    // If its keeper is killed as well, the user namespace cannot be joined again, and pods are started in another.
    let keeper = machine.sandbox.processes().into_iter().find(|line| line.contains("pod-keeper"));
    assert!(keeper.is_some());
    let before = machine.parents();
    kill_keeper(&machine.sandbox);
    machine.crash_and_restart();
    eventually("the pods were started again", || {
        let now = machine.parents();
        (now.len() == before.len() && now.iter().all(|(line, process)| before.get(line) != Some(process))).then_some(())
    });
    eventually("commands run in them", || {
        let (success, said) = machine.kubectl("exec other -- cat /conf/key");
        (success && said == "one").then_some(())
    });
    machine.leaves_nothing();
}

#[test]
fn pods_run_without_a_network_where_there_can_be_none() {
    let Some(machine) = Machine::without_network() else { return };
    assert!(machine.said.contains("pods reach nothing but themselves"), "{}", machine.said);
    let condition = r#"get node -o jsonpath={.items[0].status.conditions[?(@.type=="PodNetwork")].message}"#;
    let said = machine.run(condition);
    assert!(said.contains("no Services") && said.contains("clusters/default/network"), "{said}");
    machine.apply(&PODS.replace("hostNetwork: true", "hostNetwork: false"));
    let (ready, said) = machine.kubectl("wait --for=condition=Ready pod/shared --timeout=60s");
    assert!(ready, "{said}{}", machine.run("describe pod shared"));
    assert!(machine.run("exec shared -c main -- busybox ip link").contains("LOOPBACK,UP"));
}

const OTHERS: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: others}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {fsGroup: 3456}
  volumes: [{name: claim, persistentVolumeClaim: {claimName: claim}}, {name: data, emptyDir: {}}]
  initContainers:
  - name: owner
    image: me/web:v1
    command: [sh, -c, "busybox mkdir /claim/dir && echo mine > /claim/dir/file && busybox chown -R 1234:2345 /claim/dir"]
    volumeMounts: [{name: claim, mountPath: /claim}]
    securityContext: {runAsUser: 0}
  containers:
  - name: main
    image: me/web:v1
    command: [sh, -c, "busybox id > /data/own; echo more >> /claim/dir/file; exec sleep 1000"]
    volumeMounts: [{name: claim, mountPath: /claim}, {name: data, mountPath: /data}]
    securityContext: {runAsUser: 1234, runAsGroup: 2345}
"#;

#[test]
fn pods_without_root_use_the_users_they_are_given() {
    use std::os::unix::fs::MetadataExt as _;
    let Some(machine) = Machine::with_other_users() else { return };
    let doctor = machine.sandbox.windlass("doctor --kubeconfig none").stdout;
    assert!(doctor.contains("are those that /etc/subuid gives you"), "{doctor}");
    machine.apply(OTHERS);
    let (ready, said) = machine.kubectl("wait --for=condition=Ready pod/others --timeout=60s");
    assert!(ready, "{said}{}", machine.run("describe pod others"));
    let id = machine.run("exec others -c main -- cat /data/own");
    assert!(id.contains("uid=1234") && id.contains("gid=2345") && id.contains("3456"), "{id}");
    assert_eq!(machine.run("exec others -c main -- cat /claim/dir/file"), "mine\nmore\n");
    assert_eq!(machine.run("exec others -c main -- busybox stat -c %u:%g /claim/dir"), "1234:2345\n");
    // Outside they are those that `/etc/subuid` gives.
    let volumes = machine.sandbox.path("clusters/default/volumes");
    let dir = std::fs::read_dir(&volumes).unwrap().flatten().map(|volume| volume.path().join("dir"));
    let owners: Vec<_> = dir.map(|dir| dir.metadata().unwrap()).map(|found| (found.uid(), found.gid())).collect();
    assert_eq!(owners, [(FIRST_OTHER + 1233, FIRST_OTHER + 2344)]);

    // After a crash of everything that could clean up, the next command does, also what is not the user's.
    kill_keeper(&machine.sandbox);
    machine.crash();
    machine.sandbox.succeeds("down");
    assert!(volumes.is_dir() && machine.sandbox.processes().is_empty(), "{:?}", machine.sandbox.processes());
    machine.sandbox.succeeds("down --purge");
    assert!(!machine.sandbox.path("clusters/default").exists());
    machine.sandbox.succeeds("image remove me/web:v1");
    let roots = machine.sandbox.path("clusters/.images/roots");
    assert_eq!(std::fs::read_dir(roots).unwrap().count(), 0);
    machine.leaves_nothing();
}

fn kill_keeper(sandbox: &Sandbox) {
    let dir = sandbox.path("").display().to_string();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains("pod-keeper") && line.contains(&dir) {
            let pid = process.file_name().to_string_lossy().parse().unwrap();
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    }
}

/// Runs `windlass` as a user who is not root, where user namespaces cannot be made. `None`, loudly, where that cannot be tried.
fn without_user_namespaces(sandbox: &Sandbox, args: &str) -> Option<(bool, String)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: this needs root");
        return None;
    }
    let command = sandbox.command(args);
    let user = sandbox.user();
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --reuid {user} --regid {user} --clear-groups \"$@\""
    );
    // The second shell is started by root of the namespace, so it has root's capabilities there.
    let waiting = format!("read go; exec sh -c '{script}' sh \"$@\"");
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "sh", "-c", &waiting, "sh"]).arg(command.get_program()).args(command.get_args());
    unshare.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(sandbox.path(""));
    let spawned = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        eprintln!("SKIPPED: there is no unshare");
        return None;
    };
    // All users exist in it, once it is there.
    let own = std::fs::read_link("/proc/self/ns/user").unwrap();
    eventually("there is a user namespace", || {
        let its = std::fs::read_link(format!("/proc/{}/ns/user", child.id())).ok()?;
        (its != own).then_some(())
    });
    for map in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{}/{map}", child.id()), "0 0 65536").unwrap();
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn without_user_namespaces_pods_are_processes() {
    let sandbox = Sandbox::without_root();
    let Some((success, said)) = without_user_namespaces(&sandbox, UP) else { return };
    assert!(!success && said.contains("containers cannot run here: the kernel refuses user namespaces"), "{said}");
    let advice = "sudo sysctl user.max_user_namespaces=15000, or run windlass as root";
    assert!(said.contains(advice), "{said}");
    let (success, said) = without_user_namespaces(&sandbox, "up --runtime auto").unwrap();
    let stopped = sandbox.windlass("down");
    assert!(success && said.contains("pods are processes of this machine, because containers cannot run"), "{said}");
    assert!(said.contains(advice) && said.contains("pods are in the network of this machine"), "{said}");
    assert!(stopped.status.success() && sandbox.processes().is_empty(), "{}", stopped.stderr);
    let (_, said) = without_user_namespaces(&sandbox, "doctor --kubeconfig none").unwrap();
    assert!(said.contains("are processes of this machine") && said.contains(advice), "{said}");
    assert!(said.contains("there are no Services, cluster DNS and Ingresses"), "{said}");
}
