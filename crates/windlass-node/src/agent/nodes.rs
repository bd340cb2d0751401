//! Keeps the agent's nodes: adopts them, reports their status, renews their leases.
//!
//! A lease is renewed every ten seconds, as a kubelet does, and less often when there are thousands; nodes take
//! turns, so that the renewals are spread over that time. The status is written when it changes, and every five minutes.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo, Pod,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass::cache::Lister;
use windlass::{Context, ObjectKey, Outcome, Reconcile};

use super::{NODE_INDEX, NodeEntry, NodeState, Shared};
use crate::api::{Merge, is_conflict, is_gone, is_invalid, node_path};
use crate::network::{self, Ordinals, PodRange};
use crate::pod::admission::NodeTraits;
use crate::resources::amounts;
use crate::runtime::{Runtime, Shortcoming};
use crate::{SIMULATED, UNRESPONSIVE};

/// How long a lease is valid.
const LEASE_SECONDS: i32 = 40;
const LEASE_INTERVAL: Duration = Duration::from_secs(10);
/// With many nodes; well below what a lease is valid for.
const LONGEST_LEASE_INTERVAL: Duration = Duration::from_secs(30);
/// From how many renewals per second on the interval becomes longer.
const RENEWALS_PER_SECOND: usize = 300;
/// How often a status is written that has not changed.
const STATUS_INTERVAL: Duration = Duration::from_secs(300);
/// The version that nodes report, which is that of the API.
const KUBELET_VERSION: &str = "v1.36.4";
/// Nodes that are created at the same time.
const REGISTERED_AT_ONCE: usize = 32;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// What a node has unless it says so itself.
const CAPACITY: [(&str, &str); 4] = [("cpu", "32"), ("memory", "256Gi"), ("pods", "110"), ("ephemeral-storage", "1Ti")];

/// The reconciler of nodes.
pub(super) struct Nodes<R> {
    shared: Arc<Shared<R>>,
    /// When what is due for each node.
    due: Mutex<HashMap<ObjectKey, Due>>,
    /// The versions of nodes that have what was missing. Until the watch shows them, these nodes wait: a range that is
    /// written a second time is refused.
    completed: Mutex<HashMap<ObjectKey, u64>>,
}

/// What came of the adoption of a node.
enum Adoption {
    /// The agent has it.
    Adopted(Arc<NodeEntry>),
    /// Something was written to it first, which made it this version; 0 if it is gone or was changed by another.
    Completed(u64),
}

/// When a node's lease and status are written next.
#[derive(Debug, Clone)]
struct Due {
    lease: Instant,
    has_lease: bool,
    status: Instant,
    /// The version of the node that was found to have the right status.
    checked: Option<String>,
}

impl<R> Nodes<R> {
    pub(super) fn new(shared: Arc<Shared<R>>) -> Self {
        Self { shared, due: Mutex::default(), completed: Mutex::default() }
    }
}

