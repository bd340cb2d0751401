//! Resource requests and limits: names, quantities, totals, and the quality-of-service class.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::Value;

use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::quantity::Quantity;
use crate::validation::{names, values};

/// Up to how many bytes of names are listed by each error about a claim: all of a pod's claims, where people wrote them.
const LONGEST_LISTING: usize = 1024;
const QUOTA_RESOURCES: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
const COUNTED_RESOURCES: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// A check of a resource's name at a path.
pub(crate) type NameCheck = fn(&str, &Path<'_>, &mut FieldErrors);

/// Whether a resource may be set for a whole pod.
pub fn is_pod_level(name: &str) -> bool {
    ["cpu", "memory"].contains(&name) || is_huge_page(name)
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_quota_huge_page(name: &str) -> bool {
    is_huge_page(name) || name.starts_with("requests.hugepages-")
}

/// Whether a name belongs to Kubernetes: it has no domain, or one of kubernetes.io.
pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a resource belongs to no group that Kubernetes knows: a device, a licence.
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Checks the name of any resource.
pub(crate) fn resource_name(name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let reasons = names::qualified_name(name);
    if !reasons.is_empty() {
        values::invalid_for_each(path, name, reasons, errors);
    } else if !name.contains('/') && !QUOTA_RESOURCES.contains(&name) && name != "storage" && !is_quota_huge_page(name)
    {
        errors.push(FieldError::invalid(path, name, "must be a standard resource type or fully qualified"));
    }
}

/// Checks the name of a resource a container may ask for.
pub(crate) fn container_resource_name(name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    resource_name(name, path, errors);
    if !name.contains('/') {
        if !["cpu", "memory", "ephemeral-storage"].contains(&name) && !is_huge_page(name) {
            errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

fn pod_resource_name(name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let found = errors.0.len();
    resource_name(name, path, errors);
    if errors.0.len() == found && !is_pod_level(name) {
        errors.push(FieldError::not_supported(path, name, &["cpu", "hugepages-", "memory"]));
    }
}

/// Checks the name of a resource a quota may limit.
pub(crate) fn quota_resource_name(name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    resource_name(name, path, errors);
    if !name.contains('/') && !QUOTA_RESOURCES.contains(&name) && !is_quota_huge_page(name) {
        errors.push(FieldError::invalid(path, name, "must be a standard resource for quota"));
    }
}

/// Checks that an amount is not negative, and whole where things are counted.
pub(crate) fn quantity(name: &str, value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let amount = Quantity::from_value(value).unwrap_or(Quantity::ZERO);
    if amount.sign() < 0 {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path, amount.to_string(), detail));
    }
    if (COUNTED_RESOURCES.contains(&name) || is_extended(name)) && amount.milli_value() % 1000 != 0 {
        errors.push(FieldError::invalid(path, amount.to_string(), "must be an integer"));
    }
}

/// Checks the `resources` of a container.
pub(crate) fn container_requirements(
    resources: &Value,
    claims: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut FieldErrors,
) {
    requirements(resources, container_resource_name, claims, path, errors);
}

/// Checks a bare list of resources, e.g. a pod's overhead, as limits.
pub(crate) fn overhead(list: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let resources = serde_json::json!({ "limits": list });
    requirements(&resources, container_resource_name, &BTreeSet::new(), path, errors);
}

fn requirements(
    resources: &Value,
    check_name: NameCheck,
    claims: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut FieldErrors,
) {
    let limits_path = path.child("limits");
    let requests_path = path.child("requests");
    let limits = resources.at("limits");
    let (mut compute, mut huge_pages) = (false, false);
    let mut note = |name: &str| {
        compute |= ["cpu", "memory"].contains(&name);
        huge_pages |= is_huge_page(name);
    };
    for (name, value) in resources.entries("limits") {
        let path = limits_path.key(name);
        check_name(name, &path, errors);
        quantity(name, value, &path, errors);
        huge_page_multiple(name, value, &path, errors);
        note(name);
    }
    for (name, value) in resources.entries("requests") {
        let path = requests_path.key(name);
        check_name(name, &path, errors);
        quantity(name, value, &path, errors);
        let request = Quantity::from_value(value).unwrap_or(Quantity::ZERO);
        if let Some(limit) = limits.get(name).and_then(Quantity::from_value) {
            let rule = if request != limit && !may_overcommit(name) {
                Some("must be equal to")
            } else if request > limit {
                Some("must be less than or equal to")
            } else {
                None
            };
            if let Some(rule) = rule {
                let detail = format!("{rule} {name} limit of {limit}");
                errors.push(FieldError::invalid(&requests_path, request.to_string(), detail));
            }
        } else if !may_overcommit(name) {
            let detail = "Limit must be set for non overcommitable resources";
            errors.push(FieldError::required(&limits_path, detail));
        }
        huge_page_multiple(name, value, &path, errors);
        note(name);
    }
    if huge_pages && !compute {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    resource_claims(resources, claims, &path.child("claims"), errors);
}

fn huge_page_multiple(name: &str, value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some(size) = name.strip_prefix("hugepages-") else { return };
    let amount = Quantity::from_value(value).unwrap_or(Quantity::ZERO);
    let page = Quantity::parse(size).map_or(0, |size| size.value());
    if page <= 0 || amount.value() % page != 0 {
        let detail = format!("{amount} is not positive integer multiple of {name}");
        errors.push(FieldError::invalid(path, amount.to_string(), detail));
    }
}

fn resource_claims(resources: &Value, known: &BTreeSet<&str>, path: &Path<'_>, errors: &mut FieldErrors) {
    let mut seen: HashSet<String> = HashSet::new();
    for (i, claim) in resources.list("claims").iter().enumerate() {
        let path = path.index(i);
        let name = claim.text("name");
        if name.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        let request = claim.text("request");
        let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
        if !request.is_empty() {
            values::invalid_for_each(&path.child("request"), request, names::label(request), errors);
        }
        if seen.contains(&key) || seen.contains(name) {
            errors.push(FieldError::duplicate(&path, key.as_str()));
        }
        seen.insert(key);
        if !known.contains(name) {
            let mut detail = "must be one of the names in pod.spec.resourceClaims".to_owned();
            if known.is_empty() {
                detail.push_str(" which is empty");
            } else if known.len() <= LONGEST_LISTING
                && known.iter().map(|name| name.len()).sum::<usize>() <= LONGEST_LISTING
            {
                let known: Vec<&str> = known.iter().copied().collect();
                detail = format!("{detail}: {}", known.join(", "));
            }
            errors.push(FieldError::new(ErrorKind::NotFound, &path, &name.into(), detail));
        }
    }
}

/// Checks `spec.resources`: what a pod asks for as a whole must cover its containers.
pub(crate) fn pod_requirements(spec: &Value, claims: &BTreeSet<&str>, path: &Path<'_>, errors: &mut FieldErrors) {
    let resources = spec.at("resources");
    if resources.is_null() {
        return;
    }
    let path = path.child("resources");
    if spec.at("os").text("name") == "windows" {
        errors.push(FieldError::forbidden(&path, "may not be set for a windows pod"));
        return;
    }
    if resources.has("claims") {
        let detail = "claims may not be set for Resources at pod-level";
        errors.push(FieldError::forbidden(&path.child("claims"), detail));
    }
    requirements(resources, pod_resource_name, claims, &path, errors);
    let requests_path = path.child("requests");
    for (name, total) in container_requests(spec) {
        if let Some(request) = resources.at("requests").get(&name).and_then(Quantity::from_value)
            && total > request
        {
            let detail = format!("must be greater than or equal to aggregate container requests of {total}");
            errors.push(FieldError::invalid(&requests_path.key(&name), request.to_string(), detail));
        }
    }
    let containers_path = path.child("containers");
    for (i, container) in spec.list("containers").iter().enumerate() {
        let container_path = containers_path.index(i);
        for (name, value) in container.at("resources").entries("limits") {
            let limit = Quantity::from_value(value).unwrap_or(Quantity::ZERO);
            if let Some(most) = resources.at("limits").get(name).and_then(Quantity::from_value)
                && limit > most
            {
                let key = container_path.key(name);
                let detail = format!("must be less than or equal to pod limits of {most}");
                errors.push(FieldError::invalid(&key.child("limits"), limit.to_string(), detail));
            }
        }
    }
}

/// What the containers of a pod ask for together: the sum of those that run at the same time, or
/// the most any init container needs while it runs.
pub(crate) fn container_requests(spec: &Value) -> BTreeMap<String, Quantity> {
    let mut total = BTreeMap::new();
    for container in spec.list("containers") {
        add(&mut total, container);
    }
    let mut sidecars = BTreeMap::new();
    let mut peak: BTreeMap<String, Quantity> = BTreeMap::new();
    for container in spec.list("initContainers") {
        let mut during = sidecars.clone();
        add(&mut during, container);
        if container.text("restartPolicy") == "Always" {
            add(&mut total, container);
            sidecars.clone_from(&during);
        }
        for (name, quantity) in during {
            let most = peak.entry(name).or_insert(quantity);
            *most = (*most).max(quantity);
        }
    }
    for (name, quantity) in peak {
        let most = total.entry(name).or_insert(quantity);
        *most = (*most).max(quantity);
    }
    total
}

fn add(total: &mut BTreeMap<String, Quantity>, container: &Value) {
    for (name, value) in container.at("resources").entries("requests") {
        let quantity = Quantity::from_value(value).unwrap_or(Quantity::ZERO);
        let sum = total.entry(name.to_owned()).or_insert(Quantity::ZERO);
        *sum = sum.plus(&quantity);
    }
}

/// The quality-of-service class of a pod spec.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    if spec.has("resources") {
        return class_of(spec.at("resources"));
    }
    let mut containers = spec.list("initContainers").iter().chain(spec.list("containers"));
    let Some(first) = containers.next() else { return "BestEffort" };
    let class = class_of(first.at("resources"));
    if containers.all(|container| class_of(container.at("resources")) == class) { class } else { "Burstable" }
}

fn class_of(resources: &Value) -> &'static str {
    if resources.entries("requests").is_empty() && resources.entries("limits").is_empty() {
        return "BestEffort";
    }
    let classes = ["cpu", "memory"].map(|name| {
        let amount = |list: &str| Quantity::from_value(resources.at(list).at(name)).unwrap_or(Quantity::ZERO);
        let (request, limit) = (amount("requests"), amount("limits"));
        match (request == limit, request.sign() == 0) {
            (false, _) => "Burstable",
            (true, true) => "BestEffort",
            (true, false) => "Guaranteed",
        }
    });
    if classes[0] == classes[1] { classes[0] } else { "Burstable" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quality_of_service_follows_the_containers() {
        let check =
            |containers: Value, expected: &str| assert_eq!(qos_class(&json!({"containers": containers})), expected);
        check(json!([{}]), "BestEffort");
        let both = json!({"cpu": "1", "memory": "1Gi"});
        check(json!([{"resources": {"limits": both, "requests": both}}]), "Guaranteed");
        check(json!([{"resources": {"limits": both, "requests": both}}, {}]), "Burstable");
        check(json!([{"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}]), "Burstable");
    }

    #[test]
    fn init_containers_count_by_their_peak() {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let total = container_requests(&json!({
            "containers": [{"resources": requests("1")}, {"resources": requests("500m")}],
            "initContainers": [{"restartPolicy": "Always", "resources": requests("1")}, {"resources": requests("3")}]}));
        assert_eq!(total["cpu"].to_string(), "4");
    }
}
