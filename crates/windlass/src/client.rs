//! Reading and writing objects.
//!
//! Reads come from the cache by default and never show an object older than this process's own
//! last write of it, nor one that it has seen deleted; [`CachedClient::live`] asks the server. Writes go
//! to the server, and what it answers is visible to cached reads at once: of every type and, where
//! several versions of a kind are watched, of each of them, for which the object is read once more
//! (if that fails, [`CachedClient::get`] asks the server until the watch has passed the write). If
//! the future of a write is dropped before it is answered, as a reconcile timeout does, the write may or may not be
//! carried out: cached reads show it when the watch delivers it, as they show writes of other clients.
//!
//! Names and namespaces are parts of a path and no more: one that would lead elsewhere (`.`, `..`, or with a `/`
//! or `%` in it) is refused with [`ClientError::InvalidName`] before anything is sent, and in a cache there is no
//! such object. What else may be in them, as in the names of roles, is escaped.
//!
//! A [`CachedClient`] wraps a [`kube::Client`]; [`CachedClient::kube`] gives it back for everything else
//! (logs, exec, discovery). Writes made that way are not visible to cached reads before the watch
//! shows them.

pub mod options;

mod collection;
mod error;
mod eviction;
mod live;
mod objects;
mod request;
mod scale;
mod segment;
mod subresource;
pub(crate) mod target;
mod token;

use std::fmt::Debug;
use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject, Patch};
use serde::Serialize;

pub use error::{ClientError, retry_on_conflict};
pub use live::{Live, LiveObjects};
pub use objects::Objects;
pub use scale::ScaleHandle;
pub use subresource::Subresource;
pub use target::Target;
pub use token::Token;

use self::options::{ApplyOptions, DeleteOptions, ListOptions, WriteOptions};
use crate::cache::{CacheOptions, Caches, Lister};
use crate::key::ObjectKey;
use crate::lease::Fence;
use crate::object::{Object, TypedObject};

struct Inner {
    kube: kube::Client,
    caches: Caches,
    field_manager: String,
}

/// Reads from the cache, writes to the server. Clones share everything.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass::{CachedClient, ObjectKey, client::ClientError};
/// # async fn example(client: CachedClient) -> Result<(), ClientError> {
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
pub struct CachedClient {
    inner: Arc<Inner>,
}

impl Debug for CachedClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedClient").field("field_manager", &self.inner.field_manager).finish_non_exhaustive()
    }
}

impl AsRef<Self> for CachedClient {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl CachedClient {
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

    /// The same caches, connection and fence under another field manager: for a controller that applies other
    /// fields of objects that another controller of the manager applies, too. See [`apply`](Self::apply).
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass::{Context, client::ClientError};
    /// # async fn example(ctx: &Context, labels: ConfigMap) -> Result<(), ClientError> {
    /// let client = ctx.client().with_field_manager("petstore-labels");
    /// client.apply(&labels).await?; // keeps what "petstore" applied
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_field_manager(&self, field_manager: impl Into<String>) -> Self {
        Self::new(self.inner.kube.clone(), self.inner.caches.clone(), field_manager)
    }

    /// The same with all writes behind a fence.
    pub(crate) fn fenced(&self, fence: &Fence) -> Self {
        Self::new(fence.guard(self.kube().clone()), self.caches().clone(), self.field_manager())
    }

    /// The [`kube::Client`] that this client sends its requests with, for requests that it has no method for, such as
    /// logs or `exec`.
    ///
    /// Requests through it go to the server: reads bypass the cache, writes are sent under no
    /// [field manager](Self::field_manager) unless they name one, and a cached read right after a write may still show
    /// the object as it was before. The rest stays: the client's identity, the retries of
    /// [`config::connect`](crate::config::connect), the manager's metrics, and, in a
    /// [`Context`](crate::Context::client), the [fence](crate::lease::Fence), which refuses writes once another replica
    /// may lead.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use windlass::Context;
    /// # async fn example(ctx: Context) -> Result<(), kube::Error> {
    /// let pods: kube::Api<Pod> = kube::Api::namespaced(ctx.client().kube().clone(), "default");
    /// let logs = pods.logs("thor", &Default::default()).await?;
    /// # Ok(()) }
    /// ```
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
    pub fn objects<K: TypedObject>(&self) -> Objects<K> {
        self.objects_of(K::DynamicType::default())
    }