impl<R: Runtime> Reconcile<Node> for Nodes<R> {
    async fn reconcile(&self, node: Arc<Node>, ctx: Context) -> windlass::Result {
        let key = ObjectKey::of(&node);
        if !(self.shared.adopts)(&node) || node.metadata.deletion_timestamp.is_some() {
            self.abandon(&key);
            return Ok(Outcome::Done);
        }
        if annotated(&node, UNRESPONSIVE) {
            // As if it had been switched off: neither lease nor status, and its pods stay as they are.
            self.abandon(&key);
            return Ok(Outcome::Done);
        }
        let entry = match self.shared.node(key.name()) {
            Some(entry) => {
                entry.state.lock().update(&node);
                entry
            }
            // The watch is behind, and wakes this node when it is not.
            None if self.is_behind(&key, &node) => return Ok(Outcome::Done),
            None => match self.shared.adopt(&node, &ctx).await? {
                Adoption::Adopted(entry) => entry,
                Adoption::Completed(version) => {
                    self.completed.lock().insert(key, version);
                    return Ok(Outcome::Done);
                }
            },
        };
        let now = Instant::now();
        let new = || Due { lease: now, has_lease: false, status: now, checked: None };
        let mut due = self.due.lock().entry(key.clone()).or_insert_with(new).clone();
        if due.lease <= now {
            due.has_lease = self.shared.renew(&node, &entry.name, due.has_lease).await?;
            let interval = lease_interval(self.shared.nodes.read().len());
            // From the second renewal on the nodes take turns.
            due.lease = now + if self.is_first(&key) { interval.mul_f64(fraction(key.name())) } else { interval };
            self.due.lock().insert(key.clone(), due.clone());
        }
        // Most of the time it is only the lease that has to be renewed.
        let is_checked = due.checked.is_some() && due.checked == node.metadata.resource_version;
        if !is_checked || due.status <= now || self.shared.status_depends_on_more() {
            due.checked = None;
            if self.shared.write_node_status(&node, &entry, due.status <= now).await? {
                due.status = now + STATUS_INTERVAL;
            } else {
                due.checked.clone_from(&node.metadata.resource_version);
            }
        }
        let next = due.lease.min(due.status).saturating_duration_since(Instant::now());
        self.due.lock().insert(key, due);
        Ok(Outcome::RequeueAfter(next.max(Duration::from_millis(1))))
    }

    async fn gone(&self, key: ObjectKey, _: Context) -> windlass::Result {
        self.abandon(&key);
        Ok(Outcome::Done)
    }
}

impl<R: Runtime> Nodes<R> {
    /// Whether a node's lease was not renewed before.
    fn is_first(&self, key: &ObjectKey) -> bool {
        self.due.lock().get(key).is_none_or(|due| !due.has_lease)
    }

    /// Whether this is a node as it was before what it lacked was written to it.
    fn is_behind(&self, key: &ObjectKey, node: &Node) -> bool {
        let shown: Option<u64> = node.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        let mut completed = self.completed.lock();
        let is_behind = completed.get(key).zip(shown).is_some_and(|(written, shown)| shown < *written);
        if !is_behind {
            completed.remove(key);
        }
        is_behind
    }

    /// Lets go of a node. Its pods are forgotten when they are worked on next.
    fn abandon(&self, key: &ObjectKey) {
        self.due.lock().remove(key);
        self.completed.lock().remove(key);
        let entry = self.shared.nodes.write().remove(key.name());
        if let Some(ordinal) = entry.and_then(|entry| entry.ordinal)
            && let Some(ordinals) = self.shared.ordinals.lock().as_mut()
        {
            ordinals.release(ordinal);
        }
    }
}

/// How often leases are renewed when there are so many.
fn lease_interval(nodes: usize) -> Duration {
    let needed = Duration::from_secs((nodes / RENEWALS_PER_SECOND) as u64);
    needed.clamp(LEASE_INTERVAL, LONGEST_LEASE_INTERVAL)
}

/// A number between 0 and 1 that is a node's own.
fn fraction(name: &str) -> f64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    (hasher.finish() % 1000) as f64 / 1000.0
}

fn annotated(node: &Node, annotation: &str) -> bool {
    let value = node.metadata.annotations.as_ref().and_then(|all| all.get(annotation));
    value.is_some_and(|value| value == "true")
}

impl NodeState {
    fn new(node: &Node) -> Self {
        let mut state = Self {
            traits: NodeTraits::default(),
            version: None,
            allocatable: Arc::default(),
            used: BTreeMap::new(),
            pods: 0,
            range: node.spec.as_ref().and_then(|spec| PodRange::new(spec.pod_cidr.as_deref()?)),
        };
        state.update(node);
        state
    }

    fn update(&mut self, node: &Node) {
        if self.version.is_some() && self.version == node.metadata.resource_version {
            return;
        }
        self.version.clone_from(&node.metadata.resource_version);
        self.allocatable = Arc::new(amounts(Some(&allocatable(node))));
        self.traits = NodeTraits::new(node);
    }
}

