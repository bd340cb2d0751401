//! The name of one object: what queues carry and reconcilers receive.
//!
//! A key says *which* object, never *what happened* to it: a reconciler looks at the state of the
//! world, not at an event. Keys are cheap to clone (one reference count), since the same key sits
//! in the cache, in indexes and in several queues at once.

use std::fmt;
use std::sync::Arc;

use kube::Resource;

use crate::object::AsObject;

/// Namespace and name of an object; the namespace is absent for cluster-scoped kinds.
///
/// ```
/// use windlass::ObjectKey;
///
/// let key = ObjectKey::new("pets", "thor");
/// assert_eq!(key.namespace(), Some("pets"));
/// assert_eq!(key.name(), "thor");
/// assert_eq!(key.to_string(), "pets/thor");
/// assert_eq!(ObjectKey::cluster("node-1").namespace(), None);
/// ```
///
/// Functions that take `impl Into<ObjectKey>` take a key, a reference to one, an object, or text:
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::ObjectKey;
///
/// let key = ObjectKey::new("pets", "thor");
/// assert_eq!(ObjectKey::from("pets/thor"), key);
/// assert_eq!(ObjectKey::from(("pets", "thor")), key);
/// assert_eq!(ObjectKey::from("node-1"), ObjectKey::cluster("node-1"));
///
/// let mut map = ConfigMap::default();
/// map.metadata.name = Some("thor".into());
/// map.metadata.namespace = Some("pets".into());
/// assert_eq!(ObjectKey::from(&map), key);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// `namespace/name`, or `name` alone. Neither may contain a slash, as the API has it, so that
    /// nothing else is needed to tell them apart: there are as many keys as objects.
    joined: Arc<str>,
}

impl ObjectKey {
    /// The key of a namespaced object. An empty namespace makes a cluster-scoped key.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        let (namespace, name) = (namespace.as_ref(), name.as_ref());
        if namespace.is_empty() {
            return Self::cluster(name);
        }
        Self { joined: format!("{namespace}/{name}").into() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: impl AsRef<str>) -> Self {
        Self { joined: name.as_ref().into() }
    }

    /// The key of an object, from its metadata.
    /// The object may be shared (`&Arc<K>`) or a [draft](crate::Draft).
    pub fn of<Form>(object: &impl AsObject<Form>) -> Self {
        let meta = object.as_object().meta();
        Self::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }

    /// The namespace, absent for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        self.joined.split_once('/').map(|(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.joined.split_once('/').map_or(&*self.joined, |(_, name)| name)
    }

    /// A key in the same namespace with another name, as for a child object.
    #[must_use]
    pub fn sibling(&self, name: impl AsRef<str>) -> Self {
        Self::new(self.namespace().unwrap_or_default(), name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.joined)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.joined)
    }
}

impl From<&ObjectKey> for ObjectKey {
    fn from(key: &ObjectKey) -> Self {
        key.clone()
    }
}

impl From<&str> for ObjectKey {
    /// `namespace/name`, as keys are shown, or the name alone.
    fn from(key: &str) -> Self {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        Self::new(namespace, name)
    }
}

impl From<(&str, &str)> for ObjectKey {
    /// Namespace and name.
    fn from((namespace, name): (&str, &str)) -> Self {
        Self::new(namespace, name)
    }
}

impl<K: Resource + 'static> From<&K> for ObjectKey {
    fn from(object: &K) -> Self {
        Self::of(object)
    }
}
