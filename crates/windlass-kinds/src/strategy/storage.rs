//! StorageClass, CSIDriver, CSINode, VolumeAttachment, VolumeAttributesClass and CSIStorageCapacity.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::pod::volumes;
use super::{Strategy, keep_all_but_status, keep_metadata, persistent_volume};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut, semantically_equal};
use crate::validation::quantity::Quantity;
use crate::validation::{names, selector, values};

const PARAMETERS_MAX: usize = 256 * 1024;

/// The strategy of StorageClasses.
pub(crate) struct StorageClass;

/// The strategy of CSIDrivers.
pub(crate) struct CsiDriver;

/// The strategy of CSINodes.
pub(crate) struct CsiNode;

/// The strategy of VolumeAttachments.
pub(crate) struct VolumeAttachment;

/// The strategy of VolumeAttributesClasses.
pub(crate) struct VolumeAttributesClass;

/// The strategy of CSIStorageCapacities.
pub(crate) struct CsiStorageCapacity;

impl Strategy for StorageClass {
    fn default(&self, object: &mut Value) {
        object.fill("reclaimPolicy", "Delete");
        object.fill("volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let root = Path::root();
        provisioner(object, "provisioner", errors);
        parameters(object, errors);
        values::optional_one_of(object, "reclaimPolicy", &["Delete", "Retain"], &root, errors);
        values::required_one_of(object, "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], &root, errors);
        topologies(object, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        unchanged(object, old, &["parameters", "provisioner", "reclaimPolicy"], errors);
        values::immutable(object, old, "volumeBindingMode", &Path::root(), errors);
    }
}

impl Strategy for CsiDriver {
    fn default(&self, object: &mut Value) {
        let spec = object.struct_mut("spec");
        spec.fill("attachRequired", true);
        for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
            spec.fill(field, false);
        }
        spec.fill("fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec.list("volumeLifecycleModes").is_empty() {
            spec.put("volumeLifecycleModes", json!(["Persistent"]));
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        let policies = ["File", "None", "ReadWriteOnceWithFSType"];
        values::optional_one_of(spec, "fsGroupPolicy", &policies, &path, errors);
        let modes_path = path.child("volumeLifecycleModes");
        for mode in spec.texts("volumeLifecycleModes") {
            if !["Persistent", "Ephemeral"].contains(&mode) {
                errors.push(FieldError::not_supported(&modes_path, mode, &["Persistent", "Ephemeral"]));
            }
        }
        token_requests(spec, &path, errors);
        if let Some(seconds) = spec.int_opt("nodeAllocatableUpdatePeriodSeconds")
            && seconds < 10
        {
            let detail = "must be greater than or equal to 10 seconds";
            errors.push(FieldError::invalid(&path.child("nodeAllocatableUpdatePeriodSeconds"), seconds, detail));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
        let path = Path::new("spec");
        let (spec, old_spec) = (object.at("spec"), old.at("spec"));
        if spec.at("attachRequired") != old_spec.at("attachRequired") {
            // The spelling is upstream's.
            let shown = spec.at("attachRequired").clone();
            errors.push(FieldError::invalid(&path.child("attachedRequired"), shown, values::IMMUTABLE));
        }
        values::immutable(spec, old_spec, "volumeLifecycleModes", &path, errors);
    }
}

impl Strategy for CsiNode {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let spec = Path::new("spec");
        let path = spec.child("drivers");
        let mut seen = HashSet::new();
        for (i, driver) in object.at("spec").list("drivers").iter().enumerate() {
            let path = path.index(i);
            volumes::driver_name(driver, "name", &path, errors);
            let node = driver.text("nodeID");
            if node.is_empty() {
                errors.push(FieldError::required(&path.child("nodeID"), ""));
            } else if node.len() > 256 {
                errors.push(FieldError::invalid(&path.child("nodeID"), node, "must be 256 characters or less"));
            }
            let allocatable = path.child("allocatable");
            values::not_negative(driver.at("allocatable").int("count"), &allocatable.child("count"), errors);
            if !seen.insert(driver.text("name")) {
                errors.push(FieldError::duplicate(&path.child("name"), driver.text("name")));
            }
            for key in driver.texts("topologyKeys") {
                values::invalid_for_each(&path, key, names::qualified_name(key), errors);
            }
        }
    }
}

impl Strategy for VolumeAttributesClass {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        provisioner(object, "driverName", errors);
        parameters(object, errors);
        if object.entries("parameters").is_empty() {
            let detail = "must contain at least one key/value pair";
            errors.push(FieldError::required(&Path::new("parameters"), detail));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        unchanged(object, old, &["driverName", "parameters"], errors);
        self.validate(object, errors);
    }
}

impl Strategy for CsiStorageCapacity {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        selector::validate(object.at("nodeTopology"), &Path::new("nodeTopology"), errors);
        values::required_text(object, "storageClassName", names::subdomain, &Path::root(), errors);
        for field in ["capacity", "maximumVolumeSize"] {
            if let Some(quantity) = object.get(field).and_then(Quantity::from_value)
                && quantity.sign() < 0
            {
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(&Path::new(field), quantity.to_string(), detail));
            }
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
        values::immutable(object, old, "nodeTopology", &Path::root(), errors);
        values::immutable(object, old, "storageClassName", &Path::root(), errors);
    }
}

impl Strategy for VolumeAttachment {
    fn default(&self, object: &mut Value) {
        let source = object.child_mut("spec").and_then(|spec| spec.child_mut("source"));
        if let Some(volume) = source.and_then(|source| source.child_mut("inlineVolumeSpec")) {
            persistent_volume::default_spec(volume);
        }
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
        keep_metadata(object, old);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        volumes::driver_name(spec, "attacher", &path, errors);
        let source_path = path.child("source");
        let source = spec.at("source");
        let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        let name_path = source_path.child("persistentVolumeName");
        let name = source.text_opt("persistentVolumeName");
        match (source.has("inlineVolumeSpec"), name) {
            (false, None) => errors.push(FieldError::required(&source_path, detail)),
            (true, Some(_)) => errors.push(FieldError::forbidden(&source_path, detail)),
            (false, Some("")) => {
                errors.push(FieldError::required(&name_path, "must specify non empty persistentVolumeName"));
            }
            (false, Some(_)) => {}
            (true, None) => {
                let path = source_path.child("inlineVolumeSpec");
                persistent_volume::validate_inline(source.at("inlineVolumeSpec"), &path, errors);
            }
        }
        let node = spec.text("nodeName");
        values::invalid_for_each(&path.child("nodeName"), node, names::subdomain(node), errors);
        if let Some(name) = name {
            values::invalid_for_each(&name_path, name, names::subdomain(name), errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
        values::immutable(object, old, "spec", &Path::root(), errors);
    }
}

fn token_requests(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("tokenRequests");
    let mut seen = HashSet::new();
    for (i, request) in spec.list("tokenRequests").iter().enumerate() {
        let path = path.index(i);
        let audience = request.text("audience");
        if !seen.insert(audience) {
            errors.push(FieldError::duplicate(&path.child("audience"), audience));
            continue;
        }
        let detail = match request.int_opt("expirationSeconds") {
            Some(seconds) if seconds < 600 => "may not specify a duration less than 10 minutes",
            Some(seconds) if seconds > 1 << 32 => "may not specify a duration larger than 2^32 seconds",
            _ => continue,
        };
        let seconds = request.int("expirationSeconds");
        errors.push(FieldError::invalid(&path.child("expirationSeconds"), seconds, detail));
    }
}

fn provisioner(object: &Value, field: &str, errors: &mut FieldErrors) {
    if values::required(object, field, &Path::root(), errors) {
        let name = object.text(field).to_lowercase();
        values::invalid_for_each(&Path::new(field), &name, names::qualified_name(&name), errors);
    }
}

fn unchanged(object: &Value, old: &Value, fields: &[&str], errors: &mut FieldErrors) {
    for field in fields {
        if !semantically_equal(object.at(field), old.at(field)) {
            let detail = format!("updates to {field} are forbidden.");
            errors.push(FieldError::forbidden(&Path::new(field), detail));
        }
    }
}

fn parameters(object: &Value, errors: &mut FieldErrors) {
    let path = Path::new("parameters");
    let entries = object.text_entries("parameters");
    if entries.len() > 512 {
        errors.push(FieldError::too_long(&path, 512));
        return;
    }
    let mut size = 0;
    for (key, value) in entries {
        if key.is_empty() {
            errors.push(FieldError::invalid(&path, key, "field can not be empty."));
        }
        size += key.len() + value.len();
    }
    if size > PARAMETERS_MAX {
        errors.push(FieldError::too_long(&path, PARAMETERS_MAX));
    }
}

fn topologies(object: &Value, errors: &mut FieldErrors) {
    let path = Path::new("allowedTopologies");
    let mut terms = HashSet::new();
    for (i, term) in object.list("allowedTopologies").iter().enumerate() {
        let term_path = path.index(i);
        let expressions_path = term_path.child("matchLabelExpressions");
        let mut keys = HashSet::new();
        for (j, expression) in term.list("matchLabelExpressions").iter().enumerate() {
            let path = expressions_path.index(j);
            let values_path = path.child("values");
            let listed = expression.texts("values");
            if listed.is_empty() {
                errors.push(FieldError::required(&values_path, ""));
            }
            let mut seen = HashSet::new();
            for (k, value) in listed.into_iter().enumerate().filter(|(_, value)| !seen.insert(*value)) {
                errors.push(FieldError::duplicate(&values_path.index(k), value));
            }
            let key = expression.text("key");
            values::invalid_for_each(&path.child("key"), key, names::qualified_name(key), errors);
            if !keys.insert(key) {
                errors.push(FieldError::duplicate(&path.child("key"), key));
            }
        }
        if !terms.insert(term) {
            errors.push(FieldError::duplicate(&expressions_path, ""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, created, update_errors};
    use super::*;

    #[test]
    fn storage_classes() {
        let class = json!({"provisioner": "x.example.com/y"});
        let made = created(&StorageClass, &class);
        assert_eq!(made["reclaimPolicy"], "Delete");
        assert_eq!(made["volumeBindingMode"], "Immediate");
        assert_eq!(create_errors(&StorageClass, &class), "[]");
        assert_eq!(create_errors(&StorageClass, &json!({})), "provisioner: Required value");
        assert_eq!(
            update_errors(&StorageClass, &class, &json!({"provisioner": "z.example.com/y"})),
            "provisioner: Forbidden: updates to provisioner are forbidden."
        );
    }

    #[test]
    fn drivers_ask_for_one_token_of_each_audience() {
        let check = |requests: Value, expected: &str| {
            assert_eq!(create_errors(&CsiDriver, &json!({"spec": {"tokenRequests": requests}})), expected);
        };
        check(json!([{"audience": "a", "expirationSeconds": 600}, {"audience": ""}]), "[]");
        check(
            json!([{"audience": "a", "expirationSeconds": 1}, {"audience": "a", "expirationSeconds": 1}]),
            "[spec.tokenRequests[0].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 \
             minutes, spec.tokenRequests[1].audience: Duplicate value: \"a\"]",
        );
    }

    #[test]
    fn attachments_are_of_a_named_volume_or_of_one_inline() {
        let check = |source: Value, expected: &str| {
            let attachment = json!({"spec": {"attacher": "a", "nodeName": "n", "source": source}});
            assert_eq!(create_errors(&VolumeAttachment, &attachment), expected);
        };
        let csi = json!({"driver": "d", "volumeHandle": "h"});
        check(json!({"persistentVolumeName": "pv"}), "[]");
        check(json!({"inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"], "csi": csi}}), "[]");
        check(
            json!({"inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"], "csi": csi, "volumeMode": "Filesystem",
                "persistentVolumeReclaimPolicy": "Retain"}}),
            "[]",
        );
        let only = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        check(json!({}), &format!("spec.source: Required value: {only}"));
        check(
            json!({"persistentVolumeName": "pv", "inlineVolumeSpec": {}}),
            &format!("spec.source: Forbidden: {only}"),
        );
        check(
            json!({"inlineVolumeSpec": {}}),
            "[spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes, \
             spec.source.inlineVolumeSpec.accessModes: Required value, spec.source.inlineVolumeSpec: Required value: must \
             specify a volume type]",
        );
        check(
            json!({"inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"], "csi": csi, "claimRef": {"name": "c"},
                "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Delete", "nodeAffinity": {},
                "storageClassName": "s", "volumeMode": "Block", "local": {"path": "/x"}}}),
            "[spec.source.inlineVolumeSpec.claimRef: Forbidden: may not be specified in the context of inline volumes, \
             spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes, \
             spec.source.inlineVolumeSpec.persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of \
             inline volumes, spec.source.inlineVolumeSpec.nodeAffinity: Forbidden: may not be specified in the context of \
             inline volumes, spec.source.inlineVolumeSpec.nodeAffinity: Required value: Local volume requires node \
             affinity, spec.source.inlineVolumeSpec.csi: Forbidden: may not specify more than 1 volume type, \
             spec.source.inlineVolumeSpec.storageClassName: Forbidden: may not be specified in the context of inline \
             volumes, spec.source.inlineVolumeSpec.volumeMode: Forbidden: may not specify volumeMode other than Filesystem \
             in the context of inline volumes]",
        );
    }

    #[test]
    fn inline_volumes_have_the_defaults_of_volumes() {
        let attachment = json!({"spec": {"source": {"inlineVolumeSpec": {"rbd": {}, "volumeMode": null}}}});
        let made = created(&VolumeAttachment, &attachment);
        let rbd = json!({"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"});
        assert_eq!(made["spec"]["source"]["inlineVolumeSpec"]["rbd"], rbd);
    }
}
