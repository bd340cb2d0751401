//! Volumes, their claims and classes, and device claims.

use serde_json::Value;

use super::super::access::{View, text};
use super::quantity;

pub(super) fn persistent_volume(view: &View<'_>) -> Vec<Value> {
    let claim = view.at("/spec/claimRef");
    let claim = claim.map(|claim| format!("{}/{}", claim.text("/namespace"), claim.text("/name")));
    vec![
        view.name(),
        quantity(view.get("/spec/capacity/storage")).into(),
        access_modes(view.list("/spec/accessModes")).into(),
        view.text("/spec/persistentVolumeReclaimPolicy").into(),
        phase(view),
        claim.unwrap_or_default().into(),
        class(view).into(),
        or_unset(view, "/spec/volumeAttributesClassName"),
        view.text("/status/reason").into(),
        view.age(),
        or_unset(view, "/spec/volumeMode"),
    ]
}

pub(super) fn persistent_volume_claim(view: &View<'_>) -> Vec<Value> {
    let volume = view.text("/spec/volumeName");
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (quantity(view.get("/status/capacity/storage")), access_modes(view.list("/status/accessModes")))
    };
    vec![
        view.name(),
        phase(view),
        volume.into(),
        capacity.into(),
        modes.into(),
        class(view).into(),
        or_unset(view, "/spec/volumeAttributesClassName"),
        view.age(),
        or_unset(view, "/spec/volumeMode"),
    ]
}

fn phase(view: &View<'_>) -> Value {
    if view.is_deleting() { "Terminating" } else { view.text("/status/phase") }.into()
}

fn class<'a>(view: &View<'a>) -> &'a str {
    let annotated = view.annotation("volume.beta.kubernetes.io/storage-class");
    annotated.unwrap_or_else(|| view.text("/spec/storageClassName"))
}

fn access_modes(modes: &[Value]) -> String {
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let shown: Vec<&str> =
        short.iter().filter(|(mode, _)| modes.iter().any(|m| m == mode)).map(|(_, short)| *short).collect();
    shown.join(",")
}

pub(super) fn storage_class(view: &View<'_>) -> Vec<Value> {
    let keys = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let default = keys.iter().any(|key| view.annotation(key) == Some("true"));
    let name = format!("{}{}", view.text("/metadata/name"), if default { " (default)" } else { "" });
    vec![
        name.into(),
        view.text("/provisioner").into(),
        view.text_or("/reclaimPolicy", "Delete").into(),
        view.text_or("/volumeBindingMode", "Immediate").into(),
        view.flag("/allowVolumeExpansion").into(),
        view.age(),
    ]
}

pub(super) fn volume_attributes_class(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), view.text("/driverName").into(), view.age()]
}

pub(super) fn volume_attachment(view: &View<'_>) -> Vec<Value> {
    vec![
        view.name(),
        view.text("/spec/attacher").into(),
        view.text("/spec/source/persistentVolumeName").into(),
        view.text("/spec/nodeName").into(),
        view.flag("/status/attached").into(),
        view.age(),
    ]
}

pub(super) fn csi_driver(view: &View<'_>) -> Vec<Value> {
    let modes: Vec<&str> = view.list("/spec/volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
    let audiences = || view.list("/spec/tokenRequests").iter().map(|t| text(t, "/audience")).collect::<Vec<_>>();
    let tokens = view.get("/spec/tokenRequests").map(|_| audiences().join(","));
    vec![
        view.name(),
        view.get("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true).into(),
        view.flag("/spec/podInfoOnMount").into(),
        view.flag("/spec/storageCapacity").into(),
        tokens.unwrap_or_else(|| "<unset>".to_owned()).into(),
        view.flag("/spec/requiresRepublish").into(),
        if modes.is_empty() { "<none>".into() } else { modes.join(",").into() },
        view.age(),
    ]
}

pub(super) fn csi_node(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), view.count("/spec/drivers").into(), view.age()]
}

pub(super) fn resource_claim(view: &View<'_>) -> Vec<Value> {
    let mut states = Vec::new();
    if view.is_deleting() {
        states.push("deleted");
    }
    if view.has("/status/allocation") {
        states.push("allocated");
        if view.count("/status/reservedFor") > 0 {
            states.push("reserved");
        }
    } else if !view.is_deleting() {
        states.push("pending");
    }
    vec![view.name(), states.join(",").into(), view.age()]
}

pub(super) fn resource_slice(view: &View<'_>) -> Vec<Value> {
    vec![
        view.name(),
        view.text("/spec/nodeName").into(),
        view.text("/spec/driver").into(),
        view.text("/spec/pool/name").into(),
        view.age(),
    ]
}

fn or_unset(view: &View<'_>, pointer: &str) -> Value {
    view.get(pointer).map_or_else(|| "<unset>".into(), Value::clone)
}
