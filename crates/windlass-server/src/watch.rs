//! The watch hub: one reader of the store's event log feeds every watcher.
//!
//! ```text
//! store event log ──▶ dispatcher ──▶ Channel of /registry/configmaps/ ──▶ cursor of each watcher
//!                                └─▶ Channel of /registry/pods/       ──▶ …
//! ```
//!
//! A [`Channel`] is a bounded ring of events of one resource. Watchers do not own queues: each holds
//! a cursor into the ring, so a slow watcher costs nothing and is cut off when the ring has moved
//! past it. A recent event's encoded form is made once and shared by all watchers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use windlass_store::{Event, Revision, Store, StoreError};

/// How many events a channel keeps, and how many bytes of them.
const RING_EVENTS: usize = 20_000;
const RING_BYTES: usize = 24 << 20;
/// How many of them keep their encoded form for the next watcher.
const RING_LINES: usize = 1024;
/// How many events the dispatcher takes from the store at once.
const BATCH: usize = 1024;

/// What happened to an object, as a watcher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// It came into view.
    Added,
    /// It changed.
    Modified,
    /// It went out of view.
    Deleted,
}

impl Change {
    /// The `type` of a watch event.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    /// What comes before the object in a JSON watch line.
    pub(crate) const fn line_start(self) -> &'static str {
        match self {
            Self::Added => "{\"type\":\"ADDED\",\"object\":",
            Self::Modified => "{\"type\":\"MODIFIED\",\"object\":",
            Self::Deleted => "{\"type\":\"DELETED\",\"object\":",
        }
    }
}

/// One event of a channel.
#[derive(Debug)]
pub struct WatchEvent {
    /// The store's event.
    pub event: Arc<Event>,
    encoded: Mutex<Encoded>,
}

/// The lines of an event that watchers have asked for.
#[derive(Debug, Default)]
struct Encoded {
    lines: [Option<Bytes>; 3],
    /// Whether lines are made anew for each watcher.
    is_past: bool,
}

impl WatchEvent {
    fn new(event: Arc<Event>) -> Self {
        Self { event, encoded: Mutex::default() }
    }

    /// The event as a JSON watch line, `{"type":…,"object":…}\n`; encoded once, shared by all watchers that keep up.
    /// It is for events of small objects.
    pub fn line(&self, change: Change) -> Bytes {
        let mut encoded = self.encoded.lock();
        if let Some(line) = &encoded.lines[change as usize] {
            return line.clone();
        }
        let line = line(change, &self.event.entry.value);
        if !encoded.is_past {
            encoded.lines[change as usize] = Some(line.clone());
        }
        line
    }

    /// Keeps no lines any more: most watchers have had them.
    fn let_go(&self) {
        *self.encoded.lock() = Encoded { is_past: true, ..Encoded::default() };
    }
}

/// What comes after the object in a JSON watch line.
pub(crate) const LINE_END: &str = "}\n";

/// A JSON watch line.
fn line(change: Change, object: &[u8]) -> Bytes {
    let start = change.line_start();
    let mut out = Vec::with_capacity(start.len() + object.len() + LINE_END.len());
    out.extend_from_slice(start.as_bytes());
    out.extend_from_slice(object);
    out.extend_from_slice(LINE_END.as_bytes());
    out.into()
}

/// The events of one resource.
#[derive(Debug)]
pub struct Channel {
    ring: RwLock<Ring>,
    newest: watch::Sender<Revision>,
}

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Arc<WatchEvent>>,
    bytes: usize,
    /// Every event with a revision above this is in the ring.
    complete_after: Revision,
}

impl Ring {
    fn push(&mut self, event: Arc<WatchEvent>) {
        self.bytes += event.event.entry.value.len();
        self.events.push_back(event);
        if let Some(past) = self.events.len().checked_sub(RING_LINES + 1) {
            self.events[past].let_go();
        }
        while self.events.len() > RING_EVENTS || self.bytes > RING_BYTES {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.event.entry.value.len();
            self.complete_after = oldest.event.revision;
        }
    }
}

impl Channel {
    fn new(complete_after: Revision) -> Self {
        let ring = Ring { complete_after, ..Ring::default() };
        Self { ring: RwLock::new(ring), newest: watch::channel(complete_after).0 }
    }

    /// Events with a revision above `after`, at most `limit` but never part of a transaction; or the
    /// oldest revision a watcher can start from, when events after `after` have been dropped.
    pub fn read(&self, after: Revision, limit: usize) -> Result<Vec<Arc<WatchEvent>>, Revision> {
        self.read_some(after, limit, usize::MAX)
    }