    /// Everything that can be done with one kind known only at run time, as a type of the caller's choice, such as
    /// `PartialObjectMeta<DynamicObject>`. [`dynamic`](Self::dynamic) is the short form for whole objects.
    pub fn objects_of<K: Object>(&self, dt: K::DynamicType) -> Objects<K> {
        Objects::new(self.clone(), dt)
    }

    /// Everything that can be done with one kind known only at run time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = windlass_server::Server::builder().start().await?;
    /// # let kube = kube::Client::new(server.service(), "default");
    /// # let client = windlass::CachedClient::standalone(kube, "example");
    /// use kube::api::{ApiResource, GroupVersionKind};
    ///
    /// let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
    /// let namespaces = client.dynamic(&kind);
    /// assert!(!namespaces.list().await?.is_empty());
    /// # client.caches().stop().await;
    /// # Ok(()) }
    /// ```
    pub fn dynamic(&self, resource: &ApiResource) -> Objects<DynamicObject> {
        self.objects_of(resource.clone())
    }

    /// The lister of a kind, for reads that need no waiting: of all its objects (in the manager's
    /// namespaces). If they are not all watched yet, a watch starts; see [`Caches::lister`].
    pub fn lister<K: TypedObject>(&self) -> Lister<K> {
        self.inner.caches.lister()
    }

    /// An object from the cache; `None` when it does not exist. The first read of a kind starts
    /// watching it and waits for the list. Where only a part of the kind is watched (a
    /// [`Scope`](crate::cache::Scope) of labels, fields or a namespace), an object that is none of it
    /// is read from the server. A namespace that the manager was not given is an error.
    pub async fn get<K: TypedObject>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClientError> {
        self.objects().get(key).await
    }

    /// All objects of a kind from the cache (in the manager's namespaces), whatever parts of them
    /// others watch: if they are not all watched yet, a watch starts. A part is read with
    /// [`Caches::lister_in`].
    pub async fn list<K: TypedObject>(&self) -> Result<Vec<Arc<K>>, ClientError> {
        self.objects().list().await
    }

    /// Objects from the cache: of a namespace, with certain labels or fields, or filed under a value of an index. See
    /// [`ListOptions`] for what can be selected by, and [`list`](Self::list) for what is watched.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = windlass_server::Server::builder().start().await?;
    /// # let kube = kube::Client::new(server.service(), "default");
    /// # let client = windlass::CachedClient::standalone(kube, "example");
    /// # let map = serde_json::json!({
    /// #     "metadata": {"name": "a", "namespace": "default", "labels": {"app": "web"}}, "immutable": true,
    /// # });
    /// # client.create(&serde_json::from_value::<ConfigMap>(map)?).await?;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass::client::options::ListOptions;
    ///
    /// let web = ListOptions::new().namespace("default").labels("app in (web, shop)").fields("immutable=true");
    /// assert_eq!(client.list_with::<ConfigMap>(web).await?.len(), 1);
    ///
    /// client.lister::<ConfigMap>().add_index("app", |map: &ConfigMap| {
    ///     map.metadata.labels.iter().filter_map(|labels| labels.get("app").cloned()).collect()
    /// });
    /// assert_eq!(client.list_with::<ConfigMap>(ListOptions::new().index("app", "web")).await?.len(), 1);
    /// # client.caches().stop().await;
    /// # Ok(()) }
    /// ```
    pub async fn list_with<K: TypedObject>(&self, options: ListOptions) -> Result<Vec<Arc<K>>, ClientError> {
        self.objects().list_with(options).await
    }

    /// Reads that ask the server.
    pub fn live(&self) -> Live<'_> {
        Live { client: self }
    }

