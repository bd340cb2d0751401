//! Real namespaces, real packets: needs root, or a user namespace. All traffic is inside namespaces that a test makes.

#![allow(clippy::print_stderr, reason = "what is skipped is said")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::*;
use crate::policy::{Allow, Isolation, Peers};
use crate::services::{Protocol, Service, ServiceName};

/// A cluster's network in a directory of its own, which is removed in the end.
struct Setting {
    directory: tempfile::TempDir,
    name: &'static str,
    network: Option<ClusterNetwork>,
    servers: JoinSet<()>,
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = remove(self.directory.path(), self.name);
    }
}

/// `None`, loudly, where the kernel does not let this process make networks.
fn setting(name: &'static str) -> Option<Setting> {
    let directory = tempfile::tempdir().expect("a directory");
    match ClusterNetwork::open(Options::new(name, directory.path())) {
        Ok(network) => Some(Setting { directory, name, network: Some(network), servers: JoinSet::new() }),
        Err(error) if is_forbidden(&error) => {
            eprintln!("SKIPPED: networks cannot be made here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether this process lacks the rights.
pub(crate) fn is_forbidden(error: &NetworkError) -> bool {
    let source = match error {
        NetworkError::Namespace { source, .. } | NetworkError::Forwarding { source } => source,
        NetworkError::Kernel(error) => &error.source,
        _ => return false,
    };
    matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn address(pod: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 244, 0, pod)
}

impl Setting {
    fn network(&self) -> &ClusterNetwork {
        self.network.as_ref().expect("it is open")
    }

    /// A pod, whose port 8080 answers with its number and the address that the client has for it.
    async fn pod(&mut self, number: u8) -> Sockets {
        let attachment = self.attach(number);
        let namespace = NetworkNamespace::open(&attachment.namespace).expect("readable").expect("a namespace");
        let sockets = namespace.sockets().expect("a thread");
        let listener = sockets.listen(SocketAddr::from(([0, 0, 0, 0], 8080))).await.expect("a listener");
        self.servers.spawn(async move {
            while let Ok((mut stream, client)) = listener.accept().await {
                let _ = stream.write_all(format!("{number} {}", client.ip()).as_bytes()).await;
            }
        });
        sockets
    }

    fn attach(&self, number: u8) -> Attachment {
        self.network().attach(&pod(number)).expect("an attachment")
    }
}

fn pod(number: u8) -> Pod {
    Pod {
        uid: format!("uid-{number}"),
        namespace: "default".to_owned(),
        name: format!("web-{number}"),
        address: Some(address(number).into()),
        ..Pod::default()
    }
}

fn web(spec: &Value, pods: &[u8]) -> Directory {
    let endpoints: Vec<Value> = pods.iter().map(|pod| json!({"addresses": [address(*pod).to_string()]})).collect();
    let slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 8080}]});
    let slice = serde_json::from_value(slice).expect("a slice");
    let service = serde_json::from_value(json!({"spec": spec})).expect("a service");
    let mut directory = Directory::default();
    directory.set(&ServiceName::new("default", "web"), Some(Service::new(&service, [&slice])));
    directory
}

fn layout() -> Layout {
    let nodes = BTreeMap::from([("node-0".to_owned(), "10.244.0.0/24".parse().expect("a range"))]);
    Layout { services: "10.96.0.0/12".parse().ok(), nodes, ..Layout::default() }
}

/// Who answers at an address, and whom it takes the client for.
async fn ask(from: &Sockets, to: &str) -> io::Result<(u8, String)> {
    let asking = async {
        let mut stream = from.connect(to.parse().expect("an address")).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let (number, client) = text.split_once(' ').ok_or_else(|| io::Error::other(text.clone()))?;
        Ok((number.parse().map_err(io::Error::other)?, client.to_owned()))
    };
    // Only a packet that is lost takes so long.
    tokio::time::timeout(Duration::from_secs(60), asking).await?
}

/// Everybody who answers at an address.
async fn who(from: &Sockets, to: &str) -> BTreeSet<u8> {
    let mut found = BTreeSet::new();
    for _ in 0..40 {
        found.insert(ask(from, to).await.expect("an answer").0);
    }
    found
}

const WEB: &str = "10.96.0.7:80";

