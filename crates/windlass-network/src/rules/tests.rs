//! The rules are followed by hand: where does a packet go?

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Where a connection may go by the rules of a chain, with these clients remembered by no endpoint.
fn targets(ruleset: &Ruleset, chain: &str, from: Ipv4Addr) -> BTreeSet<SocketAddrV4> {
    let mut found = BTreeSet::new();
    for rule in &ruleset.chains[chain].rules {
        let mut may_match = true;
        let mut ends = true;
        for step in rule {
            match step {
                Do::From(range) if !range.contains(from.into()) => may_match = false,
                Do::FromSet(_) => may_match = false,
                Do::OneIn(_) => ends = false,
                Do::Choose(all) if may_match => {
                    found.extend(all.iter().map(|(address, port)| SocketAddrV4::new(*address, *port)));
                }
                Do::Forward(address, port) if may_match => {
                    found.insert(SocketAddrV4::new(*address, *port));
                }
                Do::Verdict(Verdict::Goto(next)) if may_match => found.extend(targets(ruleset, next, from)),
                _ => {}
            }
        }
        if may_match && ends {
            break;
        }
    }
    found
}

/// The chain that an address and a port lead to.
fn service_chain(ruleset: &Ruleset, address: &str, protocol: u8, port: u16) -> Option<String> {
    let SetKind::Verdicts(map) = &ruleset.sets[SERVICES].kind else { return None };
    let mut key = address.parse::<Ipv4Addr>().expect("an address").octets().to_vec();
    key.extend(protocol_port(protocol, port));
    match map.get(&key)? {
        Verdict::Goto(chain) => Some(chain.clone()),
        other => panic!("{other:?}"),
    }
}

fn directory(spec: &Value, pods: &[(u8, &str)]) -> Directory {
    let endpoints: Vec<Value> =
        pods.iter().map(|(pod, node)| json!({"addresses": [format!("10.244.0.{pod}")], "nodeName": node})).collect();
    let slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 8080}]});
    let slice = serde_json::from_value(slice).expect("a slice");
    let service = serde_json::from_value(json!({"spec": spec})).expect("a service");
    let mut directory = Directory::default();
    directory.set(&ServiceName::new("default", "web"), Some(Service::new(&service, [&slice])));
    directory
}

fn layout() -> Layout {
    let nodes = [("a", "10.244.0.0/25"), ("b", "10.244.0.128/25")];
    let nodes = nodes.map(|(name, range)| (name.to_owned(), range.parse().expect("a range")));
    Layout { services: "10.96.0.0/12".parse().ok(), nodes: BTreeMap::from(nodes), ..Layout::default() }
}

fn pod(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 244, 0, number), 8080)
}

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 9);

#[test]
fn addresses_and_node_ports_lead_to_endpoints() {
    let spec = json!({
        "clusterIP": "10.96.0.7", "externalIPs": ["192.0.2.7"], "ports": [{"port": 80, "nodePort": 30080}],
    });
    let rules = ruleset(&directory(&spec, &[(2, "a"), (3, "a")]), &layout());
    let chain = service_chain(&rules, "10.96.0.7", 6, 80).expect("a chain");
    assert_eq!(service_chain(&rules, "192.0.2.7", 6, 80).as_ref(), Some(&chain));
    assert_eq!(service_chain(&rules, "10.96.0.7", 17, 80), None);
    assert_eq!(targets(&rules, &chain, CLIENT), BTreeSet::from([pod(2), pod(3)]));
    let SetKind::Verdicts(ports) = &rules.sets[NODE_PORTS].kind else { panic!("no map") };
    assert_eq!(ports.get(&protocol_port(6, 30080)), Some(&Verdict::Goto(chain)));
}

#[test]
fn a_service_without_endpoints_is_refused() {
    let spec = json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]});
    let rules = ruleset(&directory(&spec, &[]), &layout());
    assert_eq!(service_chain(&rules, "10.96.0.7", 6, 80), None);
    let refuses = |rule: &Vec<Do>| rule.contains(&Do::RejectTcp);
    assert!(rules.chains["forward"].rules.iter().any(refuses));
    assert!(rules.chains["reject"].rules.iter().any(refuses));
}

