//! On which nodes a DaemonSet's pod should run: node name, selector, required affinity and taints decide. Resources
//! do not: the scheduler weighs those, and the pod waits for them.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};

const NAME_FIELD: &str = "metadata.name";
/// What the pods of every DaemonSet tolerate, with the effect.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// What pods on the network of their node tolerate as well.
const TOLERATED_ON_HOST: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// Adds the tolerations that every DaemonSet's pods have.
pub(super) fn add_tolerations(spec: &mut PodSpec) {
    let on_host = (spec.host_network == Some(true)).then_some(TOLERATED_ON_HOST);
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in TOLERATED.into_iter().chain(on_host) {
        let wanted = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        let same = |known: &&mut Toleration| {
            (&known.key, &known.effect) == (&wanted.key, &wanted.effect)
                && known.operator.as_deref().unwrap_or("Equal") == "Exists"
                && known.value.as_deref().unwrap_or_default().is_empty()
        };
        match tolerations.iter_mut().find(same) {
            Some(known) => *known = wanted,
            None => tolerations.push(wanted),
        }
    }
}

/// Has the scheduler place a pod on one node.
pub(super) fn pin(spec: &mut PodSpec, node: &str) {
    let requirement = NodeSelectorRequirement {
        key: NAME_FIELD.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![requirement]), match_expressions: None };
    let affinity = spec.affinity.get_or_insert_with(Affinity::default);
    let affinity = affinity.node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}

/// The node that a pod is on, or is meant for.
pub(super) fn target(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = spec.node_name.as_deref().filter(|node| !node.is_empty()) {
        return Some(node);
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut named = fields.filter(|field| field.key == NAME_FIELD && field.operator == "In");
    match named.next()?.values.as_deref()? {
        [node] => Some(node),
        _ => None,
    }
}

/// What is to become of a DaemonSet's pod on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// It should be there.
    Run,
    /// It may stay, but is not made.
    Stay,
    /// It should not be there.
    Leave,
}

/// Says where the pods of a DaemonSet belong.
pub(super) struct Placer {
    spec: PodSpec,
}

impl Placer {
    pub(super) fn of(set: &DaemonSet) -> Self {
        let template = set.spec.as_ref().and_then(|spec| spec.template.spec.clone());
        let mut spec = template.unwrap_or_default();
        add_tolerations(&mut spec);
        Self { spec }
    }

    pub(super) fn place(&self, node: &Node) -> Placement {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let elsewhere = self.spec.node_name.as_deref().is_some_and(|wanted| !wanted.is_empty() && wanted != name);
        if elsewhere || !self.selects(node) {
            return Placement::Leave;
        }
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let repels = |effect: &str| taints.iter().any(|taint| taint.effect == effect && !self.tolerates(taint));
        match (repels("NoExecute"), repels("NoSchedule")) {
            (true, _) => Placement::Leave,
            (false, true) => Placement::Stay,
            (false, false) => Placement::Run,
        }
    }

    fn selects(&self, node: &Node) -> bool {
        let none = BTreeMap::new();
        let labels = node.metadata.labels.as_ref().unwrap_or(&none);
        let mut wanted = self.spec.node_selector.iter().flatten();
        if !wanted.all(|(key, value)| labels.get(key) == Some(value)) {
            return false;
        }
        let affinity = self.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
        required.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| matches_term(term, node, labels)))
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.spec.tolerations.iter().flatten().any(|toleration| tolerates(toleration, taint))
    }
}

/// Whether a node meets a term. One without requirements is met by no node.
fn matches_term(term: &NodeSelectorTerm, node: &Node, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let field = |requirement: &NodeSelectorRequirement| {
        let value = (requirement.key == NAME_FIELD).then_some(node.metadata.name.as_deref()).flatten();
        meets(requirement, value)
    };
    let label = |requirement: &NodeSelectorRequirement| meets(requirement, labels.get(&requirement.key).map(|v| &**v));
    !(expressions.is_empty() && fields.is_empty()) && expressions.iter().all(label) && fields.iter().all(field)
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let compare = |accept: fn(&i64, &i64) -> bool| {
        let (Some(value), [bound]) = (value, values) else { return false };
        matches!((value.parse(), bound.parse()), (Ok(value), Ok(bound)) if accept(&value, &bound))
    };
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

/// Whether a toleration accepts a taint.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let any_or = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|it| it.is_empty() || it == found);
    if !any_or(&toleration.effect, &taint.effect) || !any_or(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref() {
        None | Some("" | "Equal") => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        Some("Exists") => true,
        _ => false,
    }
}
