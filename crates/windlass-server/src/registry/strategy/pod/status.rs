//! What a status update of a pod may say.

use serde_json::Value;

use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::{names, net, values};

/// Checks a pod's new status against the old pod.
pub(super) fn validate(pod: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("status");
    let (status, old_status) = (pod.at("status"), old.at("status"));
    let conditions = path.child("conditions");
    for (i, condition) in status.list("conditions").iter().enumerate() {
        let path = conditions.index(i);
        let generation = condition.int("observedGeneration");
        if generation < 0 {
            let detail = "must be a non-negative integer";
            errors.push(FieldError::invalid(&path.child("observedGeneration"), generation, detail));
        }
        let kind = condition.text("type");
        if !["PodScheduled", "Ready", "Initialized"].contains(&kind) {
            // The capital is upstream's.
            values::invalid_for_each(&path.child("Type"), kind, names::qualified_name(kind), errors);
        }
    }
    let nominated = status.text("nominatedNodeName");
    if nominated != old_status.text("nominatedNodeName") && !nominated.is_empty() {
        let path = path.child("nominatedNodeName");
        values::invalid_for_each(&path, nominated, names::subdomain(nominated), errors);
        if !old.at("spec").text("nodeName").is_empty() {
            errors.push(FieldError::forbidden(&path, "may not be set on pods that are already bound to a node"));
        }
    }
    let generation = status.int("observedGeneration");
    if generation < 0 {
        let detail = "must be a non-negative integer";
        errors.push(FieldError::invalid(&path.child("observedGeneration"), generation, detail));
    }
    values::immutable(status, old_status, "qosClass", &path, errors);
    transitions(pod, old, "containerStatuses", "containers", &path, errors);
    transitions(pod, old, "initContainerStatuses", "initContainers", &path, errors);
    transitions(pod, old, "ephemeralContainerStatuses", "", &path, errors);
    addresses(status, old_status, "podIPs", "podIP", &path, errors);
    addresses(status, old_status, "hostIPs", "hostIP", &path, errors);
}

/// A container that ended stays ended, unless its restart policy says otherwise.
fn transitions(pod: &Value, old: &Value, field: &str, list: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child(field);
    let spec = old.at("spec");
    for (i, before) in old.at("status").list(field).iter().enumerate() {
        let Some(terminated) = before.at("state").get("terminated").filter(|state| !state.is_null()) else { continue };
        let name = before.text("name");
        let after = pod.at("status").list(field).iter().find(|status| status.text("name") == name);
        if after.is_none_or(|status| status.at("state").has("terminated")) {
            continue;
        }
        let container = spec.list(list).iter().find(|container| container.text("name") == name);
        if !container.is_some_and(|container| may_restart(container, spec, list, terminated.int("exitCode"))) {
            let detail = "may not be transitioned to non-terminated state";
            errors.push(FieldError::forbidden(&path.index(i).child("state"), detail));
        }
    }
}

fn may_restart(container: &Value, spec: &Value, list: &str, exit_code: i64) -> bool {
    for rule in container.list("restartPolicyRules") {
        let codes = rule.at("exitCodes");
        let listed = codes.list("values").iter().any(|code| code.as_i64() == Some(exit_code));
        if listed == (codes.text("operator") == "In") {
            return true;
        }
    }
    let own = container.text("restartPolicy");
    let policy = match own {
        "" if list == "initContainers" && spec.text("restartPolicy") == "Always" => "OnFailure",
        "" => spec.text("restartPolicy"),
        own => own,
    };
    match policy {
        "Always" => true,
        "OnFailure" => exit_code != 0,
        _ => false,
    }
}

fn addresses(status: &Value, old: &Value, list: &str, one: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child(list);
    let ips: Vec<&str> = status.list(list).iter().map(|item| item.text("ip")).collect();
    let known: Vec<&str> = old.list(list).iter().map(|item| item.text("ip")).collect();
    for (i, ip) in ips.iter().enumerate() {
        net::legacy_ip(ip, &known, &path.index(i), errors);
    }
    let single_family = ips.len() > 1 && ips.iter().all(|ip| net::is_ipv6(ip) == net::is_ipv6(ips[0]));
    if single_family || ips.len() > 2 {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(&path, status.at(list).clone(), detail));
    }
    let first = status.text(one);
    if list == "podIPs" && first.is_empty() != ips.is_empty() {
        let detail = "podIP and podIPs must either both be set or both be unset";
        errors.push(FieldError::invalid(&path, status.at(list).clone(), detail));
    } else if ips.first().is_some_and(|ip| *ip != first) {
        let detail = format!("must be equal to `{one}`");
        errors.push(FieldError::invalid(&path.index(0).child("ip"), ips[0], detail));
    }
}
