//! NetworkPolicies: who may reach a pod, and whom it may reach. A pure function from policies, pods and namespaces.
//!
//! A pod that no policy selects may reach everybody and be reached by everybody. One that policies of a direction select is
//! isolated in that direction: only what one of their rules allows goes through. A node always reaches its pods, and pods
//! always reach the cluster's DNS.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use k8s_openapi::api::networking::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Selector, SelectorExt as _};

use crate::range::Range;
use crate::services::Protocol;

/// Labels of a pod or a namespace.
pub type Labels = BTreeMap<String, String>;

/// What policies look at in a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInfo {
    /// Its namespace.
    pub namespace: String,
    /// Its labels.
    pub labels: Labels,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its ports by name.
    pub ports: BTreeMap<(String, Protocol), u16>,
}

/// What isolates pods, by their addresses.
pub type Policies = BTreeMap<Ipv4Addr, Isolation>;

/// What isolates a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Isolation {
    /// What may reach the pod; `None` if everything may.
    pub ingress: Option<Vec<Allow>>,
    /// What the pod may reach; `None` if it may reach everything.
    pub egress: Option<Vec<Allow>>,
}

/// Traffic that goes through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    /// With whom.
    pub peers: Peers,
    /// With which ports of the one who is reached, first and last; with all of them if there are none.
    pub ports: Vec<(Protocol, u16, u16)>,
}

/// Who is on the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peers {
    /// Anybody.
    All,
    /// These pods.
    Pods(BTreeSet<Ipv4Addr>),
    /// A range, without others.
    Block(Range, Vec<Range>),
}

/// What isolates the pods of a cluster.
pub fn policies<'a>(
    all: impl IntoIterator<Item = &'a api::NetworkPolicy>,
    pods: &[PodInfo],
    namespaces: &BTreeMap<String, Labels>,
) -> Policies {
    let cluster = Cluster { pods, namespaces };
    let mut found = Policies::new();
    for policy in all {
        let Some(spec) = &policy.spec else { continue };
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let types = spec.policy_types.as_deref().unwrap_or_default();
        let has = |name: &str| types.iter().any(|one| one == name);
        let limits_ingress = types.is_empty() || has("Ingress");
        let limits_egress = if types.is_empty() { spec.egress.is_some() } else { has("Egress") };
        for pod in cluster.selected(spec.pod_selector.as_ref(), |pod| pod.namespace == namespace) {
            let isolation = found.entry(pod.address).or_default();
            if limits_ingress {
                let allowed = isolation.ingress.get_or_insert_default();
                for rule in spec.ingress.iter().flatten() {
                    let ports = Ports::new(rule.ports.as_deref());
                    let ports = ports.of(pod);
                    let peers = cluster.peers(namespace, rule.from.as_deref());
                    allowed.extend(ports.iter().flat_map(|ports| {
                        peers.iter().map(move |peers| Allow { peers: peers.clone(), ports: ports.clone() })
                    }));
                }
            }
            if limits_egress {
                let allowed = isolation.egress.get_or_insert_default();
                for rule in spec.egress.iter().flatten() {
                    let peers = cluster.peers(namespace, rule.to.as_deref());
                    cluster.egress(&peers, &Ports::new(rule.ports.as_deref()), allowed);
                }
            }
        }
    }
    found
}

struct Cluster<'a> {
    pods: &'a [PodInfo],
    namespaces: &'a BTreeMap<String, Labels>,
}

fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    // What is not said selects everything; what cannot be understood, nothing.
    selector.is_none_or(|selector| Selector::try_from(selector.clone()).is_ok_and(|parsed| parsed.matches(labels)))
}

