//! Subresources that talk to something else: a pod's log and streams, and proxied requests.
//!
//! Everything upstream checks before it dials is checked here, in its order and words: the options, the
//! container, the node, the address. No kubelet and no pod network stand behind this server, so what gets as
//! far as dialling is answered as an unreachable host. Mirrors `pkg/registry/core/pod/strategy.go`,
//! `pkg/registry/core/node/strategy.go` and `ResourceLocation` of `pkg/registry/core/service/storage`.

use std::net::IpAddr;

use http::StatusCode;
use serde_json::Value;
use windlass_store::Range;

use super::{Answer, Context, stored};
use crate::admission;
use crate::authz::{self, Attributes, Decision, ResourceTarget, Target};
use crate::body::Body;
use crate::codec::time::{self, Precision};
use crate::field::{FieldError, FieldErrors, Path, quote};
use crate::options::parse_int;
use crate::request::Verb;
use crate::status::{Qualified, Status};
use crate::validation::access::Access as _;
use crate::validation::net::parse_ip;

/// What dialling an address that nothing answers at ends with.
const UNREACHABLE: &str = "connect: no route to host";
/// Where kubelets listen unless their node says otherwise.
const KUBELET_PORT: i64 = 10250;
/// The addresses of a node that are tried, in this order: the default of `--kubelet-preferred-address-types`.
const ADDRESSES: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];

/// `pods/log`. A pod without a node has no log yet, which is no failure.
pub(super) async fn log(context: &mut Context) -> Result<Answer, Status> {
    check_log_options(context)?;
    let pod = pod(context, context.name()).await?;
    let container = container(context.query.get("container"), &pod)?;
    let Some(node) = pod.at("spec").text_opt("nodeName").filter(|node| !node.is_empty()) else {
        let warnings = std::mem::take(&mut context.warnings);
        return Ok(Answer::Raw { code: StatusCode::NO_CONTENT, content_type: "", body: Body::empty(), warnings });
    };
    let (host, port) = kubelet(context, node).await?;
    let address = host_port(&host, port);
    let url = format!("https://{address}/containerLogs/{}/{}/{container}", context.namespace(), context.name());
    Err(Status::unclassified(format!("Get {}: dial tcp {address}: {UNREACHABLE}", quote(&url))))
}

/// `exec`, `attach` and `portforward` of pods, `proxy` of pods, services and nodes.
pub(super) async fn connect(context: &mut Context) -> Result<Answer, Status> {
    if context.subresource() == "portforward" {
        check_ports(context)?;
    }
    let options = admission::connect(context).await?;
    Err(match (context.subresource(), &*context.served.plural) {
        ("proxy", "services") => service_proxy(context).await,
        ("proxy", "nodes") => node_proxy(context).await,
        ("proxy", _) => pod_proxy(context).await,
        _ => stream(context, options.as_ref()).await,
    }
    .unwrap_or_else(|status| status))
}

/// How a request for a stream ends.
async fn stream(context: &Context, options: Option<&Value>) -> Result<Status, Status> {
    check_may_create(context)?;
    let pod = pod(context, context.name()).await?;
    if context.subresource() != "portforward" {
        let asked = context.query.get("container");
        container(options.map_or(asked, |options| options.text_opt("container")), &pod)?;
    }
    let Some(node) = pod.at("spec").text_opt("nodeName").filter(|node| !node.is_empty()) else {
        return Ok(Status::bad_request(format!("pod {} does not have a host assigned", context.name())));
    };
    let (host, port) = kubelet(context, node).await?;
    if !context.headers.contains_key(http::header::UPGRADE) {
        return Ok(Status::bad_request("Upgrade request required"));
    }
    let address = host_port(&host, port);
    Ok(Status::unclassified(format!("error dialing backend: dial tcp {address}: {UNREACHABLE}")))
}

/// A stream may be asked for with GET, because browsers do, but needs the right to create one all the same.
fn check_may_create(context: &Context) -> Result<(), Status> {
    if context.verb == Verb::Create {
        return Ok(());
    }
    let target = ResourceTarget {
        group: "",
        resource: &context.path.resource,
        subresource: context.subresource(),
        namespace: context.namespace(),
        name: context.name(),
        node: "",
    };
    let attributes = Attributes { user: &context.user, verb: "create", target: Target::Resource(target) };
    match authz::decide(&context.api, &attributes) {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(reason) => Err(Status::forbidden(context.qualified(), context.name(), reason)),
    }
}

