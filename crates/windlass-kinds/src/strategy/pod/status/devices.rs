//! What a pod's status says about claims of devices, and about the devices its containers have.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::quantity::Quantity;
use crate::validation::{names, values};

const LONGEST_MESSAGE: usize = 1024;
const NO_REQUEST: &str = "must match the extended resource name of an entry in spec.initContainers.resources.requests \
                          or spec.containers.resources.requests";
const NO_CLAIM: &str = "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when \
                        container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty";

/// Checks `resourceClaimStatuses`: each is about a claim of the pod.
pub(super) fn claims(pod: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("resourceClaimStatuses");
    let claims: HashSet<&str> = pod.at("spec").list("resourceClaims").iter().map(|claim| claim.text("name")).collect();
    let mut seen = HashSet::new();
    for (i, status) in pod.at("status").list("resourceClaimStatuses").iter().enumerate() {
        let path = path.index(i);
        let name = status.text("name");
        if !claims.contains(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.push(FieldError::invalid(&path.child("name"), name, detail));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        if let Some(claim) = status.text_opt("resourceClaimName") {
            values::invalid_for_each(&path.child("resourceClaimName"), claim, names::subdomain(claim), errors);
        }
    }
}

/// Checks `extendedResourceClaimStatus`: which request of which container a device is for.
pub(super) fn extended_claim(pod: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let status = pod.below(&["status", "extendedResourceClaimStatus"]);
    if status.is_null() {
        return;
    }
    let path = path.child("extendedResourceClaimStatus");
    let mappings_path = path.child("requestMappings");
    let mappings = status.list("requestMappings");
    if mappings.is_empty() {
        errors.push(FieldError::required(&mappings_path, "at least one request mapping is required"));
    }
    let containers = containers(pod.at("spec"));
    let mut seen = HashSet::new();
    for (i, mapping) in mappings.iter().enumerate() {
        let mapping_path = mappings_path.index(i);
        let (name, resource, request) =
            (mapping.text("containerName"), mapping.text("resourceName"), mapping.text("requestName"));
        match containers.get(name) {
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.push(FieldError::invalid(&mapping_path.child("containerName"), name, detail));
            }
            Some(container) if !container.below(&["resources", "requests"]).has(resource) => {
                errors.push(FieldError::invalid(&mapping_path.child("resourceName"), resource, NO_REQUEST));
            }
            Some(_) => {}
        }
        // Not below the mapping: upstream's path.
        values::invalid_for_each(&path.child("requestName"), request, names::label(request), errors);
        if !seen.insert((name, resource, request)) {
            for (field, value) in [("containerName", name), ("resourceName", resource), ("requestName", request)] {
                errors.push(FieldError::duplicate(&mapping_path.child(field), value));
            }
        }
    }
    values::required_text(status, "resourceClaimName", names::subdomain, &path, errors);
}

/// The containers by name; of two, the one that upstream finds.
fn containers(spec: &Value) -> HashMap<&str, &Value> {
    let all = spec.list("initContainers").iter().chain(spec.list("containers"));
    all.map(|container| (container.text("name"), container)).collect()
}

/// Checks `allocatedResourcesStatus` of each container status: how the devices of a container are. Ephemeral
/// containers, for which `list` is empty, have none.
pub(super) fn allocated(pod: &Value, field: &str, list: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child(field);
    let containers = asked(pod, list);
    let claim = pod.below(&["status", "extendedResourceClaimStatus"]).text_opt("resourceClaimName");
    for (i, status) in pod.at("status").list(field).iter().enumerate() {
        let status_path = path.index(i);
        let path = status_path.child("allocatedResourcesStatus");
        let resources = status.list("allocatedResourcesStatus");
        if list.is_empty() {
            if !resources.is_empty() {
                errors.push(FieldError::forbidden(&path, "must not be specified in container status"));
            }
            continue;
        }
        let container = containers.get(status.text("name"));
        for (j, resource) in resources.iter().enumerate() {
            let path = path.index(j);
            if let Some(container) = container {
                container.known(resource.text("name"), claim, &path, errors);
            }
            health(resource, &path, errors);
        }
    }
}

/// What a container asked for.
struct Asked<'a> {
    requests: &'a Value,
    claims: HashSet<String>,
    /// The requests that were made for its extended resources.
    extended: HashSet<&'a str>,
}

impl<'a> Asked<'a> {
    fn by(container: &'a Value) -> Self {
        let resources = container.at("resources");
        let claims = resources.list("claims").iter().map(|claim| match claim.text("request") {
            "" => claim.text("name").to_owned(),
            request => format!("{}/{request}", claim.text("name")),
        });
        Self { requests: resources.at("requests"), claims: claims.collect(), extended: HashSet::new() }
    }

