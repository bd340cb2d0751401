//! Dynamic resource allocation: claims, their templates, device classes and resource slices. The checks are those of
//! upstream's `pkg/apis/resource/validation`.

mod claim;
mod slice;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde_json::Value;
use windlass_cel::types::Type;
use windlass_cel::{CompileError, Environment};

use super::pod::volumes;
use super::{Strategy, keep_all_but_status, keep_metadata};
use crate::field::{FieldError, FieldErrors, Path};
use crate::strategy::pod::resources;
use crate::validation::access::{Access, AccessMut};
use crate::validation::{names, values};

/// How many selectors a request or a class may have.
const MOST_SELECTORS: usize = 32;
/// How many configurations a claim or a class may have.
const MOST_CONFIGURATIONS: usize = 32;
/// How long an expression of a selector may be.
const LONGEST_EXPRESSION: usize = 10 * 1024;
/// How long the parameters of a configuration may be, as JSON.
const LONGEST_PARAMETERS: usize = 10 * 1024;
/// How long an identifier of an attribute may be.
const LONGEST_IDENTIFIER: usize = 32;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// The strategy of ResourceClaims.
pub(crate) struct ResourceClaim;

/// The strategy of ResourceClaimTemplates.
pub(crate) struct ResourceClaimTemplate;

/// The strategy of DeviceClasses.
pub(crate) struct DeviceClass;

/// The strategy of ResourceSlices.
pub(crate) struct ResourceSlice;

