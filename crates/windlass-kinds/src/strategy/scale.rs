//! The `scale` subresource: one view of every kind that has replicas.

use serde_json::{Value, json};

use crate::field::{FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::selector::Selector;
use crate::validation::values;

/// Every version there ever was of a built-in kind with a `scale` subresource. All have `spec.replicas`, and
/// owners may still be noted in terms of one that is gone.
pub fn versions(kind: &str) -> &'static [&'static str] {
    match kind {
        "Deployment" | "StatefulSet" => &["apps/v1", "apps/v1beta2", "apps/v1beta1"],
        "ReplicaSet" => &["apps/v1", "apps/v1beta2"],
        _ => &["v1"],
    }
}

/// The Scale (autoscaling/v1) of an object of a built-in kind. As in Go's encoding, zero replicas are
/// left out of the spec.
pub fn get(object: &Value) -> Value {
    let metadata = object.at("metadata");
    let mut scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {}, "spec": {},
        "status": {"replicas": object.at("status").int("replicas")}});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata.get(field) {
            scale["metadata"].put(field, value.clone());
        }
    }
    let replicas = object.at("spec").int("replicas");
    if replicas != 0 {
        scale["spec"].put("replicas", replicas);
    }
    let selector = selector_text(object);
    if !selector.is_empty() {
        scale["status"].put("selector", selector);
    }
    scale
}

/// Sets the replicas of an object to those of a Scale; nothing else of the Scale is writable.
pub fn set(object: &mut Value, replicas: i64) {
    object.struct_mut("spec").put("replicas", replicas);
}

/// Checks a Scale.
pub fn validate(scale: &Value, errors: &mut FieldErrors) {
    values::not_negative_field(scale.at("spec"), "replicas", &Path::new("spec"), errors);
}

/// The selector as text: a LabelSelector, or for replication controllers a plain map.
fn selector_text(object: &Value) -> String {
    let selector = object.below(&["spec", "selector"]);
    let structured = selector.is_null() || selector.has("matchLabels") || selector.has("matchExpressions");
    if object.text("kind") == "ReplicationController" || !structured {
        return Selector::from_labels(selector).to_string();
    }
    Selector::from_object(selector).map_or_else(String::new, |selector| selector.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_has_a_scale() {
        let mut deployment = json!({"kind": "Deployment", "metadata": {"name": "d", "namespace": "ns", "uid": "u",
            "labels": {"x": "y"}}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}}});
        let expected = json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": "d", "namespace": "ns", "uid": "u"}, "spec": {},
            "status": {"replicas": 0, "selector": "app=a"}});
        assert_eq!(get(&deployment), expected);
        set(&mut deployment, 3);
        assert_eq!(get(&deployment)["spec"], json!({"replicas": 3}));
    }

    #[test]
    fn a_replication_controllers_selector_is_a_map() {
        let controller = json!({"kind": "ReplicationController", "spec": {"selector": {"a": "b", "c": "d"}}});
        assert_eq!(get(&controller)["status"]["selector"], "a=b,c=d");
    }

    #[test]
    fn negative_replicas_are_refused() {
        let mut errors = FieldErrors::default();
        validate(&json!({"spec": {"replicas": -1}}), &mut errors);
        assert_eq!(errors.to_string(), "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
    }
}
