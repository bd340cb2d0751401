//! What a reconciler is given besides the key.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use crate::cache::Lister;
use crate::children::Children;
use crate::client::options::ListOptions;
use crate::client::{CachedClient, ClientError, Live, Objects, Target, target};
use crate::draft::Draft;
use crate::events::Recorder;
use crate::key::ObjectKey;
use crate::lease::Fence;
use crate::object::{AsObject, Object, TypedObject};

/// One reconcile's view of the world: client, caches, events, shutdown. Cheap to clone.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::Pod;
/// # use windlass::{Context, ObjectKey, Outcome};
/// async fn reconcile(key: ObjectKey, ctx: Context) -> windlass::Result {
///     let cached = ctx.get::<Pod>(&key).await?;         // from the cache
///     let fresh = ctx.live().get::<Pod>(&key).await?;   // from the server
///     if let Some(pod) = cached {
///         ctx.recorder().normal(&pod, "Seen", "hello");
///     }
///     ctx.client().delete::<Pod>(&key).await?;          // writes
///     Ok(Outcome::Done)
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Context {
    shared: Arc<Shared>,
    reconcile_id: ReconcileId,
    failures: u32,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) controller: Arc<str>,
    pub(super) client: CachedClient,
    /// The manager's other clusters, by name.
    pub(super) clusters: Vec<(Arc<str>, CachedClient)>,
    /// The kind that the controller looks after: an [`Own`].
    pub(super) own: Option<Arc<dyn Any + Send + Sync>>,
    pub(super) recorder: Recorder,
    pub(super) shutdown: CancellationToken,
    pub(super) clock: Clock,
}

/// The kind that a controller looks after.
pub(super) struct Own<K: Object> {
    pub(super) dt: K::DynamicType,
    /// What the controller looks after, if that is only a part of the kind.
    pub(super) part: Option<Lister<K>>,
}

impl Shared {
    /// What the controller looks after, if that is a part of a kind: of this one.
    pub(super) fn part<K: Object>(&self, dt: &K::DynamicType) -> Option<&Lister<K>> {
        let part = self.own.as_ref()?.downcast_ref::<Own<K>>()?.part.as_ref()?;
        // A type that needs nothing at run time stands for one kind.
        (size_of::<K::DynamicType>() == 0 || part.is_of(&ApiResource::erase::<K>(dt))).then_some(part)
    }

    pub(super) fn cluster(&self, name: &str) -> Option<&CachedClient> {
        self.clusters.iter().find(|(known, _)| **known == *name).map(|(_, client)| client)
    }

    /// The same, with all writes behind a fence.
    pub(super) fn fenced(&self, fence: &Fence) -> Self {
        let fenced = |client: &CachedClient| client.fenced(fence);
        Self {
            controller: Arc::clone(&self.controller),
            client: fenced(&self.client),
            clusters: self.clusters.iter().map(|(name, client)| (Arc::clone(name), fenced(client))).collect(),
            own: self.own.clone(),
            recorder: self.recorder.fenced(fence),
            shutdown: self.shutdown.clone(),
            clock: self.clock.clone(),
        }
    }
}

impl Context {
    pub(super) fn of(shared: Arc<Shared>, failures: u32) -> Self {
        Self { shared, reconcile_id: ReconcileId::new(), failures }
    }

    /// A context of one's own, to call a reconciler from a test.
    pub fn new(controller: &str, client: CachedClient, recorder: Recorder) -> Self {
        let (clusters, shutdown) = (Vec::new(), CancellationToken::new());
        let controller = controller.into();
        let shared = Shared { controller, client, clusters, own: None, recorder, shutdown, clock: Clock::start() };
        Self::of(Arc::new(shared), 0)
    }

    /// The client: cached reads, live reads, writes.
    pub fn client(&self) -> &CachedClient {
        &self.shared.client
    }

    /// The client of another cluster of the manager, by the name it was
    /// [added](crate::Manager::add_cluster) under.
    pub fn cluster(&self, name: &str) -> Option<&CachedClient> {
        self.shared.cluster(name)
    }

