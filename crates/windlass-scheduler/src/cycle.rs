//! One decision about one pod: what is worked out once, and the checks of each node.
//!
//! The checks are upstream's default filters in upstream's order; the first that fails speaks for the node. What depends
//! on other pods is worked out once for the pod ([`Cycle::new`]) and corrected when pods are added to or removed from a
//! node for the sake of argument ([`Cycle::shift`]): pods with a nomination, and victims of a preemption.

use std::sync::Arc;

use crate::counts::{GroupKey, Slot};
use crate::devices::NeededDevices;
use crate::node::{NodeInfo, NodeSpec};
use crate::pod::{PodAffinity, PodInfo, SpreadConstraint, Taint, Term};
use crate::reason::{Reason, Reasons, Rejection};
use crate::snapshot::Snapshot;
use crate::topology::{NOWHERE, Topology};
use crate::volume::Wanted;

/// Why a pod has to wait whatever the node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Its claims, with the reason.
    Volumes(String),
    /// Its resource claims, with the reason.
    Devices(String),
    /// Its node affinity contradicts itself.
    AffinityConflict,
}

/// Counts by domain of a topology.
struct Counts<'a> {
    topology: &'a Topology,
    by_domain: Vec<i64>,
}

impl<'a> Counts<'a> {
    fn new(topology: &'a Topology) -> Self {
        Self { topology, by_domain: vec![0; topology.len()] }
    }

    fn add(&mut self, slot: Slot, count: i64) {
        if let Some(sum) = self.by_domain.get_mut(self.topology.domain(slot) as usize) {
            *sum += count;
        }
    }

    /// The count of a node's domain; `None` for a node in none.
    fn at(&self, slot: Slot) -> Option<i64> {
        self.by_domain.get(self.topology.domain(slot) as usize).copied()
    }
}

/// A spread constraint that has to hold.
struct Spread<'a> {
    constraint: &'a SpreadConstraint,
    counts: Counts<'a>,
    /// Which domains have nodes that count.
    present: Vec<bool>,
    domains: usize,
    fewest: i64,
    counts_itself: bool,
}

impl Spread<'_> {
    fn update_fewest(&mut self) {
        let counted = self.counts.by_domain.iter().zip(&self.present).filter(|(_, present)| **present);
        // Without any domain nothing is too many.
        self.fewest = counted.map(|(count, _)| *count).min().unwrap_or(i64::from(i32::MAX));
        if self.domains < self.constraint.min_domains {
            self.fewest = 0;
        }
    }
}

/// What is required about other pods.
#[derive(Default)]
struct Neighbours<'a> {
    /// Where pods are that forbid this one, by label.
    forbidden_by_others: Vec<(&'a str, Counts<'a>)>,
    /// Where pods are that all required terms mean, for each term.
    required: Vec<Counts<'a>>,
    /// How many entries of `required` are not zero: none means that there is no such pod anywhere.
    required_places: i64,
    meets_own_requirements: bool,
    /// Where pods are that each forbidden term means.
    forbidden: Vec<Counts<'a>>,
}

/// What a decision about a pod is made of.
pub(crate) struct Cycle<'a> {
    pub(crate) cluster: &'a Snapshot,
    pub(crate) pod: &'a PodInfo,
    /// The only nodes that come into question, if the pod names them.
    pub(crate) named: Option<Vec<Slot>>,
    tolerates_unschedulable: bool,
    spread: Vec<Spread<'a>>,
    neighbours: Neighbours<'a>,
    exclusive_claims: Vec<&'a str>,
    exclusive_conflicts: i64,
    pub(crate) wanted: Wanted<'a>,
    pub(crate) devices: NeededDevices<'a>,
}

/// Makes sure that everything a decision about a pod needs is counted.
pub(crate) fn prepare(cluster: &mut Snapshot, pod: &PodInfo) {
    cluster.sort_nodes();
    cluster.limit_topologies();
    for constraint in &pod.spread {
        cluster.follow(&constraint.key);
        cluster.count(spread_key(constraint));
    }
    if let Some(affinity) = &pod.affinity {
        let terms = affinity.required.iter().chain(&affinity.forbidden);
        for term in terms.chain(affinity.preferred.iter().map(|(_, term)| term)) {
            cluster.follow(&term.key);
        }
        if !affinity.required.is_empty() {
            cluster.count(required_key(affinity));
        }
        for term in affinity.forbidden.iter().chain(affinity.preferred.iter().map(|(_, term)| term)) {
            cluster.count(term_key(term));
        }
    }
}

pub(crate) fn spread_key(constraint: &SpreadConstraint) -> GroupKey {
    GroupKey { scopes: vec![Arc::clone(&constraint.selector)], only_staying: true }
}

fn required_key(affinity: &PodAffinity) -> GroupKey {
    let scopes = affinity.required.iter().map(|term| Arc::clone(&term.scope)).collect();
    GroupKey { scopes, only_staying: false }
}

