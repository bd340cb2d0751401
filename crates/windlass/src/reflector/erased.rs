//! Objects and kinds without their types: what lets one reflector, compiled once, serve every kind.
//!
//! A kind is compiled into a [`Kind`]: functions that decode, and a few facts. What a kind's objects are is known again
//! where users meet them: [`typed`] and [`typed_ref`] give the type back.

use std::any::{Any, TypeId};
use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject, ObjectMeta};

use crate::decode::{DecodeError, repair};
use crate::key::ObjectKey;
use crate::object::{Object, describe, is_cluster_scoped, parse_version};

/// An object of some kind.
pub(crate) trait AnyObject: Any + Send + Sync {
    fn metadata(&self) -> &ObjectMeta;
    /// The object as JSON.
    fn encode(&self) -> Result<Vec<u8>, serde_json::Error>;
}

impl<K: Object> AnyObject for K {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }

    fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

impl dyn AnyObject {
    pub(crate) fn key(&self) -> ObjectKey {
        let meta = self.metadata();
        ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }

    pub(crate) fn uid(&self) -> Option<&str> {
        self.metadata().uid.as_deref()
    }

    /// The resource version as a number, if it is one.
    pub(crate) fn version(&self) -> Option<u64> {
        parse_version(self.metadata().resource_version.as_deref()?)
    }
}

/// An object as reflectors keep and pass it.
pub(crate) type Shared = Arc<dyn AnyObject>;

/// An object as what it is.
pub(crate) fn typed<K: Object>(object: Shared) -> Arc<K> {
    let any: Arc<dyn Any + Send + Sync> = object;
    any.downcast().expect("invariant: the objects of a reflector are of the type it was made for")
}

/// The same for a reference.
pub(crate) fn typed_ref<K: Object>(object: &dyn AnyObject) -> &K {
    let any: &dyn Any = object;
    any.downcast_ref().expect("invariant: the objects of a reflector are of the type it was made for")
}

/// A type and the resource that its objects are of.
#[derive(Clone)]
pub(crate) struct Kind {
    pub(crate) id: TypeId,
    pub(crate) resource: ApiResource,
    /// Whether the type says that its objects are in no namespace.
    pub(crate) cluster_scoped: bool,
    /// Whether only metadata is asked for.
    pub(crate) metadata_only: bool,
    /// Whether the objects themselves must say their kind, which lists leave out.
    pub(crate) untyped: bool,
    pub(super) decode: fn(&[u8]) -> Result<Shared, serde_json::Error>,
}

impl Kind {
    pub(crate) fn of<K: Object>(dt: &K::DynamicType) -> Self {
        Self {
            id: TypeId::of::<K>(),
            resource: ApiResource::erase::<K>(dt),
            cluster_scoped: is_cluster_scoped::<K>(),
            metadata_only: K::metadata_api(),
            untyped: TypeId::of::<K>() == TypeId::of::<DynamicObject>(),
            decode: decode::<K>,
        }
    }

    pub(crate) fn describe(&self) -> String {
        describe(&self.resource)
    }

    /// An object from JSON that is known to fit.
    pub(crate) fn decode(&self, json: &[u8]) -> Result<Shared, serde_json::Error> {
        (self.decode)(json)
    }

    /// An object from JSON, and the JSON to decode it from again if it had to be repaired.
    pub(crate) fn decode_repaired(&self, json: &[u8]) -> Result<(Shared, Option<Vec<u8>>), DecodeError> {
        match self.decode(json) {
            Ok(object) => Ok((object, None)),
            Err(error) => repair(json, &error, |json| self.decode(json)).map(|(object, json)| (object, Some(json))),
        }
    }
}

fn decode<K: Object>(json: &[u8]) -> Result<Shared, serde_json::Error> {
    let mut object: K = serde_json::from_slice(json)?;
    // Only there when the bytes could not be cut.
    object.meta_mut().managed_fields = None;
    Ok(Arc::new(object))
}

/// Changes objects before they are kept, to drop what is not read.
pub(crate) type Transform<K> = Arc<dyn Fn(&mut K) + Send + Sync>;

/// The same for objects of any kind: makes a changed copy.
pub(crate) type AnyTransform = Arc<dyn Fn(&dyn AnyObject) -> Shared + Send + Sync>;

pub(crate) fn any_transform<K: Object>(transform: Transform<K>) -> AnyTransform {
    Arc::new(move |object| {
        let original = typed_ref::<K>(object);
        let mut changed = original.clone();
        transform(&mut changed);
        keep_identity(changed.meta_mut(), original.meta());
        Arc::new(changed)
    })
}

/// By these an object is found, and told from others.
fn keep_identity(meta: &mut ObjectMeta, original: &ObjectMeta) {
    meta.name.clone_from(&original.name);
    meta.namespace.clone_from(&original.namespace);
    meta.uid.clone_from(&original.uid);
    meta.resource_version.clone_from(&original.resource_version);
}

/// Computes the values under which an index files an object.
pub(crate) type IndexFn = Arc<dyn Fn(&dyn AnyObject) -> Vec<String> + Send + Sync>;
