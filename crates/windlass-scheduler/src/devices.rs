//! Resource claims of pods: whether they exist, and on which nodes their devices are.
//!
//! The counterpart of upstream's plugin `DynamicResources`, without the allocation of devices: a pod waits until another
//! program has allocated its claims.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::NodeSelector;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::labels::NodeTerm;
use crate::node::NodeSpec;
use crate::pod::{DeviceUse, PodInfo};
use crate::reason::Reason;
use crate::volume::Key;

#[derive(Debug)]
struct Claim {
    uid: Box<str>,
    deleting: bool,
    owner: Option<Box<str>>,
    allocation: Allocation,
    reserved_for: Vec<Box<str>>,
    /// Names of requests, and of the classes that they are for.
    requests: Vec<(Box<str>, Box<str>)>,
}

/// Where the devices of a claim are.
#[derive(Debug)]
enum Allocation {
    /// They were not chosen yet.
    Missing,
    /// Every node reaches them.
    Everywhere,
    /// These nodes reach them.
    On(Vec<NodeTerm>),
}

impl Allocation {
    fn new(allocation: &Value) -> Self {
        if allocation.is_null() {
            return Self::Missing;
        }
        match serde_json::from_value::<Option<NodeSelector>>(allocation["nodeSelector"].clone()) {
            Ok(None) => Self::Everywhere,
            Ok(Some(nodes)) => Self::On(nodes.node_selector_terms.iter().map(NodeTerm::new).collect()),
            // One that cannot be read selects nothing.
            Err(_) => Self::On(Vec::new()),
        }
    }

    fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }

    fn reaches(&self, node: &NodeSpec) -> bool {
        match self {
            Self::Missing => false,
            Self::Everywhere => true,
            Self::On(terms) => terms.iter().any(|term| term.matches(&node.name, &node.labels)),
        }
    }
}

/// Claims and the classes of devices.
#[derive(Debug, Default)]
pub struct Devices {
    claims: HashMap<Key, Claim>,
    classes: HashSet<Box<str>>,
}

/// What the claims of a pod need of its node.
#[derive(Debug, Default)]
pub(crate) struct NeededDevices<'a> {
    claims: Vec<&'a Claim>,
}

impl Devices {
    /// The most pods that a claim can be reserved for.
    const MOST_RESERVED: usize = 256;

    /// A claim exists, or has changed.
    pub fn set_claim(&mut self, claim: &DynamicObject) {
        let meta = &claim.metadata;
        let owners = meta.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
        let status = &claim.data["status"];
        let claim = Claim {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            deleting: meta.deletion_timestamp.is_some(),
            owner: owner.map(|owner| owner.uid.as_str().into()),
            allocation: Allocation::new(&status["allocation"]),
            reserved_for: list(&status["reservedFor"]).map(|consumer| text(consumer, "uid").into()).collect(),
            requests: list(&claim.data["spec"]["devices"]["requests"]).flat_map(classes).collect(),
        };
        self.claims.insert(key(meta.namespace.as_deref(), meta.name.as_deref()), claim);
    }

    /// A claim is gone.
    pub fn remove_claim(&mut self, namespace: &str, name: &str) {
        self.claims.remove(&key(Some(namespace), Some(name)));
    }

    /// A class of devices exists.
    pub fn set_class(&mut self, name: &str) {
        self.classes.insert(name.into());
    }

    /// A class of devices is gone.
    pub fn remove_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// Whether the claims of a pod exist. Until they do, upstream's scheduler does not try the pod, and
    /// reports nothing.
    pub(crate) fn are_there(&self, pod: &PodInfo) -> bool {
        self.claims_of(pod).all(|found| found.is_ok())
    }

    /// The claims of a pod, in order, or what is wrong with them.
    fn claims_of<'a>(&'a self, pod: &'a PodInfo) -> impl Iterator<Item = Result<(&'a str, &'a Claim), String>> {
        let (namespace, pod_name) = (&pod.namespace, &pod.name);
        pod.devices.iter().map(move |used| {
            let (name, is_owned) = match used {
                DeviceUse::Claim(name) => (&**name, false),
                DeviceUse::Generated(name) => (&**name, true),
                DeviceUse::NotGenerated => {
                    return Err(format!("pod \"{namespace}/{pod_name}\": ResourceClaim not created yet"));
                }
            };
            let Some(claim) = self.claims.get(&key(Some(namespace), Some(name))) else {
                return Err(format!("could not find ResourceClaim \"{namespace}/{name}\""));
            };
            if claim.deleting {
                return Err(format!("resourceclaim {name:?} is being deleted"));
            }
            if is_owned && claim.owner.as_deref() != Some(&*pod.uid) {
                return Err(format!(
                    "ResourceClaim {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)"
                ));
            }
            Ok((name, claim))
        })
    }

    /// What the claims of a pod need, or why it has to wait whatever the node.
    pub(crate) fn needed<'a>(&'a self, pod: &'a PodInfo) -> Result<NeededDevices<'a>, String> {
        let claims = self.claims_of(pod).map(|found| found.map(|(_, claim)| claim));
        let claims = claims.collect::<Result<Vec<_>, _>>()?;
        for claim in &claims {
            if !claim.allocation.is_missing() {
                if claim.reserved_for.len() >= Self::MOST_RESERVED && !claim.is_reserved_for(pod) {
                    return Err("resourceclaim in use".to_owned());
                }
                continue;
            }
            if let Some((request, class)) = claim.requests.iter().find(|(_, class)| !self.classes.contains(class)) {
                return Err(format!("request {request}: device class {class} does not exist"));
            }
        }
        Ok(NeededDevices { claims })
    }

    /// The claims of a pod that are not reserved for it, by name and uid.
    pub(crate) fn unreserved(&self, pod: &PodInfo) -> Vec<(Box<str>, Box<str>)> {
        let found = self.claims_of(pod).flatten().filter(|(_, claim)| !claim.is_reserved_for(pod));
        found.map(|(name, claim)| (name.into(), claim.uid.clone())).collect()
    }
}

impl Claim {
    fn is_reserved_for(&self, pod: &PodInfo) -> bool {
        self.reserved_for.iter().any(|uid| **uid == *pod.uid)
    }
}

impl NeededDevices<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Why the devices cannot be had on a node.
    pub(crate) fn check(&self, node: &NodeSpec) -> Option<Reason> {
        if self.claims.iter().any(|claim| claim.allocation.is_missing()) {
            return Some(Reason::CannotAllocate);
        }
        let reaches = self.claims.iter().all(|claim| claim.allocation.reaches(node));
        (!reaches).then_some(Reason::DevicesElsewhere)
    }
}

/// The classes of a request, with the name of the request or of the alternative.
fn classes(request: &Value) -> Vec<(Box<str>, Box<str>)> {
    let (name, class) = (text(request, "name"), |of: &Value| Box::from(text(of, "deviceClassName")));
    let exactly = request.get("exactly").map(|exactly| (Box::from(name), class(exactly)));
    let alternatives = list(&request["firstAvailable"])
        .map(|one| (format!("{name}/{}", text(one, "name")).into_boxed_str(), class(one)));
    exactly.into_iter().chain(alternatives).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn key(namespace: Option<&str>, name: Option<&str>) -> Key {
    (namespace.unwrap_or_default().into(), name.unwrap_or_default().into())
}
