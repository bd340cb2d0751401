//! The address of an Ingress, in its status, with the ports where it is served: a machine's port 80 is seldom free.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::networking::v1::{Ingress, IngressLoadBalancerIngress, IngressPortStatus};
use kube::api::Patch;
use serde_json::json;
use windlass::{Context, ObjectKey};

/// Writes the address, if it is not there.
pub(super) async fn publish(
    ctx: &Context,
    ingress: &Arc<Ingress>,
    address: &str,
    ports: &[u16],
) -> windlass::Result<()> {
    let is_ip = address.parse::<IpAddr>().is_ok();
    let ports =
        ports.iter().map(|port| IngressPortStatus { port: (*port).into(), protocol: "TCP".into(), error: None });
    let wanted = IngressLoadBalancerIngress {
        ip: is_ip.then(|| address.to_owned()),
        hostname: (!is_ip).then(|| address.to_owned()),
        ports: Some(ports.collect::<Vec<_>>()).filter(|ports| !ports.is_empty()),
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
