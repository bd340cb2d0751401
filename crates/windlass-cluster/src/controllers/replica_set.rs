//! ReplicaSets: keeps as many pods of a template as asked for. [`Replicas`] does the same for every [`Replicated`] kind.
//!
//! Needs none of upstream's expectations (`pkg/controller/replicaset`): the cache shows the
//! controller's own writes at once, so that it never counts a pod twice or not at all.

use std::borrow::Cow;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::core::Selector;
use parking_lot::Mutex;
use tokio::time::Instant;
use windlass::cache::Lister;
use windlass::client::ClientError;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, Object, ObjectKey, Outcome, Reconcile, owner};

use super::namespace::is_terminating as is_namespace_terminating;
use super::{claim, pods};

/// Pods created or deleted in one go.
const BURST: usize = 500;
const FAILURE: &str = "ReplicaFailure";
/// How often a set is looked at while its namespace is being deleted.
const ENDING_INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    add_as::<ReplicaSet>(manager, "replicaset-controller")
}

/// Adds the controller of a kind.
pub(super) fn add_as<O: Replicated>(manager: &mut Manager, name: &str) -> Result<(), ManagerError> {
    manager.add(
        Controller::<O>::new(name)
            .owns::<Pod>()
            .watches(|pod: &Pod, ctx| claim::adopters_by(pod, &ctx.lister(), O::selector))
            // Namespaces are read from the cache.
            .watches(|_: &Namespace, _| None)
            .concurrency(5)
            .complete(Replicas::<O> { ending: Mutex::default(), kind: PhantomData }),
    )
}

/// A kind that asks for a number of pods of a template, in the terms of ReplicaSets.
pub(super) trait Replicated: Object<DynamicType: Default> {
    /// Whether its status says how many pods are terminating.
    const COUNTS_TERMINATING: bool;

    /// What is asked for.
    fn replica_spec(&self) -> Option<Cow<'_, ReplicaSetSpec>>;

    /// Which pods count.
    fn selector(&self) -> Option<Selector>;

    /// What was found last.
    fn replica_status(&self) -> Option<Cow<'_, ReplicaSetStatus>>;

    /// The same object with another status.
    fn with_replica_status(&self, status: ReplicaSetStatus) -> Self;
}

impl Replicated for ReplicaSet {
    const COUNTS_TERMINATING: bool = true;

    fn replica_spec(&self) -> Option<Cow<'_, ReplicaSetSpec>> {
        self.spec.as_ref().map(Cow::Borrowed)
    }

    fn selector(&self) -> Option<Selector> {
        self.spec.as_ref().and_then(|spec| claim::selector(&spec.selector))
    }

    fn replica_status(&self) -> Option<Cow<'_, ReplicaSetStatus>> {
        self.status.as_ref().map(Cow::Borrowed)
    }

    fn with_replica_status(&self, status: ReplicaSetStatus) -> Self {
        Self { status: Some(status), ..self.clone() }
    }
}

struct Replicas<O> {
    /// When a set in a namespace that is being deleted was last looked at.
    ending: Mutex<HashMap<ObjectKey, Instant>>,
    kind: PhantomData<fn(O)>,
}

impl<O> Replicas<O> {
    /// How long to leave a set alone whose namespace is being deleted, if it was looked at a moment ago: all of its pods
    /// go one by one, and clients need no status for each of them.
    fn pause(&self, key: ObjectKey) -> Option<Duration> {
        let (now, mut ending) = (Instant::now(), self.ending.lock());
        let next = ending.get(&key).map(|last| *last + ENDING_INTERVAL).filter(|next| *next > now);
        if next.is_none() {
            ending.insert(key, now);
        }
        next.map(|next| next - now)
    }
}

