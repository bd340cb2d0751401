//! HorizontalPodAutoscaler. Stored, and seen here, as autoscaling/v2.

use serde_json::{Value, json};

use super::Strategy;
use super::pod::resources;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::quantity::Quantity;
use crate::validation::{names, values};

mod v1;

pub(super) use v1::{from_v1, to_v1};

const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

/// The strategy of HorizontalPodAutoscalers.
pub(crate) struct HorizontalPodAutoscaler;

impl Strategy for HorizontalPodAutoscaler {
    fn default(&self, object: &mut Value) {
        let spec = object.struct_mut("spec");
        spec.fill("minReplicas", 1);
        if spec.list("metrics").is_empty() {
            spec.put("metrics", json!([v1::cpu_utilization(80)]));
        }
        if let Some(behavior) = spec.child_mut("behavior") {
            let up = behavior.struct_mut("scaleUp");
            up.fill("stabilizationWindowSeconds", 0);
            up.fill("selectPolicy", "Max");
            up.fill(
                "policies",
                json!([{"type": "Pods", "value": 4, "periodSeconds": 15},
                    {"type": "Percent", "value": 100, "periodSeconds": 15}]),
            );
            let down = behavior.struct_mut("scaleDown");
            down.fill("selectPolicy", "Max");
            down.fill("policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.put("status", json!({"desiredReplicas": 0, "currentMetrics": null}));
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        specification(object, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        specification(object, Some(old), errors);
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        let path = Path::new("status");
        values::not_negative_field(object.at("status"), "currentReplicas", &path, errors);
        values::not_negative_field(object.at("status"), "desiredReplicas", &path, errors);
    }
}

/// What is asked of the `apiVersion` of a reference.
#[derive(Clone, Copy)]
enum Version {
    /// Nothing: what is there stays.
    Any,
    /// That it is one.
    Valid,
    /// That it names a group.
    Grouped,
}

/// What is asked of the target, and of the objects of metrics. Mirrors `validationOptionsForHorizontalPodAutoscaler`.
fn versions(spec: &Value, old: Option<&Value>) -> (Version, Version) {
    let target = |spec: &Value| {
        let target = spec.at("scaleTargetRef");
        (target.text("apiVersion").to_owned(), target.text("kind").to_owned())
    };
    let of_target = match old {
        Some(old) if target(old) == target(spec) => Version::Any,
        _ if target(spec).1 == "ReplicationController" => Version::Valid,
        _ => Version::Grouped,
    };
    let is_invalid = |metric: &Value| {
        let described = metric.at("object").at("describedObject");
        metric.text("type") == "Object" && version_problem(described.text("apiVersion"), Version::Valid).is_some()
    };
    let of_metrics = match old {
        Some(old) if old.list("metrics").iter().any(is_invalid) => Version::Any,
        _ => Version::Valid,
    };
    (of_target, of_metrics)
}

fn version_problem(version: &str, wanted: Version) -> Option<String> {
    match wanted {
        Version::Any => None,
        _ if version.matches('/').count() > 1 => Some(format!("unexpected GroupVersion string: {version}")),
        Version::Grouped if version.split_once('/').is_none_or(|(group, _)| group.is_empty()) => {
            Some("apiVersion must specify API group".to_owned())
        }
        Version::Valid | Version::Grouped => None,
    }
}

/// An object that already scales to zero may go on doing so.
fn specification(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let spec = object.at("spec");
    let old = old.map(|old| old.at("spec"));
    let least = i64::from(old.and_then(|old| old.int_opt("minReplicas")) != Some(0));
    let (of_target, of_metrics) = versions(spec, old);
    let (min, max) = (spec.int_opt("minReplicas"), spec.int("maxReplicas"));
    if let Some(min) = min
        && min < least
    {
        let detail = format!("must be greater than or equal to {least}");
        errors.push(FieldError::invalid(&path.child("minReplicas"), min, detail));
    }
    let max_path = path.child("maxReplicas");
    if max == 0 {
        errors.push(FieldError::required(&max_path, "must be set and greater than 0"));
    } else if max < 0 {
        errors.push(FieldError::invalid(&max_path, max, "must be greater than or equal to 1"));
    }
    if min.is_some_and(|min| max < min) {
        errors.push(FieldError::invalid(&max_path, max, "must be greater than or equal to `minReplicas`"));
    }
    reference(spec.at("scaleTargetRef"), of_target, &path.child("scaleTargetRef"), errors);
    let metrics_path = path.child("metrics");
    let metrics = spec.list("metrics");
    for (i, metric) in metrics.iter().enumerate() {
        metric_spec(metric, of_metrics, &metrics_path.index(i), errors);
    }
    let scales_from_zero = metrics.iter().any(|metric| ["Object", "External"].contains(&metric.text("type")));
    if min == Some(0) && !scales_from_zero {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden(&metrics_path, detail));
    }
    let behavior_path = path.child("behavior");
    for field in ["scaleUp", "scaleDown"] {
        let rules = spec.at("behavior").at(field);
        if !rules.is_null() {
            scaling_rules(rules, &behavior_path.child(field), errors);
        }
    }
}

fn segment(value: &str) -> names::Reasons {
    names::path_segment(value, false)
}

fn reference(reference: &Value, wanted: Version, path: &Path<'_>, errors: &mut FieldErrors) {
    values::required_text(reference, "kind", segment, path, errors);
    values::required_text(reference, "name", segment, path, errors);
    let version = reference.text("apiVersion");
    if let Some(detail) = version_problem(version, wanted) {
        errors.push(FieldError::invalid(&path.child("apiVersion"), version, detail));
    }
}

fn metric_spec(metric: &Value, wanted: Version, path: &Path<'_>, errors: &mut FieldErrors) {
    let kind = metric.text("type");
    let type_path = path.child("type");
    if kind.is_empty() {
        errors.push(FieldError::required(&type_path, "must specify a metric source type"));
    }
    if !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(&type_path, kind, TYPES));
    }
    let present: Vec<&str> = SOURCES.iter().map(|(_, field)| *field).filter(|field| metric.has(field)).collect();
    if let Some(first) = present.first() {
        source(first, metric.at(first), wanted, &path.child(first), errors);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    match expected {
        Some(field) if !metric.has(field) => {
            let detail = "must populate information for the given metric source";
            errors.push(FieldError::required(&path.child(field), detail));
        }
        Some(_) => {}
        None => errors.push(FieldError::not_supported(&type_path, kind, TYPES)),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            errors.push(FieldError::forbidden(&path.child(field), "must populate the given metric source only"));
        }
    }
}

