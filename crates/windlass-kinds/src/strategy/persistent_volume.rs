//! PersistentVolume.

use serde_json::{Value, json};

use super::Strategy;
use super::persistent_volume_claim::access_modes;
use super::pod::volumes::drivers::{Owner, directory, driver};
use super::pod::{defaults, scheduling, volumes};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut, semantically_equal};
use crate::validation::quantity::Quantity;
use crate::validation::{difference, names, values};

/// The types of volumes in the order upstream checks them; only the first one counts.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// The strategy of PersistentVolumes.
pub(crate) struct PersistentVolume;

impl Strategy for PersistentVolume {
    fn default(&self, object: &mut Value) {
        object.struct_mut("status").fill_text("phase", "Pending");
        let spec = object.struct_mut("spec");
        spec.fill_text("persistentVolumeReclaimPolicy", "Retain");
        spec.fill("volumeMode", "Filesystem");
        default_spec(spec);
    }

    fn prepare_create(&self, object: &mut Value) {
        let now = object.at("metadata").text("creationTimestamp").to_owned();
        object.put("status", json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        required_access_modes(spec, &path.child("accessModes"), errors);
        capacity(spec, &path, errors);
        let policies = ["Delete", "Recycle", "Retain"];
        values::optional_one_of(spec, "persistentVolumeReclaimPolicy", &policies, &path, errors);
        let affinity = spec.at("nodeAffinity");
        let affinity_path = path.child("nodeAffinity");
        if !affinity.is_null() {
            let required = affinity_path.child("required");
            if affinity.has("required") {
                scheduling::node_selector(affinity.at("required"), &required, errors);
            } else {
                errors.push(FieldError::required(&required, "must specify required node constraints"));
            }
        }
        source(spec, object.at("metadata").text("name"), spec.has("nodeAffinity"), &path, errors);
        values::optional_text(spec, "storageClassName", names::subdomain, &path, errors);
        if spec.has("volumeMode") {
            values::one_of(spec, "volumeMode", &["Block", "Filesystem"], &path, errors);
        }
        attributes_class(spec, &path, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
        let (spec, old_spec) = (object.at("spec"), old.at("spec"));
        let (mut new_source, old_source) = (source_of(spec), source_of(old_spec));
        if !old_source.at("csi").has("controllerExpandSecretRef")
            && old_source.has("csi")
            && let Some(csi) = new_source.child_mut("csi")
        {
            csi.drop_field("controllerExpandSecretRef");
        }
        if !semantically_equal(&new_source, &old_source) {
            let path = Path::new("spec");
            let changes = difference::lines(&old_source, &new_source);
            let detail = format!("spec.persistentvolumesource is immutable after creation\n{changes}");
            errors.push(FieldError::forbidden(&path.child("persistentvolumesource"), detail));
        }
        values::immutable(spec, old_spec, "volumeMode", &Path::root(), errors);
        if old_spec.has("nodeAffinity") {
            values::immutable(spec, old_spec, "nodeAffinity", &Path::root(), errors);
        }
        if old_spec.has("volumeAttributesClassName") && !spec.has("volumeAttributesClassName") {
            let path = Path::new("spec");
            let detail = "update from non-nil value to nil is forbidden";
            errors.push(FieldError::forbidden(&path.child("volumeAttributesClassName"), detail));
        }
    }
}

/// Dates the phase that an update of the status sets, unless the client does. Mirrors `PrepareForUpdate` of
/// `persistentvolumeStatusStrategy`.
pub fn date_phase(object: &mut Value, old: &Value, now: &str) {
    const TIME: &str = "lastPhaseTransitionTime";
    let (status, before) = (object.at("status"), old.at("status"));
    let is_same_time = !status.has(TIME) || status.at(TIME) == before.at(TIME);
    if status.text("phase") == before.text("phase") {
        if !status.has(TIME) && before.has(TIME) {
            let time = before.at(TIME).clone();
            object.struct_mut("status").put(TIME, time);
        }
    } else if is_same_time {
        object.struct_mut("status").put(TIME, now);
    }
}

/// Fills in what a spec leaves out, wherever it is.
pub(super) fn default_spec(spec: &mut Value) {
    defaults::round_list(spec, "capacity");
    if let Some(host_path) = spec.child_mut("hostPath") {
        host_path.fill("type", "");
    }
    defaults::default_legacy_volume(spec);
}

/// Checks the spec of a volume inside another object: one that pods have of their own, and that a driver provides.
pub(super) fn validate_inline(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    const UNWANTED: &str = "may not be specified in the context of inline volumes";
    if spec.has("claimRef") {
        errors.push(FieldError::forbidden(&path.child("claimRef"), UNWANTED));
    }
    if !spec.entries("capacity").is_empty() {
        errors.push(FieldError::forbidden(&path.child("capacity"), UNWANTED));
    }
    if !spec.has("csi") {
        let detail = "has to be specified in the context of inline volumes";
        errors.push(FieldError::required(&path.child("csi"), detail));
    }
    required_access_modes(spec, &path.child("accessModes"), errors);
    if !matches!(spec.text("persistentVolumeReclaimPolicy"), "" | "Retain") {
        let detail = "may only be Retain in the context of inline volumes";
        errors.push(FieldError::forbidden(&path.child("persistentVolumeReclaimPolicy"), detail));
    }
    if spec.has("nodeAffinity") {
        errors.push(FieldError::forbidden(&path.child("nodeAffinity"), UNWANTED));
    }
    source(spec, "", false, path, errors);
    if !spec.text("storageClassName").is_empty() {
        errors.push(FieldError::forbidden(&path.child("storageClassName"), UNWANTED));
    }
    if spec.text_opt("volumeMode").is_some_and(|mode| mode != "Filesystem") {
        let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.push(FieldError::forbidden(&path.child("volumeMode"), detail));
    }
}

fn required_access_modes(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let modes = spec.texts("accessModes");
    if modes.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    access_modes(&modes, path, errors);
}

/// The part of a spec that says where the volume is.
fn source_of(spec: &Value) -> Value {
    let fields = SOURCES.iter().filter_map(|field| Some(((*field).to_owned(), spec.get(*field)?.clone())));
    fields.collect::<serde_json::Map<_, _>>().into()
}

fn capacity(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("capacity");
    let entries = spec.entries("capacity");
    if entries.is_empty() {
        errors.push(FieldError::required(&path, ""));
    }
    if !spec.at("capacity").has("storage") || entries.len() > 1 {
        errors.push(FieldError::not_supported(&path, spec.at("capacity").clone(), &["storage"]));
    }
    for (name, value) in entries {
        let quantity = Quantity::from_value(value).unwrap_or(Quantity::ZERO);
        if quantity.sign() <= 0 {
            errors.push(FieldError::invalid(&path.key(name), quantity.to_string(), "must be greater than zero"));
        }
    }
}

/// Checks what says where the volume `name` is.
fn source(spec: &Value, name: &str, has_affinity: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    let mut found = false;
    for kind in SOURCES {
        let source = spec.at(kind);
        if source.is_null() {
            continue;
        }
        // Upstream does not mind a flexVolume beside another source.
        if found && *kind != "flexVolume" {
            let shown = if *kind == "cephfs" { "cephFS" } else { kind };
            errors.push(FieldError::forbidden(&path.child(shown), "may not specify more than 1 volume type"));
            continue;
        }
        found = true;
        match *kind {
            "local" => {
                directory(source, &path.child(kind), errors);
                if !has_affinity {
                    let detail = "Local volume requires node affinity";
                    errors.push(FieldError::required(&path.child("nodeAffinity"), detail));
                }
            }
            "csi" => csi(source, &path.child(kind), errors),
            other => driver(other, source, Owner::PersistentVolume(name), path, errors),
        }
    }
    if !found {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
    let recycled = spec.text("persistentVolumeReclaimPolicy") == "Recycle";
    if recycled && is_root(spec.at("hostPath").text("path")) {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden(&path.child("persistentVolumeReclaimPolicy"), detail));
    }
}

/// Whether a path leads to `/`, whatever the detours.
fn is_root(directory: &str) -> bool {
    let mut depth = 0_usize;
    for step in directory.split('/') {
        match step {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    directory.starts_with('/') && depth == 0
}

fn csi(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    volumes::driver_name(source, "driver", path, errors);
    values::required(source, "volumeHandle", path, errors);
    for field in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        if source.has(field) {
            let (secret, path) = (source.at(field), path.child(field));
            values::required_text(secret, "name", names::subdomain, &path, errors);
            values::required_text(secret, "namespace", names::label, &path, errors);
        }
    }
}

fn attributes_class(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some(class) = spec.text_opt("volumeAttributesClassName") else { return };
    let class_path = path.child("volumeAttributesClassName");
    if class.is_empty() {
        errors.push(FieldError::required(&class_path, "an empty string is disallowed"));
    } else {
        values::invalid_for_each(&class_path, class, names::subdomain(class), errors);
    }
    if !spec.has("csi") {
        let detail = "has to be specified when using volumeAttributesClassName";
        errors.push(FieldError::required(&path.child("csi"), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, update_errors};
    use super::*;

    /// A volume with these fields beside those every volume has.
    fn volume(fields: &Value) -> Value {
        let mut volume = json!({"metadata": {"name": "pv"},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
        for (field, value) in fields.as_object().into_iter().flatten() {
            volume["spec"].put(field, value.clone());
        }
        volume
    }

    #[test]
    fn a_change_of_phase_is_dated() {
        let of = |phase: &str, time: Option<&str>| match time {
            Some(time) => json!({"status": {"phase": phase, "lastPhaseTransitionTime": time}}),
            None => json!({"status": {"phase": phase}}),
        };
        let check = |mut new: Value, expected: Option<&str>| {
            date_phase(&mut new, &of("Pending", Some("then")), "now");
            assert_eq!(new["status"]["lastPhaseTransitionTime"].as_str(), expected);
        };
        check(of("Pending", None), Some("then"));
        check(of("Pending", Some("set")), Some("set"));
        check(of("Bound", None), Some("now"));
        check(of("Bound", Some("then")), Some("now"));
        check(of("Bound", Some("set")), Some("set"));
    }

    #[test]
    fn volumes_have_one_source_and_a_capacity() {
        let made = volume(&json!({"hostPath": {"path": "/x"}}));
        assert_eq!(create_errors(&PersistentVolume, &made), "[]");
        let none = volume(&json!({}));
        assert_eq!(create_errors(&PersistentVolume, &none), "spec: Required value: must specify a volume type");
        let other = volume(&json!({"hostPath": {"path": "/y"}}));
        assert!(
            update_errors(&PersistentVolume, &made, &other)
                .starts_with("spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable")
        );
    }

    #[test]
    fn sources_are_checked() {
        let check = |fields: Value, expected: &str| {
            let volume = volume(&fields);
            assert_eq!(create_errors(&PersistentVolume, &volume), expected);
            assert_eq!(update_errors(&PersistentVolume, &volume, &volume), expected);
        };
        check(
            json!({"hostPath": {"path": "/a/..x/../../", "type": "x"}, "persistentVolumeReclaimPolicy": "Recycle"}),
            "[spec.hostPath.path: Invalid value: \"/a/..x/../../\": must not contain '..', spec.hostPath.type: \
             Unsupported value: \"x\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \
             \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\", spec.persistentVolumeReclaimPolicy: \
             Forbidden: may not be 'recycle' for a hostPath mount of '/']",
        );
        check(
            json!({"fc": {}}),
            "spec.fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both",
        );
        check(json!({"storageos": {}}), "spec.storageos.volumeName: Required value");
        check(
            json!({"iscsi": {"targetPortal": "p", "iqn": "x", "lun": 300}}),
            "[spec.iscsi.iqn: Invalid value: \"x\": must be valid format, spec.iscsi.lun: Invalid value: 300: must be \
             between 0 and 255, inclusive]",
        );
        check(
            json!({"csi": {"driver": "d", "volumeHandle": "h", "nodeExpandSecretRef": {},
                "controllerPublishSecretRef": {"name": "a", "namespace": "b"}}}),
            "[spec.csi.nodeExpandSecretRef.name: Required value, spec.csi.nodeExpandSecretRef.namespace: Required value]",
        );
        check(
            json!({"local": {"path": "/x"}}),
            "spec.nodeAffinity: Required value: Local volume requires node affinity",
        );
        check(
            json!({"cephfs": {"monitors": ["m"]}, "flexVolume": {"driver": "d"}, "rbd": {"image": "i", "monitors": ["m"]}}),
            "spec.cephFS: Forbidden: may not specify more than 1 volume type",
        );
    }

    #[test]
    fn attributes_are_those_of_a_csi_volume() {
        let csi = json!({"driver": "d", "volumeHandle": "h"});
        let gold = volume(&json!({"csi": csi, "volumeAttributesClassName": "gold"}));
        assert_eq!(create_errors(&PersistentVolume, &gold), "[]");
        let host = json!({"hostPath": {"path": "/x"}, "volumeAttributesClassName": ""});
        assert_eq!(
            create_errors(&PersistentVolume, &volume(&host)),
            "[spec.volumeAttributesClassName: Required value: an empty string is disallowed, spec.csi: Required value: \
             has to be specified when using volumeAttributesClassName]"
        );
        assert_eq!(
            update_errors(&PersistentVolume, &gold, &volume(&json!({ "csi": csi }))),
            "spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"
        );
    }
}
