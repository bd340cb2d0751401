//! A provisioner like kind's: volumes are directories of a node. It makes and resizes them for classes that name it, and
//! can keep a default class.

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, PersistentVolumeClaimStatus,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use windlass::client::ClientError;
use windlass::events::Recorder;
use windlass::manager::ManagerError;
use windlass::{CachedClient, Context, Controller, Manager, ObjectKey, Outcome, Reconcile};

use super::{
    OWN_PROVISIONER, PROVISIONED_BY, PROVISIONER, SELECTED_NODE, STORAGE, annotation, capacity, claim_spec,
    class_of_claim, reference_to, requested, spec_mut, volume_mode, volume_name, waits_for_consumer,
};
use windlass::quantity::Amount;

/// The class of claims that name none.
const DEFAULT: &str = "standard";
/// Where volumes are on a simulated node.
const DIRECTORY: &str = "/var/local-path-provisioner";

/// Volumes are below `dir`; without one they are on simulated nodes, where kind has them.
pub(in crate::controllers) fn add(manager: &mut Manager, dir: Option<PathBuf>) -> Result<(), ManagerError> {
    let controller = Controller::<PersistentVolumeClaim>::new("local-path-provisioner");
    let dir = dir.map_or_else(|| DIRECTORY.to_owned(), |dir| dir.display().to_string());
    let provisioner = Provisioner { recorder: manager.recorder(OWN_PROVISIONER), dir };
    manager.add(
        controller
            // A resize goes on when the volume has its new size.
            .watches(|volume: &PersistentVolume, _| {
                let ours = annotation(&volume.metadata, PROVISIONED_BY) == Some(OWN_PROVISIONER);
                super::claim_ref(volume).filter(|_| ours).map(super::referred)
            })
            .complete(provisioner),
    )
}

/// Creates the default class unless there is one of its name.
pub(in crate::controllers) async fn ensure_default_class(client: &CachedClient) -> Result<(), ClientError> {
    let class: StorageClass = serde_json::from_value(json!({
        "metadata": {"name": DEFAULT, "annotations": {super::DEFAULT_CLASS[0]: "true"}},
        "provisioner": OWN_PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
    }))
    .expect("invariant: the class is well-formed");
    match client.create(&class).await {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

struct Provisioner {
    recorder: Recorder,
    dir: String,
}

impl Reconcile<PersistentVolumeClaim> for Provisioner {
    async fn reconcile(&self, claim: Arc<PersistentVolumeClaim>, ctx: Context) -> windlass::Result {
        match volume_name(&claim) {
            None => self.provision(&claim, &ctx).await?,
            Some(name) => {
                if let Some(volume) = ctx.get::<PersistentVolume>(&ObjectKey::cluster(name)).await? {
                    self.expand(&claim, &volume, &ctx).await?;
                }
            }
        }
        Ok(Outcome::Done)
    }
}

impl Provisioner {
    async fn provision(&self, claim: &PersistentVolumeClaim, ctx: &Context) -> windlass::Result<()> {
        if annotation(&claim.metadata, PROVISIONER) != Some(OWN_PROVISIONER)
            || claim.metadata.deletion_timestamp.is_some()
        {
            return Ok(());
        }
        let class = ObjectKey::cluster(class_of_claim(claim).unwrap_or_default());
        let Some(class) = ctx.get::<StorageClass>(&class).await? else { return Ok(()) };
        let node = annotation(&claim.metadata, SELECTED_NODE);
        if node.is_none() && waits_for_consumer(&class) {
            return Ok(());
        }
        let wanted = volume_for(claim, &class, node, &self.dir)?;
        let key = ObjectKey::of(claim);
        let name = wanted.metadata.name.clone().unwrap_or_default();
        if ctx.get::<PersistentVolume>(&ObjectKey::cluster(&name)).await?.is_some() {
            return Ok(());
        }
        let note = format!("External provisioner is provisioning volume for claim \"{key}\"");
        self.recorder.normal(claim, "Provisioning", note);
        match ctx.client().create(&wanted).await {
            Err(error) if error.is_already_exists() => {}
            Err(error) => {
                let note = format!("failed to provision volume with StorageClass {:?}: {error}", class.metadata.name);
                self.recorder.warning(claim, "ProvisioningFailed", note);
                return Err(error.into());
            }
            Ok(_) => {
                self.recorder.normal(claim, "ProvisioningSucceeded", format!("Successfully provisioned volume {name}"));
            }
        }
        Ok(())
    }

    /// Makes a volume as large as its claim asks for.
    async fn expand(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        ctx: &Context,
    ) -> windlass::Result<()> {
        let ours = annotation(&volume.metadata, PROVISIONED_BY) == Some(OWN_PROVISIONER);
        if !ours || !wants_more(claim) {
            return Ok(());
        }
        let quantity = Quantity::from(requested(claim));
        if capacity(volume) < requested(claim) {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            self.recorder.normal(claim, "Resizing", format!("External resizer is resizing volume {name}"));
            let mut volume = volume.clone();
            spec_mut(&mut volume).capacity.get_or_insert_default().insert(STORAGE.to_owned(), quantity.clone());
            ctx.client().update(&volume).await?;
        }
        let resized = PersistentVolumeClaim { status: Some(resized(claim, quantity)), ..claim.clone() };
        ctx.client().update_status(&resized).await?;
        self.recorder.normal(claim, "VolumeResizeSuccessful", "Resize volume succeeded");
        Ok(())
    }
}

/// The volume that is made for a claim.
pub(super) fn volume_for(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: Option<&str>,
    dir: &str,
) -> Result<PersistentVolume, serde_json::Error> {
    let meta = &claim.metadata;
    let name = format!("pvc-{}", meta.uid.as_deref().unwrap_or_default());
    let (namespace, of_claim) =
        (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let spec = claim_spec(claim);
    let affinity = node.map(|node| {
        let hostname = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}})
    });
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: OWN_PROVISIONER}},
        "spec": {
            "capacity": {STORAGE: Quantity::from(requested(claim))},
            "accessModes": spec.access_modes, "volumeMode": volume_mode(spec.volume_mode.as_ref()),
            "storageClassName": class.metadata.name, "mountOptions": class.mount_options,
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "claimRef": reference_to(claim), "nodeAffinity": affinity,
            "hostPath": {"path": format!("{dir}/{name}_{namespace}_{of_claim}"), "type": "DirectoryOrCreate"},
        },
    }))
}

/// Whether a bound claim asks for more than it has.
pub(super) fn wants_more(claim: &PersistentVolumeClaim) -> bool {
    let Some(status) = claim.status.as_ref().filter(|status| status.phase.as_deref() == Some("Bound")) else {
        return false;
    };
    let has = status.capacity.as_ref().and_then(|capacity| capacity.get(STORAGE));
    has.and_then(|has| Amount::try_from(has).ok()).is_some_and(|has| has < requested(claim))
}

/// The status of a claim whose volume has been resized.
pub(super) fn resized(claim: &PersistentVolumeClaim, quantity: Quantity) -> PersistentVolumeClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    status.capacity.get_or_insert_default().insert(STORAGE.to_owned(), quantity.clone());
    status.allocated_resources.get_or_insert_default().insert(STORAGE.to_owned(), quantity);
    status.allocated_resource_statuses = None;
    let resizing = |condition: &PersistentVolumeClaimCondition| {
        matches!(
            &*condition.type_,
            "Resizing" | "FileSystemResizePending" | "ControllerResizeError" | "NodeResizeError"
        )
    };
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| !resizing(condition));
    }
    status.conditions = status.conditions.filter(|conditions| !conditions.is_empty());
    status
}
