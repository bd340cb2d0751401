//! The kinds of Kubernetes 1.36 that can be watched, and where `k8s-openapi` has their types.

use crate::name::{Group, Kind, Plural, Version};

/// Group, version, the Rust module of the group, and the kinds.
type Row = (&'static str, &'static str, &'static str, &'static [&'static str]);

#[rustfmt::skip]
const KINDS: &[Row] = &[
    ("admissionregistration.k8s.io", "v1", "k8s_openapi::api::admissionregistration", &["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"]),
    ("apiextensions.k8s.io", "v1", "k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", "v1", "k8s_openapi::kube_aggregator::pkg::apis::apiregistration", &["APIService"]),
    ("apps", "v1", "k8s_openapi::api::apps", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("autoscaling", "v1", "k8s_openapi::api::autoscaling", &["HorizontalPodAutoscaler"]),
    ("autoscaling", "v2", "k8s_openapi::api::autoscaling", &["HorizontalPodAutoscaler"]),
    ("batch", "v1", "k8s_openapi::api::batch", &["CronJob", "Job"]),
    ("certificates.k8s.io", "v1", "k8s_openapi::api::certificates", &["CertificateSigningRequest"]),
    ("coordination.k8s.io", "v1", "k8s_openapi::api::coordination", &["Lease"]),
    ("core", "v1", "k8s_openapi::api::core", &["ConfigMap", "Endpoints", "Event", "LimitRange", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod", "PodTemplate", "ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount"]),
    ("discovery.k8s.io", "v1", "k8s_openapi::api::discovery", &["EndpointSlice"]),
    ("events.k8s.io", "v1", "k8s_openapi::api::events", &["Event"]),
    ("flowcontrol.apiserver.k8s.io", "v1", "k8s_openapi::api::flowcontrol", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("networking.k8s.io", "v1", "k8s_openapi::api::networking", &["IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"]),
    ("node.k8s.io", "v1", "k8s_openapi::api::node", &["RuntimeClass"]),
    ("policy", "v1", "k8s_openapi::api::policy", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", "v1", "k8s_openapi::api::rbac", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("resource.k8s.io", "v1", "k8s_openapi::api::resource", &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"]),
    ("scheduling.k8s.io", "v1", "k8s_openapi::api::scheduling", &["PriorityClass"]),
    ("storage.k8s.io", "v1", "k8s_openapi::api::storage", &["CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"]),
];

/// A built-in kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BuiltIn {
    /// The group as clients name it; empty for the core group.
    pub(crate) group: &'static str,
    /// The Rust module of its version.
    pub(crate) path: String,
}

/// Finds a kind by the first part of its group, as kubebuilder's users give it (`core`, `apps`, `networking`), or by
/// the whole group.
pub(crate) fn find(group: &Group, version: &Version, kind: &Kind) -> Option<BuiltIn> {
    let named = |row: &&Row| {
        let short = if row.0.is_empty() { "core" } else { row.0.split('.').next().unwrap_or_default() };
        group.as_str() == short || group.as_str() == row.0
    };
    let row = KINDS.iter().filter(named).find(|row| row.1 == version.as_str() && row.3.contains(&kind.as_str()))?;
    Some(BuiltIn { group: row.0, path: format!("{}::{}", row.2, row.1) })
}

/// Groups that have no kinds to watch.
const OTHER_GROUPS: [&str; 4] =
    ["authentication.k8s.io", "authorization.k8s.io", "internal.apiserver.k8s.io", "storagemigration.k8s.io"];

/// Whether Kubernetes itself serves the group.
pub(crate) fn is_group(group: &str) -> bool {
    OTHER_GROUPS.contains(&group) || KINDS.iter().any(|row| row.0 == group)
}

/// The short names that Kubernetes serves.
#[rustfmt::skip]
const SHORT_NAMES: [&str; 32] = [
    "cj", "cm", "crd", "crds", "cs", "csr", "deploy", "ds", "ep", "ev", "hpa", "ing", "ip", "limits", "netpol", "no", "ns",
    "pc", "pdb", "po", "pv", "pvc", "quota", "rc", "rs", "sa", "sc", "sts", "svc", "vac", "componentstatuses", "bindings",
];

/// Whether Kubernetes serves a resource under this name: a plural, a singular or a short name.
pub(crate) fn is_served(name: &Plural) -> bool {
    let name = name.as_str();
    let named = |kind: &&str| {
        let singular = kind.to_ascii_lowercase();
        name == singular || name == crate::name::pluralize(&singular)
    };
    SHORT_NAMES.contains(&name) || KINDS.iter().any(|row| row.3.iter().any(named))
}

/// Whether Kubernetes has a kind of this name.
pub(crate) fn is_taken(kind: &Kind) -> bool {
    KINDS.iter().any(|row| row.3.contains(&kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_kubernetes_serves_are_known() {
        let served = |name: &str| is_served(&Plural::new(name).expect("a name"));
        for name in
            ["pods", "pod", "po", "svc", "services", "endpoints", "networkpolicies", "ingresses", "storageclasses"]
        {
            assert!(served(name), "{name}");
        }
        for name in ["pets", "guestbooks", "m", "mo", "podlings"] {
            assert!(!served(name), "{name}");
        }
    }
}
