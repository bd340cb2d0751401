//! Fair queues that share the seats of one priority level. No clock, no I/O: the time is an argument.
//!
//! ```text
//!              hand of the flow        the queue whose next request would finish first
//! request ──▶ [ q3 | q17 | q90 ] ──▶ q17 ▸▸▸ ──▶ seats ──▶ finish ──▶ lingers ──▶ seats free
//! ```
//!
//! Fair queuing for requests of unknown length: `R` counts the seat-nanoseconds that each busy queue has been due so
//! far. A queue remembers the `R` at which its next request begins in an ideal world where all busy queues are served at
//! once. A request is expected to take [`ESTIMATE`]; when it ends, its queue is charged what it took instead. Of all
//! queues the one is served whose next request would end first in that world. Mirrors
//! `apiserver/pkg/util/flowcontrol/fairqueuing/queueset`.
//!
//! Always: the seats in use are at most the limit, unless one request alone is wider than that. Requests that find none
//! waiting and seats free are neither queued nor cause an allocation.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::Nanos;
use super::demand::Integrator;
use super::hand::Hand;

/// How long a request is expected to take, before the fact: upstream's estimate.
const ESTIMATE: Nanos = 3_000_000;

/// Seat-nanoseconds.
type SeatTime = i128;

/// How requests of a level that find no seat are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queuing {
    /// All requests are executed at once.
    Exempt,
    /// Requests are rejected.
    Reject,
    /// Requests wait in one of `queues` queues, at most `length` in each; a flow uses `hand` of them.
    Queues { queues: usize, hand: usize, length: usize },
}

/// What a request is estimated to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// Seats while it is executed.
    pub(super) initial: u32,
    /// Seats while watchers are told of what it changed.
    pub(super) last: u32,
    /// How long that takes.
    pub(super) linger: Nanos,
}

impl Work {
    /// A request of so many seats that no watcher hears of.
    pub(super) const fn seats(initial: u32) -> Self {
        Self { initial, last: 0, linger: 0 }
    }

    /// The seats that are taken from its start to its end.
    pub(super) const fn width(&self) -> u32 {
        if self.initial > self.last { self.initial } else { self.last }
    }

    fn total(&self) -> SeatTime {
        SeatTime::from(self.initial) * SeatTime::from(ESTIMATE)
            + SeatTime::from(self.last) * SeatTime::from(self.linger)
    }
}

/// A request that is executed. It must be [finished](QueueSet::finish).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    work: Work,
    queue: Option<usize>,
    pub(super) started: Nanos,
}

impl Ticket {
    /// How many seats it takes.
    pub(super) const fn width(&self) -> u32 {
        self.work.width()
    }
}

/// What is done with a request that arrives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is executed.
    Execute(Ticket),
    /// It is to be [put](QueueSet::enqueue) into this queue.
    Wait { queue: usize },
    /// The limit is reached, and the level has no queues.
    OverLimit,
    /// The limit is reached, and so is that of the shortest queue of its flow.
    QueueFull,
}

/// Names a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingId {
    queue: usize,
    number: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    number: u64,
    work: Work,
    arrived_r: SeatTime,
    payload: T,
}

/// One of the queues.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    /// Of those who wait.
    work: SeatTime,
    seats_waiting: u32,
    next_dispatch: SeatTime,
    executing: u32,
    seats_in_use: u32,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self { waiting: VecDeque::new(), work: 0, seats_waiting: 0, next_dispatch: 0, executing: 0, seats_in_use: 0 }
    }

    fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }

    /// No request starts before it arrives, in the ideal world either.
    fn bound(&mut self) {
        if let Some(oldest) = self.waiting.front() {
            self.next_dispatch = self.next_dispatch.max(oldest.arrived_r);
        }
    }

    fn remove(&mut self, position: usize) -> Option<Waiting<T>> {
        let waiting = self.waiting.remove(position)?;
        self.work -= waiting.work.total();
        self.seats_waiting -= waiting.work.width();
        Some(waiting)
    }
}

impl<T> Queue<T> {
    pub(super) fn waiting(&self) -> impl ExactSizeIterator<Item = (&T, Work)> {
        self.waiting.iter().map(|waiting| (&waiting.payload, waiting.work))
    }

    pub(super) fn executing(&self) -> u32 {
        self.executing
    }

    pub(super) fn seats_in_use(&self) -> u32 {
        self.seats_in_use
    }

    /// In seat-seconds.
    pub(super) fn next_dispatch(&self) -> f64 {
        seat_seconds(self.next_dispatch)
    }

    /// In seat-seconds.
    pub(super) fn work_waiting(&self) -> f64 {
        seat_seconds(self.work)
    }
}

fn seat_seconds(time: SeatTime) -> f64 {
    time as f64 / 1e9
}

