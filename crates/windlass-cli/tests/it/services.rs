//! Names, Services, Ingresses and NetworkPolicies of a cluster whose pods run, as programs in pods and on the machine use them.
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use windlass_server::pki::Authority;

use crate::machine::Machine;
use crate::process::eventually;

/// Two pods with names of their own, which say who they are at port 8080.
const WORKLOADS: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: http, port: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: me/web:v1
        command: [sh, -c, "echo i am $HOSTNAME > /www/index.html; exec httpd -f -p 8080 -h /www"]
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
        securityContext: {runAsUser: 0}
---
apiVersion: v1
kind: Service
metadata: {name: pinned}
spec: {sessionAffinity: ClientIP, selector: {app: db}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: alias}
spec: {type: ExternalName, externalName: db-1.db.default.svc.cluster.local}
---
apiVersion: v1
kind: Service
metadata: {name: node}
spec: {type: NodePort, selector: {app: db}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec: {type: LoadBalancer, selector: {app: db}, ports: [{port: 8081, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: host}
spec: {selector: {app: host}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: host, labels: {app: host}}
spec:
  terminationGracePeriodSeconds: 0
  hostNetwork: true
  containers:
  - name: main
    image: me/web:v1
    command: [sh, -c, "echo i am the host > /www/index.html; exec httpd -f -p 8080 -h /www"]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
    securityContext: {runAsUser: 0}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "me/web:v1", command: [sleep, "1000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: friend, labels: {access: granted}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "me/web:v1", command: [sleep, "1000"]}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: secure}
spec:
  tls: [{hosts: [web.example.com], secretName: certificate}]
  rules:
  - host: web.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: node, port: {number: 80}}}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: otherwise}
spec: {defaultBackend: {service: {name: host, port: {number: 80}}}}
"#;

const POLICY: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends}
spec:
  podSelector: {matchLabels: {app: db}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {access: granted}}}], ports: [{port: 8080}]}]
";

#[test]
fn services_are_reached_in_every_way() {
    if let Some(machine) = Machine::with_busybox() {
        are_reached(machine);
    }
}

#[test]
fn services_without_root_are_reached_in_every_way() {
    if let Some(machine) = Machine::without_root() {
        are_reached(machine);
    }
}

fn are_reached(machine: Machine) {
    let authority = Authority::generate().unwrap();
    let identity = authority.server(&["web.example.com".to_owned()]).unwrap();
    for (file, text) in [("tls.crt", &identity.certificate), ("tls.key", &identity.key)] {
        std::fs::write(machine.sandbox.path(file), text).unwrap();
    }
    machine.run("create secret tls certificate --cert=tls.crt --key=tls.key");
    machine.apply(WORKLOADS);
    // The StatefulSet makes its pods after it is created.
    eventually("the pods are there", || machine.kubectl("get pod db-0 db-1").0.then_some(()));
    for pod in ["db-0", "db-1", "host", "client", "friend"] {
        machine.is_ready(pod);
    }
    names_are_resolved(&machine);
    are_reached_in_the_cluster(&machine);
    are_reached_from_the_machine(&machine, &authority);
    policies_are_enforced(&machine);
    machine.leaves_nothing();
}

fn names_are_resolved(machine: &Machine) {
    let address = |pod: &str| machine.run(&format!("get pod {pod} -o jsonpath={{.status.podIP}}"));
    let addresses = [address("db-0"), address("db-1")];
    let look_up =
        |kind: &str, name: &str| machine.in_pod("client", &format!("busybox nslookup -type={kind} {name}"), name);
    for (pod, address) in ["db-0", "db-1"].into_iter().zip(&addresses) {
        assert!(look_up("a", &format!("{pod}.db.default.svc.cluster.local")).contains(address), "{address}");
        machine.in_pod("client", &format!("fetch {pod}.db 8080"), &format!("i am {pod}"));
    }
    let all = look_up("a", "db.default.svc.cluster.local");
    assert!(addresses.iter().all(|address| all.contains(address)), "{all}");
    let services = look_up("srv", "_http._tcp.db.default.svc.cluster.local");
    for pod in ["db-0", "db-1"] {
        assert!(services.contains(&format!("8080 {pod}.db.default.svc.cluster.local")), "{services}");
    }
    let alias = look_up("cname", "alias.default.svc.cluster.local");
    assert!(alias.contains("db-1.db.default.svc.cluster.local"), "{alias}");
    machine.in_pod("client", "fetch alias 8080", "i am db-1");
}

