//! Validation of a pod spec, wherever it is embedded.

use std::collections::HashSet;

use serde_json::Value;

use super::containers::{Surroundings, containers, each_container};
use super::{resources, scheduling, security, volumes};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, last_by};
use crate::validation::{metadata, names, net, values};

const HOST_USERS: &str = "when `hostUsers` is false";

/// Checks a pod spec. `old` is the one it replaces, or null. `pod` is the pod itself, where there is one: a template has neither a name nor
/// defaulted host ports.
pub(super) fn validate(spec: &Value, old: &Value, pod: Option<&Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    if !spec.has("terminationGracePeriodSeconds") {
        errors.push(FieldError::required(&path.child("terminationGracePeriodSeconds"), ""));
    }
    let pod_name = pod.map_or("", |pod| pod.at("metadata").text("name"));
    let valid_volumes = volumes::volumes(spec, pod_name, path, errors);
    let claims = spec.list("resourceClaims").iter().map(|claim| claim.text("name"));
    let claims = claims.filter(|name| !name.is_empty()).collect();
    resource_claims(spec, path, errors);
    let around = Surroundings { spec, volumes: valid_volumes, claims };
    containers(&around, path, errors);
    resources::pod_requirements(spec, &around.claims, path, errors);
    host_network_ports(spec, pod.is_some(), path, errors);
    values::required_one_of(spec, "restartPolicy", &["Always", "OnFailure", "Never"], path, errors);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    values::required_one_of(spec, "dnsPolicy", &policies, path, errors);
    metadata::labels(spec, "nodeSelector", path, errors);
    security::pod_context(spec, old, path, errors);
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(&path.child("shareProcessNamespace"), true, detail));
    }
    scheduling::affinity(spec, path, errors);
    dns_config(spec, path, errors);
    scheduling::gates(spec, path, errors);
    scheduling::topology_spread(spec, path, errors);
    host_users(spec, path, errors);
    hostname_override(spec, path, errors);
    values::optional_text(spec, "serviceAccountName", names::subdomain, path, errors);
    values::optional_text(spec, "nodeName", names::subdomain, path, errors);
    if let Some(seconds) = spec.int_opt("activeDeadlineSeconds") {
        for reason in names::in_range(seconds, 1, i64::from(i32::MAX)) {
            errors.push(FieldError::invalid(&path.child("activeDeadlineSeconds"), seconds, reason));
        }
    }
    values::optional_text(spec, "hostname", names::label, path, errors);
    values::optional_text(spec, "subdomain", names::label, path, errors);
    scheduling::tolerations(spec, path, errors);
    host_aliases(spec, path, errors);
    values::optional_text(spec, "priorityClassName", names::subdomain, path, errors);
    if let Some(class) = spec.text_opt("runtimeClassName") {
        values::invalid_for_each(&path.child("runtimeClassName"), class, names::subdomain(class), errors);
    }
    if spec.has("preemptionPolicy") {
        let policies = ["PreemptLowerPriority", "Never"];
        values::required_one_of(spec, "preemptionPolicy", &policies, path, errors);
    }
    if spec.has("overhead") {
        resources::overhead(spec.at("overhead"), &path.child("overhead"), errors);
    }
    security::operating_system(spec, path, errors);
    file_variables(spec, path, errors);
}

fn resource_claims(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("resourceClaims");
    let mut seen = HashSet::new();
    for (i, claim) in spec.list("resourceClaims").iter().enumerate() {
        let path = path.index(i);
        let name = claim.text("name");
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        } else {
            values::required_text(claim, "name", names::label, &path, errors);
        }
        let both = (claim.has("resourceClaimName"), claim.has("resourceClaimTemplateName"));
        let detail = match both {
            (true, true) => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            (false, false) => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => "",
        };
        if !detail.is_empty() {
            errors.push(FieldError::invalid(&path, claim.clone(), detail));
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if let Some(name) = claim.text_opt(field) {
                values::invalid_for_each(&path.child(field), name, names::subdomain(name), errors);
            }
        }
    }
}

