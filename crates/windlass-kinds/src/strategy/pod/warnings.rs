//! What upstream warns about in pods and pod templates it accepts.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::annotations::{APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD};
use super::containers::each_container;
use crate::field::{Path, quote};
use crate::validation::access::Access;
use crate::validation::net;
use crate::validation::quantity::Quantity;

/// How many overlaps of ports are told of. No answer carries more, and there can be as many as there are pairs.
const MOST_OVERLAPS: usize = 128;
const DEPRECATED_ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];
const DEPRECATED_VOLUMES: &[(&str, &str, &str)] = &[
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// Warnings about a pod (`path` is the root) or a template below `path`.
pub(crate) fn warnings(object: &Value, path: &Path<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let (meta, spec) = (object.at("metadata"), object.at("spec"));
    let spec_path = path.child("spec");
    let meta_path = path.child("metadata");
    let annotations = meta_path.child("annotations");
    scheduling(spec, &spec_path, &mut out);
    for (key, message) in DEPRECATED_ANNOTATIONS {
        if meta.at("annotations").has(key) {
            out.push(format!("{}: {message}", annotations.key(key)));
        }
    }
    volumes(spec, &spec_path, &mut out);
    duplicates(spec, "hostAliases", "ip", &spec_path, &mut out);
    duplicates(spec, "imagePullSecrets", "name", &spec_path, &mut out);
    let secrets = spec_path.child("imagePullSecrets");
    for (i, secret) in spec.list("imagePullSecrets").iter().enumerate() {
        if secret.text("name").is_empty() {
            out.push(format!("{}: invalid empty name \"\"", secrets.index(i).child("name")));
        }
    }
    for name in ["memory", "ephemeral-storage"] {
        fractional(spec.at("overhead"), name, &spec_path.child("overhead"), &mut out);
    }
    let seccomp = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
    if !spec.at("securityContext").has("seccompProfile") && meta.at("annotations").has(SECCOMP_POD) {
        out.push(format!("{}: {seccomp}", annotations.key(SECCOMP_POD)));
    }
    let template = !path.to_string().is_empty();
    each_container(spec, &spec_path, |container, path| {
        let context = container.at("securityContext");
        let key = format!("{SECCOMP_CONTAINER}{}", container.text("name"));
        if !context.has("seccompProfile") && meta.at("annotations").has(&key) {
            out.push(format!("{}: {seccomp}", annotations.key(&key)));
        }
        let key = format!("{APP_ARMOR}{}", container.text("name"));
        if template
            && !context.has("appArmorProfile")
            && !spec.at("securityContext").has("appArmorProfile")
            && meta.at("annotations").has(&key)
        {
            let message = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
            out.push(format!("{}: {message}", annotations.key(&key)));
        }
        let resources = path.child("resources");
        for name in ["memory", "ephemeral-storage"] {
            for kind in ["limits", "requests"] {
                fractional(container.at("resources").at(kind), name, &resources.child(kind), &mut out);
            }
        }
        hidden_variables(container, path, &mut out);
    });
    ports(spec, &spec_path, &mut out);
    if spec.int("terminationGracePeriodSeconds") < 0 {
        let path = spec_path.child("terminationGracePeriodSeconds");
        out.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    null_selectors(spec, &spec_path, &mut out);
    addresses(spec, &spec_path, &mut out);
    out
}

fn scheduling(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let selector = path.child("nodeSelector");
    for (key, _) in spec.text_entries("nodeSelector") {
        if let Some(message) = deprecated_node_label(key) {
            out.push(format!("{}: {message}", selector.key(key)));
        }
    }
    let constraints = path.child("topologySpreadConstraints");
    for (i, constraint) in spec.list("topologySpreadConstraints").iter().enumerate() {
        let path = constraints.index(i);
        let key = constraint.text("topologyKey");
        if let Some(message) = deprecated_node_label(key) {
            out.push(format!("{}: {key} is {message}", path.child("topologyKey")));
        }
        if !constraint.has("labelSelector") {
            out.push(format!("{}: {NULL_SELECTOR}", path.child("labelSelector")));
        }
    }
}

fn deprecated_node_label(key: &str) -> Option<String> {
    let instead = match key {
        "beta.kubernetes.io/arch" => "kubernetes.io/arch",
        "beta.kubernetes.io/os" => "kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "beta.kubernetes.io/instance-type" => "node.kubernetes.io/instance-type",
        _ => return None,
    };
    let since = if key.ends_with("/arch") || key.ends_with("/os") { "v1.14" } else { "v1.17" };
    Some(format!("deprecated since {since}; use \"{instead}\" instead"))
}

fn volumes(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child("volumes");
    for (i, volume) in spec.list("volumes").iter().enumerate() {
        for (field, shown, message) in DEPRECATED_VOLUMES {
            if volume.has(field) {
                out.push(format!("{}: {message}", path.index(i).child(shown)));
            }
        }
    }
}

fn duplicates(spec: &Value, list: &str, field: &str, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child(list);
    let mut seen = HashSet::new();
    for (i, item) in spec.list(list).iter().enumerate() {
        let value = item.text(field);
        if !seen.insert(value) {
            out.push(format!("{}: duplicate {field} {}", path.index(i).child(field), quote(value)));
        }
    }
}

fn fractional(list: &Value, name: &str, path: &Path<'_>, out: &mut Vec<String>) {
    if let Some(quantity) = list.get(name).and_then(Quantity::from_value)
        && quantity.milli_value() % 1000 != 0
    {
        out.push(format!("{}: fractional byte value \"{quantity}\" is invalid, must be an integer", path.key(name)));
    }
}

/// A later variable of the same name hides the earlier one, unless its value builds on it.
fn hidden_variables(container: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child("env");
    let mut seen = HashSet::new();
    for (i, variable) in container.list("env").iter().enumerate() {
        let name = variable.text("name");
        if seen.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        let value = variable.text("value");
        if variable.has("valueFrom") || value == reference || !value.contains(&reference) {
            out.push(format!(
                "{}: hides previous definition of {}, which may be dropped when using apply",
                path.index(i),
                quote(name)
            ));
        }
    }
}

/// Ports of one number and protocol, by host port and below that by host IP. An item is its place among all ports.
type SamePorts<'a> = HashMap<i64, HashMap<&'a str, Vec<usize>>>;

fn ports(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let mut all: Vec<(String, &Value)> = Vec::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let list_path = path.child(list);
        for (i, container) in spec.list(list).iter().enumerate() {
            let container_path = list_path.index(i);
            let ports_path = container_path.child("ports");
            let ports = container.list("ports").iter().enumerate();
            all.extend(ports.map(|(j, port)| (ports_path.index(j).to_string(), port)));
        }
    }
    let mut known: HashMap<(i64, &str), SamePorts<'_>> = HashMap::new();
    let mut told = 0;
    for (i, (place, port)) in all.iter().enumerate() {
        let (host, ip) = (port.int("hostPort"), port.text("hostIP"));
        let same = known.entry((port.int("containerPort"), port.text("protocol"))).or_default();
        let others = if told < MOST_OVERLAPS { overlaps(same, host, ip) } else { BTreeMap::new() };
        for (other, what) in others.into_iter().take(MOST_OVERLAPS - told) {
            out.push(format!("{place}: {what} port definition with {}", all[other].0));
            told += 1;
        }
        same.entry(host).or_default().entry(ip).or_default().push(i);
    }
    let mut first: HashMap<&str, &str> = HashMap::new();
    for (place, port) in all.iter().filter(|(_, port)| !port.text("name").is_empty()) {
        let name = port.text("name");
        let first = *first.entry(name).or_insert(place);
        if first != place {
            out.push(format!(
                "{place}: duplicate port name {} with {first}, services and probes that select ports by name will use \
                 {first}",
                quote(name)
            ));
        }
    }
}

/// Which of the ports a port of the same number and protocol meets on the host, and how.
fn overlaps(same: &SamePorts<'_>, host: i64, ip: &str) -> BTreeMap<usize, &'static str> {
    let hosts: Vec<i64> = if host == 0 { same.keys().copied().collect() } else { vec![0, host] };
    let mut found = BTreeMap::new();
    for other_host in hosts {
        let Some(by_ip) = same.get(&other_host) else { continue };
        // Ports on the same host port with two different addresses do not meet.
        let ips: Vec<&str> =
            if host == 0 || other_host == 0 || ip.is_empty() { by_ip.keys().copied().collect() } else { vec!["", ip] };
        for other_ip in ips {
            let what = if ip == other_ip && host == other_host {
                "duplicate"
            } else if host == 0 || other_host == 0 {
                "overlapping"
            } else {
                "dangerously ambiguous"
            };
            found.extend(by_ip.get(other_ip).into_iter().flatten().map(|other| (*other, what)));
        }
    }
    found
}

fn null_selectors(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let affinity_path = path.child("affinity");
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = spec.at("affinity").at(kind);
        let path = affinity_path.child(kind);
        let required = path.child(REQUIRED);
        for (i, term) in terms.list(REQUIRED).iter().enumerate() {
            if !term.has("labelSelector") {
                out.push(format!("{}: {NULL_SELECTOR}", required.index(i).child("labelSelector")));
            }
        }
        let preferred = path.child(PREFERRED);
        for (i, term) in terms.list(PREFERRED).iter().enumerate() {
            if !term.at("podAffinityTerm").has("labelSelector") {
                let path = preferred.index(i);
                out.push(format!("{}: {NULL_SELECTOR}", path.child("podAffinityTerm").child("labelSelector")));
            }
        }
    }
}

fn addresses(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let config = path.child("dnsConfig");
    let servers = config.child("nameservers");
    for (i, ip) in spec.at("dnsConfig").texts("nameservers").into_iter().enumerate() {
        out.extend(net::ip_warning(ip, &servers.index(i)));
    }
    let aliases = path.child("hostAliases");
    for (i, alias) in spec.list("hostAliases").iter().enumerate() {
        out.extend(net::ip_warning(alias.text("ip"), &aliases.index(i).child("ip")));
    }
}
