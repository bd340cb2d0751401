//! Ingress, IngressClass and NetworkPolicy.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Strategy;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{names, net, selector, values};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const CLASS_FIELD_MAX: usize = 250;

/// The strategy of Ingresses.
pub(crate) struct Ingress;

/// The strategy of IngressClasses.
pub(crate) struct IngressClass;

/// The strategy of NetworkPolicies.
pub(crate) struct NetworkPolicy;

impl Strategy for Ingress {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        self.validate_update(object, &Value::Null, errors);
        let annotation = object.below(&["metadata", "annotations"]).text_opt(CLASS_ANNOTATION);
        let class = object.at("spec").text_opt("ingressClassName");
        if let (Some(annotation), Some(class)) = (annotation, class)
            && annotation != class
        {
            let path = Path::new("annotations");
            let detail = "must match `ingressClassName` when both are specified";
            errors.push(FieldError::invalid(&path.child(CLASS_ANNOTATION), annotation, detail));
        }
    }

    fn validate_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        if spec.list("rules").is_empty() && !spec.has("defaultBackend") {
            let detail = "either `defaultBackend` or `rules` must be specified";
            errors.push(FieldError::invalid(&path, spec.at("rules").clone(), detail));
        }
        if spec.has("defaultBackend") {
            backend(spec.at("defaultBackend"), &path.child("defaultBackend"), errors);
        }
        let rules_path = path.child("rules");
        for (i, rule) in spec.list("rules").iter().enumerate() {
            ingress_rule(rule, &rules_path.index(i), errors);
        }
        let tls_path = path.child("tls");
        for (i, tls) in spec.list("tls").iter().enumerate() {
            let path = tls_path.index(i);
            let hosts_path = path.child("hosts");
            for (j, host) in tls.texts("hosts").into_iter().enumerate() {
                values::invalid_for_each(&hosts_path.index(j), host, host_reasons(host), errors);
            }
            values::optional_text(tls, "secretName", names::subdomain, &path, errors);
        }
        if let Some(class) = spec.text_opt("ingressClassName") {
            values::invalid_for_each(&path.child("ingressClassName"), class, names::subdomain(class), errors);
        }
    }

    fn validate_status_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        let status = Path::new("status");
        let balancer = status.child("loadBalancer");
        let path = balancer.child("ingress");
        let known = old.below(&["status", "loadBalancer"]).list("ingress").iter().map(|item| item.text("ip")).collect();
        for (i, ingress) in object.below(&["status", "loadBalancer"]).list("ingress").iter().enumerate() {
            let path = path.index(i);
            if !ingress.text("ip").is_empty() {
                net::legacy_ip(ingress.text("ip"), &known, &path.child("ip"), errors);
            }
            let host = ingress.text("hostname");
            if !host.is_empty() {
                values::invalid_for_each(&path.child("hostname"), host, names::subdomain(host), errors);
                not_an_address(host, &path.child("hostname"), errors);
            }
        }
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let annotated = object.below(&["metadata", "annotations"]).has(CLASS_ANNOTATION);
        if old.is_none() && annotated && !object.at("spec").has("ingressClassName") {
            return vec![format!(
                "annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"
            )];
        }
        Vec::new()
    }
}

