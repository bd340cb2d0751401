//! Fields behind feature gates that are off in 1.36: they are dropped unless the object has them already.
//!
//! Upstream's `DropDisabledPodFields` (`pkg/api/pod/util.go`) with the defaults of `pkg/features/kube_features.go`:
//!
//! | gate | field |
//! |---|---|
//! | `ContainerStopSignals` | `lifecycle.stopSignal` of containers |
//! | `ClusterTrustBundleProjection` | `clusterTrustBundle` of projected volumes |
//! | `PodCertificateRequest` | `podCertificate` of projected volumes |
//! | `GenericWorkload` | `schedulingGroup` |
//! | `ImageVolumeWithDigest` | `volumeStatus` of mounts, in the status |
//! | `DRANodeAllocatableResources` | `nodeAllocatableResourceClaimStatuses`, in the status |

use serde_json::Value;

use crate::validation::access::{Access, AccessMut};

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
const STATUSES: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
/// Gone since 1.8, but still taken away.
const ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// Takes away what a pod or a pod template may not have. `old` is what is stored, or null.
pub fn drop_disabled(pod: &mut Value, old: &Value) {
    if let Some(annotations) = pod.child_mut("metadata").and_then(|metadata| metadata.child_mut("annotations")) {
        for annotation in ANNOTATIONS {
            annotations.drop_field(annotation);
        }
    }
    let Some(spec) = pod.child_mut("spec") else { return };
    let old = old.at("spec");
    if !old.has("schedulingGroup") {
        spec.drop_field("schedulingGroup");
    }
    if !has_stop_signal(old) {
        for list in CONTAINERS {
            spec.items_mut(list).iter_mut().for_each(drop_stop_signal);
        }
    }
    for projection in ["clusterTrustBundle", "podCertificate"] {
        if !has_projection(old, projection) {
            drop_projection(spec, projection);
        }
    }
}

/// Takes away what the status of a pod may not have.
pub(super) fn drop_disabled_status(status: &mut Value, old: &Value) {
    if old.list("nodeAllocatableResourceClaimStatuses").is_empty() {
        status.drop_field("nodeAllocatableResourceClaimStatuses");
    }
    let mut before = STATUSES.into_iter().flat_map(|list| old.list(list));
    if before.any(|container| container.list("volumeMounts").iter().any(|mount| mount.has("volumeStatus"))) {
        return;
    }
    for container in STATUSES {
        for container in status.items_mut(container) {
            for mount in container.items_mut("volumeMounts") {
                mount.drop_field("volumeStatus");
            }
        }
    }
}

fn has_stop_signal(spec: &Value) -> bool {
    let mut containers = CONTAINERS.into_iter().flat_map(|list| spec.list(list));
    containers.any(|container| container.at("lifecycle").has("stopSignal"))
}

/// A life cycle that says nothing else goes with its signal.
fn drop_stop_signal(container: &mut Value) {
    let Some(lifecycle) = container.child_mut("lifecycle") else { return };
    if !lifecycle.has("stopSignal") {
        return;
    }
    lifecycle.drop_field("stopSignal");
    if !lifecycle.has("postStart") && !lifecycle.has("preStop") {
        container.drop_field("lifecycle");
    }
}

fn has_projection(spec: &Value, projection: &str) -> bool {
    let mut sources = spec.list("volumes").iter().flat_map(|volume| volume.at("projected").list("sources"));
    sources.any(|source| source.has(projection))
}

fn drop_projection(spec: &mut Value, projection: &str) {
    for volume in spec.items_mut("volumes") {
        let Some(projected) = volume.child_mut("projected") else { continue };
        for source in projected.items_mut("sources") {
            source.drop_field(projection);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Pod;
    use super::*;
    use crate::strategy::{Strategy, testing::created};
    use crate::strategy_of as of;

    fn gated() -> Value {
        json!({
            "containers": [
                {"name": "a", "image": "i", "lifecycle": {"stopSignal": "SIGINT"}},
                {"name": "b", "image": "i", "lifecycle": {"stopSignal": "SIGINT", "preStop": {"sleep": {"seconds": 1}}}},
            ],
            "os": {"name": "linux"},
            "schedulingGroup": {"podGroupName": "g"},
            "volumes": [{"name": "v", "projected": {"sources": [
                {"clusterTrustBundle": {"name": "x", "path": "x"}},
                {"podCertificate": {"signerName": "x/y", "keyType": "ED25519"}},
                {"configMap": {"name": "x"}},
            ]}}],
        })
    }

    fn check(spec: &Value) {
        assert!(!spec["containers"][0].has("lifecycle"), "{spec}");
        assert_eq!(spec["containers"][1]["lifecycle"], json!({"preStop": {"sleep": {"seconds": 1}}}));
        assert!(!spec.has("schedulingGroup"));
        assert_eq!(spec["volumes"][0]["projected"]["sources"], json!([{}, {}, {"configMap": {"name": "x"}}]));
    }

    #[test]
    fn new_pods_and_templates_lose_what_is_off() {
        let metadata = json!({"name": "p", "annotations": {"pod.beta.kubernetes.io/init-containers": "[]", "a": "b"}});
        let made = created(&Pod, &json!({"metadata": metadata, "spec": gated()}));
        check(&made["spec"]);
        assert_eq!(made["metadata"]["annotations"], json!({"a": "b"}));
        let template = json!({ "spec": gated() });
        for (group, kind) in [
            ("apps", "Deployment"),
            ("apps", "ReplicaSet"),
            ("apps", "StatefulSet"),
            ("apps", "DaemonSet"),
            ("batch", "Job"),
            ("", "ReplicationController"),
        ] {
            let made = created(of(group, kind), &json!({"spec": {"template": template}}));
            check(&made["spec"]["template"]["spec"]);
        }
        let made = created(of("", "PodTemplate"), &json!({ "template": template }));
        check(&made["template"]["spec"]);
        let cron = json!({"spec": {"jobTemplate": {"spec": {"template": template}}}});
        check(&created(of("batch", "CronJob"), &cron)["spec"]["jobTemplate"]["spec"]["template"]["spec"]);
    }

    #[test]
    fn what_is_there_stays() {
        let old = json!({"metadata": {"name": "p"}, "spec": gated(), "status": {}});
        let mut new = old.clone();
        Pod.prepare_update(&mut new, &old);
        assert_eq!(new["spec"], old["spec"]);
        let old = json!({"spec": {"template": {"spec": gated()}}});
        let mut new = old.clone();
        of("apps", "Deployment").prepare_update(&mut new, &old);
        assert_eq!(new, old);
        of("apps", "Deployment").prepare_update(&mut new, &json!({"spec": {}}));
        check(&new["spec"]["template"]["spec"]);
    }

    #[test]
    fn a_status_loses_what_is_off() {
        let mount = json!({"name": "v", "mountPath": "/v", "volumeStatus": {"image": {"imageRef": "x"}}});
        let status = json!({
            "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "x"}],
            "containerStatuses": [{"name": "a", "volumeMounts": [mount]}],
        });
        let mut new = json!({"spec": {}, "status": status});
        Pod.prepare_status_update(&mut new, &json!({"spec": {}, "status": {}}));
        let mounts = json!([{"name": "v", "mountPath": "/v"}]);
        assert_eq!(new["status"], json!({"containerStatuses": [{"name": "a", "volumeMounts": mounts}]}));
        let old = json!({"spec": {}, "status": status});
        let mut new = old.clone();
        Pod.prepare_status_update(&mut new, &old);
        assert_eq!(new["status"], old["status"]);
    }
}