    /// An object from the cache; `None` when it does not exist. See [`CachedClient::get`].
    ///
    /// A controller that looks after a part of its kind ([`Controller::scope`](super::Controller::scope))
    /// sees that part of it: for the controller, an object that has left the scope is gone. The
    /// [client](Self::client) sees all objects.
    pub async fn get<K: TypedObject>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClientError> {
        self.objects().get(key).await
    }

    /// All objects of a kind from the cache. See [`CachedClient::list`]. Of its own kind, a controller sees
    /// those that it looks after.
    pub async fn list<K: TypedObject>(&self) -> Result<Vec<Arc<K>>, ClientError> {
        self.objects().list().await
    }

    /// Objects from the cache: of a namespace, with certain labels or fields, or filed under a value of an index. See
    /// [`CachedClient::list_with`]. Of its own kind, a controller sees those that it looks after.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::core::v1::{Node, Pod};
    /// # use windlass::{Context, Outcome};
    /// use windlass::client::options::ListOptions;
    ///
    /// async fn reconcile(node: Arc<Node>, ctx: Context) -> windlass::Result {
    ///     let name = node.metadata.name.as_deref().unwrap_or_default();
    ///     let pods = ctx.list_with::<Pod>(ListOptions::new().fields(format!("spec.nodeName={name}"))).await?;
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub async fn list_with<K: TypedObject>(&self, options: ListOptions) -> Result<Vec<Arc<K>>, ClientError> {
        self.objects().list_with(options).await
    }

    /// Everything that can be done with one kind. Cached reads of the controller's own kind show what
    /// [`get`](Self::get) shows: the part that it looks after.
    pub fn objects<K: TypedObject>(&self) -> Objects<K> {
        self.objects_of(K::DynamicType::default())
    }

    /// [`objects`](Self::objects) for a kind known only at run time, as a type of the caller's choice.
    pub fn objects_of<K: Object>(&self, dt: K::DynamicType) -> Objects<K> {
        let part = self.shared.part::<K>(&dt).cloned();
        self.shared.client.objects_of(dt).showing(part)
    }

    /// [`objects`](Self::objects) for a kind known only at run time.
    ///
    /// ```
    /// # use kube::api::{ApiResource, DynamicObject};
    /// # use windlass::{Context, ObjectKey, Outcome};
    /// async fn reconcile(gateways: &ApiResource, key: ObjectKey, ctx: Context) -> windlass::Result {
    ///     let gateways = ctx.dynamic(gateways);
    ///     if let Some(gateway) = gateways.get(&key).await? {
    ///         ctx.recorder().normal(&gateway, "Seen", "hello");
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub fn dynamic(&self, resource: &ApiResource) -> Objects<DynamicObject> {
        self.objects_of(resource.clone())
    }

    /// The children of an object: [applied](Children::apply), and [pruned](Children::prune) when no longer wanted.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use windlass::{Context, Outcome};
    /// async fn reconcile(shop: Arc<ConfigMap>, key: Secret, ctx: Context) -> windlass::Result {
    ///     let mut children = ctx.children(&shop);
    ///     children.apply(key).await?;
    ///     children.prune().await?;
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub fn children<Form>(&self, owner: &impl AsObject<Form, Object: Object>) -> Children {
        Children::of(self, owner)
    }

    /// A [`Draft`] of an object: change it, then [commit](Draft::commit) what changed.
    ///
    /// The draft shares the object as it was read, so this takes the `Arc` that the reconciler receives or that a
    /// cached read returns. For an object without an `Arc`, use [`Draft::new`] with `Arc::new(object)`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass::{Context, Outcome};
    /// async fn reconcile(settings: Arc<ConfigMap>, ctx: Context) -> windlass::Result {
    ///     let mut draft = ctx.draft(&settings);
    ///     draft.immutable = Some(true);
    ///     draft.commit(&ctx).await?;
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub fn draft<K: Object>(&self, object: &Arc<K>) -> Draft<K> {
        Draft::new(Arc::clone(object))
    }

