//! Finalizers: clean up outside the cluster before an object goes away.
//!
//! A [`Finalize`] reconciler has two halves: `reconcile` for objects that live, `cleanup` for
//! objects that are being deleted. [`Finalizer`] makes a [`Reconcile`] of it and looks after the
//! entry in `metadata.finalizers`. What always holds: if `reconcile` ever ran for an object, the
//! object stays until `cleanup` succeeded for it.
//!
//! # Objects that leave the selection
//!
//! A controller that watches a part of its kind, as a [`Scope`](crate::cache::Scope) of labels, is not told what
//! becomes of an object that is no longer part of it. Objects that lose the label while they are being cleaned up
//! are cleaned up all the same; but one that loses it first and is deleted later has the finalizer and nobody who
//! looks after it, and stays until the label is back or somebody removes the finalizer by hand. (In
//! controller-runtime it is the same.) So where users can change what is selected by, select with a
//! [predicate](crate::predicate::object) instead: it costs the memory for the others, and as predicates cannot hold
//! back the end of an object, it is cleaned up whatever its labels are by then.
//!
//! ```
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use windlass::finalizer::{Finalize, Finalizer};
//! use windlass::controller::{Controller, Watch};
//! use windlass::predicate;
//!
//! # fn example<B: Finalize<ConfigMap>>(bucket: B) {
//! let ours = predicate::object(|map: &ConfigMap| {
//!     map.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("bucket"))
//! });
//! let controller = Controller::with_watch("bucket", Watch::default().predicate(ours))
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
//!     async fn reconcile(&self, object: Arc<ConfigMap>, ctx: &Context) -> windlass::Result {
//!         Ok(Outcome::Done) // make the bucket
//!     }
//!     async fn cleanup(&self, object: Arc<ConfigMap>, ctx: &Context) -> windlass::Result {
//!         Ok(Outcome::Done) // remove it; the finalizer goes once this is done
//!     }
//! }
//!
//! let controller = Controller::<ConfigMap>::new("bucket")
//!     .complete(Finalizer::new("buckets.example.com/cleanup", Bucket));
//! ```

use std::sync::Arc;

use kube::api::Patch;
use serde_json::json;

use crate::client::{CachedClient, ClientError};
use crate::controller::{Context, Outcome, Reconcile};
use crate::key::ObjectKey;
use crate::object::Object;

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
///     async fn reconcile(&self, _map: Arc<ConfigMap>, _ctx: &Context) -> windlass::Result {
///         Ok(Outcome::Done)
///     }
///
///     async fn cleanup(&self, map: Arc<ConfigMap>, _ctx: &Context) -> windlass::Result {
///         let busy = map.data.is_some();
///         Ok(if busy { Outcome::RequeueAfter(Duration::from_secs(5)) } else { Outcome::Done })
///     }
/// }
/// ```
pub trait Finalize<K: Object>: Send + Sync + 'static {
    /// Brings the world closer to what the object asks for. The finalizer is on the object.
    fn reconcile(&self, object: Arc<K>, ctx: &Context) -> impl Future<Output = crate::Result> + Send;

    /// Undoes it: the object is being deleted. With [`Outcome::Done`] the finalizer is removed
    /// and the object may go; with [`Outcome::RequeueAfter`] or an error it stays.
    fn cleanup(&self, object: Arc<K>, ctx: &Context) -> impl Future<Output = crate::Result> + Send;
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
#[derive(Debug, Clone)]
pub struct Finalizer<K: Object, R> {
    name: String,
    inner: R,
    dt: K::DynamicType,
}

impl<K: Object, R: Finalize<K>> Finalizer<K, R> {
    /// `name` is the finalizer's, as `pets.example.com/cleanup`; it must belong to one controller.
    pub fn new(name: impl Into<String>, inner: R) -> Self
    where
        K::DynamicType: Default,
    {
        Self::new_with(name, inner, K::DynamicType::default())
    }

    /// The same for a kind known only at run time.
    ///
    /// ```
    /// # use kube::api::{ApiResource, DynamicObject};
    /// # use windlass::finalizer::{Finalize, Finalizer};
    /// use windlass::controller::{Controller, Watch};
    ///
    /// # fn example<B: Finalize<DynamicObject>>(kind: ApiResource, bucket: B) {
    /// let finalizer = Finalizer::new_with("buckets.example.com/cleanup", bucket, kind.clone());
    /// let controller = Controller::with_watch("bucket", Watch::<DynamicObject>::dynamic(kind)).complete(finalizer);
    /// # }
    /// ```
    pub fn new_with(name: impl Into<String>, inner: R, dt: K::DynamicType) -> Self {
        Self { name: name.into(), inner, dt }
    }

