//! The connections that are open: how many there may be, and which are closed when there are too many.
//!
//! A new client always gets in as long as some connection does nothing: at the limit, connections without a request are
//! closed, and if there are none, those whose requests wait for more of their bodies. Those of the address with the
//! most connections come first, and among these the one that has done nothing for longest. A connection whose
//! requests are being answered is never closed for another.
//!
//! Heads of requests are read before their user is known, so what they take together is limited as well.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::time_limits::{Expired, Progress, Standing};

/// How many connections there may be, if the system has files for them.
const CONNECTIONS: usize = 4096;
/// How many files are left for other things: the store, webhooks. At most a quarter.
const OTHER_FILES: usize = 256;
/// At the limit, this part of all connections is closed at once, so that a flood of new ones costs little.
const PART: usize = 64;
/// How much of an unfinished head is not counted.
const SMALL_HEAD: usize = 16 << 10;
/// How much of unfinished heads is counted, of all connections together; beyond it, those with large ones are closed.
const HEADS: usize = 32 << 20;

/// See the module's introduction.
pub(crate) struct Connections {
    limit: usize,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    numbers: AtomicU64,
    heads: Arc<AtomicUsize>,
}

/// What is known of one connection.
pub(super) struct Connection {
    address: IpAddr,
    progress: Mutex<Progress>,
    /// Whether there is no request: bytes that arrive then are the start of one.
    idle: AtomicBool,
    /// How much of a head has arrived.
    head: AtomicUsize,
    /// What counts of the heads of all connections.
    heads: Arc<AtomicUsize>,
    /// Whether writing waits for the client.
    blocked: AtomicBool,
    ending: AtomicU8,
    ends: Notify,
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It takes no more requests, and ends with those it has.
    Drain = 1,
    /// It ends now.
    Close = 2,
}

/// A place among the open connections, given up when it is dropped.
pub(super) struct Place {
    connections: Arc<Connections>,
    number: u64,
    pub(super) connection: Arc<Connection>,
}

impl Connections {
    pub(crate) fn new(limit: usize) -> Self {
        let open = Mutex::default();
        Self { limit: limit.max(1), open, numbers: AtomicU64::new(0), heads: Arc::default() }
    }

    /// As many connections as the limit on open files allows.
    pub(crate) fn for_this_process() -> Self {
        let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize);
        Self::new((files - (files / 4).min(OTHER_FILES)).min(CONNECTIONS))
    }

    /// How many connections there may be.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// A place for a new connection, if there is one.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut open = self.open.lock();
        if open.len() >= self.limit && make_room(&mut open, self.limit) == 0 {
            return None;
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            address,
            progress: Mutex::new(Progress::new(Instant::now())),
            idle: AtomicBool::new(true),
            head: AtomicUsize::new(0),
            heads: Arc::clone(&self.heads),
            blocked: AtomicBool::new(false),
            ending: AtomicU8::new(0),
            ends: Notify::new(),
        });
        open.insert(number, Arc::clone(&connection));
        Some(Place { connections: Arc::clone(self), number, connection })
    }

    /// Tells all connections to end.
    pub(super) fn end_all(&self, ending: Ending) {
        for connection in self.open.lock().values() {
            connection.end_as(ending);
        }
    }

    /// Closes connections that do nothing. Returns how many.
    pub(super) fn make_room(&self) -> usize {
        make_room(&mut self.open.lock(), self.limit)
    }
}

/// Closes some of the connections that can be spared. Returns how many.
fn make_room(open: &mut HashMap<u64, Arc<Connection>>, limit: usize) -> usize {
    let mut by_address: HashMap<IpAddr, usize> = HashMap::new();
    for connection in open.values() {
        *by_address.entry(connection.address).or_default() += 1;
    }
    let spared = open.iter().filter_map(|(number, connection)| {
        let standing = connection.progress.lock().standing()?;
        let (class, since) = match standing {
            Standing::Idle(since) => (0, since),
            Standing::Waiting(since) => (1, since),
        };
        Some((class, std::cmp::Reverse(by_address[&connection.address]), since, *number))
    });
    let mut spared: Vec<_> = spared.collect();
    spared.sort_unstable();
    // Requests that are under way are not given up before they must be.
    let idle = spared.iter().filter(|(class, ..)| *class == 0).count();
    spared.truncate(if idle == 0 { 1 } else { idle.min((limit / PART).max(1)) });
    for (.., number) in &spared {
        if let Some(connection) = open.remove(number) {
            connection.end_as(Ending::Close);
        }
    }
    spared.len()
}

impl Connection {
    /// Where the client is.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Waits until the connection is to end, or to end sooner. Cancel-safe.
    pub(super) async fn ending(&self) -> Ending {
        self.ends.notified().await;
        if self.ending.load(Ordering::Acquire) == Ending::Drain as u8 { Ending::Drain } else { Ending::Close }
    }

    fn end_as(&self, ending: Ending) {
        self.ending.fetch_max(ending as u8, Ordering::AcqRel);
        self.ends.notify_one();
    }

