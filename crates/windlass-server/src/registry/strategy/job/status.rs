//! What a status update of a job may say: counters only grow, and an end is final.

use serde_json::Value;

use super::policies::count_indexes;
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::values;

/// Checks a job's new status against the old job.
pub(super) fn validate(job: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("status");
    let (status, before) = (job.at("status"), old.at("status"));
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        values::not_negative_field(status, field, &path, errors);
    }
    conditions(job, &path, errors);
    times(status, &path, errors);
    indexes(job, &path, errors);
    if status.int("ready") > status.int("active") {
        let detail = "cannot set more ready pods than active";
        errors.push(FieldError::invalid(&path.child("ready"), status.int("ready"), detail));
    }
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(before, kind) && !is_true(status, kind) {
            about_conditions(&path, format!("cannot disable the terminal {kind}=True condition"), errors);
        }
    }
    for (field, what) in [("failed", "failed"), ("succeeded", "succeeded")] {
        if status.int(field) < before.int(field) {
            let detail = format!("cannot decrease the {what} counter");
            errors.push(FieldError::invalid(&path.child(field), status.int(field), detail));
        }
    }
    if status.has("completionTime") && before.has("completionTime") {
        values::immutable(status, before, "completionTime", &path, errors);
    }
    if before.has("startTime") && before.at("startTime") != status.at("startTime") && !job.at("spec").flag("suspend") {
        let detail = "field is immutable for unsuspended job once set";
        errors.push(FieldError::invalid(&path.child("startTime"), status.at("startTime").clone(), detail));
    }
    if is_true(before, "SuccessCriteriaMet") && !is_true(status, "SuccessCriteriaMet") {
        about_conditions(&path, "cannot disable the SuccessCriteriaMet=True condition", errors);
    }
}

fn is_true(status: &Value, kind: &str) -> bool {
    status
        .list("conditions")
        .iter()
        .any(|condition| condition.text("type") == kind && condition.text("status") == "True")
}

fn about_conditions(path: &Path<'_>, detail: impl Into<String>, errors: &mut FieldErrors) {
    errors.push(FieldError::without_value(ErrorKind::Invalid, &path.child("conditions"), detail));
}

fn conditions(job: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let status = job.at("status");
    let is = |kind: &str| is_true(status, kind);
    let (complete, failed) = (is("Complete"), is("Failed"));
    let (met, target) = (is("SuccessCriteriaMet"), is("FailureTarget"));
    let rules = [
        (complete && failed, "cannot set Complete=True and Failed=true conditions"),
        (complete && target, "cannot set Complete=True and FailureTarget=true conditions"),
        (failed && !target, "cannot set Failed=True condition without the FailureTarget=true condition"),
        (complete && !met, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
        (met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
    ];
    for (_, detail) in rules.into_iter().filter(|(broken, _)| *broken) {
        about_conditions(path, detail, errors);
    }
    if !(complete || failed) {
        return;
    }
    for (field, what) in [("active", "active>0"), ("terminating", "terminating>0")] {
        if status.int(field) > 0 {
            let detail = format!("{what} is invalid for finished job");
            errors.push(FieldError::invalid(&path.child(field), status.int(field), detail));
        }
    }
    if !status.has("startTime") {
        errors.push(FieldError::required(&path.child("startTime"), "startTime is required for finished job"));
    }
    let uncounted = status.at("uncountedTerminatedPods");
    if !uncounted.list("failed").is_empty() || !uncounted.list("succeeded").is_empty() {
        let detail = "must be empty for finished job";
        errors.push(FieldError::invalid(&path.child("uncountedTerminatedPods"), uncounted.clone(), detail));
    }
}

fn times(status: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("completionTime");
    let complete = is_true(status, "Complete");
    match (status.text_opt("completionTime"), complete) {
        (Some(time), false) => {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.push(FieldError::invalid(&path, time, detail));
        }
        (None, true) => {
            errors.push(FieldError::required(&path, "completionTime is required for Complete jobs"));
        }
        (Some(time), true) if status.text_opt("startTime").is_some_and(|start| time < start) => {
            errors.push(FieldError::invalid(&path, time, "must be equal to or after `startTime`"));
        }
        _ => {}
    }
}

fn indexes(job: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let (spec, status) = (job.at("spec"), job.at("status"));
    let completed = status.text("completedIndexes");
    if let Some(completions) = spec.int_opt("completions") {
        for field in ["completedIndexes", "failedIndexes"] {
            if let Err(why) = count_indexes(status.text(field), completions) {
                let detail = format!("error parsing {field}: {why}");
                errors.push(FieldError::invalid(&path.child(field), status.text(field), detail));
            }
        }
    }
    if !completed.is_empty() && spec.text("completionMode") != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.push(FieldError::invalid(&path.child("completedIndexes"), completed, detail));
    }
    if let Some(failed) = status.text_opt("failedIndexes")
        && !spec.has("backoffLimitPerIndex")
    {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(FieldError::invalid(&path.child("failedIndexes"), failed, detail));
    }
}