    /// Creates an object and returns it as the server stored it.
    pub async fn create<K: TypedObject>(&self, object: &K) -> Result<K, ClientError> {
        self.objects().create(object).await
    }

    /// [`create`](Self::create) with options.
    pub async fn create_with<K: TypedObject>(&self, object: &K, options: WriteOptions) -> Result<K, ClientError> {
        self.objects().create_with(object, options).await
    }

    /// Replaces an object; fails with a conflict when it changed since it was read.
    pub async fn update<K: TypedObject>(&self, object: &K) -> Result<K, ClientError> {
        self.objects().update(object).await
    }

    /// [`update`](Self::update) with options.
    pub async fn update_with<K: TypedObject>(&self, object: &K, options: WriteOptions) -> Result<K, ClientError> {
        self.objects().update_with(object, options).await
    }

    /// Replaces an object's status; fails with a conflict when it changed since it was read.
    pub async fn update_status<K: TypedObject>(&self, object: &K) -> Result<K, ClientError> {
        self.objects().update_status(object).await
    }

    /// [`update_status`](Self::update_status) with options.
    pub async fn update_status_with<K: TypedObject>(
        &self,
        object: &K,
        options: WriteOptions,
    ) -> Result<K, ClientError> {
        self.objects().update_status_with(object, options).await
    }

    /// Changes parts of an object.
    pub async fn patch<K: TypedObject>(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Debug>,
    ) -> Result<K, ClientError> {
        self.objects().patch(key, patch).await
    }

    /// [`patch`](Self::patch) with options.
    pub async fn patch_with<K: TypedObject>(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Debug>,
        options: WriteOptions,
    ) -> Result<K, ClientError> {
        self.objects().patch_with(key, patch, options).await
    }

    /// Changes parts of an object's status.
    pub async fn patch_status<K: TypedObject>(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Debug>,
    ) -> Result<K, ClientError> {
        self.objects().patch_status(key, patch).await
    }

    /// [`patch_status`](Self::patch_status) with options.
    pub async fn patch_status_with<K: TypedObject>(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Debug>,
        options: WriteOptions,
    ) -> Result<K, ClientError> {
        self.objects().patch_status_with(key, patch, options).await
    }

    /// Creates or changes an object so that the fields given have the values given (server-side
    /// apply, taking over fields that others own). The right way to write children: sending the
    /// same again changes nothing, whatever the server defaulted.
    ///
    /// Fields that this [field manager](Self::field_manager) applied before and are not given any more are
    /// removed, unless another one owns them, too. All controllers of a manager have the same one, its name. So
    /// two of them that apply different fields of one object each remove the other's, for ever; let one of them
    /// write [under another name](Self::with_field_manager).
    pub async fn apply<K: TypedObject>(&self, object: &K) -> Result<K, ClientError> {
        self.objects().apply(object).await
    }

