//! Both engines against a model that is too simple to be wrong: every state there ever was.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::executor::block_on;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tempfile::TempDir;
use windlass_store::{
    Durable, DurableOptions, Entry, Expect, HistoryBudget, Memory, Range, Revision, Store, StoreError, TxnResult,
    Value, Write,
};

/// One step of a random run. Keys are few, so that runs meet themselves.
#[derive(Clone, Debug)]
enum Step {
    Txn(Vec<(u8, Action)>),
    Range { from: u8, to: Option<u8>, at: Option<Index>, limit: usize },
    Events { after: Index, limit: usize },
    Compact(Index),
    Reopen { close: bool },
}

#[derive(Clone, Debug)]
struct Action {
    expect: Guess,
    /// `None` deletes.
    value: Option<u16>,
    /// Splices the revision into the value, or gives a delete its own last value.
    special: bool,
}

#[derive(Clone, Debug)]
enum Guess {
    Absent,
    Present,
    Any,
    Right,
    At(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let guess = prop_oneof![
        1 => Just(Guess::Absent),
        1 => Just(Guess::Present),
        4 => Just(Guess::Any),
        2 => Just(Guess::Right),
        1 => any::<Index>().prop_map(Guess::At),
    ];
    let action = (guess, proptest::option::weighted(0.7, 0..600_u16), any::<bool>())
        .prop_map(|(expect, value, special)| Action { expect, value, special });
    let step = prop_oneof![
        10 => vec((0..12_u8, action), 0..4).prop_map(Step::Txn),
        3 => (0..12_u8, proptest::option::of(0..12_u8), proptest::option::of(any::<Index>()), 0..5_usize)
            .prop_map(|(from, to, at, limit)| Step::Range { from, to, at, limit }),
        2 => (any::<Index>(), 0..6_usize).prop_map(|(after, limit)| Step::Events { after, limit }),
        1 => any::<Index>().prop_map(Step::Compact),
        1 => any::<bool>().prop_map(|close| Step::Reopen { close }),
    ];
    vec(step, 1..80)
}

fn key(n: u8) -> Bytes {
    format!("key/{n:02}").into()
}

/// Every state the store has been in, and every event. The state of revision 1 is empty.
struct Model {
    states: Vec<BTreeMap<Bytes, Entry>>,
    events: Vec<(Revision, Entry, Option<Entry>, bool)>,
    compacted: Revision,
}

impl Model {
    fn new() -> Self {
        Self { states: vec![BTreeMap::new()], events: Vec::new(), compacted: 1 }
    }

    fn revision(&self) -> Revision {
        self.states.len() as Revision
    }

    fn at(&self, revision: Revision) -> &BTreeMap<Bytes, Entry> {
        &self.states[revision as usize - 1]
    }

    /// A revision from 0 to one beyond the newest.
    fn pick(&self, index: Index) -> Revision {
        index.index(self.states.len() + 2) as Revision
    }

    fn expect(&self, key: &Bytes, guess: &Guess) -> Expect {
        match guess {
            Guess::Absent => Expect::Absent,
            Guess::Present => Expect::Present,
            Guess::Any => Expect::Any,
            Guess::Right => {
                self.at(self.revision()).get(key).map_or(Expect::Absent, |entry| Expect::At(entry.modified))
            }
            Guess::At(index) => Expect::At(self.pick(*index)),
        }
    }

