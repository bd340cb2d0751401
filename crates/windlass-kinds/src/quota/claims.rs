//! What claims use: persistent volume claims use storage, resource claims use devices.

use serde_json::Value;

use super::{Amounts, Scope, add, one};
use crate::validation::access::Access as _;
use crate::validation::quantity::Quantity;

const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const OLD_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const CLAIMS: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";

const DEVICE_CLAIMS: &str = "count/resourceclaims.resource.k8s.io";
const DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// What a request for all devices counts as: more cannot be allocated to one claim.
const ALL_DEVICES: i64 = 32;

pub(super) fn measures_volumes(name: &str) -> bool {
    let of_class = || name.split_once(STORAGE_CLASS).is_some_and(|(_, what)| matches!(what, CLAIMS | STORAGE));
    matches!(name, "count/persistentvolumeclaims" | CLAIMS | STORAGE) || of_class()
}

pub(super) fn measures_devices(name: &str) -> bool {
    name == DEVICE_CLAIMS || name.ends_with(DEVICE_CLASS)
}

pub(super) fn volume_usage(claim: &Value) -> Amounts {
    let mut amounts = Amounts::from([("count/persistentvolumeclaims".to_owned(), one()), (CLAIMS.to_owned(), one())]);
    let class = claim.below(&["metadata", "annotations"]).text_opt(OLD_STORAGE_CLASS);
    let class = class.unwrap_or_else(|| claim.at("spec").text("storageClassName"));
    let storage = storage(claim);
    if !class.is_empty() {
        amounts.insert(format!("{class}{STORAGE_CLASS}{CLAIMS}"), one());
        amounts.extend(storage.map(|storage| (format!("{class}{STORAGE_CLASS}{STORAGE}"), storage)));
    }
    amounts.extend(storage.map(|storage| (STORAGE.to_owned(), storage)));
    amounts
}

/// The storage that is asked for, or allocated already if that is more, in whole bytes.
fn storage(claim: &Value) -> Option<Quantity> {
    let asked = claim.below(&["spec", "resources", "requests"]).get("storage").and_then(Quantity::from_value)?;
    let allocated = claim.below(&["status", "allocatedResources"]).get("storage").and_then(Quantity::from_value);
    Some(allocated.map_or(asked, |allocated| allocated.max(asked)).rounded_up())
}

pub(super) fn is_in_scope(scope: &Scope, claim: &Value) -> bool {
    if scope.name != "VolumeAttributesClass" {
        return false;
    }
    let status = claim.at("status");
    let mut classes = vec![
        claim.at("spec").text("volumeAttributesClassName"),
        status.text("currentVolumeAttributesClassName"),
        status.at("modifyVolumeStatus").text("targetVolumeAttributesClassName"),
    ];
    classes.retain(|class| !class.is_empty());
    scope.accepts(&classes)
}

pub(super) fn device_usage(claim: &Value) -> Amounts {
    let mut devices = Amounts::new();
    for request in claim.below(&["spec", "devices"]).list("requests") {
        let mut most = Amounts::new();
        // Of alternatives, the worst case for each class counts.
        for alternative in request.list("firstAvailable") {
            super::largest(&mut most, devices_of(alternative));
        }
        if most.is_empty() {
            // Before v1, what is asked for stood in the request itself.
            let asked = if request.has("exactly") { request.at("exactly") } else { request };
            most = devices_of(asked);
        }
        add(&mut devices, most);
    }
    let mut amounts = Amounts::from([(DEVICE_CLAIMS.to_owned(), one())]);
    for (class, number) in devices {
        amounts.insert(format!("{class}{DEVICE_CLASS}"), number);
    }
    amounts
}

fn devices_of(asked: &Value) -> Amounts {
    let class = asked.text("deviceClassName");
    if class.is_empty() {
        return Amounts::new();
    }
    let number = match asked.text("allocationMode") {
        "ExactCount" => asked.int("count"),
        "All" => ALL_DEVICES,
        _ => 0,
    };
    Amounts::from([(class.to_owned(), Quantity::from_int(number))])
}
