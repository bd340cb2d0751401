//! Children of an object: applied, and pruned when no longer wanted.
//!
//! A reconciler says which children there should be; what it made earlier and does not want any
//! more is deleted. Children are written with server-side apply, so that applying the same again
//! changes nothing, and carry a controller reference to their owner.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! # use windlass::{Context, Outcome};
//! async fn reconcile(owner: Arc<Secret>, wanted: Vec<ConfigMap>, ctx: Context) -> windlass::Result {
//!     let mut children = ctx.children(&owner);
//!     children.kind::<ConfigMap>();
//!     for map in wanted {
//!         children.apply(map).await?;
//!     }
//!     for gone in children.prune().await? { // every other ConfigMap that the owner controls
//!         tracing::info!(%gone, "pruned"); // ConfigMap default/old
//!     }
//!     Ok(Outcome::Done)
//! }
//! ```
//!
//! Only kinds that were applied or [named](Children::kind) are pruned, and only objects that the
//! owner controls at the moment they are deleted, whatever the cache says. A set that failed half-way
//! must not be pruned: `?` sees to that.
//!
//! No child is overlooked because a controller watches only some: children of an owner in a namespace
//! are looked for in all of that namespace, those of any other in all that the manager watches.

use std::any::TypeId;
use std::collections::HashSet;
use std::fmt;

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, PropagationPolicy};
use parking_lot::Mutex;

use crate::client::options::DeleteOptions;
use crate::client::{CachedClient, ClientError, Objects, retry_on_conflict};
use crate::key::ObjectKey;
use crate::object::{AsObject, Object, TypedObject};
use crate::owner::{Owner, OwnerError};

/// The label that tells several sets of children of one owner apart.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::children::SET_LABEL;
///
/// fn set(child: &ConfigMap) -> Option<&str> {
///     child.metadata.labels.as_ref()?.get(SET_LABEL).map(String::as_str)
/// }
/// ```
pub const SET_LABEL: &str = "windlass.dev/child-set";

/// Why a child could not be applied or pruned.
///
/// ```
/// use windlass::children::ChildError;
///
/// fn is_ours_to_mend(error: &ChildError) -> bool {
///     matches!(error, ChildError::Owner(_)) // the child belongs to another owner
/// }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The child cannot belong to the owner.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The server refused, or the cache has no complete state.
    #[error(transparent)]
    Client(#[from] ClientError),
}

crate::report::debug_as_message!(ChildError);

/// A child that was deleted because it is not wanted any more.
///
/// ```
/// # use windlass::children::Pruned;
/// fn tell(pruned: &[Pruned]) {
///     for child in pruned {
///         tracing::info!(kind = child.kind, key = %child.key, "deleted"); // or `%child`: Ingress default/shop
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Pruned {
    /// Its kind, as `Ingress`.
    pub kind: String,
    /// The version that it was deleted in, as `networking.k8s.io/v1`.
    pub api_version: String,
    /// Its namespace and name.
    pub key: ObjectKey,
}

impl fmt::Display for Pruned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// By the resource, not by the type: several types may stand for one kind, as those of its versions
/// do, and all of them find the same objects.
type Wanted = HashSet<(String, String, ObjectKey)>;

fn wanted<K: Object>(dt: &K::DynamicType, key: ObjectKey) -> (String, String, ObjectKey) {
    (K::group(dt).into_owned(), K::plural(dt).into_owned(), key)
}

type PruneFn = Box<dyn for<'a> Fn(&'a Family, &'a Wanted) -> Pruning<'a> + Send + Sync>;
type Pruning<'a> = BoxFuture<'a, Result<Vec<Pruned>, ClientError>>;

/// The children of one object. See the [module documentation](self).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let kube = kube::Client::new(server.service(), "default");
/// # let client = windlass::CachedClient::standalone(kube, "example");
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use windlass::children::Children;
///
/// let mut owner = ConfigMap::default();
/// owner.metadata.name = Some("shop".into());
/// owner.metadata.namespace = Some("default".into());
/// let owner = client.create(&owner).await?;
///
/// let mut child = Secret::default();
/// child.metadata.name = Some("shop-key".into());
/// let mut children = Children::of(&client, &owner); // in a reconciler: ctx.children(&owner)
/// children.apply(child).await?;
/// assert!(children.prune().await?.is_empty());
///
/// let gone = Children::of(&client, &owner).kind::<Secret>().prune().await?; // none is wanted any more
/// assert_eq!(gone[0].to_string(), "Secret default/shop-key");
/// # client.caches().stop().await;
/// # Ok(()) }
/// ```
#[must_use = "children are pruned only when asked for"]
pub struct Children {
    family: Family,
    wanted: Wanted,
    kinds: Vec<(TypeId, ApiResource, PruneFn)>,
}

