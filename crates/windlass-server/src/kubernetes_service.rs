//! The Service `default/kubernetes`, by which clients inside the cluster reach this server, with its Endpoints
//! and EndpointSlice.
//!
//! They are looked after from when the server listens: whatever is deleted or points elsewhere is put back
//! within ten seconds of the change; without a change nothing is looked at. A Service that was changed stays as it is, but for its ports when the server starts,
//! as those are of the last start. Mirrors `pkg/controlplane/controller/kubernetesservice` and
//! `pkg/controlplane/reconcilers`.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_store::Revision;

use crate::api::Api;
use crate::loopback::{Failed, get, send};
use crate::validation::access::{Access as _, AccessMut as _};

/// Everything is looked at no more often than this.
const INTERVAL: Duration = Duration::from_secs(10);
/// The first address of the range that services get theirs from.
const CLUSTER_IP: &str = "10.96.0.1";
const NAMESPACE: &str = "/api/v1/namespaces/default";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Where the kinds are stored.
const PREFIXES: [&str; 3] = ["/registry/services/specs/", "/registry/services/endpoints/", "/registry/endpointslices/"];
/// What the keys of the objects end with.
const KEY: &[u8] = b"/default/kubernetes";
/// How many events are taken in at once.
const BATCH: usize = 256;

/// Where others are told to reach a server that listens on `local`. Endpoints may not be loopback addresses,
/// so, as upstream does it, that of the host stands for any and for itself.
pub(crate) fn advertised(local: SocketAddr) -> SocketAddr {
    if !(local.ip().is_unspecified() || local.ip().is_loopback()) {
        return local;
    }
    let loopback = if local.is_ipv6() { IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]) } else { IpAddr::from([127, 0, 0, 1]) };
    SocketAddr::new(host_address(local.is_ipv6()).unwrap_or(loopback), local.port())
}

/// The address this host would send from: that of the interface with the default route. Nothing is sent.
fn host_address(ipv6: bool) -> Option<IpAddr> {
    let (any, elsewhere) = if ipv6 { ("[::]:0", "[2001:db8::1]:9") } else { ("0.0.0.0:0", "192.0.2.1:9") };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(elsewhere).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// Looks after the Service until `stop`.
pub(crate) async fn keep(api: Arc<Api>, stop: CancellationToken) {
    let mut is_first = true;
    loop {
        let Some(&address) = api.address.get() else { return };
        let seen = *api.store.revision().borrow();
        let next = Instant::now() + INTERVAL;
        let put_back = async {
            service(&api, address.port(), is_first).await?;
            if !address.ip().is_loopback() {
                endpoints(&api, address).await?;
                slice(&api, address).await?;
            }
            Ok::<_, Failed>(())
        };
        // A webhook may keep a write waiting, but not the server from stopping.
        let result = tokio::select! {
            () = stop.cancelled() => return,
            result = put_back => result,
        };
        is_first = false;
        let is_wanted = async {
            match result {
                Ok(()) => changed(&api, seen).await,
                Err(Failed { method, path, message }) => {
                    tracing::warn!(%method, %path, %message, "the kubernetes service cannot be updated");
                    true
                }
            }
        };
        let is_wanted = tokio::select! {
            () = stop.cancelled() => return,
            is_wanted = is_wanted => is_wanted,
        };
        if !is_wanted {
            return;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

/// Waits until one of the objects is written or deleted after a revision. `false` once the server ends.
async fn changed(api: &Arc<Api>, seen: Revision) -> bool {
    let mut channels = Vec::new();
    for prefix in PREFIXES {
        let Ok(channel) = api.hub.channel(prefix).await else { return false };
        let newest = channel.subscribe();
        channels.push((channel, newest, seen));
    }
    loop {
        for (channel, newest, seen) in &mut channels {
            newest.mark_unchanged();
            loop {
                // Events that are no longer there may have been about anything.
                let Ok(events) = channel.read(*seen, BATCH) else { return true };
                let Some(last) = events.last() else { break };
                *seen = last.event.revision;
                if events.iter().any(|event| event.event.key.ends_with(KEY)) {
                    return true;
                }
            }
        }
        let news = channels.iter_mut().map(|(_, newest, _)| Box::pin(newest.changed()));
        if futures::future::select_all(news).await.0.is_err() {
            return false;
        }
    }
}

async fn service(api: &Arc<Api>, port: u16, reset_ports: bool) -> Result<(), Failed> {
    let services = format!("{NAMESPACE}/services");
    let path = format!("{services}/kubernetes");
    let ports = json!([{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}]);
    let Some(mut found) = get(api, &path).await? else {
        let service = json!({
            "kind": "Service", "apiVersion": "v1",
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {
                "type": "ClusterIP", "clusterIP": CLUSTER_IP, "ipFamilyPolicy": "SingleStack", "ports": ports,
                "sessionAffinity": "None",
            },
        });
        return send(api, Method::POST, &services, &service).await;
    };
    if reset_ports && found.at("spec").at("ports") != &ports {
        found.struct_mut("spec").put("ports", ports);
        return send(api, Method::PUT, &path, &found).await;
    }
    Ok(())
}

async fn endpoints(api: &Arc<Api>, address: SocketAddr) -> Result<(), Failed> {
    let all = format!("{NAMESPACE}/endpoints");
    let path = format!("{all}/kubernetes");
    let subsets = json!([{
        "addresses": [{"ip": address.ip().to_string()}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    }]);
    let found = get(api, &path).await?;
    let is_right = |found: &Value| {
        found.at("subsets") == &subsets && found.below(&["metadata", "labels"]).text(SKIP_MIRROR) == "true"
    };
    if found.as_ref().is_some_and(is_right) {
        return Ok(());
    }
    let method = if found.is_some() { Method::PUT } else { Method::POST };
    let missing = json!({"kind": "Endpoints", "apiVersion": "v1", "metadata": {"name": "kubernetes"}});
    let mut object = found.unwrap_or(missing);
    object.struct_mut("metadata").struct_mut("labels").put(SKIP_MIRROR, "true");
    object.put("subsets", subsets);
    let path = if method == Method::PUT { path } else { all };
    send(api, method, &path, &object).await
}

async fn slice(api: &Arc<Api>, address: SocketAddr) -> Result<(), Failed> {
    let path = format!("{SLICES}/kubernetes");
    let slice = json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": "kubernetes", "labels": {SERVICE_NAME: "kubernetes"}},
        "addressType": if address.is_ipv6() { "IPv6" } else { "IPv4" },
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    });
    let Some(found) = get(api, &path).await? else { return send(api, Method::POST, SLICES, &slice).await };
    if found.at("addressType") != slice.at("addressType") {
        send(api, Method::DELETE, &path, &Value::Null).await?;
        return send(api, Method::POST, SLICES, &slice).await;
    }
    let is_same = |field: &str| found.at(field) == slice.at(field);
    let labels = |slice: &Value| slice.below(&["metadata", "labels"]).clone();
    if is_same("endpoints") && is_same("ports") && labels(&found) == labels(&slice) {
        return Ok(());
    }
    send(api, Method::PUT, &path, &slice).await
}
