//! What containers use, as `ResourceUsage` and `ClusterResourceUsage` say.
//!
//! The ResourceUsage of a pod's own name comes first, then each ClusterResourceUsage that selects the pod. Mirrors
//! `pkg/kwok/server/metrics_resource_usage.go`.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use windlass::cache::Lister;
use windlass::{Manager, ObjectKey};

use crate::cel::{Program, Scope, parse_quantity};
use crate::objects::{ClusterResourceUsage, ResourceUsage, ResourceUsageContainer, ResourceUsageValue};

/// How many expressions are kept after they were read.
const EXPRESSIONS: usize = 1_000;
/// The annotation that says how much CPU time each container of a pod uses, as in kwok's examples.
pub const CPU: &str = "kwok.x-k8s.io/usage-cpu";
/// The annotation that says how much memory each container of a pod uses.
pub const MEMORY: &str = "kwok.x-k8s.io/usage-memory";
/// What a container uses of which nothing is said: kwok's defaults.
pub const LITTLE_CPU: &str = "1m";
/// See [`LITTLE_CPU`].
pub const LITTLE_MEMORY: &str = "1Mi";

/// The usages of a cluster. Clones are the same.
#[derive(Clone)]
pub struct Usages {
    inner: Arc<Inner>,
}

struct Inner {
    pods: Lister<ResourceUsage>,
    cluster: Lister<ClusterResourceUsage>,
    /// Expressions that were read, or why they cannot be.
    programs: Mutex<HashMap<String, Result<Arc<Program>, String>>>,
}

impl std::fmt::Debug for Usages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Usages").finish_non_exhaustive()
    }
}

/// What a container uses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Used {
    /// In cores.
    pub cpu: f64,
    /// In bytes.
    pub memory: f64,
}

impl Usages {
    /// The usages that a manager watches.
    pub fn new(manager: &Manager) -> Self {
        let inner = Inner { pods: manager.lister(), cluster: manager.lister(), programs: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inner.pods.is_empty() && self.inner.cluster.is_empty()
    }

    /// What the containers of a pod use, by name; those that nothing is said about are left out.
    pub fn of(&self, pod: &Pod, node: Option<&Node>) -> HashMap<String, Used> {
        let containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
        let said = self.said(pod);
        let mut scope = Surroundings::new(pod, node);
        let mut used = HashMap::new();
        for container in containers {
            let Some(said) = said.of(&container.name) else { continue };
            scope.enter(container);
            let amount = |resource: &str| said.usage.get(resource).map_or(0.0, |value| self.amount(value, &scope));
            used.insert(container.name.clone(), Used { cpu: amount("cpu"), memory: amount("memory") });
        }
        used
    }

    /// How much a container of a pod uses of a resource: what is said about it, else what the pod's annotations say.
    pub fn resource(&self, pod: &Pod, node: Option<&Node>, container: &Container, resource: &str) -> f64 {
        if let Some(said) = self.said(pod).of(&container.name) {
            let Some(value) = said.usage.get(resource) else { return 0.0 };
            let mut scope = Surroundings::new(pod, node);
            scope.enter(container);
            return self.amount(value, &scope);
        }
        let (annotation, little) = match resource {
            "cpu" => (CPU, LITTLE_CPU),
            "memory" => (MEMORY, LITTLE_MEMORY),
            _ => return 0.0,
        };
        let text = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(annotation));
        let amount = text.and_then(|text| parse_quantity(text)).filter(|amount| *amount >= 0.0);
        amount.or_else(|| parse_quantity(little)).unwrap_or(0.0)
    }

    fn said(&self, pod: &Pod) -> Said {
        let key = ObjectKey::of(pod);
        let own = self.inner.pods.get(&key);
        let mut cluster = if own.is_some() { Vec::new() } else { self.inner.cluster.list() };
        cluster.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
        cluster.retain(|usage| {
            let selector = usage.spec.selector.as_ref();
            selector.is_none_or(|selector| selector.matches(key.namespace().unwrap_or_default(), key.name()))
        });
        Said { own, cluster }
    }

    /// An amount; 0 if it cannot be told, as in kwok.
    fn amount(&self, value: &ResourceUsageValue, scope: &Surroundings) -> f64 {
        match (&value.value, &value.expression) {
            (Some(Value::String(text)), _) => parse_quantity(text).unwrap_or(0.0),
            (Some(Value::Number(number)), _) => number.as_f64().unwrap_or(0.0),
            (_, Some(expression)) => self.compile(expression).map_or(0.0, |program| {
                let amount = program.evaluate(scope).map(|value| value.as_f64());
                amount
                    .unwrap_or_else(|error| {
                        tracing::debug!(expression, %error, "a usage cannot be evaluated");
                        None
                    })
                    .unwrap_or(0.0)
            }),
            _ => 0.0,
        }
        .max(0.0)
    }

    /// An expression that can be evaluated, or why it cannot.
    pub(crate) fn compile(&self, expression: &str) -> Result<Arc<Program>, String> {
        let mut programs = self.inner.programs.lock();
        if let Some(known) = programs.get(expression) {
            return known.clone();
        }
        if programs.len() >= EXPRESSIONS {
            programs.clear();
        }
        let read = Program::parse(expression).map(Arc::new).map_err(|error| error.to_string());
        if let Err(error) = &read {
            tracing::warn!(error, "an expression cannot be read");
        }
        programs.insert(expression.to_owned(), read.clone());
        read
    }
}

/// What is said about a pod: by an object of its own, else by those of the cluster that select it.
struct Said {
    own: Option<Arc<ResourceUsage>>,
    cluster: Vec<Arc<ClusterResourceUsage>>,
}

impl Said {
    fn of(&self, container: &str) -> Option<&ResourceUsageContainer> {
        match &self.own {
            Some(own) => find(&own.spec.usages, container),
            None => self.cluster.iter().find_map(|usage| find(&usage.spec.usages, container)),
        }
    }
}

/// What is said about a container: where it is named, else where none is.
fn find<'u>(usages: &'u [ResourceUsageContainer], container: &str) -> Option<&'u ResourceUsageContainer> {
    let named = usages.iter().find(|usage| usage.containers.iter().any(|name| name == container));
    named.or_else(|| usages.iter().find(|usage| usage.containers.is_empty()))
}

/// What expressions see.
struct Surroundings {
    pod: Value,
    node: Value,
    container: Value,
    now: Timestamp,
}

impl Surroundings {
    fn new(pod: &Pod, node: Option<&Node>) -> Self {
        let pod = serde_json::to_value(pod).unwrap_or_default();
        let node = node.and_then(|node| serde_json::to_value(node).ok()).unwrap_or_default();
        Self { pod, node, container: Value::Null, now: Timestamp::now() }
    }

    fn enter(&mut self, container: &Container) {
        self.container = serde_json::to_value(container).unwrap_or_default();
    }
}

impl Scope for Surroundings {
    fn variable(&self, name: &str) -> Option<&Value> {
        match name {
            "pod" => Some(&self.pod),
            "node" => Some(&self.node),
            "container" => Some(&self.container),
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
}