#[tokio::test]
async fn pods_reach_pods_and_services() {
    let Some(mut setting) = setting("reach") else { return };
    let (one, two) = (setting.pod(2).await, setting.pod(3).await);
    assert_eq!(ask(&one, "10.244.0.3:8080").await.expect("an answer"), (3, "10.244.0.2".to_owned()));
    assert_eq!(ask(&two, "10.244.0.2:8080").await.expect("an answer"), (2, "10.244.0.3".to_owned()));

    let spec = json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80, "nodePort": 30080}]});
    setting.network().apply(&web(&spec, &[2, 3]), &layout()).expect("applied");
    for from in [&one, &two, setting.network().sockets()] {
        assert_eq!(who(from, WEB).await, BTreeSet::from([2, 3]));
        assert_eq!(who(from, "172.18.0.2:30080").await, BTreeSet::from([2, 3]));
    }
    // A change is in force at once.
    setting.network().apply(&web(&spec, &[3]), &layout()).expect("applied");
    assert_eq!(who(&one, WEB).await, BTreeSet::from([3]));
    // A pod reaches itself through its Service, and appears to be the node.
    assert_eq!(ask(&two, WEB).await.expect("an answer"), (3, "172.18.0.2".to_owned()));
    // No endpoint, or no such port.
    setting.network().apply(&web(&spec, &[]), &layout()).expect("applied");
    for from in [&one, setting.network().sockets()] {
        for to in [WEB, "10.96.0.7:81", "10.99.9.9:80"] {
            let error = ask(from, to).await.expect_err("nobody is there");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{to}");
        }
    }
    // Nothing leaves the cluster.
    let error = ask(&one, "192.0.2.1:80").await.expect_err("there is no way out");
    assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
}

#[tokio::test]
async fn clients_stay_with_their_endpoint() {
    let Some(mut setting) = setting("affinity") else { return };
    let clients = [setting.pod(2).await, setting.pod(3).await, setting.pod(4).await];
    let spec = json!({"clusterIP": "10.96.0.7", "sessionAffinity": "ClientIP", "ports": [{"port": 80}]});
    setting.network().apply(&web(&spec, &[2, 3, 4]), &layout()).expect("applied");
    for client in &clients {
        let chosen = who(client, WEB).await;
        assert_eq!(chosen.len(), 1, "{chosen:?}");
        // Others come and go; the client stays while its endpoint does.
        let kept = *chosen.first().expect("one");
        let other = if kept == 2 { 3 } else { 2 };
        setting.network().apply(&web(&spec, &[other.min(kept), other.max(kept)]), &layout()).expect("applied");
        assert_eq!(who(client, WEB).await, chosen);
        setting.network().apply(&web(&spec, &[other]), &layout()).expect("applied");
        assert_eq!(who(client, WEB).await, BTreeSet::from([other]));
        setting.network().apply(&web(&spec, &[2, 3, 4]), &layout()).expect("applied");
    }
}

#[tokio::test]
async fn programs_of_this_process_are_reached() {
    let Some(mut setting) = setting("local") else { return };
    let client = setting.pod(2).await;
    let listener = setting.network().sockets().listen((LOCAL_ADDRESS, 0).into()).await.expect("a listener");
    let SocketAddr::V4(local) = listener.local_addr().expect("bound") else { panic!("an IPv4 address") };
    setting.servers.spawn(async move {
        while let Ok((mut stream, client)) = listener.accept().await {
            let _ = stream.write_all(format!("77 {}", client.ip()).as_bytes()).await;
        }
    });
    let mut layout = layout();
    let service = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 1), 443);
    layout.local.insert((Protocol::Tcp, service), local);
    layout.host_ports.insert((Protocol::Tcp, 8088), SocketAddrV4::new(address(2), 8080));
    let spec = json!({"clusterIP": "10.96.0.1", "ports": [{"port": 443}]});
    setting.network().apply(&web(&spec, &[]), &layout).expect("applied");
    assert_eq!(ask(&client, "10.96.0.1:443").await.expect("an answer"), (77, "10.244.0.2".to_owned()));
    assert_eq!(ask(setting.network().sockets(), "172.18.0.2:8088").await.expect("an answer").0, 2);
    // Connections that leave the cluster are handed over as well, if they may.
    layout.egress = Some(local);
    setting.network().apply(&web(&spec, &[]), &layout).expect("applied");
    assert_eq!(ask(&client, "192.0.2.1:80").await.expect("an answer").0, 77);
    let error = ask(&client, "10.99.9.9:80").await.expect_err("nobody is there");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn policies_isolate_pods() {
    let Some(mut setting) = setting("policies") else { return };
    let (one, two, three) = (setting.pod(2).await, setting.pod(3).await, setting.pod(4).await);
    let spec = json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]});
    let directory = web(&spec, &[4]);
    let only_two = Allow { peers: Peers::Pods(BTreeSet::from([address(3)])), ports: vec![(Protocol::Tcp, 8080, 8080)] };
    let mut layout = layout();
    let isolation = Isolation { ingress: Some(vec![only_two]), egress: Some(Vec::new()) };
    layout.policies.insert(address(4), isolation);
    setting.network().apply(&directory, &layout).expect("applied");
    let is_dropped = async |from: &Sockets, to: &str| {
        let asking = tokio::time::timeout(Duration::from_millis(300), ask(from, to)).await;
        asking.is_err()
    };
    assert_eq!(ask(&two, "10.244.0.4:8080").await.expect("allowed").0, 4);
    assert_eq!(ask(&two, WEB).await.expect("allowed through the Service as well").0, 4);
    assert!(is_dropped(&one, "10.244.0.4:8080").await && is_dropped(&one, WEB).await);
    assert!(is_dropped(&three, "10.244.0.2:8080").await, "it may reach nobody");
    assert_eq!(ask(&three, WEB).await.expect("but itself").0, 4);
    assert_eq!(ask(setting.network().sockets(), "10.244.0.4:8080").await.expect("the node may").0, 4);
    assert_eq!(ask(&one, "10.244.0.3:8080").await.expect("these are not isolated").0, 3);
    layout.policies.clear();
    setting.network().apply(&directory, &layout).expect("applied");
    assert_eq!(ask(&one, WEB).await.expect("an answer").0, 4);
}

