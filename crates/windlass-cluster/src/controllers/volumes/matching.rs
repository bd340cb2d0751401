//! Which volume a claim is bound to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::{
    capacity, claim_ref, claim_spec, class_of_claim, class_of_volume, modes_differ, phase_of_volume, refers_to,
    requested,
};
use crate::controllers::claim::{selector, selects};

/// The best volume for a claim: one that refers to it, or the smallest that is free, of those with the fewest access
/// modes. With `delayed`, only one that refers to it: the scheduler chooses among the others.
pub(super) fn find<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [Arc<PersistentVolume>],
    delayed: bool,
) -> Option<&'a Arc<PersistentVolume>> {
    let wanted = access_modes(claim_spec(claim).access_modes.as_deref());
    let mut groups: BTreeMap<(usize, BTreeSet<&str>), Vec<&Arc<PersistentVolume>>> = BTreeMap::new();
    for volume in volumes {
        let modes = access_modes(volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()));
        if modes.is_superset(&wanted) {
            groups.entry((modes.len(), modes)).or_default().push(volume);
        }
    }
    groups.into_values().find_map(|group| best(claim, group, delayed))
}

fn best<'a>(
    claim: &PersistentVolumeClaim,
    volumes: Vec<&'a Arc<PersistentVolume>>,
    delayed: bool,
) -> Option<&'a Arc<PersistentVolume>> {
    let labels = claim_spec(claim).selector.as_ref();
    let chosen = labels.map(selector);
    let fits = |volume: &PersistentVolume| {
        capacity(volume) >= requested(claim)
            && !modes_differ(claim, volume)
            && attributes_class(claim) == attributes_class_of(volume)
            && volume.metadata.deletion_timestamp.is_none()
    };
    let is_free = |volume: &PersistentVolume| {
        phase_of_volume(volume) == "Available"
            && claim_ref(volume).is_none()
            && class_of_volume(volume) == class_of_claim(claim).unwrap_or_default()
            && chosen.as_ref().is_none_or(|chosen| chosen.as_ref().is_some_and(|chosen| selects(chosen, volume)))
    };
    let fitting: Vec<_> = volumes.into_iter().filter(|volume| fits(volume)).collect();
    let bound = fitting.iter().find(|volume| refers_to(volume, claim));
    let free = || {
        let free = fitting.iter().filter(|volume| !delayed && is_free(volume));
        free.min_by_key(|volume| (capacity(volume), volume.metadata.name.clone()))
    };
    bound.or_else(free).copied()
}

/// Why a volume that a claim asks for by name cannot be had.
pub(super) fn check(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let modes = access_modes(volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()));
    if volume.metadata.deletion_timestamp.is_some() {
        return Err(format!("the volume is marked for deletion {name:?}"));
    }
    let reason = if capacity(volume) < requested(claim) {
        "requested PV is too small"
    } else if class_of_volume(volume) != class_of_claim(claim).unwrap_or_default() {
        "storageClassName does not match"
    } else if attributes_class(claim) != attributes_class_of(volume) {
        "volumeAttributesClassName does not match"
    } else if modes_differ(claim, volume) {
        "incompatible volumeMode"
    } else if !modes.is_superset(&access_modes(claim_spec(claim).access_modes.as_deref())) {
        "incompatible accessMode"
    } else {
        return Ok(());
    };
    Err(reason.to_owned())
}

fn attributes_class(claim: &PersistentVolumeClaim) -> &str {
    claim_spec(claim).volume_attributes_class_name.as_deref().unwrap_or_default()
}

fn attributes_class_of(volume: &PersistentVolume) -> &str {
    volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()).unwrap_or_default()
}

fn access_modes(modes: Option<&[String]>) -> BTreeSet<&str> {
    modes.unwrap_or_default().iter().map(String::as_str).collect()
}
