//! Objects that do not fit their type: counted each time, told of once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::ApiResource;
use parking_lot::Mutex;

use super::decode::Broken;
use crate::key::ObjectKey;
use crate::object::describe;

/// Objects that are remembered as told of. Of what comes on top nothing is told, only counted.
const REMEMBERED: usize = 4096;

/// An object that does not fit its type, and so is in no cache.
///
/// ```
/// use windlass::cache::CacheOptions;
///
/// let options = CacheOptions::default().on_decode_error(|failure| {
///     // pets.example.com/v1 default/thor: spec.age: invalid type: string, expected u32
///     eprintln!("{} {}: {}", failure.kind, failure.key, failure.error);
/// });
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DecodeFailure {
    /// The kind, as `pets.petstore.example.com/v1alpha1`.
    pub kind: String,
    /// The object.
    pub key: ObjectKey,
    /// The object, as events refer to it.
    pub reference: ObjectReference,
    /// The path of the field that does not fit, and why. The value is not part of it.
    pub error: String,
}

/// Called once for every object that does not fit its type, and again when it does not fit in another way.
pub(crate) type OnDecodeError = Arc<dyn Fn(&DecodeFailure) + Send + Sync>;

/// What is known of objects that do not fit.
#[derive(Default)]
pub(super) struct Misfits {
    count: AtomicU64,
    told: Mutex<HashMap<ObjectKey, String>>,
    tell: Option<OnDecodeError>,
}

impl Misfits {
    pub(super) fn new(tell: Option<OnDecodeError>) -> Self {
        Self { tell, ..Self::default() }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// An object does not fit.
    pub(super) fn note(&self, resource: &ApiResource, broken: &Broken) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if !self.is_news(broken) {
            return;
        }
        let kind = describe(resource);
        tracing::warn!(%kind, object = %broken.key, error = %broken.error, "object does not fit its type");
        if let Some(tell) = &self.tell {
            let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            let reference = ObjectReference {
                api_version: some(&resource.api_version),
                kind: some(&resource.kind),
                namespace: broken.key.namespace().map(str::to_owned),
                name: some(broken.key.name()),
                uid: some(&broken.uid),
                resource_version: some(&broken.resource_version),
                field_path: None,
            };
            tell(&DecodeFailure { kind, key: broken.key.clone(), reference, error: broken.error.clone() });
        }
    }

    /// An object fits, or is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        let mut told = self.told.lock();
        if !told.is_empty() {
            told.remove(key);
        }
    }

    fn is_news(&self, broken: &Broken) -> bool {
        let mut told = self.told.lock();
        let full = told.len() >= REMEMBERED;
        match told.get_mut(&broken.key) {
            Some(known) if *known == broken.error => false,
            Some(known) => {
                known.clone_from(&broken.error);
                true
            }
            None if full => false,
            None => {
                told.insert(broken.key.clone(), broken.error.clone());
                true
            }
        }
    }
}
