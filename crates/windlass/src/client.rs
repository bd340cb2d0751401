//! Reading and writing objects.
//!
//! Reads come from the cache by default and never show an object older than this process's own
//! last write of it; [`Client::live`] asks the server. Writes go to the server, and what it
//! answers is visible to cached reads at once.
//!
//! A [`Client`] wraps a [`kube::Client`]; [`Client::kube`] gives it back for everything else
//! (logs, exec, discovery). Writes made that way are not visible to cached reads before the watch
//! shows them.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::api::{ApiResource, DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Request};
use kube::core::{ObjectList, Status};
use serde::Serialize;
use serde_json::Value;

use crate::cache::{CacheOptions, Caches, Lister};
use crate::informer::SyncError;
use crate::key::ObjectKey;
use crate::object::{Object, describe};

/// Why a read or write failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server refused, or could not be reached.
    #[error("{verb} {kind} {key}: {}", message(source))]
    Request {
        /// What was attempted.
        verb: &'static str,
        /// The kind, as `pets.petstore.example.com/v1alpha1`.
        kind: String,
        /// The object, or the namespace of a list.
        key: String,
        /// What the server or the connection said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The cache has no complete state.
    #[error(transparent)]
    Cache(#[from] SyncError),
    /// The object cannot be written as JSON.
    #[error("encode {kind}: {source}")]
    Encode {
        /// The kind.
        kind: String,
        /// What serde said.
        #[source]
        source: serde_json::Error,
    },
}

/// The server's own words when there are any; kube's rendering repeats the whole status.
fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

impl ClientError {
    /// What the server answered, if it did.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Request { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// Whether somebody else wrote first.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(Status::is_conflict)
    }

    /// Whether an object of that name is there already.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// Whether the server would not accept the object however often it is sent.
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(Status::is_invalid)
    }
}

struct Inner {
    kube: kube::Client,
    caches: Caches,
    field_manager: String,
}

/// Reads from the cache, writes to the server. Clones share everything.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass::{Client, ObjectKey, client::ClientError};
/// # async fn example(client: Client) -> Result<(), ClientError> {
/// let key = ObjectKey::new("default", "settings");
/// let cached = client.get::<ConfigMap>(&key).await?;
/// let live = client.live().get::<ConfigMap>(&key).await?;
/// if let Some(mut settings) = live {
///     settings.data.get_or_insert_default().insert("mode".into(), "fast".into());
///     client.update(&settings).await?; // a cached read shows it from here on
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

impl Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("field_manager", &self.inner.field_manager).finish_non_exhaustive()
    }
}

impl Client {
    /// A client that reads from `caches`. `field_manager` is the name under which it owns what it
    /// writes.
    pub fn new(kube: kube::Client, caches: Caches, field_manager: impl Into<String>) -> Self {
        Self { inner: Arc::new(Inner { kube, caches, field_manager: field_manager.into() }) }
    }

    /// A client with caches of its own, for programs without a manager. The caches run until
    /// [`Caches::stop`].
    pub fn standalone(kube: kube::Client, field_manager: impl Into<String>) -> Self {
        let caches = Caches::new(kube.clone(), CacheOptions::default());
        caches.start();
        Self::new(kube, caches, field_manager)
    }

    /// The same caches and connection under another field manager.
    #[must_use]
    pub fn with_field_manager(&self, field_manager: impl Into<String>) -> Self {
        Self::new(self.inner.kube.clone(), self.inner.caches.clone(), field_manager)
    }

    /// The underlying client.
    pub fn kube(&self) -> &kube::Client {
        &self.inner.kube
    }

    /// The caches behind reads.
    pub fn caches(&self) -> &Caches {
        &self.inner.caches
    }

    /// The name under which this client owns what it writes.
    pub fn field_manager(&self) -> &str {
        &self.inner.field_manager
    }

    /// Everything that can be done with one kind.
    pub fn objects<K: Object>(&self) -> Objects<K>
    where
        K::DynamicType: Default,
    {
        self.objects_with(K::DynamicType::default())
    }

    /// Everything that can be done with one kind known only at run time.
    pub fn objects_with<K: Object>(&self, dt: K::DynamicType) -> Objects<K> {
        Objects { client: self.clone(), dt, kind: PhantomData }
    }

    /// The lister of a kind, for reads that need no waiting.
    pub fn lister<K: Object>(&self) -> Lister<K>
    where
        K::DynamicType: Default,
    {
        self.inner.caches.lister()
    }

    /// An object from the cache; `None` when it does not exist. The first read of a kind starts
    /// watching it and waits for the list.
    pub async fn get<K: Object>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClientError>
    where
        K::DynamicType: Default,
    {
        self.objects().get(key).await
    }

    /// All objects of a kind from the cache.
    pub async fn list<K: Object>(&self) -> Result<Vec<Arc<K>>, ClientError>
    where
        K::DynamicType: Default,
    {
        self.objects().list().await
    }

