//! Subresources that talk to something else: a pod's log and streams, and proxied requests.
//!
//! Everything upstream checks before it dials is checked here, in its order and words: the options, the
//! container, the node, the address. What reaches the node's pods ([`PodStreams`]) takes over from there; a node that
//! nothing reaches is answered as an unreachable host. Mirrors `pkg/registry/core/pod/strategy.go`,
//! `pkg/registry/core/node/strategy.go` and `ResourceLocation` of `pkg/registry/core/service/storage`.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::LOCATION;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use windlass_store::Range;

use super::{Answer, Context, stored};
use crate::admission;
use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::authz;
use crate::body::Body;
use crate::codec::time::{self, Precision};
use crate::dialer;
use crate::field::{FieldError, FieldErrors, Path, quote};
use crate::options::parse_int;
use crate::rbac::Decision;
use crate::request::Verb;
use crate::status::{Qualified, Status};
use crate::streams::command::Command;
use crate::streams::forward::{self, Ports};
use crate::streams::proxy::{self, Proxied};
use crate::streams::upgrade::{self, Asked};
use crate::streams::{
    Access, AttachOptions, Connection, ExecOptions, LogOptions, PodStreams, PodTarget, StreamError, command,
};
use crate::validation::access::Access as _;
use crate::validation::net::parse_ip;

/// What dialling an address that nothing answers at ends with.
const UNREACHABLE: &str = "connect: no route to host";
/// Where kubelets listen unless their node says otherwise.
const KUBELET_PORT: i64 = 10250;
/// The format of metrics.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
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
    if let Some(streams) = context.api.reach.of_node(node) {
        let target = target(&pod, node, &container);
        let output = streams.logs(&target, &log_options(context)).await.map_err(|error| log_failure(context, error))?;
        let warnings = std::mem::take(&mut context.warnings);
        let body = Body::stream(output);
        return Ok(Answer::Raw { code: StatusCode::OK, content_type: "text/plain", body, warnings });
    }
    let address = host_port(&host, port);
    let url = format!("https://{address}/containerLogs/{}/{}/{container}", context.namespace(), context.name());
    Err(Status::unclassified(format!("Get {}: dial tcp {address}: {UNREACHABLE}", quote(&url))))
}

/// What part of the output a request asks for; the options have been checked.
fn log_options(context: &Context) -> LogOptions {
    let number = |field: &str| context.query.get(field).and_then(|text| text.parse::<i64>().ok());
    let flag = |field: &str| context.query.flag(field).unwrap_or(false);
    let ago = |seconds: i64| context.now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN);
    let at = |text: &str| text.parse().ok();
    LogOptions {
        follow: flag("follow"),
        previous: flag("previous"),
        since: number("sinceSeconds").map(ago).or_else(|| context.query.get("sinceTime").and_then(at)),
        timestamps: flag("timestamps"),
        tail: number("tailLines").and_then(|lines| lines.try_into().ok()),
        limit: number("limitBytes").and_then(|bytes| bytes.try_into().ok()),
    }
}

/// What a kubelet's refusal becomes: `GenericHttpResponseChecker` of upstream.
fn log_failure(context: &Context, error: StreamError) -> Status {
    match error.code {
        StatusCode::BAD_REQUEST => Status::bad_request(error.message),
        StatusCode::NOT_FOUND => {
            let name = context.name();
            let message = format!("the server could not find the requested resource ( pods/log {name})");
            Status::new(StatusCode::NOT_FOUND, "NotFound", message)
        }
        code => Status::new(code, "InternalError", format!("Internal error occurred: {}", error.message)),
    }
}

/// `exec`, `attach` and `portforward` of pods, `proxy` of pods, services and nodes.
pub(super) async fn connect(context: &mut Context) -> Result<Answer, Status> {
    if context.subresource() == "portforward" {
        check_ports(context)?;
    }
    let options = admission::connect(context).await?;
    match (context.subresource(), &*context.served.plural) {
        ("proxy", "services") => service_proxy(context).await,
        ("proxy", "nodes") => node_proxy(context).await,
        ("proxy", _) => pod_proxy(context).await,
        _ => stream(context, options.as_ref()).await,
    }
}

