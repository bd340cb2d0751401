//! Which namespaces have quotas or limit ranges.
//!
//! Most have none, and then a write must not pay for the question: it is one look into a map. A namespace
//! that is marked may have any number of them, also none; whoever finds none takes the mark away. A mark
//! carries the revision of the write that set it, so that it cannot be taken away by somebody who looked
//! before that write.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Mutex;
use windlass_store::{Range, Revision, StoreError};

use crate::api::Api;

pub(super) const QUOTAS: &str = "/registry/resourcequotas/";
pub(super) const LIMIT_RANGES: &str = "/registry/limitranges/";
/// How many events are looked at together.
const BATCH: usize = 1000;

/// The namespaces with quotas and those with limit ranges.
pub(crate) struct Restrictions {
    pub(super) quotas: Marks,
    pub(super) limit_ranges: Marks,
}

/// The namespaces that objects below one prefix are in.
pub(super) struct Marks {
    pub(super) prefix: &'static str,
    namespaces: RwLock<HashMap<Box<str>, Mark>>,
}

#[derive(Clone)]
struct Mark {
    since: Revision,
    turn: Arc<Mutex<()>>,
}

impl Restrictions {
    /// No namespace is marked.
    pub(crate) fn new() -> Self {
        Self { quotas: Marks::new(QUOTAS), limit_ranges: Marks::new(LIMIT_RANGES) }
    }

    /// Marks every namespace that has something now.
    pub(crate) async fn open(&self, api: &Api) -> Result<(), StoreError> {
        self.quotas.read(api).await?;
        self.limit_ranges.read(api).await?;
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
}

impl Marks {
    fn new(prefix: &'static str) -> Self {
        Self { prefix, namespaces: RwLock::default() }
    }

    /// Whether a namespace is marked.
    pub(super) fn has(&self, namespace: &str) -> bool {
        self.namespaces.read().contains_key(namespace)
    }

    /// What those who write in a marked namespace take turns with; `None` if it is not marked.
    pub(super) fn turn(&self, namespace: &str) -> Option<Arc<Mutex<()>>> {
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
    pub(super) fn clear(&self, namespace: &str, revision: Revision) {
        let mut namespaces = self.namespaces.write();
        if namespaces.get(namespace).is_some_and(|mark| mark.since <= revision) {
            namespaces.remove(namespace);
        }
    }

    async fn read(&self, api: &Api) -> Result<Revision, StoreError> {
        let found = api.store.range(Range::prefix(self.prefix), None, 0).await?;
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
    async fn follow(&self, api: &Api) -> Result<(), StoreError> {
        let channel = api.hub.channel(self.prefix).await?;
        let mut newest = channel.subscribe();
        let mut seen = self.read(api).await?;
        loop {
            newest.borrow_and_update();
            match channel.read(seen, BATCH) {
                Ok(events) if events.is_empty() => {
                    if newest.changed().await.is_err() {
                        return Ok(());
                    }
                }
                Ok(events) => {
                    for change in &events {
                        seen = change.event.revision;
                        if !change.event.deleted {
                            self.set_by_key(&change.event.key, seen);
                        }
                    }
                }
                // Too much happened in the meantime.
                Err(_) => seen = self.read(api).await?,
            }
        }
    }
}

/// Keeps the marks up to date until the store is gone.
pub(crate) async fn follow(api: Arc<Api>) {
    let (quotas, limit_ranges) = (&api.restrictions.quotas, &api.restrictions.limit_ranges);
    // Both only end when the store does.
    if let Err(error) = tokio::try_join!(quotas.follow(&api), limit_ranges.follow(&api)) {
        tracing::error!(%error, "new quotas and limit ranges no longer take effect: the store cannot be used");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stays_if_it_was_set_after_the_look() {
        let marks = Marks::new(QUOTAS);
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
