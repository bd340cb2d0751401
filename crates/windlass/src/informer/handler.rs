//! What is called for the objects of an informer.

use std::sync::Arc;

use crate::reflector::Change;

type Added<K> = Box<dyn FnMut(Arc<K>, bool) + Send>;
type Updated<K> = Box<dyn FnMut(Arc<K>, Arc<K>) + Send>;
type Deleted<K> = Box<dyn FnMut(Arc<K>) + Send>;

/// What to do when objects are added, updated and deleted. Every part is optional.
///
/// Objects are shared with the cache: clone one to change it.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass::informer::Handler;
///
/// let mut count = 0;
/// let handler = Handler::<Pod>::new()
///     .added(move |pod, initial| {
///         count += 1; // never called twice at once
///         println!("{:?} is number {count}, there before: {initial}", pod.metadata.name);
///     })
///     .deleted(|pod| println!("{:?} is gone", pod.metadata.name));
/// ```
#[must_use = "a handler is called once it is added to an informer"]
pub struct Handler<K> {
    added: Option<Added<K>>,
    updated: Option<Updated<K>>,
    deleted: Option<Deleted<K>>,
}

impl<K> Default for Handler<K> {
    fn default() -> Self {
        Self { added: None, updated: None, deleted: None }
    }
}

impl<K> std::fmt::Debug for Handler<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler")
            .field("added", &self.added.is_some())
            .field("updated", &self.updated.is_some())
            .field("deleted", &self.deleted.is_some())
            .finish()
    }
}

impl<K> Handler<K> {
    /// A handler that does nothing yet. Name the kind, as in `Handler::<Pod>::new()`, so that closures need not.
    pub fn new() -> Self {
        Self::default()
    }

    /// Called for every object that appears, with `true` if the object was there before: as part of the informer's
    /// first list, or when the handler was added.
    pub fn added(mut self, call: impl FnMut(Arc<K>, bool) + Send + 'static) -> Self {
        self.added = Some(Box::new(call));
        self
    }

    /// Called with the old and the new state of every object that changes, and by a
    /// [resync](super::InformerFactoryBuilder::resync) for every object, with the same state twice.
    pub fn updated(mut self, call: impl FnMut(Arc<K>, Arc<K>) + Send + 'static) -> Self {
        self.updated = Some(Box::new(call));
        self
    }

    /// Called with the last known state of every object that is gone, also if it went while the watch was down. An
    /// object that no longer matches the selectors of the informer's scope is gone, too.
    pub fn deleted(mut self, call: impl FnMut(Arc<K>) + Send + 'static) -> Self {
        self.deleted = Some(Box::new(call));
        self
    }

    pub(super) fn call(&mut self, change: Change<K>) {
        match change {
            Change::Added { object, initial } => {
                if let Some(added) = &mut self.added {
                    added(object, initial);
                }
            }
            Change::Updated { old, new } => {
                if let Some(updated) = &mut self.updated {
                    updated(old, new);
                }
            }
            Change::Resync { object } => {
                if let Some(updated) = &mut self.updated {
                    updated(Arc::clone(&object), object);
                }
            }
            Change::Deleted { object } => {
                if let Some(deleted) = &mut self.deleted {
                    deleted(object);
                }
            }
        }
    }
}
