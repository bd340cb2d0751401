//! Deletes what is in a namespace and counts what is left.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DeleteParams, ListParams, Request};
use kube::core::ObjectList;
use serde::Deserialize;
use serde::de::IgnoredAny;
use windlass::CachedClient;

use super::Counts;
use crate::controllers::discovery::{Served, discover};
use crate::controllers::metadata::Metadata;

/// Kinds emptied at the same time.
const PARALLEL: usize = 16;
/// How long finalizers are expected to take, in seconds.
const FINALIZERS_TAKE: u64 = 15;
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// What a sweep through a namespace found.
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// Why the kinds could not be discovered.
    pub(super) discovery_error: Option<String>,
    /// What could not be deleted.
    pub(super) content_errors: Vec<String>,
    /// Objects left by resource, as `configmaps.` or `deployments.apps`.
    pub(super) remaining: Counts,
    /// Objects left by finalizer.
    pub(super) finalizers: Counts,
    /// Whether only pods were looked at, because there are some left.
    pub(super) only_pods: bool,
    /// Seconds that what is left may take; 0 when nothing is.
    pub(super) estimate: u64,
}

impl Swept {
    pub(super) fn errors(&self) -> impl Iterator<Item = &str> {
        self.discovery_error.iter().chain(&self.content_errors).map(String::as_str)
    }

    fn add(&mut self, served: &Served, left: Result<Left, (Left, String)>) {
        let left = left.unwrap_or_else(|(left, error)| {
            self.content_errors.push(error);
            left
        });
        self.estimate = self.estimate.max(left.estimate);
        if left.objects.is_empty() {
            return;
        }
        let name = format!("{}.{}", served.resource.plural, served.resource.group);
        self.remaining.insert(name, left.objects.len());
        for finalizer in left.objects.iter().flat_map(Metadata::finalizers) {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }
}

/// What is left of one kind.
#[derive(Default)]
struct Left {
    objects: Vec<Metadata>,
    estimate: u64,
}

/// Deletes everything in a namespace, as far as it can be deleted now.
pub(super) async fn sweep(client: &CachedClient, namespace: &Namespace) -> Swept {
    let mut swept = Swept::default();
    let discovered = match discover(client.kube()).await {
        Ok(discovered) => discovered,
        Err(error) => {
            swept.discovery_error = Some(error.to_string());
            return swept;
        }
    };
    swept.discovery_error = stale(discovered.stale);
    let deletable = discovered.preferred.into_iter().filter(|served| served.namespaced && served.supports(&["delete"]));
    let (pods, others): (Vec<_>, Vec<_>) = deletable.partition(|served| is_pods(&served.resource));
    let sweeper = &Sweeper { client, namespace };
    for served in pods {
        swept.add(&served, sweeper.empty(&served).await);
    }
    if !swept.remaining.is_empty() {
        swept.only_pods = true;
        return swept;
    }
    let emptied = others.into_iter().map(async |served| {
        let left = sweeper.empty(&served).await;
        (served, left)
    });
    let emptied: Vec<_> = futures::stream::iter(emptied).buffer_unordered(PARALLEL).collect().await;
    for (served, left) in emptied {
        swept.add(&served, left);
    }
    swept
}

/// What is said about group versions whose server does not answer: what they have in the namespace is not known.
fn stale(mut versions: Vec<String>) -> Option<String> {
    if versions.is_empty() {
        return None;
    }
    versions.sort();
    let count = versions.len();
    let each: Vec<String> =
        versions.iter().map(|version| format!("{version}: stale GroupVersion discovery: {version}")).collect();
    let each = each.join(", ");
    let why = format!("unable to retrieve the complete list of server APIs: {each}");
    Some(format!("Discovery failed for some groups, {count} failing: {why}"))
}

fn is_pods(resource: &ApiResource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

struct Sweeper<'a> {
    client: &'a CachedClient,
    namespace: &'a Namespace,
}

impl Sweeper<'_> {
    fn name(&self) -> &str {
        self.namespace.metadata.name.as_deref().unwrap_or_default()
    }

