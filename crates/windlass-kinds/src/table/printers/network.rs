//! Services, endpoints and everything around them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::access::{View, get, int, list, scalar, text};
use super::{first_three, labels, selector_or_none};

pub(super) fn service(view: &View<'_>) -> Vec<Value> {
    let cluster_ip = [view.text("/spec/clusterIPs/0"), view.text("/spec/clusterIP"), "<none>"];
    let cluster_ip = cluster_ip.into_iter().find(|ip| !ip.is_empty()).unwrap_or_default();
    let ports: Vec<String> = view.list("/spec/ports").iter().map(port).collect();
    let ports = if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") };
    vec![
        view.name(),
        view.text("/spec/type").into(),
        cluster_ip.into(),
        external_ip(view).into(),
        ports.into(),
        view.age(),
        labels(view.get("/spec/selector")).into(),
    ]
}

fn port(port: &Value) -> String {
    let (number, protocol) = (int(port, "/port"), text(port, "/protocol"));
    match int(port, "/nodePort") {
        node if node > 0 => format!("{number}:{node}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_ip(view: &View<'_>) -> String {
    let external: Vec<&str> = view.list("/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    match view.text("/spec/type") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let balancer = load_balancer(view);
            let all: Vec<&str> = Some(&*balancer).filter(|ips| !ips.is_empty()).into_iter().chain(external).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => view.text("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The addresses a load balancer gave, sorted.
fn load_balancer(view: &View<'_>) -> String {
    let addresses: BTreeSet<&str> = view
        .list("/status/loadBalancer/ingress")
        .iter()
        .filter_map(|ingress| [text(ingress, "/ip"), text(ingress, "/hostname")].into_iter().find(|a| !a.is_empty()))
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

pub(super) fn endpoints(view: &View<'_>) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in view.list("/subsets") {
        let addresses = || list(subset, "/addresses").iter().map(|address| text(address, "/ip"));
        let ports = list(subset, "/ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let number = int(port, "/port");
            all.extend(
                addresses()
                    .map(|ip| if ip.contains(':') { format!("[{ip}]:{number}") } else { format!("{ip}:{number}") }),
            );
        }
    }
    let shown = if view.count("/subsets") == 0 { "<none>".to_owned() } else { first_three(&all, "") };
    vec![view.name(), shown.into(), view.age()]
}

pub(super) fn endpoint_slice(view: &View<'_>) -> Vec<Value> {
    let port = |port: &Value| {
        let shown = get(port, "/port").or_else(|| get(port, "/name"));
        shown.map_or_else(|| "*".to_owned(), scalar)
    };
    let ports: Vec<String> = view.list("/ports").iter().map(port).collect();
    let addresses: Vec<String> =
        view.list("/endpoints").iter().flat_map(|endpoint| list(endpoint, "/addresses")).map(scalar).collect();
    vec![
        view.name(),
        view.text("/addressType").into(),
        first_three(&ports, "<unset>").into(),
        first_three(&addresses, "<unset>").into(),
        view.age(),
    ]
}

pub(super) fn ingress(view: &View<'_>) -> Vec<Value> {
    vec![
        view.name(),
        view.get("/spec/ingressClassName").map_or_else(|| "<none>".into(), Value::clone),
        hosts(view.list("/spec/rules")).into(),
        load_balancer(view).into(),
        if view.count("/spec/tls") == 0 { "80" } else { "80, 443" }.into(),
        view.age(),
    ]
}

/// The hosts of the first rules. Upstream counts what is left over by rules, not by hosts.
fn hosts(rules: &[Value]) -> String {
    const SHOWN: usize = 3;
    let mut shown = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == SHOWN;
        let host = text(rule, "/host");
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, true) => format!("{} + {} more...", shown.join(","), rules.len() - SHOWN),
        (false, false) => shown.join(","),
    }
}

pub(super) fn ingress_class(view: &View<'_>) -> Vec<Value> {
    let default = view.annotation("ingressclass.kubernetes.io/is-default-class") == Some("true");
    let name = format!("{}{}", view.text("/metadata/name"), if default { " (default)" } else { "" });
    let parameters = view.at("/spec/parameters").map_or_else(
        || "<none>".to_owned(),
        |parameters| {
            let group = parameters.get("/apiGroup").map(|group| format!(".{}", scalar(group))).unwrap_or_default();
            format!("{}{group}/{}", parameters.text("/kind"), parameters.text("/name"))
        },
    );
    vec![name.into(), view.text("/spec/controller").into(), parameters.into(), view.age()]
}

pub(super) fn network_policy(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), selector_or_none(view.get("/spec/podSelector")).into(), view.age()]
}

pub(super) fn ip_address(view: &View<'_>) -> Vec<Value> {
    let parent = view.at("/spec/parentRef").map_or_else(
        || "<none>".to_owned(),
        |parent| {
            let (group, resource) = (parent.text("/group"), parent.text("/resource"));
            let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
            let namespace = Some(parent.text("/namespace")).filter(|namespace| !namespace.is_empty());
            let namespace = namespace.map(|namespace| format!("/{namespace}")).unwrap_or_default();
            format!("{}{namespace}/{}", resource.to_lowercase(), parent.text("/name"))
        },
    );
    // One cell more than there are columns, as upstream has it.
    vec![view.name(), parent.into(), view.age()]
}

pub(super) fn service_cidr(view: &View<'_>) -> Vec<Value> {
    let cidrs: Vec<&str> = view.list("/spec/cidrs").iter().filter_map(Value::as_str).collect();
    vec![view.name(), cidrs.join(",").into(), view.age()]
}
