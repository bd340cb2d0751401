//! Lease: positive durations. The strategy fields of coordinated leader election are off, so dropped.

use serde_json::Value;

use super::Strategy;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::values;

/// The strategy of Leases.
pub(crate) struct Lease;

impl Strategy for Lease {
    fn prepare_create(&self, object: &mut Value) {
        if let Some(spec) = object.child_mut("spec") {
            spec.drop_field("strategy");
            spec.drop_field("preferredHolder");
        }
    }

    fn prepare_update(&self, object: &mut Value, _old: &Value) {
        self.prepare_create(object);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        if let Some(seconds) = spec.int_opt("leaseDurationSeconds") {
            values::positive(seconds, &path.child("leaseDurationSeconds"), errors);
        }
        values::not_negative_field(spec, "leaseTransitions", &path, errors);
        if !spec.text("preferredHolder").is_empty() && spec.text("strategy").is_empty() {
            let detail = "may only be specified if `strategy` is defined";
            errors.push(FieldError::forbidden(&path.child("preferredHolder"), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::create_errors;
    use super::*;

    #[test]
    fn durations_are_positive() {
        let check = |spec: Value, expected: &str| assert_eq!(create_errors(&Lease, &json!({ "spec": spec })), expected);
        check(json!({"leaseDurationSeconds": 15}), "[]");
        check(
            json!({"leaseDurationSeconds": 0}),
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        );
        check(
            json!({"leaseTransitions": -1}),
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        );
    }
}
