//! Probes and lifecycle hooks.

use serde_json::Value;

use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::{names, values};

/// Checks the three probes of a container.
pub(super) fn probes(container: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(field);
        if probe.is_null() {
            continue;
        }
        let path = path.child(field);
        handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], None, &path, errors);
        for number in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            values::not_negative_field(probe, number, &path, errors);
        }
        let grace_path = path.child("terminationGracePeriodSeconds");
        let grace = probe.int_opt("terminationGracePeriodSeconds");
        if let Some(seconds) = grace
            && seconds <= 0
        {
            errors.push(FieldError::invalid(&grace_path, seconds, "must be greater than 0"));
        }
        if field == "readinessProbe" {
            if let Some(seconds) = grace {
                errors.push(FieldError::invalid(&grace_path, seconds, "must not be set for readinessProbes"));
            }
        } else if probe.int("successThreshold") != 1 {
            let threshold = probe.int("successThreshold");
            errors.push(FieldError::invalid(&path.child("successThreshold"), threshold, "must be 1"));
        }
    }
}

/// Checks the lifecycle hooks of a container; `grace` is the pod's termination grace period.
pub(super) fn lifecycle(container: &Value, grace: Option<i64>, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("lifecycle");
    for hook in ["postStart", "preStop"] {
        let value = container.at("lifecycle").at(hook);
        if !value.is_null() {
            handler(value, &["exec", "httpGet", "tcpSocket", "sleep"], grace, &path.child(hook), errors);
        }
    }
}

/// Exactly one of the kinds of handlers must be there.
fn handler(value: &Value, kinds: &[&str], grace: Option<i64>, path: &Path<'_>, errors: &mut FieldErrors) {
    let mut found = false;
    for kind in kinds {
        let action = value.at(kind);
        if action.is_null() {
            continue;
        }
        let path = path.child(kind);
        if found {
            errors.push(FieldError::forbidden(&path, "may not specify more than 1 handler type"));
            continue;
        }
        found = true;
        match *kind {
            "exec" if action.list("command").is_empty() => {
                errors.push(FieldError::required(&path.child("command"), ""));
            }
            "httpGet" => http_get(action, &path, errors),
            "tcpSocket" | "grpc" => values::port_or_name(action.at("port"), &path.child("port"), errors),
            "sleep" => {
                let seconds = action.int("seconds");
                if let Some(grace) = grace
                    && (seconds < 0 || seconds > grace)
                {
                    let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.push(FieldError::invalid(&path, seconds, detail));
                }
            }
            _ => {}
        }
    }
    if !found {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn http_get(action: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    values::required(action, "path", path, errors);
    values::port_or_name(action.at("port"), &path.child("port"), errors);
    values::one_of(action, "scheme", &["HTTP", "HTTPS"], path, errors);
    let path = path.child("httpHeaders");
    for header in action.list("httpHeaders") {
        let name = header.text("name");
        values::invalid_for_each(&path, name, names::http_header(name), errors);
    }
}
