//! Claims, volumes and storage classes: where the volumes of a pod can be, and which ones it would get.
//!
//! The counterpart of upstream's plugins `VolumeBinding`, `VolumeZone` and `NodeVolumeLimits`. The choice of a volume is remembered from the
//! decision until the API shows it, so that two pods never get the same one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use windlass::quantity::Amount;

use crate::labels::{Labels, NodeTerm, Selector};
use crate::node::NodeSpec;
use crate::pod::PodInfo;
use crate::reason::{Reason, Reasons};

/// The annotation of a claim that names the node of the pod it is for.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const ZONE_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// Namespace and name.
pub(crate) type Key = (Box<str>, Box<str>);

#[derive(Debug)]
struct Claim {
    uid: Box<str>,
    volume: Option<Box<str>>,
    bound: bool,
    class: Box<str>,
    lost: bool,
    deleting: bool,
    modes: Vec<String>,
    size: i64,
    selector: Option<Selector>,
    block: bool,
    attributes: Box<str>,
    selected_node: Option<Box<str>>,
    owner: Option<Box<str>>,
}

#[derive(Debug)]
struct Volume {
    claim: Option<(Key, Option<Box<str>>)>,
    capacity: i64,
    block: bool,
    attributes: Box<str>,
    deleting: bool,
    available: bool,
    labels: Labels,
    class: Box<str>,
    modes: Vec<String>,
    nodes: Option<Vec<NodeTerm>>,
    zones: Vec<(Box<str>, Vec<String>)>,
    /// The driver that attaches it, and the driver's name of it.
    csi: Option<(Box<str>, Box<str>)>,
}

#[derive(Debug)]
struct Class {
    provisioner: Box<str>,
    waits: bool,
    /// Terms of requirements: each names a label and its values.
    topologies: Vec<Vec<(Box<str>, Vec<String>)>>,
}

/// What the volumes of a pod need before it can be bound to a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodVolumes {
    /// Claims that get a volume which exists.
    pub bindings: Vec<(Key, Box<str>)>,
    /// Claims whose volume has to be made for the node.
    pub provisions: Vec<Key>,
}

impl PodVolumes {
    /// Whether the pod can be bound at once.
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

/// Everything about storage that decisions depend on.
#[derive(Debug, Default)]
pub struct Volumes {
    claims: HashMap<Key, Claim>,
    by_name: HashMap<Box<str>, Volume>,
    classes: HashMap<Box<str>, Class>,
    /// Volumes that were chosen for claims, and claims for which nodes were chosen.
    assumed_claims: HashMap<Box<str>, Key>,
    assumed_nodes: HashMap<Key, Box<str>>,
    /// How many volumes of a driver a node can attach, for nodes with a limit.
    limits: HashMap<Box<str>, Vec<(Box<str>, usize)>>,
}

/// Volumes of CSI drivers: driver and handle, or driver and claim for those that do not exist yet.
type Attached<'a> = BTreeSet<(&'a str, String)>;

/// The claims of a pod, sorted by what they need.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    bound: Vec<&'a Claim>,
    /// In the order of their size.
    unbound: Vec<(Key, &'a Claim)>,
    zones: Vec<&'a (Box<str>, Vec<String>)>,
}

impl Wanted<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.bound.is_empty() && self.unbound.is_empty()
    }
}

