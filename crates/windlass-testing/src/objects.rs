//! The test's own reads and writes, which must succeed.

use std::any::TypeId;
use std::panic::Location;

use k8s_openapi::NamespaceResourceScope;
use windlass::client::ClientError;
use windlass::{Object, ObjectKey, TypedObject};

use crate::Env;

impl Env {
    /// Creates an object and returns it as the server stored it. An object of a namespaced kind that names no namespace
    /// is created in `default`.
    ///
    /// This, [`get`](Self::get), [`modify`](Self::modify) and [`delete`](Self::delete) are for requests that must
    /// succeed; they are made by the test's own [`client`](Self::client). For a request that may be refused, call the
    /// client itself. Functions that take a key take anything that [becomes one](ObjectKey): `"blog"`, `"shop/blog"`,
    /// `&key` or `&object` (of an `Arc`, `&*object`). For a namespaced kind, a key without a namespace means `default`.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass_testing::{Env, Options, run};
    ///
    /// run(Options::default().bare(), async |env: Env| {
    ///     let mut map = ConfigMap::default();
    ///     map.metadata.name = Some("settings".into());
    ///     let map = env.create(map).await;
    ///     assert_eq!(map.metadata.namespace.as_deref(), Some("default"));
    ///
    ///     env.modify::<ConfigMap>("settings", |map| map.immutable = Some(true)).await;
    ///     assert_eq!(env.get::<ConfigMap>("settings").await.immutable, Some(true));
    ///     env.delete::<ConfigMap>(&map).await;
    ///     env.wait_gone::<ConfigMap>("default/settings").await;
    /// });
    /// ```
    ///
    /// # Panics
    /// When the request fails. The message has the line of the test, the kind, the key and what the server said.
    #[track_caller]
    pub fn create<K>(&self, mut object: K) -> impl Future<Output = K>
    where
        K: TypedObject,
    {
        let at = Location::caller();
        async move {
            if is_namespaced::<K>() {
                object.meta_mut().namespace.get_or_insert_with(|| "default".to_owned());
            }
            let created = self.client().create(&object).await;
            created.unwrap_or_else(|error| failed(&error, at))
        }
    }

    /// An object as the server has it now. To wait for one, there is [`wait_until`](Self::wait_until). See
    /// [`create`](Self::create) for an example, and for what a key may be.
    ///
    /// # Panics
    /// When there is no such object, or the request fails.
    #[track_caller]
    pub fn get<K>(&self, key: impl Into<ObjectKey>) -> impl Future<Output = K>
    where
        K: TypedObject,
    {
        let (at, key) = (Location::caller(), key_of::<K>(key));
        async move {
            let found = self.client().live().get(&key).await;
            found.unwrap_or_else(|error| failed(&error, at)).unwrap_or_else(|| absent::<K>("get", &key, at))
        }
    }

    /// Changes an object and returns it as the server stored it. The function is called again if the object has changed
    /// meanwhile. See [`create`](Self::create) for an example, and for what a key may be.
    ///
    /// # Panics
    /// When there is no such object, or the request fails.
    #[track_caller]
    pub fn modify<K>(&self, key: impl Into<ObjectKey>, change: impl Fn(&mut K) + Send + Sync) -> impl Future<Output = K>
    where
        K: TypedObject,
    {
        let (at, key) = (Location::caller(), key_of::<K>(key));
        async move {
            let changed = self.client().modify(&key, change).await;
            changed.unwrap_or_else(|error| failed(&error, at)).unwrap_or_else(|| absent::<K>("modify", &key, at))
        }
    }

    /// Deletes an object. An object with finalizers is there until these are removed:
    /// [`wait_gone`](Self::wait_gone) waits for that. See [`create`](Self::create) for an example, and for what a key
    /// may be.
    ///
    /// # Panics
    /// When there is no such object, or the request fails.
    #[track_caller]
    pub fn delete<K>(&self, key: impl Into<ObjectKey>) -> impl Future<Output = ()>
    where
        K: TypedObject,
    {
        let (at, key) = (Location::caller(), key_of::<K>(key));
        async move {
            if !self.client().delete::<K>(&key).await.unwrap_or_else(|error| failed(&error, at)) {
                absent::<K>("delete", &key, at)
            }
        }
    }
}

/// The key of an object of a kind: in `default`, if the kind is namespaced and the key names no namespace.
pub(crate) fn key_of<K: Object>(key: impl Into<ObjectKey>) -> ObjectKey {
    let key = key.into();
    if is_namespaced::<K>() && key.namespace().is_none() {
        return ObjectKey::new("default", key.name());
    }
    key
}

/// How messages name a kind.
pub(crate) fn kind<K: TypedObject>() -> String {
    K::kind(&K::DynamicType::default()).into_owned()
}

fn is_namespaced<K: Object>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>()
}

/// The error names verb, kind and key.
fn failed(error: &ClientError, at: &Location<'_>) -> ! {
    panic!("{error} (at {at})")
}

fn absent<K: TypedObject>(verb: &str, key: &ObjectKey, at: &Location<'_>) -> ! {
    panic!("{verb} {} {key}: it does not exist (at {at})", kind::<K>())
}
