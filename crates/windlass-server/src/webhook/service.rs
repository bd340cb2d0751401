//! From a Service to an address that can be dialled.
//!
//! Cluster IPs need not work where this server runs, so a Service stands for one of its ready endpoints,
//! as with upstream's `--enable-aggregator-routing`. Endpoints come from the EndpointSlices of the
//! Service, or from its Endpoints object where it has no slices.

use serde_json::Value;
use windlass_store::{Range, Store};

use crate::codec::json;
use crate::field::quote;
use crate::validation::access::Access;

/// `clientConfig.service`.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl Reference {
    /// Reads a service reference; the port is 443 unless it says otherwise.
    pub(crate) fn new(service: &Value) -> Self {
        let port = service.int_opt("port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        Self {
            namespace: service.text("namespace").to_owned(),
            name: service.text("name").to_owned(),
            port: port.unwrap_or(443),
        }
    }

    /// The name its certificate must be for.
    pub(crate) fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

/// An address of the Service at this moment, or why there is none.
pub(crate) async fn resolve(store: &dyn Store, reference: &Reference) -> Result<(String, u16), String> {
    let Reference { namespace, name, port } = reference;
    let service = read(store, &format!("/registry/services/specs/{namespace}/{name}")).await?;
    let service = service.ok_or_else(|| format!("service {} not found", quote(name)))?;
    let spec = service.at("spec");
    match spec.text("type") {
        "ExternalName" => return Ok((spec.text("externalName").to_owned(), *port)),
        "ClusterIP" | "NodePort" | "LoadBalancer" | "" => {}
        other => return Err(format!("unsupported service type {}", quote(other))),
    }
    let Some(service_port) = spec.list("ports").iter().find(|p| p.int("port") == i64::from(*port)) else {
        return Err(format!("no service port {port} found for service {}", quote(name)));
    };
    let port_name = service_port.text("name");
    let prefix = format!("/registry/endpointslices/{namespace}/");
    let slices = store.range(Range::prefix(prefix), None, 0).await.map_err(|error| error.to_string())?;
    let slices = slices.entries.iter().filter_map(|entry| json::parse(&entry.value).ok()).map(|parsed| parsed.value);
    let slices: Vec<Value> = slices
        .filter(|slice| slice.below(&["metadata", "labels"]).text("kubernetes.io/service-name") == name)
        .collect();
    let mut found: Vec<(String, u16)> = slices.iter().flat_map(|slice| of_slice(slice, port_name)).collect();
    if found.is_empty() {
        let endpoints = read(store, &format!("/registry/services/endpoints/{namespace}/{name}")).await?;
        found = endpoints.iter().flat_map(|endpoints| of_endpoints(endpoints, port_name)).collect();
    }
    if found.is_empty() {
        return Err(format!("no endpoints available for service {}", quote(name)));
    }
    Ok(found.swap_remove(fastrand::usize(..found.len())))
}

async fn read(store: &dyn Store, key: &str) -> Result<Option<Value>, String> {
    let entry = store.get(key.as_bytes()).await.map_err(|error| error.to_string())?;
    Ok(entry.and_then(|entry| json::parse(&entry.value).ok()).map(|parsed| parsed.value))
}

/// The ready addresses of an EndpointSlice that serve the port called `port_name`.
fn of_slice(slice: &Value, port_name: &str) -> Vec<(String, u16)> {
    let Some(port) = port_called(slice.list("ports"), port_name) else { return Vec::new() };
    let ready = slice.list("endpoints").iter().filter(|e| e.at("conditions").flag_opt("ready") != Some(false));
    ready.filter_map(|endpoint| Some((endpoint.texts("addresses").first()?.to_string(), port))).collect()
}

/// The same of an Endpoints object.
fn of_endpoints(endpoints: &Value, port_name: &str) -> Vec<(String, u16)> {
    let of_subset = |subset: &Value| {
        let port = port_called(subset.list("ports"), port_name);
        let addresses = subset.list("addresses").iter().map(|address| address.text("ip").to_owned());
        addresses.filter_map(|ip| Some((ip, port?))).collect::<Vec<_>>()
    };
    endpoints.list("subsets").iter().flat_map(of_subset).collect()
}

fn port_called(ports: &[Value], name: &str) -> Option<u16> {
    let port = ports.iter().find(|port| port.text("name") == name)?;
    u16::try_from(port.int_opt("port")?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_store::{Expect, Memory, Value as Bytes, Write};

    use super::*;

    async fn put(store: &Memory, key: &str, value: &Value) {
        let write = Write::Put {
            key: key.to_owned().into(),
            expect: Expect::Any,
            value: Bytes::plain(value.to_string().into_bytes()),
        };
        store.txn(vec![write]).await.expect("writes");
    }

    #[tokio::test]
    async fn a_service_stands_for_one_of_its_ready_endpoints() {
        let store = Memory::new();
        let reference = Reference::new(&json!({"namespace": "ns", "name": "hook"}));
        let resolve = || resolve(&store, &reference);
        assert_eq!(resolve().await.expect_err("no service"), "service \"hook\" not found");
        let key = "/registry/services/specs/ns/hook";
        put(&store, key, &json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}})).await;
        assert_eq!(resolve().await.expect_err("no port"), "no service port 443 found for service \"hook\"");
        put(&store, key, &json!({"spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": 443}]}})).await;
        assert_eq!(resolve().await.expect_err("no endpoints"), "no endpoints available for service \"hook\"");
        let endpoints = json!({"subsets": [
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "https", "port": 9443}]},
        ]});
        put(&store, "/registry/services/endpoints/ns/hook", &endpoints).await;
        assert_eq!(resolve().await.expect("resolves"), ("10.0.0.1".to_owned(), 9443));
        let slice = json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "hook"}},
            "ports": [{"name": "metrics", "port": 1}, {"name": "https", "port": 8443}],
            "endpoints": [
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.3"], "conditions": {"ready": true}},
            ],
        });
        put(&store, "/registry/endpointslices/ns/hook-x", &slice).await;
        assert_eq!(resolve().await.expect("resolves"), ("10.0.0.3".to_owned(), 8443));
    }
}
