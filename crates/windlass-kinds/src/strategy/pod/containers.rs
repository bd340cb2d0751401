//! Containers: regular, init and ephemeral.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::{env, mounts, probes, resources, security};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::{names, values};

const RULES: &str = "must specify restartPolicy when restart rules are used";

/// What a container is checked against.
pub(super) struct Surroundings<'a> {
    /// The pod spec.
    pub(super) spec: &'a Value,
    /// The volumes that are themselves valid.
    pub(super) volumes: HashMap<&'a str, &'a Value>,
    /// The names of the pod's resource claims.
    pub(super) claims: BTreeSet<&'a str>,
}

impl Surroundings<'_> {
    fn grace(&self) -> Option<i64> {
        self.spec.int_opt("terminationGracePeriodSeconds")
    }

    fn host_users(&self) -> bool {
        self.spec.flag_opt("hostUsers").unwrap_or(true)
    }
}

/// Calls `visit` for each container of a pod spec with its path: init, regular, ephemeral.
pub(super) fn each_container(spec: &Value, path: &Path<'_>, mut visit: impl FnMut(&Value, &Path<'_>)) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let path = path.child(list);
        for (i, container) in spec.list(list).iter().enumerate() {
            visit(container, &path.index(i));
        }
    }
}

/// Checks all containers of a pod spec.
pub(super) fn containers(around: &Surroundings<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    regular(around, &path.child("containers"), errors);
    init(around, &path.child("initContainers"), errors);
    ephemeral(around, &path.child("ephemeralContainers"), errors);
}

fn regular(around: &Surroundings<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    let list = around.spec.list("containers");
    if list.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let mut seen = HashSet::new();
    for (i, container) in list.iter().enumerate() {
        let path = path.index(i);
        common(container, around, &path, errors);
        let name = container.text("name");
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        probes::lifecycle(container, around.grace(), &path, errors);
        probes::probes(container, &path, errors);
        restart_policy(container, &path, errors);
    }
    host_port_conflicts(list, path, errors);
}

fn init(around: &Surroundings<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    let list = around.spec.list("initContainers");
    let mut known: HashSet<&str> =
        around.spec.list("containers").iter().map(|container| container.text("name")).collect();
    for (i, container) in list.iter().enumerate() {
        let item = path.index(i);
        common(container, around, &item, errors);
        restart_policy(container, &item, errors);
        let name = container.text("name");
        if known.contains(name) {
            errors.push(FieldError::duplicate(&item.child("name"), name));
        } else if !name.is_empty() {
            known.insert(name);
        }
        host_port_conflicts(std::slice::from_ref(container), path, errors);
        let sidecar = container.text("restartPolicy") == "Always";
        if sidecar {
            probes::lifecycle(container, around.grace(), &item, errors);
            probes::probes(container, &item, errors);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.has(field) {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    errors.push(FieldError::forbidden(&item.child(field), detail));
                }
            }
            let policies = item.child("resizePolicy");
            for (j, policy) in container.list("resizePolicy").iter().enumerate() {
                if policy.text("restartPolicy") == "RestartContainer" {
                    let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    let path = policies.index(j);
                    errors.push(FieldError::invalid(&path.child("restartPolicy"), "RestartContainer", detail));
                }
            }
        }
    }
}

fn ephemeral(around: &Surroundings<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    const FORBIDDEN: &[&str] = &[
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    let spec = around.spec;
    let others: HashSet<&str> =
        spec.list("containers").iter().chain(spec.list("initContainers")).map(|other| other.text("name")).collect();
    let mut seen = HashSet::new();
    for (i, container) in spec.list("ephemeralContainers").iter().enumerate() {
        let path = path.index(i);
        common(container, around, &path, errors);
        image_whitespace(container, &path, errors);
        let name = container.text("name");
        if others.contains(name) || !seen.insert(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.push(FieldError::not_found(&path.child("targetContainerName"), target));
        }
        for field in FORBIDDEN {
            let value = container.at(field);
            let set = match value {
                Value::Array(items) => !items.is_empty(),
                Value::Object(map) => *field != "resources" || !map.is_empty(),
                other => !other.is_null(),
            };
            if set {
                errors.push(FieldError::forbidden(&path.child(field), DETAIL));
            }
        }
        let mounts = path.child("volumeMounts");
        for (i, mount) in container.list("volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.text(field).is_empty() {
                    errors.push(FieldError::forbidden(&mounts.index(i).child(field), DETAIL));
                }
            }
        }
    }
}

