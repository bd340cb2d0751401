//! What pods ask for and what nodes have: CPU in thousandths, everything else in whole units.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use windlass::quantity::Amount;

/// What scoring takes a container to ask for if it does not say.
const DEFAULT_CPU: Amount = Amount::from_milli(100);
const DEFAULT_MEMORY: Amount = Amount::from_bytes(200 << 20);

type List = BTreeMap<String, Amount>;

/// Amounts of resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
    /// How many pods: of a node.
    pub pods: i64,
    /// Extended resources, huge pages and the like, by name.
    pub scalars: Vec<(Box<str>, i64)>,
}

impl Resources {
    /// The resources of an API object, such as what a node can be asked for.
    pub fn new(list: Option<&BTreeMap<String, Quantity>>) -> Self {
        Self::of(&amounts(list))
    }

    fn of(list: &List) -> Self {
        let mut resources = Self::default();
        for (name, amount) in list {
            match name.as_str() {
                "cpu" => resources.cpu = amount.milli_value(),
                "memory" => resources.memory = amount.value(),
                "ephemeral-storage" => resources.ephemeral_storage = amount.value(),
                "pods" => resources.pods = amount.value(),
                name if is_scalar(name) => resources.scalars.push((name.into(), amount.value())),
                _ => {}
            }
        }
        resources
    }

    /// The amount of a scalar resource.
    pub fn scalar(&self, name: &str) -> i64 {
        self.scalars.iter().find(|(one, _)| **one == *name).map_or(0, |(_, amount)| *amount)
    }

    /// Whether nothing is asked for.
    pub fn is_nothing(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.ephemeral_storage == 0 && self.scalars.is_empty()
    }

    /// Adds what a pod asks for, or takes it away (`sign` -1).
    pub(crate) fn add(&mut self, other: &Self, sign: i64) {
        self.cpu += sign * other.cpu;
        self.memory += sign * other.memory;
        self.ephemeral_storage += sign * other.ephemeral_storage;
        for (name, amount) in &other.scalars {
            match self.scalars.iter_mut().find(|(one, _)| one == name) {
                Some((_, sum)) => *sum += sign * amount,
                None => self.scalars.push((name.clone(), sign * amount)),
            }
        }
    }
}

/// What a pod asks for: what it says, and CPU and memory with the defaults of containers that do not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    /// What fits or does not.
    pub exact: Resources,
    /// Thousandths of a CPU, for scores.
    pub scored_cpu: i64,
    /// Bytes, for scores.
    pub scored_memory: i64,
}

impl Requests {
    /// What a pod asks for: its containers at once or its init containers one after the other, whichever is more,
    /// sidecars beside both, and its overhead. Requests of the pod as a whole replace those of its containers.
    pub fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let pod_level = amounts(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
        let exact = total(pod, spec, &pod_level, &List::new());
        let mut defaults = List::from([("cpu".to_owned(), DEFAULT_CPU), ("memory".to_owned(), DEFAULT_MEMORY)]);
        if !pod_level.is_empty() {
            defaults.retain(|name, _| exact.get(name).is_none_or(|amount| amount.is_zero()));
        }
        let scored = if defaults.is_empty() { exact.clone() } else { total(pod, spec, &pod_level, &defaults) };
        Self {
            exact: Resources::of(&exact),
            scored_cpu: scored.get("cpu").map_or(0, |amount| amount.milli_value()),
            scored_memory: scored.get("memory").map_or(0, |amount| amount.value()),
        }
    }
}

fn total(pod: &Pod, spec: &PodSpec, pod_level: &List, defaults: &List) -> List {
    let status = pod.status.as_ref();
    let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let init_statuses = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    let mut sum = List::new();
    for container in &spec.containers {
        add(&mut sum, &requests(container, statuses, defaults));
    }
    let (mut sidecars, mut most) = (List::new(), List::new());
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            let wanted = requests(container, init_statuses, defaults);
            add(&mut sum, &wanted);
            add(&mut sidecars, &wanted);
            raise(&mut most, &sidecars);
        } else {
            let mut wanted = requests(container, &[], defaults);
            add(&mut wanted, &sidecars);
            raise(&mut most, &wanted);
        }
    }
    raise(&mut sum, &most);
    for (name, amount) in pod_level {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            sum.insert(name.clone(), *amount);
        }
    }
    add(&mut sum, &amounts(spec.overhead.as_ref()));
    sum
}

