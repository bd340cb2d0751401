//! Empties namespaces that are being deleted, says in their status what is left and why, and lets
//! them go when nothing is.
//!
//! Pods go first, everything else after the last pod. What stays behind (finalizers, graceful
//! termination) is not polled for: the [`Inventory`] tells when the last object of a kind in a terminating
//! namespace goes, or one changes its finalizers. Mirrors upstream's `pkg/controller/namespace`.

mod conditions;
mod content;
mod population;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, NamespaceSpec};
use kube::api::{PostParams, Request};
use kube::core::Status;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use windlass::cache::Lister;
use windlass::client::ClientError;
use windlass::controller::RepeatedPanics;
use windlass::informer::Change;
use windlass::manager::ManagerError;
use windlass::queue::{Completion, Priority, Queue, QueueConfig};
use windlass::{CachedClient, Manager, ObjectKey, ReconcileError};

use super::inventory::{Inventory, WatchNumber};
use super::metadata::Metadata;
use super::work::{WorkMetrics, work};
use conditions::Conditions;
use population::Population;

const FINALIZER: &str = "kubernetes";
/// Namespaces worked on at the same time.
const WORKERS: usize = 10;
/// A namespace that cannot be emptied is tried again at least this often.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Whether objects may be created in a namespace.
pub(super) fn is_active(namespace: &Namespace) -> bool {
    namespace.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Active")
}

/// Whether a write was refused because the namespace is being deleted.
pub(super) fn is_terminating(error: &ClientError) -> bool {
    let causes = |status: &Status| status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
    error.status().is_some_and(|status| causes(status).iter().any(|cause| cause.reason == "NamespaceTerminating"))
}

pub(super) fn add(manager: &mut Manager, inventory: &mut Inventory) -> Result<(), ManagerError> {
    let queue = Queue::new(QueueConfig::default().max_delay(MAX_DELAY));
    let namespaces = manager.lister::<Namespace>();
    let (woken, known) = (queue.clone(), namespaces.clone());
    let population = Arc::new(Mutex::new(Population::default()));
    let counted = Arc::clone(&population);
    inventory.on_gone(move |watched, _| counted.lock().forget(watched.number));
    inventory.on_change(move |watched, change| {
        let Some(namespace) = change.object().metadata.namespace.as_deref() else { return };
        if !is_relevant(change, namespace, watched.number, &population) {
            return;
        }
        let key = ObjectKey::cluster(namespace);
        if known.get(&key).is_some_and(|namespace| is_deleting(&namespace)) {
            woken.add(key, Priority::NORMAL);
        }
    });
    let client = manager.client_of("namespace-controller");
    let panics = RepeatedPanics::default();
    let check = panics.clone();
    manager.add_ready_check("controller/namespace-controller", move || check.check());
    let metrics = WorkMetrics::new(manager.registry(), "namespace-controller");
    WorkMetrics::show(manager.registry(), "namespace-controller", &queue);
    manager.add_task("namespace-controller", |shutdown| run(client, namespaces, queue, panics, metrics, shutdown))
}

/// Whether a change may bring the deletion of its namespace forward. Of a thousand pods that go, only the last one
/// does: the namespace is not looked through for each of them.
fn is_relevant(change: &Change<Metadata>, namespace: &str, watch: WatchNumber, population: &Mutex<Population>) -> bool {
    match change {
        Change::Added { initial, .. } => {
            population.lock().add(namespace, watch);
            !initial
        }
        Change::Updated { old, new } => old.finalizers() != new.finalizers(),
        Change::Resync { .. } => false,
        Change::Deleted { .. } => population.lock().remove(namespace, watch) == 0,
    }
}

fn is_deleting(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

async fn run(
    client: CachedClient,
    namespaces: Lister<Namespace>,
    queue: Queue<ObjectKey>,
    panics: RepeatedPanics<ObjectKey>,
    metrics: WorkMetrics,
    shutdown: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    let woken = queue.clone();
    let _subscription = namespaces.subscribe(move |change| {
        if is_deleting(change.object()) && !matches!(change, Change::Deleted { .. }) {
            woken.add(ObjectKey::of(&**change.object()), Priority::NORMAL);
        }
    });
    let each = move |key: ObjectKey| {
        let client = client.clone();
        async move {
            match finish(&client, &key).await {
                Ok(None) => Completion::Done,
                Ok(Some(again)) => Completion::RequeueAfter(again),
                Err(error) => {
                    tracing::warn!(namespace = key.name(), %error, "a namespace cannot be emptied");
                    Completion::Retry
                }
            }
        }
    };
    work(queue, WORKERS, shutdown, panics, metrics, each).await;
    Ok(())
}

/// Brings the deletion of a namespace as far as it goes; the time after which to look again if it
/// is not done.
async fn finish(client: &CachedClient, key: &ObjectKey) -> Result<Option<Duration>, ReconcileError> {
    // The cache may be behind, and what follows cannot be undone.
    let Some(mut namespace) = client.live().get::<Namespace>(key).await? else { return Ok(None) };
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default();
    if !is_deleting(&namespace) || finalizers.is_empty() {
        return Ok(None);
    }
    let swept = content::sweep(client, &namespace).await;
    let mut status = namespace.status.take().unwrap_or_default();
    status.phase = Some("Terminating".to_owned());
    let conditions = Conditions::of(&swept);
    let changed = conditions.update(status.conditions.get_or_insert_default(), k8s_openapi::jiff::Timestamp::now());
    namespace.status = Some(status);
    if changed {
        match client.update_status(&namespace).await {
            Ok(updated) => namespace = updated,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(error) = swept.errors().next() {
        return Err(ReconcileError::new(error.to_owned()));
    }
    if swept.estimate > 0 {
        return Ok(Some(Duration::from_secs(swept.estimate / 2 + 1)));
    }
    release(client, &namespace).await?;
    Ok(None)
}

/// Removes the finalizer that stands for this controller. A conflict is an error: the namespace is
/// looked at again.
async fn release(client: &CachedClient, namespace: &Namespace) -> Result<(), ReconcileError> {
    let mut finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.clone()).unwrap_or_default();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    finalizers.sort();
    finalizers.dedup();
    let released = Namespace {
        metadata: namespace.metadata.clone(),
        spec: Some(NamespaceSpec { finalizers: Some(finalizers) }),
        status: None,
    };
    let params = PostParams { field_manager: Some(client.field_manager().to_owned()), ..PostParams::default() };
    let name = namespace.metadata.name.as_deref().unwrap_or_default();
    let request = Request::new("/api/v1/namespaces");
    let request = request.replace_subresource("finalize", name, &params, serde_json::to_vec(&released)?)?;
    match client.kube().request::<serde::de::IgnoredAny>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// How many of something there are.
type Counts = BTreeMap<String, usize>;
