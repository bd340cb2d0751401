//! Binds claims to volumes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus, PersistentVolumeStatus, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use windlass::events::{EventType, Recorder};
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};

use super::{
    BETA_PROVISIONER, BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONER, REPORTER, SELECTED_NODE, annotate, annotation,
    claim_ref, claims_for, class_of_claim, default_class, matching, phase_of_volume, reference_to, referred, refers_to,
    spec_mut, uid_of, volume_name, waits_for_consumer,
};
use crate::controllers::pods;
use crate::controllers::protection::claims_of;

/// The index of pods by the claims they use.
const BY_CLAIM: &str = "claims";

pub(in crate::controllers) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    let reconciler = Claims { recorder: manager.recorder(REPORTER) };
    manager.add(
        Controller::<PersistentVolumeClaim>::new("persistentvolume-binder-controller")
            .watches(|volume: &PersistentVolume, ctx| {
                let claims = ctx.lister::<PersistentVolumeClaim>();
                let name = volume.metadata.name.as_deref().unwrap_or_default();
                let mut keys: Vec<ObjectKey> = claims_for(&claims, name).iter().map(ObjectKey::of).collect();
                match claim_ref(volume) {
                    Some(reference) => keys.push(referred(reference)),
                    // Any of those that wait may want it.
                    None => keys.extend(claims_for(&claims, "").iter().map(ObjectKey::of)),
                }
                keys
            })
            .watches(|_: &StorageClass, ctx| {
                let claims = ctx.lister::<PersistentVolumeClaim>();
                claims_for(&claims, "").iter().map(ObjectKey::of).collect::<Vec<_>>()
            })
            // What a claim waits for is a pod that uses it.
            .watches(|pod: &Pod, ctx| {
                let mut keys: Vec<ObjectKey> = claims_of(pod).collect();
                if !keys.is_empty() {
                    let claims = ctx.lister::<PersistentVolumeClaim>();
                    keys.retain(|key| {
                        claims.get(key).is_some_and(|claim| annotation(&claim.metadata, BIND_COMPLETED).is_none())
                    });
                }
                keys
            })
            .complete(reconciler),
    )
}

/// What a claim is compared with.
pub(super) struct World<'a> {
    pub(super) volumes: &'a [Arc<PersistentVolume>],
    pub(super) classes: &'a [Arc<StorageClass>],
    /// Pods that use the claim and have no node.
    pub(super) waiting_pods: &'a [String],
}

