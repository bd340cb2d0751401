//! The order of objects: first what others need to exist, last what would stop them from being created.

use super::resource::Id;

const FIRST: [&str; 22] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];
const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// What objects are sorted by.
pub(super) fn key(id: &Id) -> (usize, String, String) {
    let kind = id.kind.kind.as_str();
    let rank = FIRST.iter().position(|first| *first == kind);
    let rank = rank.or_else(|| LAST.iter().position(|last| *last == kind).map(|at| FIRST.len() + 1 + at));
    let or = |text: &str, missing: &str| if text.is_empty() { missing.to_owned() } else { text.to_owned() };
    let gvk = format!("{}_{}_{kind}", or(&id.kind.group, "~G"), or(&id.kind.version, "~V"));
    (rank.unwrap_or(FIRST.len()), gvk, format!("{}|{}", or(&id.namespace, "~X"), or(&id.name, "~N")))
}