impl<'a> Cluster<'a> {
    fn selected(
        &self,
        selector: Option<&LabelSelector>,
        accepts: impl Fn(&PodInfo) -> bool,
    ) -> impl Iterator<Item = &'a PodInfo> {
        self.pods.iter().filter(move |pod| accepts(pod) && selects(selector, &pod.labels))
    }

    fn peers(&self, namespace: &str, peers: Option<&[api::NetworkPolicyPeer]>) -> Vec<Peers> {
        let Some(peers) = peers.filter(|peers| !peers.is_empty()) else { return vec![Peers::All] };
        let mut pods = BTreeSet::new();
        let mut found = Vec::new();
        for peer in peers {
            if let Some(block) = &peer.ip_block {
                let Ok(range) = block.cidr.parse() else { continue };
                let except = block.except.iter().flatten().filter_map(|range| range.parse().ok()).collect();
                found.push(Peers::Block(range, except));
                continue;
            }
            let nothing = Labels::new();
            let in_namespace = |pod: &PodInfo| match &peer.namespace_selector {
                None => pod.namespace == namespace,
                Some(selector) => selects(Some(selector), self.namespaces.get(&pod.namespace).unwrap_or(&nothing)),
            };
            pods.extend(self.selected(peer.pod_selector.as_ref(), in_namespace).map(|pod| pod.address));
        }
        if !pods.is_empty() {
            found.push(Peers::Pods(pods));
        }
        found
    }

    /// Ports that have a name are those of each pod that is reached.
    fn egress(&self, peers: &[Peers], ports: &Ports<'_>, allowed: &mut Vec<Allow>) {
        for peers in peers {
            if let Some(ports) = ports.numbers() {
                allowed.push(Allow { peers: peers.clone(), ports });
                continue;
            }
            let reached = self.pods.iter().filter(|pod| match peers {
                Peers::All => true,
                Peers::Pods(all) => all.contains(&pod.address),
                Peers::Block(range, except) => {
                    range.contains(pod.address.into()) && !except.iter().any(|one| one.contains(pod.address.into()))
                }
            });
            for pod in reached {
                if let Some(ports) = ports.of(pod) {
                    allowed.push(Allow { peers: Peers::Pods(BTreeSet::from([pod.address])), ports });
                }
            }
        }
    }
}

/// The ports of a rule.
struct Ports<'a>(&'a [api::NetworkPolicyPort]);

impl<'a> Ports<'a> {
    fn new(ports: Option<&'a [api::NetworkPolicyPort]>) -> Self {
        Self(ports.unwrap_or_default())
    }

    /// As numbers; `None` if one of them has a name.
    fn numbers(&self) -> Option<Vec<(Protocol, u16, u16)>> {
        let named = |port: &api::NetworkPolicyPort| matches!(port.port, Some(IntOrString::String(_)));
        if self.0.iter().any(named) {
            None
        } else {
            Some(self.0.iter().filter_map(|port| numbers(port, None)).collect())
        }
    }

    /// As a pod has them; `None` if it has none of those that there are.
    fn of(&self, pod: &PodInfo) -> Option<Vec<(Protocol, u16, u16)>> {
        let found: Vec<_> = self.0.iter().filter_map(|port| numbers(port, Some(pod))).collect();
        (self.0.is_empty() || !found.is_empty()).then_some(found)
    }
}

