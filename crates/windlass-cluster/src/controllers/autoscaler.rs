//! HorizontalPodAutoscalers: as many replicas as metrics ask for.
//!
//! A timer for each autoscaler reads its metrics every 15 seconds. What they ask for ([`calculate`]) and how fast replicas
//! may change ([`behavior`]) are pure functions. Mirrors upstream's `pkg/controller/podautoscaler`.

mod behavior;
mod calculate;
mod metrics;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricStatus, HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus, MetricIdentifier, MetricSpec, MetricStatus,
    MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use parking_lot::Mutex;
use windlass::client::options::ListOptions;
use windlass::events::Recorder;
use windlass::manager::ManagerError;
use windlass::quantity::{Amount, Format};
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile, predicate};

use super::FIELD_MANAGER;
use super::clock::Clock;
use super::discovery::discover;
use super::pods::message;
use behavior::History;
use calculate::{Proposal, Samples, Target, Tolerances, World};

/// Time between two looks at the metrics (`--horizontal-pod-autoscaler-sync-period`).
const PERIOD: Duration = Duration::from_secs(15);

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    let autoscalers = Autoscalers {
        recorder: manager.recorder("horizontal-pod-autoscaler"),
        clock: Clock::new(),
        known: Mutex::default(),
    };
    manager.add(
        Controller::<HorizontalPodAutoscaler>::new("horizontal-pod-autoscaler-controller")
            // Its own status is no reason to look at metrics again.
            .predicate(predicate::change(|old: &HorizontalPodAutoscaler, new| old.spec != new.spec))
            // Pods are read from the cache.
            .watches(|_: &Pod, _| None)
            .concurrency(5)
            .complete(autoscalers),
    )
}

/// What is remembered of an autoscaler.
#[derive(Debug, Clone, Default)]
struct Known {
    history: History,
    /// The pods of its target.
    selector: Option<String>,
}

struct Autoscalers {
    recorder: Recorder,
    clock: Clock,
    known: Mutex<HashMap<ObjectKey, Known>>,
}

impl Reconcile<HorizontalPodAutoscaler> for Autoscalers {
    async fn reconcile(&self, scaler: Arc<HorizontalPodAutoscaler>, ctx: Context) -> windlass::Result {
        // As upstream's, a new autoscaler is looked at after a period, when its target has had time to start.
        if let Entry::Vacant(new) = self.known.lock().entry(ObjectKey::of(&*scaler)) {
            new.insert(Known::default());
            return Ok(Outcome::RequeueAfter(PERIOD));
        }
        let mut run = Run {
            all: self,
            ctx: &ctx,
            scaler: &scaler,
            spec: &scaler.spec,
            key: ObjectKey::of(&*scaler),
            status: scaler.status.clone().unwrap_or_default(),
        };
        if let Err(why) = Box::pin(run.scale()).await {
            tracing::debug!(autoscaler = %run.key, %why, "cannot scale");
        }
        let status = run.status;
        if scaler.status.as_ref() != Some(&status) {
            let updated = HorizontalPodAutoscaler { status: Some(status), ..HorizontalPodAutoscaler::clone(&scaler) };
            match ctx.client().update_status(&updated).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Outcome::RequeueAfter(PERIOD))
    }

    async fn gone(&self, key: ObjectKey, _ctx: Context) -> windlass::Result {
        self.known.lock().remove(&key);
        Ok(Outcome::Done)
    }
}

/// One look at an autoscaler.
struct Run<'a> {
    all: &'a Autoscalers,
    ctx: &'a Context,
    scaler: &'a HorizontalPodAutoscaler,
    spec: &'a HorizontalPodAutoscalerSpec,
    key: ObjectKey,
    status: HorizontalPodAutoscalerStatus,
}

/// What all metrics together ask for.
struct Wanted {
    replicas: i32,
    metric: String,
}

/// What one metric asks for.
struct Measured {
    replicas: i32,
    metric: String,
    status: MetricStatus,
}

/// Why a metric is of no use: the reason of an event and a condition, what they say, and how errors begin.
struct Failure {
    reason: &'static str,
    why: String,
    context: String,
}

