//! Amounts of resources, and how much a pod requests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use windlass::quantity::Amount;

/// Amounts of resources: thousandths of CPU, whole numbers of everything else.
pub(crate) type Resources = BTreeMap<String, i64>;

fn amount(resource: &str, quantity: &Quantity) -> i64 {
    let amount = Amount::try_from(quantity).unwrap_or(Amount::ZERO);
    if resource == "cpu" { amount.milli_value() } else { amount.value() }
}

/// The amounts of a list of quantities.
pub(crate) fn amounts(quantities: Option<&BTreeMap<String, Quantity>>) -> Resources {
    quantities.into_iter().flatten().map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect()
}

fn add(sum: &mut Resources, more: &Resources) {
    for (name, value) in more {
        let sum = sum.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*value);
    }
}

fn at_least(most: &mut Resources, other: &Resources) {
    for (name, value) in other {
        let most = most.entry(name.clone()).or_default();
        *most = (*most).max(*value);
    }
}

/// What a pod requests: the sum of its containers and sidecars, or what an init container needs beside the sidecars before
/// it if that is more, or what the pod as a whole says; and its overhead.
pub(crate) fn requests(spec: &PodSpec) -> Resources {
    let of = |container: &Container| amounts(container.resources.as_ref().and_then(|all| all.requests.as_ref()));
    let mut sum = Resources::new();
    for container in &spec.containers {
        add(&mut sum, &of(container));
    }
    let (mut sidecars, mut peak) = (Resources::new(), Resources::new());
    for container in spec.init_containers.iter().flatten() {
        let mut needed = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sum, &needed);
            add(&mut sidecars, &needed);
            at_least(&mut peak, &sidecars);
        } else {
            add(&mut needed, &sidecars);
            at_least(&mut peak, &needed);
        }
    }
    at_least(&mut sum, &peak);
    let whole = amounts(spec.resources.as_ref().and_then(|all| all.requests.as_ref()));
    sum.extend(whole);
    add(&mut sum, &amounts(spec.overhead.as_ref()));
    sum.retain(|_, value| *value != 0);
    sum
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn init_containers_count_where_they_need_more() {
        let spec: PodSpec = serde_json::from_value(json!({
            "initContainers": [
                { "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": "1" } } },
                { "name": "i", "resources": { "requests": { "cpu": "4" } } },
            ],
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2", "memory": "1Ki" } } }],
            "overhead": { "cpu": "500m" },
        }))
        .expect("a spec");
        let expected = [("cpu".to_owned(), 5500), ("memory".to_owned(), 1024)];
        assert_eq!(requests(&spec), expected.into_iter().collect());
    }
}
