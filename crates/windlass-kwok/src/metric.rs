//! What simulated nodes measure, as `Metric` objects say: pages in Prometheus' text format.
//!
//! A `Metric` has a path below `/metrics`, in which `{nodeName}` stands for the node, and expressions for the values and labels
//! of its metrics. A metric of which an expression fails is left out, and the log says why. Mirrors kwok's
//! `pkg/kwok/metrics` and `pkg/kwok/server/metrics.go`.

mod page;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use windlass::cache::Lister;
use windlass::informer::{Change, Subscription};
use windlass::{Manager, ObjectKey};

use crate::cel::Scope;
use crate::objects::{Metric, MetricConfig};
use crate::usage::Usages;
use page::{Kind, Page, Sample};

/// What every path of a `Metric` begins with.
const ROOT: &str = "/metrics";
/// Stands for the name of the node in a path.
const NODE_NAME: &str = "{nodeName}";
/// The index of pods by the node that they are bound to.
const BY_NODE: &str = "windlass-kwok/node";
/// How many sums over time are kept before those of pods that are gone are dropped.
const SUMS: usize = 1_000;

/// The metrics of a cluster's nodes. Clones are the same.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    metrics: Lister<Metric>,
    pods: Lister<Pod>,
    nodes: Lister<Node>,
    usages: Usages,
    sums: Mutex<Sums>,
    started: Arc<Mutex<HashMap<String, u64>>>,
    _counting: Subscription,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// The metrics that a manager watches; what containers use is what `usages` say.
    pub fn new(manager: &Manager, usages: Usages) -> Self {
        let pods: Lister<Pod> = manager.lister();
        pods.add_index(BY_NODE, |pod| node_of(pod).map(str::to_owned).into_iter().collect());
        let started: Arc<Mutex<HashMap<String, u64>>> = Arc::default();
        let counted = Arc::clone(&started);
        let counting = pods.subscribe(move |change| count_started(change, &mut counted.lock()));
        let inner = Inner {
            metrics: manager.lister(),
            pods,
            nodes: manager.lister(),
            usages,
            sums: Mutex::default(),
            started,
            _counting: counting,
        };
        Self { inner: Arc::new(inner) }
    }

    /// What a node answers at a path; `None` if no `Metric` has it.
    pub fn page(&self, node: &str, path: &str) -> Option<String> {
        let mut found = self.inner.metrics.list();
        found.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
        found.iter().find_map(|metric| {
            let name = metric.metadata.name.as_deref().unwrap_or_default();
            let named = named_node(&metric.spec.path, path, name)?;
            (named == node).then(|| self.render(node, &metric.spec.metrics))
        })
    }

    fn render(&self, node: &str, metrics: &[MetricConfig]) -> String {
        let mut page = Page::default();
        let Some(node) = self.inner.nodes.get(&ObjectKey::cluster(node)) else { return page.encode() };
        let mut pods = self.inner.pods.by_index(BY_NODE, node.metadata.name.as_deref().unwrap_or_default());
        pods.sort_by_cached_key(|pod| ObjectKey::of(&**pod));
        let now = Timestamp::now();
        for metric in metrics {
            match self.samples(metric, &node, &pods, now) {
                Ok((kind, samples)) => page.add(&metric.name, &metric.help, kind, samples),
                Err(why) => tracing::warn!(metric = metric.name, why, "a metric cannot be evaluated"),
            }
        }
        page.encode()
    }

    /// The samples of a metric, one for each object of its dimension.
    fn samples(
        &self,
        metric: &MetricConfig,
        node: &Arc<Node>,
        pods: &[Arc<Pod>],
        now: Timestamp,
    ) -> Result<(Kind, Vec<Sample>), String> {
        let kind = Kind::of(&metric.kind).ok_or_else(|| format!("{:?} is no kind of metrics", metric.kind))?;
        let mut subject = Subject::new(&self.inner, node, now);
        let mut samples = Vec::new();
        match &*metric.dimension {
            "" | "node" => samples.push(self.sample(metric, kind, &subject)?),
            "pod" => {
                for pod in pods {
                    subject.enter(pod);
                    samples.push(self.sample(metric, kind, &subject)?);
                }
            }
            "container" => {
                for pod in pods {
                    subject.enter(pod);
                    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
                        subject.enter_container(container);
                        samples.push(self.sample(metric, kind, &subject)?);
                    }
                }
            }
            other => return Err(format!("{other:?} is no dimension of metrics")),
        }
        Ok((kind, samples))
    }

    fn sample(&self, metric: &MetricConfig, kind: Kind, subject: &Subject<'_>) -> Result<Sample, String> {
        let number = |expression: &str| -> Result<f64, String> {
            let program = self.inner.usages.compile(expression)?;
            let value = program.evaluate(subject)?;
            value.as_f64().ok_or_else(|| format!("{expression:?} is no number"))
        };
        let mut labels = BTreeMap::new();
        for label in &metric.labels {
            let program = self.inner.usages.compile(&label.value)?;
            let value = program.evaluate(subject)?;
            let value = value.as_str().ok_or_else(|| format!("{:?} is no text", label.value))?;
            labels.insert(label.name.clone(), value.to_owned());
        }
        let (mut value, mut buckets) = (0.0, Vec::new());
        match kind {
            Kind::Histogram => {
                for bucket in &metric.buckets {
                    buckets.push((bucket.le, number(&bucket.value)?.max(0.0) as u64, bucket.hidden));
                }
            }
            Kind::Counter | Kind::Gauge => value = number(&metric.value)?,
        }
        Ok(Sample { labels, value, buckets })
    }
}

