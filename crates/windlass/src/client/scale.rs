//! How many replicas an object wants and has, whatever its kind.

use std::fmt::Debug;

use k8s_openapi::api::autoscaling::v1::Scale;
use kube::api::Patch;
use serde::Serialize;
use serde_json::json;

use super::options::WriteOptions;
use super::{ClientError, Objects, Subresource};
use crate::key::ObjectKey;
use crate::object::Object;

/// The scale of one object. Made by [`CachedClient::scale`](super::CachedClient::scale) and [`Objects::scale`].
///
/// ```
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # use windlass::{Context, ObjectKey};
/// # async fn example(ctx: Context) -> windlass::Result<()> {
/// let web = ctx.client().scale::<Deployment>(&ObjectKey::new("default", "web"));
/// if let Some(scale) = web.get().await? && scale.status.is_some_and(|status| status.replicas < 3) {
///     web.set(3).await?; // a cached read of the Deployment shows it from here on
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct ScaleHandle<K: Object> {
    scale: Subresource<K>,
    key: ObjectKey,
}

impl<K: Object> ScaleHandle<K> {
    pub(super) fn new(objects: Objects<K>, key: ObjectKey) -> Self {
        Self { scale: Subresource::new(objects, "scale"), key }
    }

    /// The scale as the server has it now; `None` if there is no such object, or its kind cannot be scaled.
    pub async fn get(&self) -> Result<Option<Scale>, ClientError> {
        self.scale.get(&self.key).await
    }

    /// Sets how many replicas are wanted, whatever others write. Nothing else of the object is written.
    pub async fn set(&self, replicas: i32) -> Result<Scale, ClientError> {
        self.set_with(replicas, WriteOptions::new()).await
    }

    /// [`set`](Self::set) with options.
    pub async fn set_with(&self, replicas: i32, options: WriteOptions) -> Result<Scale, ClientError> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.scale.patch_with(&self.key, &patch, options).await
    }

    /// Changes the scale by a patch of it, as one that says which version of the object it is for.
    pub async fn patch(&self, patch: &Patch<impl Serialize + Debug>) -> Result<Scale, ClientError> {
        self.scale.patch(&self.key, patch).await
    }
}