pub(crate) fn term_key(term: &Term) -> GroupKey {
    GroupKey { scopes: vec![Arc::clone(&term.scope)], only_staying: false }
}

/// Whether a node counts for a constraint: `topologySpreadConstraint.matchNodeInclusionPolicies`.
pub(crate) fn counts_for(constraint: &SpreadConstraint, pod: &PodInfo, node: &NodeSpec) -> bool {
    (!constraint.honours_affinity || pod.required_nodes.matches(&node.name, &node.labels))
        && (!constraint.honours_taints || tolerates(pod, node))
}

fn tolerates(pod: &PodInfo, node: &NodeSpec) -> bool {
    node.taints.iter().all(|taint| !taint.is_hard() || pod.tolerates(taint))
}

impl<'a> Cycle<'a> {
    /// Works out what does not depend on the node. The cluster must be [prepared](prepare).
    pub(crate) fn new(cluster: &'a Snapshot, pod: &'a PodInfo) -> Result<Self, Blocked> {
        let named = match pod.required_nodes.only_names() {
            Some(names) if names.is_empty() => return Err(Blocked::AffinityConflict),
            Some(names) => Some(names.into_iter().filter_map(|name| cluster.find(name)).collect()),
            None => None,
        };
        let exclusive_claims = cluster.volumes.exclusive_claims(pod).map_err(Blocked::Volumes)?;
        let in_use = exclusive_claims.iter().filter(|claim| cluster.is_claim_in_use(&pod.namespace, claim));
        let exclusive_conflicts = in_use.count() as i64;
        let wanted = cluster.volumes.wanted(pod).map_err(Blocked::Volumes)?;
        let devices = cluster.devices.needed(pod).map_err(Blocked::Devices)?;
        Ok(Self {
            cluster,
            pod,
            named,
            tolerates_unschedulable: pod.tolerates(&Taint::unschedulable()),
            spread: spread(cluster, pod),
            neighbours: neighbours(cluster, pod),
            exclusive_claims,
            exclusive_conflicts,
            wanted,
            devices,
        })
    }

    /// Checks a node as it is, and with the pods that wait for room on it and may not be displaced by this one.
    pub(crate) fn check(&mut self, slot: Slot) -> Option<Rejection> {
        let node = &self.cluster.nodes[slot as usize];
        self.check_changed(slot, node)
    }

    /// The same of a node with other pods than it has.
    pub(crate) fn check_changed(&mut self, slot: Slot, node: &NodeInfo) -> Option<Rejection> {
        let spec = node.spec.as_ref()?;
        let waiting = self.cluster.nominated(&spec.name).iter();
        let waiting = waiting.filter(|other| other.priority >= self.pod.priority && other.uid != self.pod.uid);
        let waiting: Vec<&Arc<PodInfo>> = waiting.collect();
        if !waiting.is_empty() {
            let mut fuller = node.clone();
            for other in &waiting {
                fuller.add(other);
                self.shift(slot, other, 1);
            }
            let rejection = self.filter(slot, &fuller, spec);
            for other in &waiting {
                self.shift(slot, other, -1);
            }
            if rejection.is_some() {
                return rejection;
            }
        }
        self.filter(slot, node, spec)
    }

    /// Another pod comes to a node, or goes, for the sake of argument.
    pub(crate) fn shift(&mut self, slot: Slot, other: &PodInfo, sign: i64) {
        let (cluster, pod) = (self.cluster, self.pod);
        if !self.exclusive_claims.is_empty() && other.namespace == pod.namespace {
            let used = other.claims.iter().filter(|used| !used.ephemeral);
            let shared = used.filter(|used| self.exclusive_claims.contains(&&*used.name));
            self.exclusive_conflicts += sign * shared.count() as i64;
        }
        let node = cluster.nodes[slot as usize].spec.as_ref();
        if other.namespace == pod.namespace && !other.deleting && !self.spread.is_empty() {
            let everywhere = self.spread.iter().all(|one| one.counts.at(slot).is_some());
            for one in self.spread.iter_mut().filter(|_| everywhere) {
                let selector = &one.constraint.selector.selector;
                let counted = !selector.is_everything() && selector.matches(&other.labels);
                if counted && node.is_some_and(|node| counts_for(one.constraint, pod, node)) {
                    one.counts.add(slot, sign);
                    one.update_fewest();
                }
            }
        }
        let neighbours = &mut self.neighbours;
        let namespace = cluster.namespace(&pod.namespace);
        for term in other.affinity.iter().flat_map(|affinity| affinity.forbidden.iter()) {
            if term.scope.matches(pod, namespace) {
                let found = neighbours.forbidden_by_others.iter_mut().find(|(key, _)| **key == *term.key);
                match found {
                    Some((_, counts)) => counts.add(slot, sign),
                    // A nominated pod may bring a label that no pod on a node has.
                    None => neighbours.forbid(cluster, term, slot, sign),
                }
            }
        }
        let Some(affinity) = &pod.affinity else { return };
        let namespace = cluster.namespace(&other.namespace);
        if !affinity.required.is_empty() && affinity.required.iter().all(|term| term.scope.matches(other, namespace)) {
            for counts in &mut neighbours.required {
                if counts.at(slot).is_some() {
                    counts.add(slot, sign);
                    neighbours.required_places += sign;
                }
            }
        }
        for (term, counts) in affinity.forbidden.iter().zip(&mut neighbours.forbidden) {
            if term.scope.matches(other, namespace) {
                counts.add(slot, sign);
            }
        }
    }