    /// Reads that ask the server.
    pub fn live(&self) -> Live<'_> {
        Live { client: self }
    }

    /// Creates an object and returns it as the server stored it.
    pub async fn create<K: Object>(&self, object: &K) -> Result<K, ClientError>
    where
        K::DynamicType: Default,
    {
        self.objects().create(object).await
    }

    /// Replaces an object; fails with a conflict when it changed since it was read.
    pub async fn update<K: Object>(&self, object: &K) -> Result<K, ClientError>
    where
        K::DynamicType: Default,
    {
        self.objects().update(object).await
    }

    /// Replaces an object's status; fails with a conflict when it changed since it was read.
    pub async fn update_status<K: Object>(&self, object: &K) -> Result<K, ClientError>
    where
        K::DynamicType: Default,
    {
        self.objects().update_status(object).await
    }

    /// Changes parts of an object.
    pub async fn patch<K: Object>(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Debug>,
    ) -> Result<K, ClientError>
    where
        K::DynamicType: Default,
    {
        self.objects().patch(key, patch).await
    }

    /// Changes parts of an object's status.
    pub async fn patch_status<K: Object>(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Debug>,
    ) -> Result<K, ClientError>
    where
        K::DynamicType: Default,
    {
        self.objects().patch_status(key, patch).await
    }

    /// Creates or changes an object so that the fields given have the values given (server-side
    /// apply, taking over fields that others own). The right way to write children: sending the
    /// same again changes nothing, whatever the server defaulted.
    pub async fn apply<K: Object>(&self, object: &K) -> Result<K, ClientError>
    where
        K::DynamicType: Default,
    {
        self.objects().apply(object).await
    }

    /// [`apply`](Self::apply) for the status.
    pub async fn apply_status<K: Object>(&self, object: &K) -> Result<K, ClientError>
    where
        K::DynamicType: Default,
    {
        self.objects().apply_status(object).await
    }

    /// Deletes an object. False when there was none.
    pub async fn delete<K: Object>(&self, key: &ObjectKey) -> Result<bool, ClientError>
    where
        K::DynamicType: Default,
    {
        self.objects::<K>().delete(key, &DeleteParams::default()).await
    }
}

/// Reads that ask the server, for when the cache is not enough.
#[derive(Debug, Clone, Copy)]
pub struct Live<'a> {
    client: &'a Client,
}

impl Live<'_> {
    /// An object as the server has it now.
    pub async fn get<K: Object>(&self, key: &ObjectKey) -> Result<Option<K>, ClientError>
    where
        K::DynamicType: Default,
    {
        self.client.objects().get_live(key).await
    }

    /// Objects as the server has them now; all namespaces without one.
    pub async fn list<K: Object>(&self, namespace: Option<&str>, params: &ListParams) -> Result<Vec<K>, ClientError>
    where
        K::DynamicType: Default,
    {
        self.client.objects().list_live(namespace, params).await
    }
}

/// Everything that can be done with one kind. [`Client`]'s methods are shorthands for these.
#[derive(Debug, Clone)]
pub struct Objects<K: Object> {
    client: Client,
    dt: K::DynamicType,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> Objects<K> {
    /// The lister of the kind.
    pub fn lister(&self) -> Lister<K> {
        self.client.inner.caches.lister_with(&self.dt)
    }

    /// An object from the cache.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClientError> {
        let lister = self.lister();
        lister.wait_synced().await?;
        Ok(lister.get(key))
    }

    /// All objects from the cache.
    pub async fn list(&self) -> Result<Vec<Arc<K>>, ClientError> {
        let lister = self.lister();
        lister.wait_synced().await?;
        Ok(lister.list())
    }