/// How a request proxied to a pod ends.
async fn pod_proxy(context: &Context) -> Result<Status, Status> {
    let (_, name, port) = split(context, "pod")?;
    let pod = pod(context, name).await?;
    let declared = pod.at("spec").list("containers").iter().find_map(|container| container.list("ports").first());
    let port = match (port, declared) {
        ("", Some(declared)) => declared.int("containerPort").to_string(),
        ("", None) => "80".to_owned(),
        (port, _) => port.to_owned(),
    };
    let ip = pod.at("status").list("podIPs").first().map_or("", |ip| ip.text("ip"));
    if !parse_ip(ip).is_some_and(is_global_unicast) {
        return Err(Status::bad_request("address not allowed"));
    }
    Ok(unreachable(&host_port(ip, port)))
}

/// How a request proxied to a node ends.
async fn node_proxy(context: &Context) -> Result<Status, Status> {
    let (_, name, port) = split(context, "node")?;
    let (host, kubelet_port) = kubelet(context, name).await?;
    match host.parse() {
        Ok(ip) if !is_global_unicast(ip) => return Err(Status::bad_request("address not allowed")),
        Ok(_) => {}
        Err(_) => return Err(Status::bad_request(format!("lookup {host}: no such host"))),
    }
    let port = if port.is_empty() { kubelet_port.to_string() } else { port.to_owned() };
    Ok(unreachable(&host_port(&host, port)))
}

/// How a request proxied to a service ends.
async fn service_proxy(context: &Context) -> Result<Status, Status> {
    let (_, name, port) = split(context, "service")?;
    let mut port_name = port.to_owned();
    if let Ok(number) = port.parse::<i64>() {
        let service = find(context, "", "services", context.namespace(), name).await?;
        let service = service.ok_or_else(|| Status::not_found(context.qualified(), name))?;
        let found = service.at("spec").list("ports").iter().find(|port| port.int("port") == number);
        let Some(found) = found else {
            return Err(unavailable(format!("no service port {number} found for service {}", quote(name))));
        };
        port_name = found.text("name").to_owned();
    }
    let endpoint = endpoint(context, name, &port_name).await?;
    let missing = || unavailable(format!("no endpoints available for service {}", quote(name)));
    Ok(unreachable(&endpoint.ok_or_else(missing)?))
}

/// The address of a ready pod that serves the port of a service.
async fn endpoint(context: &Context, service: &str, port_name: &str) -> Result<Option<String>, Status> {
    let served = context.api.catalog.snapshot().find("discovery.k8s.io", "v1", "endpointslices").cloned();
    let prefix = served.map(|served| served.key(context.namespace(), "")).unwrap_or_default();
    let slices = context.api.store.range(Range::prefix(prefix), None, 0).await.map_err(Status::internal)?;
    for entry in slices.entries {
        let slice = stored::decode(&entry.value)?;
        if slice.below(&["metadata", "labels"]).text("kubernetes.io/service-name") != service {
            continue;
        }
        let mut ports = slice.list("ports").iter().filter(|port| port.text_opt("name") == Some(port_name));
        let Some(port) = ports.find_map(|port| port.int_opt("port")) else { continue };
        for endpoint in slice.list("endpoints") {
            let address = endpoint.texts("addresses").first().copied().unwrap_or_default().to_owned();
            if endpoint.at("conditions").flag_opt("ready") != Some(false) && is_pod(context, endpoint, &address).await?
            {
                return Ok(Some(host_port(&address, port)));
            }
        }
    }
    Ok(None)
}

/// Whether an endpoint is a pod of the namespace: requests are proxied nowhere else.
async fn is_pod(context: &Context, endpoint: &Value, address: &str) -> Result<bool, Status> {
    let target = endpoint.at("targetRef");
    if target.text("namespace") != context.namespace() {
        return Ok(false);
    }
    let pod = find(context, "", "pods", context.namespace(), target.text("name")).await?;
    Ok(pod.is_some_and(|pod| pod.at("status").list("podIPs").iter().any(|ip| ip.text("ip") == address)))
}

/// `name`, `name:port` or `scheme:name:port`.
fn split<'a>(context: &'a Context, kind: &str) -> Result<(&'a str, &'a str, &'a str), Status> {
    let parts: Vec<&str> = context.name().split(':').collect();
    let split = match parts.as_slice() {
        [name] => Some(("", *name, "")),
        [name, port] => Some(("", *name, *port)),
        [scheme, name, port] => Some((*scheme, *name, *port)),
        _ => None,
    };
    let valid = split.filter(|(scheme, name, _)| !name.is_empty() && matches!(*scheme, "" | "http" | "https"));
    valid.ok_or_else(|| Status::bad_request(format!("invalid {kind} request {}", quote(context.name()))))
}

