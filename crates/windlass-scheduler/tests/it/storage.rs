//! Random claims, volumes and classes, and where they let a pod run, written down as plainly as possible.

use std::collections::BTreeMap;

use fastrand::Rng;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::api::storage::v1::StorageClass;
use windlass::json;
use windlass::serde_json::{Value, from_value};
use windlass_scheduler::Snapshot;

use crate::naive::{World, holds, name, namespace};

const CLASSES: [&str; 4] = ["waits", "local", "immediate", "unknown"];
const CLAIMS: [&str; 4] = ["c0", "c1", "c2", "c3"];
const VOLUMES: usize = 4;

/// Everything about storage, by name.
#[derive(Default, Clone)]
pub(crate) struct Storage {
    classes: BTreeMap<String, StorageClass>,
    /// By namespace and name.
    claims: BTreeMap<(String, String), PersistentVolumeClaim>,
    volumes: BTreeMap<String, PersistentVolume>,
}

fn pick<'a>(random: &mut Rng, list: &[&'a str]) -> &'a str {
    list[random.usize(..list.len())]
}

fn chance(random: &mut Rng, chance: f64) -> bool {
    random.f64() < chance
}

fn class(random: &mut Rng, name: &str) -> StorageClass {
    let mode = if name == "immediate" { "Immediate" } else { "WaitForFirstConsumer" };
    let provisioner = if name == "local" { "kubernetes.io/no-provisioner" } else { "example.com/p" };
    let mut class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
    if chance(random, 0.5) {
        let values = [pick(random, &["1", "2"]), pick(random, &["2", "3"])];
        let expressions = json!([{"key": "zone", "values": values}]);
        class["allowedTopologies"] = json!([{"matchLabelExpressions": expressions}]);
    }
    from_value(class).unwrap()
}

fn claim(random: &mut Rng, namespace: &str, name: &str) -> PersistentVolumeClaim {
    let modes = if chance(random, 0.15) { json!(["ReadWriteOncePod"]) } else { json!(["ReadWriteOnce"]) };
    let mut claim = json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "annotations": {}},
        "spec": {
            "accessModes": modes, "storageClassName": pick(random, &["waits", "local", "waits", "local", "immediate", "unknown"]),
            "resources": {"requests": {"storage": random.u64(1..4).to_string()}},
        },
    });
    if chance(random, 0.3) {
        claim["spec"]["volumeName"] = format!("v{}", random.usize(..=VOLUMES)).into();
        if chance(random, 0.9) {
            claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into();
        }
    } else if chance(random, 0.1) {
        let node = format!("n{}", random.usize(..6));
        claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = node.into();
    }
    match random.usize(..30) {
        0 => claim["status"] = json!({"phase": "Lost"}),
        1 => claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
        _ => {}
    }
    from_value(claim).unwrap()
}

/// A volume, perhaps reserved for a claim that no other volume is reserved for.
fn volume(random: &mut Rng, number: usize) -> PersistentVolume {
    let modes = json!(["ReadWriteOnce", "ReadWriteOncePod"]);
    let mut volume = json!({
        "metadata": {"name": format!("v{number}")},
        "spec": {
            "capacity": {"storage": random.u64(1..5).to_string()}, "storageClassName": pick(random, &CLASSES),
            "accessModes": if chance(random, 0.8) { modes } else { json!(["ReadOnlyMany"]) },
        },
        "status": {"phase": if chance(random, 0.8) { "Available" } else { "Released" }},
    });
    let on = match random.usize(..3) {
        0 => json!({"key": "zone", "operator": "In", "values": [pick(random, &["1", "2", "3"])]}),
        1 => json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [pick(random, &["n0", "n1"])]}),
        _ => Value::Null,
    };
    if !on.is_null() {
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}});
    }
    if chance(random, 0.3) {
        let namespace = pick(random, &["one", "two"]);
        let uid = if chance(random, 0.7) { format!("{namespace}-c{number}") } else { "another".to_owned() };
        let uid = if chance(random, 0.3) { Value::Null } else { uid.into() };
        volume["spec"]["claimRef"] = json!({"namespace": namespace, "name": format!("c{number}"), "uid": uid});
    }
    if chance(random, 0.05) {
        volume["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    from_value(volume).unwrap()
}

/// The volumes of a pod that uses one claim or two.
pub(crate) fn used(random: &mut Rng) -> Vec<Volume> {
    let claims = (0..random.usize(1..3)).map(|number| {
        let source = json!({"claimName": pick(random, &CLAIMS)});
        from_value(json!({"name": format!("v{number}"), "persistentVolumeClaim": source})).unwrap()
    });
    claims.collect()
}

impl Storage {
    /// Makes or changes one thing, or takes a claim away.
    pub(crate) fn change(&mut self, random: &mut Rng, cluster: &mut Snapshot) {
        let (space, name) = (pick(random, &["one", "two"]).to_owned(), pick(random, &CLAIMS).to_owned());
        match random.usize(..10) {
            0 => {
                cluster.volumes.remove_claim(&space, &name);
                self.claims.remove(&(space, name));
            }
            1 | 2 => {
                let class = class(random, pick(&mut random.clone(), &CLASSES[..3]));
                cluster.volumes.set_class(&class);
                self.classes.insert(class.metadata.name.clone().unwrap(), class);
            }
            3..=5 => {
                let volume = volume(random, random.clone().usize(..VOLUMES));
                cluster.volumes.set_volume(&volume);
                self.volumes.insert(volume.metadata.name.clone().unwrap(), volume);
            }
            _ => {
                let claim = claim(random, &space, &name);
                cluster.volumes.set_claim(&claim);
                self.claims.insert((space, name), claim);
            }
        }
    }
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a String> {
    claim.metadata.annotations.as_ref().unwrap().get(key)
}

fn size(quantities: &BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>) -> i64 {
    quantities["storage"].0.parse().unwrap()
}

fn size_of(claim: &PersistentVolumeClaim) -> i64 {
    size(claim.spec.as_ref().unwrap().resources.as_ref().unwrap().requests.as_ref().unwrap())
}

fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().unwrap().node_affinity.as_ref();
    let labels = node.metadata.labels.clone().unwrap_or_default();
    affinity.and_then(|affinity| affinity.required.as_ref()).is_none_or(|required| {
        let mut terms = required.node_selector_terms.iter();
        terms.any(|term| {
            let mut expressions = term.match_expressions.iter().flatten();
            expressions.all(|one| holds(&one.key, &one.operator, one.values.as_deref(), &labels))
        })
    })
}

pub(crate) fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.as_ref().unwrap().volumes.iter().flatten();
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone())).collect()
}

