// SPDX-License-Identifier: Apache-2.0

//! The whole program against a cluster whose pods run. It needs root, and the `windlass` command: `WINDLASS` says where.

mod restart;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use rustix::process::{Pid, Signal, kill_process};
use windlass::kube::api::{DeleteParams, LogParams, PostParams};
use windlass::kube::config::{KubeConfigOptions, Kubeconfig};
use windlass::kube::{Api, Client, Config};

/// How long anything may take on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(120);

/// What the client in a pod is made of.
const BUSYBOX: &str = "/usr/bin/busybox";

/// Asks the Service again and again, and says which pod has answered.
const CLIENT: &str = r#"
while :; do
  printf 'GET /hello HTTP/1.1\r\nhost: hello\r\nuser-agent: a-pod\r\nconnection: close\r\n\r\n' |
    /busybox nc -w 10 SERVICE 80 | /busybox sed -n 's/^x-pod: /answered by /p' >/answer
  read -r line </answer && echo "$line" || echo failed
done
"#;

/// A cluster in a directory of its own, which ends with this.
struct Cluster {
    windlass: PathBuf,
    home: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.windlass("down --purge").output();
    }
}

impl Cluster {
    /// `None`, loudly, where pods cannot run.
    fn start() -> Option<Self> {
        let windlass = PathBuf::from(std::env::var_os("WINDLASS").unwrap_or_else(|| "windlass".into()));
        if !rustix::process::geteuid().is_root() || Command::new(&windlass).arg("version").output().is_err() {
            eprintln!("SKIPPED: this needs root, and $WINDLASS or `windlass` in the path");
            return None;
        }
        let this = Self { windlass, home: tempfile::tempdir().expect("a directory") };
        let hello = env!("CARGO_BIN_EXE_hello");
        let built = this.windlass(&format!("image build {hello} --tag windlass/hello:v1")).output().expect("it runs");
        assert!(built.status.success(), "{built:?}");
        if Path::new(BUSYBOX).exists() {
            let built =
                this.windlass(&format!("image build {BUSYBOX} --tag test/busybox:v1")).output().expect("it runs");
            assert!(built.status.success(), "{built:?}");
        }
        let up = "up --ephemeral --runtime container --egress off --ingress 127.0.0.1:0 --ingress-tls 127.0.0.1:0";
        let up = this.windlass(up).output().expect("it runs");
        if String::from_utf8_lossy(&up.stderr).contains("containers cannot run here") {
            eprintln!("SKIPPED: {}", String::from_utf8_lossy(&up.stderr));
            return None;
        }
        assert!(up.status.success(), "{up:?}");
        Some(this)
    }

    /// A program that knows this cluster and nothing of the user's.
    fn command(&self, program: &Path) -> Command {
        let home = self.home.path();
        let mut command = Command::new(program);
        command.current_dir(home).env("HOME", home).env("WINDLASS_HOME", home.join("clusters"));
        command.env("KUBECONFIG", home.join("kubeconfig")).stdin(Stdio::null());
        command
    }

    fn windlass(&self, args: &str) -> Command {
        let mut command = self.command(&self.windlass);
        command.args(args.split_whitespace());
        command
    }
}

/// The program, with the lines that it prints.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(cluster: &Cluster) -> Self {
        let mut command = cluster.command(Path::new(env!("CARGO_BIN_EXE_workloads")));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    /// The next line with a text.
    fn line(&self, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no line has {text:?} ({error}); seen: {seen:#?}"),
            }
        }
    }
}

/// The pod that answers a request, if one does.
fn ask(url: &str) -> Option<String> {
    let (address, path) = url.strip_prefix("http://")?.split_at(url.len() - "http://".len() - "/hello".len());
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nuser-agent: a-test\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let pod = answer.lines().find_map(|line| line.strip_prefix("x-pod: "))?.trim().to_owned();
    (answer.starts_with("HTTP/1.1 200") && answer.contains(&format!("<td>{pod}</td>"))).then_some(pod)
}

