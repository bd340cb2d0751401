//! Pods as the scheduler sees them: everything it ever asks about a pod, extracted once.

use std::sync::Arc;

use k8s_openapi::api::core::v1::TopologySpreadConstraint as ApiConstraint;
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, Pod, PodAffinityTerm, PodSpec, Toleration as ApiToleration, Volume, WeightedPodAffinityTerm,
};

use crate::labels::{Labels, NodeTerm, Selector};
use crate::resources::Requests;

/// A pod, extracted from the API's object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInfo {
    /// `metadata.uid`: what identifies the pod.
    pub uid: Arc<str>,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `spec.nodeName`, of a pod that is bound.
    pub node: Option<Box<str>>,
    /// `status.nominatedNodeName`.
    pub nominated: Option<Box<str>>,
    /// `spec.schedulerName`.
    pub scheduler: Arc<str>,
    /// `spec.priority`.
    pub priority: i32,
    /// Whether `spec.preemptionPolicy` is `Never`.
    pub never_preempts: bool,
    /// Whether scheduling gates are left.
    pub gated: bool,
    /// Whether the pod is being deleted.
    pub deleting: bool,
    /// Whether the pod is being deleted to make room for another one.
    pub preempted: bool,
    /// `status.startTime`, in nanoseconds since 1970.
    pub started: Option<i128>,
    /// What the pod asks for.
    pub requests: Requests,
    /// Ports of the node.
    pub ports: Box<[HostPort]>,
    /// `spec.tolerations`.
    pub tolerations: Arc<[Toleration]>,
    /// Which nodes the pod may run on.
    pub required_nodes: NodeRequirement,
    /// Which nodes the pod would rather run on, with weights.
    pub preferred_nodes: Box<[(i32, NodeTerm)]>,
    /// `spec.topologySpreadConstraints`.
    pub spread: Box<[SpreadConstraint]>,
    /// Which pods this one is drawn to or repelled by.
    pub affinity: Option<Box<PodAffinity>>,
    /// The claims it uses.
    pub claims: Box<[ClaimUse]>,
    /// Disks that only some pods can share.
    pub disks: Box<[Disk]>,
    /// The resource claims it uses.
    pub devices: Box<[DeviceUse]>,
    /// Whether some of these are not there, so that the pod is not tried.
    pub lacks_devices: bool,
    /// The images of its containers and volumes, with tags.
    pub images: Arc<[Box<str>]>,
    /// How many containers it has, init containers as well.
    pub containers: usize,
    /// The controller, if it is one whose pods are spread by default.
    pub owner: Option<(OwnerKind, Box<str>)>,
}

/// A kind of controller whose pods are spread by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnerKind {
    /// `v1` ReplicationController.
    ReplicationController,
    /// `apps/v1` ReplicaSet.
    ReplicaSet,
    /// `apps/v1` StatefulSet.
    StatefulSet,
}

/// A port of the node that a container takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The address, `0.0.0.0` for all of them.
    pub ip: Box<str>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Box<str>,
    /// The port.
    pub port: i32,
}

impl HostPort {
    /// Whether both cannot be on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        let any = |port: &Self| &*port.ip == "0.0.0.0";
        self.port == other.port && self.protocol == other.protocol && (self.ip == other.ip || any(self) || any(other))
    }
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// What it is about.
    pub key: Box<str>,
    /// More about that.
    pub value: Box<str>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Box<str>,
}

impl Taint {
    /// The taint that a cordoned node has.
    pub(crate) fn unschedulable() -> Self {
        let key = "node.kubernetes.io/unschedulable".into();
        Self { key, value: "".into(), effect: "NoSchedule".into() }
    }

    /// Whether pods that do not tolerate it stay away.
    pub fn is_hard(&self) -> bool {
        &*self.effect == "NoSchedule" || &*self.effect == "NoExecute"
    }
}

/// A toleration of taints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toleration {
    key: Box<str>,
    exists: bool,
    value: Box<str>,
    effect: Box<str>,
}

impl Toleration {
    fn new(toleration: &ApiToleration) -> Self {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        Self {
            key: text(&toleration.key),
            exists: toleration.operator.as_deref() == Some("Exists"),
            value: text(&toleration.value),
            effect: text(&toleration.effect),
        }
    }

    /// Whether it is about soft taints, perhaps among others.
    pub(crate) fn covers_soft_taints(&self) -> bool {
        self.effect.is_empty() || &*self.effect == "PreferNoSchedule"
    }

    /// Whether the pod puts up with a taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && (self.exists || self.value == taint.value)
    }
}

/// Which nodes a pod may run on: its node selector and its required node affinity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeRequirement {
    labels: Option<Selector>,
    terms: Option<Box<[NodeTerm]>>,
}

