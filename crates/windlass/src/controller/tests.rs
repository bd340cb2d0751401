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

fn owner<K: Object<DynamicType = ()>>(pod: &Pod) -> Option<String> {
    let resource = ApiResource::erase::<K>(&());
    owner_key(pod, &resource, is_cluster_scoped::<K>()).map(|key| key.to_string())
}

#[test]
fn the_owner_is_found_by_group_and_kind_whatever_the_version() {
    let pod = owned_by("apps/v1beta2", "ReplicaSet", true);
    assert_eq!(owner::<ReplicaSet>(&pod).as_deref(), Some("default/parent"));
    assert_eq!(owner::<Deployment>(&pod), None);
    assert_eq!(owner::<ReplicaSet>(&owned_by("other/v1", "ReplicaSet", true)), None);
    assert_eq!(owner::<ReplicaSet>(&owned_by("apps/v1", "ReplicaSet", false)), None);
}

#[test]
fn a_cluster_scoped_owner_has_no_namespace() {
    assert_eq!(owner::<Node>(&owned_by("v1", "Node", true)).as_deref(), Some("parent"));
    // A kind known only at run time does not say where it is; whoever watches it can.
    let watch = Watch::<DynamicObject>::dynamic(ApiResource::erase::<Node>(&()));
    let key = |watch: &Watch<DynamicObject>| {
        let found = owner_key(&owned_by("v1", "Node", true), &watch.dt, watch.is_cluster_scoped());
        found.map(|key| key.to_string())
    };
    assert_eq!(key(&watch).as_deref(), Some("default/parent"));
    assert_eq!(key(&watch.scope(Scope::default().cluster_scoped())).as_deref(), Some("parent"));
}

#[test]
fn an_update_concerns_the_old_and_the_new_keys_once() {
    let at = |node: &str| {
        let mut pod = Pod::default();
        pod.spec.get_or_insert_default().node_name = Some(node.into());
        Arc::new(pod)
    };
    let map = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        vec![ObjectKey::cluster("all"), ObjectKey::cluster(node.unwrap_or_default())]
    };
    let change = Change::Updated { old: at("a"), new: at("b") };
    let keys: Vec<String> = keys_of(&change, &map).iter().map(ToString::to_string).collect();
    assert_eq!(keys, ["all", "b", "a"]);
}
