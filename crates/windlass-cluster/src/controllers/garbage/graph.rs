//! Who owns whom: the graph of all objects, and what a change of it calls for.
//!
//! The graph is pure. It is told what was observed and answers with [`Effects`]: objects whose
//! deletion should be attempted, objects whose dependents should be orphaned, references to report.
//! Objects are known by uid. An owner that nobody has observed yet is a *virtual* node, made of what
//! its dependents say about it, until it is observed or found [absent](Graph::absent).
//!
//! Mirrors the semantics of upstream's `pkg/controller/garbagecollector/graph_builder.go`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::controllers::metadata::Metadata;

/// The finalizer of an object that waits for its dependents to go.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object that waits for its dependents to be orphaned.
pub(super) const ORPHAN: &str = "orphan";
/// Owners remembered to be absent.
const ABSENT: usize = 500;

/// The uid of an object.
pub(super) type Uid = Arc<str>;

/// apiVersion and kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) name: Arc<str>,
    pub(super) api_version: Arc<str>,
}

impl Kind {
    pub(super) fn new(api_version: &str, name: &str) -> Self {
        Self { name: name.into(), api_version: api_version.into() }
    }
}

/// Everything that tells one object from another. Ordered as upstream orders alternatives.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) kind: Kind,
    /// Empty for objects of the cluster.
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Uid,
}

impl Identity {
    /// An object of a kind.
    pub(super) fn of_object(kind: &Kind, object: &Metadata) -> Self {
        Self {
            kind: kind.clone(),
            namespace: object.metadata.namespace.as_deref().unwrap_or_default().into(),
            name: object.metadata.name.as_deref().unwrap_or_default().into(),
            uid: object.uid().into(),
        }
    }

    /// What a reference names, seen from a namespace.
    pub(super) fn of_owner(owner: &OwnerReference, namespace: &str) -> Self {
        Self {
            kind: Kind::new(&owner.api_version, &owner.kind),
            namespace: namespace.into(),
            name: owner.name.as_str().into(),
            uid: owner.uid.as_str().into(),
        }
    }

    /// Whether a reference names this object, its namespace aside.
    fn is_named_by(&self, owner: &OwnerReference) -> bool {
        *self.uid == *owner.uid
            && *self.name == *owner.name
            && *self.kind.name == *owner.kind
            && *self.kind.api_version == *owner.api_version
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, namespace, name, uid } = self;
        write!(f, "[{}/{}, namespace: {namespace}, name: {name}, uid: {uid}]", kind.api_version, kind.name)
    }
}

/// One object.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) identity: Identity,
    pub(super) owners: Vec<OwnerReference>,
    dependents: HashSet<Uid>,
    /// Whether only its dependents say that it exists.
    pub(super) is_virtual: bool,
    pub(super) is_deleting: bool,
    /// Whether it waits for its dependents to go.
    pub(super) is_deleting_dependents: bool,
}

impl Node {
    pub(super) fn has_dependents(&self) -> bool {
        !self.dependents.is_empty()
    }

    fn blocks(&self, owner: &str) -> bool {
        self.owners.iter().any(|reference| reference.uid == owner && reference.block_owner_deletion == Some(true))
    }
}

/// What a change calls for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Effects {
    /// Objects that may have lost their last owner.
    pub(super) delete: Vec<Uid>,
    /// Objects whose dependents are to be orphaned.
    pub(super) orphan: Vec<Uid>,
    /// Dependents, and what they call their owner, where the owner is in another namespace.
    pub(super) misplaced: Vec<(Identity, Identity)>,
}

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    absent: Absent,
}

impl Graph {
    pub(super) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// What depends on an object.
    pub(super) fn dependents(&self, uid: &str) -> Vec<&Node> {
        let dependents = self.nodes.get(uid).into_iter().flat_map(|node| &node.dependents);
        dependents.filter_map(|dependent| self.nodes.get(dependent)).collect()
    }

    /// The dependents that an object which is deleted in the foreground has to wait for.
    pub(super) fn blocking(&self, uid: &str) -> Vec<&Node> {
        self.dependents(uid).into_iter().filter(|node| node.blocks(uid)).collect()
    }

    /// Whether something is known not to exist.
    pub(super) fn is_absent(&self, identity: &Identity) -> bool {
        self.absent.contains(identity)
    }

    /// Remembers that something does not exist.
    pub(super) fn note_absent(&mut self, identity: Identity) {
        self.absent.add(identity);
    }

