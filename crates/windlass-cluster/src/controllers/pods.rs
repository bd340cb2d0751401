//! What controllers of pods share: the states of a pod, making pods from a template, and in which
//! order to give them up.

mod order;

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use windlass::client::ClientError;
use windlass::{Context, Object, ObjectKey};

use super::claim::controller_reference;
use super::namespace::is_terminating as is_namespace_terminating;
pub(super) use order::{preferred_victims, sort_for_deletion};

/// The phase a pod is in; empty when it has none yet.
pub(super) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The node a pod is assigned to.
pub(super) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether a pod has run to its end.
pub(super) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether a pod counts as one of those that should run.
pub(super) fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a pod is on its way out.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// A pod's condition.
pub(super) fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// Whether a pod is ready.
pub(super) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Since when a pod has been ready, if it is.
pub(super) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let condition = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    condition.last_transition_time.as_ref().map(|time| time.0)
}

/// When a pod that is ready will have been so for long enough.
fn available_at(pod: &Pod, min_ready_seconds: i32) -> Option<Timestamp> {
    ready_since(pod)?.checked_add(SignedDuration::from_secs(min_ready_seconds.into())).ok()
}

/// Whether a pod has been ready for long enough.
pub(super) fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(pod) && (min_ready_seconds == 0 || available_at(pod, min_ready_seconds).is_some_and(|at| at <= now))
}

/// After what time another of these pods will have been ready for long enough.
pub(super) fn next_available<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    let times = pods.into_iter().filter_map(|pod| available_at(pod, min_ready_seconds));
    let next = times.filter(|at| *at > now).min()?;
    Some(next.duration_since(now).unsigned_abs())
}

/// A pod as a template describes it, controlled by `owner`.
pub(super) fn from_template<O: Object<DynamicType: Default>>(template: &PodTemplateSpec, owner: &O) -> Pod {
    let described = template.metadata.clone().unwrap_or_default();
    let name = owner.meta().name.as_deref().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            namespace: owner.meta().namespace.clone(),
            generate_name: Some(format!("{name}-")),
            labels: described.labels,
            annotations: described.annotations,
            finalizers: described.finalizers,
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Creates a pod and says so in an event on its owner.
pub(super) async fn create<O: Object<DynamicType: Default>>(
    ctx: &Context,
    owner: &O,
    pod: &Pod,
) -> Result<Pod, ClientError> {
    let created = ctx.client().create(pod).await;
    match &created {
        Ok(pod) => {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            ctx.recorder().normal(owner, "SuccessfulCreate", format!("Created pod: {name}"));
        }
        Err(error) if is_namespace_terminating(error) => {}
        Err(error) => ctx.recorder().warning(owner, "FailedCreate", format!("Error creating: {}", message(error))),
    }
    created
}

/// Deletes a pod and says so in an event on its owner.
pub(super) async fn delete<O: Object<DynamicType: Default>>(
    ctx: &Context,
    owner: &O,
    pod: &ObjectKey,
) -> Result<(), ClientError> {
    match ctx.client().delete::<Pod>(pod).await {
        Ok(true) => ctx.recorder().normal(owner, "SuccessfulDelete", format!("Deleted pod: {}", pod.name())),
        Ok(false) => {}
        Err(error) => {
            ctx.recorder().warning(owner, "FailedDelete", format!("Error deleting: {}", message(&error)));
            return Err(error);
        }
    }
    Ok(())
}

/// The server's own words, where there are any.
pub(super) fn message(error: &ClientError) -> String {
    error.status().map_or_else(|| error.to_string(), |status| status.message.clone())
}

/// A number, or a percentage of `total` rounded up or down.
pub(super) fn scaled(value: Option<&IntOrString>, total: i32, up: bool) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.strip_suffix('%').and_then(|number| number.parse().ok()).unwrap_or(0);
            let product = percent * i64::from(total);
            (if up { (product + 99).div_euclid(100) } else { product.div_euclid(100) }) as i32
        }
    }
}

/// Does something `count` times, a few at first and twice as many each time it goes well, so that what
/// cannot succeed is not tried hundreds of times. Returns how often it did, and the first failure.
pub(super) async fn slow_start<T, E, F>(count: usize, step: impl Fn(usize) -> F) -> (Vec<T>, Option<E>)
where
    F: Future<Output = Result<T, E>>,
{
    let mut done = Vec::new();
    let (mut next, mut batch) = (0, 1);
    while next < count {
        let end = count.min(next + batch);
        let mut failure = None;
        for result in join_all((next..end).map(&step)).await {
            match result {
                Ok(value) => done.push(value),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if failure.is_some() {
            return (done, failure);
        }
        (next, batch) = (end, batch * 2);
    }
    (done, None)
}

#[cfg(test)]
mod tests;
