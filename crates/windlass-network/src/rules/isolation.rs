//! From NetworkPolicies to rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::{Layout, number};
use crate::exposure::hash;
use crate::netlink::nft::{Chain, Expression as Do, Ruleset, Set, SetKind, Type, Verdict};
use crate::policy::{Allow, Peers, Policies};
use crate::range::Range;

const INGRESS: &str = "isolated-ingress";
const EGRESS: &str = "isolated-egress";
/// The port of the cluster's DNS.
const DNS: u16 = 53;

/// Adds a chain for each direction of each isolated pod. The rules that lead to them.
pub(super) fn add(ruleset: &mut Ruleset, policies: &Policies) -> Vec<Vec<Do>> {
    let (mut ingress, mut egress) = (BTreeMap::new(), BTreeMap::new());
    for (pod, isolation) in policies {
        if let Some(allowed) = &isolation.ingress {
            let chain = format!("ingress/{pod}");
            ingress.insert(pod.octets().to_vec(), Verdict::Jump(chain.clone()));
            let rules = rules(ruleset, allowed, true);
            ruleset.chains.insert(chain, Chain { hook: None, rules });
        }
        if let Some(allowed) = &isolation.egress {
            let chain = format!("egress/{pod}");
            egress.insert(pod.octets().to_vec(), Verdict::Jump(chain.clone()));
            let rules = rules(ruleset, allowed, false);
            ruleset.chains.insert(chain, Chain { hook: None, rules });
        }
    }
    for (name, elements) in [(INGRESS, ingress), (EGRESS, egress)] {
        let set = Set { key: Type::Address, kind: SetKind::Verdicts(elements) };
        ruleset.sets.insert(name.to_owned(), set);
    }
    vec![vec![Do::FromMap(EGRESS.to_owned())], vec![Do::ToMap(INGRESS.to_owned())]]
}

/// What pods send to programs of this process: DNS is for everybody.
pub(super) fn input(accepted: Vec<Do>, layout: &Layout) -> Vec<Vec<Do>> {
    let mut rules = vec![accepted];
    for ((protocol, service), local) in layout.local.iter().filter(|((_, service), _)| service.port() == DNS) {
        debug_assert_eq!(service.port(), DNS);
        let to = Do::To(Range::one(*local.ip()));
        let port = Do::ToPort(local.port(), local.port());
        rules.push(vec![to, Do::Protocol(number(*protocol)), port, Do::Verdict(Verdict::Accept)]);
    }
    rules.push(vec![Do::FromMap(EGRESS.to_owned())]);
    rules
}

/// What is allowed returns to where it came from; the rest is gone.
fn rules(ruleset: &mut Ruleset, allowed: &[Allow], ingress: bool) -> Vec<Vec<Do>> {
    let mut rules = Vec::new();
    for allow in allowed {
        let mut start = Vec::new();
        match &allow.peers {
            Peers::All => {}
            Peers::Pods(pods) => {
                let set = peer_set(ruleset, pods);
                start.push(if ingress { Do::FromSet(set) } else { Do::ToSet(set) });
            }
            Peers::Block(range, except) => {
                start.push(if ingress { Do::From(*range) } else { Do::To(*range) });
                start.extend(except.iter().map(|one| if ingress { Do::NotFrom(*one) } else { Do::NotTo(*one) }));
            }
        }
        let finish = |mut rule: Vec<Do>| {
            rule.push(Do::Verdict(Verdict::Return));
            rule
        };
        if allow.ports.is_empty() {
            rules.push(finish(start));
            continue;
        }
        for (protocol, first, last) in &allow.ports {
            let mut rule = start.clone();
            rule.push(Do::Protocol(number(*protocol)));
            if (*first, *last) != (0, u16::MAX) {
                rule.push(Do::ToPort(*first, *last));
            }
            rules.push(finish(rule));
        }
    }
    rules.push(vec![Do::Verdict(Verdict::Drop)]);
    rules
}

/// A set of these pods. Its name follows from them, so rules with the same pods share it.
fn peer_set(ruleset: &mut Ruleset, pods: &BTreeSet<Ipv4Addr>) -> String {
    let keys: BTreeSet<Vec<u8>> = pods.iter().map(|pod| pod.octets().to_vec()).collect();
    let text = format!("{pods:?}");
    let name = format!("pods/{:016x}", hash(&text));
    let set = Set { key: Type::Address, kind: SetKind::Keys(keys) };
    ruleset.sets.insert(name.clone(), set);
    name
}
