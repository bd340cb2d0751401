//! Which namespaces have quotas or limit ranges.
//!
//! Most have none, and then a write must not pay for the question: it is one look into a map. A namespace
//! that is marked may have any number of them, also none; a write that finds none takes the mark away. A mark
//! carries the revision of the write that set it, so that a write that looked before that one cannot take it away.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Mutex;
use windlass_store::{Range, Revision, Store, StoreError};

use crate::watch::Hub;

pub(crate) const QUOTAS: &str = "/registry/resourcequotas/";
pub(crate) const LIMIT_RANGES: &str = "/registry/limitranges/";
/// How many events are looked at together.
const BATCH: usize = 1000;

/// The namespaces with quotas and those with limit ranges.
pub(crate) struct Restrictions {
    pub(crate) quotas: Marks,
    pub(crate) limit_ranges: Marks,
}

/// The namespaces that objects below one prefix are in.
pub(crate) struct Marks {
    pub(crate) prefix: &'static str,
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    namespaces: RwLock<HashMap<Box<str>, Mark>>,
}

#[derive(Clone)]
struct Mark {
    since: Revision,
    turn: Arc<Mutex<()>>,
}

impl Restrictions {
    /// No namespace is marked.
    pub(crate) fn new(store: &Arc<dyn Store>, hub: &Arc<Hub>) -> Self {
        Self { quotas: Marks::new(QUOTAS, store, hub), limit_ranges: Marks::new(LIMIT_RANGES, store, hub) }
    }

    /// Marks every namespace that has something now.
    pub(crate) async fn open(&self) -> Result<(), StoreError> {
        self.quotas.read().await?;
        self.limit_ranges.read().await?;
        Ok(())
    }

    /// Takes note of a write of a resource of the core group.
    pub(crate) fn written(&self, plural: &str, namespace: &str, revision: Revision) {
        match plural {
            "resourcequotas" => self.quotas.set(namespace, revision),
            "limitranges" => self.limit_ranges.set(namespace, revision),
            _ => {}
        }
    }

    /// Keeps the marks up to date until the store is gone.
    pub(crate) async fn follow(&self) {
        // Both only end when the store does.
        if let Err(error) = tokio::try_join!(self.quotas.follow(), self.limit_ranges.follow()) {
            tracing::error!(%error, "new quotas and limit ranges no longer take effect: the store cannot be used");
        }
    }
}

impl Marks {
    fn new(prefix: &'static str, store: &Arc<dyn Store>, hub: &Arc<Hub>) -> Self {
        Self { prefix, store: Arc::clone(store), hub: Arc::clone(hub), namespaces: RwLock::default() }
    }

    /// Whether a namespace is marked.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        self.namespaces.read().contains_key(namespace)
    }

    /// What the writers in a marked namespace take turns with; `None` if it is not marked.
    pub(crate) fn turn(&self, namespace: &str) -> Option<Arc<Mutex<()>>> {
        self.namespaces.read().get(namespace).map(|mark| Arc::clone(&mark.turn))
    }

    fn set(&self, namespace: &str, revision: Revision) {
        let mut namespaces = self.namespaces.write();
        match namespaces.get_mut(namespace) {
            Some(mark) => mark.since = mark.since.max(revision),
            None => {
                namespaces.insert(namespace.into(), Mark { since: revision, turn: Arc::default() });
            }
        }
    }

    /// Nothing was there at `revision`.
    pub(crate) fn clear(&self, namespace: &str, revision: Revision) {
        let mut namespaces = self.namespaces.write();
        if namespaces.get(namespace).is_some_and(|mark| mark.since <= revision) {
            namespaces.remove(namespace);
        }
    }

    async fn read(&self) -> Result<Revision, StoreError> {
        let found = self.store.range(Range::prefix(self.prefix), None, 0).await?;
        for entry in &found.entries {
            self.set_by_key(&entry.key, entry.modified);
        }
        Ok(found.revision)
    }

    fn set_by_key(&self, key: &[u8], revision: Revision) {
        let path = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(self.prefix));
        if let Some((namespace, _)) = path.and_then(|path| path.split_once('/')) {
            self.set(namespace, revision);
        }
    }

    /// Marks namespaces as objects come into being that this server did not write itself.
    async fn follow(&self) -> Result<(), StoreError> {
        let channel = self.hub.channel(self.prefix).await?;
        let mut newest = channel.subscribe();
        let mut seen = self.read().await?;
        while let Some(events) = channel.read_next(&mut newest, seen, BATCH).await {
            match events {
                Ok(events) => {
                    for change in &events {
                        seen = change.event.revision;
                        if !change.event.deleted {
                            self.set_by_key(&change.event.key, seen);
                        }
                    }
                }
                // Too much happened in the meantime.
                Err(_) => seen = self.read().await?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use windlass_store::Memory;

    use super::*;

    #[test]
    fn a_mark_stays_if_it_was_set_after_the_look() {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let marks = Marks::new(QUOTAS, &store, &Arc::new(Hub::new(Arc::clone(&store))));
        marks.set_by_key(b"/registry/resourcequotas/a/q", 5);
        assert!(marks.has("a") && !marks.has("b"));
        marks.clear("a", 4);
        assert!(marks.has("a"));
        marks.set("a", 3);
        marks.clear("a", 4);
        assert!(marks.has("a"));
        marks.clear("a", 5);
        assert!(!marks.has("a"));
        marks.clear("a", 6);
    }
}
