//! A kind that is deleted and defined again at once: what its objects owned goes with them, and what its new objects
//! own is looked after as before.

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use windlass_cluster::Cluster;

use crate::objects::{LONG, create, install, merge, namespaced, until_gone};

const CRD: &str = "jars.example.com";
/// ConfigMaps of each jar.
const EACH: usize = 4;

/// Jars of the current definition.
struct Jars {
    client: kube::Client,
    maps: Api<ConfigMap>,
    crds: Api<CustomResourceDefinition>,
}

impl Jars {
    fn of(cluster: &Cluster) -> Self {
        let client = cluster.client();
        Self { maps: namespaced(&client, "default"), crds: Api::all(client.clone()), client }
    }

    /// Creates jars, and the ConfigMaps that each of them owns.
    async fn fill(&self, jars: &Api<DynamicObject>, count: usize) -> Vec<DynamicObject> {
        join_all((0..count).map(async |at| {
            let jar = json!({"apiVersion": "example.com/v1", "kind": "Jar", "metadata": {"name": format!("j{at}")}});
            let jar = create(jars, jar).await;
            for _ in 0..EACH {
                let owner = json!({
                    "apiVersion": "example.com/v1", "kind": "Jar", "name": jar.name_any(), "uid": jar.metadata.uid,
                });
                let metadata = json!({
                    "generateName": "m-", "labels": {"of": jar.metadata.uid}, "ownerReferences": [owner],
                });
                create(&self.maps, json!({"metadata": metadata})).await;
            }
            jar
        }))
        .await
    }

    /// Waits until the garbage collector follows the kind.
    async fn until_followed(&self, jars: &Api<DynamicObject>) {
        let first = self.fill(jars, 1).await.remove(0);
        jars.delete(&first.name_any(), &DeleteParams::default()).await.unwrap();
        self.until_left(&[]).await;
    }

    /// The ConfigMaps that belong to some jar.
    async fn owned(&self) -> Vec<ConfigMap> {
        self.maps.list(&ListParams::default().labels("of")).await.unwrap().items
    }

    /// Waits until no ConfigMaps are left but those of these jars.
    async fn until_left(&self, jars: &[DynamicObject]) {
        let waiting = async {
            loop {
                let owned = self.owned().await;
                let known = |map: &ConfigMap| jars.iter().any(|jar| jar.uid().as_ref() == map.labels().get("of"));
                if owned.iter().all(known) {
                    assert_eq!(owned.len(), jars.len() * EACH, "none too many were collected");
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(LONG, waiting).await;
        let left = self.owned().await.len();
        assert!(waited.is_ok(), "{left} ConfigMaps are left, {} wanted", jars.len() * EACH);
    }

    async fn drop_definition(&self) {
        self.crds.delete(CRD, &DeleteParams::default()).await.unwrap();
        until_gone(&self.crds, CRD).await;
    }
}

async fn a_kind_is_recreated(scopes: &[&str], refill: usize) {
    let cluster = Cluster::start().await.unwrap();
    let own = Jars::of(&cluster);
    let mut jars = install(&own.client, "Jar", "Namespaced").await;
    own.fill(&jars, 40).await;
    for scope in scopes {
        own.drop_definition().await;
        jars = install(&own.client, "Jar", scope).await;
        let filled = own.fill(&jars, refill).await;
        own.until_left(&filled).await;
    }
    for jar in jars.list(&ListParams::default()).await.unwrap() {
        jars.delete(&jar.name_any(), &DeleteParams::default()).await.unwrap();
    }
    own.until_left(&[]).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_recreated_kind_owned_goes() {
    a_kind_is_recreated(&["Namespaced"], 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_recreated_kind_owned_goes_with_several_threads() {
    a_kind_is_recreated(&["Namespaced"], 0).await;
}

#[tokio::test]
async fn what_a_kind_owns_goes_after_it_was_recreated() {
    a_kind_is_recreated(&["Namespaced"; 3], 10).await;
}

#[tokio::test]
async fn what_a_kind_owned_goes_when_its_scope_changes() {
    a_kind_is_recreated(&["Cluster", "Namespaced"], 10).await;
}

#[tokio::test]
async fn dependents_of_a_removed_kind_go() {
    let cluster = Cluster::start().await.unwrap();
    let own = Jars::of(&cluster);
    let jars = install(&own.client, "Jar", "Namespaced").await;
    // Of owners that were never seen, of a kind that does not exist, it is not known what they were.
    own.until_followed(&jars).await;
    own.fill(&jars, 10).await;
    own.drop_definition().await;
    own.until_left(&[]).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn objects_of_an_unserved_version_keep_what_they_own() {
    let cluster = Cluster::start().await.unwrap();
    let own = Jars::of(&cluster);
    let jars = install(&own.client, "Jar", "Namespaced").await;
    let mut filled = own.fill(&jars, 5).await;
    let serve = async |served: bool| {
        let mut version = own.crds.get(CRD).await.unwrap().spec.versions.remove(0);
        version.served = served;
        merge(&own.crds, CRD, json!({"spec": {"versions": [version]}})).await;
    };
    serve(false).await;
    // Another kind comes and is looked at: the collector has seen that jars are not served.
    let tins = install(&own.client, "Tin", "Namespaced").await;
    let tin = json!({"apiVersion": "example.com/v1", "kind": "Tin", "metadata": {"name": "t"}});
    let tin = create(&tins, tin).await;
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Tin", "name": "t", "uid": tin.metadata.uid});
    create(&own.maps, json!({"metadata": {"name": "of-tin", "ownerReferences": [owner]}})).await;
    tins.delete("t", &DeleteParams::default()).await.unwrap();
    until_gone(&own.maps, "of-tin").await;
    assert_eq!(own.owned().await.len(), filled.len() * EACH);
    serve(true).await;
    let going = filled.remove(0);
    jars.delete(&going.name_any(), &DeleteParams::default()).await.unwrap();
    own.until_left(&filled).await;
    cluster.stop().await.unwrap();
}