/// The node that a path names, if it is of this form. Only the first `{nodeName}` counts; others have to be the same. A form
/// without one is about the node that has the object's name.
fn named_node<'p>(form: &str, path: &'p str, object: &'p str) -> Option<&'p str> {
    let below = form.strip_prefix(ROOT)?;
    if !(below.is_empty() || below.starts_with('/')) {
        return None;
    }
    let (form, path) = (form.trim_end_matches('/').split('/'), path.trim_end_matches('/').split('/'));
    let (mut form, mut path, mut named) = (form.peekable(), path.peekable(), None);
    loop {
        match (form.next(), path.next()) {
            (None, None) => return named.or(Some(object)),
            (Some(NODE_NAME), Some(name)) if !name.is_empty() && named.is_none_or(|known| known == name) => {
                named = Some(name);
            }
            (Some(part), Some(same)) if part == same => {}
            _ => return None,
        }
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Counts the containers of a pod for its node from when it is bound to it, as kwok does.
fn count_started(change: &Change<Pod>, started: &mut HashMap<String, u64>) {
    let pod = match change {
        Change::Added { object, .. } => object,
        Change::Updated { old, new } if node_of(old).is_none() => new,
        _ => return,
    };
    if let (Some(node), Some(spec)) = (node_of(pod), &pod.spec) {
        *started.entry(node.to_owned()).or_default() += spec.containers.len() as u64;
    }
}

/// What was used over time: a sum for each container and node, continued whenever it is asked for.
#[derive(Default)]
struct Sums {
    sums: HashMap<SumKey, Sum>,
    /// When those of pods that are gone are dropped.
    limit: usize,
}

/// Resource, namespace and name of a pod, or nothing and the name of a node, and a container.
type SumKey = (String, Option<String>, String, String);

struct Sum {
    at: Timestamp,
    value: f64,
}

impl Sums {
    /// Continues a sum with what is used now, from when it was continued last.
    fn add(&mut self, key: SumKey, usage: f64, now: Timestamp) -> f64 {
        let sum = self.sums.entry(key).or_insert(Sum { at: now, value: 0.0 });
        sum.value += now.duration_since(sum.at).as_secs_f64().max(0.0) * usage;
        sum.at = now;
        sum.value
    }

    fn prune(&mut self, exists: impl Fn(&SumKey) -> bool) {
        if self.sums.len() > self.limit.max(SUMS) {
            self.sums.retain(|key, _| exists(key));
            self.limit = self.sums.len() * 2;
        }
    }
}

/// What the expressions of a metric see.
struct Subject<'a> {
    inner: &'a Inner,
    node: &'a Arc<Node>,
    node_value: Value,
    pod: Option<Arc<Pod>>,
    pod_value: Value,
    container_value: Value,
    now: Timestamp,
}

impl<'a> Subject<'a> {
    fn new(inner: &'a Inner, node: &'a Arc<Node>, now: Timestamp) -> Self {
        let node_value = serde_json::to_value(&**node).unwrap_or_default();
        Self { inner, node, node_value, pod: None, pod_value: Value::Null, container_value: Value::Null, now }
    }

    fn enter(&mut self, pod: &Arc<Pod>) {
        self.pod = Some(Arc::clone(pod));
        self.pod_value = serde_json::to_value(&**pod).unwrap_or_default();
    }

    fn enter_container(&mut self, container: &Container) {
        self.container_value = serde_json::to_value(container).unwrap_or_default();
    }

    /// The pod that an object is: the one of the moment, or another one of the node.
    fn pod_of(&self, object: &Value) -> Option<Arc<Pod>> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let current = self.pod.as_ref().filter(|pod| pod.metadata.uid.as_deref() == Some(text("uid")));
        let named = || self.inner.pods.get(&ObjectKey::new(text("namespace"), text("name")));
        current.cloned().or_else(named)
    }

    fn of_pod(&self, object: &Value, container: Option<&str>, resource: &str, is_sum: bool) -> f64 {
        let Some(pod) = self.pod_of(object) else { return 0.0 };
        self.sum_of(&pod, container, resource, is_sum)
    }

    fn sum_of(&self, pod: &Pod, container: Option<&str>, resource: &str, is_sum: bool) -> f64 {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let of = containers.filter(|one| container.is_none_or(|name| name == one.name)).map(|one| {
            let usage = self.inner.usages.resource(pod, Some(self.node), one, resource);
            if !is_sum {
                return usage;
            }
            let name = pod.metadata.name.clone().unwrap_or_default();
            let key = (resource.to_owned(), pod.metadata.namespace.clone(), name, one.name.clone());
            self.inner.sums.lock().add(key, usage, self.now)
        });
        of.sum()
    }

    fn of_node(&self, object: &Value, resource: &str, is_sum: bool) -> f64 {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let pods = self.inner.pods.by_index(BY_NODE, name);
        let usage = pods.iter().map(|pod| self.sum_of(pod, None, resource, false)).sum();
        if !is_sum {
            return usage;
        }
        let mut sums = self.inner.sums.lock();
        sums.prune(|(_, namespace, name, _)| match namespace {
            Some(namespace) => self.inner.pods.get(&ObjectKey::new(namespace, name)).is_some(),
            None => self.inner.nodes.get(&ObjectKey::cluster(name)).is_some(),
        });
        sums.add((resource.to_owned(), None, name.to_owned(), String::new()), usage, self.now)
    }
}

