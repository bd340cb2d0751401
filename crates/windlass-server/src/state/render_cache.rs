//! What many watchers ask for is made once and shared.
//!
//! A Table row, an object in another version or in another format takes work that grows with the object, and every
//! watcher of a resource asks for the same. The cache is keyed by the stored bytes, which the store, the watch hub and
//! lists share, and by the [`Form`]. The first request renders the bytes; later ones wait for them or find them.
//!
//! Memory is bounded: beyond [`BUDGET`] the oldest entry goes, and [`RenderCache::run`] drops entries after
//! [`LIFETIME`], so that an idle server keeps none. A cached entry holds on to the bytes it was made from, so that an
//! address always stands for the same bytes.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell};
use tokio::time::Instant;
use windlass_store::Revision;

use crate::catalog::Served;
use crate::codec::negotiate::{Format, Transform};
use crate::status::Status;
use crate::table::{IncludeObject, MetaVersion};
use crate::watch::Change;

/// How much entries may take together, with the bytes they were made from.
const BUDGET: usize = 16 << 20;
/// How long an entry is kept.
const LIFETIME: Duration = Duration::from_secs(3);
/// What an entry takes besides its bytes.
const ENTRY: usize = 512;

/// Everything besides the stored bytes that determines what is made of them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    /// The resource with its columns and schema: another revision of a CRD is another [`Served`].
    pub(crate) served: ByAddress,
    /// When the object was last written, which tells the schema that it was written under.
    pub(crate) revision: Revision,
    /// What is made.
    pub(crate) shape: Shape,
}

/// What is made of stored bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// A watch event.
    Event {
        /// What happened to the object.
        change: Change,
        /// The wire format.
        format: Format,
        /// What the object is converted to.
        transform: Option<(Transform, MetaVersion)>,
        /// What comes along with a row.
        include: IncludeObject,
        /// Whether a Table has column definitions.
        headers: bool,
    },
    /// The same object with another resourceVersion.
    AtRevision(Revision),
    /// Whether a selector matches, written out: empty if not.
    Match(Arc<str>),
}

/// A resource that is compared by its address.
#[derive(Clone)]
pub(crate) struct ByAddress(pub(crate) Arc<Served>);

impl PartialEq for ByAddress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ByAddress {}

impl Hash for ByAddress {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// See the module's introduction.
#[derive(Default)]
pub(crate) struct RenderCache {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    entries: HashMap<Key, Entry>,
    /// Oldest first. An entry that was replaced is here twice.
    order: VecDeque<(Instant, Key)>,
    bytes: usize,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    address: usize,
    length: usize,
    form: Form,
}

struct Entry {
    slot: Arc<Slot>,
    since: Instant,
    bytes: usize,
    /// Keeps the address in use.
    _source: Bytes,
}

/// Where an entry's bytes will be. If the future that renders them is dropped, the next waiting request renders them.
#[derive(Default)]
struct Slot(OnceCell<(Instant, Bytes)>);

impl RenderCache {
    /// What `make` makes of `source` in a form: made by the first request, shared with requests that come at most `fresh`
    /// later. Failures are not kept. Cancel-safe.
    pub(crate) async fn get(
        &self,
        source: &Bytes,
        form: Form,
        fresh: Duration,
        make: impl Future<Output = Result<Bytes, Status>>,
    ) -> Result<Bytes, Status> {
        let key = Key { address: source.as_ptr().addr(), length: source.len(), form };
        let slot = self.slot(source, &key, fresh);
        let mut made = false;
        let bytes = async {
            let bytes = make.await?;
            made = true;
            Ok::<_, Status>((Instant::now(), bytes))
        };
        let (_, bytes) = slot.0.get_or_try_init(|| bytes).await?;
        if made {
            self.add(&key, &slot, bytes.len());
        }
        Ok(bytes.clone())
    }

    /// The slot of a key, a new one if there is none or what is there is no longer fresh.
    fn slot(&self, source: &Bytes, key: &Key, fresh: Duration) -> Arc<Slot> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if let Some(entry) = state.entries.get(key)
            && entry.slot.0.get().is_none_or(|(made, _)| now.duration_since(*made) < fresh.min(LIFETIME))
        {
            return Arc::clone(&entry.slot);
        }
        if state.entries.is_empty() {
            self.filled.notify_one();
        }
        let slot = Arc::new(Slot::default());
        let bytes = source.len() + ENTRY;
        let entry = Entry { slot: Arc::clone(&slot), since: now, bytes, _source: source.clone() };
        if let Some(replaced) = state.entries.insert(key.clone(), entry) {
            state.bytes -= replaced.bytes;
        }
        state.bytes += bytes;
        state.order.push_back((now, key.clone()));
        state.shrink();
        slot
    }

