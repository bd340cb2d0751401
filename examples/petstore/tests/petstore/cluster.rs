//! A cluster in this process that knows the Pet kind, and ways to wait for its state.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, CustomResourceExt,
    api::PostParams,
    runtime::{
        wait::{await_condition, conditions},
        watcher,
    },
};
use windlass_cluster::Cluster;
use windlass_petstore::api::v1alpha1::Pet;

/// Longer than anything takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster that serves Pets.
pub(crate) async fn with_pets() -> Cluster {
    let cluster = Cluster::start().await.unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let crd = Pet::crd();
    crds.create(&PostParams::default(), &crd).await.unwrap();
    let name = crd.metadata.name.as_deref().unwrap();
    let established = await_condition(crds, name, conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, established).await.expect("the Pet kind is served in time").unwrap();
    cluster
}

/// The first state of the named Pet that `accept` accepts; `None` is a Pet that does not exist.
pub(crate) async fn wait_for(
    pets: &Api<Pet>,
    name: &str,
    what: &str,
    accept: impl Fn(Option<&Pet>) -> bool,
) -> Option<Pet> {
    let mut states = std::pin::pin!(watcher::watch_object(pets.clone(), name));
    let mut last = None;
    let found = tokio::time::timeout(PATIENCE, async {
        while let Some(state) = states.next().await {
            last = state.unwrap();
            if accept(last.as_ref()) {
                return true;
            }
        }
        false
    })
    .await;
    assert_eq!(found, Ok(true), "{name} never {what}; it is {last:#?}");
    last
}

/// The first item of a watch on `api` that `accept` accepts.
pub(crate) async fn wait_for_any<K>(api: &Api<K>, what: &str, accept: impl Fn(&K) -> bool) -> K
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    use kube::runtime::WatchStreamExt;

    let mut states = std::pin::pin!(watcher::watcher(api.clone(), watcher::Config::default()).touched_objects());
    tokio::time::timeout(PATIENCE, async {
        while let Some(object) = states.try_next().await.unwrap() {
            if accept(&object) {
                return object;
            }
        }
        unreachable!("a watch does not end")
    })
    .await
    .unwrap_or_else(|_| panic!("there never was {what}"))
}
