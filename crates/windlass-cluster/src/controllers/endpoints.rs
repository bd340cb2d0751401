//! Where a service's traffic goes: EndpointSlices for services that select pods, mirrored slices for
//! Endpoints that users write, and Endpoints for those who still read them.
//!
//! Mirrors upstream's `pkg/controller/endpointslice`, `endpointslicemirroring` and `endpoint`.

mod legacy;
mod mirror;
mod slices;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Selector;
use windlass::cache::Lister;
use windlass::{Context, ObjectKey};

use super::{claim, pods};
pub(super) use legacy::add as add_endpoints;
pub(super) use mirror::add as add_mirror;
pub(super) use slices::add as add_slices;

const HEADLESS: &str = "service.kubernetes.io/headless";

fn spec(service: &Service) -> Option<&ServiceSpec> {
    service.spec.as_ref()
}

/// The selector of a service whose endpoints are pods.
fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = spec(service)?;
    if spec.type_.as_deref() == Some("ExternalName") { None } else { spec.selector.as_ref() }
}

/// Whether a service has no address of its own.
fn is_headless(service: &Service) -> bool {
    matches!(spec(service).and_then(|spec| spec.cluster_ip.as_deref()), None | Some("" | "None"))
}

/// The keys of the services that select a pod.
fn services_of(pod: &Pod, services: &Lister<Service>) -> Vec<ObjectKey> {
    let in_namespace = services.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default());
    let selects = |service: &&Arc<Service>| selector(service).is_some_and(|labels| selects(labels, pod));
    in_namespace.iter().filter(selects).map(|service| ObjectKey::of(&**service)).collect()
}

fn selects(labels: &BTreeMap<String, String>, pod: &Pod) -> bool {
    claim::selects(&labels.clone().into_iter().collect::<Selector>(), pod)
}

/// The pods a service selects, by name.
fn pods_of(ctx: &Context, service: &Service) -> Vec<Arc<Pod>> {
    let Some(labels) = selector(service) else { return Vec::new() };
    let lister = ctx.client().lister::<Pod>();
    let mut found = lister.in_namespace(service.metadata.namespace.as_deref().unwrap_or_default());
    found.retain(|pod| selects(labels, pod));
    found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    found
}

/// A pod's addresses.
fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    let mut found: Vec<IpAddr> = all.filter_map(|ip| ip.parse().ok()).collect();
    if found.is_empty() {
        found.extend(status.pod_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok()));
    }
    found
}

/// Whether a pod can have traffic at all.
fn takes_part(pod: &Pod, even_terminating: bool) -> bool {
    !pods::is_finished(pod)
        && !addresses(pod).is_empty()
        && (even_terminating || pod.metadata.deletion_timestamp.is_none())
}

fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The name a pod has within a headless service.
fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let matches = spec.subdomain.is_some() && spec.subdomain == service.metadata.name;
    spec.hostname.clone().filter(|name| !name.is_empty() && matches)
}

fn node_name(pod: &Pod) -> Option<String> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty())
}

/// A pod as an endpoint of a service.
fn endpoint(pod: &Pod, service: &Service, address: IpAddr, zone: Option<String>) -> Endpoint {
    let (serving, terminating) = (pods::is_ready(pod), pod.metadata.deletion_timestamp.is_some());
    let publish = spec(service).is_some_and(|spec| spec.publish_not_ready_addresses == Some(true));
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(publish || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: hostname(pod, service),
        node_name: node_name(pod),
        target_ref: Some(pod_reference(pod)),
        zone,
        ..Endpoint::default()
    }
}

/// A service's ports as a pod has them; those that it lacks are left out.
fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let wanted = spec(service).into_iter().flat_map(|spec| spec.ports.iter().flatten());
    let resolved = |port: &ServicePort| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(target(port, pod)?),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    };
    wanted.filter_map(resolved).collect()
}

/// The number of a pod's port that a service's port leads to.
fn target(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(if *number == 0 { port.port } else { *number }),
        Some(IntOrString::String(name)) => name,
    };
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let spec = pod.spec.as_ref()?;
    let sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten().filter(sidecar));
    let mut named = containers
        .flat_map(|container| container.ports.iter().flatten())
        .filter(|port| port.name.as_ref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol);
    named.next().map(|port| port.container_port)
}