    /// An object was created or changed.
    pub(super) fn observe(&mut self, kind: &Kind, object: &Metadata, old: Option<&Metadata>) -> Effects {
        let mut effects = Effects::default();
        let identity = Identity::of_object(kind, object);
        let owners = object.metadata.owner_references.clone().unwrap_or_default();
        let uid = Arc::clone(&identity.uid);
        match self.nodes.get_mut(&uid) {
            None => {
                self.nodes.insert(
                    Arc::clone(&uid),
                    Node {
                        identity,
                        owners: owners.clone(),
                        dependents: HashSet::new(),
                        is_virtual: false,
                        is_deleting: object.is_deleting(),
                        is_deleting_dependents: object.is_deleting() && has(object, FOREGROUND),
                    },
                );
                self.add_to_owners(&uid, &owners, &mut effects);
            }
            Some(node) => {
                let was_virtual = std::mem::replace(&mut node.is_virtual, false);
                node.is_deleting |= object.is_deleting();
                let before = std::mem::replace(&mut node.identity, identity);
                let before_owners = std::mem::replace(&mut node.owners, owners.clone());
                if was_virtual && before != self.nodes[&uid].identity {
                    self.recheck_dependents(&uid, &mut effects);
                }
                self.change_owners(&uid, &before_owners, &owners, &mut effects);
            }
        }
        self.transition(&uid, object, old, &mut effects);
        effects
    }

    /// An object was deleted.
    pub(super) fn delete(&mut self, uid: &str) -> Effects {
        let mut effects = Effects::default();
        self.remove(uid, &mut effects);
        effects
    }

    /// What an identity names was looked for and does not exist. True when the node lives on under
    /// another of the names that its dependents call it, and should be looked for again.
    pub(super) fn absent(&mut self, identity: &Identity) -> (Effects, bool) {
        let mut effects = Effects::default();
        let Some(node) = self.nodes.get(&identity.uid) else { return (effects, false) };
        let (matching, others) = self.partition(node, identity);
        let (is_virtual, is_it) = (node.is_virtual, node.identity == *identity);
        if (is_virtual && others.is_empty()) || (!is_virtual && is_it) {
            self.remove(&identity.uid, &mut effects);
            return (effects, false);
        }
        if !matching.is_empty() {
            self.absent.add(identity.clone());
            effects.delete.extend(matching);
        }
        let mut again = false;
        if is_virtual
            && is_it
            && let Some(alternative) = self.alternative(&others, identity)
            && let Some(node) = self.nodes.get_mut(&identity.uid)
        {
            node.identity = alternative;
            again = true;
        }
        (effects, again)
    }

    /// A kind is no longer watched: its objects are as good as gone, and their dependents are to
    /// be looked at.
    pub(super) fn forget(&mut self, kind: &Kind) -> Effects {
        let mut effects = Effects::default();
        let of_kind = |node: &&Node| !node.is_virtual && node.identity.kind == *kind;
        let gone: Vec<Uid> = self.nodes.values().filter(of_kind).map(|node| Arc::clone(&node.identity.uid)).collect();
        for uid in gone {
            if let Some(node) = self.unlink(&uid) {
                effects.delete.extend(node.dependents);
            }
        }
        effects
    }

    /// Adds an object to the dependents of its owners, and has it looked at when what it says about
    /// them does not fit what is known.
    fn add_to_owners(&mut self, uid: &Uid, owners: &[OwnerReference], effects: &mut Effects) {
        let Some(dependent) = self.nodes.get(uid).map(|node| node.identity.clone()) else { return };
        let mut suspicious = false;
        for owner in owners {
            let Some(node) = self.nodes.get_mut(&*owner.uid) else {
                let identity = Identity::of_owner(owner, &dependent.namespace);
                effects.delete.push(Arc::clone(&identity.uid));
                self.nodes.insert(
                    Arc::clone(&identity.uid),
                    Node {
                        identity,
                        owners: Vec::new(),
                        dependents: HashSet::from([Arc::clone(uid)]),
                        is_virtual: true,
                        is_deleting: false,
                        is_deleting_dependents: false,
                    },
                );
                continue;
            };
            node.dependents.insert(Arc::clone(uid));
            if suspicious {
                continue;
            }
            let elsewhere = node.identity.namespace != dependent.namespace;
            if elsewhere && !node.identity.namespace.is_empty() {
                if !node.is_virtual {
                    effects.misplaced.push((dependent.clone(), Identity::of_owner(owner, &dependent.namespace)));
                }
                suspicious = true;
            } else if !node.identity.is_named_by(owner) || (elsewhere && node.is_virtual) {
                // In the second case the owner may be an object that is missing in a namespace, named
                // by an object of the cluster (upstream's issue 98040).
                suspicious = true;
            }
        }
        if suspicious {
            effects.delete.push(Arc::clone(uid));
        }
    }

    /// A virtual node turned out to be something else than what its dependents said.
    fn recheck_dependents(&self, uid: &Uid, effects: &mut Effects) {
        let Some(node) = self.nodes.get(uid) else { return };
        let (_, others) = self.partition(node, &node.identity);
        for other in others {
            if let Some(dependent) = self.nodes.get(&other) {
                let elsewhere = dependent.identity.namespace != node.identity.namespace;
                let reference = dependent.owners.iter().find(|owner| *owner.uid == **uid);
                if elsewhere
                    && !node.identity.namespace.is_empty()
                    && let Some(reference) = reference
                {
                    let named = Identity::of_owner(reference, &dependent.identity.namespace);
                    effects.misplaced.push((dependent.identity.clone(), named));
                }
            }
            effects.delete.push(other);
        }
    }