    /// What the store should answer: the conflict, or the entries.
    fn txn(&mut self, writes: &[Write]) -> Result<Vec<Option<Entry>>, (usize, Option<Entry>)> {
        let mut state = self.at(self.revision()).clone();
        let revision = self.revision() + 1;
        let mut entries = Vec::new();
        let mut events = Vec::new();
        for (index, write) in writes.iter().enumerate() {
            let (Write::Put { key, expect, .. } | Write::Delete { key, expect, .. }) = write;
            let current = state.get(key).cloned();
            let holds = match (expect, &current) {
                (Expect::Any, _) | (Expect::Absent, None) | (Expect::Present, Some(_)) => true,
                (Expect::At(revision), Some(entry)) => entry.modified == *revision,
                _ => false,
            };
            if !holds {
                return Err((index, current));
            }
            let created = current.as_ref().map_or(revision, |entry| entry.created);
            let entry = |value| Entry { key: key.clone(), value, created, modified: revision };
            match write {
                Write::Put { value, .. } => {
                    let entry = entry(value.resolve(revision));
                    state.insert(key.clone(), entry.clone());
                    events.push((revision, entry.clone(), current, false));
                    entries.push(Some(entry));
                }
                Write::Delete { last, .. } => {
                    entries.push(None);
                    if let Some(current) = current {
                        let last = last.as_ref().map_or(current.value.clone(), |last| last.resolve(revision));
                        state.remove(key);
                        events.push((revision, entry(last), Some(current), true));
                    }
                }
            }
        }
        if !events.is_empty() {
            self.states.push(state);
            self.events.extend(events);
        }
        Ok(entries)
    }

    fn events(&self, after: Revision, limit: usize) -> &[(Revision, Entry, Option<Entry>, bool)] {
        let from = self.events.partition_point(|event| event.0 <= after);
        let rest = &self.events[from..];
        let mut taken = 0;
        for transaction in rest.chunk_by(|a, b| a.0 == b.0) {
            if limit > 0 && taken > 0 && taken + transaction.len() > limit {
                break;
            }
            taken += transaction.len();
        }
        &rest[..taken]
    }
}

/// A store under test, and how to open it again.
trait Subject {
    type Store: Store;
    fn store(&self) -> &Self::Store;
    /// False when the store cannot be opened again.
    fn reopen(&mut self, close: bool) -> bool;
}

impl Subject for Memory {
    type Store = Self;

    fn store(&self) -> &Self {
        self
    }

    fn reopen(&mut self, _close: bool) -> bool {
        false
    }
}

struct OnDisk {
    store: Option<Durable>,
    options: DurableOptions,
    dir: TempDir,
}

impl OnDisk {
    fn new(history: HistoryBudget) -> Self {
        // Small enough that a run goes through several segments and checkpoints.
        let options = DurableOptions { history, segment_bytes: 2_048, checkpoint_bytes: 4_096 };
        let dir = TempDir::new().unwrap();
        let (store, _) = Durable::open(dir.path(), options).unwrap();
        Self { store: Some(store), options, dir }
    }
}

impl Subject for OnDisk {
    type Store = Durable;

    fn store(&self) -> &Durable {
        self.store.as_ref().unwrap()
    }

