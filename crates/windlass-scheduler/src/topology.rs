//! The values of a label of nodes, numbered, so that counting by domain is adding to a list.

use std::collections::HashMap;

use crate::counts::Slot;

/// A value of a topology label.
pub(crate) type Domain = u32;

/// A node without the label.
pub(crate) const NOWHERE: Domain = Domain::MAX;

/// Which node is in which domain of one label.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    numbers: HashMap<Box<str>, Domain>,
    /// The value, and how many nodes have it.
    domains: Vec<(Box<str>, u32)>,
    free: Vec<Domain>,
    by_slot: Vec<Domain>,
}

impl Topology {
    /// The domain of a node, [`NOWHERE`] without the label.
    pub(crate) fn domain(&self, slot: Slot) -> Domain {
        self.by_slot.get(slot as usize).copied().unwrap_or(NOWHERE)
    }

    /// How many numbers are in use, at most: the length of a list by domain.
    pub(crate) fn len(&self) -> usize {
        self.domains.len()
    }

    /// A node has this value of the label now, or none.
    pub(crate) fn set(&mut self, slot: Slot, value: Option<&str>) {
        let before = self.domain(slot);
        if before != NOWHERE {
            if value == Some(&*self.domains[before as usize].0) {
                return;
            }
            let (name, nodes) = &mut self.domains[before as usize];
            *nodes -= 1;
            if *nodes == 0 {
                self.numbers.remove(name);
                self.free.push(before);
            }
        }
        if self.by_slot.len() <= slot as usize {
            self.by_slot.resize(slot as usize + 1, NOWHERE);
        }
        self.by_slot[slot as usize] = value.map_or(NOWHERE, |value| self.number(value));
    }

    fn number(&mut self, value: &str) -> Domain {
        if let Some(domain) = self.numbers.get(value) {
            self.domains[*domain as usize].1 += 1;
            return *domain;
        }
        let domain = if let Some(domain) = self.free.pop() {
            self.domains[domain as usize] = (value.into(), 1);
            domain
        } else {
            self.domains.push((value.into(), 1));
            self.domains.len() as Domain - 1
        };
        self.numbers.insert(value.into(), domain);
        domain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_values_that_no_node_has_are_used_again() {
        let mut topology = Topology::default();
        topology.set(0, Some("a"));
        topology.set(1, Some("a"));
        topology.set(2, Some("b"));
        assert_eq!(topology.domain(0), topology.domain(1));
        assert_ne!(topology.domain(0), topology.domain(2));
        topology.set(2, None);
        assert_eq!(topology.domain(2), NOWHERE);
        topology.set(2, Some("c"));
        assert_eq!(topology.len(), 2);
        topology.set(0, Some("a"));
        topology.set(0, Some("c"));
        assert_eq!(topology.domain(0), topology.domain(2));
        assert_eq!(topology.domain(9), NOWHERE);
    }
}
