//! LimitRange and ResourceQuota.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::Strategy;
use super::pod::{defaults, resources};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::quantity::Quantity;
use crate::validation::{names, values};

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
const MISAPPLIED: &str = "unsupported scope applied to resource";
const LIMITS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

/// The strategy of LimitRanges.
pub(crate) struct LimitRange;

/// The strategy of ResourceQuotas.
pub(crate) struct ResourceQuota;

impl Strategy for LimitRange {
    fn default(&self, object: &mut Value) {
        for limit in object.struct_mut("spec").items_mut("limits") {
            for list in LIMITS {
                defaults::round_list(limit, list);
            }
            if limit.text("type") == "Container" {
                fill_missing(limit, "default", "max");
                fill_missing(limit, "defaultRequest", "default");
                fill_missing(limit, "defaultRequest", "min");
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let spec = Path::new("spec");
        let path = spec.child("limits");
        let limits = object.at("spec").list("limits");
        let mut seen = HashSet::new();
        for (i, limit) in limits.iter().enumerate() {
            let path = path.index(i);
            let kind = limit.text("type");
            limit_type(kind, &path.child("type"), errors);
            if !seen.insert(kind) {
                errors.push(FieldError::duplicate(&path.child("type"), kind));
            }
            one_limit(limit, &path, errors);
        }
    }
}

impl Strategy for ResourceQuota {
    fn default(&self, object: &mut Value) {
        defaults::round_list(object.struct_mut("spec"), "hard");
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        quota_list(spec, "hard", &path, errors);
        scopes(spec, &path, errors);
        scope_selector(spec, &path, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
        let sorted = |object: &Value| {
            let mut scopes: Vec<String> = object.at("spec").texts("scopes").into_iter().map(str::to_owned).collect();
            scopes.sort_unstable();
            scopes
        };
        if sorted(object) != sorted(old) {
            let path = Path::new("spec");
            let scopes = object.below(&["spec", "scopes"]).clone();
            errors.push(FieldError::invalid(&path.child("scopes"), scopes, values::IMMUTABLE));
        }
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        let path = Path::new("status");
        quota_list(object.at("status"), "hard", &path, errors);
        quota_list(object.at("status"), "used", &path, errors);
    }
}

fn fill_missing(limit: &mut Value, target: &str, source: &str) {
    let Some(Value::Object(from)) = limit.get(source).cloned() else { return };
    if from.is_empty() {
        return;
    }
    let into = limit.struct_mut(target);
    for (name, value) in from {
        into.fill(&name, value);
    }
}

fn limit_type(kind: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let reasons = names::qualified_name(kind);
    if !reasons.is_empty() {
        values::invalid_for_each(path, kind, reasons, errors);
    } else if !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
        errors.push(FieldError::invalid(path, kind, "must be a standard limit type or fully qualified"));
    }
}

fn one_limit(limit: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let kind = limit.text("type");
    let (mut known, mut seen) = (Vec::new(), HashSet::new());
    for list in LIMITS {
        let list_path = path.child(list);
        if kind == "Pod" && list.starts_with("default") {
            if !limit.entries(list).is_empty() {
                errors.push(FieldError::forbidden(&list_path, "may not be specified when `type` is 'Pod'"));
            }
            continue;
        }
        for (name, _) in limit.entries(list) {
            if ["Pod", "Container"].contains(&kind) {
                resources::container_resource_name(name, &list_path.key(name), errors);
            } else {
                resources::resource_name(name, &list_path.key(name), errors);
            }
            if seen.insert(name) {
                known.push(name);
            }
        }
    }
    if kind == "PersistentVolumeClaim" && !limit.at("min").has("storage") && !limit.at("max").has("storage") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(&path.child("limits"), detail));
    }
    for name in known {
        amounts(limit, name, path, errors);
    }
}

/// The limits on one resource must be in order: min, default request, default, max.
fn amounts(limit: &Value, name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let amount = |list: &str| limit.at(list).get(name).and_then(Quantity::from_value);
    let is_pod = limit.text("type") == "Pod";
    let (min, max) = (amount("min"), amount("max"));
    let default = amount("default").filter(|_| !is_pod);
    let request = amount("defaultRequest").filter(|_| !is_pod);
    let ratio = amount("maxLimitRequestRatio");
    let mut invalid = |list: &str, shown: Quantity, detail: String| {
        errors.push(FieldError::invalid(&path.child(list).key(name), shown.to_string(), detail));
    };
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        invalid("min", min, format!("min value {min} is greater than max value {max}"));
    }
    if let (Some(min), Some(request)) = (min, request)
        && min > request
    {
        let detail = format!("min value {min} is greater than default request value {request}");
        invalid("defaultRequest", request, detail);
    }
    if let (Some(request), Some(max)) = (request, max)
        && request > max
    {
        let detail = format!("default request value {request} is greater than max value {max}");
        invalid("defaultRequest", request, detail);
    }
    if let (Some(request), Some(default)) = (request, default)
        && request > default
    {
        let detail = format!("default request value {request} is greater than default limit value {default}");
        invalid("defaultRequest", request, detail);
    }
    if let (Some(min), Some(default)) = (min, default)
        && min > default
    {
        invalid("default", min, format!("min value {min} is greater than default value {default}"));
    }
    if let (Some(default), Some(max)) = (default, max)
        && default > max
    {
        invalid("default", max, format!("default value {default} is greater than max value {max}"));
    }
    let Some(ratio) = ratio else { return };
    if ratio < Quantity::from_int(1) {
        invalid("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
    }
    if let (Some(min), Some(max)) = (min, max) {
        let most = max.milli_value() as f64 / min.milli_value() as f64;
        if ratio.milli_value() as f64 / 1000.0 > most {
            let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
            invalid("maxLimitRequestRatio", ratio, detail);
        }
    }
}