    /// [`read`](Self::read), but no further than the event with which the objects have `bytes` together: a watcher
    /// that waits for its client holds on to no more.
    pub(crate) fn read_some(
        &self,
        after: Revision,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Arc<WatchEvent>>, Revision> {
        let ring = self.ring.read();
        if after < ring.complete_after {
            return Err(ring.complete_after);
        }
        let start = ring.events.partition_point(|e| e.event.revision <= after);
        let mut out: Vec<Arc<WatchEvent>> = Vec::new();
        let mut read = 0;
        for event in ring.events.range(start..) {
            let is_enough = out.len() >= limit || read >= bytes;
            if is_enough && out.last().is_some_and(|last| last.event.revision != event.event.revision) {
                break;
            }
            read += event.event.entry.value.len();
            out.push(Arc::clone(event));
        }
        Ok(out)
    }

    /// [`read`](Self::read), once there is something to read. `None` when there will be nothing more, as the hub is gone.
    pub(crate) async fn read_next(
        &self,
        newest: &mut watch::Receiver<Revision>,
        after: Revision,
        limit: usize,
    ) -> Option<Result<Vec<Arc<WatchEvent>>, Revision>> {
        loop {
            newest.borrow_and_update();
            let events = self.read(after, limit);
            if !matches!(&events, Ok(events) if events.is_empty()) {
                return Some(events);
            }
            newest.changed().await.ok()?;
        }
    }

    /// Wakes when events arrive.
    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.newest.subscribe()
    }
}

/// Feeds the channels from the store's event log.
pub struct Hub {
    store: Arc<dyn Store>,
    state: Mutex<State>,
    /// The revision up to which the channels are complete.
    progress: watch::Sender<Revision>,
    /// Serialises the slow part of opening a channel.
    opening: tokio::sync::Mutex<()>,
    running: AtomicBool,
}

struct State {
    channels: HashMap<Box<str>, Arc<Channel>>,
    progress: Revision,
}

