//! The PersistentVolumeClaims of a StatefulSet's pods: made from templates, and owned so that the garbage collector
//! deletes them when the retention policy says so.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use windlass::{Context, ObjectKey, ReconcileError};

use super::identity::{self, ordinal_in};
use super::{ordinals, spec};
use crate::controllers::claim::controller_reference;
use crate::controllers::pods;

/// The name of the claim that an ordinal has of a template.
pub(super) fn name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    let template = template.metadata.name.as_deref().unwrap_or_default();
    format!("{template}-{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default())
}

/// Whether a claim is made of a template of a set.
pub(super) fn is_of(claim: &PersistentVolumeClaim, set: &StatefulSet) -> bool {
    let (Some(claim), Some(set_name)) = (&claim.metadata.name, &set.metadata.name) else { return false };
    spec(set).volume_claim_templates.iter().flatten().any(|template| {
        let template = template.metadata.name.as_deref().unwrap_or_default();
        ordinal_in(claim, &format!("{template}-{set_name}")).is_some()
    })
}

/// What becomes of claims whose pod or set goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Retention {
    pub(super) delete_when_scaled: bool,
    pub(super) delete_when_deleted: bool,
}

impl Retention {
    fn of(set: &StatefulSet) -> Self {
        let policy = spec(set).persistent_volume_claim_retention_policy.clone().unwrap_or_default();
        Self {
            delete_when_scaled: policy.when_scaled.as_deref() == Some("Delete"),
            delete_when_deleted: policy.when_deleted.as_deref() == Some("Delete"),
        }
    }
}

/// What the owners of a claim are to be.
#[derive(Debug, PartialEq)]
pub(super) struct Owners {
    /// The references to write, if they are not as they should be.
    pub(super) write: Option<Vec<OwnerReference>>,
    /// Whether something else controls the claim, so that the policy is ignored.
    pub(super) conflict: bool,
}

/// Decides on the owners of a claim. `set` and `pod` are references as they would be written; `scaled_down` says that
/// the set no longer asks for the pod.
pub(super) fn owners(
    known: &[OwnerReference],
    set: &OwnerReference,
    pod: &OwnerReference,
    retention: Retention,
    scaled_down: bool,
) -> Owners {
    let same = |a: &OwnerReference, b: &OwnerReference| {
        (&a.api_version, &a.kind, &a.name) == (&b.api_version, &b.kind, &b.name)
    };
    let is_stale = |own: &OwnerReference| known.iter().find(|r| same(r, own)).is_some_and(|r| r.uid != own.uid);
    let has = |own: &OwnerReference| known.iter().any(|reference| reference.uid == own.uid);
    let controls = |reference: &OwnerReference| reference.controller == Some(true);
    let retains = !retention.delete_when_scaled && !retention.delete_when_deleted;
    let conflict = !retains
        && known.iter().any(|reference| match [set, pod].into_iter().find(|own| same(reference, own)) {
            Some(own) => reference.uid != own.uid,
            None => controls(reference),
        });
    if is_stale(set) || is_stale(pod) {
        // Managed for a set or pod that is gone: the garbage collector decides.
        return Owners { write: None, conflict };
    }
    let wanted = [
        (set, !conflict && retention.delete_when_deleted && !(retention.delete_when_scaled && scaled_down)),
        (pod, !conflict && retention.delete_when_scaled && scaled_down),
    ];
    let not_controlling =
        |own: &OwnerReference| known.iter().any(|reference| reference.uid == own.uid && !controls(reference));
    if wanted.iter().all(|(own, wanted)| has(own) == *wanted && !not_controlling(own)) {
        return Owners { write: None, conflict };
    }
    let mut write: Vec<OwnerReference> = known.iter().filter(|r| !same(r, set) && !same(r, pod)).cloned().collect();
    write.extend(wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(own, _)| own.clone()));
    Owners { write: Some(write), conflict }
}

/// Makes and changes the claims of a set.
pub(super) struct Claims<'a> {
    pub(super) ctx: &'a Context,
    pub(super) set: &'a StatefulSet,
}

