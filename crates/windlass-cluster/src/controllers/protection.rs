//! Keeps volumes and claims that are in use from going, and lets them go once they are not.
//!
//! The API server gives every claim and volume a finalizer; these two controllers take it off an
//! object that is being deleted when nothing uses it. Mirrors upstream's
//! `pkg/controller/volume/pvcprotection` and `pvprotection`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use kube::Resource;
use kube::api::PartialObjectMeta;
use windlass::client::options::ListOptions;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, Object, ObjectKey, Outcome, Reconcile, owner};

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

type Claim = PartialObjectMeta<PersistentVolumeClaim>;

pub(super) fn add_claims(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(
        Controller::<Claim>::new("persistentvolumeclaim-protection-controller")
            .watches(|pod: &Pod, _| claims_of(pod).collect::<Vec<_>>())
            .complete(Claims),
    )
}

pub(super) fn add_volumes(manager: &mut Manager) -> Result<(), ManagerError> {
    let controller = Controller::<PersistentVolume>::new("persistentvolume-protection-controller");
    manager.add(controller.complete(Volumes))
}

struct Claims;

impl Reconcile<Claim> for Claims {
    async fn reconcile(&self, claim: Arc<Claim>, ctx: Context) -> windlass::Result {
        let key = ObjectKey::of(&*claim);
        if claim.metadata.deletion_timestamp.is_none() {
            return protect::<PersistentVolumeClaim>(&key, &*claim, CLAIM_FINALIZER, &ctx).await;
        }
        if !has(&*claim, CLAIM_FINALIZER) {
            return Ok(Outcome::Done);
        }
        let namespace = key.namespace().unwrap_or_default();
        let cached = ctx.client().lister::<Pod>();
        if cached.in_namespace(namespace).iter().any(|pod| uses(pod, &claim)) {
            return Ok(Outcome::Done);
        }
        // The cache may not show a pod yet that was just bound to a node.
        let pods = ctx.live().list_with::<Pod>(ListOptions::new().namespace(namespace)).await?;
        if pods.iter().any(|pod| uses(pod, &claim)) {
            return Ok(Outcome::Done);
        }
        release::<PersistentVolumeClaim>(&key, &*claim, CLAIM_FINALIZER, &ctx).await
    }
}

struct Volumes;

impl Reconcile<PersistentVolume> for Volumes {
    async fn reconcile(&self, volume: Arc<PersistentVolume>, ctx: Context) -> windlass::Result {
        let key = ObjectKey::of(&*volume);
        if volume.metadata.deletion_timestamp.is_none() {
            return protect::<PersistentVolume>(&key, &*volume, VOLUME_FINALIZER, &ctx).await;
        }
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Bound") || !has(&*volume, VOLUME_FINALIZER) {
            return Ok(Outcome::Done);
        }
        release::<PersistentVolume>(&key, &*volume, VOLUME_FINALIZER, &ctx).await
    }
}

fn has(object: &impl Resource, finalizer: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|known| known == finalizer)
}

/// Adds the finalizer to an object that was created without.
async fn protect<K: Object<DynamicType: Default>>(
    key: &ObjectKey,
    object: &impl Resource,
    finalizer: &str,
    ctx: &Context,
) -> windlass::Result {
    if !has(object, finalizer) {
        let all: Vec<&str> = object.meta().finalizers.iter().flatten().map(String::as_str).chain([finalizer]).collect();
        set_finalizers::<K>(key, object, Some(all), ctx).await?;
    }
    Ok(Outcome::Done)
}

/// Takes the finalizer off an object.
async fn release<K: Object<DynamicType: Default>>(
    key: &ObjectKey,
    object: &impl Resource,
    finalizer: &str,
    ctx: &Context,
) -> windlass::Result {
    let known = object.meta().finalizers.iter().flatten().map(String::as_str);
    let rest: Vec<&str> = known.filter(|known| *known != finalizer).collect();
    set_finalizers::<K>(key, object, Some(rest).filter(|rest| !rest.is_empty()), ctx).await?;
    Ok(Outcome::Done)
}

async fn set_finalizers<K: Object<DynamicType: Default>>(
    key: &ObjectKey,
    object: &impl Resource,
    finalizers: Option<Vec<&str>>,
    ctx: &Context,
) -> windlass::Result<()> {
    // Claims are watched as metadata, and the roles of these controllers have no patch.
    let Some(mut full) = ctx.live().get::<K>(key).await? else { return Ok(()) };
    if full.meta().resource_version != object.meta().resource_version {
        // It has changed, and its event is on its way.
        return Ok(());
    }
    full.meta_mut().finalizers = finalizers.map(|all| all.into_iter().map(str::to_owned).collect());
    match ctx.client().update(&full).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

fn volumes_of(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
}

/// The claims that a pod names or has had made for it.
pub(super) fn claims_of(pod: &Pod) -> impl Iterator<Item = ObjectKey> {
    let key = ObjectKey::of(pod);
    volumes_of(pod).filter_map(move |volume| match &volume.persistent_volume_claim {
        Some(claim) => Some(key.sibling(&claim.claim_name)),
        None => volume.ephemeral.as_ref().map(|_| key.sibling(ephemeral_name(pod, volume))),
    })
}

/// The claims that are made for a pod's own volumes, with these volumes.
pub(super) fn ephemeral_claims_of(pod: &Pod) -> impl Iterator<Item = (ObjectKey, &Volume)> {
    let volumes = volumes_of(pod).filter(|volume| volume.ephemeral.is_some());
    volumes.map(|volume| (ObjectKey::of(pod).sibling(ephemeral_name(pod, volume)), volume))
}

fn ephemeral_name(pod: &Pod, volume: &Volume) -> String {
    format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name)
}

/// Whether a pod uses a claim. One without a node does not: no kubelet starts it with a claim that is
/// being deleted.
fn uses(pod: &Pod, claim: &Claim) -> bool {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref().is_some_and(|node| !node.is_empty()));
    // Nothing is left to use it, only the pod's own finalizers are in the way of its end.
    let is_shut_down =
        pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0);
    let named = |volume: &Volume| volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.claim_name == name);
    let made = |volume: &Volume| {
        !is_shut_down
            && volume.ephemeral.is_some()
            && ephemeral_name(pod, volume) == name
            && owner::is_controlled_by(claim, pod)
    };
    bound && volumes_of(pod).any(|volume| named(volume) || made(volume))
}
