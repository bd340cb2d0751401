//! EndpointSlices of services that select pods.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PartialObjectMeta;
use windlass::client::options::ListOptions;
use windlass::controller::Watch;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile, ReconcileError, predicate};

use super::{HEADLESS, endpoint, is_headless, pods_of, ports, selector, services_of, spec, takes_part};
use crate::controllers::claim::controller_reference;
use crate::controllers::node_lifecycle::pods_of as on_node;
use crate::controllers::service_account::is_expected;

const CONTROLLER: &str = "endpointslice-controller.k8s.io";
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Endpoints per slice.
const FULL: usize = 100;

pub(in crate::controllers) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(
        Controller::<Service>::new("endpoint-slice-controller")
            .owns::<PartialObjectMeta<EndpointSlice>>()
            .watches(|pod: &Pod, ctx| services_of(pod, &ctx.lister()))
            // Pods wait for their node, and have its zone.
            .watches_with(
                Watch::<PartialObjectMeta<Node>>::default().predicate(predicate::labels_changed()),
                |node: &PartialObjectMeta<Node>, ctx| {
                    let pods = on_node(&ctx.lister(), node.metadata.name.as_deref().unwrap_or_default());
                    pods.iter().flat_map(|pod| services_of(pod, &ctx.lister())).collect::<Vec<_>>()
                },
            )
            .concurrency(5)
            .complete(Slices),
    )
}

struct Slices;

impl Reconcile<Service> for Slices {
    async fn reconcile(&self, service: Arc<Service>, ctx: Context) -> windlass::Result {
        let key = ObjectKey::of(&*service);
        // Slices of a service that goes are collected with it.
        if selector(&service).is_none() || service.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let mut labels = service.metadata.labels.clone().unwrap_or_default();
        labels.retain(|name, _| ![MANAGED_BY, SERVICE_NAME, HEADLESS].contains(&&**name));
        if is_headless(&service) {
            labels.insert(HEADLESS.to_owned(), String::new());
        }
        let plan = Plan {
            controller: CONTROLLER,
            template: EndpointSlice {
                metadata: ObjectMeta {
                    namespace: service.metadata.namespace.clone(),
                    generate_name: Some(format!("{}-", key.name())),
                    labels: Some(labels),
                    owner_references: Some(vec![controller_reference(&*service)]),
                    ..ObjectMeta::default()
                },
                ..EndpointSlice::default()
            },
            service: key.clone(),
            groups: groups(&ctx, &service),
            placeholder: families(&service),
        };
        plan.carry_out(&ctx).await?;
        Ok(Outcome::Done)
    }
}

/// The kinds of addresses a service has.
fn families(service: &Service) -> Vec<&'static str> {
    let families = spec(service).into_iter().flat_map(|spec| spec.ip_families.iter().flatten());
    let mut found: Vec<&str> = families.map(|family| if family == "IPv6" { "IPv6" } else { "IPv4" }).collect();
    if found.is_empty() {
        found.push("IPv4");
    }
    found
}

