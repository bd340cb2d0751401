//! When a job fails or succeeds early: `podFailurePolicy`, `successPolicy`, `podReplacementPolicy`.

use std::collections::HashSet;

use serde_json::Value;

use crate::field::{ErrorKind, FieldError, FieldErrors, Path, go_json, quote};
use crate::validation::access::{Access, semantically_equal};
use crate::validation::{names, values};

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];

/// Checks the policies of a job's spec.
pub(super) fn validate(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if spec.has("podFailurePolicy") {
        failure(spec, &path.child("podFailurePolicy"), errors);
    }
    if spec.has("successPolicy") {
        let path = path.child("successPolicy");
        if spec.text("completionMode") == "Indexed" {
            success(spec, &path, errors);
        } else {
            let policy = spec.at("successPolicy").clone();
            errors.push(FieldError::invalid(&path, policy, "requires indexed completion mode"));
        }
    }
    if spec.has("podReplacementPolicy") {
        let supported: &[&str] =
            if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        values::one_of(spec, "podReplacementPolicy", supported, path, errors);
    }
}

/// A policy that must stay as it is. An empty one is not the same as none.
pub(super) fn immutable(spec: &Value, old: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let policy = spec.at(field);
    if spec.has(field) != old.has(field) || !semantically_equal(policy, old.at(field)) {
        let shown = if spec.has(field) { in_go(field, policy) } else { Value::Null.to_string() };
        errors.push(FieldError::shown(ErrorKind::Invalid, &path.child(field), shown, values::IMMUTABLE));
    }
}

