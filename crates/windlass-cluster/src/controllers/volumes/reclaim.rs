//! The phase of volumes, and what becomes of those whose claim is gone.
//!
//! Data is deleted for volumes that were made for claims on this machine, and for no others: a hostPath volume that upstream
//! would empty is simulated, and only its object goes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::json;
use windlass::events::Recorder;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};

use super::claims::{set_phase, users};
use super::{
    BOUND_BY_CONTROLLER, OWN_PROVISIONER, PROVISIONED_BY, REPORTER, annotation, claim_ref, modes_differ,
    phase_of_volume, referred, spec_mut, uid_of, volume_name, volumes_for,
};
use crate::controllers::protection::claims_of;

/// Where pods that empty volumes run, and how their names begin.
const RECYCLERS: &str = "default";
const RECYCLER: &str = "recycler-for-";

/// The data of volumes is deleted if it is right below `dir`.
pub(in crate::controllers) fn add(manager: &mut Manager, dir: Option<PathBuf>) -> Result<(), ManagerError> {
    let controller = Controller::<PersistentVolume>::new("persistentvolume-reclaim-controller");
    let volumes = Volumes { recorder: manager.recorder(REPORTER), dir };
    manager.add(
        controller
            .watches(|claim: &PersistentVolumeClaim, ctx| {
                let referring = volumes_for(&ctx.lister::<PersistentVolume>(), &ObjectKey::of(claim));
                let named = volume_name(claim).map(ObjectKey::cluster);
                referring.iter().map(ObjectKey::of).chain(named).collect::<Vec<_>>()
            })
            .watches(|pod: &Pod, ctx| {
                let ours = pod.metadata.namespace.as_deref() == Some(RECYCLERS);
                let recycled = pod.metadata.name.as_deref().and_then(|name| name.strip_prefix(RECYCLER));
                let mut keys: Vec<ObjectKey> = recycled.filter(|_| ours).map(ObjectKey::cluster).into_iter().collect();
                // A released volume is recycled once the last pod that uses it has ended.
                let volumes = ctx.lister::<PersistentVolume>();
                let used = claims_of(pod).flat_map(|claim| volumes_for(&volumes, &claim));
                keys.extend(
                    used.filter(|volume| phase_of_volume(volume) == "Released").map(|one| ObjectKey::of(&*one)),
                );
                keys
            })
            .complete(volumes),
    )
}

/// What to do about a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Phase(&'static str),
    /// Its claim is gone.
    Reclaim,
    /// Its claim is bound to another volume: it is free again.
    Unbind,
    /// It is kept for a claim that wants another kind of volume.
    Mismatch,
    Nothing,
}

/// Decides what to do about a volume, given the claim that it refers to.
pub(super) fn next_step(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> Step {
    let Some(uid) = claim_ref(volume).and_then(uid_of) else { return Step::Phase("Available") };
    let Some(claim) = claim.filter(|claim| claim.metadata.uid.as_deref() == Some(uid)) else { return Step::Reclaim };
    match volume_name(claim) {
        None if modes_differ(claim, volume) => Step::Mismatch,
        // The claim is about to be bound.
        None => Step::Nothing,
        Some(name) if Some(name) == volume.metadata.name.as_deref() => Step::Phase("Bound"),
        Some(_) if annotation(&volume.metadata, PROVISIONED_BY).is_some() && policy(volume) == "Delete" => {
            Step::Reclaim
        }
        Some(_) => Step::Unbind,
    }
}

/// How a volume's data is done away with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deletion {
    /// There is nothing but the object.
    Object,
    /// An external provisioner deletes it.
    External,
    /// It cannot be deleted, for this reason.
    Impossible(String),
}

/// Decides how to delete a volume's data.
pub(super) fn deletion(volume: &PersistentVolume) -> Deletion {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let spec = volume.spec.as_ref();
    match annotation(&volume.metadata, PROVISIONED_BY).filter(|provisioner| !provisioner.is_empty()) {
        Some(OWN_PROVISIONER) => return Deletion::Object,
        Some(provisioner) if !provisioner.starts_with("kubernetes.io/") => return Deletion::External,
        _ => {}
    }
    if spec.is_some_and(|spec| spec.csi.is_some()) {
        return Deletion::External;
    }
    match spec.and_then(|spec| spec.host_path.as_ref()) {
        None => Deletion::Impossible(format!(
            "error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched"
        )),
        Some(host) if host.path.find("/tmp/").is_some_and(|at| host.path.len() > at + 5) => Deletion::Object,
        Some(host) => {
            Deletion::Impossible(format!("host_path deleter only supports /tmp/.+ but received provided {}", host.path))
        }
    }
}

