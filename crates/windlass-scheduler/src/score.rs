//! Which of the nodes that suit a pod suits it best: upstream's default scores and weights.

use std::collections::HashSet;

use crate::counts::Slot;
use crate::cycle::{Cycle, counts_for, spread_key, term_key};
use crate::node::{HOSTNAME, NodeInfo, NodeSpec, ZONE};
use crate::pod::{PodInfo, SpreadConstraint};
use crate::snapshot::Snapshot;
use crate::topology::{Domain, NOWHERE};

/// The score of a node that could not be better.
const BEST: i64 = 100;
const MEGABYTE: i64 = 1 << 20;

const TAINTS: i64 = 3;
const NODE_AFFINITY: i64 = 2;
const SPREAD: i64 = 2;
const NEIGHBOURS: i64 = 2;

/// How pods that say nothing about it are spread: over nodes and zones, as long as nothing else is more important.
pub(crate) fn default_constraints(cluster: &Snapshot, pod: &PodInfo) -> Vec<SpreadConstraint> {
    if !pod.spread.is_empty() {
        return Vec::new();
    }
    let Some(scope) = cluster.siblings(pod) else { return Vec::new() };
    let scope = std::sync::Arc::new(scope);
    let constraint = |(key, max_skew): (&str, i64)| SpreadConstraint {
        key: key.into(),
        max_skew,
        min_domains: 1,
        hard: false,
        selector: std::sync::Arc::clone(&scope),
        honours_affinity: true,
        honours_taints: false,
    };
    [(HOSTNAME, 3), (ZONE, 5)].map(constraint).into()
}

/// Scores nodes. `defaults` are the [default constraints](default_constraints) of the pod.
pub(crate) fn score(cycle: &Cycle<'_>, feasible: &[Slot], defaults: &[SpreadConstraint]) -> Vec<i64> {
    let (cluster, pod) = (cycle.cluster, cycle.pod);
    let nodes: Vec<Scored<'_>> = feasible
        .iter()
        .filter_map(|slot| {
            let node = &cluster.nodes[*slot as usize];
            Some(Scored { slot: *slot, node, spec: node.spec.as_ref()? })
        })
        .collect();
    let mut scores: Vec<i64> = nodes.iter().map(|one| resources(pod, one.node, one.spec)).collect();
    let mut add = |weight: i64, more: Option<Vec<i64>>| {
        for (score, more) in scores.iter_mut().zip(more.into_iter().flatten()) {
            *score += weight * more;
        }
    };
    add(TAINTS, taints(pod, &nodes));
    add(NODE_AFFINITY, node_affinity(pod, &nodes));
    add(SPREAD, spread(cluster, pod, &nodes, defaults));
    add(NEIGHBOURS, neighbours(cluster, pod, &nodes));
    add(1, images(cluster, pod, &nodes));
    scores
}

struct Scored<'a> {
    slot: Slot,
    node: &'a NodeInfo,
    spec: &'a NodeSpec,
}

/// `NodeResourcesFit` (least allocated) and `NodeResourcesBalancedAllocation`.
fn resources(pod: &PodInfo, node: &NodeInfo, spec: &NodeSpec) -> i64 {
    let (has, requests) = (&spec.allocatable, &pod.requests);
    let unused = |capacity: i64, taken: i64| {
        if taken > capacity {
            0
        } else {
            (i128::from(capacity - taken) * i128::from(BEST) / i128::from(capacity)) as i64
        }
    };
    let mut sum = (0, 0);
    let wanted = [(has.cpu, node.scored.0 + requests.scored_cpu), (has.memory, node.scored.1 + requests.scored_memory)];
    for (capacity, taken) in wanted.into_iter().filter(|(capacity, _)| *capacity > 0) {
        sum = (sum.0 + unused(capacity, taken), sum.1 + 1);
    }
    let least_allocated = if sum.1 == 0 { 0 } else { sum.0 / sum.1 };
    let exact = &requests.exact;
    if exact.cpu == 0 && exact.memory == 0 {
        return least_allocated;
    }
    let balance = |cpu: i64, memory: i64| {
        if has.cpu == 0 || has.memory == 0 {
            return BEST;
        }
        let share = |taken: i64, capacity: i64| (taken as f64 / capacity as f64).min(1.0);
        let deviation = ((share(cpu, has.cpu) - share(memory, has.memory)) / 2.0).abs();
        ((1.0 - deviation) * BEST as f64) as i64
    };
    let without = balance(node.requested.cpu, node.requested.memory);
    let with = balance(node.requested.cpu + exact.cpu, node.requested.memory + exact.memory);
    least_allocated + BEST / 2 + (BEST / 2 + with - without) / 2
}

