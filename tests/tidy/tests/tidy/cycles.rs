//! Strongly connected components of a small graph.

use std::collections::{BTreeMap, BTreeSet};

/// What each node leads to.
pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

/// The sets of nodes that lead to each other.
pub(crate) fn cycles(graph: &Graph) -> BTreeSet<BTreeSet<String>> {
    let reachable: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|from| (from.as_str(), reach(graph, from))).collect();
    let together = |a: &str, b: &str| reachable[a].contains(b) && reachable.get(b).is_some_and(|from| from.contains(a));
    let cycle = |node: &String| -> BTreeSet<String> {
        graph.keys().filter(|other| *other == node || together(node, other)).cloned().collect()
    };
    graph.keys().map(cycle).filter(|cycle| cycle.len() > 1).collect()
}

/// Everything that a node leads to, directly or not.
fn reach<'g>(graph: &'g Graph, from: &str) -> BTreeSet<&'g str> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(node) = next.pop() {
        for to in graph.get(node).into_iter().flatten() {
            if found.insert(to.as_str()) {
                next.push(to);
            }
        }
    }
    found
}

#[test]
fn cycles_are_found_whatever_their_length() {
    let graph = |edges: &[(&str, &str)]| {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            graph.entry((*to).to_owned()).or_default();
        }
        graph
    };
    let set = |nodes: &str| nodes.split(' ').map(str::to_owned).collect::<BTreeSet<String>>();
    assert_eq!(cycles(&graph(&[("a", "b"), ("b", "c"), ("a", "c")])), BTreeSet::new());
    let found = cycles(&graph(&[("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "c")]));
    assert_eq!(found, BTreeSet::from([set("a b"), set("c d e")]));
}
