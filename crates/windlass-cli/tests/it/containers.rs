//! What kubectl does with pods that really run, and what becomes of them when `windlass` is killed.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod deploy;
mod full;
mod hostile;
mod killed;
mod registry;

use std::path::Path;
use std::process::Command;

use crate::process::{Running, eventually};
use crate::windlass::Sandbox;

/// A cluster whose pods run, with the image `me/web:v1` of busybox.
pub(crate) struct Containers {
    pub(crate) sandbox: Sandbox,
    pub(crate) running: Option<Running>,
}

impl Drop for Containers {
    fn drop(&mut self) {
        self.running = None;
        let _ = self.sandbox.command("down").output();
    }
}

impl Containers {
    /// `None`, loudly, where containers or kubectl cannot run.
    pub(crate) fn start() -> Option<Self> {
        let busybox = Path::new("/usr/bin/busybox");
        let bytes = std::fs::read(busybox).unwrap_or_default();
        let is_static = !bytes.is_empty() && !bytes.windows(8).take(4096).any(|window| window == b"ld-linux");
        if !is_static || !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: this needs root and a static busybox (Debian: busybox-static)");
            return None;
        }
        let sandbox = Sandbox::new();
        std::fs::create_dir_all(sandbox.path("files/bin")).unwrap();
        std::fs::copy(busybox, sandbox.path("files/bin/busybox")).unwrap();
        for name in ["sh", "sleep", "cat", "tar", "id", "ps", "ls"] {
            std::os::unix::fs::symlink("busybox", sandbox.path("files/bin").join(name)).unwrap();
        }
        sandbox.succeeds("image build files --tag me/web:v1 --entrypoint /bin/busybox");
        let mut cluster = Self { sandbox, running: None };
        if cluster.kubectl("version --client").is_none() {
            eprintln!("SKIPPED: there is no kubectl");
            return None;
        }
        let said = cluster.sandbox.windlass("up --runtime container --name probe");
        let _ = cluster.sandbox.windlass("down --name probe");
        if said.stderr.contains("containers cannot run here") {
            eprintln!("SKIPPED: {}", said.stderr);
            return None;
        }
        cluster.up();
        // The namespace gets its ServiceAccount after the cluster is ready.
        eventually("there is a ServiceAccount", || cluster.run("get serviceaccount default").0.then_some(()));
        Some(cluster)
    }

    /// Starts the cluster in the foreground.
    pub(crate) fn up(&mut self) {
        let mut command = self
            .sandbox
            .command("up --foreground --runtime container --listen 127.0.0.1:0 --kubeconfig user-kubeconfig");
        let running = Running::spawn(&mut command);
        running.line_with("ready");
        self.running = Some(running);
    }

    fn kubectl(&self, args: &str) -> Option<(bool, String)> {
        let program = std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(program);
        command.args(args.split_whitespace()).current_dir(self.sandbox.path("")).env("HOME", self.sandbox.path(""));
        let output = command.env("KUBECONFIG", self.sandbox.user_kubeconfig()).output().ok()?;
        let said = [output.stdout, output.stderr].concat();
        Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    }

    /// Runs kubectl: whether it succeeded, and what it said.
    pub(crate) fn run(&self, args: &str) -> (bool, String) {
        self.kubectl(args).expect("kubectl runs")
    }

    pub(crate) fn succeeds(&self, args: &str) -> String {
        let (succeeded, said) = self.run(args);
        assert!(succeeded, "kubectl {args}: {said}");
        said
    }

    pub(crate) fn apply(&self, manifest: &str) {
        std::fs::write(self.sandbox.path("manifest.yaml"), manifest).unwrap();
        self.succeeds("apply -f manifest.yaml");
    }

    pub(crate) fn is_ready(&self, pod: &str) {
        let (ready, said) = self.run(&format!("wait --for=condition=Ready pod/{pod} --timeout=120s"));
        assert!(ready, "{said}{}", self.run(&format!("describe pod {pod}")).1);
    }
}

const WEB: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {key: one}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {color: red}}
spec:
  terminationGracePeriodSeconds: 0
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: conf, configMap: {name: conf}}
  - {name: labels, downwardAPI: {items: [{path: all, fieldRef: {fieldPath: metadata.labels}}]}}
  containers:
  - name: main
    image: me/web:v1
    command: [sh, -c, "echo kept > /data/file; exec sleep 1000"]
    volumeMounts: [{name: data, mountPath: /data}, {name: conf, mountPath: /conf}, {name: labels, mountPath: /labels}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
"#;

#[test]
fn pods_have_volumes_and_are_debugged() {
    let Some(cluster) = Containers::start() else { return };
    cluster.apply(WEB);
    cluster.is_ready("web");
    // Objects that change are seen in the pod, which goes on.
    assert_eq!(cluster.succeeds("exec web -- cat /data/file /conf/key /labels/all"), "kept\nonecolor=\"red\"");
    cluster.succeeds(r#"patch configmap conf -p {"data":{"key":"two"}}"#);
    cluster.succeeds("label pod web color=blue --overwrite");
    eventually("the files have changed", || {
        (cluster.succeeds("exec web -- cat /conf/key /labels/all") == "twocolor=\"blue\"").then_some(())
    });
    // kubectl debug, cp, top.
    cluster.succeeds("debug web --image=me/web:v1 --target=main --container=added -- ps");
    eventually("the added container has run", || {
        let state = "get pod web -o jsonpath={.status.ephemeralContainerStatuses[0].state}";
        cluster.succeeds(state).contains("terminated").then_some(())
    });
    assert!(cluster.succeeds("logs web -c added").contains("sleep 1000"), "it sees the processes of its target");
    cluster.succeeds("debug web --copy-to=copy --image=me/web:v1 --container=added -- sleep 1000");
    cluster.is_ready("copy");
    std::fs::write(cluster.sandbox.path("file"), "copied").unwrap();
    cluster.succeeds("cp -c main file web:/data/copied");
    assert_eq!(cluster.succeeds("exec -c main web -- cat /data/copied"), "copied");
    let (measured, said) = cluster.run("top pod web --no-headers");
    assert!(measured && said.starts_with("web "), "{said}");
    assert!(cluster.succeeds("top node --no-headers").starts_with("default "));
    assert!(cluster.run("exec -c main web -- busybox grep x /nothing").1.contains("exit code 2"));
    // No user enters a pod without the right to.
    for refused in
        ["exec web -c main -- id", "port-forward pod/web :80", "attach web -c main", "cp -c main file web:/x"]
    {
        let (succeeded, said) = cluster.run(&format!("--as=system:serviceaccount:default:reader {refused}"));
        assert!(!succeeded && said.contains("forbidden"), "{refused}: {said}");
    }
    assert!(cluster.run("--as=system:serviceaccount:default:reader logs web -c main").0);
    // What nothing simulates is refused, and the data of a claim goes with it.
    let said = cluster.sandbox.fails("nodes add 2");
    assert!(said.contains("the pods of this cluster really run"), "{said}");
    let volumes = || std::fs::read_dir(cluster.sandbox.path("clusters/default/volumes")).unwrap().count();
    assert_eq!(volumes(), 1);
    cluster.succeeds("delete pod web copy --grace-period=0 --force");
    cluster.succeeds("delete pvc data");
    eventually("the data of the claim is gone", || (volumes() == 0).then_some(()));
}
