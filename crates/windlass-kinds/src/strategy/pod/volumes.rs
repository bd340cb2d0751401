//! Volumes of a pod and where they come from.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use self::drivers::Owner;
use super::env::{VOLUME_FIELDS, field_selector, local_path, local_unreserved_path, resource_selector};
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::strategy::persistent_volume_claim;
use crate::validation::access::Access;
use crate::validation::quantity::Quantity;
use crate::validation::{names, selector, values};

pub(crate) mod drivers;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// The types of volumes in the order upstream checks them; only the first one counts.
const SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Checks the volumes and returns those that are valid, which containers may mount. `pod_name` is
/// known for pods, but not for templates.
pub(super) fn volumes<'a>(
    spec: &'a Value,
    pod_name: &str,
    path: &Path<'_>,
    errors: &mut FieldErrors,
) -> HashMap<&'a str, &'a Value> {
    let path = path.child("volumes");
    let list = spec.list("volumes");
    let created: HashSet<String> = list
        .iter()
        .filter(|volume| !pod_name.is_empty() && volume.has("ephemeral"))
        .map(|volume| format!("{pod_name}-{}", volume.text("name")))
        .collect();
    let mut valid = HashMap::new();
    for (i, volume) in list.iter().enumerate() {
        let path = path.index(i);
        let name = volume.text("name");
        let found = errors.0.len();
        source(volume, pod_name, &path, errors);
        values::required_text(volume, "name", names::label, &path, errors);
        if valid.contains_key(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        if errors.0.len() == found {
            valid.insert(name, volume);
        }
        let claim = volume.at("persistentVolumeClaim").text("claimName");
        if created.contains(claim) {
            let claim_path = path.child("persistentVolumeClaim");
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.push(FieldError::invalid(&claim_path.child("claimName"), claim, detail));
        }
    }
    valid
}

fn source(volume: &Value, pod_name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let mut found = false;
    for kind in SOURCES {
        let value = volume.at(kind);
        if value.is_null() {
            continue;
        }
        if found {
            // These two names are upstream's slips.
            let shown = match *kind {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                other => other,
            };
            errors.push(FieldError::forbidden(&path.child(shown), "may not specify more than 1 volume type"));
        } else {
            found = true;
            one_source(kind, value, path, errors);
            if *kind == "ephemeral" {
                claim_name(volume.text("name"), pod_name, path, errors);
            }
        }
        if *kind == "iscsi" {
            drivers::iscsi_name(value, volume.text("name"), path, errors);
        }
    }
    if !found {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

/// The claim that is created for an ephemeral volume must have a name that can be.
fn claim_name(name: &str, pod_name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if pod_name.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{pod_name}-{name}");
    for reason in names::subdomain(&claim) {
        let detail = format!("PVC name {}: {reason}", crate::field::quote(&claim));
        errors.push(FieldError::invalid(&path.child("name"), name, detail));
    }
}

fn one_source(kind: &str, value: &Value, volume_path: &Path<'_>, errors: &mut FieldErrors) {
    let path = &volume_path.child(kind);
    match kind {
        "emptyDir" => {
            if Quantity::from_value(value.at("sizeLimit")).is_some_and(|limit| limit.sign() < 0) {
                let detail = "SizeLimit field must be a valid resource quantity";
                errors.push(FieldError::forbidden(&path.child("sizeLimit"), detail));
            }
        }
        "gitRepo" => {
            values::required(value, "repository", path, errors);
            local_path(value.text("directory"), &path.child("directory"), errors);
        }
        "secret" => {
            values::required(value, "secretName", path, errors);
            files(value, path, errors);
        }
        "configMap" => {
            values::required(value, "name", path, errors);
            files(value, path, errors);
        }
        "downwardAPI" => {
            mode(value, "defaultMode", path, errors);
            for file in value.list("items") {
                downward_file(file, path, errors);
            }
        }
        "projected" => projected(value, path, errors),
        "persistentVolumeClaim" => {
            values::required(value, "claimName", path, errors);
        }
        "csi" => csi(value, path, errors),
        "ephemeral" => ephemeral(value, path, errors),
        "image" => {
            values::required(value, "reference", path, errors);
            values::required_one_of(value, "pullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
        }
        _ => drivers::driver(kind, value, Owner::Pod, volume_path, errors),
    }
}

fn csi(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    driver_name(value, "driver", path, errors);
    let secret = value.at("nodePublishSecretRef");
    if !secret.is_null() {
        let name = secret.text("name");
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("nodePublishSecretRef").child("name"), ""));
        } else {
            values::invalid_for_each(&path.child("name"), name, names::subdomain(name), errors);
        }
    }
}

/// Checks the name of a CSI driver.
pub(crate) fn driver_name(owner: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let name = owner.text(field);
    let path = path.child(field);
    if name.is_empty() {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    if name.len() > 63 {
        errors.push(FieldError::too_long(&path, 63));
    }
    values::invalid_for_each(&path, name, names::subdomain(&name.to_lowercase()), errors);
}

fn ephemeral(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("volumeClaimTemplate");
    let template = value.at("volumeClaimTemplate");
    if template.is_null() {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    let meta_path = path.child("metadata");
    let meta = template.at("metadata");
    crate::validation::metadata::annotations(meta, &meta_path, errors);
    crate::validation::metadata::labels(meta, "labels", &meta_path, errors);
    for (field, value) in template.entries("metadata") {
        if !["labels", "annotations"].contains(&field) && !value.is_null() {
            errors.push(FieldError::forbidden(&meta_path.child(field), "cannot be set"));
        }
    }
    persistent_volume_claim::spec_checks(template.at("spec"), &path.child("spec"), errors);
}

fn mode(owner: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if let Some(mode) = owner.int_opt(field)
        && !(0..=0o777).contains(&mode)
    {
        errors.push(FieldError::invalid(&path.child(field), mode, FILE_MODE));
    }
}

fn files(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    mode(value, "defaultMode", path, errors);
    key_paths(value, path, errors);
}

fn key_paths(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("items");
    for (i, item) in value.list("items").iter().enumerate() {
        let path = path.index(i);
        values::required(item, "key", &path, errors);
        values::required(item, "path", &path, errors);
        local_unreserved_path(item.text("path"), &path.child("path"), errors);
        mode(item, "mode", &path, errors);
    }
}

fn downward_file(file: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    values::required(file, "path", path, errors);
    local_unreserved_path(file.text("path"), &path.child("path"), errors);
    match (file.has("fieldRef"), file.has("resourceFieldRef")) {
        (true, both) => {
            field_selector(file.at("fieldRef"), VOLUME_FIELDS, &path.child("fieldRef"), errors);
            if both {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, "resource", detail));
            }
        }
        (false, true) => {
            resource_selector(file.at("resourceFieldRef"), true, &path.child("resourceFieldRef"), errors);
        }
        (false, false) => {
            errors.push(FieldError::required(path, "one of fieldRef and resourceFieldRef is required"));
        }
    }
    mode(file, "mode", path, errors);
}

fn projected(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    mode(value, "defaultMode", path, errors);
    let sources_path = path.child("sources");
    let mut paths = HashSet::new();
    for (i, source) in value.list("sources").iter().enumerate() {
        let source_path = sources_path.index(i);
        for kind in ["secret", "configMap"] {
            if source.has(kind) {
                let projection = source.at(kind);
                let kind_path = source_path.child(kind);
                values::required(projection, "name", &kind_path, errors);
                key_paths(projection, &kind_path, errors);
                // Upstream says the same of each item, with the projection's name each time.
                let taken = projection.list("items").iter().filter(|item| !is_new(&mut paths, item.text("path")));
                if taken.count() > 0 {
                    conflict(projection.text("name"), path, errors);
                }
            }
        }
        if source.has("downwardAPI") {
            let kind_path = source_path.child("downwardAPI");
            for file in source.at("downwardAPI").list("items") {
                downward_file(file, &kind_path, errors);
                if !is_new(&mut paths, file.text("path")) {
                    conflict(file.text("path"), path, errors);
                }
            }
        }
        if source.has("serviceAccountToken") {
            token(source.at("serviceAccountToken"), path, &source_path.child("serviceAccountToken"), errors);
        }
        if source.has("clusterTrustBundle") {
            let bundle = source.at("clusterTrustBundle");
            trust_bundle(bundle, &source_path.child("clusterTrustBundle"), errors);
            if !is_new(&mut paths, bundle.text("path")) {
                conflict(bundle.text("path"), path, errors);
            }
        }
        if source.as_object().is_some_and(|kinds| kinds.values().filter(|kind| !kind.is_null()).count() > 1) {
            let detail = "may not specify more than 1 volume type per source";
            errors.push(FieldError::forbidden(&source_path, detail));
        }
    }
}

/// Whether no file has the path yet; a file without one conflicts with none.
fn is_new<'a>(seen: &mut HashSet<&'a str>, file: &'a str) -> bool {
    file.is_empty() || seen.insert(file)
}