async fn pod(context: &Context, name: &str) -> Result<Value, Status> {
    let pod = find(context, "", "pods", context.namespace(), name).await?;
    pod.ok_or_else(|| Status::not_found(context.qualified(), name))
}

/// The container that the request is about: the one it names, or the only one.
fn container(asked: Option<&str>, pod: &Value) -> Result<String, Status> {
    let spec = pod.at("spec");
    let kinds = ["initContainers", "containers", "ephemeralContainers"];
    let names: Vec<&str> = kinds.iter().flat_map(|kind| spec.list(kind)).map(|c| c.text("name")).collect();
    let pod = crate::object::name(pod);
    match (asked, spec.list("containers")) {
        (Some(name), _) if names.contains(&name) => Ok(name.to_owned()),
        (Some(name), _) => Err(Status::bad_request(format!("container {name} is not valid for pod {pod}"))),
        (None, [only]) => Ok(only.text("name").to_owned()),
        (None, []) => Err(Status::bad_request(format!("a container name must be specified for pod {pod}"))),
        (None, _) => {
            let choices = names.join(" ");
            let message = format!("a container name must be specified for pod {pod}, choose one of: [{choices}]");
            Err(Status::bad_request(message))
        }
    }
}

/// Where a node's kubelet listens.
async fn kubelet(context: &Context, node: &str) -> Result<(String, i64), Status> {
    let found = find(context, "", "nodes", "", node).await?;
    let found = found.ok_or_else(|| Status::not_found(Qualified { group: "", name: "nodes" }, node))?;
    let status = found.at("status");
    let addresses = status.list("addresses");
    let of_type = |kind: &&str| addresses.iter().find(|address| address.text("type") == *kind);
    let Some(address) = ADDRESSES.iter().find_map(of_type) else {
        let known: Vec<String> =
            addresses.iter().map(|a| format!("{{{} {}}}", a.text("type"), a.text("address"))).collect();
        let message = format!("no preferred addresses found; known addresses: [{}]", known.join(" "));
        return Err(Status::unclassified(message));
    };
    let port = status.below(&["daemonEndpoints", "kubeletEndpoint"]).int("Port");
    Ok((address.text("address").to_owned(), if port > 0 { port } else { KUBELET_PORT }))
}

async fn find(
    context: &Context,
    group: &str,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, Status> {
    let served = context.api.catalog.snapshot().find(group, "v1", plural).cloned();
    let key = served.ok_or_else(Status::no_such_resource)?.key(namespace, name);
    let entry = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)?;
    entry.map(|entry| stored::decode(&entry.value)).transpose()
}

fn check_log_options(context: &Context) -> Result<(), Status> {
    let number = |field: &str| context.query.get(field).map(parse_int).transpose().map_err(Status::bad_request);
    let (tail, limit, since) = (number("tailLines")?, number("limitBytes")?, number("sinceSeconds")?);
    let since_time = context.query.get("sinceTime");
    since_time.map(|text| time::parse(text, Precision::Seconds)).transpose().map_err(Status::bad_request)?;
    let mut errors = FieldErrors::default();
    if let Some(tail) = tail.filter(|lines| *lines < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&Path::new("tailLines"), tail, detail));
    }
    let mut positive = |field: &str, value: Option<i64>| {
        if let Some(value) = value.filter(|value| *value < 1) {
            errors.push(FieldError::invalid(&Path::new(field), value, "must be greater than 0"));
        }
    };
    positive("limitBytes", limit);
    if since_time.is_none() {
        positive("sinceSeconds", since);
    } else if since.is_some() {
        let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(FieldError::forbidden(&Path::root().key(""), detail));
    }
    if context.query.get("stream").is_some() {
        errors.push(FieldError::forbidden(&Path::new("stream"), "may not be specified"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(Qualified { group: "", name: "PodLogOptions" }, context.name(), &errors))
}

fn check_ports(context: &Context) -> Result<(), Status> {
    for port in context.query.all("ports").flat_map(|ports| ports.split(',')) {
        if let Err(error) = port.parse::<u16>() {
            let why = match error.kind() {
                std::num::IntErrorKind::PosOverflow => "value out of range",
                _ => "invalid syntax",
            };
            let why = format!("cannot convert to []int32: strconv.ParseUint: parsing {}: {why}", quote(port));
            return Err(Status::bad_request(why));
        }
    }
    Ok(())
}

fn host_port(host: &str, port: impl std::fmt::Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// As Go has it: private addresses are among them.
fn is_global_unicast(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local)
}

fn unavailable(message: String) -> Status {
    Status::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
}

fn unreachable(address: &str) -> Status {
    unavailable(format!("error trying to reach service: dial tcp {address}: {UNREACHABLE}"))
}
