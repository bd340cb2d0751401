//! How many replicas a metric asks for, as pure functions.
//!
//! Mirrors upstream's `pkg/controller/podautoscaler/replica_calculator.go`. Values are in thousandths.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use windlass::quantity::Amount;

use crate::controllers::pods;

/// How long the CPU usage of a pod that starts says nothing.
const CPU_INITIALIZATION: SignedDuration = SignedDuration::from_secs(300);
/// How long after its start a pod that was never ready counts as starting.
const INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);
const DEFAULT_TOLERANCE: f64 = 0.1;

/// What was measured of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) value: i64,
    pub(super) at: Timestamp,
    pub(super) window: SignedDuration,
}

/// Samples by pod.
pub(super) type Samples = BTreeMap<String, Sample>;

/// How far from the target a metric may be before anything is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerances {
    up: f64,
    down: f64,
}

impl Tolerances {
    pub(super) fn of(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Self {
        let read = |quantity: Option<&Quantity>| {
            let amount = quantity.and_then(|quantity| Amount::try_from(quantity).ok());
            amount.map_or(DEFAULT_TOLERANCE, Amount::as_f64)
        };
        Self {
            up: read(behavior.and_then(|behavior| behavior.scale_up.as_ref()?.tolerance.as_ref())),
            down: read(behavior.and_then(|behavior| behavior.scale_down.as_ref()?.tolerance.as_ref())),
        }
    }

    fn include(self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

/// What a calculation knows of the world.
pub(super) struct World<'a> {
    pub(super) pods: &'a [Arc<Pod>],
    /// Replicas that are wanted now.
    pub(super) current: i32,
    pub(super) tolerances: Tolerances,
    pub(super) now: Timestamp,
}

/// Pods by what their metrics are worth.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) ready: usize,
    pub(super) unready: BTreeSet<String>,
    pub(super) missing: BTreeSet<String>,
    pub(super) ignored: BTreeSet<String>,
}

/// Sorts pods by what their metrics are worth.
pub(super) fn group(pods: &[Arc<Pod>], samples: &Samples, cpu: bool, now: Timestamp) -> Groups {
    let mut groups = Groups::default();
    for pod in pods {
        let name = pod.metadata.name.clone().unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() || pods::phase(pod) == "Failed" {
            groups.ignored.insert(name);
        } else if pods::phase(pod) == "Pending" {
            groups.unready.insert(name);
        } else if let Some(sample) = samples.get(&name) {
            if cpu && is_starting(pod, sample, now) {
                groups.unready.insert(name);
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.insert(name);
        }
    }
    groups
}

/// Whether a pod's CPU usage is that of its start.
fn is_starting(pod: &Pod, sample: &Sample, now: Timestamp) -> bool {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let (Some(condition), Some(started)) = (pods::condition(pod, "Ready"), started) else { return true };
    let changed = condition.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let after = |time: Timestamp, period: SignedDuration| time.checked_add(period).unwrap_or(Timestamp::MAX);
    if after(started.0, CPU_INITIALIZATION) > now {
        condition.status == "False" || sample.at < after(changed, sample.window)
    } else {
        condition.status == "False" && after(started.0, INITIAL_READINESS) > changed
    }
}

/// What pods request of a resource, by pod.
pub(super) fn requests(
    pods: &[Arc<Pod>],
    container: Option<&str>,
    resource: &str,
) -> Result<BTreeMap<String, i64>, String> {
    let of_pod = |pod: &Arc<Pod>| {
        let name = pod.metadata.name.clone().unwrap_or_default();
        Ok((name.clone(), request(pod, &name, container, resource)?))
    };
    pods.iter().map(of_pod).collect()
}

fn request(pod: &Pod, name: &str, container: Option<&str>, resource: &str) -> Result<i64, String> {
    let milli = |quantity: &Quantity| Amount::try_from(quantity).map_or(0, Amount::milli_value);
    let Some(spec) = &pod.spec else { return Ok(0) };
    let of_pod = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    if let (None, Some(requests)) = (container, of_pod.filter(|requests| !requests.is_empty())) {
        let missing = || format!("missing pod-level request for {resource} in Pod {name}");
        return requests.get(resource).map(milli).ok_or_else(missing);
    }
    let sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten().filter(sidecar));
    let of_container = |running: &Container| {
        let requests = running.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let missing = || format!("missing request for {resource} in container {} of Pod {name}", running.name);
        requests.and_then(|requests| requests.get(resource)).map(milli).ok_or_else(missing)
    };
    match container {
        None => all.map(of_container).sum(),
        Some(wanted) => match all.into_iter().find(|running| running.name == wanted) {
            Some(running) => of_container(running),
            None => Err(format!("container {wanted} not found in Pod {name}")),
        },
    }
}

/// What pods use compared with a target.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Usage {
    ratio: f64,
    /// Per pod.
    average: i64,
    /// In percent of what is requested, when that is the target.
    utilization: Option<i32>,
}