fn source(kind: &str, source: &Value, wanted: Version, path: &Path<'_>, errors: &mut FieldErrors) {
    let target = source.at("target");
    let target_path = path.child("target");
    let (value, average) = (target.has("value"), target.has("averageValue"));
    let utilization = target.has("averageUtilization");
    match kind {
        "object" => {
            reference(source.at("describedObject"), wanted, &path.child("describedObject"), errors);
            identifier(source.at("metric"), &path.child("metric"), errors);
            metric_target(target, &target_path, errors);
            if !value && !average {
                let detail = "must set either a target value or averageValue";
                errors.push(FieldError::required(&target_path.child("averageValue"), detail));
            }
        }
        "external" => {
            identifier(source.at("metric"), &path.child("metric"), errors);
            metric_target(target, &target_path, errors);
            if !value && !average {
                let detail = "must set either a target value for metric or a per-pod target";
                errors.push(FieldError::required(&target_path.child("averageValue"), detail));
            }
            if value && average {
                let detail = "may not set both a target value for metric and a per-pod target";
                errors.push(FieldError::forbidden(&target_path.child("value"), detail));
            }
        }
        "pods" => {
            identifier(source.at("metric"), &path.child("metric"), errors);
            metric_target(target, &target_path, errors);
            if !average {
                let detail = "must specify a positive target averageValue";
                errors.push(FieldError::required(&target_path.child("averageValue"), detail));
            }
        }
        _ => {
            let name = source.text("name");
            if name.is_empty() {
                errors.push(FieldError::required(&path.child("name"), "must specify a resource name"));
            } else if kind == "containerResource" {
                resources::container_resource_name(name, &path.child("name"), errors);
            }
            if kind == "containerResource" {
                let container = source.text("container");
                if container.is_empty() {
                    errors.push(FieldError::required(&path.child("container"), "must specify a container"));
                } else {
                    values::invalid_for_each(&path.child("container"), container, names::label(container), errors);
                }
            }
            metric_target(target, &target_path, errors);
            if !utilization && !average {
                let detail = "must set either a target raw value or a target utilization";
                errors.push(FieldError::required(&target_path.child("averageUtilization"), detail));
            }
            if utilization && average {
                let detail = "may not set both a target raw value and a target utilization";
                errors.push(FieldError::forbidden(&target_path.child("averageValue"), detail));
            }
        }
    }
}

fn identifier(metric: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let name = metric.text("name");
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), "must specify a metric name"));
    } else {
        values::invalid_for_each(&path.child("name"), name, segment(name), errors);
    }
}

