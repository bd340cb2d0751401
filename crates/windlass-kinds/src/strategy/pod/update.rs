//! What may change in a pod, and how.

use std::collections::HashSet;

use serde_json::Value;

use super::containers::image_whitespace;
use super::scheduling;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut, first_by, semantically_equal};
use crate::validation::{difference, names, values};

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                         `spec.tolerations` (only additions to existing tolerations),\
                         `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Checks a change of a pod's spec through the main resource.
pub(super) fn spec(new: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    for list in ["containers", "initContainers"] {
        if !same_containers(new, old, list, path, errors) {
            return;
        }
    }
    if !active_deadline(new, old, path, errors) {
        return;
    }
    only_added_tolerations(new, old, path, errors);
    only_removed_gates(new, old, path, errors);
    if semantically_equal(new, old) {
        return;
    }
    let mut rest = new.clone();
    for list in ["containers", "initContainers"] {
        for (container, before) in rest.items_mut(list).iter_mut().zip(old.list(list)) {
            container.copy_field("image", before);
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        rest.copy_field(field, old);
    }
    if old.int("terminationGracePeriodSeconds") < 0 && new.int("terminationGracePeriodSeconds") == 1 {
        rest.copy_field("terminationGracePeriodSeconds", old);
    }
    if !old.list("schedulingGates").is_empty() {
        gated(&mut rest, old, path, errors);
    }
    if !semantically_equal(&rest, old) {
        let changes = difference::lines(old, &rest);
        let detail = format!("pod updates may not change fields other than {UPDATABLE}\n{changes}");
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn same_containers(new: &Value, old: &Value, list: &str, path: &Path<'_>, errors: &mut FieldErrors) -> bool {
    let path = path.child(list);
    let containers = new.list(list);
    if containers.len() != old.list(list).len() {
        errors.push(FieldError::forbidden(&path, "pod updates may not add or remove containers"));
        return false;
    }
    for (i, container) in containers.iter().enumerate() {
        values::required(container, "image", &path.index(i), errors);
        image_whitespace(container, &path.index(i), errors);
    }
    true
}

/// A deadline may be set once, and then only shrink. False ends the checks.
fn active_deadline(new: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) -> bool {
    let path = path.child("activeDeadlineSeconds");
    match (new.int_opt("activeDeadlineSeconds"), old.int_opt("activeDeadlineSeconds")) {
        (Some(seconds), before) => {
            let reasons = names::in_range(seconds, 0, i64::from(i32::MAX));
            if let Some(reason) = reasons.into_iter().next() {
                errors.push(FieldError::invalid(&path, seconds, reason));
                return false;
            }
            if before.is_some_and(|before| before < seconds) {
                let detail = "must be less than or equal to previous value";
                errors.push(FieldError::invalid(&path, seconds, detail));
                return false;
            }
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(&path, Value::Null, detail));
        }
        (None, None) => {}
    }
    true
}

fn only_added_tolerations(new: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.drop_field("tolerationSeconds");
        toleration
    };
    let kept: HashSet<Value> = new.list("tolerations").iter().map(without_seconds).collect();
    if old.list("tolerations").iter().any(|toleration| !kept.contains(&without_seconds(toleration))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(&path.child("tolerations"), detail));
        return;
    }
    scheduling::tolerations(new, path, errors);
}

fn only_removed_gates(new: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("schedulingGates");
    let before: HashSet<&str> = old.list("schedulingGates").iter().map(|gate| gate.text("name")).collect();
    for (i, gate) in new.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        if !before.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(&path.index(i).child("name"), detail));
        }
    }
}

/// While a pod is held by gates, where it may run can still be narrowed.
fn gated(rest: &mut Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if !semantically_equal(rest.at("nodeSelector"), old.at("nodeSelector")) {
        let kept = old
            .text_entries("nodeSelector")
            .into_iter()
            .all(|(key, value)| rest.at("nodeSelector").text_opt(key) == Some(value));
        if !kept {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            let selector = rest.at("nodeSelector").clone();
            errors.push(FieldError::invalid(&path.child("nodeSelector"), selector, detail));
        }
        rest.copy_field("nodeSelector", old);
    }
    let before = old.below(&["affinity", "nodeAffinity"]);
    let after = rest.below(&["affinity", "nodeAffinity"]).clone();
    if semantically_equal(&after, before) {
        return;
    }
    let affinity_path = path.child("affinity");
    node_affinity(&after, before, &affinity_path.child("nodeAffinity"), errors);
    if before.is_null() {
        if let Some(affinity) = rest.child_mut("affinity") {
            affinity.drop_field("nodeAffinity");
        }
        if !old.has("affinity") && rest.entries("affinity").is_empty() {
            rest.drop_field("affinity");
        }
    } else {
        rest.struct_mut("affinity").put("nodeAffinity", before.clone());
    }
}

fn node_affinity(new: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child(REQUIRED);
    let path = path.child("nodeSelectorTerms");
    let before = old.at(REQUIRED).list("nodeSelectorTerms");
    let after = new.at(REQUIRED).list("nodeSelectorTerms");
    if before.is_empty() {
        return;
    }
    if before.len() != after.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(FieldError::invalid(&path, after.to_vec(), detail));
        return;
    }
    for (i, (after, before)) in after.iter().zip(before).enumerate() {
        let only_added = |field: &str| {
            let (after, before) = (after.list(field), before.list(field));
            after.len() >= before.len() && after[..before.len()] == *before
        };
        let was_empty = before.list("matchExpressions").is_empty() && before.list("matchFields").is_empty();
        let is_empty = after.list("matchExpressions").is_empty() && after.list("matchFields").is_empty();
        if (was_empty && !is_empty) || !only_added("matchExpressions") || !only_added("matchFields") {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(&path.index(i), after.clone(), detail));
        }
    }
}

/// Ephemeral containers may be added, never changed or removed.
pub(super) fn ephemeral_containers(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let spec = Path::new("spec");
    let path = spec.child("ephemeralContainers");
    let after = first_by(new.at("spec").list("ephemeralContainers"), "name");
    for before in old.at("spec").list("ephemeralContainers") {
        let name = crate::field::quote(before.text("name"));
        let detail = match after.get(before.text("name")) {
            None => format!("existing ephemeral containers {name} may not be removed\n"),
            Some(container) if !semantically_equal(container, before) => {
                let changes = difference::lines(before, container);
                format!("existing ephemeral containers {name} may not be changed\n{changes}")
            }
            Some(_) => continue,
        };
        errors.push(FieldError::forbidden(&path, detail));
    }
}
