//! PodDisruptionBudget, PriorityClass and RuntimeClass: how pods are evicted, ranked and run.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Strategy;
use super::pod::{resources, scheduling};
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{conditions, metadata, names, selector, values};

const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

/// The strategy of PodDisruptionBudgets.
pub(crate) struct PodDisruptionBudget;

/// The strategy of PriorityClasses.
pub(crate) struct PriorityClass;

/// The strategy of RuntimeClasses.
pub(crate) struct RuntimeClass;

impl Strategy for PodDisruptionBudget {
    fn prepare_create(&self, object: &mut Value) {
        let zeros = json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
        object.put("status", zeros);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        if spec.has("minAvailable") && spec.has("maxUnavailable") {
            // Upstream prints its internal type.
            let shown = format!(
                r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
                spec.at("minAvailable"),
                selector::shown(spec.at("selector")),
                spec.at("maxUnavailable"),
                spec.at("unhealthyPodEvictionPolicy")
            );
            let detail = "minAvailable and maxUnavailable cannot be both set";
            errors.push(FieldError::shown(ErrorKind::Invalid, &path, shown, detail));
        }
        for field in ["minAvailable", "maxUnavailable"] {
            if spec.has(field) {
                values::positive_int_or_percent(spec.at(field), &path.child(field), errors);
                values::not_more_than_100_percent(spec.at(field), &path.child(field), errors);
            }
        }
        selector::validate(spec.at("selector"), &path.child("selector"), errors);
        if spec.has("unhealthyPodEvictionPolicy") {
            let policies = ["AlwaysAllow", "IfHealthyBudget"];
            values::one_of(spec, "unhealthyPodEvictionPolicy", &policies, &path, errors);
        }
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        let path = Path::new("status");
        conditions::validate(object.at("status"), &path, errors);
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            values::not_negative_field(object.at("status"), field, &path, errors);
        }
    }
}

impl Strategy for PriorityClass {
    fn desired_state_changed(&self, _object: &Value, _old: &Value) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        object.fill("preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let name = object.at("metadata").text("name");
        if name.starts_with("system-") {
            if let Some(why) = reserved(object, name) {
                let metadata = Path::new("metadata");
                let detail = format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
                );
                errors.push(FieldError::forbidden(&metadata.child("name"), detail));
            }
        } else if object.int("value") > HIGHEST_USER_PRIORITY {
            let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
            errors.push(FieldError::forbidden(&Path::new("value"), detail));
        }
        let policies = ["PreemptLowerPriority", "Never"];
        values::required_one_of(object, "preemptionPolicy", &policies, &Path::root(), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        if object.int("value") != old.int("value") {
            errors.push(FieldError::forbidden(&Path::new("value"), "may not be changed in an update."));
        }
        values::immutable(object, old, "preemptionPolicy", &Path::root(), errors);
    }
}