fn metric_target(target: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let kind = target.text("type");
    if kind.is_empty() {
        errors.push(FieldError::required(&path.child("type"), "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(&path.child("type"), kind, detail));
    }
    for field in ["value", "averageValue"] {
        if let Some(quantity) = target.get(field).and_then(Quantity::from_value)
            && quantity.sign() <= 0
        {
            errors.push(FieldError::invalid(&path.child(field), quantity.to_string(), "must be positive"));
        }
    }
    if let Some(percent) = target.int_opt("averageUtilization")
        && percent < 1
    {
        errors.push(FieldError::invalid(&path.child("averageUtilization"), percent, "must be greater than 0"));
    }
}

fn scaling_rules(rules: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if let Some(seconds) = rules.int_opt("stabilizationWindowSeconds") {
        let path = path.child("stabilizationWindowSeconds");
        if seconds < 0 {
            errors.push(FieldError::invalid(&path, seconds, "must be greater than or equal to zero"));
        }
        if seconds > 3600 {
            errors.push(FieldError::invalid(&path, seconds, "must be less than or equal to 3600"));
        }
    }
    if rules.has("selectPolicy") {
        values::one_of(rules, "selectPolicy", &["Disabled", "Max", "Min"], path, errors);
    }
    let policies_path = path.child("policies");
    if rules.list("policies").is_empty() {
        errors.push(FieldError::required(&policies_path, "must specify at least one Policy"));
    }
    for (i, policy) in rules.list("policies").iter().enumerate() {
        let path = policies_path.index(i);
        values::one_of(policy, "type", &["Percent", "Pods"], &path, errors);
        for field in ["value", "periodSeconds"] {
            if policy.int(field) <= 0 {
                errors.push(FieldError::invalid(&path.child(field), policy.int(field), "must be greater than zero"));
            }
        }
        let period = policy.int("periodSeconds");
        if period > 1800 {
            errors.push(FieldError::invalid(
                &path.child("periodSeconds"),
                period,
                "must be less than or equal to 1800",
            ));
        }
    }
    if let Some(tolerance) = rules.get("tolerance").and_then(Quantity::from_value)
        && tolerance.sign() < 0
    {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&path.child("tolerance"), tolerance.to_string(), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, created, status_errors, update_errors};
    use super::*;

    fn autoscaler(max: i64) -> Value {
        json!({"spec": {"maxReplicas": max,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}})
    }

    #[test]
    fn an_autoscaler_gets_its_defaults() {
        let made = created(&HorizontalPodAutoscaler, &autoscaler(3));
        assert_eq!(made["spec"]["minReplicas"], 1);
        assert_eq!(
            made["spec"]["metrics"],
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization",
                "averageUtilization": 80}}}])
        );
        assert_eq!(create_errors(&HorizontalPodAutoscaler, &autoscaler(3)), "[]");
    }

    #[test]
    fn a_target_names_its_group_and_there_is_a_maximum() {
        assert_eq!(
            create_errors(&HorizontalPodAutoscaler, &autoscaler(0)),
            "[spec.maxReplicas: Required value: must be set and greater than 0, spec.maxReplicas: Invalid value: 0: must \
             be greater than or equal to `minReplicas`]"
        );
        let mut object = autoscaler(3);
        object["spec"]["scaleTargetRef"]["apiVersion"] = "v1".into();
        assert_eq!(
            create_errors(&HorizontalPodAutoscaler, &object),
            "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group"
        );
        object["spec"]["scaleTargetRef"]["kind"] = "ReplicationController".into();
        assert_eq!(create_errors(&HorizontalPodAutoscaler, &object), "[]");
    }

    /// Checks what is wrong with an autoscaler whose spec has these fields too.
    #[track_caller]
    fn check(more: &Value, expected: &str) {
        let mut object = autoscaler(3);
        for (field, value) in more.as_object().expect("an object") {
            object["spec"][field] = value.clone();
        }
        assert_eq!(create_errors(&HorizontalPodAutoscaler, &object), expected, "{more}");
    }

    #[test]
    fn sources_of_metrics_are_complete() {
        let check = |metric: Value, expected: &str| {
            check(&json!({"metrics": [metric]}), &expected.replace("METRIC", "spec.metrics[0]"));
        };
        let types = r#"supported values: "ContainerResource", "External", "Object", "Pods", "Resource""#;
        check(
            json!({}),
            &format!(
                r#"[METRIC.type: Required value: must specify a metric source type, METRIC.type: Unsupported value: "": {types}]"#
            ),
        );
        check(json!({"type": "Mood"}), &format!(r#"METRIC.type: Unsupported value: "Mood": {types}"#));
        check(
            json!({"type": "Pods"}),
            "METRIC.pods: Required value: must populate information for the given metric source",
        );
        let resource = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 1}});
        check(json!({"type": "Resource", "resource": resource}), "[]");
        check(
            json!({"type": "Resource", "resource": resource, "containerResource": resource}),
            "METRIC.containerResource: Forbidden: must populate the given metric source only",
        );
        check(
            json!({"type": "Pods", "resource": resource}),
            "METRIC.pods: Required value: must populate information for the given metric source",
        );
        check(
            json!({"type": "ContainerResource", "containerResource": {"container": "A", "target": {"type": "Utilization"}}}),
            "[METRIC.containerResource.name: Required value: must specify a resource name, \
             METRIC.containerResource.container: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case \
             alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
             '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?'), \
             METRIC.containerResource.target.averageUtilization: Required value: must set either a target raw value or a \
             target utilization]",
        );
        let described = json!({"apiVersion": "a/b/c", "kind": "Ingress", "name": "a/b"});
        check(
            json!({"type": "Object", "object": {"describedObject": described, "metric": {"name": "a%b"},
                "target": {"type": "Value", "value": "0"}}}),
            "[METRIC.object.describedObject.name: Invalid value: \"a/b\": may not contain '/', \
             METRIC.object.describedObject.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c, \
             METRIC.object.metric.name: Invalid value: \"a%b\": may not contain '%', \
             METRIC.object.target.value: Invalid value: \"0\": must be positive]",
        );
        check(
            json!({"type": "External", "external": {"metric": {}, "target": {"type": "Sum", "value": "1", "averageValue": "-1"}}}),
            "[METRIC.external.metric.name: Required value: must specify a metric name, \
             METRIC.external.target.type: Invalid value: \"Sum\": must be either Utilization, Value, or AverageValue, \
             METRIC.external.target.averageValue: Invalid value: \"-1\": must be positive, \
             METRIC.external.target.value: Forbidden: may not set both a target value for metric and a per-pod target]",
        );
        check(
            json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"averageUtilization": 0}}}),
            "[METRIC.pods.target.type: Required value: must specify a metric target type, \
             METRIC.pods.target.type: Invalid value: \"\": must be either Utilization, Value, or AverageValue, \
             METRIC.pods.target.averageUtilization: Invalid value: 0: must be greater than 0, \
             METRIC.pods.target.averageValue: Required value: must specify a positive target averageValue]",
        );
        check(
            json!({"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 1, "averageValue": "1"}}}),
            "METRIC.resource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization",
        );
    }

    #[test]
    fn rules_of_scaling_are_in_range() {
        let check = |rules: Value, expected: &str| {
            check(&json!({"behavior": {"scaleDown": rules}}), &expected.replace("RULES", "spec.behavior.scaleDown"));
        };
        check(json!({"stabilizationWindowSeconds": 3600, "tolerance": "0"}), "[]");
        check(
            json!({"stabilizationWindowSeconds": 3601, "selectPolicy": "Mean", "policies": [], "tolerance": "-100m"}),
            "[RULES.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600, \
             RULES.selectPolicy: Unsupported value: \"Mean\": supported values: \"Disabled\", \"Max\", \"Min\", \
             RULES.policies: Required value: must specify at least one Policy, \
             RULES.tolerance: Invalid value: \"-100m\": must be greater than or equal to 0]",
        );
        check(
            json!({"stabilizationWindowSeconds": -1, "policies": [
                {"type": "Nodes", "value": 0, "periodSeconds": 0}, {"type": "Pods", "value": 1, "periodSeconds": 1801}]}),
            "[RULES.stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero, \
             RULES.policies[0].type: Unsupported value: \"Nodes\": supported values: \"Percent\", \"Pods\", \
             RULES.policies[0].value: Invalid value: 0: must be greater than zero, \
             RULES.policies[0].periodSeconds: Invalid value: 0: must be greater than zero, \
             RULES.policies[1].periodSeconds: Invalid value: 1801: must be less than or equal to 1800]",
        );
    }

    #[test]
    fn scaling_to_zero_stays_where_it_was() {
        let mut old = autoscaler(3);
        old["spec"]["minReplicas"] = 0.into();
        check(
            &json!({"minReplicas": 0}),
            "[spec.minReplicas: Invalid value: 0: must be greater than or equal to 1, spec.metrics: Forbidden: must specify \
             at least one Object or External metric to support scaling to zero replicas]",
        );
        assert_eq!(
            update_errors(&HorizontalPodAutoscaler, &old, &old),
            "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"
        );
        let status = json!({"currentReplicas": -1, "desiredReplicas": -1});
        assert_eq!(
            status_errors(&HorizontalPodAutoscaler, &autoscaler(3), &status),
            "[status.currentReplicas: Invalid value: -1: must be greater than or equal to 0, \
             status.desiredReplicas: Invalid value: -1: must be greater than or equal to 0]"
        );
    }

    #[test]
    fn bounds_are_in_order() {
        let mut object = autoscaler(1);
        object["spec"]["minReplicas"] = 2.into();
        assert_eq!(
            create_errors(&HorizontalPodAutoscaler, &object),
            "spec.maxReplicas: Invalid value: 1: must be greater than or equal to `minReplicas`"
        );
    }
}