    fn reopen(&mut self, close: bool) -> bool {
        if close {
            block_on(self.store().close()).unwrap();
        }
        drop(self.store.take());
        let (store, recovery) = Durable::open(self.dir.path(), self.options).unwrap();
        assert_eq!(recovery.truncated_bytes, 0);
        self.store = Some(store);
        true
    }
}

/// Runs the steps. A checkpoint holds up the dropping of history until it is done, so `compacted` may
/// move between two steps; it never moves back.
fn check(mut subject: impl Subject, steps: &[Step]) {
    let mut model = Model::new();
    for step in steps {
        run(&mut subject, &mut model, step);
        let store = subject.store();
        assert_eq!(*store.revision().borrow(), model.revision());
        let compacted = store.compacted();
        assert!(compacted >= model.compacted, "{compacted} < {} after {step:?}", model.compacted);
        model.compacted = compacted;
    }
}

fn run(subject: &mut impl Subject, model: &mut Model, step: &Step) {
    let store = subject.store();
    match step {
        Step::Txn(actions) => {
            let txn = txn(model, actions);
            let repeated = (1..txn.len()).find(|n| actions[..*n].iter().any(|(key, _)| *key == actions[*n].0));
            match (block_on(store.txn(txn.clone())), repeated) {
                (Err(StoreError::RepeatedKey { index }), Some(repeated)) => {
                    assert_eq!(index, repeated);
                }
                (Ok(TxnResult::Committed { revision, entries }), None) => {
                    assert_eq!(model.txn(&txn), Ok(entries));
                    assert_eq!(revision, model.revision());
                }
                (Ok(TxnResult::Conflict { index, current }), None) => {
                    assert_eq!(model.txn(&txn), Err((index, current)));
                }
                (other, _) => panic!("{other:?}"),
            }
        }
        Step::Range { from, to, at, limit } => {
            let range = Range { start: key(*from), end: to.map(key) };
            let at = at.map(|index| model.pick(index));
            let asked = at.unwrap_or(model.revision());
            match block_on(store.range(range.clone(), at, *limit)) {
                Ok(snapshot) => {
                    let all: Vec<_> =
                        model.at(asked).values().filter(|entry| range.contains(&entry.key)).cloned().collect();
                    let taken = if *limit == 0 { all.len() } else { all.len().min(*limit) };
                    assert_eq!(snapshot.revision, asked);
                    assert_eq!(snapshot.entries, all[..taken]);
                    assert_eq!(snapshot.remaining, all.len() - taken);
                    if at.is_none() {
                        assert_eq!(block_on(store.count(range)).unwrap(), all.len());
                        assert_eq!(
                            block_on(store.get(&key(*from))).unwrap(),
                            model.at(asked).get(&key(*from)).cloned()
                        );
                    }
                }
                Err(StoreError::Compacted { oldest, .. }) => {
                    assert!(asked < oldest && oldest <= store.compacted());
                }
                Err(StoreError::Future { newest, .. }) => {
                    assert!(asked > newest && newest == model.revision());
                }
                Err(other) => panic!("{other}"),
            }
        }
        Step::Events { after, limit } => {
            let after = model.pick(*after);
            match block_on(store.events(after, *limit)) {
                Ok(events) => {
                    let seen: Vec<_> = events
                        .iter()
                        .map(|event| (event.revision, event.entry.clone(), event.previous.clone(), event.deleted))
                        .collect();
                    assert_eq!(seen, model.events(after, *limit));
                }
                Err(StoreError::Compacted { oldest, .. }) => {
                    assert!(after < oldest && oldest <= store.compacted());
                }
                Err(other) => panic!("{other}"),
            }
        }
        Step::Compact(index) => {
            let revision = model.pick(*index);
            let before = store.compacted();
            match block_on(store.compact(revision)) {
                Ok(()) => assert!(store.compacted() >= before.max(revision)),
                Err(StoreError::Future { newest, .. }) => assert!(revision > newest),
                Err(other) => panic!("{other}"),
            }
        }
        Step::Reopen { close } => {
            subject.reopen(*close);
        }
    }
}

fn txn(model: &Model, actions: &[(u8, Action)]) -> Vec<Write> {
    let write = |(name, action): &(u8, Action)| {
        let key = key(*name);
        let expect = model.expect(&key, &action.expect);
        let value = |length: u16| vec![b'a' + name; usize::from(length)];
        match action.value {
            Some(length) if action.special => {
                let value = Value::splice(value(length), usize::from(length / 2));
                Write::Put { key, expect, value }
            }
            Some(length) => Write::Put { key, expect, value: Value::plain(value(length)) },
            None => Write::Delete { key, expect, last: action.special.then(|| Value::splice(&b"last of "[..], 8)) },
        }
    };
    actions.iter().map(write).collect()
}

const AMPLE: HistoryBudget = HistoryBudget { bytes: 1 << 20, events: 10_000 };
const TIGHT: HistoryBudget = HistoryBudget { bytes: 3_000, events: 6 };

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_keeps_to_the_model(steps in steps()) {
        check(Memory::with_options(AMPLE), &steps);
    }

    #[test]
    fn memory_with_little_history_keeps_to_the_model(steps in steps()) {
        check(Memory::with_options(TIGHT), &steps);
    }

    #[test]
    fn durable_keeps_to_the_model(steps in steps()) {
        check(OnDisk::new(AMPLE), &steps);
    }

    #[test]
    fn durable_with_little_history_keeps_to_the_model(steps in steps()) {
        check(OnDisk::new(TIGHT), &steps);
    }
}
