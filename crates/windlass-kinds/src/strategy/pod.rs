//! Pod: the big one. Defaults, validation, what may change, and how long a delete waits.
//!
//! The parts are also used for pod templates: `defaults::template`, `template::validate` and
//! `warnings::warnings`.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Strategy, keep_all_but_status, keep_metadata};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{names, values};

mod annotations;
mod containers;
pub(crate) mod defaults;
mod env;
pub mod gates;
mod mounts;
mod probes;
mod resize;
pub mod resources;
pub(crate) mod scheduling;
mod security;
mod spec;
mod status;
pub(crate) mod template;
mod update;
pub(crate) mod volumes;
pub(crate) mod warnings;

/// The strategy of Pods.
pub(crate) struct Pod;

impl Strategy for Pod {
    fn default(&self, object: &mut Value) {
        defaults::pod(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        gates::drop_disabled(object, &Value::Null);
        apply_label_keys(object);
        let spec = object.at("spec");
        let mut status = json!({"phase": "Pending", "qosClass": resources::qos_class(spec)});
        if !spec.list("schedulingGates").is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null, "lastTransitionTime": object.at("metadata").get("creationTimestamp"),
            }]);
        }
        object.put("status", status);
    }

    /// Ephemeral containers have their own subresource.
    fn prepare_update(&self, object: &mut Value, old: &Value) {
        object.copy_field("status", old);
        gates::drop_disabled(object, old);
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
        let metadata = object.struct_mut("metadata");
        metadata.copy_field("ownerReferences", old.at("metadata"));
        let status = object.struct_mut("status");
        if status.text("qosClass").is_empty() {
            status.copy_field("qosClass", old.at("status"));
        }
        if status.int("observedGeneration") == 0 {
            status.copy_field("observedGeneration", old.at("status"));
        }
        gates::drop_disabled_status(status, old.at("status"));
    }

    fn prepare_subresource(&self, subresource: &str, object: &mut Value, old: &Value) {
        match subresource {
            "ephemeralcontainers" => {
                let containers = object.at("spec").clone();
                object.copy_field("spec", old);
                object.struct_mut("spec").copy_field("ephemeralContainers", &containers);
                object.copy_field("status", old);
                keep_metadata(object, old);
                gates::drop_disabled(object, old);
            }
            "resize" => resize::prepare(object, old),
            _ => self.prepare_update(object, old),
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let pod_spec = object.at("spec");
        metadata_and_spec(object, &Value::Null, errors);
        if !pod_spec.list("ephemeralContainers").is_empty() {
            errors.push(FieldError::forbidden(&path.child("ephemeralContainers"), "cannot be set on create"));
        }
        if !pod_spec.text("nodeName").is_empty() && !pod_spec.list("schedulingGates").is_empty() {
            let detail = "cannot be set until all schedulingGates have been cleared";
            errors.push(FieldError::forbidden(&path.child("nodeName"), detail));
        }
        annotations::profiles_match(object.at("metadata"), pod_spec, &path, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        changed(object, old, errors);
        update::spec(object.at("spec"), old.at("spec"), &Path::new("spec"), errors);
    }

    fn validate_status_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        let metadata = Path::new("metadata");
        let path = metadata.child("annotations");
        annotations::validate_update(object.at("metadata"), old.at("metadata"), &path, errors);
        status::validate(object, old, errors);
    }

    fn validate_subresource(&self, subresource: &str, object: &Value, old: &Value, errors: &mut FieldErrors) {
        match subresource {
            "ephemeralcontainers" => {
                if old.below(&["metadata", "annotations"]).has(annotations::MIRROR) {
                    let detail = "static pods do not support ephemeral containers";
                    errors.push(FieldError::forbidden(&Path::root().key(""), detail));
                    return;
                }
                changed(object, old, errors);
                update::ephemeral_containers(object, old, errors);
            }
            "resize" => {
                if let Some(refusal) = resize::refused(old) {
                    errors.push(refusal);
                    return;
                }
                changed(object, old, errors);
                resize::validate(object, old, errors);
            }
            "binding" => {}
            _ => self.validate_update(object, old, errors),
        }
    }

    /// Only on create: people rarely write to pods after that, and controllers do all the time.
    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_some() {
            return Vec::new();
        }
        let mut out = Vec::new();
        let reasons = names::label(object.at("metadata").text("name"));
        if !reasons.is_empty() {
            out.push(format!(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS \
                 label is recommended: [{}]",
                reasons.join(" ")
            ));
        }
        out.extend(warnings::warnings(object, &Path::root()));
        out
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &[
            "spec.nodeName",
            // The name it had once.
            "spec.host",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]
    }

    fn field_value(&self, object: &Value, field: &str) -> String {
        match field {
            "spec.host" => super::field_text(object, "spec.nodeName"),
            "spec.hostNetwork" => object.at("spec").flag("hostNetwork").to_string(),
            "status.podIP" | "status.podIPs" => {
                object.at("status").list("podIPs").first().map_or_else(String::new, |ip| ip.text("ip").to_owned())
            }
            _ => super::field_text(object, field),
        }
    }

    fn grace_seconds(&self, object: &Value) -> Option<i64> {
        self.grace_period(object, None)
    }

    /// A pod that is on no node, or that already ended, has nothing to wait for.
    fn grace_period(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let spec = object.at("spec");
        let done = ["Failed", "Succeeded"].contains(&object.at("status").text("phase"));
        if spec.text("nodeName").is_empty() || done {
            return None;
        }
        let seconds = asked.unwrap_or_else(|| spec.int("terminationGracePeriodSeconds"));
        let seconds = if seconds < 0 { 1 } else { seconds };
        (seconds > 0).then_some(seconds)
    }
}

