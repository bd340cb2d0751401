//! Slow handlers: what they are told in the end, and how much is kept for them meanwhile.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::*;
use crate::reflector::typed_ref;

fn object(name: &str, uid: u32, version: u32) -> Shared {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.into());
    map.metadata.uid = Some(uid.to_string());
    map.metadata.resource_version = Some(version.to_string());
    Arc::new(map)
}

fn version(object: &Shared) -> &str {
    object.metadata().resource_version.as_deref().unwrap()
}

fn told(changes: &[Told]) -> Vec<String> {
    let told = |change: &Told| match change {
        Change::Added { object, initial } => format!("+{}{}", version(object), if *initial { " initial" } else { "" }),
        Change::Updated { old, new } => format!("{}>{}", version(old), version(new)),
        Change::Resync { object } => format!("={}", version(object)),
        Change::Deleted { object } => format!("-{}", version(object)),
    };
    changes.iter().map(told).collect()
}

/// The server's side of a handler: the objects that exist, and their changes.
struct World {
    exists: BTreeMap<String, Shared>,
    pending: Pending,
    count: u32,
}

impl World {
    fn new(limit: usize) -> Self {
        Self { exists: BTreeMap::new(), pending: Pending::new(limit), count: 0 }
    }

    fn add(&mut self, name: &str) {
        self.count += 1;
        let added = object(name, self.count, self.count);
        self.exists.insert(name.to_owned(), Arc::clone(&added));
        self.pending.push(Change::Added { object: added, initial: false });
    }

    fn update(&mut self, name: &str) {
        self.count += 1;
        let old = Arc::clone(&self.exists[name]);
        let mut new = typed_ref::<ConfigMap>(&*old).clone();
        new.metadata.resource_version = Some(self.count.to_string());
        let new: Shared = Arc::new(new);
        self.exists.insert(name.to_owned(), Arc::clone(&new));
        self.pending.push(Change::Updated { old, new });
    }

    fn delete(&mut self, name: &str) {
        let object = self.exists.remove(name).unwrap();
        self.pending.push(Change::Deleted { object });
    }

    fn resync(&mut self, name: &str) {
        self.pending.push(Change::Resync { object: Arc::clone(&self.exists[name]) });
    }

    fn step(&mut self) -> Option<Vec<Told>> {
        match self.pending.next()? {
            Next::Change(change) => Some(vec![change]),
            Next::Merged(key) => {
                let now = self.exists.get(key.name()).cloned();
                Some(self.pending.take(&key, || now).into_iter().flatten().collect())
            }
        }
    }

    fn drain(&mut self) -> Vec<Told> {
        let mut all = Vec::new();
        while let Some(changes) = self.step() {
            all.extend(changes);
        }
        all
    }
}

#[test]
fn every_change_is_kept_up_to_the_limit() {
    let mut world = World::new(8);
    world.add("a");
    world.update("a");
    world.resync("a");
    world.update("a");
    world.delete("a");
    world.add("a");
    assert_eq!(told(&world.drain()), ["+1", "1>2", "=2", "2>3", "-3", "+4"]);
}

#[test]
fn changes_over_the_limit_are_merged_by_object() {
    let check = |changes: &[&str], expected: &[&str]| {
        let mut world = World::new(1);
        for name in ["a", "b"] {
            world.add(name);
        }
        world.drain();
        // Takes the room there is.
        world.update("b");
        for change in changes {
            match *change {
                "add" => world.add("a"),
                "update" => world.update("a"),
                "delete" => world.delete("a"),
                _ => world.resync("a"),
            }
        }
        assert_eq!(told(&world.drain())[1..], *expected, "{changes:?}");
        assert_eq!(world.pending.len(), 0);
    };
    check(&["update"], &["1>4"]);
    check(&["update", "update", "update"], &["1>6"]);
    check(&["resync"], &["=1"]);
    check(&["resync", "update", "resync"], &["1>4"]);
    check(&["delete"], &["-1"]);
    check(&["update", "delete"], &["-4"]);
    check(&["resync", "delete"], &["-1"]);
    check(&["delete", "add"], &["-1", "+4"]);
    check(&["delete", "add", "update"], &["-1", "+5"]);
    check(&["update", "delete", "add", "delete"], &["-4"]);
}

#[test]
fn objects_that_come_and_go_leave_nothing_behind() {
    let mut world = World::new(2);
    for n in 0..1000 {
        let name = format!("job-{n}");
        world.add(&name);
        world.update(&name);
        world.delete(&name);
    }
    assert!(world.pending.len() <= 3, "{}", world.pending.len());
}

#[test]
fn known_objects_are_read_when_they_are_told() {
    let mut world = World::new(0);
    for name in ["a", "b"] {
        world.exists.insert(name.into(), object(name, 1, 7));
        world.pending.push_known(ObjectKey::new("", name));
    }
    world.update("b");
    world.delete("a");
    assert_eq!(told(&world.drain()), ["+1 initial"], "the current state of what is left");
}

proptest! {
    /// A handler that keeps a copy has the same objects as the server in the end, at any speed, and what it is told
    /// fits what it was told before.
    #[test]
    fn a_copy_kept_by_a_handler_is_right(limit in 0_usize..4, steps in prop::collection::vec((0_u8..6, 0_u8..3), 0..60)) {
        let mut world = World::new(limit);
        let mut copy: BTreeMap<String, Shared> = BTreeMap::new();
        let mut apply = |changes: Vec<Told>| {
            for change in changes {
                let name = change.object().metadata().name.clone().unwrap();
                match change {
                    Change::Added { object, .. } => assert!(copy.insert(name, object).is_none(), "added twice"),
                    Change::Updated { old, new } => {
                        let known = copy.insert(name, new).unwrap();
                        assert_eq!(version(&known), version(&old));
                    }
                    Change::Resync { object } => assert_eq!(version(&copy[&name]), version(&object)),
                    Change::Deleted { object } => {
                        let known = copy.remove(&name).unwrap();
                        assert_eq!(known.uid(), object.uid());
                    }
                }
            }
            copy.clone()
        };
        for (step, name) in steps {
            let name = name.to_string();
            let exists = world.exists.contains_key(&name);
            match step {
                0 if exists => world.delete(&name),
                0 | 1 if !exists => world.add(&name),
                1 | 2 if exists => world.update(&name),
                3 if exists => world.resync(&name),
                _ => drop(apply(world.step().unwrap_or_default())),
            }
            prop_assert!(world.pending.len() <= limit + 6);
        }
        let copy = apply(world.drain());
        let known: Vec<_> = copy.iter().map(|(name, object)| (name.clone(), version(object))).collect();
        let exists: Vec<_> = world.exists.iter().map(|(name, object)| (name.clone(), version(object))).collect();
        prop_assert_eq!(known, exists);
    }
}
