//! In which order objects are applied: what others need comes first. Deletion goes the other way.

use serde_json::Value;

/// Kinds that others need, in their order. All others come after them, and [`LAST`] comes last.
const FIRST: [&str; 15] = [
    "Namespace",
    "CustomResourceDefinition",
    "PriorityClass",
    "StorageClass",
    "ResourceQuota",
    "LimitRange",
    "ServiceAccount",
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
    "Secret",
    "ConfigMap",
    "PersistentVolumeClaim",
    "Service",
];

/// Kinds that change or refuse what is applied after them.
const LAST: [&str; 4] = [
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Sorts objects for application. Objects of one kind keep their order.
pub(crate) fn sort(objects: &mut [Value]) {
    objects.sort_by_key(rank);
}

fn rank(object: &Value) -> usize {
    let kind = object["kind"].as_str().unwrap_or_default();
    let group = object["apiVersion"].as_str().unwrap_or_default().split_once('/').map_or("", |(group, _)| group);
    // Custom kinds may have the same names.
    let is_built_in = group.is_empty() || !group.contains('.') || group.ends_with(".k8s.io");
    if !is_built_in {
        return FIRST.len();
    }
    if let Some(place) = FIRST.iter().position(|first| *first == kind) {
        return place;
    }
    match LAST.iter().position(|last| *last == kind) {
        Some(place) => FIRST.len() + 1 + place,
        None => FIRST.len(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn needed_kinds_come_first() {
        let object = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind});
        let mut objects = vec![
            object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
            object("example.com/v1", "Namespace"),
            object("apps/v1", "Deployment"),
            object("v1", "ServiceAccount"),
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            object("rbac.authorization.k8s.io/v1", "ClusterRole"),
            object("v1", "Namespace"),
        ];
        sort(&mut objects);
        let kinds: Vec<String> = objects.iter().map(|o| format!("{} {}", o["apiVersion"], o["kind"])).collect();
        let expected = [
            "\"v1\" \"Namespace\"",
            "\"apiextensions.k8s.io/v1\" \"CustomResourceDefinition\"",
            "\"v1\" \"ServiceAccount\"",
            "\"rbac.authorization.k8s.io/v1\" \"ClusterRole\"",
            "\"example.com/v1\" \"Namespace\"",
            "\"apps/v1\" \"Deployment\"",
            "\"admissionregistration.k8s.io/v1\" \"ValidatingWebhookConfiguration\"",
        ];
        assert_eq!(kinds, expected);
    }
}