impl Volumes {
    /// A claim exists.
    pub fn set_claim(&mut self, claim: &PersistentVolumeClaim) {
        let (meta, spec) = (&claim.metadata, claim.spec.clone().unwrap_or_default());
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|annotations| annotations.get(name));
        let owners = meta.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
        let request = spec.resources.as_ref().and_then(|one| one.requests.as_ref()?.get("storage"));
        let volume = spec.volume_name.filter(|name| !name.is_empty());
        let key = key(meta.namespace.as_deref(), meta.name.as_deref());
        let selected_node = annotation(SELECTED_NODE).map(|node| node.as_str().into());
        if selected_node.is_some() || volume.is_some() {
            self.assumed_nodes.remove(&key);
        }
        let claim = Claim {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            bound: volume.is_some() && annotation(BIND_COMPLETED).is_some(),
            volume: volume.map(String::into_boxed_str),
            class: annotation(CLASS).cloned().or(spec.storage_class_name).unwrap_or_default().into(),
            lost: claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost"),
            deleting: meta.deletion_timestamp.is_some(),
            modes: spec.access_modes.unwrap_or_default(),
            size: request.and_then(|size| Amount::try_from(size).ok()).map_or(0, Amount::value),
            selector: spec.selector.as_ref().map(|selector| Selector::new(Some(selector))),
            block: spec.volume_mode.as_deref() == Some("Block"),
            attributes: spec.volume_attributes_class_name.unwrap_or_default().into(),
            selected_node,
            owner: owner.map(|owner| owner.uid.as_str().into()),
        };
        self.claims.insert(key, claim);
    }

    /// A claim is gone.
    pub fn remove_claim(&mut self, namespace: &str, name: &str) {
        let key = key(Some(namespace), Some(name));
        self.claims.remove(&key);
        self.assumed_nodes.remove(&key);
    }

    /// A volume exists.
    pub fn set_volume(&mut self, volume: &PersistentVolume) {
        let (meta, spec) = (&volume.metadata, volume.spec.clone().unwrap_or_default());
        let name: Box<str> = meta.name.as_deref().unwrap_or_default().into();
        let labels = meta.labels.iter().flatten();
        let zones = labels.filter(|(key, _)| ZONE_LABELS.contains(&key.as_str()));
        let zones = zones.map(|(key, value)| (key.as_str().into(), value.split("__").map(str::to_owned).collect()));
        let class = meta.annotations.as_ref().and_then(|annotations| annotations.get(CLASS).cloned());
        let capacity = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
        let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        let claim = spec.claim_ref.as_ref().map(|claim| {
            let uid = claim.uid.as_deref().filter(|uid| !uid.is_empty()).map(Box::from);
            (key(claim.namespace.as_deref(), claim.name.as_deref()), uid)
        });
        if claim.is_some() {
            self.assumed_claims.remove(&name);
        }
        let volume = Volume {
            claim,
            capacity: capacity.and_then(|size| Amount::try_from(size).ok()).map_or(0, Amount::value),
            block: spec.volume_mode.as_deref() == Some("Block"),
            attributes: spec.volume_attributes_class_name.unwrap_or_default().into(),
            deleting: meta.deletion_timestamp.is_some(),
            available: volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available"),
            labels: Labels::new(meta.labels.as_ref()),
            class: class.or(spec.storage_class_name).unwrap_or_default().into(),
            modes: spec.access_modes.unwrap_or_default(),
            nodes: required.map(|one| one.node_selector_terms.iter().map(NodeTerm::new).collect()),
            zones: zones.collect(),
            csi: spec.csi.map(|csi| (csi.driver.into(), csi.volume_handle.into())),
        };
        self.by_name.insert(name, volume);
    }

    /// A volume is gone.
    pub fn remove_volume(&mut self, name: &str) {
        self.by_name.remove(name);
        self.assumed_claims.remove(name);
    }

    /// A storage class exists.
    pub fn set_class(&mut self, class: &StorageClass) {
        let topologies = class.allowed_topologies.iter().flatten().map(|term| {
            let requirements = term.match_label_expressions.iter().flatten();
            requirements.map(|one| (one.key.as_str().into(), one.values.clone())).collect()
        });
        let made = Class {
            provisioner: class.provisioner.as_str().into(),
            waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            topologies: topologies.collect(),
        };
        self.classes.insert(class.metadata.name.as_deref().unwrap_or_default().into(), made);
    }

    /// A storage class is gone.
    pub fn remove_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// Remembers what was chosen until the API shows it.
    pub(crate) fn assume(&mut self, volumes: &PodVolumes, node: &str) {
        for (claim, volume) in &volumes.bindings {
            self.assumed_claims.insert(volume.clone(), claim.clone());
        }
        for claim in &volumes.provisions {
            self.assumed_nodes.insert(claim.clone(), node.into());
        }
    }

    /// What the drivers of a node can attach is known.
    pub fn set_limits(&mut self, node: &CSINode) {
        let limits = node.spec.drivers.iter().filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some((driver.name.as_str().into(), usize::try_from(count).unwrap_or(0)))
        });
        let (name, limits) = (node.metadata.name.as_deref().unwrap_or_default(), limits.collect::<Vec<_>>());
        if limits.is_empty() {
            self.limits.remove(name);
        } else {
            self.limits.insert(name.into(), limits);
        }
    }

    /// What the drivers of a node can attach is no longer known.
    pub fn remove_limits(&mut self, node: &str) {
        self.limits.remove(node);
    }

    /// Whether a node cannot attach the volumes of one more pod: `nodevolumelimits.CSILimits`. Attachments that no pod of
    /// the node has are not counted.
    pub(crate) fn are_too_many(&self, pod: &PodInfo, node: &str, others: &[Arc<PodInfo>]) -> bool {
        let Some(limits) = self.limits.get(node).filter(|_| !pod.claims.is_empty()) else { return false };
        let (mut new, mut attached) = (Attached::new(), Attached::new());
        self.attach(pod, &mut new);
        if new.is_empty() {
            return false;
        }
        for other in others {
            self.attach(other, &mut attached);
        }
        let of = |volumes: &Attached<'_>, driver: &str| volumes.iter().filter(|(one, _)| *one == driver).count();
        new.retain(|volume| !attached.contains(volume));
        limits.iter().any(|(driver, limit)| of(&new, driver) > 0 && of(&new, driver) + of(&attached, driver) > *limit)
    }

    /// Adds the volumes of a pod that drivers have to attach.
    fn attach<'a>(&'a self, pod: &PodInfo, attached: &mut Attached<'a>) {
        for used in &pod.claims {
            let Some(claim) = self.claim(pod, &used.name) else { continue };
            let volume = claim.volume.as_ref().and_then(|name| self.by_name.get(name));
            let (driver, handle) = match (volume, self.classes.get(&claim.class)) {
                (Some(Volume { csi: Some((driver, handle)), .. }), _) => (driver, handle.to_string()),
                (Some(_), _) | (None, None) => continue,
                // A volume that does not exist yet is attached by the driver that is going to make it.
                (None, Some(class)) => (&class.provisioner, format!("{}/{}", pod.namespace, used.name)),
            };
            attached.insert((driver, handle));
        }
    }

    /// Forgets what was chosen.
    pub(crate) fn forget(&mut self, volumes: &PodVolumes) {
        for (_, volume) in &volumes.bindings {
            self.assumed_claims.remove(volume);
        }
        for claim in &volumes.provisions {
            self.assumed_nodes.remove(claim);
        }
    }

    /// What became of the claims that a decision was about; `None` while some are not bound.
    pub(crate) fn outcome(&self, volumes: &PodVolumes, node: &str) -> Option<Result<(), String>> {
        let mut all = true;
        for key in volumes.bindings.iter().map(|(key, _)| key).chain(&volumes.provisions) {
            let name = &key.1;
            let Some(claim) = self.claims.get(key) else {
                return Some(Err(format!("persistentvolumeclaim {name:?} not found")));
            };
            // A provisioner that cannot make a volume for the node takes the choice back.
            let rejected = volumes.provisions.contains(key)
                && !claim.bound
                && !self.assumed_nodes.contains_key(key)
                && claim.selected_node.as_deref() != Some(node);
            if rejected {
                return Some(Err(format!("provisioning failed for PVC {name:?}")));
            }
            all &= claim.bound;
        }
        all.then_some(Ok(()))
    }

    /// The claims of a pod that only one pod can use (`ReadWriteOncePod`), or why the pod has to wait.
    pub(crate) fn exclusive_claims<'p>(&self, pod: &'p PodInfo) -> Result<Vec<&'p str>, String> {
        let mut exclusive = Vec::new();
        for used in pod.claims.iter().filter(|used| !used.ephemeral) {
            let claim = self.claim(pod, &used.name).ok_or_else(|| missing(&used.name))?;
            if claim.modes.iter().any(|mode| mode == "ReadWriteOncePod") {
                exclusive.push(&*used.name);
            }
        }
        Ok(exclusive)
    }

    /// A claim that the pod names and that is not there.
    pub(crate) fn missing_claim(&self, pod: &PodInfo) -> Option<Box<str>> {
        let mut named = pod.claims.iter().filter(|used| !used.ephemeral);
        named.find(|used| self.claim(pod, &used.name).is_none()).map(|used| used.name.clone())
    }

    fn claim(&self, pod: &PodInfo, name: &str) -> Option<&Claim> {
        self.claims.get(&key(Some(&pod.namespace), Some(name)))
    }

    /// The claims of a pod, or why it has to wait whatever the node.
    pub(crate) fn wanted(&self, pod: &PodInfo) -> Result<Wanted<'_>, String> {
        let mut wanted = Wanted::default();
        let mut immediate = false;
        for used in &pod.claims {
            let name = &used.name;
            let Some(claim) = self.claim(pod, name) else {
                return Err(if used.ephemeral {
                    format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
                } else {
                    missing(name)
                });
            };
            if claim.lost {
                let volume = claim.volume.as_deref().unwrap_or_default();
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            }
            if claim.deleting {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            if used.ephemeral && claim.owner.as_deref() != Some(&*pod.uid) {
                let (namespace, pod) = (&pod.namespace, &pod.name);
                return Err(format!(
                    "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
                ));
            }
            if claim.bound {
                wanted.bound.push(claim);
            } else if claim.volume.is_none() && self.classes.get(&claim.class).is_some_and(|class| class.waits) {
                wanted.unbound.push((key(Some(&pod.namespace), Some(name)), claim));
            } else {
                immediate = true;
            }
        }
        if immediate {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        wanted.unbound.sort_by_key(|(_, claim)| claim.size);
        for used in pod.claims.iter().filter(|used| !used.ephemeral) {
            let volume = self.claim(pod, &used.name).and_then(|claim| claim.volume.as_ref());
            let Some(name) = volume else { continue };
            let volume = self.by_name.get(name).ok_or_else(|| format!("persistentvolume {name:?} not found"))?;
            wanted.zones.extend(&volume.zones);
        }
        Ok(wanted)
    }

    /// Whether the volumes of a pod can be on a node, and which ones it would get.
    pub(crate) fn find(&self, wanted: &Wanted<'_>, node: &NodeSpec) -> Result<PodVolumes, Reasons> {
        let mut reasons = Reasons::default();
        for claim in &wanted.bound {
            let volume = claim.volume.as_ref().and_then(|name| self.by_name.get(name));
            match volume {
                None => {
                    reasons.insert(Reason::VolumeMissing);
                    break;
                }
                Some(volume) if !volume.reaches(node) => {
                    reasons.insert(Reason::VolumeNodeAffinity);
                    break;
                }
                Some(_) => {}
            }
        }
        let found = self.find_unbound(wanted, node);
        if found.is_none() {
            reasons.insert(Reason::NoVolumeToBind);
        }
        match found {
            Some(volumes) if reasons.is_empty() => Ok(volumes),
            _ => Err(reasons),
        }
    }

    fn find_unbound(&self, wanted: &Wanted<'_>, node: &NodeSpec) -> Option<PodVolumes> {
        let mut found = PodVolumes::default();
        for (key, claim) in &wanted.unbound {
            let selected = claim.selected_node.as_ref().or_else(|| self.assumed_nodes.get(key));
            if let Some(selected) = selected {
                if **selected != *node.name {
                    return None;
                }
                found.provisions.push(key.clone());
            } else if let Some(volume) = self.matching(key, claim, node, &found) {
                found.bindings.push((key.clone(), volume.into()));
            } else {
                found.provisions.push(key.clone());
            }
        }
        let classes = found.provisions.iter().map(|key| self.classes.get(&self.claims.get(key)?.class));
        let provided = |class: Option<&Class>| class.is_some_and(|class| class.provides_for(node));
        classes.into_iter().all(provided).then_some(found)
    }

    /// The smallest volume that a claim can get on a node: `volume.FindMatchingVolume`.
    fn matching(&self, key: &Key, claim: &Claim, node: &NodeSpec, chosen: &PodVolumes) -> Option<&str> {
        let mut smallest: Option<(i64, &str)> = None;
        for (name, volume) in &self.by_name {
            let assumed = self.assumed_claims.get(name);
            if chosen.bindings.iter().any(|(_, one)| one == name) || assumed.is_some_and(|other| other != key) {
                continue;
            }
            let reserved = volume
                .claim
                .as_ref()
                .map(|(other, uid)| other == key && uid.as_ref().is_none_or(|uid| *uid == claim.uid));
            if reserved == Some(false)
                || volume.capacity < claim.size
                || volume.block != claim.block
                || volume.attributes != claim.attributes
                || volume.deleting
            {
                continue;
            }
            if reserved == Some(true) {
                return volume.reaches(node).then_some(&**name);
            }
            let fits = volume.available
                && volume.class == claim.class
                && claim.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels))
                && claim.modes.iter().all(|mode| volume.modes.contains(mode))
                && volume.reaches(node);
            // Among equally large ones the first by name, so that decisions can be repeated.
            if fits && smallest.is_none_or(|best| (volume.capacity, &**name) < best) {
                smallest = Some((volume.capacity, name));
            }
        }
        smallest.map(|(_, name)| name)
    }
}