    /// An object that the controller selects; or one that it has selected and that still is to be cleaned up.
    async fn find(&self, key: &ObjectKey, ctx: &Context) -> Result<Option<Arc<K>>, ClientError> {
        if let Some(object) = ctx.get_with::<K>(&self.dt, key).await? {
            return Ok(Some(object));
        }
        // The client sees all.
        let object = ctx.client().objects_with::<K>(self.dt.clone()).get(key).await?;
        Ok(object.filter(|object| object.meta().deletion_timestamp.is_some() && contains(&**object, &self.name)))
    }
}

impl<K: Object, R: Finalize<K>> Reconcile for Finalizer<K, R> {
    async fn reconcile(&self, key: &ObjectKey, ctx: &Context) -> crate::Result {
        let Some(object) = self.find(key, ctx).await? else {
            return Ok(Outcome::Done);
        };
        if object.meta().deletion_timestamp.is_none() {
            let object = ensure_with(ctx.client(), &self.dt, object, &self.name).await?;
            return match object {
                Some(object) => self.inner.reconcile(object, ctx).await,
                None => Ok(Outcome::Done),
            };
        }
        if !contains(&*object, &self.name) {
            return Ok(Outcome::Done);
        }
        let uid = object.meta().uid.clone();
        let outcome = self.inner.cleanup(object, ctx).await?;
        if outcome == Outcome::Done {
            // `cleanup` may have written the object: start from the latest state, also when it is no
            // longer part of what the controller selects. Another object of the name has not been
            // cleaned up.
            let latest = ctx.client().objects_with::<K>(self.dt.clone()).get(key).await?;
            if let Some(latest) = latest.filter(|latest| latest.meta().uid == uid) {
                remove_with(ctx.client(), &self.dt, latest, &self.name).await?;
            }
        }
        Ok(outcome)
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
pub fn contains<K: Object>(object: &K, finalizer: &str) -> bool {
    let finalizers = object.meta().finalizers.as_ref();
    finalizers.is_some_and(|list| list.iter().any(|name| name == finalizer))
}

/// Adds a finalizer unless it is there, and returns the object with it. `None` when the object is
/// gone or being deleted, when it is too late.
pub async fn ensure<K: Object>(
    client: &CachedClient,
    object: Arc<K>,
    finalizer: &str,
) -> Result<Option<Arc<K>>, ClientError>
where
    K::DynamicType: Default,
{
    ensure_with(client, &K::DynamicType::default(), object, finalizer).await
}

/// [`ensure`] for an object of a kind known only at run time.
pub async fn ensure_with<K: Object>(
    client: &CachedClient,
    dt: &K::DynamicType,
    object: Arc<K>,
    finalizer: &str,
) -> Result<Option<Arc<K>>, ClientError> {
    change(client, dt, object, |object| {
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

/// Removes a finalizer if it is there. An object that is gone is fine.
pub async fn remove<K: Object>(client: &CachedClient, object: Arc<K>, finalizer: &str) -> Result<(), ClientError>
where
    K::DynamicType: Default,
{
    remove_with(client, &K::DynamicType::default(), object, finalizer).await
}

/// [`remove`] for an object of a kind known only at run time.
pub async fn remove_with<K: Object>(
    client: &CachedClient,
    dt: &K::DynamicType,
    object: Arc<K>,
    finalizer: &str,
) -> Result<(), ClientError> {
    change(client, dt, object, |object| {
        let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
        let others = finalizers.iter().filter(|name| *name != finalizer);
        contains(object, finalizer).then(|| others.cloned().collect())
    })
    .await
    .map(drop)
}

/// How often a write is tried when others write the object too.
const ATTEMPTS: usize = 5;

/// Replaces the list of finalizers by what `wanted` makes of it; `None` leaves it alone. Each
/// write is for exactly the state `wanted` saw; on a conflict it is asked about the latest one.
async fn change<K: Object>(
    client: &CachedClient,
    dt: &K::DynamicType,
    mut object: Arc<K>,
    wanted: impl Fn(&K) -> Option<Vec<String>>,
) -> Result<Option<Arc<K>>, ClientError> {
    let objects = client.objects_with::<K>(dt.clone());
    let key = ObjectKey::of(&*object);
    let uid = object.meta().uid.clone();
    for attempt in 1.. {
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
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => match objects.get_live(&key).await? {
                Some(live) if live.meta().uid == uid => object = Arc::new(live),
                _ => return Ok(None),
            },
            Err(error) => return Err(error),
        }
    }
    unreachable!("invariant: the last attempt returns")
}
