//! What the kinds that make pods share: selectors that must match templates, counts in a status,
//! warnings.

use serde_json::Value;

use super::pod::{gates, template, warnings};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::selector::{self, Selector};
use crate::validation::{names, values};

pub(super) const NO_MATCH: &str = "`selector` does not match template `labels`";

/// Checks `selector` and `template` of a Deployment or ReplicaSet, which must agree. `old` is the spec that is
/// replaced, or null.
pub(super) fn replicated_pods(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let selector_path = path.child("selector");
    let label_selector = spec.at("selector");
    required_selector(label_selector, "deployment", &selector_path, errors);
    let Some(parsed) = Selector::from_object(label_selector) else {
        errors.push(selector::invalid(label_selector, &selector_path, "invalid label selector"));
        return;
    };
    let template_path = path.child("template");
    selected_template(spec.at("template"), old.at("template"), &parsed, &template_path, errors);
    always_restarted(spec.at("template"), "ReplicaSet", &template_path, errors);
}

/// Checks a selector that must be there and select something.
pub(super) fn required_selector(label_selector: &Value, kind: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if label_selector.is_null() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    selector::validate(label_selector, path, errors);
    if selects_everything(label_selector) {
        let detail = format!("empty selector is invalid for {kind}");
        errors.push(selector::invalid(label_selector, path, &detail));
    }
}

/// Whether a selector is there but has no requirement.
pub(super) fn selects_everything(label_selector: &Value) -> bool {
    !label_selector.is_null()
        && label_selector.entries("matchLabels").is_empty()
        && label_selector.list("matchExpressions").is_empty()
}

/// Checks a template whose labels the selector must match. `old` is the one it replaces, or null.
pub(super) fn selected_template(
    pod_template: &Value,
    old: &Value,
    parsed: &Selector,
    path: &Path<'_>,
    errors: &mut FieldErrors,
) {
    if !parsed.is_everything() && !parsed.matches(pod_template.below(&["metadata", "labels"])) {
        errors.push(unmatched_labels(pod_template, path));
    }
    template::validate(pod_template, old, path, errors);
}

/// The error about a template's labels.
pub(super) fn unmatched_labels(pod_template: &Value, path: &Path<'_>) -> FieldError {
    let labels = pod_template.below(&["metadata", "labels"]).clone();
    FieldError::invalid(&path.child("metadata").child("labels"), labels, NO_MATCH)
}

/// Pods that are replaced when they end must restart their containers.
pub(super) fn always_restarted(pod_template: &Value, kind: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let spec_path = path.child("spec");
    let spec = pod_template.at("spec");
    values::one_of(spec, "restartPolicy", &["Always"], &spec_path, errors);
    if spec.has("activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden(&spec_path.child("activeDeadlineSeconds"), detail));
    }
}

/// Checks the counts of a status: none negative, and `parts` no more than `replicas`.
pub(super) fn status_counts(status: &Value, counts: &[&str], parts: &[&str], errors: &mut FieldErrors) {
    let path = Path::new("status");
    for field in counts {
        values::not_negative_field(status, field, &path, errors);
    }
    let replicas = status.int("replicas");
    for field in parts {
        if status.int(field) > replicas {
            let detail = "cannot be greater than status.replicas";
            errors.push(FieldError::invalid(&path.child(field), status.int(field), detail));
        }
    }
}

/// What happens to a new workload: its status goes, and so does what its template may not have.
pub(super) fn prepare_create(object: &mut Value, template: &[&str]) {
    object.drop_field("status");
    drop_disabled(object, &Value::Null, template);
}

/// What happens to a changed workload: its status stays, and its template gets nothing that it may not have.
pub(super) fn prepare_update(object: &mut Value, old: &Value, template: &[&str]) {
    object.copy_field("status", old);
    drop_disabled(object, old.below(template), template);
}

fn drop_disabled(object: &mut Value, old: &Value, template: &[&str]) {
    let mut found = Some(object);
    for field in template {
        found = found.and_then(|object| object.child_mut(field));
    }
    if let Some(template) = found {
        gates::drop_disabled(template, old);
    }
}

/// Checks that no more replicas are available than ready.
pub(super) fn available_are_ready(status: &Value, detail: &str, errors: &mut FieldErrors) {
    let available = status.int("availableReplicas");
    if available > status.int("readyReplicas") {
        let path = Path::new("status");
        errors.push(FieldError::invalid(&path.child("availableReplicas"), available, detail));
    }
}

/// Checks that the collision count only grows.
pub(super) fn collision_count(status: &Value, old: &Value, errors: &mut FieldErrors) {
    if let Some(before) = old.int_opt("collisionCount")
        && status.int("collisionCount") < before
    {
        let path = Path::new("status");
        let count = status.int("collisionCount");
        errors.push(FieldError::invalid(&path.child("collisionCount"), count, "cannot be decremented"));
    }
}

/// The warning about a name that makes odd host names, and the template's own warnings. On update
/// only a changed spec is worth warning about.
pub(super) fn template_warnings(object: &Value, old: Option<&Value>, check_name: bool) -> Vec<String> {
    let mut out = Vec::new();
    match old {
        None if check_name => out.extend(name_warning(object)),
        Some(old) if old.at("spec") == object.at("spec") => return out,
        _ => {}
    }
    let spec = Path::new("spec");
    out.extend(warnings::warnings(object.below(&["spec", "template"]), &spec.child("template")));
    out
}

/// The warning about a name that is not a DNS label.
pub(super) fn name_warning(object: &Value) -> Option<String> {
    let reasons = names::label(object.at("metadata").text("name"));
    (!reasons.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: [{}]",
            reasons.join(" ")
        )
    })
}
