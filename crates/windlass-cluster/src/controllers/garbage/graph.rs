//! Who owns whom: the graph of all objects, and what a change of it calls for.
//!
//! The graph is pure. It is told what was observed and answers with [`Effects`]: objects whose
//! deletion should be attempted, objects whose dependents should be orphaned, references to report.
//! Objects are known by uid. An owner that has not been observed yet is a *virtual* node, made of what
//! its dependents say about it, until it is observed or found [absent](Graph::absent). An owner whose kind is no longer
//! watched becomes one again, so that its dependents are neither forgotten nor taken for orphans.
//!
//! Mirrors the semantics of upstream's `pkg/controller/garbagecollector/graph_builder.go`.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::controllers::inventory::{Ending, WatchNumber};
use crate::controllers::metadata::Metadata;

/// The finalizer of an object that waits for its dependents to go.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object that waits for its dependents to be orphaned.
pub(super) const ORPHAN: &str = "orphan";
/// Owners remembered to be absent.
const ABSENT: usize = 500;
/// Deleted objects remembered for dependents that are observed after their owner's deletion.
const DEPARTED: usize = 4096;

/// How many namespaces there are before empty ones are looked for.
const NAMESPACES: usize = 1024;

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
    /// Objects of one owner share one list.
    pub(super) owners: Arc<[OwnerReference]>,
    /// Most objects have none, and a set takes six words.
    #[expect(clippy::box_collection, reason = "there are as many nodes as objects")]
    dependents: Option<Box<HashSet<Uid>>>,
    /// Owners that were observed and are gone, or were looked for and do not exist.
    pub(super) lost: Vec<Uid>,
    /// The latest watch that has shown it.
    watch: WatchNumber,
    /// Whether only its dependents say that it exists.
    pub(super) is_virtual: bool,
    pub(super) is_deleting: bool,
    /// Whether it waits for its dependents to go.
    pub(super) is_deleting_dependents: bool,
}

impl Node {
    pub(super) fn has_dependents(&self) -> bool {
        self.dependents.is_some()
    }

    /// The uids of the objects that name it as an owner.
    fn dependents(&self) -> impl Iterator<Item = &Uid> {
        self.dependents.iter().flat_map(|dependents| &**dependents)
    }

    fn add_dependent(&mut self, uid: &Uid) {
        self.dependents.get_or_insert_default().insert(Arc::clone(uid));
    }

    fn remove_dependent(&mut self, uid: &str) {
        if let Some(dependents) = &mut self.dependents {
            dependents.remove(uid);
            if dependents.is_empty() {
                self.dependents = None;
            }
        }
    }

    /// Whether an owner is known to be gone.
    pub(super) fn has_lost(&self, owner: &str) -> bool {
        self.lost.iter().any(|lost| **lost == *owner)
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
    /// The kind that each watch is about: its objects share one copy.
    kinds: HashMap<WatchNumber, Kind>,
    /// The namespaces of objects, for the same reason.
    namespaces: HashSet<Arc<str>>,
    /// With how many of them it is worth looking for those that have no objects any more.
    most_namespaces: usize,
    absent: Recent<Identity, ABSENT>,
    departed: Recent<Uid, DEPARTED>,
}

impl Graph {
    pub(super) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The kind that a watch is about.
    pub(super) fn kind(&mut self, watch: WatchNumber, make: impl FnOnce() -> Kind) -> Kind {
        self.kinds.entry(watch).or_insert_with(make).clone()
    }

    /// The copy of a namespace's name that its objects share.
    fn namespace(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.namespaces.get(name) {
            return Arc::clone(known);
        }
        if self.namespaces.len() >= self.most_namespaces {
            self.namespaces.retain(|name| Arc::strong_count(name) > 1);
            self.most_namespaces = NAMESPACES.max(2 * self.namespaces.len());
        }
        let name: Arc<str> = name.into();
        self.namespaces.insert(Arc::clone(&name));
        name
    }

    /// The owners that an object names, in the list that it shares with another dependent of its first owner.
    fn owners(&self, object: &Metadata) -> Arc<[OwnerReference]> {
        let named = object.metadata.owner_references.as_deref().unwrap_or_default();
        let owner = named.first().and_then(|first| self.nodes.get(&*first.uid));
        let other = owner.and_then(|owner| self.nodes.get(owner.dependents().next()?));
        other.filter(|other| *other.owners == *named).map_or_else(|| named.into(), |other| Arc::clone(&other.owners))
    }

