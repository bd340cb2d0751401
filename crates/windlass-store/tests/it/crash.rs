//! kill -9 at any moment, over and over: a child process writes to a store and says what was
//! acknowledged, the parent kills it, opens the store, and holds it to every word.
//!
//! The child is this very test binary, started again for the one test `child` below.

use std::collections::HashMap;
use std::env;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use futures::executor::block_on;
use tempfile::TempDir;
use windlass_store::{
    Durable, DurableOptions, Event, Expect, HistoryBudget, Range, Revision, Store, TxnResult, Value, Write,
};

const ROUNDS: u64 = 220;
const WRITERS: u64 = 4;
const DIR: &str = "WINDLASS_STORE_CRASH_DIR";
const SEED: &str = "WINDLASS_STORE_CRASH_SEED";

/// Small enough that segments and snapshots come and go all the time.
const OPTIONS: DurableOptions = DurableOptions {
    history: HistoryBudget { bytes: 40_000, events: 60 },
    segment_bytes: 16 << 10,
    checkpoint_bytes: 32 << 10,
};

/// Numbers that look random, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The other side of the test; without the parent's word it has nothing to do.
#[test]
fn child() {
    let (Ok(dir), Ok(seed)) = (env::var(DIR), env::var(SEED)) else {
        return;
    };
    let seed: u64 = seed.parse().unwrap();
    say("opening");
    let (store, _) = Durable::open(dir, OPTIONS).unwrap();
    let store = Arc::new(store);
    let writers = (0..WRITERS).map(|writer| {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            write_for_ever(&store, writer, Dice::new(seed * WRITERS + writer));
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.join().unwrap();
    }
}

/// Puts and deletes under keys that no other writer touches, and says so once they are acknowledged.
/// A value tells the revision it was written at.
fn write_for_ever(store: &Durable, writer: u64, mut dice: Dice) {
    loop {
        let key: Bytes = format!("writer-{writer}/{:02}", dice.roll(10)).into();
        let mut value = vec![b'.'; dice.roll(900) as usize];
        value.push(b'=');
        let at = value.len();
        let (sign, write) = match dice.roll(5) {
            0 => ('-', Write::Delete { key: key.clone(), expect: Expect::Any, last: None }),
            _ => ('+', Write::Put { key: key.clone(), expect: Expect::Any, value: Value::splice(value, at) }),
        };
        // A second key in the same transaction, which must share the fate of the first.
        let twin = format!("twin-{writer}").into();
        let twin = Write::Put { key: twin, expect: Expect::Any, value: Value::splice(&b"="[..], 1) };
        let result = block_on(store.txn(vec![write, twin])).unwrap();
        let TxnResult::Committed { revision, .. } = result else { panic!("{result:?}") };
        say(&format!("acknowledged {revision} {sign} {}", std::str::from_utf8(&key).unwrap()));
        if writer == 0 && dice.roll(40) == 0 {
            let revision = revision.saturating_sub(dice.roll(30)).max(1);
            block_on(store.compact(revision)).unwrap();
            say(&format!("compacted {revision}"));
        }
    }
}

/// One line in one write, so that a kill cannot leave half of it.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Everything the child was ever told.
#[derive(Default)]
struct Promises {
    /// By revision: the key, and whether it was put.
    writes: HashMap<Revision, (String, bool)>,
    /// The last promise about each key.
    keys: HashMap<String, (Revision, bool)>,
    compacted: Revision,
    newest: Revision,
}

impl Promises {
    fn hear(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["acknowledged", revision, sign, key] => {
                let (revision, put) = (revision.parse().unwrap(), sign == "+");
                let again = self.writes.insert(revision, (key.to_owned(), put));
                assert_eq!(again, None, "revision {revision} was given twice");
                self.newest = self.newest.max(revision);
                let last = self.keys.entry(key.to_owned()).or_default();
                *last = (*last).max((revision, put));
            }
            ["compacted", revision] => {
                self.compacted = self.compacted.max(revision.parse().unwrap());
            }
            _ => {}
        }
    }
}