/// Where the data of a volume is, if it was made right below this directory.
pub(super) fn data(volume: &PersistentVolume, dir: &Path) -> Option<PathBuf> {
    let ours = annotation(&volume.metadata, PROVISIONED_BY) == Some(OWN_PROVISIONER);
    let path = PathBuf::from(&volume.spec.as_ref()?.host_path.as_ref()?.path);
    let is_below = path.parent() == Some(dir) && path.file_name().is_some();
    (ours && is_below).then_some(path)
}

fn delete_data(path: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot delete {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

fn policy(volume: &PersistentVolume) -> &str {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    policy.unwrap_or("Retain")
}

struct Volumes {
    recorder: Recorder,
    dir: Option<PathBuf>,
}

impl Reconcile<PersistentVolume> for Volumes {
    async fn reconcile(&self, volume: Arc<PersistentVolume>, ctx: Context) -> windlass::Result {
        let claim = self.claim_of(&volume, &ctx).await?;
        let step = next_step(&volume, claim.as_deref());
        let mut volume = PersistentVolume::clone(&volume);
        match step {
            Step::Phase(phase) => set_phase(&ctx, &mut volume, phase, None).await?,
            Step::Unbind => unbind(&ctx, volume).await?,
            Step::Reclaim => {
                if !matches!(phase_of_volume(&volume), "Released" | "Failed") {
                    set_phase(&ctx, &mut volume, "Released", None).await?;
                }
                Box::pin(self.reclaim(&ctx, volume)).await?;
            }
            Step::Mismatch => {
                let claim = claim.unwrap_or_default();
                let (name, of_volume) = (claim.metadata.name.as_deref(), volume.metadata.name.as_deref());
                let (name, of_volume) = (name.unwrap_or_default(), of_volume.unwrap_or_default());
                let note = format!(
                    "Cannot bind PersistentVolume to requested PersistentVolumeClaim {name:?} due to incompatible \
                     volumeMode."
                );
                self.recorder.warning(&volume, "VolumeMismatch", note);
                let note = format!(
                    "Cannot bind PersistentVolume {of_volume:?} to requested PersistentVolumeClaim due to incompatible \
                     volumeMode."
                );
                self.recorder.warning(&*claim, "VolumeMismatch", note);
            }
            Step::Nothing => {}
        }
        Ok(Outcome::Done)
    }
}

impl Volumes {
    /// The claim a volume refers to. That it is gone must be certain: data may be deleted.
    async fn claim_of(
        &self,
        volume: &PersistentVolume,
        ctx: &Context,
    ) -> windlass::Result<Option<Arc<PersistentVolumeClaim>>> {
        let Some(reference) = claim_ref(volume) else { return Ok(None) };
        let key = referred(reference);
        let same = |claim: &PersistentVolumeClaim| claim.metadata.uid.as_deref() == uid_of(reference);
        if let Some(claim) = ctx.get::<PersistentVolumeClaim>(&key).await?.filter(|claim| same(claim)) {
            return Ok(Some(claim));
        }
        Ok(ctx.live().get::<PersistentVolumeClaim>(&key).await?.filter(same).map(Arc::new))
    }

    async fn reclaim(&self, ctx: &Context, volume: PersistentVolume) -> windlass::Result<()> {
        match policy(&volume) {
            "Delete" => match deletion(&volume) {
                Deletion::External => Ok(()),
                Deletion::Object => {
                    if let Some(data) = self.dir.as_deref().and_then(|dir| data(&volume, dir)) {
                        let deleted = tokio::task::spawn_blocking(move || delete_data(&data)).await;
                        if let Ok(Err(why)) = deleted {
                            return self.fail(ctx, volume, "VolumeFailedDelete", why).await;
                        }
                    }
                    ctx.client().delete::<PersistentVolume>(&ObjectKey::of(&volume)).await?;
                    Ok(())
                }
                Deletion::Impossible(why) => self.fail(ctx, volume, "VolumeFailedDelete", why).await,
            },
            "Recycle" => Box::pin(self.recycle(ctx, volume)).await,
            _ => Ok(()),
        }
    }

    async fn fail(
        &self,
        ctx: &Context,
        mut volume: PersistentVolume,
        reason: &str,
        why: String,
    ) -> windlass::Result<()> {
        if phase_of_volume(&volume) != "Failed" {
            set_phase(ctx, &mut volume, "Failed", Some(why.clone())).await?;
            self.recorder.warning(&volume, reason, why);
        }
        Ok(())
    }

    /// Has a pod empty a volume, then makes it available again.
    async fn recycle(&self, ctx: &Context, volume: PersistentVolume) -> windlass::Result<()> {
        let Some(source) = recyclable(&volume) else {
            let why = "No recycler plugin found for the volume!".to_owned();
            return self.fail(ctx, volume, "VolumeFailedRecycle", why).await;
        };
        if let Some(claim) = claim_ref(&volume).map(referred) {
            let pods = users(&claim, ctx);
            // A claim that exists is another one of the same name, and the pods are its.
            if !pods.is_empty() && ctx.get::<PersistentVolumeClaim>(&claim).await?.is_none() {
                let names: BTreeSet<String> = pods.iter().map(|pod| ObjectKey::of(&**pod).to_string()).collect();
                let names = names.into_iter().collect::<Vec<_>>().join(",");
                self.recorder.normal(&volume, "VolumeFailedRecycle", format!("Volume is used by pods: {names}"));
                return Ok(());
            }
        }
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let key = ObjectKey::new(RECYCLERS, format!("{RECYCLER}{name}"));
        let Some(pod) = ctx.get::<Pod>(&key).await? else {
            if phase_of_volume(&volume) != "Failed" {
                ctx.client().create(&recycler(&key, &source)?).await?;
            }
            return Ok(());
        };
        match crate::controllers::pods::phase(&pod) {
            "Succeeded" => {
                ctx.client().delete::<Pod>(&key).await?;
                self.recorder.normal(&volume, "VolumeRecycled", "Volume recycled");
                unbind(ctx, volume).await
            }
            "Failed" => {
                ctx.client().delete::<Pod>(&key).await?;
                let message = pod.status.as_ref().and_then(|status| status.message.clone());
                let why = format!(
                    "Recycle failed: {}",
                    message.unwrap_or_else(|| "pod failed, pod.Status.Message unknown.".to_owned())
                );
                self.fail(ctx, volume, "VolumeFailedRecycle", why).await
            }
            _ => Ok(()),
        }
    }
}

/// The source of a volume that a pod can empty, as pods name it.
fn recyclable(volume: &PersistentVolume) -> Option<serde_json::Value> {
    let spec = volume.spec.as_ref()?;
    let host = spec.host_path.as_ref().map(|host| json!({"name": "vol", "hostPath": host}));
    host.or_else(|| spec.nfs.as_ref().map(|nfs| json!({"name": "vol", "nfs": nfs})))
}

/// The pod that empties a volume.
fn recycler(key: &ObjectKey, source: &serde_json::Value) -> windlass::Result<Pod> {
    let script = "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1";
    Ok(serde_json::from_value(json!({
        "metadata": {"name": key.name(), "namespace": key.namespace()},
        "spec": {
            "activeDeadlineSeconds": 60, "restartPolicy": "Never", "volumes": [source],
            "containers": [{
                "name": "pv-recycler", "image": "registry.k8s.io/build-image/debian-base:bookworm-v1.0.4",
                "command": ["/bin/sh"], "args": ["-c", script], "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}],
            }],
        },
    }))?)
}

/// Makes a volume available that no claim is bound to any more. One that was reserved for a claim stays so.
async fn unbind(ctx: &Context, mut volume: PersistentVolume) -> windlass::Result<()> {
    if annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some() {
        spec_mut(&mut volume).claim_ref = None;
        if let Some(annotations) = &mut volume.metadata.annotations {
            annotations.remove(BOUND_BY_CONTROLLER);
        }
    } else if let Some(reference) = &mut spec_mut(&mut volume).claim_ref {
        reference.uid = None;
        reference.resource_version = None;
    }
    let mut updated = ctx.client().update(&volume).await?;
    set_phase(ctx, &mut updated, "Available", None).await
}
