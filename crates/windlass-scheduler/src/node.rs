//! Nodes as the scheduler sees them: what they have, and which pods take how much of it.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::labels::Labels;
use crate::pod::{HostPort, PodInfo, Taint};
use crate::resources::Resources;

/// The label of nodes that is their own name.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
/// The label of nodes that is their zone.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of nodes that is their region.
const REGION: &str = "topology.kubernetes.io/region";

/// What the API says about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `spec.taints`.
    pub taints: Box<[Taint]>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `status.allocatable`.
    pub allocatable: Resources,
    /// Sizes of the images it has, by each of their names.
    pub images: HashMap<Box<str>, i64>,
}

impl NodeSpec {
    /// Extracts a node.
    pub fn new(node: &Node) -> Self {
        let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
        let taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let taints = taints.map(|taint| Taint {
            key: taint.key.as_str().into(),
            value: taint.value.as_deref().unwrap_or_default().into(),
            effect: taint.effect.as_str().into(),
        });
        let images = status.iter().flat_map(|status| status.images.iter().flatten());
        let images = images.flat_map(|image| {
            let size = image.size_bytes.unwrap_or(0);
            image.names.iter().flatten().map(move |name| (name.as_str().into(), size))
        });
        Self {
            name: node.metadata.name.as_deref().unwrap_or_default().into(),
            labels: Labels::new(node.metadata.labels.as_ref()),
            taints: taints.collect(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            allocatable: Resources::new(status.and_then(|status| status.allocatable.as_ref())),
            images: images.collect(),
        }
    }

    /// Region and zone, for the order in which nodes are looked at.
    pub(crate) fn zone(&self) -> (String, String) {
        let label = |key| self.labels.get(key).unwrap_or_default().to_owned();
        (label(REGION), label(ZONE))
    }
}

/// A node with its pods.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    /// What the API says; `None` for a node that only its pods name.
    pub spec: Option<Arc<NodeSpec>>,
    /// The pods that are bound or assumed to be bound.
    pub pods: Vec<Arc<PodInfo>>,
    /// What they ask for.
    pub requested: Resources,
    /// What they ask for with defaults: thousandths of a CPU, and bytes of memory.
    pub scored: (i64, i64),
    /// The ports that they take.
    pub ports: Vec<HostPort>,
}

impl NodeInfo {
    /// A node without pods.
    pub(crate) fn new(spec: Option<Arc<NodeSpec>>) -> Self {
        Self { spec, pods: Vec::new(), requested: Resources::default(), scored: (0, 0), ports: Vec::new() }
    }

    pub(crate) fn add(&mut self, pod: &Arc<PodInfo>) {
        self.account(pod, 1);
        self.ports.extend_from_slice(&pod.ports);
        self.pods.push(Arc::clone(pod));
    }

    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|pod| *pod.uid == *uid)?;
        let pod = self.pods.swap_remove(at);
        self.account(&pod, -1);
        for port in &pod.ports {
            if let Some(at) = self.ports.iter().position(|taken| taken == port) {
                self.ports.swap_remove(at);
            }
        }
        Some(pod)
    }

    fn account(&mut self, pod: &PodInfo, sign: i64) {
        self.requested.add(&pod.requests.exact, sign);
        self.scored.0 += sign * pod.requests.scored_cpu;
        self.scored.1 += sign * pod.requests.scored_memory;
    }
}
