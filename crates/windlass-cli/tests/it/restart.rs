//! What was acknowledged survives kill -9, and clients carry on where they were.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};

use crate::foreground::client;
use crate::windlass::{Cluster, Sandbox};

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap { data: Some(BTreeMap::from([("a".into(), "b".into())])), ..ConfigMap::default() };
    map.metadata.name = Some(name.into());
    map.metadata.labels = Some(BTreeMap::from([("set".into(), "ours".into())]));
    map
}

#[tokio::test]
async fn objects_and_revisions_survive_kill_9() {
    let sandbox = Sandbox::new();
    let cluster = Cluster::durable(&sandbox.path("data"));
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&cluster).await);
    for number in 0..20 {
        maps.create(&PostParams::default(), &map(&format!("map-{number}"))).await.unwrap();
    }
    let patch = Patch::Merge(serde_json::json!({"data": {"a": "c"}}));
    let changed = maps.patch("map-3", &PatchParams::default(), &patch).await.unwrap();
    maps.delete("map-4", &DeleteParams::default()).await.unwrap();
    let ours = ListParams::default().labels("set=ours");
    let before = maps.list(&ours).await.unwrap();
    cluster.kill();

    let cluster = Cluster::durable(&sandbox.path("data"));
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&cluster).await);
    let after = maps.list(&ours).await.unwrap();
    assert_eq!(after.items, before.items);
    assert_eq!(maps.get("map-3").await.unwrap(), changed);
    let revision = |text: Option<String>| text.unwrap().parse::<u64>().unwrap();
    let last = revision(before.metadata.resource_version);
    assert!(revision(after.metadata.resource_version) >= last);
    let next = maps.create(&PostParams::default(), &map("next")).await.unwrap();
    assert!(revision(next.resource_version()) > last);
}

#[tokio::test]
async fn a_watch_resumes_from_a_revision_of_before_the_crash() {
    let sandbox = Sandbox::new();
    let cluster = Cluster::durable(&sandbox.path("data"));
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&cluster).await);
    let first = maps.create(&PostParams::default(), &map("first")).await.unwrap();
    maps.create(&PostParams::default(), &map("second")).await.unwrap();
    maps.delete("first", &DeleteParams::default()).await.unwrap();
    cluster.kill();

    let cluster = Cluster::durable(&sandbox.path("data"));
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&cluster).await);
    let watch = maps
        .watch(&WatchParams::default().labels("set=ours"), &first.resource_version().unwrap())
        .await
        .unwrap()
        .boxed();
    maps.create(&PostParams::default(), &map("third")).await.unwrap();
    let seen: Vec<String> = watch
        .take(3)
        .map_ok(|event| match event {
            WatchEvent::Added(map) => format!("added {}", map.name_any()),
            WatchEvent::Deleted(map) => format!("deleted {}", map.name_any()),
            other => format!("{other:?}"),
        })
        .try_collect()
        .await
        .unwrap();
    assert_eq!(seen, ["added second", "deleted first", "added third"]);
}

#[tokio::test]
async fn a_kubeconfig_of_before_a_restart_is_good_after_it() {
    let sandbox = Sandbox::new();
    let cluster = Cluster::durable(&sandbox.path("data"));
    let old = std::fs::read_to_string(&cluster.kubeconfig).unwrap();
    let address = cluster.server.clone();
    cluster.kill();
    let cluster = Cluster::durable(&sandbox.path("data"));
    // Only the port was picked anew: the certificate authority and what it signed stay good.
    std::fs::write(&cluster.kubeconfig, old.replace(&address, &cluster.server)).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&cluster).await);
    maps.list(&ListParams::default()).await.unwrap();
}