impl Strategy for RuntimeClass {
    fn default(&self, object: &mut Value) {
        if let Some(overhead) = object.child_mut("overhead") {
            super::pod::defaults::round_list(overhead, "podFixed");
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        values::required_text(object, "handler", names::label, &Path::root(), errors);
        if object.has("overhead") {
            resources::overhead(object.at("overhead").at("podFixed"), &Path::new("overhead"), errors);
        }
        let scheduling_path = Path::new("scheduling");
        let placement = object.at("scheduling");
        metadata::labels(placement, "nodeSelector", &scheduling_path, errors);
        scheduling::tolerations(placement, &scheduling_path, errors);
        repeated_tolerations(placement, &scheduling_path, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
        let handler = object.text("handler");
        if handler != old.text("handler") {
            errors.push(FieldError::invalid(&Path::new("handler"), handler, values::IMMUTABLE));
        }
    }
}

/// Tolerations differ in more than how long they tolerate. Upstream prints its internal type.
fn repeated_tolerations(placement: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("tolerations");
    let key =
        |toleration: &Value| ["key", "operator", "value", "effect"].map(|field| toleration.text(field).to_owned());
    let mut seen = BTreeSet::new();
    for (i, toleration) in placement.list("tolerations").iter().enumerate() {
        let key = key(toleration);
        if seen.contains(&key) {
            let [key, operator, value, effect] = key.map(Value::from);
            let seconds = toleration.at("tolerationSeconds");
            let shown = format!(
                "{{\"Key\":{key},\"Operator\":{operator},\"Value\":{value},\"Effect\":{effect},\"TolerationSeconds\":{seconds}}}"
            );
            errors.push(FieldError::shown(ErrorKind::Duplicate, &path.index(i), shown, ""));
        } else {
            seen.insert(key);
        }
    }
}

/// Why a class with a system name is not the one Kubernetes defines.
fn reserved(object: &Value, name: &str) -> Option<String> {
    let value = match name {
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        _ => return Some(format!("{name} is not a known system priority class")),
    };
    if object.int("value") != value {
        Some(format!("value of {name} PriorityClass must be {value}"))
    } else if object.flag("globalDefault") {
        Some(format!("globalDefault of {name} PriorityClass must be false"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, status_errors, update_errors};
    use super::*;

    #[test]
    fn budgets() {
        let check = |spec: Value, expected: &str| {
            assert_eq!(create_errors(&PodDisruptionBudget, &json!({"spec": spec})), expected);
        };
        check(json!({"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}), "[]");
        check(
            json!({"minAvailable": "150%"}),
            "spec.minAvailable: Invalid value: \"150%\": must not be greater than 100%",
        );
        assert_eq!(
            status_errors(
                &PodDisruptionBudget,
                &json!({"spec": {}}),
                &json!({"conditions": [{}], "currentHealthy": -1})
            ),
            "[status.conditions[0].type: Required value: is required, status.conditions[0].status: Required value, \
             status.conditions[0].lastTransitionTime: Required value, status.conditions[0].reason: Required value, \
             status.currentHealthy: Invalid value: -1: must be greater than or equal to 0]"
        );
    }

    #[test]
    fn priorities() {
        assert_eq!(
            update_errors(&PriorityClass, &json!({"value": 100}), &json!({"value": 200})),
            "value: Forbidden: may not be changed in an update."
        );
        assert_eq!(
            create_errors(&PriorityClass, &json!({"metadata": {"name": "system-x"}, "value": 1})),
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. \
             error: system-x is not a known system priority class"
        );
    }

    #[test]
    fn changed_runtime_classes_are_checked_like_new_ones() {
        let class = |tolerations: Value| json!({"handler": "h", "scheduling": {"tolerations": tolerations}});
        assert_eq!(update_errors(&RuntimeClass, &class(json!([])), &class(json!([{"operator": "Exists"}]))), "[]");
        let invalid = class(json!([{"operator": "Exists", "value": "v"}]));
        assert_ne!(create_errors(&RuntimeClass, &invalid), "[]");
        assert_eq!(update_errors(&RuntimeClass, &class(json!([])), &invalid), create_errors(&RuntimeClass, &invalid));
        assert_eq!(
            update_errors(&RuntimeClass, &class(json!([])), &json!({})),
            "[handler: Required value, handler: Invalid value: \"\": field is immutable]"
        );
    }

    #[test]
    fn runtime_classes_have_each_toleration_once() {
        let check = |tolerations: Value, expected: &str| {
            let class = json!({"handler": "h", "scheduling": {"tolerations": tolerations}});
            assert_eq!(create_errors(&RuntimeClass, &class), expected);
        };
        let toleration = |seconds: Value| json!({"key": "a", "effect": "NoExecute", "tolerationSeconds": seconds});
        check(json!([toleration(json!(1)), {"key": "a", "effect": "NoSchedule"}]), "[]");
        check(
            json!([toleration(json!(1)), toleration(json!(2)), toleration(Value::Null)]),
            "[scheduling.tolerations[1]: Duplicate value: {\"Key\":\"a\",\"Operator\":\"\",\"Value\":\"\",\
             \"Effect\":\"NoExecute\",\"TolerationSeconds\":2}, scheduling.tolerations[2]: Duplicate value: \
             {\"Key\":\"a\",\"Operator\":\"\",\"Value\":\"\",\"Effect\":\"NoExecute\",\"TolerationSeconds\":null}]",
        );
    }
}
