//! Counts what a quota limits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, Pod, ResourceQuota, ResourceRequirements, ScopedResourceSelectorRequirement,
    Service,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use kube::api::ListParams;
use windlass::{Client, ReconcileError};
use windlass_server::validation::quantity::Quantity;

use crate::controllers::discovery::discover;
use crate::controllers::metadata::Metadata;
use crate::controllers::pods;

/// Amounts by resource.
type Amounts = BTreeMap<String, Quantity>;

const CLASS: &str = ".storageclass.storage.k8s.io/";
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// How much is used of everything in `hard`.
pub(super) async fn count(
    client: &Client,
    quota: &ResourceQuota,
    hard: &BTreeMap<String, Text>,
) -> Result<BTreeMap<String, Text>, ReconcileError> {
    let namespace = quota.metadata.namespace.as_deref();
    let all = ListParams::default();
    let mut used: Amounts = hard.keys().map(|name| (name.clone(), Quantity::ZERO)).collect();
    let mut add = |amounts: Amounts| {
        for (name, amount) in amounts {
            if let Some(sum) = used.get_mut(&name) {
                *sum = sum.plus(&amount);
            }
        }
    };
    if hard.keys().any(|name| is_of_pods(name)) {
        let scopes = scopes(quota);
        let listed = client.live().list::<Pod>(namespace, &all).await?;
        listed.iter().filter(|pod| scopes.iter().all(|scope| in_scope(pod, scope))).map(of_pod).for_each(&mut add);
    }
    let has_scopes = !scopes(quota).is_empty();
    if !has_scopes && hard.keys().any(|name| name.starts_with("services")) {
        let listed = client.live().list::<Service>(namespace, &all).await?;
        listed.iter().map(of_service).for_each(&mut add);
    }
    if hard.keys().any(|name| is_of_claims(name)) {
        let listed = client.live().list::<PersistentVolumeClaim>(namespace, &all).await?;
        listed.iter().map(of_claim).for_each(&mut add);
    }
    let counted: Vec<(&String, &str, &str)> =
        hard.keys().filter_map(|name| counted_kind(name).map(|(plural, group)| (name, plural, group))).collect();
    if !has_scopes && !counted.is_empty() {
        let discovered = discover(client.kube()).await?;
        for (name, plural, group) in counted {
            let is_it = |resource: &kube::api::ApiResource| resource.plural == plural && resource.group == group;
            let Some(served) = discovered.preferred.iter().find(|served| is_it(&served.resource)) else { continue };
            let listed = client.objects_with::<Metadata>(served.resource.clone()).list_live(namespace, &all).await?;
            add(Amounts::from([(name.clone(), Quantity::from_int(listed.len() as i64))]));
        }
    }
    Ok(used.into_iter().map(|(name, amount)| (name, Text(amount.to_string()))).collect())
}

/// The kind whose objects a resource counts, whatever is in them.
fn counted_kind(name: &str) -> Option<(&str, &str)> {
    if let Some(counted) = name.strip_prefix("count/") {
        return Some(counted.split_once('.').unwrap_or((counted, ""))).filter(|kind| *kind != ("pods", ""));
    }
    matches!(name, "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas").then_some((name, ""))
}

fn is_of_pods(name: &str) -> bool {
    matches!(name, "pods" | "count/pods" | "cpu" | "memory" | "ephemeral-storage")
        || (name.starts_with("requests.") && name != "requests.storage")
        || name.starts_with("limits.")
        || name.starts_with("hugepages-")
}

fn is_of_claims(name: &str) -> bool {
    matches!(name, "persistentvolumeclaims" | "requests.storage") || name.contains(CLASS)
}

fn one() -> Quantity {
    Quantity::from_int(1)
}