/// On the host's network a port is the host's port; templates may leave it to the pod's defaults.
fn host_network_ports(spec: &Value, is_pod: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    if !spec.flag("hostNetwork") {
        return;
    }
    let path = path.child("containers");
    for (i, container) in spec.list("containers").iter().enumerate() {
        let container_path = path.index(i);
        let ports_path = container_path.child("ports");
        for (j, port) in container.list("ports").iter().enumerate() {
            let host = port.int("hostPort");
            if (is_pod || host != 0) && host != port.int("containerPort") {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(&ports_path.index(j).child("hostPort"), host, detail));
            }
        }
    }
}

fn dns_config(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("dnsConfig");
    let config = spec.at("dnsConfig");
    let servers_path = path.child("nameservers");
    let servers = config.texts("nameservers");
    if spec.text("dnsPolicy") == "None" {
        if config.is_null() {
            errors.push(FieldError::required(&path, "must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(FieldError::required(&servers_path, detail));
            return;
        }
    }
    if servers.len() > 3 {
        let detail = "must not have more than 3 nameservers";
        errors.push(FieldError::invalid(&servers_path, config.at("nameservers").clone(), detail));
    }
    for (i, server) in servers.into_iter().enumerate() {
        net::legacy_ip(server, &HashSet::new(), &servers_path.index(i), errors);
    }
    let searches_path = path.child("searches");
    let searches = config.texts("searches");
    if searches.len() > 32 {
        let detail = "must not have more than 32 search paths";
        errors.push(FieldError::invalid(&searches_path, config.at("searches").clone(), detail));
    }
    if searches.join(" ").len() > 2048 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.push(FieldError::invalid(&searches_path, config.at("searches").clone(), detail));
    }
    for (i, search) in searches.into_iter().enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let reasons = names::subdomain_with_underscore(search);
        values::invalid_for_each(&searches_path.index(i), search, reasons, errors);
    }
    let options_path = path.child("options");
    for (i, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.push(FieldError::required(&options_path.index(i), "must not be empty"));
        }
    }
}

fn host_users(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if spec.flag_opt("hostUsers") != Some(false) {
        return;
    }
    // The capitals are upstream's.
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.flag(field) {
            errors.push(FieldError::forbidden(&path.child(shown), HOST_USERS));
        }
    }
    each_container(spec, path, |container, path| {
        if !container.list("volumeDevices").is_empty() {
            errors.push(FieldError::forbidden(&path.child("volumeDevices"), HOST_USERS));
        }
    });
}

fn hostname_override(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some(name) = spec.text_opt("hostnameOverride") else { return };
    let path = path.child("hostnameOverride");
    for (field, set) in
        [("setHostnameAsFQDN", spec.flag("setHostnameAsFQDN")), ("hostNetwork", spec.flag("hostNetwork"))]
    {
        if set {
            errors.push(FieldError::forbidden(&path, format!("may not be specified when {field} is true")));
        }
    }
    if name.len() > 64 {
        errors.push(FieldError::too_long(&path, 64));
    }
    values::invalid_for_each(&path, name, names::subdomain(name), errors);
}

fn host_aliases(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("hostAliases");
    for (i, alias) in spec.list("hostAliases").iter().enumerate() {
        let path = path.index(i);
        net::legacy_ip(alias.text("ip"), &HashSet::new(), &path.child("ip"), errors);
        let names_path = path.child("hostnames");
        for (j, name) in alias.texts("hostnames").into_iter().enumerate() {
            values::invalid_for_each(&names_path.index(j), name, names::subdomain(name), errors);
        }
    }
}

/// Variables read from files name an emptyDir volume of the pod.
fn file_variables(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let volumes = last_by(spec.list("volumes"), "name");
    each_container(spec, path, |container, path| {
        let env_path = path.child("env");
        for (i, variable) in container.list("env").iter().enumerate() {
            let reference = variable.below(&["valueFrom", "fileKeyRef"]);
            if reference.is_null() {
                continue;
            }
            let name = reference.text("volumeName");
            let variable_path = env_path.index(i);
            let from_path = variable_path.child("valueFrom");
            let reference_path = from_path.child("fileKeyRef");
            let path = reference_path.child("volumeName");
            match volumes.get(name) {
                None => errors.push(FieldError::not_found(&path, name)),
                Some(volume) if !volume.has("emptyDir") => {
                    errors.push(FieldError::invalid(&path, name, "referenced volume must be of type emptyDir"));
                }
                Some(_) => {}
            }
        }
    });
}
