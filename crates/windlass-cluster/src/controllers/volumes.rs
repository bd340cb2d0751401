//! PersistentVolumes: binding claims to them, what becomes of those that are released, and a provisioner.
//!
//! Mirrors upstream's `pkg/controller/volume/persistentvolume`, for what needs no storage system. What to do about a claim
//! is decided by a pure function ([`claims::next_step`]), as is which volume fits ([`matching::find`]).

mod claims;
mod ephemeral;
mod matching;
mod provision;
mod reclaim;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass::ObjectKey;
use windlass::cache::Lister;
use windlass::quantity::Amount;

pub(super) use claims::add as add_claims;
pub(super) use ephemeral::add as add_ephemeral;
pub(super) use provision::{add as add_provisioner, ensure_default_class};
pub(super) use reclaim::add as add_volumes;

/// Who events about claims and volumes come from.
const REPORTER: &str = "persistentvolume-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// The provisioner of this package.
const OWN_PROVISIONER: &str = "windlass.dev/local-path";
const STORAGE: &str = "storage";
/// The index of volumes by the claim they refer to.
const BY_CLAIM: &str = "claim";
/// The index of claims by the volume they name, empty for those that wait.
const BY_VOLUME: &str = "volume";

fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

fn annotate(meta: &mut ObjectMeta, name: &str, value: &str) {
    meta.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

fn claim_spec(claim: &PersistentVolumeClaim) -> &PersistentVolumeClaimSpec {
    static NONE: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec {
        access_modes: None,
        data_source: None,
        data_source_ref: None,
        resources: None,
        selector: None,
        storage_class_name: None,
        volume_attributes_class_name: None,
        volume_mode: None,
        volume_name: None,
    };
    claim.spec.as_ref().unwrap_or(&NONE)
}

/// The volume a claim names.
fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim_spec(claim).volume_name.as_deref().filter(|name| !name.is_empty())
}

/// The class of a claim, if it has one; an empty name is one.
fn class_of_claim(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(&claim.metadata, BETA_CLASS).or(claim_spec(claim).storage_class_name.as_deref())
}

fn class_of_volume(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotation(&volume.metadata, BETA_CLASS).or(spec).unwrap_or_default()
}

/// How much a claim asks for.
fn requested(claim: &PersistentVolumeClaim) -> Amount {
    let resources = claim_spec(claim).resources.as_ref();
    let quantity = resources.and_then(|resources| resources.requests.as_ref()?.get(STORAGE));
    quantity.and_then(|quantity| Amount::try_from(quantity).ok()).unwrap_or(Amount::ZERO)
}

/// How much a volume has.
fn capacity(volume: &PersistentVolume) -> Amount {
    let quantity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get(STORAGE));
    quantity.and_then(|quantity| Amount::try_from(quantity).ok()).unwrap_or(Amount::ZERO)
}

fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// The claim that a reference names.
fn referred(reference: &ObjectReference) -> ObjectKey {
    ObjectKey::new(reference.namespace.as_deref().unwrap_or_default(), reference.name.as_deref().unwrap_or_default())
}

fn uid_of(reference: &ObjectReference) -> Option<&str> {
    reference.uid.as_deref().filter(|uid| !uid.is_empty())
}

/// Whether a volume refers to a claim, perhaps without knowing its uid yet.
fn refers_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_ref(volume).is_some_and(|reference| {
        referred(reference) == ObjectKey::of(claim)
            && uid_of(reference).is_none_or(|uid| Some(uid) == claim.metadata.uid.as_deref())
    })
}

fn reference_to(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    }
}

fn phase_of_volume(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn volume_mode(mode: Option<&String>) -> &str {
    mode.map_or("Filesystem", String::as_str)
}

/// Whether one holds blocks and the other files.
fn modes_differ(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_ref());
    volume_mode(claim_spec(claim).volume_mode.as_ref()) != volume_mode(of_volume)
}

/// Whether binding waits until a pod uses a claim.
fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The class of claims that name none: the newest of those that say they are it.
fn default_class(classes: &[Arc<StorageClass>]) -> Option<&Arc<StorageClass>> {
    let says =
        |class: &&Arc<StorageClass>| DEFAULT_CLASS.iter().any(|name| annotation(&class.metadata, name) == Some("true"));
    classes.iter().filter(says).min_by_key(|class| {
        let made = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(made), class.metadata.name.clone())
    })
}

/// The volumes that refer to a claim.
fn volumes_for(lister: &Lister<PersistentVolume>, claim: &ObjectKey) -> Vec<Arc<PersistentVolume>> {
    lister.add_index(BY_CLAIM, |volume: &PersistentVolume| {
        claim_ref(volume).map(|reference| referred(reference).to_string()).into_iter().collect()
    });
    lister.by_index(BY_CLAIM, &claim.to_string())
}

/// The claims that name a volume; those that are not bound and name none when it is empty.
fn claims_for(lister: &Lister<PersistentVolumeClaim>, volume: &str) -> Vec<Arc<PersistentVolumeClaim>> {
    lister.add_index(BY_VOLUME, |claim: &PersistentVolumeClaim| match volume_name(claim) {
        Some(name) => vec![name.to_owned()],
        None if annotation(&claim.metadata, BIND_COMPLETED).is_none() => vec![String::new()],
        None => Vec::new(),
    });
    lister.by_index(BY_VOLUME, volume)
}

fn spec_mut(volume: &mut PersistentVolume) -> &mut PersistentVolumeSpec {
    volume.spec.get_or_insert_default()
}
