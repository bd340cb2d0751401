//! Endpoints and EndpointSlice.

use std::collections::HashSet;

use serde_json::Value;

use super::Strategy;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{metadata, names, net, values};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const DEPRECATED: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

/// The strategy of Endpoints.
pub(crate) struct Endpoints;

/// The strategy of EndpointSlices.
pub(crate) struct EndpointSlice;

impl Strategy for Endpoints {
    fn default(&self, object: &mut Value) {
        for subset in object.items_mut("subsets") {
            for port in subset.items_mut("ports") {
                port.fill_text("protocol", "TCP");
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("subsets");
        for (i, subset) in object.list("subsets").iter().enumerate() {
            let path = path.index(i);
            if subset.list("addresses").is_empty() && subset.list("notReadyAddresses").is_empty() {
                errors.push(FieldError::required(&path, "must specify `addresses` or `notReadyAddresses`"));
            }
            for field in ["addresses", "notReadyAddresses"] {
                let path = path.child(field);
                for (j, item) in subset.list(field).iter().enumerate() {
                    address(item, &path.index(j), errors);
                }
            }
            let ports_path = path.child("ports");
            let ports = subset.list("ports");
            for (j, item) in ports.iter().enumerate() {
                port(item, ports.len() > 1, &ports_path.index(j), errors);
            }
        }
    }

    /// What was stored under older rules stays valid while it is left alone.
    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        if object.at("subsets") != old.at("subsets") {
            self.validate(object, errors);
        }
    }

    fn deprecation(&self) -> Option<&'static str> {
        Some(DEPRECATED)
    }
}