    fn change_owners(&mut self, uid: &Uid, old: &[OwnerReference], new: &[OwnerReference], effects: &mut Effects) {
        if old == new {
            return;
        }
        let blocks = |owner: &OwnerReference| owner.block_owner_deletion == Some(true);
        for before in old {
            let after = new.iter().find(|after| after.uid == before.uid);
            // An owner that waits for this object need not any more.
            if blocks(before)
                && !after.is_some_and(blocks)
                && let Some((owner, _)) = self.nodes.get_key_value(&*before.uid)
            {
                effects.delete.push(Arc::clone(owner));
            }
        }
        let added: Vec<OwnerReference> =
            new.iter().filter(|after| !old.iter().any(|before| before.uid == after.uid)).cloned().collect();
        self.add_to_owners(uid, &added, effects);
        for before in old.iter().filter(|before| !new.iter().any(|after| after.uid == before.uid)) {
            if let Some(owner) = self.nodes.get_mut(&*before.uid) {
                owner.dependents.remove(uid);
            }
        }
    }

    /// Acts on a deletion that begins to wait for dependents.
    fn transition(&mut self, uid: &Uid, object: &Metadata, old: Option<&Metadata>, effects: &mut Effects) {
        let waits = |object: &Metadata, finalizer| object.is_deleting() && has(object, finalizer);
        let begins = |finalizer| waits(object, finalizer) && !old.is_some_and(|old| waits(old, finalizer));
        if begins(ORPHAN) {
            effects.orphan.push(Arc::clone(uid));
        } else if begins(FOREGROUND)
            && let Some(node) = self.nodes.get_mut(uid)
        {
            node.is_deleting_dependents = true;
            effects.delete.extend(node.dependents.iter().cloned());
            effects.delete.push(Arc::clone(uid));
        }
    }

    fn remove(&mut self, uid: &str, effects: &mut Effects) {
        let Some(node) = self.unlink(uid) else { return };
        if !node.dependents.is_empty() {
            self.absent.add(node.identity);
        }
        effects.delete.extend(node.dependents);
        // Owners that wait for this object look whether it was the last one.
        for owner in &node.owners {
            if let Some(owner) = self.nodes.get(&*owner.uid).filter(|owner| owner.is_deleting_dependents) {
                effects.delete.push(Arc::clone(&owner.identity.uid));
            }
        }
    }

    /// Takes a node out of the graph.
    fn unlink(&mut self, uid: &str) -> Option<Node> {
        let node = self.nodes.remove(uid)?;
        for owner in &node.owners {
            if let Some(owner) = self.nodes.get_mut(&*owner.uid) {
                owner.dependents.remove(uid);
            }
        }
        Some(node)
    }

    /// The dependents of a node that name it by this identity, and those that name it otherwise. One
    /// with several references may be both.
    fn partition(&self, node: &Node, identity: &Identity) -> (Vec<Uid>, Vec<Uid>) {
        let (mut matching, mut others) = (Vec::new(), Vec::new());
        for uid in &node.dependents {
            let Some(dependent) = self.nodes.get(uid) else { continue };
            if !identity.namespace.is_empty() && identity.namespace != dependent.identity.namespace {
                others.push(Arc::clone(uid));
                continue;
            }
            let mut named = dependent.owners.iter().filter(|owner| *owner.uid == *identity.uid);
            if named.clone().any(|owner| identity.is_named_by(owner)) {
                matching.push(Arc::clone(uid));
            }
            if named.any(|owner| !identity.is_named_by(owner)) {
                others.push(Arc::clone(uid));
            }
        }
        (matching, others)
    }

    /// Another identity that dependents know an owner by: the next one in order, or else the first.
    fn alternative(&self, dependents: &[Uid], absent: &Identity) -> Option<Identity> {
        let of_cluster = absent.namespace.is_empty();
        let mut candidates = Vec::new();
        for dependent in dependents.iter().filter_map(|uid| self.nodes.get(uid)) {
            for owner in dependent.owners.iter().filter(|owner| *owner.uid == *absent.uid) {
                let mut identity = Identity::of_owner(owner, &dependent.identity.namespace);
                if of_cluster && identity.kind == absent.kind {
                    identity.namespace = "".into();
                }
                if identity != *absent {
                    candidates.push(identity);
                }
            }
        }
        candidates.sort();
        candidates.iter().find(|candidate| *candidate > absent).or(candidates.first()).cloned()
    }
}

fn has(object: &Metadata, finalizer: &str) -> bool {
    object.finalizers().iter().any(|known| known == finalizer)
}

/// A bounded memory of what does not exist, so that the dependents of one owner do not all ask for it.
#[derive(Debug, Default)]
struct Absent {
    known: HashSet<Identity>,
    order: VecDeque<Identity>,
}

impl Absent {
    fn contains(&self, identity: &Identity) -> bool {
        self.known.contains(identity)
    }

    fn add(&mut self, identity: Identity) {
        if self.known.insert(identity.clone()) {
            self.order.push_back(identity);
            if self.order.len() > ABSENT
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests;
