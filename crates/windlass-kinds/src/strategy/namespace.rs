//! Namespace: its own finalizers in `spec.finalizers`, the name label, and the phase.

use serde_json::{Value, json};

use super::Strategy;
use super::keep_all_but_status;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{names, values};

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const FINALIZER: &str = "kubernetes";

/// The strategy of Namespaces.
pub(crate) struct Namespace;

impl Strategy for Namespace {
    fn default(&self, object: &mut Value) {
        name_label(object);
        object.struct_mut("status").fill_text("phase", "Active");
    }

    fn prepare_create(&self, object: &mut Value) {
        object.put("status", json!({"phase": "Active"}));
        let spec = object.struct_mut("spec");
        if !spec.texts("finalizers").contains(&FINALIZER) {
            let mut finalizers = spec.list("finalizers").to_vec();
            finalizers.push(FINALIZER.into());
            spec.put("finalizers", finalizers);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        let finalizers = old.at("spec").clone();
        object.struct_mut("spec").copy_field("finalizers", &finalizers);
        object.copy_field("status", old);
    }

    fn holds_deletion(&self, object: &Value) -> bool {
        !object.at("spec").list("finalizers").is_empty()
    }

    fn prepare_delete(&self, object: &mut Value, _now: &str) {
        object.struct_mut("status").put("phase", "Terminating");
    }

    /// `finalize` may change the finalizers and nothing else.
    fn prepare_subresource(&self, _subresource: &str, object: &mut Value, old: &Value) {
        object.copy_field("status", old);
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let spec = Path::new("spec");
        finalizers(object, |_| spec.child("finalizers"), errors);
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        let status = Path::new("status");
        let phase = object.at("status").text("phase");
        let (expected, detail) = if object.at("metadata").has("deletionTimestamp") {
            ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
        } else {
            ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
        };
        if phase != expected {
            errors.push(FieldError::invalid(&status.child("Phase"), phase, detail));
        }
    }

    fn validate_subresource(&self, _subresource: &str, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        let spec = Path::new("spec");
        let path = spec.child("finalizers");
        finalizers(object, |i| path.index(i), errors);
    }

    /// A generated name is not yet known when defaults are applied.
    fn canonicalize(&self, object: &mut Value) {
        name_label(object);
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.phase"]
    }
}

fn name_label(object: &mut Value) {
    let name = object.at("metadata").text("name").to_owned();
    if !name.is_empty() {
        object.struct_mut("metadata").struct_mut("labels").put(NAME_LABEL, name);
    }
}

fn finalizers<'p>(object: &Value, path: impl Fn(usize) -> Path<'p>, errors: &mut FieldErrors) {
    for (i, name) in object.at("spec").texts("finalizers").into_iter().enumerate() {
        let path = path(i);
        values::invalid_for_each(&path, name, names::qualified_name(name), errors);
        if !name.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&path, name, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::created;
    use super::*;

    #[test]
    fn a_new_namespace_is_active_and_held_by_its_finalizer() {
        let object = json!({"metadata": {"name": "a", "labels": {NAME_LABEL: "other"}}, "status": {"phase": "X"}});
        let expected = json!({"metadata": {"name": "a", "labels": {NAME_LABEL: "a"}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        assert_eq!(created(&Namespace, &object), expected);
    }

    #[test]
    fn an_update_keeps_finalizers_and_status() {
        let old = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"}});
        let mut new = json!({"metadata": {"name": "a"}, "spec": {"finalizers": []}});
        Namespace.default(&mut new);
        Namespace.prepare_update(&mut new, &old);
        assert_eq!(new["spec"], old["spec"]);
        assert_eq!(new["metadata"]["labels"][NAME_LABEL], "a");
    }

    #[test]
    fn the_phase_follows_deletion() {
        let mut errors = FieldErrors::default();
        let object = json!({"metadata": {}, "status": {"phase": "Terminating"}});
        Namespace.validate_status_update(&object, &object, &mut errors);
        assert_eq!(
            errors.to_string(),
            "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
        );
    }
}