impl Run<'_> {
    fn namespace(&self) -> &str {
        self.key.namespace().unwrap_or_default()
    }

    fn warn(&self, reason: &str, note: impl Into<String>) {
        self.all.recorder.warning(self.scaler, reason, note);
    }

    async fn scale(&mut self) -> Result<(), String> {
        let (target, mut scale) = match self.target().await {
            Ok(found) => found,
            Err(why) => {
                self.warn("FailedGetScale", why.clone());
                let said = format!("the HPA controller was unable to get the target's current scale: {why}");
                self.set("AbleToScale", "False", "FailedGetScale", said);
                return Err(why);
            }
        };
        self.set(
            "AbleToScale",
            "True",
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        );
        let current = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        let now = self.all.clock.now();
        self.all.known.lock().entry(self.key.clone()).or_default().history.begin(current, now);
        let (desired, reason) = match self.decide(&scale, current).await {
            Ok(decided) => decided,
            Err(why) => {
                self.warn("FailedComputeMetricsReplicas", why.clone());
                self.finish(current, self.status.desired_replicas, false);
                return Err(why);
            }
        };
        if desired != current {
            scale.spec.get_or_insert_default().replicas = Some(desired);
            self.rescale(&target, &scale, current, desired, &reason).await?;
        }
        self.finish(current, desired, desired != current);
        Ok(())
    }

    /// How many replicas there should be, and why.
    async fn decide(&mut self, scale: &Scale, current: i32) -> Result<(i32, String), String> {
        let min = self.spec.min_replicas.unwrap_or(1);
        if current == 0 {
            self.status.current_metrics = None;
            let said = "scaling is disabled since the replica count of the target is zero";
            self.set("ScalingActive", "False", "ScalingDisabled", said);
            return Ok((0, String::new()));
        }
        if current > self.spec.max_replicas {
            self.status.current_metrics = None;
            return Ok((self.spec.max_replicas, "Current number of replicas above Spec.MaxReplicas".to_owned()));
        }
        if current < min {
            self.status.current_metrics = None;
            return Ok((min, "Current number of replicas below Spec.MinReplicas".to_owned()));
        }
        let wanted = self.measure(scale, current).await?;
        let reason = if wanted.replicas > current {
            format!("{} above target", wanted.metric)
        } else {
            "All metrics below target".to_owned()
        };
        let now = self.all.clock.now();
        let decision = {
            let mut known = self.all.known.lock();
            let history = &mut known.entry(self.key.clone()).or_default().history;
            history.decide(self.spec, current, wanted.replicas, now)
        };
        self.set("AbleToScale", "True", decision.able.0, decision.able.1);
        let (limited, reason_limited, said) = decision.limited;
        self.set("ScalingLimited", if limited { "True" } else { "False" }, reason_limited, said);
        Ok((decision.replicas, reason))
    }

    /// The kind of the target, and its scale.
    async fn target(&self) -> Result<(ApiResource, Scale), String> {
        let reference = &self.spec.scale_target_ref;
        let version = reference.api_version.clone().unwrap_or_default();
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let resource = if let Some(resource) = well_known(&version, &reference.kind) {
            resource
        } else {
            let discovered = discover(self.ctx.client().kube()).await.map_err(|error| error.to_string())?;
            let missing = || format!("no matches for kind {:?} in group {group:?}", reference.kind);
            discovered.find(&version, &reference.kind).ok_or_else(missing)?.resource.clone()
        };
        let target = self.ctx.client().dynamic(&resource).scale(&self.key.sibling(&reference.name));
        match target.get().await {
            Ok(Some(scale)) => Ok((resource, scale)),
            Ok(None) => {
                let plural = &resource.plural;
                let resource = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
                Err(format!("{resource} {:?} not found", reference.name))
            }
            Err(error) => Err(message(&error)),
        }
    }

    async fn rescale(
        &mut self,
        target: &ApiResource,
        scale: &Scale,
        current: i32,
        desired: i32,
        reason: &str,
    ) -> Result<(), String> {
        // With the `kube` client: the library's reads the target after a write, which this controller may not.
        let client = self.ctx.client().kube().clone();
        let targets: Api<DynamicObject> = Api::namespaced_with(client, self.namespace(), target);
        let how = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let name = &self.spec.scale_target_ref.name;
        if let Err(error) = targets.replace_subresource("scale", name, &how, scale).await {
            let why = match error {
                kube::Error::Api(status) => status.message,
                other => other.to_string(),
            };
            self.warn("FailedRescale", format!("New size: {desired}; reason: {reason}; error: {why}"));
            let said = format!("the HPA controller was unable to update the target scale: {why}");
            self.set("AbleToScale", "False", "FailedUpdateScale", said);
            self.finish(current, self.status.desired_replicas, false);
            return Err(why);
        }
        let said = format!("the HPA controller was able to update the target scale to {desired}");
        self.set("AbleToScale", "True", "SucceededRescale", said);
        let note = format!("New size: {desired}; reason: {reason}");
        self.all.recorder.normal(self.scaler, "SuccessfulRescale", note);
        let now = self.all.clock.now();
        self.all.known.lock().entry(self.key.clone()).or_default().history.scaled(current, desired, now);
        Ok(())
    }

    /// What all metrics together ask for: the most that one of them does.
    async fn measure(&mut self, scale: &Scale, current: i32) -> Result<Wanted, String> {
        let selector = scale.status.as_ref().and_then(|status| status.selector.clone()).unwrap_or_default();
        let pods = self.pods(&selector).await?;
        let available = scale.status.as_ref().map_or(0, |status| status.replicas);
        let specs = self.spec.metrics.clone().unwrap_or_default();
        let tolerances = Tolerances::of(self.spec.behavior.as_ref());
        let world = World { pods: &pods, current, tolerances, now: self.all.clock.now() };
        let (mut best, mut statuses): (Option<Wanted>, Vec<MetricStatus>) = (None, Vec::new());
        let (mut failed, mut first): (usize, Option<Failure>) = (0, None);
        for spec in &specs {
            match self.measure_one(spec, &selector, available, &world).await {
                Ok(Measured { replicas, metric, status }) => {
                    statuses.push(status);
                    if best.as_ref().is_none_or(|best| replicas > best.replicas) {
                        best = Some(Wanted { replicas, metric });
                    }
                }
                Err(failure) => {
                    self.warn(failure.reason, failure.why.clone());
                    // Clients find the status of a metric by its place.
                    statuses.push(MetricStatus::default());
                    failed += 1;
                    first.get_or_insert(failure);
                }
            }
        }
        self.status.current_metrics = Some(statuses).filter(|statuses| !statuses.is_empty());
        match (best, first) {
            (Some(best), None) => Ok(self.valid(best)),
            // Nothing is scaled down as long as something is not known.
            (Some(best), Some(_)) if best.replicas >= current => Ok(self.valid(best)),
            (_, Some(failure)) => {
                let said = format!("the HPA was unable to compute the replica count: {}", failure.why);
                self.set("ScalingActive", "False", failure.reason, said);
                let Failure { why, context, .. } = failure;
                Err(format!(
                    "invalid metrics ({failed} invalid out of {}), first error is: {context}: {why}",
                    specs.len()
                ))
            }
            (None, None) => Err("no metrics to scale by".to_owned()),
        }
    }

    fn valid(&mut self, best: Wanted) -> Wanted {
        let said = format!("the HPA was able to successfully calculate a replica count from {}", best.metric);
        self.set("ScalingActive", "True", "ValidMetricFound", said);
        best
    }

    /// The pods of the target. No other autoscaler may have any of them.
    async fn pods(&mut self, selector: &str) -> Result<Vec<Arc<Pod>>, String> {
        if selector.is_empty() {
            self.warn("SelectorRequired", "selector is required");
            self.set("ScalingActive", "False", "InvalidSelector", "the HPA target's scale is missing a selector");
            return Err("selector is required".to_owned());
        }
        let list = async |selector: &str| {
            let options = ListOptions::new().namespace(self.namespace()).labels(selector);
            self.ctx.list_with::<Pod>(options).await.map_err(|error| message(&error))
        };
        let pods = list(selector).await?;
        let others: Vec<(ObjectKey, String)> = {
            let mut known = self.all.known.lock();
            known.entry(self.key.clone()).or_default().selector = Some(selector.to_owned());
            let others = known.iter().filter(|(key, _)| **key != self.key && key.namespace() == self.key.namespace());
            others.filter_map(|(key, known)| Some((key.clone(), known.selector.clone()?))).collect()
        };
        for (other, theirs) in others {
            let shared =
                list(&theirs).await?.iter().any(|pod| pods.iter().any(|own| own.metadata.uid == pod.metadata.uid));
            if shared {
                let why = format!(
                    "pods by selector {selector} are controlled by more than one HPA (e.g. [{} {other}])",
                    self.key
                );
                self.warn("AmbiguousSelector", why.clone());
                self.set("ScalingActive", "False", "AmbiguousSelector", why.clone());
                return Err(why);
            }
        }
        Ok(pods)
    }

    async fn measure_one(
        &self,
        spec: &MetricSpec,
        selector: &str,
        available: i32,
        world: &World<'_>,
    ) -> Result<Measured, Failure> {
        if let Some(resource) = &spec.resource {
            let name = &resource.name;
            let measured = self.of_resource(&resource.target, name, None, selector, world).await;
            let (metric, proposal) = measured.map_err(|why| Failure {
                reason: "FailedGetResourceMetric",
                why,
                context: format!("failed to get {name} resource metric value"),
            })?;
            let status = ResourceMetricStatus { name: name.clone(), current: of_resource(name, &proposal) };
            let status = MetricStatus { resource: Some(status), ..typed("Resource") };
            return Ok(Measured { replicas: proposal.replicas, metric, status });
        }
        if let Some(resource) = &spec.container_resource {
            let (name, container) = (&resource.name, &resource.container);
            let measured = self.of_resource(&resource.target, name, Some(container), selector, world).await;
            let (metric, proposal) = measured.map_err(|why| Failure {
                reason: "FailedGetContainerResourceMetric",
                why,
                context: format!("failed to get {container} container metric value"),
            })?;
            let current = of_resource(name, &proposal);
            let status = ContainerResourceMetricStatus { name: name.clone(), container: container.clone(), current };
            let status = MetricStatus { container_resource: Some(status), ..typed("ContainerResource") };
            return Ok(Measured { replicas: proposal.replicas, metric, status });
        }
        if spec.pods.is_some() {
            let measured = self.of_pods(spec, selector, world).await;
            let context = "failed to get pods metric value".to_owned();
            return measured.map_err(|why| Failure { reason: "FailedGetPodsMetric", why, context });
        }
        if let Some(object) = &spec.object {
            let measured = self.of_object(object, available, world).await;
            let context = "failed to get object metric value".to_owned();
            return measured.map_err(|why| Failure { reason: "FailedGetObjectMetric", why, context });
        }
        if let Some(external) = &spec.external {
            let context = format!("failed to get {} external metric value", external.metric.name);
            let measured = self.of_external(&external.metric, &external.target, available, world).await;
            return measured.map_err(|why| Failure { reason: "FailedGetExternalMetric", why, context });
        }
        let why = format!("unknown metric source type {:?}", spec.type_);
        Err(Failure { reason: "InvalidMetricSourceType", why, context: "failed to get metric".to_owned() })
    }

    async fn of_resource(
        &self,
        target: &MetricTarget,
        name: &str,
        container: Option<&str>,
        selector: &str,
        world: &World<'_>,
    ) -> Result<(String, Proposal), String> {
        let what = if target.average_value.is_some() { "usage" } else { "utilization" };
        let failed = |why: String| format!("failed to get {name} {what}: {why}");
        let samples = async {
            let client = self.ctx.client().kube();
            let found = metrics::resource(client, self.namespace(), selector, name, container).await;
            found.map_err(|why| failed(format!("unable to get metrics for resource {name}: {why}")))
        };
        let cpu = name == "cpu";
        if let Some(average) = &target.average_value {
            let proposal = calculate::of_pods(&Target::Average(milli(average)), samples.await?, cpu, world);
            return Ok((format!("{name} resource"), proposal.map_err(failed)?));
        }
        let Some(percent) = target.average_utilization else {
            let why = "invalid resource metric source: neither an average utilization target nor an average value (usage) \
                       target was set";
            return Err(why.to_owned());
        };
        let samples: Samples = samples.await?;
        let requests = calculate::requests(world.pods, container, name).map_err(failed)?;
        let proposal = calculate::of_pods(&Target::Utilization(percent, &requests), samples, cpu, world);
        let kind = if container.is_some() { "container resource" } else { "resource" };
        Ok((format!("{name} {kind} utilization (percentage of request)"), proposal.map_err(failed)?))
    }

    async fn of_pods(&self, spec: &MetricSpec, selector: &str, world: &World<'_>) -> Result<Measured, String> {
        let source = spec.pods.clone().unwrap_or_default();
        let name = &source.metric.name;
        let client = self.ctx.client().kube();
        let samples = metrics::of_pods(client, self.namespace(), selector, name, source.metric.selector.as_ref()).await;
        let samples = samples.map_err(|why| format!("unable to get metric {name}: {why}"))?;
        let target = source.target.average_value.as_ref().map_or(0, milli);
        let proposal = calculate::of_pods(&Target::Average(target), samples, false, world)?;
        let current =
            MetricValueStatus { average_value: Some(quantity(proposal.average)), ..MetricValueStatus::default() };
        let metric = format!("pods metric {name}");
        let status = PodsMetricStatus { metric: source.metric, current };
        let status = MetricStatus { pods: Some(status), ..typed("Pods") };
        Ok(Measured { replicas: proposal.replicas, metric, status })
    }

    async fn of_object(
        &self,
        source: &ObjectMetricSource,
        available: i32,
        world: &World<'_>,
    ) -> Result<Measured, String> {
        let (object, name) = (&source.described_object, &source.metric.name);
        let client = self.ctx.client().kube();
        let version = object.api_version.clone().unwrap_or_else(|| "v1".to_owned());
        let discovered = discover(client).await.map_err(|error| error.to_string())?;
        let missing = || format!("no matches for kind {:?} in version {version:?}", object.kind);
        let served = &discovered.find(&version, &object.kind).ok_or_else(missing)?.resource;
        let resource =
            if served.group.is_empty() { served.plural.clone() } else { format!("{}.{}", served.plural, served.group) };
        let place = match &*object.kind {
            "Namespace" => format!("namespaces/{}", self.namespace()),
            _ => format!("namespaces/{}/{resource}/{}", self.namespace(), object.name),
        };
        let usage = metrics::of_object(client, &place, name, source.metric.selector.as_ref()).await.map_err(|why| {
            format!("unable to get metric {name} on {} {}/{}: {why}", object.kind, self.namespace(), object.name)
        })?;
        let (replicas, current, metric) = match (&source.target.value, &source.target.average_value) {
            (Some(target), _) if source.target.type_ == "Value" => {
                let replicas = calculate::of_value(usage, milli(target), world)?;
                let current = MetricValueStatus { value: Some(quantity(usage)), ..MetricValueStatus::default() };
                (replicas, current, format!("{} metric {name}", object.kind))
            }
            (_, Some(target)) => {
                let (replicas, average) = calculate::of_average(usage, milli(target), available, world.tolerances);
                let current =
                    MetricValueStatus { average_value: Some(quantity(average)), ..MetricValueStatus::default() };
                (replicas, current, format!("external metric {name}({})", printed(source.metric.selector.as_ref())))
            }
            _ => {
                let why = "invalid object metric source: neither a value target nor an average value target was set";
                return Err(why.to_owned());
            }
        };
        let status = ObjectMetricStatus { described_object: object.clone(), metric: source.metric.clone(), current };
        Ok(Measured { replicas, metric, status: MetricStatus { object: Some(status), ..typed("Object") } })
    }

    async fn of_external(
        &self,
        identifier: &MetricIdentifier,
        target: &MetricTarget,
        available: i32,
        world: &World<'_>,
    ) -> Result<Measured, String> {
        let name = &identifier.name;
        let client = self.ctx.client().kube();
        let found = metrics::external(client, self.namespace(), name, identifier.selector.as_ref()).await;
        let selector = printed(identifier.selector.as_ref());
        let missing =
            |why: String| format!("unable to get external metric {}/{name}/{selector}: {why}", self.namespace());
        let (replicas, current) = match (&target.average_value, &target.value) {
            (Some(average), _) => {
                let usage = found.map_err(|why| format!("failed to get {name} external metric: {}", missing(why)))?;
                let (replicas, per_pod) = calculate::of_average(usage, milli(average), available, world.tolerances);
                (replicas, MetricValueStatus { average_value: Some(quantity(per_pod)), ..MetricValueStatus::default() })
            }
            (None, Some(value)) => {
                let usage = found.map_err(|why| format!("failed to get external metric {name}: {}", missing(why)))?;
                let replicas = calculate::of_value(usage, milli(value), world)?;
                (replicas, MetricValueStatus { value: Some(quantity(usage)), ..MetricValueStatus::default() })
            }
            _ => {
                let why = "invalid external metric source: neither a value target nor an average value target was set";
                return Err(why.to_owned());
            }
        };
        let metric = format!("external metric {name}({selector})");
        let status = ExternalMetricStatus { metric: identifier.clone(), current };
        Ok(Measured { replicas, metric, status: MetricStatus { external: Some(status), ..typed("External") } })
    }

    fn finish(&mut self, current: i32, desired: i32, rescaled: bool) {
        self.status.current_replicas = Some(current);
        self.status.desired_replicas = desired;
        self.status.observed_generation = self.scaler.metadata.generation;
        if rescaled {
            self.status.last_scale_time = Some(Time(Timestamp::now()));
        }
    }

    fn set(&mut self, type_: &str, status: &str, reason: &str, message: impl Into<String>) {
        let conditions = self.status.conditions.get_or_insert_default();
        let index = conditions.iter().position(|condition| condition.type_ == type_).unwrap_or_else(|| {
            let type_ = type_.to_owned();
            conditions.push(HorizontalPodAutoscalerCondition { type_, ..HorizontalPodAutoscalerCondition::default() });
            conditions.len() - 1
        });
        let condition = &mut conditions[index];
        if condition.status != status {
            status.clone_into(&mut condition.status);
            condition.last_transition_time = Some(Time(Timestamp::now()));
        }
        condition.reason = Some(reason.to_owned());
        condition.message = Some(message.into());
    }
}

