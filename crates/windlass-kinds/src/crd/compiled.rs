//! What the schemas of custom resources are compiled to: made when it is first needed, and dropped again.
//!
//! ```text
//! stored CRD (bytes) ▸ Source::schema ▸ Compiled { schema, rules, growth } ▸ Slot of a version ▸ dropped by Schemas
//! ```
//!
//! A compiled schema takes many times the room of its text, and a cluster has hundreds of definitions of which few are
//! in use at a time. So each version has a [`Slot`], and the [`Schemas`] of a server bound how many slots are filled: the
//! least recently used one is emptied when there are too many, and [`Schemas::sweep`] empties those that nothing
//! uses. Using a slot takes no lock; filling one does.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use windlass_api::codec::json;
use windlass_cel::growth::Growth;

use crate::rules::Rules;
use crate::schema::structural::Reader;
use crate::schema::{Schema, validate};
use crate::validation::access::Access;

/// How many bytes of CRDs stay compiled, which takes about ten times the room.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// A schema, and what follows from it.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) schema: Arc<Schema>,
    /// The CEL rules, compiled when the first object is checked. `None` if there are none.
    rules: OnceLock<Option<Rules>>,
    /// How long checking an object against the schema may take, rules apart; found out with the first one.
    growth: OnceLock<Growth>,
}

impl Compiled {
    /// The compiled CEL rules, if the schema has any.
    pub(super) fn rules(&self) -> Option<&Rules> {
        self.rules.get_or_init(|| if super::has_rules(&self.schema) { Rules::new(&self.schema) } else { None }).as_ref()
    }

    /// How long checking an object may take, if that has been found out.
    pub(super) fn known_growth(&self) -> Option<&Growth> {
        self.growth.get()
    }

    /// Finds out how long checking an object may take.
    pub(super) fn find_growth(&self) {
        // Who knows the one has the other, too.
        self.rules();
        self.growth.get_or_init(|| validate::growth(&self.schema));
    }
}

/// The CRD that schemas are made of, as it is stored.
#[derive(Debug)]
pub(super) struct Source {
    stored: Mutex<Bytes>,
    versions: usize,
}

impl Source {
    /// A CRD with so many versions.
    pub(super) fn new(stored: Bytes, versions: usize) -> Self {
        Self { stored: Mutex::new(stored), versions }
    }

    /// The CRD.
    pub(super) fn stored(&self) -> Bytes {
        self.stored.lock().clone()
    }

    /// Goes by another state of the CRD, with the same spec: the one before need not be kept.
    pub(super) fn replace(&self, stored: Bytes) {
        *self.stored.lock() = stored;
    }

    /// The schema of one version. What was stored can be read; if it cannot, the schema says nothing.
    pub(super) fn schema(&self, version: usize) -> Schema {
        let crd = json::parse(&self.stored()).map(|parsed| parsed.value).unwrap_or_default();
        let versions = crd.at("spec").list("versions");
        let version = versions.get(version).unwrap_or(&Value::Null);
        Reader::new().root(version.at("schema").at("openAPIV3Schema"))
    }

    /// How many bytes one version counts for.
    fn weight(&self) -> usize {
        self.stored.lock().len() / self.versions.max(1)
    }
}

/// Where the compiled schema of one version is while it is in use.
#[derive(Debug)]
pub(super) struct Slot {
    compiled: ArcSwapOption<Compiled>,
    /// When it was last used, in the time of [`Schemas::now`].
    used: AtomicU64,
    weight: AtomicUsize,
    filling: Mutex<()>,
    source: Arc<Source>,
    version: usize,
    schemas: Arc<Schemas>,
}

impl Slot {
    /// An empty slot for one version of a CRD.
    pub(super) fn new(source: Arc<Source>, version: usize, schemas: Arc<Schemas>) -> Arc<Self> {
        Arc::new(Self {
            compiled: ArcSwapOption::empty(),
            used: AtomicU64::default(),
            weight: AtomicUsize::default(),
            filling: Mutex::default(),
            source,
            version,
            schemas,
        })
    }

    /// The compiled schema, if it is there.
    pub(super) fn peek(&self) -> Option<Arc<Compiled>> {
        self.compiled.load_full()
    }

    /// The compiled schema, made if it is not there.
    pub(super) fn get(self: &Arc<Self>) -> Arc<Compiled> {
        if let Some(compiled) = self.peek() {
            self.used.store(self.schemas.now.load(Ordering::Relaxed), Ordering::Relaxed);
            return compiled;
        }
        let _filling = self.filling.lock();
        if let Some(compiled) = self.peek() {
            return compiled;
        }
        let schema = Arc::new(self.source.schema(self.version));
        let compiled = Arc::new(Compiled { schema, rules: OnceLock::new(), growth: OnceLock::new() });
        self.compiled.store(Some(Arc::clone(&compiled)));
        self.weight.store(self.source.weight(), Ordering::Relaxed);
        self.schemas.keep(self);
        compiled
    }

    /// How many bytes of a CRD it is made of.
    pub(super) fn weight(&self) -> usize {
        self.source.weight()
    }