/// What to do about a claim.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Bind(Arc<PersistentVolume>),
    /// Nothing but to wait, and perhaps to say why.
    Wait(Option<(EventType, &'static str, String)>),
    AssignClass(String),
    Provision,
    /// What the claim was bound to is gone.
    Lose(&'static str, &'static str),
}

/// Decides what to do about a claim.
pub(super) fn next_step(claim: &PersistentVolumeClaim, world: &World<'_>) -> Step {
    if annotation(&claim.metadata, BIND_COMPLETED).is_some() {
        return of_bound(claim, world);
    }
    match volume_name(claim) {
        None => of_any(claim, world),
        Some(name) => of_named(claim, name, world),
    }
}

/// A claim that takes any volume that fits.
fn of_any(claim: &PersistentVolumeClaim, world: &World<'_>) -> Step {
    let class = class_of_claim(claim).unwrap_or_default();
    let served = world.classes.iter().find(|served| served.metadata.name.as_deref() == Some(class));
    let delayed = served.is_some_and(|class| waits_for_consumer(class));
    if let Some(volume) = matching::find(claim, world.volumes, delayed) {
        return Step::Bind(Arc::clone(volume));
    }
    if class_of_claim(claim).is_none()
        && let Some(class) = default_class(world.classes)
    {
        return Step::AssignClass(class.metadata.name.clone().unwrap_or_default());
    }
    if delayed && annotation(&claim.metadata, SELECTED_NODE).is_none() {
        let (reason, note) = match world.waiting_pods {
            [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
            [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
            pods => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
        };
        return Step::Wait(Some((EventType::Normal, reason, note)));
    }
    if !class.is_empty() {
        return Step::Provision;
    }
    let note = "no persistent volumes available for this claim and no storage class is set";
    Step::Wait(Some((EventType::Normal, "FailedBinding", note.to_owned())))
}

/// A claim that names its volume.
fn of_named(claim: &PersistentVolumeClaim, name: &str, world: &World<'_>) -> Step {
    let Some(volume) = named(world, name) else { return Step::Wait(None) };
    if refers_to(volume, claim) {
        return Step::Bind(Arc::clone(volume));
    }
    if claim_ref(volume).is_some() {
        let note = format!("volume {name:?} already bound to a different claim.");
        return Step::Wait(Some((EventType::Warning, "FailedBinding", note)));
    }
    match matching::check(claim, volume) {
        Ok(()) => Step::Bind(Arc::clone(volume)),
        Err(why) => {
            let note = format!("Cannot bind to requested volume {name:?}: {why}");
            Step::Wait(Some((EventType::Warning, "VolumeMismatch", note)))
        }
    }
}

/// A claim that was bound before.
fn of_bound(claim: &PersistentVolumeClaim, world: &World<'_>) -> Step {
    let Some(name) = volume_name(claim) else {
        return Step::Lose(
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        );
    };
    let Some(volume) = named(world, name) else {
        return Step::Lose("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    match claim_ref(volume) {
        Some(reference) if uid_of(reference) != claim.metadata.uid.as_deref() => {
            Step::Lose("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
        }
        _ => Step::Bind(Arc::clone(volume)),
    }
}

fn named<'a>(world: &World<'a>, name: &str) -> Option<&'a Arc<PersistentVolume>> {
    world.volumes.iter().find(|volume| volume.metadata.name.as_deref() == Some(name))
}

struct Claims {
    recorder: Recorder,
}

impl Reconcile<PersistentVolumeClaim> for Claims {
    async fn reconcile(&self, claim: Arc<PersistentVolumeClaim>, ctx: Context) -> windlass::Result {
        let volumes = match volume_name(&claim) {
            Some(name) => ctx.get::<PersistentVolume>(&ObjectKey::cluster(name)).await?.into_iter().collect(),
            None => ctx.client().lister::<PersistentVolume>().list(),
        };
        let classes = ctx.client().lister::<StorageClass>().list();
        let waiting_pods = waiting_pods(&claim, &ctx);
        let world = World { volumes: &volumes, classes: &classes, waiting_pods: &waiting_pods };
        match next_step(&claim, &world) {
            Step::Bind(volume) => bind(&ctx, &volume, &claim).await?,
            Step::Wait(event) => {
                if let Some((kind, reason, note)) = event {
                    match kind {
                        EventType::Normal => self.recorder.normal(&*claim, reason, note),
                        EventType::Warning => self.recorder.warning(&*claim, reason, note),
                    }
                }
                set_status(&ctx, &claim, "Pending", None).await?;
            }
            Step::AssignClass(class) => {
                let mut claim = PersistentVolumeClaim::clone(&claim);
                claim.spec.get_or_insert_default().storage_class_name = Some(class);
                ctx.client().update(&claim).await?;
            }
            Step::Provision => self.provision(&ctx, &claim, &classes).await?,
            Step::Lose(reason, note) => {
                if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Lost") {
                    set_status(&ctx, &claim, "Lost", None).await?;
                    self.recorder.warning(&*claim, reason, note);
                }
            }
        }
        Ok(Outcome::Done)
    }
}

impl Claims {
    /// Asks the provisioner of a claim's class for a volume.
    async fn provision(
        &self,
        ctx: &Context,
        claim: &Arc<PersistentVolumeClaim>,
        classes: &[Arc<StorageClass>],
    ) -> windlass::Result<()> {
        let name = class_of_claim(claim).unwrap_or_default();
        let Some(class) = classes.iter().find(|class| class.metadata.name.as_deref() == Some(name)) else {
            let note = format!("storageclass.storage.k8s.io {name:?} not found");
            self.recorder.warning(&**claim, "ProvisioningFailed", note);
            return Ok(());
        };
        let provisioner = &class.provisioner;
        if provisioner.starts_with("kubernetes.io/") {
            let note = format!("no volume plugin matched name: {provisioner}");
            self.recorder.warning(&**claim, "ProvisioningFailed", note);
            return Ok(());
        }
        if annotation(&claim.metadata, PROVISIONER) != Some(provisioner) {
            let mut asking = PersistentVolumeClaim::clone(claim);
            annotate(&mut asking.metadata, BETA_PROVISIONER, provisioner);
            annotate(&mut asking.metadata, PROVISIONER, provisioner);
            ctx.client().update(&asking).await?;
        }
        let note = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered."
        );
        self.recorder.normal(&**claim, "ExternalProvisioning", note);
        Ok(())
    }
}

/// The pods that use a claim and have not ended.
pub(super) fn users(claim: &ObjectKey, ctx: &Context) -> Vec<Arc<Pod>> {
    let lister = ctx.client().lister::<Pod>();
    lister.add_index(BY_CLAIM, |pod: &Pod| claims_of(pod).map(|key| key.to_string()).collect());
    let mut found = lister.by_index(BY_CLAIM, &claim.to_string());
    found.retain(|pod| !pods::is_finished(pod));
    found
}

/// The names of pods that use a claim and wait for a node.
fn waiting_pods(claim: &PersistentVolumeClaim, ctx: &Context) -> Vec<String> {
    let mut found = users(&ObjectKey::of(claim), ctx);
    found.retain(|pod| pods::node_name(pod).is_none());
    let mut names: Vec<String> = found.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    names.sort();
    names
}

/// Makes a volume and a claim refer to each other, and says in both that they do. Each write can be the last before a
/// crash: the next attempt goes on from there.
async fn bind(ctx: &Context, volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> windlass::Result<()> {
    let mut volume = volume.clone();
    if claim_ref(&volume).is_none_or(|known| !refers_to(&volume, claim) || uid_of(known).is_none()) {
        if !refers_to(&volume, claim) {
            annotate(&mut volume.metadata, BOUND_BY_CONTROLLER, "yes");
        }
        spec_mut(&mut volume).claim_ref = Some(reference_to(claim));
        volume = ctx.client().update(&volume).await?;
    }
    let name = volume.metadata.name.clone().unwrap_or_default();
    set_phase(ctx, &mut volume, "Bound", None).await?;
    let mut claim = claim.clone();
    let named = volume_name(&claim) == Some(&*name);
    if !named || annotation(&claim.metadata, BIND_COMPLETED).is_none() {
        if !named {
            claim.spec.get_or_insert_default().volume_name = Some(name);
            annotate(&mut claim.metadata, BOUND_BY_CONTROLLER, "yes");
        }
        annotate(&mut claim.metadata, BIND_COMPLETED, "yes");
        claim = ctx.client().update(&claim).await?;
    }
    set_status(ctx, &claim, "Bound", Some(&volume)).await
}

/// Writes the phase of a volume if it is another.
pub(super) async fn set_phase(
    ctx: &Context,
    volume: &mut PersistentVolume,
    phase: &str,
    message: Option<String>,
) -> windlass::Result<()> {
    if phase_of_volume(volume) != phase {
        let status = volume.status.take().unwrap_or_default();
        volume.status = Some(PersistentVolumeStatus { phase: Some(phase.to_owned()), message, ..status });
        *volume = ctx.client().update_status(volume).await?;
    }
    Ok(())
}

/// The status of a claim that is bound to a volume, or to none.
pub(super) fn status(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> PersistentVolumeClaimStatus {
    let known = claim.status.clone().unwrap_or_default();
    let changed = known.phase.as_deref() != Some(phase);
    let spec = volume.and_then(|volume| volume.spec.as_ref());
    PersistentVolumeClaimStatus {
        phase: Some(phase.to_owned()),
        access_modes: spec.and_then(|spec| spec.access_modes.clone()),
        // A bound claim grows when its volume has been resized, not before.
        capacity: if volume.is_some() && !changed {
            known.capacity.clone()
        } else {
            spec.and_then(|s| s.capacity.clone())
        },
        current_volume_attributes_class_name: match spec {
            Some(spec) if changed => spec.volume_attributes_class_name.clone(),
            Some(_) => known.current_volume_attributes_class_name.clone(),
            None => None,
        },
        ..known
    }
}

async fn set_status(
    ctx: &Context,
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> windlass::Result<()> {
    let status = status(claim, phase, volume);
    if claim.status.as_ref() != Some(&status) {
        ctx.client().update_status(&PersistentVolumeClaim { status: Some(status), ..claim.clone() }).await?;
    }
    Ok(())
}