impl NodeRequirement {
    fn new(spec: &PodSpec, affinity: Option<&NodeAffinity>) -> Self {
        let required = affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
        Self {
            labels: spec.node_selector.as_ref().filter(|labels| !labels.is_empty()).map(Selector::all_of),
            terms: required.map(|one| one.node_selector_terms.iter().map(NodeTerm::new).collect()),
        }
    }

    /// Whether every node will do.
    pub fn is_any(&self) -> bool {
        self.labels.is_none() && self.terms.is_none()
    }

    /// Whether a node will do.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.labels.as_ref().is_none_or(|selector| selector.matches(labels))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(name, labels)))
    }

    /// The only nodes that can match, if every term names some.
    pub fn only_names(&self) -> Option<Vec<&str>> {
        let terms = self.terms.as_ref().filter(|terms| !terms.is_empty())?;
        let lists: Option<Vec<_>> = terms.iter().map(NodeTerm::only_names).collect();
        let mut names: Vec<&str> = lists?.into_iter().flatten().collect();
        names.sort_unstable();
        names.dedup();
        Some(names)
    }
}

/// A constraint on how pods are spread over a topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpreadConstraint {
    /// The label of nodes whose values are the domains.
    pub key: Box<str>,
    /// How much more pods a domain may have than the one with the fewest.
    pub max_skew: i64,
    /// How many domains there have to be before the fewest counts.
    pub min_domains: usize,
    /// Whether a node that breaks the constraint is out of the question, rather than less liked.
    pub hard: bool,
    /// The pods that are counted, of the pod's namespace.
    pub selector: Arc<TermScope>,
    /// Whether only nodes count that the pod may run on.
    pub honours_affinity: bool,
    /// Whether only nodes count whose taints the pod tolerates.
    pub honours_taints: bool,
}

impl SpreadConstraint {
    fn new(constraint: &ApiConstraint, pod: &Pod, namespace: &str) -> Self {
        let mut selector = Selector::new(constraint.label_selector.as_ref());
        let labels = pod.metadata.labels.as_ref();
        let keys = constraint.match_label_keys.iter().flatten();
        let same = keys.filter_map(|key| Some((key.clone(), labels?.get(key)?.clone()))).collect();
        selector = Selector::all_of(&same).and(&selector);
        let honours = |policy: &Option<String>, default: bool| policy.as_deref().map_or(default, |it| it == "Honor");
        Self {
            key: constraint.topology_key.as_str().into(),
            max_skew: constraint.max_skew.into(),
            min_domains: constraint.min_domains.map_or(1, |least| least.max(0) as usize),
            hard: constraint.when_unsatisfiable == "DoNotSchedule",
            selector: Arc::new(TermScope::within(namespace, selector)),
            honours_affinity: honours(&constraint.node_affinity_policy, true),
            honours_taints: honours(&constraint.node_taints_policy, false),
        }
    }
}

/// Which pods are meant: by namespace and by labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TermScope {
    /// Namespaces by name.
    pub namespaces: Box<[Box<str>]>,
    /// Namespaces by their labels, besides.
    pub namespace_selector: Option<Selector>,
    /// Pods by their labels.
    pub selector: Selector,
}

impl TermScope {
    /// Pods of one namespace.
    pub fn within(namespace: &str, selector: Selector) -> Self {
        Self { namespaces: Box::new([namespace.into()]), namespace_selector: None, selector }
    }

    /// Whether a pod is meant, given the labels of its namespace.
    pub fn matches(&self, pod: &PodInfo, namespace: &Labels) -> bool {
        let named = self.namespaces.iter().any(|name| **name == *pod.namespace);
        (named || self.namespace_selector.as_ref().is_some_and(|selector| selector.matches(namespace)))
            && self.selector.matches(&pod.labels)
    }

    /// The only namespace whose pods can be meant, if there is only one.
    pub(crate) fn only_namespace(&self) -> Option<&str> {
        match (&*self.namespaces, &self.namespace_selector) {
            ([only], None) => Some(only),
            _ => None,
        }
    }
}

/// A term of an affinity between pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Which pods.
    pub scope: Arc<TermScope>,
    /// The label of nodes within whose values pods are together or apart.
    pub key: Arc<str>,
}

impl Term {
    fn new(term: &PodAffinityTerm, namespace: &str) -> Self {
        let named = term.namespaces.iter().flatten().map(|name| name.as_str().into());
        let mut namespaces: Vec<Box<str>> = named.collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(namespace.into());
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        let scope = TermScope {
            namespaces: namespaces.into(),
            namespace_selector: term.namespace_selector.as_ref().map(|selector| Selector::new(Some(selector))),
            selector: Selector::new(term.label_selector.as_ref()),
        };
        Self { scope: Arc::new(scope), key: term.topology_key.as_str().into() }
    }
}

