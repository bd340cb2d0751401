//! Validation of Services.

use std::collections::HashSet;

use serde_json::Value;

use super::{externally_accessible, is_headless, needs_health_check_port};
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::validation::access::{Access, semantically_equal};
use crate::validation::{metadata, names, net, values};

pub(super) const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
pub(super) const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const NOT_EXTERNAL_NAME: &str = "may not be set for ExternalName services";
const FINAL: &str = "may not change once set";

/// Checks a service; `old` keeps values that once passed looser rules.
pub(super) fn service(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let spec = object.at("spec");
    let old_spec = old.map(|old| old.at("spec"));
    topology_annotations(object, errors);
    let kind = spec.text("type");
    if spec.list("ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.push(FieldError::required(&path.child("ports"), ""));
    }
    fields_of_type(spec, &path, errors);
    ports(spec, &path, errors);
    metadata::labels(spec, "selector", &path, errors);
    session_affinity(spec, &path, errors);
    cluster_ips(spec, old_spec, &path, errors);
    external_ips(spec, old_spec, &path, errors);
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    values::required_one_of(spec, "type", &types, &path, errors);
    node_ports(spec, &path, errors);
    duplicate_ports(spec, &path, errors);
    source_ranges(object, old_spec, &path, errors);
    if spec.has("allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        errors.push(FieldError::forbidden(&path.child("allocateLoadBalancerNodePorts"), ONLY_LOAD_BALANCER));
    }
    load_balancer_class(spec, &path, errors);
    traffic_policies(spec, &path, errors);
    if spec.has("trafficDistribution") {
        let supported = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        values::one_of(spec, "trafficDistribution", &supported, &path, errors);
    }
}

fn topology_annotations(object: &Value, errors: &mut FieldErrors) {
    let annotations = object.below(&["metadata", "annotations"]);
    if let (Some(hints), Some(mode)) = (annotations.text_opt(TOPOLOGY_HINTS), annotations.text_opt(TOPOLOGY_MODE))
        && hints != mode
    {
        let metadata = Path::new("metadata");
        let path = metadata.child("annotations");
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        errors.push(FieldError::invalid(&path.key(TOPOLOGY_MODE), mode, detail));
    }
}

fn fields_of_type(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    match spec.text("type") {
        kind @ ("LoadBalancer" | "NodePort") if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(&path.child("clusterIPs").index(0), "None", detail));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies"] {
                if !spec.list(field).is_empty() {
                    errors.push(FieldError::forbidden(&path.child(field), NOT_EXTERNAL_NAME));
                }
            }
            if spec.has("ipFamilyPolicy") {
                errors.push(FieldError::forbidden(&path.child("ipFamilyPolicy"), NOT_EXTERNAL_NAME));
            }
            let name = spec.text("externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            let path = path.child("externalName");
            if name.is_empty() {
                errors.push(FieldError::required(&path, ""));
            } else {
                values::invalid_for_each(&path, name, names::subdomain(name), errors);
            }
        }
        _ => {}
    }
}

fn ports(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("ports");
    let all = spec.list("ports");
    let mut seen = HashSet::new();
    for (i, port) in all.iter().enumerate() {
        let path = path.index(i);
        let name = port.text("name");
        if name.is_empty() {
            if all.len() > 1 {
                errors.push(FieldError::required(&path.child("name"), ""));
            }
        } else {
            values::invalid_for_each(&path.child("name"), name, names::label(name), errors);
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
        }
        values::port(port.int("port"), &path.child("port"), errors);
        values::required_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &path, errors);
        values::port_or_name(port.at("targetPort"), &path.child("targetPort"), errors);
        if let Some(protocol) = port.text_opt("appProtocol") {
            values::invalid_for_each(&path.child("appProtocol"), protocol, names::qualified_name(protocol), errors);
        }
    }
}

