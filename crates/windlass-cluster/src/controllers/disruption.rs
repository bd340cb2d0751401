//! PodDisruptionBudgets: how many pods may be evicted now.
//!
//! Mirrors upstream's `pkg/controller/disruption`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::Request;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile, ReconcileError, conditions, owner};

use super::discovery::discover;
use super::metadata::Metadata;
use super::{claim, pods};

/// How long an eviction may take to show before it is taken to have failed.
const EVICTION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);
const ALLOWED: &str = "DisruptionAllowed";

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    // Read for the size of what controls a pod.
    let (_, _) = (manager.lister::<ReplicaSet>(), manager.lister::<Deployment>());
    manager.add(
        Controller::<PodDisruptionBudget>::new("disruption-controller")
            .watches(|pod: &Pod, ctx| {
                let budgets = ctx.lister::<PodDisruptionBudget>();
                let mut all = budgets.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default());
                all.retain(|budget| covers(budget, pod));
                all.into_iter().map(|budget| ObjectKey::of(&*budget))
            })
            .complete(Budgets),
    )
}

/// Whether a budget is about a pod.
fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()).and_then(claim::selector);
    selector.is_some_and(|selector| claim::selects(&selector, pod))
}

struct Budgets;

impl Reconcile<PodDisruptionBudget> for Budgets {
    async fn reconcile(&self, budget: Arc<PodDisruptionBudget>, ctx: Context) -> windlass::Result {
        let lister = ctx.client().lister::<Pod>();
        let mut covered = lister.in_namespace(budget.metadata.namespace.as_deref().unwrap_or_default());
        covered.retain(|pod| covers(&budget, pod));
        if covered.is_empty() {
            ctx.recorder().normal(&*budget, "NoPods", "No matching pods found");
        }
        let (expected, desired) = match counts(&ctx, &budget, &covered).await {
            Ok(counts) => counts,
            Err(error) => {
                let note = format!("Failed to calculate the number of expected pods: {error}");
                ctx.recorder().warning(&*budget, "CalculateExpectedPodCountFailed", note);
                fail_safe(&ctx, &budget, &error.to_string()).await?;
                return Err(error);
            }
        };
        let now = Timestamp::now();
        let (disrupted, recheck) = disrupted(&ctx, &budget, &covered, now);
        let healthy = covered.iter().filter(|pod| {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            pod.metadata.deletion_timestamp.is_none() && !disrupted.contains_key(name) && pods::is_ready(pod)
        });
        let healthy = healthy.count() as i32;
        // Without pods nothing is allowed, so that the first ones are safe before they are counted.
        let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
        let old = budget.status.clone().unwrap_or_default();
        let mut status = PodDisruptionBudgetStatus {
            current_healthy: Some(healthy),
            desired_healthy: Some(desired),
            expected_pods: Some(expected),
            disruptions_allowed: Some(allowed),
            disrupted_pods: Some(disrupted).filter(|pods| !pods.is_empty()),
            observed_generation: budget.metadata.generation,
            conditions: old.conditions.clone(),
        };
        let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
        let condition = conditions::new(ALLOWED, allowed > 0, reason, "").observed(budget.metadata.generation);
        conditions::set(status.conditions.get_or_insert_default(), condition, now);
        if status != old {
            let updated = PodDisruptionBudget { status: Some(status), ..PodDisruptionBudget::clone(&budget) };
            match ctx.client().update_status(&updated).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(recheck.map_or(Outcome::Done, Outcome::RequeueAfter))
    }
}

/// When nothing can be said, nothing is allowed.
async fn fail_safe(ctx: &Context, budget: &PodDisruptionBudget, why: &str) -> Result<(), ReconcileError> {
    let mut failed = budget.clone();
    let status = failed.status.get_or_insert_default();
    status.disruptions_allowed = Some(0);
    let condition = conditions::new(ALLOWED, false, "SyncFailed", why).observed(status.observed_generation);
    conditions::set(status.conditions.get_or_insert_default(), condition, Timestamp::now());
    if failed != *budget {
        ctx.client().update_status(&failed).await?;
    }
    Ok(())
}

/// How many pods there should be, and how many of them have to be healthy.
async fn counts(
    ctx: &Context,
    budget: &PodDisruptionBudget,
    covered: &[Arc<Pod>],
) -> Result<(i32, i32), ReconcileError> {
    let Some(spec) = &budget.spec else { return Ok((0, 0)) };
    if let Some(unavailable) = &spec.max_unavailable {
        let expected = expected_scale(ctx, budget, covered).await?;
        return Ok((expected, (expected - scaled(unavailable, expected)).max(0)));
    }
    match &spec.min_available {
        None => Ok((0, 0)),
        Some(IntOrString::Int(number)) => Ok((covered.len() as i32, *number)),
        Some(percent) => {
            let expected = expected_scale(ctx, budget, covered).await?;
            Ok((expected, scaled(percent, expected)))
        }
    }
}

/// A number, or a percentage rounded up.
fn scaled(value: &IntOrString, total: i32) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.strip_suffix('%').and_then(|number| number.parse().ok()).unwrap_or(0);
            ((percent * i64::from(total) + 99).div_euclid(100)) as i32
        }
    }
}