    /// What a container has, it asked for. `extended` is the claim that was made for extended resources.
    fn known(&self, name: &str, extended: Option<&str>, path: &Path<'_>, errors: &mut FieldErrors) {
        let (found, detail) = match name.strip_prefix("claim:") {
            Some(claim) => {
                let made = claim
                    .split_once('/')
                    .is_some_and(|(claim, request)| extended == Some(claim) && self.extended.contains(request));
                (made || self.claims.contains(claim), NO_CLAIM)
            }
            None => (self.requests.has(name), "must match one of the container's resource requests"),
        };
        if !found {
            errors.push(FieldError::invalid(&path.child("name"), name, detail));
        }
    }
}

/// What the containers of a list asked for, by their names; of two, the first.
fn asked<'a>(pod: &'a Value, list: &str) -> HashMap<&'a str, Asked<'a>> {
    let containers = pod.at("spec").list(list).iter().rev();
    let mut asked: HashMap<&str, Asked<'_>> = containers.map(|item| (item.text("name"), Asked::by(item))).collect();
    for mapping in pod.below(&["status", "extendedResourceClaimStatus"]).list("requestMappings") {
        let Some(container) = asked.get_mut(mapping.text("containerName")) else { continue };
        let amount = Quantity::from_value(container.requests.at(mapping.text("resourceName")));
        if amount.is_some_and(|amount| amount.sign() != 0) {
            container.extended.insert(mapping.text("requestName"));
        }
    }
    asked
}

fn health(resource: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("resources");
    let mut seen = HashSet::new();
    for (k, device) in resource.list("resources").iter().enumerate() {
        let path = path.index(k);
        values::one_of(device, "health", &["Healthy", "Unhealthy", "Unknown"], &path, errors);
        match device.text_opt("message") {
            Some("") => errors.push(FieldError::required(&path.child("message"), "must be non-empty if specified")),
            Some(message) if message.len() > LONGEST_MESSAGE => {
                errors.push(FieldError::too_long(&path.child("message"), LONGEST_MESSAGE));
            }
            _ => {}
        }
        let id = device.text("resourceID");
        if !seen.insert(id) {
            errors.push(FieldError::duplicate(&path.child("resourceID"), id));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::Pod;
    use super::*;
    use crate::strategy::testing::status_errors;

    fn check(status: &Value, expected: &str) {
        let container = json!({"name": "c", "image": "i", "resources": {"claims": [{"name": "a"}],
            "requests": {"example.com/gpu": 1}, "limits": {"example.com/gpu": 1}}});
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [container], "resourceClaims": [{"name": "a", "resourceClaimName": "x"}],
        }});
        assert_eq!(status_errors(&Pod, &pod, status), expected);
    }

    #[test]
    fn claims_are_those_of_the_pod() {
        check(&json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "p-a-1"}]}), "[]");
        let words = "Invalid value: \"x\": must match the name of an entry in `spec.resourceClaims`";
        check(
            &json!({"resourceClaimStatuses": [{"name": "x"}]}),
            &format!("status.resourceClaimStatuses[0].name: {words}"),
        );
        check(
            &json!({"resourceClaimStatuses": [{"name": "a"}, {"name": "a"}]}),
            "status.resourceClaimStatuses[1].name: Duplicate value: \"a\"",
        );
        check(
            &json!({"extendedResourceClaimStatus": {}}),
            "[status.extendedResourceClaimStatus.requestMappings: Required value: at least one request mapping is \
             required, status.extendedResourceClaimStatus.resourceClaimName: Required value]",
        );
    }

    #[test]
    fn devices_are_those_of_the_container() {
        let status = |name: &str, devices: Value| {
            let resources = json!([{"name": name, "resources": devices}]);
            json!({"containerStatuses": [{"name": "c", "allocatedResourcesStatus": resources}]})
        };
        let healthy = json!({"resourceID": "1", "health": "Healthy"});
        check(&status("claim:a", json!([healthy])), "[]");
        check(&status("example.com/gpu", json!([healthy])), "[]");
        let path = "status.containerStatuses[0].allocatedResourcesStatus[0]";
        check(&status("claim:b", json!([])), &format!("{path}.name: Invalid value: \"claim:b\": {NO_CLAIM}"));
        check(
            &status("cpu", json!([])),
            &format!("{path}.name: Invalid value: \"cpu\": must match one of the container's resource requests"),
        );
        let twice = json!([healthy, {"resourceID": "1", "health": "Well"}]);
        check(
            &status("claim:a", twice),
            &format!(
                "[{path}.resources[1].health: Unsupported value: \"Well\": supported values: \"Healthy\", \
                 \"Unhealthy\", \"Unknown\", {path}.resources[1].resourceID: Duplicate value: \"1\"]"
            ),
        );
    }
}