impl World {
    /// Whether the volumes of a pod can be on a node, and no other pod has what only one may have.
    pub(crate) fn has_volumes(&self, pod: &Pod, node: &Node) -> bool {
        let storage = &self.storage;
        let mut claims = Vec::new();
        for claim in claims_of(pod) {
            match storage.claims.get(&(namespace(pod).to_owned(), claim)) {
                Some(claim) => claims.push(claim),
                None => return false,
            }
        }
        let exclusive = |claim: &PersistentVolumeClaim| {
            let modes = claim.spec.as_ref().unwrap().access_modes.as_ref().unwrap();
            modes.contains(&"ReadWriteOncePod".to_owned())
        };
        let in_use = |claim: &&PersistentVolumeClaim| {
            let name = claim.metadata.name.as_ref().unwrap();
            let mut others = self.pods.iter().filter(|other| namespace(other) == namespace(pod));
            exclusive(claim) && others.any(|other| claims_of(other).contains(name))
        };
        !claims.iter().any(in_use) && storage.can_have(claims, node)
    }
}

impl Storage {
    fn can_have(&self, claims: Vec<&PersistentVolumeClaim>, node: &Node) -> bool {
        let mut unbound = Vec::new();
        for claim in claims {
            let spec = claim.spec.as_ref().unwrap();
            let is_lost = claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Lost"));
            if is_lost || claim.metadata.deletion_timestamp.is_some() {
                return false;
            }
            let class = self.classes.get(spec.storage_class_name.as_ref().unwrap());
            match &spec.volume_name {
                Some(volume) => {
                    let volume = self.volumes.get(volume);
                    let is_bound = annotation(claim, "pv.kubernetes.io/bind-completed").is_some();
                    if !is_bound || !volume.is_some_and(|volume| reaches(volume, node)) {
                        return false;
                    }
                }
                None if class.is_some_and(|class| class.metadata.name.as_deref() != Some("immediate")) => {
                    unbound.push((claim, class.unwrap()));
                }
                None => return false,
            }
        }
        unbound.sort_by_key(|(claim, _)| size_of(claim));
        let mut taken: Vec<&str> = Vec::new();
        unbound.into_iter().all(|(claim, class)| {
            let selected = annotation(claim, "volume.kubernetes.io/selected-node");
            if selected.is_some_and(|selected| selected != name(node)) {
                return false;
            }
            if selected.is_none()
                && let Some(volume) = self.volume_for(claim, node, &taken)
            {
                taken.push(volume);
                return true;
            }
            makes_volumes(class, node)
        })
    }

    /// The volume that is reserved for a claim, else the smallest that fits.
    fn volume_for(&self, claim: &PersistentVolumeClaim, node: &Node, taken: &[&str]) -> Option<&str> {
        let (meta, wanted) = (&claim.metadata, claim.spec.as_ref().unwrap());
        let mut fitting: Vec<(i64, &str)> = Vec::new();
        for (name, volume) in self.volumes.iter().filter(|(name, _)| !taken.contains(&name.as_str())) {
            let spec = volume.spec.as_ref().unwrap();
            let capacity = size(spec.capacity.as_ref().unwrap());
            if capacity < size_of(claim) || volume.metadata.deletion_timestamp.is_some() {
                continue;
            }
            if let Some(reserved) = &spec.claim_ref {
                let is_it = reserved.name == meta.name
                    && reserved.namespace == meta.namespace
                    && reserved.uid.as_ref().is_none_or(|uid| Some(uid) == meta.uid.as_ref());
                if is_it {
                    return reaches(volume, node).then_some(name);
                }
                continue;
            }
            let is_available = volume.status.as_ref().unwrap().phase.as_deref() == Some("Available");
            let (has, asks) = (spec.access_modes.as_ref().unwrap(), wanted.access_modes.as_ref().unwrap());
            let same_class = spec.storage_class_name == wanted.storage_class_name;
            if is_available && same_class && asks.iter().all(|mode| has.contains(mode)) && reaches(volume, node) {
                fitting.push((capacity, name));
            }
        }
        fitting.into_iter().min().map(|(_, name)| name)
    }
}

/// Whether a provisioner makes volumes for a node.
fn makes_volumes(class: &StorageClass, node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let allowed = class.allowed_topologies.as_ref().is_none_or(|terms| {
        terms.iter().any(|term| {
            let mut expressions = term.match_label_expressions.iter().flatten();
            expressions.all(|one| holds(&one.key, "In", Some(&one.values), &labels))
        })
    });
    class.provisioner == "example.com/p" && allowed
}
