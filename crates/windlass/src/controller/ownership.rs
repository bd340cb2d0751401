//! Which keys a run may work on: all of them, or those of the shards that this replica holds.
//!
//! A worker [enters](Ownership::enter) a key before it reconciles it, and gets the context for that. What it may not enter it
//! [refuses](Ownership::refuse). How shards change hands is the [`Coordinator`]'s.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::SourceContext;
use super::context::Shared;
use super::source::{Sink, Source};
use super::worker::Run;
use crate::key::ObjectKey;
use crate::queue::{Completion, Priority, Queue};
use crate::shard::{Claim, Coordinator, Keys, Sharding, Slot, Slots, shard_of};

/// The keys that a run may work on, and in which context.
pub(super) trait Ownership: Send + Sync {
    /// The context for a key; `None` when it is another replica's.
    fn enter(&self, key: &ObjectKey) -> Option<(Arc<Shared>, Option<Claim>)>;

    /// What becomes of a key that could not be entered, or not for long enough.
    fn refuse(&self, key: &ObjectKey) -> Completion;

    /// The shards, where there are any.
    fn slots(&self) -> Option<&Slots> {
        None
    }

    /// What takes shards and gives them back, where there are any.
    fn coordinator(&self, _run: &Run, _ctx: &SourceContext, _queue: &Queue<ObjectKey>) -> Option<Coordinator> {
        None
    }
}

/// The ownership of a controller with this sharding.
pub(super) fn of(sharding: Option<&Sharding>, shared: Arc<Shared>) -> Box<dyn Ownership> {
    match sharding {
        None => Box::new(Whole(shared)),
        Some(sharding) => Box::new(Sharded::new(sharding.clone(), shared)),
    }
}

/// All keys.
struct Whole(Arc<Shared>);

impl Ownership for Whole {
    fn enter(&self, _key: &ObjectKey) -> Option<(Arc<Shared>, Option<Claim>)> {
        Some((Arc::clone(&self.0), None))
    }

    fn refuse(&self, _key: &ObjectKey) -> Completion {
        Completion::Done
    }
}

/// The keys of the shards held; each shard's writes pass its own fence, bound to the term.
struct Sharded {
    sharding: Sharding,
    slots: Slots,
    shared: Arc<Shared>,
    contexts: Box<[TermContext]>,
}

/// The last term that a shard was worked on in, and its context.
type TermContext = Mutex<(u64, Arc<Shared>)>;

impl Sharded {
    fn new(sharding: Sharding, shared: Arc<Shared>) -> Self {
        let slots = Slots::new(sharding.shards);
        // There is no term 0.
        let context = |slot: &Slot| Mutex::new((0, Arc::new(shared.fenced(&slot.fence.bound(0)))));
        let contexts = slots.iter().map(context).collect();
        Self { sharding, slots, shared, contexts }
    }
}

impl Ownership for Sharded {
    fn enter(&self, key: &ObjectKey) -> Option<(Arc<Shared>, Option<Claim>)> {
        let claim = self.slots.enter(key)?;
        let mut context = self.contexts[claim.shard() as usize].lock();
        if context.0 != claim.term() {
            *context = (claim.term(), Arc::new(self.shared.fenced(&claim.fence())));
        }
        Some((Arc::clone(&context.1), Some(claim)))
    }

    fn refuse(&self, key: &ObjectKey) -> Completion {
        if self.slots.refuse(key) { Completion::RequeueAfter(Duration::ZERO) } else { Completion::Done }
    }

    fn slots(&self) -> Option<&Slots> {
        Some(&self.slots)
    }

    fn coordinator(&self, run: &Run, ctx: &SourceContext, queue: &Queue<ObjectKey>) -> Option<Coordinator> {
        let slots = &self.slots;
        let (sources, ctx, queue) = (Arc::clone(&run.sources), ctx.clone(), queue.clone());
        let keys = ShardKeys { sources, ctx, queue, slots: slots.clone() };
        let (watched, label) = (slots.clone(), run.name.to_string());
        run.environment.metrics.replace_collector(&format!("shards/{label}"), move |scrape| {
            let (help, labels) = ("Shards that this replica holds", [("controller", label.as_str())]);
            scrape.gauge("windlass_shards_held", help, &labels, watched.held() as f64);
        });
        let client = &run.environment.client;
        let (names, recorder) = ((client.field_manager(), &*run.name), run.environment.recorder.clone());
        let client = client.kube().clone();
        Some(Coordinator::new(client, names, self.sharding.clone(), slots.clone(), Box::new(keys), recorder))
    }
}

/// The keys of shards: in the queue, and in the caches.
struct ShardKeys {
    sources: Arc<[Box<dyn Source>]>,
    ctx: SourceContext,
    queue: Queue<ObjectKey>,
    slots: Slots,
}

impl ShardKeys {
    /// Puts everything that the caches know in a queue.
    fn fill(&self, queue: &Queue<ObjectKey>, shards: &BTreeSet<u32>) {
        let shards = Some((self.slots.count(), shards.clone()));
        let sink = Sink { queue: queue.clone(), shards, slots: None };
        // A subscription hears of everything known before it hears of changes; those come through
        // the other one.
        for source in &*self.sources {
            drop(source.subscribe(&self.ctx, sink.clone()));
        }
    }
}

impl Keys for ShardKeys {
    fn taken(&self, shards: &BTreeSet<u32>) {
        self.fill(&self.queue, shards);
        for key in shards.iter().flat_map(|shard| self.slots.remembered(*shard)) {
            self.queue.add(key, Priority::NORMAL);
        }
    }

    fn left(&self, keys: BTreeSet<ObjectKey>) {
        for key in keys {
            self.queue.add(key, Priority::NORMAL);
        }
    }

    fn pending(&self, shards: &BTreeSet<u32>) -> BTreeSet<ObjectKey> {
        let count = self.slots.count();
        self.queue.pending(|key| shards.contains(&shard_of(key, count))).into_iter().collect()
    }

    fn known(&self, shards: &BTreeSet<u32>) -> BTreeSet<ObjectKey> {
        let known = Queue::default();
        self.fill(&known, shards);
        known.pending(|_| true).into_iter().collect()
    }
}
