//! What the engines cost: `cargo bench -p windlass-store`, and `-- <word>` for the rows that contain
//! a word. A plain table, because what matters here are whole operations, not nanoseconds.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use windlass_store::{Durable, DurableOptions, Expect, Memory, Range, Store, Value, Write};

/// A small object, as a custom resource or a lease is.
const SMALL: usize = 300;
/// What a pod or a deployment takes.
const OBJECT: usize = 1_300;
const ENTRIES: usize = 100_000;

fn main() {
    // Cargo passes `--bench`; anything that is not an option selects rows.
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let bench = Bench { filter, runtime: Runtime::new().unwrap() };
    println!("{:<44} {:>14} {:>14} {:>12}", "", "per second", "each", "cpu each");
    for (name, writers, txns) in [("1 writer", 1, 10_000), ("16 writers", 16, 100_000), ("64 writers", 64, 200_000)] {
        bench.writes(&format!("memory: txn, {name}"), &Arc::new(Memory::new()), writers, txns, SMALL);
        let dir = TempDir::new().unwrap();
        bench.writes(&format!("durable: txn, {name}"), &Arc::new(open(dir.path())), writers, txns, SMALL);
    }
    let dir = TempDir::new().unwrap();
    bench.writes("durable: txn of 1.3 KB, 16 writers", &Arc::new(open(dir.path())), 16, 50_000, OBJECT);
    drop(dir);
    bench.churn();
    bench.reads("memory", &Memory::new());
    let dir = TempDir::new().unwrap();
    bench.reads("durable", &open(dir.path()));
    bench.opening();
}

fn open(dir: &Path) -> Durable {
    Durable::open(dir, DurableOptions::default()).unwrap().0
}

struct Bench {
    filter: Option<String>,
    runtime: Runtime,
}

