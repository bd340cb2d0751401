//! What depends on an object goes with it, or is left alone, as the deletion asks.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use windlass_cluster::Cluster;

use crate::objects::{LONG, create, install, merge, namespaced, until, until_gone};

fn reference(object: &ConfigMap, blocks: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": object.metadata.name, "uid": object.metadata.uid,
        "blockOwnerDeletion": blocks,
    })
}

fn child(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

fn with(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}

#[tokio::test]
async fn dependents_of_dependents_go_in_the_background() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let maps: Api<ConfigMap> = namespaced(&client, "default");
    let secrets: Api<Secret> = namespaced(&client, "default");
    let top = create(&maps, json!({"metadata": {"name": "top"}})).await;
    let middle = create(&maps, child("middle", &[reference(&top, false)])).await;
    create(&secrets, child("bottom", &[reference(&middle, false)])).await;
    maps.delete("top", &with(PropagationPolicy::Background)).await.unwrap();
    until_gone(&maps, "middle").await;
    until_gone(&secrets, "bottom").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn an_owner_deleted_in_the_foreground_goes_last() {
    let cluster = Cluster::start().await.unwrap();
    let maps: Api<ConfigMap> = namespaced(&cluster.client(), "default");
    let owner = create(&maps, json!({"metadata": {"name": "owner"}})).await;
    let mut held = child("held", &[reference(&owner, true)]);
    held["metadata"]["finalizers"] = json!(["e.com/hold"]);
    create(&maps, held).await;
    create(&maps, child("free", &[reference(&owner, true)])).await;
    maps.delete("owner", &with(PropagationPolicy::Foreground)).await.unwrap();
    until_gone(&maps, "free").await;
    until(&maps, "held", |held| held.is_some_and(|held| held.metadata.deletion_timestamp.is_some())).await;
    assert_eq!(maps.get("owner").await.unwrap().metadata.finalizers.unwrap(), ["foregroundDeletion"]);
    merge(&maps, "held", json!({"metadata": {"finalizers": null}})).await;
    until_gone(&maps, "owner").await;
    assert!(maps.get_opt("held").await.unwrap().is_none());
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn orphans_stay_without_their_owner() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let maps: Api<ConfigMap> = namespaced(&client, "default");
    let jars = install(&client, "Jar", "Namespaced").await;
    let owner = create(&maps, json!({"metadata": {"name": "owner"}})).await;
    create(&maps, child("map", &[reference(&owner, true)])).await;
    let mut jar = child("jar", &[reference(&owner, true)]);
    jar["apiVersion"] = json!("example.com/v1");
    jar["kind"] = json!("Jar");
    create(&jars, jar).await;
    maps.delete("owner", &with(PropagationPolicy::Orphan)).await.unwrap();
    until_gone(&maps, "owner").await;
    assert!(maps.get("map").await.unwrap().metadata.owner_references.is_none());
    assert!(jars.get("jar").await.unwrap().metadata.owner_references.is_none());
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn one_owner_left_is_enough_and_the_others_are_forgotten() {
    let cluster = Cluster::start().await.unwrap();
    let maps: Api<ConfigMap> = namespaced(&cluster.client(), "default");
    let one = create(&maps, json!({"metadata": {"name": "one"}})).await;
    let two = create(&maps, json!({"metadata": {"name": "two"}})).await;
    create(&maps, child("child", &[reference(&one, true), reference(&two, false)])).await;
    maps.delete("one", &with(PropagationPolicy::Foreground)).await.unwrap();
    until_gone(&maps, "one").await;
    let left = maps.get("child").await.unwrap().metadata.owner_references.unwrap();
    assert_eq!(left.iter().map(|owner| owner.name.as_str()).collect::<Vec<_>>(), ["two"]);
    maps.delete("two", &DeleteParams::default()).await.unwrap();
    until_gone(&maps, "child").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn custom_objects_own_and_are_owned_while_their_kind_lasts() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let maps: Api<ConfigMap> = namespaced(&client, "default");
    for round in ["first", "second"] {
        let jars: Api<DynamicObject> = install(&client, "Jar", "Namespaced").await;
        let jar = json!({"apiVersion": "example.com/v1", "kind": "Jar", "metadata": {"name": round}});
        let jar = create(&jars, jar).await;
        let owner = json!({"apiVersion": "example.com/v1", "kind": "Jar", "name": round, "uid": jar.metadata.uid});
        create(&maps, child(round, &[owner])).await;
        let crds: Api<DynamicObject> = Api::all_with(
            client.clone(),
            &kube::api::ApiResource {
                group: "apiextensions.k8s.io".to_owned(),
                version: "v1".to_owned(),
                api_version: "apiextensions.k8s.io/v1".to_owned(),
                kind: "CustomResourceDefinition".to_owned(),
                plural: "customresourcedefinitions".to_owned(),
            },
        );
        jars.delete(round, &DeleteParams::default()).await.unwrap();
        until_gone(&maps, round).await;
        crds.delete("jars.example.com", &DeleteParams::default()).await.unwrap();
        until_gone(&crds, "jars.example.com").await;
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn an_owner_in_another_namespace_does_not_count() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    create(&Api::<Namespace>::all(client.clone()), json!({"metadata": {"name": "other"}})).await;
    let there: Api<ConfigMap> = namespaced(&client, "other");
    let here: Api<ConfigMap> = namespaced(&client, "default");
    let owner = create(&there, json!({"metadata": {"name": "owner"}})).await;
    create(&here, child("child", &[reference(&owner, false)])).await;
    until_gone(&here, "child").await;
    let events: Api<Event> = namespaced(&client, "default");
    let reported = async {
        loop {
            let found = events.list(&ListParams::default().fields("reason=OwnerRefInvalidNamespace")).await.unwrap();
            if let Some(event) = found.items.into_iter().next() {
                return event;
            }
            tokio::task::yield_now().await;
        }
    };
    let event = tokio::time::timeout(LONG, reported).await.unwrap();
    let uid = owner.metadata.uid.unwrap();
    assert_eq!(
        event.message.unwrap(),
        format!(
            "ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: {uid}] does not exist in namespace \"default\""
        )
    );
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_circle_deleted_in_the_foreground_goes() {
    let cluster = Cluster::start().await.unwrap();
    let maps: Api<ConfigMap> = namespaced(&cluster.client(), "default");
    let one = create(&maps, json!({"metadata": {"name": "one"}})).await;
    let two = create(&maps, child("two", &[reference(&one, true)])).await;
    merge(&maps, "one", json!({"metadata": {"ownerReferences": [reference(&two, true)]}})).await;
    maps.delete("one", &with(PropagationPolicy::Foreground)).await.unwrap();
    until_gone(&maps, "one").await;
    until_gone(&maps, "two").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_cluster_scoped_owner_keeps_what_is_in_namespaces() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let jars = install(&client, "Jar", "Cluster").await;
    let jar = json!({"apiVersion": "example.com/v1", "kind": "Jar", "metadata": {"name": "j"}});
    let jar = create(&jars, jar).await;
    let maps: Api<ConfigMap> = namespaced(&client, "default");
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Jar", "name": "j", "uid": jar.metadata.uid});
    create(&maps, child("kept", std::slice::from_ref(&owner))).await;
    let mut wrong = owner.clone();
    wrong["uid"] = json!("00000000-0000-0000-0000-000000000000");
    create(&maps, child("lost", &[wrong])).await;
    until_gone(&maps, "lost").await;
    assert!(maps.get_opt("kept").await.unwrap().is_some());
    jars.delete("j", &DeleteParams::default()).await.unwrap();
    until_gone(&maps, "kept").await;
    cluster.stop().await.unwrap();
}