/// What a node has: what its status says, else the default.
fn capacity(node: &Node) -> BTreeMap<String, Quantity> {
    let own = node.status.as_ref().and_then(|status| status.capacity.clone()).filter(|own| !own.is_empty());
    own.unwrap_or_else(|| {
        CAPACITY.iter().map(|(name, value)| ((*name).to_owned(), Quantity((*value).to_owned()))).collect()
    })
}

fn allocatable(node: &Node) -> BTreeMap<String, Quantity> {
    let own = node.status.as_ref().and_then(|status| status.allocatable.clone()).filter(|own| !own.is_empty());
    own.unwrap_or_else(|| capacity(node))
}

/// The labels that every node has.
fn default_labels(name: &str) -> [(&'static str, String); 5] {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    [
        ("kubernetes.io/hostname", name.to_owned()),
        ("kubernetes.io/os", "linux".to_owned()),
        ("kubernetes.io/arch", arch.to_owned()),
        ("beta.kubernetes.io/os", "linux".to_owned()),
        ("beta.kubernetes.io/arch", arch.to_owned()),
    ]
}

/// The zone of the nth node.
fn zone(ordinal: u32) -> String {
    format!("zone-{}", ['a', 'b', 'c'][(ordinal % 3) as usize])
}

const REGION: &str = "region-1";