fn are_reached_in_the_cluster(machine: &Machine) {
    // The same pod every time; without affinity they take turns.
    let ask = |service: &str| -> std::collections::BTreeSet<String> {
        let said = machine
            .script("client", &format!("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do fetch {service} 80; done"));
        said.lines().filter(|line| line.starts_with("i am ")).map(str::to_owned).collect()
    };
    machine.in_pod("client", "fetch pinned 80", "i am db-");
    assert_eq!(ask("pinned").len(), 1);
    assert_eq!(ask("node").len(), 2);
    // A pod in the node's network is at the node's address, as a NodePort is.
    let node = machine.run("get node -o jsonpath={.items[0].status.addresses[0].address}");
    assert_eq!(machine.run("get pod host -o jsonpath={.status.podIP}"), node);
    machine.in_pod("client", &format!("fetch {node} 8080"), "i am the host");
    machine.in_pod("client", "fetch host 80", "i am the host");
    machine.in_pod("client", &format!("fetch {node} {}", node_port(machine)), "i am db-");
}

fn node_port(machine: &Machine) -> String {
    machine.run("get service node -o jsonpath={.spec.ports[0].nodePort}")
}

/// What a server answers to a request for its page.
fn exchange(mut stream: impl Read + Write, host: &str) -> Option<String> {
    write!(stream, "GET /index.html HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").ok()?;
    let mut bytes = Vec::new();
    // A server may end without saying so.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).ok()
}

fn are_reached_from_the_machine(machine: &Machine, authority: &Authority) {
    let page = |address: &str, host: &str, wanted: &str| {
        eventually(&format!("{wanted} at {address}"), || {
            exchange(TcpStream::connect(address).ok()?, host).filter(|said| said.contains(wanted))
        })
    };
    page(&format!("127.0.0.1:{}", node_port(machine)), "localhost", "i am db-");
    let balanced = eventually("the Service has an address", || {
        let path = "get service balanced -o jsonpath={.status.loadBalancer.ingress[0].ip}";
        Some(machine.run(path)).filter(|address| !address.is_empty())
    });
    assert!(balanced.starts_with("127."), "{balanced}");
    page(&format!("{balanced}:8081"), "localhost", "i am db-");

    // Hosts of Ingresses, and what is of no Ingress with a host.
    let ports = eventually("the Ingress has an address", || {
        let path = "get ingress secure -o jsonpath={.status.loadBalancer.ingress[0].ports[*].port}";
        let ports: Vec<String> = machine.run(path).split_whitespace().map(str::to_owned).collect();
        (ports.len() == 2).then_some(ports)
    });
    let (http, https) = (format!("127.0.0.1:{}", ports[0]), format!("127.0.0.1:{}", ports[1]));
    page(&http, "other.example.com", "i am the host");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let said = eventually("the page by TLS", || {
        let name = ServerName::try_from("web.example.com").unwrap();
        let connection = ClientConnection::new(Arc::clone(&config), name).ok()?;
        exchange(StreamOwned::new(connection, TcpStream::connect(&https).ok()?), "web.example.com")
            .filter(|said| said.contains("i am "))
    });
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("i am db-"), "{said}");
}

fn policies_are_enforced(machine: &Machine) {
    machine.apply(POLICY);
    eventually("the policy keeps a pod out", || {
        let (success, _) = machine.kubectl("exec client -- busybox nc -w 1 pinned 80");
        (!success).then_some(())
    });
    machine.in_pod("friend", "fetch pinned 80", "i am db-");
    machine.in_pod("friend", "fetch db-0.db 8080", "i am db-0");
    machine.run("delete networkpolicy friends");
    machine.in_pod("client", "fetch pinned 80", "i am db-");
}
