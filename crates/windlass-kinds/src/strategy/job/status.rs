//! What a status update of a job may say: counters only grow, and an end is final.
//!
//! As upstream, most rules are only looked at when what they are about changes: a change of the spec may make a status
//! wrong that its controller has yet to bring up to date (`getStatusValidationOptions` in
//! `pkg/registry/batch/job/strategy.go`).

use std::collections::HashSet;

use serde_json::Value;

use super::policies::{count_indexes, index_interval};
use crate::field::{ErrorKind, FieldError, FieldErrors, Path, go_json};
use crate::validation::access::{Access, semantically_equal};
use crate::validation::values;

/// Checks a job's new status against the old job.
pub(super) fn validate(job: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("status");
    let change = Change { spec: job.at("spec"), status: job.at("status"), before: old.at("status") };
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        values::not_negative_field(change.status, field, &path, errors);
    }
    change.uncounted(&path, errors);
    change.ends(&path, errors);
    change.finished(&path, errors);
    change.indexes(&path, errors);
    change.pods(&path, errors);
    change.success(&path, errors);
    change.history(&path, errors);
}

/// A job's new status beside its old one.
struct Change<'a> {
    spec: &'a Value,
    status: &'a Value,
    before: &'a Value,
}

impl Change<'_> {
    fn is(&self, kind: &str) -> bool {
        is(self.status, kind, "True")
    }

    fn was(&self, kind: &str) -> bool {
        is(self.before, kind, "True")
    }

    fn is_finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn turned(&self, kind: &str) -> bool {
        self.is(kind) != self.was(kind)
    }

    fn finish_turned(&self) -> bool {
        self.is_finished() != (self.was("Complete") || self.was("Failed"))
    }

    fn changed(&self, field: &str) -> bool {
        self.status.at(field) != self.before.at(field)
    }

    /// A pod is counted once.
    fn uncounted(&self, path: &Path<'_>, errors: &mut FieldErrors) {
        let path = path.child("uncountedTerminatedPods");
        let mut seen = HashSet::new();
        for field in ["succeeded", "failed"] {
            let path = path.child(field);
            for (i, uid) in self.status.at("uncountedTerminatedPods").texts(field).into_iter().enumerate() {
                if uid.is_empty() {
                    errors.push(FieldError::invalid(&path.index(i), uid, "must not be empty"));
                } else if !seen.insert(uid) {
                    errors.push(FieldError::duplicate(&path.index(i), uid));
                }
            }
        }
    }

    /// How a job ends, and when.
    fn ends(&self, path: &Path<'_>, errors: &mut FieldErrors) {
        let (complete, failed, target) = (self.is("Complete"), self.is("Failed"), self.is("FailureTarget"));
        let complete_turned = self.turned("Complete");
        if complete && failed && (complete_turned || self.turned("Failed")) {
            about_conditions(path, "cannot set Complete=True and Failed=true conditions", errors);
        }
        if complete && target && (complete_turned || self.turned("FailureTarget")) {
            about_conditions(path, "cannot set Complete=True and FailureTarget=true conditions", errors);
        }
        let completion = path.child("completionTime");
        let (time, start) = (self.status.text_opt("completionTime"), self.status.text_opt("startTime"));
        if complete_turned || self.changed("completionTime") {
            match time {
                Some(time) if !complete => {
                    let detail = "cannot set completionTime when there is no Complete=True condition";
                    errors.push(FieldError::invalid(&completion, time, detail));
                }
                None if complete => {
                    errors.push(FieldError::required(&completion, "completionTime is required for Complete jobs"));
                }
                _ => {}
            }
        }
        if let (Some(time), Some(start)) = (time, start)
            && time < start
            && (self.changed("startTime") || self.changed("completionTime"))
        {
            errors.push(FieldError::invalid(&completion, time, "must be equal to or after `startTime`"));
        }
        if failed && !target && (self.turned("Failed") || self.changed("failedIndexes")) {
            let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
            about_conditions(path, detail, errors);
        }
        let met = self.is("SuccessCriteriaMet");
        if complete && !met && (complete_turned || self.turned("SuccessCriteriaMet")) {
            let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
            about_conditions(path, detail, errors);
        }
    }

    /// What a job that ended has left.
    fn finished(&self, path: &Path<'_>, errors: &mut FieldErrors) {
        if !self.is_finished() {
            return;
        }
        let active = self.status.int("active");
        if active > 0 && (self.finish_turned() || self.changed("active")) {
            errors.push(FieldError::invalid(&path.child("active"), active, "active>0 is invalid for finished job"));
        }
        let nothing_to_do = self.spec.flag("suspend") && self.spec.int_opt("completions") == Some(0);
        if !self.status.has("startTime") && (self.finish_turned() || self.changed("startTime")) && !nothing_to_do {
            errors.push(FieldError::required(&path.child("startTime"), "startTime is required for finished job"));
        }
        let field = "uncountedTerminatedPods";
        let (uncounted, before) = (self.status.at(field), self.before.at(field));
        let any = !uncounted.list("failed").is_empty() || !uncounted.list("succeeded").is_empty();
        if any && (self.finish_turned() || !semantically_equal(uncounted, before)) {
            // Upstream prints its internal type.
            let shown = format!(
                r#"{{"Succeeded":{},"Failed":{}}}"#,
                go_json(uncounted.at("succeeded")),
                go_json(uncounted.at("failed"))
            );
            let detail = "must be empty for finished job";
            errors.push(FieldError::shown(ErrorKind::Invalid, &path.child(field), shown, detail));
        }
    }

    fn indexes(&self, path: &Path<'_>, errors: &mut FieldErrors) {
        let (completed, failed) = (self.status.text("completedIndexes"), self.status.text_opt("failedIndexes"));
        let (completed_path, failed_path) = (path.child("completedIndexes"), path.child("failedIndexes"));
        let (completed_changed, failed_changed) = (self.changed("completedIndexes"), self.changed("failedIndexes"));
        let completions = self.spec.int_opt("completions");
        let has_limit = self.spec.has("backoffLimitPerIndex");
        if let Some(completions) = completions.filter(|_| completed_changed)
            && let Err(why) = count_indexes(completed, completions)
        {
            let detail = format!("error parsing completedIndexes: {why}");
            errors.push(FieldError::invalid(&completed_path, completed, detail));
        }
        if let (Some(completions), Some(failed)) = (completions.filter(|_| failed_changed && has_limit), failed)
            && let Err(why) = count_indexes(failed, completions)
        {
            errors.push(FieldError::invalid(&failed_path, failed, format!("error parsing failedIndexes: {why}")));
        }
        if completed_changed && !completed.is_empty() && self.spec.text("completionMode") != "Indexed" {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.push(FieldError::invalid(&completed_path, completed, detail));
        }
        let Some(failed) = failed else { return };
        if failed_changed && !has_limit {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errors.push(FieldError::invalid(&failed_path, failed, detail));
        }
        if let Some(completions) = completions.filter(|_| failed_changed || completed_changed)
            && let Some(index) = overlap(completed, failed, completions)
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            errors.push(FieldError::invalid(&failed_path, failed, detail));
        }
    }

    fn pods(&self, path: &Path<'_>, errors: &mut FieldErrors) {
        let terminating = self.status.int("terminating");
        if terminating > 0 && self.is_finished() && (self.finish_turned() || self.changed("terminating")) {
            let detail = "terminating>0 is invalid for finished job";
            errors.push(FieldError::invalid(&path.child("terminating"), terminating, detail));
        }
        let ready = self.status.int("ready");
        if ready > self.status.int("active") && (self.changed("ready") || self.changed("active")) {
            errors.push(FieldError::invalid(&path.child("ready"), ready, "cannot set more ready pods than active"));
        }
    }

    fn success(&self, path: &Path<'_>, errors: &mut FieldErrors) {
        let met = self.is("SuccessCriteriaMet");
        if met && self.is("Failed") {
            about_conditions(path, "cannot set SuccessCriteriaMet=True and Failed=true conditions", errors);
        }
        if met && self.is("FailureTarget") {
            about_conditions(path, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions", errors);
        }
        if self.spec.has("successPolicy") && !met && self.is("Complete") {
            let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
            about_conditions(path, detail, errors);
        }
    }

    /// What was said once stays said.
    fn history(&self, path: &Path<'_>, errors: &mut FieldErrors) {
        for kind in ["Failed", "Complete", "FailureTarget"] {
            if self.was(kind) && !self.is(kind) {
                about_conditions(path, format!("cannot disable the terminal {kind}=True condition"), errors);
            }
        }
        let scalable = self.spec.text("completionMode") == "Indexed"
            && self.spec.int_opt("completions") == self.spec.int_opt("parallelism");
        for field in ["failed", "succeeded"] {
            let count = self.status.int(field);
            if count < self.before.int(field) && !(field == "succeeded" && scalable) {
                let detail = format!("cannot decrease the {field} counter");
                errors.push(FieldError::invalid(&path.child(field), count, detail));
            }
        }
        if self.status.has("completionTime") && self.before.has("completionTime") {
            values::immutable(self.status, self.before, "completionTime", path, errors);
        }
        let resumes = is(self.before, "Suspended", "True") && is(self.status, "Suspended", "False");
        if self.before.has("startTime") && self.changed("startTime") && !resumes && !self.spec.flag("suspend") {
            let detail = "field is immutable for unsuspended job once set";
            errors.push(FieldError::invalid(&path.child("startTime"), self.status.at("startTime").clone(), detail));
        }
        let (was_met, met) = (self.was("SuccessCriteriaMet"), self.is("SuccessCriteriaMet"));
        if was_met && !met {
            about_conditions(path, "cannot disable the SuccessCriteriaMet=True condition", errors);
        }
        if self.was("Complete") && !was_met && met {
            let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
            about_conditions(path, detail, errors);
        }
    }
}

