//! Finalizers: clean up outside the cluster before an object goes away.
//!
//! A [`Finalize`] reconciler has two halves: `reconcile` for objects that live, `cleanup` for
//! objects that are being deleted. [`Finalizer`] makes a [`Reconcile`] of it and looks after the
//! entry in `metadata.finalizers`. What always holds: if `reconcile` ever ran for an object, the
//! object stays until `cleanup` succeeded for it.
//!
//! # Objects that leave the selection
//!
//! A controller that watches a part of its kind, such as a [`Scope`](crate::cache::Scope) of labels, sees no changes
//! of an object that has left that part. An object that loses the label while it is being cleaned up is still cleaned
//! up. An object that loses the label first and is deleted later keeps the finalizer, and stays until the label is
//! back or the finalizer is removed by hand. (In controller-runtime it is the same.) So if users can change the
//! selected field, select with a [predicate](crate::predicate::object) instead: predicates do not filter deletions, so
//! the object is cleaned up whatever its labels are. The other objects then take memory in the cache.
//!
//! ```
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use windlass::finalizer::{Finalize, Finalizer};
//! use windlass::{Controller, predicate};
//!
//! # fn example<B: Finalize<ConfigMap>>(bucket: B) {
//! let ours = predicate::object(|map: &ConfigMap| {
//!     map.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("bucket"))
//! });
//! let controller = Controller::<ConfigMap>::new("bucket")
//!     .predicate(ours)
//!     .complete(Finalizer::new("buckets.example.com/cleanup", bucket));
//! # }
//! ```
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use windlass::finalizer::{Finalize, Finalizer};
//! use windlass::{Context, Controller, Outcome};
//!
//! struct Bucket;
//!
//! impl Finalize<ConfigMap> for Bucket {
//!     async fn reconcile(&self, object: Arc<ConfigMap>, ctx: Context) -> windlass::Result {
//!         Ok(Outcome::Done) // make the bucket
//!     }
//!     async fn cleanup(&self, object: Arc<ConfigMap>, ctx: Context) -> windlass::Result {
//!         Ok(Outcome::Done) // remove it; the finalizer goes once this is done
//!     }
//! }
//!
//! let controller = Controller::<ConfigMap>::new("bucket")
//!     .complete(Finalizer::new("buckets.example.com/cleanup", Bucket));
//! ```

use std::marker::PhantomData;
use std::sync::Arc;

use kube::Resource;
use kube::api::Patch;
use serde_json::json;

use crate::client::{ClientError, Objects, Target};
use crate::controller::{Context, Outcome, Reconcile, ReconcileError};
use crate::key::ObjectKey;
use crate::object::{AsObject, Object};
use crate::retry::ConflictRetry;

/// A reconciler in two halves. Both must be idempotent, and `cleanup` must tolerate that
/// `reconcile` never ran or did not finish.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::finalizer::Finalize;
/// use windlass::{Context, Outcome};
///
/// struct Bucket;
///
/// impl Finalize<ConfigMap> for Bucket {
///     async fn reconcile(&self, _map: Arc<ConfigMap>, _ctx: Context) -> windlass::Result {
///         Ok(Outcome::Done)
///     }
///
///     async fn cleanup(&self, map: Arc<ConfigMap>, _ctx: Context) -> windlass::Result {
///         let busy = map.data.is_some();
///         Ok(if busy { Outcome::RequeueAfter(Duration::from_secs(5)) } else { Outcome::Done })
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not implement `Finalize<{K}>`",
    label = "this has no `cleanup` for objects that are being deleted",
    note = "`Finalizer::new` takes `impl Finalize`, with `reconcile` for objects that exist and `cleanup` for objects that are being deleted",
    note = "a reconciler without `cleanup` (`impl Reconcile`) is given to `Controller::complete` without a `Finalizer`"
)]
pub trait Finalize<K: Object>: Send + Sync + 'static {
    /// Brings the world closer to what the object asks for. The finalizer is on the object.
    fn reconcile(&self, object: Arc<K>, ctx: Context) -> impl Future<Output = crate::Result> + Send;

    /// Undoes it: the object is being deleted. With [`Outcome::Done`] the finalizer is removed
    /// and the object may go; with [`Outcome::RequeueAfter`] or an error it stays.
    fn cleanup(&self, object: Arc<K>, ctx: Context) -> impl Future<Output = crate::Result> + Send;
}

/// Makes a [`Reconcile`] of a [`Finalize`]. See the [module documentation](self).
///
/// ```
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass::finalizer::{Finalize, Finalizer};
/// # use windlass::{Context, Controller};
/// # fn example<B: Finalize<ConfigMap>>(bucket: B) {
/// let controller = Controller::<ConfigMap>::new("bucket")
///     .complete(Finalizer::new("buckets.example.com/cleanup", bucket));
/// # }
/// ```
pub struct Finalizer<K, R> {
    name: String,
    inner: R,
    kind: PhantomData<fn(Arc<K>)>,
}

impl<K, R: Clone> Clone for Finalizer<K, R> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), inner: self.inner.clone(), kind: PhantomData }
    }
}

impl<K, R: std::fmt::Debug> std::fmt::Debug for Finalizer<K, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finalizer").field("name", &self.name).field("inner", &self.inner).finish()
    }
}