/// What a browser makes of a page. `None`, loudly, where there is no Chromium. It connects to nothing but the page.
fn browse(url: &str, home: &Path) -> Option<String> {
    let flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
                 --disable-component-update --disable-sync --disable-dev-shm-usage --virtual-time-budget=10000 --dump-dom";
    let mut command = Command::new("chromium");
    command.args(flags.split_whitespace()).arg(format!("--user-data-dir={}", home.join("browser").display())).arg(url);
    command.env("HOME", home).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: the page is not opened in a browser, because there is no chromium");
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
fn the_application_is_deployed_balanced_and_removed() {
    let Some(cluster) = Cluster::start() else { return };
    let mut running = Running::start(&cluster);
    running.line("2 of 2 replicas are ready");
    let line = running.line("the application is at http://");
    let url = line.rsplit(' ').next().expect("a URL").to_owned();

    // Both pods answer in turn, and the output of both is printed.
    eventually("the Ingress leads to the pods", || ask(&url));
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..20 {
        *answers.entry(ask(&url).expect("an answer")).or_default() += 1;
    }
    assert_eq!(answers.values().copied().collect::<Vec<_>>(), [10, 10], "{answers:?}");
    let mut silent: BTreeSet<&String> = answers.keys().collect();
    while !silent.is_empty() {
        let line = running.line("\"GET /hello HTTP/1.1\" 200");
        silent.retain(|pod| !line.starts_with(&format!("{pod}: 127.0.0.1 - ")));
    }

    if let Some(page) = browse(&url, cluster.home.path()) {
        assert!(answers.keys().any(|pod| page.contains(&format!("<td>{pod}</td>"))), "{page}");
        running.line("HeadlessChrome");
    }

    let in_pod = ClientInPod::start(&cluster);
    // A pod is deleted and replaced, and no request fails meanwhile, neither by the Ingress nor by the Service.
    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let client = {
        let (url, stop, asked) = (url.clone(), Arc::clone(&stop), Arc::clone(&asked));
        std::thread::spawn(move || {
            let mut failures = 0;
            while !stop.load(Ordering::Relaxed) {
                failures += usize::from(ask(&url).is_none());
                asked.fetch_add(1, Ordering::Relaxed);
            }
            failures
        })
    };
    let victim = answers.keys().next().expect("a pod").clone();
    delete_pod(&cluster, &victim);
    eventually("a new pod answers", || ask(&url).filter(|pod| !answers.contains_key(pod)));
    eventually("the old pod is gone", || {
        running.lines.try_iter().any(|line| line.contains(&format!("{victim} stops"))).then_some(())
    });
    stop.store(true, Ordering::Relaxed);
    let failures = client.join().expect("the client ends");
    assert_eq!(failures, 0, "of {} requests", asked.load(Ordering::Relaxed));
    if in_pod.is_some() {
        let is_new = |pod: &str| !answers.contains_key(pod);
        let said = eventually("a new pod answers the client in a pod", || {
            let said = ClientInPod::said(&cluster);
            said.lines().filter_map(answered_by).any(is_new).then_some(said)
        });
        assert!(said.lines().any(|line| answered_by(line) == Some(&*victim)), "{said}");
        assert!(said.lines().all(|line| answered_by(line).is_some()), "of {} requests: {said}", said.lines().count());
    }

    // Ctrl-C removes everything.
    let pid = Pid::from_raw(running.child.id().try_into().expect("a pid")).expect("a pid");
    kill_process(pid, Signal::INT).expect("it runs");
    running.line("everything is deleted");
    assert!(running.child.wait().expect("it ends").success());
    assert!(ask(&url).is_none());
}

/// Which pod has answered, by a line of the client in a pod.
fn answered_by(line: &str) -> Option<&str> {
    line.trim_end().strip_prefix("answered by ").filter(|pod| !pod.is_empty())
}

/// A pod that asks the Service by its name.
struct ClientInPod;

impl ClientInPod {
    /// `None`, loudly, where there is nothing to make it of. Otherwise it has had answers.
    fn start(cluster: &Cluster) -> Option<Self> {
        if !Path::new(BUSYBOX).exists() {
            eprintln!("SKIPPED: no pod asks the Service, because there is no busybox (Debian: busybox-static)");
            return None;
        }
        let pod = windlass::serde_json::json!({
            "metadata": {"name": "client"},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "main",
                    "image": "test/busybox:v1",
                    "command": ["/busybox", "sh", "-c", CLIENT.replace("SERVICE", "hello-world")],
                    "securityContext": {"runAsUser": 0},
                }],
            },
        });
        with_pods(cluster, async |pods| {
            let pod = windlass::serde_json::from_value(pod).expect("a pod");
            pods.create(&PostParams::default(), &pod).await.expect("created");
        });
        eventually("the pod has an answer", || {
            Self::said(cluster).lines().any(|line| answered_by(line).is_some()).then_some(())
        });
        Some(Self)
    }

    /// What it has printed, without a line that is being written.
    fn said(cluster: &Cluster) -> String {
        let said =
            with_pods(cluster, async |pods| pods.logs("client", &LogParams::default()).await.unwrap_or_default());
        said.rsplit_once('\n').map(|(lines, _)| lines.to_owned()).unwrap_or_default()
    }
}

fn delete_pod(cluster: &Cluster, name: &str) {
    with_pods(cluster, async |pods| {
        pods.delete(name, &DeleteParams::default()).await.expect("deleted");
    });
}

/// Does something with the pods of the application.
fn with_pods<T>(cluster: &Cluster, act: impl AsyncFnOnce(Api<Pod>) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let file = Kubeconfig::read_from(cluster.home.path().join("kubeconfig")).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a cluster");
        act(Api::namespaced(Client::try_from(config).expect("a client"), "foo")).await
    })
}
