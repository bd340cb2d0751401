//! What a scheduler has to say, written down as plainly as possible: every check looks at every object.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Container, Node, NodeSelectorTerm, Pod, PodAffinityTerm, Taint, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::storage::Storage;

pub(crate) type Labels = BTreeMap<String, String>;

/// A cluster as lists.
#[derive(Default, Clone)]
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    /// Pods with a node.
    pub(crate) pods: Vec<Pod>,
    pub(crate) namespaces: BTreeMap<String, Labels>,
    /// Pods that wait for room on a node, with its name.
    pub(crate) nominated: Vec<(Pod, String)>,
    pub(crate) storage: Storage,
}

pub(crate) fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap()
}

fn labels_of(node: &Node) -> Labels {
    node.metadata.labels.clone().unwrap_or_default()
}

fn pod_labels(pod: &Pod) -> Labels {
    pod.metadata.labels.clone().unwrap_or_default()
}

pub(crate) fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap()
}

impl World {
    pub(crate) fn feasible(&self, pod: &Pod) -> BTreeSet<String> {
        let fits = self.nodes.iter().filter(|node| self.suits(pod, node));
        fits.map(|node| name(node).to_owned()).collect()
    }

    /// Whether a node suits a pod as it is, and with the pods that wait for room on it and are as important.
    pub(crate) fn suits(&self, pod: &Pod, node: &Node) -> bool {
        let priority = |pod: &Pod| pod.spec.as_ref().unwrap().priority;
        let waiting = self.nominated.iter().filter(|(other, on)| {
            on == name(node) && other.metadata.uid != pod.metadata.uid && priority(other) >= priority(pod)
        });
        let waiting: Vec<Pod> = waiting
            .map(|(other, on)| {
                let mut other = other.clone();
                other.spec.as_mut().unwrap().node_name = Some(on.clone());
                other
            })
            .collect();
        let with_waiting = || Self { pods: [&self.pods[..], &waiting].concat(), ..self.clone() };
        self.suits_now(pod, node) && (waiting.is_empty() || with_waiting().suits_now(pod, node))
    }

    fn suits_now(&self, pod: &Pod, node: &Node) -> bool {
        Self::may_run(pod, node)
            && matches_node(pod, node)
            && self.has_ports(pod, node)
            && self.has_room(pod, node)
            && self.has_volumes(pod, node)
            && self.is_spread(pod, node)
            && self.has_neighbours(pod, node)
    }

    fn on<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Pod> {
        self.pods.iter().filter(move |pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(name(node)))
    }

    fn may_run(pod: &Pod, node: &Node) -> bool {
        let cordon = Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        let asked = pod.spec.as_ref().unwrap().node_name.as_deref();
        let spec = node.spec.clone().unwrap_or_default();
        asked.is_none_or(|asked| asked == name(node))
            && (spec.unschedulable != Some(true) || tolerates(pod, &cordon))
            && tolerates_node(pod, node)
    }

    fn has_ports(&self, pod: &Pod, node: &Node) -> bool {
        let taken: Vec<_> = self.on(node).flat_map(ports).collect();
        ports(pod).iter().all(|(ip, protocol, port)| {
            !taken.iter().any(|(other_ip, other_protocol, other_port)| {
                protocol == other_protocol
                    && port == other_port
                    && (ip == other_ip || ip == "0.0.0.0" || other_ip == "0.0.0.0")
            })
        })
    }

    fn has_room(&self, pod: &Pod, node: &Node) -> bool {
        let has = node.status.as_ref().unwrap().allocatable.clone().unwrap();
        let number = |resource: &str| has.get(resource).map_or(0, |quantity| quantity.0.parse::<i64>().unwrap());
        let wanted = requests(pod);
        let room = wanted.iter().all(|(resource, wanted)| {
            let taken: i64 = self.on(node).map(|other| requests(other).get(resource).copied().unwrap_or(0)).sum();
            *wanted == 0 || taken + wanted <= number(resource)
        });
        room && (self.on(node).count() as i64) < number("pods")
    }

