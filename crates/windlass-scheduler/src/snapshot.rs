//! What the scheduler knows: nodes, pods, and the counts that decisions are made of.
//!
//! Every change is applied once, when it comes; nothing is copied or counted again for a decision. A pod that the
//! scheduler has placed is *assumed* to be there until the API says so, or until binding it failed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::counts::{ByNode, GroupKey, Groups, Slot, Terms};
use crate::devices::Devices;
use crate::labels::{Labels, Selector};
use crate::node::{NodeInfo, NodeSpec};
use crate::pod::{OwnerKind, PodInfo, TermScope};
use crate::topology::Topology;
use crate::volume::{PodVolumes, Volumes};

/// How many labels of nodes are followed at most.
const MOST_TOPOLOGIES: usize = 256;
/// What a required affinity of another pod weighs when nodes are compared.
const REQUIRED_WEIGHT: i32 = 1;

/// Selectors of the services of a namespace, by name.
type Services = BTreeMap<Box<str>, BTreeMap<String, String>>;

#[derive(Debug)]
struct Placed {
    pod: Arc<PodInfo>,
    slot: Slot,
}

/// A budget of pods that may be disrupted.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) selector: Selector,
    pub(crate) allowed: i32,
    pub(crate) disrupted: Vec<String>,
}

/// Everything that decisions depend on.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub(crate) nodes: Vec<NodeInfo>,
    slots: HashMap<Arc<str>, Slot>,
    free: Vec<Slot>,
    order: Vec<Slot>,
    order_is_stale: bool,
    pods: HashMap<Arc<str>, HashMap<Arc<str>, Placed>>,
    claims_in_use: HashMap<(Arc<str>, Box<str>), u32>,
    namespaces: HashMap<Box<str>, Labels>,
    topologies: HashMap<Box<str>, Topology>,
    pub(crate) groups: Groups,
    pub(crate) forbidding: Terms,
    pub(crate) weighing: Terms,
    nominated: HashMap<Box<str>, Vec<Arc<PodInfo>>>,
    images: HashMap<Box<str>, u32>,
    /// Claims, volumes and storage classes.
    pub volumes: Volumes,
    /// Resource claims and classes of devices.
    pub devices: Devices,
    budgets: HashMap<(Box<str>, Box<str>), Budget>,
    services: HashMap<Box<str>, Services>,
    owners: HashMap<(OwnerKind, Box<str>, Box<str>), Selector>,
    /// Where the next search for nodes begins.
    pub(crate) start: usize,
}

impl Snapshot {
    /// A cluster without anything.
    pub fn new() -> Self {
        Self::default()
    }

    // Nodes.

    /// A node exists, or has changed. Returns whether that can matter to a pod that waits.
    pub fn set_node(&mut self, spec: NodeSpec) -> bool {
        let slot = self.slot(&spec.name);
        let before = self.nodes[slot as usize].spec.clone();
        if before.as_deref() == Some(&spec) {
            return false;
        }
        for (key, topology) in &mut self.topologies {
            topology.set(slot, spec.labels.get(key));
        }
        self.count_images(before.as_deref(), false);
        self.count_images(Some(&spec), true);
        self.order_is_stale |= before.as_ref().is_none_or(|before| before.zone() != spec.zone());
        let matters = before.is_none_or(|before| NodeSpec { images: spec.images.clone(), ..(*before).clone() } != spec);
        self.nodes[slot as usize].spec = Some(Arc::new(spec));
        matters
    }

