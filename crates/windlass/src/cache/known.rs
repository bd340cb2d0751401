//! What all caches of a kind together know about one object.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::key::ObjectKey;
use crate::object::Object;
use crate::reflector::{Reflector, Shared, Store, SyncError, typed};

/// What caches say about an object.
pub(crate) enum Found<T> {
    /// This is what there is, if anything.
    Told(Option<T>),
    /// The caches hold a part of the kind and this is none of it, or this process wrote it in another version of
    /// the kind: it may exist, or be another, all the same.
    Unknown,
}

/// What all caches of a kind know about its objects.
pub(crate) struct Known<K: Object> {
    reflectors: Arc<KnownReflectors>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> Known<K> {
    pub(super) fn new(reflectors: Arc<KnownReflectors>) -> Self {
        Self { reflectors, kind: PhantomData }
    }

    pub(super) fn reflectors(&self) -> &KnownReflectors {
        &self.reflectors
    }

    /// What is known about an object. Waits for the first list if no cache of the object's place has a complete list
    /// yet; fails for a namespace that no cache covers.
    pub(crate) async fn get(&self, key: &ObjectKey) -> Result<Found<Arc<K>>, SyncError> {
        Ok(match self.reflectors.get(key).await? {
            Found::Told(object) => Found::Told(object.map(typed)),
            Found::Unknown => Found::Unknown,
        })
    }

    /// An object that the server sent, as the caches would keep it.
    pub(crate) fn as_kept(&self, mut object: K) -> Arc<K> {
        object.meta_mut().managed_fields = None;
        let object = Arc::new(object);
        match self.reflectors.all.first() {
            Some(reflector) => typed(reflector.as_kept(object)),
            None => object,
        }
    }
}

/// All reflectors of a kind, whatever narrows them.
pub(super) struct KnownReflectors {
    pub(super) all: Vec<Arc<Reflector>>,
    /// The namespaces that the manager was given, if it was.
    pub(super) reach: Option<Arc<[String]>>,
    pub(super) sync_timeout: Duration,
    pub(super) closing: CancellationToken,
}

impl KnownReflectors {
    async fn get(&self, key: &ObjectKey) -> Result<Found<Shared>, SyncError> {
        let covering = || self.all.iter().filter(|reflector| reflector.covers(key.namespace()));
        let synced = || covering().filter(|reflector| reflector.is_synced());
        let decisive = |reflector: &&Arc<Reflector>| reflector.decides(key);
        // Several watches of a kind run apart: what one has told a handler, another may not have heard of yet.
        let newest = |reflector: &&Arc<Reflector>| reflector.read(Store::version);
        if let Some(reflector) = synced().filter(decisive).max_by_key(newest) {
            return Ok(told(reflector, key));
        }
        let knows = |reflector: &&Arc<Reflector>| reflector.read(|store| store.get(key).is_some());
        if let Some(reflector) = synced().filter(knows).max_by_key(newest) {
            return Ok(told(reflector, key));
        }
        match covering().find(decisive) {
            Some(reflector) if synced().next().is_none() => {
                reflector.wait_for_reader(self.sync_timeout, &self.closing).await?;
                Ok(told(reflector, key))
            }
            None if covering().next().is_none() && !self.is_in_reach(key.namespace()) => {
                Err(self.not_watched(key.namespace()))
            }
            _ => Ok(Found::Unknown),
        }
    }

    fn is_in_reach(&self, namespace: Option<&str>) -> bool {
        let reach = self.reach.as_ref();
        reach.is_none_or(|names| names.iter().any(|name| Some(name.as_str()) == namespace))
    }

    fn not_watched(&self, namespace: Option<&str>) -> SyncError {
        let own = self.reach.iter().flat_map(|names| names.iter()).map(String::as_str);
        let watched = self.all.iter().filter_map(|reflector| reflector.namespace());
        let places: BTreeSet<&str> = own.chain(watched).collect();
        SyncError::NotWatched {
            kind: self.all.first().map(|reflector| reflector.describe()).unwrap_or_default(),
            namespace: namespace.unwrap_or_default().to_owned(),
            watched: places.into_iter().collect::<Vec<_>>().join(", "),
        }
    }
}

/// What one reflector says, unless this process has written something newer.
fn told(reflector: &Reflector, key: &ObjectKey) -> Found<Shared> {
    reflector.read(|store| if store.is_behind(key) { Found::Unknown } else { Found::Told(store.get(key)) })
}
