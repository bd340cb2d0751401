//! `windlass up --runtime container`: pods that run on this machine, as kubectl sees them.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::machine::{Machine, UP, has_network};
use crate::process::eventually;
use crate::windlass::Sandbox;

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: me/web:v1
    command: [sh, -c, "echo hello from $HOSTNAME; exec httpd -f -p 8080 -h /www"]
    ports: [{name: http, containerPort: 8080, hostPort: HOSTPORT}]
    readinessProbe: {httpGet: {path: /index.html, port: http}, periodSeconds: 1}
    securityContext: {runAsUser: 0}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}}]}
"#;

const CLIENT: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "me/web:v1", command: [sleep, "1000"]}]
"#;

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
fn auto_says_which_runtime_it_has_chosen() {
    let sandbox = Sandbox::new();
    let doctor = sandbox.windlass("doctor --kubeconfig none").stdout;
    let up = UP.replace("--runtime container", "--runtime auto");
    let said = sandbox.windlass(&up);
    assert!(said.status.success(), "{said:?}");
    sandbox.succeeds("down");
    let has_containers = doctor.contains("run in containers");
    assert_eq!(said.stderr.contains("pods run in containers"), has_containers, "{said:?} {doctor}");
    assert_eq!(said.stderr.contains("pods are processes of this machine"), !has_containers, "{said:?} {doctor}");
}

#[test]
fn a_start_that_fails_leaves_no_network() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("taken"), "a file").unwrap();
    // Without root there are no containers either, and it fails for that.
    let said = sandbox.fails(&format!("{UP} --data-dir taken"));
    assert!(said.contains("the cluster did not start"), "{said}");
    assert!(!has_network(&sandbox));
}

#[test]
fn the_nodes_of_another_runtime_go() {
    let sandbox = Sandbox::new();
    let nodes = || {
        let kubeconfig = sandbox.user_kubeconfig();
        let mut command = std::process::Command::new(std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into()));
        let output = command.args(["get", "nodes", "-o", "name"]).env("KUBECONFIG", kubeconfig).output().ok()?;
        Some(String::from_utf8(output.stdout).unwrap())
    };
    sandbox.succeeds("up");
    eventually("a node is registered", || nodes().is_none_or(|names| names.contains("node/node-0")).then_some(()));
    sandbox.succeeds("down");
    // Pods that are made now must not wait on a node that nothing runs.
    let said = sandbox.windlass("up --runtime process");
    let has_kubectl = nodes().is_some();
    eventually("only this machine is a node", || nodes().is_none_or(|names| names == "node/default\n").then_some(()));
    sandbox.succeeds("down");
    assert!(!has_kubectl || said.stderr.contains("deleted the nodes node-0"), "{}", said.stderr);
    // The other way round.
    let said = sandbox.windlass("up");
    eventually("no node is this machine", || nodes().is_none_or(|names| names == "node/node-0\n").then_some(()));
    sandbox.succeeds("down");
    assert!(!has_kubectl || said.stderr.contains("pods are simulated now"), "{}", said.stderr);
    assert!(sandbox.processes().is_empty());
}

/// A page from a port of this machine.
fn get(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /index.html HTTP/1.0\r\nhost: localhost\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A port that is free at the moment.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn pods_reach_each_other_and_are_reached() {
    if let Some(machine) = Machine::with_busybox() {
        run_everything(machine);
    }
}

#[test]
fn pods_of_an_unprivileged_user_do_the_same() {
    if let Some(machine) = Machine::without_root() {
        run_everything(machine);
    }
}

fn run_everything(machine: Machine) {
    let host_port = free_port();
    machine.apply(&PODS.replace("HOSTPORT", &host_port.to_string()));
    assert!(
        machine.kubectl("wait --for=condition=Ready pod/web --timeout=60s").0,
        "{}",
        machine.run("describe pod web")
    );
    assert_eq!(machine.run("logs web"), "hello from web\n");
    assert!(!machine.kubectl("exec web -- busybox false").0);
    assert!(machine.run("exec web -- busybox id -u").contains('0'));
    let conditions = machine.run("get node -o jsonpath={.items[0].status.conditions[*].reason}");
    assert!(!conditions.contains("LoopbackOnly"), "{conditions}");

    // A pod that starts after the Service knows it by variables, and by its name.
    machine.apply(CLIENT);
    machine.run("wait --for=condition=Ready pod/client --timeout=60s");
    let address = machine.run("get pod web -o jsonpath={.status.podIP}");
    assert!(address.starts_with("10.244."), "{address}");
    machine.in_pod("client", &format!("fetch {address} 8080"), "i am web");
    machine.in_pod("client", "fetch web 80", "i am web");
    machine.in_pod("client", "fetch web.default.svc.cluster.local 80", "i am web");
    let resolv_conf = machine.run("exec client -- cat /etc/resolv.conf");
    let search = "search default.svc.cluster.local svc.cluster.local cluster.local\n";
    assert!(resolv_conf.starts_with(search), "{resolv_conf}");
    let variables = machine.run("exec client -- env");
    for name in
        ["WEB_SERVICE_HOST=10.", "WEB_SERVICE_PORT_HTTP=80", "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_PORT="]
    {
        assert!(variables.contains(name), "no {name} in {variables}");
    }
    // The API server, which wants encryption.
    machine.in_pod("client", "fetch kubernetes.default 443", "");

    // From the machine: by a port of the host, by an Ingress, and through the API server.
    let page = |address: &str| eventually(address, || get(address).filter(|text| text.contains("i am web")));
    page(&format!("127.0.0.1:{host_port}"));
    let ingress = machine.said.lines().find_map(|line| line.strip_prefix("Ingresses are served at http://")).unwrap();
    page(ingress);
    let status = "get ingress web -o jsonpath={.status.loadBalancer.ingress[0].ports[0].port}";
    let port = eventually("the Ingress has an address", || Some(machine.run(status)).filter(|port| !port.is_empty()));
    assert!(ingress.ends_with(&format!(":{port}")), "{ingress} {port}");
    for path in ["services/web:http", "services/web:80", "pods/web:8080"] {
        let said = machine.run(&format!("get --raw /api/v1/namespaces/default/{path}/proxy/index.html"));
        assert_eq!(said, "i am web\n", "{path}");
    }

    // After a crash everything is as before: the same processes, and the ways to them.
    let started = "get pod web -o jsonpath={.status.containerStatuses[0].containerID}";
    let (before, parents) = (machine.run(started), machine.parents());
    assert_eq!(parents.len(), 2);
    machine.crash_and_restart();
    machine.in_pod("client", "fetch web 80", "i am web");
    page(&format!("127.0.0.1:{host_port}"));
    assert_eq!((machine.run(started), machine.parents()), (before, parents));

    machine.run("delete pod web");
    let gone = eventually("the Service has no endpoint", || {
        let (success, said) = machine.kubectl("exec client -- fetch web 80");
        (!success).then_some(said)
    });
    assert!(gone.contains("refused"), "{gone}");
    machine.leaves_nothing();
}
