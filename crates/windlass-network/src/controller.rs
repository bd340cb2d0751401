//! The controller that keeps the [`Directory`] current.
//!
//! It watches Services and EndpointSlices with the manager's watches, and tells everybody who [follows](Services) the
//! directory about each change.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::RwLock;
use tokio::sync::watch;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, ReconcileKey};

use crate::services::{self, Directory, SERVICE_NAME, ServiceName};

/// The index of EndpointSlices by the Service that they belong to.
const SERVICE_INDEX: &str = "windlass-network/service";

/// The Services of a cluster, kept current. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Services {
    directory: Arc<RwLock<Directory>>,
    changes: Arc<watch::Sender<u64>>,
}

impl Services {
    /// Looks at the directory. The function must not block: changes wait for it.
    pub fn read<T>(&self, look: impl FnOnce(&Directory) -> T) -> T {
        look(&self.directory.read())
    }

    /// Replaces what is known of a Service, or removes it.
    pub fn set(&self, name: &ServiceName, service: Option<services::Service>) {
        if self.directory.write().set(name, service) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Changes when the directory has.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Adds the controller that keeps this current to a manager.
    pub fn add_to(&self, manager: &mut Manager) -> Result<(), ManagerError> {
        manager
            .lister::<EndpointSlice>()
            .add_index(SERVICE_INDEX, |slice| service_of(slice).map(|name| name.to_string()).into_iter().collect());
        manager.add(
            Controller::<Service>::new("service-proxy")
                .watches(|slice: &EndpointSlice, _| {
                    service_of(slice).map(|name| ObjectKey::new(name.namespace, name.name))
                })
                .complete_keyed(Keep(self.clone())),
        )
    }
}

/// The Service that a slice belongs to.
fn service_of(slice: &EndpointSlice) -> Option<ServiceName> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some(ServiceName::new(slice.metadata.namespace.as_deref()?, name))
}

struct Keep(Services);

impl ReconcileKey for Keep {
    async fn reconcile(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
        let name = ServiceName::new(key.namespace().unwrap_or_default(), key.name());
        let service = ctx.client().lister::<Service>().get(&key);
        let slices = ctx.client().lister::<EndpointSlice>().by_index(SERVICE_INDEX, &name.to_string());
        let slices = slices.iter().map(|slice| &**slice);
        self.0.set(&name, service.map(|service| services::Service::new(&service, slices)));
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use kube::api::{Api, DeleteParams, PostParams};
    use serde_json::json;
    use tokio_util::sync::CancellationToken;
    use windlass_server::Server;

    use super::*;

    /// Waits until the directory is as a test wants it.
    async fn until(services: &Services, wanted: impl Fn(&Directory) -> bool) {
        let mut changes = services.changes();
        let waiting = changes.wait_for(|_| services.read(&wanted));
        waiting.await.expect("the sender is here");
    }

    #[tokio::test]
    async fn the_directory_follows_services_and_slices() -> anyhow::Result<()> {
        let server = Server::builder().start().await?;
        let client = kube::Client::new(server.service(), "default");
        let mut manager = Manager::builder(client.clone()).name("network").build()?;
        let services = Services::default();
        services.add_to(&mut manager)?;
        let stop = CancellationToken::new();
        let running = tokio::spawn(manager.run_until(stop.clone()));

        let all = Api::<Service>::namespaced(client.clone(), "default");
        let web = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80, "targetPort": 8080}]}});
        all.create(&PostParams::default(), &serde_json::from_value(web)?).await?;
        until(&services, |directory| directory.get("default", "web").is_some()).await;

        let slice = json!({
            "metadata": {"name": "web-1", "labels": {SERVICE_NAME: "web"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.0.5"]}], "ports": [{"name": "", "port": 8080}],
        });
        let slices = Api::<EndpointSlice>::namespaced(client, "default");
        slices.create(&PostParams::default(), &serde_json::from_value(slice)?).await?;
        let backends = |directory: &Directory| directory.get("default", "web").map(|web| web.ports[0].backends.len());
        until(&services, |directory| backends(directory) == Some(1)).await;
        slices.delete("web-1", &DeleteParams::default()).await?;
        until(&services, |directory| backends(directory) == Some(0)).await;
        all.delete("web", &DeleteParams::default()).await?;
        until(&services, |directory| backends(directory).is_none()).await;

        stop.cancel();
        running.await??;
        server.stop().await?;
        Ok(())
    }
}
