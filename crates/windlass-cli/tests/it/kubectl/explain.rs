//! What `kubectl explain` says about built-in kinds.

use super::{has, kubectl};

#[test]
fn built_in_kinds_and_their_fields_are_explained() {
    kubectl!(cluster, k);
    let pod_spec = k.run("explain pod.spec");
    has(&pod_spec, &["PodSpec is a description of a pod.", "List of containers belonging to the pod."]);
    assert!(!pod_spec.contains("<no description>"), "{pod_spec}");
    has(&k.run("explain deployment.spec.strategy.rollingUpdate"), &["maxSurge", "maximum number of pods"]);
    has(&k.run("explain deployment.spec.strategy --recursive"), &["The deployment strategy to use", "rollingUpdate"]);
    has(&k.run("explain pods.spec.containers.resources.limits"), &["maximum amount of compute resources"]);
    // Of the documents in version 2, which are all that older programs read.
    if k.at_least(27) {
        let pod_spec = k.run("explain pod.spec --output=plaintext-openapiv2");
        has(&pod_spec, &["PodSpec is a description of a pod.", "List of containers belonging to the pod."]);
    }
}
