//! Turns: so much may be done at once, and tasks that wait for it are served fairly.
//!
//! Requests wait in a line for each resource, and free turns go round the lines: a resource that floods the server
//! keeps its own requests waiting, while one of another resource waits for no more than one request of each line for
//! each turn that gets free. Within a line who came first is first.
//!
//! A task that finds a free turn and no other waiting takes it without a lock. A turn is never lost: it is given back when it
//! is dropped, wherever that is, and who stops waiting leaves the line.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;

use crate::status::Qualified;

/// A number of turns.
pub(super) struct Turns {
    free: AtomicUsize,
    /// How many wait. It is raised before and `free` read after, and the other way round when a turn is given back:
    /// so one of both sees the other.
    waiting: AtomicUsize,
    lines: Mutex<Lines>,
}

/// Those who wait; the line at the front is next.
#[derive(Default)]
struct Lines {
    lines: VecDeque<Line>,
    tickets: u64,
}

/// The tickets of tasks that wait for the sake of one resource. There is always one.
struct Line {
    group: Box<str>,
    plural: Box<str>,
    waiting: BTreeMap<u64, oneshot::Sender<Turn>>,
}

/// The right to do something long. Given back when it is dropped.
pub(super) struct Turn(Arc<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, SeqCst);
        if self.0.waiting.load(SeqCst) > 0 {
            self.0.call();
        }
    }
}

impl Turns {
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(count), waiting: AtomicUsize::new(0), lines: Mutex::default() })
    }

    /// Waits for a turn. Cancel-safe: who stops waiting takes none.
    pub(super) async fn turn(self: &Arc<Self>, resource: Qualified<'_>) -> Result<Turn, RecvError> {
        if self.waiting.load(SeqCst) == 0
            && let Some(turn) = self.take()
        {
            return Ok(turn);
        }
        let mut place = self.join(resource);
        self.call();
        (&mut place.called).await
    }

    /// A turn, if one is free.
    fn take(self: &Arc<Self>) -> Option<Turn> {
        let taken = self.free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1));
        taken.is_ok().then(|| Turn(Arc::clone(self)))
    }

    fn join(&self, resource: Qualified<'_>) -> Place<'_> {
        let (call, called) = oneshot::channel();
        let mut lines = self.lines.lock();
        let ticket = lines.join(resource, call);
        self.waiting.fetch_add(1, SeqCst);
        drop(lines);
        Place { turns: self, ticket, called }
    }

    /// Hands free turns to those who wait.
    fn call(self: &Arc<Self>) {
        loop {
            let mut lines = self.lines.lock();
            if lines.lines.is_empty() {
                return;
            }
            let Some(turn) = self.take() else { return };
            let next = lines.next();
            self.waiting.fetch_sub(usize::from(next.is_some()), SeqCst);
            // Giving the turn back may need the lock.
            drop(lines);
            let Some(next) = next else { return };
            // Who is gone meanwhile gives the turn back by not taking it.
            drop(next.send(turn));
        }
    }
}

impl Lines {
    fn join(&mut self, resource: Qualified<'_>, call: oneshot::Sender<Turn>) -> u64 {
        self.tickets += 1;
        let known = self.lines.iter_mut().find(|line| *line.group == *resource.group && *line.plural == *resource.name);
        if let Some(line) = known {
            line.waiting.insert(self.tickets, call);
        } else {
            let waiting = BTreeMap::from([(self.tickets, call)]);
            self.lines.push_back(Line { group: resource.group.into(), plural: resource.name.into(), waiting });
        }
        self.tickets
    }

    /// The first of the line whose turn it is; the line goes to the back.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let mut line = self.lines.pop_front()?;
        let (_, next) = line.waiting.pop_first()?;
        if !line.waiting.is_empty() {
            self.lines.push_back(line);
        }
        Some(next)
    }

    /// Says whether a task with this ticket did wait.
    fn leave(&mut self, ticket: u64) -> bool {
        let Some(at) = self.lines.iter().position(|line| line.waiting.contains_key(&ticket)) else { return false };
        self.lines[at].waiting.remove(&ticket);
        if self.lines[at].waiting.is_empty() {
            self.lines.remove(at);
        }
        true
    }
}

