//! Random nodes and pods, small enough that most combinations come up.

use std::collections::BTreeMap;

use fastrand::Rng;
use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    NodeSpec, NodeStatus, Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity, PodSpec, ResourceRequirements, Taint,
    Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;

use crate::storage;

type Labels = BTreeMap<String, String>;

const TOPOLOGIES: [&str; 3] = ["kubernetes.io/hostname", "zone", "rack"];

fn pick<'a>(random: &mut Rng, list: &[&'a str]) -> &'a str {
    list[random.usize(..list.len())]
}

fn maybe<T>(random: &mut Rng, chance: f64, make: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    (random.f64() < chance).then(|| make(random))
}

fn several<T>(random: &mut Rng, most: usize, make: impl Fn(&mut Rng) -> T) -> Vec<T> {
    (0..=random.usize(..most)).map(|_| make(random)).collect()
}

fn quantities(pairs: &[(&str, u64)]) -> BTreeMap<String, Quantity> {
    pairs.iter().map(|(name, amount)| ((*name).to_owned(), Quantity(amount.to_string()))).collect()
}

pub(crate) fn node(random: &mut Rng, name: &str) -> Node {
    let mut labels = Labels::from([("kubernetes.io/hostname".to_owned(), name.to_owned())]);
    for (key, chance) in [("zone", 0.8), ("rack", 0.5), ("size", 0.5)] {
        if random.f64() < chance {
            labels.insert(key.to_owned(), pick(random, &["1", "2", "3"]).to_owned());
        }
    }
    let mut allocatable =
        quantities(&[("cpu", random.u64(1..6)), ("memory", random.u64(1..6)), ("pods", random.u64(1..7))]);
    if random.f64() < 0.3 {
        allocatable.insert("example.com/gpu".to_owned(), Quantity(random.u64(0..3).to_string()));
    }
    let taint = |random: &mut Rng| Taint {
        key: pick(random, &["a", "b"]).to_owned(),
        value: maybe(random, 0.5, |random| pick(random, &["x", "y"]).to_owned()),
        effect: pick(random, &["NoSchedule", "PreferNoSchedule", "NoExecute"]).to_owned(),
        time_added: None,
    };
    Node {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        spec: Some(NodeSpec {
            unschedulable: maybe(random, 0.1, |_| true),
            taints: maybe(random, 0.2, |random| several(random, 2, taint)),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus { allocatable: Some(allocatable), ..NodeStatus::default() }),
    }
}

fn container(random: &mut Rng, restart_policy: Option<String>) -> Container {
    let requests = maybe(random, 0.6, |random| {
        let mut requests = quantities(&[("cpu", random.u64(0..3)), ("memory", random.u64(0..3))]);
        if random.f64() < 0.1 {
            requests.insert("example.com/gpu".to_owned(), Quantity("1".to_owned()));
        }
        requests
    });
    let port = |random: &mut Rng| ContainerPort {
        container_port: 1,
        host_port: Some(random.i32(80..83)),
        host_ip: maybe(random, 0.3, |random| pick(random, &["10.0.0.1", "0.0.0.0"]).to_owned()),
        protocol: maybe(random, 0.3, |random| pick(random, &["TCP", "UDP"]).to_owned()),
        ..ContainerPort::default()
    };
    let ports = if restart_policy.is_none() { maybe(random, 0.1, |random| several(random, 2, port)) } else { None };
    Container {
        name: "c".to_owned(),
        resources: Some(ResourceRequirements { requests, ..ResourceRequirements::default() }),
        restart_policy,
        ports,
        ..Container::default()
    }
}

fn requirement(random: &mut Rng) -> NodeSelectorRequirement {
    let operator = pick(random, &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
    let values = match operator {
        "In" | "NotIn" => Some(several(random, 2, |random| pick(random, &["1", "2", "3"]).to_owned())),
        "Gt" | "Lt" => Some(vec![pick(random, &["1", "2", "3"]).to_owned()]),
        _ => None,
    };
    NodeSelectorRequirement {
        key: pick(random, &["zone", "rack", "size"]).to_owned(),
        operator: operator.to_owned(),
        values,
    }
}

fn node_term(random: &mut Rng) -> NodeSelectorTerm {
    let field = |random: &mut Rng| NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: pick(random, &["In", "NotIn"]).to_owned(),
        values: Some(several(random, 3, |random| pick(random, &["n0", "n1", "n2", "n3"]).to_owned())),
    };
    NodeSelectorTerm {
        match_expressions: maybe(random, 0.7, |random| several(random, 2, requirement)),
        match_fields: maybe(random, 0.2, |random| several(random, 2, field)),
    }
}

pub(crate) fn labels(random: &mut Rng) -> Labels {
    let mut labels = Labels::new();
    for key in ["app", "tier"] {
        if random.f64() < 0.7 {
            labels.insert(key.to_owned(), pick(random, &["1", "2"]).to_owned());
        }
    }
    labels
}

fn selector(random: &mut Rng) -> LabelSelector {
    let expression = |random: &mut Rng| {
        let operator = pick(random, &["In", "NotIn", "Exists", "DoesNotExist"]);
        let values = (operator == "In" || operator == "NotIn").then(|| vec![pick(random, &["1", "2"]).to_owned()]);
        LabelSelectorRequirement {
            key: pick(random, &["app", "tier"]).to_owned(),
            operator: operator.to_owned(),
            values,
        }
    };
    LabelSelector {
        match_labels: maybe(random, 0.6, labels).filter(|labels| !labels.is_empty()),
        match_expressions: maybe(random, 0.3, |random| several(random, 2, expression)),
    }
}

fn term(random: &mut Rng) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: maybe(random, 0.95, selector),
        topology_key: pick(random, &TOPOLOGIES).to_owned(),
        namespaces: maybe(random, 0.2, |random| several(random, 2, |random| pick(random, &["one", "two"]).to_owned())),
        namespace_selector: maybe(random, 0.2, selector),
        ..PodAffinityTerm::default()
    }
}

