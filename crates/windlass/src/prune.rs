//! Children of an object: applied, and pruned when no longer wanted.
//!
//! A reconciler says which children there should be; what it made earlier and does not want any
//! more is deleted. Children are written with server-side apply, so that applying the same again
//! changes nothing, and carry a controller reference to their owner.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! # use windlass::prune::Children;
//! # use windlass::{Context, Outcome};
//! async fn reconcile(owner: Arc<Secret>, wanted: Vec<ConfigMap>, ctx: &Context) -> windlass::Result {
//!     let mut children = Children::of(&*owner).kind::<ConfigMap>();
//!     for map in wanted {
//!         children.apply(ctx.client(), map).await?;
//!     }
//!     let gone = children.prune(ctx.client()).await?; // every other ConfigMap that the owner controls
//!     tracing::debug!(?gone, "pruned");
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

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{ApiResource, DeleteParams, Preconditions, PropagationPolicy};
use parking_lot::Mutex;

use crate::client::{CachedClient, ClientError, Objects, retry_on_conflict};
use crate::key::ObjectKey;
use crate::object::Object;
use crate::owner::{self, OwnerError};

/// The label that tells several sets of children of one owner apart.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::prune::SET_LABEL;
///
/// fn set(child: &ConfigMap) -> Option<&str> {
///     child.metadata.labels.as_ref()?.get(SET_LABEL).map(String::as_str)
/// }
/// ```
pub const SET_LABEL: &str = "windlass.dev/child-set";

/// Why a child could not be applied or pruned.
///
/// ```
/// use windlass::prune::PruneError;
///
/// fn is_ours_to_mend(error: &PruneError) -> bool {
///     matches!(error, PruneError::Owner(_)) // the child belongs to somebody else
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PruneError {
    /// The child cannot belong to the owner.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The server refused, or the cache has no complete state.
    #[error(transparent)]
    CachedClient(#[from] ClientError),
}

/// By the resource, not by the type: several types may stand for one kind, as those of its versions
/// do, and all of them find the same objects.
type Wanted = HashSet<(String, String, ObjectKey)>;

fn wanted<K: Object>(dt: &K::DynamicType, key: ObjectKey) -> (String, String, ObjectKey) {
    (K::group(dt).into_owned(), K::plural(dt).into_owned(), key)
}

type PruneFn<O> =
    Box<dyn for<'a> Fn(&'a CachedClient, &'a O, Option<&'a str>, &'a Wanted) -> Pruning<'a> + Send + Sync>;
type Pruning<'a> = BoxFuture<'a, Result<Vec<ObjectKey>, ClientError>>;

/// The children of one object. See the [module documentation](self).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let kube = kube::Client::new(server.service(), "default");
/// # let client = windlass::CachedClient::standalone(kube, "example");
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use windlass::prune::Children;
///
/// let mut owner = ConfigMap::default();
/// owner.metadata.name = Some("shop".into());
/// owner.metadata.namespace = Some("default".into());
/// let owner = client.create(&owner).await?;
///
/// let mut child = Secret::default();
/// child.metadata.name = Some("shop-key".into());
/// let mut children = Children::of(&owner);
/// children.apply(&client, child).await?;
/// assert!(children.prune(&client).await?.is_empty());
///
/// let gone = Children::of(&owner).kind::<Secret>().prune(&client).await?; // none is wanted any more
/// assert_eq!(gone[0].name(), "shop-key");
/// # client.caches().stop().await;
/// # Ok(()) }
/// ```
#[must_use = "children are pruned only when asked for"]
pub struct Children<'o, O: Resource> {
    owner: &'o O,
    dt: O::DynamicType,
    set: Option<String>,
    wanted: Wanted,
    kinds: Vec<(TypeId, ApiResource, PruneFn<O>)>,
}

impl<O: Resource> std::fmt::Debug for Children<'_, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Children").field("set", &self.set).field("wanted", &self.wanted.len()).finish_non_exhaustive()
    }
}