impl<K: Object, R: Finalize<K>> Finalizer<K, R> {
    /// `name` is the finalizer's, as `pets.example.com/cleanup`; it must belong to one controller. The kind is the
    /// controller's, also one that is known only at run time:
    ///
    /// ```
    /// # use kube::api::{ApiResource, DynamicObject};
    /// # use windlass::Controller;
    /// # use windlass::finalizer::{Finalize, Finalizer};
    /// # fn example<B: Finalize<DynamicObject>>(kind: ApiResource, bucket: B) {
    /// let controller = Controller::<DynamicObject>::dynamic("bucket", kind)
    ///     .complete(Finalizer::new("buckets.example.com/cleanup", bucket));
    /// # }
    /// ```
    pub fn new(name: impl Into<String>, inner: R) -> Self {
        Self { name: name.into(), inner, kind: PhantomData }
    }

    async fn clean_up(&self, object: Arc<K>, ctx: Context, objects: Objects<K>) -> crate::Result {
        let (key, uid) = (ObjectKey::of(&*object), object.meta().uid.clone());
        let outcome = self.inner.cleanup(object, ctx).await?;
        if outcome == Outcome::Done {
            // `cleanup` may have written the object: start from the latest state, also when it is no
            // longer part of what the controller selects. Another object of the name has not been
            // cleaned up.
            let latest = objects.get(&key).await?;
            if let Some(latest) = latest.filter(|latest| latest.meta().uid == uid) {
                remove(&objects, latest, &self.name).await?;
            }
        }
        Ok(outcome)
    }
}

/// The kind that the controller looks after.
fn own<K: Object>(ctx: &Context) -> Result<Objects<K>, ReconcileError> {
    let unknown = "a finalizer of a kind known only at run time is called by a controller of that kind";
    ctx.own::<K>().ok_or_else(|| ReconcileError::terminal(unknown))
}

impl<K: Object, R: Finalize<K>> Reconcile<K> for Finalizer<K, R> {
    async fn reconcile(&self, object: Arc<K>, ctx: Context) -> crate::Result {
        let objects = own::<K>(&ctx)?;
        if object.meta().deletion_timestamp.is_none() {
            let object = ensure(&objects, object, &self.name).await?;
            return match object {
                Some(object) => self.inner.reconcile(object, ctx).await,
                None => Ok(Outcome::Done),
            };
        }
        if !contains(&*object, &self.name) {
            return Ok(Outcome::Done);
        }
        self.clean_up(object, ctx, objects).await
    }

    /// An object may have left the controller's scope while it was being cleaned up: the client still sees it.
    async fn gone(&self, key: ObjectKey, ctx: Context) -> crate::Result {
        let objects = own::<K>(&ctx)?;
        let ours = |object: &Arc<K>| object.meta().deletion_timestamp.is_some() && contains(&**object, &self.name);
        match objects.get(&key).await?.filter(ours) {
            Some(object) => self.clean_up(object, ctx, objects).await,
            None => Ok(Outcome::Done),
        }
    }
}

/// Whether an object carries a finalizer.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// let mut map = ConfigMap::default();
/// map.metadata.finalizers = Some(vec!["buckets.example.com/cleanup".into()]);
/// assert!(windlass::finalizer::contains(&map, "buckets.example.com/cleanup"));
/// ```
pub fn contains<Form>(object: &impl AsObject<Form>, finalizer: &str) -> bool {
    let finalizers = object.as_object().meta().finalizers.as_ref();
    finalizers.is_some_and(|list| list.iter().any(|name| name == finalizer))
}

/// Adds a finalizer unless it is there, and returns the object with it. `None` when the object is
/// gone or being deleted, when it is too late.
///
/// The target is a [`Context`], a [`CachedClient`](crate::CachedClient) or, for a kind known only at run time, the
/// [`Objects`] of it.
pub async fn ensure<K: Object>(
    target: &impl Target<K>,
    object: Arc<K>,
    finalizer: &str,
) -> Result<Option<Arc<K>>, ClientError> {
    change(&target.target(), object, |object| {
        let meta = object.meta();
        if meta.deletion_timestamp.is_some() || contains(object, finalizer) {
            return None;
        }
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        finalizers.push(finalizer.to_owned());
        Some(finalizers)
    })
    .await
    .map(|object| object.filter(|object| object.meta().deletion_timestamp.is_none()))
}

/// Removes a finalizer if it is there. An object that is gone is fine. The target is as for [`ensure`].
pub async fn remove<K: Object>(target: &impl Target<K>, object: Arc<K>, finalizer: &str) -> Result<(), ClientError> {
    change(&target.target(), object, |object| {
        let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
        let others = finalizers.iter().filter(|name| *name != finalizer);
        contains(object, finalizer).then(|| others.cloned().collect())
    })
    .await
    .map(drop)
}

/// Replaces the list of finalizers by what `wanted` makes of it; `None` leaves it alone. Each
/// write is for exactly the state `wanted` saw; on a conflict it is asked about the latest one.
async fn change<K: Object>(
    objects: &Objects<K>,
    mut object: Arc<K>,
    wanted: impl Fn(&K) -> Option<Vec<String>>,
) -> Result<Option<Arc<K>>, ClientError> {
    let key = ObjectKey::of(&*object);
    let uid = object.meta().uid.clone();
    let mut retry = ConflictRetry::new();
    loop {
        let Some(finalizers) = wanted(&object) else {
            return Ok(Some(object));
        };
        let patch = json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": object.meta().resource_version,
        }});
        match objects.patch(&key, &Patch::Merge(patch)).await {
            Ok(object) => return Ok(Some(Arc::new(object))),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) if error.is_conflict() && retry.pause().await => match objects.live().get(&key).await? {
                Some(live) if live.meta().uid == uid => object = Arc::new(live),
                _ => return Ok(None),
            },
            Err(error) => return Err(error),
        }
    }
}