impl<R: Runtime> Shared<R> {
    /// Adopts a node, or writes what it lacks.
    async fn adopt(&self, node: &Arc<Node>, ctx: &Context) -> Result<Adoption, kube::Error> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let (patch, ordinal) = self.missing(node, &ctx.client().lister::<Node>());
        if let Some(patch) = patch {
            let Some(path) = node_path(name) else { return Ok(Adoption::Completed(0)) };
            // Ranges are given out by a controller of the cluster, not by the node.
            let written = self.api.patch(None, &path, Merge::Json, &patch).await;
            if written.is_err()
                && let (Some(taken), true) = (ordinal, patch.get("spec").is_some())
                && let Some(ordinals) = self.ordinals.lock().as_mut()
            {
                ordinals.release(taken);
            }
            return match written {
                Ok(version) => Ok(Adoption::Completed(version)),
                // Another client has given it a range, which the watch has not shown yet.
                Err(error) if is_invalid(&error) && patch.get("spec").is_some() => Ok(Adoption::Completed(0)),
                Err(error) if is_gone(&error) => Ok(Adoption::Completed(0)),
                Err(error) => Err(error),
            };
        }
        let known = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let known =
            known.filter(|address| address.type_ == "InternalIP").find_map(|address| address.address.parse().ok());
        let address: IpAddr = known.unwrap_or_else(|| match ordinal {
            Some(ordinal) => network::node_address(ordinal).into(),
            // Its range is not one of ours.
            None => network::node_address(60_000 + (fraction(name) * 1000.0) as u32).into(),
        });
        let entry = NodeEntry { name: Arc::from(name), ordinal, address, state: Mutex::new(NodeState::new(node)) };
        let pods = ctx.client().lister::<Pod>().by_index(NODE_INDEX, name);
        if let Some(range) = &mut entry.state.lock().range {
            for pod in &pods {
                let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse().ok());
                if let Some(ip) = ip {
                    range.mark(ip, true);
                }
            }
        }
        let entry = Arc::new(entry);
        self.nodes.write().insert(Arc::clone(&entry.name), Arc::clone(&entry));
        for pod in pods {
            self.wake_pod.enqueue(ObjectKey::of(&pod));
        }
        Ok(Adoption::Adopted(entry))
    }

    /// What a node lacks, as a patch, and its number.
    fn missing(&self, node: &Node, all: &Lister<Node>) -> (Option<Value>, Option<u32>) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let mut ordinals = self.ordinals.lock();
        let ordinals = ordinals.get_or_insert_with(|| {
            let mut ordinals = Ordinals::default();
            for node in all.list() {
                if let Some(cidr) = node.spec.as_ref().and_then(|spec| spec.pod_cidr.as_deref()) {
                    ordinals.note(cidr);
                }
            }
            ordinals
        });
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let lacking: BTreeMap<&str, String> =
            default_labels(name).into_iter().filter(|(label, _)| !labels.contains_key(*label)).collect();
        let cidr = node.spec.as_ref().and_then(|spec| spec.pod_cidr.as_deref());
        let mut patch = json!({});
        if !lacking.is_empty() {
            patch["metadata"] = json!({ "labels": lacking });
        }
        let Some(cidr) = cidr else {
            let taken = ordinals.take();
            if let Some(cidr) = network::pod_cidr(taken) {
                patch["spec"] = json!({ "podCIDR": cidr, "podCIDRs": [cidr] });
                return (Some(patch), Some(taken));
            }
            // All ranges are taken: its pods get no addresses.
            ordinals.release(taken);
            return ((!lacking.is_empty()).then_some(patch), None);
        };
        let ordinal = ordinals.note(cidr);
        ((!lacking.is_empty()).then_some(patch), ordinal)
    }

    /// Renews a node's lease. True: there is one.
    async fn renew(&self, node: &Node, name: &Arc<str>, exists: bool) -> Result<bool, kube::Error> {
        let now = MicroTime(Timestamp::now());
        if exists {
            let path = format!("{LEASES}/{name}");
            let patch = json!({ "spec": { "renewTime": now } });
            match self.api.patch(Some(name), &path, Merge::Json, &patch).await {
                Err(error) if is_gone(&error) => {}
                other => return other.map(|_| true),
            }
        }
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": &**name,
                "namespace": "kube-node-lease",
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Node", "name": &**name, "uid": node.metadata.uid },
                ],
            },
            "spec": { "holderIdentity": &**name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now },
        });
        match self.api.create(name, LEASES, &lease).await {
            Err(error) if is_conflict(&error) => {
                let path = format!("{LEASES}/{name}");
                let patch = json!({
                    "metadata": { "ownerReferences": lease["metadata"]["ownerReferences"] },
                    "spec": lease["spec"],
                });
                self.api.patch(Some(name), &path, Merge::Json, &patch).await.map(|_| true)
            }
            other => other.map(|_| true),
        }
    }

    /// Writes a node's status if it has changed, or if it is due. True if it was written.
    async fn write_node_status(&self, node: &Node, entry: &NodeEntry, is_due: bool) -> Result<bool, kube::Error> {
        let mut new = self.status(node, entry);
        let old = node.status.clone().unwrap_or_default();
        let is_left = self.leaves_conditions.as_ref().is_some_and(|leaves| leaves(node))
            && old.conditions.iter().flatten().any(|condition| condition.type_ == "Ready");
        if is_left {
            new.conditions.clone_from(&old.conditions);
        }
        let without_times = |conditions: &Option<Vec<NodeCondition>>| -> Vec<NodeCondition> {
            let plain = |condition: &NodeCondition| NodeCondition { last_heartbeat_time: None, ..condition.clone() };
            conditions.iter().flatten().map(plain).collect()
        };
        let same_conditions = {
            let old = without_times(&old.conditions);
            without_times(&new.conditions).iter().all(|condition| old.contains(condition))
        };
        let same = same_conditions
            && (&old.capacity, &old.allocatable, &old.addresses, &old.node_info, &old.daemon_endpoints)
                == (&new.capacity, &new.allocatable, &new.addresses, &new.node_info, &new.daemon_endpoints);
        if same && (is_left || !is_due) {
            // What is left to another component counts as reported until it is due again.
            return Ok(is_due);
        }
        let Some(path) = node_path(&entry.name) else { return Ok(false) };
        let mut patch = json!({ "status": { "conditions": new.conditions } });
        if !same {
            patch["status"] = serde_json::to_value(&new).map_err(kube::Error::SerdeError)?;
        }
        match self.api.patch(Some(&entry.name), &format!("{path}/status"), Merge::Strategic, &patch).await {
            Err(error) if is_gone(&error) => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Whether the status of nodes follows from more than the nodes themselves.
    fn status_depends_on_more(&self) -> bool {
        self.leaves_conditions.is_some() || !self.runtime.shortcomings().is_empty()
    }

    fn status(&self, node: &Node, entry: &NodeEntry) -> NodeStatus {
        let now = crate::pod::Now::read().wall;
        let known = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let known: Vec<&NodeCondition> = known.collect();
        let condition = |type_: &str, status: &str, reason: &str, message: &str| {
            let before = known.iter().find(|known| known.type_ == type_ && known.status == status);
            NodeCondition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                last_heartbeat_time: Some(Time(now)),
                last_transition_time: before.map_or(Some(Time(now)), |before| before.last_transition_time.clone()),
            }
        };
        let mut conditions = vec![
            condition(
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ];
        for Shortcoming { condition: type_, reason, message } in self.runtime.shortcomings() {
            conditions.push(condition(type_, "False", reason, &message));
        }
        let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
        let own = node.status.clone().unwrap_or_default();
        let info = own.node_info.filter(|info| !info.kubelet_version.is_empty());
        let uid = node.metadata.uid.clone().unwrap_or_default();
        let [_, _, (_, arch), ..] = default_labels("");
        NodeStatus {
            capacity: Some(capacity(node)),
            allocatable: Some(allocatable(node)),
            conditions: Some(conditions),
            addresses: Some(own.addresses.filter(|all| !all.is_empty()).unwrap_or_else(|| {
                vec![address("InternalIP", entry.address.to_string()), address("Hostname", entry.name.to_string())]
            })),
            node_info: Some(info.unwrap_or_else(|| NodeSystemInfo {
                architecture: arch,
                boot_id: uid.clone(),
                container_runtime_version: self.runtime.version(),
                kernel_version: String::new(),
                kube_proxy_version: String::new(),
                kubelet_version: KUBELET_VERSION.to_owned(),
                machine_id: uid.replace('-', ""),
                operating_system: "linux".to_owned(),
                os_image: "Windlass".to_owned(),
                system_uuid: uid,
                swap: None,
            })),
            daemon_endpoints: Some(
                own.daemon_endpoints
                    .unwrap_or(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: 10250 }) }),
            ),
            ..NodeStatus::default()
        }
    }
}