    /// [`apply`](Self::apply) with options, as one that takes over no fields of others.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass::{Context, client::ClientError};
    /// use windlass::client::options::ApplyOptions;
    ///
    /// # async fn example(ctx: Context, settings: ConfigMap) -> Result<(), ClientError> {
    /// let polite = ApplyOptions::new().force(false);
    /// match ctx.client().apply_with(&settings, polite).await {
    ///     Err(error) if error.is_conflict() => tracing::info!(%error, "another owns one of the fields"),
    ///     applied => drop(applied?),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn apply_with<K: TypedObject>(&self, object: &K, options: ApplyOptions) -> Result<K, ClientError> {
        self.objects().apply_with(object, options).await
    }

    /// [`apply`](Self::apply) for the status.
    pub async fn apply_status<K: TypedObject>(&self, object: &K) -> Result<K, ClientError> {
        self.objects().apply_status(object).await
    }

    /// [`apply_status`](Self::apply_status) with options.
    pub async fn apply_status_with<K: TypedObject>(&self, object: &K, options: ApplyOptions) -> Result<K, ClientError> {
        self.objects().apply_status_with(object, options).await
    }

    /// Reads an object from the server, changes it and replaces it, again and again while others
    /// write it too. `None` when there is no such object.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass::{CachedClient, ObjectKey, client::ClientError};
    /// # async fn example(client: CachedClient) -> Result<(), ClientError> {
    /// let key = ObjectKey::new("default", "counter");
    /// client.modify::<ConfigMap>(&key, |map| {
    ///     map.data.get_or_insert_default().insert("seen".into(), "yes".into());
    /// }).await?;
    /// # Ok(()) }
    /// ```
    pub async fn modify<K: TypedObject>(
        &self,
        key: &ObjectKey,
        change: impl Fn(&mut K) + Send + Sync,
    ) -> Result<Option<K>, ClientError> {
        self.objects().modify(key, change).await
    }

    /// Deletes an object. False when there was none.
    pub async fn delete<K: TypedObject>(&self, key: &ObjectKey) -> Result<bool, ClientError> {
        self.objects::<K>().delete(key).await
    }

    /// [`delete`](Self::delete) with options, as a precondition.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = windlass_server::Server::builder().start().await?;
    /// # let kube = kube::Client::new(server.service(), "default");
    /// # let client = windlass::CachedClient::standalone(kube, "example");
    /// # let map = serde_json::json!({"metadata": {"name": "settings", "namespace": "default"}});
    /// # let mut settings = client.create(&serde_json::from_value::<ConfigMap>(map)?).await?;
    /// # settings.immutable = Some(true);
    /// # client.update(&settings).await?;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass::{ObjectKey, client::options::DeleteOptions};
    ///
    /// // It has changed since it was read.
    /// let as_read = DeleteOptions::of(&settings);
    /// let error = client.delete_with::<ConfigMap>(&ObjectKey::of(&settings), as_read).await.unwrap_err();
    /// assert!(error.is_conflict());
    /// # client.caches().stop().await;
    /// # Ok(()) }
    /// ```
    pub async fn delete_with<K: TypedObject>(
        &self,
        key: &ObjectKey,
        options: DeleteOptions,
    ) -> Result<bool, ClientError> {
        self.objects::<K>().delete_with(key, options).await
    }

    /// Deletes all objects that are selected, with one request for each namespace, and says which these were. Objects
    /// with finalizers and pods that need time to stop are there until these are done with. Without a namespace, those
    /// of the manager are looked at or, if it was given none, all that hold such objects. If a request fails, what
    /// was deleted by then stays deleted.
    ///
    /// The selectors are the server's, which knows only some [fields](ListOptions::fields) of each kind; an index, a
    /// limit and preconditions are refused. The operator needs the verb `deletecollection`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = windlass_server::Server::builder().start().await?;
    /// # let kube = kube::Client::new(server.service(), "default");
    /// # let client = windlass::CachedClient::standalone(kube, "example");
    /// # let map = serde_json::json!({"metadata": {"name": "a", "namespace": "default", "labels": {"app": "web"}}});
    /// # client.create(&serde_json::from_value::<ConfigMap>(map)?).await?;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass::client::options::{DeleteOptions, ListOptions};
    ///
    /// let web = ListOptions::new().namespace("default").labels("app=web");
    /// let gone = client.delete_all_of::<ConfigMap>(web, DeleteOptions::new()).await?;
    /// assert_eq!(gone[0].to_string(), "default/a");
    /// # client.caches().stop().await;
    /// # Ok(()) }
    /// ```
    pub async fn delete_all_of<K: TypedObject>(
        &self,
        list: ListOptions,
        delete: DeleteOptions,
    ) -> Result<Vec<ObjectKey>, ClientError> {
        self.objects::<K>().delete_all_of(list, delete).await
    }

    /// How many replicas an object wants and has, of any kind that has the subresource `scale`. The operator needs the
    /// verbs `get` and `patch` on that, as `deployments/scale`.
    pub fn scale<K: TypedObject>(&self, key: &ObjectKey) -> ScaleHandle<K> {
        self.objects().scale(key)
    }
}