    /// An object as the server has it now.
    pub async fn get_live(&self, key: &ObjectKey) -> Result<Option<K>, ClientError> {
        let request = self.request(key.namespace());
        let params = GetParams::default();
        let request = if K::metadata_api() {
            request.get_metadata(key.name(), &params)
        } else {
            request.get(key.name(), &params)
        };
        let found: Result<K, _> = self.send("get", key, request).await;
        match found {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Objects as the server has them now.
    pub async fn list_live(&self, namespace: Option<&str>, params: &ListParams) -> Result<Vec<K>, ClientError> {
        let request = self.request(namespace);
        let request = if K::metadata_api() { request.list_metadata(params) } else { request.list(params) };
        let place = namespace.unwrap_or("in all namespaces");
        let list: ObjectList<K> = self.send("list", &place, request).await?;
        Ok(list.items)
    }

    /// See [`Client::create`].
    pub async fn create(&self, object: &K) -> Result<K, ClientError> {
        let key = ObjectKey::of(object);
        let request = self.request(key.namespace()).create(&self.post_params(), self.encode(object)?);
        self.write("create", &key, request).await
    }

    /// See [`Client::update`].
    pub async fn update(&self, object: &K) -> Result<K, ClientError> {
        let key = ObjectKey::of(object);
        let request = self.request(key.namespace()).replace(key.name(), &self.post_params(), self.encode(object)?);
        self.write("update", &key, request).await
    }

    /// See [`Client::update_status`].
    pub async fn update_status(&self, object: &K) -> Result<K, ClientError> {
        let key = ObjectKey::of(object);
        let request = self.request(key.namespace()).replace_subresource(
            "status",
            key.name(),
            &self.post_params(),
            self.encode(object)?,
        );
        self.write("update status of", &key, request).await
    }

    /// See [`Client::patch`].
    pub async fn patch(&self, key: &ObjectKey, patch: &Patch<impl Serialize + Debug>) -> Result<K, ClientError> {
        let request = self.request(key.namespace()).patch(key.name(), &self.patch_params(patch), patch);
        self.write("patch", key, request).await
    }

    /// See [`Client::patch_status`].
    pub async fn patch_status(&self, key: &ObjectKey, patch: &Patch<impl Serialize + Debug>) -> Result<K, ClientError> {
        let params = self.patch_params(patch);
        let request = self.request(key.namespace()).patch_subresource("status", key.name(), &params, patch);
        self.write("patch status of", key, request).await
    }

    /// See [`Client::apply`].
    pub async fn apply(&self, object: &K) -> Result<K, ClientError> {
        let patch = Patch::Apply(self.applied(object)?);
        self.patch(&ObjectKey::of(object), &patch).await
    }

    /// See [`Client::apply_status`].
    pub async fn apply_status(&self, object: &K) -> Result<K, ClientError> {
        let patch = Patch::Apply(self.applied(object)?);
        self.patch_status(&ObjectKey::of(object), &patch).await
    }

    /// See [`Client::delete`].
    pub async fn delete(&self, key: &ObjectKey, params: &DeleteParams) -> Result<bool, ClientError> {
        let request = self.request(key.namespace()).delete(key.name(), params);
        let answer: Result<Value, _> = self.send("delete", key, request).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(error),
        };
        let caches = &self.client.inner.caches;
        if params.dry_run {
            return Ok(true);
        }
        if answer.get("kind").and_then(Value::as_str) == Some("Status") {
            let uid = answer.pointer("/details/uid").and_then(Value::as_str);
            caches.note_delete::<K>(key, uid);
        } else if let Ok(object) = serde_json::from_value::<K>(answer) {
            // The object is there until its finalizers and its grace period are done with.
            let meta = object.meta();
            let stays = meta.finalizers.as_ref().is_some_and(|list| !list.is_empty())
                || meta.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0);
            if stays {
                caches.note_write(&object);
            } else {
                caches.note_delete::<K>(key, meta.uid.as_deref());
            }
        }
        Ok(true)
    }

    fn request(&self, namespace: Option<&str>) -> Request {
        Request::new(K::url_path(&self.dt, namespace))
    }

    fn post_params(&self) -> PostParams {
        PostParams { field_manager: Some(self.client.inner.field_manager.clone()), ..PostParams::default() }
    }

    fn patch_params<P: Serialize>(&self, patch: &Patch<P>) -> PatchParams {
        PatchParams {
            field_manager: Some(self.client.inner.field_manager.clone()),
            force: matches!(patch, Patch::Apply(_)),
            ..PatchParams::default()
        }
    }

    fn encode(&self, object: &K) -> Result<Vec<u8>, ClientError> {
        serde_json::to_vec(object).map_err(|source| self.encode_error(source))
    }

    /// The object as an apply wants it: without what only the server may say.
    fn applied(&self, object: &K) -> Result<Value, ClientError> {
        let mut value = serde_json::to_value(object).map_err(|source| self.encode_error(source))?;
        if let Some(fields) = value.as_object_mut() {
            let resource = ApiResource::erase::<K>(&self.dt);
            fields.insert("apiVersion".into(), resource.api_version.into());
            fields.insert("kind".into(), resource.kind.into());
        }
        if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["managedFields", "creationTimestamp", "generation", "selfLink"] {
                meta.remove(field);
            }
        }
        Ok(value)
    }

    async fn write(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<K, ClientError> {
        let object: K = self.send(verb, key, request).await?;
        self.client.inner.caches.note_write(&object);
        Ok(object)
    }

    async fn send<T: serde::de::DeserializeOwned>(
        &self,
        verb: &'static str,
        key: &impl std::fmt::Display,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, ClientError> {
        let sent = match request {
            Ok(request) => self.client.inner.kube.request(request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        sent.map_err(|source| ClientError::Request {
            verb,
            kind: self.describe(),
            key: key.to_string(),
            source: Box::new(source),
        })
    }

    fn describe(&self) -> String {
        describe(&ApiResource::erase::<K>(&self.dt))
    }

    fn encode_error(&self, source: serde_json::Error) -> ClientError {
        ClientError::Encode { kind: self.describe(), source }
    }
}