/// A simulated node as it is created: `node-N`, with labels, a zone and what it has.
pub(crate) fn simulated(name: &str, ordinal: u32) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    let mut labels: BTreeMap<String, String> =
        default_labels(name).into_iter().map(|(label, value)| (label.to_owned(), value)).collect();
    labels.insert("topology.kubernetes.io/region".to_owned(), REGION.to_owned());
    labels.insert("topology.kubernetes.io/zone".to_owned(), zone(ordinal));
    node.metadata.labels = Some(labels);
    let marks = [(SIMULATED, "true"), ("volumes.kubernetes.io/controller-managed-attach-detach", "true")];
    node.metadata.annotations =
        Some(marks.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
    node.status = Some(NodeStatus {
        capacity: Some(capacity(&Node::default())),
        allocatable: Some(capacity(&Node::default())),
        ..NodeStatus::default()
    });
    node
}

/// Creates nodes that do not exist: simulated ones, and one that is given.
pub(super) async fn register<R: Runtime>(shared: &Shared<R>, count: u32, node: Option<Node>) {
    let given = node.map(|node| (node.metadata.name.clone().unwrap_or_default(), node));
    let simulated = (0..count).map(|ordinal| (format!("node-{ordinal}"), ordinal));
    let all = simulated.map(|(name, ordinal)| (name.clone(), self::simulated(&name, ordinal))).chain(given);
    let register = async |(name, node): (String, Node)| {
        let name: Arc<str> = Arc::from(name);
        let mut pause = Duration::from_millis(20);
        loop {
            match shared.api.create(&name, "/api/v1/nodes", &node).await {
                Ok(_) => break,
                Err(error) if is_conflict(&error) => break,
                Err(error) => {
                    tracing::warn!(node = %name, %error, "a node cannot be registered");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(10));
                }
            }
        }
    };
    futures::stream::iter(all).for_each_concurrent(REGISTERED_AT_ONCE, register).await;
}
