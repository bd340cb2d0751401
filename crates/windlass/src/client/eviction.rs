//! Evictions: pods are deleted unless their disruption budget cannot spare them.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::json;

use super::options::DeleteOptions;
use super::{CachedClient, ClientError};
use crate::key::ObjectKey;

impl CachedClient {
    /// Deletes a pod if its disruption budget can spare it. False when there was none.
    ///
    /// While the budget cannot spare the pod, the server answers 429 and nothing happens:
    /// [`is_too_many_requests`](ClientError::is_too_many_requests) tells that from other errors. Come back later.
    ///
    /// The operator needs the verb `create` on `pods/eviction`:
    /// [`.permits("", ["pods/eviction"], ["create"])`](crate::Controller::permits).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use windlass::{Context, ObjectKey, Outcome};
    /// use windlass::client::options::DeleteOptions;
    ///
    /// async fn move_away(pod: Arc<Pod>, ctx: Context) -> windlass::Result {
    ///     let options = DeleteOptions::new().uid(pod.metadata.uid.clone().unwrap_or_default());
    ///     match ctx.client().evict(&ObjectKey::of(&pod), options).await {
    ///         Err(error) if error.is_too_many_requests() => Ok(Outcome::RequeueAfter(Duration::from_secs(10))),
    ///         evicted => evicted.map(|_| Outcome::Done).map_err(Into::into),
    ///     }
    /// }
    /// ```
    pub async fn evict(&self, pod: &ObjectKey, options: DeleteOptions) -> Result<bool, ClientError> {
        let pods = self.objects::<Pod>();
        let (request, name) = pods.locate("evict", pod)?;
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name(), "namespace": pod.namespace()},
            "deleteOptions": options.params(),
        });
        let request = request.create_subresource("eviction", &name, &PostParams::default(), pods.encode(&eviction)?);
        match pods.write_beside("evict", pod, pod, request, options.is_dry_run()).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
