//! ResourceQuotas: how much of what they limit is used.
//!
//! Usage is counted anew from what the server has whenever something that may be limited comes, goes
//! or, for the kinds whose state matters, changes. Admission refuses what exceeds a quota and writes what
//! it lets pass into the usage at once; a count that such a write overtakes is thrown away, because the
//! quota has changed since it was read. Mirrors upstream's `pkg/controller/resourcequota`.

mod usage;

use std::collections::BTreeMap;
use std::convert::Infallible;

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tokio_util::sync::CancellationToken;
use windlass::cache::Lister;
use windlass::client::options::ListOptions;
use windlass::controller::RepeatedPanics;
use windlass::informer::Change;
use windlass::manager::ManagerError;
use windlass::queue::{Completion, Priority, Queue};
use windlass::{CachedClient, Manager, ObjectKey, ReconcileError};

use super::discovery::Served;
use super::inventory::Inventory;
use super::metadata::Metadata;
use super::work::{WorkMetrics, work};

/// Quotas worked on at the same time.
const WORKERS: usize = 5;

pub(super) fn add(manager: &mut Manager, inventory: &mut Inventory) -> Result<(), ManagerError> {
    let queue = Queue::default();
    let quotas = manager.lister::<ResourceQuota>();
    let (woken, known) = (queue.clone(), quotas.clone());
    inventory.on_change(move |watched, change| {
        if let Some(namespace) = concerned(&watched.served, change) {
            for quota in known.in_namespace(namespace) {
                woken.add(ObjectKey::of(&*quota), Priority::NORMAL);
            }
        }
    });
    let client = manager.client_of("resourcequota-controller");
    let panics = RepeatedPanics::default();
    let check = panics.clone();
    manager.add_ready_check("controller/resourcequota-controller", move || check.check());
    let metrics = WorkMetrics::new(manager.registry(), "resourcequota-controller");
    WorkMetrics::show(manager.registry(), "resourcequota-controller", &queue);
    manager.add_task("resourcequota-controller", |shutdown| run(client, quotas, queue, panics, metrics, shutdown))
}

/// The namespace whose usage a change may have changed.
fn concerned<'a>(served: &Served, change: &'a Change<Metadata>) -> Option<&'a str> {
    let stateful = served.resource.group.is_empty()
        && matches!(&*served.resource.plural, "pods" | "services" | "persistentvolumeclaims");
    let relevant = match change {
        Change::Added { initial, .. } => !initial,
        Change::Updated { .. } => stateful,
        Change::Resync { .. } => false,
        Change::Deleted { .. } => true,
    };
    if relevant { change.object().metadata.namespace.as_deref() } else { None }
}

async fn run(
    client: CachedClient,
    quotas: Lister<ResourceQuota>,
    queue: Queue<ObjectKey>,
    panics: RepeatedPanics<ObjectKey>,
    metrics: WorkMetrics,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    let woken = queue.clone();
    let _subscription = quotas.subscribe(move |change| {
        if is_reason_to_count(change) {
            woken.add(ObjectKey::of(&**change.object()), Priority::NORMAL);
        }
    });
    let each = move |key: ObjectKey| {
        let client = client.clone();
        async move {
            match sync(&client, &key).await {
                Ok(()) => Completion::Done,
                Err(error) => {
                    if !error.is_conflict() {
                        tracing::warn!(quota = %key, %error, "the usage of a quota cannot be counted");
                    }
                    Completion::Retry
                }
            }
        }
    };
    work(queue, WORKERS, shutdown, panics, metrics, each).await;
    Ok(())
}

/// Whether usage has to be counted because of a change of the quota. That usage itself has changed, which
/// admission does with every write, is none.
fn is_reason_to_count(change: &Change<ResourceQuota>) -> bool {
    let hard = |quota: &ResourceQuota| quota.status.as_ref().and_then(|status| status.hard.clone());
    match change {
        Change::Updated { old, new } => old.spec != new.spec || hard(old) != hard(new),
        Change::Added { .. } | Change::Resync { .. } => true,
        Change::Deleted { .. } => false,
    }
}

async fn sync(client: &CachedClient, key: &ObjectKey) -> Result<(), ReconcileError> {
    // Upstream's role of this controller allows lists, but no get.
    let only = ListOptions::new()
        .namespace(key.namespace().unwrap_or_default())
        .fields(format!("metadata.name={}", key.name()));
    let Some(quota) = client.live().list_with::<ResourceQuota>(only).await?.into_iter().next() else { return Ok(()) };
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let used: BTreeMap<String, Quantity> = usage::count(client, &quota, &hard).await?;
    let status = ResourceQuotaStatus { hard: Some(hard), used: Some(used.clone()) };
    let known = quota.status.as_ref();
    if known.is_some_and(|known| known.hard == status.hard && usage::same(known.used.as_ref(), &used)) {
        return Ok(());
    }
    match client.update_status(&ResourceQuota { status: Some(status), ..quota }).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