/// What a container asks for. While it is being resized, the most of what it asks for, was promised and has.
fn requests(container: &Container, statuses: &[ContainerStatus], defaults: &List) -> List {
    let mut wanted = amounts(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    let status = statuses.iter().find(|status| status.name == container.name);
    if let Some((status, resources)) = status.and_then(|status| Some((status, status.resources.as_ref()?))) {
        raise(&mut wanted, &amounts(resources.requests.as_ref()));
        raise(&mut wanted, &amounts(status.allocated_resources.as_ref()));
    }
    for (name, amount) in defaults {
        wanted.entry(name.clone()).or_insert(*amount);
    }
    wanted
}

fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> List {
    let list = list.into_iter().flatten();
    // A quantity beyond what an amount can be is as good as endless.
    let amount = |quantity| Amount::try_from(quantity).unwrap_or(Amount::from(i64::MAX));
    list.map(|(name, quantity)| (name.clone(), amount(quantity))).collect()
}

fn add(sum: &mut List, other: &List) {
    for (name, amount) in other {
        *sum.entry(name.clone()).or_default() += *amount;
    }
}

fn raise(most: &mut List, other: &List) {
    for (name, amount) in other {
        let entry = most.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

/// As `pkg/scheduler/util.IsScalarResourceName`.
fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}

#[cfg(test)]
mod tests {
    use windlass::json;

    use super::*;

    fn check(spec: &windlass::serde_json::Value, cpu: i64, memory: i64) {
        let pod: Pod = windlass::serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let requests = Requests::of(&pod);
        assert_eq!((requests.exact.cpu, requests.exact.memory), (cpu, memory), "{spec}");
    }

    fn asks(cpu: &str, memory: &str) -> windlass::serde_json::Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn sidecar(cpu: &str, memory: &str) -> windlass::serde_json::Value {
        let mut container = asks(cpu, memory);
        container["restartPolicy"] = json!("Always");
        container
    }

    #[test]
    fn containers_are_added_and_init_containers_are_not() {
        check(&json!({"containers": [{"name": "c"}]}), 0, 0);
        check(&json!({"containers": [asks("2", "1"), asks("1", "1")]}), 3000, 2);
        let init = json!([asks("2", "1"), asks("2", "3")]);
        check(&json!({"containers": [asks("2", "1"), asks("1", "1")], "initContainers": init}), 3000, 3);
        check(&json!({"containers": [asks("1", "1")], "overhead": {"cpu": "250m", "memory": "5"}}), 1250, 6);
    }

    #[test]
    fn sidecars_run_beside_containers_and_later_init_containers() {
        let init = json!([sidecar("1", "10"), asks("2", "1")]);
        check(&json!({"containers": [asks("1", "1")], "initContainers": init}), 3000, 11);
        let init = json!([asks("2", "1"), sidecar("1", "10")]);
        check(&json!({"containers": [asks("1", "1")], "initContainers": init}), 2000, 11);
    }

    #[test]
    fn requests_of_the_pod_replace_those_of_containers() {
        let whole = json!({"requests": {"cpu": "5"}});
        check(&json!({"containers": [asks("1", "7")], "resources": whole}), 5000, 7);
    }

    #[test]
    fn scores_assume_a_little_where_nothing_is_said() {
        let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "a"}, asks("1", "5")]}});
        let requests = Requests::of(&windlass::serde_json::from_value(pod).unwrap());
        assert_eq!((requests.scored_cpu, requests.scored_memory), (1100, (200 << 20) + 5));
        assert_eq!((requests.exact.cpu, requests.exact.memory), (1000, 5));
    }

    #[test]
    fn resized_containers_count_with_the_most_of_old_and_new() {
        let status = json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true,
            "restartCount": 0, "allocatedResources": {"cpu": "4"}, "resources": {"requests": {"cpu": "3"}}}]});
        let pod = json!({"metadata": {}, "spec": {"containers": [asks("1", "5")]}, "status": status});
        let requests = Requests::of(&windlass::serde_json::from_value(pod).unwrap());
        assert_eq!(requests.exact.cpu, 4000);
    }

    #[test]
    fn only_named_resources_count() {
        let requests = json!({"example.com/gpu": "2", "hugepages-2Mi": "4Mi", "pencils": "3", "storage": "1"});
        let container = json!({"name": "c", "resources": {"requests": requests}});
        let pod = json!({"metadata": {}, "spec": {"containers": [container]}});
        let requests = Requests::of(&windlass::serde_json::from_value(pod).unwrap());
        let scalars: Vec<_> = requests.exact.scalars.iter().map(|(name, amount)| (&**name, *amount)).collect();
        assert_eq!(scalars, [("example.com/gpu", 2), ("hugepages-2Mi", 4 << 20)]);
    }
}