/// Whose children, and which of them.
struct Family {
    client: CachedClient,
    owner: Owner,
    set: Option<String>,
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Children")
            .field("owner", &self.family.owner)
            .field("set", &self.family.set)
            .field("wanted", &self.wanted.len())
            .finish_non_exhaustive()
    }
}

impl Children {
    /// The children of an object; none wanted yet. They are written and deleted by this client, a
    /// [`CachedClient`] or a [`Context`](crate::Context); a reconciler has
    /// [`ctx.children(&owner)`](crate::Context::children).
    pub fn of<Form>(client: &impl AsRef<CachedClient>, owner: &impl AsObject<Form, Object: Object>) -> Self {
        let family = Family { client: client.as_ref().clone(), owner: Owner::of(owner), set: None };
        Self { family, wanted: HashSet::new(), kinds: Vec::new() }
    }

    /// Only a part of the children, under a name: other sets of the same owner are left alone.
    pub fn set(&mut self, name: impl Into<String>) -> &mut Self {
        self.family.set = Some(name.into());
        self
    }

    /// Prunes children of this kind even when none is applied.
    pub fn kind<K: TypedObject>(&mut self) -> &mut Self {
        self.note_kind::<K>(&K::DynamicType::default());
        self
    }

    /// Creates or changes a child so that the fields given have the values given, and keeps it. Fields that
    /// the client's field manager applied before and are not given any more are removed, so controllers that
    /// apply different fields of one child need [clients](CachedClient::with_field_manager) with different ones; and
    /// the same [set](Self::set), as a child is in one.
    ///
    /// A child that says no namespace is put in the owner's.
    pub async fn apply<K: TypedObject>(&mut self, child: K) -> Result<K, ChildError> {
        let objects = self.family.client.objects();
        self.with(&objects).apply(child).await
    }

    /// Keeps a child that is written elsewhere.
    pub fn keep<K: TypedObject>(&mut self, key: ObjectKey) -> &mut Self {
        self.note::<K>(&K::DynamicType::default(), key);
        self
    }

    /// The children of one kind, which may be known only at run time. They are written as `objects` writes, in its
    /// field manager's name; what is pruned is deleted by the client of these children.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::api::{ApiResource, DynamicObject};
    /// # use windlass::{Context, ObjectKey, Outcome};
    /// async fn reconcile(shop: Arc<ConfigMap>, gateways: &ApiResource, ctx: Context) -> windlass::Result {
    ///     let gateway = DynamicObject::new("shop", gateways);
    ///     let gateways = ctx.dynamic(gateways);
    ///     let mut children = ctx.children(&shop);
    ///     children.with(&gateways).apply(gateway).await?;
    ///     children.with(&gateways).keep(ObjectKey::of(&shop).sibling("shop-internal"));
    ///     children.prune().await?;
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub fn with<'c, K: Object>(&'c mut self, objects: &'c Objects<K>) -> ChildrenOf<'c, K> {
        ChildrenOf { children: self, objects }
    }

    /// Deletes what the owner controls and nothing asked for, and says what that was.
    pub async fn prune(&mut self) -> Result<Vec<Pruned>, ChildError> {
        let mut gone = Vec::new();
        for (_, _, prune) in &self.kinds {
            gone.extend(prune(&self.family, &self.wanted).await?);
        }
        Ok(gone)
    }

    fn note<K: Object>(&mut self, dt: &K::DynamicType, key: ObjectKey) {
        self.note_kind::<K>(dt);
        self.wanted.insert(wanted::<K>(dt, key));
    }

    fn note_kind<K: Object>(&mut self, dt: &K::DynamicType) {
        let (id, resource, dt) = (TypeId::of::<K>(), ApiResource::erase::<K>(dt), dt.clone());
        if !self.kinds.iter().any(|(type_, known, _)| *type_ == id && *known == resource) {
            let prune: PruneFn = Box::new(move |family, wanted| Box::pin(prune_kind::<K>(family, dt.clone(), wanted)));
            self.kinds.push((id, resource, prune));
        }
    }
}

