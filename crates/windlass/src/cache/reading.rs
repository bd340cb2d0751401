//! Reading objects of one kind, whatever its type: the part of a lister that is compiled once for all kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::core::{Selector, SelectorExt};
use tokio_util::sync::CancellationToken;

use super::known::KnownReflectors;
use crate::key::ObjectKey;
use crate::reflector::{AnyHandler, AnyObject, IndexFn, Reflector, Shared, Store, Subscription, SyncError};

/// What is done with each object that is found, while the store is locked for reading.
pub(super) type Take<'a> = &'a mut dyn FnMut(Shared);

/// The reflectors that a lister reads from.
pub(super) struct Reading {
    /// Each of another namespace, or one: no two know the same object.
    reflectors: Vec<Arc<Reflector>>,
    sync_timeout: Duration,
    /// Cancelled when readers may not wait any more.
    closing: CancellationToken,
}

impl Reading {
    pub(super) fn new(reflectors: Vec<Arc<Reflector>>, sync_timeout: Duration, closing: CancellationToken) -> Self {
        Self { reflectors, sync_timeout, closing }
    }

    /// The kind, as errors name it.
    pub(super) fn describe(&self) -> String {
        self.reflectors.first().map(|reflector| reflector.describe()).unwrap_or_default()
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<Shared> {
        let reflector = self.reflectors.iter().find(|reflector| reflector.covers(key.namespace()))?;
        reflector.read(|store| store.get(key))
    }

    pub(super) fn check_covers(&self, namespace: Option<&str>) -> Result<(), SyncError> {
        if self.reflectors.iter().any(|reflector| reflector.covers(namespace)) {
            return Ok(());
        }
        let watched: BTreeSet<&str> = self.reflectors.iter().filter_map(|reflector| reflector.namespace()).collect();
        Err(SyncError::NotWatched {
            kind: self.describe(),
            namespace: namespace.unwrap_or_default().to_owned(),
            watched: watched.into_iter().collect::<Vec<_>>().join(", "),
        })
    }

    pub(super) fn behind(&self) -> BTreeSet<ObjectKey> {
        self.reflectors.iter().flat_map(|reflector| reflector.read(Store::behind)).collect()
    }

    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        let mut keys: Vec<ObjectKey> = Vec::new();
        for reflector in &self.reflectors {
            reflector.read(|store| keys.extend(store.keys().cloned()));
        }
        keys
    }

    pub(super) fn len(&self) -> usize {
        self.reflectors.iter().map(|reflector| reflector.read(Store::len)).sum()
    }

    pub(super) fn all(&self, take: Take<'_>) {
        for reflector in &self.reflectors {
            reflector.read(|store| store.iter().for_each(&mut *take));
        }
    }

    pub(super) fn in_namespace(&self, namespace: &str, take: Take<'_>) {
        for reflector in self.reflectors.iter().filter(|reflector| reflector.covers(Some(namespace))) {
            reflector.read(|store| {
                let keys = store.keys().filter(|key| key.namespace() == Some(namespace));
                keys.filter_map(|key| store.get(key)).for_each(&mut *take);
            });
        }
    }

    pub(super) fn matching(&self, selector: &Selector, take: Take<'_>) {
        let none = BTreeMap::new();
        self.all(&mut |object| {
            if selector.matches(object.metadata().labels.as_ref().unwrap_or(&none)) {
                take(object);
            }
        });
    }

    pub(super) fn labelled(&self, label: &str, value: &str, take: Take<'_>) {
        let name = format!("label/{label}");
        let label = label.to_owned();
        let values = move |object: &dyn AnyObject| {
            let labels = object.metadata().labels.as_ref();
            labels.and_then(|labels| labels.get(&label)).cloned().into_iter().collect()
        };
        self.ensure_index(&name, &(Arc::new(values) as IndexFn));
        self.by_index(&name, value, take);
    }

    pub(super) fn owned_by(&self, uid: &str, take: Take<'_>) {
        let values = |object: &dyn AnyObject| {
            let owners = object.metadata().owner_references.iter().flatten();
            owners.map(|owner| owner.uid.clone()).collect()
        };
        self.ensure_index("owner", &(Arc::new(values) as IndexFn));
        self.by_index("owner", uid, take);
    }

    pub(super) fn ensure_index(&self, name: &str, values: &IndexFn) {
        for reflector in &self.reflectors {
            reflector.ensure_index(name, values);
        }
    }

    /// Adds an index unless there is one of that name; false if there is.
    pub(super) fn try_add_index(&self, name: &str, values: &IndexFn) -> bool {
        if self.reflectors.iter().any(|reflector| reflector.read(|store| store.has_index(name))) {
            return false;
        }
        let mut added = self.reflectors.iter().map(|reflector| reflector.ensure_index(name, values));
        // Of two calls at once, the one that was first at the first of them wins.
        let first = added.next().unwrap_or(true);
        first && added.fold(true, |all, _| all)
    }

    pub(super) fn files(&self, index: &str, value: &str, object: &dyn AnyObject) -> bool {
        self.reflectors.iter().any(|reflector| reflector.read(|store| store.files(index, value, object)))
    }

    pub(super) fn reflectors(&self) -> &[Arc<Reflector>] {
        &self.reflectors
    }

    pub(super) fn has_index(&self, name: &str) -> bool {
        self.reflectors.iter().all(|reflector| reflector.read(|store| store.has_index(name)))
    }

    pub(super) fn by_index(&self, name: &str, value: &str, take: Take<'_>) {
        for reflector in &self.reflectors {
            reflector.read(|store| store.by_index(name, value)).into_iter().for_each(&mut *take);
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.reflectors.iter().all(|reflector| reflector.is_synced())
    }

    pub(super) async fn wait_synced(&self) -> Result<(), SyncError> {
        for reflector in &self.reflectors {
            reflector.wait_for_reader(self.sync_timeout, &self.closing).await?;
        }
        Ok(())
    }

    /// Waits until the first list is complete, and what other watches of the kind have told is known here, too: a
    /// reconciler is not to read less than what it was called for.
    pub(super) async fn wait_current(&self, known: &KnownReflectors) -> Result<(), SyncError> {
        self.wait_synced().await?;
        for reflector in self.reflectors.iter().filter(|reflector| reflector.is_whole()) {
            let told = known.all.iter().filter(|other| reflector.covers(other.namespace()));
            let told = told.map(|other| other.read(Store::told)).max().unwrap_or_default();
            if told > reflector.read(Store::version) {
                reflector.wait_version(told).await;
            }
        }
        Ok(())
    }

    pub(super) fn subscribe(&self, handler: &AnyHandler) -> Subscription {
        let subscribe = |reflector: &Arc<Reflector>| reflector.subscribe(Arc::clone(handler));
        Subscription::joined(self.reflectors.iter().map(subscribe).collect())
    }
}