    /// What depends on an object.
    pub(super) fn dependents(&self, uid: &str) -> Vec<&Node> {
        let dependents = self.nodes.get(uid).into_iter().flat_map(Node::dependents);
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

    /// An object was created or changed, as a watch of its kind tells.
    pub(super) fn observe(
        &mut self,
        kind: &Kind,
        watch: WatchNumber,
        object: &Metadata,
        old: Option<&Metadata>,
    ) -> Effects {
        let mut effects = Effects::default();
        let mut identity = Identity::of_object(kind, object);
        identity.namespace = self.namespace(&identity.namespace);
        let owners = self.owners(object);
        let uid = Arc::clone(&identity.uid);
        match self.nodes.get_mut(&uid) {
            None => {
                self.nodes.insert(
                    Arc::clone(&uid),
                    Node {
                        identity,
                        owners: Arc::clone(&owners),
                        dependents: None,
                        lost: Vec::new(),
                        watch,
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
                let before = node.identity.clone();
                // Of two watches the later one knows in which version the kind is served.
                if was_virtual || watch >= node.watch {
                    (node.identity, node.watch) = (identity, watch);
                }
                let before_owners = std::mem::replace(&mut node.owners, Arc::clone(&owners));
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

    /// A watch has ended. Objects that no later watch has shown are gone if their kind was deleted. Otherwise nothing
    /// is known about them: those with dependents have to be looked for.
    pub(super) fn forget(&mut self, watch: WatchNumber, ending: Ending) -> Effects {
        let mut effects = Effects::default();
        self.kinds.remove(&watch);
        let left = self.nodes.values().filter(|node| !node.is_virtual && node.watch == watch);
        let left: Vec<Uid> = left.map(|node| Arc::clone(&node.identity.uid)).collect();
        for uid in left {
            match self.nodes.get_mut(&uid) {
                None => {}
                Some(_) if ending == Ending::Deleted => self.remove(&uid, &mut effects),
                Some(node) if node.has_dependents() => {
                    node.is_virtual = true;
                    // Whether it is being deleted is found out again, too.
                    (node.is_deleting, node.is_deleting_dependents) = (false, false);
                    effects.delete.push(uid);
                }
                Some(_) => {
                    if let Some(node) = self.unlink(&uid) {
                        self.recheck_waiting(&node.owners, &mut effects);
                    }
                }
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
                if self.departed.contains(&*owner.uid) {
                    self.lose_owner(uid, &owner.uid.as_str().into());
                    suspicious = true;
                    continue;
                }
                let identity = Identity::of_owner(owner, &dependent.namespace);
                effects.delete.push(Arc::clone(&identity.uid));
                self.nodes.insert(
                    Arc::clone(&identity.uid),
                    Node {
                        identity,
                        owners: Arc::default(),
                        dependents: Some(Box::new(HashSet::from([Arc::clone(uid)]))),
                        lost: Vec::new(),
                        watch: 0,
                        is_virtual: true,
                        is_deleting: false,
                        is_deleting_dependents: false,
                    },
                );
                continue;
            };
            node.add_dependent(uid);
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
                owner.remove_dependent(uid);
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
            effects.delete.extend(node.dependents().cloned());
            effects.delete.push(Arc::clone(uid));
        }
    }

    fn remove(&mut self, uid: &str, effects: &mut Effects) {
        let Some(node) = self.unlink(uid) else { return };
        if !node.is_virtual {
            self.departed.add(Arc::clone(&node.identity.uid));
        }
        for dependent in node.dependents() {
            self.lose_owner(dependent, &node.identity.uid);
        }
        effects.delete.extend(node.dependents().cloned());
        self.recheck_waiting(&node.owners, effects);
        if node.has_dependents() {
            self.absent.add(node.identity);
        }
    }

    /// Notes in a dependent that an owner is gone. Kept there, it is known for as long as the dependent exists.
    fn lose_owner(&mut self, dependent: &Uid, owner: &Uid) {
        if let Some(node) = self.nodes.get_mut(dependent)
            && !node.has_lost(owner)
        {
            node.lost.push(Arc::clone(owner));
        }
    }

    /// Owners that wait for an object which is gone look whether it was the last one.
    fn recheck_waiting(&self, owners: &[OwnerReference], effects: &mut Effects) {
        for owner in owners {
            if let Some(owner) = self.nodes.get(&*owner.uid).filter(|owner| owner.is_deleting_dependents) {
                effects.delete.push(Arc::clone(&owner.identity.uid));
            }
        }
    }

    /// Takes a node out of the graph.
    fn unlink(&mut self, uid: &str) -> Option<Node> {
        let node = self.nodes.remove(uid)?;
        for owner in &*node.owners {
            if let Some(owner) = self.nodes.get_mut(&*owner.uid) {
                owner.remove_dependent(uid);
            }
        }
        Some(node)
    }

    /// The dependents of a node that name it by this identity, and those that name it otherwise. One
    /// with several references may be both.
    fn partition(&self, node: &Node, identity: &Identity) -> (Vec<Uid>, Vec<Uid>) {
        let (mut matching, mut others) = (Vec::new(), Vec::new());
        for uid in node.dependents() {
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

/// The last `ROOM` things that were added.
#[derive(Debug)]
struct Recent<T, const ROOM: usize> {
    known: HashSet<T>,
    order: VecDeque<T>,
}

impl<T, const ROOM: usize> Default for Recent<T, ROOM> {
    fn default() -> Self {
        Self { known: HashSet::new(), order: VecDeque::new() }
    }
}

impl<T: Clone + Eq + Hash, const ROOM: usize> Recent<T, ROOM> {
    fn contains<Q: Eq + Hash + ?Sized>(&self, item: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.known.contains(item)
    }

    fn add(&mut self, item: T) {
        if self.known.insert(item.clone()) {
            self.order.push_back(item);
            if self.order.len() > ROOM
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests;