fn session_affinity(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    values::required_one_of(spec, "sessionAffinity", &["ClientIP", "None"], path, errors);
    let config = spec.at("sessionAffinityConfig");
    let path = path.child("sessionAffinityConfig");
    match spec.text("sessionAffinity") {
        "ClientIP" => {
            const DETAIL: &str = "when session affinity type is ClientIP";
            let client_path = path.child("clientIP");
            let timeout_path = client_path.child("timeoutSeconds");
            if config.is_null() {
                errors.push(FieldError::required(&path, DETAIL));
            } else if !config.has("clientIP") {
                errors.push(FieldError::required(&client_path, DETAIL));
            } else if let Some(seconds) = config.at("clientIP").int_opt("timeoutSeconds") {
                if seconds <= 0 || seconds > 86_400 {
                    let detail = "must be greater than 0 and less than 86400";
                    errors.push(FieldError::invalid(&timeout_path, seconds, detail));
                }
            } else {
                errors.push(FieldError::required(&timeout_path, DETAIL));
            }
        }
        "None" if !config.is_null() => {
            errors.push(FieldError::forbidden(&path, "must not be set when session affinity is None"));
        }
        _ => {}
    }
}

/// Checks the addresses and families, as far as they can be without knowing the cluster.
pub(super) fn cluster_ips(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    let ips_path = path.child("clusterIPs");
    let ips = spec.texts("clusterIPs");
    let invalid_ips = |detail: &str| FieldError::invalid(&ips_path, spec.at("clusterIPs").clone(), detail);
    let first = spec.text("clusterIP");
    match (first.is_empty(), ips.first()) {
        (false, None) => errors.push(FieldError::required(&ips_path, "")),
        (false, Some(ip)) if *ip != first => errors.push(invalid_ips("first value must match `clusterIP`")),
        (true, Some(_)) => errors.push(invalid_ips("must be empty when `clusterIP` is not specified")),
        _ => {}
    }
    ip_families(spec, path, errors);
    let known = old.map(|old| old.texts("clusterIPs").into_iter().collect()).unwrap_or_default();
    let found = errors.0.len();
    for (i, ip) in ips.iter().enumerate() {
        if i == 0 && *ip == "None" {
            if ips.len() > 1 {
                errors.push(invalid_ips("'None' must be the first and only value"));
            }
        } else {
            net::legacy_ip(ip, &known, &ips_path.index(i), errors);
        }
    }
    let bad = errors.0.len() > found;
    if ips.len() > 2 {
        errors.push(invalid_ips("may only hold up to 2 values"));
    }
    if bad {
        return;
    }
    if ips.len() > 1 && ips.iter().all(|ip| net::is_ipv6(ip) == net::is_ipv6(ips[0])) {
        errors.push(invalid_ips("may specify no more than one IP for each IP family"));
    }
    if is_headless(spec) {
        return;
    }
    for (i, (ip, family)) in ips.iter().zip(spec.texts("ipFamilies")).enumerate() {
        let expected = match (family, net::is_ipv6(ip)) {
            ("IPv4", true) => "IPv4",
            ("IPv6", false) => "IPv6",
            _ => continue,
        };
        let detail = format!("expected an {expected} value as indicated by `ipFamilies[{i}]`");
        errors.push(FieldError::invalid(&ips_path.index(i), *ip, detail));
    }
}

fn ip_families(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let families_path = path.child("ipFamilies");
    let families = spec.texts("ipFamilies");
    let mut seen = HashSet::new();
    for (i, family) in families.iter().enumerate() {
        if !["IPv4", "IPv6"].contains(family) {
            errors.push(FieldError::not_supported(&families_path.index(i), *family, &["IPv4", "IPv6"]));
        }
        if !seen.insert(family) {
            errors.push(FieldError::duplicate(&families_path.index(i), *family));
        }
    }
    if spec.has("ipFamilyPolicy") {
        let supported = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        values::one_of(spec, "ipFamilyPolicy", &supported, path, errors);
    }
}

fn external_ips(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("externalIPs");
    let known = old.map(|old| old.texts("externalIPs").into_iter().collect()).unwrap_or_default();
    for (i, ip) in spec.texts("externalIPs").into_iter().enumerate() {
        let path = path.index(i);
        let found = errors.0.len();
        net::legacy_ip(ip, &known, &path, errors);
        if errors.0.len() == found {
            net::endpoint_ip(ip, &path, errors);
        }
    }
}

