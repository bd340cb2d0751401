//! How objects of a custom kind behave: upstream's `pkg/registry/customresource`.

use serde_json::Value;

use super::{Compiled, CustomVersion};
use crate::field::{ErrorKind, FieldError, FieldErrors, Path, quote};
use crate::schema::validate::{self, embedded, list_type};
use crate::schema::{Schema, default};
use crate::strategy::Strategy;
use crate::validation::access::{Access, AccessMut};
use crate::validation::names;

impl Strategy for CustomVersion {
    fn default(&self, object: &mut Value) {
        default::apply(object, &self.schema());
    }

    fn prepare_create(&self, object: &mut Value) {
        if self.status {
            object.drop_field("status");
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        if self.status {
            object.copy_field("status", old);
        }
    }

    /// Only the status changes; of the metadata, who manages which field.
    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        let new = std::mem::replace(object, old.clone());
        object.copy_field("status", &new);
        if let Some(metadata) = object.child_mut("metadata") {
            metadata.copy_field("managedFields", new.at("metadata"));
        }
    }

    fn desired_state_changed(&self, object: &Value, old: &Value) -> bool {
        let (Value::Object(new), Value::Object(old)) = (object, old) else { return object != old };
        let counts = |name: &str| name != "metadata" && !(self.status && name == "status");
        new.iter().filter(|(name, _)| counts(name)).any(|(name, value)| old.get(name) != Some(value))
            || old.keys().any(|name| counts(name) && !new.contains_key(name))
    }

    fn is_long(&self, object: &Value, old: Option<&Value>) -> bool {
        CustomVersion::is_long(self, object, old)
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let compiled = self.compiled();
        compiled.find_growth();
        if self.wrong_type(object, errors) {
            return;
        }
        let schema = &*compiled.schema;
        validate::validate(object, schema, "", errors);
        self.validate_scale(object, errors);
        embedded::validate(object, schema, &Path::root(), errors);
        list_type::validate(object, schema, errors);
        compiled.validate_rules(object, None, errors, &mut Vec::new());
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.check_update("", object, old, errors, &mut Vec::new());
    }

    fn validate_status_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.check_update("status", object, old, errors, &mut Vec::new());
    }

    /// Rules that fail on what did not change only warn.
    fn check_update(
        &self,
        subresource: &str,
        object: &Value,
        old: &Value,
        errors: &mut FieldErrors,
        warnings: &mut Vec<String>,
    ) {
        let compiled = self.compiled();
        compiled.find_growth();
        if self.wrong_type(object, errors) {
            return;
        }
        let schema = &*compiled.schema;
        if subresource == "status" {
            self.validate_status(schema, object, old, errors);
        } else {
            validate::validate_update(object, old, schema, "", errors);
            self.validate_scale(object, errors);
            embedded::validate(object, schema, &Path::root(), errors);
        }
        validate_list_types(schema, object, old, errors);
        compiled.validate_rules(object, Some(old), errors, warnings);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        finalizer_warnings(object, old)
    }
}

impl CustomVersion {
    fn wrong_type(&self, object: &Value, errors: &mut FieldErrors) -> bool {
        let before = errors.0.len();
        for (name, expected) in [("kind", &self.kind), ("apiVersion", &self.api_version)] {
            let actual = object.text(name);
            if actual != &**expected {
                errors.push(FieldError::invalid(&Path::new(name), actual, format!("must be {expected}")));
            }
        }
        errors.0.len() > before
    }

    fn validate_scale(&self, object: &Value, errors: &mut FieldErrors) {
        if let Some(scale) = &self.scale {
            scale.validate_spec(object, errors);
            scale.validate_status(object, errors);
        }
    }

    fn validate_status(&self, schema: &Schema, object: &Value, old: &Value, errors: &mut FieldErrors) {
        if let (Some(status), Some(schema)) = (object.get("status"), schema.properties.get("status")) {
            match old.get("status") {
                Some(old) => validate::validate_update(status, old, schema, "status", errors),
                None => validate::validate(status, schema, "status", errors),
            }
        }
        if let Some(scale) = &self.scale {
            scale.validate_status(object, errors);
        }
    }
}

impl Compiled {
    /// Rules only look at objects whose shape is right, that of their metadata included.
    fn validate_rules(
        &self,
        object: &Value,
        old: Option<&Value>,
        errors: &mut FieldErrors,
        warnings: &mut Vec<String>,
    ) {
        let Some(rules) = self.rules() else { return };
        if errors.0.iter().any(|error| blocks_rules(error.kind)) {
            let detail = "some validation rules were not checked because the object was invalid; \
                          correct the existing errors to complete validation";
            errors.push(FieldError::invalid(&Path::root(), Value::Null, detail));
        } else {
            rules.validate(&self.schema, object, old, errors, warnings);
        }
    }
}

/// Duplicates that were there before are tolerated, all of them.
fn validate_list_types(schema: &Schema, object: &Value, old: &Value, errors: &mut FieldErrors) {
    let mut found = FieldErrors::default();
    list_type::validate(object, schema, &mut found);
    if found.is_empty() {
        return;
    }
    let mut found_before = FieldErrors::default();
    list_type::validate(old, schema, &mut found_before);
    if found_before.is_empty() {
        errors.0.append(&mut found.0);
    }
}

fn blocks_rules(kind: ErrorKind) -> bool {
    use ErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}

/// Warns of finalizers whose names other programs might choose too.
fn finalizer_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let known = old.map(|old| old.at("metadata").texts("finalizers")).unwrap_or_default();
    let mut added = object.at("metadata").texts("finalizers");
    added.retain(|finalizer| !known.contains(finalizer));
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for finalizer in added {
        let about = format!("metadata.finalizers: {}", quote(finalizer));
        warnings.extend(names::qualified_name(finalizer).iter().map(|reason| format!("{about}: {reason}")));
        if finalizer.contains('/') || matches!(finalizer, "orphan" | "foregroundDeletion" | "kubernetes") {
            continue;
        }
        let including = if finalizer.contains('.') { " including a path (/)" } else { "" };
        warnings.push(format!(
            "{about}: prefer a domain-qualified finalizer name{including} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    warnings
}