impl<'o, O> Children<'o, O>
where
    O: Resource + Sync,
{
    /// The children of an object; none wanted yet.
    pub fn of(owner: &'o O) -> Self
    where
        O::DynamicType: Default,
    {
        Self::of_with(owner, O::DynamicType::default())
    }

    /// The same for an owner of a kind known only at run time.
    pub fn of_with(owner: &'o O, dt: O::DynamicType) -> Self {
        Self { owner, dt, set: None, wanted: HashSet::new(), kinds: Vec::new() }
    }

    /// Only a part of the children, under a name: other sets of the same owner are left alone.
    pub fn set(mut self, name: impl Into<String>) -> Self {
        self.set = Some(name.into());
        self
    }

    /// Prunes children of this kind even when none is applied.
    pub fn kind<K: Object<DynamicType: Default>>(self) -> Self {
        self.kind_with::<K>(&K::DynamicType::default())
    }

    /// [`kind`](Self::kind) for one known only at run time.
    pub fn kind_with<K: Object>(mut self, dt: &K::DynamicType) -> Self {
        self.note_kind::<K>(dt);
        self
    }

    /// Creates or changes a child so that the fields given have the values given, and keeps it. Fields that
    /// the client's field manager applied before and are not given any more are removed, so controllers that
    /// apply different fields of one child need [clients](CachedClient::with_field_manager) with different ones; and
    /// the same [set](Self::set), as a child is in one.
    pub async fn apply<K: Object<DynamicType: Default>>(
        &mut self,
        client: &CachedClient,
        child: K,
    ) -> Result<K, PruneError> {
        self.apply_with(client, &K::DynamicType::default(), child).await
    }

    /// [`apply`](Self::apply) for a child of a kind known only at run time.
    pub async fn apply_with<K: Object>(
        &mut self,
        client: &CachedClient,
        dt: &K::DynamicType,
        mut child: K,
    ) -> Result<K, PruneError> {
        let owner = self.owner.meta();
        let meta = child.meta_mut();
        if !crate::object::is_cluster_scoped::<K>() && meta.namespace.is_none() {
            meta.namespace.clone_from(&owner.namespace);
        }
        if let Some(set) = &self.set {
            meta.labels.get_or_insert_default().insert(SET_LABEL.to_owned(), set.clone());
        }
        owner::set_controller_with(&mut child, self.owner, &self.dt)?;
        let applied = client.objects_with::<K>(dt.clone()).apply(&child).await?;
        self.keep_with::<K>(dt, ObjectKey::of(&applied));
        Ok(applied)
    }

    /// Keeps a child that is written elsewhere.
    pub fn keep<K: Object<DynamicType: Default>>(&mut self, key: ObjectKey) {
        self.keep_with::<K>(&K::DynamicType::default(), key);
    }

    /// [`keep`](Self::keep) for a child of a kind known only at run time.
    pub fn keep_with<K: Object>(&mut self, dt: &K::DynamicType, key: ObjectKey) {
        self.note_kind::<K>(dt);
        self.wanted.insert(wanted::<K>(dt, key));
    }

    /// Deletes what the owner controls and nobody asked for, and says what that was.
    pub async fn prune(self, client: &CachedClient) -> Result<Vec<ObjectKey>, PruneError> {
        let mut gone = Vec::new();
        for (_, _, prune) in &self.kinds {
            gone.extend(prune(client, self.owner, self.set.as_deref(), &self.wanted).await?);
        }
        Ok(gone)
    }

    fn note_kind<K: Object>(&mut self, dt: &K::DynamicType) {
        let (id, resource, dt) = (TypeId::of::<K>(), ApiResource::erase::<K>(dt), dt.clone());
        if !self.kinds.iter().any(|(type_, known, _)| *type_ == id && *known == resource) {
            let prune: PruneFn<O> = Box::new(move |client, owner, set, wanted| {
                Box::pin(prune_kind::<K, O>(client, dt.clone(), owner, set, wanted))
            });
            self.kinds.push((id, resource, prune));
        }
    }
}

async fn prune_kind<K, O>(
    client: &CachedClient,
    dt: K::DynamicType,
    owner: &O,
    set: Option<&str>,
    kept: &Wanted,
) -> Result<Vec<ObjectKey>, ClientError>
where
    K: Object,
    O: Resource + Sync,
{
    // What is in a namespace has its children there.
    let namespace = owner.meta().namespace.as_deref();
    let lister = match namespace {
        Some(namespace) => client.caches().lister_covering::<K>(&dt, namespace),
        None => client.caches().lister_of::<K>(&dt),
    };
    if namespace.is_some() {
        lister.check_covers(namespace)?;
    }
    lister.wait_synced().await?;
    let (objects, mut gone) = (client.objects_with::<K>(dt.clone()), Vec::new());
    for child in lister.owned_by(owner) {
        let key = ObjectKey::of(&*child);
        if !is_surplus(&*child, owner, set) || kept.contains(&wanted::<K>(&dt, key.clone())) {
            continue;
        }
        if delete_surplus::<K, O>(&objects, &key, child.meta(), owner, set).await? {
            gone.push(key);
        }
    }
    Ok(gone)
}

/// Whether a child belongs to the set, and to nobody else by now.
fn is_surplus<K: Object, O: Resource>(child: &K, owner: &O, set: Option<&str>) -> bool {
    let meta = child.meta();
    let label = meta.labels.as_ref().and_then(|labels| labels.get(SET_LABEL)).map(String::as_str);
    owner::is_controlled_by(child, owner) && label == set && meta.deletion_timestamp.is_none()
}

/// Deletes a child as it was looked at. If it has changed since, it may be somebody else's by now, so
/// it is looked at again, on the server.
async fn delete_surplus<K, O>(
    objects: &Objects<K>,
    key: &ObjectKey,
    seen: &ObjectMeta,
    owner: &O,
    set: Option<&str>,
) -> Result<bool, ClientError>
where
    K: Object,
    O: Resource + Sync,
{
    let first = &Mutex::new(Some((seen.uid.clone(), seen.resource_version.clone())));
    retry_on_conflict(|| async move {
        let remembered = first.lock().take();
        let (uid, resource_version) = match remembered {
            Some(seen) => seen,
            None => match objects.get_live(key).await? {
                Some(child) if child.meta().uid == seen.uid && is_surplus(&child, owner, set) => {
                    (child.meta().uid.clone(), child.meta().resource_version.clone())
                }
                _ => return Ok(false),
            },
        };
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        objects.delete(key, &params).await
    })
    .await
}