fn node_ports(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("ports");
    let ports = spec.list("ports");
    if spec.text("type") == "ClusterIP" {
        for (i, port) in ports.iter().enumerate() {
            if port.int("nodePort") != 0 {
                let detail = "may not be used when `type` is 'ClusterIP'";
                errors.push(FieldError::forbidden(&path.index(i).child("nodePort"), detail));
            }
        }
    }
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        if port.int("nodePort") != 0 && !seen.insert((port.text("protocol"), port.int("nodePort"))) {
            errors.push(FieldError::duplicate(&path.index(i).child("nodePort"), port.int("nodePort")));
        }
    }
}

fn duplicate_ports(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("ports");
    let mut seen = HashSet::new();
    for (i, port) in spec.list("ports").iter().enumerate() {
        if !seen.insert((port.text("protocol"), port.int("port"))) {
            // Upstream prints its internal type with only the compared fields set.
            let shown = format!(
                r#"{{"Name":"","Protocol":{},"AppProtocol":null,"Port":{},"TargetPort":0,"NodePort":0}}"#,
                port.at("protocol"),
                port.int("port")
            );
            errors.push(FieldError::shown(ErrorKind::Duplicate, &path.index(i), shown, ""));
        }
    }
}

fn source_ranges(object: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    let spec = object.at("spec");
    let balancer = spec.text("type") == "LoadBalancer";
    let ranges = spec.texts("loadBalancerSourceRanges");
    let annotation = object.below(&["metadata", "annotations"]).text_opt(SOURCE_RANGES);
    if !ranges.is_empty() {
        // The capital letter is upstream's.
        let path = path.child("LoadBalancerSourceRanges");
        if !balancer {
            errors.push(FieldError::forbidden(&path, ONLY_LOAD_BALANCER));
        }
        let known = old
            .map(|old| old.texts("loadBalancerSourceRanges").into_iter().map(str::trim).collect())
            .unwrap_or_default();
        for (i, range) in ranges.into_iter().enumerate() {
            net::legacy_cidr(range.trim(), &known, &path.index(i), errors);
        }
    } else if let Some(text) = annotation {
        let metadata = Path::new("metadata");
        let annotations = metadata.child("annotations");
        let path = annotations.key(SOURCE_RANGES);
        if !balancer {
            errors.push(FieldError::forbidden(&path, ONLY_LOAD_BALANCER));
        }
        for range in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            net::legacy_cidr(range, &HashSet::new(), &path, errors);
        }
    }
}

fn load_balancer_class(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some(class) = spec.text_opt("loadBalancerClass") else { return };
    let path = path.child("loadBalancerClass");
    if spec.text("type") == "LoadBalancer" {
        values::invalid_for_each(&path, class, names::qualified_name(class), errors);
    } else {
        errors.push(FieldError::forbidden(&path, ONLY_LOAD_BALANCER));
    }
}

fn traffic_policies(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let external = spec.text("externalTrafficPolicy");
    if externally_accessible(spec) {
        values::required_one_of(spec, "externalTrafficPolicy", &["Cluster", "Local"], path, errors);
    } else if !external.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(&path.child("externalTrafficPolicy"), external, detail));
    }
    let health = spec.int("healthCheckNodePort");
    let health_path = path.child("healthCheckNodePort");
    if needs_health_check_port(spec) {
        // None yet: one is allocated after validation.
        if health != 0 {
            values::port(health, &health_path, errors);
        }
    } else if health != 0 {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid(&health_path, health, detail));
    }
    if spec.has("internalTrafficPolicy") {
        values::one_of(spec, "internalTrafficPolicy", &["Cluster", "Local"], path, errors);
    } else if ["NodePort", "LoadBalancer", "ClusterIP"].contains(&spec.text("type")) {
        errors.push(FieldError::required(&path.child("internalTrafficPolicy"), ""));
    }
}