impl<O: Replicated> Reconcile<O> for Replicas<O> {
    async fn reconcile(&self, set: Arc<O>, ctx: Context) -> windlass::Result {
        if is_ending(&ctx, &*set)
            && let Some(pause) = self.pause(ObjectKey::of(&*set))
        {
            return Ok(Outcome::RequeueAfter(pause));
        }
        let Some(spec) = set.replica_spec() else { return Ok(Outcome::Done) };
        let Some(selector) = set.selector() else { return Ok(Outcome::Done) };
        let lister = ctx.client().lister::<Pod>();
        let (active, others): (Vec<_>, Vec<_>) =
            claim::candidates(&lister, &*set).into_iter().partition(|pod| pods::is_active(pod));
        let active = claim::claim(&ctx, &*set, &selector, active, &[]).await?;
        let terminating = others.iter().filter(|pod| {
            pods::is_terminating(pod) && owner::is_controlled_by(&***pod, &*set) && claim::selects(&selector, &***pod)
        });
        let terminating = terminating.count();
        let failure = match set.meta().deletion_timestamp {
            Some(_) => None,
            None => manage(&ctx, &*set, &spec, &lister, active.clone()).await.err(),
        };
        let now = ctx.now();
        let status = status(&*set, &spec, &active, terminating, failure.as_ref(), now);
        let pending = spec.min_ready_seconds.unwrap_or(0) > 0 && status.ready_replicas != status.available_replicas;
        if set.replica_status().as_deref() != Some(&status) {
            let updated = set.with_replica_status(status);
            match ctx.client().update_status(&updated).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        if let Some(error) = failure {
            return Err(error.into());
        }
        let seconds = spec.min_ready_seconds.unwrap_or(0);
        let next = pods::next_available(active.iter().map(|pod| &**pod), seconds, now);
        Ok(match next.filter(|_| pending) {
            Some(next) => Outcome::RequeueAfter(next),
            None => Outcome::Done,
        })
    }

    async fn gone(&self, key: ObjectKey, _: Context) -> windlass::Result {
        self.ending.lock().remove(&key);
        Ok(Outcome::Done)
    }
}

/// Creates or deletes pods until there are as many as asked for.
async fn manage<O: Replicated>(
    ctx: &Context,
    set: &O,
    spec: &ReplicaSetSpec,
    lister: &Lister<Pod>,
    active: Vec<Arc<Pod>>,
) -> Result<(), ClientError> {
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    if active.len() < wanted {
        if is_ending(ctx, set) {
            return Ok(());
        }
        let template = spec.template.clone().unwrap_or_default();
        let pod = pods::from_template(&template, set);
        let missing = (wanted - active.len()).min(BURST);
        let (_, failure) = pods::slow_start(missing, async |_| match pods::create(ctx, set, &pod).await {
            // Nothing can be created any more, and all there is will be deleted.
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            other => other.map(drop),
        })
        .await;
        return failure.map_or(Ok(()), Err);
    }
    let surplus = (active.len() - wanted).min(BURST);
    if surplus == 0 {
        return Ok(());
    }
    let related = related(ctx, set, lister);
    let victims = pods::preferred_victims(active, &related, surplus, ctx.now());
    let keys: Vec<ObjectKey> = victims.iter().map(|pod| ObjectKey::of(&**pod)).collect();
    let deleted = join_all(keys.iter().map(|key| pods::delete(ctx, set, key))).await;
    deleted.into_iter().collect()
}

/// Whether the namespace of an object is known to be deleted: the server refuses every new object in it.
fn is_ending<O: Object>(ctx: &Context, object: &O) -> bool {
    let namespace = ObjectKey::cluster(object.meta().namespace.as_deref().unwrap_or_default());
    let namespace = ctx.client().lister::<Namespace>().get(&namespace);
    namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
}

/// The pods of all of a kind with the same controller.
fn related<O: Replicated>(ctx: &Context, set: &O, lister: &Lister<Pod>) -> Vec<Arc<Pod>> {
    let uid = owner::controller(set).map(|controller| &controller.uid);
    let namespace = set.meta().namespace.as_deref().unwrap_or_default();
    let siblings = ctx.client().lister::<O>().in_namespace(namespace).into_iter().filter(|other| {
        let controller = owner::controller(&**other).map(|controller| &controller.uid);
        other.meta().uid == set.meta().uid || (uid.is_some() && controller == uid)
    });
    siblings.flat_map(|sibling| lister.owned_by(&*sibling)).collect()
}

fn status<O: Replicated>(
    set: &O,
    spec: &ReplicaSetSpec,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<&ClientError>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let count = |accept: &dyn Fn(&Pod) -> bool| active.iter().filter(|pod| accept(pod)).count() as i32;
    // Counts of zero are left out on the wire, all but the first.
    let some = |count: i32| Some(count).filter(|count| *count != 0);
    let labels = spec.template.as_ref().and_then(|template| template.metadata.as_ref()?.labels.clone());
    let labelled: Selector = labels.unwrap_or_default().into_iter().collect();
    let seconds = spec.min_ready_seconds.unwrap_or(0);
    ReplicaSetStatus {
        replicas: active.len() as i32,
        fully_labeled_replicas: some(count(&|pod| claim::selects(&labelled, pod))),
        ready_replicas: some(count(&pods::is_ready)),
        available_replicas: some(count(&|pod| pods::is_available(pod, seconds, now))),
        terminating_replicas: O::COUNTS_TERMINATING.then_some(terminating as i32),
        observed_generation: set.meta().generation,
        conditions: conditions(set, spec, active.len() as i32, failure, now),
    }
}

fn conditions<O: Replicated>(
    set: &O,
    spec: &ReplicaSetSpec,
    active: i32,
    failure: Option<&ClientError>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = set.replica_status().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let known = conditions.iter().any(|condition| condition.type_ == FAILURE);
    match failure {
        None => conditions.retain(|condition| condition.type_ != FAILURE),
        Some(error) if !known => {
            let reason = if active < spec.replicas.unwrap_or(1) { "FailedCreate" } else { "FailedDelete" };
            conditions.push(ReplicaSetCondition {
                type_: FAILURE.to_owned(),
                status: "True".to_owned(),
                last_transition_time: Some(Time(now)),
                reason: Some(reason.to_owned()),
                message: Some(pods::message(error)),
            });
        }
        Some(_) => {}
    }
    Some(conditions).filter(|conditions| !conditions.is_empty())
}
