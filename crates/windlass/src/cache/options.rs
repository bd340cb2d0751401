//! How caches watch.

use std::sync::Arc;
use std::time::Duration;

use crate::reflector::{DecodeFailure, OnDecodeError};

/// How [`Caches`](super::Caches) watch.
///
/// ```
/// use std::time::Duration;
/// use windlass::cache::CacheOptions;
///
/// let options = CacheOptions::default().namespaces(["petstore"]).resync(Duration::from_secs(36_000));
/// ```
#[derive(Clone)]
pub struct CacheOptions {
    pub(crate) namespaces: Vec<String>,
    pub(crate) resync: Option<Duration>,
    pub(crate) sync_timeout: Duration,
    pub(crate) on_decode_error: Option<OnDecodeError>,
    pub(crate) most_decoded: Option<usize>,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            resync: None,
            sync_timeout: Duration::from_secs(120),
            on_decode_error: None,
            most_decoded: None,
        }
    }
}

impl std::fmt::Debug for CacheOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheOptions")
            .field("namespaces", &self.namespaces)
            .field("resync", &self.resync)
            .field("sync_timeout", &self.sync_timeout)
            .finish_non_exhaustive()
    }
}

impl CacheOptions {
    /// Watches these namespaces only. Without any, or if one of them is empty, all namespaces are watched. Kinds whose
    /// objects are in no namespace are always watched as a whole.
    #[must_use]
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Calls handlers for every known object this often, give or take a tenth. Never by default.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// How long to wait for the first list of a kind; two minutes by default.
    #[must_use]
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.sync_timeout = timeout;
        self
    }

    /// How many objects of each kind are kept decoded, at most. Caches keep objects as bytes, and those that are in use
    /// decoded as well, which takes several times the memory. With a limit, the objects that were decoded first are let go
    /// when more are in use, and decoded again when they are read. The bytes of objects that are not decoded are packed
    /// then: what an object has in common with another of its kind is not kept twice. There is no limit by default.
    #[must_use]
    pub fn most_decoded(mut self, objects: usize) -> Self {
        self.most_decoded = Some(objects);
        self
    }

    /// Calls a function for every object that does not fit its type: once, and again when the error changes. A
    /// [`Manager`](crate::Manager) reports these errors as Warning events on the objects. The function must not block.
    #[must_use]
    pub fn on_decode_error(mut self, tell: impl Fn(&DecodeFailure) + Send + Sync + 'static) -> Self {
        self.on_decode_error = Some(Arc::new(tell));
        self
    }
}
