//! Which keys a change concerns.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DynamicObject;

use super::*;

fn owned_by(api_version: &str, kind: &str, controller: bool) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("default".into());
    pod.metadata.owner_references = Some(vec![OwnerReference {
        api_version: api_version.into(),
        kind: kind.into(),
        name: "parent".into(),
        uid: "1".into(),
        controller: Some(controller),
        ..OwnerReference::default()
    }]);
    pod
}

fn primary<K: Object>(watch: &Watch<K>) -> Primary {
    Primary {
        resource: ApiResource::erase::<K>(&watch.dt),
        scope: watch.scope.clone(),
        cluster_scoped: watch.is_cluster_scoped(),
        seen_cluster_scoped: Arc::default(),
    }
}

fn owner<K: Object<DynamicType = ()>>(pod: &Pod) -> Option<String> {
    primary(&Watch::<K>::default()).owner_key(&pod.metadata).map(|key| key.to_string())
}

#[test]
fn owners_are_found_by_group_and_kind() {
    let pod = owned_by("apps/v1beta2", "ReplicaSet", true);
    assert_eq!(owner::<ReplicaSet>(&pod).as_deref(), Some("default/parent"));
    assert_eq!(owner::<Deployment>(&pod), None);
    assert_eq!(owner::<ReplicaSet>(&owned_by("other/v1", "ReplicaSet", true)), None);
    assert_eq!(owner::<ReplicaSet>(&owned_by("apps/v1", "ReplicaSet", false)), None);
}

#[test]
fn a_cluster_scoped_owner_has_no_namespace() {
    assert_eq!(owner::<Node>(&owned_by("v1", "Node", true)).as_deref(), Some("parent"));
    // A kind known only at run time does not say where its objects are; a scope can.
    let watch = Watch::<DynamicObject>::dynamic(ApiResource::erase::<Node>(&()));
    let key = |watch: &Watch<DynamicObject>| {
        let found = primary(watch).owner_key(&owned_by("v1", "Node", true).metadata);
        found.map(|key| key.to_string())
    };
    assert_eq!(key(&watch).as_deref(), Some("default/parent"));
    assert_eq!(key(&watch.scope(Scope::default().cluster_scoped())).as_deref(), Some("parent"));
}

#[test]
fn an_update_concerns_the_old_and_the_new_keys_once() {
    let queue = Queue::default();
    let sink = Sink { queue: queue.clone(), shards: None, slots: None };
    let keys = |names: &[&str]| names.iter().map(ObjectKey::cluster).collect::<Vec<_>>();
    let deliver = |change, accepts: bool| {
        sink.deliver(change, &|| accepts, &|| keys(&["all", "b"]), &|| keys(&["all", "a"]));
        let mut queued: Vec<String> = queue.pending(|_| true).iter().map(ToString::to_string).collect();
        queued.sort();
        queued
    };
    assert!(deliver(Happened::Updated, false).is_empty());
    assert_eq!(deliver(Happened::Added { initial: true }, true), ["all", "b"]);
    assert_eq!(deliver(Happened::Updated, true), ["a", "all", "b"]);
}
