//! Dynamic resource allocation: claims, their templates, device classes and resource slices. Checked
//! lightly: what may not change, and what must be named.

use serde_json::Value;

use super::{Strategy, keep_all_but_status, keep_metadata};
use crate::field::{FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{names, values};

/// The strategy of ResourceClaims.
pub(crate) struct ResourceClaim;

/// The strategy of ResourceClaimTemplates.
pub(crate) struct ResourceClaimTemplate;

/// The strategy of DeviceClasses.
pub(crate) struct DeviceClass;

/// The strategy of ResourceSlices.
pub(crate) struct ResourceSlice;

impl Strategy for ResourceClaim {
    fn status_reset_fields(&self) -> &'static [&'static str] {
        &["metadata", "spec"]
    }

    fn default(&self, object: &mut Value) {
        default_claim(object.struct_mut("spec"));
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
        keep_metadata(object, old);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        claim(object.at("spec"), &Path::new("spec"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        values::immutable(object, old, "spec", &Path::root(), errors);
    }
}

impl Strategy for ResourceClaimTemplate {
    fn default(&self, object: &mut Value) {
        default_claim(object.struct_mut("spec").struct_mut("spec"));
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        claim(object.below(&["spec", "spec"]), &path.child("spec"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        values::immutable(object, old, "spec", &Path::root(), errors);
    }
}

impl Strategy for DeviceClass {
    fn has_generation(&self) -> bool {
        true
    }
}

impl Strategy for ResourceSlice {
    fn has_generation(&self) -> bool {
        true
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        values::required_text(spec, "driver", names::subdomain, &path, errors);
        values::required(spec.at("pool"), "name", &path.child("pool"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
        let path = Path::new("spec");
        let (spec, old_spec) = (object.at("spec"), old.at("spec"));
        values::immutable(spec, old_spec, "driver", &path, errors);
        values::immutable(spec.at("pool"), old_spec.at("pool"), "name", &path.child("pool"), errors);
        values::immutable(spec, old_spec, "nodeName", &path, errors);
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

fn claim(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let devices = path.child("devices");
    let path = devices.child("requests");
    for (i, request) in spec.at("devices").list("requests").iter().enumerate() {
        values::required_text(request, "name", names::label, &path.index(i), errors);
    }
}