fn numbers(port: &api::NetworkPolicyPort, pod: Option<&PodInfo>) -> Option<(Protocol, u16, u16)> {
    let protocol = Protocol::parse(port.protocol.as_deref())?;
    let first = match &port.port {
        None => return Some((protocol, 0, u16::MAX)),
        Some(IntOrString::Int(number)) => u16::try_from(*number).ok()?,
        Some(IntOrString::String(name)) => *pod?.ports.get(&(name.clone(), protocol))?,
    };
    let last = port.end_port.and_then(|last| u16::try_from(last).ok()).unwrap_or(first);
    Some((protocol, first, last))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(number: u8, namespace: &str, app: &str) -> PodInfo {
        PodInfo {
            namespace: namespace.to_owned(),
            labels: Labels::from([("app".to_owned(), app.to_owned())]),
            address: Ipv4Addr::new(10, 244, 0, number),
            ports: BTreeMap::from([(("http".to_owned(), Protocol::Tcp), 8000 + u16::from(number))]),
        }
    }

    fn isolation(spec: &Value) -> Isolation {
        let pods = [pod(2, "default", "web"), pod(3, "default", "db"), pod(4, "other", "web"), pod(5, "other", "db")];
        let labels = |team: &str| Labels::from([("team".to_owned(), team.to_owned())]);
        let namespaces = [("default".to_owned(), labels("a")), ("other".to_owned(), labels("b"))];
        let policy = json!({"metadata": {"namespace": "default", "name": "p"}, "spec": spec});
        let policy = serde_json::from_value(policy).expect("a policy");
        policies([&policy], &pods, &BTreeMap::from(namespaces)).remove(&pods[1].address).unwrap_or_default()
    }

    fn addresses(numbers: &[u8]) -> Peers {
        Peers::Pods(numbers.iter().map(|number| Ipv4Addr::new(10, 244, 0, *number)).collect())
    }

    #[test]
    fn directions_are_isolated_as_types_say() {
        let db = json!({"matchLabels": {"app": "db"}});
        let check = |spec: &Value, ingress: bool, egress: bool| {
            let found = isolation(spec);
            assert_eq!((found.ingress.is_some(), found.egress.is_some()), (ingress, egress), "{spec}");
        };
        check(&json!({"podSelector": db}), true, false);
        check(&json!({"podSelector": {}}), true, false);
        check(&json!({"podSelector": {"matchLabels": {"app": "web"}}}), false, false);
        check(&json!({"podSelector": db, "egress": []}), true, true);
        check(&json!({"podSelector": db, "policyTypes": ["Egress"]}), false, true);
        assert_eq!(isolation(&json!({"podSelector": db})).ingress, Some(Vec::new()), "nothing is allowed");
    }

    #[test]
    fn peers_are_selected() {
        let ingress = |from: &Value| {
            let found = isolation(&json!({"podSelector": {}, "ingress": [{"from": from}]})).ingress.expect("isolated");
            found.into_iter().map(|allow| allow.peers).collect::<Vec<_>>()
        };
        let web = json!({"matchLabels": {"app": "web"}});
        let b = json!({"matchLabels": {"team": "b"}});
        assert_eq!(ingress(&json!([{"podSelector": web}])), [addresses(&[2])]);
        assert_eq!(ingress(&json!([{"namespaceSelector": b}])), [addresses(&[4, 5])]);
        assert_eq!(ingress(&json!([{"namespaceSelector": b, "podSelector": web}])), [addresses(&[4])]);
        assert_eq!(ingress(&json!([{"namespaceSelector": {}, "podSelector": web}])), [addresses(&[2, 4])]);
        assert_eq!(ingress(&json!([])), [Peers::All]);
        let range = |text: &str| text.parse::<Range>().expect("a range");
        let block = json!([{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]);
        assert_eq!(ingress(&block), [Peers::Block(range("10.0.0.0/8"), vec![range("10.1.0.0/16")])]);
    }

    #[test]
    fn ports_may_be_ranges_and_names() {
        let ports = json!([{"port": 80}, {"port": 90, "endPort": 95, "protocol": "UDP"}, {"protocol": "TCP"}, {"port": "http"}]);
        let found = isolation(&json!({"podSelector": {}, "ingress": [{"ports": ports}]})).ingress.expect("isolated");
        let numbers = [(Protocol::Tcp, 80, 80), (Protocol::Udp, 90, 95), (Protocol::Tcp, 0, 65_535)];
        assert_eq!(found[0].ports[..3], numbers);
        assert_eq!(found[0].ports[3], (Protocol::Tcp, 8003, 8003), "the name is the pod's own");
        let named = json!([{"ports": [{"port": "http"}]}]);
        let found = isolation(&json!({"podSelector": {}, "egress": named})).egress.expect("isolated");
        assert_eq!(found.len(), 4, "the name is that of each pod that is reached");
        assert!(found.contains(&Allow { peers: addresses(&[4]), ports: vec![(Protocol::Tcp, 8004, 8004)] }));
        let missing = json!([{"ports": [{"port": "grpc"}]}]);
        assert_eq!(isolation(&json!({"podSelector": {}, "ingress": missing})).ingress, Some(Vec::new()));
    }
}
