//! Which ReplicaSet is the newest, which are old, and what revisions they are.

use std::cmp::Ordering;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass::{ObjectKey, ReconcileError, owner};

use super::annotations::{self, REVISION};
use super::{Rollout, condition, new_condition, numbers, progress_deadline, set_condition, size, spec};
use crate::controllers::claim::controller_reference;
use crate::controllers::history::safe_encode;
use crate::controllers::namespace::is_terminating;
use crate::controllers::pods;

const HASH_LABEL: &str = "pod-template-hash";
/// The longest name an object may have.
const NAME_LENGTH: usize = 253;

/// The ReplicaSets of a deployment.
pub(super) struct ReplicaSetsOf {
    /// The one with the deployment's template, if it exists.
    pub(super) new: Option<ReplicaSet>,
    /// All others.
    pub(super) old: Vec<ReplicaSet>,
}

impl ReplicaSetsOf {
    pub(super) fn split(deployment: &Deployment, mut sets: Vec<ReplicaSet>) -> Self {
        sets.sort_by(by_age);
        let template = &spec(deployment).template;
        // Should there be several with the template, the oldest is taken.
        let new = sets.iter().position(|set| same_template(template, set)).map(|at| sets.remove(at));
        Self { new, old: sets }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.old.iter().chain(&self.new)
    }

    /// Those that ask for pods.
    pub(super) fn active(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.all().filter(|set| size(set) > 0)
    }

    /// How many replicas all ask for together.
    pub(super) fn size(&self) -> i32 {
        self.all().map(size).sum()
    }
}

