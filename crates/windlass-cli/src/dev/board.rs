//! What is known about the objects and the work of the operator. Bounded, and pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::logs::Reconcile;
use super::objects::{Change, Object};
use super::samples::Sample;
use super::told::Told;
use crate::against::apply::Version;

/// How many reconciles are remembered.
const RECONCILES: usize = 50;
/// How many objects are remembered.
const OBJECTS: usize = 1000;

#[derive(Default)]
pub(super) struct Board {
    pub project: String,
    pub cluster: String,
    /// What cargo does at the moment.
    pub progress: Option<String>,
    pub last_build: Option<Duration>,
    objects: BTreeMap<(String, String), Object>,
    reconciles: VecDeque<Reconcile>,
    samples: Option<Samples>,
}

/// The samples whose readiness is waited for, each with what was applied.
struct Samples {
    names: BTreeMap<(String, String), Version>,
    since: Instant,
    told: bool,
}

impl Board {
    pub(super) fn new(project: String, cluster: String) -> Self {
        Self { project, cluster, ..Self::default() }
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// The last reconciles, the newest first.
    pub(super) fn reconciles(&self) -> impl Iterator<Item = &Reconcile> {
        self.reconciles.iter().rev()
    }

    pub(super) fn reconciled(&mut self, done: Reconcile) {
        if self.reconciles.len() == RECONCILES {
            self.reconciles.pop_front();
        }
        self.reconciles.push_back(done);
    }

    /// Waits for samples: kinds and names, with what the server has of them.
    pub(super) fn applied(&mut self, names: impl IntoIterator<Item = ((String, String), Version)>, now: Instant) {
        let known = self.samples.take().map(|samples| samples.names).unwrap_or_default();
        let names: BTreeMap<_, _> = known.into_iter().chain(names).collect();
        self.samples = (!names.is_empty()).then_some(Samples { names, since: now, told: false });
    }

    /// Waits for a sample no more, because it is deleted.
    pub(super) fn forget(&mut self, sample: &Sample) {
        let whole = format!("{}/{}", sample.namespace, sample.name);
        let Some(samples) = &mut self.samples else { return };
        // A kind of the cluster has no namespaces.
        samples.names.retain(|(kind, name), _| *kind != sample.kind || (*name != whole && *name != sample.name));
        if samples.names.is_empty() {
            self.samples = None;
        }
    }

    /// How many samples are ready, and how many there are.
    pub(super) fn samples(&self) -> (usize, usize) {
        let Some(samples) = &self.samples else { return (0, 0) };
        let ready = samples.names.iter().filter(|(name, applied)| self.is_ready(name, applied)).count();
        (ready, samples.names.len())
    }

    /// The samples that are not ready.
    pub(super) fn waiting(&self) -> Vec<String> {
        let names = self.samples.iter().flat_map(|samples| &samples.names);
        let waiting = names.filter(|(name, applied)| !self.is_ready(name, applied));
        waiting.map(|((kind, name), _)| format!("{kind} {name}")).collect()
    }

    /// Whether an object is ready as it was applied: the watch may still show what was there before.
    fn is_ready(&self, name: &(String, String), applied: &Version) -> bool {
        self.objects.get(name).is_some_and(|object| {
            let current = object.version.uid == applied.uid && object.version.generation >= applied.generation;
            object.ready == Some(true) && !object.deleting && current
        })
    }

    /// Takes a change in, and returns what is to be told about it.
    pub(super) fn change(&mut self, change: Change, now: Instant) -> Vec<Told> {
        let mut told = Vec::new();
        match change {
            Change::All { kind, objects } => {
                let names: BTreeSet<&String> = objects.iter().map(|object| &object.name).collect();
                let gone: Vec<(String, String)> = self
                    .objects
                    .keys()
                    .filter(|(known, name)| *known == kind && !names.contains(name))
                    .cloned()
                    .collect();
                for key in gone {
                    self.remove(&key, &mut told);
                }
                for object in objects {
                    self.see(object, &mut told);
                }
            }
            Change::Seen(object) => self.see(object, &mut told),
            Change::Gone { kind, name } => self.remove(&(kind, name), &mut told),
        }
        told.extend(self.all_ready(now));
        told
    }

    /// Says once that all samples are ready.
    pub(super) fn all_ready(&mut self, now: Instant) -> Option<Told> {
        let (ready, count) = self.samples();
        let samples = self.samples.as_mut().filter(|samples| ready == count && !samples.told)?;
        samples.told = true;
        Some(Told::Ready { count, after: now.duration_since(samples.since) })
    }

    fn see(&mut self, object: Object, told: &mut Vec<Told>) {
        let key = (object.kind.clone(), object.name.clone());
        if !self.objects.contains_key(&key) && self.objects.len() == OBJECTS {
            return;
        }
        let state = |object: &Object| (object.ready, object.deleting, object.reason.clone(), object.message.clone());
        let before = self.objects.insert(key, object.clone());
        if before.as_ref().map(state) != Some(state(&object)) {
            told.push(Told::Object { object, gone: false });
        }
    }

    fn remove(&mut self, key: &(String, String), told: &mut Vec<Told>) {
        if let Some(object) = self.objects.remove(key) {
            told.push(Told::Object { object, gone: true });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn object(name: &str, ready: Option<bool>) -> Object {
        Object {
            kind: "Guestbook".into(),
            name: name.into(),
            ready,
            reason: String::new(),
            message: String::new(),
            conditions: Vec::new(),
            deleting: false,
            version: version(1),
        }
    }

    fn version(generation: i64) -> Version {
        Version { uid: "u".into(), generation }
    }

    fn sample(name: &str, version: Version) -> ((String, String), Version) {
        (("Guestbook".into(), name.into()), version)
    }

    fn lines(told: &[Told]) -> Vec<String> {
        told.iter().map(|told| told.line().1).collect()
    }

    #[test]
    fn readiness_is_awaited_and_told_once() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.applied([sample("a", version(1)), sample("b", version(1))], now);
        assert_eq!(lines(&board.change(Change::Seen(object("a", None)), now)), ["Guestbook a waits to be reconciled"]);
        assert_eq!(lines(&board.change(Change::Seen(object("a", Some(true))), now)), ["Guestbook a is ready"]);
        assert_eq!(board.waiting(), ["Guestbook b"]);
        let later = now + Duration::from_millis(120);
        let told = board.change(Change::Seen(object("b", Some(true))), later);
        assert_eq!(lines(&told), ["Guestbook b is ready", "all samples (2) are ready, 120 ms after they were applied"]);
        assert!(board.change(Change::Seen(object("b", Some(true))), later).is_empty(), "nothing new");
        assert_eq!(board.samples(), (2, 2));
    }

    #[test]
    fn a_deleted_sample_is_not_awaited() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.applied([sample("default/a", version(1)), sample("default/b", version(1))], now);
        board.change(Change::Seen(object("default/b", Some(true))), now);
        let deleted = |kind: &str, name: &str| Sample {
            api_version: "webapp.my.domain/v1".into(),
            kind: kind.into(),
            namespace: "default".into(),
            name: name.into(),
        };
        board.forget(&deleted("Other", "b"));
        assert_eq!(board.samples(), (1, 2));
        board.forget(&deleted("Guestbook", "a"));
        assert_eq!(board.samples(), (1, 1));
        assert!(board.all_ready(now).is_some(), "the other one is ready");
        board.forget(&deleted("Guestbook", "b"));
        assert!(board.all_ready(now).is_none());
    }

    #[test]
    fn readiness_of_an_older_spec_does_not_count() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.change(Change::Seen(object("a", Some(true))), now);
        board.applied([sample("a", version(2))], now);
        assert!(board.all_ready(now).is_none(), "the watch shows what was there before");
        assert_eq!(board.waiting(), ["Guestbook a"]);
        let seen = Object { version: version(2), ..object("a", Some(true)) };
        let told = lines(&board.change(Change::Seen(seen), now));
        assert_eq!(told, ["all samples (1) are ready, <0.1 ms after they were applied"]);
        // An object of the same name that was deleted and created again.
        board.applied([sample("a", Version { uid: "new".into(), generation: 1 })], now);
        assert!(board.all_ready(now).is_none(), "another object");
    }

    #[test]
    fn objects_that_a_list_does_not_have_are_gone() {
        let (mut board, now) = (Board::default(), Instant::now());
        let all = |objects: Vec<Object>| Change::All { kind: "Guestbook".into(), objects };
        board.change(all(vec![object("a", None), object("b", None)]), now);
        assert_eq!(lines(&board.change(all(vec![object("b", None)]), now)), ["Guestbook a is gone"]);
        let gone = Change::Gone { kind: "Guestbook".into(), name: "b".into() };
        assert_eq!(lines(&board.change(gone, now)), ["Guestbook b is gone"]);
    }

    #[test]
    fn only_the_last_reconciles_are_kept() {
        let mut board = Board::default();
        for number in 0..2 * RECONCILES {
            let key = number.to_string();
            board.reconciled(Reconcile { controller: "c".into(), key, outcome: "success".into(), seconds: 0.0 });
        }
        assert_eq!(board.reconciles().count(), RECONCILES);
        assert_eq!(board.reconciles().next().unwrap().key, (2 * RECONCILES - 1).to_string());
    }
}
