//! Deployment and ReplicaSet.

use serde_json::{Value, json};

use super::{Strategy, keep_all_but_status, pod, workload};
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut, semantically_equal};
use crate::validation::{selector, values};

/// The strategy of Deployments.
pub(crate) struct Deployment;

/// The strategy of ReplicaSets.
pub(crate) struct ReplicaSet;

impl Strategy for Deployment {
    fn default(&self, object: &mut Value) {
        let spec = object.struct_mut("spec");
        spec.fill("replicas", 1);
        let strategy = spec.struct_mut("strategy");
        strategy.fill_text("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate" {
            strategy.fill("rollingUpdate", json!({}));
            let rolling = strategy.struct_mut("rollingUpdate");
            rolling.fill("maxUnavailable", "25%");
            rolling.fill("maxSurge", "25%");
        }
        spec.fill("revisionHistoryLimit", 10);
        spec.fill("progressDeadlineSeconds", 600);
        pod::defaults::template(spec.struct_mut("template"));
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
        object.struct_mut("metadata").copy_field("labels", old.at("metadata"));
    }

    /// Annotations are copied to replica sets, so they count too.
    fn desired_state_changed(&self, object: &Value, old: &Value) -> bool {
        !semantically_equal(object.at("spec"), old.at("spec"))
            || !semantically_equal(object.below(&["metadata", "annotations"]), old.below(&["metadata", "annotations"]))
    }

    fn prepare_create(&self, object: &mut Value) {
        workload::prepare_create(object, &["spec", "template"]);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        workload::prepare_update(object, old, &["spec", "template"]);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        deployment(object, &Value::Null, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        deployment(object, old, errors);
        immutable_selector(object, old, errors);
    }

    fn validate_status_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        let status = object.at("status");
        let counts = [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ];
        let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
        workload::status_counts(status, &counts, &parts, errors);
        workload::available_are_ready(status, "cannot be greater than readyReplicas", errors);
        workload::collision_count(status, old.at("status"), errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, true)
    }
}

impl Strategy for ReplicaSet {
    fn default(&self, object: &mut Value) {
        let spec = object.struct_mut("spec");
        spec.fill("replicas", 1);
        pod::defaults::template(spec.struct_mut("template"));
    }