    fn is_spread(&self, pod: &Pod, node: &Node) -> bool {
        let constraints = pod.spec.as_ref().unwrap().topology_spread_constraints.clone().unwrap_or_default();
        let hard: Vec<_> = constraints.into_iter().filter(|one| one.when_unsatisfiable == "DoNotSchedule").collect();
        hard.iter().all(|constraint| self.satisfies(pod, node, constraint, &hard))
    }

    fn satisfies(
        &self,
        pod: &Pod,
        node: &Node,
        one: &TopologySpreadConstraint,
        all: &[TopologySpreadConstraint],
    ) -> bool {
        let Some(place) = labels_of(node).get(&one.topology_key).cloned() else { return false };
        let counted: Vec<&Node> = self
            .nodes
            .iter()
            .filter(|node| all.iter().all(|one| labels_of(node).contains_key(&one.topology_key)))
            .filter(|node| one.node_affinity_policy.as_deref() == Some("Ignore") || matches_node(pod, node))
            .filter(|node| one.node_taints_policy.as_deref() != Some("Honor") || tolerates_node(pod, node))
            .collect();
        let mut domains: BTreeMap<String, i64> = BTreeMap::new();
        for node in counted {
            let matching = self.on(node).filter(|other| {
                other.metadata.deletion_timestamp.is_none()
                    && namespace(other) == namespace(pod)
                    && !is_empty(one.label_selector.as_ref())
                    && selects(one.label_selector.as_ref(), &pod_labels(other))
            });
            *domains.entry(labels_of(node)[&one.topology_key].clone()).or_default() += matching.count() as i64;
        }
        let mut fewest = domains.values().copied().min().unwrap_or(0);
        if (domains.len() as i32) < one.min_domains.unwrap_or(1) {
            fewest = 0;
        }
        let own = i64::from(selects(one.label_selector.as_ref(), &pod_labels(pod)));
        domains.get(&place).copied().unwrap_or(0) + own - fewest <= i64::from(one.max_skew)
    }

    fn has_neighbours(&self, pod: &Pod, node: &Node) -> bool {
        let required = terms(pod, true);
        let together = |key: &str, one: &Node, other: &Node| {
            let (one, other) = (labels_of(one), labels_of(other));
            one.contains_key(key) && one.get(key) == other.get(key)
        };
        let place = |pod: &Pod| {
            self.nodes.iter().find(|node| Some(name(node)) == pod.spec.as_ref().unwrap().node_name.as_deref())
        };
        let means_all = |other: &Pod| required.iter().all(|term| self.means(term, pod, other));
        let anywhere = self.pods.iter().any(|other| {
            means_all(other)
                && place(other)
                    .is_some_and(|node| required.iter().any(|term| labels_of(node).contains_key(&term.topology_key)))
        });
        let first = !anywhere && means_all(pod);
        for term in &required {
            if !labels_of(node).contains_key(&term.topology_key) {
                return false;
            }
            let near = self.pods.iter().filter(|other| means_all(other));
            let mut near =
                near.filter(|other| place(other).is_some_and(|other| together(&term.topology_key, node, other)));
            if near.next().is_none() && !first {
                return false;
            }
        }
        for other in &self.pods {
            let Some(other_node) = place(other) else { continue };
            for term in terms(pod, false) {
                if self.means(&term, pod, other) && together(&term.topology_key, node, other_node) {
                    return false;
                }
            }
            for term in terms(other, false) {
                if self.means(&term, other, pod) && together(&term.topology_key, node, other_node) {
                    return false;
                }
            }
        }
        true
    }

    /// Whether a term of a pod means another one.
    fn means(&self, term: &PodAffinityTerm, holder: &Pod, other: &Pod) -> bool {
        let named = term.namespaces.clone().unwrap_or_default();
        let by_labels = self.namespaces.get(namespace(other)).cloned().unwrap_or_default();
        let here = if named.is_empty() && term.namespace_selector.is_none() {
            namespace(holder) == namespace(other)
        } else {
            named.iter().any(|name| name == namespace(other))
                || (term.namespace_selector.is_some() && selects(term.namespace_selector.as_ref(), &by_labels))
        };
        here && selects(term.label_selector.as_ref(), &pod_labels(other))
    }
}

