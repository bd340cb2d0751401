//! What a pod's status says about claims of devices, and about the devices its containers have.

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
    let statuses = pod.at("status").list("resourceClaimStatuses");
    for (i, status) in statuses.iter().enumerate() {
        let path = path.index(i);
        let name = status.text("name");
        if !pod.at("spec").list("resourceClaims").iter().any(|claim| claim.text("name") == name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.push(FieldError::invalid(&path.child("name"), name, detail));
        }
        if statuses[..i].iter().any(|before| before.text("name") == name) {
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
    for (i, mapping) in mappings.iter().enumerate() {
        let mapping_path = mappings_path.index(i);
        let (name, resource, request) =
            (mapping.text("containerName"), mapping.text("resourceName"), mapping.text("requestName"));
        match container(pod.at("spec"), name) {
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
        let key = |mapping: &Value| ["containerName", "resourceName", "requestName"].map(|f| mapping.at(f).clone());
        if mappings[..i].iter().any(|before| key(before) == key(mapping)) {
            for (field, value) in [("containerName", name), ("resourceName", resource), ("requestName", request)] {
                errors.push(FieldError::duplicate(&mapping_path.child(field), value));
            }
        }
    }
    values::required_text(status, "resourceClaimName", names::subdomain, &path, errors);
}

/// The container of a name; of two, the one that upstream finds.
fn container<'a>(spec: &'a Value, name: &str) -> Option<&'a Value> {
    let mut all = spec.list("initContainers").iter().chain(spec.list("containers"));
    all.rfind(|container| container.text("name") == name)
}

/// Checks `allocatedResourcesStatus` of each container status: how the devices of a container are. Ephemeral
/// containers, for which `list` is empty, have none.
pub(super) fn allocated(pod: &Value, field: &str, list: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child(field);
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
        let mut containers = pod.at("spec").list(list).iter();
        let container = containers.find(|container| container.text("name") == status.text("name"));
        for (j, resource) in resources.iter().enumerate() {
            let path = path.index(j);
            if let Some(container) = container {
                known(resource.text("name"), container, pod.at("status"), &path, errors);
            }
            health(resource, &path, errors);
        }
    }
}

/// What a container has, it asked for.
fn known(name: &str, container: &Value, status: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let resources = container.at("resources");
    let (found, detail) = match name.strip_prefix("claim:") {
        Some(claim) => {
            let claims = resources.list("claims").iter();
            let asked = claims.map(|claim| match claim.text("request") {
                "" => claim.text("name").to_owned(),
                request => format!("{}/{request}", claim.text("name")),
            });
            (asked.into_iter().any(|asked| asked == claim) || is_extended(claim, container, status), NO_CLAIM)
        }
        None => (resources.at("requests").has(name), "must match one of the container's resource requests"),
    };
    if !found {
        errors.push(FieldError::invalid(&path.child("name"), name, detail));
    }
}

/// Whether a claim was made for an extended resource that the container asked for.
fn is_extended(claim: &str, container: &Value, status: &Value) -> bool {
    let Some((claim, request)) = claim.split_once('/') else { return false };
    let extended = status.at("extendedResourceClaimStatus");
    extended.has("resourceClaimName")
        && extended.text("resourceClaimName") == claim
        && extended.list("requestMappings").iter().any(|mapping| {
            let amount = container.below(&["resources", "requests"]).at(mapping.text("resourceName"));
            mapping.text("containerName") == container.text("name")
                && mapping.text("requestName") == request
                && Quantity::from_value(amount).is_some_and(|amount| amount.sign() != 0)
        })
}

fn health(resource: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("resources");
    let devices = resource.list("resources");
    for (k, device) in devices.iter().enumerate() {
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
        if devices[..k].iter().any(|before| before.text("resourceID") == id) {
            errors.push(FieldError::duplicate(&path.child("resourceID"), id));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::Pod;
    use super::*;
    use crate::registry::strategy::testing::status_errors;

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