    pub(super) fn established(&self, multiplexed: bool) {
        self.progress.lock().established(multiplexed, Instant::now());
    }

    /// Counts bytes that arrived. Returns whether there is room for them.
    pub(super) fn receive(&self, bytes: usize) -> bool {
        if !self.idle.load(Ordering::Relaxed) {
            return true;
        }
        self.progress.lock().received(Instant::now());
        let head = self.head.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if head <= SMALL_HEAD {
            return true;
        }
        let counted = bytes.min(head - SMALL_HEAD);
        self.heads.fetch_add(counted, Ordering::Relaxed) + counted <= HEADS
    }

    /// What was a head is now a request, or nothing.
    fn forget_head(&self) {
        let head = self.head.swap(0, Ordering::Relaxed);
        if head > SMALL_HEAD {
            self.heads.fetch_sub(head - SMALL_HEAD, Ordering::Relaxed);
        }
    }

    pub(super) fn begin(&self, multiplexed: bool) {
        self.idle.store(false, Ordering::Relaxed);
        self.progress.lock().begin(multiplexed);
        self.forget_head();
    }

    pub(super) fn end(&self) {
        let is_idle = self.progress.lock().end(Instant::now());
        self.idle.store(is_idle, Ordering::Relaxed);
    }

    pub(super) fn wait(&self) {
        self.progress.lock().wait(Instant::now());
    }

    pub(super) fn go_on(&self) {
        self.progress.lock().go_on();
    }

    pub(super) fn block(&self) {
        if !self.blocked.swap(true, Ordering::Relaxed) {
            self.progress.lock().block(Instant::now());
        }
    }

    pub(super) fn unblock(&self) {
        // Nearly always there was nothing to wait for.
        if self.blocked.load(Ordering::Relaxed) {
            self.blocked.store(false, Ordering::Relaxed);
            self.progress.lock().unblock();
        }
    }

    pub(super) fn answer(&self) -> u64 {
        self.progress.lock().answer(Instant::now())
    }

    pub(super) fn answered(&self, number: u64) {
        self.progress.lock().answered(number);
    }

    /// When it is to be closed unless something happens before, and why.
    pub(super) fn expires(&self) -> Option<(Instant, Expired)> {
        self.progress.lock().expires()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.number);
        self.connection.forget_head();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::FutureExt as _;

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    fn is_closed(place: &Place) -> bool {
        place.connection.ending().now_or_never() == Some(Ending::Close)
    }

    fn enter(connections: &Arc<Connections>, last: u8) -> Place {
        connections.enter(address(last)).expect("a place")
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_is_idle_for_longest_makes_room() {
        let connections = Arc::new(Connections::new(3));
        let mut places = Vec::new();
        for _ in 0..3 {
            places.push(enter(&connections, 1));
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
        }
        // The first is in use.
        places[0].connection.begin(false);
        let new = enter(&connections, 1);
        assert_eq!(places.iter().map(is_closed).collect::<Vec<_>>(), [false, true, false]);
        assert!(!is_closed(&new));
        drop(places);
        drop(new);
        assert!(connections.open.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_with_most_connections_makes_room() {
        let connections = Arc::new(Connections::new(4));
        let lonely = enter(&connections, 1);
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        let many: Vec<Place> = (0..3).map(|_| enter(&connections, 2)).collect();
        let _new = enter(&connections, 3);
        assert!(!is_closed(&lonely));
        assert_eq!(many.iter().filter(|place| is_closed(place)).count(), 1);
    }

    #[tokio::test]
    async fn requests_are_given_up_only_while_they_wait_for_bodies() {
        let connections = Arc::new(Connections::new(2));
        let (busy, waiting) = (enter(&connections, 1), enter(&connections, 1));
        busy.connection.begin(false);
        waiting.connection.begin(false);
        assert!(connections.enter(address(2)).is_none());
        waiting.connection.wait();
        let new = enter(&connections, 2);
        assert!(is_closed(&waiting) && !is_closed(&busy));
        new.connection.begin(false);
        assert!(connections.enter(address(2)).is_none());
        assert_eq!(connections.make_room(), 0);
    }

    #[test]
    fn unfinished_heads_are_limited_together() {
        let connections = Arc::new(Connections::new(100));
        let mut places: Vec<Place> = (0..40).map(|_| enter(&connections, 1)).collect();
        let taken = places.iter().take_while(|place| place.connection.receive(1 << 20)).count();
        assert_eq!(taken, 32);
        // The one for which there was no room is closed. Small ones are always taken.
        drop(places.remove(taken));
        assert!(places[38].connection.receive(SMALL_HEAD));
        assert!(!places[37].connection.receive(1 << 20));
        drop(places.remove(37));
        places[0].connection.begin(false);
        assert!(places[36].connection.receive(1 << 20));
        drop(places);
        assert_eq!(connections.heads.load(Ordering::Relaxed), 0);
    }
}