fn quota_list(owner: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child(field);
    for (name, value) in owner.entries(field) {
        resources::quota_resource_name(name, &path.key(name), errors);
        resources::quantity(name, value, &path.key(name), errors);
    }
}

/// What quotas limit of Pods, besides the count of objects.
pub(crate) const COMPUTE: [&str; 10] = [
    "pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

fn applies_to(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            COMPUTE.contains(&resource)
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&resource),
        _ => true,
    }
}

/// How many of the resources each scope is not for.
fn misapplied(spec: &Value) -> HashMap<&'static str, usize> {
    let hard = spec.entries("hard");
    let count = |scope| hard.iter().filter(|(name, _)| !name.contains('/') && !applies_to(scope, name)).count();
    SCOPES.iter().map(|scope| (*scope, count(scope))).collect()
}

fn conflict(scopes: &[&str]) -> bool {
    let both = |a, b| scopes.contains(&a) && scopes.contains(&b);
    both("BestEffort", "NotBestEffort") || both("Terminating", "NotTerminating")
}

fn scopes(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("scopes");
    let scopes = spec.texts("scopes");
    let misapplied = misapplied(spec);
    let details = scopes.iter().flat_map(|scope| {
        let unknown = (!SCOPES.contains(scope)).then_some("unsupported scope");
        unknown.into_iter().chain(std::iter::repeat_n(MISAPPLIED, misapplied.get(scope).copied().unwrap_or_default()))
    });
    let details: Vec<&str> = details.take(values::MOST_QUOTED).collect();
    let mut invalid = |detail: &str| errors.push(FieldError::invalid(&path, spec.at("scopes").clone(), detail));
    details.into_iter().for_each(&mut invalid);
    if conflict(&scopes) {
        invalid("conflicting scopes");
    }
}

fn scope_selector(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let selector = path.child("scopeSelector");
    let path = selector.child("matchExpressions");
    let mut names = Vec::new();
    let misapplied = misapplied(spec);
    let mut quoted = 0;
    for requirement in spec.at("scopeSelector").list("matchExpressions") {
        let scope = requirement.text("scopeName");
        let operator = requirement.text("operator");
        names.push(scope);
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(&path.child("scopeName"), scope, "unsupported scope"));
        }
        let count = misapplied.get(scope).copied().unwrap_or_default();
        for _ in 0..count.min(values::MOST_QUOTED - quoted) {
            errors.push(FieldError::invalid(&path, spec.at("scopeSelector").clone(), MISAPPLIED));
            quoted += 1;
        }
        if !["PriorityClass", "VolumeAttributesClass"].contains(&scope)
            && SCOPES.contains(&scope)
            && operator != "Exists"
        {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(&path.child("operator"), operator, detail));
        }
        let listed = requirement.at("values").clone();
        let empty = requirement.list("values").is_empty();
        match operator {
            "In" | "NotIn" if empty => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(&path.child("values"), detail));
            }
            "Exists" | "DoesNotExist" if !empty => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(&path.child("values"), listed, detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator"));
            }
        }
    }
    if conflict(&names) {
        errors.push(FieldError::invalid(&path, spec.at("scopes").clone(), "conflicting scopes"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{create_errors, created};
    use super::*;

    #[test]
    fn limits_fill_in_each_other() {
        let made = created(
            &LimitRange,
            &json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"memory": "1Mi"}}]}}),
        );
        assert_eq!(
            made["spec"]["limits"][0],
            json!({"type": "Container", "max": {"cpu": "1"}, "min": {"memory": "1Mi"}, "default": {"cpu": "1"},
                "defaultRequest": {"cpu": "1", "memory": "1Mi"}})
        );
    }

    #[test]
    fn limits_are_in_order() {
        let check = |limit: Value, expected: &str| {
            assert_eq!(create_errors(&LimitRange, &json!({"spec": {"limits": [limit]}})), expected);
        };
        check(
            json!({"type": "Container", "default": {"cpu": "200m"}, "defaultRequest": {"cpu": "100m"},
                "max": {"cpu": "1"}, "min": {"cpu": "50m"}, "maxLimitRequestRatio": {"cpu": "4"}}),
            "[]",
        );
        check(
            json!({"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "2"}}),
            "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
        );
    }

    #[test]
    fn quotas_name_known_resources() {
        let check = |spec: Value, expected: &str| {
            assert_eq!(create_errors(&ResourceQuota, &json!({"spec": spec})), expected);
        };
        check(json!({"hard": {"count/secrets": "1", "pods": "1", "requests.cpu": "1"}}), "[]");
        check(json!({"hard": {"pods": "1.5"}}), "spec.hard[pods]: Invalid value: \"1500m\": must be an integer");
        check(
            json!({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}),
            "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource",
        );
    }
}
