//! Service: defaults, the fields that come and go with its type, and what must be allocated.
//!
//! Cluster IPs and node ports are the server's to allocate, after `prepare_*` and before validation;
//! [`needs_cluster_ip`], [`needs_node_ports`] and [`needs_health_check_port`] say what is wanted. The
//! cluster is single-stack IPv4.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Strategy;
use crate::field::{FieldErrors, Path};
use crate::validation::access::{Access, AccessMut, last_by};
use crate::validation::net;

mod checks;
mod families;

const CLIENT_IP_SECONDS: i64 = 10_800;

/// The strategy of Services.
pub(crate) struct Service;

impl Strategy for Service {
    fn default(&self, object: &mut Value) {
        let spec = object.struct_mut("spec");
        default_affinity(spec);
        spec.fill_text("type", "ClusterIP");
        for port in spec.items_mut("ports") {
            port.fill_text("protocol", "TCP");
            let target = port.at("targetPort");
            if target.is_null() || *target == 0 || *target == "" {
                port.put("targetPort", port.int("port"));
            }
        }
        if externally_accessible(spec) {
            spec.fill_text("externalTrafficPolicy", "Cluster");
        }
        if ["NodePort", "LoadBalancer", "ClusterIP"].contains(&spec.text("type")) {
            spec.fill("internalTrafficPolicy", "Cluster");
        }
        if spec.text("type") == "LoadBalancer" {
            spec.fill("allocateLoadBalancerNodePorts", true);
            if let Some(balancer) = object.child_mut("status").and_then(|status| status.child_mut("loadBalancer")) {
                for ingress in balancer.items_mut("ingress") {
                    if !ingress.text("ip").is_empty() {
                        ingress.fill("ipMode", "VIP");
                    }
                }
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.drop_field("status");
        let spec = object.struct_mut("spec");
        let cluster_ip = spec.text("clusterIP").to_owned();
        if !cluster_ip.is_empty() && spec.list("clusterIPs").is_empty() {
            spec.put("clusterIPs", vec![cluster_ip]);
        }
        // Validation says what is wrong.
        let _ = families::settle(spec, None);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        object.copy_field("status", old);
        let old = old.at("spec");
        let spec = object.struct_mut("spec");
        keep_allocated(spec, old);
        follow_cluster_ip(spec, old);
        let _ = families::settle(spec, Some(old));
        drop_fields_of_old_type(spec, old);
        if spec.text("type") != "LoadBalancer"
            && let Some(status) = object.child_mut("status")
        {
            status.put("loadBalancer", json!({}));
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        if let Err(found) = families::settle(&mut object.at("spec").clone(), None) {
            *errors = found;
            return;
        }
        checks::service(object, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        if let Err(found) = families::settle(&mut object.at("spec").clone(), Some(old.at("spec"))) {
            *errors = found;
            return;
        }
        checks::update(object, old, errors);
        checks::service(object, Some(old), errors);
    }

    fn validate_status_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        checks::load_balancer_status(object, old, errors);
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings(object)
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }
}

/// Whether a spec of this type has cluster IPs (which may be `None`).
pub fn needs_cluster_ip(spec: &Value) -> bool {
    spec.text("type") != "ExternalName"
}

/// Whether the ports of this spec get node ports where they have none.
pub fn needs_node_ports(spec: &Value) -> bool {
    match spec.text("type") {
        "NodePort" => true,
        "LoadBalancer" => spec.flag_opt("allocateLoadBalancerNodePorts").unwrap_or(true),
        _ => false,
    }
}

/// Whether `healthCheckNodePort` must be allocated.
pub fn needs_health_check_port(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

/// Whether the service is headless: `clusterIP: None`.
pub fn is_headless(spec: &Value) -> bool {
    spec.texts("clusterIPs") == ["None"]
}

fn externally_accessible(spec: &Value) -> bool {
    match spec.text("type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !spec.list("externalIPs").is_empty(),
        _ => false,
    }
}

fn default_affinity(spec: &mut Value) {
    spec.fill_text("sessionAffinity", "None");
    match spec.text("sessionAffinity") {
        "None" => spec.drop_field("sessionAffinityConfig"),
        "ClientIP" if !spec.below(&["sessionAffinityConfig", "clientIP"]).has("timeoutSeconds") => {
            spec.put("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": CLIENT_IP_SECONDS}}));
        }
        _ => {}
    }
}

/// Clients may leave out what was allocated for them.
fn keep_allocated(spec: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(spec) {
        if spec.text("clusterIP").is_empty() {
            spec.copy_field("clusterIP", old);
        }
        if spec.list("clusterIPs").is_empty() && !old.list("clusterIPs").is_empty() {
            spec.copy_field("clusterIPs", old);
        }
    }
    if needs_node_ports(old) && needs_node_ports(spec) {
        let ports_of = |spec: &Value| -> HashSet<i64> {
            spec.list("ports").iter().map(|port| port.int("nodePort")).filter(|port| *port != 0).collect()
        };
        let kept = ports_of(spec);
        let used: HashSet<i64> = ports_of(old).intersection(&kept).copied().collect();
        let before = last_by(old.list("ports"), "name");
        for port in spec.items_mut("ports") {
            if port.int("nodePort") != 0 {
                continue;
            }
            let node_port = before.get(port.text("name")).map_or(0, |before| before.int("nodePort"));
            if node_port != 0 && !used.contains(&node_port) {
                port.put("nodePort", node_port);
            }
        }
    }
    if needs_health_check_port(old) && needs_health_check_port(spec) && spec.int("healthCheckNodePort") == 0 {
        spec.copy_field("healthCheckNodePort", old);
    }
}

/// Clients that only know `clusterIP` change `clusterIPs` by changing it.
fn follow_cluster_ip(spec: &mut Value, old: &Value) {
    let (before, after) = (old.text("clusterIP").to_owned(), spec.text("clusterIP").to_owned());
    if !old.list("clusterIPs").is_empty() && spec.list("clusterIPs").is_empty() && before == after {
        spec.copy_field("clusterIPs", old);
    }
    if before == after || spec.texts("clusterIPs") != old.texts("clusterIPs") {
        return;
    }
    if after.is_empty() {
        spec.drop_field("clusterIPs");
    } else {
        spec.put("clusterIPs", vec![after]);
    }
}

/// A change of type drops what the new type has no use for, unless the client changed that too.
fn drop_fields_of_old_type(spec: &mut Value, old: &Value) {
    let same = |spec: &Value, field: &str| spec.at(field) == old.at(field);
    if needs_cluster_ip(old) && !needs_cluster_ip(spec) {
        if same(spec, "clusterIP") && same(spec, "clusterIPs") {
            spec.drop_field("clusterIP");
            spec.drop_field("clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if same(spec, field) {
                spec.drop_field(field);
            }
        }
    }
    let has_node_ports = |spec: &Value| ["NodePort", "LoadBalancer"].contains(&spec.text("type"));
    if has_node_ports(old) && !has_node_ports(spec) && no_new_node_ports(spec, old) {
        for port in spec.items_mut("ports") {
            port.drop_field("nodePort");
        }
    }
    if needs_health_check_port(old) && !needs_health_check_port(spec) && same(spec, "healthCheckNodePort") {
        spec.drop_field("healthCheckNodePort");
    }
    if old.text("type") == "LoadBalancer" && spec.text("type") != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(spec, field) {
                spec.drop_field(field);
            }
        }
    }
    if externally_accessible(old) && !externally_accessible(spec) && same(spec, "externalTrafficPolicy") {
        spec.drop_field("externalTrafficPolicy");
    }
    // Only ever there for an ExternalName because another type defaulted it.
    if spec.text("type") == "ExternalName" {
        spec.drop_field("internalTrafficPolicy");
    }
}