    fn prepare_create(&self, object: &mut Value) {
        workload::prepare_create(object, &["spec", "template"]);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        workload::prepare_update(object, old, &["spec", "template"]);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        replica_set(object, &Value::Null, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        replica_set(object, old, errors);
        immutable_selector(object, old, errors);
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        let status = object.at("status");
        let counts = [
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ];
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        workload::status_counts(status, &counts, &parts, errors);
        workload::available_are_ready(status, "cannot be greater than readyReplicas", errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, true)
    }
}

/// `spec.selector` may not change.
pub(super) fn immutable_selector(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let (new, old) = (object.below(&["spec", "selector"]), old.below(&["spec", "selector"]));
    if !semantically_equal(new, old) {
        errors.push(selector::invalid(new, &path.child("selector"), values::IMMUTABLE));
    }
}

fn deployment(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let spec = object.at("spec");
    values::not_negative_field(spec, "replicas", &path, errors);
    workload::replicated_pods(spec, old.at("spec"), &path, errors);
    strategy(spec.at("strategy"), &path.child("strategy"), errors);
    values::not_negative_field(spec, "minReadySeconds", &path, errors);
    values::not_negative_field(spec, "revisionHistoryLimit", &path, errors);
    if let Some(seconds) = spec.int_opt("progressDeadlineSeconds") {
        values::not_negative_field(spec, "progressDeadlineSeconds", &path, errors);
        if seconds <= spec.int("minReadySeconds") {
            let detail = "must be greater than minReadySeconds";
            errors.push(FieldError::invalid(&path.child("progressDeadlineSeconds"), seconds, detail));
        }
    }
}

fn replica_set(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let spec = object.at("spec");
    values::not_negative_field(spec, "replicas", &path, errors);
    values::not_negative_field(spec, "minReadySeconds", &path, errors);
    workload::replicated_pods(spec, old.at("spec"), &path, errors);
}

fn strategy(strategy: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let rolling_path = path.child("rollingUpdate");
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "Recreate" => {
            if !rolling.is_null() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(FieldError::forbidden(&rolling_path, detail));
            }
        }
        "RollingUpdate" => {
            if rolling.is_null() {
                let detail = "this should be defaulted and never be nil";
                errors.push(FieldError::required(&rolling_path, detail));
            } else {
                rolling_update(rolling, &rolling_path, errors);
            }
        }
        kind => {
            // Upstream prints its internal type.
            let rolling = match (rolling.at("maxUnavailable"), rolling.at("maxSurge")) {
                _ if rolling.is_null() => "null".to_owned(),
                (unavailable, surge) => format!(r#"{{"MaxUnavailable":{unavailable},"MaxSurge":{surge}}}"#),
            };
            let shown = format!(r#"{{"Type":{},"RollingUpdate":{rolling}}}"#, Value::from(kind));
            let detail = r#"supported values: "Recreate", "RollingUpdate""#;
            errors.push(FieldError::shown(ErrorKind::NotSupported, path, shown, detail));
        }
    }
}

fn rolling_update(rolling: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    let unavailable_path = path.child("maxUnavailable");
    values::positive_int_or_percent(unavailable, &unavailable_path, errors);
    values::positive_int_or_percent(surge, &path.child("maxSurge"), errors);
    if values::int_or_percent(unavailable) == 0 && values::int_or_percent(surge) == 0 {
        let detail = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(&unavailable_path, unavailable.clone(), detail));
    }
    values::not_more_than_100_percent(unavailable, &unavailable_path, errors);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)]

    use super::super::testing::{create_errors, created, update_errors};
    use super::*;

    fn deployment(spec: Value) -> Value {
        let mut base = json!({"metadata": {"name": "d", "namespace": "ns"}, "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}}}});
        for (key, value) in spec.as_object().expect("an object") {
            if value.is_null() {
                base["spec"].drop_field(key);
            } else {
                base["spec"][key] = value.clone();
            }
        }
        base
    }

    #[test]
    fn a_deployment_gets_its_defaults() {
        let made = created(&Deployment, &deployment(json!({})));
        assert_eq!(
            made["spec"],
            json!({"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": {
                "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "img:1",
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent"}], "restartPolicy": "Always",
                    "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": {},
                    "schedulerName": "default-scheduler"}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
                "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})
        );
        let made = created(&Deployment, &deployment(json!({"strategy": {"type": "Recreate"}})));
        assert_eq!(made["spec"]["strategy"], json!({"type": "Recreate"}));
    }

    #[test]
    fn new_deployments() {
        let check = |spec: Value, expected: &str| assert_eq!(create_errors(&Deployment, &deployment(spec)), expected);
        let template = |labels: Value| json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}});
        check(json!({}), "[]");
        check(
            json!({"template": template(json!({"x": "y"}))}),
            "spec.template.metadata.labels: Invalid value: {\"x\":\"y\"}: `selector` does not match template `labels`",
        );
        check(
            json!({"selector": null, "template": template(json!({"a": "b"}))}),
            "[spec.selector: Required value, spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` \
             does not match template `labels`]",
        );
        check(
            json!({"selector": null, "template": null}),
            "[spec.selector: Required value, spec.template.metadata.labels: Invalid value: null: `selector` does not \
             match template `labels`, spec.template.spec.containers: Required value]",
        );
        check(json!({"replicas": -1}), "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
        check(
            json!({"strategy": {"type": "Fast"}}),
            r#"spec.strategy: Unsupported value: {"Type":"Fast","RollingUpdate":null}: supported values: "Recreate", "RollingUpdate""#,
        );
        check(
            json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        );
        check(
            json!({"strategy": {"rollingUpdate": {"maxUnavailable": "120%"}}}),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"120%\": must not be greater than 100%",
        );
        check(
            json!({"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}),
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        );
        let mut never = template(json!({"app": "a"}));
        never["spec"]["restartPolicy"] = "Never".into();
        check(
            json!({"template": never}),
            r#"spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#,
        );
        check(
            json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["a"]}]}}),
            r#"[spec.selector.matchExpressions[0].operator: Invalid value: "Like": not a valid selector operator, spec.selector: Invalid value: {"matchExpressions":[{"key":"app","operator":"Like","values":["a"]}]}: invalid label selector]"#,
        );
    }

    #[test]
    fn changed_deployments() {
        let old = deployment(json!({}));
        let mut new = old.clone();
        new["spec"]["selector"] = json!({"matchLabels": {"app": "z"}});
        new["spec"]["template"]["metadata"]["labels"] = json!({"app": "z"});
        assert_eq!(
            update_errors(&Deployment, &old, &new),
            r#"spec.selector: Invalid value: {"matchLabels":{"app":"z"}}: field is immutable"#
        );
        assert_eq!(
            update_errors(&Deployment, &old, &deployment(json!({"minReadySeconds": 700}))),
            "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"
        );
    }

    #[test]
    fn annotations_are_desired_state_and_labels_are_not() {
        let old = deployment(json!({}));
        let mut new = old.clone();
        new["metadata"]["labels"] = json!({"a": "b"});
        assert!(!Deployment.desired_state_changed(&new, &old));
        new["metadata"]["annotations"] = json!({"a": "b"});
        assert!(Deployment.desired_state_changed(&new, &old));
    }
}