/// The older first.
pub(super) fn by_age(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    let created = |set: &ReplicaSet| set.metadata.creation_timestamp.as_ref().map(|time| time.0);
    created(a).cmp(&created(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

fn same_template(template: &PodTemplateSpec, set: &ReplicaSet) -> bool {
    let Some(other) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else { return false };
    let labels = |template: &PodTemplateSpec| {
        let mut metadata = template.metadata.clone().unwrap_or_default();
        if let Some(labels) = &mut metadata.labels {
            labels.remove(HASH_LABEL);
        }
        metadata.labels = metadata.labels.filter(|labels| !labels.is_empty());
        metadata
    };
    template.spec == other.spec && labels(template) == labels(other)
}

/// A short word that stands for a template. Upstream hashes a dump of its own structures; only that
/// equal templates get equal words matters to anybody.
pub(super) fn template_hash(template: &PodTemplateSpec, collisions: i32) -> String {
    let encoded = serde_json::to_vec(template).unwrap_or_default();
    let salt = collisions.to_string();
    let salt = if collisions > 0 { salt.as_bytes() } else { &[] };
    let fnv = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    safe_encode(encoded.iter().chain(salt).fold(0x811c_9dc5, fnv))
}

fn set_name(deployment: &str, hash: &str) -> String {
    let longest = NAME_LENGTH - 1 - hash.len();
    format!("{}-{hash}", &deployment[..deployment.len().min(longest)])
}

impl Rollout<'_> {
    /// Gives the newest ReplicaSet the highest revision, and the deployment the same. Without one,
    /// creates it if told to.
    pub(super) async fn sync_revision(&mut self, sets: &mut ReplicaSetsOf, create: bool) -> Result<(), ReconcileError> {
        let revision = sets.old.iter().map(annotations::revision).max().unwrap_or(0) + 1;
        match sets.new.take() {
            Some(set) => sets.new = Some(self.sync_existing(set, revision).await?),
            None if create => sets.new = Some(self.create_set(sets, revision).await?),
            None => {}
        }
        Ok(())
    }

    async fn sync_existing(&mut self, set: ReplicaSet, revision: i64) -> Result<ReplicaSet, ReconcileError> {
        let mut updated = set;
        let mut changed = annotations::note_revision(&mut updated, &self.deployment, revision, true);
        let seconds = spec(&self.deployment).min_ready_seconds;
        if let Some(set) = &mut updated.spec
            && set.min_ready_seconds.unwrap_or(0) != seconds.unwrap_or(0)
        {
            set.min_ready_seconds = seconds;
            changed = true;
        }
        if changed {
            return Ok(self.ctx.client().update(&updated).await?);
        }
        let noted = updated.metadata.annotations.as_ref().and_then(|all| all.get(REVISION)).cloned();
        let mut changed = self.note_revision(noted.unwrap_or_default());
        let status = self.deployment.status.get_or_insert_default();
        if condition(status, "Progressing").is_none() && progress_deadline(&self.deployment).is_some() {
            let name = updated.metadata.name.as_deref().unwrap_or_default();
            self.note_progress("True", "FoundNewReplicaSet", format!("Found new replica set {name:?}"));
            changed = true;
        }
        if changed {
            self.deployment = self.ctx.client().update_status(&self.deployment).await?;
        }
        Ok(updated)
    }

    /// Notes a revision on the deployment; whether it is news.
    fn note_revision(&mut self, revision: String) -> bool {
        let annotations = self.deployment.metadata.annotations.get_or_insert_default();
        if annotations.get(REVISION) == Some(&revision) {
            return false;
        }
        annotations.insert(REVISION.to_owned(), revision);
        true
    }

    fn note_progress(&mut self, status: &str, reason: &str, message: String) {
        let new = new_condition("Progressing", status, reason, message, self.ctx.now());
        set_condition(self.deployment.status.get_or_insert_default(), new);
    }

    async fn create_set(&mut self, sets: &ReplicaSetsOf, revision: i64) -> Result<ReplicaSet, ReconcileError> {
        let wanted = self.describe_set(sets, revision);
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let has_deadline = progress_deadline(&self.deployment).is_some();
        let created = match self.ctx.client().create(&wanted).await {
            Ok(created) => created,
            Err(error) if error.is_already_exists() => return self.find_created(&wanted).await,
            Err(error) => {
                if !is_terminating(&error) {
                    let note = format!("Failed to create new replica set {name:?}: {}", pods::message(&error));
                    if has_deadline {
                        self.note_progress("False", "ReplicaSetCreateError", note.clone());
                        // The failure to create is the one worth reporting.
                        let _ = self.ctx.client().update_status(&self.deployment).await;
                    }
                    self.ctx.recorder().warning(&self.deployment, "ReplicaSetCreateError", note);
                }
                return Err(error.into());
            }
        };
        if size(&created) > 0 {
            let note = format!("Scaled up replica set {name} from 0 to {}", size(&created));
            self.ctx.recorder().normal(&self.deployment, "ScalingReplicaSet", note);
        }
        let mut changed = self.note_revision(revision.to_string());
        if has_deadline {
            self.note_progress("True", "NewReplicaSetCreated", format!("Created new replica set {name:?}"));
            changed = true;
        }
        if changed {
            self.deployment = self.ctx.client().update_status(&self.deployment).await?;
        }
        Ok(created)
    }

    fn describe_set(&self, sets: &ReplicaSetsOf, revision: i64) -> ReplicaSet {
        let spec = spec(&self.deployment);
        let collisions = self.deployment.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
        let hash = template_hash(&spec.template, collisions);
        let mut template = spec.template.clone();
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(HASH_LABEL.to_owned(), hash.clone());
        let labels = labels.clone();
        let mut selector = spec.selector.clone();
        selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
        let name = self.deployment.metadata.name.as_deref().unwrap_or_default();
        let mut set = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(set_name(name, &hash)),
                namespace: self.deployment.metadata.namespace.clone(),
                owner_references: Some(vec![controller_reference(&self.deployment)]),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(numbers::new_size(&self.deployment, sets.size(), 0)),
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        };
        annotations::note_revision(&mut set, &self.deployment, revision, false);
        set
    }

    /// A ReplicaSet of the name exists: it is the one wanted, or something else has the same hash.
    async fn find_created(&mut self, wanted: &ReplicaSet) -> Result<ReplicaSet, ReconcileError> {
        let key = ObjectKey::of(wanted);
        let Some(found) = self.ctx.live().get::<ReplicaSet>(&key).await? else {
            return Err(format!("{key} was there a moment ago").into());
        };
        let template = &spec(&self.deployment).template;
        if owner::is_controlled_by(&found, &self.deployment) && same_template(template, &found) {
            return Ok(found);
        }
        *self.deployment.status.get_or_insert_default().collision_count.get_or_insert_default() += 1;
        self.deployment = self.ctx.client().update_status(&self.deployment).await?;
        Err(format!("another object has the name {key}").into())
    }
}
