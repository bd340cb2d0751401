//! The controller that gives Services of type `LoadBalancer` their address: it writes `status.loadBalancer`.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::api::Patch;
use parking_lot::Mutex;
use serde_json::json;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, ReconcileKey};

use crate::exposure::Balancers;
use crate::ingress::CLASS;
use crate::services::ServiceName;

/// Adds the controller to a manager. `changed` is called when an address was given or taken.
pub(crate) fn add(
    manager: &mut Manager,
    balancers: Arc<Mutex<Balancers>>,
    changed: impl Fn() + Send + Sync + 'static,
) -> Result<(), ManagerError> {
    manager.add(
        Controller::<Service>::new("service-load-balancer")
            .complete_keyed(Balance { balancers, changed: Box::new(changed) }),
    )
}

struct Balance {
    balancers: Arc<Mutex<Balancers>>,
    changed: Box<dyn Fn() + Send + Sync>,
}

/// Whether a Service gets its address from us.
fn is_ours(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    let class = spec.load_balancer_class.as_deref();
    service.metadata.deletion_timestamp.is_none()
        && spec.type_.as_deref() == Some("LoadBalancer")
        && class.is_none_or(|class| class == CLASS || class == "windlass.dev/loopback")
}

/// The address in a Service's status.
fn known(service: &Service) -> Option<IpAddr> {
    let balancer = service.status.as_ref()?.load_balancer.as_ref()?;
    balancer.ingress.as_ref()?.first()?.ip.as_ref()?.parse().ok()
}

impl ReconcileKey for Balance {
    async fn reconcile(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
        let name = ServiceName::new(key.namespace().unwrap_or_default(), key.name());
        let service = ctx.client().lister::<Service>().get(&key);
        let Some(service) = service.filter(|service| is_ours(service)) else {
            let had = self.balancers.lock().take(&name);
            if had {
                (self.changed)();
            }
            return Ok(Outcome::Done);
        };
        let (address, is_new) = {
            let mut balancers = self.balancers.lock();
            let is_new = !balancers.given().contains_key(&name);
            (balancers.give(&name, known(&service)), is_new)
        };
        if is_new {
            (self.changed)();
        }
        if known(&service) != Some(address.into()) {
            let ingress = json!([{"ip": address.to_string(), "ipMode": "VIP"}]);
            let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
            match ctx.client().patch_status::<Service>(&key, &patch).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Outcome::Done)
    }
}