fn constraint(random: &mut Rng) -> TopologySpreadConstraint {
    let policy = |random: &mut Rng| pick(random, &["Honor", "Ignore"]).to_owned();
    TopologySpreadConstraint {
        max_skew: random.i32(1..3),
        topology_key: pick(random, &TOPOLOGIES).to_owned(),
        when_unsatisfiable: pick(random, &["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]).to_owned(),
        label_selector: maybe(random, 0.95, selector),
        min_domains: maybe(random, 0.2, |random| random.i32(1..5)),
        node_affinity_policy: maybe(random, 0.3, policy),
        node_taints_policy: maybe(random, 0.3, policy),
        match_label_keys: None,
    }
}

pub(crate) fn pod(random: &mut Rng, number: usize) -> Pod {
    let toleration = |random: &mut Rng| {
        let exists = random.f64() < 0.4;
        Toleration {
            key: if exists && random.f64() < 0.2 {
                None
            } else {
                Some(pick(random, &["a", "b", "node.kubernetes.io/unschedulable"]).to_owned())
            },
            operator: exists.then(|| "Exists".to_owned()),
            value: if exists { None } else { maybe(random, 0.5, |random| pick(random, &["x", "y"]).to_owned()) },
            effect: maybe(random, 0.5, |random| pick(random, &["NoSchedule", "NoExecute"]).to_owned()),
            toleration_seconds: None,
        }
    };
    let node_affinity = maybe(random, 0.2, |random| NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(NodeSelector {
            node_selector_terms: several(random, 2, node_term),
        }),
        preferred_during_scheduling_ignored_during_execution: None,
    });
    let affinity = Affinity {
        node_affinity,
        pod_affinity: maybe(random, 0.2, |random| PodAffinity {
            required_during_scheduling_ignored_during_execution: Some(several(random, 2, term)),
            ..PodAffinity::default()
        }),
        pod_anti_affinity: maybe(random, 0.2, |random| PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(several(random, 2, term)),
            ..PodAntiAffinity::default()
        }),
    };
    let init = |random: &mut Rng| {
        let sidecar = maybe(random, 0.4, |_| "Always".to_owned());
        Container { ports: None, ..container(random, sidecar) }
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(format!("p{number}")),
            uid: Some(format!("u{number}")),
            namespace: Some(pick(random, &["one", "two"]).to_owned()),
            labels: Some(labels(random)),
            deletion_timestamp: maybe(random, 0.05, |_| Time(Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: several(random, 2, |random| container(random, None)),
            init_containers: maybe(random, 0.2, |random| several(random, 3, init)),
            overhead: maybe(random, 0.1, |_| quantities(&[("cpu", 1)])),
            node_selector: maybe(random, 0.1, |random| {
                Labels::from([(pick(random, &["zone", "size"]).to_owned(), pick(random, &["1", "2", "3"]).to_owned())])
            }),
            tolerations: maybe(random, 0.3, |random| several(random, 2, toleration)),
            affinity: Some(affinity),
            topology_spread_constraints: maybe(random, 0.25, |random| several(random, 2, constraint)),
            priority: Some(random.i32(0..3)),
            volumes: maybe(random, 0.2, storage::used),
            ..PodSpec::default()
        }),
        status: None,
    }
}