fn conflict(shown: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    errors.push(FieldError::invalid(path, shown, "conflicting duplicate paths"));
}

fn token(token: &Value, volume_path: &Path<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    let expiration_path = path.child("expirationSeconds");
    match token.int_opt("expirationSeconds") {
        None => errors.push(FieldError::required(&expiration_path, "")),
        Some(seconds) if seconds < 600 => {
            let detail = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid(&expiration_path, seconds, detail));
        }
        Some(seconds) if seconds > 1 << 32 => {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.push(FieldError::invalid(&expiration_path, seconds, detail));
        }
        Some(_) => {}
    }
    // Upstream reports the path at the volume, not at the source.
    if values::required(token, "path", volume_path, errors) {
        local_unreserved_path(token.text("path"), &volume_path.child("path"), errors);
    }
}

fn trust_bundle(bundle: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    match (bundle.has("name"), bundle.has("signerName")) {
        (true, true) => {
            let detail = "only one of name and signerName may be used";
            errors.push(FieldError::new(ErrorKind::Invalid, path, bundle, detail));
        }
        (true, false) => {
            if bundle.text("name").is_empty() {
                errors.push(FieldError::required(&path.child("name"), "must be a valid object name"));
            }
            if bundle.has("labelSelector") {
                let detail = "labelSelector must be unset if name is specified";
                errors.push(selector::invalid(bundle.at("labelSelector"), &path.child("labelSelector"), detail));
            }
        }
        (false, true) => {
            if bundle.text("signerName").is_empty() {
                errors.push(FieldError::required(&path.child("signerName"), "must be a valid signer name"));
            }
            selector::validate(bundle.at("labelSelector"), &path.child("labelSelector"), errors);
        }
        (false, false) => errors.push(FieldError::required(path, "either name or signerName must be specified")),
    }
    values::required(bundle, "path", path, errors);
    local_unreserved_path(bundle.text("path"), &path.child("path"), errors);
}
