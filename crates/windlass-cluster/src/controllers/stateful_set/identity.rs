//! What makes a pod a certain member of a StatefulSet: its name, labels, host name and volumes.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};

use super::{claims, spec};
use crate::controllers::history::REVISION_LABEL;
use crate::controllers::pods;

const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// A pod's ordinal in a set; nothing if its name is not that of a member. A number has one way to be written, so that
/// no two names stand for one ordinal.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    ordinal_in(pod.metadata.name.as_deref()?, set.metadata.name.as_deref()?)
}

/// The number after `prefix-` in a name.
pub(super) fn ordinal_in(name: &str, prefix: &str) -> Option<i32> {
    let digits = name.strip_prefix(prefix)?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    (ordinal >= 0 && ordinal.to_string() == digits).then_some(ordinal)
}

fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default())
}

/// The pod of an ordinal.
pub(super) fn describe(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let mut pod = pods::from_template(template, set);
    let name = pod_name(set, ordinal);
    pod.metadata.name = Some(name.clone());
    if let Some(pod) = &mut pod.spec {
        pod.hostname = Some(name);
        pod.subdomain = spec(set).service_name.clone().filter(|service| !service.is_empty());
    }
    identify(&mut pod, ordinal);
    add_storage(set, &mut pod, ordinal);
    pod.metadata.labels.get_or_insert_default().insert(REVISION_LABEL.to_owned(), revision.to_owned());
    pod
}

fn identify(pod: &mut Pod, ordinal: i32) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(NAME_LABEL.to_owned(), name);
    labels.insert(INDEX_LABEL.to_owned(), ordinal.to_string());
}

fn add_storage(set: &StatefulSet, pod: &mut Pod, ordinal: i32) {
    let templates = spec(set).volume_claim_templates.as_deref().unwrap_or_default();
    let Some(spec) = pod.spec.as_mut().filter(|_| !templates.is_empty()) else { return };
    let volume = |template| {
        let claim_name = claims::name(set, template, ordinal);
        let source = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
        let name = template.metadata.name.clone().unwrap_or_default();
        Volume { name, persistent_volume_claim: Some(source), ..Volume::default() }
    };
    let mut volumes: Vec<Volume> = templates.iter().map(volume).collect();
    let others = spec.volumes.take().unwrap_or_default().into_iter();
    let others: Vec<Volume> = others.filter(|other| !volumes.iter().any(|own| own.name == other.name)).collect();
    volumes.extend(others);
    spec.volumes = Some(volumes);
}

/// Whether a pod has a volume for each claim.
pub(super) fn has_storage(set: &StatefulSet, pod: &Pod) -> bool {
    let Some(ordinal) = ordinal(set, pod) else { return false };
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    spec(set).volume_claim_templates.iter().flatten().all(|template| {
        let volume = volumes.iter().find(|volume| Some(&volume.name) == template.metadata.name.as_ref());
        let claim = volume.and_then(|volume| volume.persistent_volume_claim.as_ref());
        claim.is_some_and(|claim| claim.claim_name == claims::name(set, template, ordinal))
    })
}

/// The pod as it ought to be, if it is not.
pub(super) fn conforming(set: &StatefulSet, pod: &Pod) -> Option<Pod> {
    let ordinal = ordinal(set, pod)?;
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(NAME_LABEL));
    if label == pod.metadata.name.as_ref() && has_storage(set, pod) {
        return None;
    }
    let mut pod = pod.clone();
    identify(&mut pod, ordinal);
    add_storage(set, &mut pod, ordinal);
    Some(pod)
}