impl Volume {
    fn reaches(&self, node: &NodeSpec) -> bool {
        let matches = |terms: &Vec<NodeTerm>| terms.iter().any(|term| term.matches(&node.name, &node.labels));
        self.nodes.as_ref().is_none_or(matches)
    }
}

impl Class {
    /// Whether a volume can be made for a node.
    fn provides_for(&self, node: &NodeSpec) -> bool {
        let label = |(key, values): &(Box<str>, Vec<String>)| {
            node.labels.get(key).is_some_and(|value| values.iter().any(|one| one == value))
        };
        let makes = !self.provisioner.is_empty() && &*self.provisioner != NO_PROVISIONER;
        makes && (self.topologies.is_empty() || self.topologies.iter().any(|term| term.iter().all(label)))
    }
}

impl Wanted<'_> {
    /// Whether the volumes are in the zone of a node.
    pub(crate) fn are_in_zone_of(&self, node: &NodeSpec) -> bool {
        if self.zones.is_empty() || !ZONE_LABELS.iter().any(|label| node.labels.get(label).is_some()) {
            return true;
        }
        self.zones.iter().all(|(key, values)| {
            let newer = match &**key {
                "failure-domain.beta.kubernetes.io/zone" => ZONE_LABELS[2],
                "failure-domain.beta.kubernetes.io/region" => ZONE_LABELS[3],
                other => other,
            };
            let value = node.labels.get(key).or_else(|| node.labels.get(newer));
            value.is_some_and(|value| values.iter().any(|one| one == value))
        })
    }
}

fn key(namespace: Option<&str>, name: Option<&str>) -> Key {
    (namespace.unwrap_or_default().into(), name.unwrap_or_default().into())
}

fn missing(claim: &str) -> String {
    format!("persistentvolumeclaim {claim:?} not found")
}
