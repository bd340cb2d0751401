//! The core against the naive implementation, on random clusters that change between decisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;
use k8s_openapi::api::core::v1::{Node, Pod};
use windlass_scheduler::labels::Labels;
use windlass_scheduler::{Decision, NodeSpec, Nomination, PodInfo, Snapshot};

use crate::naive::{World, name};
use crate::random;

/// Both, kept the same.
struct Pair {
    world: World,
    cluster: Snapshot,
    next: usize,
}

impl Pair {
    fn new(random: &mut Rng) -> Self {
        let mut pair = Self { world: World::default(), cluster: Snapshot::new(), next: 0 };
        for name in ["one", "two"] {
            pair.label(random, name);
        }
        for number in 0..random.usize(1..6) {
            pair.set_node(random::node(random, &format!("n{number}")));
        }
        for _ in 0..random.usize(0..24) {
            pair.world.storage.change(random, &mut pair.cluster);
        }
        for _ in 0..random.usize(0..10) {
            pair.place(random);
        }
        for _ in 0..random.usize(0..3) {
            pair.nominate(random);
        }
        pair
    }

    fn label(&mut self, random: &mut Rng, namespace: &str) {
        let labels = random::labels(random);
        self.cluster.set_namespace(namespace, Labels::new(Some(&labels)));
        self.world.namespaces.insert(namespace.to_owned(), labels);
    }

    fn set_node(&mut self, node: Node) {
        self.cluster.set_node(NodeSpec::new(&node));
        self.world.nodes.retain(|other| name(other) != name(&node));
        self.world.nodes.push(node);
    }

    fn pod(&mut self, random: &mut Rng) -> Pod {
        self.next += 1;
        random::pod(random, self.next)
    }

    /// Puts a pod on some node, whether it suits or not, and perhaps on one that does not exist.
    fn place(&mut self, random: &mut Rng) {
        let mut pod = self.pod(random);
        let node = format!("n{}", random.usize(..6));
        pod.spec.as_mut().unwrap().node_name = Some(node);
        self.cluster.add_pod(&Arc::new(PodInfo::new(&pod)));
        self.world.pods.push(pod);
    }

    /// Has a pod wait for room on some node.
    fn nominate(&mut self, random: &mut Rng) {
        let (pod, node) = (self.pod(random), format!("n{}", random.usize(..6)));
        self.cluster.nominate(&Arc::new(PodInfo::new(&pod)), &node);
        self.world.nominated.push((pod, node));
    }

    /// A pod without a node. It may ask for one, or wait for room on one.
    fn incoming(&mut self, random: &mut Rng) -> Pod {
        let mut pod = self.pod(random);
        pod.metadata.deletion_timestamp = None;
        let node = format!("n{}", random.usize(..5));
        match random.usize(..10) {
            0 => pod.spec.as_mut().unwrap().node_name = Some(node),
            1 => {
                pod.status.get_or_insert_default().nominated_node_name = Some(node.clone());
                self.cluster.nominate(&Arc::new(PodInfo::new(&pod)), &node);
                self.world.nominated.push((pod.clone(), node));
            }
            _ => {}
        }
        pod
    }

    fn change(&mut self, random: &mut Rng) {
        match random.usize(..8) {
            5 => self.world.storage.change(random, &mut self.cluster),
            6 => self.nominate(random),
            7 if !self.world.nominated.is_empty() => {
                let (pod, _) = self.world.nominated.swap_remove(random.usize(..self.world.nominated.len()));
                self.cluster.denominate(pod.metadata.uid.as_deref().unwrap());
            }
            0 => self.place(random),
            1 | 2 if !self.world.pods.is_empty() => {
                let pod = self.world.pods.swap_remove(random.usize(..self.world.pods.len()));
                let meta = &pod.metadata;
                self.cluster.remove_pod(meta.namespace.as_deref().unwrap(), meta.uid.as_deref().unwrap());
            }
            3 => self.set_node(random::node(random, &format!("n{}", random.clone().usize(..6)))),
            4 if random.bool() && !self.world.nodes.is_empty() => {
                let node = self.world.nodes.swap_remove(random.usize(..self.world.nodes.len()));
                self.cluster.remove_node(name(&node));
            }
            _ => self.label(random, "two"),
        }
    }

    fn check(&mut self, pod: &Pod, random: &mut Rng, seed: u64) {
        let expected = self.world.feasible(pod);
        let info = PodInfo::new(pod);
        let found = self.cluster.feasible(&info);
        let found: BTreeSet<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "seed {seed}, pod {pod:#?}");
        match self.cluster.schedule(&info, random) {
            Decision::Bind { node, .. } => assert!(expected.contains(&*node), "seed {seed}: bound to {node}"),
            Decision::Wait(failure) => {
                assert!(expected.is_empty(), "seed {seed}: {}", failure.message);
                if let Nomination::Preempt { node, victims } = failure.nomination {
                    self.check_victims(pod, &node, &victims, seed);
                }
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }

    /// The victims are less important, and their going makes the node suit.
    fn check_victims(&self, pod: &Pod, node: &str, victims: &[Arc<PodInfo>], seed: u64) {
        assert!(!victims.is_empty(), "seed {seed}");
        let priority = pod.spec.as_ref().unwrap().priority.unwrap();
        assert!(victims.iter().all(|victim| victim.priority < priority && victim.node.as_deref() == Some(node)));
        let mut after = self.world.clone();
        let gone: BTreeSet<&str> = victims.iter().map(|victim| &*victim.uid).collect();
        after.pods.retain(|pod| !gone.contains(pod.metadata.uid.as_deref().unwrap()));
        assert!(after.feasible(pod).contains(node), "seed {seed}: going of {gone:?} from {node} does not help");
    }
}

fn compare(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut random = Rng::with_seed(seed);
        let mut pair = Pair::new(&mut random);
        for _ in 0..3 {
            let pod = pair.incoming(&mut random);
            pair.check(&pod, &mut random, seed);
            pair.change(&mut random);
            pair.change(&mut random);
            pair.check(&pod, &mut random, seed);
        }
    }
}

#[test]
fn feasible_nodes_are_those_of_a_naive_scheduler() {
    compare(0..5_000);
}

#[test]
fn feasible_nodes_are_those_of_a_naive_scheduler_as_well() {
    compare(5_000..10_000);
}
