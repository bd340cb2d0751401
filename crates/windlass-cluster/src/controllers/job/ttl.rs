//! Deletes finished jobs once their time to live is over.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::PropagationPolicy;
use windlass::client::options::DeleteOptions;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};

use super::{end, spec};

pub(in crate::controllers) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(Controller::<Job>::new("ttl-after-finished-controller").complete(TimeToLive))
}

struct TimeToLive;

impl Reconcile<Job> for TimeToLive {
    async fn reconcile(&self, job: Arc<Job>, ctx: Context) -> windlass::Result {
        let key = ObjectKey::of(&*job);
        match left(&job, ctx.now()) {
            None => return Ok(Outcome::Done),
            Some(left) if !left.is_zero() => return Ok(Outcome::RequeueAfter(left)),
            Some(_) => {}
        }
        // It may have been given more time a moment ago.
        let Some(job) = ctx.live().get::<Job>(&key).await? else { return Ok(Outcome::Done) };
        if left(&job, ctx.now()) != Some(Duration::ZERO) {
            return Ok(Outcome::Done);
        }
        let options = DeleteOptions::new().uid(job.metadata.uid.unwrap_or_default());
        ctx.client().delete_with::<Job>(&key, options.propagation(PropagationPolicy::Foreground)).await?;
        Ok(Outcome::Done)
    }
}

/// How long a job may stay; nothing if that is not limited.
fn left(job: &Job, now: Timestamp) -> Option<Duration> {
    let seconds = spec(job).ttl_seconds_after_finished?;
    let finished = end(job)?.last_transition_time.as_ref()?.0;
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let left = SignedDuration::from_secs(seconds.into()) - now.duration_since(finished);
    Some(Duration::try_from(left).unwrap_or_default())
}