impl Hub {
    /// A hub that is complete from the store's present revision on. [`run`](Self::run) must be driven.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let now = *store.revision().borrow();
        let state = Mutex::new(State { channels: HashMap::new(), progress: now });
        Self {
            store,
            state,
            progress: watch::channel(now).0,
            opening: tokio::sync::Mutex::new(()),
            running: AtomicBool::new(true),
        }
    }

    /// The revision up to which every channel is complete.
    pub fn progress(&self) -> watch::Receiver<Revision> {
        self.progress.subscribe()
    }

    /// Whether events are being delivered.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    /// Distributes events until the store is gone. Cancel-safe between batches.
    pub async fn run(&self) {
        let mut newest = self.store.revision();
        loop {
            let after = self.state.lock().progress;
            match self.store.events(after, BATCH).await {
                Ok(events) if events.is_empty() => {
                    self.advance(*newest.borrow_and_update());
                    if newest.changed().await.is_err() {
                        return;
                    }
                }
                Ok(events) => self.distribute(&events),
                Err(StoreError::Compacted { oldest, .. }) => self.restart(oldest),
                Err(error) => {
                    self.running.store(false, Ordering::Relaxed);
                    tracing::error!(%error, "the watch hub stops: the store cannot be read");
                    return;
                }
            }
        }
    }

    fn distribute(&self, events: &[Arc<Event>]) {
        let mut state = self.state.lock();
        let mut woken: Vec<(Arc<Channel>, Revision)> = Vec::new();
        for event in events {
            let Some(channel) = state.channel_of(&event.key) else { continue };
            channel.ring.write().push(Arc::new(WatchEvent::new(Arc::clone(event))));
            match woken.iter_mut().find(|(c, _)| Arc::ptr_eq(c, &channel)) {
                Some((_, revision)) => *revision = event.revision,
                None => woken.push((channel, event.revision)),
            }
        }
        if let Some(last) = events.last() {
            state.progress = last.revision;
        }
        let progress = state.progress;
        drop(state);
        self.progress.send_replace(progress);
        for (channel, revision) in woken {
            channel.newest.send_replace(revision);
        }
    }

    /// Nothing happened up to `revision`: all channels are complete up to there.
    fn advance(&self, revision: Revision) {
        // Only what the log was read up to counts; a newer revision is picked up by the next read.
        let progress = self.state.lock().progress;
        if progress < revision && *self.progress.borrow() < progress {
            self.progress.send_replace(progress);
        }
    }

    /// The log moved past the hub: every channel starts anew, and watchers behind that are cut off.
    fn restart(&self, oldest: Revision) {
        let mut state = self.state.lock();
        state.progress = oldest;
        for channel in state.channels.values() {
            *channel.ring.write() = Ring { complete_after: oldest, ..Ring::default() };
            channel.newest.send_replace(oldest);
        }
        drop(state);
        self.progress.send_replace(oldest);
    }

    /// The channel of the resource stored below `prefix`, with as much history as the store has.
    pub async fn channel(&self, prefix: &str) -> Result<Arc<Channel>, StoreError> {
        if let Some(channel) = self.state.lock().channels.get(prefix) {
            return Ok(Arc::clone(channel));
        }
        let _opening = self.opening.lock().await;
        let (channel, until) = {
            let mut state = self.state.lock();
            if let Some(channel) = state.channels.get(prefix) {
                return Ok(Arc::clone(channel));
            }
            let channel = Arc::new(Channel::new(state.progress));
            state.channels.insert(prefix.into(), Arc::clone(&channel));
            (channel, state.progress)
        };
        self.fill(&channel, prefix, until).await?;
        Ok(channel)
    }

    /// Puts the history up to `until` in front of what the dispatcher has pushed meanwhile.
    async fn fill(&self, channel: &Channel, prefix: &str, until: Revision) -> Result<(), StoreError> {
        let mut history = Ring { complete_after: self.store.compacted(), ..Ring::default() };
        let mut after = history.complete_after;
        'read: while after < until {
            match self.store.events(after, BATCH).await {
                Ok(events) => {
                    let Some(last) = events.last() else { break };
                    after = last.revision;
                    for event in events {
                        if event.revision > until {
                            break 'read;
                        }
                        if event.key.starts_with(prefix.as_bytes()) {
                            history.push(Arc::new(WatchEvent::new(event)));
                        }
                    }
                }
                Err(StoreError::Compacted { oldest, .. }) => {
                    history = Ring { complete_after: oldest, ..Ring::default() };
                    after = oldest;
                }
                Err(error) => return Err(error),
            }
        }
        let mut ring = channel.ring.write();
        for event in std::mem::take(&mut ring.events) {
            history.push(event);
        }
        *ring = history;
        Ok(())
    }
}

impl State {
    /// The channel a key belongs to. Built-in prefixes are `/registry/<plural>/` or one level deeper
    /// (`/registry/services/specs/`, `/registry/<group>/<plural>/` for custom resources).
    fn channel_of(&self, key: &[u8]) -> Option<Arc<Channel>> {
        let key = std::str::from_utf8(key).ok()?;
        let slashes: Vec<usize> = memchr::memchr_iter(b'/', key.as_bytes()).take(4).collect();
        [3, 2].iter().filter_map(|n| slashes.get(*n)).find_map(|end| self.channels.get(&key[..=*end])).map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_store::{Expect, Memory, Value, Write};

    fn put(key: &'static str, value: &'static str) -> Vec<Write> {
        vec![Write::Put { key: key.into(), expect: Expect::Any, value: Value::plain(value) }]
    }

    #[tokio::test]
    async fn a_channel_has_history_and_follows() {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        store.txn(put("/registry/a/n/x", "1")).await.expect("writes");
        store.txn(put("/registry/b/n/x", "2")).await.expect("writes");
        let hub = Arc::new(Hub::new(Arc::clone(&store)));
        let task = tokio::spawn({
            let hub = Arc::clone(&hub);
            async move { hub.run().await }
        });
        let channel = hub.channel("/registry/a/").await.expect("opens");
        assert_eq!(channel.read(1, 10).expect("complete").len(), 1);
        let mut newest = channel.subscribe();
        store.txn(put("/registry/a/n/x", "3")).await.expect("writes");
        newest.changed().await.expect("hub lives");
        let events = channel.read(2, 10).expect("complete");
        assert_eq!(events.len(), 1);
        assert_eq!(&events[0].line(Change::Modified)[..], b"{\"type\":\"MODIFIED\",\"object\":3}\n");
        assert_eq!(channel.read_some(1, 10, 1).expect("complete").len(), 1);
        assert_eq!(channel.read_some(1, 10, 2).expect("complete").len(), 2);
        task.abort();
    }
}
