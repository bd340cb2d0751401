//! autoscaling/v1, whose spec only knows CPU utilization: everything else travels in annotations.

use serde_json::{Map, Value, json};

use crate::validation::access::{Access, AccessMut};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const ALL: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    BEHAVIOR,
    CONDITIONS,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// The metric that v1 writes as one number.
pub(super) fn cpu_utilization(percent: i64) -> Value {
    json!({"type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
}

/// Brings a v1 object into the v2 shape.
pub(crate) fn from_v1(object: &mut Value) {
    let annotations = take_annotations(object);
    let decode =
        |key: &str| annotations.get(key).and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
    let spec = object.struct_mut("spec");
    let mut metrics: Vec<Value> = match decode(METRICS) {
        Some(Value::Array(metrics)) => metrics.iter().map(metric_from_v1).collect(),
        _ => Vec::new(),
    };
    if let Some(percent) = spec.int_opt("targetCPUUtilizationPercentage") {
        metrics.push(cpu_utilization(percent));
    }
    if metrics.is_empty() {
        metrics.push(cpu_utilization(80));
    }
    spec.drop_field("targetCPUUtilizationPercentage");
    spec.put("metrics", metrics);
    if let Some(behavior) = decode(BEHAVIOR) {
        spec.put("behavior", recased(&behavior, lower_first));
    }
    if let Some(status) = object.child_mut("status") {
        let percent = status.int_opt("currentCPUUtilizationPercentage");
        status.drop_field("currentCPUUtilizationPercentage");
        if let Some(Value::Array(current)) = decode(CURRENT_METRICS) {
            status.put("currentMetrics", current.iter().map(status_from_v1).collect::<Vec<_>>());
        } else if let Some(percent) = percent {
            let current = json!([{"type": "Resource",
                "resource": {"name": "cpu", "current": {"averageUtilization": percent}}}]);
            status.put("currentMetrics", current);
        }
        if let Some(conditions) = decode(CONDITIONS) {
            status.put("conditions", conditions);
        }
    }
}

/// Brings a v2 object into the v1 shape.
pub(crate) fn to_v1(object: &mut Value) {
    take_annotations(object);
    let mut annotations = Map::new();
    let spec = object.struct_mut("spec");
    let metrics = spec.list("metrics").to_vec();
    let percent = metrics.iter().find_map(utilization);
    let others: Vec<Value> = metrics.iter().filter(|metric| utilization(metric).is_none()).map(metric_to_v1).collect();
    if !others.is_empty() {
        annotations.insert(METRICS.to_owned(), Value::Array(others).to_string().into());
    }
    if spec.has("behavior") {
        let behavior = recased(spec.at("behavior"), upper_first);
        annotations.insert(BEHAVIOR.to_owned(), behavior.to_string().into());
    }
    spec.drop_field("metrics");
    spec.drop_field("behavior");
    if let Some(percent) = percent {
        spec.put("targetCPUUtilizationPercentage", percent);
    }
    let status = object.struct_mut("status");
    let current = status.list("currentMetrics").to_vec();
    let conditions = status.at("conditions").clone();
    for field in ["currentMetrics", "conditions"] {
        status.drop_field(field);
    }
    for field in ["currentReplicas", "desiredReplicas"] {
        status.fill(field, 0);
    }
    if let Some(percent) = current.iter().find_map(|metric| {
        let resource = metric.at("resource");
        if resource.text("name") == "cpu" { resource.at("current").int_opt("averageUtilization") } else { None }
    }) {
        status.put("currentCPUUtilizationPercentage", percent);
    }
    if !current.is_empty() {
        let current: Vec<Value> = current.iter().map(status_to_v1).collect();
        annotations.insert(CURRENT_METRICS.to_owned(), Value::Array(current).to_string().into());
    }
    if conditions.as_array().is_some_and(|list| !list.is_empty()) {
        annotations.insert(CONDITIONS.to_owned(), conditions.to_string().into());
    }
    for (key, value) in annotations {
        object.struct_mut("metadata").struct_mut("annotations").put(&key, value);
    }
}

/// Removes the annotations that carry v2 fields, and returns them.
fn take_annotations(object: &mut Value) -> Map<String, Value> {
    let mut taken = Map::new();
    let Some(metadata) = object.child_mut("metadata") else { return taken };
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        for key in ALL {
            if let Some(value) = annotations.remove(key) {
                taken.insert(key.to_owned(), value);
            }
        }
        if annotations.is_empty() {
            metadata.drop_field("annotations");
        }
    }
    taken
}

/// The percentage of a metric that is CPU utilization.
fn utilization(metric: &Value) -> Option<i64> {
    let resource = metric.at("resource");
    if metric.text("type") == "Resource" && resource.text("name") == "cpu" {
        resource.at("target").int_opt("averageUtilization")
    } else {
        None
    }
}

/// Moves fields: `(from, to)` pairs of dotted names.
fn moved(source: &Value, fields: &[(&str, &str)]) -> Value {
    let mut out = json!({});
    for (from, to) in fields {
        let value = source.below(&from.split('.').collect::<Vec<_>>());
        if value.is_null() {
            continue;
        }
        let mut place = &mut out;
        let mut names = to.split('.').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                place.put(name, value.clone());
                break;
            }
            place = place.struct_mut(name);
        }
    }
    out
}

