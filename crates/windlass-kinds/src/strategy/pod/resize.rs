//! `pods/resize`: cpu and memory of a pod and its containers change, and nothing else.
//!
//! What a resize may not touch is kept as it was, so that most clients can send the pod as they know it;
//! containers that come, go or change places are refused. Mirrors `podResizeStrategy` and
//! `ValidatePodResize`.

use serde_json::Value;

use super::resources::qos_class;
use super::{annotations, keep_metadata};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut, semantically_equal};

/// The lists of containers that have resources of their own.
const LISTS: [&str; 2] = ["containers", "initContainers"];
const ONLY: &str = "only cpu and memory resources are mutable";

/// Keeps everything but resources and resize policies, unless containers were added or removed, which
/// validation refuses.
pub(super) fn prepare(object: &mut Value, old: &Value) {
    let wanted = object.at("spec").clone();
    let old_spec = old.at("spec");
    if LISTS.iter().any(|list| wanted.list(list).len() != old_spec.list(list).len()) {
        return;
    }
    object.copy_field("spec", old);
    object.copy_field("status", old);
    keep_metadata(object, old);
    let spec = object.struct_mut("spec");
    spec.copy_field("resources", &wanted);
    for list in LISTS {
        let names = |spec: &Value| spec.list(list).iter().map(|c| c.text("name").to_owned()).collect::<Vec<_>>();
        if names(&wanted) != names(old_spec) {
            spec.copy_field(list, &wanted);
            continue;
        }
        for (container, wanted) in spec.items_mut(list).iter_mut().zip(wanted.list(list)) {
            container.copy_field("resources", wanted);
            container.copy_field("resizePolicy", wanted);
        }
    }
}

/// Why a pod can never be resized.
pub(super) fn refused(old: &Value) -> Option<FieldError> {
    let detail = if old.below(&["metadata", "annotations"]).has(annotations::MIRROR) {
        "static pods cannot be resized"
    } else if old.below(&["spec", "os"]).text("name") == "windows" {
        "windows pods cannot be resized"
    } else {
        return None;
    };
    Some(FieldError::forbidden(&Path::root().key(""), detail))
}

/// Checks what a resize changes.
pub(super) fn validate(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let class = Some(old.at("status").text("qosClass")).filter(|class| !class.is_empty());
    if class.unwrap_or_else(|| qos_class(old.at("spec"))) != qos_class(new.at("spec")) {
        let shown = new.at("status").text("qosClass");
        errors.push(FieldError::invalid(&path, shown, "Pod QOS Class may not change as a result of resizing"));
    }
    if !is_supported(old) {
        errors.push(FieldError::forbidden(&path, "Pod running on node without support for resize"));
    }
    let (new, old) = (new.at("spec"), old.at("spec"));
    let mut rest = new.clone();
    pod_level(new, old, &mut rest, &path, errors);
    if !is_in_order(new, old, &path, errors) {
        return;
    }
    for list in ["initContainers", "containers"] {
        nothing_removed(new, old, list, &path, errors);
    }
    for list in LISTS {
        only_cpu_and_memory(&mut rest, old, list, &path, errors);
    }
    if errors.is_empty() && !semantically_equal(&rest, old) {
        errors.push(FieldError::forbidden(&path, ONLY));
    }
}

/// A node that does not tell the resources of running containers knows of no resizes.
fn is_supported(pod: &Value) -> bool {
    let statuses = pod.at("status").list("containerStatuses");
    let running = statuses.iter().find(|container| container.at("state").has("running"));
    running.is_none_or(|container| container.has("resources"))
}

/// Resources of the pod as a whole.
fn pod_level(new: &Value, old: &Value, rest: &mut Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let is_set = |spec: &Value| {
        let resources = spec.at("resources");
        !(resources.entries("requests").is_empty() && resources.entries("limits").is_empty())
    };
    if !is_set(new) && !is_set(old) {
        return;
    }
    let field = path.child("resources");
    if old.has("resources") && !new.has("resources") {
        errors.push(FieldError::forbidden(&field, "pod-level resources cannot be removed"));
        return;
    }
    for (list, what) in [("requests", "requests"), ("limits", "limits")] {
        if is_removed(new.at("resources").at(list), old.at("resources").at(list)) {
            let detail = format!("pod-level resource {what} cannot be removed");
            errors.push(FieldError::forbidden(&field.child(list), detail));
        }
    }
    keep_cpu_and_memory(rest, old);
    if !semantically_equal(rest.at("resources"), old.at("resources")) {
        errors.push(FieldError::forbidden(path, "only cpu and memory resources are mutable at pod-level"));
    }
}

/// Containers neither come nor go nor change places.
fn is_in_order(new: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) -> bool {
    let before = errors.0.len();
    for list in LISTS {
        let field = path.child(list);
        if new.list(list).len() != old.list(list).len() {
            let detail = format!("{list} may not be added or removed on resize");
            errors.push(FieldError::forbidden(&field, detail));
            continue;
        }
        for (i, (container, before)) in new.list(list).iter().zip(old.list(list)).enumerate() {
            if container.text("name") != before.text("name") {
                let detail = format!("{list} may not be renamed or reordered on resize");
                errors.push(FieldError::forbidden(&field.index(i).child("name"), detail));
            }
        }
    }
    errors.0.len() == before
}

fn nothing_removed(new: &Value, old: &Value, list: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child(list);
    for (i, (container, before)) in new.list(list).iter().zip(old.list(list)).enumerate() {
        let item = path.index(i);
        let field = item.child("resources");
        for kind in ["requests", "limits"] {
            if is_removed(container.at("resources").at(kind), before.at("resources").at(kind)) {
                let detail = format!("resource {kind} cannot be removed");
                errors.push(FieldError::forbidden(&field.child(kind), detail));
            }
        }
    }
}

/// Containers differ in cpu and memory only, which are put back in `rest`.
fn only_cpu_and_memory(rest: &mut Value, old: &Value, list: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let is_init = list == "initContainers";
    let field = path.child(list);
    for (i, (container, before)) in rest.items_mut(list).iter_mut().zip(old.list(list)).enumerate() {
        let is_changed = !semantically_equal(container, before);
        keep_cpu_and_memory(container, before);
        let item = field.index(i);
        if !semantically_equal(container, before) {
            errors.push(if is_init {
                let detail = "only cpu and memory resources for init or sidecar containers are mutable";
                FieldError::forbidden(&item, detail)
            } else {
                FieldError::forbidden(path, ONLY)
            });
        }
        if is_init && is_changed && container.text("restartPolicy") != "Always" {
            let restarts = |policy: &&Value| policy.text("restartPolicy") == "RestartContainer";
            for _ in container.list("resizePolicy").iter().filter(restarts) {
                let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                errors.push(FieldError::forbidden(&item, detail));
            }
        }
    }
}

/// Puts cpu and memory back to what they were in `before`.
fn keep_cpu_and_memory(owner: &mut Value, before: &Value) {
    for list in ["requests", "limits"] {
        let amounts = before.at("resources").at(list);
        for name in ["cpu", "memory"] {
            if amounts.has(name) || owner.at("resources").at(list).has(name) {
                owner.struct_mut("resources").struct_mut(list).copy_field(name, amounts);
            }
        }
    }
}

fn is_removed(amounts: &Value, before: &Value) -> bool {
    before.as_object().is_some_and(|before| before.keys().any(|name| !amounts.has(name)))
}