fn no_new_node_ports(spec: &Value, old: &Value) -> bool {
    let before: HashSet<i64> = old.list("ports").iter().map(|port| port.int("nodePort")).collect();
    spec.list("ports").iter().all(|port| {
        let node_port = port.int("nodePort");
        node_port == 0 || before.contains(&node_port)
    })
}

fn warnings(object: &Value) -> Vec<String> {
    let path = Path::new("spec");
    let spec = object.at("spec");
    let mut out = Vec::new();
    if object.below(&["metadata", "annotations"]).has(checks::TOPOLOGY_HINTS) {
        out.push(format!(
            "annotation {} is deprecated, please use {} instead",
            checks::TOPOLOGY_HINTS,
            checks::TOPOLOGY_MODE
        ));
    }
    let headless = spec.text("type") == "ClusterIP" && spec.text("clusterIP") == "None";
    if headless {
        if !spec.text("loadBalancerIP").is_empty() {
            out.push("spec.loadBalancerIP is ignored for headless services".into());
        }
        if !spec.list("externalIPs").is_empty() {
            out.push("spec.externalIPs is ignored for headless services".into());
        }
        if spec.text("sessionAffinity") != "None" {
            out.push("spec.SessionAffinity is ignored for headless services".into());
        }
    } else {
        let path = path.child("clusterIPs");
        let ips = spec.texts("clusterIPs");
        out.extend(ips.iter().enumerate().filter_map(|(i, ip)| net::ip_warning(ip, &path.index(i))));
    }
    let external_path = path.child("externalIPs");
    let external = spec.texts("externalIPs");
    out.extend(external.iter().enumerate().filter_map(|(i, ip)| net::ip_warning(ip, &external_path.index(i))));
    let external_name = spec.text("type") == "ExternalName";
    if !external.is_empty() && !headless && !external_name {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".into());
    }
    out.extend(net::ip_warning(spec.text("loadBalancerIP"), &path.child("loadBalancerIP")));
    let ranges_path = path.child("loadBalancerSourceRanges");
    let ranges = spec.texts("loadBalancerSourceRanges");
    out.extend(ranges.iter().enumerate().flat_map(|(i, range)| net::cidr_warnings(range, &ranges_path.index(i))));
    if !external.is_empty() && external_name {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
    }
    if !external_name && !spec.text("externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
    if spec.text("trafficDistribution") == "PreferClose" {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into());
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)]

    use super::super::testing::{create_errors, created, update_errors};
    use super::*;

    fn service(spec: Value) -> Value {
        json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": spec})
    }

    #[test]
    fn a_cluster_ip_service_gets_defaults() {
        let made = created(&Service, &service(json!({"ports": [{"port": 80}], "selector": {"x": "y"}})));
        assert_eq!(
            made["spec"],
            json!({"ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}], "selector": {"x": "y"},
                "type": "ClusterIP", "sessionAffinity": "None", "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster"})
        );
    }

    #[test]
    fn types_get_their_own_defaults() {
        let made = created(&Service, &service(json!({"ports": [{"port": 80}], "type": "LoadBalancer"})));
        assert_eq!(made["spec"]["allocateLoadBalancerNodePorts"], true);
        assert_eq!(made["spec"]["externalTrafficPolicy"], "Cluster");
        let made = created(&Service, &service(json!({"type": "ExternalName", "externalName": "example.com"})));
        assert_eq!(
            made["spec"],
            json!({"type": "ExternalName", "sessionAffinity": "None", "externalName": "example.com"})
        );
        let made = created(&Service, &service(json!({"ports": [{"port": 80}], "sessionAffinity": "ClientIP"})));
        assert_eq!(made["spec"]["sessionAffinityConfig"], json!({"clientIP": {"timeoutSeconds": 10800}}));
        let made = created(&Service, &service(json!({"ports": [{"port": 80}], "clusterIP": "None"})));
        assert_eq!(made["spec"]["clusterIPs"], json!(["None"]));
    }

    #[test]
    fn new_services() {
        let check = |spec: Value, expected: &str| assert_eq!(create_errors(&Service, &service(spec)), expected);
        check(json!({"ports": [{"port": 80}]}), "[]");
        check(
            json!({"ports": [{"port": 80}, {"port": 81}]}),
            "[spec.ports[0].name: Required value, spec.ports[1].name: Required value]",
        );
        check(
            json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}),
            r#"spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#,
        );
        check(json!({"selector": {"a": "b"}}), "spec.ports: Required value");
        check(
            json!({"ports": [{"port": 80}], "type": "Bogus"}),
            r#"spec.type: Unsupported value: "Bogus": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#,
        );
        check(
            json!({"ports": [{"port": 80}], "sessionAffinity": "Sometimes"}),
            r#"spec.sessionAffinity: Unsupported value: "Sometimes": supported values: "ClientIP", "None""#,
        );
        check(
            json!({"ports": [{"port": 80, "nodePort": 30000}]}),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        );
    }

    #[test]
    fn a_cluster_ip_may_not_change() {
        let old = service(json!({"ports": [{"port": 80}], "clusterIP": "None", "selector": {"x": "y"}}));
        let mut new = created(&Service, &old);
        new["spec"]["clusterIP"] = "10.0.0.77".into();
        assert_eq!(
            update_errors(&Service, &old, &new),
            r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.77"]: may not change once set"#
        );
        let bare = service(json!({"ports": [{"port": 81}]}));
        assert_eq!(update_errors(&Service, &old, &bare), "[]");
    }

    #[test]
    fn a_change_of_type_drops_what_no_longer_applies() {
        let mut old = created(&Service, &service(json!({"ports": [{"port": 80}], "type": "LoadBalancer"})));
        old["spec"]["ports"][0]["nodePort"] = 30001.into();
        old["spec"]["clusterIP"] = "10.0.0.7".into();
        old["spec"]["clusterIPs"] = json!(["10.0.0.7"]);
        let mut new = old.clone();
        new["spec"]["type"] = "ClusterIP".into();
        Service.default(&mut new);
        Service.prepare_update(&mut new, &old);
        assert_eq!(
            new["spec"],
            json!({"ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}], "type": "ClusterIP",
                "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "sessionAffinity": "None",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster"})
        );
        let mut new = old.clone();
        new["spec"]["type"] = "ExternalName".into();
        new["spec"]["externalName"] = "example.org".into();
        Service.default(&mut new);
        Service.prepare_update(&mut new, &old);
        assert_eq!(
            new["spec"],
            json!({"ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}], "type": "ExternalName",
                "sessionAffinity": "None", "externalName": "example.org"})
        );
    }

    #[test]
    fn allocated_node_ports_survive_a_replace() {
        let mut old = created(&Service, &service(json!({"ports": [{"port": 80}], "type": "NodePort"})));
        old["spec"]["ports"][0]["nodePort"] = 30001.into();
        let mut new = service(json!({"ports": [{"port": 80}], "type": "NodePort"}));
        Service.default(&mut new);
        Service.prepare_update(&mut new, &old);
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30001);
    }
}
