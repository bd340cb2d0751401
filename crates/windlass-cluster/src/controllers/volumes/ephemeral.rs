//! Makes the claims of pods' generic ephemeral volumes (`ephemeral.volumeClaimTemplate`). A claim belongs to its pod, and
//! the garbage collector deletes it with the pod.
//!
//! Keys are those of claims. Mirrors upstream's `pkg/controller/volume/ephemeral`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimTemplate, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass::events::Recorder;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, ReconcileError, ReconcileKey, owner};

use super::claims::users;
use crate::controllers::claim::controller_reference;
use crate::controllers::pods;
use crate::controllers::protection::ephemeral_claims_of;

/// Who events about ephemeral volumes come from.
const REPORTER: &str = "ephemeral_volume";

pub(in crate::controllers) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    let reconciler = Ephemeral { recorder: manager.recorder(REPORTER) };
    manager.add(
        Controller::<PersistentVolumeClaim>::new("ephemeral-volume-controller")
            .watches(|pod: &Pod, _| ephemeral_claims_of(pod).map(|(key, _)| key).collect::<Vec<_>>())
            .complete_keyed(reconciler),
    )
}

struct Ephemeral {
    recorder: Recorder,
}

/// Why a pod does not get a claim.
#[derive(Debug, thiserror::Error)]
#[error("ephemeral volume {volume}: {why}")]
struct Refused {
    volume: String,
    why: String,
}

impl ReconcileKey for Ephemeral {
    async fn reconcile(&self, key: ObjectKey, ctx: Context) -> windlass::Result {
        for pod in users(&key, &ctx) {
            if pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let Some(volume) = ephemeral_claims_of(&pod).find(|(claim, _)| *claim == key).map(|(_, volume)| volume)
            else {
                continue;
            };
            let Some(template) = volume.ephemeral.as_ref().and_then(|one| one.volume_claim_template.as_ref()) else {
                continue;
            };
            if let Err(why) = ensure(&pod, &key, template, &ctx).await {
                let refused = Refused { volume: volume.name.clone(), why };
                self.recorder.warning(&pod, "FailedBinding", refused.to_string());
                return Err(ReconcileError::new(refused));
            }
        }
        Ok(Outcome::Done)
    }
}

/// Makes the claim of a volume, unless the pod has it.
async fn ensure(
    pod: &Arc<Pod>,
    key: &ObjectKey,
    template: &PersistentVolumeClaimTemplate,
    ctx: &Context,
) -> Result<(), String> {
    if let Some(claim) = ctx.client().lister::<PersistentVolumeClaim>().get(key) {
        if owner::is_controlled_by(&*claim, &**pod) {
            return Ok(());
        }
        return Err(format!("PVC {key} was not created for pod {} (pod is not owner)", ObjectKey::of(&**pod)));
    }
    let described = template.metadata.clone().unwrap_or_default();
    let claim = PersistentVolumeClaim {
        metadata: ObjectMeta {
            namespace: key.namespace().map(str::to_owned),
            name: Some(key.name().to_owned()),
            labels: described.labels,
            annotations: described.annotations,
            owner_references: Some(vec![controller_reference(&**pod)]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    };
    let created = ctx.client().create(&claim).await;
    created.map(drop).map_err(|error| format!("create PVC {}: {}", key.name(), pods::message(&error)))
}
