//! A cluster of `windlass up --runtime container`, and kubectl for it. With root, and without.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::path::Path;
use std::process::Command;

use crate::process::eventually;
use crate::windlass::Sandbox;

/// Nothing leads out of the cluster, and nothing is listened on where another test may.
pub(crate) const UP: &str = "up --runtime container --egress off --ingress 127.0.0.1:0 --ingress-tls 127.0.0.1:0";

/// A static busybox's wget crashes when it looks for the C library's name services.
const FETCH: &str = "#!/bin/sh\nprintf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | nc -w 5 $1 $2\n";

/// The cluster. It ends with this, also when a test fails.
pub(crate) struct Machine {
    pub(crate) sandbox: Sandbox,
    /// What `windlass up` printed.
    pub(crate) said: String,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.sandbox.command("down").output();
    }
}

/// A static busybox, which images are made of.
fn busybox() -> Option<&'static Path> {
    let path = Path::new("/usr/bin/busybox");
    let is_static = std::fs::read(path).is_ok_and(|bytes| !bytes.windows(8).take(4096).any(|w| w == b"ld-linux"));
    if !is_static {
        eprintln!("SKIPPED: this needs a static busybox (Debian: busybox-static)");
    }
    is_static.then_some(path)
}

/// Makes the image `me/web:v1` in a sandbox.
fn make_image(busybox: &Path) -> impl FnOnce(&Sandbox) {
    move |sandbox| {
        std::fs::create_dir_all(sandbox.path("files/bin")).unwrap();
        std::fs::copy(busybox, sandbox.path("files/bin/busybox")).unwrap();
        for name in ["sh", "sleep", "env", "cat", "httpd", "nc", "printf", "tar", "stty"] {
            std::os::unix::fs::symlink("busybox", sandbox.path("files/bin").join(name)).unwrap();
        }
        let fetch = sandbox.path("files/bin/fetch");
        std::fs::write(&fetch, FETCH).unwrap();
        std::fs::set_permissions(fetch, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir_all(sandbox.path("files/www")).unwrap();
        std::fs::write(sandbox.path("files/www/index.html"), "i am web\n").unwrap();
        sandbox.succeeds("image build files --tag me/web:v1 --entrypoint /bin/busybox");
    }
}

impl Machine {
    /// A cluster in a sandbox in which images were made; `None`, loudly, where there can be none.
    pub(crate) fn start(prepare: impl FnOnce(&Sandbox)) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: this needs root");
            return None;
        }
        Self::start_in(Sandbox::new(), prepare)
    }

    /// The same where no network can be made, because a file is in its place.
    pub(crate) fn without_network() -> Option<Self> {
        let make_image = make_image(busybox()?);
        let prepare = |sandbox: &Sandbox| {
            make_image(sandbox);
            let (dir, file) = (sandbox.path("clusters/default"), sandbox.path("clusters/default/network"));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(&file, "").unwrap();
            for path in [&dir, &file] {
                std::os::unix::fs::chown(path, Some(sandbox.user()), Some(sandbox.user())).unwrap();
            }
        };
        Self::start_with(Sandbox::without_root(), prepare, "up --runtime container --egress off")
    }

    fn start_in(sandbox: Sandbox, prepare: impl FnOnce(&Sandbox)) -> Option<Self> {
        Self::start_with(sandbox, prepare, UP)
    }

    fn start_with(sandbox: Sandbox, prepare: impl FnOnce(&Sandbox), up: &str) -> Option<Self> {
        let mut this = Self { sandbox, said: String::new() };
        if this.try_kubectl("version --client").is_none() {
            eprintln!("SKIPPED: there is no kubectl");
            return None;
        }
        prepare(&this.sandbox);
        let said = this.sandbox.windlass(up);
        if said.stderr.contains("containers cannot run here") {
            eprintln!("SKIPPED: {}", said.stderr);
            return None;
        }
        assert!(said.status.success(), "{}", said.stderr);
        this.said = said.stdout + &said.stderr;
        // The namespace gets its ServiceAccount after the cluster is ready.
        eventually("the account is there", || this.kubectl("get serviceaccount default").0.then_some(()));
        Some(this)
    }

    /// The same with the image `me/web:v1`, which has a shell and some programs: `httpd -h /www` serves a page, and `fetch
    /// HOST PORT` gets it.
    pub(crate) fn with_busybox() -> Option<Self> {
        Self::start(make_image(busybox()?))
    }

    /// A cluster whose pods are processes of this machine.
    pub(crate) fn with_processes() -> Option<Self> {
        Self::start_with(Sandbox::new(), |_| {}, "up --runtime process")
    }

    /// The same by a user who is not root.
    pub(crate) fn without_root() -> Option<Self> {
        Self::start_in(Sandbox::without_root(), make_image(busybox()?))
    }

    /// The same by a user who is not root, and who is given others.
    pub(crate) fn with_other_users() -> Option<Self> {
        Self::start_in(Sandbox::with_other_users()?, make_image(busybox()?))
    }

    /// Ends the control plane as a crash does, and starts it again.
    pub(crate) fn crash_and_restart(&self) {
        self.crash();
        self.sandbox.succeeds(UP);
    }

    /// Ends the control plane as a crash does.
    pub(crate) fn crash(&self) {
        let status: serde_json::Value = serde_json::from_str(&self.sandbox.succeeds("status -o json")).unwrap();
        let pid = rustix::process::Pid::from_raw(status["pid"].as_i64().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    /// A program that knows this cluster and nothing of the user's.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.sandbox.path("")).env("HOME", self.sandbox.path(""));
        command.env("KUBECONFIG", self.sandbox.user_kubeconfig());
        command
    }

    pub(crate) fn kubectl_command(&self, args: &str) -> Command {
        let mut command = self.command(std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into()));
        command.args(args.split_whitespace());
        command
    }

    fn try_kubectl(&self, args: &str) -> Option<(bool, String)> {
        let output = self.kubectl_command(args).output().ok()?;
        let said = [output.stdout, output.stderr].concat();
        Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    }

    /// Whether kubectl succeeds, and what it prints.
    pub(crate) fn kubectl(&self, args: &str) -> (bool, String) {
        self.try_kubectl(args).unwrap()
    }

    /// What a script prints in a pod, with its errors.
    pub(crate) fn script(&self, pod: &str, script: &str) -> String {
        let mut command = self.kubectl_command(&format!("exec {pod} -- sh -c"));
        let output = command.arg(script).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Waits until a pod is ready.
    #[track_caller]
    pub(crate) fn is_ready(&self, pod: &str) {
        let (ready, said) = self.kubectl(&format!("wait --for=condition=Ready pod/{pod} --timeout=60s"));
        assert!(ready, "{said}{}", self.run(&format!("describe pod {pod}")));
    }

    /// What kubectl prints, which must succeed.
    #[track_caller]
    pub(crate) fn run(&self, args: &str) -> String {
        let (success, said) = self.kubectl(args);
        assert!(success, "kubectl {args}: {said}");
        said
    }

    pub(crate) fn apply(&self, objects: &str) {
        std::fs::write(self.sandbox.path("objects.yaml"), objects).unwrap();
        self.run("apply -f objects.yaml");
    }

    /// Runs a command in a pod until it succeeds and prints what is wanted.
    #[track_caller]
    pub(crate) fn in_pod(&self, pod: &str, command: &str, wanted: &str) -> String {
        eventually(&format!("{command} in {pod}: {wanted}"), || {
            let (success, said) = self.kubectl(&format!("exec {pod} -- {command}"));
            (success && said.contains(wanted)).then_some(said)
        })
    }

    /// The parents of pods, each with its process id and when it was started.
    pub(crate) fn parents(&self) -> std::collections::BTreeMap<String, (i32, String)> {
        let dir = self.sandbox.path("").display().to_string();
        let mut found = std::collections::BTreeMap::new();
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let Ok(pid) = process.file_name().to_string_lossy().parse() else { continue };
            if line.contains("pod-parent") && line.contains(&dir) {
                let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
                let started = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(19)).unwrap_or_default();
                found.insert(line, (pid, started.to_owned()));
            }
        }
        found
    }

    /// Stops the cluster, and sees that nothing is left of it.
    pub(crate) fn leaves_nothing(self) {
        self.sandbox.succeeds("down");
        let left = self.sandbox.processes();
        assert!(left.is_empty(), "{left:?}");
        for dir in ["pods", "network", "users"] {
            assert!(!self.sandbox.path("clusters/default").join(dir).exists(), "{dir}");
        }
        let here = self.sandbox.path("").display().to_string();
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains(&here), "{mounts}");
        assert!(!has_network(&self.sandbox));
    }
}

/// Where root's clusters have their networks.
pub(crate) const NETWORKS: &str = "/run/windlass/network";

/// The name of the network of the sandbox's cluster: the command names it by the cluster, and the directory of its pods.
pub(crate) fn network_name(sandbox: &Sandbox) -> String {
    let dir = sandbox.path("clusters/default/pods");
    let digest = windlass_image::digest::of(dir.as_os_str().as_encoded_bytes());
    format!("default-{}", &digest.trim_start_matches("sha256:")[..8])
}

/// Whether there is a network of the sandbox's cluster.
pub(crate) fn has_network(sandbox: &Sandbox) -> bool {
    let name = network_name(sandbox);
    let is_mounted = std::fs::read_to_string("/proc/mounts").unwrap().contains(&name);
    let own = sandbox.path("clusters/default/network");
    is_mounted || [Path::new(NETWORKS), &own].iter().any(|dir| dir.join(&name).exists())
}
