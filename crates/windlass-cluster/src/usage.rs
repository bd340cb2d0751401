//! `metrics.k8s.io/v1beta1`: what pods and nodes use, as `kubectl top` and autoscalers read it.
//!
//! Simulated containers use what kwok's ResourceUsage and ClusterResourceUsage say, else what an annotation of their pod says,
//! and little without one. Of containers that run, their node knows what they use. A pod has metrics while its containers run, as with metrics-server.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::{Timestamp, Unit};
use serde_json::{Value, json};
use windlass::ObjectKey;
use windlass::cache::Lister;
use windlass_api::validation::quantity::Quantity;
use windlass_kwok::usage::{CPU, LITTLE_CPU, LITTLE_MEMORY, MEMORY, Usages};
use windlass_node::access::PodAccess;
use windlass_server::{Computed, Server};

const API_VERSION: &str = "metrics.k8s.io/v1beta1";
/// Over how long usage is averaged, as metrics-server reports it.
const WINDOW: &str = "30s";

/// Serves the metrics of the pods and nodes in these caches. Pods that really run are reached through `access`.
pub(crate) fn serve(
    server: &Server,
    pods: Lister<Pod>,
    nodes: Lister<Node>,
    usages: Option<Usages>,
    access: Option<PodAccess>,
) {
    let usage = json!({"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}});
    let container = json!({"type": "object", "properties": {"name": {"type": "string"}, "usage": usage}});
    let of_pods = json!({"containers": {"type": "array", "items": container}});
    let of_nodes = json!({"usage": usage});
    let observed = Observed { pods, nodes, usages, access };
    server.add_computed(&definition("nodes", "NodeMetrics", "Cluster", of_nodes), Nodes(observed.clone()));
    server.add_computed(&definition("pods", "PodMetrics", "Namespaced", of_pods), Pods(observed));
}

fn definition(plural: &str, kind: &str, scope: &str, mut properties: Value) -> Value {
    properties["timestamp"] = json!({"type": "string", "format": "date-time"});
    properties["window"] = json!({"type": "string"});
    json!({
        "metadata": {"name": format!("{plural}.metrics.k8s.io")},
        "spec": {
            "group": "metrics.k8s.io", "scope": scope,
            "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
            }],
        },
    })
}

/// What metrics are made of.
#[derive(Clone)]
struct Observed {
    pods: Lister<Pod>,
    nodes: Lister<Node>,
    /// What kwok's objects say.
    usages: Option<Usages>,
    access: Option<PodAccess>,
}

impl Observed {
    /// What each running container of a pod uses, by name.
    fn containers<'p>(&self, pod: &'p Pod) -> Vec<(&'p str, Usage)> {
        let node = node_of(pod).unwrap_or_default();
        if let Some(access) = self.access.as_ref().filter(|access| access.has_node(node)) {
            return measured(pod, &access.usage(Arc::new(pod.clone())).unwrap_or_default());
        }
        let otherwise = usage_per_container(pod);
        let said = self.usages.as_ref().filter(|usages| !usages.is_empty()).map(|usages| {
            let node = node_of(pod).and_then(|name| self.nodes.get(&ObjectKey::cluster(name)));
            usages.of(pod, node.as_deref())
        });
        let usage = |name: &str| {
            let said = said.as_ref().and_then(|said| said.get(name));
            said.and_then(|used| Usage::new(used.cpu, used.memory)).unwrap_or(otherwise)
        };
        running(pod).into_iter().map(|name| (name, usage(name))).collect()
    }

    fn of_pod(&self, pod: &Pod) -> Usage {
        let mut all = Usage::default();
        for (_, each) in self.containers(pod) {
            all.add(&each);
        }
        all
    }
}

struct Pods(Observed);