/// Upstream's `DefaultNormalizeScore`.
fn normalize(mut counts: Vec<i64>, reverse: bool) -> Option<Vec<i64>> {
    let most = counts.iter().copied().max().filter(|most| *most > 0)?;
    for count in &mut counts {
        let score = BEST * *count / most;
        *count = if reverse { BEST - score } else { score };
    }
    Some(counts)
}

fn taints(pod: &PodInfo, nodes: &[Scored<'_>]) -> Option<Vec<i64>> {
    let tolerations: Vec<_> = pod.tolerations.iter().filter(|one| one.covers_soft_taints()).collect();
    let count = |one: &Scored<'_>| {
        let soft = one.spec.taints.iter().filter(|taint| &*taint.effect == "PreferNoSchedule");
        soft.filter(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint))).count() as i64
    };
    normalize(nodes.iter().map(count).collect(), true)
}

fn node_affinity(pod: &PodInfo, nodes: &[Scored<'_>]) -> Option<Vec<i64>> {
    if pod.preferred_nodes.is_empty() {
        return None;
    }
    let weigh = |one: &Scored<'_>| {
        let terms = pod.preferred_nodes.iter();
        let liked = terms.filter(|(_, term)| term.matches(&one.spec.name, &one.spec.labels));
        liked.map(|(weight, _)| i64::from(*weight)).sum()
    };
    normalize(nodes.iter().map(weigh).collect(), false)
}