fn common(container: &Value, around: &Surroundings<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    values::required_text(container, "name", names::label, path, errors);
    values::required(container, "image", path, errors);
    let policies = ["File", "FallbackToLogsOnError"];
    values::required_one_of(container, "terminationMessagePolicy", &policies, path, errors);
    ports(container, path, errors);
    env::environment(container, path, errors);
    mounts::mounts(container, &around.volumes, path, errors);
    let policies = ["Always", "IfNotPresent", "Never"];
    values::required_one_of(container, "imagePullPolicy", &policies, path, errors);
    let requirements = container.at("resources");
    resources::container_requirements(requirements, &around.claims, &path.child("resources"), errors);
    resize_policy(container, around.spec.text("restartPolicy"), path, errors);
    security::container_context(container, around.host_users(), path, errors);
}

/// The image's name in a pod may not be padded; templates are left alone.
pub(super) fn image_whitespace(container: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let image = container.text("image");
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(&path.child("image"), image, detail));
    }
}

fn ports(container: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("ports");
    let mut known = HashSet::new();
    for (i, port) in container.list("ports").iter().enumerate() {
        let path = path.index(i);
        let name = port.text("name");
        if !name.is_empty() {
            let reasons = names::port_name(name);
            if !reasons.is_empty() {
                values::invalid_for_each(&path.child("name"), name, reasons, errors);
            } else if !known.insert(name) {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
        }
        let number = port.int("containerPort");
        if number == 0 {
            errors.push(FieldError::required(&path.child("containerPort"), ""));
        } else {
            values::port(number, &path.child("containerPort"), errors);
        }
        if port.int("hostPort") != 0 {
            values::port(port.int("hostPort"), &path.child("hostPort"), errors);
        }
        values::required_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &path, errors);
    }
}

fn host_port_conflicts(list: &[Value], path: &Path<'_>, errors: &mut FieldErrors) {
    let mut known = HashSet::new();
    for (i, container) in list.iter().enumerate() {
        let container_path = path.index(i);
        let ports_path = container_path.child("ports");
        for (j, port) in container.list("ports").iter().enumerate() {
            let number = port.int("hostPort");
            if number == 0 {
                continue;
            }
            let (protocol, ip) = (port.text("protocol"), port.text("hostIP"));
            if !known.insert((protocol, ip, number)) {
                let key = format!("{protocol}/{ip}/{number}");
                errors.push(FieldError::duplicate(&ports_path.index(j).child("hostPort"), key));
            }
        }
    }
}

fn resize_policy(container: &Value, pod_policy: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("resizePolicy");
    let mut seen = HashSet::new();
    for (i, policy) in container.list("resizePolicy").iter().enumerate() {
        let resource = policy.text("resourceName");
        if !seen.insert(resource) {
            errors.push(FieldError::duplicate(&path.index(i), resource));
        }
        // Reported at the list, as upstream does.
        let mut one_of = |value: &str, supported: &[&str]| {
            if value.is_empty() {
                errors.push(FieldError::required(&path, ""));
            } else if !supported.contains(&value) {
                errors.push(FieldError::not_supported(&path, value, supported));
            }
        };
        let restart = policy.text("restartPolicy");
        one_of(resource, &["cpu", "memory"]);
        one_of(restart, &["NotRequired", "RestartContainer"]);
        if pod_policy == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(&path, restart, detail));
        }
    }
}

fn restart_policy(container: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let rules = container.list("restartPolicyRules");
    if container.has("restartPolicy") {
        values::one_of(container, "restartPolicy", &["Always", "Never", "OnFailure"], path, errors);
    } else if rules.is_empty() {
        return;
    } else {
        errors.push(FieldError::required(&path.child("restartPolicy"), RULES));
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > 20 {
        errors.push(FieldError::too_many(&path, rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        values::one_of(rule, "action", &["Restart", "RestartAllContainers"], &path, errors);
        let codes_path = path.child("exitCodes");
        let codes = rule.at("exitCodes");
        if codes.is_null() {
            errors.push(FieldError::required(&codes_path, "must be specified"));
            continue;
        }
        values::one_of(codes, "operator", &["In", "NotIn"], &codes_path, errors);
        if codes.list("values").len() > 255 {
            errors.push(FieldError::too_many(&codes_path.child("values"), codes.list("values").len(), 255));
        }
    }
}