impl Claims<'_> {
    fn templates(&self) -> &[PersistentVolumeClaim] {
        spec(self.set).volume_claim_templates.as_deref().unwrap_or_default()
    }

    fn key(&self, template: &PersistentVolumeClaim, pod: &Pod) -> Option<ObjectKey> {
        let ordinal = identity::ordinal(self.set, pod)?;
        Some(ObjectKey::of(self.set).sibling(name(self.set, template, ordinal)))
    }

    /// The claims of a pod that exist.
    fn existing(&self, pod: &Pod) -> impl Iterator<Item = Arc<PersistentVolumeClaim>> {
        let lister = self.ctx.client().lister::<PersistentVolumeClaim>();
        let keys = self.templates().iter().filter_map(|template| self.key(template, pod));
        keys.filter_map(move |key| lister.get(&key))
    }

    /// Whether a claim still belongs to an earlier pod of the same name, with which it is going to be deleted.
    pub(super) fn is_stale(&self, pod: &Pod) -> bool {
        let is_of_other = |claim: Arc<PersistentVolumeClaim>| {
            let references = claim.metadata.owner_references.as_deref().unwrap_or_default();
            let of_name = references.iter().find(|reference| {
                reference.kind == "Pod"
                    && reference.api_version == "v1"
                    && Some(&reference.name) == pod.metadata.name.as_ref()
            });
            of_name.is_some_and(|reference| Some(&reference.uid) != pod.metadata.uid.as_ref())
        };
        Retention::of(self.set).delete_when_scaled && self.existing(pod).any(is_of_other)
    }

    /// Makes the claims that a pod lacks; upstream's words for what went wrong otherwise.
    pub(super) async fn create(&self, pod: &Pod) -> Result<(), String> {
        let lister = self.ctx.client().lister::<PersistentVolumeClaim>();
        let mut errors = Vec::new();
        for template in self.templates() {
            let Some(key) = self.key(template, pod) else { continue };
            let name = key.name();
            if let Some(claim) = lister.get(&key) {
                if claim.metadata.deletion_timestamp.is_some() {
                    errors.push(format!("pvc {name} is being deleted"));
                }
                continue;
            }
            match self.ctx.client().create(&self.describe(template, &key)).await {
                Ok(_) => self.report(&key, pod, None),
                Err(error) => {
                    let message = pods::message(&error);
                    errors.push(format!("failed to create PVC {name}: {message}"));
                    if !error.is_already_exists() {
                        self.report(&key, pod, Some(&message));
                    }
                }
            }
        }
        match errors.as_slice() {
            [] => Ok(()),
            [error] => Err(error.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }

    fn describe(&self, template: &PersistentVolumeClaim, key: &ObjectKey) -> PersistentVolumeClaim {
        let mut claim = template.clone();
        claim.metadata.name = Some(key.name().to_owned());
        claim.metadata.namespace.clone_from(&self.set.metadata.namespace);
        let selected = spec(self.set).selector.match_labels.clone().unwrap_or_default();
        claim.metadata.labels.get_or_insert_default().extend(selected);
        claim
    }

    fn report(&self, claim: &ObjectKey, pod: &Pod, error: Option<&str>) {
        let (claim, pod) = (claim.name(), pod.metadata.name.as_deref().unwrap_or_default());
        let (recorder, set) = (self.ctx.recorder(), self.set.metadata.name.as_deref().unwrap_or_default());
        match error {
            None => {
                let note = format!("Create Claim {claim} Pod {pod} in StatefulSet {set} success");
                recorder.normal(self.set, "SuccessfulCreate", note);
            }
            Some(error) => {
                let note = format!("Create Claim {claim} for Pod {pod} in StatefulSet {set} failed error: {error}");
                recorder.warning(self.set, "FailedCreate", note);
            }
        }
    }

    /// Gives the claims of a pod the owners that the policy asks for; whether any had others.
    pub(super) async fn retain(&self, pod: &Pod) -> Result<bool, ReconcileError> {
        let Some(ordinal) = identity::ordinal(self.set, pod) else { return Ok(false) };
        let scaled_down = !ordinals(spec(self.set)).contains(&ordinal);
        let (set, pod_reference) = (controller_reference(self.set), controller_reference(pod));
        let mut changed = false;
        for claim in self.existing(pod) {
            let known = claim.metadata.owner_references.as_deref().unwrap_or_default();
            let owners = owners(known, &set, &pod_reference, Retention::of(self.set), scaled_down);
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            if owners.conflict {
                let note = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, \
                     the retention policy is ignored for this claim"
                );
                self.ctx.recorder().warning(self.set, "ConflictingController", note);
            }
            let Some(references) = owners.write else { continue };
            let mut updated = PersistentVolumeClaim::clone(&claim);
            updated.metadata.owner_references = Some(references).filter(|references| !references.is_empty());
            match self.ctx.client().update(&updated).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => changed = true,
            }
        }
        Ok(changed)
    }
}
