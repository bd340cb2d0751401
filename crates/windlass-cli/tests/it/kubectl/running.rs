//! kubectl with pods that really run: logs with their options, commands and terminals, copies, ports and proxies. A kubectl of
//! today does this by WebSockets, Debian's by SPDY: `.ci/run old_kubectl` runs the same with `KUBECTL`.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use super::has;
use crate::machine::Machine;
use crate::process::{Running, eventually};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: main
    image: me/web:v1
    command: [sh, -c, "for i in 1 2 3 4 5; do echo line $i; done; exec httpd -f -p 8080 -h /www"]
    volumeMounts: [{name: data, mountPath: /data}]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
    securityContext: {runAsUser: 0}
  - name: zeros
    image: me/web:v1
    command: [sh, -c, "echo side; while true; do nc -l -p 9000 -e busybox dd if=/dev/zero bs=65536 count=512; done"]
---
apiVersion: v1
kind: Pod
metadata: {name: crashed, labels: {app: other}}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: main
    image: me/web:v1
    command: [sh, -c, "if busybox test -f /data/x; then echo second; exec sleep 1000; fi; echo first > /data/x; cat /data/x; exit 3"]
    volumeMounts: [{name: data, mountPath: /data}]
---
apiVersion: v1
kind: Pod
metadata: {name: done}
spec:
  restartPolicy: Never
  containers: [{name: main, image: "me/web:v1", command: [sh, -c, "echo bye; exit 3"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "me/web:v1", stdin: true, command: [sh, -c, "while read line; do echo got $line; done"]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"#;

#[test]
fn pods_that_run_are_read_entered_and_connected_to() {
    let Some(machine) = Machine::with_busybox() else { return };
    machine.apply(PODS);
    for pod in ["web", "reader", "crashed"] {
        let (ready, said) = machine.kubectl(&format!("wait --for=condition=Ready pod/{pod} --timeout=60s"));
        assert!(ready, "{said}{}", machine.run(&format!("describe pod {pod}")));
    }
    logs(&machine);
    commands(&machine);
    terminals(&machine);
    attached(&machine);
    copies(&machine);
    ports(&machine);
    proxies(&machine);
    machine.leaves_nothing();
}

fn logs(machine: &Machine) {
    assert_eq!(machine.run("logs web -c main"), "line 1\nline 2\nline 3\nline 4\nline 5\n");
    assert_eq!(machine.run("logs web -c main --tail=1"), "line 5\n");
    assert_eq!(machine.run("logs web -c main --limit-bytes=9"), "line 1\nli");
    assert_eq!(machine.run("logs web -c main --since=1h").lines().count(), 5);
    assert_eq!(machine.run("logs web -c main --since-time=2100-01-01T00:00:00Z"), "");
    let stamped = machine.run("logs web -c main --timestamps --tail=1");
    let (time, line) = stamped.split_once(' ').unwrap();
    assert!(time.parse::<k8s_openapi::jiff::Timestamp>().is_ok() && line == "line 5\n", "{stamped}");
    has(&machine.run("logs web --all-containers --prefix"), &["[pod/web/main] line 5\n", "[pod/web/zeros] side\n"]);
    has(&machine.run("logs -l app=web -c zeros --prefix"), &["[pod/web/zeros] side\n"]);
    eventually("the container was started again", || (machine.run("logs crashed") == "second\n").then_some(()));
    assert_eq!(machine.run("logs crashed --previous"), "first\n");
    let (found, said) = machine.kubectl("logs web -c main --previous");
    assert!(!found && said.contains("previous terminated container \"main\" in pod \"web\" not found"), "{said}");
    // A pod that has ended can be read until it is deleted, also by another process of the cluster.
    let done = || machine.run("get pod done -o jsonpath={.status.phase}") == "Failed";
    eventually("the pod has ended", || done().then_some(()));
    assert_eq!(machine.run("logs done"), "bye\n");
    let uid = machine.run("get pod done -o jsonpath={.metadata.uid}");
    let dir = machine.sandbox.path("clusters/default/pods").join(uid);
    machine.crash_and_restart();
    assert_eq!(machine.run("logs done"), "bye\n");
    machine.run("delete pod done");
    eventually("its output is gone", || (!dir.exists()).then_some(()));
    let following = Running::spawn(&mut machine.kubectl_command("logs --follow web -c main --tail=1"));
    following.line_with("line 5");
    let more = ["exec", "web", "-c", "main", "--", "sh", "-c", "echo more > /proc/1/fd/1"];
    assert!(machine.kubectl_command("").args(more).status().unwrap().success());
    following.line_with("more");
}

fn commands(machine: &Machine) {
    let script = ["exec", "-i", "web", "-c", "main", "--", "sh", "-c", "cat; echo bad >&2; exit 7"];
    let mut command = machine.kubectl_command("");
    let mut child =
        command.args(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"fed").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()), (Some(7), "fed"));
    has(&String::from_utf8_lossy(&output.stderr), &["bad\n", "command terminated with exit code 7"]);
    let (found, said) = machine.kubectl("exec web -c main -- /no/such");
    assert!(!found && said.contains("no such file"), "{said}");
}

/// `script` gives kubectl a terminal, and ends as it does.
fn terminals(machine: &Machine) {
    let kubectl = machine.kubectl_command("");
    let kubectl = kubectl.get_program().to_string_lossy().into_owned();
    let inner = format!("stty rows 33 cols 99; {kubectl} exec -it web -c main -- sh -c 'stty size; exit 6'");
    let mut command = machine.command("script");
    let output = command.args(["-qec", &inner, "/dev/null"]).stdin(Stdio::null()).output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: there is no `script` to make a terminal");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("33 99"), "the first size counts: {said:?}");
    assert_eq!(output.status.code(), Some(6), "{said}");
}

fn attached(machine: &Machine) {
    let mut command = machine.kubectl_command("attach -i reader -c main");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"this\n").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(line, "got this\n");
}