/// Starts a child, listens for a random while, and kills it. Everything it said is heard.
fn run_and_kill(dir: &Path, seed: u64, promises: &mut Promises) {
    let mut dice = Dice::new(seed);
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["crash::child", "--exact", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // Every eighth child dies while it opens the store; the others after some acknowledgements.
    let wanted = if dice.roll(8) == 0 { 0 } else { 1 + dice.roll(80) };
    let mut acknowledged = 0;
    for line in lines.by_ref() {
        promises.hear(&line);
        acknowledged += u64::from(line.starts_with("acknowledged"));
        if acknowledged >= wanted && (wanted > 0 || line == "opening") {
            break;
        }
    }
    // Some more time, too short to be anything but random, so that the kill does not always come
    // right after an acknowledgement.
    for _ in 0..dice.roll(20_000) {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    lines.for_each(|line| promises.hear(&line));
    let status = child.wait().unwrap();
    assert!(status.code().is_none(), "the child ended by itself: {status}");
}

fn check(store: &Durable, promises: &Promises, context: &str) {
    let revision = *store.revision().borrow();
    let compacted = store.compacted();
    assert!(revision >= promises.newest, "{context}: {revision} < {}", promises.newest);
    assert!(compacted >= promises.compacted, "{context}: {compacted} < {}", promises.compacted);
    let newest = block_on(store.range(Range::prefix(""), None, 0)).unwrap();
    for entry in &newest.entries {
        assert!(entry.value.ends_with(format!("={}", entry.modified).as_bytes()), "{context}: {entry:?}");
    }
    for (key, (promised, put)) in &promises.keys {
        match newest.entries.iter().find(|entry| entry.key == key.as_bytes()) {
            Some(entry) if *put => assert!(entry.modified >= *promised, "{context}: {key} was written at {promised}"),
            Some(entry) => assert!(entry.modified > *promised, "{context}: {key} was removed at {promised}"),
            // A later removal that was carried out, but that the child did not live to tell.
            None if *put => assert!(*promised < revision, "{context}: {key} is lost"),
            None => {}
        }
    }
    replay(store, promises, context);
}

/// The log leads from the oldest readable state to the newest, through every promise on the way.
fn replay(store: &Durable, promises: &Promises, context: &str) {
    let compacted = store.compacted();
    let oldest = block_on(store.range(Range::prefix(""), Some(compacted), 0)).unwrap();
    let mut state: HashMap<_, _> = oldest.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
    let events = block_on(store.events(compacted, 0)).unwrap();
    let mut revision = compacted;
    for transaction in events.chunk_by(|a, b| a.revision == b.revision) {
        revision += 1;
        assert_eq!(transaction[0].revision, revision, "{context}: a gap in the log");
        assert!(transaction.iter().any(|event| event.key.starts_with(b"twin")), "{context}: half a transaction");
        for event in transaction {
            assert_eq!(event.previous, state.remove(&event.key), "{context}: {revision}");
            if !event.deleted {
                state.insert(event.key.clone(), event.entry.clone());
            }
        }
        if let Some((key, put)) = promises.writes.get(&revision) {
            let kept = |event: &Arc<Event>| event.key == key.as_bytes() && event.deleted != *put;
            // Removing what is not there is acknowledged and leaves no event.
            assert!(transaction.iter().any(kept) || !put, "{context}: {key} at {revision} is lost");
        }
    }
    assert_eq!(revision, *store.revision().borrow(), "{context}: the log ends early");
    let newest = block_on(store.range(Range::prefix(""), None, 0)).unwrap();
    let newest: HashMap<_, _> = newest.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
    assert_eq!(state, newest, "{context}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let dir = TempDir::new().unwrap();
    let mut promises = Promises::default();
    let mut snapshots = 0;
    let mut torn = 0;
    for round in 0..ROUNDS {
        run_and_kill(dir.path(), round, &mut promises);
        let (store, recovery) = Durable::open(dir.path(), OPTIONS).unwrap();
        let context = format!("round {round}, {recovery:?}");
        check(&store, &promises, &context);
        promises.newest = recovery.revision;
        snapshots += u64::from(recovery.snapshot.is_some());
        torn += u64::from(recovery.truncated_bytes > 0);
        // Now and then the next child finds a store that was closed in good order.
        if round % 5 == 0 {
            block_on(store.close()).unwrap();
        }
    }
    assert!(promises.writes.len() > 1_000 && snapshots > 50, "{snapshots} snapshots, {torn} torn");
}