impl Strategy for IngressClass {
    fn default(&self, object: &mut Value) {
        if let Some(parameters) = object.child_mut("spec").and_then(|spec| spec.child_mut("parameters")) {
            parameters.fill("scope", "Cluster");
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        let controller_path = path.child("controller");
        if spec.text("controller").len() > CLASS_FIELD_MAX {
            errors.push(FieldError::too_long(&controller_path, CLASS_FIELD_MAX));
        }
        values::domain_prefixed_path(spec.text("controller"), &controller_path, errors);
        let parameters = spec.at("parameters");
        if !parameters.is_null() {
            class_parameters(parameters, &path.child("parameters"), errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        values::immutable(object.at("spec"), old.at("spec"), "controller", &Path::new("spec"), errors);
        self.validate(object, errors);
    }
}

impl Strategy for NetworkPolicy {
    fn default(&self, object: &mut Value) {
        let spec = object.struct_mut("spec");
        for list in ["ingress", "egress"] {
            for rule in spec.items_mut(list) {
                for port in rule.items_mut("ports") {
                    port.fill("protocol", "TCP");
                }
            }
        }
        if spec.list("policyTypes").is_empty() {
            let types = if spec.list("egress").is_empty() { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
            spec.put("policyTypes", types);
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        policy(object, &HashSet::new(), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        let mut known = HashSet::new();
        for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
            for rule in old.at("spec").list(rules) {
                for peer in rule.list(peers) {
                    known.insert(peer.at("ipBlock").text("cidr"));
                    known.extend(peer.at("ipBlock").texts("except"));
                }
            }
        }
        policy(object, &known, errors);
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
            for (i, rule) in object.at("spec").list(rules).iter().enumerate() {
                for (j, peer) in rule.list(peers).iter().enumerate() {
                    let path = format!("spec.{rules}[{i}].{peers}[{j}].ipBlock");
                    let (path, block) = (Path::new(&path), peer.at("ipBlock"));
                    warnings.extend(net::cidr_warnings(block.text("cidr"), &path.child("cidr")));
                    let path = path.child("except");
                    for (k, except) in block.texts("except").into_iter().enumerate() {
                        warnings.extend(net::cidr_warnings(except, &path.index(k)));
                    }
                }
            }
        }
        warnings
    }
}

fn host_reasons(host: &str) -> names::Reasons {
    if host.contains('*') { names::wildcard_subdomain(host) } else { names::subdomain(host) }
}

fn not_an_address(host: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if net::parse_ip(host).is_some() {
        errors.push(FieldError::invalid(path, host, "must be a DNS name, not an IP address"));
    }
}

fn ingress_rule(rule: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let host = rule.text("host");
    if !host.is_empty() {
        not_an_address(host, &path.child("host"), errors);
        values::invalid_for_each(&path.child("host"), host, host_reasons(host), errors);
    }
    let http = rule.at("http");
    if http.is_null() {
        return;
    }
    let http_path = path.child("http");
    let paths = http_path.child("paths");
    if http.list("paths").is_empty() {
        errors.push(FieldError::required(&paths, ""));
    }
    for (i, item) in http.list("paths").iter().enumerate() {
        ingress_path(item, &paths.index(i), errors);
    }
}

fn ingress_path(item: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let text = item.text("path");
    let text_path = path.child("path");
    let absolute = text.starts_with('/');
    let mut relative = false;
    match item.text_opt("pathType") {
        None => {
            errors.push(FieldError::required(&path.child("pathType"), "pathType must be specified"));
            return;
        }
        Some("Exact" | "Prefix") => {
            if !absolute {
                errors.push(FieldError::invalid(&text_path, text, "must be an absolute path"));
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|part| text.contains(**part)) {
                errors.push(FieldError::invalid(&text_path, text, format!("must not contain '{sequence}'")));
            }
            for suffix in ["/..", "/."].iter().filter(|suffix| text.ends_with(**suffix)) {
                errors.push(FieldError::invalid(&text_path, text, format!("cannot end with '{suffix}'")));
            }
        }
        Some("ImplementationSpecific") => relative = !text.is_empty() && !absolute,
        Some(other) => {
            let supported = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.push(FieldError::not_supported(&path.child("pathType"), other, &supported));
        }
    }
    if relative {
        errors.push(FieldError::invalid(&text_path, text, "must be an absolute path"));
    }
    backend(item.at("backend"), &path.child("backend"), errors);
}

fn backend(backend: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    match (backend.has("resource"), backend.has("service")) {
        (true, true) => errors.push(FieldError::invalid(path, "", "cannot set both resource and service backends")),
        (true, false) => reference(backend.at("resource"), &path.child("resource"), errors),
        (false, true) => service_backend(backend.at("service"), path, errors),
        (false, false) => errors.push(FieldError::invalid(path, "", "resource or service backend is required")),
    }
}

fn service_backend(service: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let service_path = path.child("service");
    values::required_text(service, "name", names::label, &service_path, errors);
    let port_path = service_path.child("port");
    let port = service.at("port");
    match (port.text("name"), port.int("number")) {
        ("", 0) => errors.push(FieldError::required(path, "port name or number is required")),
        ("", number) => values::port(number, &port_path.child("number"), errors),
        (name, 0) => values::invalid_for_each(&port_path.child("name"), name, names::port_name(name), errors),
        _ => errors.push(FieldError::invalid(path, "", "cannot set both port name & port number")),
    }
}

fn segment(value: &str) -> names::Reasons {
    names::path_segment(value, false)
}

fn reference(reference: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if let Some(group) = reference.text_opt("apiGroup") {
        values::invalid_for_each(&path.child("apiGroup"), group, names::subdomain(group), errors);
    }
    values::required_text(reference, "kind", segment, path, errors);
    values::required_text(reference, "name", segment, path, errors);
}

fn class_parameters(parameters: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    reference(parameters, path, errors);
    let namespace_path = path.child("namespace");
    match (parameters.text_opt("scope"), parameters.text_opt("namespace")) {
        (None, _) => errors.push(FieldError::required(&path.child("scope"), "")),
        (Some("Namespace"), None) => {
            errors.push(FieldError::required(&namespace_path, "`parameters.scope` is set to 'Namespace'"));
        }
        (Some("Namespace"), Some(namespace)) => {
            values::invalid_for_each(&namespace_path, namespace, names::label(namespace), errors);
        }
        (Some("Cluster"), Some(_)) => {
            errors.push(FieldError::forbidden(&namespace_path, "`parameters.scope` is set to 'Cluster'"));
        }
        (Some("Cluster"), None) => {}
        (Some(_), _) => values::one_of(parameters, "scope", &["Cluster", "Namespace"], path, errors),
    }
}

fn policy(object: &Value, known: &HashSet<&str>, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let spec = object.at("spec");
    selector::validate(spec.at("podSelector"), &path.child("podSelector"), errors);
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        let rules_path = path.child(rules);
        for (i, rule) in spec.list(rules).iter().enumerate() {
            let rule_path = rules_path.index(i);
            let ports_path = rule_path.child("ports");
            for (j, port) in rule.list("ports").iter().enumerate() {
                policy_port(port, &ports_path.index(j), errors);
            }
            let peers_path = rule_path.child(peers);
            for (j, peer) in rule.list(peers).iter().enumerate() {
                policy_peer(peer, known, &peers_path.index(j), errors);
            }
        }
    }
    let types_path = path.child("policyTypes");
    let types = spec.texts("policyTypes");
    if types.len() > 2 {
        let detail = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid(&types_path, spec.at("policyTypes").clone(), detail));
        return;
    }
    for (i, kind) in types.into_iter().enumerate() {
        if !["Ingress", "Egress"].contains(&kind) {
            errors.push(FieldError::not_supported(&types_path.index(i), kind, &["Ingress", "Egress"]));
        }
    }
}

fn policy_port(port: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if port.has("protocol") {
        values::one_of(port, "protocol", &["TCP", "UDP", "SCTP"], path, errors);
    }
    let end_path = path.child("endPort");
    let end = port.int_opt("endPort");
    let mut bad_end = |detail: &str| {
        if let Some(end) = end {
            errors.push(FieldError::invalid(&end_path, end, detail));
        }
    };
    match port.at("port") {
        Value::Null => bad_end("may not be specified when `port` is not specified"),
        Value::String(name) => {
            bad_end("may not be specified when `port` is non-numeric");
            values::invalid_for_each(&path.child("port"), name, names::port_name(name), errors);
        }
        number => {
            let number = number.as_i64().unwrap_or_default();
            values::port(number, &path.child("port"), errors);
            if let Some(end) = end {
                if end < number {
                    // Upstream shows the value of `port` here.
                    let detail = "must be greater than or equal to `port`";
                    errors.push(FieldError::invalid(&end_path, number, detail));
                }
                values::port(end, &end_path, errors);
            }
        }
    }
}

fn policy_peer(peer: &Value, known: &HashSet<&str>, path: &Path<'_>, errors: &mut FieldErrors) {
    let mut peers = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if peer.has(field) {
            peers += 1;
            selector::validate(peer.at(field), &path.child(field), errors);
        }
    }
    if peer.has("ipBlock") {
        peers += 1;
        ip_block(peer.at("ipBlock"), known, &path.child("ipBlock"), errors);
    }
    if peers == 0 {
        errors.push(FieldError::required(path, "must specify a peer"));
    } else if peers > 1 && peer.has("ipBlock") {
        errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
    }
}

fn ip_block(block: &Value, known: &HashSet<&str>, path: &Path<'_>, errors: &mut FieldErrors) {
    let cidr = block.text("cidr");
    if !values::required(block, "cidr", path, errors) {
        return;
    }
    net::legacy_cidr(cidr, known, &path.child("cidr"), errors);
    let Some((network, length)) = net::parse_cidr(cidr) else { return };
    let path = path.child("except");
    for (i, except) in block.texts("except").into_iter().enumerate() {
        let path = path.index(i);
        net::legacy_cidr(except, known, &path, errors);
        let Some((address, inner)) = net::parse_cidr(except) else { continue };
        let inside = address.is_ipv4() == network.is_ipv4()
            && net::masked(address, length) == net::masked(network, length)
            && length < inner;
        if !inside {
            errors.push(FieldError::invalid(&path, except, "must be a strict subset of `cidr`"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, created, update_errors};
    use super::*;

    #[test]
    fn ingresses() {
        let check = |spec: Value, expected: &str| assert_eq!(create_errors(&Ingress, &json!({"spec": spec})), expected);
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        let path = |path: &str, kind: &str| {
            json!({"rules": [{"host": "a.example.com",
                "http": {"paths": [{"path": path, "pathType": kind, "backend": backend}]}}]})
        };
        check(path("/", "Prefix"), "[]");
        check(path("x", "Exact"), "spec.rules[0].http.paths[0].path: Invalid value: \"x\": must be an absolute path");
        check(json!({}), "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified");
        check(
            json!({"defaultBackend": {"service": {"name": "s"}}}),
            "spec.defaultBackend: Required value: port name or number is required",
        );
    }

    #[test]
    fn ports_of_network_policies() {
        let check = |port: Value, expected: &str| {
            let found = create_errors(&NetworkPolicy, &json!({"spec": {"egress": [{"ports": [port]}]}}));
            assert_eq!(found.replace("spec.egress[0].ports[0]", "PORT"), expected, "{port}");
        };
        check(json!({"port": 1, "endPort": 65535, "protocol": "SCTP"}), "[]");
        check(json!({"port": "http"}), "[]");
        check(
            json!({"protocol": "ICMP"}),
            r#"PORT.protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP""#,
        );
        check(json!({"port": 0}), "PORT.port: Invalid value: 0: must be between 1 and 65535, inclusive");
        check(
            json!({"port": 1, "endPort": 65536}),
            "PORT.endPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
        );
        check(
            json!({"port": 0, "endPort": -1}),
            "[PORT.port: Invalid value: 0: must be between 1 and 65535, inclusive, \
             PORT.endPort: Invalid value: 0: must be greater than or equal to `port`, \
             PORT.endPort: Invalid value: -1: must be between 1 and 65535, inclusive]",
        );
        check(
            json!({"endPort": 80}),
            "PORT.endPort: Invalid value: 80: may not be specified when `port` is not specified",
        );
        check(
            json!({"port": "http", "endPort": 80}),
            "PORT.endPort: Invalid value: 80: may not be specified when `port` is non-numeric",
        );
        check(json!({"port": "a--b"}), r#"PORT.port: Invalid value: "a--b": must not contain consecutive hyphens"#);
    }

    #[test]
    fn peers_of_network_policies() {
        let policy = |peer: &Value| json!({"spec": {"ingress": [{"from": [peer]}]}});
        let check = |peer: Value, expected: &str| {
            let found = create_errors(&NetworkPolicy, &policy(&peer));
            assert_eq!(found.replace("spec.ingress[0].from[0]", "PEER"), expected, "{peer}");
        };
        let block = |cidr: &str, except: &[&str]| json!({"ipBlock": {"cidr": cidr, "except": except}});
        check(json!({"podSelector": {}, "namespaceSelector": {}}), "[]");
        check(block("2001:db8::/32", &["2001:db8:1::/48"]), "[]");
        check(
            json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}),
            "PEER: Forbidden: may not specify both ipBlock and another peer",
        );
        check(json!({"ipBlock": {}}), "PEER.ipBlock.cidr: Required value");
        let valid = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        check(block("10.0.0.1", &["x"]), &format!("PEER.ipBlock.cidr: Invalid value: \"10.0.0.1\": {valid}"));
        check(block("10.0.0.0/8", &["x"]), &format!("PEER.ipBlock.except[0]: Invalid value: \"x\": {valid}"));
        for except in ["10.0.0.0/8", "0.0.0.0/0", "2001:db8::/48"] {
            let subset =
                format!("PEER.ipBlock.except[0]: Invalid value: {except:?}: must be a strict subset of `cidr`");
            check(block("10.0.0.0/8", &[except]), &subset);
        }
        check(
            block("10.0.0.1/8", &[]),
            r#"PEER.ipBlock.cidr: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length"#,
        );
        // What was stored before stays allowed, with a warning.
        let old = policy(&block("10.0.0.1/8", &["10.1.0.0/016"]));
        let moved = json!({"spec": {"egress": [{"to": [block("10.1.0.0/016", &[]), block("10.0.0.1/8", &[])]}]}});
        assert_eq!(update_errors(&NetworkPolicy, &old, &moved), "[]");
        assert_eq!(
            NetworkPolicy.warnings(&moved, Some(&old)),
            [
                r#"spec.egress[0].to[0].ipBlock.cidr: non-standard CIDR value "10.1.0.0/016" is invalid: use "10.1.0.0/16""#,
                r#"spec.egress[0].to[1].ipBlock.cidr: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)"#,
            ]
        );
    }

    #[test]
    fn types_of_network_policies() {
        let check = |types: Value, expected: &str| {
            let found = create_errors(&NetworkPolicy, &json!({"spec": {"policyTypes": types}}));
            assert_eq!(found, expected, "{types}");
        };
        check(json!(["Egress", "Ingress"]), "[]");
        check(
            json!(["Egress", "Digress"]),
            r#"spec.policyTypes[1]: Unsupported value: "Digress": supported values: "Ingress", "Egress""#,
        );
        check(
            json!(["Egress", "Ingress", "Digress"]),
            r#"spec.policyTypes: Invalid value: ["Egress","Ingress","Digress"]: may not specify more than two policyTypes"#,
        );
    }

    #[test]
    fn network_policies() {
        let made =
            created(&NetworkPolicy, &json!({"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 80}]}]}}));
        assert_eq!(made["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(made["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
        let check =
            |spec: Value, expected: &str| assert_eq!(create_errors(&NetworkPolicy, &json!({"spec": spec})), expected);
        check(json!({"ingress": [{"from": [{}]}]}), "spec.ingress[0].from[0]: Required value: must specify a peer");
        check(
            json!({"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}}]}]}),
            "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/9\": must be a strict subset of \
             `cidr`",
        );
        let port = |port: Value| json!({"podSelector": {}, "ingress": [{"ports": [port]}]});
        check(
            port(json!({"port": 90, "endPort": 80})),
            "spec.ingress[0].ports[0].endPort: Invalid value: 90: must be greater than or equal to `port`",
        );
        let label = create_errors(&NetworkPolicy, &json!({"spec": {"podSelector": {"matchLabels": {"a b": "c"}}}}));
        assert!(label.starts_with("spec.podSelector.matchLabels: Invalid value: \"a b\": name part must consist"));
    }

    #[test]
    fn ingress_classes() {
        let check =
            |spec: Value, expected: &str| assert_eq!(create_errors(&IngressClass, &json!({"spec": spec})), expected);
        check(json!({"controller": "acme.io/foo"}), "[]");
        check(
            json!({"controller": "foo"}),
            "spec.controller: Invalid value: \"foo\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        );
    }
}