impl Strategy for EndpointSlice {
    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let deprecated = old.is_none() && object.text("addressType") == "FQDN";
        deprecated.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned()).into_iter().collect()
    }

    /// Everything but the metadata, and of that the labels.
    fn desired_state_changed(&self, object: &Value, old: &Value) -> bool {
        ["addressType", "endpoints", "ports"].iter().any(|field| object.at(field) != old.at(field))
            || object.below(&["metadata", "labels"]) != old.below(&["metadata", "labels"])
    }

    fn default(&self, object: &mut Value) {
        for port in object.items_mut("ports") {
            port.fill("name", "");
            port.fill("protocol", "TCP");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        drop_topology(object, &HashSet::new());
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        if object.at("endpoints") != old.at("endpoints") {
            let nodes: HashSet<&str> = old.list("endpoints").iter().map(hostname).collect();
            drop_topology(object, &nodes);
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        slice_type_and_ports(object, errors);
        slice_endpoints(object, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        slice_type_and_ports(object, errors);
        if object.at("endpoints") != old.at("endpoints") {
            slice_endpoints(object, errors);
        }
        values::immutable(object, old, "addressType", &Path::root(), errors);
    }
}

/// The field has no effect any more. What it said of the node, and the object said before, is said by `nodeName`.
fn drop_topology(object: &mut Value, nodes: &HashSet<&str>) {
    for endpoint in object.items_mut("endpoints") {
        let node = hostname(endpoint).to_owned();
        if !endpoint.has("nodeName") && nodes.contains(node.as_str()) && names::subdomain(&node).is_empty() {
            endpoint.put("nodeName", node);
        }
        endpoint.drop_field("deprecatedTopology");
    }
}

/// The node, as it used to be said.
fn hostname(endpoint: &Value) -> &str {
    endpoint.at("deprecatedTopology").text("kubernetes.io/hostname")
}

fn address(address: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let ip_path = path.child("ip");
    net::legacy_ip(address.text("ip"), &HashSet::new(), &ip_path, errors);
    values::optional_text(address, "hostname", names::label, path, errors);
    if let Some(node) = address.text_opt("nodeName") {
        values::invalid_for_each(&path.child("nodeName"), node, names::subdomain(node), errors);
    }
    net::endpoint_ip(address.text("ip"), &ip_path, errors);
}

fn port(port: &Value, named: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    if named && port.text("name").is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    } else {
        values::optional_text(port, "name", names::label, path, errors);
    }
    values::port(port.int("port"), &path.child("port"), errors);
    values::required_one_of(port, "protocol", PROTOCOLS, path, errors);
    app_protocol(port, path, errors);
}

fn app_protocol(port: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if let Some(protocol) = port.text_opt("appProtocol") {
        values::invalid_for_each(&path.child("appProtocol"), protocol, names::qualified_name(protocol), errors);
    }
}

fn slice_type_and_ports(object: &Value, errors: &mut FieldErrors) {
    values::required_one_of(object, "addressType", &["FQDN", "IPv4", "IPv6"], &Path::root(), errors);
    let path = Path::new("ports");
    let ports = object.list("ports");
    if ports.len() > 20_000 {
        errors.push(FieldError::too_many(&path, ports.len(), 20_000));
        return;
    }
    let mut seen = HashSet::new();
    for (i, item) in ports.iter().enumerate() {
        let path = path.index(i);
        values::optional_text(item, "name", names::label, &path, errors);
        if !seen.insert(item.text("name")) {
            errors.push(FieldError::duplicate(&path.child("name"), item.text("name")));
        }
        values::required_one_of(item, "protocol", PROTOCOLS, &path, errors);
        app_protocol(item, &path, errors);
    }
}

fn slice_endpoints(object: &Value, errors: &mut FieldErrors) {
    let path = Path::new("endpoints");
    let endpoints = object.list("endpoints");
    if endpoints.len() > 1000 {
        errors.push(FieldError::too_many(&path, endpoints.len(), 1000));
        return;
    }
    let kind = object.text("addressType");
    for (i, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(i);
        let addresses_path = path.child("addresses");
        let addresses = endpoint.texts("addresses");
        if addresses.is_empty() {
            errors.push(FieldError::required(&addresses_path, "must contain at least 1 address"));
        } else if addresses.len() > 100 {
            errors.push(FieldError::too_many(&addresses_path, addresses.len(), 100));
        }
        for (j, text) in addresses.into_iter().enumerate() {
            slice_address(kind, text, &addresses_path, &addresses_path.index(j), errors);
        }
        if let Some(node) = endpoint.text_opt("nodeName") {
            values::invalid_for_each(&path.child("nodeName"), node, names::subdomain(node), errors);
        }
        metadata::labels(endpoint, "deprecatedTopology", &path, errors);
        if let Some(name) = endpoint.text_opt("hostname") {
            values::invalid_for_each(&path.child("hostname"), name, names::label(name), errors);
        }
        hints(endpoint.at("hints"), &path.child("hints"), errors);
    }
}

fn slice_address(kind: &str, text: &str, list: &Path<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    let found = errors.0.len();
    match kind {
        "IPv4" => net::legacy_ip(text, &HashSet::new(), path, errors),
        "IPv6" => net::canonical_ip(text, path, errors),
        "FQDN" => {
            let name = text.strip_suffix('.').unwrap_or(text);
            let reasons = names::subdomain(name);
            if name.is_empty() {
                errors.push(FieldError::required(path, ""));
            } else if !reasons.is_empty() {
                errors.push(FieldError::invalid(path, name, reasons.join(",")));
            } else if !names::has_dots(name, 2) {
                let detail = "should be a domain with at least two segments separated by dots";
                errors.push(FieldError::invalid(path, name, detail));
            }
            return;
        }
        _ => return,
    }
    if errors.0.len() > found {
        return;
    }
    if net::is_ipv6(text) != (kind == "IPv6") {
        errors.push(FieldError::invalid(list, text, format!("must be an {kind} address")));
    }
    net::endpoint_ip(text, path, errors);
}

fn hints(hints: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    for (field, rule) in [("forZones", names::label_value as names::Rule), ("forNodes", names::subdomain)] {
        let path = path.child(field);
        let list = hints.list(field);
        if list.len() > 8 {
            errors.push(FieldError::too_many(&path, list.len(), 8));
            return;
        }
        for (i, hint) in list.iter().enumerate() {
            let path = path.index(i);
            let path = path.child("name");
            let name = hint.text("name");
            if list[..i].iter().any(|before| before.text("name") == name) {
                errors.push(FieldError::duplicate(&path, name));
            }
            values::invalid_for_each(&path, name, rule(name), errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::create_errors;
    use super::*;

    #[test]
    fn endpoints_have_addresses() {
        let check = |subset: Value, expected: &str| {
            assert_eq!(create_errors(&Endpoints, &json!({"subsets": [subset]})), expected);
        };
        check(json!({"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]}), "[]");
        check(json!({}), "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`");
    }

    #[test]
    fn new_slices_of_names_are_deprecated() {
        let check = |type_: &str, old: Option<&Value>, expected: usize| {
            assert_eq!(EndpointSlice.warnings(&json!({"addressType": type_}), old).len(), expected);
        };
        check("FQDN", None, 1);
        check("FQDN", Some(&json!({})), 0);
        check("IPv4", None, 0);
    }

    #[test]
    fn slices_name_nodes_and_no_topology() {
        let endpoint = json!({"addresses": ["10.1.1.1"], "deprecatedTopology": {"kubernetes.io/hostname": "n"}});
        let old = json!({"addressType": "IPv4", "endpoints": [endpoint]});
        let mut made = old.clone();
        EndpointSlice.prepare_create(&mut made);
        assert_eq!(made["endpoints"], json!([{"addresses": ["10.1.1.1"]}]));
        // What was there before is left alone, or said by the field that says it now.
        let mut same = old.clone();
        EndpointSlice.prepare_update(&mut same, &old);
        assert_eq!(same, old);
        let mut moved = old.clone();
        moved["endpoints"][0]["addresses"] = json!(["10.1.1.2"]);
        EndpointSlice.prepare_update(&mut moved, &old);
        assert_eq!(moved["endpoints"], json!([{"addresses": ["10.1.1.2"], "nodeName": "n"}]));
    }

    #[test]
    fn slices_have_a_type() {
        let check = |slice: Value, expected: &str| assert_eq!(create_errors(&EndpointSlice, &slice), expected);
        check(
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"port": 80}]}),
            "[]",
        );
        check(json!({}), "addressType: Required value");
        check(
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["2001:db8::1"]}]}),
            "endpoints[0].addresses: Invalid value: \"2001:db8::1\": must be an IPv4 address",
        );
        check(
            json!({"addressType": "IPv4", "endpoints": [{}]}),
            "endpoints[0].addresses: Required value: must contain at least 1 address",
        );
    }
}