/// Endpoints that can share a slice: of the same kind of address and with the same ports.
pub(super) type Group = (&'static str, Vec<EndpointPort>);

fn groups(ctx: &Context, service: &Service) -> Vec<(Group, Vec<Endpoint>)> {
    let nodes = ctx.client().lister::<PartialObjectMeta<Node>>();
    let zone = |pod: &Pod| {
        let node = nodes.get(&ObjectKey::cluster(super::node_name(pod)?))?;
        node.metadata.labels.as_ref()?.get(ZONE).cloned()
    };
    let publish = spec(service).is_some_and(|spec| spec.publish_not_ready_addresses == Some(true));
    // A pod of a node that does not exist cannot be reached, as upstream has it (`endpointslice/reconciler.go`).
    let has_node = |pod: &Pod| super::node_name(pod).is_some_and(|node| nodes.get(&ObjectKey::cluster(node)).is_some());
    let counts = |pod: &&Arc<Pod>| takes_part(pod, true) && (publish || has_node(pod));
    let mut groups: Vec<(Group, Vec<Endpoint>)> = Vec::new();
    for pod in pods_of(ctx, service).iter().filter(counts) {
        let ports = ports(service, pod);
        for family in families(service) {
            let fits = |address: &IpAddr| address.is_ipv6() == (family == "IPv6");
            let Some(address) = super::addresses(pod).into_iter().find(fits) else { continue };
            add_to(&mut groups, (family, ports.clone()), endpoint(pod, service, address, zone(pod)));
        }
    }
    groups
}

pub(super) fn add_to(groups: &mut Vec<(Group, Vec<Endpoint>)>, group: Group, endpoint: Endpoint) {
    match groups.iter_mut().find(|(known, _)| *known == group) {
        Some((_, endpoints)) => endpoints.push(endpoint),
        None => groups.push((group, vec![endpoint])),
    }
}

/// The slices that a service should have.
pub(super) struct Plan {
    /// Who manages them, in a label.
    pub(super) controller: &'static str,
    /// What they have in common.
    pub(super) template: EndpointSlice,
    /// The service they are for.
    pub(super) service: ObjectKey,
    pub(super) groups: Vec<(Group, Vec<Endpoint>)>,
    /// The kinds of addresses of which there should be a slice even without endpoints.
    pub(super) placeholder: Vec<&'static str>,
}

impl Plan {
    /// Creates, changes and deletes slices, moving as few endpoints as possible.
    pub(super) async fn carry_out(mut self, ctx: &Context) -> Result<(), ReconcileError> {
        let labels = self.template.metadata.labels.get_or_insert_default();
        labels.insert(MANAGED_BY.to_owned(), self.controller.to_owned());
        labels.insert(SERVICE_NAME.to_owned(), self.service.name().to_owned());
        let wanted = format!("{SERVICE_NAME}={},{MANAGED_BY}={}", self.service.name(), self.controller);
        // Live, since a slice that was just created must not be created again.
        let options = ListOptions::new().namespace(self.service.namespace().unwrap_or_default()).labels(wanted);
        let existing = ctx.live().list_with::<EndpointSlice>(options).await?;
        let (created, changed, deleted) = self.arrange(existing);
        for slice in deleted {
            ctx.client().delete::<EndpointSlice>(&ObjectKey::of(&slice)).await?;
        }
        for slice in changed {
            ctx.client().update(&slice).await?;
        }
        for slice in created {
            match ctx.client().create(&slice).await {
                Err(error) if !is_expected(&error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// What to create, change and delete.
    pub(super) fn arrange(
        self,
        mut existing: Vec<EndpointSlice>,
    ) -> (Vec<EndpointSlice>, Vec<EndpointSlice>, Vec<EndpointSlice>) {
        let Self { template, groups, placeholder, .. } = self;
        existing.retain(|slice| slice.metadata.deletion_timestamp.is_none());
        existing.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let bare = placeholder.into_iter().filter(|family| !groups.iter().any(|((known, _), _)| known == family));
        let bare: Vec<_> = bare.map(|family| ((family, Vec::new()), Vec::new())).collect();
        let (mut created, mut changed) = (Vec::new(), Vec::new());
        for ((family, ports), mut endpoints) in groups.into_iter().chain(bare) {
            let is_bare = endpoints.is_empty();
            let fits = |slice: &EndpointSlice| {
                let same_ports = slice.ports.as_deref().unwrap_or_default() == ports;
                slice.address_type == family && same_ports && (!is_bare || count(slice) == 0)
            };
            let (mut own, mut others): (Vec<_>, Vec<_>) = existing.into_iter().partition(fits);
            if is_bare {
                others.extend(own.split_off(own.len().min(1)));
            }
            let before = own.clone();
            for slice in &mut own {
                keep(slice.endpoints.get_or_insert_default(), &mut endpoints);
            }
            for slice in &mut own {
                let room = FULL.saturating_sub(count(slice)).min(endpoints.len());
                slice.endpoints.get_or_insert_default().extend(endpoints.drain(..room));
            }
            let needs_bare = is_bare && own.is_empty();
            for (mut slice, before) in own.into_iter().zip(before) {
                if count(&slice) == 0 && !is_bare {
                    others.push(slice);
                    continue;
                }
                slice.endpoints = slice.endpoints.filter(|endpoints| !endpoints.is_empty());
                slice.metadata.labels.clone_from(&template.metadata.labels);
                if slice != before {
                    changed.push(slice);
                }
            }
            existing = others;
            let new = |endpoints: Option<Vec<Endpoint>>| EndpointSlice {
                address_type: family.to_owned(),
                ports: Some(ports.clone()).filter(|ports| !ports.is_empty()),
                endpoints,
                ..template.clone()
            };
            while !endpoints.is_empty() {
                let rest = endpoints.split_off(endpoints.len().min(FULL));
                created.push(new(Some(std::mem::replace(&mut endpoints, rest))));
            }
            if needs_bare {
                created.push(new(None));
            }
        }
        (created, changed, existing)
    }
}

/// Keeps of a slice's endpoints those that are wanted, as they are wanted, and takes them off the list.
fn keep(slice: &mut Vec<Endpoint>, wanted: &mut Vec<Endpoint>) {
    let same = |a: &Endpoint, b: &Endpoint| {
        let uid = |endpoint: &Endpoint| endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
        a.addresses == b.addresses && uid(a) == uid(b)
    };
    slice.retain_mut(|known| match wanted.iter().position(|endpoint| same(endpoint, known)) {
        Some(at) => {
            *known = wanted.remove(at);
            true
        }
        None => false,
    });
}

/// How many endpoints a slice has.
fn count(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}
