//! What a status update of a pod may say.

use serde_json::Value;

use crate::field::{ErrorKind, FieldError, FieldErrors, Path, quote};
use crate::validation::access::{Access, first_by};
use crate::validation::{names, net, values};

mod devices;

/// Where the statuses of containers are, and their specifications; those of ephemeral containers do not matter.
const STATUSES: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", ""),
];

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
    for (field, list) in STATUSES {
        transitions(pod, old, field, list, &path, errors);
    }
    devices::claims(pod, &path, errors);
    devices::extended_claim(pod, &path, errors);
    pod_ips(status, old_status, &path, errors);
    host_ips(status, old_status, &path, errors);
    for (field, _) in STATUSES {
        users(pod, field, &path, errors);
    }
    for (field, list) in STATUSES {
        devices::allocated(pod, field, list, &path, errors);
    }
}

/// A container that ended stays ended, unless its restart policy says otherwise.
fn transitions(pod: &Value, old: &Value, field: &str, list: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child(field);
    let spec = old.at("spec");
    if !list.is_empty() && all_may_restart(spec) {
        return;
    }
    let statuses = first_by(pod.at("status").list(field), "name");
    let containers = first_by(spec.list(list), "name");
    for (i, before) in old.at("status").list(field).iter().enumerate() {
        let Some(terminated) = before.at("state").get("terminated").filter(|state| !state.is_null()) else { continue };
        let name = before.text("name");
        let after = statuses.get(name);
        if after.is_none_or(|status| status.at("state").has("terminated")) {
            continue;
        }
        let container = containers.get(name);
        if !container.is_some_and(|container| may_restart(container, spec, terminated.int("exitCode"))) {
            let detail = "may not be transitioned to non-terminated state";
            errors.push(FieldError::forbidden(&path.index(i).child("state"), detail));
        }
    }
}

/// Whether a container may bring all others up again.
fn all_may_restart(spec: &Value) -> bool {
    let containers = ["initContainers", "containers"].into_iter().flat_map(|list| spec.list(list));
    let mut rules = containers.flat_map(|container| container.list("restartPolicyRules"));
    rules.any(|rule| rule.text("action") == "RestartAllContainers")
}

fn may_restart(container: &Value, spec: &Value, exit_code: i64) -> bool {
    let own = container.text("restartPolicy");
    if !own.is_empty() {
        let rules = container.list("restartPolicyRules");
        let matching = rules.iter().find(|rule| {
            let codes = rule.at("exitCodes");
            let listed = codes.list("values").iter().any(|code| code.as_i64() == Some(exit_code));
            rule.has("exitCodes") && listed == (codes.text("operator") == "In")
        });
        if matching.is_some_and(|rule| ["Restart", "RestartAllContainers"].contains(&rule.text("action"))) {
            return true;
        }
    }
    match if own.is_empty() { spec.text("restartPolicy") } else { own } {
        "OnFailure" => exit_code != 0,
        "Never" => false,
        _ => true,
    }
}

fn pod_ips(status: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("podIPs");
    let ips = addresses(status, old, "podIPs", &path, errors);
    let first = status.text("podIP");
    if first.is_empty() != ips.is_empty() {
        let detail = "podIP and podIPs must either both be set or both be unset";
        errors.push(FieldError::shown(ErrorKind::Invalid, &path, shown(&ips), detail));
    } else if ips.first().is_some_and(|ip| *ip != first) {
        errors.push(FieldError::invalid(&path.index(0).child("ip"), ips[0], "must be equal to `podIP`"));
    }
}

fn host_ips(status: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("hostIPs");
    let first = status.list("hostIPs").first().map(|item| item.text("ip"));
    if let Some(first) = first.filter(|ip| *ip != status.text("hostIP")) {
        errors.push(FieldError::invalid(&path.index(0).child("ip"), first, "must be equal to `hostIP`"));
    }
    addresses(status, old, "hostIPs", &path, errors);
}

/// Checks a list of addresses, at most one of each family.
fn addresses<'a>(
    status: &'a Value,
    old: &Value,
    list: &str,
    path: &Path<'_>,
    errors: &mut FieldErrors,
) -> Vec<&'a str> {
    let ips: Vec<&str> = status.list(list).iter().map(|item| item.text("ip")).collect();
    let known = old.list(list).iter().map(|item| item.text("ip")).collect();
    for (i, ip) in ips.iter().enumerate() {
        net::legacy_ip(ip, &known, &path.index(i), errors);
    }
    let single_family = ips.len() > 1 && ips.iter().all(|ip| net::is_ipv6(ip) == net::is_ipv6(ips[0]));
    if single_family || ips.len() > 2 {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::shown(ErrorKind::Invalid, path, shown(&ips), detail));
    }
    ips
}

/// Addresses as upstream prints its internal type.
fn shown(ips: &[&str]) -> String {
    if ips.is_empty() {
        return "null".to_owned();
    }
    let items: Vec<String> = ips.iter().map(|ip| format!(r#"{{"IP":{}}}"#, quote(ip))).collect();
    format!("[{}]", items.join(","))
}

/// Who a container runs as is something that its system has.
fn users(pod: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child(field);
    let system = pod.below(&["spec", "os"]).text("name");
    for (i, status) in pod.at("status").list(field).iter().enumerate() {
        let linux = status.below(&["user", "linux"]);
        if linux.is_null() {
            continue;
        }
        let status_path = path.index(i);
        let user = status_path.child("user");
        let path = user.child("linux");
        match system {
            "windows" => errors.push(FieldError::forbidden(&path, "cannot be set for a windows pod")),
            "" | "linux" => linux_user(linux, &path, errors),
            _ => {}
        }
    }
}

fn linux_user(user: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let mut check = |id: i64, most: i64, path: &Path<'_>| {
        for reason in names::in_range(id, 0, most) {
            errors.push(FieldError::invalid(path, id, reason));
        }
    };
    check(user.int("uid"), u32::MAX.into(), &path.child("uid"));
    check(user.int("gid"), i32::MAX.into(), &path.child("gid"));
    let groups = path.child("supplementalGroups");
    for (i, group) in user.list("supplementalGroups").iter().enumerate() {
        check(group.as_i64().unwrap_or_default(), i32::MAX.into(), &groups.index(i));
    }
}