impl Bench {
    fn selects(&self, row: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| row.contains(&filter[..]))
    }

    fn measure<T>(&self, row: &str, times: usize, work: impl AsyncFnOnce() -> T) -> T {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let result = self.runtime.block_on(work());
        let (wall, cpu) = (wall.elapsed(), cpu_time().saturating_sub(cpu));
        let each = |duration: Duration| format!("{:.2?}", duration / u32::try_from(times).unwrap());
        let rate = times as f64 / wall.as_secs_f64();
        println!("{row:<44} {rate:>14.0} {:>14} {:>12}", each(wall), each(cpu));
        result
    }

    /// Transactions of one put, over a thousand keys a writer.
    fn writes(&self, row: &str, store: &Arc<impl Store>, writers: usize, txns: usize, size: usize) {
        if !self.selects(row) {
            return;
        }
        let value = Bytes::from(vec![b'x'; size]);
        self.measure(row, txns, async || {
            let tasks = (0..writers).map(|writer| {
                let (store, value) = (Arc::clone(store), value.clone());
                tokio::spawn(async move {
                    for n in 0..txns / writers {
                        let key = format!("/registry/things/ns-{writer}/thing-{}", n % 1_000).into();
                        let value = Value::splice(value.clone(), 100);
                        store.txn(vec![Write::Put { key, expect: Expect::Any, value }]).await.unwrap();
                    }
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.unwrap();
            }
        });
    }

    /// Objects written over and over, while checkpoints run beside it: how long does one writer wait?
    fn churn(&self) {
        let row = "durable: churn of 26 MB, 16 writers";
        if !self.selects(row) {
            return;
        }
        let dir = TempDir::new().unwrap();
        let store = Arc::new(open(dir.path()));
        self.runtime.block_on(fill(&*store, 20_000));
        let value = Bytes::from(vec![b'x'; OBJECT]);
        let mut waits = self.measure(row, 160_000, async || {
            let tasks = (0..16).map(|writer| {
                let (store, value) = (Arc::clone(&store), value.clone());
                tokio::spawn(async move {
                    let mut waits = Vec::with_capacity(10_000);
                    for n in 0..10_000 {
                        let key = key((writer + 16 * n) % 20_000);
                        let value = Value::splice(value.clone(), 100);
                        let started = Instant::now();
                        store.txn(vec![Write::Put { key, expect: Expect::Present, value }]).await.unwrap();
                        waits.push(started.elapsed());
                    }
                    waits
                })
            });
            let mut waits = Vec::new();
            for task in tasks.collect::<Vec<_>>() {
                waits.extend(task.await.unwrap());
            }
            waits
        });
        waits.sort();
        let at = |part: usize| waits[(waits.len() - 1) * part / 1_000];
        println!("    half within {:.2?}, 99% {:.2?}, 99.9% {:.2?}, all {:.2?}", at(500), at(990), at(999), at(1_000));
        println!("{:<44} {:>14.1} MB", "    on disk", bytes_in(dir.path()) as f64 / 1e6);
    }

    fn reads(&self, engine: &str, store: &impl Store) {
        if !self.selects(engine) {
            return;
        }
        self.runtime.block_on(fill(store, 20_000));
        let range = Range::prefix("/registry/objects/");
        let read = async |limit| store.range(range.clone(), None, limit).await.unwrap().entries.len();
        let get = async |n: usize| store.get(key(n % 20_000).as_ref()).await.unwrap().unwrap();
        self.measure(&format!("{engine}: get"), 200_000, async || {
            for n in 0..200_000 {
                get(n * 7).await;
            }
        });
        self.measure(&format!("{engine}: range of 5,000"), 500, async || {
            for _ in 0..500 {
                assert_eq!(read(5_000).await, 5_000);
            }
        });
        self.measure(&format!("{engine}: page of 500, 19,500 remain"), 2_000, async || {
            for _ in 0..2_000 {
                assert_eq!(read(500).await, 500);
            }
        });
        self.measure(&format!("{engine}: count of 20,000"), 100_000, async || {
            for _ in 0..100_000 {
                assert_eq!(store.count(range.clone()).await.unwrap(), 20_000);
            }
        });
        let newest = *store.revision().borrow();
        self.measure(&format!("{engine}: events, 1,000 at a time, each"), 100 * 20_000, async || {
            for _ in 0..100 {
                let mut after = store.compacted();
                while after < newest {
                    after = store.events(after, 1_000).await.unwrap().last().unwrap().revision;
                }
            }
        });
    }

    /// How long it takes to open a store of 100,000 objects, and what it takes on disk.
    fn opening(&self) {
        let dir = TempDir::new().unwrap();
        self.open("durable: open, empty directory", dir.path(), 0);
        if !self.selects("durable: open") {
            return;
        }
        let store = open(dir.path());
        self.runtime.block_on(fill(&store, ENTRIES));
        self.runtime.block_on(store.close()).unwrap();
        drop(store);
        self.open("durable: open, 100,000 objects in the log", dir.path(), ENTRIES);
        let store = open(dir.path());
        self.runtime.block_on(async {
            let newest = *store.revision().borrow();
            store.compact(newest).await.unwrap();
            store.close().await.unwrap();
        });
        drop(store);
        self.open("durable: open, 100,000 objects in a snapshot", dir.path(), ENTRIES);
    }

    fn open(&self, row: &str, dir: &Path, entries: usize) {
        if !self.selects(row) {
            return;
        }
        let (store, recovery) = self.measure(row, 1, async || Durable::open(dir, DurableOptions::default()).unwrap());
        assert_eq!(recovery.entries, entries);
        self.runtime.block_on(store.close()).unwrap();
        println!("{:<44} {:>14.1} MB", "    on disk, closed", bytes_in(dir) as f64 / 1e6);
    }
}

fn key(n: usize) -> Bytes {
    format!("/registry/objects/ns-{}/object-{n:06}", n % 10).into()
}

/// Puts `entries` objects, enough at once that a durable store commits them in groups.
async fn fill(store: &impl Store, entries: usize) {
    let value = Bytes::from(vec![b'x'; OBJECT]);
    for from in (0..entries).step_by(500) {
        let puts = (from..entries.min(from + 500)).map(|n| {
            let value = Value::splice(value.clone(), 100);
            store.txn(vec![Write::Put { key: key(n), expect: Expect::Absent, value }])
        });
        futures::future::try_join_all(puts).await.unwrap();
    }
}

fn bytes_in(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}