    fn filter(&self, slot: Slot, node: &NodeInfo, spec: &NodeSpec) -> Option<Rejection> {
        let pod = self.pod;
        let unresolvable = |reason: Reason| Some(Rejection { reasons: reason.into(), unresolvable: true });
        let resolvable = |reason: Reason| Some(Rejection { reasons: reason.into(), unresolvable: false });
        if spec.unschedulable && !self.tolerates_unschedulable {
            return unresolvable(Reason::Unschedulable);
        }
        if pod.node.as_ref().is_some_and(|name| **name != *spec.name) {
            return unresolvable(Reason::NodeName);
        }
        if !tolerates(pod, spec) {
            return unresolvable(Reason::Taint);
        }
        if !pod.required_nodes.is_any() && !pod.required_nodes.matches(&spec.name, &spec.labels) {
            return unresolvable(Reason::NodeAffinity);
        }
        if pod.ports.iter().any(|port| node.ports.iter().any(|taken| port.conflicts(taken))) {
            return resolvable(Reason::Ports);
        }
        if let Some(rejection) = fit(pod, node, spec) {
            return Some(rejection);
        }
        let disks = || node.pods.iter().flat_map(|other| other.disks.iter());
        if pod.disks.iter().any(|disk| disks().any(|other| disk.conflicts(other))) {
            return resolvable(Reason::DiskConflict);
        }
        if self.exclusive_conflicts > 0 {
            return resolvable(Reason::ExclusiveClaim);
        }
        if self.cluster.volumes.are_too_many(pod, &spec.name, &node.pods) {
            return resolvable(Reason::TooManyVolumes);
        }
        if !self.wanted.is_empty() {
            if let Err(reasons) = self.cluster.volumes.find(&self.wanted, spec) {
                return Some(Rejection { reasons, unresolvable: true });
            }
            if !self.wanted.are_in_zone_of(spec) {
                return unresolvable(Reason::VolumeZone);
            }
        }
        for one in &self.spread {
            let Some(count) = one.counts.at(slot) else { return unresolvable(Reason::SpreadLabel) };
            if count + i64::from(one.counts_itself) - one.fewest > one.constraint.max_skew {
                return resolvable(Reason::Spread);
            }
        }
        self.neighbours.check(slot).or_else(|| unresolvable(self.devices.check(spec)?))
    }
}

/// Whether a node has room: `noderesources.fitsRequest`. Every resource that lacks is a reason.
fn fit(pod: &PodInfo, node: &NodeInfo, spec: &NodeSpec) -> Option<Rejection> {
    let (wanted, has, taken) = (&pod.requests.exact, &spec.allocatable, &node.requested);
    let mut reasons = Reasons::default();
    let mut unresolvable = false;
    if node.pods.len() as i64 + 1 > has.pods {
        reasons.insert(Reason::TooManyPods);
    }
    if !wanted.is_nothing() {
        let mut lack = |reason, wanted: i64, has: i64, taken: i64| {
            if wanted > 0 && wanted > has - taken {
                reasons.insert(reason);
                unresolvable |= wanted > has;
            }
        };
        lack(Reason::Cpu, wanted.cpu, has.cpu, taken.cpu);
        lack(Reason::Memory, wanted.memory, has.memory, taken.memory);
        lack(Reason::EphemeralStorage, wanted.ephemeral_storage, has.ephemeral_storage, taken.ephemeral_storage);
        for (number, (name, wanted)) in wanted.scalars.iter().enumerate() {
            lack(Reason::Scalar(number as u32), *wanted, has.scalar(name), taken.scalar(name));
        }
    }
    (!reasons.is_empty()).then_some(Rejection { reasons, unresolvable })
}

