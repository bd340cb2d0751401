//! How containers mount volumes and devices.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::env::{local_path, no_backsteps};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::values;

/// The names and the paths of some mounts or devices.
#[derive(Default)]
struct Texts<'a> {
    names: HashSet<&'a str>,
    paths: HashSet<&'a str>,
}

impl<'a> Texts<'a> {
    fn of(list: &'a [Value], path: &str) -> Self {
        let (names, paths) = list.iter().map(|item| (item.text("name"), item.text(path))).unzip();
        Self { names, paths }
    }
}

/// Checks `volumeMounts` and `volumeDevices` of a container against the pod's valid volumes.
pub(super) fn mounts(container: &Value, volumes: &HashMap<&str, &Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    let mounts_path = path.child("volumeMounts");
    let (mounts, devices) = (container.list("volumeMounts"), container.list("volumeDevices"));
    let device_texts = Texts::of(devices, "devicePath");
    let mut mounted = Texts::default();
    for (i, mount) in mounts.iter().enumerate() {
        let path = mounts_path.index(i);
        let name = mount.text("name");
        let mount_path = mount.text("mountPath");
        values::required(mount, "name", &path, errors);
        if !volumes.contains_key(name) {
            errors.push(FieldError::not_found(&path.child("name"), name));
        }
        values::required(mount, "mountPath", &path, errors);
        mounted.names.insert(name);
        if !mounted.paths.insert(mount_path) {
            errors.push(FieldError::invalid(&path.child("mountPath"), mount_path, "must be unique"));
        }
        if device_texts.names.contains(name) {
            let detail = "must not already exist in volumeDevices";
            errors.push(FieldError::invalid(&path.child("name"), name, detail));
        }
        if device_texts.paths.contains(mount_path) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid(&path.child("mountPath"), mount_path, detail));
        }
        mount_options(mount, container, &mounts_path, &path, errors);
    }
    let mut seen = Texts::default();
    for (i, device) in devices.iter().enumerate() {
        let path = path.child("volumeDevices");
        volume_device(device, &mut seen, &mounted, volumes, &path.index(i), errors);
    }
}

/// Most of these are reported at the list, not at the item: upstream's paths.
fn mount_options(mount: &Value, container: &Value, list: &Path<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    let sub_path = mount.text("subPath");
    if !sub_path.is_empty() {
        local_path(sub_path, &list.child("subPath"), errors);
    }
    let expression = mount.text("subPathExpr");
    if !expression.is_empty() {
        if !sub_path.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.push(FieldError::invalid(&path.child("subPathExpr"), expression, detail));
        }
        local_path(expression, &list.child("subPathExpr"), errors);
    }
    if let Some(propagation) = mount.text_opt("mountPropagation") {
        let supported = ["Bidirectional", "HostToContainer", "None"];
        values::one_of(mount, "mountPropagation", &supported, list, errors);
        if propagation == "Bidirectional" && !container.at("securityContext").flag("privileged") {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(FieldError::forbidden(&list.child("mountPropagation"), detail));
        }
    }
    let recursive_path = list.child("recursiveReadOnly");
    match mount.text_opt("recursiveReadOnly") {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.flag("readOnly") {
                let detail = "may only be specified when readOnly is true";
                errors.push(FieldError::forbidden(&recursive_path, detail));
            }
            if !["", "None"].contains(&mount.text("mountPropagation")) {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(&recursive_path, detail));
            }
        }
        Some(other) => {
            let supported = ["Disabled", "Enabled", "IfPossible"];
            errors.push(FieldError::not_supported(&recursive_path, other, &supported));
        }
    }
}

fn volume_device<'a>(
    device: &'a Value,
    before: &mut Texts<'a>,
    mounts: &Texts<'_>,
    volumes: &HashMap<&str, &Value>,
    path: &Path<'_>,
    errors: &mut FieldErrors,
) {
    let (name, device_path) = (device.text("name"), device.text("devicePath"));
    let name_field = path.child("name");
    let path_field = path.child("devicePath");
    values::required(device, "name", path, errors);
    if !before.names.insert(name) && !name.is_empty() {
        errors.push(FieldError::invalid(&name_field, name, "must be unique"));
    }
    match volumes.get(name) {
        None => errors.push(FieldError::not_found(&name_field, name)),
        Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
            let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            errors.push(FieldError::invalid(&name_field, name, detail));
        }
        Some(_) => {}
    }
    values::required(device, "devicePath", path, errors);
    if !before.paths.insert(device_path) {
        errors.push(FieldError::invalid(&path_field, device_path, "must be unique"));
    }
    let mut climbs = FieldErrors::default();
    no_backsteps(device_path, &path_field, &mut climbs);
    if !climbs.is_empty() {
        errors.push(FieldError::invalid(&path_field, device_path, "can not contain backsteps ('..')"));
    }
    if mounts.names.contains(name) {
        errors.push(FieldError::invalid(&name_field, name, "must not already exist in volumeMounts"));
    }
    if mounts.paths.contains(device_path) {
        let detail = "must not already exist as a path in volumeMounts";
        errors.push(FieldError::invalid(&path_field, device_path, detail));
    }
}