/// The size of everything that controls the pods, added up.
async fn expected_scale(
    ctx: &Context,
    budget: &PodDisruptionBudget,
    covered: &[Arc<Pod>],
) -> Result<i32, ReconcileError> {
    let mut sizes: HashMap<String, i32> = HashMap::new();
    let mut seen: Vec<&str> = Vec::new();
    let mut unmanaged = false;
    for pod in covered {
        let Some(controller) = owner::controller(&**pod) else {
            unmanaged = true;
            continue;
        };
        if !seen.contains(&&*controller.uid) {
            seen.push(&controller.uid);
            let (uid, size) = size_of(ctx, controller, pod).await?;
            sizes.insert(uid, size);
        }
    }
    if unmanaged {
        let note = "Pods selected by this PodDisruptionBudget were found to be unmanaged. As a result, the status of \
                    the PDB cannot be calculated correctly, which may result in undefined behavior. To account for \
                    these pods please set \".spec.minAvailable\" field of the PDB to an integer value.";
        ctx.recorder().warning(budget, "UnmanagedPods", note);
    }
    Ok(sizes.values().sum())
}

/// The size of what controls a pod, a Deployment's rather than its ReplicaSet's.
async fn size_of(ctx: &Context, controller: &OwnerReference, pod: &Pod) -> Result<(String, i32), ReconcileError> {
    let key = ObjectKey::of(pod).sibling(&controller.name);
    if controller.kind == "ReplicaSet"
        && let Some(set) = ctx.client().lister::<ReplicaSet>().get(&key)
    {
        let deployment = owner::controller(&*set).filter(|controller| controller.kind == "Deployment");
        let deployment = deployment.and_then(|d| ctx.client().lister::<Deployment>().get(&key.sibling(&d.name)));
        return Ok(match deployment {
            Some(deployment) => (
                deployment.metadata.uid.clone().unwrap_or_default(),
                deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
            ),
            None => (controller.uid.clone(), set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)),
        });
    }
    let missing = || format!("found no controllers for pod {:?}", pod.metadata.name.as_deref().unwrap_or_default());
    let discovered = discover(ctx.client().kube()).await?;
    let served = discovered.find(&controller.api_version, &controller.kind).ok_or_else(missing)?;
    let request = Request::new(<Metadata as kube::Resource>::url_path(&served.resource, key.namespace()));
    let request = request.get_subresource("scale", key.name())?;
    match ctx.client().kube().request::<Scale>(request).await {
        Ok(scale) => Ok((controller.uid.clone(), scale.spec.and_then(|spec| spec.replicas).unwrap_or(0))),
        Err(kube::Error::Api(status)) if status.is_not_found() => Err(missing().into()),
        Err(error) => Err(error.into()),
    }
}

/// Pods that were evicted and are not gone yet, and when to look again whether they are.
fn disrupted(
    ctx: &Context,
    budget: &PodDisruptionBudget,
    covered: &[Arc<Pod>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Duration>) {
    let known = budget.status.as_ref().and_then(|status| status.disrupted_pods.clone()).unwrap_or_default();
    let mut disrupted = BTreeMap::new();
    let mut recheck: Option<Duration> = None;
    for pod in covered.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let Some((name, since)) = pod.metadata.name.as_ref().and_then(|name| known.get_key_value(name)) else {
            continue;
        };
        let left = EVICTION_TIMEOUT - now.duration_since(since.0);
        let Ok(left) = Duration::try_from(left) else {
            let place = budget.metadata.namespace.as_deref().unwrap_or_default();
            let note = format!("Pod was expected by PDB {place}/{place} to be deleted but it wasn't");
            ctx.recorder().warning(&**pod, "NotDeleted", note);
            continue;
        };
        recheck = Some(recheck.map_or(left, |known| known.min(left)));
        disrupted.insert(name.clone(), since.clone());
    }
    (disrupted, recheck)
}
