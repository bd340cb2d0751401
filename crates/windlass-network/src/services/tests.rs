//! What Services and slices become.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn service(spec: &Value) -> core::Service {
    serde_json::from_value(json!({"spec": spec})).expect("a service")
}

fn slice(endpoints: &Value, ports: &Value) -> discovery::EndpointSlice {
    let slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": ports});
    serde_json::from_value(slice).expect("a slice")
}

/// The addresses that the first port of a Service leads to.
fn check(spec: &Value, slices: &[discovery::EndpointSlice], expected: &[&str]) {
    let found = Service::new(&service(spec), slices);
    let addresses: Vec<String> = found.ports[0].backends.iter().map(|one| one.address.to_string()).collect();
    assert_eq!(addresses, expected, "{spec}");
}

#[test]
fn ports_lead_to_ready_endpoints() {
    let http = json!([{"name": "http", "port": 8080}, {"name": "metrics", "port": 9090}]);
    let spec = json!({"clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 80}]});
    let ready = json!([
        {"addresses": ["10.244.0.3"], "conditions": {"ready": true}},
        {"addresses": ["10.244.0.2", "10.244.0.9"]},
        {"addresses": ["10.244.0.4"], "conditions": {"ready": false}},
        {"addresses": ["10.244.0.5"], "conditions": {"ready": false, "serving": true, "terminating": true}},
    ]);
    check(&spec, &[slice(&ready, &http)], &["10.244.0.2:8080", "10.244.0.3:8080"]);
    // The same endpoint in two slices counts once.
    check(&spec, &[slice(&ready, &http), slice(&ready, &http)], &["10.244.0.2:8080", "10.244.0.3:8080"]);
    // Nothing is ready: what still serves while it terminates is better than nothing.
    let ending = json!([
        {"addresses": ["10.244.0.5"], "conditions": {"ready": false, "serving": true, "terminating": true}},
        {"addresses": ["10.244.0.6"], "conditions": {"ready": false, "serving": false, "terminating": true}},
    ]);
    check(&spec, &[slice(&ending, &http)], &["10.244.0.5:8080"]);
    // Ports match by name and protocol.
    let other = json!({"clusterIP": "10.96.0.7", "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]});
    check(&other, &[slice(&ready, &http)], &[]);
    check(&other, &[slice(&ready, &json!([{"name": "dns", "port": 53}]))], &[]);
    // An endpoint of another family cannot be reached at the Service's address.
    let six: discovery::EndpointSlice = serde_json::from_value(json!({
        "addressType": "IPv6", "endpoints": [{"addresses": ["fd00::1"]}], "ports": http,
    }))
    .expect("a slice");
    check(&spec, &[six], &[]);
}

#[test]
fn kinds_are_told_apart() {
    let check = |spec: &Value, expected: Kind| assert_eq!(Service::new(&service(spec), []).kind, expected, "{spec}");
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    check(&json!({"clusterIP": "None"}), Kind::Headless);
    check(&json!({"clusterIP": "10.96.0.7"}), Kind::Cluster(vec![ip("10.96.0.7")]));
    let both = json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00::7"]});
    check(&both, Kind::Cluster(vec![ip("10.96.0.7"), ip("fd00::7")]));
    let external = json!({"type": "ExternalName", "externalName": "example.com", "ports": [{"port": 80}]});
    check(&external, Kind::ExternalName("example.com".to_owned()));
    assert!(Service::new(&service(&external), []).ports.is_empty());
}

#[test]
fn options_of_services_are_read() {
    let spec = json!({
        "type": "LoadBalancer", "clusterIP": "10.96.0.7", "externalIPs": ["192.0.2.7"], "internalTrafficPolicy": "Local",
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        "ports": [{"port": 80, "nodePort": 30080}],
    });
    let found = Service::new(&service(&spec), []);
    assert_eq!((found.affinity, found.local_only), (Some(Duration::from_secs(60)), true));
    assert_eq!(found.load_balancer, Some(LoadBalancer { class: None }));
    assert_eq!(found.external_ips, ["192.0.2.7".parse::<IpAddr>().expect("an address")]);
    assert_eq!(found.ports[0].node_port, Some(30080));
    let default = Service::new(&service(&json!({"sessionAffinity": "ClientIP"})), []);
    assert_eq!(default.affinity, Some(DEFAULT_AFFINITY));
}

/// An endpoint at one of a few addresses, in any state.
fn any_endpoint() -> impl Strategy<Value = Value> {
    let condition = || prop::option::of(any::<bool>());
    (0_u8..6, condition(), condition(), condition()).prop_map(|(address, ready, serving, terminating)| {
        let conditions = json!({"ready": ready, "serving": serving, "terminating": terminating});
        json!({"addresses": [format!("10.244.0.{address}")], "conditions": conditions})
    })
}

fn any_service() -> impl Strategy<Value = Option<Service>> {
    let slices = prop::collection::vec(prop::collection::vec(any_endpoint(), 0..5), 0..3);
    let made = (slices, 0_u8..4).prop_map(|(slices, address)| {
        let spec = json!({"clusterIP": format!("10.96.0.{address}"), "ports": [{"port": 80}]});
        let ports = json!([{"port": 8080}]);
        let slices: Vec<_> = slices.iter().map(|endpoints| slice(&json!(endpoints), &ports)).collect();
        Service::new(&service(&spec), &slices)
    });
    prop::option::of(made)
}

proptest! {
    #[test]
    fn backends_are_sorted_unique_and_of_the_slices(slices in prop::collection::vec(prop::collection::vec(any_endpoint(), 0..6), 0..4)) {
        let spec = json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]});
        let slices: Vec<_> = slices.iter().map(|endpoints| slice(&json!(endpoints), &json!([{"port": 8080}]))).collect();
        let found = Service::new(&service(&spec), &slices);
        let backends: Vec<SocketAddr> = found.ports[0].backends.iter().map(|one| one.address).collect();
        prop_assert!(backends.windows(2).all(|pair| pair[0] < pair[1]));
        let any_ready = found.endpoints.iter().any(|one| one.ready);
        for backend in &backends {
            let endpoint = found.endpoints.iter().any(|one| one.address == backend.ip() && (one.ready || !any_ready));
            prop_assert!(endpoint, "{} is no endpoint", backend);
        }
        for endpoint in found.endpoints.iter().filter(|one| one.ready) {
            prop_assert!(backends.iter().any(|one| one.ip() == endpoint.address), "{} has no traffic", endpoint.address);
        }
        // The order of slices does not matter.
        let reversed: Vec<_> = slices.iter().rev().cloned().collect();
        prop_assert_eq!(Service::new(&service(&spec), &reversed), found);
    }

    #[test]
    fn a_directory_is_what_was_set_last(steps in prop::collection::vec((0_u8..4, any_service()), 0..24)) {
        let mut directory = Directory::default();
        let mut last = std::collections::BTreeMap::new();
        for (name, service) in steps {
            let name = ServiceName::new("default", format!("web-{name}"));
            directory.set(&name, service.clone());
            prop_assert!(!directory.set(&name, service.clone()), "the same again changes nothing");
            last.insert(name, service);
        }
        let mut fresh = Directory::default();
        for (name, service) in &last {
            fresh.set(name, service.clone());
            prop_assert_eq!(directory.get(&name.namespace, &name.name).map(|one| &**one), service.as_ref());
        }
        for address in 0..6_u8 {
            let endpoint = IpAddr::from([10, 244, 0, address]);
            let named = |all: &Directory| all.with_endpoint(endpoint).map(|(name, _)| name.clone()).collect::<Vec<_>>();
            prop_assert_eq!(named(&directory), named(&fresh));
        }
    }
}