/// Checks a Binding, the body of `pods/binding`.
pub fn validate_binding(binding: &Value, errors: &mut FieldErrors) {
    let path = Path::new("target");
    let target = binding.at("target");
    let kind = target.text("kind");
    if !kind.is_empty() && kind != "Node" {
        errors.push(FieldError::not_supported(&path.child("kind"), kind, &["Node", "<empty>"]));
    }
    if target.text("name").is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
}

fn metadata_and_spec(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let pod_spec = object.at("spec");
    let metadata = Path::new("metadata");
    annotations::validate(object.at("metadata"), pod_spec, &metadata.child("annotations"), errors);
    spec::validate(pod_spec, old.at("spec"), Some(object), &path, errors);
    if pod_spec.text("serviceAccountName").is_empty() {
        projected_tokens(pod_spec, &path, errors);
    }
    values::not_negative_field(pod_spec, "terminationGracePeriodSeconds", &path, errors);
    for list in ["containers", "initContainers"] {
        let path = path.child(list);
        for (i, container) in pod_spec.list(list).iter().enumerate() {
            containers::image_whitespace(container, &path.index(i), errors);
        }
    }
}

/// A token needs an account to be issued for.
fn projected_tokens(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("volumes");
    for (i, volume) in spec.list("volumes").iter().enumerate() {
        let volume_path = path.index(i);
        let projected = volume_path.child("projected");
        let sources = projected.child("sources");
        for (j, source) in volume.at("projected").list("sources").iter().enumerate() {
            if source.has("serviceAccountToken") {
                let detail = "must not be specified when serviceAccountName is not set";
                errors.push(FieldError::forbidden(&sources.index(j).child("serviceAccountToken"), detail));
            }
        }
    }
}

fn changed(object: &Value, old: &Value, errors: &mut FieldErrors) {
    metadata_and_spec(object, old, errors);
    let metadata = Path::new("metadata");
    let path = metadata.child("annotations");
    annotations::validate_update(object.at("metadata"), old.at("metadata"), &path, errors);
}

/// `matchLabelKeys` and `mismatchLabelKeys` become part of the selectors, with the pod's own labels.
fn apply_label_keys(object: &mut Value) {
    let labels = object.below(&["metadata", "labels"]).clone();
    let Some(spec) = object.child_mut("spec") else { return };
    for constraint in spec.items_mut("topologySpreadConstraints") {
        apply_keys_to(constraint, &labels);
    }
    let Some(affinity) = spec.child_mut("affinity") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(terms) = affinity.child_mut(kind) else { continue };
        for term in terms.items_mut("requiredDuringSchedulingIgnoredDuringExecution") {
            apply_keys_to(term, &labels);
        }
        for weighted in terms.items_mut("preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = weighted.child_mut("podAffinityTerm") {
                apply_keys_to(term, &labels);
            }
        }
    }
}

fn apply_keys_to(term: &mut Value, labels: &Value) {
    let mut wanted = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.texts(field) {
            if let Some(value) = labels.text_opt(key) {
                wanted.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    let Some(selector) = term.child_mut("labelSelector") else { return };
    let mut expressions = selector.list("matchExpressions").to_vec();
    let there: HashSet<&Value> = expressions.iter().collect();
    wanted.retain(|requirement| !there.contains(requirement));
    if !wanted.is_empty() {
        expressions.append(&mut wanted);
        selector.put("matchExpressions", expressions);
    }
}

#[cfg(test)]
mod tests;