/// The resource of kinds that most autoscalers scale: the server need not be asked what it serves.
fn well_known(version: &str, kind: &str) -> Option<ApiResource> {
    match (version, kind) {
        ("apps/v1", "Deployment") => Some(ApiResource::erase::<Deployment>(&())),
        ("apps/v1", "ReplicaSet") => Some(ApiResource::erase::<ReplicaSet>(&())),
        ("apps/v1", "StatefulSet") => Some(ApiResource::erase::<StatefulSet>(&())),
        ("v1", "ReplicationController") => Some(ApiResource::erase::<ReplicationController>(&())),
        _ => None,
    }
}

/// A selector as Go prints it in messages.
fn printed(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},"));
    let requirement = |one: &LabelSelectorRequirement| {
        let values = one.values.clone().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    };
    let requirements = selector.match_expressions.iter().flatten().map(requirement);
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.collect::<String>(),
        requirements.collect::<String>()
    )
}

fn typed(type_: &str) -> MetricStatus {
    MetricStatus { type_: type_.to_owned(), ..MetricStatus::default() }
}

fn milli(quantity: &Quantity) -> i64 {
    Amount::try_from(quantity).map_or(0, Amount::milli_value)
}

fn quantity(milli: i64) -> Quantity {
    Amount::from_milli(milli).into()
}

/// What is used of a resource, as a status says it.
fn of_resource(name: &str, proposal: &Proposal) -> MetricValueStatus {
    let format = if name == "memory" { Format::BinarySi } else { Format::DecimalSi };
    MetricValueStatus {
        average_utilization: proposal.utilization,
        average_value: Some(Amount::from_milli(proposal.average).with_format(format).into()),
        value: None,
    }
}