/// The affinities between a pod and others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodAffinity {
    /// There has to be a pod that all of these mean.
    pub required: Box<[Term]>,
    /// There must not be a pod that any of these means.
    pub forbidden: Box<[Term]>,
    /// Weights of pods nearby; negative ones repel.
    pub preferred: Box<[(i32, Term)]>,
}

impl PodAffinity {
    fn new(affinity: &Affinity, namespace: &str) -> Option<Box<Self>> {
        let (with, without) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
        let required = with.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
        let forbidden = without.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
        let liked = with.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
        let disliked = without.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
        let terms = |list: Option<&Vec<PodAffinityTerm>>| -> Box<[Term]> {
            list.into_iter().flatten().map(|term| Term::new(term, namespace)).collect()
        };
        let weighted = |sign: i32| {
            move |one: &WeightedPodAffinityTerm| (sign * one.weight, Term::new(&one.pod_affinity_term, namespace))
        };
        let liked = liked.into_iter().flatten().map(weighted(1));
        let preferred = liked.chain(disliked.into_iter().flatten().map(weighted(-1))).collect();
        let made = Self { required: terms(required), forbidden: terms(forbidden), preferred };
        (made != Self::default()).then(|| Box::new(made))
    }
}

/// A claim that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimUse {
    /// The name of the claim.
    pub name: Box<str>,
    /// Whether the claim is made for the pod (`ephemeral`).
    pub ephemeral: bool,
}

/// A resource claim that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceUse {
    /// One that the pod names.
    Claim(Box<str>),
    /// One that was made for the pod from a template.
    Generated(Box<str>),
    /// One that is still to be made from a template.
    NotGenerated,
}

/// A disk that pods of one node cannot share freely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    kind: DiskKind,
    /// Whether others may use it as well, if they too only read.
    read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DiskKind {
    Gce(Box<str>),
    Aws(Box<str>),
    Iscsi(Box<str>),
    Rbd { monitors: Vec<String>, pool: Box<str>, image: Box<str> },
}

impl Disk {
    fn new(volume: &Volume) -> Option<Self> {
        let (kind, read_only) = if let Some(disk) = &volume.gce_persistent_disk {
            (DiskKind::Gce(disk.pd_name.as_str().into()), disk.read_only)
        } else if let Some(disk) = &volume.aws_elastic_block_store {
            (DiskKind::Aws(disk.volume_id.as_str().into()), Some(false))
        } else if let Some(disk) = &volume.iscsi {
            (DiskKind::Iscsi(disk.iqn.as_str().into()), disk.read_only)
        } else if let Some(disk) = &volume.rbd {
            let pool = disk.pool.as_deref().unwrap_or("rbd").into();
            let kind = DiskKind::Rbd { monitors: disk.monitors.clone(), pool, image: disk.image.as_str().into() };
            (kind, disk.read_only)
        } else {
            return None;
        };
        Some(Self { kind, read_only: read_only.unwrap_or(false) })
    }

    /// Whether pods with these disks cannot be on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        let same = match (&self.kind, &other.kind) {
            (
                DiskKind::Rbd { monitors, pool, image },
                DiskKind::Rbd { monitors: others, pool: other_pool, image: other_image },
            ) => pool == other_pool && image == other_image && monitors.iter().any(|one| others.contains(one)),
            (one, other) => one == other,
        };
        same && !(self.read_only && other.read_only)
    }
}