    /// Everything that can be done with the kind that the controller looks after, if `K` is its type. This is how
    /// a reconciler of a kind known only at run time reaches that kind. Like the [client](Self::client) it sees
    /// all objects of the kind, also those outside of the controller's scope.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use kube::api::DynamicObject;
    /// # use windlass::{Context, ObjectKey, Outcome};
    /// async fn reconcile(object: Arc<DynamicObject>, ctx: Context) -> windlass::Result {
    ///     let objects = ctx.own::<DynamicObject>().ok_or("a controller of another type")?;
    ///     let live = objects.live().get(&ObjectKey::of(&object)).await?;
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub fn own<K: Object>(&self) -> Option<Objects<K>> {
        let dt = match &self.shared.own {
            Some(own) => &own.downcast_ref::<Own<K>>()?.dt,
            // A context made for a test: a type that needs nothing at run time stands for one kind.
            None => (&() as &dyn Any).downcast_ref::<K::DynamicType>()?,
        };
        Some(self.shared.client.objects_of(dt.clone()))
    }

    /// Reads that ask the server.
    pub fn live(&self) -> Live<'_> {
        self.shared.client.live()
    }

    /// Reports events in the controller's name. Like the client's writes they stop with the lease.
    pub fn recorder(&self) -> &Recorder {
        &self.shared.recorder
    }

    /// Cancelled when the manager stops: long reconciles should end early.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shared.shutdown
    }

    /// The time, to compare with times that objects state: when something expires, for example. It is the system's
    /// time, unless timers are further on: in a test with a paused clock, and where the system's clock was set back.
    /// Whatever a reconcile [waited](super::Outcome::RequeueAfter) for has therefore come.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use windlass::{Context, ObjectKey, Outcome};
    /// async fn reconcile(map: Arc<ConfigMap>, ctx: Context) -> windlass::Result {
    ///     let created = map.metadata.creation_timestamp.as_ref().map_or(ctx.now(), |time| time.0);
    ///     let left = Duration::from_secs(3600).saturating_sub(ctx.now().duration_since(created).unsigned_abs());
    ///     if !left.is_zero() {
    ///         return Ok(Outcome::RequeueAfter(left));
    ///     }
    ///     ctx.client().delete::<ConfigMap>(&ObjectKey::of(&*map)).await?;
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The name of the controller.
    pub fn controller(&self) -> &str {
        &self.shared.controller
    }

    /// Identifies this call in logs.
    pub fn reconcile_id(&self) -> ReconcileId {
        self.reconcile_id
    }

    /// Failures in a row of this key before this call; those that were to be
    /// [reconciled again](super::Outcome::RequeueAfter) at once count, too.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

impl AsRef<CachedClient> for Context {
    fn as_ref(&self) -> &CachedClient {
        self.client()
    }
}

#[diagnostic::do_not_recommend]
impl<K: TypedObject> target::Sealed<K> for Context {}

#[diagnostic::do_not_recommend]
impl<K: TypedObject> Target<K> for Context {
    fn target(&self) -> Objects<K> {
        self.objects()
    }
}

/// Identifies one call of a reconciler; shown as a UUID.
///
/// ```
/// use windlass::{Context, ObjectKey, Outcome};
///
/// async fn reconcile(key: ObjectKey, ctx: Context) -> windlass::Result {
///     tracing::info!(%key, id = %ctx.reconcile_id(), "started"); // as the span says, too
///     Ok(Outcome::Done)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReconcileId(u128);

impl ReconcileId {
    fn new() -> Self {
        // Version 4, variant 1: random otherwise.
        let random = fastrand::u128(..);
        Self(random & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62))
    }
}

impl fmt::Display for ReconcileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            (bits >> 96) as u32,
            (bits >> 80) as u16,
            (bits >> 64) as u16,
            (bits >> 48) as u16,
            bits as u64 & 0xffff_ffff_ffff,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::ReconcileId;

    #[test]
    fn an_id_is_a_version_4_uuid() {
        let text = ReconcileId::new().to_string();
        assert_eq!(text.len(), 36);
        assert_eq!(text.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&text.as_bytes()[19]), "{text}");
    }
}