/// Upgrades the connection of a request for a stream.
async fn stream(context: &Context, options: Option<&Value>) -> Result<Answer, Status> {
    check_may_create(context)?;
    let pod = pod(context, context.name()).await?;
    let forwards = context.subresource() == "portforward";
    let container = if forwards {
        String::new()
    } else {
        let asked = context.query.get("container");
        container(options.map_or(asked, |options| options.text_opt("container")), &pod)?
    };
    let Some(node) = pod.at("spec").text_opt("nodeName").filter(|node| !node.is_empty()) else {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", context.name())));
    };
    let (host, port) = kubelet(context, node).await?;
    let Some(asked) = upgrade::asked(&context.headers) else {
        return Err(Status::bad_request("Upgrade request required"));
    };
    let Some(streams) = context.api.reach.of_node(node) else {
        let address = host_port(&host, port);
        return Err(Status::unclassified(format!("error dialing backend: dial tcp {address}: {UNREACHABLE}")));
    };
    let target = target(&pod, node, &container);
    let response = if forwards {
        forward_ports(context, streams, target, &asked)
    } else {
        run_command(context, streams, target, &pod, &asked, options)
    };
    Ok(Answer::Response(Box::new(response)))
}

fn target(pod: &Value, node: &str, container: &str) -> PodTarget {
    let metadata = pod.at("metadata");
    PodTarget {
        namespace: metadata.text("namespace").to_owned(),
        name: metadata.text("name").to_owned(),
        uid: metadata.text("uid").to_owned(),
        node: node.to_owned(),
        container: container.to_owned(),
        object: pod.clone(),
    }
}

