//! Endpoints of services that select pods, for clients from before EndpointSlices.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use windlass::controller::Watch;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile, predicate};

use super::{
    HEADLESS, addresses, hostname, is_headless, node_name, pod_reference, pods_of, ports, selector, services_of, spec,
    takes_part,
};
use crate::controllers::pods;
use crate::controllers::service_account::is_expected;

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The most addresses that Endpoints hold.
const FULL: usize = 1000;

pub(in crate::controllers) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    // Endpoints that users wrote are theirs, with a service or without. Those of this controller that outlived
    // their service are found at the start, and all come back when they are deleted.
    let left_over = predicate::object(is_own).and(predicate::change(|_, _| false));
    manager.add(
        Controller::<Service>::new("endpoint-controller")
            .watches(|pod: &Pod, ctx| services_of(pod, &ctx.lister()))
            .watches_with(Watch::default().predicate(left_over), |endpoints: &Endpoints, _| [endpoints.into()])
            .concurrency(5)
            .complete(Legacy { triggers: Mutex::default() }),
    )
}

fn is_own(endpoints: &Endpoints) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|manager| manager == CONTROLLER)
}

struct Legacy {
    triggers: Mutex<HashMap<ObjectKey, Triggers>>,
}

/// When a service and its pods changed last, as far as clients that measure delays care.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    service: Option<Timestamp>,
    pods: HashMap<String, Timestamp>,
}

impl Triggers {
    /// The earliest change since the last time this was asked. Mirrors upstream's
    /// `staging/src/k8s.io/endpointslice/trigger_time_tracker.go`.
    pub(super) fn next(&mut self, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let mut changed: Vec<Timestamp> = created.into_iter().filter(|time| Some(*time) > self.service).collect();
        let turned = |pod: &Pod| pods::condition(pod, "Ready")?.last_transition_time.as_ref().map(|time| time.0);
        let current: HashMap<String, Timestamp> =
            pods.iter().filter_map(|pod| Some((pod.metadata.name.clone()?, turned(pod)?))).collect();
        changed.extend(current.iter().filter(|(pod, time)| self.pods.get(*pod) < Some(*time)).map(|(_, time)| *time));
        *self = Self { service: created.max(self.service), pods: current };
        changed.into_iter().min()
    }
}

impl Reconcile<Service> for Legacy {
    async fn gone(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
        self.triggers.lock().remove(&key);
        if ctx.client().lister::<Endpoints>().get(&key).is_some() {
            ctx.client().delete::<Endpoints>(&key).await?;
        }
        Ok(Outcome::Done)
    }

    async fn reconcile(&self, service: Arc<Service>, ctx: Context) -> windlass::Result {
        let known = ctx.client().lister::<Endpoints>().get(&ObjectKey::of(&*service));
        if selector(&service).is_none() {
            return Ok(Outcome::Done);
        }
        let trigger = {
            let pods = pods_of(&ctx, &service);
            self.triggers.lock().entry(ObjectKey::of(&*service)).or_default().next(&service, &pods)
        };
        let mut subsets = subsets(&ctx, &service);
        let truncated = truncate(&mut subsets);
        let mut labels = service.metadata.labels.clone().unwrap_or_default();
        labels.remove(HEADLESS);
        if is_headless(&service) {
            labels.insert(HEADLESS.to_owned(), String::new());
        }
        labels.insert(MANAGED_BY.to_owned(), CONTROLLER.to_owned());
        let mut wanted = known.as_deref().cloned().unwrap_or_else(|| Endpoints {
            metadata: ObjectMeta {
                namespace: service.metadata.namespace.clone(),
                name: service.metadata.name.clone(),
                ..ObjectMeta::default()
            },
            ..Endpoints::default()
        });
        wanted.subsets = Some(subsets).filter(|subsets| !subsets.is_empty());
        wanted.metadata.labels = Some(labels);
        if truncated {
            let annotations = wanted.metadata.annotations.get_or_insert_default();
            annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
        } else if let Some(annotations) = &mut wanted.metadata.annotations {
            annotations.remove(OVER_CAPACITY);
        }
        if known.as_deref() == Some(&wanted) {
            return Ok(Outcome::Done);
        }
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        match trigger {
            Some(time) => drop(annotations.insert(LAST_CHANGE.to_owned(), time.to_string())),
            None => drop(annotations.remove(LAST_CHANGE)),
        }
        let written = match known {
            Some(_) => ctx.client().update(&wanted).await,
            None => ctx.client().create(&wanted).await,
        };
        match written {
            // What was there already is taken over the next time.
            Err(error) if error.is_already_exists() || !is_expected(&error) => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }
}

/// Addresses by the ports they have, in a stable order.
fn subsets(ctx: &Context, service: &Service) -> Vec<EndpointSubset> {
    let publish = spec(service).is_some_and(|spec| spec.publish_not_ready_addresses == Some(true));
    let family = spec(service).and_then(|spec| spec.ip_families.as_ref()?.first().cloned());
    let v6 = family.as_deref() == Some("IPv6");
    let mut found: Vec<EndpointSubset> = Vec::new();
    for pod in pods_of(ctx, service).iter().filter(|pod| takes_part(pod, publish)) {
        let Some(ip) = addresses(pod).into_iter().find(|ip: &IpAddr| ip.is_ipv6() == v6) else { continue };
        let ports = pod_ports(service, pod);
        if ports.is_empty() && spec(service).is_some_and(|spec| spec.ports.iter().flatten().next().is_some()) {
            continue;
        }
        let address = EndpointAddress {
            ip: ip.to_string(),
            hostname: hostname(pod, service),
            node_name: node_name(pod),
            target_ref: Some(pod_reference(pod)),
        };
        let ports = Some(ports).filter(|ports| !ports.is_empty());
        let at = found.iter().position(|subset| subset.ports == ports).unwrap_or(found.len());
        if at == found.len() {
            found.push(EndpointSubset { ports, ..EndpointSubset::default() });
        }
        let ready = publish || pods::is_ready(pod);
        let list = if ready { &mut found[at].addresses } else { &mut found[at].not_ready_addresses };
        list.get_or_insert_default().push(address);
    }
    for subset in &mut found {
        for list in [&mut subset.addresses, &mut subset.not_ready_addresses].into_iter().flatten() {
            list.sort_by(|a, b| a.ip.cmp(&b.ip));
        }
    }
    found
}

fn pod_ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let unique: BTreeMap<_, _> = ports(service, pod)
        .into_iter()
        .map(|port| {
            let named = EndpointPort {
                name: port.name.clone().filter(|name| !name.is_empty()),
                port: port.port.unwrap_or_default(),
                protocol: port.protocol.clone(),
                app_protocol: port.app_protocol,
            };
            ((port.port, port.protocol, port.name), named)
        })
        .collect();
    unique.into_values().collect()
}

/// Leaves out what is too much, the unready first; whether there was any.
fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let total: usize = subsets.iter().map(|s| count(&s.addresses) + count(&s.not_ready_addresses)).sum();
    if total <= FULL {
        return false;
    }
    let mut room = FULL;
    for list in subsets.iter_mut().filter_map(|subset| subset.addresses.as_mut()) {
        list.truncate(room);
        room -= list.len();
    }
    for list in subsets.iter_mut().filter_map(|subset| subset.not_ready_addresses.as_mut()) {
        list.truncate(room);
        room -= list.len();
    }
    true
}