#[test]
fn local_traffic_stays_on_the_node() {
    let spec = json!({"clusterIP": "10.96.0.7", "internalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    let rules = ruleset(&directory(&spec, &[(2, "a"), (3, "a")]), &layout());
    let chain = service_chain(&rules, "10.96.0.7", 6, 80).expect("a chain");
    assert_eq!(targets(&rules, &chain, CLIENT), BTreeSet::from([pod(2), pod(3)]));
    assert_eq!(targets(&rules, &chain, Ipv4Addr::new(10, 244, 0, 200)), BTreeSet::new());
    assert_eq!(targets(&rules, &chain, Ipv4Addr::new(172, 18, 0, 2)).len(), 2);
}

#[test]
fn clients_are_remembered_for_each_endpoint() {
    let spec = json!({"clusterIP": "10.96.0.7", "sessionAffinity": "ClientIP", "ports": [{"port": 80}]});
    let rules = ruleset(&directory(&spec, &[(2, "a"), (3, "a"), (4, "a")]), &layout());
    let chain = service_chain(&rules, "10.96.0.7", 6, 80).expect("a chain");
    assert_eq!(targets(&rules, &chain, CLIENT).len(), 3);
    let shares: Vec<&Do> =
        rules.chains[&chain].rules.iter().flatten().filter(|step| matches!(step, Do::OneIn(_))).collect();
    assert_eq!(shares, [&Do::OneIn(3), &Do::OneIn(2)]);
    let dynamic = rules.sets.values().filter(|set| matches!(set.kind, SetKind::Dynamic(10_800_000))).count();
    assert_eq!(dynamic, 3);
}

#[test]
fn local_programs_and_host_ports_are_reached() {
    let spec = json!({"clusterIP": "10.96.0.1", "ports": [{"port": 443}]});
    let mut layout = layout();
    let server = SocketAddrV4::new(Ipv4Addr::new(169, 254, 20, 10), 4711);
    let address = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 1), 443);
    layout.local.insert((Protocol::Tcp, address), server);
    layout.host_ports.insert((Protocol::Tcp, 8080), pod(5));
    let rules = ruleset(&directory(&spec, &[]), &layout);
    let chain = service_chain(&rules, "10.96.0.1", 6, 443).expect("a chain");
    assert_eq!(targets(&rules, &chain, CLIENT), BTreeSet::from([server]));
    assert_eq!(targets(&rules, "host-port/tcp/8080", CLIENT), BTreeSet::from([pod(5)]));
}

proptest! {
    /// Every chain that is named exists, every set as well, and a Service leads to exactly its endpoints.
    #[test]
    fn rules_are_complete(pods in prop::collection::btree_set(2_u8..40, 0..8), affinity in any::<bool>(), local in any::<bool>()) {
        let spec = json!({
            "clusterIP": "10.96.0.7", "ports": [{"port": 80, "nodePort": 30080}],
            "sessionAffinity": if affinity { "ClientIP" } else { "None" },
            "internalTrafficPolicy": if local { "Local" } else { "Cluster" },
        });
        let pods: Vec<(u8, &str)> = pods.into_iter().map(|pod| (pod, "a")).collect();
        let rules = ruleset(&directory(&spec, &pods), &layout());
        for step in rules.chains.values().flat_map(|chain| chain.rules.iter().flatten()) {
            match step {
                Do::Verdict(Verdict::Goto(chain) | Verdict::Jump(chain)) => prop_assert!(rules.chains.contains_key(chain)),
                Do::Service(set) | Do::NodePort(set) | Do::FromTo(set) | Do::FromSet(set) | Do::Remember(set) => {
                    prop_assert!(rules.sets.contains_key(set));
                }
                Do::Choose(all) => prop_assert!(all.len() > 1),
                _ => {}
            }
        }
        let expected: BTreeSet<SocketAddrV4> = pods.iter().map(|(number, _)| pod(*number)).collect();
        match service_chain(&rules, "10.96.0.7", 6, 80) {
            Some(chain) => prop_assert_eq!(targets(&rules, &chain, CLIENT), expected),
            None => prop_assert!(expected.is_empty()),
        }
    }
}