fn spread<'a>(cluster: &'a Snapshot, pod: &'a PodInfo) -> Vec<Spread<'a>> {
    let hard = pod.spread.iter().filter(|constraint| constraint.hard);
    let mut spread: Vec<Spread<'a>> = hard
        .map(|constraint| {
            let counts = Counts::new(cluster.topology(&constraint.key));
            let present = vec![false; counts.by_domain.len()];
            let counts_itself = constraint.selector.selector.matches(&pod.labels);
            Spread { constraint, counts, present, domains: 0, fewest: 0, counts_itself }
        })
        .collect();
    if spread.is_empty() {
        return spread;
    }
    let topologies: Vec<&Topology> = spread.iter().map(|one| one.counts.topology).collect();
    let has_labels = |slot: Slot| topologies.iter().all(|topology| topology.domain(slot) != NOWHERE);
    let any_node_counts =
        |one: &SpreadConstraint| !one.honours_taints && (!one.honours_affinity || pod.required_nodes.is_any());
    for one in &mut spread {
        let constraint = one.constraint;
        let counted = |slot: Slot| {
            let node = cluster.nodes[slot as usize].spec.as_ref();
            has_labels(slot)
                && (any_node_counts(constraint) || node.is_some_and(|node| counts_for(constraint, pod, node)))
        };
        for slot in cluster.order().iter().copied().filter(|slot| counted(*slot)) {
            let present = &mut one.present[one.counts.topology.domain(slot) as usize];
            one.domains += usize::from(!*present);
            *present = true;
        }
        if !constraint.selector.selector.is_everything()
            && let Some(group) = cluster.groups.get(&spread_key(constraint))
        {
            for (slot, count) in group.iter().filter(|(slot, _)| counted(**slot)) {
                one.counts.add(*slot, i64::from(*count));
            }
        }
        one.update_fewest();
    }
    spread
}

fn neighbours<'a>(cluster: &'a Snapshot, pod: &'a PodInfo) -> Neighbours<'a> {
    let mut neighbours = Neighbours::default();
    let namespace = cluster.namespace(&pod.namespace);
    for held in cluster.forbidding.candidates(&pod.namespace).filter(|held| held.scope.matches(pod, namespace)) {
        let counts = neighbours.by_key(cluster, &held.key);
        for (slot, count) in &held.counts {
            counts.add(*slot, i64::from(*count));
        }
    }
    let Some(affinity) = &pod.affinity else { return neighbours };
    if !affinity.required.is_empty() {
        let group = cluster.groups.get(&required_key(affinity));
        for term in &affinity.required {
            let mut counts = Counts::new(cluster.topology(&term.key));
            for (slot, count) in group.into_iter().flatten() {
                if counts.at(*slot).is_some() {
                    counts.add(*slot, i64::from(*count));
                    neighbours.required_places += i64::from(*count);
                }
            }
            neighbours.required.push(counts);
        }
        let own = |term: &Term| term.scope.matches(pod, namespace);
        neighbours.meets_own_requirements = affinity.required.iter().all(own);
    }
    for term in &affinity.forbidden {
        let mut counts = Counts::new(cluster.topology(&term.key));
        for (slot, count) in cluster.groups.get(&term_key(term)).into_iter().flatten() {
            counts.add(*slot, i64::from(*count));
        }
        neighbours.forbidden.push(counts);
    }
    neighbours
}

impl<'a> Neighbours<'a> {
    fn by_key(&mut self, cluster: &'a Snapshot, key: &'a str) -> &mut Counts<'a> {
        let at = self.forbidden_by_others.iter().position(|(known, _)| *known == key);
        let at = at.unwrap_or_else(|| {
            self.forbidden_by_others.push((key, Counts::new(cluster.topology(key))));
            self.forbidden_by_others.len() - 1
        });
        &mut self.forbidden_by_others[at].1
    }

    fn forbid(&mut self, cluster: &'a Snapshot, term: &Term, slot: Slot, sign: i64) {
        if let Some((key, topology)) = cluster.known_topology(&term.key) {
            let mut counts = Counts::new(topology);
            counts.add(slot, sign);
            self.forbidden_by_others.push((key, counts));
        }
    }

    fn check(&self, slot: Slot) -> Option<Rejection> {
        let mut near = true;
        for counts in &self.required {
            match counts.at(slot) {
                Some(count) => near &= count > 0,
                None => return Some(Rejection { reasons: Reason::Affinity.into(), unresolvable: true }),
            }
        }
        // The first pod of a group that wants to be together may go anywhere.
        let first = self.required_places == 0 && self.meets_own_requirements;
        if !near && !first {
            return Some(Rejection { reasons: Reason::Affinity.into(), unresolvable: true });
        }
        if self.forbidden.iter().any(|counts| counts.at(slot).is_some_and(|count| count > 0)) {
            return Some(Rejection { reasons: Reason::AntiAffinity.into(), unresolvable: false });
        }
        if self.forbidden_by_others.iter().any(|(_, counts)| counts.at(slot).is_some_and(|count| count > 0)) {
            return Some(Rejection { reasons: Reason::ExistingAntiAffinity.into(), unresolvable: false });
        }
        None
    }
}