fn terms(pod: &Pod, together: bool) -> Vec<PodAffinityTerm> {
    let Some(affinity) = pod.spec.as_ref().unwrap().affinity.clone() else { return Vec::new() };
    let terms = if together {
        affinity.pod_affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution)
    } else {
        affinity.pod_anti_affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution)
    };
    terms.unwrap_or_default()
}

fn is_empty(selector: Option<&LabelSelector>) -> bool {
    selector.is_some_and(|selector| selector.match_labels.is_none() && selector.match_expressions.is_none())
}

fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return false };
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let expressions = selector.match_expressions.iter().flatten();
    equal && expressions.into_iter().all(|one| holds(&one.key, &one.operator, one.values.as_deref(), labels))
}

pub(crate) fn holds(key: &str, operator: &str, values: Option<&[String]>, labels: &Labels) -> bool {
    let values = values.unwrap_or_default();
    let value = labels.get(key);
    match operator {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value.is_some_and(|value| value.parse::<i64>().is_ok_and(|value| value > values[0].parse().unwrap())),
        "Lt" => value.is_some_and(|value| value.parse::<i64>().is_ok_and(|value| value < values[0].parse().unwrap())),
        other => unreachable!("{other}"),
    }
}

fn matches_node(pod: &Pod, node: &Node) -> bool {
    let (spec, labels) = (pod.spec.as_ref().unwrap(), labels_of(node));
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
    let term = |term: &NodeSelectorTerm| {
        let (expressions, fields) = (term.match_expressions.as_deref(), term.match_fields.as_deref());
        let by_name = Labels::from([("metadata.name".to_owned(), name(node).to_owned())]);
        let (expressions, fields) = (expressions.unwrap_or_default(), fields.unwrap_or_default());
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|one| holds(&one.key, &one.operator, one.values.as_deref(), &labels))
            && fields.iter().all(|one| holds(&one.key, &one.operator, one.values.as_deref(), &by_name))
    };
    selected && required.is_none_or(|required| required.node_selector_terms.iter().any(term))
}

fn tolerates_node(pod: &Pod, node: &Node) -> bool {
    let taints = node.spec.clone().unwrap_or_default().taints.unwrap_or_default();
    taints.iter().all(|taint| taint.effect == "PreferNoSchedule" || tolerates(pod, taint))
}

fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec.as_ref().unwrap().tolerations.clone().unwrap_or_default();
    tolerations.iter().any(|one| {
        one.effect.as_ref().is_none_or(|effect| *effect == taint.effect)
            && one.key.as_ref().is_none_or(|key| *key == taint.key)
            && (one.operator.as_deref() == Some("Exists")
                || one.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default())
    })
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn ports(pod: &Pod) -> Vec<(String, String, i32)> {
    let containers = pod.spec.as_ref().unwrap().containers.iter();
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let taken = ports.filter_map(|port| {
        let ip = port.host_ip.clone().unwrap_or_else(|| "0.0.0.0".to_owned());
        Some((ip, port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), port.host_port?))
    });
    taken.collect()
}

/// The most that a pod needs at any moment of its life: while each init container runs, and then.
fn requests(pod: &Pod) -> BTreeMap<String, i64> {
    let spec = pod.spec.as_ref().unwrap();
    let of = |container: &Container, resource: &str| -> i64 {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        requests.and_then(|requests| requests.get(resource)).map_or(0, |quantity| quantity.0.parse().unwrap())
    };
    let mut result = BTreeMap::new();
    for resource in ["cpu", "memory", "example.com/gpu"] {
        let init = spec.init_containers.clone().unwrap_or_default();
        let sidecars = |until: usize| -> i64 {
            init[..until].iter().filter(|one| is_sidecar(one)).map(|one| of(one, resource)).sum()
        };
        let mut moments = vec![spec.containers.iter().map(|one| of(one, resource)).sum::<i64>() + sidecars(init.len())];
        for (at, container) in init.iter().enumerate() {
            moments.push(sidecars(at) + of(container, resource));
        }
        let overhead = spec.overhead.as_ref().and_then(|overhead| overhead.get(resource));
        let overhead = overhead.map_or(0, |quantity| quantity.0.parse::<i64>().unwrap());
        result.insert(resource.to_owned(), moments.into_iter().max().unwrap() + overhead);
    }
    result
}