impl PodInfo {
    /// Extracts a pod.
    pub fn new(pod: &Pod) -> Self {
        let empty = PodSpec::default();
        let (meta, spec, status) = (&pod.metadata, pod.spec.as_ref().unwrap_or(&empty), pod.status.as_ref());
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let affinity = spec.affinity.as_ref();
        let node_affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        let preferred = node_affinity.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
        let preferred = preferred.into_iter().flatten().map(|one| (one.weight, NodeTerm::new(&one.preference)));
        let deleting = meta.deletion_timestamp.is_some();
        let filled = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(Box::from);
        Self {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            namespace: namespace.into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
            labels: Labels::new(meta.labels.as_ref()),
            node: filled(&spec.node_name),
            nominated: status.and_then(|status| filled(&status.nominated_node_name)),
            scheduler: spec.scheduler_name.as_deref().unwrap_or("default-scheduler").into(),
            priority: spec.priority.unwrap_or(0),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
            deleting,
            preempted: deleting && is_preempted(pod),
            started: status.and_then(|status| Some(status.start_time.as_ref()?.0.as_nanosecond())),
            requests: Requests::of(pod),
            ports: host_ports(spec),
            tolerations: spec.tolerations.iter().flatten().map(Toleration::new).collect(),
            required_nodes: NodeRequirement::new(spec, node_affinity),
            preferred_nodes: preferred.filter(|(weight, term)| *weight != 0 && !term.is_nothing()).collect(),
            spread: {
                let constraints = spec.topology_spread_constraints.iter().flatten();
                constraints.map(|constraint| SpreadConstraint::new(constraint, pod, namespace)).collect()
            },
            affinity: affinity.and_then(|affinity| PodAffinity::new(affinity, namespace)),
            claims: spec.volumes.iter().flatten().filter_map(|volume| claim(volume, pod)).collect(),
            disks: spec.volumes.iter().flatten().filter_map(Disk::new).collect(),
            devices: devices(pod, spec),
            lacks_devices: false,
            images: images(spec),
            containers: spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len),
            owner: owner(pod),
        }
    }

    /// Uses what is the same in another pod, so that thousands of pods have it once.
    pub(crate) fn share(&mut self, other: &Self) {
        if self.scheduler == other.scheduler {
            self.scheduler = Arc::clone(&other.scheduler);
        }
        if self.tolerations == other.tolerations {
            self.tolerations = Arc::clone(&other.tolerations);
        }
        if self.images == other.images {
            self.images = Arc::clone(&other.images);
        }
        if self.namespace == other.namespace {
            self.namespace = Arc::clone(&other.namespace);
        }
    }

    /// Whether the pod is not to be tried.
    pub(crate) fn is_held_back(&self) -> bool {
        self.gated || self.lacks_devices
    }

    /// Whether the pod tolerates a taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    }

    /// Whether the first pod is to be spared rather than the second: `util.MoreImportantPod`. A pod that has not
    /// started counts as the youngest.
    pub fn is_more_important_than(&self, other: &Self) -> std::cmp::Ordering {
        let started = |pod: &Self| pod.started.unwrap_or(i128::MAX);
        other.priority.cmp(&self.priority).then(started(self).cmp(&started(other)))
    }
}

fn is_preempted(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut targets = conditions.filter(|condition| condition.type_ == "DisruptionTarget");
    targets.next().is_some_and(|condition| {
        condition.status == "True" && condition.reason.as_deref() == Some("PreemptionByScheduler")
    })
}

fn host_ports(spec: &PodSpec) -> Box<[HostPort]> {
    let sidecars = spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let containers = spec.containers.iter().chain(sidecars);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let taken = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let ip = port.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0");
        let protocol = port.protocol.as_deref().filter(|protocol| !protocol.is_empty()).unwrap_or("TCP");
        Some(HostPort { ip: ip.into(), protocol: protocol.into(), port: number })
    });
    taken.collect()
}

fn claim(volume: &Volume, pod: &Pod) -> Option<ClaimUse> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(ClaimUse { name: claim.claim_name.as_str().into(), ephemeral: false });
    }
    volume.ephemeral.as_ref()?;
    let name = format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name);
    Some(ClaimUse { name: name.into(), ephemeral: true })
}

fn devices(pod: &Pod, spec: &PodSpec) -> Box<[DeviceUse]> {
    let statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    let used = spec.resource_claims.iter().flatten().filter_map(|claim| {
        if let Some(name) = &claim.resource_claim_name {
            return Some(DeviceUse::Claim(name.as_str().into()));
        }
        let Some(status) = statuses.clone().find(|status| status.name == claim.name) else {
            return Some(DeviceUse::NotGenerated);
        };
        // Without a name there, the pod needs none.
        status.resource_claim_name.as_deref().map(|name| DeviceUse::Generated(name.into()))
    });
    used.collect()
}

fn images(spec: &PodSpec) -> Arc<[Box<str>]> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
    let images = containers.filter_map(|container| container.image.as_deref()).chain(volumes);
    images.map(|image| tagged(image).into()).collect()
}

/// The image's name with a tag, as nodes report it.
fn tagged(image: &str) -> String {
    if image.rfind(':') > image.rfind('/') { image.to_owned() } else { format!("{image}:latest") }
}

fn owner(pod: &Pod) -> Option<(OwnerKind, Box<str>)> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true))?;
    let kind = match (controller.api_version.as_str(), controller.kind.as_str()) {
        ("v1", "ReplicationController") => OwnerKind::ReplicationController,
        ("apps/v1", "ReplicaSet") => OwnerKind::ReplicaSet,
        ("apps/v1", "StatefulSet") => OwnerKind::StatefulSet,
        _ => return None,
    };
    Some((kind, controller.name.as_str().into()))
}