/// Checks what may not change.
pub(super) fn update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let (spec, old) = (object.at("spec"), old.at("spec"));
    let types = (spec.text("type"), old.text("type"));
    if types.0 != "ExternalName" && types.1 != "ExternalName" {
        let headless = (is_headless(spec), is_headless(old));
        if headless != (true, true) {
            kept_in_order(spec, old, "clusterIPs", "clusterIP", &path, errors);
        }
        if headless == (false, false) {
            kept_in_order(spec, old, "ipFamilies", "ipFamily", &path, errors);
        }
    }
    if types == ("LoadBalancer", "LoadBalancer")
        && !semantically_equal(spec.at("loadBalancerClass"), old.at("loadBalancerClass"))
    {
        let class = spec.at("loadBalancerClass").clone();
        errors.push(FieldError::invalid(&path.child("loadBalancerClass"), class, FINAL));
    }
    if needs_health_check_port(spec)
        && needs_health_check_port(old)
        && spec.int("healthCheckNodePort") != old.int("healthCheckNodePort")
    {
        errors.push(FieldError::forbidden(&path.child("healthCheckNodePort"), values::IMMUTABLE));
    }
}

/// Cluster IPs and families may gain or lose a second entry, but never change.
fn kept_in_order(spec: &Value, old: &Value, field: &str, one: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let (new, before) = (spec.texts(field), old.texts(field));
    let list_path = path.child(field);
    let shown = spec.at(field).clone();
    if new.len() == before.len() {
        for (i, _) in new.iter().zip(&before).enumerate().filter(|(_, (new, before))| new != before) {
            // Families are always reported at the first index.
            let index = if field == "clusterIPs" { i } else { 0 };
            errors.push(FieldError::invalid(&list_path.index(index), shown.clone(), FINAL));
        }
        return;
    }
    if new.is_empty() {
        errors.push(FieldError::invalid(&list_path.index(0), Value::Null, format!("primary {one} can not be unset")));
        return;
    }
    if before.first().is_some_and(|first| *first != new[0]) {
        errors.push(FieldError::invalid(&list_path.index(0), shown, FINAL));
    }
    if new.len() < before.len() && new.len() == 1 && spec.text("ipFamilyPolicy") != "SingleStack" {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {one}");
        errors.push(FieldError::invalid(&path.child("ipFamilyPolicy"), spec.at("ipFamilyPolicy").clone(), detail));
    }
}

/// Checks `status.loadBalancer`.
pub(super) fn load_balancer_status(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let status = Path::new("status");
    let balancer = status.child("loadBalancer");
    let path = balancer.child("ingress");
    let ingresses = object.below(&["status", "loadBalancer"]).list("ingress");
    if object.at("spec").text("type") != "LoadBalancer" && !ingresses.is_empty() {
        errors.push(FieldError::forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'"));
        return;
    }
    let known =
        old.below(&["status", "loadBalancer"]).list("ingress").iter().map(|ingress| ingress.text("ip")).collect();
    for (i, ingress) in ingresses.iter().enumerate() {
        load_balancer_ingress(ingress, &known, &path.index(i), errors);
    }
}

fn load_balancer_ingress(ingress: &Value, known: &HashSet<&str>, path: &Path<'_>, errors: &mut FieldErrors) {
    let ip = ingress.text("ip");
    if !ip.is_empty() {
        net::legacy_ip(ip, known, &path.child("ip"), errors);
    }
    let mode_path = path.child("ipMode");
    match (ingress.has("ipMode"), ip.is_empty()) {
        (false, false) => errors.push(FieldError::required(&mode_path, "must be specified when `ip` is set")),
        (true, true) => errors.push(FieldError::forbidden(&mode_path, "may not be specified when `ip` is not set")),
        (true, false) => values::one_of(ingress, "ipMode", &["Proxy", "VIP"], path, errors),
        (false, true) => {}
    }
    let hostname = ingress.text("hostname");
    if !hostname.is_empty() {
        let path = path.child("hostname");
        values::invalid_for_each(&path, hostname, names::subdomain(hostname), errors);
        if net::parse_ip(hostname).is_some() {
            errors.push(FieldError::invalid(&path, hostname, "must be a DNS name, not an IP address"));
        }
    }
}