    /// Deletes all objects of a kind, and says what is left.
    async fn empty(&self, served: &Served) -> Result<Left, (Left, String)> {
        self.try_empty(served).await.unwrap_or_else(|error| {
            // A kind that is gone, or has no such verb, has nothing left.
            let gone = matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 405));
            if gone { Ok(Left::default()) } else { Err((Left::default(), message(&error))) }
        })
    }

    async fn try_empty(&self, served: &Served) -> Result<Result<Left, (Left, String)>, kube::Error> {
        // Most kinds have nothing in most namespaces. What is created from here on is refused, since
        // the namespace is being deleted.
        if !served.supports(&["list"]) {
            return Ok(Ok(Left::default()));
        }
        let mut objects = self.list(served).await?;
        if objects.is_empty() {
            return Ok(Ok(Left::default()));
        }
        let estimate = if is_pods(&served.resource) { self.grace().await? } else { 0 };
        // Nothing comes of deleting once more what an earlier sweep has deleted.
        if !objects.iter().all(is_marked) {
            if served.supports(&["deletecollection"]) {
                self.delete_collection(served).await?;
            } else {
                self.delete_each(served).await?;
            }
            objects = self.list(served).await?;
        }
        if objects.is_empty() {
            return Ok(Ok(Left::default()));
        }
        let held = objects.iter().any(|object| !object.finalizers().is_empty());
        if estimate > 0 || held {
            let estimate = if estimate > 0 { estimate } else { FINALIZERS_TAKE };
            return Ok(Ok(Left { objects, estimate }));
        }
        let (name, resource) = (self.name(), served.describe());
        let error = format!("unexpected items still remain in namespace: {name} for gvr: {resource}");
        Ok(Err((Left { objects, estimate }, error)))
    }

    fn request(&self, served: &Served) -> Request {
        Request::new(<Metadata as kube::Resource>::url_path(&served.resource, Some(self.name())))
    }

    async fn list(&self, served: &Served) -> Result<Vec<Metadata>, kube::Error> {
        let request = self.request(served).list_metadata(&ListParams::default()).map_err(kube::Error::BuildRequest)?;
        let list: ObjectList<Metadata> = self.client.kube().request(request).await?;
        Ok(list.items)
    }

    async fn delete_collection(&self, served: &Served) -> Result<(), kube::Error> {
        // Not left to defaults: dependents must not be orphaned on the way.
        let params = DeleteParams::background();
        let request = self.request(served).delete_collection(&params, &ListParams::default());
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(METADATA_ONLY));
        self.client.kube().request::<IgnoredAny>(request).await?;
        Ok(())
    }

    async fn delete_each(&self, served: &Served) -> Result<(), kube::Error> {
        for object in self.list(served).await? {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            let request = self.request(served).delete(name, &DeleteParams::background());
            let request = request.map_err(kube::Error::BuildRequest)?;
            match self.client.kube().request::<IgnoredAny>(request).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// How many seconds the pods may take to stop; 0 once they have had that time.
    async fn grace(&self) -> Result<u64, kube::Error> {
        let request = Request::new(<Pod as kube::Resource>::url_path(&(), Some(self.name())));
        let request = request.list(&ListParams::default()).map_err(kube::Error::BuildRequest)?;
        let pods: Stops = self.client.kube().request(request).await?;
        let running = |pod: &&Stop| !matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let longest = pods.items.iter().filter(running).filter_map(|pod| pod.spec.grace).max().unwrap_or(0);
        let since = self.namespace.metadata.deletion_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let elapsed = Timestamp::now().duration_since(since).as_secs();
        Ok(if elapsed >= longest { 0 } else { longest.unsigned_abs() })
    }
}

/// Whether an object is being deleted, and neither waits for its dependents nor is about to orphan them: the policy of a
/// sweep would have changed that.
fn is_marked(object: &Metadata) -> bool {
    let decided = |finalizer: &String| matches!(&**finalizer, "foregroundDeletion" | "orphan");
    object.is_deleting() && !object.finalizers().iter().any(decided)
}

/// Pods, as far as it matters for how long they may take to stop.
#[derive(Deserialize)]
struct Stops {
    items: Vec<Stop>,
}

#[derive(Deserialize)]
struct Stop {
    #[serde(default)]
    spec: StopSpec,
    #[serde(default)]
    status: StopStatus,
}

#[derive(Deserialize, Default)]
struct StopSpec {
    #[serde(rename = "terminationGracePeriodSeconds")]
    grace: Option<i64>,
}

#[derive(Deserialize, Default)]
struct StopStatus {
    phase: Option<String>,
}

fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_named() {
        assert_eq!(stale(Vec::new()), None);
        let message = stale(vec!["b/v1".to_owned(), "a/v1".to_owned()]);
        let expected = "Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server APIs: \
                        a/v1: stale GroupVersion discovery: a/v1, b/v1: stale GroupVersion discovery: b/v1";
        assert_eq!(message.as_deref(), Some(expected));
    }
}