/// Either policy as Go prints its own form of it: every field, in its order and under the name it has there.
fn in_go(field: &str, policy: &Value) -> String {
    let condition = |condition: &Value| {
        let (kind, status) = (go_json(&condition.text("type").into()), go_json(&condition.text("status").into()));
        format!(r#"{{"Type":{kind},"Status":{status}}}"#)
    };
    let exit_codes = |codes: &Value| {
        let (name, operator) = (go_json(codes.at("containerName")), go_json(&codes.text("operator").into()));
        format!(r#"{{"ContainerName":{name},"Operator":{operator},"Values":{}}}"#, codes.at("values"))
    };
    let rule = |rule: &Value| {
        if field == "successPolicy" {
            let (indexes, count) = (go_json(rule.at("succeededIndexes")), rule.at("succeededCount"));
            return format!(r#"{{"SucceededIndexes":{indexes},"SucceededCount":{count}}}"#);
        }
        let codes = rule.at("onExitCodes");
        let codes = if codes.is_null() { codes.to_string() } else { exit_codes(codes) };
        let (action, conditions) =
            (go_json(&rule.text("action").into()), go_list(rule.at("onPodConditions"), condition));
        format!(r#"{{"Action":{action},"OnExitCodes":{codes},"OnPodConditions":{conditions}}}"#)
    };
    format!(r#"{{"Rules":{}}}"#, go_list(policy.at("rules"), rule))
}

fn go_list(list: &Value, item: impl Fn(&Value) -> String) -> String {
    match list.as_array() {
        Some(items) => format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(",")),
        None => Value::Null.to_string(),
    }
}

fn failure(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("rules");
    let rules = spec.at("podFailurePolicy").list("rules");
    if rules.len() > 20 {
        errors.push(FieldError::too_many(&path, rules.len(), 20));
    }
    let pod_spec = spec.below(&["template", "spec"]);
    let containers: HashSet<&str> = pod_spec
        .list("containers")
        .iter()
        .chain(pod_spec.list("initContainers"))
        .map(|container| container.text("name"))
        .collect();
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        let action_path = path.child("action");
        match rule.text("action") {
            "" => {
                let detail = r#"valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#;
                errors.push(FieldError::required(&action_path, detail));
            }
            "FailIndex" if !spec.has("backoffLimitPerIndex") => {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.push(FieldError::invalid(&action_path, "FailIndex", detail));
            }
            _ => values::one_of(rule, "action", ACTIONS, &path, errors),
        }
        let (codes, conditions) = (rule.at("onExitCodes"), rule.list("onPodConditions"));
        if !codes.is_null() {
            exit_codes(codes, &containers, &path.child("onExitCodes"), errors);
        }
        pod_conditions(conditions, &path.child("onPodConditions"), errors);
        let detail = match (codes.is_null(), conditions.is_empty()) {
            (false, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (true, true) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(FieldError::without_value(ErrorKind::Invalid, &path, detail));
    }
}

fn exit_codes(codes: &Value, containers: &HashSet<&str>, path: &Path<'_>, errors: &mut FieldErrors) {
    let operator = codes.text("operator");
    if operator.is_empty() {
        errors.push(FieldError::required(&path.child("operator"), r#"valid values: ["In" "NotIn"]"#));
    } else {
        values::one_of(codes, "operator", &["In", "NotIn"], path, errors);
    }
    if let Some(name) = codes.text_opt("containerName")
        && !containers.contains(name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.push(FieldError::invalid(&path.child("containerName"), name, detail));
    }
    let path = path.child("values");
    let listed: Vec<i64> = codes.list("values").iter().filter_map(Value::as_i64).collect();
    if listed.is_empty() {
        errors.push(FieldError::invalid(&path, codes.at("values").clone(), "at least one value is required"));
    } else if listed.len() > 255 {
        errors.push(FieldError::too_many(&path, listed.len(), 255));
    }
    let mut seen = HashSet::new();
    for (i, code) in listed.iter().enumerate() {
        if operator == "In" && *code == 0 {
            errors.push(FieldError::invalid(&path.index(i), 0, "must not be 0 for the In operator"));
        }
        if !seen.insert(*code) {
            errors.push(FieldError::duplicate(&path.index(i), *code));
        }
    }
    if !listed.is_sorted() {
        errors.push(FieldError::invalid(&path, codes.at("values").clone(), "must be ordered"));
    }
}

fn pod_conditions(patterns: &[Value], path: &Path<'_>, errors: &mut FieldErrors) {
    if patterns.len() > 20 {
        errors.push(FieldError::too_many(path, patterns.len(), 20));
    }
    for (i, pattern) in patterns.iter().enumerate() {
        let path = path.index(i);
        let kind = pattern.text("type");
        values::invalid_for_each(&path.child("type"), kind, names::qualified_name(kind), errors);
        if pattern.text("status").is_empty() {
            let detail = r#"valid values: ["False" "True" "Unknown"]"#;
            errors.push(FieldError::required(&path.child("status"), detail));
        } else {
            values::one_of(pattern, "status", &["False", "True", "Unknown"], &path, errors);
        }
    }
}

fn success(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("rules");
    let rules = spec.at("successPolicy").list("rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(&path, detail));
    }
    if rules.len() > 20 {
        errors.push(FieldError::too_many(&path, rules.len(), 20));
    }
    let completions = spec.int("completions");
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        if !rule.has("succeededCount") && !rule.has("succeededIndexes") {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(FieldError::required(&path, detail));
        }
        let mut total = None;
        if let Some(indexes) = rule.text_opt("succeededIndexes") {
            let path = path.child("succeededIndexes");
            if indexes.len() > 64 * 1024 {
                errors.push(FieldError::too_long(&path, 64 * 1024));
            }
            match count_indexes(indexes, completions) {
                Ok(count) => total = Some(count),
                Err(why) => {
                    let detail = format!("error parsing succeededIndexes: {why}");
                    errors.push(FieldError::invalid(&path, indexes, detail));
                    total = Some(0);
                }
            }
        }
        if let Some(count) = rule.int_opt("succeededCount") {
            let path = path.child("succeededCount");
            values::not_negative(count, &path, errors);
            let mut at_most = |limit: i64, what: &str| {
                if count > limit {
                    let detail = format!("must be less than or equal to {limit} ({what})");
                    errors.push(FieldError::invalid(&path, count, detail));
                }
            };
            at_most(completions, "the number of specified completions");
            if let Some(total) = total {
                at_most(total, "the number of indexes in the specified succeededIndexes field");
            }
        }
    }
}

/// How many indexes a text such as `1,3-5` names. Intervals must be in order and below `completions`.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let mut total = 0;
    let mut last: Option<i64> = None;
    for interval in text.split(',') {
        let (start, end) = index_interval(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= start) {
            return Err(format!("non-increasing order, previous: {last}, current: {start}"));
        }
        total += end - start + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The first and the last index of an interval: `3` or `3-5`.
pub(super) fn index_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let ends: Vec<&str> = interval.split('-').collect();
    if ends.len() > 2 {
        return Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by \
             '-'",
            quote(interval)
        ));
    }
    let number = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {}", quote(text))),
        Ok(number) if number >= completions => Err(format!("too large index: {}", quote(text))),
        Ok(number) => Ok(number),
    };
    let start = number(ends[0])?;
    let Some(end) = ends.get(1) else { return Ok((start, start)) };
    let end = number(end)?;
    if start >= end {
        return Err(format!("non-increasing order, previous: {start}, current: {end}"));
    }
    Ok((start, end))
}
