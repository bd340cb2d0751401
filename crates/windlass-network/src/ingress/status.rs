//! The address of an Ingress, in its status.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::networking::v1::{Ingress, IngressLoadBalancerIngress};
use kube::api::Patch;
use serde_json::json;
use windlass::{Context, ObjectKey};

/// Writes the address, if it is not there.
pub(super) async fn publish(ctx: &Context, ingress: &Arc<Ingress>, address: &str) -> windlass::Result<()> {
    let wanted = match address.parse::<IpAddr>() {
        Ok(_) => IngressLoadBalancerIngress { ip: Some(address.to_owned()), ..IngressLoadBalancerIngress::default() },
        Err(_) => {
            IngressLoadBalancerIngress { hostname: Some(address.to_owned()), ..IngressLoadBalancerIngress::default() }
        }
    };
    let known = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    if known.is_some_and(|known| known[..] == [wanted.clone()]) {
        return Ok(());
    }
    let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": [wanted]}}}));
    match ctx.client().patch_status::<Ingress>(&ObjectKey::of(&**ingress), &patch).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
