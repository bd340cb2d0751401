//! ControllerRevisions: the numbered templates that StatefulSets and DaemonSets roll between.
//!
//! A revision's data is a patch that puts its template in the place of the owner's, as `kubectl rollout undo` applies
//! it. Templates are compared as values, not byte by byte. Mirrors upstream's `pkg/controller/history`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::core::Selector;
use serde_json::{Value, json};
use windlass::client::ClientError;
use windlass::{Context, Object, ObjectKey, ReconcileError};

use super::claim::{self, controller_reference};

/// The label of pods that names their revision.
pub(super) const REVISION_LABEL: &str = "controller-revision-hash";
/// The longest part of an owner's name in the name of a revision.
const PREFIX_LENGTH: usize = 223;

/// The patch that restores a template.
pub(super) fn data(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    if let Value::Object(template) = &mut template {
        template.insert("$patch".to_owned(), json!("replace"));
    }
    json!({"spec": {"template": template}})
}

/// The template that a revision restores; nothing if its data is no such patch.
pub(super) fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// Whether a revision restores a template. Data that was written differently but means the same does.
pub(super) fn restores(revision: &ControllerRevision, wanted: &PodTemplateSpec) -> bool {
    template(revision).is_some_and(|restored| restored == *wanted)
}

/// A short word that stands for bytes and the number of collisions so far.
pub(super) fn hash(bytes: &[u8], collisions: Option<i32>) -> String {
    let salt = collisions.map(|collisions| collisions.to_string()).unwrap_or_default();
    let fnv = |hash: u32, byte: &u8| hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte);
    safe_encode(bytes.iter().chain(salt.as_bytes()).fold(0x811c_9dc5, fnv))
}

/// A number as letters and digits that make no words.
pub(super) fn safe_encode(number: u32) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    number.to_string().bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

/// The name of a revision.
pub(super) fn name(owner: &str, hash: &str) -> String {
    format!("{}-{hash}", &owner[..owner.len().min(PREFIX_LENGTH)])
}

/// A revision of `owner` that restores a template and carries the hash under `label`.
pub(super) fn describe<O: Object<DynamicType: Default>>(
    owner: &O,
    template: &PodTemplateSpec,
    (label, hash): (&str, &str),
    number: i64,
) -> ControllerRevision {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    let mut labels: BTreeMap<String, String> = labels.unwrap_or_default();
    labels.insert(label.to_owned(), hash.to_owned());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name(owner.meta().name.as_deref().unwrap_or_default(), hash)),
            namespace: owner.meta().namespace.clone(),
            labels: Some(labels),
            annotations: owner.meta().annotations.clone(),
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data(template))),
        revision: number,
    }
}

/// The revisions of `owner`, the oldest first. Revisions without a controller are adopted, unless the owner is being
/// deleted.
pub(super) async fn of<O: Object<DynamicType: Default>>(
    ctx: &Context,
    owner: &O,
    selector: &Selector,
) -> Result<Vec<Arc<ControllerRevision>>, ReconcileError> {
    let candidates = claim::candidates(&ctx.client().lister::<ControllerRevision>(), owner);
    let mut found = match owner.meta().deletion_timestamp {
        Some(_) => candidates.into_iter().filter(|revision| claim::selects(selector, &**revision)).collect(),
        None => claim::claim(ctx, owner, selector, candidates, &[]).await?,
    };
    sort(&mut found);
    Ok(found)
}

/// Sorts revisions, the oldest first.
fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by_cached_key(|revision| {
        let created = revision.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (revision.revision, created, revision.metadata.name.clone())
    });
}

/// What has to happen for a template to be the newest revision.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// This revision is the newest already.
    Keep(usize),
    /// This older revision gets a new number: its template is back.
    Renumber(usize, i64),
    /// A new revision with this number.
    Create(i64),
}

/// Chooses among revisions that are sorted.
pub(super) fn choose(revisions: &[Arc<ControllerRevision>], template: &PodTemplateSpec) -> Choice {
    let next = revisions.last().map_or(1, |latest| latest.revision + 1);
    match revisions.iter().rposition(|revision| restores(revision, template)) {
        Some(at) if at + 1 == revisions.len() => Choice::Keep(at),
        Some(at) => Choice::Renumber(at, next),
        None => Choice::Create(next),
    }
}

/// The revisions beyond a history's limit, of those sorted and not in use.
pub(super) fn surplus(unused: Vec<Arc<ControllerRevision>>, limit: Option<i32>) -> Vec<Arc<ControllerRevision>> {
    let limit = usize::try_from(limit.unwrap_or(10)).unwrap_or(usize::MAX);
    let count = unused.len().saturating_sub(limit);
    unused.into_iter().take(count).collect()
}

/// Gives a revision another number.
pub(super) async fn renumber(
    ctx: &Context,
    revision: &ControllerRevision,
    number: i64,
) -> Result<ControllerRevision, ClientError> {
    let renumbered = ControllerRevision { revision: number, ..revision.clone() };
    ctx.client().update(&renumbered).await
}

/// Deletes revisions.
pub(super) async fn delete(ctx: &Context, revisions: &[Arc<ControllerRevision>]) -> Result<(), ClientError> {
    for revision in revisions {
        ctx.client().delete::<ControllerRevision>(&ObjectKey::of(&**revision)).await?;
    }
    Ok(())
}