    /// The schema for one use. It is not kept.
    pub(super) fn once(&self) -> Arc<Schema> {
        match self.peek() {
            Some(compiled) => Arc::clone(&compiled.schema),
            None => Arc::new(self.source.schema(self.version)),
        }
    }
}

/// The compiled schemas of one server.
#[derive(Debug)]
pub struct Schemas {
    limit: usize,
    /// Counts the slots that were filled and the sweeps: the time that uses are dated with.
    now: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    slots: Vec<Weak<Slot>>,
    /// When the last sweep was.
    swept: u64,
}

impl Default for Schemas {
    fn default() -> Self {
        Self::new(KEPT_BYTES)
    }
}

impl Schemas {
    /// Keeps the compiled schemas of about so many bytes of CRDs, and at least that of the version used last.
    pub fn new(limit: usize) -> Self {
        Self { limit, now: AtomicU64::new(1), kept: Mutex::default() }
    }

    /// How many compiled schemas there are.
    pub fn count(&self) -> usize {
        self.kept.lock().slots.iter().filter(|slot| slot.strong_count() > 0).count()
    }

    /// Drops the compiled schemas that nothing has used since the last sweep.
    pub fn sweep(&self) {
        let mut kept = self.kept.lock();
        let before = std::mem::replace(&mut kept.swept, self.now.fetch_add(1, Ordering::Relaxed) + 1);
        kept.slots.retain(|slot| {
            slot.upgrade().is_some_and(|slot| {
                let in_use = slot.used.load(Ordering::Relaxed) >= before;
                if !in_use {
                    slot.compiled.store(None);
                }
                in_use
            })
        });
    }

    /// Keeps what a slot was filled with, and empties others where that is too much.
    fn keep(&self, filled: &Arc<Slot>) {
        let mut kept = self.kept.lock();
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        filled.used.store(now, Ordering::Relaxed);
        let mut others: Vec<Arc<Slot>> = kept.slots.drain(..).filter_map(|slot| slot.upgrade()).collect();
        others.retain(|slot| !Arc::ptr_eq(slot, filled));
        others.sort_by_key(|slot| std::cmp::Reverse(slot.used.load(Ordering::Relaxed)));
        let mut room = self.limit.saturating_sub(filled.weight.load(Ordering::Relaxed));
        kept.slots.push(Arc::downgrade(filled));
        for slot in others {
            let weight = slot.weight.load(Ordering::Relaxed);
            if weight <= room {
                room -= weight;
                kept.slots.push(Arc::downgrade(&slot));
            } else {
                room = 0;
                slot.compiled.store(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slots(count: usize, schemas: &Arc<Schemas>) -> Vec<Arc<Slot>> {
        let slot = |index: usize| {
            let schema = json!({"type": "object", "properties": {format!("f{index}"): {"type": "string"}}});
            let crd = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
            Slot::new(Arc::new(Source::new(crd.to_string().into(), 1)), 0, Arc::clone(schemas))
        };
        (0..count).map(slot).collect()
    }

    fn filled(slots: &[Arc<Slot>]) -> Vec<usize> {
        (0..slots.len()).filter(|index| slots[*index].peek().is_some()).collect()
    }

    #[test]
    fn the_least_recently_used_schema_makes_room() {
        let size = slots(1, &Arc::default())[0].source.weight();
        let schemas = Arc::new(Schemas::new(3 * size));
        let slots = slots(9, &schemas);
        for slot in &slots[..3] {
            slot.get();
        }
        assert_eq!((filled(&slots), schemas.count()), (vec![0, 1, 2], 3));
        slots[3].get();
        assert_eq!(filled(&slots), [1, 2, 3]);
        slots[1].get();
        slots[4].get();
        assert_eq!(filled(&slots), [1, 3, 4]);
        for (index, slot) in slots.iter().enumerate() {
            assert!(slot.get().schema.properties.contains_key(&*format!("f{index}")), "made again");
            assert!(schemas.count() <= 3);
        }
    }

    #[test]
    fn the_schema_used_last_stays_however_large() {
        let schemas = Arc::new(Schemas::new(0));
        let slots = slots(2, &schemas);
        slots[0].get();
        slots[1].get();
        assert_eq!((filled(&slots), schemas.count()), (vec![1], 1));
    }

    #[test]
    fn a_sweep_drops_what_was_unused_since_the_last() {
        let schemas = Arc::new(Schemas::default());
        let slots = slots(3, &schemas);
        for slot in &slots {
            drop(slot.get());
        }
        schemas.sweep();
        assert_eq!(filled(&slots), [0, 1, 2]);
        slots[1].get();
        schemas.sweep();
        assert_eq!(filled(&slots), [1]);
        schemas.sweep();
        assert_eq!((filled(&slots), schemas.count()), (vec![], 0));
    }

    #[test]
    fn schemas_of_definitions_that_are_gone_do_not_count() {
        let schemas = Arc::new(Schemas::default());
        for slot in slots(3, &schemas) {
            drop(slot.get());
        }
        assert_eq!(schemas.count(), 0);
    }
}