impl Computed for Pods {
    fn list(&self, namespace: Option<&str>) -> Vec<Value> {
        let mut pods = match namespace {
            Some(namespace) => self.0.pods.in_namespace(namespace),
            None => self.0.pods.list(),
        };
        pods.sort_by_cached_key(|pod| ObjectKey::of(&**pod));
        let now = Timestamp::now();
        pods.iter().filter_map(|pod| pod_metrics(pod, &self.0.containers(pod), now)).collect()
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Value> {
        let pod = self.0.pods.get(&ObjectKey::new(namespace, name))?;
        pod_metrics(&pod, &self.0.containers(&pod), Timestamp::now())
    }
}

struct Nodes(Observed);

impl Computed for Nodes {
    fn list(&self, _namespace: Option<&str>) -> Vec<Value> {
        let mut used: HashMap<String, Usage> = HashMap::new();
        for pod in self.0.pods.list() {
            let Some(node) = node_of(&pod) else { continue };
            used.entry(node.to_owned()).or_default().add(&self.0.of_pod(&pod));
        }
        let mut nodes = self.0.nodes.list();
        nodes.sort_by_cached_key(|node| node.metadata.name.clone());
        let now = Timestamp::now();
        nodes.iter().map(|node| node_metrics(node, &used.remove(name_of(node)).unwrap_or_default(), now)).collect()
    }

    fn get(&self, _namespace: &str, name: &str) -> Option<Value> {
        let node = self.0.nodes.get(&ObjectKey::cluster(name))?;
        let mut used = Usage::default();
        for pod in self.0.pods.list().iter().filter(|pod| node_of(pod) == Some(name)) {
            used.add(&self.0.of_pod(pod));
        }
        Some(node_metrics(&node, &used, Timestamp::now()))
    }
}

fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// What something uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Usage {
    cpu: Quantity,
    memory: Quantity,
}

impl Default for Usage {
    fn default() -> Self {
        Self { cpu: Quantity::ZERO, memory: Quantity::ZERO }
    }
}

impl Usage {
    /// From cores and bytes.
    fn new(cpu: f64, memory: f64) -> Option<Self> {
        let quantity = |number: f64, suffix: &str| Quantity::parse(&format!("{number:.0}{suffix}"));
        Some(Self { cpu: quantity(cpu * 1e9, "n")?, memory: quantity(memory / 1024.0, "Ki")? })
    }

    fn add(&mut self, other: &Self) {
        *self = Self { cpu: self.cpu.plus(&other.cpu), memory: self.memory.plus(&other.memory) };
    }

    fn to_value(self) -> Value {
        json!({"cpu": self.cpu.to_string(), "memory": self.memory.to_string()})
    }
}

/// What each container of a pod uses.
fn usage_per_container(pod: &Pod) -> Usage {
    let said = |annotation: &str, otherwise: &str| {
        let text = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(annotation));
        let said = text.and_then(|text| Quantity::parse(text)).filter(|said| said.sign() >= 0);
        said.or_else(|| Quantity::parse(otherwise)).unwrap_or(Quantity::ZERO)
    };
    Usage { cpu: said(CPU, LITTLE_CPU), memory: said(MEMORY, LITTLE_MEMORY) }
}

/// The names of the containers that run, sidecars among them.
fn running(pod: &Pod) -> Vec<&str> {
    let Some(status) = &pod.status else { return Vec::new() };
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let running = all.filter(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()));
    running.map(|status| status.name.as_str()).collect()
}

/// What the kernel has counted for the containers that run.
fn measured<'p>(pod: &'p Pod, counted: &[windlass_node::runtime::Usage]) -> Vec<(&'p str, Usage)> {
    let of = |name: &str| {
        let one = counted.iter().find(|one| one.container == name)?;
        let cpu = Quantity::parse(&format!("{}n", one.cpu_nanocores))?;
        Some(Usage { cpu, memory: Quantity::parse(&format!("{}Ki", one.memory_bytes / 1024))? })
    };
    running(pod).into_iter().filter_map(|name| Some((name, of(name)?))).collect()
}

fn pod_metrics(pod: &Pod, containers: &[(&str, Usage)], now: Timestamp) -> Option<Value> {
    let containers: Vec<Value> =
        containers.iter().map(|(name, usage)| json!({"name": name, "usage": usage.to_value()})).collect();
    if containers.is_empty() {
        return None;
    }
    let mut metadata = json!({"name": pod.metadata.name, "namespace": pod.metadata.namespace});
    if let Some(labels) = &pod.metadata.labels {
        metadata["labels"] = json!(labels);
    }
    Some(object("PodMetrics", metadata, "containers", &containers.into(), now))
}