    /// Counts bytes that were made, if their entry is still there.
    fn add(&self, key: &Key, slot: &Arc<Slot>, bytes: usize) {
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get_mut(key).filter(|entry| Arc::ptr_eq(&entry.slot, slot)) else { return };
        entry.bytes += bytes;
        state.bytes += bytes;
        state.shrink();
    }

    /// Drops entries that are of no use any more. Runs until it is dropped.
    pub(crate) async fn run(&self) {
        loop {
            self.filled.notified().await;
            loop {
                tokio::time::sleep(LIFETIME).await;
                if self.state.lock().expire(Instant::now()) {
                    break;
                }
            }
        }
    }
}

impl State {
    /// Drops the oldest entries until the rest is within the budget.
    fn shrink(&mut self) {
        while self.bytes > BUDGET
            && let Some((since, key)) = self.order.pop_front()
        {
            self.remove(since, &key);
        }
    }

    /// Drops entries older than [`LIFETIME`]. Returns whether none are left.
    fn expire(&mut self, now: Instant) -> bool {
        while let Some((since, _)) = self.order.front()
            && now.duration_since(*since) >= LIFETIME
            && let Some((since, key)) = self.order.pop_front()
        {
            self.remove(since, &key);
        }
        let is_empty = self.entries.is_empty();
        if is_empty {
            // Not only the entries are let go of, but also the room for them.
            *self = Self::default();
        }
        is_empty
    }

    fn remove(&mut self, since: Instant, key: &Key) {
        if self.entries.get(key).is_some_and(|entry| entry.since == since)
            && let Some(entry) = self.entries.remove(key)
        {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::catalog::Catalog;

    fn form(change: Change) -> Form {
        let snapshot = Catalog::new().snapshot();
        let served = snapshot.find("", "v1", "pods").expect("pods are served");
        let transform = Some((Transform::Table, MetaVersion::V1));
        let shape =
            Shape::Event { change, format: Format::Json, transform, include: IncludeObject::Metadata, headers: false };
        Form { served: ByAddress(Arc::clone(served)), revision: 7, shape }
    }

    const FRESH: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn bytes_are_made_once_for_all_who_ask() {
        let (cache, source, form) = (RenderCache::default(), Bytes::from("{}"), form(Change::Added));
        let made = Cell::new(0);
        let make = async || {
            made.set(made.get() + 1);
            tokio::task::yield_now().await;
            Ok(Bytes::from("row"))
        };
        let get = async || cache.get(&source, form.clone(), FRESH, make()).await.expect("a row");
        let (one, two, three) = tokio::join!(get(), get(), get());
        assert_eq!((&one[..], made.get()), (&b"row"[..], 1));
        assert!(one.as_ptr() == two.as_ptr() && two.as_ptr() == three.as_ptr());
        tokio::time::advance(FRESH).await;
        get().await;
        assert_eq!(made.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn forms_and_objects_are_told_apart() {
        let cache = RenderCache::default();
        let (source, same) = (Bytes::from("{}"), Bytes::from(b"{}".to_vec()));
        let (added, modified) = (form(Change::Added), form(Change::Modified));
        for (source, form) in [(&source, &added), (&source, &modified), (&same, &added)] {
            let text = format!("{:p}{}", source.as_ptr(), u8::from(*form == added));
            let bytes = cache.get(source, form.clone(), FRESH, async { Ok(text.clone().into()) }).await.expect("bytes");
            assert_eq!(bytes, text);
        }
        assert_eq!(cache.state.lock().entries.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_or_an_abandoned_attempt_is_made_good() {
        let (cache, source, form) = (RenderCache::default(), Bytes::from("{}"), form(Change::Added));
        let failed = cache.get(&source, form.clone(), FRESH, async { Err(Status::timed_out()) }).await;
        assert!(failed.is_err());
        let abandoned = cache.get(&source, form.clone(), FRESH, std::future::pending());
        assert!(tokio::time::timeout(Duration::from_millis(1), abandoned).await.is_err());
        let made = cache.get(&source, form, FRESH, async { Ok(Bytes::from("row")) }).await;
        assert_eq!(made.expect("a row"), "row");
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_and_given_back() {
        let cache = Arc::new(RenderCache::default());
        let run = tokio::spawn({
            let cache = Arc::clone(&cache);
            async move { cache.run().await }
        });
        let form = form(Change::Added);
        let large = Bytes::from(vec![b'x'; BUDGET / 4]);
        for at in 0..20 {
            let source = large.slice(at..);
            let bytes = cache.get(&source, form.clone(), FRESH, async { Ok(source.clone()) }).await.expect("bytes");
            assert_eq!(bytes.len(), source.len());
            assert!(cache.state.lock().bytes <= BUDGET);
        }
        assert!(!cache.state.lock().entries.is_empty());
        tokio::time::sleep(LIFETIME * 2).await;
        let state = cache.state.lock();
        assert_eq!((state.entries.len(), state.order.len(), state.bytes), (0, 0, 0));
        run.abort();
    }
}