/// The children of one kind. Made by [`Children::with`].
///
/// ```
/// # use kube::api::DynamicObject;
/// # use windlass::children::{ChildError, Children};
/// # use windlass::client::Objects;
/// async fn none(mut children: Children, gateways: &Objects<DynamicObject>) -> Result<usize, ChildError> {
///     children.with(gateways).kind();
///     Ok(children.prune().await?.len())
/// }
/// ```
#[derive(Debug)]
pub struct ChildrenOf<'c, K: Object> {
    children: &'c mut Children,
    objects: &'c Objects<K>,
}

impl<K: Object> ChildrenOf<'_, K> {
    /// See [`Children::apply`].
    pub async fn apply(&mut self, mut child: K) -> Result<K, ChildError> {
        let Family { owner, set, .. } = &self.children.family;
        let meta = child.meta_mut();
        if !crate::object::is_cluster_scoped::<K>() && meta.namespace.is_none() {
            meta.namespace.clone_from(&owner.namespace);
        }
        if let Some(set) = set {
            meta.labels.get_or_insert_default().insert(SET_LABEL.to_owned(), set.clone());
        }
        owner.control(&mut child)?;
        let applied = self.objects.apply(&child).await?;
        self.keep(ObjectKey::of(&applied));
        Ok(applied)
    }

    /// See [`Children::keep`].
    pub fn keep(&mut self, key: ObjectKey) -> &mut Self {
        self.children.note::<K>(self.objects.dynamic_type(), key);
        self
    }

    /// See [`Children::kind`].
    pub fn kind(&mut self) -> &mut Self {
        self.children.note_kind::<K>(self.objects.dynamic_type());
        self
    }
}

async fn prune_kind<K: Object>(family: &Family, dt: K::DynamicType, kept: &Wanted) -> Result<Vec<Pruned>, ClientError> {
    let Some(owner) = family.owner.uid() else { return Ok(Vec::new()) };
    // What is in a namespace has its children there.
    let (caches, namespace) = (family.client.caches(), family.owner.namespace.as_deref());
    let lister = match namespace {
        Some(namespace) => caches.lister_covering::<K>(&dt, namespace),
        None => caches.lister_of::<K>(&dt),
    };
    if namespace.is_some() {
        lister.check_covers(namespace)?;
    }
    caches.wait_current(&dt, &lister).await?;
    let (objects, mut gone) = (family.client.objects_of::<K>(dt.clone()), Vec::new());
    for child in lister.owned_by_uid(owner) {
        let key = ObjectKey::of(&child);
        if !family.is_surplus(&*child) || kept.contains(&wanted::<K>(&dt, key.clone())) {
            continue;
        }
        if family.delete_surplus::<K>(&objects, &key, child.meta()).await? {
            let (kind, api_version) = (K::kind(&dt).into_owned(), K::api_version(&dt).into_owned());
            gone.push(Pruned { kind, api_version, key });
        }
    }
    Ok(gone)
}

impl Family {
    /// Whether a child belongs to the set, and to no other owner by now.
    fn is_surplus<K: Object>(&self, child: &K) -> bool {
        let meta = child.meta();
        let label = meta.labels.as_ref().and_then(|labels| labels.get(SET_LABEL));
        self.owner.controls(child) && label == self.set.as_ref() && meta.deletion_timestamp.is_none()
    }

    /// Deletes a child as it was looked at. If it has changed since, it may be another owner's by now, so
    /// it is looked at again, on the server.
    async fn delete_surplus<K: Object>(
        &self,
        objects: &Objects<K>,
        key: &ObjectKey,
        seen: &ObjectMeta,
    ) -> Result<bool, ClientError> {
        let first = &Mutex::new(Some((seen.uid.clone(), seen.resource_version.clone())));
        retry_on_conflict(|| async move {
            let remembered = first.lock().take();
            let (uid, resource_version) = match remembered {
                Some(seen) => seen,
                None => match objects.live().get(key).await? {
                    Some(child) if child.meta().uid == seen.uid && self.is_surplus(&child) => {
                        (child.meta().uid.clone(), child.meta().resource_version.clone())
                    }
                    _ => return Ok(false),
                },
            };
            let options = DeleteOptions::new().propagation(PropagationPolicy::Background);
            let options = uid.into_iter().fold(options, DeleteOptions::uid);
            let options = resource_version.into_iter().fold(options, DeleteOptions::resource_version);
            objects.delete_with(key, options).await
        })
        .await
    }
}