/// See the module's introduction. `T` is what comes with a request that waits.
#[derive(Debug)]
pub(super) struct QueueSet<T> {
    queuing: Queuing,
    limit: u32,
    queues: Vec<Queue<T>>,
    r: SeatTime,
    now: Nanos,
    /// The queue that was served last.
    robin: usize,
    enqueued: usize,
    numbers: u64,
    waiting: usize,
    seats_waiting: u32,
    executing: u32,
    seats_in_use: u32,
    /// The same without requests that went through no queue.
    queue_seats: u32,
    active_queues: u32,
    /// Ended requests that still take seats, by when these are free.
    lingering: BinaryHeap<Reverse<(Nanos, Option<usize>, u32)>>,
    demand: Integrator,
}

impl<T> QueueSet<T> {
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            queuing: Queuing::Reject,
            limit: 0,
            queues: Vec::new(),
            r: 0,
            now,
            robin: 0,
            enqueued: 0,
            numbers: 0,
            waiting: 0,
            seats_waiting: 0,
            executing: 0,
            seats_in_use: 0,
            queue_seats: 0,
            active_queues: 0,
            lingering: BinaryHeap::new(),
            demand: Integrator::new(now),
        }
    }

    /// Changes the rules. What waits in queues that are no longer wanted is still served. [`Self::dispatch`] follows.
    pub(super) fn configure(&mut self, now: Nanos, queuing: Queuing) {
        self.advance(now);
        self.queuing = queuing;
        let wanted = if let Queuing::Queues { queues, .. } = queuing { queues } else { 0 };
        while self.queues.len() < wanted {
            self.queues.push(Queue::new());
        }
        self.drop_unwanted_queues();
    }

    /// Changes how many seats there are. [`Self::dispatch`] follows.
    pub(super) fn set_limit(&mut self, now: Nanos, limit: u32) {
        self.advance(now);
        self.limit = limit;
    }

    /// A request of a flow arrives. It is executed, rejected, or is to wait.
    pub(super) fn arrive(&mut self, now: Nanos, work: Work, flow: u64) -> Arrival {
        self.advance(now);
        let (queues, hand, length) = match self.queuing {
            Queuing::Queues { queues, hand, length } => (queues, hand, length),
            Queuing::Exempt => return Arrival::Execute(self.execute(work, None)),
            Queuing::Reject if self.has_room_for(work.width()) => return Arrival::Execute(self.execute(work, None)),
            Queuing::Reject => return Arrival::OverLimit,
        };
        let hand = Hand::deal(flow, queues, hand);
        let cards = hand.from(self.enqueued);
        self.enqueued = self.enqueued.wrapping_add(1);
        let chosen = cards.min_by_key(|card| self.queues[*card].work).unwrap_or_default();
        if self.waiting == 0 && self.seats_in_use < self.limit && self.has_room_for(work.width()) {
            let queue = &mut self.queues[chosen];
            // It has waited for no time.
            queue.next_dispatch = if queue.is_active() { queue.next_dispatch.max(self.r) } else { self.r };
            self.robin = chosen;
            return Arrival::Execute(self.execute(work, Some(chosen)));
        }
        if self.seats_in_use >= self.limit && self.queues[chosen].waiting.len() >= length {
            return Arrival::QueueFull;
        }
        Arrival::Wait { queue: chosen }
    }

    /// Lets a request wait in the queue that [`Self::arrive`] has named, at the same time. [`Self::dispatch`] follows.
    /// Returns how long the queue is now, too.
    pub(super) fn enqueue(&mut self, queue: usize, work: Work, payload: T) -> (WaitingId, usize) {
        self.numbers += 1;
        let (number, arrived_r) = (self.numbers, self.r);
        let chosen = &mut self.queues[queue];
        if !chosen.is_active() {
            chosen.next_dispatch = arrived_r;
            self.active_queues += 1;
        }
        chosen.waiting.push_back(Waiting { number, work, arrived_r, payload });
        chosen.work += work.total();
        chosen.seats_waiting += work.width();
        chosen.bound();
        let length = chosen.waiting.len();
        self.waiting += 1;
        self.seats_waiting += work.width();
        self.note_demand();
        (WaitingId { queue, number }, length)
    }

    /// Takes the next request from its queue, if there are seats for it.
    pub(super) fn dispatch(&mut self) -> Option<(T, Ticket)> {
        if self.waiting == 0 || self.seats_in_use >= self.limit {
            return None;
        }
        let chosen = self.next_queue()?;
        let width = self.queues[chosen].waiting.front()?.work.width();
        if !self.has_room_for(width) {
            return None;
        }
        self.robin = chosen;
        let waiting = self.take(chosen, 0)?;
        let ticket = self.execute(waiting.work, Some(chosen));
        self.queues[chosen].bound();
        Some((waiting.payload, ticket))
    }

    /// A request does not wait any longer. `None` if it was dispatched before.
    pub(super) fn cancel(&mut self, now: Nanos, id: WaitingId) -> Option<T> {
        self.advance(now);
        let waiting = &self.queues.get(id.queue)?.waiting;
        let position = waiting.iter().position(|waiting| waiting.number == id.number)?;
        let waiting = self.take(id.queue, position)?;
        self.queues[id.queue].bound();
        self.note_demand();
        self.drop_unwanted_queues();
        Some(waiting.payload)
    }

    /// A request has ended. Its seats are free now or after it has lingered. [`Self::dispatch`] follows.
    pub(super) fn finish(&mut self, now: Nanos, ticket: Ticket) {
        self.advance(now);
        self.executing -= 1;
        if let Some(queue) = ticket.queue.and_then(|queue| self.queues.get_mut(queue)) {
            let took = self.now.saturating_sub(ticket.started);
            queue.next_dispatch -=
                SeatTime::from(ticket.work.initial) * (SeatTime::from(ESTIMATE) - SeatTime::from(took));
            queue.bound();
            queue.executing -= 1;
            if !queue.is_active() {
                self.active_queues -= 1;
            }
        }
        if ticket.work.linger > 0 && self.queuing != Queuing::Exempt {
            self.lingering.push(Reverse((self.now + ticket.work.linger, ticket.queue, ticket.width())));
        } else {
            self.release(ticket.queue, ticket.width());
        }
    }

    /// Time passes: seats of requests that linger become free. [`Self::dispatch`] follows.
    #[inline]
    pub(super) fn advance(&mut self, now: Nanos) {
        self.synchronize(now);
        while let Some(Reverse((free, queue, seats))) = self.lingering.peek().copied() {
            if free > self.now {
                break;
            }
            self.lingering.pop();
            self.release(queue, seats);
        }
    }

    /// When seats become free that a request waits for, if it is known.
    pub(super) fn next_release(&self) -> Option<Nanos> {
        let Reverse((free, ..)) = self.lingering.peek().filter(|_| self.waiting > 0)?;
        Some(*free)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn executing(&self) -> u32 {
        self.executing
    }

    #[cfg(test)]
    fn seats_in_use(&self) -> u32 {
        self.seats_in_use
    }

    /// The progress of the ideal world, in seat-seconds.
    pub(super) fn current_r(&self) -> f64 {
        seat_seconds(self.r)
    }

    pub(super) fn demand(&mut self) -> &mut Integrator {
        &mut self.demand
    }

    pub(super) fn queues(&self) -> &[Queue<T>] {
        &self.queues
    }

    /// `R` grows by what each busy queue is due: an equal part of the seats that are asked for or there.
    #[inline]
    fn synchronize(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.now);
        self.now += passed;
        if self.active_queues > 0 {
            let seats = (self.queue_seats + self.seats_waiting).min(self.limit);
            self.r += SeatTime::from(passed.saturating_mul(u64::from(seats)) / u64::from(self.active_queues));
        }
    }

    fn has_room_for(&self, seats: u32) -> bool {
        if seats > self.limit { self.seats_in_use == 0 } else { self.seats_in_use + seats <= self.limit }
    }

    fn execute(&mut self, mut work: Work, queue: Option<usize>) -> Ticket {
        let total = work.total();
        // The same work by fewer seats takes longer.
        if self.queuing != Queuing::Exempt && work.last > self.limit.max(1) {
            let seats = self.limit.max(1);
            work.linger = work.linger.saturating_mul(u64::from(work.last)) / u64::from(seats);
            work.last = seats;
        }
        let width = work.width();
        self.executing += 1;
        self.seats_in_use += width;
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            if !queue.is_active() {
                self.active_queues += 1;
            }
            queue.executing += 1;
            queue.seats_in_use += width;
            queue.next_dispatch += total;
            self.queue_seats += width;
        }
        self.note_demand();
        Ticket { work, queue, started: self.now }
    }

    /// Takes a request out of its queue.
    fn take(&mut self, queue: usize, position: usize) -> Option<Waiting<T>> {
        let waiting = self.queues[queue].remove(position)?;
        if !self.queues[queue].is_active() {
            self.active_queues -= 1;
        }
        self.waiting -= 1;
        self.seats_waiting -= waiting.work.width();
        Some(waiting)
    }

    fn release(&mut self, queue: Option<usize>, seats: u32) {
        self.seats_in_use -= seats;
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.seats_in_use -= seats;
            self.queue_seats -= seats;
            self.drop_unwanted_queues();
        }
        self.note_demand();
    }

    fn note_demand(&mut self) {
        let now = self.now;
        self.demand.set(now, self.seats_in_use + self.seats_waiting);
    }

    /// The queue whose next request would end first; those after the one that was served last win.
    fn next_queue(&self) -> Option<usize> {
        let queues = self.queues.len();
        let after = (1..=queues).map(|i| (self.robin + i) % queues);
        let ends = |queue: &usize| {
            let queue = &self.queues[*queue];
            queue.waiting.front().map(|oldest| queue.next_dispatch + oldest.work.total())
        };
        after.filter_map(|queue| Some((ends(&queue)?, queue))).min_by_key(|(end, _)| *end).map(|(_, queue)| queue)
    }

    fn drop_unwanted_queues(&mut self) {
        let wanted = if let Queuing::Queues { queues, .. } = self.queuing { queues } else { 0 };
        while self.queues.len() > wanted
            && self.queues.last().is_some_and(|queue| !queue.is_active() && queue.seats_in_use == 0)
        {
            self.queues.pop();
        }
        self.robin = self.robin.min(self.queues.len().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests;
