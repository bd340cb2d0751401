// SPDX-License-Identifier: Apache-2.0

//! Waiting, with something to see meanwhile.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::{Ingress, IngressLoadBalancerIngress};
use windlass::kube::api::{WatchEvent, WatchParams};
use windlass::kube::{Api, Client, Error};

use crate::app::App;

/// Waits until all replicas are ready. Says how many are, each time that it changes.
pub async fn ready(client: &Client, app: &App, say: impl Fn(String)) -> Result<(), Error> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &app.namespace);
    let wanted = i32::from(app.replicas);
    let mut before = None;
    watch(&deployments, &app.name, |deployment| {
        let ready = deployment.and_then(|one| one.status.as_ref()?.ready_replicas).unwrap_or(0);
        if before.replace(ready) != Some(ready) {
            say(format!("{ready} of {wanted} replicas are ready"));
        }
        (ready >= wanted).then_some(())
    })
    .await
}

/// Waits until the application is reached from outside. Returns where.
pub async fn url(client: &Client, app: &App) -> Result<String, Error> {
    let ingresses: Api<Ingress> = Api::namespaced(client.clone(), &app.namespace);
    let path = &app.path;
    watch(&ingresses, &app.name, |ingress| {
        let status = ingress?.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
        status.first().and_then(address).map(|address| format!("http://{address}{path}"))
    })
    .await
}

/// Waits until the namespace is gone if it is being deleted: an earlier run may have been killed meanwhile.
pub async fn gone_if_deleted(client: &Client, app: &App) -> Result<(), Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.get_opt(&app.namespace).await? {
        Some(namespace) if namespace.metadata.deletion_timestamp.is_some() => gone(client, app).await,
        _ => Ok(()),
    }
}

/// Waits until the namespace is gone.
pub async fn gone(client: &Client, app: &App) -> Result<(), Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if namespaces.get_opt(&app.namespace).await?.is_none() {
        return Ok(());
    }
    watch(&namespaces, &app.namespace, |namespace| namespace.is_none().then_some(())).await
}

/// The host of an Ingress, with its port if that is not the one of HTTP.
fn address(ingress: &IngressLoadBalancerIngress) -> Option<String> {
    let host = ingress.hostname.clone().or_else(|| ingress.ip.clone())?;
    let port = ingress.ports.as_ref().and_then(|ports| Some(ports.first()?.port));
    Some(match port {
        None | Some(80) => host,
        Some(port) => format!("{host}:{port}"),
    })
}

/// Looks at an object each time that it changes, until there is a result. A deleted object is `None`.
async fn watch<K, T>(api: &Api<K>, name: &str, mut look: impl FnMut(Option<&K>) -> Option<T>) -> Result<T, Error>
where
    K: windlass::kube::Resource + Clone + std::fmt::Debug + windlass::serde::de::DeserializeOwned,
{
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    loop {
        // Watches end now and then; each begins with what there is.
        let mut changes = api.watch(&params, "0").await?.boxed();
        while let Some(change) = changes.try_next().await? {
            let found = match &change {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => look(Some(object)),
                WatchEvent::Deleted(_) => look(None),
                WatchEvent::Bookmark(_) | WatchEvent::Error(_) => None,
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
        // It may have gone between two watches.
        if api.get_metadata_opt(name).await?.is_none()
            && let Some(found) = look(None)
        {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::networking::v1::IngressPortStatus;

    use super::*;

    #[test]
    fn an_address_has_the_port_that_it_needs() {
        let with = |port: Option<i32>| IngressLoadBalancerIngress {
            ip: Some("127.0.0.1".into()),
            ports: port.map(|port| vec![IngressPortStatus { port, ..IngressPortStatus::default() }]),
            ..IngressLoadBalancerIngress::default()
        };
        assert_eq!(address(&with(None)).as_deref(), Some("127.0.0.1"));
        assert_eq!(address(&with(Some(80))).as_deref(), Some("127.0.0.1"));
        assert_eq!(address(&with(Some(8080))).as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(address(&IngressLoadBalancerIngress::default()), None);
    }
}