/// A number of replicas, and what is measured now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    pub(super) average: i64,
    pub(super) utilization: Option<i32>,
}

/// What a metric of pods is compared with.
pub(super) enum Target<'a> {
    /// So much per pod.
    Average(i64),
    /// So many percent of what pods request.
    Utilization(i32, &'a BTreeMap<String, i64>),
}

impl Target<'_> {
    fn usage(&self, samples: &Samples) -> Result<Usage, String> {
        match self {
            Self::Average(target) => {
                let total: i64 = samples.values().map(|sample| sample.value).sum();
                let average = total / i64::try_from(samples.len().max(1)).unwrap_or(i64::MAX);
                Ok(Usage { ratio: average as f64 / *target as f64, average, utilization: None })
            }
            Self::Utilization(target, requests) => {
                let known = samples.iter().filter_map(|(pod, sample)| Some((sample.value, *requests.get(pod)?)));
                let (mut used, mut requested, mut count) = (0, 0, 0);
                for (value, request) in known {
                    (used, requested, count) = (used + value, requested + request, count + 1);
                }
                if requested == 0 {
                    return Err("no metrics returned matched known pods".to_owned());
                }
                let percent = i32::try_from(used * 100 / requested).unwrap_or(i32::MAX);
                let ratio = f64::from(percent) / f64::from(*target);
                Ok(Usage { ratio, average: used / count, utilization: Some(percent) })
            }
        }
    }

    /// What a pod is taken to use of which nothing is known, when the others use less than wanted.
    fn fallback(&self, pod: &str) -> i64 {
        match self {
            Self::Average(target) => *target,
            Self::Utilization(target, requests) => {
                requests.get(pod).copied().unwrap_or(0) * i64::from((*target).max(100)) / 100
            }
        }
    }
}

/// How many replicas a metric of pods asks for.
pub(super) fn of_pods(
    target: &Target<'_>,
    mut samples: Samples,
    cpu: bool,
    world: &World<'_>,
) -> Result<Proposal, String> {
    if world.pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let groups = group(world.pods, &samples, cpu, world.now);
    samples.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
    if samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let usage = target.usage(&samples)?;
    let proposal = |replicas: i32| Proposal { replicas, average: usage.average, utilization: usage.utilization };
    let unready_matter = !groups.unready.is_empty() && usage.ratio > 1.0;
    if !unready_matter && groups.missing.is_empty() {
        let kept = world.tolerances.include(usage.ratio);
        return Ok(proposal(if kept { world.current } else { ceil(usage.ratio * groups.ready as f64) }));
    }
    // What is not known must not make the change larger.
    let assumed = |value: i64| Sample { value, at: world.now, window: SignedDuration::ZERO };
    for pod in &groups.missing {
        if usage.ratio < 1.0 {
            samples.insert(pod.clone(), assumed(target.fallback(pod)));
        } else if usage.ratio > 1.0 {
            samples.insert(pod.clone(), assumed(0));
        }
    }
    if unready_matter {
        samples.extend(groups.unready.iter().map(|pod| (pod.clone(), assumed(0))));
    }
    let ratio = target.usage(&samples)?.ratio;
    let turned = (usage.ratio < 1.0 && ratio > 1.0) || (usage.ratio > 1.0 && ratio < 1.0);
    if world.tolerances.include(ratio) || turned {
        return Ok(proposal(world.current));
    }
    let replicas = ceil(ratio * samples.len() as f64);
    let wrong_way = (ratio < 1.0 && replicas > world.current) || (ratio > 1.0 && replicas < world.current);
    Ok(proposal(if wrong_way { world.current } else { replicas }))
}

/// How many replicas a metric asks for that is not one of pods, compared with a value for all of them.
pub(super) fn of_value(usage: i64, target: i64, world: &World<'_>) -> Result<i32, String> {
    let ratio = usage as f64 / target as f64;
    if world.current == 0 {
        return Ok(ceil(ratio));
    }
    if world.tolerances.include(ratio) {
        return Ok(world.current);
    }
    if world.pods.is_empty() {
        let why = "no pods returned by selector while calculating replica count";
        return Err(format!("unable to calculate ready pods: {why}"));
    }
    let ready = world.pods.iter().filter(|pod| pods::phase(pod) == "Running" && pods::is_ready(pod)).count();
    Ok(ceil(ratio * ready as f64))
}

/// The same, compared with a value for each pod. Also returns the value per pod.
pub(super) fn of_average(usage: i64, target: i64, replicas: i32, tolerances: Tolerances) -> (i32, i64) {
    let ratio = usage as f64 / (target as f64 * f64::from(replicas));
    let wanted = if tolerances.include(ratio) { replicas } else { ceil(usage as f64 / target as f64) };
    (wanted, (usage as f64 / f64::from(replicas)).ceil() as i64)
}

/// The next whole number; numbers that do not fit become the largest that does.
fn ceil(number: f64) -> i32 {
    number.ceil() as i32
}