impl Strategy for ResourceClaim {
    fn default(&self, object: &mut Value) {
        default_claim(object.struct_mut("spec"));
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
        keep_metadata(object, old);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        claim::spec(object.at("spec"), &Path::new("spec"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        values::immutable(object, old, "spec", &Path::root(), errors);
    }

    fn validate_status_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        claim::status(object, old, errors);
    }
}

impl Strategy for ResourceClaimTemplate {
    fn default(&self, object: &mut Value) {
        default_claim(object.struct_mut("spec").struct_mut("spec"));
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        claim::spec(object.below(&["spec", "spec"]), &path.child("spec"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        values::immutable(object, old, "spec", &Path::root(), errors);
    }
}

impl Strategy for DeviceClass {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        class(object.at("spec"), &Value::Null, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        class(object.at("spec"), old.at("spec"), errors);
    }
}

impl Strategy for ResourceSlice {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        slice::spec(object.at("spec"), &Value::Null, &Path::new("spec"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        slice::spec(object.at("spec"), old.at("spec"), &Path::new("spec"), errors);
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.nodeName", "spec.driver", "spec.pool.name"]
    }
}

fn default_claim(spec: &mut Value) {
    let Some(devices) = spec.child_mut("devices") else { return };
    for request in devices.items_mut("requests") {
        if let Some(exactly) = request.child_mut("exactly") {
            default_request(exactly);
        }
        for alternative in request.items_mut("firstAvailable") {
            default_request(alternative);
        }
    }
}

fn default_request(request: &mut Value) {
    request.fill_text("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.fill_int("count", 1);
    }
    for toleration in request.items_mut("tolerations") {
        toleration.fill_text("operator", "Equal");
    }
}

/// What has not changed since it was stored is not compiled again: a newer server may have refused it.
fn class(spec: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    if old.is_null() || spec.at("selectors") != old.at("selectors") {
        selectors(spec, &path, errors);
    }
    each(spec.list("config"), MOST_CONFIGURATIONS, &path.child("config"), errors, |config, path, errors| {
        configuration(config, path, spec.at("config") == old.at("config"), errors);
    });
    let name = spec.text("extendedResourceName");
    if spec.has("extendedResourceName") && !resources::is_extended(name) {
        let path = path.child("extendedResourceName");
        errors.push(FieldError::invalid(&path, name, "must be a valid extended resource name"));
    }
}

/// Checks each item of a list; a list that is too long is only counted.
fn each(
    items: &[Value],
    most: usize,
    path: &Path<'_>,
    errors: &mut FieldErrors,
    check: impl Fn(&Value, &Path<'_>, &mut FieldErrors),
) {
    if items.len() > most {
        errors.push(FieldError::too_many(path, items.len(), most));
        return;
    }
    for (i, item) in items.iter().enumerate() {
        check(item, &path.index(i), errors);
    }
}

/// Like [`each`], for items of which none may have the key of another.
fn each_of_set(
    items: &[Value],
    most: usize,
    path: &Path<'_>,
    key: impl Fn(&Value) -> Value,
    errors: &mut FieldErrors,
    check: impl Fn(&Value, &Path<'_>, &mut FieldErrors),
) {
    each(items, most, path, errors, check);
    if items.len() > most {
        return;
    }
    let mut seen = HashSet::new();
    for (i, item) in items.iter().enumerate() {
        let key = key(item);
        if !seen.insert(key.to_string()) {
            errors.push(FieldError::duplicate(&path.index(i), key));
        }
    }
}

/// A device's, a request's or a counter's name.
fn label(owner: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let text = owner.text(field);
    values::invalid_for_each(&path.child(field), text, names::label(text), errors);
}

fn selectors(owner: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    each(owner.list("selectors"), MOST_SELECTORS, &path.child("selectors"), errors, |selector, path, errors| {
        let cel = path.child("cel");
        if selector.has("cel") {
            expression(selector.at("cel").text("expression"), &cel.child("expression"), errors);
        } else {
            errors.push(FieldError::required(&cel, ""));
        }
    });
}

/// An expression about a device. What it may cost is not estimated: that depends on the sizes of attributes.
fn expression(text: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if text.len() > LONGEST_EXPRESSION {
        errors.push(FieldError::too_long(path, LONGEST_EXPRESSION));
        return;
    }
    let environment = Environment::new().with("device", Type::Dyn);
    let why = match windlass_cel::compile(text, &environment) {
        Ok(program) => match program.ty.display("") {
            ty if ty == "bool" || ty == "dyn" => return,
            ty => format!("must evaluate to bool or the unknown type, not {ty}"),
        },
        Err(CompileError::Invalid(why)) => format!("compilation failed: {why}"),
        Err(CompileError::Program(why)) => format!("program instantiation failed: {why}"),
    };
    errors.push(FieldError::invalid(path, text, why));
}

/// `opaque` with the name of a driver and an object of parameters.
fn configuration(config: &Value, path: &Path<'_>, is_stored: bool, errors: &mut FieldErrors) {
    let path = path.child("opaque");
    if !config.has("opaque") {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    let opaque = config.at("opaque");
    volumes::driver_name(opaque, "driver", &path, errors);
    let (parameters, path) = (opaque.at("parameters"), path.child("parameters"));
    if parameters.is_null() {
        errors.push(FieldError::required(&path, ""));
    } else if !is_stored && parameters.to_string().len() > LONGEST_PARAMETERS {
        errors.push(FieldError::too_long(&path, LONGEST_PARAMETERS));
    } else if !parameters.is_object() {
        errors.push(FieldError::invalid(&path, "<value omitted>", "must be a valid JSON object"));
    }
}

/// The name of an attribute or a capacity: an identifier, with a domain before it or without.
fn qualified_name(name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [id] => identifier(id, path, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.push(FieldError::invalid(path, "", "the domain must not be empty"));
            } else {
                if domain.len() > 63 {
                    errors.push(FieldError::too_long(path, 63));
                }
                values::invalid_for_each(path, domain, names::subdomain(&domain.to_lowercase()), errors);
            }
            if id.is_empty() {
                errors.push(FieldError::invalid(path, "", "the name must not be empty"));
            } else {
                identifier(id, path, errors);
            }
        }
        // Upstream accepts names with more slashes.
        _ => {}
    }
}

fn identifier(id: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if id.len() > LONGEST_IDENTIFIER {
        errors.push(FieldError::too_long(path, LONGEST_IDENTIFIER));
    }
    values::invalid_for_each(path, id, names::c_identifier(id), errors);
}

/// Names of a pool are subdomains with slashes between them.
fn pool_name(owner: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let (name, path) = (owner.text(field), path.child(field));
    if name.is_empty() {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    if name.len() > 253 {
        errors.push(FieldError::too_long(&path, 253));
    }
    for part in name.split('/') {
        values::invalid_for_each(&path, part, names::subdomain(part), errors);
    }
}

/// Conditions of binding a device: both lists or none, no condition twice.
fn binding(owner: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let (wanted, failures) = (owner.list("bindingConditions"), owner.list("bindingFailureConditions"));
    for (field, list) in [("bindingConditions", wanted), ("bindingFailureConditions", failures)] {
        each(list, 4, &path.child(field), errors, |condition, path, errors| {
            let name = condition.as_str().unwrap_or_default();
            values::invalid_for_each(path, name, names::qualified_name(name), errors);
        });
    }
    let mut seen = HashSet::new();
    for (i, condition) in wanted.iter().enumerate() {
        if !seen.insert(condition.as_str()) {
            errors.push(FieldError::duplicate(&path.child("bindingConditions").index(i), condition.clone()));
        }
    }
    let mut failed = HashSet::new();
    for (i, condition) in failures.iter().enumerate() {
        let path = path.child("bindingFailureConditions");
        if !failed.insert(condition.as_str()) {
            errors.push(FieldError::duplicate(&path.index(i), condition.clone()));
        }
        if seen.contains(&condition.as_str()) {
            let why = "bindingFailureConditions must not overlap with bindingConditions";
            errors.push(FieldError::invalid(&path.index(i), condition.clone(), why));
        }
    }
    if wanted.is_empty() && !failures.is_empty() {
        let why = "bindingConditions are required to use bindingFailureConditions";
        errors.push(FieldError::invalid(&path.child("bindingConditions"), owner.at("bindingConditions").clone(), why));
    }
    if failures.is_empty() && !wanted.is_empty() {
        let (why, field) =
            ("bindingFailureConditions are required to use bindingConditions", "bindingFailureConditions");
        errors.push(FieldError::invalid(&path.child(field), owner.at(field).clone(), why));
    }
}

/// What must be one of [`EFFECTS`] if it is there.
fn effect(owner: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    values::optional_one_of(owner, "effect", &EFFECTS, path, errors);
}