type Fields = &'static [(&'static str, &'static str)];

/// For each source, the fields of v1 and where they are in v2.
fn source_fields(kind: &str) -> Fields {
    match kind {
        "object" => &[
            ("target", "describedObject"),
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("targetValue", "target.value"),
            ("averageValue", "target.averageValue"),
        ],
        "pods" => &[
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("targetAverageValue", "target.averageValue"),
        ],
        "external" => &[
            ("metricName", "metric.name"),
            ("metricSelector", "metric.selector"),
            ("targetValue", "target.value"),
            ("targetAverageValue", "target.averageValue"),
        ],
        _ => &[
            ("name", "name"),
            ("container", "container"),
            ("targetAverageUtilization", "target.averageUtilization"),
            ("targetAverageValue", "target.averageValue"),
        ],
    }
}

fn status_fields(kind: &str) -> Fields {
    match kind {
        "object" => &[
            ("target", "describedObject"),
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("currentValue", "current.value"),
            ("averageValue", "current.averageValue"),
        ],
        "pods" => &[
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("currentAverageValue", "current.averageValue"),
        ],
        "external" => &[
            ("metricName", "metric.name"),
            ("metricSelector", "metric.selector"),
            ("currentValue", "current.value"),
            ("currentAverageValue", "current.averageValue"),
        ],
        _ => &[
            ("name", "name"),
            ("container", "container"),
            ("currentAverageUtilization", "current.averageUtilization"),
            ("currentAverageValue", "current.averageValue"),
        ],
    }
}

fn converted(metric: &Value, fields: fn(&str) -> Fields, to_v2: bool) -> Value {
    let mut out = json!({ "type": metric.text("type") });
    for kind in ["object", "pods", "external", "resource", "containerResource"] {
        if metric.has(kind) {
            let pairs: Vec<(&str, &str)> =
                fields(kind).iter().map(|(v1, v2)| if to_v2 { (*v1, *v2) } else { (*v2, *v1) }).collect();
            out.put(kind, moved(metric.at(kind), &pairs));
        }
    }
    out
}

fn metric_from_v1(metric: &Value) -> Value {
    let mut out = converted(metric, source_fields, true);
    for kind in ["object", "pods", "external", "resource", "containerResource"] {
        if let Some(source) = out.child_mut(kind) {
            let target = source.struct_mut("target");
            let name = if target.has("averageUtilization") {
                "Utilization"
            } else if target.has("averageValue") {
                "AverageValue"
            } else {
                "Value"
            };
            target.put("type", name);
            if name == "AverageValue" && ["0", ""].contains(&target.text("value")) {
                target.drop_field("value");
            }
        }
    }
    out
}

fn metric_to_v1(metric: &Value) -> Value {
    converted(metric, source_fields, false)
}

fn status_from_v1(metric: &Value) -> Value {
    converted(metric, status_fields, true)
}

fn status_to_v1(metric: &Value) -> Value {
    converted(metric, status_fields, false)
}

/// The behavior is stored as upstream's internal type, whose fields start with capitals.
fn recased(value: &Value, case: fn(&str) -> String) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().map(|(key, value)| (case(key), recased(value, case))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(|item| recased(item, case)).collect(),
        scalar => scalar.clone(),
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

fn upper_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_utilization_is_a_number_in_v1() {
        let v1 = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}});
        let mut v2 = v1.clone();
        from_v1(&mut v2);
        assert_eq!(v2["spec"], json!({"maxReplicas": 3, "metrics": [cpu_utilization(50)]}));
        to_v1(&mut v2);
        assert_eq!(v2["spec"], v1["spec"]);
        assert_eq!(v2["status"], json!({"currentReplicas": 0, "desiredReplicas": 0}));
    }

    #[test]
    fn other_metrics_travel_in_annotations() {
        let v2 = json!({"metadata": {}, "spec": {
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}}],
            "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1}]}}}});
        let mut there = v2.clone();
        to_v1(&mut there);
        assert_eq!(
            there["metadata"]["annotations"][METRICS],
            r#"[{"pods":{"metricName":"m","targetAverageValue":"1"},"type":"Pods"}]"#
        );
        there.drop_field("status");
        from_v1(&mut there);
        assert_eq!(there["spec"], v2["spec"]);
        assert_eq!(there["metadata"], v2["metadata"]);
    }
}
