//! EndpointSlices that say what Endpoints written by hand say, for services without a selector.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, ReconcileKey};

use super::slices::{Group, Plan, add_to};
use super::spec;
use crate::controllers::claim::controller_reference;

const CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const NOT_COPIED: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];
/// Addresses mirrored per subset.
const MOST: usize = 1000;

pub(in crate::controllers) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(
        Controller::<Endpoints>::new("endpoint-slice-mirroring-controller")
            .watches(|service: &Service, _| [service.into()])
            .complete_keyed(Mirror),
    )
}

struct Mirror;

impl ReconcileKey for Mirror {
    async fn reconcile(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
        let endpoints = ctx.get::<Endpoints>(&key).await?;
        let service = ctx.get::<Service>(&key).await?;
        let mirrored = endpoints.filter(|endpoints| {
            is_mirrored(endpoints) && service.is_some_and(|s| spec(&s).is_some_and(|spec| spec.selector.is_none()))
        });
        let plan = match mirrored {
            Some(endpoints) => plan(&key, &endpoints),
            // Slices of Endpoints that are gone are collected with them; those that are there are not.
            None => Plan {
                controller: CONTROLLER,
                template: EndpointSlice::default(),
                service: key.clone(),
                groups: Vec::new(),
                placeholder: Vec::new(),
            },
        };
        plan.carry_out(&ctx).await?;
        Ok(Outcome::Done)
    }
}

fn is_mirrored(endpoints: &Endpoints) -> bool {
    let skipped = endpoints.metadata.labels.as_ref().and_then(|labels| labels.get(SKIP));
    let elects = endpoints.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(LEADER));
    skipped.is_none_or(|skip| skip != "true") && !elects
}

fn plan(key: &ObjectKey, endpoints: &Endpoints) -> Plan {
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| !NOT_COPIED.contains(&&**name));
    let mut groups: Vec<(Group, Vec<Endpoint>)> = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        mirror(subset, &mut groups);
    }
    Plan {
        controller: CONTROLLER,
        template: EndpointSlice {
            metadata: ObjectMeta {
                namespace: endpoints.metadata.namespace.clone(),
                generate_name: Some(format!("{}-", key.name())),
                labels: endpoints.metadata.labels.clone(),
                annotations: Some(annotations).filter(|all| !all.is_empty()),
                owner_references: Some(vec![controller_reference(endpoints)]),
                ..ObjectMeta::default()
            },
            ..EndpointSlice::default()
        },
        service: key.clone(),
        groups,
        placeholder: Vec::new(),
    }
}

fn mirror(subset: &EndpointSubset, groups: &mut Vec<(Group, Vec<Endpoint>)>) {
    let ports: Vec<EndpointPort> = (subset.ports.iter().flatten())
        .map(|port| EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(port.port),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
        .collect();
    let ready = subset.addresses.iter().flatten().map(|address| (address, true));
    let unready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
    for (address, ready) in ready.chain(unready).take(MOST) {
        let Ok(ip) = address.ip.parse::<IpAddr>() else { continue };
        let family = if ip.is_ipv6() { "IPv6" } else { "IPv4" };
        add_to(groups, (family, ports.clone()), endpoint(address, ip, ready));
    }
}

fn endpoint(address: &EndpointAddress, ip: IpAddr, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}