fn copies(machine: &Machine) {
    let dir = machine.sandbox.path("copied");
    std::fs::create_dir_all(dir.join("deep")).unwrap();
    std::fs::write(dir.join("deep/file"), "content").unwrap();
    machine.run("cp copied web:/data/there -c main");
    assert_eq!(machine.run("exec web -c main -- cat /data/there/deep/file"), "content");
    machine.run("cp web:/data/there back -c main");
    assert_eq!(std::fs::read_to_string(machine.sandbox.path("back/deep/file")).unwrap(), "content");
}

/// A port-forward, and the port that it listens on.
fn forward(machine: &Machine, what: &str) -> (Running, String) {
    let forwarding = Running::spawn(&mut machine.kubectl_command(&format!("port-forward {what}")));
    let line = forwarding.line_with("Forwarding from 127.0.0.1:");
    let port = line.split(':').nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    (forwarding, format!("127.0.0.1:{port}"))
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(crate::process::OUTPUT_TIMEOUT)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn ports(machine: &Machine) {
    for what in ["pod/web :8080", "service/web :80"] {
        let (_forwarding, address) = forward(machine, what);
        // One after the other, with clients that go without a word in between.
        for _ in 0..10 {
            drop(TcpStream::connect(&address).unwrap());
            assert!(get(&address, "/index.html").contains("i am web"), "{what}");
        }
        // And at the same time.
        std::thread::scope(|scope| {
            for client in (0..8).map(|_| scope.spawn(|| get(&address, "/index.html"))).collect::<Vec<_>>() {
                assert!(client.join().unwrap().contains("i am web"), "{what}");
            }
        });
    }
    // Many bytes arrive, all of them.
    let (_forwarding, address) = forward(machine, "pod/web :9000");
    for _ in 0..2 {
        let mut received = Vec::new();
        TcpStream::connect(&address).unwrap().read_to_end(&mut received).unwrap();
        // The program of the connection before may not listen again yet.
        assert!(matches!(received.len(), 0 | 33_554_432), "{}", received.len());
    }
}

fn proxies(machine: &Machine) {
    let proxy = Running::spawn(&mut machine.kubectl_command("proxy --port=0"));
    let address = proxy.line_with("Starting to serve on").rsplit(' ').next().unwrap().to_owned();
    for path in ["services/web:80", "pods/web:8080"] {
        let page = get(&address, &format!("/api/v1/namespaces/default/{path}/proxy/index.html"));
        assert!(page.contains("i am web"), "{path}: {page}");
    }
    let (found, said) = machine.kubectl("get --raw /api/v1/namespaces/default/pods/web:1/proxy/");
    assert!(!found && said.contains("connection refused"), "{said}");
}
