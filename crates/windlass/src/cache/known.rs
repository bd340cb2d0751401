//! What all caches of a kind together know about one object.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::key::ObjectKey;
use crate::object::Object;
use crate::reflector::{Reflector, SyncError};

/// What caches say about an object.
pub(crate) enum Found<K> {
    /// This is what there is, if anything.
    Told(Option<Arc<K>>),
    /// The caches hold a part of the kind and this is none of it, or this process wrote it in another version of
    /// the kind: it may exist, or be another, all the same.
    Unknown,
}

/// All informers of a kind, whatever narrows them.
pub(crate) struct Known<K: Object> {
    reflectors: Arc<[Arc<Reflector<K>>]>,
    /// The namespaces that the manager was given, if it was.
    reach: Option<Arc<[String]>>,
    sync_timeout: Duration,
    closing: CancellationToken,
}

impl<K: Object> Clone for Known<K> {
    fn clone(&self) -> Self {
        let (reflectors, reach) = (Arc::clone(&self.reflectors), self.reach.clone());
        Self { reflectors, reach, sync_timeout: self.sync_timeout, closing: self.closing.clone() }
    }
}

impl<K: Object> Known<K> {
    pub(super) fn new(
        reflectors: Vec<Arc<Reflector<K>>>,
        reach: Option<Arc<[String]>>,
        sync_timeout: Duration,
        closing: CancellationToken,
    ) -> Self {
        Self { reflectors: reflectors.into(), reach, sync_timeout, closing }
    }

    pub(super) fn reflectors(&self) -> &[Arc<Reflector<K>>] {
        &self.reflectors
    }

    /// What is known about an object. Waits for the first list where nobody knows anything yet; fails
    /// for a namespace that is outside of everything.
    pub(crate) async fn get(&self, key: &ObjectKey) -> Result<Found<K>, SyncError> {
        let covering = || self.reflectors.iter().filter(|reflector| reflector.covers(key.namespace()));
        let synced = || covering().filter(|reflector| reflector.is_synced());
        let decisive = |reflector: &&Arc<Reflector<K>>| reflector.decides(key);
        if let Some(reflector) = synced().find(decisive) {
            return Ok(told(reflector, key));
        }
        if let Some(reflector) = synced().find(|reflector| reflector.read(|store| store.get(key).is_some())) {
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

    /// An object that the server sent, as the caches would keep it.
    pub(crate) fn as_kept(&self, object: K) -> K {
        match self.reflectors.first() {
            Some(reflector) => reflector.as_kept(object),
            None => object,
        }
    }

    fn is_in_reach(&self, namespace: Option<&str>) -> bool {
        let reach = self.reach.as_ref();
        reach.is_none_or(|names| names.iter().any(|name| Some(name.as_str()) == namespace))
    }

    fn not_watched(&self, namespace: Option<&str>) -> SyncError {
        let own = self.reach.iter().flat_map(|names| names.iter()).map(String::as_str);
        let watched = self.reflectors.iter().filter_map(|reflector| reflector.namespace());
        let places: BTreeSet<&str> = own.chain(watched).collect();
        SyncError::NotWatched {
            kind: self.reflectors.first().map(|reflector| reflector.describe()).unwrap_or_default(),
            namespace: namespace.unwrap_or_default().to_owned(),
            watched: places.into_iter().collect::<Vec<_>>().join(", "),
        }
    }
}

/// What one informer says, unless this process has written something newer.
fn told<K: Object>(reflector: &Reflector<K>, key: &ObjectKey) -> Found<K> {
    reflector.read(|store| if store.is_behind(key) { Found::Unknown } else { Found::Told(store.get(key)) })
}