/// `PodTopologySpread`: nodes in domains with few pods are liked more.
fn spread(cluster: &Snapshot, pod: &PodInfo, nodes: &[Scored<'_>], defaults: &[SpreadConstraint]) -> Option<Vec<i64>> {
    let constraints: Vec<&SpreadConstraint> = pod.spread.iter().filter(|one| !one.hard).chain(defaults).collect();
    if constraints.is_empty() {
        return None;
    }
    // Without constraints of its own a pod does not need nodes to have all labels.
    let need_labels = defaults.is_empty();
    let ignored =
        |slot: Slot| need_labels && constraints.iter().any(|one| cluster.topology(&one.key).domain(slot) == NOWHERE);
    let counted: Vec<bool> = nodes.iter().map(|one| !ignored(one.slot)).collect();
    let mut scores = vec![0.0_f64; nodes.len()];
    for constraint in constraints.iter().copied() {
        let topology = cluster.topology(&constraint.key);
        let group = cluster.groups.get(&spread_key(constraint));
        let group = group.filter(|_| !constraint.selector.selector.is_everything());
        let by_node = &*constraint.key == HOSTNAME;
        let mut sums = vec![0_i64; if by_node { 0 } else { topology.len() }];
        let domains: usize = if by_node {
            counted.iter().filter(|counted| **counted).count()
        } else {
            let candidates = nodes.iter().zip(&counted).filter(|(_, counted)| **counted);
            candidates.map(|(one, _)| topology.domain(one.slot)).collect::<HashSet<Domain>>().len()
        };
        if !by_node {
            for (slot, count) in group.into_iter().flatten() {
                let node = cluster.nodes[*slot as usize].spec.as_ref();
                let counts = node.is_some_and(|node| counts_for(constraint, pod, node)) && !ignored(*slot);
                if let (true, Some(sum)) = (counts, sums.get_mut(topology.domain(*slot) as usize)) {
                    *sum += i64::from(*count);
                }
            }
        }
        let weight = ((domains + 2) as f64).ln();
        for ((score, one), _) in scores.iter_mut().zip(nodes).zip(&counted).filter(|(_, counted)| **counted) {
            let domain = topology.domain(one.slot);
            if domain == NOWHERE {
                continue;
            }
            let count = if by_node {
                group.and_then(|group| group.get(&one.slot)).copied().map_or(0, i64::from)
            } else {
                sums[domain as usize]
            };
            *score += count as f64 * weight + (constraint.max_skew - 1) as f64;
        }
    }
    let scores: Vec<i64> = scores.into_iter().map(|score| score.round() as i64).collect();
    let valid = || scores.iter().zip(&counted).filter(|(_, counted)| **counted).map(|(score, _)| *score);
    let (least, most) = (valid().min().unwrap_or(0), valid().max().unwrap_or(0));
    let normal = scores.iter().zip(&counted).map(|(score, counted)| match (counted, most) {
        (false, _) => 0,
        (true, 0) => BEST,
        (true, most) => BEST * (most + least - score) / most,
    });
    Some(normal.collect())
}

/// `InterPodAffinity`: the preferences of the pod about others, and of others about the pod.
fn neighbours(cluster: &Snapshot, pod: &PodInfo, nodes: &[Scored<'_>]) -> Option<Vec<i64>> {
    let mut sums: Vec<(&str, Vec<i64>)> = Vec::new();
    let mut add = |key, counts: &crate::counts::ByNode, weight: i32| {
        let topology = cluster.topology(key);
        let at = sums.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            sums.push((key, vec![0; topology.len()]));
            sums.len() - 1
        });
        for (slot, count) in counts {
            if let Some(sum) = sums[at].1.get_mut(topology.domain(*slot) as usize) {
                *sum += i64::from(weight) * i64::from(*count);
            }
        }
    };
    for (weight, term) in pod.affinity.iter().flat_map(|affinity| affinity.preferred.iter()) {
        if let Some(counts) = cluster.groups.get(&term_key(term)) {
            add(&term.key, counts, *weight);
        }
    }
    let namespace = cluster.namespace(&pod.namespace);
    for held in cluster.weighing.candidates(&pod.namespace).filter(|held| held.scope.matches(pod, namespace)) {
        add(&held.key, &held.counts, held.weight);
    }
    if sums.is_empty() {
        return None;
    }
    let score = |one: &Scored<'_>| -> i64 {
        let near = sums.iter().filter_map(|(key, sums)| sums.get(cluster.topology(key).domain(one.slot) as usize));
        near.sum()
    };
    let scores: Vec<i64> = nodes.iter().map(score).collect();
    let (least, most) = (scores.iter().copied().min()?, scores.iter().copied().max()?);
    let range = (most - least) as f64;
    let normal = |score: i64| if most > least { (BEST as f64 * ((score - least) as f64 / range)) as i64 } else { 0 };
    Some(scores.into_iter().map(normal).collect())
}

/// `ImageLocality`: nodes that have large parts of the images already; the less so the fewer nodes have them.
fn images(cluster: &Snapshot, pod: &PodInfo, nodes: &[Scored<'_>]) -> Option<Vec<i64>> {
    let known = pod.images.iter().filter_map(|image| match cluster.nodes_with_image(image) {
        0 => None,
        nodes => Some((image, nodes)),
    });
    let known: Vec<(&Box<str>, u32)> = known.collect();
    if known.is_empty() || pod.containers == 0 {
        return None;
    }
    let all = cluster.order().len() as f64;
    let (least, most) = (23 * MEGABYTE, 1000 * MEGABYTE * pod.containers as i64);
    let score = |one: &Scored<'_>| {
        let sizes = known.iter().filter_map(|(image, nodes)| Some((*one.spec.images.get(*image)?, *nodes)));
        let sum: i64 = sizes.map(|(size, nodes)| (size as f64 * (f64::from(nodes) / all)) as i64).sum();
        BEST * (sum.clamp(least, most) - least) / (most - least)
    };
    Some(nodes.iter().map(score).collect())
}
