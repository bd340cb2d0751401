//! The garbage collector: deletes what has lost its last owner, and carries out foreground and orphan
//! deletion.
//!
//! The [`Inventory`] feeds a [`Graph`] of all objects; the graph says what to look at; workers look at
//! the live objects and act. A decision to delete is never made from the graph alone. Workers wait
//! while the objects of a kind are still being listed: orphaning needs to know all dependents.
//!
//! Mirrors upstream's `pkg/controller/garbagecollector`.

mod collector;
mod graph;

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use windlass::Manager;
use windlass::controller::RepeatedPanics;
use windlass::events::{NewEvent, Recorder};
use windlass::informer::Change;
use windlass::manager::ManagerError;
use windlass::queue::{Priority, Queue};

use super::discovery::Served;
use super::inventory::{Inventory, Watched};
use super::metadata::Metadata;
use super::work::{WorkMetrics, work};
use collector::Collector;
use graph::{Effects, Graph, Identity, Kind, Uid};

/// Objects whose deletion is attempted at the same time.
const DELETERS: usize = 20;
/// Objects whose dependents are orphaned at the same time.
const ORPHANERS: usize = 4;

pub(super) fn add(manager: &mut Manager, inventory: &mut Inventory) -> Result<(), ManagerError> {
    let shared = Arc::new(Shared {
        graph: Mutex::new(Graph::default()),
        delete: Queue::default(),
        orphan: Queue::default(),
        unmapped: Mutex::default(),
        recorder: manager.recorder("garbage-collector-controller"),
    });
    let feed = Arc::clone(&shared);
    inventory.on_change(move |watched, change| feed.change(watched, change));
    let feed = Arc::clone(&shared);
    inventory.on_gone(move |watched, ending| {
        let effects = feed.graph.lock().forget(watched.number, ending);
        feed.carry_out(effects, Priority::NORMAL);
    });
    let mut kinds = inventory.kinds();
    let client = manager.client_of("garbage-collector-controller");
    let collector = Arc::new(Collector::new(client, inventory.kinds(), Arc::clone(&shared)));
    let (deletions, orphans) = (RepeatedPanics::default(), RepeatedPanics::default());
    let checks = (deletions.clone(), orphans.clone());
    manager.add_ready_check("controller/garbage-collector-controller", move || checks.0.check().and(checks.1.check()));
    let metrics = WorkMetrics::new(manager.registry(), "garbage-collector-controller");
    // Upstream's names of these queues.
    WorkMetrics::show(manager.registry(), "garbage_collector_attempt_to_delete", &shared.delete);
    WorkMetrics::show(manager.registry(), "garbage_collector_attempt_to_orphan", &shared.orphan);
    manager.add_task("garbage-collector-controller", |shutdown| async move {
        let feed = Arc::clone(&shared);
        let deleter = Arc::clone(&collector);
        let counted = metrics.clone();
        let deleting = work(shared.delete.clone(), DELETERS, shutdown.clone(), deletions, counted, move |uid: Uid| {
            let collector = Arc::clone(&deleter);
            async move { collector.attempt_to_delete(&uid).await }
        });
        let following = shutdown.clone().run_until_cancelled_owned(async move {
            while kinds.changed().await.is_ok() {
                feed.look_again();
            }
        });
        let orphaning = work(shared.orphan.clone(), ORPHANERS, shutdown, orphans, metrics, move |uid: Uid| {
            let collector = Arc::clone(&collector);
            async move { collector.attempt_to_orphan(&uid).await }
        });
        futures::join!(deleting, orphaning, following);
        Ok::<_, std::convert::Infallible>(())
    })
}

fn kind_of(served: &Served) -> Kind {
    Kind::new(&served.resource.api_version, &served.resource.kind)
}

/// What feeds the collector and what it reads.
struct Shared {
    graph: Mutex<Graph>,
    delete: Queue<Uid>,
    orphan: Queue<Uid>,
    /// Objects that could not be looked at because a kind is not served.
    unmapped: Mutex<HashSet<Uid>>,
    recorder: Recorder,
}

impl Shared {
    fn change(&self, watched: &Watched, change: &Change<Metadata>) {
        let watch = watched.number;
        let mut graph = self.graph.lock();
        let kind = graph.kind(watch, || kind_of(&watched.served));
        let effects = match change {
            Change::Added { object, .. } => graph.observe(&kind, watch, object, None),
            Change::Updated { old, new } if old.uid() == new.uid() => graph.observe(&kind, watch, new, Some(old)),
            Change::Updated { old, new } => {
                // Deleted and created again while the watch was down.
                let gone = graph.delete(old.uid());
                let effects = graph.observe(&kind, watch, new, None);
                drop(graph);
                self.carry_out(gone, Priority::NORMAL);
                return self.carry_out(effects, Priority::NORMAL);
            }
            Change::Resync { .. } => return,
            Change::Deleted { object } => graph.delete(object.uid()),
        };
        drop(graph);
        let initial = matches!(change, Change::Added { initial: true, .. });
        self.carry_out(effects, if initial { Priority::LOW } else { Priority::NORMAL });
    }

    /// The served kinds have changed: objects that waited for one need not wait for their next turn.
    fn look_again(&self) {
        let waiting = std::mem::take(&mut *self.unmapped.lock());
        for uid in waiting {
            self.delete.add(uid, Priority::NORMAL);
        }
    }

    fn carry_out(&self, effects: Effects, priority: Priority) {
        for uid in effects.delete {
            self.delete.add(uid, priority);
        }
        for uid in effects.orphan {
            self.orphan.add(uid, priority);
        }
        for (dependent, owner) in effects.misplaced {
            self.report(&dependent, &owner);
        }
    }

    /// Tells people about a reference into another namespace.
    fn report(&self, dependent: &Identity, owner: &Identity) {
        let note = format!("ownerRef {owner} does not exist in namespace {:?}", &*dependent.namespace);
        let regarding = ObjectReference {
            api_version: Some(dependent.kind.api_version.to_string()),
            kind: Some(dependent.kind.name.to_string()),
            namespace: Some(dependent.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
            name: Some(dependent.name.to_string()),
            uid: Some(dependent.uid.to_string()),
            ..ObjectReference::default()
        };
        self.recorder.publish(regarding, NewEvent::warning("OwnerRefInvalidNamespace", note));
    }
}