    /// A node is gone. Its pods stay until they are gone as well.
    pub fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.slots.get(name).copied() else { return };
        let before = self.nodes[slot as usize].spec.take();
        self.count_images(before.as_deref(), false);
        for topology in self.topologies.values_mut() {
            topology.set(slot, None);
        }
        self.order_is_stale = true;
        self.release(slot, name);
    }

    fn count_images(&mut self, spec: Option<&NodeSpec>, add: bool) {
        for image in spec.into_iter().flat_map(|spec| spec.images.keys()) {
            let nodes = self.images.entry(image.clone()).or_default();
            *nodes = if add { *nodes + 1 } else { nodes.saturating_sub(1) };
            if *nodes == 0 {
                self.images.remove(image);
            }
        }
    }

    /// How many nodes have an image.
    pub(crate) fn nodes_with_image(&self, image: &str) -> u32 {
        self.images.get(image).copied().unwrap_or(0)
    }

    fn slot(&mut self, name: &str) -> Slot {
        if let Some(slot) = self.slots.get(name) {
            return *slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(NodeInfo::new(None));
            self.nodes.len() as Slot - 1
        });
        self.slots.insert(name.into(), slot);
        slot
    }

    fn release(&mut self, slot: Slot, name: &str) {
        let node = &self.nodes[slot as usize];
        if node.spec.is_none() && node.pods.is_empty() {
            self.nodes[slot as usize] = NodeInfo::new(None);
            self.slots.remove(name);
            self.free.push(slot);
        }
    }

    /// The place of a node that exists.
    pub(crate) fn find(&self, name: &str) -> Option<Slot> {
        let slot = *self.slots.get(name)?;
        self.nodes[slot as usize].spec.is_some().then_some(slot)
    }

    /// A node that exists.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.find(name).map(|slot| &self.nodes[slot as usize])
    }

    /// How many nodes exist.
    pub fn node_count(&mut self) -> usize {
        self.sort_nodes();
        self.order.len()
    }

    /// The nodes in the order in which they are looked at: one of each zone in turn.
    pub(crate) fn order(&self) -> &[Slot] {
        &self.order
    }

    pub(crate) fn sort_nodes(&mut self) {
        if !std::mem::take(&mut self.order_is_stale) {
            return;
        }
        let mut zones: BTreeMap<(String, String), Vec<Slot>> = BTreeMap::new();
        for (slot, node) in self.nodes.iter().enumerate() {
            if let Some(spec) = &node.spec {
                zones.entry(spec.zone()).or_default().push(slot as Slot);
            }
        }
        let longest = zones.values().map(Vec::len).max().unwrap_or(0);
        let turns = (0..longest).flat_map(|turn| zones.values().filter_map(move |zone| zone.get(turn).copied()));
        self.order = turns.collect();
    }

    // Pods.

    /// A pod is on the node that it names. Returns whether that was not known.
    pub fn add_pod(&mut self, pod: &Arc<PodInfo>) -> bool {
        let Some(node) = pod.node.clone() else { return false };
        if let Some(placed) = self.placed(&pod.namespace, &pod.uid) {
            if placed.pod == *pod {
                return false;
            }
            self.remove_pod(&pod.namespace, &pod.uid);
        }
        self.denominate(&pod.uid);
        let slot = self.slot(&node);
        self.account(pod, slot, true);
        self.nodes[slot as usize].add(pod);
        let placed = Placed { pod: Arc::clone(pod), slot };
        self.pods.entry(Arc::clone(&pod.namespace)).or_default().insert(Arc::clone(&pod.uid), placed);
        true
    }

    /// A pod is no longer on a node. Returns the pod, if it was known.
    pub fn remove_pod(&mut self, namespace: &str, uid: &str) -> Option<Arc<PodInfo>> {
        let pods = self.pods.get_mut(namespace)?;
        let Placed { pod, slot } = pods.remove(uid)?;
        if pods.is_empty() {
            self.pods.remove(namespace);
        }
        self.nodes[slot as usize].remove(uid);
        self.account(&pod, slot, false);
        if let Some(name) = &pod.node {
            self.release(slot, name);
        }
        Some(pod)
    }

    fn placed(&self, namespace: &str, uid: &str) -> Option<&Placed> {
        self.pods.get(namespace)?.get(uid)
    }

    /// A pod that is on a node, or assumed to be.
    pub fn pod(&self, namespace: &str, uid: &str) -> Option<&Arc<PodInfo>> {
        self.placed(namespace, uid).map(|placed| &placed.pod)
    }

    /// Places a pod on a node until the API shows it there, and remembers its volumes.
    pub fn assume(&mut self, pod: &PodInfo, node: &str, volumes: &PodVolumes) {
        self.volumes.assume(volumes, node);
        self.add_pod(&Arc::new(PodInfo { node: Some(node.into()), nominated: None, ..pod.clone() }));
    }

    /// Takes back what was assumed about a pod.
    pub fn forget(&mut self, pod: &PodInfo, volumes: &PodVolumes) {
        self.volumes.forget(volumes);
        self.remove_pod(&pod.namespace, &pod.uid);
    }

    fn account(&mut self, pod: &Arc<PodInfo>, slot: Slot, add: bool) {
        let labels = self.namespaces.get(&*pod.namespace);
        let nothing = Labels::default();
        let labels = labels.unwrap_or(&nothing);
        let counted = |key: &GroupKey| is_counted(key, pod, labels);
        self.groups.change(&pod.namespace, slot, add, counted);
        for used in pod.claims.iter().filter(|used| !used.ephemeral) {
            let uses = self.claims_in_use.entry((Arc::clone(&pod.namespace), used.name.clone())).or_default();
            *uses = if add { *uses + 1 } else { uses.saturating_sub(1) };
            if *uses == 0 {
                self.claims_in_use.remove(&(Arc::clone(&pod.namespace), used.name.clone()));
            }
        }
        let Some(affinity) = &pod.affinity else { return };
        for term in &affinity.forbidden {
            self.follow(&term.key);
            self.forbidding.change(term, 0, slot, add);
        }
        for term in &affinity.required {
            self.follow(&term.key);
            self.weighing.change(term, REQUIRED_WEIGHT, slot, add);
        }
        for (weight, term) in &affinity.preferred {
            self.follow(&term.key);
            self.weighing.change(term, *weight, slot, add);
        }
    }

    /// Whether a pod on a node uses a claim.
    pub(crate) fn is_claim_in_use(&self, namespace: &Arc<str>, claim: &str) -> bool {
        self.claims_in_use.contains_key(&(Arc::clone(namespace), claim.into()))
    }

    // Counts.

    /// Follows a label of nodes from now on.
    pub(crate) fn follow(&mut self, key: &str) {
        if self.topologies.contains_key(key) {
            return;
        }
        let mut topology = Topology::default();
        for (slot, node) in self.nodes.iter().enumerate() {
            let value = node.spec.as_ref().and_then(|spec| spec.labels.get(key));
            topology.set(slot as Slot, value);
        }
        self.topologies.insert(key.into(), topology);
    }

    /// Keeps the number of followed labels within bounds: those that no pod on a node needs are followed again when
    /// they are asked for.
    pub(crate) fn limit_topologies(&mut self) {
        if self.topologies.len() <= MOST_TOPOLOGIES {
            return;
        }
        let held = self.forbidding.keys().chain(self.weighing.keys());
        let held: std::collections::HashSet<Box<str>> = held.map(|key| (**key).into()).collect();
        self.topologies.retain(|key, _| held.contains(key));
    }

    pub(crate) fn topology(&self, key: &str) -> &Topology {
        &self.topologies[key]
    }

    /// The same, if the label is followed, with its name.
    pub(crate) fn known_topology(&self, key: &str) -> Option<(&str, &Topology)> {
        self.topologies.get_key_value(key).map(|(key, topology)| (&**key, topology))
    }

    /// Counts a group of pods from now on.
    pub(crate) fn count(&mut self, key: GroupKey) {
        let (pods, namespaces) = (&self.pods, &self.namespaces);
        let nothing = Labels::default();
        self.groups.ensure(key, |key, namespace| {
            let mut counts = ByNode::default();
            let mut count = |name: &str, pods: &HashMap<Arc<str>, Placed>| {
                let labels = namespaces.get(name).unwrap_or(&nothing);
                for placed in pods.values().filter(|placed| is_counted(key, &placed.pod, labels)) {
                    *counts.entry(placed.slot).or_default() += 1;
                }
            };
            match namespace {
                Some(name) => pods.get(name).into_iter().for_each(|pods| count(name, pods)),
                None => pods.iter().for_each(|(name, pods)| count(name, pods)),
            }
            counts
        });
    }

    // What else matters.

    /// A namespace has these labels.
    pub fn set_namespace(&mut self, name: &str, labels: Labels) {
        if self.namespaces.get(name) != Some(&labels) {
            self.namespaces.insert(name.into(), labels);
            self.groups.namespaces_changed();
        }
    }

    /// A namespace is gone.
    pub fn remove_namespace(&mut self, name: &str) {
        if self.namespaces.remove(name).is_some() {
            self.groups.namespaces_changed();
        }
    }

    /// The labels of a namespace.
    pub(crate) fn namespace(&self, name: &str) -> &Labels {
        static NOTHING: std::sync::LazyLock<Labels> = std::sync::LazyLock::new(Labels::default);
        self.namespaces.get(name).unwrap_or(&NOTHING)
    }

    /// A disruption budget exists.
    pub fn set_budget(&mut self, budget: &PodDisruptionBudget) {
        let (meta, status) = (&budget.metadata, budget.status.as_ref());
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let disrupted = status.iter().flat_map(|status| status.disrupted_pods.iter().flatten());
        let made = Budget {
            selector: Selector::new(selector),
            allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
            disrupted: disrupted.map(|(name, _)| name.clone()).collect(),
        };
        self.budgets.insert((text(&meta.namespace), text(&meta.name)), made);
    }

    /// A disruption budget is gone.
    pub fn remove_budget(&mut self, namespace: &str, name: &str) {
        self.budgets.remove(&(namespace.into(), name.into()));
    }

    pub(crate) fn budgets(&self) -> impl Iterator<Item = (&str, &Budget)> {
        self.budgets.iter().map(|((namespace, _), budget)| (&**namespace, budget))
    }

    /// A service selects pods by these labels.
    pub fn set_service(&mut self, namespace: &str, name: &str, selector: Option<&BTreeMap<String, String>>) {
        self.remove_service(namespace, name);
        if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
            self.services.entry(namespace.into()).or_default().insert(name.into(), selector.clone());
        }
    }

    /// A service is gone.
    pub fn remove_service(&mut self, namespace: &str, name: &str) {
        if let Some(services) = self.services.get_mut(namespace) {
            services.remove(name);
            if services.is_empty() {
                self.services.remove(namespace);
            }
        }
    }

    /// A controller selects pods.
    pub fn set_owner(&mut self, kind: OwnerKind, namespace: &str, name: &str, selector: Selector) {
        self.owners.insert((kind, namespace.into(), name.into()), selector);
    }

    /// A controller is gone.
    pub fn remove_owner(&mut self, kind: OwnerKind, namespace: &str, name: &str) {
        self.owners.remove(&(kind, namespace.into(), name.into()));
    }

    /// Which pods belong together with this one, if services or its controller say so: `helper.DefaultSelector`.
    pub(crate) fn siblings(&self, pod: &PodInfo) -> Option<TermScope> {
        let mut labels = BTreeMap::new();
        for selector in self.services.get(&*pod.namespace).into_iter().flatten().map(|(_, selector)| selector) {
            if selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value)) {
                labels.extend(selector.clone());
            }
        }
        let mut selector = Selector::all_of(&labels);
        let owner = pod.owner.as_ref();
        let key = owner.map(|(kind, name)| (*kind, Box::from(&*pod.namespace), name.clone()));
        if let Some(owned) = key.and_then(|key| self.owners.get(&key)) {
            selector = selector.and(owned);
        }
        (!selector.is_everything()).then(|| TermScope::within(&pod.namespace, selector))
    }

    // Nominations.

    /// A pod waits for room on a node: other pods leave that room.
    pub fn nominate(&mut self, pod: &Arc<PodInfo>, node: &str) {
        self.denominate(&pod.uid);
        for term in pod.affinity.iter().flat_map(|affinity| affinity.forbidden.iter()) {
            self.follow(&term.key);
        }
        self.nominated.entry(node.into()).or_default().push(Arc::clone(pod));
    }

    /// A pod no longer waits for room on a node.
    pub fn denominate(&mut self, uid: &str) {
        if self.nominated.is_empty() {
            return;
        }
        self.nominated.retain(|_, pods| {
            pods.retain(|pod| *pod.uid != *uid);
            !pods.is_empty()
        });
    }

    /// The pods that wait for room on a node.
    pub fn nominated(&self, node: &str) -> &[Arc<PodInfo>] {
        if self.nominated.is_empty() {
            return &[];
        }
        self.nominated.get(node).map_or(&[], Vec::as_slice)
    }
}

fn is_counted(key: &GroupKey, pod: &PodInfo, namespace: &Labels) -> bool {
    !(key.only_staying && pod.deleting) && key.scopes.iter().all(|scope| scope.matches(pod, namespace))
}