fn of_pod(pod: &Pod) -> Amounts {
    let mut amounts = Amounts::from([("count/pods".to_owned(), one())]);
    if pods::is_finished(pod) {
        return amounts;
    }
    amounts.insert("pods".to_owned(), one());
    for (name, amount) in of_containers(pod, |resources| resources.requests.as_ref()) {
        if matches!(&*name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            amounts.insert(name.clone(), amount);
        }
        amounts.insert(format!("requests.{name}"), amount);
    }
    for (name, amount) in of_containers(pod, |resources| resources.limits.as_ref()) {
        amounts.insert(format!("limits.{name}"), amount);
    }
    amounts
}

/// What a pod needs: of its containers together or of one of those that run before, whichever is
/// more, and what running it costs.
fn of_containers(pod: &Pod, pick: fn(&ResourceRequirements) -> Option<&BTreeMap<String, Text>>) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let of = |container: &Container| container.resources.as_ref().and_then(pick).map(parse).unwrap_or_default();
    let mut together = Amounts::new();
    for container in &spec.containers {
        sum(&mut together, of(container));
    }
    let (mut sidecars, mut before) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            sum(&mut together, of(container));
            sum(&mut sidecars, of(container));
            largest(&mut before, sidecars.clone());
        } else {
            let mut at_once = sidecars.clone();
            sum(&mut at_once, of(container));
            largest(&mut before, at_once);
        }
    }
    largest(&mut together, before);
    // What is said of the pod as a whole goes before what its containers say.
    together.extend(spec.resources.as_ref().and_then(pick).map(parse).unwrap_or_default());
    sum(&mut together, spec.overhead.as_ref().map(parse).unwrap_or_default());
    together
}

fn parse(amounts: &BTreeMap<String, Text>) -> Amounts {
    let parsed = |(name, text): (&String, &Text)| Some((name.clone(), Quantity::parse(&text.0)?));
    amounts.iter().filter_map(parsed).collect()
}

fn sum(total: &mut Amounts, more: Amounts) {
    for (name, amount) in more {
        let known = total.entry(name).or_insert(Quantity::ZERO);
        *known = known.plus(&amount);
    }
}

fn largest(most: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        let known = most.entry(name).or_insert(amount);
        *known = (*known).max(amount);
    }
}

fn of_service(service: &Service) -> Amounts {
    let mut amounts = Amounts::from([("services".to_owned(), one())]);
    let Some(spec) = &service.spec else { return amounts };
    let ports = spec.ports.as_deref().unwrap_or_default();
    let node_ports = match spec.type_.as_deref() {
        Some("NodePort") => ports.len(),
        Some("LoadBalancer") => {
            amounts.insert("services.loadbalancers".to_owned(), one());
            let allocates = spec.allocate_load_balancer_node_ports != Some(false);
            ports.iter().filter(|port| allocates || port.node_port.is_some_and(|number| number != 0)).count()
        }
        _ => 0,
    };
    amounts.insert("services.nodeports".to_owned(), Quantity::from_int(node_ports as i64));
    amounts
}

fn of_claim(claim: &PersistentVolumeClaim) -> Amounts {
    let mut amounts = Amounts::from([("persistentvolumeclaims".to_owned(), one())]);
    let spec = claim.spec.as_ref();
    let requests = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let storage = requests.and_then(|requests| requests.get("storage")).and_then(|text| Quantity::parse(&text.0));
    let annotated = claim.metadata.annotations.as_ref().and_then(|all| all.get(OLD_CLASS));
    let class = annotated.or(spec.and_then(|spec| spec.storage_class_name.as_ref())).filter(|class| !class.is_empty());
    if let Some(class) = class {
        amounts.insert(format!("{class}{CLASS}persistentvolumeclaims"), one());
        amounts.extend(storage.map(|storage| (format!("{class}{CLASS}requests.storage"), storage)));
    }
    amounts.extend(storage.map(|storage| ("requests.storage".to_owned(), storage)));
    amounts
}

/// Which pods a quota is about, in one notation.
fn scopes(quota: &ResourceQuota) -> Vec<ScopedResourceSelectorRequirement> {
    let Some(spec) = &quota.spec else { return Vec::new() };
    let plain = spec.scopes.iter().flatten().map(|scope| ScopedResourceSelectorRequirement {
        scope_name: scope.clone(),
        operator: "Exists".to_owned(),
        values: None,
    });
    let selector = spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten().cloned());
    plain.chain(selector).collect()
}