#[tokio::test]
async fn clusters_with_the_same_addresses_are_isolated() {
    let (Some(mut one), Some(mut other)) = (setting("one"), setting("other")) else { return };
    let client = one.pod(2).await;
    other.pod(2).await;
    let alone = other.pod(9).await;
    let error = ask(&client, "10.244.0.9:8080").await.expect_err("it is in the other cluster");
    assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
    assert_eq!(ask(&alone, "10.244.0.2:8080").await.expect("an answer").0, 2);
    assert!(!one.network().namespace().is(other.network().namespace()).expect("comparable"));
}

#[tokio::test]
async fn a_network_survives_its_process() {
    let Some(mut setting) = setting("survivor") else { return };
    let one = setting.pod(2).await;
    let spec = json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]});
    setting.network().apply(&web(&spec, &[2]), &layout()).expect("applied");
    setting.network = None;
    assert_eq!(ask(&one, WEB).await.expect("an answer").0, 2, "the rules are the kernel's");

    let options = Options::new("survivor", setting.directory.path());
    setting.network = Some(ClusterNetwork::open(options).expect("a network"));
    assert_eq!(setting.network().pods().expect("pods"), BTreeMap::from([("uid-2".to_owned(), address(2))]));
    // The pod keeps its namespace: its server still listens there.
    setting.attach(2);
    assert_eq!(ask(setting.network().sockets(), "10.244.0.2:8080").await.expect("an answer").0, 2);
    setting.network().apply(&web(&spec, &[2]), &layout()).expect("applied");
    assert_eq!(ask(&one, WEB).await.expect("an answer").0, 2);

    setting.attach(3);
    setting.network().retain(|uid| uid == "uid-2").expect("detached");
    assert_eq!(setting.network().pods().expect("pods").len(), 1);
    assert!(setting.network().detach("uid-2").expect("detached"));
    assert!(!setting.network().detach("uid-2").expect("nothing to do"));
}

#[tokio::test]
async fn nothing_is_left_behind() {
    let Some(mut setting) = setting("leaver") else { return };
    setting.pod(2).await;
    setting.pod(3).await;
    let directory = setting.directory.path().to_owned();
    let count = |kind: fn(&Leftover) -> bool| {
        leftovers(&directory, "leaver").expect("a list").iter().filter(|one| kind(one)).count()
    };
    assert_eq!(count(|one| matches!(one, Leftover::Namespace(_))), 3);
    assert_eq!(count(|one| matches!(one, Leftover::Link(_))), 2);
    // As after kill -9: nothing was cleaned up.
    setting.network = None;
    remove(&directory, "leaver").expect("removed");
    assert_eq!(leftovers(&directory, "leaver").expect("a list"), []);
    assert_eq!(std::fs::read_dir(&directory).expect("a directory").count(), 0);
    remove(&directory, "leaver").expect("there is nothing to remove");
}

#[test]
fn guard_routes_lead_nowhere() {
    let Ok(machine) = NetworkNamespace::create() else {
        eprintln!("SKIPPED: network namespaces cannot be made here");
        return;
    };
    let ranges: [Range; 2] = ["10.96.0.0/12", "10.244.0.0/16"].map(|range| range.parse().expect("a range"));
    let run = machine.run(move || {
        let routes = Routes::open().expect("a socket");
        let lo = routes.index("lo").expect("a link");
        routes.up(lo).expect("up");
        // The machine's default route, which would take everything.
        let default = Route { to: Range::all(), via: Via::Link(lo, None), priority: 0 };
        routes.add_route(&default).expect("added");
        let (one, other) = (Guard::new("one"), Guard::new("other"));
        one.add(&ranges).expect("added");
        one.add(&ranges).expect("added already");
        other.add(&ranges).expect("added");
        assert_eq!(one.routes().expect("a list"), ranges);
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let error = socket.connect("10.96.0.1:443").expect_err("unreachable");
        assert_eq!(error.kind(), io::ErrorKind::HostUnreachable);
        assert!(socket.connect("10.95.0.1:443").is_ok());
        one.remove().expect("removed");
        assert_eq!(one.routes().expect("a list"), []);
        assert!(socket.connect("10.96.0.1:443").is_err(), "the other cluster's guard is still there");
        other.remove().expect("removed");
        assert!(socket.connect("10.96.0.1:443").is_ok());
    });
    run.expect("no panic");
}

#[test]
fn names_become_paths_only_if_they_are_plain() {
    for name in ["", "..", "a/b", ".hidden"] {
        assert!(matches!(check_name(name), Err(NetworkError::Name { .. })), "{name}");
    }
    assert!(check_name("7d2f-uid_1.x").is_ok());
}