/// `exec` and `attach`: has the connection become a WebSocket or a SPDY connection with a process at the other end.
fn run_command(
    context: &Context,
    streams: Arc<dyn PodStreams>,
    target: PodTarget,
    pod: &Value,
    asked: &Asked<'_>,
    options: Option<&Value>,
) -> Response<Body> {
    let flag = |name: &str| match options {
        Some(options) => options.flag(name),
        None => context.query.flag(name).unwrap_or(false),
    };
    let access = if context.subresource() == "attach" { Access::Attach } else { Access::Exec };
    let terminal = flag("tty");
    let (stdin, stdout, stderr) = (flag("stdin"), flag("stdout"), flag("stderr") && !terminal);
    if !(stdin || stdout || stderr) {
        return upgrade::refuse(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr");
    }
    let command: Vec<String> = match options {
        Some(options) => options.texts("command").into_iter().map(Into::into).collect(),
        None => context.query.all("command").map(Into::into).collect(),
    };
    let check = streams.check(&target, access);
    let is_v5 = matches!(asked, Asked::WebSocket { protocols, .. } if protocols.contains(&"v5.channel.k8s.io"));
    let unreached = match check {
        Err(error) if !is_v5 => return upgrade::refuse(error.code, &error.message),
        check => check.err(),
    };
    let start: command::Start = if access == Access::Attach {
        // A process has a terminal or has none, whatever the client has.
        let kinds = ["initContainers", "containers", "ephemeralContainers"];
        let mut containers = kinds.iter().flat_map(|kind| pod.at("spec").list(kind));
        let spec = containers.find(|spec| spec.text("name") == target.container);
        let terminal = spec.is_some_and(|spec| spec.flag("tty"));
        Box::new(move |_| streams.attach(&target, &AttachOptions { stdin, terminal }))
    } else {
        let command = command.clone();
        Box::new(move |size| streams.exec(&target, &ExecOptions { command, stdin, terminal, size }))
    };
    let command = Command { access, argv: command, stdin, stdout, stderr, terminal, start };
    let Some(takeover) = &context.connection.takeover else { return not_hijackable() };
    match asked {
        Asked::WebSocket { key, protocols } => {
            let Some(protocol) = upgrade::for_command(protocols).filter(|_| !key.is_empty()) else {
                return upgrade::refuse(StatusCode::FORBIDDEN, "");
            };
            takeover.by(move |raw| command::over_websocket(raw, protocol, command, unreached));
            upgrade::to_websocket(key, protocol.name)
        }
        Asked::Spdy { protocols } => match upgrade::negotiate(protocols, &command::VERSIONS) {
            Ok(version) => {
                let response = upgrade::to_spdy(version);
                let version = version.to_owned();
                takeover.by(move |raw| async move { command::over_spdy(raw, &version, command).await });
                response
            }
            Err(response) => *response,
        },
    }
}

/// `portforward`: has the connection become one that carries those to the pod's ports.
fn forward_ports(
    context: &Context,
    streams: Arc<dyn PodStreams>,
    target: PodTarget,
    asked: &Asked<'_>,
) -> Response<Body> {
    if let Err(error) = streams.check(&target, Access::Port) {
        return upgrade::refuse(error.code, &error.message);
    }
    let ports = Ports { streams, pod: target };
    let Some(takeover) = &context.connection.takeover else { return not_hijackable() };
    match asked {
        Asked::WebSocket { key, protocols } if protocols.contains(&upgrade::TUNNEL) && !key.is_empty() => {
            takeover.by(move |raw| forward::over_tunnel(raw, ports));
            upgrade::to_websocket(key, upgrade::TUNNEL)
        }
        Asked::WebSocket { key, protocols } => {
            let numbers = context.query.all("ports").flat_map(|ports| ports.split(','));
            let numbers: Vec<u16> = numbers.filter_map(|port| port.parse().ok()).collect();
            match numbers.as_slice() {
                [] => return upgrade::refuse(StatusCode::BAD_REQUEST, "query parameter \"port\" is required"),
                numbers if numbers.contains(&0) => {
                    return upgrade::refuse(StatusCode::BAD_REQUEST, "port \"0\" must be > 0");
                }
                // Each takes two of the 255 channels.
                numbers if numbers.len() > 127 => {
                    return upgrade::refuse(StatusCode::BAD_REQUEST, "at most 127 ports can be forwarded at once");
                }
                _ => {}
            }
            let Some(protocol) = upgrade::for_ports(protocols).filter(|_| !key.is_empty()) else {
                return upgrade::refuse(StatusCode::FORBIDDEN, "");
            };
            takeover.by(move |raw| async move { forward::over_websocket(raw, protocol, &numbers, ports).await });
            upgrade::to_websocket(key, protocol.name)
        }
        Asked::Spdy { protocols } => match upgrade::negotiate(protocols, &[forward::VERSION]) {
            Ok(version) => {
                takeover.by(move |raw| forward::over_spdy(raw, ports));
                upgrade::to_spdy(version)
            }
            Err(response) => *response,
        },
    }
}

/// The connection is of a kind that only carries HTTP.
fn not_hijackable() -> Response<Body> {
    upgrade::refuse(StatusCode::INTERNAL_SERVER_ERROR, "unable to upgrade: unable to hijack response")
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

/// Passes a request on to a pod.
async fn pod_proxy(context: &Context) -> Result<Answer, Status> {
    let (scheme, name, port) = split(context, "pod")?;
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
    pass_on(context, scheme, &pod, &host_port(ip, &port), &port).await
}

/// Passes a request on to a port of a pod, if anything reaches it.
async fn pass_on(context: &Context, scheme: &str, pod: &Value, address: &str, port: &str) -> Result<Answer, Status> {
    let node = pod.at("spec").text("nodeName");
    let streams = context.api.reach.of_node(node).filter(|_| scheme != "https");
    let Some((streams, port)) = streams.zip(port.parse().ok()) else { return Err(unreachable(address)) };
    let rest = context.connection.rest();
    if rest.is_empty() && matches!(context.connection.method, Method::GET | Method::HEAD) {
        // Relative links of the page behind it lead nowhere else.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
        let query = context.connection.uri.query().map_or_else(String::new, |query| format!("?{query}"));
        if let Ok(location) = HeaderValue::from_str(&format!("{}/{query}", context.connection.uri.path())) {
            response.headers_mut().insert(LOCATION, location);
        }
        return Ok(Answer::Response(Box::new(response)));
    }
    let failed =
        |why: &dyn std::fmt::Display| unavailable(format!("error trying to reach service: dial tcp {address}: {why}"));
    let inside = address.parse().ok().and_then(|address| context.api.reach.dial.inside(address));
    let connection: Box<dyn Connection> = match inside {
        Some(dialing) => {
            Box::new(dialing.await.map_err(|error| failed(&format_args!("connect: {}", dialer::system(&error))))?)
        }
        None => streams.port(&target(pod, node, ""), port).await.map_err(|error| failed(&error))?,
    };
    let query = context.connection.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let request = Proxied {
        method: context.connection.method.clone(),
        target: if rest.is_empty() { format!("/{query}") } else { format!("{rest}{query}") },
        headers: context.headers.clone(),
        body: Full::new(context.body.clone()).map_err(|never| match never {}).boxed_unsync(),
        host: address.to_owned(),
        takeover: context.connection.takeover.clone(),
    };
    let answer = proxy::forward(connection, request).await.map_err(|error| failed(&error))?;
    Ok(Answer::Response(Box::new(answer)))
}

/// A request proxied to a node. Besides metrics, nothing answers there.
async fn node_proxy(context: &mut Context) -> Result<Answer, Status> {
    let (_, name, port) = split(context, "node")?;
    let (host, kubelet_port) = kubelet(context, name).await?;
    if matches!(context.connection.method, Method::GET | Method::HEAD)
        && let Some(streams) = context.api.reach.of_node(name)
        && let Some(page) = streams.metrics(name, context.connection.rest())
    {
        let warnings = std::mem::take(&mut context.warnings);
        let body = Body::from(page);
        return Ok(Answer::Raw { code: StatusCode::OK, content_type: METRICS, body, warnings });
    }
    match host.parse() {
        Ok(ip) if !is_global_unicast(ip) => return Err(Status::bad_request("address not allowed")),
        Ok(_) => {}
        Err(_) => return Err(Status::bad_request(format!("lookup {host}: no such host"))),
    }
    let port = if port.is_empty() { kubelet_port.to_string() } else { port.to_owned() };
    Err(unreachable(&host_port(&host, port)))
}

/// Passes a request on to a pod of a service.
async fn service_proxy(context: &Context) -> Result<Answer, Status> {
    let (scheme, name, port) = split(context, "service")?;
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
    let (pod, address, port) = endpoint.ok_or_else(missing)?;
    pass_on(context, scheme, &pod, &host_port(&address, port), &port.to_string()).await
}

/// A ready pod that serves the port of a service, with its address and port.
async fn endpoint(context: &Context, service: &str, port_name: &str) -> Result<Option<(Value, String, i64)>, Status> {
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
            if endpoint.at("conditions").flag_opt("ready") != Some(false)
                && let Some(pod) = pod_at(context, endpoint, &address).await?
            {
                return Ok(Some((pod, address, port)));
            }
        }
    }
    Ok(None)
}

/// The pod of the namespace that an endpoint is: requests are proxied nowhere else.
async fn pod_at(context: &Context, endpoint: &Value, address: &str) -> Result<Option<Value>, Status> {
    let target = endpoint.at("targetRef");
    if target.text("namespace") != context.namespace() {
        return Ok(None);
    }
    let pod = find(context, "", "pods", context.namespace(), target.text("name")).await?;
    Ok(pod.filter(|pod| pod.at("status").list("podIPs").iter().any(|ip| ip.text("ip") == address)))
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
        // Go takes no sign.
        let digits = if port.starts_with('+') { "" } else { port };
        if let Err(error) = digits.parse::<u16>() {
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