fn in_scope(pod: &Pod, scope: &ScopedResourceSelectorRequirement) -> bool {
    let Some(spec) = &pod.spec else { return false };
    match &*scope.scope_name {
        "Terminating" => spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0),
        "NotTerminating" => spec.active_deadline_seconds.is_none_or(|seconds| seconds < 0),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = spec.priority_class_name.as_deref().filter(|class| !class.is_empty());
            let listed = scope.values.iter().flatten().any(|value| Some(value.as_str()) == class);
            match &*scope.operator {
                "In" => listed,
                "NotIn" => !listed,
                "DoesNotExist" => class.is_none(),
                _ => class.is_some(),
            }
        }
        "CrossNamespacePodAffinity" => {
            let affinity = spec.affinity.as_ref().and_then(|affinity| serde_json::to_value(affinity).ok());
            let text = affinity.map(|affinity| affinity.to_string()).unwrap_or_default();
            text.contains("\"namespaces\":") || text.contains("\"namespaceSelector\":")
        }
        _ => false,
    }
}

fn is_best_effort(pod: &Pod) -> bool {
    if let Some(class) = pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) {
        return class == "BestEffort";
    }
    let limits = of_containers(pod, |resources| resources.limits.as_ref());
    let requests = of_containers(pod, |resources| resources.requests.as_ref());
    !limits.keys().chain(requests.keys()).any(|name| matches!(&**name, "cpu" | "memory"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    fn text(amounts: &Amounts, name: &str) -> String {
        amounts[name].to_string()
    }

    #[test]
    fn a_pod_needs_its_containers_or_what_runs_before() {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "1Gi"}});
        let used = of_pod(&pod(&json!({
            "containers": [{"name": "a", "resources": requests("100m")}, {"name": "b", "resources": requests("200m")}],
            "initContainers": [
                {"name": "s", "restartPolicy": "Always", "resources": requests("50m")},
                {"name": "i", "resources": requests("1")},
            ],
            "overhead": {"cpu": "10m"},
        })));
        assert_eq!(text(&used, "requests.cpu"), "1060m");
        assert_eq!(text(&used, "cpu"), "1060m");
        assert_eq!(text(&used, "requests.memory"), "3Gi");
        assert_eq!(text(&used, "pods"), "1");
    }

    #[test]
    fn a_finished_pod_only_counts_as_an_object() {
        let mut done = pod(&json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}));
        done.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        assert_eq!(of_pod(&done).into_keys().collect::<Vec<_>>(), ["count/pods"]);
    }

    #[test]
    fn scopes_choose_pods() {
        let scope = |name: &str, operator: &str, values: &[&str]| ScopedResourceSelectorRequirement {
            scope_name: name.to_owned(),
            operator: operator.to_owned(),
            values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
        };
        let short = pod(&json!({"containers": [], "activeDeadlineSeconds": 5, "priorityClassName": "high"}));
        assert!(in_scope(&short, &scope("Terminating", "Exists", &[])));
        assert!(!in_scope(&short, &scope("NotTerminating", "Exists", &[])));
        assert!(in_scope(&short, &scope("BestEffort", "Exists", &[])));
        assert!(in_scope(&short, &scope("PriorityClass", "In", &["high", "low"])));
        assert!(!in_scope(&short, &scope("PriorityClass", "NotIn", &["high"])));
    }

    #[test]
    fn names_say_what_is_counted() {
        assert_eq!(counted_kind("count/deployments.apps"), Some(("deployments", "apps")));
        assert_eq!(counted_kind("count/secrets"), Some(("secrets", "")));
        assert_eq!(counted_kind("configmaps"), Some(("configmaps", "")));
        assert_eq!(counted_kind("count/pods"), None);
        assert_eq!(counted_kind("requests.cpu"), None);
    }
}