fn is(status: &Value, kind: &str, value: &str) -> bool {
    let conditions = status.list("conditions");
    conditions.iter().any(|condition| condition.text("type") == kind && condition.text("status") == value)
}

fn about_conditions(path: &Path<'_>, detail: impl Into<String>, errors: &mut FieldErrors) {
    errors.push(FieldError::without_value(ErrorKind::Invalid, &path.child("conditions"), detail));
}

/// The first index that is in both lists. Intervals that cannot be read are reported elsewhere.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|interval| index_interval(interval, completions).ok()).collect()
    };
    let (completed, failed) = (intervals(completed), intervals(failed));
    let (mut i, mut j) = (0, 0);
    while let (Some(done), Some(lost)) = (completed.get(i), failed.get(j)) {
        if done.0 <= lost.1 && lost.0 <= done.1 {
            return Some(done.0.max(lost.0));
        }
        if done.0 <= lost.0 {
            i += 1;
        } else {
            j += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)]

    use serde_json::json;

    use super::*;

    fn check(spec: Value, before: Value, status: Value, expected: &str) {
        let mut errors = FieldErrors::default();
        let job = json!({"spec": spec, "status": status});
        validate(&job, &json!({"spec": spec, "status": before}), &mut errors);
        assert_eq!(errors.to_string(), expected, "{status}");
    }

    #[test]
    fn a_pod_is_counted_once() {
        check(
            json!({}),
            json!({}),
            json!({"uncountedTerminatedPods": {"succeeded": ["a", "a", ""], "failed": ["a", "b"]}}),
            "[status.uncountedTerminatedPods.succeeded[1]: Duplicate value: \"a\", \
             status.uncountedTerminatedPods.succeeded[2]: Invalid value: \"\": must not be empty, \
             status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"]",
        );
    }

    #[test]
    fn an_end_is_orderly() {
        let start = "2020-01-01T00:00:00Z";
        let is = |kinds: &[&str]| -> Value {
            kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect::<Vec<_>>().into()
        };
        check(
            json!({}),
            json!({"startTime": start}),
            json!({"startTime": start, "completionTime": start, "conditions": is(&["Complete"]), "active": 1,
                "uncountedTerminatedPods": {"failed": ["a"]}}),
            "[status.conditions: Invalid value: cannot set Complete=True condition without the \
             SuccessCriteriaMet=true condition, status.active: Invalid value: 1: active>0 is invalid for finished job, \
             status.uncountedTerminatedPods: Invalid value: {\"Succeeded\":null,\"Failed\":[\"a\"]}: must be empty for \
             finished job]",
        );
        // What was wrong before is no reason to refuse what has nothing to do with it.
        let wrong = json!({"conditions": is(&["Complete"]), "active": 1});
        let mut more = wrong.clone();
        more["terminating"] = json!(0);
        check(json!({}), wrong.clone(), more, "[]");
        let policy = json!({"successPolicy": {}});
        let words = "status.conditions: Invalid value: cannot set Complete=True for Job with SuccessPolicy unless \
                     SuccessCriteriaMet=True";
        check(policy, wrong.clone(), wrong, words);
    }

    #[test]
    fn an_index_fails_or_completes() {
        let spec = json!({"completions": 9, "completionMode": "Indexed", "backoffLimitPerIndex": 1});
        let check = |completed: &str, failed: &str, expected: &str| {
            let status = json!({"completedIndexes": completed, "failedIndexes": failed});
            check(spec.clone(), json!({}), status, expected);
        };
        check("0-2,5", "3,4", "[]");
        check(
            "0-2,5",
            "2,4",
            "status.failedIndexes: Invalid value: \"2,4\": failedIndexes and completedIndexes overlap at index: 2",
        );
    }

    #[test]
    fn a_resumed_job_starts_again() {
        let time = |hour: u32| format!("2020-01-01T0{hour}:00:00Z");
        let suspended = |status: &str| json!([{"type": "Suspended", "status": status}]);
        let before = json!({"startTime": time(0), "conditions": suspended("True")});
        check(json!({}), before.clone(), json!({"startTime": time(1), "conditions": suspended("False")}), "[]");
        check(
            json!({}),
            before,
            json!({"startTime": time(1), "conditions": suspended("True")}),
            "status.startTime: Invalid value: \"2020-01-01T01:00:00Z\": field is immutable for unsuspended job once set",
        );
    }
}