impl Scope for Subject<'_> {
    fn variable(&self, name: &str) -> Option<&Value> {
        match name {
            "node" => Some(&self.node_value),
            "pod" => Some(&self.pod_value),
            "container" => Some(&self.container_value),
            _ => None,
        }
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn random(&self) -> f64 {
        fastrand::f64()
    }

    fn is_typed(&self) -> bool {
        true
    }

    fn call(&self, name: &str, of: Option<&Value>, arguments: &[Value]) -> Option<Result<f64, String>> {
        let all: Vec<&Value> = of.into_iter().chain(arguments).collect();
        let is_sum = match name {
            "Usage" => false,
            "CumulativeUsage" => true,
            "StartedContainersTotal" | "startedContainersTotal" => {
                let node = match *all.first()? {
                    Value::String(name) => name.as_str(),
                    object => object["metadata"]["name"].as_str().unwrap_or_default(),
                };
                return Some(Ok(self.inner.started.lock().get(node).copied().unwrap_or(0) as f64));
            }
            _ => return None,
        };
        let kind = |object: &Value| object["kind"].as_str().unwrap_or_default().to_owned();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(
            match *all.as_slice() {
                [object, resource] if kind(object) == "Node" => {
                    text(resource).map(|resource| self.of_node(object, &resource, is_sum))
                }
                [object, resource] if kind(object) == "Pod" => {
                    text(resource).map(|resource| self.of_pod(object, None, &resource, is_sum))
                }
                [object, resource, container] if kind(object) == "Pod" => text(resource)
                    .zip(text(container))
                    .map(|(resource, container)| self.of_pod(object, Some(&container), &resource, is_sum)),
                _ => None,
            }
            .ok_or_else(|| format!("no such overload: {name}")),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_name_nodes() {
        let check = |form: &str, path: &str, expected: Option<&str>| {
            assert_eq!(named_node(form, path, "the-object"), expected, "{form} {path}");
        };
        let form = "/metrics/nodes/{nodeName}/metrics/resource";
        check(form, "/metrics/nodes/node-0/metrics/resource", Some("node-0"));
        check(form, "/metrics/nodes/node-0/metrics/resource/", Some("node-0"));
        check(form, "/metrics/nodes//metrics/resource", None);
        check(form, "/metrics/nodes/node-0/metrics", None);
        check("/metrics/cadvisor", "/metrics/cadvisor", Some("the-object"));
        check("/metrics/{nodeName}/of/{nodeName}", "/metrics/a/of/b", None);
        check("/metricsx", "/metricsx", None);
        check("/other", "/other", None);
    }

    #[test]
    fn sums_grow_with_time_and_usage() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let key = |pod: &str| ("cpu".to_owned(), Some("default".to_owned()), pod.to_owned(), "c".to_owned());
        let mut sums = Sums::default();
        assert_eq!(sums.add(key("a"), 2.0, at(0)).to_bits(), 0.0_f64.to_bits());
        assert!((sums.add(key("a"), 2.0, at(10)) - 20.0).abs() < 1e-9);
        assert!((sums.add(key("a"), 0.5, at(20)) - 25.0).abs() < 1e-9);
        for pod in 0..SUMS {
            sums.add(key(&format!("b{pod}")), 1.0, at(20));
        }
        sums.prune(|(_, _, name, _)| name == "a");
        assert_eq!(sums.sums.len(), 1);
    }

    #[test]
    fn containers_count_from_when_their_pod_is_bound() {
        let pod = |node: Value| -> Arc<Pod> {
            let containers = json!([{"name": "a"}, {"name": "b"}]);
            let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": node, "containers": containers}});
            Arc::new(serde_json::from_value(pod).expect("a pod"))
        };
        let mut started = HashMap::new();
        count_started(&Change::Added { object: pod(Value::Null), initial: false }, &mut started);
        count_started(&Change::Updated { old: pod(Value::Null), new: pod(json!("n")) }, &mut started);
        count_started(&Change::Updated { old: pod(json!("n")), new: pod(json!("n")) }, &mut started);
        count_started(&Change::Added { object: pod(json!("n")), initial: true }, &mut started);
        assert_eq!(started, HashMap::from([("n".to_owned(), 4)]));
    }
}