/// A place in a line. A turn that came too late is dropped with it.
struct Place<'t> {
    turns: &'t Turns,
    ticket: u64,
    called: oneshot::Receiver<Turn>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.turns.lines.lock();
        if lines.leave(self.ticket) {
            self.turns.waiting.fetch_sub(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use futures::FutureExt;

    use super::*;

    type Waiting<'t> = Pin<Box<dyn Future<Output = Turn> + 't>>;

    /// A request that has asked for a turn; it has none yet.
    fn ask<'t>(turns: &'t Arc<Turns>, name: &'t str) -> Waiting<'t> {
        let mut waiting: Waiting<'t> =
            Box::pin(async move { turns.turn(Qualified { group: "test", name }).await.expect("a turn") });
        assert!((&mut waiting).now_or_never().is_none());
        waiting
    }

    fn take(turns: &Arc<Turns>) -> Turn {
        turns.turn(Qualified { group: "", name: "any" }).now_or_never().expect("a free turn").expect("a turn")
    }

    /// Who gets the turns, one after the other.
    fn order(waiting: &mut Vec<(usize, Waiting<'_>)>, mut turn: Turn) -> Vec<usize> {
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(turn);
            let (at, got) = (0..waiting.len())
                .find_map(|at| (&mut waiting[at].1).now_or_never().map(|turn| (at, turn)))
                .expect("a turn is never lost");
            turn = got;
            order.push(waiting.remove(at).0);
        }
        order
    }

    #[test]
    fn turns_go_round_the_resources() {
        let turns = Turns::new(1);
        let turn = take(&turns);
        let names = ["evil", "evil", "evil", "evil", "good", "good", "other"];
        let mut waiting = names.into_iter().map(|name| ask(&turns, name)).enumerate().collect();
        assert_eq!(order(&mut waiting, turn), [0, 4, 6, 1, 5, 2, 3]);
        assert_eq!(turns.free.load(SeqCst), 1);
        assert_eq!(turns.waiting.load(SeqCst), 0);
    }

    #[test]
    fn a_flood_delays_another_resource_by_one_request() {
        let turns = Turns::new(1);
        let turn = take(&turns);
        let mut waiting: Vec<_> = (0..100).map(|at| (at, ask(&turns, "evil"))).collect();
        waiting.push((100, ask(&turns, "good")));
        assert_eq!(order(&mut waiting, turn)[..2], [0, 100]);
    }

    #[test]
    fn waiters_that_stop_leave_the_line() {
        let turns = Turns::new(1);
        let turn = take(&turns);
        let gone = ask(&turns, "evil");
        let mut waiting = vec![(0, ask(&turns, "good"))];
        drop(gone);
        assert_eq!((turns.waiting.load(SeqCst), turns.lines.lock().lines.len()), (1, 1));
        // One who was called but never looked gives the turn on.
        let called = ask(&turns, "late");
        assert_eq!(order(&mut waiting, turn), [0]);
        drop(called);
        assert_eq!((turns.free.load(SeqCst), turns.waiting.load(SeqCst)), (1, 0));
        drop(take(&turns));
    }

    #[test]
    fn there_are_as_many_turns_as_there_are() {
        let turns = Turns::new(2);
        let (first, second) = (take(&turns), take(&turns));
        let mut waiting = ask(&turns, "one");
        drop(first);
        let third = (&mut waiting).now_or_never().expect("a free turn");
        let late = ask(&turns, "one");
        drop((second, late));
        drop(take(&turns));
        drop(third);
        assert_eq!(turns.free.load(SeqCst), 2);
    }

    #[test]
    fn threads_that_race_lose_no_turn() {
        let turns = Turns::new(2);
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let turns = &turns;
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        let turn = turns.turn(Qualified { group: "", name });
                        drop(futures::executor::block_on(turn).expect("a turn"));
                    }
                });
            }
        });
        assert_eq!((turns.free.load(SeqCst), turns.waiting.load(SeqCst)), (2, 0));
    }
}