fn node_metrics(node: &Node, used: &Usage, now: Timestamp) -> Value {
    let mut metadata = json!({"name": node.metadata.name});
    if let Some(labels) = &node.metadata.labels {
        metadata["labels"] = json!(labels);
    }
    object("NodeMetrics", metadata, "usage", &used.to_value(), now)
}

fn object(kind: &str, mut metadata: Value, field: &str, content: &Value, now: Timestamp) -> Value {
    let now = now.round(Unit::Second).unwrap_or(now).to_string();
    metadata["creationTimestamp"] = now.as_str().into();
    json!({
        "kind": kind, "apiVersion": API_VERSION, "metadata": metadata,
        "timestamp": now, "window": WINDOW, field: content,
    })
}

#[cfg(test)]
mod tests {
    use windlass::cache::Caches;

    use super::*;

    /// Of a cluster with nothing in it.
    fn observed() -> Observed {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("there is no server"))
        });
        let caches = Caches::new(kube::Client::new(service, "default"), windlass::cache::CacheOptions::default());
        Observed { pods: caches.lister(), nodes: caches.lister(), usages: None, access: None }
    }

    fn pod(annotations: &Value, phase: &Value) -> Pod {
        let statuses: Vec<Value> = ["web", "log"]
            .map(|name| json!({"name": name, "image": "x", "imageID": "", "ready": true, "restartCount": 0, "state": phase}))
            .to_vec();
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "annotations": annotations, "labels": {"app": "web"}},
            "spec": {"nodeName": "a", "containers": []},
            "status": {"containerStatuses": statuses},
        }))
        .expect("a pod")
    }

    #[tokio::test]
    async fn running_containers_use_what_annotations_say() {
        let running = json!({"running": {}});
        let pod = pod(&json!({CPU: "0.25", MEMORY: "64Mi"}), &running);
        let metrics = pod_metrics(&pod, &observed().containers(&pod), Timestamp::UNIX_EPOCH).expect("metrics");
        let usage = json!({"cpu": "250m", "memory": "64Mi"});
        assert_eq!(metrics["containers"], json!([{"name": "web", "usage": usage}, {"name": "log", "usage": usage}]));
        assert_eq!(
            (&metrics["timestamp"], &metrics["metadata"]["labels"]["app"]),
            (&json!("1970-01-01T00:00:00Z"), &json!("web"))
        );
        assert_eq!(observed().of_pod(&pod).to_value(), json!({"cpu": "500m", "memory": "128Mi"}));
    }

    #[test]
    fn amounts_of_kwok_are_cores_and_bytes() {
        let usage = Usage::new(0.251, 1_048_576.0).expect("amounts");
        assert_eq!(usage.to_value(), json!({"cpu": "251m", "memory": "1Mi"}));
    }

    #[test]
    fn containers_that_run_use_what_was_counted() {
        let pod = pod(&json!({}), &json!({"running": {}}));
        let counted = [windlass_node::runtime::Usage {
            container: "log".to_owned(),
            cpu_nanocores: 5_000_000,
            memory_bytes: 3 << 20,
        }];
        let found = measured(&pod, &counted);
        assert_eq!((found.len(), found[0].0), (1, "log"));
        assert_eq!(found[0].1.to_value(), json!({"cpu": "5m", "memory": "3Mi"}));
    }

    #[test]
    fn bad_annotations_count_as_none() {
        let pod = pod(&json!({CPU: "much", MEMORY: "-1Gi"}), &json!({"running": {}}));
        assert_eq!(usage_per_container(&pod).to_value(), json!({"cpu": "1m", "memory": "1Mi"}));
    }

    #[tokio::test]
    async fn pods_that_do_not_run_have_no_metrics() {
        let pod = pod(&json!({}), &json!({"waiting": {"reason": "ContainerCreating"}}));
        assert_eq!(pod_metrics(&pod, &observed().containers(&pod), Timestamp::UNIX_EPOCH), None);
        assert_eq!(observed().of_pod(&pod), Usage::default());
    }
}
