//! PersistentVolumeClaim, and the claim specs that pods and StatefulSets embed.

use serde_json::{Value, json};

use super::Strategy;
use super::pod::{defaults, resources};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut, semantically_equal};
use crate::validation::quantity::Quantity;
use crate::validation::{difference, names, selector, values};

const RESIZE_STATUSES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];
pub(crate) const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// The strategy of PersistentVolumeClaims.
pub(crate) struct PersistentVolumeClaim;

impl Strategy for PersistentVolumeClaim {
    fn default(&self, object: &mut Value) {
        object.struct_mut("status").fill_text("phase", "Pending");
        default_spec(object.struct_mut("spec"));
    }

    fn prepare_create(&self, object: &mut Value) {
        object.put("status", json!({"phase": "Pending"}));
        normalize_sources(object.struct_mut("spec"), false);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        object.copy_field("status", old);
        let had_source = old.at("spec").has("dataSource") || old.at("spec").has("dataSourceRef");
        normalize_sources(object.struct_mut("spec"), had_source);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        spec_checks(object.at("spec"), &Path::new("spec"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
        immutable_spec(object, old, errors);
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        let (status, path) = (object.at("status"), Path::new("status"));
        let capacity = path.child("capacity");
        for (name, value) in status.entries("capacity") {
            not_negative(value, &capacity.key(name), errors);
        }
        resizing(status, &path, errors);
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut out = Vec::new();
        if object.below(&["metadata", "annotations"]).has(CLASS_ANNOTATION) {
            out.push(format!(
                "metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use \"storageClassName\" attribute \
                 instead"
            ));
        }
        out
    }
}

/// Checks how far a resize got.
fn resizing(status: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let statuses = path.child("allocatedResourceStatuses");
    for (name, value) in status.text_entries("allocatedResourceStatuses") {
        resizable(name, &statuses, errors);
        if !RESIZE_STATUSES.contains(&value) {
            // Upstream shows the resource where the status belongs.
            errors.push(FieldError::not_supported(&statuses, name, RESIZE_STATUSES));
        }
    }
    let amounts = path.child("allocatedResources");
    for (name, value) in status.entries("allocatedResources") {
        let path = amounts.key(name);
        if resizable(name, &amounts, errors) && not_negative(value, &path, errors) {
            resources::quantity("storage", value, &path, errors);
        }
    }
}

/// Checks the name of what is resized: of Kubernetes' own resources only storage can be.
fn resizable(name: &str, path: &Path<'_>, errors: &mut FieldErrors) -> bool {
    let found = errors.0.len();
    values::invalid_for_each(path, name, names::qualified_name(name), errors);
    if errors.0.len() == found && resources::is_native(name) && name != "storage" {
        errors.push(FieldError::not_supported(path, name, &["storage"]));
    }
    errors.0.len() == found
}

fn not_negative(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) -> bool {
    let quantity = Quantity::from_value(value).unwrap_or(Quantity::ZERO);
    if quantity.sign() < 0 {
        let shown = i64::try_from(quantity.value()).unwrap_or(i64::MIN);
        errors.push(FieldError::invalid(path, shown, "must be a valid resource quantity"));
    }
    quantity.sign() >= 0
}

/// Fills in a claim's spec.
pub(crate) fn default_spec(spec: &mut Value) {
    spec.fill("volumeMode", "Filesystem");
    if let Some(resources) = spec.child_mut("resources") {
        defaults::default_resources(resources);
    }
}

/// `dataSource` and `dataSourceRef` mirror each other; an old-style source must be a claim or a
/// snapshot, or it is ignored.
fn normalize_sources(spec: &mut Value, had_source: bool) {
    let source = spec.at("dataSource").clone();
    if !had_source && !spec.has("dataSourceRef") && !source.is_null() {
        let known = match source.text("apiGroup") {
            "" => source.text("kind") == "PersistentVolumeClaim",
            "snapshot.storage.k8s.io" => source.text("kind") == "VolumeSnapshot",
            _ => false,
        };
        if !known {
            spec.drop_field("dataSource");
            return;
        }
    }
    let reference = spec.at("dataSourceRef").clone();
    if !reference.text("namespace").is_empty() {
        return;
    }
    if reference.is_null() && !source.is_null() {
        spec.put("dataSourceRef", source);
    } else if source.is_null() && !reference.is_null() {
        spec.put("dataSource", reference);
    }
}

/// Checks a claim's spec.
pub(crate) fn spec_checks(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let modes_path = path.child("accessModes");
    let modes = spec.texts("accessModes");
    if modes.is_empty() {
        errors.push(FieldError::required(&modes_path, "at least 1 access mode is required"));
    }
    selector::validate(spec.at("selector"), &path.child("selector"), errors);
    access_modes(&modes, &modes_path, errors);
    let resources_path = path.child("resources");
    let storage_path = resources_path.key("storage");
    let storage = spec.below(&["resources", "requests"]).at("storage");
    match Quantity::from_value(storage) {
        _ if storage.is_null() => errors.push(FieldError::required(&storage_path, "")),
        Some(quantity) if quantity.sign() <= 0 => {
            errors.push(FieldError::invalid(&storage_path, quantity.to_string(), "must be greater than zero"));
        }
        _ => resources::quantity("storage", storage, &storage_path, errors),
    }
    values::optional_text(spec, "storageClassName", names::subdomain, path, errors);
    if spec.has("volumeMode") {
        values::one_of(spec, "volumeMode", &["Block", "Filesystem"], path, errors);
    }
    data_sources(spec, path, errors);
    values::optional_text(spec, "volumeAttributesClassName", names::subdomain, path, errors);
}

/// Checks access modes, one of which excludes the others.
pub(crate) fn access_modes(modes: &[&str], path: &Path<'_>, errors: &mut FieldErrors) {
    for mode in modes {
        if !ACCESS_MODES.contains(mode) {
            errors.push(FieldError::not_supported(path, *mode, ACCESS_MODES));
        }
    }
    let other = modes.iter().any(|mode| *mode != "ReadWriteOncePod" && ACCESS_MODES.contains(mode));
    if modes.contains(&"ReadWriteOncePod") && other {
        errors.push(FieldError::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
    }
}

fn data_sources(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    for field in ["dataSource", "dataSourceRef"] {
        let source = spec.at(field);
        if source.is_null() {
            continue;
        }
        let path = path.child(field);
        values::required(source, "name", &path, errors);
        values::required(source, "kind", &path, errors);
        if source.text("apiGroup").is_empty() {
            if source.text("kind") != "PersistentVolumeClaim" {
                let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
                errors.push(FieldError::invalid(&path, source.text("kind"), detail));
            }
        } else {
            values::optional_text(source, "apiGroup", names::subdomain, &path, errors);
        }
        values::optional_text(source, "namespace", names::label, &path, errors);
    }
    let (source, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    if source.is_null() || reference.is_null() {
        return;
    }
    let detail = if !reference.text("namespace").is_empty() {
        "may not be specified when dataSourceRef.namespace is specified"
    } else if ["apiGroup", "kind", "name"].iter().any(|field| source.text(field) != reference.text(field)) {
        "must match dataSourceRef"
    } else {
        return;
    };
    // Upstream prints a path where the value belongs.
    errors.push(FieldError::invalid(path, json!({}), detail));
}

fn immutable_spec(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let (mut new_spec, mut old_spec) = (object.at("spec").clone(), old.at("spec").clone());
    if old_spec.text("volumeName").is_empty() {
        old_spec.copy_field("volumeName", &new_spec);
    }
    if !old_spec.has("storageClassName") && new_spec.has("storageClassName") {
        new_spec.drop_field("storageClassName");
    }
    if object.at("status").text("phase") == "Bound" {
        if new_spec.at("resources").has("requests") {
            let requests = old_spec.below(&["resources", "requests"]).clone();
            new_spec.struct_mut("resources").struct_mut("requests").copy_field("storage", &requests);
        }
        new_spec.copy_field("volumeAttributesClassName", &old_spec);
    }
    if !semantically_equal(&new_spec, &old_spec) {
        let changes = difference::lines(&old_spec, &new_spec);
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims\n{changes}"
        );
        errors.push(FieldError::forbidden(&path, detail));
    }
    let size = |spec: &Value| {
        Quantity::from_value(spec.below(&["resources", "requests", "storage"])).unwrap_or(Quantity::ZERO)
    };
    let capacity = Quantity::from_value(old.below(&["status", "capacity", "storage"])).unwrap_or(Quantity::ZERO);
    let wanted = size(object.at("spec"));
    if wanted < size(old.at("spec")) && wanted <= capacity {
        let resources_path = path.child("resources");
        let requests = resources_path.child("requests");
        errors.push(FieldError::forbidden(&requests.child("storage"), "field can not be less than status.capacity"));
    }
    values::immutable(object.at("spec"), old.at("spec"), "volumeMode", &Path::root(), errors);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, created, status_errors, update_errors};
    use super::*;

    fn claim(size: &str) -> Value {
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}})
    }

    #[test]
    fn new_claims() {
        assert_eq!(created(&PersistentVolumeClaim, &claim("1Gi"))["status"], json!({"phase": "Pending"}));
        assert_eq!(created(&PersistentVolumeClaim, &claim("1Gi"))["spec"]["volumeMode"], "Filesystem");
        let check =
            |object: Value, expected: &str| assert_eq!(create_errors(&PersistentVolumeClaim, &object), expected);
        check(claim("1Gi"), "[]");
        check(claim("0"), "spec.resources[storage]: Invalid value: \"0\": must be greater than zero");
        check(
            json!({"spec": {}}),
            "[spec.accessModes: Required value: at least 1 access mode is required, spec.resources[storage]: Required \
             value]",
        );
    }

    #[test]
    fn a_resize_says_how_far_it_got() {
        let check = |status: Value, expected: &str| {
            assert_eq!(status_errors(&PersistentVolumeClaim, &claim("1Gi"), &status), expected);
        };
        check(
            json!({"allocatedResourceStatuses": {"storage": "NodeResizePending", "example.com/x": "NodeResizePending"},
                "allocatedResources": {"storage": "1Gi"}}),
            "[]",
        );
        check(
            json!({"allocatedResourceStatuses": {"storage": "X"}}),
            "status.allocatedResourceStatuses: Unsupported value: \"storage\": supported values: \
             \"ControllerResizeInProgress\", \"ControllerResizeInfeasible\", \"NodeResizeInProgress\", \
             \"NodeResizeInfeasible\", \"NodeResizePending\"",
        );
        check(
            json!({"allocatedResourceStatuses": {"cpu": "NodeResizePending"}}),
            "status.allocatedResourceStatuses: Unsupported value: \"cpu\": supported values: \"storage\"",
        );
        check(
            json!({"allocatedResources": {"cpu": "1", "storage": "-1"}, "capacity": {"storage": "-1"}}),
            "[status.capacity[storage]: Invalid value: -1: must be a valid resource quantity, \
             status.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\", \
             status.allocatedResources[storage]: Invalid value: -1: must be a valid resource quantity]",
        );
    }

    #[test]
    fn a_claim_stays_as_it_is() {
        let mut new = claim("1Gi");
        new["spec"]["accessModes"] = json!(["ReadWriteMany"]);
        let text = update_errors(&PersistentVolumeClaim, &claim("1Gi"), &new);
        assert!(text.starts_with("spec: Forbidden: spec is immutable after creation except"), "{text}");
        let mut bound = claim("1Gi");
        bound["spec"]["volumeName"] = "v".into();
        assert_eq!(update_errors(&PersistentVolumeClaim, &claim("1Gi"), &bound), "[]");
    }
}
