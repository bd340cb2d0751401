//! ReplicationController and PodTemplate: the workloads that came before the `apps` group.

use serde_json::Value;

use super::{Strategy, pod, workload};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::selector::Selector;
use crate::validation::values;

/// The strategy of ReplicationControllers.
pub(crate) struct ReplicationController;

/// The strategy of PodTemplates.
pub(crate) struct PodTemplate;

impl Strategy for ReplicationController {
    fn default(&self, object: &mut Value) {
        let labels = object.below(&["spec", "template", "metadata", "labels"]).clone();
        if labels.is_object() {
            if object.at("spec").entries("selector").is_empty() {
                object.struct_mut("spec").put("selector", labels.clone());
            }
            if object.at("metadata").entries("labels").is_empty() {
                object.struct_mut("metadata").put("labels", labels);
            }
        }
        let spec = object.struct_mut("spec");
        spec.fill("replicas", 1);
        if let Some(template) = spec.child_mut("template") {
            pod::defaults::template(template);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        workload::prepare_create(object, &["spec", "template"]);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        workload::prepare_update(object, old, &["spec", "template"]);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        self.validate_update(object, &Value::Null, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        values::not_negative_field(spec, "minReadySeconds", &path, errors);
        if spec.entries("selector").is_empty() {
            errors.push(FieldError::required(&path.child("selector"), ""));
        }
        values::not_negative_field(spec, "replicas", &path, errors);
        let template_path = path.child("template");
        if spec.has("template") {
            let parsed = Selector::from_labels(spec.at("selector"));
            let old = old.below(&["spec", "template"]);
            workload::selected_template(spec.at("template"), old, &parsed, &template_path, errors);
            workload::always_restarted(spec.at("template"), "ReplicationController", &template_path, errors);
        } else {
            errors.push(FieldError::required(&template_path, ""));
        }
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        let status = object.at("status");
        let counts = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        workload::status_counts(status, &counts, &parts, errors);
        workload::available_are_ready(status, "cannot be greater than readyReplicas", errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, true)
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.replicas"]
    }

    fn field_value(&self, object: &Value, _field: &str) -> String {
        object.at("status").int("replicas").to_string()
    }
}

impl Strategy for PodTemplate {
    fn default(&self, object: &mut Value) {
        pod::defaults::template(object.struct_mut("template"));
    }

    fn desired_state_changed(&self, object: &Value, old: &Value) -> bool {
        object.at("template") != old.at("template")
    }

    fn prepare_create(&self, object: &mut Value) {
        workload::prepare_create(object, &["template"]);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        workload::prepare_update(object, old, &["template"]);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        self.validate_update(object, &Value::Null, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        pod::template::validate(object.at("template"), old.at("template"), &Path::new("template"), errors);
    }
}
