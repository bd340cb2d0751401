//! Whether a node takes a pod: its resources, its labels and its taints. Mirrors `pkg/kubelet/lifecycle/predicate.go`.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};

use crate::resources::Resources;

/// What the admission of pods asks about a node: much less than the whole Node, of which there may be thousands.
#[derive(Debug, Default)]
pub(crate) struct NodeTraits {
    name: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    taints: Box<[Taint]>,
}

impl NodeTraits {
    pub(crate) fn new(node: &Node) -> Self {
        let labels = node.metadata.labels.iter().flatten();
        Self {
            name: node.metadata.name.as_deref().unwrap_or_default().into(),
            labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            taints: node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).cloned().collect(),
        }
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| **known == *key).map(|(_, value)| &**value)
    }
}

/// Why a node does not take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Refusal {
    fn predicate(name: &str, description: &str) -> Self {
        Self { reason: name.to_owned(), message: format!("Predicate {name} failed: {description}") }
    }
}

/// Whether a node takes a pod that requests so much, when so much is used.
pub(crate) fn admit(
    spec: &PodSpec,
    requested: &Resources,
    node: &NodeTraits,
    used: &Resources,
    allocatable: &Resources,
    pods: i64,
) -> Result<(), Refusal> {
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS".to_owned();
        return Err(Refusal { reason: "PodOSNotSupported".to_owned(), message });
    }
    let insufficient = |resource: &str, requested: i64, used: i64, capacity: i64| Refusal {
        reason: format!("OutOf{resource}"),
        message: format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        ),
    };
    let capacity = |resource: &str| allocatable.get(resource).copied();
    if let Some(allowed) = capacity("pods").filter(|allowed| pods + 1 > *allowed) {
        return Err(insufficient("pods", 1, pods, allowed));
    }
    // CPU, memory and storage before everything else, as upstream reports them.
    let order =
        |name: &str| ["cpu", "memory", "ephemeral-storage"].iter().position(|first| *first == name).unwrap_or(3);
    let mut names: Vec<&String> = requested.keys().collect();
    names.sort_by_key(|name| order(name));
    for name in names {
        // What a node knows nothing of is not its own to count.
        let Some(capacity) = capacity(name).or((order(name) < 3).then_some(0)) else { continue };
        let (wanted, used) = (requested[name], used.get(name).copied().unwrap_or(0));
        if wanted > capacity.saturating_sub(used) {
            return Err(insufficient(name, wanted, used, capacity));
        }
    }
    if !selects(spec, node) {
        return Err(Refusal::predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let refused =
        node.taints.iter().filter(|taint| taint.effect == "NoExecute").any(|taint| !tolerated(taint, tolerations));
    if refused {
        return Err(Refusal::predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate"));
    }
    Ok(())
}

fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| {
        let effect = toleration.effect.as_deref().unwrap_or_default();
        let key = toleration.key.as_deref().unwrap_or_default();
        let exists = toleration.operator.as_deref() == Some("Exists");
        let same = toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
        (effect.is_empty() || effect == taint.effect)
            && (key == taint.key || (key.is_empty() && exists))
            && (exists || same)
    })
}

/// Whether a pod's selector and required affinity select a node.
fn selects(spec: &PodSpec, node: &NodeTraits) -> bool {
    let label = |key: &str| node.label(key);
    let by_labels = spec.node_selector.iter().flatten().all(|(key, value)| label(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    let name = Some(&*node.name);
    by_labels
        && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, name, &label)))
}

fn matches<'a>(term: &NodeSelectorTerm, name: Option<&str>, label: &impl Fn(&str) -> Option<&'a str>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // A term without requirements selects nothing.
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|requirement| holds(requirement, label(&requirement.key)))
        && fields.iter().all(|requirement| holds(requirement, name.filter(|_| requirement.key == "metadata.name")))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = || value.is_some_and(|value| requirement.values.iter().flatten().any(|one| one == value));
    let compared = |accept: fn(i64, i64) -> bool| {
        let bound = requirement.values.iter().flatten().next().and_then(|value| value.parse().ok());
        value.and_then(|value| value.parse().ok()).zip(bound).is_some_and(|(value, bound)| accept(value, bound))
    };
    match &*requirement.operator {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared(|value, bound| value > bound),
        "Lt" => compared(|value, bound| value < bound),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of values read better without references")]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::resources::requests;

    fn check(pod: Value, used: &[(&str, i64)], expected: Result<(), &str>) {
        let spec: PodSpec = serde_json::from_value(pod).expect("a spec");
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": "n", "labels": { "zone": "a", "cores": "8" } },
            "spec": { "taints": [{ "key": "gone", "effect": "NoExecute" }] },
        }))
        .expect("a node");
        let own = |pairs: &[(&str, i64)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let allocatable = own(&[("cpu", 2000), ("memory", 1 << 30), ("pods", 10)]);
        let node = NodeTraits::new(&node);
        let admitted = admit(&spec, &requests(&spec), &node, &own(used), &allocatable, 3);
        assert_eq!(
            admitted.map_err(|refusal| format!("{}: {}", refusal.reason, refusal.message)),
            expected.map_err(Into::into)
        );
    }

    fn asking(cpu: &str) -> Value {
        json!({
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu, "example.com/unknown": "1" } } }],
        })
    }

    #[test]
    fn refusals_of_pods_are_in_the_kubelets_words() {
        check(asking("2"), &[], Ok(()));
        let message = "OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 500, capacity: 2000";
        check(asking("2"), &[("cpu", 500)], Err(message));
        let affinity = "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        let mut pod = asking("1");
        pod["nodeSelector"] = json!({ "zone": "b" });
        check(pod, &[], Err(affinity));
        let mut pod = asking("1");
        pod["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "cores", "operator": "Gt", "values": ["4"] }] }],
        } } });
        check(pod.clone(), &[], Ok(()));
        pod["tolerations"] = json!([]);
        let taint =
            "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
        check(pod, &[], Err(taint));
    }
}
