//! The volumes of pods: resolved before a pod starts, and again when an object that they refer to changes.
//!
//! Only runtimes that run containers are told about changes, and at once: a kubelet takes up to a minute. What pods of other
//! runtimes refer to is forgotten when they have started.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, PodSpec, Secret};
use windlass::ObjectKey;

use super::Shared;
use super::pods::Held;
use crate::api::{path, volume_path};
use crate::pod::{Notice, Now, Observation};
use crate::runtime::Runtime;
use crate::volumes::claims::{self, ClaimName};
use crate::volumes::{Found, MountFailure, Mounted, Reference, Volume, references, volumes};

/// What the files of a pod that runs were made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Made {
    /// Of the labels and annotations of the pod.
    fields: u64,
    /// Of everything.
    content: u64,
}

fn hash(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What of a pod its own files may show, and may change while it runs.
fn fields(pod: &Pod) -> u64 {
    hash(&(&pod.metadata.labels, &pod.metadata.annotations))
}

/// Whether a pod has files whose content may change.
fn has_files(spec: &PodSpec) -> bool {
    spec.volumes.iter().flatten().any(|volume| {
        volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.projected.is_some()
            || volume.downward_api.is_some()
    })
}

impl<R: Runtime> Shared<R> {
    /// Resolves the volumes of a pod. False if that is not possible now.
    pub(super) async fn mount(
        &self,
        key: &ObjectKey,
        pod: &Arc<Pod>,
        spec: &PodSpec,
        held: &mut Held,
        now: Now,
        notices: &mut Vec<Notice>,
    ) -> Result<bool, kube::Error> {
        match self.resolve(key, pod, spec, held).await? {
            Ok(mounted) => {
                held.retry_mount = None;
                if self.runtime.runs_containers() {
                    held.made = Some(Made { fields: fields(pod), content: hash(&mounted) });
                    self.follow(key, spec);
                }
                held.volumes = Some(Arc::new(mounted));
                Ok(true)
            }
            Err(failure) => {
                notices.push(Notice::warning(None, "FailedMount", failure.message()));
                held.retry_mount = Some(now.instant + held.mounts.failed(now.instant));
                let namespace = key.namespace().unwrap_or_default();
                let mut waiting = self.waiting.lock();
                for reference in references(spec) {
                    let pods = waiting.entry((namespace.to_owned(), reference)).or_default();
                    if !pods.contains(key) {
                        pods.push(key.clone());
                    }
                }
                Ok(false)
            }
        }
    }

    async fn resolve(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        spec: &PodSpec,
        held: &Held,
    ) -> Result<Result<Mounted, MountFailure>, kube::Error> {
        let node = &held.node.name;
        let namespace = key.namespace().unwrap_or_default();
        let mut found = self.sources.find(&self.api, node, namespace, &references(spec)).await?;
        if self.runtime.runs_containers() {
            found.claims = self.claims(node, namespace, pod, spec).await?;
        }
        Ok(volumes(pod, spec, &found, &held.surroundings()).map(|volumes| Mounted { volumes }))
    }

    /// What the claims of a pod lead to.
    async fn claims(
        &self,
        node: &Arc<str>,
        namespace: &str,
        pod: &Pod,
        spec: &PodSpec,
    ) -> Result<BTreeMap<String, Result<Volume, String>>, kube::Error> {
        let mut found = BTreeMap::new();
        for name in claims::names(pod, spec) {
            let claimed = self.claimed(node, namespace, pod, &name).await?;
            found.insert(name.volume, claimed);
        }
        Ok(found)
    }

    async fn claimed(
        &self,
        node: &Arc<str>,
        namespace: &str,
        pod: &Pod,
        name: &ClaimName,
    ) -> Result<Result<Volume, String>, kube::Error> {
        let claim: Option<PersistentVolumeClaim> = match path(namespace, "persistentvolumeclaims", &name.claim) {
            Some(path) => self.api.get(node, &path).await?,
            None => None,
        };
        let volume = match claims::volume_name(name, pod, claim.as_ref()) {
            Ok(volume) => volume,
            Err(why) => return Ok(Err(why)),
        };
        let volume: Option<PersistentVolume> = match volume_path(&volume) {
            Some(path) => self.api.get(node, &path).await?,
            None => None,
        };
        Ok(claims::volume(name, volume.as_ref()))
    }

    /// Brings the files of a pod that runs up to date, if what they show may have changed.
    pub(super) async fn remount(
        &self,
        key: &ObjectKey,
        pod: &Arc<Pod>,
        spec: &PodSpec,
        held: &mut Held,
        sources_changed: bool,
    ) -> Result<Option<Observation>, kube::Error> {
        if !self.runtime.runs_containers() || !held.life.has_sandbox() || held.life.end.is_some() || !has_files(spec) {
            return Ok(None);
        }
        let now = fields(pod);
        let is_current = held.made.is_some_and(|made| made.fields == now);
        if is_current && !sources_changed {
            return Ok(None);
        }
        self.follow(key, spec);
        // An object that is gone leaves the files as they are, as a kubelet does.
        let Ok(mounted) = self.resolve(key, pod, spec, held).await? else { return Ok(None) };
        let content = hash(&mounted);
        let before = held.made.replace(Made { fields: now, content });
        if before.is_some_and(|before| before.content == content) {
            return Ok(None);
        }
        let operation = self.runtime.update(&held.sandbox(pod), &Arc::new(mounted));
        Ok(self.settle(key, pod, operation, Observation::Updated))
    }

    /// Has a pod worked on whenever something changes that its volumes refer to.
    fn follow(&self, key: &ObjectKey, spec: &PodSpec) {
        let namespace = key.namespace().unwrap_or_default();
        let mut following = self.following.lock();
        for reference in references(spec) {
            following.entry((namespace.to_owned(), reference)).or_default().insert(key.clone());
        }
    }

    pub(super) fn unfollow(&self, key: &ObjectKey) {
        if self.runtime.runs_containers() {
            self.following.lock().retain(|_, pods| {
                pods.remove(key);
                !pods.is_empty()
            });
        }
    }

    /// The Secrets with credentials for the images of a pod.
    pub(super) async fn pull_secrets(
        &self,
        key: &ObjectKey,
        spec: &PodSpec,
        held: &Held,
        notices: &mut Vec<Notice>,
    ) -> Result<Vec<Arc<Secret>>, kube::Error> {
        if !self.runtime.runs_containers() {
            return Ok(Vec::new());
        }
        let named: Vec<&String> = spec
            .image_pull_secrets
            .iter()
            .flatten()
            .map(|secret| &secret.name)
            .filter(|name| !name.is_empty())
            .collect();
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let references = named.iter().map(|name| Reference::Secret((*name).clone())).collect();
        let namespace = key.namespace().unwrap_or_default();
        for name in &named {
            // Credentials that were refused may have been replaced.
            self.sources.forget(namespace, name);
        }
        let Found { mut secrets, .. } = self.sources.find(&self.api, &held.node.name, namespace, &references).await?;
        let missing: Vec<&str> =
            named.iter().map(|name| name.as_str()).filter(|name| !secrets.contains_key(*name)).collect();
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            notices.push(Notice::warning(None, "FailedToRetrieveImagePullSecret", message));
        }
        Ok(named.into_iter().filter_map(|name| secrets.remove(name)).collect())
    }
}
