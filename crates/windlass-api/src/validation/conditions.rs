//! Conditions of the common shape, `meta/v1.Condition`. Kinds with conditions of their own shape check them
//! themselves.

use std::collections::HashSet;

use serde_json::Value;

use super::access::Access as _;
use super::{names, values};
use crate::field::{FieldError, FieldErrors, Path};

const LONGEST_REASON: usize = 1024;
const LONGEST_MESSAGE: usize = 32 * 1024;

/// Checks `owner.conditions`.
pub fn validate(owner: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("conditions");
    let mut seen = HashSet::new();
    for (i, condition) in owner.list("conditions").iter().enumerate() {
        let path = path.index(i);
        let kind = condition.text("type");
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(&path, kind));
        }
        one(condition, &path, errors);
    }
}

fn one(condition: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let kind = condition.text("type");
    if kind.is_empty() {
        errors.push(FieldError::required(&path.child("type"), "is required"));
    } else {
        values::invalid_for_each(&path.child("type"), kind, names::qualified_name(kind), errors);
    }
    values::required_one_of(condition, "status", &["False", "True", "Unknown"], path, errors);
    let generation = condition.int("observedGeneration");
    if generation < 0 {
        let detail = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(&path.child("observedGeneration"), generation, detail));
    }
    if condition.text("lastTransitionTime").is_empty() {
        errors.push(FieldError::required(&path.child("lastTransitionTime"), ""));
    }
    let reason = condition.text("reason");
    if reason.is_empty() {
        errors.push(FieldError::required(&path.child("reason"), ""));
    } else {
        values::invalid_for_each(&path.child("reason"), reason, names::condition_reason(reason), errors);
        if reason.len() > LONGEST_REASON {
            errors.push(FieldError::too_long(&path.child("reason"), LONGEST_REASON));
        }
    }
    if condition.text("message").len() > LONGEST_MESSAGE {
        errors.push(FieldError::too_long(&path.child("message"), LONGEST_MESSAGE));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_say_what_when_and_why() {
        let check = |conditions: Value, expected: &str| {
            let mut errors = FieldErrors::default();
            validate(&json!({ "conditions": conditions }), &Path::new("status"), &mut errors);
            assert_eq!(errors.to_string(), expected);
        };
        let good = json!({
            "type": "example.com/Ready", "status": "True", "reason": "All_Good", "message": "",
            "lastTransitionTime": "2020-01-01T00:00:00Z",
        });
        check(json!([good]), "[]");
        check(json!([good, good]), r#"status.conditions[1]: Duplicate value: "example.com/Ready""#);
        check(
            json!([{"type": "X"}]),
            "[status.conditions[0].status: Required value, status.conditions[0].lastTransitionTime: Required value, \
             status.conditions[0].reason: Required value]",
        );
        let mut bad = good.clone();
        bad["status"] = "yes".into();
        check(
            json!([bad]),
            r#"status.conditions[0].status: Unsupported value: "yes": supported values: "False", "True", "Unknown""#,
        );
        let mut bad = good.clone();
        bad["reason"] = "because:".into();
        check(
            json!([bad]),
            "status.conditions[0].reason: Invalid value: \"because:\": a condition reason must start with alphabetic \
             character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an \
             alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or \
             'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')",
        );
    }
}
